//! Which seqnos of a copy are those of a whole snapshot.
//!
//! In the middle of a snapshot a copy is no state that the vBucket ever had. Versions that a later one in the snapshot
//! replaces are left out. So it is recorded with every batch that ends there. After a crash a node may have only that
//! batch. It knows then that the copy is good up to the snapshot's start and has to be brought to its end.

use std::collections::VecDeque;

use base::Seqno;

/// A snapshot that has begun and is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// Up to here everything is whole.
    pub(crate) start: Seqno,
    /// Here it will be again.
    pub(crate) end: Seqno,
    /// It may leave out what was completed, of durable writes too.
    pub(crate) from_disk: bool,
    /// As its sender's marker says.
    pub(crate) high_completed: Seqno,
    pub(crate) max_visible: Seqno,
    pub(crate) purge_seqno: Seqno,
}

impl Open {
    /// As a restart finds it: all that is known is its range.
    pub(crate) fn recovered((start, end): (Seqno, Seqno)) -> Self {
        let (high_completed, max_visible, purge_seqno) = (Seqno(0), Seqno(0), Seqno(0));
        Self { start, end, from_disk: true, high_completed, max_visible, purge_seqno }
    }
}

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    open: Option<Open>,
    /// How many items of it have come; one that comes alone ends it.
    items: u32,
    /// Whole ones of several items that are not synced, in order: a batch may end inside.
    unsynced: VecDeque<(Seqno, Seqno)>,
    /// Before this the first one of all is not whole.
    first_end: Option<Seqno>,
}

impl Snapshots {
    pub(crate) fn recovered(range: Option<(Seqno, Seqno)>) -> Self {
        Self { open: range.map(Open::recovered), items: u32::from(range.is_some()), ..Self::default() }
    }

    pub(crate) fn open(&self) -> Option<&Open> {
        self.open.as_ref()
    }

    /// One begins, or the open one is carried on.
    pub(crate) fn begin(&mut self, open: Open) {
        self.open = Some(open);
    }

    /// An item of the open one has come.
    pub(crate) fn note_item(&mut self) {
        self.items = self.items.saturating_add(1);
    }

    /// The open one is whole; and whether it had several items.
    pub(crate) fn close(&mut self, is_first: bool) -> Option<(Open, bool)> {
        let open = self.open.take()?;
        let has_several = std::mem::take(&mut self.items) > 1;
        if has_several {
            self.unsynced.push_back((open.start, open.end));
        }
        if is_first {
            self.first_end = Some(open.end);
        }
        Some((open, has_several))
    }

    /// What has come of the open one is all that will.
    pub(crate) fn give_up(&mut self) {
        self.open = None;
        self.items = 0;
    }

    /// Everything up to a seqno is synced.
    pub(crate) fn synced(&mut self, persisted: Seqno) {
        while self.unsynced.front().is_some_and(|range| range.1 <= persisted) {
            self.unsynced.pop_front();
        }
        self.first_end = self.first_end.filter(|&end| end > persisted);
    }

    /// The snapshot that a copy with everything up to a seqno is in the middle of.
    pub(crate) fn around(&self, seqno: Seqno) -> Option<(Seqno, Seqno)> {
        let open = self.open.map(|open| (open.start, open.end)).filter(|range| is_inside(seqno, range));
        self.around_closed(seqno).or(open)
    }

    /// The same, if all of it has come.
    pub(crate) fn around_closed(&self, seqno: Seqno) -> Option<(Seqno, Seqno)> {
        // They are in order, and there are many where the disk is slow.
        let at = self.unsynced.partition_point(|&(_, end)| end <= seqno);
        self.unsynced.get(at).copied().filter(|range| is_inside(seqno, range))
    }

    /// Whether a copy with everything up to a seqno lacks part of the first snapshot.
    pub(crate) fn is_in_first(&self, seqno: Seqno) -> bool {
        self.first_end.is_some_and(|end| seqno < end)
    }
}

fn is_inside(seqno: Seqno, &(start, end): &(Seqno, Seqno)) -> bool {
    start < seqno && seqno < end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(start: u64, end: u64) -> Open {
        Open::recovered((Seqno(start), Seqno(end)))
    }

    #[test]
    fn a_copy_is_whole_at_ends_of_snapshots_only() {
        let mut snapshots = Snapshots::default();
        snapshots.begin(open(0, 5));
        (0..3).for_each(|_| snapshots.note_item());
        assert_eq!(snapshots.around(Seqno(3)), Some((Seqno(0), Seqno(5))));
        assert!(snapshots.close(true).is_some());
        snapshots.begin(open(5, 9));
        (0..2).for_each(|_| snapshots.note_item());
        assert_eq!(snapshots.around(Seqno(3)), Some((Seqno(0), Seqno(5))));
        assert_eq!(snapshots.around(Seqno(5)), None);
        assert_eq!(snapshots.around(Seqno(7)), Some((Seqno(5), Seqno(9))));
        assert!(snapshots.is_in_first(Seqno(3)) && !snapshots.is_in_first(Seqno(5)));
        snapshots.synced(Seqno(6));
        assert!(!snapshots.is_in_first(Seqno(3)));
        assert_eq!(snapshots.around(Seqno(7)), Some((Seqno(5), Seqno(9))));
        snapshots.give_up();
        assert_eq!(snapshots.around(Seqno(7)), None);
    }

    #[test]
    fn one_that_a_restart_has_found_may_have_had_an_item_before() {
        let mut snapshots = Snapshots::recovered(Some((Seqno(0), Seqno(9))));
        snapshots.begin(open(0, 9));
        snapshots.note_item();
        assert!(snapshots.close(true).is_some());
        assert_eq!(
            snapshots.around(Seqno(5)),
            Some((Seqno(0), Seqno(9))),
            "what was synced before ends inside"
        );
    }

    #[test]
    fn snapshots_of_one_item_cost_nothing() {
        let mut snapshots = Snapshots::default();
        for seqno in 0..10_000 {
            snapshots.begin(open(seqno, seqno + 1));
            snapshots.note_item();
            assert!(snapshots.close(false).is_some());
        }
        assert!(snapshots.unsynced.is_empty());
    }
}
