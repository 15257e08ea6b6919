//! One item of a feed: a reference to a version in memory, or a copy of a record from disk.

use std::fmt;
use std::sync::Arc;

use base::{Cas, Datatype, DocKey, Seqno, bucket::DurabilityLevel};
use storage::{Record, RecordKind};

use crate::{
    api::doc::SharedValue,
    memory::{
        arena::Arena,
        item::{self, ItemPtr, ItemRef},
        item_kind::{kept_flags, kind_of},
    },
    vbucket::{
        prepares::aborted,
        system_events::{SystemEvent, is_system_key},
    },
};

/// What an item says about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeedKind {
    /// The document has this value.
    Mutation,
    /// The document was deleted; a value, if any, is its system xattrs.
    Deletion,
    /// The document was deleted because it had expired.
    Expiration,
    /// Something happened to the collections.
    System,
    /// A durable write is in progress: the document is going to have this value, or to be deleted.
    Prepare,
    /// A durable write has failed: see [`FeedItem::prepared`].
    Abort,
}

/// A version of a document, or a system event.
pub struct FeedItem {
    /// Its place in the vBucket's order.
    pub seqno: Seqno,
    /// Its CAS.
    pub cas: Cas,
    /// How often its key has been written.
    pub rev: u64,
    /// Opaque to the server.
    pub flags: u32,
    /// Absolute Unix seconds, 0 never; of a deletion the time of it.
    pub expiry: u32,
    /// What the value is (was, where the feed asked for keys only).
    pub datatype: Datatype,
    /// What it says.
    pub kind: FeedKind,
    /// Whether the key does not exist any more; tells apart system events and prepares too.
    pub deleted: bool,
    /// The prepare that a mutation or deletion commits (known from memory only), or an abort ends; zero: none.
    pub prepared: Seqno,
    /// What a prepare is to wait for.
    pub level: DurabilityLevel,
    body: Body,
}

enum Body {
    /// In the arena.
    InArena { version: item::SharedValue, has_value: bool },
    /// Key, then value.
    Copy { bytes: Arc<[u8]>, key_bytes: usize },
}

impl FeedItem {
    /// Under the vBucket's lock: refers to a resident version. Copies it when it has too many references already.
    pub(crate) fn of_version(item: ItemRef<'_>, arena: &Arc<Arena>, keys_only: bool) -> Self {
        let has_value = has_value(item.key(), keys_only) && kind_of(item) != RecordKind::Abort;
        let body = match item.share(arena) {
            Some(version) => Body::InArena { version, has_value },
            None => copied(item.key(), if has_value { item.value() } else { &[] }),
        };
        Self::with_body(item, body)
    }

    /// Takes over a reference to a resident version.
    pub(crate) fn of_held(held: ItemPtr, arena: &Arc<Arena>, keys_only: bool) -> Self {
        let version = item::SharedValue::of(held, arena);
        let has_value = has_value(version.item().key(), keys_only);
        let mut new = Self::with_body(version.item(), Body::Copy { bytes: Arc::default(), key_bytes: 0 });
        new.body = Body::InArena { version, has_value };
        new
    }

    fn with_body(item: ItemRef<'_>, body: Body) -> Self {
        let kind = kind_of(item);
        Self {
            seqno: item.seqno(),
            cas: item.cas(),
            rev: item.rev(),
            flags: item.flags(),
            expiry: item.expiry(),
            datatype: item.datatype(),
            kind: feed_kind(item.key(), kind),
            deleted: is_deletion(kind),
            prepared: if kind == RecordKind::Abort { aborted(item.value()) } else { Seqno(0) },
            level: kind.prepare_level().unwrap_or(DurabilityLevel::None),
            body,
        }
    }

