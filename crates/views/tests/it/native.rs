//! Programs give the rows of the engine, or none.

use fastrand::Rng;
use settee_views::{
    js::{Body, Document, Functions, Limits, Row, Sources},
    native::{Given, Programs},
};

use crate::{js::META, texts};

/// A document with that body.
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl Given for Text<'_> {
    fn id(&self) -> &str {
        "a"
    }

    fn json(&self) -> Option<&str> {
        Some(self.0)
    }

    fn meta(&self) -> &str {
        META
    }
}

fn sources(maps: &[String]) -> Sources {
    Sources { maps: maps.to_vec(), reduces: Vec::new() }
}

fn by_program(map: &str, text: &str) -> Option<Vec<Vec<Row>>> {
    Programs::of(&sources(&[map.to_owned()])).expect("a program").rows(&Text(text))
}

/// What the engine makes of it; an error where any function has one.
fn by_engine(functions: &mut Functions, text: &str) -> Result<Vec<Vec<Row>>, String> {
    let mapped = functions.map(&Document { meta: META, body: Body::Json(text) });
    let rows = mapped.rows.map_err(|failure| failure.text)?;
    rows.into_iter().collect::<Result<_, _>>().map_err(|failure| failure.text)
}

const NAMES: &[&str] = &["a", "b", "tags", "n", "length"];
const SIGNS: &[&str] = &["==", "!=", "===", "!==", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "&&", "||"];
const CONSTANTS: &[&str] =
    &["0", "1", "2.5", "'a'", "\"é\\n\"", "''", "null", "true", "false", "undefined", "1e"];

fn one<'a>(random: &mut Rng, of: &[&'a str]) -> &'a str {
    of[random.usize(..of.len())]
}

fn expression(random: &mut Rng, levels: u32) -> String {
    let name = one(random, NAMES);
    let inner = |random: &mut Rng| expression(random, levels - 1);
    match random.u32(..if levels == 0 { 7 } else { 15 }) {
        0..=2 => format!("doc.{name}"),
        3 => one(random, CONSTANTS).trim_end_matches('e').to_owned(),
        4 => one(random, &["meta.id", "meta.type", "meta.expiration", "meta.none", "meta", "doc"]).to_owned(),
        5 => one(random, &["x", "y"]).to_owned(),
        6 => format!("doc['{name}']"),
        7 => format!("({}).{name}", inner(random)),
        8 => format!("({})[{}]", inner(random), random.u8(..6)),
        9 => format!("(!{})", inner(random)),
        10 => format!("(typeof {})", inner(random)),
        11 => format!("({} ? {} : {})", inner(random), inner(random), inner(random)),
        12 => format!("(- {})", inner(random)),
        _ => {
            let sign = one(random, SIGNS);
            format!("({} {sign} {})", inner(random), inner(random))
        }
    }
}

fn emitted(random: &mut Rng, levels: u32) -> String {
    match random.u8(..if levels == 0 { 3 } else { 6 }) {
        0..=2 => expression(random, 2),
        3 => format!("[{}, {}]", emitted(random, levels - 1), emitted(random, levels - 1)),
        4 => format!("{{k: {}, 'l m': {}}}", emitted(random, levels - 1), emitted(random, levels - 1)),
        _ => "null".to_owned(),
    }
}

fn statement(random: &mut Rng, levels: u32) -> String {
    let inner = |random: &mut Rng| statement(random, levels - 1);
    match random.u32(..if levels == 0 { 8 } else { 14 }) {
        0..=3 => format!("emit({}, {});", emitted(random, 2), emitted(random, 2)),
        4 => format!("emit({})\n", emitted(random, 1)),
        5 => format!("x = {};", expression(random, 2)),
        6 => one(random, &["x++;", "y += 1;", "y -= x\n", "return;", "x--;", ";", "emit();"]).to_owned(),
        7 => format!("var y = {}, x;", expression(random, 2)),
        8 => format!("if ({}) {{ {} }}", expression(random, 2), inner(random)),
        9 => format!("if ({}) {} else {{ {} }}", expression(random, 1), inner(random), inner(random)),
        10 => {
            let name = one(random, NAMES);
            let end = one(random, &["", "break;", "continue;", "if (x) break;"]);
            format!(
                "for (i = 0; i < doc.{name}.length; i++) {{ emit(doc.{name}[i], i); {} {end} }}",
                inner(random)
            )
        }
        11 => format!("for (var x = 0, n = 3; x < n; x += 1) {{ {} if (x > 4) return; }}", inner(random)),
        _ => format!("{}\n{}", inner(random), inner(random)),
    }
}

