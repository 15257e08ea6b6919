//! Clients that write down what they did, for a checker of linearisability: registers and counters, few of each, many
//! clients, durable to a majority. Readers that ask one node each ([`pinned`](super::pinned)) add to it.
//!
//! A line of the history is an operation: what was asked, when it was called, when it returned and with what. One whose
//! answer never came has no return: it may have happened at any time since, or never. One that was refused for good
//! before it had any effect is left out, as if it had never been called.

use super::pinned::{Board, Pinned};
use crate::TortureError;
use base::bucket::DurabilityLevel;
use base::{Status, VbId};
use client::{ClientError, ClusterMap, KvConnection, Login, Response};
use load::{LoadError, Protocol, Target};
use protocol::binary::extras::{CounterExtras, StoreExtras};
use protocol::binary::{Durability, Opcode, Request};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many clients, and keys of each kind.
const CLIENTS: u64 = 6;
const KEYS: u64 = 4;
/// An answer that takes longer is taken for lost.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long an operation is tried while nodes say that it is not theirs, or not now.
const RIDE: Duration = Duration::from_secs(3);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two operations of a client.
const REST: Duration = Duration::from_millis(20);
/// After so many lost answers a key is retired. Each of these operations may have happened at any time since, and each
/// doubles what a checker has to try.
const LOST_MAX: u32 = 3;
/// And after this time: the work of a checker grows with the square of a key's operations. Longer than any event takes.
const AGE_MAX: Duration = Duration::from_secs(120);

/// Clients at work.
pub struct Recorder {
    over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    scribe: JoinHandle<io::Result<Recorded>>,
}

/// What was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Operations in the history.
    pub operations: u64,
    /// Of these, those whose answer never came.
    pub lost: u64,
}

impl Recorder {
    /// Starts the clients; their writes are durable at `level`. The first of `seeds` has to answer now, later any of them. The
    /// history goes to the file `path`, a JSON object per line.
    ///
    /// # Errors
    /// The cluster cannot be reached, the file cannot be made, or a thread not be started.
    pub fn start(
        seeds: &[String],
        login: &Login,
        level: DurabilityLevel,
        random: u64,
        path: &Path,
    ) -> Result<Recorder, TortureError> {
        let seed = seeds.first().map_or("", String::as_str);
        let target = Target::discover(Protocol::Couchbase, seed, login.clone());
        let failed = |error: LoadError| TortureError::Node(format!("histories: {error}"));
        let target = Arc::new(target.map_err(failed)?);
        let (over, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let (outbox, lines) = channel();
        let board = Arc::new(Board::default());
        let file = File::create(path)?;
        let scribe = std::thread::Builder::new().name("scribe".to_owned());
        let scribe = scribe.spawn(move || write_down(&lines, file))?;
        let mut threads = Vec::new();
        for number in 0..CLIENTS {
            let client = Historian {
                number,
                router: Router {
                    seeds: seeds.to_vec(),
                    login: login.clone(),
                    target: target.clone(),
                    map: None,
                    connections: HashMap::new(),
                },
                rng: fastrand::Rng::with_seed(random ^ (number + 1)),
                level,
                lost: HashMap::new(),
                written: 0,
                began,
                board: board.clone(),
                outbox: outbox.clone(),
                over: over.clone(),
            };
            threads.push(
                std::thread::Builder::new()
                    .name(format!("historian {number}"))
                    .spawn(move || client.work())?,
            );
        }
        for (number, address) in seeds.iter().enumerate() {
            let reader = Pinned {
                number,
                address: address.clone(),
                login: login.clone(),
                board: board.clone(),
                began,
                outbox: outbox.clone(),
                over: over.clone(),
            };
            let thread = std::thread::Builder::new().name(format!("pinned reader {number}"));
            threads.push(thread.spawn(move || reader.work())?);
        }
        Ok(Recorder { over, clients: threads, scribe })
    }

    /// Ends them; the history is whole then.
    ///
    /// # Errors
    /// The file could not be written, or a client had panicked.
    pub fn finish(self) -> Result<Recorded, TortureError> {
        self.over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().map_err(|_| TortureError::Thread)?;
        }
        Ok(self.scribe.join().map_err(|_| TortureError::Thread)??)
    }
}

