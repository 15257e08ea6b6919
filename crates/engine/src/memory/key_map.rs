//! Small per-vBucket maps from document keys, for the few keys in an unusual state (locked, pending, just fetched).
//!
//! Keyed by the 64-bit key hash, which the request has computed already. The key itself is kept and compared, so that
//! two keys with one hash never pass for each other. The second of such a pair cannot be entered while the first is
//! there. Callers then answer "busy", which a client that constructs collisions may well be told.
//!
//! Also here: telling which versions of a sequence are superseded within it.

use std::collections::{HashMap, HashSet, hash_map};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use base::{HashedKey, hash::key_hash};

/// Hands the 64 bits it is given through.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// An encoded key that hashes as everywhere else.
#[derive(PartialEq, Eq)]
struct Key<'k>(&'k [u8]);

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(key_hash(self.0));
    }
}

/// Encoded keys.
#[derive(Default)]
pub(crate) struct KeySet<'k>(HashSet<Key<'k>, BuildHasherDefault<PassThrough>>);

impl<'k> KeySet<'k> {
    /// False when it has been there already.
    pub(crate) fn insert(&mut self, key: &'k [u8]) -> bool {
        self.0.insert(Key(key))
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        // Not worth a hash where nothing can be found.
        !self.0.is_empty() && self.0.contains(&Key(key))
    }
}

/// Which keys of a sequence come again later in it.
pub(crate) fn repeated_later<'k>(keys: impl DoubleEndedIterator<Item = &'k [u8]>) -> Vec<bool> {
    let mut seen = KeySet::default();
    let mut repeated: Vec<bool> = keys.rev().map(|key| !seen.insert(key)).collect();
    repeated.reverse();
    repeated
}

/// See the module header.
#[derive(Debug)]
pub(crate) struct KeyMap<V> {
    entries: HashMap<u64, (Box<[u8]>, V), BuildHasherDefault<PassThrough>>,
}

/// Another key with the same hash is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Collision;

impl<V> Default for KeyMap<V> {
    fn default() -> Self {
        Self { entries: HashMap::default() }
    }
}

impl<V> KeyMap<V> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &[u8]) -> Option<&V> {
        if self.entries.is_empty() {
            return None;
        }
        self.entries.get(&hash).filter(|entry| *entry.0 == *key).map(|entry| &entry.1)
    }

    /// Enters a value, replacing the key's former one.
    pub(crate) fn insert(&mut self, key: HashedKey<'_>, value: V) -> Result<Option<V>, Collision> {
        match self.entries.entry(key.hash) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert((key.key.encoded().into(), value));
                Ok(None)
            }
            hash_map::Entry::Occupied(mut taken) if *taken.get().0 == *key.key.encoded() => {
                Ok(Some(std::mem::replace(&mut taken.get_mut().1, value)))
            }
            hash_map::Entry::Occupied(_) => Err(Collision),
        }
    }

    /// Whether a key could be entered: it is there already, or its hash is free.
    pub(crate) fn has_room_for(&self, key: HashedKey<'_>) -> bool {
        self.entries.get(&key.hash).is_none_or(|entry| *entry.0 == *key.key.encoded())
    }

    pub(crate) fn get_mut(&mut self, hash: u64, key: &[u8]) -> Option<&mut V> {
        self.entries.get_mut(&hash).filter(|entry| *entry.0 == *key).map(|entry| &mut entry.1)
    }

    /// The value of the one key with this hash.
    pub(crate) fn by_hash(&self, hash: u64) -> Option<&V> {
        self.entries.get(&hash).map(|entry| &entry.1)
    }

    pub(crate) fn by_hash_mut(&mut self, hash: u64) -> Option<&mut V> {
        self.entries.get_mut(&hash).map(|entry| &mut entry.1)
    }

    pub(crate) fn remove_by_hash(&mut self, hash: u64) -> Option<V> {
        self.entries.remove(&hash).map(|entry| entry.1)
    }

    pub(crate) fn remove(&mut self, hash: u64, key: &[u8]) -> Option<V> {
        self.get(hash, key)?;
        self.entries.remove(&hash).map(|entry| entry.1)
    }

    /// Bytes of the map and its keys, not of what values point to.
    pub(crate) fn bytes(&self) -> usize {
        let keys: usize = self.entries.values().map(|entry| entry.0.len()).sum();
        // One byte of control per entry.
        self.entries.capacity() * (size_of::<(u64, (Box<[u8]>, V))>() + 1) + keys
    }

    /// The values, in no particular order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|entry| &entry.1)
    }

    /// Takes out what `wanted` says, in no particular order.
    pub(crate) fn extract(&mut self, mut wanted: impl FnMut(&V) -> bool) -> Vec<V> {
        self.entries.extract_if(|_, entry| wanted(&entry.1)).map(|(_, entry)| entry.1).collect()
    }
}

#[cfg(test)]
mod tests {
    use base::DocKey;

    use super::*;

    #[test]
    fn a_key_that_comes_again_is_superseded() {
        let keys: [&[u8]; 5] = [b"a", b"b", b"a", b"c", b"a"];
        assert_eq!(repeated_later(keys.into_iter()), [true, false, true, false, false]);
    }

    #[test]
    fn keys_with_one_hash_never_pass_for_each_other() {
        let a = HashedKey { key: DocKey::trusted(b"\0a"), hash: 7 };
        let b = HashedKey { key: DocKey::trusted(b"\0b"), hash: 7 };
        let mut map = KeyMap::default();
        assert_eq!(map.insert(a, 1), Ok(None));
        assert_eq!(map.insert(b, 2), Err(Collision));
        assert!(map.has_room_for(a) && !map.has_room_for(b));
        assert_eq!(map.insert(a, 3), Ok(Some(1)));
        assert_eq!((map.get(7, b"\0a"), map.get(7, b"\0b")), (Some(&3), None));
        assert_eq!(map.remove(7, b"\0b"), None);
        assert_eq!(map.extract(|_| true), [3]);
        assert!(map.is_empty());
    }
}
