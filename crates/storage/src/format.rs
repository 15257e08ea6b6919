//! Bytes on disk, format version 1: pure encoding and decoding, no I/O. `docs/storage-format.md` is the prose.
//!
//! A segment file is a header block, then frames (records and the commit frames that close batches), then, once
//! sealed, a footer. Every multi-byte number is little-endian. Checksums are CRC-32C. Those inside a segment are
//! seeded with the segment's random salt. So bytes of another file, or bytes that a client stored, never pass for a
//! frame. Every decoder here takes arbitrary bytes and answers with a value or an error.

pub(crate) mod batch;
pub(crate) mod footer;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod manifest;
#[cfg(test)]
mod tests;

/// The format this build writes, and the newest it reads.
pub(crate) const VERSION: u32 = 5;
/// The oldest version that can be read: a later one with nothing in it that is newer.
pub(crate) const VERSION_MIN: u32 = 1;
/// Frames begin at multiples of this.
pub(crate) const UNIT: u64 = 16;
/// Room for the header's two copies; frames begin here.
pub(crate) const DATA_START: u64 = 4096;
/// vBucket ids below this exist.
pub(crate) const VBUCKETS: usize = base::limits::VBUCKETS_MAX as usize;

/// Rounds up to the next unit.
#[inline]
pub(crate) const fn padded(length: u64) -> u64 {
    length.next_multiple_of(UNIT)
}

/// Checked reading of little-endian numbers from the front of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// An unsigned LEB128 number of at most ten bytes.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return None;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

/// Appends an unsigned LEB128 number.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The little-endian number at a fixed place of a slice the caller has measured; zero beyond its end.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

/// As [`u32_at`], eight bytes.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}
