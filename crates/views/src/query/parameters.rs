//! Parameters one by one.

use super::form::pairs;
use crate::{
    design::parse_text,
    json::{self, Kind},
    refusal::Refusal,
};

/// The limit of a query without one.
const LIMIT: u64 = 10_000_000_000;
/// Most keys of a query. A range takes a hundred times the bytes of the shortest key.
pub(super) const KEYS_MAX: usize = 1 << 16;

/// How new an index has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stale {
    /// As it is.
    Ok,
    /// As it is; it is brought up to date after the answer.
    #[default]
    UpdateAfter,
    /// It has everything that was acknowledged before the request.
    False,
}

/// What an error of one node does to the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Rows of other nodes come all the same; the error is told at the end.
    #[default]
    Continue,
    /// The answer ends there.
    Stop,
}

/// The parameters of a query as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    pub(super) start_key: Option<String>,
    pub(super) end_key: Option<String>,
    pub(super) start_docid: Option<String>,
    pub(super) end_docid: Option<String>,
    pub(super) keys: Option<Vec<String>>,
    pub(super) limit: u64,
    pub(super) skip: u64,
    pub(super) descending: bool,
    pub(super) inclusive_end: bool,
    pub(super) group: Option<bool>,
    pub(super) group_level: Option<u64>,
    pub(super) reduce: Option<bool>,
    pub(super) include_docs: bool,
    pub(super) conflicts: bool,
    pub(super) debug: bool,
    pub(super) full_set: bool,
    pub(super) stale: Stale,
    pub(super) on_error: OnError,
    pub(super) connection_timeout: Option<u64>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            start_key: None,
            end_key: None,
            start_docid: None,
            end_docid: None,
            keys: None,
            limit: LIMIT,
            skip: 0,
            descending: false,
            inclusive_end: true,
            group: None,
            group_level: None,
            reduce: None,
            include_docs: false,
            conflicts: false,
            debug: false,
            full_set: false,
            stale: Stale::default(),
            on_error: OnError::default(),
            connection_timeout: None,
        }
    }
}

