//! The replicated state: the metadata, and how the last proposals ended.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Proposal, ProposalId, proposers::Proposers};
use crate::{
    changes::{Command, command::Applied},
    metadata::{ClusterError, Metadata, level::LEVEL, shared},
};

/// How a proposal ended.
pub type Outcome = Result<Applied, ClusterError>;

/// Of proposals that say nothing of their proposer's others: so many of the last ones are remembered.
const REMEMBERED: usize = 512;

/// Carries out a change of the metadata.
pub type Apply = fn(&Metadata, &Command) -> Result<(Metadata, Applied), ClusterError>;

/// What a version makes of the log.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// The highest level of metadata that it understands.
    pub highest: u32,
    /// How it carries out changes.
    pub apply: Apply,
}

impl Version {
    /// This one.
    pub const THIS: Self = Self { highest: LEVEL, apply: Metadata::apply };
}

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    #[serde(with = "shared")]
    pub(super) metadata: Arc<Metadata>,
    /// Of proposals without a [`super::Place`]; oldest first.
    ended: VecDeque<(ProposalId, Outcome)>,
    /// Of those with one.
    #[serde(default, skip_serializing_if = "Proposers::is_empty")]
    proposers: Proposers,
}

impl State {
    pub(super) fn new(metadata: Arc<Metadata>) -> Self {
        Self { metadata, ended: VecDeque::new(), proposers: Proposers::default() }
    }

    /// Carries out a proposal, unless it was before.
    pub(super) fn apply(&mut self, proposal: &Proposal, apply: Apply) -> Outcome {
        if let Some(outcome) = self.outcome(proposal.id) {
            return outcome.clone();
        }
        let id = proposal.id;
        if proposal.place.is_some_and(|place| !self.proposers.is_new(id, place)) {
            let text = "nobody knows any more how this change ended: it was proposed too long ago";
            return Err(ClusterError::Failed(text.into()));
        }
        let outcome = apply(&self.metadata, &proposal.command).map(|(next, applied)| {
            self.metadata = Arc::new(next);
            applied
        });
        if let Some(place) = proposal.place {
            self.proposers.note(id, place, outcome.clone(), self.metadata.version);
            return outcome;
        }
        self.remember(id, outcome.clone());
        outcome
    }

    fn remember(&mut self, id: ProposalId, outcome: Outcome) {
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back((id, outcome));
    }

    /// What a group that is formed anew begins with: all of `left` carried out, then `last`, which has to be accepted. The group is
    /// that many lives later than the one that this state is of. Nodes that `left` has removed or failed over need no failover.
    pub(super) fn reformed(
        &self,
        left: &[Proposal],
        (leaps, last): (u64, &Proposal),
        apply: Apply,
    ) -> Result<Self, ClusterError> {
        let mut state = self.clone();
        for proposal in left {
            // Refused or not: the proposer is told.
            let _ = state.apply(proposal, apply);
        }
        state.metadata = Arc::new(state.metadata.reformed(leaps));
        match last.without_gone(&state.metadata) {
            Some(last) => {
                state.apply(&last, apply)?;
            }
            None => state.remember(last.id, Ok(Applied::Done)),
        }
        Ok(state)
    }

    /// The same, of each refusal its kind only.
    pub(super) fn without_words(&self) -> Self {
        let kind = |outcome: &Outcome| outcome.clone().map_err(|error| error.without_words());
        let ended = self.ended.iter().map(|(id, outcome)| (*id, kind(outcome)));
        Self {
            metadata: Arc::clone(&self.metadata),
            ended: ended.collect(),
            proposers: self.proposers.without_words(),
        }
    }

    /// How a proposal ended, if that is remembered.
    pub(super) fn outcome(&self, id: ProposalId) -> Option<&Outcome> {
        let without_place = || self.ended.iter().rev().find(|(ended, _)| *ended == id);
        self.proposers.outcome(id).or_else(|| without_place().map(|(_, outcome)| outcome))
    }

    /// How the last proposals ended.
    pub(super) fn outcomes(&self) -> Vec<(ProposalId, Outcome)> {
        let placed = self.proposers.outcomes().map(|(id, outcome)| (id, outcome.clone()));
        self.ended.iter().cloned().chain(placed).collect()
    }
}

#[cfg(test)]
mod tests {
    use base::BucketUuid;

    use super::{super::Place, *};
    use crate::{
        changes::bucket::BucketParams,
        metadata::{NodeInfo, Ports},
    };

    fn with_bucket() -> State {
        let node = NodeInfo::first("n".into(), "h".into(), Ports::default());
        let params =
            BucketParams { ram_quota_mb: Some(100), flush_enabled: Some(true), ..BucketParams::default() };
        let bucket = Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u1".into()), params };
        let commands = [Command::SetNode(node), bucket];
        let founded = Metadata::new("c".into(), 1_000);
        let apply = |state: Metadata, command: &Command| state.apply(command).unwrap().0;
        State::new(Arc::new(commands.iter().fold(founded, apply)))
    }

    fn proposal(origin: u64, number: u64, command: Command) -> Proposal {
        // Of each proposer the last one only has not ended, but for the first proposer, which has heard of nothing.
        let place = Place { open: if origin == 1 { 1 } else { number }, seen: 0 };
        Proposal { place: Some(place), ..Proposal::new(ProposalId { origin, number }, command) }
    }

    fn flush(uuid: &str) -> Command {
        Command::FlushBucket { name: "b".into(), uuid: BucketUuid(uuid.into()) }
    }

    #[test]
    fn a_flush_that_is_repeated_after_many_others_is_carried_out_once() {
        let mut state = with_bucket();
        let early = proposal(1, 1, flush("u2"));
        let outcome = state.apply(&early, Metadata::apply);
        assert!(outcome.is_ok());
        for number in 1..=600 {
            state
                .apply(&proposal(2, number, Command::SetClusterName(number.to_string())), Metadata::apply)
                .unwrap();
        }
        state.apply(&proposal(2, 601, flush("u3")), Metadata::apply).unwrap();
        assert_eq!(state.apply(&early, Metadata::apply), outcome, "its proposer is told how it ended");
        assert_eq!(state.metadata.buckets["b"].uuid, BucketUuid("u3".into()), "nothing was flushed again");
    }

    #[test]
    fn what_comes_late_is_not_carried_out_after_a_snapshot_or_a_new_beginning_either() {
        let mut state = with_bucket();
        let early = proposal(2, 1, flush("u2"));
        state.apply(&early, Metadata::apply).unwrap();
        state.apply(&proposal(2, 2, flush("u3")), Metadata::apply).unwrap();
        let json = serde_json::to_vec(&state).unwrap();
        let read: State = crate::metadata::strict::read(&json).unwrap();
        let reformed =
            state.reformed(&[], (1, &proposal(3, 1, Command::ResetAutoFailover)), Metadata::apply).unwrap();
        for mut state in [state, read, reformed] {
            assert!(state.apply(&early, Metadata::apply).is_err(), "its proposer has said that it had ended");
            assert_eq!(state.metadata.buckets["b"].uuid, BucketUuid("u3".into()));
        }
    }
}
