//! `/settee/alerts/webhook`: where alerts are sent. Of Settee alone.

use axum::http::Method;
use cluster::{Command, Metadata};
use http::{
    AuditKind,
    reply::{self, Outcome, json_ok},
};
use serde_json::{Value, json};

use crate::request::Call;

/// Where it is kept among the settings.
const SETTING: &str = "settee/alerts/webhook";
/// Longest address, in bytes.
const URL_BYTES_MAX: usize = 2_048;

/// An address that alerts are posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether it is spoken to under TLS.
    pub tls: bool,
    /// With its query.
    pub path: String,
}

impl Webhook {
    /// That of a cluster, where it has one.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Option<Self> {
        Self::parse(metadata.settings.get(SETTING)?.get("url")?.as_str()?)
    }

    /// From `http[s]://HOST[:PORT][/PATH]`.
    #[must_use]
    pub fn parse(url: &str) -> Option<Self> {
        let (tls, rest) = match url.split_once("://")? {
            ("http", rest) => (false, rest),
            ("https", rest) => (true, rest),
            _ => return None,
        };
        let is_plain = url.len() <= URL_BYTES_MAX && url.bytes().all(|byte| byte.is_ascii_graphic());
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let standard = if tls { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            // A colon within brackets belongs to an address.
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (authority, standard),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_host = !host.is_empty() && !host.contains(['@', '#', '[', ']']);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        (is_plain && is_host && port != 0).then(|| Self { host: host.to_owned(), port, tls, path })
    }
}

pub(super) async fn dispatch(call: &Call) -> Outcome {
    match call.method {
        Method::GET => {
            let url = call.meta.settings.get(SETTING).and_then(|setting| setting.get("url"));
            Ok(json_ok(&json!({ "url": url })))
        }
        Method::PUT => {
            let form = call.form()?;
            let url =
                form.get("url").ok_or_else(|| reply::invalid_field("url", "The value must be supplied"))?;
            if Webhook::parse(url).is_none() {
                return Err(reply::invalid_field("url", "The value must be http[s]://HOST[:PORT][/PATH]"));
            }
            set(call, json!({ "url": url })).await
        }
        Method::DELETE => set(call, Value::Null).await,
        _ => Ok(reply::method_not_allowed()),
    }
}

async fn set(call: &Call, value: Value) -> Outcome {
    call.change(Command::PutSetting { path: SETTING.into(), value }, AuditKind::SettingsChanged, SETTING, "")
        .await?;
    Ok(reply::empty_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart_and_what_is_none_is_refused() {
        for (url, host, port, tls, path) in [
            ("http://hooks.example.com/a/b?c=d", "hooks.example.com", 80, false, "/a/b?c=d"),
            ("https://hooks.example.com", "hooks.example.com", 443, true, "/"),
            ("https://10.0.0.1:8443?x", "10.0.0.1", 8443, true, "/?x"),
            ("http://[::1]:99/x", "::1", 99, false, "/x"),
            ("http://[::1]/x", "::1", 80, false, "/x"),
        ] {
            let expected = Webhook { host: host.into(), port, tls, path: path.into() };
            assert_eq!(Webhook::parse(url), Some(expected), "{url}");
        }
        for wrong in [
            "",
            "ftp://h/",
            "http://",
            "http://:80/",
            "http://h:0/",
            "http://h:x/",
            "http://u@h/",
            "http://h/ x",
            "http://h/\r\nx",
        ] {
            assert_eq!(Webhook::parse(wrong), None, "{wrong}");
        }
    }
}
