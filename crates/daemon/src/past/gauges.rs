//! Figures that are rates or belong to the machine, and the past of all statistics. They are sampled once a second on the
//! control plane, and read by REST.

use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use admin::latency::LatencyZoom;
use dataplane::{
    Shared, machine,
    shared::{BucketEntry, Snapshot},
    statistics::node_memory::node_memory,
    statistics::{BucketFacts, DcpFacts, NodeFacts, of_bucket},
};
use parking_lot::Mutex;
use stats::{Samples, SystemStats, Zoom};
use tokio::sync::watch;

use crate::{
    files::data_dir,
    past::{
        history::{self, History, Moment, Said},
        latency_past::LatencyPast,
        origins::Origins,
    },
    statistics,
};

const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// What a bucket did in the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) ops_per_sec: f64,
    pub(crate) gets_per_sec: f64,
    pub(crate) get_hits_per_sec: f64,
    pub(crate) fetches_per_sec: f64,
}

/// Totals at the last sample, and the rates it gave.
#[derive(Clone, Copy, Debug, Default)]
struct Sampled {
    totals: [u64; 4],
    rates: Rates,
}

#[derive(Default)]
struct LastSecond {
    buckets: HashMap<String, Sampled>,
    /// The first uuid of each bucket that was sampled: see [`Origins`].
    first_uuids: HashMap<String, String>,
    cpu: machine::CpuTime,
    cpu_percent: f64,
    stolen_percent: f64,
    /// When the process's own time was read last, and what it was.
    process_cpu: Option<(Instant, Duration)>,
    process_percent: f64,
}

impl LastSecond {
    fn measure_cpu(&mut self) {
        let cpu = machine::CpuTime::read();
        self.cpu_percent = cpu.busy_percent_since(self.cpu);
        self.stolen_percent = cpu.stolen_percent_since(self.cpu);
        self.cpu = cpu;
        let (now, spent) = (Instant::now(), machine::process_cpu());
        if let Some((last, before)) = self.process_cpu.replace((now, spent)) {
            let passed = now.duration_since(last).as_secs_f64();
            let used = spent.saturating_sub(before).as_secs_f64();
            self.process_percent = if passed > 0.0 { used * 100.0 / passed } else { 0.0 };
        }
    }
}

pub(crate) struct Gauges {
    data_dir: PathBuf,
    /// The same, open; none where it cannot be opened. Then nothing is known of its disk.
    folder: Option<File>,
    history_folder: PathBuf,
    seconds: Mutex<LastSecond>,
    history: History,
    latencies: LatencyPast,
    origins: Mutex<Origins>,
    started: Instant,
    /// To count them reads files of control groups. So they are counted once.
    cores: u64,
}

impl Gauges {
    pub(crate) fn new(data_dir: &Path) -> Self {
        let history_folder = data_dir.join(data_dir::HISTORY);
        let folder = File::open(data_dir).ok();
        let (seconds, history, latencies, origins) = Default::default();
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        Self {
            data_dir: data_dir.to_owned(),
            folder,
            history_folder,
            seconds,
            history,
            latencies,
            origins,
            started: Instant::now(),
            cores,
        }
    }

    /// Which buckets there are, which a flush renames, and which are others under old names. To be told before they are published.
    pub(crate) fn origins(&self) -> &Mutex<Origins> {
        &self.origins
    }

    /// Forgets the past of buckets that are gone, whose names others may have by now.
    pub(crate) fn forget(&self, names: &[String]) {
        for name in names {
            self.history.forget(name);
            self.latencies.forget(name);
            self.seconds.lock().buckets.remove(name);
        }
    }

    /// A sample that was under way when its bucket was dropped may have come after all was forgotten.
    fn forget_again(&self, snapshot: &Snapshot) {
        let origins = self.origins.lock();
        let buckets = snapshot.buckets.iter();
        let now = buckets.filter_map(|(name, entry)| Some((name, origins.first(name, &entry.uuid.0)?)));
        let mut seconds = self.seconds.lock();
        let first_uuids = &mut seconds.first_uuids;
        first_uuids.retain(|name, _| snapshot.buckets.contains_key(name));
        let mut lost = Vec::new();
        for (name, first) in now {
            if first_uuids.insert(name.clone(), first.to_owned()).is_some_and(|before| before != first) {
                lost.push(name.clone());
            }
        }
        drop((seconds, origins));
        self.forget(&lost);
    }

    /// Where archives of logs go that nobody has chosen another place for.
    pub(crate) fn collected_folder(&self) -> PathBuf {
        self.data_dir.join(data_dir::COLLECTED)
    }

