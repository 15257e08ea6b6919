//! Edits: checks the value that comes in, finds the place, and writes the document around it.
//!
//! What an edit does not change it copies as it is, white space included. Objects on the way are created only if the
//! caller says so, and elements of arrays never: where would they go?

use base::Status;

use super::{
    locate::{Found, Located, Missing, elements, locate},
    path::{COMPONENTS_MAX, Component, Path},
    scan::Scanner,
};
use crate::json::{Unfit, check_values};

/// What is to be done at a path. Values are JSON texts; those of [`Edit::PushLast`], [`Edit::PushFirst`] and
/// [`Edit::Insert`] may be several with commas between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit<'a> {
    /// Adds a member that must not exist.
    DictAdd(&'a [u8]),
    /// Sets a member.
    DictUpsert(&'a [u8]),
    /// Removes a member or an element.
    Delete,
    /// Replaces a member or an element that must exist.
    Replace(&'a [u8]),
    /// Appends to the array at the path.
    PushLast(&'a [u8]),
    /// Prepends to the array at the path.
    PushFirst(&'a [u8]),
    /// Inserts before the element at the path, or behind the last.
    Insert(&'a [u8]),
    /// Appends a string, number, `true`, `false` or `null` that is not in the array at the path yet.
    AddUnique(&'a [u8]),
    /// Adds this to the integer at the path, or creates it as this. See [`parse_delta`].
    Counter(i64),
}

/// What a counter is to be changed by, from the text a client sends.
///
/// # Errors
///
/// [`Status::SubdocDeltaInvalid`] for 0 and for what is no integer of 64 bits in its plain form.
pub fn parse_delta(text: &[u8]) -> Result<i64, Status> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if !matches!(digits.first(), Some(b'1'..=b'9')) {
        return Err(Status::SubdocDeltaInvalid);
    }
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or(Status::SubdocDeltaInvalid)
}

/// Writes `document` with `edit` done at `path` to `out`, which is cleared first; answers what a counter counts to.
/// With `create_parents` objects that are missing on the way are created.
///
/// # Errors
///
/// Those of [`super::get`]. Also:
/// - [`Status::SubdocPathExists`].
/// - [`Status::SubdocPathInvalid`] where the path is not of the kind that the edit needs.
/// - [`Status::SubdocValueCannotInsert`] for a value that does not fit, or a counter that would overflow.
/// - [`Status::SubdocValueTooDeep`].
/// - [`Status::SubdocNumberRange`] where the document's number is too large to count with.
/// - [`Status::Invalid`] without a value. `out` is then of no use.
pub fn apply(
    document: &[u8],
    path: &Path<'_>,
    edit: &Edit<'_>,
    create_parents: bool,
    out: &mut Vec<u8>,
) -> Result<Option<i64>, Status> {
    out.clear();
    let editor = Editor { document, path, create_parents, out };
    match *edit {
        Edit::DictAdd(value) => editor.set(value, true),
        Edit::DictUpsert(value) => editor.set(value, false),
        Edit::Delete => editor.delete(),
        Edit::Replace(value) => editor.replace(value),
        Edit::PushLast(value) => editor.push_last(value),
        Edit::PushFirst(value) => editor.push_first(value),
        Edit::Insert(value) => editor.insert(value),
        Edit::AddUnique(value) => editor.add_unique(value),
        Edit::Counter(delta) => return editor.add(delta).map(Some),
    }?;
    Ok(None)
}

struct Editor<'a, 'p> {
    document: &'a [u8],
    path: &'a Path<'p>,
    create_parents: bool,
    out: &'a mut Vec<u8>,
}

impl<'p> Editor<'_, 'p> {
    fn set(self, value: &[u8], must_not_exist: bool) -> Result<(), Status> {
        self.check_member(value)?;
        let located = locate(self.document, self.path)?;
        if !self.ends_in_key() {
            return Err(Status::SubdocPathInvalid);
        }
        match located {
            Located::Found(_) if must_not_exist => Err(Status::SubdocPathExists),
            Located::Found(found) => {
                self.splice(found.value.start, &[value], found.value.end);
                Ok(())
            }
            Located::Missing(missing) => self.create(&missing, value, false),
        }
    }

    fn replace(self, value: &[u8]) -> Result<(), Status> {
        self.check_member(value)?;
        let found = self.find()?;
        self.splice(found.value.start, &[value], found.value.end);
        Ok(())
    }

    fn delete(self) -> Result<(), Status> {
        if self.path.is_empty() {
            return Err(Status::SubdocValueCannotInsert);
        }
        let Found { value, begin, comma, .. } = self.find()?;
        let mut behind = Scanner { text: self.document, at: value.end };
        let (from, to) =
            if behind.take(b',') { (begin, behind.at) } else { (comma.unwrap_or(begin), value.end) };
        self.splice(from, &[], to);
        Ok(())
    }

    fn push_last(self, values: &[u8]) -> Result<(), Status> {
        self.check_elements(values)?;
        if self.path.is_empty() {
            let end = self.document.trim_ascii_end();
            match end.last() {
                Some(b']') => {}
                Some(b'}') => return Err(Status::SubdocPathMismatch),
                _ => return Err(Status::SubdocDocNotJson),
            }
            let close = end.len() - 1;
            return self.append(close, values);
        }
        match locate(self.document, self.path)? {
            Located::Found(found) if self.is_array(&found) => self.append(found.value.end - 1, values),
            Located::Found(_) => Err(Status::SubdocPathMismatch),
            Located::Missing(missing) => self.create(&missing, values, true),
        }
    }

    fn push_first(self, values: &[u8]) -> Result<(), Status> {
        self.check_elements(values)?;
        match locate(self.document, self.path)? {
            Located::Found(found) if self.is_array(&found) => {
                let mut inside = Scanner { text: self.document, at: found.value.start + 1 };
                let comma: &[u8] = if inside.peek() == Some(b']') { b"" } else { b"," };
                self.splice(inside.at, &[values, comma], inside.at);
                Ok(())
            }
            Located::Found(_) => Err(Status::SubdocPathMismatch),
            Located::Missing(missing) => self.create(&missing, values, true),
        }
    }

    fn add_unique(self, value: &[u8]) -> Result<(), Status> {
        let levels = COMPONENTS_MAX - self.path.len();
        check(value, false, levels)?;
        let value = value.trim_ascii();
        if matches!(value.first(), Some(b'{' | b'[')) {
            return Err(Status::SubdocValueCannotInsert);
        }
        let found = match locate(self.document, self.path)? {
            Located::Found(found) if self.is_array(&found) => found,
            Located::Found(_) => return Err(Status::SubdocPathMismatch),
            Located::Missing(missing) => return self.create(&missing, value, true),
        };
        let mut scanner = Scanner { text: self.document, at: found.value.start };
        elements(&mut scanner, found.level + 1, |element| match element.first() {
            Some(b'{' | b'[') => Err(Status::SubdocPathMismatch),
            _ if element == value => Err(Status::SubdocPathExists),
            _ => Ok(()),
        })?;
        self.append(found.value.end - 1, value)
    }

    fn insert(self, values: &[u8]) -> Result<(), Status> {
        check(values, true, COMPONENTS_MAX + 1 - self.path.len())?;
        let Some(Component::Index(index)) = self.path.last() else { return Err(Status::SubdocPathInvalid) };
        match locate(self.document, self.path)? {
            Located::Found(found) => {
                self.splice(found.value.start, &[values, b","], found.value.start);
                Ok(())
            }
            Located::Missing(missing) if is_last(&missing) && missing.children == index => {
                self.append(missing.close, values)
            }
            Located::Missing(_) => Err(Status::SubdocPathNotFound),
        }
    }

    #[expect(clippy::indexing_slicing, reason = "the place was located in the same document")]
    fn add(self, delta: i64) -> Result<i64, Status> {
        match locate(self.document, self.path)? {
            Located::Found(found) => {
                let current = parse_integer(&self.document[found.value.clone()])?;
                let sum = current.checked_add(delta).ok_or(Status::SubdocValueCannotInsert)?;
                self.splice(found.value.start, &[sum.to_string().as_bytes()], found.value.end);
                Ok(sum)
            }
            Located::Missing(missing) => {
                if !self.create_parents && !is_last(&missing)
                    || !matches!(missing.rest.peek(), Some(Component::Key(_)))
                {
                    return Err(Status::SubdocPathNotFound);
                }
                if !self.ends_in_key() {
                    return Err(Status::SubdocPathInvalid);
                }
                self.create(&missing, delta.to_string().as_bytes(), false)?;
                Ok(delta)
            }
        }
    }

    /// Adds the member that is missing, inside objects that are missing as well.
    #[expect(clippy::indexing_slicing, reason = "the place was located in the same document")]
    fn create(self, missing: &Missing<'p>, value: &[u8], as_array: bool) -> Result<(), Status> {
        // An array that is pushed to is a member whose creation has to be asked for, like an object on the way.
        if !self.create_parents && (as_array || !is_last(missing)) {
            return Err(Status::SubdocPathNotFound);
        }
        if missing.rest.into_iter().any(|component| !matches!(component, Component::Key(_))) {
            return Err(Status::SubdocPathNotFound);
        }
        let out = self.out;
        out.extend_from_slice(&self.document[..missing.close]);
        if missing.children > 0 {
            out.push(b',');
        }
        let mut opened = 0;
        for component in missing.rest {
            let Component::Key(key) = component else { continue };
            if opened > 0 {
                out.push(b'{');
            }
            opened += 1;
            out.push(b'"');
            out.extend(key.bytes());
            out.extend_from_slice(b"\":");
        }
        if as_array {
            out.push(b'[');
        }
        out.extend_from_slice(value);
        if as_array {
            out.push(b']');
        }
        out.extend(std::iter::repeat_n(b'}', opened - 1));
        out.extend_from_slice(&self.document[missing.close..]);
        Ok(())
    }

    /// Writes `values` behind the last element of the array that is closed at `close`.
    #[expect(clippy::indexing_slicing, reason = "the place was located in the same document")]
    fn append(self, close: usize, values: &[u8]) -> Result<(), Status> {
        let before = self.document[..close].trim_ascii_end();
        let comma: &[u8] = if before.last() == Some(&b'[') { b"" } else { b"," };
        self.splice(close, &[comma, values], close);
        Ok(())
    }

    /// Writes the document with `parts` instead of what is between `from` and `to`.
    #[expect(clippy::indexing_slicing, reason = "the places were located in the same document")]
    fn splice(self, from: usize, parts: &[&[u8]], to: usize) {
        let added: usize = parts.iter().map(|part| part.len()).sum();
        self.out.reserve(self.document.len() + added);
        self.out.extend_from_slice(&self.document[..from]);
        for part in parts {
            self.out.extend_from_slice(part);
        }
        self.out.extend_from_slice(&self.document[to..]);
    }

    fn find(&self) -> Result<Found, Status> {
        match locate(self.document, self.path)? {
            Located::Found(found) => Ok(found),
            Located::Missing(_) => Err(Status::SubdocPathNotFound),
        }
    }

    fn is_array(&self, found: &Found) -> bool {
        self.document.get(found.value.start) == Some(&b'[')
    }

    fn ends_in_key(&self) -> bool {
        matches!(self.path.last(), Some(Component::Key(_)))
    }

    /// Checks the value of a member or element, which the document itself is not.
    fn check_member(&self, value: &[u8]) -> Result<(), Status> {
        if self.path.is_empty() {
            return Err(Status::SubdocValueCannotInsert);
        }
        check(value, false, COMPONENTS_MAX + 1 - self.path.len())
    }

    fn check_elements(&self, values: &[u8]) -> Result<(), Status> {
        check(values, true, COMPONENTS_MAX - self.path.len())
    }
}

/// Whether only the last step of the path is missing.
fn is_last(missing: &Missing<'_>) -> bool {
    let mut rest = missing.rest;
    rest.next();
    rest.is_empty()
}

fn check(values: &[u8], list: bool, levels: usize) -> Result<(), Status> {
    if values.is_empty() {
        return Err(Status::Invalid);
    }
    check_values(values, list, levels).map_err(|unfit| match unfit {
        Unfit::NotJson => Status::SubdocValueCannotInsert,
        Unfit::TooDeep => Status::SubdocValueTooDeep,
    })
}

/// The document's number that a counter adds to.
fn parse_integer(text: &[u8]) -> Result<i64, Status> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Status::SubdocPathMismatch);
    }
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or(Status::SubdocNumberRange)
}
