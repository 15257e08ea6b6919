//! Failing over so many nodes that the others cannot agree on it. This module decides when the survivors may form anew
//! the group that agrees on the metadata. It also decides which of them are asked what they know, and which of them
//! begins.
//!
//! Only an administrator can say that the lost ones will not go on by themselves. So it happens only where a failover may be unsafe,
//! nobody has led for long ([`Reforming`]), and nobody can. Nobody can where the survivors that vote are no majority. Every node that is
//! not named as lost has to answer, since what it knows may be more than what the others do ([`Survey`]). The one whose log goes furthest
//! begins the new group ([`Participant::reform`](crate::Participant::reform)), and decides once more whether it may, by what it knows.
//! Nodes that were failed over are asked as well. The asker may not have heard that one of them was recovered, and what that one knows
//! would be lost. So the group is not formed anew where one is further than all others. Each of them may be silent: most are dead.
//! The others, and those that were lost should they come back, are told to join it (`cluster::consensus`).
//!
//! Invariants:
//! - An offer to form the group anew ([`Offer`]) is taken within moments or never. A paused founder may be named as lost in the next
//!   attempt, which has another node form the group. So each answer of a survivor has a ticket ([`Offers`]), and an offer names that
//!   ticket. A ticket ends before an attempt can have begun anew. It ends as well when another asker is answered.
//! - A node offers no number of a life twice, whether or not the offer was taken. A founder that has taken it may be lost. It comes back
//!   in an earlier life than the group that was formed without it, and joins that one.
//!
//! Times are milliseconds of a clock that does not jump.

use std::collections::{BTreeSet, VecDeque};

use base::NodeId;
use cluster::{
    ClusterError, Membership, Metadata, NodeInfo,
    consensus::{Epoch, Position},
};

/// How long nobody must have led: longer than it takes to elect somebody who can be elected.
const LEADERLESS_MILLIS: u64 = 4_000;
/// How long what a survivor has answered may be used. A node that asks anew waits for as long at least before it asks any other.
const TICKET_MILLIS: u64 = LEADERLESS_MILLIS;

/// What a survivor says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// The life of the group that it belongs to, or the latest one that it has offered.
    pub epoch: Epoch,
    /// How far the log goes that it has.
    pub position: Position,
    /// The node that leads, as far as it knows.
    pub leader: Option<NodeId>,
    /// What an offer to it has to name; absent from what an older version says.
    pub ticket: Option<u64>,
}

/// What a node is told that is to form the group anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// In that life.
    pub epoch: Epoch,
    /// The last one that it has given to the asker.
    pub ticket: Option<u64>,
}

/// What a node has offered, and which offer it takes.
#[derive(Debug)]
pub(crate) struct Offers {
    /// The latest life that it has offered.
    latest: Epoch,
    /// The only ticket that counts, and until when.
    ticket: u64,
    until: u64,
}

impl Offers {
    /// `seed` differs from that of every other start: a ticket of an earlier start counts for nothing.
    pub(crate) fn new(seed: u64) -> Self {
        Self { latest: Epoch::default(), ticket: seed, until: 0 }
    }

    /// What a node says that stands like this.
    pub(crate) fn answer(&mut self, survivor: Survivor, now: u64) -> Survivor {
        self.ticket = self.ticket.wrapping_add(1);
        self.until = now + TICKET_MILLIS;
        Survivor { epoch: survivor.epoch.max(self.latest), ticket: Some(self.ticket), ..survivor }
    }

    /// This node is about to have somebody form the group anew.
    pub(crate) fn note(&mut self, epoch: Epoch) {
        self.latest = self.latest.max(epoch);
    }

    /// # Errors
    /// When an offer with that ticket comes too late.
    pub(crate) fn admit(&self, ticket: Option<u64>, now: u64) -> Result<(), ClusterError> {
        if ticket == Some(self.ticket) && now < self.until {
            return Ok(());
        }
        let text = "the node that was to form the group anew has heard of it too late; ask again, at a node that runs the newest version";
        Err(ClusterError::Failed(text.into()))
    }
}

