//! Extended attributes: pairs of a name and a JSON value, before the body in a value whose datatype says so.
//!
//! The layout is the same on the wire and in memory. First comes a `u32`, the length of all that follows up to the
//! body. Then follow for each pair a `u32` length, the name, a zero byte, the value, a zero byte. Numbers are
//! big-endian (kv_engine `docs/Document.md`).
//!
//! Names that begin with `_` belong to the system and survive the document's deletion. Those that begin with `$` are
//! virtual, and no client's request stores them. All others are the user's.

use base::{Status, limits::XATTR_KEY_BYTES_MAX};

use super::{
    Edit, Path, apply, count_of,
    locate::{Located, locate_from},
    scan::Scanner,
    value_of,
};
use crate::json::is_json;

const LENGTH_BYTES: usize = 4;

/// Whose an attribute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes with the body.
    User,
    /// Stays in the tombstone; its own privileges.
    System,
    /// Computed when it is asked for.
    Virtual,
}

impl Kind {
    /// By the first byte of an attribute's name.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        match key.first() {
            Some(b'_') => Kind::System,
            Some(b'$') => Kind::Virtual,
            _ => Kind::User,
        }
    }
}

/// Whether `key` can be an attribute's name. It is short, and its first character is no control character and no
/// punctuation, except `_` and `$`. Behind one of these two more has to follow.
#[must_use]
pub fn is_xattr_key(key: &[u8]) -> bool {
    let fits = (1..=XATTR_KEY_BYTES_MAX).contains(&key.len());
    let first_fits = match key {
        [b'_' | b'$', rest @ ..] => !rest.is_empty(),
        [first, ..] => !first.is_ascii_punctuation() && !first.is_ascii_control(),
        [] => false,
    };
    fits && first_fits && !key.contains(&0) && std::str::from_utf8(key).is_ok()
}

/// The attributes of a document. Made of bytes that were checked when they came, so that what is broken all the same
/// merely ends the iteration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blob<'a> {
    /// Without the length in front.
    pairs: &'a [u8],
}

impl<'a> Blob<'a> {
    /// No attributes.
    pub const EMPTY: Blob<'static> = Blob { pairs: b"" };

    /// Splits a value with attributes into them and the body.
    ///
    /// # Errors
    ///
    /// [`Status::XattrInvalid`] where the value is shorter than it says.
    pub fn split(value: &'a [u8]) -> Result<(Self, &'a [u8]), Status> {
        let (length, rest) = value.split_first_chunk().ok_or(Status::XattrInvalid)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| Status::XattrInvalid)?;
        let (pairs, body) = rest.split_at_checked(length).ok_or(Status::XattrInvalid)?;
        Ok((Self { pairs }, body))
    }

    /// Whether everything about attributes that come from outside is as it should be: lengths, names, values, and no
    /// name twice.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let mut keys = Vec::new();
        let mut read = 0;
        for (key, value) in self.iter() {
            if !is_xattr_key(key) || !is_json(value) {
                return false;
            }
            read += pair_bytes(key, value);
            keys.push(key);
        }
        keys.sort_unstable();
        read == self.pairs.len() && keys.is_sorted_by(|one, next| one != next)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Names and values, in the order they are stored.
    #[expect(clippy::indexing_slicing, reason = "`end` is the position of a zero byte in the same pair")]
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.pairs;
        std::iter::from_fn(move || {
            let (pair, behind) = Blob::split(rest).ok()?;
            let end = pair.pairs.iter().position(|&byte| byte == 0)?;
            let value = pair.pairs[end + 1..].strip_suffix(b"\0")?;
            rest = behind;
            Some((&pair.pairs[..end], value))
        })
    }

    /// The value of one.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&'a [u8]> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// What `path`, whose first step is `key`, leads to.
    ///
    /// # Errors
    ///
    /// As [`super::get`].
    pub fn lookup(&self, key: &[u8], path: &Path<'_>) -> Result<&'a [u8], Status> {
        let value = self.get(key).ok_or(Status::SubdocPathNotFound)?;
        value_of(value, below_key(value, path)?)
    }

    /// How many members or elements what `path` leads to has.
    ///
    /// # Errors
    ///
    /// As [`super::count`].
    pub fn count(&self, key: &[u8], path: &Path<'_>) -> Result<usize, Status> {
        let value = self.get(key).ok_or(Status::SubdocPathNotFound)?;
        count_of(value, below_key(value, path)?)
    }

    /// How many bytes of the value belong to the system, and how many to the user. The length in front of them all
    /// counts for the system.
    #[must_use]
    pub fn shares(&self) -> (usize, usize) {
        self.iter().fold((LENGTH_BYTES, 0), |(system, user), (key, value)| {
            let bytes = pair_bytes(key, value);
            if Kind::of(key) == Kind::System { (system + bytes, user) } else { (system, user + bytes) }
        })
    }
}

