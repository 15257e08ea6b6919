//! The footer of a sealed segment: everything a reader wants to know without reading the data.
//!
//! ```text
//! data_end: entries   16 bytes each (see `index::entry`), sorted
//!           fences    per 256 entries: first fingerprint u32, CRC-32C of those entries u32
//!           filter    see `index::filter`
//!           runs      12 bytes each: start / 16 u32, end / 16 u32, vb u16, zero u16; sorted by vb, then start
//!           summaries 32 bytes each: vb u16, zero u16, incarnation u32, records u32, units u32, lowest and highest
//!                     seqno u64
//! file end - 96: trailer
//!  0 magic "SETTFOOT"   8 version u32   12 segment u32   16 data_end u64
//! 24 entries u32   28 runs u32   32 summaries u32   36 filter bytes u32
//! 40 crc of fences and filter u32   44 crc of runs u32   48 crc of summaries u32   52 units of tombstones u32
//! 56 next batch number u64   64 oldest, 68 newest delete time u32   72.. zero   92 crc u32 of bytes 0..92
//! ```

use base::{Seqno, VbId};

use super::{UNIT, VBUCKETS, VERSION, VERSION_MIN, u32_at, u64_at};
use crate::index::{Entry, MemoryIndex, Span, Tombstones, filter, memory::Summary};

const MAGIC: &[u8; 8] = b"SETTFOOT";
/// Bytes of the trailer.
pub(crate) const TRAILER: usize = 96;
/// Entries under one fence: 4 KiB.
pub(crate) const FENCE_ENTRIES: usize = 256;
/// Bytes of one entry.
pub(crate) const ENTRY: usize = 16;
const FENCE: usize = 8;
const RUN: usize = 12;
const SUMMARY: usize = 32;

/// The fixed end of a sealed segment: where everything else is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) segment: u32,
    pub(crate) data_end: u64,
    pub(crate) entries: u32,
    pub(crate) runs: u32,
    pub(crate) summaries: u32,
    pub(crate) filter_bytes: u32,
    pub(crate) lookup_crc: u32,
    pub(crate) runs_crc: u32,
    pub(crate) summaries_crc: u32,
    pub(crate) next_batch: u64,
    pub(crate) tombstones: Tombstones,
}

impl Trailer {
    pub(crate) fn fences(&self) -> usize {
        (self.entries as usize).div_ceil(FENCE_ENTRIES)
    }

    /// Offset and length of fences and filter.
    pub(crate) fn lookup_range(&self) -> (u64, usize) {
        let start = self.data_end + u64::from(self.entries) * ENTRY as u64;
        (start, self.fences() * FENCE + self.filter_bytes as usize)
    }

    /// Offset and length of the runs.
    pub(crate) fn runs_range(&self) -> (u64, usize) {
        let (start, length) = self.lookup_range();
        (start + length as u64, self.runs as usize * RUN)
    }

    /// Offset and length of the summaries.
    pub(crate) fn summaries_range(&self) -> (u64, usize) {
        let (start, length) = self.runs_range();
        (start + length as u64, self.summaries as usize * SUMMARY)
    }

    /// Where the file must end.
    pub(crate) fn file_end(&self) -> u64 {
        let (start, length) = self.summaries_range();
        start + (length + TRAILER) as u64
    }
}

