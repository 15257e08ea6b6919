//! `/settee/alerts/silences`: alerts that are not sent for a while. Of Settee alone.

use std::collections::BTreeMap;

use axum::http::Method;
use cluster::{ClusterError, FieldErrors, Metadata};
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, Refusal, json_ok},
};
use serde_json::{Value, json};
use watch::{
    alerts::ALERTS,
    silences::{MINUTES_MAX, SILENCES_MAX, Silence},
};

use super::nodes;
use crate::{
    node::time::{now_ms, rfc3339},
    request::{Api, Call},
};

/// Where they are kept among the settings.
const SETTING: &str = "settee/alerts/silences";
/// Longest subject and comment, in bytes.
const TEXT_BYTES_MAX: usize = 512;

/// The silences of a cluster, those that are over among them, by their ids.
#[must_use]
pub fn silences(metadata: &Metadata) -> BTreeMap<String, Silence> {
    let kept = metadata.settings.get(SETTING).and_then(|kept| serde_json::from_value(kept.clone()).ok());
    kept.unwrap_or_default()
}

/// Until when an alert is not sent, in seconds since 1970.
pub(super) fn silenced_until(metadata: &Metadata, alert: &str, subject: &str, node: &str) -> Option<u64> {
    let covering =
        silences(metadata).into_values().filter(|one| one.covers(alert, subject, node, now_ms() / 1_000));
    covering.map(|one| one.until_secs).max()
}

pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    match (path, &call.method) {
        ([], &Method::GET) => Ok(list(call)),
        ([], &Method::POST) => add(call).await,
        ([id], &Method::DELETE) => remove(call, id).await,
        _ => Ok(reply::method_not_allowed()),
    }
}

/// Those that last.
fn lasting(call: &Call) -> BTreeMap<String, Silence> {
    let now = now_ms() / 1_000;
    silences(&call.meta).into_iter().filter(|(_, one)| one.lasts(now)).collect()
}

fn list(call: &Call) -> reply::Reply {
    let shown = lasting(call).into_iter().map(|(id, one)| view(call, &id, &one));
    json_ok(&json!({ "silences": shown.collect::<Vec<_>>() }))
}

fn view(call: &Call, id: &str, one: &Silence) -> Value {
    // A node that has left is named by its uuid.
    let name =
        |uuid: &String| call.meta.node(uuid).map_or_else(|| uuid.clone(), |node| nodes::hostname(call, node));
    json!({
        "node": one.node.as_ref().map(name),
        "id": id, "alert": one.alert, "subject": one.subject, "by": one.by, "comment": one.comment,
        "until": rfc3339(one.until_secs.saturating_mul(1_000)),
    })
}

async fn add(call: &Call) -> Outcome {
    let uuid = |name: &str| nodes::find(call, name).map(|node| node.uuid.clone());
    let silence = asked_for(&call.form()?, uuid, &call.user.name, now_ms() / 1_000)?;
    let id = Api::new_uuid()?;
    let added = |kept: &mut BTreeMap<String, Silence>| {
        if kept.len() >= SILENCES_MAX {
            let text = format!(
                "There can be {SILENCES_MAX} silences at the same time. Remove one that is not needed."
            );
            return Err(reply::bad_request(&text));
        }
        kept.insert(id.clone(), silence.clone());
        Ok(())
    };
    change(call, added).await?;
    let details = format!("{} until {}", silence.alert, rfc3339(silence.until_secs.saturating_mul(1_000)));
    call.audit(AuditKind::SettingsChanged, &format!("{SETTING}/{id}"), details);
    Ok(json_ok(&view(call, &id, &silence)))
}

async fn remove(call: &Call, id: &str) -> Outcome {
    let removed = |kept: &mut BTreeMap<String, Silence>| {
        kept.remove(id).map(drop).ok_or_else(|| reply::not_found().into())
    };
    change(call, removed).await?;
    call.audit(AuditKind::SettingsChanged, &format!("{SETTING}/{id}"), "removed");
    Ok(reply::empty_ok())
}

