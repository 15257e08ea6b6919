//! The buckets that are open on this node: makes reality follow the metadata, and publishes the result to the
//! data plane.
//!
//! Order matters. A bucket is opened before it is published. It is unpublished before its threads are stopped and its files
//! removed, so that a worker never meets a bucket that cannot answer. Files are removed by nobody while the bucket may still
//! write them, and that is until everybody has let go of it. Until then the node does not open the same bucket again, even
//! if it has left the cluster and joins it again at once. The new instance would find, write and lose the same files.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use base::{BucketUuid, Now, VbRole, bucket::BucketKind, limits};
use cluster::{BucketInfo, Metadata};
use dataplane::{
    BucketMeter, Shared, Wakes,
    shared::{BucketEntry, BucketMaps, ConfigDocument, ConfigVersion, Snapshot},
    value,
};
use engine::{Bucket, BucketChange, BucketOptions, Notifier, SHARD_QUOTA_MAX};
use parking_lot::Mutex;
use service::{Alarms, Missed, Place, Readiness};
use storage::KvStore;
use tokio::sync::Notify;

use crate::{
    buckets::{
        asked::Compacting,
        background::{BucketThreads, BucketWakeFlags},
        disk_guard,
        housekeeping::MeteredBucket,
        maps::Cadence,
        unavailable::{BucketError, Unavailable},
    },
    files::{
        data_dir::DataDir,
        disk::Disk,
        shards::{GONE, STAGED, ShardFolders},
    },
    setup::{
        closing::{NotClosed, wants_space},
        identity::ThisNode,
    },
    threads::{spawn::spawn, wake_flag::NodeWakeFlags},
};

/// How often it is looked whether everybody has let go of a dropped bucket.
const LET_GO_EVERY: Duration = Duration::from_millis(20);
/// More shards than this only cost syncs: one log keeps a disk busy.
const SHARDS_MAX: usize = 4;

/// Everything that belongs to one open bucket.
struct OpenBucket {
    uuid: BucketUuid,
    engine: Arc<Bucket>,
    meter: Arc<BucketMeter>,
    threads: BucketThreads,
    compacting: Compacting,
}

/// A bucket that could not be opened.
struct Unopened {
    name: String,
    why: String,
}

/// A dropped bucket that is published no longer and whose threads have been told to end.
struct DroppedBucket {
    name: String,
    uuid: BucketUuid,
    /// Nothing of one that could not be opened: it has files only.
    open: Option<(Arc<Bucket>, BucketThreads)>,
}

/// Whether the node has closed its buckets, which stay so: it ends.
#[derive(Debug, Default)]
struct Closed(bool);

