//! The state itself: plain values, serialised as they are into the metadata file.
//!
//! Invariants:
//! - `version` grows with every accepted command.
//! - `rev` grows with every command that changes what clients route by (nodes, buckets, collections), so `rev` ≤
//!   `version`.
//! - A bucket's `uuid` never names another bucket.
//! - Roles name only buckets, scopes and collections that exist. Dropping one of those takes the grants with it.
//!
//! The store's format number refuses a file of a newer version; this module does not look for unknown fields.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use base::{
    BucketUuid, Manifest, NodeId,
    bucket::{BucketKind, CompressionMode, ConflictResolution, DurabilityLevel, EvictionPolicy},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    metadata::{
        Authority,
        design_documents::DesignDocuments,
        level::LEVEL,
        objectives::Objective,
        shared,
        topology::{
            AutoFailover, Departed, Exclusion, FIRST_GROUP, Membership, Parted, Rebalance, RebalanceOutcome,
            Recovery, ServerGroup, VbPlan,
        },
    },
    rights::{Credentials, roles::RoleGrant},
};

/// What an administrator wants written down; a zero means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditPolicy {
    /// Whether the trail is kept at all.
    pub enabled: bool,
    /// Size at which a file of the trail ends.
    pub rotate_bytes: u64,
    /// Age at which it ends.
    pub rotate_age: Duration,
    /// Age at which a file that has ended goes.
    pub prune_age: Duration,
}

impl Default for AuditPolicy {
    /// As in Couchbase, but switched on.
    fn default() -> Self {
        Self {
            enabled: true,
            rotate_bytes: 20 * 1024 * 1024,
            rotate_age: Duration::from_secs(24 * 60 * 60),
            prune_age: Duration::ZERO,
        }
    }
}

/// Everything the cluster knows about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metadata {
    /// Count of accepted commands.
    pub version: u64,
    /// What every member understands of the metadata: see [`crate::metadata::level`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub level: u32,
    /// First part of a configuration's version; grows when a cluster loses its history of `rev`.
    pub rev_epoch: i64,
    /// Second part of a configuration's version.
    pub rev: i64,
    /// 32 hexadecimal digits.
    pub cluster_uuid: String,
    /// Free text shown to people.
    pub cluster_name: String,
    /// Whether an administrator exists; until then REST is open.
    pub initialized: bool,
    /// Memory for documents on each node, in MiB, and what was recorded for other services.
    pub quotas: Quotas,
    /// The full administrator, made by initialisation; not listed among the users.
    pub admin: Option<Admin>,
    /// Password of the internal user by which nodes know each other, for as long as some have no key
    /// ([`Metadata::accepts_secret`]). Salts of names that nobody has are made from it. Empty until the first node has made one.
    pub secret: String,
    /// What vouches for nodes under TLS; absent until a node has made one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<Authority>,
    /// The number that the next node gets.
    pub next_node: u16,
    /// Numbers that were left out each time the group was formed anew: lost nodes may have given them to others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers_left_out: Vec<Range<u16>>,
    /// In the order of the configuration.
    pub nodes: Vec<NodeInfo>,
    /// Nodes that may still be doing what they did as members; remembered until they cannot be any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub departed: Vec<Departed>,
    /// The keys of nodes that were removed last: the group that agrees on the metadata may still need them to agree that they are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parted: Vec<Parted>,
    /// In the order shown.
    pub server_groups: Vec<ServerGroup>,
    /// The change of the map that is under way.
    pub rebalance: Option<Rebalance>,
    /// How the last one ended.
    pub last_rebalance: Option<RebalanceOutcome>,
    /// When nodes are failed over without anybody asking.
    pub auto_failover: AutoFailover,
    /// By name.
    pub buckets: BTreeMap<String, BucketInfo>,
    /// Users who authenticate here, by name.
    pub users: BTreeMap<String, User>,
    /// Users known to an outside directory, by name; recorded, they cannot log in.
    pub external_users: BTreeMap<String, User>,
    /// By name.
    pub groups: BTreeMap<String, Group>,
    /// Settings kept and shown as they were given, by REST path below `/settings/`.
    pub settings: BTreeMap<String, Value>,
    /// The version in which each of them was changed last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings_changed: BTreeMap<String, u64>,
}

