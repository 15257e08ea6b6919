//! `settee cluster status`: nodes and buckets in two tables, and what is going on.

use clap::Args as ClapArgs;
use serde_json::Value;

use super::{
    session::{Access, Node, nodes_of},
    watch,
};
use crate::{commands::Failure, table::table};

/// Show nodes, buckets, and what is going on
#[derive(ClapArgs)]
#[command(after_help = "\
STATUS is healthy, warmup (a bucket is not ready there yet) or unhealthy (the node is not heard of). MEMBERSHIP is
active, inactiveAdded (a rebalance will give it data) or inactiveFailed (failed over; --delta or full recovery, then a
rebalance, brings it back). A star marks the node that answered.")]
pub(crate) struct Args {
    #[command(flatten)]
    access: Access,

    /// Print REST's own answers as JSON: {"pool": ..., "buckets": ..., "tasks": ...}
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let session = args.access.open()?;
    let (pool, buckets) = (session.pool()?, session.get("/pools/default/buckets?skipMap=true")?);
    let tasks = session.get("/pools/default/tasks")?;
    if args.json {
        println!("{}", serde_json::json!({ "pool": pool, "buckets": buckets, "tasks": tasks }));
        return Ok(());
    }
    println!("{}\n", headline(&pool));
    print!("{}", table(&NODE_COLUMNS, nodes_of(&pool).iter().map(node_row).collect()));
    let buckets = buckets.as_array().map(Vec::as_slice).unwrap_or_default();
    if !buckets.is_empty() {
        println!();
        print!("{}", table(&BUCKET_COLUMNS, buckets.iter().map(bucket_row).collect()));
    }
    for line in watch::news(&tasks).into_iter().chain(alerts(&pool)) {
        println!("\n{line}");
    }
    Ok(())
}

fn headline(pool: &Value) -> String {
    let nodes = nodes_of(pool).len();
    let name = pool["clusterName"].as_str().filter(|name| !name.is_empty()).unwrap_or("(no name)");
    let balance = if pool["balanced"] == true { "balanced" } else { "needs a rebalance" };
    // A node of an older version does not say it.
    let led = if pool["settee"]["hasLeader"] == false { ", no node leads" } else { "" };
    format!("cluster {name}: {nodes} node{}, {balance}{led}", if nodes == 1 { "" } else { "s" })
}

fn alerts(pool: &Value) -> Vec<String> {
    let alerts = pool["alerts"].as_array().into_iter().flatten();
    alerts.filter_map(|alert| alert["msg"].as_str()).map(str::to_owned).collect()
}

const NODE_COLUMNS: [&str; 8] =
    ["NODE", "STATUS", "MEMBERSHIP", "GROUP", "DOCUMENTS", "REPLICAS", "MEMORY", "OPS/S"];

fn node_row(node: &Node) -> Vec<String> {
    let stats = &node.0["interestingStats"];
    let star = if node.0["thisNode"] == true { " *" } else { "" };
    let mut membership = node.text("clusterMembership").to_owned();
    let recovery = node.text("recoveryType");
    if !["", "none"].contains(&recovery) {
        membership += &format!(" ({recovery} recovery)");
    }
    vec![
        format!("{}{star}", node.hostname()),
        node.text("status").into(),
        membership,
        node.text("serverGroup").into(),
        number(&stats["curr_items"]),
        number(&stats["vb_replica_curr_items"]),
        bytes(&stats["mem_used"]),
        number(&stats["ops"]),
    ]
}

const BUCKET_COLUMNS: [&str; 7] = ["BUCKET", "TYPE", "REPLICAS", "DOCUMENTS", "MEMORY", "DISK", "OPS/S"];

fn bucket_row(bucket: &Value) -> Vec<String> {
    let stats = &bucket["basicStats"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    vec![
        text(&bucket["name"]),
        text(&bucket["bucketType"]),
        number(&bucket["replicaNumber"]),
        number(&stats["itemCount"]),
        format!("{} of {}", bytes(&stats["memUsed"]), bytes(&bucket["quota"]["ram"])),
        bytes(&stats["diskUsed"]),
        number(&stats["opsPerSec"]),
    ]
}

fn number(value: &Value) -> String {
    match (value.as_u64(), value.as_f64()) {
        (Some(whole), _) => whole.to_string(),
        (None, Some(fraction)) => format!("{fraction:.0}"),
        (None, None) => "-".into(),
    }
}

fn bytes(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".into(), |bytes| format!("{:.1} MiB", bytes / (1024.0 * 1024.0)))
}
