//! Which keys and which addresses most operations of a bucket go to and come from: hot keys and hot clients.
//!
//! One operation in [`EVERY`], drawn by lot, is counted in a small table of its worker. The table works by Space-Saving: what is not in
//! the full table takes the place of the smallest count, and inherits it. So what takes more than a thirty-second part of the samples is in the
//! table for certain. A count without what it has inherited is never too large; readers show that one.
//!
//! Invariants:
//! - A worker never waits: while a reader looks at its table, the sample is left out. Workers share nothing.
//! - Memory is bounded: a table per worker and bucket that has had operations, made at the first sample.
//! - Keys are content. They stay in these tables; only a reader with the right to the bucket's documents is shown them.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
};

use base::{DocKey, HashedKey, limits::ENCODED_KEY_BYTES_MAX};
use parking_lot::Mutex;
use stats::{HotClient, HotKey, HotReport};

/// One operation in so many is counted.
pub(crate) const EVERY: u32 = 128;
/// Keys of a table.
const KEYS: usize = 32;
/// Addresses of a table.
const CLIENTS: usize = 16;
/// Length of a window. What is told is of the current one and of the one before.
const WINDOW_MILLIS: u64 = 10_000;
/// Fewer samples of a key or an address are chance.
const SAMPLES_MIN: u32 = 8;
/// Addresses that are told.
const CLIENTS_TOLD_MAX: usize = 20;

/// A row of a table.
#[derive(Clone, Copy, Debug)]
struct Count {
    /// Samples, those that were inherited among them.
    samples: u32,
    inherited: u32,
}

impl Count {
    const NONE: Self = Self { samples: 0, inherited: 0 };

    fn certain(self) -> u32 {
        self.samples - self.inherited
    }
}

/// Key bytes without a heap.
#[derive(Clone, Copy, Debug)]
struct KeyBytes {
    length: u8,
    bytes: [u8; ENCODED_KEY_BYTES_MAX],
}

/// Samples of a stretch of time.
#[derive(Debug)]
struct Window {
    /// Monotonic milliseconds.
    began: u64,
    samples: u32,
    hashes: [u64; KEYS],
    keys: [Count; KEYS],
    names: [KeyBytes; KEYS],
    addresses: [Option<IpAddr>; CLIENTS],
    clients: [Count; CLIENTS],
}

/// What a worker takes for one bucket: the current window and the one before.
pub(crate) const BYTES: usize = 2 * size_of::<Window>();

impl Window {
    fn new() -> Self {
        Self {
            began: 0,
            samples: 0,
            hashes: [0; KEYS],
            keys: [Count::NONE; KEYS],
            names: [KeyBytes { length: 0, bytes: [0; ENCODED_KEY_BYTES_MAX] }; KEYS],
            addresses: [None; CLIENTS],
            clients: [Count::NONE; CLIENTS],
        }
    }

    fn begin(&mut self, now_millis: u64) {
        (self.began, self.samples) = (now_millis, 0);
        self.keys = [Count::NONE; KEYS];
        self.clients = [Count::NONE; CLIENTS];
    }

    fn note(&mut self, key: HashedKey<'_>, client: Option<IpAddr>) {
        self.samples = self.samples.saturating_add(1);
        self.note_key(key);
        let Some(client) = client else { return };
        let known = self.addresses.iter().zip(&self.clients);
        let at = known.clone().position(|(one, count)| count.samples > 0 && *one == Some(client));
        let (at, is_new) = at.map_or_else(|| (smallest(&self.clients), true), |at| (at, false));
        if let (Some(address), Some(count)) = (self.addresses.get_mut(at), self.clients.get_mut(at)) {
            *address = Some(client);
            add(count, is_new);
        }
    }

    fn note_key(&mut self, key: HashedKey<'_>) {
        let encoded = key.key.encoded();
        let is_it = |at: usize| {
            let name = self.names.get(at);
            let used = self.keys.get(at).is_some_and(|count| count.samples > 0);
            used && name.is_some_and(|name| name.bytes.get(..name.length.into()) == Some(encoded))
        };
        let at = self.hashes.iter().position(|hash| *hash == key.hash).filter(|at| is_it(*at));
        let (at, is_new) = at.map_or_else(|| (smallest(&self.keys), true), |at| (at, false));
        if is_new && let (Some(hash), Some(name)) = (self.hashes.get_mut(at), self.names.get_mut(at)) {
            let Some(room) = name.bytes.get_mut(..encoded.len()) else { return };
            room.copy_from_slice(encoded);
            (*hash, name.length) = (key.hash, u8::try_from(encoded.len()).unwrap_or(u8::MAX));
        }
        if let Some(count) = self.keys.get_mut(at) {
            add(count, is_new);
        }
    }
}

