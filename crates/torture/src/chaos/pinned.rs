//! Readers that ask one node each, whatever maps say: a node that serves what it should not is found by nobody else.
//!
//! Clients go where the newest map sends them, so a deposed active copy is hardly ever read by them. A pinned reader goes on
//! to ask its node while that node sleeps, each time over another connection. The node answers these requests first when it
//! wakes, the late ones within the same turn as the early ones. What was read goes into the history, and the checker of
//! linearisability judges it. Only a read that began after a write has to see that write.
//!
//! Of a run of equal values the first and the last read are recorded. A stale value that was read once more is the last of
//! its run, so what is left out hides nothing.

use super::history::value_of;
use base::{Status, hash};
use client::{ClientError, KvConnection, Login};
use protocol::binary::{Opaque, Opcode, Request};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two batches at a node that serves something.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two batches at a node that refuses everything: its refusals carry whole maps.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// Between two attempts to reach a node.
const AWAY_PAUSE: Duration = Duration::from_millis(250);
/// A node that does not answer for so long is asked once more, over another connection.
const PATIENCE: Duration = Duration::from_millis(500);
/// Connections: so often a silent node is asked.
const LANES: usize = 16;
/// The readers' numbers in the history begin here; those of clients that write are smaller.
const FIRST_NUMBER: usize = 1_000;

/// The keys that are being written, by the name that a client gives them: those that pinned readers read.
#[derive(Default)]
pub(super) struct Board(Mutex<HashMap<String, Posted>>);

/// A key and what its history calls it.
#[derive(Clone, PartialEq, Eq)]
struct Posted {
    kind: &'static str,
    key: String,
}

impl Board {
    /// From now on this is the key of that name.
    pub(super) fn post(&self, name: String, kind: &'static str, key: &str) {
        let mut board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        board.insert(name, Posted { kind, key: key.to_owned() });
    }

    fn posted(&self) -> Vec<Posted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// The reader of one node.
pub(super) struct Pinned {
    pub(super) number: usize,
    pub(super) address: String,
    pub(super) login: Login,
    pub(super) board: Arc<Board>,
    pub(super) began: Instant,
    pub(super) outbox: Sender<Value>,
    pub(super) over: Arc<AtomicBool>,
}

/// A connection with one batch of reads under way at most.
struct Lane {
    connection: KvConnection,
    asked: Vec<(Opaque, Posted)>,
    called: u64,
}

impl Lane {
    fn open(reader: &Pinned) -> Result<Lane, ClientError> {
        let connection = KvConnection::open(&reader.address, &reader.login)?;
        connection.set_patience(PATIENCE)?;
        Ok(Lane { connection, asked: Vec::new(), called: 0 })
    }

    fn vbuckets(&mut self) -> Result<u16, ClientError> {
        Ok(self.connection.cluster_map()?.vbuckets())
    }

    /// Asks for every posted key.
    fn ask(&mut self, reader: &Pinned, vbuckets: u16) -> Result<(), ClientError> {
        for posted in reader.board.posted() {
            let vbucket = hash::vbucket_of(posted.key.as_bytes(), vbuckets);
            let key = posted.key.as_bytes();
            let opaque = self.connection.queue(&Request { key, vbucket, ..Request::new(Opcode::Get) })?;
            self.asked.push((opaque, posted));
        }
        self.called = reader.now();
        self.connection.send()
    }

    /// Waits a while for the first answer; whether it is there, or nothing was asked.
    fn has_answer(&mut self) -> Result<bool, ClientError> {
        if self.asked.is_empty() {
            return Ok(true);
        }
        match self.connection.await_reply() {
            Err(error) if error.is_timeout() => Ok(false),
            awaited => awaited.map(|()| true),
        }
    }

