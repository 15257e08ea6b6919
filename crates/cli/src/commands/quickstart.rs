//! `settee quickstart`: a node with real documents in it, and how to connect. Runs the same server as `settee serve`, in
//! this process; the documents go through its sockets like anybody else's.

use std::{net::IpAddr, path::PathBuf};

use clap::Args;
use server::runtime::{self, DiskOptions, InitBucket, InitOptions, Node, PortOptions, ServeOptions};

use super::{Failure, serve::LogLevel, songs_load};

/// The quick start's bucket and administrator; the README shows them.
const BUCKET: &str = "songs";
const USERNAME: &str = "admin";
const PASSWORD: &str = "settee";
/// A tenth of the full data set: half a minute on a laptop, and small enough for any machine.
const COUNT_DEFAULT: u64 = 94_334;
/// The bucket's memory quota; the full data set needs about 3 GiB to stay in memory.
const BUCKET_QUOTA_MB: u64 = 4096;

const EXAMPLES: &str = "\
EXAMPLES
  settee quickstart                       a tenth of the song data set
  settee quickstart --count 943347        all of it (2.2 GB of JSON)
  settee quickstart --listen 127.0.0.2    beside something else that uses the standard ports";

/// Starts a node with a bucket of song documents, says how to connect, and keeps serving.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QuickstartArgs {
    /// Directory for all state; created if missing.
    #[arg(long, default_value = "settee-data", value_name = "DIR")]
    data_dir: PathBuf,

    /// Loopback address to listen on.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDR")]
    listen: IpAddr,

    /// Documents to load.
    #[arg(long, default_value_t = COUNT_DEFAULT, value_name = "N")]
    count: u64,

    /// Stop after the summary instead of serving on.
    #[arg(long)]
    exit: bool,
}

pub(crate) fn run(args: QuickstartArgs) -> Result<(), Failure> {
    if !args.listen.is_loopback() {
        // The bucket is open to clients that cannot authenticate, and the password is in the README.
        return Err(Failure(
            "the quick start listens on loopback only; use `settee serve` for a real address".into(),
        ));
    }
    let _log = super::serve::start_log(LogLevel::Warn)?;
    let node = Node::start(options(&args)).map_err(|error| Failure(error.to_string()))?;
    println!("{}", node.report());
    let kv = format!("{}:{}", args.listen, node.ports().kv);
    let rest = format!("{}:{}", args.listen, node.ports().mgmt);
    let summary = songs_load::load(&songs_load::Target {
        kv: kv.clone(),
        rest,
        bucket: BUCKET.into(),
        username: USERNAME.into(),
        password: PASSWORD.into(),
        count: args.count,
        seed: songs_load::SEED_DEFAULT,
    })?;
    println!("{summary}");
    println!("{}", how_to_connect(args.listen));
    if !args.exit {
        println!("Serving. Stop with Ctrl-C; the documents stay in {}.", args.data_dir.display());
        node.wait_for_signal().map_err(|error| Failure::doing("cannot wait for a signal", error))?;
    }
    node.stop();
    Ok(())
}

fn options(args: &QuickstartArgs) -> ServeOptions {
    let machine_mb = runtime::machine_memory_bytes() / (1024 * 1024);
    let quota_mb = BUCKET_QUOTA_MB.min(machine_mb / 2);
    ServeOptions {
        data_dir: args.data_dir.clone(),
        listen: args.listen,
        ports: PortOptions::default(),
        ports_file: None,
        workers: super::serve::default_workers(),
        connections_max: super::serve::CONNECTIONS_MAX_DEFAULT,
        memory_quota_mb: quota_mb,
        disk: DiskOptions::default(),
        tls: None,
        init: Some(InitOptions {
            username: USERNAME.into(),
            password: PASSWORD.into(),
            cluster_name: "quick start".into(),
            bucket: Some(InitBucket { name: BUCKET.into(), quota_mb, legacy_access: true }),
        }),
    }
}

fn how_to_connect(listen: IpAddr) -> String {
    format!(
        "
Connect as {USERNAME} with password {PASSWORD}, bucket {BUCKET}:

  Python   pip install couchbase
           cluster = Cluster('couchbase://{listen}', ClusterOptions(PasswordAuthenticator('{USERNAME}', '{PASSWORD}')))
           songs = cluster.bucket('{BUCKET}').default_collection()

  Node.js  npm install couchbase
           const cluster = await couchbase.connect('couchbase://{listen}', {{ username: '{USERNAME}', password: '{PASSWORD}' }})
           const songs = cluster.bucket('{BUCKET}').defaultCollection()

  Go       go get github.com/couchbase/gocb/v2
           cluster, err := gocb.Connect(\"couchbase://{listen}\", gocb.ClusterOptions{{Username: \"{USERNAME}\", Password: \"{PASSWORD}\"}})
           songs := cluster.Bucket(\"{BUCKET}\").DefaultCollection()

  Java     com.couchbase.client:java-client
           Cluster cluster = Cluster.connect(\"{listen}\", \"{USERNAME}\", \"{PASSWORD}\");
           Collection songs = cluster.bucket(\"{BUCKET}\").defaultCollection();

  memcached clients: {listen}:11211 (open without a password, loopback only; other buckets are closed to them)
  REST and metrics:  http://{listen}:8091/pools/default, http://{listen}:8091/metrics
"
    )
}
