//! Documents that memory has forgotten: what that costs, and that nothing else tells.

use std::{
    ops::{Bound, Range},
    sync::Arc,
};

use crate::support::{Clock, Disk, FaultDisk, Rig, START_SECS, mutation, options};
use base::{
    Cas, CollectionId, Manifest, ManifestUid, Status, VbId,
    bucket::{BucketKind, DurabilityLevel, EvictionPolicy},
    manifest::Collection,
};
use settee_engine::{
    BucketChange, BucketOptions, Budget, Change, Counter, Delete, Expiry, MutationSpec, Pool, Refusal,
    ScanId, ScanLimits, ScanOptions, ScanSelection, ScanStep, Store, StoreMode, SubdocMutation, ValueForm,
    Wait, Waiter,
};

const KEYS: usize = 20_000;

fn rig() -> Rig {
    let disks = (0..2).map(|shard| Arc::new(FaultDisk::new(7, shard)) as Arc<dyn Disk>).collect();
    let options = BucketOptions { eviction: EvictionPolicy::FullEviction, ..options(BucketKind::Couchbase) };
    Rig::over(options, Arc::default(), disks, Clock(0))
}

pub(super) fn key(number: usize) -> Vec<u8> {
    format!("\0key-{number:08}").into_bytes()
}

pub(super) fn store(rig: &Rig, key: &[u8], store: Store<'_>) -> Result<u64, Status> {
    rig.run(key, |bucket, vb, key| bucket.store(vb, key, &store, rig.now())).map(|done| done.cas.get())
}

pub(super) fn get(rig: &Rig, key: &[u8]) -> Result<Vec<u8>, Status> {
    rig.run(key, |bucket, vb, key| bucket.get(vb, key, rig.now(), |view| view.value.to_vec()))
}

/// Whether a write has been made, and is in progress.
fn store_unwaited(rig: &Rig, key: &[u8], store: Store<'_>) -> bool {
    rig.run(key, |bucket, vb, key| bucket.store(vb, key, &store, rig.now())).unwrap().wait
}

fn count(rig: &Rig, key: &[u8]) -> Result<u64, Status> {
    let counter = Counter {
        delta: 1,
        decrement: false,
        initial: None,
        expiry: Expiry::default(),
        cas: Cas::NONE,
        durability: DurabilityLevel::None,
    };
    rig.run(key, |bucket, vb, key| bucket.counter(vb, key, &counter, rig.now())).map(|(number, _)| number)
}

/// Changes an attribute of a document that exists.
fn store_part(rig: &Rig, key: &[u8]) -> Result<(), Status> {
    let spec = MutationSpec {
        change: Change::DictUpsert,
        path: b"_mark",
        value: b"1",
        form: ValueForm::Plain,
        in_xattrs: true,
        create_parents: false,
    };
    let specs = [spec];
    let mutation = SubdocMutation { expiry: Expiry::Preserve(0), ..mutation(&specs) };
    rig.run(key, |bucket, vb, key| bucket.subdoc_mutate(vb, key, &mutation, rig.now())).map(|_| ())
}

pub(super) fn evict_everything(rig: &Rig) {
    let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
    rig.bucket.reconfigure(quota(0));
    while rig.bucket.page(rig.now(), Budget::default()).more {}
    rig.bucket.reconfigure(quota(rig.options.quota_bytes));
}

fn filled() -> Rig {
    let mut rig = rig();
    for number in 0..KEYS {
        store(&rig, &key(number), Store::set(&number.to_le_bytes())).unwrap();
    }
    rig.flush();
    evict_everything(&rig);
    rig
}

