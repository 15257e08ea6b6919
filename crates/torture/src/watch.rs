//! What the nodes say about themselves, second by second: the timeline.
//!
//! Samples are sums over the nodes; a statistic that a node does not have is missing, not zero. The watch also
//! remembers the peaks, and when each pressure step was entered.

use crate::TortureError;
use crate::ledger::Ledger;
use crate::loaders::Tally;
use crate::target::Target;
use base::Status;
use client::{ClientError, KvConnection};
use load::Usage;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Lines between two headings.
const HEADING_EVERY: usize = 20;
const MIB: f64 = 1024.0 * 1024.0;

/// One reading of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    numbers: BTreeMap<String, f64>,
    /// Resident memory of the processes.
    pub rss: u64,
}

impl Sample {
    /// Reads every node's statistics.
    ///
    /// # Errors
    /// One of them cannot be reached.
    pub fn take(target: &dyn Target, nodes: &mut Nodes) -> Result<Sample, ClientError> {
        let mut numbers = BTreeMap::new();
        for (name, value) in nodes.stats(target, "")? {
            if let Ok(number) = value.parse::<f64>() {
                *numbers.entry(name).or_insert(0.0) += number;
            }
        }
        let rss = target.pids().into_iter().filter_map(Usage::of).map(|usage| usage.rss_bytes).sum();
        Ok(Sample { numbers, rss })
    }

    /// A statistic by its published name; zero if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> f64 {
        self.numbers.get(name).copied().unwrap_or(0.0)
    }

    /// Whether the nodes have this statistic.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.numbers.contains_key(name)
    }

    /// Bytes that were acknowledged and are not on disk.
    #[must_use]
    pub fn dirty_bytes(&self) -> f64 {
        self.get("ep_diskqueue_memory")
    }

    /// Whether everything is on disk.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.get("ep_queue_size") == 0.0 && self.get("ep_flusher_todo") == 0.0 && self.dirty_bytes() == 0.0
    }

    /// Whether the pager has nothing left to do.
    #[must_use]
    pub fn is_below_low_watermark(&self) -> bool {
        self.get("mem_used") <= self.get("ep_mem_low_wat")
    }
}

/// Connections for statistics, one per node.
#[derive(Default)]
pub struct Nodes(Vec<KvConnection>);

impl Nodes {
    /// Drops the connections: a node is about to be killed.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// A group of statistics of all nodes, one after the other.
    ///
    /// # Errors
    /// A node cannot be reached; the next call connects anew.
    pub fn stats(&mut self, target: &dyn Target, group: &str) -> Result<Vec<(String, String)>, ClientError> {
        if self.0.is_empty() {
            let login = target.login();
            let map = KvConnection::open(&target.seed(), &login)?.cluster_map()?;
            self.0 =
                map.nodes.iter().map(|node| KvConnection::open(node, &login)).collect::<Result<_, _>>()?;
        }
        let mut all = Vec::new();
        for node in &mut self.0 {
            match node.stats(group) {
                Ok(stats) => all.extend(stats),
                Err(error) => {
                    self.0.clear();
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    /// Notes in the ledger how far each vBucket is on disk.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn note_persisted(&mut self, target: &dyn Target, ledger: &Ledger) -> Result<(), ClientError> {
        for (name, value) in self.stats(target, "vbucket-seqno")? {
            let vb = name.strip_prefix("vb_").and_then(|rest| rest.strip_suffix(":last_persisted_seqno"));
            if let Some((vb, seqno)) = vb.and_then(|vb| vb.parse().ok()).zip(value.parse().ok()) {
                ledger.persisted_to(vb, seqno);
            }
        }
        Ok(())
    }
}

/// The highest that was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peaks {
    /// `mem_used`.
    pub mem_used: f64,
    /// Resident memory.
    pub rss: u64,
    /// Bytes not on disk.
    pub dirty_bytes: f64,
    /// Bytes taken on disk.
    pub disk_bytes: f64,
}

/// Keeps the timeline of a run.
pub struct Watch {
    began: Instant,
    nodes: Nodes,
    rows: Vec<Value>,
    lines: usize,
    last: Option<(Instant, Sample, Tally)>,
    step: Option<f64>,
    /// The highest that was seen.
    pub peaks: Peaks,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            began: Instant::now(),
            nodes: Nodes::default(),
            rows: Vec::new(),
            lines: 0,
            last: None,
            step: None,
            peaks: Peaks::default(),
        }
    }
}

