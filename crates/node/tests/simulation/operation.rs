//! What clients ask, and how that ends.

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
    /// This was read, with its CAS (`None`: there is no such document). `leased`: the node that answered needed a lease, and had one.
    Read { value: Option<(u64, Cas)>, leased: bool },
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
    format!("{number}:{}", "x".repeat(filler)).into_bytes()
}

pub(crate) fn decode_value(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).unwrap();
    text.split(':').next().unwrap().parse().unwrap()
}
