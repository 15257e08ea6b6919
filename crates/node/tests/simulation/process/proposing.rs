//! What a process has the cluster agree on, from when it wants it until it knows how that ended.

use cluster::{
    Command,
    consensus::{Proposal, ProposalId},
};
use settee_node::{Next, Part, Proposing};

use super::{Message, Outside, Place, Process, Proposed};

impl Process {
    /// Has the cluster agree on a command, if it can; its name, unless some would not understand it. `decided_in`: the term whose leader
    /// has decided it, if it is the leader's.
    pub(crate) fn propose(
        &mut self,
        command: Command,
        decided_in: Option<u64>,
        ms: u64,
    ) -> Option<ProposalId> {
        let id = self.proposals.begin(|_| None);
        match Proposing::new(id, command.clone(), &self.metadata, ms) {
            Ok(proposing) => {
                let proposing = match decided_in {
                    Some(term) => proposing.decided_in(term),
                    None => proposing,
                };
                *self.proposals.get_mut(id).expect("it has just begun") =
                    Some(Proposed { proposing, decided_in });
                Some(id)
            }
            Err(_) => {
                self.forget(id, decided_in.map(|term| (term, &command)));
                None
            }
        }
    }

    /// Whether a proposal of this process has not ended.
    pub(crate) fn has_proposed(&self) -> bool {
        self.proposals.ids().next().is_some() || self.at_any_price.is_some()
    }

    /// Its proposals and reports that have not ended: shown where a run fails.
    pub(crate) fn what_is_open(&self) -> String {
        let proposals: Vec<_> = self.proposals.ids().collect();
        let report = self.report.as_ref().map(|report| (report.applied, report.stands_still));
        format!("proposals {proposals:?}, {:?}, (applied, stands still) {report:?}", self.reporter)
    }

    /// A proposal was given up; of the orchestrator in that term if it is this one.
    pub(super) fn forget(&mut self, id: ProposalId, leaders: Option<(u64, &Command)>) {
        self.proposals.ended(id);
        if let Some((term, command)) = leaders {
            self.leadership.ended(term, command, false);
        }
    }

    pub(super) fn propose_again(&mut self, outside: &mut Outside<'_>) {
        let ms = outside.now.mono_millis;
        let ids: Vec<ProposalId> = self.proposals.ids().collect();
        for id in ids {
            let (lowest_open, group) = (self.proposals.lowest_open(id), self.part.group());
            let (takes_part, leads_in, leader) = (group.broken().is_none(), group.leads_in(), group.leader());
            let part = Part { takes_part, leads_in, leader, me: self.id };
            let Some(Some(proposed)) = self.proposals.get_mut(id) else { continue };
            match proposed.proposing.next(part, &self.metadata, lowest_open, ms) {
                Next::Rest(_) => {}
                Next::Hand(proposal, None) => {
                    outside.proposed.push(Proposal::clone(&proposal));
                    let taken = self.part.propose(Some(self.id), &proposal).is_ok();
                    self.handed(id, taken, ms);
                }
                Next::Hand(proposal, to) => {
                    outside.proposed.push(Proposal::clone(&proposal));
                    outside.send(self.id, to, Message::Propose(proposal));
                }
                Next::GiveUp(_) => {
                    let leaders =
                        proposed.decided_in.map(|term| (term, proposed.proposing.command().clone()));
                    self.forget(id, leaders.as_ref().map(|(term, command)| (*term, command)));
                }
            }
        }
    }

    /// Another node takes this one for the leader.
    pub(crate) fn take_proposal(&mut self, proposal: &Proposal, from: Place, outside: &mut Outside<'_>) {
        let taken = self.part.propose(from, proposal).is_ok();
        outside.send(self.id, from, Message::Proposed { id: proposal.id, taken });
    }

    /// A proposal was handed over.
    pub(crate) fn handed(&mut self, id: ProposalId, taken: bool, ms: u64) {
        if let Some(Some(proposed)) = self.proposals.get_mut(id) {
            proposed.proposing.handed(taken, ms);
        }
    }
}
