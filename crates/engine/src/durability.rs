//! Durable writes on a chain of one.
//!
//! With no replica a majority is this node alone, so level `majority` is an ordinary write. The levels that ask for the
//! disk are *pending* until synced: the new version has its seqno and waits in the checkpoint like any other, while
//! readers are shown the version before it and other writers of the key are told `SyncWriteInProgress`. What completes
//! them is the flusher, whether or not anybody still waits. With replicas configured that do not exist a durable write
//! is impossible, and says so before anything happens.

use base::{
    Seqno, Status,
    bucket::{BucketKind, DurabilityLevel},
};

use crate::item::ItemPtr;

/// A write whose version in the table must not be seen yet.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Visible once this is synced.
    pub(crate) seqno: Seqno,
    /// What readers see until then.
    pub(crate) previous: Option<ItemPtr>,
}

/// Whether a write at `asked` level is pending until synced.
///
/// # Errors
/// `NotSupported` for a cache, `DurabilityInvalidLevel` when the bucket has no disk, `DurabilityImpossible` when the
/// chain has members that do not exist.
pub(crate) fn needs_sync(
    asked: DurabilityLevel,
    minimum: DurabilityLevel,
    replicas: u8,
    kind: BucketKind,
) -> Result<bool, Status> {
    let level = asked.max(minimum);
    if level == DurabilityLevel::None {
        return Ok(false);
    }
    if kind == BucketKind::Memcached {
        return Err(Status::NotSupported);
    }
    if level.needs_disk() && kind != BucketKind::Couchbase {
        return Err(Status::DurabilityInvalidLevel);
    }
    if replicas > 0 {
        return Err(Status::DurabilityImpossible);
    }
    Ok(level.needs_disk())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_what_one_node_can_give() {
        use BucketKind::{Couchbase, Ephemeral};
        use DurabilityLevel::{Majority, MajorityAndPersistActive, None, PersistToMajority};
        assert_eq!(needs_sync(None, None, 3, Couchbase), Ok(false));
        assert_eq!(needs_sync(Majority, None, 0, Couchbase), Ok(false));
        assert_eq!(needs_sync(MajorityAndPersistActive, None, 0, Couchbase), Ok(true));
        assert_eq!(needs_sync(None, PersistToMajority, 0, Couchbase), Ok(true));
        assert_eq!(needs_sync(Majority, None, 1, Couchbase), Err(Status::DurabilityImpossible));
        assert_eq!(needs_sync(PersistToMajority, None, 0, Ephemeral), Err(Status::DurabilityInvalidLevel));
        assert_eq!(needs_sync(Majority, None, 0, Ephemeral), Ok(false));
        assert_eq!(needs_sync(Majority, None, 0, BucketKind::Memcached), Err(Status::NotSupported));
        assert_eq!(needs_sync(None, None, 0, BucketKind::Memcached), Ok(false));
    }
}
