//! What makes a node one of its cluster: a key of its own, for as long as it is a member. What a node had is worth nothing once it was
//! removed or failed over. A user who may manage nodes learns nothing that makes one.

use std::{
    fs,
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    time::Duration,
};

use base::{NodeId, Status};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use client::{KvConnection, Rest};
use cluster::{
    NodeInfo, NodeReport, Ports,
    auth::{INTERNAL_USER, LoginPort, NodeKey},
    level::LEVEL,
};
use protocol::{
    binary::{Opcode, Request},
    sasl,
};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, eventually},
    node::{Node, PASSWORD, USERNAME},
};

/// How long a test waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What somebody has who has copied a node's folder.
struct Copied {
    uuid: String,
    key: NodeKey,
    /// The password of the internal user.
    secret: String,
}

impl Copied {
    fn from(dir: &Path) -> Self {
        let data = dir.join("data");
        let files: Vec<_> =
            fs::read_dir(data.join("keys")).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [file] = &files[..] else { panic!("one key: {files:?}") };
        let seed = STANDARD.decode(fs::read_to_string(file).unwrap().trim()).unwrap();
        let log = fs::read(data.join("metadata/consensus.redb")).unwrap();
        let begins = b"\"secret\":\"";
        let found = log.windows(begins.len() + 64).find(|window| {
            window.starts_with(begins) && window[begins.len()..].iter().all(u8::is_ascii_hexdigit)
        });
        Self {
            uuid: file.file_stem().unwrap().to_str().unwrap().to_owned(),
            key: NodeKey::from_seed(&seed).unwrap(),
            secret: String::from_utf8(found.unwrap()[begins.len()..].to_vec()).unwrap(),
        }
    }

    /// How the port for documents of a node answers to the key, with the bucket behind it.
    fn kv_by_key(&self, node: &Node, there: &str) -> Status {
        let mut open = self.kv_half_way(node);
        let challenge = self.begin(&mut open);
        let signature = self.key.sign(LoginPort::Kv, &self.uuid, there, &challenge);
        sign(&mut open, &signature)
    }

    fn kv_half_way(&self, node: &Node) -> KvConnection {
        let open = KvConnection::connect(&node.kv()).unwrap();
        open.set_patience(PATIENCE).unwrap();
        open
    }

    fn begin(&self, open: &mut KvConnection) -> Vec<u8> {
        let (key, value) = (sasl::NODE.as_bytes(), self.uuid.as_bytes());
        let begun = open.call(&Request { key, value, ..Request::new(Opcode::SaslAuth) }).unwrap();
        assert_eq!(begun.status, Some(Status::AuthContinue));
        begun.value
    }

    /// The status that the REST port of a node answers with to what only nodes may ask, by the key.
    fn rest_by_key(&self, node: &Node, there: &str) -> u16 {
        self.asks(node, there, "figures", "").0
    }

    /// The answer of the REST port of a node to what only nodes may ask, by the key.
    fn asks(&self, node: &Node, there: &str, what: &str, body: &str) -> (u16, Vec<u8>) {
        let mut http = Http::open(node);
        let (status, challenge) = http.ask("GET", "/_settee/challenge", "");
        assert_eq!(status, 200);
        let answer: Value = serde_json::from_slice(&challenge).unwrap();
        let challenge = STANDARD.decode(answer["challenge"].as_str().unwrap()).unwrap();
        let signature = self.key.sign(LoginPort::Rest, &self.uuid, there, &challenge);
        let login = format!("Settee-Node {} {}", self.uuid, STANDARD.encode(signature));
        http.say("POST", &format!("/_settee/{what}"), &login, body)
    }

    /// The same by the secret.
    fn rest_by_secret(&self, node: &Node) -> u16 {
        let login = STANDARD.encode(format!("{INTERNAL_USER}:{}", self.secret));
        Http::open(node).ask("POST", "/_settee/figures", &format!("Basic {login}")).0
    }

