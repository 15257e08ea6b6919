//! `settee load drain`: reads a bucket over DCP and throws it away.

use super::super::Failure;
use super::args::TargetArgs;
use load::Usage;
use load::drain::{DrainOptions, Drained, drain};
use serde_json::json;
use std::sync::Arc;

/// Read a whole bucket over DCP, as a backup or a connector does, and say how fast
#[derive(clap::Args, Clone)]
#[command(after_help = "\
Example:
  settee load drain -b songs --connections 4 -u Administrator -p password")]
pub(super) struct DrainArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// How many connections share the vBuckets
    #[arg(long, short = 'c', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Only what is on disk
    #[arg(long)]
    disk_only: bool,
    /// Also report what this process used meanwhile
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Report as one line of JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DrainArgs) -> Result<(), Failure> {
    let target = Arc::new(args.target.discover(false)?.with_collections());
    let options = DrainOptions { connections: usize::from(args.connections), disk_only: args.disk_only };
    let before = args.server_pid.and_then(Usage::of);
    let drained = drain(&target, options).map_err(|error| Failure(error.to_string()))?;
    let usage = before.zip(args.server_pid.and_then(Usage::of));
    let cpu = usage.map(|(before, after)| after.cpu_seconds - before.cpu_seconds);
    if args.json {
        println!("{}", to_json(&drained, cpu));
        return Ok(());
    }
    println!(
        "{} documents and {} deletions in {} snapshots, {:.1} MB in {:.2} s: {:.0} documents/s, {:.1} MB/s",
        drained.documents,
        drained.deletions,
        drained.snapshots,
        drained.bytes as f64 / 1e6,
        drained.elapsed.as_secs_f64(),
        drained.per_sec(),
        drained.megabytes_per_sec()
    );
    if let Some(cpu) = cpu {
        let each = cpu * 1e6 / (drained.documents + drained.deletions).max(1) as f64;
        println!("  server: {each:.2} us of CPU per document");
    }
    Ok(())
}

fn to_json(drained: &Drained, cpu: Option<f64>) -> serde_json::Value {
    json!({
        "documents": drained.documents, "deletions": drained.deletions, "snapshots": drained.snapshots,
        "bytes": drained.bytes, "seconds": drained.elapsed.as_secs_f64(),
        "documents_per_sec": drained.per_sec(), "megabytes_per_sec": drained.megabytes_per_sec(),
        "server_cpu_seconds": cpu,
    })
}
