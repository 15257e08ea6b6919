//! `settee load`: measures a server, or fills it.

use super::Failure;
use crate::load::records::KEY_BYTES_MIN;
use crate::load::{Driver, Latencies, Order, Phase, Protocol, Stop, SyntheticRecords, Tally, Target, Usage};
use crate::progress::Progress;
use base::limits;
use client::Login;
use serde_json::{Value, json};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Files beside the connections: standard streams, the poll, `/proc`.
const FILES_RESERVED: u64 = 16;

/// Measure a server with reads and writes, or fill it with records
#[derive(clap::Args)]
#[command(long_about = "Measure a server with reads and writes, or fill it with records.\n\n\
One thread drives all connections, each with --pipeline requests in flight (closed loop). Keys are hexadecimal \
digits spread over all vBuckets; values are random bytes that are recognised when they come back. Hits, misses and \
errors are counted apart; the rate is made of successes only. Pin server and client to different cores when you \
compare servers, and interleave them.")]
#[command(after_help = "\
Examples:
  settee load --populate --records 1000000 --value-bytes 1000 -u Administrator -p password
  settee load --gets 90 --connections 50 --pipeline 16 --records 1000000 --value-bytes 1000 \\
              -u Administrator -p password
  settee load --protocol text --port 11211 --gets 0 --seconds 5       any memcached server
  settee load --gets 100 --server-pid $(pidof settee) --json ...      with the server's CPU time per operation")]
pub(crate) struct Args {
    /// Address of the server, or of one node of the cluster
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port; 11210 for the couchbase protocol, 11211 for the others
    #[arg(long)]
    port: Option<u16>,
    /// What to speak
    #[arg(long, value_enum, default_value_t = Protocol::Couchbase)]
    protocol: Protocol,
    /// User name (couchbase protocol)
    #[arg(long, short = 'u', env = "SETTEE_USER")]
    user: Option<String>,
    /// Password
    #[arg(long, short = 'p', env = "SETTEE_PASSWORD", hide_env_values = true, requires = "user")]
    password: Option<String>,
    /// Bucket (couchbase protocol)
    #[arg(long, short = 'b', default_value = "default")]
    bucket: String,
    /// How many connections
    #[arg(long, short = 'c', default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    connections: u32,
    /// Requests in flight per connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pipeline: u32,
    /// How many records there are
    #[arg(long, short = 'n', default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,
    /// Bytes of each key
    #[arg(long, default_value_t = 36, value_parser = key_bytes)]
    key_bytes: usize,
    /// Bytes of each value: one number, or MIN-MAX for sizes that are uniform between them
    #[arg(long, default_value = "100")]
    value_bytes: Sizes,
    /// Write every record once instead of measuring
    #[arg(long, conflicts_with_all = ["gets", "seconds", "ops", "warmup"])]
    populate: bool,
    /// Percentage of reads; the rest are writes
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u8).range(..=100))]
    gets: u8,
    /// How long to measure
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Measure this many operations instead of a time
    #[arg(long, conflicts_with = "seconds")]
    ops: Option<u64>,
    /// Seconds of the same load before measuring
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    warmup: f64,
    /// Afterwards read back this many random records and compare them
    #[arg(long, default_value_t = 1000)]
    verify: u64,
    /// Also report what this process used meanwhile (CPU time per operation, memory)
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Sequence of keys and versions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Report as one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug)]
struct Sizes(RangeInclusive<usize>);

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Sizes, String> {
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        let number =
            |part: &str| part.parse::<usize>().map_err(|_| format!("{part:?} is no number of bytes"));
        let (min, max) = (number(min)?, number(max)?);
        if min > max || max > limits::VALUE_BYTES_MAX {
            return Err(format!("sizes go from small to large and up to {} bytes", limits::VALUE_BYTES_MAX));
        }
        Ok(Sizes(min..=max))
    }
}

fn key_bytes(text: &str) -> Result<usize, String> {
    let range = KEY_BYTES_MIN..=limits::KEY_BYTES_MAX;
    let number = text.parse().ok().filter(|bytes| range.contains(bytes));
    number.ok_or_else(|| format!("keys have {} to {} bytes", range.start(), range.end()))
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|s: &f64| s.is_finite() && (0.0..=1e6).contains(s));
    number.ok_or_else(|| "a number of seconds, such as 10 or 0.5".to_owned())
}

/// A finished measurement.
struct Report {
    tally: Tally,
    check: Option<Tally>,
    usage: Option<(Usage, Usage)>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let mut driver = connect(&args)?;
    let report = measure(&args, &mut driver).map_err(|error| Failure(error.to_string()))?;
    if args.json {
        println!("{}", report.json());
    } else {
        print!("{report}");
    }
    report.verdict()
}

fn connect(args: &Args) -> Result<Driver<SyntheticRecords>, Failure> {
    let files = server::limits::raise_file_limit();
    if u64::from(args.connections) + FILES_RESERVED > files {
        let (wanted, flag) = (args.connections, "`ulimit -n`");
        return Err(Failure(format!(
            "{wanted} connections need more than the {files} open files of {flag}: raise it"
        )));
    }
    let port = args.port.unwrap_or(if args.protocol == Protocol::Couchbase { 11210 } else { 11211 });
    let address = format!("{}:{port}", args.host);
    let login = Login {
        user: args.user.clone().map(|user| (user, args.password.clone().unwrap_or_default())),
        bucket: Some(args.bucket.clone()),
        collections: false,
    };
    let records = SyntheticRecords::new(args.key_bytes, args.value_bytes.0.clone());
    Target::discover(args.protocol, &address, login)
        .and_then(|target| Driver::connect(target, records, args.connections as usize))
        .map_err(|error| Failure(error.to_string()))
}

