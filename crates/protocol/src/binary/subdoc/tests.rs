use super::*;
use base::Status;

const CAS: Cas = Cas(7);

fn spec<'a>(op: SpecOp, flags: u8, path: &'a str, value: &'a str) -> Spec<'a> {
    Spec { op, flags: PathFlags(flags), path: path.as_bytes(), value: value.as_bytes() }
}

fn single_with(spec: &Spec<'_>, doc: u8, cas: Cas, xattrs: bool) -> Result<(), Status> {
    let (extras, value) = encode_single(spec, DocFlags(doc), None).unwrap();
    let opcode = Opcode::from_wire(spec.op.code()).unwrap();
    let decoded = SubdocRequest::decode(opcode, &extras, &value, cas, xattrs).map_err(Status::from)?;
    assert_eq!(decoded.specs().collect::<Vec<_>>(), [*spec]);
    assert!(!decoded.is_multi());
    Ok(())
}

fn single(spec: &Spec<'_>, doc: u8) -> Result<(), Status> {
    single_with(spec, doc, Cas::NONE, true)
}

fn multi_with(specs: &[Spec<'_>], doc: u8, cas: Cas) -> Result<(), Status> {
    let (extras, value) = encode_multi(specs, DocFlags(doc), None).unwrap();
    let mutates = specs.first().is_some_and(|spec| spec.op.mutates());
    let opcode = if mutates { Opcode::SubdocMultiMutation } else { Opcode::SubdocMultiLookup };
    let decoded = SubdocRequest::decode(opcode, &extras, &value, cas, true).map_err(Status::from)?;
    assert_eq!(decoded.specs().collect::<Vec<_>>(), specs);
    assert!(decoded.is_multi());
    Ok(())
}

fn multi(specs: &[Spec<'_>], doc: u8) -> Result<(), Status> {
    multi_with(specs, doc, Cas::NONE)
}

#[test]
fn arguments_come_in_six_lengths() {
    let with = |extras: &[u8]| {
        let opcode = Opcode::SubdocDictUpsert;
        let request = SubdocRequest::decode(opcode, extras, b"pathvalue", Cas::NONE, false)?;
        let spec = request.specs().next().unwrap();
        assert_eq!((spec.path, spec.value), (&b"path"[..], &b"value"[..]));
        Ok::<_, Violation>((spec.flags.0, request.expiry, request.flags, request.doc.0))
    };
    assert_eq!(with(&[0, 4, 1]), Ok((1, 0, None, 0)));
    assert_eq!(with(&[0, 4, 1, 2]), Ok((1, 0, None, 2)));
    assert_eq!(with(&[0, 4, 0, 0, 0, 0, 9]), Ok((0, 9, None, 0)));
    assert_eq!(with(&[0, 4, 0, 0, 0, 0, 9, 1]), Ok((0, 9, None, 1)));
    assert_eq!(with(&[0, 4, 0, 0, 0, 0, 9, 2, 0, 0, 6]), Ok((0, 9, Some(0x0200_0006), 0)));
    assert_eq!(with(&[0, 4, 0, 0, 0, 0, 9, 2, 0, 0, 6, 1]), Ok((0, 9, Some(0x0200_0006), 1)));
    for bad in [
        &[0, 4][..],
        &[0, 4, 0, 0, 0],
        &[0, 4, 0, 0x40],
        &[0, 10, 0],
        &[0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        assert_eq!(with(bad).map_err(Status::from), Err(Status::Invalid), "{bad:?}");
    }
}

#[test]
fn each_operation_has_a_form_of_its_own() {
    use SpecOp as S;
    assert_eq!(single(&spec(S::Get, 0, "a", ""), 0), Ok(()));
    assert_eq!(single(&spec(S::Get, 0, "", ""), 0), Err(Status::Invalid));
    assert_eq!(single(&spec(S::GetCount, 0, "", ""), 0), Ok(()));
    assert_eq!(single(&spec(S::Get, 0, "a", "value"), 0), Err(Status::Invalid));
    assert_eq!(single(&spec(S::Get, 1, "a", ""), 0), Err(Status::Invalid));
    assert_eq!(single(&spec(S::Get, 0, "a", ""), 1), Err(Status::Invalid), "nothing is created by a lookup");
    assert_eq!(single(&spec(S::Get, 0, "a", ""), 0x24), Ok(()));
    assert_eq!(single(&spec(S::DictAdd, 1, "a", "1"), 1), Ok(()));
    assert_eq!(single(&spec(S::DictAdd, 0, "a", ""), 0), Err(Status::Invalid));
    assert_eq!(single(&spec(S::ArrayPushLast, 0, "", "1"), 0), Ok(()));
    assert_eq!(single(&spec(S::ArrayInsert, 0, "", "1"), 0), Err(Status::Invalid));
    assert_eq!(single(&spec(S::Delete, 0, "a", ""), 1), Err(Status::Invalid));
    assert_eq!(single(&spec(S::ReplaceBodyWithXattr, 0, "a", ""), 0), Err(Status::Invalid));
    assert_eq!(single(&spec(S::ReplaceBodyWithXattr, 4, "a", ""), 0), Ok(()));
    let long = "a".repeat(PATH_BYTES_MAX + 1);
    assert_eq!(single(&spec(S::Get, 0, &long[1..], ""), 0), Ok(()));
    assert_eq!(single(&spec(S::Get, 0, &long, ""), 0), Err(Status::Invalid));
}

#[test]
fn documents_are_created_in_one_way_only() {
    let body = spec(SpecOp::DictUpsert, 0, "a", "1");
    let xattr = spec(SpecOp::DictUpsert, 4, "a", "1");
    assert_eq!(single(&body, 3), Err(Status::Invalid));
    assert_eq!(single_with(&body, 2, CAS, true), Err(Status::Invalid));
    assert_eq!(single_with(&body, 1, CAS, true), Ok(()));
    assert_eq!(single(&xattr, 8), Err(Status::Invalid));
    assert_eq!(single(&xattr, 9), Ok(()));
    assert_eq!(single(&body, 9), Err(Status::Invalid));
    assert_eq!(multi(&[xattr], 0x10), Err(Status::Invalid), "revive needs access");
    assert_eq!(multi(&[xattr], 0x14), Ok(()));
    assert_eq!(multi(&[xattr], 0x1c), Err(Status::Invalid));
    assert_eq!(multi(&[xattr, spec(SpecOp::SetDocument, 0, "", "{}")], 4), Err(Status::Invalid));
}

#[test]
fn lists_are_of_one_kind_with_attributes_first() {
    use SpecOp as S;
    let get = spec(S::Get, 0, "a", "");
    let get_xattr = spec(S::Get, 4, "x.y", "");
    let set_xattr = spec(S::DictUpsert, 4, "x", "1");
    assert_eq!(multi(&[get_xattr, get_xattr, get, spec(S::GetDocument, 0, "", "")], 0), Ok(()));
    assert_eq!(multi(&[get, get_xattr], 0), Err(Status::SubdocInvalidXattrOrder));
    assert_eq!(multi(&[], 0), Err(Status::SubdocInvalidCombo));
    assert_eq!(multi(&[get; SPECS_MAX], 0), Ok(()));
    assert_eq!(multi(&[get; SPECS_MAX + 1], 0), Err(Status::SubdocInvalidCombo));
    let delete = spec(S::DeleteDocument, 0, "", "");
    assert_eq!(multi(&[set_xattr, delete], 0), Ok(()));
    assert_eq!(multi(&[delete, set_xattr], 0), Err(Status::SubdocInvalidCombo));
    let body = spec(S::DictUpsert, 0, "a", "1");
    assert_eq!(multi(&[body, delete], 0), Err(Status::SubdocInvalidCombo));
    assert_eq!(multi(&[spec(S::SetDocument, 0, "a", "1")], 0), Err(Status::Invalid));
    let (_, value) = encode_multi(&[get], DocFlags::NONE, None).unwrap();
    let mixed = SubdocRequest::decode(Opcode::SubdocMultiMutation, &[], &value, Cas::NONE, true);
    assert!(mixed.is_err());
    for length in 1..value.len() {
        let cut = SubdocRequest::decode(Opcode::SubdocMultiLookup, &[], &value[..length], Cas::NONE, true);
        assert_eq!(cut.map(drop).map_err(Status::from), Err(Status::Invalid));
    }
    let unknown = SubdocRequest::decode(Opcode::SubdocMultiLookup, &[], &[0x0a, 0, 0, 0], Cas::NONE, true);
    assert_eq!(unknown.map(drop).map_err(Status::from), Err(Status::SubdocInvalidCombo));
}

#[test]
fn attributes_have_rules_of_their_own() {
    use SpecOp as S;
    assert_eq!(single_with(&spec(S::Get, 4, "x", ""), 0, CAS, false), Err(Status::NotSupported));
    assert_eq!(single(&spec(S::Get, 0x20, "x", ""), 0), Err(Status::SubdocXattrInvalidFlagCombo));
    assert_eq!(single(&spec(S::DictAdd, 0x10, "x", "1"), 0), Err(Status::SubdocXattrInvalidFlagCombo));
    assert_eq!(single(&spec(S::DictAdd, 0x34, "x", "1"), 0), Err(Status::SubdocXattrInvalidFlagCombo));
    assert_eq!(single(&spec(S::Get, 4, "", ""), 0), Err(Status::XattrInvalid));
    assert_eq!(single(&spec(S::Get, 4, "$document.CAS", ""), 0), Ok(()));
    assert_eq!(single(&spec(S::DictAdd, 4, "$x", "1"), 0), Err(Status::SubdocXattrCannotModifyVattr));
    let expand = |value| single(&spec(S::DictAdd, 0x14, "x", value), 0);
    assert_eq!(expand("\"${Mutation.CAS}\""), Ok(()));
    assert_eq!(expand("\"${$document.exptime}\""), Ok(()));
    assert_eq!(expand("\"${Mutation.cas}\""), Err(Status::SubdocXattrUnknownMacro));
    let store = |value| single(&spec(S::DictAdd, 4, "x", value), 0);
    assert_eq!(store("\"cb-content-base64-encoded:dmFsdWU=\""), Ok(()));
    assert_eq!(store("{\"a\":\"cb-content-base64-encoded:dmFsdWU=\"}"), Ok(()));
    assert_eq!(store("\"cb-content-base64-encoded:dmFsdWU\""), Err(Status::XattrInvalid));
}

#[test]
fn keys_of_attributes() {
    assert_eq!(xattr_key_len(b"x"), Some(1));
    assert_eq!(xattr_key_len(b"_sync.rev[0]"), Some(5));
    assert_eq!(xattr_key_len(b"x[0]"), Some(1));
    assert_eq!(xattr_key_len("schön".as_bytes()), Some(6));
    assert_eq!(xattr_key_len(b"123456789012345"), Some(15));
    for bad in [
        &b"1234567890123456"[..],
        b"",
        b"_",
        b"$",
        b"$.a",
        b".a",
        b"[0]",
        b"`a`",
        b"-a",
        b"\x01",
        b"a.\xff",
        b"a\0",
    ] {
        assert_eq!(xattr_key_len(bad), None, "{bad:?}");
    }
}

#[test]
fn results_come_back_as_they_went() {
    let mut out = Vec::new();
    append_lookup_result(Status::Success, b"1", &mut out);
    append_lookup_result(Status::SubdocPathNotFound, b"", &mut out);
    let read: Vec<_> = LookupResults(&out).map(|result| (result.status.unwrap(), result.value)).collect();
    assert_eq!(read, [(Status::Success, &b"1"[..]), (Status::SubdocPathNotFound, b"")]);
    assert_eq!(LookupResults(&out[..out.len() - 1]).count(), 1);
    out.clear();
    append_mutation_result(3, b"42", &mut out);
    append_mutation_failure(1, Status::SubdocPathExists, &mut out);
    let read: Vec<_> = MutationResults(&out).collect();
    assert_eq!((read[0].index, read[0].value), (3, &b"42"[..]));
    assert_eq!((read[1].index, read[1].status), (1, Some(Status::SubdocPathExists)));
}
