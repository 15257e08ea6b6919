//! The buckets that are open on this node: makes reality follow the metadata, and publishes the result to the
//! data plane.
//!
//! Order matters. A bucket is opened before it is published, and unpublished before its threads are stopped and
//! its files removed, so that a worker never meets a bucket that cannot answer.

use std::{
    collections::HashMap,
    fs, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use base::{BucketUuid, Now, VbRole, bucket::BucketKind, limits};
use cluster::{BucketInfo, ClusterError, Metadata};
use engine::{Bucket, BucketChange, BucketOptions, Notifier, OpenError, SHARD_QUOTA_MAX};
use parking_lot::Mutex;
use storage::{KvStore, StoreError};

use super::{
    background::{self, BucketBells, BucketThreads},
    bell::NodeBells,
    data_dir::DataDir,
    disk::Disk,
    housekeeping::Patient,
    identity::ThisNode,
};
use crate::{
    BucketMeter, Shared, Wakes,
    shared::{BucketEntry, ConfigDocument, ConfigVersion, Snapshot},
    value,
};

/// How often it is looked whether everybody has let go of a dropped bucket.
const LET_GO_EVERY: Duration = Duration::from_millis(20);
/// More shards than this only cost syncs: one log keeps a disk busy.
const SHARDS_MAX: usize = 4;

/// Why a bucket could not be brought to where the metadata wants it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BucketError {
    #[error("bucket {name} cannot be opened: {source}")]
    Open { name: String, source: OpenError },
    #[error("the files of bucket {name} cannot be opened: {source}")]
    Store { name: String, source: StoreError },
    #[error("bucket {name}: {source}")]
    Io { name: String, source: io::Error },
}

impl From<BucketError> for ClusterError {
    fn from(error: BucketError) -> Self {
        ClusterError::Failed(error.to_string())
    }
}

/// Everything that belongs to one open bucket.
struct OpenBucket {
    uuid: BucketUuid,
    engine: Arc<Bucket>,
    meter: Arc<BucketMeter>,
    threads: BucketThreads,
}

/// The open buckets by name.
pub(crate) struct OpenBuckets {
    data_dir: Arc<DataDir>,
    /// What the stores of all buckets lie on: each bucket has files of its own there.
    disk: Disk,
    shared: Arc<Shared>,
    wakes: Wakes,
    workers: usize,
    this_node: Arc<ThisNode>,
    bells: NodeBells,
    open: Mutex<HashMap<String, OpenBucket>>,
    /// Grows whenever a bucket was opened or closed.
    generation: AtomicU64,
}

impl OpenBuckets {
    pub(crate) fn new(
        (data_dir, disk): (Arc<DataDir>, Disk),
        shared: Arc<Shared>,
        wakes: Wakes,
        workers: usize,
        this_node: Arc<ThisNode>,
    ) -> Self {
        let bells = NodeBells::default();
        let generation = AtomicU64::new(0);
        Self { data_dir, disk, shared, wakes, workers, this_node, bells, open: Mutex::default(), generation }
    }

    /// Opens, changes and drops buckets until they are what `metadata` says, then publishes. What fails is
    /// reported; everything else is carried out and published all the same.
    pub(crate) fn reconcile(&self, metadata: &Arc<Metadata>) -> Result<(), BucketError> {
        let mut open = self.open.lock();
        let mut outcome = Ok(());
        let gone = self.take_gone(&mut open, metadata);
        for (name, info) in &metadata.buckets {
            let carried_out = match open.get(name) {
                Some(bucket) => {
                    change(&bucket.engine, info, self.shared.now());
                    Ok(())
                }
                None => self.open_bucket(name, info, node::first_role(metadata, info)).map(|bucket| {
                    open.insert(name.clone(), bucket);
                    self.generation.fetch_add(1, Ordering::Release);
                }),
            };
            outcome = outcome.and(carried_out);
        }
        self.publish(&open, metadata);
        drop(open);
        if !gone.is_empty() {
            self.generation.fetch_add(1, Ordering::Release);
        }
        for (name, bucket) in gone {
            outcome = outcome.and(self.remove(&name, bucket));
        }
        outcome
    }

