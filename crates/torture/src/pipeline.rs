//! Many requests under way to the nodes that serve their keys, over one connection per node, as SDKs do it.
//!
//! Blocking: a caller waits for the next answer. Answers may overtake each other (unordered execution is negotiated),
//! so every request carries a tag of its sender's. Statuses are reported and not acted upon, but for "not my vBucket",
//! which SDKs hide from their users. A connection that broke is an error, and what was under way on it is handed back
//! as of unknown outcome.

use crate::target::Target;
use base::{Status, VbId};
use client::{ClientError, ClusterMap, KvConnection, Login};
use protocol::binary::extras::MutationToken;
use protocol::binary::{Opaque, Opcode, Request};
use protocol::hello::Feature;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::{Duration, Instant};

/// How long a request is sent where newer maps say.
const MOVES: Duration = Duration::from_secs(10);
/// Between two fetches of the map: what comes back sooner would still be the old one.
const PAUSE: Duration = Duration::from_millis(20);

/// A reply.
#[derive(Debug)]
pub struct Answer<T> {
    /// What the request was sent with.
    pub tag: T,
    /// Status on the wire.
    pub code: u16,
    /// Since it was queued.
    pub took: Duration,
    /// Place in the vBucket's history, of a mutation.
    pub seqno: Option<u64>,
    /// The value, or what the server says about its refusal.
    pub value: Vec<u8>,
}

impl<T> Answer<T> {
    /// Whether the status is this one.
    #[must_use]
    pub fn is(&self, status: Status) -> bool {
        self.code == status.code()
    }
}

/// A request that may have to be sent again.
struct Kept {
    opcode: Opcode,
    key: Vec<u8>,
    value: Vec<u8>,
    extras: Vec<u8>,
}

impl Kept {
    fn request(&self, vbucket: VbId) -> Request<'_> {
        Request {
            vbucket,
            key: &self.key,
            value: &self.value,
            extras: &self.extras,
            ..Request::new(self.opcode)
        }
    }
}

/// What is under way: for whom, since when, and what.
struct Asked<T> {
    tag: T,
    since: Instant,
    kept: Kept,
}

struct Lane<T> {
    connection: KvConnection,
    under_way: HashMap<Opaque, Asked<T>>,
}

/// The connections of one client.
pub struct Pipeline<T> {
    map: ClusterMap,
    login: Login,
    /// By the node's address, which outlives its place in the map.
    lanes: BTreeMap<String, Lane<T>>,
    /// Lane that was asked last for an answer.
    turn: String,
    /// Refused where they were sent, and no other node is known: sent again with the next map.
    waiting: Vec<Asked<T>>,
    /// When the map was asked for last on their account.
    asked_map: Instant,
    /// The node that was asked: a client that proves a password anew each time does little else.
    informant: Option<KvConnection>,
}

impl<T> Pipeline<T> {
    /// Learns who serves what; connections are made when first needed.
    ///
    /// # Errors
    /// The seed cannot be reached or refuses.
    pub fn open(target: &dyn Target) -> Result<Pipeline<T>, ClientError> {
        let login = target.login();
        let map = KvConnection::open(&target.seed(), &login)?.cluster_map()?;
        Ok(Pipeline {
            map,
            login,
            lanes: BTreeMap::new(),
            turn: String::new(),
            waiting: Vec::new(),
            asked_map: Instant::now(),
            informant: None,
        })
    }

