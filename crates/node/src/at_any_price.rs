//! A failover at any price: what is done next about it, and what ends it. It begins as a proposal that perhaps nobody takes, and may lead
//! to a group that is formed anew.
//!
//! It goes on in stages. It is proposed as every other failover for as long as somebody leads, or has led a moment ago ([`Reforming`]). Then
//! it is proposed no more, and the survivors are asked, one after the other ([`Survey`]). Once all have answered one of them is told to
//! form the group anew, and how the failover ends is waited for.
//!
//! Times are milliseconds of a clock that does not jump.

use std::collections::BTreeSet;

use base::NodeId;
use cluster::{ClusterError, Metadata};

use crate::{Offer, PROPOSAL_MILLIS, Reforming, Survey, Survivor};

/// How long the answer of a survivor is waited for.
const ANSWER_MILLIS: u64 = 5_000;

/// What the node knows that was asked for the failover.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The node.
    pub me: NodeId,
    /// How it stands: [`crate::Participant::survivor`] says it, each time anew.
    pub survivor: Survivor,
    /// Those that vote in the agreement.
    pub voters: &'a BTreeSet<NodeId>,
    /// As carried out.
    pub metadata: &'a Metadata,
}

/// What to do about a failover at any price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing for so many milliseconds, or until something is heard.
    Rest(u64),
    /// Give up what was proposed, if that has not ended, and ask that node, at that host, how it stands: [`AtAnyPrice::answered`] is to be
    /// told.
    Ask(NodeId, String),
    /// Give up what was proposed, take note of the offer ([`crate::Participant::offer`]), and have that node form the group anew.
    Found(NodeId, Offer),
}

/// See the module.
#[derive(Debug)]
pub struct AtAnyPrice {
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// It is proposed as every other failover, and nobody leads, perhaps.
    Proposed(Reforming),
    /// Survivors are asked; until then the next one may answer.
    Asking(Survey, Option<u64>),
    /// Somebody was told to form the group anew. How the failover ends is waited for until then.
    Founding(u64),
}

impl AtAnyPrice {
    /// Of nodes that an administrator says are lost.
    #[must_use]
    pub fn new(lost: Vec<NodeId>, now: u64) -> Self {
        Self { stage: Stage::Proposed(Reforming::new(lost, now)) }
    }

    /// What to do now. To be asked often until the failover has ended: a leader counts when it is seen. `lot` is random.
    ///
    /// # Errors
    /// When the group is not to be formed anew, or nobody says in time how that has ended.
    pub fn next(&mut self, known: Known<'_>, lot: u64, now: u64) -> Result<Act, ClusterError> {
        if let Stage::Proposed(reforming) = &mut self.stage {
            let rests = reforming.rests_for(known.survivor.leader, now);
            if rests > 0 {
                return Ok(Act::Rest(rests));
            }
            let survey = reforming.ask((known.me, known.survivor), known.voters, known.metadata)?;
            self.stage = Stage::Asking(survey, None);
        }
        if matches!(self.stage, Stage::Asking(_, Some(until)) if now >= until) {
            self.answered(None)?;
        }
        match &mut self.stage {
            Stage::Asking(_, Some(until)) => Ok(Act::Rest(*until - now)),
            Stage::Asking(survey, until) => match survey.next() {
                Some((node, host)) => {
                    *until = Some(now + ANSWER_MILLIS);
                    Ok(Act::Ask(node, host.to_owned()))
                }
                None => {
                    let (founder, offer) = survey.founder(known.survivor, lot)?;
                    self.stage = Stage::Founding(now + PROPOSAL_MILLIS);
                    Ok(Act::Found(founder, offer))
                }
            },
            Stage::Founding(until) if now < *until => Ok(Act::Rest(*until - now)),
            Stage::Founding(_) | Stage::Proposed(_) => Err(ClusterError::Failed(
                "the survivors have formed their group anew, which this node has not joined yet".into(),
            )),
        }
    }

    /// Whether it waits for the end of what was proposed, or of what the node was told that forms the group anew.
    #[must_use]
    pub fn waits(&self) -> bool {
        !matches!(self.stage, Stage::Asking(..))
    }

