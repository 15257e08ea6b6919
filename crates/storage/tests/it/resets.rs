//! Resets beside compaction.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use base::{Seqno, VbId};
use settee_storage::{BackfillOptions, CompactBudget, DiskClock, KvStore, Locator, Record, StoreError};

use crate::{
    hooked::Asked,
    support::{Amnesia, Place, Version, commit, document, drain, lookup, options, same, state},
};

/// A disk's clock that lets others run while the thread that resets waits for the disk. It then holds them at the disk until
/// the reset is over.
struct Interlude {
    nanos: AtomicU64,
    resetter: ThreadId,
    is_resetting: AtomicBool,
    holds_others: AtomicBool,
    begin: Sender<()>,
    over: Mutex<Receiver<()>>,
}

impl DiskClock for Interlude {
    fn nanos(&self) -> u64 {
        self.nanos.load(Ordering::Relaxed)
    }

    fn sleep(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        if thread::current().id() != self.resetter {
            if self.holds_others.load(Ordering::Relaxed) {
                // Later calls find the channel closed.
                let _ = self.over.lock().unwrap().recv();
            }
        } else if self.is_resetting.swap(false, Ordering::Relaxed) {
            self.begin.send(()).unwrap();
            // Time for a compaction to judge, if it may; when it may not nothing tells.
            thread::sleep(Duration::from_millis(200));
            self.holds_others.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_reset_that_is_taken_back_was_never_seen_by_compaction() {
    let ((begin, begun), (end, over)) = (channel(), channel());
    let clock = Arc::new(Interlude {
        nanos: AtomicU64::new(0),
        resetter: thread::current().id(),
        is_resetting: AtomicBool::new(false),
        holds_others: AtomicBool::new(false),
        begin,
        over: Mutex::new(over),
    });
    let place = Place::with_clock(11, clock.clone());
    let fault = place.fault.clone().unwrap();
    let all: Vec<Version> = (0..40)
        .flat_map(|n| (0..8).map(move |vb| document(vb, &format!("k{n}"), n, vec![n as u8; 900])))
        .collect();
    let assert_holds_all = |store: &dyn KvStore| {
        for version in &all {
            assert!(same(&store.lookup(version.vb, &version.key).unwrap().unwrap(), version));
        }
    };
    {
        let store = place.open();
        all.chunks(8).for_each(|round| drop(commit(&store, round).unwrap()));
        store.close().unwrap();
        store.sync().unwrap();
        // From here on compaction looks for what resets have left.
        store.reset_vbs(&[(VbId(9), state(0))]).unwrap();
        let vbs: Vec<_> = (0..8).map(|vb| (VbId(vb), state(0))).collect();
        thread::scope(|scope| {
            let store = &store;
            let compactor = scope.spawn(move || {
                begun.recv().unwrap();
                while store.compact(&Amnesia, CompactBudget::default()).unwrap().more {}
            });
            fault.set_capacity(Some(fault.used_bytes()));
            clock.is_resetting.store(true, Ordering::Relaxed);
            assert!(matches!(store.reset_vbs(&vbs), Err(StoreError::NoSpace)));
            fault.set_capacity(None);
            drop(end);
            compactor.join().unwrap();
        });
        assert_holds_all(&store);
    }
    assert_holds_all(&place.open());
}

/// The reset of a vBucket finds no space for its manifest. A thread that read the vBucket meanwhile, to load it into memory say, has
/// found everything that is still there.
#[test]
fn a_reset_that_finds_no_space_was_never_seen_by_a_reader() {
    let (place, disk) = Place::hooked(3);
    let store = Arc::new(place.open_with(options()).unwrap());
    let all: Vec<Version> = (1..=200).map(|n| document(1, &format!("k{n}"), n, vec![n as u8; 900])).collect();
    let mut places = Vec::new();
    all.chunks(10).for_each(|chunk| places.extend(commit(&*store, chunk).unwrap()));
    store.sync().unwrap();
    let readings = Arc::new(AtomicU64::new(0));
    let read_all = {
        let (store, all, places) = (store.clone(), all.clone(), places.clone());
        move || {
            let mut scanned = 0;
            let visit = &mut |_: VbId, _: &Record<'_>, _: Locator| {
                scanned += 1;
                true
            };
            store.scan(Some(VbId(1)), Seqno(0), true, visit).unwrap();
            assert_eq!(scanned, all.len());
            for (version, &at) in all.iter().zip(&places) {
                assert!(same(&store.lookup(version.vb, &version.key).unwrap().unwrap(), version));
                assert!(same(&store.get_at(at).unwrap(), version));
            }
            let backfill = store.backfill(VbId(1), Seqno(0), BackfillOptions::default()).unwrap();
            assert_eq!(drain(backfill, 1, 1 << 20).unwrap().len(), all.len());
        }
    };
    disk.set({
        let (read_all, readings) = (read_all.clone(), readings.clone());
        move |asked, name| {
            if asked != Asked::Create || !name.starts_with("manifest") {
                return Ok(());
            }
            read_all();
            readings.fetch_add(1, Ordering::Relaxed);
            Err(std::io::ErrorKind::StorageFull.into())
        }
    });
    assert!(matches!(store.reset_vbs(&[(VbId(1), state(0))]), Err(StoreError::NoSpace)));
    assert!(readings.load(Ordering::Relaxed) > 0);
    disk.set(|_, _| Ok(()));
    read_all();
    store.reset_vbs(&[(VbId(1), state(0))]).unwrap();
    assert!(lookup(&*store, 1, "k1").unwrap().is_none());
    assert!(matches!(store.get_at(places[0]), Err(StoreError::Stale)));
}
