//! The loop: fills every connection up to its depth, reads replies, counts.
//!
//! Invariant: replies come in the order of requests on each connection, so the oldest pending request is the one a
//! reply belongs to (the binary protocols' opaque proves it). A broken connection ends the phase with an error;
//! figures never silently come from fewer connections than asked for.

use super::records::mix;
use super::target::{LoadError, Target};
use super::wire::{Op, Outcome, Parsed};
use super::{Records, Tally};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// Read at once; larger than the replies to a deep pipeline of large values usually are.
const READ_BYTES: usize = 256 * 1024;
/// After this long without any reply the server is taken to be stuck.
const STALL: Duration = Duration::from_secs(30);
/// After this long with "temporary failure" as the only answer there is no hope left.
const HOPE: Duration = Duration::from_secs(120);
/// Back-off after "temporary failure", per connection; doubles up to the second.
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// How often progress is reported.
const PROGRESS: Duration = Duration::from_millis(100);

/// Which records are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Each record once, spread over the connections.
    Each,
    /// Uniformly at random, every connection by a seed of its own.
    Random,
}

/// When a phase ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// When every record has had its turn ([`Order::Each`]).
    All,
    /// After this many requests.
    Ops(u64),
    /// After this long.
    Time(Duration),
}

/// One stretch of load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    /// Records are numbered below this.
    pub(crate) records: u64,
    pub(crate) order: Order,
    pub(crate) stop: Stop,
    /// Share of reads, 0…100.
    pub(crate) get_percent: u8,
    /// Requests in flight per connection.
    pub(crate) pipeline: usize,
    /// Every how many hits the whole value is compared; sizes and versions of the others are not looked at.
    pub(crate) check_every: u64,
    /// Whatever is drawn follows from this.
    pub(crate) seed: u64,
}

struct Pending {
    op: Op,
    index: u64,
    /// Bytes of the value that a write carries.
    value_bytes: u32,
    /// Nanoseconds since the driver's start, of the first attempt.
    since: u64,
}

struct Connection {
    id: usize,
    stream: TcpStream,
    node: usize,
    rng: fastrand::Rng,
    /// Next record and stride for [`Order::Each`].
    next: u64,
    stride: u64,
    pending: VecDeque<Pending>,
    /// To be tried again, oldest first.
    retry: VecDeque<Pending>,
    pause: Duration,
    paused_until: Option<Instant>,
    /// Opaque of the next request and of the next reply.
    number_out: u32,
    number_in: u32,
    answered: u64,
    /// The beginning of a reply whose end has not arrived.
    partial: Vec<u8>,
    out: Vec<u8>,
    written: usize,
}

/// Connections and buffers; runs one phase after the other.
pub(crate) struct Driver<R> {
    target: Target,
    records: R,
    poll: Poll,
    connections: Vec<Connection>,
    started: Instant,
    scratch: Vec<u8>,
    read_buffer: Vec<u8>,
}

/// A phase under way; shared by its connections.
struct Run {
    phase: Phase,
    tally: Tally,
    requests_left: u64,
    sending: bool,
    until: Option<Instant>,
    /// Requests without final answer: sent, or waiting to be sent again.
    outstanding: usize,
    /// Connections that are pausing after a "temporary failure".
    paused: usize,
}

impl<R: Records> Driver<R> {
    /// Opens the connections, spread over the target's nodes.
    pub(crate) fn connect(target: Target, records: R, connections: usize) -> Result<Driver<R>, LoadError> {
        let poll = Poll::new()?;
        let nodes = target.nodes();
        let mut open = Vec::with_capacity(connections);
        for id in 0..connections.max(nodes) {
            let mut stream = TcpStream::from_std(target.connect(id % nodes)?);
            poll.registry().register(&mut stream, Token(id), Interest::READABLE | Interest::WRITABLE)?;
            open.push(Connection::new(id, stream, id % nodes));
        }
        Ok(Driver {
            target,
            records,
            poll,
            connections: open,
            started: Instant::now(),
            scratch: Vec::new(),
            read_buffer: vec![0; READ_BYTES],
        })
    }

    /// Runs a phase to its end and waits for every reply. `progress` hears the counts about ten times a second.
    pub(crate) fn run(
        &mut self,
        phase: &Phase,
        mut progress: impl FnMut(&Tally),
    ) -> Result<Tally, LoadError> {
        let mut connections = std::mem::take(&mut self.connections);
        let nodes = self.target.nodes();
        let count = connections.len();
        for (id, connection) in connections.iter_mut().enumerate() {
            connection.rng = fastrand::Rng::with_seed(mix(phase.seed ^ mix(id as u64 + 1)));
            connection.next = (id / nodes) as u64;
            connection.stride = ((count - id % nodes).div_ceil(nodes)) as u64;
        }
        let begun = Instant::now();
        let mut run = Run {
            phase: *phase,
            tally: Tally::new(),
            requests_left: if let Stop::Ops(ops) = phase.stop { ops } else { u64::MAX },
            sending: true,
            until: if let Stop::Time(time) = phase.stop { Some(begun + time) } else { None },
            outstanding: 0,
            paused: 0,
        };
        let result = self.drive(&mut run, &mut connections, begun, &mut progress);
        self.connections = connections;
        result.map(|()| run.tally)
    }

