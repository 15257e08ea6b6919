//! What was acknowledged, and what a crash may take back. For each document it keeps the last version that is known
//! to be on disk. Behind that come the versions acknowledged since, oldest first.

use std::collections::BTreeMap;

use base::{Seqno, VbId};

/// A version of a document; `None` is a deletion.
pub(crate) type Version = Option<u32>;

#[derive(Default)]
struct Promise {
    on_disk: Version,
    newer: Vec<(Seqno, Version)>,
}

/// All documents, by vBucket and number.
#[derive(Default)]
pub(crate) struct Promises {
    documents: BTreeMap<(VbId, u32), Promise>,
    /// Highest version that was ever sent, so that none is used twice.
    versions: BTreeMap<u32, u32>,
}

impl Promises {
    /// The next version of a document.
    pub(crate) fn next_version(&mut self, index: u32) -> u32 {
        let version = self.versions.entry(index).or_default();
        *version += 1;
        *version
    }

    pub(crate) fn acknowledged(&mut self, vb: VbId, index: u32, seqno: Seqno, version: Version) {
        let promise = self.documents.entry((vb, index)).or_default();
        assert!(promise.newer.last().is_none_or(|newest| newest.0 < seqno), "seqnos go up");
        promise.newer.push((seqno, version));
    }

    /// What a read must find.
    pub(crate) fn current(&self, vb: VbId, index: u32) -> Version {
        let promise = self.documents.get(&(vb, index));
        promise.and_then(|promise| promise.newer.last().map_or(promise.on_disk, |newest| newest.1))
    }

    /// Everything up to here is on disk.
    pub(crate) fn persisted(&mut self, vb: VbId, seqno: Seqno) {
        for promise in self.documents.range_mut((vb, 0)..=(vb, u32::MAX)).map(|entry| entry.1) {
            let settled = promise.newer.partition_point(|newer| newer.0 <= seqno);
            if let Some((_, version)) = promise.newer.drain(..settled).next_back() {
                promise.on_disk = version;
            }
        }
    }

    /// After a crash: what is on disk is everything up to one seqno, and nothing else.
    pub(crate) fn crashed(&mut self, vb: VbId, recovered: Seqno) {
        self.persisted(vb, recovered);
        for promise in self.documents.range_mut((vb, 0)..=(vb, u32::MAX)).map(|entry| entry.1) {
            promise.newer.clear();
        }
    }

    /// Documents that exist.
    pub(crate) fn live(&self) -> Vec<(VbId, u32)> {
        let live = self.documents.keys().filter(|&&(vb, index)| self.current(vb, index).is_some());
        live.copied().collect()
    }
}
