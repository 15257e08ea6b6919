//! What the server's process has used, from the outside: `/proc`.

use std::fs;

/// A moment's reading.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// User and system time of the threads that are there.
    pub cpu_seconds: f64,
    /// Seconds that its threads were ready and did not run.
    pub waited_seconds: f64,
    /// Resident memory.
    pub rss_bytes: u64,
}

impl Usage {
    /// Reads `/proc`; `None` if there is no such process.
    pub fn of(pid: u32) -> Option<Usage> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let (cpu_seconds, waited_seconds) = scheduled(pid)?;
        Some(Usage { cpu_seconds, waited_seconds, rss_bytes: rss_bytes(&status)? })
    }
}

/// CPU seconds of this process so far, threads that have ended included.
#[must_use]
pub fn own_cpu_seconds() -> f64 {
    let usage = own_usage();
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// How often a thread of this process was taken off its CPU while it had more to do, threads that have ended included.
#[must_use]
pub fn own_interruptions() -> u64 {
    u64::try_from(own_usage().ru_nivcsw).unwrap_or(0)
}

fn own_usage() -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is valid for writing; all-zero bytes are a valid value of it should the call fail.
    unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    }
}

/// The scheduler's own account in nanoseconds; `/proc/PID/stat` has hundredths of a second only, too coarse for a
/// short phase. Threads that end meanwhile take their time with them, which servers' threads do not do under load.
fn scheduled(pid: u32) -> Option<(f64, f64)> {
    let (mut ran, mut waited) = (0, 0);
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let account = fs::read_to_string(thread.path().join("schedstat"));
        let (on_cpu, ready) = account.ok().and_then(|text| nanos(&text)).unwrap_or((0, 0));
        ran += on_cpu;
        waited += ready;
    }
    Some((ran as f64 / 1e9, waited as f64 / 1e9))
}

/// The first of `schedstat`'s numbers: time on a CPU, and time ready for one.
fn nanos(schedstat: &str) -> Option<(u64, u64)> {
    let mut words = schedstat.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

fn rss_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_found() {
        assert_eq!(nanos("1500000000 7 3\n"), Some((1_500_000_000, 7)));
        assert_eq!(nanos(""), None);
        assert_eq!(rss_bytes("Name:\tx\nVmRSS:\t    12 kB\n"), Some(12 * 1024));
    }

    #[test]
    fn this_process_can_be_read() {
        let before = Usage::of(std::process::id()).expect("a running process");
        assert!(before.rss_bytes > 0);
        let mut sum = 0u64;
        for i in 0..20_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(i));
        }
        let after = Usage::of(std::process::id()).expect("a running process");
        assert!(after.cpu_seconds > before.cpu_seconds);
        assert!(Usage::of(u32::MAX).is_none());
    }
}
