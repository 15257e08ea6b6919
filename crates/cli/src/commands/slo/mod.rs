//! `settee slo`: objectives of buckets ("99.9 % of gets within 2 ms over 28 days"), how they are met, and their rules for other tools.

mod export;

use std::str::FromStr;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use client::rest::percent;
use serde_json::Value;

use super::{
    Failure,
    cluster::{Access, failed},
};
use crate::table::table;

const EXAMPLES: &str = "\
EXAMPLES
  99.9 % of reads within 2 ms, over 28 days:
      settee slo set app reads --operation get --latency 2ms --target 99.9
  Durable writes, over a week:
      settee slo set app durable --operation durable --latency 20ms --target 99 --days 7
  How all of them are met, and one in detail:
      settee slo list
      settee slo show app reads
  For other tools:
      settee slo export --format prometheus > settee-slo.rules.yaml
      settee slo export --format openslo > settee-slo.yaml

BUDGET is what is left of the errors that the target allows over its period. BURN is how fast it is used: 1 uses all of it in one period.
STATE is met, burning (a burn rate calls for somebody), exhausted, or no data. It is the worst of what the server, its probes and clients see;
all other figures of the list are the server's.";

/// Set objectives of latency, and see how they are met
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Command {
    Set(SetArgs),
    List(ListArgs),
    Show(OneArgs),
    Rm(OneArgs),
    Export(ExportArgs),
}

/// Set or change an objective; what is left out stays as it is
#[derive(ClapArgs)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    one: One,

    /// Operations that it is about
    #[arg(long)]
    operation: Option<Operation>,

    /// How fast they are to be answered: 500us, 2ms, 1s
    #[arg(long, value_name = "TIME")]
    latency: Option<Latency>,

    /// How many percent of them
    #[arg(long, value_name = "PERCENT")]
    target: Option<f64>,

    /// Over how many days [default: 28]
    #[arg(long, value_name = "DAYS")]
    days: Option<u16>,

    #[command(flatten)]
    access: Access,
}

#[derive(Clone, Copy, ValueEnum)]
enum Operation {
    /// Reads of documents and of parts of them
    Get,
    /// Writes of documents and of parts of them, deletions too
    Set,
    /// Durable writes: the time until they have reached their level
    Durable,
}

/// Show all objectives, or those of a bucket
#[derive(ClapArgs)]
pub(crate) struct ListArgs {
    /// The bucket
    bucket: Option<String>,

    /// Print REST's own answer as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    access: Access,
}

#[derive(ClapArgs)]
struct One {
    /// The bucket
    bucket: String,

    /// The objective
    name: String,
}

/// One objective
#[derive(ClapArgs)]
pub(crate) struct OneArgs {
    #[command(flatten)]
    one: One,

    /// Print REST's own answer as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    access: Access,
}

/// Print all objectives for other tools
#[derive(ClapArgs)]
pub(crate) struct ExportArgs {
    /// What the tool reads
    #[arg(long, default_value = "prometheus")]
    format: Format,

    #[command(flatten)]
    access: Access,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Recording and alerting rules of Prometheus
    Prometheus,
    /// `OpenSLO` v1
    Openslo,
}

impl One {
    fn path(&self) -> String {
        format!("/settee/slo/{}/{}", percent(&self.bucket), percent(&self.name))
    }
}

/// A time in microseconds, from `500us`, `2ms` or `1s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Latency(u32);

impl FromStr for Latency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
        let found = units.into_iter().find_map(|(unit, micros)| Some((text.strip_suffix(unit)?, micros)));
        let micros = found.and_then(|(number, micros)| Some(number.trim().parse::<f64>().ok()? * micros));
        match micros {
            Some(micros) if micros >= 1.0 && micros <= f64::from(u32::MAX) => Ok(Self(micros.round() as u32)),
            _ => Err("a time such as 500us, 2ms or 1s".into()),
        }
    }
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Set(args) => set(&args),
        Command::List(args) => list(&args),
        Command::Show(args) => show(&args),
        Command::Rm(args) => remove(&args),
        Command::Export(args) => export(&args),
    }
}

fn set(args: &SetArgs) -> Result<(), Failure> {
    let session = args.access.open()?;
    let operation = args.operation.map(|operation| match operation {
        Operation::Get => "get",
        Operation::Set => "set",
        Operation::Durable => "durable",
    });
    let fields = [
        ("operation", operation.map(str::to_owned)),
        ("latencyUs", args.latency.map(|latency| latency.0.to_string())),
        ("targetPercent", args.target.map(|target| target.to_string())),
        ("periodDays", args.days.map(|days| days.to_string())),
    ];
    let given: Vec<(&str, &str)> =
        fields.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
    let put = session.rest.put(&args.one.path(), &given);
    put.map_err(|error| failed("the objective was not set", error))?;
    println!("{}/{} is set", args.one.bucket, args.one.name);
    Ok(())
}

