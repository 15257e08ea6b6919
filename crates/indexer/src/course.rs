//! How far a feed and an index are in a vBucket.
//!
//! A snapshot that is read from disk comes in parts, and leaves out what it has a newer version of further on. An index that
//! has a part of it is not what the vBucket was at any seqno. It may lack a document that was written in this part and again
//! behind it. So an index has two figures. It has all documents up to [`Position::seqno`], from where it is fed on. It is
//! what the vBucket was at [`Position::whole`], and perhaps newer in places. Only that figure answers a query that asks for a
//! seqno.
//!
//! It is written down with the branch whether an index stopped inside a snapshot. The snapshot's end is not. Where the branch
//! is still the vBucket's newest one, the index is fed on, by a snapshot that reaches as far as the vBucket. Where the branch
//! ended, the end may lie within that snapshot, so the vBucket is fed from the beginning.
//!
//! Outside of a snapshot an index is told the branch that everything up to its seqno lies on. A copy that follows another node's may
//! know of branches that began further on. It may take over before it comes there, and these branches are none of its own then.

use base::{Seqno, VbId, VbUuid};
use views::index::Index;

/// Set in the branch of an index that stopped inside a snapshot. Uuids of branches have 48 bits.
const INSIDE: u64 = 1 << 63;

/// How far a feed was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    seqno: Seqno,
    end: Seqno,
}

/// What a batch of a feed leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Everything up to here was told.
    pub seqno: Seqno,
    /// It is the end of a snapshot.
    pub whole: bool,
}

impl Course {
    /// A feed that tells what is behind `from`.
    #[must_use]
    pub fn from(from: Seqno) -> Self {
        Self { seqno: from, end: from }
    }

    /// Everything up to here was told.
    #[must_use]
    pub fn seqno(&self) -> Seqno {
        self.seqno
    }

    /// A batch was told: the end of its snapshot where one begins with it, its last item, and whether the snapshot ends with it.
    pub fn take(&mut self, snapshot_end: Option<Seqno>, last: Option<Seqno>, ends: bool) -> Reached {
        self.end = snapshot_end.unwrap_or(self.end);
        self.seqno = if ends { self.end } else { last.unwrap_or(self.seqno) }.max(self.seqno);
        Reached { seqno: self.seqno, whole: ends }
    }
}

/// How far an index is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// It has all documents up to here.
    pub seqno: Seqno,
    /// Here it was what the vBucket was.
    pub whole: Seqno,
}

impl Position {
    /// Whether it stopped inside a snapshot.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.whole < self.seqno
    }

    /// The same after what a feed reached was applied; `None` where it had that already.
    #[must_use]
    pub fn after(self, reached: Reached) -> Option<Self> {
        let next = Self {
            seqno: self.seqno.max(reached.seqno),
            whole: if reached.whole && reached.seqno >= self.seqno { reached.seqno } else { self.whole },
        };
        (next != self).then_some(next)
    }

    /// What an index is told to be the branch of what is applied, by the failover log of the feed, newest branch first.
    #[must_use]
    pub fn branch(&self, log: &[(VbUuid, Seqno)]) -> VbUuid {
        if self.is_inside() {
            return VbUuid(newest(log).get() | INSIDE);
        }
        let holds = log.iter().find(|(_, begin)| *begin < self.seqno).or(log.last());
        holds.map_or(VbUuid(0), |(branch, _)| *branch)
    }
}

/// The newest branch of a failover log.
pub fn newest(log: &[(VbUuid, Seqno)]) -> VbUuid {
    log.first().map_or(VbUuid(0), |(branch, _)| *branch)
}

