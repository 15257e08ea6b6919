//! One short life of a store, and everything that can go wrong in it, one after the other. The power fails at each change, and
//! again at each change of the recovery from that. Each single call fails once. The model ([`crate::model`]) has longer lives,
//! and tries all of this at random.

use std::collections::BTreeMap;

use base::VbId;
use settee_storage::{CompactBudget, FaultFs, FsCall, KvStore, Locator, RecordKind, SegmentLog, StoreError};

use crate::support::{Amnesia, Place, Version, commit, document, lookup, same, state, tombstone};

/// A vBucket that begins anew in the middle of that life.
const RESET_VB: u16 = 2;
/// Every other change needs a new segment.
const LARGE: usize = 40 << 10;

/// What has been promised so far.
#[derive(Default)]
struct Life {
    /// Every version that a commit was asked for.
    written: Vec<Version>,
    /// How many of them a sync had covered when it returned.
    synced: usize,
    /// So many had been written when the reset began, and when it had returned.
    reset: (Option<usize>, Option<usize>),
    places: BTreeMap<(VbId, Vec<u8>), Locator>,
}

fn disk(place: &Place) -> &FaultFs {
    place.fault.as_ref().unwrap()
}

impl Life {
    fn write(&mut self, store: &SegmentLog, versions: &[Version]) -> Result<(), StoreError> {
        let replaces = |v: &Version| self.places.get(&(v.vb, v.key.clone())).copied().unwrap_or_default();
        let versions: Vec<_> =
            versions.iter().map(|v| Version { replaces: replaces(v), ..v.clone() }).collect();
        self.written.extend(versions.iter().cloned());
        for (version, at) in versions.iter().zip(commit(store, &versions)?) {
            self.places.insert((version.vb, version.key.clone()), at);
        }
        Ok(())
    }

    fn sync(&mut self, store: &SegmentLog) -> Result<(), StoreError> {
        store.sync()?;
        self.synced = self.written.len();
        Ok(())
    }

    /// Ends with the first error.
    fn live(&mut self, store: &SegmentLog) -> Result<(), StoreError> {
        let large = |vb, key, seqno| document(vb, key, seqno, vec![seqno as u8; LARGE]);
        self.write(store, &[large(1, "a", 1), document(1, "b", 2, "first")])?;
        self.sync(store)?;
        self.write(store, &[document(RESET_VB, "x", 1, "goes"), document(RESET_VB, "y", 2, "goes")])?;
        self.write(store, &[large(1, "a", 3)])?;
        self.sync(store)?;
        store.put_states(&[(VbId(1), state(3))])?;
        self.reset.0 = Some(self.written.len());
        store.reset_vbs(&[(VbId(RESET_VB), state(0))])?;
        self.reset.1 = Some(self.written.len());
        self.places.retain(|(vb, _), _| *vb != VbId(RESET_VB));
        self.write(store, &[large(1, "b", 4), document(1, "c", 5, "deleted later")])?;
        self.sync(store)?;
        self.write(store, &[tombstone(1, "c", 6, 1_000), document(RESET_VB, "x", 1, "anew")])?;
        self.write(store, &[large(1, "a", 7)])?;
        store.close()?;
        self.synced = self.written.len();
        let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
        while store.compact(&Amnesia, budget)?.more {}
        self.write(store, &[large(1, "b", 8), document(1, "d", 9, "last")])?;
        self.sync(store)?;
        self.write(store, &[document(1, "e", 10, "not synced")])
    }

