//! Documents, by the role of their vBucket, and how far warm-up is.

use engine::WarmupState;
use stats::{Across, Lookup, Metric, Unit};

use stats::{Row, counter, gauge, text};

use super::{
    disk::{QUEUE_BYTES_HELP, QUEUE_DRAIN_HELP, QUEUE_FILL_HELP, QUEUE_SIZE_HELP},
    facts::BucketFacts,
};

type F = BucketFacts;

const VBUCKETS_HELP: &str = "vBuckets, by the role of this node's copy.";
const ITEMS_HELP: &str = "Documents, by the role of their vBucket.";
const NON_RESIDENT_HELP: &str = "Documents whose values are on disk only, by the role of their vBucket.";
const RESIDENT_HELP: &str = "Share of documents whose values are in memory, by the role of their vBucket.";
const ITEM_MEMORY_HELP: &str = "Memory of documents with their headers, by the role of their vBucket.";
const TABLE_HELP: &str = "Memory of hash tables, by the role of their vBucket.";

const CREATED_HELP: &str = "Documents created, by the role of their vBucket.";
const UPDATED_HELP: &str = "Documents changed, by the role of their vBucket.";
const DELETED_HELP: &str = "Documents deleted, by the role of their vBucket.";
const EJECTED_HELP: &str = "Values dropped from memory, by the role of their vBucket.";
const METADATA_HELP: &str = "Memory of keys and headers, by the role of their vBucket.";

/// Of the cluster's documents, not of percentages of nodes.
fn active_resident(of: &Lookup<'_>) -> f64 {
    let items = of("vb_active_curr_items");
    if items > 0.0 { (items - of("vb_active_num_non_resident")) * 100.0 / items } else { 100.0 }
}

fn replica_resident(of: &Lookup<'_>) -> f64 {
    let items = of("vb_replica_curr_items");
    if items > 0.0 { (items - of("vb_replica_num_non_resident")) * 100.0 / items } else { 100.0 }
}

