//! `/settings/*`: showing and recording the objects of [`super::settings_table`].

use axum::http::{Method, StatusCode};
use cluster::{ClusterError, Command, FieldErrors, Metadata, auth::Privilege};
use serde_json::{Map, Value, json};

use super::{
    auto_failover,
    settings_table::{Effect, Kind, SETTINGS, Settings},
    unsupported,
};
use crate::{
    node::{
        mail::{self, MAIL_SETTING, MailLog, MailSettings},
        time::rfc3339,
    },
    request::Call,
};
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, Refusal, json_ok},
};

pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    let joined = path.join("/");
    if let ("audit/descriptors", &Method::GET) = (joined.as_str(), &call.method) {
        return Ok(json_ok(&json!([])));
    }
    if let ["autoFailover", rest @ ..] = path {
        return auto_failover::dispatch(call, rest).await;
    }
    if let [MAIL_SETTING, rest @ ..] = path {
        return alerts(call, rest).await;
    }
    let Some(settings) = SETTINGS.iter().find(|settings| settings.path == joined) else {
        return unsupported::path(call, path);
    };
    match call.method {
        Method::GET => Ok(json_ok(&shown(call, settings))),
        Method::POST => change(call, settings).await,
        _ => Ok(reply::method_not_allowed()),
    }
}

/// `/settings/alerts`: which alerts are mailed; `/settings/alerts/testEmail`: a mail by settings that may not be kept yet.
async fn alerts(call: &Call, rest: &[&str]) -> Outcome {
    match (rest, &call.method) {
        ([], &Method::GET) => Ok(json_ok(&shown_mail(call))),
        ([], &Method::POST) => {
            let (settings, ..) = mail::asked_for(&call.form()?)?;
            if !call.query.is_on("just_validate") {
                let value = settings.json(&settings.server.password);
                call.change(
                    Command::PutSetting { path: MAIL_SETTING.into(), value },
                    AuditKind::SettingsChanged,
                    MAIL_SETTING,
                    "",
                )
                .await?;
            }
            Ok(reply::empty_ok())
        }
        (["testEmail"], &Method::POST) => test_mail(call).await,
        _ => Ok(reply::method_not_allowed()),
    }
}

fn shown_mail(call: &Call) -> Value {
    let mut shown = MailSettings::of(&call.meta).json("");
    let MailLog { sent, failed, last_failure } = call.api.control.mail_log();
    // What a mail server says may name its users.
    let sees_text = call.holds(Privilege::ClusterAdmin, None);
    let failure = last_failure.map(
        |(at, text)| json!({ "at": rfc3339(at.saturating_mul(1_000)), "text": sees_text.then_some(text) }),
    );
    // What this node's mails have come to.
    shown["settee"] = json!({ "sent": sent, "failed": failed, "lastFailure": failure });
    shown
}

async fn test_mail(call: &Call) -> Outcome {
    let (settings, subject, body) = mail::asked_for(&call.form()?)?;
    call.audit(AuditKind::SettingsChanged, "alerts/testEmail", settings.recipients.join(","));
    match call.api.control.send_mail(settings.mail(subject, body)).await {
        Ok(()) => Ok(reply::empty_ok()),
        Err(text) => Ok(reply::with_status(StatusCode::BAD_REQUEST, &json!({ "error": text }))),
    }
}

/// A settings object as it is now.
pub(super) fn current(meta: &Metadata, path: &str) -> Value {
    let Some(settings) = SETTINGS.iter().find(|settings| settings.path == path) else { return json!({}) };
    let mut object = json!({});
    for (name, kind) in settings.fields {
        put(&mut object, name, default(*kind));
    }
    if let Some(Value::Object(stored)) = meta.settings.get(path) {
        for (name, value) in stored {
            put(&mut object, name, value.clone());
        }
    }
    object
}

fn shown(call: &Call, settings: &Settings) -> Value {
    let mut object = current(&call.meta, settings.path);
    if settings.path == "audit" {
        object["uid"] = call.meta.version.to_string().into();
    }
    if let ("security", false, Some(members)) =
        (settings.path, call.meta.is_encrypted(), object.as_object_mut())
    {
        // As in Couchbase: where nothing is encrypted there is no level.
        members.remove("clusterEncryptionLevel");
    }
    if settings.effect == Effect::RecordedOnly {
        object["settee"] = json!({ "effect": "recorded only" });
    }
    if settings.path == "autoCompaction" {
        return json!({ "autoCompactionSettings": object, "purgeInterval": object["purgeInterval"] });
    }
    object
}

