//! The network. Letters between nodes, and between nodes and clients, come late, twice or not at all. In some directions
//! nothing arrives for a while. Connections ([`crate::connection`]) use its delays and cuts too.

use std::collections::{BTreeMap, BTreeSet};

use base::NodeId;
use cluster::{
    Command, NodeReport,
    consensus::{Epoch, Proposal, ProposalId},
};
use fastrand::Rng;
use settee_node::{Offer, Survivor, Taken, Verdict};

use crate::{
    faults::NEVER,
    operation::{Answer, Request},
};

/// A node, or outside, where the clients are.
pub(crate) type Place = Option<NodeId>;

/// What is sent.
pub(crate) enum Message {
    /// Of one member of the consensus to another.
    Consensus(Vec<u8>),
    /// The answer to a member of that number that is none any more, if it was one.
    Verdict((NodeId, String), Option<Epoch>, Verdict),
    /// Of a node with a proposal to the one that it takes for the leader.
    Propose(Box<Proposal>),
    /// The answer: whether it was taken.
    Proposed { id: ProposalId, taken: bool },
    /// To the leader.
    Report(Box<NodeReport>),
    /// The answer: which report of which of the sender's lives it is for, and what the leader makes of it. That is nothing where the
    /// node does not lead.
    Reported { of: (u64, u64), taken: Option<Taken> },
    /// Of a node that is to fail others over at any price: what the receiver knows.
    AskSurvivor,
    /// The answer.
    Survivor(Survivor),
    /// The receiver is to form the group anew, by that command.
    Reform(Offer, ProposalId, Box<Command>),
    /// Of a client.
    Request(Request),
    /// To a client.
    Answer(Answer),
}

/// A message on its way.
pub(crate) struct Letter {
    pub(crate) from: Place,
    pub(crate) to: Place,
    pub(crate) message: Message,
}

/// See the module.
pub(crate) struct Network {
    /// By when they arrive, and in the order of sending.
    letters: BTreeMap<(u64, u64), Letter>,
    sent: u64,
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// Directions in which everything takes so many milliseconds longer.
    slow: BTreeMap<(NodeId, NodeId), u64>,
    /// Of a hundred letters so many get lost, and so many come twice.
    pub(crate) loss: u32,
    pub(crate) repeats: u32,
    /// Longest time on the way, where it is not slow.
    pub(crate) delay_max: u64,
    /// A connection breaks once in so many steps.
    pub(crate) breaks: u32,
}

impl Network {
    pub(crate) fn new() -> Self {
        let (letters, cuts, slow) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { letters, sent: 0, cuts, slow, loss: 0, repeats: 0, delay_max: 3, breaks: NEVER }
    }

    /// How long something is on its way.
    pub(crate) fn delay(&self, rng: &mut Rng, from: Place, to: Place) -> u64 {
        let slow = from.zip(to).and_then(|direction| self.slow.get(&direction));
        rng.u64(1..=self.delay_max) + slow.copied().unwrap_or_default()
    }

    /// Whether it is one of those that get lost.
    pub(crate) fn loses(&self, rng: &mut Rng) -> bool {
        rng.u32(0..100) < self.loss
    }

    pub(crate) fn send(&mut self, rng: &mut Rng, now: u64, letter: Letter) {
        if self.loses(rng) {
            return;
        }
        let (from, to) = (letter.from, letter.to);
        if let Message::Consensus(bytes) = &letter.message
            && rng.u32(0..100) < self.repeats
        {
            let message = Message::Consensus(bytes.clone());
            self.put(now + self.delay(rng, from, to), Letter { message, from, to });
        }
        self.put(now + self.delay(rng, from, to), letter);
    }

    /// Has a letter arrive at that moment.
    pub(crate) fn put(&mut self, at: u64, letter: Letter) {
        self.sent += 1;
        self.letters.insert((at, self.sent), letter);
    }

    /// What waits for a node is read by it in a moment: it is not paused any more.
    pub(crate) fn wake(&mut self, rng: &mut Rng, node: NodeId, now: u64, within: u64) {
        let late = |(at, _): &(u64, u64), letter: &mut Letter| letter.to == Some(node) && *at > now + within;
        let letters: Vec<Letter> = self.letters.extract_if(.., late).map(|(_, letter)| letter).collect();
        letters.into_iter().for_each(|letter| self.put(now + rng.u64(0..within), letter));
    }

    /// The next letter that has arrived. What arrives at a cut is lost.
    pub(crate) fn receive(&mut self, now: u64) -> Option<Letter> {
        while let Some(entry) = self.letters.first_entry().filter(|entry| entry.key().0 <= now) {
            let letter = entry.remove();
            if !matches!((letter.from, letter.to), (Some(from), Some(to)) if self.is_cut(from, to)) {
                return Some(letter);
            }
        }
        None
    }

    /// Nothing arrives in that direction any more.
    pub(crate) fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cuts.insert((from, to));
    }

    pub(crate) fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cuts.contains(&(from, to))
    }

    /// Whether somebody cannot hear that node.
    pub(crate) fn is_unheard(&self, node: NodeId) -> bool {
        self.cuts.iter().any(|(from, _)| *from == node)
    }

    /// It does again.
    pub(crate) fn mend(&mut self, from: NodeId, to: NodeId) {
        self.cuts.remove(&(from, to));
    }

    /// Between two nodes everything takes so much longer from now on.
    pub(crate) fn slow_down(&mut self, (a, b): (NodeId, NodeId), millis: u64) {
        for direction in [(a, b), (b, a)] {
            self.slow.insert(direction, millis);
        }
    }

    /// Everything arrives again, in time.
    pub(crate) fn mend_all(&mut self) {
        self.cuts.clear();
        self.slow.clear();
    }
}
