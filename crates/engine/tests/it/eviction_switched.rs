//! What becomes of a bucket that evicted keys and is to keep all of them.

use std::sync::Arc;

use base::{
    Status,
    bucket::{BucketKind, EvictionPolicy},
};
use settee_engine::{BucketChange, BucketOptions, Store};

use crate::{
    full_eviction::{evict_everything, get, key, store},
    support::{Clock, Disk, FaultDisk, Rig, options},
};

const KEYS: usize = 20_000;

/// Readers bring evicted keys back, and nothing takes them out again.
#[test]
fn keys_come_back_as_far_as_the_quota_has_room() {
    let disks = (0..2).map(|shard| Arc::new(FaultDisk::new(7, shard)) as Arc<dyn Disk>).collect();
    let options = BucketOptions { eviction: EvictionPolicy::FullEviction, ..options(BucketKind::Couchbase) };
    let mut rig = Rig::over(options, Arc::default(), disks, Clock(0));
    for number in 0..KEYS {
        store(&rig, &key(number), Store::set(&[7; 100])).unwrap();
    }
    rig.flush();
    let stats = rig.bucket.stats();
    let metadata = stats.kv_bytes - stats.value_bytes;
    evict_everything(&rig);
    let quota = rig.bucket.stats().mem_used + metadata / 5;
    let eviction = Some(EvictionPolicy::ValueOnly);
    rig.bucket.reconfigure(BucketChange { eviction, quota_bytes: Some(quota), ..BucketChange::default() });
    let mut refused = 0;
    for number in 0..KEYS {
        match get(&rig, &key(number)) {
            Ok(value) => assert_eq!(value, [7; 100]),
            Err(status) => {
                assert_eq!(status, Status::TemporaryFailure);
                refused += 1;
            }
        }
        let used = rig.bucket.held_memory().used;
        assert!(used <= quota / 100 * 105, "{used} bytes of {quota} after {number} keys");
    }
    assert!(refused > KEYS / 2 && refused < KEYS, "{refused} were refused");
    let quota_bytes = Some(rig.options.quota_bytes);
    rig.bucket.reconfigure(BucketChange { quota_bytes, ..BucketChange::default() });
    (0..KEYS).for_each(|number| assert_eq!(get(&rig, &key(number)).unwrap(), [7; 100]));
    assert_eq!((rig.bucket.stats().curr_items, rig.bucket.stats().evicted), (KEYS as u64, 0));
}
