//! One writer, one compactor and readers at once: readers never wait for a wrong answer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::channel,
    },
    thread,
    time::Duration,
};

use base::{Seqno, VbId};
use fastrand::Rng;
use settee_storage::{
    BackfillOptions, CompactBudget, KvStore, Liveness, Locator, Record, StoreError, Verdict,
};

use crate::{
    hooked::Asked,
    support::{Place, Version, commit, document, drain, lookup, options, same, state},
};

const KEYS: u64 = 300;
const ROUNDS: u64 = 1500;

/// Newest synced versions.
#[derive(Default)]
struct Memory(Mutex<HashMap<Vec<u8>, (Version, Locator)>>);

impl Liveness for Memory {
    fn verdict(&self, _: VbId, record: &Record<'_>, at: Locator) -> Verdict {
        match self.0.lock().unwrap().get(record.key) {
            Some((_, locator)) if *locator == at => Verdict::Live,
            Some(_) => Verdict::Dead,
            None => Verdict::Unknown,
        }
    }

    fn relocate(&self, _: VbId, record: &Record<'_>, from: Locator, to: Locator) -> bool {
        let mut known = self.0.lock().unwrap();
        let entry = known.get_mut(record.key).filter(|entry| entry.1 == from);
        entry.is_some_and(|entry| {
            entry.1 = to;
            true
        })
    }
}

/// Every version in the order in which they were committed.
type History = Mutex<Vec<Version>>;

/// Backfills show exactly what the history says of their end, and nothing that was synced before is missing.
fn backfill(store: &dyn KvStore, memory: &Memory, history: &History, done: &AtomicBool) -> u32 {
    let (mut rng, mut finished) = (Rng::with_seed(5), 0);
    while !done.load(Relaxed) {
        let vb = rng.u16(0..8);
        let synced =
            memory.0.lock().unwrap().values().map(|(version, _)| version.clone()).collect::<Vec<_>>();
        let synced = synced.iter().filter(|v| v.vb == VbId(vb)).map(|v| v.meta.seqno).max();
        let options = BackfillOptions { unordered: rng.bool(), ..BackfillOptions::default() };
        let opened = store.backfill(VbId(vb), Seqno(0), options).unwrap();
        let end = opened.end();
        assert!(synced.is_none_or(|seqno| seqno <= end));
        let mut found = drain(opened, vb, rng.usize(1..20_000)).unwrap();
        assert!(options.unordered || found.is_sorted_by_key(|version| version.meta.seqno));
        found.sort_by(|a, b| a.key.cmp(&b.key));
        let mut expected = std::collections::BTreeMap::new();
        for version in history.lock().unwrap().iter().filter(|v| v.vb == VbId(vb) && v.meta.seqno <= end) {
            expected.insert(version.key.clone(), Version { replaces: Locator::NONE, ..version.clone() });
        }
        assert!(found.into_iter().eq(expected.into_values()), "not the vBucket as of {end}");
        finished += 1;
    }
    finished
}

fn write(store: &dyn KvStore, memory: &Memory, history: &History, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut seqnos = [0u64; 8];
    let mut unsynced: HashMap<Vec<u8>, (Version, Locator)> = HashMap::new();
    for _ in 0..ROUNDS {
        let mut picked: Vec<u64> = (0..12).map(|_| rng.u64(0..KEYS)).collect();
        picked.sort_unstable();
        picked.dedup();
        let versions: Vec<Version> = picked
            .iter()
            .map(|n| {
                let seqno = &mut seqnos[(n % 8) as usize];
                *seqno += 1;
                let mut version = document((n % 8) as u16, &format!("k{n}"), *seqno, vec![*seqno as u8; 500]);
                let known = memory.0.lock().unwrap();
                version.replaces = known.get(&version.key).map_or(Locator::NONE, |entry| entry.1);
                version
            })
            .collect();
        history.lock().unwrap().extend(versions.iter().cloned());
        let locators = commit(store, &versions).unwrap();
        for (version, locator) in versions.into_iter().zip(locators) {
            assert!(same(&store.get_at(locator).unwrap(), &version), "readable at once");
            unsynced.insert(version.key.clone(), (version, locator));
        }
        if rng.u32(0..4) == 0 {
            store.sync().unwrap();
            memory.0.lock().unwrap().extend(unsynced.drain());
        }
    }
    store.sync().unwrap();
    memory.0.lock().unwrap().extend(unsynced.drain());
}

