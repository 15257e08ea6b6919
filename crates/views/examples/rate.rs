//! What map functions take in the engine for a document: `cargo run --profile models -p settee-views --example rate -- FILE`.
//!
//! `FILE` has a document per line. The time is that of one thread on a processor, without pipes and without an index.

use std::{fs, hint::black_box, process::ExitCode};

use settee_views::js::{Body, Document, Functions, Limits, Sources};

const FUNCTIONS: &[(&str, &str)] = &[
    (
        "a tag, document emitted",
        "function (doc, meta) { for (i = 0; i < doc.tags.length; i++) { if (doc.tags[i][0] == \"electronic\") { emit(meta.id, doc); break; } } }",
    ),
    ("one member", "function (doc, meta) { emit(doc.artist, 1); }"),
    ("no document", "function (doc, meta) { emit(meta.id, null); }"),
    ("the whole document", "function (doc, meta) { emit(meta.id, [doc]); }"),
    ("its number of members", "function (doc, meta) { emit(meta.id, Object.keys(doc).length); }"),
];

/// Seconds that this thread was on a processor.
fn on_processor() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|time| time.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn main() -> ExitCode {
    let Some(text) = std::env::args().nth(1).and_then(|path| fs::read_to_string(path).ok()) else {
        eprintln!("no file of documents, one per line");
        return ExitCode::FAILURE;
    };
    let documents: Vec<&str> = text.lines().collect();
    for (name, source) in FUNCTIONS {
        for analysed in [true, false] {
            let sources = Sources { maps: vec![(*source).to_owned()], reduces: Vec::new() };
            let mut functions = match Functions::new(sources, Limits::default(), analysed) {
                Ok(functions) => functions,
                Err(failure) => {
                    eprintln!("{name}: {}", failure.text);
                    return ExitCode::FAILURE;
                }
            };
            let (begin, mut mapped, mut rows) = (on_processor(), 0_u32, 0);
            while on_processor() - begin < 1.0 {
                for (at, body) in documents.iter().enumerate() {
                    let meta = format!(
                        "{{\"id\":\"d{at}\",\"rev\":\"1-0000000000000000\",\"type\":\"json\",\"xattrs\":{{}}}}"
                    );
                    let result = black_box(functions.map(&Document { meta: &meta, body: Body::Json(body) }));
                    rows += result.rows.map_or(0, |views| views.iter().flatten().map(Vec::len).sum());
                    mapped += 1;
                }
            }
            let micros = (on_processor() - begin) * 1e6 / f64::from(mapped);
            println!("{name:24} analysed {analysed:5} {micros:6.2} µs/document, {rows} rows");
        }
    }
    ExitCode::SUCCESS
}
