//! Packets of history for which the replica has no room yet.
//!
//! A connection carries many streams. What is read from disk for a copy in the making is let in only while there is
//! memory to spare. The other streams must not wait for that. So the packets of such a stream wait here, in order,
//! until the replica takes them. They count as on their way meanwhile, so that the producer sends less history.
//!
//! Invariant: what waits here takes no more than [`BUFFERED_BYTES_MAX`] and one packet. A stream that would need more is given up, and asked for again.

use std::collections::{BTreeMap, VecDeque};

use base::{Now, VbId};
use protocol::binary::Frame;

use super::WINDOW_BYTES;

/// Twice the share of the window that a producer fills with history, so that a copy that waits for its disk is not begun anew.
const BUFFERED_BYTES_MAX: usize = WINDOW_BYTES as usize / 4;
/// Memory that a packet takes beside its bytes, about.
const PACKET_OVERHEAD: usize = 64;
/// Between two tries.
const AGAIN_MILLIS: u64 = 10;

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct PacketBuffer {
    /// None of them empty.
    streams: BTreeMap<VbId, VecDeque<Box<[u8]>>>,
    bytes: usize,
    again_at: u64,
    /// Bytes of packets that went with their streams, and that nobody has been told of.
    dropped: usize,
}

impl PacketBuffer {
    /// Whether packets of that stream wait.
    pub(super) fn holds(&self, vb: VbId) -> bool {
        self.streams.contains_key(&vb)
    }

    /// Has a packet wait behind those of its stream; false where there is no room for it here either.
    pub(super) fn put(&mut self, vb: VbId, frame: &Frame<'_>, now: Now) -> bool {
        if self.bytes >= BUFFERED_BYTES_MAX {
            return false;
        }
        if self.streams.is_empty() {
            self.again_at = now.mono_millis + AGAIN_MILLIS;
        }
        let header = frame.header.encode();
        let packet = [&header[..], frame.framing.bytes(), frame.extras, frame.key, frame.value].concat();
        self.bytes += packet.len() + PACKET_OVERHEAD;
        self.streams.entry(vb).or_default().push_back(packet.into());
        true
    }

    /// The first packet of a stream.
    pub(super) fn take_first(&mut self, vb: VbId) -> Option<Box<[u8]>> {
        let packets = self.streams.get_mut(&vb)?;
        let packet = packets.pop_front()?;
        if packets.is_empty() {
            self.streams.remove(&vb);
        }
        self.bytes -= packet.len() + PACKET_OVERHEAD;
        Some(packet)
    }

    /// There still is no room for what was the first packet of its stream.
    pub(super) fn put_back(&mut self, vb: VbId, packet: Box<[u8]>) {
        self.bytes += packet.len() + PACKET_OVERHEAD;
        self.streams.entry(vb).or_default().push_front(packet);
    }

    /// The streams that are to be tried again now.
    pub(super) fn due(&mut self, now: Now) -> Vec<VbId> {
        if now.mono_millis < self.due_at() {
            return Vec::new();
        }
        self.again_at = now.mono_millis + AGAIN_MILLIS;
        self.streams.keys().copied().collect()
    }

    /// When that is (monotonic milliseconds).
    pub(super) fn due_at(&self) -> u64 {
        if self.streams.is_empty() { u64::MAX } else { self.again_at }
    }

    /// There may be room.
    pub(super) fn hurry(&mut self) {
        self.again_at = 0;
    }

    /// A stream is over.
    pub(super) fn forget(&mut self, vb: VbId) {
        for packet in self.streams.remove(&vb).unwrap_or_default() {
            self.bytes -= packet.len() + PACKET_OVERHEAD;
            self.dropped += packet.len();
        }
    }

    /// Bytes of what went with its stream since this was last asked: it is dealt with.
    pub(super) fn take_dropped(&mut self) -> usize {
        std::mem::take(&mut self.dropped)
    }
}
