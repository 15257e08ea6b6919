//! Proposals of this node whose end somebody waits for.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use cluster::{
    Command,
    consensus::{Outcome, Proposal, ProposalId},
    strict,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

type Waiting = Mutex<BTreeMap<ProposalId, oneshot::Sender<Outcome>>>;

/// See the module.
pub(crate) struct Proposals {
    origin: u64,
    last: AtomicU64,
    waiting: Arc<Waiting>,
}

/// A proposal on its way to the leader. Where it has no place it is written as versions before write it, and read it.
pub(crate) fn encode(proposal: &Proposal) -> serde_json::Result<Vec<u8>> {
    match proposal.place {
        Some(_) => serde_json::to_vec(proposal),
        None => serde_json::to_vec(&(proposal.id, &proposal.command)),
    }
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// When a part of it is not known to this version.
pub(crate) fn decode(body: &[u8]) -> Result<Proposal, strict::Unknown> {
    if body.first() == Some(&b'[') {
        return strict::read::<(ProposalId, Command)>(body).map(|(id, command)| Proposal::new(id, command));
    }
    strict::read(body)
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

    /// The lowest number of those that have not ended, the latest of which is that one.
    pub(crate) fn open(&self, latest: ProposalId) -> u64 {
        self.waiting.lock().keys().next().map_or(latest.number, |first| first.number)
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

#[cfg(test)]
mod tests {
    use cluster::consensus::Place;

    use super::*;

    #[test]
    fn a_proposal_reaches_the_leader_with_its_place_or_as_earlier_versions_wrote_it() {
        let id = ProposalId { origin: 7, number: 3 };
        let plain = Proposal::new(id, Command::SetClusterName("c".into()));
        let placed = Proposal { place: Some(Place { open: 2, seen: 9 }), ..plain.clone() };
        for proposal in [&plain, &placed] {
            assert_eq!(decode(&encode(proposal).unwrap()).as_ref(), Ok(proposal));
        }
        let earlier = serde_json::to_vec(&(id, &plain.command)).unwrap();
        assert_eq!(encode(&plain).unwrap(), earlier);
        assert!(decode(br#"{"id":{"origin":1,"number":1},"command":{"Levitate":{}}}"#).is_err());
    }

    #[test]
    fn the_lowest_that_has_not_ended_is_told() {
        let proposals = Proposals::new(7);
        let (first, ended) = proposals.begin();
        let (second, _ended) = proposals.begin();
        assert_eq!((proposals.open(first), proposals.open(second)), (1, 1));
        drop(ended);
        assert_eq!(proposals.open(second), 2);
    }
}
