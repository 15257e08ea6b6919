//! `GET_RANDOM`.

use base::{CollectionId, DocKey, HashedKey, Now, Status, VbId, VbRole};

use super::get::shown_cas;
use crate::{
    api::{doc::DocView, notify::Refusal},
    bucket::Bucket,
    memory::{hash_table::ScanPosition, item::ItemRef},
    vbucket::{VBucket, failover_table::mix, version::is_due},
};

/// Dice thrown per vBucket before it is walked through.
const THROWS: u64 = 8;
/// Documents that are walked past for one request: some milliseconds' worth. A collection may have many of which none is
/// in memory.
const WALKED_MAX: usize = 1 << 18;

impl Bucket {
    /// `GET_RANDOM`: some document of the collection that is in memory; `pick` is the caller's dice.
    ///
    /// # Errors
    /// `KeyNotFound` when there is none in memory; `TemporaryFailure` when none was found among very many.
    pub fn random<R>(
        &self,
        collection: CollectionId,
        pick: u64,
        now: Now,
        read: impl FnOnce(&DocView<'_>) -> R,
    ) -> Result<R, Refusal> {
        if self.collections.load().cap(collection).is_none() {
            return Err(Status::UnknownCollection.into());
        }
        let vbuckets = u64::from(self.vbuckets());
        let mut left = WALKED_MAX;
        for step in 0..vbuckets {
            let vb = VbId(((mix(pick) % vbuckets + step) % vbuckets) as u16);
            let (slot, shard) = self.slot(vb)?;
            let v = slot.vb.lock();
            if v.role != VbRole::Active {
                continue;
            }
            if v.counts.collection(collection).is_none_or(|count| count.items == 0) {
                continue;
            }
            let thrown = (0..THROWS)
                .filter_map(|throw| v.table.random(mix(pick ^ mix(throw + step * THROWS))))
                .find(|&item| suits(&v, item, collection, now));
            // A small collection in a large vBucket is found by walking.
            let walked = if thrown.is_none() { first_suitable(&v, collection, now, &mut left) } else { None };
            let item =
                thrown.or_else(|| walked.and_then(|key| v.table.find(base::hash::key_hash(&key), &key)));
            if let Some(item) = item {
                let key = HashedKey::new(DocKey::trusted(item.key()));
                let cas = shown_cas(&v, key, item, now);
                return Ok(read(&DocView::of(item, cas, &shard.arena)));
            }
            if left == 0 {
                return Err(Status::TemporaryFailure.into());
            }
        }
        Err(Status::KeyNotFound.into())
    }
}

fn suits(v: &VBucket, item: ItemRef<'_>, collection: CollectionId, now: Now) -> bool {
    let key = HashedKey::new(DocKey::trusted(item.key()));
    item.is_resident()
        && !item.is_deleted()
        && !is_due(item.expiry(), now)
        && key.key.collection() == collection
        && !v.pending.may_be_visible(key)
        && v.vouches_for(key, Some(item.seqno()))
}

fn first_suitable(v: &VBucket, collection: CollectionId, now: Now, left: &mut usize) -> Option<Box<[u8]>> {
    let mut found = None;
    let mut position = Some(ScanPosition::default());
    while let (Some(from), None, true) = (position, &found, *left > 0) {
        position = v.table.scan(from, 64, &mut |item| {
            *left = left.saturating_sub(1);
            if found.is_none() && suits(v, item, collection, now) {
                found = Some(item.key().into());
            }
        });
    }
    found
}
