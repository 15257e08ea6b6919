use std::collections::HashMap;
use std::sync::Arc;

use base::hash::key_hash;
use base::{Cas, VbId};
use fastrand::Rng;
use parking_lot::Mutex;

use super::*;
use crate::memory::hash_table::HashTable;
use crate::memory::item::{ItemMeta, ItemPtr, ItemRef, NewItem, SharedValue};

fn key(number: u32) -> Vec<u8> {
    format!("\0key-{number}").into_bytes()
}

/// A value whose content depends on the seed.
fn value(seed: u64, length: usize) -> Vec<u8> {
    vec![(seed % 251) as u8; length]
}

/// Values of this length lie 64 to a slab of one chunk.
const BALLAST_BYTES: usize = 970;

/// A few vBuckets without semantics.
struct Tables {
    arena: Arc<Arena>,
    tables: Vec<Mutex<HashTable>>,
}

impl Tables {
    fn new(count: usize) -> Self {
        let arena = Arena::with_reserve(1 << 30).unwrap();
        let tables = (0..count).map(|_| Mutex::new(HashTable::new(Arc::clone(&arena)))).collect();
        Self { arena, tables }
    }

    fn vb_of(&self, number: u32) -> usize {
        number as usize % self.tables.len()
    }

    fn put(&self, number: u32, cas: u64, value: &[u8]) {
        let (key, vb) = (key(number), self.vb_of(number));
        let meta = ItemMeta { vb: VbId(vb as u16), cas: Cas(cas), ..ItemMeta::default() };
        let hash = key_hash(&key);
        let new = NewItem::new(&self.arena, &meta, &key, value).unwrap();
        let mut table = self.tables[vb].lock();
        let old = table.find(hash, &key).map(ItemRef::id);
        match old {
            Some(old) => {
                let Ok((old, _)) = table.replace(hash, old, new) else { panic!("just found") };
                drop(table);
                // SAFETY: of this arena.
                unsafe { old.release(&self.arena) };
            }
            None => assert!(table.insert(hash, new).is_ok()),
        }
    }

    fn remove(&self, number: u32) {
        let (key, mut table) = (key(number), self.tables[self.vb_of(number)].lock());
        let Some(id) = table.find(key_hash(&key), &key).map(ItemRef::id) else { return };
        let taken = table.remove(key_hash(&key), id).unwrap();
        // SAFETY: of this arena.
        unsafe { taken.release(&self.arena) };
    }

    fn share(&self, number: u32) -> Option<(u64, SharedValue)> {
        let (key, table) = (key(number), self.tables[self.vb_of(number)].lock());
        let item = table.find(key_hash(&key), &key)?;
        Some((item.cas().get(), item.share(&self.arena)?))
    }

    fn defragment(&self, defragmenter: &mut Defragmenter, budget: usize) -> DefragReport {
        defragmenter.step(&self.arena, budget, &mut |vb, slot| match self.tables.get(usize::from(vb.get())) {
            Some(table) => table.lock().relocate(&slot, None),
            None => Relocated::Kept,
        })
    }
}

#[test]
fn sparse_slabs_are_emptied_and_nothing_is_lost() {
    let count = if cfg!(miri) { 1_500 } else { 50_000 };
    let tables = Tables::new(3);
    for number in 0..count {
        tables.put(number, u64::from(number), &value(u64::from(number), 60));
    }
    let full = tables.arena.committed_bytes();
    for number in 0..count {
        if number % 10 != 0 {
            tables.remove(number);
        }
    }
    let held: Vec<_> = (0..count).step_by(10_000).filter_map(|number| tables.share(number)).collect();
    let mut defragmenter = Defragmenter::default();
    let (mut moved, mut steps) = (0, 0);
    loop {
        let report = tables.defragment(&mut defragmenter, 10_000);
        assert!(report.moved_bytes <= 10_000 + 64 * 200, "{report:?}");
        moved += report.moved_items;
        steps += 1;
        assert!(steps < count, "never done");
        if !report.more {
            break;
        }
    }
    assert!(moved > 0 && steps > 1, "{moved} moved in {steps} steps");
    if !cfg!(miri) {
        // A tenth is left, and the slabs of what is held.
        assert!(tables.arena.committed_bytes() < full / 3, "{} of {full}", tables.arena.committed_bytes());
    }
    for (cas, shared) in held {
        assert_eq!(&*shared, value(cas, 60));
    }
    for number in 0..count {
        let found = tables.share(number);
        assert_eq!(found.is_some(), number % 10 == 0);
        if let Some((cas, shared)) = found {
            assert_eq!((cas, &*shared), (u64::from(number), &value(cas, 60)[..]));
        }
    }
}

#[test]
fn items_that_others_hold_stay_where_they_are() {
    let count = if cfg!(miri) { 3_000 } else { 20_000 };
    let tables = Tables::new(1);
    (0..count).for_each(|number| tables.put(number, 1, &[7; 60]));
    (0..count).filter(|number| number % 10 != 0).for_each(|number| tables.remove(number));
    let held: Vec<_> = (0..count).filter_map(|number| tables.share(number)).collect();
    let mut defragmenter = Defragmenter::default();
    let report = tables.defragment(&mut defragmenter, usize::MAX);
    assert_eq!((report.moved_items, report.more), (0, false));
    drop(held);
    // What could not be emptied is not tried again at once, but soon.
    let moved: usize = (0..20).map(|_| tables.defragment(&mut defragmenter, usize::MAX).moved_items).sum();
    assert!(moved > 0);
}

