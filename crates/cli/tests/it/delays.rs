//! How soon something is shown: what is documented, and no more than what this machine adds to it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::cluster::SOON;

/// So many threads of a node have to get a core one after the other until something is shown. Timers are among them, those that they
/// wake, and a request.
const TURNS: u32 = 10;
/// A timer of nodes counts whole milliseconds, and rounds of probes begin 20 ms apart.
const COUNTED: Duration = Duration::from_millis(100);

/// Threads of nodes may wait for a core longer than those of this test do, where other tests run beside it. That must not make it fail: it
/// tells a delay of another order.
const BESIDE_OTHERS: Duration = Duration::from_secs(3);

/// Measures how late this machine is with a thread that has something to do.
struct Pulse {
    ends: Arc<AtomicBool>,
    longest_micros: Arc<AtomicU64>,
}

impl Pulse {
    fn begin() -> Self {
        const BEAT: Duration = Duration::from_millis(5);
        let pulse = Self { ends: Arc::default(), longest_micros: Arc::default() };
        let (ends, longest) = (Arc::clone(&pulse.ends), Arc::clone(&pulse.longest_micros));
        thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let begun = Instant::now();
                thread::park_timeout(BEAT);
                let late = begun.elapsed().saturating_sub(BEAT);
                longest.fetch_max(late.as_micros() as u64, Ordering::Relaxed);
            }
        });
        pulse
    }

    fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_micros.load(Ordering::Relaxed))
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// Waits for something that a look shows once `delay` is over, counted from `since`. A look shows what was there when it began, however
/// long it takes. So no look that began later may be in vain. The machine may be late by what it is measured to be meanwhile. Both a thread
/// of this test and the longest look measure that.
pub(crate) fn within<T>(since: Instant, delay: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let (pulse, mut in_vain, mut longest_look) = (Pulse::begin(), None, Duration::ZERO);
    loop {
        let begun = since.elapsed();
        let looked = look();
        longest_look = longest_look.max(since.elapsed() - begun);
        let wrong = match looked {
            Ok(found) => {
                let machine = TURNS * pulse.longest() + longest_look + COUNTED + BESIDE_OTHERS;
                println!(
                    "not shown after {in_vain:?}, shown after {:?}; this machine: {machine:?}",
                    since.elapsed()
                );
                if let Some(begun) = in_vain {
                    assert!(
                        begun <= delay + machine,
                        "after {begun:?} it was not shown, where {delay:?} and {machine:?} are allowed"
                    );
                }
                return found;
            }
            Err(wrong) => wrong,
        };
        in_vain = Some(begun);
        assert!(since.elapsed() < SOON, "{wrong}");
        thread::park_timeout(Duration::from_millis(20));
    }
}
