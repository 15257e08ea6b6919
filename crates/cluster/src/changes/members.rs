//! Nodes coming, going and belonging together: the part of the metadata that says who the cluster is.
//!
//! A node that is added counts for nothing until a rebalance takes it in; a node may only go once no vBucket needs it.

use base::NodeId;

use crate::{
    changes::{Command, command::AutoFailoverChange},
    metadata::{
        ClusterError, Metadata, NodeInfo,
        error::refused,
        level::RECOVERIES_KEPT,
        topology::{AutoFailover, Departed, Membership, Parted, Recovery, ServerGroup, VbPlan},
    },
};

/// Why a node is not recovered that a rebalance removes, and what to do.
pub const EJECTED: &str = "The rebalance that is running removes this node, with all that it holds. Stop the rebalance, have the node \
                           recovered, and start another one.";
/// Longest name of a server group (ns_server).
const GROUP_NAME_BYTES_MAX: usize = 64;
/// What the timeout of automatic failover may be, in seconds (ns_server).
const TIMEOUT_SECS: std::ops::RangeInclusive<u32> = 1..=3600;
/// How many automatic failovers there may be in a row (ns_server).
const FAILOVERS: std::ops::RangeInclusive<u32> = 1..=100;
/// Part of the failover delay for which actives may serve without being heard: the rest is for what clocks and networks
/// do in between.
const LEASE_PERCENT: u64 = 70;
/// The longest lease. Longer than it takes to elect another leader; a node that was failed over by hand is waited for as long.
const LEASE_MAX_MS: u64 = 5_000;
/// Removed nodes whose keys are remembered. The group lets each of them go within moments.
const PARTED_MAX: usize = 64;
/// With fewer active nodes nobody is failed over automatically: no majority would be left to say so.
const LEASES_FROM_NODES: usize = 3;

impl Metadata {
    pub(crate) fn add_node(&mut self, node: &NodeInfo) -> Result<(), ClusterError> {
        if node.id.get() != self.next_node {
            return Err(refused("Another node was added at the same time. Try again."));
        }
        if self.nodes.iter().any(|known| known.uuid == node.uuid || same_address(known, node)) {
            return Err(refused("Node is already part of cluster."));
        }
        if self.server_group(&node.group).is_none() {
            return Err(refused("No such server group."));
        }
        if self.knows_nodes_by_keys() && node.key.is_none() {
            return Err(refused("The node has no key. Start it with the version that the other nodes run."));
        }
        // Numbers are never given twice, so one day there are none left.
        self.next_node = self
            .next_node
            .checked_add(1)
            .ok_or_else(|| refused("No node numbers are left in this cluster."))?;
        let (membership, encrypted) = (Membership::InactiveAdded, self.encrypts_new_nodes());
        self.nodes.push(NodeInfo { membership, recovery: None, excluded: None, encrypted, ..node.clone() });
        Ok(())
    }