/// Where an index goes on in a vBucket with this failover log, newest branch first, that may have forgotten deletions up to
/// `purged`. Where that is the beginning the index forgets what it has of the vBucket.
pub fn resume(index: &mut Index, vb: VbId, log: &[(VbUuid, Seqno)], purged: Seqno) -> Position {
    let known = index.seqno(vb);
    let position = match known {
        Some((branch, seqno)) if branch.get() & INSIDE != 0 => {
            let is_newest = log.first().is_some_and(|(newest, _)| newest.get() | INSIDE == branch.get());
            Position { seqno: if is_newest { seqno } else { Seqno(0) }, whole: Seqno(0) }
        }
        _ => {
            let seqno = index.resume(vb, log);
            Position { seqno, whole: seqno }
        }
    };
    let lacks_deletions = position.seqno < purged;
    if lacks_deletions || position.seqno == Seqno(0) {
        if known.is_some_and(|(_, seqno)| seqno > Seqno(0)) {
            index.reset(vb);
        }
        return Position::default();
    }
    position
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use storage::FaultFs;
    use views::{
        design::DesignDocument,
        index::{Batch, Definition, Memory, NoFunctions, Options},
    };

    use super::*;

    const VB: VbId = VbId(3);

    fn reached(seqno: u64, whole: bool) -> Reached {
        Reached { seqno: Seqno(seqno), whole }
    }

    fn position(seqno: u64, whole: u64) -> Position {
        Position { seqno: Seqno(seqno), whole: Seqno(whole) }
    }

    #[test]
    fn a_feed_is_where_its_last_item_was_or_its_last_snapshot_ended() {
        let mut course = Course::from(Seqno(5));
        let some = |seqno| Some(Seqno(seqno));
        assert_eq!(course.take(some(20), some(9), false), reached(9, false));
        assert_eq!(course.take(None, None, false), reached(9, false));
        assert_eq!(course.take(None, some(18), true), reached(20, true));
        // A snapshot that was cut short: another one begins behind its last item.
        assert_eq!(course.take(some(40), some(30), false), reached(30, false));
        assert_eq!(course.take(some(50), some(50), true), reached(50, true));
        assert_eq!(course.take(some(60), None, true), reached(60, true));
    }

    #[test]
    fn an_index_inside_a_snapshot_is_worth_what_it_was_before() {
        let at = position(10, 10).after(reached(14, false)).unwrap();
        assert_eq!((at, at.is_inside()), (position(14, 10), true));
        assert_eq!(at.after(reached(20, true)), Some(position(20, 20)));
        assert_eq!(at.after(reached(14, true)), Some(position(14, 14)));
        // A feed that began further back for another index.
        assert_eq!(at.after(reached(3, true)), None);
        assert_eq!(position(14, 14).after(reached(14, true)), None);
        assert_eq!(position(14, 14).after(reached(9, false)), None);
    }

    #[test]
    fn an_index_is_on_the_branch_that_everything_it_has_lies_on() {
        let log = [(VbUuid(3), Seqno(30)), (VbUuid(2), Seqno(10)), (VbUuid(1), Seqno(0))];
        let whole = [5, 10, 11, 30, 31].map(|seqno| position(seqno, seqno).branch(&log));
        assert_eq!(whole, [1, 1, 2, 2, 3].map(VbUuid));
        assert_eq!(position(5, 4).branch(&log), VbUuid(3 | INSIDE), "that one is read");
        assert_eq!(position(5, 5).branch(&[]), VbUuid(0));
    }

    fn index() -> Index {
        let document = DesignDocument::parse_unchecked(b"{\"views\":{}}").unwrap();
        let fs = Arc::new(FaultFs::new(1));
        let definition = Arc::new(Definition::of(&document));
        Index::open(fs, Path::new("/i"), definition, &Memory::new(1 << 20), Options::default()).unwrap()
    }

    fn apply(index: &mut Index, branch: VbUuid, seqno: u64) {
        let batch = Batch { vb: VB, branch, seqno: Seqno(seqno), documents: Vec::new() };
        index.apply(batch, &mut NoFunctions).unwrap();
    }

    #[test]
    fn an_index_goes_on_where_its_branch_does() {
        let log = [(VbUuid(2), Seqno(10)), (VbUuid(1), Seqno(0))];
        let mut index = index();
        assert_eq!(resume(&mut index, VB, &log, Seqno(0)), Position::default());
        apply(&mut index, position(10, 10).branch(&log[1..]), 10);
        assert_eq!(resume(&mut index, VB, &log, Seqno(0)), position(10, 10));
        apply(&mut index, position(30, 10).branch(&log), 30);
        assert_eq!(resume(&mut index, VB, &log, Seqno(0)), position(30, 0));
        assert_eq!(resume(&mut index, VB, &log, Seqno(30)), position(30, 0), "no deletion is missing");
        // Another branch began behind it, but perhaps within the snapshot.
        let newer = [(VbUuid(3), Seqno(35)), (VbUuid(2), Seqno(10))];
        assert_eq!(resume(&mut index, VB, &newer, Seqno(0)), Position::default());
        assert_eq!(index.seqno(VB), None, "it begins anew");
        // Outside of a snapshot that is no matter.
        apply(&mut index, position(30, 30).branch(&log), 30);
        assert_eq!(resume(&mut index, VB, &newer, Seqno(0)), position(30, 30));
        let earlier = [(VbUuid(3), Seqno(29)), (VbUuid(2), Seqno(10))];
        assert_eq!(resume(&mut index, VB, &earlier, Seqno(0)), Position::default());
        // Deletions that the index has not heard of are forgotten.
        apply(&mut index, VbUuid(3), 30);
        assert_eq!(resume(&mut index, VB, &newer, Seqno(31)), Position::default());
        assert_eq!(index.seqno(VB), None);
    }
}
