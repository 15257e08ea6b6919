//! The hashes of a key: the one by which clients choose a vBucket, and two that clients cannot compute. Memory finds a key by
//! the first of these, whose secret belongs to the process. The disk finds it by the second, whose seed belongs to the shard.
//!
//! Clients choose their keys. A client that could compute one of the other two hashes could make thousands of keys collide.
//! Each request for one of these keys would walk through all of them.

use std::sync::OnceLock;

use crate::ids::VbId;

/// Which vBucket a logical key (without collection prefix) belongs to, as every Couchbase client computes it. It is
/// bits 16 to 30 of the IEEE CRC-32, modulo the number of vBuckets.
///
/// `vbuckets` must not be zero.
#[inline]
#[must_use]
pub fn vbucket_of(logical_key: &[u8], vbuckets: u16) -> VbId {
    let crc = crc32fast::hash(logical_key);
    VbId((((crc >> 16) & 0x7fff) % u32::from(vbuckets)) as u16)
}

/// Bytes of the secret of [`key_hash`].
pub const SECRET_BYTES: usize = 192;

/// What [`key_hash`] hashes with until [`set_secret`] was called: tests and simulations come out the same each time.
const KNOWN_SECRET: [u8; SECRET_BYTES] = xxhash_rust::const_xxh3::const_custom_default_secret(0);

static SECRET: OnceLock<[u8; SECRET_BYTES]> = OnceLock::new();

/// The secret is in use already: keys were hashed with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("keys have been hashed before the secret of their hash was set")]
pub struct SecretInUse;

/// Gives [`key_hash`] a secret for as long as the process runs. `secret` is random and known to nobody else.
///
/// # Errors
/// [`SecretInUse`] when a key was hashed before, or a secret was set.
pub fn set_secret(secret: [u8; SECRET_BYTES]) -> Result<(), SecretInUse> {
    SECRET.set(secret).map_err(|_| SecretInUse)
}

/// The 64-bit hash of an encoded document key that everything in memory uses. It differs from process to process and never
/// leaves one.
#[inline]
#[must_use]
pub fn key_hash(encoded_key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_secret(encoded_key, SECRET.get_or_init(|| KNOWN_SECRET))
}

/// The 64-bit hash of an encoded document key that a shard's indexes use. `seed` is the shard's: random, or 0 in shards that
/// were made before there were seeds. Stored in segment footers: changing it is a format change.
#[inline]
#[must_use]
pub fn disk_hash(encoded_key: &[u8], seed: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(encoded_key, seed)
}

/// 128 bits of an encoded document key for telling keys apart within one pass over them. `seed` is random and of that
/// pass alone: a client that chooses keys cannot choose them to collide.
#[inline]
#[must_use]
pub fn key_fingerprint(encoded_key: &[u8], seed: u64) -> u128 {
    xxhash_rust::xxh3::xxh3_128_with_seed(encoded_key, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_keys_go_where_the_official_clients_send_them() {
        assert_eq!(vbucket_of(b"k1", 1024), VbId(526));
        assert_eq!(vbucket_of(b"k2", 1024), VbId(775));
    }
}
