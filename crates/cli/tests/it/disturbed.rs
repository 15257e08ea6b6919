//! Two copies of a vBucket that are disturbed at once: one is restarted while the other is away.

use std::{collections::BTreeMap, time::Duration};

use base::bucket::DurabilityLevel;
use client::Client;
use protocol::binary::Opcode;

use crate::{
    cluster::{Cluster, SOON, VBUCKETS, eventually},
    login,
};

const RESTARTED: usize = 1;
const PAUSED: usize = 2;
const BUCKET: &str = "memory";

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

/// What a node has in memory is gone when it ends. The other copy has every document, and is asked: a document is not served
/// until it is back, and is lost at no time.
#[test]
fn a_copy_in_memory_that_was_restarted_waits_for_one_that_is_paused() {
    let mut cluster = Cluster::form(3);
    let rest = cluster.rest();
    rest.post("/settings/autoFailover", &[("enabled", "false")]).unwrap();
    let bucket = [
        ("name", BUCKET),
        ("bucketType", "ephemeral"),
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
    let mut ambiguous = BTreeMap::new();
    for number in 0..300 {
        let (key, value) = (format!("key-{number}"), format!("value-{number}"));
        let vb = usize::from(writer.map().vbucket_of(key.as_bytes()).get());
        if chains[vb] != [RESTARTED, PAUSED] {
            continue;
        }
        let options =
            client::WriteOptions { durability: Some(DurabilityLevel::Majority), ..Default::default() };
        writer.store(Opcode::Set, key.as_bytes(), value.as_bytes(), &options).unwrap();
        ambiguous.insert(key, value);
    }
    assert!(!ambiguous.is_empty(), "{chains:?}");

    let [restarted, paused] = [RESTARTED, PAUSED].map(|node| cluster.nodes[node].rest());
    cluster.nodes[PAUSED].pause();
    assert!(cluster.nodes[RESTARTED].terminate().success());
    let dir = cluster.dirs[RESTARTED].path().to_owned();
    cluster.nodes[RESTARTED].restart(&dir);
    let is = |node: &str, status: &str| {
        let pool = rest.get_json("/pools/default").ok()?;
        let nodes = pool["nodes"].as_array()?;
        Some(nodes.iter().any(|other| other["hostname"] == node && other["status"] == status))
    };
    eventually("one is back, and the other one is missed", || {
        assert_none_is_denied(&mut client(&cluster)?, &ambiguous);
        (is(&restarted, "healthy")? && is(&paused, "unhealthy")?).then_some(())
    });
    // The leader has looked by now, and goes on to look.
    for _ in 0..3 {
        assert_none_is_denied(&mut client(&cluster).unwrap(), &ambiguous);
    }
    cluster.nodes[PAUSED].resume();
    eventually("every document is served again", || {
        let mut client = client(&cluster)?;
        assert_none_is_denied(&mut client, &ambiguous);
        are_read(&mut client, &ambiguous).then_some(())
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
