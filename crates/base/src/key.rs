//! Document keys as the engine and the disk know them: the collection id as unsigned LEB128, then the logical
//! key. Keys from connections without collections get the prefix of the default collection (one zero byte).

use crate::{hash, ids::CollectionId, limits};

/// Most bytes a collection id takes in front of a key.
pub const COLLECTION_PREFIX_MAX: usize = 5;

/// Why bytes are not a document key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The collection id is truncated, longer than five bytes, beyond 32 bits or not in its shortest form.
    #[error("the collection id is not a canonical unsigned LEB128 number")]
    BadCollectionId,
    /// The collection belongs to the server.
    #[error("collection ids 1 to 7 are reserved")]
    Reserved,
    /// The logical key is empty.
    #[error("the key is empty")]
    Empty,
    /// The logical key is longer than the collection allows.
    #[error("the key is too long")]
    TooLong,
}

/// Decodes a canonical unsigned LEB128 `u32` and returns it with what follows.
///
/// # Errors
/// [`KeyError::BadCollectionId`] when the bytes are not the shortest encoding of a 32-bit number.
pub fn decode_leb128(bytes: &[u8]) -> Result<(u32, &[u8]), KeyError> {
    let mut value: u64 = 0;
    for (index, &byte) in bytes.iter().enumerate().take(COLLECTION_PREFIX_MAX) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            // A last byte of zero after the first adds nothing: not the shortest form.
            if byte == 0 && index > 0 {
                return Err(KeyError::BadCollectionId);
            }
            let value = u32::try_from(value).map_err(|_| KeyError::BadCollectionId)?;
            return Ok((value, &bytes[index + 1..]));
        }
    }
    Err(KeyError::BadCollectionId)
}

/// Appends `value` as unsigned LEB128.
pub fn encode_leb128(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A validated encoded key, borrowed. Its bytes are what the hash table and the log store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DocKey<'a>(&'a [u8]);

impl<'a> DocKey<'a> {
    /// Checks bytes that already carry a collection prefix.
    ///
    /// # Errors
    /// See [`KeyError`]; the limits are those of Couchbase: 1..=250 logical bytes in the default collection,
    /// 1..=246 in any other.
    pub fn from_encoded(encoded: &'a [u8]) -> Result<Self, KeyError> {
        let (collection, logical) = decode_leb128(encoded)?;
        if CollectionId(collection).is_reserved() {
            return Err(KeyError::Reserved);
        }
        check_length(collection, logical)?;
        Ok(Self(encoded))
    }

    /// Trusts bytes that this process encoded or validated before (hash table, log records).
    #[must_use]
    pub const fn trusted(encoded: &'a [u8]) -> Self {
        Self(encoded)
    }

    /// Prefix and logical key together.
    #[inline]
    #[must_use]
    pub const fn encoded(self) -> &'a [u8] {
        self.0
    }

    /// The collection the key lives in.
    #[must_use]
    pub fn collection(self) -> CollectionId {
        CollectionId(decode_leb128(self.0).map_or(0, |(id, _)| id))
    }

    /// The key as the application wrote it.
    #[must_use]
    pub fn logical(self) -> &'a [u8] {
        decode_leb128(self.0).map_or(self.0, |(_, rest)| rest)
    }
}

/// A key with its hash, computed once per request and used for prefetch, lookup and the segment index.
#[derive(Clone, Copy, Debug)]
pub struct HashedKey<'a> {
    /// The encoded key.
    pub key: DocKey<'a>,
    /// [`hash::key_hash`] of the encoded key.
    pub hash: u64,
}

impl<'a> HashedKey<'a> {
    /// Hashes `key`.
    #[inline]
    #[must_use]
    pub fn new(key: DocKey<'a>) -> Self {
        Self { key, hash: hash::key_hash(key.encoded()) }
    }
}

/// Encodes `logical` in `collection` into `out`, which is cleared first, and borrows the result.
///
/// # Errors
/// See [`KeyError`].
pub fn encode_key<'a>(
    collection: CollectionId,
    logical: &[u8],
    out: &'a mut Vec<u8>,
) -> Result<DocKey<'a>, KeyError> {
    check_length(collection.get(), logical)?;
    out.clear();
    encode_leb128(collection.get(), out);
    out.extend_from_slice(logical);
    Ok(DocKey(out))
}

fn check_length(collection: u32, logical: &[u8]) -> Result<(), KeyError> {
    let longest = if collection == 0 { limits::KEY_BYTES_MAX } else { limits::COLLECTION_KEY_BYTES_MAX };
    match logical.len() {
        0 => Err(KeyError::Empty),
        length if length > longest => Err(KeyError::TooLong),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leb128_round_trips_and_refuses_long_forms() {
        for value in [0, 1, 8, 127, 128, 300, 0x0fff_ffff, u32::MAX] {
            let mut bytes = Vec::new();
            encode_leb128(value, &mut bytes);
            bytes.push(b'k');
            assert_eq!(decode_leb128(&bytes), Ok((value, &b"k"[..])));
        }
        assert_eq!(decode_leb128(&[0x81, 0x00, b'k']), Err(KeyError::BadCollectionId));
        assert_eq!(decode_leb128(&[0xff, 0xff, 0xff, 0xff, 0x7f]), Err(KeyError::BadCollectionId));
        assert_eq!(decode_leb128(&[0x80]), Err(KeyError::BadCollectionId));
        assert_eq!(decode_leb128(&[]), Err(KeyError::BadCollectionId));
    }

    #[test]
    fn keys_are_limited_per_collection() {
        let mut buffer = Vec::new();
        assert!(encode_key(CollectionId(0), &[b'k'; 250], &mut buffer).is_ok());
        assert_eq!(encode_key(CollectionId(0), &[b'k'; 251], &mut buffer), Err(KeyError::TooLong));
        assert!(encode_key(CollectionId(8), &[b'k'; 246], &mut buffer).is_ok());
        assert_eq!(encode_key(CollectionId(8), &[b'k'; 247], &mut buffer), Err(KeyError::TooLong));
        assert_eq!(DocKey::from_encoded(&[8]), Err(KeyError::Empty));
        for id in 1..=7 {
            assert_eq!(DocKey::from_encoded(&[id, b'k']), Err(KeyError::Reserved));
        }
        let key = DocKey::from_encoded(&[8, b'a', b'b']).unwrap();
        assert_eq!((key.collection(), key.logical()), (CollectionId(8), &b"ab"[..]));
    }
}
