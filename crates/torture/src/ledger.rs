//! What was promised about every document: eight bytes each, shared by all clients of a run.
//!
//! A document has one writer at a time. The writer says [`Ledger::begin`] before the request is sent, and how it ended
//! after. A request whose answer never came leaves the document *ambiguous*. What it would have made is then as allowed
//! as what was there before, until a later write is acknowledged.
//!
//! Kept apart: how far each vBucket is known to be on disk, which decides what must have survived a kill.

use std::sync::atomic::{AtomicU64, Ordering};

const SEQNO_BITS: u32 = 40;
const VERSION_BITS: u32 = 16;
const WRITTEN: u64 = 1 << (SEQNO_BITS + VERSION_BITS);
const DELETED: u64 = WRITTEN << 1;
const AMBIGUOUS_WRITE: u64 = WRITTEN << 2;
const AMBIGUOUS_DELETE: u64 = WRITTEN << 3;
const MAY_BE_LOST: u64 = WRITTEN << 4;

/// What is known of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known(u64);

impl Known {
    /// Version of the last write that was acknowledged; 0 for none.
    #[must_use]
    pub fn version(self) -> u32 {
        (self.0 >> SEQNO_BITS) as u32 & ((1 << VERSION_BITS) - 1)
    }

    /// Seqno of the last mutation that was acknowledged.
    #[must_use]
    pub fn seqno(self) -> u64 {
        self.0 & ((1 << SEQNO_BITS) - 1)
    }

    /// Whether a write was acknowledged, and no deletion since.
    #[must_use]
    pub fn is_written(self) -> bool {
        self.0 & WRITTEN != 0
    }

    /// Whether a deletion was acknowledged, and no write since.
    #[must_use]
    pub fn is_deleted(self) -> bool {
        self.0 & DELETED != 0
    }

    /// Whether a request about it is under way or went unanswered.
    #[must_use]
    pub fn is_ambiguous(self) -> bool {
        self.0 & (AMBIGUOUS_WRITE | AMBIGUOUS_DELETE) != 0
    }

    /// What a read may find: `None` for absence.
    #[must_use]
    pub fn allows(self, found: Option<u32>) -> bool {
        // What is lost with a kill shows what was there before, which may be any version or none.
        let may_be_older = self.0 & MAY_BE_LOST != 0;
        match found {
            Some(version) => {
                (self.is_written() && version == self.version())
                    || (self.0 & AMBIGUOUS_WRITE != 0 && version == self.version() + 1)
                    || (may_be_older && version <= self.version())
            }
            None => !self.is_written() || self.0 & AMBIGUOUS_DELETE != 0 || may_be_older,
        }
    }

    /// Whether a read must find a document.
    #[must_use]
    pub fn must_be_there(self) -> bool {
        !self.allows(None)
    }
}

/// All documents of a run.
pub struct Ledger {
    documents: Vec<AtomicU64>,
    persisted: Vec<AtomicU64>,
}

impl Ledger {
    /// For so many documents, of which nothing is known, in so many vBuckets.
    #[must_use]
    pub fn new(documents: u64, vbuckets: u16) -> Ledger {
        let zeros = |count: u64| (0..count).map(|_| AtomicU64::new(0)).collect();
        Ledger { documents: zeros(documents), persisted: zeros(u64::from(vbuckets)) }
    }

