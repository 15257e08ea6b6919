//! The roles of Couchbase 7.6: their names, what they are granted on, and which rights they give here.
//!
//! Roles of services that do not exist here (query, search, analytics, eventing, mobile) are accepted, kept and
//! listed. So scripts which assign them work. They give what they give on the data service in Couchbase at most.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::privilege::{Privilege as P, PrivilegeSet as Set};

/// What a role is granted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The cluster; `role`.
    Cluster,
    /// A bucket or all of them; `role[bucket]`.
    Bucket,
    /// A bucket or a scope; `role[bucket:scope]`.
    BucketScope,
    /// A bucket, a scope or a collection; `role[bucket:scope:collection]`.
    Collection,
}

impl Scope {
    const fn parameters(self) -> usize {
        match self {
            Self::Cluster => 0,
            Self::Bucket => 1,
            Self::BucketScope => 2,
            Self::Collection => 3,
        }
    }
}

/// One role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// As requests name it.
    pub id: &'static str,
    /// For people.
    pub name: &'static str,
    /// For people.
    pub desc: &'static str,
    /// What it is granted on.
    pub scope: Scope,
    /// Rights on the cluster.
    pub cluster: Set,
    /// Rights on the whole bucket, wherever in it the role was granted.
    pub bucket: Set,
    /// Rights on what it was granted on: bucket, scope or collection.
    pub scoped: Set,
}

const POOLS: Set = Set::of(&[P::PoolsRead]);
/// What a role has that applications log in with.
const APPLICATION: Set = Set::of(&[P::PoolsRead, P::AppTelemetry]);
const SETTINGS: Set = Set::of(&[P::BucketRead]);
const READ_CLUSTER: Set = Set::of(&[P::PoolsRead, P::ClusterRead, P::ClusterStats]);
/// The same without `/metrics`, which Couchbase counts among what is the administrators'.
const SEE_CLUSTER: Set = Set::of(&[P::PoolsRead, P::ClusterRead]);
const READ_BUCKETS: Set = Set::of(&[P::BucketRead, P::SimpleStats, P::Stats, P::CollectionsRead]);
const DCP_READ: Set =
    Set::of(&[P::Read, P::MetaRead, P::SystemXattrRead, P::DcpProducer, P::CollectionsRead]);
const MONITOR: Set = Set::of(&[P::SimpleStats, P::Stats, P::CollectionsRead]);
const EVERYTHING_IN_BUCKET: Set =
    Set::BUCKET_FULL_ACCESS.with(Set::BUCKET_ADMIN).with(Set::of(&[P::DcpConsumer]));

const fn role(
    id: &'static str,
    name: &'static str,
    desc: &'static str,
    scope: Scope,
    sets: [Set; 3],
) -> Role {
    Role { id, name, desc, scope, cluster: sets[0], bucket: sets[1], scoped: sets[2] }
}

/// A role of a service that is not here: visible, without rights on documents.
const fn other(id: &'static str, name: &'static str, scope: Scope) -> Role {
    role(
        id,
        name,
        "Accepted and listed; the service it belongs to is not part of Settee.",
        scope,
        [POOLS, Set::NONE, Set::NONE],
    )
}

/// A role of the port of views, by what it may do there.
const fn views(id: &'static str, name: &'static str, bucket: Set) -> Role {
    role(
        id,
        name,
        "Gives the same rights on port 8092 as in Couchbase, and none on documents.",
        Scope::Bucket,
        [POOLS, bucket, Set::NONE],
    )
}

/// A query role, by what its statements may do to documents.
const fn query(id: &'static str, name: &'static str, scoped: Set) -> Role {
    role(
        id,
        name,
        "Accepted and listed; there is no query service. Gives the same rights on documents as in Couchbase.",
        Scope::Collection,
        [APPLICATION, SETTINGS, scoped],
    )
}

