//! System events: scopes and collections come and go in a vBucket's order of mutations.
//!
//! An event has a number, a version, and key and value that depend on both. Versions 0 and 1 are plain integers,
//! version 2 is a `FlatBuffers` table, for consumers that asked for it; only they are told of modifications.

use base::{CollectionId, ManifestUid, ScopeId};

use super::flatbuffer::{self, Field};

const COLLECTION_BEGIN: u32 = 0;
const COLLECTION_END: u32 = 1;
const SCOPE_BEGIN: u32 = 3;
const SCOPE_END: u32 = 4;
const COLLECTION_MODIFIED: u32 = 5;

const VERSION_FLATBUFFER: u8 = 2;

/// How a consumer wants its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SystemEventFormat {
    /// Versions 0 and 1.
    #[default]
    Plain,
    /// Version 2.
    FlatBuffer,
}

/// Something happened to a scope or collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemEvent<'a> {
    /// A collection was created.
    CollectionBegin {
        /// The manifest that has it first.
        manifest: ManifestUid,
        /// Its scope.
        scope: ScopeId,
        /// The collection.
        collection: CollectionId,
        /// Its expiry cap, if it has one of its own.
        max_ttl: Option<u32>,
        /// Its name.
        name: &'a [u8],
    },
    /// A collection was dropped.
    CollectionEnd {
        /// The first manifest without it.
        manifest: ManifestUid,
        /// Its scope.
        scope: ScopeId,
        /// The collection.
        collection: CollectionId,
    },
    /// A scope was created.
    ScopeBegin {
        /// The manifest that has it first.
        manifest: ManifestUid,
        /// The scope.
        scope: ScopeId,
        /// Its name.
        name: &'a [u8],
    },
    /// A scope was dropped.
    ScopeEnd {
        /// The first manifest without it.
        manifest: ManifestUid,
        /// The scope.
        scope: ScopeId,
    },
    /// A collection's settings changed.
    CollectionModified {
        /// The first manifest with these settings.
        manifest: ManifestUid,
        /// Its scope.
        scope: ScopeId,
        /// The collection.
        collection: CollectionId,
        /// Its expiry cap, if it has one of its own.
        max_ttl: Option<u32>,
        /// Its name.
        name: &'a [u8],
    },
}

impl<'a> SystemEvent<'a> {
    /// The number of the event.
    #[must_use]
    pub const fn number(&self) -> u32 {
        match self {
            Self::CollectionBegin { .. } => COLLECTION_BEGIN,
            Self::CollectionEnd { .. } => COLLECTION_END,
            Self::ScopeBegin { .. } => SCOPE_BEGIN,
            Self::ScopeEnd { .. } => SCOPE_END,
            Self::CollectionModified { .. } => COLLECTION_MODIFIED,
        }
    }

    /// The version of key and value in that format.
    #[must_use]
    pub const fn version(&self, format: SystemEventFormat) -> u8 {
        match (format, self) {
            (SystemEventFormat::FlatBuffer, _) => VERSION_FLATBUFFER,
            (
                SystemEventFormat::Plain,
                Self::CollectionBegin { max_ttl: Some(_), .. }
                | Self::CollectionModified { max_ttl: Some(_), .. },
            ) => 1,
            (SystemEventFormat::Plain, _) => 0,
        }
    }

