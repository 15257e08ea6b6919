//! Frames: a 64-byte head, a key, a body, padded to 16 bytes. Records and commit frames share the head's first
//! 16 bytes, so that a reader can step over what it does not want.
//!
//! ```text
//!  0 crc u32        of everything from byte 8 (head, key, body)
//!  4 head_crc u32   of bytes 8.. up to the end of the key
//!  8 length u32     head + key + body, without padding
//! 12 kind u8   13 datatype u8   14 key length u8   15 magic u8
//! 16 vb u16   18 level u8 (of prepares, else zero)   19 zero u8   20 incarnation u32
//! 24 seqno u64   32 cas u64   40 rev u64   48 branch u64
//! 56 flags u32   60 expiry u32   64 key, then value
//! ```
//! Both checksums cost one pass: `crc` continues `head_crc` over the body.

use base::{Cas, Datatype, Seqno, VbId, bucket::DurabilityLevel};

use super::{VBUCKETS, padded, u32_at, u64_at};
use crate::api::{Record, RecordKind, RecordMeta};

/// Bytes of a frame before its key.
pub(crate) const HEAD: usize = 64;
/// Marks the sixteenth byte of every frame: makes searching for the next one cheap.
pub(crate) const MAGIC: u8 = 0xd5;
/// The kind of commit frames. 5 is reserved.
pub(crate) const KIND_COMMIT_FRAME: u8 = 0x80;
/// Largest frame: what a locator can describe.
pub(crate) const FRAME_BYTES_MAX: u32 = crate::locator::RECORD_UNITS_MAX * 16;
/// Seqnos use 48 bits.
pub(crate) const SEQNO_MAX: u64 = (1 << 48) - 1;

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// More bytes are needed: at least this many from the frame's beginning.
    Short(usize),
    /// Not a frame, or a damaged one.
    Damaged(&'static str),
}

/// A frame's head, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    crc: u32,
    head_crc: u32,
    /// Head, key and body, without padding.
    pub(crate) length: u32,
    pub(crate) kind: u8,
    pub(crate) key_length: usize,
}

impl Head {
    /// Where the next frame begins, from this one's beginning.
    pub(crate) fn span(&self) -> u64 {
        padded(u64::from(self.length))
    }
}

/// A record as it lies in a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredRecord<'a> {
    pub(crate) vb: VbId,
    pub(crate) incarnation: u32,
    pub(crate) branch: u64,
    pub(crate) meta: RecordMeta,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// The frame's checksum; commit frames chain these.
    pub(crate) crc: u32,
    pub(crate) length: u32,
}

const fn kind_code(kind: RecordKind) -> u8 {
    match kind {
        RecordKind::Document => 1,
        RecordKind::Deletion => 2,
        RecordKind::Expiration => 3,
        RecordKind::Prepare(_) => 4,
        RecordKind::Abort => 6,
        RecordKind::PreparedDeletion(_) => 7,
    }
}

/// The record kind with this number, and level where it has one.
pub(crate) fn kind_from_code(code: u8, level: u32) -> Option<RecordKind> {
    let prepare_level = || DurabilityLevel::from_wire(u8::try_from(level).ok()?);
    match (code, level) {
        (1, 0) => Some(RecordKind::Document),
        (2, 0) => Some(RecordKind::Deletion),
        (3, 0) => Some(RecordKind::Expiration),
        (4, _) => prepare_level().map(RecordKind::Prepare),
        (6, 0) => Some(RecordKind::Abort),
        (7, _) => prepare_level().map(RecordKind::PreparedDeletion),
        _ => None,
    }
}

/// Length of the frame a record becomes, without padding.
pub(crate) fn record_length(key: &[u8], value: &[u8]) -> u64 {
    HEAD as u64 + key.len() as u64 + value.len() as u64
}

/// Appends a record's frame and returns its checksum. The caller has checked the limits.
pub(crate) fn encode_record(
    out: &mut Vec<u8>,
    salt: u32,
    (vb, incarnation, branch): (VbId, u32, u64),
    meta: &RecordMeta,
    key: &[u8],
    value: &[u8],
) -> u32 {
    let mut head = [0u8; HEAD];
    head[8..12].copy_from_slice(&(record_length(key, value) as u32).to_le_bytes());
    head[12..16].copy_from_slice(&[kind_code(meta.kind), meta.datatype.0, key.len() as u8, MAGIC]);
    head[16..18].copy_from_slice(&vb.get().to_le_bytes());
    head[18] = meta.kind.prepare_level().map_or(0, |level| level as u8);
    head[20..24].copy_from_slice(&incarnation.to_le_bytes());
    head[24..32].copy_from_slice(&meta.seqno.get().to_le_bytes());
    head[32..40].copy_from_slice(&meta.cas.get().to_le_bytes());
    head[40..48].copy_from_slice(&meta.rev.to_le_bytes());
    head[48..56].copy_from_slice(&branch.to_le_bytes());
    head[56..60].copy_from_slice(&meta.flags.to_le_bytes());
    head[60..64].copy_from_slice(&meta.expiry.to_le_bytes());
    seal_frame(out, salt, &mut head, key, value)
}

