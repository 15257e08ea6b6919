//! One stream from the consumer's side: what a producer may say next, and how it reaches the replica.
//!
//! Nothing is believed. A snapshot must go on where the last one ended or take up the one that is unfinished. An item
//! must lie in the announced snapshot, behind the last one. So whatever a producer says, the replica sees rising seqnos
//! without gaps. An item that the replica has no room for changes nothing here: it is said again later.

use base::{Cas, Datatype, DocKey, Now, Seqno, Status, VbUuid, bucket::DurabilityLevel, limits};
use engine::{ReplicaItem, ReplicaKind, ReplicaMarker, Waiter, system_events::SYSTEM_COLLECTION};
use protocol::{
    binary::{
        dcp::{DcpMessage, Document, MarkerFlags, MarkerVersion, PACKED, SnapshotMarker},
        encoded_document_key,
    },
    snappy,
};

use super::{
    fault::Fault,
    replica::{Replica, Start},
};

/// A failover log that is longer than any node keeps.
const LOG_ENTRIES_MAX: usize = 1_000;

/// Whether a message has been dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It has.
    Done,
    /// The replica has no room: it is to be given again later, before any other.
    NoRoom,
}

/// Where a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// To be asked for then (monotonic milliseconds).
    Due(u64),
    /// Asked for.
    Asked,
    /// Granted.
    Open,
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Inbound<I> {
    pub(super) term: u64,
    /// Of the last stream request; messages carry it.
    pub(super) opaque: u32,
    pub(super) phase: Phase,
    /// Streams given up since the last that worked.
    pub(super) failures: u32,
    inflow: Option<I>,
    vb_uuid: VbUuid,
    /// The last seqno that the replica has.
    last: Seqno,
    /// The announced snapshot: the seqno before its first, and its last.
    snapshot: (Seqno, Seqno),
    /// It was read from disk.
    from_disk: bool,
    /// Durable writes up to here will be acknowledged once they are here.
    prepared: Seqno,
    /// The last acknowledgement sent.
    acknowledged: Seqno,
    /// The copy has said that it may lack what it acknowledged.
    may_lack: bool,
}

impl<I: Copy + std::fmt::Debug> Inbound<I> {
    pub(super) fn new(term: u64, at: u64) -> Self {
        Self {
            term,
            opaque: 0,
            phase: Phase::Due(at),
            failures: 0,
            inflow: None,
            vb_uuid: VbUuid(0),
            last: Seqno(0),
            snapshot: (Seqno(0), Seqno(0)),
            from_disk: false,
            prepared: Seqno(0),
            acknowledged: Seqno(0),
            may_lack: false,
        }
    }

    /// Asked for, from where the replica is.
    pub(super) fn ask(&mut self, opaque: u32, start: &Start<I>) {
        self.opaque = opaque;
        self.phase = Phase::Asked;
        self.inflow = Some(start.inflow);
        self.vb_uuid = start.vb_uuid;
        self.last = start.start;
        self.snapshot = (start.snap_start, start.snap_end);
        self.may_lack = start.may_lack;
        (self.prepared, self.acknowledged) = (Seqno(0), Seqno(0));
    }

    /// Granted, with this failover log.
    pub(super) fn grant<R: Replica<Inflow = I>>(
        &mut self,
        replica: &R,
        log: Option<Vec<(VbUuid, Seqno)>>,
        now: Now,
    ) -> Result<(), Fault> {
        let log = log.filter(|log| self.is_plausible(log)).ok_or(Fault::BadLog)?;
        replica.accept_log(self.inflow()?, &log, now).map_err(Fault::NotTaken)?;
        self.phase = Phase::Open;
        // What it has may be more than the active knows of: it may be another one than last time.
        self.prepared = Seqno(u64::MAX);
        Ok(())
    }

    fn is_plausible(&self, log: &[(VbUuid, Seqno)]) -> bool {
        let falls = log.windows(2).all(|pair| matches!(pair, [newer, older] if newer.1 >= older.1));
        let has_ours = self.last == Seqno(0) || log.iter().any(|(uuid, _)| *uuid == self.vb_uuid);
        (1..=LOG_ENTRIES_MAX).contains(&log.len()) && falls && has_ours
    }

    /// The producer wants it to go back first.
    pub(super) fn go_back<R: Replica<Inflow = I>>(
        &mut self,
        replica: &R,
        to: Seqno,
        now: Now,
    ) -> Result<(), Fault> {
        if to >= self.last {
            return Err(Fault::RollbackForward { from: self.last, to });
        }
        replica.roll_back(self.inflow()?, to, now).map_err(Fault::NotTaken)
    }

