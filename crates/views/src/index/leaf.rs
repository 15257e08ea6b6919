//! Leaves: rows in the order of their keys, in memory and as they are written.
//!
//! In memory a row of a map function has its place in the order (encoded key, document, ordinal) before its value. Encoded
//! keys are longer than texts and follow from them, so a leaf is written without them, unless they are a small part of it.
//! Texts and ids are written without what they have in common with the row before.

use base::VbId;

use super::bytes::{Input, put_sized, put_varint};
use crate::collation::{KEY_TEXT_MAX, encode_bounded, split_place};

/// Encoded keys of at most this part of a leaf are written with it, as making them takes time.
const ENCODED_PART: usize = 16;

/// Of a row that is written: what is the same as in the row before, and whether it is the first of its document.
const SAME_TEXT: u8 = 1;
const SAME_VALUE: u8 = 2;
const SAME_VB: u8 = 4;
const FIRST: u8 = 8;

/// Rows in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

/// A row: a key from `key` to `value`, and its value from there to the end.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u32,
    value: u32,
    end: u32,
}

/// The value of a row in the tree of a map function.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowValue<'a> {
    pub(super) vb: VbId,
    pub(super) key: &'a str,
    pub(super) value: &'a str,
}

impl<'a> RowValue<'a> {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_row_value(self.vb, self.key.as_bytes(), self.value.as_bytes(), out);
    }

    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut input = Input(bytes);
        let vb = VbId(input.u16()?);
        let key = input.text()?;
        Some(Self { vb, key, value: std::str::from_utf8(input.0).ok()? })
    }
}

fn put_row_value(vb: VbId, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&vb.get().to_be_bytes());
    put_sized(key, out);
    out.extend_from_slice(value);
}

/// About how many bytes a row takes in a node.
pub(super) fn row_size(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + 4
}

