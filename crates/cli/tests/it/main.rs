//! The binary as its users start it: ports, initialisation, stops of both kinds, and a data directory that is taken.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod alerts;
mod cluster;
mod credentials;
mod cut_off;
mod delays;
mod design_documents;
mod disturbed;
mod encryption;
mod forming;
mod generator;
mod hostile_keys;
mod indexes;
mod load_figures;
mod moving_indexes;
mod node;
mod probe;
mod queries;
mod scaling;
mod sizing;
mod sockets;
mod stalls;
mod terminal;
mod view_command;
mod view_figures;
mod waiting;
mod wires;

use std::process::Command;

use client::{Client, Login, Mutation, Rest};
use node::{Node, PASSWORD, USERNAME};

fn login(bucket: &str) -> Login {
    Login { user: Some((USERNAME.into(), PASSWORD.into())), bucket: Some(bucket.into()), collections: false }
}

/// Waits until a kill cannot take back what was written.
fn wait_persisted(client: &mut Client, written: &Mutation) {
    let (_, seqno) = written.token.unwrap();
    client.wait_persisted(written.vb, seqno).unwrap();
}

#[test]
fn documents_outlive_a_clean_stop_and_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let unattended = ["--init-username", USERNAME, "--init-bucket", "app", "--init-bucket-quota-mb", "100"];
    let mut node = Node::start(dir.path(), &unattended);
    let mut client = Client::connect(&node.kv(), &login("app")).unwrap();
    client.set(b"stopped", b"one").unwrap();
    assert!(node.terminate().success(), "SIGTERM is a clean stop");

    node = Node::start(dir.path(), &[]);
    let mut client = Client::connect(&node.kv(), &login("app")).unwrap();
    assert_eq!(client.get(b"stopped").unwrap().unwrap().value, b"one");
    let written = client.set(b"killed", b"two").unwrap();
    wait_persisted(&mut client, &written);
    node.kill();

    node = Node::start(dir.path(), &[]);
    let mut client = Client::connect(&node.kv(), &login("app")).unwrap();
    assert_eq!(client.get(b"stopped").unwrap().unwrap().value, b"one");
    assert_eq!(client.get(b"killed").unwrap().unwrap().value, b"two");
    node.kill();
}

#[test]
fn the_version_names_the_commit() {
    let output = node::settee().arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let commit = text.trim().strip_prefix(concat!("settee ", env!("CARGO_PKG_VERSION"), " (")).unwrap();
    let commit = commit.strip_suffix(')').unwrap();
    let is_name = commit.len() >= 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_name || commit == "of an unknown commit", "{text}");
}

#[test]
fn a_command_whose_reader_has_gone_ends_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let words = "plan --documents 1000 --key-bytes 10 --value-bytes 100 --node-quota-mb 1024";
    let ended = node::settee().args(words.split(' ')).stdout(writer).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert_eq!(ended.status.code(), Some(141), "as shells say of one that SIGPIPE has ended");
}

#[test]
fn a_new_node_is_initialised_by_the_init_command() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let init = node::settee()
        .args(["init", "--host", &node.rest(), "--username", USERNAME, "--bucket", "app"])
        .env("SETTEE_PASSWORD", PASSWORD)
        .output()
        .unwrap();
    assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
    let buckets =
        Rest::new(node.rest(), Some((USERNAME, PASSWORD))).get_json("/pools/default/buckets").unwrap();
    assert_eq!(buckets[0]["name"], "app");
    Client::connect(&node.kv(), &login("app")).unwrap().set(b"key", b"value").unwrap();
}

#[test]
fn a_data_directory_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _node = Node::start(dir.path(), &[]);
    let second = node::serve(dir.path()).output().unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("in use"), "{said}");
}

/// What `settee load` says on standard error; it has to fail.
fn refused_load(node: &Node, flags: &[&str]) -> String {
    let load = node::settee()
        .args(["load", "--host", &node.kv(), "--seconds", "0.1", "-u", USERNAME, "-q"])
        .args(flags)
        .env("SETTEE_PASSWORD", PASSWORD)
        .output()
        .unwrap();
    assert!(!load.status.success(), "{flags:?}");
    String::from_utf8_lossy(&load.stderr).into_owned()
}

