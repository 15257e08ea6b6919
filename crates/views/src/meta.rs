//! The object `meta` that map functions are given beside a document.
//!
//! The indexer and `settee view try` write it here, so that a function sees the same in both.

use std::io::Write;

use crate::json::{self, write_string};

/// So many bytes are enough beside the id where there are no extended attributes.
const USUAL_BYTES: usize = 200;

/// So many bytes are around an id that is alone.
const ID_BYTES: usize = 9;

/// What is known of a version of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The document's id.
    pub id: &'a str,
    /// How often it has been written.
    pub rev: u64,
    /// Its CAS.
    pub cas: u64,
    /// When it expires: absolute seconds, 0 never.
    pub expiry: u32,
    /// The client's flags.
    pub flags: u32,
    /// Its place in the order of its vBucket.
    pub seqno: u64,
    /// Its vBucket.
    pub vb: u16,
    /// The document is JSON.
    pub is_json: bool,
    /// The version is a tombstone.
    pub deleted: bool,
}

/// The object for functions that look at nothing of it but the id, or at nothing at all.
#[must_use]
pub fn id_alone(id: &str) -> String {
    let mut out = Vec::with_capacity(id.len() + ID_BYTES);
    out.extend_from_slice(b"{\"id\":");
    write_string(id, &mut out);
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default()
}

impl Meta<'_> {
    /// The object's text, with the extended attributes that are JSON, by name and text.
    pub fn text<'x>(&self, attributes: impl Iterator<Item = (&'x [u8], &'x [u8])>) -> String {
        // Every document has one: it is made without a second place.
        let mut out = Vec::with_capacity(self.id.len() + USUAL_BYTES);
        out.extend_from_slice(b"{\"id\":");
        write_string(self.id, &mut out);
        let Meta { rev, cas, expiry, flags, seqno, vb, .. } = self;
        // Nothing fails to be written into memory.
        let _ = write!(
            out,
            ",\"rev\":\"{rev}-{cas:016x}{expiry:08x}{flags:08x}\",\"seq\":\"{seqno}\",\"vb\":\"{vb}\""
        );
        if !self.is_json {
            out.extend_from_slice(b",\"att_reason\":\"non-JSON mode\"");
        }
        let kind = if self.is_json { "json" } else { "base64" };
        let _ = write!(out, ",\"expiration\":{expiry},\"flags\":{flags},\"type\":\"{kind}\"");
        if self.deleted {
            out.extend_from_slice(b",\"deleted\":true");
        }
        out.extend_from_slice(b",\"xattrs\":{");
        let mut is_first = true;
        for (name, value) in attributes {
            let texts = std::str::from_utf8(name).ok().zip(std::str::from_utf8(value).ok());
            // An attribute that is no JSON would cost its document the rest of `meta`.
            let Some((name, value)) = texts.filter(|(_, value)| json::check(value).is_ok()) else { continue };
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            write_string(name, &mut out);
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        }
        out.extend_from_slice(b"}}");
        String::from_utf8(out).unwrap_or_default()
    }
}