    /// Whether every member has a key, so that nothing else makes a node known to the others. It stays so: none is added without one.
    #[must_use]
    pub fn knows_nodes_by_keys(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| node.key.is_some())
    }

    /// Whether the cluster's secret makes a sender that knows it a node.
    #[must_use]
    pub fn accepts_secret(&self) -> bool {
        !self.secret.is_empty() && !self.knows_nodes_by_keys()
    }

    pub(crate) fn remove_node(&mut self, id: NodeId) -> Result<(), ClusterError> {
        let node = self.node_by_id(id).ok_or(ClusterError::NodeNotFound)?;
        if node.membership == Membership::Active {
            return Err(refused("An active node leaves by a rebalance."));
        }
        if self.nodes.len() == 1 {
            return Err(refused("Cannot remove the last node."));
        }
        if self.holds_copies(id) {
            return Err(refused("Some vBuckets still need this node."));
        }
        if let Some(rebalance) = &mut self.rebalance {
            rebalance.keep.retain(|&kept| kept != id);
        }
        self.forget_nodes(&[id]);
        Ok(())
    }

    /// Nodes that hold nothing that counts are gone.
    pub(crate) fn forget_nodes(&mut self, ids: &[NodeId]) {
        // Whether one that was failed over has heard of it is not known here.
        let leaving = self.nodes.iter().filter(|node| ids.contains(&node.id));
        let departed = leaving.filter_map(|node| Some(Departed { node: node.id, excluded: node.excluded? }));
        self.departed.extend(departed.collect::<Vec<_>>());
        let leaving = self.nodes.iter().filter(|node| ids.contains(&node.id));
        let parted = leaving.filter_map(|node| {
            Some(Parted { node: node.id, uuid: node.uuid.clone(), key: node.key.clone()? })
        });
        self.parted.extend(parted.collect::<Vec<_>>());
        let long_gone = self.parted.len().saturating_sub(PARTED_MAX);
        self.parted.drain(..long_gone);
        self.nodes.retain(|node| !ids.contains(&node.id));
        for bucket in self.buckets.values_mut() {
            bucket.former.retain(|node, _| !ids.contains(node));
        }
        self.note_leases();
    }

    /// Whether a copy on that node counts, or is being built.
    #[must_use]
    pub fn holds_copies(&self, id: NodeId) -> bool {
        let holds = |plan: &VbPlan| plan.nodes().contains(&id) && !plan.has_failed(id);
        self.buckets.values().any(|bucket| bucket.vbs.iter().any(holds))
    }

    /// Whether a member may propose that. One that was failed over says where it listens and which key it has, so that it can be
    /// recovered. Nothing else that it proposes counts, until an administrator has said that it is to come back.
    ///
    /// # Errors
    /// What to do where it may not.
    pub fn may_propose(&self, node: NodeId, command: &Command) -> Result<(), ClusterError> {
        let Some(failed) = self.node_by_id(node).filter(|node| node.is_failed_over()) else { return Ok(()) };
        let is_of_itself = match command {
            Command::SetNode(said) => said.uuid == failed.uuid,
            Command::SetNodeKey { node: of, .. } => *of == node && failed.key.is_none(),
            _ => false,
        };
        if is_of_itself { Ok(()) } else { Err(ClusterError::failed_over(self)) }
    }

    /// Whether a proposal by another node leaves keys with their owners. The cluster knows a node by its key. So only the node itself may
    /// give the cluster another key for it, by a request that the old key has signed. `from`: the node whose key has signed the proposal.
    #[must_use]
    pub fn leaves_keys(&self, from: Option<NodeId>, command: &Command) -> bool {
        let Command::SetNodeKey { node, key } = command else { return true };
        let known = self.node_by_id(*node).and_then(|node| node.key.as_ref());
        from == Some(*node) || known.is_none_or(|known| known == key)
    }

    pub(crate) fn rename_node(&mut self, id: NodeId, host: &str) -> Result<(), ClusterError> {
        let node = self.node_by_id(id).ok_or(ClusterError::NodeNotFound)?;
        let renamed = NodeInfo { host: host.to_owned(), ..node.clone() };
        if self.nodes.iter().any(|other| other.id != id && same_address(other, &renamed)) {
            return Err(refused("Another node of the cluster has that address."));
        }
        self.node_by_id_mut(id)?.host = renamed.host;
        Ok(())
    }

    pub(crate) fn set_recovery(
        &mut self,
        id: NodeId,
        recovery: Option<Recovery>,
    ) -> Result<(), ClusterError> {
        let is_gone = self.level >= RECOVERIES_KEPT && self.is_ejected(id);
        let node = self.node_by_id_mut(id)?;
        if node.membership != Membership::InactiveFailed {
            return Err(refused("Only a node that was failed over can be recovered."));
        }
        if is_gone && recovery.is_some() {
            return Err(refused(EJECTED));
        }
        node.recovery = recovery;
        Ok(())
    }

    pub(crate) fn re_add_node(&mut self, id: NodeId) -> Result<(), ClusterError> {
        self.set_recovery(id, Some(Recovery::Full))?;
        self.node_by_id_mut(id)?.membership = Membership::InactiveAdded;
        self.buckets.values_mut().for_each(|bucket| drop(bucket.former.remove(&id)));
        Ok(())
    }

    pub(crate) fn create_server_group(&mut self, uuid: &str, name: &str) -> Result<(), ClusterError> {
        self.check_group_name(name)?;
        if self.server_group(uuid).is_some() {
            return Err(refused("The server group exists already."));
        }
        self.server_groups.push(ServerGroup { uuid: uuid.to_owned(), name: name.to_owned() });
        Ok(())
    }

    pub(crate) fn rename_server_group(&mut self, uuid: &str, name: &str) -> Result<(), ClusterError> {
        if self.server_group(uuid).is_some_and(|group| group.name == name) {
            return Ok(());
        }
        self.check_group_name(name)?;
        let mut groups = self.server_groups.iter_mut();
        let group =
            groups.find(|group| group.uuid == uuid).ok_or_else(|| refused("No such server group."))?;
        name.clone_into(&mut group.name);
        Ok(())
    }

    pub(crate) fn delete_server_group(&mut self, uuid: &str) -> Result<(), ClusterError> {
        if self.server_group(uuid).is_none() {
            return Err(refused("No such server group."));
        }
        if self.nodes.iter().any(|node| node.group == uuid) {
            return Err(refused("Server group is not empty."));
        }
        if self.server_groups.len() == 1 {
            return Err(refused("The last server group stays."));
        }
        self.server_groups.retain(|group| group.uuid != uuid);
        Ok(())
    }

    pub(crate) fn assign_groups(&mut self, assignments: &[(NodeId, String)]) -> Result<(), ClusterError> {
        for (id, group) in assignments {
            if self.server_group(group).is_none() {
                return Err(refused("No such server group."));
            }
            self.node_by_id_mut(*id)?.group.clone_from(group);
        }
        Ok(())
    }

    fn check_group_name(&self, name: &str) -> Result<(), ClusterError> {
        if name.trim().is_empty() {
            return Err(ClusterError::field("name", "cannot be empty"));
        }
        if name.len() > GROUP_NAME_BYTES_MAX {
            return Err(ClusterError::field(
                "name",
                format!("cannot be longer than {GROUP_NAME_BYTES_MAX} bytes"),
            ));
        }
        if self.server_groups.iter().any(|group| group.name == name) {
            return Err(ClusterError::field("name", "already exists"));
        }
        Ok(())
    }

    /// What changes those settings of automatic failover, and no others. Where some members would not understand that, the others are set
    /// to what they are here.
    #[must_use]
    pub fn change_of_auto_failover(&self, change: AutoFailoverChange) -> Command {
        if self.names_what_is_meant() {
            return Command::ChangeAutoFailover(change);
        }
        let (timeout_secs, max_count, whole_groups) = self.with_change(change);
        Command::SetAutoFailover { enabled: change.enabled, timeout_secs, max_count, whole_groups }
    }

    pub(crate) fn change_auto_failover(&mut self, change: AutoFailoverChange) -> Result<(), ClusterError> {
        let (timeout_secs, max_count, whole_groups) = self.with_change(change);
        self.set_auto_failover(change.enabled, timeout_secs, max_count, whole_groups)
    }

    /// Timeout, count, and whether whole groups are failed over, after a change.
    fn with_change(&self, change: AutoFailoverChange) -> (u32, u32, bool) {
        let now = &self.auto_failover;
        let timeout_secs = change.timeout_secs.unwrap_or(now.timeout_secs);
        let max_count = change.max_count.unwrap_or(now.max_count);
        (timeout_secs, max_count, change.whole_groups.unwrap_or(now.whole_groups))
    }

    pub(crate) fn set_auto_failover(
        &mut self,
        enabled: bool,
        timeout_secs: u32,
        max_count: u32,
        whole_groups: bool,
    ) -> Result<(), ClusterError> {
        if !TIMEOUT_SECS.contains(&timeout_secs) {
            let text = format!(
                "The value of \"timeout\" must be a positive integer in a range from {} to {}",
                TIMEOUT_SECS.start(),
                TIMEOUT_SECS.end()
            );
            return Err(ClusterError::field("timeout", text));
        }
        if !FAILOVERS.contains(&max_count) {
            let text = format!(
                "The value of \"maxCount\" must be a positive integer in a range from {} to {}",
                FAILOVERS.start(),
                FAILOVERS.end()
            );
            return Err(ClusterError::field("maxCount", text));
        }
        let lease_before_ms = self.longest_lease_ms();
        let before = &self.auto_failover;
        let stricter = timeout_secs < before.timeout_secs || (enabled && !before.enabled);
        let count = if enabled { before.count } else { 0 };
        self.auto_failover =
            AutoFailover { enabled, timeout_secs, max_count, count, whole_groups, ..before.clone() };
        let is_shorter = lease_before_ms > self.lease_by_settings_ms();
        self.auto_failover.earlier_lease_ms = lease_before_ms.filter(|_| is_shorter);
        if stricter || is_shorter {
            self.disarm();
        }
        self.note_leases();
        Ok(())
    }

    /// Whether actives serve only under a lease: where somebody else may be promoted without them knowing.
    #[must_use]
    pub fn needs_leases(&self) -> bool {
        self.auto_failover.enabled && self.active_nodes().count() >= LEASES_FROM_NODES
    }

    /// How long actives may serve from the moment in which they sent a report that was answered; `None` where they need
    /// no lease.
    #[must_use]
    pub fn lease_ms(&self) -> Option<u64> {
        self.lease_by_settings_ms().filter(|_| self.needs_leases())
    }

    /// How long a node could serve unheard that does not know how many nodes there are by now, or acts by earlier settings.
    pub(crate) fn longest_lease_ms(&self) -> Option<u64> {
        self.lease_by_settings_ms().max(self.auto_failover.earlier_lease_ms)
    }

    fn lease_by_settings_ms(&self) -> Option<u64> {
        let delay_ms = u64::from(self.auto_failover.timeout_secs) * 1000;
        self.auto_failover.enabled.then(|| (delay_ms * LEASE_PERCENT / 100).min(LEASE_MAX_MS))
    }

    /// Nodes that hold data, or may.
    pub fn active_nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.iter().filter(|node| node.membership == Membership::Active)
    }

    /// Called after active nodes have come or gone. Where the cluster needs no leases then, it also fails over nobody
    /// automatically until all nodes have said that they know better.
    pub(crate) fn note_leases(&mut self) {
        let needs_leases = self.needs_leases();
        self.auto_failover.armed &= needs_leases;
        self.auto_failover.is_leased &= needs_leases;
    }

    /// Every active node acts by the settings of that version, or serves nothing. Others may have come since it was proposed: a
    /// proposal may be made again, and come late.
    pub(crate) fn arm_since(&mut self, since: u64) -> Result<(), ClusterError> {
        if since != self.auto_failover.since {
            return Err(refused("The settings of automatic failover have changed since."));
        }
        self.arm();
        Ok(())
    }

    /// Every active node acts by the settings that there are, or serves nothing.
    pub(crate) fn arm(&mut self) {
        let needs_leases = self.needs_leases();
        let settings = &mut self.auto_failover;
        (settings.armed, settings.is_leased, settings.earlier_lease_ms) = (needs_leases, needs_leases, None);
    }

    /// From the command at hand on nodes may need leases that they did not need before.
    pub(crate) fn disarm(&mut self) {
        self.auto_failover.armed = false;
        self.auto_failover.since = self.version + 1;
    }

    pub(crate) fn node_by_id_mut(&mut self, id: NodeId) -> Result<&mut NodeInfo, ClusterError> {
        self.nodes.iter_mut().find(|node| node.id == id).ok_or(ClusterError::NodeNotFound)
    }
}

