//! What the nodes say about themselves, second by second: the timeline.
//!
//! A number of a sample is the sum over the nodes, of shares their mean, of the pressure step the highest. What has to
//! hold of memory has to hold of each node. A statistic that a node does not have is missing, not zero. The watch also
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
const PRESSURE_STEP: &str = "ep_pressure_step";

/// One reading of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    nodes: Vec<BTreeMap<String, f64>>,
    /// Resident memory of the processes.
    pub rss: u64,
}

impl Sample {
    /// Reads every node's statistics.
    ///
    /// # Errors
    /// One of them cannot be reached.
    pub fn take(target: &dyn Target, nodes: &mut Nodes) -> Result<Sample, ClientError> {
        let number = |(name, value): (String, String)| Some((name, value.parse::<f64>().ok()?));
        let numbers = |stats: Stats| stats.into_iter().filter_map(number).collect::<BTreeMap<_, _>>();
        let nodes = nodes.stats(target, "")?.into_iter().map(numbers).collect();
        let rss = target.pids().into_iter().filter_map(Usage::of).map(|usage| usage.rss_bytes).sum();
        Ok(Sample { nodes, rss })
    }

    /// A statistic by its published name; zero if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> f64 {
        let numbers = self.nodes.iter().filter_map(|node| node.get(name)).copied();
        if name == PRESSURE_STEP {
            numbers.fold(0.0, f64::max)
        } else if name.contains("perc") {
            let count = numbers.clone().count().max(1);
            numbers.sum::<f64>() / count as f64
        } else {
            numbers.sum()
        }
    }

    /// Whether the nodes have this statistic.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.nodes.iter().any(|node| node.contains_key(name))
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

    /// Whether no pager has anything left to do.
    #[must_use]
    pub fn is_below_low_watermark(&self) -> bool {
        let number = |node: &BTreeMap<String, f64>, name| node.get(name).copied().unwrap_or(0.0);
        self.nodes.iter().all(|node| number(node, "mem_used") <= number(node, "ep_mem_low_wat"))
    }

    /// Share of its quota that the fullest node uses.
    #[must_use]
    pub fn fullness(&self) -> f64 {
        let share = |node: &BTreeMap<String, f64>| Some(node.get("mem_used")? / node.get("ep_max_size")?);
        self.nodes.iter().filter_map(share).fold(0.0, f64::max)
    }

    /// Share of its quota that keys and metadata take, on the node where that is most.
    #[must_use]
    pub fn floor_share(&self) -> f64 {
        let share =
            |node: &BTreeMap<String, f64>| Some(node.get("settee_mem_floor")? / node.get("ep_max_size")?);
        self.nodes.iter().filter_map(share).fold(0.0, f64::max)
    }

    /// What belongs into the report's timeline.
    fn telling(&self) -> BTreeMap<&str, f64> {
        let names = self.nodes.iter().flat_map(BTreeMap::keys).filter(|name| is_telling(name));
        names.map(|name| (name.as_str(), self.get(name))).collect()
    }
}

/// Names and values as a node tells them.
pub type Stats = Vec<(String, String)>;

/// Connections for statistics, one per node.
#[derive(Default)]
pub struct Nodes(Vec<KvConnection>);

impl Nodes {
    /// Drops the connections: a node is about to be killed.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// A group of statistics of each node.
    ///
    /// # Errors
    /// A node cannot be reached; the next call connects anew.
    pub fn stats(&mut self, target: &dyn Target, group: &str) -> Result<Vec<Stats>, ClientError> {
        if self.0.is_empty() {
            let login = target.login();
            let map = KvConnection::open(&target.seed(), &login)?.cluster_map()?;
            self.0 =
                map.nodes.iter().map(|node| KvConnection::open(node, &login)).collect::<Result<_, _>>()?;
        }
        let mut all = Vec::new();
        for node in &mut self.0 {
            match node.stats(group) {
                Ok(stats) => all.push(stats),
                Err(error) => {
                    self.0.clear();
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    /// Notes in the ledger how far each vBucket is on some node's disk. Where an active copy was killed, a replica that
    /// has more takes its place.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn note_persisted(&mut self, target: &dyn Target, ledger: &Ledger) -> Result<(), ClientError> {
        for (name, value) in self.stats(target, "vbucket-seqno")?.into_iter().flatten() {
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
    /// Share of its quota that a node used.
    pub fullness: f64,
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
        peaks.fullness = peaks.fullness.max(sample.fullness());
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

    /// Whether all nodes have loaded what they load after a start, and how many documents that were until now.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn warm_up(&mut self, target: &dyn Target) -> Result<(bool, f64), TortureError> {
        let told = self.nodes.stats(target, "warmup")?.concat();
        let is_done = told.iter().all(|(name, value)| name != "ep_warmup_thread" || value == "complete");
        let counts = told.iter().filter(|(name, _)| name == "ep_warmup_key_count");
        Ok((is_done, counts.filter_map(|(_, count)| count.parse::<f64>().ok()).sum()))
    }

    /// The nodes are about to be killed: connects anew with the next reading.
    pub fn forget_connections(&mut self) {
        self.nodes.forget();
    }

    fn note_step(&mut self, sample: &Sample) {
        let step = sample.has(PRESSURE_STEP).then(|| sample.get(PRESSURE_STEP));
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
        let step = if sample.has(PRESSURE_STEP) { sample.get(PRESSURE_STEP).to_string() } else { "-".into() };
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
            "statistics": sample.telling(),
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
        || name.starts_with("settee_mem_")
        || name == "curr_items"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_nodes_make_one_number() {
        let node = |used, percent, step| {
            let numbers = [
                ("mem_used", used),
                ("ep_mem_low_wat", 75.0),
                ("ep_max_size", 100.0),
                ("vb_active_perc_mem_resident", percent),
                (PRESSURE_STEP, step),
            ];
            BTreeMap::from(numbers.map(|(name, number)| (name.to_owned(), number)))
        };
        let sample = Sample { nodes: vec![node(80.0, 40.0, 3.0), node(10.0, 60.0, 1.0)], rss: 0 };
        let names = ["mem_used", "vb_active_perc_mem_resident", PRESSURE_STEP, "ep_unheard_of"];
        assert_eq!(names.map(|name| sample.get(name)), [90.0, 50.0, 3.0, 0.0]);
        assert!(!sample.is_below_low_watermark(), "one of them is not");
        assert!((sample.fullness() - 0.8).abs() < 1e-9);
        assert!(sample.has("mem_used") && !sample.has("ep_unheard_of"));
        assert!(Sample::default().is_below_low_watermark());
    }
}
