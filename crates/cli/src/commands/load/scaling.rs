//! `settee load scaling`: the published scaling run on songs, from an empty bucket to the score and its chart.

mod place;

use super::super::Failure;
use super::args::TargetArgs;
use super::outputs::{cannot, check_writable};
use super::price::write_chart;
use super::queries;
use crate::songs::view;
use load::driver::journal::{COLUMNS, part_of};
use load::price::{Run, read, scores};
use place::Place;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Repeat the published scaling run: every song written once, read once, and all electronic ones queried by a view
///
/// The view is published before the first song is written, so its index is fed by the writes. Several processes share the
/// connections of each phase. The number of electronic songs is held against what the generator knows, and so is every row.
/// With --local the run is made on a fresh cluster of each of these sizes on this machine. Otherwise it is made on the cluster
/// that is named, and --runs collects the runs of several. The score sets all of them against one another.
#[derive(clap::Args, Clone)]
#[command(after_help = "\
Examples:
  settee load scaling --local 1,2,4,8 --chart scaling.html          from nothing to the report
  settee load scaling --delete-bucket --name one --price 0.80 --runs runs.csv -u Administrator -p password
  settee load price runs.csv --chart scaling.html")]
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
    /// Start a cluster of each of these sizes on this machine, one after the other, and make the run on each
    #[arg(long, value_name = "NODES", value_delimiter = ',', conflicts_with_all = ["host", "port", "rest", "delete_bucket"],
        value_parser = clap::value_parser!(u16).range(1..=50))]
    local: Vec<u16>,
    /// The bucket's memory quota on each node of --local, in MiB
    #[arg(long, default_value_t = 1024, value_name = "MIB", requires = "local")]
    node_memory_mb: u64,
    /// With --local: all nodes on 127.0.0.1, with ports of their own
    #[arg(long, requires = "local")]
    one_address: bool,
    /// REST address of the cluster [default: port 8091 of the node that documents go to]
    #[arg(long, value_name = "HOST:PORT")]
    rest: Option<String>,
    /// Delete the bucket with all its documents and views first, and make it anew with its main parameters
    #[arg(long)]
    delete_bucket: bool,
    /// What to call this cluster; clusters of --local have the number of nodes behind it
    #[arg(long, default_value = "cluster")]
    name: String,
    /// How many nodes it has [default: what REST shows]
    #[arg(long, conflicts_with = "local")]
    nodes: Option<u32>,
    /// What a node costs, in any unit
    #[arg(long, default_value_t = 1.0)]
    price: f64,
    /// Publish no view, and query nothing
    #[arg(long)]
    no_query: bool,
    /// The port of views
    #[arg(long, default_value_t = 8092)]
    view_port: u16,
    /// Add a line for each run to this file, made if there is none. The score then counts all runs of the file
    #[arg(long, value_name = "FILE")]
    runs: Option<PathBuf>,
    /// Write a page with charts of durations and scores by the number of nodes
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// Write the latencies of the phases in nanoseconds
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a row for every operation of both phases, with its nanoseconds in the fifth column
    #[arg(long, value_name = "FILE")]
    operations_csv: Option<PathBuf>,
}

const RUNS_HEADER: &str = "name,nodes,price,get,put,query\n";
const CSV_HEADER: &str = "cluster,phase,operations,misses,duration_ns,mean_ns,min_ns,p50_ns,p90_ns,p95_ns,p99_ns,p99.9_ns,p99.99_ns,max_ns\n";

pub(super) fn run(args: &ScalingArgs) -> Result<(), Failure> {
    for path in [&args.csv, &args.runs, &args.chart].into_iter().flatten() {
        check_writable(path)?;
    }
    let mut out = Outputs {
        csv: CSV_HEADER.to_owned(),
        rows: args.operations_csv.as_deref().map(Rows::begin).transpose()?,
    };
    let mut runs = earlier(args)?;
    let begun = runs.len();
    if args.local.is_empty() {
        runs.push(one(args, &Place::given(args)?, &mut out)?);
    }
    for nodes in &args.local {
        println!("{nodes} nodes on this machine");
        runs.push(one(args, &Place::local(args, *nodes)?, &mut out)?);
    }
    tell(&runs);
    if let Some(path) = &args.csv {
        std::fs::write(path, out.csv).map_err(|error| cannot(path, error))?;
    }
    if let Some(path) = &args.runs {
        add_lines(path, runs.get(begun..).unwrap_or_default())?;
    }
    args.chart.as_deref().map_or(Ok(()), |path| write_chart(path, &runs))
}

