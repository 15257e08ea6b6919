//! Skips containers 64 bytes at a time. Quotes, backslashes and brackets become bits of words. These tell what is
//! inside strings without a branch per byte (the way simdjson finds structure).

use base::Status;

use super::scan::{LEVELS_MAX, Scanner};

/// How many bytes are looked at at once: one bit of a word each.
const BLOCK: usize = 64;

/// Which of 64 bytes are what; the first byte is the lowest bit.
#[derive(Debug, PartialEq, Eq)]
struct Marks {
    quotes: u64,
    backslashes: u64,
    /// Opening brackets of both kinds.
    opens: u64,
    /// Closing ones.
    closes: u64,
}

/// What a block leaves for the next one.
#[derive(Default)]
struct Carry {
    /// All ones inside a string.
    in_string: u64,
    /// One if the next byte is escaped.
    escaped: u64,
}

impl Carry {
    /// Takes from `marks` the brackets that are inside strings.
    #[inline]
    fn outside_strings(&mut self, marks: &Marks) -> (u64, u64) {
        let quotes = marks.quotes & !self.escapes(marks.backslashes);
        let strings = prefix_xor(quotes) ^ self.in_string;
        self.in_string = if strings >> 63 == 1 { u64::MAX } else { 0 };
        (marks.opens & !strings, marks.closes & !strings)
    }

    /// The bytes with an odd number of backslashes before them.
    #[inline]
    fn escapes(&mut self, backslashes: u64) -> u64 {
        if backslashes == 0 {
            return std::mem::take(&mut self.escaped);
        }
        const EVEN: u64 = 0x5555_5555_5555_5555;
        let backslashes = backslashes & !self.escaped;
        let follows = backslashes << 1 | self.escaped;
        // Adding a run's first bit to the run moves the bit behind its end; where a run begins decides what that means.
        let odd_starts = backslashes & !EVEN & !follows;
        let (even_ends, overflow) = odd_starts.overflowing_add(backslashes);
        self.escaped = u64::from(overflow);
        (EVEN ^ (even_ends << 1)) & follows
    }
}

/// Each bit becomes the parity of itself and all lower ones.
#[inline]
fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

impl Scanner<'_> {
    /// From an opening bracket to behind the one that closes it; what is opened is at `level`.
    pub(super) fn container(&mut self, level: usize) -> Result<(), Status> {
        let outside = level - 1;
        let mut level = outside;
        let mut carry = Carry::default();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let marks = match rest.first_chunk() {
                Some(block) => mark(block),
                None if rest.is_empty() => return Err(Status::SubdocDocNotJson),
                None => {
                    let mut block = [b' '; BLOCK];
                    for (to, from) in block.iter_mut().zip(rest) {
                        *to = *from;
                    }
                    mark(&block)
                }
            };
            let (opens, closes) = carry.outside_strings(&marks);
            let (opened, closed) = (opens.count_ones() as usize, closes.count_ones() as usize);
            if level + opened >= LEVELS_MAX || closed + outside >= level {
                let mut brackets = opens | closes;
                while brackets != 0 {
                    let bit = brackets.trailing_zeros() as usize;
                    if opens >> bit & 1 == 1 {
                        level += 1;
                        self.check_level(level, self.at + bit + 1)?;
                    } else {
                        level -= 1;
                        if level == outside {
                            self.at += bit + 1;
                            return Ok(());
                        }
                    }
                    brackets &= brackets - 1;
                }
            } else {
                level = level + opened - closed;
            }
            self.at += BLOCK;
        }
    }

    /// Whether a container at `level`, whose inside begins at `inside`, may be there with what it holds.
    #[inline]
    fn check_level(&self, level: usize, inside: usize) -> Result<(), Status> {
        if level < LEVELS_MAX {
            return Ok(());
        }
        let is_empty = matches!(Scanner { text: self.text, at: inside }.peek(), Some(b'}' | b']'));
        if level == LEVELS_MAX && is_empty { Ok(()) } else { Err(Status::SubdocDocTooDeep) }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn mark(block: &[u8; BLOCK]) -> Marks {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
    };
    let mut marks = Marks { quotes: 0, backslashes: 0, opens: 0, closes: 0 };
    for (quarter, bytes) in block.as_chunks::<16>().0.iter().enumerate() {
        // SAFETY: sixteen bytes, of any alignment; every x86-64 processor has these instructions.
        let [quotes, backslashes, opens, closes] = unsafe {
            let bytes = _mm_loadu_si128(bytes.as_ptr().cast::<__m128i>());
            let folded = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
            [(bytes, b'"'), (bytes, b'\\'), (folded, b'{'), (folded, b'}')]
                .map(|(bytes, byte)| _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8))))
        };
        let place = |bits: i32| u64::from(bits as u32) << (quarter * 16);
        marks.quotes |= place(quotes);
        marks.backslashes |= place(backslashes);
        marks.opens |= place(opens);
        marks.closes |= place(closes);
    }
    marks
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn mark_plainly(block: &[u8; BLOCK]) -> Marks {
    let bits = |is: fn(u8) -> bool| {
        block.iter().enumerate().fold(0, |bits, (at, &byte)| bits | u64::from(is(byte)) << at)
    };
    Marks {
        quotes: bits(|byte| byte == b'"'),
        backslashes: bits(|byte| byte == b'\\'),
        opens: bits(|byte| matches!(byte, b'{' | b'[')),
        closes: bits(|byte| matches!(byte, b'}' | b']')),
    }
}

#[cfg(not(target_arch = "x86_64"))]
use mark_plainly as mark;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_marked_alike_by_all_means() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let block: [u8; BLOCK] = std::array::from_fn(|_| match random.u8(..4) {
                0 => *random.choice(b"{}[]\"\\").expect("not empty"),
                _ => random.u8(..),
            });
            assert_eq!(mark(&block), mark_plainly(&block));
        }
    }

    /// Byte by byte.
    fn end(text: &[u8]) -> Option<usize> {
        let (mut depth, mut in_string, mut escaped) = (0, false, false);
        for (at, &byte) in text.iter().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(at + 1);
            }
        }
        None
    }

    #[test]
    fn containers_end_where_their_bracket_is() {
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut text = vec![b'['];
            for _ in 0..random.usize(..300) {
                text.extend_from_slice(match random.u8(..8) {
                    0 => b"[",
                    1 => b"]",
                    2 => b"\"\\\\\\\"]\"",
                    3 => b"\"[{\\\\\"",
                    4 => b"\"a longer string without anything in it, over more than a block of bytes, so to say\"",
                    _ => b"1, ",
                });
            }
            let mut scanner = Scanner { text: &text, at: 0 };
            let found = scanner.container(1).map(|()| scanner.at);
            match found {
                Err(Status::SubdocDocTooDeep) => {}
                found => assert_eq!(found.ok(), end(&text), "seed {seed}"),
            }
        }
    }
}
