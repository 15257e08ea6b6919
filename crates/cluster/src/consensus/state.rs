//! The replicated state: the metadata, and how the last proposals ended.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{ProposalId, entry::Proposal};
use crate::{ClusterError, Metadata, command::Applied, shared};

/// How a proposal ended.
pub type Outcome = Result<Applied, ClusterError>;

/// Proposals whose end is remembered: far more than can be under way, so that one that is proposed again, because its
/// proposer heard nothing, is recognised.
const REMEMBERED: usize = 512;

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    #[serde(with = "shared")]
    pub(super) metadata: Arc<Metadata>,
    /// Oldest first.
    ended: VecDeque<(ProposalId, Outcome)>,
}

impl State {
    pub(super) fn new(metadata: Arc<Metadata>) -> Self {
        Self { metadata, ended: VecDeque::new() }
    }

    /// Carries out a proposal, unless it was before.
    pub(super) fn apply(&mut self, proposal: &Proposal) -> Outcome {
        if let Some(outcome) = self.outcome(proposal.id) {
            return outcome.clone();
        }
        let outcome = self.metadata.apply(&proposal.command).map(|(next, applied)| {
            self.metadata = Arc::new(next);
            applied
        });
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back((proposal.id, outcome.clone()));
        outcome
    }

    /// What a group that is formed anew begins with: all of `left` carried out, then `last`, which has to be accepted.
    pub(super) fn reformed(&self, left: &[Proposal], last: &Proposal) -> Result<Self, ClusterError> {
        let mut state = self.clone();
        for proposal in left {
            // Refused or not: whoever proposed it is told.
            let _ = state.apply(proposal);
        }
        state.metadata = Arc::new(state.metadata.reformed());
        state.apply(last)?;
        Ok(state)
    }

    /// How a proposal ended, if it did lately.
    pub(super) fn outcome(&self, id: ProposalId) -> Option<&Outcome> {
        self.ended.iter().rev().find(|(ended, _)| *ended == id).map(|(_, outcome)| outcome)
    }

    /// How the last proposals ended.
    pub(super) fn outcomes(&self) -> Vec<(ProposalId, Outcome)> {
        self.ended.iter().cloned().collect()
    }
}
