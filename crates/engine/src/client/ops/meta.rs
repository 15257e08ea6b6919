//! GET_META and the with-meta writes: what replication between clusters asks, tombstones included.
//!
//! A tombstone that is synced has left memory, so a key that is not in the table may still have one on disk. Where
//! the vBucket has ever seen a deletion the disk is asked; where it has not, there is nothing to ask for.

use std::sync::Arc;

use base::{Cas, Datatype, HashedKey, Now, Status, VbId, bucket::ConflictResolution};

use super::KeyContext;
use crate::{
    api::{
        doc::{DocMeta, Mutated},
        notify::Refusal,
        request::WithMeta,
    },
    bucket::Bucket,
    client::conflict::{self, Contender},
    json::subdoc::xattr::{Blob, Builder},
    memory::{
        item::{ItemMeta, ItemRef, NewItem, item_bytes},
        item_kind::mark_expired,
    },
    shard::{Env, deferred::DeferredEffects},
    vbucket::{
        VBucket,
        disk_answers::{DiskAnswer, Loss},
        hlc,
        version::{Found, Version},
    },
};

/// Revisions have 48 bits, and one from elsewhere has to leave room for those to come.
const REV_MAX: u64 = 1 << 47;

impl Bucket {
    /// GET_META: metadata of a document or tombstone.
    ///
    /// # Errors
    /// `KeyNotFound` when there is neither.
    pub fn meta(&self, vb: VbId, key: HashedKey<'_>, now: Now) -> Result<DocMeta, Refusal> {
        let ctx = self.key_context(vb, key, now)?;
        let mut deferred = ctx.deferred();
        let mut v = ctx.lock()?;
        let found = v.settle(&ctx.env, key, &mut deferred)?;
        if let Some(item) = v.shown(&ctx.env, key) {
            let is_locked = v.locks.holder(key.hash, key.key.encoded(), now).is_some();
            let cas = if is_locked { Cas::LOCKED } else { item.cas() };
            return Ok(DocMeta { cas, ..meta_of(item) });
        }
        match known_version(&mut v, &ctx.env, key, &found)? {
            Some(meta) if meta.deleted => Ok(meta),
            _ => Err(Status::KeyNotFound.into()),
        }
    }

    /// `SET_WITH_META`, `ADD_WITH_META`.
    ///
    /// # Errors
    /// - `KeyExists` when the local version wins or the CAS differs
    /// - `KeyNotFound` on a CAS for nothing
    /// - `Locked`
    /// - `Invalid` on options that contradict each other or the bucket
    /// - `CasValueInvalid` on an impossible CAS
    pub fn set_with_meta(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        with_meta: &WithMeta<'_>,
        now: Now,
    ) -> Result<Mutated, Refusal> {
        self.check_with_meta(with_meta, now)?;
        let ctx = self.key_context(vb, key, now)?;
        self.check_size(with_meta.value.len())?;
        self.admit(&ctx.env, item_bytes(key.key, with_meta.value.len()))?;
        let meta = ItemMeta {
            vb,
            flags: with_meta.flags,
            expiry: ctx.capped(with_meta.expiry),
            datatype: with_meta.datatype,
            ..ItemMeta::default()
        };
        let new = NewItem::new(&ctx.env.shard.arena, &meta, key.key.encoded(), with_meta.value)
            .ok_or_else(|| self.out_of_memory())?;
        let mut deferred = ctx.deferred();
        let mut v = ctx.lock()?;
        let found = self.admit_with_meta(&ctx, &mut v, key, with_meta, false, &mut deferred)?;
        let mutated = v.put(&ctx.env, key, found.any(), new, version(with_meta), &mut deferred)?;
        if found.live().is_some() {
            v.ops.updates += 1;
        } else {
            v.ops.creates += 1;
        }
        Ok(mutated)
    }