#[test]
fn it_takes_little_memory_and_absent_keys_cost_no_read() {
    let rig = filled();
    let stats = rig.bucket.stats();
    assert_eq!((stats.curr_items, stats.evicted, stats.curr_temp_items), (KEYS as u64, KEYS as u64, 0));
    let per_key = stats.pools.of(Pool::ColdIndex) as f64 / KEYS as f64;
    // Two bytes from half a million keys on: the fewer there are, the farther apart their hashes lie.
    assert!(per_key < 3.5, "{per_key} bytes per key");
    let is_asked = |number: &usize| {
        let key = key(KEYS + number);
        let (vb, hashed) = rig.key(&key);
        rig.bucket.get(vb, hashed, rig.now(), |_| ()) == Err(Refusal::Fetch)
    };
    let asked = (0..10_000).filter(is_asked).count();
    assert!(asked <= 100, "{asked} of 10,000 absent keys went to disk");
}

#[test]
fn no_operation_sees_a_difference() {
    let mut rig = filled();
    let add = Store { mode: StoreMode::Add, ..Store::set(b"new") };
    assert_eq!(store(&rig, &key(1), add), Err(Status::KeyExists));
    let replace = Store { mode: StoreMode::Replace, ..Store::set(b"replaced") };
    store(&rig, &key(2), replace).unwrap();
    store(&rig, &key(3), Store::set(b"overwritten")).unwrap();
    rig.run(&key(4), |bucket, vb, key| bucket.delete(vb, key, &Delete::default(), rig.now())).unwrap();
    assert_eq!(rig.bucket.stats().curr_items, KEYS as u64 - 1);
    rig.flush();
    evict_everything(&rig);
    assert_eq!(rig.bucket.stats().evicted, KEYS as u64 - 1);
    assert_eq!(get(&rig, &key(2)).unwrap(), b"replaced");
    assert_eq!(get(&rig, &key(3)).unwrap(), b"overwritten");
    assert_eq!(get(&rig, &key(4)), Err(Status::KeyNotFound));
    let value_only = Some(EvictionPolicy::ValueOnly);
    rig.bucket.reconfigure(BucketChange { eviction: value_only, ..BucketChange::default() });
    for number in 5..KEYS {
        assert_eq!(get(&rig, &key(number)).unwrap(), number.to_le_bytes());
    }
    evict_everything(&rig);
    let stats = rig.bucket.stats();
    assert_eq!(
        (stats.curr_items, stats.evicted),
        (KEYS as u64 - 1, 2),
        "keys 0 and 1 nobody asked for; the others stay"
    );
}

#[test]
fn a_restart_without_room_forgets_and_counts_the_same() {
    let rig = filled().crash();
    let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
    rig.bucket.reconfigure(quota(0));
    rig.warm_up();
    rig.bucket.reconfigure(quota(rig.options.quota_bytes));
    let stats = rig.bucket.stats();
    assert_eq!((stats.curr_items, stats.evicted), (KEYS as u64, KEYS as u64));
    assert_eq!(get(&rig, &key(77)).unwrap(), 77_usize.to_le_bytes());
}

#[test]
fn a_system_event_that_cannot_be_read_does_not_keep_documents_from_being_loaded() {
    let mut manifest = Manifest { uid: ManifestUid(1), next_id: 9, ..Manifest::default() };
    manifest.scopes[0].collections.push(Collection {
        id: CollectionId(8),
        name: "c".into(),
        max_ttl_secs: None,
    });
    let disks: Vec<_> = (0..2).map(|shard| Arc::new(FaultDisk::new(7, shard))).collect();
    let opened = disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
    let options = BucketOptions { eviction: EvictionPolicy::FullEviction, ..options(BucketKind::Couchbase) };
    let mut rig = Rig::over(options, Arc::new(manifest), opened, Clock(0));
    let key = |number: usize| [b"\x08", key(number).as_slice()].concat();
    for number in 0..500 {
        store(&rig, &key(number), Store::set(&number.to_le_bytes())).unwrap();
    }
    rig.flush();
    let (_, _, event) =
        rig.on_disk(VbId(0)).into_iter().find(|(_, key, _)| key.starts_with(b"\x01_")).unwrap();
    assert_ne!(disks.iter().map(|disk| disk.damage(&event)).sum::<usize>(), 0);
    let rig = rig.crash();
    let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
    rig.bucket.reconfigure(quota(0));
    rig.warm_up();
    rig.bucket.reconfigure(quota(rig.options.quota_bytes));
    for number in 0..500 {
        assert_eq!(get(&rig, &key(number)).unwrap(), number.to_le_bytes());
    }
}