/// A failover at any price, until there is nothing left but to form the group anew. Meanwhile it is proposed as every other one.
#[derive(Debug)]
pub struct Reforming {
    lost: Vec<NodeId>,
    /// Nobody has led since.
    since: u64,
}

impl Reforming {
    /// Of nodes that an administrator says are lost.
    #[must_use]
    pub fn new(lost: Vec<NodeId>, now: u64) -> Self {
        Self { lost, since: now }
    }

    /// How long nobody must lead yet before survivors may be asked. To be called often: a leader counts when it is seen.
    pub fn rests_for(&mut self, leader: Option<NodeId>, now: u64) -> u64 {
        if leader.is_some() {
            self.since = now;
        }
        (self.since + LEADERLESS_MILLIS).saturating_sub(now)
    }

    /// Whom to ask what they know, where the majority is lost by what the node `me` knows, which stands like that.
    ///
    /// # Errors
    /// [`ClusterError::MembersRefused`] where it is not, or this node is to be failed over itself.
    pub fn ask(
        &self,
        (me, survivor): (NodeId, Survivor),
        voters: &BTreeSet<NodeId>,
        metadata: &Metadata,
    ) -> Result<Survey, ClusterError> {
        if self.lost.contains(&me) {
            return Err(refused("Ask a node that is not to be failed over."));
        }
        cluster::consensus::check_majority_is_lost(voters, &self.lost, metadata)?;
        let others = metadata.nodes.iter().filter(|node| node.id != me && !self.lost.contains(&node.id));
        let has_failed = |node: &NodeInfo| node.membership == Membership::InactiveFailed;
        // These come last: they are compared with what all others know.
        let (failed, counted): (Vec<_>, Vec<_>) = others.partition(|node| has_failed(node));
        // One that votes may know of what only lost nodes know as well. Below that level it cannot be named as lost.
        let may_be_silent = |node: &NodeInfo| {
            let votes = voters.contains(&node.id) && metadata.names_added_nodes();
            has_failed(node) || node.membership == Membership::InactiveAdded && !votes
        };
        let asked = counted.into_iter().chain(failed).map(|node| Asked {
            node: node.id,
            host: node.host.clone(),
            may_be_silent: may_be_silent(node),
            has_failed: has_failed(node),
        });
        let furthest = Furthest { node: me, host: String::new(), said: survivor };
        let mut survey = Survey { me, asked: asked.collect(), furthest, epoch: survivor.epoch };
        survey.take(me, "this node", survivor)?;
        Ok(survey)
    }
}

/// A node that has yet to say what it knows.
#[derive(Debug)]
struct Asked {
    node: NodeId,
    host: String,
    /// It holds no data and does not vote, and so nothing that clients have been told of rests on what it knows. Or it was failed over.
    may_be_silent: bool,
    /// It was failed over, as far as the asker knows, and forms no group.
    has_failed: bool,
}

/// The node whose log goes furthest.
#[derive(Debug)]
struct Furthest {
    node: NodeId,
    host: String,
    /// Last.
    said: Survivor,
}

/// Asking survivors, one after the other. The one that is to form the group anew is asked once more at the end, so that its ticket is
/// young.
#[derive(Debug)]
pub struct Survey {
    me: NodeId,
    asked: VecDeque<Asked>,
    furthest: Furthest,
    /// The latest life of the group that any of them belongs to.
    epoch: Epoch,
}

impl Survey {
    /// The next one to be asked, and its host; nothing when all have answered.
    #[must_use]
    pub fn next(&self) -> Option<(NodeId, &str)> {
        self.asked.front().map(|asked| (asked.node, asked.host.as_str()))
    }

