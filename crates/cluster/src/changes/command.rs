//! Changes to the metadata.
//!
//! A command carries everything it needs; applying it twice to equal states gives equal states.

use std::collections::{BTreeMap, BTreeSet};

use base::{BucketUuid, ManifestUid, NodeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    auth::Identity,
    changes::{
        bucket::{BucketChange, BucketParams},
        design_documents::DesignDocumentChange,
        moves::VbChange,
        objectives::ObjectiveChange,
        rebalancing::{FailOver, StartGracefulFailover, StartRebalance},
    },
    metadata::{Admin, AlternateAddress, Authority, NodeInfo, UserDomain, topology::Recovery},
    rights::{Credentials, roles::RoleGrant},
};

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Makes the administrator and closes the open REST API.
    Initialize(Initialize),
    /// Makes a cluster of one node, or replaces host, ports and services of the node with that uuid.
    SetNode(NodeInfo),
    /// Adds a node, which counts for nothing until a rebalance takes it in. Its number is `Metadata::next_node`.
    AddNode(NodeInfo),
    /// A node leaves: one that never counted or does not any more.
    #[allow(missing_docs, reason = "names say it")]
    RemoveNode { node: NodeId },
    /// Nodes that were failed over and have left serve nothing any more.
    ForgetDeparted(Vec<NodeId>),
    /// Gives a node another host name.
    #[allow(missing_docs, reason = "names say it")]
    RenameNode { node: NodeId, host: String },
    /// Says how clients in another network reach a node; absent: as all others.
    #[allow(missing_docs, reason = "names say it")]
    SetAlternateAddress { node: NodeId, address: Option<AlternateAddress> },
    /// Says how a node that was failed over comes back with the next rebalance; absent: it goes.
    #[allow(missing_docs, reason = "names say it")]
    SetRecovery { node: NodeId, recovery: Option<Recovery> },
    /// Has a node that was failed over come back as if it were new.
    #[allow(missing_docs, reason = "names say it")]
    ReAddNode { node: NodeId },
    /// Makes a server group.
    #[allow(missing_docs, reason = "names say it")]
    CreateServerGroup { uuid: String, name: String },
    /// Gives a server group another name.
    #[allow(missing_docs, reason = "names say it")]
    RenameServerGroup { uuid: String, name: String },
    /// Removes an empty server group.
    #[allow(missing_docs, reason = "names say it")]
    DeleteServerGroup { uuid: String },
    /// Puts nodes into server groups, by uuid. Data follows with the next rebalance.
    #[allow(missing_docs, reason = "names say it")]
    AssignServerGroups { assignments: Vec<(NodeId, String)> },
    /// Has the map made balanced over other nodes.
    StartRebalance(StartRebalance),
    /// Has active roles leave nodes, which are failed over then.
    StartGracefulFailover(StartGracefulFailover),
    /// Leaves everything where it is; with an `id`, as long as that rebalance is under way.
    #[allow(missing_docs, reason = "names say it")]
    StopRebalance {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        now_ms: u64,
    },
    /// What a rebalance strives for is there.
    #[allow(missing_docs, reason = "names say it")]
    FinishRebalance { id: String, now_ms: u64 },
    /// Steps of vBuckets. Those that do not fit any more are left out.
    ChangeVbs(Vec<VbChange>),
    /// Takes nodes out of the map at once.
    FailOver(FailOver),
    /// Settings of automatic failover.
    #[allow(missing_docs, reason = "as in `AutoFailover`")]
    SetAutoFailover { enabled: bool, timeout_secs: u32, max_count: u32, whole_groups: bool },
    /// The same of settings some of which stay as they are: those that are absent.
    ChangeAutoFailover(AutoFailoverChange),
    /// Automatic failover may happen as often as it may again.
    ResetAutoFailover,
    /// Every active node knows what automatic failover asks of it, whatever that is by now. Clusters of level 0 agree on it.
    ArmAutoFailover,
    /// Every active node knows what automatic failover asks of it since that version of the metadata.
    #[allow(missing_docs, reason = "names say it")]
    ArmAutoFailoverSince { since: u64 },
    /// These nodes, which are all members, understand metadata of that level. See [`crate::metadata::level`].
    #[allow(missing_docs, reason = "names say it")]
    RaiseLevel { level: u32, nodes: Vec<NodeId> },
    /// Sets the password of the internal user by which nodes know each other.
    SetSecret(String),
    /// Gives a cluster that has none what vouches for its nodes under TLS.
    SetAuthority(Authority),
    /// Says what key a member proves with who it is.
    #[allow(missing_docs, reason = "names say it")]
    SetNodeKey { node: NodeId, key: String },
    /// Ends the authority that signed for nodes before each of them had a key.
    RetireAuthority,
    /// Whether others speak to a node under TLS.
    #[allow(missing_docs, reason = "names say it")]
    SetNodeEncryption { node: NodeId, on: bool },
    /// Replaces the full administrator.
    SetAdmin(Admin),
    /// Creates a bucket.
    #[allow(missing_docs, reason = "names say it")]
    CreateBucket { name: String, uuid: BucketUuid, params: BucketParams },
    /// Changes a bucket; parameters that are absent stay.
    #[allow(missing_docs, reason = "names say it")]
    UpdateBucket { name: String, params: BucketParams },
    /// Empties a bucket: it is another one from then on, which has all that the old one had but its documents.
    #[allow(missing_docs, reason = "names say it")]
    FlushBucket { name: String, uuid: BucketUuid },
    /// Drops a bucket with all it holds.
    #[allow(missing_docs, reason = "names say it")]
    DeleteBucket { name: String },
    /// Changes the bucket of that name and uuid, and no other one of that name.
    #[allow(missing_docs, reason = "names say it")]
    ChangeBucket { name: String, over: BucketUuid, change: BucketChange },
    /// Creates a scope.
    #[allow(missing_docs, reason = "names say it")]
    CreateScope { bucket: String, scope: String },
    /// Drops a scope with its collections.
    #[allow(missing_docs, reason = "names say it")]
    DropScope { bucket: String, scope: String },
    /// Creates a collection. `max_ttl`: -1 no expiry, 0 the bucket's, otherwise seconds.
    #[allow(missing_docs, reason = "names say it")]
    CreateCollection { bucket: String, scope: String, collection: String, max_ttl: i64 },
    /// Changes a collection; `max_ttl` as in creation, absent: stays.
    #[allow(missing_docs, reason = "names say it")]
    UpdateCollection { bucket: String, scope: String, collection: String, max_ttl: Option<i64> },
    /// Drops a collection.
    #[allow(missing_docs, reason = "names say it")]
    DropCollection { bucket: String, scope: String, collection: String },
    /// Creates, replaces or deletes a design document.
    ChangeDesignDocument(DesignDocumentChange),
    /// Sets or removes an objective of a bucket.
    ChangeObjective(ObjectiveChange),
    /// Creates or replaces a user.
    PutUser(UserChange),
    /// Removes a user.
    #[allow(missing_docs, reason = "names say it")]
    DeleteUser { domain: UserDomain, name: String },
    /// Locks or unlocks a user.
    #[allow(missing_docs, reason = "names say it")]
    LockUser { name: String, locked: bool },
    /// Creates or replaces a group.
    #[allow(missing_docs, reason = "names say it")]
    PutGroup { name: String, description: String, roles: Vec<RoleGrant>, ldap_group_ref: String },
    /// Removes a group and every membership in it.
    #[allow(missing_docs, reason = "names say it")]
    DeleteGroup { name: String },
    /// Gives somebody a new password.
    #[allow(missing_docs, reason = "names say it")]
    ChangePassword { identity: Identity, credentials: Credentials, now_ms: u64 },
    /// Names the cluster.
    SetClusterName(String),
    /// Changes memory quotas; absent ones stay.
    SetQuota(QuotaChange),
    /// Records a settings object under its REST path.
    #[allow(missing_docs, reason = "names say it")]
    PutSetting { path: String, value: Value },
    /// The same for a value that was made of the present one, whose revision was `over` ([`crate::Metadata::setting_revision`]).
    #[allow(missing_docs, reason = "names say it")]
    ReplaceSetting { path: String, over: Option<u64>, value: Value },
}

