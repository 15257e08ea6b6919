//! `/_appTelemetry` as SDKs use it, and what clients of bad will make of it. Frames are made by hand.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster::Command;
use serde_json::{Value, json};
use watch::sdk::Latency;

use crate::{
    http::request_with,
    node::{ADMIN, NODE, TestNode},
};

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FINAL: u8 = 0x80;
const PATIENCE: Duration = Duration::from_secs(15);

/// A node that asks its clients every second, oftener than REST allows.
fn asking(clients_max: u32) -> TestNode {
    let node = TestNode::initialized();
    set(
        &node,
        json!({ "enabled": true, "maxScrapeClientsPerNode": clients_max, "scrapeIntervalSeconds": 1 }),
    );
    node
}

fn set(node: &TestNode, value: Value) {
    node.node.apply(&Command::PutSetting { path: "appTelemetry".into(), value }).unwrap();
}

fn upgrade(node: &TestNode, user: &str) -> TcpStream {
    let mut stream = TcpStream::connect(node.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "GET /_appTelemetry HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Basic {}\r\n\r\n",
        node.address,
        STANDARD.encode(user)
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// The status of the answer.
fn head(stream: &mut TcpStream) -> u16 {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let status = head[9..12].parse().unwrap();
    assert!(status != 101 || head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    status
}

struct Client(TcpStream);

impl Client {
    fn of(node: &TestNode) -> Self {
        let mut stream = upgrade(node, ADMIN.unwrap());
        assert_eq!(head(&mut stream), 101);
        Self(stream)
    }

    /// A frame with a mask of zeros, as much of its payload as the server takes.
    fn send(&mut self, first: u8, payload: &[u8]) {
        let mut frame = vec![first, 0x80 | 127];
        frame.extend((payload.len() as u64).to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(payload);
        if payload.len() < 126 {
            frame.splice(1..10, [0x80 | payload.len() as u8]);
        }
        let _ = self.0.write_all(&frame);
    }

    /// The next frame; none when the connection has ended.
    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        let read = self.0.read_exact(&mut head);
        if read.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            panic!("the server says nothing");
        }
        read.ok()?;
        assert!(head[1] < 126, "the server sends short frames");
        let mut payload = vec![0; head[1].into()];
        self.0.read_exact(&mut payload).ok()?;
        Some((head[0] & 15, payload))
    }

    fn is_asked(&mut self) {
        assert_eq!(self.next(), Some((BINARY, vec![0])));
    }

    fn answer(&mut self, text: &str) {
        self.send(FINAL | BINARY, &[&[0], text.as_bytes()].concat());
    }

    /// The server goes, with a word of farewell or without.
    fn is_left(&mut self) {
        match self.next() {
            None | Some((CLOSE, _)) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

fn line(name: &str, labels: &str, value: u32) -> String {
    format!("{name}{{{labels}node_uuid=\"{NODE}\",agent=\"a\"}} {value} 1700000000000\n")
}

#[test]
fn a_client_is_asked_again_and_again_and_its_figures_are_taken() {
    let node = asking(2);
    assert_eq!(node.post("/pools/default/buckets", "name=b&ramQuotaMB=100&replicaNumber=0").status, 202);
    let mut client = Client::of(&node);
    wait_until("a client is counted", || *node.node.connected.lock().unwrap() == 1);
    client.send(FINAL | PING, b"x");
    assert_eq!(client.next(), Some((PONG, b"x".to_vec())));
    client.is_asked();
    client.answer(&line("sdk_kv_retrieval_duration_milliseconds_count", "bucket=\"b\",", 5));
    client.is_asked();
    // In parts, with a ping between them, and with a line of a bucket that is not there.
    let text = line("sdk_kv_r_timedout", "bucket=\"b\",", 1) + &line("sdk_kv_r_total", "bucket=\"c\",", 1);
    let (first, second) = text.as_bytes().split_at(30);
    client.send(BINARY, &[&[0], first].concat());
    client.send(FINAL | PING, b"");
    client.send(FINAL, second);
    assert_eq!(client.next(), Some((PONG, Vec::new())));
    client.is_asked();
    // Large: the connection's buffers go with it, and the connection stays.
    client.answer(&text.repeat(1_000));
    client.is_asked();
    client.send(FINAL | PING, b"y");
    assert_eq!(client.next(), Some((PONG, b"y".to_vec())));
    let told = node.node.told.lock().unwrap();
    assert_eq!((told.len(), told[0].invalid, told[1].invalid, told[2].invalid), (3, 0, 1, 1_000));
    let about = (NODE.to_owned(), Some("b".to_owned()));
    assert_eq!(told[0].told[&about].latency(Latency::Retrieval).count, 5);
    assert_eq!(told[1].told[&about].ended(0), [1, 0, 0]);
    drop(told);
    drop(client);
    wait_until("a client that has left is not counted", || *node.node.connected.lock().unwrap() == 0);
}

#[test]
fn clients_are_let_in_and_let_go_by_the_settings() {
    let node = TestNode::initialized();
    let settings =
        |method: &str, body: Option<&str>| node.send(method, "/settings/appTelemetry", ADMIN, body);
    let off = json!({ "enabled": false, "maxScrapeClientsPerNode": 1024, "scrapeIntervalSeconds": 60 });
    assert_eq!(settings("GET", None).json(), off);
    assert_eq!(head(&mut upgrade(&node, ADMIN.unwrap())), 404);
    let refused =
        settings("POST", Some("enabled=maybe&maxScrapeClientsPerNode=1025&scrapeIntervalSeconds=59"));
    assert_eq!(refused.status, 400);
    let expected = json!({ "errors": {
        "enabled": "The value must be one of the following: [true,false]",
        "maxScrapeClientsPerNode": "The value must be in range from 1 to 1024",
        "scrapeIntervalSeconds": "The value must be in range from 60 to 600",
    } });
    assert_eq!(refused.json(), expected);
    let on = settings("POST", Some("enabled=true&maxScrapeClientsPerNode=2"));
    assert_eq!((on.status, &on.json()["enabled"]), (200, &json!(true)));
    let services = node.get("/pools/default/nodeServices").json();
    assert_eq!(services["nodesExt"][0]["appTelemetryPath"], "/_appTelemetry");
    assert_eq!(services["nodesExt"][0]["nodeUUID"], NODE);
    let (mut first, mut second) = (Client::of(&node), Client::of(&node));
    assert_eq!(head(&mut upgrade(&node, ADMIN.unwrap())), 429);
    assert_eq!(settings("POST", Some("maxScrapeClientsPerNode=1")).status, 200);
    second.is_left();
    assert_eq!(settings("POST", Some("enabled=false")).status, 200);
    first.is_left();
}

#[test]
fn what_is_no_websocket_or_has_no_right_is_refused() {
    let node = asking(1_000);
    assert_eq!(node.get("/_appTelemetry").status, 400);
    let login = format!("Basic {}", STANDARD.encode(ADMIN.unwrap()));
    let headers = [
        ("Authorization", login.as_str()),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
    ];
    assert_eq!(request_with(node.address, "GET", "/_appTelemetry", &headers, None).status, 400);
    for (user, roles, expected) in [
        ("reader", "data_reader[*]", 101),
        ("app", "bucket_full_access[*]", 101),
        ("watcher", "ro_admin", 403),
        ("scopes", "scope_admin[*]", 403),
    ] {
        let form = format!("password=password&roles={roles}");
        let made = node.send("PUT", &format!("/settings/rbac/users/local/{user}"), ADMIN, Some(&form));
        assert_eq!(made.status, 200);
        assert_eq!(head(&mut upgrade(&node, &format!("{user}:password"))), expected, "{user}");
    }
    assert_eq!(head(&mut upgrade(&node, "app:wrong")), 401);
}

#[test]
fn a_client_whose_user_is_gone_is_asked_no_more() {
    let node = asking(10);
    let form = Some("password=password&roles=data_reader[*]");
    assert_eq!(node.send("PUT", "/settings/rbac/users/local/u", ADMIN, form).status, 200);
    let mut stream = upgrade(&node, "u:password");
    assert_eq!(head(&mut stream), 101);
    let mut client = Client(stream);
    client.is_asked();
    client.answer("");
    assert_eq!(node.send("DELETE", "/settings/rbac/users/local/u", ADMIN, None).status, 200);
    client.is_left();
}

#[test]
fn a_client_tells_nothing_of_a_bucket_of_others() {
    let node = asking(10);
    for bucket in ["a", "b"] {
        let form = format!("name={bucket}&ramQuotaMB=100&replicaNumber=0");
        assert_eq!(node.post("/pools/default/buckets", &form).status, 202);
    }
    let roles = ["data_reader[a]", "bucket_full_access[a]", "data_writer[a:_default]"];
    for (at, role) in roles.into_iter().enumerate() {
        let form = format!("password=password&roles={role}");
        let path = format!("/settings/rbac/users/local/u{at}");
        assert_eq!(node.send("PUT", &path, ADMIN, Some(&form)).status, 200);
        let mut stream = upgrade(&node, &format!("u{at}:password"));
        assert_eq!(head(&mut stream), 101);
        let mut client = Client(stream);
        client.is_asked();
        client.answer(&["a", "b"].map(|of| line("sdk_kv_r_total", &format!("bucket=\"{of}\","), 1)).concat());
        client.is_asked();
        let told = node.node.told.lock().unwrap();
        let of = |bucket: &str| told[at].told.get(&(NODE.to_owned(), Some(bucket.to_owned())));
        assert_eq!((told[at].invalid, of("a").is_some(), of("b")), (1, true, None), "{role}");
    }
}

#[test]
fn clients_of_bad_will_are_left_without_keeping_what_they_send() {
    let node = asking(1_000);
    let much = vec![b'x'; 1 << 20];
    let frames: [(&str, u8, &[u8]); 3] = [
        ("text", FINAL | TEXT, b"\0"),
        ("an error", FINAL | BINARY, b"\x01"),
        ("no text", FINAL | BINARY, b"\0\xff"),
    ];
    let much_more = [&[0][..], &much].concat();
    for (what, first, payload) in frames.into_iter().chain([("too large", FINAL | BINARY, &*much_more)]) {
        let mut client = Client::of(&node);
        client.is_asked();
        client.send(first, payload);
        println!("{what}");
        client.is_left();
    }
    // Not asked; a frame that says it has 2^62 bytes; frames that are announced and never end; what is no frame at all.
    let mut client = Client::of(&node);
    client.answer("");
    client.is_left();
    let huge = [&[FINAL | BINARY, 0xff][..], &(1_u64 << 62).to_be_bytes(), &[0; 4]].concat();
    for begin in
        [huge, [&[BINARY, 0xff][..], &(1_u64 << 30).to_be_bytes(), &[0; 4]].concat(), b"GET / HTTP".to_vec()]
    {
        let mut client = Client::of(&node);
        client.is_asked();
        let _ = client.0.write_all(&begin);
        let mut sent = 0;
        while sent < 64 && client.0.write_all(&much).is_ok() {
            sent += 1;
        }
        // More than a report, less than everything: what the kernel holds is not counted.
        assert!(sent < 32, "the server has taken {sent} MiB");
    }
    // Parts of a message that is never whole.
    let mut client = Client::of(&node);
    client.is_asked();
    client.send(BINARY, &much);
    for _ in 0..64 {
        client.send(0, &much);
    }
    client.is_left();
    // Idle ones may ping, and no more.
    let mut client = Client::of(&node);
    client.is_asked();
    client.answer("");
    for _ in 0..20_000 {
        client.send(FINAL | PING, &[7; 100]);
    }
    while let Some((kind, _)) = client.next() {
        if kind == CLOSE {
            break;
        }
        assert_ne!(kind, BINARY, "it may ping without end");
    }
    // One that does not answer at all.
    let mut client = Client::of(&node);
    client.is_asked();
    client.is_left();
    wait_until("their places are free again", || *node.node.connected.lock().unwrap() == 0);
}