    /// It has answered, or nobody has heard from it.
    ///
    /// # Errors
    /// When the group is not to be formed anew because of that.
    pub fn answered(&mut self, answer: Option<Survivor>) -> Result<(), ClusterError> {
        let Some(Asked { node, host, may_be_silent, has_failed }) = self.asked.pop_front() else {
            return Ok(());
        };
        match answer {
            Some(survivor) if has_failed => self.compare(&host, survivor)?,
            Some(survivor) => self.take(node, &host, survivor)?,
            None if may_be_silent => {}
            None => {
                let text = "is to stay and does not answer. Fail it over as well, or bring it back.";
                return Err(refused(format!("{host} {text}")));
            }
        }
        let Furthest { node: founder, host, .. } = &self.furthest;
        if self.asked.is_empty() && ![self.me, node].contains(founder) {
            let (host, may_be_silent, has_failed) = (host.clone(), false, false);
            self.asked.push_back(Asked { node: *founder, host, may_be_silent, has_failed });
        }
        Ok(())
    }

    /// The node that is to form the group anew, and what it is told. `now` is how the asker stands by now, and `lot` is random.
    ///
    /// # Errors
    /// When the asker knows a leader by now.
    pub fn founder(&mut self, now: Survivor, lot: u64) -> Result<(NodeId, Offer), ClusterError> {
        self.take(self.me, "this node", now)?;
        let Furthest { node, said, .. } = &self.furthest;
        Ok((*node, Offer { epoch: self.epoch.next(lot), ticket: said.ticket }))
    }

    /// A node that was failed over, as far as the asker knows, has answered after all others.
    fn compare(&mut self, host: &str, survivor: Survivor) -> Result<(), ClusterError> {
        self.note(host, survivor)?;
        if survivor.position > self.furthest.said.position {
            let text = "was failed over, and knows more of what was agreed on than the nodes that are to stay. Bring a lost node back. \
                        To go on without what it knows, stop it first.";
            return Err(refused(format!("{host} {text}")));
        }
        Ok(())
    }

    /// What counts of every answer.
    fn note(&mut self, host: &str, survivor: Survivor) -> Result<(), ClusterError> {
        if let Some(leader) = survivor.leader {
            return Err(ClusterError::Failed(format!("by what {host} knows, node {leader} leads")));
        }
        self.epoch = self.epoch.max(survivor.epoch);
        Ok(())
    }

    fn take(&mut self, node: NodeId, host: &str, survivor: Survivor) -> Result<(), ClusterError> {
        self.note(host, survivor)?;
        if survivor.position > self.furthest.said.position || node == self.furthest.node {
            self.furthest = Furthest { node, host: host.to_owned(), said: survivor };
        }
        Ok(())
    }
}

fn refused(text: impl Into<String>) -> ClusterError {
    ClusterError::MembersRefused(text.into())
}

#[cfg(test)]
mod tests {
    use cluster::{NodeInfo, Ports};

    use super::*;

    fn metadata(nodes: u16) -> Metadata {
        let mut metadata = Metadata::new("c".into(), 16);
        metadata.nodes = (0..nodes)
            .map(|id| NodeInfo {
                id: NodeId(id),
                ..NodeInfo::first(id.to_string(), format!("h{id}"), Ports::default())
            })
            .collect();
        metadata.next_node = nodes;
        metadata
    }

    fn ids(numbers: &[u16]) -> Vec<NodeId> {
        numbers.iter().copied().map(NodeId).collect()
    }

    fn survivor(number: u64, index: u64) -> Survivor {
        let epoch = Epoch { number, lot: 0 };
        Survivor { epoch, position: Position { epoch, term: 1, index }, leader: None, ticket: Some(index) }
    }

    fn ask(lost: &[u16], metadata: &Metadata) -> Result<Survey, ClusterError> {
        let voters = metadata.nodes.iter().map(|node| node.id).collect();
        Reforming::new(ids(lost), 0).ask((NodeId(0), survivor(0, 5)), &voters, metadata)
    }

