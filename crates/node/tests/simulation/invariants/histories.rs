//! Each key is a register. What clients were told about it fits one order of all writes and reads. In that order each
//! has its place between its call and its answer. A write without an answer may have any place after its call, or none.
//!
//! Every write has a value of its own. A history of writes is linearisable exactly if two things hold (Gibbons and
//! Korach, "Testing shared memories", 1997). No read ends before the write that it saw was called. The times in which
//! the register must have held its values do not contradict each other. The *zone* of a value reaches from the first
//! answer to the last call that belong to it. Where the answer comes first, it held the value all that time; otherwise
//! it did at some moment between. Zones of the first kind must not overlap, and none of the second kind lies inside one
//! of the first.
//!
//! Absence is no such value: documents are removed again and again. Each operation that saw it, or made it so, has a
//! zone of its own, of the second kind. An operation that saw it needs another one that may have made it so after the
//! last value that surely was there before. A history in which one removal would have to have happened twice is let
//! pass.

use std::{collections::BTreeMap, fmt};

use base::{BucketUuid, bucket::DurabilityLevel};

/// Moments: no two things happen at the same one.
pub(crate) type Moment = u64;

const NEVER: Moment = u64::MAX;

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    Wrote(u64),
    /// Wrote the second one while it held the first.
    Swapped(u64, u64),
    Removed,
    /// Is in a tombstone from now on. Each copy drops it when it gets to it: it may be gone here and be there again once another copy
    /// serves.
    Buried,
    Read(Option<u64>),
}

#[derive(Clone, Copy, Debug)]
struct Event {
    called: Moment,
    returned: Moment,
    did: Did,
}

/// One key's.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// The least durable that it is written.
    level: DurabilityLevel,
    events: Vec<Event>,
}

/// All keys'.
#[derive(Default)]
pub(crate) struct Histories {
    keys: BTreeMap<(BucketUuid, Vec<u8>), History>,
}

impl Histories {
    /// Takes note of an operation that was called, and answered if `returned`.
    pub(crate) fn note(
        &mut self,
        (bucket, key, level): (&BucketUuid, &[u8], DurabilityLevel),
        (called, returned): (Moment, Option<Moment>),
        did: Did,
    ) {
        let place = (bucket.clone(), key.to_vec());
        let history = self.keys.entry(place).or_insert(History { level, events: Vec::new() });
        history.events.push(Event { called, returned: returned.unwrap_or(NEVER), did });
    }

    /// Checks the keys whose writes are as durable as `promised`.
    pub(crate) fn check(&self, promised: DurabilityLevel) {
        for ((bucket, key), history) in self.keys.iter().filter(|(_, history)| history.level >= promised) {
            if let Err(text) = history.check() {
                let key = String::from_utf8_lossy(key);
                panic!("{key:?} of {} ({:?}): {text}\n{history:#?}", bucket.0, history.level);
            }
        }
    }

    /// Somebody has taken a risk: nothing is promised of the keys that there are, and clients go on with others.
    pub(crate) fn forget(&mut self) {
        self.keys.clear();
    }

    /// The same of some keys only.
    pub(crate) fn forget_some(&mut self, is_risked: impl Fn(&BucketUuid, &[u8]) -> bool) {
        self.keys.retain(|(bucket, key), _| !is_risked(bucket, key));
    }

    /// How many operations there were.
    pub(crate) fn len(&self) -> usize {
        self.keys.values().map(|history| history.events.len()).sum()
    }
}

/// From when to when a register is known to have held a value.
#[derive(Clone, Copy, Debug)]
struct Zone {
    value: Option<u64>,
    first_answer: Moment,
    last_call: Moment,
}

impl Zone {
    /// It held the value from the one to the other, rather than at some moment between.
    fn is_lasting(&self) -> bool {
        self.first_answer < self.last_call
    }

    fn begin(&self) -> Moment {
        self.first_answer.min(self.last_call)
    }

