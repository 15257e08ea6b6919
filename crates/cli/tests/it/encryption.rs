//! Nodes that speak TLS to one another: switched on and off while they serve, through the loss of nodes, and watched from outside.

use std::{collections::BTreeMap, time::Duration};

use client::Rest;

use crate::{
    cluster::{Cluster, assert_has, eventually, eventually_or_say, write_durably},
    node::{Node, PASSWORD, USERNAME, settee},
    sockets::dialled_by,
};

/// The ports that nodes find one another at: for what is agreed on, and for documents.
const CONTROL: &[&str] = &["mgmt"];
const PLAIN: &[&str] = &["mgmt", "kv"];
const TLS: &[&str] = &["mgmt_tls", "kv_tls"];

impl Cluster {
    /// The connections that nodes have to these ports of one another: how many.
    fn dialled(&self, ports: &[&str]) -> usize {
        self.connections(ports).len()
    }

    /// The same, each in words.
    fn connections(&self, ports: &[&str]) -> Vec<String> {
        let of_node = |(at, node): (usize, &Node)| {
            ports.iter().map(|name| (node.port(name), format!("{name} of node {at}"))).collect::<Vec<_>>()
        };
        let wanted: BTreeMap<u16, String> = self.nodes.iter().enumerate().flat_map(of_node).collect();
        let dialled = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(at, node)| dialled_by(node.pid()).into_iter().map(move |port| (at, port)));
        dialled.filter_map(|(at, port)| Some(format!("node {at} to {}", wanted.get(&port)?))).collect()
    }

    /// What `couchbase-cli node-to-node-encryption` asks of every node.
    fn switch_encryption(&self, word: &str) {
        let form = [("nodeEncryption", word)];
        let requests: [(&str, &[(&str, &str)]); 3] = [
            ("/node/controller/enableExternalListener", &form),
            ("/node/controller/setupNetConfig", &form),
            ("/node/controller/disableUnusedExternalListeners", &[]),
        ];
        for (path, form) in requests {
            for node in &self.nodes {
                Rest::new(node.rest(), Some((USERNAME, PASSWORD))).post(path, form).unwrap();
            }
        }
    }

    fn set_level(&self, level: &str) {
        self.rest().post("/settings/security", &[("clusterEncryptionLevel", level)]).unwrap();
    }

    /// No node has a connection to these ports of another one, or will soon have none.
    fn until_nobody_dials(&self, ports: &[&str]) {
        eventually_or_say(|| match self.connections(ports) {
            left if left.is_empty() => Ok(()),
            left => Err(format!("connections of the other kind are left: {left:?}")),
        });
    }
}

#[test]
fn nodes_speak_tls_to_one_another_once_they_are_told_to() {
    let mut cluster = Cluster::form(3);
    let mut written = write_durably(&mut cluster.client(), "plain", 100);
    assert!(cluster.dialled(CONTROL) > 0 && cluster.dialled(&["kv"]) > 0, "this test sees plain connections");
    assert_eq!(cluster.dialled(TLS), 0);

    cluster.switch_encryption("on");
    cluster.until_nobody_dials(CONTROL);
    assert!(cluster.dialled(&["kv"]) > 0, "documents are another matter");
    cluster.set_level("all");
    cluster.until_nobody_dials(PLAIN);
    written.append(&mut write_durably(&mut cluster.client(), "encrypted", 300));
    assert_has(&mut cluster.client(), &written);
    assert!(cluster.dialled(&["mgmt_tls"]) > 0 && cluster.dialled(&["kv_tls"]) > 0);

    // A node that was killed comes back with what it knew.
    let dir = cluster.dirs[2].path().to_owned();
    cluster.nodes[2].kill();
    cluster.nodes[2].restart(&dir);
    eventually("every document is served again", || {
        let mut client = cluster.try_client().ok()?;
        client.patience = Duration::from_secs(2);
        written.keys().all(|key| client.get(key.as_bytes()).is_ok_and(|found| found.is_some())).then_some(())
    });
    written.append(&mut write_durably(&mut cluster.client(), "restarted", 100));

    // One is lost, failed over, and recovered.
    let dir = cluster.dirs[1].path().to_owned();
    let lost = cluster.nodes[1].rest();
    cluster.nodes[1].kill();
    cluster.command(&["failover", "--hard", &lost]);
    cluster.nodes[1].restart(&dir);
    cluster.command(&["recover", "--delta", &lost, "--rebalance"]);
    assert_has(&mut cluster.client(), &written);
    cluster.until_nobody_dials(PLAIN);

    cluster.set_level("control");
    cluster.switch_encryption("off");
    cluster.until_nobody_dials(TLS);
    written.append(&mut write_durably(&mut cluster.client(), "plain again", 100));
    assert_has(&mut cluster.client(), &written);
}

#[test]
fn a_node_is_added_under_tls_and_speaks_it_from_the_start() {
    let mut cluster = Cluster::form(2);
    cluster.command(&["encryption", "all"]);
    let dir = tempfile::tempdir().unwrap();
    let new = Node::start(dir.path(), &[]);
    let plainly = settee()
        .args(["cluster", "add", &new.rest(), "--host", &cluster.nodes[0].rest(), "--username", USERNAME])
        .env("SETTEE_PASSWORD", PASSWORD)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&plainly.stderr).into_owned();
    assert!(!plainly.status.success() && said.contains("https"), "{said}");

    let address = format!("https://127.0.0.1:{}", new.port("mgmt_tls"));
    cluster.command(&["add", &address, "--rebalance"]);
    cluster.nodes.push(new);
    cluster.dirs.push(dir);
    let written = write_durably(&mut cluster.client(), "key", 200);
    assert_has(&mut cluster.client(), &written);
    cluster.until_nobody_dials(PLAIN);
    let nodes = cluster.rest().get_json("/pools/nodes").unwrap();
    let is_encrypted = |node: &serde_json::Value| node["nodeEncryption"] == true;
    assert!(nodes["nodes"].as_array().unwrap().iter().all(is_encrypted), "{nodes}");
    cluster.command(&["encryption", "off"]);
    cluster.until_nobody_dials(TLS);
}
