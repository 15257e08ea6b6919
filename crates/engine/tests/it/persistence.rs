//! What the disk keeps, what memory may forget, and what happens when the disk misbehaves.

use std::{collections::BTreeSet, sync::Arc};

use crate::support::{Clock, Disk, FaultDisk, Rig, options};
use base::{
    Cas, CollectionId, Datatype, DocKey, HashedKey, Manifest, ManifestUid, Seqno, Status, VbId, VbUuid,
    bucket::{BucketKind, DurabilityLevel, EvictionPolicy},
    manifest::Collection,
};
use settee_engine::{
    Bucket, BucketOptions, Budget, Delete, Durable, Expiry, Fetching, FlushFailure, Mutated, ObservedState,
    Pool, Refusal, Store, StoreMode, Wait, Waiter, subdoc::xattr::Builder,
};
use storage::{FaultFs, KvStore};

const KEY: &[u8] = b"\0key";
const DURABLE: DurabilityLevel = DurabilityLevel::PersistToMajority;
const WAITER: Waiter = Waiter { worker: 1, connection: 2, ticket: 3 };

fn rig() -> Rig {
    Rig::new(options(BucketKind::Couchbase))
}

fn store(rig: &Rig, key: &[u8], request: Store<'_>) -> Result<Mutated, Status> {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.store(vb, key, &request, now))
}

fn delete(rig: &Rig, key: &[u8]) -> Result<Mutated, Status> {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.delete(vb, key, &Delete::default(), now))
}

fn get(rig: &Rig, key: &[u8]) -> Result<Vec<u8>, Status> {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.get(vb, key, now, |view| view.value.to_vec()))
}

fn eject_everything(rig: &Rig) {
    let quota_bytes = Some(0);
    rig.bucket.reconfigure(settee_engine::BucketChange { quota_bytes, ..Default::default() });
    while rig.bucket.page(rig.now(), Budget::default()).more {}
    let quota_bytes = Some(rig.options.quota_bytes);
    rig.bucket.reconfigure(settee_engine::BucketChange { quota_bytes, ..Default::default() });
}

#[test]
fn what_was_synced_survives_a_crash_and_what_was_not_does_not() {
    let mut rig = rig();
    let kept = store(&rig, KEY, Store { flags: 5, ..Store::set(b"kept") }).unwrap();
    rig.flush();
    store(&rig, KEY, Store::set(b"lost")).unwrap();
    let rig = rig.crash();
    assert!(!rig.bucket.is_warm());
    assert_eq!(get(&rig, KEY).unwrap(), b"kept");
    rig.warm_up();
    let (vb, key) = rig.key(KEY);
    let facts = rig.bucket.get(vb, key, rig.now(), |view| (view.cas, view.flags, view.seqno, view.rev));
    assert_eq!(facts, Ok((kept.cas, 5, kept.seqno, 1)));
    let again = store(&rig, KEY, Store::set(b"again")).unwrap();
    assert!(again.cas > kept.cas);
    assert_ne!(again.vb_uuid, kept.vb_uuid);
}

#[test]
fn a_branch_begins_with_every_crash_and_goes_on_over_a_clean_stop() {
    let mut rig = rig();
    let (vb, _) = rig.key(KEY);
    let first = store(&rig, KEY, Store::set(b"v")).unwrap();
    rig.flush();
    let observed = rig.bucket.observe_seqno(vb, first.vb_uuid).unwrap();
    assert_eq!((observed.persisted, observed.current), (first.seqno, first.seqno));
    let rig = rig.restart();
    assert_eq!(rig.bucket.vb_state(vb).unwrap().uuid, first.vb_uuid);
    let lost = store(&rig, KEY, Store::set(b"lost")).unwrap();
    let rig = rig.crash();
    let observed = rig.bucket.observe_seqno(vb, first.vb_uuid).unwrap();
    assert_eq!(observed.failed_over, Some((first.vb_uuid, first.seqno)), "{lost:?} is not on that branch");
    assert_eq!(rig.bucket.failover_log(vb).unwrap().len(), 2);
    let unknown = rig.bucket.observe_seqno(vb, VbUuid(1)).unwrap_err();
    assert_eq!(unknown, Refusal::Status(Status::KeyNotFound));
}

#[test]
fn a_branch_begins_with_every_crash_and_every_flush_though_the_clock_stands_still() {
    let mut rig = rig();
    let (vb, _) = rig.key(KEY);
    let mut seen = BTreeSet::from([store(&rig, KEY, Store::set(b"v")).unwrap().vb_uuid]);
    rig.flush();
    for round in 0..3 {
        rig = rig.crash();
        let lost = store(&rig, KEY, Store::set(b"lost")).unwrap();
        assert!(seen.insert(lost.vb_uuid), "crash {round}");
    }
    for round in 0..3 {
        rig.bucket.flush_all(rig.now()).unwrap();
        assert!(seen.insert(rig.bucket.vb_state(vb).unwrap().uuid), "flush {round}");
    }
}

