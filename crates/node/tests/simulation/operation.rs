//! What clients ask, and how that ends.

use crate::parts::Part;
use base::{BucketUuid, Cas, Seqno, Status, VbId, VbUuid, bucket::DurabilityLevel};

/// What is asked about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Its value.
    Read,
    /// Its value, and that it lives for long from now on.
    Touch,
    /// Its value, and that nobody else writes it for a second.
    Lock,
    /// This value, which nobody else writes, filled up with so many bytes; it may live for so many seconds, 0 for ever. `over`: if it
    /// still has that value, under that CAS.
    Write { value: u64, filler: usize, level: DurabilityLevel, secs: u32, over: Option<(u64, Cas)> },
    /// A part of the document has this value, which nobody else writes.
    Part { part: Part, value: u64, filler: usize, level: DurabilityLevel },
    /// Its value and its mark.
    Look,
    /// Another cluster has written this value, or removed the document (`deletes`), with the value as the revision.
    Foreign { value: u64, filler: usize, deletes: bool },
    /// There shall be none. The number is that of a value which nobody writes.
    Remove { number: u64, level: DurabilityLevel },
}

impl Operation {
    /// Whether it leaves a document as it is, but for its expiry.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Self::Read | Self::Touch | Self::Lock | Self::Look)
    }
}

/// One try of an operation at one node.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Of this try.
    pub(crate) id: u64,
    pub(crate) bucket: BucketUuid,
    pub(crate) vb: VbId,
    /// Encoded.
    pub(crate) key: Vec<u8>,
    pub(crate) operation: Operation,
}

/// A mutation's place in the history of its vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Token {
    pub(crate) vb_uuid: VbUuid,
    pub(crate) seqno: Seqno,
}

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// This was read, with its CAS (`None`: there is no such document). `leased`: the node that answered needed a lease, and had one.
    Read { value: Option<(u64, Cas)>, leased: bool },
    /// A value, and a mark, were read.
    Looked { value: Option<u64>, mark: Option<u64>, leased: bool },
    /// It was written, or removed.
    Written(Token),
    /// Nothing has happened, and nothing will.
    Refused(Status),
    /// It may have happened, or may yet.
    Ambiguous,
}

/// The answer to a [`Request`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    pub(crate) ended: Ended,
    /// Of the metadata that the node goes by which answers: which life of its group they are of.
    pub(crate) rev_epoch: i64,
}

/// A document's flags, by its value.
pub(crate) fn flags_of(number: u64) -> u32 {
    (number as u32).rotate_left(7) | 1
}

/// A document's value.
pub(crate) fn encode_value(number: u64, filler: usize) -> Vec<u8> {
    format!("{{\"n\":{number},\"x\":\"{}\"}}", "x".repeat(filler)).into_bytes()
}

/// The number in a document's value, which may begin with attributes and their length.
pub(crate) fn decode_value(value: &[u8]) -> u64 {
    let body = match value {
        [b'{', ..] => value,
        _ => {
            let (length, rest) = value.split_first_chunk().unwrap();
            &rest[u32::from_be_bytes(*length) as usize..]
        }
    };
    let text = std::str::from_utf8(body).unwrap();
    let number = text.strip_prefix("{\"n\":").unwrap_or_else(|| panic!("no document of a client: {text}"));
    number.split(',').next().unwrap().parse().unwrap()
}
