//! What map functions are given of a version of a document.
//!
//! Bodies are inflated and their extended attributes taken off. A document that is JSON is given as its text, any other one
//! as its bytes, which functions see in base64. A tombstone has no rows, unless a design document maps those with extended
//! attributes. Documents of the default collection come here, and no others.

use std::{borrow::Cow, cell::OnceCell, collections::BTreeSet};

use base::{Cas, Datatype, Seqno, VbId};
use engine::{FeedItem, subdoc::xattr::Blob};
use views::{
    analysis::Need,
    canonical,
    meta::{self, Meta},
    native::Given,
    worker::{OwnedBody, OwnedDocument},
};

/// Documents with longer bodies are in no view.
pub const BODY_BYTES_MAX: usize = 20 << 20;

/// Documents whose `meta` is longer, by their extended attributes, are in no view. Such a text and a body might not fit into what a
/// process is sent at once.
pub(crate) const META_BYTES_MAX: usize = 32 << 20;

/// About how many bytes `meta` takes where there are no extended attributes.
const META_BYTES: usize = 200;

/// Appends the inflated form of a raw Snappy block; false when it is none.
pub type Inflate = fn(&[u8], &mut Vec<u8>) -> bool;

/// A version of a document, as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// Its vBucket.
    pub vb: VbId,
    /// Its id, without the collection.
    pub id: &'a [u8],
    /// The value: extended attributes and body.
    pub value: &'a [u8],
    /// What the value is.
    pub datatype: Datatype,
    /// Its place in the vBucket's order.
    pub seqno: Seqno,
    /// Its CAS.
    pub cas: Cas,
    /// How often it has been written.
    pub rev: u64,
    /// The client's.
    pub flags: u32,
    /// Absolute seconds, 0 never.
    pub expiry: u32,
    /// It is a tombstone.
    pub deleted: bool,
}

impl<'a> Version<'a> {
    /// The version that a feed told of.
    #[must_use]
    pub fn of(vb: VbId, item: &'a FeedItem) -> Self {
        Self {
            vb,
            id: item.key().logical(),
            value: item.value(),
            datatype: item.datatype,
            seqno: item.seqno,
            cas: item.cas,
            rev: item.rev,
            flags: item.flags,
            expiry: item.expiry,
            deleted: item.deleted,
        }
    }
}

/// A document on its way to map functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its id.
    pub id: String,
    /// Its place in the vBucket's order.
    pub seqno: Seqno,
    /// What is to be done with it.
    pub content: Content,
    facts: Facts,
    /// The text of `meta`. It is made when a function asks for it.
    meta: OnceCell<String>,
}

/// What `meta` tells beside the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    vb: VbId,
    rev: u64,
    cas: Cas,
    expiry: u32,
    flags: u32,
    is_json: bool,
    deleted: bool,
}

/// What is to be done with a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// It is mapped.
    Body(OwnedBody),
    /// It is gone; of its tombstone there may be extended attributes.
    Gone {
        /// Whether there are.
        attributes: bool,
    },
    /// No function can be given it, for this reason.
    Skipped(String),
}

impl Document {
    /// Reads a version. `looks`: a function looks at bodies. The error is the id as far as it is one, where it is not UTF-8: such a
    /// document is in no index.
    ///
    /// # Errors
    /// See above.
    pub fn read(version: &Version<'_>, inflate: Inflate, looks: bool) -> Result<Self, String> {
        let id = match std::str::from_utf8(version.id) {
            Ok(id) => id.to_owned(),
            Err(_) => return Err(String::from_utf8_lossy(version.id).into_owned()),
        };
        let mut inflated = Vec::new();
        // A feed without values says what they were.
        let is_compressed = version.datatype.contains(Datatype::SNAPPY) && !version.value.is_empty();
        let (whole, datatype) = match is_compressed && inflate(version.value, &mut inflated) {
            true => (inflated.as_slice(), version.datatype),
            // What cannot be inflated is bytes, as it is for other readers of feeds.
            false if is_compressed => (version.value, Datatype::RAW),
            false => (version.value, version.datatype),
        };
        let (attributes, body) = match datatype.contains(Datatype::XATTR).then(|| Blob::split(whole)) {
            None => (Blob::EMPTY, whole),
            Some(Ok(parts)) => parts,
            Some(Err(_)) => (Blob::EMPTY, &[][..]),
        };
        let is_json = datatype.contains(Datatype::JSON);
        let has_attributes = !attributes.is_empty();
        let Version { vb, seqno, rev, cas, expiry, flags, deleted, .. } = *version;
        let facts = Facts { vb, rev, cas, expiry, flags, is_json, deleted };
        let gone = Content::Gone { attributes: has_attributes };
        let mut document = Self { id, seqno, content: gone, facts, meta: OnceCell::new() };
        if has_attributes {
            // They are part of the value, of which no more than the body is kept.
            let meta = document.meta_with(&attributes);
            if meta.len() > META_BYTES_MAX {
                let reason = format!("the extended attributes are too large: {} bytes", meta.len());
                document.content = Content::Skipped(reason);
                return Ok(document);
            }
            document.meta = OnceCell::from(meta);
        }
        if !deleted {
            // What was inflated for this document alone is not copied once more.
            let is_all = !inflated.is_empty() && body.len() == inflated.len();
            let body = if is_all { Cow::Owned(inflated) } else { Cow::Borrowed(body) };
            document.content = content(body, is_json, looks);
        }
        Ok(document)
    }

