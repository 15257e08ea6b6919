//! A bucket that is open on a node: the engine over its simulated disks, and the steps that threads would call.

use std::sync::Arc;

use base::{BucketUuid, Now, VbId};
use cluster::{BucketInfo, Metadata, Weight};
use engine::{Bucket, BucketChange, BucketOptions, Waiter};
use fastrand::Rng;
use storage::KvStore;

use crate::support::{Disk, FaultDisk, Recorder};

/// Dirty documents wait for the disk at most this long.
const FLUSH_EVERY_MILLIS: u64 = 25;

/// See the module.
pub(crate) struct OpenBucket {
    pub(crate) name: String,
    pub(crate) engine: Arc<Bucket>,
    /// What is open on the disks.
    pub(crate) stores: Vec<Arc<dyn KvStore>>,
    recorder: Arc<Recorder>,
    flush_at: u64,
}

impl OpenBucket {
    /// Opens a bucket as the runtime does, with `seed` in the place of its randomness.
    pub(crate) fn open(
        (name, info): (&str, &BucketInfo),
        metadata: &Metadata,
        disks: &[Arc<FaultDisk>],
        seed: u64,
        now: Now,
    ) -> Self {
        let options = BucketOptions {
            kind: info.kind,
            vbuckets: info.vbuckets,
            eviction: info.eviction,
            shards: disks.len(),
            role: settee_node::first_role(metadata, info),
            replicas: info.replicas,
            durability_min: info.durability_min,
            seed,
            ..BucketOptions::new(name, info.ram_quota_mb << 20)
        };
        let stores: Vec<_> = disks.iter().map(|disk| disk.open()).collect();
        let recorder = Arc::<Recorder>::default();
        let manifest = Arc::new(info.manifest.clone());
        let engine = Bucket::open(options, stores.clone(), manifest, recorder.clone(), now).unwrap();
        Self { name: name.to_owned(), engine, stores, recorder, flush_at: 0 }
    }

    /// Carries changed settings over.
    pub(crate) fn change(&self, info: &BucketInfo) {
        let replicas = Some(info.replicas);
        self.engine.reconfigure(BucketChange { replicas, ..BucketChange::default() });
    }

    /// What the bucket's threads do, where the disk lets them; who was woken.
    pub(crate) fn work(&mut self, rng: &mut Rng, disk_works: bool, now: Now) -> Vec<Waiter> {
        if disk_works {
            let is_due = now.mono_millis >= self.flush_at;
            for shard in 0..self.engine.shards() {
                if is_due || self.engine.is_flush_wanted(shard) {
                    let report = self.engine.flush(shard, now);
                    assert_eq!(report.failed, None, "this disk does not fail");
                }
                self.engine.run_fetches(shard, 16, now);
                self.engine.run_backfills(shard, now);
                if rng.u8(0..32) == 0 {
                    self.engine.warm_up(shard, now).unwrap();
                }
                if self.engine.is_warm() && rng.u16(0..1_000) == 0 {
                    self.engine.compact(shard, now).unwrap();
                }
            }
            if is_due {
                self.flush_at = now.mono_millis + FLUSH_EVERY_MILLIS;
                self.engine.time_out_durable(now);
            }
        }
        self.recorder.work.lock().clear();
        std::mem::take(&mut *self.recorder.woken.lock())
    }

    /// Bytes that copying each active vBucket would send, about.
    pub(crate) fn weights(&self) -> Vec<(VbId, Weight)> {
        let infos = (0..self.engine.vbuckets()).filter_map(|vb| self.engine.vb_state(VbId(vb)).ok());
        let active = infos.filter(|info| info.role == base::VbRole::Active);
        active.map(|info| (info.vb, Weight { bytes: info.items * 100, items: info.items })).collect()
    }
}

/// The disks of a new bucket on a node.
pub(crate) fn new_disks(uuid: &BucketUuid, shards: usize, seed: u64) -> Vec<Arc<FaultDisk>> {
    let salt: u64 = uuid.0.bytes().map(u64::from).sum();
    let disk = |shard: usize| FaultDisk::new(seed ^ (salt << 8) ^ shard as u64, shard as u32);
    (0..shards).map(|shard| Arc::new(disk(shard))).collect()
}
