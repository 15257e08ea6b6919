//! The flags of `settee load`: their manual, and what they mean to the load generator.

use super::super::Failure;
use crate::songs::Songs;
use base::bucket::DurabilityLevel;
use base::limits;
use client::{Login, with_port};
use load::conduct::{self, Conductor, Objective};
use load::keys::{HEX_BYTES_MIN, KeyFile, KeyForm};
use load::profile::Profile;
use load::values::{Dataset, Sizes, ValueKind};
use load::{Choice, Mix, OnBreak, Op, Pace, Phase, Protocol, Records, Settings, Stop, Target};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Rate of an open loop that was given none: the historical generator's default.
const RATE_DEFAULT: f64 = 5000.0;
/// Length of a tick: four operations at 20,000 per second, and less than what the wake-up of an idle process costs.
const TICK_US: u32 = 200;
/// How long is measured unless something else says so.
const SECONDS_DEFAULT: Duration = Duration::from_secs(10);
/// Where a search begins.
const SEARCH_FROM: f64 = 1000.0;
/// A run that ends by what it finds ends after this long if it finds nothing.
pub(super) const UNBOUNDED: Duration = Duration::from_secs(24 * 3600);

/// Whom the load is for.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Target")]
pub(crate) struct TargetArgs {
    /// Address of the server, or of one node of the cluster [default: the first host of SETTEE_HOST, or 127.0.0.1]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) host: Option<String>,
    /// Port, where --host names none; 11210 for the couchbase protocol, 11211 for memcached's, 6379 for resp
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// What to speak [default: couchbase]
    #[arg(long, value_enum)]
    pub(crate) protocol: Option<ProtocolArg>,
    /// User name (couchbase protocol); SETTEE_USERNAME does as well
    #[arg(long, short = 'u', env = "SETTEE_USER")]
    pub(crate) user: Option<String>,
    /// Password
    #[arg(long, short = 'p', env = "SETTEE_PASSWORD", hide_env_values = true)]
    pub(crate) password: Option<String>,
    /// Bucket (couchbase protocol) [default: default]
    #[arg(long, short = 'b')]
    pub(crate) bucket: Option<String>,
    /// Collection (couchbase protocol)
    #[arg(long, value_name = "SCOPE.COLLECTION")]
    pub(crate) collection: Option<String>,
    /// Have replies come in the order of requests (couchbase protocol). SDKs do not ask for that: a request that waits for
    /// the disk then holds up those behind it
    #[arg(long)]
    pub(crate) ordered: bool,
}

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProtocolArg {
    /// Binary with authentication, bucket and vBuckets (port 11210)
    Couchbase,
    /// Plain memcached binary (port 11211)
    Binary,
    /// Plain memcached text (port 11211)
    Text,
    /// Redis' protocol (port 6379)
    Resp,
}

impl From<ProtocolArg> for Protocol {
    fn from(protocol: ProtocolArg) -> Protocol {
        match protocol {
            ProtocolArg::Couchbase => Protocol::Couchbase,
            ProtocolArg::Binary => Protocol::Binary,
            ProtocolArg::Text => Protocol::Text,
            ProtocolArg::Resp => Protocol::Resp,
        }
    }
}

impl From<Protocol> for ProtocolArg {
    fn from(protocol: Protocol) -> ProtocolArg {
        match protocol {
            Protocol::Couchbase => ProtocolArg::Couchbase,
            Protocol::Binary => ProtocolArg::Binary,
            Protocol::Text => ProtocolArg::Text,
            Protocol::Resp => ProtocolArg::Resp,
        }
    }
}

