//! What a source or a document may cost a program, and what of the engine a program has to know.

use std::fmt::Write as _;

use settee_views::{
    js::{Body, Document, Functions, Limits, Sources},
    native::Programs,
};

use crate::{js::META, native::Text};

fn sources(map: &str) -> Sources {
    Sources { maps: vec![map.to_owned()], reduces: Vec::new() }
}

fn is_program(map: &str) -> bool {
    Programs::of(&sources(map)).is_some()
}

fn compiles(map: &str) -> bool {
    Functions::new(sources(map), Limits::default(), false).is_ok()
}

fn is_given_up(body: &str, text: &str) -> bool {
    let map = format!("function (doc, meta) {{ {body} }}");
    Programs::of(&sources(&map)).expect("a program").rows(&Text(text)).is_none()
}

/// The texts of the keys that the engine emits.
fn keys_of_engine(map: &str, text: &str) -> Result<Vec<String>, String> {
    let mut functions = Functions::new(sources(map), Limits::default(), true).expect("a function");
    let rows = functions.map(&Document { meta: META, body: Body::Json(text) }).rows;
    let rows = rows.map_err(|failure| failure.text)?.remove(0).map_err(|failure| failure.text)?;
    Ok(rows.into_iter().map(|row| row.key).collect())
}

#[test]
fn what_is_no_function_is_no_program() {
    let sources = [
        "function (doc) { emit(1, 1); } // done",
        "function (doc) { emit(1, 1); }//",
        "function (doc) { var x = 1; x\n++; }",
        "function (doc) { var x = 1; x\n++\nemit(x, 1); }",
        "function (doc) { var x = 1; for (; x < 2; x\n++) {} }",
        "function (doc) { emit('\0', 1); }",
        "function (doc) { /* \0 */ emit(1, 1); }",
    ];
    for source in sources {
        assert!(!is_program(source), "{source:?}");
        assert!(!compiles(source), "{source:?}");
    }
    let good = "function (doc) { emit(1, 1); } // done\n";
    assert!(compiles(good) && is_program(good));
}

/// An expression whose tree is deep although few of its brackets are within one another.
fn chained(levels: usize, inside: &str) -> String {
    let mut source = inside.to_owned();
    for _ in 0..levels {
        source = format!("({source}{})", " * 1".repeat(40));
        source.truncate(source.len() - 1);
        for sign in ["+ 1", "< 1", "== 1", "&& 1", "|| 1"] {
            source.push_str(&format!(" {sign}").repeat(40));
        }
        source.push(')');
    }
    source
}

#[test]
fn no_tree_is_deep() {
    // On a thread of the usual stack, as the lanes of the indexer are.
    let source = format!("function (doc) {{ emit({}, 1); }}", chained(9, "doc.a"));
    let run = move || {
        let programs = Programs::of(&sources(&source));
        let is_some = programs.is_some();
        drop(programs.and_then(|programs| programs.rows(&Text("{\"a\":1}"))));
        is_some
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).expect("a thread");
    assert!(!thread.join().expect("an end"));
    for link in [".a", "[0]", " + 1"] {
        let statement = |count: usize| format!("function (doc) {{ emit(doc{}, 1); }}", link.repeat(count));
        assert!(is_program(&statement(20)), "{link}");
        assert!(!is_program(&statement(201)), "{link}");
        let statements = "emit(doc{link}, 1);".replace("{link}", &link.repeat(20)).repeat(15);
        assert!(is_program(&format!("function (doc) {{ {statements} }}")), "{link}");
    }
}

#[test]
fn no_source_is_long() {
    let mut names = [String::new(), String::new(), String::new()];
    for at in 0..2000 {
        for (names, name) in names.iter_mut().zip(["a", "doc.a", "a"]) {
            let value = if name == "a" { ": 1" } else { "" };
            write!(names, "{}{name}{at}{value}", if names.is_empty() { "" } else { ", " }).expect("memory");
        }
    }
    let [members, read, _] = names;
    assert!(!is_program(&format!("function (doc) {{ emit({{{members}}}, 1); }}")));
    assert!(!is_program(&format!("function (doc) {{ emit([{read}], 1); }}")));
    let declared = members.replace(": 1", " = 1");
    assert!(!is_program(&format!("function (doc) {{ var {declared}; }}")));
    assert!(!is_program(&format!("function (doc) {{ {} }}", ";".repeat(100_000))));
}

#[test]
fn what_is_read_again_counts_again() {
    let long = "\\u0041".repeat(20_000);
    let text = format!("{{\"a\":\"{long}\",\"b\":[\"{long}\"]}}");
    let scalar = format!("\"{long}\"");
    let looped = |condition: &str| format!("for (var i = 0; i < 2000; i++) {{ if ({condition}) break; }}");
    assert!(is_given_up(&looped("!doc.a"), &text));
    assert!(is_given_up(&looped("!doc.b[0]"), &text));
    assert!(is_given_up(&looped("!doc"), &scalar));
    let flat = format!("{{\"a\":\"{}\"}}", "A".repeat(120_000));
    assert!(is_given_up(&looped("!doc.a"), &flat));
}