    /// `DELETE_WITH_META`: leaves a tombstone even where there was nothing.
    ///
    /// # Errors
    /// As [`Bucket::set_with_meta`].
    pub fn delete_with_meta(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        with_meta: &WithMeta<'_>,
        now: Now,
    ) -> Result<Mutated, Refusal> {
        self.check_with_meta(with_meta, now)?;
        let ctx = self.key_context(vb, key, now)?;
        self.check_size(with_meta.value.len())?;
        ctx.env.shard.gate.admits_deletes()?;
        let fits = self.fits_reserve(&ctx.env, item_bytes(key.key, with_meta.value.len()));
        let deleted_at = if with_meta.expiry == 0 { now.unix_secs() } else { with_meta.expiry };
        let mut meta = ItemMeta {
            vb,
            expiry: deleted_at.max(1),
            datatype: with_meta.datatype,
            deleted: true,
            ..ItemMeta::default()
        };
        let mut deferred = ctx.deferred();
        let mut v = ctx.lock()?;
        let found = self.admit_with_meta(&ctx, &mut v, key, with_meta, true, &mut deferred)?;
        // A deletion of what is there frees memory, unless it brings more than that; of what is not there it takes some.
        let there = v.table.find(key.hash, key.key.encoded()).map_or(0, |item| item.value_len());
        let grows = with_meta.value.len() > there;
        if !fits && (grows || found.live().is_none()) {
            return Err(self.out_of_room(&ctx.env).into());
        }
        if grows {
            ctx.env.shard.gate.admits()?;
        }
        let kept = if with_meta.value.is_empty() && ctx.env.keeps_tombstones() {
            attributes_to_keep(&mut v, &ctx.env, key, &found)?
        } else {
            Vec::new()
        };
        let value = if kept.is_empty() {
            with_meta.value
        } else {
            meta.datatype = Datatype::XATTR;
            &kept
        };
        let mut tombstone = NewItem::new(&ctx.env.shard.arena, &meta, key.key.encoded(), value)
            .ok_or_else(|| self.out_of_memory())?;
        mark_expired(&mut tombstone, with_meta.is_expiration);
        let mutated = v.put(&ctx.env, key, found.any(), tombstone, version(with_meta), &mut deferred)?;
        if found.live().is_some() {
            v.ops.deletes += 1;
        }
        if !ctx.env.keeps_tombstones()
            && let Some(item) = v.table.find(key.hash, key.key.encoded())
        {
            let id = item.id();
            v.evict(&ctx.env, key, id, &mut deferred);
        }
        Ok(mutated)
    }

    /// Whether the options fit each other, the bucket and the clock.
    fn check_with_meta(&self, with_meta: &WithMeta<'_>, now: Now) -> Result<(), Status> {
        let by_revision = self.options.conflict == ConflictResolution::Seqno;
        let insists = with_meta.accept_lww || with_meta.regenerate_cas;
        let contradicts = (with_meta.regenerate_cas && !with_meta.skip_conflict_resolution)
            || (by_revision && with_meta.accept_lww)
            || (!by_revision && !insists);
        if contradicts || with_meta.rev > REV_MAX {
            return Err(Status::Invalid);
        }
        if !with_meta.regenerate_cas && !hlc::is_acceptable(with_meta.cas, now) {
            return Err(Status::CasValueInvalid);
        }
        Ok(())
    }

