//! What a service tells of the buckets that it works for, for the node's statistics and tasks.

use base::BucketUuid;

/// Tells of buckets. It holds nothing that keeps a service that has stopped, or a bucket, from going.
pub trait Figures: Send + Sync + 'static {
    /// What the service has of a bucket on this node. Every second somebody asks for that, so it is cheap.
    fn of(&self, bucket: &BucketUuid) -> BucketFigures;

    /// How far the indexes of a bucket are that are fed on this node.
    fn progress(&self, bucket: &BucketUuid) -> Vec<Progress>;

    /// How far compactions of indexes are that somebody asked for, in bytes.
    fn compactions(&self, bucket: &BucketUuid) -> Vec<Progress>;
}

/// What a service has of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketFigures {
    /// Answers to queries that this node has begun, for clients and for other nodes.
    pub queries: u64,
    /// Bytes of indexes on the disk, superseded ones included.
    pub disk_bytes: u64,
    /// Of those the ones in use.
    pub live_bytes: u64,
}

/// How far the index of a design document is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The design document, with `_design/`.
    pub design_document: String,
    /// Changes that the index has, or bytes that are compacted.
    pub done: u64,
    /// Changes that it shall have, or bytes that are to be compacted.
    pub total: u64,
}
