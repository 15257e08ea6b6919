//! A phase under way: what goes out, what a reply means, what is counted.

use super::asking::Askers;
use super::connection::Connection;
use super::homes::Homes;
use super::journal::Journal;
use super::supply::{Job, Parts, Supply};
use super::{GRACE, Phase, REST_MAX};
use crate::choose::Part;
use crate::op::{Class, Op};
use crate::pace::Control;
use crate::records::Records;
use crate::tally::{HISTORIES_MAX, Interval, Tally};
use crate::validate::{Ended, Ledger};
use crate::wire::{Command, Expected, Found, Outcome, Parsed, Protocol, Settings, Verb};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Counters live beside the documents, because a document is no number.
const COUNTER_SUFFIX: &[u8] = b".n";
/// Where counters begin that had to be made; far from zero, because they do not go below it.
const COUNTER_START: &[u8] = b"4294967296";

/// A vBucket that is nowhere after so many maps is given up: ten seconds at least.
const MOVES_MAX: u16 = 100;

/// While a node is missed, how often the map is fetched: each time every node checks a password.
const MAP_EVERY: Duration = Duration::from_millis(500);

/// A node that owes an answer for so long may have been replaced. SDKs look for a newer map as often.
const SILENCE: Duration = Duration::from_millis(2_500);

/// Whether an operation changes its record.
const fn writes(op: Op) -> bool {
    matches!(op, Op::Set | Op::Add | Op::Replace | Op::Cas | Op::Rmw | Op::Delete)
}

