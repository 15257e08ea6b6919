//! A failover at any price, as an operator asks a node for it: what `daemon::control` does in a server. What decides is
//! [`settee_node::AtAnyPrice`]; here its questions are carried to the survivors, and its proposal to the leader.

use base::NodeId;
use cluster::{ClusterError, Command, FailOver, consensus::ProposalId};
use settee_node::{Act, Known, Offer, Survivor};

use super::{Message, Outside, Process};

/// See the module.
pub(super) struct AtAnyPrice {
    command: Command,
    /// As which it is proposed, or was told to the node that forms the group anew.
    id: ProposalId,
    next: settee_node::AtAnyPrice,
}

impl Process {
    /// Fails these nodes over, whatever is lost by that, unless it is at that already.
    pub(crate) fn fail_over_at_any_price(&mut self, nodes: Vec<NodeId>, ms: u64) {
        if self.at_any_price.is_some() {
            return;
        }
        let next = settee_node::AtAnyPrice::new(nodes.clone(), ms);
        let command = Command::FailOver(FailOver { nodes, allow_unsafe: true, auto: false });
        if let Some(id) = self.propose(command.clone(), None, ms) {
            self.at_any_price = Some(AtAnyPrice { command, id, next });
        }
    }

    pub(super) fn go_on_at_any_price(&mut self, outside: &mut Outside<'_>) {
        let Some(mut price) = self.at_any_price.take() else { return };
        // It has ended, or was given up; while survivors are asked it is proposed no more.
        if price.next.waits() && !self.proposals.ids().any(|open| open == price.id) {
            return;
        }
        let (voters, metadata) = (self.members().0, self.metadata.clone());
        let survivor = self.survivor(outside.lease_now);
        let known = Known { me: self.id, survivor, voters: &voters, metadata: &metadata };
        let act = price.next.next(known, outside.rng.u64(..), outside.now.mono_millis);
        match act {
            Ok(Act::Rest(_)) => {}
            Ok(Act::Ask(node, _)) => {
                self.forget(price.id, None);
                outside.send(self.id, Some(node), Message::AskSurvivor);
            }
            Ok(Act::Found(founder, offer)) => {
                self.forget(price.id, None);
                price.id = self.proposals.begin(|_| None);
                self.part.offer(offer);
                self.have_reformed((founder, offer), price.id, price.command.clone(), outside);
            }
            Err(error) => return self.end_at_any_price(price.id, &error, outside),
        }
        self.at_any_price = Some(price);
    }

    fn end_at_any_price(&mut self, id: ProposalId, error: &ClusterError, outside: &mut Outside<'_>) {
        self.forget(id, None);
        outside.journal.note(format_args!("{} does not form the group anew: {error}", self.id));
    }

    /// What this node says of itself to a survivor.
    pub(crate) fn survivor(&mut self, lease_now: u64) -> Survivor {
        self.part.survivor(lease_now)
    }

    /// A survivor has answered.
    pub(crate) fn survivor_said(&mut self, from: NodeId, said: Survivor, outside: &mut Outside<'_>) {
        let Some(price) = self.at_any_price.as_mut().filter(|price| price.next.asks() == Some(from)) else {
            return;
        };
        if let Err(error) = price.next.answered(Some(said)) {
            let id = price.id;
            self.at_any_price = None;
            self.end_at_any_price(id, &error, outside);
        }
    }

    fn have_reformed(
        &mut self,
        (founder, offer): (NodeId, Offer),
        id: ProposalId,
        command: Command,
        outside: &mut Outside<'_>,
    ) {
        if founder == self.id {
            self.reform(offer, id, command, outside);
        } else {
            outside.send(self.id, Some(founder), Message::Reform(offer, id, Box::new(command)));
        }
    }

    /// Forms the group anew, of this node at first.
    pub(crate) fn reform(
        &mut self,
        offer: Offer,
        id: ProposalId,
        command: Command,
        outside: &mut Outside<'_>,
    ) {
        match self.part.reform(offer, id, command, outside.lease_now) {
            Ok(()) => {
                outside.journal.note(format_args!("{} forms the group anew: {:?}", self.id, offer.epoch));
                self.take_turn(outside);
            }
            Err(error) => {
                outside.journal.note(format_args!("{} cannot form the group anew: {error}", self.id));
            }
        }
    }
}
