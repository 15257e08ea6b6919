//! What a vBucket that is being loaded knows: about which keys its table can be believed already.
//!
//! Keys are told apart by their bytes. Clients can compute the hash of a key, and choose two keys that share it.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};

use base::{HashedKey, Seqno};

/// Memory that a vBucket spends on keys that were looked up, about.
const VERIFIED_BYTES_MAX: usize = 512 << 10;
/// What a key takes there beside its bytes: its entry, twice for room to grow, and its allocation.
const VERIFIED_KEY_BYTES: usize = 56;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Warming {
    /// The last seqno at open: the table is right about anything newer.
    pub(crate) open_seqno: Seqno,
    /// Keys whose newest version on disk has been looked up: the table is right about them too.
    verified: HashSet<Box<[u8]>, BuildHasherDefault<DefaultHasher>>,
    /// Memory that those take, about.
    verified_bytes: usize,
    /// Of keys with hashes up to this one the table and the cold keys together are complete.
    pub(crate) settled: Option<u64>,
    /// Every document on disk is in the table or among the cold keys, but which version is valid only the disk can tell.
    pub(crate) is_counted: bool,
}

impl Warming {
    /// Of a vBucket with that last seqno.
    pub(crate) fn new(open_seqno: Seqno) -> Self {
        Self { open_seqno, ..Self::default() }
    }

    /// The table is right about a key from now on. The key's newest version on disk was looked up and, if the disk has
    /// one, put there.
    pub(crate) fn verify(&mut self, key: HashedKey<'_>) {
        if self.verified_bytes >= VERIFIED_BYTES_MAX {
            // In a shard with damage this never ends, and clients ask for keys without number. What is forgotten is
            // looked up again.
            self.verified = HashSet::default();
            self.verified_bytes = 0;
        }
        if self.verified.insert(key.key.encoded().into()) {
            self.verified_bytes += VERIFIED_KEY_BYTES + key.key.encoded().len();
        }
    }

    pub(crate) fn is_verified(&self, key: HashedKey<'_>) -> bool {
        !self.verified.is_empty() && self.verified.contains(key.key.encoded())
    }

    /// Memory that it takes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.verified_bytes
    }
}

#[cfg(test)]
mod tests {
    use base::DocKey;

    use super::*;

    #[test]
    fn what_was_looked_up_is_remembered_within_bounds() {
        let mut warming = Warming::default();
        for number in 0..100_000_u64 {
            let encoded = [b"\0key-that-was-looked-up", number.to_le_bytes().as_slice()].concat();
            let key = HashedKey::new(DocKey::trusted(&encoded));
            warming.verify(key);
            assert!(warming.is_verified(key) && warming.memory_bytes() < VERIFIED_BYTES_MAX + 1024);
        }
    }

    #[test]
    fn a_key_is_not_taken_for_another_one_with_its_hash() {
        let mut warming = Warming::default();
        let key = |encoded| HashedKey { key: DocKey::trusted(encoded), hash: 7 };
        warming.verify(key(b"\0a"));
        assert!(warming.is_verified(key(b"\0a")) && !warming.is_verified(key(b"\0b")));
    }
}
