//! The protocols the driver speaks: how a request is written and a reply is read.
//!
//! Four ways to the same verbs. One is the binary protocol as Couchbase's clients speak it: authenticated, every request
//! addressed to its vBucket. The others are the same frames as plain memcached understands them, memcached's text protocol, and
//! Redis' RESP. What a protocol has no words for is refused before the run ([`Protocol::lacks`]).
//!
//! Replies come in the order of requests, or with the request's number where unordered execution is negotiated; the caller
//! says what the next one answers.

mod binary;
mod resp;
#[cfg(test)]
mod tests;
mod text;

use crate::op::Op;
use base::bucket::DurabilityLevel;
use base::{CollectionId, VbId};
pub(crate) use binary::told_within;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Binary with authentication, bucket and vBuckets (port 11210).
    Couchbase,
    /// Plain memcached binary (port 11211).
    Binary,
    /// Plain memcached text (port 11211).
    Text,
    /// Redis' protocol (port 6379).
    Resp,
}

/// What one request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read.
    Get,
    /// Read, and the version with it.
    GetCas,
    /// Read several.
    MultiGet,
    /// Write.
    Set,
    /// Write if the version is still the one given.
    SetCas,
    /// Write unless it exists.
    Add,
    /// Write if it exists.
    Replace,
    /// Add bytes at the end.
    Append,
    /// Add bytes at the beginning.
    Prepend,
    /// Delete.
    Delete,
    /// Add to a counter.
    Incr,
    /// Subtract from a counter.
    Decr,
    /// Set the expiry.
    Touch,
    /// Read a field.
    SubGet,
    /// Write a field.
    SubSet,
}

impl Verb {
    /// What the first request of an operation asks, and the second if there is one.
    #[must_use]
    pub const fn of(op: Op) -> (Verb, Option<Verb>) {
        match op {
            Op::Get => (Verb::Get, None),
            Op::Set => (Verb::Set, None),
            Op::Add | Op::Insert => (Verb::Add, None),
            Op::Replace => (Verb::Replace, None),
            Op::Cas => (Verb::GetCas, Some(Verb::SetCas)),
            Op::Append => (Verb::Append, None),
            Op::Prepend => (Verb::Prepend, None),
            Op::Delete => (Verb::Delete, None),
            Op::Incr => (Verb::Incr, None),
            Op::Decr => (Verb::Decr, None),
            Op::Touch => (Verb::Touch, None),
            Op::MultiGet => (Verb::MultiGet, None),
            Op::SubGet => (Verb::SubGet, None),
            Op::SubSet => (Verb::SubSet, None),
            Op::Rmw => (Verb::Get, Some(Verb::Set)),
            // No connection of these protocols carries it: see `driver::asking`.
            Op::Query => (Verb::Get, None),
        }
    }

    /// Whether the request carries a document.
    #[must_use]
    pub const fn carries_value(self) -> bool {
        matches!(self, Verb::Set | Verb::SetCas | Verb::Add | Verb::Replace)
    }
}

/// What all requests of a phase have in common.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Stored with every document.
    pub flags: u32,
    /// 0, relative or absolute seconds.
    pub expiry: u32,
    /// When writes may be acknowledged, and after how many milliseconds they give up.
    pub durability: Option<(DurabilityLevel, Option<u16>)>,
    /// Where documents live, if collections are negotiated.
    pub collection: Option<CollectionId>,
    /// Of sub-document operations.
    pub path: Vec<u8>,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// What is asked.
    pub verb: Verb,
    /// Of which document.
    pub key: &'a [u8],
    /// The document, the bytes to add, or the field's new value.
    pub value: &'a [u8],
    /// Where it lives.
    pub vb: VbId,
    /// Comes back with the reply of the binary protocols.
    pub number: u32,
    /// For [`Verb::SetCas`].
    pub cas: u64,
    /// What is the same for all.
    pub settings: &'a Settings,
}

