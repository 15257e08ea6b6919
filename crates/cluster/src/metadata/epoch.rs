//! Lives of a group: what happens when a majority of the voters is lost for good, and the others form the group anew.
//!
//! A group that has lost its majority can agree on nothing, not even on who is lost. When an administrator says so, one of
//! the survivors makes what it knows the beginning of a new group ([`Consensus::reform`](crate::consensus::Consensus::reform)) in a
//! new *epoch*. Every message names the epoch it belongs to:
//! - A message of an earlier epoch is answered by a [`Notice`], and nothing else is done about it.
//! - A message of a later epoch is answered by a word of our own, which brings that notice back.
//! - A node that gets the notice throws its log away and is a new member of the new group. It has to learn and to be admitted as
//!   every other.
//! - Lost nodes may have added a node behind the back of the survivors. Its number is one that the survivors leave out
//!   (`crate::changes::reforming`), and it is told that it is not known.
//!
//! So a node that was lost or left behind forms no second group once it hears of the first one. Only one that hears of nobody
//! can go on by itself, as before.

use serde::{Deserialize, Serialize};

use crate::metadata::NodeInfo;

/// A life of the group; the later one is the greater one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch {
    /// How often the group was formed anew.
    pub number: u64,
    /// Random: decides between two that were formed without knowing of one another.
    pub lot: u64,
}

impl Epoch {
    /// The next one; `lot` is random.
    #[must_use]
    pub fn next(self, lot: u64) -> Self {
        Self { number: self.number.saturating_add(1), lot }
    }
}

/// How far a member's log goes. Of several logs the greatest lacks nothing that a majority had agreed on, as far as any
/// of them has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The group's life that the log is from.
    pub epoch: Epoch,
    /// Raft's term of the last entry.
    pub term: u64,
    /// Index of the last entry.
    pub index: u64,
}

/// What tells a member of an earlier epoch how to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notice {
    /// The epoch of the sender.
    pub(crate) epoch: Epoch,
    /// The cluster's secret now.
    pub(crate) secret: String,
    /// Its nodes now.
    pub(crate) nodes: Vec<NodeInfo>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_formed_anew_is_later_than_all_before() {
        let before = Epoch { number: 3, lot: u64::MAX };
        assert!(before.next(0) > before);
        assert_ne!(before.next(0), before.next(1), "two that know nothing of one another differ");
    }

    #[test]
    fn the_log_that_goes_furthest_is_that_of_the_latest_epoch_then_term_then_index() {
        let at = |number, term, index| Position { epoch: Epoch { number, lot: 0 }, term, index };
        assert!(at(1, 1, 2) > at(0, 9, 90));
        assert!(at(1, 3, 2) > at(1, 2, 90));
        assert!(at(1, 2, 91) > at(1, 2, 90));
    }
}
