//! A vBucket's newest mutations in seqno order, and the cursors that read them.
//!
//! Each entry is a counted reference. So a version lives until it is synced and read by every cursor, even when the
//! table has a newer one. Entries leave at the front only, once the persistence cursor and all others have passed them.
//! A superseded version is marked stale, not removed: its superseder is further back in the same queue.
//!
//! The *persistence cursor* is part of the checkpoint. What it has not passed it never gives up; writers are refused
//! instead when the shard's queues grow beyond their share of memory. The flusher is lent the entries that it takes; they
//! stay queued until it has published them ([`Checkpoint::published`]) or failed to ([`Checkpoint::untake`]). Where there
//! is no disk everything counts as persisted, and nothing is queued while there is no cursor. What is not on loan the
//! defragmenter may move, and then changes the entry ([`Checkpoint::entry_of`]).
//!
//! Other *cursors* belong to feeds. One that is too far behind loses its place ([`Checkpoint::lose_slowest`]), but only
//! for what is synced: its feed reads that from disk. A feed that reads from disk keeps its slot without a place.
//!
//! Positions are counts of what has ever been queued. The bytes that go with a position are exact at both ends and at the
//! persistence cursor. They are estimated where a cursor began in the middle.

use std::collections::VecDeque;

use base::Seqno;

use crate::{
    api::notify::Waiter,
    memory::item::{ItemId, ItemLoan, ItemPtr, ItemRef},
    shard::Shard,
};

/// Queues with more room than this when they run empty give it back.
const IDLE_CAPACITY_MAX: usize = 64;

/// A position: what has ever been queued before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    entries: u64,
    bytes: u64,
}

/// Names a cursor until it is unregistered or the vBucket's contents are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CursorId(usize);

/// Where a cursor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The next entry to read, which is the first one above `seqno`. With `keeps` it is not taken away.
    At { mark: Mark, seqno: Seqno, keeps: bool },
    /// Its feed reads elsewhere, or will when it finds that it lost its place.
    Away,
}

#[derive(Clone, Debug)]
struct Cursor {
    place: Place,
    /// To be woken once when there is news.
    waiter: Option<Waiter>,
}

#[derive(Debug, Default)]
struct Cursors {
    slots: Vec<Option<Cursor>>,
    /// Those with a place.
    placed: usize,
    /// One with a place may have a waiter.
    is_awaited: bool,
}

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    queue: VecDeque<ItemPtr>,
    /// The front of the queue.
    base: Mark,
    /// The persistence cursor.
    persisted: Mark,
    /// Up to here the flusher has taken.
    taken: Mark,
    /// Bytes ever queued.
    queued_bytes: u64,
    /// Which entries commit a prepare, by position, with the prepare's seqno.
    commits: VecDeque<(u64, Seqno)>,
    /// Present while there are any.
    cursors: Option<Box<Cursors>>,
}

impl Checkpoint {
    fn tail(&self) -> Mark {
        Mark { entries: self.base.entries + self.queue.len() as u64, bytes: self.queued_bytes }
    }

    /// Entries the flusher has not taken.
    pub(crate) fn dirty_len(&self) -> u64 {
        self.tail().entries - self.taken.entries
    }

    /// Whether the flusher has taken everything.
    #[inline]
    pub(crate) fn is_clean(&self) -> bool {
        self.dirty_len() == 0
    }

