//! Trusted certificates, those that nodes show, and what clients' certificates are for: what is taken, what is refused in which words,
//! and what strangers see.

use rcgen::{CertificateParams, DnType, IsCa, KeyPair};
use serde_json::{Value, json};
use settee_admin::{InboxFile, Regenerate};

use crate::node::{ADMIN, TestNode};

const CLIENTS: &str = "/settings/clientCertAuth";

pub(crate) fn authority(name: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}

fn put_in_inbox(node: &TestNode, pems: &[&String]) {
    let file = |pem: &&String| InboxFile { path: "/data/inbox/CA/ca.pem".into(), pem: (*pem).clone() };
    *node.node.certificates.inbox.lock().unwrap() = pems.iter().map(file).collect();
}

fn load(node: &TestNode) -> (u16, Value) {
    let answer = node.send("POST", "/node/controller/loadTrustedCAs", ADMIN, None);
    (answer.status, answer.json())
}

#[test]
fn authorities_are_loaded_listed_and_deleted() {
    let node = TestNode::initialized();
    assert_eq!(load(&node), (400, json!("Directory inbox/CA is empty")));
    let (one, other) = (authority("one"), authority("other"));
    put_in_inbox(&node, &[&one]);
    let (status, loaded) = load(&node);
    assert_eq!((status, loaded.as_array().unwrap().len()), (200, 1), "{loaded}");
    assert_eq!(loaded[0]["subject"], "CN=one");
    assert_eq!(loaded[0]["type"], "uploaded");
    assert_eq!(loaded[0]["loadFile"], "/data/inbox/CA/ca.pem");
    put_in_inbox(&node, &[&one, &other]);
    assert_eq!(load(&node).1.as_array().unwrap().len(), 1, "what is known is not loaded again");
    assert_eq!(load(&node), (200, json!([])));

    let listed = node.get("/pools/default/trustedCAs").json();
    let uploaded: Vec<_> = listed.as_array().unwrap().iter().filter(|ca| ca["type"] == "uploaded").collect();
    assert_eq!(uploaded.len(), 2, "{listed}");
    for name in ["id", "pem", "subject", "notBefore", "notAfter", "loadTimestamp", "loadHost", "nodes"] {
        assert!(uploaded[0].get(name).is_some(), "{name}");
    }
    let strangers = node.send("GET", "/pools/default/trustedCAs", None, None).json();
    for hidden in ["type", "nodes", "loadHost", "loadFile", "loadTimestamp", "expires"] {
        assert!(strangers[1].get(hidden).is_none(), "{hidden}");
    }
    assert_eq!(strangers[1]["pem"], uploaded[0]["pem"]);
    let old = node.send("GET", "/pools/default/certificate", None, None);
    assert_eq!(old.status, 400);
    assert!(old.body.starts_with("this API is disabled"), "{}", old.body);

    let path = format!("/pools/default/trustedCAs/{}", uploaded[0]["id"]);
    assert_eq!(node.send("DELETE", &path, None, None).status, 401);
    assert_eq!(node.send("DELETE", &path, ADMIN, None).status, 204);
    for gone in [path.as_str(), "/pools/default/trustedCAs/0", "/pools/default/trustedCAs/x"] {
        assert_eq!(node.send("DELETE", gone, ADMIN, None).status, 404, "{gone}");
    }
}

#[test]
fn a_node_shows_what_is_in_its_inbox_or_says_why_not() {
    let node = TestNode::initialized();
    let path = "/node/controller/reloadCertificate";
    let refused = node.send("POST", path, ADMIN, None);
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("is not found in the list of trusted CA's"), "{}", refused.body);
    assert_eq!(node.send("POST", path, None, None).status, 401);
    for (body, word) in [
        ("{", "Invalid Json"),
        ("{\"other\":1}", "other"),
        ("{\"privateKeyPassphrase\":{\"type\":\"plain\",\"password\":\"x\"}}", "not supported"),
    ] {
        let answer = node.post(path, body);
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.body.contains(word), "{body}: {}", answer.body);
    }
    put_in_inbox(&node, &[&authority("one")]);
    assert_eq!(load(&node).0, 200);
    let taken = node.post(path, "{}");
    assert_eq!((taken.status, taken.json()), (200, json!({ "warnings": [] })));
}

