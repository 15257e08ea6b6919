//! `settee cluster`: forms, changes and watches a cluster over REST, through any of its nodes. Everything here could be
//! done with `couchbase-cli` as well; these commands wait for what they start and say how far it is.

mod change;
mod encryption;
mod groups;
mod local;
mod names;
mod session;
mod status;
mod watch;

use clap::Subcommand;

use super::Failure;
pub(in crate::commands) use local::{Forming, LocalCluster};
pub(in crate::commands) use session::{Access, Session, Unshown, failed};

const EXAMPLES: &str = "\
EXAMPLES
  A cluster of three nodes on this machine, for development:
      settee cluster local 3
  Its nodes and how they are:
      SETTEE_PASSWORD=secret settee cluster status -u admin
  Two more nodes, then spread the data over all:
      settee cluster add 10.0.0.4:8091 10.0.0.5:8091 -u admin
      settee cluster rebalance -u admin
  The same, asked of the new node, on its own machine:
      settee cluster join 127.0.0.1:8091 --host 10.0.0.1:8091 -u admin
  One in, one out, in a single rebalance:
      settee cluster add 10.0.0.6:8091 -u admin
      settee cluster remove 10.0.0.4:8091 -u admin
  A node that died, and is back:
      settee cluster failover --hard 10.0.0.5:8091 -u admin
      settee cluster recover 10.0.0.5:8091 --delta -u admin

Nodes are named as `settee cluster status` shows them, HOST or HOST:PORT. Every command may be sent to any node
(--host); the nodes agree among themselves who decides.";

/// Form, change and watch a cluster
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Command {
    Status(status::Args),
    Add(change::AddArgs),
    Join(names::JoinArgs),
    Remove(change::RemoveArgs),
    Rebalance(change::RebalanceArgs),
    Stop(change::StopArgs),
    Failover(change::FailoverArgs),
    Recover(change::RecoverArgs),
    Rename(names::RenameArgs),
    Groups(groups::Args),
    Encryption(encryption::Args),
    Local(local::Args),
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Status(args) => status::run(&args),
        Command::Add(args) => change::add(&args),
        Command::Join(args) => names::join(&args),
        Command::Remove(args) => change::remove(&args),
        Command::Rebalance(args) => change::rebalance(&args),
        Command::Stop(args) => change::stop(&args),
        Command::Failover(args) => change::failover(&args),
        Command::Recover(args) => change::recover(&args),
        Command::Rename(args) => names::rename(&args),
        Command::Groups(args) => groups::run(&args),
        Command::Encryption(args) => encryption::run(&args),
        Command::Local(args) => local::run(&args),
    }
}
