//! Passwords: the policy for new ones, and changing one's own.

use axum::http::Method;
use cluster::{Command, FieldErrors, Metadata};
use serde_json::Value;

use super::{settings, verifiers::hashed};
use crate::{node::time::now_ms, request::Call};
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, Refusal},
};

/// The longest password; hashing takes time in proportion.
const BYTES_MAX: usize = 1024;
/// What counts as special (ns_server).
const SPECIAL: &str = "@%+\\/'\"!#$^?:,(){}[]~`-_";

/// Why a new password will not do; `None` when it will.
pub(super) fn objection(meta: &Metadata, password: &str) -> Option<String> {
    let policy = settings::current(meta, "passwordPolicy");
    let on = |name: &str| policy.get(name).and_then(Value::as_bool).unwrap_or(false);
    let least = policy.get("minLength").and_then(Value::as_u64).unwrap_or(6);
    let has = |test: fn(char) -> bool| password.chars().any(test);
    if (password.chars().count() as u64) < least {
        Some(format!("The password must be at least {least} characters long."))
    } else if password.len() > BYTES_MAX {
        Some(format!("The password may not be longer than {BYTES_MAX} bytes."))
    } else if has(char::is_control) {
        Some("The password must not contain control characters".into())
    } else if on("enforceUppercase") && !has(char::is_uppercase) {
        Some("The password must contain at least one uppercase letter".into())
    } else if on("enforceLowercase") && !has(char::is_lowercase) {
        Some("The password must contain at least one lowercase letter".into())
    } else if on("enforceDigits") && !has(|c| c.is_ascii_digit()) {
        Some("The password must contain at least one digit".into())
    } else if on("enforceSpecialChars") && !password.chars().any(|c| SPECIAL.contains(c)) {
        Some(format!("The password must contain at least one of the following characters: {SPECIAL}"))
    } else {
        None
    }
}

/// A form's `password`, if it will do; what is wrong with it goes to `errors`.
pub(super) fn wanted<'a>(meta: &Metadata, form: &'a Form, errors: &mut FieldErrors) -> Option<&'a str> {
    let password = form.get("password")?;
    match objection(meta, password) {
        None => Some(password),
        Some(text) => {
            errors.insert("password".into(), text);
            None
        }
    }
}

/// `POST /controller/changePassword`: somebody's own.
pub(super) async fn change(call: &Call) -> Outcome {
    if call.method != Method::POST {
        return Ok(reply::method_not_allowed());
    }
    let form = call.form()?;
    let mut errors = FieldErrors::new();
    let missing = || -> Refusal { reply::invalid_field("password", "The value must be supplied") };
    let password = wanted(&call.meta, &form, &mut errors);
    cluster::ClusterError::unless_empty(errors)?;
    let credentials = hashed(password.ok_or_else(missing)?.to_owned()).await?;
    // Hashing takes a while. An administrator may have given the account another password by now, against a thief of this one.
    let call = &call.anew()?;
    let command = Command::ChangePassword { identity: call.user.clone(), credentials, now_ms: now_ms() };
    call.change(command, AuditKind::PasswordChanged, &call.user.name, "").await?;
    Ok(reply::empty_ok())
}
