//! Whose turn is next: a shard's backfills that have not begun, by owner.
//!
//! Owners take turns, so that one with a thousand streams does not stand before one with a single stream. An owner that
//! lost a place because it let a full buffer lie is passed over until it asks for something. It has asked for more than
//! it takes, so a backfill that began for it now would only occupy a place that others wait for.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::{api::notify::Waiter, history::backfill::Backfill};

/// A consumer: all feeds of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    worker: u32,
    connection: u64,
}

impl From<Waiter> for Owner {
    fn from(waiter: Waiter) -> Self {
        Self { worker: waiter.worker, connection: waiter.connection }
    }
}

/// See the module header.
pub(crate) type BackfillQueue = Turns<Arc<Backfill>>;

/// Jobs by owner, oldest first.
pub(crate) struct Turns<J> {
    /// None is empty.
    lines: BTreeMap<Owner, Line<J>>,
    /// Whose turn was last.
    last: Owner,
}

struct Line<J> {
    waiting: VecDeque<J>,
    is_passed_over: bool,
}

impl<J> Default for Turns<J> {
    fn default() -> Self {
        Self { lines: BTreeMap::new(), last: Owner::default() }
    }
}

impl<J> Turns<J> {
    /// An owner asks for something.
    pub(crate) fn push(&mut self, owner: Owner, job: J) {
        let line = self
            .lines
            .entry(owner)
            .or_insert_with(|| Line { waiting: VecDeque::new(), is_passed_over: false });
        line.waiting.push_back(job);
        line.is_passed_over = false;
    }

    /// The owner does not take what it has asked for.
    pub(crate) fn pass_over(&mut self, owner: Owner) {
        if let Some(line) = self.lines.get_mut(&owner) {
            line.is_passed_over = true;
        }
    }

    /// The owner shows life; whether it had been passed over.
    pub(crate) fn readmit(&mut self, owner: Owner) -> bool {
        self.lines.get_mut(&owner).is_some_and(|line| std::mem::take(&mut line.is_passed_over))
    }

    /// Whether somebody waits whose turn would come.
    pub(crate) fn is_waited_in(&self) -> bool {
        self.lines.values().any(|line| !line.is_passed_over)
    }

    /// The oldest job of the owner whose turn it is.
    pub(crate) fn take_next(&mut self) -> Option<J> {
        let behind = self.lines.range((Bound::Excluded(self.last), Bound::Unbounded));
        let mut turns = behind.chain(self.lines.range(..=self.last));
        let owner = *turns.find(|(_, line)| !line.is_passed_over)?.0;
        self.last = owner;
        let line = self.lines.get_mut(&owner)?;
        let job = line.waiting.pop_front();
        if line.waiting.is_empty() {
            self.lines.remove(&owner);
        }
        job
    }

    /// Forgets jobs.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&J) -> bool) {
        self.lines.retain(|_, line| {
            line.waiting.retain(&mut keep);
            !line.waiting.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(connection: u64) -> Owner {
        Owner { worker: 0, connection }
    }

    fn drain(turns: &mut Turns<u32>) -> Vec<u32> {
        std::iter::from_fn(|| turns.take_next()).collect()
    }

    #[test]
    fn owners_take_turns() {
        let mut turns = Turns::default();
        (0..3).for_each(|job| turns.push(owner(7), job));
        (10..12).for_each(|job| turns.push(owner(3), job));
        turns.push(owner(9), 20);
        assert_eq!(drain(&mut turns), [10, 0, 20, 11, 1, 2]);
        assert!(!turns.is_waited_in());
    }

    #[test]
    fn an_owner_that_takes_nothing_is_passed_over_until_it_asks() {
        let mut turns = Turns::default();
        (0..2).for_each(|job| turns.push(owner(1), job));
        turns.push(owner(2), 10);
        turns.pass_over(owner(1));
        assert_eq!(drain(&mut turns), [10]);
        assert!(!turns.is_waited_in(), "nobody would be served by making way");
        turns.push(owner(1), 2);
        assert_eq!(drain(&mut turns), [0, 1, 2]);
        turns.push(owner(1), 3);
        turns.pass_over(owner(1));
        assert!(turns.readmit(owner(1)) && !turns.readmit(owner(1)));
        turns.retain(|&job| job != 3);
        assert_eq!(drain(&mut turns), [0; 0]);
    }
}
