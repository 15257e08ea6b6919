//! How the node's threads stand to one another where all processors are busy.
//!
//! Threads that serve requests are as the operating system makes them. What goes on in the background gives way to them:
//! it has a niceness, and so the third part of what they get at least, which keeps it going. Threads that somebody waits
//! for, and that have little to do at a time, ask for short slices: the scheduler then lets them on sooner after they
//! woke up, for no larger a share. All of it is advice: where the system does not take it, nothing else changes.

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
pub(super) fn give_way() {
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
pub(super) fn be_prompt() {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let (before, after) = raised_by(give_way);
        assert_eq!(after, (before + NICENESS).min(19));
        let (before, after) = raised_by(be_prompt);
        assert_eq!(after, before);
    }
}