#[test]
fn of_a_key_that_was_written_often_between_two_flushes_only_the_last_version_is_written() {
    // Few; more than are looked at under a lock; more than one part takes, of which each writes its last versions.
    for (keys, records_max) in [(100_u32, 100), (3_000, 3_000), (7_000, 14_000)] {
        let mut rig = Rig::new(BucketOptions { vbuckets: 1, shards: 1, ..options(BucketKind::Couchbase) });
        let key = |number: u32| format!("\0key-{number}").into_bytes();
        for round in 0..3_u32 {
            for number in 0..keys {
                store(&rig, &key(number), Store::set(&(number + round).to_le_bytes())).unwrap();
            }
        }
        delete(&rig, &key(7)).unwrap();
        rig.flush();
        assert!((keys as usize..=records_max).contains(&rig.on_disk(VbId(0)).len()));
        let rig = rig.crash();
        for number in 0..keys {
            let expected = (number + 2).to_le_bytes().to_vec();
            let expected = if number == 7 { Err(Status::KeyNotFound) } else { Ok(expected) };
            assert_eq!(get(&rig, &key(number)), expected);
        }
    }
}

#[test]
fn the_deleted_does_not_come_back() {
    let mut rig = rig();
    for n in 0..50 {
        store(&rig, format!("\0key{n}").as_bytes(), Store::set(b"v")).unwrap();
    }
    rig.flush();
    for n in 0..50 {
        delete(&rig, format!("\0key{n}").as_bytes()).unwrap();
    }
    rig.flush();
    assert_eq!(rig.bucket.stats().curr_temp_items, 0, "synced tombstones leave memory");
    let now = rig.now();
    let meta = rig.run(b"\0key1", |bucket, vb, key| bucket.meta(vb, key, now)).unwrap();
    assert!(meta.deleted && meta.rev == 2);
    let rig = rig.crash();
    assert_eq!(get(&rig, b"\0key0"), Err(Status::KeyNotFound));
    rig.warm_up();
    for n in 0..50 {
        assert_eq!(get(&rig, format!("\0key{n}").as_bytes()), Err(Status::KeyNotFound));
    }
    assert_eq!(rig.bucket.stats().curr_temp_items, 0);
}

#[test]
fn a_durable_write_is_seen_when_it_is_synced_though_nobody_waits_any_more() {
    let mut rig = rig();
    let (vb, key) = rig.key(KEY);
    store(&rig, KEY, Store::set(b"before")).unwrap();
    let written = store(&rig, KEY, Store { durability: DURABLE, ..Store::set(b"after") }).unwrap();
    assert!(written.wait);
    assert_eq!(get(&rig, KEY).unwrap(), b"before");
    assert_eq!(store(&rig, KEY, Store::set(b"x")), Err(Status::SyncWriteInProgress));
    assert_eq!(delete(&rig, KEY), Err(Status::SyncWriteInProgress));
    let other = store(&rig, b"\0other", Store { durability: DURABLE, ..Store::set(b"o") }).unwrap();
    assert!(other.wait, "other keys go on");
    assert_eq!(get(&rig, b"\0other"), Err(Status::KeyNotFound));
    assert_eq!(rig.complete(KEY, &written, WAITER), Ok(Durable::Parked));
    rig.flush();
    assert!(rig.recorder.woken.lock().contains(&WAITER));
    assert!(!rig.completed(KEY, &written).wait);
    assert_eq!(get(&rig, KEY).unwrap(), b"after");
    assert_eq!(get(&rig, b"\0other").unwrap(), b"o", "nobody waited for this one");
    let removed = rig.run(KEY, |bucket, vb, key| {
        bucket.delete(vb, key, &Delete { durability: DURABLE, ..Delete::default() }, rig.now())
    });
    assert!(removed.unwrap().wait);
    assert_eq!(get(&rig, KEY).unwrap(), b"after");
    let observed = rig.bucket.observe(vb, key, rig.now()).unwrap();
    assert_eq!(observed.state, ObservedState::Persisted);
    rig.flush();
    assert_eq!(get(&rig, KEY), Err(Status::KeyNotFound));
}

