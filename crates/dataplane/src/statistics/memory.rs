//! A bucket's memory: its size, its holders, and how mutations are paced when it is short.

use engine::{BucketStats, Pool};
use stats::{Across, Metric, Unit};

use stats::{Row, counter, gauge};

use super::facts::BucketFacts;

type F = BucketFacts;

pub(crate) static MEMORY: &[Row<F>] = &[
    gauge(
        &["mem_used", "mem_used_estimate", "bytes"],
        Unit::Bytes,
        "Every byte that the bucket holds.",
        |f: &F| f.stats.mem_used.into(),
    )
    .metrics(&[
        Metric::new("kv_total_memory_used_bytes"),
        Metric::new("kv_mem_used_bytes"),
        Metric::new("kv_mem_used_estimate_bytes"),
    ]),
    gauge(&["ep_kv_size"], Unit::Bytes, "Documents in memory, with their headers.", |f: &F| {
        f.stats.kv_bytes.into()
    })
    .metrics(&[Metric::new("kv_ep_key_value_size_bytes")]),
    gauge(&["ep_value_size"], Unit::Bytes, "Values in memory.", |f: &F| f.stats.value_bytes.into())
        .metrics(&[Metric::new("kv_ep_value_size_bytes")]),
    gauge(
        &["settee_mem_floor"],
        Unit::Bytes,
        "Memory that cannot leave: keys and metadata, and with full eviction the hash tables alone.",
        |f: &F| f.stats.mem_floor.into(),
    ),
    gauge(&["ep_meta_data_memory"], Unit::Bytes, "Keys and headers in memory.", |f: &F| {
        f.stats.kv_bytes.saturating_sub(f.stats.value_bytes).into()
    })
    .metrics(&[Metric::new("kv_ep_meta_data_memory_bytes")]),
    gauge(
        &["ep_overhead"],
        Unit::Bytes,
        "Memory beside documents, tables and indexes, which comes and goes.",
        |f: &F| overhead(&f.stats).into(),
    )
    .metrics(&[Metric::new("kv_total_memory_overhead_bytes")]),
    gauge(&["ep_checkpoint_memory"], Unit::Bytes, "Checkpoints, with the documents they hold.", |f: &F| {
        f.stats.checkpoint_memory.into()
    })
    .metrics(&[Metric::new("kv_ep_checkpoint_memory_bytes")]),
    gauge(&["ep_checkpoint_memory_overhead"], Unit::Bytes, "Checkpoints, without documents.", |f: &F| {
        f.stats.checkpoint_bytes.into()
    })
    .metrics(&[Metric::new("kv_ep_checkpoint_memory_overhead_bytes")]),
    gauge(
        &["ep_checkpoint_memory_cursors"],
        Unit::Bytes,
        "Documents that checkpoints hold only for slow change feeds.",
        |f: &F| f.stats.cursor_bytes.into(),
    ),
    gauge(
        &["ep_checkpoint_memory_cursors_max"],
        Unit::Bytes,
        "What checkpoints may hold only for slow change feeds.",
        |f: &F| f.stats.cursor_bytes_max.into(),
    ),
    gauge(&["ep_range_scan_memory"], Unit::Bytes, "Memory of range scans.", |f: &F| {
        f.stats.scan_bytes.into()
    }),
    counter(
        &["ep_items_rm_from_checkpoints"],
        Unit::Count,
        "Mutations that left checkpoints because every reader has passed them.",
        |f: &F| f.stats.checkpoint_items_removed.into(),
    )
    .metrics(&[Metric::new("kv_ep_items_rm_from_checkpoints")]),
    counter(
        &["ep_cursors_dropped"],
        Unit::Count,
        "Change feeds that were so slow that they went on from disk.",
        |f: &F| f.stats.cursors_dropped.into(),
    )
    .metrics(&[Metric::new("kv_ep_cursors_dropped")]),
    gauge(&["ep_backfill_memory"], Unit::Bytes, "What change feeds have read ahead from disk.", |f: &F| {
        f.stats.backfill_bytes.into()
    }),
    counter(&["ep_backfill_errors"], Unit::Count, "Change feeds that the disk could not serve.", |f: &F| {
        f.stats.backfill_errors.into()
    }),
    gauge(&["ep_total_cache_size"], Unit::Bytes, "Memory taken from the system for documents.", |f: &F| {
        f.stats.arena_committed.into()
    }),
    gauge(&["ep_max_size", "engine_maxbytes"], Unit::Bytes, "The bucket's quota on this node.", |f: &F| {
        f.stats.quota_bytes.into()
    })
    .metrics(&[Metric::new("kv_ep_max_size")]),
    gauge(&["ep_mem_high_wat"], Unit::Bytes, "Memory above which values leave it.", |f: &F| {
        f.stats.mem_high_wat.into()
    })
    .metrics(&[Metric::new("kv_ep_mem_high_wat")]),
    gauge(
        &["ep_mem_high_wat_percent"],
        Unit::Ratio,
        "The high watermark as a share of the quota.",
        |f: &F| share(f.stats.mem_high_wat, &f.stats).into(),
    )
    .across(Across::Mean),
    gauge(&["ep_mem_low_wat"], Unit::Bytes, "Memory down to which values leave it.", |f: &F| {
        f.stats.mem_low_wat.into()
    })
    .metrics(&[Metric::new("kv_ep_mem_low_wat")]),
    gauge(&["ep_mem_low_wat_percent"], Unit::Ratio, "The low watermark as a share of the quota.", |f: &F| {
        share(f.stats.mem_low_wat, &f.stats).into()
    })
    .across(Across::Mean),
    gauge(
        &["ep_mutation_mem_ratio"],
        Unit::Ratio,
        "Share of the quota above which mutations that grow memory are refused.",
        |f: &F| share(f.stats.mem_limit, &f.stats).into(),
    )
    .across(Across::Mean),
    counter(&["ep_oom_errors"], Unit::Count, "Mutations for which no memory could be had.", |f: &F| {
        f.stats.oom_errors.into()
    })
    .metrics(&[Metric::new("kv_ep_oom_errors")]),
    counter(
        &["ep_tmp_oom_errors"],
        Unit::Count,
        "Mutations answered with temporary failure for want of memory.",
        |f: &F| f.stats.tmp_oom_errors.into(),
    )
    .metrics(&[Metric::new("kv_ep_tmp_oom_errors")]),
    counter(
        &["settee_refused_no_space"],
        Unit::Count,
        "Mutations refused for want of disk space.",
        |f: &F| f.stats.disk_refusals.space.into(),
    )
    .metrics(&[Metric::new("settee_refused_no_space_total")]),
    counter(
        &["settee_refused_disk_broken"],
        Unit::Count,
        "Requests refused because the disk no longer takes writes.",
        |f: &F| f.stats.disk_refusals.broken.into(),
    )
    .metrics(&[Metric::new("settee_refused_disk_broken_total")]),
    counter(
        &["settee_refused_cas_ceiling"],
        Unit::Count,
        "Mutations refused until the disk has the next range of CAS values.",
        |f: &F| f.stats.disk_refusals.ceiling.into(),
    )
    .metrics(&[Metric::new("settee_refused_cas_ceiling_total")]),
    gauge(&["ep_num_non_resident"], Unit::Count, "Documents whose values are on disk only.", |f: &F| {
        f.stats.non_resident.into()
    })
    .metrics(&[Metric::new("kv_ep_num_non_resident")]),
    gauge(
        &["settee_num_evicted"],
        Unit::Count,
        "Documents of which memory has not even the key.",
        |f: &F| f.stats.evicted.into(),
    ),
    counter(&["ep_num_value_ejects"], Unit::Count, "Values dropped from memory.", |f: &F| {
        f.stats.ops.ejects.into()
    })
    .metrics(&[Metric::new("kv_ep_num_value_ejects")]),
];

