//! Documents name what is there: links, files, modules and targets of tests lead somewhere.
//!
//! Dated pages (`docs/decisions`) and `CHANGELOG.md` tell of their day, so only their links are followed.

use settee_tidy::{Source, root, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Folders that a path in a document begins with.
const FOLDERS: &[&str] = &["benches/", "compat/", "crates/", "docs/", "fuzz/"];

fn documents() -> Vec<Source> {
    sources(&[".md"])
}

fn is_of_its_day(document: &Source) -> bool {
    document.path.starts_with("docs/decisions/") || document.path == "CHANGELOG.md"
}

fn prose(document: &Source) -> String {
    let lines = document.prose().map(|(_, line)| line).filter(|line| !line.trim_start().starts_with("```"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// What stands between backticks, where that is one word.
fn spans(prose: &str) -> Vec<&str> {
    let odd = prose.split('`').skip(1).step_by(2);
    odd.filter(|span| !span.is_empty() && !span.contains(char::is_whitespace)).collect()
}

/// Where links lead that stay in the repository.
fn links(prose: &str) -> Vec<&str> {
    let targets = prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).collect()
}

/// What a link to a heading says behind its `#`.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ if c.is_alphanumeric() => Some(c),
        _ => None,
    };
    heading.trim_start_matches('#').trim().to_lowercase().chars().filter_map(kept).collect()
}

/// A path from the root, where `target` is one from the folder of `page`.
fn resolved(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    let anchors: BTreeMap<&str, BTreeSet<String>> = documents
        .iter()
        .map(|page| {
            let headings = page.text.lines().filter(|line| line.starts_with('#'));
            (page.path.as_str(), headings.map(anchor).collect())
        })
        .collect();
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in &documents {
        for link in links(&prose(page)) {
            seen += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let file = if file.is_empty() { page.path.clone() } else { resolved(&page.path, file) };
            let has_heading = || anchors.get(file.as_str()).is_none_or(|known| known.contains(heading));
            if !root().join(&file).exists() || !heading.is_empty() && !has_heading() {
                wrong.push(format!("{}: nothing is at {link}", page.path));
            }
        }
    }
    assert!(seen > 200, "this test sees the links: {seen}");
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// `a/{b,c}.rs` is two paths.
fn expanded(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let Some((names, after)) = rest.split_once('}') else { return vec![path.to_owned()] };
    names.split(',').map(|name| format!("{before}{name}{after}")).collect()
}

#[test]
fn files_that_are_named_are_there() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in documents().iter().filter(|page| !is_of_its_day(page)) {
        let prose = prose(page);
        let is_path = |span: &&str| {
            let is_fixed = span.chars().all(|c| c.is_ascii_alphanumeric() || "_./-{},".contains(c));
            is_fixed && FOLDERS.iter().any(|folder| span.starts_with(folder)) && !span.contains("NAME")
        };
        for path in spans(&prose).into_iter().filter(is_path).flat_map(expanded) {
            seen += 1;
            if !root().join(&path).exists() {
                wrong.push(format!("{}: there is no {path}", page.path));
            }
        }
    }
    assert!(seen > 80, "this test sees the paths: {seen}");
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// Whether a text has `name` as a word of its own in its code.
fn says(text: &str, name: &str) -> bool {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).any(|word| word == name)
}

/// Whether a path of a crate leads along its files to a name that the last of them says.
fn is_found(path: &[&str], files: &BTreeMap<String, String>) -> bool {
    let Some((of, names)) = path.split_first() else { return false };
    let mut folder = format!("crates/{of}/src");
    let mut text = files.get(&format!("{folder}/lib.rs"));
    for name in names {
        let (file, module) = (format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs"));
        match files.get(&file).or_else(|| files.get(&module)) {
            Some(found) => text = Some(found),
            None => return text.is_some_and(|text| says(text, name)),
        }
        folder = format!("{folder}/{name}");
    }
    true
}

#[test]
fn modules_that_are_named_are_there() {
    let files: BTreeMap<String, String> =
        sources(&[".rs"]).into_iter().map(|source| (source.path, source.text)).collect();
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in documents().iter().filter(|page| !is_of_its_day(page)) {
        let prose = prose(page);
        for span in spans(&prose) {
            let path: Vec<&str> = span.trim_end_matches("()").split("::").collect();
            let is_crate = files.contains_key(&format!("crates/{}/src/lib.rs", path[0]));
            let is_path = path.iter().all(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_'));
            if path.len() < 2 || !is_crate || !is_path {
                continue;
            }
            seen += 1;
            if !is_found(&path, &files) {
                wrong.push(format!("{}: there is no {span}", page.path));
            }
        }
    }
    assert!(seen > 80, "this test sees the modules: {seen}");
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// Commands for tests, in documents and in comments.
#[test]
fn targets_of_tests_that_are_named_are_there() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for source in sources(&[".md", ".rs"]).iter().filter(|source| !source.path.starts_with("crates/tidy/")) {
        for line in source.text.lines().filter(|line| line.contains("cargo test")) {
            let words: Vec<&str> = line.split(|c: char| c.is_whitespace() || c == '`').collect();
            let behind = |flag| Some(*words.get(words.iter().position(|word| *word == flag)? + 1)?);
            let (Some(package), Some(target)) = (behind("-p"), behind("--test")) else { continue };
            seen += 1;
            let tests = root().join("crates").join(package.trim_start_matches("settee-")).join("tests");
            if !tests.join(format!("{target}.rs")).exists() && !tests.join(target).join("main.rs").exists() {
                wrong.push(format!("{}: {package} has no target {target}", source.path));
            }
        }
    }
    assert!(seen > 8, "this test sees the commands: {seen}");
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
