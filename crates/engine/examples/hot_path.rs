//! Measures what one GET and one SET cost inside the engine, without network or disk: nanoseconds of processor time per
//! operation. One thread uses keys in random order, in batches of 16, with and without prefetching.
//!
//! `cargo run --release -p settee-engine --example hot_path [items] [value bytes] [directory for a segment log]`

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{
    DocKey, HashedKey, Now, Seqno, VbId,
    bucket::BucketKind,
    hash::{key_hash, vbucket_of},
};
use settee_engine::{Bucket, BucketOptions, Budget, Notifier, Store, Waiter, Work};
use storage::{
    Backfill, BackfillOptions, CompactBudget, CompactReport, KvStore, Liveness, Locator, Options,
    OwnedRecord, Pin, RealFs, Record, StoreError, StoreStats, VbBatch, VbState,
};

/// Of an encoded key.
const KEY_BYTES: usize = 37;

struct Deaf;

impl Notifier for Deaf {
    fn wake(&self, _: Waiter) {}
    fn work(&self, _: Work) {}
}

/// A disk that takes everything and keeps nothing.
struct Sink;

impl KvStore for Sink {
    fn vb_states(&self) -> Vec<(VbId, VbState)> {
        Vec::new()
    }
    fn commit(&self, batches: &[VbBatch<'_>], locators: &mut Vec<Locator>) -> Result<(), StoreError> {
        locators.clear();
        locators.extend(
            batches.iter().flat_map(|part| part.records).map(|record| Locator(record.meta.seqno.get())),
        );
        Ok(())
    }
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
    fn put_states(&self, _: &[(VbId, VbState)]) -> Result<(), StoreError> {
        Ok(())
    }
    fn put_hints(&self, _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
    fn hints(&self) -> Option<Vec<u8>> {
        None
    }
    fn reset_vbs(&self, _: &[(VbId, VbState)]) -> Result<(), StoreError> {
        Ok(())
    }
    fn get_at(&self, _: Locator) -> Result<OwnedRecord, StoreError> {
        Err(StoreError::Stale)
    }
    fn lookup(&self, _: VbId, _: &[u8]) -> Result<Option<OwnedRecord>, StoreError> {
        Ok(None)
    }
    fn scan(
        &self,
        _: Option<VbId>,
        _: Seqno,
        _: bool,
        _: &mut dyn FnMut(VbId, &Record<'_>, Locator) -> bool,
    ) -> Result<(), StoreError> {
        Ok(())
    }
    fn generation(&self) -> u64 {
        0
    }
    fn pin(&self) -> Box<dyn Pin> {
        Box::new(Nothing)
    }
    fn backfill(&self, _: VbId, _: Seqno, _: BackfillOptions) -> Result<Box<dyn Backfill>, StoreError> {
        Err(StoreError::Reset)
    }
    fn compact(&self, _: &dyn Liveness, _: CompactBudget) -> Result<CompactReport, StoreError> {
        Ok(CompactReport::default())
    }
    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }
}

/// What a disk that keeps nothing keeps readable.
struct Nothing;

impl Pin for Nothing {
    fn get_at(&self, _: Locator) -> Result<OwnedRecord, StoreError> {
        Err(StoreError::Stale)
    }
    fn generation(&self) -> u64 {
        0
    }
}

/// Processor time of this thread so far.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Key {
    bytes: [u8; KEY_BYTES],
    vb: VbId,
    hash: u64,
}

impl Key {
    fn new(number: u64) -> Self {
        let mut bytes = [0; KEY_BYTES];
        bytes[1..].copy_from_slice(format!("key-{number:032}").as_bytes());
        let vb = vbucket_of(DocKey::trusted(&bytes).logical(), 1024);
        let hash = key_hash(&bytes);
        Self { bytes, vb, hash }
    }

    fn hashed(&self) -> HashedKey<'_> {
        HashedKey { key: DocKey::trusted(&self.bytes), hash: self.hash }
    }
}

