//! What the machine is like: memory, processor time and disk space. A figure that the host hides is 0.
//!
//! Most of it is asked for each second. So the files that tell it stay open. To find one by its path takes longer than to read it: this was
//! two fifths of what watching a busy node took.

use std::{
    fs::File,
    mem::MaybeUninit,
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
    sync::OnceLock,
    time::Duration,
};

/// Of a file of the system no more is read. What is wanted stands at its beginning.
const TOLD_BYTES: usize = 4096;

static MEMINFO: Told = Told::by("/proc/meminfo");
static STAT: Told = Told::by("/proc/stat");
static STATM: Told = Told::by("/proc/self/statm");
/// Limits of the control group, by the newer interface and by the older one.
static LIMITS: [Told; 2] =
    [Told::by("/sys/fs/cgroup/memory.max"), Told::by("/sys/fs/cgroup/memory/memory.limit_in_bytes")];

/// A file of the system that tells something new at each reading.
pub(super) struct Told {
    path: &'static str,
    file: OnceLock<Option<File>>,
}

impl Told {
    pub(super) const fn by(path: &'static str) -> Self {
        Self { path, file: OnceLock::new() }
    }

    /// The beginning of it; nothing where it cannot be read.
    pub(super) fn read(&self) -> String {
        let file = self.file.get_or_init(|| File::open(self.path).ok()).as_ref();
        let mut bytes = [0; TOLD_BYTES];
        let length = file.and_then(|file| file.read_at(&mut bytes, 0).ok()).unwrap_or(0);
        bytes.get(..length).map(String::from_utf8_lossy).unwrap_or_default().into_owned()
    }
}

/// Physical memory in bytes, or the control group's limit when that is lower.
#[must_use]
pub fn memory_bytes() -> u64 {
    Memory::read().within_limit()
}

/// Memory of the machine in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// All that the machine has.
    pub total: u64,
    /// Could be had without swapping.
    pub available: u64,
    /// Swap space.
    pub swap_total: u64,
    /// Swap space that is not in use.
    pub swap_free: u64,
}

impl Memory {
    /// What the system says of it now.
    #[must_use]
    pub fn read() -> Self {
        let text = MEMINFO.read();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            kib.unwrap_or(0) * 1024
        };
        Self {
            total: field("MemTotal:"),
            available: field("MemAvailable:"),
            swap_total: field("SwapTotal:"),
            swap_free: field("SwapFree:"),
        }
    }

    /// All that the machine has, or the control group's limit when that is lower.
    #[must_use]
    pub fn within_limit(&self) -> u64 {
        let limit = LIMITS.iter().find_map(|limit| limit.read().trim().parse::<u64>().ok());
        limit.map_or(self.total, |limit| limit.min(self.total))
    }
}

/// Resident memory of this process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resident {
    /// All of it.
    pub all: u64,
    /// Of that, pages of files that are mapped.
    pub(crate) of_files: u64,
}

impl Resident {
    /// What the system says of it now.
    #[must_use]
    pub fn read() -> Self {
        let text = STATM.read();
        // SAFETY: sysconf reads a constant of the system.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let pages = |place| text.split_whitespace().nth(place).and_then(|word| word.parse::<u64>().ok());
        let bytes = |place| pages(place).unwrap_or(0) * page;
        Self { all: bytes(1), of_files: bytes(2) }
    }
}

/// What the allocator keeps of what it was given back. It looks through all that is free for this, and puts small pieces
/// together: nothing for a hot path, and not for each second either.
#[cfg(target_env = "gnu")]
pub(crate) fn allocator_free_bytes() -> u64 {
    // SAFETY: the call takes the allocator's own locks and returns numbers.
    unsafe { libc::mallinfo2() }.fordblks as u64
}

/// What the allocator keeps of what it was given back: this one does not say.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn allocator_free_bytes() -> u64 {
    0
}

/// Processor time of the calling thread.
pub fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Processor time of all threads of this process, those that have ended among them.
#[must_use]
pub fn process_cpu() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock(which: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid clock and a valid place for the result.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    let secs = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Processor time of the whole machine since it booted, in clock ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    busy: u64,
    stolen: u64,
    total: u64,
}

