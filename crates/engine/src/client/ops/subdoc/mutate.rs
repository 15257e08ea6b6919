//! Changes to parts of a document, published as one new version.

use base::{Cas, Datatype, HashedKey, Now, Seqno, Status, VbId, VbUuid, bucket::DurabilityLevel, limits};

use super::{
    draft::{Draft, Start, draft, new_body},
    request::{Change, Precondition, SubdocBound, SubdocMutated, SubdocMutation},
    version::{Facts, Parts, Tombstone, VersionValue, hold, inflated, inflated_len, tombstone},
};
use crate::{
    api::{doc::Mutated, notify::Refusal},
    bucket::Bucket,
    client::ops::{KeyContext, meta::tombstone_on_disk, wire_expiry},
    json::subdoc::xattr::Blob,
    memory::item::{ItemMeta, NewItem, item_bytes},
    shard::Env,
    vbucket::{
        VBucket,
        failover_table::mix,
        version::{Current, Found, Version},
    },
};

/// How often a mutation without a CAS is worked out again because the document changed meanwhile (kv_engine,
/// `SubdocMaxAutoRetries`).
const ATTEMPTS_MAX: usize = 100;
/// Bytes that are looked at and written for one mutation before it is given up as if there had been that many attempts.
/// Somebody may keep touching a document of 20 MiB, and others wait for the thread.
const WORK_BYTES_MAX: usize = 256 << 20;

/// The version that a draft is made from.
struct Base {
    facts: Facts,
    value: VersionValue,
}

impl SubdocMutation<'_> {
    /// Whether the document is to be deleted.
    pub(super) fn deletes(&self) -> bool {
        self.specs.iter().any(|spec| spec.change == Change::DeleteDocument)
    }

    /// About how many bytes are read and written to change a value of that length once. Every change may copy the
    /// document. What it adds is in the document that the next change copies.
    fn work_bytes(&self, base_bytes: usize) -> usize {
        let brought: usize = self.specs.iter().map(|spec| spec.value.len()).sum();
        base_bytes.saturating_add(brought).saturating_mul(self.specs.len() + 1)
    }

    /// Whether a tombstone is more than nothing: to a request that asks for it, and in the way of one that creates another.
    const fn sees_tombstones(&self) -> bool {
        self.access_deleted || self.create_as_deleted
    }
}

impl Bucket {
    /// Changes parts of a document: all that is asked for, or nothing.
    ///
    /// # Errors
    /// What concerns the document as a whole: `KeyNotFound`, `KeyExists`, `Locked`, `TooBig`, `SyncWriteInProgress`,
    /// `SubdocCanOnlyReviveDeletedDocuments`, `SubdocDeletedDocumentCantHaveValue`, `TemporaryFailure` when it keeps
    /// changing meanwhile, and as [`Bucket::store`]. What concerns a part is [`SubdocMutated::Failed`].
    pub fn subdoc_mutate(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        mutation: &SubdocMutation<'_>,
        now: Now,
    ) -> Result<SubdocMutated, Refusal> {
        let mutated = self.subdoc_mutate_within(&SubdocBound::NONE, vb, key, mutation, now)?;
        mutated.ok_or(Refusal::Status(Status::Internal))
    }

    /// As [`Bucket::subdoc_mutate`], within bounds; `None`, with nothing changed, where it would be more work than that.
    ///
    /// # Errors
    /// As [`Bucket::subdoc_mutate`], and what [`SubdocBound::may_publish`] refuses with.
    pub fn subdoc_mutate_within(
        &self,
        bound: &SubdocBound<'_>,
        vb: VbId,
        key: HashedKey<'_>,
        mutation: &SubdocMutation<'_>,
        now: Now,
    ) -> Result<Option<SubdocMutated>, Refusal> {
        let ctx = self.key_context(vb, key, now)?;
        let durable = self.durability(mutation.durability)?;
        if mutation.deletes() {
            ctx.env.shard.gate.admits_deletes()?;
        } else {
            self.admit(&ctx.env, 0)?;
        }
        let mut work_bytes = 0_usize;
        for attempt in 0..ATTEMPTS_MAX {
            let base = base_of(&ctx, key, mutation)?;
            let base_bytes = base
                .as_ref()
                .map_or(0, |base| inflated_len(&base.value, base.facts.datatype, &self.options.codec));
            if work_bytes.saturating_add(mutation.work_bytes(base_bytes)) > bound.work_bytes_max {
                return Ok(None);
            }
            let seed = mix(self.options.seed ^ now.wall_nanos).wrapping_add(attempt as u64);
            let draft = match self.draft_from(base.as_ref(), mutation, seed)? {
                Ok(draft) => draft,
                Err((index, status)) => return Ok(Some(SubdocMutated::Failed(index, status))),
            };
            self.check_draft(&draft)?;
            // A deletion keeps attributes, and may bring some or keep compressed ones inflated: then it grows what is there.
            let draft_bytes = draft.xattrs.len() + draft.body.len();
            let there = base.as_ref().map_or(0, |base| base.value.len());
            if !draft.deletes || draft_bytes > there {
                self.admit(&ctx.env, item_bytes(key.key, draft_bytes))?;
            }
            (bound.may_publish)()?;
            let publication = Publication { ctx: &ctx, vb, key, mutation, base: base.as_ref(), durable };
            if let Some(mutated) = publication.publish(self, &draft)? {
                let was_deleted = base.as_ref().is_some_and(|base| base.facts.deleted);
                let deleted =
                    !mutation.revive && (was_deleted || (base.is_none() && mutation.create_as_deleted));
                return Ok(Some(SubdocMutated::Done { mutated, deleted, counted: draft.counted }));
            }
            if mutation.cas != Cas::NONE {
                return Err(Status::KeyExists.into());
            }
            let after = draft.xattrs.len() + draft.body.len();
            work_bytes += mutation.specs.len() * (base_bytes + after);
            if work_bytes >= WORK_BYTES_MAX {
                break;
            }
        }
        Err(Status::TemporaryFailure.into())
    }