#[test]
fn durable_levels_that_cannot_be_reached_are_refused() {
    let durable = Store { durability: DurabilityLevel::Majority, ..Store::set(b"v") };
    let rig = Rig::new(BucketOptions { replicas: 1, ..options(BucketKind::Couchbase) });
    assert_eq!(store(&rig, KEY, durable), Err(Status::DurabilityImpossible));
    let rig = Rig::new(options(BucketKind::Ephemeral));
    assert!(!store(&rig, KEY, durable).unwrap().wait);
    let durable = Store { durability: DURABLE, ..durable };
    assert_eq!(store(&rig, KEY, durable), Err(Status::DurabilityInvalidLevel));
}

#[test]
fn waiting_for_a_seqno_calls_the_flusher_and_ends_with_the_sync() {
    let rig = rig();
    let (vb, _) = rig.key(KEY);
    let mutated = store(&rig, KEY, Store::set(b"v")).unwrap();
    rig.recorder.work.lock().clear();
    assert_eq!(rig.bucket.wait_persisted(vb, mutated.seqno, WAITER, rig.now()), Ok(Wait::Parked));
    assert_eq!(rig.recorder.work.lock().len(), 1);
    let report = rig.bucket.flush(usize::from(vb.get()) % 2, rig.now());
    assert!(report.synced && report.items == 1, "at once, though nothing is old: {report:?}");
    assert_eq!(*rig.recorder.woken.lock(), [WAITER]);
    assert_eq!(rig.bucket.wait_persisted(vb, mutated.seqno, WAITER, rig.now()), Ok(Wait::Ready));
    let beyond = Seqno(mutated.seqno.get() + 1);
    assert_eq!(rig.bucket.wait_persisted(vb, beyond, WAITER, rig.now()), Ok(Wait::Parked));
}

#[test]
fn nothing_is_written_before_it_is_due() {
    let mut rig = rig();
    let (vb, _) = rig.key(KEY);
    let shard = usize::from(vb.get()) % 2;
    store(&rig, KEY, Store::set(b"1")).unwrap();
    let report = rig.bucket.flush(shard, rig.now());
    assert!(!report.synced && report.unsynced);
    store(&rig, KEY, Store::set(b"2")).unwrap();
    rig.clock.0 += 100;
    let report = rig.bucket.flush(shard, rig.now());
    assert!(report.synced && report.items == 1, "the superseded version is not written: {report:?}");
}

/// More is written than one sync takes, always to vBuckets that come first.
#[test]
fn no_vbucket_waits_for_ever_behind_those_before_it() {
    let rig = rig();
    let value = vec![b'v'; 512 << 10];
    let write = |vb: u16, number: u32| {
        let key = format!("\0key{number}");
        let key = HashedKey::new(DocKey::trusted(key.as_bytes()));
        rig.bucket.store(VbId(vb), key, &Store::set(&value), rig.now()).unwrap()
    };
    // Of the first shard.
    let write_to_busy = |number| [0, 2].map(|vb| write(vb, number));
    (0..6).for_each(|number| assert!(write_to_busy(number)[0].seqno > Seqno(0)));
    let waiting = write(14, 0);
    let is_persisted =
        || rig.bucket.observe_seqno(VbId(14), waiting.vb_uuid).unwrap().persisted >= waiting.seqno;
    let mut rounds = 0;
    while !is_persisted() {
        rounds += 1;
        assert!(rounds < 16, "it is still waiting");
        write_to_busy(100 + rounds);
        let report = rig.bucket.flush(0, rig.now());
        assert!(report.synced && report.more, "{report:?}");
    }
}

#[test]
fn a_full_disk_refuses_what_grows_and_heals() {
    let mut rig = rig();
    store(&rig, KEY, Store::set(b"first")).unwrap();
    rig.flush();
    rig.stores.iter().for_each(|store| store.set_full(true));
    store(&rig, KEY, Store::set(b"second")).unwrap();
    rig.clock.0 += 1_000;
    let (vb, _) = rig.key(KEY);
    let shard = usize::from(vb.get()) % 2;
    assert_eq!(rig.bucket.flush(shard, rig.now()).failed, Some(FlushFailure::NoSpace));
    assert_eq!(store(&rig, KEY, Store::set(b"third")), Err(Status::TemporaryFailure));
    assert_eq!(get(&rig, KEY).unwrap(), b"second");
    delete(&rig, KEY).unwrap();
    rig.stores.iter().for_each(|store| store.set_full(false));
    rig.flush();
    store(&rig, b"\0key2", Store::set(b"healed")).unwrap();
    rig.flush();
    let rig = rig.crash();
    assert_eq!(get(&rig, KEY), Err(Status::KeyNotFound));
    assert_eq!(get(&rig, b"\0key2").unwrap(), b"healed");
}

