//! What this node is to each vBucket, and how that changes.
//!
//! Roles are decided elsewhere, for all nodes, under a *term* that grows with every decision. The engine obeys, and
//! refuses what belongs to a term before the one it knows. Asking twice for the same changes nothing.
//!
//! | | clients | input | feeds | expiry |
//! |---|---|---|---|---|
//! | Dead | refused | refused | end | rests |
//! | Replica | [`Bucket::get_replica`] | by its stream | [some](crate::FeedOptions::followers) | rests |
//! | Active | served | refused | told | acts |
//! | Sealed | refused | refused | told to the end | rests |
//!
//! Flushing, ejection, compaction and warm-up are the same whatever the role. A sealed vBucket gets no seqno any more, so what is
//! prepared stays so. A client that waits for it learns from the next active, by replication, what became of it. A copy that is to
//! leave the vBucket then never hears of it. So an active that is about to be sealed is *drained* first. It takes no durable writes
//! any more, goes on otherwise, and brings those in progress to their end, as nobody else can be active yet.
//!
//! An active begins with a branch of its own, behind what is whole of its copy, and that is synced before anything is
//! served. What others have behind that point is no part of its history.
//!
//! The role is a field of the vBucket, looked at under its lock by each operation. Beside the lock it can be read from the roles of all
//! vBuckets, which lie side by side. A change of role is seen there before anything of the new one is.

use base::{Now, Seqno, Status, VbId, VbRole, VbUuid};
use storage::{StoreError, VbBatch, VbState};

use crate::{
    background::resets::check_role_state,
    bucket::Bucket,
    history::told::VbHistory,
    shard::{Env, Shard, ceiling, deferred::DeferredEffects, failures, reset::Reset},
    vbucket::{
        VBucket,
        chains::{Chains, Topology},
        failover_table::{FailoverTable, branch_uuid, mix},
        locks::Locks,
        slot::RoleState,
    },
};

/// A vBucket that this node is to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// Which.
    pub vb: VbId,
    /// In which term.
    pub term: u64,
    /// Whose copies count.
    pub topology: Topology,
}

/// How a vBucket stands on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbStatus {
    /// What this node is to it.
    pub role: VbRole,
    /// Since which decision.
    pub term: u64,
    /// It was found after a stop that was not clean: others may have more of its history.
    pub unconfirmed: bool,
    /// Its history.
    pub history: VbHistory,
    /// It may have lost what it has acknowledged: it does not count when an active is chosen, but may be chosen.
    pub may_lack: bool,
    /// Up to here it holds everything, in memory at least, and can read it: what elections go by.
    pub held: Seqno,
    /// The snapshot that its last seqno lies in, if that is not whole.
    pub snapshot: Option<(Seqno, Seqno)>,
    /// It is no copy in the making, nor one that turned out to be damaged: it holds every durable write that it has ever
    /// acknowledged. Only such a copy may become the active, or count when one is chosen.
    pub complete: bool,
    /// Nothing is known of it: it was not found on disk, and has neither been fed nor served since.
    pub blank: bool,
    /// Up to here it is whole: where a new active would go on from.
    pub promotable: Seqno,
    /// The branch that it is on there.
    pub branch: VbUuid,
    /// Durable writes in progress.
    pub prepares: usize,
}

impl Bucket {
    /// Role and term of a vBucket. Takes no lock.
    ///
    /// # Errors
    /// `NotMyVbucket` when there is no such vBucket at all.
    pub fn vb_role(&self, vb: VbId) -> Result<(VbRole, u64), Status> {
        self.role_states.get(usize::from(vb.get())).map(RoleState::get).ok_or(Status::NotMyVbucket)
    }

