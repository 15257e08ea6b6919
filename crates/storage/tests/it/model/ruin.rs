//! The end of a history: what was synced is damaged, in one way or another, and the store is opened again and again.
//!
//! What was hit may be unreadable, for ever. It is never absent, nothing else is concerned, the store goes on, and what is
//! written now is safe. (Where a record is damaged beyond recognition of its key, an older version may show.)

use std::path::PathBuf;

use super::{Contents, Run};
use base::{Seqno, VbId};
use settee_storage::{CompactBudget, KvStore, StoreError};

/// How a disk loses things.
#[derive(Clone, Copy, Debug)]
pub(super) enum Harm {
    Flip,
    Zeros,
    Unreadable,
}

impl Run {
    /// See the module.
    pub(super) fn ruin(&mut self) {
        self.disk().set_capacity(None);
        self.backfills.clear();
        self.sync();
        if self.disk().is_dead() || self.store().stats().poisoned {
            return;
        }
        // What the next commit's frame tells to be synced is proved to be: damage there is no torn end.
        let proved = self.segments();
        self.commit();
        self.sync();
        if self.disk().is_dead() || self.store().stats().poisoned {
            return;
        }
        assert!(self.unsynced.is_empty());
        let count = self.faults.usize(1..4);
        let expected = self.synced.clone();
        if self.late.bool() {
            self.commit();
            if self.disk().is_dead() || self.store().stats().poisoned {
                return;
            }
            self.occurred.harmed_unsynced += 1;
        }
        // What is not synced may be there.
        let newest = self.newest();
        let harms: Vec<_> = match self.late.u32(0..4) {
            0 => self.harm_beside().into_iter().collect(),
            _ => (0..count).filter_map(|_| self.harm(&proved)).collect(),
        };
        if harms.is_empty() {
            return;
        }
        let mut anew = Contents::default();
        for number in 0..4 {
            let store = self.store.take();
            match self.faults.bool() {
                true => self.disk().crash(),
                false => self.disk().kill(),
            }
            drop(store);
            let options = self.options();
            let opened = self.place.open_with(options);
            self.store =
                Some(opened.unwrap_or_else(|error| panic!("open {number} after {harms:?}: {error}")));
            self.check_ruin((&expected, &newest), &anew, &harms);
            self.go_on(number, &mut anew);
            self.check_ruin((&expected, &newest), &anew, &harms);
        }
    }

    /// Segment files and where what was written to them ends.
    fn segments(&self) -> Vec<(PathBuf, u64)> {
        let names = self.place.fs.list(&self.place.dir).unwrap();
        let used = |path: PathBuf| {
            let content = self.disk().contents(&path)?;
            let end = content.iter().rposition(|&byte| byte != 0)? as u64;
            Some((path, end))
        };
        let segments = names.iter().filter(|name| name.ends_with(".seg"));
        segments.filter_map(|name| used(self.place.dir.join(name))).collect()
    }

    fn harm(&mut self, proved: &[(PathBuf, u64)]) -> Option<(Harm, PathBuf, u64)> {
        let (path, end) = self.faults.choice(proved)?.clone();
        let harm = [Harm::Flip, Harm::Flip, Harm::Zeros, Harm::Unreadable][self.faults.usize(0..4)];
        let at = self.faults.u64(0..end);
        let bit = if matches!(harm, Harm::Flip) { self.faults.u8(0..8) } else { 0 };
        // The page may be shared with what was written later.
        let is_shared = !matches!(harm, Harm::Flip) && (at / 4096 + 1) * 4096 > end;
        if is_shared { None } else { self.inflict(harm, path, at, bit) }
    }

    /// Does it, if there is such a place.
    pub(super) fn inflict(
        &mut self,
        harm: Harm,
        path: PathBuf,
        at: u64,
        bit: u8,
    ) -> Option<(Harm, PathBuf, u64)> {
        let disk = self.disk();
        let is_done = match harm {
            Harm::Flip => disk.flip_bit(&path, at, bit),
            Harm::Zeros => disk.zero_page(&path, at),
            Harm::Unreadable => disk.break_page(&path, at),
        };
        let kind = match path.extension().and_then(|extension| extension.to_str()) {
            Some("seg") => "segment",
            Some(other) => other,
            None => "manifest",
        };
        let kind = if kind == "copy" { "manifest.copy" } else { kind };
        *self.occurred.harms.entry(format!("{harm:?} {kind}")).or_default() += u64::from(is_done);
        is_done.then_some((harm, path, at))
    }

    fn check_ruin(
        &self,
        (expected, newest): (&Contents, &Contents),
        anew: &Contents,
        harms: &[(Harm, PathBuf, u64)],
    ) {
        let keys = expected.keys.iter().chain(&anew.keys);
        for (name @ (vb, key), version) in keys {
            let last = newest.keys.get(name).map_or(version.meta.seqno, |newest| newest.meta.seqno);
            match self.store().lookup(*vb, key) {
                Ok(Some(found)) => assert!(found.meta.seqno <= last, "{harms:?}: {found:?}"),
                Ok(None) => {
                    let is_tombstone = version.meta.kind.is_tombstone();
                    assert!(is_tombstone, "{harms:?}: absent {version:?}");
                }
                Err(StoreError::Corrupt { .. }) => {}
                Err(error) => panic!("{harms:?}: {error}"),
            }
        }
        for ((vb, key), version) in &anew.keys {
            let found = self.store().lookup(*vb, key).unwrap().unwrap();
            assert_eq!(found.meta, version.meta, "{harms:?}");
        }
        if let [(Harm::Flip, ..)] = harms {
            let states = self.store().vb_states();
            for (vb, high) in &expected.high {
                let found = states.iter().find(|(of, _)| of == vb).map_or(Seqno(0), |(_, s)| s.high_seqno);
                assert!(found >= *high, "{harms:?}: {vb} {found} {high}");
            }
        }
        self.store().scan(None, Seqno(0), true, &mut |_, _, _| true).unwrap();
    }

    /// Life goes on.
    fn go_on(&mut self, number: u32, anew: &mut Contents) {
        let vb = VbId(self.faults.u16(0..super::VBUCKETS));
        let high = self.store().vb_states().into_iter().find(|(of, _)| *of == vb);
        let seqno = high.map_or(0, |(_, state)| state.high_seqno.get()) + 1;
        let version = super::document(vb.get(), &format!("anew{number}"), seqno, vec![1; 300]);
        super::commit(self.store(), std::slice::from_ref(&version)).unwrap();
        self.store().sync().unwrap();
        anew.apply(&super::Change::Part(vec![version]));
        let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
        for _ in 0..self.faults.u32(0..4) {
            self.store().compact(&crate::support::Amnesia, budget).unwrap();
        }
    }
}
