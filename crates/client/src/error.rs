//! What can go wrong between a tool and a server.

use base::Status;
use serde_json::Value;
use std::io;

/// Result of client calls.
pub type Result<T> = std::result::Result<T, ClientError>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket could not be opened; nothing was sent.
    #[error("cannot connect to {address}: {source} (is the server running there?)")]
    Connect {
        /// `host:port` as asked for.
        address: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The connection broke or timed out; the outcome of requests in flight is unknown.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The server answered with an error.
    #[error("{what} failed: {} (0x{code:02x}){}", name_of(*status), suffix(body))]
    Status {
        /// The operation.
        what: &'static str,
        /// The status if it is a known one.
        status: Option<Status>,
        /// The status on the wire.
        code: u16,
        /// What the server said about it.
        body: String,
    },
    /// The node refuses the bucket. It does not tell a bucket that does not exist from one that the user may not use.
    #[error(
        "user {user:?} may not use bucket {bucket:?}, or the cluster has no such bucket: name another bucket, create this \
         one, or give the user a role on it"
    )]
    Bucket {
        /// The bucket that was asked for.
        bucket: String,
        /// The user that asked; empty without a login.
        user: String,
        /// What the node answered.
        status: Status,
    },
    /// The node has no cluster and no users yet.
    #[error("the node was not initialised: run `settee init --host HOST:PORT --username NAME` first")]
    Uninitialised,
    /// User name or password are wrong, or the server is not who it claims to be.
    #[error("authentication failed for user {user:?}: {reason}")]
    Authentication {
        /// The user that tried.
        user: String,
        /// What was refused.
        reason: String,
    },
    /// A reply that this client cannot make sense of.
    #[error("unexpected reply: {0}")]
    Protocol(String),
    /// The REST interface answered with an error.
    #[error("{method} {path} answered {code}{}", suffix(&reasons(body).unwrap_or_default()))]
    Rest {
        /// HTTP method.
        method: &'static str,
        /// Path of the request.
        path: String,
        /// HTTP status.
        code: u16,
        /// The body, which says why.
        body: String,
    },
    /// Retried until the time was up.
    #[error("gave up after {seconds:.1} s: {last}")]
    GaveUp {
        /// How long was tried.
        seconds: f64,
        /// The last error.
        last: Box<ClientError>,
    },
}

fn suffix(body: &str) -> String {
    if body.is_empty() { String::new() } else { format!(": {body}") }
}

fn name_of(status: Option<Status>) -> String {
    status.map_or_else(|| "a status that is not known".to_owned(), |status| format!("{status:?}"))
}

impl ClientError {
    /// The status the server answered, if that is what failed.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            ClientError::Status { status, .. } => *status,
            ClientError::Bucket { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// What the REST interface said is wrong, in its own words.
    #[must_use]
    pub fn reasons(&self) -> Option<String> {
        match self {
            ClientError::Rest { body, .. } => reasons(body),
            _ => None,
        }
    }

    /// Whether nothing came for as long as one was willing to wait: the connection may still be whole.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, ClientError::Io(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
    }
}

/// The texts in an error body: a bare text, a list, or an object by parameter. Of a port of views it is the reason.
#[must_use]
pub fn reasons(body: &str) -> Option<String> {
    let texts = match serde_json::from_str(body) {
        Ok(json) => texts_of(&json),
        Err(_) => vec![body.trim().to_owned()],
    };
    let text = texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
    (!text.is_empty()).then_some(text)
}

fn texts_of(json: &Value) -> Vec<String> {
    match json {
        Value::String(text) => vec![text.clone()],
        Value::Array(list) => list.iter().flat_map(texts_of).collect(),
        Value::Object(members) => match members.get("errors").or_else(|| members.get("reason")) {
            Some(Value::Object(errors)) => errors.iter().flat_map(of_parameter).collect(),
            Some(errors) => texts_of(errors),
            None => members
                .iter()
                .flat_map(|(name, value)| match texts_of(value) {
                    // A member without words says what is wrong by its name: {"mismatch": 1}.
                    texts if texts.is_empty() => vec![name.clone()],
                    texts => texts,
                })
                .collect(),
        },
        _ => Vec::new(),
    }
}

/// What is wrong with a parameter, by its name: "The value must be supplied" does not say which.
fn of_parameter((name, error): (&String, &Value)) -> Vec<String> {
    let texts = texts_of(error).into_iter();
    texts.map(|text| if name == "_" { text } else { format!("{name}: {text}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_words_are_shown_in_whatever_form_they_come() {
        let shown = |body: &str| reasons(body).unwrap_or_default();
        assert_eq!(shown(r#"["a","b"]"#), "a; b");
        assert_eq!(shown(r#"{"errors":{"_":"no","x":"bad"}}"#), "no; x: bad");
        assert_eq!(shown(r#"{"mismatch":1}"#), "mismatch");
        assert_eq!(shown(r#"{"error":"not_found","reason":"missing"}"#), "missing");
        assert_eq!(shown("plain\n"), "plain");
        assert_eq!(shown(""), "");
        let refused = |code, body: &str| {
            let (method, path, body) = ("POST", "/p".to_owned(), body.to_owned());
            ClientError::Rest { method, path, code, body }.to_string()
        };
        assert_eq!(refused(400, r#"{"errors":{"x":"Too large."}}"#), "POST /p answered 400: x: Too large.");
        assert_eq!(refused(500, ""), "POST /p answered 500");
    }
}
