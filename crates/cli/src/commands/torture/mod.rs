//! `settee torture`: does to nodes of its own what production does to others, and says whether they kept their promises.

mod chaos;
mod wedge;

use super::Failure;
use clap::{Args as ClapArgs, Subcommand};
use std::path::{Path, PathBuf};

/// Press, kill and cut up nodes of its own, and prove that they keep what they promised
#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Subcommand)]
enum Scenario {
    Wedge(wedge::WedgeArgs),
    Chaos(chaos::ChaosArgs),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.scenario {
        Scenario::Wedge(args) => wedge::run(&args),
        Scenario::Chaos(args) => chaos::run(&args),
    }
}

/// What nodes run: what was asked for, or this program.
fn binary(asked: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    let own = || std::env::current_exe().map_err(|error| Failure::doing("cannot find this binary", error));
    asked.cloned().map_or_else(own, Ok)
}

fn remove(dir: &Path, keep: bool) -> Result<(), Failure> {
    if keep {
        println!("the nodes' directories are in {}", dir.display());
        return Ok(());
    }
    std::fs::remove_dir_all(dir)
        .map_err(|error| Failure::doing(format_args!("cannot remove {}", dir.display()), error))
}
