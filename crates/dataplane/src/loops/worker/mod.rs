//! One data-plane loop: an epoll instance, the connections placed on it, and the buffers they share.
//!
//! The poll is edge-triggered. A connection with something to do is on the ready list. Each goes through one bounded
//! turn ([`live::Live::turn`]) and back on the list while it has more, so that nobody starves and nothing readable is
//! forgotten. An unpipelined request costs one read and one write. A short read has drained the socket, so the loop
//! does not ask it again before its next event.
//!
//! Everything a connection waits for arrives as mail ([`crate::state::mailbox`]) or as a deadline. Nothing here blocks.

use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use mio::{Events, Poll, Token, Waker};

use crate::{
    connection::Connection,
    figures::reading::Reading,
    loops::workers::WorkerOptions,
    net::{output::Output, places::Place},
    request::{
        context::Context,
        located::{ConnectionId, Located},
    },
    state::{
        account::{Accounted, NodePool},
        helper::Helper,
        mailbox::{Mail, Mailbox, NewConnection, Purpose},
        shared::Shared,
    },
};

pub(crate) mod live;
mod loads;
pub(crate) mod slab;

use live::{Buffers, ClientBytes, Live, Patience, Stalled, Verdict};
use slab::Slab;

const WAKER: Token = Token(usize::MAX);
/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 512;
/// What one read can bring. Larger frames are read into a buffer of their connection.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// Connections that are read before the first of them is executed.
const GROUP: usize = 8;
/// Input this large ends its group.
const GROUP_BYTES: usize = 4 * 1024;
/// How often the counts of bytes are published, while there is traffic.
const TOTALS_MILLIS: u64 = 100;
/// How often stalled clients are looked for, while there are any.
const SWEEP_MILLIS: u64 = 1000;

/// A connection whose turn it is.
struct Member {
    live: Box<Live>,
    /// Bytes in its slot of the input buffer.
    filled: usize,
    /// Where its first request's document is.
    located: Option<Located>,
}

/// See the module.
pub(crate) struct Worker {
    poll: Poll,
    mailbox: Arc<Mailbox>,
    mail: Mail,
    connections: Slab<Live>,
    /// Connections of strangers, by the numbers of their places.
    strangers: HashMap<u64, ConnectionId>,
    ready: VecDeque<ConnectionId>,
    /// One slot of [`READ_BYTES`] for each connection of a group.
    input: Box<[u8]>,
    /// Empty between turns; kept for its capacity.
    group: Vec<Member>,
    buffers: Buffers,
    context: Context,
    patience: Patience,
    login_millis: u64,
    held_bytes_max: usize,
    /// Bytes held for slow clients, all connections together.
    held: ClientBytes,
    /// What the node's account was told of that, and of the buffers that connections share.
    told_connections: Accounted,
    told_buffers: Accounted,
    /// Some connection has output pending.
    stalled: bool,
    next_sweep: u64,
    totals_at: u64,
    stop_by: Option<u64>,
    /// When loads were looked at last (monotonic milliseconds).
    looked_at: u64,
}