fn same_address(one: &NodeInfo, other: &NodeInfo) -> bool {
    one.host == other.host && one.ports.mgmt == other.ports.mgmt
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Ports;

    #[test]
    fn a_known_key_is_changed_by_its_owner_alone() {
        let node = |id: u16, key: Option<&str>| NodeInfo {
            id: NodeId(id),
            key: key.map(str::to_owned),
            ..NodeInfo::first(format!("n{id}"), "h".into(), Ports::default())
        };
        let metadata =
            Metadata { nodes: vec![node(0, Some("old")), node(1, None)], ..Metadata::new("c".into(), 256) };
        let leaves = |from: Option<u16>, of: u16, key: &str| {
            let command = Command::SetNodeKey { node: NodeId(of), key: key.into() };
            metadata.leaves_keys(from.map(NodeId), &command)
        };
        assert!(leaves(Some(0), 0, "new"), "the old key has signed it");
        assert!(!leaves(Some(1), 0, "new"), "another member");
        assert!(!leaves(None, 0, "new"), "a node that is known by the secret alone");
        assert!(leaves(None, 0, "old"), "it says what is known");
        assert!(leaves(None, 1, "new"), "a node without a key says its first one");
    }

    #[test]
    fn a_node_that_was_failed_over_says_where_it_is_and_nothing_else() {
        let node = |id: u16, membership| NodeInfo {
            id: NodeId(id),
            membership,
            ..NodeInfo::first(format!("n{id}"), "h".into(), Ports::default())
        };
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.nodes = vec![node(0, Membership::Active), node(1, Membership::InactiveFailed)];
        let may = |id: u16, command: &Command| metadata.may_propose(NodeId(id), command).is_ok();
        let key = |id: u16| Command::SetNodeKey { node: NodeId(id), key: "k".into() };
        let refused = [
            Command::RemoveNode { node: NodeId(0) },
            Command::SetRecovery { node: NodeId(1), recovery: Some(Recovery::Full) },
            Command::SetNode(metadata.nodes[0].clone()),
            key(0),
        ];
        let mut coming_back = metadata.clone();
        coming_back.nodes[1].recovery = Some(Recovery::Delta);
        let said = metadata.may_propose(NodeId(1), &refused[0]).unwrap_err().to_string();
        assert!(said.contains(&format!("was not: {}.", metadata.nodes[0].called())), "{said}");
        for command in refused {
            assert!(may(0, &command), "{command:?}");
            assert!(!may(1, &command), "{command:?}");
            assert!(coming_back.may_propose(NodeId(1), &command).is_ok(), "{command:?}");
        }
        let moved = NodeInfo { host: "elsewhere".into(), ..metadata.nodes[1].clone() };
        for command in [Command::SetNode(moved), key(1)] {
            assert!(may(1, &command), "{command:?}");
        }
    }
}
