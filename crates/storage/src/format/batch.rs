//! Commit frames: what makes the records before them exist.
//!
//! ```text
//!  0..16 as every frame (kind 0x80, no key)
//! 16 parts u16   18 deaths u16   20 records u32
//! 24 batch number u64
//! 32 first byte of the batch / 16, u32   36 chain u32   (CRC-32C over the records' checksums, seeded with the salt)
//! 40 synced segment u32   44 synced offset / 16, u32     (everything before this was synced when it was written)
//! 48 deaths beyond 65,535: their number >> 16, u32 (version 4)   52 zero u32   56 zero u64
//! 64 parts: vb u16, log entries u8, flags u8, incarnation u32, then varints: records, high seqno, purge seqno,
//!    max CAS, max deleted rev, manifest uid; with flag 1 varints of the durable writes: last prepare, completed up to,
//!    last visible seqno; with flag 2 varints of the open snapshot: start, end; then per log entry: uuid u64, seqno varint.
//!    Flag 4: a copy in the making
//!    deaths: segment u32, units u32 that the batch made obsolete there
//! ```
//! A commit frame without parts is a sync mark: it only carries the synced position.

use base::{Cas, ManifestUid, Seqno, VbId, VbUuid};

use super::{
    Bytes, UNIT, VBUCKETS,
    frame::{self, FrameError, HEAD, KIND_COMMIT_FRAME, MAGIC},
    put_varint, u32_at, u64_at,
};
use crate::{
    api::{Marks, VbState},
    position::Position,
};

/// Flag of a part: there have been durable writes.
const HAS_MARKS: u8 = 1;
/// A replica's snapshot is open.
const HAS_SNAPSHOT: u8 = 2;
/// A replica's first snapshot is not whole.
const IS_PARTIAL: u8 = 4;

/// A commit frame's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) number: u64,
    /// Where the batch's first frame begins in its segment.
    pub(crate) start: u64,
    pub(crate) records: u32,
    pub(crate) chain: u32,
    pub(crate) synced: Position,
    pub(crate) parts: Vec<Part>,
    /// Units made obsolete, by segment.
    pub(crate) deaths: Vec<(u32, u32)>,
}

/// One vBucket's part of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) vb: VbId,
    pub(crate) incarnation: u32,
    pub(crate) records: u32,
    pub(crate) state: VbState,
}

/// Continues a batch's chain with one record's checksum.
pub(crate) fn chain(chain: u32, record_crc: u32) -> u32 {
    crc32c::crc32c_append(chain, &record_crc.to_le_bytes())
}

/// Appends a vBucket's state: also the manifest's encoding of it.
#[expect(clippy::indexing_slicing, reason = "the end is at most the length")]
pub(crate) fn encode_part(out: &mut Vec<u8>, vb: VbId, incarnation: u32, records: u32, state: &VbState) {
    let log = &state.failover_log[..state.failover_log.len().min(255)];
    out.extend_from_slice(&vb.get().to_le_bytes());
    let has_marks = state.marks != Marks::default();
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(has_marks, HAS_MARKS)
        | flag(state.snapshot.is_some(), HAS_SNAPSHOT)
        | flag(state.is_partial, IS_PARTIAL);
    out.extend_from_slice(&[log.len() as u8, flags]);
    out.extend_from_slice(&incarnation.to_le_bytes());
    for number in [
        u64::from(records),
        state.high_seqno.get(),
        state.purge_seqno.get(),
        state.max_cas.get(),
        state.max_deleted_rev,
        state.manifest_uid.get(),
    ] {
        put_varint(out, number);
    }
    if has_marks {
        for seqno in [state.marks.prepared, state.marks.completed, state.marks.visible] {
            put_varint(out, seqno.get());
        }
    }
    if let Some((start, end)) = state.snapshot {
        put_varint(out, start.get());
        put_varint(out, end.get());
    }
    for (uuid, seqno) in log {
        out.extend_from_slice(&uuid.get().to_le_bytes());
        put_varint(out, seqno.get());
    }
}

