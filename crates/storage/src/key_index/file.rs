//! The file of a key index.
//!
//! ```text
//! blocks     4 KiB each: up to 203 entries of 20 bytes (see `index::entry`; then the segment's number u32), sorted;
//!            at 4060 their number u32, at 4064 CRC-32C u32 of everything before, seeded with the CRC-32C of what is covered
//! covered    12 bytes each: segment u32, salt u32, data end in units u32; ascending
//! fences     4 bytes per block: the first fingerprint in it
//! file end - 64: trailer
//!  0 magic "SETTKEYS"   8 version u32   12 shard u32   16 blocks u32   20 covered u32   24 entries u64
//! 32 crc of covered and fences u32   36.. zero   60 crc u32 of bytes 0..60
//! ```
//!
//! The seed ties a block to its file: after a crash a block may hold what another index had there, which would pass for whole.

use std::path::Path;

use crate::{
    error::{StoreError, io_error},
    format::{UNIT, u32_at, u64_at},
    fs::{Fs, FsFile},
    index::Entry,
    segment::Segment,
};

pub(super) const BLOCK: usize = 4096;
const ENTRY: usize = 20;
/// Entries per block.
pub(super) const BLOCK_ENTRIES: usize = 203;
const COUNT_AT: usize = 4060;
const CRC_AT: usize = 4064;
const TRAILER: usize = 64;
const MAGIC: &[u8; 8] = b"SETTKEYS";
/// 1 covered segments that were not synced, and did not say where their data ended. 2 had blocks that would pass in any index.
const VERSION: u32 = 3;
/// Bytes of one covered segment.
const COVERED: usize = 12;

/// The name of the index with a number.
pub(super) fn name(number: u64) -> String {
    format!("{number:08}.keys")
}

/// The number in the name of an index.
pub(super) fn parse_name(name: &str) -> Option<u64> {
    name.strip_suffix(".keys").filter(|digits| digits.len() >= 8)?.parse().ok()
}

/// An entry and the segment that it lies in; they sort as entries do.
pub(super) type Located = (Entry, u32);

/// A segment that an index speaks for, as it was when the index was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Covered {
    pub(crate) segment: u32,
    salt: u32,
    /// Where its data ended, in units.
    end: u32,
}

impl Covered {
    pub(super) fn of(segment: &Segment) -> Self {
        Self { segment: segment.id, salt: segment.salt, end: (segment.data_end() / UNIT) as u32 }
    }