    /// The key: a name where something begins or changes.
    #[must_use]
    pub const fn key(&self) -> &'a [u8] {
        match self {
            Self::CollectionBegin { name, .. }
            | Self::CollectionModified { name, .. }
            | Self::ScopeBegin { name, .. } => name,
            Self::CollectionEnd { .. } | Self::ScopeEnd { .. } => &[],
        }
    }

    /// Appends the value.
    pub fn append_value(&self, format: SystemEventFormat, out: &mut Vec<u8>) {
        match format {
            SystemEventFormat::Plain => self.append_plain(out),
            SystemEventFormat::FlatBuffer => self.append_flatbuffer(out),
        }
    }

    fn append_plain(&self, out: &mut Vec<u8>) {
        let (manifest, scope, collection, max_ttl) = match *self {
            Self::CollectionBegin { manifest, scope, collection, max_ttl, .. }
            | Self::CollectionModified { manifest, scope, collection, max_ttl, .. } => {
                (manifest, scope, Some(collection), max_ttl)
            }
            Self::CollectionEnd { manifest, scope, collection } => (manifest, scope, Some(collection), None),
            Self::ScopeBegin { manifest, scope, .. } | Self::ScopeEnd { manifest, scope } => {
                (manifest, scope, None, None)
            }
        };
        out.extend_from_slice(&manifest.get().to_be_bytes());
        out.extend_from_slice(&scope.get().to_be_bytes());
        for number in [collection.map(CollectionId::get), max_ttl].into_iter().flatten() {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }

    fn append_flatbuffer(&self, out: &mut Vec<u8>) {
        match *self {
            Self::CollectionBegin { manifest, scope, collection, max_ttl, name }
            | Self::CollectionModified { manifest, scope, collection, max_ttl, name } => flatbuffer::append(
                &[
                    Field::U64(manifest.get()),
                    Field::U32(scope.get()),
                    Field::U32(collection.get()),
                    Field::Bool(max_ttl.is_some()),
                    Field::U32(max_ttl.unwrap_or(0)),
                    Field::Text(name),
                ],
                out,
            ),
            Self::CollectionEnd { manifest, scope, collection } => flatbuffer::append(
                &[Field::U64(manifest.get()), Field::U32(scope.get()), Field::U32(collection.get())],
                out,
            ),
            Self::ScopeBegin { manifest, scope, name } => flatbuffer::append(
                &[Field::U64(manifest.get()), Field::U32(scope.get()), Field::Text(name)],
                out,
            ),
            Self::ScopeEnd { manifest, scope } => {
                flatbuffer::append(&[Field::U64(manifest.get()), Field::U32(scope.get())], out);
            }
        }
    }

    /// Reads an event of version 0 or 1.
    #[must_use]
    pub fn decode(number: u32, version: u8, name: &'a [u8], value: &[u8]) -> Option<Self> {
        let (manifest, rest) = value.split_first_chunk::<8>()?;
        let manifest = ManifestUid(u64::from_be_bytes(*manifest));
        let (scope, rest) = rest.split_first_chunk::<4>()?;
        let scope = ScopeId(u32::from_be_bytes(*scope));
        let mut numbers =
            rest.chunks_exact(4).map(|bytes| bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b)));
        let (first, second) = (numbers.next(), numbers.next());
        let exact = rest.len() == 4 * (usize::from(first.is_some()) + usize::from(second.is_some()));
        let collection = first.map(CollectionId);
        Some(match (number, version, collection, second) {
            _ if !exact => return None,
            (COLLECTION_BEGIN, 0, Some(collection), None) => {
                Self::CollectionBegin { manifest, scope, collection, max_ttl: None, name }
            }
            (COLLECTION_BEGIN, 1, Some(collection), max_ttl @ Some(_)) => {
                Self::CollectionBegin { manifest, scope, collection, max_ttl, name }
            }
            (COLLECTION_END, 0, Some(collection), None) if name.is_empty() => {
                Self::CollectionEnd { manifest, scope, collection }
            }
            (SCOPE_BEGIN, 0, None, None) => Self::ScopeBegin { manifest, scope, name },
            (SCOPE_END, 0, None, None) if name.is_empty() => Self::ScopeEnd { manifest, scope },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: SystemEvent<'static> = SystemEvent::CollectionBegin {
        manifest: ManifestUid(2),
        scope: ScopeId(9),
        collection: CollectionId(8),
        max_ttl: Some(72_000),
        name: b"mycollection",
    };

    #[test]
    fn plain_events_round_trip() {
        let end = SystemEvent::CollectionEnd {
            manifest: ManifestUid(3),
            scope: ScopeId(9),
            collection: CollectionId(8),
        };
        let scope = SystemEvent::ScopeBegin { manifest: ManifestUid(4), scope: ScopeId(9), name: b"s" };
        let gone = SystemEvent::ScopeEnd { manifest: ManifestUid(5), scope: ScopeId(9) };
        let plain = SystemEventFormat::Plain;
        for (event, version, length) in [(BEGIN, 1, 20), (end, 0, 16), (scope, 0, 12), (gone, 0, 12)] {
            let mut value = Vec::new();
            event.append_value(plain, &mut value);
            assert_eq!((event.version(plain), value.len()), (version, length));
            let decoded = SystemEvent::decode(event.number(), version, event.key(), &value);
            assert_eq!(decoded, Some(event));
            assert_eq!(SystemEvent::decode(event.number(), version, event.key(), &value[1..]), None);
        }
    }

    #[test]
    fn scope_comes_before_collection() {
        let mut value = Vec::new();
        BEGIN.append_value(SystemEventFormat::Plain, &mut value);
        assert_eq!(value, [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 8, 0, 1, 0x19, 0x40]);
    }
}