/// What is held beside documents, tables and indexes, and comes and goes.
fn overhead(stats: &BucketStats) -> u64 {
    let lasting = [Pool::Items, Pool::Metadata, Pool::ColdIndex].map(|pool| stats.pools.of(pool));
    stats.mem_used - lasting.iter().sum::<u64>()
}

/// A share of the quota, as a fraction.
fn share(bytes: u64, stats: &BucketStats) -> f64 {
    // Thresholds are whole percents.
    (bytes as f64 * 100.0 / stats.quota_bytes.max(1) as f64).round() / 100.0
}

pub(crate) static PACING: &[Row<F>] = &[
    gauge(&["ep_pressure_step"], Unit::None, "The step of memory pressure, from 0.", |f: &F| {
        u64::from(f.stats.pacing.step as u8).into()
    })
    .metrics(&[Metric::new("settee_pressure_step")])
    .across(Across::Max),
    gauge(&["settee_paced_waiting"], Unit::Count, "Mutations that wait for room.", |f: &F| {
        f.stats.pacing.waiting.into()
    })
    .metrics(&[Metric::new("settee_paced_waiting")]),
    gauge(
        &["settee_paced_waiting_bytes"],
        Unit::Bytes,
        "Bytes of the mutations that wait for room.",
        |f: &F| f.stats.pacing.waiting_bytes.into(),
    ),
    counter(&["settee_paced_total"], Unit::Count, "Mutations that had to wait for room.", |f: &F| {
        f.stats.pacing.paced.into()
    })
    .metrics(&[Metric::new("settee_paced_total")]),
    counter(&["settee_paced_refused"], Unit::Count, "Mutations that waited for room in vain.", |f: &F| {
        f.stats.pacing.refused.into()
    })
    .metrics(&[Metric::new("settee_paced_refused_total")]),
    gauge(&["settee_drain_bytes_per_sec"], Unit::BytesPerSecond, "What the disk takes.", |f: &F| {
        f.stats.pacing.drain_rate.into()
    })
    .metrics(&[Metric::new("settee_drain_bytes_per_second")]),
    gauge(
        &["settee_reclaim_bytes_per_sec"],
        Unit::BytesPerSecond,
        "What compaction gives back when it has to.",
        |f: &F| f.stats.pacing.reclaim_rate.into(),
    )
    .metrics(&[Metric::new("settee_reclaim_bytes_per_second")]),
    gauge(
        &["settee_followers_behind_seconds"],
        Unit::Seconds,
        "Time that the slowest node that follows this one needs to catch up.",
        |f: &F| f.stats.pacing.followers_seconds.into(),
    )
    .metrics(&[Metric::new("settee_followers_behind_seconds")])
    .across(Across::Max),
    gauge(
        &["settee_intake_bytes_per_sec"],
        Unit::BytesPerSecond,
        "What the bucket takes from clients at most; 0 means no bound.",
        |f: &F| f.stats.pacing.intake_rate.into(),
    )
    .metrics(&[Metric::new("settee_intake_bytes_per_second")]),
    counter(
        &["settee_drained_bytes"],
        Unit::Bytes,
        "Bytes of mutations that the disk has taken.",
        |f: &F| f.stats.pacing.drained_bytes.into(),
    ),
];

