//! Values compressed for the way to another node, in buckets that ask for it (`compressionMode` `active`).
//!
//! What is packed says so in its datatype ([`PACKED`]), beside what it was stored as, and is inflated by the node that gets it.
//! Copies are equal byte for byte, whatever the mode was when they were made. What is stored compressed goes as it is. So does what is
//! too small, too large or hardly gets smaller: the loop that sends it serves clients as well.
//!
//! Values are immutable and held by the sender: no lock is held meanwhile. Buffers belong to the connection and
//! are used again for the next value.

use base::Datatype;
use protocol::binary::dcp::PACKED;
use snap::raw::{Encoder, max_compress_len};

/// A turn ends behind so many bytes: of what gets much smaller little fills the output.
pub(super) const TURN_BYTES: usize = 1 << 20;
/// Of less there is too little to gain.
const BYTES_MIN: usize = 128;
/// More would take milliseconds.
const BYTES_MAX: usize = 1 << 20;
/// What is not smaller by this part is not worth inflating.
const GAIN_SHARE: usize = 8;

/// See the module header.
pub(super) struct Packer {
    /// Its tables take tens of kilobytes, once something was packed.
    encoder: Encoder,
}

impl Packer {
    pub(super) fn new() -> Self {
        Self { encoder: Encoder::new() }
    }

    /// Compresses a value into `out`, whatever was there; returns the datatype that it goes out with. `None`: it goes as it is.
    pub(super) fn pack(&mut self, value: &[u8], stored: Datatype, out: &mut Vec<u8>) -> Option<Datatype> {
        if stored.contains(Datatype::SNAPPY) || !(BYTES_MIN..=BYTES_MAX).contains(&value.len()) {
            return None;
        }
        // Not cleared before: all that counts of it is written below.
        out.resize(max_compress_len(value.len()), 0);
        let packed = self.encoder.compress(value, out).ok()?;
        if packed > value.len() - value.len() / GAIN_SHARE {
            return None;
        }
        out.truncate(packed);
        Some(stored.with(PACKED))
    }
}

#[cfg(test)]
mod tests {
    use protocol::snappy::inflate;

    use super::*;

    #[test]
    fn what_gets_smaller_is_packed_and_says_what_it_was() {
        let (mut packer, mut out) = (Packer::new(), b"old".to_vec());
        for (value, stored) in [
            (vec![b'7'; 1_000], Datatype::JSON),
            (vec![1; BYTES_MAX], Datatype::XATTR),
            (vec![0; 128], Datatype::RAW),
        ] {
            assert_eq!(packer.pack(&value, stored, &mut out), Some(stored.with(PACKED)));
            assert!(out.len() < value.len() / 8);
            let mut inflated = Vec::new();
            assert!(inflate(&out, &mut inflated) && inflated == value);
        }
    }

    #[test]
    fn what_gains_nothing_goes_as_it_is() {
        let (mut packer, mut out) = (Packer::new(), Vec::new());
        let mut rng = fastrand::Rng::with_seed(1);
        let noise: Vec<u8> = (0..1_000).map(|_| rng.u8(..)).collect();
        let (small, large) = (vec![0; BYTES_MIN - 1], vec![0; BYTES_MAX + 1]);
        for (value, stored) in [
            (&noise[..], Datatype::RAW),
            (&small[..], Datatype::RAW),
            (&large[..], Datatype::RAW),
            (&[][..], Datatype::RAW),
            (&[0; 1_000][..], Datatype::SNAPPY),
        ] {
            assert_eq!(packer.pack(value, stored, &mut out), None);
        }
    }
}
