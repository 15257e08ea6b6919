//! Workloads of other generators, from the property files that their users have: YCSB's core workload and the
//! historical memcached generator.
//!
//! A [`Profile`] is what such a file asks for in our words. Keys that have no meaning here are listed and not silently
//! dropped; a value that is none is an error.

mod historic;
mod properties;
mod ycsb;

pub use properties::Properties;

use crate::choose::Choice;
use crate::keys::KeyForm;
use crate::op::Mix;
use crate::values::ValueKind;
use crate::wire::Protocol;
use std::time::Duration;

/// What is run of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Every record is written once.
    Load,
    /// The mix of operations.
    Run,
}

impl Stage {
    /// What a file asks for: `dotransactions=false` is the load stage.
    #[must_use]
    pub fn of(properties: &Properties) -> Stage {
        if properties.get("dotransactions") == Some("false") { Stage::Load } else { Stage::Run }
    }
}

/// A workload as a property file describes it.
#[derive(Clone, Debug)]
pub struct Profile {
    /// What is done.
    pub mix: Mix,
    /// Records there are.
    pub records: u64,
    /// Where they begin among all records of their rule.
    pub first: u64,
    /// Which of them.
    pub choice: Choice,
    /// How keys are made, and what stands in front of them.
    pub keys: KeyForm,
    /// See `keys`.
    pub prefix: String,
    /// What values are.
    pub values: ValueKind,
    /// Keys of a scan, which is carried out as a multi-get.
    pub multi: usize,
    /// How many operations; without, until the time is over.
    pub operations: Option<u64>,
    /// For how long at most, in seconds.
    pub seconds: Option<f64>,
    /// One connection per thread of the original, one request in flight on each.
    pub connections: u32,
    /// Operations per second; a closed loop without.
    pub rate: Option<f64>,
    /// Address and port that the file names.
    pub address: Option<(String, Option<u16>)>,
    /// What to speak, if the file says it.
    pub protocol: Option<Protocol>,
    /// Bucket and password that the file names.
    pub bucket: Option<(String, String)>,
    /// In front of the original's lines.
    pub label: String,
    /// Buckets of the original's histograms.
    pub buckets: usize,
    /// Seconds between two lines of the original.
    pub lines_every: f64,
    /// Where the original writes its report.
    pub export: Option<String>,
    /// Whether it writes JSON there.
    pub json: bool,
    /// Averages over units of this length are told instead of histograms.
    pub series: Option<Duration>,
    /// Keys of the file that mean nothing here.
    pub ignored: Vec<String>,
}

impl Profile {
    /// Reads a workload.
    ///
    /// # Errors
    /// No `workload` or an unknown one, or a value that is none.
    pub fn of(properties: &Properties, stage: Stage) -> Result<Profile, String> {
        let workload = properties.get("workload").ok_or("the file has no property `workload`")?;
        match workload.rsplit('.').next().unwrap_or_default() {
            "CoreWorkload" => ycsb::profile(properties, stage),
            "MemcachedCoreWorkload" => historic::profile(properties, stage),
            _ => Err(format!("{workload} is neither a CoreWorkload nor a MemcachedCoreWorkload")),
        }
    }
}

/// A positive number is a rate, anything else none.
fn rate(target: f64) -> Option<f64> {
    (target > 0.0).then_some(target)
}
