//! The fixed-size arguments and results of single commands: one structure per layout, big-endian on the wire,
//! decoded only from exactly its own length.

use base::{CollectionId, ManifestUid, Seqno, VbUuid};

/// Declares a structure of integers (or newtypes of them) that follow each other on the wire.
macro_rules! layout {
    ($(#[$doc:meta])* $name:ident [$size:literal] {
        $($(#[$field_doc:meta])* $field:ident: $type:ty as $raw:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            /// Bytes on the wire.
            pub const BYTES: usize = $size;

            /// Reads exactly [`Self::BYTES`] bytes; `None` for any other length.
            #[inline]
            #[must_use]
            pub fn decode(bytes: &[u8]) -> Option<Self> {
                let rest: &[u8] = bytes;
                $(
                    let (head, rest) = rest.split_first_chunk::<{ size_of::<$raw>() }>()?;
                    let $field = <$raw>::from_be_bytes(*head).into();
                )*
                rest.is_empty().then_some(Self { $($field,)* })
            }

            /// The bytes on the wire.
            #[inline]
            #[must_use]
            #[expect(clippy::indexing_slicing, reason = "the length of the array is the sum of its fields' lengths, by the same macro")]
            pub fn encode(&self) -> [u8; $size] {
                let mut bytes = [0; $size];
                let mut at = 0;
                $(
                    let raw = <$raw>::from(self.$field).to_be_bytes();
                    bytes[at..at + raw.len()].copy_from_slice(&raw);
                    at += raw.len();
                )*
                debug_assert_eq!(at, $size);
                bytes
            }
        }
    };
}
pub(super) use layout;

layout! {
    /// Request of SET, ADD and REPLACE.
    StoreExtras [8] {
        /// Returned unchanged with every read.
        flags: u32 as u32,
        /// Expiry as the client gives it: 0, relative or absolute seconds.
        expiry: u32 as u32,
    }
}
layout! {
    /// Request of INCREMENT and DECREMENT.
    CounterExtras [20] {
        /// What to add or subtract.
        delta: u64 as u64,
        /// Value of a counter that does not exist yet.
        initial: u64 as u64,
        /// Expiry of a new counter; [`CounterExtras::DO_NOT_CREATE`] makes none.
        expiry: u32 as u32,
    }
}
layout! {
    /// Request of TOUCH and GAT (expiry), GET_LOCKED (lock seconds), VERBOSITY (level) and FLUSH (delay).
    NumberExtras [4] {
        /// The number.
        number: u32 as u32,
    }
}
layout! {
    /// Response of every read of a document.
    FlagsExtras [4] {
        /// As stored with the document.
        flags: u32 as u32,
    }
}
layout! {
    /// Request and response of GET_CLUSTER_CONFIG, push of a new map: which version.
    ConfigVersion [16] {
        /// Compared first.
        epoch: i64 as i64,
        /// Compared within an epoch.
        revision: i64 as i64,
    }
}
layout! {
    /// Request of SEQNO_PERSISTENCE.
    SeqnoExtras [8] {
        /// Wait until this seqno is on disk.
        seqno: Seqno as SeqnoRaw,
    }
}
layout! {
    /// Response of every mutation on connections that negotiated it.
    MutationToken [16] {
        /// The branch of history.
        vb_uuid: VbUuid as VbUuidRaw,
        /// The place in it.
        seqno: Seqno as SeqnoRaw,
    }
}
layout! {
    /// Response of COLLECTIONS_GET_ID and COLLECTIONS_GET_SCOPE_ID.
    IdExtras [12] {
        /// The manifest that was consulted.
        manifest_uid: ManifestUid as ManifestUidRaw,
        /// Collection or scope id.
        id: u32 as u32,
    }
}
layout! {
    /// Response of GET_META to a request of version 2.
    MetaExtras [21] {
        /// 1 for a tombstone.
        deleted: u32 as u32,
        /// As stored; the bytes are the client's.
        flags: u32 as u32,
        /// Absolute seconds, 0 for none; of a tombstone the time of deletion.
        expiry: u32 as u32,
        /// Revision.
        rev: u64 as u64,
        /// Datatype of the stored value.
        datatype: u8 as u8,
    }
}
layout! {
    /// Request of GET_ALL_VB_SEQNOS with a collection.
    CollectionSeqnosExtras [8] {
        /// As [`VbStateFilter`].
        state: u32 as u32,
        /// Count this collection's mutations only.
        collection: CollectionId as CollectionIdRaw,
    }
}
layout! {
    /// Request of RETURN_META.
    ReturnMetaExtras [12] {
        /// 1 set, 2 add, 3 delete.
        mutation: u32 as u32,
        /// As stored with the document.
        flags: u32 as u32,
        /// Expiry as the client gives it.
        expiry: u32 as u32,
    }
}

/// Integers that become identifiers while a layout is read.
macro_rules! raw {
    ($($raw:ident($inner:ty) for $id:ident;)*) => { $(
        pub(super) struct $raw($inner);

        impl $raw {
            #[inline]
            pub(super) fn from_be_bytes(bytes: [u8; size_of::<$inner>()]) -> $id {
                $id(<$inner>::from_be_bytes(bytes))
            }

            #[inline]
            pub(super) fn to_be_bytes(&self) -> [u8; size_of::<$inner>()] {
                self.0.to_be_bytes()
            }
        }

        impl From<$id> for $raw {
            #[inline]
            fn from(id: $id) -> Self {
                Self(id.get())
            }
        }
    )* };
}

raw! {
    SeqnoRaw(u64) for Seqno;
    VbUuidRaw(u64) for VbUuid;
    ManifestUidRaw(u64) for ManifestUid;
    CollectionIdRaw(u32) for CollectionId;
}

impl CounterExtras {
    /// Expiry that means "fail where there is no counter".
    pub const DO_NOT_CREATE: u32 = u32::MAX;

    /// The value for a new counter, if one may be made.
    #[inline]
    #[must_use]
    pub const fn initial_if_created(&self) -> Option<u64> {
        if self.expiry == Self::DO_NOT_CREATE { None } else { Some(self.initial) }
    }
}

/// Length of GET_META's response before it had a datatype (request without extras, or with version 1 or 0).
const META_BYTES_WITHOUT_DATATYPE: usize = 20;

/// Version of GET_META's response that includes the datatype.
pub const META_WITH_DATATYPE: u8 = 2;

impl MetaExtras {
    /// Appends the form that the request's version asks for.
    #[expect(
        clippy::indexing_slicing,
        reason = "a length is one of the constants for a version, none above the array's"
    )]
    pub fn append(&self, version: u8, out: &mut Vec<u8>) {
        let bytes = self.encode();
        let length = if version == META_WITH_DATATYPE { Self::BYTES } else { META_BYTES_WITHOUT_DATATYPE };
        out.extend_from_slice(&bytes[..length]);
    }
}

