//! What every store does on every file system.

use std::collections::BTreeSet;

use base::{Seqno, VbId};
use settee_storage::{CompactBudget, FaultFs, KvStore, Liveness, Locator, Record, StoreError, Verdict};

use crate::support::{Amnesia, Place, Version, commit, document, lookup, options, same, state, tombstone};

fn budget() -> CompactBudget {
    CompactBudget { purge_before: 0, space_ratio: 1.0, ..CompactBudget::default() }
}

fn versions(count: u64, value_bytes: usize) -> Vec<Version> {
    let value = |n: u64| vec![n as u8; value_bytes + n as usize % 40];
    (1..=count).map(|n| document((n % 16) as u16, &format!("key-{n}"), n, value(n))).collect()
}

/// Every version is found by key, by locator and by scanning.
fn assert_holds(store: &dyn KvStore, expected: &[Version], locators: Option<&[Locator]>) {
    for (index, version) in expected.iter().enumerate() {
        let found = store.lookup(version.vb, &version.key).unwrap().expect("lookup finds the key");
        assert!(same(&found, version), "{found:?} is not {version:?}");
        assert!(same(&store.get_at(found.locator).unwrap(), version));
        if let Some(locators) = locators {
            assert!(same(&store.get_at(locators[index]).unwrap(), version));
        }
    }
    let mut seen = 0;
    store
        .scan(None, Seqno(0), true, &mut |vb, record, at| {
            let version = expected.iter().find(|v| v.vb == vb && v.meta.seqno == record.meta.seqno).unwrap();
            assert_eq!((record.key, record.value), (&version.key[..], &version.value[..]));
            assert_eq!(record.hash, base::hash::key_hash(record.key));
            assert!(same(&store.get_at(at).unwrap(), version));
            seen += 1;
            true
        })
        .unwrap();
    assert_eq!(seen, expected.len());
}

#[test]
fn what_is_committed_is_readable_at_once_and_after_every_kind_of_reopening() {
    for place in Place::each() {
        let all = versions(500, 700);
        let store = place.open();
        let mut locators = Vec::new();
        for batch in all.chunks(37) {
            locators.extend(commit(&store, batch).unwrap());
        }
        assert!(store.stats().segments > 3, "several segments, sealed and unsealed");
        assert_holds(&store, &all, Some(&locators));
        assert!(lookup(&store, 1, "absent").unwrap().is_none());
        store.sync().unwrap();
        assert_holds(&store, &all, Some(&locators));
        place.kill(store);

        let store = place.open();
        assert_eq!(store.stats().corrupt, []);
        assert_holds(&store, &all, None);
        let states = store.vb_states();
        assert_eq!(states.len(), 16);
        assert!(states.contains(&(VbId(4), state(500))), "{states:?}");
        drop(store);

        let store = place.open();
        assert_holds(&store, &all, None);
        assert_eq!(store.vb_states(), states);
        assert_eq!(store.stats().corrupt, []);
    }
}

#[test]
fn the_newest_version_wins_wherever_it_lies_and_tombstones_are_versions() {
    for place in Place::each() {
        let store = place.open();
        commit(&store, &[document(5, "a", 1, "one"), document(5, "b", 2, "two")]).unwrap();
        commit(&store, &[document(5, "a", 3, "three")]).unwrap();
        store.close().unwrap();
        commit(&store, &[tombstone(5, "b", 4, 1000), document(5, "c", 5, vec![b'x'; 100_000])]).unwrap();
        for round in 0..2 {
            assert_eq!(lookup(&store, 5, "a").unwrap().unwrap().value, b"three");
            let deleted = lookup(&store, 5, "b").unwrap().unwrap();
            assert!(deleted.meta.kind.is_tombstone() && deleted.meta.expiry == 1000);
            assert_eq!(lookup(&store, 5, "c").unwrap().unwrap().value.len(), 100_000);
            assert!(lookup(&store, 6, "a").unwrap().is_none(), "another vBucket");
            if round == 0 {
                store.close().unwrap();
            }
        }
    }
}

