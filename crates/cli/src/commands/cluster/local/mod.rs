//! `settee cluster local N`: a cluster on this machine with one command, for development and trying things out. The nodes
//! are children of this process: real `settee serve` processes with data directories of their own. Started again on the
//! same directory, they are the same cluster.

mod child;
mod layout;
mod signals;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args as ClapArgs;
use client::Rest;

use super::{
    change,
    session::{Access, Session, failed},
    watch,
};
use crate::commands::Failure;
use child::Child;
use layout::{Layout, Place};

/// Nodes that one machine is asked to run at most.
const NODES_MAX: u16 = 50;
/// How long a bucket may take until every node serves it.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Between two looks at what may have changed.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Run a cluster of N nodes on this machine, for development
#[derive(ClapArgs)]
#[command(after_help = "\
The nodes get the loopback addresses 127.0.0.1, 127.0.0.2, ... and on each the standard ports (8091, 11210, 11211, ...),
so that every client, however old, can use them. Where those are taken, or the system has only one loopback address
(macOS), all nodes listen on 127.0.0.1 with ports of their own, from 9000 (REST) and 12000 (documents) on; --one-address
asks for that.

Ctrl-C stops the nodes cleanly. With --data-dir the next start on it finds the same cluster with its data; without it
the data is in a temporary directory that goes when the command ends.

EXAMPLES
  settee cluster local 3
  settee cluster local 4 --data-dir ./cluster --bucket songs --replicas 2
  settee cluster local 2 --no-bucket --one-address")]
pub(crate) struct Args {
    /// Nodes
    #[arg(default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(NODES_MAX)))]
    nodes: u16,

    /// Directory for the nodes' data and logs; kept [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Administrator of the cluster
    #[arg(long, default_value = "Administrator", value_name = "NAME")]
    username: String,

    /// The administrator's password
    #[arg(long, env = "SETTEE_PASSWORD", default_value = "password", hide_env_values = true)]
    password: String,

    /// Create this bucket
    #[arg(long, default_value = "default", value_name = "NAME")]
    bucket: String,

    /// Create no bucket
    #[arg(long, conflicts_with = "bucket")]
    no_bucket: bool,

    /// The bucket's memory quota on each node, in MiB
    #[arg(long, default_value_t = 256, value_name = "MIB")]
    bucket_quota_mb: u64,

    /// The bucket's replicas [default: 1, or 0 with a single node]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=3))]
    replicas: Option<u16>,

    /// Memory for all buckets together on each node, in MiB
    #[arg(long, default_value_t = 512, value_name = "MIB")]
    memory_quota_mb: u64,

    /// All nodes on 127.0.0.1, with ports of their own
    #[arg(long)]
    one_address: bool,
}

/// A cluster that another command needs for a while.
pub(in crate::commands) struct Forming<'a> {
    pub(in crate::commands) nodes: u16,
    /// The administrator.
    pub(in crate::commands) login: (&'a str, &'a str),
    pub(in crate::commands) bucket: &'a str,
    /// The bucket's quota on each node, which is all that a node gives to buckets.
    pub(in crate::commands) bucket_quota_mb: u64,
    /// All nodes on 127.0.0.1, with ports of their own.
    pub(in crate::commands) one_address: bool,
}

/// A cluster on this machine with an empty bucket. Its nodes end, and its data go, when this is dropped.
pub(in crate::commands) struct LocalCluster {
    children: Vec<Child>,
    layout: Layout,
    stop: signals::Stop,
    // Removed once the nodes have ended.
    directory: Directory,
}

impl LocalCluster {
    pub(in crate::commands) fn start(forming: &Forming<'_>) -> Result<Self, Failure> {
        let args = Args {
            nodes: forming.nodes,
            data_dir: None,
            username: forming.login.0.into(),
            password: forming.login.1.into(),
            bucket: forming.bucket.into(),
            no_bucket: false,
            bucket_quota_mb: forming.bucket_quota_mb,
            replicas: None,
            memory_quota_mb: forming.bucket_quota_mb,
            one_address: forming.one_address,
        };
        let stop =
            signals::Stop::watch().map_err(|error| Failure::doing("cannot watch for Ctrl-C", error))?;
        let directory = Directory::of(&args)?;
        let layout = Layout::find(directory.path(), args.nodes, args.one_address)?;
        let mut cluster = Self { children: Vec::new(), layout, stop, directory };
        let Self { children, layout, stop, directory } = &mut cluster;
        begin(&args, directory.path(), layout, children, stop)?;
        if cluster.is_to_stop() { Err(Failure("stopped".into())) } else { Ok(cluster) }
    }

