//! Design documents on the ports of views: what clients are answered, byte by byte, and where they can rely on it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use client::Rest;

use crate::{
    cluster::{Cluster, SOON, eventually},
    node::{Node, PASSWORD, USERNAME},
};

pub(crate) const JSON: &str = "Content-Type: application/json\r\nAccept: application/json";
const FILLED: &str = "{ \"views\": {\"v\": {\"map\": \"function (doc, meta) { emit(meta.id, null) }\", \"reduce\": \"_count\"}}, \"é\": 1.0 }";

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    /// A header, by its name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Status and body.
    pub(crate) fn told(&self) -> (u16, &str) {
        (self.status, &self.body)
    }
}

pub(crate) fn ask(node: &Node, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", node.port("capi"))).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let login = STANDARD.encode(format!("{USERNAME}:{PASSWORD}"));
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic {login}\r\nConnection: close\r\n\
         Content-Length: {length}\r\n{headers}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { joined(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body }
}

/// A body that came in chunks.
fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    loop {
        let (length, rest) = chunks.split_once("\r\n").expect("an answer that was not broken off");
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return body;
        }
        let (chunk, rest) = rest.split_at(length);
        body.push_str(chunk);
        chunks = rest.strip_prefix("\r\n").unwrap();
    }
}

pub(crate) fn put(node: &Node, path: &str, body: &str) -> Answer {
    ask(node, "PUT", path, JSON, body)
}

pub(crate) fn get(node: &Node, path: &str) -> Answer {
    ask(node, "GET", path, "Accept: application/json", "")
}

fn delete(node: &Node, path: &str) -> Answer {
    ask(node, "DELETE", path, "Accept: application/json", "")
}

fn error(error: &str, reason: &str) -> String {
    format!("{{\"error\":\"{error}\",\"reason\":\"{reason}\"}}\n")
}

pub(crate) fn start(dir: &Path) -> Node {
    let bucket = ["--init-username", USERNAME, "--init-bucket", "app", "--init-bucket-quota-mb", "100"];
    Node::start(dir, &bucket)
}

fn rest(node: &Node) -> Rest {
    Rest::new(node.rest(), Some((USERNAME, PASSWORD)))
}

fn ddocs(node: &Node) -> String {
    String::from_utf8(rest(node).get("/pools/default/buckets/app/ddocs").unwrap()).unwrap()
}

#[test]
fn a_design_document_is_given_back_as_it_came_and_outlives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = start(dir.path());
    let uuid = rest(&node).get_json("/pools/default/buckets/app").unwrap()["uuid"].clone();
    let path = format!("/app%2B{}/_design/dev_x", uuid.as_str().unwrap());

    let stored = put(&node, &path, FILLED);
    assert_eq!(stored.told(), (201, "{\"ok\":true,\"id\":\"_design/dev_x\"}\n"));
    assert_eq!(stored.header("location"), Some("/app/_design/dev_x"));
    assert_eq!(stored.header("cache-control"), Some("must-revalidate"));
    let found = ask(&node, "GET", &path, "Accept: text/html", "");
    assert_eq!(found.told(), (200, FILLED));
    assert_eq!(found.header("content-type"), Some("application/json"));
    let meta = found.header("x-couchbase-meta").unwrap();
    assert!(
        meta.starts_with("{\"id\":\"_design/dev_x\",\"rev\":\"1-") && meta.ends_with(",\"type\":\"json\"}"),
        "{meta}"
    );
    let head = ask(&node, "HEAD", &path, "Accept: text/html", "");
    assert_eq!((head.told(), head.header("x-couchbase-meta")), ((200, ""), Some(meta)));

    // The last one wins, without a revision; names with a slash have it escaped.
    assert_eq!(put(&node, &path, "{}").status, 201);
    assert_eq!(put(&node, "/app/_design/a%2Fb", FILLED).status, 201);
    assert_eq!(put(&node, "/app/_design/gone", "{}").status, 201);
    assert_eq!(
        delete(&node, "/app/_design/gone?rev=1-0").told(),
        (200, "{\"ok\":true,\"id\":\"_design/gone\"}\n")
    );
    let listed = ddocs(&node);
    assert!(listed.contains("{\"doc\":{\"meta\":{\"id\":\"_design/dev_x\",\"rev\":\"2-"), "{listed}");
    assert!(listed.contains(&format!("\"json\":{FILLED}}},\"controllers\":{{")), "{listed}");
    let places: Vec<usize> =
        ["_design/a/b", "_design/dev_x"].iter().map(|id| listed.find(id).unwrap()).collect();
    assert!(places[0] < places[1] && !listed.contains("gone"), "{listed}");

    node.kill();
    node.restart(dir.path());
    assert_eq!(ddocs(&node), listed);
    assert_eq!(get(&node, "/app/_design/a%2Fb").told(), (200, FILLED));
    for method in ["GET", "DELETE"] {
        let gone = ask(&node, method, "/app/_design/gone", "Accept: application/json", "");
        assert_eq!(gone.told(), (404, error("not_found", "deleted").as_str()), "{method}");
    }
    assert!(audit(dir.path()).contains("views changed"));
}

/// The audit trail.
fn audit(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("data/audit.log")).unwrap()
}