/// The body of a POST request.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    /// The header `Content-Type`.
    pub content_type: Option<&'a str>,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Parameters {
    /// Reads a query string, without its `?`, and the body of a POST request, whose members win.
    ///
    /// # Errors
    /// A parameter is not what it has to be; the refusal has Couchbase's text.
    pub fn parse(query: &str, body: Option<Body<'_>>) -> Result<Self, Refusal> {
        let mut parameters = Self::default();
        for (name, value) in pairs(query) {
            parameters.set(&name, &value)?;
        }
        if let Some(body) = body {
            parameters.read_body(body)?;
        }
        Ok(parameters)
    }

    fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        match name {
            b"key" => {
                self.start_key = Some(key(value)?);
                self.end_key.clone_from(&self.start_key);
            }
            b"keys" => self.keys = Some(keys(parse_text(value)?)?),
            b"startkey" | b"start_key" => self.start_key = Some(key(value)?),
            b"endkey" | b"end_key" => self.end_key = Some(key(value)?),
            b"startkey_docid" | b"start_key_doc_id" => self.start_docid = Some(shown(value)),
            b"endkey_docid" | b"end_key_doc_id" => self.end_docid = Some(shown(value)),
            b"limit" => self.limit = integer(value)?,
            b"skip" => self.skip = integer(value)?,
            b"group_level" => self.group_level = Some(integer(value)?),
            b"descending" => self.descending = boolean(value)?,
            b"inclusive_end" => self.inclusive_end = boolean(value)?,
            b"group" => self.group = Some(boolean(value)?),
            b"reduce" => self.reduce = Some(boolean(value)?),
            b"debug" => self.debug = boolean(value)?,
            b"include_docs" => self.include_docs = boolean(value)?,
            b"conflicts" => self.conflicts = boolean(value)?,
            b"_filter" => drop(boolean(value)?),
            b"stale" => self.stale = stale(value)?,
            b"on_error" => self.on_error = on_error(&shown(value))?,
            b"full_set" => self.full_set = value == b"true",
            b"connection_timeout" => self.connection_timeout = Some(timeout(&shown(value))?),
            b"_type" if !is_any_case(value, &["main", "replica"]) => {
                return Err(Refusal::query("_type only available as _type=main or _type=replica"));
            }
            b"count" => return Err(Refusal::query("Query parameter 'count' is now 'limit'.")),
            _ => {}
        }
        Ok(())
    }

    fn read_body(&mut self, body: Body<'_>) -> Result<(), Refusal> {
        let declared = body.content_type.and_then(|value| value.split(';').next()).unwrap_or_default();
        if !declared.trim().eq_ignore_ascii_case("application/json") {
            let reason = "Content-Type must be application/json".to_owned();
            return Err(Refusal { status: 415, error: "bad_content_type", reason });
        }
        let members = json::members(parse_text(body.bytes)?)
            .ok_or_else(|| Refusal::bad_request("Request body must be a JSON object"))?;
        for (name, value) in members {
            match name.as_str() {
                "keys" => self.keys = Some(keys(value)?),
                "connection_timeout" => self.connection_timeout = Some(timeout(value)?),
                "on_error" => {
                    self.on_error = on_error(&json::as_string(value).unwrap_or_else(|| value.to_owned()))?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A value as text; what is no UTF-8 in it cannot be part of anything that is stored.
fn shown(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

fn key(value: &[u8]) -> Result<String, Refusal> {
    parse_text(value).map(str::to_owned)
}

fn keys(text: &str) -> Result<Vec<String>, Refusal> {
    if json::kind(text) != Ok(Kind::Array) {
        return Err(Refusal::bad_request("`keys` parameter is not an array."));
    }
    let elements = json::elements(text).unwrap_or_default();
    if elements.len() > KEYS_MAX {
        return Err(Refusal::bad_request(format!("`keys` parameter has more than {KEYS_MAX} keys.")));
    }
    Ok(elements.into_iter().map(str::to_owned).collect())
}

/// A value in quotes, as errors show it.
fn quoted(value: &[u8]) -> String {
    format!("\"{}\"", shown(value).replace('\\', "\\\\").replace('"', "\\\""))
}

/// A number that is not negative; one that is too large for us is as good as the largest.
fn integer(value: &[u8]) -> Result<u64, Refusal> {
    let (sign, digits) = match value.split_first() {
        Some((sign @ (b'-' | b'+'), digits)) => (*sign, digits),
        _ => (b'+', value),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::query(format!("Invalid value for integer parameter: {}", quoted(value))));
    }
    if sign == b'-' && digits.iter().any(|digit| *digit != b'0') {
        return Err(Refusal::query(format!(
            "Invalid value for positive integer parameter: {}",
            quoted(value)
        )));
    }
    Ok(shown(digits).parse().unwrap_or(u64::MAX))
}

fn is_any_case(value: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
}

fn boolean(value: &[u8]) -> Result<bool, Refusal> {
    if is_any_case(value, &["true"]) {
        Ok(true)
    } else if is_any_case(value, &["false"]) {
        Ok(false)
    } else {
        Err(Refusal::query(format!("Invalid boolean parameter: {}", quoted(value))))
    }
}

fn stale(value: &[u8]) -> Result<Stale, Refusal> {
    match value.to_ascii_lowercase().as_slice() {
        b"ok" => Ok(Stale::Ok),
        b"update_after" => Ok(Stale::UpdateAfter),
        b"false" => Ok(Stale::False),
        _ => Err(Refusal::query("stale only available as stale=ok, stale=update_after or stale=false")),
    }
}

fn on_error(value: &str) -> Result<OnError, Refusal> {
    match value {
        "continue" => Ok(OnError::Continue),
        "stop" => Ok(OnError::Stop),
        _ => Err(Refusal::bad_request(format!(
            "Invalid value (`{value}`) for the parameter `on_error`. It must be `continue` (default) or `stop`."
        ))),
    }
}

fn timeout(value: &str) -> Result<u64, Refusal> {
    value.parse().map_err(|_| Refusal::bad_request("Query parameter `connection_timeout` must be an integer"))
}
