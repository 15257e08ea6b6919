//! Pacing: mutations are taken in as fast as the disk takes them over, no faster. The part that decides, without clock,
//! lock or thread; [`crate::bucket::admission`] is its place in a bucket.
//!
//! While pressure is above its threshold a mutation costs *credit*, in bytes. Credit comes at the rate at which the
//! disk has lately been draining ([`rate`]), times a factor. The factor falls from two at the threshold to nothing at
//! the limit. In the middle the intake equals the drain, and pressure stays where it is. Where space on disk is short,
//! credit is no more than compaction keeps up with ([`space`]). Where nodes that follow are far behind, it is no more
//! than they keep up with ([`followers`]). A mutation that finds no credit waits in a queue that gives connections
//! their turns by bytes ([`queue`]).
//!
//! Invariants:
//!
//! - No mutation waits longer than [`WAIT_MILLIS_MAX`], whatever happens to the disk.
//! - What was granted once is executed or forgotten, never granted twice.
//! - Below the threshold no mutation waits at all.
//!
//! Which mutations are paced, and that deletions never are, is not decided here.

mod followers;
mod keep_up;
mod queue;
mod rate;
mod space;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::api::notify::Waiter;
use followers::Followers;
use queue::Queue;
use rate::MeasuredRate;
use space::SpacePacer;

pub use followers::FollowerLoad;

/// The longest that a mutation is held back. Clients give up after 2.5 seconds by default, on what they sent over one
/// connection in order.
pub const WAIT_MILLIS_MAX: u64 = 1_000;
/// Nobody's answer is waited for by a connection that is gone: a grant not taken up is forgotten after this.
const GRANT_MILLIS_MAX: u64 = 2 * WAIT_MILLIS_MAX;
/// Credit that may lie unused, as time at the present rate: what comes between two looks at the clock.
const SAVED_MILLIS: f64 = 50.0;
/// Debt that one large mutation may leave, as time at the present rate.
const DEBT_MILLIS: f64 = 500.0;
/// What is taken in whatever was measured, as long as there is room: how a disk is found to be faster than it was.
const RATE_MIN: f64 = 64.0 * 1024.0;
/// And before anything was measured.
const RATE_UNKNOWN: f64 = 4.0 * 1024.0 * 1024.0;

/// How things stand, as the bucket sees them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    /// Bytes that have been synced, ever.
    pub(crate) drained: u64,
    /// Bytes that wait for it.
    pub(crate) backlog: u64,
    /// Zero at the threshold, one at the limit; below zero there is none.
    pub(crate) pressure: f64,
    /// Bytes left until the limit.
    pub(crate) room: u64,
    /// The same as pressure, of space on disk; the limit is where compaction has to gain on writers.
    pub(crate) space: f64,
    /// Bytes that compaction has reclaimed, ever.
    pub(crate) reclaimed: u64,
}

/// What becomes of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It may be executed.
    Go,
    /// It waits; its waiter is woken when it may.
    Wait,
}

/// A waiting mutation's name, ordered as queues of connections need it.
type Name = (u32, u64, u64);

fn name_of(waiter: Waiter) -> Name {
    (waiter.worker, waiter.connection, waiter.ticket)
}

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    drain: MeasuredRate,
    space: SpacePacer,
    followers: Followers,
    queue: Queue,
    /// Granted and not taken up, with the time of the grant.
    granted: BTreeMap<Name, u64>,
    is_paced: bool,
    /// Bytes that may be taken in; negative after a mutation larger than what there was.
    credit: f64,
    /// When credit was last given.
    credited_at: u64,
    /// Bytes per second of credit.
    rate: f64,
    /// When it was last looked for what nobody asks for any more.
    swept_at: u64,
}

