//! Several threads as one run: they start together, and what they measured is merged interval by interval.
//!
//! Each thread owns its connections and its part of the records' sequence; nothing is shared while they run but the
//! [`Control`]. Results come to the caller's thread over a channel, one message per thread and interval.

use crate::choose::Part;
use crate::doctor::Sockets;
use crate::driver::{Driver, Phase};
use crate::pace::Control;
use crate::records::Records;
use crate::tally::{Interval, Tally};
use crate::target::{LoadError, Target};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Threads need this long to get ready for a common start.
const START: Duration = Duration::from_millis(5);

/// Threads with their connections.
pub struct Crew {
    drivers: Vec<Driver>,
}

impl Crew {
    /// Opens `connections` in all, shared by `threads`. `part` says which part of a larger run this crew is.
    ///
    /// # Errors
    /// A connection cannot be made.
    pub fn connect(
        target: &Arc<Target>,
        records: &Arc<dyn Records>,
        connections: usize,
        threads: usize,
        part: Part,
    ) -> Result<Crew, LoadError> {
        let threads = threads.clamp(1, connections.max(1));
        let drivers = (0..threads).map(|thread| {
            let share = connections / threads + usize::from(thread < connections % threads);
            let part =
                Part { index: part.index * threads as u64 + thread as u64, of: part.of * threads as u64 };
            Driver::connect(target.clone(), records.clone(), share, part)
        });
        Ok(Crew { drivers: drivers.collect::<Result<_, _>>()? })
    }

    /// What the kernel says of the connections.
    #[must_use]
    pub fn sockets(&self) -> Sockets {
        Sockets::of(self.drivers.iter().flat_map(Driver::files))
    }

    /// Runs a phase; `sink` hears every interval once all threads have ended it.
    ///
    /// # Errors
    /// The first error of any thread, after all have ended.
    pub fn run(
        &mut self,
        phase: &Phase,
        control: &Control,
        mut sink: impl FnMut(Interval),
    ) -> Result<(), LoadError> {
        self.run_from(Instant::now() + START, phase, control, &mut sink)
    }

    /// As [`Crew::run`], from a given moment.
    ///
    /// # Errors
    /// As [`Crew::run`].
    pub fn run_from(
        &mut self,
        start: Instant,
        phase: &Phase,
        control: &Control,
        sink: &mut dyn FnMut(Interval),
    ) -> Result<(), LoadError> {
        let (outbox, inbox) = channel();
        let mut gathered = Gathered::new(self.drivers.len());
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (thread, driver) in self.drivers.iter_mut().enumerate() {
                let outbox = outbox.clone();
                threads.push(scope.spawn(move || {
                    let mut send = |interval| {
                        // The other end lives as long as this scope.
                        let _ = outbox.send((thread, Some(interval)));
                    };
                    let result = driver.run(phase, start, control, &mut send);
                    let _ = outbox.send((thread, None));
                    if result.is_err() {
                        control.stop();
                    }
                    result
                }));
            }
            drop(outbox);
            while let Ok((thread, message)) = inbox.recv() {
                match message {
                    Some(interval) => gathered.add(thread, interval),
                    None => gathered.leave(thread),
                }
                while let Some(interval) = gathered.complete() {
                    sink(interval);
                }
            }
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(LoadError::Thread)))
        })
    }

    /// Runs a phase and returns everything together.
    ///
    /// # Errors
    /// As [`Crew::run`].
    pub fn total(&mut self, phase: &Phase, control: &Control) -> Result<Tally, LoadError> {
        let mut total = Tally::default();
        self.run(phase, control, |interval| total.merge(&interval.tally))?;
        Ok(total)
    }
}

/// Intervals of several sources on their way to becoming one each.
pub struct Gathered {
    /// Per source: the first interval it has not delivered; `None` when it will deliver no more.
    progress: Vec<Option<u64>>,
    open: BTreeMap<u64, Tally>,
}

impl Gathered {
    /// Of so many sources.
    #[must_use]
    pub fn new(sources: usize) -> Gathered {
        Gathered { progress: vec![Some(0); sources], open: BTreeMap::new() }
    }

    /// A source has delivered an interval.
    pub fn add(&mut self, source: usize, interval: Interval) {
        self.progress[source] = Some(interval.index + 1);
        self.open.entry(interval.index).or_default().merge(&interval.tally);
    }

    /// A source will deliver no more.
    pub fn leave(&mut self, source: usize) {
        self.progress[source] = None;
    }

    /// The oldest interval that every source has delivered or will never deliver.
    pub fn complete(&mut self) -> Option<Interval> {
        let (&index, _) = self.open.first_key_value()?;
        let waiting = self.progress.iter().flatten().any(|&next| next <= index);
        if waiting {
            return None;
        }
        self.open.pop_first().map(|(index, tally)| Interval { index, tally })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Class, Op};

    fn interval(index: u64, ops: u64) -> Interval {
        let mut tally = Tally::default();
        (0..ops).for_each(|_| tally.record(Op::Get, Class::Success, 1000));
        Interval { index, tally }
    }

    #[test]
    fn an_interval_is_whole_when_everybody_has_ended_it() {
        let mut gathered = Gathered::new(2);
        gathered.add(0, interval(0, 1));
        gathered.add(0, interval(1, 2));
        assert!(gathered.complete().is_none());
        gathered.add(1, interval(0, 4));
        let first = gathered.complete().expect("both have delivered");
        assert_eq!((first.index, first.tally.ok()), (0, 5));
        assert!(gathered.complete().is_none());
        gathered.leave(1);
        assert_eq!(gathered.complete().expect("the other one left").tally.ok(), 2);
    }
}