fn main() {
    let number =
        |index, usual| std::env::args().nth(index).and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (items, value_bytes) = (number(1, 1_000_000), number(2, 100));
    measure("memory only", BucketKind::Ephemeral, Vec::new(), items, value_bytes);
    measure("no disk", BucketKind::Couchbase, vec![Arc::new(Sink)], items, value_bytes);
    if let Some(dir) = std::env::args().nth(3) {
        match storage::open(Path::new(&dir), Arc::new(RealFs), Options::default()) {
            Ok(log) => measure("segment log", BucketKind::Couchbase, vec![Arc::new(log)], items, value_bytes),
            Err(error) => eprintln!("{dir}: {error}"),
        }
    }
}

fn measure(title: &str, kind: BucketKind, stores: Vec<Arc<dyn KvStore>>, items: usize, value_bytes: usize) {
    let options = BucketOptions { kind, ..BucketOptions::new("hot", 16 << 30) };
    let mut now = Now { wall_nanos: 1_800_000_000_000_000_000, mono_millis: 0 };
    let Ok(bucket) = Bucket::open(options, stores, Arc::default(), Arc::new(Deaf), now) else {
        return eprintln!("no memory");
    };
    // Their hashes are random enough; reading them in order costs nothing that is not the engine's.
    let keys: Vec<Key> = (0..items as u64).map(Key::new).collect();
    let value = vec![7_u8; value_bytes];
    let mut refused = 0;
    let mut set = |name: &str, prefetch: bool, now: &mut Now| {
        let start = processor_time();
        let mut flushing = Duration::ZERO;
        for (batch, keys) in keys.chunks(16).enumerate() {
            if prefetch {
                announce(&bucket, keys);
            }
            for key in keys {
                refused += u32::from(bucket.store(key.vb, key.hashed(), &Store::set(&value), *now).is_err());
            }
            if batch % 4096 == 0 && kind == BucketKind::Couchbase {
                let begin = processor_time();
                now.mono_millis += 1_000;
                while bucket.flush(0, *now).more {}
                flushing += processor_time() - begin;
            }
        }
        let each = |time: Duration| time.as_nanos() as usize / items;
        println!(
            "{title:11} {name:22} {:4} ns + flush {:4} ns",
            each(processor_time() - start - flushing),
            each(flushing)
        );
    };
    set("SET new", false, &mut now);
    set("SET again", false, &mut now);
    set("SET again, prefetched", true, &mut now);
    assert_eq!(refused, 0);
    let mut buffer = vec![0_u8; value_bytes];
    for (name, prefetch) in [("GET", false), ("GET, prefetched", true)] {
        let start = processor_time();
        for keys in keys.chunks(16) {
            if prefetch {
                announce(&bucket, keys);
            }
            for key in keys {
                let hit = bucket.get(key.vb, key.hashed(), now, |view| buffer.copy_from_slice(view.value));
                assert!(hit.is_ok());
            }
        }
        println!("{title:11} {name:22} {:4} ns", (processor_time() - start).as_nanos() as usize / items);
    }
    let start = processor_time();
    for _ in 0..100 {
        bucket.expire(now, Budget::default());
        bucket.page(now, Budget::default());
        bucket.defragment(Budget::default());
    }
    println!("{title:11} housekeeping, idle     {:4} us", (processor_time() - start).as_micros() / 100);
    let stats = bucket.stats();
    println!("{title:11} {:.1} bytes per item beyond key and value", overhead(&stats, items, value_bytes));
}

fn overhead(stats: &settee_engine::BucketStats, items: usize, value_bytes: usize) -> f64 {
    stats.arena_committed as f64 / items as f64 - (KEY_BYTES + value_bytes) as f64
}

fn announce(bucket: &Bucket, keys: &[Key]) {
    for key in keys {
        bucket.prefetch(key.vb, key.hash);
    }
    for key in keys {
        bucket.prefetch_item(key.vb, key.hash);
    }
}
