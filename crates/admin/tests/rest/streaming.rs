//! Streamed configurations: the first at once, the next when something changed, an end when there is nothing to show.

use cluster::{BucketParams, Command};
use serde_json::Value;

use crate::{
    http::{Stream, open_stream},
    node::{ADMIN, TestNode},
};

const BUCKET: &str = "name=b&ramQuotaMB=100&replicaNumber=0&numVBuckets=16";

/// The next configuration. The newlines behind it have to be a chunk of their own.
fn config(stream: &mut Stream) -> Value {
    let text = stream.next().expect("a configuration");
    assert_eq!(stream.next().as_deref(), Some("\n\n\n\n"));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_bucket_stream_shows_each_change_and_ends_with_the_bucket() {
    let node = TestNode::initialized();
    assert_eq!(node.post("/pools/default/buckets", BUCKET).status, 202);
    for path in ["/pools/default/bs/b", "/pools/default/bucketsStreaming/b"] {
        let mut stream = open_stream(node.address, path, ADMIN);
        let first = config(&mut stream);
        assert_eq!(first["name"], "b");
        assert!(first["vBucketServerMap"]["vBucketMap"].is_array());
        assert_eq!(
            node.post("/pools/default/buckets/b/scopes", &format!("name=s{}", path.len())).status,
            200
        );
        let second = config(&mut stream);
        assert!(second["rev"].as_i64() > first["rev"].as_i64(), "{second}");
        assert_ne!(first["collectionsManifestUid"], second["collectionsManifestUid"]);
    }
    let mut stream = open_stream(node.address, "/pools/default/bs/b", ADMIN);
    config(&mut stream);
    assert_eq!(node.send("DELETE", "/pools/default/buckets/b", ADMIN, None).status, 200);
    assert_eq!(stream.next(), None);
}

#[test]
fn full_streams_name_the_address_and_terse_ones_leave_it_open() {
    let node = TestNode::initialized();
    assert_eq!(node.post("/pools/default/buckets", BUCKET).status, 202);
    let full = config(&mut open_stream(node.address, "/pools/default/bucketsStreaming/b", ADMIN));
    assert_eq!(full["vBucketServerMap"]["serverList"][0], "127.0.0.1:11210");
    assert!(!full.to_string().contains("$HOST"));
    let terse = config(&mut open_stream(node.address, "/pools/default/bs/b", ADMIN));
    assert_eq!(terse["vBucketServerMap"]["serverList"][0], "$HOST:11210");
}

#[test]
fn cluster_streams_follow_the_cluster() {
    let node = TestNode::initialized();
    let mut services = open_stream(node.address, "/pools/default/nodeServicesStreaming", ADMIN);
    let mut pool = open_stream(node.address, "/poolsStreaming/default", ADMIN);
    let (before, pool_before) = (config(&mut services), config(&mut pool));
    assert_eq!(pool_before["bucketNames"], Value::Array(Vec::new()));
    assert_eq!(node.post("/pools/default/buckets", BUCKET).status, 202);
    assert!(config(&mut services)["rev"].as_i64() > before["rev"].as_i64());
    assert_eq!(config(&mut pool)["bucketNames"][0]["bucketName"], "b");
}

#[test]
fn a_heartbeat_is_the_separator_alone() {
    let node = TestNode::initialized();
    let mut stream = open_stream(node.address, "/pools/default/nodeServicesStreaming?heartbeat=1", ADMIN);
    config(&mut stream);
    assert_eq!(stream.next().as_deref(), Some("\n\n\n\n"));
}

#[test]
fn a_stream_ends_when_its_reader_may_no_longer_see_it() {
    let node = TestNode::initialized();
    assert_eq!(node.post("/pools/default/buckets", &format!("{BUCKET}&legacyPasswordless=1")).status, 202);
    let mut nobody = open_stream(node.address, "/pools/default/bucketsStreaming/b", None);
    config(&mut nobody);
    // The oldest clients give the bucket's name and no password.
    config(&mut open_stream(node.address, "/pools/default/bucketsStreaming/b", Some("b:")));
    assert_eq!(node.post("/pools/default/buckets/b", "legacyPasswordless=0").status, 200);
    assert_eq!(node.send("GET", "/pools/default/bucketsStreaming/b", Some("b:"), None).status, 401);
    assert_eq!(nobody.next(), None);
}

#[test]
fn a_slow_reader_gets_the_newest_configuration_not_every_one() {
    let node = TestNode::initialized();
    let form = "name=b&ramQuotaMB=100&replicaNumber=0";
    assert_eq!(node.post("/pools/default/buckets", form).status, 202);
    let mut stream = open_stream(node.address, "/pools/default/bs/b", ADMIN);
    let first = config(&mut stream)["rev"].as_i64().unwrap();
    let changes = 5000;
    for index in 0..changes {
        let ttl = BucketParams { max_ttl_secs: Some(index), ..BucketParams::default() };
        node.node.apply(&Command::UpdateBucket { name: "b".into(), params: ttl }).unwrap();
    }
    let last = first + i64::from(changes);
    let mut received = 0;
    while config(&mut stream)["rev"].as_i64().unwrap() < last {
        received += 1;
    }
    // The first took one; what the socket's buffers hold is some hundred configurations of 5 KB.
    assert!(received < changes - 1, "{received}");
}

#[test]
fn streams_end_when_the_server_stops() {
    let node = TestNode::initialized();
    let mut stream = open_stream(node.address, "/pools/default/nodeServicesStreaming", ADMIN);
    config(&mut stream);
    node.stop.send(true).unwrap();
    assert_eq!(stream.next(), None);
    let stopped = async { tokio::time::timeout(std::time::Duration::from_secs(5), node.served).await };
    node.runtime.block_on(stopped).expect("the server stops").unwrap().unwrap();
}
