//! Bucket parameters as a request gives them: from form fields to types, collecting every refusal on the way.

use std::collections::BTreeMap;

use base::bucket::{BucketKind, CompressionMode, ConflictResolution, DurabilityLevel, EvictionPolicy};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{metadata::FieldErrors, rights::Credentials};

/// What `maxTTL` may reach (ns_server).
pub(super) const MAX_TTL_SECS_MAX: u64 = i32::MAX as u64;

/// What a request asks of a bucket; absent parts stay as they are, or get their defaults in a new bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in `BucketInfo`")]
pub struct BucketParams {
    pub kind: Option<BucketKind>,
    pub ram_quota_mb: Option<u64>,
    pub replicas: Option<u8>,
    pub replica_index: Option<bool>,
    pub flush_enabled: Option<bool>,
    pub eviction: Option<EvictionPolicy>,
    pub compression: Option<CompressionMode>,
    pub conflict: Option<ConflictResolution>,
    pub max_ttl_secs: Option<u32>,
    pub durability_min: Option<DurabilityLevel>,
    pub storage_backend: Option<String>,
    pub vbuckets: Option<u16>,
    pub legacy: LegacyParams,
    /// Settee's own: quotas below Couchbase's minimum are meant.
    pub allow_small_quota: bool,
    /// Recorded and shown, by REST name.
    pub recorded: BTreeMap<String, Value>,
}

/// Settee's own switches for clients older than users and roles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in `LegacyAccess`")]
pub struct LegacyParams {
    pub passwordless: Option<bool>,
    /// Empty: takes the password away.
    pub sasl_password: Option<String>,
    /// The same password hashed, added by the node that has randomness.
    pub credentials: Option<Credentials>,
    pub memcached_port: Option<bool>,
}

/// Parameters that Settee keeps and shows but does not act upon, with the numbers they may have.
const RECORDED: &[(&str, u64, u64)] = &[
    ("rank", 0, 1000),
    ("threadsNumber", 2, 8),
    ("storageQuotaPercentage", 1, 85),
    ("driftAheadThresholdMs", 100, u64::MAX),
    ("driftBehindThresholdMs", 100, u64::MAX),
];

/// A minute: a client that waits for longer has given up.
const LATENCY_OBJECTIVE_US_MAX: u32 = 60_000_000;

pub(super) fn max_ttl_text() -> String {
    format!("Max TTL must be an integer between 0 and {MAX_TTL_SECS_MAX}")
}

impl BucketParams {
    /// Reads form fields. Names that are not known are ignored, as Couchbase does.
    ///
    /// # Errors
    /// Every value that does not parse, by parameter name.
    pub fn from_form(form: &[(String, String)]) -> Result<Self, FieldErrors> {
        let mut params = Self::default();
        let mut errors = FieldErrors::new();
        for (name, value) in form {
            if let Err(text) = params.take(name, value) {
                errors.insert(error_name(name).into(), text);
            }
        }
        if errors.is_empty() { Ok(params) } else { Err(errors) }
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "bucketType" => self.kind = Some(kind(value)?),
            "ramQuotaMB" | "ramQuota" => self.ram_quota_mb = Some(ram_quota(value)?),
            "replicaNumber" => self.replicas = Some(replicas(value)?),
            "replicaIndex" => {
                self.replica_index = Some(flag(value).ok_or("replicaIndex can only be 1 or 0".to_owned())?);
            }
            "flushEnabled" => {
                self.flush_enabled = Some(flag(value).ok_or("flushEnabled can only be 1 or 0".to_owned())?);
            }
            "evictionPolicy" => self.eviction = Some(eviction(value)?),
            "compressionMode" => self.compression = Some(compression(value)?),
            "conflictResolutionType" => self.conflict = Some(conflict(value)?),
            "maxTTL" => self.max_ttl_secs = Some(max_ttl(value)?),
            "durabilityMinLevel" => self.durability_min = Some(durability(value)?),
            "storageBackend" => self.storage_backend = Some(backend(value)?),
            "numVBuckets" => {
                let number = value.parse();
                self.vbuckets = Some(number.map_err(|_| "Number of vbuckets must be an integer".to_owned())?);
            }
            "legacyPasswordless" => self.legacy.passwordless = Some(switch(name, value)?),
            "legacyMemcachedPort" => self.legacy.memcached_port = Some(switch(name, value)?),
            "allowSmallQuota" => self.allow_small_quota = switch(name, value)?,
            "saslPassword" => self.legacy.sasl_password = Some(sasl_password(value)?),
            "warmupHotKeys" => {
                self.recorded.insert(name.into(), switch(name, value)?.into());
            }
            "latencyObjectiveUs" => {
                self.recorded.insert(name.into(), latency_objective(value)?.into());
            }
            "purgeInterval" => {
                self.recorded.insert(name.into(), purge_interval(value)?.into());
            }
            "historyRetentionSeconds" | "historyRetentionBytes" if value != "0" => return Err(no_history()),
            "historyRetentionCollectionDefault" if value == "true" => return Err(no_history()),
            "enableCrossClusterVersioning" if value == "true" => {
                return Err("Cross cluster versioning is not supported by Settee yet.".into());
            }
            _ => return self.record(name, value),
        }
        Ok(())
    }

    fn record(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Some(&(name, least, most)) = RECORDED.iter().find(|known| known.0 == name) else {
            return Ok(());
        };
        match value.parse::<u64>() {
            Ok(number) if (least..=most).contains(&number) => {
                self.recorded.insert(name.into(), number.into());
                Ok(())
            }
            _ => Err(format!("{name} must be an integer between {least} and {most}")),
        }
    }
}

