//! A look at the past of this node's statistics: what of the last minute is worth an alert. [`super::fillings`] looks further back.

use watch::{
    alerts::{self, Holds},
    trend::{LOOKS, LOOKS_NEAR, grows},
};

use crate::past::history::History;

/// Queues that are shorter grow and shrink all the time.
const QUEUE_MIN: f64 = 10_000.0;
/// The part of a quota that may wait for the disk before it matters, however few mutations that is. Writers are slowed down at four times
/// as much.
const QUEUE_SHARE: f64 = 0.05;
/// How far copies may be behind before it matters, in seconds. Writers are slowed down at twice as much.
const LAG_SECS: f64 = 5.0;
/// Of fewer reads a second the share that waits for the disk says nothing.
const READS_MIN: f64 = 100.0;
/// Share of reads that may wait for the disk.
const FETCHED_SHARE: f64 = 0.1;

/// See the module.
pub(crate) struct Look<'a> {
    pub(crate) past: &'a History,
    /// The node's name.
    pub(crate) node: &'a str,
    pub(crate) now_secs: u64,
}

impl Look<'_> {
    /// What the last half minute of a bucket's statistics says.
    pub(crate) fn trends(&self, name: &str, quota_bytes: u64) -> Vec<Holds> {
        let all = [self.queue(name, quota_bytes), self.replica_lag(name), self.working_set(name)];
        all.into_iter().flatten().collect()
    }

    fn last(&self, name: &str, stat: &str) -> Vec<f64> {
        self.past.last_minute(name, stat)
    }

    /// The disk queue. A small bucket with large documents has no room for many.
    fn queue(&self, name: &str, quota_bytes: u64) -> Option<Holds> {
        let (items, bytes) = (self.last(name, "ep_diskqueue_items"), self.last(name, "ep_diskqueue_memory"));
        let is_so =
            grows(&items, LOOKS, QUEUE_MIN) || grows(&bytes, LOOKS_NEAR, quota_bytes as f64 * QUEUE_SHARE);
        is_so.then(|| {
            let (items, node) = (newest(&items), self.node);
            let text = format!(
                "The disk queue of bucket \"{name}\" on node {node} grows: {items:.0} mutations wait."
            );
            Holds::new(&alerts::QUEUE_GROWS, name, text)
        })
    }

    fn replica_lag(&self, name: &str) -> Option<Holds> {
        let items = self.last(name, "ep_dcp_replica_items_remaining");
        let seconds = self.last(name, "settee_followers_behind_seconds");
        let is_so = grows(&items, LOOKS, QUEUE_MIN)
            || (newest(&seconds) >= LAG_SECS && grows(&items, LOOKS_NEAR, 1.0));
        is_so.then(|| {
            let (items, node) = (newest(&items), self.node);
            let text = format!(
                "Replicas of bucket \"{name}\" fall behind node {node}: {items:.0} changes are to be sent."
            );
            Holds::new(&alerts::REPLICA_LAG, name, text)
        })
    }

    fn working_set(&self, name: &str) -> Option<Holds> {
        let (reads, fetched) = (mean(&self.last(name, "cmd_get")), mean(&self.last(name, "ep_bg_fetched")));
        (reads >= READS_MIN && fetched > reads * FETCHED_SHARE).then(|| {
            let (percent, node) = (fetched * 100.0 / reads, self.node);
            let text =
                format!("Of the reads of bucket \"{name}\" on node {node} {percent:.0} % wait for the disk.");
            Holds::new(&alerts::WORKING_SET, name, text)
        })
    }
}

fn newest(figures: &[f64]) -> f64 {
    figures.last().copied().unwrap_or_default()
}

/// Of the newest half minute; nothing of less.
fn mean(figures: &[f64]) -> f64 {
    let newest = figures.len().checked_sub(LOOKS).and_then(|from| figures.get(from..));
    newest.map_or(0.0, |newest| newest.iter().sum::<f64>() / LOOKS as f64)
}

#[cfg(test)]
pub(super) mod tests {
    use dataplane::statistics::{BucketFacts, DcpFacts, NodeFacts, of_bucket};
    use stats::{Kind, Reading, SystemStats};
    use watch::alerts::{Board, Change};

    use super::*;
    use crate::{
        past::history::{Moment, Said},
        statistics,
    };

    #[test]
    fn the_guide_says_from_what_on_a_trend_matters() {
        let thousands = format!("{},000", QUEUE_MIN / 1_000.0);
        let shares = format!("{} % of the quota", QUEUE_SHARE * 100.0);
        for (about, said) in [
            (&alerts::WORKING_SET, format!("{READS_MIN} reads/s")),
            (&alerts::QUEUE_GROWS, format!("{thousands} mutations")),
            (&alerts::QUEUE_GROWS, shares),
            (&alerts::REPLICA_LAG, format!("{thousands} changes")),
            (&alerts::REPLICA_LAG, format!("{LAG_SECS} s behind")),
        ] {
            assert!(about.cause.contains(&said), "{}: {said}", about.name);
        }
    }

    pub(in crate::watching) const BUCKET: &str = "b";
    pub(in crate::watching) const BEGIN: u64 = 1_700_000_000;
    pub(in crate::watching) const MIB: f64 = 1_048_576.0;

    /// A node's past, its board of alerts, and how many seconds have passed. Statistics are those that a node samples.
    #[derive(Default)]
    pub(in crate::watching) struct Watched {
        pub(in crate::watching) past: History,
        board: Board,
        pub(in crate::watching) secs: u64,
        counted: std::collections::BTreeMap<&'static str, f64>,
    }

