//! The loop of one thread: any number of connections, each with a bounded number of requests in flight.
//!
//! Invariants:
//! - Replies come in the order of requests on each connection. So a reply belongs to the oldest pending request (the
//!   binary protocols' number proves it).
//! - A broken connection ends the phase with an error unless the phase says to make it again, or its node has left the
//!   cluster. Figures never silently come from fewer connections than asked for.
//! - Every operation that was drawn ends in exactly one histogram, or is counted as unsent.
//!
//! It takes care of four things that popular tools do not. Every part of a run draws its own sequence. Only answers
//! count as operations. Values are recognised when they come back. A "temporary failure" is retried with back-off, and
//! its latency runs from the first attempt.

mod asking;
mod connection;
mod homes;
pub mod journal;
mod reconnect;
mod run;
mod stamped;
mod supply;
#[cfg(test)]
mod tests;
mod timer;

use crate::choose::{Choice, Part};
use crate::op::{Mix, Op};
use crate::pace::{Control, Pace};
use crate::queries::Queries;
use crate::records::{Records, mix};
use crate::tally::{Interval, Tally};
use crate::target::{LoadError, Target};
use crate::validate::Ledger;
use crate::wire::{Settings, Verb};
use asking::Askers;
use connection::Connection;
use homes::Homes;
use journal::Journal;
use mio::{Events, Interest, Poll, Token, Waker};
use reconnect::Reconnector;
use run::Run;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use timer::Timer;

/// Read at once; larger than the replies to a deep pipeline of large values usually are.
const READ_BYTES: usize = 256 * 1024;
/// After this long without any reply the server is taken to be stuck.
const STALL: Duration = Duration::from_secs(30);
/// What was due before the end of an open loop may still be sent for this long.
const GRACE: Duration = Duration::from_secs(5);
/// Marks the timer among what has happened; connections have their numbers.
const TIMER: Token = Token(usize::MAX);
/// Marks an answer to a query.
const TOLD: Token = Token(usize::MAX - 1);
/// Longest that replies are left lying: an operation that is due later is waited for together with them.
const REST_MAX: Duration = Duration::from_millis(1);
/// Longest sleep: how fast a changed rate or a stop is seen.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Why a connection is given up that nobody has closed.
const REPLACED: &str = "the node does not answer, and others serve its documents by now";

/// When a phase ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// When every record has had its turn ([`Choice::Each`]).
    All,
    /// After this many operations of the whole run.
    Ops(u64),
    /// After this long.
    Time(Duration),
}

impl Stop {
    fn ops(self, part: Part) -> u64 {
        match self {
            Stop::Ops(ops) => ops / part.of + u64::from(part.index < ops % part.of),
            Stop::All | Stop::Time(_) => u64::MAX,
        }
    }

    fn nanos(self) -> u64 {
        match self {
            Stop::Time(time) => time.as_nanos() as u64,
            Stop::All | Stop::Ops(_) => u64::MAX,
        }
    }
}

/// What a broken connection means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBreak {
    /// The end of the phase.
    Fail,
    /// What was under way has failed; the connection is made again.
    Reconnect,
}

/// One stretch of load.
#[derive(Clone, Debug)]
pub struct Phase {
    /// What is done.
    pub mix: Mix,
    /// Records are numbered below this.
    pub records: u64,
    /// Which of them.
    pub choice: Choice,
    /// When.
    pub pace: Pace,
    /// In an open loop, operations that are due within one of these are due together, at its beginning. Zero lets each
    /// operation have a time of its own, at the price of a wake-up for each. See [`crate::pace`].
    pub tick: Duration,
    /// Never sleep: look for answers and for what is due all the time. Takes a core per thread.
    pub spin: bool,
    /// Until when.
    pub stop: Stop,
    /// Requests in flight per connection.
    pub pipeline: usize,
    /// Keys of a multi-get.
    pub multi: usize,
    /// Every how many hits the whole value is compared; sizes and versions of the others are not looked at. 0: never.
    pub check_every: u64,
    /// What all requests have in common; flags and collection are filled in by the driver.
    pub settings: Settings,
    /// Which rows queries ask for, where the mix has queries.
    pub queries: Option<Arc<Queries>>,
    /// What APPEND and PREPEND add.
    pub additions: (Vec<u8>, Vec<u8>),
    /// Have the kernel say when it received each reply, and tell how long it lay there; latency goes on until it is read.
    pub stamped: bool,
    /// Hold every read against what this run has written. Only reads of whole documents, writes and deletions can be.
    pub validate: bool,
    /// An answer that takes longer breaks the connection.
    pub timeout: Option<Duration>,
    /// After this long with "temporary failure" as the only answer there is no hope left.
    pub hope: Duration,
    /// What a broken connection means.
    pub on_break: OnBreak,
    /// Where each thread writes a row per operation, with the number of its part behind the name.
    pub journal: Option<PathBuf>,
    /// Length of the intervals that results are handed out in.
    pub interval: Duration,
    /// Whatever is drawn follows from this.
    pub seed: u64,
}