fn document(random: &mut Rng) -> String {
    if random.u8(..12) == 0 {
        return texts::value(random, 2);
    }
    let mut members = Vec::new();
    for _ in 0..random.usize(..7) {
        let name =
            one(random, &["a", "b", "tags", "tags", "n", "length", "\\u0061", "__proto__", "2", "toString"]);
        let value = match random.u8(..4) {
            0 => format!("[{}, [{}] , 3,4, 5]", texts::value(random, 1), texts::value(random, 1)),
            1 => random.u8(..4).to_string(),
            _ => texts::value(random, 2),
        };
        members.push(format!("\"{name}\" : {value}"));
    }
    format!("{{ {} }}", members.join(" , "))
}

#[test]
fn programs_give_the_rows_of_the_engine() {
    let mut random = Rng::with_seed(11);
    let (mut programs, mut certain, mut rows, mut given_up, mut loops) = (0, 0, 0, 0, 0);
    for round in 0..3000 {
        let map = |random: &mut Rng| {
            format!("function (doc, meta) {{ var x = 0, y = 1; {} }}", statement(random, 3))
        };
        let maps: Vec<String> = (0..random.usize(1..3)).map(|_| map(&mut random)).collect();
        let mut functions = match Functions::new(sources(&maps), Limits::default(), false) {
            Ok(functions) => functions,
            Err(failure) => {
                assert!(Programs::of(&sources(&maps)).is_none(), "no program: {maps:#?}: {}", failure.text);
                continue;
            }
        };
        let Some(native) = Programs::of(&sources(&maps)) else { continue };
        programs += 1;
        for _ in 0..8 {
            let text = document(&mut random);
            let Some(found) = native.rows(&Text(&text)) else {
                given_up += 1;
                continue;
            };
            certain += 1;
            rows += found.iter().flatten().count();
            loops +=
                usize::from(found.iter().flatten().count() > 0 && maps.iter().any(|map| map.contains("i++")));
            let expected = by_engine(&mut functions, &text);
            assert_eq!(Ok(found), expected, "round {round}: {maps:#?} over {text}");
        }
    }
    assert!(
        programs > 2000 && certain > 5000 && rows > 5000 && given_up > 500 && loops > 100,
        "{programs} programs, {certain} documents with {rows} rows, {given_up} given up, {loops} by loops"
    );
}

#[test]
fn the_shapes_that_are_common_are_programs() {
    let published = "function (doc, meta) {\n  for(i=0;i<doc.tags.length;i++)\n  {\n    if(doc.tags[i][0]==\"electronic\")\n      emit(meta.id, doc);\n  }\n}";
    let shapes = [
        published,
        "function (doc, meta) { emit(meta.id, null); }",
        "function (doc) { if (doc.type == 'x' && doc.a) { emit(doc.a, doc.b) } }",
        "function (d, m) { if (m.type == \"json\") emit([d.a, d.b.c], {n: d.n}); // done\n }",
        "function (doc, meta) { var t = doc.tags || null; for (var i = 0; t && i < t.length; i++) { emit(t[i]); } }",
        "function map(doc) {\n  emit(doc.n, 1)\n  emit(doc.n, 2)\n}",
    ];
    for shape in shapes {
        let text = "{\"type\":\"x\",\"a\":1,\"b\":{\"c\":[]},\"n\":\"\\u00e9\",\"tags\":[[\"electronic\",\"1\"],[\"x\"],[\"electronic\"]]}";
        let mut functions = Functions::new(sources(&[shape.to_owned()]), Limits::default(), true).unwrap();
        let rows = by_program(shape, text).unwrap_or_else(|| panic!("given up: {shape}"));
        assert_eq!(Ok(rows.clone()), by_engine(&mut functions, text), "{shape}");
        assert!(!rows[0].is_empty(), "{shape}");
    }
}

