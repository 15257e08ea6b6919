//! The log's tail after a crash: what was synced stays, of the rest a prefix of whole batches.
//!
//! What the disk holds beyond the last sync is arbitrary: pages may be missing in the middle while later ones
//! made it. What was synced must be there; where it is not, it is damage, not a torn tail, and what follows is kept.
//! The two are told apart by the *proof*: the highest synced position that any manifest, segment header or commit
//! frame claims. Below it every intact record counts; above it batches count while they are whole and numbered
//! without a gap; the first that is not ends the log, in later segments too.

use std::sync::Arc;

use crate::{
    error::StoreError,
    format::{
        DATA_START,
        batch::{self, Commit, Part},
        header::Header,
        manifest::Manifest,
    },
    frames::{Frames, Step},
    index::Staged,
    position::Position,
    segment::Segment,
};

/// What is left of the tail.
pub(crate) struct Tail {
    /// Segments with records, indexed in memory.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// States that the manifest does not know yet, oldest first.
    pub(crate) parts: Vec<Part>,
    /// Units made obsolete since the manifest.
    pub(crate) deaths: Vec<(u32, u32)>,
    pub(crate) next_batch: u64,
}

/// Frames up to a commit frame, or up to the end.
struct Group {
    start: u64,
    end: u64,
    staged: Staged,
    commit: Option<Commit>,
    /// The commit frame vouches for exactly these records.
    whole: bool,
    damage: Vec<(u64, &'static str, bool)>,
}

struct Surveyed {
    segment: Arc<Segment>,
    header: Header,
    groups: Vec<Group>,
}

/// Reads the tail's segments, in order, and decides what counts.
pub(crate) fn recover(files: Vec<(Arc<Segment>, Header)>, manifest: &Manifest) -> Result<Tail, StoreError> {
    let mut proof = manifest.synced;
    let mut surveyed = Vec::new();
    // Where the log went on in the next segment, this one's data ended.
    let ends: Vec<Position> = files.iter().map(|(_, header)| header.previous).collect();
    for (segment, header) in files {
        let end = ends.iter().find(|end| end.segment == segment.id).map(|end| end.offset);
        let groups = survey(&segment, end)?;
        let claims = groups.iter().filter_map(|group| group.commit.as_ref()).map(|commit| commit.synced);
        proof = claims.chain([header.synced]).fold(proof, Position::max);
        surveyed.push(Surveyed { segment, header, groups });
    }
    let mut tail =
        Tail { segments: Vec::new(), parts: Vec::new(), deaths: Vec::new(), next_batch: manifest.next_batch };
    let mut log = manifest.synced;
    let mut expected = None;
    for found in surveyed {
        let start = Position { segment: found.segment.id, offset: DATA_START };
        let follows = found.header.previous == log || found.segment.id == manifest.synced.segment;
        if !follows && proof < start {
            break;
        }
        let complete = accept(&found, proof, &mut expected, manifest, &mut tail);
        log = Position { segment: found.segment.id, offset: found.segment.data_end() };
        if found.segment.data_end() > DATA_START {
            restore_units(&found.segment, manifest);
            tail.segments.push(found.segment);
        }
        if !complete {
            break;
        }
    }
    tail.next_batch = tail.next_batch.max(expected.unwrap_or(0));
    Ok(tail)
}

/// Takes over what counts of one segment. Returns whether the log may go on in the next one.
fn accept(
    found: &Surveyed,
    proof: Position,
    expected: &mut Option<u64>,
    manifest: &Manifest,
    tail: &mut Tail,
) -> bool {
    let segment = &found.segment;
    let position = |offset| Position { segment: segment.id, offset };
    for group in &found.groups {
        let number = group.commit.as_ref().map(|commit| commit.number);
        let in_order = expected.is_none_or(|expected| number == Some(expected));
        if group.whole && (in_order || position(group.end) <= proof) {
            segment.publish(&group.staged, group.end);
        } else if position(group.start) < proof {
            // Damage inside what was synced. A damaged commit frame lets an unsynced batch run into this group.
            let beyond = position(group.end) > proof;
            let end = if beyond { proof.offset } else { group.end };
            segment.publish(&group.staged.up_to(end), end);
            for &(offset, detail, known) in &group.damage {
                if known {
                    let _ = segment.corrupt(offset, detail);
                    segment.quarantine();
                } else {
                    segment.note_damage(offset, detail);
                }
            }
            if beyond {
                return false;
            }
        } else {
            tracing::info!(file = segment.name, offset = group.start, "log cut at the last whole batch");
            return false;
        }
        if let Some(commit) = &group.commit {
            *expected = Some(commit.number + 1);
            // Older batches are in the manifest's states and counts.
            if commit.number >= manifest.next_batch {
                tail.parts.extend(commit.parts.iter().cloned());
                tail.deaths.extend(&commit.deaths);
            }
        }
    }
    true
}

/// The manifest knows how much of a segment's older part was alive.
fn restore_units(segment: &Segment, manifest: &Manifest) {
    if let Some(entry) = manifest.segments.iter().find(|entry| entry.id == segment.id) {
        let dead = entry.units.saturating_sub(entry.live_units);
        segment.bury(dead);
    }
}

fn survey(segment: &Segment, end: Option<u64>) -> Result<Vec<Group>, StoreError> {
    // A footer is no guarantee that the data before it is complete, only that there is none behind.
    let end = match (end, segment.read_trailer()?) {
        (Some(end), _) => end,
        (None, Some(trailer)) => trailer.data_end,
        (None, None) => segment.length()?.min(crate::locator::SEGMENT_BYTES_MAX),
    };
    let mut frames = Frames::new(segment, DATA_START, end, true);
    let mut groups = Vec::new();
    let mut group = Group::new(DATA_START);
    let mut chain = segment.salt;
    loop {
        match frames.step()? {
            Step::Record(offset, record) => {
                chain = batch::chain(chain, record.crc);
                group.push(offset, &record);
            }
            Step::Unreadable(offset, record, detail) => {
                group.push(offset, &record);
                group.damage.push((offset, detail, true));
            }
            Step::Damaged(offset, detail) => group.damage.push((offset, detail, false)),
            Step::Commit(frame_end, commit) => {
                group.whole = group.damage.is_empty()
                    && commit.start == group.start
                    && commit.chain == chain
                    && commit.records as usize == group.staged.entries.len();
                if !group.whole && group.damage.is_empty() {
                    group.damage.push((group.start, "batch does not match its commit frame", false));
                }
                group.end = frame_end;
                group.commit = Some(commit);
                groups.push(std::mem::replace(&mut group, Group::new(frame_end)));
                chain = segment.salt;
            }
            Step::End => break,
        }
    }
    if !group.staged.entries.is_empty() || !group.damage.is_empty() {
        groups.push(group);
    }
    Ok(groups)
}

impl Group {
    fn new(start: u64) -> Self {
        Self { start, end: start, staged: Staged::default(), commit: None, whole: false, damage: Vec::new() }
    }

    fn push(&mut self, offset: u64, record: &crate::format::frame::StoredRecord<'_>) {
        let owner = (record.vb, record.incarnation);
        self.staged.push(owner, &record.meta, base::hash::key_hash(record.key), offset, record.length);
        self.end = offset + crate::format::padded(u64::from(record.length));
    }
}