#[test]
fn what_the_engine_does_not_parse_is_given_up() {
    for levels in [300, 900, 20_000] {
        let deep = "[".repeat(levels) + &"]".repeat(levels);
        let map = "function (doc) { if (doc.a) emit(1, 1); }";
        let text = format!("{{\"a\":{deep}}}");
        let found = keys_of_engine(map, &text);
        assert_eq!(found.is_ok(), levels < 1000, "{found:?}");
        assert_eq!(is_given_up("if (doc[0]) emit(1, 1);", &deep), levels > 1000);
        assert_eq!(is_given_up("if (doc.a) emit(1, 1);", &text), levels > 1000);
        let other = format!("{{\"b\":1,\"c\":{deep}}}");
        assert_eq!(keys_of_engine("function (doc) { emit(doc.b, 1); }", &other), Ok(vec!["1".to_owned()]));
        assert!(!is_given_up("emit(doc.b, 1);", &other), "nobody looks at that");
    }
}

#[test]
fn names_that_the_engine_has_are_left_to_it() {
    let of = |object: &str| {
        let map = format!(
            "function (doc) {{ Object.getOwnPropertyNames({object}).forEach(function (name) {{ emit(name); }}); }}"
        );
        keys_of_engine(&map, "{}").expect("names")
    };
    let inherited = of("Object.prototype");
    assert!(inherited.len() > 8, "{inherited:?}");
    for name in inherited {
        assert!(!is_program(&format!("function (doc) {{ emit(doc[{name}], 1); }}")), "{name}");
        assert!(!is_program(&format!("function (doc) {{ emit({{{name}: 1}}, 1); }}")), "{name}");
    }
    let globals = of("globalThis");
    assert!(globals.len() > 40, "{globals:?}");
    for name in globals {
        let name = name.trim_matches('"');
        let map =
            format!("function (doc) {{ for ({name} = 0; {name} < 1; {name}++) {{ emit({name}, 1); }} }}");
        assert!(!is_program(&map), "{name}");
    }
}

#[test]
fn numbers_are_those_of_the_engine() {
    let mut random = fastrand::Rng::with_seed(5);
    let mut texts: Vec<String> = [
        "0",
        "-0",
        "-0.0",
        "1e21",
        "1e-7",
        "123456789012345678901",
        "9007199254740993",
        "0.1",
        "1e400",
        "-1e400",
        "5e-324",
        "2e-324",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "4294967295",
        "2147483648",
        "-2147483649",
        "999999999999999.9",
        "1e15",
        "1e0000001",
        "8.5e-1000000000000000000000",
        "1e99999999999999999999",
    ]
    .map(str::to_owned)
    .to_vec();
    texts.push(format!("0.{}1", "0".repeat(800)));
    texts.push(format!("1{}", "0".repeat(400)));
    texts.push(format!("9007199254740993.{}1", "0".repeat(700)));
    texts.push(format!("9007199254740993.{}", "0".repeat(700)));
    for _ in 0..3000 {
        texts.push(format!("{:e}", f64::from_bits(random.u64(..))));
        let digits: String = (0..random.usize(1..60)).map(|_| char::from(b'0' + random.u8(..10))).collect();
        texts.push(format!("{}.{digits}e{}", random.u8(..10), random.i32(-330..310)));
        texts.push(format!("1{digits}"));
    }
    texts.extend((-1074..1024).map(|power| format!("{:e}", 2_f64.powi(power))));
    for _ in 0..3000 {
        // Their digits end soon after the last one that tells them from others: two texts may be equally near.
        let value = (random.u64(..1 << 53) as f64) / 2_f64.powi(random.i32(0..60));
        texts.push(format!("{value:.60}"));
    }
    texts.retain(|text| settee_views::json::check(text).is_ok());
    assert!(texts.len() > 5000);
    let map = "function (doc) { emit(doc.a); emit('' + doc.a); emit(1 / doc.a); emit(doc.a % 7); emit(doc.a + 1); }";
    let programs = Programs::of(&sources(map)).expect("a program");
    let mut functions = Functions::new(sources(map), Limits::default(), true).expect("a function");
    for text in texts {
        let text = format!("{{\"a\":{text}}}");
        let Some(rows) = programs.rows(&Text(&text)) else { continue };
        let found = functions.map(&Document { meta: META, body: Body::Json(&text) }).rows;
        assert_eq!(Ok(rows.into_iter().map(Ok).collect()), found, "{text}");
    }
}