    /// One of which nothing else is known.
    #[cfg(test)]
    pub(crate) fn of_content(id: String, seqno: Seqno, content: Content) -> Self {
        let (vb, cas) = (VbId(0), Cas(0));
        let facts = Facts { vb, rev: 1, cas, expiry: 0, flags: 0, is_json: true, deleted: false };
        Self { id, seqno, content, facts, meta: OnceCell::new() }
    }

    fn meta_with(&self, attributes: &Blob<'_>) -> String {
        let Facts { vb, rev, cas, expiry, flags, is_json, deleted } = self.facts;
        let (vb, cas, seqno) = (vb.get(), cas.get(), self.seqno.get());
        Meta { id: &self.id, rev, cas, expiry, flags, seqno, vb, is_json, deleted }.text(attributes.iter())
    }

    /// Whether functions are asked about it. `maps_deleted`: they are asked about tombstones too.
    #[must_use]
    pub fn is_mapped(&self, maps_deleted: bool) -> bool {
        match self.content {
            Content::Body(_) => true,
            Content::Gone { attributes } => attributes && maps_deleted,
            Content::Skipped(_) => false,
        }
    }

    /// What functions are given, if they are asked. `maps_deleted`: about tombstones too. `need`: what they look at. Of an object that is
    /// as much of it; what depends on the whole they are asked about once more. `id_alone`: of `meta` they look at no more than the id.
    #[must_use]
    pub fn to_be_mapped(&self, maps_deleted: bool, need: &Need, id_alone: bool) -> Option<OwnedDocument> {
        let body = match (&self.content, need) {
            (Content::Body(_), Need::Nothing) => OwnedBody::Unused,
            (Content::Body(OwnedBody::Json(text)), Need::Members { names, emitted }) => {
                part(text, names, *emitted).unwrap_or_else(|| OwnedBody::Json(text.clone()))
            }
            (Content::Body(body), _) => body.clone(),
            (Content::Gone { attributes: true }, _) if maps_deleted => OwnedBody::Binary(Vec::new()),
            (Content::Gone { .. } | Content::Skipped(_), _) => return None,
        };
        let meta = if id_alone { meta::id_alone(&self.id) } else { self.meta().to_owned() };
        Some(OwnedDocument { meta, body })
    }

    /// The text of its body, where that is JSON.
    #[must_use]
    pub fn json(&self) -> Option<&str> {
        match &self.content {
            Content::Body(OwnedBody::Json(text)) => Some(text),
            _ => None,
        }
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let body = match &self.content {
            Content::Body(OwnedBody::Json(text)) => text.len(),
            Content::Body(OwnedBody::Binary(bytes)) => bytes.len(),
            _ => 0,
        };
        let meta = self.meta.get().map_or(META_BYTES, String::len);
        size_of::<Self>() + self.id.len() + meta + body
    }
}

impl Given for Document {
    fn id(&self) -> &str {
        &self.id
    }

    fn json(&self) -> Option<&str> {
        Self::json(self)
    }

    fn meta(&self) -> &str {
        self.meta.get_or_init(|| self.meta_with(&Blob::EMPTY))
    }
}

/// The members of an object that functions look at, where it is one. `emitted`: they may emit all of it.
fn part(text: &str, names: &BTreeSet<String>, emitted: bool) -> Option<OwnedBody> {
    let part = canonical::projected(text, names)?;
    Some(match emitted {
        true => OwnedBody::Part { text: part, whole_bytes: u32::try_from(text.len()).ok()? },
        false => OwnedBody::Json(part),
    })
}

