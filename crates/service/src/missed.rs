//! Buckets whose operations take longer than they shall, as the node tells its services.

use std::collections::BTreeSet;

use base::BucketUuid;
use parking_lot::Mutex;

/// The buckets that miss their objective of latency on this node, as of the last seconds. Work that can wait gives way to their clients.
#[derive(Debug, Default)]
pub struct Missed(Mutex<BTreeSet<BucketUuid>>);

impl Missed {
    /// These do, and no others.
    pub fn tell(&self, buckets: BTreeSet<BucketUuid>) {
        *self.0.lock() = buckets;
    }

    /// Whether a bucket does.
    #[must_use]
    pub fn is_missed(&self, bucket: &BucketUuid) -> bool {
        self.0.lock().contains(bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_last_counts() {
        let (missed, [one, other]) = (Missed::default(), ["a", "b"].map(|uuid| BucketUuid(uuid.into())));
        missed.tell([one.clone()].into());
        assert_eq!([&one, &other].map(|uuid| missed.is_missed(uuid)), [true, false]);
        missed.tell([other.clone()].into());
        assert_eq!([&one, &other].map(|uuid| missed.is_missed(uuid)), [false, true]);
    }
}
