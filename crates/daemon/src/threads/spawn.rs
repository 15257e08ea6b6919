//! Starting a thread that has a name.

use std::{io, thread::JoinHandle};

/// Starts it.
///
/// # Errors
/// When no thread can be had.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(run)
}
