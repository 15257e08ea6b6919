//! The memcached text protocol on the plain memcached port: one bucket's default collection.
//!
//! Answers come strictly in order, so whatever parks blocks the connection. A retrieval of many keys that meets one
//! which has to be fetched is parked with the keys that are still to come.

use base::{Cas, Datatype, DocKey, HashedKey, Status, VbId, bucket::DurabilityLevel, key, limits};
use cluster::auth::Privilege;
use engine::{Counter, Delete, DocView, Durable, Expiry, Mutated, Store, StoreMode};
use protocol::text::{Command, Keys, Parsed, StoreVerb, expiry_to_wire, parse, reply};

use crate::{
    figures::meter::OpKind,
    forward::{
        self,
        together::{self, Retrieval},
    },
    handlers::{node, stats},
    net::output::{BY_REFERENCE_BYTES, Output},
    request::{
        admission,
        context::Context,
        fetch,
        reply::version_text,
        session::Session,
        stage::{Resumed, Stage, Stop},
        value,
    },
    state::completion::Completion,
};

/// How long a bucket's minimum durability may take.
const DURABILITY_TIMEOUT_MILLIS: u64 = 30_000;

/// What the text protocol keeps between reads.
#[derive(Debug, Default)]
pub(crate) struct TextState {
    /// Bytes of a refused data block still to be skipped.
    skip: u64,
}

/// What the beginning of the input asks for.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// So many bytes are needed.
    Need(usize),
    /// These bytes are dealt with.
    Skip(usize),
    /// A command of that length.
    Command(Command<'a>, usize),
    /// Close the connection.
    Close,
}

impl TextState {
    /// Takes one step; refusals are answered here.
    pub(crate) fn step<'a>(&mut self, input: &'a [u8], out: &mut Output) -> Step<'a> {
        if self.skip > 0 {
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(input.len());
            self.skip -= skipped as u64;
            return if skipped == 0 { Step::Need(1) } else { Step::Skip(skipped) };
        }
        match parse(input, limits::VALUE_BYTES_MAX) {
            Parsed::Incomplete { need } => Step::Need(need),
            Parsed::Command { command, length } => Step::Command(command, length),
            Parsed::Refused { reply, length, skip } => {
                out.bytes.extend_from_slice(reply.unwrap_or_default());
                self.skip = skip;
                Step::Skip(length)
            }
            Parsed::Close { reply } => {
                out.bytes.extend_from_slice(reply.unwrap_or_default());
                Step::Close
            }
        }
    }
}

/// A text command on its way.
#[derive(Debug)]
pub(crate) struct TextCall<'c> {
    pub(crate) session: &'c mut Session,
    pub(crate) out: &'c mut Output,
    pub(crate) context: &'c mut Context,
    pub(crate) ticket: u64,
    pub(crate) resumed: Option<Resumed>,
    /// Set when a retrieval stops at a key: the command for the rest.
    pub(crate) rest: Option<Vec<u8>>,
}

