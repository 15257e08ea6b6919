//! The log's tail after a crash: what was synced stays, of the rest a prefix of whole batches.
//!
//! What the disk holds beyond the last sync is arbitrary: pages may be missing in the middle while later ones made it.
//! What was synced must be there; where it is not, it is damage, not a torn tail, and what follows is kept. The two are
//! told apart by the *proof*: the highest synced position that any manifest, note, segment header or commit frame
//! claims. Below it every intact record counts. Above it batches count while they are whole and numbered without a gap.
//! The first batch that is not ends the log, in later segments too. A block that the disk cannot read is damage
//! wherever it lies: a write that did not happen can be read.

use std::{collections::BTreeMap, sync::Arc};

use base::{Cas, Seqno, VbId};

use crate::{
    api::{Marks, RecordMeta, VbState},
    error::StoreError,
    format::{
        DATA_START, UNIT,
        batch::{self, Commit, Part},
        header::Header,
        manifest::Manifest,
    },
    frames::{Frames, Step},
    index::Staged,
    position::Position,
    segment::Segment,
};

/// All the low bits that tell kinds of recorded CAS apart.
const CAS_BOUND: u64 = 0xffff;

/// What is left of the tail.
pub(crate) struct Tail {
    /// Segments with records, indexed in memory.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// States that the manifest does not know yet, oldest first.
    pub(crate) parts: Vec<Part>,
    /// What records say of their vBuckets whose batches' commit frames do not: those are damaged.
    pub(crate) salvaged: BTreeMap<(VbId, u32), Salvaged>,
    /// Units made obsolete since the manifest.
    pub(crate) deaths: Vec<(u32, u32)>,
    pub(crate) next_batch: u64,
    /// What was synced, as far as that can be proved.
    pub(crate) proof: Position,
    /// Segments that were synced once, since others tell of them, and are not there.
    pub(crate) missing: Vec<u32>,
}

/// The least that a vBucket's state must say, by records found without their commit frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Salvaged {
    pub(crate) high_seqno: Seqno,
    pub(crate) max_cas: Cas,
    pub(crate) max_deleted_rev: u64,
    /// The last prepare, if there is one.
    pub(crate) prepared: Seqno,
    /// The last record that is neither a prepare nor an abort.
    pub(crate) visible: Seqno,
}

/// Frames up to a commit frame, or up to the end.
pub(crate) struct Group {
    start: u64,
    end: u64,
    pub(crate) staged: Staged,
    commit: Option<Commit>,
    /// The commit frame vouches for exactly these records.
    whole: bool,
    /// There are damaged bytes in it.
    damaged: bool,
    /// The disk could not read some of it.
    unreadable: bool,
}

struct Surveyed {
    segment: Arc<Segment>,
    header: Header,
    groups: Vec<Group>,
    /// Where its data ended when the log went on in the next segment, if that is known.
    end: Option<u64>,
}

/// A segment of the tail, as it was found.
pub(crate) struct Found {
    pub(crate) segment: Arc<Segment>,
    pub(crate) header: Header,
    /// The manifest lists it: it belongs to the log wherever it says that the log was before.
    pub(crate) is_listed: bool,
}