/// Attributes are members of an object, so their values are at level 2.
fn below_key<'p>(value: &[u8], path: &Path<'p>) -> Result<Located<'p>, Status> {
    locate_from(Scanner { text: value, at: 0 }, &path.tail(), 2)
}

fn pair_bytes(key: &[u8], value: &[u8]) -> usize {
    LENGTH_BYTES + key.len() + 1 + value.len() + 1
}

/// Attributes in the making.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    /// A blob's bytes with the length in front, or nothing at all.
    bytes: Vec<u8>,
}

impl Builder {
    /// Begins with the attributes of a document.
    #[must_use]
    pub fn from_blob(blob: &Blob<'_>) -> Self {
        if blob.is_empty() {
            return Self::default();
        }
        Self { bytes: [&to_length(blob.pairs.len()), blob.pairs].concat() }
    }

    /// What it holds by now.
    #[must_use]
    pub fn blob(&self) -> Blob<'_> {
        Blob { pairs: self.bytes.get(LENGTH_BYTES..).unwrap_or_default() }
    }

    /// Sets an attribute to a JSON value: in its place, or behind the others.
    pub fn set(&mut self, key: &[u8], value: &[u8]) {
        if self.blob().get(key).is_none() {
            self.append(key, value);
            return;
        }
        let old = std::mem::take(self);
        for (name, before) in old.blob().iter() {
            self.append(name, if name == key { value } else { before });
        }
    }

    /// Removes an attribute.
    pub fn remove(&mut self, key: &[u8]) {
        self.retain(|name| name != key);
    }

    /// Removes what a deletion does not leave.
    pub fn keep_system(&mut self) {
        self.retain(|name| Kind::of(name) == Kind::System);
    }

    /// Does `edit` at `path`, whose first step is `key`: [`super::apply`] on an object with the attributes as members.
    ///
    /// # Errors
    ///
    /// As [`super::apply`]; nothing is changed then.
    pub fn edit(
        &mut self,
        key: &[u8],
        path: &Path<'_>,
        edit: &Edit<'_>,
        create_parents: bool,
    ) -> Result<Option<i64>, Status> {
        let before = match self.blob().get(key) {
            Some(value) => [b"{\"", key, b"\":", value, b"}"].concat(),
            None => b"{}".to_vec(),
        };
        let mut after = Vec::new();
        let counted = apply(&before, path, edit, create_parents, &mut after)?;
        // The name is spelled in the path as it is in the object, which begins with it.
        match after.get(key.len() + 4..after.len() - 1) {
            Some(value) => self.set(key, value.trim_ascii()),
            None => self.remove(key),
        }
        Ok(counted)
    }

    /// The bytes to put before the body; none where there are no attributes and the datatype must not say so.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn append(&mut self, key: &[u8], value: &[u8]) {
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        }
        let length = to_length(pair_bytes(key, value) - LENGTH_BYTES);
        for part in [&length[..], key, b"\0", value, b"\0"] {
            self.bytes.extend_from_slice(part);
        }
        let length = to_length(self.bytes.len() - LENGTH_BYTES);
        if let Some(front) = self.bytes.first_chunk_mut() {
            *front = length;
        }
    }

    fn retain(&mut self, keeps: impl Fn(&[u8]) -> bool) {
        let old = std::mem::take(self);
        for (key, value) in old.blob().iter().filter(|(key, _)| keeps(key)) {
            self.append(key, value);
        }
    }
}

