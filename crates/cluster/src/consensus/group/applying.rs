//! Carrying out what was agreed on, in order: changes of the metadata, snapshots of them, and changes of the group.

use std::sync::Arc;

use raft::eraftpb::{Entry, EntryType, Snapshot};

use super::{
    Commit, Consensus,
    formats::{made_by_newer, raised, read_proposal, read_state},
};
use crate::consensus::{Outcome, Proposal, ProposalId, entry::MemberChange};

/// Why a member cannot go on that no other one waits for. It is told so once it asks.
const REMOVED: &str = "this node was removed from its cluster, whose metadata are of a newer version since";

impl Consensus {
    pub(super) fn install(&mut self, snapshot: &Snapshot) {
        match read_state(snapshot, self.version.highest) {
            Ok(state) => self.state = state,
            Err(error) => {
                self.broken = Some(error);
                return;
            }
        }
        self.is_unfit = false;
        (self.applied, self.applied_term) = (snapshot.get_metadata().index, snapshot.get_metadata().term);
        let applied = self.applied;
        self.with_raft(|raw| raw.advance_apply_to(applied));
        self.commit(self.state.outcomes(), true);
        self.marks.applied(&self.state, self.applied);
    }

    pub(super) fn apply(&mut self, entry: &Entry) {
        let change = entry.get_entry_type() != EntryType::EntryNormal;
        let proposal = match (change, entry.data.is_empty()) {
            (true, _) => {
                self.change_members(entry);
                None
            }
            // A new leader's first entry.
            (false, true) => None,
            (false, false) => match self.asked_for(entry) {
                Ok(proposal) => Some(proposal),
                Err(error) => {
                    self.broken = Some(error);
                    return;
                }
            },
        };
        (self.applied, self.applied_term) = (entry.index, entry.term);
        let applied = self.applied;
        self.with_raft(|raw| raw.advance_apply_to(applied));
        if let Some(proposal) = proposal {
            let outcome = self.state.apply(&proposal, self.version.apply);
            self.commit(vec![(proposal.id, outcome)], false);
            self.adjust_members();
        }
        self.marks.applied(&self.state, self.applied);
    }

    /// What an entry asks for, unless this version does not understand it, or what comes after it.
    fn asked_for(&self, entry: &Entry) -> Result<Proposal, String> {
        let (metadata, highest) = (&self.state.metadata, self.version.highest);
        let newer = |error: String| made_by_newer(&format!("change {}", entry.index), &error);
        let proposal = read_proposal(&entry.data, highest).map_err(newer)?;
        match raised(&proposal.command, metadata, highest) {
            None => Ok(proposal),
            Some(_) if metadata.has_removed(self.member.node) => Err(REMOVED.into()),
            Some(error) => Err(newer(error)),
        }
    }

    fn commit(&mut self, outcomes: Vec<(ProposalId, Outcome)>, is_snapshot: bool) {
        let metadata = Arc::clone(&self.state.metadata);
        self.out.commits.push(Commit { index: self.applied, metadata, is_snapshot, outcomes });
    }

    fn change_members(&mut self, entry: &Entry) {
        match serde_json::from_slice::<MemberChange>(&entry.context) {
            Ok(change) => {
                // Refused by every member alike, if at all: it depends on nothing but the group before.
                let _ = self.with_raft(|raw| raw.apply_conf_change(&change.conf_change()));
                self.step_down_if_removed();
            }
            Err(error) => {
                let index = entry.index;
                self.broken = Some(format!("change {index} of the group cannot be read ({error})"));
            }
        }
    }

    /// A member that was about to be removed may have become the leader. Raft counts on every leader to be a member. The others elect one
    /// of their own. This member votes where they do not know yet that they need its vote no more.
    fn step_down_if_removed(&mut self) {
        let raft = &self.raw.raft;
        if self.leads() && raft.prs().get(raft.id).is_none() {
            self.with_raft(|raw| raw.raft.become_follower(raw.raft.term, raft::INVALID_ID));
        }
    }
}
