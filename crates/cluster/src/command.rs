//! Changes to the metadata, and the one place that dispatches them.
//!
//! A command carries everything it needs; applying it twice to equal states gives equal states.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base::{BucketUuid, ManifestUid, NodeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Admin, AlternateAddress, ClusterError, Metadata, NodeInfo, Recovery, UserDomain,
    auth::{Credentials, Domain, Identity},
    bucket::{self, BucketParams},
    collections,
    design_documents::{self, DesignDocumentChange},
    encryption::Authority,
    moves::VbChange,
    objectives::{self, ObjectiveChange},
    rebalancing::{FailOver, StartGracefulFailover, StartRebalance},
    roles::RoleGrant,
    users,
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
    /// Leaves everything where it is.
    #[allow(missing_docs, reason = "names say it")]
    StopRebalance { now_ms: u64 },
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
    /// Automatic failover may happen as often as it may again.
    ResetAutoFailover,
    /// Every active node knows what automatic failover asks of it, whatever that is by now. Clusters of level 0 agree on it.
    ArmAutoFailover,
    /// Every active node knows what automatic failover asks of it since that version of the metadata.
    #[allow(missing_docs, reason = "names say it")]
    ArmAutoFailoverSince { since: u64 },
    /// These nodes, which are all members, understand metadata of that level. See [`crate::level`].
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

impl Metadata {
    /// The state after `command`.
    ///
    /// # Errors
    /// [`ClusterError`] when the command is refused; the state is unchanged then.
    pub fn apply(&self, command: &Command) -> Result<(Metadata, Applied), ClusterError> {
        self.admits(command)?;
        let mut next = self.clone();
        let applied = next.change(command)?;
        next.version += 1;
        if command.changes_config() || next.routes_differ(self) {
            next.rev += 1;
        }
        Ok((next, applied))
    }

    /// Whether clients find vBuckets elsewhere.
    fn routes_differ(&self, before: &Self) -> bool {
        self.buckets.iter().any(|(name, bucket)| {
            let Some(before) = before.buckets.get(name) else { return true };
            let chains_differ =
                || bucket.vbs.iter().zip(before.vbs.iter()).any(|(now, then)| now.chain != then.chain);
            (!Arc::ptr_eq(&bucket.vbs, &before.vbs) && chains_differ()) || bucket.target != before.target
        })
    }

    fn change(&mut self, command: &Command) -> Result<Applied, ClusterError> {
        match command {
            Command::Initialize(initialize) => self.initialize(initialize)?,
            Command::SetNode(node) => self.set_node(node)?,
            Command::AddNode(node) => self.add_node(node)?,
            Command::RemoveNode { node } => self.remove_node(*node)?,
            Command::ForgetDeparted(nodes) => self.departed.retain(|gone| !nodes.contains(&gone.node)),
            Command::RenameNode { node, host } => self.rename_node(*node, host)?,
            Command::SetAlternateAddress { node, address } => self.set_alternate(*node, address.as_ref())?,
            Command::SetRecovery { node, recovery } => self.set_recovery(*node, *recovery)?,
            Command::ReAddNode { node } => self.re_add_node(*node)?,
            Command::CreateServerGroup { uuid, name } => self.create_server_group(uuid, name)?,
            Command::RenameServerGroup { uuid, name } => self.rename_server_group(uuid, name)?,
            Command::DeleteServerGroup { uuid } => self.delete_server_group(uuid)?,
            Command::AssignServerGroups { assignments } => self.assign_groups(assignments)?,
            Command::StartRebalance(start) => self.start_rebalance(start)?,
            Command::StartGracefulFailover(start) => self.start_graceful_failover(start)?,
            Command::StopRebalance { now_ms } => self.stop_rebalance(*now_ms)?,
            Command::FinishRebalance { id, now_ms } => self.finish_rebalance(id, *now_ms)?,
            Command::ChangeVbs(changes) => self.change_vbs(changes),
            Command::FailOver(nodes) => self.fail_over(nodes)?,
            Command::SetAutoFailover { enabled, timeout_secs, max_count, whole_groups } => {
                self.set_auto_failover(*enabled, *timeout_secs, *max_count, *whole_groups)?;
            }
            Command::ResetAutoFailover => self.auto_failover.count = 0,
            Command::ArmAutoFailover => self.arm(),
            Command::ArmAutoFailoverSince { since } => self.arm_since(*since)?,
            Command::RaiseLevel { level, nodes } => self.raise_level(*level, nodes)?,
            Command::SetSecret(secret) => self.secret.clone_from(secret),
            Command::SetAuthority(authority) => self.set_authority(authority),
            Command::SetNodeKey { node, key } => self.node_by_id_mut(*node)?.key = Some(key.clone()),
            Command::RetireAuthority => self.retire_authority()?,
            Command::SetNodeEncryption { node, on } => self.set_node_encryption(*node, *on)?,
            Command::SetAdmin(admin) => self.admin = Some(admin.clone()),
            Command::CreateBucket { name, uuid, params } => bucket::create(self, name, uuid, params)?,
            Command::UpdateBucket { name, params } => bucket::update(self, name, params)?,
            Command::FlushBucket { name, uuid } => bucket::flush(self, name, uuid)?,
            Command::DeleteBucket { name } => bucket::delete(self, name)?,
            Command::CreateScope { bucket, scope } => return collections::create_scope(self, bucket, scope),
            Command::DropScope { bucket, scope } => return collections::drop_scope(self, bucket, scope),
            Command::CreateCollection { bucket, scope, collection, max_ttl } => {
                return collections::create_collection(self, bucket, scope, collection, *max_ttl);
            }
            Command::UpdateCollection { bucket, scope, collection, max_ttl } => {
                return collections::update_collection(self, bucket, scope, collection, *max_ttl);
            }
            Command::DropCollection { bucket, scope, collection } => {
                return collections::drop_collection(self, bucket, scope, collection);
            }
            Command::ChangeDesignDocument(change) => design_documents::change(self, change)?,
            Command::ChangeObjective(change) => objectives::change(self, change)?,
            Command::PutUser(change) => users::put(self, change)?,
            Command::DeleteUser { domain, name } => users::delete(self, *domain, name)?,
            Command::LockUser { name, locked } => users::lock(self, name, *locked)?,
            Command::PutGroup { name, description, roles, ldap_group_ref } => {
                users::put_group(self, name, description, roles, ldap_group_ref)?;
            }
            Command::DeleteGroup { name } => users::delete_group(self, name)?,
            Command::ChangePassword { identity, credentials, now_ms } => {
                self.change_password(identity, credentials, *now_ms)?;
            }
            Command::SetClusterName(name) => self.cluster_name.clone_from(name),
            Command::SetQuota(change) => self.set_quota(change)?,
            Command::PutSetting { path, value } => {
                self.check_setting(path, value)?;
                self.settings.insert(path.clone(), value.clone());
            }
        }
        Ok(Applied::Done)
    }

