//! `settee cluster encryption`: whether nodes speak TLS to one another, and about what. Asks every node for its own part, as
//! `couchbase-cli node-to-node-encryption` does.

use clap::{Args as ClapArgs, ValueEnum};
use client::Rest;

use super::session::{Access, Node, Session, failed};
use crate::{commands::Failure, table::table};

/// Have nodes speak TLS to one another, or show whether they do
#[derive(ClapArgs)]
#[command(after_help = "\
Nodes go on serving meanwhile, and need nothing but their ports for TLS; what clients do is their own business. While it is on,
nodes are added by their REST port for TLS (settee cluster add https://HOST:18091).

EXAMPLES
  settee cluster encryption -u admin
  settee cluster encryption all -u admin")]
pub(crate) struct Args {
    /// What goes under TLS [default: show what does]
    #[arg(value_enum)]
    level: Option<Level>,

    #[command(flatten)]
    access: Access,
}

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    /// Nothing
    Off,
    /// What nodes agree on, report, and ask one another over REST
    Control,
    /// Documents as well
    All,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let session = args.access.open()?;
    match args.level {
        None => show(&session),
        Some(Level::Off) => {
            set_level(&session, "control")?;
            switch(&session, "off")
        }
        Some(Level::Control) => {
            switch(&session, "on")?;
            set_level(&session, "control")
        }
        Some(Level::All) => {
            switch(&session, "on")?;
            set_level(&session, "all")
        }
    }
}

fn show(session: &Session) -> Result<(), Failure> {
    let settings = session.get("/settings/security")?;
    let level = settings["clusterEncryptionLevel"].as_str().unwrap_or("off");
    let word = |node: &Node| if node.0["nodeEncryption"] == true { level } else { "off" };
    let rows =
        session.nodes()?.iter().map(|node| vec![node.hostname().to_owned(), word(node).to_owned()]).collect();
    print!("{}", table(&["NODE", "ENCRYPTION"], rows));
    Ok(())
}

/// Turns every node's switch.
fn switch(session: &Session, word: &str) -> Result<(), Failure> {
    for node in session.nodes()? {
        let form = [("nodeEncryption", word)];
        let done =
            Rest::new(node.hostname(), Some(session.login())).post("/node/controller/setupNetConfig", &form);
        done.map_err(|error| failed(format_args!("{} was not switched {word}", node.hostname()), error))?;
        println!("{} is switched {word}", node.hostname());
    }
    Ok(())
}

fn set_level(session: &Session, level: &str) -> Result<(), Failure> {
    let form = [("clusterEncryptionLevel", level)];
    session.post("/settings/security", &form, "the level stays as it is").map(|_| ())
}
