//! The table against a plain map, under churn; what survives growth; what a scan promises.

use std::collections::{HashMap, HashSet};

use base::{Cas, VbId};
use fastrand::Rng;

use super::*;
use crate::memory::item::ItemMeta;

fn key(number: u64) -> Vec<u8> {
    format!("\0key-{number}").into_bytes()
}

fn meta(cas: u64) -> ItemMeta {
    ItemMeta { vb: VbId(7), cas: Cas(cas), expiry: (cas % 2) as u32 * 99, ..ItemMeta::default() }
}

fn arena() -> Arc<Arena> {
    Arena::with_reserve(1 << 30).unwrap()
}

fn put(table: &mut HashTable, arena: &Arena, key: &[u8], cas: u64, value: &[u8]) {
    let hash = key_hash(key);
    let new = NewItem::new(arena, &meta(cas), key, value).unwrap();
    match table.find(hash, key).map(ItemRef::id) {
        Some(old) => {
            let Ok((old, new)) = table.replace(hash, old, new) else { panic!("the old item was just found") };
            assert_eq!(new.cas(), Cas(cas));
            // SAFETY: of this arena.
            unsafe { old.release(arena) };
        }
        None => assert!(table.insert(hash, new).is_ok()),
    }
}

fn take(table: &mut HashTable, arena: &Arena, key: &[u8]) -> bool {
    let hash = key_hash(key);
    let Some(id) = table.find(hash, key).map(ItemRef::id) else { return false };
    let taken = table.remove(hash, id).unwrap();
    // SAFETY: of this arena.
    unsafe { taken.release(arena) };
    true
}

fn check(table: &HashTable, model: &HashMap<Vec<u8>, (u64, Vec<u8>)>) {
    assert_eq!(table.len(), model.len());
    for (key, (cas, value)) in model {
        let item = table.find(key_hash(key), key).unwrap();
        assert_eq!((item.key(), item.value(), item.cas()), (&key[..], &value[..], Cas(*cas)));
        assert_eq!(item.expiry(), (cas % 2) as u32 * 99);
    }
}

#[test]
fn behaves_like_a_map_under_churn() {
    let (steps, keys, length) = if cfg!(miri) { (600, 60, 100) } else { (60_000, 3_000, 3_000) };
    for seed in 0..if cfg!(miri) { 1 } else { 6 } {
        println!("seed {seed}");
        let arena = arena();
        let mut table = HashTable::new(Arc::clone(&arena));
        let mut model = HashMap::new();
        let mut random = Rng::with_seed(seed);
        for step in 0..steps {
            // The population swells and shrinks, so that the table grows and shrinks with it.
            let remove_percent = if step / (steps / 6) % 2 == 0 { 20 } else { 80 };
            let key = key(random.u64(..keys));
            if random.u64(..100) < remove_percent {
                assert_eq!(take(&mut table, &arena, &key), model.remove(&key).is_some());
            } else {
                let length = random.usize(..length);
                let value: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
                put(&mut table, &arena, &key, step, &value);
                model.insert(key, (step, value));
            }
            if step % (steps / 10) == 0 {
                check(&table, &model);
            }
        }
        check(&table, &model);
        for key in model.keys() {
            assert!(take(&mut table, &arena, key));
        }
        assert_eq!((table.bytes(), arena.used_bytes()), (0, 0), "everything was returned");
    }
}

#[test]
fn an_empty_table_allocates_nothing_and_finds_nothing() {
    let arena = arena();
    let table = HashTable::new(Arc::clone(&arena));
    assert!(table.find(key_hash(b"k"), b"k").is_none());
    assert!(table.random(17).is_none());
    assert!(table.scan(ScanPosition::default(), 10, &mut |_| panic!("nothing to visit")).is_none());
    table.prefetch_item(17);
    table.hint().prefetch(17, &arena);
    assert_eq!((table.bytes(), arena.used_bytes()), (0, 0));
}

#[test]
fn stays_dense_while_it_grows() {
    let arena = arena();
    let mut table = HashTable::new(Arc::clone(&arena));
    let count = if cfg!(miri) { 300 } else { 30_000 };
    for number in 0..count {
        put(&mut table, &arena, &key(number), 1, b"");
        let slots = table.bytes() / 64 * SLOTS;
        if number >= 200 && table.is_moving() {
            assert!(
                slots * 2 <= (table.len() + 9) * 5,
                "{} items in {slots} slots of both arrays",
                table.len()
            );
        } else if number >= 200 {
            assert!(slots * 3 <= (table.len() + 9) * 5, "{} items in {slots} slots", table.len());
        }
    }
}

#[test]
fn a_scan_visits_once_what_stays_whatever_comes_and_goes() {
    let count = if cfg!(miri) { 60 } else { 2_000 };
    for seed in 0..if cfg!(miri) { 1 } else { 20 } {
        println!("seed {seed}");
        let arena = arena();
        let mut table = HashTable::new(Arc::clone(&arena));
        let mut random = Rng::with_seed(seed);
        for number in 0..2 * count {
            put(&mut table, &arena, &key(number), 1, b"v");
        }
        let mut seen: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut position = Some(ScanPosition::default());
        while let Some(from) = position {
            position = table.scan(from, 7, &mut |item| *seen.entry(item.key().to_vec()).or_default() += 1);
            // The first `count` keys stay; of the others some go, and more come.
            take(&mut table, &arena, &key(count + random.u64(..count)));
            for _ in 0..random.u64(..30) {
                put(&mut table, &arena, &key(2 * count + random.u64(..10 * count)), 1, b"v");
            }
        }
        for number in 0..count {
            assert_eq!(seen.get(&key(number)), Some(&1), "key {number}");
        }
    }
}

