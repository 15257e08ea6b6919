//! `/pools/default/stats/range`: the past of series by their names in `/metrics`, in the form of Couchbase 7. Nodes keep samples of
//! counters as rates, so a counter is shown through `rate` or `irate` only.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use base::NodeId;
use cluster::{auth::Privilege, config};
use http::reply::{self, Outcome, json_ok};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{nodes, stats};
use crate::{node::time::now_ms, request::Call};
use ::stats::{Across, Kind, Metric, Samples, Statistic, Zoom};

/// Most questions in a request, and most points of a series.
const QUESTIONS_MAX: usize = 100;
const POINTS_MAX: u64 = 11_000;
/// Most points of all series that a request has put together: each takes about 150 bytes until the answer is sent.
const REQUEST_POINTS_MAX: usize = 500_000;
/// Sections of statistics that are about the process and the machine: their series have no bucket.
const OF_NODE: [&str; 4] = ["Process", "Client connections", "Memory of the process", "Machine"];
/// Parameters of a GET that are no labels.
const PARAMETERS: [&str; 8] =
    ["start", "end", "step", "timeWindow", "alignTimestamps", "nodesAggregation", "nodes", "timeout"];

/// What one object of a request asks for.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Question {
    metric: Vec<Label>,
    apply_functions: Vec<String>,
    nodes: Option<Vec<String>>,
    nodes_aggregation: Option<String>,
    /// Unix seconds; 0 and below: before now.
    start: Option<i64>,
    end: Option<i64>,
    step: Option<u64>,
}

/// A label that series must have, or must not.
#[derive(Debug, Deserialize)]
struct Label {
    label: String,
    value: String,
    #[serde(default)]
    operator: Option<String>,
}

impl Label {
    /// Alternatives are separated by `|`; other regular expressions are not understood.
    fn fits(&self, value: Option<&str>) -> bool {
        let is_one = |one: &str| value == Some(one);
        match self.operator.as_deref() {
            None | Some("=") => is_one(&self.value),
            Some("!=") => !is_one(&self.value),
            Some("=~") => self.value.split('|').any(is_one),
            _ => false,
        }
    }
}

/// How several figures become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fold {
    Sum,
    Avg,
    Min,
    Max,
}

