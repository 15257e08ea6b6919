//! The names by which a turn finds its connection, and a request its document.

use base::VbId;

/// Names a connection for as long as its worker lives.
pub(crate) type ConnectionId = u64;

/// Where a document is: its vBucket, and the hash of its encoded key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Located {
    pub(crate) vb: VbId,
    pub(crate) hash: u64,
}
