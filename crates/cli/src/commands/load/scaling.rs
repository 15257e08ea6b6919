//! `settee load scaling`: the published scaling run on songs, from writing everything to the score.

use super::super::Failure;
use super::args::TargetArgs;
use super::outputs::{cannot, check_writable};
use super::queries;
use load::driver::journal::{COLUMNS, part_of};
use load::price::{Run, scores};
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Repeat the published scaling run: every song written once, waited for, then read once, and with --query asked for by a view
///
/// Several processes share the connections of each phase. Durations go into a line of a CSV file that `settee load
/// price` scores against the lines of other clusters.
#[derive(clap::Args, Clone)]
#[command(after_help = "\
Example:
  settee load scaling --name 1-node --price 0.80 --runs runs.csv -u Administrator -p password
  settee load price runs.csv")]
pub(super) struct ScalingArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// How many songs
    #[arg(long, short = 'n', default_value_t = crate::songs::FULL_SET)]
    records: u64,
    /// Client processes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    processes: u16,
    /// Connections of all processes together
    #[arg(long, short = 'c', default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    connections: u32,
    /// When a write is waited for no longer: majority, majorityAndPersistActive or persistToMajority; memory if not given
    #[arg(long)]
    durability: Option<String>,
    /// What to call this cluster
    #[arg(long, default_value = "cluster")]
    name: String,
    /// How many nodes it has
    #[arg(long, default_value_t = 1)]
    nodes: u32,
    /// What a node costs, in any unit
    #[arg(long, default_value_t = 1.0)]
    price: f64,
    /// Then ask for all songs that are tagged "electronic", by the published view, and check them
    #[arg(long)]
    query: bool,
    /// The port of views
    #[arg(long, default_value_t = 8092, requires = "query")]
    view_port: u16,
    /// Add a line to this file, made if there is none
    #[arg(long, value_name = "FILE")]
    runs: Option<PathBuf>,
    /// Write the latencies of both phases in nanoseconds
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a row for every operation of both phases, with its nanoseconds in the fifth column
    #[arg(long, value_name = "FILE")]
    operations_csv: Option<PathBuf>,
}

const RUNS_HEADER: &str = "name,nodes,price,get,put,query\n";
const CSV_HEADER: &str = "phase,operations,misses,duration_ns,mean_ns,min_ns,p50_ns,p90_ns,p95_ns,p99_ns,p99.9_ns,p99.99_ns,max_ns\n";

pub(super) fn run(args: &ScalingArgs) -> Result<(), Failure> {
    for path in [&args.csv, &args.runs].into_iter().flatten() {
        check_writable(path)?;
    }
    let mut csv = CSV_HEADER.to_owned();
    let mut rows = args.operations_csv.as_deref().map(Rows::begin).transpose()?;
    let put = phase(args, "put", &["--populate"], &mut csv)?;
    rows.iter_mut().try_for_each(|rows| rows.gather(args.processes))?;
    let get = phase(
        args,
        "get",
        &[
            "--closed",
            "--gets",
            "100",
            "--distribution",
            "each",
            "--warmup",
            "0",
            "--ops",
            &args.records.to_string(),
        ],
        &mut csv,
    )?;
    rows.iter_mut().try_for_each(|rows| rows.gather(args.processes))?;
    let query = if args.query { Some(query(args, &mut csv)?) } else { None };
    let (nodes, price) = (f64::from(args.nodes), args.price);
    let own = Run { name: args.name.clone(), nodes, price, get, put, query };
    let score = scores(std::slice::from_ref(&own)).first().copied().unwrap_or_default();
    println!(
        "score by itself: {score:.6}{}",
        if args.query { "" } else { "; queries are not part of it (--query)" }
    );
    if let Some(path) = &args.csv {
        std::fs::write(path, csv).map_err(|error| cannot(path, error))?;
    }
    if let Some(path) = &args.runs {
        let mut text = std::fs::read_to_string(path).unwrap_or_else(|_| RUNS_HEADER.to_owned());
        let query = query.map_or_else(String::new, |seconds| seconds.to_string());
        text.push_str(&format!("{},{nodes},{price},{get},{put},{query}\n", args.name));
        std::fs::write(path, text).map_err(|error| cannot(path, error))?;
    }
    Ok(())
}

/// The phase of queries; returns its duration in seconds. The index is not part of that: it is built before.
fn query(args: &ScalingArgs, csv: &mut String) -> Result<f64, Failure> {
    let queried = queries::run(&args.target, args.view_port, args.records)?;
    let (seconds, rows) = (queried.query.as_secs_f64(), queried.rows);
    println!(
        "query: {rows} songs in {seconds:.3} s, {:.0} per second, the first after {:.3} s; the index had all songs {:.3} s after the \
         view was stored",
        rows as f64 / seconds.max(f64::EPSILON),
        queried.first.as_secs_f64(),
        queried.indexed.as_secs_f64()
    );
    csv.push_str(&format!("query,1,0,{:.0},,,,,,,,,\n", seconds * 1e9));
    Ok(seconds)
}

