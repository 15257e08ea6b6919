//! Lines, words and numbers of the text protocol.

/// A line without its end, and its length in the buffer with it. Lines end with `\n`; a `\r` before it
/// belongs to the end.
pub(super) fn split_line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let (line, _) = bytes.split_at_checked(end)?;
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

/// The words of a line: separated by any number of spaces, and by nothing else.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(|&byte| byte == b' ').filter(|word| !word.is_empty())
}

/// The first word and what follows it.
pub(super) fn split_word(line: &[u8]) -> (&[u8], &[u8]) {
    let spaces = line.iter().take_while(|&&byte| byte == b' ').count();
    let line = line.get(spaces..).unwrap_or_default();
    let end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
    line.split_at_checked(end).unwrap_or((line, &[]))
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