/// Reads what [`encode_part`] wrote.
pub(crate) fn decode_part(bytes: &mut Bytes<'_>) -> Option<Part> {
    let vb = bytes.u16().filter(|&vb| usize::from(vb) < VBUCKETS)?;
    let entries = bytes.u8()?;
    let flags = bytes.u8()?;
    let incarnation = bytes.u32()?;
    let records = u32::try_from(bytes.varint()?).ok()?;
    let mut state = VbState {
        high_seqno: Seqno(bytes.varint()?),
        purge_seqno: Seqno(bytes.varint()?),
        max_cas: Cas(bytes.varint()?),
        max_deleted_rev: bytes.varint()?,
        manifest_uid: ManifestUid(bytes.varint()?),
        marks: Marks::default(),
        snapshot: None,
        is_partial: flags & IS_PARTIAL != 0,
        failover_log: Vec::with_capacity(usize::from(entries)),
    };
    if flags & HAS_MARKS != 0 {
        state.marks.prepared = Seqno(bytes.varint()?);
        state.marks.completed = Seqno(bytes.varint()?);
        state.marks.visible = Seqno(bytes.varint()?);
    }
    if flags & HAS_SNAPSHOT != 0 {
        state.snapshot = Some((Seqno(bytes.varint()?), Seqno(bytes.varint()?)));
    }
    for _ in 0..entries {
        state.failover_log.push((VbUuid(bytes.u64()?), Seqno(bytes.varint()?)));
    }
    Some(Part { vb: VbId(vb), incarnation, records, state })
}

/// What a commit frame says besides its parts, which arrive encoded.
pub(crate) struct CommitHead<'a> {
    pub(crate) number: u64,
    pub(crate) start: u64,
    pub(crate) records: u32,
    pub(crate) chain: u32,
    pub(crate) synced: Position,
    pub(crate) parts: u16,
    pub(crate) encoded_parts: &'a [u8],
    pub(crate) deaths: &'a [(u32, u32)],
}

/// Appends a commit frame.
pub(crate) fn encode_commit(out: &mut Vec<u8>, salt: u32, commit: &CommitHead<'_>) {
    let deaths = commit.deaths;
    let mut body = Vec::with_capacity(commit.encoded_parts.len() + deaths.len() * 8);
    body.extend_from_slice(commit.encoded_parts);
    for (segment, units) in deaths {
        body.extend_from_slice(&segment.to_le_bytes());
        body.extend_from_slice(&units.to_le_bytes());
    }
    let mut head = [0u8; HEAD];
    head[8..12].copy_from_slice(&((HEAD + body.len()) as u32).to_le_bytes());
    head[12] = KIND_COMMIT_FRAME;
    head[15] = MAGIC;
    head[16..18].copy_from_slice(&commit.parts.to_le_bytes());
    head[18..20].copy_from_slice(&(deaths.len() as u16).to_le_bytes());
    head[48..52].copy_from_slice(&((deaths.len() >> 16) as u32).to_le_bytes());
    head[20..24].copy_from_slice(&commit.records.to_le_bytes());
    head[24..32].copy_from_slice(&commit.number.to_le_bytes());
    head[32..36].copy_from_slice(&((commit.start / UNIT) as u32).to_le_bytes());
    head[36..40].copy_from_slice(&commit.chain.to_le_bytes());
    head[40..44].copy_from_slice(&commit.synced.segment.to_le_bytes());
    head[44..48].copy_from_slice(&((commit.synced.offset / UNIT) as u32).to_le_bytes());
    frame::seal_frame(out, salt, &mut head, &[], &body);
}

/// Decodes and checks a commit frame.
///
/// # Errors
/// See [`FrameError`].
pub(crate) fn decode_commit(bytes: &[u8], salt: u32) -> Result<Commit, FrameError> {
    let head = frame::decode_head(bytes, salt)?;
    if head.kind != KIND_COMMIT_FRAME {
        return Err(FrameError::Damaged("not a commit frame"));
    }
    let mut body = Bytes(frame::check_body(bytes, &head)?);
    let counts = u32_at(bytes, 16);
    let deaths = u64::from(u32_at(bytes, 48)) << 16 | u64::from(counts >> 16);
    decode_body(&mut body, counts & 0xffff, deaths)
        .map(|(parts, deaths)| Commit {
            number: u64_at(bytes, 24),
            start: u64::from(u32_at(bytes, 32)) * UNIT,
            records: u32_at(bytes, 20),
            chain: u32_at(bytes, 36),
            synced: Position { segment: u32_at(bytes, 40), offset: u64::from(u32_at(bytes, 44)) * UNIT },
            parts,
            deaths,
        })
        .ok_or(FrameError::Damaged("commit frame makes no sense"))
}

type Body = (Vec<Part>, Vec<(u32, u32)>);

fn decode_body(body: &mut Bytes<'_>, parts: u32, deaths: u64) -> Option<Body> {
    let parts = (0..parts).map(|_| decode_part(body)).collect::<Option<Vec<_>>>()?;
    let deaths = (0..deaths).map(|_| Some((body.u32()?, body.u32()?))).collect::<Option<Vec<_>>>()?;
    body.0.is_empty().then_some((parts, deaths))
}