/// What the phases write beside what they print.
struct Outputs {
    csv: String,
    rows: Option<Rows>,
}

/// The runs that the file has already.
fn earlier(args: &ScalingArgs) -> Result<Vec<Run>, Failure> {
    let Some(path) = &args.runs else { return Ok(Vec::new()) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::doing(format_args!("cannot read {}", path.display()), error))?;
    if text.trim().is_empty() { Ok(Vec::new()) } else { read(&text).map_err(Failure) }
}

fn add_lines(path: &Path, runs: &[Run]) -> Result<(), Failure> {
    let mut text = std::fs::read_to_string(path).unwrap_or_default();
    if text.trim().is_empty() {
        text = RUNS_HEADER.to_owned();
    }
    for Run { name, nodes, price, get, put, query } in runs {
        let query = query.map_or_else(String::new, |seconds| seconds.to_string());
        text.push_str(&format!("{name},{nodes},{price},{get},{put},{query}\n"));
    }
    std::fs::write(path, text).map_err(|error| cannot(path, error))
}

/// Scores of all runs against one another.
fn tell(runs: &[Run]) {
    for (run, score) in runs.iter().zip(scores(runs)) {
        println!("score of {}: {}", run.name, score.told(run));
    }
    if runs.iter().any(|run| run.query.is_none()) {
        println!("queries are not part of the score: not every run has made them");
    }
}

/// One run, from the view's publication to the last row.
fn one(args: &ScalingArgs, place: &Place, out: &mut Outputs) -> Result<Run, Failure> {
    if !args.no_query {
        let stored = view::store(&place.views, place.bucket());
        stored.map_err(|error| Failure::doing("the view was not published", error))?;
        println!("view {}/{} is published", view::DESIGN_DOCUMENT, view::VIEW);
    }
    let put = phase(args, place, "put", &["--populate"], out)?;
    let records = args.records.to_string();
    let reads =
        ["--closed", "--gets", "100", "--distribution", "each", "--warmup", "0", "--ops", records.as_str()];
    let get = phase(args, place, "get", &reads, out)?;
    let query = if args.no_query { None } else { Some(query(args, place, out)?) };
    let nodes = f64::from(args.nodes.unwrap_or(place.nodes));
    Ok(Run { name: place.name.clone(), nodes, price: args.price, get, put, query })
}

/// The phase of queries; returns its duration in seconds. What the index still lacks is waited for before.
fn query(args: &ScalingArgs, place: &Place, out: &mut Outputs) -> Result<f64, Failure> {
    place.check()?;
    let queried = queries::run(&place.views, place.bucket(), args.records)?;
    let (seconds, rows) = (queried.query.as_secs_f64(), queried.rows);
    println!(
        "query: {rows} songs in {seconds:.3} s, {:.0} per second, the first after {:.3} s; as many as the generator counts; the index \
         had all songs {:.3} s after the last was read",
        rows as f64 / seconds.max(f64::EPSILON),
        queried.first.as_secs_f64(),
        queried.indexed.as_secs_f64()
    );
    out.csv.push_str(&format!("{},query,1,0,{:.0},,,,,,,,,\n", place.name, seconds * 1e9));
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
fn phase(
    args: &ScalingArgs,
    place: &Place,
    name: &str,
    flags: &[&str],
    out: &mut Outputs,
) -> Result<f64, Failure> {
    place.check()?;
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
    target(&place.target, &mut command);
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
    let (ops, misses) = (&report["ops"], &report["misses"]);
    out.csv.push_str(&format!("{},{name},{ops},{misses},{:.0}", place.name, seconds * 1e9));
    for column in ["mean", "min", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"] {
        out.csv.push_str(&format!(",{:.0}", latencies[column].as_f64().unwrap_or_default() * 1e3));
    }
    out.csv.push('\n');
    out.rows.iter_mut().try_for_each(|rows| rows.gather(args.processes))?;
    Ok(seconds)
}

/// Where, and as whom; the password goes by the environment, where other users do not see it.
fn target(target: &TargetArgs, command: &mut Command) {
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
