//! Backfills: one vBucket as of one seqno, whatever happens to the store meanwhile.

use std::collections::BTreeMap;

use base::{Seqno, VbId};
use settee_storage::{
    Backfill, BackfillOptions, CompactBudget, KvStore, Locator, Options, RecordKind, StoreError,
};

use crate::support::{Amnesia, Place, Version, commit, document, drain, options, state, tombstone};

const ORDERED: BackfillOptions =
    BackfillOptions { unordered: false, keys_only: false, values_of: None, prepares: false };

/// Keys alone, with the values of a tenth of them.
const SOME_VALUES: BackfillOptions =
    BackfillOptions { keys_only: true, values_of: Some(has_value), ..ORDERED };

fn has_value(kind: RecordKind, key: &[u8]) -> bool {
    kind == RecordKind::Document && key.ends_with(b"7")
}

fn compact(store: &dyn KvStore) {
    let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
    store.close().unwrap();
    store.sync().unwrap();
    while store.compact(&Amnesia, budget).unwrap().more {}
}

fn backfill(
    store: &dyn KvStore,
    vb: u16,
    from: u64,
    options: BackfillOptions,
) -> Result<Vec<Version>, StoreError> {
    drain(store.backfill(VbId(vb), Seqno(from), options)?, vb, 10_000)
}

/// The newest versions of a vBucket above `from`, in seqno order.
fn newest(all: &[Version], vb: u16, from: u64) -> Vec<Version> {
    let mut keys = BTreeMap::new();
    for version in all.iter().filter(|version| version.vb == VbId(vb)) {
        keys.insert(version.key.clone(), version.clone());
    }
    let mut newest: Vec<Version> = keys.into_values().filter(|v| v.meta.seqno > Seqno(from)).collect();
    newest.sort_by_key(|version| version.meta.seqno);
    newest
}

/// Rounds of overwriting, deleting and creating in four vBuckets, each committed and synced.
fn history(rounds: u64) -> Vec<Vec<Version>> {
    let version = |round: u64, n: u64| {
        let (vb, seqno) = ((n % 4) as u16, round * 60 + n / 4 + 1);
        let key = format!("k{}", (n * (round % 3 + 1)) % 200);
        if n % 11 == round % 11 {
            tombstone(vb, &key, seqno, 1000)
        } else {
            document(vb, &key, seqno, vec![seqno as u8; 100 + (n * 37 % 900) as usize])
        }
    };
    (0..rounds).map(|round| (0..240).map(|n| version(round, n)).collect()).collect()
}

type Places = BTreeMap<(VbId, Vec<u8>), Locator>;

/// Commits and syncs each round; what it replaces is told, so that compaction finds something to do.
fn write(store: &dyn KvStore, places: &mut Places, rounds: &[Vec<Version>]) {
    for round in rounds {
        for batch in round.chunks(50) {
            let place = |v: &Version| places.get(&(v.vb, v.key.clone())).copied().unwrap_or_default();
            let batch: Vec<Version> =
                batch.iter().map(|v| Version { replaces: place(v), ..v.clone() }).collect();
            for (version, at) in batch.iter().zip(commit(store, &batch).unwrap()) {
                places.insert((version.vb, version.key.clone()), at);
            }
        }
        store.sync().unwrap();
    }
}

#[test]
fn every_key_comes_once_in_its_newest_version_in_seqno_order() {
    for place in Place::each() {
        let (rounds, store) = (history(8), place.open());
        write(&store, &mut Places::new(), &rounds);
        let all = rounds.concat();
        let check = |store: &dyn KvStore| {
            for (vb, from) in [(0, 0), (1, 0), (2, 300), (3, 479), (3, 480), (9, 0)] {
                let expected = newest(&all, vb, from);
                for bytes_max in [1, 5000, 1 << 20] {
                    let opened = store.backfill(VbId(vb), Seqno(from), ORDERED).unwrap();
                    assert_eq!(opened.end(), Seqno(if vb < 4 { 480 } else { 0 }));
                    assert_eq!(drain(opened, vb, bytes_max).unwrap(), expected);
                }
                let unordered = BackfillOptions { unordered: true, ..ORDERED };
                let mut found = backfill(store, vb, from, unordered).unwrap();
                found.sort_by_key(|version| version.meta.seqno);
                assert_eq!(found, expected);
                let keys_only = BackfillOptions { keys_only: true, ..ORDERED };
                let found = backfill(store, vb, from, keys_only).unwrap();
                let bare = |version: &Version| Version { value: Vec::new(), ..version.clone() };
                assert_eq!(found, expected.iter().map(bare).collect::<Vec<_>>());
                let found = backfill(store, vb, from, SOME_VALUES).unwrap();
                let some = |version: &Version| match has_value(version.meta.kind, &version.key) {
                    true => version.clone(),
                    false => bare(version),
                };
                assert_eq!(found, expected.iter().map(some).collect::<Vec<_>>());
            }
            assert_eq!(store.stats().backfills, 0, "finished ones have let go");
        };
        check(&store);
        compact(&store);
        check(&store);
        drop(store);
        let store = place.open();
        check(&store);
        place.kill(store);
        check(&place.open());
    }
}