    /// How a vBucket stands.
    ///
    /// # Errors
    /// `NotMyVbucket` when there is no such vBucket at all.
    pub fn vb_status(&self, vb: VbId) -> Result<VbStatus, Status> {
        let (slot, _) = self.slot(vb)?;
        let v = slot.vb.lock();
        Ok(VbStatus {
            role: v.role,
            term: v.term,
            unconfirmed: v.is_unconfirmed,
            history: v.history(),
            may_lack: v.may_lack || v.pending.is_damaged(),
            held: v.held(),
            snapshot: v.following.snapshots.open().map(|open| (open.start, open.end)),
            complete: !(v.following.is_partial || v.following.is_going),
            blank: v.is_blank(),
            promotable: v.promotable(),
            branch: v.failover.uuid_at(v.promotable()),
            prepares: v.pending.len(),
        })
    }

    /// As [`Bucket::activate_all`], of one vBucket.
    ///
    /// # Errors
    /// See there.
    pub fn activate(&self, vb: VbId, term: u64, topology: Topology, now: Now) -> Result<(), Status> {
        let answers = self.activate_all(&[Activation { vb, term, topology }], now);
        answers.into_iter().next().map_or(Err(Status::Internal), |answer| answer.1)
    }

    /// Makes this node the active of vBuckets. Each begins a branch (but for one whose branch nobody has heard of), is synced, and
    /// is served then. One sync serves all vBuckets of a shard. Of one that is active already, term and topology change.
    ///
    /// Each vBucket's answer is `Invalid` when a later term is known, and `TemporaryFailure` when the disk refuses. It
    /// is `NotMyVbucket` when the bucket has no such vBucket. It is that too when the vBucket is a copy in the making
    /// and other nodes may have a whole one.
    pub fn activate_all(&self, wanted: &[Activation], now: Now) -> Vec<(VbId, Result<(), Status>)> {
        let _one_at_a_time = self.role_changes.lock();
        // What the events of a vBucket are compared with. Before the flusher's lock, as everywhere.
        let _manifest_stays = self.manifest_changes.lock();
        let mut answers = Vec::with_capacity(wanted.len());
        let of_shards = self.shards.iter().filter_map(|shard| {
            let is_here =
                |wanted: &&Activation| self.slot(wanted.vb).is_ok_and(|found| found.1.index == shard.index);
            let of_shard: Vec<_> = wanted.iter().filter(is_here).collect();
            // Asked of all of them at once: while one is waited for the others come to where they can be interrupted.
            (!of_shard.is_empty()).then(|| (shard, of_shard, shard.gate.ask_for_way()))
        });
        for (shard, of_shard, way) in of_shards.collect::<Vec<_>>() {
            self.activate_in(shard, &of_shard, now, &mut answers);
            drop(way);
        }
        let unknown = wanted.iter().filter(|wanted| self.slot(wanted.vb).is_err());
        answers.extend(unknown.map(|wanted| (wanted.vb, Err(Status::NotMyVbucket))));
        answers
    }

    fn activate_in(
        &self,
        shard: &Shard,
        wanted: &[&Activation],
        now: Now,
        answers: &mut Vec<(VbId, Result<(), Status>)>,
    ) {
        // Keeps the flusher from recording the history before in place of the one that begins.
        let flusher = shard.flusher.lock();
        let mut begun: Vec<(&Activation, FailoverTable)> = Vec::new();
        let mut states: Vec<(VbId, VbState)> = Vec::new();
        let mut activated = Vec::new();
        for &activation in wanted {
            let answer = self.prepare_activation(shard, activation, now);
            match answer {
                Ok(Some((failover, state))) => {
                    begun.push((activation, failover));
                    states.extend(state.map(|state| (activation.vb, state)));
                }
                Ok(None) => {
                    activated.push(activation.vb);
                    answers.push((activation.vb, Ok(())));
                }
                Err(status) => answers.push((activation.vb, Err(status))),
            }
        }
        let recorded = self.record_branches(shard, &states, now);
        for (activation, failover) in begun {
            if recorded.is_ok() || !states.iter().any(|state| state.0 == activation.vb) {
                self.begin_to_serve(shard, activation, failover, now);
                activated.push(activation.vb);
                answers.push((activation.vb, Ok(())));
            } else {
                answers.push((activation.vb, recorded));
            }
        }
        drop(flusher);
        for vb in activated {
            if let Ok((slot, _)) = self.slot(vb) {
                self.complete_prepares(slot, shard, now);
            }
        }
    }