/// Of versions that say nothing of levels; they neither write nor read more than that.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference to the field")]
fn is_zero(level: &u32) -> bool {
    *level == 0
}

/// Memory quotas in MiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quotas {
    /// The data service; what buckets are carved out of.
    pub data_mb: u64,
    /// Other services by their REST parameter (`indexMemoryQuota`, ...); recorded only.
    pub others_mb: BTreeMap<String, u64>,
}

/// The full administrator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admin {
    /// Login name.
    pub name: String,
    /// Hashed password.
    pub credentials: Credentials,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// 32 hexadecimal digits, kept over restarts and renames; a node that leaves a cluster gets another one.
    pub uuid: String,
    /// Its number in this cluster.
    pub id: NodeId,
    /// As configured: a name or an address; a loopback name means "the address you used".
    pub host: String,
    /// Where it listens.
    pub ports: Ports,
    /// Service names of the REST API; `kv` is the only one there is.
    pub services: Vec<String>,
    /// Whether it counts.
    pub membership: Membership,
    /// The uuid of its server group.
    pub group: String,
    /// How it comes back after a failover, once somebody has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// How it was failed over last; stays when it comes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded: Option<Exclusion>,
    /// Whether others speak to it under TLS.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypted: bool,
    /// How clients reach it that cannot reach it where it listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternate: Option<AlternateAddress>,
    /// The public key that it proves with who it is; absent until it has told its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// An address of a node in another network, as clients there see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlternateAddress {
    /// A name or an address.
    pub hostname: String,
    /// Ports by the names of services in configurations. Empty: the node's own.
    pub ports: BTreeMap<String, u16>,
}

impl NodeInfo {
    /// A node of the data service as it is when its cluster consists of it alone.
    #[must_use]
    pub fn first(uuid: String, host: String, ports: Ports) -> Self {
        Self {
            uuid,
            id: NodeId(0),
            host,
            ports,
            services: vec!["kv".into()],
            membership: Membership::Active,
            group: FIRST_GROUP.into(),
            recovery: None,
            excluded: None,
            encrypted: false,
            alternate: None,
            key: None,
        }
    }

    /// What to call it in words for people: nodes may share a host.
    #[must_use]
    pub fn called(&self) -> String {
        format!("{}:{}", self.host, self.ports.mgmt)
    }

    /// Whether it was failed over, and nobody has said that it is to come back.
    #[must_use]
    pub fn is_failed_over(&self) -> bool {
        self.membership == Membership::InactiveFailed && self.recovery.is_none()
    }
}

/// The ports of a node; 0 means the port is off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the services")]
pub struct Ports {
    pub mgmt: u16,
    pub mgmt_tls: u16,
    pub kv: u16,
    pub kv_tls: u16,
    pub capi: u16,
    pub capi_tls: u16,
    /// The plain memcached port (11211 by default).
    pub memcached: u16,
}

