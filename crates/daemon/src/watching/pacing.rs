//! Which buckets miss an objective on this node just now, so that copies and indexes give way to their clients ([`watch::pacing`]).
//!
//! What the server itself counts is judged. What probes and clients see comes too seldom, and says too little of a single node.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::{Duration, Instant},
};

use base::BucketUuid;
use cluster::{LatencyReport, Metadata, Objective};
use dataplane::meter::LatencyStep;
use watch::{
    Counts,
    pacing::{Pace, RECENT, bad_share_max},
};

use super::histograms::split;

/// The share of the slowest operations whose latency is told, unless fewer already miss the objective.
const TOLD_SHARE: f64 = 0.01;

/// Every objective of this node's buckets.
#[derive(Debug)]
pub(crate) struct Pacing {
    began: Instant,
    known: BTreeMap<(String, String), Paced>,
}

/// One objective of a bucket.
#[derive(Debug)]
struct Paced {
    uuid: BucketUuid,
    objective: Objective,
    pace: Pace,
    /// Histograms as they were at the looks of late, the oldest first.
    seen: VecDeque<(Duration, Vec<LatencyStep>)>,
    /// What was told when the objective was missed last.
    missed: LatencyReport,
}

impl Default for Pacing {
    fn default() -> Self {
        Self { began: Instant::now(), known: BTreeMap::new() }
    }
}

impl Pacing {
    /// Looks at the histograms of all objectives: the buckets that work gives way to, with how slow they are.
    pub(crate) fn look(
        &mut self,
        metadata: &Metadata,
        steps: impl Fn(&str, &Objective) -> Option<Vec<LatencyStep>>,
    ) -> HashMap<BucketUuid, LatencyReport> {
        self.look_at(self.began.elapsed(), metadata, steps)
    }

    fn look_at(
        &mut self,
        now: Duration,
        metadata: &Metadata,
        steps: impl Fn(&str, &Objective) -> Option<Vec<LatencyStep>>,
    ) -> HashMap<BucketUuid, LatencyReport> {
        let mut old = std::mem::take(&mut self.known);
        let mut told = HashMap::new();
        for (bucket, info) in &metadata.buckets {
            for (name, objective) in &info.objectives {
                let Some(steps) = steps(bucket, objective) else { continue };
                let key = (bucket.clone(), name.clone());
                let kept = old.remove(&key);
                let kept = kept.filter(|kept| kept.uuid == info.uuid && kept.objective == *objective);
                let mut paced = kept.unwrap_or_else(|| Paced::new(info.uuid.clone(), *objective));
                paced.look(now, steps);
                if paced.pace.gives_way() {
                    told.entry(info.uuid.clone()).or_insert(paced.missed);
                }
                self.known.insert(key, paced);
            }
        }
        told
    }
}

impl Paced {
    fn new(uuid: BucketUuid, objective: Objective) -> Self {
        let missed = LatencyReport { objective_us: objective.latency_us, p99_us: 0 };
        Self { uuid, objective, pace: Pace::default(), seen: VecDeque::new(), missed }
    }

    fn look(&mut self, now: Duration, steps: Vec<LatencyStep>) {
        while self.seen.front().is_some_and(|(at, _)| now.saturating_sub(*at) > RECENT) {
            self.seen.pop_front();
        }
        // What was there before the first look is not of late.
        let recent = self.seen.front().map(|(_, before)| since(before, &steps)).unwrap_or_default();
        let counts: Counts = split(&recent, self.objective.latency_us);
        if self.pace.look(now, self.objective.target_ppm, counts) {
            let share = bad_share_max(self.objective.target_ppm).min(TOLD_SHARE);
            let slowest = latency_of_slowest(&recent, share);
            // A step that the objective's latency is in the middle of counts as slow.
            let p99_us = slowest.max(self.objective.latency_us.saturating_add(1));
            self.missed = LatencyReport { p99_us, ..self.missed };
        }
        self.seen.push_back((now, steps));
    }
}

/// What was counted since `before`.
fn since(before: &[LatencyStep], now: &[LatencyStep]) -> Vec<LatencyStep> {
    let counted = |step: &LatencyStep| {
        let earlier = before.binary_search_by_key(&step.from_micros, |earlier| earlier.from_micros);
        let earlier = earlier.ok().and_then(|at| before.get(at)).map_or(0, |earlier| earlier.count);
        LatencyStep { count: step.count.saturating_sub(earlier), ..*step }
    };
    now.iter().map(counted).filter(|step| step.count > 0).collect()
}