    /// Whether a vBucket may be activated: the history it would begin with, and the state to record before. `None` when it
    /// is active already.
    fn prepare_activation(
        &self,
        shard: &Shard,
        wanted: &Activation,
        now: Now,
    ) -> Result<Option<(FailoverTable, Option<VbState>)>, Status> {
        let (slot, _) = self.slot(wanted.vb)?;
        let mut deferred = self.deferred(shard);
        let mut v = slot.vb.lock();
        if wanted.term < v.term {
            return Err(Status::Invalid);
        }
        if v.role == VbRole::Active {
            self.change_topology(&mut v, wanted.term, wanted.topology.clone(), &mut deferred);
            return Ok(None);
        }
        let is_all_there_is = wanted.topology.chains.iter().all(|chain| chain.len() == 1);
        if !v.facts().may_be_activated(is_all_there_is) {
            return Err(Status::NotMyVbucket);
        }
        // Nothing comes in from here on, whatever becomes of this.
        v.following.shut();
        let mut failover = v.failover.clone();
        if v.is_blank() {
            // It is recorded with the first mutation: before that nothing can be compared.
            failover.begin_empty(wanted.term);
            return Ok(Some((failover, None)));
        }
        let salt = now.wall_nanos ^ mix(wanted.term.wrapping_add(1));
        failover.begin(branch_uuid(self.options.seed, wanted.vb.get(), salt), wanted.term, v.promotable());
        if ceiling::leads(v.hlc.last(), now) {
            // The active before had a clock that is ahead of this one's.
            shard.gate.want_ceiling(v.hlc.last());
        }
        let mut state = v.synced_state();
        let open = v.following.snapshots.open().map(|open| (open.start, open.end));
        // What has come of the open one is part of the history from here on.
        state.snapshot = state.snapshot.filter(|range| Some(*range) != open);
        state.failover_log = failover.log().to_vec();
        state.is_partial = false;
        Ok(Some((failover, shard.store.is_some().then_some(state))))
    }

    /// Syncs the histories that are about to begin, and a ceiling above what their clocks have seen.
    fn record_branches(&self, shard: &Shard, states: &[(VbId, VbState)], now: Now) -> Result<(), Status> {
        let Some(store) = shard.store.as_ref().filter(|_| !states.is_empty()) else { return Ok(()) };
        shard.gate.admits_deletes()?;
        // First: what it records with the ceiling is the history before.
        self.keep_ceiling_ahead(shard, &**store, now).map_err(|_| Status::TemporaryFailure)?;
        let states: Vec<_> = states
            .iter()
            .map(|(vb, state)| {
                let max_cas = shard.recorded_cas(*vb, state.max_cas, now);
                (*vb, VbState { max_cas, ..state.clone() })
            })
            .collect();
        let parts: Vec<_> =
            states.iter().map(|(vb, state)| VbBatch { vb: *vb, state, records: &[] }).collect();
        // A batch is one write and one sync, a manifest several of each; that finds room on a full disk, though.
        let recorded = store.commit(&parts, &mut Vec::new()).and_then(|()| store.sync());
        let recorded = match recorded {
            Err(StoreError::NoSpace) => store.put_states(&states),
            other => other,
        };
        recorded.map_err(|error| failures::refused(shard, &error))
    }

