//! What can be asked about a producer from outside: counters that its connection writes and statistics read.
//!
//! Written once per turn of the connection, not per message. Readers may see the counters of a turn half updated.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};

use base::{Now, Seqno, VbId, VbUuid};
use parking_lot::Mutex;

use super::{
    StreamAsk,
    controls::{Controls, Negotiated},
    noop::Noop,
};

/// Shared between a producer and the display of statistics.
#[derive(Debug)]
pub struct ProducerStats {
    /// As given at OPEN.
    pub name: Box<str>,
    /// When it was opened (Unix seconds).
    pub created: u32,
    /// What OPEN and HELLO settled.
    pub negotiated: Negotiated,
    /// What CONTROL set.
    pub controls: Mutex<Controls>,
    /// Documents and events sent.
    pub items_sent: AtomicU64,
    /// Bytes of stream messages sent.
    pub bytes_sent: AtomicU64,
    /// What those would have been had no value been compressed.
    pub inflated_bytes_sent: AtomicU64,
    /// The window of flow control; 0 for none.
    pub window: AtomicU64,
    /// Bytes sent and not acknowledged.
    pub unacknowledged: AtomicU64,
    /// Bytes acknowledged.
    pub acknowledged: AtomicU64,
    /// Whether the window is full.
    pub paused: AtomicBool,
    /// How often it became full.
    pub pauses: AtomicU64,
    /// Whether NOOPs are sent.
    pub noop_enabled: AtomicBool,
    /// Milliseconds between two.
    pub noop_interval_millis: AtomicU64,
    /// Whether one has not been answered.
    pub noop_waiting: AtomicBool,
    /// The streams there are.
    pub streams: Mutex<Vec<Arc<StreamStats>>>,
}

impl ProducerStats {
    pub(super) fn new(name: &str, negotiated: Negotiated, noop: &Noop, now: Now) -> Self {
        Self {
            name: name.into(),
            created: now.unix_secs(),
            negotiated,
            controls: Mutex::default(),
            items_sent: 0.into(),
            bytes_sent: 0.into(),
            inflated_bytes_sent: 0.into(),
            window: 0.into(),
            unacknowledged: 0.into(),
            acknowledged: 0.into(),
            paused: false.into(),
            pauses: 0.into(),
            noop_enabled: noop.is_enabled().into(),
            noop_interval_millis: noop.interval_millis().into(),
            noop_waiting: noop.is_waiting().into(),
            streams: Mutex::default(),
        }
    }
}

/// Where a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StreamPhase {
    /// Nothing was sent yet.
    Pending = 0,
    /// Reading from disk.
    Backfilling = 1,
    /// Following memory.
    InMemory = 2,
    /// Over, but for its last message.
    Dead = 3,
}

impl StreamPhase {
    /// As statistics call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Backfilling => "backfilling",
            Self::InMemory => "in-memory",
            Self::Dead => "dead",
        }
    }
}

/// Shared between a stream and the display of statistics.
#[derive(Debug)]
pub struct StreamStats {
    /// The vBucket.
    pub vb: VbId,
    /// As in the request.
    pub stream_id: Option<u16>,
    /// As in the request.
    pub opaque: u32,
    /// As in the request.
    pub flags: u32,
    /// Where it began.
    pub start: Seqno,
    /// Where it ends.
    pub end: Seqno,
    /// The consumer's branch.
    pub vb_uuid: VbUuid,
    /// Begin of the consumer's snapshot.
    pub snap_start: Seqno,
    /// End of the consumer's snapshot.
    pub snap_end: Seqno,
    /// Items sent that came from memory.
    pub from_memory: AtomicU64,
    /// Items sent that came from disk.
    pub from_disk: AtomicU64,
    /// The last seqno sent.
    pub last_sent: AtomicU64,
    /// The last seqno that was looked at.
    pub last_read: AtomicU64,
    phase: AtomicU8,
}

impl StreamStats {
    pub(super) fn new(vb: VbId, stream_id: Option<u16>, opaque: u32, ask: &StreamAsk) -> Self {
        Self {
            vb,
            stream_id,
            opaque,
            flags: ask.flags.0,
            start: ask.at.start,
            end: ask.end,
            vb_uuid: ask.at.vb_uuid,
            snap_start: ask.at.snap_start,
            snap_end: ask.at.snap_end,
            from_memory: AtomicU64::new(0),
            from_disk: AtomicU64::new(0),
            last_sent: AtomicU64::new(0),
            last_read: AtomicU64::new(ask.at.start.get()),
            phase: AtomicU8::new(StreamPhase::Pending as u8),
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn phase(&self) -> StreamPhase {
        match self.phase.load(Ordering::Relaxed) {
            0 => StreamPhase::Pending,
            1 => StreamPhase::Backfilling,
            2 => StreamPhase::InMemory,
            _ => StreamPhase::Dead,
        }
    }

    pub(super) fn set_phase(&self, phase: StreamPhase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}
