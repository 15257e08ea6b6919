//! What the item pager keeps: hit rates of a skewed read load that full scans interrupt. They are compared with a
//! cache of the same size that evicts what was used longest ago. Everything is deterministic; the seed is printed.
//!
//! `cargo test --release -p settee-engine --test scan_resistance -- --ignored --nocapture` prints the table at
//! full size.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;

use base::bucket::EvictionPolicy;
use settee_engine::{BucketChange, BucketOptions, Budget, Store};
use support::Rig;

/// Bytes of each value.
const VALUE_BYTES: usize = 512;
const SEED: u64 = 20_261_121;

/// A generator without dependencies (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Draws documents by Zipf's law, the popular ones scattered over the keys.
struct Zipf {
    cumulated: Vec<f64>,
    places: Vec<usize>,
}

impl Zipf {
    fn new(documents: usize, exponent: f64, dice: &mut Dice) -> Self {
        let mut sum = 0.0;
        let weights = (1..=documents).map(|rank| (rank as f64).powf(-exponent));
        let cumulated: Vec<f64> = weights
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        let mut places: Vec<usize> = (0..documents).collect();
        for index in (1..documents).rev() {
            places.swap(index, (dice.next() % (index as u64 + 1)) as usize);
        }
        Self { cumulated, places }
    }

    fn draw(&self, dice: &mut Dice) -> usize {
        let point = dice.unit() * self.cumulated.last().copied().unwrap_or(0.0);
        self.places[self.cumulated.partition_point(|&sum| sum < point).min(self.places.len() - 1)]
    }

    /// The share of reads that the `resident` most popular documents get: what no cache of that size exceeds for long.
    fn best(&self, resident: usize) -> f64 {
        self.cumulated[resident.min(self.cumulated.len()) - 1] / self.cumulated[self.cumulated.len() - 1]
    }
}

/// Least recently used goes.
struct Lru {
    capacity: usize,
    clock: u64,
    used_at: Vec<u64>,
    by_age: BTreeMap<u64, usize>,
}

impl Lru {
    fn new(documents: usize, capacity: usize) -> Self {
        Self { capacity, clock: 0, used_at: vec![0; documents], by_age: BTreeMap::new() }
    }

    /// Whether it was a hit.
    fn read(&mut self, document: usize) -> bool {
        self.clock += 1;
        let before = std::mem::replace(&mut self.used_at[document], self.clock);
        let hit = self.by_age.remove(&before).is_some();
        self.by_age.insert(self.clock, document);
        if self.by_age.len() > self.capacity {
            self.by_age.pop_first();
        }
        hit
    }
}

/// A bucket with documents, of which about `share` fit into memory.
struct Bench {
    rig: Rig,
    keys: Vec<Vec<u8>>,
    reads: u64,
    misses: u64,
}

impl Bench {
    fn new(documents: usize, share: f64) -> Self {
        let options = BucketOptions { vbuckets: 16, ..BucketOptions::new("bench", 1 << 40) };
        let mut rig = Rig::new(options);
        let keys: Vec<Vec<u8>> = (0..documents).map(|n| format!("\0document-{n:012}").into_bytes()).collect();
        let value = [b'v'; VALUE_BYTES];
        for key in &keys {
            let request = Store::set(&value);
            let now = rig.now();
            rig.run(key, |bucket, vb, hashed| bucket.store(vb, hashed, &request, now)).unwrap();
        }
        rig.flush();
        let stats = rig.bucket.stats();
        let values = (documents * VALUE_BYTES) as f64;
        // Between the watermarks there is room for the share.
        let quota = ((stats.mem_used as f64 - values * (1.0 - share)) / 0.80) as u64;
        rig.bucket.reconfigure(BucketChange { quota_bytes: Some(quota), ..Default::default() });
        let bench = Self { rig, keys, reads: 0, misses: 0 };
        bench.make_room();
        bench
    }

    fn make_room(&self) {
        let budget = Budget { items: 64, ..Budget::default() };
        while self.rig.bucket.wants_room() && self.rig.bucket.page(self.rig.now(), budget).more {}
    }

    fn resident(&self) -> usize {
        let stats = self.rig.bucket.stats();
        (stats.curr_items - stats.non_resident) as usize
    }

    fn read(&mut self, document: usize) -> bool {
        let before = self.rig.bucket.stats().ops.bg_fetched;
        let now = self.rig.now();
        self.rig.run(&self.keys[document], |bucket, vb, key| bucket.get(vb, key, now, |_| ())).unwrap();
        self.rig.recorder.woken.lock().clear();
        self.rig.recorder.work.lock().clear();
        let hit = self.rig.bucket.stats().ops.bg_fetched == before;
        if !hit {
            self.make_room();
        }
        self.reads += 1;
        self.misses += u64::from(!hit);
        hit
    }
}

/// Hit rates of one phase.
#[derive(Debug, Default, Clone, Copy)]
struct Rates {
    pager: f64,
    lru: f64,
    best: f64,
}

