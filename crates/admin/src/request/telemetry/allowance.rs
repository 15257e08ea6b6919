//! How much a client may send: reading ends with an error where it sends more. So nothing of it is kept.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that may still come.
pub(super) struct Allowance(AtomicUsize);

impl Allowance {
    pub(super) const fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    /// So many may come from now on.
    pub(super) fn allow(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// Whether so many more were allowed.
    fn use_up(&self, bytes: usize) -> bool {
        let left = self.0.load(Ordering::Relaxed).checked_sub(bytes);
        self.0.store(left.unwrap_or_default(), Ordering::Relaxed);
        left.is_some()
    }
}

/// A connection that is read within an [`Allowance`].
pub(super) struct Metered<S> {
    stream: S,
    allowance: Arc<Allowance>,
}

impl<S> Metered<S> {
    pub(super) fn new(stream: S, allowance: Arc<Allowance>) -> Self {
        Self { stream, allowance }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let more = buffer.filled().len() - before;
        Poll::Ready(if self.allowance.use_up(more) {
            Ok(())
        } else {
            Err(io::Error::other("the client sends more than it was asked for"))
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
