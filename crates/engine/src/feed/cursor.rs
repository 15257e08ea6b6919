//! A cursor that ends with whoever holds it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use base::{Status, VbId};

use super::FeedEnd;
use crate::{Bucket, aftermath::Aftermath, checkpoint::CursorId, shard::Shard, vbucket::VBucket};

/// A registered cursor of a vBucket's checkpoint, good until the vBucket's contents are dropped. Does not keep the bucket
/// alive: it may be queued inside of it.
pub(crate) struct CursorGuard {
    bucket: Weak<Bucket>,
    vb: VbId,
    incarnation: u32,
    id: CursorId,
}

/// A vBucket, locked, as a cursor's holder sees it.
pub(crate) struct AtCursor<'a, 'b> {
    pub(crate) v: &'a mut VBucket,
    pub(crate) shard: &'b Shard,
    pub(crate) id: CursorId,
    pub(crate) after: &'a mut Aftermath<'b>,
}

impl CursorGuard {
    /// Registers a cursor, without a place; `look` sees the vBucket under the same lock and may refuse.
    pub(crate) fn register<R>(
        bucket: &Arc<Bucket>,
        vb: VbId,
        look: impl FnOnce(&VBucket) -> Result<R, Status>,
    ) -> Result<(Self, R), Status> {
        let (slot, shard) = bucket.slot(vb)?;
        if shard.gate.is_closed() {
            return Err(Status::TemporaryFailure);
        }
        let mut v = slot.vb.lock();
        let looked = look(&v)?;
        let id = v.checkpoint.register();
        bucket.cursors.fetch_add(1, Ordering::Relaxed);
        Ok((Self { bucket: Arc::downgrade(bucket), vb, incarnation: v.incarnation, id }, looked))
    }

    /// Runs under the vBucket's lock.
    ///
    /// # Errors
    /// `Reset` when what the cursor was registered for is gone.
    pub(crate) fn with<R>(
        &self,
        bucket: &Bucket,
        act: impl FnOnce(AtCursor<'_, '_>) -> R,
    ) -> Result<R, FeedEnd> {
        let (slot, shard) = bucket.slot(self.vb).map_err(|_| FeedEnd::Reset)?;
        let mut after = bucket.aftermath(shard);
        let mut v = slot.vb.lock();
        if v.incarnation != self.incarnation || shard.gate.is_closed() {
            return Err(FeedEnd::Reset);
        }
        Ok(act(AtCursor { v: &mut v, shard, id: self.id, after: &mut after }))
    }

    /// The bucket, if it is still there.
    pub(crate) fn bucket(&self) -> Option<Arc<Bucket>> {
        self.bucket.upgrade()
    }

    /// Gives the cursor's place up.
    pub(crate) fn withdraw(&self, bucket: &Bucket) {
        // Otherwise there is none to give up.
        let _ = self.with(bucket, |at| {
            at.after.release_all(at.v.checkpoint.withdraw(at.id));
        });
    }
}

impl Drop for CursorGuard {
    fn drop(&mut self) {
        let Some(bucket) = self.bucket.upgrade() else { return };
        bucket.cursors.fetch_sub(1, Ordering::Relaxed);
        let Ok((slot, shard)) = bucket.slot(self.vb) else { return };
        let mut after = bucket.aftermath(shard);
        let mut v = slot.vb.lock();
        if v.incarnation == self.incarnation {
            after.release_all(v.checkpoint.unregister(self.id));
        }
    }
}
