//! STREAM_REQ: whether a stream may be opened, from where, and with what.
//!
//! Conditions and their order follow kv_engine (`DcpProducer::streamRequest`), since each has its own status and clients
//! meet several at once.

use std::sync::Arc;

use base::{Seqno, Status, VbId, VbRole, VbUuid};
use engine::{
    Waiter,
    feed::{FeedOptions, VbHistory},
};
use protocol::binary::{
    Opaque, Violation,
    dcp::{OpenFlags, StreamEndReason, StreamFilter, StreamFlags, StreamHead, StreamRequest},
};

use super::{
    Producer, STREAM_TICKETS,
    controls::OutOfOrder,
    filter::{Filter, Part},
    required_role::RequiredRole,
    rollback::{History, Position, rollback},
    script::{Script, Unfinished},
    stats::StreamStats,
    stream::Stream,
    value::ValueMode,
};

/// Most streams of a connection: 32 for each of 1024 vBuckets.
const STREAMS_MAX: usize = 32 * 1024;

/// Branches with the seqno each began at, newest first.
pub type FailoverLog = Vec<(VbUuid, Seqno)>;

/// Whether a part of the bucket may be seen.
pub type Access<'a> = &'a dyn Fn(Part) -> Result<(), Status>;

/// A refusal with words for the developer.
pub(super) const fn refused(status: Status, context: &'static str) -> Violation {
    Violation { status, context }
}

/// A stream request.
#[derive(Clone, Debug)]
pub struct StreamAsk {
    /// Which vBucket.
    pub vb: VbId,
    /// What its messages will carry.
    pub opaque: Opaque,
    /// What kind of stream.
    pub flags: StreamFlags,
    /// Where the consumer is.
    pub at: Position,
    /// Where the stream ends.
    pub end: Seqno,
    /// What it is about; between nodes also the term that it is for.
    pub filter: StreamFilter,
}

impl StreamAsk {
    /// From the arguments of a request.
    #[must_use]
    pub fn new(vb: VbId, opaque: Opaque, request: &StreamRequest, filter: StreamFilter) -> Self {
        let flags = StreamFlags(request.flags);
        let at = Position {
            start: request.start,
            vb_uuid: request.vb_uuid,
            snap_start: request.snap_start,
            snap_end: request.snap_end,
            purge_seqno: filter.purge_seqno,
            strict_uuid: flags.has(StreamFlags::STRICT_UUID),
        };
        Self { vb, opaque, flags, at, end: request.end, filter }
    }
}

/// Why a stream request is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It cannot be.
    Violation(Violation),
    /// The consumer has to go back to there first.
    Rollback(Seqno),
}

impl From<Violation> for Refused {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self::Violation(Violation { status, context: "" })
    }
}

impl Producer {
    /// STREAM_REQ: opens a stream and returns the failover log.
    ///
    /// # Errors
    /// The refusal, or where to go back to.
    pub fn stream_request(&mut self, mut ask: StreamAsk, access: Access<'_>) -> Result<FailoverLog, Refused> {
        let bucket = self.bucket.clone();
        let history = bucket.vb_history(ask.vb)?;
        let required_role = self.required_role(&ask)?;
        self.check(&mut ask, &history)?;
        let filter = Filter::new(&ask.filter, self.negotiated.collections, &bucket.manifest())?;
        let stream_id = self.check_stream_id(ask.filter.stream_id)?;
        if filter.is_selective() && self.controls.sync_writes {
            let words = "A choice of collections and synchronous writes exclude each other";
            return Err(refused(Status::NotSupported, words).into());
        }
        for part in filter.parts() {
            access(part)?;
        }
        let place = (ask.vb, stream_id);
        if self.live.contains_key(&place) {
            return Err(refused(Status::KeyExists, "There is a stream for this vBucket already").into());
        }
        if self.slots.len().saturating_sub(self.free.len()) >= STREAMS_MAX {
            return Err(refused(Status::NoMemory, "Too many streams on this connection").into());
        }
        self.check_rollback(&ask, &history)?;
        self.settle_end(&mut ask, &history, &filter)?;
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        let opened = self.open(&ask, stream_id, filter, history, (slot, required_role));
        let (stream, log) = match opened {
            Ok(opened) => opened,
            Err(refused) => {
                self.free.push(slot);
                return Err(refused);
            }
        };
        self.stats.streams.lock().push(stream.stats.clone());
        if stream.is_live() {
            self.live.insert(place, slot);
        }
        let index = slot as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        if let Some(place) = self.slots.get_mut(index) {
            *place = Some(Box::new(stream));
        }
        self.enqueue(slot);
        Ok(log)
    }

