//! Redis' protocol, version 2: arrays of strings out; strings, numbers, errors and arrays back.

use super::{Command, Expected, Found, Outcome, Parsed, Verb};
use std::io::Write;
use std::ops::Range;

/// Longest first line of a reply: an error with its text.
const LINE_BYTES_MAX: usize = 4096;

/// Appends a request.
pub(super) fn write(command: &Command<'_>, out: &mut Vec<u8>) {
    let (key, value) = (command.key, command.value);
    let expiry = match command.settings.expiry {
        0 => String::new(),
        seconds => seconds.to_string(),
    };
    match command.verb {
        Verb::Get | Verb::GetCas | Verb::MultiGet | Verb::SubGet => array(&[b"GET", key], out),
        Verb::Set | Verb::SetCas => store(None, command, &expiry, out),
        Verb::Add => store(Some(b"NX"), command, &expiry, out),
        Verb::Replace => store(Some(b"XX"), command, &expiry, out),
        Verb::Append | Verb::Prepend => array(&[b"APPEND", key, value], out),
        Verb::Delete => array(&[b"DEL", key], out),
        Verb::Incr => array(&[b"INCR", key], out),
        Verb::Decr => array(&[b"DECR", key], out),
        // Without an expiry to set, only whether the key is there can be asked.
        Verb::Touch if expiry.is_empty() => array(&[b"TOUCH", key], out),
        Verb::Touch => array(&[b"EXPIRE", key, expiry.as_bytes()], out),
        // No words for it: `Protocol::can` keeps it from coming here.
        Verb::SubSet => array(&[b"SUBSET", key], out),
    }
}

fn store(condition: Option<&[u8]>, command: &Command<'_>, expiry: &str, out: &mut Vec<u8>) {
    let mut words: Vec<&[u8]> = vec![b"SET", command.key, command.value];
    if command.settings.expiry > 0 {
        words.extend([&b"EX"[..], expiry.as_bytes()]);
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
    Bulk(Option<Range<usize>>),
    Array(usize),
}

/// Reads a reply.
pub(super) fn read<'a>(expected: Expected, input: &'a [u8], found: &mut Vec<Found>) -> Parsed<'a> {
    let (item, length) = match item(input, 0) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => return Parsed::Incomplete,
        Err(reason) => return Parsed::Broken(reason),
    };
    let outcome = match (expected.verb, item) {
        (_, Item::Error(text)) if text.starts_with("LOADING") || text.starts_with("TRYAGAIN") => {
            Outcome::Temporary
        }
        (_, Item::Error(text)) => Outcome::Failed(text),
        (Verb::MultiGet, Item::Array(items)) => return read_many(items, length, input, found),
        (Verb::Get | Verb::GetCas, Item::Bulk(Some(place))) => Outcome::Hit(&input[place], 0),
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
        b'*' => Item::Array(usize::try_from(number()?).map_err(|_| "an array without elements".to_owned())?),
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