    fn kv_by_secret(&self, node: &Node) -> bool {
        let mut open = KvConnection::connect(&node.kv()).unwrap();
        open.authenticate(INTERNAL_USER, &self.secret).is_ok()
    }
}

fn sign(open: &mut KvConnection, signature: &[u8]) -> Status {
    let step = Request { key: sasl::NODE.as_bytes(), value: signature, ..Request::new(Opcode::SaslStep) };
    open.call(&step).unwrap().status.unwrap()
}

/// A connection for requests one after the other.
struct Http(BufReader<TcpStream>);

impl Http {
    fn open(node: &Node) -> Self {
        let stream = TcpStream::connect(node.rest()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, method: &str, path: &str, login: &str) -> (u16, Vec<u8>) {
        self.say(method, path, login, "")
    }

    fn say(&mut self, method: &str, path: &str, login: &str, body: &str) -> (u16, Vec<u8>) {
        let login = if login.is_empty() { String::new() } else { format!("Authorization: {login}\r\n") };
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{login}Content-Length: {length}\r\n");
        let request = format!("{head}\r\n{body}");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let (status, length) = read_head(&mut self.0);
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, body)
    }
}

/// The status of an answer, or 0 for a request, and the length of the body.
fn read_head(from: &mut BufReader<TcpStream>) -> (u16, usize) {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_ascii_lowercase());
    }
    let status = lines[0].split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    (status, length.unwrap_or(0))
}

/// The uuid of the node that is asked first.
fn uuid_of_first(cluster: &Cluster) -> String {
    let nodes = cluster.rest().get_json("/pools/default").unwrap();
    let nodes = nodes["nodes"].as_array().unwrap();
    let first = nodes.iter().find(|node| node["thisNode"] == Value::Bool(true)).unwrap();
    first["nodeUUID"].as_str().unwrap().to_owned()
}

/// What was agreed on is carried out a moment later.
fn until_refused(what: &str, is_refused: impl Fn() -> bool) {
    eventually(&format!("{what} are refused"), || is_refused().then_some(()));
}

#[test]
fn what_a_removed_node_had_opens_nothing() {
    let cluster = Cluster::form(2);
    let (first, there) = (&cluster.nodes[0], uuid_of_first(&cluster));
    let had = Copied::from(cluster.dirs[1].path());
    assert_eq!(had.kv_by_key(first, &there), Status::Success, "this test logs in as nodes do");
    assert_eq!(had.rest_by_key(first, &there), 200);
    assert_eq!(had.kv_by_key(first, &had.uuid), Status::AuthError, "that signature is for another node");
    assert_eq!(had.rest_by_key(first, &had.uuid), 401);
    assert_eq!(had.rest_by_secret(first), 401, "nodes have keys: the secret makes nobody a node");
    assert!(!had.kv_by_secret(first));

    // A signature is for one challenge.
    let mut open = had.kv_half_way(first);
    let challenge = had.begin(&mut open);
    let signature = had.key.sign(LoginPort::Kv, &had.uuid, &there, &challenge);
    assert_eq!(sign(&mut open, &signature), Status::Success);
    had.begin(&mut open);
    assert_eq!(sign(&mut open, &signature), Status::AuthError);
    // Logged in while it is removed.
    let mut logged_in = had.kv_half_way(first);
    let challenge = had.begin(&mut logged_in);
    let signature = had.key.sign(LoginPort::Kv, &had.uuid, &there, &challenge);
    assert_eq!(sign(&mut logged_in, &signature), Status::Success);

    cluster.command(&["remove", &cluster.nodes[1].rest()]);
    until_refused("documents", || had.kv_by_key(first, &there) == Status::AuthError);
    until_refused("what nodes ask one another", || had.rest_by_key(first, &there) == 401);
    assert_eq!(had.rest_by_secret(first), 401);
    assert!(!had.kv_by_secret(first));
    let select = Request { key: b"app", ..Request::new(Opcode::SelectBucket) };
    let after = logged_in.call(&select);
    assert!(!after.is_ok_and(|answer| answer.status == Some(Status::Success)), "its login has ended");

    // It may ask why. A node of another cluster that had the same number is told nothing: it would believe that it was removed.
    let verdict = |of: &str| {
        let path = format!("/_settee/challenge?node=1{of}&epoch=0&lot=0");
        let (_, body) = Http::open(first).ask("GET", &path, "");
        serde_json::from_slice::<Value>(&body).unwrap()["verdict"].as_str().map(str::to_owned)
    };
    let pools = cluster.rest().get_json("/pools").unwrap();
    let own = format!("&cluster={}", pools["uuid"].as_str().unwrap());
    eventually("it is told that it was removed", || verdict(&own));
    for of in ["", "&cluster=", &*format!("&cluster={}", "c".repeat(32))] {
        assert_eq!(verdict(of), None, "{of}");
    }
}