    /// Whether the user wants the command to end.
    pub(in crate::commands) fn is_to_stop(&self) -> bool {
        self.stop.is_wanted()
    }

    /// The first node's port of REST.
    pub(in crate::commands) fn rest(&self) -> String {
        self.layout.places.first().map(Place::rest).unwrap_or_default()
    }

    /// Its port of documents.
    pub(in crate::commands) fn kv(&self) -> String {
        self.layout.places.first().map(Place::kv).unwrap_or_default()
    }

    /// Its port of views.
    pub(in crate::commands) fn views(&self) -> String {
        self.layout.places.first().map(Place::views).unwrap_or_default()
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        end(&mut self.children);
    }
}

/// Stops nodes cleanly.
fn end(children: &mut [Child]) {
    for child in children.iter() {
        child.ask_to_stop();
    }
    for child in children {
        child.wait();
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let stop = signals::Stop::watch().map_err(|error| Failure::doing("cannot watch for Ctrl-C", error))?;
    let directory = Directory::of(args)?;
    let layout = Layout::find(directory.path(), args.nodes, args.one_address)?;
    let mut children = Vec::new();
    let outcome = serve(args, directory.path(), &layout, &mut children, &stop);
    end(&mut children);
    outcome
}

/// Starts the nodes, makes them a cluster where they are none yet, and waits for the end.
fn serve(
    args: &Args,
    directory: &Path,
    layout: &Layout,
    children: &mut Vec<Child>,
    stop: &signals::Stop,
) -> Result<(), Failure> {
    begin(args, directory, layout, children, stop)?;
    if stop.is_wanted() {
        return Ok(());
    }
    println!("{}", how_to_connect(args, &layout.places, directory));
    watch_over(children, stop);
    Ok(())
}

/// Starts the nodes, and makes them a cluster where they are none yet.
fn begin(
    args: &Args,
    directory: &Path,
    layout: &Layout,
    children: &mut Vec<Child>,
    stop: &signals::Stop,
) -> Result<(), Failure> {
    for (place, number) in layout.places.iter().zip(1_u16..) {
        children.push(Child::start(place, &directory.join(format!("node-{number}")), args.memory_quota_mb)?);
    }
    for child in children.iter_mut() {
        child.wait_until_ready(stop)?;
    }
    match layout.places.first() {
        Some(first) if !stop.is_wanted() => form(args, first, &layout.places, stop),
        _ => Ok(()),
    }
}

/// Says when a node ends by itself; the others serve on without it.
fn watch_over(children: &mut [Child], stop: &signals::Stop) {
    while !stop.is_wanted() {
        for child in children.iter_mut() {
            if let Some(how) = child.has_ended() {
                eprintln!("settee: {} ended ({how}); its log is {}", child.address(), child.log().display());
            }
        }
        stop.wait(LOOK_EVERY);
    }
    eprintln!("stopping");
}

/// Makes the nodes a cluster, unless they are one already.
fn form(args: &Args, first: &Place, places: &[Place], stop: &signals::Stop) -> Result<(), Failure> {
    if !is_initialised(first)? {
        initialise(args, first)?;
    }
    let session = Access::to(first.rest(), &args.username, &args.password).open()?;
    let known = session.nodes()?;
    let missing: Vec<&Place> =
        places.iter().filter(|place| known.iter().all(|node| node.hostname() != place.rest())).collect();
    for place in &missing {
        change::add_one(&session, &place.rest(), session.login(), None)?;
    }
    if !missing.is_empty() {
        change::begin(&session, &[], false)?;
        watch::until_done(&session, "rebalance", &|| stop.is_wanted())?;
    }
    if !args.no_bucket {
        ensure_bucket(args, &session, places.len())?;
        wait_until_healthy(&session, &args.bucket, stop)?;
    }
    Ok(())
}

fn is_initialised(place: &Place) -> Result<bool, Failure> {
    let answer = Rest::new(place.rest(), None).request("GET", "/pools/default", &[]);
    // A request without a password gets 404 before the cluster is formed, 401 after.
    Ok(answer.map_err(|error| failed(format_args!("{} does not answer", place.rest()), error))?.code == 401)
}

fn initialise(args: &Args, place: &Place) -> Result<(), Failure> {
    let quota = args.memory_quota_mb.to_string();
    let host = place.ip.to_string();
    let form = [
        ("hostname", host.as_str()),
        ("username", &args.username),
        ("password", &args.password),
        ("services", "kv"),
        ("port", "SAME"),
        ("clusterName", "local"),
        ("memoryQuota", &quota),
    ];
    let doing = format!("{} was not initialised", place.rest());
    Rest::new(place.rest(), None).post("/clusterInit", &form).map_err(|error| failed(doing, error))?;
    Ok(())
}

fn ensure_bucket(args: &Args, session: &Session, nodes: usize) -> Result<(), Failure> {
    let there = session.get("/pools/default/buckets?skipMap=true")?;
    if there.as_array().into_iter().flatten().any(|bucket| bucket["name"] == args.bucket.as_str()) {
        return Ok(());
    }
    let replicas = args.replicas.unwrap_or(u16::from(nodes > 1)).to_string();
    let quota = args.bucket_quota_mb.to_string();
    let form = [
        ("name", args.bucket.as_str()),
        ("ramQuotaMB", &quota),
        ("replicaNumber", &replicas),
        ("flushEnabled", "1"),
        ("legacyPasswordless", "true"),
        ("legacyMemcachedPort", "true"),
    ];
    session.post("/pools/default/buckets", &form, &format!("bucket {} was not created", args.bucket))?;
    Ok(())
}

fn wait_until_healthy(session: &Session, bucket: &str, stop: &signals::Stop) -> Result<(), Failure> {
    let began = Instant::now();
    while !stop.is_wanted() {
        let bucket = session.get(&format!("/pools/default/buckets/{}", client::rest::percent(bucket)))?;
        let mut nodes = bucket["nodes"].as_array().into_iter().flatten();
        if nodes.all(|node| node["status"] == "healthy") {
            return Ok(());
        }
        if began.elapsed() > READY_WITHIN {
            return Err(Failure(format!(
                "not every node serves the bucket after {} s",
                READY_WITHIN.as_secs()
            )));
        }
        stop.wait(LOOK_EVERY);
    }
    Ok(())
}

fn how_to_connect(args: &Args, places: &[Place], directory: &Path) -> String {
    let list = |port: fn(&Place) -> String| places.iter().map(port).collect::<Vec<_>>().join(",");
    let (username, password) = (&args.username, &args.password);
    let first = places.first().map(Place::rest).unwrap_or_default();
    let bucket = if args.no_bucket {
        "none".to_owned()
    } else {
        format!("{} (also on the plain memcached ports: {})", args.bucket, list(Place::memcached))
    };
    format!(
        "
{} nodes are up.
  REST        http://{first}/pools/default   {username} / {password}
  connect to  couchbase://{}
  bucket      {bucket}
  look at it  SETTEE_PASSWORD={password} settee cluster status --host {first} --username {username}
  data, logs  {}
Ctrl-C stops them.",
        places.len(),
        list(Place::kv),
        directory.display(),
    )
}

/// Where the nodes' directories are.
enum Directory {
    /// The user's: it stays.
    Kept(PathBuf),
    /// Removed when dropped.
    Temporary(PathBuf),
}

impl Directory {
    fn of(args: &Args) -> Result<Self, Failure> {
        let directory = match &args.data_dir {
            Some(path) => Self::Kept(path.clone()),
            None => {
                Self::Temporary(std::env::temp_dir().join(format!("settee-cluster-{}", std::process::id())))
            }
        };
        let path = directory.path();
        let made = std::fs::create_dir_all(path);
        made.map_err(|error| Failure::doing(format_args!("cannot make {}", path.display()), error))?;
        Ok(directory)
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) | Self::Temporary(path) => path,
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Self::Temporary(path) = self
            && let Err(error) = std::fs::remove_dir_all(&path)
        {
            eprintln!("settee: {} stays: {error}", path.display());
        }
    }
}
