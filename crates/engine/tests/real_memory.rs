//! What a bucket says it uses, against what the process has grown by. In a process of its own, for nobody else may allocate.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(target_os = "linux")]

mod support;

use std::sync::Arc;

use base::{HashedKey, VbId, bucket::BucketKind, hash};
use settee_engine::{Bucket, BucketOptions, Budget, Store};
use storage::{KvStore, RealFs};
use support::{Clock, Recorder, options};

const DOCUMENTS: u32 = 120_000;

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn write(bucket: &Bucket, numbers: impl Iterator<Item = u32>, clock: &mut Clock) {
    let mut value = vec![0; 2_000];
    for number in numbers {
        let name = format!("\0document-{number:010}");
        let key = HashedKey::new(base::DocKey::trusted(name.as_bytes()));
        let vb = VbId((key.hash % u64::from(bucket.vbuckets())) as u16);
        // Sizes from 200 to 2000, the same for a document each time.
        let length = 200 + (hash::key_hash(name.as_bytes()) % 1_800) as usize;
        value[..8].copy_from_slice(&u64::from(number).to_le_bytes());
        bucket.store(vb, key, &Store::set(&value[..length]), clock.now()).unwrap();
        if number % 1_000 == 0 {
            flush(bucket, clock);
        }
    }
    flush(bucket, clock);
}

fn flush(bucket: &Bucket, clock: &mut Clock) {
    clock.advance_secs(1);
    for shard in 0..bucket.shards() {
        while bucket.flush(shard, clock.now()).more {}
    }
}

/// Returns what the bucket says, what of its arena is holes, and what the process has grown by. Holes are resident only
/// as far as they were ever used.
fn compare(bucket: &Bucket, base: u64) -> (f64, f64, f64) {
    let stats = bucket.stats();
    let holes = stats.arena_committed - stats.arena_used;
    let grown = resident_bytes() - base;
    println!("grown by {grown}, says {} and {holes} of holes: {:?}", stats.mem_used, stats.pools);
    (stats.mem_used as f64, holes as f64, grown as f64)
}

#[test]
fn a_bucket_knows_what_it_uses_within_five_percent() {
    let dir = tempfile::tempdir().unwrap();
    let mut clock = Clock(0);
    let base = resident_bytes();
    let stores = (0..2)
        .map(|shard| {
            let path = dir.path().join(shard.to_string());
            std::fs::create_dir(&path).unwrap();
            let options = storage::Options { shard, ..storage::Options::default() };
            Arc::new(storage::open(&path, Arc::new(RealFs), options).unwrap()) as Arc<dyn KvStore>
        })
        .collect();
    let options =
        BucketOptions { quota_bytes: 400 << 20, vbuckets: 1024, shards: 2, ..options(BucketKind::Couchbase) };
    let recorder = Arc::new(Recorder::default());
    let bucket = Bucket::open(options, stores, Arc::default(), recorder, clock.now()).unwrap();
    write(&bucket, 0..DOCUMENTS, &mut clock);
    let (said, _, grown) = compare(&bucket, base);
    assert!((0.95..1.05).contains(&(grown / said)), "loaded: {grown} against {said}");

    write(&bucket, (0..DOCUMENTS).step_by(2), &mut clock);
    let (said, holes, grown) = compare(&bucket, base);
    assert!(grown > said * 0.95 && grown < (said + holes) * 1.05, "overwritten: {grown} against {said}");

    // A tenth stays resident; what is left of slabs is given back as far as it goes.
    let quota_bytes = Some(40 << 20);
    bucket.reconfigure(settee_engine::BucketChange { quota_bytes, ..Default::default() });
    while bucket.page(clock.now(), Budget::default()).more {}
    while bucket.defragment(Budget::default()).more {}
    let (said, holes, grown) = compare(&bucket, base);
    assert!(grown > said * 0.95 && grown < (said + holes) * 1.05, "ejected: {grown} against {said}");
}
