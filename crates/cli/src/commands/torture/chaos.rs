//! `settee torture chaos`: a cluster of our own that is killed, cut up and rebalanced while it serves.

use super::super::Failure;
use super::{binary, remove};
use base::bucket::DurabilityLevel;
use clap::Args as ClapArgs;
use std::path::PathBuf;
use std::time::Duration;
use torture::chaos::event::Event;
use torture::chaos::{self, Plan};
use torture::cluster::{ClusterOptions, LocalCluster};

/// A cluster that is killed, stopped, cut up, failed over and rebalanced under load, and must lose nothing it promised
#[derive(ClapArgs)]
#[command(
    long_about = "A cluster that is killed, stopped, cut up, failed over and rebalanced under load, and must lose nothing it promised.\n\n\
This command forms a cluster of child processes of this binary, with spare nodes beside it, and puts load with validation \
on it at a constant rate: one that writes durably to a majority, and a plain one. Then it does one thing after the other \
to the cluster, in an order that follows from --seed:\n\n\
  kill                 kill -9, and a start soon after\n\
  kill-failover        kill -9, failover by hand, start, recovery\n\
  kill-auto-failover   kill -9, failover by the cluster itself, start, recovery\n\
  pause                SIGSTOP for less than it takes to be failed over\n\
  pause-auto-failover  SIGSTOP until the cluster fails it over, SIGCONT, recovery\n\
  isolate              cut off from the other nodes, but not from clients, until the cluster fails it over; recovery\n\
  mute, deaf           what a node sends to the others, or they to it, is lost for a while\n\
  unlink               two nodes do not hear of each other for a while\n\
  split                two halves of the cluster do not hear of each other for a while\n\
  graceful-failover    and recovery\n\
  rebalance-in, rebalance-out, swap\n\
  stop-rebalance       stopped half-way and asked for again\n\
  kill-in-rebalance    kill -9 and start of a node in the middle of a rebalance, which must complete by itself\n\
  failover-in-rebalance  kill -9 and failover by hand in the middle of a rebalance, which must complete; start, recovery\n\n\
In a rebalance every other time the node that leads is killed. Links are cut in network namespaces; where this machine or user \
may have none, those events are left out, and said so at the end.\n\n\
A line per event tells what users felt: failed operations, from the first to the last, answers \"not now\", and the slowest one. \
A table at the end has the worst of each kind. It fails, with exit code 1, unless the cluster comes to rest after each event; \
nobody is failed over but who was hurt; in planned events (graceful-failover and the rebalances nobody is killed in) no answer \
is seen but success, expected misses and \"not my vBucket\", and no operation takes longer than 2.5 s, the default of SDKs; in the end every durable write that was acknowledged is there, and every plain one that had reached the \
replicas before a node was hurt, or was acknowledged while all were treated gracefully; each answer of a view at stale=false \
has what was acknowledged before it was asked for, and each row once, or says that it lacks something. What comes too late is not held \
against the cluster if the machine itself stood still, which is measured and said. \
--history writes down what further clients asked and were told, for a checker of linearisability."
)]
#[command(after_help = "\
Examples:
  settee torture chaos                                        an hour, four nodes and a spare
  settee torture chaos --short                                each kind of event once
  settee torture chaos --seed 7 --events 3 --only kill,swap --keep
  settee torture chaos --short --history history.jsonl && go run -C compat/linearizability . history.jsonl")]
pub(super) struct ChaosArgs {
    /// Each kind of event once, at a lower rate
    #[arg(long)]
    short: bool,

    /// Repeats the order of events, the nodes that they hit, and their pauses
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How long, in minutes [default: 60]
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<f64>,

    /// How many events [default: until the time is over]
    #[arg(long, value_name = "N")]
    events: Option<u64>,

    /// Only these kinds of events [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = event)]
    only: Vec<Event>,