/// Changes the list of those that last.
async fn change(
    call: &Call,
    change: impl Fn(&mut BTreeMap<String, Silence>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    call.change_setting(SETTING, |now| {
        let mut kept = lasting(now);
        change(&mut kept)?;
        let value = serde_json::to_value(&kept).map_err(|error| reply::bad_request(&error.to_string()))?;
        Ok((Some(value), ()))
    })
    .await
}

fn asked_for(
    form: &Form,
    uuid: impl Fn(&str) -> Option<String>,
    by: &str,
    now_secs: u64,
) -> Result<Silence, Refusal> {
    const FIELDS: [&str; 5] = ["alert", "subject", "node", "minutes", "comment"];
    let mut errors = FieldErrors::new();
    for (name, _) in form.fields().iter().filter(|(name, _)| !FIELDS.contains(&name.as_str())) {
        errors.insert(name.clone(), "Unsupported key".into());
    }
    let alert = form.get("alert").unwrap_or_default();
    if !ALERTS.iter().any(|about| about.name == alert) {
        errors.insert("alert".into(), "The value must be the name of an alert".into());
    }
    let node = form.get("node").filter(|name| !name.is_empty());
    let told = node.and_then(uuid);
    if node.is_some() && told.is_none() {
        errors.insert("node".into(), "The value must be the name of a node".into());
    }
    let minutes = form.integer::<u32>("minutes", &mut errors);
    if !minutes.is_some_and(|minutes| (1..=MINUTES_MAX).contains(&minutes)) {
        errors.insert("minutes".into(), format!("The value must be in range from 1 to {MINUTES_MAX}"));
    }
    let mut text = |name: &str| {
        let text = form.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
        if text.as_ref().is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
            errors.insert(name.into(), format!("The value must have {TEXT_BYTES_MAX} bytes at most"));
        }
        text
    };
    let (subject, comment) = (text("subject"), text("comment").unwrap_or_default());
    if !errors.is_empty() {
        return Err(ClusterError::Invalid(errors).into());
    }
    let until_secs = now_secs + u64::from(minutes.unwrap_or_default()) * 60;
    Ok(Silence { alert: alert.to_owned(), subject, node: told, until_secs, by: by.to_owned(), comment })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_names_an_alert_and_has_an_end() {
        let asked = |form: &str| {
            let uuid = |name: &str| (name == "h:1").then(|| "n".to_owned());
            asked_for(&Form::parse(form.as_bytes()).unwrap(), uuid, "ann", 1_000).map_err(drop)
        };
        let expected = Silence {
            alert: "node_down".into(),
            subject: Some("h:1".into()),
            node: None,
            until_secs: 1_000 + 600,
            by: "ann".into(),
            comment: "disk swap".into(),
        };
        assert_eq!(asked("alert=node_down&subject=h%3A1&minutes=10&comment=disk+swap"), Ok(expected));
        assert_eq!(
            asked("alert=node_down&minutes=1").map(|one| one.subject),
            Ok(None),
            "whatever it is about"
        );
        assert_eq!(asked("alert=disk_low&node=h%3A1&minutes=1").map(|one| one.node), Ok(Some("n".into())));
        assert_eq!(asked("alert=disk_low&node=h%3A2&minutes=1"), Err(()), "no such node");
        let long = format!("alert=node_down&minutes=1&comment={}", "x".repeat(TEXT_BYTES_MAX + 1));
        let wrong = ["", "alert=node_down", "alert=nodes&minutes=1", "alert=node_down&minutes=0", &long];
        for wrong in
            wrong.into_iter().chain(["alert=node_down&minutes=43201", "alert=node_down&minutes=1&x=1"])
        {
            assert_eq!(asked(wrong), Err(()), "{wrong}");
        }
    }
}