    /// Bytes of the entries that the flusher has not taken.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.queued_bytes - self.taken.bytes
    }

    /// Entries that have been queued, ever, and those that have been synced or need not be.
    pub(crate) fn filled_and_drained(&self) -> (u64, u64) {
        (self.tail().entries, self.persisted.entries)
    }

    /// Bytes of entries that are not synced, the flusher's included.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.queued_bytes - self.persisted.bytes
    }

    /// Entries in the flusher's hands.
    pub(crate) fn in_flight(&self) -> u64 {
        self.taken.entries - self.persisted.entries
    }

    /// Bytes of entries that are queued for cursors only.
    pub(crate) fn cursor_bytes(&self) -> u64 {
        self.persisted.bytes.saturating_sub(self.base.bytes)
    }

    /// Bytes of everything that is queued.
    pub(crate) fn bytes(&self) -> u64 {
        self.queued_bytes.saturating_sub(self.base.bytes)
    }

    /// Entries that have left the queue, ever.
    pub(crate) fn removed(&self) -> u64 {
        self.base.entries
    }

    /// Bytes of the queue itself.
    pub(crate) fn overhead_bytes(&self) -> u64 {
        let slots = self.cursors.as_ref().map_or(0, |cursors| cursors.slots.capacity());
        let commits = self.commits.capacity() * size_of::<(u64, Seqno)>();
        (self.queue.capacity() * size_of::<ItemPtr>() + commits + slots * size_of::<Option<Cursor>>()) as u64
    }

    /// Whether somebody besides the flusher reads the queue.
    #[inline]
    pub(crate) fn is_followed(&self) -> bool {
        self.cursors.as_ref().is_some_and(|cursors| cursors.placed > 0)
    }

    /// How many feeds there are.
    pub(crate) fn cursors(&self) -> usize {
        self.cursors.as_ref().map_or(0, |cursors| cursors.slots.iter().flatten().count())
    }

    /// Appends a version that was just published. `is_dirty`: the flusher is to write it. False when its reference count
    /// is exhausted, which cannot be: nobody else has seen it yet.
    #[inline]
    pub(crate) fn push(&mut self, item: ItemRef<'_>, is_dirty: bool) -> bool {
        let Some(held) = item.hold() else { return false };
        self.queued_bytes += item.bytes() as u64;
        self.queue.push_back(held);
        if !is_dirty {
            self.taken = self.tail();
            self.persisted = self.taken;
        }
        true
    }

    /// The last entry commits a prepare.
    pub(crate) fn note_commit(&mut self, prepared: Seqno) {
        if let Some(last) = self.tail().entries.checked_sub(1).filter(|last| *last >= self.base.entries) {
            self.commits.push_back((last, prepared));
        }
    }

    /// The prepare that the entry at a position commits; zero if it does not.
    fn commit_at(&self, position: u64) -> Seqno {
        if self.commits.is_empty() {
            return Seqno(0);
        }
        let found = self.commits.binary_search_by_key(&position, |commit| commit.0);
        found.ok().and_then(|index| self.commits.get(index)).map_or(Seqno(0), |commit| commit.1)
    }

    /// The queue's reference to an item with this seqno; none when the queue has no such item or the flusher has it on loan.
    /// The item may be moved, if the mover changes the reference.
    pub(crate) fn entry_of(
        &mut self,
        seqno: Seqno,
        id: ItemId,
        seqno_of: impl Fn(&ItemPtr) -> Seqno,
    ) -> Option<&mut ItemPtr> {
        // Seqnos mostly rise by one from entry to entry: the others need not be looked at.
        let likely = seqno.get().checked_sub(seqno_of(self.queue.front()?).get())? as usize;
        let place = match self.queue.get(likely) {
            Some(entry) if entry.id() == id => likely,
            _ => self.queue.binary_search_by_key(&seqno, seqno_of).ok()?,
        };
        let lent = self.persisted.entries..self.taken.entries;
        let is_lent = lent.contains(&(self.base.entries + place as u64));
        self.queue.get_mut(place).filter(|entry| entry.id() == id && !is_lent)
    }

    // ---- the persistence cursor -----------------------------------------------------------------------------------

    /// Lends the flusher the oldest entries that it has not taken. They are about `bytes_max` (by `bytes_of`), but at
    /// least one and no more than `items_max`. Usually that is everything.
    pub(crate) fn take(
        &mut self,
        bytes_max: u64,
        items_max: usize,
        bytes_of: impl Fn(&ItemPtr) -> u64,
    ) -> Vec<ItemLoan> {
        let first = (self.taken.entries - self.base.entries) as usize;
        if self.dirty_bytes() <= bytes_max && self.queue.len() - first <= items_max {
            self.taken = self.tail();
            return self.queue.range(first..).map(ItemPtr::lend).collect();
        }
        let mut loans = Vec::new();
        let mut sum = 0;
        for item in self.queue.range(first..).take(items_max) {
            let bytes = bytes_of(item);
            if !loans.is_empty() && sum + bytes > bytes_max {
                break;
            }
            sum += bytes;
            loans.push(item.lend());
        }
        self.taken.entries += loans.len() as u64;
        self.taken.bytes += sum;
        loans
    }

    /// What was taken could not be written.
    pub(crate) fn untake(&mut self) {
        self.taken = self.persisted;
    }

    /// What was taken is synced. Returns the entries that nobody needs any more, to be released outside the lock.
    #[must_use]
    pub(crate) fn published(&mut self) -> Vec<ItemPtr> {
        self.persisted = self.taken;
        self.trim()
    }

    /// Takes out what every cursor has passed.
    #[must_use]
    fn trim(&mut self) -> Vec<ItemPtr> {
        let places = self.cursors.iter().flat_map(|cursors| cursors.marks());
        let to = places.fold(self.persisted, |slowest, mark| slowest.min(mark));
        let count = to.entries.saturating_sub(self.base.entries) as usize;
        if count == 0 {
            return Vec::new();
        }
        self.base = to;
        while self.commits.front().is_some_and(|commit| commit.0 < to.entries) {
            self.commits.pop_front();
        }
        if count < self.queue.len() {
            return self.queue.drain(..count).collect();
        }
        if self.queue.capacity() > IDLE_CAPACITY_MAX {
            return std::mem::take(&mut self.queue).into();
        }
        self.queue.drain(..).collect()
    }

    /// Forgets everything: the contents of the vBucket are dropped. Cursors become invalid; returns what to release and
    /// whom to wake.
    #[must_use]
    pub(crate) fn clear(&mut self) -> (Vec<ItemPtr>, Vec<Waiter>) {
        self.base = self.tail();
        (self.taken, self.persisted) = (self.base, self.base);
        let waiters = self.wake_all();
        self.cursors = None;
        self.commits = VecDeque::new();
        (std::mem::take(&mut self.queue).into(), waiters)
    }

    // ---- cursors --------------------------------------------------------------------------------------------------

    /// A new cursor, without a place.
    #[expect(clippy::indexing_slicing, reason = "`free` is a position in the same list")]
    pub(crate) fn register(&mut self) -> CursorId {
        let slots = &mut self.cursors.get_or_insert_default().slots;
        let cursor = Some(Cursor { place: Place::Away, waiter: None });
        if let Some(free) = slots.iter().position(Option::is_none) {
            slots[free] = cursor;
            return CursorId(free);
        }
        slots.push(cursor);
        CursorId(slots.len() - 1)
    }

    /// Ends a cursor. Returns what to release.
    #[must_use]
    pub(crate) fn unregister(&mut self, id: CursorId) -> Vec<ItemPtr> {
        self.set_place(id, Place::Away);
        if let Some(cursors) = &mut self.cursors {
            if let Some(slot) = cursors.slots.get_mut(id.0) {
                *slot = None;
            }
            while cursors.slots.last().is_some_and(Option::is_none) {
                cursors.slots.pop();
            }
            if cursors.slots.is_empty() {
                self.cursors = None;
            }
        }
        self.trim()
    }

    /// The seqno above which every mutation is queued.
    pub(crate) fn floor(&self, shard: &Shard, high_seqno: Seqno) -> Seqno {
        match self.queue.front() {
            Some(first) => Seqno(shard.item(first).seqno().get().saturating_sub(1)),
            None => high_seqno,
        }
    }

    /// Puts a cursor in front of the first entry above `seqno`. With `keeps` it does not lose that place. Returns what to
    /// release.
    #[must_use]
    pub(crate) fn place(&mut self, id: CursorId, shard: &Shard, seqno: Seqno, keeps: bool) -> Vec<ItemPtr> {
        let tail = self.tail();
        let first = self.queue.partition_point(|item| shard.item(item).seqno() <= seqno);
        let entries = self.base.entries + first as u64;
        let mark = [self.base, self.persisted, tail].into_iter().find(|known| known.entries == entries);
        let mark = mark.unwrap_or_else(|| Mark {
            entries,
            bytes: self.base.bytes + self.bytes() / self.queue.len().max(1) as u64 * first as u64,
        });
        self.set_place(id, Place::At { mark, seqno, keeps });
        self.trim()
    }

    /// Takes a cursor's place away. Returns what to release, and whom to wake, who waits for what would come there.
    #[must_use]
    pub(crate) fn withdraw(&mut self, id: CursorId) -> (Vec<ItemPtr>, Option<Waiter>) {
        self.set_place(id, Place::Away);
        let slot = self.cursors.as_mut().and_then(|cursors| cursors.slots.get_mut(id.0));
        let waiter = slot.and_then(Option::as_mut).and_then(|cursor| cursor.waiter.take());
        (self.trim(), waiter)
    }

    fn set_place(&mut self, id: CursorId, place: Place) {
        let Some(cursors) = &mut self.cursors else { return };
        let Some(Some(cursor)) = cursors.slots.get_mut(id.0) else { return };
        cursors.placed -= usize::from(matches!(cursor.place, Place::At { .. }));
        cursors.placed += usize::from(matches!(place, Place::At { .. }));
        cursor.place = place;
    }

    fn cursor(&self, id: CursorId) -> Option<&Cursor> {
        self.cursors.as_ref()?.slots.get(id.0)?.as_ref()
    }

    /// The seqno that a cursor's place is behind, if it has a place (still): what it reads next begins right above.
    pub(crate) fn place_of(&self, id: CursorId) -> Option<Seqno> {
        match self.cursor(id)?.place {
            Place::At { seqno, .. } => Some(seqno),
            Place::Away => None,
        }
    }

    /// Moves a cursor on over entries up to the seqno `to`: about `bytes_max` bytes and at most `entries_max` of them,
    /// but at least one. Visits them, each with the seqno of the prepare that it commits (zero: of none). Returns the
    /// last seqno visited and what to release; `None` when the cursor has no place.
    pub(crate) fn read(
        &mut self,
        id: CursorId,
        shard: &Shard,
        to: Seqno,
        (entries_max, bytes_max): (usize, u64),
        mut visit: impl FnMut(ItemRef<'_>, Seqno),
    ) -> Option<(Option<Seqno>, Vec<ItemPtr>)> {
        let Place::At { mut mark, seqno, keeps } = self.cursor(id)?.place else { return None };
        let was_slowest = mark.entries == self.base.entries;
        let (mut entries, mut bytes, mut last) = (0, 0, None);
        let first = (mark.entries - self.base.entries) as usize;
        for item in self.queue.range(first..).map(|item| shard.item(item)) {
            let more = bytes + item.bytes() as u64;
            if item.seqno() > to || entries == entries_max || (entries > 0 && more > bytes_max) {
                break;
            }
            (entries, bytes, last) = (entries + 1, more, Some(item.seqno()));
            visit(item, self.commit_at(mark.entries + entries as u64 - 1));
        }
        mark.entries += entries as u64;
        mark.bytes += bytes;
        let known = [self.persisted, self.tail()].into_iter().find(|known| known.entries == mark.entries);
        let (mark, seqno) = (known.unwrap_or(mark), last.unwrap_or(seqno));
        self.set_place(id, Place::At { mark, seqno, keeps });
        Some((last, if was_slowest { self.trim() } else { Vec::new() }))
    }

    /// Has the owner of a cursor that has a place woken, once: by the next entry, or as [`Checkpoint::await_drop`].
    pub(crate) fn await_entry(&mut self, id: CursorId, waiter: Waiter) {
        self.await_drop(id, waiter);
        if let Some(cursors) = &mut self.cursors {
            cursors.is_awaited = true;
        }
    }

    /// Has a cursor's owner woken, once: when it loses its place, or the contents are dropped.
    pub(crate) fn await_drop(&mut self, id: CursorId, waiter: Waiter) {
        let slots = self.cursors.iter_mut().map(|cursors| &mut cursors.slots);
        for cursor in slots.filter_map(|slots| slots.get_mut(id.0)).flatten() {
            cursor.waiter = Some(waiter);
        }
    }

    /// There is something to read: whom to wake.
    pub(crate) fn wake_readers(&mut self) -> impl Iterator<Item = Waiter> {
        let cursors = self.cursors.as_deref_mut();
        let awaited = cursors.and_then(|cursors| std::mem::take(&mut cursors.is_awaited).then_some(cursors));
        awaited.into_iter().flat_map(|cursors| {
            let slots = cursors.slots.iter_mut().flatten();
            slots.filter(|cursor| matches!(cursor.place, Place::At { .. })).filter_map(|c| c.waiter.take())
        })
    }

    /// Everybody is to look again: whom to wake.
    pub(crate) fn wake_all(&mut self) -> Vec<Waiter> {
        let slots = self.cursors.iter_mut().flat_map(|cursors| cursors.slots.iter_mut().flatten());
        slots.filter_map(|cursor| cursor.waiter.take()).collect()
    }

    /// Takes the place from the cursor that is furthest behind, if that frees anything. Returns what to release and whom
    /// to wake.
    pub(crate) fn lose_slowest(&mut self) -> Option<(Vec<ItemPtr>, Option<Waiter>)> {
        let persisted = self.persisted.entries;
        let cursors = self.cursors.as_mut()?;
        let behind = cursors.slots.iter_mut().flatten().filter_map(|cursor| match cursor.place {
            Place::At { mark, keeps: false, .. } if mark.entries < persisted => Some((mark, cursor)),
            _ => None,
        });
        let (_, slowest) = behind.min_by_key(|entry| entry.0)?;
        slowest.place = Place::Away;
        let waiter = slowest.waiter.take();
        cursors.placed -= 1;
        Some((self.trim(), waiter))
    }
}