impl TargetArgs {
    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        let host = self.host.clone().or_else(|| first_host(&std::env::var("SETTEE_HOST").ok()?));
        with_port(host.as_deref().unwrap_or("127.0.0.1"), self.port.unwrap_or(self.protocol().port()))
    }

    /// The user that sends the load, if one does. The variable that is looked at last is that of other commands.
    pub(crate) fn user(&self) -> Option<String> {
        let is_asked_for = || self.protocol() == Protocol::Couchbase;
        self.user.clone().or_else(|| std::env::var("SETTEE_USERNAME").ok().filter(|_| is_asked_for()))
    }

    /// What is spoken.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol.map_or(Protocol::Couchbase, Protocol::from)
    }

    /// Takes over what a property file says, where no flag says otherwise.
    pub(super) fn complete(&mut self, profile: &Profile) {
        if let Some((host, port)) = &profile.address {
            self.port = self.port.or(port.filter(|_| self.host.is_none() && self.protocol.is_none()));
            self.host.get_or_insert_with(|| host.clone());
        }
        self.protocol = self.protocol.or(profile.protocol.map(ProtocolArg::from));
        if let Some((bucket, password)) = &profile.bucket {
            self.bucket.get_or_insert_with(|| bucket.clone());
            if self.user.is_none() && !password.is_empty() {
                (self.user, self.password) = (Some(bucket.clone()), Some(password.clone()));
            }
        }
    }

    fn login(&self) -> Login {
        Login {
            user: self.user().map(|user| (user, self.password.clone().unwrap_or_default())),
            bucket: Some(self.bucket.clone().unwrap_or_else(|| "default".to_owned())),
            collections: false,
        }
    }

    /// Finds the server; `traced` has it say how long it took.
    pub(crate) fn discover(&self, traced: bool) -> Result<Target, Failure> {
        let failed = |error: load::LoadError| Failure(error.to_string());
        let target = Target::discover(self.protocol(), &self.address(), self.login()).map_err(failed)?;
        let target = target.traced(traced).in_order(self.ordered);
        let Some(path) = &self.collection else { return Ok(target) };
        let (scope, collection) = path.split_once('.').unwrap_or(("_default", path));
        target.in_collection(scope, collection).map_err(failed)
    }
}

/// What is stored and read.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Records")]
pub(crate) struct RecordArgs {
    /// How many records there are [default: 100000, or as many as --key-file has]
    #[arg(long, short = 'n', value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) records: Option<u64>,
    /// How numbers become keys: hex (spread over all vBuckets), decimal or decimal:WIDTH, ycsb (hashed), historic (the
    /// historical generator's hash), uuid, guid
    #[arg(long, default_value = "hex", value_name = "RULE", value_parser = key_rule)]
    pub(crate) keys: KeyRule,
    /// Real keys, one a line, instead of made ones; mapped into memory
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// In front of every key
    #[arg(long, default_value = "")]
    pub(crate) key_prefix: String,
    /// Bytes of each hex key
    #[arg(long, default_value_t = 36, value_parser = key_bytes)]
    pub(crate) key_bytes: usize,
    /// What values are: random bytes, ascii, text, json, fields:COUNT:LENGTH (YCSB's record), or songs (keys and
    /// documents of `settee songs`). Text is words, 2.2 KiB of them unless --value-bytes says otherwise. JSON has a
    /// version, a body, and `field` at the end
    #[arg(long, default_value = "random", value_name = "KIND")]
    pub(crate) value: ValueArg,
    /// Bytes of each value: one number, or MIN-MAX for sizes that are uniform between them. It may also be a
    /// histogram of such bands with weights, as 100:50,1000-2000:30 [default: 100]
    #[arg(long, value_name = "SIZES")]
    pub(crate) value_bytes: Option<Sizes>,
    /// A JSON document in a file whose {{key}}, {{index}}, {{version}}, {{text:N}}, {{hex:N}} and {{int:A-B}} are filled in
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    pub(crate) template: Option<PathBuf>,
}

/// A rule for keys, before the length is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRule {
    Hex,
    Decimal(usize),
    Ycsb,
    Historic,
    Uuid,
    Guid,
}

fn key_rule(text: &str) -> Result<KeyRule, String> {
    let (name, width) = text.split_once(':').unwrap_or((text, "0"));
    Ok(match name {
        "hex" => KeyRule::Hex,
        "decimal" => {
            let width = width.parse().ok().filter(|width| *width <= 200);
            KeyRule::Decimal(width.ok_or_else(|| "decimal:WIDTH takes a width up to 200".to_owned())?)
        }
        "ycsb" => KeyRule::Ycsb,
        "historic" => KeyRule::Historic,
        "uuid" => KeyRule::Uuid,
        "guid" => KeyRule::Guid,
        _ => return Err("keys are hex, decimal, ycsb, historic, uuid or guid".to_owned()),
    })
}

