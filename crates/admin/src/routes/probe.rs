//! `/settee/probe`: what the active probe of every node has found, and what is probed. Of Settee alone. `/settee/probe/metrics` shows
//! the probes of one node under the names and labels of a probe that was published for Couchbase. It has what that one reads, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use axum::http::{Method, StatusCode};
use base::NodeId;
use cluster::{ClusterError, FieldErrors, NodeInfo, auth::Privilege};
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, Refusal, json_ok},
};
use serde_json::{Value, json};
use stats::{Reading, Samples, Statistic, Zoom};

use super::nodes;
use crate::{
    node::probes::{PERIODS, ProbeSettings, Probed, ProbedBuckets, ProbedOperation, SETTING},
    request::{Call, asking},
};

/// Where a node tells the others what it has found.
const PATH: &str = "/_settee/probes";
const QUANTILES: [&str; 3] = ["0.5", "0.9", "0.99"];
/// What the published probe reads of a bucket on a node where nobody has told it otherwise.
const PUBLISHED_STATS: [&str; 8] = [
    "ep_mem_high_wat",
    "vb_active_resident_items_ratio",
    "vb_replica_resident_items_ratio",
    "ep_mem_low_wat",
    "ep_diskqueue_items",
    "ep_oom_errors",
    "ep_tmp_oom_errors",
    "ep_max_size",
];
/// Families of figures of a bucket, in the order of [`Figures::buckets`].
const STATS: [(&str, &str); 2] = [
    ("couchbase_stats", "What REST shows of a bucket on this node; counters as rates by the second."),
    ("memcached_stats", "What STAT shows of this node and a bucket; counters since the start."),
];

pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    match (path, &call.method) {
        ([], &Method::GET) => list(call).await,
        ([], &Method::PUT) => put(call).await,
        (["metrics"], &Method::GET) => Ok(published(call)),
        _ => Ok(reply::method_not_allowed()),
    }
}

async fn list(call: &Call) -> Outcome {
    let (told, missing) = asking::every(call, PATH, call.api.control.probed()).await;
    let name = |id: NodeId| call.meta.node_by_id(id).map(|node| nodes::hostname(call, node));
    let shown = |(from, probed): (NodeId, Probed)| {
        let operations: serde_json::Map<String, Value> =
            probed.operations.iter().map(|(operation, known)| (operation.clone(), view(known))).collect();
        json!({
            "from": name(from), "to": name(probed.to), "bucket": probed.bucket,
            "up": probed.silent_rounds == 0, "silentRounds": probed.silent_rounds, "operations": operations,
        })
    };
    let all = told.into_iter().flat_map(|(from, list)| list.into_iter().map(move |one| (from, one)));
    let sees = |(_, one): &(NodeId, Probed)| call.holds(Privilege::BucketRead, Some(one.bucket.as_str()));
    let results: Vec<Value> = all.filter(sees).map(shown).collect();
    let missing: Vec<_> = missing.into_iter().filter_map(name).collect();
    let settings = ProbeSettings::of(&call.meta);
    Ok(json_ok(&json!({ "settings": settings, "results": results, "missingNodes": missing })))
}

fn view(known: &ProbedOperation) -> Value {
    let [p50, p90, p99] = known.quantiles_us;
    json!({
        "answered": known.answered, "refused": known.refused, "unanswered": known.unanswered,
        "lastUs": known.last_us, "p50Us": p50, "p90Us": p90, "p99Us": p99,
    })
}

async fn put(call: &Call) -> Outcome {
    let form = call.form()?;
    call.change_setting(SETTING, |now| {
        let settings = asked_for(&form, ProbeSettings::of(&now.meta))?;
        // Probes write documents into buckets, those of later times among them.
        if settings.writes && !now.holds(Privilege::Upsert, None) {
            return Err(reply::forbidden(&["cluster.bucket[.].data.docs!upsert".to_owned()]));
        }
        let value = serde_json::to_value(settings).map_err(|error| reply::bad_request(&error.to_string()))?;
        Ok((Some(value), ()))
    })
    .await?;
    call.audit(AuditKind::SettingsChanged, SETTING, "");
    Ok(reply::empty_ok())
}

