//! A DCP producer: one consumer's connection.
//!
//! The consumer opens streams, one per vBucket (or several, told apart by ids), and each tells the vBucket's mutations from
//! where the consumer stopped, in snapshots. Streams that have something to say take turns, one batch each; the one whose
//! batch did not go out whole goes on first, so that a connection never holds more than one unfinished batch, whatever
//! the number of its streams.
//!
//! Invariants: a (vBucket, id) has at most one stream that is not over; a stream is either queued or will be woken by the
//! engine; nothing is sent on a stream after its end.

pub mod controls;
mod events;
pub mod filter;
pub mod flow_control;
pub mod noop;
mod outbox;
pub mod rollback;
mod script;
pub mod stats;
mod stream;
pub mod value;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::Ordering},
};

use base::{Now, Seqno, Status, VbId, VbUuid};
use engine::{
    Bucket, Waiter,
    feed::{FeedOptions, VbHistory},
};
use protocol::binary::{
    Opaque, Violation,
    dcp::{DcpMessage, OpenFlags, StreamEndReason, StreamFilter, StreamFlags, StreamHead, StreamRequest},
};

use controls::{Change, Controls, Negotiated, OutOfOrder};
use filter::{Filter, Part};
use flow_control::FlowControl;
use noop::{Due, Noop};
use outbox::{Outbox, Sent};
use rollback::{History, Position, rollback};
use script::{Manner, Script, Unfinished};
use stats::{ProducerStats, StreamStats};
use stream::{Progress, Stream};
use value::ValueMode;

pub use outbox::Sink;

/// Tickets of streams have this bit set.
pub const STREAM_TICKETS: u64 = 1 << 63;

/// Streams that are looked at in one turn: also those of which all is filtered out cost time.
const TURN_STREAMS: usize = 32;

/// Most streams of a connection: 32 for each of 1024 vBuckets.
const STREAMS_MAX: usize = 32 * 1024;

/// Branches with the seqno each began at, newest first.
pub type FailoverLog = Vec<(VbUuid, Seqno)>;

/// Whether a part of the bucket may be seen.
pub type Access<'a> = &'a dyn Fn(Part) -> Result<(), Status>;

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
    /// What it is about.
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

const fn refused(status: Status, context: &'static str) -> Violation {
    Violation { status, context }
}

/// What a turn left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pumped {
    /// Nothing can be sent before something happens.
    Idle,
    /// There is more to send as soon as there is room for it.
    More,
    /// The consumer is dead: close the connection.
    Dead,
}

/// See the module header.
pub struct Producer {
    bucket: Arc<Bucket>,
    /// Names the connection to the engine; the ticket names a stream.
    waiter: Waiter,
    negotiated: Negotiated,
    controls: Controls,
    flow: FlowControl,
    noop: Noop,
    slots: Vec<Option<Box<Stream>>>,
    free: Vec<u32>,
    /// The streams that are not over.
    live: BTreeMap<(VbId, Option<u16>), u32>,
    /// Slots of streams that may have something to say.
    ready: VecDeque<u32>,
    /// The slot whose batch is not out yet.
    unfinished: Option<u32>,
    scratch: Vec<u8>,
    stats: Arc<ProducerStats>,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer")
            .field("name", &self.stats.name)
            .field("streams", &self.live.len())
            .finish_non_exhaustive()
    }
}

impl Producer {
    /// A connection of that name on `bucket`. `waiter` is whom the engine wakes; its ticket does not matter.
    #[must_use]
    pub fn new(name: &str, negotiated: Negotiated, bucket: Arc<Bucket>, waiter: Waiter, now: Now) -> Self {
        let noop = Noop::new(now);
        let stats = ProducerStats {
            name: name.into(),
            created: now.unix_secs(),
            negotiated,
            controls: parking_lot::Mutex::default(),
            items_sent: 0.into(),
            bytes_sent: 0.into(),
            window: 0.into(),
            unacknowledged: 0.into(),
            acknowledged: 0.into(),
            paused: false.into(),
            pauses: 0.into(),
            noop_enabled: false.into(),
            noop_interval_millis: noop.interval_millis().into(),
            noop_waiting: false.into(),
            streams: parking_lot::Mutex::default(),
        };
        Self {
            bucket,
            waiter,
            negotiated,
            controls: Controls::default(),
            flow: FlowControl::default(),
            noop,
            slots: Vec::new(),
            free: Vec::new(),
            live: BTreeMap::new(),
            ready: VecDeque::new(),
            unfinished: None,
            scratch: Vec::new(),
            stats: Arc::new(stats),
        }
    }

    /// Its counters.
    #[must_use]
    pub const fn stats(&self) -> &Arc<ProducerStats> {
        &self.stats
    }

    /// Something was received, whatever it was.
    pub fn heard(&mut self, now: Now) {
        self.noop.heard(now);
    }