#[test]
fn an_evicted_document_that_is_lost_to_damage_is_counted_once_when_it_is_replaced() {
    for durability in [DurabilityLevel::None, DurabilityLevel::PersistToMajority] {
        let disks: Vec<_> = (0..2).map(|shard| Arc::new(FaultDisk::new(7, shard))).collect();
        let opened = disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Disk>).collect();
        let options =
            BucketOptions { eviction: EvictionPolicy::FullEviction, ..options(BucketKind::Couchbase) };
        let mut rig = Rig::over(options, Arc::default(), opened, Clock(0));
        for number in 0..100 {
            store(&rig, &key(number), Store::set(format!("the value of {number:>8}").as_bytes())).unwrap();
        }
        rig.flush();
        evict_everything(&rig);
        let counts = |rig: &Rig| (rig.bucket.stats().curr_items, rig.bucket.stats().evicted);
        assert_eq!(counts(&rig), (100, 100));
        assert_eq!(disks.iter().map(|disk| disk.damage(b"the value of       42")).sum::<usize>(), 1);
        assert_eq!(get(&rig, &key(42)), Err(Status::TemporaryFailure));
        assert_eq!(counts(&rig), (100, 100), "it is not absent");
        let anew = Store { durability, ..Store::set(b"made anew") };
        store(&rig, &key(42), anew).unwrap();
        assert_eq!(counts(&rig).0, 100);
        rig.flush();
        assert_eq!(get(&rig, &key(42)).unwrap(), b"made anew");
        assert_eq!(counts(&rig), (100, 99));
        let rig = rig.crash();
        rig.warm_up();
        assert_eq!(rig.bucket.stats().curr_items, 100, "and after a restart");
    }
}

/// The vBucket may have evicted the document, or may be loading. A durable write in progress says nothing of what it replaces.
#[test]
fn a_damaged_document_is_not_absent_while_a_durable_write_replaces_it() {
    for (eviction, is_loading) in [
        (EvictionPolicy::FullEviction, false),
        (EvictionPolicy::FullEviction, true),
        (EvictionPolicy::ValueOnly, true),
    ] {
        let disks: Vec<_> = (0..2).map(|shard| Arc::new(FaultDisk::new(7, shard))).collect();
        let opened = disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Disk>).collect();
        let options = BucketOptions { eviction, ..options(BucketKind::Couchbase) };
        let mut rig = Rig::over(options, Arc::default(), opened, Clock(0));
        store(&rig, &key(42), Store::set(b"the value of 42")).unwrap();
        rig.flush();
        if eviction == EvictionPolicy::FullEviction {
            evict_everything(&rig);
        }
        assert_eq!(disks.iter().map(|disk| disk.damage(b"the value of 42")).sum::<usize>(), 1);
        if is_loading {
            rig = rig.crash();
        }
        let anew = Store { durability: DurabilityLevel::PersistToMajority, ..Store::set(b"made anew") };
        let prepared = store_unwaited(&rig, &key(42), anew);
        assert!(prepared, "{eviction:?} {is_loading}: it is in progress");
        assert_eq!(get(&rig, &key(42)), Err(Status::TemporaryFailure), "{eviction:?} {is_loading}");
        let in_progress = Some(Status::SyncWriteInProgress);
        for mode in [StoreMode::Replace, StoreMode::Append, StoreMode::Prepend] {
            let request = Store { mode, ..Store::set(b"x") };
            assert_eq!(
                store(&rig, &key(42), request).err(),
                in_progress,
                "{eviction:?} {is_loading} {mode:?}"
            );
        }
        assert_eq!(count(&rig, &key(42)).err(), in_progress, "{eviction:?} {is_loading}");
        assert_eq!(store_part(&rig, &key(42)).err(), in_progress, "{eviction:?} {is_loading}");
        // A document is absent while a durable write creates it.
        assert!(store_unwaited(&rig, &key(43), anew));
        let request = Store { mode: StoreMode::Replace, ..Store::set(b"x") };
        assert_eq!(
            store(&rig, &key(43), request).err(),
            Some(Status::KeyNotFound),
            "{eviction:?} {is_loading}"
        );
        rig.flush();
        assert_eq!(get(&rig, &key(42)).unwrap(), b"made anew");
    }
}

