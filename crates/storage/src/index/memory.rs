//! The index of a segment that has no footer yet. It has entries in order of arrival, and a hash table of the newest
//! entry per fingerprint. A chain leads from each entry to the one before it with the same fingerprint.
//!
//! The chain keeps a key that is overwritten all day from degrading the table. Memory: 24 to 28 bytes a record,
//! released when the segment is sealed.

#![expect(
    clippy::indexing_slicing,
    reason = "a slot is masked by the table's length, and what the table holds are numbers of entries"
)]

use std::collections::BTreeMap;

use base::{Seqno, VbId};

use super::{Entry, Span, Staged, Tombstones};

const NOWHERE: u32 = u32::MAX;

/// See the module.
#[derive(Default)]
pub(crate) struct MemoryIndex {
    entries: Vec<Entry>,
    /// Per entry: the previous one with its fingerprint.
    previous: Vec<u32>,
    /// Open addressing, a power of two: number of the newest entry with a fingerprint.
    table: Vec<u32>,
    distinct: usize,
    spans: Vec<Span>,
    summaries: BTreeMap<(VbId, u32), Summary>,
    tombstones: Tombstones,
}

/// What a segment holds of one incarnation of a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) vb: VbId,
    pub(crate) incarnation: u32,
    pub(crate) records: u32,
    pub(crate) units: u32,
    pub(crate) seqno_min: Seqno,
    pub(crate) seqno_max: Seqno,
}

impl MemoryIndex {
    pub(crate) fn add(&mut self, staged: &Staged) {
        for &entry in &staged.entries {
            self.insert(entry);
        }
        for span in &staged.spans {
            self.add_span(span);
        }
        self.tombstones.add(staged.tombstones);
    }

    fn insert(&mut self, entry: Entry) {
        if (self.distinct + 1) * 4 > self.table.len() * 3 {
            self.grow();
        }
        let number = self.entries.len() as u32;
        let slot = self.slot_of(entry.fingerprint());
        self.distinct += usize::from(self.table[slot] == NOWHERE);
        self.previous.push(self.table[slot]);
        self.table[slot] = number;
        self.entries.push(entry);
    }

    /// The slot that holds the fingerprint, or the empty one where it belongs. The table always has empty slots.
    fn slot_of(&self, fingerprint: u32) -> usize {
        let mask = self.table.len() - 1;
        let mut slot = fingerprint as usize & mask;
        loop {
            match self.table[slot] {
                NOWHERE => return slot,
                number if self.entries[number as usize].fingerprint() == fingerprint => return slot,
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        let larger = (self.table.len() * 2).max(1024);
        let old = std::mem::replace(&mut self.table, vec![NOWHERE; larger]);
        for number in old.into_iter().filter(|&number| number != NOWHERE) {
            let slot = self.slot_of(self.entries[number as usize].fingerprint());
            self.table[slot] = number;
        }
    }

    fn add_span(&mut self, span: &Span) {
        match self.spans.last_mut() {
            Some(last) if last.vb == span.vb && last.end == span.start => last.end = span.end,
            _ => self.spans.push(*span),
        }
        let units = ((span.end - span.start) / crate::format::UNIT) as u32;
        let summary = self.summaries.entry((span.vb, span.incarnation)).or_insert(Summary {
            vb: span.vb,
            incarnation: span.incarnation,
            records: 0,
            units: 0,
            seqno_min: span.seqno_min,
            seqno_max: span.seqno_max,
        });
        summary.records += span.records;
        summary.units += units;
        summary.seqno_min = summary.seqno_min.min(span.seqno_min);
        summary.seqno_max = summary.seqno_max.max(span.seqno_max);
    }

    /// Calls `found` with every entry of that fingerprint.
    pub(crate) fn find(&self, fingerprint: u32, found: &mut dyn FnMut(Entry)) {
        if self.table.is_empty() {
            return;
        }
        let mut number = self.table[self.slot_of(fingerprint)];
        while number != NOWHERE {
            found(self.entries[number as usize]);
            number = self.previous[number as usize];
        }
    }

    /// Memory that finding keys takes: entries, chains and table.
    pub(crate) fn lookup_bytes(&self) -> u64 {
        let numbers = self.previous.capacity() + self.table.capacity();
        (self.entries.capacity() * size_of::<Entry>() + numbers * size_of::<u32>()) as u64
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    pub(crate) fn summaries(&self) -> impl ExactSizeIterator<Item = &Summary> {
        self.summaries.values()
    }

    pub(crate) fn tombstones(&self) -> Tombstones {
        self.tombstones
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::RecordKind;

    #[test]
    fn every_version_is_found_also_of_a_key_overwritten_ten_thousand_times() {
        let mut index = MemoryIndex::default();
        for n in 1..=20_000u64 {
            let hash = if n % 2 == 0 { 7 << 32 } else { base::hash::key_hash(&n.to_le_bytes()) };
            index.insert(Entry::new(hash, VbId(1), Seqno(n), RecordKind::Document, n * 16, 80));
        }
        let mut seqnos = Vec::new();
        index.find(7, &mut |entry| seqnos.push(entry.seqno().get()));
        assert_eq!(seqnos.len(), 10_000);
        assert!(seqnos.is_sorted_by(|a, b| a > b), "newest first");
        let mut found = 0;
        index.find(super::super::fingerprint(base::hash::key_hash(&19_999u64.to_le_bytes())), &mut |_| {
            found += 1;
        });
        assert_eq!(found, 1);
    }
}
