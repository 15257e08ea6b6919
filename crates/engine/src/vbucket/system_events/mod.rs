//! Collection system events: how a vBucket's order of mutations tells that scopes and collections came, changed and went.
//!
//! An event is a document of the reserved collection 1. Its key is made of the scope or collection that it is about, so
//! a later event replaces it as any version replaces another. The end of a scope or collection is a tombstone with a
//! value. A consumer reads a vBucket in seqno order. It meets the beginning of a collection before its first document,
//! and its end before anything of it is erased.
//!
//! Clients never see these documents. Keys of collections 1 to 7 are refused, they count as nobody's items, and no
//! read, scan, eviction or expiry touches them. Where there is a disk they leave memory once they are synced.
//!
//! This file knows what events look like, [`changes`] what makes them, [`record`] when they are written.
//! `crate::bucket::missed_events` knows what a new active has to make up for.

mod changes;
mod record;

pub(crate) use changes::{Changes, owed_after};
pub(crate) use record::Events;

use base::{CollectionId, ManifestUid, ScopeId, key::encode_leb128};

/// The collection that events are documents of.
pub const SYSTEM_COLLECTION: CollectionId = CollectionId(1);

const COLLECTION_KEY: &[u8] = b"_collection:";
const SCOPE_KEY: &[u8] = b"_scope:";

/// Format of the value; the first byte.
const VALUE_FORMAT: u8 = 1;
const COLLECTION_BEGIN: u8 = 0;
const COLLECTION_END: u8 = 1;
const COLLECTION_MODIFIED: u8 = 2;
const SCOPE_BEGIN: u8 = 3;
const SCOPE_END: u8 = 4;
/// Instead of a time to live: the bucket's applies.
const INHERITED: u64 = u64::MAX;

/// One event, as it is told to consumers of the vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemEvent {
    /// The manifest it belongs to. Of several events that one change of the manifest makes, only the last one names the
    /// new manifest. The others name the one before. So a consumer that has seen a manifest's uid has seen all of it.
    pub manifest_uid: ManifestUid,
    /// What happened.
    pub what: Happening,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A collection was created.
    CollectionBegin(CollectionFacts),
    /// A collection's settings have changed: these are in force now.
    CollectionModified(CollectionFacts),
    /// A collection was dropped.
    CollectionEnd {
        /// Where it was.
        scope: ScopeId,
        /// Which.
        collection: CollectionId,
    },
    /// A scope was created.
    ScopeBegin {
        /// Which.
        scope: ScopeId,
        /// Its name.
        name: Box<str>,
    },
    /// A scope was dropped, after all its collections.
    ScopeEnd {
        /// Which.
        scope: ScopeId,
    },
}

/// A collection as events describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionFacts {
    /// The scope it is in.
    pub scope: ScopeId,
    /// Its id.
    pub collection: CollectionId,
    /// Its name.
    pub name: Box<str>,
    /// Its own cap on expiry; see [`base::manifest::Collection::max_ttl_secs`].
    pub max_ttl_secs: Option<u32>,
}

/// Whether an encoded key is that of an event.
#[inline]
#[must_use]
pub fn is_system_key(key: &[u8]) -> bool {
    key.first() == Some(&(SYSTEM_COLLECTION.0 as u8))
}

/// The collection that the event under this key is about.
pub(crate) fn collection_of_key(key: &[u8]) -> Option<CollectionId> {
    let digits = key.get(1..)?.strip_prefix(COLLECTION_KEY)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().map(CollectionId)
}

/// The scope that the event under this key is about, where it is not about a collection.
pub(crate) fn scope_of_key(key: &[u8]) -> Option<ScopeId> {
    let digits = key.get(1..)?.strip_prefix(SCOPE_KEY)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().map(ScopeId)
}

impl Happening {
    /// The scope it is about or happened in.
    #[must_use]
    pub const fn scope(&self) -> ScopeId {
        match self {
            Self::CollectionBegin(facts) | Self::CollectionModified(facts) => facts.scope,
            Self::CollectionEnd { scope, .. } | Self::ScopeBegin { scope, .. } | Self::ScopeEnd { scope } => {
                *scope
            }
        }
    }

    /// The collection it is about, if it is about one.
    #[must_use]
    pub const fn collection(&self) -> Option<CollectionId> {
        match self {
            Self::CollectionBegin(facts) | Self::CollectionModified(facts) => Some(facts.collection),
            Self::CollectionEnd { collection, .. } => Some(*collection),
            Self::ScopeBegin { .. } | Self::ScopeEnd { .. } => None,
        }
    }

    /// Whether it ends what it is about.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::CollectionEnd { .. } | Self::ScopeEnd { .. })
    }

    /// The encoded key of the document that tells it.
    pub(crate) fn key(&self) -> Vec<u8> {
        let (prefix, id) = match self.collection() {
            Some(collection) => (COLLECTION_KEY, collection.get()),
            None => (SCOPE_KEY, self.scope().get()),
        };
        let mut key = Vec::with_capacity(24);
        encode_leb128(SYSTEM_COLLECTION.get(), &mut key);
        key.extend_from_slice(prefix);
        key.extend_from_slice(format!("{id:x}").as_bytes());
        key
    }
}