/// Damage may be gone again before the write that replaces the document is committed, and a reader bring the document back.
#[test]
fn a_document_that_could_be_read_again_gives_way_to_the_durable_write_like_any_other() {
    let disk = Arc::new(FaultDisk::new(7, 0));
    let options = BucketOptions {
        eviction: EvictionPolicy::FullEviction,
        vbuckets: 1,
        shards: 1,
        ..options(BucketKind::Couchbase)
    };
    let mut rig = Rig::over(options, Arc::default(), vec![disk.clone()], Clock(0));
    store(&rig, &key(42), Store::set(b"the value of 42")).unwrap();
    store(&rig, &key(43), Store::set(b"another one")).unwrap();
    rig.flush();
    evict_everything(&rig);
    assert_eq!(disk.damage(b"the value of 42"), 1);
    assert_eq!(get(&rig, &key(42)), Err(Status::TemporaryFailure));
    let anew = Store { durability: DurabilityLevel::PersistToMajority, ..Store::set(b"made anew") };
    assert!(store_unwaited(&rig, &key(42), anew));
    // The same bit.
    assert_eq!(disk.damage(b"|he value of 42"), 1);
    assert_eq!(get(&rig, &key(42)).unwrap(), b"the value of 42", "it is not committed");
    rig.flush();
    let counts = |rig: &Rig| (rig.bucket.stats().curr_items, rig.bucket.stats().evicted);
    assert_eq!(get(&rig, &key(42)).unwrap(), b"made anew");
    assert_eq!(counts(&rig), (2, 1), "the other one is on disk only");
    assert_eq!(scanned(&rig), [key(42), key(43)], "a range scan shows it all the same");
    evict_everything(&rig);
    assert_eq!(get(&rig, &key(42)).unwrap(), b"made anew");
    assert_eq!(get(&rig, &key(43)).unwrap(), b"another one");
    assert_eq!(counts(&rig), (2, 0));
}

/// The encoded keys of all documents of the first vBucket, as a range scan shows them.
fn scanned(rig: &Rig) -> Vec<Vec<u8>> {
    let waiter = Waiter { worker: 1, connection: 2, ticket: 3 };
    let options = ScanOptions {
        collection: CollectionId::DEFAULT,
        selection: ScanSelection::Range(Bound::Unbounded, Bound::Unbounded),
        keys_only: true,
        include_xattrs: false,
        uuid: None,
        must_exist: None,
        name: None,
    };
    let hold = rig.bucket.create_scan(VbId(0), ScanId(1), options, waiter, rig.now()).unwrap();
    while rig.bucket.run_backfills(0, rig.now()).more {}
    assert_eq!(rig.bucket.scan_created(&hold), Ok(Wait::Ready));
    drop(hold);
    let hold = rig.bucket.continue_scan(VbId(0), ScanId(1), waiter).unwrap();
    let limits = ScanLimits { items_max: u64::MAX, bytes_max: u64::MAX };
    let mut found = Vec::new();
    let step = rig.bucket.read_scan(&hold, limits, &mut |key, _| found.push([b"\0", key].concat()));
    assert_eq!(step, Ok(ScanStep::Complete));
    found
}