pub(super) struct Run<'a> {
    pub(super) phase: &'a Phase,
    pub(super) supply: Supply,
    /// Connections that are pausing after a "temporary failure".
    pub(super) paused: usize,
    /// Replies of any kind.
    pub(super) answers: u64,
    /// Operations that have ended.
    pub(super) finished: u64,
    /// What the server said last of why it could not do something yet.
    pub(super) reason: Option<String>,
    protocol: Protocol,
    /// Replies may overtake each other and say by their number what they answer.
    unordered: bool,
    homes: &'a mut Homes,
    /// Sent to the wrong node; waiting for a newer map.
    moved: Vec<Job>,
    /// Connections that are being made again, to nodes that serve something as far as is known.
    down: bool,
    /// When the map is fetched next because of them.
    next_map: u64,
    records: &'a dyn Records,
    settings: Settings,
    /// What validation knows, if this run validates.
    pub(super) ledger: Option<&'a mut Ledger>,
    /// Rows of what has ended, if they are asked for.
    pub(super) journal: Option<Journal>,
    /// Threads that ask queries, if the mix has some.
    pub(super) askers: Option<Askers<Job>>,
    control: &'a Control,
    start: Instant,
    sink: &'a mut dyn FnMut(Interval),
    tally: Tally,
    /// The interval that `tally` is of.
    interval: u64,
    /// How long what had not ended when the last interval did had been due, at most.
    waiting: Duration,
    /// Hits so far, which decide whose value is compared.
    hits: u64,
    /// Per node, connections with room.
    ready: Vec<VecDeque<usize>>,
    dirty: Vec<usize>,
    scratch: Vec<u8>,
    found: Vec<Found>,
    next_timeout_check: u64,
    /// When connections are looked at next whose nodes owe an answer.
    next_silence_check: u64,
    /// Whether the kernel is to say when it received what.
    pub(super) stamps: bool,
    /// Whether what is read now was left lying on purpose: its latency ended when it came.
    pub(super) rested: bool,
    /// How often the control has asked to give up what is late.
    skips: u64,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        phase: &'a Phase,
        homes: &'a mut Homes,
        records: &'a dyn Records,
        part: Part,
        control: &'a Control,
        start: Instant,
        sink: &'a mut dyn FnMut(Interval),
    ) -> Run<'a> {
        let (target, flags, nodes) = (homes.target.clone(), records.flags(), homes.count());
        Run {
            phase,
            supply: Supply::new(phase, part, nodes, control.rate()),
            paused: 0,
            answers: 0,
            finished: 0,
            reason: None,
            protocol: target.protocol,
            unordered: target.is_unordered(),
            homes,
            moved: Vec::new(),
            down: false,
            next_map: 0,
            records,
            ledger: None,
            journal: None,
            askers: None,
            settings: Settings { flags, collection: target.collection(), ..phase.settings.clone() },
            control,
            start,
            sink,
            tally: Tally::default(),
            interval: 0,
            waiting: Duration::ZERO,
            hits: 0,
            ready: (0..nodes).map(|_| VecDeque::new()).collect(),
            dirty: Vec::new(),
            scratch: Vec::new(),
            found: Vec::new(),
            next_timeout_check: 0,
            next_silence_check: 0,
            stamps: phase.stamped || phase.gathers(),
            rested: false,
            skips: control.skips(),
        }
    }

    /// Nanoseconds since the start.
    pub(super) fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Notices what time and the control have changed: a finished interval, another rate, the end.
    pub(super) fn see(&mut self, now: u64, connections: &[Connection]) {
        let length = self.phase.interval.as_nanos() as u64;
        if now >= (self.interval + 1).saturating_mul(length) {
            self.waiting = self
                .oldest(connections)
                .map_or(Duration::ZERO, |due| Duration::from_nanos(now.saturating_sub(due)));
        }
        while now >= (self.interval + 1).saturating_mul(length) {
            self.hand_out(self.phase.interval);
        }
        if self.skips != self.control.skips() {
            self.skips = self.control.skips();
            self.tally.unsent += self.supply.skip(now);
        }
        self.supply.follow(self.control.rate(), now);
        self.supply.see_time(now);
        if self.control.stopped() {
            self.supply.end();
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.set_acks_may_be_lost(self.control.acks_may_be_lost());
        }
        let end = self.phase.stop.nanos();
        if now >= end.saturating_add(GRACE.as_nanos() as u64) {
            self.tally.unsent += self.supply.give_up();
        }
    }

    /// When that was due which has been waited for longest.
    fn oldest(&self, connections: &[Connection]) -> Option<u64> {
        let sent =
            connections.iter().flat_map(|connection| connection.pending.iter().chain(&connection.retry));
        sent.chain(&self.moved).map(|job| job.due).chain(self.supply.oldest()).min()
    }

    fn hand_out(&mut self, length: Duration) {
        let mut tally = std::mem::take(&mut self.tally);
        tally.waiting = self.waiting;
        // What all intervals took together is what the last one says: they follow each other.
        tally.elapsed = self.phase.interval * self.interval as u32 + length;
        (self.sink)(Interval { index: self.interval, tally });
        self.interval += 1;
    }

    /// Hands out what is left.
    pub(super) fn close(&mut self) {
        let now = self.now();
        // Everything has ended, or will not be waited for any more.
        self.see(now, &[]);
        let begun = self.phase.interval * self.interval as u32;
        self.hand_out(Duration::from_nanos(now).saturating_sub(begun));
    }

    /// How long everything may rest, replies included, because there are free connections for what is due next and nothing
    /// else to be done before.
    pub(super) fn rest(&self, now: u64) -> Option<Duration> {
        let is_calm = self.paused == 0 && !self.down && self.moved.is_empty();
        let due = self.supply.due().filter(|_| is_calm && self.stamps && !self.phase.stamped)?;
        let rest = due.checked_sub(now).filter(|rest| *rest <= REST_MAX.as_nanos() as u64)?;
        // As many as are due within a tick, whichever node they are for.
        let wanted = self.control.rate() * self.phase.tick.as_secs_f64() + 1.0;
        let is_roomy = self.ready.iter().all(|list| list.len() as f64 >= wanted);
        is_roomy.then(|| Duration::from_nanos(rest))
    }

    /// When there is something to do even if nothing arrives, sooner than the poll looks up anyway.
    pub(super) fn wake_at(&self, now: u64) -> Option<u64> {
        let pause = (self.paused > 0).then(|| now + super::connection::PAUSE_FIRST.as_nanos() as u64);
        let due = self.supply.due().filter(|_| self.ready.iter().any(|list| !list.is_empty()));
        [pause, due].into_iter().flatten().min()
    }

    /// Requests sent before this time are overdue; looked at a few times per timeout. What has waited for so long for a
    /// connection, or for a map that has a place for it, has failed.
    pub(super) fn overdue(&mut self, now: u64) -> Option<u64> {
        let timeout = self.phase.timeout?.as_nanos() as u64;
        if now < self.next_timeout_check {
            return None;
        }
        self.next_timeout_check = now + timeout / 8;
        let late = now.checked_sub(timeout)?;
        let mut expired = self.supply.expire(late);
        expired.extend(self.moved.extract_if(.., |job| job.due < late));
        for job in expired {
            *self.tally.failures.entry("no node in time".to_owned()).or_default() += 1;
            self.finish(&job, Class::Failure, None, now);
        }
        Some(late)
    }

    /// Connections whose nodes have owed an answer for long and serve nothing any more. A node that is stopped neither refuses
    /// a request nor closes a connection. So the map is fetched as long as a node owes an answer.
    pub(super) fn abandoned(&mut self, connections: &[Connection], now: u64) -> Vec<usize> {
        if self.homes.target.vbuckets() == 0 || now < self.next_silence_check {
            return Vec::new();
        }
        self.next_silence_check = now + MAP_EVERY.as_nanos() as u64;
        let late = now.saturating_sub(SILENCE.as_nanos() as u64);
        let owes = |connection: &&Connection| connection.pending.front().is_some_and(|job| job.sent < late);
        let (left, there): (Vec<_>, Vec<_>) =
            connections.iter().filter(owes).partition(|connection| self.homes.has_left(connection.node));
        if !there.is_empty() {
            self.homes.refresh();
        }
        left.iter().map(|connection| connection.id).collect()
    }

    /// Puts a connection into the list of those with room, if it has some.
    pub(super) fn list(&mut self, connection: &mut Connection) {
        if !connection.listed && connection.has_room(self.phase.pipeline) {
            connection.listed = true;
            self.ready[connection.node].push_back(connection.id);
        }
    }

    /// Sends whatever is due over connections that have room, in turns.
    pub(super) fn dispatch(&mut self, connections: &mut [Connection], now: u64) {
        for node in 0..self.ready.len() {
            while let Some(&id) = self.ready[node].front() {
                let connection = &mut connections[id];
                if !connection.has_room(self.phase.pipeline) {
                    self.ready[node].pop_front();
                    connection.listed = false;
                    continue;
                }
                let Some(mut job) = self.next_job(node, now) else { break };
                if job.op == Op::Query {
                    self.ask(connection, job, now);
                } else {
                    if job.sent == 0 {
                        self.enter(&mut job, now);
                    }
                    self.send(connection, job, now);
                    self.soil(connection);
                }
                // In turns: the next request is another connection's.
                self.ready[node].rotate_left(1);
            }
        }
        for id in self.dirty.drain(..) {
            let connection = &mut connections[id];
            connection.dirty = false;
            // An error here comes back as an event of the socket, which is where broken connections are dealt with.
            let _ = connection.flush();
        }
    }

    /// Notes that something has to be flushed.
    fn soil(&mut self, connection: &mut Connection) {
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(connection.id);
        }
    }

    /// The pause is over: what was refused goes out before anything new. There is room for it, because nothing was
    /// sent meanwhile.
    pub(super) fn try_again(&mut self, connection: &mut Connection, now: u64) {
        connection.paused_until = None;
        self.paused -= 1;
        while let Some(job) = connection.retry.pop_front() {
            self.send(connection, job, now);
        }
        self.soil(connection);
        self.list(connection);
    }

    fn next_job(&mut self, node: usize, now: u64) -> Option<Job> {
        let (records, homes, scratch) = (self.records, &*self.homes, &mut self.scratch);
        self.supply.take(node, now, |index, op| {
            put_key(records, index, op, scratch);
            homes.route(scratch).1
        })
    }

    /// What is being made again: as long as it is, the map may have another place for what waits for it.
    pub(super) fn see_down(&mut self, connections: &[Connection]) {
        let is_missed =
            |connection: &Connection| connection.stream.is_none() && !self.homes.has_left(connection.node);
        self.down = self.homes.target.vbuckets() > 0 && connections.iter().any(is_missed);
    }

    /// How many nodes there are by now.
    pub(super) fn nodes(&self) -> usize {
        self.homes.count()
    }

    /// The data address of a node.
    pub(super) fn address(&self, node: usize) -> String {
        self.homes.address(node).to_owned()
    }

    /// Whether nothing is sent to a node any more.
    pub(super) fn has_left(&self, node: usize) -> bool {
        self.homes.has_left(node)
    }

    /// With a newer map everything that waits goes where that says, and what went to the wrong node before anything new.
    pub(super) fn follow_moves(&mut self, now: u64) {
        if self.down && now >= self.next_map {
            self.next_map = now + MAP_EVERY.as_nanos() as u64;
            self.homes.refresh();
        }
        if self.homes.see() {
            self.reroute();
        }
    }

    fn reroute(&mut self) {
        self.supply.grow(self.homes.count());
        self.ready.resize_with(self.homes.count(), VecDeque::new);
        let (records, homes, scratch) = (self.records, &*self.homes, &mut self.scratch);
        self.supply.reroute(|index, op| {
            put_key(records, index, op, scratch);
            homes.route(scratch).1
        });
        for mut job in std::mem::take(&mut self.moved) {
            let node = self.home(job.index, job.op);
            // One request goes to one node: keys that have parted from the first are left out.
            if job.verb == Verb::MultiGet {
                job.keys = job.keys.iter().copied().filter(|&key| self.home(key, job.op) == node).collect();
            }
            self.supply.redirect(job, node);
        }
    }

    fn home(&mut self, index: u64, op: Op) -> usize {
        put_key(self.records, index, op, &mut self.scratch);
        self.homes.route(&self.scratch).1
    }

    /// Notes in the ledger what is about to be sent. A write to a record that is being written becomes a read: only one
    /// at a time has an order.
    fn enter(&mut self, job: &mut Job, now: u64) {
        let Some(ledger) = &mut self.ledger else { return };
        if writes(job.op) {
            match ledger.begin(job.index, job.op == Op::Delete, now) {
                Some(version) => job.version = u64::from(version),
                None => (job.op, job.verb, job.then) = (Op::Get, Verb::Get, None),
            }
        }
        job.floor = ledger.floor(job.index);
    }

    /// Notes in the ledger how a write ended.
    fn leave(&mut self, job: &Job, class: Class, now: u64) {
        // What was never sent has not begun either.
        let has_begun = writes(job.op) && job.sent > 0;
        let Some(ledger) = self.ledger.as_mut().filter(|_| has_begun) else { return };
        let ended = match (class, job.verb) {
            (Class::Success, _) => Ended::Applied,
            (Class::Miss, _) => Ended::Refused,
            // It had come no further than to read, or to be sent away.
            (Class::Failure, Verb::Get | Verb::GetCas) => Ended::Refused,
            (Class::Failure, _) if !job.in_flight => Ended::Refused,
            (Class::Failure, Verb::SetCas) => Ended::UnknownUntilNext,
            (Class::Failure, _) => Ended::Unknown,
        };
        ledger.end(job.index, job.version as u32, job.op == Op::Delete, ended, now);
    }

    /// Holds what a read returned against the ledger.
    fn validate(&mut self, job: &Job, value: Option<&[u8]>, now: u64) {
        let Some(ledger) = &mut self.ledger else { return };
        if let Some(violation) = ledger.check(job.index, job.floor, value, now) {
            *self.tally.violations.entry(violation.name().to_owned()).or_default() += 1;
            if self.tally.histories.len() < HISTORIES_MAX {
                let history = ledger.history(job.index);
                self.tally.histories.push(format!("{}: {history}", violation.name()));
            }
        }
    }

    /// Appends the job's request and notes that it waits for a reply.
    fn send(&mut self, connection: &mut Connection, mut job: Job, now: u64) {
        if job.sent == 0 {
            job.sent = now;
        }
        job.in_flight = true;
        job.number = connection.number;
        connection.claimed |= self.protocol.claims_connection(job.verb);
        connection.number = connection.number.wrapping_add(self.protocol.numbers(job.verb, job.keys.len()));
        if job.verb == Verb::MultiGet {
            job.parts = Parts::default();
            self.write_many(&job, &mut connection.out);
        } else {
            job.value_bytes = self.write_one(&job, &mut connection.out);
        }
        connection.pending.push_back(job);
    }

    /// Returns how many bytes of value it carries.
    fn write_one(&mut self, job: &Job, out: &mut Vec<u8>) -> u32 {
        put_key(self.records, job.index, job.op, &mut self.scratch);
        let key_end = self.scratch.len();
        match job.verb {
            verb if verb.carries_value() => self.append_value(job),
            Verb::Append => self.scratch.extend_from_slice(&self.phase.additions.0),
            Verb::Prepend => self.scratch.extend_from_slice(&self.phase.additions.1),
            Verb::SubSet => self.scratch.extend_from_slice(format!("\"{:016x}\"", job.version).as_bytes()),
            _ => {}
        }
        let (key, value) = self.scratch.split_at(key_end);
        let (vb, _) = self.homes.route(key);
        let settings = &self.settings;
        let command = Command { verb: job.verb, key, value, vb, number: job.number, cas: job.cas, settings };
        self.protocol.write(&command, out);
        value.len() as u32
    }

    fn append_value(&mut self, job: &Job) {
        if job.op.is_counter() {
            return self.scratch.extend_from_slice(COUNTER_START);
        }
        let Some(ledger) = &self.ledger else {
            return self.records.value(job.index, job.version, &mut self.scratch);
        };
        let mut body = Vec::new();
        self.records.value(job.index, job.version, &mut body);
        ledger.stamp(job.index, job.version as u32, &body, &mut self.scratch);
    }

    fn write_many(&mut self, job: &Job, out: &mut Vec<u8>) {
        for (place, &index) in job.keys.iter().enumerate() {
            self.scratch.clear();
            self.records.key(index, &mut self.scratch);
            let key = &self.scratch[..];
            let (vb, _) = self.homes.route(key);
            let settings = &self.settings;
            let command =
                Command { verb: job.verb, key, value: &[], vb, number: job.number, cas: 0, settings };
            self.protocol.write_many(place, job.keys.len(), &command, out);
        }
    }

    /// Takes every whole reply that has arrived.
    pub(super) fn read(
        &mut self,
        connection: &mut Connection,
        buffer: &mut [u8],
        to_end: bool,
    ) -> Result<(), String> {
        connection.read(buffer, to_end, |connection, input| {
            let lay = connection.lay.filter(|_| self.rested).unwrap_or(0);
            let now = self.now().saturating_sub(lay);
            let mut used = 0;
            while used < input.len() {
                let Some(place) = self.answered(connection, &input[used..]) else { break };
                // Without a pending request only something unasked can follow; any verb parses it.
                let next = connection.pending.get(place);
                let expected = Expected {
                    verb: next.map_or(Verb::Get, |job| job.verb),
                    number: next.map_or(0, |job| job.number),
                    keys: next.map_or(0, |job| job.keys.len()),
                };
                let mut found = std::mem::take(&mut self.found);
                let parsed = self.protocol.read(expected, &input[used..], &mut found);
                self.found = found;
                match parsed {
                    Parsed::Incomplete => break,
                    Parsed::Unasked(length) => used += length,
                    Parsed::Broken(reason) => return Err(reason),
                    Parsed::Part(key, outcome, length) => {
                        if let Some(job) = connection.pending.get_mut(place) {
                            self.take_part(job, key, outcome, now);
                        }
                        used += length;
                    }
                    Parsed::Reply(outcome, length, server_us) => {
                        let job = connection.pending.remove(place);
                        let job = job.ok_or_else(|| "a reply to nothing".to_owned())?;
                        connection.answered += 1;
                        self.answers += 1;
                        self.answer(connection, job, outcome, &input[used..used + length], server_us, now);
                        used += length;
                    }
                }
            }
            Ok(used)
        })
    }

    /// Which of the pending requests the next reply answers; `None` while that cannot be seen.
    fn answered(&self, connection: &Connection, input: &[u8]) -> Option<usize> {
        if !self.unordered {
            return Some(0);
        }
        let number = self.protocol.number(input)?;
        let asked =
            |job: &Job| number.wrapping_sub(job.number) < self.protocol.numbers(job.verb, job.keys.len());
        Some(connection.pending.iter().position(asked).unwrap_or(connection.pending.len()))
    }

    /// Has a query asked, which takes a place on the connection meanwhile.
    pub(super) fn ask(&mut self, connection: &mut Connection, mut job: Job, now: u64) {
        job.sent = now;
        let path = self.path_of(&job);
        connection.away += 1;
        let asked = (connection.id, job, path);
        let refused = match &self.askers {
            Some(askers) => askers.ask(asked).err(),
            None => Some(asked),
        };
        if let Some((_, job, _)) = refused {
            self.take_told(connection, &job, Err("query: nobody asks".to_owned()), now);
        }
    }

    fn path_of(&mut self, job: &Job) -> String {
        let queries = self.phase.queries.clone();
        let key = self.key_of(job.index);
        queries.map(|queries| queries.path(key)).unwrap_or_default()
    }

    /// Takes every answer that has come.
    pub(super) fn take_answers(&mut self, connections: &mut [Connection], now: u64) {
        while let Some((id, job, told)) = self.askers.as_ref().and_then(Askers::told) {
            let connection = &mut connections[id];
            self.take_told(connection, &job, told, now);
            self.list(connection);
        }
    }

    fn take_told(&mut self, connection: &mut Connection, job: &Job, told: Result<u64, String>, now: u64) {
        connection.away -= 1;
        self.answers += 1;
        let class = match told {
            Ok(bytes) => {
                self.tally.bytes += bytes;
                Class::Success
            }
            Err(text) => {
                *self.tally.failures.entry(text).or_default() += 1;
                Class::Failure
            }
        };
        self.finish(job, class, None, now);
    }

    /// The key of a record.
    fn key_of(&mut self, index: u64) -> &[u8] {
        self.scratch.clear();
        self.records.key(index, &mut self.scratch);
        &self.scratch
    }

    /// Notes what has become of one key of a multi-get.
    fn take_part(&mut self, job: &mut Job, key: usize, outcome: Outcome<'_>, now: u64) {
        match outcome {
            Outcome::Hit(value, _) => {
                job.parts.found += 1;
                job.parts.bytes += value.len() as u64;
                if let Some(&index) = job.keys.get(key) {
                    // Validation has no multi-gets, so this compares with what is stored at most.
                    let one =
                        Job { index, op: Op::Get, verb: Verb::Get, keys: Box::default(), ..job.clone() };
                    self.check(&one, value, now);
                }
            }
            Outcome::Temporary(reason) => {
                job.parts.temporary = true;
                self.hear(reason);
            }
            Outcome::Moved(_) => job.parts.moved = true,
            _ => {}
        }
    }

    /// Keeps what the server says of why it cannot do something yet.
    fn hear(&mut self, reason: Option<String>) {
        let Some(reason) = reason else { return };
        match self.tally.reasons.get_mut(&reason) {
            Some(count) => *count += 1,
            None => _ = self.tally.reasons.insert(reason.clone(), 1),
        }
        self.reason = Some(reason);
    }

    /// A request that the server has no room for just now is sent again after a pause of its connection.
    fn retry_later(&mut self, connection: &mut Connection, mut job: Job, now: u64) {
        self.tally.temporary += 1;
        job.in_flight = false;
        self.paused += usize::from(connection.paused_until.is_none());
        connection.pause(now);
        connection.retry.push_back(job);
    }

    /// A request of a vBucket that is on another node by now is sent there. Returns one that has moved too often.
    fn follow(&mut self, node: usize, mut job: Job, map: &[u8], now: u64) -> Option<Job> {
        self.tally.moved += 1;
        job.in_flight = false;
        if job.moves >= MOVES_MAX {
            return Some(job);
        }
        job.moves += 1;
        self.moved.push(job);
        if self.homes.learn(node, map, now) {
            self.reroute();
        } else {
            self.homes.refresh();
        }
        None
    }

    /// What a reply means for its operation: the end, another request, or another try.
    fn answer(
        &mut self,
        connection: &mut Connection,
        mut job: Job,
        outcome: Outcome<'_>,
        reply: &[u8],
        server_us: Option<u32>,
        now: u64,
    ) {
        let outcome = match outcome {
            Outcome::Many if job.parts.moved => Outcome::Moved(&[]),
            // Why was heard with its parts.
            Outcome::Many if job.parts.temporary => Outcome::Temporary(None),
            other => other,
        };
        let class = match outcome {
            Outcome::Hit(value, cas) => {
                self.tally.bytes += value.len() as u64;
                self.check(&job, value, now);
                if let Some(then) = job.then.take() {
                    (job.verb, job.cas) = (then, cas);
                    // Flushed with everything else by the reader.
                    self.send(connection, job, now);
                    return;
                }
                Class::Success
            }
            Outcome::Done => {
                self.tally.bytes += u64::from(job.value_bytes);
                connection.resume();
                Class::Success
            }
            Outcome::Many => self.count_many(&job, reply, now),
            // The text protocol counts only what is there already.
            Outcome::Miss if matches!(job.verb, Verb::Incr | Verb::Decr) => {
                job.verb = Verb::Add;
                self.send(connection, job, now);
                return;
            }
            Outcome::Miss => {
                // A deletion that finds nothing and a replacement of nothing have seen absence, as a read does.
                if matches!(job.verb, Verb::Get | Verb::GetCas | Verb::Delete | Verb::Replace) {
                    self.validate(&job, None, now);
                }
                Class::Miss
            }
            Outcome::Temporary(reason) => {
                self.hear(reason);
                return self.retry_later(connection, job, now);
            }
            Outcome::Moved(map) => {
                let Some(lost) = self.follow(connection.node, job, map, now) else { return };
                job = lost;
                *self.tally.failures.entry("NotMyVbucket (0x07), again and again".to_owned()).or_default() +=
                    1;
                Class::Failure
            }
            Outcome::Failed(text) => {
                *self.tally.failures.entry(text).or_default() += 1;
                Class::Failure
            }
        };
        if self.protocol.claims_connection(Verb::of(job.op).0) {
            connection.claimed = false;
        }
        if let Some(lay) = connection.lay.filter(|_| class == Class::Success && self.phase.stamped) {
            self.tally.split.receive.record(lay);
        }
        self.finish(&job, class, server_us, now);
    }

    fn finish(&mut self, job: &Job, class: Class, server_us: Option<u32>, now: u64) {
        self.leave(job, class, now);
        self.supply.outstanding -= 1;
        self.finished += 1;
        let nanos = now.saturating_sub(job.due);
        self.tally.record(job.op, class, nanos);
        if let Some(journal) = &mut self.journal {
            journal.note(job.op, job.index, class, job.due, nanos);
        }
        if class == Class::Success {
            let split = &mut self.tally.split;
            if self.phase.pace.is_open() {
                split.queue.record(job.sent.saturating_sub(job.due));
                split.service.record(now.saturating_sub(job.sent));
            }
            if let Some(micros) = server_us {
                self.tally.told(now.saturating_sub(job.sent), micros.into());
            }
        }
    }

    /// A multi-get succeeds when it finds everything.
    fn count_many(&mut self, job: &Job, reply: &[u8], now: u64) -> Class {
        let found = std::mem::take(&mut self.found);
        for (place, range) in &found {
            let value = &reply[range.clone()];
            self.tally.bytes += value.len() as u64;
            if let Some(&index) = place.and_then(|place| job.keys.get(place)) {
                // Validation has no multi-gets, so this compares with what is stored at most.
                self.check(&Job { index, op: Op::Get, verb: Verb::Get, ..job.clone() }, value, now);
            }
        }
        let hits = found.len() + job.parts.found;
        self.tally.bytes += job.parts.bytes;
        self.tally.keys_found += hits as u64;
        self.tally.keys_missed += (job.keys.len() - hits.min(job.keys.len())) as u64;
        let class = if hits >= job.keys.len() { Class::Success } else { Class::Miss };
        self.found = found;
        class
    }

    /// Compares a document with what was stored, every so often.
    fn check(&mut self, job: &Job, value: &[u8], now: u64) {
        if self.ledger.is_some() {
            return self.validate(job, Some(value), now);
        }
        self.hits += 1;
        let every = self.phase.check_every;
        let due = every > 0 && (every == 1 || self.hits.is_multiple_of(every));
        let whole = matches!(job.verb, Verb::Get | Verb::GetCas);
        if due && whole && !self.records.is_value(job.index, value, &mut self.scratch) {
            self.tally.corrupt += 1;
        }
    }

    /// A connection broke that will be made again: what was under way has failed.
    pub(super) fn lost(&mut self, connection: &mut Connection) {
        let now = self.now();
        self.paused -= usize::from(connection.paused_until.is_some());
        self.down |= self.homes.target.vbuckets() > 0;
        self.tally.reconnects += 1;
        for job in connection.tear_down() {
            *self.tally.failures.entry("connection lost".to_owned()).or_default() += 1;
            self.finish(&job, Class::Failure, None, now);
        }
    }
}

/// Puts into `key` what an operation names: the record, or the counter beside it, which may be on another node.
fn put_key(records: &dyn Records, index: u64, op: Op, key: &mut Vec<u8>) {
    key.clear();
    records.key(index, key);
    if op.is_counter() {
        key.extend_from_slice(COUNTER_SUFFIX);
    }
}
