//! Limits: what is malformed, too large, too slow or too much hurts its own connection only.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use settee_admin::{AuditKind, Limits};

use crate::node::TestNode;

fn raw(node: &TestNode, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(node.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A reset after the answer is as good an end as any.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn malformed_requests_are_refused_and_the_next_client_is_served() {
    let node = TestNode::initialized();
    let requests: [&[u8]; 5] = [
        b"nonsense\r\n\r\n",
        b"GET /pools HTTP/9.9\r\n\r\n",
        b"GET /pools HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /pools/default HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ];
    for request in requests {
        let answer = raw(&node, request);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{request:?}: {answer}");
    }
    let huge = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    assert!(raw(&node, huge.as_bytes()).starts_with("HTTP/1.1 431"));
    for header in ["Basic", "Basic !!!", "Bearer abc", "Basic QQ=="] {
        let request = format!("GET /pools HTTP/1.1\r\nConnection: close\r\nAuthorization: {header}\r\n\r\n");
        assert!(raw(&node, request.as_bytes()).starts_with("HTTP/1.1 401"), "{header}");
    }
    assert_eq!(node.get("/pools").status, 200);
}

#[test]
fn mutilated_requests_never_stop_the_node() {
    let node = TestNode::initialized();
    let authorization = "Authorization: Basic QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==";
    let body = "name=b&ramQuotaMB=100&roles=data_reader[b:s:c]&databaseFragmentationThreshold[percentage]=40";
    let starts = [
        "POST /pools/default/buckets",
        "PUT /settings/rbac/users/local/u",
        "POST /controller/setAutoCompaction",
        "POST /pools/default/buckets/b/scopes",
        "GET /pools/default/buckets/b?bucket_uuid=1",
        "POST /pools/default/checkPermissions",
        "POST /settings/clientCertAuth",
        "GET /pools/default/bs/b",
    ];
    let seed = 20_261_121;
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..400 {
        let start = starts[random.usize(..starts.len())];
        let head = format!("{start} HTTP/1.1\r\nConnection: close\r\n{authorization}\r\n");
        let mut bytes = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => bytes[at] = random.u8(..),
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, b"%&=[]{}:,\"\r\n\0"[random.usize(..13)]),
            }
        }
        let mut stream = TcpStream::connect(node.address).unwrap();
        stream.write_all(&bytes).unwrap();
        // Nothing more comes from this side, so a cut request cannot wait for its end.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = [0; 12];
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let answered = stream.read(&mut answer).expect("an answer or an end");
        assert!(answered == 0 || answer.starts_with(b"HTTP/1."), "seed {seed}, round {round}: {answer:?}");
        assert!(!answer.starts_with(b"HTTP/1.1 500"), "seed {seed}, round {round}");
    }
    assert_eq!(node.get("/pools/default").status, 200);
}

#[test]
fn bodies_are_limited_more_tightly_for_strangers() {
    let node = TestNode::initialized();
    let form = format!("name={}", "x".repeat(100_000));
    assert_eq!(node.send("POST", "/pools/default/buckets", None, Some(&form)).status, 413);
    assert_eq!(node.post("/pools/default/buckets", &form).status, 400);
    let announced = b"POST /clusterInit HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n";
    assert!(raw(&node, announced).starts_with("HTTP/1.1 413"));
    let chunked = b"POST /pools/default HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    assert!(raw(&node, chunked).starts_with("HTTP/1.1 4"));
}

#[test]
fn connections_beyond_the_limit_are_closed_and_places_come_back() {
    let node = TestNode::with_limits(Limits { connections: 2, ..Limits::default() });
    let held: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(node.address).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(raw(&node, b"GET / HTTP/1.1\r\n\r\n"), "");
    drop(held);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(node.send("GET", "/", None, None).status, 200);
}

#[test]
fn silent_clients_are_let_go() {
    let node = TestNode::with_limits(Limits { header: Duration::from_millis(200), ..Limits::default() });
    for start in ["", "GET /po"] {
        let mut stream = TcpStream::connect(node.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(start.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the server closes the connection");
    }
}

#[test]
fn logins_and_changes_are_noted_for_auditors() {
    let node = TestNode::initialized();
    node.send("GET", "/pools", Some("Administrator:wrong"), None);
    node.get("/pools");
    node.get("/pools");
    node.post("/pools/default/buckets", "name=b&ramQuotaMB=100&replicaNumber=0&saslPassword=topsecret");
    node.send("GET", "/settings/rbac/users", None, None);
    let audited = node.node.audited.lock().unwrap();
    let count = |kind: AuditKind| audited.iter().filter(|event| event.kind == kind).count();
    assert_eq!(count(AuditKind::LoginFailure), 1);
    assert_eq!(count(AuditKind::LoginSuccess), 1, "a login is noted once in a while, not per request");
    assert_eq!(count(AuditKind::BucketChanged), 1);
    assert_eq!(count(AuditKind::AccessDenied), 1);
    assert!(audited.iter().all(|event| event.peer.is_some()));
    assert!(!format!("{audited:?}").contains("topsecret"));
}
