//! What of a document's value a consumer gets: with or without body, extended attributes and compression.
//!
//! Most values go out as they are stored. Those that do not are made in a scratch buffer, following kv_engine
//! (`Item::removeBodyAndOrXattrs`, `ActiveStream::makeResponseFromItem`).

use base::Datatype;
use engine::subdoc::xattr::{Blob, Builder};
use protocol::{binary::dcp::OpenFlags, snappy::inflate};

use super::controls::{Controls, Negotiated};

/// Which parts of values a connection wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueMode {
    body: Body,
    xattrs: bool,
    /// Deletions keep the attributes of users.
    deleted_user_xattrs: bool,
    /// Compressed values may be sent.
    snappy: bool,
    /// Values are compressed that are not.
    compress: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Sent,
    Left,
    /// Left out, but for the datatype that the value had.
    LeftWithDatatype,
}

/// How a value goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// As it is stored.
    AsStored,
    /// As it stands in the scratch buffer.
    Made(Datatype),
}

impl ValueMode {
    /// What OPEN, HELLO and CONTROL made of it.
    #[must_use]
    pub const fn new(negotiated: &Negotiated, controls: &Controls) -> Self {
        let flags = negotiated.flags;
        Self {
            body: if flags.has(OpenFlags::NO_VALUE) {
                Body::Left
            } else if flags.has(OpenFlags::NO_VALUE_WITH_DATATYPE) {
                Body::LeftWithDatatype
            } else {
                Body::Sent
            },
            xattrs: flags.has(OpenFlags::INCLUDE_XATTRS),
            deleted_user_xattrs: flags.has(OpenFlags::INCLUDE_DELETED_USER_XATTRS),
            snappy: negotiated.snappy,
            compress: negotiated.snappy && controls.force_compression,
        }
    }

    /// Whether values need not be read at all.
    #[must_use]
    pub fn needs_no_values(&self) -> bool {
        self.body != Body::Sent && !self.xattrs
    }

    /// Decides how a value goes out and makes it, in `out`, if it is not as stored.
    pub fn prepare(&self, value: &[u8], stored: Datatype, deleted: bool, out: &mut Vec<u8>) -> Prepared {
        let has_xattrs = stored.contains(Datatype::XATTR);
        let is_compressed = stored.contains(Datatype::SNAPPY);
        let as_stored = self.body == Body::Sent
            && (!has_xattrs || (self.xattrs && (!deleted || self.deleted_user_xattrs)))
            && (!is_compressed || self.snappy)
            && (is_compressed || !self.compress || value.is_empty());
        if as_stored {
            return Prepared::AsStored;
        }
        out.clear();
        let mut datatype = self.select(value, stored, deleted, out);
        if out.is_empty() {
            datatype = Datatype::RAW;
        } else if self.compress && !datatype.contains(Datatype::SNAPPY) && deflate(out) {
            datatype = datatype.with(Datatype::SNAPPY);
        }
        if self.body == Body::LeftWithDatatype {
            datatype = self.original(stored, datatype, out.is_empty());
        }
        Prepared::Made(datatype)
    }

    /// Appends the wanted parts, inflated unless nothing had to be looked at; returns what they are.
    fn select(&self, value: &[u8], stored: Datatype, deleted: bool, out: &mut Vec<u8>) -> Datatype {
        let has_xattrs = stored.contains(Datatype::XATTR);
        let is_compressed = stored.contains(Datatype::SNAPPY);
        if !has_xattrs && self.body != Body::Sent {
            return Datatype::RAW;
        }
        if !has_xattrs && (!is_compressed || self.snappy) {
            out.extend_from_slice(value);
            return stored;
        }
        let mut inflated = Vec::new();
        let whole = if is_compressed {
            if !inflate(value, &mut inflated) {
                // Stored values were checked when they came: what is broken now is sent as what it is, bytes.
                out.extend_from_slice(value);
                return Datatype::RAW;
            }
            inflated.as_slice()
        } else {
            value
        };
        let mut datatype = stored.without(Datatype::SNAPPY).without(Datatype::XATTR);
        let (xattrs, body) = match has_xattrs.then(|| Blob::split(whole)) {
            None => (Blob::EMPTY, whole),
            Some(Ok(parts)) => parts,
            Some(Err(_)) => (Blob::EMPTY, &[][..]),
        };
        if self.xattrs && !xattrs.is_empty() {
            let mut kept = Builder::from_blob(&xattrs);
            if deleted && !self.deleted_user_xattrs {
                kept.keep_system();
            }
            let kept = kept.finish();
            if !kept.is_empty() {
                out.extend_from_slice(&kept);
                datatype = datatype.with(Datatype::XATTR);
            }
        }
        if self.body == Body::Sent {
            out.extend_from_slice(body);
        }
        if self.body != Body::Sent || body.is_empty() {
            datatype = datatype.without(Datatype::JSON);
        }
        datatype
    }