/// The load without scans, then with `scans` of everything, `reads` draws after each. Only draws count.
fn measure(documents: usize, share: f64, reads: usize, scans: usize) -> (Rates, Rates) {
    println!("seed {SEED}");
    let mut dice = Dice(SEED);
    let zipf = Zipf::new(documents, 0.99, &mut dice);
    let mut bench = Bench::new(documents, share);
    // As much as the pager ever has.
    let capacity = bench.resident() * 85 / 75;
    let mut lru = Lru::new(documents, capacity);
    let mut phase = |bench: &mut Bench, lru: &mut Lru, reads: usize| {
        let (mut hits, mut lru_hits) = (0, 0);
        for _ in 0..reads {
            let document = zipf.draw(&mut dice);
            hits += usize::from(bench.read(document));
            lru_hits += usize::from(lru.read(document));
        }
        let rate = |hits: usize| hits as f64 / reads as f64;
        Rates { pager: rate(hits), lru: rate(lru_hits), best: zipf.best(capacity) }
    };
    // Gets used to the load.
    phase(&mut bench, &mut lru, 4 * documents);
    let quiet = phase(&mut bench, &mut lru, reads);
    let mut after = Rates { best: quiet.best, ..Rates::default() };
    for _ in 0..scans {
        for document in 0..documents {
            bench.read(document);
            lru.read(document);
        }
        let rates = phase(&mut bench, &mut lru, reads);
        after.pager += rates.pager / scans as f64;
        after.lru += rates.lru / scans as f64;
    }
    (quiet, after)
}

#[test]
fn a_full_scan_does_not_flush_the_working_set() {
    // Fewer reads between scans than a cache needs to recover.
    let (quiet, after) = measure(4_000, 0.25, 1_000, 5);
    println!("quiet {quiet:.3?}, with scans {after:.3?}");
    assert!(quiet.pager > quiet.lru, "frequency beats recency on a skewed load");
    assert!(quiet.pager > quiet.best * 0.9);
    assert!(after.pager > quiet.pager * 0.95, "the working set is still there after each scan");
    assert!(after.lru < quiet.lru * 0.9, "or the scans would prove nothing");
}

#[test]
#[ignore = "a table for people: run it in release"]
fn hit_rates_at_full_size() {
    println!("share  reads/scan   quiet: pager lru best   with scans: pager lru");
    for share in [0.05, 0.10, 0.25, 0.50] {
        for reads in [20_000, 100_000] {
            let (quiet, after) = measure(100_000, share, reads, 5);
            println!(
                "{:>4.0} %  {reads:>9}   {:.3} {:.3} {:.3}   {:.3} {:.3}",
                share * 100.0,
                quiet.pager,
                quiet.lru,
                quiet.best,
                after.pager,
                after.lru
            );
        }
    }
}

#[test]
fn what_was_used_most_is_loaded_first_after_a_restart() {
    for eviction in [EvictionPolicy::ValueOnly, EvictionPolicy::FullEviction] {
        let mut bench = Bench::new(2_000, 0.2);
        bench.rig.bucket.reconfigure(BucketChange { eviction: Some(eviction), ..Default::default() });
        bench.rig.options.eviction = eviction;
        bench.rig.options.quota_bytes = bench.rig.bucket.stats().quota_bytes;
        let hot: Vec<usize> = (0..2_000).step_by(20).collect();
        for _ in 0..10 {
            hot.iter().for_each(|&document| {
                bench.read(document);
            });
        }
        // The last in the disk's order come first here, for all that would not fit were they not hot.
        bench.rig = bench.rig.restart();
        bench.rig.warm_up();
        let stats = bench.rig.bucket.stats();
        assert!(stats.non_resident > 1_000, "most do not fit");
        assert!(stats.warmup_hot >= hot.len() as u64);
        let misses = bench.misses;
        assert!(hot.iter().all(|&document| bench.read(document)), "they are all there: {eviction:?}");
        assert_eq!(bench.misses, misses);
        // And they are still known to be hot: a scan does not drive them out.
        (0..2_000).for_each(|document| {
            bench.read(document);
        });
        assert!(hot.iter().all(|&document| bench.read(document)), "they stay: {eviction:?}");
    }
}

#[test]
fn without_the_record_nothing_is_known_to_be_hot() {
    let mut bench = Bench::new(500, 0.2);
    bench.rig.options.quota_bytes = bench.rig.bucket.stats().quota_bytes;
    bench.rig.bucket.reconfigure(BucketChange { hot_keys: Some(false), ..Default::default() });
    for _ in 0..20 {
        bench.read(499);
    }
    bench.rig = bench.rig.restart();
    bench.rig.warm_up();
    assert_eq!(bench.rig.bucket.stats().warmup_hot, 0);
}

#[test]
fn the_record_is_made_now_and_then_in_bounded_steps() {
    let mut bench = Bench::new(1_000, 0.5);
    bench.rig.options.quota_bytes = bench.rig.bucket.stats().quota_bytes;
    bench.rig.warm_up();
    for _ in 0..20 {
        bench.read(999);
    }
    let budget = Budget { items: 64, ..Budget::default() };
    assert!(!bench.rig.bucket.record_hot_keys(bench.rig.now(), budget).unwrap().more, "not yet");
    bench.rig.clock.advance_secs(3_600);
    let mut steps = 1;
    while bench.rig.bucket.record_hot_keys(bench.rig.now(), budget).unwrap().more {
        steps += 1;
    }
    // A step ends behind the chunk that uses its budget up.
    assert!(steps >= 1_000 / (2 * 80), "{steps} steps");
    let bench = Bench { rig: bench.rig.crash(), ..bench };
    bench.rig.warm_up();
    assert_eq!(bench.rig.bucket.stats().warmup_hot, 1, "a crash keeps the last record");
}
