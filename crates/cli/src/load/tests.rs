//! The driver against a server of the test's own: a thread per connection, a map, and answers on demand.

use super::records::Records;
use super::wire::{Op, Outcome, Parsed};
use super::*;
use base::VbId;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[test]
fn keys_are_distinct_and_have_the_asked_length() {
    let records = SyntheticRecords::new(36, 10..=10);
    let mut keys = std::collections::HashSet::new();
    for index in 0..20_000 {
        let mut key = Vec::new();
        records.key(index, &mut key);
        assert_eq!(key.len(), 36);
        assert!(keys.insert(key));
    }
}

#[test]
fn keys_reach_every_vbucket() {
    let records = SyntheticRecords::new(36, 10..=10);
    let mut per_vb = vec![0u32; 1024];
    for index in 0..100_000 {
        let mut key = Vec::new();
        records.key(index, &mut key);
        per_vb[usize::from(base::hash::vbucket_of(&key, 1024).get())] += 1;
    }
    let (min, max) = (per_vb.iter().min(), per_vb.iter().max());
    // 98 expected; six standard deviations either way.
    assert!(min > Some(&38) && max < Some(&158), "{min:?} {max:?}");
}

#[test]
fn a_value_is_recognised_and_nothing_else_is() {
    let records = SyntheticRecords::new(16, 0..=3000);
    let mut scratch = Vec::new();
    let mut sizes = 0;
    for version in 0..2_000u64 {
        let mut value = Vec::new();
        records.value(7, version, &mut value);
        sizes += value.len();
        assert!(records.is_value(7, &value, &mut scratch));
        if value.len() > 64 {
            assert!(!records.is_value(8, &value, &mut scratch), "another record's");
            assert!(!records.is_value(7, &value[..value.len() - 1], &mut scratch), "cut");
            let last = value.len() - 1;
            value[last] ^= 1;
            assert!(!records.is_value(7, &value, &mut scratch), "damaged");
        }
    }
    assert!((1_400..1_600).contains(&(sizes / 2_000)), "mean size {}", sizes / 2_000);
}

#[test]
fn text_replies_are_cut_at_their_last_byte() {
    let whole = b"VALUE k 0 5\r\nab\r\nc\r\nEND\r\nSTORED\r\n";
    for length in 0..whole.len() - 8 {
        assert_eq!(Protocol::Text.read(Op::Get, 0, &whole[..length]), Parsed::Incomplete, "{length}");
    }
    let expected = Parsed::Reply(Outcome::Hit(b"ab\r\nc"), whole.len() - 8);
    assert_eq!(Protocol::Text.read(Op::Get, 0, whole), expected);
    assert_eq!(Protocol::Text.read(Op::Get, 0, b"END\r\n"), Parsed::Reply(Outcome::Miss, 5));
    assert_eq!(Protocol::Text.read(Op::Set, 0, b"STORED\r\n"), Parsed::Reply(Outcome::Stored, 8));
    let refused = b"SERVER_ERROR temporary failure\r\n";
    assert_eq!(Protocol::Text.read(Op::Set, 0, refused), Parsed::Reply(Outcome::Temporary, 32));
    for garbage in [&b"END\r\n"[..], b"ERROR\r\n", b"\r\n"] {
        assert!(matches!(Protocol::Text.read(Op::Set, 0, garbage), Parsed::Broken(_)));
    }
    assert!(matches!(Protocol::Text.read(Op::Get, 0, b"VALUE k 0 1\r\nabcdefghi\r\n"), Parsed::Broken(_)));
    assert!(matches!(Protocol::Text.read(Op::Get, 0, &[b'x'; 4096]), Parsed::Broken(_)));
}

#[test]
fn a_binary_reply_must_be_the_next_one() {
    let reply = |opaque: u8| {
        let mut bytes = vec![0x81, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, opaque];
        bytes.extend_from_slice(&[0; 8]);
        bytes
    };
    assert_eq!(Protocol::Binary.read(Op::Get, 5, &reply(5)), Parsed::Reply(Outcome::Miss, 24));
    assert!(matches!(Protocol::Binary.read(Op::Get, 5, &reply(6)), Parsed::Broken(_)));
    assert!(matches!(Protocol::Binary.read(Op::Get, 5, b"HTTP"), Parsed::Broken(_)));
}

/// What the test's server does beyond storing.
#[derive(Default)]
struct Mischief {
    /// Every so many writes are refused as temporary.
    refuse_every: u64,
    /// Every so many reads return a damaged value.
    damage_every: u64,
}

/// A binary memcached for the keys' and values' sake: enough for GET and SET.
fn serve(mischief: Mischief) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let store: Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>> = Arc::default();
    let counters = Arc::new((AtomicU64::new(0), AtomicU64::new(0), mischief));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (store, counters) = (store.clone(), counters.clone());
            std::thread::spawn(move || serve_one(stream, &store, &counters));
        }
    });
    address
}

