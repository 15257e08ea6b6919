//! A cluster that is formed and changed by `settee` commands alone.

use crate::{
    cluster::{Cluster, VBUCKETS, assert_has, write_durably},
    node::{Node, PASSWORD, USERNAME, settee},
};

/// Nodes that nobody has initialised but the first.
fn initialised_with_others(count: usize) -> Cluster {
    let dirs: Vec<_> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
    let cluster = Cluster { nodes: dirs.iter().map(|dir| Node::start(dir.path(), &[])).collect(), dirs };
    let init = settee()
        .args(["init", "--host", &cluster.nodes[0].rest(), "--username", USERNAME])
        .env("SETTEE_PASSWORD", PASSWORD)
        .output()
        .unwrap();
    assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
    cluster
}

#[test]
fn what_a_node_refuses_to_become_is_told_in_sentences() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &[]);
    let init = |more: &[&str]| {
        let rest = node.rest();
        let mut command = settee();
        command.args(["init", "--host", &rest, "--username", USERNAME]).args(more);
        let output = command.env("SETTEE_PASSWORD", PASSWORD).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (is_done, told) = init(&["--memory-quota-mb", "999999999"]);
    assert!(!is_done && told.contains("was not initialised: Total quota") && !told.contains('{'), "{told}");
    let (is_done, told) = init(&["--memory-quota-mb", "300", "--bucket", "app", "--bucket-quota-mb", "9999"]);
    assert!(
        !is_done && told.contains("app was not created: ramQuotaMB: RAM quota") && !told.contains('{'),
        "{told}"
    );
    let (is_done, told) = init(&[]);
    assert!(!is_done && told.contains("has an administrator already"), "{told}");
}

#[test]
fn nodes_join_and_are_added_renamed_and_removed() {
    let cluster = initialised_with_others(3);
    let [joins, added] = [1, 2].map(|index| cluster.nodes[index].rest());
    cluster.command(&["join", &joins]);
    let again = cluster.refusal(&["join", &joins]);
    assert!(again.contains("did not join") && again.contains("cluster add"), "{again}");
    cluster.command(&["add", &added, "--rebalance"]);
    let bucket = [("name", "app"), ("ramQuotaMB", "100"), ("replicaNumber", "1"), ("numVBuckets", VBUCKETS)];
    cluster.rest().post("/pools/default/buckets", &bucket).unwrap();
    let mut written = write_durably(&mut cluster.client(), "formed", 100);
    assert_eq!(cluster.client().map().nodes.len(), 3);

    let renamed = format!("localhost:{}", cluster.nodes[1].port("mgmt"));
    cluster.command(&["rename", &joins, "localhost"]);
    let status = cluster.command(&["status"]);
    assert!(status.contains(&renamed) && !status.contains(&joins), "{status}");
    let kv = format!("localhost:{}", cluster.nodes[1].port("kv"));
    assert!(cluster.client().map().nodes.contains(&kv), "clients are told");
    written.append(&mut write_durably(&mut cluster.client(), "renamed", 100));
    let refused = cluster.refusal(&["rename", &renamed, "no name"]);
    assert!(refused.contains("keeps its name"), "{refused}");

    cluster.command(&["remove", &added]);
    let mut client = cluster.client();
    assert_eq!(client.map().nodes.len(), 2);
    assert_has(&mut client, &written);
    cluster.command(&["remove", &renamed]);
    let mut client = cluster.client();
    assert_eq!(client.map().nodes.len(), 1);
    assert_has(&mut client, &written);
}

#[test]
fn a_node_joins_under_a_name_and_gets_data_at_once() {
    let cluster = initialised_with_others(2);
    cluster.command(&["join", &cluster.nodes[1].rest(), "--name", "localhost", "--rebalance"]);
    let nodes = cluster.rest().get_json("/pools/default").unwrap();
    let node = &nodes["nodes"][1];
    let name = format!("localhost:{}", cluster.nodes[1].port("mgmt"));
    assert_eq!(
        (node["hostname"].as_str(), node["clusterMembership"].as_str()),
        (Some(&*name), Some("active"))
    );
}

#[test]
fn server_groups_are_made_filled_renamed_and_deleted() {
    let cluster = Cluster::form(2);
    let [first, second] = [0, 1].map(|index| cluster.nodes[index].rest());
    let nodes_of = |group: &str| {
        let list = cluster.command(&["groups", "list"]);
        let line = list.lines().find(|line| line.starts_with(group)).map(str::to_owned);
        line.map(|line| [&first, &second].map(|node| line.contains(node.as_str())))
    };
    assert_eq!(nodes_of("Group 1"), Some([true, true]));
    cluster.command(&["groups", "create", "rack 2"]);
    assert_eq!(nodes_of("rack 2"), Some([false, false]));
    let twice = cluster.refusal(&["groups", "create", "rack 2"]);
    assert!(twice.contains("already exists"), "{twice}");

    cluster.command(&["groups", "move", &second, "--to", "rack 2"]);
    assert_eq!([nodes_of("Group 1"), nodes_of("rack 2")], [Some([true, false]), Some([false, true])]);
    let nowhere = cluster.refusal(&["groups", "move", &first, "--to", "rack 3"]);
    assert!(nowhere.contains("there is no group rack 3"), "{nowhere}");
    cluster.command(&["groups", "rename", "rack 2", "room 2"]);
    assert_eq!([nodes_of("rack 2"), nodes_of("room 2")], [None, Some([false, true])]);

    let filled = cluster.refusal(&["groups", "delete", "room 2"]);
    assert!(filled.contains("group room 2 stays"), "{filled}");
    cluster.command(&["rebalance"]);
    cluster.command(&["groups", "move", &second, "--to", "Group 1"]);
    cluster.command(&["groups", "delete", "room 2"]);
    assert_eq!([nodes_of("Group 1"), nodes_of("room 2")], [Some([true, true]), None]);
}
