//! Silences: alerts that are not sent for a while, and what is sent because of that.
//!
//! A silence changes nothing of whether an alert fires. It is shown, logged and counted as before, and it is not sent. What fires still
//! when its silence ends is sent then.
//!
//! Invariant: of an alert that was sent, its end is sent too, silence or not; of one that was not sent, neither.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    alerts::{Change, Firing},
    turns::is_about_a_node,
};

/// Most silences at the same time.
pub const SILENCES_MAX: usize = 100;
/// The longest one, in minutes: thirty days. What is to be quiet for longer is forgotten.
pub const MINUTES_MAX: u32 = 30 * 24 * 60;

/// An alert that is not to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Its name.
    pub alert: String,
    /// What it is about; whatever it is about where nothing is said.
    #[serde(default)]
    pub subject: Option<String>,
    /// The uuid of the node that tells it; whichever does where nothing is said. Never of an alert about a node: its subject says which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What that node was called, for when it has left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Until when, in seconds since 1970.
    pub until_secs: u64,
    /// The user who has asked for it.
    pub by: String,
    /// Why.
    #[serde(default)]
    pub comment: String,
}

impl Silence {
    /// Whether it lasts still.
    #[must_use]
    pub fn lasts(&self, now_secs: u64) -> bool {
        now_secs < self.until_secs
    }

    /// The same as this version makes it. An earlier one kept the node that an alert is about as the one that tells it. So it hid what
    /// that node told of others. `name`: what alerts call a node of that uuid.
    #[must_use]
    pub fn settled(self, name: impl Fn(&str) -> Option<String>) -> Self {
        let Some(told) = self.node.as_deref().filter(|_| is_about_a_node(&self.alert)) else { return self };
        match self.subject.clone().or_else(|| name(told)) {
            Some(about) => Self { subject: Some(about), node: None, node_name: None, ..self },
            None => self,
        }
    }

    /// Whether an alert that a node of that uuid tells is not to be sent because of it.
    #[must_use]
    pub fn covers(&self, alert: &str, subject: &str, node: &str, now_secs: u64) -> bool {
        let is_about = self.subject.as_deref().is_none_or(|about| about == subject);
        let is_told_there = self.node.as_deref().is_none_or(|told| told == node && !is_about_a_node(alert));
        self.lasts(now_secs) && self.alert == alert && is_about && is_told_there
    }
}

/// What has been sent of the alerts that fire.
#[derive(Debug, Default)]
pub struct Outbox(BTreeMap<(&'static str, String), Firing>);

impl Outbox {
    /// Takes what fires now; what is to be sent.
    pub fn look(&mut self, firing: Vec<Firing>, is_silenced: impl Fn(&Firing) -> bool) -> Vec<Change> {
        let firing: BTreeMap<_, _> =
            firing.into_iter().map(|one| ((one.about.name, one.subject.clone()), one)).collect();
        let mut changes = Vec::new();
        self.0.retain(|key, sent| {
            let goes_on = firing.get(key).is_some_and(|now| now.since_secs == sent.since_secs);
            if !goes_on {
                changes.push(Change::Cleared(sent.clone()));
            }
            goes_on
        });
        for (key, one) in firing {
            if !self.0.contains_key(&key) && !is_silenced(&one) {
                changes.push(Change::Fired(one.clone()));
                self.0.insert(key, one);
            }
        }
        changes
    }
}
