//! What a page in a browser on an administrator's machine can make a node do: nothing. What tools do goes on.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::node::{ADMIN, TestNode};

const FORM: &str = "application/x-www-form-urlencoded";

/// The whole answer to a request with exactly these headers.
fn raw(node: &TestNode, start: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{start} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("\r\n{body}"));
    let mut stream = TcpStream::connect(node.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

fn admin() -> String {
    format!("Basic {}", STANDARD.encode(ADMIN.unwrap()))
}

const TAKE_OVER: &str = "username=mallory&password=mallory&port=SAME";

#[test]
fn a_new_node_is_not_set_up_by_a_page_of_somebody_else() {
    let node = TestNode::fresh();
    let own = node.address.to_string();
    let port = node.address.port();
    let rebound = format!("evil.example:{port}");
    let rebound_origin = format!("http://{rebound}");
    let attempts: [&[(&str, &str)]; 7] = [
        // A name of the attacker's that leads here.
        &[("Host", &rebound), ("Origin", &rebound_origin), ("Content-Type", FORM)],
        &[("Host", &rebound), ("Content-Type", FORM)],
        // A page from elsewhere that posts a form here.
        &[("Host", &own), ("Origin", "http://evil.example"), ("Content-Type", FORM)],
        &[("Host", &own), ("Origin", "null"), ("Content-Type", FORM)],
        &[("Host", &own), ("Sec-Fetch-Site", "cross-site"), ("Content-Type", FORM)],
        &[("Host", &own), ("Sec-Fetch-Site", "same-site"), ("Content-Type", FORM)],
        &[("Host", &own), ("Content-Type", "text/plain")],
    ];
    for headers in attempts {
        for path in ["/settings/web", "/clusterInit", "/node/controller/doJoinCluster", "/nodeInit"] {
            let answer = raw(&node, &format!("POST {path}"), headers, TAKE_OVER);
            assert!([403, 415, 421].contains(&status(&answer)), "{path} {headers:?}: {answer}");
        }
    }
    let read = raw(&node, "GET /pools/default", &[("Host", &rebound)], "");
    assert_eq!(status(&read), 421, "{read}");
    assert!(node.node.metadata_now().admin.is_none());
    let localhost = format!("localhost:{port}");
    let answer = raw(&node, "POST /settings/web", &[("Host", &localhost), ("Content-Type", FORM)], TAKE_OVER);
    assert_eq!(status(&answer), 200, "{answer}");
}

#[test]
fn a_page_of_somebody_else_changes_nothing_with_what_the_browser_remembers() {
    let node = TestNode::initialized();
    let (own, authorization) = (node.address.to_string(), admin());
    let change = |headers: &[(&str, &str)]| {
        let all = [&[("Authorization", authorization.as_str())], headers].concat();
        status(&raw(&node, "POST /pools/default", &all, "clusterName=theirs"))
    };
    assert_eq!(change(&[("Host", &own), ("Content-Type", FORM), ("Origin", "https://evil.example")]), 403);
    assert_eq!(change(&[("Host", &own), ("Content-Type", FORM), ("Sec-Fetch-Site", "cross-site")]), 403);
    assert_eq!(change(&[("Host", &own), ("Content-Type", "text/plain")]), 415);
    assert_eq!(change(&[("Host", &own), ("Content-Type", "multipart/form-data; boundary=x")]), 415);
    let rebound = [("Host", "evil.example"), ("Origin", "http://evil.example"), ("Content-Type", FORM)];
    assert_eq!(change(&rebound), 421);
    assert_eq!(node.node.metadata_now().cluster_name, "c1");
    // A page that the node itself has shown.
    let origin = format!("http://{own}");
    let same = [
        ("Host", own.as_str()),
        ("Origin", &origin),
        ("Sec-Fetch-Site", "same-origin"),
        ("Content-Type", FORM),
    ];
    assert_eq!(change(&same), 200);
}

#[test]
fn tools_go_on_as_before() {
    let node = TestNode::initialized();
    let (own, authorization) = (node.address.to_string(), admin());
    let sent = |headers: &[(&str, &str)], body: &str| {
        let all = [&[("Authorization", authorization.as_str())], headers].concat();
        status(&raw(&node, "POST /pools/default", &all, body))
    };
    let form = "clusterName=c2";
    assert_eq!(sent(&[("Host", &own)], form), 200, "no type: a form");
    assert_eq!(
        sent(&[("Host", &own), ("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")], form),
        200
    );
    // A request with a password may use a name that the node does not know.
    assert_eq!(sent(&[("Host", "couchbase.internal:8091"), ("Content-Type", FORM)], form), 200);
    assert_eq!(
        status(&raw(&node, "GET /pools", &[("Host", "[::1]:8091"), ("Authorization", &authorization)], "")),
        200
    );
    assert_eq!(status(&raw(&node, "GET /pools/default/certificate", &[("Host", &own)], "")), 200);
    let json = [
        ("Host", own.as_str()),
        ("Authorization", authorization.as_str()),
        ("Content-Type", "application/json"),
    ];
    assert_eq!(status(&raw(&node, "POST /settings/stats", &json, "{\"sendStats\":false}")), 200);
}

#[test]
fn every_answer_says_what_a_browser_may_make_of_it() {
    let node = TestNode::initialized();
    for (path, user) in
        [("/pools", ADMIN), ("/pools", None), ("/nonsense", ADMIN), ("/pools/default/certificate", None)]
    {
        let answer = node.send("GET", path, user, None);
        let header = |name: &str| answer.headers.get(name).map(String::as_str);
        assert_eq!(header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(header("cross-origin-resource-policy"), Some("same-origin"), "{path}");
        assert_eq!(header("referrer-policy"), Some("no-referrer"), "{path}");
        let policy = header("content-security-policy").unwrap_or_default();
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
        assert_eq!(header("access-control-allow-origin"), None, "{path}");
    }
}
