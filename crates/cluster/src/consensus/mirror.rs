//! The log as Raft reads it: all of it in memory, a few hundred entries after the last snapshot.
//!
//! It runs ahead of the disk: what was handed out to be written is here already, as `raft` requires.

use std::cell::Cell;

use raft::{
    GetEntriesContext, RaftState, Storage, StorageError,
    eraftpb::{ConfState, Entry, HardState, Snapshot},
    util::limit_size,
};

/// See the module. Entries are those after `start`, without a gap; the snapshot is at `start` or after.
#[derive(Clone, Debug, Default)]
pub(super) struct Mirror {
    pub(super) hard_state: HardState,
    pub(super) snapshot: Snapshot,
    /// Index and term of the entry before the first.
    start: (u64, u64),
    entries: Vec<Entry>,
    /// Bytes of their contents.
    bytes: usize,
    /// Whether a member needs a newer snapshot than there is.
    pub(super) newer_snapshot_wanted: Cell<bool>,
}

impl Mirror {
    /// `None` when there is a gap.
    pub(super) fn new(
        hard_state: HardState,
        snapshot: Snapshot,
        start: (u64, u64),
        entries: Vec<Entry>,
    ) -> Option<Self> {
        let in_order = entries.iter().zip(start.0 + 1..).all(|(entry, index)| entry.index == index);
        let bytes = entries.iter().map(size).sum();
        let mirror = Self { hard_state, snapshot, start, entries, bytes, ..Self::default() };
        let (first, last) = (mirror.start.0, mirror.last());
        let commit = mirror.hard_state.commit;
        let at = mirror.snapshot.get_metadata().index;
        (in_order && first <= at && at <= last && at <= commit && commit <= last).then_some(mirror)
    }

    /// Replaces everything by a snapshot.
    pub(super) fn install(&mut self, snapshot: Snapshot) {
        self.start = (snapshot.get_metadata().index, snapshot.get_metadata().term);
        self.entries.clear();
        self.bytes = 0;
        self.snapshot = snapshot;
    }

    /// Adds entries, which replace those from the first one's index on.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        let keep = first.index.saturating_sub(self.start.0 + 1) as usize;
        self.entries.truncate(keep);
        self.entries.extend_from_slice(entries);
        self.bytes = self.entries.iter().map(size).sum();
    }

    /// Takes a newer snapshot and forgets all but the last `keep` entries that it covers. Returns the new start.
    pub(super) fn compact(&mut self, snapshot: Snapshot, keep: u64) -> (u64, u64) {
        let index = snapshot.get_metadata().index.saturating_sub(keep).max(self.start.0);
        if let Some(term) = self.term_at(index) {
            let gone = (index - self.start.0) as usize;
            self.entries.drain(..gone);
            self.bytes = self.entries.iter().map(size).sum();
            self.start = (index, term);
        }
        self.snapshot = snapshot;
        self.newer_snapshot_wanted.set(false);
        self.start
    }

    /// The index of the last entry.
    pub(super) fn last(&self) -> u64 {
        self.start.0 + self.entries.len() as u64
    }

    /// The term of an entry that is here, or the one before the first.
    pub(super) fn term_at(&self, index: u64) -> Option<u64> {
        let at = index.checked_sub(self.start.0)?;
        match at.checked_sub(1) {
            None => Some(self.start.1),
            Some(at) => self.entries.get(at as usize).map(|entry| entry.term),
        }
    }

    /// Memory it takes, about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.bytes + self.snapshot.get_data().len()
    }

    /// Entries up to `index`, and bytes of all.
    pub(super) fn weight(&self, index: u64) -> (u64, usize) {
        (index.saturating_sub(self.start.0), self.bytes)
    }
}

fn size(entry: &Entry) -> usize {
    entry.data.len() + entry.context.len()
}

impl Storage for Mirror {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let members: ConfState = self.snapshot.get_metadata().get_conf_state().clone();
        Ok(RaftState::new(self.hard_state.clone(), members))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let first = low.checked_sub(self.start.0 + 1).ok_or(StorageError::Compacted)? as usize;
        let end = high.saturating_sub(self.start.0 + 1) as usize;
        let range = self.entries.get(first..end).ok_or(StorageError::Unavailable)?;
        let mut entries = range.to_vec();
        limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index < self.start.0 {
            return Err(StorageError::Compacted.into());
        }
        Ok(self.term_at(index).ok_or(StorageError::Unavailable)?)
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.start.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let metadata = self.snapshot.get_metadata();
        // A member takes no snapshot of a time at which it was not one. What a group begins with names its founder alone, and the founder
        // may have started again with nothing else. Those that join wait for a newer one.
        let names_it = metadata.get_conf_state().voters.contains(&to)
            || metadata.get_conf_state().learners.contains(&to);
        if metadata.index < request_index.max(1) || !names_it {
            self.newer_snapshot_wanted.set(true);
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        Ok(self.snapshot.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(index: u64, voters: &[u64], learners: &[u64]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (index, 1);
        let members = snapshot.mut_metadata().mut_conf_state();
        (members.voters, members.learners) = (voters.to_vec(), learners.to_vec());
        snapshot
    }

    #[test]
    fn what_a_founder_starts_again_with_is_sent_to_nobody_that_joins() {
        let hard_state = HardState { term: 1, commit: 1, ..HardState::default() };
        let mut mirror = Mirror::new(hard_state, snapshot(1, &[1], &[]), (1, 1), Vec::new()).unwrap();
        assert!(mirror.snapshot(1, 2).is_err() && mirror.newer_snapshot_wanted.get());
        mirror.append(&[Entry { index: 2, term: 1, ..Entry::default() }]);
        mirror.compact(snapshot(2, &[1], &[2]), 64);
        assert!(mirror.snapshot(1, 2).is_ok() && !mirror.newer_snapshot_wanted.get());
    }
}
