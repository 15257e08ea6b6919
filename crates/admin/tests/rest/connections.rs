//! Limits: what is malformed, too large, too slow or too much hurts its own connection only.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use ::http::{AuditKind, Limits};
use cluster::Command;

use crate::node::{ADMIN, TestNode};

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
fn bodies_of_senders_without_the_right_are_not_waited_for() {
    use base64::Engine as _;
    let node = TestNode::initialized();
    let form = "password=password&roles=data_reader[*]";
    assert_eq!(node.send("PUT", "/settings/rbac/users/local/u", ADMIN, Some(form)).status, 200);
    let announced = |path: &str, login: Option<&str>| {
        let login = login.map(|login| base64::engine::general_purpose::STANDARD.encode(login));
        let login = login.map(|login| format!("Authorization: Basic {login}\r\n")).unwrap_or_default();
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{login}Content-Length: 3000000\r\n\r\n");
        raw(&node, head.as_bytes())
    };
    let (user, admin) = (Some("u:password"), Some("Administrator:password"));
    assert!(announced("/pools/default/buckets", None).starts_with("HTTP/1.1 401"));
    assert!(announced("/pools/default/buckets", user).starts_with("HTTP/1.1 403"));
    assert!(announced("/_settee/propose", user).starts_with("HTTP/1.1 401"), "nodes alone ask that");
    assert!(announced("/no/such/path", admin).starts_with("HTTP/1.1 413"), "nothing takes it");
}

#[test]
fn bodies_are_limited() {
    let node = TestNode::initialized();
    let form = format!("name={}", "x".repeat(100_000));
    assert_eq!(node.send("POST", "/pools/default/buckets", None, Some(&form)).status, 401);
    assert_eq!(node.post("/pools/default/buckets", &form).status, 400);
    let login = "Authorization: Basic QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==";
    let head = format!("POST /pools/default/buckets HTTP/1.1\r\n{login}\r\nContent-Length: 5000000\r\n\r\n");
    assert!(raw(&node, head.as_bytes()).starts_with("HTTP/1.1 413"));
    let announced = b"POST /clusterInit HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n";
    assert!(raw(&node, announced).starts_with("HTTP/1.1 401"));
    let chunked = b"POST /pools/default HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    assert!(raw(&node, chunked).starts_with("HTTP/1.1 4"));
}

#[test]
fn idle_sockets_keep_no_user_out() {
    // Nothing but the crowd ends a socket: the wait for a first request is longer than the test's.
    let first = Duration::from_secs(600);
    let node = TestNode::with_limits(Limits { connections: 8, first, ..Limits::default() });
    let flood: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(node.address).unwrap()).collect();
    assert_eq!(node.send("GET", "/", None, None).status, 200);
    for mut ended in flood.into_iter().take(90) {
        ended.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(ended.read(&mut [0; 16]).expect("the oldest are closed"), 0);
    }
}

/// Sends a request on a connection that stays open, and returns the head of the answer.
fn ask(stream: &mut TcpStream, login: &str) -> String {
    use base64::Engine as _;
    let login = base64::engine::general_purpose::STANDARD.encode(login);
    let request = format!("GET /pools HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

#[test]
fn one_user_cannot_take_every_connection() {
    let node = TestNode::with_limits(Limits { connections: 8, ..Limits::default() });
    node.initialize();
    let held: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = TcpStream::connect(node.address).unwrap();
            assert!(ask(&mut stream, "Administrator:password").starts_with("HTTP/1.1 200"));
            stream
        })
        .collect();
    let mut one_more = TcpStream::connect(node.address).unwrap();
    let refused = ask(&mut one_more, "Administrator:password");
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("connection: close"), "{refused}");
    assert_eq!(node.send("GET", "/", None, None).status, 200, "others are served");
    drop(held);
}

/// Asks for another quota of the bucket `b` on a connection, and goes once that is decided, before anybody has said so here.
fn change_and_go(node: &TestNode) {
    // It is taken when the request is about to be decided.
    node.node.meanwhile.lock().unwrap().push(Command::SetClusterName("another".into()));
    let login = "Authorization: Basic QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==";
    let form = "ramQuotaMB=110";
    let head = format!("POST /pools/default/buckets/b HTTP/1.1\r\nHost: localhost\r\n{login}\r\n");
    let mut stream = TcpStream::connect(node.address).unwrap();
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{form}", form.len()).as_bytes()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !node.node.meanwhile.lock().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "the request is carried out");
    }
}

/// A request whose client has gone ends here, where nothing keeps it: so many others take longer than that.
fn let_ends_be_noticed(node: &TestNode) {
    (0..50).for_each(|_| assert_eq!(node.send("GET", "/", None, None).status, 200));
}

