//! What HTTP surfaces tell auditors.

use std::net::SocketAddr;

use cluster::{ClusterError, auth::Identity};

/// What auditors are told of a change of which it is not known whether it was made.
const IN_DOUBT: &str = "asked for, outcome not known";

/// Something an auditor wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// What happened.
    pub kind: AuditKind,
    /// The sender, or the name that it claimed.
    pub user: Identity,
    /// From where.
    pub peer: Option<SocketAddr>,
    /// What it was done to: a bucket, a user, a path.
    pub subject: String,
    /// Anything more; never a password.
    pub details: String,
}

impl AuditEvent {
    /// What auditors are told of a change that has ended in this way. Where nobody has said so in time, it may still be made: auditors hear
    /// that it was asked for. One that was refused is not made, and nothing is told.
    #[must_use]
    pub fn of_end<T>(mut self, ended: &Result<T, ClusterError>) -> Option<Self> {
        match ended {
            Ok(_) => Some(self),
            Err(ClusterError::Failed(_)) => {
                self.details = format!("{} ({IN_DOUBT})", self.details).trim_start().to_owned();
                Some(self)
            }
            Err(_) => None,
        }
    }
}

/// Kinds of audit events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditKind {
    /// A REST request with right credentials (once per user, address and quarter of an hour), or a login to the web console.
    LoginSuccess,
    /// A REST request with wrong credentials.
    LoginFailure,
    /// A session of the web console that its user has ended.
    Logout,
    /// A request its user had no right to.
    AccessDenied,
    /// The cluster was initialised, named, or given quotas.
    ClusterChanged,
    /// A node's own settings changed.
    NodeChanged,
    /// A bucket was created, changed, flushed or dropped.
    BucketChanged,
    /// Scopes or collections changed.
    CollectionsChanged,
    /// Design documents changed.
    ViewsChanged,
    /// Users or groups changed.
    UsersChanged,
    /// Somebody's password changed.
    PasswordChanged,
    /// Somebody has read a document over REST.
    DocumentRead,
    /// Somebody with the right to it has asked for a document to be written or deleted over REST.
    DocumentChanged,
    /// A setting changed.
    SettingsChanged,
}