/// What initialisation sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Initialize {
    /// The full administrator.
    pub admin: Admin,
    /// Shown to people; absent: stays.
    pub cluster_name: Option<String>,
    /// Memory quotas; absent ones stay.
    pub quotas: QuotaChange,
}

/// New settings of automatic failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in `AutoFailover`")]
pub struct AutoFailoverChange {
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_groups: Option<bool>,
}

/// New memory quotas in MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaChange {
    /// The data service.
    pub data_mb: Option<u64>,
    /// Others by REST parameter name; recorded only.
    pub others_mb: BTreeMap<String, u64>,
}

/// A user as he shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserChange {
    /// Where he authenticates.
    pub domain: UserDomain,
    /// Login name.
    pub name: String,
    /// Used when the user is new.
    pub uuid: String,
    /// Absent: stays (empty for a new user).
    pub full_name: Option<String>,
    /// Absent: the password stays; a new local user needs one.
    pub credentials: Option<Credentials>,
    /// Absent: stay.
    pub roles: Option<Vec<RoleGrant>>,
    /// Absent: stay.
    pub groups: Option<BTreeSet<String>>,
    /// Absent: stays.
    pub locked: Option<bool>,
    /// Unix milliseconds, recorded as the time of a password change.
    pub now_ms: u64,
}

/// What an accepted command tells its caller beside the new state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Applied {
    /// Nothing beyond the state.
    Done,
    /// The collections manifest a bucket has now.
    Manifest(ManifestUid),
}
