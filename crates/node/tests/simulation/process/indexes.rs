//! What a node does about the indexes of its buckets: in a server the threads of `service` and `capi` do.

use std::sync::Arc;

use base::Now;
use fastrand::Rng;
use service::{Change, Event};

use super::{Process, Shelf};
use indexer::copies::Became;

impl Process {
    /// Indexers hear what has become of copies and design documents, and do what is due. How many copies that they index were set back.
    pub(crate) fn index(&mut self, shelf: &mut Shelf, rng: &mut Rng, now: Now) -> u64 {
        if rng.u8(0..3) == 0 {
            self.hear_of_copies();
        }
        let mut set_back = 0;
        let metadata = Arc::clone(&self.metadata);
        for (uuid, open) in &mut self.buckets {
            if !open.indexing.is_as(&metadata) {
                let Some((_, info)) = metadata.bucket_by_uuid(uuid) else { continue };
                open.indexing.follow((&metadata, info), self.id, &open.engine, &shelf.index_disk(uuid));
            }
            // Their disk works while that with the data is slow: an index may have on its disk what the bucket has not.
            open.indexing.run(rng, now);
            set_back += std::mem::take(&mut open.indexing.set_back);
        }
        set_back
    }

    fn hear_of_copies(&mut self) {
        let open: Vec<_> =
            self.buckets.iter().map(|(uuid, open)| (uuid.clone(), Arc::clone(&open.engine))).collect();
        let Self { lifecycle, buckets, .. } = self;
        lifecycle.look(&open, |event| {
            if let Event::Vb { bucket, vb, change, .. } = event
                && let Some(open) = buckets.get_mut(&bucket)
            {
                open.indexing.hear(vb, became(change));
            }
        });
    }
}

fn became(change: Change) -> Became {
    match change {
        Change::Active => Became::Active,
        Change::Sealed => Became::Sealed,
        Change::Replica => Became::Replica,
        Change::Reset => Became::Reset,
        Change::Gone => Became::Gone,
    }
}