/// The open buckets by name.
pub(crate) struct OpenBuckets {
    data_dir: Arc<DataDir>,
    /// What the stores of all buckets lie on: each bucket has files of its own there.
    disk: Disk,
    shared: Arc<Shared>,
    wakes: Wakes,
    workers: usize,
    this_node: Arc<ThisNode>,
    wake_flags: NodeWakeFlags,
    /// Where threads of services wait for feeds.
    alarms: Arc<Alarms>,
    /// Which copies services are not ready for.
    readiness: Arc<Readiness>,
    /// Whose clients services give way to.
    missed: Arc<Missed>,
    /// Held by the thread that opens or drops buckets, for as long as the disk takes. Taken before `open`. It tells whether all are open no
    /// more for good.
    changing: Mutex<Closed>,
    /// Locked to look at the map and to change it, never while the disk or a bucket is asked for anything. The threads that
    /// attend to all buckets begin here.
    open: Mutex<HashMap<String, OpenBucket>>,
    /// Dropped buckets that somebody may still use: the thread that waits for that removes their files. Filled with `changing` locked.
    leaving: Arc<Mutex<BTreeSet<BucketUuid>>>,
    /// Told when one of those is gone.
    left: Arc<Notify>,
    /// Those of them that nobody waits for yet, for want of a thread.
    removal_backlog: Mutex<Vec<DroppedBucket>>,
    /// Buckets that could not be opened. They may have files, which go with them. Changed with `changing` locked.
    unopened: Mutex<BTreeMap<BucketUuid, Unopened>>,
    /// When the maps were published that are.
    maps: Mutex<Cadence>,
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
        Self {
            data_dir,
            disk,
            shared,
            wakes,
            workers,
            this_node,
            wake_flags: NodeWakeFlags::default(),
            alarms: Arc::default(),
            readiness: Arc::default(),
            missed: Arc::default(),
            changing: Mutex::default(),
            open: Mutex::default(),
            leaving: Arc::default(),
            left: Arc::default(),
            removal_backlog: Mutex::default(),
            unopened: Mutex::default(),
            maps: Mutex::default(),
            generation: AtomicU64::new(0),
        }
    }

    /// Opens, changes and drops buckets until they are what `metadata` says, then publishes. What fails is
    /// reported; everything else is carried out and published all the same.
    pub(crate) fn reconcile(&self, metadata: &Arc<Metadata>) -> Result<(), Unavailable> {
        let changing = self.changing.lock();
        if changing.0 {
            // The next start carries it out. What is opened now would not be closed cleanly.
            return Ok(());
        }
        let mut failed = Vec::new();
        let gone = take_gone(&mut self.open.lock(), metadata);
        let never_opened = take_unknown(&mut self.unopened.lock(), metadata);
        let uuids = gone.iter().map(|(_, bucket)| &bucket.uuid).chain(never_opened.keys());
        self.leaving.lock().extend(uuids.cloned());
        for (name, info) in &metadata.buckets {
            let carried_out = match self.engine(name) {
                Some(engine) => {
                    change(&engine, info, self.shared.now());
                    Ok(())
                }
                None if self.leaving.lock().contains(&info.uuid) => {
                    Err(BucketError::Leaving { name: name.clone() })
                }
                None => self.try_to_open(name, info, metadata),
            };
            failed.extend(carried_out.err().map(|error| (info.uuid.clone(), error)));
        }
        // Before anybody can learn that they are gone. A bucket that was dropped must accept no mutation that a new one of its
        // name would not have.
        gone.iter().for_each(|(_, bucket)| bucket.threads.end());
        self.publish(&self.open.lock(), metadata);
        drop(changing);
        if !gone.is_empty() {
            self.generation.fetch_add(1, Ordering::Release);
        }
        let backlog = std::mem::take(&mut *self.removal_backlog.lock());
        let dropped = gone.into_iter().map(|(name, bucket)| {
            let OpenBucket { uuid, engine, threads, .. } = bucket;
            DroppedBucket { name, uuid, open: Some((engine, threads)) }
        });
        let never_opened = never_opened.into_iter().map(|(uuid, Unopened { name, .. })| DroppedBucket {
            name,
            uuid,
            open: None,
        });
        for bucket in backlog.into_iter().chain(dropped).chain(never_opened) {
            let uuid = bucket.uuid.clone();
            failed.extend(self.remove(bucket).err().map(|error| (uuid, error)));
        }
        Unavailable::check(failed)
    }

    fn try_to_open(&self, name: &str, info: &BucketInfo, metadata: &Metadata) -> Result<(), BucketError> {
        match self.open_bucket(name, info, node::first_role(metadata, &self.this_node.uuid(), info)) {
            Ok(bucket) => {
                self.unopened.lock().remove(&info.uuid);
                self.open.lock().insert(name.to_owned(), bucket);
                self.generation.fetch_add(1, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                let unopened = Unopened { name: name.to_owned(), why: error.to_string() };
                self.unopened.lock().insert(info.uuid.clone(), unopened);
                Err(error)
            }
        }
    }

    /// Publishes again, with the maps that were held back.
    pub(crate) fn tell_maps(&self, metadata: &Arc<Metadata>) {
        let _changing = self.changing.lock();
        self.publish(&self.open.lock(), metadata);
    }

    /// When maps are to be told that are held back; none if clients are told of the newest.
    pub(crate) fn maps_due(&self) -> Option<Instant> {
        self.maps.lock().due()
    }

    /// The wake flags that every bucket sets.
    pub(crate) fn wake_flags(&self) -> &NodeWakeFlags {
        &self.wake_flags
    }

    /// Where threads of services wait for feeds of these buckets.
    pub(crate) fn alarms(&self) -> &Arc<Alarms> {
        &self.alarms
    }

    /// Which copies services are not ready for.
    pub(crate) fn readiness(&self) -> &Arc<Readiness> {
        &self.readiness
    }

    /// The buckets whose operations miss their objective of latency. Services give way to their clients.
    pub(crate) fn missed(&self) -> &Arc<Missed> {
        &self.missed
    }

    /// Where a service keeps its files.
    pub(crate) fn place_of(&self, service: &str) -> Place {
        let shared = Arc::clone(&self.shared);
        Place {
            fs: self.disk.files(),
            dir: self.data_dir.service(service),
            room_min: Arc::new(move || disk_guard::left_by_services(*shared.disk.lock())),
        }
    }

    /// Whether a bucket of `metadata` could not be opened, or another one not be removed.
    pub(crate) fn misses(&self, metadata: &Metadata) -> bool {
        let has_backlog = !self.removal_backlog.lock().is_empty();
        let open = self.open.lock();
        has_backlog || metadata.buckets.keys().any(|name| !open.contains_key(name))
    }

    /// Buckets that could not be opened at the last try, by name, and why.
    pub(crate) fn unopened(&self) -> Vec<(String, String)> {
        let unopened = self.unopened.lock();
        unopened.values().map(|Unopened { name, why }| (name.clone(), why.clone())).collect()
    }

    /// Waits until a dropped bucket is gone that may have been in the way of a new one.
    pub(crate) async fn one_has_left(&self) {
        self.left.notified().await;
    }

    /// All open buckets with their meters, for the threads that look after all of them.
    pub(crate) fn metered_buckets(&self) -> Vec<MeteredBucket> {
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
        self.to_compact(uuid).map(|(engine, _)| engine)
    }

    /// The same, and whether it is being compacted as a whole.
    pub(crate) fn to_compact(&self, uuid: &BucketUuid) -> Option<(Arc<Bucket>, Compacting)> {
        let open = self.open.lock();
        let bucket = open.values().find(|bucket| bucket.uuid == *uuid)?;
        Some((Arc::clone(&bucket.engine), bucket.compacting.clone()))
    }

    /// The engine of an open bucket.
    pub(crate) fn engine(&self, name: &str) -> Option<Arc<Bucket>> {
        self.open.lock().get(name).map(|bucket| Arc::clone(&bucket.engine))
    }

    /// The operation meter of an open bucket.
    pub(crate) fn meter(&self, name: &str) -> Option<Arc<BucketMeter>> {
        self.open.lock().get(name).map(|bucket| Arc::clone(&bucket.meter))
    }

    /// Stops every bucket after writing and syncing what is dirty. The data plane must be stopped by now. None is opened any more.
    ///
    /// # Errors
    /// The buckets that could not be brought to a clean end. All others are.
    pub(crate) fn close(&self) -> Result<(), NotClosed> {
        let mut changing = self.changing.lock();
        changing.0 = true;
        let open: Vec<_> = self.open.lock().drain().collect();
        let stopped: Vec<_> = open
            .into_iter()
            .map(|(name, bucket)| {
                bucket.threads.stop();
                (name, bucket.engine)
            })
            .collect();
        let close = |(name, engine): (String, Arc<Bucket>)| {
            engine.close(self.shared.now()).err().map(|shards| (name, engine, shards))
        };
        let failed: Vec<_> = stopped.into_iter().filter_map(close).collect();
        let mut left = NotClosed::default();
        for (name, engine, shards) in failed {
            // The buckets after this one have given space back when they were closed.
            let closed = if wants_space(&shards) { engine.close(self.shared.now()) } else { Err(shards) };
            if let Err(shards) = closed {
                left.add(name, shards);
            }
        }
        left.into_result()
    }

    /// Removes the files of buckets that `metadata` does not know: what a crash left behind. The files of a bucket that was
    /// dropped just now stay, since they are still written to. To be called only with metadata that are known to be no
    /// older than this node's start. A bucket might be too new for them otherwise.
    pub(crate) fn remove_unknown(&self, metadata: &Metadata) -> io::Result<()> {
        // Nothing is opened or dropped meanwhile.
        let _changing = self.changing.lock();
        let leaving = self.leaving.lock().clone();
        let is_leaving = |folder: &str| {
            let bare = [GONE, STAGED].iter().find_map(|end| folder.strip_suffix(end)).unwrap_or(folder);
            leaving.iter().any(|uuid| uuid.0 == bare)
        };
        let is_known = |folder: &str| metadata.buckets.values().any(|info| info.uuid.0 == folder);
        self.data_dir.remove_unknown_buckets(|folder| is_known(folder) || is_leaving(folder))
    }

    fn open_bucket(&self, name: &str, info: &BucketInfo, role: VbRole) -> Result<OpenBucket, BucketError> {
        let persistent = info.kind == BucketKind::Couchbase;
        let stores = if persistent { self.open_stores(name, info)? } else { Vec::new() };
        let shards = if persistent { stores.len() } else { self.shards_of_new(info) };
        if quota_bytes(info) > shards as u64 * SHARD_QUOTA_MAX {
            tracing::warn!(
                bucket = name,
                shards,
                "not all of the quota can be used: the bucket has too few shards for it"
            );
        }
        let meter = Arc::new(BucketMeter::new(self.workers));
        let (wake_flags, counted) = (self.wake_flags.clone(), Arc::clone(&meter));
        let wake_flags = Arc::new(BucketWakeFlags::new(
            shards,
            wake_flags,
            (self.wakes.clone(), Arc::clone(&self.alarms)),
            counted,
        ));
        let notifier = Arc::clone(&wake_flags) as Arc<dyn Notifier>;
        let manifest = Arc::new(info.manifest.clone());
        let seed = random_seed().map_err(|source| BucketError::Io { name: name.into(), source })?;
        let options = BucketOptions { role, seed, ..options(name, info, shards) };
        let engine = Bucket::open(options, stores, manifest, notifier, self.shared.now())
            .map_err(|source| BucketError::Open { name: name.into(), source })?;
        let (shared, counted) = (Arc::clone(&self.shared), Arc::clone(&meter));
        let started = BucketThreads::start(&engine, wake_flags, persistent, counted, shared);
        let threads = started.map_err(|source| {
            // Nobody was served: no new branch of history is needed at the next attempt. Without the mark of a clean end there is one.
            let _ = engine.close(self.shared.now());
            BucketError::Io { name: name.into(), source }
        })?;
        let uuid = info.uuid.clone();
        Ok(OpenBucket { uuid, engine, meter, threads, compacting: Compacting::default() })
    }

    /// Opens one store per shard. How many there are is decided when the bucket is new and kept for its life.
    fn open_stores(&self, name: &str, info: &BucketInfo) -> Result<Vec<Arc<dyn KvStore>>, BucketError> {
        let failed = |source| BucketError::Shards { name: name.into(), source };
        let (folder, record) = (self.data_dir.bucket(&info.uuid), self.data_dir.shards_record(&info.uuid));
        let folders = ShardFolders { folder: &folder, record: &record };
        let files = self.disk.files();
        let shards = folders.settle(&*files, self.shards_of_new(info)).map_err(failed)?;
        let stores: Result<Vec<_>, _> = (0..shards)
            .map(|shard| {
                let options = storage::Options { shard: shard as u32, ..storage::Options::default() };
                let store = storage::open(&folders.of(shard), Arc::clone(&files), options)
                    .map_err(|source| BucketError::Store { name: name.into(), source })?;
                Ok(Arc::new(store) as Arc<dyn KvStore>)
            })
            .collect();
        let stores = stores?;
        folders.record(shards).map_err(failed)?;
        Ok(stores)
    }

    /// How many shards a new bucket gets: few, but so many that its quota could be doubled.
    fn shards_of_new(&self, info: &BucketInfo) -> usize {
        let for_memory = quota_bytes(info).saturating_mul(2).div_ceil(SHARD_QUOTA_MAX) as usize;
        self.workers.clamp(1, SHARDS_MAX).max(for_memory).min(usize::from(info.vbuckets))
    }

    fn publish(&self, open: &HashMap<String, OpenBucket>, metadata: &Arc<Metadata>) {
        let this_node = self.this_node.uuid();
        let version = ConfigVersion { epoch: metadata.rev_epoch, rev: metadata.rev };
        let is_told = self.maps.lock().admits(metadata, Instant::now());
        let former = (!is_told).then(|| self.shared.snapshot());
        let former_of = |name: &str, uuid: &BucketUuid| {
            former.as_ref()?.buckets.get(name).filter(|entry| entry.uuid == *uuid)
        };
        let entries = open.iter().filter_map(|(name, bucket)| {
            let info = metadata.buckets.get(name)?;
            let make = {
                let (metadata, name, this_node) = (Arc::clone(metadata), name.clone(), this_node.clone());
                move || {
                    let json = cluster::config::bucket_config(&metadata, &name, &this_node)?;
                    Some(Arc::new(ConfigDocument::new(version, json)))
                }
            };
            let maps = match former_of(name, &bucket.uuid) {
                Some(entry) => BucketMaps::holding_back(&entry.maps, make),
                None => BucketMaps::new(make()?, Arc::clone(&info.vbs)),
            };
            let entry = BucketEntry {
                name: name.as_str().into(),
                uuid: bucket.uuid.clone(),
                engine: Arc::clone(&bucket.engine),
                maps,
                legacy: info.legacy.clone(),
                flush_enabled: info.flush_enabled,
                meter: Arc::clone(&bucket.meter),
            };
            Some((name.clone(), Arc::new(entry)))
        });
        let made = || {
            let json = cluster::config::cluster_config(metadata, &this_node);
            metadata.initialized.then(|| Arc::new(ConfigDocument::new(version, json)))
        };
        let cluster_config = former.as_ref().and_then(|former| former.cluster_config.clone()).or_else(made);
        self.shared.publish(Snapshot::new(Arc::clone(metadata), entries.collect(), cluster_config));
        self.wake_flags.reconciler.wake();
    }

    /// Ends a bucket. Its own threads may be at the disk, which may take any time. Connections and housekeeping let go of it one
    /// by one. The last holder frees every document and closes the files. None of that must happen to a data-plane loop, or to
    /// the thread that carries out metadata. So a thread that may block waits to be the last. Should the process end before, the
    /// next start removes the files. Without such a thread the bucket waits in the backlog until the next try.
    fn remove(&self, bucket: DroppedBucket) -> Result<(), BucketError> {
        let name = bucket.name.clone();
        let folder = self.data_dir.bucket(&bucket.uuid);
        let record = self.data_dir.shards_record(&bucket.uuid);
        let (leaving, left) = (Arc::clone(&self.leaving), Arc::clone(&self.left));
        // Services hold it until they hear that it is closed. A node that is added again at once has to wait for that.
        self.wake_flags.services.wake();
        // Shared, so that it is still there if no thread is.
        let bucket = Arc::new(Mutex::new(Some(bucket)));
        let taken = Arc::clone(&bucket);
        let waiter = spawn("drop-bucket", move || {
            let Some(DroppedBucket { name: bucket, uuid, open }) = taken.lock().take() else {
                return;
            };
            if let Some((engine, threads)) = open {
                threads.stop();
                while Arc::strong_count(&engine) > 1 {
                    std::thread::sleep(LET_GO_EVERY);
                }
                drop(engine);
            }
            match (ShardFolders { folder: &folder, record: &record }).remove() {
                Err(error) => {
                    tracing::error!(bucket, %error, "the files of a dropped bucket stay until the next start");
                }
                Ok(()) => tracing::info!(bucket, "a dropped bucket is gone from memory and disk"),
            }
            leaving.lock().remove(&uuid);
            left.notify_one();
        });
        waiter.map(drop).map_err(|source| {
            self.removal_backlog.lock().extend(bucket.lock().take());
            BucketError::Io { name, source }
        })
    }
}

