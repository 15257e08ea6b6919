//! Having the cluster agree on a command, wherever its leader is.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cluster::{
    Applied as CommandApplied, ClusterError, Command,
    consensus::{Place, Proposal},
};
use tokio::{sync::watch, time::timeout};

use super::{Control, PATIENCE, PROPOSE, TAKEN, UNTAKEN_AGAIN, stopping};
use crate::runtime::{
    identity::{change_of_address, founding_of_authority},
    options::PortsInUse,
    proposals,
};

/// How soon a proposal is repeated that was taken, and one that was not.
const TAKEN_AGAIN: Duration = Duration::from_secs(2);
/// How soon a node looks again whether the cluster knows where it listens.
const ADDRESS_AGAIN: Duration = Duration::from_secs(1);

impl Control {
    /// Has the cluster agree on a command, wherever its leader is; when it resolves with success, it was carried out
    /// here.
    pub(crate) async fn propose(&self, command: Command) -> Result<CommandApplied, ClusterError> {
        // What some would not understand is not even proposed; the leader looks again.
        let known = self.metadata.load_full();
        known.admits(&command)?;
        let seen = known.places_proposals().then_some(known.version);
        let until = Instant::now() + PATIENCE;
        let (id, mut ended) = self.proposals.begin();
        loop {
            if !self.agreement.takes_part() {
                // Nobody would tell this node how it ended.
                let trouble = self.agreement.trouble().unwrap_or_default();
                return Err(ClusterError::Failed(format!("the metadata cannot change here: {trouble}")));
            }
            let place = seen.map(|seen| Place { open: self.proposals.open(id), seen });
            let taken = self.propose_once(Proposal { id, place, command: command.clone() }).await;
            // What was taken is proposed again only if nothing is heard of it: its leader may be gone.
            let pause = if taken { TAKEN_AGAIN } else { UNTAKEN_AGAIN };
            if let Ok(outcome) = timeout(pause, &mut ended).await {
                return outcome.unwrap_or_else(|_| Err(stopping()));
            }
            if Instant::now() >= until {
                let trouble = self.agreement.trouble().unwrap_or_else(|| {
                    "the nodes that vote on changes are not in the majority, or cannot be reached; the change may \
                     still be made"
                        .into()
                });
                return Err(ClusterError::Failed(trouble));
            }
        }
    }

    /// Hands a proposal to the leader; whether he took it.
    async fn propose_once(&self, proposal: Proposal) -> bool {
        if self.leads() {
            return self.agreement.propose(proposal).await.is_ok();
        }
        match self.leader().filter(|leader| *leader != self.this_id()) {
            Some(leader) => {
                let Ok(body) = proposals::encode(&proposal) else { return false };
                match self.peers().post(leader, PROPOSE, body).await {
                    Ok(answer) => answer == TAKEN,
                    Err(error) => {
                        tracing::debug!(%error, "the leader has not taken a proposal");
                        false
                    }
                }
            }
            None => false,
        }
    }

    /// Tells the cluster where this node listens, if that has changed since it was a member last, and gives it a
    /// certificate authority, if it is older than that.
    pub(crate) async fn note_address(self: Arc<Self>, ports: PortsInUse, mut ended: watch::Receiver<bool>) {
        loop {
            if self.caught_up() {
                let metadata = self.metadata.load_full();
                let change = change_of_address(&metadata, &self.this_node.uuid(), self.listen, &ports)
                    .or_else(|| founding_of_authority(&metadata));
                let Some(command) = change else { return };
                if let Err(error) = self.propose(command).await {
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