    fn begin_to_serve(&self, shard: &Shard, wanted: &Activation, failover: FailoverTable, now: Now) {
        let Ok((slot, _)) = self.slot(wanted.vb) else { return };
        let env = Env { shard, kind: self.options.kind, now };
        {
            let mut v = slot.vb.lock();
            (v.failover, v.is_unheard) = (failover, false);
            // A feed that was opened before must not go on by its log, should the copy follow another node's again.
            v.following.logs = v.following.logs.wrapping_add(1);
            v.following.snapshots.give_up();
            v.following.is_partial = false;
            v.following.note_log_synced();
            // Nothing but what it has counts from here on.
            (v.is_unconfirmed, v.may_lack) = (false, false);
            v.chains = Chains::new(wanted.topology.clone());
            v.pending.disown();
            v.note_whole();
        }
        // Before anybody writes: no document before its collection's beginning.
        self.tell_missed_events(slot, &env, wanted.vb);
        let mut deferred = self.deferred(shard);
        let mut v = slot.vb.lock();
        v.raise_high_prepared(env.is_persistent(), &mut deferred);
        self.set_role(&mut v, VbRole::Active, wanted.term, &mut deferred);
    }

    /// Changes whose copies of an active vBucket count. A later term begins with it: acknowledgements of the one before are
    /// forgotten.
    ///
    /// # Errors
    /// `NotMyVbucket` when this node is not the active, `Invalid` when a later term is known.
    pub fn set_topology(&self, vb: VbId, term: u64, topology: Topology, now: Now) -> Result<(), Status> {
        let (slot, shard) = self.slot(vb)?;
        {
            let mut deferred = self.deferred(shard);
            let mut v = slot.vb.lock();
            check_term(&v, term)?;
            if v.role != VbRole::Active {
                return Err(Status::NotMyVbucket);
            }
            self.change_topology(&mut v, term, topology, &mut deferred);
        }
        self.complete_prepares(slot, shard, now);
        Ok(())
    }

    fn change_topology(
        &self,
        v: &mut VBucket,
        term: u64,
        topology: Topology,
        deferred: &mut DeferredEffects<'_>,
    ) {
        if term > v.term {
            v.chains = Chains::new(topology);
            self.set_role(v, VbRole::Active, term, deferred);
        } else if *v.chains.topology() != topology {
            v.chains = v.chains.followed_by(topology);
        }
    }

    /// An active vBucket takes no durable writes any more in this term. It is about to be sealed, and the durable writes in
    /// progress are to end before that. Returns for how many milliseconds that has been waited for, as long as one is in
    /// progress. A vBucket that is sealed already need not be waited for. Nor need one that only knows an earlier term, in
    /// which nobody follows it any more.
    ///
    /// # Errors
    /// `Invalid` when a later term is known.
    pub fn drain(&self, vb: VbId, term: u64, now: Now) -> Result<Option<u64>, Status> {
        let mut v = self.slot(vb)?.0.vb.lock();
        check_term(&v, term)?;
        if (v.role, v.term) != (VbRole::Active, term) {
            return Ok(None);
        }
        let since = *v.draining_since.get_or_insert(now.mono_millis);
        Ok((v.pending.len() > 0).then(|| now.mono_millis.saturating_sub(since)))
    }

    /// An active vBucket takes nothing more: another node is about to take over. Returns its last seqno, which stays that.
    ///
    /// # Errors
    /// `NotMyVbucket` when this node is not the active, `Invalid` when a later term is known.
    pub fn seal(&self, vb: VbId, term: u64) -> Result<Seqno, Status> {
        let (slot, shard) = self.slot(vb)?;
        let mut deferred = self.deferred(shard);
        let mut v = slot.vb.lock();
        check_term(&v, term)?;
        match v.role {
            VbRole::Active => {
                v.locks = Locks::default();
                v.events.hand_over();
                self.set_role(&mut v, VbRole::Sealed, term, &mut deferred);
            }
            VbRole::Sealed if v.term == term => {}
            VbRole::Sealed => self.set_role(&mut v, VbRole::Sealed, term, &mut deferred),
            VbRole::Dead | VbRole::Replica => return Err(Status::NotMyVbucket),
        }
        Ok(v.high_seqno)
    }

    /// This node is to follow the active copy: input may begin ([`Bucket::replica_begin`]). What it holds stays, whatever
    /// it was.
    ///
    /// # Errors
    /// `Invalid` when a later term is known.
    pub fn make_replica(&self, vb: VbId, term: u64) -> Result<(), Status> {
        self.step_down(vb, VbRole::Replica, term)
    }

