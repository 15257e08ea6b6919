//! A copy as the agent sees it, reduced to what elections go by: which writes it has, which of them are synced, and what it knows
//! of its own gaps. Rules are those of `engine::roles` and `engine::replica`.

use std::cell::RefCell;

use base::{BucketUuid, NodeId, Now, Seqno, Status, VbId, VbRole, VbUuid};
use engine::{Activation, Topology};
use settee_node::{Buckets, Copies, Copy};

/// Where a branch's name has its generation.
const GENERATION_SHIFT: u32 = 30;

/// What of a copy a crash leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct OnDisk {
    writes: usize,
    branches: Vec<(usize, u64)>,
    partial: bool,
}

/// See the module header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    pub(crate) role: VbRole,
    pub(crate) term: u64,
    pub(crate) unconfirmed: bool,
    pub(crate) may_lack: bool,
    pub(crate) blank: bool,
    pub(crate) partial: bool,
    /// Numbers of writes, in order.
    pub(crate) log: Vec<u8>,
    /// Where each branch begins, and its generation; the oldest first.
    branches: Vec<(usize, u64)>,
    disk: OnDisk,
    /// Of an active copy.
    pub(crate) topology: Option<Topology>,
    /// The term of the stream that is open.
    pub(crate) following: Option<u64>,
    pub(crate) is_volatile: bool,
}

impl Held {
    pub(crate) fn blank(is_volatile: bool) -> Self {
        Self { blank: true, is_volatile, ..Self::default() }
    }

    fn generation(&self) -> u64 {
        let end = self.promotable();
        self.branches.iter().rev().find(|branch| branch.0 <= end).map_or(0, |branch| branch.1)
    }

    fn promotable(&self) -> usize {
        if self.partial { 0 } else { self.log.len() }
    }

    pub(crate) fn sync(&mut self) {
        if !self.is_volatile {
            self.disk =
                OnDisk { writes: self.log.len(), branches: self.branches.clone(), partial: self.partial };
        }
    }

    /// The process ends, and begins again.
    pub(crate) fn restart(&mut self, clean: bool) {
        if self.is_volatile {
            *self = Self::blank(true);
            return;
        }
        if clean {
            self.sync();
        }
        // A clean stop is not recorded as one while the copy may lack something.
        let was_clean = clean && !self.may_lack;
        self.log.truncate(self.disk.writes);
        self.branches.clone_from(&self.disk.branches);
        self.branches.retain(|branch| branch.0 <= self.log.len());
        self.partial = self.disk.partial;
        (self.role, self.term, self.topology, self.following) = (VbRole::Dead, 0, None, None);
        (self.unconfirmed, self.may_lack) = (!was_clean, !was_clean);
    }

    fn reset(&mut self) {
        self.log.clear();
        self.branches.clear();
        (self.partial, self.may_lack, self.unconfirmed) = (true, false, false);
        self.disk = OnDisk { partial: true, ..OnDisk::default() };
    }

    /// A stream of the active copy's brings all it has; or, of a copy that has to begin anew, only a part.
    pub(crate) fn feed(&mut self, active: &Held, all: bool) {
        let is_new_stream = self.following != Some(self.term);
        let is_given_up = is_new_stream && self.partial && !self.log.is_empty();
        if is_given_up || !active.log.starts_with(&self.log) {
            self.reset();
        }
        self.following = Some(self.term);
        self.blank = false;
        self.branches.clone_from(&active.branches);
        if all {
            self.log.clone_from(&active.log);
            (self.partial, self.may_lack) = (false, false);
        } else if self.log.is_empty() && active.log.len() > 1 {
            self.partial = true;
            self.log.push(active.log[0]);
        }
    }

    /// Whether it would take the next write of the active copy.
    pub(crate) fn keeps_up(&self, active: &Held) -> bool {
        self.role == VbRole::Replica
            && self.following == Some(active.term)
            && !self.partial
            && self.log == active.log
    }

