//! Walks a segment's frames in order through a bounded window, checking each, and finds its way again behind
//! damaged ones.
//!
//! It knows nothing of batches: recovery decides whether a frame counts, or a segment's `data_end` has decided it. Blocks that
//! the disk cannot read are damaged bytes like any others.

use crate::{
    error::StoreError,
    format::{
        UNIT,
        batch::{self, Commit},
        frame::{self, FrameError, HEAD, Head, KIND_COMMIT_FRAME, MAGIC, StoredRecord},
    },
    segment::Segment,
};

/// How much is read at once: fits a second-level cache, large enough for sequential reading.
const WINDOW: usize = 256 << 10;
/// Head and the longest key.
const HEAD_AND_KEY_MAX: u64 = HEAD as u64 + 255;

/// What lies at a place.
pub(crate) enum Step<'a> {
    /// A record beginning at this offset.
    Record(u64, StoredRecord<'a>),
    /// A commit frame: where it ends, what it says.
    Commit(u64, Commit),
    /// A record whose head and key are intact and whose value is not (it is left empty).
    Unreadable(u64, StoredRecord<'a>, &'static str),
    /// Damaged bytes begin here; the walk goes on behind them.
    Damaged(u64, &'static str),
    /// Nothing more.
    End,
}

enum Checked {
    Intact(Head),
    BodyDamaged(Head, &'static str),
    Damaged(&'static str),
}

/// See the module.
pub(crate) struct Frames<'s> {
    segment: &'s Segment,
    window: Vec<u8>,
    /// File offset of the window.
    start: u64,
    at: u64,
    end: u64,
    values: bool,
    /// The data's end is not known: zeros up to `end` are preallocated space.
    open_ended: bool,
    /// Blocks that the disk could not read: their places and ends, while the end is open.
    unreadable: Vec<(u64, u64)>,
}

impl<'s> Frames<'s> {
    /// Walks `from..end`. Without `values` only heads and keys of records are checked; values are empty.
    pub(crate) fn new(segment: &'s Segment, from: u64, end: u64, values: bool) -> Self {
        let unreadable = Vec::new();
        Self { segment, window: Vec::new(), start: 0, at: from, end, values, open_ended: false, unreadable }
    }

    /// Walks data whose end is not known, and is no later than `end`.
    pub(crate) fn up_to_open_end(segment: &'s Segment, from: u64, end: u64) -> Self {
        Self { open_ended: true, ..Self::new(segment, from, end, true) }
    }

    /// Whether the disk could not read something of that range when it was walked.
    pub(crate) fn is_unreadable(&self, start: u64, end: u64) -> bool {
        self.unreadable.iter().any(|bad| bad.0 < end && start < bad.1)
    }

    /// Goes on at another range, keeping the window's memory.
    pub(crate) fn jump(&mut self, from: u64, end: u64) {
        (self.at, self.end) = (from, end);
    }

    /// Where the next frame is looked for.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// The next frame.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the file cannot be read.
    pub(crate) fn step(&mut self) -> Result<Step<'_>, StoreError> {
        let at = self.at;
        if at + HEAD as u64 > self.end {
            self.at = at.max(self.end);
            let ends_early = at < self.end && !self.open_ended;
            return Ok(if ends_early { Step::Damaged(at, "no frame begins here") } else { Step::End });
        }
        match self.check(at)? {
            Checked::Intact(head) => {
                self.at = at + head.span();
                Ok(self.found(at, head))
            }
            Checked::BodyDamaged(head, detail) => {
                self.at = at + head.span();
                Ok(match frame::record_of(self.slice(at), &head, None) {
                    Ok(record) => Step::Unreadable(at, record, detail),
                    Err(_) => Step::Damaged(at, detail),
                })
            }
            Checked::Damaged(detail) => {
                self.at = self.search(at + UNIT)?;
                // Zeros up to the end are preallocated space, not damage.
                if self.open_ended && self.at >= self.end && self.only_zeros(at)? {
                    return Ok(Step::End);
                }
                Ok(Step::Damaged(at, detail))
            }
        }
    }

    fn found(&self, at: u64, head: Head) -> Step<'_> {
        let bytes = self.slice(at);
        let salt = self.segment.salt;
        if head.kind == KIND_COMMIT_FRAME {
            return match batch::decode_commit(bytes, salt) {
                Ok(commit) => Step::Commit(self.at, commit),
                Err(_) => Step::Damaged(at, "commit frame makes no sense"),
            };
        }
        let value = bytes.get(HEAD + head.key_length..head.length as usize).filter(|_| self.values);
        match frame::record_of(bytes, &head, value) {
            Ok(record) => Step::Record(at, record),
            Err(_) => Step::Damaged(at, "record makes no sense"),
        }
    }

    /// Brings the frame at `at` into the window and checks it.
    fn check(&mut self, at: u64) -> Result<Checked, StoreError> {
        self.fill(at, HEAD_AND_KEY_MAX.min(self.end - at) as usize)?;
        let head = match frame::decode_head(self.slice(at), self.segment.salt) {
            Ok(head) => head,
            Err(FrameError::Short(_)) => return Ok(Checked::Damaged("cut short")),
            Err(FrameError::Damaged(detail)) => return Ok(Checked::Damaged(detail)),
        };
        if at + head.span() > self.end {
            return Ok(Checked::Damaged("reaches beyond the end"));
        }
        if !self.values && head.kind != KIND_COMMIT_FRAME {
            return Ok(Checked::Intact(head));
        }
        self.fill(at, head.length as usize)?;
        Ok(match frame::check_body(self.slice(at), &head) {
            Ok(_) => Checked::Intact(head),
            Err(FrameError::Short(_)) => Checked::Damaged("cut short"),
            Err(FrameError::Damaged(detail)) => Checked::BodyDamaged(head, detail),
        })
    }

    /// The first place from `from` on where an intact frame begins, or the end.
    fn search(&mut self, from: u64) -> Result<u64, StoreError> {
        let mut at = from;
        while at + HEAD as u64 <= self.end {
            self.fill(at, HEAD)?;
            if self.slice(at).get(15) == Some(&MAGIC) && matches!(self.check(at)?, Checked::Intact(_)) {
                return Ok(at);
            }
            at += UNIT;
        }
        Ok(self.end)
    }

    fn only_zeros(&mut self, from: u64) -> Result<bool, StoreError> {
        let mut at = from;
        while at < self.end {
            let length = (WINDOW as u64).min(self.end - at) as usize;
            self.fill(at, length)?;
            if self.slice(at)[..].iter().take(length).any(|&byte| byte != 0) {
                return Ok(false);
            }
            at += length as u64;
        }
        Ok(true)
    }

    /// What the window holds from `at` on.
    fn slice(&self, at: u64) -> &[u8] {
        self.window.get((at - self.start) as usize..).unwrap_or_default()
    }

    /// Makes the window hold `need` bytes from `at` on, or up to the end of the walk.
    #[expect(clippy::indexing_slicing, reason = "a read gives no more bytes than its buffer has")]
    fn fill(&mut self, at: u64, need: usize) -> Result<(), StoreError> {
        let held = self.start + self.window.len() as u64;
        if at >= self.start && at + need as u64 <= held {
            return Ok(());
        }
        let length = (need.max(WINDOW) as u64).min(self.end - at) as usize;
        self.window.resize(length, 0);
        self.start = at;
        let (count, unreadable) = self.segment.read_with_gaps(&mut self.window, at)?;
        if self.open_ended {
            self.unreadable.extend(unreadable);
        }
        // A file shorter than it should be reads as zeros: damage, found like any other.
        self.window[count..].fill(0);
        Ok(())
    }
}
