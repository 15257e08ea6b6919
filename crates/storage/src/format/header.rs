//! The first 4 KiB of a segment: two copies of the same 64 bytes, at 0 and at 2048. So one damaged sector does not
//! cost the segment its salt.
//!
//! ```text
//!  0 magic "SETTLOG\0"   8 version u32   12 shard u32
//! 16 segment u32   20 origin u32 (0 appended, 1 compacted)   24 salt u32   28 previous segment u32
//! 32 previous segment's end / 16, u32   36 synced segment u32   40 synced offset / 16, u32   44 zero
//! 48 first batch number u64   56 zero u32   60 crc u32 of bytes 0..60
//! ```

use super::{DATA_START, UNIT, VERSION, VERSION_MIN, u32_at, u64_at};
use crate::position::Position;

const MAGIC: &[u8; 8] = b"SETTLOG\0";
const LENGTH: usize = 64;
const SECOND_COPY: usize = 2048;

/// The writer of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Commits, in order: part of the log.
    Appended,
    /// Compaction: exists once the manifest lists it.
    Compacted,
}

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) shard: u32,
    pub(crate) segment: u32,
    pub(crate) origin: Origin,
    pub(crate) salt: u32,
    /// Where the log was when it continued here (appended segments).
    pub(crate) previous: Position,
    /// What was synced by then.
    pub(crate) synced: Position,
    pub(crate) first_batch: u64,
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// Neither copy is intact.
    Damaged,
    /// Intact, but of a version this build does not know.
    Version(u32),
}

/// The header block.
#[expect(clippy::indexing_slicing, reason = "a block is larger than two copies")]
pub(crate) fn encode(header: &Header) -> Vec<u8> {
    let mut copy = [0u8; LENGTH];
    copy[..8].copy_from_slice(MAGIC);
    let origin = match header.origin {
        Origin::Appended => 0u32,
        Origin::Compacted => 1,
    };
    let numbers = [
        VERSION,
        header.shard,
        header.segment,
        origin,
        header.salt,
        header.previous.segment,
        (header.previous.offset / UNIT) as u32,
        header.synced.segment,
        (header.synced.offset / UNIT) as u32,
    ];
    for (place, number) in copy[8..44].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    copy[48..56].copy_from_slice(&header.first_batch.to_le_bytes());
    let crc = crc32c::crc32c(&copy[..60]);
    copy[60..].copy_from_slice(&crc.to_le_bytes());
    let mut block = vec![0u8; DATA_START as usize];
    block[..LENGTH].copy_from_slice(&copy);
    block[SECOND_COPY..SECOND_COPY + LENGTH].copy_from_slice(&copy);
    block
}

/// Reads a header block, from whichever copy is intact.
///
/// # Errors
/// See [`HeaderError`].
pub(crate) fn decode(block: &[u8]) -> Result<Header, HeaderError> {
    decode_copy(block).or_else(|first| match block.get(SECOND_COPY..) {
        Some(second) => decode_copy(second).map_err(|_| first),
        None => Err(first),
    })
}

#[expect(clippy::indexing_slicing, reason = "the slice is cut to the length of a copy first")]
fn decode_copy(bytes: &[u8]) -> Result<Header, HeaderError> {
    let copy = bytes.get(..LENGTH).ok_or(HeaderError::Damaged)?;
    if &copy[..8] != MAGIC || crc32c::crc32c(&copy[..60]) != u32_at(copy, 60) {
        return Err(HeaderError::Damaged);
    }
    match u32_at(copy, 8) {
        VERSION_MIN..=VERSION => {}
        other => return Err(HeaderError::Version(other)),
    }
    let position =
        |at| Position { segment: u32_at(copy, at), offset: u64::from(u32_at(copy, at + 4)) * UNIT };
    Ok(Header {
        shard: u32_at(copy, 12),
        segment: u32_at(copy, 16),
        origin: if u32_at(copy, 20) == 0 { Origin::Appended } else { Origin::Compacted },
        salt: u32_at(copy, 24),
        previous: position(28),
        synced: position(36),
        first_batch: u64_at(copy, 48),
    })
}
