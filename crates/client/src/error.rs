//! What can go wrong between a tool and a server.

use base::Status;
use std::io;

/// Result of client calls.
pub type Result<T> = std::result::Result<T, ClientError>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket could not be opened; nothing was sent.
    #[error("cannot connect to {address}: {source} (is the server running there?)")]
    Connect {
        /// `host:port` as asked for.
        address: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The connection broke or timed out; the outcome of requests in flight is unknown.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The server answered with an error.
    #[error("{what} failed: {status:?} (0x{code:02x}){}", suffix(body))]
    Status {
        /// The operation.
        what: &'static str,
        /// The status if it is a known one.
        status: Option<Status>,
        /// The status on the wire.
        code: u16,
        /// What the server said about it.
        body: String,
    },
    /// The node refuses the bucket. It does not tell a bucket that does not exist from one that the user may not use.
    #[error(
        "user {user:?} may not use bucket {bucket:?}, or the cluster has no such bucket: name another bucket, create this \
         one, or give the user a role on it"
    )]
    Bucket {
        /// The bucket that was asked for.
        bucket: String,
        /// The user that asked; empty without a login.
        user: String,
        /// What the node answered.
        status: Status,
    },
    /// The node has no cluster and no users yet.
    #[error("the node was not initialised: run `settee init --host HOST:PORT --username NAME` first")]
    Uninitialised,
    /// User name or password are wrong, or the server is not who it claims to be.
    #[error("authentication failed for user {user:?}: {reason}")]
    Authentication {
        /// The user that tried.
        user: String,
        /// What was refused.
        reason: String,
    },
    /// A reply that this client cannot make sense of.
    #[error("unexpected reply: {0}")]
    Protocol(String),
    /// The REST interface answered with an error.
    #[error("{method} {path} answered {code}: {body}")]
    Rest {
        /// HTTP method.
        method: &'static str,
        /// Path of the request.
        path: String,
        /// HTTP status.
        code: u16,
        /// The body, which says why.
        body: String,
    },
    /// Retried until the time was up.
    #[error("gave up after {seconds:.1} s: {last}")]
    GaveUp {
        /// How long was tried.
        seconds: f64,
        /// The last error.
        last: Box<ClientError>,
    },
}

fn suffix(body: &str) -> String {
    if body.is_empty() { String::new() } else { format!(": {body}") }
}

impl ClientError {
    /// The status the server answered, if that is what failed.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            ClientError::Status { status, .. } => *status,
            ClientError::Bucket { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether nothing came for as long as one was willing to wait: the connection may still be whole.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, ClientError::Io(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
    }
}
