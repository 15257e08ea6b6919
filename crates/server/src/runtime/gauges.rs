//! Figures that are rates or belong to the machine: sampled once a second on the control plane, read by REST.

use std::{
    collections::HashMap, ffi::CString, os::unix::ffi::OsStrExt, path::Path, sync::Arc, time::Duration,
};

use admin::SystemStats;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{buckets::OpenBuckets, machine};
use crate::{
    Shared,
    account::{NodeAccount, node_memory},
};

const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// What a bucket did in the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) ops_per_sec: f64,
    pub(crate) fetches_per_sec: f64,
}

/// Totals at the last sample, and the rates it gave.
#[derive(Clone, Copy, Debug, Default)]
struct Sampled {
    ops: u64,
    fetches: u64,
    rates: Rates,
}

#[derive(Default)]
struct Samples {
    buckets: HashMap<String, Sampled>,
    cpu: machine::CpuTime,
    cpu_percent: f64,
}

pub(crate) struct Gauges {
    data_dir: CString,
    samples: Mutex<Samples>,
}

impl Gauges {
    pub(crate) fn new(data_dir: &Path) -> Self {
        // A path that holds a zero byte could not have been opened; an empty one reads as "no figures".
        let data_dir = CString::new(data_dir.as_os_str().as_bytes()).unwrap_or_default();
        Self { data_dir, samples: Mutex::default() }
    }

    /// Where the data lies.
    pub(crate) fn data_dir(&self) -> std::borrow::Cow<'_, str> {
        self.data_dir.to_string_lossy()
    }

    pub(crate) fn bucket(&self, name: &str) -> Rates {
        self.samples.lock().buckets.get(name).map(|sampled| sampled.rates).unwrap_or_default()
    }

    pub(crate) fn system(&self, shared: &Shared) -> SystemStats {
        let memory = machine::Memory::read();
        let disk = machine::Disk::read(&self.data_dir);
        SystemStats {
            uptime_secs: shared.uptime_secs(),
            memory_total: machine::memory_bytes(),
            memory_free: memory.available,
            swap_total: memory.swap_total,
            swap_used: memory.swap_total.saturating_sub(memory.swap_free),
            cpu_cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            cpu_utilization_percent: self.samples.lock().cpu_percent,
            disk_total: disk.total,
            disk_used: disk.used,
            process_resident: machine::Resident::read().all,
            connections: shared.totals.connections.load(std::sync::atomic::Ordering::Relaxed),
            memory: node_memory(shared),
        }
    }

    /// Samples until `ended`.
    pub(crate) async fn sample(
        self: Arc<Self>,
        buckets: Arc<OpenBuckets>,
        account: Arc<NodeAccount>,
        mut ended: watch::Receiver<bool>,
    ) {
        let mut ticks = tokio::time::interval(SAMPLE_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // An error means that the sender is gone: the node stops as well.
                _ = ended.wait_for(|stop| *stop) => return,
                _ = ticks.tick() => {
                    self.sample_once(&buckets);
                    account.look_at_process();
                }
            }
        }
    }

    fn sample_once(&self, buckets: &OpenBuckets) {
        let totals = buckets.totals();
        let mut samples = self.samples.lock();
        let old = std::mem::take(&mut samples.buckets);
        for (name, ops, fetches) in totals {
            // A bucket seen for the first time has no rate yet.
            let last = old.get(&name).copied().unwrap_or(Sampled { ops, fetches, rates: Rates::default() });
            let per_sec = |now: u64, then: u64| now.saturating_sub(then) as f64 / SAMPLE_EVERY.as_secs_f64();
            let rates = Rates {
                ops_per_sec: per_sec(ops, last.ops),
                fetches_per_sec: per_sec(fetches, last.fetches),
            };
            samples.buckets.insert(name, Sampled { ops, fetches, rates });
        }
        let cpu = machine::CpuTime::read();
        samples.cpu_percent = cpu.busy_percent_since(samples.cpu);
        samples.cpu = cpu;
    }
}
