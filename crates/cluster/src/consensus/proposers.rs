//! How the proposals of each proposer ended, for as long as one of them may come again.
//!
//! A proposer makes a proposal again until it hears how that ended, by whatever member leads then. So a proposal may come late, and
//! after any number of others. Each one says which of its proposer's have not ended ([`Place::open`]). What is below that can only
//! come late, and is not carried out any more.
//!
//! Invariants:
//! - A proposal that was carried out, or refused, is never carried out again.
//! - What is remembered is bounded for each proposer and in all, also for proposers that are gone. Where more would have to be
//!   remembered, a proposal whose end is forgotten is refused instead: its proposer hears that nobody knows how it ended.
//! - All of it follows from the proposals and their order, so that every member has the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Outcome, ProposalId, entry::Place};

/// Most proposers that are remembered.
const PROPOSERS_MAX: usize = 64;
/// Most proposals whose end is remembered: of one proposer, and in all.
const ENDED_MAX: usize = 512;
const ENDED_MAX_IN_ALL: usize = 1024;

/// See the module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Proposers {
    /// By [`ProposalId::origin`].
    of: BTreeMap<u64, Proposer>,
    /// The highest version of the metadata at which something of a proposer ended that is forgotten.
    forgotten: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Proposer {
    /// Nothing below this is carried out.
    open: u64,
    /// Version of the metadata after the last of its proposals.
    last: u64,
    /// By number, none below `open`.
    ended: BTreeMap<u64, Outcome>,
}

impl Proposers {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty() && self.forgotten.is_none()
    }

    /// How a proposal ended, if that is remembered.
    pub(super) fn outcome(&self, id: ProposalId) -> Option<&Outcome> {
        self.of.get(&id.origin)?.ended.get(&id.number)
    }

    /// All that is remembered.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = (ProposalId, &Outcome)> {
        self.of.iter().flat_map(|(&origin, proposer)| {
            proposer.ended.iter().map(move |(&number, outcome)| (ProposalId { origin, number }, outcome))
        })
    }

    /// The same, of each refusal its kind only.
    pub(super) fn without_words(&self) -> Self {
        let mut next = self.clone();
        let ended = next.of.values_mut().flat_map(|proposer| proposer.ended.values_mut());
        ended.filter_map(|outcome| outcome.as_mut().err()).for_each(|error| *error = error.without_words());
        next
    }

    /// Whether a proposal whose end is not remembered has certainly not ended before.
    pub(super) fn is_new(&self, id: ProposalId, place: Place) -> bool {
        match self.of.get(&id.origin) {
            Some(proposer) => id.number >= proposer.open,
            // Its proposer may be one of those that are forgotten, unless it has seen what came later.
            None => self.forgotten.is_none_or(|version| place.seen > version),
        }
    }

    /// A proposal has ended at that version of the metadata.
    pub(super) fn note(&mut self, id: ProposalId, place: Place, outcome: Outcome, version: u64) {
        let proposer = self.of.entry(id.origin).or_default();
        proposer.last = version;
        proposer.open = proposer.open.max(place.open.min(id.number));
        proposer.ended = proposer.ended.split_off(&proposer.open);
        proposer.ended.insert(id.number, outcome);
        if proposer.ended.len() > ENDED_MAX
            && let Some((number, _)) = proposer.ended.pop_first()
        {
            proposer.open = number + 1;
        }
        while self.of.len() > PROPOSERS_MAX || self.ended() > ENDED_MAX_IN_ALL {
            self.forget_one(id.origin);
        }
    }

    /// So many ends are remembered.
    fn ended(&self) -> usize {
        self.of.values().map(|proposer| proposer.ended.len()).sum()
    }

    /// Forgets the proposer of which nothing has come for longest, but not that one.
    fn forget_one(&mut self, but: u64) {
        let others = self.of.iter().filter(|(origin, _)| **origin != but);
        let Some((_, origin)) = others.map(|(origin, proposer)| (proposer.last, *origin)).min() else {
            return;
        };
        let last = self.of.remove(&origin).map(|proposer| proposer.last);
        self.forgotten = self.forgotten.max(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Applied;

    const DONE: Outcome = Ok(Applied::Done);

    fn id(origin: u64, number: u64) -> ProposalId {
        ProposalId { origin, number }
    }

    #[test]
    fn what_may_come_again_is_remembered_and_what_cannot_is_not() {
        let mut proposers = Proposers::default();
        for number in 1..=100 {
            proposers.note(id(1, number), Place { open: 1, seen: 0 }, DONE, number);
        }
        assert_eq!(proposers.outcomes().count(), 100, "the first one may still be proposed");
        proposers.note(id(1, 101), Place { open: 99, seen: 0 }, DONE, 101);
        assert_eq!(proposers.outcomes().map(|(id, _)| id.number).collect::<Vec<_>>(), [99, 100, 101]);
        assert!(!proposers.is_new(id(1, 98), Place { open: 98, seen: 90 }), "it comes late");
        assert!(proposers.is_new(id(1, 102), Place { open: 99, seen: 90 }));
    }

    #[test]
    fn memory_is_bounded_for_a_proposer_that_ends_nothing() {
        let mut proposers = Proposers::default();
        for number in 1..=10_000 {
            proposers.note(id(1, number), Place { open: 1, seen: 0 }, DONE, number);
        }
        assert_eq!(proposers.outcomes().count(), ENDED_MAX);
        assert!(!proposers.is_new(id(1, 1), Place { open: 1, seen: 0 }), "nobody knows how it ended");
        // Nor does one make others forget for long.
        for number in 1..=600 {
            proposers.note(id(2, number), Place { open: 1, seen: 0 }, DONE, 20_000 + number);
            proposers.note(id(3, number), Place { open: 1, seen: 0 }, DONE, 20_000 + number);
        }
        assert!(proposers.outcomes().count() <= ENDED_MAX_IN_ALL);
    }

    #[test]
    fn a_proposer_that_is_forgotten_is_never_taken_for_a_new_one() {
        let mut proposers = Proposers::default();
        let many = PROPOSERS_MAX as u64 * 2;
        for origin in 0..many {
            proposers.note(id(origin, 1), Place { open: 1, seen: 10 * origin }, DONE, 10 * origin + 5);
        }
        assert_eq!(proposers.of.len(), PROPOSERS_MAX);
        for origin in 0..many {
            let place = Place { open: 1, seen: 10 * origin };
            let is_remembered = proposers.outcome(id(origin, 1)).is_some();
            assert_eq!(is_remembered, origin >= many / 2);
            assert!(is_remembered || !proposers.is_new(id(origin, 1), place), "{origin} comes again");
        }
        assert!(proposers.is_new(id(many, 1), Place { open: 1, seen: 10 * many }), "a new one");
    }
}
