//! Documents that go by numbers, in a bucket of some quota: what fills it.

use base::{Status, bucket::BucketKind};
use settee_engine::{BucketOptions, Store};

use super::{Rig, options};

pub(crate) fn rig(quota_bytes: u64) -> Rig {
    Rig::new(BucketOptions { quota_bytes, ..options(BucketKind::Couchbase) })
}

pub(crate) fn key(number: u32) -> Vec<u8> {
    format!("\0key{number:08}").into_bytes()
}

pub(crate) fn set(rig: &Rig, number: u32, value: &[u8]) -> Result<(), Status> {
    let now = rig.now();
    rig.run(&key(number), |bucket, vb, key| bucket.store(vb, key, &Store::set(value), now)).map(drop)
}