    fn drive(
        &mut self,
        run: &mut Run,
        connections: &mut [Connection],
        begun: Instant,
        progress: &mut impl FnMut(&Tally),
    ) -> Result<(), LoadError> {
        let mut events = Events::with_capacity(1024);
        for connection in connections.iter_mut() {
            self.fill_and_write(run, connection)?;
        }
        let (mut last_progress, mut last_reply, mut answered) = (begun, begun, 0);
        let (mut last_success, mut done) = (begun, 0);
        while run.outstanding > 0 {
            let patience = if run.paused > 0 { PAUSE_FIRST } else { PROGRESS };
            match self.poll.poll(&mut events, Some(patience)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                let connection = &mut connections[event.token().0];
                if event.is_readable() {
                    let read = self.read(run, connection);
                    read.map_err(|reason| connection.broken(reason))?;
                }
                self.fill_and_write(run, connection)?;
            }
            let now = Instant::now();
            if run.paused > 0 {
                for connection in
                    connections.iter_mut().filter(|c| c.paused_until.is_some_and(|at| at <= now))
                {
                    connection.paused_until = None;
                    run.paused -= 1;
                    self.fill_and_write(run, connection)?;
                }
            }
            run.sending &= run.until.is_none_or(|until| now < until);
            if run.tally.answers() != answered {
                answered = run.tally.answers();
                last_reply = now;
            } else if now - last_reply > STALL {
                return Err(LoadError::Stalled(STALL.as_secs(), run.outstanding));
            }
            if run.tally.done() + run.tally.errors != done {
                done = run.tally.done() + run.tally.errors;
                last_success = now;
            } else if now - last_success > HOPE {
                return Err(LoadError::NoProgress(HOPE.as_secs()));
            }
            if now - last_progress >= PROGRESS {
                last_progress = now;
                run.tally.elapsed = now - begun;
                progress(&run.tally);
            }
        }
        run.tally.elapsed = begun.elapsed();
        Ok(())
    }

    fn fill_and_write(&mut self, run: &mut Run, connection: &mut Connection) -> Result<(), LoadError> {
        if connection.written == connection.out.len() {
            connection.out.clear();
            connection.written = 0;
            let since = self.started.elapsed().as_nanos() as u64;
            while connection.pending.len() < run.phase.pipeline && connection.paused_until.is_none() {
                let Some(mut request) = self.next_request(run, connection) else {
                    break;
                };
                if request.since == 0 {
                    request.since = since;
                }
                request.value_bytes = self.write_request(connection, &request);
                connection.pending.push_back(request);
            }
        }
        connection.flush().map_err(|error| connection.broken(error.to_string()))
    }

    /// Returns how many bytes of value it carries.
    fn write_request(&mut self, connection: &mut Connection, request: &Pending) -> u32 {
        self.scratch.clear();
        self.records.key(request.index, &mut self.scratch);
        let (vb, _) = self.target.route(&self.scratch);
        let version = connection.rng.u64(..);
        let value_bytes = self.target.protocol.write(
            request.op,
            request.index,
            version,
            vb,
            connection.number_out,
            &self.records,
            &mut self.scratch,
            &mut connection.out,
        );
        connection.number_out = connection.number_out.wrapping_add(1);
        value_bytes as u32
    }

    /// A request that has to be repeated, or the next one of the phase's order; `None` when the phase is over.
    fn next_request(&mut self, run: &mut Run, connection: &mut Connection) -> Option<Pending> {
        if let Some(again) = connection.retry.pop_front() {
            return Some(again);
        }
        if !run.sending || run.requests_left == 0 {
            return None;
        }
        let index = loop {
            let index = match run.phase.order {
                Order::Each => {
                    let index = connection.next;
                    if index >= run.phase.records {
                        return None;
                    }
                    connection.next += connection.stride;
                    index
                }
                Order::Random => connection.rng.u64(..run.phase.records),
            };
            if self.target.nodes() == 1 || self.node_of(index) == connection.node {
                break index;
            }
        };
        run.requests_left -= 1;
        run.outstanding += 1;
        let get = run.phase.get_percent == 100 || connection.rng.u8(..100) < run.phase.get_percent;
        Some(Pending { op: if get { Op::Get } else { Op::Set }, index, value_bytes: 0, since: 0 })
    }

