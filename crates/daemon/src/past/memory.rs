//! What all that shows a node may take in memory: the sum of what each part declares.

use admin::Source;
use base::{BucketUuid, recent_log};
use cluster::{BucketParams, Command, Metadata, NodeInfo, Objective, ObjectiveChange, Operation, Ports};
use dataplane::{meter, slow};
use watch::{Ring, alerts, probe, sdk};

use super::{history, latency_past};

const MIB: usize = 1 << 20;

/// The aim.
const BYTES_MAX: usize = 64 * MIB;
/// Data-plane threads and buckets of the node that it is held for. Each thread has histograms of each bucket.
const THREADS: usize = 8;
const BUCKETS: usize = 8;

/// As many objectives as a cluster takes.
fn objectives_max() -> usize {
    let node = NodeInfo::first("1".repeat(32), "127.0.0.1".into(), Ports::default());
    let mut state = Metadata::new("c".into(), 4096);
    state = state.apply(&Command::SetNode(node)).unwrap().0;
    let mut count = 0;
    for number in 0..BUCKETS {
        let (bucket, params) =
            (number.to_string(), BucketParams { ram_quota_mb: Some(100), ..BucketParams::default() });
        let create =
            Command::CreateBucket { name: bucket.clone(), uuid: BucketUuid(format!("{number:032}")), params };
        state = state.apply(&create).unwrap().0;
        for name in 0..1_000 {
            let (operation, target_ppm) = (Operation::Get, 900_000);
            let objective = Objective { operation, latency_us: 2_000, target_ppm, period_days: 28 };
            let change = ObjectiveChange {
                bucket: bucket.clone(),
                name: name.to_string(),
                objective: Some(objective),
            };
            let Ok((more, ..)) = state.apply(&Command::ChangeObjective(change)) else { break };
            (state, count) = (more, count + 1);
        }
    }
    count
}

#[test]
fn all_that_shows_a_node_takes_less_than_64_mib() {
    let parts = [
        ("past of statistics", history::BYTES_MAX),
        ("past of latencies", latency_past::BYTES_MAX),
        ("last lines of the log", recent_log::BYTES_MAX),
        ("objectives", objectives_max() * Source::ALL.len() * Ring::BYTES),
        ("probes", probe::TARGETS_MAX * probe::TARGET_BYTES),
        ("what clients tell", sdk::TOLD_BYTES),
        ("slow operations", slow::KEPT * slow::KEPT_BYTES),
        ("alerts", alerts::ALERTS_MAX * alerts::ALERT_BYTES),
        ("histograms and hot documents", THREADS * BUCKETS * meter::WORKER_BYTES),
        ("their last readings", BUCKETS * meter::READING_BYTES),
    ];
    for (part, bytes) in parts {
        println!("{part}: {:.2} MiB", bytes as f64 / MIB as f64);
    }
    let sum: usize = parts.iter().map(|(_, bytes)| bytes).sum();
    assert!(sum < BYTES_MAX, "{:.2} MiB: {parts:?}", sum as f64 / MIB as f64);
}
