//! What a vBucket has to be for a stream to go on.
//!
//! A client's stream goes on for as long as the vBucket is served here. What an active one says to the end, while it
//! hands over, belongs to it. A node's stream is for one term. The follower has to ask anew for anything that may be
//! said at another one, since the branch of history may be another.

use base::{VbId, VbRole};
use engine::Bucket;

/// See the module header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequiredRole {
    /// Of a client: at any term.
    Served,
    /// Of a node: the term that it was opened for.
    AtTerm(u64),
}

impl RequiredRole {
    /// Whether the stream may go on. Asked after something was taken from the feed, it says whether that may be told.
    pub(super) fn holds(self, bucket: &Bucket, vb: VbId) -> bool {
        let Ok((role, term)) = bucket.vb_role(vb) else { return false };
        let leads = matches!(role, VbRole::Active | VbRole::Sealed);
        leads && (self == Self::Served || self == Self::AtTerm(term))
    }
}
