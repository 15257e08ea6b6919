//! The places where the server's threads meet, under a scheduler that decides at every step which thread goes on. No wake-up and no
//! letter may be lost.
//!
//! Time does not pass here. A thread that would have to wait for a timeout hangs, and the scheduler says so.
//!
//! The scheduler knows one order of all steps. It finds steps in a wrong order, and no atomic access that is too weak.

#![allow(clippy::unwrap_used, reason = "tests")]

/// What these places are made of here.
mod sync {
    use std::{
        ops::{Deref, DerefMut},
        time::Duration,
    };

    pub(crate) use shuttle::{sync::atomic, thread};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// Empty while its holder waits.
    pub(crate) struct Guard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> Guard<'_, T> {
            Guard(Some(self.0.lock().unwrap()))
        }
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        /// The time is never up.
        pub(crate) fn wait_for<T>(&self, guard: &mut Guard<'_, T>, _: Duration) {
            guard.0 = guard.0.take().map(|guard| self.0.wait(guard).unwrap());
        }
    }
}

#[path = "../../dataplane/src/state/flagged.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests use a part of it")]
mod flagged;
#[path = "../src/threads/wake_flag.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests use a part of it")]
mod wake_flag;

use std::{sync::Arc, time::Duration};

use flagged::Flagged;
use sync::{
    Condvar, Mutex,
    atomic::{AtomicUsize, Ordering},
    thread,
};
use wake_flag::{SharedWakeFlag, WakeFlag};

const SCHEDULES: usize = 5_000;
/// Steps at which the order of threads has to change for a mistake to show.
const DEPTH: usize = 3;
const NEVER: Duration = Duration::MAX;

fn explore(scenario: fn()) {
    shuttle::check_random(scenario, SCHEDULES);
    shuttle::check_pct(scenario, SCHEDULES, DEPTH);
}

/// Threads that do the same, to be waited for.
struct Crew(Vec<thread::JoinHandle<()>>);

impl Crew {
    fn of(count: usize, work: impl Fn(usize) + Send + Sync + 'static) -> Self {
        let work = Arc::new(work);
        let hire = |number| {
            let work = Arc::clone(&work);
            thread::spawn(move || work(number))
        };
        Self((0..count).map(hire).collect())
    }

    fn join(self) {
        self.0.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Several threads bring work and set the flag. One does it, and sleeps while there is none.
fn ringers_beside_a_listener() {
    const RINGERS: usize = 3;
    let (wake_flag, brought) = (Arc::new(WakeFlag::default()), Arc::new(AtomicUsize::new(0)));
    let ringers = {
        let (wake_flag, brought) = (Arc::clone(&wake_flag), Arc::clone(&brought));
        Crew::of(RINGERS, move |_| {
            brought.fetch_add(1, Ordering::Relaxed);
            wake_flag.wake();
        })
    };
    let mut done = 0;
    while done < RINGERS {
        wake_flag.wait(NEVER);
        done += brought.swap(0, Ordering::Relaxed);
    }
    ringers.join();
}

#[test]
fn no_wake_up_by_a_flag_is_lost() {
    explore(ringers_beside_a_listener);
}

/// Each wake-up is for one piece of work. Several threads do it, and sleep while there is none.
fn ringers_beside_listeners() {
    const PIECES: usize = 3;
    const LISTENERS: usize = 2;
    let (wake_flag, brought) = (Arc::new(SharedWakeFlag::default()), Arc::new(AtomicUsize::new(0)));
    let done = Arc::new(AtomicUsize::new(0));
    let listeners = {
        let (wake_flag, brought, done) = (Arc::clone(&wake_flag), Arc::clone(&brought), Arc::clone(&done));
        Crew::of(LISTENERS, move |_| {
            while done.load(Ordering::SeqCst) < PIECES {
                let had =
                    brought.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                match had {
                    Err(_) => {
                        wake_flag.wait(NEVER);
                    }
                    Ok(_) if done.fetch_add(1, Ordering::SeqCst) + 1 < PIECES => {}
                    // As at a stop: every thread is woken.
                    Ok(_) => (0..LISTENERS).for_each(|_| wake_flag.wake()),
                }
            }
        })
    };
    for _ in 0..PIECES {
        brought.fetch_add(1, Ordering::SeqCst);
        wake_flag.wake();
    }
    listeners.join();
    assert_eq!(done.load(Ordering::SeqCst), PIECES);
}

#[test]
fn no_wake_up_by_a_shared_flag_is_lost() {
    explore(ringers_beside_listeners);
}

/// What wakes a loop: it counts, and the loop finds it once however often it was woken.
#[derive(Default)]
struct Waker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Waker {
    fn wake(&self) -> std::io::Result<()> {
        *self.woken.lock() = true;
        self.changed.notify_one();
        Ok(())
    }

    fn wait(&self) {
        let mut woken = self.woken.lock();
        while !*woken {
            self.changed.wait_for(&mut woken, NEVER);
        }
        *woken = false;
    }
}

/// Several threads post letters to a loop that sleeps while it is not woken.
fn posters_beside_a_loop() {
    const POSTERS: usize = 3;
    let (mail, waker) = (Arc::new(Flagged::<Vec<usize>>::default()), Arc::new(Waker::default()));
    let posters = {
        let (mail, waker) = (Arc::clone(&mail), Arc::clone(&waker));
        Crew::of(POSTERS, move |number| mail.post(|letters| letters.push(number), || waker.wake()).unwrap())
    };
    let (mut letters, mut read) = (Vec::new(), Vec::new());
    while read.len() < POSTERS {
        waker.wait();
        mail.collect(&mut letters);
        read.append(&mut letters);
    }
    posters.join();
    read.sort_unstable();
    assert!(read.into_iter().eq(0..POSTERS), "each letter once");
}

#[test]
fn no_letter_is_lost_or_read_twice() {
    explore(posters_beside_a_loop);
}

/// The first wake-up fails, as one does when the kernel has no room. The next post wakes the loop for both.
fn posters_beside_a_waker_that_fails_once() {
    let (mail, waker) = (Arc::new(Flagged::<Vec<usize>>::default()), Arc::new(Waker::default()));
    let failed = mail.post(|letters| letters.push(0), || Err(std::io::ErrorKind::OutOfMemory.into()));
    assert!(failed.is_err());
    let poster = {
        let (mail, waker) = (Arc::clone(&mail), Arc::clone(&waker));
        Crew::of(1, move |_| mail.post(|letters| letters.push(1), || waker.wake()).unwrap())
    };
    let (mut letters, mut read) = (Vec::new(), 0);
    while read < 2 {
        waker.wait();
        mail.collect(&mut letters);
        read += letters.drain(..).count();
    }
    poster.join();
}

#[test]
fn a_wake_up_that_failed_is_made_up_for() {
    explore(posters_beside_a_waker_that_fails_once);
}
