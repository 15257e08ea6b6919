//! A split-block Bloom filter over key fingerprints: one cache line half per question, eight bits per key in it.
//! At 12 bits per key about one absent key in two hundred passes.

const LANES: usize = 8;
const BLOCK_BYTES: usize = LANES * 4;
const BITS_PER_KEY: usize = 12;
/// Odd multipliers, one per lane; part of the format (those of Parquet's filter).
const MULTIPLIERS: [u32; LANES] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// Bytes of a filter for that many keys.
pub(crate) const fn filter_bytes(keys: usize) -> usize {
    (keys * BITS_PER_KEY).div_ceil(BLOCK_BYTES * 8) * BLOCK_BYTES
}

/// Sets the bits of a fingerprint.
#[expect(clippy::indexing_slicing, reason = "a bit's number is below the 256 of a lane")]
pub(crate) fn insert(filter: &mut [u8], fingerprint: u32) {
    let block = block_of(filter.len(), fingerprint);
    let Some(lanes) = filter.get_mut(block..block + BLOCK_BYTES) else { return };
    for (lane, multiplier) in lanes.chunks_exact_mut(4).zip(MULTIPLIERS) {
        let bit = fingerprint.wrapping_mul(multiplier) >> 27;
        lane[bit as usize / 8] |= 1 << (bit % 8);
    }
}

/// Whether the fingerprint may have been inserted.
#[expect(clippy::indexing_slicing, reason = "a bit's number is below the 256 of a lane")]
pub(crate) fn may_contain(filter: &[u8], fingerprint: u32) -> bool {
    let block = block_of(filter.len(), fingerprint);
    let Some(lanes) = filter.get(block..block + BLOCK_BYTES) else { return false };
    lanes.chunks_exact(4).zip(MULTIPLIERS).all(|(lane, multiplier)| {
        let bit = fingerprint.wrapping_mul(multiplier) >> 27;
        lane[bit as usize / 8] & 1 << (bit % 8) != 0
    })
}

fn block_of(filter_bytes: usize, fingerprint: u32) -> usize {
    let blocks = (filter_bytes / BLOCK_BYTES) as u64;
    ((u64::from(fingerprint) * blocks) >> 32) as usize * BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_inserted_is_missed_and_little_else_passes() {
        let mut filter = vec![0u8; filter_bytes(10_000)];
        let print = |n: u64| crate::index::fingerprint(base::hash::key_hash(&n.to_le_bytes()));
        for n in 0..10_000 {
            insert(&mut filter, print(n));
        }
        assert!((0..10_000).all(|n| may_contain(&filter, print(n))));
        let passed = (10_000..110_000).filter(|&n| may_contain(&filter, print(n))).count();
        assert!(passed < 1_500, "{passed} of 100,000 absent keys passed");
        assert!(!may_contain(&[], 5));
    }
}
