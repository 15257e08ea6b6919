//! Changes of documents, and what follows from them for the rows of each map function.
//!
//! The tree of documents has the keys of each document's rows as texts. What a document changes is known where its place in
//! that tree is passed. Rows that it had before go, and those that it has now come.

use std::{collections::BTreeMap, ops::Range};

use base::VbId;

use super::{
    bytes::{Input, put_sized, put_varint},
    error::IndexError,
    head::VbState,
    leaf::put_row_value,
    runs::{Sorted, Sorter},
    tree::Changes,
};
use crate::{
    collation::{KEY_TEXT_MAX, check_bounded, encode_bounded, row_key},
    js::{ROWS_MAX, Row},
    json::write_string,
};

/// Appends the rows of a document that waits: per map function its number and how many, then keys and values. Nothing at all
/// where there are none.
pub(super) fn put_rows(rows: &[Vec<Row>], out: &mut Vec<u8>) {
    for (map, rows) in rows.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
        put_varint(map as u64, out);
        put_varint(rows.len() as u64, out);
        for row in rows {
            put_sized(row.key.as_bytes(), out);
            put_sized(row.value.as_bytes(), out);
        }
    }
}

/// Rows of many documents one after the other, as an index takes them: in one piece of memory.
#[derive(Debug, Default)]
pub struct JoinedRows {
    bytes: Vec<u8>,
    /// Rows of a map function that is not over, and how many there are.
    of_map: Vec<u8>,
    count: usize,
    /// Used for one row after the other.
    key: Vec<u8>,
    value: Vec<u8>,
}

impl JoinedRows {
    /// How many bytes the rows take.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The rows behind so many bytes are of no use.
    pub(crate) fn truncate(&mut self, bytes: usize) {
        self.bytes.truncate(bytes);
    }

    /// Begins with the rows of a map function of a document.
    pub(crate) fn begin_map(&mut self) {
        self.of_map.clear();
        self.count = 0;
    }

    /// How many rows the map function has.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Two empty places for the texts of a row. [`JoinedRows::push`] takes them back.
    pub(crate) fn take_texts(&mut self) -> (Vec<u8>, Vec<u8>) {
        (std::mem::take(&mut self.key), std::mem::take(&mut self.value))
    }

    /// Takes a row of the map function.
    pub(crate) fn push(&mut self, mut key: Vec<u8>, mut value: Vec<u8>) {
        put_sized(&key, &mut self.of_map);
        put_sized(&value, &mut self.of_map);
        self.count += 1;
        key.clear();
        value.clear();
        (self.key, self.value) = (key, value);
    }

    /// The map function of this number has no more rows.
    pub(crate) fn end_map(&mut self, map: usize) {
        if self.count > 0 {
            put_varint(map as u64, &mut self.bytes);
            put_varint(self.count as u64, &mut self.bytes);
            self.bytes.extend_from_slice(&self.of_map);
        }
    }

    /// The rows of a document. `None` where an index could not take them as they are.
    pub(super) fn of(&self, range: &Range<usize>) -> Option<&[u8]> {
        let rows = self.bytes.get(range.clone())?;
        let mut input = Input(rows);
        while !input.is_empty() {
            let (_, count) = input.length().zip(input.length())?;
            if count > ROWS_MAX {
                return None;
            }
            for _ in 0..count {
                let (key, _) = input.text().zip(input.sized())?;
                check_bounded(key, KEY_TEXT_MAX).ok()?;
            }
        }
        Some(rows)
    }

    /// The rows of a document, for each of so many map functions.
    #[must_use]
    pub fn texts(&self, range: &Range<usize>, maps: usize) -> Option<Vec<Vec<Row>>> {
        let mut input = Input(self.bytes.get(range.clone())?);
        let mut all = vec![Vec::new(); maps];
        while !input.is_empty() {
            let (map, count) = input.length().zip(input.length())?;
            let rows = all.get_mut(map)?;
            for _ in 0..count {
                let (key, value) = input.text().zip(input.text())?;
                rows.push(Row { key: key.to_owned(), value: value.to_owned() });
            }
        }
        Some(all)
    }
}

