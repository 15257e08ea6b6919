//! Lookups of parts of a document.
//!
//! A small document is looked at under the vBucket's lock; a large or compressed one is held by reference and looked
//! at without it.

use base::{Cas, HashedKey, Now, Status, VbId, VbRole};

use super::{
    binary,
    request::{Look, LookedUp, Lookup, LookupSpec},
    version::{Facts, Parts, Tombstone, VersionValue, hold, inflated, inflated_len, tombstone},
    virtuals,
};
use crate::{
    api::notify::Refusal,
    bucket::Bucket,
    client::ops::{
        KeyContext,
        get::{count_use, shown_cas},
    },
    json::subdoc::{self, Path, xattr::Blob},
    memory::item::ItemRef,
    vbucket::{VBucket, version::is_due},
};

use base::Datatype;

/// Documents up to this size are looked at under the lock: about as long as copying them takes.
const LOCKED_BYTES_MAX: usize = 16 << 10;

/// What was found under the lock.
enum Seen {
    /// Everything that was asked has been answered.
    Answered(LookedUp),
    /// The version, to be looked at now.
    Version(Facts, VersionValue),
    /// To look at it is more work than the caller may do.
    TooLarge,
}

impl Bucket {
    /// Looks up parts of a document: `answer` is called once per spec, in order, with a status and what was found.
    /// Nothing slow may happen in it: it may run under the vBucket's lock.
    ///
    /// # Errors
    /// `KeyNotFound`, `KeyExists` on another CAS, and as [`Bucket::get`]; nothing has been answered then.
    pub fn subdoc_lookup(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        lookup: &Lookup<'_>,
        now: Now,
        answer: impl FnMut(Status, &[u8]),
    ) -> Result<LookedUp, Refusal> {
        let looked_up = self.subdoc_lookup_within(usize::MAX, vb, key, lookup, now, answer)?;
        looked_up.ok_or(Refusal::Status(Status::Internal))
    }

    /// As [`Bucket::subdoc_lookup`]; `None`, with nothing answered or counted, where more than so many bytes would have to
    /// be looked at ([`SubdocBound::work_bytes_max`](crate::SubdocBound::work_bytes_max)).
    ///
    /// # Errors
    /// As [`Bucket::subdoc_lookup`].
    pub fn subdoc_lookup_within(
        &self,
        work_bytes_max: usize,
        vb: VbId,
        key: HashedKey<'_>,
        lookup: &Lookup<'_>,
        now: Now,
        mut answer: impl FnMut(Status, &[u8]),
    ) -> Result<Option<LookedUp>, Refusal> {
        let ctx = self.key_context(vb, key, now)?;
        let (facts, held) = match self.see(&ctx, key, lookup, work_bytes_max, &mut answer)? {
            Seen::Answered(done) => return Ok(Some(done)),
            Seen::TooLarge => return Ok(None),
            Seen::Version(facts, held) => (facts, held),
        };
        let mut scratch = Vec::new();
        let value = inflated(&held, facts.datatype, &self.options.codec, &mut scratch)?;
        Ok(Some(answer_all(&facts, value, lookup, now, &mut answer)))
    }

    /// Whether looking at a stored value costs more than so many bytes.
    #[inline]
    fn is_too_large(&self, value: &[u8], datatype: Datatype, lookup: &Lookup<'_>, bytes_max: usize) -> bool {
        let inflates = usize::from(datatype.contains(Datatype::SNAPPY));
        let bytes = inflated_len(value, datatype, &self.options.codec);
        bytes.saturating_mul(lookup.specs.len() + inflates) > bytes_max
    }

    fn see(
        &self,
        ctx: &KeyContext<'_>,
        key: HashedKey<'_>,
        lookup: &Lookup<'_>,
        work_bytes_max: usize,
        answer: &mut impl FnMut(Status, &[u8]),
    ) -> Result<Seen, Refusal> {
        let is_too_large =
            |value: &[u8], datatype| self.is_too_large(value, datatype, lookup, work_bytes_max);
        let now = ctx.env.now;
        let mut deferred = ctx.deferred();
        let role = if lookup.from_replica { VbRole::Replica } else { VbRole::Active };
        let mut guard = ctx.lock_as(role)?;
        let v = &mut *guard;
        // Nothing unusual about the vBucket or the document.
        if v.warming.is_none()
            && !v.pending.may_be_visible(key)
            && let Some(item) = v.table.find(key.hash, key.key.encoded())
            && item.is_resident()
            && !item.is_deleted()
            && !is_due(item.expiry(), now)
        {
            if is_too_large(item.value(), item.datatype()) {
                return Ok(Seen::TooLarge);
            }
            v.ops.get_hits += 1;
            return self.see_item(v, ctx, key, item, lookup, answer);
        }
        let found = match lookup.from_replica {
            true => v.settle_replica(&ctx.env, key)?,
            false => v.settle(&ctx.env, key, &mut deferred)?,
        };
        if let Some(item) = v.shown(&ctx.env, key) {
            if !item.is_resident() {
                return Err(v.missing(key));
            }
            if is_too_large(item.value(), item.datatype()) {
                return Ok(Seen::TooLarge);
            }
            let seen = self.see_item(v, ctx, key, item, lookup, answer);
            v.ops.get_hits += 1;
            return seen;
        }
        let tombstone = if lookup.access_deleted { tombstone(v, &ctx.env, key, &found)? } else { None };
        match tombstone {
            None => {
                v.ops.get_misses += 1;
                Err(Status::KeyNotFound.into())
            }
            Some(Tombstone::InMemory) => {
                let item = v.table.find(key.hash, key.key.encoded()).ok_or(Status::Internal)?;
                if is_too_large(item.value(), item.datatype()) {
                    return Ok(Seen::TooLarge);
                }
                self.see_item(v, ctx, key, item, lookup, answer)
            }
            Some(Tombstone::OnDisk(facts, value)) => {
                check_version(facts.cas, lookup.cas)?;
                if is_too_large(&value, facts.datatype) {
                    return Ok(Seen::TooLarge);
                }
                v.disk_answers.forget_large(key.hash, key.key.encoded());
                Ok(Seen::Version(facts, VersionValue::OnDisk(value)))
            }
        }
    }

