//! Proposals of this node: their names, and which of them have not ended. Also when each is handed to which leader, and when it is given
//! up.
//!
//! A proposal may be handed over several times, to several leaders, and is carried out once at most. Two things ensure that: its name,
//! and the list of its proposer's other proposals that have not ended ([`Place`]). Its proposer hears how it ended from what was agreed
//! on, and from nobody else.
//!
//! What the leader decides goes another way: it is handed over once, to the leader's own consensus, in the term in which it was decided.
//! So all that follows from what is known by then is agreed on behind it. Any later, it could undo what it knows nothing of.
//!
//! Times are milliseconds of a clock that does not jump.

use std::collections::BTreeMap;

use base::NodeId;
use cluster::{
    ClusterError, Command, Metadata,
    consensus::{Place, Proposal, ProposalId},
};

/// How long a command may take to be agreed on.
pub const PROPOSAL_MILLIS: u64 = 15_000;
/// How soon a proposal is handed over again that was taken: its leader may be gone.
const TAKEN_AGAIN_MILLIS: u64 = 2_000;
/// How soon one is that was not, or that nobody could take.
const UNTAKEN_AGAIN_MILLIS: u64 = 50;
/// How long a leader is waited for that does not say whether it has taken one.
pub const TAKING_MILLIS: u64 = 5_000;

/// The proposals of one start of a node that have not ended. `W` waits for the end of one.
#[derive(Debug)]
pub struct Proposals<W> {
    origin: u64,
    last: u64,
    open: BTreeMap<u64, W>,
}

impl<W> Proposals<W> {
    /// `origin` must differ from that of every other start of a node.
    #[must_use]
    pub fn new(origin: u64) -> Self {
        // Number 0 was taken by what a node says about itself before it serves.
        Self { origin, last: 0, open: BTreeMap::new() }
    }

    /// A new proposal.
    pub fn begin(&mut self, waits: impl FnOnce(ProposalId) -> W) -> ProposalId {
        self.last += 1;
        let id = ProposalId { origin: self.origin, number: self.last };
        self.open.insert(id.number, waits(id));
        id
    }

    /// The lowest number of those that have not ended, the latest of which is that one.
    #[must_use]
    pub fn lowest_open(&self, latest: ProposalId) -> u64 {
        self.open.keys().next().map_or(latest.number, |first| *first)
    }

    /// A proposal has ended, or was given up; what waits for it, if it is one of these.
    pub fn ended(&mut self, id: ProposalId) -> Option<W> {
        // Others number theirs in the same way.
        if id.origin == self.origin { self.open.remove(&id.number) } else { None }
    }

    /// What waits for the end of a proposal.
    pub fn get_mut(&mut self, id: ProposalId) -> Option<&mut W> {
        if id.origin == self.origin { self.open.get_mut(&id.number) } else { None }
    }

    /// Those that have not ended.
    pub fn ids(&self) -> impl Iterator<Item = ProposalId> {
        self.open.keys().map(|number| ProposalId { origin: self.origin, number: *number })
    }
}

/// How a node stands to what its cluster agrees on, at the moment.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// It votes, applies and proposes.
    pub takes_part: bool,
    /// The term in which it leads, if it does.
    pub leads_in: Option<u64>,
    /// The node that leads, as far as is known here.
    pub leader: Option<NodeId>,
    /// This node.
    pub me: NodeId,
}

/// Whether this node may propose something, by what it knows: see [`Metadata::may_propose`]. One that leads says what the cluster needs.
fn may_propose(part: Part, known: &Metadata, command: &Command) -> bool {
    part.leads_in.is_some() || known.may_propose(part.me, command).is_ok()
}

/// What to do about a proposal.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Hand it to the consensus of this node, or of that one; [`Proposing::handed`] is to be told whether it was taken.
    Hand(Box<Proposal>, Option<NodeId>),
    /// Nothing, for so many milliseconds.
    Rest(u64),
    /// Its proposer is told that nobody knows how it ends.
    GiveUp(GivenUp),
}