    fn begin(&mut self, term: u64) {
        let generation = term.max(self.generation() + 1);
        self.partial = false;
        self.branches.retain(|branch| branch.0 <= self.log.len());
        self.branches.push((self.log.len(), generation));
        (self.may_lack, self.unconfirmed, self.blank) = (false, false, false);
        // Synced before it serves, though what it holds need not be.
        self.disk.branches.clone_from(&self.branches);
        self.disk.partial = false;
    }
}

/// One copy, for the agent.
pub(crate) struct Shelf(pub(crate) RefCell<Held>);

impl Shelf {
    fn change(&self, role: VbRole, term: u64) -> Result<(), Status> {
        let mut held = self.0.borrow_mut();
        if term < held.term {
            return Err(Status::Invalid);
        }
        if (held.role, held.term) != (role, term) {
            held.following = None;
        }
        (held.role, held.term) = (role, term);
        if role == VbRole::Replica {
            held.unconfirmed = false;
        }
        Ok(())
    }
}

impl Copies for Shelf {
    fn copy(&self, _: VbId) -> Copy {
        let held = self.0.borrow();
        Copy {
            role: held.role,
            term: held.term,
            unconfirmed: held.unconfirmed,
            has_contents: !held.log.is_empty(),
            blank: held.blank,
            complete: !held.partial,
            vb_uuid: VbUuid(held.generation() << GENERATION_SHIFT),
            high_seqno: Seqno(held.promotable() as u64),
            held: Seqno(held.promotable() as u64),
            may_lack: held.may_lack,
            persisted: Seqno(held.disk.writes.min(held.promotable()) as u64),
        }
    }

    fn activate(&self, copies: &[Activation], _: Now) -> Vec<(VbId, Result<(), Status>)> {
        let activate = |wanted: &Activation| {
            let is_alone = wanted.topology.chains.iter().all(|chain| chain.len() == 1);
            let mut held = self.0.borrow_mut();
            if wanted.term < held.term {
                return Err(Status::Invalid);
            }
            if held.role != VbRole::Active {
                if held.partial && !held.log.is_empty() && !is_alone {
                    return Err(Status::NotMyVbucket);
                }
                held.term = wanted.term;
                held.begin(wanted.term);
            }
            held.topology = Some(wanted.topology.clone());
            (held.role, held.term) = (VbRole::Active, wanted.term);
            Ok(())
        };
        copies.iter().map(|wanted| (wanted.vb, activate(wanted))).collect()
    }

    fn set_topology(&self, wanted: &Activation, now: Now) -> Result<(), Status> {
        self.activate(std::slice::from_ref(wanted), now).remove(0).1
    }

    fn drain(&self, _: VbId, _: u64, _: Now) -> Result<Option<u64>, Status> {
        Ok(None)
    }

    fn seal(&self, _: VbId, term: u64) -> Result<(), Status> {
        self.change(VbRole::Sealed, term)
    }

    fn make_replica(&self, _: VbId, term: u64) -> Result<(), Status> {
        self.change(VbRole::Replica, term)
    }

    fn note_loss(&self, _: VbId) -> Result<(), Status> {
        self.0.borrow_mut().may_lack = true;
        Ok(())
    }

    fn make_dead(&self, _: VbId, term: u64) -> Result<(), Status> {
        self.change(VbRole::Dead, term)
    }

    fn drop_contents(&self, _: VbId, _: Now) -> Result<(), Status> {
        self.0.borrow_mut().reset();
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
        self.0.0.borrow().following
    }
}

/// Whether these nodes are a majority of every chain that counts.
pub(crate) fn is_majority(topology: &Topology, holds: &dyn Fn(NodeId) -> bool) -> bool {
    let is_held = |chain: &Vec<NodeId>| {
        let needed = usize::from(topology.copies).max(chain.len()) / 2 + 1;
        chain.iter().filter(|&&node| holds(node)).count() >= needed
    };
    topology.chains.iter().all(is_held)
}
