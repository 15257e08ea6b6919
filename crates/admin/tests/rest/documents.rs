//! Documents over REST: the forms of Couchbase's console, versions, rights by collection, and copies that move.

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use ::http::AuditKind;
use base::BucketUuid;
use cluster::{BucketParams, Command};
use serde_json::json;
use settee_admin::documents::{Document, Octets};

use crate::{
    http::begin,
    node::{ADMIN, TestNode},
};

const DOCS: &str = "/pools/default/buckets/b/docs";
const OF_COLLECTION: &str = "/pools/default/buckets/b/scopes/s/collections/c/docs";

fn node() -> TestNode {
    let node = TestNode::initialized();
    assert_eq!(node.post("/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0").status, 202);
    assert_eq!(node.post("/pools/default/buckets/b/scopes", "name=s").status, 200);
    assert_eq!(node.post("/pools/default/buckets/b/scopes/s/collections", "name=c").status, 200);
    node
}

#[test]
fn a_document_is_written_read_and_deleted() {
    let node = node();
    let path = format!("{DOCS}/a%2Fb");
    assert_eq!(node.get(&path).status, 404);
    let written = node.post(&path, "value=%7B%22x%22%3A1%7D");
    assert_eq!(
        (written.status, written.body.as_str(), written.headers["etag"].as_str()),
        (200, "[]", "\"1001\"")
    );
    let read = node.get(&path).json();
    assert_eq!(read["json"], "{\"x\":1}");
    let meta = json!({ "id": "a/b", "rev": "1-00000000000003e90000000002000006", "expiration": 0, "flags": 33_554_438 });
    assert_eq!(read["meta"], meta);
    assert_eq!(read["settee"]["cas"], "1001");
    node.post(&format!("{DOCS}/raw"), "value=not+json&flags=7");
    let raw = node.get(&format!("{DOCS}/raw")).json();
    assert_eq!((&raw["base64"], &raw["meta"]["flags"]), (&json!("bm90IGpzb24="), &json!(7)));
    assert_eq!(node.send("DELETE", &path, ADMIN, None).status, 200);
    assert_eq!(node.send("DELETE", &path, ADMIN, None).status, 404);
}

#[test]
fn auditors_are_told_of_each_act_on_a_document_and_of_no_other() {
    let node = node();
    let reader = node.with_user("reader", "data_reader[b:s:c]");
    let path = format!("{OF_COLLECTION}/a%2Fb");
    assert_eq!(node.post(&path, "value=1").status, 200);
    assert_eq!(node.send("GET", &path, Some(&reader), None).status, 200);
    assert_eq!(node.send("GET", &format!("{OF_COLLECTION}/none"), Some(&reader), None).status, 404);
    assert_eq!(node.send("POST", &path, Some(&reader), Some("value=2")).status, 403);
    assert_eq!(node.post(&path, "value=2&cas=1").status, 409);
    assert_eq!(node.send("DELETE", &path, ADMIN, None).status, 200);
    let audited = node.node.audited.lock().unwrap();
    let acts = audited
        .iter()
        .filter(|event| [AuditKind::DocumentRead, AuditKind::DocumentChanged].contains(&event.kind));
    let acts: Vec<_> = acts
        .map(|event| {
            assert_eq!(event.subject, "b/s/c/a/b");
            assert!(event.peer.is_some());
            (event.kind, event.user.name.as_str(), event.details.as_str())
        })
        .collect();
    let expected = [
        (AuditKind::DocumentChanged, "Administrator", "POST"),
        (AuditKind::DocumentRead, "reader", ""),
        // A change is told before it is tried, so this one is told although it was refused.
        (AuditKind::DocumentChanged, "Administrator", "POST"),
        (AuditKind::DocumentChanged, "Administrator", "DELETE"),
    ];
    assert_eq!(acts, expected);
}

