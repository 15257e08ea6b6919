//! `/settings/autoFailover`: when nodes are failed over without anybody asking. Four of its parameters decide something
//! here; the others that Couchbase knows are recorded, and shown as what they are.

use axum::http::Method;
use cluster::{AutoFailoverChange, ClusterError, Command, FieldErrors};
use serde_json::{Value, json};

use super::{settings, unsupported};
use crate::request::Call;
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, json_ok},
};

/// Seconds a node may be silent: from Couchbase 7.6 on as little as one.
const TIMEOUT_SECS: std::ops::RangeInclusive<u32> = 1..=3600;
/// Failovers before somebody has to look.
const MAX_COUNT: std::ops::RangeInclusive<u32> = 1..=100;
/// What is decided by; everything else is in the table of recorded settings.
const DECIDING: &[&str] = &["enabled", "timeout", "maxCount", "failoverServerGroup"];

pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    match (call.method.as_str(), path) {
        ("GET", []) => show(call),
        ("POST", []) => change(call).await,
        ("POST", ["resetCount"]) => {
            call.change(
                Command::ResetAutoFailover,
                AuditKind::SettingsChanged,
                "autoFailover",
                "count reset",
            )
            .await?;
            Ok(reply::empty_ok())
        }
        _ if [Method::GET, Method::POST].contains(&call.method) => unsupported::path(call, path),
        _ => Ok(reply::method_not_allowed()),
    }
}

fn show(call: &Call) -> Outcome {
    let mut object = settings::current(&call.meta, "autoFailover");
    let now = &call.meta.auto_failover;
    object["enabled"] = now.enabled.into();
    object["timeout"] = now.timeout_secs.into();
    object["maxCount"] = now.max_count.into();
    object["count"] = now.count.into();
    object["failoverServerGroup"] = now.whole_groups.into();
    object["settee"] = json!({ "effect": "enabled, timeout, maxCount and failoverServerGroup decide; the rest is recorded" });
    Ok(json_ok(&object))
}

async fn change(call: &Call) -> Outcome {
    let form = call.form()?;
    let mut errors = FieldErrors::new();
    let wanted = wanted(&form, &mut errors);
    let recorded: Vec<(String, String)> =
        form.fields().iter().filter(|(name, _)| !DECIDING.contains(&name.as_str())).cloned().collect();
    let recorded = Form::from(recorded);
    settings::recorded(&call.meta, "autoFailover", &recorded, &mut errors);
    ClusterError::unless_empty(errors)?;
    let command = call.meta.change_of_auto_failover(wanted);
    call.change(command, AuditKind::SettingsChanged, "autoFailover", "").await?;
    call.change_setting("autoFailover", |now| {
        let mut errors = FieldErrors::new();
        let value = settings::recorded(&now.meta, "autoFailover", &recorded, &mut errors);
        ClusterError::unless_empty(errors)?;
        Ok((value.map(Value::Object), ()))
    })
    .await?;
    Ok(reply::empty_ok())
}

/// The settings that a form names; what is wrong with it goes into `errors`.
fn wanted(form: &Form, errors: &mut FieldErrors) -> AutoFailoverChange {
    let enabled = form.boolean("enabled", errors);
    if enabled.is_none() && form.get("enabled").is_none() {
        errors.insert("enabled".into(), "The value must be supplied".into());
    }
    let mut number = |name: &str, range: std::ops::RangeInclusive<u32>| {
        let number: u32 = form.integer(name, errors)?;
        if !range.contains(&number) {
            let text = format!("The value must be in range from {} to {}", range.start(), range.end());
            errors.insert(name.into(), text);
        }
        Some(number)
    };
    let timeout_secs = number("timeout", TIMEOUT_SECS);
    let max_count = number("maxCount", MAX_COUNT);
    let enabled = enabled.unwrap_or_default();
    if enabled && form.get("timeout").is_none() {
        let text = "enabled is true. A value must be supplied for timeout";
        errors.entry("enabled".into()).or_insert_with(|| text.into());
    }
    let whole_groups = form.boolean("failoverServerGroup", errors);
    AutoFailoverChange { enabled, timeout_secs, max_count, whole_groups }
}
