//! A connection's byte stream: a plain socket, or one under TLS.
//!
//! Both read with one system call per turn. They report whether that call drained the socket (a short read), so that
//! the loop never asks an empty socket again. Under TLS the ciphertext goes through the worker's scratch buffer and
//! every decrypted byte is handed out at once. Nothing readable is ever left inside the TLS state, where an
//! edge-triggered loop would not see it. Ciphertext that the socket does not take stays with the TLS state and counts
//! as pending output.

use std::io::{self, IoSlice, Read, Write};

use mio::{Interest, Registry, Token, event::Source, net::TcpStream};
use rustls::Connection;

/// Plaintext that one read of ciphertext can add beyond its own length: one record kept from earlier reads.
const TLS_RECORD_BYTES_MAX: usize = 18 * 1024;

/// What a read did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// This many bytes arrived; `drained` when the socket has no more for now.
    Bytes { count: usize, drained: bool },
    /// Nothing there.
    Empty,
    /// The peer closed its side.
    Closed,
}

/// A socket with or without TLS.
#[derive(Debug)]
pub(crate) enum Transport {
    /// A plain socket.
    Plain(TcpStream),
    /// A socket under TLS, its handshake done.
    Tls(Box<TlsStream>),
}

/// A socket with its TLS state.
#[derive(Debug)]
pub(crate) struct TlsStream {
    pub(crate) socket: TcpStream,
    pub(crate) tls: Connection,
    /// Ciphertext that waits for the socket, about: the plaintext it was made of, less what has been written.
    unsent_bytes: usize,
    /// The peer has said under TLS that it sends no more. TLS takes nothing that comes behind that.
    has_ended: bool,
}

impl TlsStream {
    /// Of either side, at any point of its handshake.
    pub(crate) fn new(socket: TcpStream, mut tls: Connection) -> Self {
        // What waits is bounded by the writer ([`Transport::unsent_bytes`]).
        tls.set_buffer_limit(None);
        Self { socket, tls, unsent_bytes: 0, has_ended: false }
    }
}

impl Transport {
    /// Whether the bytes are encrypted on the wire.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The socket, for addresses and options.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.socket,
        }
    }

    fn socket_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &mut stream.socket,
        }
    }

    /// Registers for both directions at once: the kernel reports writability only after a refused write, so
    /// asking for it costs nothing until then.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.socket_mut().register(registry, token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Undoes [`Self::register`].
    pub(crate) fn deregister(&mut self, registry: &Registry) {
        // A socket that the kernel has already forgotten needs no removal.
        let _ = self.socket_mut().deregister(registry);
    }

    /// Reads once into `buffer`, using `scratch` for ciphertext.
    ///
    /// # Errors
    /// Those of the socket; malformed TLS is [`io::ErrorKind::InvalidData`].
    pub(crate) fn read(&mut self, buffer: &mut [u8], scratch: &mut [u8]) -> io::Result<ReadOutcome> {
        match self {
            Self::Plain(socket) => read_socket(socket, buffer),
            Self::Tls(stream) => stream.read(buffer, scratch),
        }
    }

    /// Writes as much as the stream takes now; under TLS always everything (see [`Self::wants_write`]).
    ///
    /// # Errors
    /// Those of the socket; a full socket is `Ok(0)`.
    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => {
                let written = match slices {
                    [single] => socket.write(single),
                    many => socket.write_vectored(many),
                };
                would_block_as(written, 0)
            }
            Self::Tls(stream) => stream.write(slices),
        }
    }

    /// Whether ciphertext waits for the socket.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.tls.wants_write(),
        }
    }

    /// Bytes that were taken for writing and wait for the socket.
    pub(crate) fn unsent_bytes(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(stream) => stream.unsent_bytes,
        }
    }

    /// Writes waiting ciphertext as far as the socket takes it; how many bytes of it that was.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn flush(&mut self) -> io::Result<usize> {
        match self {
            Self::Plain(_) => Ok(0),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

fn would_block_as<T>(result: io::Result<T>, instead: T) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(instead),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(instead),
        other => other,
    }
}

fn read_socket(socket: &mut TcpStream, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
    match socket.read(buffer) {
        Ok(0) => Ok(ReadOutcome::Closed),
        Ok(count) => Ok(ReadOutcome::Bytes { count, drained: count < buffer.len() }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(ReadOutcome::Empty),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            Ok(ReadOutcome::Bytes { count: 0, drained: false })
        }
        Err(error) => Err(error),
    }
}

impl TlsStream {
    fn read(&mut self, buffer: &mut [u8], scratch: &mut [u8]) -> io::Result<ReadOutcome> {
        if self.has_ended {
            return Ok(ReadOutcome::Closed);
        }
        let room = buffer.len().saturating_sub(TLS_RECORD_BYTES_MAX).min(scratch.len());
        let mut filled = self.take_plaintext(buffer, 0)?;
        let Some(scratch) = scratch.get_mut(..room) else { return Ok(ReadOutcome::Empty) };
        let (count, drained) = match read_socket(&mut self.socket, scratch)? {
            ReadOutcome::Bytes { count, drained } => (count, drained),
            other if filled == 0 => return Ok(other),
            // Deliver what was decrypted earlier; the end is seen by the next read.
            ReadOutcome::Closed => return Ok(ReadOutcome::Bytes { count: filled, drained: false }),
            ReadOutcome::Empty => return Ok(ReadOutcome::Bytes { count: filled, drained: true }),
        };
        let mut ciphertext = scratch.get(..count).unwrap_or_default();
        while !ciphertext.is_empty() && !self.has_ended {
            let taken = self.tls.read_tls(&mut ciphertext)?;
            match self.tls.process_new_packets() {
                // Of what comes behind the end nothing is taken, however often it is offered.
                Ok(state) => self.has_ended = taken == 0 || state.peer_has_closed(),
                Err(error) => {
                    // Tell the peer why, as far as its socket takes it.
                    let _ = self.flush();
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
            filled = self.take_plaintext(buffer, filled)?;
        }
        if self.has_ended && filled == 0 {
            return Ok(ReadOutcome::Closed);
        }
        // The end is seen by the next read.
        Ok(ReadOutcome::Bytes { count: filled, drained: drained && !self.has_ended })
    }

    fn take_plaintext(&mut self, buffer: &mut [u8], mut filled: usize) -> io::Result<usize> {
        let mut reader = self.tls.reader();
        while let Some(space) = buffer.get_mut(filled..).filter(|space| !space.is_empty()) {
            match reader.read(space) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // A peer that went without a TLS goodbye: the socket's own end says the same.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut total = 0;
        for slice in slices {
            self.tls.writer().write_all(slice)?;
            total += slice.len();
        }
        self.unsent_bytes += total;
        self.flush()?;
        Ok(total)
    }

    /// Writes waiting ciphertext as far as the socket takes it; how many bytes of it that was.
    pub(crate) fn flush(&mut self) -> io::Result<usize> {
        let mut total = 0;
        while self.tls.wants_write() {
            let written = would_block_as(self.tls.write_tls(&mut self.socket), 0)?;
            if written == 0 {
                return Ok(total);
            }
            total += written;
            self.unsent_bytes = self.unsent_bytes.saturating_sub(written);
        }
        self.unsent_bytes = 0;
        Ok(total)
    }
}
