//! Work too slow for a data-plane loop: password hashing for PLAIN, emptying a bucket on a legacy FLUSH, and operations on
//! parts of large documents.
//!
//! Two bounded queues. One thread hashes passwords and flushes; as many threads as there are loops work on documents, which
//! the loops did before. The request that needs the work is parked; its result arrives in the worker's mailbox. A full queue is
//! answered with a temporary failure by whoever asked, so that a storm of logins slows logins and nothing else.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use base::Status;
use cluster::auth::Identity;
use engine::{Refusal, SubdocMutated, Waiter};
use parking_lot::Mutex;

use crate::{
    forward::together::{Answer, Answered},
    handlers::large_documents::Looked,
    mailbox::Wakes,
};

/// Jobs that may wait. At ~5 ms of hashing each, the last one is answered within the clients' time-outs.
const QUEUED_MAX: usize = 1024;
/// Bytes of requests that may wait for work on documents, unless it is a single one.
const REQUEST_BYTES_MAX: usize = 128 << 20;

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
    /// What was found in a large document.
    Looked(Result<Looked, Refusal>),
    /// How a change of a large document ended.
    Changed(Result<SubdocMutated, Refusal>),
}

type Work = Box<dyn FnOnce() -> Completion + Send>;
type Jobs = Receiver<(Waiter, Work)>;

/// Where workers leave slow work.
#[derive(Clone, Debug)]
pub(crate) struct Helper {
    queue: SyncSender<(Waiter, Work)>,
    documents: SyncSender<(Waiter, Work)>,
    /// Of the requests in `documents`, and of those that are worked for.
    request_bytes: Arc<AtomicUsize>,
}

impl Helper {
    /// Starts the threads, so many of them for documents; they end when the last handle is gone.
    pub(crate) fn start(wakes: &Wakes, document_threads: usize) -> io::Result<(Self, Vec<JoinHandle<()>>)> {
        let (queue, jobs) = sync_channel(QUEUED_MAX);
        let mut threads = vec![spawn("settee-helper".into(), Arc::new(Mutex::new(jobs)), wakes.clone())?];
        let (documents, jobs) = sync_channel(QUEUED_MAX);
        let jobs = Arc::new(Mutex::new(jobs));
        for index in 0..document_threads.max(1) {
            threads.push(spawn(format!("settee-doc-{index}"), Arc::clone(&jobs), wakes.clone())?);
        }
        Ok((Self { queue, documents, request_bytes: Arc::default() }, threads))
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

    /// As [`Helper::submit`], for work on a document whose request takes so many bytes.
    ///
    /// # Errors
    /// `TemporaryFailure` when too much is waiting already.
    pub(crate) fn submit_document(
        &self,
        waiter: Waiter,
        bytes: usize,
        work: impl FnOnce() -> Completion + Send + 'static,
    ) -> Result<(), Status> {
        let held = Held::take(&self.request_bytes, bytes)?;
        let work = move || {
            let completion = work();
            drop(held);
            completion
        };
        self.documents.try_send((waiter, Box::new(work))).map_err(|_| Status::TemporaryFailure)
    }
}

/// Bytes of a request that is held for its work.
struct Held {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Held {
    fn take(all: &Arc<AtomicUsize>, bytes: usize) -> Result<Self, Status> {
        let others = all.fetch_add(bytes, Ordering::Relaxed);
        let held = Self { all: Arc::clone(all), bytes };
        if others > 0 && others + bytes > REQUEST_BYTES_MAX {
            Err(Status::TemporaryFailure)
        } else {
            Ok(held)
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn spawn(name: String, jobs: Arc<Mutex<Jobs>>, wakes: Wakes) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(move || {
        // The lock is held by the one thread that waits for a job, and is let go of before the job is done.
        let next = || jobs.lock().recv();
        while let Ok((waiter, work)) = next() {
            wakes.complete(waiter, work());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_held_for_documents_are_bounded_in_bytes_but_for_a_single_one() {
        let all = Arc::default();
        let huge = Held::take(&all, 2 * REQUEST_BYTES_MAX).expect("nothing else is held");
        assert_eq!(Held::take(&all, 1).err(), Some(Status::TemporaryFailure));
        drop(huge);
        let half = Held::take(&all, REQUEST_BYTES_MAX / 2).expect("room");
        let other = Held::take(&all, REQUEST_BYTES_MAX / 2).expect("room");
        assert_eq!(Held::take(&all, 1).err(), Some(Status::TemporaryFailure));
        drop((half, other));
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
}
