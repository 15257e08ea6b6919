//! What a feed and the thread that reads for it share: one snapshot from disk (memory-only: from the table) in the making.
//!
//! The reader fills a bounded buffer, and the feed empties it. Each side tells the other when it can go on. The reader
//! wakes the feed's waiter when the buffer was empty and has something. The feed asks for the reader when the buffer is
//! half empty. Where memory is short the reader waits until the buffer is empty.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Now, Seqno, VbId};
use parking_lot::Mutex;

use crate::{
    api::notify::Waiter,
    history::{
        cursor::CursorGuard,
        item::FeedItem,
        told::{FeedBatch, FeedEnd, FeedOptions, FeedSnapshot},
    },
};

/// Bytes in a buffer up to which there is more to be read.
const REFILL_BYTES: usize = 384 << 10;
/// Bytes per read, more or less.
const READ_BYTES: usize = 256 << 10;
/// The same where memory is short.
const SHORT_READ_BYTES: usize = 64 << 10;

/// How far ahead of its consumer a backfill reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadAhead {
    /// There is more to be read with so many bytes in the buffer, but not with more.
    pub(crate) refill_bytes: usize,
    /// Bytes per read, more or less.
    pub(crate) read_bytes: usize,
}

impl ReadAhead {
    /// Memory that is short is left to the pager and the flusher: little is read at a time, and nothing before that is taken. That
    /// little always: a copy elsewhere may be what makes room in the end.
    pub(crate) const fn of(is_short: bool) -> Self {
        match is_short {
            true => Self { refill_bytes: 0, read_bytes: SHORT_READ_BYTES },
            false => Self { refill_bytes: REFILL_BYTES, read_bytes: READ_BYTES },
        }
    }
}

/// See the module header.
pub(crate) struct Backfill {
    pub(crate) vb: VbId,
    pub(crate) options: Arc<FeedOptions>,
    pub(crate) cursor: Arc<CursorGuard>,
    pub(crate) waiter: Waiter,
    /// The last seqno that the consumer has.
    pub(crate) from: Seqno,
    /// Tombstones up to here were missing when the feed began, which its consumer knows.
    pub(crate) purge_known: Seqno,
    is_abandoned: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// Known once reading has begun.
    snapshot: Option<FeedSnapshot>,
    /// The snapshot ends further on than what is read.
    goes_on: bool,
    is_announced: bool,
    buffer: VecDeque<FeedItem>,
    bytes: usize,
    /// The feed's owner waits.
    is_awaited: bool,
    /// When the owner last took something, or could have begun to; in monotonic milliseconds.
    idle_since: u64,
}

/// How far a backfill is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Queued or being read.
    Reading,
    /// Everything is in the buffer, or was.
    Read,
    /// The owner was too slow; what it has not got is to be read again.
    Suspended,
    /// It cannot be finished.
    Failed(FeedEnd),
}

/// What a feed finds.
#[derive(Debug)]
pub(crate) enum Taken {
    Batch(FeedBatch),
    /// Nothing; the waiter is woken when there is something.
    Nothing,
    /// It was given up. The snapshot was to end here.
    Suspended(Option<Seqno>),
}

/// What giving up came to.
#[derive(Debug)]
#[must_use]
pub(crate) struct GivenUp {
    /// Whom to wake.
    pub(crate) waiter: Option<Waiter>,
    /// The owner had left something.
    pub(crate) had_rest: bool,
}

/// What the reading thread sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) stage: Stage,
    pub(crate) bytes: usize,
    /// For how long the owner has left something in the buffer.
    pub(crate) idle_millis: u64,
}

impl Backfill {
    pub(crate) fn new(
        vb: VbId,
        options: &Arc<FeedOptions>,
        cursor: &Arc<CursorGuard>,
        waiter: Waiter,
        from: Seqno,
        purge_known: Seqno,
    ) -> Self {
        Self {
            vb,
            options: Arc::clone(options),
            cursor: Arc::clone(cursor),
            waiter,
            from,
            purge_known,
            is_abandoned: AtomicBool::new(false),
            state: Mutex::new(State {
                stage: Stage::Reading,
                snapshot: None,
                goes_on: false,
                is_announced: false,
                buffer: VecDeque::new(),
                bytes: 0,
                is_awaited: false,
                idle_since: 0,
            }),
        }
    }

