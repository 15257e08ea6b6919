//! What statistics are read from, gathered once for all of them.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use engine::BucketStats;
use stats::NodeMemory;

use super::operations::READS;
use crate::{
    figures::{
        meter::{BucketMeter, OpKind, PhaseReport},
        phases::Phase,
    },
    state::{
        dcp_totals::Totals,
        lease,
        shared::{BucketEntry, BucketFigures, Shared},
    },
    statistics::{dcp, node_memory::node_memory},
};

/// Names and figures, as STAT shows them.
pub(crate) type Pairs = Vec<(String, String)>;

/// The process.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeFacts {
    pub(crate) uptime_secs: u64,
    pub(crate) unix_secs: u64,
    pub(crate) connections: u64,
    pub(crate) connections_total: u64,
    pub(crate) connections_max: u64,
    pub(crate) auth_errors: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) disk_free: u64,
    pub(crate) disk_total: u64,
    pub(crate) disk_free_min: u64,
    pub(crate) disk_low: bool,
    /// Where actives serve only under a lease.
    pub(crate) lease_millis: Option<u64>,
    pub(crate) memory: NodeMemory,
}

impl NodeFacts {
    /// Reads them.
    #[must_use]
    pub fn gather(shared: &Shared) -> Self {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (totals, disk) = (&shared.totals, *shared.disk.lock());
        Self {
            uptime_secs: shared.uptime_secs(),
            unix_secs: u64::from(shared.now().unix_secs()),
            connections: load(&totals.connections),
            connections_total: load(&totals.connections_total),
            connections_max: load(&totals.connections_max),
            auth_errors: load(&totals.auth_errors),
            bytes_read: load(&totals.bytes_read),
            bytes_written: load(&totals.bytes_written),
            disk_free: disk.free,
            disk_total: disk.total,
            disk_free_min: disk.free_min,
            disk_low: disk.low,
            lease_millis: shared.lease.left_millis(lease::clock_millis()),
            memory: node_memory(shared),
        }
    }
}

/// A bucket on this node.
#[derive(Clone, Debug, Default)]
pub struct BucketFacts {
    pub(crate) uuid: String,
    /// What the engine says of it.
    pub stats: BucketStats,
    pub(crate) warm_up_time: Duration,
    /// By kind of operation, in the order of [`OpKind::ALL`].
    operations: Vec<u64>,
    misses: Vec<u64>,
    /// Mutations that named a CAS: those that matched it, and those that found no document.
    pub(crate) cas_hits: u64,
    pub(crate) cas_misses: u64,
    /// Waits of requests for values from disk.
    pub(crate) fetches: Times,
    /// Flushes that wrote or synced.
    pub(crate) flushes: Times,
    /// Its views.
    pub(crate) views: BucketFigures,
}

/// How often something happened, and how long it took in all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) micros: u64,
}

impl From<PhaseReport> for Times {
    fn from(report: PhaseReport) -> Self {
        Self { count: report.steps.iter().map(|step| step.count).sum(), micros: report.micros }
    }
}

impl BucketFacts {
    /// Takes every vBucket's lock, one after the other.
    #[must_use]
    pub fn gather(shared: &Shared, bucket: &BucketEntry) -> Self {
        let facts = Self::of(&bucket.uuid.0, bucket.engine.stats(), &bucket.meter);
        Self { views: shared.of_services(&bucket.uuid), ..facts }
    }

    fn of(uuid: &str, stats: BucketStats, meter: &BucketMeter) -> Self {
        let (cas_hits, cas_misses) = meter.compared_all();
        Self {
            uuid: uuid.into(),
            stats,
            cas_hits,
            cas_misses,
            warm_up_time: meter.warm_up_time(),
            operations: OpKind::ALL.iter().map(|(kind, _)| meter.operations(*kind)).collect(),
            fetches: meter.phase(Phase::Fetch).into(),
            flushes: meter.flushes().into(),
            misses: OpKind::ALL.iter().map(|(kind, _)| meter.misses(*kind)).collect(),
            views: BucketFigures::default(),
        }
    }

    /// Operations of these kinds, together.
    pub(crate) fn operations(&self, kinds: &[OpKind]) -> u64 {
        kinds.iter().filter_map(|kind| self.operations.get(*kind as usize)).sum()
    }

    /// Those of them that found no document.
    pub(crate) fn misses(&self, kinds: &[OpKind]) -> u64 {
        kinds.iter().filter_map(|kind| self.misses.get(*kind as usize)).sum()
    }

    /// Those of them that found one.
    pub(crate) fn hits(&self, kinds: &[OpKind]) -> u64 {
        self.operations(kinds).saturating_sub(self.misses(kinds))
    }

    /// Reads of documents or of parts of them.
    pub fn reads(&self) -> u64 {
        self.operations(READS)
    }

    /// Those of them that found one.
    pub fn reads_that_found(&self) -> u64 {
        self.hits(READS)
    }

    /// Operations of all kinds.
    pub fn all_operations(&self) -> u64 {
        self.operations.iter().sum()
    }
}

/// A bucket's DCP connections, and what only the control plane knows of the bucket.
#[derive(Clone, Copy, Debug, Default)]
pub struct DcpFacts {
    pub(crate) dcp: Totals,
    /// Replicas that shall follow another node's copy now, and do not.
    pub(crate) cut_off: u64,
    /// Client connections to the node.
    pub(crate) connections: u64,
    /// Operations in the last second.
    pub(crate) ops_per_sec: f64,
}

impl DcpFacts {
    /// Reads them.
    #[must_use]
    pub fn gather(shared: &Shared, bucket: &BucketEntry, ops_per_sec: f64) -> Self {
        let cut_off = shared.links().map(|links| links.cut_off(&bucket.uuid));
        Self {
            dcp: dcp::totals(shared, bucket),
            cut_off: cut_off.map_or(0, |by_node| by_node.values().copied().map(u64::from).sum()),
            connections: shared.totals.connections.load(Ordering::Relaxed),
            ops_per_sec,
        }
    }
}
