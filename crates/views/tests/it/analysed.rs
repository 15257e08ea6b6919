//! Rows are the same whether functions are analysed or not, and canonical texts are the engine's.

use fastrand::Rng;
use settee_views::{
    analysis::{self, Need},
    canonical,
    js::{Body, Document, FailureKind, Functions, Limits, Sources},
};

use crate::{js::META, texts};

const NAMES: &[&str] = &["a", "b", "tags", "n"];

fn expression(random: &mut Rng, levels: u32) -> String {
    let name = NAMES[random.usize(..NAMES.len())];
    match random.u32(..if levels == 0 { 4 } else { 9 }) {
        0 | 1 => format!("doc.{name}"),
        2 => ["meta.id", "meta.id", "meta.type", "meta.none", "meta"][random.usize(..5)].to_owned(),
        3 => random.u8(..9).to_string(),
        4 => format!("[{}, {}]", expression(random, levels - 1), expression(random, levels - 1)),
        5 => format!("({} || {})", expression(random, levels - 1), expression(random, levels - 1)),
        6 => format!("typeof {}", expression(random, levels - 1)),
        7 => format!("(doc.{name} && doc.{name}.length)"),
        _ => format!("{{k: {}}}", expression(random, levels - 1)),
    }
}

fn statement(random: &mut Rng, levels: u32) -> String {
    let name = NAMES[random.usize(..NAMES.len())];
    let value = expression(random, 2);
    match random.u32(..if levels == 0 { 9 } else { 12 }) {
        0..=2 => format!("emit({value}, {});", expression(random, 1)),
        3 | 4 => format!("emit({value}, doc);"),
        5 => format!("doc.{name} = {value};"),
        6 => format!("if (doc.{name} && doc.{name}.push) {{ doc.{name}.push({value}); }}"),
        7 => format!("seen = typeof seen == 'undefined' ? 0 : seen + 1; emit(seen, {value});"),
        8 => {
            if random.u8(..8) == 0 {
                "for (var k in doc) emit(k, doc[k]);".to_owned()
            } else {
                format!("doc.{name};")
            }
        }
        9 => format!("if ({value}) {{ {} }}", statement(random, levels - 1)),
        10 => format!("for (i in doc.{name}) {{ emit(i, doc.{name}[i]); }}"),
        _ => format!("{}\n{}", statement(random, levels - 1), statement(random, levels - 1)),
    }
}

fn document(random: &mut Rng) -> String {
    if random.u8(..12) == 0 {
        return texts::value(random, 2);
    }
    let extra = ["x", "10", "2", "\\u0061", "__proto__", "toString", "constructor"];
    let mut members = Vec::new();
    for _ in 0..random.usize(..7) {
        let known = random.u8(..3) > 0;
        let name =
            if known { NAMES[random.usize(..NAMES.len())] } else { extra[random.usize(..extra.len())] };
        members.push(format!("\"{name}\" : {}", texts::value(random, 2)));
    }
    format!("{{ {} }}", members.join(" , "))
}

/// What functions emit for documents, one text per document.
fn mapped(maps: &[String], documents: &[String], analysed: bool) -> Vec<String> {
    let sources = Sources { maps: maps.to_vec(), reduces: Vec::new() };
    let mut functions = Functions::new(sources, Limits::default(), analysed)
        .unwrap_or_else(|error| panic!("{maps:?}: {error:?}"));
    let map =
        |text: &String| format!("{:?}", functions.map(&Document { meta: META, body: Body::Json(text) }));
    documents.iter().map(map).collect()
}

/// What functions emit for documents that another side has whole, and of which they are given as much as they look at.
fn mapped_by_parts(
    maps: &[String],
    documents: &[String],
    (asked_again, left_out): (&mut u32, &mut u32),
) -> Vec<String> {
    let Need::Members { names, emitted: true } = analysis::need_of_all(maps) else {
        return mapped(maps, documents, true);
    };
    let sources = Sources { maps: maps.to_vec(), reduces: Vec::new() };
    let mut functions = Functions::new(sources, Limits::default(), true).expect("functions");
    let mut told = Vec::new();
    for whole in documents {
        let mut ask = |body| functions.map(&Document { meta: META, body });
        let Some(text) = canonical::projected(whole, &names) else {
            told.push(format!("{:?}", ask(Body::Json(whole))));
            continue;
        };
        let whole_bytes = u32::try_from(whole.len()).expect("a length");
        let mut one = ask(Body::Part { text: &text, whole_bytes });
        let mut lacks = one.rows.as_ref().is_err_and(|failure| failure.kind == FailureKind::Part);
        for row in one.rows.iter_mut().flatten().flatten().flatten().filter(|row| row.value.is_empty()) {
            *left_out += u32::from(text.len() < whole.len() / 2);
            match canonical::stringified(whole) {
                Some(text) => row.value = text,
                None => lacks = true,
            }
        }
        if lacks {
            *asked_again += 1;
            one = ask(Body::Json(whole));
        }
        told.push(format!("{one:?}"));
    }
    told
}

