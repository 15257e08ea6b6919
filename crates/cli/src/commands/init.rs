//! `settee init`: makes a running, new node ready for use over REST, as `couchbase-cli cluster-init` would.

use clap::Args;
use client::{ClientError, Rest};

use super::{Failure, cluster::failed};

const EXAMPLES: &str = "\
EXAMPLES
  SETTEE_PASSWORD=secret settee init --username admin
  SETTEE_PASSWORD=secret settee init --host 127.0.0.2:8091 --username admin --bucket songs --bucket-quota-mb 1024";

/// Initialises a running node: administrator, memory quota, and a first bucket if asked for.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// REST address of the node.
    #[arg(long, default_value = "127.0.0.1:8091", value_name = "HOST:PORT")]
    host: String,

    /// Administrator to create.
    #[arg(long, short)]
    username: String,

    /// The administrator's password; the environment keeps it out of the process list.
    #[arg(long, short, env = "SETTEE_PASSWORD", hide_env_values = true)]
    password: String,

    /// Name of the cluster.
    #[arg(long, default_value = "")]
    cluster_name: String,

    /// Memory for all buckets together, in MiB [default: what the node was started with].
    #[arg(long, value_name = "MIB")]
    memory_quota_mb: Option<u64>,

    /// Create this bucket.
    #[arg(long)]
    bucket: Option<String>,

    /// The bucket's memory quota in MiB.
    #[arg(long, default_value_t = 256, value_name = "MIB", requires = "bucket")]
    bucket_quota_mb: u64,
}

pub(crate) fn run(args: InitArgs) -> Result<(), Failure> {
    let quota = args.memory_quota_mb.map(|quota| quota.to_string());
    let mut form = vec![
        ("username", args.username.as_str()),
        ("password", &args.password),
        ("services", "kv"),
        ("port", "SAME"),
    ];
    form.extend(Some(("clusterName", args.cluster_name.as_str())).filter(|(_, name)| !name.is_empty()));
    form.extend(quota.as_deref().map(|quota| ("memoryQuota", quota)));
    Rest::new(args.host.as_str(), None)
        .post("/clusterInit", &form)
        .map_err(|error| not_initialised(&args.host, error))?;
    println!("{} is initialised; administrator: {}", args.host, args.username);

    if let Some(bucket) = &args.bucket {
        let quota = args.bucket_quota_mb.to_string();
        Rest::new(args.host.as_str(), Some((&args.username, &args.password)))
            .post(
                "/pools/default/buckets",
                &[("name", bucket), ("ramQuotaMB", &quota), ("replicaNumber", "0")],
            )
            .map_err(|error| failed(format_args!("bucket {bucket} was not created"), error))?;
        println!("bucket {bucket} is ready ({quota} MiB)");
    }
    Ok(())
}

/// A node that asks for a login is not new: nobody has given it a wrong one.
fn not_initialised(host: &str, error: ClientError) -> Failure {
    let doing = format!("{host} was not initialised");
    match error {
        ClientError::Rest { code: 401, .. } => Failure::doing(doing, "it has an administrator already"),
        error => failed(doing, error),
    }
}