/// Takes out buckets that the metadata has no longer, or has under another uuid.
fn take_gone(open: &mut HashMap<String, OpenBucket>, metadata: &Metadata) -> Vec<(String, OpenBucket)> {
    let is_gone = |name: &String, bucket: &mut OpenBucket| {
        metadata.buckets.get(name).is_none_or(|info| info.uuid != bucket.uuid)
    };
    open.extract_if(is_gone).collect()
}

/// Takes out buckets that could not be opened, and that the metadata have no longer.
fn take_unknown(
    unopened: &mut BTreeMap<BucketUuid, Unopened>,
    metadata: &Metadata,
) -> BTreeMap<BucketUuid, Unopened> {
    unopened.extract_if(.., |uuid, _| metadata.bucket_by_uuid(uuid).is_none()).collect()
}

fn quota_bytes(info: &BucketInfo) -> u64 {
    info.ram_quota_mb.saturating_mul(1024 * 1024)
}

fn options(name: &str, info: &BucketInfo, shards: usize) -> BucketOptions {
    BucketOptions {
        kind: info.kind,
        vbuckets: info.vbuckets,
        eviction: info.eviction,
        compression: info.compression,
        conflict: info.conflict,
        max_ttl_secs: info.max_ttl_secs,
        shards,
        replicas: info.replicas,
        durability_min: info.durability_min,
        value_bytes_max: limits::VALUE_BYTES_MAX,
        purge_interval_secs: info.purge_interval_secs(),
        hot_keys: info.warmup_hot_keys(),
        codec: value::codec(),
        ..BucketOptions::new(name, quota_bytes(info))
    }
}

/// Carries changed settings and the collections manifest over to a running bucket.
fn change(engine: &Bucket, info: &BucketInfo, now: Now) {
    engine.reconfigure(BucketChange {
        quota_bytes: Some(quota_bytes(info)),
        eviction: Some(info.eviction),
        compression: Some(info.compression),
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

/// vBucket uuids must differ from those of every earlier start, so the seed comes from the operating system. Without it the
/// bucket is not opened: two branches of history under one uuid would pass for one.
fn random_seed() -> io::Result<u64> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    Ok(u64::from_le_bytes(seed))
}

#[cfg(test)]
mod tests;
