//! What each operation answers in each situation, as clients of Couchbase know it.

use crate::support::{Rig, START_SECS, options};
use base::{
    Cas, Datatype, Status,
    bucket::{BucketKind, EvictionPolicy},
};
use settee_engine::{
    Bucket, BucketChange, BucketOptions, Budget, Counter, Delete, Expiry, Mutated, Refusal, Store, StoreMode,
};

const KEY: &[u8] = b"\0key";

fn rig() -> Rig {
    Rig::new(options(BucketKind::Couchbase))
}

fn store(rig: &Rig, key: &[u8], request: Store<'_>) -> Result<Mutated, Status> {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.store(vb, key, &request, now))
}

fn set(rig: &Rig, key: &[u8], value: &[u8]) -> Mutated {
    store(rig, key, Store::set(value)).unwrap()
}

fn delete(rig: &Rig, key: &[u8], cas: Cas) -> Result<Mutated, Status> {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.delete(vb, key, &Delete { cas, ..Delete::default() }, now))
}

#[derive(Clone, Debug, PartialEq)]
struct Doc {
    value: Vec<u8>,
    cas: Cas,
    flags: u32,
    expiry: u32,
    rev: u64,
}

fn copy(view: &settee_engine::DocView<'_>) -> Doc {
    let value = view.value.to_vec();
    assert_eq!(&*view.share(), &value[..]);
    Doc { value, cas: view.cas, flags: view.flags, expiry: view.expiry, rev: view.rev }
}

fn get(rig: &Rig, key: &[u8]) -> Result<Doc, Status> {
    let now = rig.now();
    rig.run(key, |bucket: &Bucket, vb, key| bucket.get(vb, key, now, copy))
}

fn lock(rig: &Rig, key: &[u8], secs: u32) -> Result<Doc, Status> {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.lock(vb, key, secs, now, copy))
}

fn unlock(rig: &Rig, key: &[u8], cas: Cas) -> Result<(), Status> {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.unlock(vb, key, cas, now))
}

fn touch(rig: &Rig, key: &[u8], expiry: u32) -> Result<(Doc, Mutated), Status> {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.touch(vb, key, expiry, now, copy))
}

fn count(rig: &Rig, key: &[u8], counter: Counter) -> Result<u64, Status> {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.counter(vb, key, &counter, now)).map(|done| done.0)
}

const UP: Counter = Counter {
    delta: 1,
    decrement: false,
    initial: None,
    expiry: Expiry::Wire(0),
    cas: Cas::NONE,
    durability: base::bucket::DurabilityLevel::None,
};

#[test]
fn what_was_stored_is_read() {
    let rig = rig();
    assert_eq!(get(&rig, KEY), Err(Status::KeyNotFound));
    let request = Store { flags: 0x0200_0000, expiry: Expiry::Wire(100), ..Store::set(b"value") };
    let mutated = store(&rig, KEY, request).unwrap();
    assert_eq!(mutated.seqno.get(), 1);
    assert!(!mutated.wait);
    let doc = get(&rig, KEY).unwrap();
    assert_eq!(doc.value, b"value");
    assert_eq!((doc.cas, doc.flags, doc.rev), (mutated.cas, 0x0200_0000, 1));
    assert_eq!(u64::from(doc.expiry), START_SECS + 100);
    let second = set(&rig, KEY, b"other");
    assert!(second.cas > mutated.cas && second.seqno > mutated.seqno);
    assert_eq!(
        get(&rig, KEY).unwrap(),
        Doc { value: b"other".to_vec(), cas: second.cas, flags: 0, expiry: 0, rev: 2 }
    );
}

#[test]
fn modes_have_their_preconditions() {
    let rig = rig();
    let with = |mode| Store { mode, ..Store::set(b"v") };
    assert_eq!(store(&rig, KEY, with(StoreMode::Replace)), Err(Status::KeyNotFound));
    assert_eq!(store(&rig, KEY, with(StoreMode::Append)), Err(Status::NotStored));
    assert_eq!(store(&rig, KEY, with(StoreMode::Prepend)), Err(Status::NotStored));
    assert!(store(&rig, KEY, with(StoreMode::Add)).is_ok());
    assert_eq!(store(&rig, KEY, with(StoreMode::Add)), Err(Status::KeyExists));
    assert!(store(&rig, KEY, with(StoreMode::Replace)).is_ok());
    delete(&rig, KEY, Cas::NONE).unwrap();
    assert_eq!(store(&rig, KEY, with(StoreMode::Replace)), Err(Status::KeyNotFound));
    assert!(store(&rig, KEY, with(StoreMode::Add)).is_ok(), "a deleted document does not exist");
    assert!(get(&rig, KEY).unwrap().rev > 3, "revisions go on over a deletion");
}