fn key_bytes(text: &str) -> Result<usize, String> {
    let range = HEX_BYTES_MIN..=limits::KEY_BYTES_MAX;
    let number = text.parse().ok().filter(|bytes| range.contains(bytes));
    number.ok_or_else(|| format!("keys have {} to {} bytes", range.start(), range.end()))
}

/// A kind of values, before the size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueArg {
    Random,
    Ascii,
    Text,
    Json,
    Fields(usize, usize),
    Songs,
}

impl FromStr for ValueArg {
    type Err = String;

    fn from_str(text: &str) -> Result<ValueArg, String> {
        Ok(match text {
            "random" => ValueArg::Random,
            "ascii" => ValueArg::Ascii,
            "text" => ValueArg::Text,
            "json" => ValueArg::Json,
            "songs" => ValueArg::Songs,
            _ => {
                let numbers = text.strip_prefix("fields:").and_then(|rest| rest.split_once(':'));
                let numbers =
                    numbers.and_then(|(count, length)| Some((count.parse().ok()?, length.parse().ok()?)));
                let fits = |&(count, length): &(usize, usize)| {
                    count.saturating_mul(length.saturating_add(16)) < limits::VALUE_BYTES_MAX
                };
                let (count, length) = numbers.filter(fits).ok_or_else(|| {
                    "values are random, ascii, text, json, fields:COUNT:LENGTH (up to 20 MiB) or songs"
                        .to_owned()
                })?;
                ValueArg::Fields(count, length)
            }
        })
    }
}

/// Of "random text of 2.2 KiB".
const TEXT_BYTES: usize = 2253;

impl RecordArgs {
    /// The records, and how many there are.
    pub(crate) fn records(&self) -> Result<(Arc<dyn Records>, u64), Failure> {
        const RECORDS_DEFAULT: u64 = 100_000;
        if self.value == ValueArg::Songs {
            let count = self.records.unwrap_or(crate::songs::FULL_SET).min(crate::songs::COUNT_MAX);
            return Ok((Arc::new(Songs::new(super::super::songs_load::SEED_DEFAULT)), count));
        }
        let keys = match &self.key_file {
            Some(path) => {
                let file = KeyFile::open(path).map_err(|error| {
                    Failure::doing(format_args!("cannot use the keys of {}", path.display()), error)
                })?;
                KeyForm::File(Arc::new(file))
            }
            None => match self.keys {
                KeyRule::Hex => KeyForm::Hex(self.key_bytes),
                KeyRule::Decimal(width) => KeyForm::Decimal(width),
                KeyRule::Ycsb => KeyForm::Fnv64,
                KeyRule::Historic => KeyForm::Historic,
                KeyRule::Uuid => KeyForm::Uuid,
                KeyRule::Guid => KeyForm::Guid,
            },
        };
        let count = match &keys {
            KeyForm::File(file) => self.records.unwrap_or(file.len()).min(file.len()),
            _ => self.records.unwrap_or(RECORDS_DEFAULT),
        };
        Ok((Arc::new(Dataset::new(&self.key_prefix, keys, self.kind()?)), count))
    }

