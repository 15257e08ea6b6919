//! Having the cluster agree on a command, wherever its leader is.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use base::NodeId;
use cluster::{
    Applied as CommandApplied, ClusterError, Command,
    consensus::{Proposal, ProposalId},
};
use node::{GivenUp, Next, Part, Proposing};
use tokio::{sync::watch, time::timeout};

use super::{Control, PROPOSE, TAKEN, stopping};
use crate::{
    setup::{
        identity::{change_of_address, founding_of_authority},
        options::PortsInUse,
    },
    talk::proposals::{self, Ended},
};

/// How soon a node looks again whether the cluster knows where it listens.
const ADDRESS_AGAIN: Duration = Duration::from_secs(1);

impl Control {
    /// Has the cluster agree on a command, wherever its leader is; when it resolves with success, it was carried out
    /// here.
    pub(crate) async fn propose(&self, command: Command) -> Result<CommandApplied, ClusterError> {
        let (id, ended) = self.proposals.begin();
        let proposing = Proposing::new(id, command, &self.metadata.load(), 0)?;
        self.see_through(id, proposing, ended).await
    }

    /// The same for what this node has decided as the leader of a term: see [`Proposing::decided_in`].
    pub(crate) async fn decide(&self, command: Command, term: u64) -> Result<CommandApplied, ClusterError> {
        let (id, ended) = self.proposals.begin();
        // What some would not understand is not even proposed; the leader looks again.
        let proposing = Proposing::new(id, command, &self.metadata.load(), 0)?.decided_in(term);
        self.see_through(id, proposing, ended).await
    }

    async fn see_through(
        &self,
        id: ProposalId,
        mut proposing: Proposing,
        mut ended: Ended,
    ) -> Result<CommandApplied, ClusterError> {
        let began = Instant::now();
        let now = || began.elapsed().as_millis() as u64;
        loop {
            let (part, lowest_open) = (self.part(), self.proposals.lowest_open(id));
            let next = proposing.next(part, &self.metadata.load(), lowest_open, now());
            match next {
                Next::Hand(proposal, to) => {
                    let taken = self.hand_over(*proposal, proposing.term(), to).await;
                    proposing.handed(taken, now());
                }
                Next::Rest(millis) => {
                    if let Ok(outcome) = timeout(Duration::from_millis(millis), &mut ended).await {
                        return outcome.unwrap_or_else(|_| Err(stopping()));
                    }
                }
                Next::GiveUp(why) => return Err(self.given_up(why)),
            }
        }
    }

    fn part(&self) -> Part {
        Part {
            takes_part: self.agreement.takes_part(),
            leads_in: self.leads_in(),
            leader: self.leader(),
            me: self.this_id(),
        }
    }

    fn given_up(&self, why: GivenUp) -> ClusterError {
        let trouble = self.agreement.trouble();
        ClusterError::Failed(match why {
            GivenUp::NotLeading => "this node does not lead any more, or could not take it".into(),
            GivenUp::FailedOver => return ClusterError::failed_over(&self.metadata.load()),
            // Nobody would tell this node how it ended.
            GivenUp::TakesNoPart => {
                format!("the metadata cannot change here: {}", trouble.unwrap_or_default())
            }
            GivenUp::TookTooLong => trouble.unwrap_or_else(|| {
                "the nodes that vote on changes are not in the majority, or cannot be reached; the change may \
                 still be made"
                    .into()
            }),
        })
    }

    /// Hands a proposal to the consensus of this node, or of the one that leads; whether it was taken.
    async fn hand_over(&self, proposal: Proposal, decided_in: Option<u64>, to: Option<NodeId>) -> bool {
        let Some(leader) = to else {
            let taken = self.agreement.propose_in(Some(self.this_id()), proposal, decided_in);
            return taken.await.is_ok();
        };
        let Ok(body) = proposals::encode(&proposal) else { return false };
        match self.peers().post(leader, PROPOSE, body).await {
            Ok(answer) => answer == TAKEN,
            Err(error) => {
                tracing::debug!(%error, "the leader has not taken a proposal");
                false
            }
        }
    }

    /// Tells the cluster where this node listens, if that has changed since it was a member last. Gives the cluster a
    /// certificate authority, if it is from a version that made none. Tells it this node's key, now or once every member
    /// understands that.
    pub(crate) async fn note_address(self: Arc<Self>, ports: PortsInUse, mut ended: watch::Receiver<bool>) {
        let mut is_noted = false;
        let (metadata, uuid) = (self.metadata.load_full(), self.this_node.uuid());
        if self.shared.node_tls.has_lost_key(&metadata, &uuid) {
            tracing::error!("the key file of this node is not the one that its cluster knows it by");
        }
        loop {
            if self.caught_up() {
                let (metadata, uuid) = (self.metadata.load_full(), self.this_node.uuid());
                // Only once: an administrator may give the node another name later.
                let change = if is_noted {
                    None
                } else {
                    change_of_address(&metadata, &uuid, self.listen, &ports)
                        .or_else(|| founding_of_authority(&metadata))
                };
                is_noted |= change.is_none();
                let change = change.or_else(|| self.shared.node_tls.change_of_key(&metadata, &uuid));
                let may_propose = |command: &Command| metadata.may_propose(self.this_id(), command).is_ok();
                if let Some(command) = change.filter(may_propose)
                    && let Err(error) = self.propose(command).await
                {
                    tracing::warn!(%error, "the cluster has not taken note of this node yet");
                }
            }
            tokio::select! {
                _ = ended.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(ADDRESS_AGAIN) => {}
            }
        }
    }
}
