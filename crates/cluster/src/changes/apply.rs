//! How a command changes the metadata: all of it or nothing.

use std::sync::Arc;

use base::NodeId;

use crate::{
    auth::{Domain, Identity},
    changes::{
        Applied, Command, bucket, collections,
        command::{Initialize, QuotaChange},
        design_documents, objectives, users,
    },
    metadata::{AlternateAddress, ClusterError, Metadata, NodeInfo, telemetry::TELEMETRY_SETTING},
    rights::Credentials,
};

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
            Command::StopRebalance { id, now_ms } => self.stop_rebalance(id.as_ref(), *now_ms)?,
            Command::FinishRebalance { id, now_ms } => self.finish_rebalance(id, *now_ms)?,
            Command::ChangeVbs(changes) => self.change_vbs(changes),
            Command::FailOver(nodes) => self.fail_over(nodes)?,
            Command::SetAutoFailover { enabled, timeout_secs, max_count, whole_groups } => {
                self.set_auto_failover(*enabled, *timeout_secs, *max_count, *whole_groups)?;
            }
            Command::ChangeAutoFailover(change) => self.change_auto_failover(*change)?,
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
            Command::ChangeBucket { name, over, change } => bucket::change(self, name, over, change)?,
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
            Command::PutSetting { path, value } => self.put_setting(path, value)?,
            Command::ReplaceSetting { path, over, value } => self.replace_setting(path, *over, value)?,
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
        if let Self::PutSetting { path, .. } | Self::ReplaceSetting { path, .. } = self {
            return path == TELEMETRY_SETTING;
        }
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
                | Self::ChangeBucket { .. }
                | Self::CreateScope { .. }
                | Self::DropScope { .. }
                | Self::CreateCollection { .. }
                | Self::UpdateCollection { .. }
                | Self::DropCollection { .. }
        )
    }
}
