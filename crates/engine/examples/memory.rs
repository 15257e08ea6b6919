//! What items cost in memory, and what finding them costs in time.
//!
//! ```text
//! cargo run --release -p settee-engine --example memory -- overhead 100     # bytes per item beyond key and value
//! cargo run --release -p settee-engine --example memory -- churn            # resident bytes per live byte
//! cargo run --release -p settee-engine --example memory -- find             # CPU ns per hit, with and without prefetch
//! ```
//!
//! Every measurement wants a fresh process, so it is one per run. Only tables and the arena are measured, not the
//! bucket around them.

use std::io;
use std::sync::Arc;

use base::hash::{key_hash, vbucket_of};
use base::{Cas, VbId};
use engine::arena::Arena;
use engine::defragmenter::{Defragmenter, Relocated};
use engine::hash_table::HashTable;
use engine::item::{ItemMeta, ItemRef, NewItem};
use settee_engine as engine;

const VBUCKETS: u16 = 1024;
const ITEMS: u64 = 2_000_000;
const KEY_BYTES: usize = 36;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| -> u64 {
        arguments.get(index).and_then(|a| a.parse().ok()).unwrap_or(default)
    };
    match arguments.first().map(String::as_str) {
        Some("overhead") => overhead(number(1, 100) as usize, number(2, ITEMS)),
        Some("churn") => churn(number(1, 300_000)),
        Some("find") => find(number(1, ITEMS)),
        _ => Err(io::Error::other("overhead [value bytes] [items] | churn [items] | find [items]")),
    }
}

/// A bucket's tables over one arena, without locks, checkpoints and semantics.
struct Tables {
    arena: Arc<Arena>,
    tables: Vec<HashTable>,
}

