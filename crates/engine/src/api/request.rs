//! What callers ask for: mutations as plain data, borrowed from the request's buffer.

use base::{Cas, Datatype, bucket::DurabilityLevel};

/// Which precondition a store has, and what becomes of an existing value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// Create or overwrite.
    Set,
    /// Create; `KeyExists` when there is a document.
    Add,
    /// Overwrite; `KeyNotFound` when there is none.
    Replace,
    /// Put the value behind the existing one; `NotStored` when there is none. Flags and expiry stay.
    Append,
    /// Put the value before the existing one; `NotStored` when there is none. Flags and expiry stay.
    Prepend,
}

/// The expiry a mutation asks for, as on the wire (0 none, up to 30 days relative seconds, else absolute).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// This one, replacing the document's.
    Wire(u32),
    /// The document's own; this one when there is no document yet.
    Preserve(u32),
}

impl Default for Expiry {
    fn default() -> Self {
        Self::Wire(0)
    }
}

/// SET, ADD, REPLACE, APPEND, PREPEND.
#[derive(Clone, Copy, Debug)]
pub struct Store<'a> {
    /// Which of them.
    pub mode: StoreMode,
    /// The value; for append and prepend always uncompressed.
    pub value: &'a [u8],
    /// What the value is. Checked by the caller.
    pub datatype: Datatype,
    /// Opaque to the server; ignored for append and prepend.
    pub flags: u32,
    /// Ignored for append and prepend.
    pub expiry: Expiry,
    /// Optimistic lock, or [`Cas::NONE`].
    pub cas: Cas,
    /// Asked for; raised to the bucket's minimum.
    pub durability: DurabilityLevel,
}

impl<'a> Store<'a> {
    /// A plain overwrite without flags, expiry, CAS or durability.
    #[must_use]
    pub const fn set(value: &'a [u8]) -> Self {
        Self {
            mode: StoreMode::Set,
            value,
            datatype: Datatype::RAW,
            flags: 0,
            expiry: Expiry::Wire(0),
            cas: Cas::NONE,
            durability: DurabilityLevel::None,
        }
    }
}

/// DELETE.
#[derive(Clone, Copy, Debug)]
pub struct Delete {
    /// Optimistic lock, or [`Cas::NONE`].
    pub cas: Cas,
    /// Asked for; raised to the bucket's minimum.
    pub durability: DurabilityLevel,
}

impl Default for Delete {
    fn default() -> Self {
        Self { cas: Cas::NONE, durability: DurabilityLevel::None }
    }
}

/// INCREMENT and DECREMENT.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// How much.
    pub delta: u64,
    /// Down (stopping at 0) instead of up (wrapping at 2^64).
    pub decrement: bool,
    /// The number to create the document with; `None`: `KeyNotFound` when there is none.
    pub initial: Option<u64>,
    /// Expiry of a document that is created; an existing one keeps its own.
    pub expiry: Expiry,
    /// Optimistic lock, or [`Cas::NONE`].
    pub cas: Cas,
    /// Asked for; raised to the bucket's minimum.
    pub durability: DurabilityLevel,
}

/// `SET_WITH_META`, `ADD_WITH_META`, `DELETE_WITH_META`: a mutation that happened on another cluster.
#[derive(Clone, Copy, Debug)]
pub struct WithMeta<'a> {
    /// The CAS of the document there.
    pub cas: Cas,
    /// Its revision number there.
    pub rev: u64,
    /// Its flags.
    pub flags: u32,
    /// Its expiry, absolute seconds; of a deletion, the time it happened (0: now).
    pub expiry: u32,
    /// Its value; of a deletion nothing but attributes. System attributes of the local document are kept if it brings
    /// none.
    pub value: &'a [u8],
    /// What the value is.
    pub datatype: Datatype,
    /// Optimistic lock on the local document, or [`Cas::NONE`].
    pub check_cas: Cas,
    /// Only create: `KeyExists` when there is a local document.
    pub add_only: bool,
    /// Skip conflict resolution.
    pub skip_conflict_resolution: bool,
    /// The sender knows that this bucket resolves by last write; required there (unless the CAS is generated anew),
    /// refused elsewhere.
    pub accept_lww: bool,
    /// Give the local document a CAS of its own; needs `skip_conflict_resolution`.
    pub regenerate_cas: bool,
    /// The deletion was an expiration.
    pub is_expiration: bool,
}

impl<'a> WithMeta<'a> {
    /// A mutation with these essentials and no option.
    #[must_use]
    pub const fn new(cas: Cas, rev: u64, value: &'a [u8]) -> Self {
        Self {
            cas,
            rev,
            flags: 0,
            expiry: 0,
            value,
            datatype: Datatype::RAW,
            check_cas: Cas::NONE,
            add_only: false,
            skip_conflict_resolution: false,
            accept_lww: false,
            regenerate_cas: false,
            is_expiration: false,
        }
    }
}
