//! Proves that a server keeps what it acknowledged. Every value carries who wrote it and when, and every read is held
//! against what this run knows.
//!
//! A [`Ledger`] belongs to one part of a run. This part alone writes its records, and writes each of them one at a time. So
//! the versions of a record have an order. A read may see the newest version that was acknowledged before it was sent,
//! or any that was sent before its answer came. Anything older is stale, or resurrected if a deletion lies between.
//! Absence without a deletion is a loss. Anything else is torn or never existed.
//!
//! A write whose answer never came is *at large*: it may have happened, or never will. It may also happen once at any time from now on,
//! over what was acknowledged meanwhile. Its request may lie in a queue or socket that no process reads for now. Closing a
//! connection takes nothing back. (One that names the CAS of what it replaces is not: what was written meanwhile keeps it
//! out.) Once a read has seen it, it has happened; what is written after that and acknowledged has replaced it.
//!
//! While what is acknowledged may be lost ([`Ledger::set_acks_may_be_lost`]) every write is of unknown outcome; earlier ones go on to count.
//!
//! What it does not do: judge documents it has not written (they may be anything), or absence where documents expire.

use crate::choose::Part;
use crate::op::Op;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;

const MAGIC: &[u8; 8] = b"settee 1";
/// Magic, run, record, version, length of the rest, checksum of everything else.
const STAMP_BYTES: usize = 8 + 8 + 8 + 4 + 4 + 4;
/// Events that are remembered, of all records together.
const EVENTS_MAX: usize = 200_000;
/// Events of one record that a report shows.
const HISTORY_MAX: usize = 16;

/// Whether an operation can be part of a run that validates.
#[must_use]
pub const fn judges(op: Op) -> bool {
    matches!(op, Op::Get | Op::Set | Op::Add | Op::Replace | Op::Cas | Op::Rmw | Op::Delete)
}

/// What was seen that must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// An acknowledged document is gone.
    Lost,
    /// An older version than one that was acknowledged before.
    Stale,
    /// A version from before an acknowledged deletion.
    Resurrected,
    /// Bytes that nobody wrote like this.
    Torn,
    /// Another record's document, or a version that was never written.
    Foreign,
}

impl Violation {
    /// The word in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Violation::Lost => "lost",
            Violation::Stale => "stale",
            Violation::Resurrected => "resurrected",
            Violation::Torn => "torn",
            Violation::Foreign => "foreign",
        }
    }
}

/// What is known when a read is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    acknowledged: u32,
    deleted: bool,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Acknowledged.
    Applied,
    /// The server said that nothing changed.
    Refused,
    /// Nobody knows. It may even happen later.
    Unknown,
    /// Nobody knows; but not after another write, because it names what it replaces.
    UnknownUntilNext,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Newest version that was acknowledged; 0 for none.
    acknowledged: u32,
    /// Newest version that was sent.
    issued: u32,
    /// Newest deletion that was sent.
    delete_issued: u32,
    /// Whether the acknowledged version is a deletion.
    deleted: bool,
    /// Newest version that was ever read.
    seen: u32,
    /// A write is under way.
    busy: bool,
}

/// A write that may happen at any time, once.
#[derive(Clone, Copy, Debug)]
struct AtLarge {
    version: u32,
    deletes: bool,
    /// It has happened before this version was sent; `None` as long as it has not been seen.
    before: Option<u32>,
}

impl AtLarge {
    /// Whether a read may see it that was sent when `floor` was known.
    fn may_be_seen(&self, floor: Floor) -> bool {
        self.before.is_none_or(|next| floor.acknowledged < next)
    }
}

#[derive(Clone, Copy, Debug)]
struct Event {
    nanos: u64,
    index: u64,
    version: u32,
    what: &'static str,
}

/// What one part of a run knows about its records.
pub struct Ledger {
    run: u64,
    part: Part,
    states: Vec<State>,
    /// By record.
    at_large: HashMap<u64, Vec<AtLarge>>,
    events: VecDeque<Event>,
    /// Documents may disappear by themselves.
    expires: bool,
    /// What is acknowledged now may be lost.
    acks_may_be_lost: bool,
}

