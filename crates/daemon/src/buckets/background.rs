//! The threads behind one bucket. They own no state: each calls the engine's step functions in a loop, paced by a wake flag
//! and a timeout. An idle bucket costs a few wake-ups per second: nobody polls faster for what a wake flag tells.
//!
//! | thread | per | calls | wakes |
//! |---|---|---|---|
//! | flush | bucket and shard | `Bucket::flush` | woken when somebody waits for persistence; every 25 ms while something is dirty, else woken by the first mutation |
//! | fetch | bucket and shard, four each | `Bucket::run_fetches` | woken when a key is queued |
//! | backfill | bucket and shard | `Bucket::run_backfills` | woken when a feed needs the disk, every 500 ms |
//! | pacing | node | `Bucket::pace` | see [`crate::buckets::pacing`] |
//! | warm-up | bucket | `Bucket::warm_up`, then `Bucket::record_hot_keys` | every minute |
//!
//! What the node does for all buckets is in [`crate::buckets::housekeeping`].

use std::{
    cell::Cell,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use base::bucket::BucketKind;
use dataplane::{BucketMeter, Shared, Wakes, machine::thread_cpu};
use engine::{Bucket, Budget, FlushReport, Notifier, Waiter, Work};
use service::Alarms;

use crate::threads::{
    group_commit::GroupCommit,
    priority::{ask_for_short_slices, lower_priority},
    spawn::spawn,
    wake_flag::{NodeWakeFlags, SharedWakeFlag, WakeFlag},
};

/// Dirty documents wait for the disk at most this long before they are written (not necessarily synced).
const FLUSH_EVERY: Duration = Duration::from_millis(25);
/// A shard in which nothing is dirty looks after its CAS ceiling this often.
const FLUSH_IDLE: Duration = Duration::from_secs(1);
/// A shard that could not write tries again after this long.
const FLUSH_RETRY: Duration = Duration::from_millis(200);
/// While requests wait for the disk, warm-up rests so many times as long as it has worked, within bounds. It reads
/// large pieces: on a slow disk each takes as long as many reads for requests.
const WARM_UP_REST: u32 = 3;
const WARM_UP_REST_MIN: Duration = Duration::from_millis(2);
const WARM_UP_REST_MAX: Duration = Duration::from_millis(200);
/// The keys that are used most are noted now and then. How often the thread looks whether that is due, how much it
/// does at a time, and how many times as long it then rests.
const RECORD_LOOK: Duration = Duration::from_secs(60);
const RECORD_STEP: Budget = Budget { items: 1024, bytes: 1 << 20 };
const RECORD_REST: u32 = 8;
/// Pause after a warm-up step that could not read.
const WARM_UP_RETRY: Duration = Duration::from_secs(1);
/// After one that found no room it is as long as the step has taken, up to this. Each step reads the shard from the beginning.
const WARM_UP_RETRY_MAX: Duration = Duration::from_secs(60);
/// A fetch thread without work looks at its stop flag this often.
const FETCH_IDLE: Duration = Duration::from_secs(10);
/// Feeds whose consumers are gone or idle are looked for this often.
const BACKFILL_IDLE: Duration = Duration::from_millis(500);
/// Threads that read single documents, per bucket and shard: while one waits for the disk others go on.
const FETCHERS: usize = 4;
/// Keys fetched between two looks at the stop flag.
const FETCH_BATCH_KEYS: usize = 64;

/// The wake flags of one bucket's threads; what the engine is given as its [`Notifier`].
pub(crate) struct BucketWakeFlags {
    flush: Vec<WakeFlag>,
    fetch: Vec<SharedWakeFlag>,
    backfill: Vec<WakeFlag>,
    /// Of the thread that notes what is used most.
    recording: WakeFlag,
    node: NodeWakeFlags,
    workers: Wakes,
    alarms: Arc<Alarms>,
    meter: Arc<BucketMeter>,
}

impl BucketWakeFlags {
    pub(crate) fn new(
        shards: usize,
        node: NodeWakeFlags,
        (workers, alarms): (Wakes, Arc<Alarms>),
        meter: Arc<BucketMeter>,
    ) -> Self {
        let wake_flags = || (0..shards).map(|_| WakeFlag::default()).collect();
        Self {
            flush: wake_flags(),
            fetch: (0..shards).map(|_| SharedWakeFlag::default()).collect(),
            backfill: wake_flags(),
            recording: WakeFlag::default(),
            node,
            workers,
            alarms,
            meter,
        }
    }
}

impl Notifier for BucketWakeFlags {
    fn wake(&self, waiter: Waiter) {
        if waiter.worker == service::WORKER {
            self.alarms.wake(waiter);
        } else {
            self.workers.wake(waiter);
        }
    }

    fn work(&self, kind: Work) {
        let wake_flag = match kind {
            Work::Flush(shard) => self.flush.get(shard),
            Work::Fetch(shard) => {
                self.fetch.get(shard).into_iter().for_each(SharedWakeFlag::wake);
                return;
            }
            Work::Backfill(shard) => self.backfill.get(shard),
            Work::Room => Some(&*self.node.housekeeping),
            Work::Pace => Some(&*self.node.pacing),
        };
        if let Some(wake_flag) = wake_flag {
            wake_flag.wake();
        }
    }

    fn thread_nanos(&self) -> u64 {
        u64::try_from(thread_cpu().as_nanos()).unwrap_or(u64::MAX)
    }

    fn held(&self, nanos: u64) {
        self.meter.record_commit(nanos);
    }
}

/// The running threads of one bucket.
pub(crate) struct BucketThreads {
    bucket: Arc<Bucket>,
    stop: Arc<AtomicBool>,
    wake_flags: Arc<BucketWakeFlags>,
    threads: Vec<JoinHandle<()>>,
}

impl BucketThreads {
    /// Starts the threads of a bucket; `persistent` buckets flush, fetch and warm up; all but caches
    /// backfill. When one cannot be started those before it end again: they would keep the bucket, and its files, from
    /// being opened by the next attempt.
    pub(crate) fn start(
        bucket: &Arc<Bucket>,
        wake_flags: Arc<BucketWakeFlags>,
        persistent: bool,
        meter: Arc<BucketMeter>,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let steps = Steps { bucket: Arc::clone(bucket), meter, shared, stop: Arc::clone(&stop) };
        let mut started = Self { bucket: Arc::clone(bucket), stop, wake_flags, threads: Vec::new() };
        match started.spawn_all(&steps, persistent) {
            Ok(()) => Ok(started),
            Err(error) => {
                started.stop();
                Err(error)
            }
        }
    }

    fn spawn_all(&mut self, steps: &Steps, persistent: bool) -> io::Result<()> {
        let shards = 0..self.bucket.shards();
        if self.bucket.kind() != BucketKind::Memcached {
            for shard in shards.clone() {
                let (s, b) = (steps.clone(), Arc::clone(&self.wake_flags));
                self.threads.push(spawn("backfill", move || s.backfill_loop(shard, &b.backfill[shard]))?);
            }
        }
        if persistent {
            for shard in shards {
                let (s, b) = (steps.clone(), Arc::clone(&self.wake_flags));
                self.threads.push(spawn("flush", move || s.flush_loop(shard, &b.flush[shard]))?);
                for _ in 0..FETCHERS {
                    let (s, b) = (steps.clone(), Arc::clone(&self.wake_flags));
                    self.threads.push(spawn("fetch", move || s.fetch_loop(shard, &b.fetch[shard]))?);
                }
            }
            let (s, b) = (steps.clone(), Arc::clone(&self.wake_flags));
            self.threads.push(spawn("warm-up", move || {
                s.warm_up_loop(&b.recording);
                s.record_loop(&b.recording);
            })?);
        }
        Ok(())
    }

    /// As if this were one of them.
    #[cfg(test)]
    pub(crate) fn add(&mut self, thread: JoinHandle<()>) {
        self.threads.push(thread);
    }

    /// Tells the threads to end, waiting for none of them. Once this returns the bucket accepts no mutation.
    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::Release);
        // A warm-up reads the whole bucket in one step, and looks at this only.
        self.bucket.begin_close();
        self.wake_flags.flush.iter().chain(&self.wake_flags.backfill).for_each(WakeFlag::wake);
        self.wake_flags.recording.wake();
        for _ in 0..FETCHERS {
            self.wake_flags.fetch.iter().for_each(SharedWakeFlag::wake);
        }
    }

    /// Ends the threads, and waits for them; what is dirty stays so, and nothing more is accepted.
    pub(crate) fn stop(self) {
        self.end();
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// What every thread of a bucket works on.
#[derive(Clone)]
struct Steps {
    bucket: Arc<Bucket>,
    meter: Arc<BucketMeter>,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
}

impl Steps {
    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn flush_loop(&self, shard: usize, wake_flag: &WakeFlag) {
        let bucket = self.bucket.name();
        let mut failing = false;
        while !self.stopping() {
            let start = Instant::now();
            let report = self.bucket.flush(shard, self.shared.now());
            if report.items > 0 || report.synced {
                self.meter.record_flush(start.elapsed());
            }
            let waiting = self.bucket.durable_waiting(shard);
            let group = GroupCommit::after(&report, start.elapsed(), waiting);
            if report.failed.is_some() != failing {
                failing = report.failed.is_some();
                log_flush_state(bucket, shard, &report);
            }
            if failing {
                std::thread::sleep(FLUSH_RETRY);
            } else if let Some(group) = group {
                group.gather(&self.bucket, shard, wake_flag);
            } else if !report.more {
                self.await_mutations(shard, wake_flag);
            }
        }
    }

    /// Until there is something to flush, and a little longer: most mutations come in groups.
    fn await_mutations(&self, shard: usize, wake_flag: &WakeFlag) {
        if self.bucket.doze(shard) {
            let is_woken = wake_flag.wait(FLUSH_IDLE);
            self.bucket.end_doze(shard);
            if !is_woken || self.bucket.is_flush_wanted(shard) || self.stopping() {
                return;
            }
        }
        wake_flag.wait(FLUSH_EVERY);
    }

    fn fetch_loop(&self, shard: usize, wake_flag: &SharedWakeFlag) {
        ask_for_short_slices();
        while !self.stopping() {
            if self.bucket.run_fetches(shard, FETCH_BATCH_KEYS, self.shared.now()) == 0 {
                wake_flag.wait(FETCH_IDLE);
            }
        }
    }

    fn backfill_loop(&self, shard: usize, wake_flag: &WakeFlag) {
        while !self.stopping() {
            let report = self.bucket.run_backfills(shard, self.shared.now());
            if report.failures > 0 {
                let (bucket, failures) = (self.bucket.name(), report.failures);
                tracing::error!(
                    bucket,
                    shard,
                    failures,
                    "feeds end because what they need cannot be read from disk"
                );
            }
            if !report.more {
                wake_flag.wait(BACKFILL_IDLE);
            }
        }
    }

    fn warm_up_loop(&self, wake_flag: &WakeFlag) {
        lower_priority();
        let bucket = self.bucket.name();
        self.meter.warm_up_begins();
        for shard in 0..self.bucket.shards() {
            let working_since = Cell::new(Instant::now());
            // A request that waits for a document goes first, in whatever shard, but does not stop this for good.
            let pause = || {
                let is_awaited =
                    (0..self.bucket.shards()).any(|shard| self.bucket.fetches_waiting(shard) > 0);
                if is_awaited {
                    std::thread::sleep(rest_after(working_since.get().elapsed()));
                }
                working_since.set(Instant::now());
            };
            let mut has_found_room = true;
            while !self.stopping() {
                let begin = Instant::now();
                match self.bucket.warm_up_pausing(shard, self.shared.now(), &pause) {
                    Ok(true) => {
                        if std::mem::take(&mut has_found_room) {
                            tracing::warn!(bucket, shard, "warm-up finds no room for all keys; trying again");
                        }
                        // Woken at the end.
                        wake_flag.wait(begin.elapsed().clamp(WARM_UP_RETRY, WARM_UP_RETRY_MAX));
                    }
                    Ok(false) => break,
                    Err(error) => {
                        // Documents stay reachable one by one through fetches; the disk may heal.
                        tracing::error!(bucket, shard, %error, "warm-up cannot read; trying again");
                        std::thread::sleep(WARM_UP_RETRY);
                    }
                }
            }
        }
        self.meter.warm_up_ends();
        let stats = self.bucket.stats();
        if self.bucket.is_warm() && stats.warmup_items > 0 {
            let (records, hot, bytes) = (stats.warmup_items, stats.warmup_hot, stats.warmup_bytes);
            let seconds = self.meter.warm_up_time().as_secs_f64();
            tracing::info!(bucket, records, hot, bytes, seconds, "warmed up");
        }
    }

    /// After the warm-up: now and then notes for the next one what is used most.
    fn record_loop(&self, wake_flag: &WakeFlag) {
        while !self.stopping() {
            wake_flag.wait(RECORD_LOOK);
            let mut more = true;
            while more && !self.stopping() {
                let begin = Instant::now();
                more = match self.bucket.record_hot_keys(self.shared.now(), RECORD_STEP) {
                    Ok(report) => report.more,
                    Err(error) => {
                        let bucket = self.bucket.name();
                        tracing::warn!(bucket, %error, "what is used most could not be noted");
                        false
                    }
                };
                if more {
                    // Woken at the end: a step that the disk held up is not to be made up for then.
                    wake_flag.wait(begin.elapsed() * RECORD_REST);
                }
            }
        }
    }
}

/// How long warm-up rests that has worked for so long.
fn rest_after(worked: Duration) -> Duration {
    (worked * WARM_UP_REST).clamp(WARM_UP_REST_MIN, WARM_UP_REST_MAX)
}

fn log_flush_state(bucket: &str, shard: usize, report: &FlushReport) {
    match report.failed {
        Some(failure) => tracing::error!(bucket, shard, ?failure, "writing fails; mutations are refused"),
        None => tracing::info!(bucket, shard, "writing works again"),
    }
}
