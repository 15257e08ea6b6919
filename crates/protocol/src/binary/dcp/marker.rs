//! Snapshot markers in their three versions.
//!
//! V1 has 20 bytes of extras; the others name their version in one byte of extras and hold the rest in the value.

use base::Seqno;

use super::request::flags;
use crate::binary::extras::{SeqnoRaw, layout};

flags! {
    /// What kind of snapshot follows.
    MarkerFlags {
        /// From memory.
        MEMORY = 0x01,
        /// From disk.
        DISK = 0x02,
        /// A point at which the producer's state was consistent.
        CHECKPOINT = 0x04,
        /// The consumer is to answer once it has all of it.
        ACK = 0x08,
        /// With the older versions of documents.
        HISTORY = 0x10,
        /// Keys may come more than once.
        MAY_CONTAIN_DUPLICATES = 0x20,
    }
}

layout! {
    /// Extras of a V1 marker.
    MarkerV1 [20] {
        /// First seqno of the snapshot.
        start: Seqno as SeqnoRaw,
        /// Last seqno of the snapshot.
        end: Seqno as SeqnoRaw,
        /// As [`MarkerFlags`].
        flags: u32 as u32,
    }
}

layout! {
    /// Value of a V2.0 marker.
    MarkerV2 [36] {
        /// First seqno of the snapshot.
        start: Seqno as SeqnoRaw,
        /// Last seqno of the snapshot.
        end: Seqno as SeqnoRaw,
        /// As [`MarkerFlags`].
        flags: u32 as u32,
        /// Last seqno of the snapshot that everybody may see.
        max_visible: Seqno as SeqnoRaw,
        /// The last durable write that was completed; means something in disk snapshots only.
        high_completed: Seqno as SeqnoRaw,
    }
}

layout! {
    /// Value of a V2.2 marker.
    MarkerV22 [52] {
        /// First seqno of the snapshot.
        start: Seqno as SeqnoRaw,
        /// Last seqno of the snapshot.
        end: Seqno as SeqnoRaw,
        /// As [`MarkerFlags`].
        flags: u32 as u32,
        /// Last seqno of the snapshot that everybody may see.
        max_visible: Seqno as SeqnoRaw,
        /// The last durable write that was completed.
        high_completed: Seqno as SeqnoRaw,
        /// Tombstones up to here may be missing.
        purge_seqno: Seqno as SeqnoRaw,
        /// The last durable write that was prepared.
        high_prepared: Seqno as SeqnoRaw,
    }
}

/// A snapshot begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotMarker {
    /// First seqno of the snapshot; of a stream's first one, where the consumer said that it was.
    pub start: Seqno,
    /// Last seqno of the snapshot.
    pub end: Seqno,
    /// What kind of snapshot it is.
    pub flags: MarkerFlags,
    /// What else is known about it.
    pub version: MarkerVersion,
}

/// What a marker says beyond the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerVersion {
    /// Nothing.
    V1,
    /// V2.0.
    V2 {
        /// Last seqno of the snapshot that everybody may see.
        max_visible: Seqno,
        /// The last durable write that was completed.
        high_completed: Seqno,
    },
    /// V2.2.
    V22 {
        /// Last seqno of the snapshot that everybody may see.
        max_visible: Seqno,
        /// The last durable write that was completed.
        high_completed: Seqno,
        /// Tombstones up to here may be missing.
        purge_seqno: Seqno,
        /// The last durable write that was prepared.
        high_prepared: Seqno,
    },
}

impl SnapshotMarker {
    /// Appends extras and value; returns the length of the extras.
    pub(super) fn append(&self, out: &mut Vec<u8>) -> u8 {
        let Self { start, end, flags: MarkerFlags(flags), version } = *self;
        match version {
            MarkerVersion::V1 => {
                out.extend_from_slice(&MarkerV1 { start, end, flags }.encode());
                MarkerV1::BYTES as u8
            }
            MarkerVersion::V2 { max_visible, high_completed } => {
                out.push(0);
                out.extend_from_slice(&MarkerV2 { start, end, flags, max_visible, high_completed }.encode());
                1
            }
            MarkerVersion::V22 { max_visible, high_completed, purge_seqno, high_prepared } => {
                out.push(2);
                let value =
                    MarkerV22 { start, end, flags, max_visible, high_completed, purge_seqno, high_prepared };
                out.extend_from_slice(&value.encode());
                1
            }
        }
    }

    pub(super) fn decode(extras: &[u8], value: &[u8]) -> Option<Self> {
        let (start, end, flags, version) = match *extras {
            [0] => {
                let MarkerV2 { start, end, flags, max_visible, high_completed } = MarkerV2::decode(value)?;
                (start, end, flags, MarkerVersion::V2 { max_visible, high_completed })
            }
            [2] => {
                let MarkerV22 { start, end, flags, max_visible, high_completed, purge_seqno, high_prepared } =
                    MarkerV22::decode(value)?;
                let version = MarkerVersion::V22 { max_visible, high_completed, purge_seqno, high_prepared };
                (start, end, flags, version)
            }
            _ if value.is_empty() => {
                let MarkerV1 { start, end, flags } = MarkerV1::decode(extras)?;
                (start, end, flags, MarkerVersion::V1)
            }
            _ => return None,
        };
        Some(Self { start, end, flags: MarkerFlags(flags), version })
    }
}