/// Round after round of what the server's threads do, until nothing is left to write or nothing changes any more.
fn settle_on_disk(rig: &mut Rig) -> bool {
    for _ in 0..200 {
        rig.clock.0 += 200;
        let now = rig.now();
        let mut left = false;
        for shard in 0..rig.bucket.shards() {
            let report = rig.bucket.flush(shard, now);
            left |= report.failed.is_some() || report.more || report.unsynced;
            let _ = rig.bucket.compact(shard, now).unwrap();
        }
        if !left {
            return true;
        }
    }
    false
}

/// Every vBucket has documents that could not be written any more when the deletions come: those wait behind them.
#[test]
fn deletions_alone_heal_a_full_disk_even_behind_documents_that_are_not_written() {
    let fs = FaultFs::new(11);
    let disk: Arc<dyn Disk> = Arc::new(FaultDisk::over(fs.clone(), 0));
    let options = BucketOptions { shards: 1, vbuckets: 8, ..options(BucketKind::Couchbase) };
    let mut rig = Rig::over(options, Arc::default(), vec![disk], Clock(0));
    let _ = rig.bucket.compact(0, rig.now()).unwrap();
    fs.set_capacity(Some(fs.used_bytes() + (6 << 20)));
    let value = |n: u32| format!("{n:05}").repeat(400).into_bytes();
    let mut kept = Vec::new();
    // Fifty documents go to the disk at a time, so that all vBuckets have some when it is full.
    'filling: for n in 0.. {
        let key = format!("\0key{n}").into_bytes();
        match store(&rig, &key, Store::set(&value(n))) {
            Ok(_) => kept.push((n, key)),
            Err(refused) => {
                assert_eq!(refused, Status::TemporaryFailure);
                break 'filling;
            }
        }
        if n % 50 == 49 {
            rig.clock.0 += 200;
            let _ = rig.bucket.flush(0, rig.now());
        }
    }
    assert!(kept.len() > 1000 && rig.bucket.stats().disk_full);
    let waiting = (0..8).filter(|&vb| rig.bucket.vb_state(VbId(vb)).unwrap().queue_items > 0).count();
    assert!(waiting > 4, "documents wait for space in {waiting} vBuckets");
    assert!(!settle_on_disk(&mut rig), "nothing has been deleted yet");
    let (deleted, kept): (Vec<_>, Vec<_>) = kept.into_iter().partition(|(n, _)| n % 3 != 0);
    for batch in deleted.chunks(100) {
        for (_, key) in batch {
            delete(&rig, key).unwrap();
        }
        rig.clock.0 += 200;
        let _ = rig.bucket.flush(0, rig.now());
        let _ = rig.bucket.compact(0, rig.now()).unwrap();
    }
    assert!(settle_on_disk(&mut rig), "{:?}", rig.bucket.stats());
    assert!(!rig.bucket.stats().disk_full);
    store(&rig, KEY, Store::set(b"healed")).unwrap();
    rig.flush();
    let rig = rig.crash();
    assert_eq!(get(&rig, KEY).unwrap(), b"healed");
    for (n, key) in &kept {
        assert_eq!(get(&rig, key).unwrap(), value(*n));
    }
    for (_, key) in &deleted {
        assert_eq!(get(&rig, key), Err(Status::KeyNotFound));
    }
}

#[test]
fn a_failed_sync_is_not_tried_again() {
    let mut rig = rig();
    let (vb, _) = rig.key(KEY);
    let shard = usize::from(vb.get()) % 2;
    store(&rig, KEY, Store::set(b"kept")).unwrap();
    rig.flush();
    let durable = store(&rig, KEY, Store { durability: DURABLE, ..Store::set(b"doomed") }).unwrap();
    assert_eq!(rig.complete(KEY, &durable, WAITER), Ok(Durable::Parked));
    rig.stores[shard].fail_sync();
    assert_eq!(rig.bucket.flush(shard, rig.now()).failed, Some(FlushFailure::Poisoned));
    assert!(rig.recorder.woken.lock().contains(&WAITER), "who waits learns that it is over");
    assert_eq!(rig.complete(KEY, &durable, WAITER), Err(Status::SyncWriteAmbiguous));
    assert_eq!(rig.bucket.flush(shard, rig.now()).failed, Some(FlushFailure::Poisoned));
    assert_eq!(store(&rig, b"\0key", Store::set(b"x")), Err(Status::TemporaryFailure));
    assert_eq!(get(&rig, KEY).unwrap(), b"kept", "reads go on");
    assert!(rig.bucket.stats().poisoned);
    let rig = rig.crash();
    assert_eq!(get(&rig, KEY).unwrap(), b"kept");
    assert!(store(&rig, KEY, Store::set(b"new")).is_ok());
}

