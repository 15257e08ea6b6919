//! How much may be taken in so that copies on other nodes keep up: a copy that takes less than is written falls behind further and
//! further, and who takes over from it has the less, the longer that goes on.
//!
//! What counts is how long a node would take to get what it has not, if nothing were added. Up to [`BEGIN_SECONDS`] of that are
//! anybody's: bursts, and nodes that come back. From there on writers are paced, and twice [`WAY_SECONDS`] further at the latest what is
//! taken in is less than what the copies take. So whatever is offered, for however long, and however slow a node is, the gap stops
//! growing.
//!
//! What a node takes is the best that it has taken of late: streams that keep up take what writers are let write, which says
//! nothing of those that are read from disk and wait for room over there. And one that takes nothing at all is none to wait for: it comes
//! back to life or is failed over, which is others' to find out. So the pace is that of nodes that get on, however slowly.

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
/// Who is behind for less has had a burst.
const BURST_MILLIS: u64 = 10_000;
/// Who has taken nothing for so long has stopped. No longer than [`BEGIN_SECONDS`]: nobody is paced for one that stands still.
const STILL_MILLIS: u64 = 10_000;

/// How far a node that follows this one in a bucket has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FollowerLoad {
    /// Who follows.
    pub node: NodeId,
    /// Bytes that its connection was sent, ever.
    pub sent: u64,
    /// Bytes of what is still to be sent for copies that count.
    pub behind: u64,
    /// The part of what the bucket takes in here that goes to it.
    pub share: f64,
}

#[derive(Debug, Default)]
struct Follower {
    /// When how much had been sent, oldest first.
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
        let last = self.sent.back().map_or(0, |&(_, sent)| sent);
        // Another connection begins to count anew.
        if load.sent < last {
            *self = Self::default();
        }
        let was_sent = load.sent.saturating_sub(last);
        if was_sent > 0 {
            self.moved_at = now_millis;
        }
        self.behind_since = (load.behind > was_sent).then(|| self.behind_since.unwrap_or(now_millis));
        self.sent.push_back((now_millis, load.sent));
        while self.sent.front().is_some_and(|&(at, _)| now_millis.saturating_sub(at) > MEMORY_MILLIS) {
            self.sent.pop_front();
        }
        (self.behind, self.share) = (load.behind, load.share);
        self.takes = self.best_rate();
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
        self.nodes.retain(|node, _| loads.iter().any(|load| load.node == *node));
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

    /// Writers, and a node that takes less than they offer; a second at a time.
    #[derive(Default)]
    struct World {
        followers: Followers,
        seconds: u64,
        sent: f64,
        behind: f64,
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
                let load =
                    FollowerLoad { node: NODE, sent: self.sent as u64, behind: self.behind as u64, share };
                self.followers.observe(self.now(), &[load]);
            }
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
            let load = FollowerLoad { node: NODE, sent: world.sent as u64, behind: stuck as u64, share: 1.0 };
            world.followers.observe(world.now(), &[load]);
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
        world.followers.observe(world.now(), &[]);
        assert!(world.allowed(50.0 * MB) >= 50.0 * MB, "it is gone");
    }
}
