//! A DCP producer: one consumer's connection.
//!
//! The consumer opens streams, one per vBucket (or several, told apart by ids). Each tells the vBucket's mutations
//! from where the consumer stopped, in snapshots. Streams that have something to say take turns, one batch each. The
//! stream whose batch did not go out whole goes on first. So a connection never holds more than one unfinished batch,
//! however many streams it has.
//!
//! Invariants:
//! - A (vBucket, id) has at most one stream that is not over.
//! - A stream is queued, held back until something is acknowledged, or will be woken by the engine.
//! - Nothing is sent on a stream after its end.

pub mod controls;
mod events;
pub mod filter;
pub mod flow_control;
pub mod noop;
mod opening;
mod outbox;
mod packing;
mod required_role;
pub mod rollback;
mod script;
pub mod stats;
mod stream;
pub mod value;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::Ordering},
};

use base::{Now, Seqno, Status, VbId, bucket::CompressionMode};
use engine::{Bucket, Waiter};
use protocol::binary::{
    Opaque, Violation,
    dcp::{DcpMessage, StreamEndReason, StreamHead},
};

use controls::{Change, Controls, Negotiated};
use flow_control::FlowControl;
use noop::{Due, Noop};
use opening::refused;
use outbox::{Outbox, Sent};
use packing::Packer;
use script::ConsumerOptions;
use stats::ProducerStats;
use stream::{Progress, Stream};
use value::ValueMode;

pub use opening::{Access, FailoverLog, Refused, StreamAsk};
pub use outbox::Sink;

/// Tickets of streams have this bit set.
pub const STREAM_TICKETS: u64 = 1 << 63;

/// Streams that are looked at in one turn: also those of which all is filtered out cost time.
const TURN_STREAMS: usize = 32;

/// Capacity for values made over that survives a turn.
const SCRATCH_BYTES_KEPT: usize = 64 * 1024;

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
    /// Slots of streams with history for another node to tell, of which enough is under way.
    held: VecDeque<u32>,
    /// The slot whose batch is not out yet.
    unfinished: Option<u32>,
    scratch: Vec<u8>,
    /// Once values had to be compressed for the way to another node.
    packer: Option<Box<Packer>>,
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
        let stats = ProducerStats::new(name, negotiated, &noop, now);
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
            held: VecDeque::new(),
            unfinished: None,
            scratch: Vec::new(),
            packer: None,
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
            Change::Window(bytes) => {
                self.flow.set_window(bytes);
                self.let_history_go_on();
            }
            Change::Noop(enabled) => self.noop.enable(enabled),
            Change::NoopMillis(millis) => self.noop.set_interval(millis),
        }
        self.publish(Sent::default());
        Ok(())
    }

    /// `BUFFER_ACKNOWLEDGEMENT`: what was held back may go on.
    pub fn acknowledge(&mut self, bytes: u32) {
        self.flow.acknowledge(bytes);
        self.let_history_go_on();
    }

    /// `SEQNO_ACKNOWLEDGED`: the node that follows has every durable write up to a seqno, as durably as each asks for.
    ///
    /// # Errors
    /// - "Not supported" where it is not a node that follows.
    /// - `KeyNotFound` where there is no such stream (any more).
    /// - "Invalid arguments" for what it cannot have.
    pub fn acknowledge_durable(&self, vb: VbId, seqno: Seqno, now: Now) -> Result<(), Violation> {
        let words = "Acknowledgements are for the nodes of a cluster";
        let node = self.negotiated.replica.ok_or(refused(Status::NotSupported, words))?;
        let slot = self.live.get(&(vb, None));
        let stream = slot.and_then(|slot| self.slots.get(*slot as usize)).and_then(Option::as_ref);
        let no_stream = refused(Status::KeyNotFound, "There is no such stream");
        let (stream, term) = stream.and_then(|stream| Some((stream, stream.term()?))).ok_or(no_stream)?;
        if seqno > stream.told() {
            return Err(Violation::invalid("What was never sent cannot be acknowledged"));
        }
        // Its term is over: it ends as soon as it is looked at.
        self.bucket.acknowledge(vb, term, node, seqno, now).map_err(|_| no_stream)
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

    /// Sends what is ready, as long as it has room; false when the consumer is dead and the connection to be closed.
    #[must_use]
    pub fn pump(&mut self, sink: &mut dyn Sink, now: Now) -> bool {
        match self.noop.due(now) {
            Due::Nothing => {}
            Due::Send(opaque) => {
                let head = StreamHead { opaque: opaque.into(), ..StreamHead::default() };
                DcpMessage::Noop.append(&head, sink.buffer());
            }
            Due::Silent => return false,
        }
        let options = ConsumerOptions::new(&self.negotiated, &self.controls);
        // Looked at in every turn: the bucket's mode may change.
        let packs = self.controls.unpacks && self.bucket.compression() == CompressionMode::Active;
        let mut packer = packs.then(|| self.packer.take().unwrap_or_else(|| Box::new(Packer::new())));
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut out = Outbox {
            sink,
            flow: &mut self.flow,
            negotiated: &self.negotiated,
            controls: &self.controls,
            mode: ValueMode::new(&self.negotiated, &self.controls),
            packer: packer.as_deref_mut(),
            scratch: &mut scratch,
            packed: 0,
            sent: Sent::default(),
        };
        let mut ended = Vec::new();
        for _ in 0..TURN_STREAMS {
            if !out.has_room() {
                break;
            }
            let unfinished = self.unfinished.take();
            let Some(slot) = unfinished.or_else(|| self.ready.pop_front()) else { break };
            let Some(Some(stream)) = self.slots.get_mut(slot as usize) else { continue };
            let may_be_held = options.is_node && unfinished.is_none();
            if may_be_held && stream.tells_history() && !out.flow.has_room_for_history() {
                self.held.push_back(slot);
                continue;
            }
            let before = out.sent.bytes;
            let progress = stream.pump(&self.bucket, options, &mut out, now);
            if stream.tells_history() {
                out.flow.note_history(out.sent.bytes - before);
            }
            match progress {
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
        self.packer = packer;
        if scratch.capacity() <= SCRATCH_BYTES_KEPT {
            self.scratch = scratch;
        }
        for slot in ended {
            self.remove(slot);
        }
        self.publish(sent);
        true
    }

    /// Whether [`Self::pump`] would have something to look at, if there is room for output.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.flow.has_room() && (self.unfinished.is_some() || !self.ready.is_empty())
    }

    // ---- inside ---------------------------------------------------------------------------------------------------

    /// The window may have room again.
    fn let_history_go_on(&mut self) {
        if self.flow.has_room_for_history() {
            self.ready.append(&mut self.held);
        }
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
        self.held.retain(|queued| *queued != slot);
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
        stats.inflated_bytes_sent.fetch_add(sent.inflated_bytes, Ordering::Relaxed);
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
