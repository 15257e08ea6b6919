//! What a vBucket knows of itself as a copy of another node's: how whole it is, and how far it may acknowledge.

use base::{Seqno, bucket::DurabilityLevel};

use super::{
    Inflow,
    snapshots::{Open, Snapshots},
};
use crate::{
    api::notify::Waiter,
    shard::aftermath::Aftermath,
    vbucket::{VBucket, copy_rules::CopyFacts},
};

/// See the module header. An active has one too: it may become a replica.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// The only inflow that is good.
    ticket: u64,
    /// Its stream has told of the snapshot that is open.
    is_announced: bool,
    pub(crate) snapshots: Snapshots,
    /// Not even the first snapshot is whole; or, with none open, the copy is damaged and to be built anew.
    pub(crate) is_partial: bool,
    /// The first snapshot of the stream reaches the last prepare that the active had when it granted that.
    is_told_all: bool,
    /// The branches that the active has told last are not synced yet.
    has_new_log: bool,
    /// The last prepare in whole snapshots.
    prepared: Seqno,
    /// The last whole snapshot from disk ends here: it is acknowledged once that is synced.
    disk_end: Seqno,
    high_prepared: Seqno,
    /// Who waits for that to rise above a seqno.
    waiter: Option<(Seqno, Waiter)>,
}

impl Following {
    /// Begins anew with what a vBucket holds: a whole copy, or nothing of one that is to be made.
    pub(crate) fn restart(&mut self, is_partial: bool) {
        *self = Self { ticket: self.ticket + 1, is_partial, waiter: self.waiter, ..Self::default() };
    }

    /// A restart has found this as the last prepare that is held as its level asks for: everything was synced.
    pub(crate) fn recovered(&mut self, prepared: Seqno) {
        (self.prepared, self.high_prepared) = (prepared, prepared);
    }

    /// No input is good any more.
    pub(crate) fn shut(&mut self) {
        self.ticket += 1;
        (self.is_announced, self.is_told_all) = (false, false);
    }

    /// The active has granted what was asked for: see [`VBucket::note_caught_up`].
    pub(crate) fn note_granted(&mut self) {
        self.is_told_all = true;
    }

    /// Another stream begins.
    pub(crate) fn begin(&mut self, vb: base::VbId) -> Inflow {
        self.shut();
        Inflow { vb, ticket: self.ticket }
    }

    pub(crate) fn is_current(&self, inflow: Inflow) -> bool {
        self.ticket == inflow.ticket
    }

    /// The snapshot that items are taken for.
    pub(crate) fn announced(&self) -> Option<&Open> {
        self.snapshots.open().filter(|_| self.is_announced)
    }

    pub(crate) fn announce(&mut self, open: Open) {
        self.is_announced = true;
        self.snapshots.begin(open);
    }

    /// What is here is no copy: it lacks what it was told of. Recorded as a first snapshot of which nothing is to come.
    pub(crate) fn damage(&mut self) {
        self.shut();
        self.snapshots.give_up();
        self.is_partial = true;
    }

    /// The branches that it is on are synced.
    pub(crate) fn note_log_synced(&mut self) {
        self.has_new_log = false;
    }

    pub(crate) fn await_above(&mut self, above: Seqno, waiter: Waiter) {
        self.waiter = Some((above, waiter));
    }
}

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
    /// the active reads it, and nobody waits for any of it: it may fill no more of the memory than it is given.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.following.is_partial || self.following.snapshots.open().is_some_and(|open| open.from_disk)
    }

    /// What it holds cannot become whole by what is still to come: a prepare that cannot be read can be neither committed
    /// nor acknowledged, and one that is missing is told of only once.
    pub(crate) fn is_damaged_copy(&self) -> bool {
        self.pending.is_damaged() || self.facts().is_given_up()
    }

    /// Everything the vBucket holds is whole, and was prepared under the levels that it says.
    pub(crate) fn note_whole(&mut self) {
        self.following.prepared = self.marks.prepared;
    }

    /// The open snapshot is whole.
    pub(crate) fn close_snapshot(&mut self, is_persistent: bool, after: &mut Aftermath<'_>) {
        let is_first = std::mem::take(&mut self.following.is_partial);
        let Some(open) = self.following.snapshots.close(is_first) else { return };
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
        self.raise_high_prepared(is_persistent, after);
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

    /// More may be acknowledged: a snapshot has become whole, or something was synced.
    pub(crate) fn raise_high_prepared(&mut self, is_persistent: bool, after: &mut Aftermath<'_>) {
        let synced = match (is_persistent, self.following.has_new_log) {
            (false, _) => Seqno(u64::MAX),
            (true, false) => self.persisted_seqno,
            (true, true) => Seqno(0),
        };
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
            after.wake(waiter);
        }
    }

    /// Up to here every mutation and every durable write is here, in memory at least, and can be read. Of two copies on one
    /// branch the one with more of it has all that the other one has: elections go by this. What may be *acknowledged*
    /// ([`VBucket::high_prepared`]) can be less, and an active raises that only once it follows again.
    pub(crate) fn held(&self) -> Seqno {
        self.promotable().min(self.pending.readable())
    }

    /// A stream of the active's brings what it had prepared when it granted that: with its first whole snapshot the copy
    /// has again all that it may have acknowledged and lost.
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
