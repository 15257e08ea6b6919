//! When writers have to tell a shard's flusher of work. No writer tells it twice, and it never sleeps over anything.
//!
//! A wake flag tells it, and costs a system call. So writers look first whether that is needed:
//!
//! - A client waits for persistence. The first one's writer tells it; after [`Alarm::begin_flush`] the next one's tells it again.
//! - It dozes, since nothing is dirty. The first mutation that finds it dozing tells it.
//! - It gathers durable writes. The last of those that it waits for tells it, and no other does: it flushes in any case then.
//!
//! Invariant: what was marked before is taken by a [`Alarm::take_dirty`], or the flusher is told, or [`Alarm::doze`] refuses. The test
//! `interleavings` tries the orders in which threads can come here.

use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// See the module header.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// A client waits for the flusher, which has been told.
    flush_wanted: AtomicBool,
    /// Durable writes since the flusher last began.
    durable: AtomicUsize,
    /// The flusher waits for so many of them and is not to be told of anything else; 0: it does not.
    gathering: AtomicUsize,
    /// The flusher sleeps until it is told of the first dirty mutation.
    dozing: AtomicBool,
    /// When the oldest dirty mutation came, in monotonic milliseconds plus one; 0: none.
    dirty_since: AtomicU64,
    /// Bit per vBucket of the shard whose checkpoint the flusher has not taken all of.
    dirty_vbs: Box<[AtomicU64]>,
}

impl Alarm {
    /// For a shard of so many vBuckets.
    pub(crate) fn new(vbuckets: usize) -> Self {
        Self {
            flush_wanted: AtomicBool::new(false),
            durable: AtomicUsize::new(0),
            gathering: AtomicUsize::new(0),
            dozing: AtomicBool::new(false),
            dirty_since: AtomicU64::new(0),
            dirty_vbs: (0..vbuckets.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Asks for a flush; true when the flusher has to be told (nobody has yet, and it is not about to begin).
    pub(crate) fn want_flush(&self) -> bool {
        !self.flush_wanted.load(Ordering::Relaxed)
            && !self.flush_wanted.swap(true, Ordering::SeqCst)
            && self.gathering.load(Ordering::SeqCst) == 0
    }

    /// Whether a flush has been asked for and not begun.
    pub(crate) fn is_flush_wanted(&self) -> bool {
        self.flush_wanted.load(Ordering::Relaxed)
    }

    /// The flusher begins: whether it was asked for.
    pub(crate) fn begin_flush(&self) -> bool {
        self.durable.store(0, Ordering::SeqCst);
        self.flush_wanted.swap(false, Ordering::AcqRel)
    }

    /// A durable write has been made; true when the flusher has waited for just that one.
    pub(crate) fn count_durable(&self) -> bool {
        let count = self.durable.fetch_add(1, Ordering::SeqCst) + 1;
        count == self.gathering.load(Ordering::SeqCst)
    }

    /// How many have been made since the flusher began.
    pub(crate) fn durable(&self) -> usize {
        self.durable.load(Ordering::SeqCst)
    }

    /// Whether the flusher waits for durable writes, and for how many since it began.
    pub(crate) fn gather(&self, expected: usize) {
        self.gathering.store(expected, Ordering::SeqCst);
    }

    /// A vBucket turned dirty; true when the flusher sleeps and has to be told.
    pub(crate) fn mark_dirty(&self, vb_in_shard: usize, now_millis: u64) -> bool {
        if let Some(word) = self.dirty_vbs.get(vb_in_shard / 64) {
            word.fetch_or(1 << (vb_in_shard % 64), Ordering::AcqRel);
        }
        if self.dirty_since.load(Ordering::Relaxed) != 0 {
            return false;
        }
        // Either the flusher sees this before it sleeps, or its sleep is seen here: both are in the one order that
        // `SeqCst` operations have.
        self.dirty_since.store(now_millis.saturating_add(1), Ordering::SeqCst);
        self.dozing.load(Ordering::SeqCst) && self.dozing.swap(false, Ordering::SeqCst)
    }

    /// The flusher is about to sleep until it is told of something dirty; false when there is something.
    pub(crate) fn doze(&self) -> bool {
        self.dozing.store(true, Ordering::SeqCst);
        let may_sleep = self.dirty_since.load(Ordering::SeqCst) == 0;
        if !may_sleep {
            self.dozing.store(false, Ordering::SeqCst);
        }
        may_sleep
    }

    /// The flusher is awake again.
    pub(crate) fn wake_up(&self) {
        self.dozing.store(false, Ordering::SeqCst);
    }

    /// How long the oldest dirty mutation has waited; `None` when there is none.
    pub(crate) fn dirty_for_millis(&self, now_millis: u64) -> Option<u64> {
        match self.dirty_since.load(Ordering::Relaxed) {
            0 => None,
            since => Some((now_millis + 1).saturating_sub(since)),
        }
    }

    /// The dirty vBuckets (positions in the shard) in rising order, which count as clean from now on.
    pub(crate) fn take_dirty(&self) -> Vec<usize> {
        self.dirty_since.store(0, Ordering::Relaxed);
        let mut dirty = Vec::new();
        for (index, word) in self.dirty_vbs.iter().enumerate() {
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                dirty.push(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
        dirty
    }
}
