//! What a node tells of the index of a design document. The names in `_info` are Couchbase's, where Couchbase has one. `_errors` is
//! Settee's own. Both tell of this node alone.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cluster::Metadata;
use indexer::{IndexStatus, Lane};
use serde_json::{Map, Value, json};
use views::index::{Reducing, RefusedValue};

use super::{BucketIndexes, Indexes, defined};
use base::BucketUuid;

/// How long a request waits for an index to be open. Its design document may have been stored a moment ago, or the node
/// may have just started.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at whether it is open.
const LOOK: Duration = Duration::from_millis(20);

impl Indexes {
    /// The answer to `_info`.
    pub(crate) async fn info(&self, metadata: &Metadata, uuid: &BucketUuid, name: &str) -> Value {
        let found = self.status_of(metadata, uuid, name).await;
        let index = found.map(|(indexes, status, without_room)| index(&indexes, &status, without_room, name));
        json!({ "name": name, "view_index": index })
    }

    /// The answer to `_errors`.
    pub(crate) async fn errors(&self, metadata: &Metadata, uuid: &BucketUuid, name: &str) -> Value {
        let found = self.status_of(metadata, uuid, name).await;
        let errors = found.map(|(indexes, status, _)| {
            of_views(&indexes, name, |view| {
                let mistakes = status.mistakes.get(view.map).cloned().unwrap_or_default();
                let told = |mistake: indexer::mistakes::Mistake| {
                    json!({ "id": mistake.docid, "reason": mistake.text })
                };
                let last: Vec<Value> = mistakes.last.into_iter().map(told).collect();
                let values = mistakes.values.into_iter().filter(|_| view.reads_numbers);
                let last_rows: Vec<Value> = values.map(|value| row_left_out(&value)).collect();
                let rows = status.left_out.get(view.name).copied().unwrap_or_default();
                json!({ "total": mistakes.count, "last": last, "rows_left_out": rows, "last_rows": last_rows })
            })
        });
        json!({ "name": name, "views": errors.unwrap_or_default() })
    }

    async fn status_of(
        &self,
        metadata: &Metadata,
        uuid: &BucketUuid,
        name: &str,
    ) -> Option<(Arc<BucketIndexes>, IndexStatus, bool)> {
        // Where that takes longer, what is known by then is told.
        let until = Instant::now() + PATIENCE;
        let _ = tokio::time::timeout(PATIENCE, self.caught_up(metadata)).await;
        let has_views = metadata.bucket_by_uuid(uuid).is_some_and(|(bucket, info)| {
            defined(bucket, &info.design_documents).iter().any(|(known, _)| known == name)
        });
        loop {
            let found = self.status_now(uuid, name);
            let is_known =
                found.as_ref().is_some_and(|(_, index, _)| index.is_open || index.failure.is_some());
            if is_known || !has_views || Instant::now() >= until {
                return found;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn status_now(&self, uuid: &BucketUuid, name: &str) -> Option<(Arc<BucketIndexes>, IndexStatus, bool)> {
        let indexes = self.of(uuid)?;
        let status = indexes.indexer().status();
        let mut all = status.indexes.into_iter();
        let index = all.find(|index| index.names.iter().any(|known| known == name))?;
        Some((indexes, index, status.is_without_room))
    }
}

fn index(indexes: &BucketIndexes, status: &IndexStatus, without_room: bool, name: &str) -> Value {
    let views = of_views(indexes, name, |view| {
        let rows = status.rows.get(view.map).copied().unwrap_or_default();
        let errors = status.mistakes.get(view.map).map_or(0, |mistakes| mistakes.count);
        let left_out = status.left_out.get(view.name).copied().unwrap_or_default();
        json!({ "rows": rows, "errors": errors, "rows_left_out": left_out })
    });
    json!({
        "signature": status.signature.to_string(),
        "design_documents": status.names,
        "disk_size": status.disk_bytes,
        "data_size": status.live_bytes,
        "updater_running": status.left > 0 && status.failure.is_none() && !without_room,
        "initial_build": status.lane == Lane::Build,
        "changes_done": status.done,
        "vbuckets_begun": status.begun,
        "replica_vbuckets": status.followers,
        "total_seqs_diff": status.left,
        "error": status.failure,
        "disk_has_no_room": without_room,
        "views": views,
    })
}

/// A row that the reduction of its view cannot read. The key is told as its JSON text, of which only the beginning may be known.
fn row_left_out(value: &RefusedValue) -> Value {
    json!({ "id": value.docid, "key": value.key, "reason": format!("Value is not a number (key {})", value.key) })
}

/// A view of a design document.
struct OfView<'a> {
    name: &'a str,
    /// The number of its map function.
    map: usize,
    /// Its reduction leaves out rows whose values are no numbers.
    reads_numbers: bool,
}

/// Something of each view of a design document.
fn of_views(indexes: &BucketIndexes, name: &str, tell: impl Fn(&OfView<'_>) -> Value) -> Map<String, Value> {
    let Some(definition) = indexes.indexer().definition(name) else { return Map::new() };
    let views = definition.views().map(|(view, place)| {
        let reads_numbers = definition.reducing(place).is_some_and(Reducing::reads_numbers);
        (view.to_owned(), tell(&OfView { name: view, map: place.map, reads_numbers }))
    });
    views.collect()
}
