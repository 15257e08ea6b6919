//! What is stored and how it is recognised: a key and a value per record number.

use std::ops::RangeInclusive;

/// A numbered set of documents.
pub(crate) trait Records {
    /// Appends the key of record `index`.
    fn key(&self, index: u64, out: &mut Vec<u8>);
    /// Appends a value for record `index`; records that have one value only ignore `version`.
    fn value(&self, index: u64, version: u64, out: &mut Vec<u8>);
    /// Whether `value` is one of those that [`Records::value`] gives. `scratch` is free for use.
    fn is_value(&self, index: u64, value: &[u8], scratch: &mut Vec<u8>) -> bool;
    /// Stored with every document; SDKs read its format from it.
    fn flags(&self) -> u32;
}

/// Random bytes that values are cut from: longer than the window of any compressor that looks at one value or
/// block, and short enough to stay in the second-level cache of the measuring core.
const POOL_BYTES: usize = 1 << 20;
/// A value begins with its version, from which the rest follows.
const VERSION_BYTES: usize = 8;
/// Keys begin with the record's number, mixed: 16 hexadecimal digits.
pub(crate) const KEY_BYTES_MIN: usize = 16;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Keys of hexadecimal digits and random values of given sizes.
pub(crate) struct SyntheticRecords {
    key_bytes: usize,
    value_bytes: RangeInclusive<usize>,
    pool: Vec<u8>,
}

/// SplitMix64's finaliser.
pub(super) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl SyntheticRecords {
    /// Keys of `key_bytes` (16…250) and values whose size is uniform over a range of at most 20 MiB.
    pub(crate) fn new(key_bytes: usize, value_bytes: RangeInclusive<usize>) -> SyntheticRecords {
        let mut random = fastrand::Rng::with_seed(0x5e77_ee00);
        let mut pool = vec![0; POOL_BYTES + value_bytes.end()];
        random.fill(&mut pool);
        SyntheticRecords { key_bytes: key_bytes.max(KEY_BYTES_MIN), value_bytes, pool }
    }

    fn size(&self, index: u64, version: u64) -> usize {
        let (min, max) = (*self.value_bytes.start(), *self.value_bytes.end());
        let span = (max - min + 1) as u64;
        min + ((u128::from(mix(index ^ version)) * u128::from(span)) >> 64) as usize
    }

    /// What follows the version.
    fn body(&self, index: u64, version: u64, size: usize) -> &[u8] {
        let at = (mix(version.wrapping_add(index)) % POOL_BYTES as u64) as usize;
        &self.pool[at..at + size - VERSION_BYTES]
    }
}

impl Records for SyntheticRecords {
    fn key(&self, index: u64, out: &mut Vec<u8>) {
        // The first word is a bijection of the number, so keys are distinct; the others only fill.
        let end = out.len() + self.key_bytes;
        let mut word = mix(index);
        loop {
            for digit in (0..16).rev() {
                out.push(HEX[(word >> (4 * digit) & 15) as usize]);
                if out.len() == end {
                    return;
                }
            }
            word = mix(word.wrapping_add(index));
        }
    }

    fn value(&self, index: u64, version: u64, out: &mut Vec<u8>) {
        let size = self.size(index, version);
        let head = version.to_le_bytes();
        out.extend_from_slice(&head[..size.min(VERSION_BYTES)]);
        if size > VERSION_BYTES {
            out.extend_from_slice(self.body(index, version, size));
        }
    }

    fn is_value(&self, index: u64, value: &[u8], _scratch: &mut Vec<u8>) -> bool {
        let Some((head, body)) = value.split_first_chunk::<VERSION_BYTES>() else {
            // Too short to carry a version: only the size can be told.
            return self.value_bytes.contains(&value.len());
        };
        let version = u64::from_le_bytes(*head);
        self.size(index, version) == value.len() && body == self.body(index, version, value.len())
    }

    fn flags(&self) -> u32 {
        0
    }
}
