//! A file's content: what a process sees, what a power failure would leave, and what of it cannot be read.

#![expect(
    clippy::indexing_slicing,
    reason = "a file system of tests: a position outside of a file is a mistake in it, and has to end the test"
)]

use std::collections::{BTreeMap, BTreeSet};

use super::{FaultCounts, PAGE, SECTOR};

#[derive(Default)]
pub(super) struct Content {
    /// Open handles.
    pub(super) handles: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) durable_length: usize,
    /// Per page changed since the last sync: what is durable there.
    pub(super) durable_pages: BTreeMap<usize, Vec<u8>>,
    /// Those of them that a failed sync has taken for clean.
    pub(super) lost_pages: BTreeSet<usize>,
    /// Pages that cannot be read until they are written.
    pub(super) bad_pages: BTreeSet<usize>,
}

impl Content {
    /// Remembers what is durable in a range that is about to change.
    pub(super) fn touch(&mut self, from: usize, to: usize) {
        for page in from / PAGE..to.div_ceil(PAGE) {
            let start = (page * PAGE).min(self.bytes.len());
            let end = ((page + 1) * PAGE).min(self.bytes.len());
            let bytes = &self.bytes[start..end];
            self.durable_pages.entry(page).or_insert_with(|| bytes.to_vec());
            self.lost_pages.remove(&page);
            self.bad_pages.remove(&page);
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        self.touch(offset, end);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    pub(super) fn set_length(&mut self, length: usize) {
        let (short, long) = (length.min(self.bytes.len()), length.max(self.bytes.len()));
        self.touch(short, long);
        if self.bytes.is_empty() {
            // Fresh memory is zero already: of a file that is allocated and hardly written most pages are never touched.
            self.bytes = vec![0; length];
        } else {
            self.bytes.resize(length, 0);
        }
    }

    /// The system writes what is dirty when it likes, in any order, and nobody is told. So a power failure may leave what is about
    /// to be overwritten or cut off. That is true of some pages, or of all.
    pub(super) fn write_back(&mut self, random: &mut dyn FnMut() -> u64, counts: &mut FaultCounts) {
        let is_whole = random() & 1 == 0;
        let lost = &self.lost_pages;
        let mut reached = self.durable_length;
        let length = self.bytes.len();
        self.durable_pages.retain(|&page, _| {
            let stays = lost.contains(&page) || !is_whole && random() & 1 == 0;
            if !stays {
                counts.pages_written_back += 1;
                reached = reached.max(((page + 1) * PAGE).min(length));
            }
            stays
        });
        // A file that is shorter by now may be as long as it was after a power failure.
        self.durable_length = reached;
    }

    /// A sync succeeds: it writes what is dirty.
    pub(super) fn sync(&mut self) {
        let lost = &self.lost_pages;
        self.durable_pages.retain(|page, _| lost.contains(page));
        self.durable_length = self.bytes.len();
    }

    /// Some pages that only the cache has leave it.
    pub(super) fn evict(&mut self, random: &mut dyn FnMut() -> u64, counts: &mut FaultCounts) {
        for page in std::mem::take(&mut self.lost_pages) {
            if random() & 1 == 0 {
                self.lost_pages.insert(page);
                continue;
            }
            counts.evicted_pages += 1;
            let old = self.durable_pages.remove(&page).unwrap_or_default();
            let end = ((page + 1) * PAGE).min(self.bytes.len());
            if let Some(bytes) = self.bytes.get_mut(page * PAGE..end) {
                for (at, byte) in bytes.iter_mut().enumerate() {
                    *byte = old.get(at).copied().unwrap_or(0);
                }
            }
        }
    }

    /// Power fails. `stale` says what lay on the disk where a page of the file has grown to.
    pub(super) fn crash(
        &mut self,
        random: &mut dyn FnMut() -> u64,
        stale: &mut dyn FnMut(usize) -> Option<Vec<u8>>,
        counts: &mut FaultCounts,
    ) {
        let length = if random() & 1 == 0 { self.durable_length } else { self.bytes.len() };
        let longest = self.bytes.len().max(self.durable_length);
        self.bytes.resize(longest, 0);
        for (page, old) in std::mem::take(&mut self.durable_pages) {
            let fate = if self.lost_pages.contains(&page) { 2 } else { random() % 4 };
            let sectors = random();
            // The file has grown, and what lies there is what lay there before.
            let garbage = if random() & 3 == 0 { sectors as u8 } else { 0 };
            let has_grown = old.len() < PAGE && page * PAGE + old.len() < length;
            let before = if has_grown && fate != 0 { stale(page) } else { None };
            match fate {
                0 => {}
                1 => counts.torn_pages += 1,
                _ => counts.lost_pages += 1,
            }
            counts.stale_pages += u64::from(before.is_some());
            for sector in 0..PAGE / SECTOR {
                let keeps_new = fate == 0 || fate == 1 && sectors >> sector & 1 == 0;
                if keeps_new {
                    continue;
                }
                let at = sector * SECTOR;
                let end = (page * PAGE + at + SECTOR).min(longest);
                let Some(bytes) = self.bytes.get_mut(page * PAGE + at..end) else { continue };
                let grown = overwrite(bytes, old.get(at..).unwrap_or_default());
                let at = at + bytes.len() - grown;
                let grown = bytes.len() - grown..;
                match &before {
                    Some(before) => {
                        let rest = &mut bytes[grown];
                        let known = rest.len() - overwrite(rest, before.get(at..).unwrap_or_default());
                        rest[known..].fill(0);
                    }
                    None => bytes[grown].fill(garbage),
                }
            }
        }
        self.lost_pages.clear();
        self.bytes.resize(length, 0);
        self.durable_length = length;
    }

    /// As the operating system reads: up to a page that cannot be read, and of such a page nothing. `None`: it begins with one.
    pub(super) fn readable(&self, from: usize, wanted: usize) -> Option<&[u8]> {
        let bytes = self.bytes.get(from..).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(wanted)];
        let bad = self.bad_pages.range(from / PAGE..(from + bytes.len()).div_ceil(PAGE)).next();
        match bad {
            Some(&page) if page * PAGE <= from => None,
            Some(&page) => Some(&bytes[..page * PAGE - from]),
            None => Some(bytes),
        }
    }
}

/// Puts as much of `new` over the beginning of `bytes` as there is room for; how many bytes behind it stay as they were.
fn overwrite(bytes: &mut [u8], new: &[u8]) -> usize {
    let count = new.len().min(bytes.len());
    bytes[..count].copy_from_slice(&new[..count]);
    bytes.len() - count
}
