//! The rules of CONTRIBUTING that a machine can check.

use settee_tidy::{Graph, Source, judge, root, sources};
use std::collections::{BTreeMap, BTreeSet};

const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;
/// A longer sentence has to be read twice.
const SENTENCE_WORDS: usize = 25;

/// From the bottom up: what each crate may use. A crate that is not listed may not exist.
const EDGES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("tidy", &[]),
    ("protocol", &["base"]),
    ("storage", &["base"]),
    ("cluster", &["base"]),
    ("views", &["base", "storage"]),
    ("plan", &[]),
    ("collect", &[]),
    ("console", &[]),
    ("watch", &[]),
    ("stats", &[]),
    ("client", &["base", "protocol"]),
    ("engine", &["base", "storage"]),
    ("indexer", &["base", "engine", "storage", "views"]),
    ("http", &["base", "cluster"]),
    ("service", &["base", "cluster", "engine", "http", "storage"]),
    ("capi", &["base", "cluster", "engine", "http", "indexer", "service", "storage", "views"]),
    ("admin", &["base", "cluster", "collect", "console", "http", "plan", "stats", "watch"]),
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
    ("cli", &["base", "client", "collect", "daemon", "load", "plan", "torture", "views", "watch"]),
];

/// Most files that may import one another in a circle.
const CIRCLE_FILES: usize = 5;

/// Rooms from the bottom up, and what each may import.
type Rooms = &'static [(&'static str, &'static [&'static str])];

/// The crates whose files stand in rooms. A folder of such a crate that is not listed may not exist.
const ROOMS: &[(&str, Rooms)] = &[
    ("engine", ENGINE),
    ("dataplane", DATAPLANE),
    ("daemon", DAEMON),
    ("admin", ADMIN),
    ("cluster", CLUSTER),
];

