//! A bucket that is open on a node: the engine over its simulated disks, and the steps that threads would call.

use std::sync::Arc;

use base::{Datatype, DocKey, HashedKey, Now, Seqno, Status, VbId, VbRole, bucket::BucketKind};
use cluster::{BucketInfo, Metadata, Weight};
use engine::{
    Bucket, BucketChange, BucketOptions, Budget, DocView, FlushFailure, OpenError, Refusal, ValueCodec,
    Waiter, json::is_json,
};
use fastrand::Rng;
use storage::{KvStore, StoreError};

use crate::{
    connection::{INDEXES, REQUESTS},
    indexing::Indexing,
    machine::Shelf,
    parts::{self, Looked},
    support::Recorder,
};

/// Dirty documents wait for the disk at most this long.
const FLUSH_EVERY_MILLIS: u64 = 25;
/// How often expired documents, and tombstones in memory, are looked for.
const EXPIRE_EVERY_MILLIS: u64 = 1_000;
/// How often somebody tidies up.
const TIDY_EVERY_MILLIS: u64 = 50;
/// What tidying up looks at in a step, and the steps that it makes in a row.
const STEP: Budget = Budget { items: 64, bytes: 1 << 20 };
const STEPS: usize = 64;

/// The waiter of a document that no request waits for.
const NOBODY: Waiter = Waiter { worker: REQUESTS, connection: u64::MAX, ticket: 0 };
/// Fetches after which a document ought to be there.
const FETCHES_MAX: usize = 100;

/// A document as readers are shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) seqno: Seqno,
    pub(crate) cas: u64,
    pub(crate) rev: u64,
    pub(crate) flags: u32,
    pub(crate) expiry: u32,
    pub(crate) value: Vec<u8>,
}

impl Document {
    fn of(view: &DocView<'_>) -> Self {
        Self {
            seqno: view.seqno,
            cas: view.cas.get(),
            rev: view.rev,
            flags: view.flags,
            expiry: view.expiry,
            value: view.value.to_vec(),
        }
    }
}

/// What a machine's disks do at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disks {
    pub(crate) work: bool,
    pub(crate) are_full: bool,
    /// Syncs fail, or what is read is not what was written.
    pub(crate) are_failing: bool,
    /// Somebody has them compacted, once in so many steps.
    pub(crate) compactions: u16,
}

/// Values are not compressed.
fn codec() -> ValueCodec {
    ValueCodec {
        recheck: |value| if is_json(value) { Datatype::JSON } else { Datatype::RAW },
        inflate: |_, _| false,
        inflated_len: <[u8]>::len,
    }
}

/// See the module.
pub(crate) struct OpenBucket {
    pub(crate) name: String,
    pub(crate) engine: Arc<Bucket>,
    /// What is open on the disks.
    pub(crate) stores: Vec<Arc<dyn KvStore>>,
    pub(crate) indexing: Indexing,
    recorder: Arc<Recorder>,
    flush_at: u64,
    tidy_at: u64,
    expire_at: u64,
}

impl OpenBucket {
    /// Opens a bucket as the daemon does, with `seed` in the place of its randomness.
    ///
    /// # Errors
    /// Where the disks are full.
    pub(crate) fn open(
        (name, info): (&str, &BucketInfo),
        (metadata, uuid): (&Metadata, &str),
        shelf: &mut Shelf,
        seed: u64,
        now: Now,
    ) -> Result<Self, OpenError> {
        let (shards, quota_bytes) = (shelf.shards.min(usize::from(info.vbuckets)), shelf.quota_bytes);
        let options = BucketOptions {
            kind: info.kind,
            vbuckets: info.vbuckets,
            eviction: info.eviction,
            shards,
            role: settee_node::first_role(metadata, uuid, info),
            replicas: info.replicas,
            durability_min: info.durability_min,
            purge_interval_secs: shelf.purge_secs,
            codec: codec(),
            seed,
            ..BucketOptions::new(name, quota_bytes)
        };
        let mut stores = Vec::new();
        if info.kind == BucketKind::Couchbase {
            for disk in shelf.disks(&info.uuid, shards) {
                stores.push(disk.try_open()?);
            }
        }
        let recorder = Arc::<Recorder>::default();
        let manifest = Arc::new(info.manifest.clone());
        let engine = Bucket::open(options, stores.clone(), manifest, recorder.clone(), now)?;
        let (name, indexing) = (name.to_owned(), Indexing::default());
        Ok(Self { name, engine, stores, indexing, recorder, flush_at: 0, tidy_at: 0, expire_at: 0 })
    }

    /// Carries changed settings and the collections manifest over.
    pub(crate) fn change(&self, info: &BucketInfo, now: Now) {
        let (replicas, eviction) = (Some(info.replicas), Some(info.eviction));
        self.engine.reconfigure(BucketChange { replicas, eviction, ..BucketChange::default() });
        if self.engine.manifest().uid != info.manifest.uid {
            self.engine.set_manifest(Arc::new(info.manifest.clone()), now);
        }
    }

