//! What values are: JSON or not, compressed or not. The engine asks through [`codec`] when it changes a value.

use base::{Datatype, limits};
use engine::{ValueCodec, json::is_json};

/// What the engine needs for append, prepend and counters.
#[must_use]
pub fn codec() -> ValueCodec {
    ValueCodec { recheck: detect, inflate }
}

/// [`Datatype::JSON`] if `value` is one well-formed JSON text, else [`Datatype::RAW`]. What a client claims is
/// not trusted: some never set the bit, some set it on anything.
pub(crate) fn detect(value: &[u8]) -> Datatype {
    if may_be_json(value) && is_json(value) { Datatype::JSON } else { Datatype::RAW }
}

/// Looks at the first byte that is not white space: most values that are not JSON end here.
#[inline]
fn may_be_json(value: &[u8]) -> bool {
    let first = value.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    matches!(first, Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n'))
}

/// A block's element of three bytes stands for 64 at most, and no other for more per byte.
const SNAPPY_RATIO_MAX: usize = 22;

/// Appends the inflated form of one raw Snappy block to `out`; false, with `out` as it was, when it is not one
/// or inflates beyond the document limit.
pub(crate) fn inflate(block: &[u8], out: &mut Vec<u8>) -> bool {
    // A few bytes can claim to be megabytes, for which memory would be cleared before they turn out not to be.
    let limit = (limits::VALUE_BYTES_MAX + limits::XATTR_BYTES_MAX).min(block.len() * SNAPPY_RATIO_MAX);
    let Some(length) = snap::raw::decompress_len(block).ok().filter(|length| *length <= limit) else {
        return false;
    };
    let start = out.len();
    out.resize(start + length, 0);
    let target = out.get_mut(start..).unwrap_or_default();
    let done = snap::raw::Decoder::new().decompress(block, target).is_ok_and(|count| count == length);
    if !done {
        out.truncate(start);
    }
    done
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

    #[test]
    fn blocks_inflate_behind_what_is_there_or_leave_it_alone() {
        let block = snap::raw::Encoder::new().compress_vec(&[7; 1000]).unwrap();
        let mut out = b"kept".to_vec();
        assert!(inflate(&block, &mut out));
        assert_eq!((out.len(), out.get(..5)), (1004, Some(&b"kept\x07"[..])));
        for bad in [&block[..block.len() - 1], &[0xff; 9][..], b"\x7f", b"\xff\xff\xff\x7f\x00"] {
            let mut out = b"kept".to_vec();
            assert!(!inflate(bad, &mut out));
            assert_eq!(out, b"kept");
        }
    }

    #[test]
    fn a_block_gets_no_more_memory_than_its_bytes_can_fill() {
        let limit = limits::VALUE_BYTES_MAX + limits::XATTR_BYTES_MAX;
        let longest = snap::raw::Encoder::new().compress_vec(&vec![0; limit]).unwrap();
        let mut out = Vec::new();
        assert!(inflate(&longest, &mut out) && out.len() == limit);
        // Sixteen megabytes, says its head.
        let mut out = Vec::new();
        assert!(!inflate(b"\x80\x80\x80\x08\x00", &mut out));
        assert_eq!(out.capacity(), 0);
    }
}
