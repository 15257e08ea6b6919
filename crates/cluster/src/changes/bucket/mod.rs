//! Creating, changing and dropping buckets: the rules of Couchbase's `/pools/default/buckets`, with its texts.
//!
//! [`BucketParams`] is what a request asked for, every part optional; [`check`] says what is wrong with it against a
//! given state. The same check guards [`create`] and [`update`], so `just_validate` requests and real ones agree.
//! Settee's own additions are the legacy switches and smaller quotas on request.

mod params;

use std::{collections::BTreeMap, sync::Arc};

use base::{
    BucketUuid, Manifest,
    bucket::{BucketKind, CompressionMode, ConflictResolution, DurabilityLevel, EvictionPolicy},
    limits,
};

pub use params::{BucketParams, LegacyParams};
use serde::{Deserialize, Serialize};

use crate::{
    changes::{Command, users},
    metadata::{BucketInfo, ClusterError, FieldErrors, LegacyAccess, Metadata, level::LIVING_ASKED, maps},
};

/// Longest bucket name (ns_server).
const NAME_BYTES_MAX: usize = 100;
/// Smallest quota of a bucket unless the request says that it means it (ns_server's `membase_min_ram_quota`).
const QUOTA_MB_MIN: u64 = 100;
/// Smallest quota of a cache-only bucket (ns_server).
const CACHE_QUOTA_MB_MIN: u64 = 64;
/// Smallest quota with `allowSmallQuota=1`: below it the tables of 1,024 vBuckets leave nothing for documents.
const SMALL_QUOTA_MB_MIN: u64 = 16;
/// Smallest memory quota of a node (ns_server).
const MEMORY_QUOTA_MB_MIN: u64 = 256;
/// Most copies beside the active one (ns_server).
const REPLICAS_MAX: u8 = 3;
/// Copies beside the active one when the request does not say (ns_server).
const REPLICAS_DEFAULT: u8 = 1;

/// What is done to one bucket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BucketChange {
    /// As [`Command::UpdateBucket`].
    Update(Box<BucketParams>),
    /// As [`Command::FlushBucket`], with the new uuid, where the bucket may be flushed.
    Flush(BucketUuid),
    /// As [`Command::DeleteBucket`].
    Delete,
}

impl Metadata {
    /// What changes the bucket of that name that has that uuid. A proposal may come late, when another bucket has the name. Where some
    /// members would not understand that, it is whatever bucket has the name by then.
    #[must_use]
    pub fn change_of_bucket(&self, name: &str, over: &BucketUuid, change: BucketChange) -> Command {
        let name = name.to_owned();
        if self.names_what_is_meant() {
            return Command::ChangeBucket { name, over: over.clone(), change };
        }
        match change {
            BucketChange::Update(params) => Command::UpdateBucket { name, params: *params },
            BucketChange::Flush(uuid) => Command::FlushBucket { name, uuid },
            BucketChange::Delete => Command::DeleteBucket { name },
        }
    }
}

pub(crate) fn change(
    state: &mut Metadata,
    name: &str,
    over: &BucketUuid,
    change: &BucketChange,
) -> Result<(), ClusterError> {
    let meant = state.buckets.get(name).filter(|bucket| bucket.uuid == *over);
    let may_be_flushed = meant.ok_or(ClusterError::BucketNotFound)?.flush_enabled;
    match change {
        BucketChange::Update(params) => update(state, name, params),
        BucketChange::Flush(_) if !may_be_flushed => {
            Err(ClusterError::field("_", "Flush is disabled for the bucket"))
        }
        BucketChange::Flush(uuid) => flush(state, name, uuid),
        BucketChange::Delete => delete(state, name),
    }
}