    fn kind(&self) -> Result<ValueKind, Failure> {
        let sizes = |default: usize| match &self.value_bytes {
            Some(sizes) => Ok(sizes.clone()),
            None => Sizes::uniform(default, default).map_err(Failure),
        };
        if let Some(path) = &self.template {
            let what = format!("cannot use the template {}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| Failure::doing(&what, error))?;
            let template = text.trim_end().parse().map_err(|error: String| Failure::doing(&what, error))?;
            return Ok(ValueKind::Template(template));
        }
        Ok(match self.value {
            ValueArg::Random | ValueArg::Songs => ValueKind::Random(sizes(100)?),
            ValueArg::Ascii => ValueKind::Ascii(sizes(100)?),
            ValueArg::Text => ValueKind::Text(sizes(TEXT_BYTES)?),
            ValueArg::Json => ValueKind::Json(sizes(100)?),
            ValueArg::Fields(count, length) => {
                ValueKind::Fields { count, lengths: Sizes::uniform(length, length).map_err(Failure)? }
            }
        })
    }
}

/// What is done.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Work")]
pub(crate) struct WorkArgs {
    /// Operations with weights, as get=90,set=9,delete=1; see the list below
    #[arg(long, conflicts_with = "gets")]
    pub(crate) mix: Option<Mix>,
    /// Percentage of reads; the rest are writes
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u8).range(..=100))]
    pub(crate) gets: u8,
    /// Write every record once instead of measuring
    #[arg(long, conflicts_with_all = ["gets", "mix", "seconds", "ops", "warmup"])]
    pub(crate) populate: bool,
    /// Which record is next: uniform, zipf or zipf:EXPONENT (scrambled), latest or latest:EXPONENT, exponential or
    /// exponential:PERCENT:SHARE, sequential, each (once), hot:SIZE, hot:SIZE:CHURN, hot:SIZE:CHURN:SHARE. With
    /// exponential, PERCENT of the operations are on that share of the records, the newest. Of hot records one is
    /// exchanged every CHURN operations
    #[arg(long, default_value = "uniform", value_parser = choice)]
    pub(crate) distribution: Choice,
    /// Keys of each mget
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) multi: u16,
    /// Path of subget and subset
    #[arg(long, default_value = "field")]
    pub(crate) path: String,
    /// Rows that query asks for: DESIGN/VIEW and parameters. {key} stands for the key of a record, as JSON
    #[arg(
        long,
        value_name = "ROWS",
        default_value = "songs/electronic?startkey={key}&limit=20&reduce=false"
    )]
    pub(crate) query: String,
    /// Expiry of what is written, and of touch: seconds, 0 for none
    #[arg(long, default_value_t = 0)]
    pub(crate) expiry: u32,
    /// When writes may be acknowledged (couchbase protocol)
    #[arg(long, value_enum)]
    pub(crate) durability: Option<DurabilityArg>,
    /// After how long the server gives a durable write up
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u16).range(1..=65534))]
    pub(crate) durability_timeout: Option<u16>,
}

/// How far a write must have travelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "camelCase")]
pub(crate) enum DurabilityArg {
    /// In the memory of a majority
    Majority,
    /// In the memory of a majority, on the disk of the active
    MajorityAndPersistActive,
    /// On the disks of a majority
    PersistToMajority,
}

fn choice(text: &str) -> Result<Choice, String> {
    let mut words = text.split(':');
    let name = words.next().unwrap_or_default();
    let numbers: Vec<f64> = words
        .map(|word| word.parse().ok().filter(|number: &f64| *number >= 0.0 && *number <= 1e15))
        .collect::<Option<_>>()
        .ok_or_else(|| format!("{text:?} has something that is no number"))?;
    let number = |at: usize, default: f64| numbers.get(at).copied().unwrap_or(default);
    Ok(match name {
        "uniform" => Choice::Uniform,
        "zipf" => Choice::Zipf { theta: number(0, 0.99) },
        "latest" => Choice::Latest { theta: number(0, 0.99) },
        "sequential" => Choice::Sequential,
        "exponential" => Choice::Exponential {
            percent: number(0, 95.0).clamp(1.0, 99.999),
            share: number(1, 0.857_142_857_1).max(1e-9),
        },
        "each" => Choice::Each,
        "hot" if !numbers.is_empty() => Choice::HotSet {
            size: number(0, 1.0).clamp(1.0, 1e8) as u64,
            churn_every: number(1, 0.0) as u64,
            share: number(2, 1.0),
        },
        _ => {
            return Err(
                "distributions are uniform, zipf, latest, sequential, exponential, each and hot:SIZE"
                    .to_owned(),
            );
        }
    })
}

impl WorkArgs {
    /// The mix of operations.
    pub(crate) fn mix(&self) -> Result<Mix, Failure> {
        match &self.mix {
            _ if self.populate => Ok(Mix::only(Op::Set)),
            Some(mix) => Ok(mix.clone()),
            None => {
                let reads = f64::from(self.gets);
                Mix::new(&[(Op::Get, reads), (Op::Set, 100.0 - reads)]).map_err(Failure)
            }
        }
    }