pub(crate) static DOCUMENTS: &[Row<F>] = &[
    text(&["bucket_uuid"], "Tells the bucket from an earlier one of its name.", |f: &F| {
        f.uuid.clone().into()
    }),
    gauge(&["curr_items"], Unit::Count, "Documents of active vBuckets.", |f: &F| f.stats.curr_items.into())
        .metrics(&[Metric::new("kv_curr_items")]),
    gauge(&["curr_items_tot"], Unit::Count, "Documents of active vBuckets and replicas.", |f: &F| {
        (f.stats.active.items + f.stats.replica.items).into()
    })
    .metrics(&[Metric::new("kv_curr_items_tot")]),
    gauge(&["vb_active_curr_items"], Unit::Count, "Documents of active vBuckets.", |f: &F| {
        f.stats.active.items.into()
    })
    .metrics(&[Metric::one_of("kv_vb_curr_items", ITEMS_HELP, &[("state", "active")])]),
    gauge(&["vb_active_num"], Unit::Count, "Active vBuckets.", |f: &F| f.stats.active.vbuckets.into())
        .metrics(&[Metric::one_of("kv_num_vbuckets", VBUCKETS_HELP, &[("state", "active")])]),
    gauge(
        &["vb_active_itm_memory"],
        Unit::Bytes,
        "Memory of documents of active vBuckets, with their headers.",
        |f: &F| f.stats.active.item_bytes.into(),
    )
    .metrics(&[Metric::one_of("kv_vb_itm_memory_bytes", ITEM_MEMORY_HELP, &[("state", "active")])]),
    gauge(&["vb_active_ht_memory"], Unit::Bytes, "Hash tables of active vBuckets.", |f: &F| {
        f.stats.active.table_bytes.into()
    })
    .metrics(&[Metric::one_of("kv_vb_ht_memory_bytes", TABLE_HELP, &[("state", "active")])]),
    gauge(&["vb_replica_num"], Unit::Count, "Replicas of vBuckets.", |f: &F| f.stats.replica.vbuckets.into())
        .metrics(&[Metric::one_of("kv_num_vbuckets", VBUCKETS_HELP, &[("state", "replica")])]),
    gauge(&["vb_replica_curr_items"], Unit::Count, "Documents of replicas.", |f: &F| {
        f.stats.replica.items.into()
    })
    .metrics(&[
        Metric::one_of("kv_vb_curr_items", ITEMS_HELP, &[("state", "replica")]),
        Metric::new("kv_vb_replica_curr_items"),
    ]),
    gauge(
        &["vb_replica_num_non_resident"],
        Unit::Count,
        "Documents of replicas whose values are on disk only.",
        |f: &F| f.stats.replica.non_resident.into(),
    )
    .metrics(&[Metric::one_of("kv_vb_num_non_resident", NON_RESIDENT_HELP, &[("state", "replica")])]),
    gauge(
        &["vb_replica_perc_mem_resident"],
        Unit::Percent,
        "Documents of replicas whose values are in memory.",
        |f: &F| f.stats.replica.resident_percent().into(),
    )
    .metrics(&[
        Metric::one_of("kv_vb_perc_mem_resident_ratio", RESIDENT_HELP, &[("state", "replica")]).scaled(0.01)
    ])
    .rest(&["vb_replica_perc_mem_resident", "vb_replica_resident_items_ratio"])
    .across(Across::Of(replica_resident)),
    gauge(
        &["vb_replica_itm_memory"],
        Unit::Bytes,
        "Memory of documents of replicas, with their headers.",
        |f: &F| f.stats.replica.item_bytes.into(),
    )
    .metrics(&[Metric::one_of("kv_vb_itm_memory_bytes", ITEM_MEMORY_HELP, &[("state", "replica")])]),
    gauge(&["vb_replica_ht_memory"], Unit::Bytes, "Hash tables of replicas.", |f: &F| {
        f.stats.replica.table_bytes.into()
    })
    .metrics(&[Metric::one_of("kv_vb_ht_memory_bytes", TABLE_HELP, &[("state", "replica")])]),
    gauge(
        &["vb_replica_queue_size"],
        Unit::Count,
        "Mutations of replicas that wait for the disk.",
        |f: &F| f.stats.replica.queue_items.into(),
    )
    .metrics(&[Metric::one_of("kv_vb_queue_size", QUEUE_SIZE_HELP, &[("state", "replica")])]),
    gauge(&[], Unit::Bytes, "Key and value bytes of those of replicas.", |f: &F| {
        f.stats.replica.queue_bytes.into()
    })
    .metrics(&[Metric::one_of("kv_vb_queue_memory_bytes", QUEUE_BYTES_HELP, &[("state", "replica")])]),
    gauge(
        &["vb_pending_num"],
        Unit::Count,
        "Pending vBuckets. Always 0: Settee has these as replicas.",
        |_: &F| 0.into(),
    )
    .metrics(&[Metric::one_of("kv_num_vbuckets", VBUCKETS_HELP, &[("state", "pending")])]),
    gauge(&["vb_dead_num"], Unit::Count, "vBuckets that other nodes have.", |f: &F| {
        f.stats.dead.vbuckets.into()
    }),
    gauge(
        &["vb_active_num_non_resident"],
        Unit::Count,
        "Documents of active vBuckets whose values are on disk only.",
        |f: &F| f.stats.active.non_resident.into(),
    )
    .metrics(&[Metric::one_of("kv_vb_num_non_resident", NON_RESIDENT_HELP, &[("state", "active")])]),
    gauge(
        &["vb_active_perc_mem_resident", "vb_active_resident_items_ratio"],
        Unit::Percent,
        "Documents of active vBuckets whose values are in memory.",
        |f: &F| f.stats.resident_percent.into(),
    )
    .metrics(&[
        Metric::one_of("kv_vb_perc_mem_resident_ratio", RESIDENT_HELP, &[("state", "active")]).scaled(0.01)
    ])
    .across(Across::Of(active_resident)),
    counter(&["vb_active_ops_create"], Unit::Count, "Documents created.", |f: &F| {
        f.stats.active.ops.creates.into()
    })
    .metrics(&[Metric::one_of("kv_vb_ops_create", CREATED_HELP, &[("state", "active")])]),
    counter(&["vb_active_ops_update"], Unit::Count, "Documents changed.", |f: &F| {
        f.stats.active.ops.updates.into()
    })
    .metrics(&[Metric::one_of("kv_vb_ops_update", UPDATED_HELP, &[("state", "active")])]),
    counter(&["vb_active_ops_delete"], Unit::Count, "Documents deleted.", |f: &F| {
        f.stats.active.ops.deletes.into()
    })
    .metrics(&[Metric::one_of("kv_vb_ops_delete", DELETED_HELP, &[("state", "active")])]),
    counter(
        &["vb_active_expired", "ep_expired_access"],
        Unit::Count,
        "Documents that have expired.",
        |f: &F| f.stats.active.ops.expired.into(),
    )
    .metrics(&[Metric::new("kv_ep_expired_access")]),
    counter(&["vb_active_eject"], Unit::Count, "Values dropped from memory.", |f: &F| {
        f.stats.active.ops.ejects.into()
    })
    .metrics(&[Metric::one_of("kv_vb_eject", EJECTED_HELP, &[("state", "active")])]),
    counter(
        &["vb_active_auto_delete_count"],
        Unit::Count,
        "Documents that a memory-only bucket dropped to make room.",
        |f: &F| f.stats.ops.auto_deletes.into(),
    )
    .rest(&["vb_active_auto_delete_count", "evictions"]),
    counter(&["ep_bg_fetched"], Unit::Count, "Values read back from disk.", |f: &F| {
        f.stats.ops.bg_fetched.into()
    })
    .metrics(&[Metric::new("kv_ep_bg_fetched")]),
    counter(&["cas_badval"], Unit::Count, "Mutations whose CAS did not match.", |f: &F| {
        f.stats.ops.cas_mismatches.into()
    })
    .metrics(&[Metric::one_of(
        "kv_ops",
        "Operations, by kind and outcome.",
        &[("op", "cas"), ("result", "badval")],
    )]),
    counter(&["lock_errors"], Unit::Count, "Locks and mutations refused because of a lock.", |f: &F| {
        f.stats.ops.lock_errors.into()
    })
    .metrics(&[Metric::new("kv_lock_errors")]),
    gauge(&["ep_degraded_mode"], Unit::None, "1 where a shard of the bucket no longer writes.", |f: &F| {
        u64::from(f.stats.poisoned).into()
    })
    .metrics(&[Metric::new("kv_ep_degraded_mode")])
    .across(Across::Max),
    gauge(&["vb_active_meta_data_memory"], Unit::Bytes, "Keys and headers of active vBuckets.", |f: &F| {
        f.stats.active.item_bytes.saturating_sub(f.stats.active.value_bytes).into()
    })
    .metrics(&[Metric::one_of("kv_vb_meta_data_memory_bytes", METADATA_HELP, &[("state", "active")])]),
    gauge(&["ep_vb_total"], Unit::Count, "Copies of vBuckets on this node.", |f: &F| {
        (f.stats.active.vbuckets + f.stats.replica.vbuckets).into()
    })
    .metrics(&[Metric::new("kv_ep_vb_total")]),
    counter(
        &["ep_ops_create"],
        Unit::Count,
        "Documents created by clients on all copies here, while these were active.",
        |f: &F| f.stats.ops.creates.into(),
    )
    .not_in_stat(),
    counter(
        &["ep_ops_update"],
        Unit::Count,
        "Documents changed by clients on all copies here, while these were active.",
        |f: &F| f.stats.ops.updates.into(),
    )
    .not_in_stat(),
];

