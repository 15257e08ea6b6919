//! Workers: processes that are told over the network what to do, and the coordinator's side of starting some here.

use super::super::Failure;
use super::Args;
use super::plan::Plan;
use super::stages::{Local, failed};
use clap::{Args as _, FromArgMatches};
use load::Part;
use load::fleet::{Fleet, Work, serve};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

/// Be a worker of runs that a coordinator starts with --workers
#[derive(clap::Args, Clone)]
#[command(after_help = "\
A worker serves one run after the other. A client that reaches its port can have it put load on any server: listen on a
network that you trust. Files that a run names (keys, templates, properties) are read on the worker's machine.

Example:
  settee load worker --listen 10.0.0.5:7600")]
pub(super) struct WorkerArgs {
    /// Address and port
    #[arg(long, default_value = "127.0.0.1:7600")]
    listen: String,
    /// End after one run
    #[arg(long)]
    once: bool,
}

/// Serves coordinators; prints where, because the port may have been left to the system.
pub(super) fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let cannot = |error| Failure::doing(format_args!("cannot listen on {}", args.listen), error);
    let listener = TcpListener::bind(&args.listen).map_err(cannot)?;
    println!("listening on {}", listener.local_addr().map_err(cannot)?);
    loop {
        let served = serve(&listener, |plan, part| {
            prepare(plan, part).map(|local| Box::new(local) as Box<dyn Work>).map_err(|failure| failure.0)
        });
        match served {
            Err(error) if args.once => {
                return Err(Failure::doing("the coordinator's connection broke", error));
            }
            // The next coordinator may have more luck.
            Err(error) => eprintln!("settee: the coordinator's connection broke: {error}"),
            Ok(()) if args.once => return Ok(()),
            Ok(()) => {}
        }
    }
}

/// Understands the coordinator's command line as this process would its own.
fn prepare(plan: &Value, part: Part) -> Result<Local, Failure> {
    let words: Vec<String> =
        serde_json::from_value(plan["args"].clone()).map_err(|error| Failure::doing("no plan", error))?;
    let command = Args::augment_args(clap::Command::new("load"));
    let matches = command.try_get_matches_from(words).map_err(|error| Failure(error.to_string()))?;
    let mut args = Args::from_arg_matches(&matches).map_err(|error| Failure(error.to_string()))?;
    // The coordinator's environment may have held them.
    let text = |name: &str| plan[name].as_str().map(str::to_owned);
    args.target.user = args.target.user.or_else(|| text("user"));
    args.target.password = args.target.password.or_else(|| text("password"));
    let plan = Plan::new(&args.target, &args.records, &args.work, &args.pace, &args.profile)?;
    Local::connect(args, &plan, part)
}

/// Workers elsewhere, and those that were started here; these end with it.
pub(super) struct Workers {
    children: Vec<Child>,
}

impl Workers {
    /// Gathers the workers that the flags name and starts the processes that they ask for.
    pub(super) fn muster(args: &Args) -> Result<(Fleet, Workers), Failure> {
        let mut addresses = args.pace.workers.clone();
        let mut workers = Workers { children: Vec::new() };
        for _ in 0..args.pace.processes.unwrap_or(0) {
            addresses.push(workers.start()?);
        }
        let words: Vec<String> = std::env::args().skip(1).collect();
        let plan = json!({"args": words, "user": args.target.user(), "password": args.target.password});
        Ok((Fleet::muster(&addresses, &plan).map_err(failed)?, workers))
    }

    fn start(&mut self) -> Result<String, Failure> {
        let cannot = |error| Failure::doing("cannot start a worker", error);
        let program = std::env::current_exe().map_err(cannot)?;
        let words = ["load", "worker", "--once", "--listen", "127.0.0.1:0"];
        let mut child = Command::new(program).args(words).stdout(Stdio::piped()).spawn().map_err(cannot)?;
        let output = child.stdout.take();
        self.children.push(child);
        let mut line = String::new();
        if let Some(output) = output {
            BufReader::new(output).read_line(&mut line).map_err(cannot)?;
        }
        let address = line.trim().strip_prefix("listening on ").map(str::to_owned);
        address.ok_or_else(|| Failure("a worker did not say where it listens".to_owned()))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It ends by itself when the coordinator hangs up; one that does not must not stay behind.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