impl Ledger {
    /// For the records of `part` among `records`; `run` tells this run's values from others'.
    #[must_use]
    pub fn new(run: u64, records: u64, part: Part, expires: bool) -> Ledger {
        let own = records.saturating_sub(part.index).div_ceil(part.of);
        Ledger {
            run,
            part,
            states: vec![State::default(); own as usize],
            at_large: HashMap::new(),
            events: VecDeque::new(),
            expires,
            acks_may_be_lost: false,
        }
    }

    /// Whether what is acknowledged from now on may be lost: the node that alone has it is being killed. What was acknowledged
    /// before must still be there, or something that was written over it since.
    pub fn set_acks_may_be_lost(&mut self, acks_may_be_lost: bool) {
        self.acks_may_be_lost = acks_may_be_lost;
    }

    fn state(&mut self, index: u64) -> Option<&mut State> {
        self.states.get_mut((index / self.part.of) as usize)
    }

    fn remember(&mut self, nanos: u64, index: u64, version: u32, what: &'static str) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(Event { nanos, index, version, what });
    }

    /// A write or deletion is about to be sent; returns its version, or nothing if one is under way already.
    pub fn begin(&mut self, index: u64, deletes: bool, nanos: u64) -> Option<u32> {
        let state = self.state(index).filter(|state| !state.busy)?;
        state.busy = true;
        state.issued += 1;
        let version = state.issued;
        if deletes {
            state.delete_issued = version;
        }
        self.remember(nanos, index, version, if deletes { "delete sent" } else { "write sent" });
        Some(version)
    }

    /// The write or deletion has ended.
    pub fn end(&mut self, index: u64, version: u32, deletes: bool, ended: Ended, nanos: u64) {
        let acks_may_be_lost = self.acks_may_be_lost;
        if let Some(state) = self.state(index) {
            state.busy = false;
            if ended == Ended::Applied && !acks_may_be_lost {
                (state.acknowledged, state.deleted) = (version, deletes);
            }
            if ended == Ended::Unknown {
                let before = (state.seen == version).then_some(version + 1);
                self.at_large.entry(index).or_default().push(AtLarge { version, deletes, before });
            }
        }
        let what = match ended {
            Ended::Applied => "acknowledged",
            Ended::Refused => "refused",
            Ended::Unknown | Ended::UnknownUntilNext => "of unknown outcome",
        };
        self.remember(nanos, index, version, what);
    }

    /// What a read that is sent now may count on.
    #[must_use]
    pub fn floor(&mut self, index: u64) -> Floor {
        let known = self.state(index).copied().unwrap_or_default();
        Floor { acknowledged: known.acknowledged, deleted: known.deleted }
    }