/// The name a refusal is reported under, where it differs from the parameter's.
fn error_name(parameter: &str) -> &str {
    match parameter {
        "durabilityMinLevel" => "durability_min_level",
        "ramQuota" => "ramQuotaMB",
        other => other,
    }
}

fn no_history() -> String {
    "History Retention is not supported by Settee.".into()
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "0" | "false" => Some(false),
        "1" | "true" => Some(true),
        _ => None,
    }
}

fn switch(name: &str, value: &str) -> Result<bool, String> {
    flag(value).ok_or_else(|| format!("{name} can only be 1 or 0"))
}

fn kind(value: &str) -> Result<BucketKind, String> {
    match value {
        "couchbase" | "membase" => Ok(BucketKind::Couchbase),
        "ephemeral" => Ok(BucketKind::Ephemeral),
        "memcached" => Ok(BucketKind::Memcached),
        _ => Err("invalid bucket type".into()),
    }
}

fn ram_quota(value: &str) -> Result<u64, String> {
    match value.trim().parse::<i64>() {
        Ok(number) => u64::try_from(number).map_err(|_| "The RAM Quota cannot be negative.".into()),
        Err(_) => Err("The RAM Quota must be specified and must be a positive integer.".into()),
    }
}

fn replicas(value: &str) -> Result<u8, String> {
    let text = "The replica number must be specified and must be a non-negative integer.";
    let number: u32 = value.trim().parse().map_err(|_| text.to_owned())?;
    Ok(u8::try_from(number).unwrap_or(u8::MAX))
}

fn eviction(value: &str) -> Result<EvictionPolicy, String> {
    match value {
        "valueOnly" => Ok(EvictionPolicy::ValueOnly),
        "fullEviction" => Ok(EvictionPolicy::FullEviction),
        "noEviction" => Ok(EvictionPolicy::NoEviction),
        "nruEviction" => Ok(EvictionPolicy::NruEviction),
        _ => Err("Eviction policy must be either 'valueOnly' or 'fullEviction' for couchbase buckets".into()),
    }
}

fn compression(value: &str) -> Result<CompressionMode, String> {
    match value {
        "off" => Ok(CompressionMode::Off),
        "passive" => Ok(CompressionMode::Passive),
        "active" => Ok(CompressionMode::Active),
        _ => Err("compressionMode can be set to 'off', 'passive' or 'active'".into()),
    }
}

fn conflict(value: &str) -> Result<ConflictResolution, String> {
    match value {
        "seqno" => Ok(ConflictResolution::Seqno),
        "lww" => Ok(ConflictResolution::Lww),
        "custom" => {
            Err("Conflict resolution type 'custom' is supported only with developer preview enabled".into())
        }
        _ => Err("Conflict resolution type must be 'seqno' or 'lww' or 'custom'".into()),
    }
}

fn max_ttl(value: &str) -> Result<u32, String> {
    match value.trim().parse::<u32>() {
        Ok(number) if u64::from(number) <= MAX_TTL_SECS_MAX => Ok(number),
        _ => Err(max_ttl_text()),
    }
}

fn durability(value: &str) -> Result<DurabilityLevel, String> {
    match value {
        "none" => Ok(DurabilityLevel::None),
        "majority" => Ok(DurabilityLevel::Majority),
        "majorityAndPersistActive" => Ok(DurabilityLevel::MajorityAndPersistActive),
        "persistToMajority" => Ok(DurabilityLevel::PersistToMajority),
        _ => Err("Durability minimum level must be one of 'none', 'majority', 'majorityAndPersistActive', \
                  or 'persistToMajority'"
            .into()),
    }
}

/// Microseconds; none at all are no objective.
fn latency_objective(value: &str) -> Result<u32, String> {
    match value.trim().parse::<u32>() {
        Ok(micros) if micros <= LATENCY_OBJECTIVE_US_MAX => Ok(micros),
        _ => Err(format!("latencyObjectiveUs must be an integer between 0 and {LATENCY_OBJECTIVE_US_MAX}")),
    }
}

/// Days after which tombstones may go, as Couchbase bounds them.
fn purge_interval(value: &str) -> Result<f64, String> {
    match value.trim().parse::<f64>() {
        Ok(days) if (0.01..=60.0).contains(&days) => Ok(days),
        _ => Err("metadata purge interval must be between 0.01 and 60 days".into()),
    }
}

fn backend(value: &str) -> Result<String, String> {
    match value {
        "couchstore" | "magma" => Ok(value.to_owned()),
        _ => Err("storage backend must be couchstore or magma".into()),
    }
}

fn sasl_password(value: &str) -> Result<String, String> {
    if value.len() <= 24 * 8 && !value.chars().any(char::is_control) {
        Ok(value.to_owned())
    } else {
        Err("The password must not contain control characters and be at most 192 bytes long".into())
    }
}