    #[test]
    fn nobody_is_asked_before_nobody_has_led_for_long() {
        let mut reforming = Reforming::new(ids(&[1]), 1_000);
        assert_eq!(reforming.rests_for(None, 2_000), 3_000);
        assert_eq!(reforming.rests_for(Some(NodeId(1)), 4_000), 4_000);
        assert_eq!(reforming.rests_for(None, 7_999), 1);
        assert_eq!(reforming.rests_for(None, 8_000), 0);
    }

    #[test]
    fn a_majority_that_is_left_is_refused_and_so_is_a_lost_node_that_asks() {
        let metadata = metadata(5);
        assert!(matches!(ask(&[3, 4], &metadata), Err(ClusterError::MembersRefused(_))));
        assert!(matches!(ask(&[0, 1, 2], &metadata), Err(ClusterError::MembersRefused(_))));
        assert!(ask(&[2, 3, 4], &metadata).is_ok());
    }

    #[test]
    fn the_log_that_goes_furthest_begins_once_all_have_answered() {
        let mut survey = ask(&[3, 4, 5], &metadata(6)).unwrap();
        assert_eq!(survey.next(), Some((NodeId(1), "h1")));
        survey.answered(Some(survivor(0, 7))).unwrap();
        assert_eq!(survey.next(), Some((NodeId(2), "h2")));
        survey.answered(Some(survivor(0, 6))).unwrap();
        assert_eq!(survey.next(), Some((NodeId(1), "h1")), "its ticket is old by now");
        survey.answered(Some(Survivor { ticket: Some(70), ..survivor(0, 7) })).unwrap();
        assert_eq!(survey.next(), None);
        let offer = Offer { epoch: Epoch { number: 1, lot: 9 }, ticket: Some(70) };
        assert_eq!(survey.founder(survivor(0, 5), 9), Ok((NodeId(1), offer)));
    }

    #[test]
    fn the_new_life_is_later_than_that_of_a_survivor_whose_log_is_of_an_earlier_one() {
        let mut survey = ask(&[2, 3], &metadata(4)).unwrap();
        // It was told to join a group that was formed anew, and has heard nothing of that group yet.
        let rejoined = Survivor { epoch: Epoch { number: 1, lot: 3 }, ..survivor(0, 4) };
        survey.answered(Some(rejoined)).unwrap();
        let now = Survivor { ticket: Some(50), ..survivor(0, 5) };
        let offer = Offer { epoch: Epoch { number: 2, lot: 9 }, ticket: Some(50) };
        assert_eq!(survey.founder(now, 9), Ok((NodeId(0), offer)));
    }

    #[test]
    fn a_survivor_that_is_silent_or_knows_a_leader_ends_it() {
        let mut survey = ask(&[2, 3], &metadata(4)).unwrap();
        assert!(matches!(survey.answered(None), Err(ClusterError::MembersRefused(_))));
        let mut survey = ask(&[2, 3], &metadata(4)).unwrap();
        let led = Survivor { leader: Some(NodeId(3)), ..survivor(0, 9) };
        assert!(matches!(survey.answered(Some(led)), Err(ClusterError::Failed(_))));
        // The asker itself may have heard of one meanwhile.
        let mut survey = ask(&[2, 3], &metadata(4)).unwrap();
        survey.answered(Some(survivor(0, 4))).unwrap();
        assert!(matches!(survey.founder(led, 9), Err(ClusterError::Failed(_))));
    }

    #[test]
    fn an_offer_that_a_paused_founder_takes_late_is_refused() {
        let mut offers = Offers::new(u64::MAX);
        let said = offers.answer(survivor(0, 5), 1_000);
        assert!(offers.admit(said.ticket, 1_000 + TICKET_MILLIS - 1).is_ok());
        assert!(offers.admit(said.ticket, 1_000 + TICKET_MILLIS).is_err(), "others may have formed a group");
        assert!(offers.admit(None, 1_001).is_err());
        let next = offers.answer(survivor(0, 5), 2_000);
        assert!(offers.admit(said.ticket, 2_001).is_err(), "another node has asked since");
        assert!(offers.admit(next.ticket, 2_001).is_ok());
        let restarted = Offers::new(7);
        assert!(restarted.admit(next.ticket, 2_001).is_err());
    }

