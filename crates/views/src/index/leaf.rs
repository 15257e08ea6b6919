//! Leaves: rows in the order of their keys, in memory and as they are written.
//!
//! In memory a row of a map function has its place in the order (encoded key, document, ordinal) before its value. Encoded
//! keys are longer than texts and follow from them, so a leaf is written without them, unless they are a small part of it.
//! Texts and ids are written without what they have in common with the row before. A text that is the id in quotes is not written
//! beside it, nor is a vBucket that follows from the id.

use base::{
    VbId,
    hash::vbucket_of,
    limits::{VBUCKETS_MAX, VBUCKETS_MIN},
};

use super::bytes::{Input, put_sized, put_varint};
use crate::collation::{KEY_TEXT_MAX, encode_bounded, split_place};

/// Encoded keys of at most this part of a leaf are written with it, as making them takes time.
const ENCODED_PART: usize = 16;

/// Of a row that is written: what is the same as in the row before, and whether it is the first of its document.
const SAME_TEXT: u8 = 1;
const SAME_VALUE: u8 = 2;
const SAME_VB: u8 = 4;
const FIRST: u8 = 8;
/// Its text is its id in quotes.
const IS_ID: u8 = 16;

/// Where the vBuckets of a leaf are written row by row, in place of the number of vBuckets from which they follow.
const VBS_ARE_WRITTEN: u16 = 0;
/// A key begins with a byte of two lengths. This as one of them says that it is longer, and by how much follows.
const LONG: u8 = 15;

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
    #[cfg(test)]
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