#[test]
fn a_scan_can_be_of_one_vbucket_from_a_seqno_without_values_and_stopped() {
    for place in Place::each() {
        let store = place.open();
        let all = versions(400, 600);
        all.chunks(50).for_each(|batch| drop(commit(&store, batch).unwrap()));
        let mut seqnos = Vec::new();
        store
            .scan(Some(VbId(3)), Seqno(100), false, &mut |vb, record, _| {
                assert_eq!((vb, record.value.len()), (VbId(3), 0));
                seqnos.push(record.meta.seqno.get());
                true
            })
            .unwrap();
        seqnos.sort_unstable();
        let expected: Vec<u64> = (100..=400).filter(|n| n % 16 == 3).collect();
        assert_eq!(seqnos, expected);
        let mut visited = 0;
        store
            .scan(None, Seqno(0), true, &mut |_, _, _| {
                visited += 1;
                visited < 10
            })
            .unwrap();
        assert_eq!(visited, 10);
    }
}

#[test]
fn what_was_recovered_can_be_scanned_without_the_segments_made_since() {
    for place in Place::each() {
        let store = place.open();
        let (old, new) = (versions(400, 600), versions(1200, 600));
        old.chunks(50).for_each(|batch| drop(commit(&store, batch).unwrap()));
        store.close().unwrap();
        drop(store);
        let store = place.open();
        new[400..].chunks(50).for_each(|batch| drop(commit(&store, batch).unwrap()));
        let recovered = || {
            let mut seqnos = BTreeSet::new();
            let visit = &mut |_, record: &Record<'_>, _| {
                seqnos.insert(record.meta.seqno.get());
                true
            };
            store.scan_recovered(visit).unwrap();
            seqnos
        };
        let seqnos = recovered();
        assert!((1..=400).all(|seqno| seqnos.contains(&seqno)), "all that was there");
        // Of what came after only as much as fits into the segment that was begun before.
        assert!(!seqnos.contains(&1200) && seqnos.len() < 800, "{} visited", seqnos.len());
        while store.compact(&Amnesia, budget()).unwrap().more {}
        let seqnos = recovered();
        assert!((1..=400).all(|seqno| seqnos.contains(&seqno)), "also where compaction has put it");
    }
}

/// Takes in everything that is moved.
#[derive(Default)]
struct TakesIn(std::sync::Mutex<BTreeSet<u64>>);

impl Liveness for TakesIn {
    fn verdict(&self, _: VbId, _: &Record<'_>, _: Locator) -> Verdict {
        Verdict::Unknown
    }

    fn takes_in(&self) -> bool {
        true
    }

    fn relocate(&self, _: VbId, record: &Record<'_>, _: Locator, _: Locator) -> bool {
        assert!(!record.value.is_empty(), "whole");
        self.0.lock().unwrap().insert(record.meta.seqno.get())
    }
}

#[test]
fn what_compaction_takes_from_who_scans_it_tells_memory_and_nothing_stays_on_the_disk_for_it() {
    for place in Place::each() {
        let store = place.open();
        let mut all = versions(600, 4_000);
        let mut locators = Vec::new();
        for batch in all.chunks(50) {
            locators.extend(commit(&store, batch).unwrap());
        }
        // Of the first segments most is dead.
        for (version, &at) in all.iter_mut().zip(&locators).take(450) {
            version.meta.seqno = Seqno(version.meta.seqno.get() + 600);
            version.replaces = at;
        }
        all[..450].chunks(50).for_each(|batch| drop(commit(&store, batch).unwrap()));
        store.close().unwrap();
        drop(store);
        let store = place.open();
        let (mut visited, memory, mut pinned) = (BTreeSet::new(), TakesIn::default(), 0);
        let visit = &mut |_, record: &Record<'_>, _| {
            if visited.is_empty() {
                while store.compact(&memory, budget()).unwrap().segments_removed > 0 {}
                pinned = store.stats().bytes_pinned;
            }
            visited.insert(record.meta.seqno.get());
            true
        };
        store.scan_recovered(visit).unwrap();
        let told = memory.0.into_inner().unwrap();
        assert!(!told.is_empty() && visited.len() < 700, "{} told, {} visited", told.len(), visited.len());
        assert!((451..=1_050).all(|seqno| told.contains(&seqno) || visited.contains(&seqno)));
        assert!(0 < pinned && pinned < 2 * options().segment_bytes, "what is being read just now: {pinned}");
    }
}