/// What a form asks for; what it leaves out stays as it is.
fn asked_for(form: &Form, known: ProbeSettings) -> Result<ProbeSettings, Refusal> {
    const FIELDS: [&str; 3] = ["buckets", "writes", "periodSecs"];
    let mut errors = FieldErrors::new();
    for (name, _) in form.fields().iter().filter(|(name, _)| !FIELDS.contains(&name.as_str())) {
        errors.insert(name.clone(), "Unsupported key".into());
    }
    let asked = form.get("buckets");
    let buckets = asked.and_then(|asked| ProbedBuckets::NAMES.iter().find(|(_, name)| *name == asked));
    if asked.is_some() && buckets.is_none() {
        let text = "The value must be one of the following: [none,objectives,all]";
        errors.insert("buckets".into(), text.into());
    }
    let writes = form.boolean("writes", &mut errors).unwrap_or(known.writes);
    let period_secs = form.integer("periodSecs", &mut errors).unwrap_or(known.period_secs);
    if !PERIODS.contains(&period_secs) {
        errors.insert("periodSecs".into(), "The value must be in range from 1 to 300".into());
    }
    if !errors.is_empty() {
        return Err(ClusterError::Invalid(errors).into());
    }
    Ok(ProbeSettings { buckets: buckets.map_or(known.buckets, |(buckets, _)| *buckets), writes, period_secs })
}

/// `POST /_settee/probes`: what this node has found.
pub(crate) fn show(call: &Call) -> Outcome {
    match serde_json::to_value(call.api.control.probed()) {
        Ok(probed) => Ok(json_ok(&probed)),
        Err(error) => Err(reply::bad_request(&error.to_string())),
    }
}

fn published(call: &Call) -> axum::response::Response {
    let is_alone =
        |node: &NodeInfo| call.meta.nodes.iter().filter(|other| other.host == node.host).count() < 2;
    // Nodes that share a host are told apart by their ports.
    let host = |id: NodeId| match call.meta.node_by_id(id) {
        Some(node) if is_alone(node) => node.host.clone(),
        Some(node) => format!("{}:{}", node.host, node.ports.mgmt),
        None => id.to_string(),
    };
    let text = exported(&call.meta.cluster_name, &call.api.control.probed(), &Figures::of(call), host);
    reply::with_body(StatusCode::OK, "text/plain; version=0.0.4", text.into())
}

/// Names and figures.
type Named = Vec<(&'static str, f64)>;

/// What the published probe reads from REST and STAT, beside what it tries.
#[derive(Default)]
struct Figures {
    is_rebalancing: bool,
    /// How many nodes are active, and how many are not.
    memberships: [usize; 2],
    /// This node.
    here: NodeId,
    /// Of each bucket that is open here, what REST shows of it on this node, and what STAT shows.
    buckets: Vec<(String, [Named; 2])>,
}

impl Figures {
    fn of(call: &Call) -> Self {
        let (meta, control) = (&call.meta, &call.api.control);
        let active = meta.nodes.iter().filter(|node| nodes::membership(node).starts_with("active")).count();
        let statistics = control.statistics();
        let of_node = in_stat(control.node_readings());
        let told = |bucket: &String| {
            let shown = in_rest(&statistics, &control.samples(bucket, Zoom::Minute)?);
            let stat = in_stat(control.readings(bucket)).into_iter().chain(of_node.iter().copied());
            Some((bucket.clone(), [shown, stat.collect()]))
        };
        Self {
            is_rebalancing: meta.rebalance.is_some(),
            memberships: [active, meta.nodes.len() - active],
            here: meta.node(&control.this_node()).map(|node| node.id).unwrap_or_default(),
            buckets: meta.buckets.keys().filter_map(told).collect(),
        }
    }
}

/// The newest figures under the names that the published probe reads by default. Counters are rates there.
fn in_rest(statistics: &[(&'static str, Vec<&'static Statistic>)], samples: &Samples) -> Named {
    let newest = |name: &'static str| {
        let mut all = statistics.iter().flat_map(|(_, statistics)| statistics);
        let first = all.find(|about| about.rest.contains(&name))?.rest.first()?;
        Some((name, *samples.values.get(*first)?.last()?))
    };
    PUBLISHED_STATS.iter().copied().filter_map(newest).collect()
}