    /// CONTROL.
    ///
    /// # Errors
    /// As [`Controls::set`].
    pub fn control(&mut self, key: &[u8], value: &[u8]) -> Result<(), Violation> {
        match self.controls.set(key, value, &self.negotiated)? {
            Change::Noted => *self.stats.controls.lock() = self.controls,
            Change::Window(bytes) => self.flow.set_window(bytes),
            Change::Noop(enabled) => self.noop.enable(enabled),
            Change::NoopMillis(millis) => self.noop.set_interval(millis),
        }
        self.publish(Sent::default());
        Ok(())
    }

    /// `BUFFER_ACKNOWLEDGEMENT`.
    pub fn acknowledge(&mut self, bytes: u32) {
        self.flow.acknowledge(bytes);
    }

    /// The answer to a NOOP; false if it is none of ours.
    pub fn noop_answered(&mut self, opaque: Opaque) -> bool {
        self.noop.answered(opaque.into())
    }

    /// When [`Self::pump`] has something to do of its own accord (monotonic milliseconds).
    #[must_use]
    pub fn due_at(&self) -> Option<u64> {
        self.noop.due_at()
    }

    /// STREAM_REQ: opens a stream and returns the failover log.
    ///
    /// # Errors
    /// The refusal, or where to go back to.
    pub fn stream_request(&mut self, mut ask: StreamAsk, access: Access<'_>) -> Result<FailoverLog, Refused> {
        let bucket = self.bucket.clone();
        let history = bucket.vb_history(ask.vb)?;
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
        let opened = self.open(&ask, stream_id, filter, history, slot);
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

    /// CLOSE_STREAM.
    ///
    /// # Errors
    /// `KeyNotFound` or `DcpStreamIdInvalid` where there is no such stream.
    pub fn close_stream(&mut self, vb: VbId, stream_id: Option<u16>) -> Result<(), Violation> {
        let stream_id = self.check_stream_id(stream_id)?;
        let Some(slot) = self.live.remove(&(vb, stream_id)) else {
            let has_others = self.live.range((vb, None)..=(vb, Some(u16::MAX))).next().is_some();
            let status = if stream_id.is_some() && has_others {
                Status::DcpStreamIdInvalid
            } else {
                Status::KeyNotFound
            };
            return Err(refused(status, "There is no such stream"));
        };
        if self.controls.end_closed_streams {
            self.finish(slot, StreamEndReason::Closed);
        } else {
            self.remove(slot);
        }
        Ok(())
    }

    /// Rights may have changed: ends the streams that may no longer be seen.
    pub fn revoke(&mut self, access: Access<'_>) {
        let may_see = |slot: &u32| {
            let stream = self.slots.get(*slot as usize).and_then(Option::as_ref);
            stream.is_none_or(|stream| stream.filter.parts().all(|part| access(part).is_ok()))
        };
        let lost: Vec<_> = self
            .live
            .iter()
            .filter(|(_, slot)| !may_see(slot))
            .map(|(place, slot)| (*place, *slot))
            .collect();
        for (place, slot) in lost {
            self.live.remove(&place);
            self.finish(slot, StreamEndReason::LostPrivileges);
        }
    }

    /// The engine has woken the waiter with that ticket.
    pub fn wake(&mut self, ticket: u64) {
        // Spurious wake-ups are allowed, also those meant for the stream that had the slot before.
        self.enqueue(ticket as u32);
    }

    /// Sends what there is, as long as there is room.
    pub fn pump(&mut self, sink: &mut dyn Sink, now: Now) -> Pumped {
        match self.noop.due(now) {
            Due::Nothing => {}
            Due::Send(opaque) => {
                let head = StreamHead { opaque: opaque.into(), ..StreamHead::default() };
                DcpMessage::Noop.append(&head, sink.buffer());
            }
            Due::Silent => return Pumped::Dead,
        }
        let manner = Manner::new(self.negotiated.collections, &self.controls);
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut out = Outbox {
            sink,
            flow: &mut self.flow,
            negotiated: &self.negotiated,
            controls: &self.controls,
            mode: ValueMode::new(&self.negotiated, &self.controls),
            scratch: &mut scratch,
            sent: Sent::default(),
        };
        let mut ended = Vec::new();
        for _ in 0..TURN_STREAMS {
            if !out.has_room() {
                break;
            }
            let Some(slot) = self.unfinished.take().or_else(|| self.ready.pop_front()) else { break };
            let Some(Some(stream)) = self.slots.get_mut(slot as usize) else { continue };
            match stream.pump(&self.bucket, manner, &mut out, now) {
                Progress::More => self.ready.push_back(slot),
                Progress::Blocked => self.unfinished = Some(slot),
                Progress::Waiting => stream.is_queued = false,
                Progress::Ended => ended.push(slot),
            }
            if !stream.is_live() {
                let place = (stream.head.vb, stream.head.stream_id);
                if self.live.get(&place) == Some(&slot) {
                    self.live.remove(&place);
                }
            }
        }
        let sent = out.sent;
        self.scratch = scratch;
        for slot in ended {
            self.remove(slot);
        }
        self.publish(sent);
        let has_more = self.unfinished.is_some() || !self.ready.is_empty();
        if has_more && self.flow.has_room() { Pumped::More } else { Pumped::Idle }
    }

    /// Whether [`Self::pump`] would send something of a stream.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.flow.has_room() && (self.unfinished.is_some() || !self.ready.is_empty())
    }

