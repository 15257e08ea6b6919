//! What a producer says on a stream, one packet each: appended by the server, read by clients and tests.
//!
//! Every message of a stream is a request with the opaque of its stream request. The stream's id stands in front where
//! the connection has several streams per vBucket. A value too large to copy is sent by reference: its length is in
//! [`Document::by_reference`] and its bytes follow the buffer.

use base::{Cas, Datatype, Seqno, VbId, bucket::DurabilityLevel};

use super::marker::SnapshotMarker;
use crate::binary::{
    Frame, HEADER_BYTES, Header, Magic, Opaque, Opcode, RequestInfo,
    extras::{NumberExtras, SeqnoExtras, SeqnoRaw, layout},
};

layout! {
    /// Extras of a mutation.
    MutationExtras [31] {
        /// Its place in the vBucket's order.
        seqno: Seqno as SeqnoRaw,
        /// Its revision.
        rev: u64 as u64,
        /// The client's flags.
        flags: u32 as u32,
        /// Absolute seconds, 0 for never.
        expiry: u32 as u32,
        /// Unused.
        lock_time: u32 as u32,
        /// Bytes of extended metadata; none.
        meta_len: u16 as u16,
        /// How recently it was used.
        nru: u8 as u8,
    }
}

layout! {
    /// Extras of a prepare.
    PrepareExtras [31] {
        /// Its place in the vBucket's order.
        seqno: Seqno as SeqnoRaw,
        /// Its revision.
        rev: u64 as u64,
        /// The client's flags.
        flags: u32 as u32,
        /// Absolute seconds, 0 for never.
        expiry: u32 as u32,
        /// Unused.
        lock_time: u32 as u32,
        /// How recently it was used.
        nru: u8 as u8,
        /// Whether the document is going to be deleted.
        deleted: u8 as u8,
        /// The level asked for, as on the wire.
        level: u8 as u8,
    }
}

layout! {
    /// Extras of a commit or abort.
    CompletionExtras [16] {
        /// Of the prepare.
        prepared: Seqno as SeqnoRaw,
        /// Of the commit or abort.
        seqno: Seqno as SeqnoRaw,
    }
}

layout! {
    /// Extras of a V1 deletion.
    DeletionV1 [18] {
        /// Its place in the vBucket's order.
        seqno: Seqno as SeqnoRaw,
        /// Its revision.
        rev: u64 as u64,
        /// Bytes of extended metadata; none.
        meta_len: u16 as u16,
    }
}

layout! {
    /// Extras of a V2 deletion.
    DeletionV2 [21] {
        /// Its place in the vBucket's order.
        seqno: Seqno as SeqnoRaw,
        /// Its revision.
        rev: u64 as u64,
        /// When it happened (Unix seconds).
        delete_time: u32 as u32,
        /// Unused.
        unused: u8 as u8,
    }
}

layout! {
    /// Extras of an expiration.
    ExpirationExtras [20] {
        /// Its place in the vBucket's order.
        seqno: Seqno as SeqnoRaw,
        /// Its revision.
        rev: u64 as u64,
        /// When it happened (Unix seconds).
        delete_time: u32 as u32,
    }
}

layout! {
    /// Extras of a system event.
    SystemEventExtras [13] {
        /// Its place in the vBucket's order.
        seqno: Seqno as SeqnoRaw,
        /// Which event.
        event: u32 as u32,
        /// Version of key and value.
        version: u8 as u8,
    }
}

/// Between nodes of ours, beside what the value was stored as: it was compressed for the way, and is to be inflated again.
pub const PACKED: Datatype = Datatype(0x80);

/// What all messages of a stream have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamHead {
    /// The vBucket.
    pub vb: VbId,
    /// As in the stream request.
    pub opaque: Opaque,
    /// As in the stream request.
    pub stream_id: Option<u16>,
}

