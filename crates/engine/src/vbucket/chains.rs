//! The copies that have to hold a durable write before it is committed, and those that say so.
//!
//! A majority is counted of the copies that are *configured*, not of those that exist just now. Of three configured
//! copies two have to hold a write, though only two exist. Where only one exists, durable writes are impossible. A
//! chain may also have more members than copies are configured, until a rebalance has taken some out. Then a write
//! needs a majority of its members. A caller that asks enough of them that no such majority is missed may make any of
//! them the active.
//!
//! While a vBucket's chain changes it has two chains, the old one and the new one, and a write needs a majority of
//! both. Until the new chain is known to hold what the old one had, an election may ask either what was acknowledged.
//! Of the old chain a majority of its remaining members is enough, because an election asks as many. The new chain
//! makes sure that the write has enough copies. After a handover the active is no member of the old chain. That chain
//! begins with the copy that has handed over, which is one like any other by then.
//!
//! An acknowledgement says that everything prepared up to a seqno is held as its level asks for. So the prepares that have
//! a majority are always the first ones. Acknowledgements are good for one term: with the next one they are forgotten.

use base::{NodeId, Seqno};

/// The nodes whose copies of a vBucket count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topology {
    /// One chain, or two while it changes: the one to be, which begins with the active, and the one before.
    pub chains: Vec<Vec<NodeId>>,
    /// Copies that are configured, the active among them: what a majority is counted of where a chain has no more.
    pub copies: u8,
    /// Durable writes that begin now are to be on disk with a majority, whatever their level asks for. A node of the chain is about to
    /// leave, and one that stays may be killed at that moment.
    pub to_disk: bool,
}

impl Topology {
    fn active(&self) -> Option<NodeId> {
        self.chains.first()?.first().copied()
    }
}

/// What the active copy knows of who holds its durable writes: see the module header.
#[derive(Debug)]
pub struct Chains {
    topology: Topology,
    /// What the others have acknowledged; those in both chains once.
    acknowledged: Vec<(NodeId, Seqno)>,
}

impl Chains {
    /// The active alone, of so many copies.
    pub(crate) fn alone(copies: u8) -> Self {
        Self::new(Topology { chains: Vec::new(), copies, to_disk: false })
    }

