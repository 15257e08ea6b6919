//! How much may be taken in so that copies on other nodes keep up. A copy that takes less than is written falls further
//! and further behind. The longer that goes on, the more is lost where it takes over.
//!
//! What counts is how long a node would take to get what it has not, if nothing were added. Up to [`BEGIN_SECONDS`] of that are
//! anybody's: bursts, and nodes that come back. From there on writers are paced, and twice [`WAY_SECONDS`] further at the latest what is
//! taken in is less than what the copies take. So whatever is offered, for however long, and however slow a node is, the gap stops
//! growing.
//!
//! What a node takes is the best that it has taken of late. Streams that keep up only take what writers are let write.
//! That says nothing of streams that are read from disk and wait for room over there. A node that takes nothing at all
//! is not waited for: it comes back to life or is failed over. Others find out which of the two happens. So the pace is
//! that of nodes that get on, however slowly.
//!
//! A node is known longer than its connection. A slow one that connects anew every few seconds would otherwise be new every time,
//! and writers would outrun it for ever. A new connection has sent nothing, and its streams open one by one. So for
//! [`STILL_MILLIS`] the node is behind by what was known before at least, less what the connection has sent since.

use std::collections::{BTreeMap, VecDeque};

use base::NodeId;

use super::keep_up;

/// Where pacing begins, in seconds that the slowest needs.
const BEGIN_SECONDS: f64 = 10.0;
/// From there to the limit.
const WAY_SECONDS: f64 = 20.0;
/// What a node takes is measured over so long.
const WINDOW_MILLIS: u64 = 10_000;
/// And the best is as good for so long.
const MEMORY_MILLIS: u64 = 40_000;
/// A follower that is behind for less has had a burst.
const BURST_MILLIS: u64 = 10_000;
/// A follower that has taken nothing for so long has stopped. No longer than [`BEGIN_SECONDS`]: nobody is paced for one that stands still.
const STILL_MILLIS: u64 = 10_000;

/// How far a node that follows this one in a bucket has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FollowerLoad {
    /// The follower.
    pub node: NodeId,
    /// Bytes that its present connection was sent.
    pub sent: u64,
    /// Documents and events of these.
    pub items_sent: u64,
    /// What is still to be sent for copies that count, in documents and events.
    pub items_behind: u64,
    /// The part of what the bucket takes in here that goes to it.
    pub share: f64,
}

#[derive(Debug, Default)]
struct Follower {
    /// Bytes and items that the present connection had been sent at the last look.
    counted: (u64, u64),
    /// Bytes and items that all connections were sent.
    total: (u64, u64),
    /// When the present connection was first seen, if there was one before.
    reconnected_at: Option<u64>,
    /// When the node had a connection last.
    seen_at: u64,
    /// When how many bytes had been sent, oldest first.
    sent: VecDeque<(u64, u64)>,
    /// When it was sent anything last.
    moved_at: u64,
    /// Since when it is more than one look behind.
    behind_since: Option<u64>,
    behind: u64,
    share: f64,
    /// Bytes per second that it takes; `None` where that is not known.
    takes: Option<f64>,
}

impl Follower {
    fn observe(&mut self, now_millis: u64, load: &FollowerLoad) {
        // Another connection begins to count anew.
        if load.sent < self.counted.0 || load.items_sent < self.counted.1 {
            self.counted = (0, 0);
            self.reconnected_at = Some(now_millis);
        }
        let was_sent = load.sent - self.counted.0;
        self.total.0 = self.total.0.saturating_add(was_sent);
        self.total.1 = self.total.1.saturating_add(load.items_sent - self.counted.1);
        self.counted = (load.sent, load.items_sent);
        self.seen_at = now_millis;
        if was_sent > 0 {
            self.moved_at = now_millis;
        }
        (self.behind, self.share) = self.lag(now_millis, load, was_sent);
        self.behind_since = (self.behind > was_sent).then(|| self.behind_since.unwrap_or(now_millis));
        self.sent.push_back((now_millis, self.total.0));
        while self.sent.front().is_some_and(|&(at, _)| now_millis.saturating_sub(at) > MEMORY_MILLIS) {
            self.sent.pop_front();
        }
        self.takes = self.best_rate();
    }

    /// Bytes that it is behind, and its share of what is taken in.
    fn lag(&self, now_millis: u64, load: &FollowerLoad, was_sent: u64) -> (u64, f64) {
        // What is still to be sent is taken to be like what was.
        let (bytes, items) = self.total;
        let told = (u128::from(load.items_behind) * u128::from(bytes)).checked_div(u128::from(items));
        let told = u64::try_from(told.unwrap_or(0)).unwrap_or(u64::MAX);
        let is_new = self.reconnected_at.is_some_and(|at| now_millis.saturating_sub(at) < STILL_MILLIS);
        if is_new {
            (told.max(self.behind.saturating_sub(was_sent)), load.share.max(self.share))
        } else {
            (told, load.share)
        }
    }

