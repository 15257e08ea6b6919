//! Questions that services ask themselves on other nodes, and those that they are asked.
//!
//! They go the way of everything that nodes say to one another ([`super::peers`]); who may ask is decided by REST's table of routes. A
//! service that asks this node is answered without a connection.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use admin::AnswerParts;
use base::NodeId;
use cluster::auth::Identity;
use hyper::body::Bytes;
use parking_lot::{Mutex, RwLock};
use service::{Answer, Answers, AskError, Nodes, QUESTION_BYTES_MAX};
use tokio::runtime::Handle;

use super::{
    identity::ThisNode,
    peers::{OPEN_ANSWERS, Peers},
};

/// See the module.
pub(crate) struct Questions {
    runtime: Handle,
    peers: Arc<Peers>,
    this_node: Arc<ThisNode>,
    /// What answers, by the names of services.
    answers: RwLock<BTreeMap<&'static str, Arc<dyn Answers>>>,
    /// Answers that have not ended, by the node that asked.
    open: Arc<Mutex<HashMap<Identity, usize>>>,
}

impl Questions {
    pub(crate) fn new(runtime: Handle, peers: Arc<Peers>, this_node: Arc<ThisNode>) -> Arc<Self> {
        Arc::new(Self { runtime, peers, this_node, answers: RwLock::default(), open: Arc::default() })
    }

    /// From now on a service is asked, and answers.
    pub(crate) fn answered_by(&self, service: &'static str, answers: Arc<dyn Answers>) {
        self.answers.write().insert(service, answers);
    }

    /// A service answers no more.
    pub(crate) fn forget(&self, service: &str) {
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
        let place = Place::take(&self.open, from).ok_or("too many questions of this node are open")?;
        if question.len() > QUESTION_BYTES_MAX {
            return Err(TOO_LONG.to_owned());
        }
        let mut answer = self.here(service, question);
        let first = answer.next().await.map_err(|error| error.to_string())?;
        Ok(Box::new(Given { first, answer, _place: place }))
    }

    fn here(&self, service: &str, question: Bytes) -> Answer {
        match self.answers.read().get(service) {
            Some(answers) => Answer::of(&self.runtime, answers, question),
            None => {
                Answer::failed(AskError::Refused(format!("the service {service} answers no questions here")))
            }
        }
    }
}

const TOO_LONG: &str = "the question is too long";

/// A service that asks.
struct Asking {
    all: Arc<Questions>,
    service: &'static str,
}

impl Nodes for Asking {
    fn ask(&self, node: NodeId, question: Bytes, patience: Duration) -> Answer {
        if question.len() > QUESTION_BYTES_MAX {
            return Answer::failed(AskError::Refused(TOO_LONG.to_owned()));
        }
        if node == self.all.this_node.id() {
            return self.all.here(self.service, question);
        }
        let (peers, service) = (Arc::clone(&self.all.peers), self.service);
        Answer::made_by(&self.all.runtime, |parts| async move {
            peers.ask_service(node, service, question, patience, parts).await
        })
    }
}

/// A place among the answers to one node; dropping it gives it back.
struct Place {
    open: Arc<Mutex<HashMap<Identity, usize>>>,
    of: Identity,
}

impl Place {
    fn take(open: &Arc<Mutex<HashMap<Identity, usize>>>, of: &Identity) -> Option<Self> {
        let mut counts = open.lock();
        let count = counts.entry(of.clone()).or_default();
        if *count >= OPEN_ANSWERS {
            return None;
        }
        *count += 1;
        Some(Self { open: Arc::clone(open), of: of.clone() })
    }
}

impl Drop for Place {
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
    _place: Place,
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