impl Worker {
    /// A poll and the mailbox that wakes it.
    pub(crate) fn make_poll() -> io::Result<(Poll, Arc<Mailbox>)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        Ok((poll, Arc::new(Mailbox::new(waker))))
    }

    pub(crate) fn new(
        index: usize,
        poll: Poll,
        mailbox: Arc<Mailbox>,
        shared: Arc<Shared>,
        helper: Helper,
        options: &WorkerOptions,
    ) -> Self {
        let account = &shared.account;
        let context = Context::new(index, Arc::clone(&shared), helper);
        mailbox.follow(context.snapshot.generation());
        Self {
            told_connections: Accounted::new(account, NodePool::Connections, 0),
            told_buffers: Accounted::new(account, NodePool::Loops, 0),
            poll,
            mailbox,
            mail: Mail::default(),
            connections: Slab::new(),
            strangers: HashMap::new(),
            ready: VecDeque::new(),
            input: vec![0; GROUP * READ_BYTES].into(),
            group: Vec::with_capacity(GROUP),
            buffers: Buffers {
                scratch: if options.tls.is_some() { vec![0; READ_BYTES].into() } else { Box::default() },
                output: Output::default(),
            },
            context,
            patience: Patience { stall: millis(options.stall_timeout), gone: millis(options.gone_timeout) },
            login_millis: millis(options.login_timeout),
            held_bytes_max: options.held_bytes_max,
            held: ClientBytes::default(),
            stalled: false,
            next_sweep: 0,
            totals_at: 0,
            stop_by: None,
            looked_at: 0,
        }
    }

    /// Serves until told to stop.
    pub(crate) fn run(&mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            let timeout = self.timeout();
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "a data-plane loop cannot poll");
                return;
            }
            let woke_at = Reading::now();
            self.context.begin_turn(woke_at);
            self.context.stopwatch.lap(woke_at);
            self.follow_snapshot();
            for event in &events {
                if event.token() == WAKER {
                    continue;
                }
                let id = event.token().0 as ConnectionId;
                if let Some(live) = self.connections.get_mut(id) {
                    live.unread |= event.is_readable() || event.is_read_closed() || event.is_error();
                    live.peer_closed |= event.is_read_closed() || event.is_error();
                    schedule(&mut self.ready, live, woke_at);
                }
            }
            self.read_mail();
            self.wake_overdue();
            self.take_turns();
            self.sweep();
            self.publish_totals();
            self.tell_memory();
            if self.should_end() {
                return;
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadline = self.context.deadlines.peek().map(|Reverse((millis, _))| *millis);
        let sweep = self.stalled.then_some(self.next_sweep);
        let next = [deadline, sweep, self.stop_by].into_iter().flatten().min()?;
        Some(Duration::from_millis(next.saturating_sub(self.context.now.mono_millis).max(1)))
    }

    fn follow_snapshot(&mut self) {
        if self.context.shared.generation() != self.context.snapshot.generation() {
            self.context.snapshot = self.context.shared.snapshot();
            self.mailbox.follow(self.context.snapshot.generation());
        }
    }

    fn read_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.mailbox.collect(&mut mail);
        for new in mail.connections.drain(..) {
            self.adopt(new);
        }
        for number in mail.ended.drain(..) {
            if let Some(live) = self.strangers.remove(&number).and_then(|id| self.connections.take(id)) {
                self.close(live.id, live);
            }
        }
        for waiter in mail.wakes.drain(..) {
            self.wake(waiter.connection, |live| live.connection.wake(waiter.ticket));
        }
        for (waiter, completion) in mail.completions.drain(..) {
            self.wake(waiter.connection, |live| live.connection.complete(waiter.ticket, completion));
        }
        if std::mem::take(&mut mail.config_changed) {
            self.follow_snapshot();
            for live in self.connections.iter_mut() {
                // A connection with nothing to be told finds that out in a turn without a system call.
                schedule(&mut self.ready, live, self.context.stopwatch.at());
            }
        }
        self.tell_loads(&mut mail);
        if let Some(stop_by) = mail.stop_by.take() {
            self.stop_by = Some(stop_by);
            for live in self.connections.iter_mut() {
                schedule(&mut self.ready, live, self.context.stopwatch.at());
            }
        }
        self.mail = mail;
    }

    /// Answers readers that want to know what connections do; those that ask at once have one answer.
    fn tell_loads(&mut self, mail: &mut Mail) {
        if mail.looks.is_empty() {
            return;
        }
        let now = self.context.now.mono_millis;
        let report = loads::look(&mut self.connections, now, now.saturating_sub(self.looked_at));
        self.looked_at = now;
        mail.looks.drain(..).for_each(|look| look.answer(report.clone()));
    }

    fn adopt(&mut self, new: NewConnection) {
        let NewConnection { mut transport, place, purpose } = new;
        if place.as_ref().is_some_and(Place::is_lost) {
            return self.mailbox.remove_load();
        }
        let (registry, context) = (self.poll.registry(), &mut self.context);
        let number = place.as_ref().map(|place| place.number);
        let made = self.connections.insert(|id| {
            transport.register(registry, Token(id as usize))?;
            let connection = match purpose {
                Purpose::Client(kind) => Connection::new(kind, &transport, context),
                Purpose::Link(order) => {
                    context.connection = id;
                    Connection::of_link(*order, &transport, context)
                }
            };
            if connection.session.certificate.is_missing {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "no certificate of a user"));
            }
            let mut live = Live::new(id, transport, connection, place);
            if live.place.is_some() && !live.connection.is_known() {
                let login_by = context.now.mono_millis + self.login_millis;
                live.login_by = Some(login_by);
                context.deadlines.push(Reverse((login_by, id)));
            }
            Ok::<_, io::Error>(live)
        });
        match made {
            Ok(id) => {
                self.strangers.extend(number.map(|number| (number, id)));
                let totals = &self.context.shared.totals;
                totals.connections.fetch_add(1, Ordering::Relaxed);
                totals.connections_total.fetch_add(1, Ordering::Relaxed);
                if let Some(live) = self.connections.get_mut(id) {
                    schedule(&mut self.ready, live, self.context.stopwatch.at());
                }
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::PermissionDenied {
                    tracing::debug!(%error, "closing a connection");
                } else {
                    tracing::warn!(%error, "cannot watch a connection");
                }
                self.mailbox.remove_load();
            }
        }
    }

    /// Gives the place of a stranger to the user that it has turned out to be; false if the user has too many.
    fn recognise(&mut self, live: &mut Live) -> bool {
        let Some(place) = live.place.as_mut().filter(|place| place.is_strangers()) else { return true };
        self.strangers.remove(&place.number);
        let identity = &live.connection.session.identity;
        if place.belong_to(identity).is_ok() {
            live.login_by = None;
            return true;
        }
        tracing::warn!(user = ?identity.name, "closing a connection: its user has as many as one user may have");
        false
    }

    fn wake(&mut self, id: ConnectionId, tell: impl FnOnce(&mut Live)) {
        if let Some(live) = self.connections.get_mut(id) {
            tell(live);
            schedule(&mut self.ready, live, self.context.stopwatch.at());
        }
    }

    fn wake_overdue(&mut self) {
        let now = self.context.now.mono_millis;
        while let Some(&Reverse((millis, id))) = self.context.deadlines.peek()
            && millis <= now
        {
            self.context.deadlines.pop();
            let Some(live) = self.connections.get_mut(id) else { continue };
            if live.login_by.is_some_and(|login_by| login_by <= now) {
                tracing::debug!(peer = ?live.connection.session.peer, "closing a connection: no login in time");
                if let Some(live) = self.connections.take(id) {
                    self.close(id, live);
                }
                continue;
            }
            if let Some(next) = live.connection.expire(now) {
                self.context.deadlines.push(Reverse((next, id)));
            }
            schedule(&mut self.ready, live, self.context.stopwatch.at());
        }
    }

    /// Gives every connection on the ready list a turn, a few at a time. First all of these few are read, then each is
    /// executed. So the memory that a first request needs is on its way while the others' requests are decoded.
    fn take_turns(&mut self) {
        let mut due = self.ready.len();
        while due > 0 {
            self.context.read_at = self.context.stopwatch.at();
            let mut group = std::mem::take(&mut self.group);
            due -= self.gather(due, &mut group);
            for member in &group {
                if let Some(located) = member.located {
                    member.live.connection.prefetch_document(located);
                }
            }
            let at = Reading::now();
            self.context.stopwatch.lap(at);
            self.context.go_on_with_turn(at);
            let input = std::mem::take(&mut self.input);
            for (slot, member) in input.chunks(READ_BYTES).zip(group.drain(..)) {
                self.context.previewed = member.located;
                self.take_turn(member.live, slot.get(..member.filled).unwrap_or_default());
            }
            self.input = input;
            self.group = group;
        }
    }

    /// Takes connections off the ready list and reads from them; returns how many entries of the list that took. Each member's input is
    /// in the slot of its number.
    fn gather(&mut self, due: usize, group: &mut Vec<Member>) -> usize {
        let mut taken = 0;
        let reading = self.stop_by.is_none();
        for slot in self.input.chunks_mut(READ_BYTES) {
            let next = next_ready(&mut self.ready, &mut self.connections, due, &mut taken);
            let Some(mut live) = next else { break };
            let filled = live.fill(slot, &mut self.buffers.scratch, &mut self.context, reading);
            let located = live.connection.preview(slot.get(..filled).unwrap_or_default());
            group.push(Member { live, filled, located });
            if filled > 0 && (located.is_none() || filled > GROUP_BYTES) {
                // A pipeline is a batch of its own, and large input pushes what the others need out of the cache.
                break;
            }
        }
        taken
    }

    fn take_turn(&mut self, mut live: Box<Live>, input: &[u8]) {
        let id = live.id;
        if let Some(ready_at) = live.scheduled.take() {
            self.context.stopwatch.begin_turn(ready_at);
        }
        let verdict = live.turn(input, &mut self.buffers, &mut self.context, self.stop_by.is_none());
        self.account(&mut live);
        if live.is_newly_known() && !self.recognise(&mut live) {
            return self.close(id, live);
        }
        let stopping = self.stop_by.is_some() && live.is_idle();
        if verdict == Verdict::Close || (verdict == Verdict::Wait && stopping) {
            self.close(id, live);
            return;
        }
        if verdict == Verdict::Again {
            schedule(&mut self.ready, &mut live, self.context.stopwatch.at());
        }
        self.connections.put_back(id, live);
    }

    fn account(&mut self, live: &mut Live) {
        self.held.subtract(live.held);
        live.held = live.held_now();
        self.held.add(live.held);
        self.stalled |= live.is_stalled();
    }

    fn close(&mut self, id: ConnectionId, mut live: Box<Live>) {
        live.transport.deregister(self.poll.registry());
        self.context.connection = id;
        if let Some(place) = &live.place {
            self.strangers.remove(&place.number);
        }
        live.connection.leave(&self.context);
        self.held.subtract(live.held);
        self.connections.retire(id);
        self.mailbox.remove_load();
        self.context.shared.totals.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Closes clients that take nothing of their answers, or too little of those of a bucket that is gone. Where too much is held, it
    /// closes the holders of most.
    fn sweep(&mut self) {
        let now = self.context.now.mono_millis;
        let pressed = self.held.bytes > self.held_bytes_max;
        if !pressed && (!self.stalled || now < self.next_sweep) {
            return;
        }
        self.next_sweep = now + SWEEP_MILLIS;
        let (patience, snapshot) = (&self.patience, &self.context.snapshot);
        let ends = |live: &mut Live| live.stalled_verdict(now, patience, snapshot) == Stalled::End;
        let mut doomed: Vec<_> =
            self.connections.iter_mut().filter_map(|live| ends(live).then_some(live.id)).collect();
        if pressed && let Some(most) = self.connections.iter_mut().max_by_key(|live| live.held.bytes) {
            doomed.push(most.id);
        }
        for id in doomed {
            if let Some(live) = self.connections.take(id) {
                tracing::warn!(
                    connection = id,
                    held_bytes = live.held.bytes,
                    "closing a client that does not read"
                );
                self.close(id, live);
            }
        }
        self.stalled = self.connections.iter_mut().any(|live| live.is_stalled());
    }

    fn publish_totals(&mut self) {
        // All loops write to the totals: not with every turn.
        let now = self.context.now.mono_millis;
        if now < self.totals_at {
            return;
        }
        self.totals_at = now + TOTALS_MILLIS;
        let totals = &self.context.shared.totals;
        totals.bytes_read.fetch_add(std::mem::take(&mut self.context.bytes_read), Ordering::Relaxed);
        totals.bytes_written.fetch_add(std::mem::take(&mut self.context.bytes_written), Ordering::Relaxed);
    }

    /// Tells the node's account what this loop has, before it may wait for long.
    fn tell_memory(&mut self) {
        let connections = self.connections.len() * size_of::<Live>();
        self.told_connections.set(connections + self.held.bytes - self.held.lent);
        let own = self.input.len() + self.buffers.scratch.len() + self.buffers.output.bytes.capacity();
        self.told_buffers.set(own + self.context.scratch.capacity());
    }

    fn should_end(&mut self) -> bool {
        let Some(stop_by) = self.stop_by else { return false };
        if self.connections.len() > 0 && self.context.now.mono_millis < stop_by {
            return false;
        }
        for id in self.connections.ids() {
            if let Some(live) = self.connections.take(id) {
                self.close(id, live);
            }
        }
        true
    }
}

/// So that it can be added to a time.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2)
}

/// The next of the `due` first entries of the ready list whose connection is there. One that was closed since it was put there is left
/// out, and counted.
fn next_ready(
    ready: &mut VecDeque<ConnectionId>,
    connections: &mut Slab<Live>,
    due: usize,
    taken: &mut usize,
) -> Option<Box<Live>> {
    while *taken < due {
        let id = ready.pop_front()?;
        *taken += 1;
        if let Some(live) = connections.take(id) {
            return Some(live);
        }
    }
    None
}

/// Puts a connection on the ready list that has had something to do since `at`.
fn schedule(ready: &mut VecDeque<ConnectionId>, live: &mut Live, at: Reading) {
    if live.scheduled.is_none() {
        live.scheduled = Some(at);
        ready.push_back(live.id);
    }
}
