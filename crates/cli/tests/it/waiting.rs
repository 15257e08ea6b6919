//! What long work says when the server has no room: its own words, while it waits and when it gives up.

use super::login;
use super::node::{Node, PASSWORD, USERNAME, settee};
use load::keys::KeyForm;
use load::values::{Dataset, ValueKind};
use load::{Driver, LoadError, Op, Part, Phase, Protocol, Target};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

/// What the server says of a disk with less free space than it is to leave to others.
const TOO_LITTLE: &str = "The disk has less free space than must remain";
/// The loader is far from done when the node looks at its disk for the first time.
const DOCUMENTS: u64 = 1_000_000;

/// A node whose disk always has less free space than it has to leave to others.
fn without_space(dir: &std::path::Path) -> Node {
    let bucket = ["--init-username", USERNAME, "--init-bucket", "app", "--init-bucket-quota-mb", "100"];
    Node::start(dir, &[&bucket[..], &["--disk-free-min", &u64::MAX.to_string()]].concat())
}

#[test]
fn loading_songs_says_what_it_waits_for() {
    let dir = tempfile::tempdir().unwrap();
    let node = without_space(dir.path());
    let mut loading = settee()
        .args([
            "songs",
            "load",
            "--port",
            &node.port("kv").to_string(),
            "--bucket",
            "app",
            "--user",
            USERNAME,
        ])
        .args(["--count", &DOCUMENTS.to_string()])
        .env("SETTEE_PASSWORD", PASSWORD)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(loading.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said: Vec<String> = lines.take(1).collect();
    loading.kill().unwrap();
    loading.wait().unwrap();
    assert!(
        said[0].starts_with("loading: ") && said[0].contains(&format!("waiting: {TOO_LITTLE}")),
        "{said:?}"
    );
}

#[test]
fn a_command_that_gives_up_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let node = without_space(dir.path());
    let target = Target::discover(Protocol::Couchbase, &node.kv(), login("app")).unwrap();
    let kind = ValueKind::Random("100".parse().unwrap());
    let records = Arc::new(Dataset::new("", KeyForm::Hex(16), kind));
    let mut driver = Driver::connect(Arc::new(target), records, 4, Part::WHOLE).unwrap();
    let phase = Phase { hope: Duration::from_secs(1), ..Phase::each(Op::Set, DOCUMENTS, 4) };
    let error = driver.run_all(&phase, |_| ()).unwrap_err();
    assert!(
        matches!(error, LoadError::NoProgress { .. }) && error.to_string().contains(TOO_LITTLE),
        "{error}"
    );
}