impl Watch {
    /// Reads the nodes without a line in the timeline.
    ///
    /// # Errors
    /// One of them cannot be reached.
    pub fn sample(&mut self, target: &dyn Target) -> Result<Sample, TortureError> {
        let sample = Sample::take(target, &mut self.nodes)?;
        let peaks = &mut self.peaks;
        peaks.mem_used = peaks.mem_used.max(sample.get("mem_used"));
        peaks.rss = peaks.rss.max(sample.rss);
        peaks.dirty_bytes = peaks.dirty_bytes.max(sample.dirty_bytes());
        peaks.disk_bytes = peaks.disk_bytes.max(sample.get("ep_db_file_size"));
        self.note_step(&sample);
        Ok(sample)
    }

    /// Notes in the ledger how far each vBucket is on disk.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn note_persisted(&mut self, target: &dyn Target, ledger: &Ledger) -> Result<(), TortureError> {
        Ok(self.nodes.note_persisted(target, ledger)?)
    }

    /// The nodes are about to be killed: connects anew with the next reading.
    pub fn forget_connections(&mut self) {
        self.nodes.forget();
    }

    fn note_step(&mut self, sample: &Sample) {
        let step = sample.has("ep_pressure_step").then(|| sample.get("ep_pressure_step"));
        if step.is_some() && step != self.step {
            let from = self.step.map_or("-".to_owned(), |step| step.to_string());
            self.say(&format!("pressure step {from} -> {}", step.unwrap_or(0.0)));
        }
        self.step = step;
    }

    /// A remark in the timeline.
    pub fn say(&mut self, what: &str) {
        let at = self.began.elapsed().as_secs_f64();
        println!("{at:7.1}  -- {what}");
        self.rows.push(json!({"at": at, "event": what}));
    }

    /// The next line of the timeline, from the nodes and what the loaders have counted so far.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn tick(&mut self, target: &dyn Target, tally: &Tally) -> Result<Sample, TortureError> {
        let sample = self.sample(target)?;
        let now = Instant::now();
        let (before, counted) = match self.last.take() {
            // After a kill counters begin anew.
            Some((at, last, counted)) => ((now - at, last.get("ep_total_persisted")), counted),
            None => ((now - self.began, 0.0), Tally::default()),
        };
        let seconds = before.0.max(Duration::from_millis(1)).as_secs_f64();
        let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let rate = |status| per_second(tally.count(status), counted.count(status));
        let (sets, refused) = (rate(Status::Success), rate(Status::TemporaryFailure));
        let all = |tally: &Tally| tally.codes.values().sum();
        let other = (per_second(all(tally), all(&counted)) - sets - refused).max(0.0);
        let persisted = (sample.get("ep_total_persisted") - before.1).max(0.0) / seconds;
        if self.lines.is_multiple_of(HEADING_EVERY) {
            println!(
                "{:>7} {:>9} {:>9} {:>7} {:>10} {:>9} {:>8} {:>9} {:>8} {:>8} {:>8} {:>8} {:>5} {:>8}",
                "second",
                "sets/s",
                "tmpfail/s",
                "other/s",
                "documents",
                "dirty",
                "MiB",
                "disk/s",
                "mem MiB",
                "low",
                "high",
                "rss MiB",
                "step",
                "resident"
            );
        }
        self.lines += 1;
        let mib = |name: &str| sample.get(name) / MIB;
        let step = if sample.has("ep_pressure_step") {
            sample.get("ep_pressure_step").to_string()
        } else {
            "-".into()
        };
        println!(
            "{:7.1} {sets:9.0} {refused:9.0} {other:7.0} {:10.0} {:9.0} {:8.1} {persisted:9.0} {:8.1} {:8.1} {:8.1} {:8.1} \
             {step:>5} {:7.1}%",
            self.began.elapsed().as_secs_f64(),
            sample.get("curr_items"),
            sample.get("ep_diskqueue_items"),
            sample.dirty_bytes() / MIB,
            mib("mem_used"),
            mib("ep_mem_low_wat"),
            mib("ep_mem_high_wat"),
            sample.rss as f64 / MIB,
            sample.get("vb_active_perc_mem_resident"),
        );
        self.rows.push(json!({
            "at": self.began.elapsed().as_secs_f64(), "sets_per_second": sets, "temporary_failures_per_second": refused,
            "other_answers_per_second": other, "persisted_per_second": persisted, "rss": sample.rss,
            "statistics": sample.numbers.iter().filter(|(name, _)| is_telling(name)).collect::<BTreeMap<_, _>>(),
        }));
        self.last = Some((now, sample.clone(), tally.clone()));
        Ok(sample)
    }

    /// For the report.
    #[must_use]
    pub fn to_json(&self) -> Value {
        self.rows.iter().cloned().collect()
    }
}

/// Whether a statistic belongs into the report's timeline.
fn is_telling(name: &str) -> bool {
    name.starts_with("ep_")
        || name.starts_with("vb_active")
        || name.starts_with("mem_used")
        || name == "curr_items"
}