    /// A copy that nobody has given a role yet has lost what it held at the last stop. It does not count before it has
    /// caught up.
    ///
    /// # Errors
    /// `NotMyVbucket` when there is no such vBucket at all.
    pub fn note_loss(&self, vb: VbId) -> Result<(), Status> {
        let mut v = self.slot(vb)?.0.vb.lock();
        if v.role == VbRole::Dead && v.term == 0 {
            v.may_lack = true;
        }
        Ok(())
    }

    /// This node is nothing to the vBucket any more. What it holds stays.
    ///
    /// # Errors
    /// `Invalid` when a later term is known.
    pub fn make_dead(&self, vb: VbId, term: u64) -> Result<(), Status> {
        self.step_down(vb, VbRole::Dead, term)
    }

    fn step_down(&self, vb: VbId, role: VbRole, term: u64) -> Result<(), Status> {
        let _one_at_a_time = self.role_changes.lock();
        let (slot, shard) = self.slot(vb)?;
        let mut deferred = self.deferred(shard);
        let mut v = slot.vb.lock();
        check_term(&v, term)?;
        if role == VbRole::Replica {
            v.is_unconfirmed = false;
        }
        if (v.role, v.term) == (role, term) {
            return Ok(());
        }
        self.end_role(&mut v, (role, term), shard, &mut deferred);
        Ok(())
    }

    /// A copy has its role from another life of the group, whose terms say nothing in this one. From here on it has none, and
    /// follows whatever term comes. What it holds stays. That may lack what was acknowledged in the life that counts: it does not
    /// count before it has caught up. So it is with a copy that was the active one, too. It may be that the copy is to be the
    /// active in this life as well. Then no other copy has been the active since the life began, and it counts once it is
    /// activated.
    ///
    /// # Errors
    /// `NotMyVbucket` when there is no such vBucket at all.
    pub fn forget_role(&self, vb: VbId) -> Result<(), Status> {
        let _one_at_a_time = self.role_changes.lock();
        let (slot, shard) = self.slot(vb)?;
        let mut deferred = self.deferred(shard);
        let mut v = slot.vb.lock();
        // What it was to be emptied for was said in that life.
        shard.to_reset.lock().remove(&vb);
        self.end_role(&mut v, (VbRole::Dead, 0), shard, &mut deferred);
        v.may_lack = true;
        Ok(())
    }

    fn end_role(
        &self,
        v: &mut VBucket,
        (role, term): (VbRole, u64),
        shard: &Shard,
        deferred: &mut DeferredEffects<'_>,
    ) {
        if v.feeds() {
            // What it has prepared itself it holds, like what it was told.
            v.note_whole();
            v.raise_high_prepared(shard.store.is_some(), deferred);
        }
        v.locks = Locks::default();
        v.events.hand_over();
        if role == VbRole::Dead {
            v.pending.take_waiters().into_iter().for_each(|waiter| deferred.wake(waiter));
            v.persistence_waiters.drain(..).for_each(|entry| deferred.wake(entry.1));
        }
        self.set_role(v, role, term, deferred);
    }

    /// Has go what a dead vBucket holds: it is nothing then, and never was anything. Where there is a disk the flusher does it some
    /// time, for several together; asked for again meanwhile nothing changes. A vBucket that is given another role before that, or a
    /// later term, keeps what it holds.
    ///
    /// # Errors
    /// `NotMyVbucket` when the vBucket is not dead.
    pub fn drop_vb(&self, vb: VbId, now: Now) -> Result<(), Status> {
        let term = self.slot(vb)?.0.vb.lock().term;
        self.want_reset(vb, (VbRole::Dead, term), now)
    }

