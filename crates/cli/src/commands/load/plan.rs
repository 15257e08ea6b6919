//! What a run does, put together from flags and from property files of other generators.

use super::super::Failure;
use super::args::{PaceArgs, RecordArgs, TargetArgs, UNBOUNDED, WorkArgs};
use load::profile::{Profile, Properties, Stage};
use load::records::Shifted;
use load::report::Series;
use load::values::Dataset;
use load::{Choice, Phase, Records, Stop};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Connections of a run that names no number.
pub(super) const CONNECTIONS_DEFAULT: u32 = 50;

/// Workloads of other generators.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Property files")]
pub(crate) struct ProfileArgs {
    /// A workload as a property file, unchanged; may be given several times. The file is one of YCSB (core workload), of the
    /// historical memcached generator, or of its successor (JSON). Flags for target, --rate, --closed, --seconds and --connections win
    /// over the file
    #[arg(long, short = 'P', value_name = "FILE", conflicts_with_all = ["mix", "gets", "populate"])]
    pub(crate) properties: Vec<PathBuf>,
    /// One more property of that kind
    #[arg(long, value_name = "KEY=VALUE", requires = "properties")]
    pub(crate) property: Vec<String>,
    /// What of the workload: write every record once, or run the mix [default: run, unless the file says
    /// dotransactions=false]
    #[arg(long, value_enum, requires = "properties")]
    pub(crate) stage: Option<StageArg>,
}

/// A part of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StageArg {
    /// Write every record once
    Load,
    /// Run the mix of operations
    Run,
}

impl ProfileArgs {
    /// The workload of the files, if there are any.
    pub(crate) fn read(&self) -> Result<Option<Profile>, Failure> {
        if self.properties.is_empty() {
            return Ok(None);
        }
        let mut properties = Properties::default();
        for path in &self.properties {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::doing(format_args!("cannot read {}", path.display()), error))?;
            let read = properties.read_any(&text);
            read.map_err(|error| Failure::doing(format_args!("cannot read {}", path.display()), error))?;
        }
        for property in &self.property {
            let (key, value) = property.split_once('=').unwrap_or((property, ""));
            properties.set(key, value);
        }
        let stage = match self.stage {
            Some(StageArg::Load) => Stage::Load,
            Some(StageArg::Run) => Stage::Run,
            None => Stage::of(&properties),
        };
        Profile::of(&properties, stage).map(Some).map_err(Failure)
    }
}

/// Everything that a run needs to know, from flags and property files together.
pub(crate) struct Plan {
    pub(crate) target: TargetArgs,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) phase: Phase,
    pub(crate) connections: usize,
    /// Of an open loop.
    pub(crate) rate: Option<f64>,
    pub(crate) profile: Option<Profile>,
    /// Whether every record is written once, which is no measurement and needs no warming up.
    pub(crate) filling: bool,
}

impl Plan {
    /// Puts flags and files together.
    pub(crate) fn new(
        target: &TargetArgs,
        records: &RecordArgs,
        work: &WorkArgs,
        pace: &PaceArgs,
        profile: &ProfileArgs,
    ) -> Result<Plan, Failure> {
        let mut target = target.clone();
        let profile = profile.read()?;
        let connections = pace.connections.or(profile.as_ref().map(|profile| profile.connections));
        let connections = connections.unwrap_or(CONNECTIONS_DEFAULT) as usize;
        let Some(profile) = profile else {
            let (set, count) = records.records()?;
            let phase = pace.phase(work, count, target.protocol())?;
            let (rate, filling) = (pace.rate(work.populate), work.populate);
            return Ok(Plan { target, records: set, phase, connections, rate, profile: None, filling });
        };
        target.complete(&profile);
        let filling = profile.choice == Choice::Each;
        let rate = if pace.closed { None } else { pace.rate.or(profile.rate) };
        let pace = PaceArgs { closed: rate.is_none(), rate, ..pace.clone() };
        let work = WorkArgs { mix: Some(profile.mix.clone()), distribution: profile.choice, ..work.clone() };
        let base = pace.phase(&work, profile.records, target.protocol())?;
        let time =
            pace.seconds.or(profile.seconds).map(|seconds| Stop::Time(Duration::from_secs_f64(seconds)));
        let stop = match (filling, profile.operations) {
            (true, _) => Stop::All,
            (false, Some(operations)) => time.unwrap_or(Stop::Ops(operations)),
            (false, None) => time.unwrap_or(Stop::Time(UNBOUNDED)),
        };
        let records: Arc<dyn Records> = match &records.key_file {
            // Real keys in place of made ones: what users of the historical generator patched into it.
            Some(_) => records.records()?.0,
            None => Arc::new(Dataset::new(&profile.prefix, profile.keys.clone(), profile.values.clone())),
        };
        let records =
            if profile.first > 0 { Arc::new(Shifted::new(records, profile.first)) } else { records };
        let interval = profile.series.map_or(base.interval, Series::interval);
        let phase = Phase { stop, interval, multi: profile.multi, ..base };
        Ok(Plan { target, records, phase, connections, rate, profile: Some(profile), filling })
    }
}
