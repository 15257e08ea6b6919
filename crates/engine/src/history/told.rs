//! What a feed is asked for, and what it tells.

use base::{DocKey, ManifestUid, Seqno, VbRole, VbUuid};

use crate::{
    history::item::FeedItem,
    vbucket::{VBucket, system_events::is_system_key},
};

/// Which documents a feed tells about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FeedFilter {
    /// Every collection's.
    #[default]
    All,
    /// Those of the collections with these ids, which are rising. System events pass in any case.
    Collections(Box<[u32]>),
}

impl FeedFilter {
    /// Whether a key is told about.
    pub(crate) fn passes(&self, key: DocKey<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Collections(ids) => {
                is_system_key(key.encoded()) || ids.binary_search(&key.collection().get()).is_ok()
            }
        }
    }
}

/// What a consumer wants of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedOptions {
    /// The last seqno that the consumer has.
    pub from: Seqno,
    /// The first snapshot reaches at least this seqno (zero: no matter). It is for two kinds of consumers. One stopped
    /// inside a snapshot that was to end there. The other is no copy before it has everything up to there.
    pub through: Seqno,
    /// The consumer stopped inside a snapshot, which may have been read from disk and have left out how durable writes ended. The rest
    /// is read from disk as well, so that it says again what is completed.
    pub inside: bool,
    /// Which documents.
    pub filter: FeedFilter,
    /// No values, but those of system events.
    pub keys_only: bool,
    /// One snapshot of what is on disk and nothing after it: [`FeedStep::Wait`] then, without ever being woken.
    pub disk_only: bool,
    /// Snapshots from disk may come in any order of seqnos.
    pub unordered: bool,
    /// Prepares, commits and aborts of durable writes are told apart from other mutations.
    pub prepares: bool,
    /// A copy that follows another node's has a feed as well ([`crate::feed`] says what that tells).
    pub followers: bool,
}

/// What [`Feed::next`](crate::Feed::next) found.
#[derive(Debug)]
pub enum FeedStep {
    /// The next items.
    Batch(FeedBatch),
    /// Nothing yet. The feed's waiter is woken, once, when it is worth asking again.
    Wait,
}

/// Consecutive items of one snapshot; none when everything in it was superseded or filtered out.
#[derive(Debug)]
pub struct FeedBatch {
    /// Present in the first batch of a snapshot.
    pub snapshot: Option<FeedSnapshot>,
    /// In seqno order, unless the snapshot is unordered.
    pub items: Vec<FeedItem>,
    /// This is the last batch of its snapshot.
    pub ends_snapshot: bool,
}

/// The range of seqnos that a snapshot covers, and what is known about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedSnapshot {
    /// The seqno before the first one covered.
    pub start: Seqno,
    /// The last seqno covered.
    pub end: Seqno,
    /// Read from disk (or, memory-only, from the table): duplicates of the history are missing.
    pub from_disk: bool,
    /// Items come in any order of seqnos.
    pub unordered: bool,
    /// The last seqno that is visible to clients.
    pub max_visible: Seqno,
    /// From disk: every prepare up to here is completed.
    pub high_completed: Seqno,
    /// From disk: the last prepare.
    pub high_prepared: Seqno,
    /// Tombstones up to here may be missing.
    pub purge_seqno: Seqno,
}

/// Why a feed is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeedEnd {
    /// The history it told is gone: the bucket was emptied or closed, or this node feeds nobody any more.
    #[error("the history was dropped")]
    Reset,
    /// The consumer was so slow that what it needs could not be kept.
    #[error("the consumer was too slow")]
    TooSlow,
    /// The disk could not be read.
    #[error("the disk could not be read")]
    BackfillFailed,
}

/// A vBucket's history, all of it as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbHistory {
    /// The current branch.
    pub uuid: VbUuid,
    /// Branches with the seqno each began at, newest first.
    pub log: Vec<(VbUuid, Seqno)>,
    /// The last mutation.
    pub high_seqno: Seqno,
    /// Feeds tell up to here: everything, or of a copy that follows another node's what is whole.
    pub told_to: Seqno,
    /// The last mutation that is neither a prepare nor an abort.
    pub max_visible: Seqno,
    /// The last prepare.
    pub prepared: Seqno,
    /// Up to here everything is synced, and whole after a kill. Of a copy that is less than what is synced where that ends inside a
    /// snapshot.
    pub persisted: Seqno,
    /// The last mutation that is synced.
    pub synced: Seqno,
    /// Tombstones up to here may be gone.
    pub purge_seqno: Seqno,
    /// The collections manifest the vBucket follows.
    pub manifest_uid: ManifestUid,
}

impl VBucket {
    /// Facts about its history.
    pub(crate) fn history(&self) -> VbHistory {
        VbHistory {
            uuid: self.failover.uuid(),
            log: self.failover.log().to_vec(),
            high_seqno: self.high_seqno,
            told_to: self.told_to(),
            max_visible: self.marks.visible,
            prepared: self.marks.prepared,
            persisted: self.synced_whole(),
            synced: self.persisted_seqno,
            purge_seqno: self.purge_seqno,
            manifest_uid: self.manifest_uid,
        }
    }

    /// The branch and the last mutation.
    pub(crate) fn newest(&self) -> (VbUuid, Seqno) {
        (self.failover.uuid(), self.high_seqno)
    }

    /// Whether feeds are told of it, whatever they are asked for.
    pub(crate) fn feeds(&self) -> bool {
        matches!(self.role, VbRole::Active | VbRole::Sealed)
    }

    /// Up to here feeds tell. A copy that follows another node's is good at ends of snapshots only, and a part of one is no copy.
    pub(crate) fn told_to(&self) -> Seqno {
        match self.role {
            VbRole::Active | VbRole::Sealed => self.high_seqno,
            VbRole::Replica | VbRole::Dead if self.following.is_partial => Seqno(0),
            VbRole::Replica | VbRole::Dead => self.promotable(),
        }
    }
}
