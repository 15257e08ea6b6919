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

    /// Of several processes together, the nodes of a cluster say; `None` without any, or if one of them is not there.
    pub fn of_all(pids: &[u32]) -> Option<Usage> {
        let mut all = pids.iter().map(|pid| Usage::of(*pid));
        let first = all.next()??;
        all.try_fold(first, |sum, usage| {
            let usage = usage?;
            Some(Usage {
                cpu_seconds: sum.cpu_seconds + usage.cpu_seconds,
                waited_seconds: sum.waited_seconds + usage.waited_seconds,
                rss_bytes: sum.rss_bytes + usage.rss_bytes,
            })
        })
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
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn the_numbers_are_found() {
        assert_eq!(nanos("1500000000 7 3\n"), Some((1_500_000_000, 7)));
        assert_eq!(nanos(""), None);
        assert_eq!(rss_bytes("Name:\tx\nVmRSS:\t    12 kB\n"), Some(12 * 1024));
    }

    #[test]
    fn processes_can_be_read() {
        // Not this one: its threads end with their tests, and take their time with them.
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a process");
        let before = Usage::of(busy.id()).expect("it runs");
        let has_grown = || Usage::of(busy.id()).is_some_and(|now| now.cpu_seconds > before.cpu_seconds);
        let grows = (0..6_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            has_grown()
        });
        let twice = Usage::of_all(&[busy.id(), busy.id()]);
        let with_a_stranger = Usage::of_all(&[busy.id(), u32::MAX]);
        busy.kill().expect("it can be ended");
        busy.wait().expect("it ends");
        assert!(grows && before.rss_bytes > 0);
        assert!(twice.is_some_and(|twice| twice.cpu_seconds >= 2.0 * before.cpu_seconds));
        assert!(Usage::of_all(&[]).is_none() && with_a_stranger.is_none());
    }
}
