//! A DCP consumer: one bucket of this node follows the vBuckets that another node has.
//!
//! It is told which vBuckets to follow, and at which term of each. It opens a stream for each from where the replica
//! is, and goes back first if the producer says so. What it hears goes straight into the replica, and the consumer
//! holds no message. So its memory is bounded by what it is given; the window bounds what is under way. When the
//! replica has no room, the message is handed back. The consumer's driver reads nothing until it is taken. The producer
//! notices that by its window and slows down. History for which there is no room holds up its own stream only
//! (`packet_buffer`). A stream that ends or goes wrong is asked for again after a while, for as long as it is wished
//! for. The consumer leaves a producer that says what no producer says.
//!
//! Invariants:
//! - A vBucket has at most one stream that is asked for or open.
//! - Nothing of a stream reaches the replica before the stream is granted, or after it is given up.
//! - The producer opened each open stream at the wished term.

mod asks;
mod fault;
mod inbound;
mod packet_buffer;
pub mod replica;
mod silence;
pub mod stats;
#[cfg(test)]
mod tests;
mod window;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{Arc, atomic::Ordering},
};

use base::{Now, Seqno, Status, VbId, limits::FRAME_BODY_BYTES_MAX};
use engine::Waiter;
use protocol::binary::{
    Decoded, Frame, Opcode, dcp::DcpMessage, decode_frame_within, observe::decode_failover_log,
};

pub use asks::{BUCKET_CONTROL, append_opening};
pub use fault::{Broken, Fault};
pub use inbound::Taken;
pub use window::WINDOW_BYTES;

use inbound::{Inbound, Phase};
use packet_buffer::PacketBuffer;
use replica::Replica;
use silence::Silence;
use stats::ConsumerStats;
use window::Window;

/// Tickets of vBuckets have this bit set.
pub const VB_TICKETS: u64 = 1 << 62;

/// Streams that are asked for at once: each answer is a failover log, and each grant may be a backfill for the producer.
const ASKED_MAX: usize = 64;

/// The first pause after a stream that went wrong; the next ones double it.
const PAUSE_MILLIS_MIN: u64 = 50;
const PAUSE_DOUBLINGS_MAX: u32 = 4;

/// Capacity for inflated values that survives one.
const UNPACKED_BYTES_KEPT: usize = 64 * 1024;

/// A vBucket to be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamWish {
    /// Which.
    pub vb: VbId,
    /// At which term: a stream of another one is of no use.
    pub term: u64,
}

/// See the module header.
#[derive(Debug)]
pub struct Consumer<R: Replica> {
    replica: R,
    /// Names the connection to the engine; the ticket names a vBucket.
    waiter: Waiter,
    /// By vBucket.
    streams: BTreeMap<VbId, Box<Inbound<R::Inflow>>>,
    /// Streams that will be asked for, by when.
    due: BTreeSet<(u64, VbId)>,
    /// Streams asked for and not answered, by opaque.
    asked: BTreeMap<u32, VbId>,
    /// Streams given up whose end the producer has not confirmed, by opaque: what still comes of them is of no interest.
    closing: BTreeMap<u32, VbId>,
    /// Their high prepared seqno may have risen.
    woken: Vec<VbId>,
    /// Streams were opened or given up for these since last asked.
    changed: Vec<VbId>,
    window: Window,
    buffered: PacketBuffer,
    /// The last value that was packed for the way.
    unpacked: Vec<u8>,
    silence: Silence,
    next_opaque: u32,
    stats: Arc<ConsumerStats>,
}

impl<R: Replica> Consumer<R> {
    /// A connection that is open (see [`append_opening`]) and has no streams. `waiter` is whom the replica wakes; its ticket
    /// does not matter.
    #[must_use]
    pub fn new(replica: R, waiter: Waiter, now: Now, stats: Arc<ConsumerStats>) -> Self {
        Self {
            replica,
            waiter,
            streams: BTreeMap::new(),
            due: BTreeSet::new(),
            asked: BTreeMap::new(),
            closing: BTreeMap::new(),
            woken: Vec::new(),
            changed: Vec::new(),
            window: Window::default(),
            buffered: PacketBuffer::default(),
            unpacked: Vec::new(),
            silence: Silence::broken(now),
            next_opaque: 0,
            stats,
        }
    }

