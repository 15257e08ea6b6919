//! `settee torture wedge`: presses a node or cluster of our own until it ought to wedge, and says whether it did.

use super::super::Failure;
use super::{binary, remove};
use clap::Args as ClapArgs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use torture::cluster::{ClusterOptions, LocalCluster};
use torture::target::{BUCKET, LocalNode, NodeOptions, Target};
use torture::wedge::{self, Plan, Rescue};

/// Far more documents than memory, a slow disk, loaders that never pause; then the rescues
#[derive(ClapArgs)]
#[command(
    long_about = "Far more documents than memory, a slow disk, loaders that never pause; then the rescues.\n\n\
A production cluster was loaded like this: its write queues grew, memory passed the high watermark and never came down, \
every write failed, and neither stopping the load nor deleting nor restarting helped. This command does the same to a \
node of its own, once for each rescue: it starts a child process of this binary on loopback in a directory of its own, \
with a small quota and a disk that is held to --disk-mb-per-sec, and has --loaders clients insert 2.5 KB documents in a \
tight loop, refusals sent again at once, until --fill times the quota is in. Then it tries the rescue, the quota unchanged:\n\n\
  warnings                no rescue: pressure comes slowly, and alerts have to fire before a client meets an error (--nodes 2 and more)\n\
  metadata-warnings       the same, with small documents until keys and metadata alone exceed the quota (--nodes 2 and more)\n\
  idle                    the loaders stop, and nothing else is done\n\
  delete                  half of the documents are deleted while the loaders go on\n\
  kill                    kill -9 and restart while the loaders go on\n\
  add-node                a node is added while the loaders go on, then everything is updated (--nodes 2 and more)\n\
  metadata-delete         small documents until keys and metadata alone exceed the quota; half of them are deleted\n\
  metadata-full-eviction  the same, and the bucket is switched to full eviction while it runs\n\n\
Each line of the timeline is a second: what the loaders got, documents, what is dirty, memory against the watermarks, \
the pressure step (0 nothing, then paging, slow cursors to disk, pacing, temporary failure), and how much is resident. \
A client beside the loaders reads, touches and deletes all the while.\n\n\
It fails, with exit code 1, unless: after the load stops memory is below the low watermark and the queues are empty \
within 1.5 times what the disk needs for what was dirty, plus 5 s; every document that was acknowledged is read back with \
its right content (after a kill, every one that was also known to be on disk); the loaders are served again; reads, \
touches and deletions always succeed, and nobody waits longer than the 2.5 s after which SDKs give up; memory and the \
process stay within their bounds. In the runs of warnings each alert that is due has to fire, and in an earlier second than the first \
error of any client."
)]
#[command(after_help = "\
Examples:
  settee torture wedge                            all of it: about a quarter of an hour, 5 GiB of disk
  settee torture wedge --short                    the same with a small quota: a minute or two
  settee torture wedge --rescues idle,kill --json wedge.json
  settee torture wedge --nodes 4 --rescues add-node           a pressed cluster gets a fifth node
  settee torture wedge --nodes 4 --rescues warnings           alerts come before errors: little more than a minute
  settee torture wedge --short --nodes 4 --rescues metadata-warnings     the same of keys and metadata
  settee torture wedge --disk-mb-per-sec 8 --disk-iops 200 --rescues idle     a much slower disk

With --keep the node's directory stays, its log in it; a run that fails keeps it anyway.")]
pub(super) struct WedgeArgs {
    /// Small and quick: a quota of 32 MiB, four times over [default: 208 MiB, ten times]
    #[arg(long)]
    short: bool,

    /// What is tried, each on a freshly pressed node [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = rescue)]
    rescues: Vec<Rescue>,

    /// Memory quota of the bucket in MiB; warnings has one of its own
    #[arg(long, value_name = "MIB")]
    quota_mb: Option<u64>,

    /// Fill the quota so many times over
    #[arg(long, value_name = "TIMES")]
    fill: Option<f64>,

    /// Nodes; more than one form a cluster, each with the quota and the disk
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=20))]
    nodes: u8,

    /// Replicas of the bucket (of a cluster)
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=3))]
    replicas: u8,

    /// The node's disk does so much and no more, reads and writes together
    #[arg(long, default_value_t = 32, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..100_000))]
    disk_mb_per_sec: u64,

    /// And so many operations; 0 for no limit
    #[arg(long, default_value_t = 0, value_name = "N")]
    disk_iops: u64,

    /// Clients that write in a tight loop
    #[arg(long, default_value_t = 3, value_name = "N")]
    loaders: usize,

    /// Requests that each loader keeps under way
    #[arg(long, default_value_t = 32, value_name = "N")]
    window: usize,

    /// Bytes of a document's value
    #[arg(long, default_value_t = 2_500, value_name = "BYTES")]
    value_bytes: usize,

    /// Bytes of a value where keys and metadata are to exceed the quota
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    small_value_bytes: usize,

    /// How long the loaders are watched after a rescue
    #[arg(long, value_name = "SECONDS")]
    served_seconds: Option<u64>,

    /// Repeats the choice of documents
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Where the run makes a directory for the nodes' data [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// What the nodes run [default: this binary]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,

    /// Keep the nodes' directories
    #[arg(long)]
    keep: bool,

    /// Loopback address of a single node; its ports are free ones
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "ADDR")]
    listen: IpAddr,

    /// Write timelines and findings to this file (JSON)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Presses as the flags say.