    /// What every bucket rings.
    pub(crate) fn bells(&self) -> &NodeBells {
        &self.bells
    }

    /// Whether a bucket of `metadata` could not be opened.
    pub(crate) fn misses(&self, metadata: &Metadata) -> bool {
        let open = self.open.lock();
        metadata.buckets.keys().any(|name| !open.contains_key(name))
    }

    /// All open buckets, for the housekeeper.
    pub(crate) fn patients(&self) -> Vec<Patient> {
        let open = self.open.lock();
        open.values().map(|bucket| (Arc::clone(&bucket.engine), Arc::clone(&bucket.meter))).collect()
    }

    /// Grows whenever a bucket was opened or closed.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The engines of all open buckets.
    pub(crate) fn list(&self) -> Vec<(BucketUuid, Arc<Bucket>)> {
        let open = self.open.lock();
        open.values().map(|bucket| (bucket.uuid.clone(), Arc::clone(&bucket.engine))).collect()
    }

    /// The engine of the open bucket with that uuid.
    pub(crate) fn engine_of(&self, uuid: &BucketUuid) -> Option<Arc<Bucket>> {
        let open = self.open.lock();
        open.values().find(|bucket| bucket.uuid == *uuid).map(|bucket| Arc::clone(&bucket.engine))
    }

    /// The engine of an open bucket.
    pub(crate) fn engine(&self, name: &str) -> Option<Arc<Bucket>> {
        self.open.lock().get(name).map(|bucket| Arc::clone(&bucket.engine))
    }

    /// The operation meter of an open bucket.
    pub(crate) fn meter(&self, name: &str) -> Option<Arc<BucketMeter>> {
        self.open.lock().get(name).map(|bucket| Arc::clone(&bucket.meter))
    }

    /// Per open bucket: its name, operations and background fetches since it was opened.
    pub(crate) fn totals(&self) -> Vec<(String, u64, u64)> {
        let open = self.open.lock();
        open.iter()
            .map(|(name, bucket)| (name.clone(), bucket.meter.total(), bucket.engine.stats().bg_fetched))
            .collect()
    }

    /// Stops every bucket after writing and syncing what is dirty. The data plane must be stopped by now.
    pub(crate) fn close(&self) {
        let open: Vec<_> = self.open.lock().drain().collect();
        for (name, bucket) in open {
            bucket.threads.stop();
            if !bucket.engine.close(self.shared.now()) {
                tracing::error!(bucket = name, "some documents could not be written at the stop");
            }
        }
    }

    /// Removes the files of buckets that `metadata` does not know: what a crash left behind. Only where it is known to be
    /// no older than this node's start; a bucket might be too new for it otherwise.
    pub(crate) fn remove_unknown(&self, metadata: &Metadata) -> io::Result<()> {
        // Nothing is opened or dropped meanwhile.
        let _open = self.open.lock();
        self.data_dir
            .remove_unknown_buckets(|uuid| metadata.buckets.values().any(|bucket| bucket.uuid.0 == uuid))
    }

    /// Takes out buckets that the metadata has no longer, or has under another uuid.
    fn take_gone(
        &self,
        open: &mut HashMap<String, OpenBucket>,
        metadata: &Metadata,
    ) -> Vec<(String, OpenBucket)> {
        let is_gone = |name: &str, bucket: &OpenBucket| {
            metadata.buckets.get(name).is_none_or(|info| info.uuid != bucket.uuid)
        };
        let names: Vec<String> = open
            .iter()
            .filter(|(name, bucket)| is_gone(name, bucket))
            .map(|(name, _)| name.clone())
            .collect();
        names.into_iter().filter_map(|name| open.remove_entry(&name)).collect()
    }

