//! Collecting logs, by the requests of `couchbase-cli collect-logs-start`, `-status` and `-stop`.

use std::{
    path::Path,
    process::Command as Process,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::node::{ADMIN, TestNode};

const START: &str = "/controller/startLogsCollection";
const CANCEL: &str = "/controller/cancelLogsCollection";
const ARCHIVE: &str = "/settee/archive";
const PATIENCE: Duration = Duration::from_secs(60);

fn task(node: &TestNode) -> Option<Value> {
    let tasks = node.get("/pools/default/tasks").json();
    let all = tasks.as_array().unwrap();
    all.iter().find(|task| task["type"] == "clusterLogsCollection").cloned()
}

/// The task once it is as asked for.
fn task_when(node: &TestNode, is_so: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let task = task(node).unwrap_or_default();
        if is_so(&task) {
            return task;
        }
        assert!(began.elapsed() < PATIENCE, "{task:#}");
        std::thread::yield_now();
    }
}

fn ended(task: &Value) -> bool {
    ["completed", "cancelled"].iter().any(|status| task["status"] == *status)
}

fn tar(option: &str, path: &str, file: &[&str]) -> String {
    let done = Process::new("tar").arg(option).arg(path).args(file).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Two members that know the same.
pub(crate) fn two() -> (TestNode, TestNode) {
    let (first, second) = (TestNode::initialized(), TestNode::fresh_with_uuid("2222"));
    let form = format!("hostname=http://{}&user=&password=&services=kv", second.address);
    let added = first.post("/controller/addNode", &form);
    assert_eq!(added.status, 200, "{}", added.body);
    let mut meta = (*first.node.metadata_now()).clone();
    // By this they know each other.
    meta.secret = "0".repeat(64);
    for node in [&first, &second] {
        node.node.become_part_of(meta.clone());
    }
    (first, second)
}

#[test]
fn a_node_makes_an_archive_without_names_of_users() {
    let node = TestNode::initialized();
    assert_eq!(task(&node), None, "couchbase-cli says that there is none");
    assert_eq!(node.get(ARCHIVE).status, 404, "there is none to be downloaded");
    let user =
        node.send("PUT", "/settings/rbac/users/local/anna-lena", ADMIN, Some("password=secret-1&roles="));
    assert_eq!(user.status, 200, "{}", user.body);
    assert_eq!(node.post("/pools/default/buckets", "name=b%25&ramQuota=100&replicaNumber=0").status, 202);
    let mail = "enabled=true&sender=db%40a.example&recipients=ann%40a.example&emailHost=mx&emailUser=mailer&emailPass=pigeon-1";
    assert_eq!(node.post("/settings/alerts", mail).status, 200);
    let started = node.post(START, "nodes=*&logRedactionLevel=partial&logRedactionSalt=grain");
    assert_eq!((started.status, started.json()), (200, json!([])), "{}", started.body);
    let task = task_when(&node, ended);
    assert_eq!((&task["status"], &task["progress"]), (&json!("completed"), &json!(100)), "{task:#}");
    let part = &task["perNode"]["ns_1@127.0.0.1"];
    assert_eq!(part["status"], "collected", "{task:#}");
    let path = part["path"].as_str().unwrap();
    let is_named = path.contains("/collected/collectinfo-") && path.ends_with("-ns_1@127.0.0.1-redacted.tar");
    assert!(is_named, "{path}");
    let contents = tar("-xOf", path, &["contents.txt"]);
    for asked in [
        "/settee/logs",
        "/metrics",
        "/pools/default/buckets/b%/stats",
        "/health/ready",
        "/settee/forecast",
        "/settings/alerts",
    ] {
        let line = contents.lines().find(|line| line.contains(asked)).unwrap_or_default();
        assert!(line.contains(" bytes"), "{asked}: {contents}");
    }
    let buckets = tar("-xOf", path, &["cluster/buckets.json"]);
    assert!(buckets.contains("\"b%\""), "{buckets}");
    let all = tar("-xOf", path, &[]);
    assert!(!all.contains("anna-lena") && !all.contains("Administrator"), "names are replaced");
    let mailed = tar("-xOf", path, &["cluster/settings-alerts.json"]);
    assert!(mailed.contains("\"mx\"") && mailed.contains("<ud>"), "{mailed}");
    assert!(!["a.example", "mailer", "pigeon-1"].iter().any(|secret| all.contains(secret)), "{mailed}");

    let downloaded = node.get(ARCHIVE);
    assert!(downloaded.body == std::fs::read_to_string(path).unwrap(), "{} bytes", downloaded.body.len());
    assert_eq!(downloaded.headers["content-length"], downloaded.body.len().to_string());
    let name = Path::new(path).file_name().unwrap().to_str().unwrap();
    assert_eq!(downloaded.headers["content-disposition"], format!("attachment; filename=\"{name}\""));

    let again = node.post(START, "nodes=ns_1%40127.0.0.1&logRedactionLevel=none");
    assert_eq!(again.status, 200, "{}", again.body);
    let task = task_when(&node, |task| {
        ended(task) && task["ts"] != json!(null) && !task.to_string().contains("redacted")
    });
    assert_eq!(task["status"], "completed", "{task:#}");
    std::fs::remove_file(task["perNode"]["ns_1@127.0.0.1"]["path"].as_str().unwrap()).unwrap();
    assert_eq!(node.get(ARCHIVE).status, 404, "somebody has taken it away");
}

#[test]
fn without_a_level_of_its_own_a_collection_is_redacted_as_the_setting_says() {
    let node = TestNode::initialized();
    assert_eq!(node.post("/settings/logRedaction", "logRedactionLevel=partial").status, 200);
    assert_eq!(node.get("/settings/logRedaction").json(), json!({ "logRedactionLevel": "partial" }));
    for (form, is_redacted) in [("nodes=*", true), ("nodes=*&logRedactionLevel=none", false)] {
        assert_eq!(node.post(START, form).status, 200, "{form}");
        let is_so = |task: &Value| {
            let path = task["perNode"]["ns_1@127.0.0.1"]["path"].as_str();
            ended(task) && path.is_some_and(|path| path.ends_with("-redacted.tar") == is_redacted)
        };
        task_when(&node, is_so);
    }
}

#[test]
fn every_node_has_an_archive_of_its_own_in_the_folder_that_is_named() {
    let (first, second) = two();
    let folder = tempfile::tempdir().unwrap();
    let form = format!("nodes=*&logDir={0}&tmpDir={0}", folder.path().display());
    assert_eq!(first.post(START, &form).status, 200);
    // Either node tells of both.
    let of_all = |task: &Value| task["status"] == "completed";
    for node in [&first, &second] {
        let task = task_when(node, of_all);
        let parts = task["perNode"].as_object().unwrap();
        assert_eq!(parts.len(), 2, "{task:#}");
        for (name, part) in parts {
            assert_eq!(part["status"], "collected", "{name}: {task:#}");
            let path = Path::new(part["path"].as_str().unwrap());
            assert!(path.starts_with(folder.path()) && path.exists(), "{task:#}");
        }
    }
    // And either has that of the other one downloaded.
    let task = task(&first).unwrap();
    let name = format!("ns_1@{}", second.address);
    let downloaded = first.get(&format!("{ARCHIVE}?node={name}"));
    let path = task["perNode"][&name]["path"].as_str().unwrap();
    assert!(downloaded.body == std::fs::read_to_string(path).unwrap(), "{} bytes", downloaded.body.len());
    assert!(
        downloaded.headers["content-disposition"].starts_with("attachment; filename=\"collected-127.0.0.1-")
    );
    let own = first.get(&format!("{ARCHIVE}?node=self"));
    assert!(own.status == 200 && own.body == first.get(ARCHIVE).body && own.body != downloaded.body);
    assert_eq!(first.get(&format!("{ARCHIVE}?node=nobody")).status, 400);

    let missing = first.post(START, "nodes=*&logDir=/nowhere/at-all");
    assert_eq!(missing.status, 200, "{}", missing.body);
    let task = task_when(&first, |task| ended(task) && task.to_string().contains("failed"));
    let why = task["perNode"][format!("ns_1@{}", second.address)]["collectionOutput"].as_str().unwrap();
    assert!(why.contains("cannot write /nowhere/at-all/collectinfo-"), "{why}");
}

#[test]
fn a_node_that_does_not_answer_has_failed_and_holds_nobody_up() {
    let node = TestNode::initialized();
    node.node.add_members(1);
    assert_eq!(node.post(START, "nodes=*").status, 200);
    let task = task_when(&node, ended);
    assert_eq!((&task["status"], &task["progress"]), (&json!("completed"), &json!(100)), "{task:#}");
    let silent = &task["perNode"]["ns_1@127.99.0.2"];
    assert_eq!(silent["status"], "failed", "{task:#}");
    assert!(silent["collectionOutput"].as_str().unwrap().contains("does not answer"), "{task:#}");
}

#[test]
fn a_collection_that_is_cancelled_leaves_nothing() {
    let node = TestNode::initialized();
    assert_eq!(node.post(CANCEL, "").json(), json!([]), "cancelling nothing is no error");
    node.node.add_members(1);
    // What asks the other node takes a second each time.
    node.node.is_cut_off.store(true, Relaxed);
    assert_eq!(node.post(START, "nodes=ns_1%40127.0.0.1").status, 200);
    let task = task(&node).unwrap();
    assert_eq!(task["status"], "running", "{task:#}");
    assert_eq!(task["cancelURI"], CANCEL);
    let second = node.post(START, "nodes=ns_1%40127.0.0.1");
    assert_eq!(
        (second.status, second.json()),
        (400, json!({ "_": "Logs collection task is already started" }))
    );
    assert_eq!(node.post(CANCEL, "").status, 200);
    node.node.is_cut_off.store(false, Relaxed);
    let task = task_when(&node, ended);
    assert_eq!(task["status"], "cancelled", "{task:#}");
    assert_eq!(task["perNode"]["ns_1@127.0.0.1"]["status"], "cancelled", "{task:#}");
    let folder = node.node.collected.path().join("collected");
    let began = Instant::now();
    while folder.exists() && std::fs::read_dir(&folder).unwrap().next().is_some() {
        assert!(began.elapsed() < PATIENCE, "the archive stays");
        std::thread::yield_now();
    }
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let node = TestNode::initialized();
    let refused = [
        ("", "nodes", "Please select at least one node."),
        ("nodes=ns_1%40nowhere", "nodes", "Unknown nodes: [\"ns_1@nowhere\"]"),
        ("nodes=*&logDir=here", "logDir", "Must be an absolute path"),
        ("nodes=*&tmpDir=here", "tmpDir", "Must be an absolute path"),
        ("nodes=*&logRedactionLevel=all", "logRedactionLevel", "log redaction should be none or partial"),
        (
            "nodes=*&logRedactionSalt=s",
            "logRedactionSalt",
            "log redaction level must be partial if salt is given",
        ),
        (
            "nodes=*&uploadHost=s3.example.com&customer=alk&ticket=7",
            "uploadHost",
            "Uploading is not supported. Each node keeps its archive: copy it from there.",
        ),
        (
            "nodes=*&encryptionPassword=x",
            "encryptionPassword",
            "Encrypted archives are not supported. Encrypt the archives yourself.",
        ),
    ];
    for (form, field, text) in refused {
        let answer = node.post(START, form);
        assert_eq!(
            (answer.status, answer.json()[field].as_str()),
            (400, Some(text)),
            "{form}: {}",
            answer.body
        );
    }
    assert_eq!(task(&node), None, "nothing has begun");
    let user = "password=secret-1&roles=cluster_admin,ro_admin";
    assert_eq!(node.send("PUT", "/settings/rbac/users/local/u", ADMIN, Some(user)).status, 200);
    for path in [START, CANCEL] {
        assert_eq!(node.send("POST", path, Some("u:secret-1"), Some("nodes=*")).status, 403, "{path}");
    }
    assert_eq!(node.send("GET", ARCHIVE, Some("u:secret-1"), None).status, 403);
}
