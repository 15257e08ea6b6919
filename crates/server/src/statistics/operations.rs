//! Operations of clients.

use admin::statistics::{Metric, Unit};

use super::{BucketFacts, Row, counter};
use crate::meter::OpKind as K;

type F = BucketFacts;

/// Sub-document operations count as reads and writes as well.
const READS: &[K] = &[K::Get, K::SubdocLookup];
const WRITES: &[K] = &[K::Set, K::Add, K::Replace, K::Append, K::Prepend, K::SubdocMutation];

pub(crate) static OPERATIONS: &[Row<F>] = &[
    counter(
        &["cmd_get", "cmd_total_gets"],
        Unit::Count,
        "Reads of documents or of parts of them.",
        |f: &F| f.operations(READS).into(),
    )
    .metrics(&[Metric::new("kv_cmd_get_total")]),
    counter(&["get_hits"], Unit::Count, "Reads that found a document.", |f: &F| f.hits(READS).into())
        .metrics(&[Metric::new("kv_get_hits_total")]),
    counter(&["get_misses"], Unit::Count, "Reads that found no document.", |f: &F| f.misses(READS).into()),
    counter(
        &["cmd_set", "cmd_total_sets"],
        Unit::Count,
        "Writes of documents or of parts of them.",
        |f: &F| f.operations(WRITES).into(),
    )
    .metrics(&[Metric::new("kv_cmd_set_total")]),
    counter(&["cmd_touch"], Unit::Count, "Changes of an expiry, those with a read included.", |f: &F| {
        f.operations(&[K::Touch, K::GetAndTouch]).into()
    }),
    counter(&["cmd_lock"], Unit::Count, "Reads that lock the document.", |f: &F| {
        f.operations(&[K::Lock]).into()
    }),
    counter(&["cmd_subdoc_lookup"], Unit::Count, "Reads of parts of documents.", |f: &F| {
        f.operations(&[K::SubdocLookup]).into()
    }),
    counter(&["cmd_subdoc_mutation"], Unit::Count, "Writes of parts of documents.", |f: &F| {
        f.operations(&[K::SubdocMutation]).into()
    }),
    counter(&["cmd_total", "cmd_total_ops"], Unit::Count, "Operations of every kind.", |f: &F| {
        f.all_operations().into()
    }),
    counter(&["delete_hits"], Unit::Count, "Deletions that found a document.", |f: &F| {
        f.hits(&[K::Delete]).into()
    }),
    counter(&["delete_misses"], Unit::Count, "Deletions that found no document.", |f: &F| {
        f.misses(&[K::Delete]).into()
    }),
    counter(&["incr_hits"], Unit::Count, "Increments that found a document.", |f: &F| {
        f.hits(&[K::Increment]).into()
    }),
    counter(&["incr_misses"], Unit::Count, "Increments that found no document.", |f: &F| {
        f.misses(&[K::Increment]).into()
    }),
    counter(&["decr_hits"], Unit::Count, "Decrements that found a document.", |f: &F| {
        f.hits(&[K::Decrement]).into()
    }),
    counter(&["decr_misses"], Unit::Count, "Decrements that found no document.", |f: &F| {
        f.misses(&[K::Decrement]).into()
    }),
    counter(&[], Unit::Count, "Deletions of documents.", |f: &F| f.operations(&[K::Delete]).into())
        .metrics(&[Metric::new("kv_cmd_delete_total")]),
];
