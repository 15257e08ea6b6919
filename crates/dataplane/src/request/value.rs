//! What values are: JSON or not, compressed or not. The engine asks through [`codec`] when it changes a value.

use base::{Datatype, limits};
use engine::{ValueCodec, json::is_json};
pub(crate) use protocol::snappy::{inflate, inflated_len};

/// What the engine needs for append, prepend and counters.
#[must_use]
pub fn codec() -> ValueCodec {
    ValueCodec { recheck: detect, inflate, inflated_len }
}

/// [`Datatype::JSON`] if `value` is one well-formed JSON text, else [`Datatype::RAW`]. What a client claims is
/// not trusted: some never set the bit, some set it on anything.
pub fn detect(value: &[u8]) -> Datatype {
    if may_be_json(value) && is_json(value) { Datatype::JSON } else { Datatype::RAW }
}

/// Looks at the first byte that is not white space: most values that are not JSON end here.
#[inline]
fn may_be_json(value: &[u8]) -> bool {
    let first = value.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    matches!(first, Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n'))
}

/// The document's body as this client takes it: without extended attributes, inflated unless it takes Snappy.
pub fn plain_body<'a>(
    value: &'a [u8],
    datatype: &mut Datatype,
    negotiated: Datatype,
    scratch: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let has_xattrs = datatype.contains(Datatype::XATTR);
    let is_compressed = datatype.contains(Datatype::SNAPPY);
    let mut body = value;
    if is_compressed && (has_xattrs || !negotiated.contains(Datatype::SNAPPY)) {
        if !inflate(value, scratch) {
            return None;
        }
        body = scratch;
        *datatype = datatype.without(Datatype::SNAPPY);
    }
    if has_xattrs {
        let (length, rest) = body.split_first_chunk::<4>()?;
        body = rest.get(u32::from_be_bytes(*length) as usize..)?;
        *datatype = datatype.without(Datatype::XATTR);
    }
    (body.len() <= limits::VALUE_BYTES_MAX + limits::XATTR_BYTES_MAX).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_what_parses_as_one_json_text() {
        for json in
            ["{}", " [1, -2.5e3, \"x\\u00e9\"]\n", "\"text\"", "0", "-1", "true", "null", "{\"a\":{}}"]
        {
            assert_eq!(detect(json.as_bytes()), Datatype::JSON, "{json}");
        }
        for other in ["", "  ", "{", "{}x", "01", "nul", "text", "{a:1}", "[1,]", "'x'", "\u{feff}{}"] {
            assert_eq!(detect(other.as_bytes()), Datatype::RAW, "{other}");
        }
        assert_eq!(detect(b"\"\xff\""), Datatype::RAW, "not UTF-8");
    }
}
