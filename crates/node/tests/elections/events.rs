//! What may happen next, without what changes nothing that is looked for:
//!
//! * A paused node is a node that is cut off and gets no writes, as timers have run out anyway.
//! * A durable write that is not acknowledged obliges to less than one at level none in the same place, which is acknowledged.
//!   A write that a majority holds is acknowledged as durable, at once or later, which obliges to more than level none does. So
//!   writes differ only by the copies that are told of them at once. A write that is persisted to a majority is one that these copies
//!   have synced since, with more states in between. One that begins while a node leaves gracefully is such a write
//!   ([`cluster::Metadata::synced_beside`]).
//! * A node that is stuck, and then cut off, is one that was cut off. Once it is back it applies all that was agreed on.
//! * Followers that do not keep up are told of nothing.
//! * Where everybody is there, or nobody out of reach has a lease, it does not matter whether leases have run out.
//! * What is synced already is not synced again, and of a snapshot of one write nothing is in between.

use base::{VbRole, bucket::BucketKind};
use cluster::Membership;

use super::world::{Leash, Link, World, id};

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Node `at` takes a write, which the followers in `told` (bits) get at once.
    Write {
        at: usize,
        told: u8,
    },
    /// Node `at` has heard that a majority has what it prepared before.
    Acknowledge(usize),
    Feed {
        to: usize,
        all: bool,
    },
    Sync(usize),
    /// The leader looks, and what it wants is done by those that are there.
    Lead,
    /// The same before any lease has run out. Whether it has heard those once more that are out of reach now.
    LeadSoon {
        has_heard: bool,
    },
    /// The leader proposes that a graceful failover ends, and it takes a while until that is agreed on.
    ProposeEnd,
    AgreeOnEnd,
    Kill(usize),
    Stop(usize),
    LoseDisk(usize),
    Cut(usize),
    Resume(usize),
    /// Node `at` applies no newer metadata from now on, and goes on to report and to serve. Whether it says so.
    Stick {
        at: usize,
        says: bool,
    },
    Heal(usize),
    FailOver(usize),
    ToggleAutomatic,
    /// A node leaves, or none; spare nodes and those that are to be recovered take part. Nodes are placed in an order ([`World::rebalanced`]).
    Rebalance {
        without: Option<usize>,
        order: u8,
    },
    StopRebalance,
    Graceful(usize),
    Recover {
        at: usize,
        order: u8,
    },
}

impl Event {
    pub(crate) fn is_fault(self) -> bool {
        use Event::{Cut, FailOver, Kill, LoseDisk, Stick, Stop};
        matches!(self, Kill(_) | Stop(_) | LoseDisk(_) | Cut(_) | Stick { .. } | FailOver(_))
    }

    /// Whether something that only one node has may be gone then.
    pub(crate) fn is_loss(self, kind: BucketKind) -> bool {
        use Event::{FailOver, Kill, LoseDisk, Stop};
        match self {
            Kill(_) | LoseDisk(_) | FailOver(_) => true,
            Stop(_) => kind == BucketKind::Ephemeral,
            _ => false,
        }
    }

    pub(crate) fn is_change(self) -> bool {
        use Event::{Graceful, Rebalance, Recover, StopRebalance, ToggleAutomatic};
        matches!(self, ToggleAutomatic | Rebalance { .. } | StopRebalance | Graceful(_) | Recover { .. })
    }
}

impl World {
    /// Everything that may happen next.
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events = vec![Event::Lead];
        if self.nodes.iter().any(|node| !node.hears() && node.leash == Leash::Held) {
            events.extend([false, true].map(|has_heard| Event::LeadSoon { has_heard }));
        }
        if self.is_ending {
            events.push(Event::AgreeOnEnd);
        } else if !self.meta.leaving_gracefully().is_empty() && self.plan().is_quiet() {
            events.push(Event::ProposeEnd);
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].link != Link::Left {
                self.steps_of(at, &mut events);
                self.faults_of(at, &mut events);
            }
        }
        if self.changes < self.bounds.changes {
            self.add_changes(&mut events);
        }
        events
    }

    fn steps_of(&self, at: usize, events: &mut Vec<Event>) {
        let node = &self.nodes[at];
        let held = &node.held;
        if let Some(from) = self.source(at) {
            let active = &self.nodes[from].held;
            let is_new = held.following != Some(held.term);
            if is_new || !held.is_whole() || held.log != active.log {
                events.push(Event::Feed { to: at, all: true });
            }
            if is_new || held.log.len() + 1 < active.log.len() {
                events.push(Event::Feed { to: at, all: false });
            }
        }
        if self.bounds.kind == BucketKind::Couchbase && node.link == Link::Up {
            let mut synced = held.clone();
            synced.sync();
            events.extend((synced != *held).then_some(Event::Sync(at)));
        }
        if usize::from(self.writes) < self.bounds.writes && held.role == VbRole::Active {
            let followers: u8 = self.followers(at).map(|id| 1 << id).sum();
            let told = (0..1_u8 << self.nodes.len()).filter(|told| told & !followers == 0);
            events.extend(told.map(|told| Event::Write { at, told }));
        }
        if self.acknowledgeable(at) & !self.durable != 0 {
            events.push(Event::Acknowledge(at));
        }
        if node.link == Link::Cut {
            events.push(Event::Resume(at));
        }
        if node.stuck.is_some() {
            events.push(Event::Heal(at));
        }
    }

    fn faults_of(&self, at: usize, events: &mut Vec<Event>) {
        if self.faults == self.bounds.faults {
            return;
        }
        let node = &self.nodes[at];
        events.push(Event::Kill(at));
        // In memory only, one end is like the other.
        if self.bounds.kind == BucketKind::Couchbase {
            events.extend([Event::Stop(at), Event::LoseDisk(at)]);
        }
        if node.link == Link::Up {
            events.push(Event::Cut(at));
        }
        if node.hears() {
            events.extend([false, true].map(|says| Event::Stick { at, says }));
        }
        if !node.is_failed && !self.has_failed(at) {
            events.push(Event::FailOver(at));
        }
    }

    fn add_changes(&self, events: &mut Vec<Event>) {
        events.push(Event::ToggleAutomatic);
        if self.meta.rebalance.is_some() {
            events.push(Event::StopRebalance);
            return;
        }
        self.add_rebalances(events, &|order| Event::Rebalance { without: None, order });
        for at in 0..self.nodes.len() {
            let Some(node) = self.meta.nodes.iter().find(|node| node.id == id(at)) else { continue };
            match node.membership {
                Membership::Active => {
                    self.add_rebalances(events, &|order| Event::Rebalance { without: Some(at), order });
                    events.push(Event::Graceful(at));
                }
                Membership::InactiveFailed => {
                    self.add_rebalances(events, &|order| Event::Recover { at, order });
                }
                Membership::InactiveAdded => {}
            }
        }
    }

    /// A rebalance with each order of the nodes by which it strives for something else.
    fn add_rebalances(&self, events: &mut Vec<Event>, rebalance: &dyn Fn(u8) -> Event) {
        let mut targets = Vec::new();
        for order in 0..(1..=self.nodes.len()).product::<usize>() as u8 {
            let event = rebalance(order);
            let meta = self.rebalanced(event);
            let target = meta.buckets["b"].target.as_ref().map(|target| target[0].clone());
            if !targets.contains(&target) {
                targets.push(target);
                events.push(event);
            }
        }
    }
}