pub(crate) fn create(
    state: &mut Metadata,
    name: &str,
    uuid: &BucketUuid,
    params: &BucketParams,
) -> Result<(), ClusterError> {
    ClusterError::unless_empty(check(state, name, params, true))?;
    let kind = params.kind.unwrap_or(BucketKind::Couchbase);
    let mut bucket = BucketInfo {
        uuid: uuid.clone(),
        kind,
        ram_quota_mb: 0,
        replicas: if kind == BucketKind::Memcached { 0 } else { REPLICAS_DEFAULT },
        replica_index: params.replica_index.unwrap_or(false),
        flush_enabled: false,
        eviction: default_eviction(kind, params.storage_backend.as_deref()),
        compression: if kind == BucketKind::Memcached {
            CompressionMode::Off
        } else {
            CompressionMode::Passive
        },
        conflict: params.conflict.unwrap_or(ConflictResolution::Seqno),
        max_ttl_secs: 0,
        durability_min: DurabilityLevel::None,
        storage_backend: params.storage_backend.clone().unwrap_or_else(|| "couchstore".into()),
        vbuckets: params.vbuckets.unwrap_or(limits::VBUCKETS_MAX),
        vbs: Arc::default(),
        target: None,
        former: BTreeMap::new(),
        manifest: Manifest::default(),
        design_documents: Arc::default(),
        objectives: BTreeMap::new(),
        legacy: LegacyAccess::default(),
        recorded: BTreeMap::new(),
    };
    overlay(&mut bucket, params);
    if kind != BucketKind::Memcached {
        bucket.vbs = Arc::new(maps::first_plans(state, bucket.vbuckets, bucket.replicas));
    }
    if bucket.legacy.memcached_port {
        take_memcached_port(state);
    }
    state.buckets.insert(name.to_owned(), bucket);
    state.aim_bucket(name);
    Ok(())
}

pub(crate) fn update(state: &mut Metadata, name: &str, params: &BucketParams) -> Result<(), ClusterError> {
    if !state.buckets.contains_key(name) {
        return Err(ClusterError::BucketNotFound);
    }
    ClusterError::unless_empty(check(state, name, params, false))?;
    if params.legacy.memcached_port == Some(true) {
        take_memcached_port(state);
    }
    if let Some(bucket) = state.buckets.get_mut(name) {
        overlay(bucket, params);
    }
    if params.replicas.is_some() {
        // Outside a rebalance the next one brings the copies there shall be.
        state.aim_bucket(name);
    }
    Ok(())
}

/// Empties a bucket by putting another one in its place. Copies of its documents may be left on a node that is down, or in
/// a stream. They belong to a bucket that is gone.
pub(crate) fn flush(state: &mut Metadata, name: &str, uuid: &BucketUuid) -> Result<(), ClusterError> {
    if state.rebalance.is_some() {
        return Err(ClusterError::MembersRefused("Cannot flush buckets during rebalance".into()));
    }
    let ends_elections = state.level < LIVING_ASKED;
    let bucket = state.buckets.get_mut(name).ok_or(ClusterError::BucketNotFound)?;
    bucket.uuid = uuid.clone();
    bucket.former.clear();
    bucket.vbs = Arc::new(bucket.vbs.iter().map(|plan| plan.emptied(ends_elections)).collect());
    Ok(())
}

pub(crate) fn delete(state: &mut Metadata, name: &str) -> Result<(), ClusterError> {
    state.buckets.remove(name).ok_or(ClusterError::BucketNotFound)?;
    users::forget_grants(state, |grant| grant.target.bucket() == Some(name));
    Ok(())
}

/// The plain memcached port serves one bucket at a time: the last one that asked.
fn take_memcached_port(state: &mut Metadata) {
    for bucket in state.buckets.values_mut() {
        bucket.legacy.memcached_port = false;
    }
}

fn default_eviction(kind: BucketKind, backend: Option<&str>) -> EvictionPolicy {
    match kind {
        BucketKind::Couchbase if backend == Some("magma") => EvictionPolicy::FullEviction,
        BucketKind::Couchbase => EvictionPolicy::ValueOnly,
        BucketKind::Ephemeral => EvictionPolicy::NoEviction,
        BucketKind::Memcached => EvictionPolicy::NruEviction,
    }
}

