//! GETL and UNLOCK.

use base::{Cas, HashedKey, Now, Status, VbId};

use crate::{
    api::{doc::DocView, notify::Refusal},
    bucket::Bucket,
    shard::{Env, deferred::DeferredEffects},
    vbucket::{
        VBucket,
        version::{Current, Found},
    },
};

impl Bucket {
    /// GETL: locks a document for `secs` (0 or more than the maximum: the default). The view's CAS is the lock's.
    ///
    /// # Errors
    /// `KeyNotFound`, `Locked`, `SyncWriteInProgress`.
    pub fn lock<R>(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        secs: u32,
        now: Now,
        read: impl FnOnce(&DocView<'_>) -> R,
    ) -> Result<R, Refusal> {
        let ctx = self.key_context(vb, key, now)?;
        let mut deferred = ctx.deferred();
        let mut v = ctx.lock()?;
        v.settle_to_read_and_change(&ctx.env, key, now, &mut deferred)?;
        let cas = v.next_cas(&ctx.env, None, &mut deferred)?;
        v.locks.acquire(key, cas, secs, now).map_err(|_| Status::TemporaryFailure)?;
        v.ops.get_hits += 1;
        let item = v.table.find(key.hash, key.key.encoded()).ok_or(Status::Internal)?;
        Ok(read(&DocView::of(item, cas, &ctx.env.shard.arena)))
    }

    /// UNLOCK.
    ///
    /// # Errors
    /// `KeyNotFound`, `NotLocked`, `Locked` when the CAS is not the lock's.
    pub fn unlock(&self, vb: VbId, key: HashedKey<'_>, cas: Cas, now: Now) -> Result<(), Refusal> {
        let ctx = self.key_context(vb, key, now)?;
        let mut deferred = ctx.deferred();
        let mut v = ctx.lock()?;
        let Found::Live(_) = v.settle_for_write(&ctx.env, key, &mut deferred)? else {
            return Err(Status::KeyNotFound.into());
        };
        match v.locks.holder(key.hash, key.key.encoded(), now) {
            None => Err(Status::NotLocked.into()),
            Some(lock) if lock != cas => {
                v.ops.lock_errors += 1;
                Err(Status::Locked.into())
            }
            Some(_) => {
                v.locks.release(key.hash, key.key.encoded());
                Ok(())
            }
        }
    }
}

impl VBucket {
    /// The document that a command reads and changes at the same time. It is not locked, and its value is in memory.
    pub(super) fn settle_to_read_and_change(
        &mut self,
        env: &Env<'_>,
        key: HashedKey<'_>,
        now: Now,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<Current, Refusal> {
        let Found::Live(current) = self.settle_for_write(env, key, deferred)? else {
            self.ops.get_misses += 1;
            return Err(Status::KeyNotFound.into());
        };
        if self.locks.holder(key.hash, key.key.encoded(), now).is_some() {
            self.ops.lock_errors += 1;
            return Err(Status::Locked.into());
        }
        if !current.resident {
            return Err(self.missing(key));
        }
        Ok(current)
    }
}
