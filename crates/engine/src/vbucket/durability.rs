//! Which durability level a write is to have, and which ones a kind of bucket can give. Whether there are enough copies for
//! it is the vBucket's matter ([`crate::vbucket::prepares`], [`crate::vbucket::chains`]).

use base::{
    Status,
    bucket::{BucketKind, DurabilityLevel},
};

/// The level of a write at `asked` level, if it has one.
///
/// # Errors
/// `NotSupported` for a cache, `DurabilityInvalidLevel` when the bucket has no disk.
pub(crate) fn level_of(
    asked: DurabilityLevel,
    minimum: DurabilityLevel,
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
    Ok(Some(level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_what_the_bucket_can_give() {
        use BucketKind::{Couchbase, Ephemeral, Memcached};
        use DurabilityLevel::{Majority, MajorityAndPersistActive, None, PersistToMajority};
        assert_eq!(level_of(None, None, Couchbase), Ok(Option::None));
        assert_eq!(level_of(Majority, None, Ephemeral), Ok(Some(Majority)));
        assert_eq!(
            level_of(Majority, MajorityAndPersistActive, Couchbase),
            Ok(Some(MajorityAndPersistActive))
        );
        assert_eq!(level_of(None, PersistToMajority, Couchbase), Ok(Some(PersistToMajority)));
        assert_eq!(level_of(PersistToMajority, None, Ephemeral), Err(Status::DurabilityInvalidLevel));
        assert_eq!(level_of(Majority, None, Memcached), Err(Status::NotSupported));
    }
}
