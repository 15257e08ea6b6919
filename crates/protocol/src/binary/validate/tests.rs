use super::*;
use crate::binary::{Decoded, Request, decode_frame};
use base::VbId;

const KV: FeatureSet = FeatureSet::EMPTY.with(Feature::Json).with(Feature::Snappy).with(Feature::Xerror);

fn check(request: &Request<'_>, features: FeatureSet) -> Result<(), Status> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes).unwrap();
    let Decoded::Frame(frame) = decode_frame(&bytes) else { panic!("not a frame") };
    validate(request.opcode, &frame, features).map_err(Status::from)
}

fn request(opcode: Opcode) -> Request<'static> {
    let mut request = Request::new(opcode);
    if opcode.shape().key == Presence::Required {
        request.key = b"key";
    }
    if opcode.shape().value == Presence::Required {
        request.value = b"value";
    }
    if opcode.shape().cas == CasRule::Required {
        request.cas = Cas(1);
    }
    request.extras = match (0..64).find(|&length| opcode.shape().permits_extras(length)) {
        Some(length) => &[1; 64][..usize::from(length)],
        None => panic!("{opcode:?} permits no extras at all"),
    };
    match opcode {
        Opcode::ObserveSeqno => request.value = &[0; 8],
        Opcode::GetErrorMap => request.value = &[0, 2],
        Opcode::RangeScanCreate => request.datatype = Datatype::JSON,
        _ => {}
    }
    request
}

#[test]
fn every_opcode_has_a_form_that_passes_and_refuses_its_neighbours() {
    for &opcode in Opcode::ALL {
        let good = request(opcode);
        if opcode.is_retired() {
            assert_eq!(check(&good, KV), Err(Status::NotSupported), "{opcode:?}");
            continue;
        }
        assert_eq!(check(&good, KV), Ok(()), "{opcode:?}");
        let shape = opcode.shape();
        for length in (0..=255).filter(|&length| !shape.permits_extras(length)) {
            let bad = Request { extras: &[1; 255][..usize::from(length)], ..good };
            assert_eq!(check(&bad, KV), Err(Status::Invalid), "{opcode:?} with {length} bytes of extras");
        }
        let contradicting_key: &[u8] = match shape.key {
            Presence::None => b"k",
            Presence::Required => b"",
            Presence::Optional => &[b'k'; 251],
        };
        assert_eq!(
            check(&Request { key: contradicting_key, ..good }, KV),
            Err(Status::Invalid),
            "{opcode:?}"
        );
        if shape.value != Presence::Optional {
            let value: &[u8] = if shape.value == Presence::None { b"v" } else { b"" };
            assert_eq!(check(&Request { value, ..good }, KV), Err(Status::Invalid), "{opcode:?}");
        }
        if shape.cas != CasRule::Any {
            let cas = if shape.cas == CasRule::Zero { Cas(1) } else { Cas(0) };
            assert_eq!(check(&Request { cas, ..good }, KV), Err(Status::Invalid), "{opcode:?}");
        }
    }
}

#[test]
fn datatypes_must_be_known_sensible_and_negotiated() {
    let set = request(Opcode::Set);
    let with = |datatype| Request { datatype, ..set };
    assert_eq!(check(&with(Datatype::JSON), KV), Ok(()));
    assert_eq!(check(&with(Datatype::JSON), FeatureSet::EMPTY), Err(Status::Invalid));
    assert_eq!(check(&with(Datatype(8)), KV), Err(Status::Invalid));
    let xattr = KV.with(Feature::Xattr);
    assert_eq!(check(&with(Datatype::XATTR), xattr), Err(Status::Invalid), "SET cannot bring attributes");
    let with_meta = Request { datatype: Datatype::XATTR, ..request(Opcode::SetWithMeta) };
    assert_eq!(check(&with_meta, xattr), Ok(()));
    assert_eq!(check(&with_meta, KV), Err(Status::Invalid));
    assert_eq!(
        check(&Request { datatype: Datatype::JSON, ..request(Opcode::Get) }, KV),
        Err(Status::Invalid)
    );
}

#[test]
fn keys_may_be_one_longer_with_a_collection_prefix() {
    let collections = KV.with(Feature::Collections);
    let get = |length| Request { key: &[0; 252][..length], ..request(Opcode::Get) };
    assert_eq!(check(&get(250), KV), Ok(()));
    assert_eq!(check(&get(251), KV), Err(Status::Invalid));
    assert_eq!(check(&get(251), collections), Ok(()));
    assert_eq!(check(&get(252), collections), Err(Status::Invalid));
}

#[test]
fn particular_rules() {
    let collections = KV.with(Feature::Collections);
    let invalid = Err(Status::Invalid);
    let random = request(Opcode::GetRandomKey);
    assert_eq!(check(&Request { extras: &[0; 4], ..random }, collections), Ok(()));
    assert_eq!(check(&Request { extras: &[0; 5], ..random }, collections), Ok(()));
    assert_eq!(check(&Request { extras: &[0; 4], ..random }, KV), invalid);
    assert_eq!(check(&random, collections), invalid);
    assert_eq!(check(&Request { value: &[0; 3], ..request(Opcode::Hello) }, KV), invalid);
    assert_eq!(check(&Request { value: b"{}", ..request(Opcode::Stat) }, KV), invalid);
    assert_eq!(check(&Request { value: &[0; 7], ..request(Opcode::ObserveSeqno) }, KV), invalid);
    assert_eq!(check(&Request { extras: &[2], ..request(Opcode::GetMeta) }, KV), Ok(()));
    assert_eq!(check(&Request { extras: &[3], ..request(Opcode::GetMeta) }, KV), invalid);
    assert_eq!(check(&Request { vbucket: VbId(1), ..request(Opcode::GetErrorMap) }, KV), invalid);
    let get_id = Request { value: b"_default.c", ..request(Opcode::CollectionsGetId) };
    assert_eq!(check(&get_id, collections), Ok(()));
    assert_eq!(check(&Request { key: b"k", ..get_id }, collections), invalid);
    let seqnos = |state: u8| [0, 0, 0, state];
    assert_eq!(check(&Request { extras: &seqnos(4), ..request(Opcode::GetAllVbSeqnos) }, KV), Ok(()));
    assert_eq!(check(&Request { extras: &seqnos(5), ..request(Opcode::GetAllVbSeqnos) }, KV), invalid);
}

#[test]
fn a_known_configuration_version_must_be_one_that_can_exist() {
    let with = |epoch: i64, revision: i64| {
        let extras = super::super::extras::ConfigVersion { epoch, revision }.encode();
        check(&Request { extras: &extras, ..request(Opcode::GetClusterConfig) }, KV)
    };
    assert_eq!(with(1, 1), Ok(()));
    assert_eq!(with(-1, 9), Ok(()));
    assert_eq!(with(0, 9), Err(Status::Invalid));
    assert_eq!(with(1, 0), Err(Status::Invalid));
}
