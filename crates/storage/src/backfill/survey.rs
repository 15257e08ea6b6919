//! The first pass: which records of the vBucket there are, by heads and keys alone.
//!
//! Only the vBucket's runs are read. Damage is noted and named everywhere before the survey fails for it, so that one
//! attempt tells all there is to tell.

use base::hash::key_fingerprint;

use super::{
    Pin,
    found::{self, Found},
};
use crate::{
    error::StoreError,
    format::DATA_START,
    frames::{Frames, Step},
    segment::Segment,
};

/// Runs that the disk is told of at once; at least and at most so much of each.
const RUNS_AHEAD: usize = 64;
const RUN_BYTES_MIN: u64 = 32 << 10;
const RUN_BYTES_AHEAD: u64 = 1 << 20;

/// See the module.
pub(super) struct Survey {
    /// Of this backfill alone.
    seed: u64,
    /// Number of the segment being walked.
    segment: usize,
    /// What of it is left to walk, last first; `None` before it was asked.
    runs: Option<Vec<(u64, u64)>>,
    /// How many of those the disk has not been told of.
    unannounced: usize,
    found: Vec<Found>,
    damage: Option<StoreError>,
}

impl Survey {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, segment: 0, runs: None, unannounced: 0, found: Vec::new(), damage: None }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.found.capacity() * size_of::<Found>() + self.runs.as_ref().map_or(0, |runs| runs.capacity() * 16)
    }

    /// Walks about `bytes_max` bytes; false when all is walked.
    pub(super) fn step(&mut self, pin: &mut Pin, bytes_max: u64) -> Result<bool, StoreError> {
        if pin.segments.len() > found::SEGMENTS_MAX {
            return Err(StoreError::Invalid("more segments than a backfill can tell apart"));
        }
        let mut left = bytes_max.max(1);
        while self.segment < pin.segments.len() {
            let Some(segment) = pin.segment(self.segment).cloned() else {
                self.leave(pin);
                continue;
            };
            let runs = match self.runs.take() {
                Some(runs) => runs,
                None => self.enter(pin, &segment)?,
            };
            if runs.is_empty() {
                self.leave(pin);
                continue;
            }
            if left == 0 {
                self.runs = Some(runs);
                return Ok(true);
            }
            self.walk(pin, &segment, runs, &mut left)?;
        }
        Ok(false)
    }

    /// The newest version of every key, in the order of delivery.
    pub(super) fn finish(self, unordered: bool) -> Result<Vec<Found>, StoreError> {
        match self.damage {
            Some(damage) => Err(damage),
            None => Ok(found::newest(self.found, unordered)),
        }
    }

    /// The vBucket's runs in a segment, last first; none if nothing in it counts.
    fn enter(&mut self, pin: &Pin, segment: &Segment) -> Result<Vec<(u64, u64)>, StoreError> {
        let of_vb = segment.summaries()?.into_iter().any(|summary| {
            (summary.vb, summary.incarnation) == (pin.vb, pin.incarnation)
                && summary.seqno_max > pin.from
                && summary.seqno_min <= pin.end
        });
        let mut runs = if of_vb { segment.runs(pin.vb)? } else { Vec::new() };
        runs.reverse();
        self.unannounced = runs.len();
        // Asked last: a damaged footer is found out by reading it.
        if segment.is_incomplete() {
            self.damage = Some(segment.corrupt(DATA_START, "records lost: nobody knows whose"));
        }
        Ok(runs)
    }

    fn leave(&mut self, pin: &mut Pin) {
        let (segment, found) = (self.segment, self.found.last());
        if found.is_none_or(|last| last.segment() != segment) {
            pin.release(segment);
        }
        self.segment += 1;
        self.runs = None;
    }

    /// Walks runs until `left` is used up.
    fn walk(
        &mut self,
        pin: &Pin,
        segment: &Segment,
        mut runs: Vec<(u64, u64)>,
        left: &mut u64,
    ) -> Result<(), StoreError> {
        let mut frames = Frames::new(segment, DATA_START, DATA_START, false);
        while let Some(&(start, end)) = runs.last().filter(|_| *left > 0) {
            self.announce(segment, &runs);
            frames.jump(start, end);
            let done = self.walk_run(pin, segment, &mut frames, left)?;
            let stopped = frames.position();
            *left = left.saturating_sub(stopped - start);
            match runs.last_mut().filter(|_| !done) {
                Some(run) => run.0 = stopped,
                None => drop(runs.pop()),
            }
        }
        self.runs = Some(runs);
        Ok(())
    }

    /// Lets the disk fetch what comes next while this is walked. Not short runs: around those the operating system
    /// reads neighbours along, which the backfills of other vBuckets are about to want.
    fn announce(&mut self, segment: &Segment, runs: &[(u64, u64)]) {
        if self.unannounced < runs.len() {
            return;
        }
        let next = runs.len().saturating_sub(RUNS_AHEAD);
        for &(start, end) in runs.get(next..).unwrap_or_default() {
            if end - start >= RUN_BYTES_MIN {
                segment.file.will_read(start, (end - start).min(RUN_BYTES_AHEAD));
            }
        }
        self.unannounced = next;
    }

    /// Walks one run to its end (true) or for as many bytes as are left.
    fn walk_run(
        &mut self,
        pin: &Pin,
        segment: &Segment,
        frames: &mut Frames<'_>,
        left: &u64,
    ) -> Result<bool, StoreError> {
        let limit = frames.position() + *left;
        while frames.position() < limit {
            match frames.step()? {
                Step::Record(offset, stored) => {
                    let counts = stored.vb == pin.vb
                        && stored.incarnation == pin.incarnation
                        && pin.covers(&stored.meta);
                    if counts {
                        let print = key_fingerprint(stored.key, self.seed);
                        let note = Found::new(print, &stored.meta, self.segment, offset, stored.length);
                        self.found.push(note);
                    }
                }
                Step::Unreadable(offset, _, detail) | Step::Damaged(offset, detail) => {
                    segment.quarantine();
                    self.damage = Some(segment.corrupt(offset, detail));
                }
                Step::Commit(..) => {}
                Step::End => return Ok(true),
            }
        }
        Ok(false)
    }
}
