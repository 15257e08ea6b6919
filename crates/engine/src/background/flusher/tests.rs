//! How much the flusher writes at once.

use std::{path::Path, sync::Arc};

use base::Now;
use storage::{FaultFs, Options};

use super::*;
use crate::{BucketOptions, Notifier, Store, Waiter};

struct Deaf;

impl Notifier for Deaf {
    fn wake(&self, _: Waiter) {}
    fn work(&self, _: Work) {}
}

const VBUCKETS: u16 = 16;

/// Half a MiB in each vBucket.
fn fill(bucket: &Bucket, now: Now) {
    for vb in (0..VBUCKETS).map(VbId) {
        let store = Store::set(&[7; 512 << 10]);
        bucket.store(vb, HashedKey::new(DocKey::trusted(b"\0k")), &store, now).unwrap();
    }
}

#[test]
fn a_thread_that_asks_for_way_waits_for_one_commit_at_most() {
    let at = |mono_millis| Now { wall_nanos: 1_800_000_000 * 1_000_000_000, mono_millis };
    let log = storage::open(Path::new("/flushed"), Arc::new(FaultFs::new(1)), Options::default()).unwrap();
    let options = BucketOptions { vbuckets: VBUCKETS, ..BucketOptions::new("flushed", 256 << 20) };
    let bucket =
        Bucket::open(options, vec![Arc::new(log) as Arc<dyn KvStore>], Arc::default(), Arc::new(Deaf), at(0))
            .unwrap();
    // A disk that has shown that it takes many commits between two syncs.
    bucket.pace(at(0));
    fill(&bucket, at(0));
    while bucket.flush(0, at(10)).more {}
    bucket.pace(at(100));
    assert!(bucket.batch_bounds().sync_bytes > u64::from(VBUCKETS) << 19);

    fill(&bucket, at(100));
    let way = bucket.shards[0].gate.ask_for_way();
    let first = bucket.flush(0, at(110));
    assert!(first.synced && first.more && first.failed.is_none());
    assert!(first.items > 0 && first.items < usize::from(VBUCKETS), "{first:?}");
    drop(way);
    let second = bucket.flush(0, at(120));
    assert_eq!((first.items + second.items, second.more), (usize::from(VBUCKETS), false));
}
