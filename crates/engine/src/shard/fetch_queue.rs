//! A shard's keys to be read from disk, and the requests that wait for them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};

use base::VbId;

use crate::api::notify::Waiter;

/// Keys queued per shard, and requests waiting for them; beyond either requests wait for a place.
pub(crate) const KEYS_MAX: usize = 10_000;

const WAITERS_MAX: usize = 100_000;

/// Requests that may wait for a place. They are more than a node has connections, of which each has one: the others are closed.
const CROWD_MAX: usize = 100_000;

/// The share of either that is taken when those who wait for a place are told to ask again.
const REOPEN_SHARE: usize = 2;

/// Keys taken at once, which are read in the order in which they lie on disk.
pub(crate) const BATCH_KEYS: usize = 32;

/// Threads that a queue is shared out to: no batch takes more than its part.
const FETCHERS: usize = 4;

/// A key to be read.
pub(crate) type FetchKey = (VbId, u64, Box<[u8]>);

/// What became of a key that was to be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is the first: somebody has to be told.
    First,
    /// It stands behind others, or was there already.
    Behind,
    Crowded,
}

/// A shard's keys to be read, oldest first, and those being read: a request for one of these waits along.
#[derive(Debug, Default)]
pub(crate) struct FetchQueue {
    pub(crate) order: VecDeque<FetchKey>,
    pub(crate) waiting: HashMap<FetchKey, Vec<Waiter>, BuildHasherDefault<DefaultHasher>>,
    pub(crate) waiters: usize,
    /// Requests that found no place, in the order of coming: one per connection.
    pub(crate) crowd: VecDeque<Waiter>,
}

impl FetchQueue {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Adds a key and the request that waits for it, if any does.
    pub(crate) fn push(&mut self, key: FetchKey, waiter: Option<Waiter>) -> Pushed {
        let was_empty = self.order.is_empty();
        let is_full = self.waiting.len() >= KEYS_MAX;
        if self.waiters >= WAITERS_MAX {
            return self.turn_away(waiter);
        }
        match self.waiting.entry(key) {
            Entry::Occupied(mut waiting) => {
                waiting.get_mut().extend(waiter);
                self.waiters += usize::from(waiter.is_some());
                return Pushed::Behind;
            }
            Entry::Vacant(_) if is_full => return self.turn_away(waiter),
            Entry::Vacant(vacant) => {
                self.order.push_back(vacant.key().clone());
                vacant.insert(waiter.into_iter().collect());
            }
        }
        self.waiters += usize::from(waiter.is_some());
        if was_empty { Pushed::First } else { Pushed::Behind }
    }

    pub(crate) fn turn_away(&mut self, waiter: Option<Waiter>) -> Pushed {
        self.crowd.extend(waiter);
        Pushed::Crowded
    }

    /// The one that has waited longest for a place, where too many do. It is to ask again. A connection that is closed does not, and nobody
    /// else says that it is gone.
    pub(crate) fn crowded_out(&mut self) -> Option<Waiter> {
        if self.crowd.len() > CROWD_MAX { self.crowd.pop_front() } else { None }
    }

    /// Takes the oldest keys, their share of the queue; and whether more are left.
    pub(crate) fn take(&mut self, max: usize) -> (Vec<FetchKey>, bool) {
        let count = self.order.len().div_ceil(FETCHERS).min(max).min(BATCH_KEYS);
        let taken = self.order.drain(..count).collect();
        (taken, !self.order.is_empty())
    }

    /// How many wait for a key.
    pub(crate) fn waiters_of(&self, key: &FetchKey) -> usize {
        self.waiting.get(key).map_or(0, Vec::len)
    }

    /// A key has been read: who waited for it, and who may ask again since there are places by now.
    pub(crate) fn finish(&mut self, key: &FetchKey) -> Finished {
        let waiters = self.waiting.remove(key).unwrap_or_default();
        self.waiters -= waiters.len();
        let reopens =
            self.waiting.len() <= KEYS_MAX / REOPEN_SHARE && self.waiters <= WAITERS_MAX / REOPEN_SHARE;
        let places = match self.waiting.len() {
            // Nobody comes after this one who could tell those who are left.
            0 => usize::MAX,
            taken if reopens => KEYS_MAX - taken,
            _ => 0,
        };
        let admitted = self.crowd.drain(..places.min(self.crowd.len())).collect();
        Finished { waiters, admitted }
    }
}

/// Whom to wake once a key has been read.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) waiters: Vec<Waiter>,
    /// Of those who found no place.
    pub(crate) admitted: Vec<Waiter>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> FetchKey {
        (VbId(0), number as u64, Box::default())
    }

    fn waiter(number: usize) -> Option<Waiter> {
        Some(Waiter { worker: 0, connection: number as u64, ticket: 0 })
    }

    #[test]
    fn closed_connections_leave_a_bounded_crowd() {
        let mut queue = FetchQueue::default();
        for number in 0..KEYS_MAX {
            queue.push(key(number), None);
        }
        let mut asked_again = Vec::new();
        for number in 0..CROWD_MAX + 10 {
            assert_eq!(queue.push(key(KEYS_MAX), waiter(number)), Pushed::Crowded);
            asked_again.extend(queue.crowded_out());
        }
        assert_eq!(queue.crowd.len(), CROWD_MAX);
        assert_eq!(asked_again, (0..10).filter_map(waiter).collect::<Vec<_>>(), "the oldest");
    }

    #[test]
    fn a_fetch_that_finds_no_place_is_told_when_there_is_one_again() {
        let mut queue = FetchQueue::default();
        assert_eq!(queue.push(key(0), waiter(0)), Pushed::First);
        for number in 1..KEYS_MAX {
            assert_eq!(queue.push(key(number), waiter(number)), Pushed::Behind);
        }
        assert_eq!(queue.push(key(KEYS_MAX), waiter(KEYS_MAX)), Pushed::Crowded);
        assert_eq!(queue.push(key(KEYS_MAX), None), Pushed::Crowded, "nobody waits for it");
        assert_eq!(queue.push(key(5), waiter(KEYS_MAX + 1)), Pushed::Behind, "it is going to be read anyway");
        let mut admitted = Vec::new();
        for number in 0..KEYS_MAX {
            let finished = queue.finish(&key(number));
            assert_eq!(finished.waiters.len(), if number == 5 { 2 } else { 1 });
            assert!(finished.admitted.is_empty() || queue.waiting.len() <= KEYS_MAX / REOPEN_SHARE);
            admitted.extend(finished.admitted);
        }
        assert_eq!(admitted, Vec::from_iter(waiter(KEYS_MAX)));
        assert_eq!((queue.waiters, queue.crowd.len()), (0, 0));
    }
}
