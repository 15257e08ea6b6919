//! Where the time of requests goes inside the server. This module has the phases of a request, and the clock readings
//! of a worker's turn that they are measured with.
//!
//! A turn reads the clock when the poll returns and when a group of connections has been read. It does so again when a batch has
//! been executed, and when its answers have been given to the socket. It never does so once per request. A request that waits is
//! measured from the reading before the batch it was in to the reading before it goes on.
//!
//! Phases of pipelined requests do not add up to their latency. Each also waits for its batch, of whose execution only
//! its share is counted here. It may also wait behind a parked request of its connection.

use crate::figures::{meter::BucketMeter, reading::Reading};

/// What a request's time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// From the poll's word that the socket is readable to the beginning of the request's batch, the read included.
    Queue,
    /// The request's share of its batch; again each time it goes on after a wait.
    Execute,
    /// Held back while the disk catches up with mutations.
    Pacing,
    /// Until a value has come from disk.
    Fetch,
    /// Until a durable write has reached its level.
    Durability,
    /// SEQNO_PERSISTENCE: until the seqno is on disk.
    Persistence,
    /// For slow work elsewhere: password hashes, range scans.
    OtherWait,
    /// From the end of the batch until the socket has taken its answers, however long the client does not read.
    Reply,
}

impl Phase {
    /// Every phase with the name it has in statistics.
    pub const ALL: [(Phase, &'static str); 8] = [
        (Self::Queue, "queue"),
        (Self::Execute, "execute"),
        (Self::Pacing, "pacing"),
        (Self::Fetch, "fetch"),
        (Self::Durability, "durability"),
        (Self::Persistence, "persistence"),
        (Self::OtherWait, "other_wait"),
        (Self::Reply, "reply"),
    ];
    pub(crate) const COUNT: usize = Self::ALL.len();
}

/// Answers that the socket has not taken yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owed {
    since: Reading,
    requests: u64,
}

impl Owed {
    /// Counts them as written.
    pub(crate) fn settle(self, now: Reading, meter: &BucketMeter, worker: usize) {
        meter.record_phase(worker, Phase::Reply, self.requests, now.nanos_since(self.since));
    }
}

/// The clock readings of a turn. One per worker.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    /// The last reading.
    at: Reading,
    /// When the connection whose turn it is had something to do.
    ready_at: Reading,
    /// Requests executed in this turn that have not been counted as answered.
    answered: u64,
}

impl Stopwatch {
    pub(crate) fn new(now: Reading) -> Self {
        Self { at: now, ready_at: now, answered: 0 }
    }

    /// The last reading.
    pub(crate) fn at(&self) -> Reading {
        self.at
    }

    /// Takes note of a reading; returns the nanoseconds since the one before.
    pub(crate) fn lap(&mut self, now: Reading) -> u64 {
        let lap = now.nanos_since(self.at);
        self.at = now;
        lap
    }

    /// A connection's turn begins, which has had something to do since `ready_at`.
    pub(crate) fn begin_turn(&mut self, ready_at: Reading) {
        (self.ready_at, self.answered) = (ready_at, 0);
    }

    /// For how many nanoseconds what is executed next has waited for its turn.
    pub(crate) fn queued(&self) -> u64 {
        self.at.nanos_since(self.ready_at)
    }

    /// So many requests have answers to be written.
    pub(crate) fn answered(&mut self, requests: u64) {
        self.answered += requests;
    }

    /// The answers since the turn began, ready since the last reading.
    pub(crate) fn owed(&mut self) -> Option<Owed> {
        let requests = std::mem::take(&mut self.answered);
        (requests > 0).then_some(Owed { since: self.at, requests })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn after(begin: Reading, micros: u64) -> Reading {
        begin + Duration::from_micros(micros)
    }

    #[test]
    fn the_second_of_a_group_queues_behind_the_first() {
        let begin = Reading::now();
        let mut stopwatch = Stopwatch::new(begin);
        stopwatch.lap(after(begin, 5));
        stopwatch.begin_turn(begin);
        assert_eq!(stopwatch.queued(), 5_000);
        assert_eq!(stopwatch.lap(after(begin, 20)), 15_000);
        stopwatch.lap(after(begin, 30));
        stopwatch.begin_turn(begin);
        assert_eq!(stopwatch.queued(), 30_000);
        // It had more to do than its turn had time for.
        stopwatch.lap(after(begin, 40));
        stopwatch.begin_turn(after(begin, 40));
        assert_eq!(stopwatch.queued(), 0);
    }

    #[test]
    fn answers_are_owed_from_the_end_of_their_batch_and_counted_once() {
        let begin = Reading::now();
        let meter = BucketMeter::new(1);
        let mut stopwatch = Stopwatch::new(begin);
        assert!(stopwatch.owed().is_none());
        stopwatch.lap(after(begin, 10));
        stopwatch.answered(2);
        stopwatch.answered(1);
        let owed = stopwatch.owed().unwrap();
        assert!(stopwatch.owed().is_none());
        owed.settle(after(begin, 15), &meter, 0);
        let told = meter.phase(Phase::Reply);
        assert_eq!(told.micros, 15);
        assert_eq!(
            told.steps.iter().map(|step| (step.from_micros, step.count)).collect::<Vec<_>>(),
            [(5, 3)]
        );
        // What a turn that failed leaves is nobody's.
        stopwatch.answered(1);
        stopwatch.begin_turn(begin);
        assert!(stopwatch.owed().is_none());
    }
}