    /// What the vBucket has to be for the stream, which is what it is now.
    fn required_role(&self, ask: &StreamAsk) -> Result<RequiredRole, Refused> {
        let required_role = match (self.negotiated.replica, ask.filter.term) {
            (None, None) => RequiredRole::Served,
            (Some(_), Some(term)) => RequiredRole::AtTerm(term),
            (Some(_), None) => {
                return Err(refused(Status::Invalid, "A node follows a vBucket at a term").into());
            }
            (None, Some(_)) => {
                return Err(refused(Status::Invalid, "Terms are for the nodes of a cluster").into());
            }
        };
        let active_only = ask.flags.has(StreamFlags::ACTIVE_ONLY);
        let serves = !active_only || self.bucket.vb_role(ask.vb)?.0 == VbRole::Active;
        if serves && required_role.holds(&self.bucket, ask.vb) {
            Ok(required_role)
        } else {
            Err(Status::NotMyVbucket.into())
        }
    }

    /// What can be said about a request without its filter.
    fn check(&self, ask: &mut StreamAsk, history: &VbHistory) -> Result<(), Violation> {
        if ask.flags.has(StreamFlags::TAKEOVER) {
            return Err(refused(Status::NotSupported, "vBuckets are not handed over"));
        }
        if ask.flags.has(StreamFlags::FROM_LATEST) {
            let high = history.high_seqno;
            (ask.at.start, ask.at.snap_start, ask.at.snap_end) = (high, high, high);
            if ask.at.vb_uuid == VbUuid(0) {
                ask.at.vb_uuid = history.uuid;
            }
        }
        let is_modern = self.negotiated.collections || self.negotiated.flags.has(OpenFlags::INCLUDE_XATTRS);
        if is_modern && !self.noop.is_enabled() {
            return Err(refused(Status::NotSupported, "Collections and xattrs need enable_noop"));
        }
        let Position { start, snap_start, snap_end, .. } = ask.at;
        if start > ask.end {
            return Err(refused(Status::Range, "The stream would end before it starts"));
        }
        if !(snap_start <= start && start <= snap_end) {
            return Err(refused(Status::Range, "The start lies outside the snapshot"));
        }
        Ok(())
    }

    /// Ids are needed where several streams are allowed, and only there.
    pub(super) fn check_stream_id(&self, stream_id: Option<u16>) -> Result<Option<u16>, Violation> {
        if stream_id.is_some() == self.controls.stream_ids {
            return Ok(stream_id);
        }
        Err(refused(Status::DcpStreamIdInvalid, "A stream id goes with enable_stream_id"))
    }

    fn check_rollback(&self, ask: &StreamAsk, history: &VbHistory) -> Result<(), Refused> {
        let purge_seqno = match ask.flags.has(StreamFlags::IGNORE_PURGED) {
            true => Seqno(0),
            false => history.purge_seqno,
        };
        let history = History { log: &history.log, high_seqno: history.high_seqno, purge_seqno };
        rollback(&ask.at, &history).map_or(Ok(()), |seqno| Err(Refused::Rollback(seqno)))
    }

