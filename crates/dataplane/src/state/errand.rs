//! One asking of another node, or of a helper: what ties it to the request that waits for its answer.
//!
//! A request can ask more than once, under one ticket: a list of keys asks for one key after the other. An answer may come when its
//! request has given it up, and has asked for the next thing. So an answer names the asking that it belongs to, not only the request.
//!
//! What waits to be sent may outlive its request. A change that is made after its client was told that it failed could undo what the
//! client has done since. So an asking can be taken back for as long as it has not set out. Its request's end takes it back as well.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU8, Ordering},
};

use engine::Waiter;

/// It has yet to be sent.
const WAITS: u8 = 0;
/// It is sent, or about to be.
const HAS_SET_OUT: u8 = 1;
/// It is not going to be sent.
const TAKEN_BACK: u8 = 2;

/// One asking. The parked request holds it, and nothing else does: it is gone when the request has its answer or goes without.
#[derive(Clone, Debug)]
pub(crate) struct Errand(Arc<AtomicU8>);

/// An asking, as what is on its way refers to it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The request that has asked.
    pub(crate) waiter: Waiter,
    errand: Weak<AtomicU8>,
}

impl Errand {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU8::new(WAITS)))
    }

    /// For what is sent on its way by that request.
    pub(crate) fn asked_by(&self, waiter: Waiter) -> Asked {
        Asked { waiter, errand: Arc::downgrade(&self.0) }
    }

    /// Whether that is what it was asked for.
    pub(crate) fn is_of(&self, asked: &Asked) -> bool {
        // The reference keeps the address from being given to another one.
        std::ptr::eq(Arc::as_ptr(&self.0), asked.errand.as_ptr())
    }

    /// Takes it back; false where it may have been sent, so that nobody knows what becomes of it.
    pub(crate) fn take_back(&self) -> bool {
        // The two sides meet at this number alone: one of them is first.
        let taken = self.0.compare_exchange(WAITS, TAKEN_BACK, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok()
    }
}

impl Asked {
    /// Whether its request waits for it still. From then on it cannot be taken back.
    pub(crate) fn set_out(&self) -> bool {
        let Some(errand) = self.errand.upgrade() else { return false };
        let set_out = errand.compare_exchange(WAITS, HAS_SET_OUT, Ordering::AcqRel, Ordering::Acquire);
        // What was asked for together sets out in parts.
        matches!(set_out, Ok(_) | Err(HAS_SET_OUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITER: Waiter = Waiter { worker: 0, connection: 1, ticket: 2 };

    #[test]
    fn an_asking_sets_out_or_is_taken_back() {
        let (errand, other) = (Errand::new(), Errand::new());
        let asked = errand.asked_by(WAITER);
        assert!(errand.is_of(&asked) && !other.is_of(&asked));
        assert!(asked.set_out() && asked.set_out(), "in parts");
        assert!(!errand.take_back(), "it is with the other node, perhaps");
        let asked = other.asked_by(WAITER);
        assert!(other.take_back());
        assert!(!asked.set_out());
        let asked = errand.asked_by(WAITER);
        drop(errand);
        assert!(!asked.set_out(), "nobody waits for it");
    }
}
