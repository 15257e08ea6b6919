//! The deleter: removes a range of documents as fast as it may. Deletions are what frees a node, so every one of them
//! must be accepted at once, whatever state the node is in.

use crate::TortureError;
use crate::documents::Documents;
use crate::ledger::{Known, Ledger};
use crate::loaders::{SharedTally, Tally, is_probes, locked};
use crate::pipeline::Pipeline;
use crate::target::Target;
use base::Status;
use client::ClientError;
use protocol::binary::{Opcode, Request};
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Deletions under way.
const WINDOW: usize = 16;

/// A deleter at work.
pub struct Deleter {
    tally: Arc<SharedTally>,
    thread: JoinHandle<Result<u64, ClientError>>,
}

impl Deleter {
    /// Starts to delete what is live in a range.
    ///
    /// # Errors
    /// The target cannot be reached.
    pub fn start(
        target: &dyn Target,
        documents: &Arc<Documents>,
        ledger: &Arc<Ledger>,
        range: Range<u64>,
    ) -> Result<Deleter, TortureError> {
        let tally = Arc::new(SharedTally::default());
        let work = Work {
            pipeline: Pipeline::open(target)?,
            documents: Arc::clone(documents),
            ledger: Arc::clone(ledger),
            tally: Arc::clone(&tally),
            deleted: 0,
        };
        let thread = std::thread::Builder::new().name("deleter".to_owned()).spawn(|| work.run(range))?;
        Ok(Deleter { tally, thread })
    }

    /// Whether all is deleted, or the deleter has given up.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// Everything since the start.
    #[must_use]
    pub fn tally(&self) -> Tally {
        locked(&self.tally).clone()
    }

    /// Waits for the end; how many documents were deleted.
    ///
    /// # Errors
    /// The connection broke.
    pub fn finish(self) -> Result<u64, TortureError> {
        Ok(self.thread.join().map_err(|_| TortureError::Thread)??)
    }
}

struct Work {
    pipeline: Pipeline<(u64, Known)>,
    documents: Arc<Documents>,
    ledger: Arc<Ledger>,
    tally: Arc<SharedTally>,
    deleted: u64,
}

impl Work {
    fn run(mut self, range: Range<u64>) -> Result<u64, ClientError> {
        let mut key = String::new();
        for index in range.filter(|&index| !is_probes(index)) {
            let known = self.ledger.known(index);
            if !known.is_written() || known.is_ambiguous() {
                continue;
            }
            self.documents.key(index, &mut key);
            self.ledger.begin_delete(index);
            let request = Request { key: key.as_bytes(), ..Request::new(Opcode::Delete) };
            self.pipeline.push(&request, (index, known))?;
            if self.pipeline.under_way() < WINDOW {
                continue;
            }
            self.pipeline.send()?;
            self.take_one()?;
            while self.pipeline.is_ready() {
                self.take_one()?;
            }
        }
        self.pipeline.send()?;
        while self.pipeline.under_way() > 0 {
            self.take_one()?;
        }
        Ok(self.deleted)
    }

    fn take_one(&mut self) -> Result<(), ClientError> {
        let Some(answer) = self.pipeline.pull()? else { return Ok(()) };
        locked(&self.tally).note(&answer);
        let (index, known) = answer.tag;
        if answer.code == Status::Success.code() {
            self.ledger.deleted(index, answer.seqno.unwrap_or(0));
            self.deleted += 1;
        } else {
            self.ledger.refused(index, known);
        }
        Ok(())
    }
}
