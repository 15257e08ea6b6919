//! Proposals of this node whose end somebody waits for.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use cluster::consensus::{Outcome, ProposalId};
use parking_lot::Mutex;
use tokio::sync::oneshot;

type Waiting = Mutex<BTreeMap<ProposalId, oneshot::Sender<Outcome>>>;

/// See the module.
pub(crate) struct Proposals {
    origin: u64,
    last: AtomicU64,
    waiting: Arc<Waiting>,
}

/// The end of one proposal; nobody waits for it once this is dropped.
pub(crate) struct Ended {
    id: ProposalId,
    waiting: Arc<Waiting>,
    outcome: oneshot::Receiver<Outcome>,
}

impl Proposals {
    /// `origin` must differ from that of every other start of a node.
    pub(crate) fn new(origin: u64) -> Self {
        // Number 0 was taken by what a node says about itself before it serves.
        Self { origin, last: AtomicU64::new(0), waiting: Arc::default() }
    }

    /// A new proposal.
    pub(crate) fn begin(&self) -> (ProposalId, Ended) {
        let id = ProposalId { origin: self.origin, number: self.last.fetch_add(1, Ordering::Relaxed) + 1 };
        let (sender, outcome) = oneshot::channel();
        self.waiting.lock().insert(id, sender);
        (id, Ended { id, waiting: Arc::clone(&self.waiting), outcome })
    }

    /// A proposal has ended; whoever waits for it is told how.
    pub(crate) fn ended(&self, id: ProposalId, how: impl FnOnce() -> Outcome) {
        if let Some(sender) = self.waiting.lock().remove(&id) {
            // Whoever waited may just have left.
            let _ = sender.send(how());
        }
    }
}

impl Future for Ended {
    type Output = Result<Outcome, oneshot::error::RecvError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.outcome).poll(context)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.id);
    }
}
