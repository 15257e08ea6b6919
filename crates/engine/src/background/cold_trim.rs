//! Cold keys that mean nothing any more, and how they go.
//!
//! The list of cold keys knows short hashes, not keys. So nothing can be taken off it for a collection that was dropped, or for
//! a document that was lost: another key may have the same short hash, and without its entry it would be taken for absent. What
//! may go is counted instead. When that is much of a vBucket's list, the backfill thread makes the list anew from the keys that
//! are on disk, and puts it in the place of the old one.
//!
//! 1. The new list begins at the vBucket's last seqno B. The keys are read as of a moment when all up to B is synced.
//! 2. The keys are sorted by hash and settled a few per lock hold: what the table does not have goes on the new list.
//! 3. Meanwhile documents leave the table and come back. The new list takes part in that for versions above B, which left after
//!    it began, and for hashes that are settled. All others are settled later, by what the table has then.
//!
//! So no key is missing from the new list, and none is taken off it that is not there. A key whose document was deleted since
//! the keys were read may be on it: that makes a look-up. The pass can end at any time without harm.

use base::{DocKey, HashedKey, Seqno, VbId};
use storage::{Backfill, BackfillOptions, RecordKind};

use crate::{
    bucket::Bucket,
    pressure::pools::Pool,
    shard::Shard,
    vbucket::{VBucket, cold_keys::ColdKeys, system_events::is_system_key},
};

/// Fewer than so many entries are not worth the work.
const SURPLUS_MIN: u64 = 256;
/// Nor is less than this share of all of them: one in so many.
const SURPLUS_SHARE: u64 = 4;
/// Read per step.
const STEP_BYTES: usize = 256 << 10;
/// Keys settled per lock hold, and per step.
const CHUNK: usize = 64;
const STEP_KEYS: usize = 4096;
/// Fetches that are queued, from which on a pass is given up: clients go first.
const QUEUED_MAX: usize = 1_000;

/// The cold keys of a vBucket; see [`crate::vbucket::cold_keys`].
#[derive(Debug)]
pub(crate) struct ColdSet {
    keys: ColdKeys,
    /// How many of them mean nothing any more, about.
    surplus: u64,
    anew: Option<Box<Anew>>,
}

/// A list in the making.
#[derive(Debug)]
struct Anew {
    keys: ColdKeys,
    /// What has a higher seqno left the table after this began.
    begun_at: Seqno,
    /// It is complete for keys with hashes up to this one.
    settled: Option<u64>,
    /// What was known to mean nothing when this began.
    surplus: u64,
}

impl Anew {
    fn takes_part(&self, hash: u64, seqno: Seqno) -> bool {
        seqno > self.begun_at || self.settled.is_some_and(|up_to| hash <= up_to)
    }
}

impl ColdSet {
    /// None, in one of so many vBuckets.
    pub(crate) fn new(vbuckets: u16) -> Self {
        Self { keys: ColdKeys::new(vbuckets), surplus: 0, anew: None }
    }

    /// Memory that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.anew.as_ref().map_or(0, |anew| anew.keys.memory_bytes())
    }

    /// Whether a key may be among them; false is certain.
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.keys.may_contain(hash)
    }

    /// A key's version has left the table.
    pub(crate) fn insert(&mut self, hash: u64, seqno: Seqno) {
        self.keys.insert(hash);
        if let Some(anew) = self.anew.as_mut().filter(|anew| anew.takes_part(hash, seqno)) {
            anew.keys.insert(hash);
        }
    }

    /// The version of a key that had left the table is there again.
    pub(crate) fn remove(&mut self, hash: u64, seqno: Seqno) {
        self.keys.remove(hash);
        if let Some(anew) = self.anew.as_mut().filter(|anew| anew.takes_part(hash, seqno)) {
            anew.keys.remove(hash);
        }
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        (self.surplus, self.anew) = (0, None);
    }

    /// So many of them mean nothing any more.
    pub(crate) fn note_surplus(&mut self, count: u64) {
        self.surplus += count;
    }

    fn is_worth_making_anew(&self) -> bool {
        self.surplus >= SURPLUS_MIN.max(self.keys.len() / SURPLUS_SHARE)
    }

    fn begin_anew(&mut self, begun_at: Seqno) {
        let keys = self.keys.none_of_its_kind();
        self.anew = Some(Box::new(Anew { keys, begun_at, settled: None, surplus: self.surplus }));
    }

    /// The new list is complete.
    fn end_anew(&mut self) {
        if let Some(anew) = self.anew.take() {
            self.keys = anew.keys;
            self.surplus = self.surplus.saturating_sub(anew.surplus);
        }
    }
}

