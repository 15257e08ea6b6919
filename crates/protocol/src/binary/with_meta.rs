//! Arguments of SET_, ADD_ and DELETE_WITH_META: a document with the metadata another cluster gave it.
//!
//! Four lengths of extras say what follows the four mandatory fields:
//! - 24: nothing.
//! - 26: the length of a metadata section behind the value.
//! - 28: options.
//! - 30: options, and then that length.
//!
//! The section itself is historic; it is cut off the value and ignored.

use super::{Violation, extras::layout};

/// Once meant more, and by now the same as skipping conflict resolution.
const FORCE: u32 = 0x01;
const ACCEPT_LWW: u32 = 0x02;
const REGENERATE_CAS: u32 = 0x04;
const SKIP_CONFLICT_RESOLUTION: u32 = 0x08;
const IS_EXPIRATION: u32 = 0x10;

layout! {
    /// The fields every with-meta request has.
    WithMetaExtras [24] {
        /// Flags of the document.
        flags: u32 as u32,
        /// Absolute seconds; of a deletion the time it happened.
        expiry: u32 as u32,
        /// Revision at the source.
        rev: u64 as u64,
        /// CAS at the source.
        cas: u64 as u64,
    }
}

/// How to apply the mutation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithMetaOptions {
    /// The sender knows that the bucket resolves conflicts by time.
    pub accept_lww: bool,
    /// Give the document a new CAS.
    pub regenerate_cas: bool,
    /// The incoming version wins.
    pub skip_conflict_resolution: bool,
    /// The deletion is an expiration.
    pub is_expiration: bool,
}

impl WithMetaOptions {
    fn decode(bits: u32) -> Result<Self, Violation> {
        let options = Self {
            accept_lww: bits & ACCEPT_LWW != 0,
            regenerate_cas: bits & REGENERATE_CAS != 0,
            skip_conflict_resolution: bits & (SKIP_CONFLICT_RESOLUTION | FORCE) != 0,
            is_expiration: bits & IS_EXPIRATION != 0,
        };
        if options.regenerate_cas && !options.skip_conflict_resolution {
            return Err(Violation::invalid("A new CAS requires skipping conflict resolution"));
        }
        Ok(options)
    }

    /// The number on the wire.
    #[must_use]
    pub fn bits(self) -> u32 {
        let options = [
            (self.accept_lww, ACCEPT_LWW),
            (self.regenerate_cas, REGENERATE_CAS),
            (self.skip_conflict_resolution, SKIP_CONFLICT_RESOLUTION),
            (self.is_expiration, IS_EXPIRATION),
        ];
        options.iter().filter(|(set, _)| *set).fold(0, |bits, (_, bit)| bits | bit)
    }
}

/// A decoded with-meta request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithMeta<'a> {
    /// Metadata of the document at its source.
    pub meta: WithMetaExtras,
    /// How to apply it.
    pub options: WithMetaOptions,
    /// The value without the historic metadata section.
    pub value: &'a [u8],
}

impl<'a> WithMeta<'a> {
    /// Reads extras and value of a request.
    ///
    /// # Errors
    /// "Invalid arguments" for another length of extras, contradicting options, or a metadata section longer
    /// than the value. Unknown options are ignored, as kv_engine does.
    pub fn decode(extras: &[u8], value: &'a [u8]) -> Result<Self, Violation> {
        let wrong = Violation::invalid("Request extras invalid");
        let (head, tail) = extras.split_at_checked(WithMetaExtras::BYTES).ok_or(wrong)?;
        let meta = WithMetaExtras::decode(head).ok_or(wrong)?;
        let (options, section) = match *tail {
            [] => (0, 0),
            [h, l] => (0, u16::from_be_bytes([h, l])),
            [a, b, c, d] => (u32::from_be_bytes([a, b, c, d]), 0),
            [a, b, c, d, h, l] => (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([h, l])),
            _ => return Err(wrong),
        };
        let options = WithMetaOptions::decode(options)?;
        let length = value.len().checked_sub(usize::from(section));
        let value = length
            .and_then(|length| value.get(..length))
            .ok_or(Violation::invalid("The metadata section is longer than the value"))?;
        Ok(Self { meta, options, value })
    }
}

/// The extras of a request, in the shortest form that can say it.
#[must_use]
pub fn encode_with_meta(meta: &WithMetaExtras, options: WithMetaOptions) -> Vec<u8> {
    let mut extras = meta.encode().to_vec();
    if options != WithMetaOptions::default() {
        extras.extend_from_slice(&options.bits().to_be_bytes());
    }
    extras
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: WithMetaExtras = WithMetaExtras { flags: 1, expiry: 2, rev: 3, cas: 4 };

    #[test]
    fn the_four_lengths() {
        let mut extras = encode_with_meta(&META, WithMetaOptions::default());
        assert_eq!(WithMeta::decode(&extras, b"value").unwrap().value, b"value");
        extras.extend_from_slice(&[0, 2]);
        assert_eq!(WithMeta::decode(&extras, b"value").unwrap().value, b"val");
        let options = WithMetaOptions { accept_lww: true, is_expiration: true, ..Default::default() };
        let mut extras = encode_with_meta(&META, options);
        let decoded = WithMeta::decode(&extras, b"value").unwrap();
        assert_eq!((decoded.meta, decoded.options, decoded.value), (META, options, &b"value"[..]));
        extras.extend_from_slice(&[0, 5]);
        assert_eq!(WithMeta::decode(&extras, b"value").unwrap().value, b"");
        for length in [0, 23, 25, 27, 29, 31] {
            assert!(WithMeta::decode(&[1; 31][..length], b"value").is_err(), "{length}");
        }
    }

    #[test]
    fn what_contradicts_is_refused() {
        let with = |bits: u32| {
            let mut extras = META.encode().to_vec();
            extras.extend_from_slice(&bits.to_be_bytes());
            WithMeta::decode(&extras, b"").is_ok()
        };
        assert!(with(0x0c) && with(0x05) && with(0x1b));
        assert!(!with(0x04), "a new CAS without skipping conflict resolution");
        assert!(with(0x20), "unknown options are ignored");
        let section = [&META.encode()[..], &[0, 1]].concat();
        assert!(WithMeta::decode(&section, b"").is_err(), "section longer than the value");
    }
}
