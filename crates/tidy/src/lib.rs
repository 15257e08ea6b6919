//! Reads the repository's own source, for tests that hold it to the rules of CONTRIBUTING.
//!
//! The rules themselves are in `tests/`. Today's exceptions are in `ratchets.txt`: a figure there may only get smaller.
//! Only files that git knows are read, so that what a build leaves behind does not count.

mod graph;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use graph::Graph;

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A text file of the repository.
#[derive(Debug)]
pub struct Source {
    /// From the root, with `/` between folders.
    pub path: String,
    /// All of it.
    pub text: String,
}

impl Source {
    /// Whether it only runs in tests: files under a folder `tests`, and files of that name.
    #[must_use]
    pub fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs")
    }

    /// What it is without its comments and the tests in it.
    #[must_use]
    pub fn code(&self) -> String {
        let lines = self.without_tests().lines().map(|line| line.split("//").next().unwrap_or_default());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// What stands above the tests in it. A declaration of a file of tests ends nothing.
    fn without_tests(&self) -> &str {
        const BEGIN: &str = "#[cfg(test)]\nmod ";
        let begins = self.text.match_indices(BEGIN).map(|(at, _)| at);
        let has_body =
            |at: &usize| self.text[at + BEGIN.len()..].lines().next().is_some_and(|line| line.ends_with('{'));
        begins.into_iter().find(has_body).map_or(&self.text, |at| &self.text[..at])
    }

    /// What its comments say, by line, without the slashes. Of a document it is every line outside of blocks of code.
    pub fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_document = self.path.ends_with(".md");
        let mut in_code = false;
        self.text.lines().enumerate().filter_map(move |(number, line)| {
            if is_document {
                in_code ^= line.trim_start().starts_with("```");
                return (!in_code).then_some((number + 1, line));
            }
            let comment = line.trim_start().strip_prefix("//")?;
            Some((number + 1, comment.trim_start_matches(['/', '!'])))
        })
    }

    /// Its sentences in comments and documents: the line where the paragraph begins, and the number of words. An item of a list and a
    /// cell of a table are paragraphs of their own. Blocks of code, headings and drawings (three spaces in a row) are none. What
    /// stands between backticks is one word.
    #[must_use]
    pub fn sentences(&self) -> Vec<(usize, usize)> {
        let mut sentences = Vec::new();
        let (mut paragraph, mut begins, mut last, mut in_code) = (String::new(), 0, 0, false);
        for (number, line) in self.prose() {
            let text = line.trim();
            let is_fence = text.starts_with("```");
            in_code ^= is_fence && !self.path.ends_with(".md");
            let is_cells = text.starts_with('|');
            let is_none =
                text.is_empty() || text.starts_with('#') || is_fence || in_code || text.contains("   ");
            let item = list_item(text);
            if is_none || is_cells || item.is_some() || number != last + 1 {
                count_sentences(&paragraph, begins, &mut sentences);
                paragraph.clear();
                begins = number;
            }
            last = number;
            if is_cells {
                text.split(" | ").for_each(|cell| count_sentences(cell, number, &mut sentences));
            } else if !is_none {
                paragraph.push_str(item.unwrap_or(text));
                paragraph.push(' ');
            }
        }
        count_sentences(&paragraph, begins, &mut sentences);
        sentences
    }

    /// What it imports from its own crate, outside of tests: of each path the name behind `crate::`, as often as it is said.
    /// Of `crate::{one::A, two::{B, C}}` that is `one` and `two`. A chain of `super` that leads to the root counts too.
    /// Methods are not seen: a call of one needs no import where the type is known already.
    #[must_use]
    pub fn imports(&self) -> Vec<&str> {
        if self.is_test() {
            return Vec::new();
        }
        let code = self.without_tests();
        let within = self.path.split_once("/src/").map_or("", |split| split.1);
        let depth = within.trim_end_matches("mod.rs").trim_end_matches('/').split('/').count();
        let mut found = Vec::new();
        for line_start in line_starts(code) {
            let rest = &code[line_start..];
            let line = rest.lines().next().unwrap_or_default();
            let line = line.split("//").next().unwrap_or_default();
            for root in ["crate::".to_owned(), "super::".repeat(depth)] {
                let places = line.match_indices(&root).map(|(at, _)| at);
                let own = places.filter(|&at| {
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
                });
                found.extend(own.flat_map(|at| first_names(&rest[at + root.len()..])));
            }
        }
        found
    }

    /// Its functions: name and number of lines, from `fn` to the closing brace. Relies on the layout that rustfmt gives.
    #[must_use]
    pub fn functions(&self) -> Vec<(&str, usize)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let mut functions = Vec::new();
        for (start, line) in lines.iter().enumerate() {
            let Some(name) = function_name(line) else { continue };
            let indent = &line[..line.len() - line.trim_start().len()];
            let rest = || lines[start..].iter().enumerate();
            let end = rest().find(|(_, line)| line.strip_prefix(indent) == Some("}"));
            let body =
                rest().find(|(_, line)| line.ends_with('{') || line.ends_with(';') || line.ends_with('}'));
            // A declaration without a body, or one that fits a line, has no brace of its own below.
            if let (Some((end, _)), Some((opens, body))) = (end, body)
                && body.ends_with('{')
                && end > opens
            {
                functions.push((name, end + 1));
            }
        }
        functions
    }
}

