//! What a producer can get wrong, or a replica refuse, and what that ends: one stream, or the connection.

use base::{Seqno, Status};
use protocol::binary::dcp::StreamEndReason;

/// Why a stream is given up. The vBucket's next one is asked for after a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The producer ended it.
    #[error("the producer ended the stream: {0:?}")]
    Ended(StreamEndReason),
    /// The producer does not grant it.
    #[error("the producer does not grant the stream: {0:?}")]
    NotGranted(Option<Status>),
    /// The replica does not take it (any more).
    #[error("the replica does not take it: {0:?}")]
    NotTaken(Status),
    /// The replica lacks what it is told the outcome of.
    #[error("the copy is damaged: what it is told does not fit what it has")]
    Damaged,
    /// The producer wants it to go back to where it is, or beyond.
    #[error("asked to go back from {from} to {to}")]
    RollbackForward {
        /// Where the replica is.
        from: Seqno,
        /// Where it should go.
        to: Seqno,
    },
    /// A failover log that no history has, or that cannot be read.
    #[error("the failover log is no history of this vBucket")]
    BadLog,
    /// A snapshot that does not go on from where the last one ended, or that ends before it begins.
    #[error("a snapshot from {start} to {end} cannot follow {last}")]
    BadSnapshot {
        /// Its first seqno.
        start: Seqno,
        /// Its last one.
        end: Seqno,
        /// What the replica has.
        last: Seqno,
    },
    /// An item that is not in the snapshot that was announced, or not in order.
    #[error("seqno {seqno} cannot follow {last} in a snapshot to {end}")]
    OutOfOrder {
        /// Of the item.
        seqno: Seqno,
        /// What the replica has.
        last: Seqno,
        /// End of the snapshot.
        end: Seqno,
    },
    /// A key that no document can have.
    #[error("the key of seqno {0} is none")]
    BadKey(Seqno),
    /// A value that no document can have.
    #[error("the value of seqno {0} is none")]
    BadValue(Seqno),
    /// A commit or abort of something that comes later.
    #[error("seqno {seqno} completes the prepare {prepared}")]
    BadCompletion {
        /// Of the commit or abort.
        seqno: Seqno,
        /// Of the prepare.
        prepared: Seqno,
    },
    /// A message that was not asked for.
    #[error("{0} was not asked for")]
    Unasked(&'static str),
}

impl Fault {
    /// Whether this happens between nodes that work: roles change, terms change, disks are slow.
    #[must_use]
    pub const fn is_ordinary(&self) -> bool {
        matches!(self, Self::Ended(_) | Self::NotGranted(_) | Self::NotTaken(_))
    }
}

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Not a word for long.
    #[error("the producer is silent")]
    Silent,
    /// A packet that no producer sends.
    #[error("a packet (opcode {opcode:#04x}) that no producer sends")]
    Unreadable {
        /// As in its header.
        opcode: u8,
    },
    /// A message or answer of a stream that does not exist.
    #[error("a packet (opcode {opcode:#04x}) of no stream: vBucket {vb}, opaque {opaque:#x}")]
    Stray {
        /// As in its header.
        opcode: u8,
        /// As in its header.
        vb: u16,
        /// As in its header.
        opaque: u32,
    },
    /// The producer refuses what it has to take.
    #[error("the producer refused a request (opcode {opcode:#04x}): {status:?}")]
    Refused {
        /// Of the request.
        opcode: u8,
        /// Its answer.
        status: Option<Status>,
    },
}
