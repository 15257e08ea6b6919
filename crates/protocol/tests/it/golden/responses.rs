//! Responses, and what the server asks of clients.

use super::{Case, check};
use base::{Cas, Datatype, ManifestUid, Seqno, Status, VbId, VbUuid};
use protocol::binary::{
    Decoded, Header, Opcode, Request, Response, ResponseWriter, ServerDuration, ServerOpcode, decode_frame,
    extras::{
        ConfigVersion, FlagsExtras, IdExtras, META_WITH_DATATYPE, MetaExtras, MutationToken, error_context,
        unknown_collection_context,
    },
    observe::{self, ObserveKey, ObservedSeqno, ObservedState},
    request::write_server_request,
    write_response, write_status,
};

fn request(opcode: Opcode) -> Header {
    let mut bytes = Vec::new();
    Request { opaque: 0x0102_0304.into(), ..Request::new(opcode) }.encode(&mut bytes).unwrap();
    match decode_frame(&bytes) {
        Decoded::Frame(frame) => frame.header,
        other => panic!("{other:?}"),
    }
}

fn answered(opcode: Opcode, traced: bool, response: Response, parts: [&[u8]; 3]) -> Vec<u8> {
    let mut out = Vec::new();
    let [extras, key, value] = parts;
    let response = response.with_duration(ServerDuration::from_micros(1_000));
    write_response(&mut out, &request(opcode), traced, &response, extras, key, value);
    out
}

const CAS: Cas = Cas(0x17f0_0000_0000_0001);

#[test]
fn responses() {
    let mut cases = documents();
    cases.extend(metadata());
    cases.extend(failures());
    cases.push(push());
    check("responses.txt", &cases);
}

fn documents() -> Vec<Case> {
    let flags = FlagsExtras { flags: 0x0200_0000 }.encode();
    let found = Response::new(Status::Success).with_cas(CAS).with_datatype(Datatype::JSON);
    let token = MutationToken { vb_uuid: VbUuid(0x0011_2233_4455_6677), seqno: Seqno(5) }.encode();
    let stored = Response::new(Status::Success).with_cas(CAS);
    let counter = 11_u64.to_be_bytes();
    let mut by_reference = Vec::new();
    let mut writer = ResponseWriter::begin(&mut by_reference, &request(Opcode::Getk), true);
    writer.body().extend_from_slice(&flags);
    writer.body().extend_from_slice(b"k1");
    let duration = ServerDuration::from_micros(250);
    writer.finish(&Response { extras_len: 4, key_len: 2, value_by_reference: 7, duration, ..found });
    by_reference.extend_from_slice(br#"{"a":1}"#);
    vec![
        Case::binary("a document", answered(Opcode::Get, false, found, [&flags, b"", br#"{"a":1}"#])),
        Case::binary("a document, traced", answered(Opcode::Get, true, found, [&flags, b"", br#"{"a":1}"#])),
        Case::binary("a document with its key, traced, its value sent by reference", by_reference),
        Case::binary("stored", answered(Opcode::Set, false, stored, [b"", b"", b""])),
        Case::binary("stored, with a token", answered(Opcode::Set, true, stored, [&token, b"", b""])),
        Case::binary("a counter", answered(Opcode::Increment, false, stored, [&token, b"", &counter])),
        Case::binary(
            "one statistic",
            answered(Opcode::Stat, false, Response::new(Status::Success), [b"", b"curr_items", b"3"]),
        ),
    ]
}

fn metadata() -> Vec<Case> {
    let success = Response::new(Status::Success);
    let mut meta = Vec::new();
    MetaExtras { deleted: 1, flags: 0x0200_0000, expiry: 1_700_000_000, rev: 3, datatype: 1 }
        .append(META_WITH_DATATYPE, &mut meta);
    let id = IdExtras { manifest_uid: ManifestUid(7), id: 8 }.encode();
    let (mut observed, mut branch, mut log, mut seqnos) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    observe::append_observed(
        ObserveKey { vbucket: VbId(526), key: b"k1" },
        ObservedState::Persisted,
        CAS,
        &mut observed,
    );
    observe::append_observed(
        ObserveKey { vbucket: VbId(775), key: b"k2" },
        ObservedState::NotFound,
        Cas(0),
        &mut observed,
    );
    let failover = Some((VbUuid(0xaa), Seqno(3)));
    let state = ObservedSeqno {
        vbucket: VbId(526),
        vb_uuid: VbUuid(0xbb),
        persisted: Seqno(4),
        current: Seqno(5),
        failover,
    };
    state.append(&mut branch);
    observe::append_failover_log(&[(VbUuid(0xbb), Seqno(3)), (VbUuid(0xaa), Seqno(0))], &mut log);
    observe::append_vb_seqnos(&[(VbId(0), Seqno(9)), (VbId(1023), Seqno(0))], &mut seqnos);
    vec![
        Case::binary(
            "metadata of a tombstone",
            answered(Opcode::GetMeta, false, success.with_cas(CAS), [&meta, b"", b""]),
        ),
        Case::binary(
            "the id of a collection",
            answered(Opcode::CollectionsGetId, false, success, [&id, b"", b""]),
        ),
        Case::binary(
            "two documents observed",
            answered(Opcode::Observe, false, success, [b"", b"", &observed]),
        ),
        Case::binary(
            "a vBucket observed after a failover",
            answered(Opcode::ObserveSeqno, false, success, [b"", b"", &branch]),
        ),
        Case::binary("a failover log", answered(Opcode::GetFailoverLog, false, success, [b"", b"", &log])),
        Case::binary(
            "the seqnos of two vBuckets",
            answered(Opcode::GetAllVbSeqnos, false, success, [b"", b"", &seqnos]),
        ),
    ]
}

fn failures() -> Vec<Case> {
    let mut missing = Vec::new();
    write_status(&mut missing, &request(Opcode::Get), false, &Response::new(Status::KeyNotFound));
    let json = |status| Response::new(status).with_datatype(Datatype::JSON);
    let context = error_context("Key contains a malformed collection id", Some("5cb1f2"));
    let unknown = unknown_collection_context(ManifestUid(0x1f));
    vec![
        Case::binary("no document", missing),
        Case::binary(
            "a failure with a context",
            answered(Opcode::Get, false, json(Status::Invalid), [b"", b"", context.as_bytes()]),
        ),
        Case::binary(
            "an unknown collection",
            answered(Opcode::Get, false, json(Status::UnknownCollection), [b"", b"", unknown.as_bytes()]),
        ),
        Case::binary(
            "not my vBucket, with the map",
            answered(Opcode::Get, true, json(Status::NotMyVbucket), [b"", b"", br#"{"rev":2}"#]),
        ),
    ]
}

fn push() -> Case {
    let mut out = Vec::new();
    let version = ConfigVersion { epoch: 1, revision: 43 }.encode();
    let opcode = ServerOpcode::ClustermapChangeNotification;
    write_server_request(&mut out, opcode, Datatype::JSON, &version, b"default", br#"{"rev":43}"#).unwrap();
    Case::binary("a new map pushed", out)
}