#[test]
fn analysis_changes_no_row() {
    let mut random = Rng::with_seed(5);
    let (mut parts, mut emitted_whole) = (0, 0);
    let (mut asked_again, mut left_out) = (0, 0);
    for round in 0..1500 {
        let count = random.usize(1..3);
        let maps: Vec<String> =
            (0..count).map(|_| format!("function (doc, meta) {{ {} }}", statement(&mut random, 3))).collect();
        let documents: Vec<String> = (0..8).map(|_| document(&mut random)).collect();
        if let Need::Members { emitted, .. } = analysis::need_of_all(&maps) {
            parts += 1;
            emitted_whole += u32::from(emitted);
        }
        let (with, without) = (mapped(&maps, &documents, true), mapped(&maps, &documents, false));
        // A function that counts the documents that it sees counts those twice that it is asked about twice.
        let counts = maps.iter().any(|map| map.contains("seen"));
        let by_parts = if counts {
            with.clone()
        } else {
            mapped_by_parts(&maps, &documents, (&mut asked_again, &mut left_out))
        };
        for (at, document) in documents.iter().enumerate() {
            assert_eq!(with[at], without[at], "round {round}: {maps:#?} over {document}");
            assert_eq!(by_parts[at], without[at], "round {round}, by parts: {maps:#?} over {document}");
        }
    }
    assert!(
        parts > 500 && emitted_whole > 100,
        "only {parts} functions read members, {emitted_whole} emitted documents"
    );
    assert!(
        asked_again > 50 && left_out > 50,
        "{asked_again} documents were asked about again, of {left_out} most was left out"
    );
}

#[test]
fn analysis_is_not_fooled() {
    let documents = [r#"{"x":2,"y":3,"k":"a","f":[1]}"#.to_owned()];
    for map in [
        "function (doc, meta) { var of = 8; emit(meta.id, of / doc.x / 2); }",
        "function (doc, meta) { var a\n/\"/; emit(meta.id, doc.x); /\"/ }",
        "function (doc, meta) { for (;;) { break\n/\"/; emit(meta.id, doc.x); /\"/ } emit(1, 2) }",
        "function (doc) { emit(...[], doc) }",
        "function (doc) { doc.f = [].concat; emit(1, (doc.f)()) }",
        "function (doc) { doc.f = [].concat; emit(1, ((doc.f))()) }",
        "function (doc) { doc.f = [].concat; emit(1, doc.f?.()) }",
        "function (doc) { doc.f = [].concat; emit(1, (doc.f)?.()) }",
        "function (doc) { doc.f = function () { return Object.keys(this || 0).length }; emit(1, (0, doc.f)()) }",
        "function (doc) { doc.f = function () { return 1 }; emit(1, (doc.f || 1)()) }",
        "function (doc) { doc.f = [].concat; emit(1, (doc.f ? doc.f : 1)()) }",
        "function (doc) { doc.f = [].concat; emit(1, (doc.f ?? 1)()) }",
        "function (doc) { doc.f = [].concat; emit(1, (doc.f = doc.f)()) }",
        "function (doc) { doc.f = [].concat; emit(1, (1, doc.f)()) }",
        "function (doc) { doc.f = [].concat; emit(1, (1 && doc.f)()) }",
        "function (doc) { [].map['constructor']('e=emit;emit=function(k,v){e(k,[v])}')(); emit(1, doc) }",
    ] {
        let maps = [map.to_owned()];
        assert_eq!(mapped(&maps, &documents, true), mapped(&maps, &documents, false), "{map}");
    }
}

#[test]
fn canonical_texts_are_those_of_the_engine() {
    let sources = Sources { maps: vec!["function (d) { emit(1, [d]) }".to_owned()], reduces: Vec::new() };
    let mut functions = Functions::new(sources, Limits::default(), false).unwrap();
    let mut random = Rng::with_seed(6);
    let mut numbers = 0;
    for _ in 0..6000 {
        let text = match random.u8(..4) {
            0 => {
                let number = f64::from_bits(random.u64(..));
                numbers += 1;
                if number.is_finite() { format!("{number:e}") } else { "0".to_owned() }
            }
            1 => format!("{}{}", random.i64(..), if random.bool() { "e-7" } else { "" }),
            2 => {
                let names = [
                    "0",
                    "1",
                    "00",
                    "2147483647",
                    "2147483648",
                    "4294967294",
                    "4294967295",
                    "4294967296",
                    "-1",
                    "1.0",
                    "b",
                    "__proto__",
                ];
                let member = |random: &mut Rng| {
                    format!("\"{}\":{}", names[random.usize(..names.len())], random.u8(..9))
                };
                let members: Vec<String> = (0..random.usize(..20)).map(|_| member(&mut random)).collect();
                format!("{{{}}}", members.join(","))
            }
            _ => texts::value(&mut random, 4),
        };
        let mapped = functions.map(&Document { meta: META, body: Body::Json(&text) });
        let rows = mapped.rows.unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
        let expected = rows[0]
            .as_ref()
            .map(|rows| rows[0].value.clone())
            .unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
        assert_eq!(canonical::stringified(&format!("[{text}]")), Some(expected), "{text}");
    }
    assert!(numbers > 1000);
}
