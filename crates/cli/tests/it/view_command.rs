//! `settee view`: what it does to a real node, and what it tells its users.

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use client::{Client, Rest};
use protocol::binary::{
    Opcode, Request,
    subdoc::{DocFlags, PathFlags, Spec, SpecOp, encode_multi},
};
use tempfile::TempDir;

use crate::{
    cluster::eventually,
    login,
    node::{Node, PASSWORD, USERNAME, settee},
};

const MAP: &str = "function (doc, meta) {\n  if (doc.n % 2 == 0) { emit(doc.n, meta.id); }\n}";

/// A node with a bucket, and a folder for files.
struct Place {
    node: Node,
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bucket = ["--init-username", USERNAME, "--init-bucket", "app", "--init-bucket-quota-mb", "100"];
        Self { node: Node::start(dir.path(), &bucket), dir }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = settee();
        command.arg("view").args(arguments).env("SETTEE_HOST", self.node.rest());
        command.env("SETTEE_PASSWORD", PASSWORD).env("SETTEE_USERNAME", USERNAME).env("SETTEE_BUCKET", "app");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a command prints that has to succeed.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command prints and says that has to fail with code 1.
    fn failed(&self, arguments: &[&str]) -> (String, String) {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    fn rest(&self) -> Rest {
        Rest::new(self.node.rest(), Some((USERNAME, PASSWORD)))
    }

    fn client(&self) -> Client {
        Client::connect(&self.node.kv(), &login("app")).unwrap()
    }
}

#[test]
fn views_are_made_shown_published_and_dropped() {
    let place = Place::new();
    let map = place.file("map.js", &format!("\n{MAP};\n"));
    assert!(place.done(&["list"]).contains("no design documents"));
    let made = place.done(&["create", "tags/even", "--map", &map, "--reduce", "_count"]);
    assert!(made.contains("stored in the new design document _design/dev_tags"), "{made}");
    let made = place.done(&["create", "dev_tags/all", "--map", &map]);
    assert!(made.contains("stored in design document _design/dev_tags"), "{made}");
    let listed = place.done(&["list"]);
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        &["DESIGN", "DOCUMENT", "STATE", "VIEW", "REDUCE", "LEFT", "OUT"][..],
        &["dev_tags", "development", "all", "-", "-"],
        &["dev_tags", "development", "even", "_count", "-"],
    ];
    assert_eq!(lines, expected, "{listed}");
    let shown = place.done(&["show", "dev_tags"]);
    assert!(shown.contains("view even\n  map\n    function (doc, meta) {\n      if"), "{shown}");
    assert!(shown.contains("  reduce _count\n"), "{shown}");

    let published = place.done(&["publish", "tags"]);
    assert_eq!(published, "_design/dev_tags is published as _design/tags\n");
    assert!(place.done(&["publish", "dev_tags"]).contains("the same"));
    assert_eq!(place.done(&["show", "tags", "--json"]), place.done(&["show", "_design/dev_tags", "--json"]));
    assert_eq!(place.done(&["drop", "dev_tags/all"]), "view all of _design/dev_tags is dropped\n");
    assert!(!place.done(&["show", "dev_tags"]).contains("view all"), "the other one stays");
    assert_eq!(place.done(&["drop", "dev_tags"]), "_design/dev_tags is dropped\n");
    let listed = place.done(&["list", "--json"]);
    assert!(listed.contains("\"_design/tags\"") && !listed.contains("dev_tags"), "{listed}");
}