    /// With nothing acknowledged yet.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        let active = topology.active();
        let others = topology.chains.iter().flatten().filter(|&&node| Some(node) != active);
        let mut acknowledged: Vec<_> = others.map(|&node| (node, Seqno(0))).collect();
        acknowledged.sort_unstable();
        acknowledged.dedup();
        Self { topology, acknowledged }
    }

    /// As [`Chains::new`], with what is known already of nodes that stay: for a change within a term.
    pub(crate) fn followed_by(&self, topology: Topology) -> Self {
        let mut next = Self::new(topology);
        for (node, seqno) in &mut next.acknowledged {
            *seqno = self.acknowledged_by(*node);
        }
        next
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Nobody has told which nodes there are: only how many copies are configured.
    pub(crate) fn is_untold(&self) -> bool {
        self.topology.chains.is_empty()
    }

    /// No other copy is configured, and none is left of when more were, nor of the chain before.
    pub(crate) fn is_only_copy(&self) -> bool {
        self.topology.copies <= 1 && self.acknowledged.is_empty()
    }

    /// How many members of a chain of so many have to hold a write. Place 0 is the chain to be, place 1 the one before.
    fn majority(&self, place: usize, members: usize) -> usize {
        let copies = if place == 0 { usize::from(self.topology.copies) } else { 0 };
        copies.max(members) / 2 + 1
    }

    /// Whether there are enough members for a majority.
    pub(crate) fn is_majority_possible(&self) -> bool {
        let is_possible = |(place, members)| self.majority(place, members) <= members;
        match self.is_untold() {
            true => is_possible((0, 1)),
            false => self.topology.chains.iter().map(Vec::len).enumerate().all(is_possible),
        }
    }

    /// Another member has everything prepared up to a seqno. Whether that is news.
    pub fn acknowledge(&mut self, node: NodeId, seqno: Seqno) -> bool {
        let known = self.acknowledged.iter_mut().find(|known| known.0 == node && known.1 < seqno);
        known.map(|known| known.1 = seqno).is_some()
    }

    fn acknowledged_by(&self, node: NodeId) -> Seqno {
        self.acknowledged.iter().find(|known| known.0 == node).map_or(Seqno(0), |known| known.1)
    }

    /// Up to which seqno a majority of every chain holds what is prepared, the active taken to hold everything.
    #[must_use]
    pub fn reached(&self) -> Seqno {
        const EVERYTHING: Seqno = Seqno(u64::MAX);
        if !self.is_majority_possible() {
            return Seqno(0);
        }
        let active = self.topology.active();
        let of_chain = |(place, chain): (usize, &Vec<NodeId>)| {
            let others = chain.iter().filter(|&&node| Some(node) != active);
            let mut others: Vec<_> = others.map(|&node| self.acknowledged_by(node)).collect();
            others.sort_unstable_by_key(|&seqno| std::cmp::Reverse(seqno));
            let needed = self.majority(place, chain.len()).saturating_sub(chain.len() - others.len());
            needed.checked_sub(1).map_or(EVERYTHING, |last| others.get(last).copied().unwrap_or_default())
        };
        self.topology.chains.iter().enumerate().map(of_chain).min().unwrap_or(EVERYTHING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chains(chains: &[&[u16]], copies: u8) -> Chains {
        let chains = chains.iter().map(|chain| chain.iter().copied().map(NodeId).collect()).collect();
        Chains::new(Topology { chains, copies, to_disk: false })
    }

    #[test]
    fn a_majority_is_counted_of_the_configured_copies() {
        assert_eq!(Chains::alone(1).reached(), Seqno(u64::MAX));
        assert!(Chains::alone(1).is_majority_possible() && !Chains::alone(2).is_majority_possible());
        assert_eq!(Chains::alone(2).reached(), Seqno(0));
        for (copies, needed) in [(1, 1), (2, 2), (3, 2), (4, 3)] {
            for members in 1..=4 {
                let all: Vec<u16> = (0..members).collect();
                let chains = chains(&[&all], copies);
                assert_eq!(chains.is_majority_possible(), usize::from(members) >= needed);
            }
        }
    }

    #[test]
    fn copies_that_are_no_longer_configured_count_until_they_are_gone() {
        let mut chains = chains(&[&[5, 6, 7]], 1);
        assert!(!chains.is_only_copy());
        assert_eq!(chains.reached(), Seqno(0), "one of three is no majority");
        assert!(chains.acknowledge(NodeId(7), Seqno(4)));
        assert_eq!(chains.reached(), Seqno(4));
        let mut chains = chains.followed_by(Topology {
            chains: vec![vec![NodeId(5), NodeId(7)]],
            copies: 1,
            to_disk: false,
        });
        assert!(chains.acknowledge(NodeId(7), Seqno(5)));
        assert_eq!(chains.reached(), Seqno(5), "of two both");
        let chains =
            chains.followed_by(Topology { chains: vec![vec![NodeId(5)]], copies: 1, to_disk: false });
        assert!(chains.is_only_copy());
        assert_eq!(chains.reached(), Seqno(u64::MAX));
    }

    #[test]
    fn chains_are_counted_each_by_its_members() {
        let mut chains = chains(&[&[1, 2], &[1, 2, 3, 4]], 2);
        chains.acknowledge(NodeId(2), Seqno(9));
        assert_eq!(chains.reached(), Seqno(0), "two of four are none");
        chains.acknowledge(NodeId(4), Seqno(3));
        assert_eq!(chains.reached(), Seqno(3));
    }

    /// A failover took out others of the chain before. An election asks the one that is left of it.
    #[test]
    fn one_that_is_left_of_the_chain_before_makes_no_durable_write_impossible() {
        let mut chains = chains(&[&[1, 2], &[3]], 2);
        assert!(chains.is_majority_possible());
        assert!(chains.acknowledge(NodeId(2), Seqno(9)));
        assert_eq!(chains.reached(), Seqno(0), "3 might be asked alone");
        assert!(chains.acknowledge(NodeId(3), Seqno(7)));
        assert_eq!(chains.reached(), Seqno(7));
        // There are too few copies whatever is left of the chain before.
        let alone = chains.followed_by(Topology {
            chains: vec![vec![NodeId(1)], vec![NodeId(3)]],
            copies: 2,
            to_disk: false,
        });
        assert!(!alone.is_majority_possible());
        assert_eq!(alone.reached(), Seqno(0));
    }

    /// The node that has handed over may be asked alone, should the active be failed over.
    #[test]
    fn a_copy_that_has_just_taken_over_alone_is_not_the_only_one() {
        let mut chains = chains(&[&[2], &[1]], 1);
        assert!(chains.is_majority_possible() && !chains.is_only_copy());
        assert_eq!(chains.reached(), Seqno(0));
        assert!(chains.acknowledge(NodeId(1), Seqno(4)));
        assert_eq!(chains.reached(), Seqno(4));
        assert!(
            chains
                .followed_by(Topology { chains: vec![vec![NodeId(2)]], copies: 1, to_disk: false })
                .is_only_copy()
        );
    }

    #[test]
    fn what_a_majority_has_is_reached() {
        let mut chains = chains(&[&[5, 6, 7, 8]], 4);
        assert_eq!(chains.reached(), Seqno(0));
        assert!(chains.acknowledge(NodeId(6), Seqno(10)));
        assert_eq!(chains.reached(), Seqno(0), "two of four are none");
        assert!(chains.acknowledge(NodeId(8), Seqno(7)));
        assert_eq!(chains.reached(), Seqno(7));
        assert!(!chains.acknowledge(NodeId(6), Seqno(9)), "an older word changes nothing");
        assert!(!chains.acknowledge(NodeId(9), Seqno(99)), "nor does that of a stranger");
        assert!(chains.acknowledge(NodeId(7), Seqno(9)));
        assert_eq!(chains.reached(), Seqno(9));
    }

    /// An election that follows asks the chain before.
    #[test]
    fn a_node_that_has_handed_over_is_not_taken_to_hold_what_came_later() {
        let mut two = chains(&[&[3, 2], &[1, 2]], 2);
        assert!(two.acknowledge(NodeId(2), Seqno(9)));
        assert_eq!(two.reached(), Seqno(0), "1 might be asked alone");
        assert!(two.acknowledge(NodeId(1), Seqno(7)));
        assert_eq!(two.reached(), Seqno(7));
        assert!(!two.acknowledge(NodeId(3), Seqno(8)), "it is the active itself");
        let mut three = chains(&[&[4, 2, 3], &[1, 2, 3]], 3);
        three.acknowledge(NodeId(2), Seqno(9));
        assert_eq!(three.reached(), Seqno(0), "1 and 3 might be asked");
        three.acknowledge(NodeId(3), Seqno(8));
        assert_eq!(three.reached(), Seqno(8));
        let left = three.followed_by(Topology {
            chains: vec![[4, 2, 3].map(NodeId).to_vec()],
            copies: 3,
            to_disk: false,
        });
        assert_eq!(
            left.reached(),
            Seqno(9),
            "one of the others will do once the chain before counts no more"
        );
    }

    #[test]
    fn while_a_chain_changes_both_have_to_agree() {
        let mut chains = chains(&[&[1, 2, 3], &[1, 2, 4]], 3);
        chains.acknowledge(NodeId(3), Seqno(10));
        assert_eq!(chains.reached(), Seqno(0));
        chains.acknowledge(NodeId(4), Seqno(8));
        assert_eq!(chains.reached(), Seqno(8));
        chains.acknowledge(NodeId(2), Seqno(9));
        assert_eq!(chains.reached(), Seqno(9), "who is in both counts in both");
        let next = chains.followed_by(Topology {
            chains: vec![vec![NodeId(1), NodeId(4)]],
            copies: 3,
            to_disk: false,
        });
        assert_eq!(next.reached(), Seqno(8));
    }
}