    fn end(&self) -> Moment {
        self.first_answer.max(self.last_call)
    }

    /// Two that cannot both be. (One that lasts, and another that lasts too or lies inside.)
    fn contradicts(&self, other: &Zone) -> bool {
        match (self.is_lasting(), other.is_lasting()) {
            (true, true) => self.begin() < other.end() && other.begin() < self.end(),
            (true, false) => self.begin() < other.begin() && other.end() < self.end(),
            (false, true) => other.contradicts(self),
            (false, false) => false,
        }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_lasting() { "all the time" } else { "at some moment" };
        write!(f, "{:?} {how} from {} to {}", self.value, self.begin(), self.end())
    }
}

impl Event {
    /// The value that the register held at some moment between call and answer.
    fn value(&self) -> Option<u64> {
        match self.did {
            Did::Wrote(value) | Did::Swapped(_, value) => Some(value),
            Did::Read(value) => value,
            Did::Removed | Did::Buried => None,
        }
    }
}

impl History {
    fn check(&self) -> Result<(), String> {
        let calls = self.calls();
        self.check_swaps()?;
        let zones = self.zones_of_values(&calls)?;
        for (at, zone) in zones.iter().enumerate() {
            if let Some(other) = zones[at + 1..].iter().find(|other| zone.contradicts(other)) {
                return Err(format!("{zone} contradicts {other}"));
            }
        }
        // A client that was not answered has seen nothing.
        for event in self.events.iter().filter(|event| event.value().is_none() && event.returned != NEVER) {
            let zone = Zone { value: None, first_answer: event.returned, last_call: event.called };
            let contradicts = |other: &&Zone| {
                zone.contradicts(other)
                    && !self.may_expire(other, &calls)
                    && !self.may_be_back(event, other, &calls)
            };
            if let Some(other) = zones.iter().find(contradicts) {
                return Err(format!("{zone} contradicts {other}"));
            }
            if let Some(lost) = zones.iter().find(|lost| self.is_missed(event, lost, &calls)) {
                return Err(format!("{zone} without a removal, after {lost}"));
            }
        }
        Ok(())
    }

