//! Settings and abilities of this machine that latencies depend on.

use super::activity::Activity;
use super::memory;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// What to think of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be, or no matter of good or bad.
    Good,
    /// Worth changing.
    Warning,
    /// This machine does not tell.
    NotAvailable,
}

/// One fact.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// What was found.
    pub found: String,
    /// What to think of it.
    pub verdict: Verdict,
    /// Why it matters and what to do, where it is worth changing.
    pub advice: &'static str,
}

/// How long activity is watched.
const WATCH: Duration = Duration::from_millis(500);
/// Sleeps that are timed, and how long each is.
const SLEEPS: u32 = 100;
const SLEEP: Duration = Duration::from_millis(1);
/// Fewer open files than this do not suffice for a busy server or many clients.
const FILES_MIN: u64 = 10_240;
/// A connection needs so much for pipelined replies, and for a megabyte of values on its way.
const BUFFER_MIN: u64 = 1 << 20;

fn check(
    name: &'static str,
    found: Option<String>,
    good: impl FnOnce(&str) -> bool,
    advice: &'static str,
) -> Check {
    match found {
        None => Check { name, found: "not available".to_owned(), verdict: Verdict::NotAvailable, advice: "" },
        Some(found) => {
            let good = good(&found);
            let verdict = if good { Verdict::Good } else { Verdict::Warning };
            Check { name, found, verdict, advice: if good { "" } else { advice } }
        }
    }
}

/// All facts; takes about a second.
#[must_use]
pub fn checks() -> Vec<Check> {
    let mut checks = settings();
    checks.extend(activity());
    checks.extend(measurements());
    checks
}

/// The same beside a run, in sentences: what is worth changing, what is hidden, and how fast memory is. What the machine
/// did meanwhile is the run's to tell.
#[must_use]
pub fn worth_knowing() -> Vec<String> {
    sentences(settings().into_iter().chain([load_average()]).chain(measurements()).collect())
}