fn content(body: Cow<'_, [u8]>, is_json: bool, looks: bool) -> Content {
    if body.len() > BODY_BYTES_MAX {
        return Content::Skipped(format!("document body is too large: {} bytes", body.len()));
    }
    if !is_json {
        return Content::Body(if looks { OwnedBody::Binary(body.into_owned()) } else { OwnedBody::Unused });
    }
    let text = match body {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    };
    match text {
        Some(_) if !looks => Content::Body(OwnedBody::Unused),
        Some(text) => Content::Body(OwnedBody::Json(text.into_owned())),
        None => Content::Skipped("the document is no JSON".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use engine::subdoc::xattr::Builder;

    use super::*;

    fn version<'a>(value: &'a [u8], datatype: Datatype) -> Version<'a> {
        Version {
            vb: VbId(7),
            id: b"a\"b",
            value,
            datatype,
            seqno: Seqno(12),
            cas: Cas(0x1234),
            rev: 3,
            flags: 0x0200_0006,
            expiry: 99,
            deleted: false,
        }
    }

    /// What tests take for compression.
    fn unwrap(block: &[u8], out: &mut Vec<u8>) -> bool {
        block.strip_prefix(b"<").is_some_and(|rest| {
            out.extend_from_slice(rest);
            true
        })
    }

    fn read(version: &Version<'_>) -> Document {
        Document::read(version, unwrap, true).unwrap()
    }

    fn attributes(pairs: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        let mut builder = Builder::default();
        pairs.iter().for_each(|(name, value)| builder.set(name.as_bytes(), value.as_bytes()));
        [builder.finish(), body.to_vec()].concat()
    }

    const REV: &str =
        "\"id\":\"a\\\"b\",\"rev\":\"3-00000000000012340000006302000006\",\"seq\":\"12\",\"vb\":\"7\"";

    #[test]
    fn json_is_given_as_text_and_anything_else_as_bytes() {
        let json = read(&version(b"{\"a\":1}", Datatype::JSON));
        assert_eq!(json.content, Content::Body(OwnedBody::Json("{\"a\":1}".to_owned())));
        let rest = "\"expiration\":99,\"flags\":33554438,\"type\":\"json\",\"xattrs\":{}";
        assert_eq!(json.meta(), format!("{{{REV},{rest}}}"));
        let bytes = read(&version(b"\xff\0", Datatype::RAW));
        assert_eq!(bytes.content, Content::Body(OwnedBody::Binary(b"\xff\0".to_vec())));
        let rest = "\"att_reason\":\"non-JSON mode\",\"expiration\":99,\"flags\":33554438,\"type\":\"base64\",\"xattrs\":{}";
        assert_eq!(bytes.meta(), format!("{{{REV},{rest}}}"));
        assert_eq!(views::json::check(bytes.meta()), Ok(()));
    }

    #[test]
    fn compression_and_attributes_are_taken_off() {
        let value = attributes(&[("_s", "{\"x\":1}"), ("u", "2"), ("bad", "{")], b"[1]");
        let compressed = [b"<".to_vec(), value.clone()].concat();
        let datatype = Datatype::JSON.with(Datatype::XATTR);
        for (value, datatype) in [(value, datatype), (compressed, datatype.with(Datatype::SNAPPY))] {
            let document = read(&version(&value, datatype));
            assert_eq!(document.content, Content::Body(OwnedBody::Json("[1]".to_owned())));
            assert!(
                document.meta().ends_with(",\"xattrs\":{\"_s\":{\"x\":1},\"u\":2}}"),
                "{}",
                document.meta()
            );
        }
        let broken = read(&version(b"no block", Datatype::JSON.with(Datatype::SNAPPY)));
        assert_eq!(broken.content, Content::Body(OwnedBody::Binary(b"no block".to_vec())));
        let broken = read(&version(b"\0\0\0\xffx", datatype));
        assert_eq!(broken.content, Content::Body(OwnedBody::Json(String::new())), "no function parses it");
    }

    #[test]
    fn attributes_are_counted_and_those_that_are_too_large_are_of_that_document_alone() {
        let of = |bytes: usize, deleted| {
            let value = attributes(&[("_s", &format!("\"{}\"", "x".repeat(bytes)))], b"{}");
            read(&Version { deleted, ..version(&value, Datatype::JSON.with(Datatype::XATTR)) })
        };
        for deleted in [false, true] {
            let counted = of(1 << 20, deleted);
            assert!(counted.is_mapped(true) && counted.bytes() > 1 << 20, "{} bytes", counted.bytes());
        }
        let plain = read(&version(b"{}", Datatype::JSON));
        assert!(plain.bytes() < 1000, "{} bytes", plain.bytes());
        for deleted in [false, true] {
            let skipped = of(META_BYTES_MAX, deleted);
            assert!(matches!(&skipped.content, Content::Skipped(_)) && !skipped.is_mapped(true));
            assert!(skipped.bytes() < 1000, "{} bytes", skipped.bytes());
        }
    }

    #[test]
    fn tombstones_are_mapped_where_a_design_document_says_so() {
        let plain = read(&Version { deleted: true, ..version(b"", Datatype::RAW) });
        assert_eq!(plain.content, Content::Gone { attributes: false });
        assert_eq!(plain.to_be_mapped(true, &Need::Whole, false), None);
        let value = attributes(&[("_s", "1")], b"");
        let kept = read(&Version { deleted: true, ..version(&value, Datatype::XATTR) });
        assert_eq!((kept.to_be_mapped(false, &Need::Whole, false), kept.is_mapped(false)), (None, false));
        assert!(kept.is_mapped(true) && !plain.is_mapped(true));
        let mapped = kept.to_be_mapped(true, &Need::Whole, false).unwrap();
        assert_eq!(mapped.body, OwnedBody::Binary(Vec::new()));
        assert!(mapped.meta.ends_with("\"deleted\":true,\"xattrs\":{\"_s\":1}}"), "{}", mapped.meta);
    }

    #[test]
    fn functions_that_look_at_ids_are_given_what_others_see_of_these() {
        let names = ["id".to_owned()].into();
        for id in ["", "a", "a\"b\\\n", "é\u{1}😀"] {
            let document = read(&Version { id: id.as_bytes(), ..version(b"{}", Datatype::JSON) });
            let meta = |id_alone| document.to_be_mapped(false, &Need::Whole, id_alone).unwrap().meta;
            assert_eq!(Some(meta(true)), canonical::projected(&meta(false), &names));
        }
    }

    #[test]
    fn functions_are_given_as_much_of_a_body_as_they_look_at() {
        let text = "{\"a\": 1, \"b\": [2], \"a\": 3}";
        let document = read(&version(text.as_bytes(), Datatype::JSON));
        let given = |need: &Need| document.to_be_mapped(false, need, false).unwrap().body;
        let members = |emitted| Need::Members { names: ["a".to_owned()].into(), emitted };
        assert_eq!(given(&Need::Nothing), OwnedBody::Unused);
        assert_eq!(given(&Need::Whole), OwnedBody::Json(text.to_owned()));
        let part = "{\"a\":1,\"a\":3}".to_owned();
        assert_eq!(given(&members(false)), OwnedBody::Json(part.clone()));
        assert_eq!(given(&members(true)), OwnedBody::Part { text: part, whole_bytes: 26 });
        let list = read(&version(b"[1]", Datatype::JSON)).to_be_mapped(false, &members(true), false);
        assert_eq!(list.unwrap().body, OwnedBody::Json("[1]".to_owned()), "it has no members");
        for (value, datatype) in [(text.as_bytes(), Datatype::JSON), (b"\xff", Datatype::RAW)] {
            let unused = Document::read(&version(value, datatype), unwrap, false).unwrap();
            assert_eq!(unused.content, Content::Body(OwnedBody::Unused), "nobody copies it");
            assert_eq!(
                unused.to_be_mapped(false, &Need::Nothing, false).unwrap().meta,
                read(&version(value, datatype)).meta()
            );
        }
        let keys_only = version(b"", Datatype::JSON.with(Datatype::SNAPPY));
        let told = Document::read(&keys_only, unwrap, false).unwrap();
        assert_eq!(told.content, Content::Body(OwnedBody::Unused));
        assert!(told.meta().contains("\"type\":\"json\""), "{}", told.meta());
        let wrong = Document::read(&version(b"\"\xff\"", Datatype::JSON), unwrap, false).unwrap();
        assert_eq!(wrong.content, Content::Skipped("the document is no JSON".to_owned()));
        let bytes = read(&version(b"\xff", Datatype::RAW)).to_be_mapped(false, &members(true), false);
        assert_eq!(bytes.unwrap().body, OwnedBody::Binary(b"\xff".to_vec()));
    }

    #[test]
    fn a_document_that_cannot_be_mapped_is_told_with_the_reason() {
        let large = vec![b' '; BODY_BYTES_MAX + 1];
        let skipped = read(&version(&large, Datatype::JSON));
        let reason = Content::Skipped("document body is too large: 20971521 bytes".to_owned());
        assert_eq!(skipped.content, reason);
        assert_eq!(skipped.to_be_mapped(true, &Need::Whole, false), None);
        let wrong = read(&version(b"\"\xff\"", Datatype::JSON));
        assert_eq!(wrong.content, Content::Skipped("the document is no JSON".to_owned()));
        let unreadable = Version { id: b"a\xff", ..version(b"{}", Datatype::JSON) };
        assert_eq!(Document::read(&unreadable, unwrap, true), Err("a\u{fffd}".to_owned()));
    }
}