/// The pass that a shard is in.
#[derive(Default)]
pub(crate) struct ColdTrim {
    pass: Option<Pass>,
    /// Its memory, as the pools know it.
    accounted: u64,
}

struct Pass {
    vb: VbId,
    begun_at: Seqno,
    stage: Stage,
    keys: Vec<u8>,
    found: Vec<Entry>,
}

enum Stage {
    /// Until everything up to the seqno that it began at is synced.
    Waiting,
    Reading(Box<dyn Backfill>),
    /// So many are settled.
    Settling(usize),
}

#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    start: usize,
    length: u8,
}

/// How a step of a pass ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    More,
    /// There is nothing to do for now.
    Wait,
    Done,
    /// It cannot be done: the vBucket was emptied, or is damaged.
    GiveUp,
}

impl Pass {
    fn memory_bytes(&self) -> u64 {
        let backfill = if let Stage::Reading(backfill) = &self.stage { backfill.memory_bytes() } else { 0 };
        (backfill + self.keys.capacity() + self.found.capacity() * size_of::<Entry>()) as u64
    }

    fn key(&self, entry: Entry) -> HashedKey<'_> {
        let key = self.keys.get(entry.start..entry.start + usize::from(entry.length)).unwrap_or_default();
        HashedKey { key: DocKey::trusted(key), hash: entry.hash }
    }
}

impl Bucket {
    /// A step of making cold keys anew; whether there is more to do at once.
    pub(crate) fn trim_cold(&self, shard: &Shard) -> bool {
        let Some(mut trim) = shard.cold_trim.try_lock() else { return false };
        let Some(mut pass) = trim.pass.take().or_else(|| self.begin_trim(shard)) else { return false };
        let is_in_the_way = shard.queued_fetches() >= QUEUED_MAX;
        let step = if is_in_the_way { Step::Done } else { self.trim_on(shard, &mut pass) };
        if is_in_the_way {
            self.with_cold(shard, pass.vb, |v| v.cold.anew = None);
        }
        match step {
            Step::More | Step::Wait => trim.pass = Some(pass),
            Step::Done => {}
            Step::GiveUp => self.with_cold(shard, pass.vb, |v| {
                // Until as many more mean nothing.
                (v.cold.anew, v.cold.surplus) = (None, 0);
            }),
        }
        let held = trim.pass.as_ref().map_or(0, Pass::memory_bytes);
        shard.pools.exchange(Pool::ColdIndex, std::mem::replace(&mut trim.accounted, held), held);
        // Behind this vBucket there may be another one.
        step != Step::Wait && !is_in_the_way
    }

    fn with_cold(&self, shard: &Shard, vb: VbId, change: impl FnOnce(&mut VBucket)) {
        let Ok((slot, _)) = self.slot(vb) else { return };
        let mut v = slot.vb.lock();
        let before = v.cold.memory_bytes() as u64;
        change(&mut v);
        shard.pools.exchange(Pool::ColdIndex, before, v.cold.memory_bytes() as u64);
    }

    fn begin_trim(&self, shard: &Shard) -> Option<Pass> {
        shard.store.as_ref()?;
        self.vbs_of(shard).find_map(|vb| {
            let mut v = self.slot(vb).ok()?.0.vb.lock();
            if v.warming.is_some() || !v.cold.is_worth_making_anew() {
                return None;
            }
            let begun_at = v.high_seqno;
            v.cold.begin_anew(begun_at);
            Some(Pass { vb, begun_at, stage: Stage::Waiting, keys: Vec::new(), found: Vec::new() })
        })
    }

