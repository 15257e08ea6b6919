//! What callers get: documents seen in place, and the facts about mutations.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use base::{Cas, Datatype, DocKey, Seqno, VbUuid};

use crate::memory::{
    arena::Arena,
    item::{self, ItemRef},
};

/// A document, borrowed for the length of a closure that runs under the vBucket's lock: copy small values,
/// [`DocView::share`] large ones, and do nothing slow.
pub struct DocView<'a> {
    /// Its key.
    pub key: DocKey<'a>,
    /// Its value, as stored (see `datatype`).
    pub value: &'a [u8],
    /// Its CAS; [`Cas::LOCKED`] while somebody holds its lock, the lock CAS for that somebody.
    pub cas: Cas,
    /// Opaque to the server.
    pub flags: u32,
    /// Absolute Unix seconds, 0 for never.
    pub expiry: u32,
    /// What the value is.
    pub datatype: Datatype,
    /// When it was written, in its vBucket's order.
    pub seqno: Seqno,
    /// How often its key has been written.
    pub rev: u64,
    item: ItemRef<'a>,
    arena: &'a Arc<Arena>,
}

impl<'a> DocView<'a> {
    #[inline]
    pub(crate) fn of(item: ItemRef<'a>, cas: Cas, arena: &'a Arc<Arena>) -> Self {
        Self {
            key: DocKey::trusted(item.key()),
            value: item.value(),
            cas,
            flags: item.flags(),
            expiry: item.expiry(),
            datatype: item.datatype(),
            seqno: item.seqno(),
            rev: item.rev(),
            item,
            arena,
        }
    }

    /// The value, to be held across a socket write. Copied only when too many hold it already.
    #[must_use]
    pub fn share(&self) -> SharedValue {
        SharedValue(match self.item.share(self.arena) {
            Some(held) => ValueBytes::InPlace(held),
            None => ValueBytes::Copy(self.value.into()),
        })
    }
}

/// A value that outlives the closure it was seen in.
pub struct SharedValue(ValueBytes);

enum ValueBytes {
    InPlace(item::SharedValue),
    Copy(Box<[u8]>),
    /// From a position on.
    Tail(Arc<[u8]>, usize),
}

impl SharedValue {
    /// Another one of the same value.
    pub(crate) fn again(value: &item::SharedValue) -> Self {
        Self(match value.again() {
            Some(held) => ValueBytes::InPlace(held),
            None => ValueBytes::Copy(value[..].into()),
        })
    }

    /// Bytes from a position on.
    pub(crate) fn tail(bytes: Arc<[u8]>, start: usize) -> Self {
        Self(ValueBytes::Tail(bytes, start))
    }
}

impl Deref for SharedValue {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            ValueBytes::InPlace(value) => value,
            ValueBytes::Copy(value) => value,
            ValueBytes::Tail(bytes, start) => bytes.get(*start..).unwrap_or_default(),
        }
    }
}

impl fmt::Debug for SharedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedValue").field("len", &self.len()).finish()
    }
}

/// What `GET_META` tells, of documents and tombstones alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocMeta {
    /// It is a tombstone.
    pub deleted: bool,
    /// Opaque to the server.
    pub flags: u32,
    /// Absolute expiry, or the time of the deletion.
    pub expiry: u32,
    /// How often the key has been written.
    pub rev: u64,
    /// Its CAS ([`Cas::LOCKED`] while locked).
    pub cas: Cas,
    /// When it was written, in its vBucket's order.
    pub seqno: Seqno,
    /// What the value is.
    pub datatype: Datatype,
}

/// A mutation that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutated {
    /// The document's new CAS.
    pub cas: Cas,
    /// Its place in the vBucket's order.
    pub seqno: Seqno,
    /// The branch of history it is on; with `seqno` the mutation token.
    pub vb_uuid: VbUuid,
    /// It is only prepared, `seqno` being the prepare's: not visible, nor to be acknowledged, before it is on disk. Call
    /// [`crate::Bucket::complete_durable`].
    pub wait: bool,
}

/// Where a document is, for OBSERVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedState {
    /// Not synced yet (0x00).
    InMemory,
    /// Synced (0x01).
    Persisted,
    /// There is no such key (0x80).
    NotFound,
    /// There is a tombstone (0x81).
    Deleted,
}

impl ObservedState {
    /// The byte on the wire.
    #[must_use]
    pub const fn wire(self) -> u8 {
        match self {
            Self::InMemory => 0x00,
            Self::Persisted => 0x01,
            Self::NotFound => 0x80,
            Self::Deleted => 0x81,
        }
    }
}

/// The answer to OBSERVE for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Where it is.
    pub state: ObservedState,
    /// Its CAS, zero when there is nothing.
    pub cas: Cas,
}

/// The answer to `OBSERVE_SEQNO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedSeqno {
    /// The vBucket's current branch.
    pub uuid: VbUuid,
    /// Synced up to here, and whole after a kill.
    pub persisted: Seqno,
    /// Applied up to here.
    pub current: Seqno,
    /// When the given uuid is an older branch: that uuid and the last seqno it is valid for.
    pub failed_over: Option<(VbUuid, Seqno)>,
}

/// How far a durable mutation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// It has reached its level and is visible: answer with this, whose seqno is the version's.
    Committed(Mutated),
    /// The waiter has been noted and will be woken.
    Parked,
}
