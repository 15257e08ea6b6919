//! What a consumer says to the producer.

use base::{Cas, Datatype, NodeId, Seqno, VbId, VbUuid};
use protocol::binary::{
    Header, Magic, Opaque, Opcode, Request,
    dcp::{OpenFlags, StreamRequest, filter::value_for_term, request::OpenExtras},
    extras::SeqnoExtras,
};

use super::{replica::Start, window::WINDOW_BYTES};
use crate::{link_name::LinkName, producer::controls::UNPACKS_CONTROL};

/// The control that names the bucket's uuid: a bucket of the same name may be another one.
pub const BUCKET_CONTROL: &[u8] = b"settee_bucket";

/// Seconds between two signs of life of the producer.
pub(super) const NOOP_SECONDS: u64 = 1;

/// Appends a request. What is too long for the protocol cannot come up: keys and values here are short.
pub(super) fn append(request: &Request<'_>, out: &mut Vec<u8>) {
    let encoded = request.encode(out);
    debug_assert!(encoded.is_ok());
}

/// Appends what opens a connection for streams, OPEN and CONTROLs, behind HELLO and login. Returns how many answers are
/// to be expected. Each of them is "success" but for the last, which is to [`UNPACKS_CONTROL`]: a node of an earlier
/// version refuses that, and packs nothing.
#[must_use]
pub fn append_opening(from: NodeId, to: NodeId, bucket: &str, bucket_uuid: &str, out: &mut Vec<u8>) -> usize {
    let name = LinkName { from, to, bucket }.to_string();
    let flags = OpenFlags::PRODUCER
        .with(OpenFlags::INCLUDE_XATTRS)
        .with(OpenFlags::INCLUDE_DELETED_USER_XATTRS)
        .with(OpenFlags::INCLUDE_DELETE_TIMES);
    let extras = OpenExtras { seqno: 0, flags: flags.0 }.encode();
    append(&Request { key: name.as_bytes(), extras: &extras, ..Request::new(Opcode::DcpOpen) }, out);
    let (window, seconds) = (WINDOW_BYTES.to_string(), NOOP_SECONDS.to_string());
    let controls: [(&[u8], &[u8]); 10] = [
        (BUCKET_CONTROL, bucket_uuid.as_bytes()),
        (b"connection_buffer_size", window.as_bytes()),
        (b"enable_noop", b"true"),
        (b"set_noop_interval", seconds.as_bytes()),
        (b"enable_expiry_opcode", b"true"),
        (b"max_marker_version", b"2.2"),
        (b"supports_cursor_dropping_vulcan", b"true"),
        (b"enable_sync_writes", b"true"),
        (b"consumer_name", name.as_bytes()),
        // The last, as said above.
        (UNPACKS_CONTROL, b"true"),
    ];
    for (key, value) in controls {
        append(&Request { key, value, ..Request::new(Opcode::DcpControl) }, out);
    }
    1 + controls.len()
}

/// Appends a stream request for everything from where the replica is.
pub(super) fn stream_request<I>(vb: VbId, opaque: u32, term: u64, at: &Start<I>, out: &mut Vec<u8>) {
    let extras = StreamRequest {
        flags: 0,
        reserved: 0,
        start: at.start,
        end: Seqno(u64::MAX),
        // A copy that has nothing is on no branch.
        vb_uuid: if at.start == Seqno(0) { VbUuid(0) } else { at.vb_uuid },
        snap_start: at.snap_start,
        snap_end: at.snap_end,
    }
    .encode();
    let value = value_for_term(term, at.may_lack);
    let request = Request {
        vbucket: vb,
        opaque: opaque.into(),
        extras: &extras,
        value: value.as_bytes(),
        ..Request::new(Opcode::DcpStreamReq)
    };
    append(&request, out);
}

/// Appends the end of a stream.
pub(super) fn close_stream(vb: VbId, opaque: u32, out: &mut Vec<u8>) {
    let request = Request { vbucket: vb, opaque: opaque.into(), ..Request::new(Opcode::DcpCloseStream) };
    append(&request, out);
}

/// Appends that every prepare up to a seqno is here.
pub(super) fn seqno_acknowledged(vb: VbId, opaque: u32, seqno: Seqno, out: &mut Vec<u8>) {
    let extras = SeqnoExtras { seqno }.encode();
    let request = Request {
        vbucket: vb,
        opaque: opaque.into(),
        extras: &extras,
        ..Request::new(Opcode::DcpSeqnoAcknowledged)
    };
    append(&request, out);
}

/// Appends the answer to "are you there?".
pub(super) fn noop_answer(opaque: Opaque, out: &mut Vec<u8>) {
    let header = Header {
        magic: Magic::ClientResponse,
        opcode: Opcode::DcpNoop.code(),
        framing_len: 0,
        extras_len: 0,
        key_len: 0,
        datatype: Datatype::RAW,
        vbucket_or_status: base::Status::Success.code(),
        body_len: 0,
        opaque,
        cas: Cas::NONE,
    };
    out.extend_from_slice(&header.encode());
}
