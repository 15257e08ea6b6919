//! The node's DCP producers by name, what those that have ended had counted, and how far each vBucket's history goes.
//!
//! A name has one connection per bucket: a second one closes the first. The first one's worker is told through the
//! waiter that the first left in the list. The list also serves statistics, which are asked for on other workers.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, atomic::Ordering},
};

use base::{Seqno, VbId, VbRole};
use engine::{Bucket, Waiter};
use parking_lot::Mutex;
use replication::producer::stats::{ProducerStats, StreamStats};

use crate::state::{dcp_totals::Totals, mailbox::Wakes};

/// Tells a connection that another one has taken its name. No stream has this ticket.
pub(crate) const SUPERSEDED: u64 = u64::MAX;

/// A bucket's uuid, and a producer's name.
pub(crate) type Key = (String, String);

/// The node's producers, by bucket (its uuid) and name.
#[derive(Debug, Default)]
pub(crate) struct DcpConnections {
    list: Mutex<BTreeMap<Key, Entry>>,
    /// What connections that have ended had counted, by bucket: sums over connections must not fall with them.
    ended: Mutex<BTreeMap<String, Totals>>,
    wakes: OnceLock<Wakes>,
}

/// A producer in the list.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) waiter: Waiter,
    pub(crate) stats: Arc<ProducerStats>,
}

impl DcpConnections {
    /// From now on the workers can be reached.
    pub(crate) fn reach(&self, wakes: Wakes) {
        // Set once, before the first connection.
        let _ = self.wakes.set(wakes);
    }

    /// What the producers of a bucket show of themselves, by name.
    pub(crate) fn of_bucket(&self, uuid: &str) -> Vec<Arc<ProducerStats>> {
        self.of_bucket_and_ended(uuid).0
    }

    /// The same, and what those that have ended had counted, at one moment.
    pub(crate) fn of_bucket_and_ended(&self, uuid: &str) -> (Vec<Arc<ProducerStats>>, Totals) {
        let list = self.list.lock();
        let entries = list.iter().filter(|((bucket, _), _)| bucket == uuid);
        let open = entries.map(|(_, entry)| Arc::clone(&entry.stats)).collect();
        (open, self.ended(uuid))
    }

    fn ended(&self, uuid: &str) -> Totals {
        self.ended.lock().get(uuid).copied().unwrap_or_default()
    }

    /// A connection of a bucket has ended, and had counted that.
    pub(crate) fn note_end(&self, uuid: &str, add: impl FnOnce(&mut Totals)) {
        add(self.ended.lock().entry(uuid.to_owned()).or_default());
    }

    /// Forgets what was counted for buckets that are gone.
    pub(crate) fn keep_ended(&self, is_open: impl Fn(&str) -> bool) {
        self.ended.lock().retain(|uuid, _| is_open(uuid));
    }

    pub(crate) fn register(&self, key: Key, entry: Entry) {
        let uuid = key.0.clone();
        let mut list = self.list.lock();
        let old = list.insert(key, entry);
        if let Some(old) = &old {
            self.note_end(&uuid, |totals| totals.add_ended_producer(&old.stats));
        }
        drop(list);
        if let (Some(old), Some(wakes)) = (old, self.wakes.get()) {
            wakes.wake(Waiter { ticket: SUPERSEDED, ..old.waiter });
        }
    }

    pub(crate) fn unregister(&self, key: &Key, stats: &Arc<ProducerStats>) {
        let mut list = self.list.lock();
        if list.get(key).is_some_and(|entry| Arc::ptr_eq(&entry.stats, stats)) {
            list.remove(key);
            // Under the lock of the list: nobody sees neither, or both.
            self.note_end(&key.0, |totals| totals.add_ended_producer(stats));
        }
    }
}

/// How far the history goes of each vBucket that streams are fed from here, by vBucket: on a node of many not all are there.
pub(crate) struct Highs(Vec<(VbId, Seqno)>);

impl Highs {
    pub(crate) fn of(bucket: &Bucket) -> Self {
        Self(bucket.seqnos(None, &[VbRole::Active, VbRole::Sealed]))
    }

    /// How many vBuckets there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Seqnos that a stream has not looked at yet: no fewer than the items it has still to send.
    pub(crate) fn remaining(&self, stream: &StreamStats) -> u64 {
        let Ok(at) = self.0.binary_search_by_key(&stream.vb, |&(vb, _)| vb) else { return 0 };
        self.0[at].1.min(stream.end).get().saturating_sub(stream.last_read.load(Ordering::Relaxed))
    }
}