/// Changes of documents on their way into the tree of documents; collects what they change in the other trees.
pub(super) struct DocumentChanges<'a> {
    sorted: Sorted,
    states: &'a mut BTreeMap<VbId, VbState>,
    rows: Sorter,
    maps: usize,
    scratch: Scratch,
}

/// Places that are used for one row after the other.
#[derive(Default)]
struct Scratch {
    /// The text of the document's id.
    own: Vec<u8>,
    encoded: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
}

const UNREADABLE: IndexError = IndexError::Damaged("the keys of a document cannot be read");

impl<'a> DocumentChanges<'a> {
    pub(super) fn new(
        sorted: Sorted,
        states: &'a mut BTreeMap<VbId, VbState>,
        rows: Sorter,
        maps: usize,
    ) -> Self {
        Self { sorted, states, rows, maps, scratch: Scratch::default() }
    }

    /// What changed in the trees of the map functions.
    pub(super) fn rows(self) -> Sorter {
        self.rows
    }
}

impl Changes for DocumentChanges<'_> {
    fn key(&self) -> Option<&[u8]> {
        self.sorted.key()
    }

    fn take(&mut self, before: Option<&[u8]>, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        let (vb, docid) = self.sorted.key().and_then(|key| key.split_first_chunk::<2>()).ok_or(UNREADABLE)?;
        let vb = VbId(u16::from_be_bytes(*vb));
        let docid = std::str::from_utf8(docid).map_err(|_| UNREADABLE)?;
        let Scratch { own, encoded, key, value: row_value } = &mut self.scratch;
        own.clear();
        write_string(docid, own);
        let mut state = self.states.get_mut(&vb);
        let mut changes =
            RowsOf { docid, rows: &mut self.rows, maps: self.maps, encoded, key, value: row_value };
        if let Some(before) = before {
            changes.gone(before, own, state.as_deref_mut())?;
        }
        let rows = self.sorted.value();
        if let Some(rows) = rows {
            changes.come(vb, rows, own, state.as_deref_mut(), value)?;
        }
        if let Some(state) = state {
            state.documents =
                state.documents.saturating_sub(u64::from(before.is_some())) + u64::from(rows.is_some());
        }
        let has_rows = rows.is_some();
        self.sorted.advance()?;
        Ok(has_rows)
    }
}

/// Changes of the rows of one document.
struct RowsOf<'a> {
    docid: &'a str,
    rows: &'a mut Sorter,
    maps: usize,
    encoded: &'a mut Vec<u8>,
    key: &'a mut Vec<u8>,
    value: &'a mut Vec<u8>,
}

impl RowsOf<'_> {
    /// The rows that the document had go; these are their keys.
    fn gone(&mut self, keys: &[u8], own: &[u8], mut state: Option<&mut VbState>) -> Result<(), IndexError> {
        let mut input = Input(keys);
        while !input.is_empty() {
            let (map, count) = input.length().zip(input.varint()).ok_or(UNREADABLE)?;
            for ordinal in 0..count {
                let text = input.sized().ok_or(UNREADABLE)?;
                let text = if text.is_empty() { own } else { text };
                self.place(map, text, ordinal)?;
                self.rows.push(self.key, None)?;
            }
            if let Some(rows) = state.as_mut().and_then(|state| state.rows.get_mut(map)) {
                *rows = rows.saturating_sub(count);
            }
        }
        Ok(())
    }

    /// The document has these rows. Appends their keys, where an empty one stands for the document's own id.
    fn come(
        &mut self,
        vb: VbId,
        rows: &[u8],
        own: &[u8],
        mut state: Option<&mut VbState>,
        keys: &mut Vec<u8>,
    ) -> Result<(), IndexError> {
        let mut input = Input(rows);
        while !input.is_empty() {
            let (map, count) = input.length().zip(input.varint()).ok_or(UNREADABLE)?;
            put_varint(map as u64, keys);
            put_varint(count, keys);
            for ordinal in 0..count {
                let (key, value) = input.sized().zip(input.sized()).ok_or(UNREADABLE)?;
                self.place(map, key, ordinal)?;
                self.value.clear();
                put_row_value(vb, key, value, self.value);
                self.rows.push(self.key, Some(self.value))?;
                put_sized(if key == own { &[] } else { key }, keys);
            }
            if let Some(rows) = state.as_mut().and_then(|state| state.rows.get_mut(map)) {
                *rows += count;
            }
        }
        Ok(())
    }

    /// The key of a row among the changes: its map function before its place in the order.
    fn place(&mut self, map: usize, text: &[u8], ordinal: u64) -> Result<(), IndexError> {
        let number = u16::try_from(map).ok().filter(|_| map < self.maps).ok_or(UNREADABLE)?;
        let ordinal = u16::try_from(ordinal).map_err(|_| UNREADABLE)?;
        let text = std::str::from_utf8(text).map_err(|_| UNREADABLE)?;
        self.key.clear();
        self.key.extend_from_slice(&number.to_be_bytes());
        self.encoded.clear();
        encode_bounded(text, KEY_TEXT_MAX, self.encoded)
            .map_err(|_| IndexError::Damaged("a key of a document is none"))?;
        row_key(self.encoded, self.docid, ordinal, self.key);
        Ok(())
    }
}

