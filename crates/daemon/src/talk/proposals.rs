//! Proposals of this node whose end somebody waits for.

use std::sync::Arc;

use cluster::{
    Command,
    consensus::{Outcome, Proposal, ProposalId},
    strict,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

type Waiting = Mutex<node::Proposals<oneshot::Sender<Outcome>>>;

/// See the module.
pub(crate) struct Proposals(Arc<Waiting>);

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
        Self(Arc::new(Mutex::new(node::Proposals::new(origin))))
    }

    /// A new proposal.
    pub(crate) fn begin(&self) -> (ProposalId, Ended) {
        let (sender, outcome) = oneshot::channel();
        let id = self.0.lock().begin(|_| sender);
        (id, Ended { id, waiting: Arc::clone(&self.0), outcome })
    }

    /// The lowest number of those that have not ended, the latest of which is that one.
    pub(crate) fn lowest_open(&self, latest: ProposalId) -> u64 {
        self.0.lock().lowest_open(latest)
    }

    /// A proposal has ended; a thread that waits for it is told how.
    pub(crate) fn ended(&self, id: ProposalId, how: impl FnOnce() -> Outcome) {
        if let Some(sender) = self.0.lock().ended(id) {
            // The waiting thread may just have left.
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
        self.waiting.lock().ended(self.id);
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
    fn a_proposal_that_nobody_waits_for_any_more_counts_as_ended() {
        let proposals = Proposals::new(7);
        let (first, ended) = proposals.begin();
        let (second, _ended) = proposals.begin();
        assert_eq!((proposals.lowest_open(first), proposals.lowest_open(second)), (1, 1));
        drop(ended);
        assert_eq!(proposals.lowest_open(second), 2);
    }
}
