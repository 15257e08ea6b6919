//! What backfills cost: MB/s and documents/s of one vBucket and of all, from the disk and from the page cache. Both
//! are measured as commits left the store, and after compaction has sorted it by vBucket.
//!
//! `cargo run --release -p settee-storage --example backfill_cost -- [items] [value bytes] [vBuckets] [batch items]`

use std::{error::Error, fs, path::Path, sync::Arc, time::Instant};

use base::{Seqno, VbId};
use settee_storage::{BackfillOptions, CompactBudget, KvStore, Options, RealFs, SegmentLog, open};

use self::documents::{Documents, thread_cpu_nanos};

#[path = "shared/documents.rs"]
mod documents;

/// What a feed asks for at once.
const STEP_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (items, value_bytes) = (number(0, 1_000_000)?, number(1, 1000)?);
    let (vbuckets, batch_items) = (number(2, 1024)?, number(3, 4096)?);
    let temporary = tempfile::tempdir_in(".")?;
    let dir = temporary.path().join("shard");
    let store = open(&dir, Arc::new(RealFs), Options::default())?;
    let mut documents = Documents::new(items, value_bytes, vbuckets);
    let mut rng = fastrand::Rng::with_seed(3);
    // All once, then some again: compaction gets something to do, and backfills something to leave out.
    let mut order: Vec<usize> = (0..items).collect();
    rng.shuffle(&mut order);
    order.extend((0..items * 2 / 5).map(|_| rng.usize(0..items)));
    for batch in order.chunks(batch_items) {
        let mut batch = batch.to_vec();
        batch.sort_unstable();
        batch.dedup();
        documents.write(&store, &mut batch)?;
    }
    store.close()?;
    store.sync()?;
    println!("as committed, {batch_items} documents a batch over {vbuckets} vBuckets:");
    measure(&store, &dir, vbuckets)?;
    let start = Instant::now();
    while store.compact(&documents, CompactBudget { space_ratio: 1.0, ..CompactBudget::default() })?.more {}
    store.sync()?;
    println!("after compaction, which took {:?}:", start.elapsed());
    measure(&store, &dir, vbuckets)
}

fn measure(store: &SegmentLog, dir: &Path, vbuckets: usize) -> Result<(), Box<dyn Error>> {
    let all: Vec<u16> = (0..vbuckets as u16).collect();
    let one = [vbuckets as u16 / 2];
    for (name, vbs) in [("one vBucket", &one[..]), ("all vBuckets", &all)] {
        let in_order = BackfillOptions::default();
        let by_place = BackfillOptions { unordered: true, ..in_order };
        let keys_only = BackfillOptions { keys_only: true, ..in_order };
        for (order, options) in [("in order", in_order), ("by place", by_place), ("no values", keys_only)] {
            forget(dir)?;
            for cache in ["disk", "page cache"] {
                let (processor, start) = (thread_cpu_nanos(), Instant::now());
                let (mut documents, mut bytes) = (0u64, 0u64);
                for &vb in vbs {
                    let mut backfill = store.backfill(VbId(vb), Seqno(0), options)?;
                    while backfill.next(STEP_BYTES, &mut |record| {
                        documents += 1;
                        bytes += (record.key.len() + record.value.len()) as u64;
                    })? {}
                }
                let elapsed = start.elapsed().as_secs_f64();
                println!(
                    "{name:12} {order:9} from {cache:10}: {:7.1} MB/s {:8.0} documents/s, {:.2} us processor each, {:.4} s",
                    bytes as f64 / elapsed / 1e6,
                    documents as f64 / elapsed,
                    (thread_cpu_nanos() - processor) as f64 / documents as f64 / 1000.0,
                    elapsed
                );
            }
        }
    }
    Ok(())
}

/// Drops the files from the page cache.
fn forget(dir: &Path) -> Result<(), Box<dyn Error>> {
    use std::os::fd::AsRawFd;
    for entry in fs::read_dir(dir)? {
        let file = fs::File::open(entry?.path())?;
        file.sync_all()?;
        // SAFETY: plain system call on a descriptor that is open here; no memory is passed.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    Ok(())
}