fn serve_one(
    mut stream: std::net::TcpStream,
    store: &Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    counters: &(AtomicU64, AtomicU64, Mischief),
) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mischief = &counters.2;
    let due = |counter: &AtomicU64, every: u64| {
        every > 0 && (counter.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every)
    };
    loop {
        let mut header = [0; 24];
        stream.read_exact(&mut header).ok()?;
        let body_len = u32::from_be_bytes(header[8..12].try_into().ok()?) as usize;
        let mut body = vec![0; body_len];
        stream.read_exact(&mut body).ok()?;
        let (extras, key) = (usize::from(header[4]), usize::from(u16::from_be_bytes([header[2], header[3]])));
        let key = &body[extras..extras + key];
        let (status, extras, value) = if header[1] == 1 {
            if due(&counters.0, mischief.refuse_every) {
                (0x86, 0, b"Temporary failure".to_vec())
            } else {
                let value = body[extras + key.len()..].to_vec();
                store.lock().expect("the map").insert(key.to_vec(), value);
                (0, 0, Vec::new())
            }
        } else {
            match store.lock().expect("the map").get(key) {
                None => (1, 0, b"Not found".to_vec()),
                Some(value) => {
                    let mut value = value.clone();
                    if due(&counters.1, mischief.damage_every) {
                        *value.last_mut()? ^= 1;
                    }
                    (0, 4, [&[0; 4], &value[..]].concat())
                }
            }
        };
        let mut reply = vec![0x81, header[1], 0, 0, extras, 0, 0, status];
        reply.extend_from_slice(&(value.len() as u32).to_be_bytes());
        reply.extend_from_slice(&header[12..16]);
        reply.extend_from_slice(&[0; 8]);
        reply.extend_from_slice(&value);
        // In two pieces, so that replies arrive cut.
        let (first, second) = reply.split_at(reply.len() / 2);
        stream.write_all(first).ok()?;
        stream.write_all(second).ok()?;
    }
}

fn driver(address: &str, connections: usize) -> Driver<SyntheticRecords> {
    let target = Target::discover(Protocol::Binary, address, client::Login::default()).expect("a target");
    Driver::connect(target, SyntheticRecords::new(20, 50..=400), connections).expect("connections")
}

fn fill(records: u64) -> Phase {
    let (order, stop) = (Order::Each, Stop::All);
    Phase { records, order, stop, get_percent: 0, pipeline: 4, check_every: 1, seed: 1 }
}

#[test]
fn every_record_is_stored_once_and_read_back() {
    let mut driver = driver(&serve(Mischief::default()), 3);
    let stored = driver.run(&fill(1_000), |_| ()).expect("a phase");
    assert_eq!((stored.stored, stored.done(), stored.errors), (1_000, 1_000, 0));
    let each = driver.run(&Phase { get_percent: 100, ..fill(1_100) }, |_| ()).expect("a phase");
    assert_eq!(each.bytes, stored.bytes, "what went in comes out");
    assert!((1_000 * 50..1_000 * 400).contains(&stored.bytes), "{}", stored.bytes);
    assert_eq!((each.hits, each.misses, each.corrupt), (1_000, 100, 0));
    let mixed = Phase { order: Order::Random, stop: Stop::Ops(2_000), get_percent: 50, ..fill(1_000) };
    let mixed = driver.run(&mixed, |_| ()).expect("a phase");
    assert_eq!((mixed.done(), mixed.misses, mixed.corrupt), (2_000, 0, 0));
    assert!((800..1_200).contains(&mixed.hits), "{}", mixed.hits);
}

#[test]
fn temporary_failures_are_retried_until_stored() {
    let mut driver = driver(&serve(Mischief { refuse_every: 50, ..Mischief::default() }), 2);
    let stored = driver.run(&fill(500), |_| ()).expect("a phase");
    assert_eq!((stored.stored, stored.errors), (500, 0));
    assert_eq!(stored.temporary, 10, "one in fifty attempts");
    let each = driver.run(&Phase { get_percent: 100, ..fill(500) }, |_| ()).expect("a phase");
    assert_eq!((each.hits, each.corrupt), (500, 0));
}

#[test]
fn damage_is_seen() {
    let mut driver = driver(&serve(Mischief { damage_every: 100, ..Mischief::default() }), 2);
    driver.run(&fill(400), |_| ()).expect("a phase");
    let each = driver.run(&Phase { get_percent: 100, ..fill(400) }, |_| ()).expect("a phase");
    assert_eq!((each.hits, each.corrupt), (400, 4));
}

#[test]
fn a_closed_connection_ends_the_phase() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || drop(listener.accept()));
    let broken = driver(&address, 1).run(&fill(10), |_| ());
    assert!(matches!(broken, Err(LoadError::Broken { answered: 0, .. })));
}

#[test]
fn vbuckets_go_onto_the_wire() {
    let records = SyntheticRecords::new(16, 4..=4);
    let (mut scratch, mut out) = (Vec::new(), Vec::new());
    Protocol::Couchbase.write(Op::Set, 1, 2, VbId(0x0203), 7, &records, &mut scratch, &mut out);
    assert_eq!((&out[6..8], &out[12..16], out.len()), (&[2, 3][..], &[0, 0, 0, 7][..], 24 + 8 + 16 + 4));
}
