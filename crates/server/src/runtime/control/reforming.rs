//! Failing over so many nodes that the others cannot agree on it: the survivors form anew the group that agrees on the
//! metadata.
//!
//! Only an administrator can say that the lost ones will not go on by themselves, so it happens only where he allows a
//! failover to be unsafe, and only where nobody leads and nobody can: the survivors that vote are no majority. Every node
//! that he does not name as lost has to answer, since what it knows may be more than what this one does. The one whose log
//! goes furthest begins the new group; the others, and those that were lost should they come back, are told to join it
//! (`cluster::consensus`).

use std::{sync::Arc, time::Duration};

use base::NodeId;
use cluster::{Applied as CommandApplied, ClusterError, Command, FailOver, Membership, consensus::Position};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use super::{Control, LOOK_AGAIN, PATIENCE, stopping};
use crate::runtime::{agreement::Reform, identity::random_number};

/// How long nobody must have led: longer than it takes to elect somebody who can be elected.
const LEADERLESS: Duration = Duration::from_secs(4);
/// Where survivors are asked for their [`Standing`], and where one is told to begin.
const STANDING: &str = "standing";
const REFORM: &str = "reform";

/// How a node stands to its group.
#[derive(Debug, Serialize, Deserialize)]
struct Standing {
    position: Position,
    leads: bool,
}

impl Control {
    /// Fails nodes over although something may be lost: by agreement where there can be one, else by forming the group anew.
    pub(super) async fn fail_over_at_any_price(
        &self,
        fail_over: FailOver,
    ) -> Result<CommandApplied, ClusterError> {
        let lost = fail_over.nodes.clone();
        let command = Command::FailOver(fail_over);
        tokio::select! {
            agreed = self.propose(command.clone()) => return agreed,
            () = self.nobody_leads() => {}
        }
        self.check_majority_is_lost(&lost)?;
        let furthest = self.furthest_survivor(&lost).await?;
        let lot = random_number().map_err(|error| ClusterError::Failed(error.to_string()))?;
        let (id, mut ended) = self.proposals.begin();
        let reform = Reform { epoch: furthest.1.epoch.next(lot), id, command };
        self.have_reformed(furthest.0, reform).await?;
        match timeout(PATIENCE, &mut ended).await {
            Ok(outcome) => outcome.unwrap_or_else(|_| Err(stopping())),
            Err(_) => {
                let text = "the survivors have formed their group anew, which this node has not joined yet";
                Err(ClusterError::Failed(text.into()))
            }
        }
    }

    /// Answers what survivors ask one another.
    pub(super) fn answer_survivors(self: &Arc<Self>) {
        let me = Arc::downgrade(self);
        self.routes().add(STANDING, move |_| {
            let me = me.upgrade();
            async move { encoded(&me.ok_or_else(stopping)?.standing().await?) }
        });
        let me = Arc::downgrade(self);
        self.routes().add(REFORM, move |body| {
            let me = me.upgrade();
            async move { encoded(&me.ok_or_else(stopping)?.agreement.reform(decoded(&body)?).await) }
        });
    }

    /// Resolves once nobody has led for so long that nobody will.
    async fn nobody_leads(&self) {
        let mut since = Instant::now();
        while since.elapsed() < LEADERLESS {
            sleep(LOOK_AGAIN).await;
            if self.leader().is_some() {
                since = Instant::now();
            }
        }
    }

    fn check_majority_is_lost(&self, lost: &[NodeId]) -> Result<(), ClusterError> {
        if lost.contains(&self.this_id()) {
            return Err(refused("Ask a node that is not to be failed over."));
        }
        let voters = self.agreement.voters();
        let left = voters.iter().filter(|voter| !lost.contains(voter)).count();
        if left * 2 > voters.len() {
            return Err(refused(
                "The nodes that are to stay cannot agree, although they would be a majority. Name every node that is lost.",
            ));
        }
        Ok(())
    }

    async fn standing(&self) -> Result<Standing, ClusterError> {
        let position = self.agreement.position().await.ok_or_else(stopping)?;
        Ok(Standing { position, leads: self.leads() })
    }

    /// The node, of all that are not lost, whose log goes furthest, and how far.
    async fn furthest_survivor(&self, lost: &[NodeId]) -> Result<(NodeId, Position), ClusterError> {
        let me = self.this_id();
        let mut furthest = (me, self.standing().await?.position);
        let metadata = self.metadata.load_full();
        let survivors = metadata.nodes.iter().filter(|node| node.id != me && !lost.contains(&node.id));
        for node in survivors.filter(|node| node.membership != Membership::InactiveFailed) {
            let answer = self.peers().post(node.id, STANDING, Vec::new()).await;
            let Standing { position, leads } = match answer {
                Ok(answer) => decoded(&answer)?,
                // It holds no data, and so nothing that clients have been told of rests on what it knows.
                Err(_) if node.membership == Membership::InactiveAdded => continue,
                Err(error) => {
                    let host = &node.host;
                    tracing::warn!(host, %error, "a node that is to stay does not answer");
                    let text = format!(
                        "{host} is to stay and does not answer. Fail it over as well, or bring it back."
                    );
                    return Err(refused(text));
                }
            };
            if leads {
                return Err(failed(format_args!("{} leads", node.host)));
            }
            if position > furthest.1 {
                furthest = (node.id, position);
            }
        }
        Ok(furthest)
    }

    /// Has a node form the group anew.
    async fn have_reformed(&self, founder: NodeId, reform: Reform) -> Result<(), ClusterError> {
        if founder == self.this_id() {
            return self.agreement.reform(reform).await;
        }
        let answer = self.peers().post(founder, REFORM, encoded(&reform)?).await;
        decoded::<Result<(), ClusterError>>(&answer.map_err(failed)?)?
    }
}

fn refused(text: impl Into<String>) -> ClusterError {
    ClusterError::MembersRefused(text.into())
}

fn failed(error: impl std::fmt::Display) -> ClusterError {
    ClusterError::Failed(error.to_string())
}

fn encoded(value: &impl Serialize) -> Result<Vec<u8>, ClusterError> {
    serde_json::to_vec(value).map_err(failed)
}

fn decoded<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ClusterError> {
    serde_json::from_slice(bytes).map_err(failed)
}
