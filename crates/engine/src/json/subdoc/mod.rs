//! Operations on a part of a JSON document: [`get`], [`exists`], [`count`] and [`apply`], on the document's bytes.
//!
//! No tree is built. A lookup is one forward scan to the end of what the path names and allocates nothing. An edit
//! copies the document around the place it changes, byte for byte. Documents are taken to be valid JSON, as they were
//! checked when they were stored; values that come in are checked here. Statuses are those of Couchbase
//! (couchbase/subjson), including which of two faults is reported.
//!
//! The same operations serve extended attributes, see [`xattr`]. Which operations may come together, macros,
//! virtual attributes and documents that do not exist are the callers' affair.

mod block;
mod edit;
mod locate;
mod path;
mod scan;
pub mod xattr;

use base::Status;

pub use edit::{Edit, apply, parse_delta};
pub use path::{COMPONENTS_MAX, Component, Components, Key, Path};

use locate::{Located, elements, locate, members};
use scan::Scanner;

/// The value at `path`, as the document spells it.
///
/// # Errors
///
/// [`Status::SubdocPathNotFound`], [`Status::SubdocPathMismatch`] where the path goes into something of another
/// type, [`Status::SubdocDocTooDeep`] and [`Status::SubdocDocNotJson`].
pub fn get<'d>(document: &'d [u8], path: &Path<'_>) -> Result<&'d [u8], Status> {
    value_of(document, locate(document, path)?)
}

/// Whether there is a value at `path`.
///
/// # Errors
///
/// As [`get`].
pub fn exists(document: &[u8], path: &Path<'_>) -> Result<(), Status> {
    get(document, path).map(|_| ())
}

/// How many members or elements the object or array at `path` has.
///
/// # Errors
///
/// As [`get`]; [`Status::SubdocPathMismatch`] for a value that has no members.
pub fn count(document: &[u8], path: &Path<'_>) -> Result<usize, Status> {
    count_of(document, locate(document, path)?)
}

#[expect(clippy::indexing_slicing, reason = "the place was located in the same document")]
fn value_of<'d>(document: &'d [u8], located: Located<'_>) -> Result<&'d [u8], Status> {
    match located {
        Located::Found(found) => Ok(&document[found.value]),
        Located::Missing(_) => Err(Status::SubdocPathNotFound),
    }
}

fn count_of(document: &[u8], located: Located<'_>) -> Result<usize, Status> {
    let Located::Found(found) = located else { return Err(Status::SubdocPathNotFound) };
    let mut scanner = Scanner { text: document, at: found.value.start };
    match scanner.peek() {
        Some(b'{') => members(&mut scanner, found.level + 1),
        Some(b'[') => elements(&mut scanner, found.level + 1, |_| Ok(())),
        _ => Err(Status::SubdocPathMismatch),
    }
}

#[cfg(test)]
mod tests;