/// Why a proposal was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// This node takes no part in what its cluster agrees on: it would not hear how the proposal ended.
    TakesNoPart,
    /// It has taken too long.
    TookTooLong,
    /// This node was failed over.
    FailedOver,
    /// The leader decided it, and leads no more, or its consensus has not taken it at once.
    NotLeading,
}

/// One proposal on its way.
#[derive(Debug)]
pub struct Proposing {
    id: ProposalId,
    command: Command,
    /// What this node knew before it proposed that, where proposals say so.
    seen: Option<u64>,
    /// The term whose leader has decided that; none for what anybody else wants.
    decided_in: Option<u64>,
    until: u64,
    again_at: u64,
    was_handed: bool,
    was_refused: bool,
}

impl Proposing {
    /// A command that is to be agreed on, by a node that knows these metadata.
    ///
    /// # Errors
    /// When some members would not understand it: it is not even proposed.
    pub fn new(id: ProposalId, command: Command, known: &Metadata, now: u64) -> Result<Self, ClusterError> {
        known.admits(&command)?;
        let seen = known.places_proposals().then_some(known.version);
        Ok(Self {
            id,
            command,
            seen,
            decided_in: None,
            until: now + PROPOSAL_MILLIS,
            again_at: now,
            was_handed: false,
            was_refused: false,
        })
    }

    /// The same, of what the leader of a term has decided ([`crate::Leadership::look`]).
    #[must_use]
    pub fn decided_in(self, term: u64) -> Self {
        Self { decided_in: Some(term), ..self }
    }

    /// What is to be done now, by what this node knows. `lowest_open`: see [`Proposals::lowest_open`].
    pub fn next(&mut self, part: Part, known: &Metadata, lowest_open: u64, now: u64) -> Next {
        if !part.takes_part {
            return Next::GiveUp(GivenUp::TakesNoPart);
        }
        // One that was handed over before may be carried out yet.
        if !self.was_handed && !may_propose(part, known, &self.command) {
            return Next::GiveUp(GivenUp::FailedOver);
        }
        if let Some(term) = self.decided_in {
            return self.next_of_decision(term, part, lowest_open, now);
        }
        if now < self.again_at {
            return Next::Rest(self.again_at - now);
        }
        // A node that was paused would have something carried out that was judged long ago.
        if now >= self.until {
            return Next::GiveUp(GivenUp::TookTooLong);
        }
        self.was_handed = true;
        let to = part.leader.filter(|leader| *leader != part.me);
        if part.leads_in.is_none() && to.is_none() {
            self.handed(false, now);
            return Next::Rest(UNTAKEN_AGAIN_MILLIS);
        }
        // It may be that nobody says whether it was taken.
        self.again_at = now + TAKING_MILLIS;
        Next::Hand(self.proposal(lowest_open), to.filter(|_| part.leads_in.is_none()))
    }

    fn next_of_decision(&mut self, term: u64, part: Part, lowest_open: u64, now: u64) -> Next {
        if part.leads_in != Some(term) || self.was_refused {
            return Next::GiveUp(GivenUp::NotLeading);
        }
        if !self.was_handed {
            self.was_handed = true;
            return Next::Hand(self.proposal(lowest_open), None);
        }
        if now >= self.until {
            return Next::GiveUp(GivenUp::TookTooLong);
        }
        Next::Rest(TAKEN_AGAIN_MILLIS.min(self.until - now))
    }

    fn proposal(&self, lowest_open: u64) -> Box<Proposal> {
        let place = self.seen.map(|seen| Place { open: lowest_open, seen });
        Box::new(Proposal { id: self.id, place, command: self.command.clone() })
    }

    /// It was handed over: whether it was taken, as far as is known.
    pub fn handed(&mut self, taken: bool, now: u64) {
        self.was_refused |= !taken;
        self.again_at = now + if taken { TAKEN_AGAIN_MILLIS } else { UNTAKEN_AGAIN_MILLIS };
    }

