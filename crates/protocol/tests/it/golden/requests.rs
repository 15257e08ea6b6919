//! Requests as clients send them.

use super::{Case, check};
use base::{Cas, CollectionId, Datatype, Seqno, VbId, VbUuid, bucket::DurabilityLevel};
use protocol::{
    binary::{
        Durability, Impersonate, Opcode, Request,
        extras::{ConfigVersion, CounterExtras, NumberExtras, SeqnoExtras, StoreExtras},
        observe::{ObserveKey, append_observe_key},
        subdoc::{DocFlags, PathFlags, Spec, SpecOp, encode_multi, encode_single},
        with_meta::{WithMetaExtras, WithMetaOptions, encode_with_meta},
    },
    hello::{Feature, FeatureSet},
    sasl::{Mechanism, plain::Plain, scram},
};

fn encoded(request: Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes).unwrap();
    bytes
}

#[test]
fn requests() {
    let mut cases = documents();
    cases.extend(subdocs());
    cases.extend(sessions());
    check("requests.txt", &cases);
}

fn documents() -> Vec<Case> {
    let opaque = 0x0102_0304.into();
    let get = Request { opaque, vbucket: VbId(526), key: b"k1", ..Request::new(Opcode::Get) };
    let store = StoreExtras { flags: 0x0200_0000, expiry: 60 }.encode();
    let set = Request {
        opcode: Opcode::Set,
        extras: &store,
        datatype: Datatype::JSON,
        value: br#"{"a":1}"#,
        ..get
    };
    let mut durable = Request { collection: Some(CollectionId(8)), cas: Cas(0x1122_3344_5566_7788), ..set };
    durable.info.durability =
        Some(Durability { level: DurabilityLevel::MajorityAndPersistActive, timeout_ms: Some(2250) });
    durable.info.preserve_ttl = true;
    let mut impersonated = get;
    impersonated.info.impersonate = Some(Impersonate { name: b"a-user-of-the-directory", external: true });
    let counter = CounterExtras { delta: 1, initial: 10, expiry: CounterExtras::DO_NOT_CREATE }.encode();
    let seconds = NumberExtras { number: 30 }.encode();
    let seqno = SeqnoExtras { seqno: Seqno(77) }.encode();
    let meta = WithMetaExtras { flags: 0x0200_0000, expiry: 0, rev: 9, cas: 0x17f0_0000_0000_0000 };
    let options =
        WithMetaOptions { skip_conflict_resolution: true, regenerate_cas: true, ..Default::default() };
    let with_meta = encode_with_meta(&meta, options);
    let mut observed = Vec::new();
    append_observe_key(ObserveKey { vbucket: VbId(526), key: b"k1" }, &mut observed).unwrap();
    append_observe_key(ObserveKey { vbucket: VbId(775), key: b"k2" }, &mut observed).unwrap();
    let uuid = VbUuid(0x0011_2233_4455_6677).get().to_be_bytes();
    vec![
        Case::binary("a read without collections", encoded(get)),
        Case::binary(
            "a read in collection 0x12c: the id takes two bytes",
            encoded(Request { collection: Some(CollectionId(300)), ..get }),
        ),
        Case::binary("a plain write", encoded(set)),
        Case::binary("a durable write that keeps the expiry", encoded(durable)),
        Case::binary("an impersonated read: the length of the name is escaped", encoded(impersonated)),
        Case::binary(
            "a counter that must exist",
            encoded(Request { opcode: Opcode::Increment, extras: &counter, ..get }),
        ),
        Case::binary(
            "get and touch, quietly",
            encoded(Request { opcode: Opcode::Gatq, extras: &seconds, ..get }),
        ),
        Case::binary("a lock", encoded(Request { opcode: Opcode::GetLocked, extras: &seconds, ..get })),
        Case::binary(
            "metadata with its datatype",
            encoded(Request { opcode: Opcode::GetMeta, extras: &[2], ..get }),
        ),
        Case::binary(
            "a document from another cluster, with a new CAS",
            encoded(Request { opcode: Opcode::SetWithMeta, extras: &with_meta, value: b"{}", ..get }),
        ),
        Case::binary(
            "two documents observed",
            encoded(Request { opaque, value: &observed, ..Request::new(Opcode::Observe) }),
        ),
        Case::binary(
            "a vBucket observed by its branch",
            encoded(Request { vbucket: VbId(526), value: &uuid, ..Request::new(Opcode::ObserveSeqno) }),
        ),
        Case::binary(
            "waiting for a seqno on disk",
            encoded(Request { vbucket: VbId(526), extras: &seqno, ..Request::new(Opcode::SeqnoPersistence) }),
        ),
    ]
}

