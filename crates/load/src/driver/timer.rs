//! Wakes a poll at a nanosecond. Polls of their own count in milliseconds, which is longer than most answers take.

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A kernel timer in a poll. It fires once per [`Timer::arm`].
pub(super) struct Timer {
    file: OwnedFd,
    armed: Option<u64>,
}

impl Timer {
    /// Makes one and registers it.
    pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Timer> {
        // The kernel may delay wake-ups of an ordinary thread by 50 us to save power; a load generator's may not be.
        // SAFETY: takes numbers only and affects this thread only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        // SAFETY: takes numbers only; the result is checked.
        let file =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        SourceFd(&file.as_raw_fd()).register(registry, token, Interest::READABLE)?;
        Ok(Timer { file, armed: None })
    }

    /// Fires at `at` if it is `now`; both in nanoseconds of the caller's clock. A time that has come fires at once.
    pub(super) fn arm(&mut self, at: u64, now: u64) {
        if self.armed == Some(at) {
            return;
        }
        self.armed = Some(at);
        let after = Duration::from_nanos(at.saturating_sub(now).max(1));
        let spec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: after.as_secs().min(1 << 30) as libc::time_t,
                tv_nsec: after.subsec_nanos() as libc::c_long,
            },
        };
        // SAFETY: a valid descriptor and a valid, initialised structure; the old value is not asked for.
        let set =
            unsafe { libc::timerfd_settime(self.file.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut()) };
        debug_assert_eq!(set, 0, "{}", io::Error::last_os_error());
    }

    /// It has fired: makes it ready for the next time.
    pub(super) fn fired(&mut self) {
        self.armed = None;
        let mut count = [0u8; 8];
        // SAFETY: the buffer is valid for its eight bytes. An error means that nothing had fired, which is fine.
        unsafe { libc::read(self.file.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}
