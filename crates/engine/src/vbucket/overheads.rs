//! What a vBucket takes beside its documents and its table: its queue, the notes about keys in an unusual state, itself.
//!
//! Counted anew where that costs little: when enough bytes to be reported were written, a batch was published, or a
//! caller asks for statistics. Between two counts a vBucket is off by what it did meanwhile, less than
//! [`crate::shard::REPORT_BYTES`] of documents' worth of queue slots.

use base::Seqno;

use crate::{
    api::{notify::Waiter, pressure::Pool},
    pressure::pools::Overheads,
    shard::Shard,
    vbucket::{VBucket, slot::Slot},
};

impl VBucket {
    /// Tells the pools what the vBucket takes now.
    pub(crate) fn account(&mut self, shard: &Shard) {
        let now = self.overheads();
        let before = std::mem::replace(&mut self.accounted, now);
        if now != before {
            shard.pools.exchange(Pool::Metadata, before.metadata, now.metadata);
            shard.pools.exchange(Pool::Checkpoints, before.checkpoint, now.checkpoint);
        }
    }

    fn overheads(&self) -> Overheads {
        let waiters = self.persistence_waiters.capacity() * size_of::<(Seqno, Waiter)>();
        let warming = self.warming.as_ref().map_or(0, |warming| warming.memory_bytes());
        let notes = self.pending.bytes() + self.locks.bytes() + self.disk_answers.bytes();
        Overheads {
            metadata: (size_of::<Slot>() + waiters + warming + notes) as u64,
            checkpoint: self.checkpoint.overhead_bytes(),
        }
    }
}
