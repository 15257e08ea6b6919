//! From what was read of a checkpoint to snapshots.
//!
//! What one read brought is one snapshot, with the last version of each key. For a consumer that is told of prepares
//! one read may become several snapshots. A key that has a prepare, commit or abort in a snapshot has nothing else in
//! it, which is kv_engine's rule for checkpoints. So a replica may apply a snapshot in any order and ends up with the
//! same.

use std::{collections::VecDeque, mem};

use base::Seqno;

use crate::{
    history::{
        item::{FeedItem, FeedKind},
        told::{FeedBatch, FeedSnapshot},
    },
    memory::key_map::{KeySet, repeated_later},
};

/// All of it as one snapshot.
pub(super) fn whole(mut items: Vec<FeedItem>, snapshot: FeedSnapshot) -> FeedBatch {
    keep_newest(&mut items);
    FeedBatch { snapshot: Some(snapshot), items, ends_snapshot: true }
}

/// As few snapshots as the rule allows. The first one reaches `through`, whatever is in it: its consumer has had the
/// beginning. What was `visible` last before the first one goes on being that until something else is.
pub(super) fn split(
    items: Vec<FeedItem>,
    snapshot: FeedSnapshot,
    through: Seqno,
    mut visible: Seqno,
) -> VecDeque<FeedBatch> {
    let mut batches = VecDeque::new();
    let mut rest = items;
    let mut left = snapshot;
    loop {
        let cut = first_conflict(&rest, through);
        let behind = cut.map_or_else(Vec::new, |cut| rest.split_off(cut));
        let end = behind.first().map_or(left.end, |next| Seqno(next.seqno.get() - 1));
        visible = last_visible(&rest).unwrap_or(visible);
        batches.push_back(whole(rest, FeedSnapshot { end, max_visible: visible, ..left }));
        if behind.is_empty() {
            return batches;
        }
        left.start = end;
        rest = behind;
    }
}

/// The same in batches of about so many bytes, and at least one item each.
pub(super) fn in_parts(batch: FeedBatch, bytes_max: usize) -> Vec<FeedBatch> {
    let FeedBatch { mut snapshot, items, ends_snapshot } = batch;
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for item in items {
        if !part.is_empty() && bytes + item.bytes() > bytes_max {
            let items = mem::take(&mut part);
            parts.push(FeedBatch { snapshot: snapshot.take(), items, ends_snapshot: false });
            bytes = 0;
        }
        bytes += item.bytes();
        part.push(item);
    }
    parts.push(FeedBatch { snapshot, items: part, ends_snapshot });
    parts
}

/// The last of these that clients may see.
pub(super) fn last_visible(items: &[FeedItem]) -> Option<Seqno> {
    let visible = items.iter().filter(|item| !matches!(item.kind, FeedKind::Prepare | FeedKind::Abort));
    visible.map(|item| item.seqno).max()
}

/// Where the next snapshot has to begin.
fn first_conflict(items: &[FeedItem], through: Seqno) -> Option<usize> {
    if !items.iter().any(FeedItem::is_of_durable_write) {
        return None;
    }
    let (mut keys, mut durable) = (KeySet::default(), KeySet::default());
    items.iter().position(|item| {
        let key = item.key().encoded();
        let is_conflict = durable.contains(key) || item.is_of_durable_write() && keys.contains(key);
        if is_conflict && item.seqno > through {
            return true;
        }
        keys.insert(key);
        if item.is_of_durable_write() {
            durable.insert(key);
        }
        false
    })
}

/// Of each key, leaves the last version (of those that a durable write had a part in, all). A prepare or abort is none.
fn keep_newest(items: &mut Vec<FeedItem>) {
    if items.len() < 2 {
        return;
    }
    let is_version = |item: &FeedItem| !matches!(item.kind, FeedKind::Prepare | FeedKind::Abort);
    let versions = items.iter().filter(|item| is_version(item));
    let repeated = repeated_later(versions.map(|item| item.key().encoded()));
    let mut repeated = repeated.into_iter();
    items.retain(|item| !is_version(item) || repeated.next() != Some(true) || item.is_of_durable_write());
}