impl Phase {
    /// One operation on one record after the other, as fast as it goes: how data sets are filled and compared.
    #[must_use]
    pub fn each(op: Op, records: u64, pipeline: usize) -> Phase {
        Phase { choice: Choice::Each, stop: Stop::All, check_every: 1, pipeline, ..Phase::of(op, records) }
    }

    /// One operation on random records in a closed loop, without end.
    #[must_use]
    pub fn of(op: Op, records: u64) -> Phase {
        Phase {
            mix: Mix::only(op),
            records,
            choice: Choice::Uniform,
            pace: Pace::Closed,
            tick: Duration::ZERO,
            spin: false,
            stop: Stop::Ops(u64::MAX),
            pipeline: 1,
            multi: 1,
            check_every: 16,
            settings: Settings::default(),
            queries: None,
            additions: (b"appended_string".to_vec(), b"prepended_string".to_vec()),
            stamped: false,
            validate: false,
            timeout: None,
            hope: Duration::from_secs(120),
            on_break: OnBreak::Fail,
            journal: None,
            interval: Duration::from_secs(1),
            seed: 1,
        }
    }

    /// Has queries of the mix ask for these rows: see [`Target::queries`].
    ///
    /// # Errors
    /// There are queries in it, and the target cannot be asked.
    pub fn ask(&mut self, target: &Target, rows: &str) -> Result<(), LoadError> {
        let has_queries = self.mix.ops().any(|op| op == Op::Query);
        self.queries = has_queries.then(|| target.queries(rows).map(Arc::new)).transpose()?;
        Ok(())
    }

    /// Whether replies may lie until the next operation is due. The kernel says when they came, so latencies do not have to
    /// end with a wake-up of the client for each of them. Not where a reply makes another request due.
    fn gathers(&self) -> bool {
        let follows = |op: Op| Verb::of(op).1.is_some() || op.is_counter() || op == Op::Query;
        self.pace.is_open()
            && !self.tick.is_zero()
            && !self.spin
            && !self.stamped
            && !self.mix.ops().any(follows)
    }

    fn rng(&self, part: Part) -> fastrand::Rng {
        fastrand::Rng::with_seed(mix(self.seed ^ mix(part.index + 1)))
    }
}

/// How far a phase is.
#[derive(Clone, Copy, Debug)]
pub struct Advance<'a> {
    /// Operations carried out so far.
    pub done: u64,
    /// What the server has said just now of why it could not do something yet.
    pub reason: Option<&'a str>,
}

/// Connections and buffers of one part of a run; runs one phase after the other.
pub struct Driver {
    target: Arc<Target>,
    records: Arc<dyn Records>,
    part: Part,
    poll: Poll,
    timer: Timer,
    waker: Arc<Waker>,
    connections: Vec<Connection>,
    /// How many a node gets that joins.
    per_node: usize,
    buffer: Vec<u8>,
    /// What validation knows; kept from phase to phase.
    ledger: Option<Ledger>,
    /// Which node serves what by now; kept from phase to phase.
    homes: Homes,
}

impl Driver {
    /// Opens the connections, spread over the target's nodes: at least one to each.
    ///
    /// # Errors
    /// A connection cannot be made.
    pub fn connect(
        target: Arc<Target>,
        records: Arc<dyn Records>,
        connections: usize,
        part: Part,
    ) -> Result<Driver, LoadError> {
        let poll = Poll::new()?;
        let homes = Homes::new(target.clone());
        let nodes = homes.count();
        let mut open = Vec::with_capacity(connections);
        for id in 0..connections.max(nodes) {
            let mut stream = mio::net::TcpStream::from_std(target.connect(homes.address(id % nodes))?);
            poll.registry().register(&mut stream, Token(id), Interest::READABLE | Interest::WRITABLE)?;
            open.push(Connection::new(id, id % nodes, Some(stream)));
        }
        let timer = Timer::new(poll.registry(), TIMER)?;
        let waker = Arc::new(Waker::new(poll.registry(), TOLD)?);
        let per_node = (open.len() / nodes).max(1);
        Ok(Driver {
            target,
            records,
            part,
            poll,
            timer,
            waker,
            connections: open,
            per_node,
            buffer: vec![0; READ_BYTES],
            ledger: None,
            homes,
        })
    }

