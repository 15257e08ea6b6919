//! How many durable writes share a sync: writers that each wait for their write to be on disk before the next one,
//! over a segment log in a directory, with one flush thread as the server has it.
//!
//! `cargo run --release -p settee-engine --example group_commit DIRECTORY [value bytes] [seconds]`

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base::{
    DocKey, HashedKey, Now,
    bucket::{BucketKind, DurabilityLevel},
    hash::{key_hash, vbucket_of},
};
use settee_engine::{Bucket, BucketOptions, Notifier, Refusal, Store, Wait, Waiter, Work};
use storage::{Options, RealFs};

/// The flush thread of the server looks at least this often.
const FLUSH_EVERY: Duration = Duration::from_millis(25);

#[derive(Default)]
struct Bell(Mutex<bool>, Condvar);

impl Bell {
    fn ring(&self) {
        *self.0.lock().expect("no panics") = true;
        self.1.notify_one();
    }

    fn wait(&self, longest: Duration) {
        let rung = self.0.lock().expect("no panics");
        let (mut rung, _) = self.1.wait_timeout_while(rung, longest, |rung| !*rung).expect("no panics");
        *rung = false;
    }
}

struct Bells {
    flush: Bell,
    writers: Vec<Bell>,
}

impl Notifier for Bells {
    fn wake(&self, waiter: Waiter) {
        self.writers[waiter.connection as usize].ring();
    }

    fn work(&self, kind: Work) {
        if let Work::Flush(_) = kind {
            self.flush.ring();
        }
    }
}

struct Clock(Instant);

impl Clock {
    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        Now { wall_nanos: wall.as_nanos() as u64, mono_millis: self.0.elapsed().as_millis() as u64 }
    }
}

fn main() {
    let argument = |index| std::env::args().nth(index);
    let Some(directory) = argument(1) else {
        eprintln!("name a directory on the disk to measure");
        return;
    };
    let value_bytes = argument(2).and_then(|text| text.parse().ok()).unwrap_or(1_000);
    let seconds = argument(3).and_then(|text| text.parse().ok()).unwrap_or(3);
    println!("values of {value_bytes} bytes\n");
    println!(
        "| writers | writes/s | writes per sync | sync ms | p50 ms | p99 ms |\n|---|---|---|---|---|---|"
    );
    for writers in [1, 4, 16, 64, 256] {
        let directory = Path::new(&directory).join(format!("group-commit-{writers}"));
        measure(&directory, writers, value_bytes, Duration::from_secs(seconds));
        let _ = std::fs::remove_dir_all(&directory);
    }
}

fn measure(directory: &Path, writers: usize, value_bytes: usize, time: Duration) {
    let bells =
        Arc::new(Bells { flush: Bell::default(), writers: (0..writers).map(|_| Bell::default()).collect() });
    let clock = Arc::new(Clock(Instant::now()));
    let log = storage::open(directory, Arc::new(RealFs), Options::default()).expect("a log");
    let options =
        BucketOptions { kind: BucketKind::Couchbase, shards: 1, ..BucketOptions::new("durable", 1 << 30) };
    let bucket = Bucket::open(options, vec![Arc::new(log)], Arc::default(), bells.clone(), clock.now())
        .expect("a bucket");
    while bucket.warm_up(0, clock.now()).expect("an empty log") {}

    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicBool::new(false));
    let flushing = Arc::new(AtomicU64::new(0));
    let flusher = {
        let (bucket, bells, clock) = (bucket.clone(), bells.clone(), clock.clone());
        let (done, flushing) = (done.clone(), flushing.clone());
        std::thread::spawn(move || {
            while !done.load(Ordering::Acquire) {
                let start = Instant::now();
                let report = bucket.flush(0, clock.now());
                let took = start.elapsed();
                if report.synced {
                    flushing.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
                }
                if !report.more {
                    bells.flush.wait(FLUSH_EVERY);
                }
            }
        })
    };

    let begin = Arc::new(Barrier::new(writers + 1));
    let threads: Vec<_> = (0..writers)
        .map(|number| {
            let (bucket, bells, clock) = (bucket.clone(), bells.clone(), clock.clone());
            let (begin, stop) = (begin.clone(), stop.clone());
            std::thread::spawn(move || {
                begin.wait();
                let value = vec![b'v'; value_bytes];
                let mut latencies = Vec::new();
                while !stop.load(Ordering::Acquire) {
                    let start = Instant::now();
                    write(&bucket, &bells.writers[number], &clock, number, latencies.len(), &value);
                    latencies.push(start.elapsed());
                }
                latencies
            })
        })
        .collect();
    begin.wait();
    let syncs = || bucket.stats().stores.iter().map(|store| store.syncs).sum::<u64>();
    let (before, start) = (syncs(), Instant::now());
    std::thread::sleep(time);
    let (during, elapsed) = (syncs() - before, start.elapsed());
    stop.store(true, Ordering::Release);
    let mut latencies: Vec<_> =
        threads.into_iter().flat_map(|thread| thread.join().expect("a writer ends")).collect();
    done.store(true, Ordering::Release);
    bells.flush.ring();
    flusher.join().expect("the flusher ends");
    latencies.sort();
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize].as_secs_f64() * 1_000.0;
    println!(
        "| {writers} | {:.0} | {:.1} | {:.2} | {:.2} | {:.2} |",
        latencies.len() as f64 / elapsed.as_secs_f64(),
        latencies.len() as f64 / during as f64,
        flushing.load(Ordering::Relaxed) as f64 / 1e6 / syncs() as f64,
        at(0.5),
        at(0.99),
    );
}

/// One durable write, to the end. Every writer has keys of its own.
fn write(bucket: &Bucket, bell: &Bell, clock: &Clock, writer: usize, round: usize, value: &[u8]) {
    let encoded = format!("\0writer-{writer}-{}", round % 1_000);
    let key = DocKey::trusted(encoded.as_bytes());
    let hashed = HashedKey { key, hash: key_hash(encoded.as_bytes()) };
    let vb = vbucket_of(key.logical(), 1024);
    let store = Store { durability: DurabilityLevel::PersistToMajority, ..Store::set(value) };
    let mutated = loop {
        match bucket.store(vb, hashed, &store, clock.now()) {
            Ok(mutated) => break mutated,
            // The CAS ceiling of a new log is about to be raised.
            Err(Refusal::Status(base::Status::TemporaryFailure)) => std::thread::yield_now(),
            Err(refusal) => panic!("{refusal:?}"),
        }
    };
    let waiter = Waiter { worker: 0, connection: writer as u64, ticket: 0 };
    while bucket.complete_durable(vb, &mutated, waiter) == Ok(Wait::Parked) {
        bell.wait(Duration::from_secs(10));
    }
}