/// Appends a row's value in the tree of a map function.
pub(super) fn put_row_value(vb: VbId, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
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

    /// Takes the first rows off. What is left keeps its memory, for rows to come.
    pub(super) fn take(&mut self, count: usize) -> Self {
        let count = count.min(self.slots.len());
        let end = self.slots.get(count).map_or(self.bytes.len(), |slot| slot.key as usize);
        let bytes = self.bytes.get(..end).unwrap_or_default().to_vec();
        let slots = self.slots.get(..count).unwrap_or_default().to_vec();
        self.bytes.drain(..end);
        self.slots.drain(..count);
        let moved = end as u32;
        for slot in &mut self.slots {
            *slot = Slot { key: slot.key - moved, value: slot.value - moved, end: slot.end - moved };
        }
        Self { bytes, slots }
    }

    /// How many rows come before about so many bytes are full, and how many bytes these rows take: at least one row, and not all.
    pub(super) fn part(&self, bytes_max: usize) -> (usize, usize) {
        let (mut count, mut size) = (0, 0);
        for (key, value) in self.rows().take(self.len().saturating_sub(1)) {
            if size >= bytes_max {
                break;
            }
            count += 1;
            size += row_size(key, value);
        }
        (count, size)
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
        let (mut before, mut before_value): (&[u8], Option<&[u8]>) = (&[], None);
        for (key, value) in self.rows() {
            put_key(before, key, out);
            // Most documents have as many rows as the one before, and keys of which nothing is written.
            if before_value == Some(value) {
                put_varint(0, out);
            } else {
                put_varint(value.len() as u64 + 1, out);
                out.extend_from_slice(value);
            }
            (before, before_value) = (key, Some(value));
        }
    }

    pub(super) fn read(input: &mut Input<'_>) -> Option<Self> {
        let (mut leaf, mut key) = (Self::default(), Vec::new());
        let mut before: Option<&[u8]> = None;
        for _ in 0..input.length()? {
            read_key(input, &mut key)?;
            let value = match input.length()?.checked_sub(1) {
                None => before?,
                Some(length) => input.bytes(length)?,
            };
            leaf.push(&key, value);
            before = Some(value);
        }
        Some(leaf)
    }

    /// Appends rows of a map function. Nothing where one of them is none.
    pub(super) fn put_rows(&self, out: &mut Vec<u8>) -> Option<()> {
        let vbuckets = self.vbuckets()?;
        let (mut rows, mut encoded) = (Vec::with_capacity(self.bytes.len() / 2), Vec::new());
        let mut before: Option<(&[u8], &[u8], RowValue<'_>)> = None;
        for (place, value) in self.rows() {
            let (key, docid, ordinal) = split_place(place)?;
            let row = RowValue::read(value)?;
            let same = |flag: u8, is: bool| if is { flag } else { 0 };
            let known = before.as_ref();
            let flags = same(SAME_TEXT, known.is_some_and(|(.., known)| known.key == row.key))
                | same(SAME_VALUE, known.is_some_and(|(.., known)| known.value == row.value))
                | same(
                    SAME_VB,
                    vbuckets != VBS_ARE_WRITTEN || known.is_some_and(|(.., known)| known.vb == row.vb),
                )
                | same(FIRST, ordinal == 0)
                | same(IS_ID, is_in_quotes(row.key.as_bytes(), docid));
            rows.push(flags);
            if flags & (SAME_TEXT | IS_ID) == 0 {
                put_key(known.map_or(&[], |(.., known)| known.key.as_bytes()), row.key.as_bytes(), &mut rows);
            }
            if flags & SAME_TEXT == 0 {
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
        put_varint(u64::from(vbuckets), out);
        put_sized(&encoded, out);
        out.extend_from_slice(&rows);
        Some(())
    }

    /// The number of vBuckets by which each row's vBucket follows from its id, or [`VBS_ARE_WRITTEN`]. Clients choose vBuckets so, and
    /// nearly all buckets have a number of them that is a power of two.
    fn vbuckets(&self) -> Option<u16> {
        let mut vbuckets = VBUCKETS_MAX;
        // The last row tells most numbers apart, and the others are looked at for the first time then.
        let mut at = self.len();
        while at > 0 && vbuckets >= VBUCKETS_MIN {
            let (place, value) = self.row(at - 1)?;
            let (_, docid, _) = split_place(place)?;
            let follows = Input(value).u16()? == vbucket_of(docid, vbuckets).get();
            (at, vbuckets) = if follows { (at - 1, vbuckets) } else { (self.len(), vbuckets / 2) };
        }
        Some(if vbuckets >= VBUCKETS_MIN { vbuckets } else { VBS_ARE_WRITTEN })
    }

    pub(super) fn read_rows(input: &mut Input<'_>) -> Option<Self> {
        let count = input.length()?;
        let vbuckets = u16::try_from(input.varint()?).ok()?;
        let mut encoded = Input(input.sized()?);
        let is_stored = !encoded.is_empty();
        let (mut leaf, mut vb, mut value): (_, _, &[u8]) = (Self::default(), VbId(0), &[]);
        let (mut text, mut key, mut docid) = (Vec::new(), Vec::new(), Vec::new());
        for at in 0..count {
            let flags = input.byte()?;
            if at == 0 && flags & SAME_TEXT != 0 {
                return None;
            }
            if flags & (SAME_TEXT | IS_ID) == 0 {
                read_key(input, &mut text)?;
            }
            read_key(input, &mut docid)?;
            if flags & (SAME_TEXT | IS_ID) == IS_ID {
                text.clear();
                text.push(b'"');
                text.extend_from_slice(&docid);
                text.push(b'"');
            }
            if flags & SAME_TEXT == 0 && is_stored {
                read_key(&mut encoded, &mut key)?;
            } else if flags & SAME_TEXT == 0 {
                key.clear();
                encode_bounded(std::str::from_utf8(&text).ok()?, KEY_TEXT_MAX, &mut key).ok()?;
            }
            let ordinal = if flags & FIRST == 0 { u16::try_from(input.varint()?).ok()? } else { 0 };
            if vbuckets != VBS_ARE_WRITTEN {
                vb = vbucket_of(&docid, vbuckets);
            } else if flags & SAME_VB == 0 {
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

/// Whether a key's text is an id between quotes.
fn is_in_quotes(text: &[u8], docid: &[u8]) -> bool {
    let inner = text.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    inner == Some(docid)
}

/// Appends a key without what it has in common with the one before.
pub(super) fn put_key(before: &[u8], key: &[u8], out: &mut Vec<u8>) {
    let shared = before.iter().zip(key).take_while(|(left, right)| left == right).count();
    let rest = key.get(shared..).unwrap_or_default();
    let short = |length: usize| u8::try_from(length).unwrap_or(LONG).min(LONG);
    out.push(short(shared) << 4 | short(rest.len()));
    for length in [shared, rest.len()] {
        if let Some(more) = length.checked_sub(usize::from(LONG)) {
            put_varint(more as u64, out);
        }
    }
    out.extend_from_slice(rest);
}

/// Reads a key; `key` is the one before.
pub(super) fn read_key(input: &mut Input<'_>, key: &mut Vec<u8>) -> Option<()> {
    let lengths = input.byte()?;
    let mut length = |short: u8| match short {
        LONG => input.length()?.checked_add(usize::from(LONG)),
        short => Some(usize::from(short)),
    };
    let (shared, rest) = (length(lengths >> 4)?, length(lengths & LONG)?);
    if shared > key.len() {
        return None;
    }
    key.truncate(shared);
    key.extend_from_slice(input.bytes(rest)?);
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
        // Behind the number of rows comes that of vBuckets, which is none here, and the length of their encoded keys.
        assert_eq!(bytes[..3], [100, 0, 0]);
        assert!(bytes.len() < 100 * 10, "{} bytes", bytes.len());
        let large = "x".repeat(900);
        let bytes = written(&leaf(&[("\"y\"", "c", 3, 1, &large)]));
        assert!(bytes[..2] == [1, 0] && bytes[2] > 0);
    }

    #[test]
    fn what_follows_from_an_id_is_not_written_beside_it() {
        for (vbuckets, more) in [(16, 0), (64, 0), (1024, 0), (1000, 2)] {
            let ids: Vec<String> =
                (0..300_u64).map(|at| format!("TR{:016X}", at * at * 0x9e37_79b9)).collect();
            let texts: Vec<String> = ids.iter().map(|id| format!("\"{id}\"")).collect();
            let vb = |id: &str| vbucket_of(id.as_bytes(), vbuckets).get();
            let rows: Vec<_> = texts
                .iter()
                .zip(&ids)
                .map(|(key, id)| (key.as_str(), id.as_str(), 0, vb(id), "null"))
                .collect();
            let leaf = leaf(&rows);
            let bytes = written(&leaf);
            let ids_alone: usize = {
                let (mut out, mut before) = (Vec::new(), &[][..]);
                for (place, _) in leaf.rows() {
                    let (_, docid, _) = split_place(place).unwrap();
                    put_key(before, docid, &mut out);
                    before = docid;
                }
                out.len()
            };
            assert!(bytes.len() <= ids_alone + (1 + more) * 300 + 12, "{} for {ids_alone}", bytes.len());
            let read = Leaf::read_rows(&mut Input(&bytes)).unwrap();
            assert_eq!(read.rows().collect::<Vec<_>>(), leaf.rows().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_key_in_quotes_that_is_not_the_id_is_no_id() {
        // The id has a zero byte or a quote, so its text has an escape; the second row has the text of the first one.
        let rows: [Given<'_>; 4] = [
            ("\"a\"", "a", 0, 1, "1"),
            ("\"a\"", "b", 0, 1, "1"),
            ("\"c\\u0000\"", "c\0", 0, 2, "1"),
            ("\"d\\\"\"", "d\"", 0, 2, "1"),
        ];
        let leaf = leaf(&rows);
        let read = Leaf::read_rows(&mut Input(&written(&leaf))).unwrap();
        assert_eq!(read.rows().collect::<Vec<_>>(), leaf.rows().collect::<Vec<_>>());
    }

    #[test]
    fn keys_of_any_length_come_back() {
        for shared in [0, 1, 14, 15, 16, 300] {
            for rest in [0, 1, 14, 15, 16, 5000] {
                let before = vec![b'a'; shared + 3];
                let key = [vec![b'a'; shared], vec![b'b'; rest]].concat();
                let (mut out, mut read) = (Vec::new(), before.clone());
                put_key(&before, &key, &mut out);
                read_key(&mut Input(&out), &mut read).unwrap();
                assert_eq!(read, key);
                let header = usize::from(shared > 14) + usize::from(rest > 14);
                assert!(out.len() <= rest + 1 + 2 * header, "{} of {shared}, {rest}", out.len());
                for length in 0..out.len() {
                    assert!(read_key(&mut Input(&out[..length]), &mut before.clone()).is_none());
                }
            }
        }
    }

    #[test]
    fn rows_that_are_taken_off_are_the_first_ones() {
        let texts: Vec<String> = (10..40).map(|at| format!("\"{at}\"")).collect();
        let rows: Vec<_> = texts.iter().map(|text| (text.as_str(), "d", 0, 0, "1")).collect();
        for count in [0, 1, 29, 30, 31] {
            let (whole, mut rest) = (leaf(&rows), leaf(&rows));
            let first = rest.take(count);
            let parts: Vec<_> = first.rows().chain(rest.rows()).collect();
            assert_eq!((first.len(), parts), (count.min(30), whole.rows().collect()));
        }
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