    /// What a vBucket holds in that role and term is no use, and is to go. That takes the flusher's lock and a sync.
    /// Neither the thread that reads streams nor the one that gives out roles must wait for these. So in a bucket with
    /// a disk the flusher does it, and no stream begins before it has.
    ///
    /// # Errors
    /// `NotMyVbucket` when the vBucket stands otherwise by now.
    pub(crate) fn want_reset(&self, vb: VbId, role_state: (VbRole, u64), now: Now) -> Result<(), Status> {
        let (slot, shard) = self.slot(vb)?;
        let mut deferred = self.deferred(shard);
        {
            let v = slot.vb.lock();
            check_role_state(&v, role_state)?;
            let mut to_reset = shard.to_reset.lock();
            if to_reset.get(&vb).is_none_or(|reset| reset.role_state != role_state) {
                to_reset.insert(vb, Reset { role_state, since_millis: now.mono_millis });
            }
        }
        if shard.store.is_none() {
            return self.reset_copies(shard, &shard.flusher.lock(), now);
        }
        if role_state.0 == VbRole::Replica {
            deferred.flush();
        }
        Ok(())
    }

    fn set_role(&self, v: &mut VBucket, role: VbRole, term: u64, deferred: &mut DeferredEffects<'_>) {
        (v.role, v.term, v.draining_since) = (role, term, None);
        if let Some(role_state) = self.role_states.get(usize::from(v.id.get())) {
            role_state.set(role, term);
        }
        v.following.shut();
        // Feeds are to look who tells them what.
        v.checkpoint.wake_all().into_iter().for_each(|waiter| deferred.wake(waiter));
    }
}

fn check_term(v: &VBucket, term: u64) -> Result<(), Status> {
    if term < v.term { Err(Status::Invalid) } else { Ok(()) }
}

/// Whether a vBucket is a replica of a term.
///
/// # Errors
/// `NotMyVbucket` when it is none.
pub(crate) fn check_follower(v: &VBucket, term: u64) -> Result<(), Status> {
    check_role_state(v, (VbRole::Replica, term))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{NodeId, bucket::BucketKind};

    use super::*;
    use crate::{BucketOptions, Notifier, Waiter, Work};

    struct Deaf;

    impl Notifier for Deaf {
        fn wake(&self, _: Waiter) {}

        fn work(&self, _: Work) {}
    }

    /// What is to be emptied waits for the flusher.
    #[test]
    fn what_was_promoted_meanwhile_is_not_emptied() {
        let (now, vb) = (Now { wall_nanos: 1 << 60, mono_millis: 0 }, VbId(0));
        let options = BucketOptions {
            kind: BucketKind::Ephemeral,
            vbuckets: 1,
            role: VbRole::Dead,
            ..BucketOptions::new("b", 64 << 20)
        };
        let bucket = Bucket::open(options, Vec::new(), Arc::default(), Arc::new(Deaf), now).unwrap();
        bucket.make_replica(vb, 1).unwrap();
        let topology = Topology { chains: vec![vec![NodeId(0)]], copies: 1, to_disk: false };
        bucket.activate(vb, 2, topology, now).unwrap();
        let before = bucket.vb_history(vb).unwrap();
        let shard = &bucket.shards[0];
        let wanted_at = |role, term| {
            shard.to_reset.lock().insert(vb, Reset { role_state: (role, term), since_millis: 0 });
            bucket.reset_copies(shard, &shard.flusher.lock(), now).unwrap();
            assert!(shard.to_reset.lock().is_empty());
            bucket.vb_history(vb).unwrap()
        };
        for (role, term) in [VbRole::Replica, VbRole::Dead].into_iter().zip([1, 2]) {
            assert_eq!(bucket.want_reset(vb, (role, term), now), Err(Status::NotMyVbucket));
            assert_eq!(wanted_at(role, term), before);
        }
        bucket.make_replica(vb, 3).unwrap();
        for (role, term) in [(VbRole::Replica, 1), (VbRole::Dead, 3)] {
            assert_eq!(bucket.want_reset(vb, (role, term), now), Err(Status::NotMyVbucket));
            assert_eq!(wanted_at(role, term), before);
        }
        assert_eq!(bucket.want_reset(vb, (VbRole::Replica, 3), now), Ok(()));
        assert!(!bucket.vb_status(vb).unwrap().complete);
    }
}
