//! A bell that one background thread listens to and any number of others ring.
//!
//! Ringing an already ringing bell costs one atomic exchange and no system call: the data path rings it for every
//! first mutation after a flush.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::Thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

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
        self.listener.get_or_init(std::thread::current);
        if self.ringing.swap(false, Ordering::AcqRel) {
            return true;
        }
        std::thread::park_timeout(timeout);
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
    pub(crate) steward: Arc<Bell>,
}

/// Rings that are kept: as many as there are listeners, at least. Who works without ever waiting hears none, and is not
/// to wake for each of them once there is nothing to do.
const RINGS_KEPT: usize = 16;

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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn every_ring_wakes_one_listener() {
        let bell = Arc::new(SharedBell::default());
        bell.ring();
        bell.ring();
        let listen = |bell: Arc<SharedBell>| move || bell.wait(Duration::from_secs(60));
        let listeners = [(); 3].map(|()| std::thread::spawn(listen(Arc::clone(&bell))));
        bell.ring();
        assert!(listeners.into_iter().all(|listener| listener.join().unwrap()));
        assert!(!bell.wait(Duration::ZERO), "none is left");
    }

    #[test]
    fn what_nobody_had_to_hear_is_not_heard_afterwards() {
        let bell = SharedBell::default();
        (0..1_000_000).for_each(|_| bell.ring());
        let heard = (0..1_000_000).take_while(|_| bell.wait(Duration::ZERO)).count();
        assert_eq!(heard, RINGS_KEPT);
    }

    #[test]
    fn a_ring_is_never_lost() {
        let bell = Arc::new(Bell::default());
        bell.ring();
        assert!(bell.wait(Duration::ZERO), "rung before anybody listened");
        assert!(!bell.wait(Duration::ZERO), "one ring wakes once");
        let other = Arc::clone(&bell);
        let ringer = std::thread::spawn(move || other.ring());
        while !bell.wait(Duration::from_secs(5)) {}
        ringer.join().unwrap();
    }
}