    fn see_item(
        &self,
        v: &VBucket,
        ctx: &KeyContext<'_>,
        key: HashedKey<'_>,
        item: ItemRef<'_>,
        lookup: &Lookup<'_>,
        answer: &mut impl FnMut(Status, &[u8]),
    ) -> Result<Seen, Refusal> {
        let now = ctx.env.now;
        let cas = shown_cas(v, key, item, now);
        check_version(cas, lookup.cas)?;
        if !item.is_deleted() {
            count_use(item, v.ops.get_hits);
        }
        let facts = Facts::of_item(v, item, cas);
        let is_plain = !facts.datatype.contains(Datatype::SNAPPY);
        if is_plain && item.value().len() <= LOCKED_BYTES_MAX {
            return Ok(Seen::Answered(answer_all(&facts, item.value(), lookup, now, answer)));
        }
        Ok(Seen::Version(facts, hold(item, cas, &ctx.env.shard.arena)))
    }
}

fn check_version(cas: Cas, wanted: Cas) -> Result<(), Status> {
    if wanted == Cas::NONE || wanted == cas { Ok(()) } else { Err(Status::KeyExists) }
}

fn answer_all(
    facts: &Facts,
    value: &[u8],
    lookup: &Lookup<'_>,
    now: Now,
    answer: &mut impl FnMut(Status, &[u8]),
) -> LookedUp {
    let parts = Parts::of(value, facts.datatype);
    let looker = Looker { facts, parts: &parts, lookup, now };
    let mut complete = true;
    for spec in lookup.specs {
        let result = looker.look(spec, answer);
        if let Err(status) = result {
            complete = false;
            answer(status, &[]);
        }
    }
    LookedUp { cas: facts.cas, deleted: facts.deleted, complete, datatype: facts.datatype }
}

/// One version and what is wanted of it.
struct Looker<'a> {
    facts: &'a Facts,
    parts: &'a Parts<'a>,
    lookup: &'a Lookup<'a>,
    now: Now,
}

impl Looker<'_> {
    /// Answers one spec, unless it fails.
    fn look(&self, spec: &LookupSpec<'_>, answer: &mut impl FnMut(Status, &[u8])) -> Result<(), Status> {
        if spec.what == Look::Body {
            if self.parts.body.is_empty() {
                return Err(Status::SubdocPathNotFound);
            }
            answer(Status::Success, self.parts.body);
            return Ok(());
        }
        if spec.in_xattrs {
            return self.look_in_xattrs(spec, answer);
        }
        if !self.parts.is_json {
            return Err(Status::SubdocDocNotJson);
        }
        look_in_json(self.parts.body, &Path::parse(spec.path)?, spec.what, answer)
    }

    fn look_in_xattrs(
        &self,
        spec: &LookupSpec<'_>,
        answer: &mut impl FnMut(Status, &[u8]),
    ) -> Result<(), Status> {
        if self.lookup.rights.denied {
            return Err(Status::NoAccess);
        }
        let (key, path) = Path::parse_xattr(spec.path)?;
        if key.starts_with(b"$") {
            let lists_system = self.lookup.rights.lists_system;
            let document = virtuals::document(key, self.facts, self.parts, lists_system, self.now)?;
            return look_in_json(document.as_bytes(), &path, spec.what, answer);
        }
        let blob = xattrs_of(self.parts);
        match spec.what {
            Look::Get if spec.is_binary => {
                answer(Status::Success, &binary::decode(blob.lookup(key, &path)?)?);
            }
            Look::Get => answer(Status::Success, blob.lookup(key, &path)?),
            Look::Count => answer(Status::Success, blob.count(key, &path)?.to_string().as_bytes()),
            Look::Exists | Look::Body => {
                blob.lookup(key, &path)?;
                answer(Status::Success, &[]);
            }
        }
        Ok(())
    }
}

fn look_in_json(
    json: &[u8],
    path: &Path<'_>,
    what: Look,
    answer: &mut impl FnMut(Status, &[u8]),
) -> Result<(), Status> {
    match what {
        Look::Get => answer(Status::Success, subdoc::get(json, path)?),
        Look::Count => answer(Status::Success, subdoc::count(json, path)?.to_string().as_bytes()),
        Look::Exists | Look::Body => {
            subdoc::exists(json, path)?;
            answer(Status::Success, &[]);
        }
    }
    Ok(())
}

/// The attributes of a value; none where there is no section.
pub(super) fn xattrs_of<'a>(parts: &Parts<'a>) -> Blob<'a> {
    Blob::split(parts.xattrs).map_or(Blob::EMPTY, |(blob, _)| blob)
}