    fn open_bucket(&self, name: &str, info: &BucketInfo, role: VbRole) -> Result<OpenBucket, BucketError> {
        let folder = self.data_dir.bucket(&info.uuid);
        let persistent = info.kind == BucketKind::Couchbase;
        let stores = if persistent { self.open_stores(name, info, &folder)? } else { Vec::new() };
        let shards = if persistent { stores.len() } else { self.shards_of_new(info) };
        if quota_bytes(info) > shards as u64 * SHARD_QUOTA_MAX {
            tracing::warn!(
                bucket = name,
                shards,
                "not all of the quota can be used: the bucket has too few shards for it"
            );
        }
        let meter = Arc::new(BucketMeter::new(self.workers));
        let (bells, counted) = (self.bells.clone(), Arc::clone(&meter));
        let bells = Arc::new(BucketBells::new(shards, bells, self.wakes.clone(), counted));
        let notifier = Arc::clone(&bells) as Arc<dyn Notifier>;
        let manifest = Arc::new(info.manifest.clone());
        let options = BucketOptions { role, ..options(name, info, shards) };
        let engine = Bucket::open(options, stores, manifest, notifier, self.shared.now())
            .map_err(|source| BucketError::Open { name: name.into(), source })?;
        let (shared, counted) = (Arc::clone(&self.shared), Arc::clone(&meter));
        let started = BucketThreads::start(&engine, bells, persistent, counted, shared);
        let threads = started.map_err(|source| {
            // Nobody was served: no new branch of history is needed at the next attempt.
            engine.close(self.shared.now());
            BucketError::Io { name: name.into(), source }
        })?;
        Ok(OpenBucket { uuid: info.uuid.clone(), engine, meter, threads })
    }

    /// Opens one store per shard. How many there are is decided when the bucket is new and kept for its life,
    /// whatever the number of cores later.
    fn open_stores(
        &self,
        name: &str,
        info: &BucketInfo,
        folder: &Path,
    ) -> Result<Vec<Arc<dyn KvStore>>, BucketError> {
        let io = |source| BucketError::Io { name: name.into(), source };
        let found = count_shards(folder).map_err(io)?;
        let shards = if found > 0 { found } else { self.shards_of_new(info) };
        if found == 0 {
            create_shards(folder, shards).map_err(io)?;
        }
        let files = self.disk.files();
        (0..shards)
            .map(|shard| {
                let options = storage::Options { shard: shard as u32, ..storage::Options::default() };
                let store = storage::open(&folder.join(shard.to_string()), Arc::clone(&files), options)
                    .map_err(|source| BucketError::Store { name: name.into(), source })?;
                Ok(Arc::new(store) as Arc<dyn KvStore>)
            })
            .collect()
    }

    /// How many shards a new bucket gets: few, but so many that its quota could be doubled.
    fn shards_of_new(&self, info: &BucketInfo) -> usize {
        let for_memory = quota_bytes(info).saturating_mul(2).div_ceil(SHARD_QUOTA_MAX) as usize;
        self.workers.clamp(1, SHARDS_MAX).max(for_memory).min(usize::from(info.vbuckets))
    }

    fn publish(&self, open: &HashMap<String, OpenBucket>, metadata: &Arc<Metadata>) {
        let this_node = self.this_node.uuid();
        let version = ConfigVersion { epoch: metadata.rev_epoch, rev: metadata.rev };
        let entries = open.iter().filter_map(|(name, bucket)| {
            let info = metadata.buckets.get(name)?;
            let config = cluster::config::bucket_config(metadata, name, &this_node)?;
            let entry = BucketEntry {
                name: name.as_str().into(),
                uuid: bucket.uuid.clone(),
                engine: Arc::clone(&bucket.engine),
                config: ConfigDocument::new(version, config),
                legacy: info.legacy.clone(),
                flush_enabled: info.flush_enabled,
                meter: Arc::clone(&bucket.meter),
            };
            Some((name.clone(), Arc::new(entry)))
        });
        let cluster_config = metadata
            .initialized
            .then(|| ConfigDocument::new(version, cluster::config::cluster_config(metadata, &this_node)));
        self.shared.publish(Snapshot::new(Arc::clone(metadata), entries.collect(), cluster_config));
        self.bells.steward.ring();
    }

