//! `settee cluster groups`: which nodes share a rack, a room, a switch; copies of a document are put into different groups.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::Value;

use super::session::{Access, Session, failed, find as find_nodes, nodes_of};
use crate::{commands::Failure, table::table};

/// List, make, rename and delete server groups, and move nodes between them
#[derive(ClapArgs)]
#[command(after_help = "\
A rebalance is needed before data follows the groups.

EXAMPLES
  settee cluster groups list -u admin
  settee cluster groups create \"rack 2\" -u admin
  settee cluster groups move 10.0.0.4,10.0.0.5 --to \"rack 2\" -u admin")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the groups and their nodes
    List {
        #[command(flatten)]
        access: Access,
    },
    /// Make a group
    Create {
        /// What it is called
        name: String,
        #[command(flatten)]
        access: Access,
    },
    /// Call a group something else
    Rename {
        /// What it is called now
        name: String,
        /// What it shall be called
        new_name: String,
        #[command(flatten)]
        access: Access,
    },
    /// Delete a group without nodes
    Delete {
        /// What it is called
        name: String,
        #[command(flatten)]
        access: Access,
    },
    /// Move nodes into a group
    Move {
        /// The nodes
        #[arg(required = true, value_delimiter = ',', value_name = "NODES")]
        nodes: Vec<String>,
        /// The group they shall be in
        #[arg(long, value_name = "NAME")]
        to: String,
        #[command(flatten)]
        access: Access,
    },
}

/// A group, as REST names it.
pub(super) struct Group {
    path: String,
    /// Where nodes are added to it.
    pub(super) add_node_path: String,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::List { access } => list(&access.open()?),
        Command::Create { name, access } => {
            let doing = format!("group {name} was not made");
            access.open()?.post("/pools/default/serverGroups", &[("name", name)], &doing)?;
            println!("group {name} is there");
            Ok(())
        }
        Command::Rename { name, new_name, access } => {
            let session = access.open()?;
            let group = find(&session, name)?;
            let renamed = session.rest.put(&group.path, &[("name", new_name)]);
            renamed.map_err(|error| failed(format_args!("group {name} keeps its name"), error))?;
            println!("group {name} is called {new_name} now");
            Ok(())
        }
        Command::Delete { name, access } => {
            let session = access.open()?;
            let group = find(&session, name)?;
            let deleted = session.rest.delete(&group.path);
            deleted.map_err(|error| failed(format_args!("group {name} stays"), error))?;
            println!("group {name} is gone");
            Ok(())
        }
        Command::Move { nodes, to, access } => move_nodes(&access.open()?, nodes, to),
    }
}

fn groups(session: &Session) -> Result<Value, Failure> {
    session.get("/pools/default/serverGroups")
}

/// The group of that name.
pub(super) fn find(session: &Session, name: &str) -> Result<Group, Failure> {
    let all = groups(session)?;
    let list = all["groups"].as_array().into_iter().flatten();
    let group = list.clone().find(|group| group["name"] == name).ok_or_else(|| {
        let known: Vec<&str> = list.filter_map(|group| group["name"].as_str()).collect();
        Failure(format!("there is no group {name}; the groups are {}", known.join(", ")))
    })?;
    let text = |field: &str| group[field].as_str().unwrap_or_default().to_owned();
    Ok(Group { path: text("uri"), add_node_path: text("addNodeURI") })
}

fn list(session: &Session) -> Result<(), Failure> {
    let all = groups(session)?;
    let rows = all["groups"].as_array().into_iter().flatten().map(|group| {
        let nodes = nodes_of(group);
        let names: Vec<&str> = nodes.iter().map(|node| node.hostname()).collect();
        vec![group["name"].as_str().unwrap_or_default().to_owned(), names.join(", ")]
    });
    print!("{}", table(&["GROUP", "NODES"], rows.collect()));
    Ok(())
}

/// Reads the groups, changes them, and writes them back under the revision that was read: a change made meanwhile is
/// not overwritten.
fn move_nodes(session: &Session, names: &[String], to: &str) -> Result<(), Failure> {
    find(session, to)?;
    let mut all = groups(session)?;
    let everyone: Vec<_> = all["groups"].as_array().into_iter().flatten().flat_map(nodes_of).collect();
    let moved = find_nodes(&everyone, names)?;
    for group in all["groups"].as_array_mut().into_iter().flatten() {
        let is_target = group["name"] == to;
        let Some(nodes) = group["nodes"].as_array_mut() else { continue };
        nodes.retain(|node| !moved.iter().any(|moved| node["otpNode"] == moved.otp()));
        if is_target {
            nodes.extend(moved.iter().map(|node| node.0.clone()));
        }
    }
    // The address carries the revision.
    let path =
        all["uri"].as_str().ok_or_else(|| Failure("the node shows no address for its groups".into()))?;
    let written = session.rest.put_json(path, &all);
    written.map_err(|error| failed("the nodes stay where they are", error))?;
    println!("moved to {to}; a rebalance makes the data follow");
    Ok(())
}