fn sentences(checks: Vec<Check>) -> Vec<String> {
    let mut out = Vec::new();
    let of = |verdict| checks.iter().filter(move |check: &&Check| check.verdict == verdict);
    out.extend(
        of(Verdict::Warning).map(|check| format!("{} here: {}; {}.", check.name, check.found, check.advice)),
    );
    let memory = of(Verdict::Good).filter(|check| check.name.starts_with("memory "));
    let memory: Vec<String> = memory.map(|check| format!("{} {}", check.name, check.found)).collect();
    if !memory.is_empty() {
        out.push(format!("Of this machine: {}.", memory.join(", ")));
    }
    let hidden: Vec<&str> = of(Verdict::NotAvailable).map(|check| check.name).collect();
    if !hidden.is_empty() {
        out.push(format!("Not available on this machine: {}.", hidden.join(", ")));
    }
    out
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The word in brackets of a list such as `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

/// `TCP: inuse 5 orphan 0 tw 3 ...`: what is connected, and what the kernel keeps after closing.
fn connections(sockstat: &str) -> Option<String> {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP: "))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let of = |name| words.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1]);
    Some(format!("{} in use, {} closed and kept", of("inuse")?, of("tw")?))
}

/// The three numbers of `tcp_rmem` or `tcp_wmem`; the last one bounds what one connection may have under way.
fn buffers() -> Option<String> {
    let list = |name| {
        let text = read(format!("/proc/sys/net/ipv4/{name}"))?;
        Some(text.split_whitespace().collect::<Vec<_>>().join("/"))
    };
    Some(format!("receive {} send {}", list("tcp_rmem")?, list("tcp_wmem")?))
}

fn are_roomy(buffers: &str) -> bool {
    let largest = |list: &str| list.rsplit('/').next().and_then(|bytes| bytes.parse::<u64>().ok());
    let mut lists = buffers.split(' ').filter(|word| word.contains('/'));
    lists.all(|list| largest(list).is_some_and(|bytes| bytes >= BUFFER_MIN))
}

fn settings() -> Vec<Check> {
    let thp = "/sys/kernel/mm/transparent_hugepage/enabled";
    let governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    vec![
        check(
            "swappiness",
            read("/proc/sys/vm/swappiness"),
            |found| found.parse().is_ok_and(|value: u32| value <= 10),
            "the kernel may swap documents out long before memory is short: set vm.swappiness to 1",
        ),
        check(
            "transparent huge pages",
            read(thp).as_deref().and_then(chosen),
            |found| found != "always",
            "compacting memory for huge pages stalls a server: choose madvise or never",
        ),
        check(
            "CPU governor",
            read(governor),
            |found| found == "performance",
            "a clock that has to speed up first makes idle servers slow: choose performance",
        ),
        check(
            "disk scheduler",
            schedulers(),
            |found| !found.contains("cfq") && !found.contains("bfq"),
            "fair queueing delays syncs behind other traffic: choose none or mq-deadline",
        ),
        check(
            "open files",
            open_files().map(|files| files.to_string()),
            |found| found.parse().is_ok_and(|files: u64| files >= FILES_MIN),
            "many connections need many files: raise `ulimit -n`",
        ),
        check("TCP connections", read("/proc/net/sockstat").as_deref().and_then(connections), |_| true, ""),
        check(
            "socket buffers (least/usual/most)",
            buffers(),
            are_roomy,
            "a connection stalls when so much is under way: raise net.ipv4.tcp_rmem and tcp_wmem",
        ),
        check(
            "clock source",
            read(clock),
            |found| matches!(found, "tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page"),
            "reading this clock takes a system call, thousands of times per second",
        ),
    ]
}

/// `disk scheduler` of each real disk.
fn schedulers() -> Option<String> {
    let mut found = Vec::new();
    for disk in fs::read_dir("/sys/block").ok()?.flatten() {
        let name = disk.file_name().to_string_lossy().into_owned();
        if name.starts_with("loop") || name.starts_with("ram") || name.starts_with("dm-") {
            continue;
        }
        let scheduler = read(disk.path().join("queue/scheduler"));
        found.extend(scheduler.as_deref().and_then(chosen).map(|word| format!("{name} {word}")));
    }
    found.sort();
    (!found.is_empty()).then(|| found.join(", "))
}

fn open_files() -> Option<u64> {
    let limits = read("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn activity() -> Vec<Check> {
    let before = Activity::now();
    std::thread::sleep(WATCH);
    let seen = Activity::now().since(&before);
    let percent = |share: Option<f64>| share.map(|share| format!("{:.1} %", share * 100.0));
    let per_second = |count: Option<f64>| count.map(|count| format!("{count:.0} per second"));
    let number = |found: &str| found.split(' ').next().and_then(|word| word.parse::<f64>().ok());
    vec![
        check(
            "busy now",
            percent(seen.busy),
            |found| number(found).is_some_and(|busy| busy < 50.0),
            "something else uses this machine: figures will be its as well",
        ),
        check(
            "stolen by the hypervisor",
            percent(seen.stolen),
            |found| number(found).is_some_and(|stolen| stolen < 1.0),
            "another guest has your CPU now and then: its pauses show in your tail",
        ),
        check("interrupts", per_second(seen.interrupts), |_| true, ""),
        check("context switches", per_second(seen.switches), |_| true, ""),
        check(
            "retransmitted segments",
            percent(seen.retransmitted),
            |found| number(found).is_some_and(|lost| lost < 0.1),
            "packets are lost: each costs at least 200 ms",
        ),
        load_average(),
    ]
}

fn load_average() -> Check {
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    check(
        "run queue (load average)",
        read("/proc/loadavg").and_then(|text| text.split(' ').next().map(str::to_owned)),
        |found| found.parse().is_ok_and(|load: f64| load < cores),
        "more wants to run than there are cores: everything waits for a CPU first",
    )
}

fn measurements() -> Vec<Check> {
    let late = wakeup_lateness();
    vec![
        check(
            "pauses of this process (late wake-ups)",
            Some(format!("{:.0} us at most in {SLEEPS} sleeps", late.as_secs_f64() * 1e6)),
            |_| late < Duration::from_millis(2),
            "this process is not run when it should be: latencies it measures contain that",
        ),
        check("memory latency", Some(format!("{:.0} ns", memory::latency_nanos())), |_| true, ""),
        check("memory bandwidth", Some(format!("{:.1} GB/s", memory::gigabytes_per_second())), |_| true, ""),
    ]
}

/// How much longer than asked for the longest of many short sleeps was.
fn wakeup_lateness() -> Duration {
    let sleep = || {
        let begun = Instant::now();
        std::thread::sleep(SLEEP);
        begun.elapsed().saturating_sub(SLEEP)
    };
    (0..SLEEPS).map(|_| sleep()).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_tell_what_is_chosen() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("[none]").as_deref(), Some("none"));
        assert_eq!(chosen("none"), None);
    }

    #[test]
    fn sockets_of_the_machine_are_read() {
        let sockstat =
            "sockets: used 32\nTCP: inuse 17 orphan 0 tw 2013 alloc 17 mem 100\nUDP: inuse 0 mem 0\n";
        assert_eq!(connections(sockstat).as_deref(), Some("17 in use, 2013 closed and kept"));
        assert_eq!(connections("TCP: inuse 17\n"), None);
        assert!(are_roomy("receive 4096/131072/6291456 send 4096/16384/4194304"));
        assert!(!are_roomy("receive 4096/131072/6291456 send 4096/16384/65536"));
        assert!(!are_roomy("receive 4096/131072/x send 4096/16384/4194304"));
    }

    #[test]
    fn what_is_hidden_is_not_available_and_never_good() {
        let hidden = check("x", None, |_| true, "change it");
        assert_eq!((hidden.verdict, hidden.found.as_str()), (Verdict::NotAvailable, "not available"));
        let bad = check("x", Some("60".to_owned()), |_| false, "change it");
        assert_eq!((bad.verdict, bad.advice), (Verdict::Warning, "change it"));
    }

    #[test]
    fn beside_a_run_only_what_matters_is_told() {
        let told = sentences(vec![
            check("swappiness", Some("60".to_owned()), |_| false, "set it to 1"),
            check("open files", Some("20000".to_owned()), |_| true, "raise it"),
            check("CPU governor", None, |_| true, ""),
            check("memory latency", Some("90 ns".to_owned()), |_| true, ""),
        ]);
        let expected = [
            "swappiness here: 60; set it to 1.",
            "Of this machine: memory latency 90 ns.",
            "Not available on this machine: CPU governor.",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let checks = checks();
        assert!(
            checks.iter().any(|check| check.name == "open files" && check.verdict != Verdict::NotAvailable)
        );
        assert!(checks.iter().all(|check| (check.verdict == Verdict::Warning) != check.advice.is_empty()));
    }
}
