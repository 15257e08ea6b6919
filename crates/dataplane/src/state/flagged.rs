//! A value that any number of threads change and one takes, and a flag that saves most of them a system call. The first
//! change since the value was last taken wakes the taker. The other changes rely on that.
//!
//! Order matters. A change is made before the flag is raised, and the flag is lowered before the value is taken. So the taker sees
//! the change, or the thread that made it finds the flag lowered. The test `interleavings` tries the orders.

use std::io;

use crate::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Flagged<T> {
    value: Mutex<T>,
    /// Raised by the first change after the value was last taken.
    signalled: AtomicBool,
}

impl<T> Flagged<T> {
    /// Changes the value and sees to it that somebody takes it: `wake` is called where nobody is about to.
    ///
    /// # Errors
    /// That of `wake`; the next change calls it again.
    pub(crate) fn post(
        &self,
        put: impl FnOnce(&mut T),
        wake: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        put(&mut self.value.lock());
        // AcqRel pairs with the swap in `collect`: either the taker sees this change or we see the flag lowered.
        if self.signalled.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        wake().inspect_err(|_| self.signalled.store(false, Ordering::Release))
    }

    /// Exchanges the value, if it was changed, with `into`. One thread only.
    pub(crate) fn collect(&self, into: &mut T) {
        if !self.signalled.load(Ordering::Relaxed) || !self.signalled.swap(false, Ordering::AcqRel) {
            return;
        }
        std::mem::swap(&mut *self.value.lock(), into);
    }
}
