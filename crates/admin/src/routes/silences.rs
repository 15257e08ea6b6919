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
    turns::is_about_a_node,
};

use super::nodes;
use crate::{
    node::{
        alerts::name_in_alerts,
        time::{now_ms, rfc3339},
    },
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
    let kept: BTreeMap<String, Silence> = kept.unwrap_or_default();
    let name = |uuid: &str| metadata.node(uuid).map(name_in_alerts);
    kept.into_iter().map(|(id, one)| (id, one.settled(name))).collect()
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
    // A node that has left is called what it was. A silence of an older version does not say that.
    let name = |uuid: &String| {
        let known = call.meta.node(uuid).map(|node| nodes::hostname(call, node));
        known.or_else(|| one.node_name.clone()).unwrap_or_else(|| uuid.clone())
    };
    json!({
        "node": one.node.as_ref().map(name),
        "id": id, "alert": one.alert, "subject": one.subject, "by": one.by, "comment": one.comment,
        "until": rfc3339(one.until_secs.saturating_mul(1_000)),
    })
}

async fn add(call: &Call) -> Outcome {
    let find = |name: &str| {
        let node = nodes::find(call, name)?;
        Some(Named { uuid: node.uuid.clone(), name: name_in_alerts(node) })
    };
    let silence = asked_for(&call.form()?, find, &call.user.name, now_ms() / 1_000)?;
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

/// A node that a silence names.
struct Named {
    uuid: String,
    /// What alerts call it.
    name: String,
}

/// What a silence is about, and which node tells it. The node of an alert about a node is the one that it is about: another one may tell
/// it, or this one of others.
fn about(
    alert: &str,
    subject: Option<String>,
    node: Option<Named>,
    errors: &mut FieldErrors,
) -> (Option<String>, Option<Named>) {
    match (node, subject) {
        (Some(node), Some(subject)) if is_about_a_node(alert) && node.name != subject => {
            let text = "This alert is about a node. Name that one as the subject or here, and no other.";
            errors.insert("node".into(), text.into());
            (Some(subject), None)
        }
        (Some(node), _) if is_about_a_node(alert) => (Some(node.name), None),
        (node, subject) => (subject, node),
    }
}

fn asked_for(
    form: &Form,
    find: impl Fn(&str) -> Option<Named>,
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
    let found = node.and_then(find);
    if node.is_some() && found.is_none() {
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
    let (subject, told) = about(alert, subject, found, &mut errors);
    if !errors.is_empty() {
        return Err(ClusterError::Invalid(errors).into());
    }
    let until_secs = now_secs + u64::from(minutes.unwrap_or_default()) * 60;
    let (node, node_name) = told.map(|told| (told.uuid, told.name)).unzip();
    let (alert, by) = (alert.to_owned(), by.to_owned());
    Ok(Silence { alert, subject, node, node_name, until_secs, by, comment })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_names_an_alert_and_has_an_end() {
        let asked = |form: &str| {
            let find =
                |name: &str| (name == "h:1").then(|| Named { uuid: "n".to_owned(), name: "h:1".to_owned() });
            asked_for(&Form::parse(form.as_bytes()).unwrap(), find, "ann", 1_000).map_err(drop)
        };
        let expected = Silence {
            alert: "node_down".into(),
            subject: Some("h:1".into()),
            node: None,
            node_name: None,
            until_secs: 1_000 + 600,
            by: "ann".into(),
            comment: "disk swap".into(),
        };
        assert_eq!(
            asked("alert=node_down&subject=h%3A1&minutes=10&comment=disk+swap").as_ref(),
            Ok(&expected)
        );
        let by_node = asked("alert=node_down&node=h%3A1&minutes=10&comment=disk+swap");
        assert_eq!(by_node.as_ref(), Ok(&expected), "the node that it is about, whichever tells it");
        let both = asked("alert=node_down&node=h%3A1&subject=h%3A1&minutes=10&comment=disk+swap");
        assert_eq!(both, Ok(expected));
        assert_eq!(asked("alert=node_down&node=h%3A1&subject=h%3A3&minutes=10"), Err(()), "two nodes");
        assert_eq!(
            asked("alert=node_down&minutes=1").map(|one| one.subject),
            Ok(None),
            "whatever it is about"
        );
        let told = asked("alert=disk_low&node=h%3A1&minutes=1").map(|one| (one.node, one.node_name));
        assert_eq!(told, Ok((Some("n".into()), Some("h:1".into()))));
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