#[test]
fn append_and_prepend_keep_flags_and_expiry() {
    let rig = rig();
    store(&rig, KEY, Store { flags: 7, expiry: Expiry::Wire(50), ..Store::set(b"b") }).unwrap();
    store(&rig, KEY, Store { mode: StoreMode::Append, flags: 9, ..Store::set(b"c") }).unwrap();
    store(&rig, KEY, Store { mode: StoreMode::Prepend, ..Store::set(b"a") }).unwrap();
    let doc = get(&rig, KEY).unwrap();
    assert_eq!((&doc.value[..], doc.flags, u64::from(doc.expiry)), (&b"abc"[..], 7, START_SECS + 50));
}

#[test]
fn a_cas_must_match_and_a_cas_for_nothing_finds_nothing() {
    let rig = rig();
    let with = |cas| Store { cas, ..Store::set(b"v") };
    assert_eq!(store(&rig, KEY, with(Cas(5))), Err(Status::KeyNotFound));
    assert_eq!(delete(&rig, KEY, Cas(5)), Err(Status::KeyNotFound));
    let mutated = set(&rig, KEY, b"v");
    assert_eq!(store(&rig, KEY, with(Cas(5))), Err(Status::KeyExists));
    assert_eq!(delete(&rig, KEY, Cas(5)), Err(Status::KeyExists));
    assert_eq!(count(&rig, KEY, Counter { cas: Cas(5), ..UP }), Err(Status::KeyExists));
    let mutated = store(&rig, KEY, with(mutated.cas)).unwrap();
    delete(&rig, KEY, mutated.cas).unwrap();
    assert_eq!(store(&rig, KEY, with(mutated.cas)), Err(Status::KeyNotFound));
}

#[test]
fn preserve_keeps_an_expiry_and_everything_else_replaces_it() {
    let rig = rig();
    let with = |expiry| Store { expiry, ..Store::set(b"v") };
    store(&rig, KEY, with(Expiry::Preserve(30))).unwrap();
    assert_eq!(u64::from(get(&rig, KEY).unwrap().expiry), START_SECS + 30);
    store(&rig, KEY, with(Expiry::Preserve(90))).unwrap();
    assert_eq!(u64::from(get(&rig, KEY).unwrap().expiry), START_SECS + 30);
    store(&rig, KEY, with(Expiry::Wire(0))).unwrap();
    assert_eq!(get(&rig, KEY).unwrap().expiry, 0);
    store(&rig, KEY, with(Expiry::Preserve(90))).unwrap();
    assert_eq!(get(&rig, KEY).unwrap().expiry, 0);
}

#[test]
fn documents_expire_when_they_are_met_and_by_the_pager() {
    let mut rig = rig();
    for key in [KEY, b"\0other"] {
        store(&rig, key, Store { expiry: Expiry::Wire(10), ..Store::set(b"v") }).unwrap();
    }
    rig.clock.advance_secs(10);
    assert!(get(&rig, KEY).is_ok());
    assert_eq!(rig.bucket.expire(rig.now(), settee_engine::Budget::default()).items, 0);
    rig.clock.advance_secs(1);
    assert_eq!(get(&rig, KEY), Err(Status::KeyNotFound));
    assert_eq!(rig.bucket.stats().curr_items, 1);
    assert_eq!(rig.bucket.expire(rig.now(), settee_engine::Budget::default()).items, 1);
    assert_eq!(rig.bucket.stats().curr_items, 0);
    assert_eq!(rig.bucket.stats().ops.expired, 2);
    let now = rig.now();
    let meta = rig.run(KEY, |bucket, vb, key| bucket.meta(vb, key, now)).unwrap();
    assert!(meta.deleted);
    assert!(store(&rig, KEY, Store { mode: StoreMode::Add, ..Store::set(b"v") }).is_ok());
}

#[test]
fn counters_are_decimal_strings() {
    let rig = rig();
    assert_eq!(count(&rig, KEY, UP), Err(Status::KeyNotFound));
    let create = Counter { initial: Some(7), expiry: Expiry::Wire(20), ..UP };
    assert_eq!(count(&rig, KEY, create), Ok(7));
    assert_eq!(count(&rig, KEY, Counter { delta: 3, expiry: Expiry::Wire(90), ..UP }), Ok(10));
    let doc = get(&rig, KEY).unwrap();
    assert_eq!((&doc.value[..], u64::from(doc.expiry)), (&b"10"[..], START_SECS + 20));
    assert_eq!(count(&rig, KEY, Counter { delta: 11, decrement: true, ..UP }), Ok(0), "stops at zero");
    assert_eq!(count(&rig, KEY, Counter { delta: u64::MAX, ..UP }), Ok(u64::MAX));
    assert_eq!(count(&rig, KEY, Counter { delta: 2, ..UP }), Ok(1), "wraps");
    set(&rig, KEY, b"ten");
    assert_eq!(count(&rig, KEY, UP), Err(Status::DeltaBadValue));
}

