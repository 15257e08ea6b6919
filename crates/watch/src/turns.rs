//! Which node sends an alert that several nodes see: one that is about another node.
//!
//! Every node on which such an alert fires asks the others, round by round, what they tell and send of it. The first of those that tell it,
//! by their numbers, sends it. It has to be the first in [`ROUNDS`] rounds: a node that began to tell meanwhile has seen it by then.
//!
//! Invariants:
//! - While nodes hear one another, one of them sends an alert and its end, however many tell it. A round is shorter than the pause
//!   between the beginnings of two.
//! - Nodes that do not hear one another send it each: rather twice than never.
//! - The end is sent by the node that sent the alert, once no node tells it. If that node is gone, another one sends the alert anew.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::alerts::{AUTHORITY_ENDS, Firing, NODE_DOWN, PROBE_SILENT};

/// Rounds in a row in which a node has to be the first.
const ROUNDS: u8 = 2;

/// Whether an alert is about another node than the one that tells it, or about the cluster. Several nodes see such a one.
#[must_use]
pub fn is_shared(alert: &str) -> bool {
    [NODE_DOWN.name, PROBE_SILENT.name, AUTHORITY_ENDS.name].contains(&alert)
}

/// Whether the subject of an alert is a node, by its name. The alert is about that node, and not about the one that tells it.
#[must_use]
pub fn is_about_a_node(alert: &str) -> bool {
    [NODE_DOWN.name, PROBE_SILENT.name].contains(&alert)
}

/// What a node says of an alert that others may see as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Its name.
    pub alert: String,
    /// What it is about.
    pub subject: String,
    /// Whether it fires on that node.
    pub fires: bool,
    /// Whether that node sends it.
    pub sends: bool,
}

/// The alerts that this node shares with others.
#[derive(Debug, Default)]
pub struct Turns(BTreeMap<(&'static str, String), Turn>);

#[derive(Debug)]
struct Turn {
    /// As it was when it began, with its last text.
    firing: Firing,
    fires: bool,
    sends: bool,
    /// Rounds in a row in which this node was the first.
    first: u8,
    /// Whether another node sends it, by the last round.
    is_sent: bool,
}

impl Turns {
    /// Takes what fires on this node; what of that, and of what others tell on, this node sends.
    pub fn look(&mut self, firing: Vec<Firing>) -> Vec<Firing> {
        let (shared, mut sent): (Vec<_>, Vec<_>) =
            firing.into_iter().partition(|one| is_shared(one.about.name));
        self.0.values_mut().for_each(|turn| turn.fires = false);
        for one in shared {
            let key = (one.about.name, one.subject.clone());
            let new = Turn { firing: one.clone(), fires: true, sends: false, first: 0, is_sent: false };
            let turn = self.0.entry(key).or_insert(new);
            (turn.fires, turn.firing.text) = (true, one.text);
        }
        self.0.retain(|_, turn| turn.fires || turn.sends);
        sent.extend(self.0.values().filter(|turn| turn.sends).map(|turn| turn.firing.clone()));
        sent
    }

    /// For other nodes.
    #[must_use]
    pub fn told(&self) -> Vec<Told> {
        let told = |((alert, subject), turn): (&(&'static str, String), &Turn)| Told {
            alert: (*alert).to_owned(),
            subject: subject.clone(),
            fires: turn.fires,
            sends: turn.sends,
        };
        self.0.iter().map(told).collect()
    }

    /// Forgets all of it: nothing is sent anywhere.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// Whether nothing is known that another node could know as well.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a node is known to send each alert that fires: it is enough to ask now and then.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.0.values().all(|turn| turn.fires && (turn.sends || turn.is_sent))
    }

    /// Takes what the others have answered in a round. What a node tells while it is silenced there is no reason for it to send.
    pub fn round<N: Copy + Ord>(
        &mut self,
        this: N,
        answers: &BTreeMap<N, Vec<Told>>,
        is_silenced: impl Fn(&Firing, N) -> bool,
    ) {
        for ((alert, subject), turn) in &mut self.0 {
            let is_it = |told: &&Told| told.alert == *alert && told.subject == *subject;
            let others = || answers.iter().filter_map(|(node, told)| Some((*node, told.iter().find(is_it)?)));
            turn.is_sent = others().any(|(_, told)| told.sends);
            if turn.sends {
                turn.sends = turn.fires || others().any(|(_, told)| told.fires);
                continue;
            }
            let telling = others().filter(|(_, told)| told.fires).map(|(node, _)| node);
            let telling = telling.chain(turn.fires.then_some(this));
            let first = telling.filter(|node| !is_silenced(&turn.firing, *node)).min();
            let is_mine = !turn.is_sent && first == Some(this);
            turn.first = if is_mine { turn.first.saturating_add(1) } else { 0 };
            turn.sends = turn.first >= ROUNDS;
        }
    }
}