/// It is tried again every few seconds: branches of each attempt would push those out that clients know.
#[test]
fn a_bucket_that_cannot_be_opened_leaves_its_history_as_it_was() {
    let mut rig = rig();
    store(&rig, KEY, Store::set(b"v")).unwrap();
    rig.flush();
    let Rig { bucket, stores, options, clock, manifest, recorder, .. } = rig;
    drop(bucket);
    stores.iter().for_each(|store| store.crash());
    let before = stores[0].vb_states();
    assert!(before.iter().any(|(_, state)| !state.failover_log.is_empty()));
    stores[1].fail_sync();
    assert!(stores[1].sync().is_err(), "poisoned");
    let open = || stores.iter().map(|store| store.clone() as Arc<dyn KvStore>).collect();
    let opened = Bucket::open(options, open(), manifest, recorder, clock.now());
    assert!(opened.is_err());
    assert_eq!(stores[0].vb_states(), before);
}

#[test]
fn the_unreadable_is_never_told_as_absent() {
    let mut rig = rig();
    store(&rig, KEY, Store::set(b"value")).unwrap();
    rig.flush();
    eject_everything(&rig);
    rig.stores.iter().for_each(|store| store.set_unreadable(true));
    assert_eq!(get(&rig, KEY), Err(Status::TemporaryFailure));
    let append = Store { mode: StoreMode::Append, ..Store::set(b"!") };
    assert_eq!(store(&rig, KEY, append), Err(Status::TemporaryFailure));
    rig.stores.iter().for_each(|store| store.set_unreadable(false));
    assert_eq!(get(&rig, KEY).unwrap(), b"value");
    let rig = rig.crash();
    rig.stores.iter().for_each(|store| store.set_unreadable(true));
    assert_eq!(get(&rig, KEY), Err(Status::TemporaryFailure));
    let add = Store { mode: StoreMode::Add, ..Store::set(b"w") };
    assert_eq!(store(&rig, KEY, add), Err(Status::TemporaryFailure));
    assert_eq!(store(&rig, KEY, Store { cas: Cas(1), ..Store::set(b"w") }), Err(Status::TemporaryFailure));
    assert_eq!(delete(&rig, KEY), Err(Status::TemporaryFailure));
    store(&rig, KEY, Store::set(b"whatever it was")).unwrap();
    assert_eq!(get(&rig, KEY).unwrap(), b"whatever it was");
}

/// A document with a system attribute, on disk only.
fn with_attributes_on_disk(expiry: Expiry) -> Rig {
    let mut rig = rig();
    let mut value = Builder::default();
    value.set(b"_sys", b"1");
    let value = [&value.finish()[..], b"body"].concat();
    store(&rig, KEY, Store { datatype: Datatype::XATTR, expiry, ..Store::set(&value) }).unwrap();
    rig.flush();
    eject_everything(&rig);
    rig
}

#[test]
fn attributes_that_are_lost_do_not_keep_a_document_from_being_written_anew() {
    let rig = with_attributes_on_disk(Expiry::Wire(0));
    rig.stores.iter().for_each(|store| store.set_unreachable(true));
    assert_eq!(store(&rig, KEY, Store::set(b"w")), Err(Status::TemporaryFailure), "they may not be");
    rig.stores.iter().for_each(|store| store.set_unreachable(false));
    rig.stores.iter().for_each(|store| store.set_unreadable(true));
    let cas = Cas(1);
    assert_eq!(store(&rig, KEY, Store { cas, ..Store::set(b"w") }), Err(Status::KeyExists));
    store(&rig, KEY, Store::set(b"made anew")).unwrap();
    assert_eq!(get(&rig, KEY).unwrap(), b"made anew");
}

#[test]
fn an_expired_document_that_cannot_be_read_is_not_tried_over_and_over() {
    let mut rig = with_attributes_on_disk(Expiry::Wire(10));
    let shard = usize::from(rig.key(KEY).0.get()) % 2;
    let expire = |rig: &Rig| {
        let report = rig.bucket.expire(rig.now(), Budget::default());
        (report.items, rig.bucket.run_fetches(shard, 10, rig.now()))
    };
    rig.clock.advance_secs(20);
    rig.stores.iter().for_each(|store| store.set_unreadable(true));
    assert_eq!((expire(&rig), expire(&rig), expire(&rig)), ((0, 1), (0, 0), (0, 0)));
    rig.stores.iter().for_each(|store| store.set_unreadable(false));
    rig.clock.advance_secs(61);
    assert_eq!((expire(&rig), expire(&rig)), ((0, 1), (1, 0)));
}

