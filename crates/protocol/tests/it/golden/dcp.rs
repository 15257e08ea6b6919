//! DCP: what a consumer asks, and what it is sent.

use super::{Case, check};
use base::{Cas, CollectionId, Datatype, ManifestUid, ScopeId, Seqno, VbId, VbUuid};
use protocol::binary::{
    Opcode, Request,
    dcp::{
        DcpMessage, Document, MarkerFlags, MarkerVersion, OpenFlags, SnapshotMarker, StreamEndReason,
        StreamFlags, StreamHead, StreamRequest, SystemEvent, SystemEventFormat, request::OpenExtras,
    },
    extras::NumberExtras,
};

#[test]
fn dcp() {
    let mut cases = requests();
    cases.extend(messages());
    check("dcp.txt", &cases);
}

fn encoded(request: Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes).unwrap();
    bytes
}

fn requests() -> Vec<Case> {
    let opaque = 0x0102_0304.into();
    let flags = OpenFlags::PRODUCER.with(OpenFlags::INCLUDE_XATTRS);
    let open = OpenExtras { seqno: 0, flags: flags.0 }.encode();
    let stream = StreamRequest {
        flags: StreamFlags::ACTIVE_ONLY.0,
        reserved: 0,
        start: Seqno(7),
        end: Seqno(u64::MAX),
        vb_uuid: VbUuid(0xfeed_deca),
        snap_start: Seqno(5),
        snap_end: Seqno(9),
    }
    .encode();
    let request = |opcode| Request { opaque, vbucket: VbId(526), ..Request::new(opcode) };
    let mut close = request(Opcode::DcpCloseStream);
    close.info.stream_id = Some(71);
    let value = br#"{"collections":["8"],"sid":71,"uid":"b4"}"#;
    let acknowledged = NumberExtras { number: 4096 }.encode();
    vec![
        Case::binary(
            "a connection becomes a producer's",
            encoded(Request { opaque, extras: &open, key: b"connector:1", ..Request::new(Opcode::DcpOpen) }),
        ),
        Case::binary(
            "a setting",
            encoded(Request {
                opaque,
                key: b"enable_noop",
                value: b"true",
                ..Request::new(Opcode::DcpControl)
            }),
        ),
        Case::binary(
            "a stream from inside a snapshot, of one collection",
            encoded(Request { extras: &stream, value, ..request(Opcode::DcpStreamReq) }),
        ),
        Case::binary("a stream is closed by its id", encoded(close)),
        Case::binary("the failover log", encoded(request(Opcode::DcpGetFailoverLog))),
        Case::binary(
            "room for more",
            encoded(Request { extras: &acknowledged, ..Request::new(Opcode::DcpBufferAcknowledgement) }),
        ),
    ]
}

fn messages() -> Vec<Case> {
    let head = StreamHead { vb: VbId(526), opaque: 0x1210.into(), stream_id: None };
    let named = StreamHead { stream_id: Some(71), ..head };
    let marker = |version| {
        DcpMessage::SnapshotMarker(SnapshotMarker {
            start: Seqno(5),
            end: Seqno(9),
            flags: MarkerFlags::DISK.with(MarkerFlags::CHECKPOINT),
            version,
        })
    };
    let (max_visible, high_completed, purge_seqno, high_prepared) = (Seqno(9), Seqno(4), Seqno(2), Seqno(6));
    let document = Document {
        key: b"\x08k1",
        value: br#"{"a":1}"#,
        by_reference: 0,
        datatype: Datatype::JSON,
        cas: Cas(0x1122_3344_5566_7788),
        seqno: Seqno(8),
        rev: 3,
    };
    let tombstone = Document { value: b"", datatype: Datatype::RAW, ..document };
    let begin = SystemEvent::CollectionBegin {
        manifest: ManifestUid(2),
        scope: ScopeId(0),
        collection: CollectionId(8),
        max_ttl: Some(72_000),
        name: b"mycollection",
    };
    let event = |format| {
        let mut value = Vec::new();
        begin.append_value(format, &mut value);
        let message = DcpMessage::SystemEvent {
            seqno: Seqno(4),
            event: begin.number(),
            version: begin.version(format),
            key: begin.key(),
            value: &value,
        };
        packet(head, message)
    };
    let cases = [
        ("a snapshot begins", packet(head, marker(MarkerVersion::V1))),
        ("the same, V2.0", packet(head, marker(MarkerVersion::V2 { max_visible, high_completed }))),
        (
            "the same, V2.2",
            packet(
                head,
                marker(MarkerVersion::V22 { max_visible, high_completed, purge_seqno, high_prepared }),
            ),
        ),
        ("a mutation", packet(head, DcpMessage::Mutation { document, flags: 0x0200_0000, expiry: 60 })),
        (
            "a mutation on one of several streams",
            packet(named, DcpMessage::Mutation { document, flags: 0, expiry: 0 }),
        ),
        ("a deletion", packet(head, DcpMessage::Deletion { document: tombstone, delete_time: None })),
        (
            "a deletion with its time",
            packet(head, DcpMessage::Deletion { document: tombstone, delete_time: Some(1_700_000_000) }),
        ),
        (
            "an expiration",
            packet(head, DcpMessage::Expiration { document: tombstone, delete_time: 1_700_000_000 }),
        ),
        ("a collection begins, plain", event(SystemEventFormat::Plain)),
        ("a collection begins, as a table", event(SystemEventFormat::FlatBuffer)),
        ("nothing more for this stream up to there", packet(head, DcpMessage::SeqnoAdvanced(Seqno(9)))),
        ("out of order from here", packet(head, DcpMessage::OsoBegin)),
        ("in order from here", packet(head, DcpMessage::OsoEnd)),
        ("a stream ends", packet(named, DcpMessage::StreamEnd(StreamEndReason::FilterEmpty))),
        ("are you there", packet(StreamHead { opaque: 1.into(), ..StreamHead::default() }, DcpMessage::Noop)),
    ];
    cases.into_iter().map(|(title, bytes)| Case::binary(title, bytes)).collect()
}

fn packet(head: StreamHead, message: DcpMessage<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.append(&head, &mut bytes);
    bytes
}
