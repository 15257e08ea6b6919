//! `/settee/slo`: objectives of buckets, and how they are met. Of Settee alone.

use axum::http::Method;
use cluster::{ClusterError, Command, FieldErrors, Objective, ObjectiveChange, Operation, auth::Privilege};
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, Refusal, json_ok},
};
use serde_json::{Map, Value, json};
use watch::{Judgement, RULES, Span, Spans, burn::MILLION, judge};

use super::{
    nodes,
    objectives::{self, Together},
};
use crate::{
    node::counted::{Source, told_latency},
    request::Call,
};

/// What an objective is where a request does not say.
const PERIOD_DAYS: u16 = 28;

pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    match (path, &call.method) {
        ([], &Method::GET) => list(call, None).await,
        ([bucket], &Method::GET) => list(call, Some(bucket)).await,
        ([bucket, name], &Method::GET) => show(call, bucket, name).await,
        ([bucket, name], &Method::PUT) => put(call, bucket, name).await,
        ([bucket, name], &Method::DELETE) => remove(call, bucket, name).await,
        _ => Ok(reply::method_not_allowed()),
    }
}

async fn list(call: &Call, bucket: Option<&str>) -> Outcome {
    if let Some(bucket) = bucket {
        call.bucket(bucket)?;
    }
    let is_asked_for = |name: &str| bucket.is_none_or(|bucket| bucket == name);
    let together = objectives::together(call).await;
    let buckets = call.meta.buckets.iter().filter(|(name, _)| {
        is_asked_for(name.as_str()) && call.holds(Privilege::BucketRead, Some(name.as_str()))
    });
    let all = buckets.flat_map(|(bucket, info)| info.objectives.iter().map(move |one| (bucket, one)));
    let shown = all.map(|(bucket, (name, objective))| view(bucket, name, objective, &together));
    let shown: Vec<Value> = shown.collect();
    Ok(json_ok(&json!({ "objectives": shown, "missingNodes": missing(call, &together) })))
}

async fn show(call: &Call, bucket: &str, name: &str) -> Outcome {
    let objective = call.bucket(bucket)?.objectives.get(name).ok_or_else(reply::not_found)?;
    let together = objectives::together(call).await;
    let mut shown = view(bucket, name, objective, &together);
    shown["missingNodes"] = missing(call, &together);
    Ok(json_ok(&shown))
}

/// Nodes whose counts are not in the sums.
fn missing(call: &Call, together: &Together) -> Value {
    let nodes = together.missing.iter().filter_map(|id| call.meta.node_by_id(*id));
    nodes.map(|node| nodes::hostname(call, node)).collect::<Vec<_>>().into()
}

fn percent_of(ppm: u32) -> f64 {
    f64::from(ppm) * 100.0 / f64::from(MILLION)
}

fn view(bucket: &str, name: &str, objective: &Objective, together: &Together) -> Value {
    let spans = together.of(bucket, name);
    let judged = judge(objective.target_ppm, &spans);
    let percent = |share: Option<f64>| share.map(|share| share * 100.0);
    let outside = seen_outside(bucket, name, objective, together);
    let states = outside.iter().map(|(source, _, judged)| (*source, judged.word()));
    let (source, state) = worst_state(judged.word(), states);
    let outside: Map<String, Value> = outside
        .iter()
        .map(|(source, spans, judged)| {
            (source.name().to_owned(), view_of_outside(objective, *source, spans, judged))
        })
        .collect();
    json!({
        "bucket": bucket, "name": name,
        "operation": objective.operation.name(), "latencyUs": objective.latency_us,
        "targetPercent": percent_of(objective.target_ppm), "periodDays": objective.period_days,
        "events": events(&spans), "attainedPercent": percent(judged.attained),
        "budgetLeftPercent": percent(judged.budget_left), "burn": burn(&judged), "rules": rules(&judged),
        "state": state, "stateSource": source.name(), "seenFromOutside": outside,
    })
}