    /// Whether the incoming version is to be stored, and what it replaces.
    fn admit_with_meta(
        &self,
        ctx: &KeyContext<'_>,
        v: &mut VBucket,
        key: HashedKey<'_>,
        with_meta: &WithMeta<'_>,
        is_deletion: bool,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<Found, Refusal> {
        let found = v.settle_for_write(&ctx.env, key, deferred)?;
        // What loses has lost, locked or not: the sender need not try again.
        if !with_meta.skip_conflict_resolution
            && let Some(local) = known_version(v, &ctx.env, key, &found)?
        {
            let local = Contender {
                rev: local.rev,
                cas: local.cas,
                expiry: local.expiry,
                flags: local.flags,
                datatype: local.datatype,
            };
            let incoming = Contender {
                rev: with_meta.rev,
                cas: with_meta.cas,
                expiry: with_meta.expiry,
                flags: with_meta.flags,
                datatype: with_meta.datatype,
            };
            if !conflict::incoming_wins(self.options.conflict, &local, &incoming, is_deletion) {
                return Err(Status::KeyExists.into());
            }
        }
        match &found {
            Found::Live(_) if with_meta.add_only => return Err(Status::KeyExists.into()),
            Found::Live(current) => v.check_cas(&ctx.env, key, current, with_meta.check_cas)?,
            Found::Gone(_) | Found::Nothing if with_meta.check_cas != Cas::NONE => {
                return Err(Status::KeyNotFound.into());
            }
            Found::Gone(_) | Found::Nothing => {}
        }
        Ok(found)
    }
}

fn version(with_meta: &WithMeta<'_>) -> Version {
    let cas = (!with_meta.regenerate_cas).then_some(with_meta.cas);
    Version { cas, rev: with_meta.rev, durable: None }
}

/// The system attributes of what a deletion that brings none of its own replaces: a document, or a tombstone.
///
/// # Errors
/// [`Refusal::Fetch`] when the disk has to be asked.
fn attributes_to_keep(
    v: &mut VBucket,
    env: &Env<'_>,
    key: HashedKey<'_>,
    found: &Found,
) -> Result<Vec<u8>, Refusal> {
    if let Some(current) = found.any() {
        return v.system_xattrs(key, current);
    }
    match tombstone_on_disk(v, env, key)? {
        Some((meta, value)) if meta.datatype.contains(Datatype::XATTR) => {
            let mut kept = Builder::from_blob(&Blob::split(&value)?.0);
            kept.keep_system();
            Ok(kept.finish())
        }
        _ => Ok(Vec::new()),
    }
}

/// A tombstone and its value.
type WithValue = (DocMeta, Arc<[u8]>);

/// A key's tombstone on disk with its value, [`VBucket::settle`] having found nothing.
///
/// # Errors
/// [`Refusal::Fetch`] when the disk has to be asked.
pub(super) fn tombstone_on_disk(
    v: &mut VBucket,
    env: &Env<'_>,
    key: HashedKey<'_>,
) -> Result<Option<WithValue>, Refusal> {
    // While the table is being filled it keeps every tombstone.
    if !env.is_persistent() || v.is_being_loaded(key.hash) || v.max_deleted_rev == 0 {
        return Ok(None);
    }
    match v.disk_answers.recall(key.hash, key.key.encoded()) {
        Some(DiskAnswer::Absent) => Ok(None),
        Some(DiskAnswer::Tombstone(meta, value)) => Ok(Some((meta, value))),
        Some(DiskAnswer::Unreadable(..)) => Err(Loss::STATUS.into()),
        None => Err(Refusal::Fetch),
    }
}

/// The newest version of a key, tombstones on disk included.
///
/// # Errors
/// [`Refusal::Fetch`] when the disk has to be asked.
fn known_version(
    v: &mut VBucket,
    env: &Env<'_>,
    key: HashedKey<'_>,
    found: &Found,
) -> Result<Option<DocMeta>, Refusal> {
    if let Some(current) = found.any() {
        let meta = &current.meta;
        return Ok(Some(DocMeta {
            deleted: meta.deleted,
            flags: meta.flags,
            expiry: meta.expiry,
            rev: meta.rev,
            cas: meta.cas,
            seqno: meta.seqno,
            datatype: meta.datatype,
        }));
    }
    Ok(tombstone_on_disk(v, env, key)?.map(|(meta, _)| meta))
}

fn meta_of(item: ItemRef<'_>) -> DocMeta {
    DocMeta {
        deleted: item.is_deleted(),
        flags: item.flags(),
        expiry: item.expiry(),
        rev: item.rev(),
        cas: item.cas(),
        seqno: item.seqno(),
        datatype: item.datatype(),
    }
}