fn overlay(bucket: &mut BucketInfo, params: &BucketParams) {
    let durable = bucket.kind != BucketKind::Memcached;
    set(&mut bucket.ram_quota_mb, params.ram_quota_mb);
    set(&mut bucket.replicas, params.replicas.filter(|_| durable));
    set(&mut bucket.flush_enabled, params.flush_enabled);
    set(&mut bucket.eviction, params.eviction.filter(|_| durable));
    set(&mut bucket.compression, params.compression.filter(|_| durable));
    set(&mut bucket.max_ttl_secs, params.max_ttl_secs.filter(|_| durable));
    set(&mut bucket.durability_min, params.durability_min.filter(|_| durable));
    bucket.recorded.extend(params.recorded.clone());
    let legacy = &params.legacy;
    set(&mut bucket.legacy.passwordless, legacy.passwordless);
    set(&mut bucket.legacy.memcached_port, legacy.memcached_port);
    if let Some(password) = &legacy.sasl_password {
        let given = !password.is_empty();
        bucket.legacy.sasl_password = given.then(|| password.clone());
        bucket.legacy.credentials = legacy.credentials.clone().filter(|_| given);
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// What is wrong with asking for this; empty when nothing is.
#[must_use]
pub fn check(state: &Metadata, name: &str, params: &BucketParams, create: bool) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let current = state.buckets.get(name).filter(|_| !create);
    let kind = current.map_or(params.kind.unwrap_or(BucketKind::Couchbase), |bucket| bucket.kind);
    if create && let Some(text) = check_name(state, name) {
        // Alone: gocb looks at one refusal of several, and must find this one.
        errors.insert("name".into(), text.into());
        return errors;
    }
    if let Some(bucket) = current {
        check_unchangeable(bucket, params, &mut errors);
    }
    check_quota(state, name, params, kind, create, &mut errors);
    check_replicas(state, current, params, kind, &mut errors);
    check_policies(params, kind, &mut errors);
    if let Some(vbuckets) = params.vbuckets
        && create
        && !(limits::VBUCKETS_MIN..=limits::VBUCKETS_MAX).contains(&vbuckets)
    {
        let text = format!(
            "Number of vbuckets must be an integer between {} and {}",
            limits::VBUCKETS_MIN,
            limits::VBUCKETS_MAX
        );
        errors.insert("numVBuckets".into(), text);
    }
    if create && kind == BucketKind::Ephemeral && params.replica_index.is_some() {
        errors.insert("replicaIndex".into(), "replicaIndex not supported for ephemeral buckets".into());
    }
    let before = current.map(|bucket| &bucket.legacy);
    let passwordless =
        params.legacy.passwordless.unwrap_or_else(|| before.is_some_and(|legacy| legacy.passwordless));
    let has_password = match &params.legacy.sasl_password {
        Some(password) => !password.is_empty(),
        None => before.is_some_and(|legacy| legacy.sasl_password.is_some()),
    };
    if passwordless && has_password {
        let text = "A bucket that needs no password cannot have one.";
        errors.insert("legacyPasswordless".into(), text.into());
    }
    errors
}

fn check_name(state: &Metadata, name: &str) -> Option<&'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'%');
    if name.is_empty() {
        Some("Bucket name cannot be empty")
    } else if name.len() > NAME_BYTES_MAX {
        Some("Bucket name cannot exceed 100 characters")
    } else if !name.bytes().all(allowed) {
        Some(
            "Bucket name can only contain characters in range A-Z, a-z, 0-9 as well as underscore, period, \
             dash & percent. Consult the documentation.",
        )
    } else if name.starts_with('.') {
        Some("Bucket name cannot start with dot.")
    } else if ["_replicator", "_users", "_metadata"].contains(&name.to_ascii_lowercase().as_str()) {
        Some("This name is reserved for the internal use.")
    } else if state.buckets.keys().any(|taken| taken.eq_ignore_ascii_case(name)) {
        Some("Bucket with given name already exists")
    } else {
        None
    }
}

fn check_unchangeable(bucket: &BucketInfo, params: &BucketParams, errors: &mut FieldErrors) {
    if params.kind.is_some_and(|kind| kind != bucket.kind) {
        errors.insert("bucketType".into(), "Cannot change bucket type.".into());
    }
    if params.conflict.is_some() {
        let text = "Conflict resolution type not allowed in update bucket";
        errors.insert("conflictResolutionType".into(), text.into());
    }
    if params.vbuckets.is_some_and(|vbuckets| vbuckets != bucket.vbuckets) {
        errors.insert("numVBuckets".into(), "Number of vbuckets cannot be modified".into());
    }
    if params.storage_backend.as_ref().is_some_and(|backend| *backend != bucket.storage_backend) {
        let text = "Storage mode migration is not supported: there is one storage engine.";
        errors.insert("storageBackend".into(), text.into());
    }
}

fn check_quota(
    state: &Metadata,
    name: &str,
    params: &BucketParams,
    kind: BucketKind,
    create: bool,
    errors: &mut FieldErrors,
) {
    let Some(asked) = params.ram_quota_mb else {
        if create {
            let text = "The RAM Quota must be specified and must be a positive integer.";
            errors.insert("ramQuotaMB".into(), text.into());
        }
        return;
    };
    let least = match kind {
        _ if params.allow_small_quota => SMALL_QUOTA_MB_MIN,
        BucketKind::Memcached => CACHE_QUOTA_MB_MIN,
        BucketKind::Couchbase | BucketKind::Ephemeral => QUOTA_MB_MIN,
    };
    // A bucket that was made smaller on request may keep its size in later requests that repeat it.
    let unchanged = state.buckets.get(name).is_some_and(|bucket| !create && bucket.ram_quota_mb == asked);
    if asked < least && !unchanged {
        errors.insert("ramQuotaMB".into(), format!("RAM quota cannot be less than {least} MiB"));
    } else if asked > free_quota_mb(state, Some(name).filter(|_| !create)) {
        let text = "RAM quota specified is too large to be provisioned into this cluster.";
        errors.insert("ramQuotaMB".into(), text.into());
    }
}

