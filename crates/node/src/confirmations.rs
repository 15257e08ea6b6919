//! Questions that wait until it is certain that this node leads.
//!
//! A node that was paused, or cut off, takes itself for the leader until it hears otherwise. What only the leader may do, such as
//! letting others serve, therefore waits for a round of messages that a majority answers ([`Consensus::confirm`]). The round begins
//! after the question came: when it is answered, nobody else had been elected before it began. One round answers all that came
//! before it; what comes while it is under way waits for the next one.
//!
//! When the node stops leading, or leads in another term, every question that waits is refused.

use std::mem;

use cluster::consensus::{Consensus, Round};

/// See the module. `W` is a question that waits.
#[derive(Debug)]
pub struct Confirmations<W> {
    /// They came after the round under way had begun.
    next: Vec<W>,
    /// The round under way, and the questions that wait for it.
    asked: Option<(Round, Vec<W>)>,
}

impl<W> Default for Confirmations<W> {
    fn default() -> Self {
        Self { next: Vec::new(), asked: None }
    }
}

/// The questions that wait no longer.
#[derive(Debug)]
#[must_use]
pub struct Settled<W> {
    /// This node led, in that term, after they had asked.
    pub confirmed: Option<(u64, Vec<W>)>,
    /// It does not lead, or in another term.
    pub refused: Vec<W>,
}

impl<W> Confirmations<W> {
    /// Somebody asks whether this node leads.
    pub fn add(&mut self, waiting: W) {
        self.next.push(waiting);
    }

    /// Forgets those who have given up.
    pub fn retain(&mut self, mut waits: impl FnMut(&W) -> bool) {
        self.next.retain(&mut waits);
        if let Some((_, waiting)) = &mut self.asked {
            waiting.retain(waits);
        }
    }

    /// Whether [`Confirmations::begin`] has something to do.
    #[must_use]
    pub fn are_due(&self) -> bool {
        self.asked.is_none() && !self.next.is_empty()
    }

    /// Begins a round for all who wait, unless one is under way. To be called before [`Consensus::turn`].
    pub fn begin(&mut self, group: &mut Consensus) {
        if self.are_due()
            && let Some(round) = group.confirm()
        {
            self.asked = Some((round, mem::take(&mut self.next)));
        }
    }