    impl Watched {
        /// A second in which these figures were so; counters have grown by so much. Others are zero.
        pub(in crate::watching) fn sample(&mut self, figures: &[(&'static str, f64)]) {
            let mut readings = statistics::of_node(&NodeFacts::default(), &SystemStats::default());
            readings.extend(of_bucket(&BucketFacts::default(), &DcpFacts::default()));
            for &(name, figure) in figures {
                let is_it = |reading: &&mut Reading| reading.about.rest.first() == Some(&name);
                let reading = readings.iter_mut().find(is_it).expect(name);
                let sum = self.counted.entry(name).or_default();
                *sum = if reading.about.kind == Kind::Counter { *sum + figure } else { figure };
                *reading = Reading::of(reading.about, (*sum as u64).into());
            }
            self.secs += 1;
            let at = Moment { unix_secs: BEGIN + self.secs, steady_secs: self.secs as f64 };
            self.past.add(at, vec![Said { bucket: BUCKET.into(), uuid: BUCKET.repeat(32), readings }]);
        }

        pub(in crate::watching) fn look(&self) -> Look<'_> {
            Look { past: &self.past, node: "n", now_secs: BEGIN + self.secs }
        }

        /// What fires or is over by these conditions.
        pub(in crate::watching) fn board(&mut self, holding: Vec<Holds>) -> Vec<(&'static str, bool)> {
            let changes = self.board.look(BEGIN + self.secs, holding);
            let told = changes.into_iter().map(|change| match change {
                Change::Fired(firing) => (firing.about.name, true),
                Change::Cleared(firing) => (firing.about.name, false),
            });
            told.collect()
        }
    }

    /// What fires (true) or is over (false), and after how many seconds.
    type Told = Vec<(u64, &'static str, bool)>;

    fn told(seconds: u64, quota: f64, figures: impl Fn(u64) -> Vec<(&'static str, f64)>) -> Told {
        let (mut watched, mut told) = (Watched::default(), Vec::new());
        for second in 0..seconds {
            watched.sample(&figures(second));
            let holding = watched.look().trends(BUCKET, quota as u64);
            told.extend(watched.board(holding).into_iter().map(|(name, fires)| (second, name, fires)));
        }
        told
    }

    #[test]
    fn a_queue_that_grows_for_half_a_minute_fires_and_one_that_shrinks_is_over() {
        let queue = |second: u64| vec![("ep_diskqueue_items", 500.0 * second.min(160 - second) as f64)];
        let told = told(160, 1e12, queue);
        let [(fired, "disk_queue_grows", true), (over, "disk_queue_grows", false)] = told[..] else {
            panic!("{told:?}")
        };
        assert!((34..=36).contains(&fired) && (110..=130).contains(&over), "{told:?}");
        // Below 10,000 it comes and goes.
        let short = |second: u64| vec![("ep_diskqueue_items", 100.0 * second as f64)];
        assert_eq!(super::tests::told(90, 1e12, short), []);
    }

    #[test]
    fn a_queue_of_few_large_documents_fires_before_writers_are_slowed_down() {
        // A quota of 32 MiB. Writers are slowed down once a fifth of it waits, which is after 40 s.
        let quota = 32.0 * MIB;
        let bytes = |second: u64| quota * 0.2 * second as f64 / 40.0;
        let queue = |second| {
            vec![("ep_diskqueue_items", bytes(second) / 2_500.0), ("ep_diskqueue_memory", bytes(second))]
        };
        let told = told(40, quota, queue);
        assert!(matches!(told[..], [(..=20, "disk_queue_grows", true)]), "{told:?}");
    }

    #[test]
    fn copies_that_fall_behind_fire_and_are_over_once_they_catch_up() {
        let many =
            |second: u64| vec![("ep_dcp_replica_items_remaining", 500.0 * second.min(160 - second) as f64)];
        let told = told(160, 1e12, many);
        let [(34..=36, "replica_lag_grows", true), (110..=130, "replica_lag_grows", false)] = told[..] else {
            panic!("{told:?}")
        };
        // Few documents, and a node that takes them slowly. Writers are slowed down once it needs ten seconds.
        let slow = |second: u64| {
            vec![
                ("ep_dcp_replica_items_remaining", 50.0 * second as f64),
                ("settee_followers_behind_seconds", second as f64 / 3.0),
            ]
        };
        let told = super::tests::told(30, 1e12, slow);
        assert!(matches!(told[..], [(..=25, "replica_lag_grows", true)]), "{told:?}");
        let burst = |second: u64| vec![("ep_dcp_replica_items_remaining", 50.0 * second as f64)];
        assert_eq!(super::tests::told(60, 1e12, burst), [], "they are followed at once");
    }

    #[test]
    fn reads_that_wait_for_the_disk_fire_and_are_over_once_they_do_not() {
        let reads = |second: u64| {
            vec![("cmd_get", 1_000.0), ("ep_bg_fetched", if second < 60 { 150.0 } else { 50.0 })]
        };
        let told = told(200, 1e12, reads);
        let [(fired, "working_set_does_not_fit", true), (over, "working_set_does_not_fit", false)] = told[..]
        else {
            panic!("{told:?}")
        };
        assert!((34..=37).contains(&fired) && (130..=150).contains(&over), "{told:?}");
        let few = |_| vec![("cmd_get", 50.0), ("ep_bg_fetched", 50.0)];
        assert_eq!(super::tests::told(90, 1e12, few), [], "chance");
    }
}
