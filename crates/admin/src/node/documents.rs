//! What REST asks of documents: one at a time, for people who look at them, and lists of keys. The node that has the active copy of a
//! vBucket is asked; other nodes say it in JSON.

use base::BucketUuid;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Bytes, which JSON has as base64.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Octets(pub Vec<u8>);

impl Serialize for Octets {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Octets {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map(Self).map_err(D::Error::custom)
    }
}

/// What a node is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentQuestion {
    /// The bucket's name.
    pub bucket: String,
    /// Its uuid: another bucket of that name has other documents.
    pub uuid: BucketUuid,
    /// The number of the collection.
    pub collection: u32,
    /// What is to be done.
    pub act: DocumentAct,
}

/// What is to be done with documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DocumentAct {
    /// Reading one.
    Read(Octets),
    /// Writing one.
    Write {
        /// Its key, without the collection.
        key: Octets,
        /// Its value, not compressed.
        value: Octets,
        /// Opaque to the server.
        flags: u32,
        /// As on the wire; absent: the document keeps its expiry.
        expiry: Option<u32>,
        /// The version that is replaced; absent: any, and none.
        over: Option<Version>,
    },
    /// Deleting one.
    Remove {
        /// Its key, without the collection.
        key: Octets,
        /// The CAS of the version that is deleted; 0 for any.
        cas: u64,
    },
    /// The first keys of some vBuckets, in order.
    List(KeyRange),
}

/// A version that a write replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    /// None: there is no document yet.
    None,
    /// The one with this CAS.
    Cas(u64),
}

/// Which keys are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRange {
    /// The vBuckets that the node is taken to have.
    pub vbs: Vec<u16>,
    /// The first key that could be listed.
    pub from: Octets,
    /// The last one, and whether it is listed itself; absent: no last one.
    pub to: Option<(Octets, bool)>,
    /// Keys at most.
    pub limit: usize,
}

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DocumentAnswer {
    /// A document.
    Document(Document),
    /// It is done, and the document has this CAS now; a deletion, the one of its tombstone.
    Done(u64),
    /// Keys, in order.
    Keys(Vec<Octets>),
    /// It was not done.
    Refused(DocumentRefusal),
}

/// Why a node does not do it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DocumentRefusal {
    /// The active copy is not here, or not yet.
    NotHere,
    /// No document has the key.
    Missing,
    /// The document has another version than the one that was to be replaced.
    OtherVersion,
    /// This bucket cannot do it.
    NotSupported,
    /// It may do it later.
    Busy(String),
    /// It may or may not have been done: nobody knows yet.
    Ambiguous(String),
    /// It will not do it.
    Refused(String),
}

/// A document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Without extended attributes, not compressed.
    pub value: Octets,
    /// Whether the value is JSON.
    pub is_json: bool,
    /// Changes with every write.
    pub cas: u64,
    /// How often its key has been written.
    pub rev: u64,
    /// Opaque to the server.
    pub flags: u32,
    /// Seconds since 1970, 0 for never.
    pub expiry: u32,
}
