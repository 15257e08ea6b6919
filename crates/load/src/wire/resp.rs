//! Redis' protocol, version 2: arrays of strings out; strings, numbers, errors and arrays back.
//!
//! Redis has no versions to compare. What it has is WATCH: a transaction is not carried out if a watched key was
//! written since, by whomever. So a CAS reads under WATCH and writes in a transaction of one command. Watched keys are
//! the connection's and go with its next EXEC, hence [`super::Protocol::claims_connection`]. What an operation that
//! found nothing has left watched goes with the UNWATCH that each one begins with.

use super::{Command, Expected, Found, Outcome, Parsed, Verb};
use std::io::Write;
use std::ops::Range;

/// Expiries up to this are seconds from now, as in memcached's protocols; larger ones seconds since 1970.
const RELATIVE_MAX: u32 = 30 * 24 * 3600;
/// Longest first line of a reply: an error with its text.
const LINE_BYTES_MAX: usize = 4096;

/// Appends a request.
pub(super) fn write(command: &Command<'_>, out: &mut Vec<u8>) {
    let (key, value) = (command.key, command.value);
    let expiry = command.settings.expiry;
    match command.verb {
        Verb::Get | Verb::MultiGet | Verb::SubGet => array(&[b"GET", key], out),
        Verb::GetCas => {
            array(&[b"UNWATCH"], out);
            array(&[b"WATCH", key], out);
            array(&[b"GET", key], out);
        }
        Verb::SetCas => {
            array(&[b"MULTI"], out);
            store(None, command, out);
            array(&[b"EXEC"], out);
        }
        Verb::Set => store(None, command, out),
        Verb::Add => store(Some(b"NX"), command, out),
        Verb::Replace => store(Some(b"XX"), command, out),
        Verb::Append | Verb::Prepend => array(&[b"APPEND", key, value], out),
        Verb::Delete => array(&[b"DEL", key], out),
        Verb::Incr => array(&[b"INCR", key], out),
        Verb::Decr => array(&[b"DECR", key], out),
        // Without an expiry to set, only whether the key is there can be asked.
        Verb::Touch if expiry == 0 => array(&[b"TOUCH", key], out),
        Verb::Touch => {
            let word: &[u8] = if expiry > RELATIVE_MAX { b"EXPIREAT" } else { b"EXPIRE" };
            array(&[word, key, expiry.to_string().as_bytes()], out);
        }
        // No words for it: `Protocol::can` keeps it from coming here.
        Verb::SubSet => array(&[b"SUBSET", key], out),
    }
}

fn store(condition: Option<&[u8]>, command: &Command<'_>, out: &mut Vec<u8>) {
    let expiry = command.settings.expiry;
    let seconds = expiry.to_string();
    let mut words: Vec<&[u8]> = vec![b"SET", command.key, command.value];
    if expiry > 0 {
        let word: &[u8] = if expiry > RELATIVE_MAX { b"EXAT" } else { b"EX" };
        words.extend([word, seconds.as_bytes()]);
    }
    words.extend(condition);
    array(&words, out);
}

fn array(words: &[&[u8]], out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        string(word, out);
    }
}

fn string(word: &[u8], out: &mut Vec<u8>) {
    let _ = write!(out, "${}\r\n", word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// Appends one key of a multi-get.
pub(super) fn write_many(place: usize, of: usize, key: &[u8], out: &mut Vec<u8>) {
    if place == 0 {
        let _ = write!(out, "*{}\r\n", of + 1);
        string(b"MGET", out);
    }
    string(key, out);
}

enum Item {
    Text(Range<usize>),
    Error(String),
    Number(i64),
    /// `None` is nothing, which has a form of its own among strings and another one among arrays.
    Bulk(Option<Range<usize>>),
    Array(usize),
}

/// Reads a reply.
pub(super) fn read<'a>(expected: Expected, input: &'a [u8], found: &mut Vec<Found>) -> Parsed<'a> {
    let parsed = match expected.verb {
        Verb::GetCas => read_watched(input),
        Verb::SetCas => read_transaction(input),
        _ => item(input, 0)
            .map(|item| item.map(|(item, length)| read_one(expected, item, length, input, found))),
    };
    match parsed {
        Ok(Some(parsed)) => parsed,
        Ok(None) => Parsed::Incomplete,
        Err(reason) => Parsed::Broken(reason),
    }
}

/// The reply to a request of one command.
fn read_one<'a>(
    expected: Expected,
    item: Item,
    length: usize,
    input: &'a [u8],
    found: &mut Vec<Found>,
) -> Parsed<'a> {
    let outcome = match (expected.verb, item) {
        (_, Item::Error(text)) => refused(text),
        (Verb::MultiGet, Item::Array(items)) => return read_many(items, length, input, found),
        (Verb::Get, Item::Bulk(Some(place))) => Outcome::Hit(&input[place], 0),
        (_, Item::Bulk(None)) => Outcome::Miss,
        (Verb::Delete | Verb::Touch, Item::Number(0)) => Outcome::Miss,
        (Verb::Append | Verb::Delete | Verb::Touch | Verb::Incr | Verb::Decr, Item::Number(_)) => {
            Outcome::Done
        }
        (Verb::Set | Verb::Add | Verb::Replace, Item::Text(place)) if &input[place.clone()] == b"OK" => {
            Outcome::Done
        }
        _ => return Parsed::Broken("a reply of the wrong kind".to_owned()),
    };
    Parsed::Reply(outcome, length, None)
}

