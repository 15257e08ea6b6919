//! What can be changed while a bucket runs. Read with plain loads on the data path, written by nobody but
//! [`crate::Bucket::reconfigure`].

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use base::bucket::{BucketKind, CompressionMode, DurabilityLevel, EvictionPolicy};

use crate::{
    api::options::{BucketChange, BucketOptions},
    memory::item,
    pressure::room::Room,
};

/// See the module header.
#[derive(Debug)]
pub(crate) struct Settings {
    quota_bytes: AtomicU64,
    /// What the bucket's memory can hold, whatever its quota is.
    memory_max: u64,
    shards: usize,
    is_cache: bool,
    /// See [`Settings::ease`].
    ease: (AtomicU64, AtomicU64),
    pub(crate) max_ttl_secs: AtomicU32,
    durability_min: AtomicU8,
    value_bytes_max: AtomicUsize,
    purge_interval_secs: AtomicU32,
    eviction: AtomicU8,
    compression: AtomicU8,
    hot_keys: AtomicBool,
}

const LEVELS: [DurabilityLevel; 4] = [
    DurabilityLevel::None,
    DurabilityLevel::Majority,
    DurabilityLevel::MajorityAndPersistActive,
    DurabilityLevel::PersistToMajority,
];

const POLICIES: [EvictionPolicy; 4] = [
    EvictionPolicy::ValueOnly,
    EvictionPolicy::FullEviction,
    EvictionPolicy::NoEviction,
    EvictionPolicy::NruEviction,
];

const MODES: [CompressionMode; 3] = [CompressionMode::Off, CompressionMode::Passive, CompressionMode::Active];

fn number_of<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|other| other == one).unwrap_or(0) as u8
}

impl Settings {
    pub(crate) fn new(options: &BucketOptions, memory_max: u64) -> Self {
        let settings = Self {
            quota_bytes: options.quota_bytes.into(),
            memory_max,
            shards: options.shards,
            is_cache: options.kind == BucketKind::Memcached,
            ease: Default::default(),
            max_ttl_secs: options.max_ttl_secs.into(),
            durability_min: number_of(&LEVELS, &options.durability_min).into(),
            value_bytes_max: options.value_bytes_max.into(),
            purge_interval_secs: options.purge_interval_secs.into(),
            eviction: number_of(&POLICIES, &options.eviction).into(),
            compression: number_of(&MODES, &options.compression).into(),
            hot_keys: options.hot_keys.into(),
        };
        settings.divide();
        settings
    }

    pub(crate) fn change(&self, change: &BucketChange) {
        if let Some(bytes) = change.quota_bytes {
            self.quota_bytes.store(bytes, Ordering::Relaxed);
            self.divide();
        }
        if let Some(secs) = change.max_ttl_secs {
            self.max_ttl_secs.store(secs, Ordering::Relaxed);
        }
        if let Some(level) = &change.durability_min {
            self.durability_min.store(number_of(&LEVELS, level), Ordering::Relaxed);
        }
        if let Some(bytes) = change.value_bytes_max {
            self.value_bytes_max.store(bytes.min(item::VALUE_BYTES_MAX), Ordering::Relaxed);
        }
        if let Some(secs) = change.purge_interval_secs {
            self.purge_interval_secs.store(secs, Ordering::Relaxed);
        }
        if let Some(on) = change.hot_keys {
            self.hot_keys.store(on, Ordering::Relaxed);
        }
        if let Some(policy) = &change.eviction {
            self.eviction.store(number_of(&POLICIES, policy), Ordering::Relaxed);
        }
        if let Some(mode) = &change.compression {
            self.compression.store(number_of(&MODES, mode), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn quota_bytes(&self) -> u64 {
        self.quota_bytes.load(Ordering::Relaxed)
    }

    /// What of the quota can be used: what goes by how much there is goes by this.
    pub(crate) fn usable_bytes(&self) -> u64 {
        self.quota_bytes().min(self.memory_max)
    }

    /// How that is divided.
    pub(crate) fn room(&self) -> Room {
        Room::of(self.usable_bytes(), self.shards, self.is_cache)
    }

    fn divide(&self) {
        let room = self.room();
        self.ease.0.store(room.high, Ordering::Relaxed);
        self.ease.1.store(room.dirty_paced, Ordering::Relaxed);
    }

    /// Memory, and dirty bytes of a shard, up to which a mutation need not ask whether there is room.
    #[inline]
    pub(crate) fn ease(&self) -> (u64, u64) {
        (self.ease.0.load(Ordering::Relaxed), self.ease.1.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn value_bytes_max(&self) -> usize {
        self.value_bytes_max.load(Ordering::Relaxed)
    }

    /// Whether it is remembered over a restart which keys are used most.
    pub(crate) fn hot_keys(&self) -> bool {
        self.hot_keys.load(Ordering::Relaxed)
    }

    pub(crate) fn purge_interval_secs(&self) -> u32 {
        self.purge_interval_secs.load(Ordering::Relaxed)
    }

    /// The least level of a write.
    #[inline]
    pub(crate) fn durability_min(&self) -> DurabilityLevel {
        let level = usize::from(self.durability_min.load(Ordering::Relaxed));
        LEVELS.get(level).copied().unwrap_or(DurabilityLevel::None)
    }

    pub(crate) fn compression(&self) -> CompressionMode {
        let mode = usize::from(self.compression.load(Ordering::Relaxed));
        MODES.get(mode).copied().unwrap_or(CompressionMode::Passive)
    }

    pub(crate) fn eviction(&self) -> EvictionPolicy {
        let policy = usize::from(self.eviction.load(Ordering::Relaxed));
        POLICIES.get(policy).copied().unwrap_or(EvictionPolicy::ValueOnly)
    }
}
