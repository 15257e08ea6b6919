//! Questions that a service asks the same service on other nodes, and answers that come in parts.
//!
//! Whatever the other node does costs the asker a bounded amount of memory and time:
//!
//! - The next part is fetched when there is room for it: one part waits for the asker, and the other node waits as well.
//! - A user on whose behalf a service asks has a share of the questions that may be open ([`Nodes::ask_for`]).
//! - An asker that drops an [`Answer`] ends it on the other node too: what makes it is dropped there.
//! - What goes wrong is a value ([`AskError`]). An answer ends by [`Answer::next`] saying so, never by silence.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use base::NodeId;
use cluster::auth::Identity;
use http::BoxFuture;
use hyper::body::Bytes;
use tokio::{
    runtime::Handle,
    sync::mpsc::{self, Receiver, Sender},
    task::JoinHandle,
};

/// Longest question: one with all keys that a client's request has room for.
pub const QUESTION_BYTES_MAX: usize = 32 << 20;

/// What a node says to a question to a service that does not run there: the node starts or stops. A moment later it may answer.
pub const NOT_RUNNING: &str = "the service does not run on this node now";

/// Why there is no answer, or no more of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The question did not reach the node.
    #[error("{0}")]
    Unreachable(String),
    /// The node, or its service, does not answer the question.
    #[error("{0}")]
    Refused(String),
    /// The answer has begun, or may have, and did not come to its end.
    #[error("the answer broke off: {0}")]
    BrokenOff(String),
    /// The next part did not come in time.
    #[error("no answer came in time")]
    TimedOut,
}

/// How a service reaches itself on other nodes.
pub trait Nodes: Send + Sync {
    /// Asks a node, which may be this one. `patience` is for each part of the answer, from when the asker has room for it. Of a
    /// connection that breaks, the node may hear a question twice.
    fn ask(&self, node: NodeId, question: Bytes, patience: Duration) -> Answer;
    /// The same on behalf of a user, who has a share of the questions to a node that may be open. Without a share in an implementation,
    /// it is [`Nodes::ask`].
    fn ask_for(&self, user: &Identity, node: NodeId, question: Bytes, patience: Duration) -> Answer {
        let _ = user;
        self.ask(node, question, patience)
    }
}

/// What a service answers when it is asked on another node.
pub trait Answers: Send + Sync {
    /// Answers one question by parts, until the future ends. An error before the first part is a refusal.
    ///
    /// The future runs among those of the node's management: work that blocks belongs on a thread for that. It is dropped when the asker
    /// is gone; such a thread notices by [`Parts::send_blocking`].
    fn answer(&self, question: Bytes, parts: Parts) -> BoxFuture<'static, Result<(), String>>;
}

/// Where the parts of an answer go.
#[derive(Debug)]
pub struct Parts(Sender<Step>);

/// Nobody takes the parts of an answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody waits for the answer any more")]
pub struct Gone;

impl Parts {
    /// Gives a part, once there is room for it.
    ///
    /// # Errors
    /// Nobody takes it.
    pub async fn send(&self, part: Bytes) -> Result<(), Gone> {
        self.0.send(Step::Part(part)).await.map_err(|_| Gone)
    }

    /// The same for a thread that may block.
    ///
    /// # Errors
    /// Nobody takes it.
    pub fn send_blocking(&self, part: Bytes) -> Result<(), Gone> {
        self.0.blocking_send(Step::Part(part)).map_err(|_| Gone)
    }
}

/// An answer on its way. Dropping it ends it.
#[derive(Debug)]
pub struct Answer {
    steps: Receiver<Step>,
    /// It is aborted with the answer.
    _task: Task,
    has_begun: bool,
    ended: Option<Result<(), AskError>>,
}

#[derive(Debug)]
enum Step {
    Part(Bytes),
    End(Result<(), AskError>),
}

#[derive(Debug)]
struct Task(Option<JoinHandle<()>>);

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Answer {
    /// An answer that a task makes.
    pub fn made_by<F>(runtime: &Handle, make: impl FnOnce(Parts) -> F) -> Self
    where
        F: Future<Output = Result<(), AskError>> + Send + 'static,
    {
        let (sender, steps) = mpsc::channel(1);
        let making = make(Parts(sender.clone()));
        let task = runtime.spawn(async move {
            let ended = making.await;
            // An asker that is gone needs no end.
            let _ = sender.send(Step::End(ended)).await;
        });
        Self { steps, _task: Task(Some(task)), has_begun: false, ended: None }
    }

    /// The answer of a service of this node. `until_it_ends` is dropped with it.
    pub fn of(
        runtime: &Handle,
        answers: &Arc<dyn Answers>,
        question: Bytes,
        until_it_ends: impl Send + 'static,
    ) -> Self {
        Self::made_by(runtime, |parts| {
            let answering = answers.answer(question, parts);
            async move {
                let _until_it_ends = until_it_ends;
                answering.await.map_err(AskError::Refused)
            }
        })
    }

    /// An answer that is nothing but this error.
    #[must_use]
    pub fn failed(error: AskError) -> Self {
        let (_, steps) = mpsc::channel(1);
        Self { steps, _task: Task(None), has_begun: false, ended: Some(Err(error)) }
    }

    /// The next part; nothing at the end. A call that is given up loses nothing.
    ///
    /// # Errors
    /// Nothing more comes.
    pub async fn next(&mut self) -> Result<Option<Bytes>, AskError> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The same by hand.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, AskError>> {
        if let Some(ended) = &self.ended {
            return Poll::Ready(ended.clone().map(|()| None));
        }
        let ended = match ready!(self.steps.poll_recv(context)) {
            Some(Step::Part(part)) => {
                self.has_begun = true;
                return Poll::Ready(Ok(Some(part)));
            }
            Some(Step::End(Err(AskError::Refused(reason)))) if self.has_begun => {
                Err(AskError::BrokenOff(reason))
            }
            Some(Step::End(ended)) => ended,
            // The task panicked, or the runtime ends.
            None => Err(AskError::BrokenOff("it was given up".to_owned())),
        };
        self.ended = Some(ended.clone());
        Poll::Ready(ended.map(|()| None))
    }
}

#[cfg(test)]
mod tests;
