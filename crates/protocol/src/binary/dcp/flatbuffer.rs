//! Appends one `FlatBuffers` table of a few fields, which is all that system events need of that format.
//!
//! Layout, all little-endian: offset of the table; the vtable (its size, the table's size, the offset of each field in the
//! table). Then the table (distance back to the vtable, then the fields, widest first); texts (length, bytes, zero). Everything
//! is aligned to its own size from the beginning of the buffer, which readers check.

/// One field; its place in the list is its number in the schema.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field<'a> {
    Bool(bool),
    U32(u32),
    U64(u64),
    Text(&'a [u8]),
}

impl Field<'_> {
    /// Bytes in the table; texts are there as offsets.
    const fn width(self) -> usize {
        match self {
            Self::Bool(_) => 1,
            Self::U32(_) | Self::Text(_) => 4,
            Self::U64(_) => 8,
        }
    }
}

const ROOT_BYTES: usize = 4;
const DISTANCE_BYTES: usize = 4;

/// Appends the table with these fields.
pub(super) fn append(fields: &[Field<'_>], out: &mut Vec<u8>) {
    let vtable_bytes = 4 + 2 * fields.len();
    // The first 64-bit field follows the distance: that is what has to be aligned.
    let table_at = (ROOT_BYTES + vtable_bytes + DISTANCE_BYTES).next_multiple_of(8) - DISTANCE_BYTES;
    let vtable_at = table_at - vtable_bytes;
    let mut offsets = vec![0_usize; fields.len()];
    let mut table_bytes = DISTANCE_BYTES;
    for width in [8, 4, 1] {
        for (field, offset) in fields.iter().zip(&mut offsets).filter(|(field, _)| field.width() == width) {
            *offset = table_bytes;
            table_bytes += field.width();
        }
    }
    let mut bytes = vec![0; (table_at + table_bytes).next_multiple_of(4)];
    put(&mut bytes, 0, &(table_at as u32).to_le_bytes());
    put(&mut bytes, vtable_at, &(vtable_bytes as u16).to_le_bytes());
    put(&mut bytes, vtable_at + 2, &(table_bytes as u16).to_le_bytes());
    put(&mut bytes, table_at, &(vtable_bytes as u32).to_le_bytes());
    for (index, (field, offset)) in fields.iter().zip(&offsets).enumerate() {
        put(&mut bytes, vtable_at + 4 + 2 * index, &(*offset as u16).to_le_bytes());
        let at = table_at + offset;
        match field {
            Field::Bool(value) => put(&mut bytes, at, &[u8::from(*value)]),
            Field::U32(value) => put(&mut bytes, at, &value.to_le_bytes()),
            Field::U64(value) => put(&mut bytes, at, &value.to_le_bytes()),
            Field::Text(text) => {
                let distance = (bytes.len() - at) as u32;
                put(&mut bytes, at, &distance.to_le_bytes());
                bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
                bytes.extend_from_slice(text);
                let end = (bytes.len() + 1).next_multiple_of(4);
                bytes.resize(end, 0);
            }
        }
    }
    out.extend_from_slice(&bytes);
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8], at: usize, width: usize) -> usize {
        bytes[at..at + width].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    }

    /// Where field `index` is, found the way a reader finds it.
    fn place(bytes: &[u8], index: usize) -> usize {
        let table = number(bytes, 0, 4);
        let vtable = table - number(bytes, table, 4);
        assert!(index < (number(bytes, vtable, 2) - 4) / 2);
        table + number(bytes, vtable + 4 + 2 * index, 2)
    }

    #[test]
    fn a_reader_finds_every_field_aligned() {
        let fields = [
            Field::U64(1 << 40),
            Field::U32(9),
            Field::U32(8),
            Field::Bool(true),
            Field::U32(60),
            Field::Text(b"name"),
        ];
        for count in 1..=fields.len() {
            let mut bytes = Vec::new();
            append(&fields[..count], &mut bytes);
            assert_eq!((place(&bytes, 0) % 8, number(&bytes, place(&bytes, 0), 8)), (0, 1 << 40));
            if count == fields.len() {
                for (index, expected) in [(1, 9), (2, 8), (4, 60)] {
                    assert_eq!(
                        (place(&bytes, index) % 4, number(&bytes, place(&bytes, index), 4)),
                        (0, expected)
                    );
                }
                assert_eq!(bytes[place(&bytes, 3)], 1);
                let text = place(&bytes, 5) + number(&bytes, place(&bytes, 5), 4);
                assert_eq!((text % 4, number(&bytes, text, 4)), (0, 4));
                assert_eq!(&bytes[text + 4..text + 9], b"name\0");
            }
        }
    }
}