#[test]
fn a_writer_is_told_that_the_disk_does_not_answer() {
    let mut rig = rig();
    store(&rig, KEY, Store::set(b"value")).unwrap();
    rig.flush();
    let rig = rig.crash();
    rig.stores.iter().for_each(|store| store.set_unreachable(true));
    assert_eq!(store(&rig, KEY, Store::set(b"w")), Err(Status::TemporaryFailure));
    rig.stores.iter().for_each(|store| store.set_unreachable(false));
    store(&rig, KEY, Store::set(b"w")).unwrap();
}

#[test]
fn what_was_damaged_on_disk_is_neither_absent_nor_an_older_version() {
    let disks: Vec<_> = (0..2).map(|shard| Arc::new(FaultDisk::new(9, shard))).collect();
    let opened = disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect();
    let mut rig = Rig::over(options(BucketKind::Couchbase), Arc::default(), opened, Clock(0));
    store(&rig, KEY, Store::set(b"an older version of the document")).unwrap();
    rig.flush();
    store(&rig, KEY, Store::set(b"the newest version of the document")).unwrap();
    store(&rig, b"\0other", Store::set(b"untouched")).unwrap();
    rig.flush();
    let damaged: usize = disks.iter().map(|disk| disk.damage(b"the newest version of the document")).sum();
    assert_eq!(damaged, 1);
    let mut rig = rig.crash();
    assert_eq!(get(&rig, KEY), Err(Status::TemporaryFailure), "before warm-up");
    rig.warm_up();
    for _ in 0..2 {
        assert_eq!(get(&rig, KEY), Err(Status::TemporaryFailure), "after warm-up");
        assert_eq!(get(&rig, b"\0other").unwrap(), b"untouched");
        assert_eq!(get(&rig, b"\0never"), Err(Status::KeyNotFound));
    }
    store(&rig, b"\0other", Store::set(b"goes on")).unwrap();
    assert_eq!(get(&rig, b"\0other").unwrap(), b"goes on");
    let items = rig.bucket.stats().curr_items;
    store(&rig, KEY, Store::set(b"made anew")).unwrap();
    assert_eq!(get(&rig, KEY).unwrap(), b"made anew");
    assert_eq!(rig.bucket.stats().curr_items, items, "in place of the older version that was found");
    rig.flush();
    let mut rig = rig.crash();
    rig.warm_up();
    assert_eq!(get(&rig, KEY).unwrap(), b"made anew");
    rig.flush();
    rig.bucket.flush_all(rig.now()).unwrap();
    assert_eq!(get(&rig, KEY), Err(Status::KeyNotFound), "an emptied bucket starts anew");
}

#[test]
fn one_read_serves_all_who_wait_for_a_key() {
    let mut rig = rig();
    store(&rig, KEY, Store::set(b"value")).unwrap();
    rig.flush();
    eject_everything(&rig);
    let (vb, key) = rig.key(KEY);
    assert_eq!(rig.bucket.get(vb, key, rig.now(), |_| ()), Err(Refusal::Fetch));
    for ticket in 0..5 {
        rig.bucket.fetch(vb, key, Waiter { ticket, ..WAITER }).unwrap();
    }
    assert_eq!(rig.bucket.run_fetches(usize::from(vb.get()) % 2, 10, rig.now()), 1);
    assert_eq!(rig.recorder.woken.lock().len(), 5);
    assert_eq!(rig.bucket.stats().ops.bg_fetched, 1);
    assert_eq!(get(&rig, KEY).unwrap(), b"value");
}

#[test]
fn the_fetch_queue_is_bounded_and_refuses_nobody() {
    const ASKED: u64 = 25_000;
    let mut rig = rig();
    rig.flush();
    let mut crowded = 0;
    for number in 0..ASKED {
        let key = format!("\0{number}").into_bytes();
        let (vb, key) = rig.key(&key);
        let waiter = Waiter { ticket: number, ..WAITER };
        crowded += u32::from(rig.bucket.fetch(vb, key, waiter).unwrap() == Fetching::Crowded);
    }
    assert_eq!(crowded, 5_000);
    assert_eq!(rig.bucket.stats().bg_queue, 20_000);
    for shard in 0..rig.bucket.shards() {
        while rig.bucket.run_fetches(shard, usize::MAX, rig.now()) > 0 {}
    }
    let mut woken: Vec<_> = rig.recorder.woken.lock().iter().map(|waiter| waiter.ticket).collect();
    woken.sort_unstable();
    assert!(
        woken.into_iter().eq(0..ASKED),
        "everybody is told once: that it is read, or that a place is free"
    );
    assert_eq!(rig.bucket.stats().pools.of(Pool::Fetch), 0);
}

