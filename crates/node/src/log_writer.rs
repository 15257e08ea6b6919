//! The log of the metadata on its way to the disk: what is written next, and what becomes of a write that fails.
//!
//! All writes that wait go to the disk together. A write that finds no space is tried again until it fits. Any other failure ends the
//! writing, since nobody knows how much of the write is on the disk. A caller asks [`LogWriter::next`], does the write, and says how it went
//! ([`LogWriter::ended`]).
//!
//! Invariants:
//! - Writes reach the disk in the order in which they came, each once.
//! - After a failure whose outcome nobody knows nothing is written any more.
//!
//! Times are milliseconds of a clock that does not jump.

use std::mem;

use cluster::consensus::{Batch, LogError};

use crate::Write;

/// How long the log rests after a write that found no space.
const RETRY_MILLIS: u64 = 500;

/// What to do about the log now.
#[derive(Debug, PartialEq, Eq)]
pub enum NextWrite<'a> {
    /// Nothing, until something is added; for ever where the log was lost.
    Nothing,
    /// Nothing, for so many milliseconds.
    Rest(u64),
    /// Write these, all or none, and sync. The disk has been at them since then.
    Batches(&'a [Batch], u64),
}

/// How a try to write the log ended.
#[derive(Clone, Debug)]
pub enum WriteEnded {
    /// It is on the disk: [`Participant::written`](crate::Participant::written).
    Written(Write),
    /// There was no space, and nothing was written; this is what the disk says. It is tried again after a pause.
    Again(String),
    /// Nobody knows what of it is on the disk: [`Participant::log_lost`](crate::Participant::log_lost).
    Lost(String),
}

/// See the module.
#[derive(Debug, Default)]
pub struct LogWriter {
    /// What the disk was given, or is to be given now.
    writing: Option<Write>,
    /// What came since.
    waiting: Vec<Write>,
    /// Since when the disk has been at the present write.
    since: Option<u64>,
    /// It is not tried again before.
    again_at: u64,
    is_lost: bool,
}

impl LogWriter {
    /// There is more to be written.
    pub fn add(&mut self, write: Write) {
        if !self.is_lost {
            self.waiting.push(write);
        }
    }

    /// What is to be done now.
    pub fn next(&mut self, now: u64) -> NextWrite<'_> {
        if self.writing.is_none() {
            self.writing = Write::merged(mem::take(&mut self.waiting));
            self.since = self.writing.as_ref().map(|_| now);
        }
        match &self.writing {
            None => NextWrite::Nothing,
            Some(_) if now < self.again_at => NextWrite::Rest(self.again_at - now),
            Some(write) => NextWrite::Batches(&write.batches, self.since.unwrap_or(now)),
        }
    }

    /// The write that [`LogWriter::next`] asked for ended like this. `None` where it had asked for none.
    pub fn ended(&mut self, outcome: Result<(), LogError>, now: u64) -> Option<WriteEnded> {
        let write = self.writing.take()?;
        match outcome {
            Ok(()) => {
                self.since = None;
                Some(WriteEnded::Written(write))
            }
            Err(error @ LogError::NoSpace { .. }) => {
                (self.writing, self.again_at) = (Some(write), now + RETRY_MILLIS);
                Some(WriteEnded::Again(error.to_string()))
            }
            Err(error) => {
                self.is_lost = true;
                (self.since, self.waiting) = (None, Vec::new());
                Some(WriteEnded::Lost(error.to_string()))
            }
        }
    }

    /// Since when the disk has been at one write, pauses for want of space included.
    #[must_use]
    pub fn writing_since(&self) -> Option<u64> {
        self.since
    }

    /// Whether nothing is written any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// What has not been written, in order; a process that ends may have given the disk any first part of it.
    #[must_use]
    pub fn into_unwritten(self) -> Vec<Write> {
        self.writing.into_iter().chain(self.waiting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(number: u64) -> Write {
        Write::new(0, number, vec![Batch::default()])
    }

    fn no_space() -> Result<(), LogError> {
        Err(LogError::NoSpace { path: "log".into(), reason: "full".into() })
    }

    #[test]
    fn what_waits_is_written_together_and_what_comes_meanwhile_afterwards() {
        let mut writer = LogWriter::default();
        assert_eq!(writer.next(1), NextWrite::Nothing);
        (1..=2).for_each(|number| writer.add(write(number)));
        assert!(matches!(writer.next(5), NextWrite::Batches(batches, 5) if batches.len() == 2));
        writer.add(write(3));
        assert!(matches!(writer.next(6), NextWrite::Batches(batches, 5) if batches.len() == 2));
        assert_eq!(writer.writing_since(), Some(5), "it is at that one still");
        let Some(WriteEnded::Written(first)) = writer.ended(Ok(()), 7) else { panic!("it was written") };
        assert_eq!((first.place(), writer.writing_since()), ((0, 2), None));
        assert!(matches!(writer.next(8), NextWrite::Batches(batches, _) if batches.len() == 1));
    }

    #[test]
    fn what_finds_no_space_is_tried_again_as_it_was() {
        let mut writer = LogWriter::default();
        writer.add(write(1));
        assert!(matches!(writer.next(10), NextWrite::Batches(..)));
        assert!(matches!(writer.ended(no_space(), 11), Some(WriteEnded::Again(_))));
        writer.add(write(2));
        assert_eq!(writer.next(12), NextWrite::Rest(RETRY_MILLIS - 1));
        assert_eq!(writer.writing_since(), Some(10), "a full disk stands still as well");
        assert!(matches!(writer.next(600), NextWrite::Batches(batches, _) if batches.len() == 1));
        assert!(
            matches!(writer.ended(Ok(()), 601), Some(WriteEnded::Written(write)) if write.place() == (0, 1))
        );
    }

    #[test]
    fn after_a_failure_of_unknown_outcome_nothing_is_written() {
        let mut writer = LogWriter::default();
        (1..=2).for_each(|number| writer.add(write(number)));
        assert!(matches!(writer.next(1), NextWrite::Batches(..)));
        writer.add(write(3));
        let broken = LogError::Store { path: "log".into(), reason: "broken".into() };
        assert!(matches!(writer.ended(Err(broken), 2), Some(WriteEnded::Lost(_))));
        writer.add(write(4));
        assert_eq!(writer.next(3), NextWrite::Nothing);
        assert!(writer.is_lost() && writer.into_unwritten().is_empty());
    }
}
