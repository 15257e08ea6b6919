//! Failing over so many nodes that the others cannot agree on it: carries out what [`node::Reforming`] decides. The survivors are asked
//! one after the other, and one of them, which may be this node, is told to form the group anew.

use std::{sync::Arc, time::Instant};

use base::NodeId;
use cluster::{
    Applied as CommandApplied, ClusterError, Command, FailOver,
    consensus::{Epoch, Position},
};
use node::{Reforming, Survivor};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::{Control, LOOK_AGAIN, PATIENCE, stopping};
use crate::runtime::{agreement::Reform, identity::random_number};

/// Where survivors are asked for their [`Standing`], and where one is told to begin.
const STANDING: &str = "standing";
const REFORM: &str = "reform";

/// How a node stands to its group.
#[derive(Debug, Serialize, Deserialize)]
struct Standing {
    position: Position,
    leads: bool,
    /// Absent from what an older version says: then the position's.
    #[serde(default)]
    epoch: Option<Epoch>,
    /// The node that leads, as far as this one knows.
    #[serde(default)]
    leader: Option<NodeId>,
}

impl Control {
    /// Fails nodes over although something may be lost: by agreement where there can be one, else by forming the group anew.
    pub(super) async fn fail_over_at_any_price(
        &self,
        fail_over: FailOver,
    ) -> Result<CommandApplied, ClusterError> {
        let began = Instant::now();
        let now = move || began.elapsed().as_millis() as u64;
        let mut reforming = Reforming::new(fail_over.nodes.clone(), now());
        let command = Command::FailOver(fail_over);
        tokio::select! {
            agreed = self.propose(command.clone()) => return agreed,
            () = self.nobody_leads(&mut reforming, now) => {}
        }
        let (founder, epoch) = self.find_founder(&reforming).await?;
        let (id, mut ended) = self.proposals.begin();
        self.have_reformed(founder, Reform { epoch, id, command }).await?;
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
            async move {
                let me = me.ok_or_else(stopping)?;
                let Survivor { epoch, position, leader } = me.standing().await?;
                encoded(&Standing { position, leads: me.leads(), epoch: Some(epoch), leader })
            }
        });
        let me = Arc::downgrade(self);
        self.routes().add(REFORM, move |body| {
            let me = me.upgrade();
            async move { encoded(&me.ok_or_else(stopping)?.agreement.reform(decoded(&body)?).await) }
        });
    }

    /// Resolves once nobody has led for so long that nobody will.
    async fn nobody_leads(&self, reforming: &mut Reforming, now: impl Fn() -> u64) {
        while reforming.rests_for(self.leader(), now()) > 0 {
            sleep(LOOK_AGAIN).await;
        }
    }

    async fn standing(&self) -> Result<Survivor, ClusterError> {
        let position = self.agreement.position().await.ok_or_else(stopping)?;
        Ok(Survivor { epoch: self.agreement.epoch(), position, leader: self.leader() })
    }

    /// The node, of all that are not lost, whose log goes furthest, and the life that its group is to begin.
    async fn find_founder(&self, reforming: &Reforming) -> Result<(NodeId, Epoch), ClusterError> {
        let metadata = self.metadata.load_full();
        let this = (self.this_id(), self.standing().await?);
        let mut survey = reforming.ask(this, &self.agreement.voters(), &metadata)?;
        while let Some((node, host)) = survey.next() {
            let answer = self.peers().post(node, STANDING, Vec::new()).await;
            if let Err(error) = &answer {
                tracing::warn!(host, %error, "a node that is to stay does not answer");
            }
            survey.answered(answer.ok().map(|answer| read_standing(node, &answer)).transpose()?)?;
        }
        let lot = random_number().map_err(failed)?;
        Ok(survey.founder(lot))
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

fn read_standing(node: NodeId, answer: &[u8]) -> Result<Survivor, ClusterError> {
    let Standing { position, leads, epoch, leader } = decoded(answer)?;
    let leader = leader.or(leads.then_some(node));
    Ok(Survivor { epoch: epoch.unwrap_or(position.epoch), position, leader })
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