/// The bucket kept all keys, the disk failed half-way, and the operator had the bucket evict keys. What the first attempt left in memory
/// may be superseded on disk.
#[test]
fn what_a_loading_that_failed_has_left_is_not_believed_by_one_that_evicts_keys() {
    const EACH: usize = 100;
    let mut rig = Rig::new(BucketOptions { vbuckets: 2, ..options(BucketKind::Couchbase) });
    let delete = |rig: &Rig, number: usize| {
        let delete = Delete::default();
        rig.run(&key(number), |bucket, vb, key| bucket.delete(vb, key, &delete, rig.now())).unwrap();
    };
    let (overwritten, revived, deleted) = (0..EACH, EACH..2 * EACH, 2 * EACH..3 * EACH);
    let write = |rig: &Rig, numbers: &Range<usize>, value: &[u8]| {
        for number in numbers.clone() {
            store(rig, &key(number), Store::set(value)).unwrap();
        }
    };
    write(&rig, &(0..3 * EACH), b"first");
    rig.flush();
    write(&rig, &overwritten, b"second");
    revived.clone().chain(deleted.clone()).for_each(|number| delete(&rig, number));
    rig.flush();
    write(&rig, &revived, b"second");
    rig.flush();
    let mut rig = rig.crash();
    let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
    rig.bucket.reconfigure(quota(0));
    for shard in 0..2 {
        rig.stores[shard].end_next_scan_after(3 * EACH / 2);
        assert!(rig.bucket.warm_up(shard, rig.now()).is_err(), "half-way");
    }
    let full = Some(EvictionPolicy::FullEviction);
    rig.bucket.reconfigure(BucketChange { eviction: full, ..BucketChange::default() });
    rig.options.eviction = EvictionPolicy::FullEviction;
    let check = |rig: &Rig| {
        rig.warm_up();
        for number in overwritten.clone().chain(revived.clone()) {
            assert_eq!(get(rig, &key(number)).as_deref(), Ok(&b"second"[..]), "{number}");
        }
        for number in deleted.clone() {
            assert_eq!(get(rig, &key(number)), Err(Status::KeyNotFound), "{number}");
        }
        assert_eq!(rig.bucket.stats().curr_items, 2 * EACH as u64);
    };
    check(&rig);
    rig.clean_up();
    check(&rig);
    rig.flush();
    check(&rig.crash());
}

/// A pass over what has expired on disk only waits while many wait for the disk. It must not keep files from being
/// removed for as long as they do.
#[test]
fn what_looks_for_expired_documents_lets_go_of_the_disk_while_clients_wait_for_it() {
    let mut rig = rig();
    let expiry = Expiry::Wire((START_SECS + 1_000) as u32);
    for number in 0..KEYS {
        store(&rig, &key(number), Store { expiry, ..Store::set(b"value") }).unwrap();
    }
    rig.flush();
    evict_everything(&rig);
    rig.clock.advance_secs(2_000);
    let is_first_shards = |rig: &Rig, number: usize| rig.key(&key(number)).0.get().is_multiple_of(2);
    let backfills = |rig: &Rig| rig.open[0].stats().backfills;
    let in_fetches = |rig: &Rig| rig.bucket.stats().pools.of(Pool::Fetch);
    assert!(rig.bucket.run_backfills(0, rig.now()).more);
    assert_eq!(backfills(&rig), 1, "a pass has begun");
    assert!(in_fetches(&rig) > 0, "its list is counted");
    for number in (0..KEYS).filter(|number| is_first_shards(&rig, *number)).take(1_000) {
        let (key, waiter) = (key(number), Waiter { worker: 0, connection: number as u64, ticket: 0 });
        let (vb, hashed) = rig.key(&key);
        rig.bucket.fetch(vb, hashed, waiter).unwrap();
    }
    assert!(!rig.bucket.run_backfills(0, rig.now()).more);
    assert_eq!(backfills(&rig), 1, "it waits a little");
    rig.clock.advance_secs(6);
    assert!(!rig.bucket.run_backfills(0, rig.now()).more);
    assert_eq!(backfills(&rig), 0, "then it ends");
    // And begins again.
    let documents = |rig: &Rig| rig.bucket.stats().curr_items;
    let others = (0..KEYS).filter(|number| !is_first_shards(&rig, *number)).count() as u64;
    for _ in 0..1_000 {
        while rig.bucket.run_fetches(0, 64, rig.now()) > 0 {}
        while rig.bucket.expire(rig.now(), Budget::default()).more {}
        rig.flush();
        let more = rig.bucket.run_backfills(0, rig.now()).more;
        if !more && documents(&rig) == others {
            break;
        }
    }
    assert_eq!((documents(&rig), backfills(&rig), in_fetches(&rig)), (others, 0, 0));
}

