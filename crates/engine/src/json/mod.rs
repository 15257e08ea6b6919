//! Whether bytes are one JSON text (RFC 8259), and nothing more: every stored value is asked, so this builds no tree
//! and allocates nothing. Strings are scanned eight bytes at a time.
//!
//! The values of sub-document operations are checked in the same way, for the place they are to take. There may be one
//! value or several with commas between, and they may be no deeper than fits there.

pub mod subdoc;

/// Containers inside each other beyond this are not taken for JSON, as parsers of clients give up as well.
const DEPTH_MAX: usize = 1024;

/// Whether `text` is one well-formed JSON text.
#[must_use]
pub fn is_json(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok() && Scanner::new(text, DEPTH_MAX + 1).document()
}

/// Why a text is not what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It is not one JSON value, or not a list of them.
    NotJson,
    /// It is, as far as was looked, but there is a value below the deepest level.
    TooDeep,
}

/// Whether `text` is one value, or where a `list` may be several with commas between, of at most `levels`. A number has
/// one level, and so has an empty array.
pub(crate) fn check_values(text: &[u8], list: bool, levels: usize) -> Result<(), Unfit> {
    if std::str::from_utf8(text).is_err() {
        return Err(Unfit::NotJson);
    }
    let mut scanner = Scanner::new(text, levels);
    loop {
        if scanner.values().is_none() {
            return Err(if scanner.too_deep { Unfit::TooDeep } else { Unfit::NotJson });
        }
        match scanner.next() {
            None => return Ok(()),
            Some(b',') if list => {}
            Some(_) => return Err(Unfit::NotJson),
        }
    }
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    /// Containers inside each other, and a value in the innermost.
    levels_max: usize,
    /// The scan ended at a value below that.
    too_deep: bool,
    /// One bit per open container: set for objects.
    objects: [u64; DEPTH_MAX / 64],
}

impl<'a> Scanner<'a> {
    fn new(text: &'a [u8], levels_max: usize) -> Self {
        Self { text, at: 0, depth: 0, levels_max, too_deep: false, objects: [0; DEPTH_MAX / 64] }
    }

    fn document(mut self) -> bool {
        self.values().is_some() && self.at == self.text.len()
    }

    /// Scans one value with everything inside it, and the white space behind.
    fn values(&mut self) -> Option<()> {
        loop {
            if self.depth >= self.levels_max {
                self.too_deep = true;
                return None;
            }
            self.skip_space();
            match self.next()? {
                b'{' => {
                    self.open(true)?;
                    if self.peek_past_space() != Some(b'}') {
                        self.key()?;
                        continue;
                    }
                }
                b'[' => {
                    self.open(false)?;
                    if self.peek_past_space() != Some(b']') {
                        continue;
                    }
                }
                b'"' => self.string()?,
                b'-' => self.number(true)?,
                b'0' => self.fraction()?,
                b'1'..=b'9' => self.number(false)?,
                b't' => self.literal(b"rue")?,
                b'f' => self.literal(b"alse")?,
                b'n' => self.literal(b"ull")?,
                _ => return None,
            }
            if self.close()? {
                return Some(());
            }
        }
    }

    /// Behind a value: closes what ends here, steps over a comma. True behind the outermost value.
    #[inline]
    fn close(&mut self) -> Option<bool> {
        loop {
            self.skip_space();
            if self.depth == 0 {
                return Some(true);
            }
            let in_object = self.in_object();
            match (self.next()?, in_object) {
                (b',', true) => {
                    self.skip_space();
                    self.key()?;
                    return Some(false);
                }
                (b',', false) => return Some(false),
                (b'}', true) | (b']', false) => self.depth -= 1,
                _ => return None,
            }
        }
    }

    fn open(&mut self, object: bool) -> Option<()> {
        let word = self.objects.get_mut(self.depth / 64)?;
        let bit = 1 << (self.depth % 64);
        *word = if object { *word | bit } else { *word & !bit };
        self.depth += 1;
        Some(())
    }

    #[inline]
    fn in_object(&self) -> bool {
        let level = self.depth.wrapping_sub(1);
        self.objects.get(level / 64).is_some_and(|word| word >> (level % 64) & 1 == 1)
    }

    /// A key with its colon; white space before it is gone.
    #[inline]
    fn key(&mut self) -> Option<()> {
        if self.next()? != b'"' {
            return None;
        }
        self.string()?;
        self.skip_space();
        (self.next()? == b':').then_some(())
    }

    #[inline]
    fn next(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    fn peek_past_space(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.get(self.at).copied()
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    fn literal(&mut self, rest: &[u8]) -> Option<()> {
        let found = self.text.get(self.at..)?.starts_with(rest);
        self.at += rest.len();
        found.then_some(())
    }

    /// Behind the opening quote, to behind the closing one.
    #[inline]
    fn string(&mut self) -> Option<()> {
        loop {
            self.skip_plain();
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => self.escape()?,
                0..=0x1f => return None,
                _ => {}
            }
        }
    }

    /// Skips what is no quote, backslash or control character, while eight bytes are left to look at.
    #[inline]
    fn skip_plain(&mut self) {
        while let Some(chunk) = self.text.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) {
            let special = special_bytes(u64::from_le_bytes(*chunk));
            if special != 0 {
                self.at += special.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
    }

    fn escape(&mut self) -> Option<()> {
        match self.next()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => {
                let digits = self.text.get(self.at..self.at + 4)?;
                self.at += 4;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())
            }
            _ => None,
        }
    }

