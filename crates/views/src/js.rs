//! The JavaScript engine, for a process that has nothing else to do: functions by people who may read one bucket run here.
//!
//! The functions of one index share a runtime and a context of their own. So what they take of memory, or break, is theirs.
//! They have limits of time, memory and stack. After a function ran out of time or memory its context is made anew, because
//! the state that it was left in is unknown.
//!
//! Functions run in sloppy mode, with Couchbase's globals `emit`, `log`, `sum`, `dateToArray` and `decodeBase64`. Variables
//! that they do not declare live on from document to document, as they do there.

mod failure;
mod functions;
mod natives;
mod values;
mod watch;

use std::time::Duration;

pub use failure::{Failure, FailureKind};
pub use functions::{Checker, Functions};

/// Keys are shorter than this, in bytes of their text.
pub const KEY_BYTES_MAX: usize = 4096;
/// Most bytes of keys and values that one function may emit for a document.
pub const EMITTED_BYTES_MAX: usize = 1 << 20;
/// Most rows that one function may emit for a document.
pub const ROWS_MAX: usize = 65535;
/// Most bytes of a reduction.
pub const REDUCTION_BYTES_MAX: usize = 65535;
/// Most characters of a logged text, and most texts kept of a document.
const LOG_CHARACTERS_MAX: usize = 1024;
const LOGS_MAX: usize = 100;

/// What functions may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time for all functions over one document, or for one reduction.
    pub time: Duration,
    /// Bytes of the runtime's heap.
    pub memory: usize,
    /// Bytes of the stack.
    pub stack: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(10), memory: 256 << 20, stack: 512 << 10 }
    }
}

/// The functions of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Map functions.
    pub maps: Vec<String>,
    /// Reductions.
    pub reduces: Vec<String>,
}

/// A document as map functions are given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// The text of the object `meta`.
    pub meta: &'a str,
    /// The body.
    pub body: Body<'a>,
}

/// The body of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// No function looks at it.
    Unused,
    /// JSON, as it is stored. Functions that look at some members only do not notice what is wrong with others.
    Json(&'a str),
    /// The members of an object that functions look at, which the asking side has whole. Where they emit the document, the value of the
    /// row is an empty text, and the asking side puts the document there.
    Part {
        /// The text of an object with these members.
        text: &'a str,
        /// How long the whole text is.
        whole_bytes: u32,
    },
    /// Something else: functions see a string in base64.
    Binary(&'a [u8]),
}

/// An emitted row: the texts of its key and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: String,
    /// The value. No value has an empty text: that stands for the document, of which functions were given a part.
    pub value: String,
}

/// What map functions made of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// For each function its rows, or why it has none; or why no function could be asked.
    pub rows: Result<Vec<Result<Vec<Row>, Failure>>, Failure>,
    /// What the functions logged.
    pub logs: Vec<String>,
}