    /// Works the next version out. The inner error is a spec's.
    fn draft_from(
        &self,
        base: Option<&Base>,
        mutation: &SubdocMutation<'_>,
        seed: u64,
    ) -> Result<Result<Draft, (u8, Status)>, Status> {
        let codec = &self.options.codec;
        let Some(base) = base else {
            let body = new_body(mutation);
            let parts = Parts { xattrs: &[], body, is_json: !body.is_empty() };
            return Ok(draft(Start { facts: &NO_FACTS, parts: &parts }, mutation, codec, seed));
        };
        let mut scratch = Vec::new();
        let value = inflated(&base.value, base.facts.datatype, codec, &mut scratch)?;
        let parts = Parts::of(value, base.facts.datatype);
        Ok(draft(Start { facts: &base.facts, parts: &parts }, mutation, codec, seed))
    }

    /// # Errors
    /// `TooBig`: system attributes have an allowance of their own.
    fn check_draft(&self, draft: &Draft) -> Result<(), Status> {
        let blob = Blob::split(&draft.xattrs).map_or(Blob::EMPTY, |(blob, _)| blob);
        let (system_bytes, user_bytes) = blob.shares();
        if system_bytes > limits::XATTR_BYTES_MAX || user_bytes + draft.body.len() > limits::VALUE_BYTES_MAX {
            return Err(Status::TooBig);
        }
        self.check_size(draft.xattrs.len() + draft.body.len())
    }
}

/// Of a document that is only being made.
const NO_FACTS: Facts = Facts {
    cas: Cas::NONE,
    seqno: Seqno(0),
    rev: 0,
    flags: 0,
    expiry: 0,
    datatype: Datatype::RAW,
    deleted: false,
    vb_uuid: VbUuid(0),
    last_cas: Cas::NONE,
};

/// The version to change; `None` when a new document is to be made.
fn base_of(
    ctx: &KeyContext<'_>,
    key: HashedKey<'_>,
    mutation: &SubdocMutation<'_>,
) -> Result<Option<Base>, Refusal> {
    let mut deferred = ctx.deferred();
    let mut v = ctx.lock()?;
    let needs_document = mutation.precondition == Precondition::Exists && !mutation.access_deleted;
    if needs_document && v.is_unseen(&ctx.env, key) {
        return Err(Status::KeyNotFound.into());
    }
    let found = v.settle_for_write(&ctx.env, key, &mut deferred)?;
    let facts_in_memory = |v: &VBucket| {
        let item = v.table.find(key.hash, key.key.encoded()).ok_or(Status::Internal)?;
        let value = hold(item, item.cas(), &ctx.env.shard.arena);
        Ok::<_, Status>(Base { facts: Facts::of_item(v, item, item.cas()), value })
    };
    if let Found::Live(current) = &found {
        if mutation.precondition == Precondition::Absent {
            return Err(Status::KeyExists.into());
        }
        v.check_cas(&ctx.env, key, current, mutation.cas)?;
        if mutation.revive {
            return Err(Status::SubdocCanOnlyReviveDeletedDocuments.into());
        }
        if !current.resident {
            return Err(v.missing(key));
        }
        return Ok(Some(facts_in_memory(&v)?));
    }
    let base = match mutation.sees_tombstones() {
        false => None,
        true => match tombstone(&mut v, &ctx.env, key, &found)? {
            None => None,
            Some(Tombstone::InMemory) => Some(facts_in_memory(&v)?),
            Some(Tombstone::OnDisk(facts, value)) => Some(Base { facts, value: VersionValue::OnDisk(value) }),
        },
    };
    match (&base, mutation.precondition) {
        (Some(_), Precondition::Absent) => Err(Status::KeyExists.into()),
        // A request that wants to change it says so.
        (Some(_), _) if !mutation.access_deleted => Err(Status::KeyExists.into()),
        (Some(base), _) if mutation.cas != Cas::NONE && mutation.cas != base.facts.cas => {
            v.ops.cas_mismatches += 1;
            Err(Status::KeyExists.into())
        }
        (None, Precondition::Exists) => Err(Status::KeyNotFound.into()),
        _ => Ok(base),
    }
}