    /// The datatype of the value as stored, where that does not make nonsense of what is sent.
    fn original(&self, stored: Datatype, sent: Datatype, is_empty: bool) -> Datatype {
        let may_say_snappy = self.snappy && (is_empty || sent.contains(Datatype::SNAPPY));
        let says_snappy = sent.contains(Datatype::SNAPPY);
        let original = if may_say_snappy { stored } else { stored.without(Datatype::SNAPPY) };
        if says_snappy { original.with(Datatype::SNAPPY) } else { original }
    }
}

/// Compresses in place; false, with `value` as it was, when that gains nothing.
fn deflate(value: &mut Vec<u8>) -> bool {
    match snap::raw::Encoder::new().compress_vec(value) {
        Ok(block) if block.len() < value.len() => {
            *value = block;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(flags: OpenFlags, snappy: bool, compress: bool) -> ValueMode {
        let negotiated =
            Negotiated { flags: flags.with(OpenFlags::PRODUCER), collections: true, snappy, replica: None };
        ValueMode::new(&negotiated, &Controls { force_compression: compress, ..Controls::default() })
    }

    const NOTHING: OpenFlags = OpenFlags(0);
    const JSON_XATTR: Datatype = Datatype::JSON.with(Datatype::XATTR);

    fn blob(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = Builder::default();
        for (key, value) in pairs {
            builder.set(key.as_bytes(), value.as_bytes());
        }
        builder.finish()
    }

    fn document() -> Vec<u8> {
        [blob(&[("_s", "1"), ("u", "2")]), b"{\"a\":1}".to_vec()].concat()
    }

    fn made(mode: ValueMode, value: &[u8], datatype: Datatype, deleted: bool) -> (Vec<u8>, Datatype) {
        let mut out = b"old".to_vec();
        match mode.prepare(value, datatype, deleted, &mut out) {
            Prepared::AsStored => (value.to_vec(), datatype),
            Prepared::Made(datatype) => (out, datatype),
        }
    }

    #[test]
    fn what_nobody_wants_changed_is_not_touched() {
        let mut out = b"old".to_vec();
        let plain = mode(NOTHING, true, false);
        assert_eq!(plain.prepare(b"{}", Datatype::JSON, false, &mut out), Prepared::AsStored);
        assert_eq!(plain.prepare(b"xx", Datatype::SNAPPY, false, &mut out), Prepared::AsStored);
        let whole = mode(OpenFlags::INCLUDE_XATTRS, true, false);
        assert_eq!(whole.prepare(&document(), JSON_XATTR, false, &mut out), Prepared::AsStored);
        assert_eq!(out, b"old");
    }

    #[test]
    fn attributes_come_only_if_asked_for() {
        let plain = mode(NOTHING, false, false);
        assert_eq!(made(plain, &document(), JSON_XATTR, false), (b"{\"a\":1}".to_vec(), Datatype::JSON));
        assert_eq!(made(plain, &blob(&[("_s", "1")]), JSON_XATTR, false), (Vec::new(), Datatype::RAW));
        assert_eq!(made(plain, b"\0\0\0\xffbroken", JSON_XATTR, false), (Vec::new(), Datatype::RAW));
    }

    #[test]
    fn a_deletion_keeps_the_systems_attributes_and_users_only_if_asked_for() {
        let tombstone = blob(&[("_s", "1"), ("u", "2")]);
        let some = mode(OpenFlags::INCLUDE_XATTRS, false, false);
        assert_eq!(made(some, &tombstone, Datatype::XATTR, true), (blob(&[("_s", "1")]), Datatype::XATTR));
        assert_eq!(made(some, &blob(&[("u", "2")]), Datatype::XATTR, true), (Vec::new(), Datatype::RAW));
        let all = OpenFlags::INCLUDE_XATTRS.with(OpenFlags::INCLUDE_DELETED_USER_XATTRS);
        assert_eq!(made(mode(all, false, false), &tombstone, Datatype::XATTR, true).0, tombstone);
        assert_eq!(made(mode(NOTHING, false, false), &tombstone, Datatype::XATTR, true).0, b"");
    }

    #[test]
    fn bodies_can_be_left_out() {
        let none = mode(OpenFlags::NO_VALUE, false, false);
        assert!(none.needs_no_values());
        assert_eq!(made(none, b"{}", Datatype::JSON, false), (Vec::new(), Datatype::RAW));
        assert_eq!(made(none, &document(), JSON_XATTR, false), (Vec::new(), Datatype::RAW));
        let xattrs = mode(OpenFlags::NO_VALUE.with(OpenFlags::INCLUDE_XATTRS), false, false);
        assert!(!xattrs.needs_no_values());
        let attributes = blob(&[("_s", "1"), ("u", "2")]);
        assert_eq!(made(xattrs, &document(), JSON_XATTR, false), (attributes.clone(), Datatype::XATTR));
        let typed = mode(OpenFlags::NO_VALUE_WITH_DATATYPE, false, false);
        assert_eq!(made(typed, b"{}", Datatype::JSON, false), (Vec::new(), Datatype::JSON));
        let both = OpenFlags::NO_VALUE_WITH_DATATYPE.with(OpenFlags::INCLUDE_XATTRS);
        assert_eq!(made(mode(both, false, false), &document(), JSON_XATTR, false), (attributes, JSON_XATTR));
    }

    #[test]
    fn compression_follows_what_was_negotiated() {
        let text = vec![b'7'; 1000];
        let block = snap::raw::Encoder::new().compress_vec(&text).unwrap();
        let compressed = Datatype::JSON.with(Datatype::SNAPPY);
        assert_eq!(
            made(mode(NOTHING, false, false), &block, compressed, false),
            (text.clone(), Datatype::JSON)
        );
        assert_eq!(
            made(mode(NOTHING, true, true), &text, Datatype::JSON, false),
            (block.clone(), compressed)
        );
        assert_eq!(
            made(mode(NOTHING, true, true), b"1", Datatype::JSON, false),
            (b"1".to_vec(), Datatype::JSON)
        );
        assert_eq!(made(mode(NOTHING, true, true), b"", Datatype::RAW, false), (Vec::new(), Datatype::RAW));
        assert_eq!(
            made(mode(NOTHING, false, false), b"\xff", compressed, false),
            (b"\xff".to_vec(), Datatype::RAW)
        );
        // A datatype that says "compressed" of nothing misleads nobody; of something that is not, it would.
        let typed = mode(OpenFlags::NO_VALUE_WITH_DATATYPE, true, false);
        assert_eq!(made(typed, &block, compressed, false), (Vec::new(), compressed));
        let whole = [blob(&[("_s", "1")]), text].concat();
        let block = snap::raw::Encoder::new().compress_vec(&whole).unwrap();
        let both = OpenFlags::NO_VALUE_WITH_DATATYPE.with(OpenFlags::INCLUDE_XATTRS);
        let stored = JSON_XATTR.with(Datatype::SNAPPY);
        assert_eq!(made(mode(both, true, false), &block, stored, false), (blob(&[("_s", "1")]), JSON_XATTR));
    }
}