    /// The node that is being asked, if one is.
    #[must_use]
    pub fn asks(&self) -> Option<NodeId> {
        match &self.stage {
            Stage::Asking(survey, Some(_)) => survey.next().map(|(node, _)| node),
            _ => None,
        }
    }

    /// The node that was asked has answered, or nobody has heard from it.
    ///
    /// # Errors
    /// When the group is not to be formed anew because of that.
    pub fn answered(&mut self, answer: Option<Survivor>) -> Result<(), ClusterError> {
        match &mut self.stage {
            Stage::Asking(survey, until @ Some(_)) => {
                *until = None;
                survey.answered(answer)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::{
        NodeInfo, Ports,
        consensus::{Epoch, Position},
    };

    use super::*;

    fn survivor(leader: Option<u16>) -> Survivor {
        let epoch = Epoch { number: 0, lot: 0 };
        let position = Position { epoch, term: 1, index: 5 };
        Survivor { epoch, position, leader: leader.map(NodeId), ticket: Some(3) }
    }

    /// Four nodes, of which the last two are lost.
    fn metadata() -> Metadata {
        let mut metadata = Metadata::new("c".into(), 16);
        let node = |id: u16| {
            let node = NodeInfo::first(id.to_string(), format!("h{id}"), Ports::default());
            NodeInfo { id: NodeId(id), ..node }
        };
        metadata.nodes = (0..4).map(node).collect();
        metadata.next_node = 4;
        metadata
    }

    struct Asked(AtAnyPrice, Metadata, BTreeSet<NodeId>);

    impl Asked {
        fn new() -> Self {
            let lost = vec![NodeId(2), NodeId(3)];
            Self(AtAnyPrice::new(lost, 0), metadata(), (0..4).map(NodeId).collect())
        }

        fn next(&mut self, leader: Option<u16>, now: u64) -> Result<Act, ClusterError> {
            let known =
                Known { me: NodeId(0), survivor: survivor(leader), voters: &self.2, metadata: &self.1 };
            self.0.next(known, 9, now)
        }
    }

    #[test]
    fn survivors_are_asked_once_nobody_has_led_for_long_and_then_the_group_is_formed_anew() {
        let mut asked = Asked::new();
        assert_eq!(asked.next(Some(2), 1_000), Ok(Act::Rest(4_000)));
        assert_eq!(asked.next(None, 4_999), Ok(Act::Rest(1)));
        assert_eq!(asked.next(None, 5_000), Ok(Act::Ask(NodeId(1), "h1".into())));
        assert_eq!(asked.next(None, 5_500), Ok(Act::Rest(ANSWER_MILLIS - 500)));
        assert_eq!(asked.0.asks(), Some(NodeId(1)));
        asked.0.answered(Some(survivor(None))).unwrap();
        assert_eq!(asked.0.asks(), None);
        let offer = Offer { epoch: Epoch { number: 1, lot: 9 }, ticket: Some(3) };
        assert_eq!(asked.next(None, 6_000), Ok(Act::Found(NodeId(0), offer)));
        assert_eq!(asked.next(None, 7_000), Ok(Act::Rest(PROPOSAL_MILLIS - 1_000)));
        assert!(asked.next(None, 6_000 + PROPOSAL_MILLIS).is_err());
    }

    #[test]
    fn a_survivor_that_does_not_answer_in_time_ends_it() {
        let mut asked = Asked::new();
        assert_eq!(asked.next(None, 4_000), Ok(Act::Ask(NodeId(1), "h1".into())));
        assert!(matches!(asked.next(None, 4_000 + ANSWER_MILLIS), Err(ClusterError::MembersRefused(_))));
    }

    #[test]
    fn a_survivor_that_knows_a_leader_ends_it() {
        let mut asked = Asked::new();
        assert_eq!(asked.next(None, 4_000), Ok(Act::Ask(NodeId(1), "h1".into())));
        assert!(matches!(asked.0.answered(Some(survivor(Some(3)))), Err(ClusterError::Failed(_))));
    }
}
