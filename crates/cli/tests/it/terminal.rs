//! Commands for a hand at a terminal, as it types them: what they print, and the exit codes that scripts go by.

use std::{
    io::Write as _,
    process::{Output, Stdio},
};

use client::{Client, Rest};
use serde_json::Value;

use crate::{
    cluster::eventually,
    login,
    node::{Node, PASSWORD, USERNAME, serve_on, settee},
};

/// A node with one bucket. The environment of each command names both, and the administrator.
struct Terminal {
    node: Node,
    _folder: tempfile::TempDir,
}

impl Terminal {
    fn open(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let unattended =
            ["--init-username", USERNAME, "--init-bucket", "app", "--init-bucket-quota-mb", "100"];
        let mut serve = serve_on(folder.path(), &Value::Null, "info");
        serve.stderr(Stdio::null());
        let node = Node::start_with(folder.path(), serve, &[&unattended, more].concat());
        Self { node, _folder: folder }
    }

    fn with(&self, password: &str, words: &[&str], input: &[u8]) -> Output {
        let mut typed = settee()
            .args(words)
            .envs([("SETTEE_HOST", self.node.rest().as_str()), ("SETTEE_USERNAME", USERNAME)])
            .envs([("SETTEE_PASSWORD", password), ("SETTEE_BUCKET", "app")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that reads nothing may have ended by now.
        let _ = typed.stdin.take().unwrap().write_all(input);
        typed.wait_with_output().unwrap()
    }

    /// What a command prints, which ends well.
    fn says(&self, words: &[&str]) -> String {
        self.told(words, b"")
    }

    fn told(&self, words: &[&str], input: &[u8]) -> String {
        let output = self.with(PASSWORD, words, input);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command prints, however it ends.
    fn says_whatever(&self, words: &[&str]) -> String {
        String::from_utf8(self.with(PASSWORD, words, b"").stdout).unwrap()
    }

    /// The exit code of a command and what it says of its failure.
    fn fails(&self, words: &[&str]) -> (Option<i32>, String) {
        let output = self.with(PASSWORD, words, b"");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.says(words)).unwrap()
    }
}

#[test]
fn documents_are_written_read_listed_and_removed_by_hand() {
    let at = Terminal::open(&[]);
    let written = at.json(&["set", "album/1", r#"{"title":"Blue"}"#, "--json"]);
    let cas = written["cas"].as_str().unwrap();
    at.told(&["set", "album/2", "-"], br#"{"title":"Hejira"}"#);
    at.told(&["set", "picture", "-", "--binary"], b"\x00\xff");
    let page = at.says(&["get", "album/1"]);
    assert!(page.contains(cas) && page.contains("\"title\": \"Blue\""), "{page}");
    let lines = at.says(&["get", "--json", "album/1", "album/2"]);
    let titles = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["value"].take());
    let titles: Vec<Value> = titles.map(|value| value["title"].clone()).collect();
    assert_eq!(titles, ["Blue", "Hejira"]);
    assert_eq!(at.with(PASSWORD, &["cat", "picture"], b"").stdout, b"\x00\xff");
    assert_eq!(at.says(&["ls"]), "album/1\nalbum/2\npicture\n");
    assert_eq!(at.says(&["ls", "album/", "--limit", "1"]), "album/1\n");

    let (code, why) = at.fails(&["get", "album/3"]);
    assert!(code == Some(3) && why.contains("no document \"album/3\""), "{why}");
    let (code, why) = at.fails(&["set", "album/1", "{}", "--add"]);
    assert!(code == Some(3) && why.contains("not written"), "{why}");
    at.says(&["set", "album/1", "{}", "--cas", cas]);
    let (code, _) = at.fails(&["set", "album/1", "{}", "--cas", cas]);
    assert_eq!(code, Some(3), "it has changed since");
    let (code, why) = at.fails(&["set", "album/1", "no JSON"]);
    assert!(code == Some(1) && why.contains("--binary"), "{why}");
    at.told(&["rm", "-"], b"album/1\nalbum/2\n");
    let (code, _) = at.fails(&["rm", "album/1"]);
    assert_eq!(code, Some(3));
    assert_eq!(at.says(&["ls"]), "picture\n");
}

#[test]
fn what_a_node_does_is_seen_and_the_exit_code_says_how_it_is() {
    let at = Terminal::open(&[]);
    let mut client = Client::connect(&at.node.kv(), &login("app")).unwrap();
    client.set(b"seen", b"1").unwrap();
    let top = at.says(&["top", "--once"]);
    assert!(top.contains(&at.node.rest()) && top.contains("app"), "{top}");
    assert!(!at.says(&["top", "--once", "--bucket", "other"]).contains("app"));
    eventually("the document is hot", || {
        for _ in 0..500 {
            client.get(b"seen").unwrap();
        }
        at.says(&["top", "--hot", "--once"]).contains("seen").then_some(())
    });
    let status = at.json(&["status", "--json"]);
    let node = &status["nodes"][0]["hostname"];
    assert_eq!((status["health"].as_str(), node.as_str()), (Some("healthy"), Some(at.node.rest().as_str())));
    let rest = Rest::new(at.node.rest(), Some((USERNAME, PASSWORD)));
    rest.post("/pools/default/buckets", &[("name", "more"), ("ramQuotaMB", "100")]).unwrap();
    let logs = at.says(&["logs", "--level", "info", "--contains", "was created", "--json"]);
    let line: Value = serde_json::from_str(logs.lines().next().unwrap()).unwrap();
    assert!(line["text"].as_str().unwrap().contains("more"), "{line}");
    let plan = at.json(&["plan", "--from", &at.node.rest(), "--json"]);
    let buckets: Vec<_> = plan["buckets"].as_array().unwrap().iter().map(|one| &one["bucket"]).collect();
    assert_eq!(buckets, ["app", "more"], "{plan}");
    let wrong = at.with("wrong", &["status"], b"");
    assert_eq!(wrong.status.code(), Some(3), "{}", String::from_utf8_lossy(&wrong.stdout));
}

#[test]
fn an_alert_and_a_node_that_is_gone_have_exit_codes_of_their_own() {
    // No disk has so much.
    let mut at = Terminal::open(&["--disk-free-min", "1152921504606846976"]);
    let code = |at: &Terminal| at.with(PASSWORD, &["status"], b"").status.code();
    eventually("a full disk is told", || at.says_whatever(&["status"]).contains("disk_low").then_some(()));
    assert_eq!(code(&at), Some(2), "it is critical");
    at.node.kill();
    assert_eq!(code(&at), Some(2));
}

#[test]
fn objectives_are_set_shown_and_removed_by_hand() {
    let at = Terminal::open(&[]);
    at.says(&["slo", "set", "app", "reads", "--operation", "get", "--latency", "2ms", "--target", "99.9"]);
    let list = at.says(&["slo", "list"]);
    assert!(list.contains("reads") && list.contains("99.9"), "{list}");
    let shown = at.json(&["slo", "show", "app", "reads", "--json"]);
    assert_eq!(shown["name"], "reads", "{shown}");
    assert!(at.says(&["slo", "export", "--format", "openslo"]).contains("openslo/v1"));
    at.says(&["slo", "rm", "app", "reads"]);
    assert!(!at.says(&["slo", "list"]).contains("reads"));
    let (code, why) = at.fails(&["slo", "show", "app", "reads"]);
    assert!(code == Some(1) && why.contains("reads"), "{why}");
}

#[test]
fn every_command_of_the_binary_has_a_page_and_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().to_str().unwrap();
    assert!(settee().args(["man", pages]).status().unwrap().success());
    let help = settee().arg("--help").output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap();
    let commands = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let commands: Vec<&str> = commands.map_while(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"serve") && commands.contains(&"view") && commands.len() > 15, "{help}");
    for shell in ["bash", "zsh", "fish"] {
        let script = settee().args(["completions", shell]).output().unwrap();
        assert!(script.status.success());
        let script = String::from_utf8(script.stdout).unwrap();
        for command in commands.iter().filter(|&&command| command != "help") {
            assert!(script.contains(command), "{shell} does not complete {command}");
            let page = std::fs::read_to_string(folder.path().join(format!("settee-{command}.1"))).unwrap();
            assert!(
                page.contains(&format!("settee\\-{command}")) || page.contains(&format!("settee-{command}")),
                "{page}"
            );
        }
    }
}
