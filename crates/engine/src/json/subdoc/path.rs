//! Paths into a document: `a.b[0].c`, `[-1]` for the last element, backticks around a key whose dots and brackets
//! are meant literally, two backticks for one.
//!
//! A path is checked once and kept as the text it came as. [`Path::components`] cuts it up again on the way, which
//! is cheaper than a list of components and allocates nothing. The text between dots is the inside of a JSON
//! string as the document spells it. A quote has to be escaped, and `\u` escapes are not taken. (The document's
//! own `\u` escapes are undone before keys are compared.)

use base::{Status, limits::SUBDOC_PATH_BYTES_MAX};

use super::xattr::is_xattr_key;

/// Most components a path can have: with the document itself they make 32.
pub const COMPONENTS_MAX: usize = 31;

/// A well-formed path.
#[derive(Clone, Copy, Debug)]
pub struct Path<'p> {
    text: &'p [u8],
    components: usize,
}

/// A step down into a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component<'p> {
    /// Into an object's member.
    Key(Key<'p>),
    /// Into an array's element, counted from 0.
    Index(usize),
    /// Into an array's last element.
    Last,
}

/// The key of a member, spelled as inside a JSON string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'p> {
    text: &'p [u8],
    /// Backticks are left in the text.
    backticks: bool,
}

/// What follows in a path. Yields nothing more behind an error.
#[derive(Clone, Copy, Debug)]
pub struct Components<'p> {
    rest: &'p [u8],
}

impl<'p> Path<'p> {
    /// The document itself.
    pub const ROOT: Path<'static> = Path { text: b"", components: 0 };

    /// Checks a path.
    ///
    /// # Errors
    ///
    /// [`Status::SubdocPathInvalid`] for what is no path, [`Status::SubdocPathTooBig`] for too many components,
    /// [`Status::Invalid`] for too many bytes.
    pub fn parse(text: &'p [u8]) -> Result<Self, Status> {
        if text.len() > SUBDOC_PATH_BYTES_MAX {
            return Err(Status::Invalid);
        }
        // A component may become a key of the document.
        if std::str::from_utf8(text).is_err() {
            return Err(Status::SubdocPathInvalid);
        }
        let mut components = 0;
        let mut rest = Components { rest: text };
        while !rest.rest.is_empty() {
            if components == COMPONENTS_MAX {
                return Err(Status::SubdocPathTooBig);
            }
            rest.cut()?;
            components += 1;
        }
        Ok(Self { text, components })
    }

    /// Checks a path into the extended attributes. Its first step is an attribute's name, which is returned beside
    /// it and knows no quoting. The path as a whole leads through an object whose members are the attributes.
    ///
    /// # Errors
    ///
    /// [`Status::XattrInvalid`] for what is no name, and those of [`Path::parse`].
    #[expect(clippy::indexing_slicing, reason = "`end` is a position in the same text")]
    pub fn parse_xattr(text: &'p [u8]) -> Result<(&'p [u8], Self), Status> {
        if text.len() > SUBDOC_PATH_BYTES_MAX {
            return Err(Status::Invalid);
        }
        let end = text.iter().position(|byte| matches!(byte, b'.' | b'[')).unwrap_or(text.len());
        let key = &text[..end];
        if !is_xattr_key(key) || text.contains(&0) || std::str::from_utf8(text).is_err() {
            return Err(Status::XattrInvalid);
        }
        if key.contains(&b'`') {
            return Err(Status::SubdocPathInvalid);
        }
        Ok((key, Self::parse(text)?))
    }

    /// How many steps down it goes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.components
    }

    /// Whether it is the document itself.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.components == 0
    }

    /// The steps, from the document down.
    #[must_use]
    pub fn components(&self) -> Components<'p> {
        Components { rest: self.text }
    }

    /// The last step.
    #[must_use]
    pub fn last(&self) -> Option<Component<'p>> {
        self.components().last()
    }

    /// The path from the first step's target on.
    pub(super) fn tail(&self) -> Path<'p> {
        let mut rest = self.components();
        match rest.next() {
            Some(_) => Path { text: rest.rest, components: self.components - 1 },
            None => *self,
        }
    }

    /// Whether the document that this path creates is an array: for operations on arrays when it is empty, and
    /// whenever it begins with an index.
    #[must_use]
    pub fn begins_with_index(&self) -> bool {
        self.text.first() == Some(&b'[')
    }
}

