//! REST conformance as plain data: every file of `compat/cases` is a conversation with a node of its own. The same
//! files can be sent to a Couchbase server.
//!
//! A step is `{"send": "POST /path", "as": "name:password", "form": {..}, "expect": {..}}`. `as` may be absent (nobody)
//! or `admin`. Expected JSON is a subset: members that are not named may be anything. Lists must agree in full. The
//! string `<any>` stands for any value. `has` and `lacks` name members by dotted paths.

use std::{collections::BTreeMap, fs, path::Path};

use crate::{
    http::Response,
    node::{ADMIN, TestNode},
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    about: String,
    /// Whether the node has been set up before the first step.
    initialized: bool,
    /// Active members that it has beside itself, and that are not there.
    #[serde(default)]
    members: u16,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    send: String,
    #[serde(rename = "as")]
    user: Option<String>,
    #[serde(default)]
    form: BTreeMap<String, Value>,
    body: Option<String>,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    status: u16,
    json: Option<Value>,
    text: Option<String>,
    contains: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    has: Vec<String>,
    #[serde(default)]
    lacks: Vec<String>,
}

#[test]
fn every_case_is_answered_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat/cases");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    assert!(files.len() >= 5, "the cases are not where they should be");
    for file in files {
        let case: Case = serde_json::from_str(&fs::read_to_string(&file).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let node = if case.initialized { TestNode::initialized() } else { TestNode::fresh() };
        if case.members > 0 {
            node.node.add_members(case.members);
        }
        for (index, step) in case.steps.iter().enumerate() {
            let place = format!("{} ({}), step {}: {}", file.display(), case.about, index + 1, step.send);
            check(&place, &step.expect, &send(&node, step));
        }
    }
}

fn send(node: &TestNode, step: &Step) -> Response {
    let (method, path) = step.send.split_once(' ').expect("METHOD path");
    let user = match step.user.as_deref() {
        Some("admin") => ADMIN,
        other => other,
    };
    let form: Vec<String> =
        step.form.iter().map(|(name, value)| format!("{}={}", encode(name), encode(&plain(value)))).collect();
    let body = step.body.clone().or_else(|| (!form.is_empty()).then(|| form.join("&")));
    node.send(method, path, user, body.as_deref())
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn encode(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}

fn check(place: &str, expect: &Expect, response: &Response) {
    assert_eq!(response.status, expect.status, "{place}: {}", response.body);
    for (name, value) in &expect.headers {
        assert_eq!(response.headers.get(name), Some(value), "{place}: header {name}");
    }
    if let Some(text) = &expect.text {
        assert_eq!(&response.body, text, "{place}");
    }
    if let Some(text) = &expect.contains {
        assert!(response.body.contains(text), "{place}: {}", response.body);
    }
    if let Some(json) = &expect.json {
        agree(place, "", json, &response.json());
    }
    for path in &expect.has {
        assert!(member(&response.json(), path).is_some(), "{place}: {path} is missing in {}", response.body);
    }
    for path in &expect.lacks {
        assert!(
            member(&response.json(), path).is_none(),
            "{place}: {path} should not be in {}",
            response.body
        );
    }
}

fn member<'a>(json: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(json, |at, part| match part.parse::<usize>() {
        Ok(index) if at.is_array() => at.get(index),
        _ => at.get(part),
    })
}

fn agree(place: &str, path: &str, expected: &Value, found: &Value) {
    match (expected, found) {
        (Value::String(any), _) if any == "<any>" => {}
        (Value::Object(members), Value::Object(_)) => {
            for (name, expected) in members {
                let found =
                    found.get(name).unwrap_or_else(|| panic!("{place}: {path}.{name} is missing in {found}"));
                agree(place, &format!("{path}.{name}"), expected, found);
            }
        }
        (Value::Array(expected), Value::Array(found)) => {
            assert_eq!(expected.len(), found.len(), "{place}: length of {path} in {found:?}");
            for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
                agree(place, &format!("{path}.{index}"), expected, found);
            }
        }
        _ => assert_eq!(expected, found, "{place}: {path}"),
    }
}
