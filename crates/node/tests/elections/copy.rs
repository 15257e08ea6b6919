//! A copy as the agent sees it, reduced to what elections go by. That is which writes it has, which of them are synced, and what it
//! knows of its own gaps. What it may say and do is judged by the engine's own rules ([`engine::CopyFacts`]), its branches are the
//! engine's ([`engine::FailoverTable`]). The engine counts who holds a write ([`engine::Chains`]), and whether a stream goes on is
//! decided by the producer's rule.

use std::cell::RefCell;

use base::{BucketUuid, Now, Seqno, Status, VbId, VbRole, VbUuid};
use engine::{Activation, CopyFacts, FailoverTable, Topology};
use replication::producer::rollback::{History, Position, rollback};
use settee_node::{Buckets, Copies, Copy};

/// What of a copy a crash leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OnDisk {
    /// So many writes of the log.
    pub(crate) writes: usize,
    pub(crate) table: FailoverTable,
    pub(crate) open: Option<(Seqno, Seqno)>,
    pub(crate) is_partial: bool,
}

/// See the module header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyState {
    pub(crate) role: VbRole,
    pub(crate) term: u64,
    pub(crate) unconfirmed: bool,
    pub(crate) may_lack: bool,
    pub(crate) is_unheard: bool,
    pub(crate) is_partial: bool,
    /// The stream has been granted: its first whole snapshot has all that was acknowledged.
    pub(crate) is_told_all: bool,
    /// Numbers of writes, in order.
    pub(crate) log: Vec<u8>,
    pub(crate) open: Option<(Seqno, Seqno)>,
    pub(crate) table: FailoverTable,
    /// There is something to record though there may be no write.
    pub(crate) is_unrecorded: bool,
    pub(crate) disk: Option<OnDisk>,
    /// Of an active copy.
    pub(crate) topology: Option<Topology>,
    /// The term of the stream that is open.
    pub(crate) following: Option<u64>,
    pub(crate) is_volatile: bool,
}

impl CopyState {
    /// One of which nothing is known; `branch` is a name that no other has.
    pub(crate) fn blank(is_volatile: bool, branch: u64) -> Self {
        Self {
            role: VbRole::Dead,
            term: 0,
            unconfirmed: false,
            may_lack: false,
            is_unheard: true,
            is_partial: false,
            is_told_all: false,
            log: Vec::new(),
            open: None,
            table: FailoverTable::new(VbUuid(branch)),
            is_unrecorded: false,
            disk: None,
            topology: None,
            following: None,
            is_volatile,
        }
    }

    pub(crate) fn high(&self) -> Seqno {
        Seqno(self.log.len() as u64)
    }

    pub(crate) fn facts(&self) -> CopyFacts {
        CopyFacts {
            role: self.role,
            term: self.term,
            high_seqno: self.high(),
            open: self.open,
            is_partial: self.is_partial,
            is_unheard: self.is_unheard,
            may_lack: self.may_lack,
        }
    }