/// What stands behind the sign or number of an item of a list.
fn list_item(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("- ").or_else(|| text.strip_prefix("* "));
    rest.or_else(|| {
        text.trim_start_matches(|c: char| c.is_ascii_digit())
            .strip_prefix(". ")
            .filter(|rest| rest.len() + 2 < text.len())
    })
}

/// Adds the number of words of each sentence of a paragraph. A sentence ends with a full stop before a word that does not begin with
/// a small letter.
fn count_sentences(paragraph: &str, line: usize, sentences: &mut Vec<(usize, usize)>) {
    let (mut words, mut may_end, mut in_code) = (0, false, false);
    for word in paragraph.split_whitespace() {
        let begins_small =
            word.trim_start_matches(|c: char| !c.is_alphanumeric()).starts_with(char::is_lowercase);
        if may_end && !in_code && (!begins_small || word.starts_with('`')) {
            sentences.push((line, std::mem::take(&mut words)));
        }
        words += usize::from(!in_code && word.contains(char::is_alphanumeric));
        in_code ^= word.matches('`').count() % 2 == 1;
        may_end = word.trim_end_matches([')', '"', '\'', '*', ']']).ends_with(['.', '!', '?']);
    }
    if words > 0 {
        sentences.push((line, words));
    }
}

fn line_starts(text: &str) -> impl Iterator<Item = usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1))
}

