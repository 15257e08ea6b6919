//! A flag that any number of threads set and that wakes the one background thread that waits for it.
//!
//! Setting a flag that is set already costs one atomic exchange and no system call. That matters because the data
//! path sets it for every first mutation after a flush. The test `interleavings` tries the orders in which threads
//! can come here.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use crate::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, Ordering},
    thread::{self, Thread},
};

#[derive(Default)]
pub(crate) struct WakeFlag {
    is_set: AtomicBool,
    listener: OnceLock<Thread>,
}

impl WakeFlag {
    /// Wakes the listener, or lets its next [`WakeFlag::wait`] return at once.
    pub(crate) fn wake(&self) {
        // Release pairs with the acquire in `wait`: what was written before the flag was set is seen after waking.
        if !self.is_set.swap(true, Ordering::AcqRel)
            && let Some(listener) = self.listener.get()
        {
            listener.unpark();
        }
    }

    /// Waits until woken or until `timeout` has passed; returns whether it was woken. One thread only.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        self.listener.get_or_init(thread::current);
        if self.is_set.swap(false, Ordering::AcqRel) {
            return true;
        }
        thread::park_timeout(timeout);
        self.is_set.swap(false, Ordering::AcqRel)
    }
}

/// Wake flags that every bucket of the node sets.
#[derive(Clone, Default)]
pub(crate) struct NodeWakeFlags {
    /// Memory is above a high watermark.
    pub(crate) housekeeping: Arc<WakeFlag>,
    /// Mutations are to be paced.
    pub(crate) pacing: Arc<WakeFlag>,
    /// Metadata were applied, or a copy of a vBucket has changed.
    pub(crate) reconciler: Arc<WakeFlag>,
    /// Copies have changed that services may want to hear of.
    pub(crate) services: Arc<WakeFlag>,
}

/// Wake-ups that are kept: as many as the listeners, at least. A thread that works without ever waiting takes none, and is not
/// to wake for each of them once there is nothing to do.
pub(crate) const WAKES_KEPT: usize = 16;

/// A wake flag for which several threads wait, at most [`WAKES_KEPT`]: one wake-up wakes one of them.
#[derive(Default)]
pub(crate) struct SharedWakeFlag {
    wakes: Mutex<usize>,
    woken: Condvar,
}

impl SharedWakeFlag {
    /// Wakes one listener, or lets the next [`SharedWakeFlag::wait`] return at once.
    pub(crate) fn wake(&self) {
        let mut wakes = self.wakes.lock();
        *wakes = (*wakes + 1).min(WAKES_KEPT);
        drop(wakes);
        self.woken.notify_one();
    }

    /// Waits until woken or until `timeout` has passed; returns whether it was woken.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let mut wakes = self.wakes.lock();
        if *wakes == 0 {
            self.woken.wait_for(&mut wakes, timeout);
        }
        let was_woken = *wakes > 0;
        *wakes = wakes.saturating_sub(1);
        was_woken
    }
}