fn subdocs() -> Vec<Case> {
    let base = Request { vbucket: VbId(526), key: b"k1", ..Request::new(Opcode::SubdocGet) };
    let spec = |op, flags, path, value| Spec { op, flags, path, value };
    let get = spec(SpecOp::Get, PathFlags::NONE, b"a.b[0]", b"");
    let (get_extras, get_value) = encode_single(&get, DocFlags::NONE, None).unwrap();
    let upsert = spec(SpecOp::DictUpsert, PathFlags::CREATE_PARENTS, b"a.b", b"true");
    let (upsert_extras, upsert_value) = encode_single(&upsert, DocFlags::CREATE, Some(60)).unwrap();
    let lookups = [
        spec(SpecOp::Get, PathFlags::XATTR, b"$document.exptime", b""),
        spec(SpecOp::Exists, PathFlags::NONE, b"a", b""),
        spec(SpecOp::GetDocument, PathFlags::NONE, b"", b""),
    ];
    let (lookup_extras, lookup_value) = encode_multi(&lookups, DocFlags::ACCESS_DELETED, None).unwrap();
    let expanded = PathFlags::XATTR.with(PathFlags::EXPAND_MACROS);
    let mutations = [
        spec(SpecOp::DictUpsert, expanded, b"_x.cas", b"\"${Mutation.CAS}\""),
        spec(SpecOp::Counter, PathFlags::NONE, b"n", b"-1"),
        spec(SpecOp::Delete, PathFlags::NONE, b"a", b""),
    ];
    let (mutation_extras, mutation_value) = encode_multi(&mutations, DocFlags::NONE, None).unwrap();
    let case = |title, opcode, extras: &[u8], value: &[u8]| {
        Case::binary(title, encoded(Request { opcode, extras, value, ..base }))
    };
    vec![
        case("part of a document", Opcode::SubdocGet, &get_extras, &get_value),
        case(
            "a member that is set, its parents and its document created",
            Opcode::SubdocDictUpsert,
            &upsert_extras,
            &upsert_value,
        ),
        case("several lookups", Opcode::SubdocMultiLookup, &lookup_extras, &lookup_value),
        case("several mutations", Opcode::SubdocMultiMutation, &mutation_extras, &mutation_value),
    ]
}

fn sessions() -> Vec<Case> {
    let features = [
        Feature::TcpNoDelay,
        Feature::Xattr,
        Feature::Xerror,
        Feature::SelectBucket,
        Feature::Snappy,
        Feature::Json,
        Feature::Collections,
    ];
    let mut hello = Vec::new();
    features.into_iter().collect::<FeatureSet>().encode(&mut hello);
    let name = br#"{"a":"golden/1.0","i":"0102/0304"}"#;
    let plain = Plain::encode("user", b"password");
    let first = scram::GS2_HEADER.to_owned() + &scram::ClientFirst::encode_bare("a,b=c", "0xff 0x11");
    let last = scram::ClientFinal::encode_without_proof(b"0xff 0x11server");
    let last = scram::ClientFinal::encode(&last, &[0xab; 20]);
    let version = ConfigVersion { epoch: 1, revision: 42 }.encode();
    let key = |opcode, key: &'static [u8]| Request { key, ..Request::new(opcode) };
    let sha512 = Mechanism::ScramSha512.name().as_bytes();
    vec![
        Case::binary("HELLO", encoded(Request { value: &hello, ..key(Opcode::Hello, name) })),
        Case::binary("PLAIN", encoded(Request { value: &plain, ..key(Opcode::SaslAuth, b"PLAIN") })),
        Case::binary(
            "SCRAM, first message: the name is escaped, the nonce holds a space",
            encoded(Request { key: sha512, value: first.as_bytes(), ..Request::new(Opcode::SaslAuth) }),
        ),
        Case::binary(
            "SCRAM, final message",
            encoded(Request { key: sha512, value: &last, ..Request::new(Opcode::SaslStep) }),
        ),
        Case::binary("a bucket selected", encoded(key(Opcode::SelectBucket, b"default"))),
        Case::binary(
            "a configuration newer than revision 42",
            encoded(Request { extras: &version, ..Request::new(Opcode::GetClusterConfig) }),
        ),
        Case::binary(
            "the error map",
            encoded(Request { value: &[0, 2], ..Request::new(Opcode::GetErrorMap) }),
        ),
        Case::binary(
            "the id of a collection",
            encoded(Request { value: b"scope.collection", ..Request::new(Opcode::CollectionsGetId) }),
        ),
        Case::binary("a ping", encoded(Request::new(Opcode::Noop))),
    ]
}