#[test]
fn a_write_names_the_version_that_it_replaces_and_keeps_the_expiry() {
    let node = node();
    let path = format!("{DOCS}/k");
    assert_eq!(node.post(&path, "value=1&expiry=4000000000&cas=0").status, 200);
    let again = node.post(&path, "value=2&cas=0");
    assert_eq!((again.status, &again.json()["error"]), (409, &json!("conflict")), "it is there");
    assert_eq!(node.post(&path, "value=2&cas=7").status, 409);
    assert_eq!(node.post(&path, "value=2&cas=1001").status, 200);
    let read = node.get(&path).json();
    assert_eq!((&read["json"], &read["meta"]["expiration"]), (&json!("2"), &json!(4_000_000_000_u32)));
    for form in ["value=1&flags=x", "value=1&cas=-1", "value=1&expiry=1e3"] {
        assert_eq!(node.post(&path, form).status, 400, "{form}");
    }
}

#[test]
fn keys_are_listed_in_order_within_bounds() {
    let node = node();
    for key in ["b", "a", "d", "c"] {
        node.post(&format!("{DOCS}/{key}"), "value=1");
        node.post(&format!("{OF_COLLECTION}/of-c-{key}"), "value=1");
    }
    let keys = |query: &str| -> Vec<String> {
        let list = node.get(&format!("{DOCS}?{query}"));
        assert_eq!(list.status, 200, "{query}: {}", list.body);
        let rows = list.json()["rows"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row["id"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(keys(""), ["a", "b", "c", "d"]);
    assert_eq!(keys("skip=1&limit=2"), ["b", "c"]);
    assert_eq!(keys("startkey=%22b%22&endkey=%22c%22"), ["b", "c"]);
    assert_eq!(keys("startkey=%22b%22&endkey=%22c%22&inclusive_end=false"), ["b"]);
    let whole = node.get(&format!("{OF_COLLECTION}?include_docs=true&limit=1")).json();
    assert_eq!((&whole["rows"][0]["id"], &whole["rows"][0]["doc"]["json"]), (&json!("of-c-a"), &json!("1")));
    let is_read = |subject: &str| {
        let audited = node.node.audited.lock().unwrap();
        audited.iter().any(|event| event.kind == AuditKind::DocumentRead && event.subject == subject)
    };
    assert!(is_read("b/s/c/of-c-a") && !is_read("b/s/c/of-c-b"), "a list has read what it shows");
    for query in [
        "startkey=b",
        "startkey=1",
        "limit=x",
        "skip=-1",
        "inclusive_end=1",
        "limit=10001",
        "include_docs=true&limit=101",
    ] {
        assert_eq!(node.get(&format!("{DOCS}?{query}")).status, 400, "{query}");
    }
    assert_eq!(node.get("/pools/default/buckets/none/docs").status, 404);
    assert_eq!(node.get("/pools/default/buckets/b/scopes/s/collections/none/docs").status, 404);
}

#[test]
fn rights_are_those_over_documents_of_the_collection() {
    let node = node();
    let reader = node.with_user("reader", "data_reader[b:s:c]");
    let writer = node.with_user("writer", "data_writer[b:s:c]");
    let manager = node.with_user("manager", "cluster_admin");
    let status = |method: &str, path: &str, user: &str| {
        let form = (method == "POST").then_some("value=1");
        node.send(method, path, Some(user), form).status
    };
    let (inside, outside) = (format!("{OF_COLLECTION}/k"), format!("{DOCS}/k"));
    assert_eq!(status("POST", &inside, &writer), 200);
    assert_eq!(status("POST", &outside, &writer), 403);
    assert_eq!(status("GET", &inside, &reader), 200);
    assert_eq!(status("GET", OF_COLLECTION, &reader), 200);
    assert_eq!((status("GET", &outside, &reader), status("GET", DOCS, &reader)), (403, 403));
    assert_eq!((status("POST", &inside, &reader), status("DELETE", &inside, &reader)), (403, 403));
    assert_eq!(
        (status("GET", &inside, &manager), status("GET", DOCS, &manager)),
        (403, 403),
        "no rights over documents"
    );
    assert_eq!(node.send("GET", &inside, None, None).status, 401);
    assert_eq!(node.send("POST", "/_settee/documents", ADMIN, Some("{}")).status, 401, "of nodes alone");
}

#[test]
fn a_copy_that_is_on_its_way_is_looked_for() {
    let node = node();
    node.node.elsewhere.store(2, Relaxed);
    assert_eq!(node.post(&format!("{DOCS}/k"), "value=1").status, 200);
    node.node.elsewhere.store(2, Relaxed);
    assert_eq!(node.get(DOCS).json()["rows"], json!([{ "id": "k" }]));
    node.node.elsewhere.store(usize::MAX, Relaxed);
    let given_up = node.get(&format!("{DOCS}/k"));
    assert_eq!((given_up.status, &given_up.json()["error"]), (503, &json!("max_retry")));
}

/// Another bucket of that name has other collections under the same numbers.
#[test]
fn a_request_that_looks_for_a_copy_goes_to_no_collection_that_it_was_not_meant_for() {
    let node = node();
    let becomes_another = |uuid: &str| {
        let params = BucketParams { ram_quota_mb: Some(100), replicas: Some(0), ..BucketParams::default() };
        let (name, uuid) = ("b".to_owned(), BucketUuid(uuid.repeat(32)));
        let of_scope = |collection: &str| Command::CreateCollection {
            bucket: "b".into(),
            scope: "s".into(),
            collection: collection.into(),
            max_ttl: 0,
        };
        let commands = [
            Command::DeleteBucket { name: name.clone() },
            Command::CreateBucket { name, uuid, params },
            Command::CreateScope { bucket: "b".into(), scope: "s".into() },
            of_scope("secret"),
            of_scope("c"),
        ];
        node.node.meanwhile.lock().unwrap().extend(commands);
        node.node.elsewhere.store(1, Relaxed);
    };
    becomes_another("1");
    assert_eq!(node.post(&format!("{OF_COLLECTION}/k"), "value=1").status, 200);
    let secret = "/pools/default/buckets/b/scopes/s/collections/secret/docs";
    assert_eq!(node.get(&format!("{secret}/k")).status, 404);
    assert_eq!(node.get(&format!("{OF_COLLECTION}/k")).status, 200);
    // The right of a user goes with the bucket.
    for (uuid, path) in [("2", format!("{OF_COLLECTION}/k")), ("3", OF_COLLECTION.to_owned())] {
        let reader = node.with_user("reader", "data_reader[b:s:c]");
        becomes_another(uuid);
        assert_eq!(node.send("GET", &path, Some(&reader), None).status, 403, "{path}");
    }
}

fn store_large(node: &TestNode, key: &str, mib: usize) {
    let document = Document { value: Octets(vec![b'x'; mib << 20]), ..Document::default() };
    node.node.documents.lock().unwrap().insert((0, key.as_bytes().to_vec()), document);
}

#[test]
fn a_list_has_so_many_bytes_of_documents() {
    let node = node();
    (0..3).for_each(|number| store_large(&node, &format!("large{number}"), 12));
    let list = |limit: usize| node.get(&format!("{DOCS}?include_docs=true&limit={limit}"));
    assert_eq!(list(2).status, 200);
    let refused = list(3);
    assert!(refused.status == 400 && refused.body.contains("'limit'"), "{} {}", refused.status, refused.body);
    assert_eq!(node.get(DOCS).json()["rows"].as_array().unwrap().len(), 3, "keys alone");
}

#[test]
fn large_documents_that_nobody_takes_are_not_held_without_bound() {
    let node = node();
    store_large(&node, "large", 20);
    assert_eq!(node.post(&format!("{DOCS}/small"), "value=1").status, 200);
    let large = format!("{DOCS}/large");
    let untaken: Vec<_> = (0..4).map(|_| begin(node.address, &large, ADMIN)).collect();
    assert!(untaken.iter().all(|(status, _)| *status == 200), "{untaken:?}");
    assert_eq!(node.get(&large).status, 503, "128 MiB are on their way");
    assert_eq!(node.get(&format!("{DOCS}/small")).status, 200);
    drop(untaken);
    let deadline = Instant::now() + Duration::from_secs(20);
    while node.get(&large).status != 200 {
        assert!(Instant::now() < deadline, "connections that are gone hold nothing");
    }
}