    /// Whether what is found keeps what was promised.
    fn check(&self, store: &SegmentLog, when: &str) {
        let mut keys: Vec<_> = self.written.iter().map(|v| (v.vb, &v.key)).collect();
        keys.sort_unstable();
        keys.dedup();
        for (vb, key) in keys {
            let name = String::from_utf8_lossy(&key[1..]);
            let found = lookup(store, vb.get(), &name).unwrap();
            let is_it = |v: &&(usize, &Version)| (v.1.vb, &v.1.key) == (vb, key);
            let versions: Vec<_> = self.written.iter().enumerate().collect();
            let of_key: Vec<_> = versions.iter().filter(is_it).collect();
            let begins = if vb == VbId(RESET_VB) { self.reset } else { (Some(0), Some(0)) };
            // The last one that was synced, unless a reset may have taken it away.
            let floor =
                of_key.iter().rfind(|(at, _)| *at < self.synced && begins.0.is_none_or(|begun| *at >= begun));
            let Some(found) = found else {
                let may_be_gone = |kind| kind == RecordKind::Deletion;
                assert!(floor.is_none_or(|(_, v)| may_be_gone(v.meta.kind)), "{when}: {vb} {name} is lost");
                continue;
            };
            let which = of_key.iter().rfind(|(_, version)| same(&found, version));
            let (at, _) = which.unwrap_or_else(|| panic!("{when}: {vb} {name} was never written like that"));
            assert!(floor.is_none_or(|floor| *at >= floor.0), "{when}: {vb} {name} is an old one");
            assert!(begins.1.is_none_or(|done| *at >= done), "{when}: {vb} {name} is back");
        }
    }

    /// Whether the store goes on as if nothing had been, through another power failure.
    fn go_on(place: &Place, store: SegmentLog, when: &str) {
        let next = document(3, "next", 1, when.as_bytes());
        commit(&store, std::slice::from_ref(&next)).unwrap();
        store.sync().unwrap();
        disk(place).crash();
        drop(store);
        let found = lookup(&place.open(), 3, "next").unwrap();
        assert!(found.is_some_and(|found| same(&found, &next)), "{when}: what came after is lost");
    }
}

/// Lives until the power fails at that change. Returns whether it did.
fn live_until(place: &Place, life: &mut Life, change: u64) -> bool {
    disk(place).die_after(change);
    let store = place.open_with(crate::support::options());
    if let Ok(store) = &store {
        let _ = life.live(store);
    }
    let has_died = disk(place).is_dead();
    disk(place).crash();
    has_died
}

#[test]
fn two_power_failures_one_of_them_in_recovery_lose_nothing_at_any_moment() {
    let (mut lives, mut recoveries) = (0, 0);
    for change in 0.. {
        let mut is_longer = false;
        for second in 0.. {
            let place = Place::fault(change * 1_000 + second);
            let mut life = Life::default();
            is_longer = live_until(&place, &mut life, change);
            disk(&place).die_after(second);
            drop(place.open_with(crate::support::options()));
            let has_died = disk(&place).is_dead();
            disk(&place).crash();
            let when = format!("change {change}, then {second}");
            let store = place.open();
            assert_eq!(store.stats().corrupt, [], "{when}: a crash is no corruption");
            life.check(&store, &when);
            Life::go_on(&place, store, &when);
            recoveries += 1;
            if !has_died {
                break;
            }
        }
        lives += 1;
        if !is_longer {
            break;
        }
    }
    assert!(lives > 40 && recoveries > 3 * lives, "{lives} lives, {recoveries} recoveries");
}

#[test]
fn an_error_of_any_single_call_loses_nothing() {
    let calls = [
        FsCall::Create,
        FsCall::Open,
        FsCall::Remove,
        FsCall::Rename,
        FsCall::SyncDir,
        FsCall::Allocate,
        FsCall::Truncate,
        FsCall::SyncData,
        FsCall::List,
        FsCall::Read,
        FsCall::Write,
        FsCall::Length,
    ];
    let mut hits = 0;
    for (call, errno) in calls.into_iter().flat_map(|call| [(call, libc::EIO), (call, libc::ENOSPC)]) {
        for after in 0.. {
            let place = Place::fault(after);
            let mut life = Life::default();
            disk(&place).fail_one_call(call, after, errno);
            let store = place.open_with(crate::support::options());
            if let Ok(store) = &store {
                let _ = life.live(store);
            }
            let has_failed = disk(&place).counts().failed_calls.contains_key(&call);
            if after % 2 == 0 {
                disk(&place).crash();
            } else {
                disk(&place).kill();
            }
            drop(store);
            let when = format!("{call:?} {after} fails with {errno}");
            let store = place.open();
            life.check(&store, &when);
            Life::go_on(&place, store, &when);
            if !has_failed {
                break;
            }
            hits += 1;
        }
    }
    assert!(hits > 100, "{hits} calls failed");
}
