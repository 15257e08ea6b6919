//! Durable writes of documents that nobody else writes. A write that was answered as committed is there whatever happens.
//! One that was not may be there or not.

use std::collections::BTreeMap;

use settee_engine::Mutated;

#[derive(Default)]
pub(crate) struct DurableWrites {
    /// By document: the versions that it may have; none is "not there".
    possible: BTreeMap<u32, Vec<Option<u32>>>,
    pub(crate) in_progress: Vec<(u32, u32, Mutated)>,
}

impl DurableWrites {
    pub(crate) fn began(&mut self, index: u32, version: u32, mutated: Mutated) {
        self.possible.entry(index).or_insert_with(|| vec![None]).push(Some(version));
        self.in_progress.push((index, version, mutated));
    }

    pub(crate) fn committed(&mut self, index: u32, version: u32) {
        self.possible.insert(index, vec![Some(version)]);
    }

    /// Of what was in progress nobody knows what became.
    pub(crate) fn crashed(&mut self) {
        self.in_progress.clear();
    }

    /// What may be read of a document; nothing else.
    pub(crate) fn check(&self, index: u32, found: Option<&[u8]>, value: impl Fn(u32) -> Vec<u8>) {
        let possible = self.possible.get(&index).map_or(&[None][..], Vec::as_slice);
        let fits = possible.iter().any(|version| version.map(&value).as_deref() == found);
        let bytes = found.map(<[u8]>::len);
        assert!(fits, "durable document {index}: {bytes:?} bytes, it is one of {possible:?}");
    }

    pub(crate) fn documents(&self) -> impl Iterator<Item = u32> + '_ {
        self.possible.keys().copied()
    }
}
