//! What this crate asks of the node around it.

use std::{future::Future, net::IpAddr, pin::Pin, sync::Arc, time::Duration};

use base::NodeId;
use cluster::{Metadata, consensus::Epoch};

use crate::AuditEvent;

/// A future without a name, as trait objects need it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a node says of another one that is none of its cluster's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What is said.
    pub text: &'static str,
    /// By the key of the node that says it ([`cluster::auth::Judgement`]), once its cluster knows that.
    pub signature: Option<Vec<u8>>,
}

/// The node, as far as it decides who may come in.
pub trait Gate: Send + Sync + 'static {
    /// The cluster's metadata now.
    fn metadata(&self) -> Arc<Metadata>;
    /// Waits until [`Gate::metadata`] has everything that anybody was told to be done before this was called. Where
    /// nobody can say what that is, it waits for a moment only, and returns false.
    fn catch_up(&self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(true))
    }
    /// Waits until [`Gate::metadata`] has everything that anybody was told to be done before this was called; whether that is so by now.
    /// Calls at the same time share what they ask of other nodes.
    fn catches_up_within(&self, _patience: Duration) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(true))
    }
    /// Whether this node may serve what it is the active of. It may not where others may have taken over since it last heard from them.
    fn may_serve(&self) -> bool {
        true
    }
    /// Whether somebody at this address may set the node up before it has an administrator. Loopback unless the operator said
    /// otherwise.
    fn allows_setup_from(&self, peer: IpAddr) -> bool {
        peer.is_loopback()
    }
    /// Whether this machine has that name, beside the host names that the cluster knows of its nodes; in lower case.
    fn is_own_name(&self, _name: &str) -> bool {
        false
    }
    /// The uuid of the node itself.
    fn this_node_uuid(&self) -> String {
        String::new()
    }
    /// The key of a node that [`Gate::metadata`] does not know as a member, or knows without a key. Others may know it since a later
    /// version, or the nodes may still have to agree without whom they go on.
    fn key_of_no_member(&self, _uuid: &str) -> Option<String> {
        None
    }
    /// What is to be said to a node whose login is refused: whether it was removed. `epoch`: the life of the group that it
    /// belongs to.
    fn verdict_on(&self, _node: NodeId, _epoch: Epoch) -> Option<Verdict> {
        None
    }
    /// Takes note of something an auditor wants to know.
    fn audit(&self, event: AuditEvent);
}
