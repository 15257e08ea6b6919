//! What the tests share: a store on either file system, documents, batches by vBucket.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use base::{Cas, Datatype, Seqno, VbId, VbUuid};
use settee_storage::{
    Backfill, DiskBudget, DiskClock, DiskLimits, FaultFs, Fs, KvStore, Liveness, Locator, Options,
    OwnedRecord, RealFs, Record, RecordKind, RecordMeta, SegmentLog, StoreError, ThrottledFs, VbBatch,
    VbState, Verdict, open,
};

use crate::hooked::HookedFs;

/// One version to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) vb: VbId,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) meta: RecordMeta,
    pub(crate) replaces: Locator,
}

pub(crate) fn document(vb: u16, key: &str, seqno: u64, value: impl Into<Vec<u8>>) -> Version {
    let meta = RecordMeta {
        kind: RecordKind::Document,
        seqno: Seqno(seqno),
        cas: Cas(seqno << 16 | 7),
        rev: seqno,
        flags: 0xcafe,
        expiry: 0,
        datatype: Datatype::JSON,
    };
    let mut encoded = vec![0];
    encoded.extend_from_slice(key.as_bytes());
    Version { vb: VbId(vb), key: encoded, value: value.into(), meta, replaces: Locator::NONE }
}

pub(crate) fn tombstone(vb: u16, key: &str, seqno: u64, deleted_at: u32) -> Version {
    let mut version = document(vb, key, seqno, []);
    version.meta.kind = RecordKind::Deletion;
    version.meta.expiry = deleted_at;
    version.meta.datatype = Datatype::RAW;
    version
}

/// A prepare or abort.
pub(crate) fn prepared(vb: u16, kind: RecordKind, key: &str, seqno: u64, value: &str) -> Version {
    let mut version = document(vb, key, seqno, value);
    version.meta.kind = kind;
    version
}

pub(crate) fn state(high_seqno: u64) -> VbState {
    VbState {
        high_seqno: Seqno(high_seqno),
        max_cas: Cas(high_seqno << 16 | 7),
        failover_log: vec![(VbUuid(0x00ab_cdef), Seqno(0))],
        ..VbState::default()
    }
}

/// Groups versions by vBucket and commits them in one call.
pub(crate) fn commit(store: &dyn KvStore, versions: &[Version]) -> Result<Vec<Locator>, StoreError> {
    let mut vbs: Vec<VbId> = versions.iter().map(|version| version.vb).collect();
    vbs.sort_unstable();
    vbs.dedup();
    let of = |vb: VbId| versions.iter().enumerate().filter(move |(_, version)| version.vb == vb);
    let order: Vec<usize> = vbs.iter().flat_map(|&vb| of(vb).map(|(index, _)| index)).collect();
    let records: Vec<Vec<Record<'_>>> = vbs
        .iter()
        .map(|&vb| {
            of(vb)
                .map(|(_, version)| Record {
                    meta: version.meta,
                    key: &version.key,
                    hash: base::hash::key_hash(&version.key),
                    value: &version.value,
                    replaces: version.replaces,
                })
                .collect()
        })
        .collect();
    let states: Vec<VbState> =
        records.iter().map(|records| state(records.last().map_or(0, |r| r.meta.seqno.get()))).collect();
    let batches: Vec<VbBatch<'_>> = vbs
        .iter()
        .zip(&records)
        .zip(&states)
        .map(|((&vb, records), state)| VbBatch { vb, state, records })
        .collect();
    let mut given = Vec::new();
    store.commit(&batches, &mut given)?;
    assert_eq!(given.len(), versions.len(), "one locator per record");
    let mut locators = vec![Locator::NONE; versions.len()];
    order.into_iter().zip(given).for_each(|(index, locator)| locators[index] = locator);
    Ok(locators)
}

pub(crate) fn lookup(store: &dyn KvStore, vb: u16, key: &str) -> Result<Option<OwnedRecord>, StoreError> {
    let mut encoded = vec![0];
    encoded.extend_from_slice(key.as_bytes());
    store.lookup(VbId(vb), &encoded)
}

/// A record as the version it was written as.
pub(crate) fn version(vb: VbId, record: &Record<'_>) -> Version {
    assert_eq!(record.hash, base::hash::key_hash(record.key));
    let (key, value) = (record.key.to_vec(), record.value.to_vec());
    Version { vb, key, value, meta: record.meta, replaces: Locator::NONE }
}

