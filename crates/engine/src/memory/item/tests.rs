use std::sync::Arc;

use base::{Cas, Datatype, Seqno, VbId};
use storage::Locator;

use super::*;
use crate::memory::hash_table::HashTable;

fn arena() -> Arc<Arena> {
    Arena::with_reserve(64 << 20).unwrap()
}

fn meta() -> ItemMeta {
    ItemMeta {
        vb: VbId(1023),
        cas: Cas(0xfedc_ba98_7654_3210),
        seqno: Seqno(0xffff_1234_5678),
        rev: 0xeeee_8765_4321,
        flags: 0x0200_0006,
        expiry: 0,
        datatype: Datatype::ALL,
        deleted: false,
        locator: Locator(u64::MAX),
    }
}

#[test]
fn every_field_keeps_its_own_bits() {
    let arena = arena();
    for expiry in [0, u32::MAX] {
        for deleted in [false, true] {
            let meta = ItemMeta { expiry, deleted, ..meta() };
            let item = NewItem::new(&arena, &meta, &[9; 251], b"value").unwrap();
            let item = item.as_ref();
            assert_eq!((item.meta(), item.key(), item.value()), (meta, &[9; 251][..], &b"value"[..]));
            assert_eq!(item.bytes(), 40 + 251 + 5 + if expiry == 0 { 0 } else { 4 });
            assert!(item.is_resident() && !item.is_dirty() && !item.is_stale());
            item.set_frequency(200);
            item.set_dirty(true);
            item.set_stale(true);
            assert_eq!((item.meta(), item.value(), item.frequency()), (meta, &b"value"[..], FREQUENCY_MAX));
            item.set_dirty(false);
            assert!(!item.is_dirty() && item.is_stale());
        }
    }
}

#[test]
fn setters_change_what_they_name() {
    let arena = arena();
    let mut item = NewItem::concat(&arena, &meta(), b"\0k", b"first-", b"second").unwrap();
    item.value_mut()[0] = b'F';
    item.set_cas(Cas(1));
    item.set_seqno(Seqno(2));
    item.set_rev(3);
    item.set_flags(4);
    item.set_datatype(Datatype::JSON);
    item.set_locator(Locator(5));
    let expected = ItemMeta {
        cas: Cas(1),
        seqno: Seqno(2),
        rev: 3,
        flags: 4,
        datatype: Datatype::JSON,
        locator: Locator(5),
        ..meta()
    };
    assert_eq!((item.as_ref().meta(), item.as_ref().value()), (expected, &b"First-second"[..]));
}

#[test]
fn an_ejected_item_remembers_the_length_but_has_no_value() {
    let arena = arena();
    let item = NewItem::without_value(&arena, &meta(), b"\0k", 20 << 20).unwrap();
    let item = item.as_ref();
    assert_eq!((item.value_len(), item.value(), item.is_resident()), (20 << 20, &b""[..], false));
    assert_eq!(item.bytes(), 42);
}

#[test]
fn the_largest_document_fits_and_is_returned() {
    let arena = arena();
    let value = vec![7; if cfg!(miri) { 200_000 } else { 21 << 20 }];
    let item = NewItem::new(&arena, &meta(), b"\0k", &value).unwrap();
    assert!(item.as_ref().value() == value);
    drop(item);
    assert_eq!((arena.used_bytes(), arena.committed_bytes()), (0, 0));
}

