//! Bytes as they lie on the disk: compressed, where that makes them an eighth shorter.

use std::io;

use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

const PLAIN: u8 = 0;
const SNAPPY: u8 = 1;
/// No compressed bytes become more than so many times as many.
const EXPANSION_MAX: usize = 64;

/// Packs one piece after the other in the same memory.
pub(super) struct Packer(Encoder);

impl Packer {
    pub(super) fn new() -> Self {
        Self(Encoder::new())
    }

    /// Appends bytes as they are written.
    pub(super) fn pack(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let before = out.len();
        out.push(SNAPPY);
        out.resize(before + 1 + max_compress_len(bytes.len()), 0);
        let space = out.get_mut(before + 1..).unwrap_or_default();
        let length = self.0.compress(bytes, space).map_err(io::Error::other)?;
        if length < bytes.len() - bytes.len() / 8 {
            out.truncate(before + 1 + length);
        } else {
            out.truncate(before);
            out.push(PLAIN);
            out.extend_from_slice(bytes);
        }
        Ok(())
    }
}

/// What was packed, or nothing where that cannot be read.
pub(super) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let (kind, bytes) = packed.split_first()?;
    match *kind {
        PLAIN => Some(bytes.to_vec()),
        SNAPPY => {
            let length = decompress_len(bytes).ok()?;
            if length > bytes.len().saturating_mul(EXPANSION_MAX) {
                return None;
            }
            Decoder::new().decompress_vec(bytes).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let mut random = fastrand::Rng::with_seed(2);
        let mut packer = Packer::new();
        for length in [0, 1, 7, 100, 9000, 200_000] {
            for different in [1, 3, 256] {
                let bytes: Vec<u8> = (0..length).map(|_| random.u16(..different) as u8).collect();
                let mut packed = vec![9];
                packer.pack(&bytes, &mut packed).unwrap();
                assert_eq!(unpack(&packed[1..]), Some(bytes.clone()), "{length} of {different}");
                assert!(packed.len() <= length + 2);
                if different == 1 && length > 100 {
                    assert!(packed.len() * 10 < length);
                }
            }
        }
    }

    #[test]
    fn bytes_that_nobody_packed_are_refused() {
        assert_eq!(unpack(&[]), None);
        assert_eq!(unpack(&[7, 1, 2]), None);
        // A gigabyte is announced.
        assert_eq!(unpack(&[SNAPPY, 0x80, 0x80, 0x80, 0x80, 4, 0, 0]), None);
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..random.usize(..60)).map(|_| random.u8(..)).collect();
            let _ = unpack(&bytes);
        }
    }
}
