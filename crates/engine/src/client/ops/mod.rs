//! What clients can do to documents, one file per family. Every operation has the same shape. It checks what needs no
//! lock, builds what can be built, and takes the vBucket's lock. Under the lock it looks, decides and publishes. Frees
//! and wake-ups come afterwards.

mod concat;
mod counter;
mod delete;
mod get;
mod lock;
mod meta;
mod observe;
mod random;
mod store;
pub(crate) mod subdoc;
mod touch;

use std::sync::atomic::Ordering;

use base::{DocKey, HashedKey, ManifestUid, Now, Status, VbId, VbRole, bucket::DurabilityLevel};
use parking_lot::MutexGuard;

use crate::{
    api::request::Expiry,
    bucket::Bucket,
    shard::{Env, deferred::DeferredEffects},
    vbucket::{VBucket, collections::capped, durability, slot::Slot},
};

/// One operation's key and vBucket: everything that is known before the vBucket's lock is taken.
pub(crate) struct KeyContext<'a> {
    bucket: &'a Bucket,
    slot: &'a Slot,
    key: DocKey<'a>,
    manifest_uid: ManifestUid,
    /// The collection's own cap on expiry.
    cap: Option<u32>,
    pub(crate) env: Env<'a>,
}

impl<'a> KeyContext<'a> {
    /// For what must happen after the lock is released: declare it before [`KeyContext::lock`].
    #[inline]
    pub(crate) fn deferred(&self) -> DeferredEffects<'a> {
        self.bucket.deferred(self.env.shard)
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// `NotMyVbucket` when this node does not serve the vBucket; `UnknownCollection` when the collection was dropped since the
    /// context was made.
    #[inline]
    pub(crate) fn lock(&self) -> Result<MutexGuard<'a, VBucket>, Status> {
        self.lock_as(VbRole::Active)
    }

    /// As [`KeyContext::lock`], for an operation of another role.
    ///
    /// # Errors
    /// Those of [`KeyContext::lock`].
    #[inline]
    pub(crate) fn lock_as(&self, role: VbRole) -> Result<MutexGuard<'a, VBucket>, Status> {
        let guard = self.slot.vb.lock();
        if guard.role != role {
            return Err(Status::NotMyVbucket);
        }
        if guard.manifest_uid != self.manifest_uid
            && self.bucket.collections.load().cap_of(self.key).is_none()
        {
            return Err(Status::UnknownCollection);
        }
        Ok(guard)
    }

    /// The absolute expiry for what a request asks, under the caps of collection and bucket.
    pub(crate) fn expiry(&self, wire: u32) -> u32 {
        let bucket_max_secs = self.bucket.settings.max_ttl_secs.load(Ordering::Relaxed);
        capped(self.env.now.absolute_expiry(wire), self.cap, bucket_max_secs, self.env.now)
    }

    /// An absolute expiry under the caps.
    pub(crate) fn capped(&self, absolute: u32) -> u32 {
        let bucket_max_secs = self.bucket.settings.max_ttl_secs.load(Ordering::Relaxed);
        capped(absolute, self.cap, bucket_max_secs, self.env.now)
    }
}

impl Bucket {
    /// Finds a key's vBucket and collection.
    ///
    /// # Errors
    /// `NotMyVbucket`, `UnknownCollection`.
    #[inline]
    pub(crate) fn key_context<'a>(
        &'a self,
        vb: VbId,
        key: HashedKey<'a>,
        now: Now,
    ) -> Result<KeyContext<'a>, Status> {
        let (slot, shard) = self.slot(vb)?;
        let collections = self.collections.load();
        let cap = collections.cap_of(key.key).ok_or(Status::UnknownCollection)?;
        let env = Env { shard, kind: self.options.kind, now };
        Ok(KeyContext { bucket: self, slot, key: key.key, manifest_uid: collections.uid(), cap, env })
    }

    /// Whether a mutation that needs `bytes` more memory may begin; 0 for those that always may.
    ///
    /// # Errors
    /// `TemporaryFailure` when the disk does not take it, or memory does not and cannot be made room in.
    #[inline]
    pub(crate) fn admit(&self, env: &Env<'_>, bytes: usize) -> Result<(), Status> {
        env.shard.gate.admits()?;
        if bytes == 0 || self.is_at_ease(env, bytes) {
            return Ok(());
        }
        self.make_room(env, bytes)
    }

    /// The level that a write is to have; none if it is to have none. What that takes depends on who holds copies
    /// ([`VBucket::level_to_wait_for`]).
    ///
    /// # Errors
    /// See [`durability::level_of`].
    #[inline]
    pub(crate) fn durability(&self, asked: DurabilityLevel) -> Result<Option<DurabilityLevel>, Status> {
        durability::level_of(asked, self.settings.durability_min(), self.options.kind)
    }

    /// Whether a write for which this level was asked has one: that level, or the bucket's least.
    #[inline]
    #[must_use]
    pub fn has_level(&self, asked: DurabilityLevel) -> bool {
        matches!(self.durability(asked), Ok(Some(_)))
    }
}

/// The wire expiry in a request, and whether an existing document's own goes before it.
pub(crate) const fn wire_expiry(expiry: Expiry) -> (u32, bool) {
    match expiry {
        Expiry::Wire(wire) => (wire, false),
        Expiry::Preserve(wire) => (wire, true),
    }
}

/// Bytes of the extended-attributes section at the front of an (uncompressed) value: a length, then as many bytes.
pub(crate) fn xattr_bytes(value: &[u8]) -> usize {
    let declared = value.first_chunk::<4>().map_or(0, |length| u32::from_be_bytes(*length) as usize);
    declared.saturating_add(4).min(value.len())
}
