//! Work too slow for a data-plane loop: password hashing for PLAIN, emptying a bucket on a legacy FLUSH, and operations on
//! parts of large documents.
//!
//! Three bounded queues. One thread hashes passwords, and one flushes. For documents there are as many threads as loops. So a
//! storm of logins holds up no flush, and a flush that waits for a slow disk holds up no login. The request that needs the work is
//! parked; its result arrives in the worker's mailbox. The worker answers a request that finds its queue full with a temporary
//! failure.

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
use engine::Waiter;
use parking_lot::Mutex;

use crate::state::{completion::Completion, mailbox::Wakes};

/// Jobs that may wait. At ~5 ms of hashing each, the last one is answered within the clients' time-outs.
const QUEUED_MAX: usize = 1024;
/// Bytes of requests that may wait for work on documents, unless it is a single one.
const REQUEST_BYTES_MAX: usize = 128 << 20;

type Work = Box<dyn FnOnce() -> Completion + Send>;
type Jobs = Receiver<(Waiter, Work)>;
type Queue = SyncSender<(Waiter, Work)>;

/// Which slow work, other than on documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    /// Hashing a password. It takes the processor.
    Password,
    /// Emptying a bucket. It waits for the disk.
    Flush,
}

/// Where workers leave slow work.
#[derive(Clone, Debug)]
pub(crate) struct Helper {
    passwords: Queue,
    flushes: Queue,
    documents: Queue,
    /// Of the requests in `documents`, and of those that are worked for.
    request_bytes: Arc<AtomicUsize>,
}

impl Helper {
    /// Starts the threads, so many of them for documents; they end when the last handle is gone.
    pub(crate) fn start(wakes: &Wakes, document_threads: usize) -> io::Result<(Self, Vec<JoinHandle<()>>)> {
        let mut threads = Vec::new();
        let mut start_one = |name: &str| {
            let (queue, jobs) = sync_channel(QUEUED_MAX);
            threads.push(spawn(name.into(), Arc::new(Mutex::new(jobs)), wakes.clone())?);
            io::Result::Ok(queue)
        };
        let (passwords, flushes) = (start_one("settee-helper")?, start_one("settee-flushes")?);
        let (documents, jobs) = sync_channel(QUEUED_MAX);
        let jobs = Arc::new(Mutex::new(jobs));
        for index in 0..document_threads.max(1) {
            threads.push(spawn(format!("settee-doc-{index}"), Arc::clone(&jobs), wakes.clone())?);
        }
        Ok((Self { passwords, flushes, documents, request_bytes: Arc::default() }, threads))
    }

    /// Has `work` done; its completion goes to `waiter`.
    ///
    /// # Errors
    /// `TemporaryFailure` when too much of that kind is waiting already.
    pub(crate) fn submit(
        &self,
        chore: Chore,
        waiter: Waiter,
        work: impl FnOnce() -> Completion + Send + 'static,
    ) -> Result<(), Status> {
        let queue = match chore {
            Chore::Password => &self.passwords,
            Chore::Flush => &self.flushes,
        };
        queue.try_send((waiter, Box::new(work))).map_err(|_| Status::TemporaryFailure)
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
        let held = RequestBytes::take(&self.request_bytes, bytes)?;
        let work = move || {
            let completion = work();
            drop(held);
            completion
        };
        self.documents.try_send((waiter, Box::new(work))).map_err(|_| Status::TemporaryFailure)
    }
}

/// Bytes of a request that is held for its work.
struct RequestBytes {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl RequestBytes {
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

impl Drop for RequestBytes {
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
    use std::{sync::mpsc::channel, time::Duration};

    use super::*;

    const WAITER: Waiter = Waiter { worker: 0, connection: 0, ticket: 0 };
    /// A test that waits for longer has failed.
    const HANGS: Duration = Duration::from_secs(60);

    /// Neither the processor nor the disk is a reason for the other kind to wait.
    #[test]
    fn a_flood_of_one_kind_of_work_holds_up_nothing_of_the_other() {
        for (flood, other) in [(Chore::Password, Chore::Flush), (Chore::Flush, Chore::Password)] {
            let (helper, threads) = Helper::start(&Wakes::new(Arc::new([])), 1).expect("threads");
            let ((go_on, wait), (done, is_done)) = (channel::<()>(), channel());
            let first = move || {
                let _ = wait.recv();
                Completion::Done(Ok(()))
            };
            assert_eq!(helper.submit(flood, WAITER, first), Ok(()));
            while helper.submit(flood, WAITER, || Completion::Done(Ok(()))).is_ok() {}
            let work = move || {
                let _ = done.send(());
                Completion::Done(Ok(()))
            };
            assert_eq!(helper.submit(other, WAITER, work), Ok(()), "{flood:?} fills its own queue only");
            assert!(is_done.recv_timeout(HANGS).is_ok(), "{other:?} waits for {flood:?}");
            drop((go_on, helper));
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        }
    }

    #[test]
    fn requests_held_for_documents_are_bounded_in_bytes_but_for_a_single_one() {
        let all = Arc::default();
        let huge = RequestBytes::take(&all, 2 * REQUEST_BYTES_MAX).expect("nothing else is held");
        assert_eq!(RequestBytes::take(&all, 1).err(), Some(Status::TemporaryFailure));
        drop(huge);
        let half = RequestBytes::take(&all, REQUEST_BYTES_MAX / 2).expect("room");
        let other = RequestBytes::take(&all, REQUEST_BYTES_MAX / 2).expect("room");
        assert_eq!(RequestBytes::take(&all, 1).err(), Some(Status::TemporaryFailure));
        drop((half, other));
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
}
