//! `settee status`: one screen that says whether a cluster is well, and why not.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::{
    cluster::{Access, Session, Unshown},
    slo,
};
use crate::{outlook, table::table};

/// Say whether a cluster is well
#[derive(ClapArgs)]
#[command(after_help = "\
EXIT CODES
  0  healthy
  1  warnings: an alert, a node that warms up, copies that a rebalance has yet to make
  2  unhealthy: a critical alert, a node that is not heard of, or no node that answers
  3  not known: a node answers, and does not let you see it (a wrong password, a missing right)

EXAMPLES
  settee status -u admin
  settee status --json -u admin | jq .problems
  settee status -u admin >/dev/null; [ $? -eq 2 ] && page-somebody")]
pub(crate) struct Args {
    #[command(flatten)]
    access: Access,

    /// Print one JSON object: health, problems, nodes, buckets, alerts, objectives, silences, forecasts
    #[arg(long)]
    json: bool,
}

/// How a cluster is. The greater the worse; the number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    Healthy = 0,
    Warnings = 1,
    Unhealthy = 2,
}

/// The exit code where the cluster does not let the user see how it is.
const NOT_KNOWN: u8 = 3;

impl Health {
    const fn word(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Warnings => "warnings",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// What REST says of a cluster.
struct Seen {
    pool: Value,
    buckets: Value,
    alerts: Value,
    objectives: Value,
    silences: Value,
    forecasts: Vec<Value>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match args.access.find().and_then(|session| Seen::of(&session)) {
        Ok(seen) => {
            let problems = problems(&seen);
            if args.json {
                println!("{}", as_json(&seen, &problems));
            } else {
                print!("{}", screen(&seen, &problems));
            }
            ExitCode::from(health(&problems) as u8)
        }
        Err(unshown) => {
            let (word, code) = if unshown.is_refused {
                ("unknown", NOT_KNOWN)
            } else {
                (Health::Unhealthy.word(), Health::Unhealthy as u8)
            };
            if args.json {
                let problem = json!({ "health": word, "text": unshown.failure.to_string() });
                println!("{}", json!({ "health": word, "problems": [problem] }));
            }
            eprintln!("settee: {}", unshown.failure);
            ExitCode::from(code)
        }
    }
}

impl Seen {
    fn of(session: &Session) -> Result<Self, Unshown> {
        Ok(Self {
            pool: session.show("/pools/default")?,
            buckets: session.show("/pools/default/buckets?skipMap=true")?,
            alerts: session.show("/settee/alerts")?,
            objectives: session.show("/settee/slo")?,
            silences: session.show("/settee/alerts/silences").unwrap_or(Value::Null),
            // A node of an older version has none.
            forecasts: session
                .show("/settee/forecast")
                .ok()
                .and_then(|told| told["forecasts"].as_array().cloned())
                .unwrap_or_default(),
        })
    }

    fn nodes(&self) -> impl Iterator<Item = &Value> {
        list(&self.pool["nodes"])
    }

    fn fires(&self, name: &str) -> bool {
        list(&self.alerts["firing"]).any(|alert| text(alert, "name") == name)
    }

    fn objectives(&self) -> impl Iterator<Item = &Value> {
        list(&self.objectives["objectives"])
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn health(problems: &[(Health, String)]) -> Health {
    problems.iter().map(|(health, _)| *health).max().unwrap_or(Health::Healthy)
}

/// What is wrong, the worst first.
fn problems(seen: &Seen) -> Vec<(Health, String)> {
    let mut problems = Vec::new();
    for node in seen.nodes() {
        let (name, membership) = (text(node, "hostname"), text(node, "clusterMembership"));
        match (text(node, "status"), membership) {
            ("healthy", "active") => {}
            (_, "inactiveFailed") => {
                problems.push((Health::Warnings, format!("node {name} was failed over")));
            }
            (_, "inactiveAdded") => {
                problems.push((Health::Warnings, format!("node {name} was added and waits for a rebalance")));
            }
            ("warmup", _) => problems.push((Health::Warnings, format!("node {name} warms up"))),
            _ => {
                let is_it =
                    |alert: &&Value| text(alert, "name") == "node_down" && text(alert, "subject") == name;
                let since = list(&seen.alerts["firing"]).find(is_it).map(times).unwrap_or_default();
                problems.push((Health::Unhealthy, format!("node {name} is not heard of{since}")));
            }
        }
    }
    for alert in list(&seen.alerts["firing"]) {
        let health = if text(alert, "level") == "critical" { Health::Unhealthy } else { Health::Warnings };
        // Said above.
        if text(alert, "name") != "node_down" {
            problems
                .push((health, format!("{}: {}{}", text(alert, "name"), text(alert, "text"), times(alert))));
        }
    }
    // An alert says so once that has lasted.
    if seen.pool["settee"]["hasLeader"] == false && !seen.fires("no_majority") {
        problems.push((Health::Warnings, "no node leads: nothing of the cluster can be changed".into()));
    }
    for node in list(&seen.alerts["missingNodes"]).filter_map(Value::as_str) {
        problems.push((Health::Warnings, format!("node {node} does not say which alerts fire on it")));
    }
    if seen.pool["balanced"] == false {
        problems.push((Health::Warnings, "data is not spread as it should be: rebalance".into()));
    }
    for one in seen.objectives().filter(|one| ["burning", "exhausted"].contains(&text(one, "state"))) {
        let state = if text(one, "state") == "burning" { "burns its budget" } else { "has no budget left" };
        let (bucket, name) = (text(one, "bucket"), text(one, "name"));
        let by = match text(one, "stateSource") {
            "probe" => ", by its probes",
            "sdk" => ", as clients tell",
            _ => "",
        };
        problems.push((Health::Warnings, format!("objective {bucket}/{name} {state}{by}")));
    }
    problems.sort_by_key(|(health, _)| std::cmp::Reverse(*health));
    problems
}

/// Since when an alert fires, and until when it is sent to nobody.
fn times(alert: &Value) -> String {
    let silenced = match alert["silencedUntil"].as_str() {
        Some(until) => format!(", silenced until {}", time(until)),
        None => String::new(),
    };
    match text(alert, "since") {
        "" => String::new(),
        since => format!(" (since {}{silenced})", time(since)),
    }
}

/// A time of RFC 3339, to the second.
fn time(at: &str) -> String {
    let (day, time) = at.split_once('T').unwrap_or((at, ""));
    format!("{day} {} UTC", time.split(['.', 'Z']).next().unwrap_or_default())
}

/// The silences that last: of what, until when, by whom, and why.
fn silenced(one: &Value) -> String {
    let of = |name: &str, word: &str| match text(one, name) {
        "" => String::new(),
        what => format!(" {word} {what}"),
    };
    let (subject, node) = (of("subject", "of"), of("node", "told by"));
    let (alert, until, by) = (text(one, "alert"), time(text(one, "until")), of("by", "by"));
    let why = Some(text(one, "comment")).filter(|text| !text.is_empty());
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    format!("{alert}{subject}{node} until {until}{by}{why}")
}

/// Where the alerts that fire are explained, each kind once. A node of an older version does not say it.
fn guides(seen: &Seen) -> Vec<&str> {
    let mut told = std::collections::BTreeSet::new();
    let kinds = list(&seen.alerts["firing"]).filter(|alert| told.insert(text(alert, "name")));
    let guide =
        |alert| ["guideUrl", "guide"].map(|name| text(alert, name)).into_iter().find(|one| !one.is_empty());
    kinds.filter_map(guide).collect()
}

fn as_json(seen: &Seen, problems: &[(Health, String)]) -> Value {
    let listed = problems.iter().map(|(health, text)| json!({ "health": health.word(), "text": text }));
    json!({
        "health": health(problems).word(), "problems": listed.collect::<Vec<_>>(), "nodes": seen.pool["nodes"],
        "buckets": seen.buckets, "alerts": seen.alerts["firing"], "objectives": seen.objectives["objectives"],
        "silences": seen.silences["silences"], "forecasts": seen.forecasts,
    })
}

fn screen(seen: &Seen, problems: &[(Health, String)]) -> String {
    let name = Some(text(&seen.pool, "clusterName")).filter(|name| !name.is_empty()).unwrap_or("(no name)");
    let mut screen = format!("cluster {name}: {}\n", health(problems).word());
    for (health, text) in problems {
        screen += &format!("  {} {text}\n", if *health == Health::Unhealthy { "!!" } else { " !" });
    }
    let guides = guides(seen);
    if !guides.is_empty() {
        screen += "\nWhat these alerts mean, what causes them, and what to do\n";
        guides.iter().for_each(|guide| screen += &format!("  {guide}\n"));
    }
    let silences: Vec<_> = list(&seen.silences["silences"]).map(silenced).collect();
    if !silences.is_empty() {
        screen += "\nSilences: what is posted and mailed to nobody\n";
        silences.iter().for_each(|silence| screen += &format!("  {silence}\n"));
    }
    screen += "\n";
    screen += &table(&NODES, seen.nodes().map(node_row).collect());
    let buckets: Vec<_> = list(&seen.buckets).map(bucket_row).collect();
    if !buckets.is_empty() {
        screen += "\n";
        screen += &table(&BUCKETS, buckets);
    }
    let objectives: Vec<_> = seen.objectives().map(objective_row).collect();
    if !objectives.is_empty() {
        screen += "\n";
        screen += &table(&OBJECTIVES, objectives);
    }
    screen += &format!("\nWhat runs out, and when\n{}", outlook::screen(&seen.forecasts));
    screen
}

pub(super) const NODES: [&str; 7] = ["NODE", "STATUS", "CPU", "MEMORY", "DOCUMENTS", "REPLICAS", "OPS/S"];

pub(super) fn node_row(node: &Value) -> Vec<String> {
    let (stats, system) = (&node["interestingStats"], &node["systemStats"]);
    let age = node["settee"]["figuresAgeSecs"].as_u64();
    let age = age.map_or_else(String::new, |age| format!(", figures {age} s old"));
    let star = if node["thisNode"] == true { " *" } else { "" };
    vec![
        format!("{}{star}", text(node, "hostname")),
        format!("{}{age}", text(node, "status")),
        percent(&system["cpu_utilization_rate"]),
        mebibytes(&stats["mem_used"]),
        number(&stats["curr_items"]),
        number(&stats["vb_replica_curr_items"]),
        number(&stats["ops"]),
    ]
}

pub(super) const BUCKETS: [&str; 7] =
    ["BUCKET", "DOCUMENTS", "MEMORY", "OF QUOTA", "DISK", "FETCHES/S", "OPS/S"];

pub(super) fn bucket_row(bucket: &Value) -> Vec<String> {
    let stats = &bucket["basicStats"];
    vec![
        text(bucket, "name").into(),
        number(&stats["itemCount"]),
        mebibytes(&stats["memUsed"]),
        percent(&stats["quotaPercentUsed"]),
        mebibytes(&stats["diskUsed"]),
        number(&stats["diskFetches"]),
        number(&stats["opsPerSec"]),
    ]
}

const OBJECTIVES: [&str; 4] = ["OBJECTIVE", "ATTAINED", "BUDGET LEFT", "STATE"];

fn objective_row(one: &Value) -> Vec<String> {
    vec![
        format!("{}/{}", text(one, "bucket"), text(one, "name")),
        percent(&one["attainedPercent"]),
        percent(&one["budgetLeftPercent"]),
        slo::state(one),
    ]
}

fn number(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".into(), |number| format!("{number:.0}"))
}

fn percent(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".into(), |number| format!("{number:.1} %"))
}

fn mebibytes(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".into(), |bytes| format!("{:.1} MiB", bytes / (1024.0 * 1024.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(status: &str, membership: &str, alert: Option<&str>, balanced: bool, state: &str) -> Seen {
        let firing: Vec<Value> =
            alert.into_iter().map(|level| json!({ "name": "a", "level": level, "text": "text" })).collect();
        Seen {
            pool: json!({
                "clusterName": "c", "balanced": balanced,
                "nodes": [{ "hostname": "h:8091", "status": status, "clusterMembership": membership }],
            }),
            buckets: json!([{ "name": "b", "basicStats": { "itemCount": 3, "memUsed": 1_048_576 } }]),
            alerts: json!({ "firing": firing, "missingNodes": [] }),
            objectives: json!({ "objectives": [{ "bucket": "b", "name": "n", "state": state }] }),
            silences: Value::Null,
            forecasts: Vec::new(),
        }
    }

    #[test]
    fn the_worst_problem_says_how_the_cluster_is() {
        use Health::{Healthy, Unhealthy, Warnings};
        for (case, expected) in [
            (seen("healthy", "active", None, true, "met"), Healthy),
            (seen("warmup", "active", None, true, "met"), Warnings),
            (seen("healthy", "inactiveAdded", None, false, "met"), Warnings),
            (seen("unhealthy", "inactiveFailed", None, true, "met"), Warnings),
            (seen("unhealthy", "active", None, true, "met"), Unhealthy),
            (seen("healthy", "active", Some("warning"), true, "met"), Warnings),
            (seen("healthy", "active", Some("critical"), true, "met"), Unhealthy),
            (seen("healthy", "active", None, false, "met"), Warnings),
            (seen("healthy", "active", None, true, "burning"), Warnings),
            (seen("healthy", "active", None, true, "exhausted"), Warnings),
        ] {
            let found = problems(&case);
            assert_eq!(health(&found), expected, "{found:?}");
            assert_eq!(as_json(&case, &found)["health"], expected.word());
        }
    }

    #[test]
    fn figures_of_a_silent_node_are_shown_with_their_age() {
        let mut case = seen("unhealthy", "active", None, true, "met");
        case.pool["nodes"][0]["settee"] = json!({ "figuresAgeSecs": 35 });
        case.pool["nodes"][0]["interestingStats"] = json!({ "curr_items": 7 });
        let screen = screen(&case, &problems(&case));
        let line = screen.lines().find(|line| line.starts_with("h:8091")).unwrap();
        assert!(line.contains("unhealthy, figures 35 s old") && line.contains(" 7 "), "{screen}");
    }

    #[test]
    fn each_kind_of_alert_that_fires_has_one_line_with_its_guide() {
        let mut case = seen("healthy", "active", None, true, "met");
        assert!(!screen(&case, &[]).contains("these alerts"));
        let alert = |name: &str, url: Value| json!({ "name": name, "level": "warning", "guide": "docs/a.md", "guideUrl": url });
        let older = json!({ "name": "c", "level": "warning", "text": "text" });
        let hot = || alert("a", "http://h:8091/ui/#/alerts/guide/a".into());
        case.alerts = json!({ "firing": [hot(), hot(), alert("b", Value::Null), older] });
        let screen = screen(&case, &problems(&case));
        let told = "\nWhat these alerts mean, what causes them, and what to do\n  http://h:8091/ui/#/alerts/guide/a\n  docs/a.md\n\n";
        assert!(screen.contains(told), "{screen}");
    }

    #[test]
    fn since_when_alerts_fire_is_shown_and_until_when_they_are_silenced() {
        let mut case = seen("unhealthy", "active", None, true, "exhausted");
        let since = "2026-11-30T18:03:49.000Z";
        case.alerts = json!({ "firing": [
            { "name": "node_down", "subject": "h:8091", "level": "critical", "text": "text", "since": since,
              "silencedUntil": "2026-11-30T18:30:00.000Z" },
            { "name": "a", "subject": "b", "level": "warning", "text": "text.", "since": since },
        ] });
        case.silences = json!({ "silences": [
            { "alert": "node_down", "subject": "h:8091", "node": null, "by": "ann", "comment": "disk swap",
              "until": "2026-11-30T18:30:00.000Z" },
            { "alert": "disk_low", "subject": null, "node": "h:8091", "by": "ann", "comment": "",
              "until": "2026-11-30T18:30:00.000Z" },
        ] });
        case.objectives["objectives"][0]["stateSource"] = "probe".into();
        case.pool["settee"] = json!({ "hasLeader": false });
        let screen = screen(&case, &problems(&case));
        for line in [
            "  !! node h:8091 is not heard of (since 2026-11-30 18:03:49 UTC, silenced until 2026-11-30 18:30:00 UTC)",
            "   ! a: text. (since 2026-11-30 18:03:49 UTC)",
            "   ! no node leads: nothing of the cluster can be changed",
            "   ! objective b/n has no budget left, by its probes",
            "  node_down of h:8091 until 2026-11-30 18:30:00 UTC by ann: disk swap",
            "  disk_low told by h:8091 until 2026-11-30 18:30:00 UTC by ann",
        ] {
            assert!(screen.lines().any(|shown| shown == line), "{line}\n{screen}");
        }
        case.alerts = json!({ "firing": [{ "name": "no_majority", "level": "critical", "text": "text" }] });
        assert!(!problems(&case).iter().any(|(_, text)| text.starts_with("no node leads")));
    }

    #[test]
    fn one_screen_has_the_problems_first_and_the_worst_of_them_on_top() {
        let case = seen("warmup", "active", Some("critical"), true, "met");
        let screen = screen(&case, &problems(&case));
        let lines: Vec<&str> = screen.lines().collect();
        assert_eq!(lines[..3], ["cluster c: unhealthy", "  !! a: text", "   ! node h:8091 warms up"]);
        assert!(lines.iter().any(|line| line.starts_with("b       3          1.0 MiB")), "{screen}");
    }
}
