//! Indexes of a bucket's views.

use stats::{Metric, Unit};

use stats::{Row, counter, gauge};

use super::facts::BucketFacts;

type F = BucketFacts;

pub(crate) static VIEWS: &[Row<F>] = &[
    gauge(
        &["couch_views_disk_size", "couch_views_actual_disk_size"],
        Unit::Bytes,
        "Bytes of files of the indexes of views.",
        |f: &F| f.views.disk_bytes.into(),
    )
    .metrics(&[Metric::new("couch_views_disk_size"), Metric::new("couch_views_actual_disk_size")]),
    gauge(&["couch_views_data_size"], Unit::Bytes, "Bytes of those files that are current.", |f: &F| {
        f.views.live_bytes.into()
    })
    .metrics(&[Metric::new("couch_views_data_size")]),
    counter(
        &["couch_views_ops"],
        Unit::Count,
        "Answers to queries of views that the node has begun, for clients and for other nodes.",
        |f: &F| f.views.queries.into(),
    )
    .metrics(&[Metric::new("couch_views_ops")]),
];
