//! Keys of extended attributes (kv_engine `docs/ExtendedAttributes.md`).

use base::limits::XATTR_KEY_BYTES_MAX;

/// What precedes the base64 form in which binary values are stored.
pub const BINARY_PREFIX: &[u8] = b"cb-content-base64-encoded:";

/// The length of the key that a path begins with, which ends at the first `.` or `[`. `None` when it is no key: empty,
/// too long, or beginning with a reserved character. `None` too when the path is not (modified) UTF-8.
#[must_use]
pub fn xattr_key_len(path: &[u8]) -> Option<usize> {
    let length = path.iter().position(|byte| matches!(byte, b'.' | b'[')).unwrap_or(path.len());
    let first = *path.first()?;
    let is_special = matches!(first, b'_' | b'$');
    let is_reserved = (first.is_ascii_punctuation() || first.is_ascii_control()) && !is_special;
    let is_empty = length == 0 || (is_special && length == 1);
    let is_text = std::str::from_utf8(path).is_ok() && !path.contains(&0);
    (!is_reserved && !is_empty && length <= XATTR_KEY_BYTES_MAX && is_text).then_some(length)
}

/// Whether a path (or key) is that of an attribute which survives the deletion of its document, and which takes a right
/// of its own.
#[must_use]
pub fn is_system_key(path: &[u8]) -> bool {
    path.first() == Some(&b'_')
}

/// Whether a path (or key) is that of an attribute which is made up when it is asked for.
#[must_use]
pub fn is_virtual_key(path: &[u8]) -> bool {
    path.first() == Some(&b'$')
}
