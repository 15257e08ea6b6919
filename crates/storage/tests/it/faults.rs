//! Full disks, failing disks, and disks that change their mind.

use std::path::PathBuf;

use base::Seqno;
use settee_storage::{CompactBudget, FaultFs, KvStore, Locator, Options, Record, StoreError, VbBatch};

use crate::support::{Amnesia, Place, Version, commit, document, lookup, options, same, state, tombstone};

fn disk(place: &Place) -> &FaultFs {
    place.fault.as_ref().unwrap()
}

fn filler(n: u64) -> Vec<Version> {
    (0..8).map(|i| document(i, &format!("k{n}"), n, vec![n as u8; 900])).collect()
}

/// Commits until the disk is full; returns how many rounds fitted.
fn fill(store: &dyn KvStore, first: u64) -> u64 {
    for n in first.. {
        match commit(store, &filler(n)) {
            Ok(_) => {}
            Err(StoreError::NoSpace) => return n,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("the disk never filled")
}

#[test]
fn a_full_disk_refuses_writes_keeps_everything_readable_and_heals() {
    let place = Place::fault(5);
    let store = place.open();
    disk(&place).set_capacity(Some(600_000));
    let refused = fill(&store, 1);
    assert!(refused > 10 && store.stats().full);
    for n in 1..refused {
        assert!(same(&lookup(&store, 3, &format!("k{n}")).unwrap().unwrap(), &filler(n)[3]));
    }
    assert!(lookup(&store, 3, &format!("k{refused}")).unwrap().is_none(), "nothing of the refused batch");
    store.sync().unwrap();
    assert!(matches!(commit(&store, &filler(refused)), Err(StoreError::NoSpace)), "still full");
    disk(&place).set_capacity(None);
    commit(&store, &filler(refused)).unwrap();
    store.sync().unwrap();
    assert!(!store.stats().full);
    disk(&place).crash();
    drop(store);
    let store = place.open();
    assert_eq!(store.stats().corrupt, []);
    for n in 1..=refused {
        assert!(same(&lookup(&store, 7, &format!("k{n}")).unwrap().unwrap(), &filler(n)[7]));
    }
}

#[test]
fn a_store_on_a_full_disk_opens_and_reads() {
    let place = Place::fault(6);
    let store = place.open();
    disk(&place).set_capacity(Some(400_000));
    let refused = fill(&store, 1);
    store.sync().unwrap();
    let used = disk(&place).used_bytes();
    place.kill(store);
    disk(&place).set_capacity(Some(used));
    let store = place.open();
    assert!(same(&lookup(&store, 1, "k1").unwrap().unwrap(), &filler(1)[1]));
    drop(store);
    disk(&place).set_capacity(None);
    let store = place.open();
    let last = refused - 1;
    assert!(same(&lookup(&store, 1, &format!("k{last}")).unwrap().unwrap(), &filler(last)[1]));
    commit(&store, &filler(refused)).unwrap();
}

#[test]
fn the_reserve_lets_deletes_and_compaction_proceed_until_there_is_space_again() {
    let place = Place::fault(7);
    let with_reserve = Options { reserve_bytes: 300_000, ..options() };
    let store = place.open_with(with_reserve).unwrap();
    disk(&place).set_capacity(Some(1_500_000));
    let mut written = Vec::new();
    loop {
        let n = written.len() as u64 + 1;
        match commit(&store, &filler(n)) {
            Ok(locators) => written.push(locators),
            Err(StoreError::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    store.sync().unwrap();
    delete_of_each(&store, &written, 8);
    compact_all(&store);
    commit(&store, &filler(2000)).expect("compaction made room");
    assert!(!store.stats().full);
}

/// Commits versions of as many vBuckets, as far as there is room; the locators of those for which there was.
fn commit_what_fits(store: &dyn KvStore, versions: &[Version]) -> (Vec<Locator>, Result<(), StoreError>) {
    fn record(version: &Version) -> Record<'_> {
        Record {
            meta: version.meta,
            key: &version.key,
            hash: base::hash::key_hash(&version.key),
            value: &version.value,
            replaces: version.replaces,
        }
    }
    let states: Vec<_> = versions.iter().map(|version| state(version.meta.seqno.get())).collect();
    let records: Vec<_> = versions.iter().map(|version| [record(version)]).collect();
    let batches: Vec<_> = versions
        .iter()
        .zip(&states)
        .zip(&records)
        .map(|((version, state), records)| VbBatch { vb: version.vb, state, records })
        .collect();
    let mut locators = vec![Locator::NONE; 3];
    let result = store.commit(&batches, &mut locators);
    (locators, result)
}

/// A commit that goes on in another segment may find room for its first parts only. Were they written again, what they
/// replace would count as obsolete twice, and of themselves there would be a copy that never does.
#[test]
fn of_a_commit_that_found_room_for_some_parts_only_the_others_are_left() {
    let mut partly = 0;
    for headroom in 0..40 {
        let place = Place::fault(headroom);
        let store = place.open();
        // Half of each vBucket stays as it is.
        let before: Vec<_> = (0..8).map(|i| document(i, "kept", 1, vec![1; 900])).collect();
        commit(&store, &before).unwrap();
        let before: Vec<_> = (0..8).map(|i| document(i, "k", 2, vec![2; 900])).collect();
        let places = commit(&store, &before).unwrap();
        let after =
            |i: u16| Version { replaces: places[usize::from(i)], ..document(i, "k", 3, vec![3; 20_000]) };
        let after: Vec<_> = (0..8).map(after).collect();
        store.sync().unwrap();
        disk(&place).set_capacity(Some(disk(&place).used_bytes() + headroom * 5_000));
        let (found, result) = commit_what_fits(&store, &after);
        assert!(matches!(result, Err(StoreError::NoSpace)) == (found.len() < 8), "{result:?}");
        for (version, at) in after.iter().zip(&found) {
            assert!(same(&store.get_at(*at).unwrap(), version));
        }
        partly += u32::from(!found.is_empty() && found.len() < 8);
        disk(&place).set_capacity(None);
        let (rest, result) = commit_what_fits(&store, &after[found.len()..]);
        result.unwrap();
        assert_eq!(found.len() + rest.len(), 8);
        store.sync().unwrap();

        let undisturbed = Place::fault(headroom);
        let reference = undisturbed.open();
        commit(&reference, &(0..8).map(|i| document(i, "kept", 1, vec![1; 900])).collect::<Vec<_>>())
            .unwrap();
        commit(
            &reference,
            &after
                .iter()
                .map(|version| Version { replaces: Locator::NONE, ..version.clone() })
                .collect::<Vec<_>>(),
        )
        .unwrap();
        assert_eq!(store.stats().bytes_live, reference.stats().bytes_live, "headroom {headroom}");
    }
    assert!(partly > 0, "no commit was cut in two");
}

/// Deletes the first `count` of eight documents of each round.
fn delete_of_each(store: &dyn KvStore, rounds: &[Vec<Locator>], count: u16) {
    for (n, locators) in (1..).zip(rounds) {
        let delete = |i: u16| Version {
            replaces: locators[usize::from(i)],
            ..tombstone(i, &format!("k{n}"), 1000 + n, 5)
        };
        let deletes: Vec<Version> = (0..count).map(delete).collect();
        commit(store, &deletes).unwrap_or_else(|error| panic!("delete {n}: {error}"));
    }
    store.sync().unwrap();
    store.sync().unwrap();
}

fn compact_all(store: &dyn KvStore) {
    let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
    while store.compact(&Amnesia, budget).unwrap().more {}
}

/// The store gave compaction its reserve on a full disk, and could not take it back. Once there is room, that is no reason to
/// refuse anything. Perhaps only a writer is there to notice.
#[test]
fn a_commit_finds_room_that_came_back_while_nothing_was_compacted() {
    let place = Place::fault(7);
    let with_reserve = Options { reserve_bytes: 300_000, ..options() };
    let store = place.open_with(with_reserve).unwrap();
    let written: Vec<_> = (1..=60).map(|n| commit(&store, &filler(n)).unwrap()).collect();
    // So little was gained by compaction that its reserve does not fit any more.
    disk(&place).set_capacity(Some(disk(&place).used_bytes() - 200_000));
    delete_of_each(&store, &written[..10], 4);
    compact_all(&store);
    assert!(matches!(commit(&store, &filler(2000)), Err(StoreError::NoSpace)));
    disk(&place).set_capacity(None);
    commit(&store, &filler(2000)).expect("there is room");
    assert!(!store.stats().full);
}

#[test]
fn a_disk_that_fills_up_before_anything_was_compacted_can_be_compacted() {
    for restarted in [false, true] {
        let place = Place::fault(7);
        let with_reserve = Options { reserve_bytes: 300_000, ..options() };
        let mut store = place.open_with(with_reserve.clone()).unwrap();
        let written: Vec<_> = (1..=60).map(|n| commit(&store, &filler(n)).unwrap()).collect();
        if restarted {
            drop(store);
            // Nothing has made their names durable: a crash may have taken them.
            for name in ["reserve", "reserve.compaction"] {
                place.fs.remove(&place.dir.join(name)).unwrap();
            }
            store = place.open_with(with_reserve).unwrap();
        }
        disk(&place).set_capacity(Some(disk(&place).used_bytes()));
        // One of eight is left of each: something has to be copied.
        delete_of_each(&store, &written, 7);
        compact_all(&store);
        commit(&store, &filler(2000)).expect("compaction made room");
    }
}

#[test]
fn compaction_on_a_full_disk_copies_no_more_at_once_than_it_has_set_aside() {
    // What is alive may be known, or thought to be less than it is.
    for is_known in [true, false] {
        compact_with_small_reserve(is_known);
    }
}

fn compact_with_small_reserve(is_known: bool) {
    let place = Place::fault(7);
    let small =
        Options { reserve_bytes: 300_000, segment_bytes: 100_000, segment_bytes_min: 100_000, ..options() };
    let store = place.open_with(small.clone()).unwrap();
    let written: Vec<_> = (1..=300).map(|n| commit(&store, &filler(n)).unwrap()).collect();
    delete_of_each(&store, &written, 4);
    for (n, locators) in (1..).zip(&written).filter(|_| !is_known) {
        let replaces = |i: u16| Version {
            replaces: locators[usize::from(i)],
            ..tombstone(i, &format!("other{n}"), 5000 + n, 5)
        };
        commit(&store, &(4..8).map(replaces).collect::<Vec<_>>()).unwrap();
    }
    drop(store);
    // What is left of all of them would fit one segment now, and is several times the reserve.
    let large = Options { segment_bytes: 4 << 20, segment_bytes_min: 4 << 20, ..small };
    let store = place.open_with(large).unwrap();
    disk(&place).set_capacity(Some(disk(&place).used_bytes()));
    compact_all(&store);
    commit(&store, &filler(2000)).expect("compaction made room");
}

#[test]
fn a_failed_write_or_sync_poisons_the_shard_and_reads_go_on() {
    for (fail_write, seed) in [(true, 8), (false, 9)] {
        let place = Place::fault(seed);
        let store = place.open();
        commit(&store, &filler(1)).unwrap();
        store.sync().unwrap();
        commit(&store, &filler(2)).unwrap();
        disk(&place).fail_writes(fail_write);
        disk(&place).fail_syncs(!fail_write);
        let failed = if fail_write { commit(&store, &filler(3)).map(drop) } else { store.sync() };
        assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");
        disk(&place).fail_writes(false);
        disk(&place).fail_syncs(false);
        assert!(matches!(commit(&store, &filler(4)), Err(StoreError::Poisoned)));
        assert!(matches!(store.sync(), Err(StoreError::Poisoned)), "nobody retries a sync");
        assert!(matches!(store.put_states(&[]), Err(StoreError::Poisoned)));
        assert!(matches!(store.compact(&Amnesia, CompactBudget::default()), Err(StoreError::Poisoned)));
        assert!(store.stats().poisoned);
        assert!(same(&lookup(&store, 2, "k1").unwrap().unwrap(), &filler(1)[2]));
        disk(&place).crash();
        drop(store);
        let store = place.open();
        assert!(same(&lookup(&store, 2, "k1").unwrap().unwrap(), &filler(1)[2]), "what was synced is there");
        assert!(lookup(&store, 2, "k3").unwrap().is_none());
        commit(&store, &filler(5)).unwrap();
    }
}

/// Flips a bit inside the value of one record and returns file and offset of that value.
fn damage(place: &Place, value: &[u8]) -> (PathBuf, u64) {
    let names = place.fs.list(&place.dir).unwrap();
    for name in names.iter().filter(|name| name.ends_with(".seg")) {
        let path = place.dir.join(name);
        let bytes = disk(place).contents(&path).unwrap();
        if let Some(at) = bytes.windows(value.len()).position(|window| window == value) {
            assert!(disk(place).flip_bit(&path, at as u64 + 3, 6));
            return (path, at as u64);
        }
    }
    panic!("the value is nowhere on the disk");
}

#[test]
fn a_flipped_bit_in_a_value_is_named_and_costs_only_that_record() {
    for sealed in [true, false] {
        let place = Place::fault(10);
        let store = place.open();
        let victim = document(3, "victim", 50, b"the value that will be damaged".to_vec());
        commit(&store, &[document(3, "victim", 49, "older"), document(3, "other", 48, "fine")]).unwrap();
        let locators = commit(&store, std::slice::from_ref(&victim)).unwrap();
        store.sync().unwrap();
        commit(&store, &filler(60)).unwrap();
        store.sync().unwrap();
        if sealed {
            store.close().unwrap();
        }
        let (path, at) = damage(&place, &victim.value);
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let check = |store: &dyn KvStore| {
            let found = lookup(store, 3, "victim");
            match found {
                Err(StoreError::Corrupt { file: named, offset, .. }) => {
                    assert!(
                        named == file && offset < at && at - offset < 256,
                        "{named} {offset}, damaged {at}"
                    );
                }
                other => panic!("the older version must not show: {other:?}"),
            }
            assert!(same(&lookup(store, 3, "k60").unwrap().unwrap(), &filler(60)[3]), "others are served");
            assert_eq!(lookup(store, 3, "other").unwrap().unwrap().value, b"fine");
            let mut seen = 0;
            let count = &mut |_, _: &settee_storage::Record<'_>, _| {
                seen += 1;
                true
            };
            store.scan(None, Seqno(0), true, count).unwrap();
            assert_eq!(seen, 2 + 8, "all but the damaged one");
            assert_eq!(store.stats().corrupt_count, 1);
            assert_eq!(store.stats().corrupt[0].0, file);
        };
        assert!(matches!(store.get_at(locators[0]), Err(StoreError::Corrupt { .. })));
        check(&store);
        place.kill(store);
        let store = place.open();
        check(&store);
        // Compaction leaves the damaged segment alone, for good.
        commit(&store, &[document(3, "victim", 61, "anew")]).unwrap();
        store.sync().unwrap();
        store.sync().unwrap();
        let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
        for _ in 0..3 {
            store.compact(&Amnesia, budget).unwrap();
        }
        assert_eq!(lookup(&store, 3, "victim").unwrap().unwrap().value, b"anew");
        assert!(same(&lookup(&store, 3, "k60").unwrap().unwrap(), &filler(60)[3]));
    }
}

#[test]
fn any_single_flipped_bit_is_noticed_or_harmless() {
    let all: Vec<Version> =
        (1..=40u64).map(|n| document((n % 4) as u16, &format!("k{n}"), n, vec![n as u8; 200])).collect();
    let mut noticed = 0;
    for round in 0..120u64 {
        let place = Place::fault(round);
        let store = place.open();
        all.chunks(10).for_each(|batch| drop(commit(&store, batch).unwrap()));
        store.sync().unwrap();
        if round % 2 == 0 {
            drop(store);
        } else {
            place.kill(store);
        }
        let path = place.dir.join("00000002.seg");
        let bytes = disk(&place).contents(&path).unwrap();
        // The last frame of an unclean end proves the sync; without it damage before it is a torn tail.
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
        let end = if round % 2 == 0 { used } else { used - 80 };
        assert!(disk(&place).flip_bit(&path, round * 7919 % end, round as u8));
        let store = place.open();
        let mut damaged = 0;
        for version in &all {
            match lookup(&store, version.vb.get(), str::from_utf8(&version.key[1..]).unwrap()) {
                Ok(found) => assert!(same(&found.expect("never absent"), version), "round {round}"),
                Err(StoreError::Corrupt { .. }) => damaged += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(damaged <= 1, "round {round}: {damaged} of 40 records lost to one bit");
        noticed += damaged;
    }
    assert!(noticed > 20, "the flips hit records");
}

#[test]
fn a_locator_outlives_compaction_only_as_stale_and_pinned_readers_keep_reading() {
    for place in Place::each() {
        let store = place.open();
        let locators = commit(&store, &filler(1)).unwrap();
        store.close().unwrap();
        let newer: Vec<Version> = filler(2)
            .into_iter()
            .zip(&locators)
            .map(|(version, at)| Version { key: b"\0k1".to_vec(), replaces: *at, ..version })
            .collect();
        commit(&store, &newer).unwrap();
        store.close().unwrap();
        store.sync().unwrap();
        let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
        let mut seen = 0;
        store
            .scan(None, Seqno(0), true, &mut |_, record, _| {
                if seen == 0 {
                    assert!(store.compact(&Amnesia, budget).unwrap().segments_removed > 0);
                }
                seen += 1;
                assert!(record.value.len() == 900);
                true
            })
            .unwrap();
        assert_eq!(seen, 16, "the scan sees what was there when it began");
        assert!(matches!(store.get_at(locators[0]), Err(StoreError::Stale)));
    }
}

#[test]
fn a_damaged_or_lost_manifest_is_healed_from_its_copy() {
    for damage in ["bit", "lost"] {
        let place = Place::fault(12);
        let store = place.open();
        let mut last = vec![vec![Locator::NONE; 8]; 20];
        for n in 1..60u64 {
            let slot = n as usize % 20;
            let mut versions = filler(n % 20);
            for (version, replaces) in versions.iter_mut().zip(&last[slot]) {
                (version.meta.seqno, version.replaces) = (Seqno(n), *replaces);
            }
            last[slot] = commit(&store, &versions).unwrap();
            store.sync().unwrap();
            if n % 13 == 0 {
                let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
                store.compact(&Amnesia, budget).unwrap();
            }
        }
        let removed = store.stats();
        assert!(removed.compaction_bytes_written > 0, "segments have gone: {removed:?}");
        place.kill(store);
        let manifest = place.dir.join("manifest");
        match damage {
            "bit" => assert!(disk(&place).flip_bit(&manifest, 20, 2)),
            _ => place.fs.remove(&manifest).unwrap(),
        }
        for _ in 0..2 {
            let store = place.open();
            for slot in 0..20u64 {
                let newest = (40..60).rev().find(|n| n % 20 == slot).unwrap();
                let found = lookup(&store, 3, &format!("k{slot}")).unwrap().unwrap();
                assert_eq!(found.meta.seqno, Seqno(newest));
            }
            place.kill(store);
        }
        // Healed by the first of these openings: the copy is not needed any more.
        place.fs.remove(&place.dir.join("manifest.copy")).unwrap();
        assert!(lookup(&place.open(), 3, "k3").unwrap().is_some());
    }
}
