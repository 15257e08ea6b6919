//! Faults that came to the model last, drawn from a stream of their own: histories of older seeds go on as they did. And a count of
//! every fault, so that a test sees whether each occurs.

use std::{collections::BTreeMap, path::PathBuf};

use settee_storage::{FaultCounts, FsCall, KvStore, Options};

use super::{Run, ruin::Harm};

/// What happened in histories.
#[derive(Debug, Default)]
pub(super) struct Occurred {
    pub(super) disk: FaultCounts,
    /// Calls that failed while a store was opened.
    pub(super) in_open: BTreeMap<FsCall, u64>,
    /// Opens that ended with an error.
    pub(super) failed_opens: u64,
    /// Kinds of damage at the end.
    pub(super) harms: BTreeMap<String, u64>,
    /// Histories that were damaged with changes that were not synced.
    pub(super) harmed_unsynced: u64,
}

impl Occurred {
    pub(super) fn add(&mut self, other: &Self) {
        self.disk.add(&other.disk);
        other.in_open.iter().for_each(|(&call, count)| *self.in_open.entry(call).or_default() += count);
        self.failed_opens += other.failed_opens;
        other.harms.iter().for_each(|(kind, count)| *self.harms.entry(kind.clone()).or_default() += count);
        self.harmed_unsynced += other.harmed_unsynced;
    }

    /// Whatever the model means to try has occurred.
    pub(super) fn assert_complete(&self) {
        use FsCall::{
            Allocate, Create, Length, List, Open, Read, Remove, Rename, SyncData, SyncDir, Truncate, Write,
        };
        let disk = &self.disk;
        let counts = [
            disk.short_reads,
            disk.interrupted_reads,
            disk.bad_reads,
            disk.torn_pages,
            disk.lost_pages,
            disk.stale_pages,
            disk.pages_written_back,
            disk.lossy_syncs,
            disk.evicted_pages,
            disk.names_lost_out_of_order,
            self.failed_opens,
            self.harmed_unsynced,
        ];
        assert!(counts.iter().all(|&count| count > 0), "{self:#?}");
        for call in [Create, Remove, Rename, SyncDir, Allocate, Truncate, SyncData, Write] {
            let all = disk.failed_calls.get(&call).copied().unwrap_or(0);
            assert!(
                all > self.in_open.get(&call).copied().unwrap_or(0),
                "{call:?} while it is open: {self:#?}"
            );
        }
        for call in
            [Create, Open, Remove, Rename, SyncDir, Allocate, Truncate, SyncData, List, Read, Write, Length]
        {
            assert!(self.in_open.contains_key(&call), "{call:?} in an open: {self:#?}");
        }
        for kind in
            ["Flip segment", "Zeros segment", "Unreadable segment", "manifest", "manifest.copy", "keys"]
        {
            let count: u64 =
                self.harms.iter().filter(|(name, _)| name.ends_with(kind)).map(|(_, count)| count).sum();
            assert!(count > 0, "{kind}: {self:#?}");
        }
    }
}

impl Run {
    /// One of the latest faults, now and then.
    pub(super) fn step_lately(&mut self) {
        match self.late.u32(0..100) {
            0 => self.fail_writes(),
            1..3 => {
                let power_fails = self.late.bool();
                self.reopen(power_fails);
            }
            _ => {}
        }
    }

    /// A write fails half-way, or all of them do for a while.
    fn fail_writes(&mut self) {
        match self.late.bool() {
            true => self.disk().fail_writes(true),
            false => self.disk().fail_one_call(FsCall::Write, self.late.u64(0..4), libc::EIO),
        }
        for _ in 0..self.late.u32(1..4) {
            match self.late.u32(0..3) {
                0 => self.commit(),
                1 => self.sync(),
                _ => self.compact(),
            }
        }
        self.disk().fail_writes(false);
        self.disk().fail_calls(FsCall::Write, None);
        if self.disk().is_dead() {
            return self.reopen(true);
        }
        if self.store().stats().poisoned {
            self.has_failed = true;
            let power_fails = self.late.bool();
            self.reopen(power_fails);
        }
    }

    /// A call fails while the store is opened. It may be opened all the same; it is lost without a word in any case.
    pub(super) fn fail_in_open(&mut self, power_fails: bool) {
        use FsCall::{
            Allocate, Create, Length, List, Open, Read, Remove, Rename, SyncData, SyncDir, Truncate, Write,
        };
        if self.late.u32(0..3) > 0 {
            return;
        }
        let changes = [Create, Remove, Rename, SyncDir, Allocate, Truncate, SyncData, Write];
        // What the disk cannot read is damage: that is for the end.
        let (call, errno) = match self.late.bool() {
            true => {
                (changes[self.late.usize(0..changes.len())], [libc::EIO, libc::ENOSPC][self.late.usize(0..2)])
            }
            false => (
                [Open, List, Read, Length][self.late.usize(0..4)],
                [libc::EMFILE, libc::ENOMEM, libc::EACCES][self.late.usize(0..3)],
            ),
        };
        let after = if self.late.bool() { 0 } else { self.late.u64(0..8) };
        let failed = |run: &Self| run.disk().counts().failed_calls.get(&call).copied().unwrap_or(0);
        let before = failed(self);
        self.disk().fail_one_call(call, after, errno);
        let bytes = 8 << self.late.u32(10..13);
        let options = Options {
            shard: 0,
            segment_bytes: bytes,
            segment_bytes_min: bytes,
            reserve_bytes: self.reserve_bytes,
            index_segments_min: self.late.usize(1..9),
        };
        let opened = self.place.open_with(options);
        if failed(self) > before {
            *self.occurred.in_open.entry(call).or_default() += 1;
        }
        self.occurred.failed_opens += u64::from(opened.is_err());
        match power_fails {
            true => self.disk().crash(),
            false => self.disk().kill(),
        }
        drop(opened);
    }

    /// Damages a file beside the segments: there is another way to learn what was in each.
    pub(super) fn harm_beside(&mut self) -> Option<(Harm, PathBuf, u64)> {
        let names = self.place.fs.list(&self.place.dir).unwrap();
        let is_beside = |name: &&String| name.starts_with("manifest") || name.ends_with(".keys");
        let mut beside: Vec<String> = names.iter().filter(is_beside).cloned().collect();
        beside.sort();
        let name = self.late.choice(&beside)?.clone();
        let path = self.place.dir.join(&name);
        let length = self.disk().contents(&path)?.len() as u64;
        let harm = [Harm::Flip, Harm::Flip, Harm::Zeros, Harm::Unreadable][self.late.usize(0..4)];
        let at = self.late.u64(0..length.max(1));
        let bit = self.late.u8(0..8);
        self.inflict(harm, path, at, bit)
    }
}