#[test]
fn a_refusal_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let fresh = Node::start(dir.path(), &[]);
    let said = refused_load(&fresh, &["-b", "app"]);
    assert!(said.contains("settee init"), "a node without users: {said}");
    let pool = Rest::new(fresh.rest(), None).get_json("/pools/default").unwrap_err().to_string();
    assert!(pool.contains("settee init"), "a node without a cluster: {pool}");
    drop(fresh);

    let dir = tempfile::tempdir().unwrap();
    let unattended = ["--init-username", USERNAME, "--init-bucket", "app", "--init-bucket-quota-mb", "100"];
    let node = Node::start(dir.path(), &unattended);
    let said = refused_load(&node, &["-b", "orders"]);
    assert!(said.contains("orders") && said.contains(USERNAME) && !said.contains("Some("), "{said}");
    let said = refused_load(&node, &["-b", "app", "--html", "/no/such/folder/report.html"]);
    assert!(said.contains("report.html"), "{said}");
}

/// The run would store the one record of the key file while it warms up.
#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let unattended = ["--init-username", USERNAME, "--init-bucket", "app", "--init-bucket-quota-mb", "100"];
    let node = Node::start(dir.path(), &unattended);
    let keys = dir.path().join("keys.csv");
    std::fs::write(&keys, "only\n").unwrap();
    let mut warms_up = vec!["-b", "app", "--connections", "1", "--mix", "set=1", "--warmup", "0.2"];
    warms_up.extend(["--key-file", keys.to_str().unwrap()]);
    for flag in ["--html", "--csv", "--hdr-log"] {
        let said = refused_load(&node, &[&warms_up[..], &[flag, "/no/such/folder/report"]].concat());
        assert!(said.contains("/no/such/folder/report"), "{flag}: {said}");
    }
    let mut client = Client::connect(&node.kv(), &login("app")).unwrap();
    assert!(client.get(b"only").unwrap().is_none(), "the run had begun");
}

#[test]
fn documents_of_a_run_with_other_sizes_are_told_from_wrong_answers() {
    let dir = tempfile::tempdir().unwrap();
    let unattended = ["--init-username", USERNAME, "--init-bucket", "app", "--init-bucket-quota-mb", "100"];
    let node = Node::start(dir.path(), &unattended);
    let records = ["-b", "app", "--records", "100", "--connections", "1"];
    let filled = node::settee()
        .args(["load", "--populate", "--host", &node.kv(), "-u", USERNAME, "-q", "--value-bytes", "100"])
        .args(records)
        .env("SETTEE_PASSWORD", PASSWORD)
        .output()
        .unwrap();
    assert!(filled.status.success(), "{}", String::from_utf8_lossy(&filled.stderr));
    let reads = ["--mix", "get=1", "--warmup", "0", "--value-bytes", "200"];
    let said = refused_load(&node, &[&records[..], &reads].concat());
    assert!(said.contains("an earlier run") && said.contains("--value-bytes"), "{said}");
}

/// Tools of Couchbase show success and nothing else of an answer.
#[test]
fn a_setting_that_is_only_recorded_is_told_in_the_log_and_in_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut node = Node::start_with_log(dir.path(), &log, &["--init-username", USERNAME]);
    let rest = Rest::new(node.rest(), Some((USERNAME, PASSWORD)));
    rest.post("/settings/autoReprovision", &[("enabled", "true"), ("maxNodes", "1")]).unwrap();
    rest.post("/settings/rebalance", &[("rebalanceMovesPerNode", "5")]).unwrap();
    let effect = |path: &str| rest.get_json(path).unwrap()["settee"]["effect"].clone();
    assert_eq!(effect("/settings/autoReprovision"), "recorded only");
    assert!(effect("/settings/rebalance").is_null(), "it is obeyed");
    assert!(node.terminate().success());
    let log = std::fs::read_to_string(log).unwrap();
    let told: Vec<_> = log.lines().filter(|line| line.contains("nothing acts upon it")).collect();
    assert!(told.len() == 1 && told[0].contains("autoReprovision"), "{log}");
}

