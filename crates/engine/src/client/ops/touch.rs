//! TOUCH and get-and-touch: another expiry, the same document.

use base::{HashedKey, Now, Status, VbId};

use super::get::{count_use, shown_cas};
use crate::{
    api::{
        doc::{DocView, Mutated},
        notify::Refusal,
    },
    bucket::Bucket,
    memory::item::{ItemMeta, NewItem, item_bytes},
    vbucket::version::{Found, Version},
};

impl Bucket {
    /// TOUCH and get-and-touch: gives the document a new expiry. With the expiry it has already nothing changes, its
    /// CAS included.
    ///
    /// # Errors
    /// `KeyNotFound`, `Locked`, `SyncWriteInProgress`.
    pub fn touch<R>(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        expiry_wire: u32,
        now: Now,
        read: impl FnOnce(&DocView<'_>) -> R,
    ) -> Result<(R, Mutated), Refusal> {
        let ctx = self.key_context(vb, key, now)?;
        self.admit(&ctx.env, 0)?;
        if !self.fits_overdraft(&ctx.env, item_bytes(key.key, 0)) {
            return Err(self.out_of_room(&ctx.env).into());
        }
        let expiry = ctx.expiry(expiry_wire);
        let arena = &ctx.env.shard.arena;
        let mut deferred = ctx.deferred();
        let mut v = ctx.lock()?;
        let current = v.settle_to_read_and_change(&ctx.env, key, now, &mut deferred)?;
        v.ops.get_hits += 1;
        let mutated = if expiry == current.meta.expiry {
            Mutated {
                cas: current.meta.cas,
                seqno: current.meta.seqno,
                vb_uuid: v.failover.uuid(),
                wait: false,
            }
        } else {
            let meta = ItemMeta {
                vb,
                flags: current.meta.flags,
                expiry,
                datatype: current.meta.datatype,
                ..ItemMeta::default()
            };
            let item = v.table.find(key.hash, key.key.encoded()).ok_or(Status::Internal)?;
            let new = NewItem::new(arena, &meta, key.key.encoded(), item.value())
                .ok_or_else(|| self.out_of_memory())?;
            let found = Found::Live(current);
            let version = Version { cas: None, rev: v.next_rev(&found), durable: None };
            let mutated = v.put(&ctx.env, key, found.live(), new, version, &mut deferred)?;
            v.ops.updates += 1;
            mutated
        };
        let item = v.table.find(key.hash, key.key.encoded()).ok_or(Status::Internal)?;
        count_use(item, v.ops.get_hits);
        let cas = shown_cas(&v, key, item, now);
        let result = read(&DocView::of(item, cas, arena));
        Ok((result, mutated))
    }
}