    // ---- the feed's side ------------------------------------------------------------------------------------------

    /// The next items, about `bytes_max` bytes but at least one; and whether the reader is to be called.
    ///
    /// # Errors
    /// Why it cannot be finished.
    pub(crate) fn take(&self, bytes_max: usize, now: Now) -> Result<(Taken, bool), FeedEnd> {
        let mut state = self.state.lock();
        let state = &mut *state;
        match state.stage {
            Stage::Failed(end) => return Err(end),
            Stage::Read if state.buffer.is_empty() && state.goes_on && state.is_announced => {
                return Ok((Taken::Suspended(state.snapshot.map(|snapshot| snapshot.end)), true));
            }
            Stage::Suspended if state.buffer.is_empty() => {
                return Ok((Taken::Suspended(state.snapshot.map(|snapshot| snapshot.end)), false));
            }
            Stage::Reading if state.buffer.is_empty() => {
                state.is_awaited = true;
                return Ok((Taken::Nothing, false));
            }
            _ => {}
        }
        let bytes_before = state.bytes;
        let (mut items, mut bytes) = (Vec::new(), 0);
        while let Some(item) = state.buffer.front() {
            if !items.is_empty() && bytes + item.bytes() > bytes_max {
                break;
            }
            bytes += item.bytes();
            items.extend(state.buffer.pop_front());
        }
        state.bytes -= bytes;
        state.idle_since = now.mono_millis;
        let ends_snapshot = state.stage == Stage::Read && state.buffer.is_empty() && !state.goes_on;
        let snapshot = state.snapshot.filter(|_| !std::mem::replace(&mut state.is_announced, true));
        let call = state.buffer.is_empty() || (bytes_before > REFILL_BYTES && state.bytes <= REFILL_BYTES);
        Ok((Taken::Batch(FeedBatch { snapshot, items, ends_snapshot }), call))
    }

    /// The last seqno of the snapshot, once it is known.
    pub(crate) fn end(&self) -> Option<Seqno> {
        self.state.lock().snapshot.map(|snapshot| snapshot.end)
    }

    /// The feed is gone.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        let buffer = std::mem::take(&mut state.buffer);
        state.bytes = 0;
        drop(state);
        drop(buffer);
    }

    // ---- the reader's side ----------------------------------------------------------------------------------------

    /// Whether it can be taken up in the middle.
    pub(crate) fn is_ordered(&self) -> bool {
        !self.options.unordered
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    pub(crate) fn progress(&self, now: Now) -> Progress {
        let state = self.state.lock();
        let idle_millis = match state.buffer.is_empty() {
            true => 0,
            false => now.mono_millis.saturating_sub(state.idle_since),
        };
        Progress { stage: state.stage, bytes: state.bytes, idle_millis }
    }

    /// Reading begins. Where the snapshot `goes_on` behind what is read, the feed is to tell the rest.
    pub(crate) fn begin(&self, snapshot: FeedSnapshot, goes_on: bool) {
        let mut state = self.state.lock();
        (state.snapshot, state.goes_on) = (Some(snapshot), goes_on);
    }

    /// Adds what was read. Returns whom to wake.
    #[must_use]
    pub(crate) fn offer(&self, items: Vec<FeedItem>, is_last: bool, now: Now) -> Option<Waiter> {
        let mut state = self.state.lock();
        if state.buffer.is_empty() {
            state.idle_since = now.mono_millis;
        }
        state.bytes += items.iter().map(FeedItem::bytes).sum::<usize>();
        state.buffer.extend(items);
        if is_last {
            state.stage = Stage::Read;
        }
        let has_news = is_last || !state.buffer.is_empty();
        let is_woken = has_news && std::mem::take(&mut state.is_awaited);
        is_woken.then_some(self.waiter)
    }

    /// Gives up: `Suspended` or failed. What is in the buffer goes.
    pub(crate) fn give_up(&self, stage: Stage) -> GivenUp {
        let mut state = self.state.lock();
        state.stage = stage;
        state.bytes = 0;
        let buffer = std::mem::take(&mut state.buffer);
        let is_woken = std::mem::take(&mut state.is_awaited);
        drop(state);
        GivenUp { waiter: is_woken.then_some(self.waiter), had_rest: !buffer.is_empty() }
    }
}