impl Leaf {
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.push_parts(&[key], |out| out.extend_from_slice(value));
    }

    fn push_parts(&mut self, key: &[&[u8]], value: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len() as u32;
        key.iter().for_each(|part| self.bytes.extend_from_slice(part));
        let middle = self.bytes.len() as u32;
        value(&mut self.bytes);
        self.slots.push(Slot { key: start, value: middle, end: self.bytes.len() as u32 });
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn held(&self) -> usize {
        self.bytes.len() + self.slots.len() * size_of::<Slot>()
    }

    /// The row at a place, or nothing behind the last one.
    pub(super) fn row(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let slot = self.slots.get(at)?;
        let part = |from: u32, to: u32| self.bytes.get(from as usize..to as usize);
        Some((part(slot.key, slot.value)?, part(slot.value, slot.end)?))
    }

    pub(super) fn rows(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        (0..self.len()).filter_map(|at| self.row(at))
    }

    /// How many rows come before `key`.
    pub(super) fn before(&self, key: &[u8]) -> usize {
        self.slots.partition_point(|slot| {
            self.bytes.get(slot.key as usize..slot.value as usize).is_some_and(|known| known < key)
        })
    }

    /// Appends keys and values as they are.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_varint(self.len() as u64, out);
        let mut before: &[u8] = &[];
        for (key, value) in self.rows() {
            put_key(before, key, out);
            put_sized(value, out);
            before = key;
        }
    }

    pub(super) fn read(input: &mut Input<'_>) -> Option<Self> {
        let (mut leaf, mut key) = (Self::default(), Vec::new());
        for _ in 0..input.length()? {
            read_key(input, &mut key)?;
            leaf.push(&key, input.sized()?);
        }
        Some(leaf)
    }

    /// Appends rows of a map function. Nothing where one of them is none.
    pub(super) fn put_rows(&self, out: &mut Vec<u8>) -> Option<()> {
        let (mut rows, mut encoded) = (Vec::new(), Vec::new());
        let mut before: Option<(&[u8], &[u8], RowValue<'_>)> = None;
        for (place, value) in self.rows() {
            let (key, docid, ordinal) = split_place(place)?;
            let row = RowValue::read(value)?;
            let same = |flag: u8, is: bool| if is { flag } else { 0 };
            let known = before.as_ref();
            let flags = same(SAME_TEXT, known.is_some_and(|(.., known)| known.key == row.key))
                | same(SAME_VALUE, known.is_some_and(|(.., known)| known.value == row.value))
                | same(SAME_VB, known.is_some_and(|(.., known)| known.vb == row.vb))
                | same(FIRST, ordinal == 0);
            rows.push(flags);
            if flags & SAME_TEXT == 0 {
                put_key(known.map_or(&[], |(.., known)| known.key.as_bytes()), row.key.as_bytes(), &mut rows);
                put_key(known.map_or(&[], |(key, ..)| key), key, &mut encoded);
            }
            put_key(known.map_or(&[], |(_, docid, _)| docid), docid, &mut rows);
            if flags & FIRST == 0 {
                put_varint(u64::from(ordinal), &mut rows);
            }
            if flags & SAME_VB == 0 {
                put_varint(u64::from(row.vb.get()), &mut rows);
            }
            if flags & SAME_VALUE == 0 {
                put_sized(row.value.as_bytes(), &mut rows);
            }
            before = Some((key, docid, row));
        }
        if encoded.len() > rows.len() / ENCODED_PART {
            encoded.clear();
        }
        put_varint(self.len() as u64, out);
        put_sized(&encoded, out);
        out.extend_from_slice(&rows);
        Some(())
    }

    pub(super) fn read_rows(input: &mut Input<'_>) -> Option<Self> {
        let count = input.length()?;
        let mut encoded = Input(input.sized()?);
        let is_stored = !encoded.is_empty();
        let (mut leaf, mut vb, mut value): (_, _, &[u8]) = (Self::default(), VbId(0), &[]);
        let (mut text, mut key, mut docid) = (Vec::new(), Vec::new(), Vec::new());
        for at in 0..count {
            let flags = input.byte()?;
            if flags & SAME_TEXT == 0 {
                read_key(input, &mut text)?;
                if is_stored {
                    read_key(&mut encoded, &mut key)?;
                } else {
                    key.clear();
                    encode_bounded(std::str::from_utf8(&text).ok()?, KEY_TEXT_MAX, &mut key).ok()?;
                }
            } else if at == 0 {
                return None;
            }
            read_key(input, &mut docid)?;
            let ordinal = if flags & FIRST == 0 { u16::try_from(input.varint()?).ok()? } else { 0 };
            if flags & SAME_VB == 0 {
                vb = VbId(u16::try_from(input.varint()?).ok()?);
            }
            if flags & SAME_VALUE == 0 {
                value = input.sized()?;
            }
            let parts = [&key[..], &docid, &[0, 0], &ordinal.to_be_bytes()];
            leaf.push_parts(&parts, |out| put_row_value(vb, &text, value, out));
        }
        encoded.is_empty().then_some(leaf)
    }
}

/// Appends a key without what it has in common with the one before.
pub(super) fn put_key(before: &[u8], key: &[u8], out: &mut Vec<u8>) {
    let shared = before.iter().zip(key).take_while(|(left, right)| left == right).count();
    put_varint(shared as u64, out);
    put_sized(key.get(shared..).unwrap_or_default(), out);
}