    /// Nodes of the cluster
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=20))]
    nodes: u8,

    /// Nodes beside it that can be added
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=10))]
    spares: u8,

    /// Replicas of the bucket
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=3))]
    replicas: u8,

    /// Durable operations per second [default: 1000, short 200]
    #[arg(long, value_name = "OPS")]
    durable_rate: Option<f64>,

    /// Plain operations per second [default: 4000, short 800]
    #[arg(long, value_name = "OPS")]
    plain_rate: Option<f64>,

    /// Documents of each of the two loads [default: 20000, short 2000]
    #[arg(long, short = 'n')]
    records: Option<u64>,

    /// Seconds after which the cluster fails a silent node over
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    auto_failover: u64,

    /// Nodes speak TLS to one another
    #[arg(long)]
    encrypted: bool,

    /// Everything on loopback addresses: no network namespaces, no cut links
    #[arg(long)]
    loopback: bool,

    /// What the nodes run [default: this binary]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,

    /// Write what further clients asked and were told to this file, a JSON object per operation
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    /// Where the run makes a directory for the nodes' data [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Keep the nodes' directories; a run that fails keeps them anyway
    #[arg(long)]
    keep: bool,

    /// Write events and findings to this file (JSON)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Hurts a cluster as the flags say.
pub(super) fn run(args: &ChaosArgs) -> Result<(), Failure> {
    let kinds = if args.only.is_empty() { Event::ALL.to_vec() } else { args.only.clone() };
    let events = args.events.unwrap_or(if args.short { kinds.len() as u64 } else { u64::MAX });
    let by_length = |long, short| if args.short { short } else { long };
    // A directory of this run's own, since it is removed in the end.
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = dir.join(format!("settee-chaos-{}", std::process::id()));
    let plan = Plan {
        seed: args.seed,
        events,
        time: Duration::from_secs_f64(args.minutes.unwrap_or(60.0).clamp(0.1, 100_000.0) * 60.0),
        kinds,
        level: DurabilityLevel::Majority,
        rates: (
            args.durable_rate.unwrap_or(by_length(1_000.0, 200.0)),
            args.plain_rate.unwrap_or(by_length(4_000.0, 800.0)),
        ),
        records: args.records.unwrap_or(if args.short { 2_000 } else { 20_000 }).max(1),
        auto_failover: args.auto_failover.max(1),
        history: args.history.clone(),
        dir: dir.clone(),
    };
    let options = ClusterOptions {
        binary: binary(args.binary.as_ref())?,
        members: usize::from(args.nodes),
        spares: usize::from(args.spares),
        bucket: "chaos",
        replicas: args.replicas,
        quota_mb: 128,
        eviction_policy: "valueOnly",
        disk_bytes_per_sec: 0,
        disk_iops: 0,
        slowest_disk: None,
        auto_failover: (args.nodes >= 3).then_some(args.auto_failover.max(1)),
        encrypted: args.encrypted,
        namespaces: !args.loopback,
    };
    let failed = |error| Failure(format!("{error}; the nodes' directories are in {}", dir.display()));
    println!("seed {}: {} nodes, {} beside them", args.seed, args.nodes, args.spares);
    let cluster = LocalCluster::start(&options, &dir).map_err(failed)?;
    let outcome = chaos::run(&plan, cluster).map_err(failed)?;
    if let Some(file) = &args.json {
        std::fs::write(file, format!("{}\n", outcome.report))
            .map_err(|error| Failure::doing(format_args!("cannot write {}", file.display()), error))?;
    }
    match outcome.checks.failed() {
        0 => remove(&dir, args.keep),
        failed => Err(Failure(format!(
            "{failed} checks failed; the nodes' directories are in {}; the same events again: --seed {}",
            dir.display(),
            args.seed
        ))),
    }
}

fn event(name: &str) -> Result<Event, String> {
    let names: Vec<&str> = Event::ALL.iter().map(|event| event.name()).collect();
    Event::named(name).ok_or_else(|| format!("there are {}", names.join(", ")))
}
