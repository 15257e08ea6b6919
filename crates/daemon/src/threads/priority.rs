//! The scheduling priorities of the node's threads where all processors are busy.
//!
//! Threads that serve requests are as the operating system makes them. What goes on in the background gives way to them
//! by its niceness. It still gets at least a third of what they get, which keeps it going. Threads that somebody waits
//! for, and that have little to do at a time, ask for short slices. The scheduler then lets them on sooner after they
//! woke up. Their share does not grow. All of it is advice: where the system does not take it, nothing else changes.
//!
//! What can be put off also asks whether it is in the way ([`Contention`]). A thread that waits for a processor longer than it
//! has one takes its time from others, whatever its niceness.

use std::{
    fs,
    time::{Duration, Instant},
};

/// What work in the background adds to the process's niceness: about a third of the weight of a thread that serves
/// requests.
const NICENESS: libc::c_int = 5;
/// The shortest slice that may be asked for, in nanoseconds.
const SHORT_SLICE_NANOS: u64 = 100_000;

/// Of the calling thread.
fn niceness() -> libc::c_int {
    // SAFETY: a plain system call; 0 names the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// The calling thread works in the background.
pub(crate) fn lower_priority() {
    // SAFETY: a plain system call; 0 names the calling thread. Should it fail, the thread is as important as others.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, niceness() + NICENESS) };
}

/// What `sched_setattr` takes.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The calling thread does little at a time, and somebody waits for it.
pub(crate) fn ask_for_short_slices() {
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: niceness(),
        priority: 0,
        runtime: SHORT_SLICE_NANOS,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the structure is as long as it says and outlives the call; 0 names the calling thread. Kernels before 6.12
    // ignore the slice, and others may refuse it.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

/// What the calling thread had of the processors, ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Turns {
    ran: Duration,
    /// For how long it could have run and there was no processor for it.
    waited: Duration,
}

impl Turns {
    /// Nothing where the system does not say.
    fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let mut nanos = text.split_whitespace().map_while(|word| word.parse().ok()).map(Duration::from_nanos);
        let mut next = || nanos.next().unwrap_or_default();
        Self { ran: next(), waited: next() }
    }
}

/// Whether the thread that asks has lately waited for a processor longer than it had one.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    looked_at: Option<Instant>,
    seen: Turns,
    is_contended: bool,
}

/// What was found out holds for so long.
const CONTENTION_HOLDS: Duration = Duration::from_millis(100);
/// A thread that has not wanted to run for so long has not found out anything.
const CONTENTION_SAMPLE_MIN: Duration = Duration::from_millis(2);

impl Contention {
    /// As of now, or of a moment ago. Always of the same thread.
    pub(crate) fn look(&mut self) -> bool {
        if self.looked_at.is_some_and(|at| at.elapsed() < CONTENTION_HOLDS) {
            return self.is_contended;
        }
        self.looked_at = Some(Instant::now());
        self.judge(Turns::read())
    }

    fn judge(&mut self, now: Turns) -> bool {
        let (ran, waited) =
            (now.ran.saturating_sub(self.seen.ran), now.waited.saturating_sub(self.seen.waited));
        if ran + waited >= CONTENTION_SAMPLE_MIN {
            (self.seen, self.is_contended) = (now, waited > ran);
        }
        self.is_contended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_processor_longer_than_it_has_one_meets_contention() {
        let turns =
            |ran, waited| Turns { ran: Duration::from_micros(ran), waited: Duration::from_micros(waited) };
        let mut contention = Contention::default();
        assert!(!contention.judge(turns(5_000, 100)));
        assert!(!contention.judge(turns(5_100, 1_000)), "too little to tell");
        assert!(contention.judge(turns(6_000, 6_000)));
        assert!(contention.judge(turns(6_100, 6_000)), "as before");
        assert!(!contention.judge(turns(16_000, 7_000)));
    }

    #[test]
    fn a_thread_learns_what_it_had_of_the_processors() {
        assert_eq!(
            Turns::parse("1500 2500 3\n"),
            Turns { ran: Duration::from_nanos(1_500), waited: Duration::from_nanos(2_500) }
        );
        assert_eq!(Turns::parse(""), Turns::default());
        let before = Turns::read();
        let mut sum = 0_u64;
        while Turns::read().ran == before.ran {
            // A system that does not say never will.
            if before == Turns::default() {
                return;
            }
            sum = std::hint::black_box(sum + 1);
        }
        assert!(Turns::read().ran > before.ran);
    }

    #[test]
    fn what_works_in_the_background_is_nicer_than_what_serves() {
        let raised_by = |stand: fn()| {
            let run = move || {
                let before = niceness();
                stand();
                (before, niceness())
            };
            std::thread::spawn(run).join().unwrap()
        };
        let (before, after) = raised_by(lower_priority);
        assert_eq!(after, (before + NICENESS).min(19));
        let (before, after) = raised_by(ask_for_short_slices);
        assert_eq!(after, before);
    }
}
