//! What the kernel says of this process's own connections: their buffers, whether it holds small packets back, and what
//! it had to send again.

use std::os::fd::RawFd;

/// All connections of a run together; a part is `None` if the kernel does not tell it of every one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// How many there are.
    pub count: usize,
    /// Those on which small packets wait for the answer to the one before (Nagle's algorithm).
    pub delayed: Option<usize>,
    /// The smallest buffer for what is sent, in bytes.
    pub send_buffer: Option<usize>,
    /// The smallest buffer for what arrives, in bytes.
    pub receive_buffer: Option<usize>,
    /// Segments sent again since the connections were made.
    pub sent_again: Option<u64>,
    /// The longest of the kernel's smoothed round trips, in microseconds.
    pub round_trip_us: Option<u32>,
}

impl Sockets {
    /// Asks about each.
    #[must_use]
    pub fn of(files: impl Iterator<Item = RawFd>) -> Sockets {
        let first = Sockets {
            delayed: Some(0),
            send_buffer: Some(usize::MAX),
            receive_buffer: Some(usize::MAX),
            sent_again: Some(0),
            round_trip_us: Some(0),
            count: 0,
        };
        let all = files.fold(first, |all, file| all.and(file));
        if all.count == 0 { Sockets::default() } else { all }
    }

    fn and(self, file: RawFd) -> Sockets {
        let number = |level, name| option::<libc::c_int>(file, level, name);
        let bytes = |name| number(libc::SOL_SOCKET, name).and_then(|bytes| usize::try_from(bytes).ok());
        let no_delay = number(libc::IPPROTO_TCP, libc::TCP_NODELAY);
        let info = option::<libc::tcp_info>(file, libc::IPPROTO_TCP, libc::TCP_INFO);
        let both = |all: Option<usize>, one: Option<usize>| all.zip(one).map(|(all, one)| all.min(one));
        Sockets {
            count: self.count + 1,
            delayed: self.delayed.zip(no_delay).map(|(all, no_delay)| all + usize::from(no_delay == 0)),
            send_buffer: both(self.send_buffer, bytes(libc::SO_SNDBUF)),
            receive_buffer: both(self.receive_buffer, bytes(libc::SO_RCVBUF)),
            sent_again: self.sent_again.zip(info).map(|(all, info)| all + u64::from(info.tcpi_total_retrans)),
            round_trip_us: self.round_trip_us.zip(info).map(|(all, info)| all.max(info.tcpi_rtt)),
        }
    }
}

/// A socket's option. `T` is one of the kernel's structures of numbers, for which any bytes are a valid value.
fn option<T: Copy>(file: RawFd, level: libc::c_int, name: libc::c_int) -> Option<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointers are valid for the lengths that are given; the kernel writes no more than that.
    let told = unsafe { libc::getsockopt(file, level, name, value.as_mut_ptr().cast(), &raw mut length) };
    // SAFETY: zeroed, and written by the kernel up to `length`; numbers have no invalid bytes.
    (told == 0).then(|| unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn own_connections_are_told_and_other_files_are_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let pair = [(); 2].map(|()| TcpStream::connect(address).expect("a connection"));
        pair[0].set_nodelay(true).expect("an option");
        let sockets = Sockets::of(pair.iter().map(AsRawFd::as_raw_fd));
        assert_eq!((sockets.count, sockets.delayed, sockets.sent_again), (2, Some(1), Some(0)));
        assert!(sockets.send_buffer.is_some_and(|bytes| (1_000..1 << 30).contains(&bytes)), "{sockets:?}");
        assert!(sockets.receive_buffer.is_some_and(|bytes| (1_000..1 << 30).contains(&bytes)), "{sockets:?}");
        let file = std::fs::File::open("/proc/self/status").expect("a file");
        let other = Sockets::of(std::iter::once(file.as_raw_fd()));
        assert_eq!(other, Sockets { count: 1, ..Sockets::default() }, "nothing is guessed");
        assert_eq!(Sockets::of(std::iter::empty()), Sockets::default());
    }
}
