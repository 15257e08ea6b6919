//! What REST asks of the server about certificates. The server reads and writes the files; `routes::certificates` says who may, and
//! what becomes of the answers.

use cluster::Metadata;
use http::BoxFuture;

/// The certificates of this node and the folder where an operator leaves new ones. Calls may wait for the disk.
pub trait Certificates: Send + Sync {
    /// The chain that TLS ports show to clients, the node's own certificate first.
    fn chain_pem(&self) -> Option<String>;
    /// The authorities in the folder for them.
    ///
    /// # Errors
    /// Why there is nothing to load, in words for the operator.
    fn inbox_authorities(&self) -> Result<Vec<InboxFile>, String>;
    /// Shows the certificate in the inbox from now on, if one of these authorities has signed it; the names of warnings.
    ///
    /// # Errors
    /// Why it cannot be used, in words for the operator.
    fn take_from_inbox(&self, metadata: &Metadata) -> Result<(), String>;
    /// Has every node make its certificate anew, or go back to the one that it made; the nodes that have not.
    ///
    /// # Errors
    /// Why this node has not.
    fn regenerate(&self, what: Regenerate) -> BoxFuture<'_, Result<Vec<String>, String>>;
}

/// A certificate in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxFile {
    /// Where it was.
    pub path: String,
    /// What is in it: one certificate.
    pub pem: String,
}

/// What becomes of the certificates that nodes show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regenerate {
    /// Those that nodes have made for themselves are made anew.
    pub made: bool,
    /// Those that operators have brought are given up.
    pub brought: bool,
}
