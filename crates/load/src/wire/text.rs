//! Lines of memcached's text protocol.

use super::{Command, Expected, Found, Outcome, Parsed, Verb};
use std::io::Write;

/// Longest line: a key and four numbers.
const LINE_BYTES_MAX: usize = 2048;
/// Ends the answer to a read.
const END: &[u8] = b"END";
/// Behind every value.
const VALUE_END: &[u8] = b"\r\n";

/// Appends a request.
pub(super) fn write(command: &Command<'_>, out: &mut Vec<u8>) {
    match command.verb {
        Verb::Get | Verb::MultiGet | Verb::SubGet => line(b"get", command.key, out),
        Verb::GetCas => line(b"gets", command.key, out),
        Verb::Set => store(b"set", command, out),
        Verb::SetCas => store(b"cas", command, out),
        Verb::Add => store(b"add", command, out),
        Verb::Replace => store(b"replace", command, out),
        Verb::Append => store(b"append", command, out),
        Verb::Prepend => store(b"prepend", command, out),
        Verb::Delete => line(b"delete", command.key, out),
        Verb::Incr => number(b"incr", command.key, 1, out),
        Verb::Decr => number(b"decr", command.key, 1, out),
        Verb::Touch => number(b"touch", command.key, command.settings.expiry, out),
        // No words for it: `Protocol::can` keeps it from coming here, and this is what the server would say.
        Verb::SubSet => line(b"subset", command.key, out),
    }
}

/// Appends one key of a multi-get.
pub(super) fn write_many(place: usize, of: usize, key: &[u8], out: &mut Vec<u8>) {
    if place == 0 {
        out.extend_from_slice(b"get");
    }
    out.push(b' ');
    out.extend_from_slice(key);
    if place + 1 == of {
        out.extend_from_slice(b"\r\n");
    }
}

fn line(word: &[u8], key: &[u8], out: &mut Vec<u8>) {
    for part in [word, b" ", key, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

fn number(word: &[u8], key: &[u8], number: u32, out: &mut Vec<u8>) {
    for part in [word, b" ", key] {
        out.extend_from_slice(part);
    }
    // Writing to a Vec cannot fail.
    let _ = write!(out, " {number}\r\n");
}

fn store(word: &[u8], command: &Command<'_>, out: &mut Vec<u8>) {
    for part in [word, b" ", command.key] {
        out.extend_from_slice(part);
    }
    let settings = command.settings;
    let _ = write!(out, " {} {} {}", settings.flags, settings.expiry, command.value.len());
    if command.verb == Verb::SetCas {
        let _ = write!(out, " {}", command.cas);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(command.value);
    out.extend_from_slice(b"\r\n");
}

/// Reads a reply.
pub(super) fn read<'a>(expected: Expected, input: &'a [u8], found: &mut Vec<Found>) -> Parsed<'a> {
    let Some((first, length)) = text_line(input) else {
        if input.len() > LINE_BYTES_MAX {
            return Parsed::Broken("a line without end".to_owned());
        }
        return Parsed::Incomplete;
    };
    let reading = matches!(expected.verb, Verb::Get | Verb::GetCas | Verb::MultiGet);
    let counting = matches!(expected.verb, Verb::Incr | Verb::Decr);
    let outcome = match first {
        END if reading => return read_values(expected, input, found),
        value if reading && value.starts_with(b"VALUE ") => return read_values(expected, input, found),
        b"STORED" | b"DELETED" | b"TOUCHED" if !reading && !counting => Outcome::Done,
        b"NOT_STORED" | b"EXISTS" | b"NOT_FOUND" if !reading => Outcome::Miss,
        digits if counting && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => Outcome::Done,
        error => {
            let text = String::from_utf8_lossy(error).into_owned();
            if !text.starts_with("SERVER_ERROR") && !text.starts_with("CLIENT_ERROR") {
                return Parsed::Broken(text);
            }
            let temporary = text.to_ascii_lowercase().contains("temporary failure");
            if temporary { Outcome::Temporary(None) } else { Outcome::Failed(text) }
        }
    };
    Parsed::Reply(outcome, length, None)
}

/// `VALUE key flags bytes [cas]`, the bytes, …, `END`.
fn read_values<'a>(expected: Expected, input: &'a [u8], found: &mut Vec<Found>) -> Parsed<'a> {
    found.clear();
    let (mut at, mut cas) = (0, 0);
    loop {
        let Some((line, length)) = text_line(&input[at..]) else { return Parsed::Incomplete };
        at += length;
        if line == END {
            break;
        }
        let mut words = line.split(|&byte| byte == b' ').skip(3);
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
        let Some(size) = number().filter(|_| line.starts_with(b"VALUE ")) else {
            return Parsed::Broken("a VALUE line without size".to_owned());
        };
        cas = number().unwrap_or(0);
        let end = at.saturating_add(size as usize);
        match input.get(end..).and_then(|rest| rest.get(..VALUE_END.len())) {
            None => return Parsed::Incomplete,
            Some(VALUE_END) => found.push((None, at..end)),
            Some(_) => return Parsed::Broken("a value longer than announced".to_owned()),
        }
        at = end + VALUE_END.len();
    }
    let outcome = match (&expected.verb, found.first()) {
        (Verb::MultiGet, _) => Outcome::Many,
        (_, None) => Outcome::Miss,
        (_, Some((_, place))) => Outcome::Hit(&input[place.clone()], cas),
    };
    Parsed::Reply(outcome, at, None)
}

/// The first line without its end, and its length with it.
fn text_line(input: &[u8]) -> Option<(&[u8], usize)> {
    let end = input.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n')?;
    Some((input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]), end + 1))
}
