//! How far the indexes of views are, which services tell.

use service::Progress;
use stats::{Metric, Reading, Row, Unit, gauge, read};

pub(crate) static INDEXES: &[Row<Progress>] = &[gauge(
    &[],
    Unit::Count,
    "Changes that the index of a design document has yet to take on this node.",
    |index: &Progress| index.total.saturating_sub(index.done).into(),
)
.metrics(&[Metric::new("settee_view_changes_left")])];

/// What the rows say of an index.
pub(crate) fn of_index(index: &Progress) -> Vec<Reading> {
    let labels = vec![("design_document", index.design_document.clone())];
    read(INDEXES, index).map(|reading| Reading { labels: labels.clone(), ..reading }).collect()
}