/// Microseconds that more than this share took at least.
fn latency_of_slowest(steps: &[LatencyStep], share: f64) -> u32 {
    let all: u64 = steps.iter().map(|step| step.count).sum();
    // A share of a count is not negative.
    let slower = (all as f64 * share) as u64;
    let mut seen = 0;
    let reached = |step: &&LatencyStep| {
        seen += step.count;
        seen > slower
    };
    let step = steps.iter().rev().find(reached);
    step.map_or(0, |step| u32::try_from(step.from_micros).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use cluster::{BucketParams, Command, NodeInfo, ObjectiveChange, Operation, Ports};
    use dataplane::{
        BucketMeter,
        meter::{LatencyStep, OpKind},
    };

    use super::*;

    /// A bucket with an objective of 2 ms for so many gets of a million.
    fn metadata(target_ppm: u32) -> Metadata {
        let node = NodeInfo::first("1".repeat(32), "127.0.0.1".into(), Ports::default());
        let params = BucketParams { ram_quota_mb: Some(100), ..BucketParams::default() };
        let objective =
            Objective { operation: Operation::Get, latency_us: 2_000, target_ppm, period_days: 28 };
        let commands = [
            Command::SetNode(node),
            Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params },
            Command::ChangeObjective(ObjectiveChange {
                bucket: "b".into(),
                name: "gets".into(),
                objective: Some(objective),
            }),
        ];
        commands.iter().fold(Metadata::new("c".into(), 1024), |state, one| state.apply(one).unwrap().0)
    }

    /// Looks once a second, with a meter.
    struct Watched {
        pacing: Pacing,
        meter: BucketMeter,
        now: Duration,
    }

    impl Watched {
        fn new() -> Self {
            Self { pacing: Pacing::default(), meter: BucketMeter::new(1), now: Duration::ZERO }
        }

        /// After a second in which so many gets took so many microseconds: the 99th percentile, where the objective is missed.
        fn second(&mut self, metadata: &Metadata, gets: &[(u64, u64)]) -> Option<u32> {
            gets.iter().for_each(|(count, micros)| self.meter.record(0, OpKind::Get, *count, *micros));
            self.now += Duration::from_secs(1);
            let steps = |_: &str, _: &Objective| -> Option<Vec<LatencyStep>> {
                Some(self.meter.latencies(OpKind::Get))
            };
            let told = self.pacing.look_at(self.now, metadata, steps);
            let report = told.get(&BucketUuid("u".into()))?;
            assert_eq!(report.objective_us, 2_000);
            Some(report.p99_us)
        }
    }

    #[test]
    fn a_bucket_gives_way_within_a_second_and_until_it_is_well_again() {
        let (metadata, mut watched) = (metadata(999_000), Watched::new());
        assert_eq!(watched.second(&metadata, &[(9_000, 5_000)]), None, "before the first look");
        assert_eq!(watched.second(&metadata, &[(1_000, 100)]), None);
        assert_eq!(watched.second(&metadata, &[(1_000, 100), (100, 5_000)]), Some(4_608));
        let well = (1..100).take_while(|_| watched.second(&metadata, &[(1_000, 100)]) == Some(4_608));
        let well = well.count();
        assert!((30..=45).contains(&well), "{well} s");
    }

    #[test]
    fn what_is_told_is_above_the_objective() {
        let missed = |target_ppm, gets: &[(u64, u64)]| {
            let (metadata, mut watched) = (metadata(target_ppm), Watched::new());
            watched.second(&metadata, &[(1, 1)]);
            watched.second(&metadata, gets)
        };
        assert_eq!(missed(999_000, &[(1_000, 100), (50, 2_020)]), Some(2_001), "in the step of the latency");
        // Of a stricter target fewer than a hundredth may be slow: the 99th percentile would be well.
        assert_eq!(missed(999_990, &[(10_000, 100), (10, 9_000)]), Some(8_192));
        assert_eq!(missed(999_000, &[(10_000, 100), (10, 9_000)]), None);
    }

    #[test]
    fn an_objective_that_goes_or_changes_paces_nothing() {
        let (strict, mut watched) = (metadata(999_000), Watched::new());
        let slow = [(1_000, 5_000)];
        watched.second(&strict, &slow);
        assert!(watched.second(&strict, &slow).is_some());
        assert_eq!(watched.second(&metadata(500_000), &[]), None, "another target begins anew");
        watched.second(&strict, &slow);
        assert!(watched.second(&strict, &slow).is_some());
        let mut flushed = strict.clone();
        flushed.buckets.get_mut("b").unwrap().uuid = BucketUuid("v".into());
        assert_eq!(watched.second(&flushed, &[]), None);
        watched.pacing.look_at(watched.now, &Metadata::new("c".into(), 1024), |_, _| None);
        assert!(watched.pacing.known.is_empty());
    }
}
