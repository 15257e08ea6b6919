//! The two hashes of a key: the one clients use to choose a vBucket, and the one the hash table and the
//! segment index share.

use crate::ids::VbId;

/// Which vBucket a logical key (without collection prefix) belongs to, as every Couchbase client computes it:
/// bits 16..31 of the IEEE CRC-32, modulo the number of vBuckets.
///
/// `vbuckets` must not be zero.
#[inline]
#[must_use]
pub fn vbucket_of(logical_key: &[u8], vbuckets: u16) -> VbId {
    let crc = crc32fast::hash(logical_key);
    VbId((((crc >> 16) & 0x7fff) % u32::from(vbuckets)) as u16)
}

/// The 64-bit hash of an encoded document key. Stored in segment footers: changing it is a format change.
#[inline]
#[must_use]
pub fn key_hash(encoded_key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(encoded_key)
}

/// 128 bits of an encoded document key for telling keys apart within one pass over them. `seed` is random and of that
/// pass alone: who chooses keys cannot choose them to collide.
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
