//! Reading a scan on: a worker takes what is at hand, the backfill thread reads the rest from disk ahead of it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{HashedKey, Status};
use storage::{KvStore, Locator, OwnedRecord, Record, StoreError};

use crate::{
    bucket::Bucket,
    history::{
        item::FeedItem,
        scan::{Fetched, Scan, Selected},
        scans::ScanHold,
    },
    memory::arena::Arena,
    vbucket::VBucket,
};

/// Documents taken at once, under one lock hold.
const BATCH: usize = 32;
/// What the backfill thread reads ahead at once.
const AHEAD_ITEMS: usize = 256;
const AHEAD_BYTES: usize = 1 << 20;
/// Entries it looks through for something to read.
const AHEAD_ENTRIES: usize = 4096;

/// How much to read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// Keys or documents.
    pub items_max: u64,
    /// Bytes of keys and values after which to stop. One document is read in any case.
    pub bytes_max: u64,
}

/// How far reading got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// As far as the limits.
    More,
    /// What comes next is on disk: the waiter is woken when it has been read.
    Wait,
    /// To the end: the scan is over.
    Complete,
}

/// A document at hand.
enum Taken<'s> {
    Own(FeedItem),
    /// Held by the scan.
    Borrowed(&'s FeedItem),
}

impl Deref for Taken<'_> {
    type Target = FeedItem;

    fn deref(&self) -> &FeedItem {
        match self {
            Self::Own(item) => item,
            Self::Borrowed(item) => item,
        }
    }
}

impl Bucket {
    /// Reads a scan on. `visit` gets logical keys in order, with the document unless the scan is of keys alone; it is
    /// called outside every lock.
    ///
    /// # Errors
    /// Why the scan is over: `RangeScanCancelled`, `UnknownCollection`, `NotMyVbucket`; `Internal` or `TemporaryFailure` when
    /// a document cannot be read.
    pub fn read_scan(
        &self,
        hold: &ScanHold,
        limits: ScanLimits,
        visit: &mut dyn FnMut(&[u8], Option<&FeedItem>),
    ) -> Result<ScanStep, Status> {
        let scan = hold.scan();
        self.check_scan(scan)?;
        let (from, mut at_hand) = scan.begin_read()?;
        let Some(selected) = scan.selected.get() else { return Err(Status::Internal) };
        let mut tally = Tally { limits, items: 0, bytes: 0 };
        let mut position = from;
        while position < selected.entries.len() && !tally.is_full() {
            let before = position;
            if scan.options.keys_only {
                let key = selected.key(position).logical();
                visit(key, None);
                tally.count(key.len());
                position += 1;
            } else {
                let batch = self.take(scan, selected, position, tally.room(), &mut at_hand)?;
                let mut batch = batch.into_iter();
                for item in batch.by_ref() {
                    let key = selected.key(position).logical();
                    visit(key, Some(&item));
                    tally.count(key.len() + item.value().len());
                    position += 1;
                    if tally.is_full() {
                        break;
                    }
                }
                leave(batch, position, &mut at_hand);
            }
            if position == before {
                break;
            }
        }
        scan.end_read(position, at_hand);
        Ok(if position == selected.entries.len() {
            hold.release();
            self.end_scan(scan, Status::RangeScanComplete);
            ScanStep::Complete
        } else if tally.is_full() {
            ScanStep::More
        } else {
            self.queue_scan(scan);
            ScanStep::Wait
        })
    }