    /// The questions that wait no longer after a turn that `confirmed` so much. To be called after every [`Consensus::turn`].
    pub fn settle(&mut self, confirmed: Option<Round>, group: &Consensus) -> Settled<W> {
        let leads_in = group.leads_in();
        let mut settled = Settled { confirmed: None, refused: Vec::new() };
        if let Some((round, waiting)) = self.asked.take() {
            if leads_in != Some(round.term()) {
                settled.refused = waiting;
            } else if confirmed.is_some_and(|confirmed| confirmed.covers(round)) {
                settled.confirmed = Some((round.term(), waiting));
            } else {
                self.asked = Some((round, waiting));
            }
        }
        if leads_in.is_none() {
            settled.refused.append(&mut self.next);
        }
        settled
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use base::NodeId;
    use cluster::{
        Metadata, NodeInfo, Ports,
        consensus::{Epoch, LogStore as _, Member, MemoryLog, Turn, found, join},
    };

    use super::*;

    /// Three members whose messages arrive when a test says so.
    struct Three {
        groups: BTreeMap<NodeId, (Consensus, MemoryLog)>,
        letters: Vec<(NodeId, NodeId, Vec<u8>)>,
        waiting: Confirmations<u32>,
        confirmed: Vec<u32>,
        refused: Vec<u32>,
    }

    const FIRST: NodeId = NodeId(0);

    impl Three {
        fn new() -> Self {
            let info = |id: u16| {
                let node = NodeInfo::first(id.to_string(), format!("10.0.0.{id}"), Ports::default());
                NodeInfo { id: NodeId(id), ..node }
            };
            let mut metadata = Metadata::new("c".into(), 256);
            metadata.nodes = (0..3).map(info).collect();
            metadata.next_node = 3;
            let metadata = Arc::new(metadata);
            let groups = (0..3).map(|id: u16| {
                let member = Member {
                    uuid: id.to_string(),
                    node: NodeId(id),
                    cluster_uuid: "c".into(),
                    epoch: Epoch::default(),
                    secret: "s".into(),
                    peers: Vec::new(),
                    authority: None,
                };
                let first = if id == 0 { found(&member, &metadata) } else { join(&member) };
                let mut log = MemoryLog::default();
                log.write(&[first.unwrap()]).unwrap();
                let group = Consensus::open(&log.load().unwrap(), u64::from(id)).unwrap();
                (NodeId(id), (group, log))
            });
            let (groups, waiting) = (groups.collect(), Confirmations::default());
            let (letters, confirmed, refused) = Default::default();
            let mut three = Self { groups, letters, waiting, confirmed, refused };
            for _ in 0..100 {
                three.tick(&[0, 1, 2]);
                three.deliver(&[0, 1, 2]);
            }
            assert_eq!(three.groups[&FIRST].0.members().0.len(), 3, "all vote");
            three
        }

        fn group(&mut self, id: NodeId) -> &mut Consensus {
            &mut self.groups.get_mut(&id).unwrap().0
        }

        fn tick(&mut self, nodes: &[u16]) {
            for id in nodes.iter().copied().map(NodeId) {
                self.group(id).tick();
                self.turn(id);
            }
        }

        fn turn(&mut self, id: NodeId) {
            let (group, log) = self.groups.get_mut(&id).unwrap();
            if id == FIRST {
                self.waiting.begin(group);
            }
            let mut turns: Vec<Turn> = vec![group.turn()];
            while let Some(last) = turns.last().filter(|last| !last.batches.is_empty()) {
                log.write(&last.batches).unwrap();
                group.written(last.number);
                let next = group.turn();
                turns.push(next);
            }
            for turn in turns {
                self.letters.extend(turn.messages.into_iter().map(|(to, bytes)| (id, to, bytes)));
                if id == FIRST {
                    let settled = self.waiting.settle(turn.confirmed, &self.groups[&FIRST].0);
                    self.confirmed.extend(settled.confirmed.into_iter().flat_map(|(_, waiting)| waiting));
                    self.refused.extend(settled.refused);
                }
            }
        }

        /// Delivers what is on its way between these, until nothing is; the rest is lost.
        fn deliver(&mut self, nodes: &[u16]) {
            let hears = |id: &NodeId| nodes.contains(&id.get());
            while !self.letters.is_empty() {
                for (from, to, bytes) in mem::take(&mut self.letters) {
                    if hears(&from) && hears(&to) {
                        let _ = self.group(to).step(None, &bytes);
                        self.turn(to);
                    }
                }
            }
        }
    }

    #[test]
    fn a_round_answers_all_who_came_before_it_and_nobody_who_came_later() {
        let mut three = Three::new();
        three.waiting.add(1);
        three.waiting.add(2);
        three.turn(FIRST);
        three.waiting.add(3);
        assert!(three.confirmed.is_empty(), "nobody else has said anything");
        let round = mem::take(&mut three.letters);
        three.turn(FIRST);
        assert!(three.letters.is_empty(), "one round at a time");
        three.letters = round;
        three.deliver(&[0, 1, 2]);
        assert_eq!(three.confirmed[..2], [1, 2]);
        three.turn(FIRST);
        three.deliver(&[0, 1]);
        assert_eq!(three.confirmed, [1, 2, 3]);
        assert!(three.refused.is_empty());
    }

    #[test]
    fn a_leader_that_was_replaced_while_it_slept_confirms_nothing() {
        let mut three = Three::new();
        for _ in 0..100 {
            three.tick(&[1, 2]);
            three.deliver(&[1, 2]);
        }
        assert!(three.group(NodeId(1)).leads() || three.group(NodeId(2)).leads());
        // It wakes, and takes itself for the leader.
        assert!(three.group(FIRST).leads());
        three.waiting.add(1);
        three.turn(FIRST);
        assert!(three.confirmed.is_empty());
        three.deliver(&[0, 1, 2]);
        assert!(three.confirmed.is_empty());
        assert_eq!(three.refused, [1]);
        assert!(!three.group(FIRST).leads());
    }

    #[test]
    fn a_question_is_repeated_until_it_is_answered_or_the_leader_gives_up() {
        let mut three = Three::new();
        three.waiting.add(1);
        three.turn(FIRST);
        three.letters.clear();
        for _ in 0..5 {
            three.tick(&[0]);
            three.deliver(&[0, 1]);
        }
        assert_eq!(three.confirmed, [1]);
        three.waiting.add(2);
        three.turn(FIRST);
        for _ in 0..40 {
            three.tick(&[0]);
            three.letters.clear();
        }
        assert_eq!((&three.confirmed[..], &three.refused[..]), (&[1][..], &[2][..]));
    }
}
