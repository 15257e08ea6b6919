//! The commands that change which nodes a cluster has and what they hold: add, remove, rebalance, stop, fail over, recover.

use clap::Args;

use super::{
    session::{Access, Node, Session, find, otp_list, with_port},
    watch,
};
use crate::commands::Failure;

/// Add nodes; a rebalance then gives them data
#[derive(Args)]
#[command(after_help = "\
A new node that nobody has initialised can be added without a login from its own machine only; one on another machine
is initialised first (`settee init`), and its login given here. Whatever it held is dropped. Where nodes speak TLS to one
another, name the node's REST port for TLS, with its scheme.

EXAMPLES
  settee cluster add 127.0.0.2 127.0.0.3 -u admin
  SETTEE_NODE_PASSWORD=secret settee cluster add 10.0.0.4:8091 --group \"rack 2\" --node-username admin -u admin
  settee cluster add 10.0.0.4 --rebalance -u admin
  settee cluster add https://10.0.0.4:18091 -u admin")]
pub(crate) struct AddArgs {
    /// The nodes' REST addresses
    #[arg(required = true, value_name = "[https://]HOST[:PORT]")]
    nodes: Vec<String>,

    /// Server group to put them into [default: the first]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// Administrator of the nodes, as far as they have one [default: --username]
    #[arg(long, value_name = "NAME")]
    node_username: Option<String>,

    /// Password of --node-username [default: --password]
    #[arg(long, env = "SETTEE_NODE_PASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    node_password: Option<String>,

    /// Rebalance at once, and wait for it
    #[arg(long)]
    rebalance: bool,

    #[command(flatten)]
    access: Access,
}

/// Rebalance without these nodes, and wait for it
#[derive(Args)]
#[command(after_help = "\
Active nodes hand over what they hold first, so nothing is lost; nodes that were added or failed over just go.

EXAMPLES
  settee cluster remove 10.0.0.4:8091 -u admin")]
pub(crate) struct RemoveArgs {
    /// The nodes to remove
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,

    #[command(flatten)]
    how: RebalanceOptions,

    #[command(flatten)]
    access: Access,
}

/// Spread the data over the nodes there shall be, and wait for it
#[derive(Args)]
#[command(after_help = "\
A rebalance goes on by itself: through the end of this command (Ctrl-C leaves it running), through restarts of nodes,
through a change of the node that leads. `settee cluster stop` ends it; what has moved stays where it is.

Where the data would not fit the nodes after the change, the rebalance is refused with the arithmetic; --force starts it
all the same.

EXAMPLES
  settee cluster rebalance -u admin
  settee cluster rebalance --remove 10.0.0.4,10.0.0.5 -u admin")]
pub(crate) struct RebalanceArgs {
    /// Nodes that shall be gone afterwards
    #[arg(long, value_delimiter = ',', value_name = "NODES")]
    remove: Vec<String>,

    #[command(flatten)]
    how: RebalanceOptions,

    #[command(flatten)]
    access: Access,
}

/// How a rebalance is started.
#[derive(Args)]
struct RebalanceOptions {
    /// Even where the nodes there shall be are too small
    #[arg(long)]
    force: bool,

    /// Start it and return
    #[arg(long)]
    no_wait: bool,
}

/// Stop a rebalance or a graceful failover
#[derive(Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    access: Access,
}

/// Take nodes out of service: others become active for what they hold
#[derive(Args)]
#[command(after_help = "\
Graceful (the default): the node hands over while it runs; nothing is lost, and clients do not wait. It needs a replica of every
bucket elsewhere, and goes on once those have caught up.
Where the nodes that are left would be too small for all copies it is refused with the arithmetic. --force starts it all the same, as for a
node that shall come back.
--hard: for nodes that are dead. Copies elsewhere become active at once; writes that had not reached one are lost. Where
the nodes that are left could not agree on it, it is refused, unless --unsafe says that the others are gone for good.

EXAMPLES
  settee cluster failover 10.0.0.4:8091 -u admin
  settee cluster failover --hard 10.0.0.4 -u admin")]
pub(crate) struct FailoverArgs {
    /// The nodes to fail over
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,

    /// At once, without the node's help
    #[arg(long)]
    hard: bool,

    /// Even though a majority of nodes is not there, or vBuckets would be lost
    #[arg(long, requires = "hard")]
    r#unsafe: bool,

    /// Even where the nodes that are left are too small for all copies. A hard failover never asks
    #[arg(long, conflicts_with = "hard")]
    force: bool,

    /// Start a graceful failover and return
    #[arg(long)]
    no_wait: bool,

    #[command(flatten)]
    access: Access,
}

/// Let nodes that were failed over come back with the next rebalance
#[derive(Args)]
#[command(after_help = "\
Delta recovery keeps what the node holds and brings it up to date; full recovery starts it empty.

EXAMPLES
  settee cluster recover 10.0.0.4 -u admin
  settee cluster recover 10.0.0.4 --full --rebalance -u admin")]
pub(crate) struct RecoverArgs {
    /// The nodes
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,