impl Pacer {
    /// Takes note of how things stand, gives credit for the time since the last call, and returns who may go now.
    pub(crate) fn observe(&mut self, now_millis: u64, load: &Load) -> Vec<Waiter> {
        // Several threads look at the clock, and come here in any order.
        let now_millis = now_millis.max(self.credited_at);
        self.drain.observe(now_millis, load.drained, load.backlog);
        self.space.observe(now_millis, load.reclaimed, load.space);
        // Lower than where it began, so that it does not begin and end with every batch.
        if now_millis.saturating_sub(self.swept_at) >= GRANT_MILLIS_MAX {
            self.swept_at = now_millis;
            self.queue.forget_before(now_millis.saturating_sub(GRANT_MILLIS_MAX));
            self.granted.retain(|_, at| now_millis.saturating_sub(*at) <= GRANT_MILLIS_MAX);
        }
        let by_followers = self.followers.pressure();
        let pressure = load.pressure.max(load.space).max(by_followers);
        self.is_paced = pressure > if self.is_paced { -0.2 } else { 0.0 };
        if !self.is_paced {
            self.credit = 0.0;
            self.credited_at = now_millis;
            return self.release_all(now_millis);
        }
        let factor = (2.0 * (1.0 - load.pressure)).clamp(0.0, 2.0);
        let by_memory = self.drain.known().unwrap_or(RATE_UNKNOWN).max(RATE_MIN) * factor;
        let drain = self.drain.known();
        self.rate = by_memory.min(self.space.rate(load.space, drain)).min(self.followers.rate(drain));
        let millis = now_millis.saturating_sub(self.credited_at) as f64;
        self.credited_at = now_millis;
        self.credit = (self.credit + self.rate * millis / 1e3).min(self.rate * SAVED_MILLIS / 1e3);
        // What goes now is not seen in the pressure before it has been executed: half of the room is left for it.
        self.credit = self.credit.min(load.room as f64 / 2.0);
        let mut going = Vec::new();
        while self.credit > 0.0
            && let Some((waiter, bytes)) = self.queue.pop()
        {
            self.charge(bytes);
            self.granted.insert(name_of(waiter), now_millis);
            going.push(waiter);
        }
        going
    }

    /// Takes note of the nodes that follow this one.
    pub(crate) fn observe_followers(&mut self, now_millis: u64, loads: &[FollowerLoad]) {
        self.followers.observe(now_millis, loads);
    }

    /// How long the slowest of them needs to get what it has not, in seconds.
    pub(crate) fn followers_seconds(&self) -> f64 {
        self.followers.seconds()
    }

    /// The same as pressure, of nodes that follow this one.
    pub(crate) fn followers_pressure(&self) -> f64 {
        self.followers.pressure()
    }

    fn release_all(&mut self, now_millis: u64) -> Vec<Waiter> {
        let mut going = Vec::new();
        while let Some((waiter, _)) = self.queue.pop() {
            self.granted.insert(name_of(waiter), now_millis);
            going.push(waiter);
        }
        going
    }

    fn charge(&mut self, bytes: u64) {
        self.credit = (self.credit - bytes as f64).max(-self.rate * DEBT_MILLIS / 1e3);
    }

    /// A mutation of so many bytes wants to be executed.
    pub(crate) fn ask(&mut self, now_millis: u64, waiter: Waiter, bytes: u64) -> Answer {
        if !self.is_paced {
            return Answer::Go;
        }
        if self.queue.is_empty() && self.credit > 0.0 {
            self.charge(bytes);
            return Answer::Go;
        }
        self.queue.push(waiter, bytes, now_millis);
        Answer::Wait
    }

    /// Whether a mutation that waits may be executed now; asked when its waiter was woken.
    pub(crate) fn redeem(&mut self, waiter: Waiter) -> bool {
        self.granted.remove(&name_of(waiter)).is_some()
    }

    /// A mutation waits no longer, granted or not; false when it was not waiting.
    pub(crate) fn withdraw(&mut self, waiter: Waiter) -> bool {
        self.granted.remove(&name_of(waiter)).is_some() | self.queue.remove(waiter)
    }

    pub(crate) fn is_paced(&self) -> bool {
        self.is_paced
    }

    /// Mutations that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of them.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// Bytes per second that the disk takes.
    pub(crate) fn drain_rate(&self) -> u64 {
        self.drain.known().unwrap_or_default() as u64
    }

    /// Bytes per second that compaction reclaims when it has to.
    pub(crate) fn reclaim_rate(&self) -> u64 {
        self.space.reclaim_rate()
    }

    /// Bytes per second that are taken in; `None` while there is no bound.
    pub(crate) fn intake_rate(&self) -> Option<u64> {
        self.is_paced.then_some(self.rate as u64)
    }
}