#[test]
fn what_cannot_be_done_with_views_is_said_with_what_to_do() {
    let place = Place::new();
    let map = place.file("map.js", MAP);
    let broken = place.file("broken.js", "function (doc) {");
    let (_, said) = place.failed(&["create", "d/v", "--map", &broken]);
    assert!(
        said.contains("Syntax error in the map function of the view `v'") && said.contains("(line "),
        "{said}"
    );
    let (_, said) = place.failed(&["create", "d/v", "--map", &map, "--reduce", "_median"]);
    assert!(said.contains("Invalid built-in reduce function for view `v': _median"), "{said}");
    let (_, said) = place.failed(&["create", "v", "--map", &map]);
    assert!(said.contains("DESIGN-DOCUMENT/VIEW"), "{said}");
    for arguments in [&["show", "none"][..], &["publish", "none"], &["drop", "none"], &["drop", "none/v"]] {
        let (_, said) = place.failed(arguments);
        assert!(said.contains("no design document _design/") && said.contains("settee view list"), "{said}");
    }
    let (_, said) = place.failed(&["query", "none/v"]);
    assert!(said.contains("Design document _design/none not found"), "{said}");
    let (_, said) = place.failed(&["list", "-p", "wrong"]);
    assert!(said.contains("wrong user or password"), "{said}");
    let (_, said) = place.failed(&["list", "--bucket", "other"]);
    assert!(said.contains("bucket other"), "{said}");
    let wrong_key = place.run(&["query", "d/v", "--key", "rock"]);
    assert_eq!(wrong_key.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong_key.stderr).contains("'\"rock\"'"));

    // A user with one role hears of the right that another one would bring.
    let form = [("password", PASSWORD), ("roles", "views_reader[app],data_reader[app]")];
    place.rest().put("/settings/rbac/users/local/reader", &form).unwrap();
    let (_, said) = place.failed(&["create", "d/v", "--map", &map, "--username", "reader"]);
    assert!(said.contains("cluster.bucket[app].views!write"), "{said}");
}

/// Documents 0 to 39; one of them is no JSON, and one has an extended attribute.
fn fill(place: &Place) {
    let mut client = place.client();
    for n in 0..40 {
        client.set(format!("d{n:02}").as_bytes(), format!("{{\"n\":{n}}}").as_bytes()).unwrap();
    }
    client.set(b"raw", b"\xff\0").unwrap();
    let origin =
        Spec { op: SpecOp::DictUpsert, flags: PathFlags::XATTR, path: b"origin", value: b"{\"from\":\"x\"}" };
    let (extras, value) = encode_multi(&[origin], DocFlags::NONE, None).unwrap();
    let vbucket = client.map().vbucket_of(b"d07");
    let request = Request {
        vbucket,
        extras: &extras,
        value: &value,
        key: b"d07",
        ..Request::new(Opcode::SubdocMultiMutation)
    };
    client.call(&request).unwrap().success("SUBDOC_MULTI_MUTATION").unwrap();
}

#[test]
fn functions_are_tried_on_live_documents_before_they_are_stored() {
    let place = Place::new();
    let map = place.file("map.js", MAP);
    let (_, said) = place.failed(&["try", &map]);
    assert!(said.contains("no document that could be tried"), "{said}");
    fill(&place);
    let ids: Vec<String> = (0..40).map(|n| format!("d{n:02}")).chain(["raw".to_owned()]).collect();
    let ids: Vec<&str> = ids.iter().flat_map(|id| ["--id", id]).collect();
    let tried = place.done(&[&["try", &map, "--reduce", "_count", "--rows", "3"], &ids[..]].concat());
    assert!(
        tried
            .starts_with("KEY  VALUE  ID\n0    \"d00\"  d00\n2    \"d02\"  d02\n4    \"d04\"  d04\n(17 more"),
        "{tried}"
    );
    assert!(tried.contains("41 documents: 20 with rows (20 rows, "), "{tried}");
    assert!(tried.contains(" 21 without, 0 failed") && tried.contains("time per document: "), "{tried}");
    assert!(tried.contains("20 rows are reduced to 20"), "{tried}");
    // The function sees what it would see in a node.
    let meta = place.file(
        "meta.js",
        "(doc, meta) => emit([meta.type, meta.xattrs, meta.rev.split('-')[0], meta.vb], doc)",
    );
    let seen = place.done(&["try", &meta, "--id", "d07", "--id", "raw", "--id", "gone"]);
    assert!(seen.contains("[\"json\",{\"origin\":{\"from\":\"x\"}},\"2\",\""), "{seen}");
    assert!(seen.contains("[\"base64\",{},\"1\",\"") && seen.contains("\"/wA=\""), "{seen}");
    assert!(seen.contains("1 documents are in no view: they are not there"), "{seen}");
    // A user who may read documents needs no more.
    let form = [("password", PASSWORD), ("roles", "data_reader[app]")];
    place.rest().put("/settings/rbac/users/local/reader", &form).unwrap();
    assert!(place.done(&["try", &map, "--sample", "5", "--username", "reader"]).contains("5 documents: "));
}

