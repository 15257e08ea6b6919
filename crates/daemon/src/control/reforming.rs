//! Failing over so many nodes that the others cannot agree on it: carries out what [`node::AtAnyPrice`] decides. The survivors are asked
//! one after the other, and one of them, which may be this node, is told to form the group anew.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use base::NodeId;
use cluster::{
    Applied as CommandApplied, ClusterError, Command, FailOver, NodeInfo,
    consensus::{Epoch, Position},
};
use http::BoxFuture;
use node::{Act, AtAnyPrice, Known, Offer, Survivor};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::{Control, LOOK_AGAIN, stopping};
use crate::{setup::identity::random_number, talk::agreement::Reform};

/// Where survivors are asked for their [`GroupStatus`], and where one is told to begin.
const STATUS: &str = "standing";
const REFORM: &str = "reform";

/// How a node stands to its group.
#[derive(Debug, Serialize, Deserialize)]
struct GroupStatus {
    position: Position,
    leads: bool,
    /// Absent from what an older version says: then the position's.
    #[serde(default)]
    epoch: Option<Epoch>,
    /// The node that leads, as far as this one knows.
    #[serde(default)]
    leader: Option<NodeId>,
    /// What an offer to this node has to name.
    #[serde(default)]
    ticket: Option<u64>,
}

impl Control {
    /// Fails nodes over although something may be lost: by agreement where there can be one, else by forming the group anew.
    pub(crate) async fn fail_over_at_any_price(
        &self,
        fail_over: FailOver,
    ) -> Result<CommandApplied, ClusterError> {
        let began = Instant::now();
        let now = move || began.elapsed().as_millis() as u64;
        let mut price = AtAnyPrice::new(fail_over.nodes.clone(), now());
        let command = Command::FailOver(fail_over);
        // What is waited for: the end of the proposal, or of what the node was told that forms the group anew.
        let mut ends: Option<BoxFuture<'_, Result<CommandApplied, ClusterError>>> =
            Some(Box::pin(self.propose(command.clone())));
        loop {
            let (voters, metadata) = (self.agreement.voters(), self.metadata.load_full());
            let survivor = self.survivor().await?;
            let known = Known { me: self.this_id(), survivor, voters: &voters, metadata: &metadata };
            let lot = random_number().map_err(failed)?;
            match price.next(known, lot, now())? {
                Act::Rest(millis) => {
                    let pause = sleep(Duration::from_millis(millis).min(LOOK_AGAIN));
                    match &mut ends {
                        Some(ends) => tokio::select! {
                            ended = ends => return ended,
                            () = pause => {}
                        },
                        None => pause.await,
                    }
                }
                Act::Ask(node, host) => {
                    ends = None;
                    price.answered(self.ask_survivor(node, &host).await?)?;
                }
                Act::Found(founder, offer) => {
                    self.agreement.offer(offer);
                    let (id, ended) = self.proposals.begin();
                    ends = Some(Box::pin(async move { ended.await.unwrap_or_else(|_| Err(stopping())) }));
                    let Offer { epoch, ticket } = offer;
                    let reform = Reform { epoch, ticket, id, command: command.clone() };
                    self.have_reformed(founder, reform).await?;
                }
            }
        }
    }

    /// Answers what survivors ask one another.
    pub(crate) fn answer_survivors(self: &Arc<Self>) {
        self.answer(STATUS, |me, _| async move {
            let Survivor { epoch, position, leader, ticket } = me.survivor().await?;
            encoded(&GroupStatus { position, leads: me.leads(), epoch: Some(epoch), leader, ticket })
        });
        self.answer(REFORM, |me, body| async move { encoded(&me.agreement.reform(decoded(&body)?).await) });
    }

    async fn survivor(&self) -> Result<Survivor, ClusterError> {
        self.agreement.survivor().await.ok_or_else(stopping)
    }

    /// How a survivor stands; nothing where it does not answer.
    async fn ask_survivor(&self, node: NodeId, host: &str) -> Result<Option<Survivor>, ClusterError> {
        let answer = self.peers().post(node, STATUS, Vec::new()).await;
        let has_failed = self.metadata.load().node_by_id(node).is_some_and(NodeInfo::is_failed_over);
        match &answer {
            Ok(_) => {}
            Err(error) if has_failed => {
                tracing::info!(node = host, %error, "a node that was failed over does not say what it knows");
            }
            Err(error) => tracing::warn!(node = host, %error, "a node that is to stay does not answer"),
        }
        answer.ok().map(|answer| read_status(node, &answer)).transpose()
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

fn read_status(node: NodeId, answer: &[u8]) -> Result<Survivor, ClusterError> {
    let GroupStatus { position, leads, epoch, leader, ticket } = decoded(answer)?;
    let leader = leader.or(leads.then_some(node));
    Ok(Survivor { epoch: epoch.unwrap_or(position.epoch), position, leader, ticket })
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
