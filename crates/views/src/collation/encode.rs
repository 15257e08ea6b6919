//! Keys as bytes that compare as the keys do.
//!
//! An encoding is a sequence of tokens. A token begins with a byte for the kind. For a number, eight bytes of an
//! order-preserving double follow. For a string, the sort key of the collation follows, and a zero byte, which no sort
//! key contains. The end of a container is a zero byte as well, below every kind. No encoding is the beginning of
//! another one.

use super::{KeyError, ascii, collator, number};
use crate::json::{Kind, Tokens, plain_bytes, unescape};

/// What an index records of the encoding of its keys: the layout of this module, and the data that sort keys come from.
pub const ENCODING: &str = "1; icu_collator 2.4.0, CLDR 49, Unicode 18, root";

/// The longest key that may be emitted is a byte shorter than this.
pub const KEY_TEXT_MAX: usize = 4096;

/// The longest key in a query; longer ones cannot equal an emitted key in a way that any client relies on.
pub(super) const QUERY_TEXT_MAX: usize = 1 << 20;

pub(super) const END: u8 = 0x00;
pub(super) const NULL: u8 = 0x10;
pub(super) const FALSE: u8 = 0x20;
pub(super) const TRUE: u8 = 0x28;
pub(super) const NUMBER: u8 = 0x30;
pub(super) const STRING: u8 = 0x40;
pub(super) const ARRAY: u8 = 0x50;
pub(super) const OBJECT: u8 = 0x60;

/// Appends the encoding of a key of a query.
///
/// # Errors
/// The text is no key, or longer than 1 MiB; `out` is as it was then.
pub fn encode(text: &str, out: &mut Vec<u8>) -> Result<(), KeyError> {
    encode_bounded(text, QUERY_TEXT_MAX, out)
}

/// Appends the encoding of a key of at most `bytes_max` bytes of text.
///
/// # Errors
/// The text is no key, or is longer; `out` is as it was then.
pub fn encode_bounded(text: &str, bytes_max: usize, out: &mut Vec<u8>) -> Result<(), KeyError> {
    if text.len() > bytes_max {
        return Err(KeyError::TooLong(text.len()));
    }
    let before = out.len();
    let done = append(text, out);
    if done.is_err() {
        out.truncate(before);
    }
    done
}

/// Says what is wrong with a key of at most `bytes_max` bytes of text, without encoding it.
///
/// # Errors
/// Those of [`encode_bounded`].
pub fn check_bounded(text: &str, bytes_max: usize) -> Result<(), KeyError> {
    if text.len() > bytes_max {
        return Err(KeyError::TooLong(text.len()));
    }
    if plain_string(text).is_some() {
        return Ok(());
    }
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next()? {
        if matches!(token.kind, Kind::String | Kind::Name) {
            unescape(&token)?;
        }
    }
    Ok(())
}

/// What is between the quotes of a string without escape sequences, as most keys are.
fn plain_string(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    (plain_bytes(inner.as_bytes()) == inner.len()).then_some(inner)
}

fn append_string(text: &str, out: &mut Vec<u8>) {
    out.push(STRING);
    if !ascii::sort_key(text, out) {
        let Ok(()) = collator().write_sort_key_to(text, out);
    }
    out.push(END);
}

fn append(text: &str, out: &mut Vec<u8>) -> Result<(), KeyError> {
    if let Some(inner) = plain_string(text) {
        append_string(inner, out);
        return Ok(());
    }
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next()? {
        match token.kind {
            Kind::End => out.push(END),
            Kind::Null => out.push(NULL),
            Kind::False => out.push(FALSE),
            Kind::True => out.push(TRUE),
            Kind::Array => out.push(ARRAY),
            Kind::Object => out.push(OBJECT),
            Kind::Number => {
                out.push(NUMBER);
                out.extend_from_slice(&ordered(number(&token)).to_be_bytes());
            }
            Kind::String | Kind::Name => append_string(&unescape(&token)?, out),
        }
    }
    Ok(())
}

/// The bits of a double that is no NaN, so that unsigned comparison orders them as the doubles.
fn ordered(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// The length of the value at the beginning of `encoded`, or `None` where that is no encoding.
pub(super) fn value_length(encoded: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0_usize, 0_usize);
    loop {
        let kind = *encoded.get(at)?;
        at += 1;
        match kind {
            END => depth = depth.checked_sub(1)?,
            NULL | FALSE | TRUE => {}
            NUMBER => at = at.checked_add(8)?,
            STRING => at += memchr::memchr(END, encoded.get(at..)?)? + 1,
            ARRAY | OBJECT => depth += 1,
            _ => return None,
        }
        if at > encoded.len() {
            return None;
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use md5::{Digest, Md5};

    #[test]
    fn no_sort_key_has_a_zero_byte() {
        let mut key = Vec::new();
        for character in '\0'..=char::MAX {
            key.clear();
            let Ok(()) = collator().write_sort_key_to(character.encode_utf8(&mut [0; 4]), &mut key);
            assert!(!key.contains(&0), "{character:?}");
        }
    }

    /// Sort keys are stored. Where this test fails after an update, `ENCODING` has to say something new.
    #[test]
    fn sort_keys_are_those_of_the_recorded_version() {
        let mut digest = Md5::new();
        let mut key = Vec::new();
        for character in '\0'..=char::MAX {
            key.clear();
            let Ok(()) = collator().write_sort_key_to(character.encode_utf8(&mut [0; 4]), &mut key);
            digest.update(&key);
            digest.update([0]);
        }
        let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            (ENCODING, digest.as_str()),
            ("1; icu_collator 2.4.0, CLDR 49, Unicode 18, root", "77ffb57f7b99ff19f3a8c8983ed1affe")
        );
    }

    #[test]
    fn plain_strings_are_encoded_as_their_tokens_are() {
        for text in
            ["\"\"", "\"a b\"", "\"é\"", "\"", "\"a\"b\"", "\"a\\\"", "\"a\\n\"", "\"a\nb\"", "\"a\",\"b\""]
        {
            // With a blank before it, it is read token by token.
            let with_blank = format!(" {text}");
            let [plain, by_tokens] = [text, &with_blank].map(|text| {
                let mut out = Vec::new();
                (encode(text, &mut out).is_ok(), check_bounded(text, 100).is_ok(), out)
            });
            assert_eq!(plain, by_tokens, "{text}");
            assert_eq!(plain.0, plain.1, "{text}");
        }
    }

    #[test]
    fn an_encoding_that_fails_leaves_nothing() {
        let mut out = vec![7];
        assert!(encode("[1,2", &mut out).is_err());
        assert_eq!(
            encode("[1,\"\\ud800\"]", &mut out).unwrap_err().to_string(),
            "Unexpected character in key"
        );
        assert_eq!(encode_bounded("[1,2]", 4, &mut out), Err(KeyError::TooLong(5)));
        assert_eq!(out, [7]);
    }
}
