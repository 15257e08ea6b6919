//! The probe: a client that reads, touches and deletes beside the loaders, one request at a time. It stands for an
//! application that is not to notice anything. Whatever state the node is in, these operations must be answered in
//! time.

use crate::TortureError;
use crate::documents::Documents;
use crate::ledger::{Known, Ledger};
use crate::loaders::{SharedTally, Tally, is_probes, locked};
use crate::pipeline::Pipeline;
use crate::target::Target;
use base::Status;
use client::ClientError;
use protocol::binary::extras::NumberExtras;
use protocol::binary::{Opcode, Request};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two requests.
const PAUSE: Duration = Duration::from_millis(10);
/// While there is no node.
const NAP: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Shared {
    reads: SharedTally,
    touches: SharedTally,
    deletes: SharedTally,
    /// Documents that may exist have smaller numbers.
    limit: AtomicU64,
    wrong: Mutex<Vec<String>>,
    /// It has seen a limit of 0 and has nothing under way.
    rests: AtomicBool,
    ends: AtomicBool,
}

/// What the probe has seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// GETs of random documents.
    pub reads: Tally,
    /// TOUCHes of random documents of its own.
    pub touches: Tally,
    /// DELETEs of its own documents, each of which exists once.
    pub deletes: Tally,
    /// Answers that contradict what was promised.
    pub wrong: Vec<String>,
}

/// A running probe.
pub struct Probe {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Probe {
    /// Starts it; it has nothing to do until [`Probe::limit`] is raised.
    ///
    /// # Errors
    /// The target cannot be reached.
    pub fn start(
        target: &dyn Target,
        documents: &Arc<Documents>,
        ledger: &Arc<Ledger>,
    ) -> Result<Probe, TortureError> {
        let shared = Arc::new(Shared::default());
        let prober = Prober {
            pipeline: Pipeline::open(target)?,
            shared: Arc::clone(&shared),
            documents: Arc::clone(documents),
            ledger: Arc::clone(ledger),
            rng: fastrand::Rng::with_seed(7),
            key: String::new(),
        };
        let thread = std::thread::Builder::new().name("probe".to_owned()).spawn(|| prober.run())?;
        Ok(Probe { shared, thread })
    }

    /// Documents that may exist have smaller numbers than this.
    pub fn limit(&self, documents: u64) {
        self.shared.limit.store(documents, Ordering::Release);
    }

    /// Waits until it has nothing under way, and keeps it so until the limit is raised again.
    pub fn rest(&self) {
        self.limit(0);
        while !self.shared.rests.load(Ordering::Acquire) && !self.thread.is_finished() {
            std::thread::sleep(PAUSE);
        }
    }

    /// Everything since the start.
    #[must_use]
    pub fn seen(&self) -> Seen {
        Seen {
            reads: locked(&self.shared.reads).clone(),
            touches: locked(&self.shared.touches).clone(),
            deletes: locked(&self.shared.deletes).clone(),
            wrong: self.shared.wrong.lock().map(|wrong| wrong.clone()).unwrap_or_default(),
        }
    }

    /// Ends it.
    ///
    /// # Errors
    /// It had panicked.
    pub fn finish(self) -> Result<(), TortureError> {
        self.shared.ends.store(true, Ordering::Release);
        self.thread.join().map_err(|_| TortureError::Thread)
    }
}

struct Prober {
    pipeline: Pipeline<()>,
    shared: Arc<Shared>,
    documents: Arc<Documents>,
    ledger: Arc<Ledger>,
    rng: fastrand::Rng,
    key: String,
}

impl Prober {
    fn run(mut self) {
        while !self.shared.ends.load(Ordering::Acquire) {
            let limit = self.shared.limit.load(Ordering::Acquire);
            self.shared.rests.store(limit == 0, Ordering::Release);
            let done = if limit == 0 { Ok(()) } else { self.step(limit) };
            if done.is_err() {
                let lost = self.pipeline.abandon();
                locked(&self.shared.reads).breaks += u64::from(!lost.is_empty());
                std::thread::sleep(NAP);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn step(&mut self, limit: u64) -> Result<(), ClientError> {
        let index = self.rng.u64(0..limit);
        // The next document of its own at or above the one that was drawn.
        let own = (index..index + 64).find(|&index| is_probes(index)).filter(|&own| own < limit);
        match (self.rng.u8(0..8), own) {
            (0, Some(own)) => self.delete(own),
            (1, Some(own)) => self.touch(own),
            _ => self.read(index),
        }
    }

    fn read(&mut self, index: u64) -> Result<(), ClientError> {
        let before = self.ledger.known(index);
        self.documents.key(index, &mut self.key);
        let answer =
            self.pipeline.ask(&Request { key: self.key.as_bytes(), ..Request::new(Opcode::Get) }, ())?;
        let after = self.ledger.known(index);
        locked(&self.shared.reads).note(&answer);
        let found = if answer.is(Status::Success) {
            let version = self.documents.version_of(index, &answer.value);
            if version.is_none() {
                self.blame(format!("document {index} has bytes that nobody wrote"));
                return Ok(());
            }
            version
        } else if answer.is(Status::KeyNotFound) {
            None
        } else {
            return Ok(());
        };
        if !is_right(before, after, found) {
            self.blame(format!("document {index} was read as {found:?}; known: {before:?}, then {after:?}"));
        }
        Ok(())
    }

    fn touch(&mut self, index: u64) -> Result<(), ClientError> {
        let known = self.ledger.known(index);
        if !known.must_be_there() || known.is_ambiguous() {
            return Ok(());
        }
        self.documents.key(index, &mut self.key);
        // To the expiry it has: a touch that changes nothing and still has to find the document.
        let extras = NumberExtras { number: 0 }.encode();
        let request = Request { key: self.key.as_bytes(), extras: &extras, ..Request::new(Opcode::Touch) };
        let answer = self.pipeline.ask(&request, ())?;
        locked(&self.shared.touches).note(&answer);
        Ok(())
    }

    fn delete(&mut self, index: u64) -> Result<(), ClientError> {
        let known = self.ledger.known(index);
        if !known.must_be_there() || known.is_ambiguous() {
            return Ok(());
        }
        self.ledger.begin_delete(index);
        self.documents.key(index, &mut self.key);
        let request = Request { key: self.key.as_bytes(), ..Request::new(Opcode::Delete) };
        let answer = self.pipeline.ask(&request, ())?;
        locked(&self.shared.deletes).note(&answer);
        if answer.is(Status::Success) {
            self.ledger.deleted(index, answer.seqno.unwrap_or(0));
        } else {
            self.ledger.refused(index, known);
        }
        Ok(())
    }

    fn blame(&self, what: String) {
        if let Ok(mut wrong) = self.shared.wrong.lock()
            && wrong.len() < 20
        {
            wrong.push(what);
        }
    }
}

/// Whether a read agrees with what was known before or after it, or lies between the two.
fn is_right(before: Known, after: Known, found: Option<u32>) -> bool {
    let between = |version| (before.version()..=after.version() + 1).contains(&version);
    before.allows(found) || after.allows(found) || (before != after && found.is_some_and(between))
}