    fn initialize(&mut self, initialize: &Initialize) -> Result<(), ClusterError> {
        if self.initialized {
            return Err(ClusterError::AlreadyInitialized);
        }
        self.set_quota(&initialize.quotas)?;
        if let Some(name) = &initialize.cluster_name {
            self.cluster_name.clone_from(name);
        }
        self.admin = Some(initialize.admin.clone());
        self.initialized = true;
        Ok(())
    }

    fn set_node(&mut self, node: &NodeInfo) -> Result<(), ClusterError> {
        if let Some(known) = self.nodes.iter_mut().find(|known| known.uuid == node.uuid) {
            // What the cluster decides about a node is not the node's to say.
            known.host.clone_from(&node.host);
            known.ports = node.ports.clone();
            known.services.clone_from(&node.services);
            return Ok(());
        }
        if !self.nodes.is_empty() {
            return Err(ClusterError::NodeNotFound);
        }
        self.next_node = self.next_node.max(node.id.get() + 1);
        self.nodes.push(node.clone());
        Ok(())
    }

    fn set_alternate(
        &mut self,
        node: NodeId,
        address: Option<&AlternateAddress>,
    ) -> Result<(), ClusterError> {
        self.node_by_id_mut(node)?.alternate = address.cloned();
        Ok(())
    }

    fn set_quota(&mut self, change: &QuotaChange) -> Result<(), ClusterError> {
        if let Some(data_mb) = change.data_mb {
            bucket::check_memory_quota(self, data_mb)?;
            self.quotas.data_mb = data_mb;
        }
        self.quotas.others_mb.extend(change.others_mb.clone());
        Ok(())
    }

    fn change_password(
        &mut self,
        identity: &Identity,
        credentials: &Credentials,
        now_ms: u64,
    ) -> Result<(), ClusterError> {
        match identity.domain {
            Domain::Admin => {
                let admin = self.admin.as_mut().filter(|admin| admin.name == identity.name);
                admin.ok_or(ClusterError::PasswordNotChangeable)?.credentials = credentials.clone();
            }
            Domain::Local => {
                let user = self.users.get_mut(&identity.name).ok_or(ClusterError::PasswordNotChangeable)?;
                user.credentials = Some(credentials.clone());
                user.password_changed_ms = now_ms;
            }
            Domain::External | Domain::Bucket | Domain::Internal | Domain::Anonymous => {
                return Err(ClusterError::PasswordNotChangeable);
            }
        }
        Ok(())
    }
}

impl Command {
    /// Whether clients' configurations look different afterwards.
    fn changes_config(&self) -> bool {
        matches!(
            self,
            Self::Initialize(_)
                | Self::SetNode(_)
                | Self::AddNode(_)
                | Self::RemoveNode { .. }
                | Self::RenameNode { .. }
                | Self::SetAlternateAddress { .. }
                | Self::ReAddNode { .. }
                | Self::RenameServerGroup { .. }
                | Self::AssignServerGroups { .. }
                | Self::StartRebalance(_)
                | Self::StartGracefulFailover(_)
                | Self::StopRebalance { .. }
                | Self::FinishRebalance { .. }
                | Self::FailOver(_)
                | Self::SetClusterName(_)
                | Self::CreateBucket { .. }
                | Self::UpdateBucket { .. }
                | Self::FlushBucket { .. }
                | Self::DeleteBucket { .. }
                | Self::CreateScope { .. }
                | Self::DropScope { .. }
                | Self::CreateCollection { .. }
                | Self::UpdateCollection { .. }
                | Self::DropCollection { .. }
        )
    }
}