#[test]
fn functions_that_are_wrong_are_told_with_a_document() {
    let place = Place::new();
    fill(&place);
    let broken = place.file("broken.js", "function (doc) {\n  emit(doc.a.b);\n}");
    let (shown, said) = place.failed(&["try", &broken, "--sample", "10"]);
    assert!(said.contains("the function failed on 10 of 10 documents"), "{said}");
    assert!(
        shown.contains("errors:\n") && shown.contains("(line 2:") && shown.contains("first with document "),
        "{shown}"
    );
    let (_, said) = place.failed(&["try", &place.file("syntax.js", "function (")]);
    assert!(said.contains("the map function cannot be used: SyntaxError"), "{said}");
    let map = place.file("map.js", MAP);
    let counts = place.file("counts.js", "function (keys, values, rereduce) { return values.length; }");
    let (_, said) = place.failed(&["try", &map, "--reduce", &counts]);
    assert!(
        said.contains("two results for the same 20 rows: 20 for all of them at once, 2 for two halves"),
        "{said}"
    );
    let mut piped = place
        .command(&["try", "-", "--id", "d01"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    piped.stdin.take().unwrap().write_all(b"(doc) => { log('saw ' + doc.n) }").unwrap();
    let output = piped.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("logged:\n  1 x saw 1 "));
}

#[test]
fn documents_that_a_view_leaves_out_are_shown_with_the_reason() {
    let place = Place::new();
    fill(&place);
    assert!(place.done(&["errors"]).contains("leave nothing out"));
    let map = place
        .file("map.js", "function (doc, meta) {\n  if (meta.id == 'd07') throw 'odd';\n  emit(doc.n);\n}");
    place.done(&["create", "odd/all", "--map", &map, "--published"]);
    let told = eventually("the index has met the document", || {
        let told = place.done(&["errors", "odd"]);
        told.contains("d07").then_some(told)
    });
    let line: Vec<&str> = told.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((line[0], line[2], line[3]), ("odd/all", "1", "d07"), "{told}");
    assert!(line[4..].contains(&"odd"), "{told}");
    assert!(place.done(&["errors", "--json"]).starts_with("{\"node\":\"127.0.0.1:"));
    let (_, said) = place.failed(&["errors", "none"]);
    assert!(said.contains("no design document _design/none"), "{said}");
}

#[test]
fn rows_that_a_reduction_cannot_read_are_counted_and_shown_with_their_keys() {
    let place = Place::new();
    fill(&place);
    // The first function runs in the node, the second one in a process.
    let plain = place.file(
        "plain.js",
        "function (doc) { if (doc.n == 7) { emit(doc.n, 'x'); } else { emit(doc.n, 1); } }",
    );
    let other = place.file("other.js", "(doc, meta) => [doc.n].forEach((n) => emit([n], n == 9 ? null : 1))");
    place.done(&["create", "sums/plain", "--map", &plain, "--reduce", "_sum", "--published"]);
    place.done(&["create", "others/v", "--map", &other, "--reduce", "_stats", "--published"]);
    place.done(&["create", "sums/rows", "--map", &plain, "--published"]);
    assert_eq!(place.done(&["query", "sums/plain", "--json"]).trim(), "{\"key\":null,\"value\":40}");
    assert!(place.done(&["query", "sums/plain", "--reduce", "false", "--limit", "99"]).contains("\"x\""));
    place.done(&["query", "others/v"]);
    let told = place.done(&["errors"]);
    let cells: Vec<Vec<&str>> = told.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let of = |view: &str| {
        let of_view: Vec<String> =
            cells.iter().filter(|line| line[0] == view).map(|line| line[2..].join(" ")).collect();
        of_view
    };
    assert!(of("sums/plain").contains(&"1 rows d07 Value is not a number (key 7)".to_owned()), "{told}");
    assert!(of("others/v").contains(&"1 rows d09 Value is not a number (key [9])".to_owned()), "{told}");
    assert!(of("sums/rows").is_empty(), "without a reduction no row is left out: {told}");
    let rest = place.rest();
    let info = String::from_utf8(rest.get("/couchBase/app/_design/sums/_info").unwrap()).unwrap();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let views = &info["view_index"]["views"];
    assert_eq!((&views["plain"]["rows_left_out"], &views["rows"]["rows_left_out"]), (&1.into(), &0.into()));
    assert!(place.done(&["list"]).contains("_sum    1 rows\n"), "{}", place.done(&["list"]));
    assert!(place.done(&["show", "sums"]).contains("reduce _sum\n  left out: 1 rows\n"));
    // Once the document emits a number, no row is left out.
    place.client().set(b"d07", b"{\"n\":1}").unwrap();
    assert_eq!(place.done(&["query", "sums/plain", "--json"]).trim(), "{\"key\":null,\"value\":41}");
    assert!(place.done(&["show", "sums"]).contains("reduce _sum\n\n"));
}

#[test]
fn rows_are_printed_as_a_table_or_as_the_node_sent_them() {
    let place = Place::new();
    fill(&place);
    let map = place.file("map.js", MAP);
    place.done(&["create", "n/even", "--map", &map, "--reduce", "_count"]);
    place.done(&["publish", "n"]);
    let table = place.done(&["query", "n/even", "--reduce", "false", "--start-key", "10", "--end-key", "14"]);
    let expected = "KEY  VALUE  ID\n10   \"d10\"  d10\n12   \"d12\"  d12\n14   \"d14\"  d14\n\n3 rows; the index of the view has 20\n";
    assert_eq!(table, expected);
    assert_eq!(place.done(&["query", "n/even"]), "KEY   VALUE\nnull  20\n\n1 row\n");
    let rows = place.done(&["query", "n/even", "--reduce", "false", "--keys", "[4,3,2]", "--json"]);
    let expected =
        "{\"id\":\"d04\",\"key\":4,\"value\":\"d04\"}\n{\"id\":\"d02\",\"key\":2,\"value\":\"d02\"}\n";
    assert_eq!(rows, expected);
    // What was written before is in the answer.
    place.client().set(b"d98", b"{\"n\":98}").unwrap();
    assert_eq!(place.done(&["query", "n/even", "--json", "--key", "98"]), "{\"key\":null,\"value\":1}\n");
    let (_, said) = place.failed(&["query", "n/odd"]);
    assert!(said.contains("missing_named_view") && said.contains("odd"), "{said}");
    let (_, said) = place.failed(&["query", "n/even", "--reduce", "false", "--group"]);
    assert!(said.contains("Invalid URL parameter"), "{said}");
    // A user who may see views and nothing else is enough.
    let form = [("password", PASSWORD), ("roles", "views_reader[app]")];
    place.rest().put("/settings/rbac/users/local/seer", &form).unwrap();
    assert_eq!(
        place.done(&["query", "n/even", "--username", "seer", "--json"]),
        "{\"key\":null,\"value\":21}\n"
    );
}
