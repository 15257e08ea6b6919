//! Durable writes: what everybody else sees of one that is pending, and what becomes of it.

use crate::support::{Rig, options};
use base::{
    Cas, Status,
    bucket::{BucketKind, DurabilityLevel},
};
use settee_engine::{
    BucketChange, Counter, Delete, Durable, Expiry, Mutated, Store, StoreMode, Waiter, WithMeta,
};

const KEY: &[u8] = b"\0key";
const NEW: &[u8] = b"\0new";
const DURABLE: DurabilityLevel = DurabilityLevel::MajorityAndPersistActive;
const WAITER: Waiter = Waiter { worker: 1, connection: 2, ticket: 3 };
const IN_PROGRESS: Status = Status::SyncWriteInProgress;

fn rig() -> Rig {
    Rig::new(options(BucketKind::Couchbase))
}

fn store(rig: &Rig, key: &[u8], request: Store<'_>) -> Result<Mutated, Status> {
    rig.run(key, |bucket, vb, key| bucket.store(vb, key, &request, rig.now()))
}

fn durable<'a>(value: &'a [u8]) -> Store<'a> {
    Store { durability: DURABLE, ..Store::set(value) }
}

fn delete(rig: &Rig, durability: DurabilityLevel) -> Result<Mutated, Status> {
    let request = Delete { durability, ..Delete::default() };
    rig.run(KEY, |bucket, vb, key| bucket.delete(vb, key, &request, rig.now()))
}

fn get(rig: &Rig, key: &[u8]) -> Result<Vec<u8>, Status> {
    rig.run(key, |bucket, vb, key| bucket.get(vb, key, rig.now(), |view| view.value.to_vec()))
}

fn count(rig: &Rig, key: &[u8], initial: Option<u64>) -> Result<u64, Status> {
    let counter = Counter {
        delta: 1,
        decrement: false,
        initial,
        expiry: Expiry::default(),
        cas: Cas::NONE,
        durability: DurabilityLevel::None,
    };
    rig.run(key, |bucket, vb, key| bucket.counter(vb, key, &counter, rig.now())).map(|(number, _)| number)
}

fn with_meta(rig: &Rig, key: &[u8], deletes: bool) -> Result<Mutated, Status> {
    let cas = Cas(rig.now().wall_nanos);
    let incoming = WithMeta {
        skip_conflict_resolution: true,
        ..WithMeta::new(cas, 99, if deletes { b"" } else { b"v" })
    };
    rig.run(key, |bucket, vb, key| {
        if deletes {
            bucket.delete_with_meta(vb, key, &incoming, rig.now())
        } else {
            bucket.set_with_meta(vb, key, &incoming, rig.now())
        }
    })
}

fn touch(rig: &Rig, key: &[u8]) -> Result<(), Status> {
    rig.run(key, |bucket, vb, key| bucket.touch(vb, key, 100, rig.now(), |_| ())).map(|_| ())
}

fn lock(rig: &Rig, key: &[u8]) -> Result<Cas, Status> {
    rig.run(key, |bucket, vb, key| bucket.lock(vb, key, 10, rig.now(), |view| view.cas))
}

fn unlock(rig: &Rig, key: &[u8], cas: Cas) -> Result<(), Status> {
    rig.run(key, |bucket, vb, key| bucket.unlock(vb, key, cas, rig.now()))
}

#[test]
fn readers_see_the_version_before_a_pending_one() {
    let mut rig = rig();
    let before = store(&rig, KEY, Store::set(b"1")).unwrap();
    store(&rig, KEY, durable(b"2")).unwrap();
    store(&rig, NEW, durable(b"n")).unwrap();
    let meta = |rig: &Rig, key: &[u8]| {
        rig.run(key, |bucket, vb, key| bucket.meta(vb, key, rig.now())).map(|meta| (meta.cas, meta.deleted))
    };
    assert_eq!(get(&rig, KEY).unwrap(), b"1");
    assert_eq!(meta(&rig, KEY), Ok((before.cas, false)));
    assert_eq!(get(&rig, NEW), Err(Status::KeyNotFound));
    assert_eq!(meta(&rig, NEW), Err(Status::KeyNotFound));
    rig.flush();
    assert_eq!(get(&rig, KEY).unwrap(), b"2");
    assert_eq!(get(&rig, NEW).unwrap(), b"n");
}

