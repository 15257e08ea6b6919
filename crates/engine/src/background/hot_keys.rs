//! What is used most, remembered over a restart, so that warm-up can load it first.
//!
//! Per shard a list of keys with their frequencies, most frequent first, of at most [`LIST_BYTES_MAX`], kept by the store
//! as its hints. It is made by a walk through the tables, a few documents per lock hold, every [`RECORD_EVERY_MILLIS`] and
//! when the bucket is closed. Only what was used after it was written or loaded is listed. When the list is full, the
//! least frequent that it holds leave it, and nothing as infrequent is listed any more.
//!
//! The list is advice: it may be out of date, lost or damaged. A key that has gone since is looked up and not found.

use std::sync::atomic::Ordering;

use base::{DocKey, HashedKey, Now, VbId};
use storage::{KvStore, StoreError};

use crate::{
    api::stats::{Budget, StepReport},
    bucket::Bucket,
    memory::hash_table::ScanPosition,
    pressure::pools::Pool,
    shard::{Env, Shard},
    vbucket::{FREQUENCY_INITIAL, system_events::is_system_key},
};

/// How often a list is made.
const RECORD_EVERY_MILLIS: u64 = 10 * 60 * 1000;
/// Documents looked at per lock hold.
const CHUNK: usize = 64;
/// Keys loaded between two pauses.
const PAUSE_KEYS: u64 = 16;
/// Bytes of one shard's list.
const LIST_BYTES_MAX: usize = 4 << 20;
/// Bytes in front of each key: vBucket u16, frequency u8, length of the key u8.
const ENTRY_BYTES: usize = 4;
/// The first byte.
const FORMAT: u8 = 1;

/// Where the walk is.
#[derive(Debug, Default)]
pub(crate) struct HotKeys {
    /// When the next one begins (monotonic milliseconds); `None` before the first look.
    due: Option<u64>,
    /// Under way.
    walk: Option<Walk>,
}

#[derive(Debug)]
struct Walk {
    shard: usize,
    /// Of the shard's vBuckets, the next.
    vb: usize,
    position: ScanPosition,
    list: List,
}

/// A list in the making.
#[derive(Debug)]
struct List {
    /// What is less frequent is not listed.
    floor: u8,
    entries: Vec<(u8, VbId, Box<[u8]>)>,
    /// Entries that are more frequent than that: counted, since a full list is asked with every document.
    above: usize,
    bytes: usize,
    bytes_max: usize,
}

impl List {
    fn new(bytes_max: usize) -> Self {
        Self { floor: FREQUENCY_INITIAL + 1, entries: Vec::new(), above: 0, bytes: 1, bytes_max }
    }

    fn takes(&self, frequency: u8) -> bool {
        frequency >= self.floor
    }

    fn add(&mut self, vb: VbId, frequency: u8, key: Box<[u8]>) {
        if !self.takes(frequency) {
            return;
        }
        self.bytes += ENTRY_BYTES + key.len();
        self.above += usize::from(frequency > self.floor);
        self.entries.push((frequency, vb, key));
        while self.bytes > self.bytes_max && self.above > 0 {
            self.floor += 1;
            let floor = self.floor;
            self.entries.retain(|entry| entry.0 >= floor);
            self.above = self.entries.iter().filter(|entry| entry.0 > floor).count();
            self.bytes = 1 + self.entries.iter().map(|entry| ENTRY_BYTES + entry.2.len()).sum::<usize>();
        }
        // All that is left is equally frequent.
        if self.bytes > self.bytes_max
            && let Some(last) = self.entries.pop()
        {
            self.bytes -= ENTRY_BYTES + last.2.len();
        }
    }

    fn memory_bytes(&self) -> u64 {
        (self.bytes + self.entries.capacity() * size_of::<(u8, VbId, Box<[u8]>)>()) as u64
    }

