//! The song data set through the network: loads it into a bucket, and reads it back byte for byte.

use super::Songs;
use load::records::JSON_FLAGS;
use load::{Advance, Driver, LoadError, Op, Part, Phase, Records, Tally, Target};
use std::fmt;
use std::sync::Arc;

/// How to talk to the target. Few connections with deep pipelines load fastest on loopback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Connections.
    pub(crate) connections: usize,
    /// Documents in flight on each.
    pub(crate) pipeline: usize,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { connections: 16, pipeline: 32 }
    }
}

/// What a load or a verification came to.
pub(crate) struct LoadSummary {
    /// Documents that were acknowledged, or found as they should be.
    pub(crate) documents: u64,
    /// From the first request to the last reply.
    pub(crate) seconds: f64,
    /// Documents per second.
    pub(crate) ops_per_sec: f64,
    /// Microseconds; a document that had to wait for memory counts from its first attempt.
    pub(crate) p50_us: f64,
    /// As `p50_us`.
    pub(crate) p99_us: f64,
    /// As `p50_us`.
    pub(crate) p99_9_us: f64,
    /// Bytes of the documents.
    pub(crate) bytes: u64,
    /// "Temporary failure" answers that were ridden out.
    pub(crate) temporary_failures: u64,
    /// Verification: documents that are not there.
    pub(crate) missing: u64,
    /// Verification: documents whose bytes differ.
    pub(crate) different: u64,
}

impl LoadSummary {
    fn of(tally: &Tally, reading: bool) -> LoadSummary {
        let latencies = tally.latencies(Some(reading));
        LoadSummary {
            documents: tally.ok() - tally.corrupt,
            seconds: tally.elapsed.as_secs_f64(),
            ops_per_sec: tally.ops_per_sec(),
            p50_us: latencies.percentile_us(50.0),
            p99_us: latencies.percentile_us(99.0),
            p99_9_us: latencies.percentile_us(99.9),
            bytes: tally.bytes,
            temporary_failures: tally.temporary,
            missing: tally.misses(),
            different: tally.corrupt,
        }
    }
}

impl fmt::Display for LoadSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} documents ({:.1} MB) in {:.1} s: {:.0} documents/s, latency p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms",
            self.documents,
            self.bytes as f64 / 1e6,
            self.seconds,
            self.ops_per_sec,
            self.p50_us / 1e3,
            self.p99_us / 1e3,
            self.p99_9_us / 1e3
        )?;
        if self.temporary_failures > 0 {
            write!(f, "; {} temporary failures, retried", self.temporary_failures)?;
        }
        Ok(())
    }
}

impl Records for Songs {
    fn key(&self, index: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&Songs::key(self, index));
    }

    fn value(&self, index: u64, _version: u64, out: &mut Vec<u8>) {
        self.document(index, out);
    }

    fn is_value(&self, index: u64, value: &[u8], scratch: &mut Vec<u8>) -> bool {
        scratch.clear();
        self.document(index, scratch);
        scratch == value
    }

    fn flags(&self) -> u32 {
        JSON_FLAGS
    }
}

/// Stores the first `count` documents. `progress` hears how far that is.
pub(crate) fn load(
    target: Target,
    songs: Songs,
    count: u64,
    effort: Effort,
    progress: &mut dyn FnMut(Advance<'_>),
) -> Result<LoadSummary, LoadError> {
    run(target, songs, Op::Set, count, effort, progress)
}

/// Reads the first `count` documents and compares every byte with what the generator makes.
pub(crate) fn verify(
    target: Target,
    songs: Songs,
    count: u64,
    effort: Effort,
    progress: &mut dyn FnMut(Advance<'_>),
) -> Result<LoadSummary, LoadError> {
    run(target, songs, Op::Get, count, effort, progress)
}

fn run(
    target: Target,
    songs: Songs,
    op: Op,
    records: u64,
    effort: Effort,
    progress: &mut dyn FnMut(Advance<'_>),
) -> Result<LoadSummary, LoadError> {
    let mut driver = Driver::connect(Arc::new(target), Arc::new(songs), effort.connections, Part::WHOLE)?;
    let tally = driver.run_all(&Phase::each(op, records, effort.pipeline), progress)?;
    if let Some(text) = tally.main_failure() {
        return Err(LoadError::Refused { count: tally.failed(), text: text.to_owned() });
    }
    Ok(LoadSummary::of(&tally, op == Op::Get))
}