#[test]
fn the_largest_document_fits_and_a_larger_one_is_refused_without_harm() {
    let place = Place::real();
    let store = place.open();
    let large =
        document(1, "large", 1, vec![9; base::limits::VALUE_BYTES_MAX + base::limits::XATTR_BYTES_MAX]);
    let locators = commit(&store, &[large.clone(), document(2, "small", 1, "s")]).unwrap();
    assert!(same(&store.get_at(locators[0]).unwrap(), &large));
    assert!(same(&lookup(&store, 1, "large").unwrap().unwrap(), &large));
    let huge = document(1, "huge", 2, vec![9; 26 << 20]);
    assert!(matches!(commit(&store, &[huge]), Err(StoreError::Invalid(_))));
    assert_eq!(lookup(&store, 2, "small").unwrap().unwrap().value, b"s");
    place.kill(store);
    assert!(same(&lookup(&place.open(), 1, "large").unwrap().unwrap(), &large));
}

#[test]
fn states_put_alone_are_durable_and_later_commits_overtake_them() {
    for place in Place::each() {
        let store = place.open();
        commit(&store, &[document(1, "k", 1, "v")]).unwrap();
        let mut put = state(1);
        put.failover_log.insert(0, (base::VbUuid(77), Seqno(1)));
        put.purge_seqno = Seqno(1);
        store.put_states(&[(VbId(1), put.clone()), (VbId(9), state(0))]).unwrap();
        place.kill(store);
        let store = place.open();
        assert_eq!(store.vb_states(), [(VbId(1), put), (VbId(9), state(0))]);
        assert_eq!(lookup(&store, 1, "k").unwrap().unwrap().value, b"v", "put_states syncs what came before");
        commit(&store, &[document(1, "k", 2, "w")]).unwrap();
        store.sync().unwrap();
        place.kill(store);
        let expected = settee_storage::VbState { purge_seqno: Seqno(1), ..state(2) };
        assert_eq!(place.open().vb_states()[0], (VbId(1), expected));
    }
}

#[test]
fn a_reset_vbucket_is_empty_for_good_and_its_bytes_come_back() {
    for place in Place::each() {
        let store = place.open();
        let all = versions(320, 900);
        let locators = commit(&store, &all).unwrap();
        store.sync().unwrap();
        let vbs: Vec<_> = (0..16).filter(|vb| *vb != 2).map(|vb| (VbId(vb), state(0))).collect();
        store.reset_vbs(&vbs).unwrap();
        let kept: Vec<Version> = all.iter().filter(|version| version.vb == VbId(2)).cloned().collect();
        assert_holds(&store, &kept, None);
        assert!(matches!(store.get_at(locators[0]), Err(StoreError::Stale)));
        commit(&store, &[document(1, "key-1", 1, "anew")]).unwrap();
        place.kill(store);

        let store = place.open();
        assert_eq!(lookup(&store, 1, "key-1").unwrap().unwrap().value, b"anew");
        assert!(lookup(&store, 3, "key-3").unwrap().is_none());
        while store.compact(&Amnesia, budget()).unwrap().more {}
        assert_eq!(lookup(&store, 1, "key-1").unwrap().unwrap().value, b"anew");
        assert!((19_000..21_000).contains(&store.stats().bytes_live), "{:?}", store.stats());
        store.reset_vbs(&[(VbId(1), state(0)), (VbId(2), state(0))]).unwrap();
        store.close().unwrap();
        store.sync().unwrap();
        let report = store.compact(&Amnesia, budget()).unwrap();
        assert_eq!(report.bytes_read, 0, "wholly dead segments are not read");
        assert_eq!(store.stats().segments, 0);
    }
}

