//! Moments at which a crash or a full disk is most awkward: each test is one that once lost something.

use base::{Seqno, VbId};
use settee_storage::{FaultFs, FsCall, KvStore, Options, StoreError};

use crate::support::{Place, commit, document, lookup, options, same, state, tombstone};

fn disk(place: &Place) -> &FaultFs {
    place.fault.as_ref().unwrap()
}

fn high_seqno(store: &dyn KvStore, vb: u16) -> Seqno {
    store.vb_states().into_iter().find(|known| known.0 == VbId(vb)).unwrap().1.high_seqno
}

/// The flusher writes a vBucket's state alone (to raise a CAS ceiling) as far as it knows it to be on disk. When a
/// commit failed half way, more is there.
#[test]
fn a_state_written_alone_does_not_take_seqnos_back() {
    let place = Place::fault(1);
    let store = place.open();
    commit(&store, &[document(1, "k", 20, "kept, though the caller was told that the batch failed")])
        .unwrap();
    store.put_states(&[(VbId(1), state(10))]).unwrap();
    assert_eq!(high_seqno(&store, 1), Seqno(20));
    place.kill(store);
    let store = place.open();
    assert_eq!(lookup(&store, 1, "k").unwrap().unwrap().meta.seqno, Seqno(20));
    assert_eq!(high_seqno(&store, 1), Seqno(20), "the next mutation must not get a seqno that is taken");
    store.reset_vbs(&[(VbId(1), state(0))]).unwrap();
    assert_eq!(high_seqno(&store, 1), Seqno(0), "a new history begins anew");
}

/// A segment was begun and its first batch found no space; the sync mark for the segment before is its first frame.
#[test]
fn what_is_synced_behind_an_abandoned_batch_survives_a_power_failure() {
    for seed in 0..24 {
        let place = Place::fault(seed);
        let store = place.open();
        commit(&store, &[document(1, "before", 1, "v")]).unwrap();
        disk(&place).set_capacity(Some(disk(&place).used_bytes()));
        let large = document(1, "large", 2, vec![7; 62 << 10]);
        assert!(matches!(commit(&store, std::slice::from_ref(&large)), Err(StoreError::NoSpace)));
        store.sync().unwrap();
        store.put_states(&[(VbId(1), state(1))]).unwrap();
        disk(&place).set_capacity(None);
        let acknowledged = document(1, "acknowledged", 2, "v");
        commit(&store, std::slice::from_ref(&acknowledged)).unwrap();
        store.sync().unwrap();
        disk(&place).crash();
        drop(store);
        let store = place.open();
        let found = lookup(&store, 1, "acknowledged").unwrap();
        assert!(found.is_some_and(|found| same(&found, &acknowledged)), "seed {seed}");
        assert_eq!(high_seqno(&store, 1), Seqno(2));
    }
}

/// The reserve outlives the process that set it aside: without it a bucket on a full disk could not even be opened.
#[test]
fn a_store_that_comes_back_to_a_full_disk_finds_its_reserve() {
    let place = Place::fault(2);
    let with_reserve = Options { reserve_bytes: 300_000, ..options() };
    let store = place.open_with(with_reserve.clone()).unwrap();
    disk(&place).set_capacity(Some(1_000_000));
    let mut seqno = 0;
    let refused = loop {
        seqno += 1;
        let version = document(1, &format!("k{seqno}"), seqno, vec![seqno as u8; 8000]);
        if let Err(error) = commit(&store, &[version]) {
            break error;
        }
    };
    assert!(matches!(refused, StoreError::NoSpace));
    store.sync().unwrap();
    assert_eq!(store.stats().bytes_on_disk / 300_000, 3, "the reserve is held");
    place.kill(store);
    disk(&place).set_capacity(Some(disk(&place).used_bytes()));
    let store = place.open_with(with_reserve).unwrap();
    commit(&store, &[tombstone(1, "k1", seqno, 5)]).expect("deletes may use the reserve");
    store.put_states(&[(VbId(1), state(seqno))]).expect("and so may metadata");
    let refused = commit(&store, &[document(1, "more", seqno + 1, "v")]);
    assert!(matches!(refused, Err(StoreError::NoSpace)), "documents may not");
    disk(&place).set_capacity(None);
    commit(&store, &[document(1, "more", seqno + 1, "v")]).expect("the disk has healed");
}

