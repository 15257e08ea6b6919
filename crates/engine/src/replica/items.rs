//! Items: each put where the active has put it.

use base::{HashedKey, Now, Seqno, Status, VbId, VbRole, bucket::DurabilityLevel};
use storage::{Locator, RecordKind};

use super::{ReplicaItem, ReplicaKind};
use crate::{
    api::notify::Refusal,
    bucket::Bucket,
    memory::{
        item::{ItemMeta, ItemPtr, NewItem, item_bytes},
        item_kind::set_kind,
    },
    shard::{Env, deferred::DeferredEffects},
    vbucket::{
        VBucket,
        following::Inflow,
        prepares::{Outcome, version_of},
        system_events::{Happening, SystemEvent},
    },
};

impl Bucket {
    /// The next item of the snapshot that is open. One that is there already is ignored.
    ///
    /// # Errors
    /// Nothing has changed after any of these but `Invalid`:
    ///
    /// - `NotMyVbucket` when the inflow is void
    /// - `Range` when it is outside of the snapshot
    /// - `TemporaryFailure` and `NoMemory` when there is no room for it just now
    /// - [`Refusal::Fetch`] when the disk has to be asked first
    /// - `Invalid` when it completes what is not prepared here: the copy is damaged, its inflow void, and the next
    ///   [`Bucket::replica_begin`] begins from nothing
    pub fn replica_item(&self, inflow: Inflow, item: &ReplicaItem<'_>, now: Now) -> Result<(), Refusal> {
        let (slot, shard) = self.slot(inflow.vb)?;
        let env = Env { shard, kind: self.options.kind, now };
        let mut deferred = self.deferred(shard);
        let (commits, is_history) = {
            let (mut v, _) = self.follower(inflow)?;
            if item.seqno <= v.high_seqno {
                return Ok(());
            }
            if v.following.announced().is_none_or(|open| item.seqno > open.end) {
                return Err(Status::Range.into());
            }
            if v.contradicts(&env, item) {
                v.note_damage(&env, &mut deferred);
                return Err(Status::Invalid.into());
            }
            let is_history = v.is_catching_up();
            let commits = match item.kind {
                ReplicaKind::Commit { prepared } => {
                    Some(v.pending.hold(&env, prepared).ok_or(Status::TemporaryFailure)?)
                }
                _ => None,
            };
            (commits, is_history)
        };
        // Made without the lock: values may be large. Nothing else changes what a replica holds meanwhile but the voiding of the
        // inflow.
        let new = self.replica_version(&env, inflow.vb, item, commits.as_ref(), is_history);
        commits.into_iter().for_each(|held| shard.release(held));
        let new = new?;
        let mut v = slot.vb.lock();
        if v.role != VbRole::Replica || !v.following.is_current(inflow) {
            return Err(Status::NotMyVbucket.into());
        }
        v.take_in(&env, item, new, &mut deferred)
    }

    /// What is put into table or checkpoint for an item, if anything is.
    fn replica_version<'e>(
        &self,
        env: &Env<'e>,
        vb: VbId,
        item: &ReplicaItem<'_>,
        commits: Option<&ItemPtr>,
        is_history: bool,
    ) -> Result<Option<NewItem<'e>>, Refusal> {
        let admit = |bytes: usize, frees: bool| match is_history && self.holds_back_history(env, bytes) {
            true => Err(Status::TemporaryFailure),
            false => self.admit_replica(env, bytes, frees),
        };
        let kind = match item.kind {
            ReplicaKind::Advance => return Ok(None),
            ReplicaKind::Mutation | ReplicaKind::System { deleted: false } => RecordKind::Document,
            ReplicaKind::Deletion | ReplicaKind::System { deleted: true } => RecordKind::Deletion,
            ReplicaKind::Expiration => RecordKind::Expiration,
            ReplicaKind::Prepare { level, deleted: false } => RecordKind::Prepare(level),
            ReplicaKind::Prepare { level, deleted: true } => RecordKind::PreparedDeletion(level),
            ReplicaKind::Abort { .. } => RecordKind::Abort,
            ReplicaKind::Commit { .. } => {
                let prepare = commits.map(|held| env.shard.item(held)).ok_or(Status::Internal)?;
                admit(item_bytes(item.key, prepare.value().len()), true)?;
                return Ok(Some(version_of(env, prepare).ok_or_else(|| self.out_of_memory())?));
            }
        };
        let prepared = if let ReplicaKind::Abort { prepared } = item.kind { prepared } else { Seqno(0) };
        let prepared = prepared.get().to_le_bytes();
        let value = if kind == RecordKind::Abort { &prepared[..] } else { item.value };
        admit(item_bytes(item.key, value.len()), kind.frees_space())?;
        let meta = ItemMeta {
            vb,
            cas: item.cas,
            rev: item.rev,
            flags: item.flags,
            expiry: item.expiry,
            datatype: item.datatype,
            deleted: kind.is_tombstone(),
            locator: Locator::NONE,
            ..ItemMeta::default()
        };
        let mut new = NewItem::new(&env.shard.arena, &meta, item.key.encoded(), value)
            .ok_or_else(|| self.out_of_memory())?;
        set_kind(&mut new, kind);
        Ok(Some(new))
    }

    /// Whether there is room for a replica's item: above everything that clients may fill, up to the quota.
    ///
    /// # Errors
    /// `TemporaryFailure` where that will change. `Internal` where it will not before a restart. Then the stream is to be given up: while
    /// it waits it holds up the vBuckets of other shards on its connection.
    fn admit_replica(&self, env: &Env<'_>, bytes: usize, frees: bool) -> Result<(), Status> {
        if env.shard.gate.is_poisoned() {
            return Err(Status::Internal);
        }
        env.shard.gate.admits_deletes()?;
        let fits = frees || !env.shard.gate.is_short_of_space();
        if fits && self.fits_reserve(env, bytes) { Ok(()) } else { Err(Status::TemporaryFailure) }
    }
}