fn remove(args: &OneArgs) -> Result<(), Failure> {
    let session = args.access.open()?;
    let removed = session.rest.delete(&args.one.path());
    removed.map_err(|error| failed("the objective was not removed", error))?;
    println!("{}/{} is removed", args.one.bucket, args.one.name);
    Ok(())
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let session = args.access.open()?;
    let bucket = args.bucket.as_deref().map(percent);
    let path = bucket.map_or("/settee/slo".into(), |bucket| format!("/settee/slo/{bucket}"));
    let answer = session.get(&path)?;
    if args.json {
        println!("{answer}");
        return Ok(());
    }
    let rows = objectives(&answer).map(row).collect();
    print!("{}", table(&COLUMNS, rows));
    missing(&answer);
    Ok(())
}

/// The objectives in an answer.
pub(super) fn objectives(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["objectives"].as_array().into_iter().flatten()
}

/// Says whose counts are not in the sums.
fn missing(answer: &Value) {
    let nodes: Vec<&str> =
        answer["missingNodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !nodes.is_empty() {
        println!("\nNot counted, since they did not answer: {}", nodes.join(", "));
    }
}

const COLUMNS: [&str; 8] =
    ["BUCKET", "NAME", "OBJECTIVE", "ATTAINED", "BUDGET", "BURN 1H", "BURN 3D", "STATE"];

fn row(one: &Value) -> Vec<String> {
    let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
    vec![
        text("bucket"),
        text("name"),
        asked(one),
        share(&one["attainedPercent"], 3),
        share(&one["budgetLeftPercent"], 1),
        rate(&one["burn"]["1h"]),
        rate(&one["burn"]["3d"]),
        state(one),
    ]
}

/// What sources outside of the server are called.
const OUTSIDE: [(&str, &str); 2] = [("probe", "probe"), ("sdk", "clients")];

/// The state of an objective, and who sees it so where it is not the server. A node of an older version does not say that.
pub(super) fn state(one: &Value) -> String {
    let state = one["state"].as_str().unwrap_or_default();
    match OUTSIDE.into_iter().find(|(source, _)| one["stateSource"] == *source) {
        Some((_, title)) => format!("{state} ({title})"),
        None => state.to_owned(),
    }
}

/// The objective in words.
fn asked(one: &Value) -> String {
    let micros = one["latencyUs"].as_u64().unwrap_or_default();
    let latency = match micros {
        short if short < 1_000 => format!("{short} us"),
        long => format!("{} ms", long as f64 / 1_000.0),
    };
    let operation = one["operation"].as_str().unwrap_or_default();
    format!("{} % of {operation} within {latency}, {} d", one["targetPercent"], one["periodDays"])
}

fn share(value: &Value, digits: usize) -> String {
    value.as_f64().map_or_else(|| "-".into(), |percent| format!("{percent:.digits$} %"))
}

fn rate(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".into(), |burn| format!("{burn:.1}"))
}

fn show(args: &OneArgs) -> Result<(), Failure> {
    let session = args.access.open()?;
    let one = session.get(&args.one.path())?;
    if args.json {
        println!("{one}");
        return Ok(());
    }
    println!("{}/{}: {}", args.one.bucket, args.one.name, asked(&one));
    println!("state      {}", state(&one));
    println!("events     {} of {} were good", one["events"]["good"], one["events"]["total"]);
    println!("attained   {}", share(&one["attainedPercent"], 4));
    println!("budget     {} left", share(&one["budgetLeftPercent"], 1));
    outside(&one).iter().for_each(|line| println!("{line}"));
    println!();
    print!("{}", rules(&one));
    for (title, seen) in burning_outside(&one) {
        println!("\nThe same, as seen by {title}");
        print!("{}", rules(seen));
    }
    missing(&one);
    Ok(())
}

/// The sources outside of the server by which a budget burns too fast.
fn burning_outside(one: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    let sources = OUTSIDE.into_iter().map(|(source, title)| (title, &one["seenFromOutside"][source]));
    sources
        .filter(|(_, seen)| seen["rules"].as_array().into_iter().flatten().any(|rule| rule["holds"] == true))
}

