//! The manifest: what exists in a shard, replaced atomically as a whole.
//!
//! ```text
//!  0 magic "SETTMANI"   8 version u32   12 shard u32
//! 16 next segment u32   20 synced segment u32   24 synced offset / 16 u32   28 segments u32
//! 32 next batch number u64   40 vBuckets u32   44 zero u32
//! 48 segments, 32 bytes each: id u32, flags u32 (1 sealed, 2 without footer), data end u64, record units u64, live units u64
//!    vBuckets: as parts of a commit frame, records 0
//! last 4: crc u32 of everything before
//! ```
//! Everything before the synced position was synced when the manifest was written; the segments' live units and
//! the vBuckets' states are as of the batch before `next_batch`, which ends there.

use base::VbId;

use super::{
    Bytes, UNIT, VERSION, VERSION_MIN,
    batch::{self, Part},
    u32_at,
};
use crate::{api::VbState, position::Position};

const MAGIC: &[u8; 8] = b"SETTMANI";
const SEALED: u32 = 1;
const WITHOUT_FOOTER: u32 = 2;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) shard: u32,
    pub(crate) next_segment: u32,
    pub(crate) synced: Position,
    pub(crate) next_batch: u64,
    pub(crate) segments: Vec<SegmentEntry>,
    /// Ascending by vBucket.
    pub(crate) vbs: Vec<VbEntry>,
}

/// One segment that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentEntry {
    pub(crate) id: u32,
    /// No more appends: `data_end` is final and synced.
    pub(crate) sealed: bool,
    /// There was no space for a footer, or it is damaged: the data is read to index it.
    pub(crate) without_footer: bool,
    pub(crate) data_end: u64,
    pub(crate) units: u64,
    pub(crate) live_units: u64,
}

/// One vBucket that the shard has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VbEntry {
    pub(crate) vb: VbId,
    pub(crate) incarnation: u32,
    pub(crate) state: VbState,
}

impl Manifest {
    /// A new incarnation of each of these vBuckets begins, with that state.
    pub(crate) fn reset(&mut self, vbs: &[(VbId, VbState)]) {
        for (vb, state) in vbs {
            match self.vbs.binary_search_by_key(vb, |entry| entry.vb) {
                Ok(index) => {
                    if let Some(entry) = self.vbs.get_mut(index) {
                        entry.incarnation += 1;
                        entry.state = state.clone();
                    }
                }
                Err(index) => {
                    self.vbs.insert(index, VbEntry { vb: *vb, incarnation: 1, state: state.clone() });
                }
            }
        }
    }
}

/// Why bytes are not a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManifestError {
    /// Checksum or content is wrong.
    Damaged,
    /// Intact, but of a version this build does not know.
    Version(u32),
}

/// The manifest's bytes.
pub(crate) fn encode(manifest: &Manifest) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + manifest.segments.len() * 32 + manifest.vbs.len() * 64);
    out.extend_from_slice(MAGIC);
    for number in [
        VERSION,
        manifest.shard,
        manifest.next_segment,
        manifest.synced.segment,
        (manifest.synced.offset / UNIT) as u32,
        manifest.segments.len() as u32,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&manifest.next_batch.to_le_bytes());
    out.extend_from_slice(&(manifest.vbs.len() as u64).to_le_bytes());
    for segment in &manifest.segments {
        out.extend_from_slice(&segment.id.to_le_bytes());
        let sealed = if segment.sealed { SEALED } else { 0 };
        let without_footer = if segment.without_footer { WITHOUT_FOOTER } else { 0 };
        out.extend_from_slice(&(sealed | without_footer).to_le_bytes());
        for number in [segment.data_end, segment.units, segment.live_units] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    for vb in &manifest.vbs {
        batch::encode_part(&mut out, vb.vb, vb.incarnation, 0, &vb.state);
    }
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Reads a manifest.
///
/// # Errors
/// See [`ManifestError`].
pub(crate) fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
    let Some((body, crc)) = bytes.split_last_chunk::<4>() else { return Err(ManifestError::Damaged) };
    if body.len() < 48 || &body[..8] != MAGIC || crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(ManifestError::Damaged);
    }
    match u32_at(body, 8) {
        VERSION_MIN..=VERSION => decode_body(&mut Bytes(&body[12..])).ok_or(ManifestError::Damaged),
        other => Err(ManifestError::Version(other)),
    }
}

fn decode_body(bytes: &mut Bytes<'_>) -> Option<Manifest> {
    let mut manifest = Manifest { shard: bytes.u32()?, next_segment: bytes.u32()?, ..Manifest::default() };
    manifest.synced = Position { segment: bytes.u32()?, offset: u64::from(bytes.u32()?) * UNIT };
    let segments = bytes.u32()?;
    manifest.next_batch = bytes.u64()?;
    let vbs = bytes.u64()?;
    for _ in 0..segments {
        let (id, flags) = (bytes.u32()?, bytes.u32()?);
        manifest.segments.push(SegmentEntry {
            id,
            sealed: flags & SEALED != 0,
            without_footer: flags & WITHOUT_FOOTER != 0,
            data_end: bytes.u64()?,
            units: bytes.u64()?,
            live_units: bytes.u64()?,
        });
    }
    for _ in 0..vbs {
        let Part { vb, incarnation, state, .. } = batch::decode_part(bytes)?;
        manifest.vbs.push(VbEntry { vb, incarnation, state });
    }
    bytes.0.is_empty().then_some(manifest)
}
