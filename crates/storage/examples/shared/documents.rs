//! Documents of one shard for measurements: what memory would know of them, and writing them grouped by vBucket.

use std::{
    error::Error,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use base::{Cas, Datatype, Seqno, VbId, VbUuid};
use settee_storage::{
    KvStore, Liveness, Locator, Record, RecordKind, RecordMeta, SegmentLog, VbBatch, VbState, Verdict,
};

/// With collection prefix.
pub(super) const KEY_BYTES: usize = 37;

/// See the module. Document n is in vBucket n modulo their number.
pub(super) struct Documents {
    pub(super) keys: Vec<[u8; KEY_BYTES]>,
    pub(super) hashes: Vec<u64>,
    pub(super) locators: Vec<AtomicU64>,
    values: Vec<u8>,
    value_bytes: usize,
    seqnos: Vec<u64>,
}

impl Documents {
    pub(super) fn new(items: usize, value_bytes: usize, vbuckets: usize) -> Self {
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
            seqnos: vec![0; vbuckets],
        }
    }

    fn number(key: &[u8]) -> usize {
        key[17..].iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
    }

    /// Commits the items, grouped by vBucket; returns the CPU time of the commit alone.
    pub(super) fn write(&mut self, store: &SegmentLog, items: &mut [usize]) -> Result<u64, Box<dyn Error>> {
        let vbuckets = self.seqnos.len();
        items.sort_unstable_by_key(|item| item % vbuckets);
        let mut records = Vec::with_capacity(items.len());
        for &item in &*items {
            let seqno = &mut self.seqnos[item % vbuckets];
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
            let runs = items.chunk_by(|a, b| a % vbuckets == b % vbuckets);
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
                let vb = VbId((items[first] % vbuckets) as u16);
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

    fn relocate(&self, _: VbId, record: &Record<'_>, from: Locator, to: Locator) -> bool {
        self.locators[Self::number(record.key)].compare_exchange(from.0, to.0, Relaxed, Relaxed).is_ok()
    }
}

/// Processor time of this thread so far.
pub(super) fn thread_cpu_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