impl Cursors {
    fn marks(&self) -> impl Iterator<Item = Mark> {
        self.slots.iter().flatten().filter_map(|cursor| match cursor.place {
            Place::At { mark, .. } => Some(mark),
            Place::Away => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{
        arena::Arena,
        item::{ItemMeta, NewItem},
    };

    #[test]
    fn an_entry_is_found_by_its_seqno_unless_the_flusher_has_it() {
        let arena = Arena::with_reserve(1 << 26).unwrap();
        // SAFETY: all items are of this arena, and the queue holds them.
        let seqno_of = |entry: &ItemPtr| unsafe { entry.get(&arena) }.seqno();
        let mut checkpoint = Checkpoint::default();
        let seqnos = [5, 6, 7, 10, 11].map(Seqno);
        let items = seqnos.map(|seqno| {
            let new = NewItem::new(&arena, &ItemMeta { seqno, ..ItemMeta::default() }, b"\0k", b"v").unwrap();
            let item = ItemPtr::from_handle(new.publish());
            // SAFETY: as above.
            assert!(checkpoint.push(unsafe { item.get(&arena) }, true));
            item
        });
        let found = |checkpoint: &mut Checkpoint| {
            let ids = seqnos.iter().zip(&items).map(|(&seqno, item)| (seqno, item.id()));
            ids.map(|(seqno, id)| checkpoint.entry_of(seqno, id, seqno_of).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(found(&mut checkpoint), [true; 5]);
        assert_eq!(checkpoint.take(u64::MAX, 2, |_| 1).len(), 2);
        assert_eq!(found(&mut checkpoint), [false, false, true, true, true]);
        checkpoint.untake();
        assert_eq!(found(&mut checkpoint), [true; 5]);
        assert_eq!(checkpoint.take(u64::MAX, 4, |_| 1).len(), 4);
        let passed = checkpoint.published();
        assert_eq!(found(&mut checkpoint), [false, false, false, false, true]);
        assert_eq!(checkpoint.entry_of(Seqno(11), items[3].id(), seqno_of), None, "another version's");
        let rest = checkpoint.clear().0;
        // SAFETY: as above.
        passed.into_iter().chain(rest).chain(items).for_each(|item| unsafe { item.release(&arena) });
        assert_eq!(arena.used_bytes(), 0);
    }
}