    /// These vBuckets are to be followed, and no others. Streams are asked for by [`Consumer::tend`].
    pub fn want(&mut self, wishes: &[StreamWish], now: Now, out: &mut Vec<u8>) {
        let wanted: BTreeMap<VbId, u64> = wishes.iter().map(|wish| (wish.vb, wish.term)).collect();
        let stale = self.streams.iter().filter(|(vb, stream)| wanted.get(vb) != Some(&stream.term));
        for vb in stale.map(|(vb, _)| *vb).collect::<Vec<_>>() {
            self.leave(vb, out);
            self.streams.remove(&vb);
        }
        for (vb, term) in wanted {
            if let Entry::Vacant(place) = self.streams.entry(vb) {
                place.insert(Box::new(Inbound::new(term, now.mono_millis)));
                self.due.insert((now.mono_millis, vb));
            }
        }
    }

    /// Takes one packet. With [`Taken::NoRoom`] the same packet is to be given again, before any other.
    ///
    /// # Errors
    /// When the connection cannot go on.
    pub fn receive(&mut self, frame: &Frame<'_>, now: Now, out: &mut Vec<u8>) -> Result<Taken, Broken> {
        self.hear_part(now);
        if frame.header.magic.is_client_response() {
            self.answered(frame, now, out)?;
            return Ok(Taken::Done);
        }
        let unreadable = Broken::Unreadable { opcode: frame.header.opcode };
        let (head, message) = DcpMessage::decode(frame).ok_or(unreadable)?;
        if message == DcpMessage::Noop {
            asks::noop_answer(head.opaque, out);
            return Ok(Taken::Done);
        }
        let (vb, opaque) = (head.vb, u32::from(frame.header.opaque));
        let is_end = matches!(message, DcpMessage::StreamEnd(_));
        if self.buffered.holds(vb) && self.is_open(vb, opaque) && !is_end {
            self.hold(vb, frame, now, out);
            return Ok(Taken::Done);
        }
        let taken = self.take((frame, vb, &message), now, out)?;
        if taken == Taken::NoRoom && self.streams.get(&vb).is_some_and(|stream| stream.hears_history()) {
            self.hold(vb, frame, now, out);
            return Ok(Taken::Done);
        }
        Ok(taken)
    }

    /// Something was read that is no whole packet yet: a long one on a slow network is no silence.
    pub fn hear_part(&mut self, now: Now) {
        self.silence = Silence::broken(now);
    }

    /// The replica has woken the waiter with that ticket.
    pub fn wake(&mut self, ticket: u64) {
        let vb = VbId((ticket & 0xffff) as u16);
        if self.buffered.holds(vb) {
            self.buffered.hurry();
        }
        if self.streams.contains_key(&vb) && !self.woken.contains(&vb) {
            self.woken.push(vb);
        }
    }

    /// Asks for the streams that are due and acknowledges what has become durable here. Time in which nothing was read counts
    /// as the producer's silence unless `reading` says that it is ours.
    ///
    /// # Errors
    /// When the producer is gone.
    pub fn tend(&mut self, now: Now, reading: bool, out: &mut Vec<u8>) -> Result<(), Broken> {
        if !reading {
            self.silence = Silence::broken(now);
        } else if self.silence.is_confirmed(now) {
            return Err(Broken::Silent);
        }
        while self.asked.len() < ASKED_MAX
            && let Some(&(at, vb)) = self.due.first()
            && at <= now.mono_millis
        {
            self.due.pop_first();
            self.ask(vb, now, out);
        }
        for vb in std::mem::take(&mut self.woken) {
            self.acknowledge(vb, out);
        }
        let tried = self.try_held(now, out);
        self.note_dropped(out);
        tried
    }

