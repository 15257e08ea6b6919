//! A failover at any price, as an operator asks a node for it: what `runtime::control` does in a server. What decides is
//! [`Reforming`]; here its questions are carried to the survivors, one after the other.

use base::NodeId;
use cluster::{
    Command, FailOver,
    consensus::{Epoch, ProposalId},
};
use settee_node::{PROPOSAL_MILLIS, Reforming, Survey, Survivor};

use super::{Message, Outside, Process};

/// How long the answer of a survivor is waited for.
const ANSWER_MILLIS: u64 = 5_000;

/// See the module.
pub(super) struct AtAnyPrice {
    command: Command,
    stage: Stage,
}

enum Stage {
    /// It is proposed as every other failover, and nobody leads, perhaps.
    Proposed(ProposalId, Reforming),
    /// Survivors are asked; until then the next one may answer.
    Asking(Survey, Option<u64>),
    /// Somebody was told to form the group anew, and how the failover ends is waited for until then.
    Founding(ProposalId, u64),
}

impl Process {
    /// Fails these nodes over, whatever is lost by that, unless it is at that already.
    pub(crate) fn fail_over_at_any_price(&mut self, nodes: Vec<NodeId>, ms: u64) {
        if self.at_any_price.is_some() {
            return;
        }
        let reforming = Reforming::new(nodes.clone(), ms);
        let command = Command::FailOver(FailOver { nodes, allow_unsafe: true, auto: false });
        if let Some(id) = self.propose(command.clone(), false, ms) {
            self.at_any_price = Some(AtAnyPrice { command, stage: Stage::Proposed(id, reforming) });
        }
    }

    pub(super) fn go_on_at_any_price(&mut self, outside: &mut Outside<'_>) {
        let Some(AtAnyPrice { command, stage }) = self.at_any_price.take() else { return };
        let ms = outside.now.mono_millis;
        let next = match stage {
            Stage::Proposed(id, mut reforming) => {
                // It has ended, or was given up.
                if self.proposals.get_mut(id).is_none() {
                    return;
                }
                if reforming.rests_for(self.part.group().leader(), ms) > 0 {
                    Ok(Stage::Proposed(id, reforming))
                } else {
                    self.forget(id, None);
                    let (voters, _) = self.part.group().members();
                    let asking = reforming.ask((self.id, self.survivor()), &voters, &self.metadata);
                    asking.map(|survey| Stage::Asking(survey, None))
                }
            }
            Stage::Asking(mut survey, until) => match (survey.next().map(|(node, _)| node), until) {
                (None, _) => {
                    let founding = survey.founder(outside.rng.u64(..));
                    Ok(self.have_reformed(founding, &command, outside))
                }
                (Some(node), None) => {
                    outside.send(self.id, Some(node), Message::AskSurvivor);
                    Ok(Stage::Asking(survey, Some(ms + ANSWER_MILLIS)))
                }
                (Some(_), Some(until)) if ms >= until => {
                    survey.answered(None).map(|()| Stage::Asking(survey, None))
                }
                (Some(_), until) => Ok(Stage::Asking(survey, until)),
            },
            Stage::Founding(id, until) => {
                if ms >= until {
                    self.forget(id, None);
                }
                if !self.proposals.ids().any(|open| open == id) {
                    return;
                }
                Ok(Stage::Founding(id, until))
            }
        };
        self.keep_on(command, next, outside);
    }

    fn keep_on(
        &mut self,
        command: Command,
        next: Result<Stage, cluster::ClusterError>,
        outside: &mut Outside<'_>,
    ) {
        match next {
            Ok(stage) => self.at_any_price = Some(AtAnyPrice { command, stage }),
            Err(error) => {
                outside.journal.note(format_args!("{} does not form the group anew: {error}", self.id));
            }
        }
    }

    /// What this node says of itself to a survivor.
    pub(crate) fn survivor(&self) -> Survivor {
        let group = self.part.group();
        Survivor { epoch: group.epoch(), position: group.position(), leader: group.leader() }
    }

    /// A survivor has answered.
    pub(crate) fn survivor_said(&mut self, from: NodeId, said: Survivor, outside: &mut Outside<'_>) {
        let Some(AtAnyPrice { command, stage }) = self.at_any_price.take() else { return };
        let next = match stage {
            Stage::Asking(mut survey, Some(_)) if survey.next().is_some_and(|(node, _)| node == from) => {
                survey.answered(Some(said)).map(|()| Stage::Asking(survey, None))
            }
            stage => Ok(stage),
        };
        self.keep_on(command, next, outside);
    }

    fn have_reformed(
        &mut self,
        (founder, epoch): (NodeId, Epoch),
        command: &Command,
        outside: &mut Outside<'_>,
    ) -> Stage {
        let id = self.proposals.begin(|_| None);
        if founder == self.id {
            self.reform(epoch, id, command.clone(), outside);
        } else {
            outside.send(self.id, Some(founder), Message::Reform(epoch, id, Box::new(command.clone())));
        }
        Stage::Founding(id, outside.now.mono_millis + PROPOSAL_MILLIS)
    }

    /// Forms the group anew, of this node at first.
    pub(crate) fn reform(
        &mut self,
        epoch: Epoch,
        id: ProposalId,
        command: Command,
        outside: &mut Outside<'_>,
    ) {
        match self.part.reform(epoch, id, command) {
            Ok(()) => {
                outside.journal.note(format_args!("{} forms the group anew: {epoch:?}", self.id));
                self.take_turn(outside);
            }
            Err(error) => {
                outside.journal.note(format_args!("{} cannot form the group anew: {error}", self.id));
            }
        }
    }
}
