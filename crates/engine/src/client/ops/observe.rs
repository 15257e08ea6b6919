//! OBSERVE and `OBSERVE_SEQNO`: how far a mutation has come.

use base::{Cas, HashedKey, Now, Seqno, Status, VbId, VbRole, VbUuid};

use crate::{
    api::{
        doc::{Observed, ObservedSeqno, ObservedState},
        notify::Refusal,
    },
    bucket::Bucket,
};

impl Bucket {
    /// OBSERVE for one key, on replicas too. A tombstone that is on disk has left memory and counts as not found.
    ///
    /// # Errors
    /// `NotMyVbucket`, `UnknownCollection`; absence is a state, not an error.
    pub fn observe(&self, vb: VbId, key: HashedKey<'_>, now: Now) -> Result<Observed, Refusal> {
        let ctx = self.key_context(vb, key, now)?;
        let mut deferred = ctx.deferred();
        let (mut v, role) = match ctx.lock_as(VbRole::Replica) {
            Ok(v) => (v, VbRole::Replica),
            Err(_) => (ctx.lock()?, VbRole::Active),
        };
        match role {
            VbRole::Replica => v.settle_replica(&ctx.env, key)?,
            _ => v.settle(&ctx.env, key, &mut deferred)?,
        };
        let whole = v.synced_whole();
        if let Some(item) = v.shown(&ctx.env, key) {
            let synced = ctx.env.is_persistent() && !item.is_dirty() && item.seqno() <= whole;
            let state = if synced { ObservedState::Persisted } else { ObservedState::InMemory };
            return Ok(Observed { state, cas: item.cas() });
        }
        match v.table.find(key.hash, key.key.encoded()) {
            Some(item) if item.is_deleted() && item.is_dirty() => {
                Ok(Observed { state: ObservedState::Deleted, cas: item.cas() })
            }
            Some(item) if item.is_deleted() && !ctx.env.is_persistent() => {
                Ok(Observed { state: ObservedState::Deleted, cas: item.cas() })
            }
            _ => Ok(Observed { state: ObservedState::NotFound, cas: Cas::NONE }),
        }
    }

    /// `OBSERVE_SEQNO`, of replicas too.
    ///
    /// # Errors
    /// `NotMyVbucket`, `KeyNotFound` when the uuid is none of this vBucket's.
    pub fn observe_seqno(&self, vb: VbId, uuid: VbUuid) -> Result<ObservedSeqno, Refusal> {
        let (slot, _) = self.slot(vb)?;
        let v = slot.vb.lock();
        if v.role == VbRole::Dead {
            return Err(Status::NotMyVbucket.into());
        }
        let failed_over: Option<(VbUuid, Seqno)> = if v.failover.uuid() == uuid {
            None
        } else {
            Some((uuid, v.failover.end_of(uuid).ok_or(Status::KeyNotFound)?))
        };
        Ok(ObservedSeqno {
            uuid: v.failover.uuid(),
            persisted: v.synced_whole(),
            current: v.high_seqno,
            failed_over,
        })
    }
}