impl TextCall<'_> {
    /// Executes a command, answers included.
    ///
    /// # Errors
    /// [`Stop::Park`] and [`Stop::Close`]; everything else has been answered.
    pub(crate) fn execute(&mut self, command: &Command<'_>) -> Result<(), Stop> {
        match *command {
            Command::Get { keys, with_cas } => self.retrieve(keys, with_cas, None),
            Command::GetAndTouch { keys, with_cas, expiry } => self.retrieve(keys, with_cas, Some(expiry)),
            Command::Store { verb, noreply, .. } => {
                let outcome = self.change(command, Self::store);
                self.answer(outcome, noreply, |out, _, status| reply::append_store_outcome(out, verb, status))
            }
            Command::Delete { key, noreply } => {
                let outcome = self.change(command, |call, _| call.delete(key));
                self.answer(outcome, noreply, |out, _, status| {
                    reply::append_outcome(out, reply::DELETED, status)
                })
            }
            Command::Counter { key, delta, decrement, noreply } => {
                let outcome = self.change(command, |call, _| call.count(key, delta, decrement));
                self.answer(outcome, noreply, |out, number, status| match (status, number) {
                    (Status::Success, Some(number)) => reply::append_counter(out, number),
                    _ => reply::append_outcome(out, reply::OK, status),
                })
            }
            Command::Touch { key, expiry, noreply } => {
                let outcome = self.change(command, |call, _| call.touch(key, expiry));
                self.answer(outcome, noreply, |out, _, status| {
                    reply::append_outcome(out, reply::TOUCHED, status)
                })
            }
            Command::FlushAll { delay, noreply } => {
                let outcome = self.flush_all(delay);
                self.answer(outcome, noreply, |out, _, status| reply::append_outcome(out, reply::OK, status))
            }
            Command::Version => {
                reply::append_version(&mut self.out.bytes, &version_text());
                Ok(())
            }
            Command::Verbosity { noreply } => {
                self.say(noreply, reply::OK);
                Ok(())
            }
            Command::Stats { group } => {
                self.stats(group);
                Ok(())
            }
            Command::Quit => Err(Stop::Close),
        }
    }

    fn say(&mut self, noreply: bool, words: &[u8]) {
        if !noreply {
            self.out.bytes.extend_from_slice(words);
        }
    }

    /// Turns an outcome into words, unless it means waiting.
    fn answer(
        &mut self,
        outcome: Result<Option<u64>, Stop>,
        noreply: bool,
        words: impl FnOnce(&mut Vec<u8>, Option<u64>, Status),
    ) -> Result<(), Stop> {
        let (number, status) = match outcome {
            Ok(number) => (number, Status::Success),
            Err(stop) => (None, status_of(stop)?),
        };
        if !noreply {
            words(&mut self.out.bytes, number, status);
        }
        Ok(())
    }

    /// Makes a change here, or has it made where its vBucket is.
    fn change(
        &mut self,
        command: &Command<'_>,
        here: impl FnOnce(&mut Self, &Command<'_>) -> Result<Option<u64>, Stop>,
    ) -> Result<Option<u64>, Stop> {
        if let Some(packet) = forward::arrived(&mut self.resumed, false, self.context)? {
            return forward::text::number(&packet, command);
        }
        match here(self, command) {
            Err(Stop::Status(Status::NotMyVbucket)) => {
                let vb = self.session.vbucket_of(forward::text::key_of(command));
                Err(self.forward(vb, forward::text::change(vb, command), Vec::new))
            }
            other => other,
        }
    }

    fn retrieve(&mut self, keys: Keys<'_>, with_cas: bool, expiry: Option<i64>) -> Result<(), Stop> {
        let mut scratch = std::mem::take(&mut self.context.keys);
        let outcome = self.retrieve_all(keys, with_cas, expiry, &mut scratch);
        self.context.keys = scratch;
        outcome
    }

    fn retrieve_all(
        &mut self,
        keys: Keys<'_>,
        with_cas: bool,
        expiry: Option<i64>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let mut remaining = keys.iter();
        while let Some(logical) = remaining.next() {
            if self.out.is_full() {
                // Answers of a long list leave in pieces, so that its client bounds them by reading.
                self.rest = Some(command_for(logical, remaining, with_cas, expiry));
                return Err(Stop::Park(Stage::More, None));
            }
            let others = remaining.clone();
            match self.retrieve_one((logical, others), with_cas, expiry, scratch).map_err(status_of) {
                Ok(()) | Err(Ok(Status::KeyNotFound)) => {}
                Err(Ok(status)) => {
                    self.session.ahead.clear();
                    reply::append_failure(&mut self.out.bytes, status);
                    return Ok(());
                }
                Err(Err(stop)) => {
                    self.rest = Some(command_for(logical, remaining, with_cas, expiry));
                    return Err(stop);
                }
            }
            // A key that was fetched has been given its try; the next one has its own.
            self.resumed = None;
        }
        self.session.ahead.clear();
        self.out.bytes.extend_from_slice(reply::END);
        Ok(())
    }

    /// One document; the keys behind it are asked for together with it, should another node have it.
    fn retrieve_one<'k>(
        &mut self,
        (logical, others): (&[u8], impl Iterator<Item = &'k [u8]>),
        with_cas: bool,
        expiry: Option<i64>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        // Touching again what has been touched changes nothing more.
        let mut answered = forward::arrived(&mut self.resumed, true, self.context)?;
        if answered.is_none()
            && let Some(packet) = self.session.ahead.take(logical)
        {
            answered = forward::verdict(packet)?;
        }
        if let Some(packet) = answered {
            let found = forward::text::found(&packet)?;
            let cas = with_cas.then_some(found.cas);
            reply::append_value_line(&mut self.out.bytes, logical, found.flags, found.value.len(), cas);
            self.out.bytes.extend_from_slice(found.value);
            self.out.bytes.extend_from_slice(reply::VALUE_END);
            return Ok(());
        }
        let (vb, key) = self.locate(logical, scratch)?;
        let bucket = self.session.bucket()?;
        self.context.require_lease()?;
        self.session.require(Privilege::Read, key.key)?;
        let (out, now) = (&mut *self.out, self.context.now);
        let kind = if expiry.is_some() { OpKind::GetAndTouch } else { OpKind::Get };
        let write = |doc: &DocView<'_>| write_value(doc, logical, with_cas, out);
        let found = match expiry {
            None => bucket.engine.get(vb, key, now, write).map_err(Stop::from),
            Some(expiry) => {
                self.session.require(Privilege::Upsert, key.key)?;
                let touched = bucket.engine.touch(vb, key, expiry_to_wire(expiry), now, write);
                touched.map(|(written, _)| written).map_err(Stop::from)
            }
        }
        .and_then(|written| written.map_err(Stop::Status));
        self.context.ran(found.as_ref().err().map_or(kind, |stop| stop.counts_as(kind)));
        self.session.draw(key, self.context);
        if matches!(found, Err(Stop::Status(Status::KeyNotFound))) {
            bucket.meter.miss(self.context.worker, kind);
        }
        match found {
            Err(Stop::Fetch) => Err(self.fetch(vb, key)),
            Err(Stop::Status(Status::NotMyVbucket)) => {
                let retrieval = |vb, key: &[u8]| forward::text::retrieval(vb, key, expiry);
                let packet = retrieval(vb, logical);
                Err(self.forward(vb, packet, || together::far(self.session, others, retrieval)))
            }
            other => other,
        }
    }

    /// The vBucket and encoded key of a logical key.
    fn locate<'a>(&self, logical: &[u8], scratch: &'a mut Vec<u8>) -> Result<(VbId, HashedKey<'a>), Stop> {
        let key = encoded(logical, scratch).map_err(Stop::Status)?;
        Ok((self.session.vbucket_of(logical), HashedKey::new(key)))
    }

    /// Asks for a document to be brought from disk.
    fn fetch(&self, vb: VbId, key: HashedKey<'_>) -> Stop {
        let waiter = self.context.waiter(self.ticket);
        fetch::ask(self.session, vb, key, waiter, self.resumed.as_ref(), self.context)
    }

    /// Has the owner of a vBucket asked, and with it for what is behind.
    fn forward(&self, vb: VbId, packet: Option<Vec<u8>>, behind: impl FnOnce() -> Vec<Retrieval>) -> Stop {
        let waiter = self.context.waiter(self.ticket);
        forward::ask(self.session, vb, packet, waiter, self.resumed.as_ref(), behind, self.context)
    }

    /// Lets a mutation wait for its turn when the bucket is paced.
    fn admit(&mut self, bytes: usize) -> Result<(), Stop> {
        let waiter = self.context.waiter(self.ticket);
        let Some(bucket) = self.session.attached() else { return Ok(()) };
        admission::ask(bucket, waiter, bytes, &mut self.resumed, self.context)
    }

    /// What a mutation that grows a document writes anew, where that is asked for.
    fn rewritten_bytes(&self, logical: &[u8]) -> usize {
        let paced =
            self.session.attached().filter(|bucket| bucket.engine.is_paced() && self.resumed.is_none());
        let Some(bucket) = paced else { return 0 };
        let mut scratch = Vec::new();
        let located = self.locate(logical, &mut scratch);
        located.map_or(0, |(vb, key)| bucket.engine.rewritten_bytes(vb, key) as usize)
    }

    /// Runs a mutation and waits for its durability; resumed ones have been applied already.
    fn mutate(
        &mut self,
        logical: &[u8],
        kind: OpKind,
        privilege: Privilege,
        apply: impl FnOnce(&Self, VbId, HashedKey<'_>) -> Result<(Option<u64>, Mutated), Stop>,
    ) -> Result<Option<u64>, Stop> {
        let mut scratch = std::mem::take(&mut self.context.keys);
        let outcome = self.mutate_with(logical, kind, privilege, apply, &mut scratch);
        self.context.keys = scratch;
        outcome
    }

    fn mutate_with(
        &mut self,
        logical: &[u8],
        kind: OpKind,
        privilege: Privilege,
        apply: impl FnOnce(&Self, VbId, HashedKey<'_>) -> Result<(Option<u64>, Mutated), Stop>,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<u64>, Stop> {
        let (vb, key) = self.locate(logical, scratch)?;
        let was_applied = matches!(&self.resumed, Some(Resumed { stage: Stage::Durable { .. }, .. }));
        let (number, mutated, deadline, timed_out) = match &self.resumed {
            Some(Resumed {
                stage: Stage::Durable { mutated, acknowledgement, deadline }, timed_out, ..
            }) => {
                let deadline = if *timed_out { 0 } else { *deadline };
                (acknowledgement.number(), *mutated, deadline, *timed_out)
            }
            _ => {
                self.context.require_lease()?;
                self.session.require(privilege, key.key)?;
                let applied = apply(self, vb, key);
                self.context.ran(applied.as_ref().err().map_or(kind, |stop| stop.counts_as(kind)));
                self.session.draw(key, self.context);
                if matches!(applied, Err(Stop::Status(Status::KeyNotFound))) {
                    self.session.bucket()?.meter.miss(self.context.worker, kind);
                }
                if let Err(Stop::Fetch) = applied {
                    return Err(self.fetch(vb, key));
                }
                let (number, mutated) = applied?;
                (number, mutated, self.context.now.mono_millis + DURABILITY_TIMEOUT_MILLIS, false)
            }
        };
        let engine = &self.session.bucket()?.engine;
        if mutated.wait {
            let (waiter, now) = (self.context.waiter(self.ticket), self.context.now);
            match engine.complete_durable(vb, key, &mutated, waiter, deadline, now)? {
                Durable::Committed(_) => {}
                Durable::Parked if timed_out => return Err(Stop::Status(Status::SyncWriteAmbiguous)),
                Durable::Parked => {
                    let acknowledgement = number.into();
                    let stage = Stage::Durable { mutated, acknowledgement, deadline };
                    return Err(Stop::Park(stage, Some(deadline)));
                }
            }
        }
        // It may have been parked before, for another reason than its level.
        if !was_applied && (mutated.wait || engine.has_level(DurabilityLevel::None)) {
            self.session.note_durable_at_once(self.context);
        }
        Ok(number)
    }

    fn store(&mut self, command: &Command<'_>) -> Result<Option<u64>, Stop> {
        let Command::Store { verb, key, flags, expiry, cas, value, .. } = *command else {
            return Err(Stop::Status(Status::Internal));
        };
        let is_joined = matches!(verb, StoreVerb::Append | StoreVerb::Prepend);
        let rewritten = if is_joined { self.rewritten_bytes(key) } else { 0 };
        self.admit(key.len() + value.len() + rewritten)?;
        let (mode, kind) = match verb {
            StoreVerb::Set | StoreVerb::Cas => (StoreMode::Set, OpKind::Set),
            StoreVerb::Add => (StoreMode::Add, OpKind::Add),
            StoreVerb::Replace => (StoreMode::Replace, OpKind::Replace),
            StoreVerb::Append => (StoreMode::Append, OpKind::Append),
            StoreVerb::Prepend => (StoreMode::Prepend, OpKind::Prepend),
        };
        // No document has CAS 1, and 0 would mean "any".
        let cas = if verb == StoreVerb::Cas { Cas(cas.max(1)) } else { Cas::NONE };
        let stored = self.mutate(key, kind, Privilege::Upsert, |call, vb, key| {
            let datatype = match mode {
                StoreMode::Append | StoreMode::Prepend => Datatype::RAW,
                _ => value::detect(value),
            };
            let expiry = Expiry::Wire(expiry_to_wire(expiry));
            let store =
                Store { mode, value, datatype, flags, expiry, cas, durability: DurabilityLevel::None };
            Ok((None, call.session.bucket()?.engine.store(vb, key, &store, call.context.now)?))
        });
        let is_hit = match &stored {
            Ok(_) => Some(true),
            Err(Stop::Status(Status::KeyNotFound)) => Some(false),
            Err(_) => None,
        };
        if let Some(is_hit) = is_hit.filter(|_| verb == StoreVerb::Cas) {
            self.session.bucket()?.meter.compared(self.context.worker, is_hit);
        }
        stored
    }

    fn delete(&mut self, key: &[u8]) -> Result<Option<u64>, Stop> {
        self.mutate(key, OpKind::Delete, Privilege::Delete, |call, vb, key| {
            Ok((None, call.session.bucket()?.engine.delete(vb, key, &Delete::default(), call.context.now)?))
        })
    }

    fn count(&mut self, key: &[u8], delta: u64, decrement: bool) -> Result<Option<u64>, Stop> {
        let kind = if decrement { OpKind::Decrement } else { OpKind::Increment };
        let counter = Counter {
            delta,
            decrement,
            initial: None,
            expiry: Expiry::Preserve(0),
            cas: Cas::NONE,
            durability: DurabilityLevel::None,
        };
        self.admit(key.len())?;
        self.mutate(key, kind, Privilege::Upsert, |call, vb, key| {
            let counted = call.session.bucket()?.engine.counter(vb, key, &counter, call.context.now)?;
            Ok((Some(counted.0), counted.1))
        })
    }

    fn touch(&mut self, key: &[u8], expiry: i64) -> Result<Option<u64>, Stop> {
        self.mutate(key, OpKind::Touch, Privilege::Upsert, |call, vb, key| {
            let engine = &call.session.bucket()?.engine;
            let (_, mutated) = engine.touch(vb, key, expiry_to_wire(expiry), call.context.now, |_| ())?;
            Ok((None, mutated))
        })
    }

    fn flush_all(&mut self, delay: i64) -> Result<Option<u64>, Stop> {
        if let Some(resumed) = self.resumed.take() {
            return match resumed.completion {
                Some(Completion::Done(result)) => result.map(|()| None).map_err(Stop::Status),
                _ => Err(Stop::Park(Stage::Helper, None)),
            };
        }
        let bucket = self.session.bucket()?;
        self.session.require_everywhere(Privilege::BucketFlush)?;
        if !bucket.flush_enabled || delay > 0 {
            return Err(Stop::Status(Status::NotSupported));
        }
        node::submit_flush(self.session, self.context, self.ticket)?;
        Err(Stop::Park(Stage::Helper, None))
    }

    fn stats(&mut self, group: &[u8]) {
        let group = std::str::from_utf8(group).unwrap_or("?");
        let (group, argument) = group.split_once(' ').unwrap_or((group, ""));
        let pairs = match (group, self.session.bucket()) {
            ("", Ok(bucket)) => Ok(stats::general(&self.context.shared, bucket)),
            (_, Ok(bucket)) => stats::group_of(&self.context.shared, bucket, group, argument),
            (_, Err(_)) => Err(Status::NoBucket),
        };
        match pairs {
            Ok(pairs) => {
                for (name, value) in &pairs {
                    reply::append_stat(&mut self.out.bytes, name, value);
                }
                self.out.bytes.extend_from_slice(reply::END);
            }
            Err(_) => self.out.bytes.extend_from_slice(reply::ERROR),
        }
    }
}

/// The encoded key of a logical key.
///
/// # Errors
/// `Invalid` when it is too long.
pub(crate) fn encoded<'a>(logical: &[u8], scratch: &'a mut Vec<u8>) -> Result<DocKey<'a>, Status> {
    key::encode_key(base::CollectionId::DEFAULT, logical, scratch).map_err(|_| Status::Invalid)
}

