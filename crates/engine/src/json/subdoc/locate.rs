//! Follows a path into a document, in one forward scan that stops where the path ends.
//!
//! A found member says as much about its surroundings as an edit has to know: where it begins, and which comma goes
//! with it. Where the search finds nothing it says how far the path led.
//!
//! A member of the right name but the wrong type does not end the search: a later one of the same name may do. If
//! none does, that is a mismatch.

use std::ops::Range;

use base::Status;

use super::{
    path::{Component, Components, Path},
    scan::Scanner,
};

/// Where a path leads.
pub(super) enum Located<'p> {
    Found(Found),
    Missing(Missing<'p>),
}

/// A value in a document.
pub(super) struct Found {
    /// Its bytes.
    pub(super) value: Range<usize>,
    /// Its key's opening quote, or where it begins itself.
    pub(super) begin: usize,
    /// The comma before it, unless it is its parent's first.
    pub(super) comma: Option<usize>,
    /// The document itself is at 1.
    pub(super) level: usize,
}

/// The deepest container on the way.
pub(super) struct Missing<'p> {
    /// Its closing bracket.
    pub(super) close: usize,
    /// How many members or elements it has.
    pub(super) children: usize,
    /// What it does not have, and what was to be inside that.
    pub(super) rest: Components<'p>,
}

/// What the next step needs to be taken from.
#[derive(Clone, Copy)]
enum Wanted {
    Anything,
    Object,
    Array,
}

impl Wanted {
    fn by(rest: &Components<'_>) -> Self {
        match rest.peek() {
            None => Wanted::Anything,
            Some(Component::Key(_)) => Wanted::Object,
            Some(Component::Index(_) | Component::Last) => Wanted::Array,
        }
    }

    #[inline]
    fn is(self, first: u8) -> bool {
        match self {
            Wanted::Anything => true,
            Wanted::Object => first == b'{',
            Wanted::Array => first == b'[',
        }
    }
}

/// Where a step leads.
enum Step {
    To { begin: usize, comma: Option<usize> },
    Nowhere { close: usize, children: usize },
}

/// Follows `path` from the outermost value of a document.
pub(super) fn locate<'p>(document: &[u8], path: &Path<'p>) -> Result<Located<'p>, Status> {
    let mut scanner = Scanner { text: document, at: 0 };
    match scanner.peek() {
        // The other values that have no members at least have a type that does not match.
        None | Some(b'"') => Err(Status::SubdocDocNotJson),
        Some(_) => locate_from(scanner, path, 1),
    }
}

/// Follows `path` from the value at `scanner`, which is at `level`.
pub(super) fn locate_from<'p>(
    mut scanner: Scanner<'_>,
    path: &Path<'p>,
    mut level: usize,
) -> Result<Located<'p>, Status> {
    let mut rest = path.components();
    if !scanner.peek().is_some_and(|first| Wanted::by(&rest).is(first)) {
        return Err(Status::SubdocPathMismatch);
    }
    let (mut begin, mut comma) = (scanner.at, None);
    loop {
        let before = rest;
        let Some(component) = rest.next() else { break };
        level += 1;
        let wanted = Wanted::by(&rest);
        let step = match component {
            Component::Key(key) => {
                member(&mut scanner, level, |spelled, has_escapes| key.matches(spelled, has_escapes), wanted)?
            }
            Component::Index(index) => element(&mut scanner, level, Some(index), wanted)?,
            Component::Last => element(&mut scanner, level, None, wanted)?,
        };
        match step {
            Step::To { begin: at, comma: before } => (begin, comma) = (at, before),
            Step::Nowhere { close, children } => {
                return Ok(Located::Missing(Missing { close, children, rest: before }));
            }
        }
    }
    let start = scanner.at;
    scanner.value(level)?;
    Ok(Located::Found(Found { value: start..scanner.at, begin, comma, level }))
}

