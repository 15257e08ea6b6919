//! The two signals of a parent of nodes: the one that tells it to stop, and the one by which it tells them.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

/// Whether SIGINT or SIGTERM has come.
pub(super) struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Catches the signals from now on; their default, ending this process without its children, is off.
    pub(super) fn watch() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (mut terminate, mut interrupt) = {
            let _inside = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        let state = Arc::new((Mutex::new(false), Condvar::new()));
        let shared = Arc::clone(&state);
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            });
            *shared.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            shared.1.notify_all();
        })?;
        Ok(Self(state))
    }

    /// Whether one has come.
    pub(super) fn is_wanted(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for one, so long at most.
    pub(super) fn wait(&self, longest: Duration) {
        let wanted = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A waiting thread looks at the flag next, poisoned or not.
        let _ = self.0.1.wait_timeout_while(wanted, longest, |wanted| !*wanted);
    }
}

/// SIGTERM to a child that has not been waited for: its id is still its own.
pub(super) fn terminate(pid: u32) {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return };
    // SAFETY: kill takes numbers and touches no memory of ours.
    unsafe { libc::kill(pid, libc::SIGTERM) };
}