/// Which vBuckets GET_ALL_VB_SEQNOS reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VbStateFilter {
    /// All that are not dead.
    Alive,
    /// The active ones.
    Active,
    /// The replicas.
    Replica,
    /// The pending ones.
    Pending,
    /// The dead ones.
    Dead,
}

/// Reads the request of GET_ALL_VB_SEQNOS, which has none, one or two arguments.
#[must_use]
pub fn decode_all_vb_seqnos(extras: &[u8]) -> Option<(VbStateFilter, Option<CollectionId>)> {
    let (state, collection) = match CollectionSeqnosExtras::decode(extras) {
        Some(both) => (both.state, Some(both.collection)),
        None if extras.is_empty() => (0, None),
        None => (NumberExtras::decode(extras)?.number, None),
    };
    let filter = match state {
        0 => VbStateFilter::Alive,
        1 => VbStateFilter::Active,
        2 => VbStateFilter::Replica,
        3 => VbStateFilter::Pending,
        4 => VbStateFilter::Dead,
        _ => return None,
    };
    Some((filter, collection))
}

/// Reads the request of GET_RANDOM_KEY: the collection (the default one where none were negotiated) and
/// whether extended attributes are wanted too.
#[must_use]
pub fn decode_random_key(extras: &[u8]) -> Option<(CollectionId, bool)> {
    match *extras {
        [] => Some((CollectionId::DEFAULT, false)),
        [a, b, c, d] => Some((CollectionId(u32::from_be_bytes([a, b, c, d])), false)),
        [a, b, c, d, xattrs] => Some((CollectionId(u32::from_be_bytes([a, b, c, d])), xattrs != 0)),
        _ => None,
    }
}