/// A document in a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Document<'a> {
    /// The key, with a collection prefix where collections were negotiated.
    pub key: &'a [u8],
    /// The value, as far as it is copied.
    pub value: &'a [u8],
    /// Bytes of value that follow the buffer.
    pub by_reference: u32,
    /// Of the value.
    pub datatype: Datatype,
    /// Its CAS.
    pub cas: Cas,
    /// Its place in the vBucket's order.
    pub seqno: Seqno,
    /// Its revision.
    pub rev: u64,
}

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum StreamEndReason {
    /// It has come to its end.
    Ok = 0,
    /// The consumer closed it.
    Closed = 1,
    /// The vBucket is no longer what the consumer wanted.
    StateChanged = 2,
    /// The connection ends.
    Disconnected = 3,
    /// The consumer was too slow.
    TooSlow = 4,
    /// The disk could not be read.
    BackfillFailed = 5,
    /// The vBucket goes back in its history.
    Rollback = 6,
    /// All collections that were wanted are gone.
    FilterEmpty = 7,
    /// The user may no longer see it.
    LostPrivileges = 8,
}

impl StreamEndReason {
    /// The reason with this number.
    #[must_use]
    pub const fn from_wire(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Ok,
            1 => Self::Closed,
            2 => Self::StateChanged,
            3 => Self::Disconnected,
            4 => Self::TooSlow,
            5 => Self::BackfillFailed,
            6 => Self::Rollback,
            7 => Self::FilterEmpty,
            8 => Self::LostPrivileges,
            _ => return None,
        })
    }
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DcpMessage<'a> {
    /// The stream is over.
    StreamEnd(StreamEndReason),
    /// A snapshot begins.
    SnapshotMarker(SnapshotMarker),
    /// A document was written.
    Mutation {
        /// The document.
        document: Document<'a>,
        /// The client's flags.
        flags: u32,
        /// Absolute seconds, 0 for never.
        expiry: u32,
    },
    /// A document was deleted.
    Deletion {
        /// Key and metadata; the value holds what attributes remain.
        document: Document<'a>,
        /// When, for consumers that asked for it (V2).
        delete_time: Option<u32>,
    },
    /// A document expired.
    Expiration {
        /// As for a deletion.
        document: Document<'a>,
        /// When.
        delete_time: u32,
    },
    /// A durable write is in progress.
    Prepare {
        /// The document as it is going to be.
        document: Document<'a>,
        /// The client's flags.
        flags: u32,
        /// Absolute seconds, 0 for never.
        expiry: u32,
        /// It is going to be deleted.
        deleted: bool,
        /// The level asked for.
        level: DurabilityLevel,
    },
    /// A durable write is completed: the prepare is the key's version from here on.
    Commit {
        /// Of the document.
        key: &'a [u8],
        /// The prepare's seqno.
        prepared: Seqno,
        /// The version's.
        seqno: Seqno,
    },
    /// A durable write will not be completed.
    Abort {
        /// Of the document.
        key: &'a [u8],
        /// The prepare's seqno.
        prepared: Seqno,
        /// The abort's.
        seqno: Seqno,
    },
    /// A scope or collection came or went.
    SystemEvent {
        /// Its place in the vBucket's order.
        seqno: Seqno,
        /// Which event; see [`super::SystemEvent`].
        event: u32,
        /// Version of key and value.
        version: u8,
        /// Key of the event.
        key: &'a [u8],
        /// Value of the event.
        value: &'a [u8],
    },
    /// What else there was up to here is not for this stream.
    SeqnoAdvanced(Seqno),
    /// What follows comes in any order.
    OsoBegin,
    /// From here on everything comes in order.
    OsoEnd,
    /// Are you there?
    Noop,
}

const OSO_BEGIN: u32 = 1;
const OSO_END: u32 = 2;

/// Parts of a packet as they stand in the buffer.
struct Parts {
    opcode: Opcode,
    extras_len: u8,
    key_len: u16,
    by_reference: u32,
    datatype: Datatype,
    cas: Cas,
}

impl Parts {
    const fn bare(opcode: Opcode, extras_len: usize) -> Self {
        Self {
            opcode,
            extras_len: extras_len as u8,
            key_len: 0,
            by_reference: 0,
            datatype: Datatype::RAW,
            cas: Cas::NONE,
        }
    }
}

