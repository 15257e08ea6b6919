//! The histograms of the operations that objectives are about.

use cluster::{Objective, Operation};
use dataplane::{
    BucketMeter,
    meter::{LatencyStep, OpKind},
    phases::Phase,
};
use watch::Counts;

const GETS: &[OpKind] = &[OpKind::Get, OpKind::GetAndTouch, OpKind::SubdocLookup];
const SETS: &[OpKind] = &[
    OpKind::Set,
    OpKind::Add,
    OpKind::Replace,
    OpKind::Delete,
    OpKind::Increment,
    OpKind::Decrement,
    OpKind::Append,
    OpKind::Prepend,
    OpKind::Touch,
    OpKind::SubdocMutation,
];

/// The histogram of the operations that an objective is about.
pub(super) fn steps(meter: &BucketMeter, objective: &Objective) -> Vec<LatencyStep> {
    match objective.operation {
        Operation::Get => meter.latencies_of(GETS),
        Operation::Set => meter.latencies_of(SETS),
        Operation::Durable => meter.phase(Phase::Durability).steps,
    }
}

/// How many operations were within so many microseconds, and how many there were.
pub(super) fn split(steps: &[LatencyStep], latency_us: u32) -> Counts {
    let is_good = |step: &&LatencyStep| step.to_micros <= u64::from(latency_us) + 1;
    let sum = |count: u64, step: &LatencyStep| count + step.count;
    Counts { good: steps.iter().filter(is_good).fold(0, sum), total: steps.iter().fold(0, sum) }
}