/// Reads the tail's segments, in order, and decides what counts. Up to `noted` the log was synced, whatever the manifest knows.
pub(crate) fn recover(files: Vec<Found>, manifest: &Manifest, noted: Position) -> Result<Tail, StoreError> {
    let mut proof = manifest.synced.max(noted);
    let mut surveyed = Vec::new();
    // Where the log went on in the next segment, this one's data ended.
    let ends: Vec<Position> = files.iter().map(|found| found.header.previous).collect();
    let listed: Vec<u32> = files.iter().filter(|file| file.is_listed).map(|file| file.segment.id).collect();
    for Found { segment, header, .. } in files {
        let end = ends.iter().find(|end| end.segment == segment.id).map(|end| end.offset);
        let groups = survey(&segment, end)?;
        let claims = groups.iter().filter_map(|group| group.commit.as_ref()).map(|commit| commit.synced);
        proof = claims.chain([header.synced]).fold(proof, Position::max);
        surveyed.push(Surveyed { segment, header, groups, end });
    }
    let mut tail = Tail {
        segments: Vec::new(),
        parts: Vec::new(),
        salvaged: BTreeMap::new(),
        deaths: Vec::new(),
        next_batch: manifest.next_batch,
        proof,
        missing: Vec::new(),
    };
    let mut log = manifest.synced;
    let mut expected = None;
    for found in surveyed {
        let id = found.segment.id;
        let follows = found.header.previous == log || id == manifest.synced.segment || listed.contains(&id);
        if !follows && proof < (Position { segment: id, offset: DATA_START }) {
            break;
        }
        let before = found.header.previous.segment;
        let is_known = tail.segments.iter().any(|segment| segment.id == before)
            || manifest.segments.iter().any(|entry| entry.id == before);
        if !follows && !is_known && found.header.previous.offset > DATA_START {
            tail.missing.push(before);
        }
        let complete = accept(&found, &mut expected, manifest, &mut tail)?;
        log = Position { segment: id, offset: found.segment.data_end() };
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
    expected: &mut Option<u64>,
    manifest: &Manifest,
    tail: &mut Tail,
) -> Result<bool, StoreError> {
    let segment = &found.segment;
    let position = |offset| Position { segment: segment.id, offset };
    let unreadable = found.groups.iter().rev().find(|group| group.unreadable);
    let proof = unreadable.map_or(tail.proof, |group| tail.proof.max(position(group.end)));
    for group in &found.groups {
        let number = group.commit.as_ref().map(|commit| commit.number);
        let in_order = expected.is_none_or(|expected| number == Some(expected));
        if group.whole && (in_order || position(group.end) <= proof) {
            segment.publish(&group.staged, group.end);
        } else if position(group.start) < proof {
            // Damage inside what was synced. A damaged commit frame lets an unsynced batch run into this group.
            let beyond = position(group.end) > proof;
            let end = if beyond { proof.offset } else { group.end };
            let staged = salvage(segment, (group.start, end), &mut tail.salvaged)?;
            segment.publish(&staged, end);
            if !group.damaged {
                segment.note_damage(group.start, "batch does not match its commit frame");
            }
            if beyond {
                return Ok(false);
            }
        } else {
            tracing::info!(file = segment.name, offset = group.start, "log cut at the last whole batch");
            return Ok(false);
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
    note_what_is_missing(found, proof);
    Ok(true)
}

/// Of what was synced nothing may be missing at the end: there, zeros are no preallocated space.
fn note_what_is_missing(found: &Surveyed, proof: Position) {
    let segment = &found.segment;
    let reached = segment.data_end();
    let synced = match proof.segment.cmp(&segment.id) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => proof.offset,
        std::cmp::Ordering::Greater => found.end.unwrap_or(0),
    };
    if reached < synced {
        segment.publish(&Staged::default(), synced);
        segment.note_damage(reached, "what was synced is not there");
    }
}

/// The manifest knows how much of a segment's older part was alive.
fn restore_units(segment: &Segment, manifest: &Manifest) {
    if let Some(entry) = manifest.segments.iter().find(|entry| entry.id == segment.id) {
        let dead = entry.units.saturating_sub(entry.live_units);
        segment.count_dead(dead);
    }
}

fn survey(segment: &Segment, end: Option<u64>) -> Result<Vec<Group>, StoreError> {
    // A footer is no guarantee that the data before it is complete, only that none follows.
    let end = match (end, segment.read_trailer()?) {
        (Some(end), _) => end,
        (None, Some(trailer)) => trailer.data_end,
        (None, None) => segment.length()?.min(crate::locator::SEGMENT_BYTES_MAX) / UNIT * UNIT,
    };
    groups(segment, &mut Frames::up_to_open_end(segment, DATA_START, end))
}

/// Whether a segment is nothing but whole batches, one behind the other, up to its data's end.
pub(crate) fn is_intact(segment: &Segment, data_end: u64) -> Result<bool, StoreError> {
    let groups = groups(segment, &mut Frames::new(segment, DATA_START, data_end, true))?;
    let reached = groups.last().map_or(DATA_START, |group| group.end);
    Ok(reached == data_end && groups.iter().all(|group| group.whole))
}

fn groups(segment: &Segment, frames: &mut Frames<'_>) -> Result<Vec<Group>, StoreError> {
    let mut groups = Vec::new();
    let mut group = Group::new(DATA_START);
    let mut chain = segment.salt;
    loop {
        let from = frames.position();
        match frames.step()? {
            Step::Record(offset, record) => {
                chain = batch::chain(chain, record.crc);
                group.push(offset, segment.hash(record.key), &record);
            }
            Step::Unreadable(offset, record, _) => {
                group.push(offset, segment.hash(record.key), &record);
                group.damaged = true;
            }
            Step::Damaged(..) => {
                group.damaged = true;
                group.end = frames.position();
            }
            Step::Commit(frame_end, commit) => {
                group.whole = !group.damaged
                    && commit.start == group.start
                    && commit.chain == chain
                    && commit.records as usize == group.staged.entries.len();
                group.end = frame_end;
                group.commit = Some(commit);
                group.unreadable |= frames.is_unreadable(from, frame_end);
                groups.push(std::mem::replace(&mut group, Group::new(frame_end)));
                chain = segment.salt;
                continue;
            }
            Step::End => break,
        }
        group.unreadable |= frames.is_unreadable(from, frames.position());
    }
    if !group.staged.entries.is_empty() || group.damaged {
        groups.push(group);
    }
    Ok(groups)
}

impl Group {
    fn new(start: u64) -> Self {
        Self {
            start,
            end: start,
            staged: Staged::default(),
            commit: None,
            whole: false,
            damaged: false,
            unreadable: false,
        }
    }

    fn push(&mut self, offset: u64, hash: u64, record: &crate::format::frame::StoredRecord<'_>) {
        let owner = (record.vb, record.incarnation);
        self.staged.push(owner, &record.meta, hash, offset, record.length);
        self.end = offset + crate::format::padded(u64::from(record.length));
    }
}

/// Every intact record of a range with damage, which is noted.
fn salvage(
    segment: &Segment,
    (start, end): (u64, u64),
    salvaged: &mut BTreeMap<(VbId, u32), Salvaged>,
) -> Result<Staged, StoreError> {
    let mut staged = Staged::default();
    let mut note = |owner, meta: &RecordMeta| salvaged.entry(owner).or_default().add(meta);
    segment.collect(&mut Frames::new(segment, start, end, true), &mut staged, &mut note)?;
    Ok(staged)
}

impl Salvaged {
    fn add(&mut self, meta: &RecordMeta) {
        self.high_seqno = self.high_seqno.max(meta.seqno);
        self.max_cas = self.max_cas.max(meta.cas);
        if meta.kind.is_tombstone() {
            self.max_deleted_rev = self.max_deleted_rev.max(meta.rev);
        }
        if meta.kind.prepare_level().is_some() {
            self.prepared = self.prepared.max(meta.seqno);
        } else if !meta.kind.is_prepared() {
            self.visible = self.visible.max(meta.seqno);
        }
    }

    /// A state knows at least this: no seqno that a record has may be given to another. A CAS that is raised gets all low bits: it is a bound,
    /// and nobody may take it for what a clean stop has recorded.
    pub(crate) fn raise(&self, state: &mut VbState) {
        let marks = Marks { prepared: self.prepared, visible: self.visible, ..Marks::default() };
        if state.marks != Marks::default() || self.prepared > Seqno(0) {
            state.marks = state.marks.or_all_visible(state.high_seqno).max(marks);
        }
        state.high_seqno = state.high_seqno.max(self.high_seqno);
        if self.max_cas > state.max_cas {
            state.max_cas = Cas(self.max_cas.get() | CAS_BOUND);
        }
        state.max_deleted_rev = state.max_deleted_rev.max(self.max_deleted_rev);
    }
}
