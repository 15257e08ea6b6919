//! Which keys form a group: by the first elements of arrays, or by the whole key.

use super::encode::{ARRAY, value_length};
use crate::json;

/// The bytes of an encoded key that decide its group at `level`. Of an array these are its first elements. Of shorter
/// arrays, and of everything else, these are all bytes. Two keys are in one group exactly where these bytes are equal.
///
/// `None` where `encoded` is no encoding.
#[must_use]
pub fn group_prefix(encoded: &[u8], level: u64) -> Option<&[u8]> {
    let whole = value_length(encoded)?;
    if encoded.first() != Some(&ARRAY) {
        return encoded.get(..whole);
    }
    let mut at = 1;
    for _ in 0..level {
        if at + 1 == whole {
            return encoded.get(..whole);
        }
        at += value_length(encoded.get(at..whole)?)?;
    }
    encoded.get(..at)
}

/// The key of a group, as text: an array cut off behind its first `level` elements, or the key as it is.
#[must_use]
pub fn group_text(key: &str, level: u64) -> String {
    let Some(elements) = json::elements(key) else { return key.to_owned() };
    let wanted = usize::try_from(level).unwrap_or(usize::MAX);
    match elements.get(..wanted) {
        Some(first) if first.len() < elements.len() => format!("[{}]", first.join(",")),
        _ => key.to_owned(),
    }
}