/// The names that a path or a list of paths in braces begins with.
fn first_names(tree: &str) -> Vec<&str> {
    let name = |text: &'_ str| text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let Some(list) = tree.strip_prefix('{') else { return vec![&tree[..name(tree)]] };
    let (mut depth, mut begins, mut names) = (1, true, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => begins = true,
            _ if begins && depth == 1 && !c.is_whitespace() => {
                names.push(&list[at..at + name(&list[at..])]);
                begins = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

fn function_name(line: &str) -> Option<&str> {
    let mut words = line.trim_start();
    if words.starts_with("//") {
        return None;
    }
    while let Some((word, rest)) = words.split_once(' ') {
        if word == "fn" {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
            return Some(&rest[..end]);
        }
        let is_qualifier =
            word.starts_with("pub") || ["const", "async", "unsafe", "extern", "in", "\"C\""].contains(&word);
        if !is_qualifier {
            return None;
        }
        words = rest;
    }
    None
}

/// The files that git knows and whose names end so.
///
/// # Panics
/// There is no git, or this is no checkout.
#[must_use]
pub fn sources(endings: &[&str]) -> Vec<Source> {
    let listed = Command::new("git").arg("ls-files").current_dir(root()).output().expect("git is installed");
    assert!(listed.status.success(), "git lists no files: is this a checkout?");
    let listed = String::from_utf8(listed.stdout).expect("paths are text");
    let wanted = listed.lines().filter(|path| endings.iter().any(|ending| path.ends_with(ending)));
    // A file that was removed and is not committed yet is listed, and not there.
    let read = |path: &str| {
        Some(Source { path: path.to_owned(), text: std::fs::read_to_string(root().join(path)).ok()? })
    };
    wanted.filter_map(read).collect()
}

/// Holds a page that is made from a table against what is made of it now. With `SETTEE_WRITE_DOCS` in the environment it is
/// written anew.
///
/// # Panics
/// The page is another one, or cannot be written.
pub fn page_is(path: &str, made: &str) {
    let file = root().join(path);
    if std::env::var_os("SETTEE_WRITE_DOCS").is_some() {
        std::fs::write(&file, made).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    for (number, (expected, found)) in made.lines().zip(written.lines()).enumerate() {
        assert_eq!(expected, found, "{path}:{}: write it anew, with SETTEE_WRITE_DOCS=1", number + 1);
    }
    assert_eq!(made.len(), written.len(), "{path}: write it anew, with SETTEE_WRITE_DOCS=1");
}

/// The exceptions of one rule: what they are about, and the figure that it may reach.
///
/// # Panics
/// `ratchets.txt` cannot be read.
#[must_use]
pub fn ratchets(rule: &str) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(root().join("crates/tidy/ratchets.txt")).expect("the ratchets");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (of, figure, what) = (words.next()?, words.next()?, words.next()?);
            (of == rule).then(|| (what.to_owned(), figure.parse().expect("a figure")))
        })
        .collect()
}

/// Holds figures against a rule's limit and its exceptions: what is wrong, a line each.
#[must_use]
pub fn judge(rule: &str, limit: usize, figures: &BTreeMap<String, usize>) -> Vec<String> {
    let mut allowed = ratchets(rule);
    let mut wrong = Vec::new();
    for (what, &figure) in figures {
        match allowed.remove(what) {
            None if figure > limit => wrong.push(format!("{what}: {figure}, and {limit} is the limit")),
            Some(most) if figure > most => wrong.push(format!("{what}: {figure}, and it was {most}")),
            Some(_) if figure <= limit => {
                wrong.push(format!("{what}: keeps the rule now: remove its line `{rule}` from ratchets.txt"));
            }
            Some(most) if figure < most => {
                wrong.push(format!("{what}: {figure} now: put that for {most} into ratchets.txt"));
            }
            _ => {}
        }
    }
    wrong.extend(
        allowed.keys().map(|what| format!("{what}: is gone: remove its line `{rule}` from ratchets.txt")),
    );
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_by_their_layout() {
        let text = "impl X {\n    pub(crate) const fn one(&self) -> u8 {\n        1\n    }\n\n    fn two(\n        a: u8,\n    ) -> u8 {\n        a\n    }\n}\n\
                    trait Y {\n    fn three(&self);\n}\nfn four() {}\n// fn five() {\n";
        let source = Source { path: "x.rs".to_owned(), text: text.to_owned() };
        assert_eq!(source.functions(), [("one", 3), ("two", 5)]);
    }

    #[test]
    fn imports_are_told_by_the_name_behind_the_root() {
        let text = "//! [`crate::nine::X`]\nuse crate::one::A;\nuse crate::{\n    three,\n    two::{\n        B, // crate::ten\n        four::C,\n    },\n};\nuse super::D;\n\
                    use super::super::five::E;\n#[cfg(test)]\nmod more;\nfn f() -> crate::six::F {\n    my_crate::seven::g()\n}\n#[cfg(test)]\nmod tests {\n    use crate::eight::H;\n}\n";
        let at = |path: &str| Source { path: path.to_owned(), text: text.to_owned() };
        assert_eq!(at("crates/x/src/room/a.rs").imports(), ["one", "three", "two", "five", "six"]);
        assert_eq!(at("crates/x/src/room/sub/a.rs").imports(), ["one", "three", "two", "six"]);
        assert_eq!(at("crates/x/src/room/sub/mod.rs").imports(), ["one", "three", "two", "five", "six"]);
        assert!(at("crates/x/src/room/tests.rs").imports().is_empty());
    }

    #[test]
    fn sentences_are_counted_by_paragraph_item_and_cell() {
        let lengths = |path: &str, text: &str| {
            let source = Source { path: path.to_owned(), text: text.to_owned() };
            source.sentences().into_iter().map(|(_, words)| words).collect::<Vec<_>>()
        };
        let text = "# Not this head\n\nOne two\nthree. Four (five.) `six and more` is\none: e.g. seven.\n- Item one\n  goes on.\n2. Item.\n\n| A b | C d e |\n\n```\nfn x y z\n```\n";
        assert_eq!(lengths("x.md", text), [3, 2, 5, 4, 1, 2, 3]);
        let code = "//! One two.\n//! Three\n//! four.\nlet x = 1;\n// Five.\n/// 0 magic   4 version\n/// Six seven.\n";
        assert_eq!(lengths("x.rs", code), [2, 2, 1, 2]);
    }

    #[test]
    fn prose_is_what_comments_and_documents_say() {
        let code = Source {
            path: "x.rs".to_owned(),
            text: "//! Head.\nlet a = 1; // not this\n    // That.\n".to_owned(),
        };
        assert_eq!(code.prose().collect::<Vec<_>>(), [(1, " Head."), (3, " That.")]);
        let document = Source { path: "x.md".to_owned(), text: "One.\n```\nfn x\n```\nTwo.\n".to_owned() };
        assert_eq!(
            document.prose().map(|(_, line)| line).filter(|line| !line.starts_with('`')).collect::<Vec<_>>(),
            ["One.", "Two."]
        );
    }
}