    /// Ends a bucket that is no longer published. Connections and housekeeping let go of it one by one; whoever is last
    /// frees every document and closes the files, which must not happen to a data-plane loop: a thread that may block
    /// waits to be the last. Should the process end before, the next start removes the files.
    fn remove(&self, name: &str, bucket: OpenBucket) -> Result<(), BucketError> {
        let OpenBucket { uuid, engine, threads, .. } = bucket;
        threads.stop();
        let folder = self.data_dir.bucket(&uuid);
        let bucket = name.to_owned();
        let waiter = background::spawn("drop-bucket", move || {
            while Arc::strong_count(&engine) > 1 {
                std::thread::sleep(LET_GO_EVERY);
            }
            drop(engine);
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::error!(bucket, %error, "the files of a dropped bucket stay until the next start");
                }
                _ => tracing::info!(bucket, "a dropped bucket is gone from memory and disk"),
            }
        });
        waiter.map(drop).map_err(|source| BucketError::Io { name: name.into(), source })
    }
}

fn quota_bytes(info: &BucketInfo) -> u64 {
    info.ram_quota_mb.saturating_mul(1024 * 1024)
}

fn options(name: &str, info: &BucketInfo, shards: usize) -> BucketOptions {
    BucketOptions {
        kind: info.kind,
        vbuckets: info.vbuckets,
        eviction: info.eviction,
        conflict: info.conflict,
        max_ttl_secs: info.max_ttl_secs,
        shards,
        replicas: info.replicas,
        durability_min: info.durability_min,
        value_bytes_max: limits::VALUE_BYTES_MAX,
        purge_interval_secs: info.purge_interval_secs(),
        hot_keys: info.warmup_hot_keys(),
        seed: random_seed(),
        codec: value::codec(),
        ..BucketOptions::new(name, quota_bytes(info))
    }
}

/// Carries changed settings and the collections manifest over to a running bucket.
fn change(engine: &Bucket, info: &BucketInfo, now: Now) {
    engine.reconfigure(BucketChange {
        quota_bytes: Some(quota_bytes(info)),
        eviction: Some(info.eviction),
        max_ttl_secs: Some(info.max_ttl_secs),
        replicas: Some(info.replicas),
        durability_min: Some(info.durability_min),
        purge_interval_secs: Some(info.purge_interval_secs()),
        hot_keys: Some(info.warmup_hot_keys()),
        ..BucketChange::default()
    });
    if engine.manifest().uid != info.manifest.uid {
        engine.set_manifest(Arc::new(info.manifest.clone()), now);
    }
}

/// vBucket uuids must differ from those of every earlier start, so the seed comes from the operating system.
fn random_seed() -> u64 {
    let mut seed = [0; 8];
    // Without randomness the clock still differs between two starts.
    match getrandom::fill(&mut seed) {
        Ok(()) => u64::from_le_bytes(seed),
        Err(_) => std::time::SystemTime::now().elapsed().map_or(1, |elapsed| elapsed.as_nanos() as u64),
    }
}

/// How many shard folders, named 0, 1, …, a bucket has.
fn count_shards(folder: &Path) -> io::Result<usize> {
    let mut shards = 0;
    while folder.join(shards.to_string()).try_exists()? {
        shards += 1;
    }
    Ok(shards)
}

/// Creates all shard folders or, after a crash, none: they are made aside, synced and renamed into place together.
fn create_shards(folder: &Path, shards: usize) -> io::Result<()> {
    let aside = folder.with_extension("new");
    if aside.try_exists()? {
        fs::remove_dir_all(&aside)?;
    }
    for shard in 0..shards {
        fs::create_dir_all(aside.join(shard.to_string()))?;
    }
    fs::File::open(&aside)?.sync_all()?;
    if folder.try_exists()? {
        fs::remove_dir(folder)?;
    }
    fs::rename(&aside, folder)?;
    match folder.parent() {
        Some(parent) => fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_folders_come_all_at_once_and_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("uuid");
        assert_eq!(count_shards(&folder).unwrap(), 0);
        fs::create_dir_all(dir.path().join("uuid.new").join("0")).unwrap();
        create_shards(&folder, 3).unwrap();
        assert_eq!(count_shards(&folder).unwrap(), 3);
    }
}
