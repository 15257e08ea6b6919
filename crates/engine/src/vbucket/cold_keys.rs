//! Which documents of a vBucket are on disk only: what is left in memory of keys that were evicted, in about twelve bits each.
//!
//! A sorted list of short hashes, delta-coded in blocks of at most [`BLOCK_KEYS_MAX`]. Every evicted key is in it. A
//! key enters the list when it leaves the table, and is removed when it comes back. Two keys with one short hash stand
//! in it twice. A key that is not in it is not on disk only. The reverse does not hold. About one absent key in two
//! hundred shares its short hash with an evicted one, and an evicted document may have ceased to be. Then the disk has
//! to be asked.
//!
//! Bits per key: enough to tell a key from the others of its vBucket, plus about two. The fewer the bits, the more
//! often the answer is a wrong "maybe". The list needs no room to grow into and is never rebuilt. It does not know
//! where a key lies: the store's indexes do.

#![expect(
    clippy::indexing_slicing,
    reason = "positions come from a search in the same list, and no block is empty"
)]

/// Keys per block; beyond, it is split.
const BLOCK_KEYS_MAX: usize = 512;
/// This many bits tell the short hashes of all vBuckets of a bucket apart. With a hundred million evicted keys, about
/// one absent key in a hundred gets a wrong "maybe".
const HASH_BITS: u32 = 33;
/// Bytes the allocator adds to a block, about.
const ALLOCATION_BYTES: usize = 8;

/// See the module header.
#[derive(Debug)]
pub(crate) struct ColdKeys {
    hash_bits: u32,
    /// Ascending; neighbours never share a short hash.
    blocks: Vec<Block>,
    keys: u64,
    /// Of the blocks' contents.
    content_bytes: usize,
}

#[derive(Debug)]
struct Block {
    /// The first short hash in it, or lower.
    first: u32,
    keys: u32,
    /// Low bits of a delta that are written as they are.
    low_bits: u32,
    /// Per key the delta to the one before: its high bits as so many ones and a zero, then its low bits.
    deltas: Box<[u8]>,
}

impl ColdKeys {
    /// None, in one of so many vBuckets.
    pub(crate) fn new(vbuckets: u16) -> Self {
        let hash_bits = (HASH_BITS - u32::from(vbuckets.max(2)).ilog2()).min(u32::BITS);
        Self { hash_bits, blocks: Vec::new(), keys: 0, content_bytes: 0 }
    }

    /// None, in the same vBucket.
    pub(crate) fn none_of_its_kind(&self) -> Self {
        Self { hash_bits: self.hash_bits, blocks: Vec::new(), keys: 0, content_bytes: 0 }
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> u64 {
        self.keys
    }

    /// Memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
            + self.blocks.len() * ALLOCATION_BYTES
            + self.content_bytes
    }