/// Memory that no bucket other than `except` has taken.
#[must_use]
pub fn free_quota_mb(state: &Metadata, except: Option<&str>) -> u64 {
    let others = state.buckets.iter().filter(|(name, _)| Some(name.as_str()) != except);
    let taken = others.fold(0_u64, |sum, (_, bucket)| sum.saturating_add(bucket.ram_quota_mb));
    state.quotas.data_mb.saturating_sub(taken)
}

fn check_replicas(
    state: &Metadata,
    current: Option<&BucketInfo>,
    params: &BucketParams,
    kind: BucketKind,
    errors: &mut FieldErrors,
) {
    if kind == BucketKind::Memcached {
        if params.replicas.is_some() {
            errors.insert("replicaNumber".into(), "replicaNumber is not valid for memcached buckets".into());
        }
        return;
    }
    if params.replicas.is_some_and(|replicas| replicas > REPLICAS_MAX) {
        let text = format!("Replica number larger than {REPLICAS_MAX} is not supported.");
        errors.insert("replicaNumber".into(), text);
        return;
    }
    let was = current.map_or((REPLICAS_DEFAULT, DurabilityLevel::None), |b| (b.replicas, b.durability_min));
    let shall_be = (params.replicas.unwrap_or(was.0), params.durability_min.unwrap_or(was.1));
    if shall_be.1 == DurabilityLevel::None || shall_be.0 == 0 || (current.is_some() && shall_be == was) {
        return;
    }
    let majority = usize::from(shall_be.0).div_ceil(2) + 1;
    let text = if shall_be.0 == REPLICAS_MAX {
        "Durability minimum level cannot be specified with 3 replicas"
    } else if state.active_nodes().count() < majority {
        "You do not have enough data servers to support this durability level"
    } else {
        return;
    };
    errors.insert("durability_min_level".into(), text.into());
}

fn check_policies(params: &BucketParams, kind: BucketKind, errors: &mut FieldErrors) {
    use EvictionPolicy::{FullEviction, NoEviction, NruEviction, ValueOnly};
    match (kind, params.eviction) {
        (BucketKind::Couchbase, Some(NoEviction | NruEviction)) => {
            let text = "Eviction policy must be either 'valueOnly' or 'fullEviction' for couchbase buckets";
            errors.insert("evictionPolicy".into(), text.into());
        }
        (BucketKind::Ephemeral, Some(ValueOnly | FullEviction)) => {
            let text = "Eviction policy must be either 'noEviction' or 'nruEviction' for ephemeral buckets";
            errors.insert("evictionPolicy".into(), text.into());
        }
        _ => {}
    }
    let level = params.durability_min.unwrap_or(DurabilityLevel::None);
    match kind {
        BucketKind::Ephemeral if level.needs_disk() => {
            let text = "Durability minimum level must be either 'none' or 'majority' for ephemeral buckets";
            errors.insert("durability_min_level".into(), text.into());
        }
        BucketKind::Memcached if level != DurabilityLevel::None => {
            let text = "Durability minimum level is not supported for memcached buckets";
            errors.insert("durability_min_level".into(), text.into());
        }
        _ => {}
    }
    if params.max_ttl_secs.is_some_and(|ttl| u64::from(ttl) > params::MAX_TTL_SECS_MAX) {
        errors.insert("maxTTL".into(), params::max_ttl_text());
    }
}

/// Whether the data service may have this much memory.
pub(crate) fn check_memory_quota(state: &Metadata, data_mb: u64) -> Result<(), ClusterError> {
    let taken = state.buckets.values().fold(0_u64, |sum, bucket| sum.saturating_add(bucket.ram_quota_mb));
    let least = taken.max(MEMORY_QUOTA_MB_MIN);
    if data_mb >= least {
        return Ok(());
    }
    let text = format!(
        "The data service quota ({data_mb}MB) cannot be less than {least}MB (current total buckets quota, or at least \
         {MEMORY_QUOTA_MB_MIN}MB)."
    );
    Err(ClusterError::field("memoryQuota", text))
}