    /// Of every window that there has been of late.
    fn best_rate(&self) -> Option<f64> {
        let mut ends = self.sent.iter().peekable();
        let windows = self.sent.iter().map_while(|&(from, before)| {
            while ends.next_if(|&&(at, _)| at < from + WINDOW_MILLIS).is_some() {}
            let &&(until, sent) = ends.peek()?;
            Some((sent - before) as f64 * 1e3 / (until - from) as f64)
        });
        windows.reduce(f64::max).filter(|rate| *rate > 0.0)
    }

    /// How long it needs for what it has not, in seconds.
    fn seconds(&self, now_millis: u64) -> f64 {
        let has_stopped = now_millis.saturating_sub(self.moved_at) >= STILL_MILLIS;
        let is_behind =
            self.behind_since.is_some_and(|since| now_millis.saturating_sub(since) >= BURST_MILLIS);
        match self.takes {
            Some(takes) if is_behind && !has_stopped => self.behind as f64 / takes,
            _ => 0.0,
        }
    }

    fn pressure(&self, now_millis: u64) -> f64 {
        (self.seconds(now_millis) - BEGIN_SECONDS) / WAY_SECONDS
    }
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Followers {
    nodes: BTreeMap<NodeId, Follower>,
    /// When they were looked at last.
    at: u64,
}

impl Followers {
    /// Takes note of all who follow, about once a second.
    pub(super) fn observe(&mut self, now_millis: u64, loads: &[FollowerLoad]) {
        self.at = now_millis;
        // A node without a connection takes nothing. It may be about to connect again.
        self.nodes.retain(|_, follower| now_millis.saturating_sub(follower.seen_at) < MEMORY_MILLIS);
        for load in loads {
            self.nodes.entry(load.node).or_default().observe(now_millis, load);
        }
    }

    /// Zero where writers begin to be paced for the sake of the slowest, one at the limit.
    pub(super) fn pressure(&self) -> f64 {
        self.nodes.values().map(|follower| follower.pressure(self.at)).fold(f64::NEG_INFINITY, f64::max)
    }

    /// How long the slowest needs, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.nodes.values().map(|follower| follower.seconds(self.at)).fold(0.0, f64::max)
    }