#[test]
fn other_writers_of_a_pending_key_are_told_so() {
    let rig = rig();
    store(&rig, KEY, Store::set(b"1")).unwrap();
    store(&rig, KEY, durable(b"2")).unwrap();
    for mode in [StoreMode::Set, StoreMode::Add, StoreMode::Replace, StoreMode::Append, StoreMode::Prepend] {
        for request in [durable(b"3"), Store::set(b"3")] {
            assert_eq!(store(&rig, KEY, Store { mode, ..request }), Err(IN_PROGRESS), "{mode:?}");
        }
    }
    let wrong_cas = Store { cas: Cas(77), ..Store::set(b"3") };
    assert_eq!(store(&rig, KEY, wrong_cas), Err(IN_PROGRESS));
    assert_eq!(delete(&rig, DurabilityLevel::None), Err(IN_PROGRESS));
    assert_eq!(delete(&rig, DURABLE), Err(IN_PROGRESS));
    assert_eq!(count(&rig, KEY, None), Err(IN_PROGRESS));
    assert_eq!(touch(&rig, KEY), Err(IN_PROGRESS));
    assert_eq!(lock(&rig, KEY), Err(IN_PROGRESS));
    assert_eq!(unlock(&rig, KEY, Cas(77)), Err(IN_PROGRESS));
    assert_eq!(with_meta(&rig, KEY, false), Err(IN_PROGRESS));
    assert_eq!(with_meta(&rig, KEY, true), Err(IN_PROGRESS));
}

#[test]
fn what_needs_a_document_does_not_find_one_that_is_only_being_created() {
    let rig = rig();
    store(&rig, KEY, durable(b"1")).unwrap();
    let with_mode = |mode| store(&rig, KEY, Store { mode, ..Store::set(b"2") });
    assert_eq!(with_mode(StoreMode::Replace), Err(Status::KeyNotFound));
    assert_eq!(with_mode(StoreMode::Append), Err(Status::NotStored));
    assert_eq!(with_mode(StoreMode::Prepend), Err(Status::NotStored));
    assert_eq!(count(&rig, KEY, None), Err(Status::KeyNotFound));
    assert_eq!(count(&rig, KEY, Some(5)), Err(IN_PROGRESS));
    assert_eq!(with_mode(StoreMode::Set), Err(IN_PROGRESS));
    assert_eq!(with_mode(StoreMode::Add), Err(IN_PROGRESS));
    assert_eq!(delete(&rig, DurabilityLevel::None), Err(IN_PROGRESS));
}

#[test]
fn a_durable_deletion_is_seen_when_it_is_synced() {
    let rig = rig();
    store(&rig, KEY, Store::set(b"1")).unwrap();
    let deleted = delete(&rig, DURABLE).unwrap();
    assert!(deleted.wait);
    assert_eq!(get(&rig, KEY).unwrap(), b"1");
    assert_eq!(store(&rig, KEY, Store { mode: StoreMode::Add, ..Store::set(b"2") }), Err(IN_PROGRESS));
    let mut rig = rig.crash();
    rig.warm_up();
    assert_eq!(get(&rig, KEY), Err(Status::KeyNotFound), "neither had been synced");
    store(&rig, KEY, Store::set(b"1")).unwrap();
    rig.flush();
    delete(&rig, DURABLE).unwrap();
    let mut rig = rig.crash();
    assert_eq!(get(&rig, KEY).unwrap(), b"1");
    delete(&rig, DURABLE).unwrap();
    rig.flush();
    let rig = rig.crash();
    assert_eq!(get(&rig, KEY), Err(Status::KeyNotFound));
    store(&rig, KEY, Store { mode: StoreMode::Add, ..durable(b"2") }).unwrap();
}

