//! What the `settee` binary runs: the server and its tools, one module per subcommand under `commands`.
//!
//! This file owns only the list of subcommands and what an error looks like to a user. It is one line on standard
//! error that says what to do next, and exit code 1 (2 for wrong usage, which clap reports).

mod commands;
mod log;
mod outlook;
mod progress;
mod songs;
mod table;

use clap::{CommandFactory as _, Parser, Subcommand};
use std::process::ExitCode;

/// The version, and the commit that `build.rs` has found.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SETTEE_COMMIT"), ")");

#[derive(Parser)]
#[command(name = "settee", version = VERSION, about = "A Couchbase-compatible document database, and its tools")]
#[command(after_help = "`settee help COMMAND` shows a command's manual with examples.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Quickstart(commands::quickstart::QuickstartArgs),
    Serve(Box<commands::serve::ServeArgs>),
    Init(commands::init::InitArgs),
    #[command(subcommand)]
    Cluster(commands::cluster::Command),
    Load(Box<commands::load::Args>),
    Doctor(commands::doctor::Args),
    Plan(commands::plan::Args),
    #[command(subcommand)]
    Slo(commands::slo::Command),
    Status(commands::status::Args),
    Top(commands::top::Args),
    Logs(commands::logs::Args),
    Collect(commands::collect::Args),
    Get(commands::documents::GetArgs),
    Cat(commands::documents::CatArgs),
    Set(commands::documents::SetArgs),
    Rm(commands::documents::RmArgs),
    Ls(commands::documents::LsArgs),
    Songs(commands::songs::Args),
    Torture(commands::torture::Args),
    #[command(subcommand)]
    View(commands::view::Command),
    Completions(commands::manual::CompletionsArgs),
    Man(commands::manual::ManArgs),
    /// Run functions of views for a node, which starts this by itself
    #[command(hide = true)]
    RunFunctions,
}

/// What a shell says of a command that `SIGPIPE` has ended.
const READER_GONE: i32 = 141;

/// Has a command end quietly whose reader has seen enough, as `head` has. Printing panics then.
fn end_with_reader() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        if text.starts_with("failed printing to stdout") && text.contains("Broken pipe") {
            std::process::exit(READER_GONE);
        }
        report(panic);
    }));
}

/// Carries out the command that the process was started with. Says how the process ends.
#[must_use]
pub fn run() -> ExitCode {
    if let Err(failure) = hide_hashes() {
        eprintln!("settee: {failure}");
        return ExitCode::FAILURE;
    }
    let command = Cli::parse().command;
    if !matches!(command, Command::Serve(_) | Command::Quickstart(_) | Command::RunFunctions) {
        end_with_reader();
    }
    let outcome = match command {
        Command::Quickstart(args) => commands::quickstart::run(args),
        Command::Serve(args) => commands::serve::run(*args),
        Command::Init(args) => commands::init::run(args),
        Command::Cluster(args) => commands::cluster::run(args),
        Command::Load(args) => commands::load::run(*args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Plan(args) => commands::plan::run(&args),
        Command::Slo(args) => commands::slo::run(args),
        // Its exit code says how the cluster is.
        Command::Status(args) => return commands::status::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Logs(args) => commands::logs::run(&args),
        Command::Collect(args) => commands::collect::run(&args),
        // Their exit codes tell a document that is not there from a failure.
        Command::Get(args) => return commands::documents::get(&args),
        Command::Cat(args) => return commands::documents::cat(&args),
        Command::Set(args) => return commands::documents::set(&args),
        Command::Rm(args) => return commands::documents::rm(&args),
        Command::Ls(args) => commands::documents::ls(&args),
        Command::Songs(args) => commands::songs::run(args),
        Command::Torture(args) => commands::torture::run(args),
        Command::View(args) => commands::view::run(args),
        Command::Completions(args) => commands::manual::completions(&args, Cli::command()),
        Command::Man(args) => commands::manual::man(&args, Cli::command()),
        Command::RunFunctions => commands::functions::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("settee: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Clients choose keys, but must not know which of them collide: no two processes hash alike.
fn hide_hashes() -> Result<(), String> {
    let mut secret = [0; base::hash::SECRET_BYTES];
    getrandom::fill(&mut secret).map_err(|error| format!("the system has no randomness: {error}"))?;
    base::hash::set_secret(secret).map_err(|error| error.to_string())
}