    /// Appends a value that can be recognised.
    pub fn stamp(&self, index: u64, version: u32, body: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.run.to_le_bytes());
        out.extend_from_slice(&index.to_le_bytes());
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&out[start..]), body);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(body);
    }

    /// Holds what a read returned against what is known; `None` is absence.
    pub fn check(&mut self, index: u64, floor: Floor, value: Option<&[u8]>, nanos: u64) -> Option<Violation> {
        let known = self.state(index).copied().unwrap_or_default();
        let (violation, version) = match value {
            None => {
                let explained = floor.acknowledged == 0
                    || floor.deleted
                    || known.delete_issued > floor.acknowledged
                    || self.has_happened(index, floor, |write| write.deletes);
                ((!explained && !self.expires).then_some(Violation::Lost), 0)
            }
            Some(value) => match read_stamp(value) {
                // Where nothing was written yet, anything may lie from before.
                None => ((floor.acknowledged > 0).then_some(Violation::Torn), 0),
                Some((run, _, version)) if run != self.run => {
                    ((floor.acknowledged > 0).then_some(older(floor)), version)
                }
                Some((_, other, version)) if other != index => (Some(Violation::Foreign), version),
                Some((_, _, version)) if version > known.issued => (Some(Violation::Foreign), version),
                Some((_, _, version)) => {
                    if let Some(state) = self.state(index) {
                        state.seen = state.seen.max(version);
                    }
                    let was_at_large = self.has_happened(index, floor, |write| write.version == version);
                    let is_old =
                        version < floor.acknowledged || (version == floor.acknowledged && floor.deleted);
                    ((is_old && !was_at_large).then_some(older(floor)), version)
                }
            },
        };
        let what = if value.is_some() { "read" } else { "read as absent" };
        self.remember(nanos, index, version, what);
        violation
    }

    /// Whether what a read has seen may be a write of that kind that is at large: then it has happened. Where deletions are
    /// meant, which of them does not matter: one looks like the other.
    fn has_happened(&mut self, index: u64, floor: Floor, is_meant: impl Fn(&AtLarge) -> bool) -> bool {
        let next = self.state(index).map_or(0, |state| state.issued) + 1;
        let mut at_large = self.at_large.get_mut(&index).into_iter().flatten();
        let seen = at_large.find(|write| write.may_be_seen(floor) && is_meant(write));
        if let Some(write) = seen {
            write.before.get_or_insert(next);
            return true;
        }
        false
    }

    /// What happened to a record, newest last, as far as it is remembered.
    #[must_use]
    pub fn history(&self, index: u64) -> String {
        let events: Vec<_> =
            self.events.iter().rev().filter(|event| event.index == index).take(HISTORY_MAX).collect();
        let mut out = format!("record {index}:");
        for event in events.into_iter().rev() {
            // Writing to a String cannot fail.
            let _ =
                write!(out, " {:.6} s version {} {};", event.nanos as f64 / 1e9, event.version, event.what);
        }
        out
    }
}

fn older(floor: Floor) -> Violation {
    if floor.deleted { Violation::Resurrected } else { Violation::Stale }
}

