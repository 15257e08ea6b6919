//! A bucket as REST shows it in full (`/pools/default/buckets`), with the fields clients insist on.

use base::bucket::{BucketKind, CompressionMode, ConflictResolution, DurabilityLevel, EvictionPolicy};
use cluster::{BucketInfo, auth::Privilege, config};
use serde_json::{Map, Value, json};

use super::nodes;
use crate::request::Call;

const MIB: u64 = 1024 * 1024;
/// Reader and writer threads when nothing was recorded (Couchbase's default).
const THREADS_DEFAULT: u64 = 3;

/// The bucket; with `map`, where its vBuckets are.
pub(super) fn full(call: &Call, name: &str, info: &BucketInfo, map: bool) -> Value {
    let mut fields = streamed(call, name, info, map);
    fields.insert("basicStats".into(), basic_stats(call, name, info));
    fields.extend(settings(call, info));
    Value::Object(fields)
}

/// What bootstrapping needs of a bucket, without figures that change by the second.
pub(super) fn streamed(call: &Call, name: &str, info: &BucketInfo, map: bool) -> Map<String, Value> {
    let uri = |rest: &str| format!("/pools/default/buckets/{name}/{rest}");
    let mut fields = config::bucket_identity(name, info);
    fields.insert("rev".into(), call.meta.rev.into());
    fields.insert("nodes".into(), node_list(call, name, info).into());
    fields.insert("controllers".into(), controllers(info, &uri));
    if info.may_have_views() {
        fields.insert("ddocs".into(), json!({ "uri": uri("ddocs") }));
    }
    fields.insert(
        "stats".into(),
        json!({ "uri": uri("stats"), "directoryURI": uri("statsDirectory"), "nodeStatsListURI": uri("nodes") }),
    );
    if map && let Some(map) = config::vbucket_server_map(&call.meta, info, |node| call.host_of(node)) {
        fields.insert("vBucketServerMap".into(), map);
    }
    fields.extend(legacy(call, info));
    fields
}

fn node_list(call: &Call, name: &str, info: &BucketInfo) -> Vec<Value> {
    let nodes = nodes::of_bucket(call, name).map(|(node, mut view)| {
        if info.kind == BucketKind::Couchbase {
            view["couchApiBase"] = config::couch_api_base(node, &call.host_of(node), name, info).into();
        }
        view
    });
    nodes.collect()
}

/// `flush` is there only if flushing is allowed: that is how SDKs know.
fn controllers(info: &BucketInfo, uri: &dyn Fn(&str) -> String) -> Value {
    let mut controllers = json!({
        "compactAll": uri("controller/compactBucket"), "compactDB": uri("controller/compactDatabases"),
    });
    if info.flush_enabled {
        controllers["flush"] = uri("controller/doFlush").into();
    }
    controllers
}

/// What clients of the 1.x and 2.x generations read, and Settee's switches for them.
fn legacy(call: &Call, info: &BucketInfo) -> Map<String, Value> {
    let mut fields = Map::new();
    let legacy = &info.legacy;
    fields.insert("authType".into(), if legacy.passwordless { "none" } else { "sasl" }.into());
    if legacy.is_on() || legacy.memcached_port {
        let this = call.api.control.this_node();
        let port = call.meta.node(&this).map_or(0, |node| node.ports.memcached);
        fields.insert("proxyPort".into(), if legacy.memcached_port { port } else { 0 }.into());
        fields.insert("legacyPasswordless".into(), legacy.passwordless.into());
        fields.insert("legacyMemcachedPort".into(), legacy.memcached_port.into());
    }
    if let Some(password) =
        legacy.sasl_password.as_ref().filter(|_| call.holds(Privilege::SecurityAdmin, None))
    {
        fields.insert("saslPassword".into(), password.as_str().into());
    }
    fields
}

fn settings(call: &Call, info: &BucketInfo) -> Map<String, Value> {
    let quota = info.ram_quota_mb.saturating_mul(MIB);
    let nodes = config::shown_nodes(&call.meta).len() as u64;
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("quota", json!({ "ram": quota.saturating_mul(nodes), "rawRAM": quota }));
    set("replicaNumber", info.replicas.into());
    set("evictionPolicy", eviction(info.eviction).into());
    set("compressionMode", compression(info.compression).into());
    set("conflictResolutionType", conflict(info.conflict).into());
    set("durabilityMinLevel", durability(info.durability_min).into());
    set("maxTTL", info.max_ttl_secs.into());
    set("numVBuckets", info.vbuckets.into());
    set("storageBackend", storage_backend(info).into());
    set("threadsNumber", THREADS_DEFAULT.into());
    set("rank", 0.into());
    set("autoCompactionSettings", false.into());
    if info.kind == BucketKind::Couchbase {
        set("replicaIndex", info.replica_index.into());
    }
    for (name, value) in &info.recorded {
        set(name, value.clone());
    }
    fields
}

/// Figures over all nodes.
fn basic_stats(call: &Call, name: &str, info: &BucketInfo) -> Value {
    let stats = call.figures.sum(name);
    let nodes = call.figures.of_bucket(name).count() as u64;
    let quota = info.ram_quota_mb.saturating_mul(MIB).saturating_mul(nodes);
    #[allow(clippy::cast_precision_loss, reason = "a percentage for people")]
    let percent = if quota == 0 { 0.0 } else { stats.mem_used as f64 * 100.0 / quota as f64 };
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the share is between 0 and 100"
    )]
    let evicted = (stats.items as f64 * (100.0 - stats.resident_percent.clamp(0.0, 100.0)) / 100.0) as u64;
    json!({
        "quotaPercentUsed": percent, "opsPerSec": stats.ops_per_sec, "diskFetches": stats.disk_fetches_per_sec,
        "itemCount": stats.items, "diskUsed": stats.disk_used, "dataUsed": stats.data_used,
        "memUsed": stats.mem_used, "vbActiveNumNonResident": evicted,
    })
}

fn eviction(policy: EvictionPolicy) -> &'static str {
    match policy {
        EvictionPolicy::ValueOnly => "valueOnly",
        EvictionPolicy::FullEviction => "fullEviction",
        EvictionPolicy::NoEviction => "noEviction",
        EvictionPolicy::NruEviction => "nruEviction",
    }
}

fn compression(mode: CompressionMode) -> &'static str {
    match mode {
        CompressionMode::Off => "off",
        CompressionMode::Passive => "passive",
        CompressionMode::Active => "active",
    }
}

fn conflict(resolution: ConflictResolution) -> &'static str {
    match resolution {
        ConflictResolution::Seqno => "seqno",
        ConflictResolution::Lww => "lww",
        ConflictResolution::Custom => "custom",
    }
}

fn durability(level: DurabilityLevel) -> &'static str {
    match level {
        DurabilityLevel::None => "none",
        DurabilityLevel::Majority => "majority",
        DurabilityLevel::MajorityAndPersistActive => "majorityAndPersistActive",
        DurabilityLevel::PersistToMajority => "persistToMajority",
    }
}

/// As requested; memory-only buckets have none.
fn storage_backend(info: &BucketInfo) -> &str {
    if info.kind == BucketKind::Couchbase { &info.storage_backend } else { "undefined" }
}