/// From an object's opening bracket to the value of the member that `matches`.
#[expect(clippy::indexing_slicing, reason = "the scanner has read both quotation marks of the key")]
fn member(
    scanner: &mut Scanner<'_>,
    level: usize,
    matches: impl Fn(&[u8], bool) -> bool,
    wanted: Wanted,
) -> Result<Step, Status> {
    let mut children = 0;
    let mut mismatched = false;
    let mut comma = None;
    scanner.at += 1;
    if scanner.peek() != Some(b'}') {
        loop {
            if scanner.peek() != Some(b'"') {
                return Err(Status::SubdocDocNotJson);
            }
            let begin = scanner.at;
            let has_escapes = scanner.string()?;
            let key = &scanner.text[begin + 1..scanner.at - 1];
            if !scanner.take(b':') {
                return Err(Status::SubdocDocNotJson);
            }
            let first = scanner.peek().ok_or(Status::SubdocDocNotJson)?;
            if matches(key, has_escapes) {
                if wanted.is(first) {
                    return Ok(Step::To { begin, comma });
                }
                mismatched = true;
            }
            scanner
                .value(level)
                .map_err(|error| if mismatched { Status::SubdocPathMismatch } else { error })?;
            children += 1;
            scanner.peek();
            comma = Some(scanner.at);
            if !scanner.take(b',') {
                break;
            }
        }
    }
    match scanner.peek() {
        _ if mismatched => Err(Status::SubdocPathMismatch),
        Some(b'}') => Ok(Step::Nowhere { close: scanner.at, children }),
        _ => Err(Status::SubdocDocNotJson),
    }
}

/// From an array's opening bracket to the element at `index`, or to its last.
fn element(
    scanner: &mut Scanner<'_>,
    level: usize,
    index: Option<usize>,
    wanted: Wanted,
) -> Result<Step, Status> {
    let mut children = 0;
    let mut comma = None;
    let mut last = None;
    scanner.at += 1;
    if scanner.peek() != Some(b']') {
        loop {
            scanner.peek();
            let begin = scanner.at;
            if index == Some(children) {
                return to_element(scanner, begin, comma, wanted);
            }
            last = Some((begin, comma));
            scanner.value(level)?;
            children += 1;
            scanner.peek();
            comma = Some(scanner.at);
            if !scanner.take(b',') {
                break;
            }
        }
    }
    if scanner.peek() != Some(b']') {
        return Err(Status::SubdocDocNotJson);
    }
    match last {
        Some((begin, comma)) if index.is_none() => to_element(scanner, begin, comma, wanted),
        _ => Ok(Step::Nowhere { close: scanner.at, children }),
    }
}

fn to_element(
    scanner: &mut Scanner<'_>,
    begin: usize,
    comma: Option<usize>,
    wanted: Wanted,
) -> Result<Step, Status> {
    scanner.at = begin;
    match scanner.text.get(begin) {
        Some(&first) if wanted.is(first) => Ok(Step::To { begin, comma }),
        Some(_) => Err(Status::SubdocPathMismatch),
        None => Err(Status::SubdocDocNotJson),
    }
}

/// Calls `visit` with each element of the array at `scanner`, whose elements are at `level`, until it breaks off.
#[expect(clippy::indexing_slicing, reason = "the scanner moves forward only, and stays in its text")]
pub(super) fn elements<'d>(
    scanner: &mut Scanner<'d>,
    level: usize,
    mut visit: impl FnMut(&'d [u8]) -> Result<(), Status>,
) -> Result<usize, Status> {
    let mut children = 0;
    scanner.at += 1;
    if scanner.peek() == Some(b']') {
        return Ok(0);
    }
    loop {
        scanner.peek();
        let begin = scanner.at;
        scanner.value(level)?;
        visit(&scanner.text[begin..scanner.at])?;
        children += 1;
        if !scanner.take(b',') {
            return Ok(children);
        }
    }
}

/// How many members the object at `scanner` has.
pub(super) fn members(scanner: &mut Scanner<'_>, level: usize) -> Result<usize, Status> {
    // No name matches, so the search ends behind the last member.
    match member(scanner, level, |_, _| false, Wanted::Anything)? {
        Step::Nowhere { children, .. } => Ok(children),
        Step::To { .. } => Ok(0),
    }
}