#[test]
fn a_bucket_larger_than_its_quota_serves_every_document() {
    let quota_bytes = 3 << 20;
    let mut rig = Rig::new(BucketOptions { quota_bytes, ..options(BucketKind::Couchbase) });
    let key = |n: u32| format!("\0document-{n:06}").into_bytes();
    let value = |n: u32| n.to_le_bytes().repeat(500);
    let mut refused = 0;
    for n in 0..4_000 {
        while store(&rig, &key(n), Store::set(&value(n))) == Err(Status::TemporaryFailure) {
            refused += 1;
            assert!(refused < 10_000, "writers starve: {:?}", rig.bucket.stats());
            rig.flush();
            rig.bucket.page(rig.now(), Budget::default());
        }
    }
    assert!(rig.bucket.stats().mem_used <= quota_bytes + quota_bytes / 20);
    let stats = rig.bucket.stats();
    assert!(stats.non_resident > 2_000, "{stats:?}");
    let rig = rig.restart();
    for warm in [false, true] {
        if warm {
            rig.warm_up();
        }
        for n in (0..4_000).step_by(if warm { 1 } else { 7 }) {
            assert_eq!(get(&rig, &key(n)).unwrap(), value(n));
            if n % 100 == 0 {
                rig.bucket.page(rig.now(), Budget::default());
            }
        }
    }
    assert_eq!(rig.bucket.stats().curr_items, 4_000);
}

#[test]
fn memory_only_buckets_refuse_or_forget_at_their_quota() {
    let small = |kind, eviction| Rig::new(BucketOptions { quota_bytes: 2 << 20, eviction, ..options(kind) });
    let fill = |rig: &Rig| -> Result<(), Status> {
        for n in 0..4_000 {
            store(rig, format!("\0key{n}").as_bytes(), Store::set(&[7; 1_000]))?;
        }
        Ok(())
    };
    let rig = small(BucketKind::Ephemeral, EvictionPolicy::NoEviction);
    assert_eq!(fill(&rig), Err(Status::TemporaryFailure));
    let before = rig.bucket.stats();
    assert!(before.tmp_oom_errors > 0 && before.ops.auto_deletes == 0);
    for n in 0..100 {
        delete(&rig, format!("\0key{n}").as_bytes()).unwrap();
    }
    store(&rig, KEY, Store::set(&[7; 1_000])).unwrap();

    for (kind, eviction) in [
        (BucketKind::Ephemeral, EvictionPolicy::NruEviction),
        (BucketKind::Memcached, EvictionPolicy::NruEviction),
    ] {
        let rig = small(kind, eviction);
        assert_eq!(fill(&rig), Ok(()));
        let stats = rig.bucket.stats();
        assert!(stats.ops.auto_deletes > 1_000 && stats.mem_used <= (2 << 20) * 106 / 100, "{stats:?}");
        assert!(get(&rig, b"\0key3999").is_ok(), "the newest is there");
    }
}

#[test]
fn a_used_document_outlives_unused_ones() {
    let mut rig = Rig::new(BucketOptions { quota_bytes: 4 << 20, ..options(BucketKind::Couchbase) });
    let key = |n: u32| format!("\0key{n}").into_bytes();
    for n in 0..3_000 {
        store(&rig, &key(n), Store::set(&[7; 1_000])).unwrap();
    }
    rig.flush();
    for _ in 0..40 {
        for n in 0..100 {
            get(&rig, &key(n)).unwrap();
        }
    }
    let quota_bytes = Some(2 << 20);
    rig.bucket.reconfigure(settee_engine::BucketChange { quota_bytes, ..Default::default() });
    while rig.bucket.page(rig.now(), Budget::default()).more {}
    let stats = rig.bucket.stats();
    assert!(stats.mem_used <= stats.mem_high_wat, "{stats:?}");
    let resident = |n| {
        let key = key(n);
        let (vb, key) = rig.key(&key);
        rig.bucket.get(vb, key, rig.now(), |_| ()).is_ok()
    };
    let hot = (0..100).filter(|&n| resident(n)).count();
    assert!(hot > 90, "{hot} of 100 hot documents are in memory");
}

