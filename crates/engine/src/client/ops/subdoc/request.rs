//! What callers ask of parts of documents, and what they get.

use base::{Cas, Datatype, Status, bucket::DurabilityLevel};

use crate::api::{doc::Mutated, request::Expiry};

/// A lookup of one part.
#[derive(Clone, Copy, Debug)]
pub struct LookupSpec<'a> {
    /// What to tell of it.
    pub what: Look,
    /// Where it is; with [`LookupSpec::in_xattrs`] the first component is the attribute's key, which has been checked.
    pub path: &'a [u8],
    /// It is in the extended attributes.
    pub in_xattrs: bool,
    /// The value was stored as binary, and is wanted as such.
    pub is_binary: bool,
}

/// See [`LookupSpec::what`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Its value.
    Get,
    /// Whether it is there.
    Exists,
    /// How many members or elements it has.
    Count,
    /// The whole body.
    Body,
}

/// Several lookups in one version of a document.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// What to look up.
    pub specs: &'a [LookupSpec<'a>],
    /// Look at a tombstone where there is no document.
    pub access_deleted: bool,
    /// Look into a replica instead of the active copy.
    pub from_replica: bool,
    /// The version it has to be, or [`Cas::NONE`].
    pub cas: Cas,
    /// What the caller may see of the extended attributes.
    pub rights: XattrRights,
}

/// What a caller may do with extended attributes. Judged by the caller, who knows keys and rights.
#[derive(Clone, Copy, Debug, Default)]
pub struct XattrRights {
    /// A spec goes into an attribute that is out of bounds: all specs into attributes are refused.
    pub denied: bool,
    /// `$XTOC` lists system attributes, too.
    pub lists_system: bool,
}

/// What became of a [`Lookup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookedUp {
    /// The version looked at; [`Cas::LOCKED`] while it is locked.
    pub cas: Cas,
    /// It is a tombstone.
    pub deleted: bool,
    /// Every lookup succeeded.
    pub complete: bool,
    /// What the body is.
    pub datatype: Datatype,
}

/// What a caller lets an operation on parts of a document take.
#[derive(Clone, Copy)]
pub struct SubdocBound<'a> {
    /// Bytes of documents that are looked at and written for it, about: every part costs its document once.
    pub work_bytes_max: usize,
    /// Asked before a change is published, which may be a good while after the call.
    pub may_publish: &'a dyn Fn() -> Result<(), Status>,
}

impl SubdocBound<'static> {
    /// Whatever it takes.
    pub const NONE: Self = Self { work_bytes_max: usize::MAX, may_publish: &|| Ok(()) };
}

/// A change of one part.
#[derive(Clone, Copy, Debug)]
pub struct MutationSpec<'a> {
    /// What to do.
    pub change: Change,
    /// Where; empty for whole bodies. As [`LookupSpec::path`].
    pub path: &'a [u8],
    /// With what.
    pub value: &'a [u8],
    /// What the value is.
    pub form: ValueForm,
    /// It is in the extended attributes.
    pub in_xattrs: bool,
    /// Create the objects on the way.
    pub create_parents: bool,
}

/// See [`MutationSpec::change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "those without a word are crate::json::subdoc::Edit's")]
pub enum Change {
    DictAdd,
    DictUpsert,
    Delete,
    Replace,
    PushLast,
    PushFirst,
    Insert,
    AddUnique,
    Counter,
    /// Another body.
    SetBody,
    /// The document is to be deleted; system attributes stay with the tombstone.
    DeleteDocument,
    /// The attribute at the path becomes the body.
    BodyFromXattr,
}

/// See [`MutationSpec::form`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    /// JSON, or whatever the change takes.
    Plain,
    /// The name of a macro, to be expanded.
    Macro,
    /// Any bytes, kept as text. Of [`Change::BodyFromXattr`]: the attribute is such text.
    Binary,
}

/// What has to be there before a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// A document.
    Exists,
    /// Nothing.
    Absent,
    /// Either; what is not there is created.
    Any,
}

/// Several changes to one document: all of them, or none.
#[derive(Clone, Copy, Debug)]
pub struct SubdocMutation<'a> {
    /// What to change, those in attributes first.
    pub specs: &'a [MutationSpec<'a>],
    /// What has to be there.
    pub precondition: Precondition,
    /// A tombstone counts as a document.
    pub access_deleted: bool,
    /// What is created is a tombstone.
    pub create_as_deleted: bool,
    /// The tombstone becomes a document.
    pub revive: bool,
    /// The document's expiry from now on.
    pub expiry: Expiry,
    /// Its flags from now on; `None`: those it has.
    pub flags: Option<u32>,
    /// Optimistic lock, or [`Cas::NONE`].
    pub cas: Cas,
    /// Asked for; raised to the bucket's minimum.
    pub durability: DurabilityLevel,
    /// What the caller may change of the extended attributes.
    pub rights: XattrRights,
}

/// What became of a [`SubdocMutation`].
#[derive(Clone, Debug)]
pub enum SubdocMutated {
    /// All changes were made.
    Done {
        /// The mutation.
        mutated: Mutated,
        /// It was made to a tombstone.
        deleted: bool,
        /// What counters count to, by index of their spec.
        counted: Vec<(u8, i64)>,
    },
    /// The change at this index could not be made, so none was.
    Failed(u8, Status),
}