pub(super) fn run(args: &WedgeArgs) -> Result<(), Failure> {
    if !args.listen.is_loopback() {
        return Err(Failure("a node to be tortured listens on loopback only".to_owned()));
    }
    let quota_mb = args.quota_mb.unwrap_or(if args.short { 32 } else { 208 });
    let plan = Plan {
        seed: args.seed,
        quota_bytes: (quota_mb << 20) * u64::from(args.nodes),
        fill: args.fill.unwrap_or(if args.short { 4.0 } else { 10.0 }),
        value_bytes: args.value_bytes,
        small_value_bytes: args.small_value_bytes,
        loaders: args.loaders.max(1),
        window: args.window.max(1),
        nodes: args.nodes.into(),
        replicas: if args.nodes > 1 { args.replicas } else { 0 },
        served_seconds: args.served_seconds.unwrap_or(if args.short { 3 } else { 10 }).max(1),
        rescues: rescues(args)?,
    };
    let options = NodeOptions {
        binary: binary(args.binary.as_ref())?,
        listen: args.listen,
        quota_mb,
        disk_bytes_per_sec: args.disk_mb_per_sec * 1_000_000,
        disk_iops: args.disk_iops,
        eviction_policy: "valueOnly",
    };
    // A directory of this run's own, since it is removed in the end.
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = dir.join(format!("settee-torture-{}", std::process::id()));
    let mut last: Option<PathBuf> = None;
    let outcome = wedge::run(&plan, &mut |name| {
        // One node's data at a time: the scenario may be larger than what is free.
        if let Some(last) = last.take().filter(|_| !args.keep) {
            std::fs::remove_dir_all(last)?;
        }
        let own = dir.join(name);
        let target: Box<dyn Target> = if args.nodes == 1 {
            Box::new(LocalNode::start(&options, &own)?)
        } else {
            let mut options = cluster_of(args, &options);
            if let Some(rescue) = Rescue::named(name) {
                options.slowest_disk = wedge::slowly::slowest_disk(rescue);
                options.quota_mb = (plan.quota_of(rescue) / plan.nodes) >> 20;
                options.spares = usize::from(rescue == Rescue::AddNode);
            }
            Box::new(LocalCluster::start(&options, &own)?)
        };
        last = Some(own);
        Ok(target)
    });
    let outcome =
        outcome.map_err(|error| Failure(format!("{error}; the node's directory is in {}", dir.display())))?;
    if let Some(file) = &args.json {
        std::fs::write(file, format!("{}\n", outcome.report))
            .map_err(|error| Failure::doing(format_args!("cannot write {}", file.display()), error))?;
    }
    let failed = outcome.checks.failed();
    if failed > 0 {
        return Err(Failure(format!(
            "{failed} checks failed; the last node's directory is in {}",
            dir.display()
        )));
    }
    remove(&dir, args.keep)
}

/// What is tried: what was asked for, or all that the target can do.
fn rescues(args: &WedgeArgs) -> Result<Vec<Rescue>, Failure> {
    let possible = |rescue: &Rescue| args.nodes > 1 || !rescue.needs_cluster();
    if args.rescues.is_empty() {
        return Ok(Rescue::ALL.into_iter().filter(possible).collect());
    }
    match args.rescues.iter().find(|rescue| !possible(rescue)) {
        Some(rescue) => Err(Failure(format!("{} takes --nodes 2 or more", rescue.name()))),
        None => Ok(args.rescues.clone()),
    }
}

/// A cluster of such nodes, and one beside it that can be added.
fn cluster_of(args: &WedgeArgs, node: &NodeOptions) -> ClusterOptions {
    ClusterOptions {
        binary: node.binary.clone(),
        members: usize::from(args.nodes),
        spares: 1,
        bucket: BUCKET,
        replicas: args.replicas,
        quota_mb: node.quota_mb,
        eviction_policy: node.eviction_policy,
        disk_bytes_per_sec: node.disk_bytes_per_sec,
        disk_iops: node.disk_iops,
        slowest_disk: None,
        auto_failover: None,
        encrypted: false,
        namespaces: false,
    }
}

fn rescue(name: &str) -> Result<Rescue, String> {
    let names: Vec<&str> = Rescue::ALL.iter().map(|rescue| rescue.name()).collect();
    Rescue::named(name).ok_or_else(|| format!("there are {}", names.join(", ")))
}
