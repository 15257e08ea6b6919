//! The figures of a report that are gathered from every vBucket, and so only now and then.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use base::{BucketUuid, VbId, VbRole, bucket::BucketKind};
use cluster::{LatencyReport, Metadata, NodeReport, Pressure, Weight};
use dataplane::{links::Links, shared::DiskLevel};
use engine::{Bucket, VbInfo};

use super::{
    latencies::Latencies,
    outages::{CutOff, Outages},
};
use crate::{buckets::open::OpenBuckets, talk::named};

/// While nothing moves.
const EVERY: Duration = Duration::from_secs(5);
/// While the leader decides by them what to move next.
const EVERY_WHILE_MOVING: Duration = Duration::from_secs(1);

/// From here on pacing is felt, on the way from where it begins to where mutations are refused.
const PRESSED_PERCENT: u8 = 25;

/// What a document counts as where none is in memory.
const UNSEEN_BYTES: u64 = 1024;

/// Figures of one bucket.
#[derive(Clone, Debug, Default)]
struct OfBucket {
    items: u64,
    bytes: u64,
    mem_used: u64,
    pressure: Pressure,
    /// By active vBucket, what copying it would send; while vBuckets move.
    weights: Vec<(VbId, Weight)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    buckets: HashMap<BucketUuid, OfBucket>,
    latencies: HashMap<BucketUuid, LatencyReport>,
    histograms: Latencies,
    outages: Outages,
    gathered: Option<Instant>,
    with_weights: bool,
}

impl Figures {
    /// Gathers them anew if they are old.
    pub(crate) fn refresh(
        &mut self,
        (open, links): (&OpenBuckets, &Links),
        metadata: &Metadata,
        missed_objectives: impl FnOnce() -> HashMap<BucketUuid, LatencyReport>,
    ) {
        let is_moving = metadata.rebalance.is_some();
        let every = if is_moving { EVERY_WHILE_MOVING } else { EVERY };
        let is_fresh = self.gathered.is_some_and(|gathered| gathered.elapsed() < every);
        if is_fresh && self.with_weights == is_moving {
            return;
        }
        let now = Instant::now();
        let figures = open.list().into_iter().map(|(uuid, engine)| (uuid, gather(&engine, is_moving)));
        self.buckets = figures.collect();
        self.latencies = self.histograms.look(open, metadata);
        let is_missed = |latency: &LatencyReport| latency.p99_us > latency.objective_us;
        for (bucket, latency) in missed_objectives() {
            // A report has room for one of them.
            let told = self.latencies.entry(bucket).or_insert(latency);
            *told = if is_missed(told) { *told } else { latency };
        }
        let missed = self.latencies.iter().filter(|(_, latency)| is_missed(latency));
        open.missed().tell(missed.map(|(bucket, _)| bucket.clone()).collect());
        let cut_off = self.buckets.keys().flat_map(|uuid| {
            let name = metadata.bucket_by_uuid(uuid).map_or(uuid.0.as_str(), |(name, _)| name);
            let nodes = links.list().cut_off(uuid).into_iter();
            nodes.map(move |(node, copies)| {
                let cut_off = CutOff { copies, bucket: name.to_owned(), node: named(metadata, node) };
                ((uuid.clone(), node), cut_off)
            })
        });
        let has_actives = |uuid: &BucketUuid, node| {
            let bucket = metadata.bucket_by_uuid(uuid);
            bucket.is_some_and(|(_, info)| info.vbs.iter().any(|plan| plan.active() == Some(node)))
        };
        self.outages.look(now, cut_off.collect(), has_actives);
        (self.gathered, self.with_weights) = (Some(now), is_moving);
    }

    /// Completes a report.
    pub(crate) fn fill_in(&self, report: &mut NodeReport, disk: DiskLevel) {
        (report.disk_total, report.disk_free) = (disk.total, disk.free);
        report.data_used = self.buckets.values().map(|figures| figures.mem_used).sum();
        for bucket in &mut report.buckets {
            if let Some(figures) = self.buckets.get(&bucket.uuid) {
                (bucket.items, bucket.bytes) = (figures.items, figures.bytes);
                bucket.pressure = figures.pressure;
                bucket.weights.clone_from(&figures.weights);
            }
            bucket.latency = self.latencies.get(&bucket.uuid).copied();
            bucket.cut_off = self.outages.of(&bucket.uuid);
        }
    }
}

/// What the bucket's want of memory or disk means to those who write to it.
fn pressure(engine: &Bucket) -> Pressure {
    match (engine.kind(), engine.pressure_percent()) {
        // It drops something instead.
        (BucketKind::Memcached, _) => Pressure::None,
        (_, 100..) => Pressure::Refusing,
        (BucketKind::Couchbase, PRESSED_PERCENT..) => Pressure::Pacing,
        _ => Pressure::None,
    }
}

fn gather(engine: &Bucket, with_weights: bool) -> OfBucket {
    let stats = engine.stats();
    let mut figures = OfBucket {
        items: stats.curr_items,
        bytes: stats.kv_bytes.max(stats.disk_live_bytes),
        mem_used: stats.mem_used,
        pressure: pressure(engine),
        weights: Vec::new(),
    };
    if with_weights {
        let infos = (0..engine.vbuckets()).filter_map(|vb| engine.vb_state(VbId(vb)).ok());
        let active = infos.filter(|info| info.role == VbRole::Active);
        figures.weights = active.map(|info| (info.vb, weight(&info))).collect();
    }
    figures
}

/// What copying a vBucket would send, about: what is on disk only is taken to be like what is in memory.
fn weight(info: &VbInfo) -> Weight {
    let resident = info.items.saturating_sub(info.non_resident);
    let bytes_each = info.item_bytes.checked_div(resident).unwrap_or(UNSEEN_BYTES);
    Weight { bytes: bytes_each * info.items, items: info.items }
}
