//! Reads of what a replica holds. Nothing changes by them: what has expired is not there, and stays as it is until the
//! active says that it is gone.

use base::{HashedKey, Now, Status, VbId, VbRole};

use super::get::count_use;
use crate::{bucket::Bucket, doc::DocView, notify::Refusal, vbucket::is_due};

impl Bucket {
    /// `GET_REPLICA`: reads a document where this node has a replica of it. `read` runs under the vBucket's lock.
    ///
    /// # Errors
    /// `NotMyVbucket` when it has none, `KeyNotFound`, `UnknownCollection`; `TemporaryFailure` when the copy is in the making
    /// and the document may be still to come; [`Refusal::Fetch`] when it is not in memory.
    pub fn get_replica<R>(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        now: Now,
        read: impl FnOnce(&DocView<'_>) -> R,
    ) -> Result<R, Refusal> {
        let door = self.door(vb, key, now)?;
        let mut guard = door.enter_as(VbRole::Replica)?;
        let v = &mut *guard;
        v.settle_replica(&door.env, key)?;
        let Some(item) = v.shown(&door.env, key) else {
            v.ops.get_misses += 1;
            return Err(Status::KeyNotFound.into());
        };
        debug_assert!(!is_due(item.expiry(), now));
        if !item.is_resident() {
            return Err(v.missing(key));
        }
        count_use(item, v.ops.get_hits);
        let result = read(&DocView::of(item, item.cas(), &door.env.shard.arena));
        v.ops.get_hits += 1;
        Ok(result)
    }
}
