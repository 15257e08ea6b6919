//! What a bucket says of documents that its disk has lost, up to the answer that a client gets. Also: a flush is never half done.

use std::{path::Path, sync::Arc};

use crate::support::{Clock, Disk, FaultDisk, Rig, options};
use base::{
    CollectionId, Manifest, ManifestUid, ScopeId, Status, VbId,
    bucket::{BucketKind, DurabilityLevel, EvictionPolicy},
    manifest::{Collection, Scope},
};
use settee_engine::{BucketOptions, FeedEnd, FeedKind, FeedOptions, FeedStep, Store, Waiter};
use storage::Fs;

const KEYS: u64 = 300;

fn key(number: u64) -> Vec<u8> {
    format!("\0key{number:04}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    format!("value {number} ").repeat(80).into_bytes()
}

fn store(rig: &Rig, key: &[u8], value: &[u8]) -> Result<(), Status> {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.store(vb, key, &Store::set(value), now)).map(|_| ())
}

fn get(rig: &Rig, key: &[u8]) -> Result<Vec<u8>, Status> {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.get(vb, key, now, |view| view.value.to_vec()))
}

/// A bucket of one shard with all keys on its disk.
fn filled(disk: &Arc<FaultDisk>, eviction: EvictionPolicy) -> Rig {
    let options = BucketOptions { eviction, shards: 1, ..options(BucketKind::Couchbase) };
    let mut rig = Rig::over(options, Arc::default(), vec![Arc::clone(disk) as Arc<dyn Disk>], Clock(0));
    for number in 0..KEYS {
        store(&rig, &key(number), &value(number)).unwrap();
        if number % 30 == 29 {
            rig.flush();
        }
    }
    rig
}

/// The segment files that hold these bytes, and where.
fn find(disk: &FaultDisk, bytes: &[u8]) -> Vec<(String, u64)> {
    let mut names = disk.fs.list(Path::new("/shard")).unwrap();
    names.retain(|name| name.ends_with(".seg"));
    let place = |name: String| {
        let path = format!("/shard/{name}");
        let content = disk.fs.contents(Path::new(&path)).unwrap();
        let at = content.windows(bytes.len()).position(|window| window == bytes)?;
        Some((path, at as u64))
    };
    names.into_iter().filter_map(place).collect()
}

/// Every document has its value or cannot be read; returns how many cannot.
fn unreadable(rig: &Rig) -> usize {
    let lost = (0..KEYS).filter(|&number| match get(rig, &key(number)) {
        Ok(found) => {
            assert_eq!(found, value(number));
            false
        }
        Err(Status::TemporaryFailure) => true,
        Err(status) => panic!("{number}: {status:?}"),
    });
    lost.count()
}

#[derive(Clone, Copy, Debug)]
enum Harm {
    /// A segment's file is gone.
    Gone,
    /// A key is damaged: nobody knows whose record it was.
    Key,
}

#[test]
fn what_was_lost_on_disk_is_never_absent_to_a_client() {
    for eviction in [EvictionPolicy::ValueOnly, EvictionPolicy::FullEviction] {
        for harm in [Harm::Gone, Harm::Key] {
            let disk = Arc::new(FaultDisk::new(5, 0));
            let mut rig = filled(&disk, eviction);
            let (path, at) = find(&disk, &key(40)).remove(0);
            match harm {
                Harm::Gone => {
                    disk.fs.remove(Path::new(&path)).unwrap();
                    disk.fs.sync_dir(Path::new("/shard")).unwrap();
                }
                Harm::Key => assert!(disk.fs.flip_bit(Path::new(&path), at + 2, 3)),
            }
            for start in 0..3 {
                rig = rig.crash();
                let before = unreadable(&rig);
                rig.warm_up();
                let after = unreadable(&rig);
                assert!(
                    before > 0 && after == before,
                    "{eviction:?} {harm:?}, start {start}: {before} {after}"
                );
                let never = get(&rig, b"\0never written");
                match harm {
                    Harm::Gone => assert_eq!(never, Err(Status::TemporaryFailure), "it may have been there"),
                    // The footer still knows every key of the segment.
                    Harm::Key => assert!(never.is_err(), "{never:?}"),
                }
            }
            store(&rig, &key(40), &value(40)).unwrap();
            assert_eq!(get(&rig, &key(40)).unwrap(), value(40), "written anew");
            rig.flush();
            rig.clock.advance_secs(1);
            rig.bucket.flush_all(rig.now()).unwrap();
            assert_eq!(get(&rig, &key(41)), Err(Status::KeyNotFound), "nothing can be missed any more");
        }
    }
}

#[test]
fn a_flush_that_a_crash_cuts_short_empties_all_of_a_shard_or_nothing() {
    let (mut kept, mut emptied) = (0, 0);
    for changes in 0.. {
        let disk = Arc::new(FaultDisk::new(changes, 0));
        let mut rig = filled(&disk, EvictionPolicy::ValueOnly);
        rig.clock.advance_secs(1);
        disk.fs.die_after(changes);
        let _ = rig.bucket.flush_all(rig.now());
        let is_over = !disk.fs.is_dead();
        let rig = rig.crash();
        rig.warm_up();
        let there = (0..KEYS).filter(|&number| get(&rig, &key(number)) == Ok(value(number))).count() as u64;
        let absent =
            (0..KEYS).filter(|&number| get(&rig, &key(number)) == Err(Status::KeyNotFound)).count() as u64;
        assert!((there, absent) == (KEYS, 0) || (there, absent) == (0, KEYS), "{changes}: {there} {absent}");
        *(if there > 0 { &mut kept } else { &mut emptied }) += 1;
        if is_over {
            break;
        }
    }
    assert!(kept > 2 && emptied > 1, "{kept} {emptied}");
}