/// Every role.
pub const ROLES: &[Role] = &[
    role(
        "admin",
        "Full Admin",
        "Can manage all cluster features, security included, use the web console, and read and write all data.",
        Scope::Cluster,
        [Set::ALL, EVERYTHING_IN_BUCKET, Set::NONE],
    ),
    role(
        "ro_admin",
        "Read-Only Admin",
        "Can see all settings and statistics, and query views, but neither change anything nor read documents.",
        Scope::Cluster,
        [
            READ_CLUSTER.with(Set::of(&[P::UserRead, P::SecurityRead])),
            READ_BUCKETS.with(Set::of(&[P::ViewsRead])),
            Set::NONE,
        ],
    ),
    role(
        "security_admin",
        "Security Admin",
        "Can manage users, groups, roles and security settings. Cannot read data.",
        Scope::Cluster,
        [
            READ_CLUSTER.with(Set::of(&[
                P::UserRead,
                P::UserAdmin,
                P::ExternalUserAdmin,
                P::SecurityRead,
                P::SecurityAdmin,
            ])),
            READ_BUCKETS,
            Set::NONE,
        ],
    ),
    role(
        "security_admin_local",
        "Local User Security Admin",
        "Can manage local users that hold no administrative role. Cannot read data.",
        Scope::Cluster,
        [READ_CLUSTER.with(Set::of(&[P::UserRead, P::UserAdmin, P::SecurityRead])), READ_BUCKETS, Set::NONE],
    ),
    role(
        "security_admin_external",
        "External User Security Admin",
        "Can manage external users that hold no administrative role. Cannot read data.",
        Scope::Cluster,
        [
            READ_CLUSTER.with(Set::of(&[P::UserRead, P::ExternalUserAdmin, P::SecurityRead])),
            READ_BUCKETS,
            Set::NONE,
        ],
    ),
    role(
        "cluster_admin",
        "Cluster Admin",
        "Can manage everything but security and users. Cannot read data.",
        Scope::Cluster,
        [
            READ_CLUSTER.with(Set::of(&[P::ClusterAdmin, P::BucketCreate, P::NodeSupervisor])),
            Set::BUCKET_ADMIN,
            Set::NONE,
        ],
    ),
    role(
        "backup_admin",
        "Backup Full Admin",
        "Can do everything that backup and restore need, data included.",
        Scope::Cluster,
        [SEE_CLUSTER.with(Set::of(&[P::BucketCreate])), EVERYTHING_IN_BUCKET, Set::NONE],
    ),
    role(
        "bucket_admin",
        "Bucket Admin",
        "Can manage a bucket's settings, scopes and collections. Cannot read data.",
        Scope::Bucket,
        [SEE_CLUSTER, Set::BUCKET_ADMIN, Set::NONE],
    ),
    role(
        "scope_admin",
        "Manage Scopes",
        "Can create and drop scopes and collections within what it is granted on.",
        Scope::BucketScope,
        [POOLS, Set::NONE, Set::of(&[P::CollectionsRead, P::CollectionsWrite])],
    ),
    role(
        "bucket_full_access",
        "Application Access",
        "Can read and write all data of a bucket, and flush it.",
        Scope::Bucket,
        [APPLICATION, Set::BUCKET_FULL_ACCESS, Set::NONE],
    ),
    role(
        "data_reader",
        "Data Reader",
        "Can read documents. Cannot write them.",
        Scope::Collection,
        [APPLICATION, SETTINGS, Set::DATA_READ],
    ),
    role(
        "data_writer",
        "Data Writer",
        "Can write documents. Cannot read them.",
        Scope::Collection,
        [APPLICATION, SETTINGS, Set::DATA_WRITE],
    ),
    role(
        "data_dcp_reader",
        "Data DCP Reader",
        "Can stream changes out and read documents.",
        Scope::Collection,
        [APPLICATION, SETTINGS, DCP_READ],
    ),
    role(
        "data_backup",
        "Data Backup & Restore",
        "Can back up and restore a bucket's data.",
        Scope::Bucket,
        [APPLICATION, Set::BUCKET_DATA.with(Set::of(&[P::CollectionsWrite, P::DcpConsumer])), Set::NONE],
    ),
    role(
        "data_monitoring",
        "Data Monitor",
        "Can read statistics. Cannot read documents.",
        Scope::Collection,
        [POOLS, SETTINGS, MONITOR],
    ),
    role(
        "replication_admin",
        "XDCR Admin",
        "Can read documents of every bucket; replication itself is not part of Settee yet.",
        Scope::Cluster,
        [SEE_CLUSTER, READ_BUCKETS.with(DCP_READ), Set::NONE],
    ),
    role(
        "replication_target",
        "XDCR Inbound",
        "Can write documents with their metadata, as replication from another cluster does.",
        Scope::Bucket,
        [
            APPLICATION,
            Set::of(&[
                P::BucketRead,
                P::Read,
                P::MetaRead,
                P::MetaWrite,
                P::Upsert,
                P::Insert,
                P::Delete,
                P::SimpleStats,
                P::Stats,
                P::SystemXattrRead,
                P::SystemXattrWrite,
                P::CollectionsRead,
            ]),
            Set::NONE,
        ],
    ),
    role(
        "external_stats_reader",
        "External Stats Reader",
        "Can read /metrics.",
        Scope::Cluster,
        [Set::of(&[P::PoolsRead, P::ClusterStats]), Set::NONE, Set::NONE],
    ),
    query("query_select", "Query Select", Set::DATA_READ),
    query("query_update", "Query Update", Set::of(&[P::Upsert, P::RangeScan, P::CollectionsRead])),
    query("query_insert", "Query Insert", Set::of(&[P::Insert, P::CollectionsRead])),
    query("query_delete", "Query Delete", Set::of(&[P::Delete, P::RangeScan, P::CollectionsRead])),
    Role {
        cluster: POOLS,
        ..query("query_manage_index", "Query Manage Index", Set::of(&[P::CollectionsRead]))
    },
    query("query_use_sequential_scans", "Query Use Sequential Scans", Set::of(&[P::RangeScan])),
    other("query_system_catalog", "Query System Catalog", Scope::Cluster),
    other("query_external_access", "Query CURL Access", Scope::Cluster),
    other("query_manage_global_functions", "Manage Global Functions", Scope::Cluster),
    other("query_execute_global_functions", "Execute Global Functions", Scope::Cluster),
    other("query_manage_functions", "Manage Scope Functions", Scope::BucketScope),
    other("query_execute_functions", "Execute Scope Functions", Scope::BucketScope),
    other("query_manage_global_external_functions", "Manage Global External Functions", Scope::Cluster),
    other("query_execute_global_external_functions", "Execute Global External Functions", Scope::Cluster),
    other("query_manage_external_functions", "Manage Scope External Functions", Scope::BucketScope),
    other("query_execute_external_functions", "Execute Scope External Functions", Scope::BucketScope),
    other("query_manage_sequences", "Manage Sequences", Scope::BucketScope),
    other("query_use_sequences", "Use Sequences", Scope::BucketScope),
    other("fts_admin", "Search Admin", Scope::Bucket),
    other("fts_searcher", "Search Reader", Scope::Collection),
    views("views_admin", "Views Admin", Set::of(&[P::ViewsRead, P::ViewsWrite, P::ViewsCompact])),
    Role { cluster: APPLICATION, ..views("views_reader", "Views Reader", Set::of(&[P::ViewsRead])) },
    other("analytics_admin", "Analytics Admin", Scope::Cluster),
    other("analytics_reader", "Analytics Reader", Scope::Cluster),
    other("analytics_manager", "Analytics Manager", Scope::Bucket),
    other("analytics_select", "Analytics Select", Scope::Collection),
    other("eventing_admin", "Eventing Full Admin", Scope::Cluster),
    other("eventing_manage_functions", "Manage Scope Functions (eventing)", Scope::BucketScope),
    other("mobile_sync_gateway", "Sync Gateway", Scope::Bucket),
    other("sync_gateway_configurator", "Sync Gateway Architect", Scope::Bucket),
    other("sync_gateway_app", "Sync Gateway Application", Scope::Bucket),
    other("sync_gateway_app_ro", "Sync Gateway Application Read Only", Scope::Bucket),
    other("sync_gateway_replicator", "Sync Gateway Replicator", Scope::Bucket),
    other("sync_gateway_dev_ops", "Sync Gateway Dev Ops", Scope::Cluster),
];

