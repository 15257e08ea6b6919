//! Why a command was refused. The texts are those of Couchbase. SDKs and `couchbase-cli` recognise errors by them, so
//! they are part of the contract. For example, gocb looks for fragments such as `not found` beside `collection`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metadata::{Metadata, NodeInfo};

/// Nodes that are named where another one is to be asked.
const OTHERS_TOLD: usize = 3;

/// Refusals per request parameter; `_` stands for the request as a whole.
pub type FieldErrors = BTreeMap<String, String>;

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ClusterError {
    /// Parameters that do not fit, by parameter name.
    #[error("{}", .0.values().cloned().collect::<Vec<_>>().join(" "))]
    Invalid(FieldErrors),
    /// The bucket does not exist.
    #[error("Requested resource not found.")]
    BucketNotFound,
    /// No node of the cluster is meant.
    #[error("Node is unknown to this cluster.")]
    NodeNotFound,
    /// A change of nodes, server groups or maps that is not allowed now; the text says why.
    #[error("{0}")]
    MembersRefused(String),
    /// The scope does not exist.
    #[error("Scope with name \"{0}\" is not found")]
    ScopeNotFound(String),
    /// The scope exists already.
    #[error("Scope with name \"{0}\" already exists")]
    ScopeExists(String),
    /// The collection does not exist.
    #[error("Collection with name \"{1}\" in scope \"{0}\" is not found")]
    CollectionNotFound(String, String),
    /// The collection exists already.
    #[error("Collection with name \"{1}\" in scope \"{0}\" already exists")]
    CollectionExists(String, String),
    /// A change of scopes or collections that is not allowed; the text says why.
    #[error("{0}")]
    CollectionsRefused(String),
    /// There is no such design document; whether there was one.
    #[error("{}", if *deleted { "deleted" } else { "missing" })]
    #[allow(missing_docs, reason = "names say it")]
    DesignDocumentNotFound { deleted: bool },
    /// A design document that cannot be kept; the text says why.
    #[error("{0}")]
    DesignDocumentRefused(String),
    /// A deleted user was not there.
    #[error("User was not found.")]
    UserNotFound,
    /// A deleted group was not there.
    #[error("Group was not found.")]
    GroupNotFound,
    /// The identity has no password that could be changed.
    #[error("Changing of password is not allowed for this user.")]
    PasswordNotChangeable,
    /// The cluster has been set up before.
    #[error("Cluster is already initialized.")]
    AlreadyInitialized,
    /// Settee cannot do this yet; the text says what.
    #[error("{0}")]
    NotSupported(String),
    /// The decision could not be made durable or carried out; the text says why.
    #[error("{0}")]
    Failed(String),
}

impl ClusterError {
    /// A refusal of one parameter.
    #[must_use]
    pub fn field(name: &str, text: impl Into<String>) -> Self {
        Self::Invalid(BTreeMap::from([(name.to_owned(), text.into())]))
    }

    /// The error of a change that a node which was failed over is asked for. The cluster answers so to the node, and the node to
    /// its client. It names some nodes that can be asked instead.
    #[must_use]
    pub fn failed_over(metadata: &Metadata) -> Self {
        let others = metadata.active_nodes().filter(|node| !node.host.is_empty());
        let others: Vec<String> = others.take(OTHERS_TOLD).map(NodeInfo::called).collect();
        let others = if others.is_empty() { "none is known".to_owned() } else { others.join(", ") };
        Self::MembersRefused(format!(
            "This node was failed over. Ask a node of the cluster that was not: {others}."
        ))
    }

    /// The same kind of refusal, without words and names.
    #[must_use]
    pub(crate) fn without_words(&self) -> Self {
        match self {
            Self::Invalid(_) => Self::Invalid(FieldErrors::new()),
            Self::MembersRefused(_) => Self::MembersRefused(String::new()),
            Self::ScopeNotFound(_) => Self::ScopeNotFound(String::new()),
            Self::ScopeExists(_) => Self::ScopeExists(String::new()),
            Self::CollectionNotFound(..) => Self::CollectionNotFound(String::new(), String::new()),
            Self::CollectionExists(..) => Self::CollectionExists(String::new(), String::new()),
            Self::CollectionsRefused(_) => Self::CollectionsRefused(String::new()),
            Self::DesignDocumentRefused(_) => Self::DesignDocumentRefused(String::new()),
            Self::NotSupported(_) => Self::NotSupported(String::new()),
            Self::Failed(_) => Self::Failed(String::new()),
            Self::BucketNotFound
            | Self::NodeNotFound
            | Self::DesignDocumentNotFound { .. }
            | Self::UserNotFound
            | Self::GroupNotFound
            | Self::PasswordNotChangeable
            | Self::AlreadyInitialized => self.clone(),
        }
    }

    /// `Ok` when nothing was refused.
    ///
    /// # Errors
    /// [`ClusterError::Invalid`] with what was refused.
    pub fn unless_empty(errors: FieldErrors) -> Result<(), Self> {
        if errors.is_empty() { Ok(()) } else { Err(Self::Invalid(errors)) }
    }
}

/// A change of nodes, server groups or maps is not allowed now, for this reason.
pub(crate) fn refused(text: impl Into<String>) -> ClusterError {
    ClusterError::MembersRefused(text.into())
}