/// The value is behind what is read of a record whose value is not wanted, and larger than a window.
#[test]
fn what_a_rule_asks_for_is_read_whole_and_nothing_else_is() {
    for place in Place::each() {
        let store = place.open();
        let bytes = |n: u64| if n == 17 { 600_000 } else { 2_000 };
        let all: Vec<Version> =
            (1..=40).map(|n| document(1, &format!("key {n}"), n, vec![n as u8; bytes(n) as usize])).collect();
        commit(&store, &all).unwrap();
        store.sync().unwrap();
        let read = |options| {
            let before = store.stats().backfill_bytes;
            let found = backfill(&store, 1, 0, options).unwrap();
            (found, store.stats().backfill_bytes - before)
        };
        let (found, whole) = read(ORDERED);
        assert_eq!(found, all);
        let (found, some) = read(SOME_VALUES);
        let with_values: Vec<_> = found.iter().filter(|version| !version.value.is_empty()).collect();
        assert_eq!(with_values, [&all[6], &all[16], &all[26], &all[36]]);
        let (_, none) = read(BackfillOptions { values_of: None, ..SOME_VALUES });
        assert_eq!(some - none, 600_000 + 3 * 2_000);
        assert_eq!(whole - some, 36 * 2_000);
    }
}

#[test]
fn only_what_was_synced_when_it_was_made_is_delivered() {
    for place in Place::each() {
        let store = place.open();
        commit(&store, &[document(1, "a", 1, "synced"), document(1, "b", 2, "synced")]).unwrap();
        assert_eq!(backfill(&store, 1, 0, ORDERED).unwrap(), [], "nothing is synced yet");
        store.sync().unwrap();
        commit(&store, &[document(1, "a", 3, "not synced")]).unwrap();
        let early = store.backfill(VbId(1), Seqno(0), ORDERED).unwrap();
        assert_eq!(early.end(), Seqno(2));
        commit(&store, &[document(1, "b", 4, "late")]).unwrap();
        store.sync().unwrap();
        let values = |found: Vec<Version>| found.into_iter().map(|v| v.value).collect::<Vec<_>>();
        assert_eq!(values(drain(early, 1, 100).unwrap()), [b"synced", b"synced"]);
        assert_eq!(values(backfill(&store, 1, 0, ORDERED).unwrap()), [&b"not synced"[..], b"late"]);
        // A state alone, as metadata is written, says nothing of documents.
        store.put_states(&[(VbId(1), state(4))]).unwrap();
        assert_eq!(store.backfill(VbId(1), Seqno(0), ORDERED).unwrap().end(), Seqno(4));
    }
}

#[test]
fn compaction_takes_nothing_away_from_it_and_the_disk_gets_the_bytes_back_afterwards() {
    let place = Place::fault(1);
    let (rounds, store) = (history(6), place.open());
    let mut places = Places::new();
    write(&store, &mut places, &rounds[..3]);
    let mut held: Vec<_> = (0..4).map(|vb| store.backfill(VbId(vb), Seqno(0), ORDERED).unwrap()).collect();
    // One has begun, one is in the middle, the others have not looked at anything.
    for (backfill, steps) in held.iter_mut().zip([1, 50]) {
        for _ in 0..steps {
            backfill.next(4000, &mut |_| ()).unwrap();
        }
    }
    let middle = held.remove(1);
    write(&store, &mut places, &rounds[3..]);
    compact(&store);
    let stats = store.stats();
    assert!(stats.bytes_pinned > 100_000 && stats.backfills == 4, "{stats:?}");
    assert!(stats.bytes_on_disk > stats.bytes_pinned);
    let fault = place.fault.as_ref().unwrap();
    let used = fault.used_bytes();
    for (backfill, vb) in held.into_iter().zip([0, 2, 3]) {
        assert_eq!(backfill.end(), Seqno(180));
        assert_eq!(drain(backfill, vb, 4000).unwrap(), newest(&rounds[..3].concat(), vb, 0));
    }
    drop(middle);
    assert_eq!((store.stats().bytes_pinned, store.stats().backfills), (0, 0));
    assert!(used - fault.used_bytes() > 100_000, "removed files are gone with their last reader");
    assert_eq!(backfill(&store, 2, 0, ORDERED).unwrap(), newest(&rounds.concat(), 2, 0));
}

