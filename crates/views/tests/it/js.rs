//! What functions see, and what becomes of those that misbehave.

use std::time::Duration;

use settee_views::{
    design::{Compiler, Invalid},
    js::{Body, Checker, Document, Failure, FailureKind, Functions, Limits, Sources},
};

pub(crate) const META: &str = r#"{"id":"a","rev":"1-00","type":"json","xattrs":{}}"#;

fn functions(maps: &[&str], limits: Limits) -> Functions {
    let maps = maps.iter().map(|map| (*map).to_owned()).collect();
    Functions::new(Sources { maps, reduces: Vec::new() }, limits, true).expect("functions that compile")
}

/// The rows as text, or the failure's text.
fn show(rows: &Result<Vec<settee_views::js::Row>, Failure>) -> String {
    match rows {
        Ok(rows) => rows.iter().map(|row| format!("{}={}", row.key, row.value)).collect::<Vec<_>>().join(" "),
        Err(failure) => format!("{:?} {}", failure.kind, failure.text),
    }
}

fn map(functions: &mut Functions, body: &str) -> Vec<String> {
    let mapped = functions.map(&Document { meta: META, body: Body::Json(body) });
    match mapped.rows {
        Ok(views) => views.iter().map(show).collect(),
        Err(failure) => vec![format!("all {:?} {}", failure.kind, failure.text)],
    }
}

fn one(source: &str, body: &str) -> String {
    map(&mut functions(&[source], Limits::default()), body).remove(0)
}

