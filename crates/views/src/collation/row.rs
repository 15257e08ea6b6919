//! Rows as bytes: the encoded key, the document's id, the number of the row among those of its document.
//!
//! Ids compare bytewise. In an id a zero byte is followed by 0xff, and two zero bytes end it. So an id comes before every
//! longer one that begins with it.

use super::encode::value_length;

const ESCAPE: u8 = 0xff;

/// Appends the bytes of a row.
pub fn row_key(encoded_key: &[u8], docid: &str, ordinal: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(encoded_key);
    push_docid(docid, out);
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&ordinal.to_be_bytes());
}

/// The first bytes at or after which a range begins, or before which one ends.
///
/// Without an id they are before every row with this key, or with `after` behind all of them. With an id they are
/// before, or behind, every row of this document with this key.
#[must_use]
pub fn bound(encoded_key: &[u8], docid: Option<&str>, after: bool) -> Vec<u8> {
    let mut bytes = encoded_key.to_vec();
    match docid {
        // No id begins with this byte, since ids are UTF-8.
        None if after => bytes.push(ESCAPE),
        None => {}
        Some(docid) => {
            push_docid(docid, &mut bytes);
            if after {
                bytes.extend_from_slice(&[0, 1]);
            }
        }
    }
    bytes
}

fn push_docid(docid: &str, out: &mut Vec<u8>) {
    for byte in docid.bytes() {
        out.push(byte);
        if byte == 0 {
            out.push(ESCAPE);
        }
    }
}

/// The encoded key of a row's bytes, its document as it is written there, and its ordinal. `None` where the bytes are none.
#[must_use]
pub(crate) fn split_place(bytes: &[u8]) -> Option<(&[u8], &[u8], u16)> {
    let (key, rest) = bytes.split_at_checked(value_length(bytes)?)?;
    let (docid, end) = rest.split_last_chunk::<4>()?;
    let [0, 0, high, low] = end else { return None };
    Some((key, docid, u16::from_be_bytes([*high, *low])))
}

/// A row's bytes, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowKey<'a> {
    /// The encoded key.
    pub key: &'a [u8],
    /// The document.
    pub docid: String,
    /// Which of the document's rows.
    pub ordinal: u16,
}

/// Takes a row's bytes apart, or says `None` where they are none.
#[must_use]
pub fn split_row_key(bytes: &[u8]) -> Option<RowKey<'_>> {
    let (key, mut rest) = bytes.split_at_checked(value_length(bytes)?)?;
    let mut docid = Vec::new();
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        if *byte != 0 {
            docid.push(*byte);
            continue;
        }
        let (mark, after) = rest.split_first()?;
        rest = after;
        match *mark {
            ESCAPE => docid.push(0),
            0 => break,
            _ => return None,
        }
    }
    let ordinal = u16::from_be_bytes(rest.try_into().ok()?);
    Some(RowKey { key, docid: String::from_utf8(docid).ok()?, ordinal })
}