    /// When [`Consumer::tend`] has something to do of its own accord (monotonic milliseconds).
    #[must_use]
    pub fn due_at(&self) -> u64 {
        let ask = self.due.first().filter(|_| self.asked.len() < ASKED_MAX).map(|(at, _)| *at);
        ask.unwrap_or(u64::MAX).min(self.silence.due_at()).min(self.buffered.due_at())
    }

    /// Whether [`Consumer::tend`] has something to do now.
    #[must_use]
    pub fn has_more(&self, now: Now) -> bool {
        !self.woken.is_empty() || self.due_at() <= now.mono_millis
    }

    /// The term at which a vBucket is being followed, if it is.
    #[must_use]
    pub fn following(&self, vb: VbId) -> Option<u64> {
        self.streams.get(&vb).filter(|stream| stream.phase == Phase::Open).map(|stream| stream.term)
    }

    /// The last seqno that the replica has of a stream that is open.
    #[must_use]
    pub fn last(&self, vb: VbId) -> Option<Seqno> {
        self.streams.get(&vb).filter(|stream| stream.phase == Phase::Open).map(|stream| stream.last())
    }

    /// The vBuckets for which [`Consumer::following`] may have changed since the last call.
    pub fn take_changed(&mut self) -> Vec<VbId> {
        std::mem::take(&mut self.changed)
    }

    // ---- inside ---------------------------------------------------------------------------------------------------

    const fn waiter_of(&self, vb: VbId) -> Waiter {
        Waiter { ticket: VB_TICKETS | vb.get() as u64, ..self.waiter }
    }

    fn is_open(&self, vb: VbId, opaque: u32) -> bool {
        self.streams.get(&vb).is_some_and(|stream| stream.opaque == opaque && stream.phase == Phase::Open)
    }

    /// Takes a message of a stream, and counts it when it has been dealt with.
    fn take(
        &mut self,
        (frame, vb, message): (&Frame<'_>, VbId, &DcpMessage<'_>),
        now: Now,
        out: &mut Vec<u8>,
    ) -> Result<Taken, Broken> {
        let taken = self.hear(frame, vb, message, now, out)?;
        if taken == Taken::Done {
            self.took(frame.packet_len(), out);
        } else {
            self.stats.pauses.fetch_add(1, Ordering::Relaxed);
        }
        Ok(taken)
    }

    fn took(&mut self, bytes: usize, out: &mut Vec<u8>) {
        self.window.took(bytes, out);
        self.stats.took(bytes);
    }

    /// Has a message wait for room, or gives its stream up where too much waits already.
    fn hold(&mut self, vb: VbId, frame: &Frame<'_>, now: Now, out: &mut Vec<u8>) {
        if !self.buffered.put(vb, frame, now) {
            self.give_up(vb, &Fault::NotTaken(Status::NoMemory), now, out);
            self.took(frame.packet_len(), out);
            self.note_dropped(out);
        }
    }

    /// Brings what waits for room, where there may be some.
    fn try_held(&mut self, now: Now, out: &mut Vec<u8>) -> Result<(), Broken> {
        for vb in self.buffered.due(now) {
            while let Some(packet) = self.buffered.take_first(vb) {
                let Decoded::Frame(frame) = decode_frame_within(&packet, FRAME_BODY_BYTES_MAX) else {
                    continue;
                };
                let unreadable = Broken::Unreadable { opcode: frame.header.opcode };
                let (_, message) = DcpMessage::decode(&frame).ok_or(unreadable)?;
                if self.take((&frame, vb, &message), now, out)? == Taken::NoRoom {
                    self.buffered.put_back(vb, packet);
                    break;
                }
            }
        }
        Ok(())
    }

    /// What went with a stream is dealt with.
    fn note_dropped(&mut self, out: &mut Vec<u8>) {
        let dropped = self.buffered.take_dropped();
        if dropped > 0 {
            self.took(dropped, out);
        }
    }

