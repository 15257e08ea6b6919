//! What the engine's tests share: a clock, a notifier that remembers, and a store in memory that can crash. Also a
//! bucket driven the way the server's threads drive one.

#![allow(
    dead_code,
    unused_imports,
    missing_docs,
    clippy::unwrap_used,
    reason = "test support; each test file uses its part"
)]

mod disk;
mod mem_store;
pub(crate) mod model;
pub(crate) mod numbered;
pub(crate) mod pipe;
pub(crate) mod twins;

use std::{ops::Range, sync::Arc};

use base::{
    Cas, DocKey, HashedKey, Manifest, Now, VbId,
    bucket::{BucketKind, DurabilityLevel},
    hash::key_hash,
};
use parking_lot::Mutex;
use settee_engine::{
    Bucket, BucketOptions, Budget, Durable, Expiry, Mutated, MutationSpec, Notifier, Precondition, Refusal,
    SubdocMutation, SystemEvent, Waiter, Work, XattrRights,
};
use storage::KvStore;

pub(crate) use disk::{Disk, FaultDisk, MemDisk};
pub(crate) use mem_store::MemStore;

/// Where every test's time begins.
pub(crate) const START_SECS: u64 = 1_800_000_000;

/// These seeds, unless variables of the environment name a first one and how many there are to be.
pub(crate) fn seeds_of((first, count): (&str, &str), usual: Range<u64>) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number(first) {
        Some(first) => first..first + number(count).unwrap_or(1),
        None => usual,
    }
}

/// A clock that moves when told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(pub(crate) u64);

impl Clock {
    pub(crate) fn now(&self) -> Now {
        Now { wall_nanos: START_SECS * 1_000_000_000 + self.0 * 1_000_000, mono_millis: self.0 }
    }

    pub(crate) fn advance_secs(&mut self, secs: u64) {
        self.0 += secs * 1_000;
    }
}

/// Remembers what it is told.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) woken: Mutex<Vec<Waiter>>,
    pub(crate) work: Mutex<Vec<Work>>,
}

impl Notifier for Recorder {
    fn wake(&self, waiter: Waiter) {
        self.woken.lock().push(waiter);
    }

    fn work(&self, kind: Work) {
        self.work.lock().push(kind);
    }
}

/// Changes parts of a document that exists, and its expiry too: it has none afterwards.
pub(crate) fn mutation<'a>(specs: &'a [MutationSpec<'a>]) -> SubdocMutation<'a> {
    SubdocMutation {
        specs,
        precondition: Precondition::Exists,
        access_deleted: false,
        create_as_deleted: false,
        revive: false,
        expiry: Expiry::Wire(0),
        flags: None,
        cas: Cas::NONE,
        durability: DurabilityLevel::None,
        rights: XattrRights::default(),
    }
}

/// A bucket with everything around it.
pub(crate) struct Rig {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) clock: Clock,
    pub(crate) disks: Vec<Arc<dyn Disk>>,
    /// The same, where they are in memory.
    pub(crate) stores: Vec<Arc<MemStore>>,
    /// What is open on the disks.
    pub(crate) open: Vec<Arc<dyn KvStore>>,
    pub(crate) options: BucketOptions,
    pub(crate) manifest: Arc<Manifest>,
}

impl Rig {
    /// A bucket over stores in memory; memory only for other kinds than `Couchbase`.
    pub(crate) fn new(options: BucketOptions) -> Self {
        Self::with_manifest(options, Arc::default())
    }

    pub(crate) fn with_manifest(options: BucketOptions, manifest: Arc<Manifest>) -> Self {
        let stores: Vec<Arc<MemStore>> = match options.kind {
            BucketKind::Couchbase => (0..options.shards).map(|_| Arc::default()).collect(),
            _ => Vec::new(),
        };
        let disks = stores.iter().map(|store| Arc::new(MemDisk(store.clone())) as Arc<dyn Disk>).collect();
        Self { stores, ..Self::over(options, manifest, disks, Clock(0)) }
    }

    /// A bucket over any disks, one per shard.
    pub(crate) fn over(
        options: BucketOptions,
        manifest: Arc<Manifest>,
        disks: Vec<Arc<dyn Disk>>,
        clock: Clock,
    ) -> Self {
        let recorder = Arc::new(Recorder::default());
        let open: Vec<_> = disks.iter().map(|disk| disk.open()).collect();
        let bucket =
            Bucket::open(options.clone(), open.clone(), manifest.clone(), recorder.clone(), clock.now())
                .unwrap();
        Self { bucket, recorder, clock, disks, stores: Vec::new(), open, options, manifest }
    }

    /// Kill -9: what was not synced is gone, and the bucket is opened again (not warmed up).
    pub(crate) fn crash(self) -> Self {
        let Self { bucket, clock, disks, stores, open, options, manifest, .. } = self;
        drop((bucket, open));
        disks.iter().for_each(|disk| disk.crash());
        Self { stores, ..Self::over(options, manifest, disks, clock) }
    }