/// What a reply says.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The document (or field) and its version where the verb asks for it.
    Hit(&'a [u8], u64),
    /// Done as asked.
    Done,
    /// Done as asked, and the answer is no.
    Miss,
    /// The answer to a multi-get is complete; what was found is in the caller's list, or came before as [`Parsed::Part`].
    Many,
    /// "Temporary failure": to be tried again. With the server's words for why, where it has some.
    Temporary(Option<String>),
    /// "Not my vBucket": to be tried again where the cluster's map says by then. It comes with that map, or with nothing.
    Moved(&'a [u8]),
    /// Refused.
    Failed(String),
}

/// What the beginning of the input holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Not all of a reply.
    Incomplete,
    /// A reply, the bytes it takes, and the microseconds that the server says it took.
    Reply(Outcome<'a>, usize, Option<u32>),
    /// What became of the key at this place of a multi-get, and the bytes it takes; the reply follows.
    Part(usize, Outcome<'a>, usize),
    /// Something the server sent unasked, and the bytes it takes.
    Unasked(usize),
    /// No reply of this protocol: the connection is of no more use.
    Broken(String),
}

/// A document that a multi-get found: the place of its key in the request, and where its value lies in the input. Not
/// every protocol tells the place.
pub type Found = (Option<usize>, Range<usize>);

/// What the next reply answers.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// What was asked.
    pub verb: Verb,
    /// The request's number.
    pub number: u32,
    /// How many keys, for a multi-get.
    pub keys: usize,
}

impl Protocol {
    /// Whether it has words for an operation.
    #[must_use]
    pub const fn can(self, op: Op) -> bool {
        self.lacks(op).is_none()
    }

    /// Why it has no words for an operation, if it has none.
    #[must_use]
    pub const fn lacks(self, op: Op) -> Option<&'static str> {
        match (self, op) {
            (Protocol::Couchbase, _) => None,
            (_, Op::Query) => Some("only a cluster that speaks Couchbase's protocol has views"),
            (_, Op::SubGet | Op::SubSet) => Some("only Couchbase's protocol reaches into documents"),
            (Protocol::Resp, Op::Prepend) => Some("Redis has no command that adds bytes in front of a value"),
            _ => None,
        }
    }

    /// Whether an operation that begins with `verb` has its connection to itself until it ends. Redis compares by what a
    /// *connection* watches, so two such operations on one would be answered for each other.
    #[must_use]
    pub const fn claims_connection(self, verb: Verb) -> bool {
        matches!((self, verb), (Protocol::Resp, Verb::GetCas))
    }

    /// Where servers listen that speak it.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Protocol::Couchbase => 11210,
            Protocol::Binary | Protocol::Text => 11211,
            Protocol::Resp => 6379,
        }
    }

    /// Appends a request for one document.
    pub fn write(self, command: &Command<'_>, out: &mut Vec<u8>) {
        match self {
            Protocol::Couchbase | Protocol::Binary => binary::write(command, out),
            Protocol::Text => text::write(command, out),
            Protocol::Resp => resp::write(command, out),
        }
    }

    /// Appends one key of a multi-get, the first of which has `place` 0.
    pub fn write_many(self, place: usize, of: usize, command: &Command<'_>, out: &mut Vec<u8>) {
        match self {
            Protocol::Couchbase | Protocol::Binary => binary::write_many(place, of, command, out),
            Protocol::Text => text::write_many(place, of, command.key, out),
            Protocol::Resp => resp::write_many(place, of, command.key, out),
        }
    }

    /// The number of the request that the reply at the beginning of `input` answers, where replies have one; `None` while
    /// that cannot be seen.
    #[must_use]
    pub fn number(self, input: &[u8]) -> Option<u32> {
        match self {
            Protocol::Couchbase | Protocol::Binary => binary::number(input),
            Protocol::Text | Protocol::Resp => None,
        }
    }

    /// How many numbers a request takes.
    #[must_use]
    pub const fn numbers(self, verb: Verb, keys: usize) -> u32 {
        match (self, verb) {
            (Protocol::Couchbase | Protocol::Binary, Verb::MultiGet) => keys as u32 + 1,
            _ => 1,
        }
    }

    /// Reads the reply at the beginning of `input`. What a multi-get found is put into `found`.
    pub fn read<'a>(self, expected: Expected, input: &'a [u8], found: &mut Vec<Found>) -> Parsed<'a> {
        match self {
            Protocol::Couchbase | Protocol::Binary => {
                found.clear();
                binary::read(expected, input)
            }
            Protocol::Text => text::read(expected, input, found),
            Protocol::Resp => resp::read(expected, input, found),
        }
    }
}