/// What a role was granted on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Target {
    /// The cluster (roles without parameters).
    Everything,
    /// `[*]`.
    AnyBucket,
    /// One bucket, or a scope or collection in it.
    #[allow(missing_docs, reason = "names say it")]
    Bucket { bucket: String, scope: Option<String>, collection: Option<String> },
}

impl Target {
    /// The bucket it names.
    #[must_use]
    pub fn bucket(&self) -> Option<&str> {
        match self {
            Self::Bucket { bucket, .. } => Some(bucket),
            Self::Everything | Self::AnyBucket => None,
        }
    }

    /// Whether it is that scope or a collection in it.
    pub(crate) fn is_within_scope(&self, bucket: &str, scope: &str) -> bool {
        matches!(self, Self::Bucket { bucket: b, scope: Some(s), .. } if b == bucket && s == scope)
    }

    /// Whether it is that collection.
    pub(crate) fn is_collection(&self, bucket: &str, scope: &str, collection: &str) -> bool {
        matches!(self, Self::Bucket { bucket: b, scope: Some(s), collection: Some(c) }
            if b == bucket && s == scope && c == collection)
    }
}

/// A role granted on something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RoleGrant {
    /// The role's id.
    pub role: String,
    /// What it was granted on.
    pub target: Target,
}