async fn change(call: &Call, settings: &Settings) -> Outcome {
    let form = parameters(call)?;
    let only_checks = call.query.is_on("just_validate");
    call.change_setting(settings.path, |now| {
        let mut errors = FieldErrors::new();
        let stored = overlaid(&now.meta, settings, &form, &mut errors);
        ClusterError::unless_empty(errors)?;
        Ok(((!only_checks).then(|| stored.into()), ()))
    })
    .await?;
    if !only_checks {
        call.audit(AuditKind::SettingsChanged, settings.path, "");
        if settings.effect == Effect::RecordedOnly {
            // Tools of Couchbase show no more of an answer than that it is a success.
            tracing::warn!(
                setting = settings.path,
                "the setting is kept and shown, and nothing acts upon it"
            );
        }
    }
    if !settings.answers {
        return Ok(reply::empty_ok());
    }
    let fresh = Call { meta: call.api.control.metadata(), ..call.clone() };
    Ok(json_ok(&shown(&fresh, settings)))
}

/// What is stored of a settings object after a form was laid over it; what is wrong with the form goes into `errors`.
fn overlaid(
    meta: &Metadata,
    settings: &Settings,
    form: &Form,
    errors: &mut FieldErrors,
) -> Map<String, Value> {
    let mut stored = match meta.settings.get(settings.path) {
        Some(Value::Object(stored)) => stored.clone(),
        _ => Map::new(),
    };
    for (name, value) in form.fields() {
        let Some((name, kind)) = settings.fields.iter().find(|(known, _)| known == name) else {
            errors.insert(name.clone(), "Unsupported key".into());
            continue;
        };
        match parse(*kind, value) {
            Ok(Some(value)) => {
                stored.insert((*name).to_owned(), value);
            }
            Ok(None) => {}
            Err(text) => {
                errors.insert((*name).to_owned(), text);
            }
        }
    }
    stored
}

/// The same for an object that has a module of its own, by its path. It is nothing when the form changes nothing.
pub(super) fn recorded(
    meta: &Metadata,
    path: &str,
    form: &Form,
    errors: &mut FieldErrors,
) -> Option<Map<String, Value>> {
    let settings = SETTINGS.iter().find(|settings| settings.path == path)?;
    let stored = overlaid(meta, settings, form, errors);
    (!form.fields().is_empty()).then_some(stored)
}

/// Parameters as a form, or as a flat JSON object where tools send one.
fn parameters(call: &Call) -> Result<Form, Refusal> {
    if call.body.first() != Some(&b'{') {
        return call.form();
    }
    let malformed = || reply::bad_request("Malformed JSON");
    let object: Map<String, Value> = serde_json::from_slice(&call.body).map_err(|_| malformed())?;
    let mut fields = Vec::new();
    for (name, value) in object {
        let text = match value {
            Value::String(text) => text,
            Value::Array(list) if list.is_empty() => String::new(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return Err(malformed()),
        };
        fields.push((name, text));
    }
    Ok(Form::from(fields))
}

fn default(kind: Kind) -> Value {
    match kind {
        Kind::Bool(value) => value.into(),
        Kind::Int(_, most, default) if most == default && most == i64::MAX => "undefined".into(),
        Kind::Int(_, _, default) => default.into(),
        Kind::Text(text) => text.into(),
        Kind::OneOf(values) => values.first().map_or(Value::Null, |value| one_of(value)),
        Kind::List => json!([]),
    }
}

/// Words that are switches elsewhere are shown as switches.
fn one_of(value: &str) -> Value {
    match value {
        "true" => true.into(),
        "false" => false.into(),
        "[]" => json!([]),
        other => other.into(),
    }
}

fn parse(kind: Kind, value: &str) -> Result<Option<Value>, String> {
    match kind {
        Kind::Bool(_) => match value {
            "true" | "1" => Ok(Some(true.into())),
            "false" | "0" => Ok(Some(false.into())),
            _ => Err("The value must be one of the following: [true,false]".into()),
        },
        Kind::Int(..) if value == "undefined" => Ok(None),
        Kind::Int(least, most, _) => match value.trim().parse::<i64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number.into())),
            _ => Err(format!("The value must be in range from {least} to {most}")),
        },
        Kind::Text(_) => Ok(Some(value.into())),
        Kind::OneOf(values) => {
            if values.contains(&value) {
                Ok(Some(one_of(value)))
            } else {
                Err(format!("The value is not supported by Settee; supported: [{}]", values.join(",")))
            }
        }
        Kind::List => {
            let parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
            Ok(Some(
                parts.map(|part| part.parse::<i64>().map_or_else(|_| part.into(), Value::from)).collect(),
            ))
        }
    }
}

/// Sets `a[b][c]` of an object.
fn put(object: &mut Value, name: &str, value: Value) {
    let mut at = object;
    for part in name.split('[').map(|part| part.trim_end_matches(']')) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    *at = value;
}