#[test]
fn locks_hide_the_cas_and_stop_everybody_else() {
    let mut rig = rig();
    assert_eq!(lock(&rig, KEY, 5), Err(Status::KeyNotFound));
    assert_eq!(unlock(&rig, KEY, Cas(1)), Err(Status::KeyNotFound));
    let mutated = set(&rig, KEY, b"v");
    assert_eq!(unlock(&rig, KEY, mutated.cas), Err(Status::NotLocked));
    let held = lock(&rig, KEY, 5).unwrap();
    assert_ne!(held.cas, mutated.cas);
    assert_eq!(get(&rig, KEY).unwrap().cas, Cas::LOCKED);
    let now = rig.now();
    assert_eq!(rig.run(KEY, |b, vb, key| b.meta(vb, key, now)).unwrap().cas, Cas::LOCKED);
    assert_eq!(lock(&rig, KEY, 5), Err(Status::Locked));
    assert_eq!(touch(&rig, KEY, 5), Err(Status::Locked));
    assert_eq!(store(&rig, KEY, Store::set(b"w")), Err(Status::Locked));
    assert_eq!(store(&rig, KEY, Store { cas: mutated.cas, ..Store::set(b"w") }), Err(Status::Locked));
    assert_eq!(store(&rig, KEY, Store { mode: StoreMode::Append, ..Store::set(b"w") }), Err(Status::Locked));
    assert_eq!(store(&rig, KEY, Store { mode: StoreMode::Add, ..Store::set(b"w") }), Err(Status::KeyExists));
    assert_eq!(delete(&rig, KEY, Cas::NONE), Err(Status::Locked));
    assert_eq!(count(&rig, KEY, UP), Err(Status::Locked));
    assert_eq!(unlock(&rig, KEY, mutated.cas), Err(Status::Locked));
    unlock(&rig, KEY, held.cas).unwrap();
    assert_eq!(get(&rig, KEY).unwrap().cas, mutated.cas);

    let held = lock(&rig, KEY, 5).unwrap();
    store(&rig, KEY, Store { cas: held.cas, ..Store::set(b"w") }).unwrap();
    assert_eq!(unlock(&rig, KEY, held.cas), Err(Status::NotLocked), "a mutation with the lock's CAS ends it");

    lock(&rig, KEY, 0).unwrap();
    rig.clock.advance_secs(14);
    assert_eq!(store(&rig, KEY, Store::set(b"x")), Err(Status::Locked), "15 seconds unless told otherwise");
    rig.clock.advance_secs(1);
    assert!(store(&rig, KEY, Store::set(b"x")).is_ok());
    lock(&rig, KEY, 31).unwrap();
    rig.clock.advance_secs(15);
    assert!(delete(&rig, KEY, Cas::NONE).is_ok());
    lock(&rig, KEY, 5).unwrap_err();
}

#[test]
fn a_lock_can_be_ended_by_deleting_with_its_cas() {
    let rig = rig();
    set(&rig, KEY, b"v");
    let held = lock(&rig, KEY, 5).unwrap();
    delete(&rig, KEY, held.cas).unwrap();
    set(&rig, KEY, b"new");
}

#[test]
fn touch_changes_the_expiry_and_the_cas_but_not_the_value() {
    let rig = rig();
    assert_eq!(touch(&rig, KEY, 5), Err(Status::KeyNotFound));
    let mutated = store(&rig, KEY, Store { flags: 3, ..Store::set(b"v") }).unwrap();
    let (doc, touched) = touch(&rig, KEY, 60).unwrap();
    assert_eq!((&doc.value[..], doc.flags, u64::from(doc.expiry)), (&b"v"[..], 3, START_SECS + 60));
    assert!(touched.cas > mutated.cas);
    assert_eq!(doc.cas, touched.cas);
    let (_, again) = touch(&rig, KEY, 60).unwrap();
    assert_eq!(again.cas, touched.cas, "the same expiry changes nothing");
    assert_eq!(touch(&rig, KEY, 0).unwrap().0.expiry, 0);
}

#[test]
fn caps_on_expiry_apply_to_every_way_of_setting_one() {
    let rig = Rig::new(settee_engine::BucketOptions { max_ttl_secs: 100, ..options(BucketKind::Ephemeral) });
    set(&rig, KEY, b"1");
    assert_eq!(u64::from(get(&rig, KEY).unwrap().expiry), START_SECS + 100);
    touch(&rig, KEY, 500).unwrap();
    assert_eq!(u64::from(get(&rig, KEY).unwrap().expiry), START_SECS + 100);
    touch(&rig, KEY, 20).unwrap();
    assert_eq!(u64::from(get(&rig, KEY).unwrap().expiry), START_SECS + 20);
    count(&rig, b"\0n", Counter { initial: Some(1), ..UP }).unwrap();
    assert_eq!(u64::from(get(&rig, b"\0n").unwrap().expiry), START_SECS + 100);
}