    /// Where the data lies.
    pub(crate) fn data_dir(&self) -> std::borrow::Cow<'_, str> {
        self.data_dir.to_string_lossy()
    }

    /// The past of statistics, and the folder of its files.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// See [`Self::history`].
    pub(crate) fn history_folder(&self) -> PathBuf {
        self.history_folder.clone()
    }

    pub(crate) fn bucket(&self, name: &str) -> Rates {
        self.seconds.lock().buckets.get(name).map(|sampled| sampled.rates).unwrap_or_default()
    }

    pub(crate) fn system(&self, shared: &Shared) -> SystemStats {
        let memory = machine::Memory::read();
        let disk = self.folder.as_ref().map(machine::Disk::read).unwrap_or_default();
        let (cpu_utilization_percent, cpu_stolen_percent, process_cpu_percent) = {
            let seconds = self.seconds.lock();
            (seconds.cpu_percent, seconds.stolen_percent, seconds.process_percent)
        };
        SystemStats {
            uptime_secs: shared.uptime_secs(),
            memory_total: memory.within_limit(),
            memory_free: memory.available,
            swap_total: memory.swap_total,
            swap_used: memory.swap_total.saturating_sub(memory.swap_free),
            cpu_cores: self.cores,
            cpu_utilization_percent,
            cpu_stolen_percent,
            process_cpu_percent,
            disk_total: disk.total,
            disk_used: disk.used,
            process_resident: machine::Resident::read().all,
            connections: shared.totals.connections.load(std::sync::atomic::Ordering::Relaxed),
            memory: node_memory(shared),
        }
    }

    /// Samples until `ended`.
    pub(crate) async fn sample(self: Arc<Self>, shared: Arc<Shared>, mut ended: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(SAMPLE_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // An error means that the sender is gone: the node stops as well.
                _ = ended.wait_for(|stop| *stop) => return,
                _ = ticks.tick() => {
                    self.sample_once(&shared);
                    shared.account.look_at_process();
                    dataplane::ticks::look();
                }
            }
        }
    }

    /// What this node has sampled of a bucket; of a bucket that was just opened, what it says now.
    pub(crate) fn samples(&self, shared: &Shared, bucket: &str, zoom: Zoom) -> Option<Samples> {
        let snapshot = shared.snapshot();
        let entry = snapshot.buckets.get(bucket)?;
        self.history.samples(bucket, zoom).or_else(|| {
            let (node, system) = (NodeFacts::gather(shared), self.system(shared));
            let dcp = DcpFacts::gather(shared, entry, self.bucket(bucket).ops_per_sec);
            let mut readings = statistics::of_node(&node, &system);
            readings.extend(of_bucket(&BucketFacts::gather(shared, entry), &dcp));
            Some(history::only(self.moment(shared), &readings))
        })
    }

    /// How long operations of a bucket took.
    pub(crate) fn latency_past(
        &self,
        bucket: &str,
        zoom: LatencyZoom,
    ) -> Option<admin::latency::LatencyPast> {
        self.latencies.told(bucket, zoom)
    }

    fn moment(&self, shared: &Shared) -> Moment {
        let steady_secs = self.started.elapsed().as_secs_f64();
        Moment { unix_secs: u64::from(shared.now().unix_secs()), steady_secs }
    }

    fn sample_once(&self, shared: &Shared) {
        let snapshot = shared.snapshot();
        self.forget_again(&snapshot);
        let facts: Vec<(&str, &BucketEntry, BucketFacts)> = snapshot
            .buckets
            .iter()
            .map(|(name, entry)| (name.as_str(), &**entry, BucketFacts::gather(shared, entry)))
            .collect();
        self.measure_rates(&facts);
        let (node, system) = (NodeFacts::gather(shared), self.system(shared));
        let said = facts.into_iter().map(|(name, entry, facts)| {
            let dcp = DcpFacts::gather(shared, entry, self.bucket(name).ops_per_sec);
            let mut readings = statistics::of_node(&node, &system);
            readings.extend(of_bucket(&facts, &dcp));
            Said { bucket: name.to_owned(), uuid: entry.uuid.0.clone(), readings }
        });
        let moment = self.moment(shared);
        self.history.add(moment, said.collect());
        let meters = snapshot.buckets.iter().map(|(name, entry)| (name.as_str(), &entry.meter));
        self.latencies.look(moment.unix_secs, meters);
    }

    fn measure_rates(&self, facts: &[(&str, &BucketEntry, BucketFacts)]) {
        let mut seconds = self.seconds.lock();
        let old = std::mem::take(&mut seconds.buckets);
        for (name, _, facts) in facts {
            let totals =
                [facts.all_operations(), facts.reads(), facts.reads_that_found(), facts.stats.ops.bg_fetched];
            // A bucket seen for the first time has no rate yet.
            let last = old.get(*name).map_or(totals, |sampled| sampled.totals);
            let [ops_per_sec, gets_per_sec, get_hits_per_sec, fetches_per_sec] = std::array::from_fn(|at| {
                totals[at].saturating_sub(last[at]) as f64 / SAMPLE_EVERY.as_secs_f64()
            });
            let rates = Rates { ops_per_sec, gets_per_sec, get_hits_per_sec, fetches_per_sec };
            seconds.buckets.insert((*name).to_owned(), Sampled { totals, rates });
        }
        seconds.measure_cpu();
    }
}
