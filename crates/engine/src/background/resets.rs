//! Copies that are to begin anew, or to go: how they are emptied, all those of a shard with one sync.

use base::{Now, Status, VbId, VbRole};
use parking_lot::MutexGuard;
use storage::VbState;

use crate::{
    bucket::Bucket,
    shard::{Flusher, Shard, failures, reset::Reset},
    vbucket::VBucket,
};

/// With so many copies to be emptied the flusher does not wait for more. Each time that it empties some, a compaction under way is
/// given up and a manifest is written.
const AT_ONCE: usize = 64;

impl Bucket {
    /// Empties the copies of a shard that are to begin anew, or to go, all of them with one sync.
    ///
    /// # Errors
    /// `TemporaryFailure` when the disk refuses: the caller finds them as they were, and asks for it again.
    pub(crate) fn reset_copies(
        &self,
        shard: &Shard,
        flusher: &MutexGuard<'_, Flusher>,
        now: Now,
    ) -> Result<(), Status> {
        // One that has become the active meanwhile stays as it is. From here on none can, for that takes the flusher as well; nor
        // does a stream begin of one that is noted.
        let stands = |vb: VbId, reset: &Reset| {
            self.slot(vb).is_ok_and(|(slot, _)| check_role_state(&slot.vb.lock(), reset.role_state).is_ok())
        };
        let noted: Vec<(VbId, Reset)> =
            shard.to_reset.lock().iter().map(|(&vb, &reset)| (vb, reset)).collect();
        let (wanted, void): (Vec<_>, Vec<_>) = noted.into_iter().partition(|(vb, reset)| stands(*vb, reset));
        let waits_for_others = shard.store.is_some()
            && wanted.len() < AT_ONCE
            && wanted.iter().all(|(_, reset)| reset.may_wait(now));
        let due = if waits_for_others { Vec::new() } else { wanted };
        let is_to_go = |(vb, reset): &(VbId, Reset)| self.begin_to_go(*vb, *reset).then_some(*vb);
        let vbs: Vec<VbId> = due.iter().filter_map(is_to_go).collect();
        let done = if vbs.is_empty() { Ok(()) } else { self.drop_contents(shard, flusher, &vbs, now) };
        if done.is_err() {
            vbs.into_iter().for_each(|vb| self.stay(vb));
        }
        let mut to_reset = shard.to_reset.lock();
        for (vb, reset) in due.into_iter().chain(void) {
            if to_reset.get(&vb) == Some(&reset) {
                to_reset.remove(&vb);
            }
        }
        done
    }

    /// A copy that is about to be emptied says so from here on. While the disk empties it, it may be given another role and
    /// stand for election. Returns whether it is to go still.
    fn begin_to_go(&self, vb: VbId, reset: Reset) -> bool {
        self.slot(vb).is_ok_and(|(slot, _)| {
            let mut v = slot.vb.lock();
            v.following.is_going = check_role_state(&v, reset.role_state).is_ok();
            v.following.is_going
        })
    }

    /// The disk has refused to empty a copy: it is what it was.
    fn stay(&self, vb: VbId) {
        if let Ok((slot, _)) = self.slot(vb) {
            slot.vb.lock().following.is_going = false;
        }
    }

    /// Begins a new, empty incarnation of vBuckets of a shard. The flusher is kept away: what it has taken belongs to the
    /// history that ends here.
    pub(crate) fn drop_contents(
        &self,
        shard: &Shard,
        _flusher: &MutexGuard<'_, Flusher>,
        vbs: &[VbId],
        now: Now,
    ) -> Result<(), Status> {
        let uuids: Vec<_> = vbs.iter().map(|&vb| (vb, self.uuid_after_reset(vb, now))).collect();
        if let Some(store) = &shard.store {
            let is_dead = |vb| self.slot(vb).is_ok_and(|(slot, _)| slot.vb.lock().role == VbRole::Dead);
            let empty = |&(vb, uuid): &_| {
                let mut state = VbState { is_partial: true, ..self.state_after_reset(shard, vb, uuid, now) };
                if is_dead(vb) {
                    // This node is nothing to it. Otherwise the next start would take it for a copy that may have lost something.
                    state.failover_log.clear();
                }
                (vb, state)
            };
            let states: Vec<_> = uuids.iter().map(empty).collect();
            store.reset_vbs(&states).map_err(|error| failures::refused(shard, &error))?;
        }
        for (vb, uuid) in uuids {
            let (slot, _) = self.slot(vb)?;
            let mut deferred = self.deferred(shard);
            // Declared before the lock, dropped after it.
            let _documents;
            let mut v = slot.vb.lock();
            _documents = v.reset(shard, uuid, &mut deferred);
            // It is a part now, which says as much and more.
            (v.is_unconfirmed, v.may_lack) = (false, false);
        }
        Ok(())
    }
}

/// Whether a vBucket is in that role and term.
pub(crate) fn check_role_state(v: &VBucket, role_state: (VbRole, u64)) -> Result<(), Status> {
    if (v.role, v.term) == role_state { Ok(()) } else { Err(Status::NotMyVbucket) }
}
