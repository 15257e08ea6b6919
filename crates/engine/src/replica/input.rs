//! Streams: how one begins, what it says of the history, and where its snapshots begin and end.

use base::{Now, Seqno, Status, VbId, VbRole, VbUuid};
use parking_lot::MutexGuard;

use super::{ReplicaMarker, ReplicaStart};
use crate::{
    api::notify::Waiter,
    bucket::Bucket,
    replica::roles::check_follower,
    shard::{Env, Shard},
    vbucket::{VBucket, failover_table::FailoverTable, following::Inflow, snapshots::Open},
};

impl Bucket {
    /// Begins a stream of a term, in place of the one before.
    ///
    /// # Errors
    /// `NotMyVbucket` when the vBucket is no replica of that term, `TemporaryFailure` while what is no use is still to be
    /// dropped ([`crate::Work::Flush`]).
    pub fn replica_begin(&self, vb: VbId, term: u64, now: Now) -> Result<ReplicaStart, Status> {
        let (slot, shard) = self.slot(vb)?;
        let is_damaged = {
            let v = slot.vb.lock();
            check_follower(&v, term)?;
            v.is_damaged_copy()
        };
        if is_damaged {
            // The active has what it lacks.
            self.want_reset(vb, (VbRole::Replica, term), now)?;
        }
        let mut deferred = self.deferred(shard);
        let mut v = slot.vb.lock();
        check_follower(&v, term)?;
        if v.following.is_going || shard.to_reset.lock().contains_key(&vb) {
            // What was to go of one that is a replica again may be noted without the flusher's having been called.
            deferred.flush();
            return Err(Status::TemporaryFailure);
        }
        let inflow = v.following.begin(vb);
        if v.following.snapshots.open().is_some_and(|open| open.start == v.high_seqno) {
            // Nothing of it has come: what is asked for now may be told in another one, which may end earlier.
            v.following.snapshots.give_up();
        }
        let (start, (snap_start, snap_end)) = v.facts().position();
        Ok(ReplicaStart {
            inflow,
            vb_uuid: v.failover.uuid(),
            start,
            snap_start,
            snap_end,
            may_lack: v.may_lack,
            failover_log: v.failover.log().to_vec(),
            manifest_uid: v.events.told_up_to(v.high_seqno),
        })
    }

    /// The active has accepted the stream: its history is the copy's.
    ///
    /// # Errors
    /// `NotMyVbucket` when the inflow is void; `Invalid` when there is no history.
    pub fn replica_accept_log(
        &self,
        inflow: Inflow,
        log: &[(VbUuid, Seqno)],
        now: Now,
    ) -> Result<(), Status> {
        let Some(failover) = FailoverTable::adopted(log) else { return Err(Status::Invalid) };
        let (_, shard) = self.slot(inflow.vb)?;
        let env = Env { shard, kind: self.options.kind, now };
        let mut deferred = self.deferred(shard);
        let (mut v, _) = self.follower(inflow)?;
        v.is_unheard = false;
        if v.high_seqno == Seqno(0) {
            // A copy in the making, until it is told that nothing comes, or has the first snapshot.
            v.following.is_partial = true;
        }
        v.following.note_granted();
        if v.failover != failover {
            v.failover = failover;
            // Feeds label what they tell by the log before.
            v.following.logs = v.following.logs.wrapping_add(1);
            v.checkpoint.wake_all().into_iter().for_each(|waiter| deferred.wake(waiter));
            // Recorded with the next batch: until then nothing is on disk that is not of the branches before.
            v.record_soon(&env, &mut deferred);
            if env.is_persistent() && v.hold_back() {
                deferred.flush();
            }
        }
        Ok(())
    }