/// Of a prepare that cannot be read nobody knows what became of it, so the disk is asked about every key of the vBucket. Documents
/// that were found to be on disk come back one by one, and count once.
#[test]
fn documents_beside_a_damaged_prepare_count_once() {
    let disks: Vec<_> = (0..2).map(|shard| Arc::new(FaultDisk::new(7, shard))).collect();
    let opened = disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Disk>).collect();
    let options = BucketOptions {
        eviction: EvictionPolicy::FullEviction,
        vbuckets: 2,
        ..options(BucketKind::Couchbase)
    };
    let mut rig = Rig::over(options, Arc::default(), opened, Clock(0));
    for number in 0..100 {
        store(&rig, &key(number), Store::set(format!("the value of {number}").as_bytes())).unwrap();
    }
    rig.flush();
    let (prepared, untouched) = (key(7), 0..7);
    let is_beside = |rig: &Rig, number: usize| rig.key(&key(number)).0 == rig.key(&prepared).0;
    let anew =
        Store { durability: DurabilityLevel::PersistToMajority, ..Store::set(b"prepared, and damaged") };
    store(&rig, &prepared, anew).unwrap();
    // Synced once: it is committed, and nothing says so on the disk.
    rig.clock.0 += 1_000;
    rig.bucket.flush(usize::from(rig.key(&prepared).0.get()), rig.now());
    assert_eq!(disks.iter().map(|disk| disk.damage(b"prepared, and damaged")).sum::<usize>(), 1);
    let rig = rig.crash();
    let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
    rig.bucket.reconfigure(quota(0));
    rig.warm_up();
    rig.bucket.reconfigure(quota(rig.options.quota_bytes));
    let count = || rig.bucket.stats().curr_items;
    assert_eq!(count(), 100);
    assert_eq!(get(&rig, &prepared), Err(Status::TemporaryFailure), "neither the old value nor the new one");
    for number in (0..100).filter(|number| *number != 7) {
        assert_eq!(get(&rig, &key(number)).unwrap(), format!("the value of {number}").as_bytes());
    }
    assert_eq!(count(), 100, "read, and so in memory again");
    assert!(untouched.clone().any(|number| is_beside(&rig, number)));
    store(&rig, &prepared, Store::set(b"made anew")).unwrap();
    assert_eq!(get(&rig, &prepared).unwrap(), b"made anew");
    assert_eq!((count(), rig.bucket.stats().evicted), (100, 0));
    assert_eq!(get(&rig, &key(100)), Err(Status::KeyNotFound));
}