impl Tables {
    fn new() -> io::Result<Self> {
        let arena = Arena::new()?;
        let tables = (0..VBUCKETS).map(|_| HashTable::new(Arc::clone(&arena))).collect();
        Ok(Self { arena, tables })
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> io::Result<()> {
        let full = || io::Error::from(io::ErrorKind::OutOfMemory);
        let meta = ItemMeta { vb: key.vb, cas: Cas(1), ..ItemMeta::default() };
        let new = NewItem::new(&self.arena, &meta, &key.encoded, value).ok_or_else(full)?;
        let table = &mut self.tables[usize::from(key.vb.get())];
        let old = table.find(key.hash, &key.encoded).map(ItemRef::id);
        match old {
            Some(old) => {
                let (old, _) = table.replace(key.hash, old, new).map_err(|_| full())?;
                // SAFETY: of this arena.
                unsafe { old.release(&self.arena) };
            }
            None => {
                table.insert(key.hash, new).map_err(|_| full())?;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.tables.iter().map(HashTable::bytes).sum()
    }
}

struct Key {
    encoded: [u8; KEY_BYTES + 1],
    hash: u64,
    vb: VbId,
}

impl Key {
    fn new(number: u64) -> Self {
        let mut encoded = [0; KEY_BYTES + 1];
        encoded[1..].copy_from_slice(format!("user:{:016x}:{number:014}", mix(number)).as_bytes());
        Self { encoded, hash: key_hash(&encoded), vb: vbucket_of(&encoded[1..], VBUCKETS) }
    }
}

fn mix(number: u64) -> u64 {
    let mixed =
        (number ^ (number >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn resident_bytes() -> io::Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1024).ok_or_else(|| io::Error::other("no VmRSS"))
}

/// CPU time of this thread: on a shared machine the wall clock measures the neighbours.
fn cpu_nanos() -> io::Result<u64> {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let running = schedstat.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    running.ok_or_else(|| io::Error::other("no schedstat"))
}

fn overhead(value_bytes: usize, items: u64) -> io::Result<()> {
    let value = vec![b'v'; value_bytes];
    let before = resident_bytes()?;
    let mut tables = Tables::new()?;
    let started = cpu_nanos()?;
    for number in 0..items {
        tables.put(&Key::new(number), &value)?;
    }
    let took = cpu_nanos()? - started;
    let resident = resident_bytes()? - before;
    let per_item = |bytes: usize| bytes as f64 / items as f64;
    println!("{items} items, {KEY_BYTES}-byte keys (and the collection's byte), {value_bytes}-byte values");
    println!("insert           {:8.1} CPU ns per item", took as f64 / items as f64);
    println!("resident         {:8.1} bytes per item", per_item(resident));
    println!("beyond key+value {:8.1} bytes per item", per_item(resident) - (KEY_BYTES + value_bytes) as f64);
    println!("  arena used     {:8.1}", per_item(tables.arena.used_bytes()));
    println!("  arena committed{:8.1}", per_item(tables.arena.committed_bytes()));
    println!("  tables         {:8.1}", per_item(tables.bytes()));
    Ok(())
}

fn churn(items: u64) -> io::Result<()> {
    const DEFRAGMENT_EVERY: u64 = 1_000;
    const BUDGET_BYTES: usize = 1 << 20;
    let value = vec![b'v'; 4096];
    let length = |seed: u64| 64 + (mix(seed) % (4096 - 64 + 1)) as usize;
    let before = resident_bytes()?;
    let mut tables = Tables::new()?;
    let mut lengths = Vec::with_capacity(items as usize);
    for number in 0..items {
        lengths.push(length(number));
        tables.put(&Key::new(number), &value[..length(number)])?;
    }
    let report = |label: &str, tables: &Tables, lengths: &[usize]| -> io::Result<()> {
        let live: usize = lengths.iter().map(|length| length + KEY_BYTES).sum();
        let resident = resident_bytes()? - before - size_of_val(lengths);
        let committed = tables.arena.committed_bytes();
        println!(
            "{label}: live {:.1} MB, resident/live {:.3}, committed/live {:.3}, used/live {:.3}",
            live as f64 / 1e6,
            resident as f64 / live as f64,
            committed as f64 / live as f64,
            tables.arena.used_bytes() as f64 / live as f64,
        );
        Ok(())
    };
    report("loaded        ", &tables, &lengths)?;
    let mut defragmenter = Defragmenter::default();
    let (mut moved, mut released, mut spent) = (0, 0, 0);
    for turn in 0..items * 10 {
        let number = mix(turn ^ 0x5eed << 40) % items;
        lengths[number as usize] = length(turn ^ 0xfeed << 40);
        tables.put(&Key::new(number), &value[..lengths[number as usize]])?;
        if turn % DEFRAGMENT_EVERY == 0 {
            let started = cpu_nanos()?;
            let Tables { arena, tables } = &mut tables;
            let done = defragmenter.step(arena, BUDGET_BYTES, &mut |vb, slot| {
                tables
                    .get_mut(usize::from(vb.get()))
                    .map_or(Relocated::Kept, |table| table.relocate(&slot, None))
            });
            spent += cpu_nanos()? - started;
            moved += done.moved_bytes;
            released += done.released_bytes;
        }
        if (turn + 1) % (items * 2) == 0 {
            report(&format!("{:2} x replaced ", (turn + 1) / items), &tables, &lengths)?;
        }
    }
    println!(
        "defragmenter: moved {} MB, returned {} MB, {} CPU ms",
        moved >> 20,
        released >> 20,
        spent / 1_000_000
    );
    let mut kept = 0;
    for number in 0..items {
        if number % 10 == 0 {
            lengths[kept] = lengths[number as usize];
            kept += 1;
            continue;
        }
        let key = Key::new(number);
        let table = &mut tables.tables[usize::from(key.vb.get())];
        if let Some(id) = table.find(key.hash, &key.encoded).map(ItemRef::id)
            && let Some(taken) = table.remove(key.hash, id)
        {
            // SAFETY: of this arena.
            unsafe { taken.release(&tables.arena) };
        }
    }
    lengths.truncate(kept);
    report("9 of 10 deleted", &tables, &lengths)?;
    for _ in 0..1_000 {
        let Tables { arena, tables } = &mut tables;
        let done = defragmenter.step(arena, BUDGET_BYTES, &mut |vb, slot| {
            tables.get_mut(usize::from(vb.get())).map_or(Relocated::Kept, |table| table.relocate(&slot, None))
        });
        if !done.more {
            break;
        }
    }
    report("defragmented   ", &tables, &lengths)
}

fn find(items: u64) -> io::Result<()> {
    const BATCH: usize = 16;
    const LOOKUPS: u64 = 2_000_000;
    let mut tables = Tables::new()?;
    for number in 0..items {
        tables.put(&Key::new(number), &[b'v'; 100])?;
    }
    let hints: Vec<_> = tables.tables.iter().map(HashTable::hint).collect();
    // Keys are made beforehand, as they would be read from a socket.
    let keys: Vec<Key> = (0..LOOKUPS).map(|turn| Key::new(mix(turn) % items)).collect();
    let absent: Vec<Key> = (0..LOOKUPS).map(|turn| Key::new(items + turn)).collect();
    let hit = |key: &Key| {
        let found = tables.tables[usize::from(key.vb.get())].find(key.hash, &key.encoded);
        found.map_or(0, |item| item.cas().get() + u64::from(item.value()[0]))
    };
    let waves = |keys: &[Key], table_wave: bool, item_wave: bool| {
        let started = cpu_nanos()?;
        let mut sum = 0;
        for batch in keys.chunks(BATCH) {
            if table_wave {
                batch
                    .iter()
                    .for_each(|key| hints[usize::from(key.vb.get())].prefetch(key.hash, &tables.arena));
            }
            if item_wave {
                batch.iter().for_each(|key| tables.tables[usize::from(key.vb.get())].prefetch_item(key.hash));
            }
            sum += batch.iter().map(hit).sum::<u64>();
        }
        Ok::<_, io::Error>(((cpu_nanos()? - started) as f64 / keys.len() as f64, sum))
    };
    for round in 0..3 {
        let (plain, sum) = waves(&keys, false, false)?;
        let (table_only, _) = waves(&keys, true, false)?;
        let (both, again) = waves(&keys, true, true)?;
        let (miss, none) = waves(&absent, false, false)?;
        assert!(sum == again && sum == LOOKUPS * (1 + u64::from(b'v')) && none == 0);
        println!(
            "round {round}: hit {plain:.0} ns, table prefetched {table_only:.0} ns, item too {both:.0} ns, miss {miss:.0} ns"
        );
    }
    Ok(())
}