impl CpuTime {
    /// What the system says of it now.
    #[must_use]
    pub fn read() -> Self {
        Self::told(&STAT.read())
    }

    fn told(text: &str) -> Self {
        let first = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = first.split_whitespace().skip(1).filter_map(|tick| tick.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest time is part of user time.
        let total: u64 = ticks.iter().take(8).sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Self { busy: total - idle, stolen: ticks.get(7).copied().unwrap_or_default(), total }
    }

    /// The share of the time since `earlier` in which processors were busy.
    #[must_use]
    pub fn busy_percent_since(self, earlier: Self) -> f64 {
        self.percent_since(earlier, |time| time.busy)
    }

    /// The share of that time in which a hypervisor had other machines run on them.
    #[must_use]
    pub fn stolen_percent_since(self, earlier: Self) -> f64 {
        self.percent_since(earlier, |time| time.stolen)
    }

    fn percent_since(self, earlier: Self, of: fn(&Self) -> u64) -> f64 {
        let total = self.total.saturating_sub(earlier.total);
        if total == 0 { 0.0 } else { of(&self).saturating_sub(of(&earlier)) as f64 * 100.0 / total as f64 }
    }
}

/// The file system that a folder lies on, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk {
    /// The size of it.
    pub total: u64,
    /// Of that, what is in use.
    pub used: u64,
}

impl Disk {
    /// What the system says of it now.
    #[must_use]
    pub fn read(folder: &File) -> Self {
        let mut stat = MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: `folder` is open and `stat` is large enough for what fstatvfs writes.
        if unsafe { libc::fstatvfs(folder.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
            return Self::default();
        }
        // SAFETY: fstatvfs returned success, so it has filled the structure.
        let stat = unsafe { stat.assume_init() };
        let bytes = |blocks: libc::fsblkcnt_t| blocks * stat.f_frsize;
        Self { total: bytes(stat.f_blocks), used: bytes(stat.f_blocks - stat.f_bfree) }
    }
}
/// What the machine is called, in lower case; `None` where it does not say.
pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_tell_something_new_at_each_reading() {
        let before = CpuTime::read();
        let spent = thread_cpu();
        // More than a tick, of which there are a hundred a second.
        while thread_cpu() - spent < Duration::from_millis(50) {}
        assert!(CpuTime::read().busy_percent_since(before) > 0.0);
        let (memory, resident) = (Memory::read(), Resident::read());
        assert!(memory.total >= memory.within_limit() && memory.within_limit() >= resident.all, "{memory:?}");
        assert!(resident.all > resident.of_files && resident.of_files > 0, "{resident:?}");
        assert_eq!(Told::by("/proc/none").read(), "");
    }

    #[test]
    fn stolen_time_is_told_beside_busy_time() {
        let at = |told: &str| CpuTime::told(&format!("cpu  {told}\ncpu0 9 9 9 9 9 9 9 9 9 9\n"));
        let (before, after) = (at("10 0 10 100 5 0 0 7 3 0"), at("50 0 20 130 5 0 0 27 9 0"));
        // Of a hundred ticks seventy were busy, of those twenty stolen.
        assert!((after.busy_percent_since(before) - 70.0).abs() < 1e-9);
        assert!((after.stolen_percent_since(before) - 20.0).abs() < 1e-9);
        assert!(after.stolen_percent_since(after).abs() < 1e-9);
    }

    #[test]
    fn time_of_the_process_is_that_of_all_threads() {
        let before = process_cpu();
        let spend = || {
            let begin = thread_cpu();
            while thread_cpu() - begin < Duration::from_millis(20) {}
        };
        std::thread::spawn(spend).join().unwrap();
        assert!(process_cpu() - before >= Duration::from_millis(20));
    }

    #[test]
    fn a_folder_tells_of_its_file_system() {
        let disk = Disk::read(&File::open(std::env::temp_dir()).unwrap());
        assert!(disk.total > 0 && disk.used < disk.total, "{disk:?}");
    }
}