#[test]
fn the_last_reference_frees_whichever_it_is() {
    let arena = arena();
    let mut table = HashTable::new(Arc::clone(&arena));
    let Ok(item) = table.insert(1, NewItem::new(&arena, &meta(), b"\0k", b"value").unwrap()) else {
        panic!()
    };
    let (id, held, shared) = (item.id(), item.hold().unwrap(), item.share(&arena).unwrap());
    assert_eq!(item.references(), 3);
    let taken = table.remove(1, id).unwrap();
    // SAFETY: all of this arena.
    unsafe {
        assert_eq!(held.get(&arena).references(), 3);
        taken.release(&arena);
        held.release(&arena);
    }
    assert_eq!(&*shared, b"value");
    let sender = std::thread::spawn(move || assert_eq!(&*shared, b"value"));
    sender.join().unwrap();
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn a_shared_value_outlives_table_and_arena() {
    let arena = arena();
    let mut table = HashTable::new(Arc::clone(&arena));
    let Ok(item) = table.insert(1, NewItem::new(&arena, &meta(), b"\0k", b"value").unwrap()) else {
        panic!()
    };
    let shared = item.share(&arena).unwrap();
    drop(table);
    drop(arena);
    assert_eq!(&*shared, b"value");
}

#[test]
fn a_saturated_count_refuses_instead_of_wrapping() {
    let arena = arena();
    let mut table = HashTable::new(Arc::clone(&arena));
    let expiring = ItemMeta { expiry: 17, ..meta() };
    let Ok(item) = table.insert(1, NewItem::new(&arena, &expiring, b"\0k", b"v").unwrap()) else { panic!() };
    let held: Vec<_> = std::iter::from_fn(|| item.hold()).collect();
    assert_eq!((held.len(), item.references()), (usize::from(REFERENCES_MAX) - 1, REFERENCES_MAX));
    assert!(item.share(&arena).is_none());
    assert_eq!((item.expiry(), item.key()), (17, &b"\0k"[..]));
    for reference in held {
        // SAFETY: of this arena.
        unsafe { reference.release(&arena) };
    }
    assert!(item.hold().is_some_and(|reference| {
        // SAFETY: of this arena.
        unsafe { reference.release(&arena) };
        true
    }));
}

/// As a feed, a gathering and a flusher hold items.
#[test]
fn lists_loans_and_second_shares_count_right() {
    let arena = arena();
    let mut table = HashTable::new(Arc::clone(&arena));
    let mut list = HeldItems::new(&arena);
    for number in 0..4_u64 {
        let meta = ItemMeta { seqno: Seqno(number), ..meta() };
        let new = NewItem::new(&arena, &meta, &[0, number as u8], &[number as u8; 9]).unwrap();
        let Ok(item) = table.insert(number, new) else { panic!() };
        assert!(list.push(item) && list.push(item));
    }
    let loan = {
        let held = table.find(3, &[0, 3]).unwrap().hold().unwrap();
        let loan = held.lend();
        list.append(&mut {
            let mut other = HeldItems::new(&arena);
            assert!(other.push(table.find(3, &[0, 3]).unwrap()));
            other
        });
        // SAFETY: of this arena.
        unsafe { held.release(&arena) };
        loan
    };
    drop(table);
    // SAFETY: of this arena, and the list keeps the item.
    assert_eq!(unsafe { loan.get(&arena) }.value(), [3; 9]);
    list.drop_flagged(&[true, false, false, false, true, true]);
    list.sort_newest_first();
    let seqnos: Vec<u64> = list.iter().map(|item| item.seqno().get()).collect();
    assert_eq!(seqnos, [3, 3, 3, 1, 1, 0]);
    let shared = SharedValue::of(list.pop().unwrap(), &arena);
    let again = shared.again().unwrap();
    assert_eq!((shared.item().references(), shared.item().key()), (2, &[0, 0][..]));
    drop((list, shared));
    assert_eq!(&*again, [0; 9]);
    assert!(arena.used_bytes() > 0);
    drop(again);
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn a_list_takes_a_copy_of_what_has_too_many_references() {
    let arena = arena();
    let mut table = HashTable::new(Arc::clone(&arena));
    for expiry in [0, 17] {
        let meta = ItemMeta { expiry, ..meta() };
        let new = NewItem::new(&arena, &meta, b"\0k", b"value").unwrap();
        let Ok(item) = table.insert(u64::from(expiry), new) else { panic!() };
        item.set_frequency(7);
        let mut list = HeldItems::new(&arena);
        for _ in 0..150 {
            assert!(list.push(item));
        }
        let copies: Vec<_> = list.iter().filter(|held| held.id() != item.id()).collect();
        assert_eq!(copies.len(), 150 + 1 - usize::from(REFERENCES_MAX));
        for copy in copies {
            assert_eq!((copy.meta(), copy.value(), copy.frequency()), (meta, &b"value"[..], 7));
            assert_eq!((copy.key(), copy.references()), (&b"\0k"[..], 1));
        }
    }
    drop(table);
    assert_eq!(arena.used_bytes(), 0);
}