#[test]
fn anything_else_is_left_to_the_engine() {
    let sources_of = |body: &str| format!("function (doc, meta) {{ {body} }}");
    let bodies = [
        "emit(doc.a.toString(), 1);",
        "emit(doc.constructor, 1);",
        "emit(i, 1);",
        "for (i = 0; i < 2; i++) {} emit(i, 1);",
        "for (i = i; i < 2; i++) {}",
        "for (i = 0; i < 2; i++) {} var i; emit(i, 1);",
        "for (sum = 0; sum < 2; sum++) {}",
        "for (Map = 0; Map < 2; Map++) {}",
        "for (doc = 0; doc < 2; doc++) {}",
        "doc.a = 1;",
        "var emit = 1;",
        "var a = [1];",
        "emit(doc.a, 1)\n(1)",
        "var a = doc.a\n[0]; emit(a, {__proto__: 1});",
        "emit({1: 2}, 1);",
        "emit({a: 1, a: 2}, 1);",
        "emit(010, 1);",
        "emit(0x10, 1);",
        "emit('\\x41', 1);",
        "emit(doc?.a, 1);",
        "emit(doc.a ** 2, 1);",
        "emit(1, 2, 3);",
        "emit(`a`, 1);",
        "break;",
        "a <!--b\n;",
        "while (true) {}",
        "emit(this, 1);",
        "throw 1;",
        "if (doc.a) function f() {}",
        "emit(doc.a, 1) emit(2, 2);",
        "'use strict'; emit(1, 1);",
        "emit(123456789012345678, 1);",
        "emit(0.12345678901234567, 1);",
    ];
    let is_program = |source: &str| Programs::of(&sources(&[source.to_owned()])).is_some();
    for body in bodies {
        assert!(!is_program(&sources_of(body)), "{body}");
    }
    for source in [
        "(doc) => emit(1, 1)",
        "function (doc, doc) { emit(1, 1); }",
        "function (doc) { emit(1, 1); }, 1",
        "function (doc) { emit(1, 1);",
        "function i(doc) { for (i = 0; i < 2; i++) emit(i, 1); }",
        "function emit(doc) { emit(1, 1); }",
        "function (doc) { emit(1, 1); } function (doc) {}",
        &format!("function (doc) {{ emit({}1{}, 1); }}", "(".repeat(500), ")".repeat(500)),
        &format!("function (doc) {{ emit({}, 1); }}", vec!["1"; 500].join(" + ")),
        &format!("function (doc) {{ emit(doc{}, 1); }}", "[0]".repeat(500)),
    ] {
        assert!(!is_program(source), "{source}");
    }
    let with_reduction = |map: &str| {
        let maps = vec![sources_of(map)];
        Programs::of(&Sources { maps, reduces: vec!["function (k, v) { return i; }".to_owned()] }).is_some()
    };
    assert!(!with_reduction("for (i = 0; i < 2; i++) emit(i, 1);"));
    assert!(with_reduction("for (var i = 0; i < 2; i++) emit(i, 1);"));
}

#[test]
fn a_run_that_takes_long_or_emits_much_is_given_up() {
    let long = format!("{{\"a\":\"{}\",\"b\":[{}]}}", "x".repeat(600_000), vec!["1"; 70_000].join(","));
    for body in [
        "for (;;) {}",
        "for (var i = 0; i < 1; i += 0) emit(i, 1);",
        "for (var i = 0; i < 3; i++) { emit(i, doc.a); }",
        "emit(doc.a, 1);",
        "for (var i = 0; i < doc.b.length; i++) { emit(i, 1); }",
        "var x = 'xxxxxxxxxxxxxxxx'; for (var i = 0; i < 60; i++) { x = x + x; }",
        "for (var i = 0; i < 1000000; i++) { if (doc.a == doc.a + 'x') break; }",
    ] {
        let map = format!("function (doc) {{ {body} }}");
        assert_eq!(by_program(&map, &long), None, "{body}");
    }
}