    #[test]
    fn a_number_that_was_offered_is_never_offered_again() {
        let mut offers = Offers::new(1);
        let metadata = metadata(4);
        let mut number = |lost: &[u16]| {
            let me = offers.answer(survivor(0, 5), 0);
            let voters = metadata.nodes.iter().map(|node| node.id).collect();
            let mut survey = Reforming::new(ids(lost), 0).ask((NodeId(0), me), &voters, &metadata).unwrap();
            while survey.next().is_some() {
                survey.answered(Some(survivor(0, 6))).unwrap();
            }
            let (founder, offer) = survey.founder(me, u64::MAX).unwrap();
            offers.note(offer.epoch);
            (founder, offer.epoch.number)
        };
        assert_eq!(number(&[2, 3]), (NodeId(1), 1));
        // Nobody knows whether it has taken that. It is lost now as well, and comes back later.
        assert_eq!(number(&[1, 2, 3]), (NodeId(0), 2));
    }

    #[test]
    fn a_node_that_was_failed_over_is_asked_last_and_may_be_silent_and_what_it_knows_is_not_given_up() {
        let mut metadata = metadata(5);
        metadata.nodes[1].membership = Membership::InactiveFailed;
        let end = |answer: Option<Survivor>| {
            let mut survey = ask(&[3, 4], &metadata).unwrap();
            assert_eq!(survey.next(), Some((NodeId(2), "h2")));
            survey.answered(Some(survivor(0, 7))).unwrap();
            assert_eq!(survey.next(), Some((NodeId(1), "h1")));
            survey.answered(answer)?;
            assert_eq!(survey.next(), Some((NodeId(2), "h2")), "its ticket is old by now");
            survey.answered(Some(survivor(0, 7))).unwrap();
            survey.founder(survivor(0, 5), 1).map(|(founder, _)| founder)
        };
        assert_eq!(end(None), Ok(NodeId(2)));
        assert_eq!(end(Some(survivor(0, 7))), Ok(NodeId(2)));
        let Err(ClusterError::MembersRefused(text)) = end(Some(survivor(0, 8))) else {
            panic!("it may have been recovered by nodes that are lost");
        };
        assert!(text.starts_with("h1 "), "{text}");
        let leads = Survivor { leader: Some(NodeId(1)), ..survivor(0, 7) };
        assert!(matches!(end(Some(leads)), Err(ClusterError::Failed(_))));
    }

    #[test]
    fn a_node_without_data_or_a_vote_may_be_silent() {
        let mut metadata = metadata(6);
        metadata.nodes.remove(2);
        metadata.nodes[1].membership = Membership::InactiveAdded;
        let asks = |votes: bool, metadata: &Metadata| {
            let voters = metadata.nodes.iter().map(|node| node.id).filter(|id| votes || *id != NodeId(1));
            let reforming = Reforming::new(ids(&[3, 4, 5]), 0);
            let mut survey = reforming.ask((NodeId(0), survivor(0, 5)), &voters.collect(), metadata).unwrap();
            assert_eq!(survey.next(), Some((NodeId(1), "h1")));
            survey.answered(None)?;
            assert_eq!(survey.next(), None);
            survey.founder(survivor(0, 5), 1).map(|(founder, _)| founder)
        };
        assert_eq!(asks(false, &metadata), Ok(NodeId(0)));
        let refused = asks(true, &metadata);
        assert!(matches!(refused, Err(ClusterError::MembersRefused(_))), "lost nodes and it may have agreed");
        metadata.level = 12;
        assert_eq!(asks(true, &metadata), Ok(NodeId(0)), "an older cluster cannot name it as lost");
    }
}