#[test]
fn what_a_queue_holds_as_well_moves_with_its_entry() {
    let count = if cfg!(miri) { 3_000 } else { 20_000 };
    let tables = Tables::new(1);
    (0..count).for_each(|number| tables.put(number, 1, &[7; 60]));
    let survivors: Vec<u32> = (0..count).step_by(10).collect();
    let mut queue: HashMap<ItemId, ItemPtr> = HashMap::new();
    for &number in &survivors {
        let (key, table) = (key(number), tables.tables[0].lock());
        let item = table.find(key_hash(&key), &key).unwrap();
        queue.insert(item.id(), item.hold().unwrap());
    }
    // Every other one is in the queue only; of some of both kinds, in one slab, somebody reads the value.
    let read: Vec<_> = survivors.iter().take(20).map(|&number| tables.share(number).unwrap().1).collect();
    let is_gone = |number: u32| number % 20 != 10;
    (0..count).filter(|&number| is_gone(number)).for_each(|number| tables.remove(number));
    let before: Vec<ItemId> = queue.keys().copied().collect();
    let committed = tables.arena.committed_bytes();
    let mut defragmenter = Defragmenter::default();
    let report = defragmenter.step(&tables.arena, usize::MAX, &mut |_, slot| {
        tables.tables[0].lock().relocate(&slot, queue.get_mut(&slot.id()))
    });
    let moved = before.iter().filter(|id| queue[*id].id() != **id).count();
    assert!(report.moved_items == moved && moved > survivors.len() / 2, "{moved} moved: {report:?}");
    assert!(tables.arena.committed_bytes() < committed);
    for held in queue.into_values() {
        // SAFETY: of this arena.
        let item = unsafe { held.get(&tables.arena) };
        let found = tables.tables[0].lock().find(key_hash(item.key()), item.key()).map(ItemRef::id);
        assert_eq!((item.value(), found.is_none_or(|found| found == item.id())), (&[7; 60][..], true));
        // SAFETY: as above.
        unsafe { held.release(&tables.arena) };
    }
    assert!(read.iter().all(|value| **value == [7; 60]));
    drop(read);
    tables.tables.iter().for_each(|table| drop(table.lock().take()));
    assert_eq!(tables.arena.used_bytes(), 0, "as many references as before");
}

#[test]
fn an_unknown_vbucket_is_left_alone() {
    let tables = Tables::new(1);
    let count = 3_000;
    (0..count).for_each(|number| tables.put(number, 1, &[7; 60]));
    (0..count).filter(|number| number % 10 != 0).for_each(|number| tables.remove(number));
    let report = Defragmenter::default().step(&tables.arena, usize::MAX, &mut |_, _| Relocated::Kept);
    assert_eq!((report.moved_items, report.more), (0, false));
    assert!(tables.share(10).is_some());
}

/// Writers, readers that keep values, and the defragmenter at once; every value read must be whole.
#[test]
fn moves_are_invisible_to_concurrent_readers_and_writers() {
    let (keys, steps, threads) = if cfg!(miri) { (400, 60, 2) } else { (20_000, 40_000, 3) };
    let tables = Tables::new(5);
    // Long-lived ballast, most of which goes, makes slabs sparse from the start.
    for number in 0..keys {
        tables.put(number, 0, &value(0, BALLAST_BYTES));
    }
    (0..keys).filter(|number| number % 4 != 0).for_each(|number| tables.remove(number));
    let written: Mutex<HashMap<u64, usize>> = Mutex::new(HashMap::from([(0, BALLAST_BYTES)]));
    let moved = std::thread::scope(|scope| {
        let worker = |thread: u64| {
            let (tables, written) = (&tables, &written);
            scope.spawn(move || {
                let mut random = Rng::with_seed(thread);
                let mut kept: Vec<(u64, SharedValue)> = Vec::new();
                for step in 0..steps {
                    let number = random.u32(..keys);
                    match random.u32(..10) {
                        0..3 => {
                            let (cas, length) = (1 + thread * 1_000_000 + step, random.usize(..4) * 300);
                            written.lock().insert(cas, length);
                            tables.put(number, cas, &value(cas, length));
                        }
                        3..6 => tables.remove(number),
                        _ => kept.extend(tables.share(number)),
                    }
                    if kept.len() > 100 || step + 1 == steps {
                        for (cas, shared) in kept.drain(..) {
                            assert_eq!(&*shared, value(cas, written.lock()[&cas]));
                        }
                    }
                }
            })
        };
        let workers: Vec<_> = (0..threads).map(worker).collect();
        let mut defragmenter = Defragmenter::default();
        let mut moved = 0;
        while workers.iter().any(|worker| !worker.is_finished()) {
            moved += tables.defragment(&mut defragmenter, 100_000).moved_items;
            std::thread::yield_now();
        }
        moved
    });
    println!("{moved} items moved");
    let written = written.into_inner();
    let mut alive = 0;
    for (cas, shared) in (0..keys).filter_map(|number| tables.share(number)) {
        assert_eq!(&*shared, value(cas, written[&cas]));
        alive += 1;
    }
    assert_eq!(alive, tables.tables.iter().map(|table| table.lock().len()).sum::<usize>());
    assert!(moved > 0);
    tables.tables.iter().for_each(|table| drop(table.lock().take()));
    assert_eq!(tables.arena.used_bytes(), 0);
}
