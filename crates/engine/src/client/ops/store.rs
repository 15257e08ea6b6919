//! SET, ADD, REPLACE. (Append and prepend are in [`super::concat`].)

use base::{Datatype, HashedKey, Now, Status, VbId};

use super::{wire_expiry, xattr_bytes};
use crate::{
    api::{
        doc::Mutated,
        notify::Refusal,
        request::{Store, StoreMode},
    },
    bucket::Bucket,
    memory::item::{ItemMeta, NewItem, item_bytes},
    vbucket::{
        VBucket,
        version::{Current, Found, Version},
    },
};

impl Bucket {
    /// SET, ADD, REPLACE, APPEND, PREPEND.
    ///
    /// # Errors
    /// Per [`StoreMode`]; `KeyExists` on another CAS, `KeyNotFound` on a CAS for nothing, `Locked`, `TooBig`,
    /// `SyncWriteInProgress`, `TemporaryFailure` when there is no room, and the durability statuses.
    pub fn store(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        store: &Store<'_>,
        now: Now,
    ) -> Result<Mutated, Refusal> {
        if matches!(store.mode, StoreMode::Append | StoreMode::Prepend) {
            return self.concat(vb, key, store, now);
        }
        let ctx = self.key_context(vb, key, now)?;
        let durable = self.durability(store.durability)?;
        self.check_size(store.value.len())?;
        self.admit(&ctx.env, item_bytes(key.key, store.value.len()))?;
        let (wire, preserve) = wire_expiry(store.expiry);
        let mut meta = ItemMeta {
            vb,
            flags: store.flags,
            expiry: ctx.expiry(wire),
            datatype: store.datatype,
            ..ItemMeta::default()
        };
        let arena = &ctx.env.shard.arena;
        let mut new =
            NewItem::new(arena, &meta, key.key.encoded(), store.value).ok_or_else(|| self.out_of_memory())?;

        let mut deferred = ctx.deferred();
        let mut v = ctx.lock()?;
        if store.mode == StoreMode::Replace && v.is_unseen(&ctx.env, key) {
            return Err(Status::KeyNotFound.into());
        }
        let is_replacement = store.mode == StoreMode::Set && store.cas == base::Cas::NONE;
        let (found, is_lost) = if is_replacement {
            v.settle_for_replacement(&ctx.env, key, &mut deferred)?
        } else {
            (v.settle_for_write(&ctx.env, key, &mut deferred)?, false)
        };
        match (store.mode, &found) {
            (StoreMode::Add, Found::Live(_)) => return Err(Status::KeyExists.into()),
            (StoreMode::Replace, Found::Gone(_) | Found::Nothing) => return Err(Status::KeyNotFound.into()),
            (_, Found::Live(current)) => v.check_cas(&ctx.env, key, current, store.cas)?,
            _ if store.cas != base::Cas::NONE => return Err(Status::KeyNotFound.into()),
            _ => {}
        }
        if let Some(current) = found.live() {
            let keeps_expiry = preserve && current.meta.expiry != meta.expiry;
            if keeps_expiry {
                meta.expiry = current.meta.expiry;
            }
            let keeps_xattrs =
                current.meta.datatype.contains(Datatype::XATTR) && !store.datatype.contains(Datatype::XATTR);
            let value = match keeps_xattrs {
                true => self.with_xattrs_of(&mut v, key, current, store, is_replacement)?,
                false => None,
            };
            if let Some(value) = value {
                meta.datatype = store.datatype.without(Datatype::SNAPPY).with(Datatype::XATTR);
                self.check_size(value.len())?;
                new = NewItem::new(arena, &meta, key.key.encoded(), &value)
                    .ok_or_else(|| self.out_of_memory())?;
            } else if keeps_expiry {
                new = NewItem::new(arena, &meta, key.key.encoded(), store.value)
                    .ok_or_else(|| self.out_of_memory())?;
            }
        }
        let version = Version { cas: None, rev: v.next_rev(&found), durable };
        let mutated = v.put(&ctx.env, key, found.any(), new, version, &mut deferred)?;
        if is_lost && mutated.wait {
            v.pending.replaces_lost(key);
        } else if is_lost {
            v.give_up_lost(key);
        }
        if found.live().is_some() {
            v.ops.updates += 1;
        } else {
            v.ops.creates += 1;
        }
        Ok(mutated)
    }

    /// # Errors
    /// `TooBig`.
    pub(super) fn check_size(&self, value_bytes: usize) -> Result<(), Status> {
        if value_bytes > self.settings.value_bytes_max() { Err(Status::TooBig) } else { Ok(()) }
    }

    /// The new body behind the extended attributes of the document it replaces: those survive writes that know nothing
    /// of them. None: they are lost to damage on disk, as everything else of a document that is replaced.
    fn with_xattrs_of(
        &self,
        v: &mut VBucket,
        key: HashedKey<'_>,
        current: &Current,
        store: &Store<'_>,
        is_replacement: bool,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let is_damaged = v.disk_answers.is_damaged(key.hash, key.key.encoded());
        let mut value = match self.plain_value(v, key, current) {
            Err(Refusal::Status(status)) if is_replacement && (is_damaged || status == Status::Internal) => {
                return Ok(None);
            }
            value => value?,
        };
        value.truncate(xattr_bytes(&value));
        if store.datatype.contains(Datatype::SNAPPY) {
            if !(self.options.codec.inflate)(store.value, &mut value) {
                return Err(Status::Invalid.into());
            }
        } else {
            value.extend_from_slice(store.value);
        }
        Ok(Some(value))
    }

    /// A copy of a live document's value, uncompressed.
    ///
    /// # Errors
    /// [`Refusal::Fetch`] when it is not in memory.
    pub(super) fn plain_value(
        &self,
        v: &mut VBucket,
        key: HashedKey<'_>,
        current: &Current,
    ) -> Result<Vec<u8>, Refusal> {
        if !current.resident {
            return Err(v.missing(key));
        }
        let Some(item) = v.table.find(key.hash, key.key.encoded()) else {
            return Err(Status::Internal.into());
        };
        if !current.meta.datatype.contains(Datatype::SNAPPY) {
            return Ok(item.value().to_vec());
        }
        let mut plain = Vec::new();
        if (self.options.codec.inflate)(item.value(), &mut plain) {
            Ok(plain)
        } else {
            Err(Status::Internal.into())
        }
    }
}