    /// The descriptors of the connections that are open.
    pub fn files(&self) -> impl Iterator<Item = RawFd> {
        self.connections.iter().filter_map(|connection| Some(connection.stream.as_ref()?.as_raw_fd()))
    }

    /// Runs a phase alone and at once; `progress` hears about ten times a second how far it is.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn run_all(
        &mut self,
        phase: &Phase,
        mut progress: impl FnMut(Advance<'_>),
    ) -> Result<Tally, LoadError> {
        let phase = Phase { interval: Duration::from_millis(100), ..phase.clone() };
        let mut total = Tally::default();
        let mut sink = |interval: Interval| {
            total.merge(&interval.tally);
            progress(Advance { done: total.done(), reason: interval.tally.main_reason() });
        };
        self.run(&phase, Instant::now(), &Control::new(0.0), &mut sink)?;
        Ok(total)
    }

    /// Runs a phase from `start`, which may lie ahead, to its end and waits for every reply. Results are handed to
    /// `sink` interval by interval; the last one may be short.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn run(
        &mut self,
        phase: &Phase,
        start: Instant,
        control: &Control,
        sink: &mut dyn FnMut(Interval),
    ) -> Result<(), LoadError> {
        std::thread::sleep(start.saturating_duration_since(Instant::now()));
        let index = self.part.index;
        let journal = phase.journal.as_deref().map(|path| Journal::open(path, index, start)).transpose()?;
        let mut connections = std::mem::take(&mut self.connections);
        let ledger = phase.validate.then(|| {
            let expires = phase.settings.expiry > 0;
            // Distinct runs write distinct stamps, whatever their seeds are.
            let run = RandomState::new().hash_one(phase.seed);
            &mut *self.ledger.get_or_insert_with(|| Ledger::new(run, phase.records, self.part, expires))
        });
        let mut run = Run::new(phase, &mut self.homes, &*self.records, self.part, control, start, sink);
        (run.ledger, run.journal) = (ledger, journal);
        let queries = phase.queries.as_ref().filter(|_| phase.mix.ops().any(|op| op == Op::Query));
        run.askers = queries.map(|queries| {
            Askers::new(queries, connections.len().saturating_mul(phase.pipeline), &self.waker)
        });
        let mut wheel = Wheel {
            poll: &mut self.poll,
            timer: &mut self.timer,
            buffer: &mut self.buffer,
            per_node: self.per_node,
            connected: connections.iter().map(|connection| connection.node + 1).max().unwrap_or(0),
            reconnector: Reconnector::new(self.target.clone()),
        };
        let result = wheel.turn(&mut run, &mut connections);
        run.close();
        let written = run.journal.take().map_or(Ok(()), Journal::finish);
        self.connections = connections;
        result.and(written)
    }
}

/// What a run needs of the driver while its connections are lent out.
struct Wheel<'a> {
    poll: &'a mut Poll,
    timer: &'a mut Timer,
    buffer: &'a mut Vec<u8>,
    per_node: usize,
    /// How many nodes have connections.
    connected: usize,
    reconnector: Reconnector,
}