    /// How many requests are unanswered.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.lanes.values().map(|lane| lane.under_way.len()).sum::<usize>() + self.waiting.len()
    }

    /// The vBucket of a key.
    #[must_use]
    pub fn vbucket_of(&self, key: &str) -> VbId {
        self.map.vbucket_of(key.as_bytes())
    }

    /// Queues a request for the node that serves its key.
    ///
    /// # Errors
    /// Nobody serves it, or the node cannot be reached. Nothing was sent then.
    pub fn push(&mut self, request: &Request<'_>, tag: T) -> Result<(), ClientError> {
        let kept = Kept {
            opcode: request.opcode,
            key: request.key.to_vec(),
            value: request.value.to_vec(),
            extras: request.extras.to_vec(),
        };
        let (lane, opaque) = self.queue(&kept)?;
        lane.under_way.insert(opaque, Asked { tag, since: Instant::now(), kept });
        Ok(())
    }

    /// The address of the node that serves a key.
    fn home(&self, key: &[u8]) -> Option<&str> {
        self.map.active_node(self.map.vbucket_of(key)).map(|node| self.map.nodes[node].as_str())
    }

    /// Queues it on the lane that is returned, with the number that its answer will have.
    fn queue(&mut self, kept: &Kept) -> Result<(&mut Lane<T>, Opaque), ClientError> {
        let vbucket = self.map.vbucket_of(&kept.key);
        let address = self.home(&kept.key).map(str::to_owned);
        let address = address
            .ok_or_else(|| ClientError::Protocol(format!("no node serves vBucket {}", vbucket.get())))?;
        let lane = match self.lanes.entry(address) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(empty) => {
                let mut connection = KvConnection::open(empty.key(), &self.login)?;
                let features = connection.features().with(Feature::UnorderedExecution);
                connection.hello(features.with(Feature::DedupeNotMyVbucketMap))?;
                empty.insert(Lane { connection, under_way: HashMap::new() })
            }
        };
        let opaque = lane.connection.queue(&kept.request(vbucket))?;
        Ok((lane, opaque))
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// A connection broke.
    pub fn send(&mut self) -> Result<(), ClientError> {
        self.lanes.values_mut().try_for_each(|lane| lane.connection.send())
    }

    /// Waits for the next answer; `None` if nothing is under way. What is queued must have been sent. "Not my vBucket" is no
    /// answer for long: the request goes where a newer map says.
    ///
    /// # Errors
    /// A connection broke.
    pub fn pull(&mut self) -> Result<Option<Answer<T>>, ClientError> {
        loop {
            if let Some(late) = self.waiting.iter().position(|asked| asked.since.elapsed() > MOVES) {
                let asked = self.waiting.swap_remove(late);
                let (code, took) = (Status::NotMyVbucket.code(), asked.since.elapsed());
                return Ok(Some(Answer { tag: asked.tag, code, took, seqno: None, value: Vec::new() }));
            }
            let busy = |lane: &(&String, &Lane<T>)| !lane.1.under_way.is_empty();
            let after = (Bound::Excluded(self.turn.clone()), Bound::Unbounded);
            let next = self.lanes.range(after).find(busy).or_else(|| self.lanes.iter().find(busy));
            let next = next.map(|(address, _)| address.clone());
            if !self.waiting.is_empty() && (next.is_none() || self.asked_map.elapsed() >= PAUSE) {
                self.send_waiting()?;
                continue;
            }
            let Some(address) = next else { return Ok(None) };
            self.turn.clone_from(&address);
            let Some(lane) = self.lanes.get_mut(&address) else { return Ok(None) };
            let frame = lane.connection.receive()?;
            let opaque = frame.header.opaque;
            let (code, value) = (frame.header.vbucket_or_status, frame.value.to_vec());
            let seqno = MutationToken::decode(frame.extras).map(|token| token.seqno.get());
            let asked = lane.under_way.remove(&opaque).ok_or_else(|| {
                ClientError::Protocol("an answer to a request that was not made".to_owned())
            })?;
            if code != Status::NotMyVbucket.code() {
                return Ok(Some(Answer { tag: asked.tag, code, took: asked.since.elapsed(), seqno, value }));
            }
            if let Some(map) = ClusterMap::of_refusal(&value, &address).filter(|map| self.is_newer(map)) {
                self.map = map;
            }
            if self.home(&asked.kept.key).is_some_and(|home| home != address) {
                self.send_again(asked)?;
            } else {
                self.waiting.push(asked);
            }
        }
    }

    fn is_newer(&self, map: &ClusterMap) -> bool {
        map.version > self.map.version
    }

    /// Fetches the map, not too soon after the last time, and sends what waits for it.
    fn send_waiting(&mut self) -> Result<(), ClientError> {
        std::thread::sleep(PAUSE.saturating_sub(self.asked_map.elapsed()));
        self.asked_map = Instant::now();
        self.follow()?;
        let mut due = std::mem::take(&mut self.waiting);
        while let Some(asked) = due.pop() {
            if self.home(&asked.kept.key).is_none() {
                self.waiting.push(asked);
            } else if let Err(error) = self.send_again(asked) {
                self.waiting.append(&mut due);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Sends it where the map says; what cannot be sent waits.
    fn send_again(&mut self, asked: Asked<T>) -> Result<(), ClientError> {
        match self.queue(&asked.kept) {
            Ok((lane, opaque)) => {
                lane.under_way.insert(opaque, asked);
                lane.connection.send()
            }
            Err(error) => {
                self.waiting.push(asked);
                Err(error)
            }
        }
    }

    /// Fetches the map anew, from whichever node gives one.
    fn follow(&mut self) -> Result<(), ClientError> {
        let again = self.informant.take().map(|mut node| node.cluster_map().map(|map| (node, map)));
        let (node, map) = match again {
            Some(Ok(told)) => told,
            _ => self.ask_around()?,
        };
        self.informant = Some(node);
        if self.is_newer(&map) {
            self.map = map;
        }
        Ok(())
    }

    /// The first node that gives a map.
    fn ask_around(&self) -> Result<(KvConnection, ClusterMap), ClientError> {
        let mut last = ClientError::Protocol("the map names no nodes".to_owned());
        for node in &self.map.nodes {
            let asked = KvConnection::open(node, &self.login);
            match asked.and_then(|mut node| node.cluster_map().map(|map| (node, map))) {
                Ok(told) => return Ok(told),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Whether an answer is there already.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.lanes.values().any(|lane| lane.connection.has_reply())
    }

    /// Sends one request and waits for its answer. Nothing else may be under way.
    ///
    /// # Errors
    /// The connection broke.
    pub fn ask(&mut self, request: &Request<'_>, tag: T) -> Result<Answer<T>, ClientError> {
        self.push(request, tag)?;
        self.send()?;
        self.pull()?.ok_or_else(|| ClientError::Protocol("no answer".to_owned()))
    }

    /// Drops all connections; returns what was under way on them, whose outcome nobody knows.
    pub fn abandon(&mut self) -> Vec<T> {
        let lanes = std::mem::take(&mut self.lanes);
        let lost = lanes.into_values().flat_map(|lane| lane.under_way.into_values());
        lost.chain(self.waiting.drain(..)).map(|asked| asked.tag).collect()
    }
}