/// The footer of a segment full of small documents can be larger than the reserve.
#[test]
fn deletes_proceed_when_not_even_a_footer_fits() {
    for step in 0..20 {
        let place = Place::fault(step);
        let with_reserve = Options {
            reserve_bytes: 12_000,
            segment_bytes: 256 << 10,
            segment_bytes_min: 256 << 10,
            ..options()
        };
        let store = place.open_with(with_reserve.clone()).unwrap();
        disk(&place).set_capacity(Some(300_000 + 15_000 * step));
        let mut seqno = 0;
        let mut next = || {
            seqno += 1;
            document(1, &format!("k{seqno}"), seqno, "")
        };
        while commit(&store, &(0..10).map(|_| next()).collect::<Vec<_>>()).is_ok() {}
        store.sync().unwrap();
        for n in 1..=15 {
            commit(&store, &[tombstone(1, &format!("k{n}"), seqno + n, 5)])
                .unwrap_or_else(|error| panic!("step {step}, delete {n}: {error}"));
        }
        store.sync().unwrap();
        place.kill(store);
        disk(&place).set_capacity(None);
        let store = place.open_with(with_reserve).unwrap();
        assert!(lookup(&store, 1, "k1").unwrap().unwrap().meta.kind.is_tombstone());
        assert_eq!(lookup(&store, 1, "k16").unwrap().unwrap().meta.seqno, Seqno(16));
        assert_eq!(store.stats().corrupt, []);
    }
}

/// A new segment is synced for the first time and the disk has no room for a manifest that lists it. The sync is acknowledged, and
/// then the segment, or what tells where it belongs, is lost.
#[test]
fn a_segment_that_was_first_synced_on_a_full_disk_is_missed_like_any_other() {
    for (seed, is_gone) in (0..12).map(|seed| (seed, seed % 3 == 2)) {
        let place = Place::fault(seed);
        let store = place.open();
        // Other segments before it, or none.
        let first = if seed % 2 == 0 { 40 } else { 1 };
        let version = |n: u64| document(1, &format!("k{n}"), n, vec![n as u8; 3000]);
        for n in 1..first {
            commit(&store, &[version(n)]).unwrap();
            store.sync().unwrap();
        }
        let mut last = first;
        while place.fs.list(&place.dir).unwrap().iter().filter(|name| name.ends_with(".seg")).count() < 4 {
            commit(&store, &[version(last)]).unwrap();
            last += 1;
        }
        disk(&place).set_capacity(Some(disk(&place).used_bytes()));
        store.sync().unwrap();
        disk(&place).crash();
        drop(store);
        disk(&place).set_capacity(None);
        let names = place.fs.list(&place.dir).unwrap();
        let path = place.dir.join(names.iter().filter(|name| name.ends_with(".seg")).max().unwrap());
        match is_gone {
            true => place.fs.remove(&path).unwrap(),
            false => assert!(disk(&place).zero_page(&path, 0)),
        }
        for number in 0..3 {
            let store = place.open();
            let found = |n| lookup(&store, 1, &format!("k{n}"));
            let unreadable = (1..last).filter(|&n| match found(n) {
                Ok(found) => !same(&found.expect("not absent"), &version(n)),
                Err(StoreError::Corrupt { .. }) => true,
                Err(error) => panic!("{error}"),
            });
            let unreadable = unreadable.count();
            assert_eq!(unreadable > 0, is_gone, "seed {seed}, open {number}: {unreadable}");
            assert!(store.stats().corrupt_count > 0, "seed {seed}, open {number}");
            place.kill(store);
            let names = place.fs.list(&place.dir).unwrap();
            assert!(!names.iter().any(|name| name.ends_with(".synced")), "now a manifest lists it");
        }
    }
}

#[test]
fn a_sync_is_not_acknowledged_where_nothing_can_tell_of_its_segment() {
    let place = Place::fault(3);
    let store = place.open();
    commit(&store, &[document(1, "k", 1, "v")]).unwrap();
    disk(&place).fail_calls(FsCall::Create, Some(libc::ENOSPC));
    for _ in 0..3 {
        assert!(matches!(store.sync(), Err(StoreError::NoSpace)));
    }
    disk(&place).fail_calls(FsCall::Create, None);
    store.sync().expect("there is room");
    assert!(!store.stats().poisoned);
    disk(&place).crash();
    drop(store);
    assert_eq!(lookup(&place.open(), 1, "k").unwrap().unwrap().value, b"v");
}

/// Only a full disk is a full disk: of any other failure an operator has to hear what it was.
#[test]
fn a_reserve_that_the_disk_fails_to_make_is_no_full_disk() {
    for call in [FsCall::Create, FsCall::Allocate] {
        let place = Place::fault(4);
        let with_reserve = Options { reserve_bytes: 300_000, ..options() };
        let store = place.open_with(with_reserve).unwrap();
        disk(&place).fail_calls(call, Some(libc::EIO));
        let refused = commit(&store, &[document(1, "k", 1, "v")]);
        assert!(matches!(&refused, Err(StoreError::Io { .. })), "{call:?}: {refused:?}");
        assert!(!store.stats().full && store.stats().poisoned, "{call:?}");
    }
}