/// The body of a failed response on connections that negotiated extended errors.
///
/// `context` is for people; `reference` names the server's log line, where there is one.
#[must_use]
pub fn error_context(context: &str, reference: Option<&str>) -> String {
    let mut error = serde_json::Map::new();
    error.insert("context".to_owned(), context.into());
    if let Some(reference) = reference {
        error.insert("ref".to_owned(), reference.into());
    }
    serde_json::json!({ "error": error }).to_string()
}

/// The body of "unknown collection" and "unknown scope": which manifest did not have it.
#[must_use]
pub fn unknown_collection_context(manifest: ManifestUid) -> String {
    format!("{{\"manifest_uid\":\"{:x}\"}}", manifest.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_big_endian_and_exact() {
        let store = StoreExtras { flags: 0x0200_0000, expiry: 60 };
        assert_eq!(store.encode(), [2, 0, 0, 0, 0, 0, 0, 60]);
        assert_eq!(StoreExtras::decode(&store.encode()), Some(store));
        assert_eq!(StoreExtras::decode(&[0; 7]), None);
        assert_eq!(StoreExtras::decode(&[0; 9]), None);
        let token = MutationToken { vb_uuid: VbUuid(0x0102), seqno: Seqno(3) };
        assert_eq!(token.encode(), [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(MutationToken::decode(&token.encode()), Some(token));
    }

    #[test]
    fn get_meta_grows_a_datatype_with_version_two() {
        let meta = MetaExtras { deleted: 1, flags: 2, expiry: 3, rev: 4, datatype: 5 };
        let mut out = Vec::new();
        meta.append(0, &mut out);
        assert_eq!(out.len(), 20);
        meta.append(2, &mut out);
        assert_eq!((out.len(), out[40]), (41, 5));
    }

    #[test]
    fn optional_arguments() {
        assert_eq!(decode_all_vb_seqnos(&[]), Some((VbStateFilter::Alive, None)));
        assert_eq!(decode_all_vb_seqnos(&[0, 0, 0, 1]), Some((VbStateFilter::Active, None)));
        let both = decode_all_vb_seqnos(&[0, 0, 0, 2, 0, 0, 0, 9]);
        assert_eq!(both, Some((VbStateFilter::Replica, Some(CollectionId(9)))));
        assert_eq!(decode_all_vb_seqnos(&[0, 0, 0, 5]), None);
        assert_eq!(decode_random_key(&[0, 0, 0, 8, 1]), Some((CollectionId(8), true)));
        assert_eq!(decode_random_key(&[0]), None);
        let counter = CounterExtras { delta: 1, initial: 5, expiry: CounterExtras::DO_NOT_CREATE };
        assert_eq!(counter.initial_if_created(), None);
    }

    #[test]
    fn error_contexts_escape_what_they_quote() {
        assert_eq!(error_context("no \"b\"", None), r#"{"error":{"context":"no \"b\""}}"#);
        assert_eq!(error_context("x", Some("u")), r#"{"error":{"context":"x","ref":"u"}}"#);
        assert_eq!(unknown_collection_context(ManifestUid(31)), r#"{"manifest_uid":"1f"}"#);
    }
}
