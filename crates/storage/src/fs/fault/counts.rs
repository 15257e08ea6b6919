//! What a disk has done to its users: a test that means to try a fault sees whether it occurred.

use std::collections::BTreeMap;

use super::FsCall;

/// How often a [`super::FaultFs`] did each of what it can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Reads that gave less than they were asked for, though the file goes on.
    pub short_reads: u64,
    /// Reads that a signal interrupted.
    pub interrupted_reads: u64,
    /// Reads of a page that cannot be read.
    pub bad_reads: u64,
    /// Pages of which a crash left some sectors as they were before.
    pub torn_pages: u64,
    /// Pages that a crash left as they were before.
    pub lost_pages: u64,
    /// Pages of files that had grown, which hold after a crash what a removed file had there.
    pub stale_pages: u64,
    /// Pages that the system has written before anybody asked for a sync, and that were changed again.
    pub pages_written_back: u64,
    /// Syncs that failed and took what they did not write for clean.
    pub lossy_syncs: u64,
    /// Pages that only the cache had after such a sync, and that left it.
    pub evicted_pages: u64,
    /// Changes of names that a crash lost while it kept later ones.
    pub names_lost_out_of_order: u64,
    /// Calls that failed because a test wanted them to.
    pub failed_calls: BTreeMap<FsCall, u64>,
}

impl FaultCounts {
    /// Adds what another disk did.
    pub fn add(&mut self, other: &Self) {
        self.short_reads += other.short_reads;
        self.interrupted_reads += other.interrupted_reads;
        self.bad_reads += other.bad_reads;
        self.torn_pages += other.torn_pages;
        self.lost_pages += other.lost_pages;
        self.stale_pages += other.stale_pages;
        self.pages_written_back += other.pages_written_back;
        self.lossy_syncs += other.lossy_syncs;
        self.evicted_pages += other.evicted_pages;
        self.names_lost_out_of_order += other.names_lost_out_of_order;
        for (&call, count) in &other.failed_calls {
            *self.failed_calls.entry(call).or_default() += count;
        }
    }
}
