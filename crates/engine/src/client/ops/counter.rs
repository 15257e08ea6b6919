//! INCREMENT and DECREMENT: documents that are decimal numbers.

use base::{Cas, Datatype, HashedKey, Now, Status, VbId};

use super::{wire_expiry, xattr_bytes};
use crate::{
    api::{doc::Mutated, notify::Refusal, request::Counter},
    bucket::Bucket,
    memory::item::{ItemMeta, NewItem, item_bytes},
    vbucket::version::{Found, Version},
};

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

impl Bucket {
    /// INCREMENT and DECREMENT; returns the new number. An existing document keeps its flags, expiry and extended
    /// attributes.
    ///
    /// # Errors
    /// As [`Bucket::store`], and `DeltaBadValue` when the document is not a decimal number.
    pub fn counter(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        counter: &Counter,
        now: Now,
    ) -> Result<(u64, Mutated), Refusal> {
        let ctx = self.key_context(vb, key, now)?;
        let durable = self.durability(counter.durability)?;
        self.admit(&ctx.env, item_bytes(key.key, DIGITS_MAX))?;
        let mut deferred = ctx.deferred();
        let mut v = ctx.lock()?;
        if counter.initial.is_none() && v.is_unseen(&ctx.env, key) {
            return Err(Status::KeyNotFound.into());
        }
        let found = v.settle_for_write(&ctx.env, key, &mut deferred)?;
        let mut meta = ItemMeta { vb, ..ItemMeta::default() };
        let (number, mut value) = match &found {
            Found::Live(current) => {
                v.check_cas(&ctx.env, key, current, counter.cas)?;
                let mut value = self.plain_value(&mut v, key, current)?;
                meta.flags = current.meta.flags;
                meta.expiry = current.meta.expiry;
                let mut body_start = 0;
                if current.meta.datatype.contains(Datatype::XATTR) {
                    meta.datatype = Datatype::XATTR;
                    body_start = xattr_bytes(&value);
                }
                let number =
                    parse(value.get(body_start..).unwrap_or_default()).ok_or(Status::DeltaBadValue)?;
                value.truncate(body_start);
                (step(number, counter), value)
            }
            Found::Gone(_) | Found::Nothing => {
                let initial = counter.initial.ok_or(Status::KeyNotFound)?;
                if counter.cas != Cas::NONE {
                    return Err(Status::KeyNotFound.into());
                }
                meta.expiry = ctx.expiry(wire_expiry(counter.expiry).0);
                (initial, Vec::new())
            }
        };
        let digits = number.to_string();
        meta.datatype = meta.datatype.with((self.options.codec.recheck)(digits.as_bytes()));
        value.extend_from_slice(digits.as_bytes());
        let new = NewItem::new(&ctx.env.shard.arena, &meta, key.key.encoded(), &value)
            .ok_or_else(|| self.out_of_memory())?;
        let version = Version { cas: None, rev: v.next_rev(&found), durable };
        let mutated = v.put(&ctx.env, key, found.any(), new, version, &mut deferred)?;
        if found.live().is_some() {
            v.ops.updates += 1;
        } else {
            v.ops.creates += 1;
        }
        Ok((number, mutated))
    }
}

fn step(number: u64, counter: &Counter) -> u64 {
    if counter.decrement { number.saturating_sub(counter.delta) } else { number.wrapping_add(counter.delta) }
}

/// A decimal number and nothing else.
fn parse(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > DIGITS_MAX || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_digits_that_fit() {
        assert_eq!(parse(b"0"), Some(0));
        assert_eq!(parse(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"-1", b"+1", b" 1", b"1 ", b"1.0", b"x", b"18446744073709551616"] {
            assert_eq!(parse(bad), None);
        }
    }
}