    // ---- inside ---------------------------------------------------------------------------------------------------

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
    fn check_stream_id(&self, stream_id: Option<u16>) -> Result<Option<u16>, Violation> {
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
        slot: u32,
    ) -> Result<(Stream, FailoverLog), Refused> {
        let Position { start, snap_start, snap_end, .. } = ask.at;
        let head = StreamHead { vb: ask.vb, opaque: ask.opaque, stream_id };
        let stats = Arc::new(StreamStats::new(ask.vb, stream_id, ask.opaque.into(), ask));
        // Who has nothing of a snapshot, or all of it, is not in the middle of it; and none ends in the future.
        let is_inside = snap_start < start && start < snap_end;
        let through = if is_inside { snap_end.min(history.high_seqno) } else { Seqno(0) };
        let unfinished = Unfinished { start: snap_start, end: through };
        let skip_deletions = start == Seqno(0)
            && self.negotiated.collections
            && self.negotiated.flags.has(OpenFlags::SKIP_DELETES_IN_BACKFILL);
        let script = Script::new(start, unfinished, skip_deletions);
        if start >= ask.end || filter.is_empty() {
            let reason = if start >= ask.end { StreamEndReason::Ok } else { StreamEndReason::FilterEmpty };
            return Ok((Stream::ended(reason, head, filter, script, stats), history.log));
        }
        let options = FeedOptions {
            from: start,
            through,
            filter: filter.for_feed(),
            keys_only: ValueMode::new(&self.negotiated, &self.controls).needs_no_values(),
            disk_only: ask.flags.has(StreamFlags::DISK_ONLY),
            unordered: start == Seqno(0)
                && filter.is_selective()
                && self.controls.out_of_order != OutOfOrder::No,
            // The script does, which knows when it must not.
            skip_deletes_in_backfill: false,
        };
        let waiter = Waiter { ticket: STREAM_TICKETS | u64::from(slot), ..self.waiter };
        let feed = self.bucket.feed(ask.vb, options, waiter)?;
        // From here on the history that is needed is kept. Whether the consumer may go on has to be asked again.
        let history = self.bucket.vb_history(ask.vb)?;
        self.check_rollback(ask, &history)?;
        Ok((Stream::new(head, filter, feed, script, ask.end, stats), history.log))
    }

    /// Ends a stream with a message.
    fn finish(&mut self, slot: u32, reason: StreamEndReason) {
        let Some(Some(stream)) = self.slots.get_mut(slot as usize) else { return };
        stream.finish(reason);
        self.enqueue(slot);
    }

    /// Has a stream looked at, unless it will be anyway.
    fn enqueue(&mut self, slot: u32) {
        if let Some(Some(stream)) = self.slots.get_mut(slot as usize)
            && !std::mem::replace(&mut stream.is_queued, true)
        {
            self.ready.push_back(slot);
        }
    }

    /// Forgets a stream.
    fn remove(&mut self, slot: u32) {
        let Some(stream) = self.slots.get_mut(slot as usize).and_then(Option::take) else { return };
        self.stats.streams.lock().retain(|stats| !Arc::ptr_eq(stats, &stream.stats));
        self.ready.retain(|queued| *queued != slot);
        if self.unfinished == Some(slot) {
            self.unfinished = None;
        }
        self.free.push(slot);
    }

    fn publish(&self, sent: Sent) {
        let stats = &self.stats;
        let full = !self.flow.has_room();
        stats.items_sent.fetch_add(sent.items, Ordering::Relaxed);
        stats.bytes_sent.fetch_add(sent.bytes, Ordering::Relaxed);
        stats.window.store(self.flow.window(), Ordering::Relaxed);
        stats.unacknowledged.store(self.flow.unacknowledged(), Ordering::Relaxed);
        stats.acknowledged.store(self.flow.acknowledged(), Ordering::Relaxed);
        if full && !stats.paused.load(Ordering::Relaxed) {
            stats.pauses.fetch_add(1, Ordering::Relaxed);
        }
        stats.paused.store(full, Ordering::Relaxed);
        stats.noop_enabled.store(self.noop.is_enabled(), Ordering::Relaxed);
        stats.noop_interval_millis.store(self.noop.interval_millis(), Ordering::Relaxed);
        stats.noop_waiting.store(self.noop.is_waiting(), Ordering::Relaxed);
    }
}