fn read(store: &dyn KvStore, memory: &Memory, seed: u64, done: &AtomicBool) {
    let mut rng = Rng::with_seed(seed);
    while !done.load(Relaxed) {
        let n = rng.u64(0..KEYS);
        let name = format!("k{n}");
        let key = [b"\0", name.as_bytes()].concat();
        let Some((version, locator)) = memory.0.lock().unwrap().get(&key).cloned() else { continue };
        match store.get_at(locator) {
            Ok(found) => assert!(same(&found, &version)),
            Err(StoreError::Stale) => {}
            Err(error) => panic!("{error}"),
        }
        let found = lookup(store, (n % 8) as u16, &name).unwrap().expect("never absent");
        assert!(found.meta.seqno >= version.meta.seqno, "an older version than the synced one");
    }
}

#[test]
fn readers_writer_and_compactor_do_not_disturb_each_other() {
    let place = Place::real();
    let store = place.open();
    let (memory, history, done) = (Memory::default(), History::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let (store, memory, history, done) = (&store, &memory, &history, &done);
        let readers: Vec<_> = (0..2).map(|n| scope.spawn(move || read(store, memory, n, done))).collect();
        let compactor = scope.spawn(move || {
            let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
            let mut removed = 0;
            while !done.load(Relaxed) {
                removed += store.compact(memory, budget).unwrap().segments_removed;
                thread::yield_now();
            }
            removed
        });
        let backfills = scope.spawn(move || backfill(store, memory, history, done));
        let writer = scope.spawn(move || write(store, memory, history, 77));
        let written = writer.join();
        done.store(true, Relaxed);
        written.unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(backfills.join().unwrap() > 0);
        assert!(compactor.join().unwrap() > 0, "there was something to compact");
    });
    assert_eq!(store.stats().corrupt, []);
    place.kill(store);
    let store = place.open();
    for (version, _) in memory.0.lock().unwrap().values() {
        let found = lookup(&store, version.vb.get(), str::from_utf8(&version.key[1..]).unwrap());
        assert!(same(&found.unwrap().unwrap(), version));
    }
}

/// A footer is damaged, so the whole segment is read to index it. Nobody who commits or syncs waits for that.
#[test]
fn commits_do_not_wait_while_an_index_is_made_anew() {
    let (place, disk) = Place::hooked(8);
    let store = Arc::new(place.open_with(options()).unwrap());
    for number in 1..=60 {
        commit(&*store, &[document(1, &format!("k{number}"), number, vec![7; 2_000])]).unwrap();
    }
    store.close().unwrap();
    let name = "00000003.seg";
    let file = place.fs.open(&place.dir.join(name)).unwrap();
    let summaries_end = file.length().unwrap() - 96;
    file.write_at(&[0xff; 8], summaries_end - 8).unwrap();
    let (is_tried, is_over) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    disk.set({
        let (store, is_over) = (store.clone(), is_over.clone());
        move |asked, of| {
            // The first read of its data, which lies before all footers.
            let is_data = of == name && matches!(asked, Asked::Read(offset, _) if offset < 32_000);
            if is_data && !is_tried.swap(true, Relaxed) {
                let ((done, committed), store) = (channel(), store.clone());
                thread::spawn(move || {
                    commit(&*store, &[document(2, "other", 1, "v")]).unwrap();
                    store.put_states(&[(VbId(2), state(1))]).unwrap();
                    // Nobody listens to one that comes too late.
                    let _ = done.send(());
                });
                is_over.store(committed.recv_timeout(Duration::from_secs(20)).is_ok(), Relaxed);
            }
            Ok(())
        }
    });
    let mut found = 0;
    let visit = &mut |_: VbId, _: &Record<'_>, _: Locator| {
        found += 1;
        true
    };
    store.scan(Some(VbId(1)), Seqno(0), true, visit).unwrap();
    disk.set(|_, _| Ok(()));
    assert_eq!((found, store.stats().corrupt_count), (60, 1), "the data is as it was");
    assert!(is_over.load(Relaxed), "a commit waited for the segment to be read");
}
