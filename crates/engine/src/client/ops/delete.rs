//! DELETE: a tombstone in the document's place.

use base::{HashedKey, Now, Status, VbId};

use crate::{
    api::{doc::Mutated, notify::Refusal, request::Delete},
    bucket::Bucket,
    vbucket::version::Found,
};

impl Bucket {
    /// DELETE. Always admitted while the disk works: it is how memory and disk become free.
    ///
    /// # Errors
    /// `KeyNotFound`, `KeyExists` on another CAS, `Locked`, `SyncWriteInProgress`, the durability statuses.
    pub fn delete(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        delete: &Delete,
        now: Now,
    ) -> Result<Mutated, Refusal> {
        let ctx = self.key_context(vb, key, now)?;
        let durable = self.durability(delete.durability)?;
        ctx.env.shard.gate.admits_deletes()?;
        let mut deferred = ctx.deferred();
        let mut v = ctx.lock()?;
        let found = v.settle_for_write(&ctx.env, key, &mut deferred)?;
        let Found::Live(current) = found else { return Err(Status::KeyNotFound.into()) };
        v.check_cas(&ctx.env, key, &current, delete.cas)?;
        let mutated = v.delete_item(&ctx.env, key, &current, false, durable, &mut deferred)?;
        v.ops.deletes += 1;
        Ok(mutated)
    }
}
