//! A bucket's disk: queues, files, and what streams keep from being freed.

use stats::{Metric, Unit};
use storage::StoreStats;

use stats::{Row, counter, gauge};

use super::facts::BucketFacts;

type F = BucketFacts;

pub(super) const QUEUE_SIZE_HELP: &str = "Mutations that wait for the disk, by the role of their vBucket.";
pub(super) const QUEUE_BYTES_HELP: &str =
    "Key and value bytes of mutations that wait for the disk, by the role of their vBucket.";
pub(super) const QUEUE_FILL_HELP: &str =
    "Mutations that were queued for the disk, by the role of their vBucket.";
pub(super) const QUEUE_DRAIN_HELP: &str = "Queued mutations that were synced, by the role of their vBucket.";

pub(crate) static DISK: &[Row<F>] = &[
    gauge(&["ep_queue_size"], Unit::Count, "Mutations that wait to be written.", |f: &F| {
        f.stats.queue_size.into()
    })
    .metrics(&[Metric::new("kv_ep_queue_size")]),
    gauge(&["ep_flusher_todo"], Unit::Count, "Mutations written that wait for their sync.", |f: &F| {
        f.stats.unsynced_items.into()
    })
    .metrics(&[Metric::new("kv_ep_flusher_todo")]),
    gauge(&["ep_diskqueue_items"], Unit::Count, "Mutations that are not synced yet.", |f: &F| {
        f.stats.diskqueue_items.into()
    })
    .rest(&["ep_diskqueue_items", "disk_write_queue"])
    .metrics(&[Metric::new("kv_ep_diskqueue_items")]),
    gauge(
        &["ep_diskqueue_memory", "ep_diskqueue_pending"],
        Unit::Bytes,
        "Key and value bytes of mutations that are not synced yet.",
        |f: &F| f.stats.diskqueue_bytes.into(),
    )
    .metrics(&[Metric::new("kv_ep_diskqueue_memory_bytes")]),
    counter(
        &["ep_diskqueue_fill", "ep_total_enqueued"],
        Unit::Count,
        "Mutations that were queued for the disk.",
        |f: &F| f.stats.diskqueue_fill.into(),
    )
    .metrics(&[Metric::new("kv_ep_total_enqueued"), Metric::new("kv_ep_diskqueue_fill")]),
    counter(&["ep_diskqueue_drain"], Unit::Count, "Queued mutations that were synced.", |f: &F| {
        f.stats.diskqueue_drain.into()
    })
    .metrics(&[Metric::new("kv_ep_diskqueue_drain")]),
    gauge(
        &["vb_active_queue_size"],
        Unit::Count,
        "Mutations of active vBuckets that wait for the disk.",
        |f: &F| f.stats.active.queue_items.into(),
    )
    .metrics(&[Metric::one_of("kv_vb_queue_size", QUEUE_SIZE_HELP, &[("state", "active")])])
    .rest(&["vb_active_queue_size", "vb_active_queue_items"]),
    gauge(&[], Unit::Bytes, "Key and value bytes of those of active vBuckets.", |f: &F| {
        f.stats.active.queue_bytes.into()
    })
    .metrics(&[Metric::one_of("kv_vb_queue_memory_bytes", QUEUE_BYTES_HELP, &[("state", "active")])]),
    counter(&["ep_total_persisted"], Unit::Count, "Mutations that were written.", |f: &F| {
        f.stats.total_persisted.into()
    })
    .metrics(&[Metric::new("kv_ep_total_persisted")]),
    counter(&["ep_item_commit_failed"], Unit::Count, "Commits to disk that failed.", |f: &F| {
        f.stats.commit_failures.into()
    })
    .metrics(&[Metric::new("kv_ep_item_commit_failed"), Metric::new("kv_ep_data_write_failed")])
    .rest(&["ep_item_commit_failed", "ep_data_write_failed"]),
    counter(&["ep_flusher_syncs"], Unit::Count, "Syncs of the flusher.", |f: &F| {
        stores(f, |store| store.syncs).into()
    }),
    gauge(&["ep_bg_remaining_items"], Unit::Count, "Keys that wait to be read from disk.", |f: &F| {
        f.stats.bg_queue.into()
    })
    .metrics(&[Metric::new("kv_ep_bg_remaining_items")]),
    gauge(&["ep_db_file_size"], Unit::Bytes, "Bytes of files.", |f: &F| f.stats.disk_bytes.into())
        .rest(&[
            "ep_db_file_size",
            "couch_docs_actual_disk_size",
            "couch_docs_disk_size",
            "couch_total_disk_size",
        ])
        .metrics(&[
            Metric::new("couch_docs_actual_disk_size"),
            Metric::new("couch_docs_disk_size"),
            Metric::new("kv_ep_db_file_size_bytes"),
        ]),
    gauge(&["ep_db_data_size"], Unit::Bytes, "Bytes of files that are current.", |f: &F| {
        f.stats.disk_live_bytes.into()
    })
    .rest(&["ep_db_data_size", "couch_docs_data_size"])
    .metrics(&[Metric::new("couch_docs_data_size"), Metric::new("kv_ep_db_data_size_bytes")]),
    counter(
        &["vb_active_queue_fill"],
        Unit::Count,
        "Mutations of active vBuckets that were queued.",
        |f: &F| f.stats.active.queue_filled.into(),
    )
    .metrics(&[Metric::one_of("kv_vb_queue_fill", QUEUE_FILL_HELP, &[("state", "active")])]),
    counter(
        &["vb_active_queue_drain"],
        Unit::Count,
        "Queued mutations of active vBuckets that were synced.",
        |f: &F| f.stats.active.queue_drained.into(),
    )
    .metrics(&[Metric::one_of("kv_vb_queue_drain", QUEUE_DRAIN_HELP, &[("state", "active")])]),
    counter(&["ep_data_read_failed"], Unit::Count, "Reads from disk that found damage.", |f: &F| {
        f.stats.bg_errors.into()
    })
    .metrics(&[Metric::new("kv_ep_data_read_failed")]),
    counter(&["disk_commit_count"], Unit::Count, "Flushes that wrote or synced.", |f: &F| {
        f.flushes.count.into()
    })
    .not_in_stat(),
    counter(&["disk_commit_total"], Unit::Microseconds, "Time that flushes took.", |f: &F| {
        f.flushes.micros.into()
    })
    .not_in_stat(),
];

/// What streams and scans keep from being freed; zero when there are none.
pub(crate) static HELD: &[Row<F>] = &[
    gauge(&["settee_cursors"], Unit::Count, "Change feeds that read checkpoints.", |f: &F| {
        f.stats.cursors.into()
    }),
    gauge(&["settee_backfills"], Unit::Count, "Change feeds and scans that read the disk.", |f: &F| {
        stores(f, |store| store.backfills).into()
    }),
    gauge(&["settee_pins"], Unit::Count, "Readers for which removed segments are kept.", |f: &F| {
        stores(f, |store| store.pins).into()
    }),
    gauge(
        &["settee_pinned_bytes"],
        Unit::Bytes,
        "Bytes of removed segments that are kept for readers.",
        |f: &F| stores(f, |store| store.bytes_pinned).into(),
    ),
];

fn stores(facts: &BucketFacts, of: fn(&StoreStats) -> u64) -> u64 {
    facts.stats.stores.iter().map(of).sum()
}