/// The whole footer of a segment whose data ends at `data_end`.
#[expect(
    clippy::indexing_slicing,
    reason = "positions are lengths that `out` had before, and no chunk is empty"
)]
pub(crate) fn encode(segment: u32, data_end: u64, next_batch: u64, index: &MemoryIndex) -> Vec<u8> {
    let mut entries = index.entries().to_vec();
    entries.sort_unstable();
    let mut spans: Vec<&Span> = index.spans().iter().collect();
    spans.sort_unstable_by_key(|span| (span.vb, span.start));
    let filter_bytes = filter::filter_bytes(entries.len());
    let size =
        entries.len() * (ENTRY + 1) + filter_bytes + spans.len() * RUN + index.summaries().len() * SUMMARY;
    let mut out = Vec::with_capacity(size + TRAILER);
    let mut fences = Vec::new();
    for block in entries.chunks(FENCE_ENTRIES) {
        let start = out.len();
        block.iter().for_each(|entry| out.extend_from_slice(&entry.0.to_le_bytes()));
        fences.extend_from_slice(&block[0].fingerprint().to_le_bytes());
        fences.extend_from_slice(&crc32c::crc32c(&out[start..]).to_le_bytes());
    }
    let lookup_start = out.len();
    out.extend_from_slice(&fences);
    let filter_start = out.len();
    out.resize(filter_start + filter_bytes, 0);
    for entry in &entries {
        filter::insert(&mut out[filter_start..], entry.fingerprint());
    }
    let runs_start = out.len();
    for span in &spans {
        out.extend_from_slice(&((span.start / UNIT) as u32).to_le_bytes());
        out.extend_from_slice(&((span.end / UNIT) as u32).to_le_bytes());
        out.extend_from_slice(&u32::from(span.vb.get()).to_le_bytes());
    }
    let summaries_start = out.len();
    for summary in index.summaries() {
        out.extend_from_slice(&u32::from(summary.vb.get()).to_le_bytes());
        for number in [summary.incarnation, summary.records, summary.units] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&summary.seqno_min.get().to_le_bytes());
        out.extend_from_slice(&summary.seqno_max.get().to_le_bytes());
    }
    let trailer = Trailer {
        segment,
        data_end,
        entries: entries.len() as u32,
        runs: spans.len() as u32,
        summaries: index.summaries().len() as u32,
        filter_bytes: filter_bytes as u32,
        lookup_crc: crc32c::crc32c(&out[lookup_start..runs_start]),
        runs_crc: crc32c::crc32c(&out[runs_start..summaries_start]),
        summaries_crc: crc32c::crc32c(&out[summaries_start..]),
        next_batch,
        tombstones: index.tombstones(),
    };
    out.extend_from_slice(&encode_trailer(&trailer));
    out
}