#[test]
fn a_second_opener_is_refused_and_another_shards_files_too() {
    for place in Place::each() {
        let store = place.open();
        assert!(matches!(place.open_with(options()), Err(StoreError::Locked(_))));
        drop(store);
        let other = settee_storage::Options { shard: 4, ..options() };
        assert!(matches!(place.open_with(other), Err(StoreError::Corrupt { .. })));
        drop(place.open());
    }
}

#[test]
fn compaction_without_help_from_memory_keeps_the_newest_versions_and_frees_the_rest() {
    for place in Place::each() {
        let store = place.open();
        let mut newest = Vec::new();
        let mut first = Vec::new();
        for round in 0..6u64 {
            newest.clear();
            for n in 1..=200u64 {
                let mut version =
                    document((n % 8) as u16, &format!("k{n}"), round * 200 + n, vec![round as u8; 800]);
                version.replaces = first.get(n as usize - 1).copied().unwrap_or_default();
                newest.push(version);
            }
            first = commit(&store, &newest).unwrap();
        }
        store.close().unwrap();
        store.sync().unwrap();
        let before = store.stats();
        assert!(before.bytes_live < before.bytes_used / 4, "{before:?}");
        while store.compact(&Amnesia, budget()).unwrap().more {}
        let after = store.stats();
        assert!(after.bytes_used < before.bytes_used / 3, "{before:?} {after:?}");
        for version in &newest {
            let found = lookup(&store, version.vb.get(), str::from_utf8(&version.key[1..]).unwrap());
            assert!(same(&found.unwrap().unwrap(), version));
        }
        drop(store);
        assert_holds(&place.open(), &newest, None);
    }
}

#[test]
fn old_tombstones_go_when_no_older_version_is_left_and_purge_seqnos_say_so() {
    for place in Place::each() {
        let store = place.open();
        let locators = commit(&store, &versions(100, 500)).unwrap();
        store.close().unwrap();
        let tombstones: Vec<Version> = (1..=100u64)
            .zip(locators)
            .map(|(n, replaces)| {
                let key = format!("key-{n}");
                Version { replaces, ..tombstone((n % 16) as u16, &key, 100 + n, 50 + n as u32) }
            })
            .collect();
        commit(&store, &tombstones).unwrap();
        store.close().unwrap();
        store.sync().unwrap();
        // Of the tombstones 1..=49 were deleted before 100.
        let purge = CompactBudget { purge_before: 100, ..budget() };
        let mut purged = Vec::new();
        for _ in 0..10 {
            purged.extend(store.compact(&Amnesia, purge).unwrap().purged);
        }
        for n in 1..=100u64 {
            let found = lookup(&store, (n % 16) as u16, &format!("key-{n}")).unwrap();
            match n {
                ..50 => assert!(found.is_none(), "{n} should be purged"),
                _ => assert!(found.unwrap().meta.kind.is_tombstone()),
            }
        }
        assert!(purged.contains(&(VbId(1), Seqno(149))), "{purged:?}");
        place.kill(store);
        let store = place.open();
        let states = store.vb_states();
        let vb1 = states.iter().find(|(vb, _)| *vb == VbId(1)).unwrap();
        assert_eq!(vb1.1.purge_seqno, Seqno(149));
        assert!(lookup(&store, 1, "key-1").unwrap().is_none());
    }
}

#[test]
fn hints_survive_a_reopening_unless_they_are_damaged() {
    for place in Place::each() {
        let store = place.open();
        assert_eq!(store.hints(), None);
        store.put_hints(b"first").unwrap();
        store.put_hints(b"the last ones").unwrap();
        assert_eq!(store.hints().unwrap(), b"the last ones");
        store.close().unwrap();
        drop(store);
        let store = place.open();
        assert_eq!(store.hints().unwrap(), b"the last ones");
        assert_eq!(store.stats().corrupt_count, 0);
    }
    let fs = FaultFs::new(7);
    let dir = std::path::Path::new("/shard");
    let store = settee_storage::open(dir, std::sync::Arc::new(fs.clone()), options()).unwrap();
    store.put_hints(b"some").unwrap();
    assert!(fs.flip_bit(&dir.join("hints"), 13, 3));
    assert_eq!(store.hints(), None, "what is damaged is as good as absent");
}