    fn ask(&mut self, vb: VbId, now: Now, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(&vb) else { return };
        match self.replica.begin(vb, stream.term, now) {
            Ok(mut start) => {
                if start.start <= start.snap_start {
                    // It has nothing of the snapshot that was announced: that is being at the end of the one before.
                    (start.snap_start, start.snap_end) = (start.start, start.start);
                }
                self.next_opaque = self.next_opaque.wrapping_add(1);
                stream.ask(self.next_opaque, &start);
                self.asked.insert(self.next_opaque, vb);
                asks::stream_request(vb, self.next_opaque, stream.term, &start, out);
            }
            Err(status) => self.rest(vb, &Fault::NotTaken(status), now),
        }
    }

    fn hear(
        &mut self,
        frame: &Frame<'_>,
        vb: VbId,
        message: &DcpMessage<'_>,
        now: Now,
        out: &mut Vec<u8>,
    ) -> Result<Taken, Broken> {
        let opaque = u32::from(frame.header.opaque);
        let waiter = self.waiter_of(vb);
        let stream = self.streams.get_mut(&vb);
        let Some(stream) = stream.filter(|stream| stream.opaque == opaque && stream.phase == Phase::Open)
        else {
            return if self.closing.get(&opaque) == Some(&vb) { Ok(Taken::Done) } else { Err(stray(frame)) };
        };
        let heard = match message {
            DcpMessage::StreamEnd(reason) => {
                self.stop(vb, &Fault::Ended(*reason), now);
                return Ok(Taken::Done);
            }
            message => stream.hear(&self.replica, message, &mut self.unpacked, waiter, now),
        };
        if self.unpacked.capacity() > UNPACKED_BYTES_KEPT {
            self.unpacked = Vec::new();
        }
        match heard {
            Ok(taken) => {
                if taken == Taken::Done && stream.may_acknowledge() {
                    self.acknowledge(vb, out);
                }
                Ok(taken)
            }
            Err(fault) => {
                self.give_up(vb, &fault, now, out);
                Ok(Taken::Done)
            }
        }
    }

    /// An answer to one of our requests.
    fn answered(&mut self, frame: &Frame<'_>, now: Now, out: &mut Vec<u8>) -> Result<(), Broken> {
        let (opaque, status) = (u32::from(frame.header.opaque), frame.header.status());
        match Opcode::from_wire(frame.header.opcode) {
            Some(Opcode::DcpStreamReq) => self.stream_answered(opaque, status, frame, now, out),
            Some(Opcode::DcpCloseStream) => match self.closing.remove(&opaque) {
                // It may have ended by itself meanwhile.
                Some(_) => Ok(()),
                None => Err(stray(frame)),
            },
            // Answered only when they are refused: of a stream that has ended meanwhile.
            Some(Opcode::DcpSeqnoAcknowledged) => Ok(()),
            _ => Err(Broken::Refused { opcode: frame.header.opcode, status }),
        }
    }

    fn stream_answered(
        &mut self,
        opaque: u32,
        status: Option<Status>,
        frame: &Frame<'_>,
        now: Now,
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        if self.closing.contains_key(&opaque) {
            // Given up before it was granted; the answer to that is still to come.
            return Ok(());
        }
        let asked = self.asked.remove(&opaque);
        let Some((vb, stream)) = asked.and_then(|vb| Some((vb, self.streams.get_mut(&vb)?))) else {
            return Err(stray(frame));
        };
        match status {
            Some(Status::Success) => match stream.grant(&self.replica, decode_failover_log(frame.value), now)
            {
                Ok(()) => {
                    self.changed.push(vb);
                    self.acknowledge(vb, out);
                }
                Err(fault) => {
                    // The producer has opened it.
                    stream.phase = Phase::Open;
                    self.give_up(vb, &fault, now, out);
                }
            },
            Some(Status::Rollback) => {
                let to = frame.value.try_into().map(u64::from_be_bytes).map(Seqno);
                let gone_back = match to {
                    Ok(to) => stream.go_back(&self.replica, to, now).map(|()| to),
                    Err(_) => Err(Fault::BadLog),
                };
                match gone_back {
                    Ok(to) => {
                        tracing::info!(
                            vb = vb.get(),
                            from = stream.last().get(),
                            to = to.get(),
                            "a replica goes back"
                        );
                        self.stats.rollbacks.fetch_add(1, Ordering::Relaxed);
                        stream.phase = Phase::Due(now.mono_millis);
                        self.due.insert((now.mono_millis, vb));
                    }
                    Err(fault) => self.rest(vb, &fault, now),
                }
            }
            refusal => self.rest(vb, &Fault::NotGranted(refusal), now),
        }
        Ok(())
    }

