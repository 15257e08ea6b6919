//! Which durability levels a bucket can give, and which of them a write has to wait for.
//!
//! With no replica a majority is this node alone, so level `majority` is an ordinary write. The levels that ask for the
//! disk are prepared and committed ([`crate::prepares`]). With replicas configured that do not exist a durable write is
//! impossible, and says so before anything happens.

use base::{
    Status,
    bucket::{BucketKind, DurabilityLevel},
};

/// The level for which a write at `asked` level has to be synced, if it has to.
///
/// # Errors
/// `NotSupported` for a cache, `DurabilityInvalidLevel` when the bucket has no disk, `DurabilityImpossible` when the
/// chain has members that do not exist.
pub(crate) fn needs_sync(
    asked: DurabilityLevel,
    minimum: DurabilityLevel,
    replicas: u8,
    kind: BucketKind,
) -> Result<Option<DurabilityLevel>, Status> {
    let level = asked.max(minimum);
    if level == DurabilityLevel::None {
        return Ok(Option::None);
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
    Ok(level.needs_disk().then_some(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_what_one_node_can_give() {
        use BucketKind::{Couchbase, Ephemeral};
        use DurabilityLevel::{Majority, MajorityAndPersistActive, None, PersistToMajority};
        assert_eq!(needs_sync(None, None, 3, Couchbase), Ok(Option::None));
        assert_eq!(needs_sync(Majority, None, 0, Couchbase), Ok(Option::None));
        assert_eq!(
            needs_sync(MajorityAndPersistActive, None, 0, Couchbase),
            Ok(Some(MajorityAndPersistActive))
        );
        assert_eq!(needs_sync(None, PersistToMajority, 0, Couchbase), Ok(Some(PersistToMajority)));
        assert_eq!(needs_sync(Majority, None, 1, Couchbase), Err(Status::DurabilityImpossible));
        assert_eq!(needs_sync(PersistToMajority, None, 0, Ephemeral), Err(Status::DurabilityInvalidLevel));
        assert_eq!(needs_sync(Majority, None, 0, Ephemeral), Ok(Option::None));
        assert_eq!(needs_sync(Majority, None, 0, BucketKind::Memcached), Err(Status::NotSupported));
        assert_eq!(needs_sync(None, None, 0, BucketKind::Memcached), Ok(Option::None));
    }
}
