//! Creating a scan, on the backfill thread: gathering, choosing, sorting; noting where the documents are.

use std::cell::RefCell;

use base::{Now, Seqno, Status};
use storage::BackfillOptions;

use crate::{
    bucket::Bucket,
    history::{
        gather::{GatherStep, Gathered},
        item::FeedItem,
        scan::{Entry, Gathering, Places, Scan, Selected},
        scans::ScanSelection,
        told::FeedEnd,
    },
    memory::item::ItemRef,
    shard::Shard,
    vbucket::{failover_table::mix, version::is_due},
};

/// Lock holds per step: a few thousand documents.
const HOLDS: usize = 16;
/// Documents noted per lock hold.
const CHUNK: usize = 256;
/// Read at once when looking for a mutation by its seqno.
const LOOK_BYTES: usize = 1 << 20;

impl Bucket {
    /// Gathers on; whether there is more to do.
    pub(super) fn create_step(&self, scan: &Scan, now: Now) -> bool {
        if let Some(more) = self.create_step_on_disk(scan, now) {
            return more;
        }
        match self.gather_some(scan) {
            Ok(Some(GatherStep::More)) => true,
            Ok(Some(GatherStep::Done) | None) => {
                let gathering = scan.gathering.lock().take();
                let gathered = match gathering {
                    Some(Gathering::Table(gather, places)) => gather.finish().map(|done| (done, places)),
                    Some(Gathering::Disk(_)) | None => None,
                };
                let outcome = match gathered {
                    Some((gathered, places)) => self.select(scan, &gathered, &places, now),
                    None => Err(Status::Internal),
                };
                self.end_creation(scan, outcome);
                false
            }
            Err(end) => {
                let status = match end {
                    FeedEnd::Reset => Status::NotMyVbucket,
                    FeedEnd::TooSlow => Status::Busy,
                    FeedEnd::BackfillFailed => Status::Internal,
                };
                self.end_scan(scan, status);
                false
            }
        }
    }

    /// The same for a scan that is created from disk; `None` for others.
    fn create_step_on_disk(&self, scan: &Scan, now: Now) -> Option<bool> {
        let mut gathering = scan.gathering.lock();
        let Some(Gathering::Disk(reading)) = &mut *gathering else { return None };
        let outcome = match self.read_some(scan, reading, now) {
            Ok(None) => return Some(false),
            Ok(Some(false)) => return Some(true),
            Ok(Some(true)) => match gathering.take() {
                Some(Gathering::Disk(reading)) => self.select_read(scan, reading),
                Some(Gathering::Table(..)) | None => Err(Status::Internal),
            },
            Err(status) => Err(status),
        };
        drop(gathering);
        self.end_creation(scan, outcome);
        Some(false)
    }

    fn end_creation(&self, scan: &Scan, outcome: Result<(), Status>) {
        match outcome {
            Ok(()) => scan.become_idle().into_iter().for_each(|waiter| self.notifier.wake(waiter)),
            Err(status) => self.end_scan(scan, status),
        }
    }

