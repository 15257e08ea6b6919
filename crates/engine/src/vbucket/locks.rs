//! Pessimistic locks (GETL). A lock is a note beside the table, not a change of the document. It has a CAS of its own,
//! which is the key to it. It ends by unlock, by a mutation that presents that CAS, or by time.

use base::{Cas, HashedKey, Now, limits};

use crate::memory::key_map::{Collision, KeyMap};

/// One lock.
#[derive(Clone, Copy, Debug)]
struct Lock {
    cas: Cas,
    until_millis: u64,
}

/// The locks of one vBucket.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    by_key: KeyMap<Lock>,
}

impl Locks {
    /// The CAS of the lock on a key, if it has one now.
    #[inline]
    pub(crate) fn holder(&self, hash: u64, key: &[u8], now: Now) -> Option<Cas> {
        self.by_key.get(hash, key).filter(|lock| now.mono_millis < lock.until_millis).map(|lock| lock.cas)
    }

    /// Locks a key that is not locked, for `secs` or the default.
    pub(crate) fn acquire(
        &mut self,
        key: HashedKey<'_>,
        cas: Cas,
        secs: u32,
        now: Now,
    ) -> Result<(), Collision> {
        let secs = if secs == 0 || secs > limits::LOCK_SECS_MAX { limits::LOCK_SECS_DEFAULT } else { secs };
        let until_millis = now.mono_millis.saturating_add(u64::from(secs) * 1_000);
        self.by_key.insert(key, Lock { cas, until_millis }).map(|_| ())
    }

    /// Ends the lock on a key, if any.
    #[inline]
    pub(crate) fn release(&mut self, hash: u64, key: &[u8]) {
        if !self.by_key.is_empty() {
            self.by_key.remove(hash, key);
        }
    }

    /// Forgets locks that have run out.
    pub(crate) fn sweep(&mut self, now: Now) {
        if !self.by_key.is_empty() {
            self.by_key.extract(|lock| lock.until_millis <= now.mono_millis);
        }
    }

    /// Bytes of the notes.
    pub(crate) fn bytes(&self) -> usize {
        self.by_key.bytes()
    }

    /// Whether somebody may hold a lock.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}
