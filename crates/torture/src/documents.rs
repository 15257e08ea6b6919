//! The documents. Keys are 38-byte GUIDs with braces, as the report that this is modelled on had them. Values are
//! recognised byte for byte when they come back.
//!
//! A document is a number. Key and content follow from it (the content from its version too), so nothing about a
//! hundred million of them has to be kept. Values are slices of a random pool: they flatter no disk and no compressor.

use std::fmt::Write;

/// Record, version.
const HEAD_BYTES: usize = 8 + 4;
/// Random bytes that values are cut from.
const POOL_BYTES: usize = 1 << 20;

/// What documents look like.
pub struct Documents {
    seed: u64,
    value_bytes: usize,
    pool: Vec<u8>,
}

impl Documents {
    /// Documents with values of this many bytes (at least the 12 that name them).
    #[must_use]
    pub fn new(seed: u64, value_bytes: usize) -> Documents {
        let value_bytes = value_bytes.clamp(HEAD_BYTES, POOL_BYTES);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut pool = vec![0; POOL_BYTES + value_bytes];
        rng.fill(&mut pool);
        Documents { seed, value_bytes, pool }
    }

    /// Length of a value.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Replaces `out` by a document's key.
    pub fn key(&self, index: u64, out: &mut String) {
        // Both halves follow from the index by bijections, so keys never collide.
        let (high, low) = (mix(index ^ self.seed), mix(!index ^ self.seed.rotate_left(32)));
        out.clear();
        let groups = (high >> 32, (high >> 16) & 0xffff, high & 0xffff, low >> 48, low & 0xffff_ffff_ffff);
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "{{{:08X}-{:04X}-{:04X}-{:04X}-{:012X}}}",
            groups.0, groups.1, groups.2, groups.3, groups.4
        );
    }

    /// Replaces `out` by the content of a version.
    pub fn value(&self, index: u64, version: u32, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&index.to_le_bytes());
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(self.body(index, version));
    }

    /// The version that these bytes are of; `None` if they are not wholly a version of this document.
    #[must_use]
    pub fn version_of(&self, index: u64, value: &[u8]) -> Option<u32> {
        let (named, rest) = value.split_first_chunk::<8>()?;
        let (version, body) = rest.split_first_chunk::<4>()?;
        let version = u32::from_le_bytes(*version);
        (u64::from_le_bytes(*named) == index && body == self.body(index, version)).then_some(version)
    }

    fn body(&self, index: u64, version: u32) -> &[u8] {
        let start = mix(index ^ self.seed ^ (u64::from(version) << 40)) as usize % POOL_BYTES;
        &self.pool[start..start + self.value_bytes - HEAD_BYTES]
    }
}

/// SplitMix64's finaliser: a bijection that spreads every bit.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_guids_in_braces_and_all_different() {
        let documents = Documents::new(1, 100);
        let mut seen = HashSet::new();
        let mut key = String::new();
        for index in 0..10_000 {
            documents.key(index, &mut key);
            assert_eq!((key.len(), key.matches('-').count()), (38, 4), "{key}");
            assert!(key.starts_with('{') && key.ends_with('}'));
            assert!(seen.insert(key.clone()));
        }
    }

    #[test]
    fn only_the_right_bytes_are_recognised() {
        let documents = Documents::new(2, 2_500);
        let mut value = Vec::new();
        documents.value(7, 3, &mut value);
        assert_eq!(value.len(), 2_500);
        assert_eq!(documents.version_of(7, &value), Some(3));
        assert_eq!(documents.version_of(8, &value), None);
        assert_eq!(documents.version_of(7, &value[..2_499]), None);
        let mut damaged = value.clone();
        damaged[2_000] ^= 1;
        assert_eq!(documents.version_of(7, &damaged), None);
        value[8] = 4;
        assert_eq!(documents.version_of(7, &value), None, "version 4 has another body");
    }
}
