//! Damage that was seen once is remembered, costs no more than what it hit, and is never an absence.

use std::path::PathBuf;

use base::{Seqno, VbId};
use settee_storage::{
    BackfillOptions, CompactBudget, FaultFs, FsCall, KvStore, Marks, RecordKind, SegmentLog, StoreError,
    VbBatch,
};

use crate::prepares::commit_marked;
use crate::support::{Amnesia, Place, Version, commit, document, drain, lookup, same, state, tombstone};

const NO_SPACE: i32 = 28;
const EIO: i32 = 5;

fn disk(place: &Place) -> &FaultFs {
    place.fault.as_ref().unwrap()
}

/// The file and place of these bytes.
fn find(place: &Place, bytes: &[u8]) -> (PathBuf, u64) {
    for name in place.fs.list(&place.dir).unwrap() {
        let path = place.dir.join(&name);
        let content = disk(place).contents(&path).unwrap();
        if name.ends_with(".seg")
            && let Some(at) = content.windows(bytes.len()).position(|window| window == bytes)
        {
            return (path, at as u64);
        }
    }
    panic!("not on the disk");
}

fn round(n: u64) -> Vec<Version> {
    (0..4).map(|vb| document(vb, &format!("key{n:03}"), n, vec![n as u8; 500])).collect()
}

/// Commits rounds, each synced.
fn write(store: &dyn KvStore, rounds: std::ops::RangeInclusive<u64>) {
    for n in rounds {
        commit(store, &round(n)).unwrap();
        store.sync().unwrap();
    }
}

/// How many keys of the rounds cannot be told of. None may be absent or wrong.
fn unreadable(store: &dyn KvStore, rounds: std::ops::RangeInclusive<u64>) -> usize {
    let all: Vec<Version> = rounds.flat_map(round).collect();
    let damaged = all.iter().filter(|version| {
        match lookup(store, version.vb.get(), str::from_utf8(&version.key[1..]).unwrap()) {
            Ok(Some(found)) => assert!(same(&found, version), "{found:?}"),
            Ok(None) => panic!("absent: {:?}", str::from_utf8(&version.key)),
            Err(StoreError::Corrupt { .. }) => return true,
            Err(error) => panic!("{error}"),
        }
        false
    });
    damaged.count()
}

fn is_corrupt<T>(result: Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Corrupt { .. }))
}

/// Ends and begins again, every other time by a crash.
fn again(place: &Place, store: SegmentLog, number: u32) -> SegmentLog {
    if number.is_multiple_of(2) {
        place.kill(store);
    } else {
        disk(place).crash();
        drop(store);
    }
    place.open()
}

#[test]
fn damage_in_an_unclean_tail_is_remembered_at_every_later_open() {
    let place = Place::fault(1);
    let mut store = place.open();
    write(&store, 1..=8);
    place.kill(store);
    // In the key: nobody knows whose record it was.
    let (path, at) = find(&place, b"key003");
    assert!(disk(&place).flip_bit(&path, at, 3));
    store = place.open();
    for number in 0..4 {
        assert_eq!(unreadable(&store, 1..=8), 1);
        assert!(is_corrupt(lookup(&store, 0, "another")), "it may have been the one that was lost");
        assert!(store.stats().corrupt_count > 0, "open {number}");
        assert!(is_corrupt(
            store.backfill(VbId(0), Seqno(0), BackfillOptions::default()).and_then(|b| drain(b, 0, 1 << 20))
        ));
        let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
        store.compact(&Amnesia, budget).unwrap();
        store = again(&place, store, number);
    }
    // All contents are dropped: what was lost is of no concern any more.
    let all: Vec<_> = store.vb_states().into_iter().map(|(vb, _)| (vb, state(0))).collect();
    store.reset_vbs(&all).unwrap();
    assert!(lookup(&store, 0, "another").unwrap().is_none());
    store = again(&place, store, 0);
    assert!(lookup(&store, 0, "another").unwrap().is_none());
    assert_eq!(store.stats().corrupt, []);
}

