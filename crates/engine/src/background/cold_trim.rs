//! Cold keys that mean nothing any more, and how they go.
//!
//! The list of cold keys knows short hashes, not keys. So nothing can be taken off it for a collection that was dropped, or for
//! a document that was lost. Another key may have the same short hash, and without its entry it would be taken for absent. What
//! may go is counted instead. When that is much of a vBucket's list, the backfill thread makes the list anew from the keys that
//! are on disk. The new list takes the place of the old one.
//!
//! 1. The new list begins at the vBucket's last seqno B. The keys are read as of a moment when all up to B is synced.
//! 2. The keys are sorted by hash and settled a few per lock hold: what the table does not have goes on the new list.
//! 3. Meanwhile documents leave the table and come back. The new list takes part in that for versions above B, which left after
//!    it began, and for hashes that are settled. All others are settled later, by what the table has then.
//!
//! So no key is missing from the new list, and none is taken off it that is not there. A key whose document was deleted since
//! the keys were read may be on it: that makes a look-up. The pass can end at any time without harm.
//!
//! It ends early where many clients wait for the disk, or the disk cannot be read for the moment. It reads every key of the vBucket, so it
//! is not begun anew at once.

use base::{DocKey, Now, Seqno, VbId};
use storage::{BackfillOptions, RecordKind, StoreError};

use crate::{
    api::pressure::Pool,
    bucket::Bucket,
    shard::{
        Shard,
        cold_trim::{Entry, Pass, Stage},
    },
    vbucket::{VBucket, system_events::is_system_key},
};

/// Read per step.
const STEP_BYTES: usize = 256 << 10;
/// Keys settled per lock hold, and per step.
const CHUNK: usize = 64;
const STEP_KEYS: usize = 4096;
/// Fetches that are queued, from which on a pass is given up: clients go first.
const QUEUED_MAX: usize = 1_000;
/// After a pass that was given up for the moment, before the next one through its vBucket.
const REST_MILLIS: u64 = 60_000;

/// How a step of a pass ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    More,
    /// There is nothing to do for now.
    Wait,
    Done,
    /// It cannot be done for now.
    Later,
    /// It cannot be done: the vBucket was emptied, or is damaged.
    GiveUp,
}

impl Step {
    /// How a pass ends that cannot read on.
    fn failed(error: &StoreError) -> Self {
        match error {
            StoreError::Reset | StoreError::Corrupt { .. } => Self::GiveUp,
            _ => Self::Later,
        }
    }
}

impl Bucket {
    /// A step of making cold keys anew; whether there is more to do at once.
    pub(crate) fn trim_cold(&self, shard: &Shard, now: Now) -> bool {
        let Some(mut trim) = shard.cold_trim.try_lock() else { return false };
        let is_in_the_way = shard.queued_fetches() >= QUEUED_MAX;
        let pass = match trim.pass.take() {
            None if is_in_the_way => return false,
            None => trim.search.run(now, || self.begin_trim(shard, now)),
            pass => pass,
        };
        let Some(mut pass) = pass else { return false };
        let step = if is_in_the_way { Step::Later } else { self.trim_on(shard, &mut pass) };
        match step {
            Step::More | Step::Wait => trim.pass = Some(pass),
            Step::Done => {}
            Step::Later => self.with_cold(shard, pass.vb, |v| {
                (v.cold.anew, v.cold.rests_until) = (None, now.mono_millis + REST_MILLIS);
            }),
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

    fn begin_trim(&self, shard: &Shard, now: Now) -> Option<Pass> {
        shard.store.as_ref()?;
        self.vbs_of(shard).find_map(|vb| {
            let mut v = self.slot(vb).ok()?.0.vb.lock();
            let is_wanted = v.cold.is_worth_making_anew() && v.cold.rests_until <= now.mono_millis;
            if v.warming.is_some() || !is_wanted {
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
                    Ok(_) => Step::GiveUp,
                    Err(error) => Step::failed(&error),
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
                    Err(error) => return Step::failed(&error),
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
