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

use base::VbId;
use settee_storage::{CompactBudget, DiskClock, KvStore, StoreError};

use crate::support::{Amnesia, Place, Version, commit, document, same, state};

/// A disk's clock that lets others run while the thread that resets waits for the disk, and then holds them at the disk until
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
            let hash = base::hash::key_hash(&version.key);
            assert!(same(&store.lookup(version.vb, hash, &version.key).unwrap().unwrap(), version));
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