    /// Whether a key may be among them; false is certain.
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let short = self.short(hash);
        self.block_of(short).is_some_and(|index| {
            let found = self.blocks[index].shorts().find(|&other| other >= short);
            found == Some(short)
        })
    }

    /// A key has left the table.
    pub(crate) fn insert(&mut self, hash: u64) {
        let short = self.short(hash);
        self.keys += 1;
        let Some(index) = self.block_of(short) else {
            // Lower than all: it goes to the first.
            return match self.blocks.is_empty() {
                true => self.put(0..0, &[short]),
                false => self.insert_into(0, short),
            };
        };
        self.insert_into(index, short);
    }

    fn insert_into(&mut self, index: usize, short: u32) {
        let mut shorts = Vec::with_capacity(self.blocks[index].keys as usize + 1);
        shorts.extend(self.blocks[index].shorts());
        shorts.insert(shorts.partition_point(|&other| other < short), short);
        self.put(index..index + 1, &shorts);
    }

    /// A key that was among them is in the table again. Whether it was among them.
    pub(crate) fn remove(&mut self, hash: u64) -> bool {
        let short = self.short(hash);
        let Some(index) = self.block_of(short) else { return false };
        let mut shorts: Vec<u32> = self.blocks[index].shorts().collect();
        let Ok(position) = shorts.binary_search(&short) else { return false };
        shorts.remove(position);
        self.keys -= 1;
        self.put(index..index + 1, &shorts);
        true
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.blocks = Vec::new();
        self.keys = 0;
        self.content_bytes = 0;
    }

    fn short(&self, hash: u64) -> u32 {
        (hash >> (u64::BITS - self.hash_bits)) as u32
    }

    /// The block that has a short hash if any has.
    fn block_of(&self, short: u32) -> Option<usize> {
        self.blocks.partition_point(|block| block.first <= short).checked_sub(1)
    }

    /// Puts short hashes in the place of a block (or of none).
    fn put(&mut self, place: std::ops::Range<usize>, shorts: &[u32]) {
        self.content_bytes -=
            self.blocks[place.clone()].iter().map(|block| block.deltas.len()).sum::<usize>();
        let middle = if shorts.len() > BLOCK_KEYS_MAX { split_point(shorts) } else { 0 };
        let (left, right) = shorts.split_at(middle);
        let blocks = [left, right].into_iter().filter(|part| !part.is_empty()).map(Block::new);
        if place.len() == 1 && middle == 0 && !right.is_empty() {
            self.blocks[place.start] = Block::new(right);
            self.content_bytes += self.blocks[place.start].deltas.len();
            return;
        }
        let blocks: Vec<Block> = blocks.collect();
        self.content_bytes += blocks.iter().map(|block| block.deltas.len()).sum::<usize>();
        if self.blocks.len() == self.blocks.capacity() {
            // A quarter at a time: in a thousand vBuckets doubling would waste more than the keys take.
            self.blocks.reserve_exact((self.blocks.len() / 4).max(2));
        }
        self.blocks.splice(place, blocks);
    }
}

/// Where to split: as near to the middle as equal ones allow; 0 if they are all equal.
fn split_point(shorts: &[u32]) -> usize {
    let middle = shorts.len() / 2;
    let differs = |&at: &usize| shorts[at - 1] != shorts[at];
    let left = (1..=middle).rev().find(differs);
    let right = (middle + 1..shorts.len()).find(differs);
    match (left, right) {
        (Some(left), Some(right)) if right - middle < middle - left => right,
        (Some(left), _) => left,
        (None, right) => right.unwrap_or(0),
    }
}

impl Block {
    /// Of ascending short hashes, at least one.
    fn new(shorts: &[u32]) -> Self {
        let (first, last) = (shorts[0], shorts[shorts.len() - 1]);
        let mean = (last - first) / shorts.len() as u32;
        let low_bits = mean.checked_ilog2().unwrap_or(0);
        let mut bits = BitWriter::default();
        let mut before = first;
        for &short in shorts {
            let delta = short - before;
            bits.ones_then_zero(delta >> low_bits);
            bits.push(delta & ((1 << low_bits) - 1), low_bits);
            before = short;
        }
        Self { first, keys: shorts.len() as u32, low_bits, deltas: bits.finish() }
    }

    fn shorts(&self) -> impl Iterator<Item = u32> {
        let mut bits = BitReader { bytes: &self.deltas, at: 0, held: 0, count: 0 };
        let mut before = self.first;
        (0..self.keys).map(move |_| {
            let high = bits.ones();
            before += high << self.low_bits | bits.take(self.low_bits);
            before
        })
    }
}

/// Bits into bytes, lowest first.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    held: u64,
    count: u32,
}