#[test]
fn sizes_are_limited() {
    let rig =
        Rig::new(settee_engine::BucketOptions { value_bytes_max: 10, ..options(BucketKind::Couchbase) });
    assert_eq!(store(&rig, KEY, Store::set(&[1; 11])), Err(Status::TooBig));
    set(&rig, KEY, &[1; 10]);
    assert_eq!(store(&rig, KEY, Store { mode: StoreMode::Append, ..Store::set(b"x") }), Err(Status::TooBig));
}

#[test]
fn extended_attributes_survive_writes_that_know_nothing_of_them() {
    let rig = rig();
    let xattrs = b"\0\0\0\x0c\0\0\0\x08_k\0\"v\"\0\0";
    let mut value = xattrs.to_vec();
    value.extend_from_slice(b"5");
    store(&rig, KEY, Store { datatype: Datatype::XATTR, ..Store::set(&value) }).unwrap();
    let with = |tail: &[u8]| [&xattrs[..], tail].concat();
    assert_eq!(count(&rig, KEY, UP), Ok(6));
    assert_eq!(get(&rig, KEY).unwrap().value, with(b"6"));
    store(&rig, KEY, Store { mode: StoreMode::Prepend, ..Store::set(b"a") }).unwrap();
    assert_eq!(get(&rig, KEY).unwrap().value, with(b"a6"));
    set(&rig, KEY, b"body");
    assert_eq!(get(&rig, KEY).unwrap().value, with(b"body"));
    delete(&rig, KEY, Cas::NONE).unwrap();
    set(&rig, KEY, b"body");
    assert_eq!(get(&rig, KEY).unwrap().value, b"body");
}

#[test]
fn unknown_vbuckets_and_collections_are_refused() {
    let rig = rig();
    let (_, key) = rig.key(KEY);
    let refused = rig.bucket.get(base::VbId(16), key, rig.now(), copy).unwrap_err();
    assert_eq!(refused, Refusal::Status(Status::NotMyVbucket));
    assert_eq!(get(&rig, b"\x08key"), Err(Status::UnknownCollection));
    assert_eq!(store(&rig, b"\x08key", Store::set(b"v")), Err(Status::UnknownCollection));
}

#[test]
fn a_random_document_is_not_looked_for_without_end() {
    let mut rig = Rig::new(BucketOptions { vbuckets: 2, shards: 1, ..options(BucketKind::Ephemeral) });
    let any = |rig: &Rig| rig.bucket.random(base::CollectionId(0), 7, rig.now(), |_| ()).err();
    let now = rig.now();
    for number in 0..1_u32 << 18 {
        let key = [&[0][..], &number.to_be_bytes()].concat();
        let store = Store { expiry: Expiry::Wire(1), ..Store::set(b"") };
        rig.run(&key, |bucket, vb, key| bucket.store(vb, key, &store, now)).unwrap();
    }
    assert_eq!(any(&rig), None);
    rig.clock.advance_secs(2);
    // All have expired, which nobody has noticed yet.
    assert_eq!(any(&rig), Some(Refusal::Status(Status::TemporaryFailure)));
}

/// A client that locks a document means to change it: it is there until the lock is over.
#[test]
fn a_locked_document_is_not_dropped_to_make_room() {
    for kind in [BucketKind::Memcached, BucketKind::Ephemeral] {
        let eviction = EvictionPolicy::NruEviction;
        let mut rig = Rig::new(BucketOptions { eviction, ..options(kind) });
        set(&rig, KEY, b"v");
        let locked = lock(&rig, KEY, 10).unwrap();
        let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
        let make_room = |rig: &Rig| {
            for number in 0..1_000 {
                set(rig, format!("\0other{number}").as_bytes(), &[1; 500]);
            }
            rig.bucket.reconfigure(quota(0));
            while rig.bucket.page(rig.now(), Budget::default()).items > 0 {}
            rig.bucket.reconfigure(quota(64 << 20));
            rig.bucket.stats().curr_items
        };
        assert_eq!(make_room(&rig), 1, "{kind:?}");
        assert_eq!(get(&rig, KEY).unwrap().value, b"v");
        assert_eq!(unlock(&rig, KEY, locked.cas), Ok(()), "{kind:?}");
        lock(&rig, KEY, 10).unwrap();
        rig.clock.advance_secs(11);
        assert_eq!(make_room(&rig), 0, "{kind:?}: the lock has run out");
    }
}
