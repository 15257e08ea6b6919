//! What a vBucket goes by, and may acknowledge, as a copy of another node's.

use base::{Seqno, bucket::DurabilityLevel};

use crate::{
    shard::deferred::DeferredEffects,
    vbucket::{VBucket, copy_rules::CopyFacts},
};

impl VBucket {
    /// What it goes by as a copy.
    pub(crate) fn facts(&self) -> CopyFacts {
        CopyFacts {
            role: self.role,
            term: self.term,
            high_seqno: self.high_seqno,
            open: self.following.snapshots.open().map(|open| (open.start, open.end)),
            is_partial: self.following.is_partial,
            is_unheard: self.is_unheard,
            may_lack: self.may_lack,
        }
    }

    /// What is whole of the copy: everything, or up to where the open snapshot began. What a new active goes on from.
    pub(crate) fn promotable(&self) -> Seqno {
        self.facts().promotable()
    }

    /// What comes in is history: it is a copy in the making, or far enough behind to be told from disk. That comes as fast as
    /// the active reads it, and nobody waits for any of it. So it may fill no more of the memory than it is given.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.following.is_partial || self.following.snapshots.open().is_some_and(|open| open.from_disk)
    }

    /// Later messages cannot make its contents whole. A prepare that cannot be read can be neither committed nor
    /// acknowledged, and a missing one is told of only once.
    pub(crate) fn is_damaged_copy(&self) -> bool {
        self.pending.is_damaged() || self.facts().is_given_up()
    }

    /// Up to here its history may come from snapshots that were read from disk. These leave out what they have a newer version of, so
    /// before their end neither memory nor disk has a state that ever was.
    pub(crate) fn told_from_disk(&self) -> Seqno {
        self.following.disk_end
    }

    /// Up to here its history may come from snapshots of several items. Whatever they were read from, they leave out versions that they
    /// have a newer one of. A state in between is known to the node that told them, and perhaps to others, but not here.
    pub(crate) fn told_whole(&self) -> Seqno {
        self.following.disk_end.max(self.following.several_end)
    }

    /// A feed of a copy that follows another node's was told what the disk had at `end`. Returns where that feed is whole again. It
    /// is further on where `end` lies inside a snapshot, or may, since more was synced meanwhile.
    pub(crate) fn whole_behind(&self, end: Seqno) -> Seqno {
        let snapshots = &self.following.snapshots;
        let known = |seqno| snapshots.around(seqno).map(|(_, whole_at)| whole_at);
        known(end).or_else(|| known(self.persisted_seqno)).unwrap_or(self.persisted_seqno).max(end)
    }

    /// Everything the vBucket holds is whole, and was prepared under the levels that it says.
    pub(crate) fn note_whole(&mut self) {
        self.following.prepared = self.marks.prepared;
    }

    /// The open snapshot is whole.
    pub(crate) fn close_snapshot(&mut self, is_persistent: bool, deferred: &mut DeferredEffects<'_>) {
        let is_first = std::mem::take(&mut self.following.is_partial);
        let Some((open, has_several)) = self.following.snapshots.close(is_first) else { return };
        if has_several {
            self.following.several_end = open.end;
        }
        if open.from_disk {
            self.following.disk_end = open.end;
            self.purge_seqno = self.purge_seqno.max(open.purge_seqno.min(open.end));
        }
        self.marks.visible = self.marks.visible.max(open.max_visible.min(open.end));
        self.note_whole();
        self.note_caught_up();
        if !is_persistent {
            self.following.snapshots.synced(open.end);
        }
        self.raise_high_prepared(is_persistent, deferred);
        // Feeds of the copy may tell it.
        self.checkpoint.wake_all().into_iter().for_each(|waiter| deferred.wake(waiter));
    }

    /// The active has told of branches that are not synced here: until they are, no prepare is held that has to be on disk.
    /// A copy that after a crash is taken to be on an older branch gives way to others on younger ones which may lack it.
    /// Whether there is any.
    pub(crate) fn hold_back(&mut self) -> bool {
        self.following.has_new_log = true;
        let Some(before) = self.pending.held_before(DurabilityLevel::PersistToMajority, Seqno(0)) else {
            return false;
        };
        self.following.high_prepared = self.following.high_prepared.min(before);
        true
    }

    /// What a kill leaves of it. A restart finds a copy whole up to where a snapshot began, if what is synced ends inside that. An
    /// election goes by this: what lies behind counts for as little as what is not synced.
    pub(crate) fn synced_whole(&self) -> Seqno {
        let synced = self.persisted_seqno;
        self.following.snapshots.around(synced).map_or(synced, |(start, _)| start)
    }

    /// Whether the rest of a whole snapshot has to be synced before a durable write in it is safe that is synced itself.
    fn awaits_rest(&self) -> bool {
        let synced = self.persisted_seqno;
        let inside = self.following.snapshots.around_closed(synced);
        inside.is_some_and(|(start, _)| self.pending.has_for_disk(start, synced))
    }

    /// More may be acknowledged: a snapshot has become whole, or something was synced.
    pub(crate) fn raise_high_prepared(&mut self, is_persistent: bool, deferred: &mut DeferredEffects<'_>) {
        let synced = match (is_persistent, self.following.has_new_log) {
            (false, _) => Seqno(u64::MAX),
            (true, false) => self.synced_whole(),
            (true, true) => Seqno(0),
        };
        if self.awaits_rest() {
            deferred.flush_durable();
        }
        if self.following.disk_end > synced {
            return;
        }
        let reached = self.pending.held_before(DurabilityLevel::PersistToMajority, synced);
        let reached = reached.unwrap_or(self.following.prepared).min(self.following.prepared);
        if reached <= self.following.high_prepared {
            return;
        }
        self.following.high_prepared = reached;
        if let Some((_, waiter)) = self.following.waiter.take_if(|waiting| waiting.0 < reached) {
            deferred.wake(waiter);
        }
    }

    /// Up to here every mutation and every durable write is here, in memory at least, and can be read. Of two copies on one
    /// branch the one with more of it has all that the other one has: elections go by this. What may be *acknowledged*
    /// ([`VBucket::high_prepared`]) can be less, and an active raises that only once it follows again.
    pub(crate) fn held(&self) -> Seqno {
        self.promotable().min(self.pending.readable())
    }

    /// A stream of the active's brings what the active had prepared when it granted the stream. With its first whole
    /// snapshot the copy has again all that it may have acknowledged and lost.
    pub(crate) fn note_caught_up(&mut self) {
        if std::mem::take(&mut self.following.is_told_all) {
            self.may_lack = false;
        }
    }

    /// Everything that was prepared up to here is held as its level asks for.
    pub(crate) fn high_prepared(&self) -> Seqno {
        self.following.high_prepared
    }
}