/// The rules, and how fast the budget burns by them.
fn rules(seen: &Value) -> String {
    let rules = seen["rules"].as_array().into_iter().flatten().map(|rule| {
        let text = |name: &str| rule[name].as_str().unwrap_or_default().to_owned();
        let (long, short) = (text("long"), text("short"));
        let (now_long, now_short) = (rate(&seen["burn"][&long]), rate(&seen["burn"][&short]));
        let holds = if rule["holds"] == true { "holds" } else { "" };
        vec![
            text("severity"),
            format!("{long} and {short} above {}", rate(&rule["burn"])),
            now_long,
            now_short,
            holds.into(),
        ]
    });
    table(&["RULE", "BURN RATE OVER", "LONG", "SHORT", ""], rules.collect())
}

/// What was seen of an objective outside of the server.
fn outside(one: &Value) -> Vec<String> {
    let seen =
        OUTSIDE.into_iter().filter_map(|(source, title)| Some((title, one["seenFromOutside"].get(source)?)));
    let line = |(title, seen): (&str, &Value)| {
        let (good, total) = (&seen["events"]["good"], &seen["events"]["total"]);
        let within = match seen["goodWithinUs"].as_u64() {
            Some(micros) => format!(" (good: within {} ms)", micros as f64 / 1_000.0),
            None => String::new(),
        };
        let state = seen["state"].as_str().unwrap_or_default();
        let attained = share(&seen["attainedPercent"], 4);
        format!("{title:<10} {attained}, {good} of {total}{within}, {state}")
    };
    seen.map(line).collect()
}

fn export(args: &ExportArgs) -> Result<(), Failure> {
    let session = args.access.open()?;
    let answer = session.get("/settee/slo")?;
    let objectives: Vec<export::Objective> = objectives(&answer).filter_map(export::Objective::of).collect();
    match args.format {
        Format::Prometheus => print!("{}", export::prometheus(&objectives)),
        Format::Openslo => print!("{}", export::openslo(&objectives)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_have_units_and_are_not_guessed() {
        for (text, micros) in [("500us", 500), ("2ms", 2_000), ("1.5ms", 1_500), ("1s", 1_000_000)] {
            assert_eq!(text.parse(), Ok(Latency(micros)), "{text}");
        }
        for wrong in ["2", "ms", "-1ms", "0us", "1h", "NaNms", "1e9s"] {
            assert!(wrong.parse::<Latency>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_clients_and_probes_saw_has_lines_of_its_own() {
        let seen = |good: u64| json!({ "events": { "good": good, "total": 8 }, "attainedPercent": 50.0, "state": "met" });
        let mut clients = seen(4);
        clients["goodWithinUs"] = 1_000.into();
        let one = json!({ "seenFromOutside": { "sdk": clients, "probe": seen(3) } });
        let expected =
            ["probe      50.0000 %, 3 of 8, met", "clients    50.0000 %, 4 of 8 (good: within 1 ms), met"];
        assert_eq!(outside(&one), expected);
        assert!(outside(&json!({})).is_empty());
    }

    #[test]
    fn a_budget_that_burns_by_probes_alone_is_shown_as_such() {
        let rule = |holds: bool| json!({ "severity": "page", "long": "6h", "short": "30m", "burn": 6.0, "holds": holds });
        let seen = |holds: bool| json!({ "burn": { "6h": 10.0, "30m": 40.0 }, "rules": [rule(holds)] });
        let mut one = seen(false);
        one["state"] = "exhausted".into();
        one["stateSource"] = "probe".into();
        one["seenFromOutside"] = json!({ "probe": seen(true), "sdk": seen(false) });
        assert_eq!(row(&one).last().map(String::as_str), Some("exhausted (probe)"));
        let shown: Vec<_> = burning_outside(&one).map(|(title, seen)| (title, rules(seen))).collect();
        let [("probe", table)] = &shown[..] else { panic!("{shown:?}") };
        assert!(table.contains("6h and 30m above 6.0") && table.contains("holds"), "{table}");
        one["stateSource"] = "server".into();
        assert_eq!(state(&one), "exhausted");
    }

    #[test]
    fn what_was_not_counted_is_shown_as_such() {
        let one = json!({
            "bucket": "b", "name": "n", "operation": "get", "latencyUs": 2500, "targetPercent": 99.9,
            "periodDays": 28, "attainedPercent": null, "budgetLeftPercent": 41.26, "burn": { "1h": 2.04 },
            "state": "burning",
        });
        let expected = ["b", "n", "99.9 % of get within 2.5 ms, 28 d", "-", "41.3 %", "2.0", "-", "burning"];
        assert_eq!(row(&one), expected);
    }
}
