//! What is to be done next, and for which node.
//!
//! Operations are drawn in one order for the whole part of the run. One that belongs to another node than the one
//! that has room waits in that node's list. The lists are bounded: when one is full nothing more is drawn, so a slow
//! node slows the run as it would slow an application. In an open loop what is not drawn keeps its due time.

use super::Phase;
use crate::choose::{Chooser, Part};
use crate::op::Op;
use crate::pace::{Arrivals, Pace};
use crate::validate::Floor;
use crate::wire::Verb;
use std::collections::VecDeque;

/// Longest list of operations that wait for a node.
const WAITING_MAX: usize = 4096;
/// How often another record is drawn for a multi-get, per key, until one belongs to the same node.
const DRAWS_PER_KEY: usize = 16;

/// One operation on its way.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) op: Op,
    /// What its current request asks.
    pub(super) verb: Verb,
    /// What follows when that succeeds.
    pub(super) then: Option<Verb>,
    pub(super) index: u64,
    /// Version of the value it writes.
    pub(super) version: u64,
    /// When it was due: latency counts from here. In a closed loop, when it was sent.
    pub(super) due: u64,
    /// When its first request went out.
    pub(super) sent: u64,
    /// Number of its current request.
    pub(super) number: u32,
    /// Bytes of the value that a write carries.
    pub(super) value_bytes: u32,
    /// For the second request of a CAS.
    pub(super) cas: u64,
    /// What its answer may be held against, if this run validates.
    pub(super) floor: Floor,
    /// Records of a multi-get.
    pub(super) keys: Box<[u64]>,
    /// What has come of a multi-get whose replies come one by one.
    pub(super) parts: Parts,
    /// How often a node has said that its vBucket is elsewhere.
    pub(super) moves: u16,
    /// Its last request has not been answered. Those before were refused.
    pub(super) in_flight: bool,
}

/// What has come of a multi-get so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    pub(super) found: usize,
    pub(super) bytes: u64,
    /// A key was refused for now, or by the wrong node: all of it is to be tried again.
    pub(super) temporary: bool,
    pub(super) moved: bool,
}

pub(super) struct Supply {
    pace: Pace,
    mix: crate::op::Mix,
    multi: usize,
    chooser: Chooser,
    arrivals: Arrivals,
    rng: fastrand::Rng,
    /// Per node.
    waiting: Vec<VecDeque<Job>>,
    /// Operations that may still be drawn.
    left: u64,
    /// Nothing is drawn that is due at this time or later.
    until: u64,
    over: bool,
    /// Drawn and not yet finished.
    pub(super) outstanding: usize,
}

impl Supply {
    pub(super) fn new(phase: &Phase, part: Part, nodes: usize, rate: f64) -> Supply {
        let mut rng = phase.rng(part);
        Supply {
            pace: phase.pace,
            mix: phase.mix.clone(),
            multi: phase.multi.max(1),
            chooser: Chooser::new(phase.choice, phase.records, part, phase.validate, &mut rng),
            arrivals: Arrivals::new(phase.pace, part, rate, 0, &mut rng)
                .in_ticks(phase.tick.as_nanos() as u64),
            rng,
            waiting: (0..nodes).map(|_| VecDeque::new()).collect(),
            left: phase.stop.ops(part),
            until: phase.stop.nanos(),
            over: false,
            outstanding: 0,
        }
    }

    /// Nothing more will be drawn.
    pub(super) fn end(&mut self) {
        self.over = true;
    }

    /// Whether everything was drawn, and finished.
    pub(super) fn is_finished(&self) -> bool {
        self.over && self.outstanding == 0
    }

    /// There are so many nodes now.
    pub(super) fn grow(&mut self, nodes: usize) {
        self.waiting.resize_with(nodes.max(self.waiting.len()), VecDeque::new);
    }

    /// Puts what waits for a node where it belongs by now; multi-gets stay, because their keys were chosen for one node.
    pub(super) fn reroute(&mut self, mut node_of: impl FnMut(u64, Op) -> usize) {
        let waiting: Vec<_> = self.waiting.iter_mut().map(std::mem::take).collect();
        for (place, list) in waiting.into_iter().enumerate() {
            for job in list {
                let home = if job.verb == Verb::MultiGet { place } else { node_of(job.index, job.op) };
                self.waiting[home].push_back(job);
            }
        }
    }

    /// Takes out what was due before `late` and waits for a node still.
    pub(super) fn expire(&mut self, late: u64) -> Vec<Job> {
        let mut expired = Vec::new();
        for list in &mut self.waiting {
            while list.front().is_some_and(|job| job.due < late) {
                expired.extend(list.pop_front());
            }
        }
        expired
    }

