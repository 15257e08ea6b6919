//! The flusher's alarm under a scheduler that decides at every step which thread goes on: nothing that was marked is slept over.
//!
//! Time does not pass here. A thread that would have to wait for a timeout hangs, and the scheduler says so.
//!
//! The scheduler knows one order of all steps. It finds steps in a wrong order, and no atomic access that is too weak.

#![allow(clippy::unwrap_used, reason = "tests")]

/// What [`alarm`] is made of here.
mod sync {
    pub(crate) use shuttle::sync::atomic;
}

#[path = "../src/shard/alarm.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests use a part of it")]
mod alarm;

use std::collections::BTreeSet;
use std::sync::Arc;

use alarm::Alarm;
use shuttle::{
    sync::{Condvar, Mutex},
    thread,
};

const SCHEDULES: usize = 5_000;
/// Steps at which the order of threads has to change for a mistake to show.
const DEPTH: usize = 3;

fn explore(scenario: fn()) {
    shuttle::check_random(scenario, SCHEDULES);
    shuttle::check_pct(scenario, SCHEDULES, DEPTH);
}

/// Wakes the thread that waits for it, or the next one that does.
#[derive(Default)]
struct WakeFlag {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl WakeFlag {
    fn wake(&self) {
        *self.is_set.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut is_set = self.is_set.lock().unwrap();
        while !*is_set {
            is_set = self.changed.wait(is_set).unwrap();
        }
        *is_set = false;
    }
}

/// Writers mark vBuckets while the flusher takes what is dirty and dozes in between.
fn writers_beside_a_flusher_that_dozes() {
    const VBUCKETS: usize = 3;
    let (alarm, wake_flag) = (Arc::new(Alarm::new(VBUCKETS)), Arc::new(WakeFlag::default()));
    let writers: Vec<_> = (0..VBUCKETS)
        .map(|vb| {
            let (alarm, wake_flag) = (Arc::clone(&alarm), Arc::clone(&wake_flag));
            thread::spawn(move || {
                if alarm.mark_dirty(vb, 1) {
                    wake_flag.wake();
                }
            })
        })
        .collect();
    let mut flushed = BTreeSet::new();
    while flushed.len() < VBUCKETS {
        flushed.extend(alarm.take_dirty());
        if flushed.len() < VBUCKETS && alarm.doze() {
            wake_flag.wait();
            alarm.wake_up();
        }
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

#[test]
fn no_mutation_is_slept_over() {
    explore(writers_beside_a_flusher_that_dozes);
}

type Shared = (Arc<Alarm>, Arc<WakeFlag>, Arc<Mutex<usize>>);

/// Writers that count themselves, and wake the flusher where its alarm says so.
fn writers(count: usize, calls: fn(&Alarm) -> bool) -> (Shared, Vec<thread::JoinHandle<()>>) {
    let shared: Shared = (Arc::new(Alarm::new(1)), Arc::default(), Arc::new(Mutex::new(0)));
    let writers = (0..count)
        .map(|_| {
            let (alarm, wake_flag, waiting) = shared.clone();
            thread::spawn(move || {
                *waiting.lock().unwrap() += 1;
                if calls(&alarm) {
                    wake_flag.wake();
                }
            })
        })
        .collect();
    (shared, writers)
}

/// Writers wait until the flusher has served them. It gathers them before each flush.
fn durable_writers_beside_a_flusher_that_gathers() {
    const WRITERS: usize = 2;
    let ((alarm, wake_flag, waiting), writers) = writers(WRITERS, |alarm| {
        // As the engine does: a write counts once it is made, and then asks for its flush.
        let is_last = alarm.count_durable();
        alarm.want_flush() || is_last
    });
    let mut served = 0;
    alarm.gather(WRITERS);
    while alarm.durable() < WRITERS {
        wake_flag.wait();
    }
    alarm.gather(0);
    while served < WRITERS {
        alarm.begin_flush();
        served += std::mem::take(&mut *waiting.lock().unwrap());
        if served < WRITERS && !alarm.is_flush_wanted() {
            wake_flag.wait();
        }
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

#[test]
fn the_last_of_the_gathered_writers_tells_the_flusher() {
    explore(durable_writers_beside_a_flusher_that_gathers);
}

/// Writers come one by one to a flusher that sleeps in between.
fn writers_beside_a_flusher_that_is_asked() {
    const WRITERS: usize = 3;
    let ((alarm, wake_flag, waiting), writers) = writers(WRITERS, Alarm::want_flush);
    let mut served = 0;
    while served < WRITERS {
        wake_flag.wait();
        alarm.begin_flush();
        served += std::mem::take(&mut *waiting.lock().unwrap());
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

#[test]
fn nobody_waits_for_a_flush_that_nobody_has_been_asked_for() {
    explore(writers_beside_a_flusher_that_is_asked);
}
