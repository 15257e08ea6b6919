//! The index over many segments finds what the segments would have found. The store does without it when it is damaged. It
//! survives a restart.

use std::collections::BTreeMap;

use settee_storage::{CompactBudget, KvStore, Options, SegmentLog};

use crate::support::{Amnesia, Place, commit, document, lookup, options, tombstone};

const KEYS: u64 = 3_000;

fn open(place: &Place) -> SegmentLog {
    place.open_with(Options { index_segments_min: 3, ..options() }).unwrap()
}

/// Writes keys in rounds, some of them again, some deleted; what each should be.
fn fill(store: &SegmentLog) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut expected = BTreeMap::new();
    let mut places = BTreeMap::new();
    let mut seqno = 0;
    for round in 0..4 {
        for chunk in 0..KEYS / 100 {
            let mut versions: Vec<_> = (0..100)
                .filter(|number| number % (round + 1) == 0)
                .map(|number| {
                    seqno += 1;
                    let key = format!("key{}", chunk * 100 + number);
                    if round == 3 && number % 8 == 0 {
                        expected.insert(key.clone(), None);
                        return tombstone(1, &key, seqno, 50);
                    }
                    let value = vec![round as u8; 200];
                    expected.insert(key.clone(), Some(value.clone()));
                    document(1, &key, seqno, value)
                })
                .collect();
            for version in &mut versions {
                version.replaces = places.get(&version.key).copied().unwrap_or_default();
            }
            let locators = commit(store, &versions).unwrap();
            places.extend(versions.into_iter().map(|version| version.key).zip(locators));
        }
    }
    store.sync().unwrap();
    store.close().unwrap();
    // From here on memory is taken to know.
    store.sync().unwrap();
    expected
}

fn check(store: &SegmentLog, expected: &BTreeMap<String, Option<Vec<u8>>>) {
    for (key, value) in expected {
        let found = lookup(store, 1, key).unwrap();
        let found = found.filter(|record| !record.meta.kind.is_tombstone()).map(|record| record.value);
        assert_eq!(&found, value, "{key}");
        assert_eq!(lookup(store, 1, &format!("{key}?")).unwrap(), None);
    }
}

fn make_index(store: &SegmentLog) {
    // What must not be compacted is indexed all the same.
    store.compact(&Amnesia, CompactBudget { space_ratio: 1e9, ..CompactBudget::default() }).unwrap();
}

fn index_files(place: &Place) -> Vec<String> {
    let names = place.fs.list(&place.dir).unwrap();
    names.into_iter().filter(|name| name.ends_with(".keys")).collect()
}

#[test]
fn it_finds_every_key_takes_little_memory_and_survives_a_restart() {
    for place in Place::each() {
        let store = open(&place);
        let expected = fill(&store);
        check(&store, &expected);
        let before = store.stats().index_bytes;
        make_index(&store);
        assert_eq!(index_files(&place).len(), 1);
        check(&store, &expected);
        let after = store.stats().index_bytes;
        assert!(after * 10 < before, "{after} bytes instead of {before}");
        drop(store);
        let store = open(&place);
        check(&store, &expected);
        assert_eq!(store.stats().index_bytes, after, "no segment has to answer for itself");
    }
}

#[test]
fn what_compaction_has_moved_is_found_where_it_is() {
    let place = Place::fault(1);
    let store = open(&place);
    let expected = fill(&store);
    check(&store, &expected);
    make_index(&store);
    let segments = store.stats().segments;
    let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
    while store.compact(&Amnesia, budget).unwrap().more {}
    let left = store.stats().segments;
    assert!(left < segments, "{left} of {segments}");
    check(&store, &expected);
    assert_eq!(index_files(&place).len(), 1, "the one before is gone");
}

#[test]
fn damage_in_it_costs_nothing_but_time() {
    let place = Place::fault(2);
    let store = open(&place);
    let expected = fill(&store);
    check(&store, &expected);
    make_index(&store);
    let name = index_files(&place).remove(0);
    let file = place.fs.open(&place.dir.join(&name)).unwrap();
    file.write_at(&[0xff; 16], 4096).unwrap();
    check(&store, &expected);
    assert_eq!(index_files(&place), Vec::<String>::new(), "given up");
    make_index(&store);
    check(&store, &expected);
    let name = index_files(&place).remove(0);
    assert_eq!(store.stats().corrupt_count, 0, "no document is concerned");
    drop(store);
    // A torn one is not believed either.
    let file = place.fs.open(&place.dir.join(&name)).unwrap();
    file.truncate(file.length().unwrap() - 7).unwrap();
    let store = open(&place);
    assert_eq!(index_files(&place), Vec::<String>::new());
    check(&store, &expected);
}