impl VBucket {
    /// Whether an item completes a durable write that is not in progress here. (That one which was never here is aborted
    /// changes nothing: from disk it is not told of.)
    fn contradicts(&self, env: &Env<'_>, item: &ReplicaItem<'_>) -> bool {
        match item.kind {
            ReplicaKind::Commit { prepared } => self.pending.key_of(env, prepared) != Some(item.key),
            ReplicaKind::Abort { prepared } => {
                self.pending.key_of(env, prepared).is_some_and(|key| key != item.key)
            }
            _ => false,
        }
    }

    /// The copy turned out not to hold what it should: it is none any more.
    fn note_damage(&mut self, env: &Env<'_>, deferred: &mut DeferredEffects<'_>) {
        self.following.damage();
        self.record_soon(env, deferred);
    }

    fn take_in<'e>(
        &mut self,
        env: &Env<'e>,
        item: &ReplicaItem<'_>,
        new: Option<NewItem<'e>>,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<(), Refusal> {
        let key = HashedKey::new(item.key);
        match (item.kind, new) {
            (ReplicaKind::Prepare { .. }, Some(new)) => {
                // One that is open still has ended in what a snapshot from disk leaves out.
                self.close_prepare_of(key, Outcome::Aborted, env.now, deferred);
                self.prepare_at(env, key, new, item.seqno, deferred)?;
                if matches!(item.kind, ReplicaKind::Prepare { level: DurabilityLevel::PersistToMajority, .. })
                {
                    // The client waits for this disk too.
                    deferred.flush_durable();
                }
            }
            (ReplicaKind::Abort { prepared }, Some(new)) => {
                self.abort_at(env, prepared, new, item.seqno, deferred);
                // From disk only a key's last abort is told: an earlier prepare of the key has ended before.
                self.close_prepare_of(key, Outcome::Aborted, env.now, deferred);
            }
            (_, Some(new)) => {
                let (old, is_lost) = self.replaced_by_decree(key)?;
                self.publish_at(env, key, old.as_ref(), new, item.seqno, deferred)?;
                if is_lost {
                    self.give_up_lost(key);
                }
                let outcome = if let ReplicaKind::Commit { prepared } = item.kind {
                    self.checkpoint.note_commit(prepared);
                    Outcome::Committed(item.seqno)
                } else {
                    self.outcome_by(env, key, (item.seqno, item.cas))
                };
                self.close_prepare_of(key, outcome, env.now, deferred);
                if matches!(item.kind, ReplicaKind::System { .. })
                    && let Some(event) = SystemEvent::decode(item.value)
                {
                    self.events.follow(event.manifest_uid, item.seqno);
                    if let Happening::CollectionEnd { collection, .. } = event.what {
                        self.close_prepares_in(env, collection, deferred);
                    }
                }
            }
            (_, None) => self.advance(env, item.seqno, deferred),
        }
        self.hlc.witness(item.cas);
        self.following.snapshots.note_item();
        if self.following.announced().is_some_and(|open| open.end == item.seqno) {
            self.end_snapshot(env, deferred);
        }
        Ok(())
    }

    /// There is nothing up to a seqno.
    fn advance(&mut self, env: &Env<'_>, seqno: Seqno, deferred: &mut DeferredEffects<'_>) {
        self.high_seqno = seqno;
        self.record_soon(env, deferred);
    }

    /// Has the state recorded with the next batch, though no item carries it.
    pub(super) fn record_soon(&mut self, env: &Env<'_>, deferred: &mut DeferredEffects<'_>) {
        if env.is_persistent() {
            self.report_dirty(env, true, 0, deferred);
        }
    }

    /// The last seqno of the open snapshot is here.
    pub(super) fn end_snapshot(&mut self, env: &Env<'_>, deferred: &mut DeferredEffects<'_>) {
        let completed = self
            .following
            .snapshots
            .open()
            .filter(|open| open.from_disk)
            .map_or(Seqno(0), |open| open.high_completed.min(open.end));
        if completed > Seqno(0) {
            self.close_prepares_up_to(completed, env.now, deferred);
        }
        if completed > Seqno(0) && env.is_persistent() {
            // Nothing of it is acknowledged before it is synced.
            deferred.flush();
        }
        self.close_snapshot(env.is_persistent(), deferred);
    }
}
