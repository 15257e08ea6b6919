//! What the agent needs of a bucket: the state of a copy, and the ways to change what it is.

use base::{Now, Seqno, Status, VbId, VbRole, VbUuid};
use engine::{Activation, Bucket};

/// The state of one copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// What it is.
    pub role: VbRole,
    /// The term of its role.
    pub term: u64,
    /// It was found after an unclean stop and may have lost what others have.
    pub unconfirmed: bool,
    /// There is something to drop.
    pub has_contents: bool,
    /// Nothing is known of it: it was not found on disk, and has neither been fed nor served since.
    pub blank: bool,
    /// It holds everything up to some point of the vBucket's history.
    pub complete: bool,
    /// The branch of history that `high_seqno` is on.
    pub vb_uuid: VbUuid,
    /// Up to where it can be made the active copy: the last mutation, but for one of a snapshot that is not whole.
    pub high_seqno: Seqno,
    /// Up to where everything is here and can be read.
    pub held: Seqno,
    /// It may have lost what it has acknowledged, and has not caught up since.
    pub may_lack: bool,
    /// Up to where everything is on disk, and whole after a kill.
    pub persisted: Seqno,
    /// The last mutation that is on disk.
    pub synced: Seqno,
}

/// One bucket's copies on this node. Every change is idempotent: asked for again, it is done.
pub trait Copies {
    /// The state of a copy.
    fn copy(&self, vb: VbId) -> Copy;

    /// Has copies serve, from the next branch of their history on; of each, whether it does.
    fn activate(&self, copies: &[Activation], now: Now) -> Vec<(VbId, Result<(), Status>)>;

    /// Changes the term and the chain of an active copy.
    ///
    /// # Errors
    /// When it is none.
    fn set_topology(&self, copy: &Activation, now: Now) -> Result<(), Status>;

    /// An active copy takes no durable writes any more, for it is to be sealed. As long as some are in progress, returns for
    /// how many milliseconds it has been waited for them.
    ///
    /// # Errors
    /// When a later term is known.
    fn drain(&self, vb: VbId, term: u64, now: Now) -> Result<Option<u64>, Status>;

    /// Ends an active copy's service for good; feeds go on to its end.
    ///
    /// # Errors
    /// When it is neither active nor was at the last stop.
    fn seal(&self, vb: VbId, term: u64) -> Result<(), Status>;

    /// Has a copy hold still until it is told whom to follow.
    ///
    /// # Errors
    /// When that could not be recorded.
    fn make_replica(&self, vb: VbId, term: u64) -> Result<(), Status>;

    /// A copy that has had no role yet has lost what it held at the last stop.
    ///
    /// # Errors
    /// When there is none.
    fn note_loss(&self, vb: VbId) -> Result<(), Status>;

    /// A copy has its role from another life of the group, whose terms say nothing in this one. It has none then, serves nobody, stays, and
    /// does not count before it has caught up.
    ///
    /// # Errors
    /// When there is none.
    fn forget_role(&self, vb: VbId) -> Result<(), Status>;

    /// Has a copy serve nobody; it stays.
    ///
    /// # Errors
    /// When that could not be recorded.
    fn make_dead(&self, vb: VbId, term: u64) -> Result<(), Status>;

    /// Has go what a copy holds that serves nobody, now or soon: [`Copy::has_contents`] tells. Waits for no disk.
    ///
    /// # Errors
    /// When it serves somebody.
    fn drop_contents(&self, vb: VbId, now: Now) -> Result<(), Status>;
}

impl Copies for Bucket {
    fn copy(&self, vb: VbId) -> Copy {
        let Ok(status) = self.vb_status(vb) else { return Copy::default() };
        Copy {
            role: status.role,
            term: status.term,
            unconfirmed: status.unconfirmed,
            has_contents: status.history.high_seqno > Seqno(0)
                || (status.role == VbRole::Dead && status.may_lack),
            blank: status.blank,
            complete: status.complete,
            vb_uuid: status.branch,
            high_seqno: status.promotable,
            held: status.held,
            may_lack: status.may_lack,
            persisted: status.history.persisted,
            synced: status.history.synced,
        }
    }

    fn activate(&self, copies: &[Activation], now: Now) -> Vec<(VbId, Result<(), Status>)> {
        self.activate_all(copies, now)
    }

    fn set_topology(&self, copy: &Activation, now: Now) -> Result<(), Status> {
        let Activation { vb, term, topology } = copy;
        Bucket::set_topology(self, *vb, *term, topology.clone(), now)
    }

    fn drain(&self, vb: VbId, term: u64, now: Now) -> Result<Option<u64>, Status> {
        Bucket::drain(self, vb, term, now)
    }

    fn seal(&self, vb: VbId, term: u64) -> Result<(), Status> {
        Bucket::seal(self, vb, term).map(drop)
    }

    fn make_replica(&self, vb: VbId, term: u64) -> Result<(), Status> {
        Bucket::make_replica(self, vb, term)
    }

    fn note_loss(&self, vb: VbId) -> Result<(), Status> {
        Bucket::note_loss(self, vb)
    }

    fn forget_role(&self, vb: VbId) -> Result<(), Status> {
        Bucket::forget_role(self, vb)
    }

    fn make_dead(&self, vb: VbId, term: u64) -> Result<(), Status> {
        Bucket::make_dead(self, vb, term)
    }

    fn drop_contents(&self, vb: VbId, now: Now) -> Result<(), Status> {
        self.drop_vb(vb, now)
    }
}
