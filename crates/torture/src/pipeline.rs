//! Many requests under way to the nodes that serve their keys, over one connection per node, as SDKs do it.
//!
//! Blocking: whoever wants the next answer waits for it. Answers may overtake each other (unordered execution is
//! negotiated), so every request carries a tag of its sender's. Statuses are reported, never acted upon; a connection
//! that broke is an error, and what was under way on it is handed back as of unknown outcome.

use crate::target::Target;
use base::{Status, VbId};
use client::{ClientError, ClusterMap, KvConnection, Login};
use protocol::binary::extras::MutationToken;
use protocol::binary::{Opaque, Request};
use protocol::hello::Feature;
use std::collections::HashMap;
use std::time::{Duration, Instant};

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

struct Lane<T> {
    connection: KvConnection,
    under_way: HashMap<Opaque, (T, Instant)>,
}

/// The connections of one client.
pub struct Pipeline<T> {
    map: ClusterMap,
    login: Login,
    lanes: Vec<Option<Lane<T>>>,
    /// Lane that is asked first for the next answer.
    turn: usize,
}

impl<T> Pipeline<T> {
    /// Learns who serves what; connections are made when first needed.
    ///
    /// # Errors
    /// The seed cannot be reached or refuses.
    pub fn open(target: &dyn Target) -> Result<Pipeline<T>, ClientError> {
        let login = target.login();
        let map = KvConnection::open(&target.seed(), &login)?.cluster_map()?;
        let lanes = map.nodes.iter().map(|_| None).collect();
        Ok(Pipeline { map, login, lanes, turn: 0 })
    }

    /// How many requests are unanswered.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.lanes.iter().flatten().map(|lane| lane.under_way.len()).sum()
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
        let vbucket = self.map.vbucket_of(request.key);
        let node = self.map.active_node(vbucket);
        let node =
            node.ok_or_else(|| ClientError::Protocol(format!("no node serves vBucket {}", vbucket.get())))?;
        let lane = match &mut self.lanes[node] {
            Some(lane) => lane,
            empty => {
                let mut connection = KvConnection::open(&self.map.nodes[node], &self.login)?;
                connection.hello(connection.features().with(Feature::UnorderedExecution))?;
                empty.insert(Lane { connection, under_way: HashMap::new() })
            }
        };
        let opaque = lane.connection.queue(&Request { vbucket, ..*request })?;
        lane.under_way.insert(opaque, (tag, Instant::now()));
        Ok(())
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// A connection broke.
    pub fn send(&mut self) -> Result<(), ClientError> {
        self.lanes.iter_mut().flatten().try_for_each(|lane| lane.connection.send())
    }

    /// Waits for the next answer; `None` if nothing is under way. What is queued must have been sent.
    ///
    /// # Errors
    /// A connection broke.
    pub fn pull(&mut self) -> Result<Option<Answer<T>>, ClientError> {
        let lanes = self.lanes.len();
        let busy = |lane: &usize| self.lanes[*lane].as_ref().is_some_and(|lane| !lane.under_way.is_empty());
        let Some(node) = (0..lanes).map(|step| (self.turn + step) % lanes).find(busy) else {
            return Ok(None);
        };
        self.turn = node + 1;
        let Some(lane) = &mut self.lanes[node] else { return Ok(None) };
        let frame = lane.connection.receive()?;
        let opaque = frame.header.opaque;
        let (code, value) = (frame.header.vbucket_or_status, frame.value.to_vec());
        let seqno = MutationToken::decode(frame.extras).map(|token| token.seqno.get());
        let (tag, queued) = lane
            .under_way
            .remove(&opaque)
            .ok_or_else(|| ClientError::Protocol("an answer to a request that was not made".to_owned()))?;
        Ok(Some(Answer { tag, code, took: queued.elapsed(), seqno, value }))
    }

    /// Whether an answer is there already.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.lanes.iter().flatten().any(|lane| lane.connection.has_reply())
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
        let lanes = self.lanes.iter_mut().filter_map(Option::take);
        lanes.flat_map(|lane| lane.under_way.into_values()).map(|(tag, _)| tag).collect()
    }
}
