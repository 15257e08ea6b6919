//! How operations fared of late, for buckets that have an objective: what a rebalance is paced by.
//!
//! Of late is what was answered since the look before. Where too little was, nothing is said.

use std::collections::HashMap;

use base::BucketUuid;
use cluster::{LatencyReport, Metadata};
use dataplane::meter::LatencyStep;

use crate::buckets::open::OpenBuckets;

/// Of fewer answers the slowest hundredth is chance.
const ENOUGH: u64 = 200;

/// The histograms as they were at the last look. See the module.
#[derive(Debug, Default)]
pub(crate) struct Latencies(HashMap<BucketUuid, Vec<LatencyStep>>);

impl Latencies {
    /// Every bucket that has an objective, and of which something can be said.
    pub(crate) fn look(
        &mut self,
        open: &OpenBuckets,
        metadata: &Metadata,
    ) -> HashMap<BucketUuid, LatencyReport> {
        let asked = metadata.buckets.iter().filter_map(|(name, info)| {
            Some((info.uuid.clone(), info.latency_objective_us()?, open.meter(name)?.all_latencies()))
        });
        let (mut told, mut seen) = (HashMap::new(), HashMap::new());
        for (uuid, objective_us, steps) in asked {
            let since = self.0.get(&uuid).and_then(|before| p99_since(before, &steps));
            if let Some(p99_us) = since {
                told.insert(uuid.clone(), LatencyReport { objective_us, p99_us });
            }
            seen.insert(uuid, steps);
        }
        self.0 = seen;
        told
    }
}

/// Microseconds that a hundredth of what has been counted since took at least.
fn p99_since(before: &[LatencyStep], now: &[LatencyStep]) -> Option<u32> {
    let counted = |step: &LatencyStep| {
        let earlier = before.binary_search_by_key(&step.from_micros, |earlier| earlier.from_micros);
        step.count.saturating_sub(earlier.map_or(0, |at| before[at].count))
    };
    let all: u64 = now.iter().map(counted).sum();
    let mut slower = all / 100;
    let reached = |step: &&LatencyStep| {
        let count = counted(step);
        let is_it = count > slower;
        slower = slower.saturating_sub(count);
        is_it
    };
    let p99 = now.iter().rev().find(reached).filter(|_| all >= ENOUGH)?;
    Some(u32::try_from(p99.from_micros).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dataplane::meter::{BucketMeter, OpKind};

    use super::*;

    #[test]
    fn what_counts_is_what_was_answered_since_the_look_before() {
        let meter = BucketMeter::new(1);
        let look = || meter.all_latencies();
        meter.record(0, OpKind::Set, 100_000, 5_000);
        let first = look();
        assert_eq!(p99_since(&first, &first), None);
        meter.record(0, OpKind::Get, ENOUGH - 1, 3);
        assert_eq!(p99_since(&first, &look()), None, "too few");
        meter.record(0, OpKind::Get, 801, 3);
        meter.record(0, OpKind::Set, 10, 5_000);
        assert_eq!(p99_since(&first, &look()), Some(3), "ten of 1,010 are the hundredth that may be slower");
        meter.record(0, OpKind::Set, 1, 4_000);
        let second = look();
        assert_eq!(p99_since(&first, &second), Some(3_840), "eleven are more; steps are an eighth wide");
        meter.record(0, OpKind::Get, 1_000, Duration::from_secs(80).as_micros() as u64);
        let slowest = p99_since(&second, &look()).unwrap();
        assert!(slowest > 60_000_000, "{slowest}");
    }
}