impl Wheel<'_> {
    fn turn(&mut self, run: &mut Run<'_>, connections: &mut Vec<Connection>) -> Result<(), LoadError> {
        let mut events = Events::with_capacity(1024);
        for connection in connections.iter_mut() {
            connection.listed = false;
            connection.stamp(run.stamps);
            run.list(connection);
            // Broken by the end of the phase before.
            if connection.stream.is_none() {
                self.reconnector.make(connection.id, connection.node, &run.address(connection.node));
            }
        }
        run.see_down(connections);
        let mut patience = Patience::default();
        loop {
            let now = run.now();
            run.see(now, connections);
            self.follow_up(run, connections, now)?;
            run.dispatch(connections, now);
            if run.supply.is_finished() {
                return Ok(());
            }
            patience.check(run, connections, now)?;
            let mut sleep = if run.phase.spin { Duration::ZERO } else { LOOK_UP };
            let rest = run.rest(now);
            run.rested = rest.is_some();
            if let Some(rest) = rest {
                std::thread::sleep(rest);
                sleep = Duration::ZERO;
            } else if let Some(at) = run.wake_at(now).filter(|_| !run.phase.spin) {
                self.timer.arm(at, now);
            }
            match self.poll.poll(&mut events, Some(sleep)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            }
            run.see(run.now(), connections);
            for event in &events {
                if event.token() == TIMER {
                    self.timer.fired();
                    continue;
                }
                if event.token() == TOLD {
                    run.take_answers(connections, run.now());
                    run.dispatch(connections, run.now());
                    continue;
                }
                let connection = &mut connections[event.token().0];
                let mut outcome = Ok(());
                if event.is_readable() {
                    outcome = run.read(connection, self.buffer, event.is_read_closed() || event.is_error());
                }
                if outcome.is_ok() {
                    outcome = connection.flush().map_err(|error| error.to_string());
                }
                match outcome {
                    Ok(()) => run.list(connection),
                    Err(reason) => self.break_up(run, connection, reason)?,
                }
                run.dispatch(connections, run.now());
            }
        }
    }

    /// What time brings: connections that are due again, broken ones that are back, answers that took too long.
    fn follow_up(
        &mut self,
        run: &mut Run<'_>,
        connections: &mut Vec<Connection>,
        now: u64,
    ) -> Result<(), LoadError> {
        if run.paused > 0 {
            for connection in connections.iter_mut() {
                if connection.paused_until.is_some_and(|at| at <= now) {
                    run.try_again(connection, now);
                }
            }
        }
        run.take_answers(connections, now);
        run.follow_moves(now);
        self.follow_growth(run, connections);
        while let Some((id, stream)) = self.reconnector.made() {
            let mut stream = mio::net::TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(id), interest)?;
            let connection = &mut connections[id];
            connection.stream = Some(stream);
            connection.stamp(run.stamps);
            run.list(connection);
            run.see_down(connections);
        }
        if let Some(late) = run.overdue(now) {
            run.see_down(connections);
            for connection in connections.iter_mut() {
                if connection.pending.front().is_some_and(|job| job.sent < late) {
                    self.break_up(run, connection, "no answer in time".to_owned())?;
                }
            }
        }
        for id in run.abandoned(connections, now) {
            self.break_up(run, &mut connections[id], REPLACED.to_owned())?;
        }
        Ok(())
    }

    /// A node that has joined gets connections.
    fn follow_growth(&mut self, run: &mut Run<'_>, connections: &mut Vec<Connection>) {
        for node in self.connected..run.nodes() {
            for _ in 0..self.per_node {
                let id = connections.len();
                connections.push(Connection::new(id, node, None));
                self.reconnector.make(id, node, &run.address(node));
            }
        }
        self.connected = self.connected.max(run.nodes());
    }

    /// Ends the phase, or has the connection made again.
    fn break_up(
        &mut self,
        run: &mut Run<'_>,
        connection: &mut Connection,
        reason: String,
    ) -> Result<(), LoadError> {
        // A node that has handed over everything closes what nobody waits on.
        let is_orderly = run.has_left(connection.node) && connection.pending.is_empty();
        if run.phase.on_break == OnBreak::Fail && !is_orderly {
            return Err(connection.broken(reason));
        }
        run.lost(connection);
        self.reconnector.make(connection.id, connection.node, &run.address(connection.node));
        Ok(())
    }
}

/// Notices when a run cannot end well.
#[derive(Default)]
struct Patience {
    answers: u64,
    last_answer: u64,
    finished: u64,
    last_finish: u64,
}

impl Patience {
    fn check(&mut self, run: &Run<'_>, connections: &[Connection], now: u64) -> Result<(), LoadError> {
        if run.answers != self.answers {
            (self.answers, self.last_answer) = (run.answers, now);
        }
        if run.finished != self.finished {
            (self.finished, self.last_finish) = (run.finished, now);
        }
        if run.supply.outstanding == 0 || run.phase.on_break == OnBreak::Reconnect {
            (self.last_answer, self.last_finish) = (now, now);
        }
        if now - self.last_answer > STALL.as_nanos() as u64 {
            let in_flight =
                connections.iter().map(|connection| connection.pending.len() + connection.away).sum();
            if in_flight > 0 {
                return Err(LoadError::Stalled(STALL.as_secs(), in_flight));
            }
        }
        let hope = run.phase.hope;
        if now - self.last_finish > hope.as_nanos() as u64 {
            return Err(LoadError::NoProgress { seconds: hope.as_secs(), reason: run.reason.clone() });
        }
        Ok(())
    }
}