/// More of replicas: what DOCUMENTS has of active vBuckets.
pub(crate) static REPLICAS: &[Row<F>] = &[
    counter(
        &["vb_replica_ops_create"],
        Unit::Count,
        "Documents created by clients on what are replicas now, while they were active.",
        |f: &F| f.stats.replica.ops.creates.into(),
    )
    .metrics(&[Metric::one_of("kv_vb_ops_create", CREATED_HELP, &[("state", "replica")])]),
    counter(
        &["vb_replica_ops_update"],
        Unit::Count,
        "Documents changed by clients on what are replicas now, while they were active.",
        |f: &F| f.stats.replica.ops.updates.into(),
    )
    .metrics(&[Metric::one_of("kv_vb_ops_update", UPDATED_HELP, &[("state", "replica")])]),
    counter(
        &["vb_replica_ops_delete"],
        Unit::Count,
        "Documents deleted by clients on what are replicas now, while they were active.",
        |f: &F| f.stats.replica.ops.deletes.into(),
    )
    .metrics(&[Metric::one_of("kv_vb_ops_delete", DELETED_HELP, &[("state", "replica")])]),
    counter(&["vb_replica_eject"], Unit::Count, "Values of replicas dropped from memory.", |f: &F| {
        f.stats.replica.ops.ejects.into()
    })
    .metrics(&[Metric::one_of("kv_vb_eject", EJECTED_HELP, &[("state", "replica")])]),
    gauge(&["vb_replica_meta_data_memory"], Unit::Bytes, "Keys and headers of replicas.", |f: &F| {
        f.stats.replica.item_bytes.saturating_sub(f.stats.replica.value_bytes).into()
    })
    .metrics(&[Metric::one_of("kv_vb_meta_data_memory_bytes", METADATA_HELP, &[("state", "replica")])]),
    counter(
        &["vb_replica_queue_fill"],
        Unit::Count,
        "Mutations of replicas that were queued for the disk.",
        |f: &F| f.stats.replica.queue_filled.into(),
    )
    .metrics(&[Metric::one_of("kv_vb_queue_fill", QUEUE_FILL_HELP, &[("state", "replica")])]),
    counter(
        &["vb_replica_queue_drain"],
        Unit::Count,
        "Queued mutations of replicas that were synced.",
        |f: &F| f.stats.replica.queue_drained.into(),
    )
    .metrics(&[Metric::one_of("kv_vb_queue_drain", QUEUE_DRAIN_HELP, &[("state", "replica")])]),
];