    /// Bytes per second that may be taken in where so many drain; infinite while nobody is far behind.
    pub(super) fn rate(&self, drain: Option<f64>) -> f64 {
        let of = |follower: &Follower| {
            let takes = follower.takes.unwrap_or_default() / follower.share.max(f64::EPSILON);
            keep_up::rate(follower.pressure(self.at), drain, takes)
        };
        self.nodes.values().map(of).fold(f64::INFINITY, f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);
    const MB: f64 = 1e6;

    /// Writers, and a node that takes less than they offer; a second at a time. Each item is a byte.
    #[derive(Default)]
    struct World {
        followers: Followers,
        seconds: u64,
        sent: f64,
        behind: f64,
    }

    /// What a look finds of a node that connects anew.
    #[derive(Clone, Copy, Debug)]
    enum Anew {
        /// It has no connection at the moment.
        Away,
        /// It has one without streams.
        Bare,
    }

    fn load(sent: f64, behind: f64, share: f64) -> FollowerLoad {
        let (sent, items_behind) = (sent as u64, behind as u64);
        FollowerLoad { node: NODE, sent, items_sent: sent, items_behind, share }
    }

    impl World {
        fn now(&self) -> u64 {
            self.seconds * 1_000
        }

        fn allowed(&self, offered: f64) -> f64 {
            offered.min(self.followers.rate(Some(100.0 * MB)))
        }

        /// `taken` per second go to the node, of what it has not.
        fn run(&mut self, seconds: u64, offered: f64, taken: f64, share: f64) {
            for _ in 0..seconds {
                self.behind += self.allowed(offered) * share;
                let taken = taken.min(self.behind);
                self.behind -= taken;
                self.sent += taken;
                self.seconds += 1;
                self.followers.observe(self.now(), &[load(self.sent, self.behind, share)]);
            }
        }

        /// The node's connection ends, and a second later it has another one.
        fn reconnect(&mut self, offered: f64, anew: Anew) {
            self.behind += self.allowed(offered);
            self.sent = 0.0;
            self.seconds += 1;
            let loads = match anew {
                Anew::Away => vec![],
                Anew::Bare => vec![load(0.0, 0.0, 0.0)],
            };
            self.followers.observe(self.now(), &loads);
        }
    }

    #[test]
    fn the_gap_to_a_slow_node_stops_growing_and_writers_have_what_it_takes() {
        for (taken, share) in [(MB, 1.0), (10.0 * MB, 1.0), (MB, 0.25), (0.1 * MB, 1.0)] {
            let mut world = World::default();
            world.run(60, 50.0 * MB, taken, share);
            let behind = world.behind;
            world.run(540, 50.0 * MB, taken, share);
            assert!(world.behind <= behind * 1.01, "{behind} and {} at {taken}", world.behind);
            let taken_in = world.allowed(50.0 * MB) * share / taken;
            // As much as it takes, once it has made up for what was taken in before that was known.
            let is_settled = world.behind / taken < BEGIN_SECONDS + 2.0 * WAY_SECONDS;
            let expected = if is_settled { 0.95..1.05 } else { 0.2..0.9 };
            assert!(expected.contains(&taken_in), "{taken_in} of what it takes, at {taken}");
        }
    }

    /// Streams that are read from disk wait for room over there, while the others take what is written.
    #[test]
    fn what_writers_are_let_write_is_not_taken_for_what_a_node_can_take() {
        let mut world = World::default();
        world.run(60, 50.0 * MB, 2.0 * MB, 1.0);
        let stuck = world.behind;
        for _ in 0..25 {
            world.behind = 0.0;
            world.run(1, world.allowed(50.0 * MB).min(MB), 2.0 * MB, 1.0);
            world.behind = stuck;
            world.followers.observe(world.now(), &[load(world.sent, stuck, 1.0)]);
        }
        assert!(world.allowed(50.0 * MB) >= 0.25 * 2.0 * MB, "{}", world.allowed(50.0 * MB));
    }

    #[test]
    fn nobody_is_paced_for_a_node_that_keeps_up() {
        let mut world = World::default();
        world.run(60, 50.0 * MB, 60.0 * MB, 1.0);
        assert!(world.allowed(50.0 * MB) >= 50.0 * MB);
    }

    #[test]
    fn nobody_is_paced_by_a_burst_or_by_a_node_that_had_little_to_do() {
        let mut world = World::default();
        world.run(60, 100.0, MB, 1.0);
        // What it takes in some seconds, at once.
        world.behind += 8.0 * MB;
        for _ in 0..10 {
            world.run(1, 0.5 * MB, MB, 1.0);
            assert!(world.allowed(50.0 * MB) >= 50.0 * MB, "{} s", world.seconds);
        }
    }

    #[test]
    fn nobody_is_paced_for_a_node_that_stands_still() {
        let mut world = World::default();
        world.run(60, 50.0 * MB, 60.0 * MB, 1.0);
        for _ in 0..60 {
            world.run(1, 50.0 * MB, 0.0, 1.0);
            assert!(world.allowed(50.0 * MB) >= 50.0 * MB, "{} s", world.seconds);
        }
    }

    #[test]
    fn one_that_comes_back_catches_up_beside_writers() {
        let mut world = World { behind: 3_000.0 * MB, ..World::default() };
        world.run(20, 50.0 * MB, 60.0 * MB, 1.0);
        let (behind, taken_in) = (world.behind, world.allowed(50.0 * MB));
        assert!((10.0 * MB..50.0 * MB).contains(&taken_in), "{taken_in}");
        world.run(20, 50.0 * MB, 60.0 * MB, 1.0);
        assert!(world.behind < behind);
        world.run(300, 50.0 * MB, 60.0 * MB, 1.0);
        assert!(world.behind < 600.0 * MB, "{}", world.behind);
        for _ in 0..STILL_MILLIS / 1_000 {
            world.seconds += 1;
            world.followers.observe(world.now(), &[]);
        }
        assert!(world.allowed(50.0 * MB) >= 50.0 * MB, "it is gone");
    }

    #[test]
    fn a_slow_node_that_connects_anew_every_few_seconds_is_not_outrun() {
        for (every, anew) in [(3, Anew::Away), (3, Anew::Bare), (1, Anew::Bare), (7, Anew::Away)] {
            let mut world = World::default();
            let mut run = |seconds: u64| {
                for _ in 0..seconds / every {
                    world.run(every, 50.0 * MB, MB, 1.0);
                    world.reconnect(50.0 * MB, anew);
                }
                world.behind
            };
            let behind = run(120);
            let later = run(600);
            assert!(later <= behind * 1.01, "{behind} and {later}: {anew:?} after {every} s each");
        }
    }

    #[test]
    fn nobody_is_paced_for_a_node_that_connects_anew_and_keeps_up() {
        for anew in [Anew::Away, Anew::Bare] {
            let mut world = World::default();
            for _ in 0..50 {
                world.run(3, 50.0 * MB, 160.0 * MB, 1.0);
                world.reconnect(50.0 * MB, anew);
                assert!(world.allowed(50.0 * MB) >= 50.0 * MB, "{anew:?}, {} s", world.seconds);
            }
        }
    }

    #[test]
    fn nobody_is_paced_for_a_node_that_connects_anew_and_takes_nothing() {
        let mut world = World::default();
        world.run(60, 50.0 * MB, MB, 1.0);
        assert!(world.allowed(50.0 * MB) < 50.0 * MB);
        for _ in 0..20 {
            world.run(3, 50.0 * MB, 0.0, 1.0);
            world.reconnect(50.0 * MB, Anew::Bare);
        }
        assert!(world.allowed(50.0 * MB) >= 50.0 * MB);
    }
}