/// A draft on its way into the table.
struct Publication<'a> {
    ctx: &'a KeyContext<'a>,
    vb: VbId,
    key: HashedKey<'a>,
    mutation: &'a SubdocMutation<'a>,
    base: Option<&'a Base>,
    durable: Option<DurabilityLevel>,
}

impl Publication<'_> {
    /// Puts the draft in the place of the version it was made from; `None` when that is not the newest any more.
    fn publish(&self, bucket: &Bucket, draft: &Draft) -> Result<Option<Mutated>, Refusal> {
        let Self { ctx, key, mutation, .. } = *self;
        let meta = self.meta(draft)?;
        let new = NewItem::concat(&ctx.env.shard.arena, &meta, key.key.encoded(), &draft.xattrs, &draft.body);
        let mut new = new.ok_or_else(|| bucket.out_of_memory())?;

        let mut deferred = ctx.deferred();
        let mut v = ctx.lock()?;
        let found = v.settle_for_write(&ctx.env, key, &mut deferred)?;
        if !self.is_still_newest(&mut v, &ctx.env, &found)? {
            return Ok(None);
        }
        if let Found::Live(current) = &found {
            v.check_cas(&ctx.env, key, current, mutation.cas)?;
            if meta.deleted && !ctx.env.keeps_tombstones() {
                let mutated = v.delete_item(&ctx.env, key, current, false, self.durable, &mut deferred)?;
                v.ops.deletes += 1;
                return Ok(Some(mutated));
            }
        }
        let mut version = Version { cas: None, rev: v.next_rev(&found), durable: self.durable };
        if !draft.blanks.is_empty() {
            let cas = v.next_cas(&ctx.env, None, &mut deferred)?;
            draft.blanks.fill(new.value_mut(), cas, v.high_seqno.next());
            version.cas = Some(cas);
        }
        let mutated = v.put(&ctx.env, key, found.any(), new, version, &mut deferred)?;
        match (found.live().is_some(), meta.deleted) {
            (true, true) => v.ops.deletes += 1,
            (true, false) => v.ops.updates += 1,
            (false, false) => v.ops.creates += 1,
            (false, true) => {}
        }
        Ok(Some(mutated))
    }

    fn meta(&self, draft: &Draft) -> Result<ItemMeta, Status> {
        let Self { ctx, mutation, .. } = *self;
        let old = self.base.map(|base| base.facts);
        let was_deleted = old.map_or(mutation.create_as_deleted, |old| old.deleted);
        let deleted = draft.deletes || (was_deleted && !mutation.revive);
        if deleted && !draft.body.is_empty() {
            return Err(Status::SubdocDeletedDocumentCantHaveValue);
        }
        if draft.deletes && was_deleted && draft.xattrs.is_empty() {
            return Err(Status::KeyNotFound);
        }
        let expiry = match (wire_expiry(mutation.expiry), old) {
            _ if deleted => ctx.env.now.unix_secs().max(1),
            ((_, true), Some(old)) if !old.deleted => old.expiry,
            ((wire, _), _) => ctx.expiry(wire),
        };
        Ok(ItemMeta {
            vb: self.vb,
            flags: if deleted { 0 } else { mutation.flags.unwrap_or(old.map_or(0, |old| old.flags)) },
            expiry,
            datatype: draft.datatype,
            deleted,
            ..ItemMeta::default()
        })
    }

    /// By place and CAS: where the vBucket was emptied meanwhile, or taken back to what others have, another version may be in
    /// the same place.
    ///
    /// # Errors
    /// [`Refusal::Fetch`] when the disk has to be asked (again).
    fn is_still_newest(&self, v: &mut VBucket, env: &Env<'_>, found: &Found) -> Result<bool, Refusal> {
        let Some(base) = self.base else {
            return Ok(match found {
                Found::Live(_) => false,
                Found::Gone(current) => !(self.mutation.sees_tombstones() && current.meta.deleted),
                // A tombstone may have come meanwhile, and left memory again.
                Found::Nothing => {
                    !self.mutation.sees_tombstones() || tombstone_on_disk(v, env, self.key)?.is_none()
                }
            });
        };
        let is_base = |seqno: Seqno, cas: Cas| (seqno, cas) == (base.facts.seqno, base.facts.cas);
        Ok(match found {
            Found::Live(Current { meta, .. }) => !base.facts.deleted && is_base(meta.seqno, meta.cas),
            Found::Gone(Current { meta, .. }) => {
                base.facts.deleted && meta.deleted && is_base(meta.seqno, meta.cas)
            }
            Found::Nothing => {
                let known = tombstone_on_disk(v, env, self.key)?;
                base.facts.deleted && known.is_some_and(|(meta, _)| is_base(meta.seqno, meta.cas))
            }
        })
    }
}