/// What a feed from disk tells of each item beside its value, the values, and how many bytes the disk says it wanted.
struct Told {
    facts: Vec<String>,
    values: Vec<Vec<u8>>,
    wanted: u64,
    end: Option<FeedEnd>,
}

fn told_from_disk(rig: &Rig, options: &FeedOptions) -> Told {
    let wanted = |rig: &Rig| rig.bucket.stats().stores.iter().map(|store| store.backfill_bytes).sum::<u64>();
    let before = wanted(rig);
    let waiter = Waiter { worker: 1, connection: 1, ticket: 1 };
    let options = FeedOptions { disk_only: true, ..options.clone() };
    let mut feed = rig.bucket.feed(VbId(0), options, waiter).unwrap();
    let mut told = Told { facts: Vec::new(), values: Vec::new(), wanted: 0, end: None };
    let mut is_over = false;
    while !is_over {
        while rig.bucket.run_backfills(0, rig.now()).more {}
        match feed.next(1 << 20, rig.now()) {
            Ok(FeedStep::Wait) => {}
            Err(end) => (told.end, is_over) = (Some(end), true),
            Ok(FeedStep::Batch(batch)) => {
                is_over = batch.ends_snapshot;
                for item in &batch.items {
                    let (seqno, cas, key, prepared) = (item.seqno, item.cas, item.key(), item.prepared);
                    let (expiry, datatype, deleted) = (item.expiry, item.datatype, item.deleted);
                    let kind = item.kind;
                    told.facts.push(format!(
                        "{seqno:?} {cas:?} {kind:?} {key:?} {prepared:?} {expiry} {datatype:?} {deleted}"
                    ));
                    told.values.push(item.value().to_vec());
                }
            }
        }
    }
    told.wanted = wanted(rig) - before;
    told
}

/// A bucket of one vBucket: the beginning of a collection, documents, a durable write that ended, one that did not.
fn of_all_kinds(disk: &Arc<FaultDisk>) -> Rig {
    let collection = Collection { id: CollectionId(9), name: "c9".to_owned(), max_ttl_secs: None };
    let scope = Scope { id: ScopeId(8), name: "s".into(), collections: [collection].into_iter().collect() };
    let mut manifest = Manifest { uid: ManifestUid(2), next_id: 20, ..Manifest::default() };
    manifest.scopes.push(scope);
    let options = BucketOptions { vbuckets: 1, shards: 1, ..options(BucketKind::Couchbase) };
    let disks = vec![Arc::clone(disk) as Arc<dyn Disk>];
    let mut rig = Rig::over(options, Arc::new(manifest), disks, Clock(0));
    for number in 0..40 {
        store(&rig, &key(number), &value(number)).unwrap();
    }
    let prepare = |rig: &Rig, key: &[u8]| {
        let request =
            Store { durability: DurabilityLevel::MajorityAndPersistActive, ..Store::set(b"prepared") };
        let now = rig.now();
        rig.run(key, |bucket, vb, key| bucket.store(vb, key, &request, now)).unwrap();
    };
    prepare(&rig, &key(20));
    rig.flush();
    prepare(&rig, &key(30));
    rig.clock.advance_secs(31);
    rig.bucket.time_out_durable(rig.now());
    rig.flush();
    rig
}

#[test]
fn a_feed_without_values_reads_none_and_does_not_end_for_their_damage() {
    let disk = Arc::new(FaultDisk::new(5, 0));
    let rig = of_all_kinds(&disk);
    let whole = FeedOptions { prepares: true, ..FeedOptions::default() };
    let bare = FeedOptions { keys_only: true, ..whole.clone() };
    for prepares in [false, true] {
        let whole = told_from_disk(&rig, &FeedOptions { prepares, ..whole.clone() });
        let bare = told_from_disk(&rig, &FeedOptions { prepares, ..bare.clone() });
        assert_eq!((&bare.facts, bare.end, whole.end), (&whole.facts, None, None));
        let of_kind = |kind: FeedKind| {
            let name = format!(" {kind:?} ");
            let values = whole.values.iter().zip(&bare.values);
            let of_kind = bare.facts.iter().zip(values).filter(|(facts, _)| facts.contains(&name));
            of_kind.map(|(_, values)| values).collect::<Vec<_>>()
        };
        let (events, documents) = (of_kind(FeedKind::System), of_kind(FeedKind::Mutation));
        assert!(events.len() == 2 && events.iter().all(|(whole, bare)| whole == bare && !bare.is_empty()));
        assert!(documents.len() >= 39 && documents.iter().all(|(_, bare)| bare.is_empty()));
        assert_eq!(of_kind(FeedKind::Abort).len(), usize::from(prepares), "{:?}", bare.facts);
        let values: u64 = documents.iter().map(|(whole, _)| whole.len() as u64).sum();
        assert_eq!(whole.wanted - bare.wanted, values, "of no document the value is read");
    }
    assert_eq!(disk.damage(&value(7)), 1);
    let ended = told_from_disk(&rig, &whole);
    assert_eq!(ended.end, Some(FeedEnd::BackfillFailed));
    let bare = told_from_disk(&rig, &bare);
    assert!(bare.end.is_none() && bare.facts.len() >= 42, "{:?}", bare.end);
}
