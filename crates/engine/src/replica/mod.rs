//! A replica's input. What a node hears of a vBucket's active copy goes into table, checkpoint and prepares here.
//! Seqnos, CAS values and revisions are those that the active has given.
//!
//! * Input belongs to a stream, and a stream to a term. The consumer that begins a stream ([`crate::Bucket::replica_begin`]) gets an
//!   [`Inflow`], which makes every earlier one void. The bucket refuses what comes with a void one, and changes nothing.
//! * What has come already is ignored, so a stream may begin again where the last one broke off.
//! * Items belong to a snapshot. A copy is good at ends of snapshots only ([`crate::vbucket::snapshots`]): in between it is not
//!   acknowledged, and recorded as being in between. A copy that has not even its first one is not to be promoted.
//! * What a replica holds for a durable write is acknowledged in the order of seqnos. Its level decides when: once it
//!   is in memory and its snapshot is whole, or once it is synced ([`crate::Bucket::high_prepared`]).
//! * A commit is a version made of the prepare that is here. In a snapshot from disk it may be a plain version; and what
//!   such a snapshot says is completed, and does not show, was aborted.
//! * A history that is not the active's goes altogether. So does a copy that is told an outcome and lacks the prepare
//!   that it belongs to. A new incarnation is built from zero. (Only the newest version of a key is kept: there is
//!   nothing to go back to.) From there to the end of its first snapshot it is no copy ([`crate::VbStatus::complete`]),
//!   in memory and on disk. The link that feeds it sees to it that this snapshot has all that was ever prepared
//!   ([`crate::VbHistory::prepared`]).

mod input;
mod items;
pub(crate) mod roles;

use base::{Cas, Datatype, DocKey, ManifestUid, Seqno, VbUuid, bucket::DurabilityLevel};

use crate::{
    history::{
        item::{FeedItem, FeedKind},
        told::FeedSnapshot,
    },
    vbucket::following::Inflow,
};

/// Where a replica is: what it asks its active for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStart {
    /// For everything that the stream brings.
    pub inflow: Inflow,
    /// The branch that the copy is on.
    pub vb_uuid: VbUuid,
    /// The last seqno that it has.
    pub start: Seqno,
    /// The snapshot that this lies in; both are `start` between two.
    pub snap_start: Seqno,
    /// See `snap_start`.
    pub snap_end: Seqno,
    /// It may have lost what it has acknowledged: the first snapshot has to reach the last prepare there is.
    pub may_lack: bool,
    /// Branches with the seqno each began at, newest first.
    pub failover_log: Vec<(VbUuid, Seqno)>,
    /// The collections manifest whose events it has.
    pub manifest_uid: ManifestUid,
}

/// A snapshot begins, or one that was cut short goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaMarker {
    /// The seqno before the first one covered; that of the open snapshot if there is one.
    pub start: Seqno,
    /// The last one covered.
    pub end: Seqno,
    /// It may leave out what is completed, of durable writes too.
    pub from_disk: bool,
    /// The last seqno that is visible to clients.
    pub max_visible: Seqno,
    /// From disk: every prepare up to here is completed.
    pub high_completed: Seqno,
    /// From disk: tombstones up to here may be missing.
    pub purge_seqno: Seqno,
}

impl From<&FeedSnapshot> for ReplicaMarker {
    fn from(snapshot: &FeedSnapshot) -> Self {
        Self {
            start: snapshot.start,
            end: snapshot.end,
            from_disk: snapshot.from_disk,
            max_visible: snapshot.max_visible,
            high_completed: snapshot.high_completed,
            purge_seqno: snapshot.purge_seqno,
        }
    }
}

/// What a replica is told of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaKind {
    /// The document has this value.
    Mutation,
    /// The document was deleted; a value, if any, is its system xattrs.
    Deletion,
    /// The document was deleted because it had expired.
    Expiration,
    /// A system event as it is stored, or its end.
    System {
        /// It is a tombstone.
        deleted: bool,
    },
    /// A durable write is in progress.
    Prepare {
        /// What it is to wait for.
        level: DurabilityLevel,
        /// It is a deletion.
        deleted: bool,
    },
    /// A durable write is what its key says now. Its metadata and value are the prepare's.
    Commit {
        /// The prepare.
        prepared: Seqno,
    },
    /// A durable write has failed.
    Abort {
        /// The prepare.
        prepared: Seqno,
    },
    /// Nothing: there is no item up to this seqno (whatever had it was superseded). The key is not looked at.
    Advance,
}

/// One of the items of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaItem<'a> {
    /// What it says.
    pub kind: ReplicaKind,
    /// About which key.
    pub key: DocKey<'a>,
    /// Its place in the active's order.
    pub seqno: Seqno,
    /// Its CAS.
    pub cas: Cas,
    /// Its revision.
    pub rev: u64,
    /// Opaque to the server.
    pub flags: u32,
    /// Absolute Unix seconds, 0 never; of a deletion the time of it.
    pub expiry: u32,
    /// What the value is.
    pub datatype: Datatype,
    /// The value as stored.
    pub value: &'a [u8],
}

impl<'a> ReplicaItem<'a> {
    /// What a feed that tells of prepares has told, for a replica in the same process.
    #[must_use]
    pub fn of_feed(item: &'a FeedItem) -> Self {
        let kind = match item.kind {
            FeedKind::Mutation | FeedKind::Deletion if item.prepared != Seqno(0) => {
                ReplicaKind::Commit { prepared: item.prepared }
            }
            FeedKind::Mutation => ReplicaKind::Mutation,
            FeedKind::Deletion => ReplicaKind::Deletion,
            FeedKind::Expiration => ReplicaKind::Expiration,
            FeedKind::System => ReplicaKind::System { deleted: item.deleted },
            FeedKind::Prepare => ReplicaKind::Prepare { level: item.level, deleted: item.deleted },
            FeedKind::Abort => ReplicaKind::Abort { prepared: item.prepared },
        };
        Self {
            kind,
            key: item.key(),
            seqno: item.seqno,
            cas: item.cas,
            rev: item.rev,
            flags: item.flags,
            expiry: item.expiry,
            datatype: item.datatype,
            value: item.value(),
        }
    }
}