impl<'a> DcpMessage<'a> {
    /// Appends the packet; returns its length, bytes sent by reference included.
    ///
    /// Keys are document keys or names: below 256 bytes, which the header of a packet with a stream id needs.
    pub fn append(&self, head: &StreamHead, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        let framing_len = match head.stream_id {
            Some(_) => {
                RequestInfo { stream_id: head.stream_id, ..RequestInfo::default() }.encode(out);
                (out.len() - start - HEADER_BYTES) as u8
            }
            None => 0,
        };
        let parts = self.append_parts(out);
        let body_len = out.len() - start - HEADER_BYTES + parts.by_reference as usize;
        let header = Header {
            magic: if framing_len > 0 { Magic::FlexRequest } else { Magic::ClientRequest },
            opcode: parts.opcode.code(),
            framing_len,
            extras_len: parts.extras_len,
            key_len: parts.key_len,
            datatype: parts.datatype,
            vbucket_or_status: head.vb.get(),
            body_len: body_len as u32,
            opaque: head.opaque,
            cas: parts.cas,
        };
        if let Some(room) = out.get_mut(start..).and_then(|bytes| bytes.first_chunk_mut::<HEADER_BYTES>()) {
            *room = header.encode();
        }
        HEADER_BYTES + body_len
    }

    fn append_parts(&self, out: &mut Vec<u8>) -> Parts {
        match self {
            Self::StreamEnd(reason) => {
                out.extend_from_slice(&NumberExtras { number: *reason as u32 }.encode());
                Parts::bare(Opcode::DcpStreamEnd, NumberExtras::BYTES)
            }
            Self::SnapshotMarker(marker) => {
                let extras_len = marker.append(out);
                Parts::bare(Opcode::DcpSnapshotMarker, usize::from(extras_len))
            }
            Self::Mutation { document, flags, expiry } => {
                let extras = MutationExtras {
                    seqno: document.seqno,
                    rev: document.rev,
                    flags: *flags,
                    expiry: *expiry,
                    lock_time: 0,
                    meta_len: 0,
                    nru: 0,
                };
                document.append(Opcode::DcpMutation, &extras.encode(), out)
            }
            Self::Deletion { document, delete_time: None } => {
                let extras = DeletionV1 { seqno: document.seqno, rev: document.rev, meta_len: 0 };
                document.append(Opcode::DcpDeletion, &extras.encode(), out)
            }
            Self::Deletion { document, delete_time: Some(delete_time) } => {
                let extras = DeletionV2 {
                    seqno: document.seqno,
                    rev: document.rev,
                    delete_time: *delete_time,
                    unused: 0,
                };
                document.append(Opcode::DcpDeletion, &extras.encode(), out)
            }
            Self::Expiration { document, delete_time } => {
                let extras =
                    ExpirationExtras { seqno: document.seqno, rev: document.rev, delete_time: *delete_time };
                document.append(Opcode::DcpExpiration, &extras.encode(), out)
            }
            Self::Prepare { document, flags, expiry, deleted, level } => {
                let extras = PrepareExtras {
                    seqno: document.seqno,
                    rev: document.rev,
                    flags: *flags,
                    expiry: *expiry,
                    lock_time: 0,
                    nru: 0,
                    deleted: u8::from(*deleted),
                    level: *level as u8,
                };
                document.append(Opcode::DcpPrepare, &extras.encode(), out)
            }
            Self::Commit { key, prepared, seqno } | Self::Abort { key, prepared, seqno } => {
                let is_commit = matches!(self, Self::Commit { .. });
                let opcode = if is_commit { Opcode::DcpCommit } else { Opcode::DcpAbort };
                let extras = CompletionExtras { prepared: *prepared, seqno: *seqno };
                Document { key, ..Document::default() }.append(opcode, &extras.encode(), out)
            }
            Self::SystemEvent { seqno, event, version, key, value } => {
                let extras = SystemEventExtras { seqno: *seqno, event: *event, version: *version };
                let document = Document { key, value, ..Document::default() };
                document.append(Opcode::DcpSystemEvent, &extras.encode(), out)
            }
            Self::SeqnoAdvanced(seqno) => {
                out.extend_from_slice(&SeqnoExtras { seqno: *seqno }.encode());
                Parts::bare(Opcode::DcpSeqnoAdvanced, SeqnoExtras::BYTES)
            }
            Self::OsoBegin | Self::OsoEnd => {
                let number = if matches!(self, Self::OsoBegin) { OSO_BEGIN } else { OSO_END };
                out.extend_from_slice(&NumberExtras { number }.encode());
                Parts::bare(Opcode::DcpOsoSnapshot, NumberExtras::BYTES)
            }
            Self::Noop => Parts::bare(Opcode::DcpNoop, 0),
        }
    }

