//! Finds ends in texts many bytes at a time: where a string or a container is over.

/// So many bytes are looked at at once.
const BLOCK: usize = 64;

/// How many bytes from the beginning on are neither quote, backslash nor control character.
pub(crate) fn plain_bytes(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let mut chunks = bytes.chunks_exact(8);
    let mut plain = 0;
    for chunk in &mut chunks {
        let word = chunk.try_into().map_or(0, u64::from_le_bytes);
        let (quotes, slashes) = (word ^ (ONES * u64::from(b'"')), word ^ (ONES * u64::from(b'\\')));
        let zeroes = |word: u64| word.wrapping_sub(ONES) & !word;
        let controls = word.wrapping_sub(ONES * 0x20) & !word;
        // A borrow can mark a byte above a true hit, never one below it: the lowest mark is right.
        let hits = (zeroes(quotes) | zeroes(slashes) | controls) & HIGH;
        if hits != 0 {
            return plain + hits.trailing_zeros() as usize / 8;
        }
        plain += 8;
    }
    let special = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
    let rest = chunks.remainder();
    plain + rest.iter().position(special).unwrap_or(rest.len())
}

/// The length of the container at the beginning of `bytes`, told by its brackets and strings alone.
pub(super) fn container_bytes(bytes: &[u8]) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has both, as was just found.
        return unsafe { container_bytes_by_avx2(bytes) };
    }
    container_bytes_by(bytes, masks)
}

/// The same in fewer instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn container_bytes_by_avx2(bytes: &[u8]) -> Option<usize> {
    container_bytes_by(bytes, |block| masks_by_avx2(block))
}

#[inline]
fn container_bytes_by(bytes: &[u8], masks: impl Fn(&[u8; BLOCK]) -> Masks) -> Option<usize> {
    let mut scan = Scan { depth: 0, in_string: false, escaped: false };
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    for (number, block) in blocks.iter().enumerate() {
        if let Some(length) = scan.block(block, masks(block)) {
            return Some(number * BLOCK + length);
        }
    }
    scan.bytes(rest).map(|length| blocks.len() * BLOCK + length)
}

/// What is open where a scan is.
struct Scan {
    depth: usize,
    in_string: bool,
    /// The byte before was a backslash in a string that is no part of another escape.
    escaped: bool,
}

impl Scan {
    /// Reads on. Says behind how many of the bytes all containers are closed, once they are.
    #[inline]
    fn block(&mut self, block: &[u8; BLOCK], masks: Masks) -> Option<usize> {
        if masks.slashes != 0 || self.escaped {
            return self.bytes(block);
        }
        let in_strings = behind_odd(masks.quotes) ^ if self.in_string { u64::MAX } else { 0 };
        let (opens, closes) = (masks.opens & !in_strings, masks.closes & !in_strings);
        self.in_string = in_strings >> (BLOCK - 1) != 0;
        if (closes.count_ones() as usize) < self.depth {
            self.depth = self.depth + opens.count_ones() as usize - closes.count_ones() as usize;
            return None;
        }
        let mut left = opens | closes;
        while left != 0 {
            let bit = left & left.wrapping_neg();
            if opens & bit != 0 {
                self.depth += 1;
            } else {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return Some(bit.trailing_zeros() as usize + 1);
                }
            }
            left ^= bit;
        }
        None
    }

    /// The same for any number of bytes, one by one.
    fn bytes(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'[' | b'{' => self.depth += 1,
                b']' | b'}' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

/// The bits at and behind which an odd number of bits is set.
#[inline]
fn behind_odd(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// Which bytes of a block are special, the lowest bit for the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Masks {
    quotes: u64,
    slashes: u64,
    opens: u64,
    closes: u64,
}

/// Brackets and braces differ in this bit.
const KIND_OF_BRACKET: u8 = 0x20;

#[cfg(target_arch = "x86_64")]
fn masks(block: &[u8; BLOCK]) -> Masks {
    // SAFETY: every processor of this architecture has SSE2.
    unsafe { masks_by_sse2(block) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
fn masks_by_sse2(block: &[u8; BLOCK]) -> Masks {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
    };
    let all = |byte: u8| _mm_set1_epi8(byte.cast_signed());
    let equal = |bytes: __m128i, byte: u8| {
        let found = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, all(byte)));
        u64::from(found.cast_unsigned())
    };
    let mut masks = Masks::default();
    for (number, part) in block.as_chunks::<16>().0.iter().enumerate() {
        let whole = u128::from_le_bytes(*part);
        let half = |shift: u32| ((whole >> shift) as u64).cast_signed();
        let bytes = _mm_set_epi64x(half(64), half(0));
        let brackets = _mm_or_si128(bytes, all(KIND_OF_BRACKET));
        let shift = 16 * number;
        masks.quotes |= equal(bytes, b'"') << shift;
        masks.slashes |= equal(bytes, b'\\') << shift;
        masks.opens |= equal(brackets, b'{') << shift;
        masks.closes |= equal(brackets, b'}') << shift;
    }
    masks
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn masks_by_avx2(block: &[u8; BLOCK]) -> Masks {
    use std::arch::x86_64::{
        __m256i, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256,
        _mm256_set1_epi8,
    };
    let all = |byte: u8| _mm256_set1_epi8(byte.cast_signed());
    let equal = |bytes: __m256i, byte: u8| {
        let found = _mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, all(byte)));
        u64::from(found.cast_unsigned())
    };
    let mut masks = Masks::default();
    for (number, part) in block.as_chunks::<32>().0.iter().enumerate() {
        // SAFETY: the part has the 32 bytes that are read, and these may begin anywhere.
        let bytes = unsafe { _mm256_loadu_si256(part.as_ptr().cast()) };
        let brackets = _mm256_or_si256(bytes, all(KIND_OF_BRACKET));
        let shift = 32 * number;
        masks.quotes |= equal(bytes, b'"') << shift;
        masks.slashes |= equal(bytes, b'\\') << shift;
        masks.opens |= equal(brackets, b'{') << shift;
        masks.closes |= equal(brackets, b'}') << shift;
    }
    masks
}

