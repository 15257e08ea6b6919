//! The index of a sealed segment: read from its footer when it is first asked, never at open.
//!
//! Fences and filter (1.5 bytes per record) stay in memory once loaded. The entries stay on disk, 4 KiB of them are
//! read per question that passes the filter. A bucket that keeps all keys in memory never loads anything, and a segment
//! that a key index speaks for (`key_index`) gives it back.

use std::{io, sync::OnceLock};

use base::VbId;

use super::{Entry, filter, memory::Summary};
use crate::{
    format::footer::{self, ENTRY, FENCE_ENTRIES, Fences, RunDirectory, Trailer},
    fs::{FsFile, is_unreadable},
};

/// Up to so many runs they are read as a whole whenever one vBucket's are asked for. Of more, as commits leave them, a
/// directory of 8 KiB is kept.
const RUNS_READ_WHOLE: u32 = 2048;

/// See the module.
pub(crate) struct SealedIndex {
    pub(crate) trailer: Trailer,
    lookup: OnceLock<Lookup>,
    runs: OnceLock<RunDirectory>,
}

struct Lookup {
    fences: Fences,
    filter: Vec<u8>,
}

/// Why a footer could not answer.
#[derive(Debug)]
pub(crate) enum FooterError {
    /// A checksum did not match: the index must be rebuilt from the data.
    Damaged,
    /// The file could not be read.
    Io(io::Error),
}

impl SealedIndex {
    pub(crate) fn new(trailer: Trailer) -> Self {
        Self { trailer, lookup: OnceLock::new(), runs: OnceLock::new() }
    }

    /// Calls `found` with every entry of that fingerprint.
    #[expect(clippy::indexing_slicing, reason = "a search gives a position in the list or its end")]
    pub(crate) fn find(
        &self,
        file: &dyn FsFile,
        fingerprint: u32,
        found: &mut dyn FnMut(Entry),
    ) -> Result<(), FooterError> {
        let lookup = self.lookup(file)?;
        if !filter::may_contain(&lookup.filter, fingerprint) {
            return Ok(());
        }
        // The block before the first fence that is not below may end with the fingerprint.
        let first = lookup.fences.partition_point(|fence| fence.0 < fingerprint).saturating_sub(1);
        for (number, fence) in lookup.fences.iter().enumerate().skip(first) {
            if fence.0 > fingerprint {
                break;
            }
            let entries = self.block(file, number, fence.1)?;
            let start = entries.partition_point(|entry| entry.fingerprint() < fingerprint);
            entries[start..]
                .iter()
                .take_while(|entry| entry.fingerprint() == fingerprint)
                .for_each(|&e| found(e));
        }
        Ok(())
    }

    /// The ranges of bytes where a vBucket's records lie, in order.
    pub(crate) fn runs(&self, file: &dyn FsFile, vb: VbId) -> Result<Vec<(u64, u64)>, FooterError> {
        let (start, length) = self.trailer.runs_range();
        if self.trailer.runs <= RUNS_READ_WHOLE {
            let bytes = read(file, (start, length))?;
            return footer::decode_runs(&bytes, &self.trailer, vb).ok_or(FooterError::Damaged);
        }
        let directory = match self.runs.get() {
            Some(directory) => directory,
            None => {
                let bytes = read(file, (start, length))?;
                let directory = footer::index_runs(&bytes, &self.trailer).ok_or(FooterError::Damaged)?;
                self.runs.get_or_init(|| directory)
            }
        };
        let (offset, length) = directory.range(vb);
        directory.decode(&read(file, (start + offset as u64, length))?, vb).ok_or(FooterError::Damaged)
    }

    /// What the segment holds per vBucket.
    pub(crate) fn summaries(&self, file: &dyn FsFile) -> Result<Vec<Summary>, FooterError> {
        let bytes = read(file, self.trailer.summaries_range())?;
        footer::decode_summaries(&bytes, &self.trailer).ok_or(FooterError::Damaged)
    }

    fn lookup(&self, file: &dyn FsFile) -> Result<&Lookup, FooterError> {
        if let Some(lookup) = self.lookup.get() {
            return Ok(lookup);
        }
        let bytes = read(file, self.trailer.lookup_range())?;
        let (fences, filter) = footer::decode_lookup(&bytes, &self.trailer).ok_or(FooterError::Damaged)?;
        Ok(self.lookup.get_or_init(|| Lookup { fences, filter }))
    }

    /// First fingerprints and checksums of the blocks of entries.
    pub(crate) fn fences(&self, file: &dyn FsFile) -> Result<Fences, FooterError> {
        if let Some(lookup) = self.lookup.get() {
            return Ok(lookup.fences.clone());
        }
        let bytes = read(file, self.trailer.lookup_range())?;
        footer::decode_lookup(&bytes, &self.trailer).map(|found| found.0).ok_or(FooterError::Damaged)
    }

    /// Memory that fences and filter take.
    pub(crate) fn lookup_bytes(&self) -> u64 {
        self.lookup.get().map_or(0, |lookup| (lookup.fences.capacity() * 8 + lookup.filter.capacity()) as u64)
    }

    /// The entries of one block.
    pub(crate) fn block(
        &self,
        file: &dyn FsFile,
        number: usize,
        crc: u32,
    ) -> Result<Vec<Entry>, FooterError> {
        let first = number * FENCE_ENTRIES;
        let count = (self.trailer.entries as usize - first).min(FENCE_ENTRIES);
        let bytes = read(file, (self.trailer.data_end + (first * ENTRY) as u64, count * ENTRY))?;
        footer::decode_entries(&bytes, crc).ok_or(FooterError::Damaged)
    }
}

fn read(file: &dyn FsFile, (offset, length): (u64, usize)) -> Result<Vec<u8>, FooterError> {
    let mut bytes = vec![0; length];
    match file.read_at(&mut bytes, offset) {
        Ok(count) if count == length => Ok(bytes),
        Ok(_) => Err(FooterError::Damaged),
        Err(error) if is_unreadable(&error) => Err(FooterError::Damaged),
        Err(error) => Err(FooterError::Io(error)),
    }
}
