//! `settee quickstart`: a node with real documents in it, and how to connect. Runs the same server as `settee serve`, in
//! this process; the documents go through its sockets like anybody else's.

use std::{
    fs::{DirBuilder, OpenOptions},
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use clap::Args;
use client::Rest;
use daemon::{DiskOptions, InitBucket, InitOptions, Node, PortOptions, ServeOptions};

use super::{Failure, serve::LogLevel, songs_load};
use crate::songs::view;

/// The quick start's bucket and administrator; the README shows them.
const BUCKET: &str = "songs";
const USERNAME: &str = "admin";
/// Where the password that was made lies in the data directory, for the next start.
const PASSWORD_FILE: &str = "quickstart-password";
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

    /// The administrator's password [default: one that is made and printed]; the environment keeps it out of the process list.
    #[arg(long, env = "SETTEE_PASSWORD", hide_env_values = true)]
    password: Option<String>,

    /// Documents to load.
    #[arg(long, default_value_t = COUNT_DEFAULT, value_name = "N")]
    count: u64,

    /// Stop after the summary instead of serving on.
    #[arg(long)]
    exit: bool,
}

pub(crate) fn run(args: QuickstartArgs) -> Result<(), Failure> {
    if !args.listen.is_loopback() {
        // The bucket is open to clients that cannot authenticate.
        return Err(Failure(
            "the quick start listens on loopback only; use `settee serve` for a real address".into(),
        ));
    }
    let _log = super::serve::start_log(LogLevel::Warn, false, None)?;
    let password = match &args.password {
        Some(password) => password.clone(),
        None => kept_password(&args.data_dir)?,
    };
    let node = Node::start(options(&args, &password)).map_err(|error| Failure(error.told()))?;
    println!("{}", node.report());
    let kv = format!("{}:{}", args.listen, node.ports().kv);
    let rest = format!("{}:{}", args.listen, node.ports().mgmt);
    let summary = songs_load::load(&songs_load::Target {
        kv: kv.clone(),
        rest,
        bucket: BUCKET.into(),
        username: USERNAME.into(),
        password: password.clone(),
        count: args.count,
        seed: songs_load::SEED_DEFAULT,
    })?;
    println!("{summary}");
    let views = format!("{}:{}", args.listen, node.ports().capi);
    let electronic = view::publish(&Rest::new(views, Some((USERNAME, &password))), BUCKET)
        .map_err(|error| Failure::doing("the view of electronic songs was not made", error))?;
    println!("{}", how_to_connect(args.listen, &password));
    println!("{}", how_to_query(args.listen, &password, electronic));
    if !args.exit {
        println!("Serving. Stop with Ctrl-C; the documents stay in {}.", args.data_dir.display());
        node.wait_for_signal().map_err(|error| Failure::doing("cannot wait for a signal", error))?;
    }
    node.stop().map_err(|error| Failure(error.to_string()))
}

/// The password of an earlier start, or a new one that is kept for later ones.
fn kept_password(data_dir: &Path) -> Result<String, Failure> {
    let path = data_dir.join(PASSWORD_FILE);
    let failed = |error: io::Error| {
        Failure::doing(format_args!("cannot keep the password in {}", path.display()), error)
    };
    match std::fs::read_to_string(&path) {
        Ok(password) => return Ok(password.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    if data_dir.join("metadata").exists() {
        let text = "has been set up before; give its administrator's password (SETTEE_PASSWORD), or choose another --data-dir";
        return Err(Failure(format!("{} {text}", data_dir.display())));
    }
    let password = daemon::random_password().map_err(|error| Failure(error.to_string()))?;
    DirBuilder::new().recursive(true).mode(0o700).create(data_dir).map_err(failed)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    file.and_then(|mut file| writeln!(file, "{password}")).map_err(failed)?;
    Ok(password)
}

fn options(args: &QuickstartArgs, password: &str) -> ServeOptions {
    let machine_mb = daemon::machine_memory_bytes() / (1024 * 1024);
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
            password: password.into(),
            cluster_name: "quick start".into(),
            bucket: Some(InitBucket { name: BUCKET.into(), quota_mb, legacy_access: true }),
        }),
        functions: super::functions::program(),
    }
}

fn how_to_connect(listen: IpAddr, password: &str) -> String {
    format!(
        "
The web console: http://{listen}:8091/ui/ (log in as {USERNAME} with password {password})

Connect as {USERNAME} with password {password}, bucket {BUCKET}:

  Python   pip install couchbase
           cluster = Cluster('couchbase://{listen}', ClusterOptions(PasswordAuthenticator('{USERNAME}', '{password}')))
           songs = cluster.bucket('{BUCKET}').default_collection()

  Node.js  npm install couchbase
           const cluster = await couchbase.connect('couchbase://{listen}', {{ username: '{USERNAME}', password: '{password}' }})
           const songs = cluster.bucket('{BUCKET}').defaultCollection()

  Go       go get github.com/couchbase/gocb/v2
           cluster, err := gocb.Connect(\"couchbase://{listen}\", gocb.ClusterOptions{{Username: \"{USERNAME}\", Password: \"{password}\"}})
           songs := cluster.Bucket(\"{BUCKET}\").DefaultCollection()

  Java     com.couchbase.client:java-client
           Cluster cluster = Cluster.connect(\"{listen}\", \"{USERNAME}\", \"{password}\");
           Collection songs = cluster.bucket(\"{BUCKET}\").defaultCollection();

  memcached clients: {listen}:11211 (open without a password, loopback only; other buckets are closed to them)
  REST and metrics:  http://{listen}:8091/pools/default, http://{listen}:8091/metrics
"
    )
}

/// A query to paste, for the view that lies ready.
fn how_to_query(listen: IpAddr, password: &str, electronic: u64) -> String {
    let (design, view) = (view::DESIGN_DOCUMENT, view::VIEW);
    format!(
        "A map/reduce view has the {electronic} songs that are tagged \"electronic\":

  curl -su '{USERNAME}:{password}' 'http://{listen}:8092/{BUCKET}/_design/{design}/_view/{view}?reduce=false&limit=3'
  SETTEE_PASSWORD='{password}' settee view query {design}/{view} --reduce false --limit 3 -b {BUCKET} -u {USERNAME} --host {listen}
"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn every_quick_start_has_a_password_of_its_own_and_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        let password = kept_password(&one).unwrap();
        assert!(password.len() >= 20, "{password}");
        assert_ne!(password, kept_password(&other).unwrap());
        std::fs::create_dir(one.join("metadata")).unwrap();
        assert_eq!(password, kept_password(&one).unwrap());
        let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(one.clone()), mode(one.join(PASSWORD_FILE))), (0o700, 0o600));
        let printed = how_to_connect("127.0.0.1".parse().unwrap(), &password);
        let console = format!("http://127.0.0.1:8091/ui/ (log in as {USERNAME} with password {password})");
        assert!(printed.contains(&console), "{printed}");
    }

    #[test]
    fn nobody_guesses_the_password_of_what_was_set_up_without_a_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("metadata")).unwrap();
        let error = kept_password(dir.path()).unwrap_err().to_string();
        assert!(error.contains("SETTEE_PASSWORD"), "{error}");
    }
}
