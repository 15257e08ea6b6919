//! What the log costs: thread CPU microseconds per item for loading and for uniform overwriting with compaction,
//! bytes written per byte, space, and reopening.
//!
//! `cargo run --release -p settee-storage --example log_cost -- [items] [value bytes] [directory]`

use std::{
    error::Error,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use base::{Cas, Datatype, Seqno, VbId, VbUuid};
use settee_storage::{
    CompactBudget, KvStore, Liveness, Locator, Options, RealFs, Record, RecordKind, RecordMeta, SegmentLog,
    VbBatch, VbState, Verdict, open,
};

const VBUCKETS: usize = 512;
const BATCH_ITEMS: usize = 2048;
const KEY_BYTES: usize = 37;

struct Documents {
    keys: Vec<[u8; KEY_BYTES]>,
    hashes: Vec<u64>,
    locators: Vec<AtomicU64>,
    values: Vec<u8>,
    value_bytes: usize,
    seqnos: Vec<u64>,
}

impl Documents {
    fn new(items: usize, value_bytes: usize) -> Self {
        let key = |n: usize| {
            let mut key = [0; KEY_BYTES];
            key[1..].copy_from_slice(format!("{n:036}").as_bytes());
            key
        };
        let keys: Vec<_> = (0..items).map(key).collect();
        let mut rng = fastrand::Rng::with_seed(7);
        Self {
            hashes: keys.iter().map(|key| base::hash::key_hash(key)).collect(),
            keys,
            locators: (0..items).map(|_| AtomicU64::new(0)).collect(),
            values: (0..value_bytes + (4 << 20)).map(|_| rng.u8(..)).collect(),
            value_bytes,
            seqnos: vec![0; VBUCKETS],
        }
    }

    fn number(key: &[u8]) -> usize {
        key[17..].iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
    }

    /// Commits the items, grouped by vBucket; returns the CPU time of the commit alone.
    fn write(&mut self, store: &SegmentLog, items: &mut [usize]) -> Result<u64, Box<dyn Error>> {
        items.sort_unstable_by_key(|item| item % VBUCKETS);
        let mut records = Vec::with_capacity(items.len());
        for &item in &*items {
            let seqno = &mut self.seqnos[item % VBUCKETS];
            *seqno += 1;
            let start = (item * 4099 + *seqno as usize * 64) % (4 << 20);
            records.push(Record {
                meta: RecordMeta {
                    kind: RecordKind::Document,
                    seqno: Seqno(*seqno),
                    cas: Cas(*seqno << 16),
                    rev: 1,
                    flags: 0,
                    expiry: 0,
                    datatype: Datatype::RAW,
                },
                key: &self.keys[item],
                hash: self.hashes[item],
                value: &self.values[start..start + self.value_bytes],
                replaces: Locator(self.locators[item].load(Relaxed)),
            });
        }
        let parts: Vec<&[Record<'_>]> = {
            let mut first = 0;
            let runs = items.chunk_by(|a, b| a % VBUCKETS == b % VBUCKETS);
            runs.map(|run| {
                first += run.len();
                &records[first - run.len()..first]
            })
            .collect()
        };
        let states: Vec<VbState> = parts
            .iter()
            .map(|part| VbState {
                high_seqno: part[part.len() - 1].meta.seqno,
                failover_log: vec![(VbUuid(1), Seqno(0))],
                ..VbState::default()
            })
            .collect();
        let mut first = 0;
        let batches: Vec<VbBatch<'_>> = parts
            .iter()
            .zip(&states)
            .map(|(records, state)| {
                let vb = VbId((items[first] % VBUCKETS) as u16);
                first += records.len();
                VbBatch { vb, state, records }
            })
            .collect();
        let mut locators = Vec::with_capacity(items.len());
        let start = thread_cpu_nanos();
        store.commit(&batches, &mut locators)?;
        let spent = thread_cpu_nanos() - start;
        for (item, locator) in items.iter().zip(locators) {
            self.locators[*item].store(locator.0, Relaxed);
        }
        Ok(spent)
    }
}

impl Liveness for Documents {
    fn verdict(&self, _: VbId, record: &Record<'_>, at: Locator) -> Verdict {
        let known = self.locators[Self::number(record.key)].load(Relaxed);
        if known == at.0 { Verdict::Live } else { Verdict::Dead }
    }

    fn relocate(&self, _: VbId, key: &[u8], _: u64, _: Seqno, from: Locator, to: Locator) -> bool {
        self.locators[Self::number(key)].compare_exchange(from.0, to.0, Relaxed, Relaxed).is_ok()
    }
}

fn thread_cpu_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn micros(nanos: u64, items: usize) -> f64 {
    nanos as f64 / 1000.0 / items as f64
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (items, value_bytes) = (number(0, 1_000_000)?, number(1, 1000)?);
    let temporary = tempfile::tempdir()?;
    let dir = arguments.get(2).map_or(temporary.path().join("shard"), PathBuf::from);
    let mut documents = Documents::new(items, value_bytes);
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
        let found =
            store.lookup(VbId((item % VBUCKETS) as u16), documents.hashes[item], &documents.keys[item])?;
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