#[test]
fn what_is_no_design_document_is_refused_in_couchbase_s_words() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    let path = "/app/_design/x";
    let of_view = |view: &str| format!("{{\"views\":{{\"v\":{view}}}}}");
    for (body, reason) in [
        ("{\"views\":1}".to_owned(), "The field `views' is not a json object."),
        (of_view("{}"), "The `map' field for the view `v' is missing."),
        (
            of_view("{\"map\":\"12\"}"),
            "Syntax error in the map function of the view `v': Invalid function: (12)",
        ),
        (
            of_view("{\"map\":\"(doc) => 1\",\"reduce\":\"_foo\"}"),
            "Invalid built-in reduce function for view `v': _foo",
        ),
    ] {
        let refused = put(&node, path, &body);
        assert_eq!(refused.told(), (400, error("invalid_design_document", reason).as_str()), "{body}");
    }
    let refused = put(&node, path, &of_view("{\"map\":\"function (doc) {\"}"));
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("Syntax error in the map function of the view `v': "), "{}", refused.body);
    assert!(refused.body.contains(" (line "), "{}", refused.body);
    // What exhausts the compiler costs one process of its own.
    let refused = put(&node, path, &of_view(&format!("{{\"map\":\"{}\"}}", "(".repeat(200_000))));
    assert_eq!(refused.status, 400);
    assert!(refused.body.starts_with("{\"error\":\"invalid_design_document\""), "{}", refused.body);
    let refused = put(&node, path, "{");
    assert!(
        refused.body.starts_with("{\"error\":\"bad_request\",\"reason\":\"invalid UTF-8 JSON: "),
        "{}",
        refused.body
    );
    let refused = ask(&node, "PUT", path, "Accept: */*", "{}");
    assert_eq!(refused.told(), (400, error("invalid_design_document", "Content is not json.").as_str()));
    assert_eq!(refused.header("content-type"), Some("text/plain;charset=utf-8"));
    let refused = put(&node, path, &" ".repeat(256 * 1024 + 1));
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("longer than 262144 bytes"), "{}", refused.body);
    assert_eq!(get(&node, path).told(), (404, error("not_found", "missing").as_str()));
    assert_eq!(delete(&node, path).told(), (404, error("not_found", "missing").as_str()));
}

#[test]
fn paths_beside_design_documents_are_answered_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    let form = [("name", "mem"), ("ramQuotaMB", "100"), ("bucketType", "ephemeral"), ("replicaNumber", "0")];
    rest(&node).post("/pools/default/buckets", &form).unwrap();
    assert_eq!(put(&node, "/app/_design%2Fx", FILLED).status, 201, "only a GET is sent on");

    let moved = get(&node, "/app/_design%2Fx?rev=1");
    assert_eq!((moved.status, moved.header("location")), (301, Some("/app/_design/x?rev=1")));
    for (path, status, reason) in [
        (
            "/app/_design/x/_view/w",
            404,
            "Error opening view `w`, from set `app`, design document `_design/x`: ",
        ),
        ("/app/_design/y/_view/v", 404, "Design document _design/y not found"),
        ("/app/_design/x/_spatial/v", 404, "missing handler: _spatial"),
        ("/app/_design/x/picture", 400, "attachments not supported in Couchbase"),
        ("/app/_all_docs", 400, "_all_docs is no longer supported"),
        ("/app", 404, "missing"),
        ("/app%2Fmaster/_design/x", 404, "missing"),
        ("/app%2Bother/_design/x", 404, "uuids_dont_match"),
        ("/other/_design/x", 404, "missing"),
        (
            "/mem/_design/x",
            404,
            "views are supported only on couchbase buckets with couchstore storage backend",
        ),
    ] {
        let answer = get(&node, path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.body.contains(&format!("\"reason\":\"{reason}")), "{path}: {}", answer.body);
    }
    for (path, allowed) in
        [("/app/_design/x", "DELETE,GET,HEAD,PUT"), ("/app/_design/x/_view/v", "GET,POST,HEAD")]
    {
        let refused = ask(&node, "PATCH", path, JSON, "{}");
        assert_eq!(
            refused.told(),
            (405, error("method_not_allowed", &format!("Only {allowed} allowed")).as_str())
        );
        assert_eq!(refused.header("allow"), Some(allowed));
    }
    let without = rest(&node).request("GET", "/pools/default/buckets/mem/ddocs", &[]).unwrap();
    assert_eq!((without.code, without.body.as_slice()), (400, &b"{\"error\":\"no_ddocs_service\"}"[..]));
}

#[test]
fn a_design_document_is_known_everywhere_once_it_is_stored() {
    let mut cluster = Cluster::form(3);
    for round in 0..30 {
        let path = format!("/app/_design/d{round}");
        assert_eq!(put(&cluster.nodes[round % 3], &path, "{}").status, 201);
        for node in &cluster.nodes {
            assert_eq!(get(node, &path).told(), (200, "{}"), "{path}");
        }
        if round % 10 == 0 {
            assert_eq!(delete(&cluster.nodes[(round + 1) % 3], &path).status, 200);
            for node in &cluster.nodes {
                assert_eq!(get(node, &path).status, 404, "{path}");
            }
        }
    }
    // A node that nobody reaches is not waited for without end.
    cluster.nodes[2].kill();
    assert_eq!(put(&cluster.nodes[0], "/app/_design/late", "{}").status, 201);
    let dir = cluster.dirs[2].path();
    cluster.nodes[2].restart(dir);
    eventually("the node that was away hears of it", || {
        (get(&cluster.nodes[2], "/app/_design/late").status == 200).then_some(())
    });
}
