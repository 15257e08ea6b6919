//! Ports 8092 and 18092 of a running node: who is asked for a login, and what is told.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use settee_daemon::{InitBucket, Node};

const ADMIN: Option<&str> = Some("Administrator:password");
const MISSING: &str = "{\"error\":\"not_found\",\"reason\":\"missing\"}\n";
const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

fn start(data_dir: &Path) -> Node {
    Node::start(crate::support::options(
        data_dir,
        InitBucket { name: "open".into(), quota_mb: 100, legacy_access: true },
    ))
    .unwrap()
}

/// One request over `stream`: head and body of the answer.
fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    login: Option<&str>,
    (kind, body): (&str, &str),
) -> (String, String) {
    let login =
        login.map(|login| format!("Authorization: Basic {}\r\n", STANDARD.encode(login))).unwrap_or_default();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{login}Connection: close\r\nContent-Length: {length}\r\n\
         Content-Type: {kind}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (head.to_owned(), body.to_owned())
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// What REST says; it has to be a success.
fn rest(node: &Node, method: &str, path: &str, form: &str) -> String {
    let (head, body) = exchange(connect(node.ports().mgmt), method, path, ADMIN, (FORM, form));
    assert!(head.starts_with("HTTP/1.1 20"), "{path}: {head}\n{body}");
    body
}

/// The status of a request to the views of a node, plain and under TLS, and its body: both say the same.
fn views(
    node: &Node,
    tls: &Arc<ClientConfig>,
    method: &str,
    path: &str,
    login: Option<&str>,
) -> (u16, String, String) {
    let plain = exchange(connect(node.ports().capi), method, path, login, (FORM, ""));
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::clone(tls), name).unwrap();
    let secured = StreamOwned::new(connection, connect(node.ports().capi_tls));
    let secured = exchange(secured, method, path, login, (FORM, ""));
    assert_eq!((status(&plain.0), &plain.1), (status(&secured.0), &secured.1), "{method} {path}");
    (status(&plain.0), plain.0, plain.1)
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[test]
fn the_views_of_a_bucket_are_for_senders_that_may_see_them() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    rest(&node, "POST", "/pools/default/buckets", "name=guarded&ramQuotaMB=100&replicaNumber=0");
    let user = |name: &str, role: &str| {
        let form = format!("password=password&roles={role}[guarded]");
        rest(&node, "PUT", &format!("/settings/rbac/users/local/{name}"), &form);
    };
    user("reader", "views_reader");
    user("writer", "views_admin");
    user("other", "data_reader");
    let authority = rest(&node, "GET", "/pools/default/certificate", "");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let tls = Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    let ask = |method, path, login| views(&node, &tls, method, path, login);

    assert_eq!(ask("GET", "/", None).2, "{\"couchdb\":\"Welcome\"}\n");
    // What is missing is so for good: clients of 2014 look for both words.
    for path in ["/open/_design/x", "/open", "/open/_design/x/_view/y?limit=1", "/open%2Bsome-uuid/_design/x"]
    {
        let (status, _, body) = ask("GET", path, None);
        assert_eq!(status, 404, "{path}");
        assert!(body.contains("not_found") && body.contains("missing"), "{body}");
    }
    let view = "/guarded/_design/x/_view/y";
    for login in [ADMIN, Some("reader:password"), Some("writer:password")] {
        for method in ["GET", "POST"] {
            let (status, _, body) = ask(method, view, login);
            assert_eq!(status, 404, "{method} {login:?}");
            assert!(body.contains("Design document _design/x not found"), "{body}");
        }
    }
    assert_eq!(ask("GET", "/no-such-bucket/_design/x", ADMIN).2, MISSING);
    // Whether there is such a bucket is told to nobody without a right in it.
    for path in [view, "/no-such-bucket/_design/x"] {
        for login in [None, Some("reader:wrong")] {
            let (status, head, body) = ask("GET", path, login);
            assert_eq!(
                (status, body.as_str()),
                (401, r#"{"error":"unauthorized","reason":"password required"}"#)
            );
            assert!(head.to_lowercase().contains("www-authenticate: basic realm=\"capi\""), "{head}");
        }
    }
    let denied = |method, path, login, needed: &str| {
        let (status, _, body) = ask(method, path, Some(login));
        assert_eq!(status, 403, "{method} {path} {login}");
        assert!(body.contains(needed), "{body}");
    };
    denied("GET", view, "other:password", "cluster.bucket[guarded].views!read");
    denied("GET", "/open2/_design/x", "reader:password", "cluster.bucket[open2].views!read");
    denied("PUT", "/guarded/_design/x", "reader:password", "cluster.bucket[guarded].views!write");
    denied("DELETE", "/guarded/_design/x", "reader:password", "cluster.bucket[guarded].views!write");
    let listed = |login| {
        let path = "/pools/default/buckets/guarded/ddocs";
        let (head, body) = exchange(connect(node.ports().mgmt), "GET", path, Some(login), (FORM, ""));
        (status(&head), body)
    };
    assert_eq!(listed("reader:password"), (200, "{\"rows\":[]}".to_owned()));
    let (status, body) = listed("other:password");
    assert_eq!(status, 403);
    assert!(body.contains("cluster.bucket[guarded].views!read"), "{body}");
    assert_eq!(ask("DELETE", "/guarded/_design/x", Some("writer:password")).2, MISSING);
    operations_on_indexes_have_a_right_of_their_own(&node);
    node.stop().unwrap();
}

/// As REST's port takes them, by a right of their own.
fn operations_on_indexes_have_a_right_of_their_own(node: &Node) {
    let rest = |method: &str, path: &str, login: &str, form: &str| {
        let path = format!("/pools/default/buckets/{path}");
        let (head, body) = exchange(connect(node.ports().mgmt), method, &path, Some(login), (FORM, form));
        (status(&head), body)
    };
    let (reader, writer) = ("reader:password", "writer:password");
    let backup = "password=password&roles=data_backup[guarded]";
    let path = "/settings/rbac/users/local/backup";
    let (head, _) = exchange(connect(node.ports().mgmt), "PUT", path, ADMIN, (FORM, backup));
    assert_eq!(status(&head), 200);
    let at = |operation: &str| format!("guarded/ddocs/_design%2Fx/controller/{operation}");
    for operation in ["compactView", "cancelViewCompaction", "setUpdateMinChanges"] {
        // A user who may write design documents may not compact their indexes.
        for login in [reader, "backup:password"] {
            let (code, body) = rest("POST", &at(operation), login, "");
            assert_eq!(code, 403, "{operation} {login}");
            assert!(body.contains("cluster.bucket[guarded].views!compact"), "{body}");
        }
    }
    // As in Couchbase, nothing is said of whether there is such a design document.
    for operation in ["compactView", "cancelViewCompaction"] {
        assert_eq!(rest("POST", &at(operation), writer, ""), (200, String::new()), "{operation}");
    }
    let missing = (400, r#"{"_":"Design document not found"}"#.to_owned());
    assert_eq!(rest("POST", &at("setUpdateMinChanges"), writer, "updateMinChanges=1"), missing);
    assert_eq!(rest("POST", &at("other"), writer, "").0, 404);

    let design = "/guarded/_design/x";
    let text = r#"{"views":{},"options":{"y":1}}"#;
    let (head, body) = exchange(connect(node.ports().capi), "PUT", design, Some(writer), (JSON, text));
    assert_eq!(status(&head), 201, "{body}");
    let wrong = rest("POST", &at("setUpdateMinChanges"), writer, "updateMinChanges=-1");
    assert_eq!(wrong, (400, r#"{"updateMinChanges":"Invalid updateMinChanges: too_small"}"#.to_owned()));
    let set = rest("POST", &at("setUpdateMinChanges"), writer, "updateMinChanges=7");
    assert_eq!(set, (200, r#"{"updateMinChanges":7,"y":1}"#.to_owned()));
    let stored = exchange(connect(node.ports().capi), "GET", design, Some(reader), (FORM, "")).1;
    let wanted = r#"{"options":{"updateMinChanges":7,"y":1},"views":{}}"#;
    assert_eq!(stored, wanted);
    for operation in ["compactView", "cancelViewCompaction"] {
        assert_eq!(rest("POST", &at(operation), writer, ""), (200, String::new()), "{operation}");
    }
    let (code, listed) = rest("GET", "guarded/ddocs", reader, "");
    let controllers = format!(
        r#""controllers":{{"compact":"/pools/default/buckets/{}","setUpdateMinChanges":"/pools/default/buckets/{}"}}"#,
        at("compactView"),
        at("setUpdateMinChanges")
    );
    assert!(code == 200 && listed.contains(&controllers), "{listed}");
}

/// The web console can reach no port but that of REST.
#[test]
fn rest_carries_what_the_ports_of_views_answer_by_the_same_rights() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    rest(&node, "POST", "/pools/default/buckets", "name=guarded&ramQuotaMB=100&replicaNumber=0");
    for (name, role) in [("reader", "views_reader"), ("writer", "views_admin"), ("other", "data_reader")] {
        let form = format!("password=password&roles={role}[guarded]");
        rest(&node, "PUT", &format!("/settings/rbac/users/local/{name}"), &form);
    }
    let ask = |method: &str, path: &str, login: &str, body: &str| {
        let (port, login) = (node.ports().mgmt, Some(login).filter(|login| !login.is_empty()));
        let (head, body) = exchange(connect(port), method, path, login, (JSON, body));
        (status(&head), head, body)
    };
    let (reader, writer, other) = ("reader:password", "writer:password", "other:password");
    let design = "/couchBase/guarded/_design/x";
    for (method, path, login, wanted) in [
        ("GET", design, "", 401),
        ("GET", design, other, 403),
        ("GET", "/couchBase/elsewhere/_design/x", reader, 403),
        ("PUT", design, reader, 403),
        ("DELETE", design, reader, 403),
        ("POST", "/couchBase/guarded/_try", reader, 403),
        ("PATCH", design, writer, 404),
        ("GET", "/couchBase", writer, 404),
        ("GET", design, reader, 404),
        ("PUT", design, writer, 201),
        ("GET", design, reader, 200),
        ("GET", "/couchBase/guarded%2Fmaster/_design/x", writer, 404),
        ("GET", "/couchBase/guarded%2Fmaster/_design/x", other, 403),
        ("GET", "/couchBase/guarded%2B0123/_design/x", other, 403),
        ("PUT", "/couchBase/guarded%2B0123/_design/x", reader, 403),
        ("GET", "/couchBase/elsewhere%2B0123/_design/x", writer, 403),
        ("POST", "/couchBase/guarded/_try", writer, 400),
    ] {
        let (found, head, body) = ask(method, path, login, "{}");
        assert_eq!(found, wanted, "{method} {path} {login}: {head}\n{body}");
    }
    // Clients before version 3 add the uuid to the bucket, as `couchApiBase` has it.
    let (found, _, body) = ask("GET", "/couchBase/guarded%2B0123/_design/x", reader, "");
    assert_eq!(found, 404);
    assert!(body.contains("uuids_dont_match"), "{body}");
    // The same answer as on the port of views, in the same words.
    let view = "/guarded/_design/x/_view/y?limit=1&key=%22a%22";
    let own = exchange(connect(node.ports().capi), "GET", view, Some(reader), (FORM, ""));
    let (found, _, body) = ask("GET", &format!("/couchBase{view}"), reader, "");
    assert_eq!((found, &body), (404, &own.1));
    assert!(body.contains("missing_named_view"), "{body}");
    // A client that follows goes on through the same port.
    let (found, head, _) = ask("GET", "/couchBase/guarded/_design%2Fx?a=b", reader, "");
    assert_eq!(found, 301);
    assert!(head.to_lowercase().contains("location: /couchbase/guarded/_design/x?a=b\r\n"), "{head}");
    node.stop().unwrap();
}

#[test]
fn a_node_that_cannot_start_a_process_for_functions_says_so_and_takes_none() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    let put = |name: &str, text: &str| {
        let path = format!("/open/_design/{name}");
        exchange(connect(node.ports().capi), "PUT", &path, ADMIN, (JSON, text))
    };
    let (head, body) = put("x", r#"{"views":{"v":{"map":"function(doc){}"}}}"#);
    assert_eq!(status(&head), 500, "{body}");
    assert!(body.contains("The functions could not be checked"), "{body}");
    assert_eq!(status(&put("y", "{}").0), 201, "nothing runs for it");
    let listed = rest(&node, "GET", "/pools/default/buckets/open/ddocs", "");
    assert!(listed.contains("_design/y") && !listed.contains("_design/x"), "{listed}");
    node.stop().unwrap();
}

#[test]
fn the_ports_of_views_are_shown_where_couchbase_shows_them() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    let shown: serde_json::Value =
        serde_json::from_str(&rest(&node, "GET", "/nodes/self/xdcrSSLPorts", "")).unwrap();
    assert_eq!(shown["httpsCAPI"], node.ports().capi_tls);
    let shown: serde_json::Value = serde_json::from_str(&rest(&node, "GET", "/pools/default", "")).unwrap();
    assert_eq!(shown["nodes"][0]["ports"]["httpsCAPI"], node.ports().capi_tls);
    assert_ne!(node.ports().capi_tls, 0);
    node.stop().unwrap();
}