    /// Reads a packet that a producer has sent; `None` if it is none of these, or malformed.
    #[must_use]
    pub fn decode(frame: &Frame<'a>) -> Option<(StreamHead, Self)> {
        let header = &frame.header;
        let opcode = Opcode::from_wire(header.opcode).filter(|_| header.magic.is_client_request())?;
        let stream_id = frame.framing.parse_request(opcode).ok()?.stream_id;
        let head = StreamHead { vb: header.vbucket(), opaque: header.opaque, stream_id };
        let number = || NumberExtras::decode(frame.extras).map(|extras| extras.number);
        let document = |seqno, rev| Document {
            key: frame.key,
            value: frame.value,
            by_reference: 0,
            datatype: header.datatype,
            cas: header.cas,
            seqno,
            rev,
        };
        let message = match opcode {
            Opcode::DcpStreamEnd => Self::StreamEnd(StreamEndReason::from_wire(number()?)?),
            Opcode::DcpSnapshotMarker => {
                Self::SnapshotMarker(SnapshotMarker::decode(frame.extras, frame.value)?)
            }
            Opcode::DcpMutation => {
                let extras = MutationExtras::decode(frame.extras)?;
                let document = document(extras.seqno, extras.rev);
                Self::Mutation { document, flags: extras.flags, expiry: extras.expiry }
            }
            Opcode::DcpDeletion => match DeletionV2::decode(frame.extras) {
                Some(extras) => Self::Deletion {
                    document: document(extras.seqno, extras.rev),
                    delete_time: Some(extras.delete_time),
                },
                None => {
                    let extras = DeletionV1::decode(frame.extras)?;
                    Self::Deletion { document: document(extras.seqno, extras.rev), delete_time: None }
                }
            },
            Opcode::DcpExpiration => {
                let extras = ExpirationExtras::decode(frame.extras)?;
                let document = document(extras.seqno, extras.rev);
                Self::Expiration { document, delete_time: extras.delete_time }
            }
            Opcode::DcpPrepare => {
                let extras = PrepareExtras::decode(frame.extras)?;
                Self::Prepare {
                    document: document(extras.seqno, extras.rev),
                    flags: extras.flags,
                    expiry: extras.expiry,
                    deleted: extras.deleted != 0,
                    level: DurabilityLevel::from_wire(extras.level)?,
                }
            }
            Opcode::DcpCommit => {
                let CompletionExtras { prepared, seqno } = CompletionExtras::decode(frame.extras)?;
                Self::Commit { key: frame.key, prepared, seqno }
            }
            Opcode::DcpAbort => {
                let CompletionExtras { prepared, seqno } = CompletionExtras::decode(frame.extras)?;
                Self::Abort { key: frame.key, prepared, seqno }
            }
            Opcode::DcpSystemEvent => {
                let SystemEventExtras { seqno, event, version } = SystemEventExtras::decode(frame.extras)?;
                Self::SystemEvent { seqno, event, version, key: frame.key, value: frame.value }
            }
            Opcode::DcpSeqnoAdvanced => Self::SeqnoAdvanced(SeqnoExtras::decode(frame.extras)?.seqno),
            Opcode::DcpOsoSnapshot => match number()? {
                OSO_BEGIN => Self::OsoBegin,
                OSO_END => Self::OsoEnd,
                _ => return None,
            },
            Opcode::DcpNoop => Self::Noop,
            _ => return None,
        };
        Some((head, message))
    }
}