    /// Copies a record.
    pub(crate) fn of_record(record: &Record<'_>, keys_only: bool) -> Self {
        let meta = record.meta;
        let is_abort = meta.kind == RecordKind::Abort;
        let has_value = has_value(record.key, keys_only) && !is_abort;
        Self {
            seqno: meta.seqno,
            cas: meta.cas,
            rev: meta.rev,
            flags: kept_flags(meta.kind, meta.flags),
            expiry: meta.expiry,
            datatype: meta.datatype,
            kind: feed_kind(record.key, meta.kind),
            deleted: is_deletion(meta.kind),
            prepared: if is_abort { aborted(record.value) } else { Seqno(0) },
            level: meta.kind.prepare_level().unwrap_or(DurabilityLevel::None),
            body: copied(record.key, if has_value { record.value } else { &[] }),
        }
    }

    /// Whether it is about a durable write.
    pub(crate) fn is_of_durable_write(&self) -> bool {
        self.prepared != Seqno(0) || matches!(self.kind, FeedKind::Prepare | FeedKind::Abort)
    }

    /// Its encoded key.
    #[must_use]
    pub fn key(&self) -> DocKey<'_> {
        DocKey::trusted(match &self.body {
            Body::InArena { version, .. } => version.item().key(),
            Body::Copy { bytes, key_bytes } => bytes.get(..*key_bytes).unwrap_or_default(),
        })
    }

    /// Its value as stored; empty where the feed asked for keys only.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        match &self.body {
            Body::InArena { version, has_value: true } => version,
            Body::InArena { .. } => &[],
            Body::Copy { bytes, key_bytes } => bytes.get(*key_bytes..).unwrap_or_default(),
        }
    }

    /// The value, to be held across a socket write; copied only when too many hold it already.
    #[must_use]
    pub fn share(&self) -> SharedValue {
        match &self.body {
            Body::InArena { version, has_value: true } => SharedValue::again(version),
            Body::InArena { .. } => SharedValue::tail(Arc::default(), 0),
            Body::Copy { bytes, key_bytes } => SharedValue::tail(bytes.clone(), *key_bytes),
        }
    }

    /// Bytes that keeping it keeps.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.body {
                Body::InArena { version, .. } => version.item().bytes(),
                Body::Copy { bytes, .. } => bytes.len(),
            }
    }
}

impl fmt::Debug for FeedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedItem")
            .field("seqno", &self.seqno)
            .field("kind", &self.kind)
            .field("key", &self.key())
            .field("value_bytes", &self.value().len())
            .finish_non_exhaustive()
    }
}

/// Everything about a system event is in its value.
impl SystemEvent {
    /// The event that an item of a feed is; `None` for documents.
    #[must_use]
    pub fn of(item: &FeedItem) -> Option<Self> {
        if item.kind == FeedKind::System { Self::decode(item.value()) } else { None }
    }
}

/// Whether a feed needs a record's value though its consumer wants none. All of a system event is in its value. That of an abort has
/// the seqno of its prepare.
pub(crate) fn tells_by_value(kind: RecordKind, key: &[u8]) -> bool {
    kind == RecordKind::Abort || is_system_key(key)
}

fn has_value(key: &[u8], keys_only: bool) -> bool {
    !keys_only || is_system_key(key)
}

fn feed_kind(key: &[u8], kind: RecordKind) -> FeedKind {
    match kind {
        _ if is_system_key(key) => FeedKind::System,
        RecordKind::Document => FeedKind::Mutation,
        RecordKind::Deletion => FeedKind::Deletion,
        RecordKind::Expiration => FeedKind::Expiration,
        RecordKind::Prepare(_) | RecordKind::PreparedDeletion(_) => FeedKind::Prepare,
        RecordKind::Abort => FeedKind::Abort,
    }
}

fn is_deletion(kind: RecordKind) -> bool {
    kind.is_tombstone() || matches!(kind, RecordKind::PreparedDeletion(_))
}

fn copied(key: &[u8], value: &[u8]) -> Body {
    let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, key.len() + value.len()).collect();
    if let Some(bytes) = Arc::get_mut(&mut bytes) {
        let (key_part, value_part) = bytes.split_at_mut(key.len());
        key_part.copy_from_slice(key);
        value_part.copy_from_slice(value);
    }
    Body::Copy { bytes, key_bytes: key.len() }
}
