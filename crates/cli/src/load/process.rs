//! What the server's process has used, from the outside: `/proc`.

use std::fs;

/// `/proc/PID/stat` counts in these; Linux has told user space 100 a second on every architecture for decades.
const TICKS_PER_SEC: f64 = 100.0;

/// A moment's reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// User and system time of all threads, those that have ended included.
    pub(crate) cpu_seconds: f64,
    /// Resident memory.
    pub(crate) rss_bytes: u64,
}

impl Usage {
    /// Reads `/proc`; `None` if there is no such process.
    pub(crate) fn of(pid: u32) -> Option<Usage> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some(Usage { cpu_seconds: cpu_seconds(&stat)?, rss_bytes: rss_bytes(&status)? })
    }
}

/// Fields 14 and 15, counted behind the command's name, which may hold spaces and brackets.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(|ticks| ticks.parse::<u64>().ok());
    Some((times.next()?? + times.next()??) as f64 / TICKS_PER_SEC)
}

fn rss_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 1 1 1";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds("7 (a) S 1"), None);
        assert_eq!(rss_bytes("Name:\tx\nVmRSS:\t    12 kB\n"), Some(12 * 1024));
    }

    #[test]
    fn this_process_can_be_read() {
        let usage = Usage::of(std::process::id()).expect("a running process");
        assert!(usage.rss_bytes > 0);
        assert!(Usage::of(u32::MAX).is_none());
    }
}