/// Appends head, key and body with both checksums filled in, padded.
#[expect(clippy::indexing_slicing, reason = "padding is less than the alignment of 16")]
pub(crate) fn seal_frame(
    out: &mut Vec<u8>,
    salt: u32,
    head: &mut [u8; HEAD],
    key: &[u8],
    body: &[u8],
) -> u32 {
    let head_crc = crc32c::crc32c_append(crc32c::crc32c_append(salt, &head[8..]), key);
    let crc = crc32c::crc32c_append(head_crc, body);
    head[0..4].copy_from_slice(&crc.to_le_bytes());
    head[4..8].copy_from_slice(&head_crc.to_le_bytes());
    let length = HEAD + key.len() + body.len();
    let padding = padded(length as u64) as usize - length;
    out.reserve(length + padding);
    out.extend_from_slice(head);
    out.extend_from_slice(key);
    out.extend_from_slice(body);
    out.extend_from_slice(&[0u8; 16][..padding]);
    crc
}

/// Decodes and checks the head and key at the front of `bytes`; the body may lie beyond their end.
///
/// # Errors
/// See [`FrameError`].
#[expect(clippy::indexing_slicing, reason = "the first check is that a whole head is there")]
pub(crate) fn decode_head(bytes: &[u8], salt: u32) -> Result<Head, FrameError> {
    if bytes.len() < HEAD {
        return Err(FrameError::Short(HEAD));
    }
    if bytes[15] != MAGIC {
        return Err(FrameError::Damaged("no frame begins here"));
    }
    let head = Head {
        crc: u32_at(bytes, 0),
        head_crc: u32_at(bytes, 4),
        length: u32_at(bytes, 8),
        kind: bytes[12],
        key_length: usize::from(bytes[14]),
    };
    let key_end = HEAD + head.key_length;
    if (head.length as usize) < key_end || head.length > FRAME_BYTES_MAX {
        return Err(FrameError::Damaged("impossible frame length"));
    }
    let Some(covered) = bytes.get(8..key_end) else {
        return Err(FrameError::Short(key_end));
    };
    if crc32c::crc32c_append(salt, covered) != head.head_crc {
        return Err(FrameError::Damaged("head checksum does not match"));
    }
    Ok(head)
}

/// Checks the body behind a head that [`decode_head`] accepted and returns it.
///
/// # Errors
/// See [`FrameError`].
pub(crate) fn check_body<'a>(bytes: &'a [u8], head: &Head) -> Result<&'a [u8], FrameError> {
    let Some(body) = bytes.get(HEAD + head.key_length..head.length as usize) else {
        return Err(FrameError::Short(head.length as usize));
    };
    if crc32c::crc32c_append(head.head_crc, body) != head.crc {
        return Err(FrameError::Damaged("checksum does not match"));
    }
    Ok(body)
}

/// The record behind a checked head. With `value` `None` the body is not looked at and the value is empty.
///
/// # Errors
/// [`FrameError::Damaged`] when the head is no record's.
#[expect(clippy::indexing_slicing, reason = "a caller has decoded the head of the same bytes")]
pub(crate) fn record_of<'a>(
    bytes: &'a [u8],
    head: &Head,
    value: Option<&'a [u8]>,
) -> Result<StoredRecord<'a>, FrameError> {
    let (vb, level) = (u32_at(bytes, 16) & 0xffff, u32_at(bytes, 16) >> 16);
    let kind = kind_from_code(head.kind, level).ok_or(FrameError::Damaged("unknown record kind"))?;
    let key = bytes.get(HEAD..HEAD + head.key_length).ok_or(FrameError::Short(HEAD + head.key_length))?;
    let seqno = u64_at(bytes, 24);
    if vb as usize >= VBUCKETS || seqno > SEQNO_MAX {
        return Err(FrameError::Damaged("impossible vBucket or seqno"));
    }
    Ok(StoredRecord {
        vb: VbId(vb as u16),
        incarnation: u32_at(bytes, 20),
        branch: u64_at(bytes, 48),
        meta: RecordMeta {
            kind,
            seqno: Seqno(seqno),
            cas: Cas(u64_at(bytes, 32)),
            rev: u64_at(bytes, 40),
            flags: u32_at(bytes, 56),
            expiry: u32_at(bytes, 60),
            datatype: Datatype(bytes[13]),
        },
        key,
        value: value.unwrap_or_default(),
        crc: head.crc,
        length: head.length,
    })
}

/// Decodes and checks one whole record.
///
/// # Errors
/// See [`FrameError`].
pub(crate) fn decode_record(bytes: &[u8], salt: u32) -> Result<StoredRecord<'_>, FrameError> {
    let head = decode_head(bytes, salt)?;
    let value = check_body(bytes, &head)?;
    record_of(bytes, &head, Some(value))
}

impl<'a> StoredRecord<'a> {
    /// As the trait shows records.
    pub(crate) fn to_record(self) -> Record<'a> {
        Record {
            meta: self.meta,
            key: self.key,
            hash: base::hash::key_hash(self.key),
            value: self.value,
            replaces: crate::api::Locator::NONE,
        }
    }
}