    /// Start them empty [default: keep what they hold]
    #[arg(long)]
    full: bool,

    /// As without --full, said explicitly
    #[arg(long, conflicts_with = "full")]
    delta: bool,

    /// Rebalance at once, and wait for it
    #[arg(long)]
    rebalance: bool,

    #[command(flatten)]
    access: Access,
}

pub(super) fn add(args: &AddArgs) -> Result<(), Failure> {
    let session = args.access.open()?;
    let (username, password) = session.login();
    let username = args.node_username.as_deref().unwrap_or(username);
    let password = args.node_password.as_deref().unwrap_or(password);
    for node in &args.nodes {
        add_one(&session, node, (username, password), args.group.as_deref())?;
    }
    if args.rebalance { start(&session, &[], false, true) } else { Ok(()) }
}

/// Adds one node, to a group if one is named.
pub(super) fn add_one(
    session: &Session,
    node: &str,
    login: (&str, &str),
    group: Option<&str>,
) -> Result<(), Failure> {
    let path = match group {
        None => "/controller/addNode".to_owned(),
        Some(name) => super::groups::find(session, name)?.add_node_path,
    };
    let hostname = standard(node);
    let address = hostname.rsplit("//").next().unwrap_or(node);
    let form =
        [("hostname", hostname.as_str()), ("user", login.0), ("password", login.1), ("services", "kv")];
    session.post(&path, &form, &format!("{address} was not added"))?;
    println!("{address} is added; it gets data with the next rebalance");
    Ok(())
}

/// A REST address with its scheme, and with the standard port where none is given.
pub(super) fn standard(node: &str) -> String {
    match node.strip_prefix("https://") {
        Some(address) => format!("https://{}", address.trim_end_matches('/')),
        None => format!("http://{}", with_port(node)),
    }
}

pub(super) fn remove(args: &RemoveArgs) -> Result<(), Failure> {
    start(&args.access.open()?, &args.nodes, args.how.force, !args.how.no_wait)
}

pub(super) fn rebalance(args: &RebalanceArgs) -> Result<(), Failure> {
    start(&args.access.open()?, &args.remove, args.how.force, !args.how.no_wait)
}

/// Starts a rebalance without `remove`, and waits for its end if asked to.
pub(super) fn start(session: &Session, remove: &[String], force: bool, wait: bool) -> Result<(), Failure> {
    begin(session, remove, force)?;
    if wait {
        watch::until_done(session, "rebalance", &|| false)
    } else {
        println!("the rebalance runs; `settee cluster status` shows how far it is");
        Ok(())
    }
}

/// Starts a rebalance without `remove`.
pub(super) fn begin(session: &Session, remove: &[String], force: bool) -> Result<(), Failure> {
    let nodes = session.nodes()?;
    let (known, ejected) = (otp_list(&nodes), otp_list(&find(&nodes, remove)?));
    let force = if force { "true" } else { "false" };
    let form = [
        ("knownNodes", known.as_str()),
        ("ejectedNodes", ejected.as_str()),
        ("allowUnderProvisioned", force),
    ];
    session.post("/controller/rebalance", &form, "the rebalance was not started").map(|_| ())
}

pub(super) fn stop(args: &StopArgs) -> Result<(), Failure> {
    let session = args.access.open()?;
    session.post("/controller/stopRebalance", &[], "the rebalance was not stopped")?;
    println!("stopped; what has moved stays where it is");
    Ok(())
}

pub(super) fn failover(args: &FailoverArgs) -> Result<(), Failure> {
    let session = args.access.open()?;
    let nodes = find(&session.nodes()?, &args.nodes)?;
    let mut form: Vec<(&str, &str)> = nodes.iter().map(|node| ("otpNode", node.otp())).collect();
    if args.r#unsafe {
        form.push(("allowUnsafe", "true"));
    }
    if args.force {
        form.push(("allowUnderProvisioned", "true"));
    }
    let path = if args.hard { "/controller/failOver" } else { "/controller/startGracefulFailover" };
    session.post(path, &form, "nothing was failed over")?;
    let names = nodes.iter().map(Node::hostname).collect::<Vec<_>>().join(", ");
    match (args.hard, args.no_wait) {
        (true, _) => println!("failed over: {names}"),
        (false, true) => println!("{names}: the graceful failover runs"),
        (false, false) => watch::until_done(&session, "graceful failover", &|| false)?,
    }
    Ok(())
}

pub(super) fn recover(args: &RecoverArgs) -> Result<(), Failure> {
    let session = args.access.open()?;
    let kind = if args.full { "full" } else { "delta" };
    for node in find(&session.nodes()?, &args.nodes)? {
        let form = [("otpNode", node.otp()), ("recoveryType", kind)];
        let doing = format!("{} stays as it is", node.hostname());
        session.post("/controller/setRecoveryType", &form, &doing)?;
        println!("{} comes back with the next rebalance ({kind} recovery)", node.hostname());
    }
    if args.rebalance { start(&session, &[], false, true) } else { Ok(()) }
}