    fn encode(&self) -> [u8; COVERED] {
        let mut bytes = [0; COVERED];
        let numbers = [self.segment, self.salt, self.end];
        for (place, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Whether it speaks for that segment, as that is now.
    pub(crate) fn is(&self, segment: &Segment) -> bool {
        *self == Self::of(segment)
    }
}

/// The seed of the checksums of an index's blocks: two that speak for the same segments are the same.
pub(super) fn seed_of(covered: &[Covered]) -> u32 {
    covered.iter().fold(0, |crc, covered| crc32c::crc32c_append(crc, &covered.encode()))
}

/// See the module.
pub(crate) struct KeyIndex {
    name: String,
    file: Box<dyn FsFile>,
    covered: Vec<Covered>,
    /// Of the blocks' checksums.
    seed: u32,
    fences: Vec<u32>,
    entries: u64,
}

impl KeyIndex {
    pub(super) fn new(
        name: &str,
        file: Box<dyn FsFile>,
        covered: Vec<Covered>,
        fences: Vec<u32>,
        entries: u64,
    ) -> Self {
        let seed = seed_of(&covered);
        Self { name: name.to_owned(), file, covered, seed, fences, entries }
    }

    /// The index of a shard in a file of `dir`; `None` if it is not whole.
    pub(super) fn open(fs: &dyn Fs, dir: &Path, shard: u32, name: &str) -> Option<Self> {
        let file = fs.open(&dir.join(name)).ok()?;
        let length = file.length().ok()?;
        let mut trailer = [0; TRAILER];
        let at = length.checked_sub(TRAILER as u64)?;
        if file.read_at(&mut trailer, at).ok()? != TRAILER
            || &trailer[..8] != MAGIC
            || u32_at(&trailer, 8) != VERSION
            || u32_at(&trailer, 12) != shard
            || crc32c::crc32c(&trailer[..60]) != u32_at(&trailer, 60)
        {
            return None;
        }
        let (blocks, covered) = (u32_at(&trailer, 16) as usize, u32_at(&trailer, 20) as usize);
        let tail_bytes = covered * COVERED + blocks * 4;
        if (blocks * BLOCK + tail_bytes + TRAILER) as u64 != length {
            return None;
        }
        let mut tail = vec![0; tail_bytes];
        let count = file.read_at(&mut tail, (blocks * BLOCK) as u64).ok()?;
        if count != tail_bytes || crc32c::crc32c(&tail) != u32_at(&trailer, 32) {
            return None;
        }
        let (covered, fences) = tail.split_at(covered * COVERED);
        let decode = |bytes: &[u8]| Covered {
            segment: u32_at(bytes, 0),
            salt: u32_at(bytes, 4),
            end: u32_at(bytes, 8),
        };
        let covered = covered.chunks_exact(COVERED).map(decode).collect();
        let fences = fences.chunks_exact(4).map(|fence| u32_at(fence, 0)).collect();
        Some(Self::new(name, file, covered, fences, u64_at(&trailer, 24)))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.covered.capacity() * size_of::<Covered>() + self.fences.capacity() * size_of::<u32>()) as u64
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        (self.fences.len() * (BLOCK + 4) + self.covered.len() * COVERED + TRAILER) as u64
    }

    /// Segments it speaks for, ascending.
    pub(crate) fn covered(&self) -> &[Covered] {
        &self.covered
    }

    pub(crate) fn covers(&self, segment: &Segment) -> bool {
        self.covered.binary_search(&Covered::of(segment)).is_ok()
    }

    pub(super) fn blocks(&self) -> usize {
        self.fences.len()
    }

    /// Calls `found` with every entry of that fingerprint and its segment, which may be gone. A caller that asks in ascending order
    /// with the same `last` has every block read once at most.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] and [`StoreError::Io`]: there may have been more.
    pub(crate) fn find(
        &self,
        fingerprint: u32,
        last: &mut LastBlock,
        found: &mut dyn FnMut(u32, Entry),
    ) -> Result<(), StoreError> {
        // The block before the first fence that is not below may end with the fingerprint.
        let first = self.fences.partition_point(|&fence| fence < fingerprint).saturating_sub(1);
        for (number, &fence) in self.fences.iter().enumerate().skip(first) {
            if fence > fingerprint {
                break;
            }
            let entries = last.get(self, number)?;
            let start = entries.partition_point(|entry| entry.0.fingerprint() < fingerprint);
            let same = entries.get(start..).unwrap_or_default();
            same.iter()
                .take_while(|entry| entry.0.fingerprint() == fingerprint)
                .for_each(|&(entry, segment)| found(segment, entry));
        }
        Ok(())
    }

    /// The entries of one block.
    pub(super) fn block(&self, number: usize) -> Result<Vec<Located>, StoreError> {
        let mut bytes = [0; BLOCK];
        let offset = (number * BLOCK) as u64;
        let count =
            self.file.read_at(&mut bytes, offset).map_err(|source| io_error("read", &self.name, source))?;
        let entries = u32_at(&bytes, COUNT_AT) as usize;
        if count != BLOCK
            || entries > BLOCK_ENTRIES
            || crc32c::crc32c_append(self.seed, &bytes[..CRC_AT]) != u32_at(&bytes, CRC_AT)
        {
            let file = self.name.clone();
            return Err(StoreError::Corrupt { file, offset, detail: "block of the key index damaged" });
        }
        let decode = |entry: &[u8]| {
            let low = u128::from(u64_at(entry, 0));
            (Entry(low | u128::from(u64_at(entry, 8)) << 64), u32_at(entry, 16))
        };
        Ok(bytes.chunks_exact(ENTRY).take(entries).map(decode).collect())
    }
}

/// The block of an index that was read last.
#[derive(Default)]
pub(crate) struct LastBlock(Option<(usize, Vec<Located>)>);

impl LastBlock {
    fn get(&mut self, index: &KeyIndex, number: usize) -> Result<&[Located], StoreError> {
        let read = match self.0.take() {
            Some(last) if last.0 == number => last,
            _ => (number, index.block(number)?),
        };
        Ok(&self.0.insert(read).1)
    }
}

/// Appends a block of at most [`BLOCK_ENTRIES`] entries.
#[expect(clippy::indexing_slicing, reason = "`start` is the length that `out` had before")]
pub(super) fn encode_block(out: &mut Vec<u8>, seed: u32, entries: &[Located]) {
    let start = out.len();
    for (entry, segment) in entries {
        out.extend_from_slice(&entry.0.to_le_bytes());
        out.extend_from_slice(&segment.to_le_bytes());
    }
    out.resize(start + COUNT_AT, 0);
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(seed, &out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.resize(start + BLOCK, 0);
}

/// Everything behind the blocks.
pub(super) fn encode_end(shard: u32, covered: &[Covered], fences: &[u32], entries: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(covered.len() * COVERED + fences.len() * 4 + TRAILER);
    covered.iter().for_each(|covered| out.extend_from_slice(&covered.encode()));
    fences.iter().for_each(|fence| out.extend_from_slice(&fence.to_le_bytes()));
    let tail_crc = crc32c::crc32c(&out);
    let mut trailer = [0; TRAILER];
    trailer[..8].copy_from_slice(MAGIC);
    trailer[8..12].copy_from_slice(&VERSION.to_le_bytes());
    trailer[12..16].copy_from_slice(&shard.to_le_bytes());
    trailer[16..20].copy_from_slice(&(fences.len() as u32).to_le_bytes());
    trailer[20..24].copy_from_slice(&(covered.len() as u32).to_le_bytes());
    trailer[24..32].copy_from_slice(&entries.to_le_bytes());
    trailer[32..36].copy_from_slice(&tail_crc.to_le_bytes());
    let crc = crc32c::crc32c(&trailer[..60]);
    trailer[60..].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&trailer);
    out
}
