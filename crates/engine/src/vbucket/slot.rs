//! A vBucket's place in its bucket: the lock, and what can be looked at beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::{Status, VbId, VbRole};
use parking_lot::Mutex;

use crate::{api::notify::Notifier, memory::hash_table::TableHint, shard::Shard, vbucket::VBucket};

/// Where vBuckets are found: the bucket, as what lies below it sees it.
pub(crate) trait Home: Send + Sync {
    /// A vBucket and its shard.
    ///
    /// # Errors
    /// `NotMyVbucket`.
    fn at(&self, vb: VbId) -> Result<(&Slot, &Shard), Status>;

    /// Takes calls for work, and wakes.
    fn notifier(&self) -> &dyn Notifier;

    /// Counts the cursors of all vBuckets.
    fn cursors(&self) -> &AtomicUsize;
}

/// A vBucket with its lock, on cache lines of its own.
#[repr(align(128))]
pub(crate) struct Slot {
    pub(crate) hint: Arc<TableHint>,
    pub(crate) vb: Mutex<VBucket>,
}

/// Bits of a word that tell the role; the term is above them.
const ROLE_BITS: u32 = 2;

/// Role and term of a vBucket, for a reader that does not hold its lock.
#[derive(Debug, Default)]
pub(crate) struct RoleState(AtomicU64);

impl RoleState {
    pub(crate) fn set(&self, role: VbRole, term: u64) {
        // Pairs with the load: a reader that sees what was made in a role sees the role.
        self.0.store(pack(role, term), Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> (VbRole, u64) {
        let word = self.0.load(Ordering::SeqCst);
        let role = match word & ((1 << ROLE_BITS) - 1) {
            1 => VbRole::Replica,
            2 => VbRole::Active,
            3 => VbRole::Sealed,
            _ => VbRole::Dead,
        };
        (role, word >> ROLE_BITS)
    }
}

const fn pack(role: VbRole, term: u64) -> u64 {
    let role = match role {
        VbRole::Dead => 0,
        VbRole::Replica => 1,
        VbRole::Active => 2,
        VbRole::Sealed => 3,
    };
    term << ROLE_BITS | role
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_state_tells_role_and_term() {
        let role_state = RoleState::default();
        assert_eq!(role_state.get(), (VbRole::Dead, 0));
        for role in [VbRole::Dead, VbRole::Replica, VbRole::Active, VbRole::Sealed] {
            role_state.set(role, u64::MAX >> ROLE_BITS);
            assert_eq!(role_state.get(), (role, u64::MAX >> ROLE_BITS));
        }
    }
}
