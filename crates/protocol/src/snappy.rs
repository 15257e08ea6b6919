//! Compressed values: one raw Snappy block each, as clients that negotiated Snappy send and take them.

use base::limits;

/// A block's element of three bytes stands for 64 at most, and no other for more per byte.
const SNAPPY_RATIO_MAX: usize = 22;

/// Appends the inflated form of one raw Snappy block to `out`. Returns false, with `out` as it was, when it is not
/// one or inflates beyond the document limit.
#[must_use]
pub fn inflate(block: &[u8], out: &mut Vec<u8>) -> bool {
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

/// The length of what a value is inflated to, as its head says; of what is no block, its own.
#[must_use]
pub fn inflated_len(block: &[u8]) -> usize {
    snap::raw::decompress_len(block).unwrap_or(block.len())
}

#[cfg(test)]
mod tests {
    use super::*;

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
