//! Reads from a socket with the time at which the kernel received the bytes.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Room for one control message with three timestamps.
const CONTROL_BYTES: usize = 128;

/// Asks the kernel to note when it receives what. Refusal only means that no times will come.
pub(super) fn ask(socket: &impl AsRawFd) {
    let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    // SAFETY: the descriptor is open and the value is valid for its length.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const flags).cast(),
            size_of_val(&flags) as libc::socklen_t,
        );
    }
}

/// Reads, and says how long ago the kernel received the last of it.
pub(super) fn read(socket: RawFd, buffer: &mut [u8]) -> io::Result<(usize, Option<Duration>)> {
    // The alignment of a control message's header.
    let mut control = [0u64; CONTROL_BYTES / 8];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero bytes are a valid message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: the header names one valid part and a valid control buffer, both of which outlive the call.
    let read = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_DONTWAIT) };
    if read < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((read as usize, received(&message)))
}

fn received(message: &libc::msghdr) -> Option<Duration> {
    // SAFETY: the kernel has filled in the header and its control buffer; the macros stay within `msg_controllen`.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: not null, so it points to a whole header inside the control buffer.
        let header = unsafe { &*next };
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_TIMESTAMPING {
            // SAFETY: this kind of message carries three timespecs, of which the first is the software time.
            let time = unsafe { libc::CMSG_DATA(next).cast::<libc::timespec>().read_unaligned() };
            let at = UNIX_EPOCH
                + Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
            return SystemTime::now().duration_since(at).ok().filter(|_| time.tv_sec > 0);
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    None
}
