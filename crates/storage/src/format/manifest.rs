//! The manifest: what exists in a shard, replaced atomically as a whole.
//!
//! ```text
//!  0 magic "SETTMANI"   8 version u32   12 shard u32
//! 16 next segment u32   20 synced segment u32   24 synced offset / 16 u32   28 segments u32
//! 32 next batch number u64   40 vBuckets u32   44 zero u32
//! 48 seed of the hash of keys u64 (before version 5: absent, and 0)
//! 56 segments, 40 bytes each: id u32, flags u32, data end u64, record units u64, live units u64, salt u32, zero u32
//!    flags: 1 sealed, 2 without footer, 4 damaged, 8 incomplete, 16 lost, 32 written by compaction, 64 the salt is known
//!    (before version 4: 32 bytes each, without the salt, and flags 1 and 2 only)
//!    vBuckets: as parts of a commit frame, records 0
//! last 4: crc u32 of everything before
//! ```
//! Everything before the synced position was synced when the manifest was written. The segments' live units and the
//! vBuckets' states are as of the batch before `next_batch`, which ends there.

use base::VbId;

use super::{
    Bytes, UNIT, VERSION, VERSION_MIN,
    batch::{self, Part},
    header::Origin,
    u32_at,
};
use crate::{api::VbState, position::Position};

const MAGIC: &[u8; 8] = b"SETTMANI";
const SEALED: u32 = 1;
const WITHOUT_FOOTER: u32 = 2;
const DAMAGED: u32 = 4;
const INCOMPLETE: u32 = 8;
const LOST: u32 = 16;
const COMPACTED: u32 = 32;
const HAS_SALT: u32 = 64;
/// Since this version an entry has the segment's salt, and remembers damage.
const VERSION_OF_DAMAGE: u32 = 4;
/// Since this version a shard has a seed for the hash of its keys.
const VERSION_OF_SEED: u32 = 5;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) shard: u32,
    pub(crate) next_segment: u32,
    pub(crate) synced: Position,
    pub(crate) next_batch: u64,
    /// Of the hash of keys, by which footers are sorted. 0: the shard is older than seeds.
    pub(crate) seed: u64,
    pub(crate) segments: Vec<SegmentEntry>,
    /// Ascending by vBucket.
    pub(crate) vbs: Vec<VbEntry>,
}

/// One segment that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentEntry {
    pub(crate) id: u32,
    /// No more appends: `data_end` is final and synced.
    pub(crate) sealed: bool,
    /// There was no space for a footer, or it is damaged: the data is read to index it.
    pub(crate) without_footer: bool,
    pub(crate) data_end: u64,
    pub(crate) units: u64,
    pub(crate) live_units: u64,
    /// Damage was seen in it: compaction leaves it alone.
    pub(crate) damaged: bool,
    /// Records were lost in it, and nobody knows whose: absence cannot be proved.
    pub(crate) incomplete: bool,
    /// The file was missing, or nothing in it could be checked: absence cannot be proved.
    pub(crate) lost: bool,
    /// What its header says: who wrote it, and its salt. A second place for both, in case the header is damaged.
    pub(crate) identity: Option<(Origin, u32)>,
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
    out.extend_from_slice(&manifest.seed.to_le_bytes());
    for segment in &manifest.segments {
        out.extend_from_slice(&segment.id.to_le_bytes());
        out.extend_from_slice(&flags_of(segment).to_le_bytes());
        for number in [segment.data_end, segment.units, segment.live_units] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let salt = segment.identity.map_or(0, |identity| identity.1);
        out.extend_from_slice(&u64::from(salt).to_le_bytes());
    }
    for vb in &manifest.vbs {
        batch::encode_part(&mut out, vb.vb, vb.incarnation, 0, &vb.state);
    }
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn flags_of(segment: &SegmentEntry) -> u32 {
    let is_compacted = matches!(segment.identity, Some((Origin::Compacted, _)));
    let flags = [
        (segment.sealed, SEALED),
        (segment.without_footer, WITHOUT_FOOTER),
        (segment.damaged, DAMAGED),
        (segment.incomplete, INCOMPLETE),
        (segment.lost, LOST),
        (is_compacted, COMPACTED),
        (segment.identity.is_some(), HAS_SALT),
    ];
    flags.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag)
}

/// Reads a manifest.
///
/// # Errors
/// See [`ManifestError`].
#[expect(clippy::indexing_slicing, reason = "the first check is that the fixed part is there")]
pub(crate) fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
    let Some((body, crc)) = bytes.split_last_chunk::<4>() else { return Err(ManifestError::Damaged) };
    if body.len() < 48 || &body[..8] != MAGIC || crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(ManifestError::Damaged);
    }
    match u32_at(body, 8) {
        version @ VERSION_MIN..=VERSION => {
            decode_body(&mut Bytes(&body[12..]), version).ok_or(ManifestError::Damaged)
        }
        other => Err(ManifestError::Version(other)),
    }
}

fn decode_body(bytes: &mut Bytes<'_>, version: u32) -> Option<Manifest> {
    let mut manifest = Manifest { shard: bytes.u32()?, next_segment: bytes.u32()?, ..Manifest::default() };
    manifest.synced = Position { segment: bytes.u32()?, offset: u64::from(bytes.u32()?) * UNIT };
    let segments = bytes.u32()?;
    manifest.next_batch = bytes.u64()?;
    let vbs = bytes.u64()?;
    if version >= VERSION_OF_SEED {
        manifest.seed = bytes.u64()?;
    }
    for _ in 0..segments {
        manifest.segments.push(decode_segment(bytes, version)?);
    }
    for _ in 0..vbs {
        let Part { vb, incarnation, state, .. } = batch::decode_part(bytes)?;
        manifest.vbs.push(VbEntry { vb, incarnation, state });
    }
    bytes.0.is_empty().then_some(manifest)
}

fn decode_segment(bytes: &mut Bytes<'_>, version: u32) -> Option<SegmentEntry> {
    let (id, flags) = (bytes.u32()?, bytes.u32()?);
    let mut entry = SegmentEntry {
        id,
        sealed: flags & SEALED != 0,
        without_footer: flags & WITHOUT_FOOTER != 0,
        data_end: bytes.u64()?,
        units: bytes.u64()?,
        live_units: bytes.u64()?,
        ..SegmentEntry::default()
    };
    if version >= VERSION_OF_DAMAGE {
        let salt = bytes.u32()?;
        bytes.u32()?;
        let origin = if flags & COMPACTED == 0 { Origin::Appended } else { Origin::Compacted };
        entry.identity = (flags & HAS_SALT != 0).then_some((origin, salt));
        entry.damaged = flags & DAMAGED != 0;
        entry.incomplete = flags & INCOMPLETE != 0;
        entry.lost = flags & LOST != 0;
    }
    Some(entry)
}
