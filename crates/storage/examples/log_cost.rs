//! What the log costs: thread CPU microseconds per item for loading and for uniform overwriting with compaction,
//! bytes written per byte, space, and reopening.
//!
//! `cargo run --release -p settee-storage --example log_cost -- [items] [value bytes] [directory]`

use std::{
    error::Error,
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use base::{Seqno, VbId};
use settee_storage::{CompactBudget, KvStore, Options, RealFs, open};

use self::documents::{Documents, KEY_BYTES, thread_cpu_nanos};

#[path = "shared/documents.rs"]
mod documents;

const VBUCKETS: usize = 512;
const BATCH_ITEMS: usize = 2048;
fn micros(nanos: u64, items: usize) -> f64 {
    nanos as f64 / 1000.0 / items as f64
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (items, value_bytes) = (number(0, 1_000_000)?, number(1, 1000)?);
    let temporary = tempfile::tempdir()?;
    let dir = arguments.get(2).map_or(temporary.path().join("shard"), PathBuf::from);
    let mut documents = Documents::new(items, value_bytes, VBUCKETS);
    let payload = (items * (KEY_BYTES + value_bytes)) as f64;
    let store = open(&dir, Arc::new(RealFs), Options::default())?;

    let order: Vec<usize> = (0..items).collect();
    let (mut commit, mut sync) = (0, 0);
    for batch in order.chunks(BATCH_ITEMS) {
        commit += documents.write(&store, &mut batch.to_vec())?;
        let start = thread_cpu_nanos();
        store.sync()?;
        sync += thread_cpu_nanos() - start;
    }
    println!(
        "load: {:.3} us/item commit, {:.3} us/item sync; {:.3} bytes written per byte",
        micros(commit, items),
        micros(sync, items),
        store.stats().bytes_written as f64 / payload
    );

    let mut rng = fastrand::Rng::with_seed(11);
    let (mut commit, mut sync, mut compact, mut worst) = (0, 0, 0, 0.0f64);
    let before = store.stats();
    let overwrites = items * 3;
    for _ in 0..overwrites / BATCH_ITEMS {
        let mut batch: Vec<usize> = (0..BATCH_ITEMS).map(|_| rng.usize(0..items)).collect();
        batch.sort_unstable();
        batch.dedup();
        commit += documents.write(&store, &mut batch)?;
        let start = thread_cpu_nanos();
        store.sync()?;
        let synced = thread_cpu_nanos();
        store.compact(&documents, CompactBudget::default())?;
        sync += synced - start;
        compact += thread_cpu_nanos() - synced;
        worst = worst.max(store.stats().bytes_on_disk as f64 / payload);
    }
    let after = store.stats();
    println!(
        "overwrite: {:.3} us/item commit, {:.3} sync, {:.3} compaction; {:.3} bytes written per byte; disk at most {worst:.3}x",
        micros(commit, overwrites),
        micros(sync, overwrites),
        micros(compact, overwrites),
        (after.bytes_written + after.compaction_bytes_written
            - before.bytes_written
            - before.compaction_bytes_written) as f64
            / (payload * 3.0),
    );

    let mut wrong = 0;
    let start = thread_cpu_nanos();
    for item in (0..items).step_by(17) {
        let found = store.lookup(VbId((item % VBUCKETS) as u16), &documents.keys[item])?;
        wrong +=
            usize::from(found.is_none_or(|found| found.locator.0 != documents.locators[item].load(Relaxed)));
    }
    println!(
        "lookup: {:.3} us/item over {} segments, {wrong} wrong",
        micros(thread_cpu_nanos() - start, items / 17),
        after.segments
    );

    let start = Instant::now();
    store.abandon();
    let store = open(&dir, Arc::new(RealFs), Options::default())?;
    println!("reopen after a crash: {:?}, {} segments", start.elapsed(), store.stats().segments);
    store.close()?;
    drop(store);
    let start = Instant::now();
    let store = open(&dir, Arc::new(RealFs), Options::default())?;
    println!("reopen after a clean end: {:?}", start.elapsed());
    let start = Instant::now();
    let mut seen = 0u64;
    store.scan(None, Seqno(0), true, &mut |_, _, _| {
        seen += 1;
        true
    })?;
    println!("scan: {seen} records in {:?}", start.elapsed());
    Ok(())
}