/// A row of pending vBuckets: its name, unit, what it would count, and what it says instead.
macro_rules! pending {
    ($name:literal, $unit:ident, $what:literal, $says:literal) => {
        gauge(
            &[concat!("vb_pending_", $name)],
            Unit::$unit,
            concat!($what, " of pending vBuckets. Always ", $says, ": Settee has these as replicas."),
            |_: &F| $says.into(),
        )
        .not_in_stat()
    };
}

/// A copy on its way here is a replica, so no vBucket is ever pending.
pub(crate) static PENDING: &[Row<F>] = &[
    pending!("curr_items", Count, "Documents", 0),
    pending!("eject", Count, "Values dropped from memory", 0),
    pending!("itm_memory", Bytes, "Memory of documents", 0),
    pending!("meta_data_memory", Bytes, "Keys and headers", 0),
    pending!("num_non_resident", Count, "Documents with values on disk only", 0),
    pending!("ops_create", Count, "Created documents", 0),
    pending!("ops_update", Count, "Changed documents", 0),
    pending!("queue_size", Count, "Mutations that wait for the disk", 0),
    pending!("queue_fill", Count, "Mutations queued for the disk", 0),
    pending!("queue_drain", Count, "Synced mutations", 0),
    pending!("resident_items_ratio", Percent, "Documents with values in memory", 100).across(Across::Mean),
];

/// What Couchbase calls access log is the list of the most used keys.
pub(crate) static WARM_UP: &[Row<F>] = &[
    text(&["ep_warmup"], "Whether buckets fill their memory after a start.", |_: &F| "enabled".into()),
    text(&["ep_warmup_state"], "`loading access log`, `loading data` or `done`.", |f: &F| {
        match (f.stats.warmup, f.stats.warmup_items) {
            (WarmupState::Done, _) => "done".into(),
            (WarmupState::Loading, 0) => "loading access log".into(),
            (WarmupState::Loading, _) => "loading data".into(),
        }
    }),
    text(&["ep_warmup_thread"], "`running` or `complete`.", |f: &F| match f.stats.warmup {
        WarmupState::Done => "complete".into(),
        WarmupState::Loading => "running".into(),
    }),
    counter(&["ep_warmup_access_log"], Unit::Count, "Most used keys that warm-up has looked up.", |f: &F| {
        f.stats.warmup_hot.into()
    }),
    counter(
        &["ep_warmup_key_count", "ep_warmup_value_count"],
        Unit::Count,
        "Documents that warm-up has loaded.",
        |f: &F| f.stats.warmup_items.into(),
    ),
    gauge(
        &["ep_warmup_estimated_key_count", "ep_warmup_estimated_value_count"],
        Unit::Count,
        "Documents that warm-up will have loaded, estimated from what it has read.",
        |f: &F| f.stats.warmup_items_estimated.into(),
    ),
    counter(&["ep_warmup_bytes"], Unit::Bytes, "Bytes that warm-up has read.", |f: &F| {
        f.stats.warmup_bytes.into()
    }),
    counter(
        &["ep_warmup_time"],
        Unit::Microseconds,
        "How long warm-up took, or has taken so far.",
        |f: &F| u64::try_from(f.warm_up_time.as_micros()).unwrap_or(u64::MAX).into(),
    )
    .across(Across::Max),
];