/// The file of all operations; the processes write parts beside it, which are appended phase by phase.
struct Rows {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Rows {
    fn begin(path: &Path) -> Result<Rows, Failure> {
        let begun = File::create(path).and_then(|file| {
            let mut out = BufWriter::new(file);
            out.write_all(COLUMNS.as_bytes()).map(|()| out)
        });
        begun.map(|out| Rows { path: path.to_owned(), out }).map_err(|error| cannot(path, error))
    }

    fn gather(&mut self, processes: u16) -> Result<(), Failure> {
        for index in 0..u64::from(processes) {
            let part = part_of(&self.path, index);
            let copied = File::open(&part).and_then(|mut file| io::copy(&mut file, &mut self.out));
            copied.and_then(|_| std::fs::remove_file(&part)).map_err(|error| cannot(&part, error))?;
        }
        self.out.flush().map_err(|error| cannot(&self.path, error))
    }
}

/// One phase as a run of its own; returns its duration in seconds.
fn phase(args: &ScalingArgs, name: &str, flags: &[&str], csv: &mut String) -> Result<f64, Failure> {
    let doing = |error| Failure::doing(format_args!("cannot run phase {name}"), error);
    let mut command = Command::new(std::env::current_exe().map_err(doing)?);
    command.args(["load", "--json", "--value", "songs", "--verify", "0"]).args(flags);
    command.args(["-n", &args.records.to_string(), "-c", &args.connections.to_string()]);
    command.args(["--processes", &args.processes.to_string()]);
    if let Some(path) = &args.operations_csv {
        command.arg("--journal").arg(path);
    }
    if let Some(level) = &args.durability {
        command.args(["--durability", level]);
    }
    target(args, &mut command);
    let output = command.stderr(Stdio::inherit()).output().map_err(doing)?;
    let report: Value = serde_json::from_slice(&output.stdout).map_err(|_| {
        Failure(format!("phase {name} has failed: {}", String::from_utf8_lossy(&output.stdout)))
    })?;
    if !output.status.success() {
        return Err(Failure(format!("phase {name} has failed: {} errors", report["errors"])));
    }
    let done = report["ops"].as_u64().unwrap_or_default();
    if done != args.records {
        return Err(Failure(format!(
            "phase {name} has failed: only {done} of {} songs were asked for",
            args.records
        )));
    }
    let seconds = report["seconds"].as_f64().unwrap_or_default();
    let latencies = &report[if name == "put" { "write_us" } else { "read_us" }];
    println!(
        "{name}: {done} songs in {seconds:.3} s, {:.0} per second, {} not found; latency us p50 {:.0} p99 {:.0} max {:.0}",
        report["ops_per_sec"].as_f64().unwrap_or_default(),
        report["misses"],
        latencies["p50"].as_f64().unwrap_or_default(),
        latencies["p99"].as_f64().unwrap_or_default(),
        latencies["max"].as_f64().unwrap_or_default()
    );
    csv.push_str(&format!("{name},{},{},{:.0}", report["ops"], report["misses"], seconds * 1e9));
    for column in ["mean", "min", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"] {
        csv.push_str(&format!(",{:.0}", latencies[column].as_f64().unwrap_or_default() * 1e3));
    }
    csv.push('\n');
    Ok(seconds)
}

/// Where, and as whom; the password goes by the environment, where other users do not see it.
fn target(args: &ScalingArgs, command: &mut Command) {
    let target = &args.target;
    if let Some(host) = &target.host {
        command.args(["--host", host]);
    }
    if let Some(port) = target.port {
        command.args(["--port", &port.to_string()]);
    }
    for (flag, value) in [("--bucket", &target.bucket), ("--collection", &target.collection)] {
        if let Some(value) = value {
            command.args([flag, value]);
        }
    }
    for (name, value) in [("SETTEE_USER", &target.user()), ("SETTEE_PASSWORD", &target.password)] {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_all_phases_become_one_file() {
        let directory = std::env::temp_dir().join(format!("settee-rows-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("rows.csv");
        let mut rows = Rows::begin(&path).expect("a file");
        for phase in ["set", "get"] {
            for part in 0..2 {
                std::fs::write(part_of(&path, part), format!("1,0,{phase},200,7,{part},9\n"))
                    .expect("a part");
            }
            rows.gather(2).expect("both parts");
        }
        assert!(rows.gather(2).is_err(), "a part that is missing is told");
        let text = std::fs::read_to_string(&path).expect("rows");
        let expected = ["1,0,set,200,7,0,9", "1,0,set,200,7,1,9", "1,0,get,200,7,0,9", "1,0,get,200,7,1,9"];
        assert_eq!(text, format!("{COLUMNS}{}\n", expected.join("\n")));
        assert_eq!(std::fs::read_dir(&directory).expect("a directory").count(), 1, "no part is left behind");
        std::fs::remove_dir_all(&directory).expect("a directory");
    }
}
