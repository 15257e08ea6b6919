//! What this crate asks of the node around it.

use std::{future::Future, net::IpAddr, pin::Pin, sync::Arc};

use cluster::Metadata;

use crate::AuditEvent;

/// A future without a name, as trait objects need it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The node, as far as it decides who may come in.
pub trait Gate: Send + Sync + 'static {
    /// The cluster's metadata now.
    fn metadata(&self) -> Arc<Metadata>;
    /// Waits until [`Gate::metadata`] has everything that anybody was told to be done before this was called; or for a
    /// moment, where nobody can say what that is.
    fn catch_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
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
    /// Takes note of something an auditor wants to know.
    fn audit(&self, event: AuditEvent);
}
