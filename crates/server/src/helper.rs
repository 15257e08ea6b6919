//! Work too slow for a data-plane loop: password hashing for PLAIN, and emptying a bucket on a legacy FLUSH.
//!
//! One thread, one bounded queue. The request that needs the work is parked; its result arrives in the worker's
//! mailbox. A full queue is answered with a temporary failure by whoever asked, so that a storm of logins slows
//! logins and nothing else.

use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use base::Status;
use cluster::auth::Identity;
use engine::Waiter;

use crate::{
    forward::together::{Answer, Answered},
    mailbox::Wakes,
};

/// Jobs that may wait. At ~5 ms of hashing each, the last one is answered within the clients' time-outs.
const QUEUED_MAX: usize = 1024;

/// What became of work done elsewhere.
#[derive(Debug)]
pub(crate) enum Completion {
    /// Whose password it was, if anybody's.
    Login(Option<Identity>),
    /// How a slow command ended.
    Done(Result<(), Status>),
    /// What another node answered to a request.
    Forwarded(Answer),
    /// As before, and what was answered to retrievals behind the request: their keys and packets.
    Gathered { first: Answer, others: Vec<Answered> },
}

type Work = Box<dyn FnOnce() -> Completion + Send>;

/// Where workers leave slow work.
#[derive(Clone, Debug)]
pub(crate) struct Helper {
    queue: SyncSender<(Waiter, Work)>,
}

impl Helper {
    /// Starts the thread; it ends when the last handle is gone.
    pub(crate) fn start(wakes: Wakes) -> io::Result<(Self, JoinHandle<()>)> {
        let (queue, jobs) = sync_channel(QUEUED_MAX);
        let thread = thread::Builder::new().name("settee-helper".into()).spawn(move || run(&jobs, &wakes))?;
        Ok((Self { queue }, thread))
    }

    /// Has `work` done; its completion goes to `waiter`.
    ///
    /// # Errors
    /// `TemporaryFailure` when too much is waiting already.
    pub(crate) fn submit(
        &self,
        waiter: Waiter,
        work: impl FnOnce() -> Completion + Send + 'static,
    ) -> Result<(), Status> {
        self.queue.try_send((waiter, Box::new(work))).map_err(|_| Status::TemporaryFailure)
    }
}

fn run(jobs: &Receiver<(Waiter, Work)>, wakes: &Wakes) {
    while let Ok((waiter, work)) = jobs.recv() {
        wakes.complete(waiter, work());
    }
}
