//! What the quick start and `settee songs load` share. They put songs into a bucket, show their progress, and end with a summary: figures
//! of the clients beside those of the bucket.

use super::Failure;
use crate::progress::Progress;
use crate::songs::{self, Effort, LoadSummary, Songs};
use client::{Login, Rest};
use load::{Advance, LoadError, Protocol};
use serde_json::Value;
use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The set that examples and documentation mean.
pub(crate) const SEED_DEFAULT: u64 = 1;
/// The disk queue drains while the user waits for the summary; a slow disk is not waited for.
const DRAIN: Duration = Duration::from_secs(10);

/// Which documents go where, as whom.
pub(crate) struct Target {
    /// `host:port` of the data port.
    pub(crate) kv: String,
    /// `host:port` of the management interface.
    pub(crate) rest: String,
    pub(crate) bucket: String,
    /// Empty for a bucket that is open to clients without a login.
    pub(crate) username: String,
    pub(crate) password: String,
    pub(crate) count: u64,
    pub(crate) seed: u64,
}

/// Loads the documents through the network, with a progress bar on terminals.
pub(crate) fn load(target: &Target) -> Result<Summary, Failure> {
    let loaded = drive(target, "loading", songs::load)?;
    let electronic = Songs::new(target.seed).count_electronic(target.count);
    Ok(Summary { loaded, electronic, bucket: BucketFigures::read(target) })
}

/// Reads the documents back through the network, with a progress bar on terminals.
pub(crate) fn verify(target: &Target) -> Result<LoadSummary, Failure> {
    drive(target, "verifying", songs::verify)
}

type Step =
    fn(load::Target, Songs, u64, Effort, &mut dyn FnMut(Advance<'_>)) -> Result<LoadSummary, LoadError>;

/// Loading and verifying differ in their direction only.
fn drive(target: &Target, label: &'static str, step: Step) -> Result<LoadSummary, Failure> {
    let named = !target.username.is_empty();
    let login = Login {
        user: named.then(|| (target.username.clone(), target.password.clone())),
        bucket: Some(target.bucket.clone()),
        collections: false,
    };
    let failed = |error: LoadError| Failure(error.to_string());
    let cluster = load::Target::discover(Protocol::Couchbase, &target.kv, login).map_err(failed)?;
    let songs = Songs::new(target.seed);
    let mut progress = Progress::start(label, target.count);
    let outcome = step(cluster, songs, target.count, Effort::default(), &mut |advance| progress.set(advance));
    progress.finish();
    outcome.map_err(failed)
}

/// One screen about a load.
pub(crate) struct Summary {
    loaded: LoadSummary,
    electronic: u64,
    /// `None` if the management interface would not tell: the load itself has succeeded.
    bucket: Option<BucketFigures>,
}

/// What the bucket says about itself.
struct BucketFigures {
    items: u64,
    memory_bytes: u64,
    disk_bytes: u64,
}

impl BucketFigures {
    /// Reads the figures, once what was loaded shows in them and on disk.
    fn read(target: &Target) -> Option<BucketFigures> {
        let rest = Rest::new(&target.rest, Some((&target.username, &target.password)));
        let path = format!("/pools/default/buckets/{}", client::rest::percent(&target.bucket));
        let started = Instant::now();
        let mut last_disk_bytes = None;
        loop {
            let figures = BucketFigures::parse(&rest.get_json(&path).ok()?)?;
            let settled = figures.items >= target.count && last_disk_bytes == Some(figures.disk_bytes);
            if settled || started.elapsed() > DRAIN {
                return Some(figures);
            }
            last_disk_bytes = Some(figures.disk_bytes);
            sleep(Duration::from_millis(500));
        }
    }

    fn parse(bucket: &Value) -> Option<BucketFigures> {
        let figure = |name: &str| bucket["basicStats"][name].as_f64().map(|number| number as u64);
        Some(BucketFigures {
            items: figure("itemCount")?,
            memory_bytes: figure("memUsed")?,
            disk_bytes: figure("diskUsed")?,
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loaded = &self.loaded;
        writeln!(
            f,
            "Documents   {} ({:.1} MB of JSON), exactly {} of them tagged \"electronic\"",
            loaded.documents,
            loaded.bytes as f64 / 1e6,
            self.electronic
        )?;
        writeln!(f, "Rate        {:.0} documents/s over {:.1} s", loaded.ops_per_sec, loaded.seconds)?;
        writeln!(
            f,
            "Latency     p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms (deep pipelines: the queue is part of it)",
            loaded.p50_us / 1e3,
            loaded.p99_us / 1e3,
            loaded.p99_9_us / 1e3
        )?;
        if loaded.temporary_failures > 0 {
            writeln!(f, "Retried     {} temporary failures", loaded.temporary_failures)?;
        }
        match &self.bucket {
            Some(bucket) if bucket.items > 0 => {
                let per_item = bucket.memory_bytes as f64 / bucket.items as f64;
                let memory = bucket.memory_bytes as f64 / 1e6;
                writeln!(f, "Memory      {memory:.1} MB, {per_item:.0} bytes per item with key and value")?;
                write!(f, "Disk        {:.1} MB", bucket.disk_bytes as f64 / 1e6)
            }
            _ => write!(f, "Memory      unknown: the management interface gave no statistics"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_the_basic_statistics() {
        let bucket = serde_json::json!({"basicStats": {"itemCount": 3, "memUsed": 900.0, "diskUsed": 7}});
        let figures = BucketFigures::parse(&bucket).expect("figures");
        assert_eq!((figures.items, figures.memory_bytes, figures.disk_bytes), (3, 900, 7));
        assert!(BucketFigures::parse(&serde_json::json!({})).is_none());
    }
}
