//! Collections as the order of mutations tells them. Every vBucket knows of each beginning before the first document,
//! and of each end. It does so whatever happened between the manifest's change and the disk.

use std::sync::Arc;

use crate::support::{Rig, options};
use base::{
    CollectionId, Manifest, ManifestUid, NodeId, ScopeId, Seqno, Status, VbId,
    bucket::{BucketKind, EvictionPolicy},
    manifest::{Collection, Scope},
};
use settee_engine::{
    BucketChange, BucketOptions, Budget, Mutated, Store, SystemEvent, Topology, system_events::Happening,
};

const VBUCKETS: u16 = 16;

/// A manifest with scope 8 and these collections (id, cap) in it.
fn manifest(uid: u64, collections: &[(u32, Option<u32>)]) -> Arc<Manifest> {
    let mut manifest = Manifest { uid: ManifestUid(uid), next_id: 20, ..Manifest::default() };
    let collections = collections.iter().map(|&(id, max_ttl_secs)| Collection {
        id: CollectionId(id),
        name: format!("c{id}"),
        max_ttl_secs,
    });
    let scope = Scope { id: ScopeId(8), name: "s".into(), collections: collections.collect() };
    manifest.scopes.push(scope);
    Arc::new(manifest)
}

fn store(rig: &Rig, key: &[u8]) -> Result<Mutated, Status> {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.store(vb, key, &Store::set(b"v"), now))
}

/// Stores a document of a collection into every vBucket.
fn store_everywhere(rig: &Rig, collection: u8) -> Result<(), Status> {
    (0..200_u8).try_for_each(|n| store(rig, &[&[collection], format!("{n}").as_bytes()].concat()).map(|_| ()))
}

fn tell(event: &SystemEvent) -> String {
    let what = match &event.what {
        Happening::CollectionBegin(facts) => format!("+{}", facts.name),
        Happening::CollectionModified(facts) => format!("~{} {:?}", facts.name, facts.max_ttl_secs),
        Happening::CollectionEnd { collection, .. } => format!("-c{collection}"),
        Happening::ScopeBegin { name, .. } => format!("+{name}"),
        Happening::ScopeEnd { scope } => format!("-s{scope}"),
    };
    format!("{what}@{}", event.manifest_uid)
}

/// What all vBuckets have on disk; they have to agree.
fn told(rig: &Rig) -> Vec<String> {
    let of = |vb| rig.events_on_disk(VbId(vb)).iter().map(tell).collect::<Vec<_>>();
    let first = of(0);
    for vb in 1..VBUCKETS {
        assert_eq!(of(vb), first, "vBucket {vb}");
    }
    first
}

/// No document of a collection lies before the beginning of the collection.
fn check_order(rig: &Rig) {
    for vb in (0..VBUCKETS).map(VbId) {
        let mut begun = vec![0];
        for (seqno, key, value) in rig.on_disk(vb) {
            if key[0] != 1 {
                assert!(begun.contains(&u32::from(key[0])), "{key:?} at {seqno} before its collection");
            } else if let Some(Happening::CollectionBegin(facts)) =
                SystemEvent::decode(&value).map(|e| e.what)
            {
                begun.push(facts.collection.get());
            }
        }
    }
}

fn high_seqnos(rig: &Rig) -> Vec<Seqno> {
    rig.bucket.seqnos(None, &[base::VbRole::Active]).into_iter().map(|entry| entry.1).collect()
}

#[test]
fn every_change_is_told_once_in_every_vbucket() {
    let mut rig = Rig::new(options(BucketKind::Couchbase));
    rig.bucket.set_manifest(manifest(2, &[(9, None), (10, Some(5))]), rig.now());
    rig.flush();
    assert_eq!(told(&rig), ["+s@0", "+c9@0", "+c10@2"]);
    rig.bucket.set_manifest(manifest(3, &[(9, Some(7)), (11, None)]), rig.now());
    rig.flush();
    assert_eq!(told(&rig), ["+s@0", "+c11@2", "~c9 Some(7)@2", "-c10@3"]);
    let before = high_seqnos(&rig);
    assert_eq!(before, vec![Seqno(6); usize::from(VBUCKETS)]);
    rig.bucket.set_manifest(manifest(3, &[]), rig.now());
    rig.bucket.set_manifest(manifest(2, &[]), rig.now());
    assert_eq!(high_seqnos(&rig), before, "a manifest that is not newer is no change");
    let gone = Manifest { uid: ManifestUid(4), next_id: 20, ..Manifest::default() };
    rig.bucket.set_manifest(Arc::new(gone), rig.now());
    rig.flush();
    assert_eq!(told(&rig), ["-c10@3", "-c9@3", "-c11@3", "-s8@4"]);
}