    /// The term whose leader has decided that, if one has: no consensus is to take it in another.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        self.decided_in
    }

    /// What is proposed.
    #[must_use]
    pub fn command(&self) -> &Command {
        &self.command
    }
}

#[cfg(test)]
mod tests {
    use cluster::{Membership, NodeInfo, Ports};

    use super::*;

    const ME: NodeId = NodeId(1);

    fn part(leader: Option<u16>) -> Part {
        let leader = leader.map(NodeId);
        Part { takes_part: true, leads_in: (leader == Some(ME)).then_some(4), leader, me: ME }
    }

    fn proposing(now: u64) -> Proposing {
        let id = ProposalId { origin: 7, number: 3 };
        Proposing::new(id, Command::SetClusterName("c".into()), &Metadata::new("c".into(), 256), now).unwrap()
    }

    fn known() -> Metadata {
        Metadata::new("c".into(), 256)
    }

    /// Where it is handed to.
    fn handed_to(next: &Next) -> Option<Option<NodeId>> {
        if let Next::Hand(_, to) = next { Some(*to) } else { None }
    }

    #[test]
    fn the_lowest_that_has_not_ended_is_told() {
        let mut proposals = Proposals::new(7);
        let (first, second) = (proposals.begin(|id| id.number), proposals.begin(|id| id.number));
        assert_eq!((proposals.lowest_open(first), proposals.lowest_open(second)), (1, 1));
        let of_another = ProposalId { origin: 8, ..first };
        assert_eq!((proposals.ended(of_another), proposals.get_mut(of_another)), (None, None));
        assert_eq!(proposals.ended(first), Some(1));
        assert_eq!((proposals.lowest_open(second), proposals.ended(first)), (2, None));
        assert_eq!(proposals.ended(second), Some(2));
        let third = proposals.begin(|id| id.number);
        assert_eq!((third.number, proposals.ids().collect::<Vec<_>>()), (3, vec![third]));
    }

    #[test]
    fn a_proposal_goes_to_the_leader_wherever_it_is() {
        assert_eq!(handed_to(&proposing(0).next(part(Some(1)), &known(), 3, 0)), Some(None));
        assert_eq!(handed_to(&proposing(0).next(part(Some(2)), &known(), 3, 0)), Some(Some(NodeId(2))));
        let mut proposing = proposing(0);
        assert_eq!(proposing.next(part(None), &known(), 3, 0), Next::Rest(UNTAKEN_AGAIN_MILLIS));
        // A node that has just lost the leadership may not know better yet.
        let deposed = Part { leads_in: None, ..part(Some(1)) };
        assert_eq!(proposing.next(deposed, &known(), 3, 50), Next::Rest(UNTAKEN_AGAIN_MILLIS));
        assert_eq!(handed_to(&proposing.next(part(Some(2)), &known(), 3, 100)), Some(Some(NodeId(2))));
    }

    #[test]
    fn one_that_was_taken_rests_longer_than_one_that_was_not() {
        let mut proposing = proposing(0);
        assert!(handed_to(&proposing.next(part(Some(2)), &known(), 3, 0)).is_some());
        assert_eq!(
            proposing.next(part(Some(2)), &known(), 3, 10),
            Next::Rest(TAKING_MILLIS - 10),
            "nobody has said"
        );
        proposing.handed(false, 20);
        assert_eq!(proposing.next(part(Some(2)), &known(), 3, 20), Next::Rest(UNTAKEN_AGAIN_MILLIS));
        assert!(handed_to(&proposing.next(part(Some(2)), &known(), 3, 70)).is_some());
        proposing.handed(true, 80);
        assert_eq!(proposing.next(part(Some(2)), &known(), 3, 80), Next::Rest(TAKEN_AGAIN_MILLIS));
    }

