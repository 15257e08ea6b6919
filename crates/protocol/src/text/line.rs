//! Lines, words and numbers of the text protocol.

use memchr::memchr;

/// A line without its end, and its length in the buffer with it. Lines end with `\n`; a `\r` before it belongs to
/// the end.
#[inline]
pub(super) fn split_line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr(b'\n', bytes)?;
    let (line, _) = bytes.split_at_checked(end)?;
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

/// The words of a line: separated by any number of spaces, and by nothing else.
#[derive(Clone)]
pub(super) struct Words<'a>(&'a [u8]);

#[inline]
pub(super) fn words(line: &[u8]) -> Words<'_> {
    Words(line)
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (word, rest) = split_word(self.0);
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

/// The first word and what follows it.
#[inline]
pub(super) fn split_word(mut line: &[u8]) -> (&[u8], &[u8]) {
    while let [b' ', rest @ ..] = line {
        line = rest;
    }
    line.split_at_checked(word_len(line)).unwrap_or((line, &[]))
}

/// Most words are short numbers, for which a plain loop is faster than a search.
#[inline]
fn word_len(line: &[u8]) -> usize {
    const SHORT: usize = 8;
    for (index, &byte) in line.iter().take(SHORT).enumerate() {
        if byte == b' ' {
            return index;
        }
    }
    let Some(rest) = line.get(SHORT..) else { return line.len() };
    memchr(b' ', rest).map_or(line.len(), |end| SHORT + end)
}

/// A decimal number without sign (a plus is tolerated, as `strtoull` does).
pub(super) fn unsigned(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// A decimal number that may be negative.
pub(super) fn signed(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(digits) if digits.first() != Some(&b'+') => 0_i64.checked_sub_unsigned(unsigned(digits)?),
        Some(_) => None,
        None => i64::try_from(unsigned(word)?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_a_newline_and_perhaps_a_return() {
        assert_eq!(split_line(b"get a\r\nget b"), Some((&b"get a"[..], 7)));
        assert_eq!(split_line(b"get a\n"), Some((&b"get a"[..], 6)));
        assert_eq!(split_line(b"\n"), Some((&b""[..], 1)));
        assert_eq!(split_line(b"get a\r"), None);
    }

    #[test]
    fn words_are_separated_by_spaces_alone() {
        assert_eq!(words(b"  a  b\tc ").collect::<Vec<_>>(), [&b"a"[..], b"b\tc"]);
        assert_eq!(split_word(b"  get  a b"), (&b"get"[..], &b"  a b"[..]));
        assert_eq!(split_word(b"   "), (&b""[..], &b""[..]));
    }

    #[test]
    fn numbers_do_not_overflow() {
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        for refused in [&b""[..], b"-1", b"1x", b"x", b"+"] {
            assert_eq!(unsigned(refused), None, "{refused:?}");
        }
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        for refused in [&b"-9223372036854775809"[..], b"9223372036854775808", b"-", b"-+1", b"--1"] {
            assert_eq!(signed(refused), None, "{refused:?}");
        }
        assert_eq!((signed(b"007"), signed(b"+7")), (Some(7), Some(7)));
    }
}
