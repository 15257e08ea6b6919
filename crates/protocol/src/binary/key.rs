//! From the key of a packet to the key of a document.
//!
//! Connections that negotiated collections send the collection id in front of the key, which is the stored
//! form already. All others mean the default collection, whose prefix is put in front in a scratch buffer.

use super::Violation;
use base::{CollectionId, DocKey, key, key::KeyError};

/// Ids that exist in no manifest of a user: 1 is the system's, 2..=7 are kept back.
const RESERVED: std::ops::RangeInclusive<u32> = 1..=7;

/// The document key that `key` of a packet stands for. `scratch` is only written where no collections were
/// negotiated.
///
/// # Errors
/// "Invalid arguments" for a key that is empty, too long, or whose collection id is malformed or reserved.
#[inline]
pub fn document_key<'a>(
    key: &'a [u8],
    collections: bool,
    scratch: &'a mut Vec<u8>,
) -> Result<DocKey<'a>, Violation> {
    if !collections {
        return key::encode_key(CollectionId::DEFAULT, key, scratch).map_err(explain);
    }
    encoded_document_key(key)
}

/// As [`document_key`], of a connection that negotiated collections.
///
/// # Errors
/// As [`document_key`].
#[inline]
pub fn encoded_document_key(key: &[u8]) -> Result<DocKey<'_>, Violation> {
    let document = DocKey::from_encoded(key).map_err(explain)?;
    if key.first() != Some(&0) && RESERVED.contains(&document.collection().get()) {
        return Err(Violation::invalid("The collection id is reserved"));
    }
    Ok(document)
}

fn explain(error: KeyError) -> Violation {
    Violation::invalid(match error {
        KeyError::BadCollectionId => "Key contains a malformed collection id",
        KeyError::Reserved => "Invalid collection-id",
        KeyError::Empty => "No logical key found",
        KeyError::TooLong => "Logical key exceeds the limit",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_keys_get_the_prefix_of_the_default_collection() {
        let mut scratch = Vec::new();
        assert_eq!(document_key(b"k", false, &mut scratch).unwrap().encoded(), b"\0k");
        assert!(document_key(&[b'k'; 251], false, &mut scratch).is_err());
        assert!(document_key(b"", false, &mut scratch).is_err());
    }

    #[test]
    fn prefixed_keys_are_taken_as_they_are_unless_malformed() {
        let mut scratch = Vec::new();
        assert_eq!(document_key(b"\x08k", true, &mut scratch).unwrap().collection(), CollectionId(8));
        assert_eq!(document_key(b"\0k", true, &mut scratch).unwrap().logical(), b"k");
        for refused in [&b"\x01k"[..], b"\x07k", b"\x80\x00k", b"\x81\x00k", b"\x80", b"\0", b"\x08", b""] {
            assert!(document_key(refused, true, &mut scratch).is_err(), "{refused:?}");
        }
        assert!(scratch.is_empty());
    }
}
