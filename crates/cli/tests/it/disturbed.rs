//! Two copies of a vBucket that are disturbed at once: one is ended and started again while the other is away.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use base::bucket::DurabilityLevel;
use client::Client;
use protocol::binary::Opcode;

use crate::{
    cluster::{Cluster, SOON, VBUCKETS, eventually},
    login,
    node::Node,
};

/// Nodes of which the first has active copies that the second has replicas of. The first node of all is asked.
const ACTIVE: usize = 1;
const REPLICA: usize = 2;
const BUCKET: &str = "disturbed";
const TIMEOUT: &str = "5";

fn client(cluster: &Cluster) -> Option<Client> {
    let mut client = Client::connect(&cluster.nodes[0].kv(), &login(BUCKET)).ok()?;
    // Somebody asks again.
    client.patience = Duration::from_millis(20);
    Some(client)
}

/// The nodes that hold each vBucket, the active one first.
fn chains(cluster: &Cluster) -> Option<Vec<Vec<usize>>> {
    let bucket = cluster.rest().get_json(&format!("/pools/default/buckets/{BUCKET}")).ok()?;
    let map = &bucket["vBucketServerMap"];
    let servers = map["serverList"].as_array()?;
    let number = |place: &serde_json::Value| {
        let server = servers.get(usize::try_from(place.as_i64()?).ok()?)?.as_str()?;
        cluster.nodes.iter().position(|node| node.kv() == server)
    };
    let chain = |chain: &serde_json::Value| chain.as_array()?.iter().map(number).collect();
    map["vBucketMap"].as_array()?.iter().map(chain).collect()
}

/// Three nodes, with documents that were acknowledged at majority by two copies on two of these nodes.
fn written(kind: &str) -> (Cluster, BTreeMap<String, String>) {
    let cluster = Cluster::form(3);
    let rest = cluster.rest();
    rest.post("/settings/autoFailover", &[("enabled", "false")]).unwrap();
    let bucket = [
        ("name", BUCKET),
        ("bucketType", kind),
        ("ramQuotaMB", "100"),
        ("replicaNumber", "1"),
        ("numVBuckets", VBUCKETS),
    ];
    rest.post("/pools/default/buckets", &bucket).unwrap();
    let chains = eventually("every vBucket has two copies", || {
        chains(&cluster).filter(|chains| chains.iter().all(|chain| chain.len() == 2))
    });
    let mut writer = eventually("the bucket is served", || client(&cluster));
    writer.patience = SOON;
    let mut documents = BTreeMap::new();
    for number in 0..300 {
        let (key, value) = (format!("key-{number}"), format!("value-{number}"));
        let vb = usize::from(writer.map().vbucket_of(key.as_bytes()).get());
        if chains[vb] != [ACTIVE, REPLICA] {
            continue;
        }
        let options =
            client::WriteOptions { durability: Some(DurabilityLevel::Majority), ..Default::default() };
        writer.store(Opcode::Set, key.as_bytes(), value.as_bytes(), &options).unwrap();
        documents.insert(key, value);
    }
    assert!(!documents.is_empty(), "{chains:?}");
    (cluster, documents)
}

/// What REST says of a node.
fn told(cluster: &Cluster, node: usize, what: &str) -> Option<String> {
    let (pool, name) = (cluster.rest().get_json("/pools/default").ok()?, cluster.nodes[node].rest());
    let node = pool["nodes"].as_array()?.iter().find(|node| node["hostname"] == name)?;
    node[what].as_str().map(str::to_owned)
}

fn start_again(cluster: &mut Cluster, node: usize) {
    let dir = cluster.dirs[node].path().to_owned();
    cluster.nodes[node].restart(&dir);
}

/// Ends the active copy's node while the other copy's is paused, and starts it again. The other copy has every document, and is asked: a
/// document is not served until it is back, and is lost at no time.
fn a_restarted_copy_waits_for_a_paused_one(kind: &str, end: impl FnOnce(&mut Node)) {
    let (mut cluster, documents) = written(kind);
    cluster.nodes[REPLICA].pause();
    end(&mut cluster.nodes[ACTIVE]);
    start_again(&mut cluster, ACTIVE);
    eventually("one is back, and the other one is missed", || {
        assert_none_is_denied(&mut client(&cluster)?, &documents);
        let status = [ACTIVE, REPLICA].map(|node| told(&cluster, node, "status"));
        (status == [Some("healthy".into()), Some("unhealthy".into())]).then_some(())
    });
    // The leader has looked by now, and goes on to look.
    for _ in 0..3 {
        assert_none_is_denied(&mut client(&cluster).unwrap(), &documents);
    }
    cluster.nodes[REPLICA].resume();
    are_served_again(&cluster, &documents);
}

#[test]
fn a_copy_in_memory_that_was_restarted_waits_for_one_that_is_paused() {
    a_restarted_copy_waits_for_a_paused_one("ephemeral", |node| assert!(node.terminate().success()));
}

#[test]
fn a_copy_in_memory_that_was_killed_waits_for_one_that_is_paused() {
    a_restarted_copy_waits_for_a_paused_one("ephemeral", Node::kill);
}

#[test]
fn a_copy_on_disk_that_was_killed_waits_for_one_that_is_paused() {
    a_restarted_copy_waits_for_a_paused_one("couchbase", Node::kill);
}

#[test]
fn a_paused_node_is_not_failed_over_in_favour_of_a_copy_that_has_lost_everything() {
    let (mut cluster, documents) = written("ephemeral");
    let automatic = [("enabled", "true"), ("timeout", TIMEOUT)];
    cluster.rest().post("/settings/autoFailover", &automatic).unwrap();
    cluster.nodes[REPLICA].kill();
    cluster.nodes[ACTIVE].pause();
    start_again(&mut cluster, REPLICA);
    eventually("it is missed", || (told(&cluster, ACTIVE, "status")? == "unhealthy").then_some(()));
    let missed = Instant::now();
    eventually("three times the timeout is over", || {
        // Documents are its own as long as it is a member, and it answers nobody.
        assert_eq!(told(&cluster, ACTIVE, "clusterMembership").as_deref(), Some("active"));
        (missed.elapsed() > 3 * Duration::from_secs(TIMEOUT.parse().unwrap())).then_some(())
    });
    cluster.nodes[ACTIVE].resume();
    are_served_again(&cluster, &documents);
}

fn are_served_again(cluster: &Cluster, documents: &BTreeMap<String, String>) {
    eventually("every document is served again", || {
        let mut client = client(cluster)?;
        assert_none_is_denied(&mut client, documents);
        are_read(&mut client, documents).then_some(())
    });
}

/// Whether every document is served. Nothing else is read than what was written.
fn are_read(client: &mut Client, documents: &BTreeMap<String, String>) -> bool {
    documents.iter().all(|(key, value)| match client.get(key.as_bytes()) {
        Ok(Some(found)) => {
            assert_eq!(String::from_utf8_lossy(&found.value), *value, "{key}");
            true
        }
        _ => false,
    })
}

/// No document that was acknowledged is said not to exist.
fn assert_none_is_denied(client: &mut Client, documents: &BTreeMap<String, String>) {
    for key in documents.keys() {
        assert!(!matches!(client.get(key.as_bytes()), Ok(None)), "{key} is lost");
    }
}