    fn settings(&self) -> Settings {
        let level = self.durability.map(|level| match level {
            DurabilityArg::Majority => DurabilityLevel::Majority,
            DurabilityArg::MajorityAndPersistActive => DurabilityLevel::MajorityAndPersistActive,
            DurabilityArg::PersistToMajority => DurabilityLevel::PersistToMajority,
        });
        Settings {
            expiry: self.expiry,
            durability: level.map(|level| (level, self.durability_timeout)),
            path: self.path.clone().into_bytes(),
            ..Settings::default()
        }
    }
}

/// When, over what, and for how long.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Pace")]
pub(crate) struct PaceArgs {
    /// Operations per second, due at times that do not depend on the answers; latency counts from there [default: 5000]
    #[arg(long, short = 'r', value_name = "OPS", value_parser = rate, conflicts_with = "closed")]
    pub(crate) rate: Option<f64>,
    /// Gaps between operations as of independent users instead of even ones
    #[arg(long, conflicts_with = "closed")]
    pub(crate) poisson: bool,
    /// What is due within the same so many microseconds is due at their beginning, together: one wake-up of the client
    /// for all of it. Latency counts from there, so nothing is late by that. 0: each operation at a time of its own, at
    /// two to three times the client's CPU
    #[arg(long, value_name = "MICROSECONDS", default_value_t = TICK_US, value_parser = clap::value_parser!(u32).range(..=1_000_000), conflicts_with = "closed")]
    pub(crate) tick: u32,
    /// Look for answers and for what is due all the time instead of sleeping: no wake-ups in the latencies, a core per
    /// thread
    #[arg(long)]
    pub(crate) spin: bool,
    /// Change the rate evenly from --rate to this one, over so many seconds
    #[arg(long, value_name = "RATE:SECONDS", value_parser = rate_and_seconds, conflicts_with_all = ["closed", "steps", "search"])]
    pub(crate) ramp: Option<(f64, f64)>,
    /// So many operations per second more every so many seconds, until --objective breaks or --seconds are over
    #[arg(long, value_name = "RATE:SECONDS", value_parser = rate_and_seconds, conflicts_with_all = ["closed", "search"])]
    pub(crate) steps: Option<(f64, f64)>,
    /// What --steps must meet, as p99<=2ms
    #[arg(long, requires = "steps")]
    pub(crate) objective: Option<Objective>,
    /// Find the highest rate that meets an objective, as p99<=2ms: twice as much until it breaks, then halfway between
    #[arg(long, value_name = "OBJECTIVE", conflicts_with = "closed")]
    pub(crate) search: Option<Objective>,
    /// Length of a step of --search
    #[arg(long, default_value_t = 4.0, value_parser = seconds, value_name = "SECONDS")]
    pub(crate) search_seconds: f64,
    /// Take orders from a file that is looked at every second, or from standard input (-): a rate, +N, -N, pause, stop
    #[arg(long, value_name = "FILE", conflicts_with = "closed")]
    pub(crate) control: Option<PathBuf>,
    /// Seconds between two lines of the live view, and the grain of everything over time
    #[arg(long, default_value_t = 1.0, value_parser = interval, value_name = "SECONDS")]
    pub(crate) interval: f64,
    /// Closed loop: the next operation when an answer has made room. Measures speed, hides stalls
    #[arg(long)]
    pub(crate) closed: bool,
    /// How many connections [default: 50]
    #[arg(long, short = 'c', value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub(crate) connections: Option<u32>,
    /// Requests in flight per connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) pipeline: u32,
    /// Threads that share the connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// Have these workers do it as one run; connections and rate are the whole run's. See `settee load worker`
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub(crate) workers: Vec<String>,
    /// Start so many worker processes here and have them do it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) processes: Option<u16>,
    /// How long to measure [default: 10, or until the steps end]
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Measure this many operations instead of a time
    #[arg(long, conflicts_with = "seconds")]
    pub(crate) ops: Option<u64>,
    /// Seconds of the same load before measuring
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) warmup: f64,
    /// An answer that takes longer than this many seconds breaks the connection
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<f64>,
    /// Make broken connections again and count what was under way as errors, instead of ending the run
    #[arg(long)]
    pub(crate) reconnect: bool,
    /// Sequence of keys and versions
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|s: &f64| s.is_finite() && (0.0..=1e6).contains(s));
    number.ok_or_else(|| "a number of seconds, such as 10 or 0.5".to_owned())
}

