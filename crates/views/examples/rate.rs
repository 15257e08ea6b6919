//! What map functions take in the engine for a document: `cargo run --profile models -p settee-views --example rate -- FILE`.
//!
//! `FILE` has a document per line. The time is that of one thread on a processor, without an index. In the end functions run in a process
//! of their own, as in a node; the time is told of both sides.

use std::{
    error::Error,
    fs,
    hint::black_box,
    io,
    process::{Command, ExitCode},
    time::Duration,
};

use settee_views::{
    js::{Body, Document, Functions, Limits, Sources},
    meta,
    worker::{Host, Job, OwnedBody, OwnedDocument, Settings, serve},
};

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

/// So many documents are sent to a process at once.
const BATCH: usize = 1024;

/// Seconds that this thread was on a processor.
fn on_processor() -> f64 {
    spent("/proc/thread-self/schedstat")
}

fn spent(path: &str) -> f64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split(' ').next().and_then(|time| time.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Microseconds for a document on this side, and in a process of its own.
fn through_process(source: &str, documents: &[&str]) -> Result<(f64, f64), Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let mut host = Host::new(Settings::default(), move || {
        let mut command = Command::new(&program);
        command.arg("worker");
        command
    });
    host.define(0, Sources { maps: vec![source.to_owned()], reduces: Vec::new() }, true);
    let begin = on_processor();
    for part in documents.chunks(BATCH) {
        let owned = |(at, text): (usize, &&str)| OwnedDocument {
            meta: meta::id_alone(&format!("d{at}")),
            body: OwnedBody::Json((*text).to_owned()),
        };
        host.submit(Job::Map { context: 0, documents: part.iter().enumerate().map(owned).collect() });
        while !host.is_idle() {
            black_box(host.turn(Duration::from_millis(50))?);
        }
    }
    let process = host.process_id().ok_or("no process")?;
    let micros = |seconds: f64| seconds * 1e6 / documents.len() as f64;
    Ok((micros(on_processor() - begin), micros(spent(&format!("/proc/{process}/schedstat")))))
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("worker") {
        let served = serve(&mut io::stdin().lock(), &mut io::stdout().lock());
        return if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
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
    for (name, source) in FUNCTIONS {
        match through_process(source, &documents) {
            Ok((here, there)) => {
                println!("{name:24} in a process {there:6.2} µs/document, beside it {here:6.2}");
            }
            Err(error) => eprintln!("{name}: {error}"),
        }
    }
    ExitCode::SUCCESS
}
