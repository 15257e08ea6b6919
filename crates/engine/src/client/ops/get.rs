//! GET: the operation everything else is measured against.

use base::{Cas, HashedKey, Now, Status, VbId, VbRole};

use crate::{
    api::{doc::DocView, notify::Refusal},
    bucket::Bucket,
    memory::item::{FREQUENCY_MAX, FREQUENCY_OCTAVE, ItemRef},
    shard::Env,
    vbucket::{VBucket, version::is_due},
};

impl Bucket {
    /// Reads a document. `read` runs under the vBucket's lock.
    ///
    /// # Errors
    /// `KeyNotFound`, `UnknownCollection`, `NotMyVbucket`; `SyncWriteReCommitInProgress` while a durable write that was taken
    /// over may be what it says; [`Refusal::Fetch`] when it is not in memory.
    #[inline]
    pub fn get<R>(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        now: Now,
        read: impl FnOnce(&DocView<'_>) -> R,
    ) -> Result<R, Refusal> {
        let ctx = self.key_context(vb, key, now)?;
        let mut deferred = ctx.deferred();
        let mut guard = ctx.lock()?;
        let v = &mut *guard;
        // Nothing unusual about the vBucket or the document: one probe, no copy.
        if v.warming.is_none()
            && !v.pending.may_be_visible(key)
            && let Some(item) = v.table.find(key.hash, key.key.encoded())
            && item.is_resident()
            && !item.is_deleted()
            && !is_due(item.expiry(), now)
        {
            v.ops.get_hits += 1;
            count_use(item, v.ops.get_hits);
            let cas = if v.locks.is_empty() { item.cas() } else { shown_cas(v, key, item, now) };
            return Ok(read(&DocView::of(item, cas, &ctx.env.shard.arena)));
        }
        v.settle(&ctx.env, key, &mut deferred)?;
        v.read_shown(&ctx.env, key, read)
    }

    /// `GET_REPLICA`: reads a document where this node has a replica of it. Nothing changes by that: what has expired is not
    /// there, and stays as it is until the active says that it is gone. `read` runs under the vBucket's lock.
    ///
    /// # Errors
    /// - `NotMyVbucket` when this node has no copy
    /// - `KeyNotFound`, `UnknownCollection`
    /// - `TemporaryFailure` when the copy is in the making and the document may be still to come
    /// - [`Refusal::Fetch`] when the document is not in memory
    pub fn get_replica<R>(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        now: Now,
        read: impl FnOnce(&DocView<'_>) -> R,
    ) -> Result<R, Refusal> {
        let ctx = self.key_context(vb, key, now)?;
        let mut guard = ctx.lock_as(VbRole::Replica)?;
        guard.settle_replica(&ctx.env, key)?;
        guard.read_shown(&ctx.env, key, read)
    }
}

impl VBucket {
    /// Reads the document that a reader is shown. The key has been settled.
    fn read_shown<R>(
        &mut self,
        env: &Env<'_>,
        key: HashedKey<'_>,
        read: impl FnOnce(&DocView<'_>) -> R,
    ) -> Result<R, Refusal> {
        let Some(item) = self.shown(env, key) else {
            self.ops.get_misses += 1;
            return Err(Status::KeyNotFound.into());
        };
        if !item.is_resident() {
            return Err(self.missing(key));
        }
        count_use(item, self.ops.get_hits);
        let cas = shown_cas(self, key, item, env.now);
        let result = read(&DocView::of(item, cas, &env.shard.arena));
        self.ops.get_hits += 1;
        Ok(result)
    }
}

/// The CAS that readers are shown.
pub(super) fn shown_cas(v: &VBucket, key: HashedKey<'_>, item: ItemRef<'_>, now: Now) -> Cas {
    match v.locks.holder(key.hash, key.key.encoded(), now) {
        Some(_) => Cas::LOCKED,
        None => item.cas(),
    }
}

/// Counts a use in six bits. The higher the counter, the rarer it moves. So it spans uses from a few to thousands, and
/// hot documents are hardly ever written to. `dice` is anything that varies. It may keep step with the order in which
/// documents are read. The multiplication (by 2^64 over the golden ratio) breaks that up.
#[inline]
pub(super) fn count_use(item: ItemRef<'_>, dice: u64) {
    let frequency = item.frequency();
    let rarity = (1_u64 << (frequency / FREQUENCY_OCTAVE)) - 1;
    if frequency < FREQUENCY_MAX && (dice.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) & rarity == 0 {
        item.set_frequency(frequency + 1);
    }
}
