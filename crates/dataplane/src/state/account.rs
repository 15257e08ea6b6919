//! The node's account: memory that belongs to no bucket, by who holds it.
//!
//! A bucket knows what it holds (`engine::Pool`). The remaining memory is the data plane's and the control plane's. A
//! part that holds some keeps an [`Accounted`] and tells it now and then, a loop once per round. The module
//! [`node_memory`](crate::statistics::node_memory) adds the buckets' memory. Once a second it asks the allocator and
//! the operating system about the process. The difference is memory that no part has told of: stacks, and many small
//! things.
//!
//! Invariant: a reader waits for neither of those two. The allocator looks through all that is free, under locks
//! that every allocation needs.
//!
//! Invariant: nothing is counted twice. Of a connection's pending output only what is its own counts here, not documents
//! that it refers to. Requests that wait to be admitted are in their bucket's account. The answer of another node is the connection's once
//! it has come there. Answers to what is asked for next are still [`NodePool::Forwarding`]'s until then.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::figures::machine;

/// Whose bytes they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePool {
    /// Buffers that a loop's connections share.
    Loops,
    /// Connections, in either direction: half-read requests, parked ones, output that nobody has taken.
    Connections,
    /// Requests on their way to other nodes, and answers until their turn comes.
    Forwarding,
    /// The log of the metadata, and messages about it.
    Consensus,
    /// What services hold.
    Services,
}

/// How many pools there are.
const POOLS: usize = NodePool::Services as usize + 1;

/// See the module. Counters are statistics: relaxed, they order nothing.
#[derive(Debug, Default)]
pub struct NodeAccount {
    pools: [AtomicU64; POOLS],
    process: Mutex<Process>,
}

/// What was said of the process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    pub(crate) allocator_free: u64,
    pub(crate) resident: machine::Resident,
    /// When the allocator was asked: what was resident then, and how many looks ago that was.
    asked: (u64, u32),
}

/// The allocator takes long to answer: each second that was a tenth of all that ran beside operations. It is asked where more
/// or less is resident by so many bytes, and after so many looks.
const ASKED_BYTES: u64 = 1 << 20;
const ASKED_LOOKS: u32 = 10;

impl Process {
    fn next(self, resident: machine::Resident, allocator_free_bytes: impl FnOnce() -> u64) -> Self {
        let (was_resident, looks) = self.asked;
        let is_due = resident.all.abs_diff(was_resident) >= ASKED_BYTES || looks >= ASKED_LOOKS;
        if is_due {
            Self { allocator_free: allocator_free_bytes(), resident, asked: (resident.all, 1) }
        } else {
            Self { resident, asked: (was_resident, looks + 1), ..self }
        }
    }
}

impl NodeAccount {
    /// Bytes of a pool.
    pub(crate) fn of(&self, pool: NodePool) -> u64 {
        self.pools[pool as usize].load(Ordering::Relaxed)
    }

    /// What the two said last.
    pub(crate) fn process(&self) -> Process {
        *self.process.lock()
    }

    /// Asks the allocator and the operating system: nothing for a data-plane loop.
    pub fn look_at_process(&self) {
        let process = self.process().next(machine::Resident::read(), machine::allocator_free_bytes);
        *self.process.lock() = process;
    }
}

/// Bytes that a pool has until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Accounted {
    account: Arc<NodeAccount>,
    pool: NodePool,
    bytes: u64,
}

impl Accounted {
    /// So many bytes of a pool.
    pub fn new(account: &Arc<NodeAccount>, pool: NodePool, bytes: usize) -> Self {
        let mut accounted = Self { account: Arc::clone(account), pool, bytes: 0 };
        accounted.set(bytes);
        accounted
    }

    /// Bytes of the pool, these among them.
    pub(crate) fn with_others(&self) -> u64 {
        self.account.of(self.pool)
    }

    /// There are so many more, unless all of the pool were more than `most` then. False: they are not counted.
    pub(crate) fn grow_within(&mut self, bytes: usize, most: u64) -> bool {
        let before = self.bytes;
        self.set((before as usize).saturating_add(bytes));
        // Others that look in the middle of this may find no room. They can do without.
        let fits = self.with_others() <= most;
        if !fits {
            self.set(before as usize);
        }
        fits
    }

    /// All of them, for another holder; none are left here.
    pub(crate) fn take_over(&mut self) -> Self {
        let bytes = std::mem::take(&mut self.bytes);
        Self { account: Arc::clone(&self.account), pool: self.pool, bytes }
    }

    /// There are so many now.
    pub fn set(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        if bytes != self.bytes {
            // One addition, which wraps where there are fewer, so that nobody sees neither.
            self.account.pools[self.pool as usize]
                .fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
            self.bytes = bytes;
        }
    }
}

impl Drop for Accounted {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_no_longer_is_given_back() {
        let account = Arc::<NodeAccount>::default();
        let mut one = Accounted::new(&account, NodePool::Forwarding, 100);
        let other = Accounted::new(&account, NodePool::Forwarding, 30);
        one.set(40);
        assert!(!one.grow_within(31, 100) && one.grow_within(30, 100));
        let mut one = one.take_over();
        assert_eq!(account.of(NodePool::Forwarding), 100);
        one.set(40);
        assert_eq!((account.of(NodePool::Forwarding), account.of(NodePool::Loops)), (70, 0));
        drop(one);
        assert_eq!(account.of(NodePool::Forwarding), 30);
        drop(other);
        assert_eq!(account.of(NodePool::Forwarding), 0);
    }

    #[test]
    fn the_allocator_is_asked_where_memory_has_moved_and_now_and_then() {
        let resident = |all| machine::Resident { all, of_files: 0 };
        let mut asked = 0;
        let mut process = Process::default();
        let mut look = |all| {
            process = process.next(resident(all), || {
                asked += 1;
                asked
            });
            (process.allocator_free, process.resident.all)
        };
        assert_eq!(look(50 << 20), (1, 50 << 20));
        for _ in 1..ASKED_LOOKS {
            assert_eq!(look((50 << 20) + 4_096), (1, (50 << 20) + 4_096));
        }
        assert_eq!(look(50 << 20).0, 2);
        assert_eq!(look(51 << 20).0, 3);
        assert_eq!(look(50 << 20).0, 4);
    }
}
