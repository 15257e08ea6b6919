//! `settee load compare`: several servers in turns, under the same load.

use super::super::Failure;
use super::args::{PaceArgs, ProtocolArg, RecordArgs, TargetArgs, WorkArgs};
use super::stages::{check_files, failed};
use client::with_port;
use load::compare::{Median, Round, settle, write_back};
use load::process::own_cpu_seconds;
use load::report::Report;
use load::{Control, Crew, LoadError, Op, Part, Phase, Protocol, Stop, Usage};
use serde_json::json;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Requests in flight per connection while filling.
const FILL_PIPELINE: usize = 16;

/// Measure several servers in turns (A B A B ...) and print medians and ratios
#[derive(clap::Args, Clone)]
#[command(after_help = "\
A target is NAME=PROTOCOL://HOST:PORT, with /BUCKET behind it for the couchbase protocol and #PID of its process if it
runs here: then CPU per operation is told, which is the figure to compare first, with what the process still does after
the last reply. Ratios are to the first target. Pin server and client to different cores.

Example:
  settee load compare --closed --pipeline 16 --gets 100 -n 500000 --value-bytes 1000 \\
      --compare memcached=binary://127.0.0.1:11211#812 --compare settee=binary://127.0.0.2:11211#815 \\
      --compare redis=resp://127.0.0.1:6379#820")]
pub(super) struct CompareArgs {
    /// The servers that take part; the others are compared with the first
    #[arg(long = "compare", value_name = "TARGET", required = true)]
    targets: Vec<TargetSpec>,
    /// How often each takes its turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The records are there already
    #[arg(long)]
    filled: bool,
    /// User name (couchbase protocol)
    #[arg(long, short = 'u', env = "SETTEE_USER")]
    user: Option<String>,
    /// Password
    #[arg(long, short = 'p', env = "SETTEE_PASSWORD", hide_env_values = true, requires = "user")]
    password: Option<String>,
    #[command(flatten)]
    records: RecordArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    pace: PaceArgs,
    /// Report as one line of JSON
    #[arg(long)]
    json: bool,
}

/// One who takes part.
#[derive(Clone, Debug, PartialEq)]
struct TargetSpec {
    name: String,
    protocol: ProtocolArg,
    host: String,
    port: u16,
    bucket: Option<String>,
    pid: Option<u32>,
}

impl FromStr for TargetSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<TargetSpec, String> {
        let wrong = || format!("{text:?} is no NAME=PROTOCOL://HOST[:PORT][/BUCKET][#PID]");
        let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (protocol, rest) = rest.split_once("://").ok_or_else(wrong)?;
        let protocol = <ProtocolArg as clap::ValueEnum>::from_str(protocol, true)?;
        let (rest, pid) = rest.split_once('#').map_or((rest, None), |(rest, pid)| (rest, Some(pid)));
        let (address, bucket) =
            rest.split_once('/').map_or((rest, None), |(rest, bucket)| (rest, Some(bucket)));
        let address = with_port(address, Protocol::from(protocol).port());
        let (host, port) = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).ok_or_else(wrong)?;
        Ok(TargetSpec {
            name: name.to_owned(),
            protocol,
            host: host.to_owned(),
            port: port.parse().map_err(|_| wrong())?,
            bucket: bucket.map(str::to_owned),
            pid: pid.map(str::parse).transpose().map_err(|_| wrong())?,
        })
    }
}

/// A target with its connections and what it has achieved.
struct Contender {
    spec: TargetSpec,
    crew: Crew,
    phase: Phase,
    rounds: Vec<Round>,
}

pub(super) fn run(args: &CompareArgs) -> Result<(), Failure> {
    let connections = args.pace.connections.unwrap_or(super::plan::CONNECTIONS_DEFAULT) as usize;
    check_files(connections * args.targets.len())?;
    let mut contenders = Vec::new();
    for spec in &args.targets {
        contenders.push(Contender::enter(spec, args, connections)?);
    }
    for contender in contenders.iter_mut().filter(|_| !args.filled) {
        contender.fill()?;
    }
    for _ in 0..args.rounds {
        for contender in &mut contenders {
            contender.take_turn(args)?;
        }
    }
    if args.json {
        let rows = contenders
            .iter()
            .map(|contender| json!({"name": contender.spec.name, "rounds": contender.rounds}));
        println!("{}", json!({"targets": rows.collect::<Vec<_>>()}));
    } else {
        print_table(&contenders);
    }
    Ok(())
}

impl Contender {
    fn enter(spec: &TargetSpec, args: &CompareArgs, connections: usize) -> Result<Contender, Failure> {
        let target = TargetArgs {
            host: Some(spec.host.clone()),
            port: Some(spec.port),
            protocol: Some(spec.protocol),
            user: args.user.clone(),
            password: args.password.clone(),
            bucket: spec.bucket.clone(),
            collection: None,
            ordered: false,
        };
        let (records, count) = args.records.records()?;
        let mut phase = args.pace.phase(&args.work, count, target.protocol())?;
        let target = Arc::new(target.discover(false)?);
        phase.ask(&target, &args.work.query).map_err(failed)?;
        let crew = Crew::connect(&target, &records, connections, args.pace.threads as usize, Part::WHOLE);
        Ok(Contender { spec: spec.clone(), crew: crew.map_err(failed)?, phase, rounds: Vec::new() })
    }