    /// Takes the documents of consecutive entries, until one is neither at hand nor in the table.
    fn take<'s>(
        &self,
        scan: &Scan,
        selected: &'s Selected,
        from: usize,
        most: usize,
        at_hand: &mut Fetched,
    ) -> Result<Vec<Taken<'s>>, Status> {
        let (slot, shard) = self.slot(scan.vb)?;
        let mut taken = Vec::with_capacity(most);
        let v = slot.vb.lock();
        for index in from..(from + most).min(selected.entries.len()) {
            while at_hand.front().is_some_and(|document| document.0 < index) {
                at_hand.pop_front();
            }
            let next = match at_hand.pop_front_if(|document| document.0 == index) {
                Some((_, item)) => Some(Taken::Own(item)),
                None => match selected.held(index) {
                    Some(held) => Some(Taken::Borrowed(held)),
                    None => in_table(&v, selected, index, &shard.arena).map(Taken::Own),
                },
            };
            match next {
                Some(item) => taken.push(item),
                None => break,
            }
        }
        Ok(taken)
    }

    /// Reads from disk what the reader of a scan will want next, and wakes it.
    pub(super) fn fetch_step(&self, scan: &Scan) {
        let (Ok((slot, shard)), Some(selected)) = (self.slot(scan.vb), scan.selected.get()) else { return };
        let Some(store) = &shard.store else { return };
        let from = scan.position();
        let (mut documents, mut bytes) = (Fetched::new(), 0);
        for index in from..(from + AHEAD_ENTRIES).min(selected.entries.len()) {
            if documents.len() >= AHEAD_ITEMS || bytes >= AHEAD_BYTES {
                break;
            }
            let is_at_hand = selected.held(index).is_some()
                || in_table(&slot.vb.lock(), selected, index, &shard.arena).is_some();
            if is_at_hand {
                continue;
            }
            match read_version(&**store, scan, selected, index) {
                Ok(record) => {
                    scan.from_disk.fetch_add(1, Ordering::Relaxed);
                    let item = FeedItem::of_record(&view(&record), false);
                    bytes += item.bytes();
                    documents.push_back((index, item));
                }
                // The reader comes back for it when it has what lies before.
                Err(_) if index > from => break,
                Err(status) => return self.end_scan(scan, status),
            }
        }
        if let Some(waiter) = scan.offer(documents) {
            self.notifier.wake(waiter);
        }
    }
}

/// What one call may still read.
struct Tally {
    limits: ScanLimits,
    items: u64,
    bytes: u64,
}

impl Tally {
    fn is_full(&self) -> bool {
        self.items >= self.limits.items_max || (self.items > 0 && self.bytes >= self.limits.bytes_max)
    }

    fn count(&mut self, bytes: usize) {
        self.items += 1;
        self.bytes += bytes as u64;
    }

    /// Documents to take at once.
    fn room(&self) -> usize {
        (self.limits.items_max - self.items).min(BATCH as u64) as usize
    }
}

/// Puts documents that were taken for entries from `position` on back to what is at hand.
fn leave<'s>(
    rest: impl DoubleEndedIterator<Item = Taken<'s>> + ExactSizeIterator,
    position: usize,
    at_hand: &mut Fetched,
) {
    let end = position + rest.len();
    for (item, index) in rest.rev().zip((position..end).rev()) {
        if let Taken::Own(item) = item {
            at_hand.push_front((index, item));
        }
    }
}

/// The version of an entry, if the table still has it with its value.
fn in_table(v: &VBucket, selected: &Selected, index: usize, arena: &Arc<Arena>) -> Option<FeedItem> {
    let key = HashedKey::new(selected.key(index));
    let entry = selected.entries.get(index)?;
    let item = v.table.find(key.hash, key.key.encoded())?;
    let is_it = item.seqno() == entry.seqno && item.is_resident() && !item.is_deleted();
    is_it.then(|| FeedItem::of_version(item, arena, false))
}

/// The version of an entry, from where it was on disk.
fn read_version(
    store: &dyn KvStore,
    scan: &Scan,
    selected: &Selected,
    index: usize,
) -> Result<OwnedRecord, Status> {
    let Some(entry) = selected.entries.get(index) else { return Err(Status::Internal) };
    let key = HashedKey::new(selected.key(index));
    let is_it = |record: &OwnedRecord| record.meta.seqno == entry.seqno && *record.key == *key.key.encoded();
    if !entry.locator.is_none()
        && let Some(record) =
            scan.pins.lock().find(entry.locator, is_it).map_err(|error| status_of(&error))?
    {
        return Ok(record);
    }
    let newest = store.lookup(scan.vb, key.key.encoded()).map_err(|error| status_of(&error))?;
    newest.filter(is_it).ok_or(Status::RangeScanCancelled)
}

fn view(record: &OwnedRecord) -> Record<'_> {
    Record {
        meta: record.meta,
        key: &record.key,
        hash: base::hash::key_hash(&record.key),
        value: &record.value,
        replaces: Locator::NONE,
    }
}

fn status_of(error: &StoreError) -> Status {
    match error {
        StoreError::Io { .. } | StoreError::Stale => Status::TemporaryFailure,
        _ => Status::Internal,
    }
}