    /// Behind a sign, or behind a first digit other than zero.
    fn number(&mut self, signed: bool) -> Option<()> {
        if signed {
            match self.next()? {
                b'0' => return self.fraction(),
                b'1'..=b'9' => {}
                _ => return None,
            }
        }
        self.skip_digits();
        self.fraction()
    }

    /// Behind the whole part.
    fn fraction(&mut self) -> Option<()> {
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let before = self.at;
        self.skip_digits();
        (self.at > before).then_some(())
    }

    fn skip_digits(&mut self) {
        while let Some(b'0'..=b'9') = self.text.get(self.at) {
            self.at += 1;
        }
    }
}

/// Marks quotes, backslashes and control characters; the lowest mark is exact, higher ones may be false.
#[inline]
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word;
    let quotes = zero_bytes(word ^ (ONES * b'"' as u64));
    let backslashes = zero_bytes(word ^ (ONES * b'\\' as u64));
    let controls = word.wrapping_sub(ONES * 0x20) & !word;
    (quotes | backslashes | controls) & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IgnoredAny;

    fn reference(text: &[u8]) -> bool {
        std::str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
    }

    #[test]
    fn small_texts_are_judged_as_a_parser_does() {
        for text in [
            "{}",
            "[]",
            "[[]]",
            "{\"a\":[]}",
            "0",
            "-0",
            "-",
            "01",
            "1.",
            "1.5",
            ".5",
            "1e5",
            "1E+5",
            "1e",
            "1e+",
            "\"\"",
            "\"a\\n\\u00e9\\\\\"",
            "\"\\u00g9\"",
            "\"\\x\"",
            "\"\n\"",
            "\"abc",
            "true",
            "tru",
            "truex",
            "null",
            " [ 1 , 2 ] ",
            "[1,]",
            "[,1]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{,}",
            "{1:2}",
            "[}",
            "{]",
            "[1}",
            "",
            " ",
            "1 2",
            "[1 2]",
            "{\"a\" : {\"b\":[1,{\"c\":null}]}}",
            "\"tab\there\"",
            "\u{7f}",
            "\"\u{7f}\"",
            "\"é\"",
        ] {
            assert_eq!(is_json(text.as_bytes()), reference(text.as_bytes()), "{text}");
        }
        assert!(!is_json(b"\"\xff\""));
        assert!(is_json(&[b'['; DEPTH_MAX].into_iter().chain([b']'; DEPTH_MAX]).collect::<Vec<_>>()));
        assert!(!is_json(
            &[b'['; DEPTH_MAX + 1].into_iter().chain([b']'; DEPTH_MAX + 1]).collect::<Vec<_>>()
        ));
    }

    #[test]
    fn values_fit_into_their_place() {
        let check = |text: &str, list, levels| check_values(text.as_bytes(), list, levels);
        for (text, single, list) in [
            ("1", true, true),
            (" \"a\" ", true, true),
            ("{\"a\":[1,2]}", true, true),
            ("1,2,3", false, true),
            ("[1], {} ,null", false, true),
            ("", false, false),
            (" ", false, false),
            (",", false, false),
            ("1,", false, false),
            (",1", false, false),
            ("1,,2", false, false),
            ("1 2", false, false),
            ("1],[2", false, false),
            ("1,\"k\":2", false, false),
            ("INVALID", false, false),
        ] {
            let expected = |fits| if fits { Ok(()) } else { Err(Unfit::NotJson) };
            assert_eq!(check(text, false, 31), expected(single), "{text}");
            assert_eq!(check(text, true, 31), expected(list), "{text}");
        }
        assert_eq!(check_values(b"\"\xff\"", false, 31), Err(Unfit::NotJson));
        for (text, levels) in
            [("1", 1), ("[]", 1), ("{}", 1), ("[1]", 2), ("{\"a\":1}", 2), ("[[[]]]", 3), ("1,[[]]", 2)]
        {
            assert_eq!(check(text, true, levels), Ok(()), "{text}");
            assert_eq!(check(text, true, levels - 1), Err(Unfit::TooDeep), "{text}");
        }
    }

    #[test]
    fn mutated_documents_are_judged_as_a_parser_does() {
        let original = br#"{"artist": "Caf\u00e9 \"x\"", "n": [-1.5e-3, 0, 12345678901, true, null], "t": [["rock", "100"], []], "o": {}}"#;
        let alphabet = b"{}[]\",:\\ue0159.+-tfn \n\x01\x80\xc3\xa9";
        for seed in 0..30_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut text = original.to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(0..text.len());
                let byte = alphabet[random.usize(0..alphabet.len())];
                match random.u8(0..3) {
                    0 => text[at] = byte,
                    1 => text.insert(at, byte),
                    _ => drop(text.remove(at)),
                }
            }
            assert_eq!(is_json(&text), reference(&text), "seed {seed}: {}", String::from_utf8_lossy(&text));
        }
    }
}