/// One bucket's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketInfo {
    /// 32 hexadecimal digits.
    pub uuid: BucketUuid,
    /// `couchbase`, `ephemeral` or `memcached`.
    pub kind: BucketKind,
    /// Memory on each node, in MiB.
    pub ram_quota_mb: u64,
    /// Copies beside the active one.
    pub replicas: u8,
    /// Whether views index replicas as well.
    pub replica_index: bool,
    /// Whether `doFlush` is allowed.
    pub flush_enabled: bool,
    /// What leaves memory when the quota is reached.
    pub eviction: EvictionPolicy,
    /// What the server does to compress values.
    pub compression: CompressionMode,
    /// Which of two versions from different clusters wins.
    pub conflict: ConflictResolution,
    /// Longest expiry of a document in seconds; 0 means none.
    pub max_ttl_secs: u32,
    /// The weakest level a write may ask for.
    pub durability_min: DurabilityLevel,
    /// `couchstore` or `magma`; recorded, there is one storage engine.
    pub storage_backend: String,
    /// Fixed for the bucket's life.
    pub vbuckets: u16,
    /// The nodes that hold each vBucket, by its number. Empty for a cache-only bucket, of which every node has its own.
    #[serde(with = "shared")]
    pub vbs: Arc<Vec<VbPlan>>,
    /// The chains that the rebalance under way strives for, by vBucket.
    #[serde(default, with = "shared::optional", skip_serializing_if = "Option::is_none")]
    pub target: Option<Arc<Vec<Vec<NodeId>>>>,
    /// The vBuckets that nodes held when they were failed over, which return to them with delta recovery.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub former: BTreeMap<NodeId, Vec<u16>>,
    /// Scopes and collections.
    pub manifest: Manifest,
    /// What its views are defined by.
    #[serde(default, with = "shared", skip_serializing_if = "DesignDocuments::says_nothing")]
    pub design_documents: Arc<DesignDocuments>,
    /// How fast operations are to be answered, by the name of the objective.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub objectives: BTreeMap<String, Objective>,
    /// What clients older than role-based access may do.
    pub legacy: LegacyAccess,
    /// Parameters that are recorded and shown, by REST name.
    pub recorded: BTreeMap<String, Value>,
}

/// Access for clients older than users and roles. All off unless asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyAccess {
    /// No password: connections that did not authenticate may use the bucket.
    pub passwordless: bool,
    /// The bucket's own password, for SASL with the bucket's name as user. Kept in clear because CRAM-MD5 needs it.
    pub sasl_password: Option<String>,
    /// The same password hashed, for SCRAM with the bucket's name as user.
    pub credentials: Option<Credentials>,
    /// Whether the plain memcached port serves this bucket (at most one bucket).
    pub memcached_port: bool,
}

impl BucketInfo {
    /// Seconds after which the tombstone of a deleted document may go (Couchbase's default is three days).
    #[must_use]
    pub fn purge_interval_secs(&self) -> u32 {
        let days = self.recorded.get("purgeInterval").and_then(Value::as_f64).unwrap_or(3.0);
        // The conversion saturates; what was accepted is at most 60 days.
        (days * 86_400.0) as u32
    }

    /// Whether it is noted which documents are used most, so that they are loaded first after a restart.
    #[must_use]
    pub fn warmup_hot_keys(&self) -> bool {
        self.recorded.get("warmupHotKeys").and_then(Value::as_bool).unwrap_or(true)
    }

    /// Microseconds that the 99th percentile of operations shall stay below while vBuckets move, where that was asked for.
    #[must_use]
    pub fn latency_objective_us(&self) -> Option<u32> {
        let micros = self.recorded.get("latencyObjectiveUs").and_then(Value::as_u64)?;
        u32::try_from(micros).ok().filter(|&micros| micros > 0)
    }
}

impl LegacyAccess {
    /// Whether any of it is switched on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.passwordless || self.sasl_password.is_some()
    }
}

/// Where a user's identity comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UserDomain {
    /// Password kept here.
    Local,
    /// Authenticated elsewhere (LDAP, SAML, PAM): recorded only.
    External,
}

impl UserDomain {
    /// As in REST paths.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::External => "external",
        }
    }
}

/// One user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Names this user over its life.
    pub uuid: String,
    /// Full name shown to people.
    pub full_name: String,
    /// Hashed password; users without one cannot log in.
    pub credentials: Option<Credentials>,
    /// When the password was set, Unix milliseconds.
    pub password_changed_ms: u64,
    /// Granted directly.
    pub roles: Vec<RoleGrant>,
    /// Groups whose roles are granted as well.
    pub groups: BTreeSet<String>,
    /// A locked user cannot log in.
    pub locked: bool,
}

