//! Questions that services ask themselves on other nodes, and those that they are asked.
//!
//! They go the way of everything that nodes say to one another ([`crate::talk::peers`]); who may ask is decided by REST's table of routes. A
//! service that asks this node is answered without a connection.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use admin::AnswerParts;
use base::NodeId;
use cluster::auth::Identity;
use http::Behind;
use hyper::body::Bytes;
use parking_lot::{Mutex, RwLock};
use service::{Answer, Answers, AskError, NOT_RUNNING, Nodes, QUESTION_BYTES_MAX};
use tokio::runtime::Handle;

use crate::{
    setup::identity::ThisNode,
    talk::peers::{OPEN_ANSWERS, Peers},
};

/// See the module.
pub(crate) struct Questions {
    runtime: Handle,
    peers: Arc<Peers>,
    this_node: Arc<ThisNode>,
    /// What answers, by the names of services.
    answers: RwLock<BTreeMap<&'static str, Arc<dyn Answers>>>,
    /// What answers clients that come by the management ports, by the names of services.
    behind: RwLock<BTreeMap<&'static str, Arc<dyn Behind>>>,
    /// Answers that have not ended, by the node that asked.
    open: Arc<Places<Identity>>,
    /// Questions whose answers have not ended, by the node that is asked and the user on whose behalf.
    asked: Arc<Places<(NodeId, Identity)>>,
}

/// Answers to one node on behalf of one user that may be open: others have room beside.
const OPEN_FOR_USER: usize = OPEN_ANSWERS / 4;

impl Questions {
    pub(crate) fn new(runtime: Handle, peers: Arc<Peers>, this_node: Arc<ThisNode>) -> Arc<Self> {
        let (answers, behind, open, asked) = Default::default();
        Arc::new(Self { runtime, peers, this_node, answers, behind, open, asked })
    }

    /// From now on a service is asked, and answers.
    pub(crate) fn answered_by(&self, service: &'static str, answers: Arc<dyn Answers>) {
        self.answers.write().insert(service, answers);
    }

    /// From now on clients reach a service by the management ports.
    pub(crate) fn reached_by(&self, service: &'static str, behind: Arc<dyn Behind>) {
        self.behind.write().insert(service, behind);
    }

    /// What answers clients of a service that come by the management ports.
    pub(crate) fn behind(&self, service: &str) -> Option<Arc<dyn Behind>> {
        self.behind.read().get(service).cloned()
    }

    /// A service answers no more.
    pub(crate) fn forget(&self, service: &str) {
        self.behind.write().remove(service);
        self.answers.write().remove(service);
    }

    /// How a service asks.
    pub(crate) fn of(self: &Arc<Self>, service: &'static str) -> Arc<dyn Nodes> {
        Arc::new(Asking { all: Arc::clone(self), service })
    }

    /// The answer to another node, once it begins.
    pub(crate) async fn answer(
        &self,
        service: &str,
        question: Bytes,
        from: &Identity,
    ) -> Result<Box<dyn AnswerParts>, String> {
        let place = Place::take(&self.open, from.clone(), OPEN_ANSWERS);
        let place = place.ok_or("too many questions of this node are open")?;
        if question.len() > QUESTION_BYTES_MAX {
            return Err(TOO_LONG.to_owned());
        }
        let mut answer = self.here(service, question, None);
        let first = answer.next().await.map_err(|error| error.to_string())?;
        Ok(Box::new(Given { first, answer, _place: place }))
    }

    fn here(&self, service: &str, question: Bytes, place: Option<Place<(NodeId, Identity)>>) -> Answer {
        match self.answers.read().get(service) {
            Some(answers) => Answer::of(&self.runtime, answers, question, place),
            None => Answer::failed(AskError::Refused(NOT_RUNNING.to_owned())),
        }
    }
}

const TOO_LONG: &str = "the question is too long";
const TOO_MANY_OF_USER: &str = "too many questions on behalf of this user are open";

/// A service that asks.
struct Asking {
    all: Arc<Questions>,
    service: &'static str,
}

impl Nodes for Asking {
    fn ask(&self, node: NodeId, question: Bytes, patience: Duration) -> Answer {
        self.ask_within(None, node, question, patience)
    }

    fn ask_for(&self, user: &Identity, node: NodeId, question: Bytes, patience: Duration) -> Answer {
        let user = Identity::unproved(&user.name, user.domain);
        match Place::take(&self.all.asked, (node, user), OPEN_FOR_USER) {
            Some(place) => self.ask_within(Some(place), node, question, patience),
            None => Answer::failed(AskError::Refused(TOO_MANY_OF_USER.to_owned())),
        }
    }
}

impl Asking {
    fn ask_within(
        &self,
        place: Option<Place<(NodeId, Identity)>>,
        node: NodeId,
        question: Bytes,
        patience: Duration,
    ) -> Answer {
        if question.len() > QUESTION_BYTES_MAX {
            return Answer::failed(AskError::Refused(TOO_LONG.to_owned()));
        }
        if node == self.all.this_node.id() {
            return self.all.here(self.service, question, place);
        }
        let (peers, service) = (Arc::clone(&self.all.peers), self.service);
        Answer::made_by(&self.all.runtime, |parts| async move {
            let _until_it_ends = place;
            peers.ask_service(node, service, question, patience, parts).await
        })
    }
}

/// How many are open, by what they are counted by.
type Places<K> = Mutex<HashMap<K, usize>>;

/// A place among those; dropping it gives it back.
struct Place<K: Eq + Hash> {
    open: Arc<Places<K>>,
    of: K,
}

impl<K: Eq + Hash + Clone> Place<K> {
    fn take(open: &Arc<Places<K>>, of: K, most: usize) -> Option<Self> {
        let mut counts = open.lock();
        let count = counts.entry(of.clone()).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Self { open: Arc::clone(open), of })
    }
}

impl<K: Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut counts = self.open.lock();
        if let Some(count) = counts.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.of);
            }
        }
    }
}

/// An answer that has begun.
struct Given {
    first: Option<Bytes>,
    answer: Answer,
    _place: Place<Identity>,
}

impl AnswerParts for Given {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, String>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let next = ready!(self.answer.poll_next(context));
        Poll::Ready(next.map_err(|error| error.to_string()).transpose())
    }
}

#[cfg(test)]
mod tests;
