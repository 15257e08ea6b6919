//! When events are written, and what happens when the manifest moved while a vBucket was not looking.
//!
//! The manifest lives in the cluster's metadata, the events in the vBuckets, and nothing makes the two one transaction. So:
//!
//! - A change is recorded in three steps, each vBucket under its own lock. Beginnings come first. Then the new manifest
//!   is put in force. Modifications and ends come last.
//! - A vBucket's state on disk names the manifest that its events tell of. When that is the one the bucket is opened
//!   with, nothing is missing. When it is not, warm-up first looks up on disk which beginnings are there and records
//!   the others. Until then nothing is written to named collections of that vBucket ("temporary failure").
//! - At the end of warm-up, when every event on disk is in the table, what is still owed is recorded, whatever the state
//!   said. These are ends that were missed, settings that changed, beginnings in directories older than events.
//! - An event that cannot be written now (no CAS below the ceiling, no memory) is owed. The collection it would begin
//!   takes no writes until it is recorded. That is done by the next such write, or by housekeeping.

use std::collections::VecDeque;

use base::{CollectionId, ManifestUid, Seqno};

use super::{Happening, SystemEvent};

/// What a vBucket knows about its own events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The manifest whose collections have all begun by seqno `told_at`.
    pub(crate) told: ManifestUid,
    pub(crate) told_at: Seqno,
    /// Not written yet, in order; the manifest that will have been told then.
    pub(crate) owed: VecDeque<SystemEvent>,
    pub(crate) target: ManifestUid,
    /// Which beginnings are on disk is not known yet.
    pub(crate) are_unknown: bool,
}

impl Events {
    /// What the disk says, for a bucket opened with a manifest.
    pub(crate) fn recovered(told: ManifestUid, high_seqno: Seqno, manifest: ManifestUid) -> Self {
        Self { told, told_at: high_seqno, target: told, are_unknown: told != manifest, ..Self::default() }
    }

    /// The manifest to record with everything up to a seqno. 0 stands for "look": the first manifest needs no events.
    pub(crate) fn told_up_to(&self, seqno: Seqno) -> ManifestUid {
        if seqno >= self.told_at { self.told } else { ManifestUid(0) }
    }

    /// A replica was told an event, at a seqno.
    pub(crate) fn follow(&mut self, manifest: ManifestUid, seqno: Seqno) {
        if manifest > self.told {
            (self.told, self.target, self.told_at) = (manifest, manifest, seqno);
        }
    }

    /// The manifest that has been told.
    pub(crate) fn told(&self) -> ManifestUid {
        self.told
    }

    /// Nothing is recorded here any more: another node is about to be the active.
    pub(crate) fn hand_over(&mut self) {
        self.owed.clear();
        self.target = self.told;
        self.are_unknown = false;
    }

    /// Whether some collections may not have begun.
    #[inline]
    pub(crate) fn are_behind(&self) -> bool {
        self.are_unknown || !self.owed.is_empty()
    }

    /// How many are not recorded.
    pub(crate) fn owed(&self) -> usize {
        self.owed.len()
    }

    /// Whether a collection's beginning is not recorded.
    pub(crate) fn hold_back(&self, id: CollectionId) -> bool {
        let begins = |event: &SystemEvent| matches!(&event.what, Happening::CollectionBegin(facts) if facts.collection == id);
        id != CollectionId::DEFAULT && (self.are_unknown || self.owed.iter().any(begins))
    }
}