/// Reads a key; `key` is the one before.
pub(super) fn read_key(input: &mut Input<'_>, key: &mut Vec<u8>) -> Option<()> {
    let shared = input.length()?;
    if shared > key.len() {
        return None;
    }
    key.truncate(shared);
    key.extend_from_slice(input.sized()?);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collation::row_key;

    /// Text, document, ordinal, vBucket, value.
    type Given<'a> = (&'a str, &'a str, u16, u16, &'a str);

    fn leaf(rows: &[Given<'_>]) -> Leaf {
        let mut all = Vec::new();
        for (text, docid, ordinal, vb, value) in rows {
            let (mut encoded, mut place, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
            encode_bounded(text, KEY_TEXT_MAX, &mut encoded).unwrap();
            row_key(&encoded, docid, *ordinal, &mut place);
            RowValue { vb: VbId(*vb), key: text, value }.put(&mut bytes);
            all.push((place, bytes));
        }
        all.sort();
        let mut leaf = Leaf::default();
        all.iter().for_each(|(key, value)| leaf.push(key, value));
        leaf
    }

    fn written(leaf: &Leaf) -> Vec<u8> {
        let mut out = Vec::new();
        leaf.put_rows(&mut out).unwrap();
        out
    }

    #[test]
    fn rows_come_back() {
        let large = format!("\"{}\"", "x".repeat(4000));
        let sets: [&[Given<'_>]; 4] = [
            &[("1", "a", 0, 0, "null")],
            &[
                ("1", "a", 0, 3, "1"),
                ("1.0", "a", 1, 3, "1"),
                ("1", "b", 0, 900, "2"),
                ("[1,\"é\"]", "a\0b", 2, 3, "2"),
            ],
            &[("\"some key\"", "document-1", 0, 1, &large), ("\"some key!\"", "document-2", 7, 1, &large)],
            &[("\"A\"", "", 0, 1, ""), ("\"a\"", "", 1, 1, ""), ("\"\"", "é", 65535, 1, "")],
        ];
        for rows in sets {
            let leaf = leaf(rows);
            let bytes = written(&leaf);
            let mut input = Input(&bytes);
            let read = Leaf::read_rows(&mut input).unwrap();
            assert!(input.is_empty());
            assert_eq!(read.rows().collect::<Vec<_>>(), leaf.rows().collect::<Vec<_>>());
            for length in 0..bytes.len() {
                assert!(Leaf::read_rows(&mut Input(&bytes[..length])).is_none(), "cut off at {length}");
            }
        }
    }

    #[test]
    fn small_rows_are_written_without_their_encoded_keys() {
        let texts: Vec<String> = (0..100).map(|at| format!("\"artist-{:05}\"", at * 37)).collect();
        let ids: Vec<String> = (0..100).map(|at| format!("song-{at:05}")).collect();
        let rows: Vec<_> =
            texts.iter().zip(&ids).map(|(key, id)| (key.as_str(), id.as_str(), 0, 5, "1")).collect();
        let bytes = written(&leaf(&rows));
        // Behind the number of rows comes the length of their encoded keys.
        assert_eq!(bytes[..2], [100, 0]);
        assert!(bytes.len() < 100 * 10, "{} bytes", bytes.len());
        let large = "x".repeat(900);
        let bytes = written(&leaf(&[("\"y\"", "c", 3, 1, &large)]));
        assert!(bytes[0] == 1 && bytes[1] > 0);
    }

    #[test]
    fn damaged_leaves_are_refused_or_read() {
        let mut random = fastrand::Rng::with_seed(4);
        let large = "x".repeat(900);
        let whole = [
            written(&leaf(&[("1", "a", 0, 0, "1"), ("[\"x\"]", "b", 0, 0, "1"), ("\"y\"", "c", 3, 1, "")])),
            written(&leaf(&[("\"y\"", "c", 3, 1, &large)])),
        ];
        for at in 0..4000 {
            let mut bytes = whole[at % 2].clone();
            for _ in 0..=random.usize(..3) {
                let place = random.usize(..bytes.len().min(60));
                bytes[place] = random.u8(..);
            }
            let Some(leaf) = Leaf::read_rows(&mut Input(&bytes)) else { continue };
            let mut out = Vec::new();
            let _ = leaf.put_rows(&mut out);
            let _ = leaf.before(b"x");
        }
    }
}