/// Run, record and version of a value that is whole.
fn read_stamp(value: &[u8]) -> Option<(u64, u64, u32)> {
    let (stamp, body) = value.split_at_checked(STAMP_BYTES)?;
    let number = |at: usize| Some(u64::from_le_bytes(stamp.get(at..at + 8)?.try_into().ok()?));
    let short = |at: usize| Some(u32::from_le_bytes(stamp.get(at..at + 4)?.try_into().ok()?));
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&stamp[..STAMP_BYTES - 4]), body);
    let whole = stamp.starts_with(MAGIC) && short(28)? as usize == body.len() && short(32)? == checksum;
    whole.then_some((number(8)?, number(16)?, short(24)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        Ledger::new(7, 10, Part::WHOLE, false)
    }

    fn value(ledger: &Ledger, index: u64, version: u32) -> Vec<u8> {
        let mut out = Vec::new();
        ledger.stamp(index, version, b"body", &mut out);
        out
    }

    /// Writes version after version of record 3.
    fn write(ledger: &mut Ledger, deletes: bool, ended: Ended) -> u32 {
        let version = ledger.begin(3, deletes, 0).expect("not busy");
        ledger.end(3, version, deletes, ended, 0);
        version
    }

    #[test]
    fn what_was_acknowledged_must_be_there() {
        let mut ledger = ledger();
        let before = ledger.floor(3);
        assert_eq!(ledger.check(3, before, Some(b"anything"), 0), None, "nothing was written yet");
        assert_eq!(ledger.check(3, before, None, 0), None);
        let first = write(&mut ledger, false, Ended::Applied);
        let second = write(&mut ledger, false, Ended::Applied);
        let floor = ledger.floor(3);
        let (old, new) = (value(&ledger, 3, first), value(&ledger, 3, second));
        assert_eq!(ledger.check(3, floor, Some(&new), 0), None);
        assert_eq!(ledger.check(3, floor, Some(&old), 0), Some(Violation::Stale));
        assert_eq!(ledger.check(3, before, Some(&old), 0), None, "the read was sent before");
        assert_eq!(ledger.check(3, floor, None, 0), Some(Violation::Lost));
        assert_eq!(ledger.check(3, floor, Some(&new[..30]), 0), Some(Violation::Torn));
        let mut damaged = new.clone();
        *damaged.last_mut().expect("bytes") ^= 1;
        assert_eq!(ledger.check(3, floor, Some(&damaged), 0), Some(Violation::Torn));
        let other = value(&ledger, 4, 1);
        assert_eq!(ledger.check(3, floor, Some(&other), 0), Some(Violation::Foreign));
        let future = value(&ledger, 3, 9);
        assert_eq!(ledger.check(3, floor, Some(&future), 0), Some(Violation::Foreign));
        let foreign = value(&Ledger::new(8, 10, Part::WHOLE, false), 3, 1);
        assert_eq!(ledger.check(3, floor, Some(&foreign), 0), Some(Violation::Stale));
    }

    #[test]
    fn deletions_explain_absence_and_forbid_return() {
        let mut ledger = ledger();
        let first = write(&mut ledger, false, Ended::Applied);
        let written = ledger.floor(3);
        write(&mut ledger, true, Ended::Applied);
        let deleted = ledger.floor(3);
        let old = value(&ledger, 3, first);
        assert_eq!(ledger.check(3, deleted, None, 0), None);
        assert_eq!(ledger.check(3, deleted, Some(&old), 0), Some(Violation::Resurrected));
        assert_eq!(ledger.check(3, written, None, 0), None, "the deletion came while the read was under way");
        let again = write(&mut ledger, false, Ended::Applied);
        let (floor, new) = (ledger.floor(3), value(&ledger, 3, again));
        assert_eq!(ledger.check(3, floor, Some(&new), 0), None);
        assert_eq!(ledger.check(3, floor, None, 0), Some(Violation::Lost));
    }

    #[test]
    fn an_unknown_outcome_may_be_either() {
        let mut ledger = ledger();
        let first = write(&mut ledger, false, Ended::Applied);
        let second = write(&mut ledger, false, Ended::Unknown);
        let floor = ledger.floor(3);
        for version in [first, second] {
            let seen = value(&ledger, 3, version);
            assert_eq!(ledger.check(3, floor, Some(&seen), 0), None);
        }
        write(&mut ledger, true, Ended::Unknown);
        assert_eq!(ledger.check(3, floor, None, 0), None, "perhaps deleted");
        write(&mut ledger, false, Ended::Applied);
        let (floor, seen) = (ledger.floor(3), value(&ledger, 3, second));
        assert_eq!(ledger.check(3, floor, Some(&seen), 0), Some(Violation::Stale), "it had been seen before");
    }

    /// The request of a connection that was given up may lie in the node's socket until the node gets round to it.
    #[test]
    fn an_unknown_outcome_may_come_about_once_and_late() {
        let mut ledger = ledger();
        let first = write(&mut ledger, false, Ended::Applied);
        let second = write(&mut ledger, false, Ended::Unknown);
        write(&mut ledger, true, Ended::Applied);
        let deleted = ledger.floor(3);
        let (old, late) = (value(&ledger, 3, first), value(&ledger, 3, second));
        assert_eq!(ledger.check(3, deleted, None, 0), None);
        assert_eq!(ledger.check(3, deleted, Some(&old), 0), Some(Violation::Resurrected));
        assert_eq!(ledger.check(3, deleted, Some(&late), 0), None);
        assert_eq!(ledger.check(3, deleted, Some(&late), 0), None, "and it stays");
        // While this is under way, and for reads sent before its end.
        let third = ledger.begin(3, false, 0).expect("not busy");
        assert_eq!(ledger.check(3, deleted, Some(&late), 0), None);
        ledger.end(3, third, false, Ended::Applied, 0);
        assert_eq!(ledger.check(3, deleted, Some(&late), 0), None);
        let floor = ledger.floor(3);
        assert_eq!(ledger.check(3, floor, Some(&late), 0), Some(Violation::Stale), "not twice");
    }

    #[test]
    fn what_a_read_has_seen_of_a_write_on_its_way_has_happened() {
        let mut ledger = ledger();
        write(&mut ledger, false, Ended::Applied);
        let second = ledger.begin(3, false, 0).expect("not busy");
        let (floor, seen) = (ledger.floor(3), value(&ledger, 3, second));
        assert_eq!(ledger.check(3, floor, Some(&seen), 0), None);
        ledger.end(3, second, false, Ended::Unknown, 0);
        write(&mut ledger, true, Ended::Applied);
        let floor = ledger.floor(3);
        assert_eq!(ledger.check(3, floor, Some(&seen), 0), Some(Violation::Resurrected));
    }

    #[test]
    fn a_late_deletion_explains_one_absence() {
        let mut ledger = ledger();
        write(&mut ledger, true, Ended::Unknown);
        for expected in [None, Some(Violation::Lost)] {
            write(&mut ledger, false, Ended::Applied);
            let floor = ledger.floor(3);
            assert_eq!(ledger.check(3, floor, None, 0), expected);
        }
        let floor = ledger.floor(3);
        write(&mut ledger, true, Ended::UnknownUntilNext);
        assert_eq!(ledger.check(3, floor, None, 0), None);
    }

    #[test]
    fn what_names_what_it_replaces_does_not_come_late() {
        let mut ledger = ledger();
        write(&mut ledger, false, Ended::Applied);
        let second = write(&mut ledger, false, Ended::UnknownUntilNext);
        let (floor, seen) = (ledger.floor(3), value(&ledger, 3, second));
        assert_eq!(ledger.check(3, floor, Some(&seen), 0), None);
        let third = write(&mut ledger, false, Ended::UnknownUntilNext);
        let unseen = value(&ledger, 3, third);
        write(&mut ledger, false, Ended::Applied);
        let floor = ledger.floor(3);
        for old in [seen, unseen] {
            assert_eq!(ledger.check(3, floor, Some(&old), 0), Some(Violation::Stale));
        }
    }

    #[test]
    fn acks_that_may_be_lost_leave_what_was_before_and_comes_after_safe() {
        let mut ledger = ledger();
        let first = write(&mut ledger, false, Ended::Applied);
        let second = write(&mut ledger, false, Ended::Applied);
        ledger.set_acks_may_be_lost(true);
        let third = write(&mut ledger, false, Ended::Applied);
        let old = value(&ledger, 3, first);
        for acks_may_be_lost in [true, false] {
            ledger.set_acks_may_be_lost(acks_may_be_lost);
            let floor = ledger.floor(3);
            for version in [second, third] {
                let seen = value(&ledger, 3, version);
                assert_eq!(ledger.check(3, floor, Some(&seen), 0), None, "{version}, {acks_may_be_lost}");
            }
            assert_eq!(ledger.check(3, floor, Some(&old), 0), Some(Violation::Stale), "{acks_may_be_lost}");
            assert_eq!(ledger.check(3, floor, None, 0), Some(Violation::Lost), "{acks_may_be_lost}");
        }
        let newest = write(&mut ledger, false, Ended::Applied);
        let (floor, new) = (ledger.floor(3), value(&ledger, 3, newest));
        assert_eq!(ledger.check(3, floor, Some(&new), 0), None);
        let third_value = value(&ledger, 3, third);
        assert_eq!(ledger.check(3, floor, Some(&third_value), 0), Some(Violation::Stale));
    }

    #[test]
    fn a_deletion_whose_ack_may_be_lost_explains_absence_and_return() {
        let mut ledger = ledger();
        let first = write(&mut ledger, false, Ended::Applied);
        ledger.set_acks_may_be_lost(true);
        write(&mut ledger, true, Ended::Applied);
        ledger.set_acks_may_be_lost(false);
        let (floor, old) = (ledger.floor(3), value(&ledger, 3, first));
        assert_eq!(ledger.check(3, floor, None, 0), None);
        assert_eq!(ledger.check(3, floor, Some(&old), 0), None);
    }

    #[test]
    fn records_are_written_one_version_at_a_time_and_have_a_history() {
        let mut ledger = Ledger::new(7, 10, Part { index: 1, of: 3 }, false);
        assert_eq!(ledger.begin(4, false, 5), Some(1));
        assert_eq!(ledger.begin(4, false, 6), None, "under way");
        ledger.end(4, 1, false, Ended::Applied, 1_000_000);
        assert_eq!(ledger.begin(7, true, 9), Some(1));
        let history = ledger.history(4);
        assert!(history.contains("0.001000 s version 1 acknowledged"), "{history}");
        assert!(!history.contains("delete"), "another record's: {history}");
    }
}