#[test]
fn a_pin_keeps_what_its_locators_name() {
    for place in Place::each() {
        let (rounds, store) = (history(6), place.open());
        let mut places = Places::new();
        write(&store, &mut places, &rounds[..3]);
        let (pin, then) = (store.pin(), places.clone());
        write(&store, &mut places, &rounds[3..]);
        compact(&store);
        let moved = then.values().filter(|at| matches!(store.get_at(**at), Err(StoreError::Stale))).count();
        assert!(moved > 100, "{moved}");
        for ((_, key), at) in &then {
            assert_eq!(pin.get_at(*at).unwrap().key, *key);
        }
        assert!(store.stats().pins == 1 && store.stats().bytes_pinned > 0);
        store.reset_vbs(&[(VbId(1), state(0))]).unwrap();
        let of_vb_1 = then.iter().find(|((vb, _), _)| *vb == VbId(1)).unwrap();
        assert!(matches!(pin.get_at(*of_vb_1.1), Err(StoreError::Stale)), "its history has ended");
        drop(pin);
        assert_eq!((store.stats().pins, store.stats().bytes_pinned), (0, 0));
    }
}

#[test]
fn a_reset_ends_it_and_the_next_one_sees_the_new_history_alone() {
    for place in Place::each() {
        let (rounds, store) = (history(3), place.open());
        write(&store, &mut Places::new(), &rounds);
        let mut under_way = store.backfill(VbId(1), Seqno(0), ORDERED).unwrap();
        under_way.next(4000, &mut |_| ()).unwrap();
        let other = store.backfill(VbId(2), Seqno(0), ORDERED).unwrap();
        store.reset_vbs(&[(VbId(1), state(0))]).unwrap();
        for _ in 0..2 {
            assert!(under_way.next(4000, &mut |_| panic!("of a history that ended")).is_err());
        }
        assert_eq!(drain(other, 2, 4000).unwrap(), newest(&rounds.concat(), 2, 0), "others go on");
        assert_eq!(backfill(&store, 1, 0, ORDERED).unwrap(), []);
        let anew = document(1, "k4", 1, "anew");
        commit(&store, std::slice::from_ref(&anew)).unwrap();
        store.sync().unwrap();
        assert_eq!(backfill(&store, 1, 0, ORDERED).unwrap(), std::slice::from_ref(&anew));
        drop(store);
        let store = place.open();
        compact(&store);
        assert_eq!(backfill(&store, 1, 0, ORDERED).unwrap(), [anew]);
    }
}

#[test]
fn a_reset_that_found_no_space_leaves_everything_to_be_read() {
    let place = Place::fault(3);
    let (rounds, store) = (history(2), place.open());
    write(&store, &mut Places::new(), &rounds);
    let fault = place.fault.as_ref().unwrap();
    fault.set_capacity(Some(fault.used_bytes()));
    assert!(matches!(store.reset_vbs(&[(VbId(1), state(0))]), Err(StoreError::NoSpace)));
    assert_eq!(backfill(&store, 1, 0, ORDERED).unwrap(), newest(&rounds.concat(), 1, 0));
}

#[test]
fn it_outlives_the_store_it_came_from() {
    for place in Place::each() {
        let (rounds, store) = (history(3), place.open());
        write(&store, &mut Places::new(), &rounds);
        let opened = store.backfill(VbId(1), Seqno(0), ORDERED).unwrap();
        drop(store);
        let again = place.open();
        assert_eq!(drain(opened, 1, 4000).unwrap(), newest(&rounds.concat(), 1, 0));
        assert_eq!(again.stats().corrupt, []);
    }
}

