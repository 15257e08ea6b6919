//! Operations of clients.

use stats::{Metric, Unit};

use stats::{Row, counter};

use super::facts::BucketFacts;
use crate::figures::meter::OpKind as K;

type F = BucketFacts;

/// Sub-document operations count as reads and writes as well.
pub(super) const READS: &[K] = &[K::Get, K::SubdocLookup];
const WRITES: &[K] = &[K::Set, K::Add, K::Replace, K::Append, K::Prepend, K::SubdocMutation];

const OPS_HELP: &str = "Operations, by kind and outcome.";

pub(crate) static OPERATIONS: &[Row<F>] = &[
    counter(
        &["cmd_get", "cmd_total_gets"],
        Unit::Count,
        "Reads of documents or of parts of them.",
        |f: &F| f.operations(READS).into(),
    )
    .metrics(&[Metric::new("kv_cmd_lookup"), Metric::new("kv_cmd_get_total")]),
    counter(&["get_hits"], Unit::Count, "Reads that found a document.", |f: &F| f.hits(READS).into())
        .metrics(&[
            Metric::one_of("kv_ops", OPS_HELP, &[("op", "get"), ("result", "hit")]),
            Metric::new("kv_get_hits_total"),
        ]),
    counter(&["get_misses"], Unit::Count, "Reads that found no document.", |f: &F| f.misses(READS).into())
        .metrics(&[Metric::one_of("kv_ops", OPS_HELP, &[("op", "get"), ("result", "miss")])]),
    counter(
        &["cmd_set", "cmd_total_sets"],
        Unit::Count,
        "Writes of documents or of parts of them.",
        |f: &F| f.operations(WRITES).into(),
    )
    .metrics(&[Metric::one_of("kv_ops", OPS_HELP, &[("op", "set")]), Metric::new("kv_cmd_set_total")]),
    counter(&["cmd_touch"], Unit::Count, "Changes of an expiry, those with a read included.", |f: &F| {
        f.operations(&[K::Touch, K::GetAndTouch]).into()
    }),
    counter(&["cmd_lock"], Unit::Count, "Reads that lock the document.", |f: &F| {
        f.operations(&[K::Lock]).into()
    })
    .metrics(&[Metric::one_of("kv_operations", "Operations of other kinds.", &[("op", "lock")])]),
    counter(&["cmd_subdoc_lookup"], Unit::Count, "Reads of parts of documents.", |f: &F| {
        f.operations(&[K::SubdocLookup]).into()
    })
    .metrics(&[Metric::one_of(
        "kv_subdoc_operations",
        "Operations on parts of documents.",
        &[("op", "lookup")],
    )]),
    counter(&["cmd_subdoc_mutation"], Unit::Count, "Writes of parts of documents.", |f: &F| {
        f.operations(&[K::SubdocMutation]).into()
    })
    .metrics(&[Metric::one_of(
        "kv_subdoc_operations",
        "Operations on parts of documents.",
        &[("op", "mutation")],
    )]),
    counter(&["cmd_total", "cmd_total_ops"], Unit::Count, "Operations of every kind.", |f: &F| {
        f.all_operations().into()
    })
    .metrics(&[Metric::new("kv_cmd_total_ops")])
    .rest(&["cmd_total", "cmd_total_ops", "ops"]),
    counter(&["delete_hits"], Unit::Count, "Deletions that found a document.", |f: &F| {
        f.hits(&[K::Delete]).into()
    })
    .metrics(&[Metric::one_of("kv_ops", OPS_HELP, &[("op", "delete"), ("result", "hit")])]),
    counter(&["delete_misses"], Unit::Count, "Deletions that found no document.", |f: &F| {
        f.misses(&[K::Delete]).into()
    })
    .metrics(&[Metric::one_of("kv_ops", OPS_HELP, &[("op", "delete"), ("result", "miss")])]),
    counter(&["cas_hits"], Unit::Count, "Mutations with a CAS that matched.", |f: &F| f.cas_hits.into())
        .metrics(&[Metric::one_of("kv_ops", OPS_HELP, &[("op", "cas"), ("result", "hit")])]),
    counter(&["cas_misses"], Unit::Count, "Mutations with a CAS that found no document.", |f: &F| {
        f.cas_misses.into()
    })
    .metrics(&[Metric::one_of("kv_ops", OPS_HELP, &[("op", "cas"), ("result", "miss")])]),
    counter(&["incr_hits"], Unit::Count, "Increments that found a document.", |f: &F| {
        f.hits(&[K::Increment]).into()
    })
    .metrics(&[Metric::one_of("kv_ops", OPS_HELP, &[("op", "incr"), ("result", "hit")])]),
    counter(&["incr_misses"], Unit::Count, "Increments that found no document.", |f: &F| {
        f.misses(&[K::Increment]).into()
    })
    .metrics(&[Metric::one_of("kv_ops", OPS_HELP, &[("op", "incr"), ("result", "miss")])]),
    counter(&["decr_hits"], Unit::Count, "Decrements that found a document.", |f: &F| {
        f.hits(&[K::Decrement]).into()
    })
    .metrics(&[Metric::one_of("kv_ops", OPS_HELP, &[("op", "decr"), ("result", "hit")])]),
    counter(&["decr_misses"], Unit::Count, "Decrements that found no document.", |f: &F| {
        f.misses(&[K::Decrement]).into()
    })
    .metrics(&[Metric::one_of("kv_ops", OPS_HELP, &[("op", "decr"), ("result", "miss")])]),
    counter(&[], Unit::Count, "Deletions of documents.", |f: &F| f.operations(&[K::Delete]).into())
        .metrics(&[Metric::new("kv_cmd_delete_total")]),
    counter(&["ep_num_ops_get_meta"], Unit::Count, "Reads of a document's metadata.", |f: &F| {
        f.operations(&[K::GetMeta]).into()
    })
    .metrics(&[Metric::one_of("kv_ops", OPS_HELP, &[("op", "get_meta")])]),
    counter(&["ep_num_ops_set_meta"], Unit::Count, "Writes that bring their metadata.", |f: &F| {
        f.operations(&[K::SetWithMeta]).into()
    })
    .metrics(&[Metric::one_of("kv_ops", OPS_HELP, &[("op", "set_meta")])]),
    counter(&["ep_num_ops_del_meta"], Unit::Count, "Deletions that bring their metadata.", |f: &F| {
        f.operations(&[K::DeleteWithMeta]).into()
    })
    .metrics(&[Metric::one_of("kv_ops", OPS_HELP, &[("op", "del_meta")])]),
    counter(&["misses"], Unit::Count, "Operations that found no document.", |f: &F| {
        f.misses(&[K::Get, K::SubdocLookup, K::Delete, K::Increment, K::Decrement]).into()
    })
    .not_in_stat(),
    counter(&["bg_wait_count"], Unit::Count, "Requests that waited for a value from disk.", |f: &F| {
        f.fetches.count.into()
    })
    .not_in_stat(),
    counter(
        &["bg_wait_total"],
        Unit::Microseconds,
        "Time that requests waited for values from disk.",
        |f: &F| f.fetches.micros.into(),
    )
    .not_in_stat(),
];
