//! Readers: a client that reads documents at random, many at a time. It makes a node's working set all that it holds.

use crate::TortureError;
use crate::documents::Documents;
use crate::loaders::{SharedTally, Tally, locked};
use crate::pipeline::Pipeline;
use crate::target::Target;
use base::VbId;
use client::ClientError;
use protocol::binary::{Opcode, Request};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Reads that are under way at once.
const WINDOW: usize = 64;
/// Between two windows: at most 1,280 reads a second.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Shared {
    tally: SharedTally,
    /// Documents that may exist have smaller numbers.
    limit: AtomicU64,
    ends: AtomicBool,
}

/// A running reader.
pub struct Readers {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Readers {
    /// Starts it; it reads nothing until [`Readers::limit`] is raised, and nothing ever of the vBuckets that are spared.
    ///
    /// # Errors
    /// The target cannot be reached.
    pub fn start(
        target: &dyn Target,
        documents: &Arc<Documents>,
        spared: BTreeSet<VbId>,
    ) -> Result<Readers, TortureError> {
        let shared = Arc::new(Shared::default());
        let (mut pipeline, own) = (Pipeline::open(target)?, Arc::clone(&shared));
        let documents = Arc::clone(documents);
        let run = move || {
            let mut rng = fastrand::Rng::with_seed(11);
            while !own.ends.load(Ordering::Acquire) {
                let limit = own.limit.load(Ordering::Acquire);
                if limit > 0 && read(&mut pipeline, &own, &documents, &spared, (&mut rng, limit)).is_err() {
                    pipeline.abandon();
                    locked(&own.tally).breaks += 1;
                }
                std::thread::sleep(PAUSE);
            }
        };
        let thread = std::thread::Builder::new().name("reader".to_owned()).spawn(run)?;
        Ok(Readers { shared, thread })
    }

    /// Documents that may exist have smaller numbers than this.
    pub fn limit(&self, documents: u64) {
        self.shared.limit.store(documents, Ordering::Release);
    }

    /// Everything since the start.
    #[must_use]
    pub fn tally(&self) -> Tally {
        locked(&self.shared.tally).clone()
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

/// A window of reads.
fn read(
    pipeline: &mut Pipeline<()>,
    shared: &Shared,
    documents: &Documents,
    spared: &BTreeSet<VbId>,
    (rng, limit): (&mut fastrand::Rng, u64),
) -> Result<(), ClientError> {
    let mut key = String::new();
    for _ in 0..WINDOW {
        documents.key(rng.u64(0..limit), &mut key);
        if spared.contains(&pipeline.vbucket_of(&key)) {
            continue;
        }
        pipeline.push(&Request { key: key.as_bytes(), ..Request::new(Opcode::Get) }, ())?;
    }
    pipeline.send()?;
    while pipeline.under_way() > 0 {
        let Some(answer) = pipeline.pull()? else { return Ok(()) };
        locked(&shared.tally).note(&answer);
    }
    Ok(())
}