fn encode_trailer(trailer: &Trailer) -> [u8; TRAILER] {
    let mut out = [0u8; TRAILER];
    out[..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&trailer.segment.to_le_bytes());
    out[16..24].copy_from_slice(&trailer.data_end.to_le_bytes());
    let numbers = [
        trailer.entries,
        trailer.runs,
        trailer.summaries,
        trailer.filter_bytes,
        trailer.lookup_crc,
        trailer.runs_crc,
        trailer.summaries_crc,
        trailer.tombstones.units,
    ];
    for (place, number) in out[24..56].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    out[56..64].copy_from_slice(&trailer.next_batch.to_le_bytes());
    out[64..68].copy_from_slice(&trailer.tombstones.oldest.to_le_bytes());
    out[68..72].copy_from_slice(&trailer.tombstones.newest.to_le_bytes());
    let crc = crc32c::crc32c(&out[..92]);
    out[92..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Decodes a trailer that ends a file of that many bytes. `None`: it is none, it is damaged, or it belongs
/// elsewhere.
pub(crate) fn decode_trailer(bytes: &[u8], segment: u32, file_bytes: u64) -> Option<Trailer> {
    let bytes: &[u8; TRAILER] = bytes.try_into().ok()?;
    if &bytes[..8] != MAGIC || crc32c::crc32c(&bytes[..92]) != u32_at(bytes, 92) {
        return None;
    }
    let trailer = Trailer {
        segment: u32_at(bytes, 12),
        data_end: u64_at(bytes, 16),
        entries: u32_at(bytes, 24),
        runs: u32_at(bytes, 28),
        summaries: u32_at(bytes, 32),
        filter_bytes: u32_at(bytes, 36),
        lookup_crc: u32_at(bytes, 40),
        runs_crc: u32_at(bytes, 44),
        summaries_crc: u32_at(bytes, 48),
        next_batch: u64_at(bytes, 56),
        tombstones: Tombstones {
            units: u32_at(bytes, 52),
            oldest: u32_at(bytes, 64),
            newest: u32_at(bytes, 68),
        },
    };
    let plausible = (VERSION_MIN..=VERSION).contains(&u32_at(bytes, 8))
        && trailer.segment == segment
        && trailer.tombstones.oldest <= trailer.tombstones.newest
        && trailer.data_end <= crate::locator::SEGMENT_BYTES_MAX
        && trailer.file_end() == file_bytes;
    plausible.then_some(trailer)
}

/// Per block of entries: first fingerprint, checksum.
pub(crate) type Fences = Vec<(u32, u32)>;

/// Fences and filter, checked.
pub(crate) fn decode_lookup(bytes: &[u8], trailer: &Trailer) -> Option<(Fences, Vec<u8>)> {
    if bytes.len() != trailer.lookup_range().1 || crc32c::crc32c(bytes) != trailer.lookup_crc {
        return None;
    }
    let (fences, filter) = bytes.split_at(trailer.fences() * FENCE);
    let fences = fences.chunks_exact(FENCE).map(|fence| (u32_at(fence, 0), u32_at(fence, 4))).collect();
    Some((fences, filter.to_vec()))
}

/// The entries under one fence, checked against its checksum.
pub(crate) fn decode_entries(bytes: &[u8], crc: u32) -> Option<Vec<Entry>> {
    (crc32c::crc32c(bytes) == crc).then(|| {
        let (entries, _) = bytes.as_chunks::<ENTRY>();
        entries.iter().map(|entry| Entry(u128::from_le_bytes(*entry))).collect()
    })
}

/// The runs of one vBucket as ranges of bytes, in order.
#[expect(clippy::indexing_slicing, reason = "`first` is a position in the same list")]
pub(crate) fn decode_runs(bytes: &[u8], trailer: &Trailer, vb: VbId) -> Option<Vec<(u64, u64)>> {
    let runs = check_runs(bytes, trailer)?;
    let vb = u32::from(vb.get());
    let first = runs.partition_point(|run| vb_of(run) < vb);
    Some(runs[first..].iter().take_while(|run| vb_of(run) == vb).map(place_of).collect())
}

/// Where each vBucket's runs are among all of them, so that not all of them need be read every time. For each vBucket:
/// the number of its first run, and a checksum of its runs.
pub(crate) struct RunDirectory(Box<[(u32, u32)]>);

/// The directory of checked runs.
#[expect(clippy::indexing_slicing, reason = "positions are those of the same list, counted upward")]
pub(crate) fn index_runs(bytes: &[u8], trailer: &Trailer) -> Option<RunDirectory> {
    let runs = check_runs(bytes, trailer)?;
    let entry = |vb: usize| {
        let first = runs.partition_point(|run| (vb_of(run) as usize) < vb);
        let end = runs.partition_point(|run| (vb_of(run) as usize) <= vb);
        (first as u32, crc32c::crc32c(runs[first..end].as_flattened()))
    };
    Some(RunDirectory((0..=VBUCKETS).map(entry).collect()))
}

impl RunDirectory {
    /// Offset and length of a vBucket's runs among the bytes of all.
    pub(crate) fn range(&self, vb: VbId) -> (usize, usize) {
        let number = |vb: usize| self.0.get(vb).map_or(0, |entry| entry.0 as usize);
        let (first, end) = (number(usize::from(vb.get())), number(usize::from(vb.get()) + 1));
        (first * RUN, end.saturating_sub(first) * RUN)
    }

    /// The runs behind those bytes, if they still are what was checked.
    pub(crate) fn decode(&self, bytes: &[u8], vb: VbId) -> Option<Vec<(u64, u64)>> {
        let checksum = self.0.get(usize::from(vb.get()))?.1;
        let (runs, _) = bytes.as_chunks::<RUN>();
        (crc32c::crc32c(bytes) == checksum).then(|| runs.iter().map(place_of).collect())
    }
}

fn check_runs<'a>(bytes: &'a [u8], trailer: &Trailer) -> Option<&'a [[u8; RUN]]> {
    let is_whole = bytes.len() == trailer.runs_range().1 && crc32c::crc32c(bytes) == trailer.runs_crc;
    is_whole.then_some(bytes.as_chunks::<RUN>().0)
}

fn vb_of(run: &[u8; RUN]) -> u32 {
    u32_at(run, 8)
}

fn place_of(run: &[u8; RUN]) -> (u64, u64) {
    (u64::from(u32_at(run, 0)) * UNIT, u64::from(u32_at(run, 4)) * UNIT)
}

/// What the segment holds per vBucket and incarnation.
pub(crate) fn decode_summaries(bytes: &[u8], trailer: &Trailer) -> Option<Vec<Summary>> {
    if bytes.len() != trailer.summaries_range().1 || crc32c::crc32c(bytes) != trailer.summaries_crc {
        return None;
    }
    let decode = |bytes: &[u8]| Summary {
        vb: VbId(u32_at(bytes, 0) as u16),
        incarnation: u32_at(bytes, 4),
        records: u32_at(bytes, 8),
        units: u32_at(bytes, 12),
        seqno_min: Seqno(u64_at(bytes, 16)),
        seqno_max: Seqno(u64_at(bytes, 24)),
    };
    Some(bytes.chunks_exact(SUMMARY).map(decode).collect())
}