fn measure(args: &Args, driver: &mut Driver<SyntheticRecords>) -> Result<Report, crate::load::LoadError> {
    let measured = Phase {
        records: args.records,
        order: if args.populate { Order::Each } else { Order::Random },
        stop: match args.ops {
            _ if args.populate => Stop::All,
            Some(ops) => Stop::Ops(ops),
            None => Stop::Time(Duration::from_secs_f64(args.seconds)),
        },
        get_percent: if args.populate { 0 } else { args.gets },
        pipeline: args.pipeline as usize,
        check_every: 16,
        seed: args.seed,
    };
    if !args.populate && args.warmup > 0.0 {
        let stop = Stop::Time(Duration::from_secs_f64(args.warmup));
        driver.run(&Phase { stop, seed: args.seed ^ 0x3a3a, ..measured }, |_| ())?;
    }
    let before = args.server_pid.and_then(Usage::of);
    let mut progress = args.populate.then(|| Progress::start("filling", args.records));
    let tally = driver.run(&measured, |tally| {
        if let Some(progress) = &mut progress {
            progress.set(tally.done());
        }
    })?;
    if let Some(progress) = progress {
        progress.finish();
    }
    let usage = before.zip(args.server_pid.and_then(Usage::of));
    let check = Phase {
        order: Order::Random,
        stop: Stop::Ops(args.verify),
        get_percent: 100,
        check_every: 1,
        seed: args.seed ^ 0x5c5c,
        ..measured
    };
    let check = if args.verify > 0 { Some(driver.run(&check, |_| ())?) } else { None };
    Ok(Report { tally, check, usage })
}

impl Report {
    /// CPU time of the server per successful operation, in microseconds.
    fn cpu_us_per_op(&self) -> Option<f64> {
        let (before, after) = self.usage?;
        let used = after.cpu_seconds - before.cpu_seconds;
        (self.tally.done() > 0).then(|| used * 1e6 / self.tally.done() as f64)
    }

    fn corrupt(&self) -> u64 {
        self.tally.corrupt + self.check.as_ref().map_or(0, |check| check.corrupt)
    }

    /// Errors and wrong answers make the command fail: a script must not take the figure for good.
    fn verdict(&self) -> Result<(), Failure> {
        if self.corrupt() > 0 {
            return Err(Failure(format!(
                "{} documents came back different from what was stored",
                self.corrupt()
            )));
        }
        let errors = self.tally.errors + self.check.as_ref().map_or(0, |check| check.errors);
        if errors == 0 {
            return Ok(());
        }
        let first = [Some(&self.tally), self.check.as_ref()].into_iter().flatten();
        let first = first.filter_map(|tally| tally.first_error.as_deref()).next().unwrap_or("");
        Err(Failure(format!("{errors} operations were refused, the first with: {first}")))
    }

    fn json(&self) -> Value {
        let latencies = |l: &Latencies| {
            json!({"mean": l.mean_us(), "p50": l.percentile_us(50.0), "p99": l.percentile_us(99.0),
                   "p99.9": l.percentile_us(99.9), "max": l.max_us()})
        };
        let tally = &self.tally;
        json!({
            "seconds": tally.elapsed.as_secs_f64(), "ops": tally.done(), "ops_per_sec": tally.ops_per_sec(),
            "hits": tally.hits, "misses": tally.misses, "stored": tally.stored,
            "temporary_failures": tally.temporary, "errors": tally.errors, "corrupt": self.corrupt(),
            "bytes": tally.bytes,
            "read_us": latencies(&tally.read_latencies), "write_us": latencies(&tally.write_latencies),
            "server_cpu_us_per_op": self.cpu_us_per_op(),
            "server_cpu_seconds": self.usage.map(|(before, after)| after.cpu_seconds - before.cpu_seconds),
            "server_rss_bytes": self.usage.map(|(_, after)| after.rss_bytes),
            "verified": self.check.as_ref().map(|check| json!({"hits": check.hits, "misses": check.misses})),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.tally;
        let seconds = tally.elapsed.as_secs_f64();
        writeln!(f, "{} operations in {seconds:.2} s: {:.0} ops/s", tally.done(), tally.ops_per_sec())?;
        writeln!(
            f,
            "  hits {}, misses {}, stored {}, temporary failures {} (retried), errors {}",
            tally.hits, tally.misses, tally.stored, tally.temporary, tally.errors
        )?;
        let rows = [
            ("read", tally.hits + tally.misses, &tally.read_latencies),
            ("write", tally.stored, &tally.write_latencies),
        ];
        for (name, count, latencies) in rows {
            if count > 0 {
                writeln!(
                    f,
                    "  {name:<5} latency, us: mean {:.0}, p50 {:.0}, p99 {:.0}, p99.9 {:.0}, max {:.0}",
                    latencies.mean_us(),
                    latencies.percentile_us(50.0),
                    latencies.percentile_us(99.0),
                    latencies.percentile_us(99.9),
                    latencies.max_us()
                )?;
            }
        }
        if let (Some(cpu), Some((_, after))) = (self.cpu_us_per_op(), self.usage) {
            writeln!(
                f,
                "  server: {cpu:.2} us of CPU per operation, {:.1} MiB resident",
                after.rss_bytes as f64 / 1048576.0
            )?;
        }
        if let Some(check) = &self.check {
            writeln!(
                f,
                "  read back: {} as stored, {} absent, {} wrong",
                check.hits - check.corrupt,
                check.misses,
                check.corrupt
            )?;
        }
        Ok(())
    }
}