/// What a segment's index keeps of a key is 32 bits of its hash.
#[test]
fn keys_with_the_same_fingerprint_are_different_keys() {
    let place = Place::real();
    let store = place.open();
    // The manifest says by which seed the shard hashes.
    let manifest = std::fs::read(place.dir.join("manifest")).unwrap();
    let seed = u64::from_le_bytes(manifest[48..56].try_into().unwrap());
    let mut prints = BTreeMap::new();
    let mut pairs = Vec::new();
    for n in 0..300_000u32 {
        let name = format!("c{n}");
        let print = base::hash::disk_hash(&[b"\0", name.as_bytes()].concat(), seed) >> 32;
        if let Some(other) = prints.insert(print, name.clone()) {
            pairs.push((other, name));
        }
    }
    assert!(pairs.len() > 2, "{pairs:?}");
    let mut all = Vec::new();
    for (n, (one, other)) in (1u64..).zip(&pairs) {
        all.extend([document(1, one, 3 * n, "one"), document(1, other, 3 * n + 1, "other")]);
        all.push(document(1, one, 3 * n + 2, "one again"));
    }
    all.chunks(7).for_each(|batch| drop(commit(&store, batch).unwrap()));
    store.sync().unwrap();
    assert_eq!(backfill(&store, 1, 0, ORDERED).unwrap(), newest(&all, 1, 0));
    compact(&store);
    assert_eq!(backfill(&store, 1, 0, ORDERED).unwrap(), newest(&all, 1, 0));
}

#[test]
fn its_memory_is_24_bytes_a_record_and_windows() {
    let place = Place::real();
    let large = Options { segment_bytes: 8 << 20, segment_bytes_min: 8 << 20, ..options() };
    let store = place.open_with(large).unwrap();
    let records = 40_000u64;
    for first in (1..=records).step_by(1000) {
        let batch: Vec<Version> =
            (first..first + 1000).map(|n| document(1, &format!("k{n}"), n, vec![0; 300])).collect();
        commit(&store, &batch).unwrap();
    }
    store.sync().unwrap();
    let mut opened = store.backfill(VbId(1), Seqno(0), ORDERED).unwrap();
    let (mut most, mut delivered) = (0, 0);
    while opened.next(64 << 10, &mut |_| delivered += 1).unwrap() {
        most = most.max(opened.memory_bytes());
    }
    assert_eq!(delivered, records);
    let bound = 2 * 24 * records as usize + (8 << 20);
    assert!(most > 24 * records as usize && most < bound, "{most}");
    assert_eq!(opened.memory_bytes(), 0);
    let stats = store.stats();
    assert_eq!(stats.backfill_records, records);
    assert!(stats.backfill_bytes > 300 * records);
    // A caller that asks for little at a time has little read ahead.
    let while_delivering = |bytes_max: usize| {
        let mut opened = store.backfill(VbId(1), Seqno(0), ORDERED).unwrap();
        let (mut most, mut delivered) = (0, 0);
        while opened.next(bytes_max, &mut |_| delivered += 1).unwrap() {
            if delivered > 0 {
                most = most.max(opened.memory_bytes());
            }
        }
        most
    };
    let (little, much) = (while_delivering(16 << 10), while_delivering(256 << 10));
    assert!(little > 24 * records as usize && little + (128 << 10) < much, "{little}, {much}");
}

/// Damages the one place on the disk that holds these bytes.
fn damage(place: &Place, bytes: &[u8]) {
    let fault = place.fault.as_ref().unwrap();
    for name in place.fs.list(&place.dir).unwrap().iter().filter(|name| name.ends_with(".seg")) {
        let path = place.dir.join(name);
        let content = fault.contents(&path).unwrap();
        if let Some(at) = content.windows(bytes.len()).position(|window| window == bytes) {
            assert!(fault.flip_bit(&path, at as u64 + 2, 4));
            return;
        }
    }
    panic!("nowhere on the disk");
}

fn collect(opened: &mut dyn Backfill) -> (Vec<u64>, Result<bool, StoreError>) {
    let mut seqnos = Vec::new();
    loop {
        match opened.next(200, &mut |record| seqnos.push(record.meta.seqno.get())) {
            Ok(true) => {}
            end => return (seqnos, end),
        }
    }
}

