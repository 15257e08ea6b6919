//! Which files of a crate import which, and the circles among them.
//!
//! An import is a path that the source says outside of tests. It is behind `crate`, `super` or `self`, or is the name of a
//! module of its own. The import leads to the file whose module the path reaches. Where that file only passes a name on
//! (`pub use`), it leads to the file that the name comes from. Passing a name on is no import. A method needs no import
//! where its type is known: such a call is not seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::Source;

/// The files of one crate, and what they import from one another.
#[derive(Debug, Default)]
pub struct Graph {
    /// The files, without tests.
    pub files: BTreeSet<String>,
    /// Pairs of files: the first imports from the second.
    pub imports: BTreeSet<(String, String)>,
}

impl Graph {
    /// Of the crate whose `src` is the folder `root`, which ends with `/`.
    #[must_use]
    pub fn of(root: &str, sources: &[Source]) -> Self {
        let own = sources.iter().filter(|source| !source.is_test());
        let own = own.filter_map(|source| Some((module(source.path.strip_prefix(root)?), source)));
        let own: BTreeMap<Vec<&str>, File> = own.map(|(module, source)| (module, File::of(source))).collect();
        let mut graph = Self::default();
        for (module, file) in &own {
            graph.files.insert(file.path.to_owned());
            for path in &file.imports {
                let Some(target) = resolve(module, path, &own, PASSED_ON_MAX) else { continue };
                if target != file.path {
                    graph.imports.insert((file.path.to_owned(), target.to_owned()));
                }
            }
        }
        graph
    }

    /// The circles: files each of which reaches all of the others by imports. The largest first.
    #[must_use]
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.files.iter().map(|file| (file.as_str(), self.reached_from(file))).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for (file, targets) in &reached {
            let back = |other: &&&str| reached.get(**other).is_some_and(|targets| targets.contains(file));
            let circle: Vec<&str> = targets.iter().filter(back).copied().collect();
            if circle.len() > 1 && seen.insert(circle.clone()) {
                circles.push(circle);
            }
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    fn reached_from<'a>(&'a self, file: &str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut next = vec![file];
        while let Some(file) = next.pop() {
            for (_, target) in self.imports.iter().filter(|(from, _)| from == file) {
                if reached.insert(target.as_str()) {
                    next.push(target);
                }
            }
        }
        reached
    }
}

/// A path as names.
type Path = Vec<String>;

/// A name is passed on by no more files than this.
const PASSED_ON_MAX: usize = 8;

/// What a file says.
struct File<'s> {
    path: &'s str,
    imports: Vec<Path>,
    passed_on: Vec<Path>,
}

impl<'s> File<'s> {
    fn of(source: &'s Source) -> Self {
        let (mut rest, mut passed_on) = (String::new(), Vec::new());
        for statement in source.code().split_inclusive(';') {
            let line = statement.trim_start().rsplit("\n\n").next().unwrap_or_default().trim_start();
            let is_public = line.starts_with("pub") && !line.starts_with("pub mod");
            match line.split_once("use ").filter(|(before, _)| is_public && !before.trim_end().contains(' '))
            {
                Some((_, tree)) => passed_on.extend(paths(tree)),
                None => rest.push_str(statement),
            }
        }
        Self { path: &source.path, imports: paths(&rest), passed_on }
    }
}

/// The module that a file is, by its path below `src`.
fn module(path: &str) -> Vec<&str> {
    let mut names: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    if names.last().is_some_and(|name| ["mod", "lib", "main"].contains(name)) {
        names.pop();
    }
    names
}

/// The file that a path said in `from` leads to, if it is one of this crate.
fn resolve<'s>(
    from: &[&str],
    path: &[String],
    files: &BTreeMap<Vec<&str>, File<'s>>,
    most: usize,
) -> Option<&'s str> {
    let (first, mut rest) = path.split_first()?;
    let mut at: Vec<&str> = Vec::new();
    match first.as_str() {
        "crate" => {}
        "self" => at.extend(from),
        "super" => {
            at.extend(from);
            at.pop();
            while let Some((name, further)) = rest.split_first()
                && name == "super"
            {
                at.pop();
                rest = further;
            }
        }
        own => {
            at.extend(from);
            at.push(own);
            if !files.contains_key(&at) {
                return None;
            }
        }
    }
    while let Some((name, further)) = rest.split_first() {
        at.push(name);
        if !files.contains_key(&at) {
            at.pop();
            break;
        }
        rest = further;
    }
    let file = files.get(&at)?;
    let comes_from = file.passed_on.iter().find(|path| path.last() == rest.first() && path.len() > 1);
    let there = comes_from.filter(|_| most > 0 && !rest.is_empty());
    there.and_then(|path| resolve(&at, path, files, most - 1)).or(Some(file.path))
}