#[test]
fn functions_see_documents_as_couchbase_shows_them() {
    let cases = [
        (
            "function (doc, meta) { emit(meta.id, doc.a); }",
            r#"{"a":[1.0,{"b":null}]}"#,
            r#""a"=[1,{"b":null}]"#,
        ),
        ("(doc, meta) => emit(doc.a)", r#"{"a":1}"#, "1=null"),
        ("function(d) { emit(); emit(undefined, function(){}) }", "{}", "null=null null=null"),
        (
            "function(d) { for (i = 0; i < 2; i++) emit(i, d); }",
            r#"{ "b" : 1.50 }"#,
            r#"0={"b":1.5} 1={"b":1.5}"#,
        ),
        ("function(d) { emit(typeof d, d) }", "7", "\"number\"=7"),
        (
            "function(d) { emit(sum([1, 2, 3.5]), dateToArray('2020-02-03T04:05:06Z')) }",
            "{}",
            "6.5=[2020,2,3,4,5,6]",
        ),
        ("function(d) { emit(dateToArray(new Date(0)), dateToArray('x')) }", "{}", "[1970,1,1,0,0,0]=null"),
        ("function(d) { emit(decodeBase64('aGk='), new Date(0).getHours()) }", "{}", "[104,105]=0"),
        ("function(d) { with (d) { emit(x, 1) } }", r#"{"x":3}"#, "3=1"),
        ("function(d) { emit([...new Set([1,1])], Object.entries({a:1}).at(-1)) }", "{}", "[1]=[\"a\",1]"),
        (
            "function(d) { emit(typeof require, typeof console + typeof setTimeout) }",
            "{}",
            "\"undefined\"=\"undefinedundefined\"",
        ),
        ("function(d) { emit('\\ud83d', '\\u0001\\u2028') }", "{}", "\"\\ud83d\"=\"\\u0001\u{2028}\""),
        ("function(d) { emit((async function () { await 1; })() instanceof Promise, 1) }", "{}", "true=1"),
    ];
    for (source, body, expected) in cases {
        assert_eq!(one(source, body), expected, "{source}");
    }
    let mut binary = functions(&["function(d) { emit(d, decodeBase64(d)) }"], Limits::default());
    let mapped = binary.map(&Document { meta: META, body: Body::Binary(&[0xff, 1]) });
    assert_eq!(show(&mapped.rows.unwrap()[0]), "\"/wE=\"=[255,1]");
}

#[test]
fn failures_tell_text_and_place() {
    let thrown = |text: &str| format!("Thrown {text}");
    assert_eq!(
        one("function (doc) { emit(x.y, 1); }", "{}"),
        thrown("ReferenceError: x is not defined (line 1:23)")
    );
    assert_eq!(one("function (d) {\n  d.a.b.c;\n}", r#"{"a":{}}"#).split(" (line 2:").count(), 2);
    assert_eq!(one("function (d) { throw 'no'; }", "{}"), thrown("no"));
    assert!(one("function (d) { decodeBase64(1); }", "{}").starts_with("Thrown Input is not a string"));
    assert!(one("function (d) { decodeBase64('*'); }", "{}").starts_with("Thrown Invalid base64 source."));
    assert!(
        one("function (d) { log(1); }", "{}")
            .starts_with("Thrown Error: Error while logging:Log value is not a string")
    );
    let long = format!("function(d) {{ emit(1, 2); emit('{}', 1); }}", "x".repeat(4094));
    assert!(
        one(&long, "{}").starts_with("Thrown Error: too long key emitted: 4096 bytes"),
        "{}",
        one(&long, "{}")
    );
    let much = "function(d) { for (;;) emit(1, 'x'.repeat(100000)); }";
    assert!(one(much, "{}").starts_with("Thrown Error: too much data emitted: "));
    let many = "function(d) { for (var i = 0; i < 65535 + meta.id.length; i++) emit(1); }";
    assert!(one(many, "{}").starts_with("Thrown ReferenceError"));
    let many = many.replace("(d)", "(d,meta)");
    assert!(one(&many, "{}").starts_with("Thrown Error: too many keys emitted"));
    assert_eq!(
        map(&mut functions(&["function(d){emit(d,1)}"], Limits::default()), "{"),
        ["all Document the document is no JSON"]
    );
}

#[test]
fn a_failure_costs_its_view_only() {
    let maps = [
        "function(d) { emit(1); throw new Error('x'); }",
        "function(d) { d.seen = true; emit(2) }",
        "function(d) { emit(3, d.seen) }",
    ];
    let mut functions = functions(&maps, Limits::default());
    for _ in 0..2 {
        let rows = map(&mut functions, "{}");
        assert!(rows[0].starts_with("Thrown Error: x (line 1:"), "{}", rows[0]);
        assert_eq!(rows[1..], ["2=null", "3=true"]);
    }
}

#[test]
fn what_is_emitted_outside_of_a_document_is_in_no_row() {
    let maps = [
        "function (doc, meta) { emit(meta.id, 1); }",
        "(function () { emit('ghost', 1); return function (doc, meta) { emit(meta.id, null); }; })()",
    ];
    let rows = ["\"a\"=1", "\"a\"=null"];
    let mut compiled = functions(&maps, Limits::default());
    assert_eq!(map(&mut compiled, "{}"), rows);
    assert_eq!(map(&mut compiled, "{}"), rows);
    let sources = Sources {
        maps: vec!["function (doc) { emit(1, 'x'.repeat(600000)); }".to_owned()],
        reduces: vec!["function () { emit('ghost', 'x'.repeat(600000)); return 1; }".to_owned()],
    };
    let mut reducing = Functions::new(sources, Limits::default(), true).unwrap();
    for _ in 0..2 {
        assert_eq!(reducing.reduce(0, None, &["4"]).as_deref(), Ok("1"));
        assert_eq!(reducing.reduce(0, None, &["4"]).as_deref(), Ok("1"));
        let mapped = map(&mut reducing, "{}").remove(0);
        assert!(
            mapped.starts_with("1=") && mapped.len() == 600_004,
            "{}",
            mapped.get(..80).unwrap_or(&mapped)
        );
    }
}

#[test]
fn variables_that_are_not_declared_live_on() {
    let mut functions = functions(
        &["function(d) { n = (typeof n == 'undefined') ? 0 : n + 1; log('n' + n); emit(n) }"],
        Limits::default(),
    );
    assert_eq!(map(&mut functions, "{}"), ["0=null"]);
    let mapped = functions.map(&Document { meta: META, body: Body::Json("{}") });
    assert_eq!(show(&mapped.rows.unwrap()[0]), "1=null");
    assert_eq!(mapped.logs, ["n1"]);
}

#[test]
fn loops_and_bombs_end_and_leave_the_functions_usable() {
    // Only what has to run into the limit has a short one, however slow the machine is.
    let (short, long) = (Duration::from_millis(100), Duration::from_secs(600));
    let limits = Limits { time: long, memory: 16 << 20, stack: 256 << 10 };
    let hostile = [
        ("try { for (;;) {} } catch (e) { emit(1) }", "all Timeout timeout"),
        ("for (;;) { try { for (;;) {} } finally { continue } }", "all Timeout timeout"),
        ("/(a+)+$/.test('a'.repeat(40) + 'b')", "all Timeout timeout"),
        ("var a = []; for (;;) a.push('x'.repeat(100000) + a.length)", "Memory InternalError: out of memory"),
        ("(function f() { f() })()", "Thrown RangeError: Maximum call stack size exceeded"),
        ("var a = []; a[0] = a; for (var i = 0; i < 1e5; i++) a = [a]; emit(a)", "Thrown "),
        ("emit({toJSON: function () { for (;;) {} }})", "all Timeout timeout"),
        (
            "throw {get message() { for (;;) {} }, toString: function () { for (;;) {} }}",
            "all Timeout timeout",
        ),
        ("Object.prototype.toJSON = function () { throw 1 }; emit({})", "Thrown 1"),
    ];
    for (body, expected) in hostile {
        let source = format!("function(d) {{ if (d.hostile) {{ {body} }} emit(d.x, 1) }}");
        let mut functions = functions(&[&source], limits);
        for _ in 0..3 {
            functions.set_time(if expected.contains("Timeout") { short } else { long });
            let rows = map(&mut functions, r#"{"hostile":true}"#);
            assert!(rows[0].starts_with(expected), "{body}: {}", rows[0]);
            functions.set_time(long);
            let after = map(&mut functions, r#"{"x":5}"#);
            assert_eq!(after, ["5=1"], "after {body}");
        }
    }
}

#[test]
fn what_promises_leave_to_be_done_keeps_no_documents() {
    let limits = Limits { time: Duration::from_secs(600), memory: 16 << 20, stack: 256 << 10 };
    let mut waiting = functions(
        &["async function(d) { emit(d.x); await 0; emit('late'); }", "function(d) { emit(2) }"],
        limits,
    );
    let text = "y".repeat(10_000);
    for x in 0..3_000 {
        let rows = map(&mut waiting, &format!(r#"{{"x":{x},"text":"{text}"}}"#));
        assert_eq!(rows, [format!("{x}=null"), "2=null".to_owned()]);
    }
}

#[test]
fn promises_that_never_end_are_a_loop() {
    let long = Duration::from_secs(600);
    let limits = Limits { time: long, memory: 16 << 20, stack: 256 << 10 };
    let source =
        "function(d) { emit(1); (function again() { if (d.hostile) Promise.resolve().then(again) })() }";
    let mut functions = functions(&[source], limits);
    for _ in 0..2 {
        functions.set_time(Duration::from_millis(100));
        assert_eq!(map(&mut functions, r#"{"hostile":true}"#), ["all Timeout timeout"]);
        functions.set_time(long);
        assert_eq!(map(&mut functions, "{}"), ["1=null"]);
    }
}

#[test]
fn sources_are_checked() {
    let mut checker = Checker::default();
    let mut check = |source: &str| checker.check(source);
    for source in
        ["function (doc, meta) { }", "  (a) => a", "\nfunction x() {}", "function(){ undeclared = 010; }"]
    {
        assert_eq!(check(source), Ok(()), "{source}");
    }
    for source in ["1", "'function'", "{}", "null"] {
        assert_eq!(check(source), Err(Invalid::NotAFunction), "{source}");
    }
    for source in ["function (doc) { emit(; }", "function(){};", "", "function(){} // x", "function(", "\0"] {
        assert!(matches!(check(source), Err(Invalid::Syntax(_))), "{source}: {:?}", check(source));
    }
    let Err(Invalid::Syntax(text)) = check("function (doc) { emit(; }") else { panic!("no syntax error") };
    assert!(text.starts_with("SyntaxError: ") && text.contains(" (line 1:"), "{text}");
}

#[test]
fn values_are_reduced() {
    let reduces = [
        "function(keys, values, rereduce) { return [keys, sum(values), rereduce] }",
        "function(k, v) { return 'x'.repeat(v[0]) }",
        "function() {}",
        "function() { throw 'no' }",
    ];
    let sources = Sources { maps: Vec::new(), reduces: reduces.map(str::to_owned).to_vec() };
    let mut functions = Functions::new(sources, Limits::default(), true).unwrap();
    assert_eq!(
        functions.reduce(0, Some(&["\"a\"", "[1]"]), &["1", "2.0"]).as_deref(),
        Ok("[[\"a\",[1]],3,false]")
    );
    assert_eq!(functions.reduce(0, None, &["4"]).as_deref(), Ok("[null,4,true]"));
    assert_eq!(functions.reduce(2, None, &["4"]).as_deref(), Ok("null"));
    assert_eq!(functions.reduce(1, Some(&["1"]), &["65533"]).map(|text| text.len()), Ok(65535));
    assert_eq!(functions.reduce(1, Some(&["1"]), &["65534"]).unwrap_err().text, "reduction too large");
    assert_eq!(functions.reduce(3, None, &["4"]).unwrap_err(), Failure::new(FailureKind::Thrown, "no"));
    assert!(functions.reduce(9, None, &["4"]).is_err());
}