/// The status to put into words; what is no refusal is passed on.
fn status_of(stop: Stop) -> Result<Status, Stop> {
    match stop {
        Stop::Status(status) | Stop::Refused(status, _) => Ok(status),
        Stop::Fetch => Ok(Status::TemporaryFailure),
        Stop::Park(..) | Stop::Close => Err(stop),
    }
}

/// `VALUE` line, value, line end; runs under the vBucket's lock.
fn write_value(doc: &DocView<'_>, key: &[u8], with_cas: bool, out: &mut Output) -> Result<(), Status> {
    let cas = with_cas.then_some(doc.cas);
    if doc.datatype.0 & Datatype::SNAPPY.with(Datatype::XATTR).0 != 0 {
        // Written by a richer client and read by a plain one: rare enough to inflate under the lock.
        let (mut scratch, mut datatype) = (Vec::new(), doc.datatype);
        let body = value::plain_body(doc.value, &mut datatype, Datatype::RAW, &mut scratch)
            .ok_or(Status::Internal)?;
        reply::append_value_line(&mut out.bytes, key, doc.flags, body.len(), cas);
        out.bytes.extend_from_slice(body);
    } else {
        reply::append_value_line(&mut out.bytes, key, doc.flags, doc.value.len(), cas);
        if doc.value.len() >= BY_REFERENCE_BYTES {
            out.attach(doc.share());
        } else {
            out.bytes.extend_from_slice(doc.value);
        }
    }
    out.bytes.extend_from_slice(reply::VALUE_END);
    Ok(())
}

/// The retrieval that remains to be done.
fn command_for<'a>(
    first: &'a [u8],
    others: impl Iterator<Item = &'a [u8]>,
    with_cas: bool,
    expiry: Option<i64>,
) -> Vec<u8> {
    let verb = match (expiry, with_cas) {
        (None, false) => "get".to_owned(),
        (None, true) => "gets".to_owned(),
        (Some(expiry), false) => format!("gat {expiry}"),
        (Some(expiry), true) => format!("gats {expiry}"),
    };
    let mut command = verb.into_bytes();
    for key in std::iter::once(first).chain(others) {
        command.push(b' ');
        command.extend_from_slice(key);
    }
    command.extend_from_slice(b"\r\n");
    command
}