#[test]
fn compaction_does_not_ask_it_about_one_key_at_a_time() {
    const REPLACED: usize = 300;
    let (place, disk) = Place::counted(3);
    let options =
        Options { index_segments_min: 3, segment_bytes: 1 << 20, segment_bytes_min: 1 << 20, ..options() };
    let store = place.open_with(options).unwrap();
    let keys: Vec<String> = (0..KEYS).map(|number| format!("key{number}")).collect();
    let (mut seqno, mut places) = (0, Vec::new());
    // Those that are written again are spread over all of them.
    for key in keys.iter().chain(keys.iter().step_by(keys.len() / REPLACED)) {
        seqno += 1;
        let mut version = document(1, key, seqno, vec![seqno as u8; 2_000]);
        version.replaces = keys
            .iter()
            .position(|other| other == key)
            .and_then(|at| places.get(at).copied())
            .unwrap_or_default();
        places.extend(commit(&store, &[version]).unwrap());
    }
    store.sync().unwrap();
    store.close().unwrap();
    store.sync().unwrap();
    for key in &keys {
        lookup(&store, 1, key).unwrap().unwrap();
    }
    make_index(&store);
    let blocks = place.fs.open(&place.dir.join(&index_files(&place)[0])).unwrap().length().unwrap() / 4096;
    let before = disk.used().operations;
    let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
    let (mut kept, mut dropped, mut steps, mut more) = (0, 0, 0, true);
    while more {
        let report = store.compact(&Amnesia, budget).unwrap();
        (kept, dropped) = (kept + report.records_kept, dropped + report.records_dropped);
        (steps, more) = (steps + 1, report.more);
    }
    let operations = disk.used().operations - before;
    assert!(kept > KEYS / 2 && dropped > REPLACED as u64 / 2, "{kept} kept, {dropped} dropped");
    // A record that is superseded and the one that supersedes it are read; of all others the index's entries tell. The
    // rest is what copying takes.
    let allowed = 2 * dropped + steps * (blocks + 20) + kept / 8;
    assert!(
        operations < allowed,
        "{operations} operations for {kept} + {dropped}, {steps} steps, {blocks} blocks"
    );
    let all = keys.iter().all(|key| lookup(&store, 1, key).unwrap().is_some());
    assert!(all);
}

/// Segments are sealed as they fill up and synced later. What a crash cuts keeps its number and its salt.
#[test]
fn it_does_not_speak_for_what_a_crash_may_take_away() {
    for seed in 0..20 {
        let place = Place::fault(seed);
        let store = open(&place);
        let key = |number: u64| format!("key{number}");
        let write = |numbers: std::ops::Range<u64>| {
            for number in numbers {
                commit(&store, &[document(1, &key(number), number + 1, vec![number as u8; 2_000])]).unwrap();
            }
        };
        write(0..200);
        store.sync().unwrap();
        write(200..600);
        for number in 0..200 {
            lookup(&store, 1, &key(number)).unwrap().unwrap();
        }
        make_index(&store);
        assert_eq!(index_files(&place).len(), 1);
        place.fault.as_ref().unwrap().crash();
        drop(store);
        let store = open(&place);
        let found =
            |number| lookup(&store, 1, &key(number)).unwrap_or_else(|error| panic!("{number}: {error}"));
        let there: Vec<bool> = (0..600).map(|number| found(number).is_some()).collect();
        assert!(there[..200].iter().all(|there| *there), "seed {seed}: what was synced");
        assert!(there.is_sorted_by(|a, b| a >= b), "seed {seed}: a prefix");
    }
}

/// After a crash a file that had grown may hold blocks that another index had there. Each is whole, and tells of other keys.
#[test]
fn a_block_of_another_index_is_not_taken_for_its_own() {
    let place = Place::fault(4);
    let store = open(&place);
    let mut expected = fill(&store);
    check(&store, &expected);
    make_index(&store);
    let before = place.fault.as_ref().unwrap().contents(&place.dir.join(&index_files(&place)[0])).unwrap();
    for number in 0..2 * KEYS {
        let (key, seqno) = (format!("other{number}"), 100_000 + number);
        commit(&store, &[document(1, &key, seqno, vec![9; 300])]).unwrap();
        expected.insert(key, Some(vec![9; 300]));
    }
    store.close().unwrap();
    store.sync().unwrap();
    make_index(&store);
    let name = index_files(&place).remove(0);
    drop(store);
    let path = place.dir.join(&name);
    let after = place.fault.as_ref().unwrap().contents(&path).unwrap();
    let file = place.fs.open(&path).unwrap();
    let blocks = before.chunks_exact(4096).zip(after.chunks_exact(4096)).take(20);
    assert!(blocks.clone().filter(|(old, new)| old != new).count() > 15, "it was made anew");
    for (number, (old, _)) in blocks.enumerate() {
        file.write_at(old, number as u64 * 4096).unwrap();
    }
    let store = open(&place);
    assert_eq!(index_files(&place), [name], "its end is whole");
    check(&store, &expected);
    assert_eq!(store.stats().corrupt_count, 0);
}