#[test]
fn events_are_nobodys_items() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let mut rig = Rig::with_manifest(options(kind), manifest(2, &[(9, None)]));
        assert_eq!(high_seqnos(&rig), vec![Seqno(2); usize::from(VBUCKETS)]);
        rig.bucket.set_manifest(manifest(3, &[(9, None), (10, None)]), rig.now());
        let stored = store(&rig, b"\x0ak").unwrap();
        assert_eq!(stored.seqno, Seqno(4));
        let (vb, _) = rig.key(b"\x0ak");
        let seqno =
            |id| rig.bucket.seqnos(Some(CollectionId(id)), &[base::VbRole::Active])[usize::from(vb.get())].1;
        assert_eq!((seqno(0), seqno(9), seqno(10)), (Seqno(0), Seqno(2), Seqno(4)));
        let stats = rig.bucket.stats();
        assert_eq!((stats.curr_items, stats.non_resident), (1, 0));
        assert_eq!(stats.collections, [(CollectionId(10), 1)]);
        let info = rig.bucket.vb_state(vb).unwrap();
        assert_eq!((info.items, info.tombstones, info.max_deleted_rev), (1, 0, 0));
        for id in [0, 1, 9] {
            assert!(rig.bucket.random(CollectionId(id), 7, rig.now(), |_| ()).is_err());
        }
        let read = rig.run(b"\x01_collection:9", |bucket, vb, key| bucket.get(vb, key, rig.now(), |_| ()));
        assert_eq!(read, Err(Status::UnknownCollection));
        rig.bucket.set_manifest(manifest(4, &[(9, None)]), rig.now());
        while rig.bucket.expire(rig.now(), Budget::default()).more {}
        assert_eq!(rig.bucket.stats().curr_items, 0);
        assert_eq!(store(&rig, b"\x09k").map(|stored| stored.seqno > Seqno(4)), Ok(true));
        if kind == BucketKind::Couchbase {
            rig.flush();
            let (taken, _) = rig.key(b"\x09k");
            let other = VbId((taken.get() + 1) % VBUCKETS);
            let bytes = rig.bucket.vb_state(other).unwrap().item_bytes;
            assert_eq!(bytes, 0, "synced events need no memory");
            assert_eq!(told(&rig), ["+s@0", "+c9@2", "-c10@4"]);
        }
    }
}

#[test]
fn a_cache_under_pressure_keeps_its_events() {
    let options = BucketOptions { eviction: EvictionPolicy::NruEviction, ..options(BucketKind::Ephemeral) };
    let rig = Rig::with_manifest(options, manifest(2, &[(9, None)]));
    store_everywhere(&rig, 9).unwrap();
    let bytes = |rig: &Rig| (0..VBUCKETS).map(|vb| rig.bucket.vb_state(VbId(vb)).unwrap().item_bytes).min();
    rig.bucket.reconfigure(BucketChange { quota_bytes: Some(0), ..BucketChange::default() });
    let before = high_seqnos(&rig);
    for _ in 0..100 {
        rig.bucket.page(rig.now(), Budget::default());
    }
    let stats = rig.bucket.stats();
    assert_eq!((stats.curr_items, stats.ops.auto_deletes), (0, 200), "every document went, no event");
    assert!(bytes(&rig) > Some(0));
    let grown: u64 = high_seqnos(&rig).iter().zip(&before).map(|(now, then)| now.get() - then.get()).sum();
    assert_eq!(grown, 200);
}

#[test]
fn a_restart_tells_nothing_anew() {
    let mut rig =
        Rig::with_manifest(options(BucketKind::Couchbase), manifest(2, &[(9, None), (10, Some(3))]));
    store_everywhere(&rig, 9).unwrap();
    rig.flush();
    let (events, before) = (told(&rig), high_seqnos(&rig));
    for crash in [true, false, true] {
        rig = if crash { rig.crash() } else { rig.restart() };
        store(&rig, b"\x0aearly").expect("the disk says that everything has begun");
        rig.warm_up();
        rig.run(b"\x0aearly", |bucket, vb, key| bucket.delete(vb, key, &Default::default(), rig.now()))
            .unwrap();
        assert_eq!(rig.bucket.stats().curr_items, 200);
        rig.flush();
        assert_eq!(told(&rig), events);
    }
    let (early, _) = rig.key(b"\x0aearly");
    let changed = |vb: usize| vb == usize::from(early.get());
    let after = high_seqnos(&rig);
    assert!((0..before.len()).all(|vb| changed(vb) || after[vb] == before[vb]));
    let last = rig.bucket.seqnos(Some(CollectionId(10)), &[base::VbRole::Active]);
    assert!(last.iter().all(|&(vb, seqno)| vb == early || seqno == Seqno(3)), "{last:?}");
}