fn rate_and_seconds(text: &str) -> Result<(f64, f64), String> {
    let (left, right) = text.split_once(':').ok_or("a rate and seconds, such as 5000:15")?;
    Ok((rate(left)?, seconds(right)?))
}

fn interval(text: &str) -> Result<f64, String> {
    seconds(text)
        .ok()
        .filter(|s| (0.01..=3600.0).contains(s))
        .ok_or_else(|| "0.01 to 3600 seconds".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|rate: &f64| *rate > 0.0 && *rate <= 1e9);
    number.ok_or_else(|| "a number of operations per second, such as 5000".to_owned())
}

/// Answers that never come would keep a run that makes connections again from ending.
const TIMEOUT_RECONNECTING: f64 = 10.0;

impl PaceArgs {
    /// The rate of an open loop; `None` for a closed one.
    pub(crate) fn rate(&self, populating: bool) -> Option<f64> {
        let closed = self.closed || (populating && self.rate.is_none());
        let default = if self.search.is_some() { SEARCH_FROM } else { RATE_DEFAULT };
        (!closed).then(|| self.rate.unwrap_or(default))
    }

    /// What changes the rate in steps, if that is asked for; `interval` is the run's, in seconds.
    pub(crate) fn conductor(&self, interval: f64) -> Option<Conductor> {
        let rate = self.rate.unwrap_or(RATE_DEFAULT);
        let intervals = |seconds: f64| (seconds / interval).round().max(2.0) as u64;
        if let Some(objective) = self.search {
            let (rate, steps) = (self.rate.unwrap_or(SEARCH_FROM), intervals(self.search_seconds));
            return Some(Conductor::new(conduct::Plan::Search { objective }, rate, steps, interval));
        }
        let (by, seconds) = self.steps?;
        let plan = conduct::Plan::Steps { by, to: f64::INFINITY, objective: self.objective };
        Some(Conductor::new(plan, rate, intervals(seconds), interval))
    }

    /// What is measured.
    pub(crate) fn phase(&self, work: &WorkArgs, records: u64, protocol: Protocol) -> Result<Phase, Failure> {
        let mix = work.mix()?;
        if let Some((op, why)) = mix.ops().find_map(|op| Some((op, protocol.lacks(op)?))) {
            return Err(Failure(format!("{} is not possible: {why}", op.name())));
        }
        if work.durability.is_some() && protocol != Protocol::Couchbase {
            return Err(Failure("--durability needs the couchbase protocol".to_owned()));
        }
        let timeout = self.timeout.or(self.reconnect.then_some(TIMEOUT_RECONNECTING));
        let grows = mix.ops().any(|op| matches!(op, Op::Append | Op::Prepend));
        Ok(Phase {
            mix,
            choice: if work.populate { Choice::Each } else { work.distribution },
            pace: match self.rate(work.populate) {
                None => Pace::Closed,
                Some(_) if self.poisson => Pace::Poisson,
                Some(_) => Pace::Even,
            },
            tick: Duration::from_micros(u64::from(self.tick)),
            spin: self.spin,
            stop: match self.ops {
                _ if work.populate => Stop::All,
                Some(ops) => Stop::Ops(ops),
                None => match self.seconds {
                    Some(seconds) => Stop::Time(Duration::from_secs_f64(seconds)),
                    None if self.search.is_some() || self.steps.is_some() => Stop::Time(UNBOUNDED),
                    None => Stop::Time(SECONDS_DEFAULT),
                },
            },
            pipeline: self.pipeline as usize,
            multi: usize::from(work.multi),
            // What was appended to cannot be told from damage.
            check_every: if grows { 0 } else { 16 },
            settings: work.settings(),
            timeout: timeout.filter(|seconds| *seconds > 0.0).map(Duration::from_secs_f64),
            on_break: if self.reconnect { OnBreak::Reconnect } else { OnBreak::Fail },
            interval: Duration::from_secs_f64(self.interval),
            seed: self.seed,
            ..Phase::of(Op::Get, records)
        })
    }
}