#[test]
fn a_node_that_was_failed_over_reads_and_changes_nothing() {
    let cluster = Cluster::form(2);
    let (first, there) = (&cluster.nodes[0], uuid_of_first(&cluster));
    let had = Copied::from(cluster.dirs[1].path());
    assert_eq!(had.kv_by_key(first, &there), Status::Success);
    let failed_over = cluster.nodes[1].rest();
    cluster.command(&["failover", &failed_over]);
    until_refused("documents", || had.kv_by_key(first, &there) == Status::AuthError);
    assert_eq!(had.rest_by_key(first, &there), 403, "figures of the others");
    for number in 1..=3 {
        let change = json!([{"origin": 7, "number": number}, {"SetClusterName": "theirs"}]);
        let (status, answer) = had.asks(first, &there, "propose", &change.to_string());
        assert_eq!((status, &*answer), (200, &b""[..]), "it is not taken");
    }
    // What an administrator wants is for another node to propose.
    let at_failed = Rest::new(failed_over, Some((USERNAME, PASSWORD)));
    let answer = eventually("it hears that it was failed over", || {
        let answer = at_failed.request("POST", "/pools/default", &[("clusterName", "theirs")]).unwrap();
        (answer.code != 200).then_some(answer)
    });
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(answer.code == 400 && text.contains("was failed over"), "{} {text}", answer.code);
}

/// By a report that they differ nodes are fenced for good, and by what else is reported of them they lose elections.
#[test]
fn a_node_that_was_failed_over_reports_for_itself_alone() {
    let cluster = Cluster::form(2);
    let (first, there) = (&cluster.nodes[0], uuid_of_first(&cluster));
    let had = Copied::from(cluster.dirs[1].path());
    cluster.command(&["failover", &cluster.nodes[1].rest()]);
    let reports = |id, uuid: &str| {
        let report =
            NodeReport { diverged: (id == 0).then_some(1), ..NodeReport::bare(NodeId(id), uuid.into(), 1) };
        let (status, answer) = had.asks(first, &there, "report", &serde_json::to_string(&report).unwrap());
        (status, String::from_utf8_lossy(&answer).into_owned())
    };
    eventually("what it reports of itself is heard", || (reports(1, &had.uuid).0 == 200).then_some(()));
    let (status, answer) = reports(0, &there);
    assert!(status == 503 && answer.contains("for another one"), "{status} {answer}");
    cluster.rest().post("/pools/default", &[("clusterName", "ours")]).unwrap();
}

