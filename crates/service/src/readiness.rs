//! What a service has still to do for copies that are to take over, as the node tells the one that leads.

use std::collections::{BTreeMap, BTreeSet};

use base::{BucketUuid, VbId};
use parking_lot::Mutex;

/// Copies of vBuckets, by bucket.
type OfBuckets = BTreeMap<BucketUuid, BTreeSet<VbId>>;

/// The copies that a service is not ready for.
#[derive(Debug, Default)]
pub struct Readiness(Mutex<OfBuckets>);

impl Readiness {
    /// The service is not ready for these copies, and for all others it is. It tells of a copy before that is whole: the copy may otherwise
    /// take over before the leader has heard that it is to wait.
    pub fn lacks(&self, copies: OfBuckets) {
        *self.0.lock() = copies;
    }

    /// Whether the service is not ready for a copy.
    #[must_use]
    pub fn is_lacking(&self, bucket: &BucketUuid, vb: VbId) -> bool {
        self.0.lock().get(bucket).is_some_and(|vbs| vbs.contains(&vb))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_last_counts() {
        let (readiness, one, other) = (Readiness::default(), BucketUuid("a".into()), BucketUuid("b".into()));
        let lacking = || [1, 2].map(|vb| readiness.is_lacking(&one, VbId(vb)));
        readiness.lacks([(one.clone(), [VbId(1), VbId(2)].into())].into());
        assert_eq!(lacking(), [true, true]);
        readiness.lacks([(one.clone(), [VbId(2)].into())].into());
        assert_eq!(lacking(), [false, true]);
        assert!(!readiness.is_lacking(&other, VbId(2)));
        readiness.lacks(OfBuckets::new());
        assert_eq!(lacking(), [false, false]);
    }
}
