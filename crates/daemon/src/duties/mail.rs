//! Alerts by mail. Each node mails what fires on it and what is over, all of a moment in one mail.
//!
//! Invariants: a node sends no more than one mail a minute about alerts, however many fire, and gives each up after three attempts. What
//! waits is bounded.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use admin::MailSettings;
use http::Gate as _;
use tokio::sync::{mpsc, watch as flags};
use watch::alerts::{About, Change, Firing};

use crate::control::Control;

/// Changes that wait to be mailed; the log and REST have further ones.
const WAITING_MAX: usize = 64;
/// What fires within so long of the first alert goes into the same mail.
const GATHER: Duration = Duration::from_secs(2);
/// From one mail to the next. Tests do not wait for a minute.
const REST: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 60 });
/// Pauses before attempts.
const ATTEMPTS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(10), Duration::from_secs(60)];

/// Takes changes to be mailed.
pub(crate) struct Mailer(mpsc::Sender<Change>);

impl Mailer {
    /// Starts what mails, until `ended`.
    pub(crate) fn start(control: Arc<Control>, ended: flags::Receiver<bool>) -> Self {
        let (sender, waiting) = mpsc::channel(WAITING_MAX);
        tokio::spawn(run(control, waiting, ended));
        Self(sender)
    }

    /// Has a change mailed.
    pub(crate) fn send(&self, change: &Change) {
        if self.0.try_send(change.clone()).is_err() {
            let (Change::Fired(Firing { about, .. }) | Change::Cleared(Firing { about, .. })) = change;
            tracing::warn!(alert = about.name, "an alert was not mailed: too many wait");
        }
    }
}

async fn run(control: Arc<Control>, mut waiting: mpsc::Receiver<Change>, mut ended: flags::Receiver<bool>) {
    loop {
        let round = async {
            let Some(first) = waiting.recv().await else { return false };
            tokio::time::sleep(GATHER).await;
            let mut changes = vec![first];
            while let Ok(change) = waiting.try_recv() {
                changes.push(change);
            }
            deliver_by_settings(&control, &changes).await;
            tokio::time::sleep(REST).await;
            true
        };
        tokio::select! {
            // An error means that the sender is gone: the node stops as well.
            _ = ended.wait_for(|stop| *stop) => return,
            goes_on = round => if !goes_on {
                return;
            },
        }
    }
}

async fn deliver_by_settings(control: &Control, changes: &[Change]) {
    let mut failure = String::new();
    for pause in ATTEMPTS {
        tokio::time::sleep(pause).await;
        // They may have been changed because of what failed.
        let settings = MailSettings::of(&control.metadata());
        if !settings.enabled || settings.recipients.is_empty() {
            return;
        }
        let (subject, body) =
            text(changes, &control.name(), |about| control.guide_url(about).unwrap_or_else(|| about.guide()));
        let mail = settings.mail(subject, body);
        match control.mails().send(mail, control.unix_secs()).await {
            Ok(()) => return,
            Err(text) => failure = text,
        }
    }
    control.mails().gave_up();
    tracing::warn!(alerts = changes.len(), failure, "a mail about alerts could not be sent");
}

/// Subject and text of a mail about changes. `guide` says where an alert is explained.
fn text(changes: &[Change], node: &str, guide: impl Fn(&About) -> String) -> (String, String) {
    let mut body = String::new();
    for change in changes {
        // Writing to a string cannot fail.
        let _ = match change {
            Change::Fired(Firing { about, text, .. }) => {
                let (level, guide) = (about.level.word(), guide(about));
                writeln!(
                    body,
                    "{} ({level}): {text}\n{}\nMeaning and cause: {guide}\n",
                    about.name, about.act
                )
            }
            Change::Cleared(Firing { about, text, .. }) => writeln!(body, "{} is over: {text}\n", about.name),
        };
    }
    let (first, what) = match changes.first() {
        Some(Change::Fired(one)) => (one.about.name, ""),
        Some(Change::Cleared(one)) => (one.about.name, " is over"),
        None => ("", ""),
    };
    let more = match changes.len() {
        0 | 1 => String::new(),
        many => format!(" and {} more", many - 1),
    };
    let _ = writeln!(body, "Node {node} has sent this. GET /settee/alerts shows what fires now.");
    (format!("Couchbase Server alert: {first}{what}{more}"), body)
}

#[cfg(test)]
mod tests {
    use watch::alerts;

    use super::*;

    #[test]
    fn many_changes_are_one_mail() {
        let firing = |about, subject: &str| Firing {
            about,
            subject: subject.into(),
            text: format!("Bucket {subject} suffers."),
            since_secs: 1,
        };
        let changes = [
            Change::Fired(firing(&alerts::WRITES_PACED, "a")),
            Change::Cleared(firing(&alerts::HOT_KEY, "b")),
        ];
        let (subject, body) = text(&changes, "10.0.0.1:8091", About::guide);
        assert_eq!(subject, "Couchbase Server alert: writes_paced and 1 more");
        for part in [
            "writes_paced (warning): Bucket a suffers.\n",
            "\nMeaning and cause: docs/operating/alerts.md#writes_paced\n",
            "hot_key is over: Bucket b suffers.\n",
            "10.0.0.1",
        ] {
            assert!(body.contains(part), "{part}: {body}");
        }
    }
}
