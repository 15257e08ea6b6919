//! Documents that memory forgets altogether: how a key leaves its vBucket's table for the disk, and how it comes back.
//!
//! In a bucket with full eviction the item pager takes clean documents out of the table. What stays is the key's entry
//! in [`crate::vbucket::cold_keys`], and the document in the vBucket's counts: it exists as before. An operation on a
//! key that the table has not asks the cold keys next. "Surely not" is as good as a table that knows every key. "Maybe"
//! leads to a fetch ([`crate::background::bg_fetcher`]). It brings the newest version on disk back into the table, or
//! notes that the disk has none. Then the request is executed again. So every operation that depends on a key's
//! previous version sees it, and none knows of this.
//!
//! Invariants:
//! - A live document is in the table or among the cold keys.
//! - A key is taken off the cold keys only when its document was found, never because its hash is among them.
//! - Only synced versions leave, and none leaves while the vBucket is being loaded.
//! - Locked documents stay, and so do those that a durable write is about to replace.
//!
//! Whether a bucket evicts keys can change at any time: keys that are cold then come back as they are asked for.

use base::{DocKey, HashedKey, Seqno, Status};

use crate::{
    api::{notify::Refusal, pressure::Pool},
    memory::item::{ItemId, ItemRef, NewItem},
    shard::{Env, Shard, deferred::DeferredEffects},
    vbucket::{
        VBucket,
        cold_set::ColdSet,
        counts::Weight,
        disk_answers::{DiskAnswer, Loss},
        system_events::is_system_key,
        version::{Found, is_due},
    },
};

impl VBucket {
    /// What a key that is not in the table means.
    ///
    /// # Errors
    /// [`Refusal::Fetch`] while only the disk can tell.
    pub(crate) fn settle_absent(&mut self, key: HashedKey<'_>) -> Result<Found, Refusal> {
        if !self.cold.may_contain(key.hash) {
            return Ok(Found::Nothing);
        }
        match self.disk_answers.recall(key.hash, key.key.encoded()) {
            Some(DiskAnswer::Absent | DiskAnswer::Tombstone(..)) => Ok(Found::Nothing),
            Some(DiskAnswer::Unreadable(..)) => Err(Loss::STATUS.into()),
            None => Err(Refusal::Fetch),
        }
    }

    /// Whether reading a key takes the disk, as far as can be told at a glance.
    pub(crate) fn may_be_cold(&self, key: HashedKey<'_>) -> bool {
        match self.table.find(key.hash, key.key.encoded()) {
            Some(item) => !item.is_deleted() && !item.is_resident(),
            None => !self.vouches_for(key, None) || self.cold.may_contain(key.hash),
        }
    }

    /// Takes a clean document out of the table; the disk has it. Whether it went.
    pub(crate) fn evict_to_disk(
        &mut self,
        env: &Env<'_>,
        id: ItemId,
        deferred: &mut DeferredEffects<'_>,
    ) -> bool {
        if !self.may_evict_keys() {
            return false;
        }
        // SAFETY: the caller has the id from this table, under the lock that is still held.
        let item = unsafe { ItemRef::new(&env.shard.arena, id.0) };
        let key = HashedKey::new(DocKey::trusted(item.key()));
        let is_noted =
            self.pending.contains(key) || self.locks.holder(key.hash, key.key.encoded(), env.now).is_some();
        // What has expired is about to go for good.
        let is_leaving = item.is_deleted() || is_due(item.expiry(), env.now);
        if is_leaving || item.is_dirty() || is_system_key(item.key()) || is_noted {
            return false;
        }
        let (collection_key, weight, expiry, seqno) =
            (key.key, Weight::of(item), item.expiry(), item.seqno());
        self.counts.leave(collection_key, weight);
        self.change_cold(env.shard, |cold| cold.insert(key.hash, seqno));
        self.lookups.departed(key.hash);
        if expiry != 0 {
            self.cold_next_expiry = self.cold_next_expiry.min(expiry);
        }
        if let Some(taken) = self.table.remove(key.hash, id) {
            deferred.release(taken);
        }
        true
    }

    /// Whether documents may leave for the disk. They may only once the table and the cold keys together are complete.
    /// They may not while a gathering walks through the table to see all of them.
    pub(crate) fn may_evict_keys(&self) -> bool {
        self.warming.is_none() && self.gathers == 0
    }

    /// Puts an evicted document back into the table, which has no version of its key.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn come_back<'e>(
        &mut self,
        env: &Env<'e>,
        key: HashedKey<'_>,
        new: NewItem<'e>,
    ) -> Result<(), Status> {
        let weight = Weight::of(new.as_ref());
        let (expiry, seqno) = (new.as_ref().expiry(), new.as_ref().seqno());
        if self.table.insert(key.hash, new).is_err() {
            return Err(Status::NoMemory);
        }
        self.counts.come_back(key.key, weight);
        self.change_cold(env.shard, |cold| cold.remove(key.hash, seqno));
        if expiry != 0 {
            self.next_expiry = self.next_expiry.min(expiry);
        }
        Ok(())
    }

    /// An evicted document that cannot be read has been replaced: it does not count any more. What cannot be read may as well
    /// be absent, and another document's short hash be taken for its own. So its cold key stays: one too many makes a look-up, one
    /// too few a document that is lost.
    pub(crate) fn give_up_lost(&mut self, key: HashedKey<'_>) {
        self.counts.lose(key.key);
        self.cold.note_surplus(1);
    }

    /// Whether a key that is not in the table may be one of those that are counted as being on disk only.
    pub(crate) fn is_counted_as_evicted(&self, hash: u64) -> bool {
        self.warming.as_ref().is_none_or(|warming| warming.is_counted) && self.cold.may_contain(hash)
    }

    /// Changes the cold keys and tells the pools what they take.
    pub(crate) fn change_cold<R>(&mut self, shard: &Shard, change: impl FnOnce(&mut ColdSet) -> R) -> R {
        let before = self.cold.memory_bytes() as u64;
        let result = change(&mut self.cold);
        shard.pools.exchange(Pool::ColdIndex, before, self.cold.memory_bytes() as u64);
        result
    }
}

impl VBucket {
    /// Whether the table is right about a key, given what it holds for it.
    #[inline]
    pub(crate) fn vouches_for(&self, key: HashedKey<'_>, found: Option<Seqno>) -> bool {
        self.warming.as_ref().is_none_or(|warming| {
            found.is_some_and(|seqno| seqno > warming.open_seqno)
                || warming.settled.is_some_and(|up_to| key.hash <= up_to)
                || warming.is_verified(key)
        })
    }

    /// Whether a key that is not in the table may still be among those that are being loaded.
    pub(crate) fn is_being_loaded(&self, hash: u64) -> bool {
        self.warming.as_ref().is_some_and(|warming| warming.settled.is_none_or(|up_to| hash > up_to))
    }
}
