//! Ends a connection whose other end takes nothing of what is on its way to it. The other end is a client that is answered, or a
//! node that is asked.
//!
//! A client that reads slowly keeps its connection: what counts is that it acknowledges a byte from time to time. The kernel has a
//! similar bound (`TCP_USER_TIMEOUT`), which does not fit. It ends a connection whose window was full for that long on the whole,
//! however much the client has read meanwhile.
//!
//! A member of the cluster may read nothing for long: it merges answers of several nodes, of which one comes after the others. Its
//! connection lasts for as long as its machine answers.

use std::{
    io::{self, IoSlice},
    os::fd::{AsRawFd, RawFd},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, sleep},
};

/// How often a connection is looked at within the time for which it may stand still.
const LOOKS: u32 = 4;

/// How long the machine of a member may say nothing. Asked whether there is room again, it is asked every two minutes at last.
const SILENCE_MAX: Duration = Duration::from_secs(180);

/// A connection that can be looked at while something else reads and writes it.
pub struct Watched {
    stream: TcpStream,
    link: Link,
}

/// Looks at a connection. It is of use in the task that has the connection alone: another one could find the descriptor's next owner.
#[derive(Clone)]
pub struct Link {
    descriptor: RawFd,
    is_open: Arc<AtomicBool>,
}

/// How far a client has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    /// Bytes that the client has acknowledged.
    acknowledged: u64,
    /// Whether there are more on the way.
    is_behind: bool,
    /// Whether the other machine says nothing at all.
    is_silent: bool,
}

impl Watched {
    /// Takes the stream over.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        let link = Link { descriptor: stream.as_raw_fd(), is_open: Arc::new(AtomicBool::new(true)) };
        Self { stream, link }
    }

    /// What looks at it.
    #[must_use]
    pub fn link(&self) -> Link {
        self.link.clone()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.link.is_open.store(false, Ordering::Relaxed);
    }
}

impl Link {
    /// Resolves when the client has taken nothing for that long although something was on its way to it. `is_member`: whether the client
    /// is a member of the cluster.
    pub async fn stalled(self, patience: Duration, is_member: impl Fn() -> bool) {
        let (mut seen, mut since) = (None, Instant::now());
        loop {
            sleep(patience / LOOKS).await;
            let taken = self.taken();
            let behind = taken.filter(|taken| taken.is_behind);
            let acknowledged = behind.map(|taken| taken.acknowledged);
            if behind.is_none() || acknowledged != seen {
                (seen, since) = (acknowledged, Instant::now());
            } else if since.elapsed() >= patience
                && (behind.is_some_and(|taken| taken.is_silent) || !is_member())
            {
                return;
            }
        }
    }

    /// Nothing where the connection is closed, or the kernel does not say.
    fn taken(&self) -> Option<Taken> {
        if !self.is_open.load(Ordering::Relaxed) {
            return None;
        }
        let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
        let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
        // SAFETY: the pointers are valid for the length that is given, and the kernel writes no more than that.
        let told = unsafe {
            libc::getsockopt(self.descriptor, level, name, info.as_mut_ptr().cast(), &raw mut length)
        };
        if told != 0 {
            return None;
        }
        // SAFETY: zeroed, and written by the kernel up to `length`; numbers have no invalid bytes.
        let info = unsafe { info.assume_init() };
        let is_behind = info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0;
        let silence = Duration::from_millis(info.tcpi_last_ack_recv.into());
        Some(Taken { acknowledged: info.tcpi_bytes_acked, is_behind, is_silent: silence > SILENCE_MAX })
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpSocket},
        select,
        time::{interval, timeout},
    };

    use super::*;
    use crate::serve::{Limits, configure};

    const STALLED: Duration = Duration::from_secs(1);
    /// How often the slow client reads.
    const PACE: Duration = Duration::from_millis(50);

    /// Sends without end to a client that reads when `reads` says so. How the connection ends, or nothing if it lasts for that long.
    async fn outcome(reads: bool, is_member: bool, for_that_long: Duration) -> Option<&'static str> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        // A small window is full all the time, and opens as often as the client reads.
        socket.set_recv_buffer_size(16 << 10).unwrap();
        let mut client = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        configure(&stream, Limits { stalled: STALLED, ..Limits::default() });
        let mut watched = Watched::new(stream);
        let link = watched.link();
        let read = AtomicU64::new(0);
        let sending = async {
            let bytes = vec![7; 64 << 10];
            while watched.write_all(&bytes).await.is_ok() {}
        };
        let reading = async {
            if !reads {
                return std::future::pending::<()>().await;
            }
            let (mut ticks, mut buffer) = (interval(PACE), vec![0; 2 << 10]);
            while let Ok(bytes @ 1..) = client.read(&mut buffer).await {
                read.fetch_add(bytes as u64, Ordering::Relaxed);
                ticks.tick().await;
            }
        };
        let ended = timeout(for_that_long, async {
            select! {
                () = sending => "the kernel has ended it",
                () = link.stalled(STALLED, || is_member) => "it stands still",
                () = reading => "the client has seen an end",
            }
        });
        let ended = ended.await.ok();
        assert_eq!(read.load(Ordering::Relaxed) > 0, reads);
        ended
    }

    #[tokio::test]
    async fn a_slow_client_keeps_its_connection_and_one_that_does_not_read_loses_it_unless_it_is_a_member() {
        let (slow, still, member) = tokio::join!(
            outcome(true, false, 4 * STALLED),
            outcome(false, false, 30 * STALLED),
            outcome(false, true, 4 * STALLED),
        );
        assert_eq!(slow, None);
        assert_eq!(still, Some("it stands still"));
        assert_eq!(member, None, "its machine answers");
    }

    #[tokio::test]
    async fn a_client_to_which_nothing_is_on_its_way_may_be_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let watched = Watched::new(listener.accept().await.unwrap().0);
        let brief = Duration::from_millis(20);
        assert!(timeout(20 * brief, watched.link().stalled(brief, || false)).await.is_err());
        let link = watched.link();
        drop(watched);
        assert_eq!(link.taken(), None);
    }
}