#[test]
fn what_the_machine_or_the_rules_do_not_allow_is_refused_at_the_start() {
    let unattended = ["--init-username", USERNAME];
    let refused = |flags: &[&str], password: Option<&str>| {
        let dir = tempfile::tempdir().unwrap();
        let mut serve = node::settee();
        serve.args(["serve", "--listen", "127.0.0.1", "--data-dir"]).arg(dir.path().join("data")).args(flags);
        for port in ["mgmt", "mgmt-tls", "kv", "kv-tls", "capi", "capi-tls", "memcached"] {
            serve.args([format!("--port-{port}"), "0".to_owned()]);
        }
        if let Some(password) = password {
            serve.args(unattended).env("SETTEE_INIT_PASSWORD", password);
        }
        node::refused_start(serve)
    };
    let said = refused(&["--memory-quota-mb", "9999999"], None);
    assert!(said.contains("--memory-quota-mb") && said.contains("exceeds"), "{said}");
    assert!(refused(&["--workers", "0"], None).contains("--workers"));
    let said = refused(&[], Some("abc"));
    assert!(said.contains("at least 6 characters"), "{said}");
}

/// With so few the node's runtime could not be started, and the process panicked.
#[test]
fn a_node_that_may_open_too_few_files_says_what_raises_the_limit() {
    for files in ["26", "27", "255"] {
        let dir = tempfile::tempdir().unwrap();
        let program = node::settee();
        let mut serve = Command::new("sh");
        serve.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]).arg(program.get_program());
        serve.args(["serve", "--listen", "127.0.0.1", "--data-dir"]).arg(dir.path().join("data"));
        let said = node::refused_start(serve);
        let is_told = ["panicked", "LimitNOFILE=", "ulimit -n", files].map(|part| said.contains(part));
        assert_eq!(is_told, [false, true, true, true], "{said}");
    }
}

/// What the node logs is in the file, a JSON object each. REST shows the same lines as text.
#[test]
fn a_log_in_a_file_has_json_and_rest_shows_text() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("settee.log");
    let flags = ["--init-username", USERNAME, "--log-format", "json", "--log-file", log.to_str().unwrap()];
    let command = node::serve_on(dir.path(), &serde_json::Value::Null, "info");
    let mut node = Node::start_with(dir.path(), command, &flags);
    let rest = Rest::new(node.rest(), Some((USERNAME, PASSWORD)));
    rest.post("/settings/autoReprovision", &[("enabled", "true"), ("maxNodes", "1")]).unwrap();
    let shown = cluster::eventually("the line is shown", || {
        let shown = rest.get_json("/settee/logs?level=warn&contains=nothing+acts").unwrap();
        shown["lines"][0]["text"].as_str().map(str::to_owned)
    });
    assert!(shown.contains(" WARN ") && !shown.contains('{'), "{shown}");
    assert!(node.terminate().success());
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let is_it = |line: &&serde_json::Value| line["fields"]["setting"] == "autoReprovision";
    let line = lines.iter().find(is_it).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(line["level"], "WARN");
    assert!(line["timestamp"].is_string() && line["fields"]["message"].is_string(), "{line}");
}

/// The files that a stop has to replace are gone. The process cannot record its end, and its exit code says so.
#[test]
fn a_stop_that_was_not_clean_is_told_by_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let unattended = ["--init-username", USERNAME, "--init-bucket", "app", "--init-bucket-quota-mb", "100"];
    let mut node = Node::start(dir.path(), &unattended);
    let mut client = Client::connect(&node.kv(), &login("app")).unwrap();
    client.set(b"key", b"value").unwrap();
    std::fs::rename(dir.path().join("data/buckets"), dir.path().join("data/elsewhere")).unwrap();
    assert_eq!(node.terminate().code(), Some(1));
}