    #[test]
    fn one_is_given_up_when_its_time_is_up_or_its_node_takes_no_part() {
        let mut proposing = proposing(0);
        assert!(handed_to(&proposing.next(part(Some(2)), &known(), 3, 14_999)).is_some());
        proposing.handed(true, 15_000);
        assert_eq!(
            proposing.next(part(Some(2)), &known(), 3, 15_500),
            Next::Rest(1_500),
            "it may be agreed on yet"
        );
        assert_eq!(proposing.next(part(Some(2)), &known(), 3, 17_000), Next::GiveUp(GivenUp::TookTooLong));
        let paused = self::proposing(0).next(part(Some(2)), &known(), 3, PROPOSAL_MILLIS);
        assert_eq!(paused, Next::GiveUp(GivenUp::TookTooLong), "it was not handed over in time");
        let apart = Part { takes_part: false, ..part(Some(2)) };
        assert_eq!(proposing.next(apart, &known(), 3, 1), Next::GiveUp(GivenUp::TakesNoPart));
    }

    /// Between an earlier decision and its application another leader could have done what makes it wrong.
    #[test]
    fn what_a_leader_has_decided_is_handed_over_once_and_in_its_term() {
        let decided = |now| proposing(now).decided_in(4);
        let not_leading = Next::GiveUp(GivenUp::NotLeading);
        assert_eq!(decided(0).next(part(Some(2)), &known(), 3, 0), not_leading, "another node leads");
        let again = Part { leads_in: Some(5), ..part(Some(1)) };
        assert_eq!(decided(0).next(again, &known(), 3, 0), not_leading, "another has led in between");
        let mut taken = decided(0);
        assert_eq!(handed_to(&taken.next(part(Some(1)), &known(), 3, 0)), Some(None));
        taken.handed(true, 0);
        let rests = Next::Rest(TAKEN_AGAIN_MILLIS);
        assert_eq!(taken.next(part(Some(1)), &known(), 3, 5_000), rests, "it is not handed over again");
        assert_eq!(taken.next(again, &known(), 3, 5_000), not_leading);
        let too_long = Next::GiveUp(GivenUp::TookTooLong);
        assert_eq!(taken.next(part(Some(1)), &known(), 3, PROPOSAL_MILLIS), too_long);
        let mut refused = decided(0);
        assert!(handed_to(&refused.next(part(Some(1)), &known(), 3, 0)).is_some());
        refused.handed(false, 0);
        assert_eq!(refused.next(part(Some(1)), &known(), 3, 100), not_leading);
    }

    #[test]
    fn a_node_that_was_failed_over_proposes_nothing_but_where_it_is() {
        let node = |id: u16, membership| NodeInfo {
            id: NodeId(id),
            membership,
            ..NodeInfo::first(id.to_string(), "h".into(), Ports::default())
        };
        let mut known = known();
        known.nodes = vec![node(1, Membership::InactiveFailed), node(2, Membership::Active)];
        let id = ProposalId { origin: 7, number: 3 };
        let next = |command: Command, part: Part| {
            Proposing::new(id, command, &known, 0).unwrap().next(part, &known, 3, 0)
        };
        let renamed = Command::SetClusterName("c".into());
        assert_eq!(next(renamed.clone(), part(Some(2))), Next::GiveUp(GivenUp::FailedOver));
        assert!(
            handed_to(&next(renamed.clone(), part(Some(1)))).is_some(),
            "it leads until another node does"
        );
        let moved = NodeInfo { host: "elsewhere".into(), ..known.nodes[0].clone() };
        assert!(handed_to(&next(Command::SetNode(moved), part(Some(2)))).is_some());
        // It has heard of it since.
        let mut proposing = Proposing::new(id, renamed, &known, 0).unwrap();
        assert!(handed_to(&proposing.next(part(Some(2)), &self::known(), 3, 0)).is_some());
        proposing.handed(true, 0);
        assert_eq!(proposing.next(part(Some(2)), &known, 3, 1), Next::Rest(TAKEN_AGAIN_MILLIS - 1));
    }
}