    /// Takes all answers; whether the node answered for any key.
    fn hear(&mut self, reader: &Pinned, runs: &mut Runs) -> Result<bool, ClientError> {
        let mut served = false;
        while !self.asked.is_empty() {
            while !self.has_answer()? {}
            let frame = self.connection.receive()?;
            // Answers may overtake each other.
            let Some(at) = self.asked.iter().position(|(opaque, _)| *opaque == frame.header.opaque) else {
                return Err(ClientError::Protocol("a reply to nothing that was asked".to_owned()));
            };
            let (_, Posted { kind, key }) = self.asked.swap_remove(at);
            let result = match frame.header.status() {
                Some(Status::Success) => value_of(frame.value),
                Some(Status::KeyNotFound) => Value::Null,
                _ => continue,
            };
            served = true;
            let read = Read { kind, called: self.called, returned: reader.now(), result };
            runs.add(key, read, |key, read| reader.tell(key, read));
        }
        Ok(served)
    }
}

/// A read that returned a value.
#[derive(Clone)]
struct Read {
    kind: &'static str,
    called: u64,
    returned: u64,
    result: Value,
}

impl Pinned {
    /// Reads until the run is over.
    pub(super) fn work(self) {
        let mut runs = Runs::default();
        while !self.over.load(Ordering::Relaxed) {
            // A node that is not a member refuses the bucket, and one that was killed refuses the connection.
            let _ = self.attend(&mut runs);
            std::thread::sleep(AWAY_PAUSE);
        }
        runs.end(|key, read| self.tell(key, read));
    }

    /// Reads over a few connections for as long as all of them last.
    fn attend(&self, runs: &mut Runs) -> Result<(), ClientError> {
        let mut lanes = Vec::new();
        for _ in 0..LANES {
            lanes.push(Lane::open(self)?);
        }
        let vbuckets = lanes.first_mut().map_or(Ok(0), Lane::vbuckets)?;
        while !self.over.load(Ordering::Relaxed) {
            let mut unused = lanes.iter_mut();
            let Some(first) = unused.next() else { break };
            first.ask(self, vbuckets)?;
            // Asked once more over another connection for as long as the node says nothing.
            while !first.has_answer()? {
                if let Some(next) = unused.next() {
                    next.ask(self, vbuckets)?;
                }
            }
            let mut served = false;
            for lane in &mut lanes {
                served |= lane.hear(self, runs)?;
            }
            std::thread::sleep(if served { PAUSE } else { REFUSED_PAUSE });
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn tell(&self, key: &str, read: &Read) {
        // The receiving end lives until all clients have ended, or the file takes no more; the end of the run tells that.
        let _ = self.outbox.send(json!({
            "client": FIRST_NUMBER + self.number, "kind": read.kind, "key": key, "op": "read",
            "call": read.called, "return": read.returned, "result": read.result,
        }));
    }
}

/// By key, the last read of the current run of equal values, and whether it is recorded.
#[derive(Default)]
struct Runs(HashMap<String, (Read, bool)>);

impl Runs {
    /// Adds a read. `tell` is called for the last of the run that it ends, and for the first of the run that it begins.
    fn add(&mut self, key: String, read: Read, mut tell: impl FnMut(&str, &Read)) {
        match self.0.get_mut(&key) {
            Some((last, told)) if last.result == read.result => (*last, *told) = (read, false),
            known => {
                if let Some((last, false)) = known.map(|known| &*known) {
                    tell(&key, last);
                }
                tell(&key, &read);
                self.0.insert(key, (read, true));
            }
        }
    }

    /// Tells the last read of every run.
    fn end(self, mut tell: impl FnMut(&str, &Read)) {
        let last = self.0.iter().filter(|(_, (_, told))| !told);
        last.for_each(|(key, (read, _))| tell(key, read));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_run_the_first_and_the_last_read_are_told() {
        let (mut runs, mut told) = (Runs::default(), Vec::new());
        let read = |at, result| Read { kind: "register", called: at, returned: at, result: json!(result) };
        for (at, result) in [(1, 7), (2, 7), (3, 7), (4, 8), (5, 7), (6, 9), (7, 9)] {
            runs.add("key".to_owned(), read(at, result), |_, read| told.push(read.called));
        }
        assert_eq!(told, [1, 3, 4, 5, 6]);
        runs.end(|_, read| told.push(read.called));
        assert_eq!(told, [1, 3, 4, 5, 6, 7]);
    }
}