/// Figures of STAT's main group; the published probe has no words.
fn in_stat(readings: Vec<Reading>) -> Named {
    let of_bucket = readings.into_iter().filter(|reading| reading.labels.is_empty());
    let numbers = of_bucket.filter_map(|reading| Some((reading.about.stat, reading.value.number()?)));
    numbers.flat_map(|(names, number)| names.iter().map(move |name| (*name, number))).collect()
}

/// The names are those of `mewpoke`: `couchbase_…` where it speaks to Couchbase, `memcached_…` where it does not know more than memcached.
fn exported(cluster: &str, probed: &[Probed], figures: &Figures, host: impl Fn(NodeId) -> String) -> String {
    let mut text = String::new();
    let all = probed.iter().map(|one| one.bucket.as_str());
    let all = all.chain(figures.buckets.iter().map(|(bucket, _)| bucket.as_str()));
    let mut buckets = BTreeMap::<String, BTreeSet<&str>>::new();
    for bucket in all {
        buckets.entry(published_name(bucket)).or_default().insert(bucket);
    }
    let cluster = format!("cluster=\"{}\"", plain(cluster));
    let labels = |bucket: &str, node: NodeId| {
        let named = published_name(bucket);
        let is_alone = buckets.get(&named).is_none_or(|buckets| buckets.len() < 2);
        let bucket = if is_alone { named } else { bucket.to_owned() };
        format!("{cluster},bucket=\"{}\",instance=\"{}\"", plain(&bucket), plain(&host(node)))
    };
    write_tried(&mut text, probed, |one| labels(&one.bucket, one.to));
    write_head(&mut text, "couchbase_operations", "Whether a rebalance runs.");
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "couchbase_operations{{{cluster},operation=\"rebalance\"}} {}",
        u8::from(figures.is_rebalancing)
    );
    write_head(&mut text, "couchbase_membership", "Nodes of the cluster, by whether they are active.");
    for (membership, count) in ["active", "inactive"].iter().zip(figures.memberships) {
        let _ = writeln!(text, "couchbase_membership{{{cluster},membership=\"{membership}\"}} {count}");
    }
    for (at, (family, what)) in STATS.iter().enumerate() {
        write_head(&mut text, family, what);
        for (bucket, told) in &figures.buckets {
            let labels = labels(bucket, figures.here);
            for (name, figure) in told.get(at).into_iter().flatten() {
                let _ = writeln!(text, "{family}{{{labels},name=\"{name}\"}} {figure}");
            }
        }
    }
    text
}

fn write_head(text: &mut String, family: &str, what: &str) {
    // Writing to a string cannot fail.
    let _ = write!(text, "# HELP {family} {what}\n# TYPE {family} gauge\n");
}

/// What the probes of this node have found.
fn write_tried(text: &mut String, probed: &[Probed], labels: impl Fn(&Probed) -> String) {
    for (family, known) in [("couchbase", &["get", "set", "durable"][..]), ("memcached", &["get", "set"])] {
        write_head(text, &format!("{family}_up"), "Whether a bucket on a node answers.");
        // Writing to a string cannot fail.
        for one in probed.iter().filter(|one| !one.operations.is_empty()) {
            let _ = writeln!(text, "{family}_up{{{}}} {}", labels(one), u8::from(one.silent_rounds == 0));
        }
        let what = "Latencies of operations in microseconds; the timeout where there was no answer.";
        let _ = write!(text, "# HELP {family}_latency {what}\n# TYPE {family}_latency summary\n");
        for one in probed {
            let shown = one.operations.iter().filter(|(name, _)| known.contains(&name.as_str()));
            for (command, operation) in shown {
                write_summary(text, family, &format!("{},command=\"{command}\"", labels(one)), operation);
            }
        }
    }
}

/// The published probe has no points in names of buckets. Where two buckets would have one name by that, both keep their own.
fn published_name(bucket: &str) -> String {
    bucket.replace('.', "_")
}

fn write_summary(text: &mut String, family: &str, labels: &str, known: &ProbedOperation) {
    for (quantile, latency) in QUANTILES.iter().zip(known.quantiles_us) {
        let latency = latency.map_or("NaN".into(), |latency| latency.to_string());
        let _ = writeln!(text, "{family}_latency{{{labels},quantile=\"{quantile}\"}} {latency}");
    }
    let count = known.answered + known.refused + known.unanswered;
    let _ = writeln!(text, "{family}_latency_sum{{{labels}}} {}", known.total_us);
    let _ = writeln!(text, "{family}_latency_count{{{labels}}} {count}");
}