#[test]
fn a_listed_segment_whose_header_is_gone_is_read_by_what_the_manifest_knows_of_it() {
    for is_clean in [false, true] {
        let place = Place::fault(2);
        let mut store = place.open();
        write(&store, 1..=20);
        if is_clean {
            store.close().unwrap();
        }
        place.kill(store);
        let (path, _) = find(&place, b"key001");
        assert!(disk(&place).zero_page(&path, 0));
        for _ in 0..3 {
            store = place.open();
            assert_eq!(unreadable(&store, 1..=20), 0);
            assert!(store.stats().corrupt_count > 0);
            place.kill(store);
        }
        assert!(place.fs.open(&path).is_ok(), "nothing was removed");
    }
}

#[test]
fn a_segment_that_is_gone_is_missed_at_every_later_open() {
    for is_clean in [false, true] {
        let place = Place::fault(3);
        let mut store = place.open();
        write(&store, 1..=8);
        if is_clean {
            store.close().unwrap();
        }
        place.kill(store);
        let (path, _) = find(&place, b"key001");
        place.fs.remove(&path).unwrap();
        place.fs.sync_dir(&place.dir).unwrap();
        store = place.open();
        for number in 0..4 {
            assert_eq!(unreadable(&store, 1..=8), 32);
            assert!(is_corrupt(store.backfill(VbId(0), Seqno(0), BackfillOptions::default())));
            store = again(&place, store, number);
        }
        write(&store, 9..=9);
        assert_eq!(unreadable(&store, 9..=9), 0, "what is there is served");
    }
}

