//! A bell that one background thread listens to and any number of others ring.
//!
//! Ringing an already ringing bell costs one atomic exchange and no system call: the data path rings it for every
//! first mutation after a flush. The test `interleavings` tries the orders in which threads can come here.

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
pub(crate) struct Bell {
    ringing: AtomicBool,
    listener: OnceLock<Thread>,
}

impl Bell {
    /// Wakes the listener, or lets its next [`Bell::wait`] return at once.
    pub(crate) fn ring(&self) {
        // Release pairs with the acquire in `wait`: what was written before ringing is seen after waking.
        if !self.ringing.swap(true, Ordering::AcqRel)
            && let Some(listener) = self.listener.get()
        {
            listener.unpark();
        }
    }

    /// Waits until rung or until `timeout` has passed; returns whether it was rung. One thread only.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        self.listener.get_or_init(thread::current);
        if self.ringing.swap(false, Ordering::AcqRel) {
            return true;
        }
        thread::park_timeout(timeout);
        self.ringing.swap(false, Ordering::AcqRel)
    }
}

/// Bells that every bucket of the node rings.
#[derive(Clone, Default)]
pub(crate) struct NodeBells {
    /// Memory is above a high watermark.
    pub(crate) housekeeping: Arc<Bell>,
    /// Mutations are to be paced.
    pub(crate) pacing: Arc<Bell>,
    /// Metadata were applied, or a copy of a vBucket has changed.
    pub(crate) reconciler: Arc<Bell>,
    /// Copies have changed that services may want to hear of.
    pub(crate) services: Arc<Bell>,
}

/// Rings that are kept: as many as the listeners, at least. A thread that works without ever waiting hears none, and is not
/// to wake for each of them once there is nothing to do.
pub(super) const RINGS_KEPT: usize = 16;

/// A bell that several threads listen to, at most [`RINGS_KEPT`]: one ring wakes one of them.
#[derive(Default)]
pub(crate) struct SharedBell {
    rings: Mutex<usize>,
    rung: Condvar,
}

impl SharedBell {
    /// Wakes one listener, or lets the next [`SharedBell::wait`] return at once.
    pub(crate) fn ring(&self) {
        let mut rings = self.rings.lock();
        *rings = (*rings + 1).min(RINGS_KEPT);
        drop(rings);
        self.rung.notify_one();
    }

    /// Waits until rung or until `timeout` has passed; returns whether it was rung.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let mut rings = self.rings.lock();
        if *rings == 0 {
            self.rung.wait_for(&mut rings, timeout);
        }
        let was_rung = *rings > 0;
        *rings = rings.saturating_sub(1);
        was_rung
    }
}