    /// The active's history goes only up to `to` with the copy. Where it has more, it is dropped altogether, and what comes
    /// then builds a new one. The inflow is void then. Waits for no disk: [`Bucket::replica_begin`] refuses until it is done.
    ///
    /// # Errors
    /// `NotMyVbucket` when the inflow is void.
    pub fn replica_rollback(&self, inflow: Inflow, to: Seqno, now: Now) -> Result<(), Status> {
        let term = {
            let (mut v, _) = self.follower(inflow)?;
            v.following.shut();
            if !v.facts().begins_anew(to) {
                return Ok(());
            }
            v.term
        };
        self.want_reset(inflow.vb, (VbRole::Replica, term), now)
    }

    /// A snapshot begins, or the open one goes on. An empty one says to a copy with nothing in it that this is all there is.
    ///
    /// # Errors
    /// `NotMyVbucket` when the inflow is void; `Range` when it leaves a gap, or ends before what is there already.
    pub fn replica_marker(&self, inflow: Inflow, marker: &ReplicaMarker, now: Now) -> Result<(), Status> {
        let (_, shard) = self.slot(inflow.vb)?;
        let env = Env { shard, kind: self.options.kind, now };
        let mut deferred = self.deferred(shard);
        let (mut v, _) = self.follower(inflow)?;
        let v = &mut *v;
        let open = v.following.snapshots.open().copied();
        let start = open.map_or(v.high_seqno, |open| open.start);
        let end_min = open.map_or(v.high_seqno, |open| open.end.max(v.high_seqno));
        if marker.start > v.high_seqno || marker.end < end_min {
            return Err(Status::Range);
        }
        let was_partial = v.following.is_partial;
        if v.high_seqno == Seqno(0) {
            // Whatever it was taken for while there was nothing: it is a copy in the making now.
            v.following.is_partial = true;
        }
        // What was said of the part that is here already is said once.
        let before = open.unwrap_or(Open { from_disk: false, ..Open::recovered((start, start)) });
        v.following.announce(Open {
            start,
            end: marker.end,
            from_disk: marker.from_disk || before.from_disk,
            high_completed: marker.high_completed.max(before.high_completed),
            max_visible: marker.max_visible.max(before.max_visible),
            purge_seqno: marker.purge_seqno.max(before.purge_seqno),
        });
        if v.high_seqno == marker.end {
            // (What has been here all along says nothing of what the active has beyond it, unless that is nothing.)
            v.end_snapshot(&env, &mut deferred);
            if was_partial {
                v.record_soon(&env, &mut deferred);
            }
        }
        Ok(())
    }

    /// Up to which seqno everything that was prepared is held here as its level asks for: what a replica acknowledges.
    ///
    /// # Errors
    /// `NotMyVbucket`.
    pub fn high_prepared(&self, vb: VbId) -> Result<Seqno, Status> {
        let (slot, _) = self.slot(vb)?;
        Ok(slot.vb.lock().high_prepared())
    }

    /// The same, for the stream that feeds the copy. If the seqno is not above `above` yet, the waiter is woken, once, when it has
    /// risen above that. A stream that was taken over learns nothing: its active would take what the copy has of the next one's
    /// history for its own. Nor does it take the place of the waiter that the next one has.
    ///
    /// # Errors
    /// `NotMyVbucket` when the inflow is void.
    pub fn await_high_prepared(&self, inflow: Inflow, above: Seqno, waiter: Waiter) -> Result<Seqno, Status> {
        let (mut v, _) = self.follower(inflow)?;
        let reached = v.high_prepared();
        if reached <= above {
            v.following.await_above(above, waiter);
        }
        Ok(reached)
    }

    /// The vBucket, locked, that an inflow is for.
    pub(super) fn follower(&self, inflow: Inflow) -> Result<(MutexGuard<'_, VBucket>, &Shard), Status> {
        let (slot, shard) = self.slot(inflow.vb)?;
        let v = slot.vb.lock();
        let is_good = v.role == VbRole::Replica && v.following.is_current(inflow);
        if is_good { Ok((v, shard)) } else { Err(Status::NotMyVbucket) }
    }
}