/// What is told.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Answers")]
pub(super) struct AnswerArgs {
    /// Validate: values carry who wrote them and when, every read is held against what this run acknowledged, and at the
    /// end every record is read. Lost, stale, resurrected, torn and foreign documents fail the run, with their history.
    /// Start from an empty bucket or from any; not with append, prepend, incr, decr, touch, subset, insert
    #[arg(long)]
    pub(super) validate: bool,
    /// Afterwards read back this many random records and compare them
    #[arg(long, default_value_t = 1000)]
    pub(super) verify: u64,
    /// Also report what this process, or these together, used meanwhile (CPU time per operation, memory)
    #[arg(long, value_delimiter = ',', value_name = "PIDS")]
    pub(super) server_pid: Vec<u32>,
    /// Explain where the time went. The server says how long it took, and the kernel when it received each reply. The
    /// report tells in sentences what this machine did meanwhile
    #[arg(long)]
    pub(super) explain: bool,
    /// Have the server say how long it took for each operation (couchbase protocol)
    #[arg(long)]
    pub(super) trace: bool,
    /// Report as one line of JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Print what the historical generator printed, from exact samples, while running and at the end. Where a property
    /// file of that generator names an `exportfile`, the report is written there in any case
    #[arg(long, conflicts_with = "json")]
    pub(super) historic: bool,
    /// With its two known quirks: percentiles one row too high, the last line counted twice; and endings mixed
    #[arg(long, requires = "historic")]
    pub(super) historic_quirks: bool,
    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write rows for spreadsheets: by operation, then over time
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Write a row per operation while running: FILE.0, FILE.1, ..., one for each thread. Columns: milliseconds since 1970,
    /// milliseconds it took, operation, 200 or 404 or 500, nanoseconds it took, record, nanosecond of the run it began at
    #[arg(long, value_name = "FILE")]
    pub(super) journal: Option<PathBuf>,
    /// Write a log of whole histograms in HdrHistogram's format
    #[arg(long, value_name = "FILE")]
    pub(super) hdr_log: Option<PathBuf>,
    /// Print nothing while running
    #[arg(long, short = 'q')]
    pub(super) quiet: bool,
}

/// The host that other commands ask first, which name it with the port of REST.
fn first_host(addresses: &str) -> Option<String> {
    let first = addresses.split(',').next()?.trim();
    let first = first.split_once("://").map_or(first, |(_, rest)| rest);
    let host = match first.rsplit_once(':') {
        Some((host, _)) if !host.contains(':') || host.ends_with(']') => host,
        _ => first,
    };
    (!host.is_empty()).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        target: TargetArgs,
    }

    #[test]
    fn the_host_of_other_commands_is_known_without_the_port_of_rest() {
        let found = |addresses: &str| first_host(addresses).unwrap_or_default();
        assert_eq!(found("10.0.0.1:8091,10.0.0.2:8091"), "10.0.0.1");
        assert_eq!(found("https://db1.example:18091"), "db1.example");
        assert_eq!((found("[::1]:8091"), found("::1")), ("[::1]".into(), "::1".into()));
        assert_eq!((found("db1"), found("")), ("db1".into(), String::new()));
    }

    #[test]
    fn a_port_that_is_missing_is_that_of_what_is_spoken() {
        let address = |flags: &str| {
            Program::parse_from(["load"].into_iter().chain(flags.split_whitespace())).target.address()
        };
        for (flags, expected) in [
            ("", "127.0.0.1:11210"),
            ("--host db", "db:11210"),
            ("--host db --protocol text", "db:11211"),
            ("--host db --port 99", "db:99"),
            ("--host db:7 --port 99", "db:7"),
            ("--host ::1", "[::1]:11210"),
        ] {
            assert_eq!(address(flags), expected, "{flags}");
        }
    }
}
