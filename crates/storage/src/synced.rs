//! Up to which seqno each vBucket is synced: as of where a backfill shows it; and how far its durable writes are there.
//!
//! The numbers are noted under the writer's lock when a sync begins. They are stored here when it has ended, before any
//! other thread may learn of it. Compaction never drops a version in favour of one that is not known here.

use base::{Seqno, VbId};
use parking_lot::Mutex;

use crate::api::{Marks, VbState};

/// A vBucket's synced seqno within one of its incarnations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct High {
    pub(crate) incarnation: u32,
    pub(crate) seqno: Seqno,
    pub(crate) marks: Marks,
}

impl High {
    pub(crate) fn of(incarnation: u32, state: &VbState) -> Self {
        Self { incarnation, seqno: state.high_seqno, marks: state.marks }
    }
}

/// See the module. By vBucket number.
pub(crate) struct SyncedHighs(Mutex<Vec<High>>);

impl SyncedHighs {
    pub(crate) fn new(highs: Vec<High>) -> Self {
        Self(Mutex::new(highs))
    }

    /// A sync has covered these. Syncs report in the order in which they began.
    pub(crate) fn advance(&self, highs: &[(VbId, High)]) {
        let mut known = self.0.lock();
        for (vb, high) in highs {
            if let Some(slot) = known.get_mut(usize::from(vb.get())) {
                *slot = *high;
            }
        }
    }

    pub(crate) fn of(&self, vb: VbId) -> High {
        self.0.lock().get(usize::from(vb.get())).copied().unwrap_or_default()
    }
}