/// The list of evicted keys does not grow with collections that are filled and dropped, and forgets none that is left.
#[test]
fn evicted_keys_of_dropped_collections_take_no_memory() {
    let manifest = |uid: u64, id: Option<u32>| {
        let mut manifest = Manifest { uid: ManifestUid(uid), next_id: 100, ..Manifest::default() };
        manifest.scopes[0].collections.extend(id.map(|id| Collection {
            id: CollectionId(id),
            name: format!("c{id}"),
            max_ttl_secs: None,
        }));
        Arc::new(manifest)
    };
    let mut rig = filled();
    // Without what the store needs to find them.
    let list_bytes = |rig: &Rig| {
        let both = rig.bucket.stats().pools.of(Pool::ColdIndex);
        both - rig.open.iter().map(|store| store.stats().index_bytes).sum::<u64>()
    };
    let before = list_bytes(&rig);
    for cycle in 0..4_u32 {
        let id = 8 + cycle;
        rig.bucket.set_manifest(manifest(u64::from(2 * cycle + 1), Some(id)), rig.now());
        for number in 0..KEYS {
            let key = [&[id as u8], key(number).get(1..).unwrap()].concat();
            store(&rig, &key, Store::set(b"value")).unwrap();
        }
        rig.flush();
        evict_everything(&rig);
        assert_eq!(rig.bucket.stats().evicted, 2 * KEYS as u64);
        rig.bucket.set_manifest(manifest(u64::from(2 * cycle + 2), None), rig.now());
        rig.flush();
        while rig.bucket.expire(rig.now(), Budget::default()).more {}
        assert_eq!(rig.bucket.stats().evicted, KEYS as u64);
        // One that is read while the list is made anew, and leaves again.
        for round in 0..1_000 {
            let read = key(round * 7 % KEYS);
            assert_eq!(get(&rig, &read).unwrap(), (round * 7 % KEYS).to_le_bytes());
            if round % 3 == 0 {
                evict_everything(&rig);
            }
            let more = [0, 1].map(|shard| rig.bucket.run_backfills(shard, rig.now()).more);
            if more == [false, false] {
                break;
            }
        }
        evict_everything(&rig);
        let after = list_bytes(&rig);
        assert!(after < before * 5 / 4, "cycle {cycle}: {after} bytes, {before} without the collections");
    }
    let asked = (0..10_000).filter(|number| {
        let key = key(KEYS + number);
        let (vb, hashed) = rig.key(&key);
        rig.bucket.get(vb, hashed, rig.now(), |_| ()) == Err(Refusal::Fetch)
    });
    let asked = asked.count();
    assert!(asked <= 100, "{asked} of 10,000 absent keys went to disk");
    for number in 0..KEYS {
        assert_eq!(get(&rig, &key(number)).unwrap(), number.to_le_bytes());
    }
}

/// While a list is made anew documents are written, deleted, evicted and read again. None of them is missing from it.
#[test]
fn a_list_that_is_made_anew_lacks_nothing_that_is_evicted_meanwhile() {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let first = number("COLD_SEED");
    let count = number("COLD_SEEDS").unwrap_or(if first.is_some() { 1 } else { 2 });
    for seed in (first.unwrap_or(0)..).take(count as usize) {
        eprintln!("COLD_SEED={seed}");
        make_anew_beside_others(&mut fastrand::Rng::with_seed(seed));
    }
}

