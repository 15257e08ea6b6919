//! APPEND and PREPEND: a longer value under the same flags and expiry.

use base::{Datatype, HashedKey, Now, Status, VbId};

use super::xattr_bytes;
use crate::{
    api::{
        doc::Mutated,
        notify::Refusal,
        request::{Store, StoreMode},
    },
    bucket::Bucket,
    memory::item::{ItemMeta, NewItem, item_bytes},
    vbucket::version::{Found, Version},
};

impl Bucket {
    pub(super) fn concat(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        store: &Store<'_>,
        now: Now,
    ) -> Result<Mutated, Refusal> {
        let ctx = self.key_context(vb, key, now)?;
        let durable = self.durability(store.durability)?;
        self.admit(&ctx.env, item_bytes(key.key, store.value.len()))?;
        let mut deferred = ctx.deferred();
        let mut v = ctx.lock()?;
        if v.is_unseen(&ctx.env, key) {
            return Err(Status::NotStored.into());
        }
        let found = v.settle_for_write(&ctx.env, key, &mut deferred)?;
        let Found::Live(current) = found else { return Err(Status::NotStored.into()) };
        v.check_cas(&ctx.env, key, &current, store.cas)?;

        let mut value = self.plain_value(&mut v, key, &current)?;
        let has_xattrs = current.meta.datatype.contains(Datatype::XATTR);
        let body_start = if has_xattrs { xattr_bytes(&value) } else { 0 };
        self.check_size(value.len() + store.value.len())?;
        match store.mode {
            StoreMode::Prepend => drop(value.splice(body_start..body_start, store.value.iter().copied())),
            _ => value.extend_from_slice(store.value),
        }
        let mut datatype = (self.options.codec.recheck)(value.get(body_start..).unwrap_or_default());
        if has_xattrs {
            datatype = datatype.with(Datatype::XATTR);
        }
        let meta = ItemMeta {
            vb,
            flags: current.meta.flags,
            expiry: current.meta.expiry,
            datatype,
            ..ItemMeta::default()
        };
        let new = NewItem::new(&ctx.env.shard.arena, &meta, key.key.encoded(), &value)
            .ok_or_else(|| self.out_of_memory())?;
        let version = Version { cas: None, rev: v.next_rev(&found), durable };
        let mutated = v.put(&ctx.env, key, Some(&current), new, version, &mut deferred)?;
        v.ops.updates += 1;
        Ok(mutated)
    }
}