impl BitWriter {
    fn push(&mut self, bits: u32, count: u32) {
        self.held |= u64::from(bits) << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push(self.held as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    fn ones_then_zero(&mut self, mut ones: u32) {
        while ones >= 16 {
            self.push(0xffff, 16);
            ones -= 16;
        }
        self.push((1 << ones) - 1, ones + 1);
    }

    fn finish(mut self) -> Box<[u8]> {
        if self.count > 0 {
            self.bytes.push(self.held as u8);
        }
        self.bytes.into_boxed_slice()
    }
}

/// Reads what [`BitWriter`] wrote; zeros behind its end.
struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
    held: u64,
    count: u32,
}

impl BitReader<'_> {
    fn fill(&mut self) {
        while self.count <= u64::BITS - 8 {
            self.held |= u64::from(self.bytes.get(self.at).copied().unwrap_or(0)) << self.count;
            self.at += 1;
            self.count += 8;
        }
    }

    fn ones(&mut self) -> u32 {
        let mut sum = 0;
        loop {
            self.fill();
            let ones = self.held.trailing_ones().min(self.count);
            sum += ones;
            if ones < self.count {
                self.skip(ones + 1);
                return sum;
            }
            self.skip(ones);
        }
    }

    fn take(&mut self, count: u32) -> u32 {
        if self.count < count {
            self.fill();
        }
        let bits = self.held as u32 & ((1_u64 << count) - 1) as u32;
        self.skip(count);
        bits
    }

    fn skip(&mut self, count: u32) {
        self.held = self.held.checked_shr(count).unwrap_or(0);
        self.count -= count;
    }
}

#[cfg(test)]
mod tests {
    use base::hash::key_hash;

    use super::*;

    fn hash(number: u64) -> u64 {
        key_hash(&number.to_le_bytes())
    }

    #[test]
    fn it_is_a_multiset_whatever_the_order() {
        let mut cold = ColdKeys::new(1024);
        let mut model = std::collections::BTreeMap::<u32, u32>::new();
        let mut dice = 1_u64;
        for step in 0..60_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = hash((dice >> 40) % 9_000);
            let short = cold.short(key);
            let times = model.entry(short).or_default();
            // Grows first, then shrinks.
            if (dice >> 20) % 10 < if step < 30_000 { 7 } else { 3 } {
                cold.insert(key);
                *times += 1;
            } else {
                assert_eq!(cold.remove(key), *times > 0);
                *times = times.saturating_sub(1);
            }
            assert_eq!(cold.may_contain(key), *times > 0);
        }
        assert_eq!(cold.len(), model.values().map(|&times| u64::from(times)).sum::<u64>());
        for (short, times) in model {
            let key = u64::from(short) << (64 - cold.hash_bits);
            assert_eq!(cold.may_contain(key), times > 0);
            (0..times).for_each(|_| assert!(cold.remove(key)));
            assert!(!cold.may_contain(key));
        }
        assert_eq!((cold.len(), cold.content_bytes, cold.blocks.len()), (0, 0, 0));
    }

    #[test]
    fn a_key_costs_less_than_two_bytes_and_absent_keys_hardly_ever_pass() {
        for keys in [1_000_u64, 10_000, 100_000] {
            let mut cold = ColdKeys::new(1024);
            (0..keys).for_each(|number| cold.insert(hash(number)));
            assert!((0..keys).all(|number| cold.may_contain(hash(number))));
            let bytes = cold.memory_bytes() as f64 / keys as f64;
            assert!(bytes <= 2.0, "{bytes} bytes per key of {keys}");
            let passed = (keys..keys + 100_000).filter(|&number| cold.may_contain(hash(number))).count();
            assert!(passed <= 1_300, "{passed} of 100,000 absent keys pass among {keys}");
        }
    }

    #[test]
    fn equal_short_hashes_stay_together_and_extremes_fit() {
        let mut cold = ColdKeys::new(1);
        (0..3 * BLOCK_KEYS_MAX).for_each(|_| cold.insert(7 << 40));
        for edge in [0, u64::MAX, 1 << 63] {
            cold.insert(edge);
            assert!(cold.may_contain(edge));
        }
        (0..3 * BLOCK_KEYS_MAX).for_each(|_| assert!(cold.remove(7 << 40)));
        assert!(!cold.remove(7 << 40) && cold.may_contain(u64::MAX) && cold.len() == 3);
    }
}
