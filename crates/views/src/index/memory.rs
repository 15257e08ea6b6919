//! What the indexes of a bucket hold in memory: nodes that were read, and what is not written yet, in one account.
//!
//! Each node in memory is charged as long as somebody holds it. Nodes that can be read again are kept while there is room;
//! of those the ones that nobody asked for lately go first.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::node::Node;

/// So much may be held by each that writes, however many they are: what is written in smaller pieces costs more than it spares.
const SHARE_MIN: usize = 256 << 10;

/// Which index, which segment of it, and where in that.
pub(super) type Place = (u64, u32, u64);

/// The account of all indexes of a bucket.
#[derive(Debug)]
pub struct Memory {
    limit: AtomicUsize,
    used: AtomicUsize,
    indexes: AtomicU64,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    nodes: HashMap<Place, (Arc<Node>, bool)>,
    turns: VecDeque<Place>,
}

impl Memory {
    /// An account of so many bytes.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            indexes: AtomicU64::new(0),
            cache: Mutex::default(),
        })
    }

    /// Changes how many bytes the indexes may hold.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Relaxed);
        self.make_room();
    }

    /// How many bytes the indexes may hold.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// How many bytes they hold.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// How many bytes one of those that write may hold: this part of the account. It is less where all indexes together hold more
    /// than the account has. Nodes that can be read again make room first.
    pub(super) fn share(&self, part: usize) -> usize {
        let fair = self.limit() / part;
        if self.used() > self.limit() {
            self.make_room();
        }
        let over = self.used().saturating_sub(self.limit());
        fair.saturating_sub(over).max(fair.min(SHARE_MIN))
    }

    pub(super) fn next_index(&self) -> u64 {
        self.indexes.fetch_add(1, Relaxed)
    }

    pub(super) fn find(&self, place: Place) -> Option<Arc<Node>> {
        let mut cache = self.cache.lock();
        let (node, asked) = cache.nodes.get_mut(&place)?;
        *asked = true;
        Some(node.clone())
    }

    pub(super) fn keep(&self, place: Place, node: Arc<Node>) {
        {
            let mut cache = self.cache.lock();
            if cache.nodes.insert(place, (node, false)).is_none() {
                cache.turns.push_back(place);
            }
        }
        self.make_room();
    }

    /// Forgets nodes until the rest fits, or none is left.
    fn make_room(&self) {
        while self.used() > self.limit() {
            let mut cache = self.cache.lock();
            let Some(place) = cache.turns.pop_front() else { return };
            match cache.nodes.get_mut(&place) {
                Some((_, asked)) if *asked => {
                    *asked = false;
                    cache.turns.push_back(place);
                }
                _ => {
                    let gone = cache.nodes.remove(&place);
                    drop(cache);
                    drop(gone);
                }
            }
        }
    }
}

/// Bytes that somebody holds, in the account until this is dropped.
#[derive(Debug)]
pub struct Charge {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Charge {
    /// So many bytes from now on.
    #[must_use]
    pub fn new(memory: &Arc<Memory>, bytes: usize) -> Self {
        memory.used.fetch_add(bytes, Relaxed);
        Self { memory: memory.clone(), bytes }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Holds so many bytes from now on.
    pub fn set(&mut self, bytes: usize) {
        self.memory.used.fetch_add(bytes, Relaxed);
        self.memory.used.fetch_sub(self.bytes, Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn those_that_write_hold_less_where_all_together_hold_too_much() {
        let memory = Memory::new(64 * MIB);
        let held: Vec<Charge> = (0..8).map(|_| Charge::new(&memory, memory.share(8))).collect();
        assert_eq!((memory.used(), memory.share(8), memory.share(4)), (64 * MIB, 8 * MIB, 16 * MIB));
        let more = Charge::new(&memory, memory.share(8));
        assert_eq!((memory.share(8), memory.share(4)), (SHARE_MIN, 8 * MIB));
        drop((more, held));
        assert_eq!(memory.share(8), 8 * MIB);
        assert_eq!(Memory::new(1 << 10).share(8), 128, "of little memory it is a part all the same");
    }
}