#[test]
fn random_reaches_every_item() {
    let arena = arena();
    let mut table = HashTable::new(Arc::clone(&arena));
    for number in 0..20 {
        put(&mut table, &arena, &key(number), 1, b"v");
    }
    let mut random = Rng::with_seed(3);
    let picked: HashSet<Vec<u8>> =
        (0..2_000).filter_map(|_| table.random(random.u64(..)).map(|item| item.key().to_vec())).collect();
    assert_eq!(picked.len(), 20);
}

#[test]
fn colliding_hashes_are_told_apart_by_their_keys() {
    let arena = arena();
    let mut table = HashTable::new(Arc::clone(&arena));
    let hash = u64::MAX;
    let count = if cfg!(miri) { 40 } else { 400 };
    for number in 0..count {
        let new = NewItem::new(&arena, &meta(number), &key(number), b"v").unwrap();
        assert!(table.insert(hash, new).is_ok());
    }
    for number in (0..count).step_by(2) {
        let id = table.find(hash, &key(number)).unwrap().id();
        let taken = table.remove(hash, id).unwrap();
        // SAFETY: of this arena.
        unsafe { taken.release(&arena) };
    }
    for number in 0..count {
        let found = table.find(hash, &key(number)).map(|item| item.cas().get());
        assert_eq!(found, (number % 2 == 1).then_some(number));
    }
}

#[test]
fn without_memory_the_item_comes_back_and_the_table_stays_whole() {
    let arena = arena();
    let mut table = HashTable::new(Arc::clone(&arena));
    let filler = vec![0; if cfg!(miri) { 100_000 } else { 7_000_000 }];
    let mut fillers = Vec::new();
    while let Some(item) = NewItem::new(&arena, &meta(0), b"f", &filler) {
        fillers.push(item);
    }
    fillers.pop();
    let mut numbers = 0..;
    let refused = loop {
        let number = numbers.next().unwrap();
        let key = key(number);
        let Some(new) = NewItem::new(&arena, &meta(number), &key, b"v") else { break number };
        if let Err(back) = table.insert(key_hash(&key), new) {
            assert_eq!(back.as_ref().key(), key);
            break number;
        }
    };
    assert!(refused > 0 && table.len() == refused as usize);
    for number in 0..refused {
        assert!(table.find(key_hash(&key(number)), &key(number)).is_some(), "key {number}");
    }
    drop(fillers);
    put(&mut table, &arena, &key(refused), refused, b"v");
}

/// Large enough for a table that moves in steps.
fn large_count() -> u64 {
    (MOVED_AT_ONCE * SLOTS * 2) as u64
}

#[test]
fn a_large_table_moves_a_bounded_number_of_entries_per_change() {
    let arena = arena();
    let mut table = HashTable::new(Arc::clone(&arena));
    let mut moves = 0;
    let mut change = |table: &mut HashTable, change: &dyn Fn(&mut HashTable)| {
        let (was_moving, moved, buckets) = (table.is_moving(), table.moved, table.array.buckets());
        change(table);
        if was_moving && table.is_moving() {
            let homes = home_of(table.moved, buckets) - home_of(moved, buckets);
            assert_eq!(homes, MOVED_PER_CHANGE);
            assert_eq!(table.array.buckets(), buckets, "one move at a time");
        }
        if !was_moving && buckets > MOVED_AT_ONCE && buckets != table.array.buckets() {
            panic!("moved in one go");
        }
        moves += u32::from(!was_moving && table.is_moving());
    };
    for number in 0..large_count() {
        change(&mut table, &|table| put(table, &arena, &key(number), 1, b""));
    }
    for number in 0..large_count() {
        change(&mut table, &|table| assert!(take(table, &arena, &key(number))));
    }
    assert!(moves > 4, "it grew and shrank in steps");
    assert_eq!((table.bytes(), arena.used_bytes()), (0, 0));
}

#[test]
fn while_it_moves_everything_is_found_scanned_and_taken() {
    let arena = arena();
    let mut table = HashTable::new(Arc::clone(&arena));
    let mut model = HashMap::new();
    let mut number = 0;
    while !table.is_moving() {
        put(&mut table, &arena, &key(number), number, b"v");
        model.insert(key(number), (number, b"v".to_vec()));
        number += 1;
    }
    assert!(model.len() > MOVED_AT_ONCE);
    let mut steps = 0;
    while table.is_moving() {
        check(&table, &model);
        let mut seen = HashSet::new();
        let mut position = Some(ScanPosition::default());
        while let Some(from) = position {
            position = table.scan(from, 100, &mut |item| assert!(seen.insert(item.key().to_vec())));
        }
        assert_eq!(seen.len(), model.len());
        assert!(table.random(steps << 40).is_some());
        // A replacement, a removal and a step of housekeeping.
        let (one, other) = (key(steps), key(steps + 500));
        put(&mut table, &arena, &one, 99, b"w");
        model.insert(one, (99, b"w".to_vec()));
        assert_eq!(take(&mut table, &arena, &other), model.remove(&other).is_some());
        table.move_on(3);
        steps += 1;
    }
    assert!(steps > 5, "the move took a while");
    check(&table, &model);
    let documents = table.take();
    assert_eq!((table.len(), table.bytes(), documents.len()), (0, 0, model.len()));
    assert!(table.find(key_hash(&key(1)), &key(1)).is_none());
    drop(documents);
    assert_eq!(arena.used_bytes(), 0);
}