#[test]
fn certificates_are_made_anew_on_every_node_or_the_answer_names_the_others() {
    let node = TestNode::initialized();
    let ask =
        |query: &str| node.send("POST", &format!("/controller/regenerateCertificate{query}"), ADMIN, None);
    let asked = || node.node.certificates.regenerated.lock().unwrap().last().copied();
    let answer = ask("");
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("BEGIN CERTIFICATE"));
    assert_eq!(asked(), Some(Regenerate { made: true, brought: true }));
    assert_eq!(ask("?forceResetCACertificate=false&dropUploadedCertificates=true").status, 200);
    assert_eq!(asked(), Some(Regenerate { made: false, brought: true }));
    assert_eq!(ask("?forceResetCACertificate=maybe").status, 400);
    assert_eq!(ask("?other=true").status, 400);
    *node.node.certificates.absent.lock().unwrap() = vec!["far.example".into()];
    let partly = ask("");
    assert_eq!(partly.status, 503);
    assert!(partly.body.contains("not on: far.example"), "{}", partly.body);
    assert_eq!(ask("?allowUnreachableNodes=true").status, 200);
}

#[test]
fn what_clients_certificates_are_for_is_checked_in_the_words_of_couchbase() {
    let node = TestNode::initialized();
    assert_eq!(node.get(CLIENTS).json(), json!({ "state": "disable", "prefixes": [] }));
    let prefix = |path: &str| json!({ "path": path, "prefix": "", "delimiter": "." });
    for (body, word) in [
        (json!({ "state": "enable" }), "Must contain 'state' and 'prefixes' fields"),
        (json!({ "state": "enable", "prefixes": [], "x": 1 }), "Unsupported fields"),
        (
            json!({ "state": "enable", "prefixes": [] }),
            "'prefixes' cannot be empty when the 'state' is 'enable'",
        ),
        (json!({ "state": "on", "prefixes": [] }), "Invalid value 'on' for key 'state'"),
        (json!({ "state": "enable", "prefixes": [prefix("cn")] }), "Invalid value 'cn' for key 'path'"),
        (json!({ "state": "enable", "prefixes": [{ "path": "san.uri" }] }), "Invalid prefixes entry"),
        (
            json!({ "state": "enable", "prefixes": [prefix("san.uri"), prefix("san.uri")] }),
            "Multiple entries with same path & prefix",
        ),
        (json!({ "state": "enable", "prefixes": vec![prefix("san.uri"); 11] }), "Maximum number of prefixes"),
        (
            json!({ "state": "mandatory", "prefixes": [prefix("san.uri")] }),
            "Load a certificate authority first",
        ),
    ] {
        let answer = node.post(CLIENTS, &body.to_string());
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.body.contains(word), "{body}: {}", answer.body);
    }
    let wanted = json!({ "state": "enable", "prefixes": [prefix("subject.cn"), prefix("san.email")] });
    assert_eq!(node.post(CLIENTS, &wanted.to_string()).status, 202);
    assert_eq!(node.post(CLIENTS, &wanted.to_string()).status, 200, "nothing changes");
    assert_eq!(node.get(CLIENTS).json(), wanted);
    assert_eq!(node.send("GET", CLIENTS, None, None).status, 401);
    put_in_inbox(&node, &[&authority("one")]);
    assert_eq!(load(&node).0, 200);
    let mandatory = json!({ "state": "mandatory", "prefixes": [prefix("subject.cn")] });
    assert_eq!(node.post(CLIENTS, &mandatory.to_string()).status, 202);
    // Without TLS no certificate can be shown, and none is asked for.
    assert_eq!(node.get(CLIENTS).json(), mandatory);
}