#[test]
fn a_node_that_was_away_lets_in_by_its_key_a_node_that_came_meanwhile() {
    let mut cluster = Cluster::form(4);
    let nodes = cluster.rest().get_json("/pools/default").unwrap();
    let away = nodes["nodes"].as_array().unwrap().iter().find(|node| {
        node["hostname"]
            .as_str()
            .is_some_and(|name| name.ends_with(&format!(":{}", cluster.nodes[3].port("mgmt"))))
    });
    let there = away.unwrap()["nodeUUID"].as_str().unwrap().to_owned();
    cluster.nodes[3].kill();
    let dir = tempfile::tempdir().unwrap();
    let mut newcomer = Node::start(dir.path(), &[]);
    cluster.command(&["add", &newcomer.rest()]);
    let had = Copied::from(dir.path());
    // Two of four nodes or five have no leader, so the one that comes back hears of the newcomer only where it asks.
    newcomer.kill();
    cluster.nodes[..3].iter_mut().for_each(Node::kill);
    cluster.nodes[0].restart(cluster.dirs[0].path());
    cluster.nodes[3].restart(cluster.dirs[3].path());
    eventually("the newcomer is let in", || {
        let (status, _) = had.asks(&cluster.nodes[3], &there, "consensus", "\0\0");
        (status == 200).then_some(())
    });
    let another = Copied { key: NodeKey::from_seed(&[7; 32]).unwrap(), ..had };
    assert_eq!(another.asks(&cluster.nodes[3], &there, "consensus", "\0\0").0, 401, "that is another key");
}

#[test]
fn a_user_who_manages_nodes_learns_nothing_from_a_node_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--init-username", USERNAME]);
    let admin = Rest::new(node.rest(), Some((USERNAME, PASSWORD)));
    let user = [("password", "their-password"), ("roles", "cluster_admin")];
    admin.put("/settings/rbac/users/local/manager", &user).unwrap();
    let manager = Rest::new(node.rest(), Some(("manager", "their-password")));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let hostname = format!("http://{}", listener.local_addr().unwrap());
    let form =
        [("hostname", &*hostname), ("user", "somebody"), ("password", "something"), ("services", "kv")];
    for path in ["/controller/addNode", "/controller/addNodeV2", "/pools/default/serverGroups/0/addNode"] {
        assert_eq!(manager.request("POST", path, &form).unwrap().code, 403, "{path}");
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nobody has told it anything");
}

/// Answers one request with this; what was asked.
fn answer_once(listener: &TcpListener, answer: &str) -> Value {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = BufReader::new(stream);
    let (_, length) = read_head(&mut stream);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
    stream.get_mut().write_all(format!("{head}{answer}").as_bytes()).unwrap();
    serde_json::from_slice(&body).unwrap_or_default()
}

#[test]
fn a_node_that_is_added_is_told_nothing_that_makes_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path(), &["--init-username", USERNAME]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Without a port for TLS it is told over the connection that the administrator chose.
    let ports = Ports { mgmt: address.port(), mgmt_tls: 0, ..Ports::default() };
    let key = NodeKey::from_seed(&[7; 32]).unwrap().public().to_owned();
    let own = NodeInfo { key: Some(key), ..NodeInfo::first("7".repeat(32), "127.0.0.1".into(), ports) };
    let introduction = json!({
        "node": own, "cluster_uuid": "8".repeat(32), "members": 1, "memory_mb": 1 << 20, "level": LEVEL,
    });
    let told = std::thread::spawn(move || {
        answer_once(&listener, &introduction.to_string());
        answer_once(&listener, "{}")
    });
    let hostname = format!("http://{address}");
    let form =
        [("hostname", &*hostname), ("user", "somebody"), ("password", "something"), ("services", "kv")];
    Rest::new(node.rest(), Some((USERNAME, PASSWORD))).post("/controller/addNode", &form).unwrap();
    let offer = told.join().unwrap();
    assert_eq!(offer["members"].as_array().unwrap().len(), 2, "{offer}");
    assert_eq!((&offer["secret"], &offer["authority"]), (&json!(""), &Value::Null));
    let log = fs::read(dir.path().join("data/metadata/consensus.redb")).unwrap();
    let private = b"PRIVATE KEY";
    assert!(!log.windows(private.len()).any(|window| window == private), "no private key is in the metadata");
}