    /// Whether anything of it outlives the process.
    pub(crate) fn is_persistent(&self) -> bool {
        !self.stores.is_empty()
    }

    /// What the bucket's threads do, where the disk lets them; who was woken.
    pub(crate) fn work(&mut self, rng: &mut Rng, disks: Disks, now: Now) -> Vec<Waiter> {
        if disks.work || !self.is_persistent() {
            let is_due = now.mono_millis >= self.flush_at;
            for shard in 0..self.engine.shards() {
                self.work_on(shard, is_due, rng, disks, now);
            }
            if is_due {
                self.flush_at = now.mono_millis + FLUSH_EVERY_MILLIS;
            }
        }
        if now.mono_millis >= self.tidy_at {
            self.tidy_at = now.mono_millis + TIDY_EVERY_MILLIS;
            self.tidy_up(now);
        }
        if now.mono_millis >= self.expire_at {
            self.expire_at = now.mono_millis + EXPIRE_EVERY_MILLIS;
            self.engine.expire(now, STEP);
        }
        self.recorder.work.lock().clear();
        let mut woken = std::mem::take(&mut *self.recorder.woken.lock());
        woken.extract_if(.., |waiter| waiter.worker == INDEXES).for_each(|waiter| self.indexing.wake(waiter));
        woken
    }

    fn work_on(&self, shard: usize, is_due: bool, rng: &mut Rng, disks: Disks, now: Now) {
        if is_due || self.engine.is_flush_wanted(shard) {
            let failed = self.engine.flush(shard, now).failed;
            let may_fail = match failed {
                None => true,
                Some(FlushFailure::NoSpace) => disks.are_full,
                Some(FlushFailure::Poisoned) => disks.are_failing,
            };
            assert!(may_fail, "{failed:?}: this disk does not fail");
        }
        self.engine.run_fetches(shard, 16, now);
        self.engine.run_backfills(shard, now);
        if rng.u8(0..32) == 0 {
            let warmed_up = self.engine.warm_up(shard, now);
            assert!(warmed_up.is_ok() || disks.are_failing, "{:?}", warmed_up.err());
        }
        if self.engine.is_short_of_space() || rng.u16(0..disks.compactions) == 0 {
            match self.engine.compact(shard, now) {
                Err(StoreError::NoSpace) if disks.are_full => {}
                Err(_) if disks.are_failing => {}
                done => _ = done.unwrap(),
            }
        }
    }

    /// As housekeeping does.
    fn tidy_up(&self, now: Now) {
        self.engine.drop_slow_cursors();
        self.engine.time_out_durable(now);
        for _ in 0..STEPS {
            if !self.engine.wants_room() || self.engine.page(now, STEP).bytes == 0 {
                break;
            }
        }
    }

    /// What is found under a key in a copy that is active or a replica.
    pub(crate) fn read(&self, vb: VbId, key: &[u8], now: Now) -> Result<Option<Document>, Status> {
        let is_replica = self.engine.vb_role(vb)?.0 == VbRole::Replica;
        self.fetched((vb, HashedKey::new(DocKey::trusted(key))), now, |key| {
            if is_replica {
                self.engine.get_replica(vb, key, now, Document::of)
            } else {
                self.engine.get(vb, key, now, Document::of)
            }
        })
    }

    /// The number and the mark under a key in an active copy.
    pub(crate) fn look(&self, vb: VbId, key: &[u8], now: Now) -> Result<Option<Looked>, Status> {
        let key = HashedKey::new(DocKey::trusted(key));
        self.fetched((vb, key), now, |key| parts::look(&self.engine, (vb, key), now))
    }

    /// What is found, once it has been read from disk if it has to be.
    fn fetched<T>(
        &self,
        (vb, key): (VbId, HashedKey<'_>),
        now: Now,
        find: impl Fn(HashedKey<'_>) -> Result<T, Refusal>,
    ) -> Result<Option<T>, Status> {
        for _ in 0..FETCHES_MAX {
            match find(key) {
                Ok(found) => return Ok(Some(found)),
                Err(Refusal::Status(Status::KeyNotFound)) => return Ok(None),
                Err(Refusal::Status(status)) => return Err(status),
                Err(Refusal::Fetch) => {
                    self.engine.fetch(vb, key, NOBODY)?;
                    for shard in 0..self.engine.shards() {
                        self.engine.run_fetches(shard, 16, now);
                    }
                }
            }
        }
        panic!("{key:?} of {vb} is fetched again and again");
    }

    /// Bytes that copying each active vBucket would send, about.
    pub(crate) fn weights(&self) -> Vec<(VbId, Weight)> {
        let infos = (0..self.engine.vbuckets()).filter_map(|vb| self.engine.vb_state(VbId(vb)).ok());
        let active = infos.filter(|info| info.role == base::VbRole::Active);
        active.map(|info| (info.vb, Weight { bytes: info.items * 100, items: info.items })).collect()
    }
}