#[test]
fn what_a_client_has_changed_is_audited_though_it_does_not_wait_for_the_answer() {
    let node = TestNode::with_limits(Limits { connections: 8, ..Limits::default() });
    node.initialize();
    assert_eq!(node.post("/pools/default/buckets", "name=b&ramQuotaMB=100&replicaNumber=0").status, 202);
    node.node.is_slow.store(true, Relaxed);
    let_ends_be_noticed(&node);
    // As many as one user may have connections.
    (0..4).for_each(|_| change_and_go(&node));
    let_ends_be_noticed(&node);
    assert_eq!(node.get("/pools").status, 429, "each counts for its user until it ends");
    node.node.is_slow.store(false, Relaxed);
    let changes = || {
        let audited = node.node.audited.lock().unwrap();
        audited.iter().filter(|event| event.subject == "b" && event.details == "changed").count()
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while changes() < 4 {
        assert!(Instant::now() < deadline, "{} of 4 are audited", changes());
        node.node.says_so.notify_waiters();
    }
    while node.get("/pools").status != 200 {
        assert!(Instant::now() < deadline, "the places are free again");
    }
}

#[test]
fn a_change_that_may_still_be_made_is_audited_as_asked_for() {
    let node = TestNode::initialized();
    let in_doubt = |method: &str, path: &str, form: &str| {
        node.node.is_left_in_doubt.store(true, Relaxed);
        assert_eq!(node.send(method, path, ADMIN, Some(form)).status, 500, "{path}");
        let audited = node.node.audited.lock().unwrap();
        audited.last().map(|event| (event.subject.clone(), event.details.clone())).unwrap()
    };
    let user = in_doubt("PUT", "/settings/rbac/users/local/u", "password=password&roles=admin");
    assert_eq!(user, ("u".into(), "set local user (asked for, outcome not known)".into()));
    let own = in_doubt("POST", "/controller/changePassword", "password=password");
    assert_eq!(own, ("Administrator".into(), "(asked for, outcome not known)".into()));
    let probe = in_doubt("PUT", "/settee/probe", "writes=true");
    assert_eq!(probe, ("settee/probe".into(), "(asked for, outcome not known)".into()));
    let before = node.node.audited.lock().unwrap().len();
    assert_eq!(node.send("DELETE", "/settings/rbac/users/local/nobody", ADMIN, None).status, 404);
    assert_eq!(node.node.audited.lock().unwrap().len(), before, "what was refused is not made");
}

#[test]
fn a_first_request_that_does_not_come_is_not_waited_for() {
    let node = TestNode::with_limits(Limits { first: Duration::from_millis(200), ..Limits::default() });
    let mut stream = TcpStream::connect(node.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(stream.read(&mut [0; 16]).expect("the server closes the connection"), 0);
}

#[test]
fn a_connection_ends_after_a_few_wrong_passwords() {
    let node = TestNode::initialized();
    let mut stream = TcpStream::connect(node.address).unwrap();
    let answers: Vec<String> = (0..5).map(|_| ask(&mut stream, "Administrator:wrong")).collect();
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 401")), "{answers:?}");
    let closes: Vec<bool> = answers.iter().map(|answer| answer.contains("connection: close")).collect();
    assert_eq!(closes, [false, false, false, false, true]);
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
}

#[test]
fn wrong_secrets_count_for_their_address_and_the_right_one_always_passes() {
    let node = TestNode::initialized();
    node.node.apply(&Command::SetSecret("between-nodes".into())).unwrap();
    let mut stream = TcpStream::connect(node.address).unwrap();
    let answers: Vec<String> = (0..5).map(|_| ask(&mut stream, "@settee:wrong")).collect();
    let closes: Vec<bool> = answers.iter().map(|answer| answer.contains("connection: close")).collect();
    assert_eq!(closes, [false, false, false, false, true], "{answers:?}");
    for _ in 0..60 {
        assert_eq!(node.send("GET", "/pools", Some("@settee:wrong"), None).status, 401);
    }
    assert_eq!(node.send("GET", "/pools", Some("stranger:wrong"), None).status, 429, "the address guesses");
    assert_eq!(node.send("GET", "/pools", Some("@settee:between-nodes"), None).status, 200);
}

#[test]
fn a_node_that_is_not_initialized_counts_no_secrets() {
    let node = TestNode::fresh();
    let mut stream = TcpStream::connect(node.address).unwrap();
    for _ in 0..70 {
        let refused = ask(&mut stream, "@settee:wrong");
        assert!(refused.starts_with("HTTP/1.1 401") && !refused.contains("connection: close"), "{refused}");
    }
    node.initialize();
    assert_eq!(node.send("GET", "/pools", Some("stranger:wrong"), None).status, 401);
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

#[test]
fn guessing_passwords_gets_slow_and_does_not_slow_down_others() {
    let node = TestNode::initialized();
    let statuses: Vec<u16> =
        (0..20).map(|_| node.send("GET", "/pools", Some("Administrator:wrong"), None).status).collect();
    assert_eq!(statuses[..5], [401; 5]);
    assert!(statuses[5..].contains(&429), "{statuses:?}");
    assert_eq!(node.send("GET", "/pools", Some("Administrator:password"), None).status, 429, "no oracle");
    assert_eq!(
        node.send("GET", "/pools", Some("somebody:wrong"), None).status,
        401,
        "another user's is checked"
    );
}