    /// No value is replaced twice on the condition that it is there: every write has a value of its own.
    fn check_swaps(&self) -> Result<(), String> {
        let mut replaced = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.returned != NEVER) {
            if let Did::Swapped(before, value) = event.did
                && let Some(other) = replaced.insert(before, value)
            {
                return Err(format!(
                    "{before} was replaced by {other} and by {value}, each time while it was there"
                ));
            }
        }
        Ok(())
    }

    /// When each value was written, at the earliest.
    fn calls(&self) -> BTreeMap<u64, Moment> {
        let mut calls = BTreeMap::new();
        for event in &self.events {
            if let Did::Wrote(value) | Did::Swapped(_, value) = event.did {
                let other = calls.insert(value, event.called);
                assert_eq!(other, None, "every write has a value of its own");
            }
        }
        calls
    }

    /// Of those values that are known to have been there.
    fn zones_of_values(&self, calls: &BTreeMap<u64, Moment>) -> Result<Vec<Zone>, String> {
        let mut zones: BTreeMap<u64, Zone> = BTreeMap::new();
        for event in &self.events {
            let Some(value) = event.value() else { continue };
            match calls.get(&value) {
                None => return Err(format!("{value} was read, and never written")),
                Some(&called) if event.returned < called => {
                    return Err(format!("{value} was read before it was written"));
                }
                Some(_) => {}
            }
            let new = Zone { value: Some(value), first_answer: event.returned, last_call: event.called };
            let zone = zones.entry(value).or_insert(new);
            zone.first_answer = zone.first_answer.min(event.returned);
            zone.last_call = zone.last_call.max(event.called);
        }
        // What was written, perhaps, and never seen has no place that matters.
        Ok(zones.into_values().filter(|zone| zone.first_answer != NEVER).collect())
    }

    /// Whether a value was written to go by itself, which is a removal that was called with the write. It may be back once a clock is set
    /// back. A document that has expired is only hidden while a durable write of its key is in progress.
    fn may_expire(&self, zone: &Zone, calls: &BTreeMap<u64, Moment>) -> bool {
        let written = zone.value.and_then(|value| calls.get(&value));
        let goes = |event: &Event| event.did == Did::Removed && Some(&event.called) == written;
        self.events.iter().any(goes)
    }

    /// Whether a value was in a tombstone by the time that `read` saw nothing.
    fn may_be_back(&self, read: &Event, zone: &Zone, calls: &BTreeMap<u64, Moment>) -> bool {
        let written = zone.value.and_then(|value| calls.get(&value)).copied().unwrap_or_default();
        let is_buried = |event: &Event| {
            event.did == Did::Buried && written < event.called && event.called < read.returned
        };
        self.events.iter().any(is_buried)
    }

    /// Whether `read` saw nothing although a value was there before that nobody can have removed by then.
    fn is_missed(&self, read: &Event, there: &Zone, calls: &BTreeMap<u64, Moment>) -> bool {
        let is_before = there.first_answer < read.called;
        let written = there.value.and_then(|value| calls.get(&value)).copied().unwrap_or_default();
        let removes = |event: &Event| {
            let is_one = matches!(event.did, Did::Removed | Did::Buried);
            is_one && event.called < read.returned && event.returned > written
        };
        is_before && matches!(read.did, Did::Read(_)) && !self.events.iter().any(removes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(events: &[(Moment, Moment, Did)]) -> Result<(), String> {
        let events = events.iter().map(|&(called, returned, did)| Event { called, returned, did });
        History { level: DurabilityLevel::Majority, events: events.collect() }.check()
    }

    #[test]
    fn what_fits_one_order_is_fine() {
        let (one, two) = (Did::Wrote(1), Did::Wrote(2));
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[(1, 2, Did::Read(None)), (3, 4, one), (5, 6, Did::Read(Some(1)))]), Ok(()));
        // Writes at the same time may come in any order, and reads meanwhile see either.
        assert_eq!(check(&[(1, 9, one), (2, 8, two), (3, 4, Did::Read(Some(2)))]), Ok(()));
        assert_eq!(check(&[(1, 9, one), (2, 8, two), (10, 11, Did::Read(Some(1)))]), Ok(()));
        // One whose answer never came may take effect late, or never.
        let late = [(1, NEVER, one), (2, 3, two), (4, 5, Did::Read(Some(2))), (6, 7, Did::Read(Some(1)))];
        assert_eq!(check(&late), Ok(()));
        assert_eq!(check(&late[..3]), Ok(()));
    }

    #[test]
    fn what_was_written_and_is_gone_is_noticed() {
        let (one, two) = (Did::Wrote(1), Did::Wrote(2));
        assert!(check(&[(1, 2, one), (3, 4, Did::Read(None))]).is_err(), "lost");
        assert!(check(&[(1, 2, one), (3, 4, two), (5, 6, Did::Read(Some(1)))]).is_err(), "stale");
        assert!(check(&[(1, 2, Did::Read(Some(1))), (3, 4, one)]).is_err(), "foreseen");
        assert!(check(&[(1, 2, Did::Read(Some(7)))]).is_err(), "made up");
        let back = [(1, 9, one), (2, 8, two), (10, 11, Did::Read(Some(1))), (12, 13, Did::Read(Some(2)))];
        assert!(check(&back).is_err(), "of two orders one");
        let seen = [(1, NEVER, one), (2, 3, Did::Read(Some(1))), (4, 5, Did::Read(None))];
        assert!(check(&seen).is_err(), "what was seen has happened");
    }

    #[test]
    fn what_lies_in_a_tombstone_may_be_missing_on_one_copy_only() {
        let (one, nothing, there) = (Did::Wrote(1), Did::Read(None), Did::Read(Some(1)));
        let seen = |did| check(&[(1, 2, one), (3, NEVER, did), (5, 6, nothing), (7, 8, there)]);
        assert_eq!(seen(Did::Buried), Ok(()));
        assert!(seen(Did::Removed).is_err(), "no tombstone goes");
        assert!(
            check(&[(1, 2, one), (3, 4, nothing), (5, NEVER, Did::Buried), (7, 8, there)]).is_err(),
            "too early"
        );
        let again = [(1, NEVER, Did::Buried), (2, 3, one), (5, 6, nothing), (7, 8, there)];
        assert!(check(&again).is_err(), "it was written later");
    }

    #[test]
    fn what_was_replaced_while_it_was_there_is_replaced_once() {
        let (one, by_two, by_three) = (Did::Wrote(1), Did::Swapped(1, 2), Did::Swapped(1, 3));
        assert_eq!(check(&[(1, 2, one), (3, 9, by_two), (4, 5, Did::Read(Some(1)))]), Ok(()));
        assert!(check(&[(1, 2, one), (3, 4, by_two), (5, 6, Did::Read(Some(1)))]).is_err(), "stale");
        assert!(check(&[(1, 2, one), (3, 9, by_two), (4, 8, by_three)]).is_err(), "twice");
        assert_eq!(check(&[(1, 2, one), (3, 9, by_two), (4, NEVER, by_three)]), Ok(()), "perhaps it was not");
    }

    #[test]
    fn what_was_removed_is_gone_and_may_be_written_again() {
        let (one, two, nothing) = (Did::Wrote(1), Did::Wrote(2), Did::Read(None));
        let again = [(1, 2, one), (3, 4, Did::Removed), (5, 6, nothing), (7, 8, two), (9, 10, Did::Removed)];
        assert_eq!(check(&again), Ok(()));
        // A removal whose answer never came may take effect late, or never.
        let late = [(1, NEVER, Did::Removed), (2, 3, one), (4, 5, Did::Read(Some(1))), (6, 7, nothing)];
        assert_eq!(check(&late), Ok(()));
        assert_eq!(check(&late[..3]), Ok(()));
        // At the same time as a write it comes before or after it.
        assert_eq!(check(&[(1, 9, one), (2, 8, Did::Removed), (10, 11, nothing)]), Ok(()));
        assert_eq!(check(&[(1, 9, one), (2, 8, Did::Removed), (10, 11, Did::Read(Some(1)))]), Ok(()));
    }

    #[test]
    fn what_was_to_expire_may_be_hidden_for_a_while() {
        let (one, seen, nothing) = (Did::Wrote(1), Did::Read(Some(1)), Did::Read(None));
        let hidden = [(1, 2, one), (1, NEVER, Did::Removed), (3, 4, nothing), (5, 6, seen)];
        assert_eq!(check(&hidden), Ok(()));
        let removed = [(1, 2, one), (2, NEVER, Did::Removed), (3, 4, nothing), (5, 6, seen)];
        assert!(check(&removed).is_err(), "somebody else has removed it");
    }

    #[test]
    fn what_comes_back_or_goes_by_itself_is_noticed() {
        let (one, two, nothing) = (Did::Wrote(1), Did::Wrote(2), Did::Read(None));
        let back = [(1, 2, one), (3, 4, Did::Removed), (5, 6, Did::Read(Some(1)))];
        assert!(check(&back).is_err(), "a removal was lost");
        let back = [(1, 2, one), (3, 4, nothing), (5, 6, Did::Removed)];
        assert!(check(&back).is_err(), "removed before somebody asked for it");
        let gone = [(1, 2, one), (3, 4, Did::Removed), (5, 6, two), (7, 8, nothing)];
        assert!(check(&gone).is_err(), "the removal was before what is gone");
        let between = [(1, 2, one), (3, 4, nothing), (5, 6, Did::Read(Some(1)))];
        assert!(check(&between).is_err(), "gone for a moment");
    }
}