/// The state of an objective is the worst one of its sources, since each of them has alerts of its own. The server's comes first.
fn worst_state(
    of_server: &'static str,
    outside: impl Iterator<Item = (Source, &'static str)>,
) -> (Source, &'static str) {
    let all: Vec<_> = std::iter::once((Source::Server, of_server)).chain(outside).collect();
    let find = |word: &str| all.iter().find(|(_, state)| *state == word).copied();
    find("exhausted").or_else(|| find("burning")).unwrap_or((Source::Server, of_server))
}

/// How fast the budget burns, by span.
fn burn(judged: &Judgement) -> Map<String, Value> {
    Span::ALL.iter().zip(judged.burn).map(|(span, burn)| (span.name().into(), json!(burn))).collect()
}

/// Every rule, and whether it holds.
fn rules(judged: &Judgement) -> Vec<Value> {
    let shown = RULES.iter().zip(judged.holds).map(|(rule, holds)| {
        json!({
            "severity": rule.severity.word(), "long": rule.long.name(), "short": rule.short.name(),
            "burn": rule.burn, "holds": holds,
        })
    });
    shown.collect()
}

/// The same objective by what was seen outside of the server.
fn seen_outside(
    bucket: &str,
    name: &str,
    objective: &Objective,
    together: &Together,
) -> Vec<(Source, Spans, Judgement)> {
    let outside = Source::ALL.into_iter().filter(|source| *source != Source::Server);
    let seen = outside.filter_map(|source| {
        let spans = together.seen_by(bucket, name, source)?;
        Some((source, spans, judge(objective.target_ppm, &spans)))
    });
    seen.collect()
}

fn view_of_outside(objective: &Objective, source: Source, spans: &Spans, judged: &Judgement) -> Value {
    let percent = |share: Option<f64>| share.map(|share| share * 100.0);
    let mut shown = json!({
        "events": events(spans), "attainedPercent": percent(judged.attained),
        "budgetLeftPercent": percent(judged.budget_left), "state": judged.word(),
        "burn": burn(judged), "rules": rules(judged),
    });
    if source == Source::Sdk {
        let bound = told_latency(objective.operation).bound_within(objective.latency_us);
        shown["goodWithinUs"] = bound.map(|(_, bound)| u64::from(bound) * 1_000).into();
    }
    shown
}

fn events(spans: &Spans) -> Value {
    json!({ "good": spans.period.good, "total": spans.period.total })
}

async fn put(call: &Call, bucket: &str, name: &str) -> Outcome {
    let known = call.bucket(bucket)?.objectives.get(name);
    let objective = asked_for(&call.form()?, known)?;
    let change = ObjectiveChange { bucket: bucket.into(), name: name.into(), objective: Some(objective) };
    change.check(&call.meta)?;
    if !call.query.is_on("just_validate") {
        call.change(
            Command::ChangeObjective(change),
            AuditKind::SettingsChanged,
            &format!("slo/{bucket}/{name}"),
            "set",
        )
        .await?;
    }
    Ok(reply::empty_ok())
}

async fn remove(call: &Call, bucket: &str, name: &str) -> Outcome {
    call.bucket(bucket)?.objectives.get(name).ok_or_else(reply::not_found)?;
    let change = ObjectiveChange { bucket: bucket.into(), name: name.into(), objective: None };
    call.change(
        Command::ChangeObjective(change),
        AuditKind::SettingsChanged,
        &format!("slo/{bucket}/{name}"),
        "removed",
    )
    .await?;
    Ok(reply::empty_ok())
}

/// What a form asks for; what it leaves out stays as it is.
fn asked_for(form: &Form, known: Option<&Objective>) -> Result<Objective, Refusal> {
    const FIELDS: [&str; 4] = ["operation", "latencyUs", "targetPercent", "periodDays"];
    let mut errors = FieldErrors::new();
    for (name, _) in form.fields().iter().filter(|(name, _)| !FIELDS.contains(&name.as_str())) {
        errors.insert(name.clone(), "Unsupported key".into());
    }
    let operation = operation(form, &mut errors).or(known.map(|known| known.operation));
    let latency_us = form.integer("latencyUs", &mut errors).or(known.map(|known| known.latency_us));
    let target_ppm = target(form, &mut errors).or(known.map(|known| known.target_ppm));
    let period_days = form.integer("periodDays", &mut errors).or(known.map(|known| known.period_days));
    let mut require = |name: &str, is_there: bool| {
        if !is_there && !errors.contains_key(name) {
            errors.insert(name.into(), "The value must be supplied".into());
        }
    };
    require("operation", operation.is_some());
    require("latencyUs", latency_us.is_some());
    require("targetPercent", target_ppm.is_some());
    match (operation, latency_us, target_ppm) {
        (Some(operation), Some(latency_us), Some(target_ppm)) if errors.is_empty() => Ok(Objective {
            operation,
            latency_us,
            target_ppm,
            period_days: period_days.unwrap_or(PERIOD_DAYS),
        }),
        _ => Err(ClusterError::Invalid(errors).into()),
    }
}

fn operation(form: &Form, errors: &mut FieldErrors) -> Option<Operation> {
    let asked = form.get("operation")?;
    let found = Operation::ALL.into_iter().find(|(_, name)| *name == asked).map(|(operation, _)| operation);
    if found.is_none() {
        let text = "The value must be one of the following: [get,set,durable]";
        errors.insert("operation".into(), text.into());
    }
    found
}

fn target(form: &Form, errors: &mut FieldErrors) -> Option<u32> {
    let percent = form.get("targetPercent")?.trim().parse::<f64>().ok().filter(|percent| percent.is_finite());
    if percent.is_none() {
        errors.insert("targetPercent".into(), "The value must be a number".into());
    }
    // The conversion saturates; what is out of range is refused where all objectives are checked.
    percent.map(|percent| (percent * f64::from(MILLION) / 100.0).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(form: &str, known: Option<&Objective>) -> Result<Objective, ()> {
        asked_for(&Form::parse(form.as_bytes()).unwrap(), known).map_err(drop)
    }

    #[test]
    fn an_objective_is_as_bad_as_the_worst_of_its_sources() {
        let of = |server: &'static str, probe: &'static str, sdk: &'static str| {
            worst_state(server, [(Source::Probe, probe), (Source::Sdk, sdk)].into_iter())
        };
        assert_eq!(of("met", "met", "no data"), (Source::Server, "met"));
        assert_eq!(of("no data", "met", "met"), (Source::Server, "no data"));
        assert_eq!(of("met", "burning", "met"), (Source::Probe, "burning"));
        assert_eq!(of("burning", "burning", "exhausted"), (Source::Sdk, "exhausted"));
        assert_eq!(of("burning", "burning", "met"), (Source::Server, "burning"));
    }

    #[test]
    fn what_a_form_leaves_out_stays_and_what_it_gets_wrong_is_refused() {
        let full = "operation=get&latencyUs=2000&targetPercent=99.9";
        let known = asked(full, None).unwrap();
        let expected =
            Objective { operation: Operation::Get, latency_us: 2000, target_ppm: 999_000, period_days: 28 };
        assert_eq!(known, expected);
        let changed = asked("targetPercent=99.99&periodDays=7", Some(&known)).unwrap();
        assert_eq!(changed, Objective { target_ppm: 999_900, period_days: 7, ..expected });
        for wrong in ["", "operation=get", "operation=scan", "latencyUs=x", "targetPercent=NaN", "other=1"] {
            let with = format!("{full}&{wrong}");
            assert!(asked(wrong, None).is_err(), "{wrong}");
            let is_harmless = ["", "operation=get"].contains(&wrong);
            assert_eq!(asked(&with, None).is_ok(), is_harmless, "{with}");
        }
    }
}
