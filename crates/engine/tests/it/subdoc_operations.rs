//! Operations on parts of documents: which version they see, what becomes of it, and what survives a deletion.

use std::cell::RefCell;

use crate::support::{Rig, START_SECS, mutation, options};
use base::{
    Cas, Datatype, DocKey, HashedKey, Now, Status,
    bucket::{BucketKind, DurabilityLevel},
};
use settee_engine::{
    BucketChange, BucketOptions, Budget, Change, Delete, Durable, Expiry, Look, LookedUp, Lookup, LookupSpec,
    Mutated, MutationSpec, Precondition, Store, SubdocMutated, SubdocMutation, ValueCodec, ValueForm, Waiter,
    WithMeta, XattrRights, json,
};

const KEY: &[u8] = b"\0key";
const XATTR: bool = true;
const BODY: bool = false;

fn codec() -> ValueCodec {
    ValueCodec {
        recheck: |value| {
            if let Some(interlude) = INTERLUDE.take() {
                interlude();
            }
            if json::is_json(value) { Datatype::JSON } else { Datatype::RAW }
        },
        inflate: |_, _| false,
        inflated_len: <[u8]>::len,
    }
}

thread_local! {
    /// What happens while the next body is worked out.
    static INTERLUDE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

fn rig_of(kind: BucketKind) -> Rig {
    Rig::new(BucketOptions { codec: codec(), ..options(kind) })
}

fn rig() -> Rig {
    rig_of(BucketKind::Couchbase)
}

fn set(rig: &Rig, value: &[u8]) -> Mutated {
    let datatype = (codec().recheck)(value);
    let now = rig.now();
    rig.run(KEY, |bucket, vb, key| bucket.store(vb, key, &Store { datatype, ..Store::set(value) }, now))
        .unwrap()
}

fn delete(rig: &Rig) {
    let now = rig.now();
    rig.run(KEY, |bucket, vb, key| bucket.delete(vb, key, &Delete::default(), now)).unwrap();
}

type Answers = Vec<Result<String, Status>>;

fn look(rig: &Rig, lookup: &Lookup<'_>) -> Result<(LookedUp, Answers), Status> {
    let now = rig.now();
    rig.run(KEY, |bucket, vb, key| {
        let mut answers = Vec::new();
        let looked_up = bucket.subdoc_lookup(vb, key, lookup, now, |status, value| {
            let value = String::from_utf8_lossy(value).into_owned();
            answers.push(if status == Status::Success { Ok(value) } else { Err(status) });
        })?;
        Ok((looked_up, answers))
    })
}

fn lookup<'a>(specs: &'a [LookupSpec<'a>]) -> Lookup<'a> {
    let rights = XattrRights { denied: false, lists_system: true };
    Lookup { specs, access_deleted: false, from_replica: false, cas: Cas::NONE, rights }
}

fn at(what: Look, path: &str, in_xattrs: bool) -> LookupSpec<'_> {
    LookupSpec { what, path: path.as_bytes(), in_xattrs, is_binary: false }
}

fn get(rig: &Rig, path: &str, in_xattrs: bool) -> Result<String, Status> {
    let specs = [at(Look::Get, path, in_xattrs)];
    look(rig, &lookup(&specs))?.1.remove(0)
}

fn get_deleted(rig: &Rig, path: &str, in_xattrs: bool) -> Result<String, Status> {
    let specs = [at(Look::Get, path, in_xattrs)];
    let (looked_up, mut answers) = look(rig, &Lookup { access_deleted: true, ..lookup(&specs) })?;
    assert!(looked_up.deleted);
    answers.remove(0)
}

fn spec<'a>(change: Change, path: &'a str, value: &'a str, in_xattrs: bool) -> MutationSpec<'a> {
    let (path, value) = (path.as_bytes(), value.as_bytes());
    MutationSpec { change, path, value, form: ValueForm::Plain, in_xattrs, create_parents: true }
}

fn mutate(rig: &Rig, mutation: &SubdocMutation<'_>) -> Result<SubdocMutated, Status> {
    let now = rig.now();
    rig.run(KEY, |bucket, vb, key| bucket.subdoc_mutate(vb, key, mutation, now))
}

fn done(outcome: Result<SubdocMutated, Status>) -> (Mutated, bool) {
    match outcome.unwrap() {
        SubdocMutated::Done { mutated, deleted, .. } => (mutated, deleted),
        SubdocMutated::Failed(index, status) => panic!("{index}: {status:?}"),
    }
}

fn failed(outcome: Result<SubdocMutated, Status>) -> (u8, Status) {
    match outcome.unwrap() {
        SubdocMutated::Failed(index, status) => (index, status),
        SubdocMutated::Done { .. } => panic!("not refused"),
    }
}

fn change(rig: &Rig, specs: &[MutationSpec<'_>]) -> Mutated {
    done(mutate(rig, &mutation(specs))).0
}

fn body(rig: &Rig) -> Result<String, Status> {
    let now = rig.now();
    let specs = [LookupSpec { what: Look::Body, path: b"", in_xattrs: false, is_binary: false }];
    let by_parts = look(rig, &lookup(&specs)).and_then(|(_, mut answers)| answers.remove(0));
    let whole = rig.run(KEY, |bucket, vb, key| bucket.get(vb, key, now, |doc| doc.value.len()));
    assert_eq!(whole.is_ok(), by_parts.is_ok());
    by_parts
}

#[test]
fn each_lookup_has_an_answer_of_its_own() {
    let rig = rig();
    let stored = set(&rig, br#"{"a":{"b":[1,2,{"c":"x"}]},"n":5}"#);
    let specs = [
        at(Look::Get, "a.b[2].c", BODY),
        at(Look::Exists, "missing", BODY),
        at(Look::Count, "a.b", BODY),
        at(Look::Count, "n", BODY),
        at(Look::Exists, "n", BODY),
        at(Look::Get, "a[", BODY),
        at(Look::Get, "none", XATTR),
    ];
    let (looked_up, answers) = look(&rig, &lookup(&specs)).unwrap();
    let expected = [
        Ok("\"x\"".to_owned()),
        Err(Status::SubdocPathNotFound),
        Ok("3".to_owned()),
        Err(Status::SubdocPathMismatch),
        Ok(String::new()),
        Err(Status::SubdocPathInvalid),
        Err(Status::SubdocPathNotFound),
    ];
    assert_eq!(answers, expected);
    assert_eq!((looked_up.cas, looked_up.deleted, looked_up.complete), (stored.cas, false, false));
    assert_eq!(look(&rig, &Lookup { cas: Cas(1), ..lookup(&specs) }).unwrap_err(), Status::KeyExists);
}

#[test]
fn documents_that_are_not_json_have_attributes_all_the_same() {
    let rig = rig();
    set(&rig, b"plain text");
    assert_eq!(get(&rig, "a", BODY), Err(Status::SubdocDocNotJson));
    assert_eq!(
        failed(mutate(&rig, &mutation(&[spec(Change::DictUpsert, "a", "1", BODY)]))),
        (0, Status::SubdocDocNotJson)
    );
    change(&rig, &[spec(Change::DictUpsert, "x.y", "1", XATTR)]);
    assert_eq!(get(&rig, "x", XATTR).unwrap(), r#"{"y":1}"#);
    assert_eq!(body(&rig).unwrap(), "plain text");
}

#[test]
fn all_changes_are_made_or_none() {
    let rig = rig();
    set(&rig, br#"{"a":1}"#);
    let specs = [
        spec(Change::DictUpsert, "x", "true", XATTR),
        spec(Change::Counter, "a", "41", BODY),
        spec(Change::DictAdd, "a", "0", BODY),
    ];
    assert_eq!(failed(mutate(&rig, &mutation(&specs))), (2, Status::SubdocPathExists));
    assert_eq!(
        (body(&rig).unwrap().as_str(), get(&rig, "x", XATTR)),
        (r#"{"a":1}"#, Err(Status::SubdocPathNotFound))
    );
    let SubdocMutated::Done { counted, mutated, .. } = mutate(&rig, &mutation(&specs[..2])).unwrap() else {
        panic!("refused")
    };
    assert_eq!(counted, [(1, 42)]);
    assert_eq!(
        (body(&rig).unwrap().as_str(), get(&rig, "x", XATTR).unwrap().as_str()),
        (r#"{"a":42}"#, "true")
    );
    let stale = SubdocMutation { cas: Cas(mutated.cas.get() - 1), ..mutation(&specs[..1]) };
    assert_eq!(mutate(&rig, &stale).unwrap_err(), Status::KeyExists);
    done(mutate(&rig, &SubdocMutation { cas: mutated.cas, ..stale }));
}

#[test]
fn documents_are_created_with_what_the_first_path_needs() {
    let create = |change, path| {
        let rig = rig();
        let specs = [spec(change, path, "1", BODY)];
        assert_eq!(mutate(&rig, &mutation(&specs)).unwrap_err(), Status::KeyNotFound);
        done(mutate(&rig, &SubdocMutation { precondition: Precondition::Any, ..mutation(&specs) }));
        let again = SubdocMutation { precondition: Precondition::Absent, ..mutation(&specs) };
        assert_eq!(mutate(&rig, &again).unwrap_err(), Status::KeyExists);
        body(&rig).unwrap()
    };
    assert_eq!(create(Change::DictUpsert, "a.b"), r#"{"a":{"b":1}}"#);
    assert_eq!(create(Change::PushLast, ""), "[1]");
    assert_eq!(create(Change::PushLast, "a"), r#"{"a":[1]}"#);
    assert_eq!(create(Change::SetBody, ""), "1");
}

#[test]
fn expiry_is_replaced_unless_it_is_to_stay() {
    let rig = rig();
    set(&rig, b"{}");
    let specs = [spec(Change::DictUpsert, "a", "1", BODY)];
    done(mutate(&rig, &SubdocMutation { expiry: Expiry::Wire(100), ..mutation(&specs) }));
    let expiry = (START_SECS + 100).to_string();
    assert_eq!(get(&rig, "$document.exptime", XATTR).unwrap(), expiry);
    done(mutate(&rig, &SubdocMutation { expiry: Expiry::Preserve(0), ..mutation(&specs) }));
    assert_eq!(get(&rig, "$document.exptime", XATTR).unwrap(), expiry);
    change(&rig, &specs);
    assert_eq!(get(&rig, "$document.exptime", XATTR).unwrap(), "0");
}

#[test]
fn a_lock_keeps_others_from_changing_parts() {
    let rig = rig();
    set(&rig, b"{}");
    let now = rig.now();
    let cas = rig.run(KEY, |bucket, vb, key| bucket.lock(vb, key, 10, now, |doc| doc.cas)).unwrap();
    let specs = [spec(Change::DictUpsert, "a", "1", BODY)];
    assert_eq!(mutate(&rig, &mutation(&specs)).unwrap_err(), Status::Locked);
    assert_eq!(look(&rig, &lookup(&[])).unwrap().0.cas, Cas::LOCKED);
    done(mutate(&rig, &SubdocMutation { cas, ..mutation(&specs) }));
    change(&rig, &specs);
}

#[test]
fn virtual_attributes_tell_of_the_document() {
    let rig = rig();
    let stored = set(&rig, br#"{"a":1}"#);
    let attribute = |path| get(&rig, path, XATTR).unwrap();
    assert_eq!(attribute("$document.CAS"), format!("\"0x{:016x}\"", stored.cas.get()));
    assert_eq!(attribute("$document.seqno"), format!("\"0x{:016x}\"", stored.seqno.get()));
    assert_eq!(attribute("$document.vbucket_uuid"), format!("\"0x{:016x}\"", stored.vb_uuid.get()));
    assert_eq!(attribute("$document.value_bytes"), "7");
    assert_eq!(attribute("$document.value_crc32c"), format!("\"0x{:08x}\"", crc32c::crc32c(br#"{"a":1}"#)));
    assert_eq!(attribute("$document.datatype"), r#"["json"]"#);
    assert_eq!(attribute("$document.deleted"), "false");
    assert_eq!(attribute("$document.revid"), "\"1\"");
    assert_eq!(attribute("$document.last_modified"), format!("\"{START_SECS}\""));
    assert_eq!(attribute("$vbucket.HLC.now"), format!("\"{START_SECS}\""));
    assert_eq!(attribute("$XTOC"), "[]");
    assert_eq!(get(&rig, "$unknown", XATTR), Err(Status::SubdocXattrUnknownVattr));
    assert_eq!(get(&rig, "$document.unknown", XATTR), Err(Status::SubdocPathNotFound));
    change(
        &rig,
        &[spec(Change::DictUpsert, "user", "1", XATTR), spec(Change::DictUpsert, "_system", "2", XATTR)],
    );
    assert_eq!(get(&rig, "$XTOC", XATTR).unwrap(), r#"["user","_system"]"#);
    let specs = [at(Look::Get, "$XTOC", XATTR), at(Look::Get, "user", XATTR)];
    let ignorant = Lookup { rights: XattrRights::default(), ..lookup(&specs) };
    assert_eq!(look(&rig, &ignorant).unwrap().1, [Ok(r#"["user"]"#.into()), Ok("1".into())]);
    let denied = Lookup { rights: XattrRights { denied: true, lists_system: false }, ..lookup(&specs) };
    assert_eq!(look(&rig, &denied).unwrap().1, [Err(Status::NoAccess), Err(Status::NoAccess)]);
}

#[test]
fn macros_tell_of_the_mutation_itself() {
    let rig = rig();
    set(&rig, b"{}");
    let expand =
        |path, name| MutationSpec { form: ValueForm::Macro, ..spec(Change::DictUpsert, path, name, XATTR) };
    let mutated = change(
        &rig,
        &[
            expand("x.cas", r#""${Mutation.CAS}""#),
            expand("x.seqno", r#""${Mutation.seqno}""#),
            expand("x.crc", r#""${Mutation.value_crc32c}""#),
            expand("x.before", r#""${$document.value_bytes}""#),
            spec(Change::DictUpsert, "a", "1", BODY),
        ],
    );
    assert_eq!(get(&rig, "x.cas", XATTR).unwrap(), format!("\"0x{:016x}\"", mutated.cas.get().swap_bytes()));
    assert_eq!(get(&rig, "x.seqno", XATTR).unwrap(), format!("\"0x{:016x}\"", mutated.seqno.get()));
    let crc = get(&rig, "$document.value_crc32c", XATTR).unwrap();
    assert_eq!(
        (get(&rig, "x.crc", XATTR).unwrap(), get(&rig, "x.before", XATTR).unwrap()),
        (crc, "2".into())
    );
    assert_eq!(
        failed(mutate(&rig, &mutation(&[expand("x", r#""${$document.nothing}""#)]))),
        (0, Status::SubdocXattrUnknownVattrMacro)
    );
    change(&rig, &[expand("x", r#""${$document}""#)]);
    assert_eq!(get(&rig, "x.seqno", XATTR).unwrap(), format!("\"0x{:016x}\"", mutated.seqno.get()));
}

#[test]
fn binary_attributes_come_back_as_they_were() {
    let rig = rig();
    set(&rig, b"{}");
    let binary = |value: &'static [u8]| MutationSpec {
        form: ValueForm::Binary,
        value,
        ..spec(Change::DictUpsert, "x", "", XATTR)
    };
    change(&rig, &[binary(b"\x00\xff")]);
    assert_eq!(get(&rig, "x", XATTR).unwrap(), r#""cb-content-base64-encoded:AP8=""#);
    let specs = [LookupSpec { is_binary: true, ..at(Look::Get, "x", XATTR) }];
    assert_eq!(look(&rig, &lookup(&specs)).unwrap().1, [Ok("\u{0}\u{fffd}".into())]);
    change(&rig, &[spec(Change::DictUpsert, "x", "1", XATTR)]);
    assert_eq!(look(&rig, &lookup(&specs)).unwrap().1, [Err(Status::XattrNotBinary)]);
    change(&rig, &[spec(Change::DictUpsert, "x", r#"{"staged":true}"#, XATTR)]);
    change(&rig, &[spec(Change::BodyFromXattr, "x", "", XATTR), spec(Change::Delete, "x", "", XATTR)]);
    assert_eq!(
        (body(&rig).unwrap().as_str(), get(&rig, "$XTOC", XATTR).unwrap().as_str()),
        (r#"{"staged":true}"#, "[]")
    );
}

/// Somebody who writes the document whenever a mutation of it is worked out.
struct Meddler {
    bucket: std::sync::Arc<settee_engine::Bucket>,
    vb: base::VbId,
    now: base::Now,
    writes: u32,
}

thread_local! {
    static MEDDLER: std::cell::RefCell<Option<Meddler>> = const { std::cell::RefCell::new(None) };
}

fn meddle(_: &[u8]) -> Datatype {
    MEDDLER.with_borrow_mut(|meddler| {
        if let Some(Meddler { bucket, vb, now, writes }) = meddler {
            let key = base::HashedKey::new(base::DocKey::trusted(KEY));
            bucket.store(*vb, key, &Store::set(b"{}"), *now).unwrap();
            *writes += 1;
        }
    });
    Datatype::JSON
}

#[test]
fn a_large_document_that_keeps_changing_is_given_up_sooner() {
    for (bytes, attempts) in [(10, 100), (8 << 20, 32)] {
        let codec = ValueCodec { recheck: meddle, ..codec() };
        let rig = Rig::new(BucketOptions { codec, ..options(BucketKind::Couchbase) });
        set(&rig, b"{}");
        let (bucket, now) = (std::sync::Arc::clone(&rig.bucket), rig.now());
        let vb = rig.run(KEY, |_, vb, _| Ok(vb)).unwrap();
        MEDDLER.set(Some(Meddler { bucket, vb, now, writes: 0 }));
        let value = "1".repeat(bytes);
        let specs = [spec(Change::SetBody, "", &value, BODY)];
        assert_eq!(mutate(&rig, &mutation(&specs)).err(), Some(Status::TemporaryFailure));
        let meddler = MEDDLER.take().unwrap();
        assert_eq!(meddler.writes, attempts, "{bytes} bytes");
    }
}

#[test]
fn names_of_attributes_are_not_quoted() {
    let rig = rig();
    set(&rig, b"{}");
    change(&rig, &[spec(Change::DictUpsert, "a", "1", XATTR)]);
    // A dot between backticks would end the name, but not the path's first step.
    for path in ["a`b.c`", "a`b`"] {
        let specs = [spec(Change::DictUpsert, path, "2", XATTR)];
        assert_eq!(failed(mutate(&rig, &mutation(&specs))), (0, Status::SubdocPathInvalid), "{path}");
        assert_eq!(get(&rig, path, XATTR), Err(Status::SubdocPathInvalid), "{path}");
    }
    assert_eq!(get(&rig, "$XTOC", XATTR).as_deref(), Ok("[\"a\"]"));
}

#[test]
fn system_attributes_survive_every_kind_of_deletion() {
    for (how, way) in
        [("delete", 0), ("expiry when met", 1), ("expiry by the pager", 2), ("deletion by parts", 3)]
    {
        for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
            let mut rig = rig_of(kind);
            set(&rig, b"{}");
            let attributes =
                [spec(Change::DictUpsert, "user", "1", XATTR), spec(Change::DictUpsert, "_sys", "2", XATTR)];
            done(mutate(&rig, &SubdocMutation { expiry: Expiry::Wire(60), ..mutation(&attributes) }));
            match way {
                0 => delete(&rig),
                1 => rig.clock.advance_secs(61),
                2 => {
                    rig.clock.advance_secs(61);
                    rig.bucket.expire(rig.now(), settee_engine::Budget::default());
                }
                _ => drop(change(&rig, &[spec(Change::DeleteDocument, "", "", BODY)])),
            }
            assert_eq!(body(&rig), Err(Status::KeyNotFound), "{how}");
            for flushed in [false, true] {
                assert_eq!(get_deleted(&rig, "_sys", XATTR).unwrap(), "2", "{how}, flushed: {flushed}");
                assert_eq!(get_deleted(&rig, "user", XATTR), Err(Status::SubdocPathNotFound), "{how}");
                assert_eq!(get_deleted(&rig, "a", BODY), Err(Status::SubdocDocNotJson));
                if kind == BucketKind::Couchbase {
                    rig.flush();
                }
            }
        }
    }
}

#[test]
fn values_that_were_ejected_leave_their_system_attributes_to_the_tombstone() {
    let mut rig = rig();
    set(&rig, b"{}");
    let attributes = [spec(Change::DictUpsert, "_sys", "2", XATTR)];
    done(mutate(&rig, &SubdocMutation { expiry: Expiry::Wire(60), ..mutation(&attributes) }));
    rig.flush();
    let mut rig = rig.restart();
    // Warm-up that finds no memory for values.
    rig.bucket.reconfigure(settee_engine::BucketChange { quota_bytes: Some(1), ..Default::default() });
    rig.warm_up();
    rig.bucket.reconfigure(settee_engine::BucketChange { quota_bytes: Some(64 << 20), ..Default::default() });
    assert_eq!(rig.bucket.stats().resident_percent, 0);
    rig.clock.advance_secs(61);
    let budget = settee_engine::Budget::default();
    rig.bucket.expire(rig.now(), budget);
    for shard in 0..rig.bucket.shards() {
        rig.bucket.run_fetches(shard, 16, rig.now());
    }
    rig.bucket.expire(rig.now(), budget);
    rig.flush();
    assert_eq!(get_deleted(&rig, "_sys", XATTR).unwrap(), "2");
}

#[test]
fn tombstones_are_created_changed_and_revived() {
    let mut rig = rig();
    let stage = [spec(Change::DictUpsert, "txn.op", r#"{"doc":1}"#, XATTR)];
    let create = SubdocMutation {
        precondition: Precondition::Absent,
        access_deleted: true,
        create_as_deleted: true,
        ..mutation(&stage)
    };
    let (created, deleted) = done(mutate(&rig, &create));
    assert!(deleted);
    assert_eq!(body(&rig), Err(Status::KeyNotFound));
    for flushed in [false, true] {
        assert_eq!(mutate(&rig, &create).unwrap_err(), Status::KeyExists, "flushed: {flushed}");
        assert_eq!(get_deleted(&rig, "txn.op.doc", XATTR).unwrap(), "1");
        rig.flush();
    }
    let with_body = [spec(Change::DictUpsert, "a", "1", BODY)];
    let accessing = SubdocMutation { access_deleted: true, cas: created.cas, ..mutation(&with_body) };
    assert_eq!(failed(mutate(&rig, &accessing)), (0, Status::SubdocDocNotJson));
    let replace_body = [spec(Change::BodyFromXattr, "txn.op", "", XATTR)];
    let to_body = SubdocMutation { access_deleted: true, cas: created.cas, ..mutation(&replace_body) };
    assert_eq!(mutate(&rig, &to_body).unwrap_err(), Status::SubdocDeletedDocumentCantHaveValue);
    let commit = [replace_body[0], spec(Change::Delete, "txn", "", XATTR)];
    let revive = SubdocMutation { revive: true, specs: &commit, ..to_body };
    let stale = SubdocMutation { cas: Cas(1), ..revive };
    assert_eq!(mutate(&rig, &stale).unwrap_err(), Status::KeyExists);
    let (_, deleted) = done(mutate(&rig, &revive));
    assert!(!deleted);
    assert_eq!(
        (body(&rig).unwrap().as_str(), get(&rig, "$XTOC", XATTR).unwrap().as_str()),
        (r#"{"doc":1}"#, "[]")
    );
    let again = SubdocMutation { cas: Cas::NONE, ..revive };
    assert_eq!(mutate(&rig, &again).unwrap_err(), Status::SubdocCanOnlyReviveDeletedDocuments);
    let rig = rig.restart();
    rig.warm_up();
    assert_eq!(body(&rig).unwrap(), r#"{"doc":1}"#);
}

/// Nobody creates a tombstone over another one without having looked at it: it may be what a transaction has staged.
#[test]
fn a_tombstone_is_not_created_over_another() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        for precondition in [Precondition::Absent, Precondition::Any] {
            let mut rig = rig_of(kind);
            let first = [spec(Change::DictUpsert, "txn.id", "1", XATTR)];
            let blind = SubdocMutation { precondition, create_as_deleted: true, ..mutation(&first) };
            let (created, deleted) = done(mutate(&rig, &blind));
            assert!(deleted);
            let second = [spec(Change::DictUpsert, "other", "2", XATTR)];
            let again = SubdocMutation { specs: &second, ..blind };
            for flushed in [false, true] {
                let what = format!("{kind:?} {precondition:?}, flushed: {flushed}");
                assert_eq!(mutate(&rig, &again).map(|_| ()), Err(Status::KeyExists), "{what}");
                assert_eq!(get_deleted(&rig, "txn.id", XATTR).unwrap(), "1", "{what}");
                assert_eq!(get_deleted(&rig, "other", XATTR), Err(Status::SubdocPathNotFound), "{what}");
                if kind == BucketKind::Couchbase {
                    rig.flush();
                }
            }
            // A document is made over a tombstone all the same, and a client that sees it may change it.
            let looking = SubdocMutation {
                precondition: Precondition::Any,
                access_deleted: true,
                cas: created.cas,
                ..again
            };
            done(mutate(&rig, &looking));
            assert_eq!(get_deleted(&rig, "txn.id", XATTR).unwrap(), "1");
            set(&rig, b"{}");
            assert_eq!(
                mutate(&rig, &SubdocMutation { precondition: Precondition::Absent, ..again }).map(|_| ()),
                Err(Status::KeyExists)
            );
            delete(&rig);
            assert_eq!(mutate(&rig, &again).map(|_| ()), Err(Status::KeyExists), "of a plain deletion");
        }
    }
}

#[test]
fn what_was_staged_meanwhile_is_not_overwritten() {
    let rig = rig();
    let (vb, now) = (rig.key(KEY).0, rig.now());
    let bucket = rig.bucket.clone();
    INTERLUDE.set(Some(Box::new(move || {
        let first = [spec(Change::DictUpsert, "txn", "1", XATTR)];
        let stage = SubdocMutation {
            precondition: Precondition::Absent,
            create_as_deleted: true,
            access_deleted: true,
            ..mutation(&first)
        };
        let key = HashedKey::new(DocKey::trusted(KEY));
        bucket.subdoc_mutate(vb, key, &stage, now).unwrap();
        let later = Now { mono_millis: now.mono_millis + 1_000, ..now };
        let shard = usize::from(vb.get()) % bucket.shards();
        while bucket.flush(shard, later).unsynced {}
    })));
    let second = [spec(Change::DictUpsert, "txn", "2", XATTR), spec(Change::SetBody, "", "{}", BODY)];
    let create =
        SubdocMutation { precondition: Precondition::Absent, access_deleted: true, ..mutation(&second) };
    assert_eq!(mutate(&rig, &create).map(|_| ()), Err(Status::KeyExists));
    assert_eq!(get_deleted(&rig, "txn", XATTR).unwrap(), "1");
}

/// In a vBucket that was emptied the same seqno names another version.
#[test]
fn what_was_emptied_meanwhile_does_not_come_back() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let rig = rig_of(kind);
        set(&rig, b"{}");
        change(&rig, &[spec(Change::DictUpsert, "emptied", "1", XATTR)]);
        let (vb, now, bucket) = (rig.key(KEY).0, rig.now(), rig.bucket.clone());
        let seqno = bucket.vb_history(vb).unwrap().high_seqno;
        INTERLUDE.set(Some(Box::new(move || {
            bucket.flush_all(now).unwrap();
            let key = HashedKey::new(DocKey::trusted(KEY));
            while bucket.vb_history(vb).unwrap().high_seqno < seqno {
                bucket.store(vb, key, &Store::set(b"{}"), now).unwrap();
            }
        })));
        change(&rig, &[spec(Change::SetBody, "", "{\"new\":1}", BODY)]);
        assert_eq!(get(&rig, "emptied", XATTR), Err(Status::SubdocPathNotFound), "{kind:?}");
        assert_eq!(get(&rig, "new", BODY).as_deref(), Ok("1"));
    }
}

#[test]
fn attributes_that_cannot_be_read_any_more_are_told_as_that() {
    let mut rig = rig();
    let attributes = [spec(Change::DictUpsert, "_sys", "1", XATTR), spec(Change::SetBody, "", "{}", BODY)];
    let expiry = Expiry::Wire(10);
    done(mutate(
        &rig,
        &SubdocMutation { expiry, precondition: Precondition::Absent, ..mutation(&attributes) },
    ));
    rig.flush();
    let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
    rig.bucket.reconfigure(quota(0));
    while rig.bucket.page(rig.now(), Budget::default()).more {}
    rig.bucket.reconfigure(quota(64 << 20));
    rig.clock.advance_secs(20);
    rig.stores.iter().for_each(|store| store.set_unreadable(true));
    assert_eq!(get_deleted_status(&rig), Err(Status::TemporaryFailure));
    let incoming = WithMeta::new(Cas(rig.now().wall_nanos), 100, b"");
    let now = rig.now();
    let deleted = rig.run(KEY, |bucket, vb, key| bucket.delete_with_meta(vb, key, &incoming, now));
    assert_eq!(deleted.map(|_| ()), Err(Status::TemporaryFailure));
    rig.stores.iter().for_each(|store| store.set_unreadable(false));
    assert_eq!(get_deleted(&rig, "_sys", XATTR).unwrap(), "1");
}

fn get_deleted_status(rig: &Rig) -> Result<(), Status> {
    let specs = [at(Look::Get, "_sys", XATTR)];
    look(rig, &Lookup { access_deleted: true, ..lookup(&specs) }).map(|_| ())
}

#[test]
fn staged_tombstones_are_found_after_a_crash() {
    let mut rig = rig();
    let stage = [spec(Change::DictUpsert, "txn", "1", XATTR)];
    let create = SubdocMutation {
        precondition: Precondition::Absent,
        create_as_deleted: true,
        access_deleted: true,
        ..mutation(&stage)
    };
    let (created, _) = done(mutate(&rig, &create));
    rig.flush();
    let rig = rig.crash();
    assert_eq!(get_deleted(&rig, "txn", XATTR).unwrap(), "1", "before warm-up");
    rig.warm_up();
    let remove = [spec(Change::Delete, "txn", "", XATTR)];
    let (_, deleted) =
        done(mutate(&rig, &SubdocMutation { access_deleted: true, cas: created.cas, ..mutation(&remove) }));
    assert!(deleted);
    assert_eq!(get_deleted(&rig, "txn", XATTR), Err(Status::SubdocPathNotFound));
}

#[test]
fn until_a_durable_change_is_synced_the_version_before_it_is_seen() {
    let durability = DurabilityLevel::PersistToMajority;
    for flushed in [false, true] {
        let mut rig = rig();
        let waiter = Waiter { worker: 1, connection: 1, ticket: 1 };
        let stage = |n| spec(Change::DictUpsert, "txn", n, XATTR);
        let first = [stage("1")];
        let create = SubdocMutation {
            precondition: Precondition::Absent,
            create_as_deleted: true,
            access_deleted: true,
            ..mutation(&first)
        };
        done(mutate(&rig, &create));
        if flushed {
            rig.flush();
        }
        let second = [stage("2")];
        let again = SubdocMutation { access_deleted: true, durability, ..mutation(&second) };
        let (pending, _) = done(mutate(&rig, &again));
        assert_eq!(rig.complete(KEY, &pending, waiter), Ok(Durable::Parked));
        assert_eq!(get_deleted(&rig, "txn", XATTR).unwrap(), "1", "flushed: {flushed}");
        assert_eq!(mutate(&rig, &again).unwrap_err(), Status::SyncWriteInProgress);
        rig.flush();
        assert!(!rig.completed(KEY, &pending).wait);
        assert_eq!(get_deleted(&rig, "txn", XATTR).unwrap(), "2");

        let commit = [spec(Change::BodyFromXattr, "txn", "", XATTR), spec(Change::Delete, "txn", "", XATTR)];
        let revive = SubdocMutation { revive: true, specs: &commit, ..again };
        let (pending, deleted) = done(mutate(&rig, &revive));
        assert!(!deleted);
        assert_eq!(body(&rig), Err(Status::KeyNotFound));
        assert_eq!(get_deleted(&rig, "txn", XATTR).unwrap(), "2");
        rig.flush();
        assert!(!rig.completed(KEY, &pending).wait);
        assert_eq!(body(&rig).unwrap(), "2");
        let rig = rig.crash();
        assert_eq!(body(&rig).unwrap(), "2");
    }
}

#[test]
fn a_document_that_is_only_being_created_is_not_there_to_be_changed() {
    let mut rig = rig();
    let specs = [spec(Change::DictUpsert, "a", "1", BODY)];
    let durability = DurabilityLevel::PersistToMajority;
    let create = SubdocMutation { precondition: Precondition::Any, durability, ..mutation(&specs) };
    done(mutate(&rig, &create));
    assert_eq!(mutate(&rig, &mutation(&specs)).unwrap_err(), Status::KeyNotFound);
    assert_eq!(mutate(&rig, &create).unwrap_err(), Status::SyncWriteInProgress);
    assert_eq!(get(&rig, "a", BODY), Err(Status::KeyNotFound));
    rig.flush();
    done(mutate(&rig, &mutation(&specs)));
}

#[test]
fn attributes_have_an_allowance_of_their_own() {
    let rig =
        Rig::new(BucketOptions { quota_bytes: 512 << 20, codec: codec(), ..options(BucketKind::Couchbase) });
    let large = format!("\"{}\"", "x".repeat(base::limits::VALUE_BYTES_MAX - 100));
    set(&rig, large.as_bytes());
    let system = format!("\"{}\"", "y".repeat(base::limits::XATTR_BYTES_MAX - 100));
    change(&rig, &[spec(Change::DictUpsert, "_sys", &system, XATTR)]);
    assert_eq!(
        mutate(&rig, &mutation(&[spec(Change::DictUpsert, "user", &system, XATTR)])).unwrap_err(),
        Status::TooBig
    );
    assert_eq!(
        mutate(&rig, &mutation(&[spec(Change::DictUpsert, "_more", &system, XATTR)])).unwrap_err(),
        Status::TooBig
    );
}

#[test]
fn writers_of_different_parts_do_not_lose_each_others_changes() {
    let rig = rig();
    set(&rig, b"{}");
    let (vb, key) = rig.key(KEY);
    let now = rig.now();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let bucket = &rig.bucket;
            scope.spawn(move || {
                for round in 0..200 {
                    let path = format!("w{writer}.n");
                    let specs = [spec(Change::Counter, &path, "1", BODY)];
                    loop {
                        match bucket.subdoc_mutate(vb, key, &mutation(&specs), now) {
                            Ok(SubdocMutated::Done { counted, .. }) => {
                                assert_eq!(counted, [(0, round + 1)]);
                                break;
                            }
                            // Too many collisions in a row.
                            Err(settee_engine::Refusal::Status(Status::TemporaryFailure)) => {}
                            other => panic!("{other:?}"),
                        }
                    }
                }
            });
        }
    });
    for writer in 0..4 {
        assert_eq!(get(&rig, &format!("w{writer}.n"), BODY).unwrap(), "200");
    }
}

#[test]
fn a_change_right_after_a_crash_is_of_the_clock() {
    let mut rig = rig();
    set(&rig, b"{}");
    rig.flush();
    for round in 0..4 {
        rig = rig.crash();
        let cas = change(&rig, &[spec(Change::DictUpsert, "n", "1", BODY)]).cas;
        assert!(cas.get() <= rig.now().wall_nanos + 2_100_000_000, "round {round}: {cas:?}");
        rig.flush();
    }
}