#[test]
fn a_gap_in_the_log_is_missing_data_also_where_no_manifest_lists_it() {
    let place = Place::fault(4);
    let mut store = place.open();
    // Several segments; the copy of the manifest lists none of them.
    write(&store, 1..=100);
    place.kill(store);
    let (path, _) = find(&place, b"key050");
    place.fs.remove(&path).unwrap();
    place.fs.remove(&place.dir.join("manifest")).unwrap();
    store = place.open();
    for number in 0..3 {
        assert!(unreadable(&store, 1..=100) > 20);
        assert_eq!(unreadable(&store, 1..=20) + unreadable(&store, 90..=100), 0);
        store = again(&place, store, number);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_renamed_and_not_removed() {
    let place = Place::fault(5);
    let store = place.open();
    write(&store, 1..=100);
    place.kill(store);
    let (path, _) = find(&place, b"key100");
    // The manifest that lists it is gone as well.
    place.fs.remove(&place.dir.join("manifest")).unwrap();
    assert!(disk(&place).zero_page(&path, 0));
    drop(place.open());
    let aside = PathBuf::from(format!("{}.unreadable", path.display()));
    let kept = disk(&place).contents(&aside).expect("renamed");
    assert!(kept.windows(6).any(|window| window == b"key100"));
}

#[test]
fn a_record_found_without_its_commit_frame_keeps_its_seqno() {
    let place = Place::fault(6);
    let store = place.open();
    write(&store, 1..=3);
    // Behind the last record of a batch lies its commit frame: damaged, while the next sync's mark proves it.
    let last = document(2, "last", 40, "the last value of its batch");
    let gone = tombstone(2, "gone", 41, 77);
    commit(&store, &[document(2, "before", 39, "x"), last.clone(), gone]).unwrap();
    store.sync().unwrap();
    place.kill(store);
    let (path, at) = find(&place, &last.value);
    let record_end = (at + last.value.len() as u64).next_multiple_of(16) + 80;
    assert!(disk(&place).flip_bit(&path, record_end + 33, 1));
    let store = place.open();
    let high = |store: &dyn KvStore| store.vb_states().into_iter().find(|(vb, _)| *vb == VbId(2)).unwrap().1;
    assert!(same(&lookup(&store, 2, "last").unwrap().unwrap(), &last));
    assert_eq!(high(&store).high_seqno, Seqno(41), "else a seqno is given twice");
    assert!(high(&store).max_cas >= last.meta.cas && high(&store).max_deleted_rev >= 41);
    let store = again(&place, store, 1);
    assert_eq!(high(&store).high_seqno, Seqno(41));
}

#[test]
fn what_is_cut_behind_a_damaged_commit_frame_is_not_counted() {
    let place = Place::fault(7);
    let store = place.open();
    let last = document(2, "last", 1, "the last value of its batch");
    commit(&store, std::slice::from_ref(&last)).unwrap();
    store.sync().unwrap();
    // Not synced.
    let many: Vec<Version> = (2..60).map(|n| tombstone(2, &format!("t{n}"), n, 7)).collect();
    commit(&store, &many).unwrap();
    place.kill(store);
    // The first commit frame, and the mark of its sync behind it: the next frame that is whole closes the batch that is cut.
    let (path, at) = find(&place, &last.value);
    let frame = (at + last.value.len() as u64).next_multiple_of(16);
    let content = disk(&place).contents(&path).unwrap();
    let length = content[frame as usize + 8..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).unwrap();
    let mark = (frame + u64::from(length)).next_multiple_of(16);
    assert_eq!((content[frame as usize + 12], content[mark as usize + 12]), (0x80, 0x80));
    assert!(disk(&place).flip_bit(&path, frame + 33, 1) && disk(&place).flip_bit(&path, mark + 33, 1));
    let store = place.open();
    let stats = store.stats();
    assert!(stats.bytes_live <= stats.bytes_used, "{} of {}", stats.bytes_live, stats.bytes_used);
    assert!(same(&lookup(&store, 2, "last").unwrap().unwrap(), &last));
}

#[test]
fn what_an_open_has_found_after_a_failed_sync_survives_a_power_failure() {
    for seed in 0..20 {
        let place = Place::fault(seed);
        let store = place.open();
        write(&store, 1..=3);
        (4..=12).for_each(|n| drop(commit(&store, &round(n)).unwrap()));
        disk(&place).lose_syncs(true);
        assert!(store.sync().is_err());
        assert!(matches!(commit(&store, &round(13)), Err(StoreError::Poisoned)));
        place.kill(store);
        let found = |store: &dyn KvStore| {
            (1..=12).take_while(|n| lookup(store, 0, &format!("key{n:03}")).unwrap().is_some()).count()
        };
        let store = place.open();
        let before = found(&store);
        assert!(before >= 3, "what was synced");
        write(&store, 20..=21);
        disk(&place).crash();
        drop(store);
        let store = place.open();
        assert_eq!(found(&store), before, "seed {seed}");
        assert_eq!(unreadable(&store, 1..=3) + unreadable(&store, 20..=21), 0);
        assert_eq!(store.stats().corrupt, [], "seed {seed}");
    }
}

/// A store of many sealed segments, half of them dead.
fn half_dead(place: &Place) -> SegmentLog {
    let store = place.open();
    let mut before = Vec::new();
    for n in 1..=120 {
        let mut versions = round(n);
        if n > 60 {
            let old: &Vec<_> = &before[n as usize - 61];
            for (version, replaces) in versions.iter_mut().zip(old) {
                (version.key, version.replaces) = (format!("\0key{:03}", n - 60).into_bytes(), *replaces);
            }
        }
        before.push(commit(&store, &versions).unwrap());
        store.sync().unwrap();
    }
    store.close().unwrap();
    store
}

#[test]
fn a_block_that_cannot_be_read_stops_neither_compaction_nor_scans() {
    let place = Place::fault(8);
    let store = half_dead(&place);
    let (path, at) = find(&place, b"key001");
    assert!(disk(&place).break_page(&path, at));
    let scanned = |store: &dyn KvStore| {
        let mut seen = 0;
        let visit = &mut |_, _: &settee_storage::Record<'_>, _| {
            seen += 1;
            true
        };
        store.scan(None, Seqno(0), true, visit).map(|()| seen)
    };
    assert!(scanned(&store).unwrap() > 120 * 4 - 12);
    let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
    let before = store.stats();
    for _ in 0..40 {
        store.compact(&Amnesia, budget).unwrap();
    }
    let after = store.stats();
    assert!(after.bytes_used < before.bytes_used * 3 / 4, "{} of {}", after.bytes_used, before.bytes_used);
    assert!(after.corrupt_count > 0);
    let store = again(&place, store, 0);
    assert!(scanned(&store).unwrap() > 60 * 4 - 12);
    assert!(store.stats().corrupt_count > 0);
}

#[test]
fn zeros_where_records_were_are_damage_also_at_a_segments_end() {
    let place = Place::fault(9);
    let store = half_dead(&place);
    let name = place.fs.list(&place.dir).unwrap().into_iter().filter(|name| name.ends_with(".seg")).min();
    let path = place.dir.join(name.unwrap());
    let bytes = disk(&place).contents(&path).unwrap();
    // From where a record begins up to where the data ends, which the trailer tells: no frame is cut.
    let trailer = &bytes[bytes.len() - 96..];
    let data_end = trailer[16..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).unwrap();
    let before = &bytes[..data_end as usize - 6000];
    let from = before.windows(4).rposition(|window| window == b"\0key").unwrap() as u64 - 64;
    let zeros = vec![0; (data_end - from) as usize];
    place.fs.open(&path).unwrap().write_at(&zeros, from).unwrap();
    let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
    for _ in 0..40 {
        store.compact(&Amnesia, budget).unwrap();
    }
    assert!(place.fs.open(&path).is_ok(), "nobody knows what was lost: the segment stays");
    assert!(store.stats().corrupt_count > 0);
}

#[test]
fn a_block_that_cannot_be_read_costs_no_open() {
    for what in ["manifest", "header", "trailer", "footer", "data"] {
        let place = Place::fault(10);
        let mut store = half_dead(&place);
        place.kill(store);
        let (path, at) = find(&place, &[70; 400]);
        let length = disk(&place).contents(&path).unwrap().len() as u64;
        let (path, at) = match what {
            "manifest" => (place.dir.join("manifest"), 0),
            "header" => (path, 0),
            "trailer" => (path, length - 1),
            "footer" => (path, length - 2000),
            _ => (path, at),
        };
        assert!(disk(&place).break_page(&path, at));
        for number in 0..2 {
            store = place.open();
            let damaged = (1..=60)
                .flat_map(|n| (0..4).map(move |vb| (n, vb)))
                .filter(|(n, vb)| match lookup(&store, *vb, &format!("key{n:03}")) {
                    Ok(found) => {
                        assert_eq!(found.expect("not absent").meta.seqno, Seqno(n + 60));
                        false
                    }
                    Err(StoreError::Corrupt { .. }) => true,
                    Err(error) => panic!("{what}: {error}"),
                })
                .count();
            assert!(damaged <= 12, "{what}: {damaged}");
            assert!(number > 0 || store.stats().corrupt_count > 0 || what == "manifest", "{what}");
            place.kill(store);
        }
        disk(&place).heal(&path);
        store = place.open();
        for n in 1..=60 {
            let found = lookup(&store, 1, &format!("key{n:03}")).unwrap().expect("healed");
            assert_eq!(found.meta.seqno, Seqno(n + 60), "{what}");
        }
        assert!(lookup(&store, 1, "never").unwrap().is_none(), "{what}: absence can be proved again");
    }
}

#[test]
fn a_block_that_cannot_be_read_in_the_unproven_tail_is_damage_until_it_heals() {
    let place = Place::fault(11);
    let mut store = place.open();
    write(&store, 1..=3);
    (4..=20).for_each(|n| drop(commit(&store, &round(n)).unwrap()));
    place.kill(store);
    let (path, at) = find(&place, b"key010");
    assert!(disk(&place).break_page(&path, at));
    for _ in 0..2 {
        store = place.open();
        assert_eq!(unreadable(&store, 1..=3), 0);
        assert!(is_corrupt(lookup(&store, 0, "key010")) && store.stats().corrupt_count > 0);
        place.kill(store);
    }
    disk(&place).heal(&path);
    store = place.open();
    assert_eq!(unreadable(&store, 1..=9), 0);
    assert!(lookup(&store, 0, "never").unwrap().is_none());
}

#[test]
fn no_space_for_a_manifest_is_no_failure_of_the_disk() {
    for call in [FsCall::Create, FsCall::Allocate, FsCall::Rename] {
        let place = Place::fault(12);
        let store = place.open();
        write(&store, 1..=3);
        disk(&place).fail_calls(call, Some(NO_SPACE));
        let refused = store.reset_vbs(&[(VbId(1), state(0))]);
        if call != FsCall::Allocate {
            assert!(matches!(refused, Err(StoreError::NoSpace)), "{call:?}: {refused:?}");
            assert_eq!(unreadable(&store, 1..=3), 0);
        }
        disk(&place).fail_calls(call, None);
        assert!(!store.stats().poisoned, "{call:?}");
        write(&store, 4..=5);
        assert_eq!(unreadable(&store, 4..=5), 0);
        let store = again(&place, store, 1);
        assert_eq!(unreadable(&store, 4..=5), 0);
    }
}

#[test]
fn a_commit_that_cannot_begin_a_segment_poisons_the_shard() {
    for call in [FsCall::Create, FsCall::Allocate] {
        let place = Place::fault(14);
        let store = place.open();
        disk(&place).fail_calls(call, Some(EIO));
        assert!(matches!(commit(&store, &round(1)), Err(StoreError::Io { .. })), "{call:?}");
        disk(&place).fail_calls(call, None);
        assert!(store.stats().poisoned, "{call:?}: else the next sync says that all is well");
        assert!(matches!(store.sync(), Err(StoreError::Poisoned)), "{call:?}");
    }
}

#[test]
fn prepares_salvaged_without_their_commit_frame_stay_open() {
    let place = Place::fault(13);
    let store = place.open();
    let level = base::bucket::DurabilityLevel::Majority;
    let mut prepare = document(2, "prepared", 9, "the value of a prepare");
    prepare.meta.kind = RecordKind::Prepare(level);
    commit(&store, &[document(2, "k", 7, "v")]).unwrap();
    store.sync().unwrap();
    let marks = Marks { prepared: Seqno(9), completed: Seqno(0), visible: Seqno(8) };
    commit_marked(&store, &[document(2, "l", 8, "v"), prepare.clone()], marks);
    store.sync().unwrap();
    place.kill(store);
    let (path, at) = find(&place, &prepare.value);
    let frame = (at + prepare.value.len() as u64).next_multiple_of(16);
    assert!(disk(&place).flip_bit(&path, frame + 33, 1));
    let store = place.open();
    let (_, found) = store.vb_states().into_iter().find(|(vb, _)| *vb == VbId(2)).unwrap();
    assert_eq!((found.high_seqno, found.marks.prepared, found.marks.visible), (Seqno(9), Seqno(9), Seqno(8)));
    let batch = VbBatch { vb: VbId(2), state: &found, records: &[] };
    store.commit(&[batch], &mut Vec::new()).unwrap();
    store.sync().unwrap();
}

/// What compaction has written is damaged before its places are told to memory.
#[test]
fn damage_in_what_compaction_has_just_written_is_remembered() {
    let (place, hooked) = Place::hooked(15);
    let store = half_dead(&place);
    let newest =
        |place: &Place| place.fs.list(&place.dir).unwrap().into_iter().filter(|n| n.ends_with(".seg")).max();
    let before = newest(&place).unwrap();
    let (disk, dir) = (disk(&place).clone(), place.dir.clone());
    let hits = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    hooked.set({
        let hits = hits.clone();
        move |asked, name| {
            let is_output = name.ends_with(".seg") && *name > *before;
            if is_output
                && matches!(asked, crate::hooked::Asked::Read(4096, _))
                && hits.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0
            {
                assert!(disk.flip_bit(&dir.join(name), 4096 + 65, 2), "in its first key");
            }
            Ok(())
        }
    });
    let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
    store.compact(&Amnesia, budget).unwrap();
    hooked.set(|_, _| Ok(()));
    assert!(hits.load(std::sync::atomic::Ordering::Relaxed) > 0);
    store.put_states(&[]).unwrap();
    place.kill(store);
    let store = place.open();
    assert!(store.stats().corrupt_count > 0, "the manifest remembers it");
    for n in 1..=60 {
        let found = lookup(&store, 1, &format!("key{n:03}")).unwrap().expect("the inputs stay");
        assert_eq!(found.meta.seqno, Seqno(n + 60));
    }
}

/// The manifest that was to tell of it found no space. The next one does, though nothing else is new.
#[test]
fn damage_that_was_seen_on_a_full_disk_is_written_down_once_there_is_room() {
    let place = Place::fault(16);
    let store = half_dead(&place);
    let (path, at) = find(&place, b"key001");
    assert!(disk(&place).flip_bit(&path, at, 1));
    let backfill = store.backfill(VbId(0), Seqno(0), BackfillOptions::default()).unwrap();
    assert!(is_corrupt(drain(backfill, 0, 1 << 20)));
    disk(&place).set_capacity(Some(disk(&place).used_bytes()));
    let before = store.stats().manifest_writes;
    store.sync().unwrap();
    assert_eq!(store.stats().manifest_writes, before);
    disk(&place).set_capacity(None);
    store.sync().unwrap();
    assert_eq!(store.stats().manifest_writes, before + 1);
    place.kill(store);
    assert!(place.open().stats().corrupt_count > 0);
}

/// A call fails while a store is opened, with what may say that the disk is damaged there. It may cost that open, or what lies
/// there; but never is anything absent.
#[test]
fn an_io_error_while_a_store_is_opened_makes_nothing_absent() {
    let (mut failed, mut opened) = (0, 0);
    for (is_clean, call) in [true, false]
        .into_iter()
        .flat_map(|c| [FsCall::Open, FsCall::Length, FsCall::Read].map(|call| (c, call)))
    {
        for after in 0..40 {
            let place = Place::fault(after);
            let store = place.open();
            write(&store, 1..=60);
            if is_clean {
                store.close().unwrap();
            }
            place.kill(store);
            let before = disk(&place).counts().failed_calls.get(&call).copied();
            disk(&place).fail_one_call(call, after, EIO);
            let open = place.open_with(crate::support::options());
            let hit = disk(&place).counts().failed_calls.get(&call).copied() != before;
            failed += u32::from(open.is_err());
            opened += u32::from(open.is_ok() && hit);
            if let Ok(store) = &open {
                unreadable(store, 1..=60);
            }
            disk(&place).kill();
            drop(open);
            for _ in 0..2 {
                let store = place.open();
                let count = unreadable(&store, 1..=60);
                // Of a clean store every file is final, and is read again once it can be.
                assert!(count == 0 || !is_clean, "{call:?} {after}: {count}");
                place.kill(store);
            }
        }
    }
    assert!(opened > 20, "{failed} opens failed, {opened} did not");
}

#[test]
fn damage_that_a_read_finds_is_remembered() {
    let place = Place::fault(17);
    let store = half_dead(&place);
    let (path, at) = find(&place, &[70; 400]);
    assert!(disk(&place).flip_bit(&path, at, 1));
    assert!((0..4).any(|vb| is_corrupt(lookup(&store, vb, "key010"))));
    store.sync().unwrap();
    place.kill(store);
    assert!(place.open().stats().corrupt_count > 0);
}

#[test]
fn of_files_that_cannot_be_read_no_more_are_kept_than_are_promised() {
    let place = Place::fault(18);
    let store = place.open();
    write(&store, 1..=3);
    place.kill(store);
    for number in 100..140 {
        let file = place.fs.create(&place.dir.join(format!("{number:08}.seg"))).unwrap();
        file.write_at(&[7; 9000], 0).unwrap();
    }
    let store = place.open();
    assert_eq!(unreadable(&store, 1..=3), 0);
    let names = place.fs.list(&place.dir).unwrap();
    let mut aside: Vec<_> = names.into_iter().filter(|name| name.ends_with(".unreadable")).collect();
    aside.sort();
    assert_eq!(aside.len(), 16);
    assert_eq!(aside[0], "00000124.seg.unreadable", "the newest");
}