const POOL_HELP: &str = "Memory of a bucket, by its holder.";

macro_rules! pool {
    ($pool:ident, $name:literal, $help:literal) => {
        gauge(&[concat!("settee_mem_", $name)], Unit::Bytes, $help, |f: &F| {
            f.stats.pools.of(Pool::$pool).into()
        })
        .metrics(&[Metric::one_of("settee_memory_bytes", POOL_HELP, &[("pool", $name)])])
    };
}

/// The holders of `mem_used`, and the holes beside it.
pub(crate) static POOLS: &[Row<F>] = &[
    pool!(Items, "items", "Documents and tombstones in the tables."),
    pool!(Metadata, "metadata", "Hash tables, and the vBuckets themselves."),
    pool!(Checkpoints, "checkpoints", "Queues of mutations, and versions that only a queue holds."),
    pool!(Replication, "replication", "What change feeds have read ahead."),
    pool!(Fetch, "fetch", "Keys to be read from disk, and values just read."),
    pool!(Write, "write", "Batches on their way to disk, and compaction."),
    pool!(ColdIndex, "cold_index", "What finds keys that are not in memory."),
    pool!(RangeScans, "range_scans", "What range scans have read ahead."),
    pool!(Connections, "connections", "Requests that wait."),
    pool!(Reserve, "reserve", "What is set aside to go on with when memory is short."),
    gauge(
        &["settee_arena_holes"],
        Unit::Bytes,
        "Holes in the arenas, which documents will fill.",
        |f: &F| f.stats.arena_committed.saturating_sub(f.stats.arena_used).into(),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pool_has_a_row() {
        let names: Vec<_> = POOLS.iter().flat_map(|row| row.about.stat).copied().collect();
        let expected = Pool::ALL.map(|(_, name)| format!("settee_mem_{name}"));
        assert!(expected.iter().all(|name| names.contains(&name.as_str())), "{names:?}");
    }
}