impl RoleGrant {
    /// The role, if it exists.
    #[must_use]
    pub fn definition(&self) -> Option<&'static Role> {
        ROLES.iter().find(|role| role.id == self.role)
    }

    /// Reads `role`, `role[*]`, `role[bucket]`, `role[bucket:scope]`, `role[bucket:scope:collection]`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (id, parameters) = match text.split_once('[') {
            Some((id, rest)) => (id, Some(rest.strip_suffix(']')?)),
            None => (text, None),
        };
        let role = ROLES.iter().find(|role| role.id == id)?;
        let grant = |target| Some(Self { role: id.to_owned(), target });
        let Some(parameters) = parameters else {
            return if role.scope == Scope::Cluster { grant(Target::Everything) } else { None };
        };
        let parts: Vec<&str> = parameters.split(':').map(str::trim).collect();
        if parts.len() > role.scope.parameters() || parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        let part = |at: usize| parts.get(at).filter(|part| **part != "*").map(|part| (*part).to_owned());
        let (bucket, scope, collection) = (part(0), part(1), part(2));
        match bucket {
            None if scope.is_none() && collection.is_none() => grant(Target::AnyBucket),
            Some(bucket) if scope.is_some() || collection.is_none() => {
                grant(Target::Bucket { bucket, scope, collection })
            }
            _ => None,
        }
    }

    /// As requests write it; the inverse of [`RoleGrant::parse`].
    #[must_use]
    pub fn text(&self) -> String {
        match &self.target {
            Target::Everything => self.role.clone(),
            Target::AnyBucket => format!("{}[*]", self.role),
            Target::Bucket { bucket, scope, collection } => {
                let parts = [Some(bucket), scope.as_ref(), collection.as_ref()];
                let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
                format!("{}[{}]", self.role, parts.join(":"))
            }
        }
    }

    /// Reads a comma-separated list; commas inside brackets do not separate.
    ///
    /// # Errors
    /// Those parts that are no grants of a known role.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, Vec<String>> {
        let (mut grants, mut unknown, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match Self::parse(part) {
                // A list may be as long as a body of REST.
                Some(grant) if seen.insert(grant.clone()) => grants.push(grant),
                Some(_) => {}
                None => unknown.push(part.to_owned()),
            }
        }
        if unknown.is_empty() { Ok(grants) } else { Err(unknown) }
    }
}
