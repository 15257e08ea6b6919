//! What clients ask, and how that ends.

use base::{BucketUuid, Seqno, Status, VbId, VbUuid, bucket::DurabilityLevel};

/// What is asked about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Its value.
    Read,
    /// This value, which nobody else writes, filled up with so many bytes.
    Write { value: u64, filler: usize, level: DurabilityLevel },
    /// There shall be none. The number is that of a value which nobody writes.
    Remove { number: u64, level: DurabilityLevel },
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
    /// This was read (`None`: there is no such document). `leased`: whoever answered needed a lease, and had one.
    Read { value: Option<u64>, leased: bool },
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
}

/// A document's value.
pub(crate) fn encode_value(number: u64, filler: usize) -> Vec<u8> {
    format!("{number}:{}", "x".repeat(filler)).into_bytes()
}

pub(crate) fn decode_value(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).unwrap();
    text.split(':').next().unwrap().parse().unwrap()
}
