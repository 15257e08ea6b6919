//! Places for answers that are begun: each holds a thread that may block while it waits for an index.
//!
//! A bucket has half of the places at most. So an index that does not come on keeps nobody from asking another bucket.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use base::BucketUuid;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// See the module.
pub(super) struct Places {
    of_bucket_max: usize,
    all: Arc<Semaphore>,
    of_buckets: Mutex<HashMap<BucketUuid, Arc<Semaphore>>>,
}

/// A place, until it is dropped.
pub(super) struct Place {
    _of_bucket: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self { of_bucket_max: most / 2, all: Arc::new(Semaphore::new(most)), of_buckets: Mutex::default() }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// Never: nothing closes the semaphores.
    pub(super) async fn take(&self, bucket: &BucketUuid) -> Result<Place, AcquireError> {
        let of_bucket = self.of(bucket).acquire_owned().await?;
        let of_all = Arc::clone(&self.all).acquire_owned().await?;
        Ok(Place { _of_bucket: of_bucket, _of_all: of_all })
    }

    fn of(&self, bucket: &BucketUuid) -> Arc<Semaphore> {
        let mut known = self.of_buckets.lock().unwrap_or_else(PoisonError::into_inner);
        // A bucket that nobody asks has no entry: buckets come and go.
        known.retain(|_, places| Arc::strong_count(places) > 1);
        let places =
            known.entry(bucket.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.of_bucket_max)));
        Arc::clone(places)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_bucket_has_half_of_the_places() {
        let (places, one, other) = (Places::new(4), BucketUuid("a".into()), BucketUuid("b".into()));
        let soon = Duration::from_millis(20);
        let first = places.take(&one).await.unwrap();
        let _second = places.take(&one).await.unwrap();
        assert!(timeout(soon, places.take(&one)).await.is_err(), "it has its half");
        let others = [places.take(&other).await.unwrap(), places.take(&other).await.unwrap()];
        drop(first);
        assert!(timeout(soon, places.take(&one)).await.is_ok(), "a place came back");
        drop(others);
        assert!(timeout(soon, places.take(&other)).await.is_ok());
        assert_eq!(places.of_buckets.lock().unwrap().len(), 2);
    }
}