#[test]
fn a_crash_between_the_manifest_and_the_events_loses_none() {
    for part_bytes_max in [64 << 20, 100] {
        let options = BucketOptions { part_bytes_max, ..options(BucketKind::Couchbase) };
        let mut rig = Rig::with_manifest(options, manifest(2, &[(9, None), (10, None)]));
        store_everywhere(&rig, 9).unwrap();
        rig.flush();
        // The metadata has it, the disk does not.
        let newer = manifest(4, &[(9, Some(60)), (11, None)]);
        rig.bucket.set_manifest(newer.clone(), rig.now());
        store_everywhere(&rig, 11).unwrap();
        if part_bytes_max == 100 {
            // One small piece of each checkpoint: the first of the events, not the others.
            for shard in 0..2 {
                rig.clock.0 += 1_000;
                assert!(rig.bucket.flush(shard, rig.now()).more);
            }
        }
        let mut rig = Rig { manifest: newer, ..rig }.crash();
        let begun = store_everywhere(&rig, 11);
        assert_eq!(begun, Err(Status::TemporaryFailure), "not before the beginning is known");
        store_everywhere(&rig, 0).expect("the default collection needs no event");
        assert!(!rig.bucket.warm_up(0, rig.now()).unwrap());
        assert!(!rig.bucket.is_warm());
        store_everywhere(&rig, 11).expect("beginnings come first, in all shards");
        rig.warm_up();
        store_everywhere(&rig, 11).unwrap();
        assert_eq!(store(&rig, b"\x0ak"), Err(Status::UnknownCollection));
        rig.flush();
        let kinds: Vec<_> =
            told(&rig).iter().map(|event| event.split('@').next().unwrap().to_owned()).collect();
        assert_eq!(kinds, ["+s", "+c11", "~c9 Some(60)", "-c10"]);
        check_order(&rig);
        let mut rig = rig.crash();
        rig.warm_up();
        rig.flush();
        assert_eq!(told(&rig).len(), 4);
    }
}

/// The active before went away with the collection, and the copy that takes over has erased the documents by then.
#[test]
fn a_new_active_tells_the_end_of_a_collection_of_which_nothing_is_left() {
    let mut rig = Rig::with_manifest(options(BucketKind::Couchbase), manifest(2, &[(9, None), (10, None)]));
    store_everywhere(&rig, 9).unwrap();
    rig.flush();
    for vb in (0..VBUCKETS).map(VbId) {
        rig.bucket.make_replica(vb, 7).unwrap();
    }
    rig.bucket.set_manifest(manifest(3, &[(10, None)]), rig.now());
    // The second round finds nothing of the collection.
    for _ in 0..2 {
        while rig.bucket.expire(rig.now(), Budget::default()).more {}
        rig.flush();
    }
    for vb in (0..VBUCKETS).map(VbId) {
        rig.bucket
            .activate(vb, 8, Topology { chains: vec![vec![NodeId(0)]], copies: 1, to_disk: false }, rig.now())
            .unwrap();
    }
    rig.flush();
    assert_eq!(told(&rig), ["+s@0", "+c10@2", "-c9@3"]);
}