    /// A clean stop and start.
    pub(crate) fn restart(self) -> Self {
        assert_eq!(self.bucket.close(self.clock.now()), Ok(()));
        let Self { bucket, clock, disks, stores, open, options, manifest, .. } = self;
        drop((bucket, open));
        Self { stores, ..Self::over(options, manifest, disks, clock) }
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    /// Everything to disk, synced.
    pub(crate) fn flush(&mut self) {
        for shard in 0..self.bucket.shards() {
            loop {
                // What a sync commits goes to disk later.
                self.clock.0 += 1_000;
                let report = self.bucket.flush(shard, self.now());
                assert_eq!(report.failed, None);
                if !report.more && !report.unsynced {
                    break;
                }
            }
        }
    }

    pub(crate) fn warm_up(&self) {
        for shard in 0..self.bucket.shards() {
            while self.bucket.warm_up(shard, self.now()).unwrap() {}
        }
        assert!(self.bucket.is_warm());
    }

    /// What the feeds of all shards wait for is read from disk.
    pub(crate) fn backfill(&self) {
        for shard in 0..self.bucket.shards() {
            self.bucket.run_backfills(shard, self.now());
        }
    }

    /// What is deleted for long leaves the disk, what belongs to dropped collections the memory.
    pub(crate) fn clean_up(&self) {
        for shard in 0..self.bucket.shards() {
            self.bucket.compact_eagerly(shard, self.now()).unwrap();
        }
        self.bucket.expire(self.now(), Budget { items: 1_000, ..Budget::default() });
    }

    /// Executes until it needs no fetch, as a worker would.
    pub(crate) fn run<T>(
        &self,
        key: &[u8],
        mut operation: impl FnMut(&Bucket, VbId, HashedKey<'_>) -> Result<T, Refusal>,
    ) -> Result<T, base::Status> {
        let (vb, hashed) = self.key(key);
        for round in 0..100 {
            match operation(&self.bucket, vb, hashed) {
                Ok(done) => return Ok(done),
                Err(Refusal::Status(status)) => return Err(status),
                Err(Refusal::Fetch) => {
                    let waiter = Waiter { worker: 7, connection: round, ticket: 7 };
                    self.bucket.fetch(vb, hashed, waiter)?;
                    let shard = usize::from(vb.get()) % self.bucket.shards();
                    while self.bucket.run_fetches(shard, 16, self.now()) > 0 {}
                    assert!(self.recorder.woken.lock().contains(&waiter), "the waiting client is woken");
                }
            }
        }
        panic!("fetches without end for {key:?}");
    }

    /// Every record that a vBucket has on disk, superseded ones included, in seqno order: seqno, key, value.
    pub(crate) fn on_disk(&self, vb: VbId) -> Vec<(base::Seqno, Vec<u8>, Vec<u8>)> {
        let mut records = Vec::new();
        let shard = usize::from(vb.get()) % self.bucket.shards();
        let visit = &mut |_, record: &storage::Record<'_>, _| {
            records.push((record.meta.seqno, record.key.to_vec(), record.value.to_vec()));
            true
        };
        self.open[shard].scan(Some(vb), base::Seqno(0), true, visit).unwrap();
        records.sort();
        records
    }

    /// The system events that a vBucket has on disk, the newest of each key.
    pub(crate) fn events_on_disk(&self, vb: VbId) -> Vec<SystemEvent> {
        let mut newest = std::collections::BTreeMap::new();
        for (seqno, key, value) in self.on_disk(vb) {
            if let Some(event) = SystemEvent::decode(&value).filter(|_| key.starts_with(b"\x01_")) {
                newest.insert(key, (seqno, event));
            }
        }
        let mut events: Vec<_> = newest.into_values().collect();
        events.sort_by_key(|event| event.0);
        events.into_iter().map(|event| event.1).collect()
    }

    /// The vBucket and hash of an encoded key.
    /// Asks how far a durable write is, for half a minute from now.
    pub(crate) fn complete(
        &self,
        key: &[u8],
        mutated: &Mutated,
        waiter: Waiter,
    ) -> Result<Durable, base::Status> {
        let ((vb, hashed), now) = (self.key(key), self.now());
        self.bucket.complete_durable(vb, hashed, mutated, waiter, now.mono_millis + 30_000, now)
    }

    /// As [`Rig::complete`], of one that is expected to be over.
    pub(crate) fn completed(&self, key: &[u8], mutated: &Mutated) -> Mutated {
        let waiter = Waiter { worker: 0, connection: 0, ticket: 0 };
        match self.complete(key, mutated, waiter) {
            Ok(Durable::Committed(committed)) => committed,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn key<'a>(&self, encoded: &'a [u8]) -> (VbId, HashedKey<'a>) {
        let key = HashedKey { key: DocKey::trusted(encoded), hash: key_hash(encoded) };
        (base::hash::vbucket_of(key.key.logical(), self.bucket.vbuckets()), key)
    }
}

/// A small bucket for tests.
pub(crate) fn options(kind: BucketKind) -> BucketOptions {
    BucketOptions { kind, vbuckets: 16, shards: 2, seed: 42, ..BucketOptions::new("test", 64 << 20) }
}
