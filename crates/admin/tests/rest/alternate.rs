//! Alternate addresses: what is taken, what is refused in which words, and where clients read them.

use serde_json::{Value, json};

use crate::node::{ADMIN, TestNode};

const PATH: &str = "/node/controller/setupAlternateAddresses/external";

fn shown(node: &TestNode, path: &str) -> Value {
    node.get(path).json()["nodesExt"][0]["alternateAddresses"].clone()
}

#[test]
fn they_are_in_every_configuration_until_they_are_removed() {
    let node = TestNode::initialized();
    node.post("/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0");
    let places = ["/pools/default/nodeServices", "/pools/default/b/b", "/pools/default/buckets/b"];
    let rev = || node.get("/pools/default/nodeServices").json()["rev"].as_i64().unwrap();
    let before = rev();
    let put = node.send("PUT", PATH, ADMIN, Some("hostname=db.example.com&kv=21210&mgmt=28091&capi=28092"));
    assert_eq!((put.status, put.body.as_str()), (200, ""));
    assert!(rev() > before, "clients take a configuration by its revision");
    let ports = json!({ "kv": 21210, "mgmt": 28091, "capi": 28092 });
    let external = json!({ "external": { "hostname": "db.example.com", "ports": ports } });
    for path in &places[..2] {
        assert_eq!(shown(&node, path), external, "{path}");
    }
    assert_eq!(node.get("/nodes/self").json()["alternateAddresses"], external);
    assert_eq!(node.get(places[2]).json()["nodes"][0]["alternateAddresses"], external);

    assert_eq!(node.send("PUT", PATH, ADMIN, Some("hostname=::1")).status, 200);
    let bare = json!({ "external": { "hostname": "::1" } });
    assert_eq!(shown(&node, places[0]), bare, "the ports are the node's own");
    assert_eq!(node.send("DELETE", PATH, ADMIN, None).status, 200);
    for path in &places[..2] {
        assert_eq!(shown(&node, path), Value::Null, "{path}");
    }
    assert_eq!(node.send("DELETE", PATH, ADMIN, None).status, 200);
}

#[test]
fn what_is_wrong_is_refused_in_the_words_of_couchbase() {
    let node = TestNode::initialized();
    for (form, text) in [
        ("kv=21210", "hostname should be specified"),
        ("hostname=", "Invalid hostname specified. Hostname should be 1000 characters or less"),
        ("hostname=a_host!", "Invalid hostname specified."),
        (
            "hostname=h&kv=1023",
            "Invalid Port \"kv\" : The port number must be greater than 1023 and less than 65536.",
        ),
        ("hostname=h&kv=65536", "Invalid Port \"kv\" : The port number must be greater than 1023"),
        ("hostname=h&kv=x", "Invalid Port \"kv\" : Port must be a number."),
        ("hostname=h&kw=21210", "Invalid Port \"kw\" : No such port."),
        (
            "hostname=h&n1ql=28093",
            "Cannot set external ports [n1ql] as services are unavailable on the node.",
        ),
    ] {
        let refused = node.send("PUT", PATH, ADMIN, Some(form));
        assert_eq!(refused.status, 400, "{form}");
        assert!(refused.body.contains(text), "{form}: {}", refused.body);
    }
    assert_eq!(shown(&node, "/pools/default/nodeServices"), Value::Null);
    assert_eq!(node.send("PUT", PATH, None, Some("hostname=h")).status, 401);
}

#[test]
fn a_node_that_nobody_has_set_up_takes_ports_of_services_that_it_will_not_have() {
    let node = TestNode::fresh();
    let put = node.send("PUT", PATH, None, Some("hostname=127.0.0.1&kv=21210&n1ql=28093"));
    assert_eq!(put.status, 200, "{}", put.body);
    node.initialize();
    let external = json!({ "external": { "hostname": "127.0.0.1", "ports": { "kv": 21210 } } });
    assert_eq!(shown(&node, "/pools/default/nodeServices"), external);
}
