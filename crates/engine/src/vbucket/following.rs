//! What a vBucket knows of itself as a copy of another node's: how whole it is, and how far it may acknowledge.

use base::{Seqno, VbId};

use crate::{
    api::notify::Waiter,
    vbucket::snapshots::{Open, Snapshots},
};

/// See the module header. An active has one too: it may become a replica.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// The only inflow that is good.
    pub(crate) ticket: u64,
    /// Its stream has told of the snapshot that is open.
    pub(crate) is_announced: bool,
    pub(crate) snapshots: Snapshots,
    /// Not even the first snapshot is whole; or, with none open, the copy is damaged and to be built anew.
    pub(crate) is_partial: bool,
    /// What it holds is being emptied: nothing of it may be counted on.
    pub(crate) is_going: bool,
    /// The first snapshot of the stream reaches the last prepare that the active had when it granted that.
    pub(crate) is_told_all: bool,
    /// The branches that the active has told last are not synced yet.
    pub(crate) has_new_log: bool,
    /// The last prepare in whole snapshots.
    pub(crate) prepared: Seqno,
    /// The last whole snapshot from disk ends here: it is acknowledged once that is synced. A later active knows it still.
    pub(crate) disk_end: Seqno,
    /// The last whole snapshot that can have left something out ends here, whatever it was read from: see
    /// [`told_whole`](crate::vbucket::VBucket::told_whole).
    pub(crate) several_end: Seqno,
    pub(crate) high_prepared: Seqno,
    /// Grows whenever the copy has another failover log than before.
    pub(crate) logs: u32,
    /// The waiter for that to rise above a seqno.
    pub(crate) waiter: Option<(Seqno, Waiter)>,
}

impl Following {
    /// Begins anew with what a vBucket holds: a whole copy, or nothing of one that is to be made.
    pub(crate) fn restart(&mut self, is_partial: bool) {
        let (ticket, logs) = (self.ticket + 1, self.logs.wrapping_add(1));
        *self = Self { ticket, logs, is_partial, waiter: self.waiter, ..Self::default() };
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

    /// The active has granted what was asked for: see [`note_caught_up`](crate::vbucket::VBucket::note_caught_up).
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

/// The right to bring input: good until the vBucket's role or term changes or somebody else begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inflow {
    /// Of which vBucket.
    pub vb: VbId,
    ticket: u64,
}