impl Fold {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "sum" => Some(Self::Sum),
            "avg" => Some(Self::Avg),
            "min" => Some(Self::Min),
            "max" => Some(Self::Max),
            _ => None,
        }
    }

    fn of(self, figures: &[f64]) -> f64 {
        let sum: f64 = figures.iter().sum();
        match self {
            Self::Sum => sum,
            Self::Avg => sum / figures.len().max(1) as f64,
            Self::Min => figures.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Max => figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// A question that can be answered.
#[derive(Debug)]
struct Asked {
    labels: Vec<Label>,
    name: String,
    rate: bool,
    fold: Option<Fold>,
    nodes: Option<Vec<String>>,
    over_nodes: Option<Fold>,
    /// Unix seconds.
    start: u64,
    end: u64,
    step: u64,
}

impl Asked {
    fn of(question: Question, now: u64) -> Result<Self, String> {
        let (names, labels): (Vec<_>, Vec<_>) =
            question.metric.into_iter().partition(|one| one.label == "name");
        let [Label { value: name, .. }] = <[Label; 1]>::try_from(names).map_err(|_| "name one metric")?;
        if let Some(wrong) =
            labels.iter().find(|one| !matches!(one.operator.as_deref(), None | Some("=" | "!=" | "=~")))
        {
            return Err(format!("the operator {:?} is not supported", wrong.operator));
        }
        let (mut rate, mut fold) = (false, None);
        for function in &question.apply_functions {
            match (function.as_str(), Fold::parse(function)) {
                ("rate" | "irate", _) => rate = true,
                (_, Some(one)) if fold.is_none() => fold = Some(one),
                _ => return Err(format!("the function {function} is not supported")),
            }
        }
        let over_nodes = match question.nodes_aggregation.as_deref() {
            None | Some("none") => None,
            Some(name) => {
                Some(Fold::parse(name).ok_or_else(|| format!("nodesAggregation {name} is not supported"))?)
            }
        };
        let at = |given: Option<i64>, unless: i64| match given.unwrap_or(unless) {
            before if before <= 0 => now.saturating_sub(before.unsigned_abs()),
            moment => moment.unsigned_abs(),
        };
        let (start, end, step) =
            (at(question.start, -60), at(question.end, 0), question.step.unwrap_or(10).max(1));
        if start > end || (end - start) / step > POINTS_MAX {
            return Err(format!("start, end and step must be of {POINTS_MAX} points at most"));
        }
        Ok(Self { labels, name, rate, fold, nodes: question.nodes, over_nodes, start, end, step })
    }

    /// The finest samples that reach back far enough.
    fn zoom(&self, now: u64) -> Zoom {
        let reaches = |zoom: &Zoom| self.start.saturating_add(zoom.step_secs() * zoom.rows() as u64) >= now;
        Zoom::ALL.into_iter().find(reaches).unwrap_or(Zoom::Year)
    }

    fn fits(&self, labels: &Labels) -> bool {
        self.labels.iter().all(|one| one.fits(labels.get(one.label.as_str()).map(String::as_str)))
    }
}

type Labels = BTreeMap<String, String>;
type Points = BTreeMap<u64, f64>;
/// What series are put together by: nodes and labels.
type Key = (BTreeSet<String>, Labels);
/// Nodes of series that are put together, and their figures by moment.
type Group = (BTreeSet<String>, BTreeMap<u64, Vec<f64>>);

/// Figures of one series on some nodes.
#[derive(Debug)]
struct Series {
    nodes: BTreeSet<String>,
    labels: Labels,
    points: Points,
}

/// GET and POST.
pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    let now = now_ms() / 1_000;
    let mut left = REQUEST_POINTS_MAX;
    if call.method == Method::GET {
        let [name, functions @ ..] = path else { return Ok(reply::method_not_allowed()) };
        let question = of_path(call, name, functions)?;
        return match Asked::of(question, now) {
            Ok(asked) => Ok(json_ok(&answer(call, &asked, now, &mut left).await)),
            Err(text) => Err(reply::bad_request(&text)),
        };
    }
    if !path.is_empty() {
        return Ok(reply::method_not_allowed());
    }
    let questions: Vec<Question> =
        serde_json::from_slice(&call.body).map_err(|error| reply::bad_request(&error.to_string()))?;
    if questions.len() > QUESTIONS_MAX {
        return Err(reply::bad_request(&format!("{QUESTIONS_MAX} questions at most")));
    }
    let mut answers = Vec::new();
    for question in questions {
        answers.push(match Asked::of(question, now) {
            Ok(asked) => answer(call, &asked, now, &mut left).await,
            Err(text) => json!({ "data": [], "errors": [{ "node": "", "error": text }] }),
        });
    }
    Ok(json_ok(&answers.into()))
}

fn of_path(call: &Call, name: &str, functions: &[&str]) -> Result<Question, http::reply::Refusal> {
    let mut errors = cluster::FieldErrors::new();
    let label = |label: &str, value: &str| Label { label: label.into(), value: value.into(), operator: None };
    let labels = call.query.fields().iter().filter(|(name, _)| !PARAMETERS.contains(&name.as_str()));
    let labels = labels.map(|(name, value)| label(name, value));
    let question = Question {
        metric: std::iter::once(label("name", name)).chain(labels).collect(),
        apply_functions: functions.iter().map(|one| (*one).to_owned()).collect(),
        nodes: call.query.get("nodes").map(|nodes| nodes.split(',').map(str::to_owned).collect()),
        nodes_aggregation: call.query.get("nodesAggregation").map(str::to_owned),
        start: call.query.integer("start", &mut errors),
        end: call.query.integer("end", &mut errors),
        step: call.query.integer("step", &mut errors),
    };
    cluster::ClusterError::unless_empty(errors)?;
    Ok(question)
}

/// `left`: how many more points the request may have.
async fn answer(call: &Call, asked: &Asked, now: u64, left: &mut usize) -> Value {
    let (mut series, mut errors) = (Vec::new(), BTreeMap::new());
    let declared = declared(call, &asked.name);
    if let Some((_, about, _)) =
        declared.iter().find(|(_, about, _)| (about.kind == Kind::Counter) != asked.rate)
    {
        let text = match about.kind {
            Kind::Counter => "counters are kept as rates: apply the function rate",
            _ => "rate is for counters",
        };
        errors.insert(String::new(), text);
    } else if !declared.is_empty() {
        series = collected(call, asked, &declared, now, (left, &mut errors)).await;
    }
    let series = folded(series, asked.over_nodes, asked.fold);
    let shown = |one: Series| {
        let mut metric: Map<String, Value> =
            one.labels.into_iter().map(|(name, value)| (name, value.into())).collect();
        metric.insert("name".into(), asked.name.as_str().into());
        metric.insert("nodes".into(), one.nodes.into_iter().collect::<Vec<_>>().into());
        let values: Vec<_> =
            one.points.into_iter().map(|(at, figure)| json!([at, figure.to_string()])).collect();
        json!({ "metric": metric, "values": values })
    };
    let errors: Vec<_> =
        errors.into_iter().map(|(node, text)| json!({ "node": node, "error": text })).collect();
    json!({
        "data": series.into_iter().map(shown).collect::<Vec<_>>(), "errors": errors,
        "startTimestamp": asked.start, "endTimestamp": asked.end,
    })
}

/// The series of that name that nodes sample, and whether they are of a bucket.
fn declared(call: &Call, name: &str) -> Vec<(bool, &'static Statistic, &'static Metric)> {
    let sections = call.api.control.statistics();
    let all = sections.into_iter().flat_map(|(title, statistics)| {
        let of_bucket = !OF_NODE.contains(&title);
        statistics.into_iter().map(move |about| (of_bucket, about))
    });
    let sampled = all.filter(|(_, about)| {
        let has_number = matches!(about.kind, Kind::Counter | Kind::Gauge);
        has_number && !about.rest.is_empty() && !matches!(about.across, Across::Of(_))
    });
    let series = sampled
        .flat_map(|(of_bucket, about)| about.metrics.iter().map(move |metric| (of_bucket, about, metric)));
    series.filter(|(_, _, metric)| metric.family == name).collect()
}

async fn collected(
    call: &Call,
    asked: &Asked,
    declared: &[(bool, &'static Statistic, &'static Metric)],
    now: u64,
    (left, errors): (&mut usize, &mut BTreeMap<String, &'static str>),
) -> Vec<Series> {
    let _turn = stats::TURN.acquire().await;
    let zoom = asked.zoom(now);
    let mut wanted = config::shown_nodes(&call.meta);
    wanted
        .retain(|node| asked.nodes.as_ref().is_none_or(|names| names.contains(&nodes::hostname(call, node))));
    let ids: Vec<NodeId> = wanted.iter().map(|node| node.id).collect();
    let mut series = Vec::new();
    let mut is_first = true;
    for bucket in call.meta.buckets.keys().filter(|name| call.holds(Privilege::Stats, Some(name.as_str()))) {
        let of_here: Vec<_> = declared
            .iter()
            .filter(|(of_bucket, ..)| *of_bucket || is_first)
            .map(|(of_bucket, about, metric)| {
                let mut labels: Labels = metric
                    .labels
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect();
                if *of_bucket {
                    labels.insert("bucket".into(), bucket.clone());
                }
                (*about, *metric, labels)
            })
            .filter(|(_, _, labels)| asked.fits(labels))
            .collect();
        is_first = false;
        if of_here.is_empty() {
            continue;
        }
        let told = stats::told(call, bucket, zoom, wanted.clone()).await;
        for name in stats::missing(call, &ids, &told) {
            errors.insert(name, "the node does not say what it has sampled");
        }
        for (id, samples) in &told {
            let Some(node) = call.meta.node_by_id(*id) else { continue };
            for (about, metric, labels) in &of_here {
                let points = points(samples, about, metric.scale, asked, zoom);
                let Some(rest) = left.checked_sub(points.len()) else {
                    let text = "too many points: ask for less time, a longer step or fewer series";
                    errors.insert(String::new(), text);
                    return series;
                };
                *left = rest;
                let nodes = BTreeSet::from([nodes::hostname(call, node)]);
                series.push(Series { nodes, labels: labels.clone(), points });
            }
        }
    }
    series
}

/// The figures nearest to the moments that are asked for. Where a node has said nothing, there is no point.
fn points(samples: &Samples, about: &Statistic, scale: f64, asked: &Asked, zoom: Zoom) -> Points {
    let Some(figures) = about.rest.first().and_then(|name| samples.values.get(*name)) else {
        return Points::new();
    };
    let reach_ms = asked.step.max(zoom.step_secs()).saturating_mul(1_000);
    let moments = (asked.start..=asked.end).step_by(usize::try_from(asked.step).unwrap_or(usize::MAX));
    let at = |secs: u64| {
        let ms = secs.saturating_mul(1_000);
        let after = samples.timestamps.partition_point(|at| *at <= ms);
        let index = after.checked_sub(1)?;
        let is_near = ms - samples.timestamps.get(index)? <= reach_ms;
        Some((secs, figures.get(index).filter(|_| is_near)? * scale))
    };
    moments.filter_map(at).collect()
}

/// Series of several nodes, or of several labels, as one.
fn folded(series: Vec<Series>, over_nodes: Option<Fold>, over_labels: Option<Fold>) -> Vec<Series> {
    let series = match over_labels {
        Some(fold) => group(series, fold, |one| (one.nodes.clone(), Labels::new())),
        None => series,
    };
    match over_nodes {
        Some(fold) => group(series, fold, |one| (BTreeSet::new(), one.labels.clone())),
        None => series,
    }
}

fn group(
    series: Vec<Series>,
    fold: Fold,
    key: impl Fn(&Series) -> (BTreeSet<String>, Labels),
) -> Vec<Series> {
    let mut groups: BTreeMap<Key, Group> = BTreeMap::new();
    for one in series {
        let (nodes, figures) = groups.entry(key(&one)).or_default();
        nodes.extend(one.nodes);
        for (at, figure) in one.points {
            figures.entry(at).or_default().push(figure);
        }
    }
    let whole = |((_, labels), (nodes, figures)): (Key, Group)| Series {
        nodes,
        labels,
        points: figures.into_iter().map(|(at, figures)| (at, fold.of(&figures))).collect(),
    };
    groups.into_iter().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn asked(json: Value) -> Result<Asked, String> {
        Asked::of(serde_json::from_value(json).unwrap(), NOW)
    }

    fn series(node: &str, bucket: &str, points: &[(u64, f64)]) -> Series {
        Series {
            nodes: BTreeSet::from([node.to_owned()]),
            labels: Labels::from([("bucket".to_owned(), bucket.to_owned())]),
            points: points.iter().copied().collect(),
        }
    }

    #[test]
    fn times_below_zero_are_before_now_and_what_is_not_understood_is_refused() {
        let one = asked(json!({ "metric": [{ "label": "name", "value": "m" }] })).unwrap();
        assert_eq!((one.start, one.end, one.step, one.zoom(NOW)), (NOW - 60, NOW, 10, Zoom::Minute));
        let name = json!([{ "label": "name", "value": "m" }]);
        let day = asked(json!({ "metric": name, "start": -86_000, "step": 60 })).unwrap();
        assert_eq!(day.zoom(NOW), Zoom::Day);
        for wrong in [
            json!({ "metric": [] }),
            json!({ "metric": name, "applyFunctions": ["histogram_quantile"] }),
            json!({ "metric": name, "nodesAggregation": "p99" }),
            json!({ "metric": name, "start": -20_000, "step": 1 }),
            json!({ "metric": name, "start": -5, "end": -10 }),
            json!({ "metric": [{ "label": "name", "value": "m" }, { "label": "bucket", "value": ".*", "operator": "!~" }] }),
        ] {
            assert!(asked(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn labels_choose_series() {
        let label = |operator: Option<&str>, value: &str| Label {
            label: "bucket".into(),
            value: value.into(),
            operator: operator.map(str::to_owned),
        };
        for (one, fits) in [
            (label(None, "b"), true),
            (label(Some("="), "c"), false),
            (label(Some("!="), "c"), true),
            (label(Some("=~"), "a|b"), true),
            (label(Some("=~"), "a|c"), false),
        ] {
            assert_eq!(one.fits(Some("b")), fits, "{one:?}");
        }
    }

    #[test]
    fn nodes_and_labels_are_put_together_point_by_point() {
        let all = || {
            vec![
                series("n1", "a", &[(10, 1.0), (20, 2.0)]),
                series("n2", "a", &[(20, 4.0)]),
                series("n1", "b", &[(20, 8.0)]),
            ]
        };
        let told = folded(all(), Some(Fold::Sum), None);
        assert_eq!(told.len(), 2);
        assert_eq!(told[0].points, Points::from([(10, 1.0), (20, 6.0)]));
        assert_eq!(told[0].nodes.len(), 2);
        let told = folded(all(), None, Some(Fold::Max));
        assert_eq!(told.iter().map(|one| one.points[&20]).collect::<Vec<_>>(), [8.0, 4.0]);
        let told = folded(all(), Some(Fold::Avg), Some(Fold::Sum));
        assert_eq!((told.len(), told[0].points[&20]), (1, 7.0));
    }
}