/// A label's value.
fn plain(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_form_leaves_out_stays_and_what_it_gets_wrong_is_refused() {
        let known = ProbeSettings::default();
        let asked = |form: &str| asked_for(&Form::parse(form.as_bytes()).unwrap(), known).map_err(drop);
        assert_eq!(asked(""), Ok(known));
        let expected = ProbeSettings { buckets: ProbedBuckets::All, writes: true, period_secs: 30 };
        assert_eq!(asked("buckets=all&writes=true&periodSecs=30"), Ok(expected));
        for wrong in
            ["buckets=some", "writes=maybe", "periodSecs=0", "periodSecs=301", "periodSecs=x", "other=1"]
        {
            assert_eq!(asked(wrong), Err(()), "{wrong}");
        }
    }

    #[test]
    fn no_series_is_there_twice() {
        let operations = || [("get".to_owned(), ProbedOperation::default())].into();
        let of = |bucket: &str| Probed {
            bucket: bucket.into(),
            to: NodeId(1),
            silent_rounds: 0,
            operations: operations(),
        };
        let buckets =
            ["a.b", "e_f", "e.f"].map(|bucket| (bucket.to_owned(), [vec![("x", 1.0)], vec![("x", 1.0)]]));
        let figures = Figures { buckets: buckets.to_vec(), ..Figures::default() };
        let text = exported("c", &[of("a.b"), of("a_b"), of("c.d")], &figures, |_| "host".into());
        let series: Vec<_> = text.lines().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        let distinct: BTreeSet<_> = series.iter().filter(|one| !one.starts_with('#')).collect();
        assert_eq!(distinct.len(), series.iter().filter(|one| !one.starts_with('#')).count(), "{text}");
        assert!(text.contains("bucket=\"c_d\""), "{text}");
    }

    #[test]
    fn the_published_names_have_the_published_labels() {
        let operation = ProbedOperation {
            answered: 3,
            unanswered: 1,
            total_us: 2_500_900,
            quantiles_us: [Some(300), Some(400), None],
            ..ProbedOperation::default()
        };
        let operations = [("get".to_owned(), operation.clone()), ("durable".to_owned(), operation)].into();
        let probed = [Probed { bucket: "a.b".into(), to: NodeId(2), silent_rounds: 1, operations }];
        let of_bucket = [vec![("ep_max_size", 104_857_600.0)], vec![("cmd_get", 3.0)]];
        let figures = Figures {
            is_rebalancing: true,
            memberships: [3, 1],
            here: NodeId(2),
            buckets: vec![("a.b".into(), of_bucket)],
        };
        let text = exported("my \"own\"", &probed, &figures, |node| format!("host{}", node.get()));
        let labels = "cluster=\"my \\\"own\\\"\",bucket=\"a_b\",instance=\"host2\"";
        for line in [
            format!("couchbase_up{{{labels}}} 0"),
            format!("couchbase_latency{{{labels},command=\"get\",quantile=\"0.5\"}} 300"),
            format!("couchbase_latency{{{labels},command=\"get\",quantile=\"0.99\"}} NaN"),
            format!("couchbase_latency_sum{{{labels},command=\"durable\"}} 2500900"),
            format!("memcached_latency_count{{{labels},command=\"get\"}} 4"),
            "couchbase_operations{cluster=\"my \\\"own\\\"\",operation=\"rebalance\"} 1".to_owned(),
            "couchbase_membership{cluster=\"my \\\"own\\\"\",membership=\"active\"} 3".to_owned(),
            "couchbase_membership{cluster=\"my \\\"own\\\"\",membership=\"inactive\"} 1".to_owned(),
            format!("couchbase_stats{{{labels},name=\"ep_max_size\"}} 104857600"),
            format!("memcached_stats{{{labels},name=\"cmd_get\"}} 3"),
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
        }
        assert!(!text.contains("memcached_latency{cluster=\"my \\\"own\\\"\",bucket=\"a_b\",instance=\"host2\",command=\"durable\""));
    }
}