/// Frames are far smaller than what a `u32` can count.
fn to_length(bytes: usize) -> [u8; LENGTH_BYTES] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder(pairs: &[(&str, &str)]) -> Builder {
        let mut builder = Builder::default();
        for (key, value) in pairs {
            builder.set(key.as_bytes(), value.as_bytes());
        }
        builder
    }

    fn pairs(blob: &Blob<'_>) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        blob.iter().map(|(key, value)| (text(key), text(value))).collect()
    }

    fn edited(builder: &mut Builder, path: &str, edit: &Edit<'_>) -> Result<Option<i64>, Status> {
        let (key, path) = Path::parse_xattr(path.as_bytes())?;
        builder.edit(key, &path, edit, true)
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let bytes = builder(&[("_sync", "{\"cas\":10}"), ("u", "2")]).finish();
        let expected =
            [&b"\0\0\0\x1d"[..], b"\0\0\0\x11_sync\0{\"cas\":10}\0", b"\0\0\0\x04u\x002\0"].concat();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_value_splits_into_attributes_and_body() {
        let mut value = builder(&[("a", "1"), ("_b", "[2]")]).finish();
        value.extend_from_slice(b"body");
        let (blob, body) = Blob::split(&value).unwrap();
        assert_eq!(body, b"body");
        assert!(blob.is_valid());
        assert_eq!(
            (blob.get(b"a"), blob.get(b"_b"), blob.get(b"c")),
            (Some(&b"1"[..]), Some(&b"[2]"[..]), None)
        );
        assert_eq!(blob.shares(), (4 + 4 + 2 + 1 + 3 + 1, 4 + 1 + 1 + 1 + 1));
        assert_eq!(Blob::split(&value[..10]).err(), Some(Status::XattrInvalid));
        assert_eq!(Blob::split(b"abc").err(), Some(Status::XattrInvalid));
    }

    #[test]
    fn broken_attributes_are_not_valid() {
        let valid = |pairs: &[u8]| {
            let value = [&to_length(pairs.len()), pairs].concat();
            Blob::split(&value).unwrap().0.is_valid()
        };
        assert!(valid(b"") && valid(b"\0\0\0\x04a\x001\0") && valid(b"\0\0\0\x05$a\x001\0"));
        for pairs in [
            &b"\0\0\0\x05a\x001\0"[..],
            b"\0\0\0\x03a\x001\0",
            b"\0\0\0\x04a\x0011",
            b"\0\0\0\x04a\x00x\0",
            b"\0\0\0\x03a\0\0",
            b"\0\0\0\x03\x001\0",
            b"\0\0\0\x04-\x001\0",
            b"\0\0\0\x04_\x001\0",
            b"\0\0\0\x041\x001\0\0\0\0\x041\x002\0",
            b"\0\0\0\x04a\x001\0\0",
            b"\xff\xff\xff\xffa\x001\0",
        ] {
            assert!(!valid(pairs), "{pairs:?}");
        }
    }

    #[test]
    fn setting_keeps_the_order_and_removing_the_last_leaves_nothing() {
        let mut builder = builder(&[("a", "1"), ("_b", "2"), ("c", "3")]);
        builder.set(b"_b", b"[20]");
        let owned = |list: &[(&str, &str)]| {
            list.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(pairs(&builder.blob()), owned(&[("a", "1"), ("_b", "[20]"), ("c", "3")]));
        builder.keep_system();
        assert_eq!(pairs(&builder.blob()), owned(&[("_b", "[20]")]));
        builder.remove(b"_b");
        assert!(builder.blob().is_empty());
        assert!(builder.finish().is_empty());
    }

    #[test]
    fn attributes_are_edited_as_members_of_an_object() {
        let mut builder = Builder::default();
        let value = |builder: &Builder, key: &[u8]| builder.blob().get(key).map(<[u8]>::to_vec);
        assert_eq!(edited(&mut builder, "_a.b.c", &Edit::DictUpsert(b" 1 ")), Ok(None));
        assert_eq!(value(&builder, b"_a").as_deref(), Some(&b"{\"b\":{\"c\": 1 }}"[..]));
        assert_eq!(edited(&mut builder, "n", &Edit::Counter(5)), Ok(Some(5)));
        assert_eq!(edited(&mut builder, "n", &Edit::DictAdd(b"1")), Err(Status::SubdocPathExists));
        assert_eq!(edited(&mut builder, "l", &Edit::PushLast(b"1,2")), Ok(None));
        assert_eq!(value(&builder, b"l").as_deref(), Some(&b"[1,2]"[..]));
        assert_eq!(edited(&mut builder, "n", &Edit::Replace(b" \"s\" ")), Ok(None));
        assert_eq!(value(&builder, b"n").as_deref(), Some(&b"\"s\""[..]));
        assert_eq!(edited(&mut builder, "n.x", &Edit::DictAdd(b"1")), Err(Status::SubdocPathMismatch));
        assert_eq!(edited(&mut builder, "n", &Edit::Delete), Ok(None));
        assert_eq!(edited(&mut builder, "n", &Edit::Delete), Err(Status::SubdocPathNotFound));
        assert_eq!(value(&builder, b"n"), None);
        assert_eq!(edited(&mut builder, "_a.b.c", &Edit::Delete), Ok(None));
        assert_eq!(value(&builder, b"_a").as_deref(), Some(&b"{\"b\":{ }}"[..]));
        assert!(builder.blob().is_valid());
    }

    #[test]
    fn attributes_are_looked_up_below_their_names() {
        let builder = builder(&[("a", "{\"b\":[1,2]}"), ("s", "\"text\"")]);
        let blob = builder.blob();
        let lookup = |text: &'static str| {
            let (key, path) = Path::parse_xattr(text.as_bytes())?;
            blob.lookup(key, &path)
        };
        assert_eq!(lookup("a.b[-1]"), Ok(&b"2"[..]));
        assert_eq!(lookup("a"), Ok(&b"{\"b\":[1,2]}"[..]));
        assert_eq!(lookup("s"), Ok(&b"\"text\""[..]));
        assert_eq!(lookup("s.x"), Err(Status::SubdocPathMismatch));
        assert_eq!(lookup("a.c"), Err(Status::SubdocPathNotFound));
        assert_eq!(lookup("b"), Err(Status::SubdocPathNotFound));
        let (key, path) = Path::parse_xattr(b"a.b").unwrap();
        assert_eq!(blob.count(key, &path), Ok(2));
    }
}