#[test]
fn a_restart_keeps_what_was_synced_and_finishes_nothing_else() {
    let mut rig = rig();
    store(&rig, KEY, Store::set(b"1")).unwrap();
    rig.flush();
    store(&rig, KEY, durable(b"2")).unwrap();
    let mut rig = rig.crash();
    assert_eq!(get(&rig, KEY).unwrap(), b"1");
    store(&rig, KEY, durable(b"3")).unwrap();
    rig.flush();
    let rig = rig.crash();
    assert_eq!(get(&rig, KEY).unwrap(), b"3", "acknowledged or not");
    store(&rig, KEY, durable(b"4")).unwrap();
    let rig = rig.restart();
    assert_eq!(get(&rig, KEY).unwrap(), b"4", "a clean stop writes what is pending");
    store(&rig, KEY, Store::set(b"5")).unwrap();
}

#[test]
fn expiry_leaves_pending_keys_alone() {
    let mut rig = rig();
    store(&rig, KEY, Store { expiry: Expiry::Wire(5), ..Store::set(b"1") }).unwrap();
    rig.flush();
    store(&rig, KEY, durable(b"2")).unwrap();
    rig.clock.advance_secs(10);
    assert_eq!(get(&rig, KEY), Err(Status::KeyNotFound), "the version before has expired");
    assert_eq!(store(&rig, KEY, Store::set(b"3")), Err(IN_PROGRESS));
    while rig.bucket.expire(rig.now(), Default::default()).more {}
    rig.flush();
    assert_eq!(get(&rig, KEY).unwrap(), b"2");

    store(&rig, NEW, Store { expiry: Expiry::Wire(5), ..durable(b"n") }).unwrap();
    rig.clock.advance_secs(10);
    assert_eq!(get(&rig, NEW), Err(Status::KeyNotFound));
    rig.flush();
    assert_eq!(get(&rig, NEW), Err(Status::KeyNotFound), "it has expired before it was seen");
    store(&rig, NEW, Store { mode: StoreMode::Add, ..Store::set(b"m") }).unwrap();
}

#[test]
fn a_durable_write_with_the_locks_cas_ends_the_lock() {
    let mut rig = rig();
    store(&rig, KEY, Store::set(b"1")).unwrap();
    let cas = lock(&rig, KEY).unwrap();
    assert_eq!(store(&rig, KEY, durable(b"2")), Err(Status::Locked));
    store(&rig, KEY, Store { cas, ..durable(b"2") }).unwrap();
    rig.flush();
    store(&rig, KEY, Store::set(b"3")).unwrap();
}

#[test]
fn the_buckets_minimum_can_be_changed_while_it_is_used() {
    let mut rig = rig();
    let set = |rig: &Rig, durability_min, replicas| {
        let durability_min = Some(durability_min);
        rig.bucket.reconfigure(BucketChange {
            durability_min,
            replicas: Some(replicas),
            ..Default::default()
        });
    };
    assert!(!store(&rig, KEY, Store::set(b"1")).unwrap().wait);
    set(&rig, DurabilityLevel::PersistToMajority, 0);
    let raised = Store { durability: DurabilityLevel::Majority, ..Store::set(b"2") };
    let written = store(&rig, KEY, raised).unwrap();
    assert!(written.wait, "raised to the minimum");
    assert_eq!(get(&rig, KEY).unwrap(), b"1");
    assert_eq!(rig.complete(KEY, &written, WAITER), Ok(Durable::Parked));
    rig.flush();
    assert!(!rig.completed(KEY, &written).wait);
    assert!(delete(&rig, DurabilityLevel::None).unwrap().wait);
    rig.flush();
    assert!(!with_meta(&rig, KEY, false).unwrap().wait, "other clusters' writes are not raised");
    touch(&rig, KEY).unwrap();
    set(&rig, DurabilityLevel::Majority, 1);
    assert_eq!(store(&rig, KEY, Store::set(b"3")), Err(Status::DurabilityImpossible));
    set(&rig, DurabilityLevel::None, 1);
    assert!(!store(&rig, KEY, Store::set(b"4")).unwrap().wait);
    assert_eq!(store(&rig, KEY, raised), Err(Status::DurabilityImpossible));
}