/// Where the smallest count is.
fn smallest(counts: &[Count]) -> usize {
    counts.iter().enumerate().min_by_key(|(_, count)| count.samples).map_or(0, |(at, _)| at)
}

fn add(count: &mut Count, is_new: bool) {
    if is_new {
        count.inherited = count.samples;
    }
    count.samples = count.samples.saturating_add(1);
}

/// The current window and the one before.
#[derive(Debug)]
struct Table {
    windows: [Window; 2],
    current: usize,
}

/// One worker's table for one bucket.
#[derive(Debug, Default)]
pub(crate) struct HotRow(Mutex<Option<Box<Table>>>);

impl HotRow {
    /// Counts an operation that was drawn.
    pub(crate) fn note(&self, now_millis: u64, key: HashedKey<'_>, client: Option<IpAddr>) {
        let Some(mut row) = self.0.try_lock() else { return };
        let table = row.get_or_insert_with(|| {
            let mut table = Box::new(Table { windows: [Window::new(), Window::new()], current: 0 });
            table.windows.iter_mut().for_each(|window| window.began = now_millis);
            table
        });
        let Table { windows, current } = &mut **table;
        if windows.get(*current).is_some_and(|window| now_millis >= window.began + WINDOW_MILLIS) {
            *current = 1 - *current;
            if let Some(window) = windows.get_mut(*current) {
                window.begin(now_millis);
            }
        }
        if let Some(window) = windows.get_mut(*current) {
            window.note(key, client);
        }
    }
}

/// What all workers have counted of a bucket.
#[derive(Default)]
struct Sum {
    samples: u32,
    addresses: HashSet<IpAddr>,
    keys: HashMap<Vec<u8>, u32>,
    clients: HashMap<IpAddr, u32>,
}

impl Sum {
    fn add(&mut self, window: &Window) {
        self.samples = self.samples.saturating_add(window.samples);
        for (count, name) in window.keys.iter().zip(&window.names) {
            if count.certain() > 0 {
                let key = name.bytes.get(..name.length.into()).unwrap_or_default();
                *self.keys.entry(key.to_vec()).or_default() += count.certain();
            }
        }
        for (count, address) in window.clients.iter().zip(&window.addresses) {
            if let (1.., Some(address)) = (count.samples, address) {
                self.addresses.insert(*address);
                *self.clients.entry(*address).or_default() += count.certain();
            }
        }
    }
}

/// What most operations of the last seconds went to and came from.
pub(crate) fn report<'a>(rows: impl Iterator<Item = &'a HotRow>, now_millis: u64) -> HotReport {
    let mut sum = Sum::default();
    let mut began = now_millis;
    for row in rows {
        let row = row.0.lock();
        let recent = |window: &&Window| window.samples > 0 && window.began + 2 * WINDOW_MILLIS > now_millis;
        for window in row.iter().flat_map(|table| table.windows.iter()).filter(recent) {
            began = began.min(window.began);
            sum.add(window);
        }
    }
    // Less than a second says little of a second.
    let seconds = (now_millis - began).max(1_000) as f64 / 1_000.0;
    let (all, each) = (f64::from(sum.samples.max(1)), f64::from(EVERY) / seconds);
    // All of them, a few per worker: a reader may see some, and is shown the hottest of those.
    let keys = hottest(sum.keys, usize::MAX).into_iter().map(|(encoded, samples)| {
        let key = DocKey::trusted(&encoded);
        let (share, per_second) = (f64::from(samples) / all, f64::from(samples) * each);
        HotKey { key: key.logical().to_vec(), collection: key.collection().get(), share, per_second }
    });
    let keys = keys.collect();
    let addresses = sum.addresses.len() as u64;
    let clients = hottest(sum.clients, CLIENTS_TOLD_MAX).into_iter().map(|(address, samples)| HotClient {
        bucket: String::new(),
        address: address.to_string(),
        share: f64::from(samples) / all,
        per_second: f64::from(samples) * each,
    });
    HotReport {
        bucket: String::new(),
        per_second: f64::from(sum.samples) * each,
        keys,
        addresses,
        clients: clients.collect(),
    }
}

