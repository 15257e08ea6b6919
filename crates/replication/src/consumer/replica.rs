//! What a consumer needs of the bucket that it feeds: the replica's side of [`engine::Bucket`].
//!
//! A seam, so that the consumer's rules can be tested against a replica that checks them. Whatever a producer says has been
//! judged before it gets here, as far as it can be without knowing documents. What arrives is in order, inside its snapshot,
//! and has keys and values that a document may have.

use std::sync::Arc;

use base::{HashedKey, Now, Seqno, Status, VbId, VbUuid};
use engine::{Bucket, Inflow, Refusal, ReplicaItem, ReplicaMarker, Waiter};

/// Where a replica is, as a stream request tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start<I> {
    /// What entitles to feed the vBucket, until somebody else is.
    pub inflow: I,
    /// The branch of history that it is on.
    pub vb_uuid: VbUuid,
    /// The last seqno that it has.
    pub start: Seqno,
    /// Begin of the snapshot that this lies in.
    pub snap_start: Seqno,
    /// End of that snapshot.
    pub snap_end: Seqno,
    /// It may have lost what it has acknowledged: it has to be told all that is prepared in the first snapshot.
    pub may_lack: bool,
}

/// See the module header. "Temporary failure" and "out of memory" mean that no room is left now. "Invalid arguments"
/// means that the copy is damaged, and begins from nothing next time. Any other refusal is for good.
pub trait Replica {
    /// What entitles a stream to feed a vBucket.
    type Inflow: Copy + std::fmt::Debug;

    /// A stream for the vBucket is about to be asked for; earlier ones may feed it no longer.
    ///
    /// # Errors
    /// `NotMyVbucket` if it is not a replica at that term, `TemporaryFailure` while it is going back.
    fn begin(&self, vb: VbId, term: u64, now: Now) -> Result<Start<Self::Inflow>, Status>;

    /// The producer has granted the stream; its branches, newest first, are now those of the replica.
    ///
    /// # Errors
    /// When the stream is no longer entitled.
    fn accept_log(&self, inflow: Self::Inflow, log: &[(VbUuid, Seqno)], now: Now) -> Result<(), Status>;

    /// What is above `to` did not happen. Waits for no disk; [`Replica::begin`] tells afterwards how far back it went.
    ///
    /// # Errors
    /// When the stream is no longer entitled, or it cannot be done now.
    fn roll_back(&self, inflow: Self::Inflow, to: Seqno, now: Now) -> Result<(), Status>;

    /// A snapshot begins; an unfinished one goes on in it.
    ///
    /// # Errors
    /// When the stream is no longer entitled, or there is no room.
    fn marker(&self, inflow: Self::Inflow, marker: &ReplicaMarker, now: Now) -> Result<(), Status>;

    /// The next item. The waiter may be woken when there is room.
    ///
    /// # Errors
    /// As for a marker.
    fn item(
        &self,
        inflow: Self::Inflow,
        item: &ReplicaItem<'_>,
        waiter: Waiter,
        now: Now,
    ) -> Result<(), Status>;

    /// Every prepare up to this seqno is here, as durably as it asks for. If that is not above `above`, the waiter is woken once
    /// it is. Zero, and no waiter is woken, where the stream feeds the vBucket no longer.
    fn await_high_prepared(&self, inflow: Self::Inflow, above: Seqno, waiter: Waiter) -> Seqno;
}

impl Replica for Arc<Bucket> {
    type Inflow = Inflow;

    fn begin(&self, vb: VbId, term: u64, now: Now) -> Result<Start<Inflow>, Status> {
        let start = self.replica_begin(vb, term, now)?;
        Ok(Start {
            inflow: start.inflow,
            vb_uuid: start.vb_uuid,
            start: start.start,
            snap_start: start.snap_start,
            snap_end: start.snap_end,
            may_lack: start.may_lack,
        })
    }

    fn accept_log(&self, inflow: Inflow, log: &[(VbUuid, Seqno)], now: Now) -> Result<(), Status> {
        self.replica_accept_log(inflow, log, now)
    }

    fn roll_back(&self, inflow: Inflow, to: Seqno, now: Now) -> Result<(), Status> {
        self.replica_rollback(inflow, to, now)
    }

    fn marker(&self, inflow: Inflow, marker: &ReplicaMarker, now: Now) -> Result<(), Status> {
        self.replica_marker(inflow, marker, now)
    }

    fn item(&self, inflow: Inflow, item: &ReplicaItem<'_>, waiter: Waiter, now: Now) -> Result<(), Status> {
        match self.replica_item(inflow, item, now) {
            Ok(()) => Ok(()),
            Err(Refusal::Status(status)) => Err(status),
            Err(Refusal::Fetch) => {
                // Whatever comes of it, the item is brought again.
                self.fetch(inflow.vb, HashedKey::new(item.key), waiter)?;
                Err(Status::TemporaryFailure)
            }
        }
    }

    fn await_high_prepared(&self, inflow: Inflow, above: Seqno, waiter: Waiter) -> Seqno {
        // What is here is of another stream's history.
        Bucket::await_high_prepared(self, inflow, above, waiter).unwrap_or_default()
    }
}