/// Writes lines for as long as there are clients.
fn write_down(lines: &Receiver<Value>, file: File) -> io::Result<Recorded> {
    let (mut out, mut recorded) = (BufWriter::new(file), Recorded::default());
    for line in lines {
        recorded.operations += 1;
        recorded.lost += u64::from(line["return"].is_null());
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(recorded)
}

/// One client.
struct Historian {
    number: u64,
    router: Router,
    rng: fastrand::Rng,
    level: DurabilityLevel,
    /// Lost answers by key.
    lost: HashMap<String, u32>,
    /// Values are distinct over all clients.
    written: u64,
    began: Instant,
    board: Arc<Board>,
    outbox: Sender<Value>,
    over: Arc<AtomicBool>,
}

/// What became of an operation.
enum Ended {
    /// It was carried out, with this to show for it.
    With(Value),
    /// It had no effect and never will.
    Refused,
    /// Nobody knows.
    Lost,
}

impl Historian {
    fn work(mut self) {
        while !self.over.load(Ordering::Relaxed) {
            self.operate();
            std::thread::sleep(REST);
        }
    }

    fn operate(&mut self) {
        let is_counter = self.rng.bool();
        let reads = self.rng.u8(..3) == 0;
        let kind = if is_counter { "counter" } else { "register" };
        let base = format!("{kind}-{}", self.rng.u64(..KEYS));
        // A key that is old, or has too many lost answers, is left for a new one. What others do to the old one goes on
        // to count.
        let age = self.began.elapsed().as_secs() / AGE_MAX.as_secs();
        let retired = self.lost.get(&base).copied().unwrap_or(0) / LOST_MAX;
        let key = format!("{base}-{}-{age}-{retired}", self.number % 2);
        self.board.post(format!("{base}-{}", self.number % 2), kind, &key);
        let op = match (is_counter, reads) {
            (_, true) => "read",
            (true, false) => "add",
            (false, false) => "write",
        };
        self.written += 1;
        let value = self.number + 1_000 * self.written;
        let called = self.now();
        let ended = match op {
            "read" => self.read(&key),
            "add" => self.add(&key),
            _ => self.write(&key, value),
        };
        let returned = self.now();
        let mut line = json!({"client": self.number, "kind": kind, "key": key, "op": op, "call": called});
        if op == "write" {
            line["value"] = json!(value);
        }
        match ended {
            Ended::Refused => return,
            // A read without an answer says nothing.
            Ended::Lost if op == "read" => return,
            Ended::Lost => *self.lost.entry(base).or_default() += 1,
            Ended::With(result) => {
                line["return"] = json!(returned);
                line["result"] = result;
            }
        }
        // The other end lives until all clients have ended, or the file takes no more, which the end of the run tells.
        let _ = self.outbox.send(line);
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn read(&mut self, key: &str) -> Ended {
        let request = Request { key: key.as_bytes(), ..Request::new(Opcode::Get) };
        match self.router.ask(&request) {
            Ok(response) => match response.status {
                Some(Status::Success) => Ended::With(value_of(&response.value)),
                Some(Status::KeyNotFound) => Ended::With(Value::Null),
                _ => Ended::Refused,
            },
            Err(ended) => ended,
        }
    }

    fn write(&mut self, key: &str, value: u64) -> Ended {
        let extras = StoreExtras { flags: 0, expiry: 0 }.encode();
        let value = value.to_string();
        let request = Request {
            key: key.as_bytes(),
            value: value.as_bytes(),
            extras: &extras,
            ..durable(Opcode::Set, self.level)
        };
        self.router.ask(&request).map_or_else(|ended| ended, |response| written(&response, Value::Null))
    }

    fn add(&mut self, key: &str) -> Ended {
        let extras = CounterExtras { delta: 1, initial: 1, expiry: 0 }.encode();
        let request =
            Request { key: key.as_bytes(), extras: &extras, ..durable(Opcode::Increment, self.level) };
        self.router.ask(&request).map_or_else(
            |ended| ended,
            |response| {
                let number = <[u8; 8]>::try_from(&response.value[..]).map(u64::from_be_bytes).ok();
                written(&response, json!(number))
            },
        )
    }
}

fn durable(opcode: Opcode, level: DurabilityLevel) -> Request<'static> {
    let mut request = Request::new(opcode);
    request.info.durability = Some(Durability { level, timeout_ms: Some(2_000) });
    request
}

/// A value as the history has it: a number, or the text that nobody should have written.
pub(super) fn value_of(value: &[u8]) -> Value {
    let text = String::from_utf8_lossy(value);
    text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number))
}