/// The paths that code says, as names: of a list in braces each on its own.
fn paths(code: &str) -> Vec<Path> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = code.get(at..).and_then(|rest| rest.find(is_name)).map(|start| at + start) {
        let rest = &code[start..];
        let end = start + rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let begins = !code[..start].ends_with("::") && !code[..start].ends_with('.');
        at = end;
        if begins && code[end..].starts_with("::") {
            at = end + tree(&code[end..], vec![code[start..end].to_owned()], &mut found);
        }
    }
    found
}

/// Reads what follows a path's beginning: `::name…` or `::{…}`. Returns how long it is.
fn tree(text: &str, path: Path, found: &mut Vec<Path>) -> usize {
    let Some(rest) = text.strip_prefix("::") else {
        found.push(path);
        return 0;
    };
    if let Some(list) = rest.strip_prefix('{') {
        let mut at = 0;
        loop {
            at += list[at..].find(|c: char| !c.is_whitespace() && c != ',').unwrap_or(list.len() - at);
            match list[at..].chars().next() {
                None => return text.len(),
                Some('}') => return 2 + 1 + at + 1,
                Some(_) => {}
            }
            let end = name_end(&list[at..]);
            if end == 0 {
                // `*`, or no list of names: nothing of ours.
                found.push(path.clone());
                at += list[at..].chars().next().map_or(1, char::len_utf8);
                continue;
            }
            let mut inner = path.clone();
            if &list[at..at + end] != "self" {
                inner.push(list[at..at + end].to_owned());
            }
            at += end;
            at += tree(&list[at..], inner, found);
        }
    }
    let end = name_end(rest);
    let mut path = path;
    if end > 0 {
        path.push(rest[..end].to_owned());
        return 2 + end + tree(&rest[end..], path, found);
    }
    found.push(path);
    2
}

fn name_end(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: format!("x/src/{path}"), text: text.to_owned() }
    }

    #[test]
    fn an_import_leads_to_the_file_of_its_module() {
        let sources = [
            source(
                "lib.rs",
                "mod a;\npub use a::deep::A;\npub(crate) use self::b::B;\nfn f() {}\nstruct S;\n",
            ),
            source("a/mod.rs", "mod deep;\nuse std::io;\nfn f() { deep::g::<u8>(); x.deep::h() }\n"),
            source(
                "a/deep.rs",
                "use super::super::{b::{self, B}, c};\n// use crate::a;\n#[cfg(test)]\nmod tests {\n use crate::a;\n}\n",
            ),
            source(
                "b.rs",
                "use crate::{\n    c::{C, D as E},\n    A, S,\n};\nfn g() -> super::a::deep::A {}\n",
            ),
            source("c.rs", ""),
            source("tests/t.rs", "use crate::a;\n"),
        ];
        let graph = Graph::of("x/src/", &sources);
        let name = |path: &str| path.trim_start_matches("x/src/").to_owned();
        let imports: Vec<_> = graph.imports.iter().map(|(from, to)| (name(from), name(to))).collect();
        let expected = [
            ("a/deep.rs", "b.rs"),
            ("a/deep.rs", "c.rs"),
            ("a/mod.rs", "a/deep.rs"),
            ("b.rs", "a/deep.rs"),
            ("b.rs", "c.rs"),
            ("b.rs", "lib.rs"),
        ];
        let imports: Vec<_> = imports.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        assert_eq!(imports, expected);
        let circles: Vec<Vec<String>> =
            graph.circles().iter().map(|circle| circle.iter().map(|file| name(file)).collect()).collect();
        assert_eq!(circles, [["a/deep.rs", "b.rs"]]);
    }
}