#[cfg(not(target_arch = "x86_64"))]
fn masks(block: &[u8; BLOCK]) -> Masks {
    masks_one_by_one(block)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn masks_one_by_one(block: &[u8; BLOCK]) -> Masks {
    let mut masks = Masks::default();
    for (at, byte) in block.iter().enumerate() {
        let bit = |is: bool| u64::from(is) << at;
        masks.quotes |= bit(*byte == b'"');
        masks.slashes |= bit(*byte == b'\\');
        masks.opens |= bit(*byte | KIND_OF_BRACKET == b'{');
        masks.closes |= bit(*byte | KIND_OF_BRACKET == b'}');
    }
    masks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_bytes_end_where_a_loop_says() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let length = random.usize(..40);
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    if random.u8(..20) == 0 {
                        *random.choice(&[0, 0x1f, b'"', b'\\']).unwrap()
                    } else {
                        random.u8(0x20..)
                    }
                })
                .collect();
            let slow = bytes.iter().position(|b| *b == b'"' || *b == b'\\' || *b < 0x20).unwrap_or(length);
            assert_eq!(plain_bytes(&bytes), slow, "{bytes:?}");
        }
    }

    #[test]
    fn containers_end_where_their_bytes_one_by_one_say() {
        let mut random = fastrand::Rng::with_seed(11);
        let (mut ended, mut open) = (0, 0);
        for round in 0..20_000 {
            let length = random.usize(..400);
            // With few quotes and backslashes many blocks have none, and are read at once.
            let special = [40, 8, 3][round % 3];
            let mut bytes = vec![*random.choice(b"[{").unwrap()];
            bytes.extend((0..length).map(|_| match random.usize(..special) {
                0 => *random.choice(b"\"\"\"\\[]{}").unwrap(),
                1 => *random.choice(b"[]{}").unwrap(),
                _ => random.u8(..),
            }));
            let slow = Scan { depth: 0, in_string: false, escaped: false }.bytes(&bytes);
            assert_eq!(container_bytes(&bytes), slow, "{bytes:?}");
            assert_eq!(container_bytes_by(&bytes, masks), slow, "{bytes:?}");
            ended += usize::from(slow.is_some_and(|length| length > BLOCK));
            open += usize::from(slow.is_none());
        }
        assert!(ended > 1000 && open > 1000, "{ended} ended behind the first block, {open} did not");
    }

    /// By every processor of its kind, and by this one.
    fn all_masks(block: &[u8; BLOCK]) -> [Masks; 2] {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has it.
            return [masks(block), unsafe { masks_by_avx2(block) }];
        }
        [masks(block); 2]
    }

    #[test]
    fn each_byte_is_special_in_every_place_of_a_block() {
        let mut random = fastrand::Rng::with_seed(12);
        for byte in 0..=u8::MAX {
            for at in 0..BLOCK {
                let mut block = [b'x'; BLOCK];
                block[at] = byte;
                assert_eq!(all_masks(&block), [masks_one_by_one(&block); 2], "{byte} at {at}");
            }
        }
        for _ in 0..1000 {
            let block = std::array::from_fn(|_| random.u8(..));
            assert_eq!(all_masks(&block), [masks_one_by_one(&block); 2]);
            let quotes = masks(&block).quotes;
            let mut odd = false;
            for at in 0..BLOCK {
                odd ^= quotes >> at & 1 == 1;
                assert_eq!(behind_odd(quotes) >> at & 1 == 1, odd);
            }
        }
    }
}