impl<'p> Components<'p> {
    /// Whether nothing follows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What comes next, without taking it.
    #[must_use]
    pub fn peek(&self) -> Option<Component<'p>> {
        Components { rest: self.rest }.next()
    }

    fn cut(&mut self) -> Result<Component<'p>, Status> {
        match self.rest.first() {
            Some(b'[') => self.index(),
            _ => self.key(),
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "`close` is the position of a bracket behind the one that opens"
    )]
    fn index(&mut self) -> Result<Component<'p>, Status> {
        let close = self.rest.iter().position(|&byte| byte == b']').ok_or(Status::SubdocPathInvalid)?;
        let (number, rest) = (&self.rest[1..close], &self.rest[close + 1..]);
        self.rest = match rest.first() {
            None | Some(b'[') => rest,
            Some(b'.') => &rest[1..],
            Some(_) => return Err(Status::SubdocPathInvalid),
        };
        if number == b"-1" {
            return Ok(Component::Last);
        }
        let digits = number.iter().map(|byte| byte.is_ascii_digit().then(|| usize::from(byte - b'0')));
        digits
            .into_iter()
            .try_fold(0_usize, |index, digit| index.checked_mul(10)?.checked_add(digit?))
            .map(Component::Index)
            .ok_or(Status::SubdocPathInvalid)
    }

    #[expect(clippy::indexing_slicing, reason = "positions are those of bytes that were looked at")]
    fn key(&mut self) -> Result<Component<'p>, Status> {
        let text = self.rest;
        let mut quoted = false;
        let mut backticks = 0_usize;
        let mut escaped = false;
        let mut end = text.len();
        let mut rest: &[u8] = b"";
        for (at, &byte) in text.iter().enumerate() {
            if escaped {
                if !matches!(byte, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') {
                    return Err(Status::SubdocPathInvalid);
                }
                escaped = false;
            } else if byte == b'\\' {
                escaped = true;
            } else if byte == b'"' || byte < 0x20 {
                return Err(Status::SubdocPathInvalid);
            }
            if byte == b'`' {
                backticks += 1;
                quoted = !quoted;
            }
            if quoted {
                continue;
            }
            match byte {
                b']' => return Err(Status::SubdocPathInvalid),
                b'[' => (end, rest) = (at, &text[at..]),
                b'.' => (end, rest) = (at, &text[at + 1..]),
                _ => continue,
            }
            break;
        }
        if quoted || escaped {
            return Err(Status::SubdocPathInvalid);
        }
        self.rest = rest;
        let mut text = &text[..end];
        if text.len() > 1 && text.starts_with(b"`") && text.ends_with(b"`") {
            text = &text[1..text.len() - 1];
            backticks -= 2;
        }
        if text.is_empty() {
            return Err(Status::SubdocPathInvalid);
        }
        Ok(Component::Key(Key { text, backticks: backticks > 0 }))
    }
}

impl<'p> Iterator for Components<'p> {
    type Item = Component<'p>;

    fn next(&mut self) -> Option<Component<'p>> {
        if self.rest.is_empty() {
            return None;
        }
        let component = self.cut();
        if component.is_err() {
            self.rest = b"";
        }
        component.ok()
    }
}