    /// Most frequent first.
    fn encode(mut self) -> Vec<u8> {
        self.entries.sort_by_key(|entry| std::cmp::Reverse(entry.0));
        let mut bytes = Vec::with_capacity(self.bytes);
        bytes.push(FORMAT);
        for (frequency, vb, key) in &self.entries {
            let Ok(length) = u8::try_from(key.len()) else { continue };
            bytes.extend_from_slice(&vb.get().to_le_bytes());
            bytes.extend_from_slice(&[*frequency, length]);
            bytes.extend_from_slice(key);
        }
        bytes
    }
}

/// The entries of a list; ends at the first that makes no sense.
fn decode(bytes: &[u8]) -> impl Iterator<Item = (VbId, u8, &[u8])> {
    let mut rest =
        bytes.split_first().filter(|(format, _)| **format == FORMAT).map_or(&[][..], |split| split.1);
    std::iter::from_fn(move || {
        let (head, tail) = rest.split_first_chunk::<ENTRY_BYTES>()?;
        let [low, high, frequency, length] = *head;
        let (key, tail) = tail.split_at_checked(usize::from(length))?;
        rest = tail;
        Some((VbId(u16::from_le_bytes([low, high])), frequency, key))
    })
}

impl Bucket {
    /// Notes which keys are used most when it is time to; looks at about `budget.items` documents and may write to
    /// disk.
    ///
    /// # Errors
    /// When a list could not be written. The next one is made as usual.
    pub fn record_hot_keys(&self, now: Now, budget: Budget) -> Result<StepReport, StoreError> {
        let mut report = StepReport::default();
        let Some(mut hot) = self.hot_keys.try_lock() else { return Ok(report) };
        let due = *hot.due.get_or_insert(now.mono_millis + RECORD_EVERY_MILLIS);
        if !self.settings.hot_keys() || !self.is_warm() {
            hot.walk = None;
            return Ok(report);
        }
        if hot.walk.is_none() {
            if now.mono_millis < due {
                return Ok(report);
            }
            hot.due = Some(now.mono_millis + RECORD_EVERY_MILLIS);
        }
        let mut walk = hot.walk.take().unwrap_or_else(|| Walk::of(0));
        let Some(shard) = self.shards.get(walk.shard) else { return Ok(report) };
        let Some(store) = &shard.store else { return Ok(report) };
        let is_done = self.walk_on(shard, &mut walk, budget.items);
        let next = walk.shard + 1;
        if !is_done {
            hot.walk = Some(walk);
        } else {
            if next < self.shards.len() {
                hot.walk = Some(Walk::of(next));
            }
            report.items = walk.list.entries.len();
            store.put_hints(&walk.list.encode())?;
        }
        report.more = hot.walk.is_some();
        Ok(report)
    }

    /// The last list before the store is closed. That it cannot be written is no reason not to close it.
    pub(crate) fn record_last_hot_keys(&self, shard: &Shard, store: &dyn KvStore) {
        if !shard.warm.load(Ordering::Acquire) {
            // What is known now is less than what the list says.
            return;
        }
        let mut walk = Walk::of(shard.index);
        if self.settings.hot_keys() {
            self.walk_on(shard, &mut walk, usize::MAX);
        }
        let _ = store.put_hints(&walk.list.encode());
    }

    /// Looks at about so many documents of a shard; true at its end.
    fn walk_on(&self, shard: &Shard, walk: &mut Walk, items: usize) -> bool {
        let _held = shard.pools.hold(Pool::Metadata, walk.list.memory_bytes());
        let mut seen = 0;
        while let Some(vb) = self.vbs_of(shard).nth(walk.vb) {
            if seen >= items {
                return false;
            }
            let Ok((slot, _)) = self.slot(vb) else { return true };
            let mut found = Vec::new();
            let next = slot.vb.lock().table.scan(walk.position, CHUNK, &mut |item| {
                seen += 1;
                if walk.list.takes(item.frequency()) && !item.is_deleted() && !is_system_key(item.key()) {
                    found.push((item.frequency(), item.key().into()));
                }
            });
            // Without the lock: making room in a full list takes a while.
            found.into_iter().for_each(|(frequency, key)| walk.list.add(vb, frequency, key));
            // An empty vBucket is work as well.
            seen += 1;
            (walk.vb, walk.position) = match next {
                Some(position) => (walk.vb, position),
                None => (walk.vb + 1, ScanPosition::default()),
            };
        }
        true
    }

