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
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// Writers mark vBuckets while the flusher takes what is dirty and dozes in between.
fn writers_beside_a_flusher_that_dozes() {
    const VBUCKETS: usize = 3;
    let (alarm, bell) = (Arc::new(Alarm::new(VBUCKETS)), Arc::new(Bell::default()));
    let writers: Vec<_> = (0..VBUCKETS)
        .map(|vb| {
            let (alarm, bell) = (Arc::clone(&alarm), Arc::clone(&bell));
            thread::spawn(move || {
                if alarm.mark_dirty(vb, 1) {
                    bell.ring();
                }
            })
        })
        .collect();
    let mut flushed = BTreeSet::new();
    while flushed.len() < VBUCKETS {
        flushed.extend(alarm.take_dirty());
        if flushed.len() < VBUCKETS && alarm.doze() {
            bell.wait();
            alarm.wake_up();
        }
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

#[test]
fn no_mutation_is_slept_over() {
    explore(writers_beside_a_flusher_that_dozes);
}

/// Writers wait until the flusher has served them. It gathers them before each flush.
fn durable_writers_beside_a_flusher_that_gathers() {
    const WRITERS: usize = 2;
    let (alarm, bell) = (Arc::new(Alarm::new(1)), Arc::new(Bell::default()));
    let waiting = Arc::new(Mutex::new(0_usize));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (alarm, bell, waiting) = (Arc::clone(&alarm), Arc::clone(&bell), Arc::clone(&waiting));
            thread::spawn(move || {
                *waiting.lock().unwrap() += 1;
                // As the engine does: a write counts once it is made, and then asks for its flush.
                let is_last = alarm.count_durable();
                if alarm.want_flush() || is_last {
                    bell.ring();
                }
            })
        })
        .collect();
    let mut served = 0;
    alarm.gather(WRITERS);
    while alarm.durable() < WRITERS {
        bell.wait();
    }
    alarm.gather(0);
    while served < WRITERS {
        alarm.begin_flush();
        served += std::mem::take(&mut *waiting.lock().unwrap());
        if served < WRITERS && !alarm.is_flush_wanted() {
            bell.wait();
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
    let (alarm, bell) = (Arc::new(Alarm::new(1)), Arc::new(Bell::default()));
    let waiting = Arc::new(Mutex::new(0_usize));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (alarm, bell, waiting) = (Arc::clone(&alarm), Arc::clone(&bell), Arc::clone(&waiting));
            thread::spawn(move || {
                *waiting.lock().unwrap() += 1;
                if alarm.want_flush() {
                    bell.ring();
                }
            })
        })
        .collect();
    let mut served = 0;
    while served < WRITERS {
        bell.wait();
        alarm.begin_flush();
        served += std::mem::take(&mut *waiting.lock().unwrap());
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

#[test]
fn nobody_waits_for_a_flush_that_nobody_has_been_asked_for() {
    explore(writers_beside_a_flusher_that_is_asked);
}