fn written(response: &Response, result: Value) -> Ended {
    match response.status {
        Some(Status::Success) => Ended::With(result),
        Some(Status::SyncWriteAmbiguous) => Ended::Lost,
        _ => Ended::Refused,
    }
}

/// Sends requests where the map says. A node that does not answer any more loses its connection.
struct Router {
    seeds: Vec<String>,
    login: Login,
    target: Arc<Target>,
    map: Option<ClusterMap>,
    connections: HashMap<String, KvConnection>,
}

impl Router {
    /// Asks until a real answer comes. What was refused before anything happened is asked again, of the node that the
    /// newest map names. A broken connection is the end, because the request may have had its effect.
    fn ask(&mut self, request: &Request<'_>) -> Result<Response, Ended> {
        let began = Instant::now();
        while began.elapsed() < RIDE {
            let Some((vbucket, node)) = self.home(request.key) else {
                std::thread::sleep(PAUSE);
                continue;
            };
            if !self.connections.contains_key(&node) {
                let open = KvConnection::open_within(&node, &self.login, PATIENCE);
                // A client that waits longer for a node that sleeps writes nothing that the node would not know of.
                match open.and_then(|open| open.set_patience(PATIENCE).map(|()| open)) {
                    Ok(open) => drop(self.connections.insert(node.clone(), open)),
                    Err(_) => {
                        self.map = None;
                        std::thread::sleep(PAUSE);
                        continue;
                    }
                }
            }
            let Some(connection) = self.connections.get_mut(&node) else { continue };
            let answer = connection.call(&Request { vbucket, ..*request });
            match answer {
                Ok(response) => match response.status {
                    Some(Status::NotMyVbucket) => self.learn(&node, &response.value),
                    Some(Status::TemporaryFailure | Status::Busy | Status::SyncWriteInProgress) => {}
                    _ => return Ok(response),
                },
                Err(error) => {
                    self.connections.remove(&node);
                    self.map = None;
                    return Err(if is_unsent(&error) { Ended::Refused } else { Ended::Lost });
                }
            }
            std::thread::sleep(PAUSE);
        }
        Err(Ended::Refused)
    }

    /// Takes the map that a node has refused a request with; without a newer one all nodes are asked.
    fn learn(&mut self, node: &str, map: &[u8]) {
        let known = self.map.as_ref().map(|map| map.version);
        let told = ClusterMap::of_refusal(map, node);
        self.map = told.filter(|map| known.is_none_or(|known| known < map.version));
    }

    /// vBucket and node of a key; the map is fetched if there is none.
    fn home(&mut self, key: &[u8]) -> Option<(VbId, String)> {
        if self.map.is_none() {
            self.map = self.target.newest_map(&self.seeds);
        }
        let map = self.map.as_ref()?;
        let vbucket = map.vbucket_of(key);
        let node = map.active_node(vbucket);
        if node.is_none() {
            self.map = None;
        }
        Some((vbucket, self.map.as_ref()?.nodes.get(node?)?.clone()))
    }
}

fn is_unsent(error: &ClientError) -> bool {
    matches!(error, ClientError::Connect { .. })
}
