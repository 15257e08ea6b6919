//! `settee collect`: one archive of what support needs to know of a cluster. It has figures, settings and logs; documents, passwords and
//! keys of TLS are in none of what it asks for. User names are hashed unless somebody wants them.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args as ClapArgs;
use client::{Rest, rest::percent};
use collect::{Archive, OF_BUCKET, OF_CLUSTER, OF_NODE, Redaction, cleaned, file_name};

use super::{
    Failure,
    cluster::{Access, failed},
};

/// How long a node may take for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Collect what support needs to know into one archive
#[derive(ClapArgs)]
#[command(after_help = "\
The archive is a tar file with the answers of every node: its log, its figures, its health, and of the cluster its settings, buckets,
alerts, objectives and forecasts. contents.txt in it lists every file, and what could not be asked. No documents, passwords or private
keys are in it. Names of users that the cluster knows are replaced by <ud>HASH</ud>, the same for one user in the whole archive. So are
the addresses and the login by which alerts are mailed. --no-redaction leaves all of them. Names of users that are gone, or never were,
may stand in the log.

Names of buckets, collections and nodes, addresses of clients, and functions of views are not replaced.

EXAMPLES
  settee collect -u admin
  settee collect --file /tmp/support.tar -u admin
  tar -xOf settee-collect-1732694400.tar contents.txt")]
pub(crate) struct Args {
    /// The archive [default: settee-collect-TIME.tar]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Leave names of users as they are
    #[arg(long)]
    no_redaction: bool,

    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let session = args.access.open()?;
    let nodes = session.nodes()?;
    let unix_secs = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let redaction =
        if args.no_redaction { None } else { Some(redaction(&session.rest, args.access.login().0)?) };
    let path = args.file.clone().unwrap_or_else(|| format!("settee-collect-{unix_secs}.tar").into());
    let cannot = |error: io::Error| Failure::doing(format_args!("cannot write {}", path.display()), error);
    // Nobody else on this machine is to read it.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(cannot)?;
    let mut archive = Archive::new(io::BufWriter::new(file), unix_secs);
    let mut ask = |rest: &Rest, name: String, path: &str| -> Result<(), Failure> {
        match rest.within(PATIENCE).get(path) {
            Ok(body) => {
                let body = cleaned(body, redaction.as_ref());
                archive.add(&name, &body).map_err(cannot)?;
                archive.note(name, format!("{} bytes", body.len()), path);
            }
            Err(error) => {
                let why = failed("not there", error).to_string();
                let why = redaction.as_ref().map_or(why.clone(), |redaction| redaction.apply(&why));
                archive.note(name, why, path);
            }
        }
        Ok(())
    };
    for (name, path) in OF_CLUSTER {
        ask(&session.rest, format!("cluster/{name}"), path)?;
    }
    let buckets = session.get("/pools/default/buckets?skipMap=true")?;
    for bucket in buckets.as_array().into_iter().flatten().filter_map(|bucket| bucket["name"].as_str()) {
        for (name, path) in OF_BUCKET {
            ask(
                &session.rest,
                format!("bucket-{}/{name}", file_name(bucket)),
                &path.replace("{}", &percent(bucket)),
            )?;
        }
    }
    for node in &nodes {
        for (name, path) in OF_NODE {
            ask(
                &args.access.rest(node.hostname()),
                format!("node-{}/{name}", file_name(node.hostname())),
                path,
            )?;
        }
    }
    let (files, missing) = archive.finish(redaction.is_some()).map_err(cannot)?;
    println!("{}: {files} files of {} nodes", path.display(), nodes.len());
    if missing > 0 {
        println!("{missing} things could not be asked: contents.txt in it says which and why");
    }
    Ok(())
}

/// What stands for the users that the cluster shows, and the one that asks.
fn redaction(rest: &Rest, own: &str) -> Result<Redaction, Failure> {
    let mut salt = [0; 8];
    getrandom::fill(&mut salt).map_err(|error| Failure::doing("the system has no randomness", error))?;
    let users = rest.get_json("/settings/rbac/users").map_err(|error| {
        failed("cannot read the users whose names are to be replaced (--no-redaction leaves them)", error)
    })?;
    let listed = users.as_array().into_iter().flatten().filter_map(|user| user["id"].as_str());
    Ok(Redaction::with(listed.chain([own]), salt.to_vec()))
}