    fn gather_some(&self, scan: &Scan) -> Result<Option<GatherStep>, FeedEnd> {
        let mut gathering = scan.gathering.lock();
        let (Some(Gathering::Table(gather, places)), Ok((_, shard))) = (&mut *gathering, self.slot(scan.vb))
        else {
            return Ok(None);
        };
        let mut pins = scan.pins.lock();
        let noted = RefCell::new((places, &mut *pins));
        let wanted = |item: ItemRef<'_>| {
            let is_wanted = scan.wants(item.key());
            if is_wanted
                && !item.is_resident()
                && !scan.options.keys_only
                && let Some(store) = &shard.store
            {
                // Once it is superseded nobody keeps its locator up to date.
                let (places, pins) = &mut *noted.borrow_mut();
                pins.cover(&**store);
                places.insert(item.id(), item.locator());
            }
            is_wanted
        };
        for _ in 0..HOLDS {
            let step = gather.step(self, &wanted)?;
            if step != GatherStep::More {
                return Ok(Some(step));
            }
        }
        Ok(Some(GatherStep::More))
    }

    /// From what was gathered to what is shown.
    fn select(&self, scan: &Scan, gathered: &Gathered, places: &Places, now: Now) -> Result<(), Status> {
        let (_, shard) = self.slot(scan.vb)?;
        let mut items: Vec<ItemRef<'_>> =
            gathered.items.iter().filter(|item| !is_due(item.expiry(), now)).collect();
        if items.is_empty() {
            return Err(Status::KeyNotFound);
        }
        sample(&scan.options.selection, &mut items, |item| base::hash::key_hash(item.key()));
        items.sort_unstable_by_key(|item| item.key());
        let mut selected = Selected::default();
        for item in &items {
            selected.keys.extend_from_slice(item.key());
            let entry =
                Entry { key_end: selected.keys.len(), seqno: item.seqno(), locator: storage::Locator::NONE };
            selected.entries.push(entry);
        }
        if !scan.options.keys_only {
            self.note_places(scan, shard, &items, places, &mut selected)?;
        }
        self.conclude(scan, shard, selected)
    }

    /// What is shown is known: checks what is left to check.
    pub(super) fn conclude(&self, scan: &Scan, shard: &Shard, selected: Selected) -> Result<(), Status> {
        if let Some(seqno) = scan.options.must_exist {
            must_exist(shard, scan, seqno)?;
        }
        if !self.range_scans.account(scan, selected.bytes() as u64, self.scan_bytes_max()) {
            return Err(Status::Busy);
        }
        scan.selected.set(selected).map_err(|_| Status::Internal)
    }

    /// Notes where the documents are on disk, and holds those that are not there, or not for certain.
    fn note_places(
        &self,
        scan: &Scan,
        shard: &Shard,
        items: &[ItemRef<'_>],
        places: &Places,
        selected: &mut Selected,
    ) -> Result<(), Status> {
        let Some(store) = &shard.store else { return Err(Status::NotSupported) };
        let (slot, _) = self.slot(scan.vb)?;
        let mut pins = scan.pins.lock();
        let hashed: Vec<u64> = items.iter().map(|item| base::hash::key_hash(item.key())).collect();
        for (chunk, first) in items.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
            let v = slot.vb.lock();
            for (item, index) in chunk.iter().zip(first..) {
                let (Some(entry), Some(&hash)) = (selected.entries.get_mut(index), hashed.get(index)) else {
                    continue;
                };
                if let Some(at) = places.get(&item.id()) {
                    entry.locator = *at;
                    continue;
                }
                // The same version, perhaps without its value by now. Compaction keeps locators of versions in the
                // table up to date, no others.
                let found = v.table.find(hash, item.key()).filter(|now| now.seqno() == item.seqno());
                match found.filter(|now| !now.is_dirty()) {
                    Some(now) => {
                        pins.cover(&**store);
                        entry.locator = now.locator();
                    }
                    None if item.is_resident() => {
                        selected.held.push((index, FeedItem::of_version(*item, &shard.arena, false)));
                    }
                    None => entry.locator = item.locator(),
                }
            }
        }
        Ok(())
    }
}

/// Of a sample: chooses each document with the same probability, by its key and the seed alone.
pub(super) fn sample<T>(selection: &ScanSelection, items: &mut Vec<T>, hash_of: impl Fn(&T) -> u64) {
    let &ScanSelection::Sample { samples, seed } = selection else { return };
    let all = items.len() as u64;
    if samples >= all {
        return;
    }
    // Below 2^64, since `samples` is below `all`.
    let threshold = ((u128::from(samples) << 64) / u128::from(all)) as u64;
    items.retain(|item| mix(hash_of(item) ^ mix(seed)) < threshold);
}

/// Whether a mutation that is on disk is still the newest version of its key there.
fn must_exist(shard: &Shard, scan: &Scan, seqno: Seqno) -> Result<(), Status> {
    let Some(store) = &shard.store else { return Err(Status::NotSupported) };
    let Some(before) = seqno.get().checked_sub(1) else { return Err(Status::NotStored) };
    let options = BackfillOptions { keys_only: true, ..BackfillOptions::default() };
    let mut first = None;
    let mut backfill =
        store.backfill(scan.vb, Seqno(before), options).map_err(|_| Status::TemporaryFailure)?;
    while first.is_none() {
        let more = backfill.next(LOOK_BYTES, &mut |record| first = first.or(Some(record.meta.seqno)));
        if !more.map_err(|_| Status::Internal)? {
            break;
        }
    }
    if first == Some(seqno) { Ok(()) } else { Err(Status::NotStored) }
}
