//! Changes and lookups of parts of documents, and versions from another cluster. Beside its number a document may have a mark, an
//! attribute of the system. It is a register of its own, which plain writes leave as it is. It outlives a deletion, until the tombstone
//! goes or a write replaces it.

use base::{Cas, Datatype, HashedKey, Now, Status, VbId, bucket::DurabilityLevel};
use engine::{
    Bucket, Change, Expiry, Look, Lookup, LookupSpec, Mutated, MutationSpec, Precondition, Refusal,
    SubdocMutated, SubdocMutation, ValueForm, WithMeta, XattrRights,
};

use crate::{
    operation::{decode_value, encode_value, flags_of},
    support::START_SECS,
};

/// The attribute.
const MARK: &[u8] = b"_mark";

/// A number, and a mark.
pub(crate) type Looked = (Option<u64>, Option<u64>);

/// What of a document is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The number, if there is a document.
    Number,
    /// The mark, if there is a document.
    Mark,
    /// All of it, and the mark, at once.
    Both,
    /// The mark alone, where there is neither a document nor a tombstone: it is created as deleted.
    Staged,
}

impl Part {
    pub(crate) const ALL: [Self; 4] = [Self::Number, Self::Mark, Self::Both, Self::Staged];
}

/// Changes that part of a document to a number.
pub(crate) fn change(
    engine: &Bucket,
    (vb, key): (VbId, HashedKey<'_>),
    (part, number, filler): (Part, u64, usize),
    durability: DurabilityLevel,
    now: Now,
) -> Result<Mutated, Refusal> {
    let (text, whole) = (number.to_string().into_bytes(), encode_value(number, filler));
    let mark = spec(Change::DictUpsert, MARK, &text, true);
    let field = spec(Change::DictUpsert, b"n", &text, false);
    let body = spec(Change::SetBody, b"", &whole, false);
    let (specs, precondition) = match part {
        Part::Number => (&[field][..], Precondition::Exists),
        Part::Mark => (&[mark][..], Precondition::Exists),
        Part::Both => (&[mark, body][..], Precondition::Any),
        Part::Staged => (&[mark][..], Precondition::Absent),
    };
    let is_staged = part == Part::Staged;
    let mutation = SubdocMutation {
        specs,
        precondition,
        access_deleted: is_staged,
        create_as_deleted: is_staged,
        revive: false,
        expiry: Expiry::Preserve(0),
        flags: None,
        cas: Cas::NONE,
        durability,
        rights: XattrRights::default(),
    };
    match engine.subdoc_mutate(vb, key, &mutation, now)? {
        SubdocMutated::Done { mutated, deleted, .. } => {
            assert_eq!(deleted, is_staged, "{part:?} of {key:?}");
            Ok(mutated)
        }
        SubdocMutated::Failed(_, status) => panic!("{part:?} of {key:?}: {status:?}"),
    }
}

/// The number and the mark, also that of a tombstone.
pub(crate) fn look(engine: &Bucket, (vb, key): (VbId, HashedKey<'_>), now: Now) -> Result<Looked, Refusal> {
    let specs = [
        LookupSpec { what: Look::Get, path: MARK, in_xattrs: true, is_binary: false },
        LookupSpec { what: Look::Body, path: b"", in_xattrs: false, is_binary: false },
    ];
    let lookup = Lookup {
        specs: &specs,
        access_deleted: true,
        from_replica: false,
        cas: Cas::NONE,
        rights: XattrRights::default(),
    };
    let mut found = Vec::new();
    let looked_up = engine.subdoc_lookup(vb, key, &lookup, now, |status, value| {
        found.push((status == Status::Success).then(|| value.to_vec()));
    })?;
    let [mark, body] = &found[..] else { panic!("two were asked for: {found:?}") };
    let number = |text: &Vec<u8>| std::str::from_utf8(text).unwrap().parse().unwrap();
    let body = body.as_deref().filter(|_| !looked_up.deleted).map(decode_value);
    Ok((body, mark.as_ref().map(number)))
}

/// The date of versions that come from elsewhere: before any of this cluster.
const ELSEWHERE_NANOS: u64 = (START_SECS - 1_000_000) * 1_000_000_000;

/// Another cluster's version, with its number as revision and CAS.
pub(crate) fn from_elsewhere(
    engine: &Bucket,
    (vb, key): (VbId, HashedKey<'_>),
    (number, filler, deletes): (u64, usize, bool),
    now: Now,
) -> Result<Mutated, Refusal> {
    let (cas, value) = (Cas(ELSEWHERE_NANOS + number), encode_value(number, filler));
    if deletes {
        return engine.delete_with_meta(vb, key, &WithMeta::new(cas, number, b""), now);
    }
    let (flags, datatype) = (flags_of(number), Datatype::JSON);
    let with_meta = WithMeta { flags, datatype, ..WithMeta::new(cas, number, &value) };
    engine.set_with_meta(vb, key, &with_meta, now)
}

fn spec<'a>(change: Change, path: &'a [u8], value: &'a [u8], in_xattrs: bool) -> MutationSpec<'a> {
    MutationSpec { change, path, value, form: ValueForm::Plain, in_xattrs, create_parents: false }
}
