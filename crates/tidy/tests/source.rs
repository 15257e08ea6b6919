//! The rules of CONTRIBUTING that a machine can check.

use settee_tidy::{Source, judge, root, sources};
use std::collections::{BTreeMap, BTreeSet};

const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;

/// From the bottom up: what each crate may use. A crate that is not listed may not exist.
const EDGES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("tidy", &[]),
    ("protocol", &["base"]),
    ("storage", &["base"]),
    ("cluster", &["base"]),
    ("views", &["base", "storage"]),
    ("plan", &[]),
    ("console", &[]),
    ("watch", &[]),
    ("stats", &[]),
    ("client", &["base", "protocol"]),
    ("engine", &["base", "storage"]),
    ("indexer", &["base", "engine", "storage", "views"]),
    ("http", &["base", "cluster"]),
    ("service", &["base", "cluster", "engine", "http", "storage"]),
    ("capi", &["base", "cluster", "engine", "http", "indexer", "service", "storage", "views"]),
    ("admin", &["base", "cluster", "console", "http", "stats", "watch"]),
    ("replication", &["base", "protocol", "engine"]),
    ("node", &["base", "cluster", "engine", "replication"]),
    ("load", &["base", "client", "protocol"]),
    ("torture", &["base", "client", "load", "protocol"]),
    ("dataplane", &["base", "cluster", "engine", "http", "protocol", "replication", "stats", "storage"]),
    (
        "daemon",
        &[
            "admin",
            "base",
            "capi",
            "cluster",
            "dataplane",
            "engine",
            "http",
            "node",
            "plan",
            "protocol",
            "service",
            "stats",
            "storage",
            "watch",
        ],
    ),
    ("cli", &["base", "client", "daemon", "load", "plan", "torture", "views", "watch"]),
];

/// The rooms of `engine`, from the bottom up: what each may import. A folder of `crates/engine/src` that is not listed may not exist.
const ROOMS: &[(&str, &[&str])] = &[
    ("json", &[]),
    ("memory", &[]),
    ("api", &["memory"]),
    ("pressure", &["api", "memory"]),
    ("shard", &["api", "memory", "pressure"]),
    ("vbucket", &["api", "json", "memory", "pressure", "shard"]),
    ("history", &["api", "memory", "shard", "vbucket"]),
    ("bucket", &["api", "history", "memory", "pressure", "shard", "vbucket"]),
    ("background", &["api", "bucket", "memory", "pressure", "shard", "vbucket"]),
    ("feed", &["api", "bucket", "history", "memory", "pressure", "shard", "vbucket"]),
    (
        "replica",
        &["api", "background", "bucket", "feed", "history", "memory", "pressure", "shard", "vbucket"],
    ),
    (
        "client",
        &["api", "background", "bucket", "feed", "history", "json", "memory", "pressure", "shard", "vbucket"],
    ),
];

/// Words that a reader has to read twice, each with what to write instead.
const PHRASES: &[(&str, &str)] = &[
    ("Whoever ", "name the actor: a client, a node, the flusher"),
    ("whoever ", "name the actor: a client, a node, the flusher"),
    (" Who ", "name the actor: a client, a node, the flusher"),
    ("hat there is", "name the thing"),
    ("As there.", "say what applies here"),
    ("as there.", "say what applies here"),
];

fn check(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

fn code() -> Vec<Source> {
    sources(&[".rs"])
}

#[test]
fn files_have_one_job() {
    let lines = code().into_iter().map(|source| (source.path.clone(), source.text.lines().count())).collect();
    check(&judge("file", FILE_LINES, &lines));
}

#[test]
fn functions_have_one_job() {
    let mut longest: BTreeMap<String, usize> = BTreeMap::new();
    for source in code() {
        for (name, lines) in source.functions() {
            let longest = longest.entry(format!("{}:{name}", source.path)).or_default();
            *longest = lines.max(*longest);
        }
    }
    check(&judge("function", FUNCTION_LINES, &longest));
}

#[test]
fn imports_between_crates_run_one_way() {
    let mut wrong = Vec::new();
    let mut below = BTreeSet::new();
    for (name, allowed) in EDGES {
        let path = root().join("crates").join(name).join("Cargo.toml");
        let manifest = std::fs::read_to_string(path).expect("a listed crate is there");
        for used in workspace_dependencies(&manifest) {
            if !allowed.contains(&used.as_str()) {
                wrong.push(format!("{name} uses {used}: change EDGES only with ARCHITECTURE.md"));
            }
        }
        let upward = allowed.iter().filter(|used| !below.contains(*used));
        wrong.extend(upward.map(|used| format!("{name} is listed below {used}, which it uses")));
        below.insert(*name);
    }
    let folders = std::fs::read_dir(root().join("crates")).expect("the crates");
    for folder in folders.flatten().filter(|entry| entry.path().join("Cargo.toml").exists()) {
        let name = folder.file_name().to_string_lossy().into_owned();
        if !below.contains(name.as_str()) {
            wrong.push(format!("{name}: give it a place in EDGES"));
        }
    }
    check(&wrong);
}

/// The crates of this workspace that a manifest names outside of its development dependencies.
fn workspace_dependencies(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut used = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        let is_ours = EDGES.iter().any(|(ours, _)| *ours == name);
        if section.ends_with("dependencies]") && !section.contains("dev-dependencies") && is_ours {
            used.push(name.to_owned());
        }
    }
    used
}