    fn trim_on(&self, shard: &Shard, pass: &mut Pass) -> Step {
        let (Ok((slot, _)), Some(store)) = (self.slot(pass.vb), &shard.store) else { return Step::GiveUp };
        match &mut pass.stage {
            Stage::Waiting => {
                let (is_on, persisted) = {
                    let v = slot.vb.lock();
                    (v.cold.anew.is_some(), v.persisted_seqno)
                };
                if !is_on {
                    return Step::Done;
                }
                if persisted < pass.begun_at {
                    return Step::Wait;
                }
                let options =
                    BackfillOptions { unordered: true, keys_only: true, ..BackfillOptions::default() };
                match store.backfill(pass.vb, Seqno(0), options) {
                    Ok(backfill) if backfill.end() >= pass.begun_at => {
                        pass.stage = Stage::Reading(backfill);
                        Step::More
                    }
                    _ => Step::GiveUp,
                }
            }
            Stage::Reading(backfill) => {
                let collections = self.collections.load();
                let (keys, found) = (&mut pass.keys, &mut pass.found);
                let more = backfill.next(STEP_BYTES, &mut |record| {
                    let is_alive = record.meta.kind == RecordKind::Document
                        && !is_system_key(record.key)
                        && !collections.is_dropped(DocKey::trusted(record.key).collection());
                    if is_alive {
                        found.push(Entry {
                            hash: record.hash,
                            start: keys.len(),
                            length: record.key.len() as u8,
                        });
                        keys.extend_from_slice(record.key);
                    }
                });
                match more {
                    Ok(true) => {}
                    Ok(false) => {
                        pass.found.sort_unstable_by_key(|entry| entry.hash);
                        pass.stage = Stage::Settling(0);
                    }
                    Err(_) => return Step::GiveUp,
                }
                Step::More
            }
            Stage::Settling(settled) => {
                let from = *settled;
                self.settle_anew(shard, pass, from)
            }
        }
    }

    /// Settles some of a pass's keys.
    fn settle_anew(&self, shard: &Shard, pass: &mut Pass, from: usize) -> Step {
        let (mut at, mut step) = (from, Step::More);
        while at < pass.found.len().min(from + STEP_KEYS) && step == Step::More {
            let rest = pass.found.get(at..).unwrap_or_default();
            // Equal hashes are settled together.
            let last = rest.get(CHUNK - 1).or(rest.last()).map_or(0, |entry| entry.hash);
            let chunk = rest.get(..rest.partition_point(|entry| entry.hash <= last)).unwrap_or_default();
            self.with_cold(shard, pass.vb, |v| {
                let on_disk = |entry: &&Entry| {
                    let key = pass.key(**entry);
                    v.table.find(key.hash, key.key.encoded()).is_none()
                };
                let absent: Vec<u64> = chunk.iter().filter(on_disk).map(|entry| entry.hash).collect();
                match &mut v.cold.anew {
                    Some(anew) => {
                        absent.into_iter().for_each(|hash| anew.keys.insert(hash));
                        anew.settled = Some(last);
                    }
                    None => step = Step::Done,
                }
            });
            at += chunk.len();
        }
        if step == Step::More && at >= pass.found.len() {
            self.with_cold(shard, pass.vb, |v| v.cold.end_anew());
            return Step::Done;
        }
        pass.stage = Stage::Settling(at);
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_in_the_making_takes_part_in_what_it_knows() {
        let mut cold = ColdSet::new(1024);
        let hash = |number: u64| number << 40;
        (1..=10).for_each(|number| cold.insert(hash(number), Seqno(number)));
        cold.note_surplus(5);
        cold.begin_anew(Seqno(10));
        // Not settled: it is found by what the table has when it is.
        cold.remove(hash(7), Seqno(7));
        // Another key with one's short hash leaves with a later version, and comes back.
        cold.insert(hash(8), Seqno(11));
        cold.remove(hash(8), Seqno(11));
        cold.insert(hash(9), Seqno(12));
        if let Some(anew) = &mut cold.anew {
            [1, 2].into_iter().for_each(|number| anew.keys.insert(hash(number)));
            anew.settled = Some(hash(2));
        }
        cold.remove(hash(1), Seqno(1));
        cold.insert(hash(1), Seqno(1));
        cold.remove(hash(2), Seqno(2));
        if let Some(anew) = &mut cold.anew {
            [8, 9].into_iter().for_each(|number| anew.keys.insert(hash(number)));
        }
        cold.note_surplus(1);
        cold.end_anew();
        let left: Vec<u64> = (1..=10).filter(|&number| cold.may_contain(hash(number))).collect();
        assert_eq!((left, cold.keys.len(), cold.surplus), (vec![1, 8, 9], 4, 1));
    }
}