    /// Something that was sent to the wrong node is first in the line of the right one.
    pub(super) fn redirect(&mut self, job: Job, node: usize) {
        self.waiting[node].push_front(job);
    }

    /// When the first of those was due that wait for a node, or to be drawn.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.waiting.iter().flatten().map(|job| job.due).chain(self.due()).min()
    }

    /// When something is due next, if that is known.
    pub(super) fn due(&self) -> Option<u64> {
        (self.pace.is_open() && !self.over).then(|| self.arrivals.due())
    }

    /// Gives up what was due before `now`, and says how much that was.
    pub(super) fn skip(&mut self, now: u64) -> u64 {
        let mut skipped = 0;
        for list in &mut self.waiting {
            let waiting = list.len();
            // What has been sent once may have had its effect and is seen to its end.
            list.retain(|job| job.sent > 0);
            skipped += (waiting - list.len()) as u64;
        }
        self.outstanding -= skipped as usize;
        while self.pace.is_open() && !self.over && self.left > 0 && self.arrivals.time() < now {
            self.arrivals.advance(&mut self.rng);
            self.left -= 1;
            skipped += 1;
        }
        skipped
    }

    pub(super) fn follow(&mut self, rate: f64, now: u64) {
        self.arrivals.set_rate(rate, now, &mut self.rng);
    }

    /// Whether the time is over, for those that do not ask for operations now.
    pub(super) fn see_time(&mut self, now: u64) {
        let next = self.arrivals.time();
        // A rate of zero means a pause, not an end.
        let reached = if self.pace.is_open() && next < u64::MAX { next } else { now };
        self.over |= reached >= self.until;
    }

    /// Operations that were due before the end and will never be sent.
    pub(super) fn give_up(&mut self) -> u64 {
        let unsent = self.skip(self.until);
        self.over = true;
        unsent
    }

    /// The next operation for `node`, if one is due. `node_of` finds the node of what an operation does to a record.
    #[inline]
    pub(super) fn take(
        &mut self,
        node: usize,
        now: u64,
        mut node_of: impl FnMut(u64, Op) -> usize,
    ) -> Option<Job> {
        if let Some(job) = self.waiting[node].pop_front() {
            return Some(job);
        }
        loop {
            if self.over || self.waiting.iter().any(|list| list.len() >= WAITING_MAX) {
                return None;
            }
            let job = self.draw(now, &mut node_of)?;
            self.outstanding += 1;
            let home = if self.waiting.len() == 1 { 0 } else { node_of(job.index, job.op) };
            if home == node {
                return Some(job);
            }
            self.waiting[home].push_back(job);
        }
    }

    fn draw(&mut self, now: u64, node_of: &mut impl FnMut(u64, Op) -> usize) -> Option<Job> {
        self.see_time(now);
        if self.over || (self.pace.is_open() && self.arrivals.due() > now) {
            return None;
        }
        if self.left == 0 {
            self.over = true;
            return None;
        }
        let op = self.mix.draw(&mut self.rng);
        let index =
            if op == Op::Insert { Some(self.chooser.insert()) } else { self.chooser.next(&mut self.rng) };
        let Some(index) = index else {
            self.over = true;
            return None;
        };
        self.left -= 1;
        let due = if self.pace.is_open() { self.arrivals.due() } else { now };
        if self.pace.is_open() {
            self.arrivals.advance(&mut self.rng);
        }
        let (verb, then) = Verb::of(op);
        let keys = if op == Op::MultiGet { self.keys(index, node_of) } else { Box::default() };
        let version = self.rng.u64(..);
        Some(Job {
            op,
            verb,
            then,
            index,
            version,
            due,
            sent: 0,
            number: 0,
            value_bytes: 0,
            cas: 0,
            floor: Floor::default(),
            keys,
            parts: Parts::default(),
            moves: 0,
            in_flight: false,
        })
    }

    /// The records of a multi-get: all on the node of the first, because one request goes to one node.
    fn keys(&mut self, first: u64, node_of: &mut impl FnMut(u64, Op) -> usize) -> Box<[u64]> {
        let home = node_of(first, Op::MultiGet);
        let mut keys = vec![first];
        let mut draws = self.multi * DRAWS_PER_KEY;
        while keys.len() < self.multi && draws > 0 {
            draws -= 1;
            match self.chooser.next(&mut self.rng) {
                Some(index) if self.waiting.len() == 1 || node_of(index, Op::MultiGet) == home => {
                    keys.push(index)
                }
                Some(_) => {}
                None => break,
            }
        }
        keys.into_boxed_slice()
    }
}