    /// Whether everything that it has is as it was on the active copy.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_partial && self.open.is_none()
    }

    /// So many writes are in it for good.
    pub(crate) fn whole_writes(&self) -> usize {
        if self.is_partial { 0 } else { self.facts().promotable().get() as usize }
    }

    /// So many are on disk.
    pub(crate) fn synced_writes(&self) -> usize {
        self.disk.as_ref().map_or(0, |disk| disk.writes)
    }

    /// Whether a write is in it for good.
    pub(crate) fn has(&self, write: u8) -> bool {
        self.log.iter().take(self.whole_writes()).any(|&other| other == write)
    }

    pub(crate) fn sync(&mut self) {
        if self.is_volatile || (self.log.is_empty() && !self.is_unrecorded && self.disk.is_none()) {
            return;
        }
        self.is_unrecorded = false;
        self.disk = Some(OnDisk {
            writes: self.log.len(),
            table: self.table.clone(),
            open: self.open,
            is_partial: self.is_partial,
        });
    }

    /// The process ends, and begins again.
    pub(crate) fn restart(&mut self, clean: bool, branch: u64) {
        if clean {
            // A branch that has begun is recorded, though there may be nothing on it.
            self.is_unrecorded |= !self.is_unheard;
            self.sync();
        }
        let was_clean = clean && self.facts().counts_after_stop();
        self.reopen(was_clean, branch);
    }

    /// The process begins with what is on disk.
    pub(crate) fn reopen(&mut self, was_clean: bool, branch: u64) {
        let Some(disk) = self.disk.take().filter(|_| !self.is_volatile) else {
            *self = Self::blank(self.is_volatile, branch);
            return;
        };
        self.log.truncate(disk.writes);
        (self.table, self.open, self.is_partial) = (disk.table.clone(), disk.open, disk.is_partial);
        self.table.cut(self.high());
        (self.is_unheard, self.is_told_all, self.is_unrecorded) = (false, false, false);
        (self.role, self.term, self.topology, self.following) = (VbRole::Dead, 0, None, None);
        (self.unconfirmed, self.may_lack) = (!was_clean, !was_clean);
        self.disk = Some(disk);
    }

    fn reset(&mut self, branch: u64) {
        let role_state = (self.role, self.term, self.following);
        let was_recorded = !self.is_volatile;
        *self = Self { is_partial: true, ..Self::blank(self.is_volatile, branch) };
        (self.role, self.term, self.following) = role_state;
        let (table, open, is_partial) = (self.table.clone(), None, true);
        self.disk = was_recorded.then_some(OnDisk { writes: 0, table, open, is_partial });
    }

    /// A stream of the active copy's begins, if none is open, and brings all that it has. Without `all` it brings one
    /// write more, of a snapshot that is not whole then.
    pub(crate) fn feed(&mut self, active: &CopyState, all: bool, branch: u64) {
        if self.following != Some(self.term) {
            self.begin_stream(active, branch);
        }
        let missing = active.log.get(self.log.len()..).unwrap_or_default();
        let was_partial = self.is_partial;
        if all {
            self.log.extend_from_slice(missing);
            (self.open, self.is_partial) = (None, false);
            if std::mem::take(&mut self.is_told_all) {
                self.may_lack = false;
            }
            self.is_unrecorded |= was_partial;
        } else if missing.len() > 1 {
            self.open.get_or_insert((self.high(), active.high()));
            self.is_partial |= self.log.is_empty();
            self.log.push(missing[0]);
        }
    }

    fn begin_stream(&mut self, active: &CopyState, branch: u64) {
        if self.facts().is_given_up() {
            self.reset(branch);
        }
        let (start, (snap_start, snap_end)) = self.facts().position();
        let vb_uuid = self.table.uuid();
        let position = Position { start, vb_uuid, snap_start, snap_end, ..Position::default() };
        let history = History { log: active.table.log(), high_seqno: active.high(), purge_seqno: Seqno(0) };
        if let Some(to) = rollback(&position, &history)
            && self.facts().begins_anew(to)
        {
            self.reset(branch);
        }
        if self.open.is_some_and(|open| open.0 == self.high()) {
            self.open = None;
        }
        self.is_unheard = false;
        self.is_partial |= self.log.is_empty();
        self.is_told_all = true;
        if self.table != active.table {
            self.table = FailoverTable::adopted(active.table.log()).unwrap();
            self.is_unrecorded = true;
        }
        self.following = Some(self.term);
    }

    /// Whether it would take the next write of the active copy.
    pub(crate) fn keeps_up(&self, active: &CopyState) -> bool {
        self.role == VbRole::Replica
            && self.following == Some(active.term)
            && self.is_whole()
            && self.log == active.log
    }

    fn begin(&mut self, term: u64, branch: u64) {
        if self.facts().is_blank() {
            // It is recorded with the first write.
            self.table.begin_empty(term);
        } else {
            self.table.begin(VbUuid(branch), term, self.facts().promotable());
            // Synced before it serves, though what it holds need not be.
            if !self.is_volatile {
                let before = self.disk.take();
                self.disk = Some(OnDisk {
                    writes: before.as_ref().map_or(0, |disk| disk.writes),
                    table: self.table.clone(),
                    open: before.and_then(|disk| disk.open).filter(|open| Some(*open) != self.open),
                    is_partial: false,
                });
            }
        }
        (self.is_partial, self.is_unheard, self.open) = (false, false, None);
        (self.may_lack, self.unconfirmed, self.is_told_all) = (false, false, false);
    }
}

