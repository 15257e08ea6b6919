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
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

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