fn make_anew_beside_others(rng: &mut fastrand::Rng) {
    let manifest = |uid: u64, has_collection: bool| {
        let mut manifest = Manifest { uid: ManifestUid(uid), next_id: 100, ..Manifest::default() };
        let collection = Collection { id: CollectionId(8), name: "c".to_owned(), max_ttl_secs: None };
        manifest.scopes[0].collections.extend(has_collection.then_some(collection));
        Arc::new(manifest)
    };
    let options = BucketOptions {
        eviction: EvictionPolicy::FullEviction,
        vbuckets: 1,
        shards: 1,
        ..options(BucketKind::Couchbase)
    };
    let disk: Arc<dyn Disk> = Arc::new(FaultDisk::new(rng.u64(..), 0));
    let mut rig = Rig::over(options, manifest(1, true), vec![disk], Clock(0));
    let mut expected: std::collections::BTreeMap<usize, Option<u64>> = std::collections::BTreeMap::new();
    for number in 0..9_000 {
        store(&rig, &key(number), Store::set(&0_u64.to_le_bytes())).unwrap();
        expected.insert(number, Some(0));
    }
    for number in 0..4_000 {
        let key = [b"\x08", key(number).get(1..).unwrap()].concat();
        store(&rig, &key, Store::set(b"of the collection")).unwrap();
    }
    rig.flush();
    evict_everything(&rig);
    rig.bucket.set_manifest(manifest(2, false), rig.now());
    rig.flush();
    while rig.bucket.expire(rig.now(), Budget::default()).more {}
    let (mut steps, mut more) = (0, true);
    // Beyond what it takes: what was written since is found as well.
    while more || steps < 40 {
        more = rig.bucket.run_backfills(0, rig.now()).more;
        steps += 1;
        for _ in 0..rng.usize(0..300) {
            let number = rng.usize(0..9_500);
            match rng.u32(0..8) {
                0 | 1 => {
                    let value = rng.u64(1..);
                    store(&rig, &key(number), Store::set(&value.to_le_bytes())).unwrap();
                    expected.insert(number, Some(value));
                }
                2 => {
                    let delete = Delete::default();
                    let deleted =
                        rig.run(&key(number), |bucket, vb, key| bucket.delete(vb, key, &delete, rig.now()));
                    assert_eq!(
                        deleted.is_ok(),
                        expected.insert(number, None).flatten().is_some(),
                        "{number}"
                    );
                }
                _ => {
                    let value = expected.get(&number).copied().flatten();
                    let value = value.map(|value| value.to_le_bytes().to_vec()).ok_or(Status::KeyNotFound);
                    assert_eq!(get(&rig, &key(number)), value, "{number}");
                }
            }
        }
        if rng.bool() {
            rig.flush();
        }
        if rng.bool() {
            evict_everything(&rig);
        }
        assert!(steps < 10_000, "it ends");
    }
    rig.flush();
    evict_everything(&rig);
    for (number, value) in &expected {
        let value = value.map(|value| value.to_le_bytes().to_vec()).ok_or(Status::KeyNotFound);
        assert_eq!(get(&rig, &key(*number)), value, "{number}");
    }
    let alive = expected.values().flatten().count() as u64;
    assert_eq!(rig.bucket.stats().curr_items, alive);
}

/// An expired document that is on disk only is found by a pass over the keys, and cannot be read just then.
#[test]
fn what_has_expired_and_could_not_be_read_is_looked_for_again() {
    let options = BucketOptions { eviction: EvictionPolicy::FullEviction, ..options(BucketKind::Couchbase) };
    let mut rig = Rig::new(options);
    let expiry = Expiry::Wire((START_SECS + 1_000) as u32);
    for number in 0..20 {
        store(&rig, &key(number), Store { expiry, ..Store::set(b"value") }).unwrap();
    }
    rig.flush();
    evict_everything(&rig);
    rig.clock.advance_secs(2_000);
    rig.flush();
    let pass = |rig: &Rig| {
        for shard in 0..2 {
            while rig.bucket.run_backfills(shard, rig.now()).more {}
        }
    };
    let read = |rig: &Rig| {
        for shard in 0..2 {
            while rig.bucket.run_fetches(shard, 64, rig.now()) > 0 {}
        }
        while rig.bucket.expire(rig.now(), Budget::default()).more {}
    };
    pass(&rig);
    rig.stores.iter().for_each(|store| store.set_unreachable(true));
    read(&rig);
    rig.stores.iter().for_each(|store| store.set_unreachable(false));
    assert_eq!(rig.bucket.stats().curr_items, 20);
    for _ in 0..20 {
        // Passes rest.
        rig.clock.advance_secs(120);
        rig.flush();
        pass(&rig);
        read(&rig);
    }
    assert_eq!(rig.bucket.stats().curr_items, 0);
}