fn refused<'a>(error: String) -> Outcome<'a> {
    let later = error.starts_with("LOADING") || error.starts_with("TRYAGAIN");
    if later { Outcome::Temporary(Some(error)) } else { Outcome::Failed(error) }
}

/// The replies to UNWATCH, WATCH and GET.
fn read_watched(input: &[u8]) -> Result<Option<Parsed<'_>>, String> {
    let Some((unwatched, at)) = item(input, 0)? else { return Ok(None) };
    let Some((watched, at)) = item(input, at)? else { return Ok(None) };
    let Some((read, end)) = item(input, at)? else { return Ok(None) };
    let outcome = match (unwatched, watched, read) {
        (Item::Error(text), ..) | (_, Item::Error(text), _) | (.., Item::Error(text)) => refused(text),
        (Item::Text(_), Item::Text(_), Item::Bulk(Some(place))) => Outcome::Hit(&input[place], 0),
        (Item::Text(_), Item::Text(_), Item::Bulk(None)) => Outcome::Miss,
        _ => return Err("a reply of the wrong kind".to_owned()),
    };
    Ok(Some(Parsed::Reply(outcome, end, None)))
}

/// The replies to MULTI, SET and EXEC. Whatever was refused is final: nothing is watched any more, so a second try would
/// compare with nothing.
fn read_transaction(input: &[u8]) -> Result<Option<Parsed<'_>>, String> {
    let Some((begun, at)) = item(input, 0)? else { return Ok(None) };
    let Some((queued, at)) = item(input, at)? else { return Ok(None) };
    let Some((carried_out, mut end)) = item(input, at)? else { return Ok(None) };
    let outcome = match (begun, queued, carried_out) {
        (Item::Error(text), ..) | (_, Item::Error(text), _) | (.., Item::Error(text)) => {
            Outcome::Failed(text)
        }
        (Item::Text(_), Item::Text(_), Item::Bulk(None)) => Outcome::Miss,
        (Item::Text(_), Item::Text(_), Item::Array(1)) => {
            let Some((stored, after)) = item(input, end)? else { return Ok(None) };
            end = after;
            match stored {
                Item::Text(_) => Outcome::Done,
                Item::Error(text) => Outcome::Failed(text),
                _ => return Err("a reply of the wrong kind".to_owned()),
            }
        }
        _ => return Err("a reply of the wrong kind".to_owned()),
    };
    Ok(Some(Parsed::Reply(outcome, end, None)))
}

fn read_many<'a>(items: usize, start: usize, input: &[u8], found: &mut Vec<Found>) -> Parsed<'a> {
    found.clear();
    let mut at = start;
    for place in 0..items {
        match item(input, at) {
            Ok(Some((Item::Bulk(value), end))) => {
                found.extend(value.map(|value| (Some(place), value)));
                at = end;
            }
            Ok(None) => return Parsed::Incomplete,
            Ok(Some(_)) => return Parsed::Broken("an array of something else than strings".to_owned()),
            Err(reason) => return Parsed::Broken(reason),
        }
    }
    Parsed::Reply(Outcome::Many, at, None)
}

/// The item at `at` and where the next begins; `None` while it is not all there.
fn item(input: &[u8], at: usize) -> Result<Option<(Item, usize)>, String> {
    let rest = input.get(at..).unwrap_or_default();
    let Some(end) = rest.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n') else {
        let endless = rest.len() >= LINE_BYTES_MAX;
        return if endless { Err("a line without end".to_owned()) } else { Ok(None) };
    };
    let next = at + end + 1;
    let Some(([kind], text)) = rest[..end].strip_suffix(b"\r").and_then(|line| line.split_first_chunk())
    else {
        return Err("an empty line".to_owned());
    };
    let number = || {
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
        number.ok_or_else(|| "a length that is no number".to_owned())
    };
    let item = match kind {
        b'+' => Item::Text(at + 1..at + 1 + text.len()),
        b'-' => Item::Error(String::from_utf8_lossy(text).into_owned()),
        b':' => Item::Number(number()?),
        b'*' => usize::try_from(number()?).map_or(Item::Bulk(None), Item::Array),
        b'$' => match usize::try_from(number()?) {
            Err(_) => Item::Bulk(None),
            Ok(bytes) => {
                let end = next.saturating_add(bytes);
                return match input.get(end..).and_then(|rest| rest.get(..2)) {
                    None => Ok(None),
                    Some(b"\r\n") => Ok(Some((Item::Bulk(Some(next..end)), end + 2))),
                    Some(_) => Err("a string longer than announced".to_owned()),
                };
            }
        },
        _ => return Err(format!("a reply that begins with {:?}", char::from(*kind))),
    };
    Ok(Some((item, next)))
}
