//! Letters that hang on their way for long: on a connection that is cut, or in a process that is paused.

use settee_cluster::consensus::Consensus;

use super::Simulation;

/// Such a letter is not due before it is let go.
const NEVER: u64 = u64::MAX;
/// A leader sends a member that has come back a snapshot long before.
const TICKS_MAX: u32 = 1_000;

impl Simulation {
    /// A leader asks another member to lead, by letters that hang. Returns which.
    pub(crate) fn hand_over_by_letters_that_hang(&mut self, node: usize) -> Option<usize> {
        let heir = self.with_group(node, Consensus::hand_over).flatten()?;
        self.take_turn(node);
        let leader = self.nodes[node].id;
        let hang = self.letters.iter_mut().filter(|letter| (letter.from, letter.to) == (leader, heir));
        hang.for_each(|letter| letter.at = NEVER);
        self.nodes.iter().position(|node| node.id == heir)
    }

    /// They arrive, before anything else happens.
    pub(crate) fn let_go(&mut self) {
        let now = self.now;
        self.letters.iter_mut().filter(|letter| letter.at == NEVER).for_each(|letter| letter.at = now);
        self.deliver();
        self.settle();
    }

    /// Goes on until a member has taken a snapshot, which is not written yet.
    pub(crate) fn run_until_a_snapshot_is_to_be_written(&mut self, node: usize) {
        for _ in 0..TICKS_MAX {
            self.now += 1;
            for at in self.indices() {
                self.with_group(at, Consensus::tick);
            }
            loop {
                let mut is_quiet = true;
                for at in self.indices() {
                    is_quiet &= !self.take_turn(at);
                    if self.has_a_snapshot_to_write(node) {
                        return;
                    }
                    is_quiet &= !self.write(at);
                }
                is_quiet &= !self.deliver();
                if is_quiet {
                    break;
                }
            }
        }
        panic!("no snapshot was sent");
    }

    fn has_a_snapshot_to_write(&self, node: usize) -> bool {
        let unwritten = self.nodes[node].running.iter().flat_map(|running| &running.unwritten);
        // A snapshot takes the place of all entries.
        unwritten.flat_map(|(batches, _)| batches).any(|batch| batch.drop_from == Some(0))
    }
}