    /// Loads what was used most before the last stop, as long as there is room.
    pub(crate) fn load_hot_keys(&self, env: &Env<'_>, store: &dyn KvStore, pause: &dyn Fn()) {
        if !self.settings.hot_keys() {
            return;
        }
        let hints = store.hints().unwrap_or_default();
        let _held = env.shard.pools.hold(Pool::Metadata, hints.len() as u64);
        for (vb, frequency, key) in decode(&hints) {
            if env.shard.gate.is_closed() || self.mem_used() >= self.watermarks().1 {
                return;
            }
            if self.slot(vb).is_ok_and(|(_, shard)| shard.index == env.shard.index) {
                self.bring(env, store, vb, HashedKey::new(DocKey::trusted(key)), frequency);
                let before = env.shard.warmed_hot.fetch_add(1, Ordering::Relaxed);
                if before.is_multiple_of(PAUSE_KEYS) {
                    pause();
                }
            }
        }
    }
}

impl Walk {
    fn of(shard: usize) -> Self {
        Self { shard, vb: 0, position: ScanPosition::default(), list: List::new(LIST_BYTES_MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_keeps_the_most_frequent() {
        let mut list = List::new(1 + 100 * (ENTRY_BYTES + 4));
        for number in 0..10_000_u32 {
            list.add(VbId(7), (number % 60) as u8, number.to_be_bytes().into());
            assert!(list.bytes <= list.bytes_max);
            assert_eq!(list.above, list.entries.iter().filter(|entry| entry.0 > list.floor).count());
        }
        let bytes = list.encode();
        assert!(bytes.len() <= 1 + 100 * (ENTRY_BYTES + 4));
        let frequencies: Vec<u8> = decode(&bytes).map(|entry| entry.1).collect();
        assert!(frequencies.len() > 50 && frequencies.is_sorted_by(|a, b| a >= b));
        assert!(frequencies.iter().all(|&frequency| frequency >= 58), "{frequencies:?}");
        assert!(decode(&bytes).all(|(vb, frequency, key)| {
            let number = u32::from_be_bytes(key.try_into().unwrap());
            vb == VbId(7) && u32::from(frequency) == number % 60
        }));
    }

    #[test]
    fn a_list_full_of_equals_stays_as_it_is() {
        let mut list = List::new(1 + 100 * (ENTRY_BYTES + 4));
        (0..1_000_u32).for_each(|number| list.add(VbId(7), 9, number.to_be_bytes().into()));
        let numbers: Vec<_> =
            list.entries.iter().map(|entry| u32::from_be_bytes((*entry.2).try_into().unwrap())).collect();
        assert!(numbers.iter().copied().eq(0..100), "{numbers:?}");
    }

    #[test]
    fn what_was_hardly_used_is_not_listed() {
        let mut list = List::new(LIST_BYTES_MAX);
        list.add(VbId(1), FREQUENCY_INITIAL, (*b"\0cold").into());
        list.add(VbId(1), FREQUENCY_INITIAL + 1, (*b"\0warm").into());
        let bytes = list.encode();
        assert_eq!(decode(&bytes).collect::<Vec<_>>(), [(VbId(1), FREQUENCY_INITIAL + 1, &b"\0warm"[..])]);
    }

    #[test]
    fn damage_ends_a_list() {
        let mut list = List::new(LIST_BYTES_MAX);
        list.add(VbId(1), 9, (*b"\0one").into());
        list.add(VbId(1), 9, (*b"\0two").into());
        let bytes = list.encode();
        assert_eq!(decode(&bytes[..bytes.len() - 1]).count(), 1);
        assert_eq!(decode(&[]).count(), 0);
        assert_eq!(decode(&[FORMAT + 1, 1, 0, 9, 1, 0]).count(), 0, "a format of the future");
    }
}