    /// Takes a message other than the stream's end. A value that was packed for the way is inflated into `unpacked`.
    pub(super) fn hear<R: Replica<Inflow = I>>(
        &mut self,
        replica: &R,
        message: &DcpMessage<'_>,
        unpacked: &mut Vec<u8>,
        waiter: Waiter,
        now: Now,
    ) -> Result<Taken, Fault> {
        let item = match *message {
            DcpMessage::SnapshotMarker(marker) => return self.begin_snapshot(replica, &marker, now),
            DcpMessage::SeqnoAdvanced(seqno) => {
                ReplicaItem { kind: ReplicaKind::Advance, seqno, ..item_about(DocKey::trusted(&[])) }
            }
            DcpMessage::Mutation { document, flags, expiry } => {
                ReplicaItem { flags, expiry, ..version_of(ReplicaKind::Mutation, &document, unpacked)? }
            }
            DcpMessage::Deletion { document, delete_time: Some(expiry) } => {
                ReplicaItem { expiry, ..version_of(ReplicaKind::Deletion, &document, unpacked)? }
            }
            DcpMessage::Expiration { document, delete_time: expiry } => {
                ReplicaItem { expiry, ..version_of(ReplicaKind::Expiration, &document, unpacked)? }
            }
            DcpMessage::Prepare { document, flags, expiry, deleted, level } => {
                if level == DurabilityLevel::None {
                    return Err(Fault::BadValue(document.seqno));
                }
                ReplicaItem {
                    flags,
                    expiry,
                    ..version_of(ReplicaKind::Prepare { level, deleted }, &document, unpacked)?
                }
            }
            DcpMessage::Commit { key, prepared, seqno } => {
                completion_of(ReplicaKind::Commit { prepared }, key, prepared, seqno)?
            }
            DcpMessage::Abort { key, prepared, seqno } => {
                completion_of(ReplicaKind::Abort { prepared }, key, prepared, seqno)?
            }
            DcpMessage::Deletion { delete_time: None, .. } => {
                return Err(Fault::Unasked("a deletion without its time"));
            }
            DcpMessage::SystemEvent { .. } => return Err(Fault::Unasked("a system event told as one")),
            DcpMessage::OsoBegin | DcpMessage::OsoEnd => return Err(Fault::Unasked("an unordered snapshot")),
            // The consumer has dealt with these.
            DcpMessage::StreamEnd(_) | DcpMessage::Noop => {
                return Err(Fault::Unasked("a message of the connection"));
            }
        };
        self.check_order(item.seqno)?;
        let taken = settle(replica.item(self.inflow()?, &item, waiter, now))?;
        if taken == Taken::Done {
            self.last = item.seqno;
            self.failures = 0;
            if let ReplicaKind::Prepare { .. } = item.kind {
                self.prepared = self.prepared.max(item.seqno);
            }
        }
        Ok(taken)
    }

    fn begin_snapshot<R: Replica<Inflow = I>>(
        &mut self,
        replica: &R,
        marker: &SnapshotMarker,
        now: Now,
    ) -> Result<Taken, Fault> {
        let SnapshotMarker { start, end, flags, version } = *marker;
        let bad = Fault::BadSnapshot { start, end, last: self.last };
        let is_unfinished = self.last < self.snapshot.1;
        // What is unfinished may be cut short, but only by a snapshot that ends no earlier: until then nothing is consistent.
        let follows = start <= self.last.next() && (!is_unfinished || end >= self.snapshot.1);
        // "Nothing follows what is here": told to a copy with nothing in it, or one that may lack something.
        let is_empty = end == self.last && !is_unfinished && (end == Seqno(0) || self.may_lack);
        if !follows || start > end || (end <= self.last && !is_empty) {
            return Err(bad);
        }
        if flags.has(MarkerFlags::HISTORY) || flags.has(MarkerFlags::MAY_CONTAIN_DUPLICATES) {
            return Err(Fault::Unasked("a snapshot with a history"));
        }
        let (max_visible, high_completed, purge_seqno, high_prepared) = match version {
            // That nothing follows does not say that what is here is visible: it may end with an abort.
            MarkerVersion::V1 if is_empty => (Seqno(0), Seqno(0), Seqno(0), Seqno(0)),
            MarkerVersion::V1 => (end, Seqno(0), Seqno(0), Seqno(0)),
            MarkerVersion::V2 { max_visible, high_completed } => {
                (max_visible, high_completed, Seqno(0), Seqno(0))
            }
            MarkerVersion::V22 { max_visible, high_completed, purge_seqno, high_prepared } => {
                (max_visible, high_completed, purge_seqno, high_prepared)
            }
        };
        if [max_visible, high_completed, purge_seqno, high_prepared].into_iter().any(|seqno| seqno > end) {
            return Err(bad);
        }
        let before = Seqno(start.get().saturating_sub(1));
        let told = ReplicaMarker {
            start: if is_unfinished { before.min(self.snapshot.0) } else { before },
            end,
            from_disk: flags.has(MarkerFlags::DISK),
            max_visible,
            high_completed,
            purge_seqno,
        };
        let taken = settle(replica.marker(self.inflow()?, &told, now))?;
        if taken == Taken::Done {
            self.snapshot = (told.start, end);
            self.from_disk = told.from_disk;
            self.prepared = self.prepared.max(high_prepared);
        }
        Ok(taken)
    }