impl<'p> Key<'p> {
    /// The bytes between the quotes when this becomes a member's key.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + use<'p> {
        let mut rest = self.text.iter().copied().peekable();
        let backticks = self.backticks;
        std::iter::from_fn(move || {
            loop {
                let byte = rest.next()?;
                // Of two backticks one is meant, a single one only quotes.
                if byte != b'`' || !backticks || rest.next_if_eq(&b'`').is_some() {
                    return Some(byte);
                }
            }
        })
    }

    /// Whether the document spells this key so, between its quotes.
    #[inline]
    #[must_use]
    pub fn matches(&self, spelled: &[u8], has_escapes: bool) -> bool {
        if !self.backticks && !has_escapes {
            return self.text == spelled;
        }
        self.matches_slowly(spelled)
    }

    #[cold]
    #[expect(clippy::indexing_slicing, reason = "the loop looked at the first byte")]
    fn matches_slowly(&self, spelled: &[u8]) -> bool {
        let mut wanted = self.bytes();
        let mut rest = spelled;
        while let Some(&byte) = rest.first() {
            match rest {
                [b'\\', b'u', ..] => {
                    let Some((character, behind)) = unescape(rest) else { return false };
                    let mut utf8 = [0; 4];
                    if !character.encode_utf8(&mut utf8).bytes().all(|byte| wanted.next() == Some(byte)) {
                        return false;
                    }
                    rest = behind;
                }
                [b'\\', escaped, behind @ ..] => {
                    if wanted.next() != Some(byte) || wanted.next() != Some(*escaped) {
                        return false;
                    }
                    rest = behind;
                }
                _ => {
                    if wanted.next() != Some(byte) {
                        return false;
                    }
                    rest = &rest[1..];
                }
            }
        }
        wanted.next().is_none()
    }
}

/// The character that one `\u` escape, or a pair of them, stands for.
fn unescape(text: &[u8]) -> Option<(char, &[u8])> {
    let (first, behind) = unescape_unit(text)?;
    if !(0xd800..0xdc00).contains(&first) {
        return Some((char::from_u32(u32::from(first))?, behind));
    }
    let (second, behind) = unescape_unit(behind)?;
    Some((char::decode_utf16([first, second]).next()?.ok()?, behind))
}