    /// Where the stream ends, with flags that say so in other words.
    fn settle_end(&self, ask: &mut StreamAsk, history: &VbHistory, filter: &Filter) -> Result<(), Refused> {
        if ask.flags.has(StreamFlags::TO_LATEST) {
            ask.end = match filter.collections() {
                None => history.high_seqno,
                Some(_) if !self.bucket.is_warm() => return Err(Status::TemporaryFailure.into()),
                Some(collections) => {
                    let changes = collections.iter().map(|id| self.bucket.collection_seqno(ask.vb, *id));
                    changes.collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or_default()
                }
            };
        }
        if ask.flags.has(StreamFlags::DISK_ONLY) {
            ask.end = history.persisted;
        }
        if ask.at.start > ask.end || ask.at.start > history.high_seqno {
            return Err(refused(Status::Range, "The start lies behind the end of the history").into());
        }
        Ok(())
    }

    /// Makes the stream; returns it with the failover log that it goes by.
    fn open(
        &self,
        ask: &StreamAsk,
        stream_id: Option<u16>,
        filter: Filter,
        history: VbHistory,
        (slot, required_role): (u32, RequiredRole),
    ) -> Result<(Stream, FailoverLog), Refused> {
        let Position { start, snap_start, snap_end, .. } = ask.at;
        let head = StreamHead { vb: ask.vb, opaque: ask.opaque, stream_id };
        let stats = Arc::new(StreamStats::new(ask.vb, stream_id, ask.opaque.into(), ask));
        // A consumer that has nothing of a snapshot, or all of it, is not in the middle of it; and none ends in the future.
        let is_inside = snap_start < start && start < snap_end;
        let through = if is_inside { snap_end.min(history.high_seqno) } else { Seqno(0) };
        let unfinished = Unfinished { start: snap_start, end: through };
        let skip_deletions = start == Seqno(0)
            && self.negotiated.collections
            && self.negotiated.flags.has(OpenFlags::SKIP_DELETES_IN_BACKFILL);
        let script = Script::new(start, unfinished, skip_deletions);
        if start >= ask.end || filter.is_empty() {
            let reason = if start >= ask.end { StreamEndReason::Ok } else { StreamEndReason::FilterEmpty };
            return Ok((Stream::ended(reason, head, filter, script, required_role, stats), history.log));
        }
        // A node that has nothing may have had, and acknowledged, whatever was prepared so far. Its first snapshot brings
        // all of that again, or it would take itself for a copy too early.
        let is_new_copy = self.negotiated.replica.is_some() && start == Seqno(0);
        // The same of one that has something, and has lost what it had in memory.
        let needs_all_prepared =
            self.negotiated.replica.is_some() && (start == Seqno(0) || ask.filter.may_lack);
        let options = FeedOptions {
            from: start,
            through: if needs_all_prepared { history.prepared.max(through) } else { through },
            inside: is_inside,
            filter: filter.for_feed(),
            keys_only: ValueMode::new(&self.negotiated, &self.controls).needs_no_values(),
            disk_only: ask.flags.has(StreamFlags::DISK_ONLY),
            prepares: self.controls.sync_writes,
            followers: false,
            unordered: start == Seqno(0)
                && filter.is_selective()
                && self.controls.out_of_order != OutOfOrder::No,
            // The script does, which knows when it must not.
        };
        let waiter = Waiter { ticket: STREAM_TICKETS | u64::from(slot), ..self.waiter };
        let feed = self.bucket.feed(ask.vb, options, waiter)?;
        // From here on the history that is needed is kept. Whether the consumer may go on has to be asked again.
        if !required_role.holds(&self.bucket, ask.vb) {
            return Err(Status::NotMyVbucket.into());
        }
        let history = self.bucket.vb_history(ask.vb)?;
        self.check_rollback(ask, &history)?;
        let mut stream = Stream::new(head, filter, feed, script, (ask.end, required_role), stats);
        if is_new_copy && history.high_seqno == Seqno(0) {
            stream.tell_nothing_behind(Seqno(0));
        } else if needs_all_prepared && start > Seqno(0) && !is_inside && history.prepared <= start {
            // It has got all that was prepared, which no snapshot may ever tell it.
            stream.tell_nothing_behind(start);
        }
        Ok((stream, history.log))
    }
}
