//! What goes back to a text client. Constants include the line's end.

use super::StoreVerb;
use base::{Cas, Status};

/// Unknown command, or one with a wrong number of words.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// A word is not what it should be, or a key is too long.
pub const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
/// The data block does not end where it should.
pub const BAD_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// `incr` or `decr` by something that is no number.
pub const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
/// An expiry that is no number.
pub const BAD_EXPIRY: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
/// `delete` with words it does not take.
pub const DELETE_USAGE: &[u8] = b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
/// A line without an end.
pub const LINE_TOO_LONG: &[u8] = b"CLIENT_ERROR line too long\r\n";
/// The data block is larger than a document may be.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// There is no room, now or at all.
pub const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// The document is no decimal number.
pub const NOT_A_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// After the last value, or the last statistic.
pub const END: &[u8] = b"END\r\n";
/// Done.
pub const OK: &[u8] = b"OK\r\n";
/// The document was stored.
pub const STORED: &[u8] = b"STORED\r\n";
/// The condition of `add`, `replace`, `append` or `prepend` was not met.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// The document has another CAS.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// There is no such document.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// The document was deleted.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// The document has a new expiry.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";

/// Appends `VALUE <key> <flags> <bytes> [<cas>]`; the value and [`VALUE_END`] follow.
#[inline]
pub fn append_value_line(out: &mut Vec<u8>, key: &[u8], flags: u32, value_len: usize, cas: Option<Cas>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    append_number(out, u64::from(flags));
    out.push(b' ');
    append_number(out, value_len as u64);
    if let Some(cas) = cas {
        out.push(b' ');
        append_number(out, cas.get());
    }
    out.extend_from_slice(VALUE_END);
}

/// What follows a value, and a line.
pub const VALUE_END: &[u8] = b"\r\n";

/// Appends a counter's new value.
pub fn append_counter(out: &mut Vec<u8>, value: u64) {
    append_number(out, value);
    out.extend_from_slice(VALUE_END);
}

/// Appends one statistic; [`END`] follows the last.
pub fn append_stat(out: &mut Vec<u8>, name: &str, value: &str) {
    for part in ["STAT ", name, " ", value, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Appends the answer to `version`.
pub fn append_version(out: &mut Vec<u8>, version: &str) {
    for part in ["VERSION ", version, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Appends the outcome of a storage command.
pub fn append_store_outcome(out: &mut Vec<u8>, verb: StoreVerb, status: Status) {
    match (status, verb) {
        (Status::Success, _) => out.extend_from_slice(STORED),
        (Status::KeyExists | Status::Locked, StoreVerb::Cas | StoreVerb::Set) => {
            out.extend_from_slice(EXISTS)
        }
        (Status::KeyNotFound, StoreVerb::Cas) => out.extend_from_slice(NOT_FOUND),
        (Status::KeyExists | Status::KeyNotFound | Status::NotStored | Status::Locked, _) => {
            out.extend_from_slice(NOT_STORED);
        }
        _ => append_failure(out, status),
    }
}

/// Appends the outcome of a command that answers `done` when it succeeds and `NOT_FOUND` when there is no
/// document.
pub fn append_outcome(out: &mut Vec<u8>, done: &[u8], status: Status) {
    match status {
        Status::Success => out.extend_from_slice(done),
        Status::KeyNotFound => out.extend_from_slice(NOT_FOUND),
        _ => append_failure(out, status),
    }
}

/// Appends the words for a status that no particular command expects.
pub fn append_failure(out: &mut Vec<u8>, status: Status) {
    match status {
        Status::TooBig => out.extend_from_slice(TOO_LARGE),
        Status::NoMemory => out.extend_from_slice(OUT_OF_MEMORY),
        Status::DeltaBadValue => out.extend_from_slice(NOT_A_NUMBER),
        Status::UnknownCommand | Status::NotSupported => out.extend_from_slice(ERROR),
        Status::Invalid => out.extend_from_slice(BAD_FORMAT),
        other => {
            for part in ["SERVER_ERROR ", other.text(), "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
    }
}

/// Decimal digits of a `u64`.
const DIGITS_MAX: usize = 20;

/// Appends a number. Three times as fast as `write!`, which shows in small reads.
#[inline]
fn append_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; DIGITS_MAX];
    let mut start = DIGITS_MAX;
    for (index, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        start = index;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(start..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_and_numbers() {
        let line = written(|out| append_value_line(out, b"k", 7, 0, None));
        assert_eq!(line, "VALUE k 7 0\r\n");
        let line = written(|out| append_value_line(out, b"k", u32::MAX, 10, Some(Cas(u64::MAX))));
        assert_eq!(line, "VALUE k 4294967295 10 18446744073709551615\r\n");
        for number in [0, 1, 9, 10, 99, 12_345, u64::MAX] {
            assert_eq!(written(|out| append_counter(out, number)), format!("{number}\r\n"));
        }
    }

    #[test]
    fn outcomes() {
        let store = |verb, status| written(|out| append_store_outcome(out, verb, status));
        assert_eq!(store(StoreVerb::Set, Status::Success), "STORED\r\n");
        assert_eq!(store(StoreVerb::Cas, Status::KeyExists), "EXISTS\r\n");
        assert_eq!(store(StoreVerb::Cas, Status::KeyNotFound), "NOT_FOUND\r\n");
        assert_eq!(store(StoreVerb::Add, Status::KeyExists), "NOT_STORED\r\n");
        assert_eq!(store(StoreVerb::Replace, Status::KeyNotFound), "NOT_STORED\r\n");
        assert_eq!(store(StoreVerb::Append, Status::NotStored), "NOT_STORED\r\n");
        assert_eq!(store(StoreVerb::Set, Status::TooBig), "SERVER_ERROR object too large for cache\r\n");
        assert_eq!(store(StoreVerb::Set, Status::TemporaryFailure), "SERVER_ERROR Temporary failure\r\n");
        let delete = |status| written(|out| append_outcome(out, DELETED, status));
        assert_eq!(
            (delete(Status::Success), delete(Status::KeyNotFound)),
            ("DELETED\r\n".into(), "NOT_FOUND\r\n".into())
        );
    }
}