/// One copy, for the agent, and a name for the next branch that it begins.
pub(crate) struct Shelf {
    pub(crate) held: RefCell<CopyState>,
    pub(crate) branch: u64,
}

impl Shelf {
    fn change(&self, role: VbRole, term: u64) -> Result<(), Status> {
        let mut held = self.held.borrow_mut();
        if term < held.term {
            return Err(Status::Invalid);
        }
        if (held.role, held.term) != (role, term) {
            (held.following, held.is_told_all) = (None, false);
        }
        (held.role, held.term) = (role, term);
        held.topology = None;
        if role == VbRole::Replica {
            held.unconfirmed = false;
        }
        Ok(())
    }

    fn activate_one(&self, wanted: &Activation) -> Result<(), Status> {
        let mut held = self.held.borrow_mut();
        if wanted.term < held.term {
            return Err(Status::Invalid);
        }
        if held.role != VbRole::Active {
            let is_alone = wanted.topology.chains.iter().all(|chain| chain.len() == 1);
            if !held.facts().may_be_activated(is_alone) {
                return Err(Status::NotMyVbucket);
            }
            held.begin(wanted.term, self.branch);
        }
        held.following = None;
        held.topology = Some(wanted.topology.clone());
        (held.role, held.term) = (VbRole::Active, wanted.term);
        Ok(())
    }
}

impl Copies for Shelf {
    fn copy(&self, _: VbId) -> Copy {
        let held = self.held.borrow();
        let facts = held.facts();
        Copy {
            role: held.role,
            term: held.term,
            unconfirmed: held.unconfirmed,
            has_contents: !held.log.is_empty(),
            blank: facts.is_blank(),
            complete: !held.is_partial,
            vb_uuid: held.table.uuid_at(facts.promotable()),
            high_seqno: facts.promotable(),
            held: facts.promotable(),
            may_lack: held.may_lack,
            persisted: Seqno(held.synced_writes() as u64),
            synced: Seqno(held.synced_writes() as u64),
        }
    }

    fn activate(&self, copies: &[Activation], _: Now) -> Vec<(VbId, Result<(), Status>)> {
        copies.iter().map(|wanted| (wanted.vb, self.activate_one(wanted))).collect()
    }

    fn set_topology(&self, wanted: &Activation, _: Now) -> Result<(), Status> {
        self.activate_one(wanted)
    }

    fn drain(&self, _: VbId, _: u64, _: Now) -> Result<Option<u64>, Status> {
        Ok(None)
    }

    fn seal(&self, _: VbId, term: u64) -> Result<(), Status> {
        let role = self.held.borrow().role;
        match role {
            VbRole::Active | VbRole::Sealed => self.change(VbRole::Sealed, term),
            VbRole::Dead | VbRole::Replica => Err(Status::NotMyVbucket),
        }
    }

    fn make_replica(&self, _: VbId, term: u64) -> Result<(), Status> {
        self.change(VbRole::Replica, term)
    }

    fn note_loss(&self, _: VbId) -> Result<(), Status> {
        let mut held = self.held.borrow_mut();
        held.may_lack |= held.role == VbRole::Dead && held.term == 0;
        Ok(())
    }

    fn forget_role(&self, _: VbId) -> Result<(), Status> {
        let mut held = self.held.borrow_mut();
        (held.role, held.term, held.following, held.may_lack) = (VbRole::Dead, 0, None, true);
        Ok(())
    }

    fn make_dead(&self, _: VbId, term: u64) -> Result<(), Status> {
        self.change(VbRole::Dead, term)
    }

    fn drop_contents(&self, _: VbId, _: Now) -> Result<(), Status> {
        self.held.borrow_mut().reset(self.branch);
        Ok(())
    }
}

/// The one bucket of a node.
pub(crate) struct Open<'a>(pub(crate) &'a Shelf);

impl<'a> Buckets for Open<'a> {
    type Bucket = &'a Shelf;

    fn copies(&self, _: &BucketUuid) -> Option<&'a Shelf> {
        Some(self.0)
    }

    fn following(&self, _: &BucketUuid, _: VbId) -> Option<u64> {
        self.0.held.borrow().following
    }
}
