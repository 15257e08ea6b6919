//! One item of a feed: a reference to a version in memory, or a copy of a record from disk.

use std::fmt;
use std::sync::Arc;

use base::{Cas, Datatype, DocKey, Seqno};
use storage::{Record, RecordKind};

use crate::{
    arena::Arena,
    doc::SharedValue,
    item::{self, ItemPtr, ItemRef},
    system_events::is_system_key,
    vbucket::is_expiration,
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
    /// Whether the key does not exist any more; tells apart system events too.
    pub deleted: bool,
    body: Body,
}

enum Body {
    /// In the arena.
    Held { version: item::SharedValue, has_value: bool },
    /// Key, then value.
    Copy { bytes: Arc<[u8]>, key_bytes: usize },
}

impl FeedItem {
    /// Under the vBucket's lock: refers to a resident version. Copies it when it has too many references already.
    pub(crate) fn of_version(item: ItemRef<'_>, arena: &Arc<Arena>, keys_only: bool) -> Self {
        let has_value = has_value(item.key(), keys_only);
        let body = match item.share(arena) {
            Some(version) => Body::Held { version, has_value },
            None => copied(item.key(), if has_value { item.value() } else { &[] }),
        };
        Self::with_body(item, body)
    }

    /// Takes over a reference to a resident version.
    pub(crate) fn of_held(held: ItemPtr, arena: &Arc<Arena>, keys_only: bool) -> Self {
        let version = item::SharedValue::of(held, arena);
        let has_value = has_value(version.item().key(), keys_only);
        let mut new = Self::with_body(version.item(), Body::Copy { bytes: Arc::default(), key_bytes: 0 });
        new.body = Body::Held { version, has_value };
        new
    }

    fn with_body(item: ItemRef<'_>, body: Body) -> Self {
        let deleted = item.is_deleted();
        Self {
            seqno: item.seqno(),
            cas: item.cas(),
            rev: item.rev(),
            flags: item.flags(),
            expiry: item.expiry(),
            datatype: item.datatype(),
            kind: kind_of(item.key(), deleted, deleted && is_expiration(item)),
            deleted,
            body,
        }
    }

    /// Copies a record.
    pub(crate) fn of_record(record: &Record<'_>, keys_only: bool) -> Self {
        let meta = record.meta;
        let deleted = meta.kind.is_tombstone();
        Self {
            seqno: meta.seqno,
            cas: meta.cas,
            rev: meta.rev,
            flags: meta.flags,
            expiry: meta.expiry,
            datatype: meta.datatype,
            kind: kind_of(record.key, deleted, meta.kind == RecordKind::Expiration),
            deleted,
            body: copied(record.key, if has_value(record.key, keys_only) { record.value } else { &[] }),
        }
    }

    /// Its encoded key.
    #[must_use]
    pub fn key(&self) -> DocKey<'_> {
        DocKey::trusted(match &self.body {
            Body::Held { version, .. } => version.item().key(),
            Body::Copy { bytes, key_bytes } => bytes.get(..*key_bytes).unwrap_or_default(),
        })
    }

    /// Its value as stored; empty where the feed asked for keys only.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        match &self.body {
            Body::Held { version, has_value: true } => version,
            Body::Held { .. } => &[],
            Body::Copy { bytes, key_bytes } => bytes.get(*key_bytes..).unwrap_or_default(),
        }
    }

    /// The value, to be held across a socket write; copied only when too many hold it already.
    #[must_use]
    pub fn share(&self) -> SharedValue {
        match &self.body {
            Body::Held { version, has_value: true } => SharedValue::again(version),
            Body::Held { .. } => SharedValue::tail(Arc::default(), 0),
            Body::Copy { bytes, key_bytes } => SharedValue::tail(bytes.clone(), *key_bytes),
        }
    }

    /// Bytes that keeping it keeps.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.body {
                Body::Held { version, .. } => version.item().bytes(),
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
fn has_value(key: &[u8], keys_only: bool) -> bool {
    !keys_only || is_system_key(key)
}

fn kind_of(key: &[u8], deleted: bool, expired: bool) -> FeedKind {
    match (deleted, expired) {
        _ if is_system_key(key) => FeedKind::System,
        (false, _) => FeedKind::Mutation,
        (true, false) => FeedKind::Deletion,
        (true, true) => FeedKind::Expiration,
    }
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