    /// How many documents there can be.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.documents.len() as u64
    }

    /// How many vBuckets there are.
    #[must_use]
    pub fn vbuckets(&self) -> u16 {
        self.persisted.len() as u16
    }

    /// What is known of a document.
    #[must_use]
    pub fn known(&self, index: u64) -> Known {
        Known(self.documents.get(index as usize).map_or(0, |known| known.load(Ordering::Acquire)))
    }

    fn put(&self, index: u64, known: u64) {
        if let Some(document) = self.documents.get(index as usize) {
            document.store(known, Ordering::Release);
        }
    }

    /// A write is about to be sent; returns the version to write. One that is ambiguous is written again as it was.
    pub fn begin_write(&self, index: u64) -> u32 {
        let known = self.known(index);
        self.put(index, known.0 | AMBIGUOUS_WRITE);
        known.version() + 1
    }

    /// A deletion is about to be sent.
    pub fn begin_delete(&self, index: u64) {
        self.put(index, self.known(index).0 | AMBIGUOUS_DELETE);
    }

    /// The write of this version was acknowledged.
    pub fn written(&self, index: u64, version: u32, seqno: u64) {
        self.put(index, seqno | (u64::from(version) << SEQNO_BITS) | WRITTEN);
    }

    /// The deletion was acknowledged.
    pub fn deleted(&self, index: u64, seqno: u64) {
        let version = u64::from(self.known(index).version()) << SEQNO_BITS;
        self.put(index, seqno | version | DELETED);
    }

    /// The server said that it did not execute the request. What an earlier attempt left ambiguous stays so.
    pub fn refused(&self, index: u64, was: Known) {
        self.put(index, was.0);
    }

    /// Everything of a vBucket up to here is on disk.
    pub fn persisted_to(&self, vb: u16, seqno: u64) {
        if let Some(persisted) = self.persisted.get(usize::from(vb)) {
            persisted.fetch_max(seqno, Ordering::AcqRel);
        }
    }

    /// How far a vBucket is known to be on disk.
    #[must_use]
    pub fn persisted(&self, vb: u16) -> u64 {
        self.persisted.get(usize::from(vb)).map_or(0, |seqno| seqno.load(Ordering::Acquire))
    }

    /// The node that served this document of this vBucket was killed: what was not known to be on disk may be lost.
    pub fn killed(&self, index: u64, vb: u16) {
        let known = self.known(index);
        if known.seqno() > self.persisted(vb) {
            self.put(index, known.0 | MAY_BE_LOST);
        }
    }

    /// Documents that must be there.
    #[must_use]
    pub fn live(&self) -> u64 {
        (0..self.capacity()).filter(|&index| self.known(index).must_be_there()).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        Ledger::new(10, 4)
    }

    #[test]
    fn what_was_acknowledged_must_be_there() {
        let ledger = ledger();
        assert!(ledger.known(3).allows(None) && !ledger.known(3).allows(Some(1)));
        let version = ledger.begin_write(3);
        assert!(ledger.known(3).allows(None) && ledger.known(3).allows(Some(version)));
        ledger.written(3, version, 17);
        let known = ledger.known(3);
        assert_eq!((known.version(), known.seqno()), (1, 17));
        assert!(known.allows(Some(1)) && !known.allows(None) && !known.allows(Some(2)));
        assert_eq!(ledger.live(), 1);
    }

    #[test]
    fn a_deletion_explains_absence_and_forbids_return() {
        let ledger = ledger();
        ledger.written(3, 1, 17);
        ledger.begin_delete(3);
        assert!(ledger.known(3).allows(None) && ledger.known(3).allows(Some(1)));
        ledger.deleted(3, 18);
        assert!(ledger.known(3).allows(None) && !ledger.known(3).allows(Some(1)));
        assert_eq!(ledger.begin_write(3), 2, "versions go on");
    }

    #[test]
    fn a_refusal_leaves_what_was_known() {
        let ledger = ledger();
        ledger.written(3, 1, 17);
        let was = ledger.known(3);
        ledger.begin_write(3);
        ledger.refused(3, was);
        assert!(!ledger.known(3).is_ambiguous());
        let first = ledger.begin_write(3);
        let ambiguous = ledger.known(3);
        assert_eq!(ledger.begin_write(3), first, "written again as it was");
        ledger.refused(3, ambiguous);
        assert!(ledger.known(3).allows(Some(2)), "the first attempt may yet have been executed");
    }

    #[test]
    fn only_what_was_not_on_disk_may_be_lost() {
        let ledger = ledger();
        ledger.written(3, 2, 17);
        ledger.persisted_to(1, 17);
        ledger.persisted_to(1, 4);
        assert_eq!((ledger.persisted(1), ledger.persisted(0)), (17, 0));
        ledger.killed(3, 1);
        let known = ledger.known(3);
        assert!(known.allows(Some(2)) && !known.allows(Some(1)) && !known.allows(None));
        ledger.written(3, 3, 18);
        ledger.killed(3, 1);
        let known = ledger.known(3);
        assert!(known.allows(Some(3)) && known.allows(Some(2)) && known.allows(None));
        assert!(!known.allows(Some(4)), "was never sent");
        ledger.written(3, 4, 18);
        assert!(
            ledger.known(3).must_be_there(),
            "a seqno is given out again, and the document is certain again"
        );
    }
}
