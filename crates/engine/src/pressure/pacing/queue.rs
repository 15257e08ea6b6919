//! Mutations that wait, and whose turn it is. Each connection has its own line, and lines take turns by bytes. So
//! neither many small mutations nor a few large ones take more than their share.

use std::collections::{BTreeMap, VecDeque};

use crate::api::notify::Waiter;

/// What a line may take per round, beyond what it saved.
const QUANTUM_BYTES: u64 = 16 << 10;
/// What the largest mutation counts as: it need not go round for ever.
const COST_MAX: u64 = 64 * QUANTUM_BYTES;

/// A connection.
type LineId = (u32, u64);

#[derive(Clone, Copy, Debug)]
struct Entry {
    ticket: u64,
    bytes: u64,
    since: u64,
}

#[derive(Debug, Default)]
struct Line {
    entries: VecDeque<Entry>,
    /// Bytes it may take before others have their turn.
    allowance: u64,
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Some may be empty by now.
    lines: BTreeMap<LineId, Line>,
    /// All lines, each once, the next first.
    round: VecDeque<LineId>,
    len: usize,
    bytes: u64,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn push(&mut self, waiter: Waiter, bytes: u64, since: u64) {
        let id = (waiter.worker, waiter.connection);
        let round = &mut self.round;
        let line = self.lines.entry(id).or_insert_with(|| {
            round.push_back(id);
            Line::default()
        });
        line.entries.push_back(Entry { ticket: waiter.ticket, bytes, since });
        self.len += 1;
        self.bytes += bytes;
    }

    /// The next whose turn it is, with its bytes.
    pub(super) fn pop(&mut self) -> Option<(Waiter, u64)> {
        loop {
            let id = *self.round.front()?;
            let line = self.lines.get_mut(&id)?;
            let Some(&entry) = line.entries.front() else {
                // What it saved is not for later.
                self.round.pop_front();
                self.lines.remove(&id);
                continue;
            };
            let cost = entry.bytes.min(COST_MAX);
            if cost > line.allowance {
                line.allowance += QUANTUM_BYTES;
                self.round.rotate_left(1);
                continue;
            }
            line.allowance -= cost;
            line.entries.pop_front();
            self.len -= 1;
            self.bytes -= entry.bytes;
            return Some((Waiter { worker: id.0, connection: id.1, ticket: entry.ticket }, entry.bytes));
        }
    }

    /// Takes out one that waits no longer; false when it is not there.
    pub(super) fn remove(&mut self, waiter: Waiter) -> bool {
        let Some(line) = self.lines.get_mut(&(waiter.worker, waiter.connection)) else { return false };
        let index = line.entries.iter().position(|entry| entry.ticket == waiter.ticket);
        let Some(entry) = index.and_then(|index| line.entries.remove(index)) else { return false };
        self.len -= 1;
        self.bytes -= entry.bytes;
        true
    }

    /// Takes out those that have waited since before `millis`: nobody asks for them any more. Lines with nobody in them
    /// go as well: where nothing is let through for long, connections come and go all the same.
    pub(super) fn forget_before(&mut self, millis: u64) {
        for line in self.lines.values_mut() {
            while let Some(entry) = line.entries.pop_front_if(|entry| entry.since < millis) {
                self.len -= 1;
                self.bytes -= entry.bytes;
            }
        }
        self.lines.retain(|_, line| !line.entries.is_empty());
        self.round.retain(|id| self.lines.contains_key(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(connection: u64, ticket: u64) -> Waiter {
        Waiter { worker: 0, connection, ticket }
    }

    #[test]
    fn connections_take_turns_by_bytes_and_keep_their_own_order() {
        let mut queue = Queue::default();
        for ticket in 0..100 {
            queue.push(waiter(1, ticket), 10 * QUANTUM_BYTES, 0);
            queue.push(waiter(2, ticket), QUANTUM_BYTES, 0);
        }
        let popped: Vec<_> = (0..55).filter_map(|_| queue.pop()).collect();
        let of = |connection| popped.iter().filter(move |(waiter, _)| waiter.connection == connection);
        assert!((4..=6).contains(&of(1).count()), "{}", of(1).count());
        assert!(of(2).map(|(waiter, _)| waiter.ticket).eq(0..of(2).count() as u64));
    }

    #[test]
    fn what_is_taken_out_is_not_counted_any_more() {
        let mut queue = Queue::default();
        (0..4).for_each(|ticket| queue.push(waiter(ticket % 2, ticket), 10, ticket));
        assert!(queue.remove(waiter(0, 2)) && !queue.remove(waiter(0, 2)));
        queue.forget_before(1);
        assert_eq!((queue.len(), queue.bytes()), (2, 20));
        assert_eq!(queue.pop().map(|popped| popped.0), Some(waiter(1, 1)));
        assert_eq!(queue.pop().map(|popped| popped.0), Some(waiter(1, 3)));
        assert_eq!(queue.pop(), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn connections_that_are_gone_leave_nothing_where_nothing_is_let_through() {
        let mut queue = Queue::default();
        for connection in 0..100 {
            queue.push(waiter(connection, 0), 10, connection);
            assert!(queue.remove(waiter(connection, 0)));
        }
        queue.push(waiter(100, 0), 10, 100);
        queue.forget_before(100);
        assert_eq!((queue.lines.len(), queue.round.len(), queue.len()), (1, 1, 1));
        assert_eq!(queue.pop().map(|popped| popped.0), Some(waiter(100, 0)));
    }
}