const ENGINE: Rooms = &[
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

const DATAPLANE: Rooms = &[
    ("net", &[]),
    ("figures", &[]),
    ("state", &["figures", "net"]),
    ("request", &["figures", "net", "state"]),
    ("forward", &["net", "request", "state"]),
    ("statistics", &["figures", "request", "state"]),
    ("handlers", &["figures", "forward", "net", "request", "state", "statistics"]),
    ("connection", &["figures", "forward", "handlers", "net", "request", "state"]),
    ("loops", &["connection", "figures", "net", "request", "state"]),
    ("links", &["loops", "net", "state"]),
];

const DAEMON: Rooms = &[
    ("threads", &[]),
    ("files", &[]),
    ("setup", &["files"]),
    ("statistics", &[]),
    ("audit", &[]),
    ("past", &["files", "statistics"]),
    ("talk", &["setup", "threads"]),
    ("buckets", &["files", "setup", "threads"]),
    ("watching", &["files", "past", "statistics"]),
    ("control", &["audit", "buckets", "past", "setup", "statistics", "talk", "watching"]),
    ("copies", &["buckets", "control", "talk", "threads"]),
    ("duties", &["control", "past", "setup", "watching"]),
];

const CLUSTER: Rooms = &[
    ("rights", &[]),
    ("metadata", &["rights"]),
    ("auth", &["metadata", "rights"]),
    ("changes", &["auth", "metadata", "rights"]),
    ("consensus", &["changes", "metadata"]),
    ("orchestrator", &["changes", "consensus", "metadata"]),
];

const ADMIN: Rooms = &[("node", &[]), ("request", &["node"]), ("routes", &["node", "request"])];

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

/// What each one saves, costs, and could be replaced by.
#[test]
fn every_dependency_has_a_line() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let page = std::fs::read_to_string(root().join("docs/dependencies.md")).expect("the page");
    let section = manifest.split("[workspace.dependencies]").nth(1).and_then(|rest| rest.split("\n[").next());
    let lines = section.expect("dependencies").lines().filter(|line| !line.contains("path = "));
    let names: Vec<&str> = lines.filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    assert!(names.len() > 30, "this test sees the dependencies: {}", names.len());
    let missing = names.iter().filter(|name| !page.contains(&format!("`{name}`")));
    check(&missing.map(|name| format!("{name} has no line in docs/dependencies.md")).collect::<Vec<_>>());
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
fn imports_between_rooms_run_downward() {
    let (mut wrong, mut counts) = (Vec::new(), BTreeMap::new());
    let sources = code();
    for (of, rooms) in ROOMS {
        let mut below = BTreeSet::new();
        for (name, allowed) in *rooms {
            let upward = allowed.iter().filter(|used| !below.contains(*used));
            wrong.extend(upward.map(|used| format!("{of}: {name} is listed below {used}, which it imports")));
            below.insert(*name);
        }
        let seen = between_rooms(of, rooms, &sources, &mut counts, &mut wrong);
        assert!(seen > 40, "this test sees the imports of {of}: {seen}");
    }
    wrong.extend(judge("room", 0, &counts));
    let help = "change ROOMS only with ARCHITECTURE.md";
    assert!(wrong.is_empty(), "\n{}\n\n{help}\n", wrong.join("\n"));
}

/// Counts the imports of a crate that its rooms do not allow, by file and room. Returns how many there are between rooms.
fn between_rooms(
    of: &str,
    rooms: Rooms,
    sources: &[Source],
    counts: &mut BTreeMap<String, usize>,
    wrong: &mut Vec<String>,
) -> usize {
    let mut seen = 0;
    for source in sources {
        let within = source.path.strip_prefix(&format!("crates/{of}/src/")).unwrap_or_default();
        let Some((room, _)) = within.split_once('/').filter(|(room, _)| *room != "tests") else { continue };
        let Some((_, allowed)) = rooms.iter().find(|(name, _)| *name == room) else {
            wrong.push(format!("{}: give `{room}` a place in ROOMS", source.path));
            continue;
        };
        // `sync` is what the tests of interleavings put something else in the place of.
        for name in source.imports().into_iter().filter(|name| *name != room && *name != "sync") {
            seen += 1;
            if !allowed.contains(&name) {
                *counts.entry(format!("{}->{name}", source.path)).or_default() += 1;
            }
        }
    }
    seen
}

/// With `--nocapture` it prints the counts that `ARCHITECTURE.md` states.
#[test]
fn circles_of_files_are_small() {
    let sources = code();
    let (mut largest, mut shown) = (BTreeMap::new(), Vec::new());
    for (of, _) in EDGES {
        let graph = Graph::of(&format!("crates/{of}/src/"), &sources);
        let circles = graph.circles();
        let sizes: Vec<usize> = circles.iter().map(Vec::len).collect();
        println!("{of}: {} files, {} imports, circles of {sizes:?}", graph.files.len(), graph.imports.len());
        if let Some((_, rooms)) = ROOMS.iter().find(|(name, _)| name == of) {
            let between = between_rooms(of, rooms, &sources, &mut BTreeMap::new(), &mut Vec::new());
            println!("  {} rooms, {between} imports between them", rooms.len());
        }
        if let Some(circle) = circles.first() {
            largest.insert((*of).to_owned(), circle.len());
            shown.push(format!("{of}: {}", circle.join(" ")));
        }
    }
    let wrong = judge("circle", CIRCLE_FILES, &largest);
    assert!(wrong.is_empty(), "\n{}\n\n{}\n", wrong.join("\n"), shown.join("\n"));
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

/// `./test` runs no examples in comments: compiling them takes longer than all unit tests of a crate.
#[test]
fn comments_have_no_examples_to_run() {
    let mut fences = 0;
    let mut wrong = Vec::new();
    for source in code() {
        let mut is_open = false;
        for (number, line) in source.text.lines().enumerate() {
            let line = line.trim_start();
            let Some(language) = ["/// ```", "//! ```"].iter().find_map(|fence| line.strip_prefix(fence))
            else {
                continue;
            };
            is_open = !is_open;
            fences += 1;
            if is_open && !["text", "sh"].contains(&language) {
                wrong.push(format!(
                    "{}:{}: a test beside the code is run, and this is not",
                    source.path,
                    number + 1
                ));
            }
        }
    }
    assert!(fences > 10, "this test sees the blocks: {fences}");
    check(&wrong);
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

/// The name of a test is a sentence as well.
#[test]
fn names_of_functions_name_their_actor() {
    let counts: BTreeMap<String, usize> = code()
        .into_iter()
        .filter(|source| !source.path.starts_with("crates/tidy/"))
        .map(|source| {
            let names = source.text.matches("fn who_").count() + source.text.matches("whoever_").count();
            (source.path, names)
        })
        .filter(|(_, names)| *names > 0)
        .collect();
    check(&judge("name", 0, &counts));
}

#[test]
fn sentences_can_be_read_once() {
    let (mut counts, mut shown, mut seen) = (BTreeMap::new(), Vec::new(), 0);
    for source in sources(&[".rs", ".md"]) {
        let sentences = source.sentences();
        seen += sentences.len();
        for (line, words) in sentences.into_iter().filter(|(_, words)| *words > SENTENCE_WORDS) {
            *counts.entry(source.path.clone()).or_default() += 1;
            shown.push(format!("{}:{line}: a sentence of {words} words", source.path));
        }
    }
    assert!(seen > 10_000, "this test sees the sentences: {seen}");
    let wrong = judge("sentence", 0, &counts);
    assert!(wrong.is_empty(), "\n{}\n\n{}\n", wrong.join("\n"), shown.join("\n"));
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