    fn fill(&mut self) -> Result<(), Failure> {
        let fill = Phase {
            settings: self.phase.settings.clone(),
            ..Phase::each(Op::Set, self.phase.records, FILL_PIPELINE)
        };
        let tally = self.crew.total(&fill, &Control::new(0.0)).map_err(|error| self.failed(&error))?;
        self.judge(tally.failed(), tally.corrupt, tally.main_failure())?;
        self.rest();
        Ok(())
    }

    fn take_turn(&mut self, args: &CompareArgs) -> Result<(), Failure> {
        let control = Control::new(args.pace.rate(false).unwrap_or(0.0));
        if args.pace.warmup > 0.0 {
            let stop = Stop::Time(Duration::from_secs_f64(args.pace.warmup));
            let warm = self.crew.total(&Phase { stop, ..self.phase.clone() }, &control);
            warm.map_err(|error| self.failed(&error))?;
        }
        let usage = || self.spec.pid.and_then(Usage::of);
        let (before, own) = (usage(), own_cpu_seconds());
        // Every round draws other records.
        let seed = self.phase.seed.wrapping_add(self.rounds.len() as u64 + 1);
        let measured = self.crew.total(&Phase { seed, ..self.phase.clone() }, &control);
        let tally = measured.map_err(|error| self.failed(&error))?;
        let usage = before.zip(self.spec.pid.and_then(Usage::of));
        self.judge(tally.failed(), tally.corrupt, tally.main_failure())?;
        let client_cpu = own_cpu_seconds() - own;
        let rest = self.rest();
        let report = Report { tally, server: usage, client_cpu, ..Report::default() };
        self.rounds.push(Round::of(&report, rest));
        Ok(())
    }

    /// Lets the process come to rest and the kernel write back, so that the next turn does not pay for this one.
    fn rest(&self) -> f64 {
        let used = self.spec.pid.map_or(0.0, settle);
        write_back();
        used
    }

    fn failed(&self, error: &LoadError) -> Failure {
        Failure(format!("{}: {error}", self.spec.name))
    }

    fn judge(&self, failures: u64, corrupt: u64, text: Option<&str>) -> Result<(), Failure> {
        if failures + corrupt == 0 {
            return Ok(());
        }
        let (name, text) = (&self.spec.name, text.unwrap_or(""));
        Err(Failure(format!(
            "{name}: {failures} operations failed ({text}), {corrupt} documents came back wrong"
        )))
    }
}

type Column = (&'static str, fn(&Round) -> Option<f64>);

const COLUMNS: [Column; 6] = [
    ("CPU us/op", |round| round.cpu_us_per_op),
    ("ops/s", |round| Some(round.ops_per_sec)),
    ("p50 us", |round| Some(round.p50_us)),
    ("p99 us", |round| Some(round.p99_us)),
    ("p99.9 us", |round| Some(round.p99_9_us)),
    ("client us/op", |round| Some(round.client_us_per_op)),
];

/// A row per target; behind each median its spread, and below it the ratio to the first target's.
fn print_table(contenders: &[Contender]) {
    let median =
        |contender: &Contender, column: &Column| Median::of(contender.rounds.iter().filter_map(column.1));
    print!("{:<20}", "");
    COLUMNS.iter().for_each(|column| print!(" {:>18}", column.0));
    println!();
    for (place, contender) in contenders.iter().enumerate() {
        print!("{:<20}", contender.spec.name);
        for column in &COLUMNS {
            let text = median(contender, column).map_or_else(
                || "not available".to_owned(),
                |median| {
                    format!(
                        "{:.*} ± {:.0} %",
                        if median.value < 100.0 { 2 } else { 0 },
                        median.value,
                        median.spread
                    )
                },
            );
            print!(" {text:>18}");
        }
        println!();
        if place > 0 {
            print!("{:<20}", format!("  / {}", contenders[0].spec.name));
            for column in &COLUMNS {
                let ratio = median(contender, column).zip(median(&contenders[0], column));
                let text =
                    ratio.map_or_else(String::new, |(own, first)| format!("{:.2}", own.value / first.value));
                print!(" {text:>18}");
            }
            println!();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        let spec: TargetSpec = "a=couchbase://10.0.0.1:11210/songs#77".parse().expect("a target");
        assert_eq!((spec.name.as_str(), spec.host.as_str(), spec.port), ("a", "10.0.0.1", 11210));
        assert_eq!((spec.bucket.as_deref(), spec.pid), (Some("songs"), Some(77)));
        assert_eq!(
            "r=resp://h:1".parse::<TargetSpec>().map(|spec| (spec.bucket, spec.pid)),
            Ok((None, None))
        );
        assert_eq!("r=resp://h".parse::<TargetSpec>().map(|spec| spec.port), Ok(6379));
        for text in ["", "a", "a=tcp://h:1", "a=resp://", "a=resp://h:x", "a=resp://h:1#x"] {
            assert!(text.parse::<TargetSpec>().is_err(), "{text}");
        }
    }
}