/// The scope has no collection by which a copy could know of it, before a restart or after.
#[test]
fn a_new_active_tells_the_end_of_a_scope_without_collections() {
    for restarts in [false, true] {
        let mut rig = Rig::with_manifest(options(BucketKind::Couchbase), manifest(2, &[]));
        rig.flush();
        assert_eq!(told(&rig), ["+s@2"]);
        let gone = Arc::new(Manifest { uid: ManifestUid(3), next_id: 20, ..Manifest::default() });
        if restarts {
            rig = Rig { manifest: Arc::clone(&gone), ..rig }.restart();
        }
        for vb in (0..VBUCKETS).map(VbId) {
            rig.bucket.make_replica(vb, 7).unwrap();
        }
        rig.warm_up();
        rig.bucket.set_manifest(gone, rig.now());
        for _ in 0..2 {
            while rig.bucket.expire(rig.now(), Budget::default()).more {}
            rig.flush();
        }
        let alone = Topology { chains: vec![vec![NodeId(0)]], copies: 1, to_disk: false };
        for vb in (0..VBUCKETS).map(VbId) {
            rig.bucket.activate(vb, 8, alone.clone(), rig.now()).unwrap();
        }
        rig.flush();
        assert_eq!(told(&rig), ["-s8@3"], "after a restart: {restarts}");
        // What was told is known no more, and told no more.
        while rig.bucket.expire(rig.now(), Budget::default()).more {}
        let before = high_seqnos(&rig);
        let later = Manifest { uid: ManifestUid(4), next_id: 20, ..Manifest::default() };
        rig.bucket.set_manifest(Arc::new(later), rig.now());
        assert_eq!(high_seqnos(&rig), before);
    }
}

#[test]
fn a_directory_older_than_events_gets_them() {
    // A directory written before events existed looks like one in which they were lost. Only the manifest that it says
    // it has seen tells the two apart.
    let empty = Arc::new(Manifest { uid: ManifestUid(5), ..Manifest::default() });
    let mut rig = Rig::with_manifest(options(BucketKind::Couchbase), empty);
    store_everywhere(&rig, 0).unwrap();
    rig.flush();
    assert_eq!(told(&rig), [""; 0]);
    let mut rig = Rig { manifest: manifest(5, &[(9, None)]), ..rig }.restart();
    rig.warm_up();
    rig.flush();
    assert_eq!(told(&rig), ["+s@5", "+c9@5"]);
}

#[test]
fn a_bucket_that_is_emptied_keeps_its_collections() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let mut rig = Rig::with_manifest(options(kind), manifest(2, &[(9, None)]));
        store_everywhere(&rig, 9).unwrap();
        rig.clock.advance_secs(1);
        rig.bucket.flush_all(rig.now()).unwrap();
        assert_eq!(high_seqnos(&rig), vec![Seqno(2); usize::from(VBUCKETS)]);
        assert_eq!(rig.bucket.stats().curr_items, 0);
        if kind == BucketKind::Couchbase {
            // Power fails before the new history has reached the disk.
            let mut rig = rig.crash();
            rig.warm_up();
            store_everywhere(&rig, 9).unwrap();
            rig.flush();
            assert_eq!(told(&rig), ["+s@0", "+c9@2"]);
            check_order(&rig);
        }
    }
}

#[test]
fn an_event_that_cannot_be_recorded_holds_its_collection_back() {
    let mut rig = Rig::new(options(BucketKind::Couchbase));
    // Beyond the CAS ceiling, which only the flusher raises.
    rig.clock.advance_secs(3_600);
    rig.bucket.set_manifest(manifest(2, &[(9, None)]), rig.now());
    assert_eq!(high_seqnos(&rig), vec![Seqno(0); usize::from(VBUCKETS)]);
    assert_eq!(store(&rig, b"\x09k"), Err(Status::TemporaryFailure));
    rig.flush();
    assert_eq!(store(&rig, b"\x09k").unwrap().seqno, Seqno(3), "recorded by the write that needs it");
    rig.bucket.expire(rig.now(), Budget::default());
    rig.flush();
    assert_eq!(told(&rig), ["+s@0", "+c9@2"], "and by housekeeping");
}

#[test]
fn the_default_collection_ends_once() {
    let mut without = Manifest { uid: ManifestUid(3), ..Manifest::default() };
    without.scopes[0].collections.clear();
    let mut rig = Rig::new(options(BucketKind::Couchbase));
    store_everywhere(&rig, 0).unwrap();
    rig.bucket.set_manifest(Arc::new(without.clone()), rig.now());
    rig.flush();
    assert_eq!(told(&rig), ["-c0@3"]);
    let before = high_seqnos(&rig);
    let rig = Rig { manifest: Arc::new(without), ..rig }.restart();
    rig.warm_up();
    assert_eq!(high_seqnos(&rig), before);
    assert_eq!(rig.bucket.stats().curr_items, 0);
}

#[test]
fn a_cache_of_the_old_kind_has_no_events() {
    let rig = Rig::with_manifest(options(BucketKind::Memcached), manifest(2, &[(9, None)]));
    rig.bucket.set_manifest(manifest(3, &[(9, None), (10, None)]), rig.now());
    assert_eq!(high_seqnos(&rig), vec![Seqno(0); usize::from(VBUCKETS)]);
}