/// A name of another room is imported from that room, not from the root of the crate, so that the room shows.
#[test]
fn imports_between_rooms_of_the_engine_run_downward() {
    const ENGINE: &str = "crates/engine/src/";
    let (mut wrong, mut below) = (Vec::new(), BTreeSet::new());
    for (name, allowed) in ROOMS {
        let upward = allowed.iter().filter(|used| !below.contains(*used));
        wrong.extend(upward.map(|used| format!("{name} is listed below {used}, which it imports")));
        below.insert(*name);
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut seen = 0;
    for source in code() {
        let Some((room, _)) = source.path.strip_prefix(ENGINE).and_then(|path| path.split_once('/')) else {
            continue;
        };
        let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
            wrong.push(format!("{}: give `{room}` a place in ROOMS", source.path));
            continue;
        };
        // `sync` is what the tests of interleavings put something else in the place of.
        let others = source.imports().into_iter().filter(|name| *name != room && *name != "sync");
        for name in others {
            seen += 1;
            if !allowed.contains(&name) {
                *counts.entry(format!("{}->{name}", source.path)).or_default() += 1;
            }
        }
    }
    assert!(seen > 200, "this test sees the imports: {seen}");
    wrong.extend(judge("room", 0, &counts));
    let help = "change ROOMS only with ARCHITECTURE.md";
    assert!(wrong.is_empty(), "\n{}\n\n{help}\n", wrong.join("\n"));
}

#[test]
fn tests_do_not_sleep() {
    let sleeps: BTreeMap<String, usize> = code()
        .into_iter()
        .filter(Source::is_test)
        .map(|source| (source.path.clone(), source.text.matches("sleep(").count()))
        .filter(|(_, sleeps)| *sleeps > 0)
        .collect();
    check(&judge("sleep", 0, &sleeps));
}

#[test]
fn sentences_name_their_actor() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources(&[".rs", ".md"]) {
        let found = source.prose().map(|(_, line)| {
            let said: usize = PHRASES.iter().map(|(phrase, _)| line.matches(phrase).count()).sum();
            // At the beginning of a comment it has a space before it, at the beginning of a line of a document it has not.
            said + usize::from(source.path.ends_with(".md") && line.starts_with("Who "))
        });
        let found: usize = found.sum();
        if found > 0 && !source.path.starts_with("crates/tidy/") {
            counts.insert(source.path.clone(), found);
        }
    }
    let wrong = judge("words", 0, &counts);
    let help: Vec<String> =
        PHRASES.iter().map(|(phrase, instead)| format!("  {phrase:?}: {instead}")).collect();
    assert!(wrong.is_empty(), "\n{}\n\nInstead of\n{}\n", wrong.join("\n"), help.join("\n"));
}

#[test]
fn nothing_tells_where_it_was_written() {
    let checkout = root().canonicalize().expect("the checkout");
    let checkout = checkout.to_string_lossy();
    let everything = sources(&[""]).into_iter();
    let wrong: Vec<String> =
        everything.filter(|source| source.text.contains(&*checkout)).map(|source| source.path).collect();
    check(&wrong);
}

/// What stands between the parenthesis that `text` begins behind and the one that closes it.
fn inside(text: &str) -> &str {
    let (mut depth, mut in_literal, mut escaped) = (1, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_literal = !in_literal,
            b'(' if !in_literal => depth += 1,
            b')' if !in_literal => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// The texts of the warnings and errors that a file logs, up to a placeholder. The text is the last literal of a call.
fn logged(source: &Source) -> Vec<&str> {
    let calls =
        ["tracing::warn!(", "tracing::error!("].into_iter().flat_map(|call| source.text.split(call).skip(1));
    let texts = calls.filter_map(|call| inside(call).rsplit('"').nth(1));
    texts.map(|text| text.split('{').next().unwrap_or(text).trim_end()).collect()
}

/// An operator who meets a warning finds out what to do.
#[test]
fn every_warning_has_an_entry_in_the_operating_guide() {
    let guide = std::fs::read_to_string(root().join("docs/operating/messages.md")).unwrap();
    let of_product = |source: &&Source| !source.is_test() && source.path.contains("/src/");
    let sources = sources(&[".rs"]);
    let found: Vec<(&str, &str)> = sources
        .iter()
        .filter(of_product)
        .flat_map(|source| logged(source).into_iter().map(|text| (source.path.as_str(), text)))
        .collect();
    assert!(found.len() > 60, "this test sees the calls: {}", found.len());
    let missing = found.iter().filter(|(_, text)| !guide.contains(&format!("### `{text}")));
    let missing: Vec<String> = missing
        .map(|(path, text)| format!("{path}: `{text}` has no entry in docs/operating/messages.md"))
        .collect();
    check(&missing);
}
