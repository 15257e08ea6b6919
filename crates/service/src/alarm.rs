//! How the engine wakes a thread of a service, as it wakes a parked request of a data-plane loop: by an [`engine::Waiter`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use engine::Waiter;
use parking_lot::{Condvar, Mutex};

/// What stands in [`Waiter::worker`] for a thread of a service. No loop has this number.
pub const WORKER: u32 = u32::MAX;

/// The alarms of a node's services.
#[derive(Debug, Default)]
pub struct Alarms(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    next: u64,
    queues: BTreeMap<u64, Arc<WakeQueue>>,
}

/// What was woken and not asked for yet. Each ticket is there once, however often it is woken.
#[derive(Debug, Default)]
struct WakeQueue {
    woken: Mutex<BTreeSet<u64>>,
    changed: Condvar,
}

/// The alarm of one thread: it gives out waiters, and waits for them to be woken.
#[derive(Debug)]
pub struct Alarm {
    all: Arc<Alarms>,
    number: u64,
    queue: Arc<WakeQueue>,
}

impl Alarms {
    /// An alarm for a thread.
    #[must_use]
    pub fn alarm(self: &Arc<Self>) -> Alarm {
        let queue = Arc::<WakeQueue>::default();
        let mut known = self.0.lock();
        let number = known.next;
        known.next += 1;
        known.queues.insert(number, Arc::clone(&queue));
        Alarm { all: Arc::clone(self), number, queue }
    }

    /// Wakes the thread that `waiter` belongs to, unless its alarm is gone.
    pub fn wake(&self, waiter: Waiter) {
        let queue = self.0.lock().queues.get(&waiter.connection).cloned();
        if let Some(queue) = queue {
            queue.woken.lock().insert(waiter.ticket);
            queue.changed.notify_one();
        }
    }
}

impl Alarm {
    /// What to give the engine: once it is woken, [`Alarm::wait`] tells `ticket`.
    #[must_use]
    pub fn waiter(&self, ticket: u64) -> Waiter {
        Waiter { worker: WORKER, connection: self.number, ticket }
    }

    /// Waits until something was woken, or for so long; tells what was, each ticket once.
    pub fn wait(&self, patience: Duration) -> BTreeSet<u64> {
        let until = Instant::now() + patience;
        let mut woken = self.queue.woken.lock();
        while woken.is_empty() && !self.queue.changed.wait_until(&mut woken, until).timed_out() {}
        std::mem::take(&mut *woken)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.all.0.lock().queues.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_ticket_is_told_once_however_often_it_was_woken() {
        let alarms = Arc::<Alarms>::default();
        let (one, other) = (alarms.alarm(), alarms.alarm());
        for ticket in [7, 3, 7] {
            alarms.wake(one.waiter(ticket));
        }
        assert_eq!(one.wait(LONG), BTreeSet::from([3, 7]));
        assert_eq!(one.wait(Duration::ZERO), BTreeSet::new());
        assert_eq!(other.wait(Duration::ZERO), BTreeSet::new(), "it was not the other's");
    }

    #[test]
    fn a_thread_that_waits_is_woken() {
        let alarms = Arc::<Alarms>::default();
        let alarm = alarms.alarm();
        let waiter = alarm.waiter(1);
        let begun = Instant::now();
        let waits = std::thread::spawn(move || alarm.wait(LONG));
        while !waits.is_finished() {
            alarms.wake(waiter);
            std::thread::yield_now();
        }
        assert_eq!(waits.join().unwrap(), BTreeSet::from([1]));
        assert!(begun.elapsed() < LONG, "it was not its patience that ended");
        // Its alarm is gone.
        alarms.wake(waiter);
        assert!(alarms.0.lock().queues.is_empty());
    }
}