#[test]
fn emptying_a_bucket_is_final() {
    let mut rig = rig();
    let first = store(&rig, KEY, Store::set(b"v")).unwrap();
    rig.flush();
    let pending = store(&rig, b"\0p", Store { durability: DURABLE, ..Store::set(b"v") }).unwrap();
    let (vb, _) = rig.key(KEY);
    rig.clock.advance_secs(1);
    rig.bucket.flush_all(rig.now()).unwrap();
    assert_eq!(get(&rig, KEY), Err(Status::KeyNotFound));
    assert_eq!(rig.bucket.stats().curr_items, 0);
    let again = rig.complete(b"\0p", &pending, WAITER);
    assert_eq!(again, Err(Status::SyncWriteAmbiguous));
    let info = rig.bucket.vb_state(vb).unwrap();
    assert_eq!(info.high_seqno, Seqno(0));
    assert_ne!(info.uuid, first.vb_uuid);
    let second = store(&rig, KEY, Store::set(b"w")).unwrap();
    assert!(second.cas > first.cas);
    let rig = rig.crash();
    rig.warm_up();
    assert_eq!(get(&rig, KEY), Err(Status::KeyNotFound), "neither the old nor the unsynced new");
}

#[test]
fn dropped_collections_vanish_at_once_and_are_erased() {
    let mut manifest = Manifest { uid: ManifestUid(1), next_id: 9, ..Manifest::default() };
    let collection = Collection { id: CollectionId(8), name: "c".into(), max_ttl_secs: Some(50) };
    manifest.scopes[0].collections.push(collection);
    let without = Arc::new(Manifest { uid: ManifestUid(2), next_id: 9, ..Manifest::default() });
    let mut rig = Rig::with_manifest(options(BucketKind::Couchbase), Arc::new(manifest));
    for n in 0..200 {
        store(&rig, format!("\x08{n}").as_bytes(), Store::set(b"v")).unwrap();
        store(&rig, format!("\0{n}").as_bytes(), Store::set(b"v")).unwrap();
    }
    let now = rig.now();
    let expiry = rig.run(b"\x081", |bucket, vb, key| bucket.get(vb, key, now, |view| view.expiry)).unwrap();
    assert_eq!(u64::from(expiry), crate::support::START_SECS + 50, "the collection's own cap");
    assert_eq!(rig.bucket.stats().collections, [(CollectionId(0), 200), (CollectionId(8), 200)]);
    rig.flush();
    store(&rig, b"\x081", Store::set(b"dirty")).unwrap();
    rig.bucket.set_manifest(without.clone(), rig.now());
    assert_eq!(get(&rig, b"\x081"), Err(Status::UnknownCollection));
    while rig.bucket.expire(rig.now(), Budget { items: 10, ..Budget::default() }).more {}
    assert_eq!(rig.bucket.stats().collections, [(CollectionId(0), 200)]);
    rig.flush();
    let rig = Rig { manifest: without, ..rig }.crash();
    rig.warm_up();
    assert_eq!(rig.bucket.stats().curr_items, 200);
    for shard in 0..2 {
        assert!(rig.bucket.compact_eagerly(shard, rig.now()).unwrap().records_dropped > 0);
    }
}

#[test]
fn a_closed_bucket_takes_no_mutation() {
    let rig = rig();
    store(&rig, KEY, Store::set(b"v")).unwrap();
    assert_eq!(rig.bucket.close(rig.now()), Ok(()));
    assert_eq!(store(&rig, KEY, Store::set(b"w")), Err(Status::TemporaryFailure));
    assert_eq!(delete(&rig, KEY), Err(Status::TemporaryFailure));
    assert_eq!(get(&rig, KEY).unwrap(), b"v");
    let rig = rig.restart();
    assert_eq!(get(&rig, KEY).unwrap(), b"v");
}

#[test]
fn a_clock_that_jumps_waits_for_the_flusher() {
    let mut rig = rig();
    let first = store(&rig, KEY, Store::set(b"v")).unwrap();
    rig.clock.advance_secs(3_600);
    assert_eq!(store(&rig, KEY, Store::set(b"w")), Err(Status::TemporaryFailure));
    rig.flush();
    let second = store(&rig, KEY, Store::set(b"w")).unwrap();
    assert!(second.cas > Cas(first.cas.get() + 3_000 * 1_000_000_000), "the CAS follows the clock again");
}

#[test]
fn the_clock_of_a_vbucket_goes_on_through_crash_after_crash() {
    let mut rig = rig();
    for round in 0..4 {
        let cas = store(&rig, KEY, Store::set(b"value")).unwrap().cas;
        assert!(cas.get() <= rig.now().wall_nanos + 2_100_000_000, "round {round}: {cas:?}");
        rig.flush();
        rig = rig.crash();
        rig.clock.advance_secs(1);
    }
    // Set back, it stays above everything given out before.
    let before = store(&rig, KEY, Store::set(b"never synced")).unwrap().cas;
    rig.clock = Clock(0);
    let rig = rig.crash();
    assert!(store(&rig, KEY, Store::set(b"value")).unwrap().cas > before);
}