#[test]
fn a_segment_of_many_short_runs_is_read_by_its_directory_which_notices_damage() {
    let place = Place::fault(12);
    let large = Options { segment_bytes: 4 << 20, segment_bytes_min: 4 << 20, ..options() };
    let store = place.open_with(large).unwrap();
    let mut all = Vec::new();
    for n in 1..=1200u64 {
        let batch: Vec<Version> =
            (0..4).map(|vb| document(vb, &format!("k{n}"), n, vec![n as u8; 9])).collect();
        commit(&store, &batch).unwrap();
        all.extend(batch);
    }
    store.close().unwrap();
    assert_eq!(store.stats().segments, 1);
    // Twice: the first makes the directory.
    for vb in [2, 0, 1, 3, 2, 7] {
        assert_eq!(backfill(&store, vb, 0, ORDERED).unwrap(), newest(&all, vb, 0));
    }
    let fault = place.fault.as_ref().unwrap();
    let path = place.dir.join("00000002.seg");
    let length = fault.contents(&path).unwrap().len() as u64;
    // Before the trailer and four summaries: the last run of the last vBucket.
    assert!(fault.flip_bit(&path, length - 96 - 4 * 32 - 8, 2));
    assert_eq!(backfill(&store, 3, 0, ORDERED).unwrap(), newest(&all, 3, 0));
    assert_eq!(store.stats().corrupt_count, 1, "noticed, and the index made anew from the data");
}

#[test]
fn damage_ends_it_before_anything_that_lies_beyond() {
    for sealed in [true, false] {
        let place = Place::fault(11);
        let store = place.open();
        let mut all: Vec<Version> = (1..=9)
            .map(|n| document(1, &format!("key number {n}"), n, format!("value number {n}")))
            .collect();
        all.push(document(1, "key number 2", 10, "a newer value"));
        all.push(document(2, "elsewhere", 1, "fine"));
        commit(&store, &all).unwrap();
        store.sync().unwrap();
        if sealed {
            store.close().unwrap();
        }
        let all_but_2 = [1, 3, 4, 5, 6, 7, 8, 9, 10];
        // A superseded value is nobody's business.
        damage(&place, b"value number 2");
        let (seqnos, end) = collect(&mut *store.backfill(VbId(1), Seqno(0), ORDERED).unwrap());
        assert!(seqnos == all_but_2 && end.is_ok(), "{seqnos:?} {end:?}");
        // A lost value ends it there, and is not needed by a reader that wants keys only.
        damage(&place, b"value number 6");
        let mut opened = store.backfill(VbId(1), Seqno(0), ORDERED).unwrap();
        let (seqnos, end) = collect(&mut *opened);
        assert_eq!(seqnos, [1, 3, 4, 5]);
        assert!(matches!(end, Err(StoreError::Corrupt { .. })), "{end:?}");
        assert!(opened.next(200, &mut |_| panic!("beyond damage")).is_err(), "for good");
        assert_eq!(store.stats().corrupt_count, 1);
        let keys_only = BackfillOptions { keys_only: true, ..ORDERED };
        let (seqnos, end) = collect(&mut *store.backfill(VbId(1), Seqno(0), keys_only).unwrap());
        assert!(seqnos == all_but_2 && end.is_ok());
        let (seqnos, end) = collect(&mut *store.backfill(VbId(1), Seqno(0), SOME_VALUES).unwrap());
        assert!(seqnos == all_but_2 && end.is_ok(), "of 7 alone the value is read: {seqnos:?} {end:?}");
        assert_eq!(store.stats().corrupt_count, 1, "noticed once");
        let others = BackfillOptions { values_of: Some(|_, key| key.ends_with(b"6")), ..SOME_VALUES };
        let (seqnos, end) = collect(&mut *store.backfill(VbId(1), Seqno(0), others).unwrap());
        assert_eq!(seqnos, [1, 3, 4, 5]);
        assert!(matches!(end, Err(StoreError::Corrupt { .. })), "a value that is read is checked: {end:?}");
        // Of a lost key nobody knows the seqno.
        damage(&place, b"key number 8");
        let (seqnos, end) = collect(&mut *store.backfill(VbId(1), Seqno(0), keys_only).unwrap());
        assert!(seqnos.is_empty() && matches!(end, Err(StoreError::Corrupt { .. })), "{seqnos:?} {end:?}");
        assert_eq!(store.stats().corrupt_count, 2);
        let (seqnos, end) = collect(&mut *store.backfill(VbId(2), Seqno(0), ORDERED).unwrap());
        assert!(seqnos == [1] && end.is_ok(), "others are not concerned");
    }
}
