//! One socket: requests that wait for their replies, bytes on the way out, a reply whose end has not arrived.

use super::stamped;
use super::supply::Job;
use crate::target::LoadError;
use mio::net::TcpStream;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;

use std::time::Duration;

/// Back-off after "temporary failure", per connection; doubles up to the second.
pub(super) const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);

pub(super) struct Connection {
    pub(super) id: usize,
    pub(super) node: usize,
    /// `None` while it is being made again.
    pub(super) stream: Option<TcpStream>,
    /// Sent and not answered, oldest first.
    pub(super) pending: VecDeque<Job>,
    /// Queries that are asked elsewhere and have a place here.
    pub(super) away: usize,
    /// To be tried again, oldest first.
    pub(super) retry: VecDeque<Job>,
    /// Number of the next request.
    pub(super) number: u32,
    pub(super) answered: u64,
    /// Whether it stands in its node's list of connections with room.
    pub(super) listed: bool,
    /// Whether it has something to flush.
    pub(super) dirty: bool,
    /// Whether it belongs to an operation that is under way ([`crate::Protocol::claims_connection`]).
    pub(super) claimed: bool,
    /// Until when nothing is sent, in nanoseconds of the run.
    pub(super) paused_until: Option<u64>,
    pause: Duration,
    /// The beginning of a reply whose end has not arrived.
    partial: Vec<u8>,
    pub(super) out: Vec<u8>,
    written: usize,
    /// The socket is full.
    blocked: bool,
    /// Whether the kernel says when it received what.
    stamped: bool,
    /// How long the last bytes had been here when they were read, in nanoseconds.
    pub(super) lay: Option<u64>,
}

impl Connection {
    pub(super) fn new(id: usize, node: usize, stream: Option<TcpStream>) -> Connection {
        Connection {
            id,
            node,
            stream,
            pending: VecDeque::new(),
            away: 0,
            retry: VecDeque::new(),
            number: 0,
            answered: 0,
            listed: false,
            dirty: false,
            claimed: false,
            paused_until: None,
            pause: PAUSE_FIRST,
            partial: Vec::new(),
            out: Vec::new(),
            written: 0,
            blocked: false,
            stamped: false,
            lay: None,
        }
    }

    /// Whether the kernel is to say when it received what.
    pub(super) fn stamp(&mut self, stamped: bool) {
        if let Some(stream) = self.stream.as_ref().filter(|_| stamped) {
            stamped::ask(stream);
        }
        (self.stamped, self.lay) = (stamped, None);
    }

    /// Whether another request may go out now.
    pub(super) fn has_room(&self, pipeline: usize) -> bool {
        let is_free = !self.claimed && !self.blocked && self.paused_until.is_none();
        self.pending.len() + self.away < pipeline && is_free && self.stream.is_some()
    }

    pub(super) fn broken(&self, reason: String) -> LoadError {
        LoadError::Broken { connection: self.id, answered: self.answered, reason }
    }

    /// The server asked for patience: longer each time in a row.
    pub(super) fn pause(&mut self, now: u64) {
        if self.paused_until.is_none() {
            self.paused_until = Some(now + self.pause.as_nanos() as u64);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    /// The server accepts again.
    pub(super) fn resume(&mut self) {
        self.pause = PAUSE_FIRST;
    }

    /// Forgets everything about the socket and hands out what was under way.
    pub(super) fn tear_down(&mut self) -> Vec<Job> {
        self.stream = None;
        self.partial.clear();
        self.out.clear();
        (self.written, self.blocked, self.claimed, self.paused_until) = (0, false, false, None);
        self.pending.drain(..).chain(self.retry.drain(..)).collect()
    }

    /// Writes until everything is out or the socket is full; the next event goes on.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        self.blocked = false;
        while self.written < self.out.len() {
            match stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads what has arrived and hands every piece to `take`, which says how many bytes were whole replies. `to_end`
    /// says that the other side has closed: no event will follow, so everything has to be read now.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        to_end: bool,
        mut take: impl FnMut(&mut Connection, &[u8]) -> Result<usize, String>,
    ) -> Result<(), String> {
        loop {
            let Some(stream) = &mut self.stream else { return Ok(()) };
            let read = if self.stamped {
                stamped::read(stream.as_raw_fd(), buffer).map(|(read, lay)| {
                    self.lay = lay.map(|lay| lay.as_nanos() as u64);
                    read
                })
            } else {
                stream.read(buffer)
            };
            let read = match read {
                Ok(0) => return Err("the server closed it".to_owned()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            };
            if self.partial.is_empty() {
                let used = take(self, &buffer[..read])?;
                self.partial.extend_from_slice(&buffer[used..read]);
            } else {
                let mut input = std::mem::take(&mut self.partial);
                input.extend_from_slice(&buffer[..read]);
                let used = take(self, &input)?;
                input.drain(..used);
                self.partial = input;
            }
            // A short read has emptied the socket; what comes later makes a new event.
            if read < buffer.len() && !to_end {
                return Ok(());
            }
        }
    }
}