impl SystemEvent {
    /// The value of the document that tells it: format u8, what u8, manifest uid u64, scope u32. For collections id u32
    /// and time to live u64 follow; then the name. Big-endian.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (tag, facts, name) = match &self.what {
            Happening::CollectionBegin(facts) => (COLLECTION_BEGIN, Some(facts), &*facts.name),
            Happening::CollectionModified(facts) => (COLLECTION_MODIFIED, Some(facts), &*facts.name),
            Happening::CollectionEnd { .. } => (COLLECTION_END, None, ""),
            Happening::ScopeBegin { name, .. } => (SCOPE_BEGIN, None, &**name),
            Happening::ScopeEnd { .. } => (SCOPE_END, None, ""),
        };
        let mut value = Vec::with_capacity(26 + name.len());
        value.extend_from_slice(&[VALUE_FORMAT, tag]);
        value.extend_from_slice(&self.manifest_uid.get().to_be_bytes());
        value.extend_from_slice(&self.what.scope().get().to_be_bytes());
        if let Some(collection) = self.what.collection() {
            let ttl = facts.and_then(|facts| facts.max_ttl_secs).map_or(INHERITED, u64::from);
            value.extend_from_slice(&collection.get().to_be_bytes());
            value.extend_from_slice(&ttl.to_be_bytes());
        }
        value.extend_from_slice(name.as_bytes());
        value
    }

    /// Reads the value of an event's document; `None` when it is not one.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (head, rest) = value.split_first_chunk::<2>()?;
        let [VALUE_FORMAT, tag] = *head else { return None };
        let (uid, rest) = rest.split_first_chunk::<8>()?;
        let (scope, rest) = rest.split_first_chunk::<4>()?;
        let scope = ScopeId(u32::from_be_bytes(*scope));
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(Box::<str>::from);
        let what = match tag {
            SCOPE_BEGIN => Happening::ScopeBegin { scope, name: text(rest)? },
            SCOPE_END => Happening::ScopeEnd { scope },
            COLLECTION_BEGIN | COLLECTION_MODIFIED | COLLECTION_END => {
                let (collection, rest) = rest.split_first_chunk::<4>()?;
                let (ttl, rest) = rest.split_first_chunk::<8>()?;
                let collection = CollectionId(u32::from_be_bytes(*collection));
                let max_ttl_secs = u32::try_from(u64::from_be_bytes(*ttl)).ok();
                let facts = || Some(CollectionFacts { scope, collection, name: text(rest)?, max_ttl_secs });
                match tag {
                    COLLECTION_BEGIN => Happening::CollectionBegin(facts()?),
                    COLLECTION_MODIFIED => Happening::CollectionModified(facts()?),
                    _ => Happening::CollectionEnd { scope, collection },
                }
            }
            _ => return None,
        };
        Some(Self { manifest_uid: ManifestUid(u64::from_be_bytes(*uid)), what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(max_ttl_secs: Option<u32>) -> CollectionFacts {
        CollectionFacts {
            scope: ScopeId(9),
            collection: CollectionId(0x1f),
            name: "cars".into(),
            max_ttl_secs,
        }
    }

    #[test]
    fn events_survive_their_encoding() {
        let happenings = [
            Happening::CollectionBegin(facts(None)),
            Happening::CollectionBegin(facts(Some(0))),
            Happening::CollectionModified(facts(Some(u32::MAX))),
            Happening::CollectionEnd { scope: ScopeId(9), collection: CollectionId(0x1f) },
            Happening::ScopeBegin { scope: ScopeId(9), name: "s".into() },
            Happening::ScopeEnd { scope: ScopeId(9) },
        ];
        for what in happenings {
            let event = SystemEvent { manifest_uid: ManifestUid(7), what };
            let value = event.encode();
            assert_eq!(SystemEvent::decode(&value), Some(event));
            for length in 0..14 {
                assert_eq!(SystemEvent::decode(&value[..length]), None);
            }
        }
        assert_eq!(SystemEvent::decode(b"\x02\x03aaaaaaaabbbbname"), None, "a format of the future");
        assert_eq!(SystemEvent::decode(b"\x01\x09aaaaaaaabbbbname"), None);
    }

    #[test]
    fn a_key_names_what_the_event_is_about() {
        let begin = Happening::CollectionBegin(facts(None)).key();
        assert_eq!(begin, b"\x01_collection:1f");
        assert_eq!(
            begin,
            Happening::CollectionEnd { scope: ScopeId(9), collection: CollectionId(0x1f) }.key()
        );
        assert_eq!(collection_of_key(&begin), Some(CollectionId(0x1f)));
        let scope = Happening::ScopeEnd { scope: ScopeId(9) }.key();
        assert_eq!(scope, b"\x01_scope:9");
        assert_eq!((collection_of_key(&scope), scope_of_key(&scope)), (None, Some(ScopeId(9))));
        assert_eq!(scope_of_key(&begin), None);
        assert!(is_system_key(&begin) && is_system_key(&scope) && !is_system_key(b"\0k"));
    }
}
