//! `settee load`: measures a server, or fills it.

mod args;
mod compare;
mod drain;
mod live;
mod measure;
mod orders;
mod outputs;
mod plan;
mod price;
mod queries;
mod scaling;
mod stages;
mod worker;

use super::Failure;
use args::{AnswerArgs, PaceArgs, RecordArgs, TargetArgs, WorkArgs};
use load::report;
use plan::ProfileArgs;

/// Measure a server with reads and writes, or fill it with records
#[derive(clap::Args, Clone)]
#[command(long_about = "Measure a server with reads and writes, or fill it with records.\n\n\
Operations are due at a set rate (open loop), whether or not the server keeps up: latency counts from the time an \
operation was due, so a server that stalls shows it. --closed sends the next request when a reply has made room, with \
--pipeline requests in flight on each connection; that finds a server's speed and hides its stalls. Keys are \
hexadecimal digits spread over all vBuckets, values random bytes that are recognised when they come back, unless told \
otherwise. Successes, misses and errors are counted apart and are never in one histogram. Works against Settee, \
Couchbase, any memcached and Redis. Pin server and client to different cores when you compare servers, and interleave \
them.")]
#[command(after_help = "\
Operations of --mix:
  get set add replace cas append prepend delete incr decr touch mget subget subset rmw insert query
  (cas: read, then write if nobody else did; rmw: read, then write; insert: the next record that does not exist;
  incr and decr have counters of their own beside the records; mget: --multi keys; subget, subset: --path;
  query: rows of a view by HTTP, see --query)

Examples:
  settee load --populate --records 1000000 --value-bytes 1000 -u Administrator -p password
  settee load --rate 20000 --mix get=90,set=9,delete=1 --distribution zipf -u Administrator -p password
  settee load --closed --connections 50 --pipeline 16 --gets 100 -n 1000000 -u Administrator -p password
  settee load --search 'p99<=2ms' -n 1000000 --gets 80 ...            the highest rate that meets it
  settee load --rate 5000 --steps 5000:15 --objective 'p99.9<=5ms' ...
  settee load --key-file keys.csv --value text --rate 5000 --seconds 60 -u Administrator -p password
  settee load --mix subget=1 --value json --value-bytes 20000 ...     one field of large documents
  settee load --mix get=45,set=45,query=10 --query 'songs/electronic?key={key}' ...   queries beside the rest
  settee load --closed --gets 0 --durability persistToMajority -c 100 ...
  settee load -P workloads/workloada --stage load ...; settee load -P workloads/workloada --rate 10000 ...
  settee load -P loadtest.cfg --host 10.0.0.7 --historic              the historical generator's file and report
  settee load --rate 5000 --html report.html --hdr-log load.hlog ...
  settee load --protocol text --port 11211 --gets 0 --seconds 5       any memcached server
  settee load --protocol resp --closed --pipeline 16                  Redis
  settee load --gets 100 --server-pid $(pidof settee) --json ...      with the server's CPU time per operation

The load is explained in docs/load.md.")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    tool: Option<Tool>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    records: RecordArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    pace: PaceArgs,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    answers: AnswerArgs,
}

/// What is measured in another way than by operations.
#[derive(clap::Subcommand, Clone)]
enum Tool {
    Compare(Box<compare::CompareArgs>),
    Drain(drain::DrainArgs),
    Price(price::PriceArgs),
    Scaling(Box<scaling::ScalingArgs>),
    Worker(worker::WorkerArgs),
}

/// What a report of wrong documents goes on with. An earlier run with other flags is the usual cause.
const DIFFERENT: &str = "documents came back different from what this run would have stored. If an earlier run stored \
    them, give this one the same --value, --value-bytes, --keys and --seed; otherwise the server returned wrong data";

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if let Some(tool) = args.tool {
        return match tool {
            Tool::Compare(args) => compare::run(&args),
            Tool::Drain(args) => drain::run(&args),
            Tool::Price(args) => price::run(&args),
            Tool::Scaling(args) => scaling::run(&args),
            Tool::Worker(args) => worker::run(&args),
        };
    }
    let report = measure::measure(&args)?;
    if args.answers.json {
        println!("{}", report::json(&report));
    } else if !args.answers.historic {
        print!("{}", report::text(&report));
    }
    verdict(&args, &report)
}

/// Errors and wrong answers make the command fail: a script must not take the figure for good.
fn verdict(args: &Args, report: &report::Report) -> Result<(), Failure> {
    if report.corrupt() > 0 {
        let corrupt = report.corrupt();
        return Err(Failure(format!("{corrupt} {DIFFERENT}")));
    }
    let violations: Vec<_> =
        report.violations().into_iter().map(|(name, count)| format!("{count} {name}")).collect();
    if !violations.is_empty() {
        return Err(Failure(format!("documents were not what was acknowledged: {}", violations.join(", "))));
    }
    match report.refused() {
        // A user who has connections made again expects them to break.
        _ if args.pace.reconnect => Ok(()),
        None => Ok(()),
        Some((count, text)) => Err(Failure(format!("{count} operations failed, most of them with: {text}"))),
    }
}
