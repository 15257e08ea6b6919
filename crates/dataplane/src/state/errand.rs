//! One asking of another node: what ties an answer to the request that waits for it.
//!
//! A request can ask more than once, under one ticket: a list of keys asks for one key after the other. An answer may come when its
//! request has given it up, and has asked for the next thing. So an answer names the asking that it belongs to, not only the request.

use std::sync::{Arc, Weak};

use engine::Waiter;

/// One asking. The parked request holds it, and nothing else does: it is gone when the request has its answer or goes without.
#[derive(Clone, Debug)]
pub(crate) struct Errand(Arc<()>);

/// An asking, as what is on its way refers to it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The request that has asked.
    pub(crate) waiter: Waiter,
    errand: Weak<()>,
}

impl Errand {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
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
}