/// Changes of rows on their way into the trees of the map functions, one after the other.
pub(super) struct RowChanges {
    sorted: Sorted,
    map: u16,
}

impl RowChanges {
    pub(super) fn new(sorted: Sorted) -> Self {
        Self { sorted, map: 0 }
    }

    /// From now on changes are those of the next map function.
    pub(super) fn next_map(&mut self) {
        self.map += 1;
    }
}

impl Changes for RowChanges {
    fn key(&self) -> Option<&[u8]> {
        self.sorted.key()?.strip_prefix(&self.map.to_be_bytes())
    }

    fn take(&mut self, _before: Option<&[u8]>, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        let new = self.sorted.value();
        value.extend_from_slice(new.unwrap_or_default());
        let is_there = new.is_some();
        self.sorted.advance()?;
        Ok(is_there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, value: &str) -> Row {
        Row { key: key.to_owned(), value: value.to_owned() }
    }

    fn joined(maps: &[Vec<Row>], out: &mut JoinedRows) -> Range<usize> {
        let begin = out.len();
        for (map, rows) in maps.iter().enumerate() {
            out.begin_map();
            for row in rows {
                let (mut key, mut value) = out.take_texts();
                key.extend_from_slice(row.key.as_bytes());
                value.extend_from_slice(row.value.as_bytes());
                out.push(key, value);
            }
            out.end_map(map);
        }
        begin..out.len()
    }

    #[test]
    fn joined_rows_are_what_an_index_makes_of_texts() {
        let large = "x".repeat(300);
        let documents = [
            vec![vec![], vec![row("1", "null"), row("[\"é\"]", &large)], vec![row("\"a\"", "2")]],
            vec![vec![], vec![], vec![]],
            vec![vec![row("{}", "{}")], vec![], vec![]],
        ];
        let mut all = JoinedRows::default();
        let ranges: Vec<Range<usize>> = documents.iter().map(|maps| joined(maps, &mut all)).collect();
        for (maps, range) in documents.iter().zip(&ranges) {
            let mut expected = Vec::new();
            put_rows(maps, &mut expected);
            assert_eq!(all.of(range), Some(expected.as_slice()));
            assert_eq!(all.texts(range, 3).as_ref(), Some(maps));
        }
        assert!(ranges[1].is_empty() && all.texts(&ranges[0], 2).is_none(), "there is no such function");
    }

    #[test]
    fn joined_rows_with_keys_that_are_none_are_left_to_be_refused() {
        let long = format!("\"{}\"", "x".repeat(KEY_TEXT_MAX));
        for key in ["", "[1", "\"\\ud800\"", &long] {
            let maps = vec![vec![row("1", "2")], vec![row("1", "2"), row(key, "3")]];
            let mut all = JoinedRows::default();
            let range = joined(&maps, &mut all);
            assert_eq!((all.of(&range), all.texts(&range, 2)), (None, Some(maps)), "{key:.20}");
        }
    }
}