impl Document<'_> {
    fn append(&self, opcode: Opcode, extras: &[u8], out: &mut Vec<u8>) -> Parts {
        debug_assert!(self.key.len() < 256);
        out.reserve(extras.len() + self.key.len() + self.value.len());
        out.extend_from_slice(extras);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        Parts {
            opcode,
            extras_len: extras.len() as u8,
            key_len: self.key.len() as u16,
            by_reference: self.by_reference,
            datatype: self.datatype,
            cas: self.cas,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::{
        Decoded,
        dcp::{MarkerFlags, MarkerVersion},
        decode_frame,
    };

    fn document() -> Document<'static> {
        Document {
            key: b"\x08key",
            value: b"{}",
            by_reference: 0,
            datatype: Datatype::JSON,
            cas: Cas(7),
            seqno: Seqno(5),
            rev: 3,
        }
    }

    fn marker(version: MarkerVersion) -> DcpMessage<'static> {
        DcpMessage::SnapshotMarker(SnapshotMarker {
            start: Seqno(1),
            end: Seqno(8),
            flags: MarkerFlags::DISK.with(MarkerFlags::CHECKPOINT),
            version,
        })
    }

    fn messages() -> Vec<DcpMessage<'static>> {
        let (max_visible, high_completed) = (Seqno(8), Seqno(7));
        vec![
            DcpMessage::StreamEnd(StreamEndReason::FilterEmpty),
            marker(MarkerVersion::V1),
            marker(MarkerVersion::V2 { max_visible, high_completed }),
            marker(MarkerVersion::V22 {
                max_visible,
                high_completed,
                purge_seqno: Seqno(2),
                high_prepared: Seqno(6),
            }),
            DcpMessage::Mutation { document: document(), flags: 1, expiry: 2 },
            DcpMessage::Deletion { document: document(), delete_time: None },
            DcpMessage::Deletion { document: document(), delete_time: Some(9) },
            DcpMessage::Expiration { document: document(), delete_time: 9 },
            DcpMessage::Prepare {
                document: document(),
                flags: 1,
                expiry: 2,
                deleted: true,
                level: DurabilityLevel::PersistToMajority,
            },
            DcpMessage::Commit { key: b"\0k", prepared: Seqno(4), seqno: Seqno(5) },
            DcpMessage::Abort { key: b"\0k", prepared: Seqno(4), seqno: Seqno(6) },
            DcpMessage::SystemEvent { seqno: Seqno(4), event: 0, version: 1, key: b"name", value: &[0; 20] },
            DcpMessage::SeqnoAdvanced(Seqno(4)),
            DcpMessage::OsoBegin,
            DcpMessage::OsoEnd,
            DcpMessage::Noop,
        ]
    }

    #[test]
    fn messages_round_trip_with_and_without_a_stream_id() {
        for stream_id in [None, Some(71)] {
            let head = StreamHead { vb: VbId(526), opaque: 0x1210.into(), stream_id };
            for message in messages() {
                let mut out = b"before".to_vec();
                let length = message.append(&head, &mut out);
                let Decoded::Frame(frame) = decode_frame(&out[6..]) else { panic!("{message:?}") };
                assert_eq!((frame.packet_len(), out.len()), (length, 6 + length));
                assert_eq!(DcpMessage::decode(&frame), Some((head, message)));
            }
        }
    }

    #[test]
    fn a_value_by_reference_counts_but_is_not_there() {
        let mut out = Vec::new();
        let document = Document { value: &[], by_reference: 2, ..document() };
        let message = DcpMessage::Mutation { document, flags: 0, expiry: 0 };
        let length = message.append(&StreamHead::default(), &mut out);
        assert_eq!(length, out.len() + 2);
        out.extend_from_slice(b"{}");
        let Decoded::Frame(frame) = decode_frame(&out) else { panic!("no frame") };
        assert_eq!(frame.value, b"{}");
    }

    #[test]
    fn what_no_producer_sends_is_not_read() {
        let mut out = Vec::new();
        DcpMessage::OsoEnd.append(&StreamHead::default(), &mut out);
        out[HEADER_BYTES + 3] = 3;
        let Decoded::Frame(frame) = decode_frame(&out) else { panic!("no frame") };
        assert_eq!(DcpMessage::decode(&frame), None);
    }
}