/// One group of users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Free text.
    pub description: String,
    /// Granted to every member.
    pub roles: Vec<RoleGrant>,
    /// Recorded only.
    pub ldap_group_ref: String,
}

impl Metadata {
    /// A cluster of no nodes, before initialisation. `data_quota_mb` is what buckets may take in total until the
    /// administrator says otherwise.
    #[must_use]
    pub fn new(cluster_uuid: String, data_quota_mb: u64) -> Self {
        Self {
            version: 0,
            level: LEVEL,
            rev_epoch: 1,
            rev: 0,
            cluster_uuid,
            cluster_name: String::new(),
            initialized: false,
            quotas: Quotas { data_mb: data_quota_mb, others_mb: BTreeMap::new() },
            admin: None,
            secret: String::new(),
            authority: None,
            next_node: 0,
            numbers_left_out: Vec::new(),
            nodes: Vec::new(),
            departed: Vec::new(),
            parted: Vec::new(),
            server_groups: vec![ServerGroup {
                uuid: FIRST_GROUP.into(),
                name: crate::metadata::topology::SERVER_GROUP.into(),
            }],
            rebalance: None,
            last_rebalance: None,
            auto_failover: AutoFailover::default(),
            buckets: BTreeMap::new(),
            users: BTreeMap::new(),
            external_users: BTreeMap::new(),
            groups: BTreeMap::new(),
            settings: BTreeMap::new(),
            settings_changed: BTreeMap::new(),
        }
    }

    /// The node with that uuid.
    #[must_use]
    pub fn node(&self, uuid: &str) -> Option<&NodeInfo> {
        self.nodes.iter().find(|node| node.uuid == uuid)
    }

    /// The node with that number.
    #[must_use]
    pub fn node_by_id(&self, id: NodeId) -> Option<&NodeInfo> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The bucket with that uuid, with its name.
    #[must_use]
    pub fn bucket_by_uuid(&self, uuid: &BucketUuid) -> Option<(&str, &BucketInfo)> {
        self.buckets.iter().find(|(_, bucket)| bucket.uuid == *uuid).map(|(name, b)| (name.as_str(), b))
    }

    /// The server group with that uuid.
    #[must_use]
    pub fn server_group(&self, uuid: &str) -> Option<&ServerGroup> {
        self.server_groups.iter().find(|group| group.uuid == uuid)
    }

    /// The bucket the plain memcached port serves, with its name.
    #[must_use]
    pub fn memcached_port_bucket(&self) -> Option<(&str, &BucketInfo)> {
        self.buckets
            .iter()
            .find(|(_, bucket)| bucket.legacy.memcached_port)
            .map(|(name, b)| (name.as_str(), b))
    }

    /// What is to be written down of logins and administrative changes, as far as an administrator has said.
    #[must_use]
    pub fn audit_policy(&self) -> AuditPolicy {
        let set = |name| self.settings.get("audit").and_then(|audit| audit.get(name));
        let number = |name, otherwise| set(name).and_then(Value::as_u64).unwrap_or(otherwise);
        let default = AuditPolicy::default();
        AuditPolicy {
            enabled: set("auditdEnabled").and_then(Value::as_bool).unwrap_or(default.enabled),
            rotate_bytes: number("rotateSize", default.rotate_bytes),
            rotate_age: Duration::from_secs(number("rotateInterval", default.rotate_age.as_secs())),
            prune_age: Duration::from_secs(number("pruneAge", 0)),
        }
    }

    /// The users of one domain.
    #[must_use]
    pub fn users_of(&self, domain: UserDomain) -> &BTreeMap<String, User> {
        match domain {
            UserDomain::Local => &self.users,
            UserDomain::External => &self.external_users,
        }
    }

    pub(crate) fn users_of_mut(&mut self, domain: UserDomain) -> &mut BTreeMap<String, User> {
        match domain {
            UserDomain::Local => &mut self.users,
            UserDomain::External => &mut self.external_users,
        }
    }
}
