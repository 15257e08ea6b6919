//! Streamed configurations: the first at once, the next when something changed, an end when there is nothing to show.

use cluster::{BucketParams, Command};
use serde_json::Value;

use crate::{
    http::open_stream,
    node::{ADMIN, TestNode},
};

const BUCKET: &str = "name=b&ramQuotaMB=100&replicaNumber=0&numVBuckets=16";

fn config(chunk: Option<String>) -> Value {
    let chunk = chunk.expect("a configuration");
    let text = chunk.strip_suffix("\n\n\n\n").expect("four newlines end it");
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_bucket_stream_shows_each_change_and_ends_with_the_bucket() {
    let node = TestNode::initialized();
    assert_eq!(node.post("/pools/default/buckets", BUCKET).status, 202);
    for path in ["/pools/default/bs/b", "/pools/default/bucketsStreaming/b"] {
        let mut stream = open_stream(node.address, path, ADMIN);
        let first = config(stream.next());
        assert_eq!(first["name"], "b");
        assert!(first["vBucketServerMap"]["vBucketMap"].is_array());
        assert_eq!(
            node.post("/pools/default/buckets/b/scopes", &format!("name=s{}", path.len())).status,
            200
        );
        let second = config(stream.next());
        assert!(second["rev"].as_i64() > first["rev"].as_i64(), "{second}");
        assert_ne!(first["collectionsManifestUid"], second["collectionsManifestUid"]);
    }
    let mut stream = open_stream(node.address, "/pools/default/bs/b", ADMIN);
    config(stream.next());
    assert_eq!(node.send("DELETE", "/pools/default/buckets/b", ADMIN, None).status, 200);
    assert_eq!(stream.next(), None);
}

#[test]
fn full_streams_name_the_address_and_terse_ones_leave_it_open() {
    let node = TestNode::initialized();
    assert_eq!(node.post("/pools/default/buckets", BUCKET).status, 202);
    let full = config(open_stream(node.address, "/pools/default/bucketsStreaming/b", ADMIN).next());
    assert_eq!(full["vBucketServerMap"]["serverList"][0], "127.0.0.1:11210");
    assert!(!full.to_string().contains("$HOST"));
    let terse = config(open_stream(node.address, "/pools/default/bs/b", ADMIN).next());
    assert_eq!(terse["vBucketServerMap"]["serverList"][0], "$HOST:11210");
}

#[test]
fn cluster_streams_follow_the_cluster() {
    let node = TestNode::initialized();
    let mut services = open_stream(node.address, "/pools/default/nodeServicesStreaming", ADMIN);
    let mut pool = open_stream(node.address, "/poolsStreaming/default", ADMIN);
    let (before, pool_before) = (config(services.next()), config(pool.next()));
    assert_eq!(pool_before["bucketNames"], Value::Array(Vec::new()));
    assert_eq!(node.post("/pools/default/buckets", BUCKET).status, 202);
    assert!(config(services.next())["rev"].as_i64() > before["rev"].as_i64());
    assert_eq!(config(pool.next())["bucketNames"][0]["bucketName"], "b");
}

#[test]
fn a_heartbeat_is_the_separator_alone() {
    let node = TestNode::initialized();
    let mut stream = open_stream(node.address, "/pools/default/nodeServicesStreaming?heartbeat=1", ADMIN);
    config(stream.next());
    assert_eq!(stream.next().as_deref(), Some("\n\n\n\n"));
}

#[test]
fn a_stream_ends_when_its_reader_may_no_longer_see_it() {
    let node = TestNode::initialized();
    assert_eq!(node.post("/pools/default/buckets", &format!("{BUCKET}&legacyPasswordless=1")).status, 202);
    let mut nobody = open_stream(node.address, "/pools/default/bucketsStreaming/b", None);
    config(nobody.next());
    assert_eq!(node.post("/pools/default/buckets/b", "legacyPasswordless=0").status, 200);
    assert_eq!(nobody.next(), None);
}

#[test]
fn a_slow_reader_gets_the_newest_configuration_not_every_one() {
    let node = TestNode::initialized();
    let form = "name=b&ramQuotaMB=100&replicaNumber=0";
    assert_eq!(node.post("/pools/default/buckets", form).status, 202);
    let mut stream = open_stream(node.address, "/pools/default/bs/b", ADMIN);
    let first = config(stream.next())["rev"].as_i64().unwrap();
    let changes = 5000;
    for index in 0..changes {
        let ttl = BucketParams { max_ttl_secs: Some(index), ..BucketParams::default() };
        node.node.apply(&Command::UpdateBucket { name: "b".into(), params: ttl }).unwrap();
    }
    let last = first + i64::from(changes);
    let mut received = 0;
    while config(stream.next())["rev"].as_i64().unwrap() < last {
        received += 1;
    }
    // The first took one; what the socket's buffers hold is some hundred configurations of 5 KB.
    assert!(received < changes - 1, "{received}");
}

#[test]
fn streams_end_when_the_server_stops() {
    let node = TestNode::initialized();
    let mut stream = open_stream(node.address, "/pools/default/nodeServicesStreaming", ADMIN);
    config(stream.next());
    node.stop.send(true).unwrap();
    assert_eq!(stream.next(), None);
    let stopped = async { tokio::time::timeout(std::time::Duration::from_secs(5), node.served).await };
    node.runtime.block_on(stopped).expect("the server stops").unwrap().unwrap();
}
