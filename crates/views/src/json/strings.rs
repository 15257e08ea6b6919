//! What strings mean, and how they are written.

use std::borrow::Cow;

use super::{Token, scan::plain_bytes};

/// A string has half of a surrogate pair, which no text in UTF-8 can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Unexpected character in key")]
pub struct LoneSurrogate;

/// What a string token means.
///
/// # Errors
/// It has half of a surrogate pair.
pub fn unescape<'a>(token: &Token<'a>) -> Result<Cow<'a, str>, LoneSurrogate> {
    if !token.escaped {
        return Ok(Cow::Borrowed(token.text));
    }
    let mut out = String::with_capacity(token.text.len());
    let mut rest = token.text;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at..).unwrap_or_default();
        let (character, length) = escape(rest)?;
        out.push(character);
        rest = rest.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

/// The character that an escape sequence at the beginning of `text` means, and the length of the sequence.
fn escape(text: &str) -> Result<(char, usize), LoneSurrogate> {
    let simple = match text.as_bytes().get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode(text),
        Some(other) => char::from(*other),
        None => return Err(LoneSurrogate),
    };
    Ok((simple, 2))
}

fn unicode(text: &str) -> Result<(char, usize), LoneSurrogate> {
    let first = unit(text).ok_or(LoneSurrogate)?;
    if let Some(character) = char::from_u32(first) {
        return Ok((character, 6));
    }
    let second = text.get(6..).and_then(unit).ok_or(LoneSurrogate)?;
    if !(0xd800..0xdc00).contains(&first) || !(0xdc00..0xe000).contains(&second) {
        return Err(LoneSurrogate);
    }
    let scalar = 0x10000 + ((first - 0xd800) << 10 | (second - 0xdc00));
    Ok((char::from_u32(scalar).ok_or(LoneSurrogate)?, 12))
}

fn unit(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

/// Appends `text` as a JSON string, escaped as `JSON.stringify` does it.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_bytes(rest).min(rest.len()));
        out.extend_from_slice(plain);
        let Some((byte, behind)) = special.split_first() else { break };
        write_escape(*byte, out);
        rest = behind;
    }
    out.push(b'"');
}

/// Appends the shortest escape sequence of a quote, backslash or control character.
fn write_escape(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}