/// Everything a backfill of a vBucket delivers.
pub(crate) fn drain(mut opened: Box<dyn Backfill>, vb: u16, step: usize) -> Result<Vec<Version>, StoreError> {
    let mut found = Vec::new();
    while opened.next(step, &mut |record| found.push(version(VbId(vb), record)))? {}
    Ok(found)
}

pub(crate) fn same(record: &OwnedRecord, version: &Version) -> bool {
    record.meta == version.meta && record.key == version.key && record.value == version.value
}

pub(crate) fn options() -> Options {
    Options {
        shard: 3,
        segment_bytes: 64 << 10,
        segment_bytes_min: 64 << 10,
        reserve_bytes: 0,
        ..Options::default()
    }
}

/// Where a store lives, surviving its openings.
pub(crate) struct Place {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) fault: Option<FaultFs>,
    _directory: Option<tempfile::TempDir>,
}

impl Place {
    pub(crate) fn real() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path().join("shard");
        Self { fs: Arc::new(RealFs), dir, fault: None, _directory: Some(directory) }
    }

    pub(crate) fn fault(seed: u64) -> Self {
        let fault = FaultFs::new(seed);
        Self { fs: Arc::new(fault.clone()), dir: "/shard".into(), fault: Some(fault), _directory: None }
    }

    /// A slow disk whose clock is as fast as need be.
    pub(crate) fn throttled(seed: u64) -> Self {
        Self::with_clock(seed, Arc::new(VirtualClock::default()))
    }

    /// A slow disk that waits as a clock says.
    pub(crate) fn with_clock(seed: u64, clock: Arc<dyn DiskClock>) -> Self {
        let budget = DiskBudget::new(DiskLimits { bytes_per_sec: 1 << 20, iops: 100 }, clock);
        let place = Self::fault(seed);
        Self { fs: Arc::new(ThrottledFs::new(place.fs.clone(), Arc::new(budget))), ..place }
    }

    /// A disk that is as fast as it likes, and what it was asked for.
    pub(crate) fn counted(seed: u64) -> (Self, Arc<DiskBudget>) {
        let clock = Arc::new(VirtualClock::default());
        let budget = Arc::new(DiskBudget::new(DiskLimits::default(), clock));
        let place = Self::fault(seed);
        let fs = Arc::new(ThrottledFs::new(place.fs.clone(), budget.clone()));
        (Self { fs, ..place }, budget)
    }

    /// A disk that calls the test; see there.
    pub(crate) fn hooked(seed: u64) -> (Self, HookedFs) {
        let place = Self::fault(seed);
        let hooked = HookedFs::new(place.fs.clone());
        (Self { fs: Arc::new(hooked.clone()), ..place }, hooked)
    }

    /// Every kind.
    pub(crate) fn each() -> [Self; 3] {
        [Self::real(), Self::fault(1), Self::throttled(1)]
    }

    pub(crate) fn open(&self) -> SegmentLog {
        self.open_with(options()).unwrap()
    }

    pub(crate) fn open_with(&self, options: Options) -> Result<SegmentLog, StoreError> {
        open(&self.dir, self.fs.clone(), options)
    }

    /// As after `kill -9`: the store is forgotten without a clean end.
    pub(crate) fn kill(&self, store: SegmentLog) {
        match &self.fault {
            Some(fault) => {
                fault.kill();
                drop(store);
            }
            // The lock must go with the "process"; what a clean drop would write must not be written.
            None => store.abandon(),
        }
    }
}

/// Time passes when somebody sleeps.
#[derive(Default)]
struct VirtualClock(AtomicU64);

impl DiskClock for VirtualClock {
    fn nanos(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn sleep(&self, nanos: u64) {
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// Memory that knows nothing: the store decides by itself.
pub(crate) struct Amnesia;

impl Liveness for Amnesia {
    fn verdict(&self, _vb: VbId, _record: &Record<'_>, _at: Locator) -> Verdict {
        Verdict::Unknown
    }

    fn relocate(&self, _: VbId, _: &Record<'_>, _: Locator, _: Locator) -> bool {
        false
    }
}