    fn node_of(&mut self, index: u64) -> usize {
        self.scratch.clear();
        self.records.key(index, &mut self.scratch);
        self.target.route(&self.scratch).1
    }

    /// Reads what has arrived and takes every whole reply out of it.
    fn read(&mut self, run: &mut Run, connection: &mut Connection) -> Result<(), String> {
        loop {
            let read = match connection.stream.read(&mut self.read_buffer) {
                Ok(0) => return Err("the server closed it".to_owned()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            };
            let now = self.started.elapsed().as_nanos() as u64;
            if connection.partial.is_empty() {
                let input = std::mem::take(&mut self.read_buffer);
                let used = self.take_replies(run, connection, &input[..read], now);
                self.read_buffer = input;
                connection.partial.extend_from_slice(&self.read_buffer[used?..read]);
            } else {
                let mut input = std::mem::take(&mut connection.partial);
                input.extend_from_slice(&self.read_buffer[..read]);
                let used = self.take_replies(run, connection, &input, now)?;
                input.drain(..used);
                connection.partial = input;
            }
            // A short read has emptied the socket; what comes later makes a new event.
            if read < READ_BYTES {
                return Ok(());
            }
        }
    }

    /// Returns how many bytes of `input` were whole replies.
    fn take_replies(
        &mut self,
        run: &mut Run,
        connection: &mut Connection,
        input: &[u8],
        now: u64,
    ) -> Result<usize, String> {
        let mut used = 0;
        while used < input.len() {
            // Without a pending request only something unasked can follow; any operation parses it.
            let op = connection.pending.front().map_or(Op::Get, |pending| pending.op);
            match self.target.protocol.read(op, connection.number_in, &input[used..]) {
                Parsed::Incomplete => break,
                Parsed::Unasked(length) => used += length,
                Parsed::Broken(reason) => return Err(reason),
                Parsed::Reply(outcome, length) => {
                    used += length;
                    connection.number_in = connection.number_in.wrapping_add(1);
                    connection.answered += 1;
                    let pending = connection.pending.pop_front();
                    let pending = pending.ok_or_else(|| "a reply to nothing".to_owned())?;
                    self.count(run, connection, pending, outcome, now);
                }
            }
        }
        Ok(used)
    }

    fn count(
        &mut self,
        run: &mut Run,
        connection: &mut Connection,
        pending: Pending,
        outcome: Outcome<'_>,
        now: u64,
    ) {
        let latency = now.saturating_sub(pending.since);
        run.outstanding -= 1;
        match outcome {
            Outcome::Hit(value) => {
                run.tally.hits += 1;
                run.tally.bytes += value.len() as u64;
                run.tally.read_latencies.record(latency);
                let check =
                    run.phase.check_every == 1 || run.tally.hits.is_multiple_of(run.phase.check_every);
                if check && !self.records.is_value(pending.index, value, &mut self.scratch) {
                    run.tally.corrupt += 1;
                }
            }
            Outcome::Miss => {
                run.tally.misses += 1;
                run.tally.read_latencies.record(latency);
            }
            Outcome::Stored => {
                run.tally.stored += 1;
                run.tally.bytes += u64::from(pending.value_bytes);
                run.tally.write_latencies.record(latency);
                connection.pause = PAUSE_FIRST;
            }
            Outcome::Temporary => {
                run.tally.temporary += 1;
                run.outstanding += 1;
                run.paused += usize::from(connection.paused_until.is_none());
                connection.paused_until = Some(Instant::now() + connection.pause);
                connection.pause = (connection.pause * 2).min(PAUSE_MAX);
                connection.retry.push_back(pending);
            }
            Outcome::Error(text) => {
                run.tally.errors += 1;
                run.tally.first_error.get_or_insert(text);
            }
        }
    }
}

impl Connection {
    fn new(id: usize, stream: TcpStream, node: usize) -> Connection {
        Connection {
            id,
            stream,
            node,
            rng: fastrand::Rng::with_seed(0),
            next: 0,
            stride: 1,
            pending: VecDeque::new(),
            retry: VecDeque::new(),
            pause: PAUSE_FIRST,
            paused_until: None,
            number_out: 0,
            number_in: 0,
            answered: 0,
            partial: Vec::new(),
            out: Vec::new(),
            written: 0,
        }
    }

    fn broken(&self, reason: String) -> LoadError {
        LoadError::Broken { connection: self.id, answered: self.answered, reason }
    }

    /// Writes until everything is out or the socket is full; the next event goes on.
    fn flush(&mut self) -> std::io::Result<()> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
