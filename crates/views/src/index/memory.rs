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

/// Bytes that somebody holds.
#[derive(Debug)]
pub(super) struct Charge {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Charge {
    pub(super) fn new(memory: &Arc<Memory>, bytes: usize) -> Self {
        memory.used.fetch_add(bytes, Relaxed);
        Self { memory: memory.clone(), bytes }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Holds so many bytes from now on.
    pub(super) fn set(&mut self, bytes: usize) {
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
