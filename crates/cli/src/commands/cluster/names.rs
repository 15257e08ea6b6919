//! `settee cluster join` and `settee cluster rename`: what a node is asked itself, about its place in a cluster and its name there.

use clap::Args;
use client::{ClientError, Rest};

use super::{
    change::{self, standard},
    session::{Access, failed, find, with_port},
};
use crate::commands::Failure;

/// Have a new node ask a cluster to take it in; a rebalance then gives it data
#[derive(Args)]
#[command(after_help = "\
The other way round than `settee cluster add`: the node is asked, and the cluster calls it back. A node that nobody has
initialised can be asked without a login from its own machine only; one that has been is added by its cluster. Where nodes
speak TLS to one another, name the cluster's REST port for TLS, with its scheme (--through).

EXAMPLES
  settee cluster join 127.0.0.1:8091 --host 10.0.0.1:8091 -u admin
  settee cluster join 127.0.0.1 --name node4.example.com --host 10.0.0.1 --rebalance -u admin
  settee cluster join 127.0.0.1 --through https://10.0.0.1:18091 --host 10.0.0.1 -u admin")]
pub(crate) struct JoinArgs {
    /// REST address of the node that shall join
    #[arg(value_name = "HOST[:PORT]")]
    node: String,

    /// Name or address by which the cluster shall know it [default: the one it has]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Where the node finds the cluster [default: --host]
    #[arg(long, value_name = "[https://]HOST[:PORT]")]
    through: Option<String>,

    /// Rebalance at once, and wait for it
    #[arg(long)]
    rebalance: bool,

    #[command(flatten)]
    access: Access,
}

/// Change the name or address by which a node is known
#[derive(Args)]
#[command(after_help = "\
Other nodes and clients go by the new name from then on: it has to lead to the same node from wherever they are. Nothing
else changes, and no rebalance is needed.

EXAMPLES
  settee cluster rename 127.0.0.1:8091 node1.example.com -u admin")]
pub(crate) struct RenameArgs {
    /// The node
    #[arg(value_name = "NODE")]
    node: String,

    /// Its new name or address, without a port
    #[arg(value_name = "NAME")]
    new_name: String,

    #[command(flatten)]
    access: Access,
}

pub(super) fn join(args: &JoinArgs) -> Result<(), Failure> {
    let session = args.access.open()?;
    let node = with_port(&args.node);
    let cluster = standard(args.through.as_deref().unwrap_or(session.address()));
    let (user, password) = session.login();
    let mut form = vec![("hostname", cluster.as_str()), ("user", user), ("password", password)];
    form.push(("services", "kv"));
    form.extend(args.name.as_deref().map(|name| ("newNodeHostname", name)));
    let asked = Rest::new(node.as_str(), None).post("/node/controller/doJoinCluster", &form);
    asked.map_err(|error| not_joined(&node, error))?;
    println!("{node} has joined; it gets data with the next rebalance");
    if args.rebalance { change::start(&session, &[], false, true) } else { Ok(()) }
}

/// A node refuses strangers for what it is, not for the login to the cluster.
fn not_joined(node: &str, error: ClientError) -> Failure {
    let doing = format!("{node} did not join");
    match error {
        ClientError::Rest { code: 401, .. } => Failure::doing(
            doing,
            "it takes this while it is new, and from its own machine; otherwise `settee cluster add` adds it",
        ),
        error => failed(doing, error),
    }
}

pub(super) fn rename(args: &RenameArgs) -> Result<(), Failure> {
    let session = args.access.open()?;
    let names = [args.node.clone()];
    for node in find(&session.nodes()?, &names)? {
        let asked = Rest::new(node.hostname(), Some(session.login()));
        let renamed = asked.post("/node/controller/rename", &[("hostname", &args.new_name)]);
        renamed.map_err(|error| failed(format_args!("{} keeps its name", node.hostname()), error))?;
        println!("{} is called {} now", node.hostname(), args.new_name);
    }
    Ok(())
}