    /// Tells the producer what durable writes are here, and asks to be woken when there are more.
    fn acknowledge(&mut self, vb: VbId, out: &mut Vec<u8>) {
        let waiter = self.waiter_of(vb);
        let Some(stream) = self.streams.get_mut(&vb).filter(|stream| stream.phase == Phase::Open) else {
            return;
        };
        let Ok(inflow) = stream.inflow() else { return };
        let before = stream.acknowledged();
        // Until the replica says that it will wake us: there may be more here that has yet to become durable.
        while stream.acknowledge(self.replica.await_high_prepared(inflow, stream.acknowledged(), waiter)) {}
        if stream.acknowledged() > before {
            asks::seqno_acknowledged(vb, stream.opaque, stream.acknowledged(), out);
        }
    }

    /// Gives a stream up for now, and tells the producer.
    fn give_up(&mut self, vb: VbId, fault: &Fault, now: Now, out: &mut Vec<u8>) {
        self.leave(vb, out);
        self.rest(vb, fault, now);
    }

    /// A stream has ended.
    fn stop(&mut self, vb: VbId, fault: &Fault, now: Now) {
        self.changed.push(vb);
        self.rest(vb, fault, now);
    }

    /// Tells the producer that a stream, if there is one, is not wanted any more.
    fn leave(&mut self, vb: VbId, out: &mut Vec<u8>) {
        self.buffered.forget(vb);
        let Some(stream) = self.streams.get_mut(&vb) else { return };
        match stream.phase {
            Phase::Due(at) => {
                self.due.remove(&(at, vb));
                return;
            }
            Phase::Asked => _ = self.asked.remove(&stream.opaque),
            Phase::Open => self.changed.push(vb),
        }
        asks::close_stream(vb, stream.opaque, out);
        self.closing.insert(stream.opaque, vb);
    }

    /// Has a vBucket's stream asked for again after a while.
    fn rest(&mut self, vb: VbId, fault: &Fault, now: Now) {
        self.buffered.forget(vb);
        let Some(stream) = self.streams.get_mut(&vb) else { return };
        let (vb_number, term) = (vb.get(), stream.term);
        if fault.is_ordinary() {
            tracing::debug!(vb = vb_number, term, %fault, "a replication stream has ended");
        } else if *fault == Fault::Damaged {
            tracing::warn!(vb = vb_number, term, %fault, "a replica is built anew");
            self.stats.rollbacks.fetch_add(1, Ordering::Relaxed);
        } else {
            tracing::warn!(vb = vb_number, term, %fault, "a replication stream is given up: its producer is wrong");
            self.stats.faults.fetch_add(1, Ordering::Relaxed);
        }
        let at = now.mono_millis + (PAUSE_MILLIS_MIN << stream.failures.min(PAUSE_DOUBLINGS_MAX));
        stream.failures = stream.failures.saturating_add(1);
        stream.phase = Phase::Due(at);
        self.due.insert((at, vb));
    }
}

fn stray(frame: &Frame<'_>) -> Broken {
    let header = &frame.header;
    Broken::Stray { opcode: header.opcode, vb: header.vbucket_or_status, opaque: header.opaque.into() }
}