fn unescape_unit(text: &[u8]) -> Option<(u16, &[u8])> {
    let (digits, behind) = text.strip_prefix(b"\\u")?.split_at_checked(4)?;
    let digits = std::str::from_utf8(digits).ok()?;
    Some((u16::from_str_radix(digits, 16).ok()?, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(path: &str) -> Result<Vec<String>, Status> {
        let path = Path::parse(path.as_bytes())?;
        let components: Vec<String> = path
            .components()
            .map(|component| match component {
                Component::Key(key) => String::from_utf8(key.bytes().collect()).unwrap(),
                Component::Index(index) => format!("[{index}]"),
                Component::Last => "[-1]".to_owned(),
            })
            .collect();
        assert_eq!(components.len(), path.len());
        Ok(components)
    }

    #[test]
    fn paths_are_cut_into_keys_and_indexes() {
        for (path, components) in [
            ("", &[] as &[&str]),
            ("foo.bar.baz", &["foo", "bar", "baz"]),
            ("array[1].item[9]", &["array", "[1]", "item", "[9]"]),
            ("[1][2][3]", &["[1]", "[2]", "[3]"]),
            ("[-1].[-1]", &["[-1]", "[-1]"]),
            ("`simple`.`escaped`.`path`", &["simple", "escaped", "path"]),
            ("escaped.`arr.idx`[9]", &["escaped", "arr.idx", "[9]"]),
            ("`BACKTICK``HAPPY`.`CAMPER`", &["BACKTICK`HAPPY", "CAMPER"]),
            ("trailing``", &["trailing`"]),
            ("````", &["`"]),
            ("in`sid`e", &["inside"]),
            ("\\\"quoted.path", &["\\\"quoted", "path"]),
            ("Fútbol", &["Fútbol"]),
            ("white space.\u{7f}", &["white space", "\u{7f}"]),
            ("a.[0]", &["a", "[0]"]),
            ("a[007]", &["a", "[7]"]),
            // As lenient as Couchbase is.
            ("a.", &["a"]),
            ("a[0].", &["a", "[0]"]),
            ("a[]", &["a", "[0]"]),
        ] {
            assert_eq!(
                cut(path).as_deref().map(|c| c.iter().map(String::as_str).collect()),
                Ok(components.to_vec())
            );
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in [
            ".",
            "....",
            ".a",
            "a..b",
            "hello[0]world",
            "[not]",
            "[-2]",
            "[1",
            "1]",
            "a[0",
            "[+1]",
            "[ 1]",
            "[99999999999999999999]",
            "\"a",
            "a\\",
            "a\\u0041",
            "a\\x",
            "`a",
            "`a``",
            "``",
            "a\nb",
            "a\u{1f}",
        ] {
            assert_eq!(cut(path), Err(Status::SubdocPathInvalid), "{path}");
        }
        assert_eq!(Path::parse(b"a\xff").err(), Some(Status::SubdocPathInvalid));
    }

    #[test]
    fn limits_are_kept() {
        let keys = |count: usize| vec!["k"; count].join(".");
        assert!(cut(&keys(COMPONENTS_MAX)).is_ok());
        assert_eq!(cut(&keys(COMPONENTS_MAX + 1)), Err(Status::SubdocPathTooBig));
        assert_eq!(cut(&"[0]".repeat(COMPONENTS_MAX + 1)), Err(Status::SubdocPathTooBig));
        assert!(cut(&"k".repeat(SUBDOC_PATH_BYTES_MAX)).is_ok());
        assert_eq!(cut(&"k".repeat(SUBDOC_PATH_BYTES_MAX + 1)), Err(Status::Invalid));
    }

    #[test]
    fn paths_into_attributes_begin_with_a_name() {
        let parse =
            |text: &'static str| Path::parse_xattr(text.as_bytes()).map(|(key, path)| (key, path.len()));
        assert_eq!(parse("user"), Ok((&b"user"[..], 1)));
        assert_eq!(parse("_sync.a[0]"), Ok((&b"_sync"[..], 3)));
        assert_eq!(parse("$document.exptime"), Ok((&b"$document"[..], 2)));
        assert_eq!(parse("a[0]"), Ok((&b"a"[..], 2)));
        assert_eq!(parse("fifteen_bytes_x.more"), Ok((&b"fifteen_bytes_x"[..], 2)));
        for text in
            ["", "sixteen_bytes_xx", ".a", "[0]", "`a`", "_", "$", "_.a", "-a", "\u{1}a", "a\0b", "a.\0"]
        {
            assert_eq!(parse(text), Err(Status::XattrInvalid), "{text}");
        }
        assert_eq!(parse("a`b`"), Err(Status::SubdocPathInvalid));
        assert_eq!(parse("a]b"), Err(Status::SubdocPathInvalid));
        assert_eq!(parse("a..b"), Err(Status::SubdocPathInvalid));
        assert_eq!(Path::parse_xattr(b"a.\xff").err(), Some(Status::XattrInvalid));
    }

    #[test]
    fn keys_match_as_the_document_spells_them_but_for_unicode_escapes() {
        let matches = |path: &'static str, spelled: &str| {
            let Some(Component::Key(key)) = Path::parse(path.as_bytes()).unwrap().last() else { panic!() };
            key.matches(spelled.as_bytes(), spelled.contains('\\'))
        };
        assert!(matches("key", "key") && !matches("key", "ke") && !matches("ke", "key"));
        assert!(matches("U-Escape", "U\\u002DEscape") && matches("é", "\\u00e9"));
        assert!(
            matches("😀", "\\ud83d\\ude00") && !matches("😀", "\\ud83d") && !matches("😀", "\\ud83d\\u0041")
        );
        assert!(matches("\\\"q", "\\\"q") && !matches("q", "\\\"q") && !matches("a/b", "a\\/b"));
        assert!(matches("a\\\\u0041", "a\\\\u0041") && !matches("a", "a\\u0000"));
        assert!(matches("`a``b`", "a`b") && matches("`a``b`", "a\\u0060b") && !matches("`a``b`", "a``b"));
    }
}