    fn check_order(&self, seqno: Seqno) -> Result<(), Fault> {
        if seqno > self.last && seqno <= self.snapshot.1 {
            return Ok(());
        }
        Err(Fault::OutOfOrder { seqno, last: self.last, end: self.snapshot.1 })
    }

    /// Whether there may be durable writes that are here and not acknowledged, as far as that can change with a message.
    pub(super) fn may_acknowledge(&self) -> bool {
        self.phase == Phase::Open && self.last >= self.snapshot.1 && self.acknowledged < self.prepared
    }

    /// Whether what it is told is read from disk, for a copy that is not whole meanwhile.
    pub(super) fn hears_history(&self) -> bool {
        self.from_disk && self.last < self.snapshot.1
    }

    /// What the last acknowledgement said.
    pub(super) const fn acknowledged(&self) -> Seqno {
        self.acknowledged
    }

    /// Durable writes up to there are here; true if that is to be told.
    pub(super) fn acknowledge(&mut self, seqno: Seqno) -> bool {
        if self.prepared == Seqno(u64::MAX) {
            self.prepared = seqno;
        }
        let rises = seqno > self.acknowledged;
        self.acknowledged = self.acknowledged.max(seqno);
        rises
    }

    /// The last seqno that the replica has.
    pub(super) const fn last(&self) -> Seqno {
        self.last
    }

    pub(super) fn inflow(&self) -> Result<I, Fault> {
        self.inflow.ok_or(Fault::NotTaken(Status::NotMyVbucket))
    }
}

/// No room is no reason to give up.
fn settle(result: Result<(), Status>) -> Result<Taken, Fault> {
    match result {
        Ok(()) => Ok(Taken::Done),
        Err(Status::TemporaryFailure | Status::NoMemory) => Ok(Taken::NoRoom),
        Err(Status::Invalid) => Err(Fault::Damaged),
        Err(status) => Err(Fault::NotTaken(status)),
    }
}

/// A version of a document, or a system event.
fn version_of<'a>(
    kind: ReplicaKind,
    document: &Document<'a>,
    unpacked: &'a mut Vec<u8>,
) -> Result<ReplicaItem<'a>, Fault> {
    let seqno = document.seqno;
    let (value, datatype) = unpack(document, unpacked).ok_or(Fault::BadValue(seqno))?;
    let key = key_of(document.key, seqno)?;
    let kind = match kind {
        _ if key.collection() != SYSTEM_COLLECTION => kind,
        ReplicaKind::Mutation => ReplicaKind::System { deleted: false },
        ReplicaKind::Deletion => ReplicaKind::System { deleted: true },
        _ => return Err(Fault::BadKey(seqno)),
    };
    let is_too_long = value.len() > limits::VALUE_BYTES_MAX + limits::XATTR_BYTES_MAX;
    if !datatype.is_valid() || is_too_long || (value.is_empty() && datatype != Datatype::RAW) {
        return Err(Fault::BadValue(seqno));
    }
    let (cas, rev) = (document.cas, document.rev);
    Ok(ReplicaItem { kind, seqno, cas, rev, datatype, value, ..item_about(key) })
}

/// A value and what it is, as it was stored; `None` when it was packed and cannot be inflated.
fn unpack<'a>(document: &Document<'a>, unpacked: &'a mut Vec<u8>) -> Option<(&'a [u8], Datatype)> {
    if !document.datatype.contains(PACKED) {
        return Some((document.value, document.datatype));
    }
    unpacked.clear();
    let inflates = snappy::inflate(document.value, unpacked);
    inflates.then_some((unpacked.as_slice(), document.datatype.without(PACKED)))
}

/// What became of a durable write.
fn completion_of(
    kind: ReplicaKind,
    key: &[u8],
    prepared: Seqno,
    seqno: Seqno,
) -> Result<ReplicaItem<'_>, Fault> {
    if prepared == Seqno(0) || prepared >= seqno {
        return Err(Fault::BadCompletion { seqno, prepared });
    }
    let key = key_of(key, seqno)?;
    if key.collection() == SYSTEM_COLLECTION {
        return Err(Fault::BadKey(seqno));
    }
    Ok(ReplicaItem { kind, seqno, ..item_about(key) })
}

/// Nothing about a key.
const fn item_about(key: DocKey<'_>) -> ReplicaItem<'_> {
    ReplicaItem {
        kind: ReplicaKind::Advance,
        key,
        seqno: Seqno(0),
        cas: Cas::NONE,
        rev: 0,
        flags: 0,
        expiry: 0,
        datatype: Datatype::RAW,
        value: &[],
    }
}

/// The key of a document, or of a system event, which clients could not name.
fn key_of(key: &[u8], seqno: Seqno) -> Result<DocKey<'_>, Fault> {
    let is_event = key.first().is_some_and(|first| u32::from(*first) == SYSTEM_COLLECTION.get());
    if is_event && (2..=limits::ENCODED_KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(DocKey::trusted(key));
    }
    encoded_document_key(key).map_err(|_| Fault::BadKey(seqno))
}