fn hottest<T: Ord>(counts: HashMap<T, u32>, most: usize) -> Vec<(T, u32)> {
    let mut counts: Vec<_> = counts.into_iter().filter(|(_, samples)| *samples >= SAMPLES_MIN).collect();
    counts.sort_by(|one, other| (other.1, &one.0).cmp(&(one.1, &other.0)));
    counts.truncate(most);
    counts
}

/// The address of a client, in one form for both families.
pub(crate) fn address_of(peer: Option<SocketAddr>) -> Option<IpAddr> {
    peer.map(|peer| peer.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(row: &HotRow, at: u64, key: &str, client: u8) {
        let encoded = [&[0], key.as_bytes()].concat();
        row.note(at, HashedKey::new(DocKey::trusted(&encoded)), Some(IpAddr::from([10, 0, 0, client])));
    }

    fn told(rows: &[HotRow], now: u64) -> Vec<(String, u32)> {
        let keys = report(rows.iter(), now).keys.into_iter();
        keys.map(|hot| (String::from_utf8_lossy(&hot.key).into_owned(), (hot.share * 1_000.0) as u32))
            .collect()
    }

    #[test]
    fn a_hot_key_is_found_among_many_others_and_they_are_not_told() {
        let rows = [HotRow::default(), HotRow::default()];
        for number in 0..4_000_u32 {
            let row = &rows[(number % 2) as usize];
            if number % 10 == 3 {
                note(row, 1_000, "hot", 1);
            } else {
                note(row, 1_000, &format!("k{number}"), (number % 200) as u8);
            }
        }
        let told = told(&rows, 5_000);
        let names: Vec<_> = told.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["hot"], "{told:?}");
        assert!((50..=100).contains(&told[0].1), "a tenth at most, and most of it: {told:?}");
        let report = report(rows.iter(), 5_000);
        assert_eq!(report.per_second, 4_000.0 * f64::from(EVERY) / 4.0);
        assert_eq!(report.clients[0].address, "10.0.0.1");
    }

    #[test]
    fn what_was_hot_before_is_forgotten() {
        let rows = [HotRow::default()];
        (0..100).for_each(|_| note(&rows[0], 0, "former", 1));
        assert_eq!(told(&rows, 1_000), [("former".to_owned(), 1_000)]);
        (0..100).for_each(|_| note(&rows[0], WINDOW_MILLIS, "newer", 1));
        let both = [("former".to_owned(), 500), ("newer".to_owned(), 500)];
        assert_eq!(told(&rows, WINDOW_MILLIS + 1), both);
        assert_eq!(told(&rows, 2 * WINDOW_MILLIS), [("newer".to_owned(), 1_000)]);
        (0..100).for_each(|_| note(&rows[0], 2 * WINDOW_MILLIS, "newest", 1));
        let both = [("newer".to_owned(), 500), ("newest".to_owned(), 500)];
        assert_eq!(told(&rows, 2 * WINDOW_MILLIS + 1), both);
        assert_eq!(told(&rows, 5 * WINDOW_MILLIS), [], "nothing has come since");
    }

    #[test]
    fn keys_of_every_length_stand_in_a_table_and_a_few_samples_say_nothing() {
        let rows = [HotRow::default()];
        let longest = "x".repeat(ENCODED_KEY_BYTES_MAX - 1);
        (0..SAMPLES_MIN).for_each(|_| note(&rows[0], 0, &longest, 1));
        (1..SAMPLES_MIN).for_each(|_| note(&rows[0], 0, "rare", 1));
        let told = told(&rows, 1_000);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].0, longest);
    }

    #[test]
    fn every_hot_key_is_told_since_readers_may_see_some_only() {
        let rows = [HotRow::default(), HotRow::default()];
        for number in 0..60 {
            (0..SAMPLES_MIN).for_each(|_| note(&rows[number % 2], 0, &format!("k{number:02}"), 1));
        }
        assert_eq!(told(&rows, 1_000).len(), 60);
    }

    #[test]
    fn a_worker_leaves_a_sample_out_while_a_reader_looks() {
        let row = HotRow::default();
        let held = row.0.lock();
        note(&row, 0, "a", 1);
        drop(held);
        assert!(row.0.lock().is_none());
    }
}
