//! What is done to the cluster, drawn from a seed.

use std::fmt;

/// One thing that is done to it; each ends with the cluster at rest again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// kill -9, and a start soon after.
    Kill,
    /// kill -9, failover by hand, start, recovery.
    KillFailover,
    /// kill -9, failover by the cluster itself, start, recovery.
    KillAutoFailover,
    /// SIGSTOP for less than it takes to be failed over.
    Pause,
    /// SIGSTOP until the cluster fails it over, then SIGCONT: it wakes up and believes that it is active still.
    PauseAutoFailover,
    /// Cut off from all other nodes, but not from clients, until it is failed over.
    Isolate,
    /// What it sends to other nodes is lost for a while.
    Mute,
    /// What other nodes send to it is lost for a while.
    Deaf,
    /// It and one other node do not hear of each other for a while; all others hear both.
    Unlink,
    /// Two halves of the cluster do not hear of each other for a while.
    Split,
    /// Graceful failover and recovery.
    GracefulFailover,
    /// One node more.
    RebalanceIn,
    /// One node less.
    RebalanceOut,
    /// One node for another.
    Swap,
    /// A rebalance that is stopped half-way and asked for again.
    StopRebalance,
    /// A rebalance in the middle of which a node gets kill -9 and starts again; it must go on by itself.
    KillInRebalance,
    /// A rebalance in the middle of which a node gets kill -9 and is failed over.
    FailoverInRebalance,
}

impl Event {
    /// All of them.
    pub const ALL: [Event; 17] = [
        Event::Kill,
        Event::KillFailover,
        Event::KillAutoFailover,
        Event::Pause,
        Event::PauseAutoFailover,
        Event::Isolate,
        Event::Mute,
        Event::Deaf,
        Event::Unlink,
        Event::Split,
        Event::GracefulFailover,
        Event::RebalanceIn,
        Event::RebalanceOut,
        Event::Swap,
        Event::StopRebalance,
        Event::KillInRebalance,
        Event::FailoverInRebalance,
    ];

    /// The word on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Event::Kill => "kill",
            Event::KillFailover => "kill-failover",
            Event::KillAutoFailover => "kill-auto-failover",
            Event::Pause => "pause",
            Event::PauseAutoFailover => "pause-auto-failover",
            Event::Isolate => "isolate",
            Event::Mute => "mute",
            Event::Deaf => "deaf",
            Event::Unlink => "unlink",
            Event::Split => "split",
            Event::GracefulFailover => "graceful-failover",
            Event::RebalanceIn => "rebalance-in",
            Event::RebalanceOut => "rebalance-out",
            Event::Swap => "swap",
            Event::StopRebalance => "stop-rebalance",
            Event::KillInRebalance => "kill-in-rebalance",
            Event::FailoverInRebalance => "failover-in-rebalance",
        }
    }

    /// The event of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Event> {
        Event::ALL.into_iter().find(|event| event.name() == name)
    }

    /// Whether nothing that was acknowledged may be lost, nor anybody be refused.
    #[must_use]
    pub const fn is_graceful(self) -> bool {
        matches!(
            self,
            Event::GracefulFailover
                | Event::RebalanceIn
                | Event::RebalanceOut
                | Event::Swap
                | Event::StopRebalance
        )
    }

    /// Whether links have to be cut for it.
    #[must_use]
    pub const fn needs_network(self) -> bool {
        matches!(self, Event::Isolate | Event::Mute | Event::Deaf | Event::Unlink | Event::Split)
    }

    /// Whether it is possible with so many members, and nodes beside them.
    #[must_use]
    pub const fn is_possible(self, members: usize, spares: usize) -> bool {
        match self {
            Event::RebalanceIn => spares > 0,
            Event::RebalanceOut => members > 3,
            Event::Swap | Event::StopRebalance | Event::KillInRebalance => spares > 0,
            Event::FailoverInRebalance => spares > 0 && members >= 3,
            Event::Kill | Event::Pause => members > 0,
            _ => members >= 3,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Draws events: every kind that is wanted once before any comes twice, in an order that follows from the seed.
pub struct Schedule {
    wanted: Vec<Event>,
    left: Vec<Event>,
    rng: fastrand::Rng,
}

impl Schedule {
    /// Of these kinds.
    #[must_use]
    pub fn new(wanted: Vec<Event>, seed: u64) -> Schedule {
        Schedule { wanted, left: Vec::new(), rng: fastrand::Rng::with_seed(seed) }
    }

    /// The next one that is possible; `None` when none is.
    pub fn draw(&mut self, members: usize, spares: usize) -> Option<Event> {
        // The second time round everything that is possible at all is there.
        for _ in 0..2 {
            if let Some(place) = self.left.iter().position(|event| event.is_possible(members, spares)) {
                return Some(self.left.remove(place));
            }
            self.left = self.wanted.clone();
            self.rng.shuffle(&mut self.left);
        }
        None
    }

    /// One of several.
    pub fn choose(&mut self, among: &[usize]) -> usize {
        among[self.rng.usize(..among.len())]
    }

    /// Puts them into another order.
    pub fn shuffle(&mut self, nodes: &mut [usize]) {
        self.rng.shuffle(nodes);
    }

    /// A number of milliseconds.
    pub fn millis(&mut self, range: std::ops::Range<u64>) -> std::time::Duration {
        std::time::Duration::from_millis(self.number(range))
    }

    /// A number.
    pub fn number(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.rng.u64(range)
    }

    /// Heads or tails.
    pub fn coin(&mut self) -> bool {
        self.rng.bool()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_names() {
        for event in Event::ALL {
            assert_eq!(Event::named(event.name()), Some(event));
        }
        assert_eq!(Event::named("earthquake"), None);
    }

    #[test]
    fn a_schedule_repeats_itself_and_leaves_nothing_out() {
        let draw = |seed| {
            let mut schedule = Schedule::new(Event::ALL.to_vec(), seed);
            (0..2 * Event::ALL.len()).map(|_| schedule.draw(4, 1).expect("an event")).collect::<Vec<_>>()
        };
        let events = draw(7);
        assert_eq!(events, draw(7));
        assert_ne!(events, draw(8));
        for event in Event::ALL {
            assert_eq!(events.iter().filter(|other| **other == event).count(), 2, "{event}");
        }
        let mut schedule = Schedule::new(vec![Event::RebalanceIn], 1);
        assert_eq!(schedule.draw(5, 0), None, "nobody is left to be added");
    }
}
