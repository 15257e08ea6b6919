//! The next version of a document, worked out from the one before and the changes asked for. Touches neither table nor
//! clock.

use std::borrow::Cow;

use base::{Datatype, Status};

use super::{
    binary,
    lookup::xattrs_of,
    macros::{Blanks, Placeholders},
    request::{Change, MutationSpec, SubdocMutation, ValueForm},
    version::{Facts, Parts},
};
use crate::{
    api::options::ValueCodec,
    json::subdoc::{self, Edit, Path, xattr::Builder},
};

/// What the next version consists of.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) xattrs: Vec<u8>,
    pub(super) body: Vec<u8>,
    pub(super) datatype: Datatype,
    /// It is to be a tombstone, whatever it was.
    pub(super) deletes: bool,
    /// What counters count to, by index of their spec.
    pub(super) counted: Vec<(u8, i64)>,
    /// To be filled in, in `xattrs`, when it is published.
    pub(super) blanks: Blanks,
}

/// What a draft starts from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start<'a> {
    pub(super) facts: &'a Facts,
    pub(super) parts: &'a Parts<'a>,
}

/// The body that a document is created with, before the changes to it: an array if the first change needs one.
pub(super) fn new_body(mutation: &SubdocMutation<'_>) -> &'static [u8] {
    let edits = |spec: &&MutationSpec<'_>| {
        !matches!(spec.change, Change::SetBody | Change::DeleteDocument | Change::BodyFromXattr)
    };
    let Some(first) = mutation.specs.iter().find(edits).filter(|_| !mutation.create_as_deleted) else {
        return b"";
    };
    let needs_array = match Path::parse(first.path) {
        Ok(path) if path.is_empty() => true,
        Ok(path) => path.begins_with_index(),
        Err(_) => false,
    };
    if needs_array { b"[]" } else { b"{}" }
}

/// Does all changes of `mutation`.
///
/// # Errors
/// The index of the first that cannot be done, and why.
pub(super) fn draft(
    start: Start<'_>,
    mutation: &SubdocMutation<'_>,
    codec: &ValueCodec,
    seed: u64,
) -> Result<Draft, (u8, Status)> {
    let mut drafter = Drafter {
        start,
        codec,
        denied: mutation.rights.denied,
        placeholders: Placeholders::choose(mutation.specs, start.parts.xattrs, seed),
        xattrs: Builder::from_blob(&xattrs_of(start.parts)),
        body: Cow::Borrowed(start.parts.body),
        is_json: start.parts.is_json,
        spare: Vec::new(),
        counted: Vec::new(),
    };
    let deletes = mutation.deletes();
    let mut is_pruned = false;
    for (index, spec) in (0_u8..).zip(mutation.specs) {
        // After the changes to attributes, before that to the body.
        if deletes && !spec.in_xattrs && !is_pruned {
            drafter.xattrs.keep_system();
            is_pruned = true;
        }
        let counted = drafter.change(spec).map_err(|status| (index, status))?;
        drafter.counted.extend(counted.map(|number| (index, number)));
    }
    Ok(drafter.finish(deletes))
}

struct Drafter<'a> {
    start: Start<'a>,
    codec: &'a ValueCodec,
    denied: bool,
    placeholders: Option<Placeholders>,
    xattrs: Builder,
    body: Cow<'a, [u8]>,
    is_json: bool,
    /// The body before the last change, to be overwritten.
    spare: Vec<u8>,
    counted: Vec<(u8, i64)>,
}

impl Drafter<'_> {
    fn change(&mut self, spec: &MutationSpec<'_>) -> Result<Option<i64>, Status> {
        if spec.in_xattrs && self.denied {
            return Err(Status::NoAccess);
        }
        match spec.change {
            Change::SetBody => {
                self.body = Cow::Owned(spec.value.to_vec());
                self.is_json = (self.codec.recheck)(spec.value).contains(Datatype::JSON);
                Ok(None)
            }
            Change::DeleteDocument => {
                (self.body, self.is_json) = (Cow::Owned(Vec::new()), false);
                Ok(None)
            }
            Change::BodyFromXattr => self.take_body(spec).map(|()| None),
            _ if spec.in_xattrs => self.edit_xattr(spec),
            _ => self.edit_body(spec),
        }
    }

    fn take_body(&mut self, spec: &MutationSpec<'_>) -> Result<(), Status> {
        let (key, path) = Path::parse_xattr(spec.path)?;
        let blob = self.xattrs.blob();
        let value = blob.lookup(key, &path)?;
        let is_binary = spec.form == ValueForm::Binary;
        let body = if is_binary { binary::decode(value)? } else { value.to_vec() };
        self.is_json = match is_binary {
            true => (self.codec.recheck)(&body).contains(Datatype::JSON),
            false => !body.is_empty(),
        };
        self.body = Cow::Owned(body);
        Ok(())
    }

    fn edit_xattr(&mut self, spec: &MutationSpec<'_>) -> Result<Option<i64>, Status> {
        let (key, path) = Path::parse_xattr(spec.path)?;
        let value = self.value(spec)?;
        let edit = edit_of(spec.change, &value)?;
        self.xattrs.edit(key, &path, &edit, spec.create_parents)
    }

    fn edit_body(&mut self, spec: &MutationSpec<'_>) -> Result<Option<i64>, Status> {
        if !self.is_json {
            return Err(Status::SubdocDocNotJson);
        }
        let path = Path::parse(spec.path)?;
        let edit = edit_of(spec.change, spec.value)?;
        let counted = subdoc::apply(&self.body, &path, &edit, spec.create_parents, &mut self.spare)?;
        let after = std::mem::take(&mut self.spare);
        if let Cow::Owned(before) = std::mem::replace(&mut self.body, Cow::Owned(after)) {
            self.spare = before;
        }
        Ok(counted)
    }

    /// A spec's value in the form in which it is kept.
    fn value<'s>(&self, spec: &MutationSpec<'s>) -> Result<Cow<'s, [u8]>, Status> {
        match (spec.form, &self.placeholders) {
            (ValueForm::Plain, _) => Ok(Cow::Borrowed(spec.value)),
            (ValueForm::Binary, _) => Ok(Cow::Owned(binary::encode(spec.value))),
            (ValueForm::Macro, Some(placeholders)) => {
                placeholders.expand(spec.value, self.start.facts, self.start.parts).map(Cow::Owned)
            }
            (ValueForm::Macro, None) => Err(Status::Internal),
        }
    }

    fn finish(self, deletes: bool) -> Draft {
        let body = self.body.into_owned();
        let mut xattrs = self.xattrs.finish();
        let blanks =
            self.placeholders.map(|placeholders| placeholders.locate(&mut xattrs, &body)).unwrap_or_default();
        let mut datatype = if self.is_json { Datatype::JSON } else { Datatype::RAW };
        if !xattrs.is_empty() {
            datatype = datatype.with(Datatype::XATTR);
        }
        Draft { xattrs, body, datatype, deletes, counted: self.counted, blanks }
    }
}

fn edit_of(change: Change, value: &[u8]) -> Result<Edit<'_>, Status> {
    Ok(match change {
        Change::DictAdd => Edit::DictAdd(value),
        Change::DictUpsert => Edit::DictUpsert(value),
        Change::Delete => Edit::Delete,
        Change::Replace => Edit::Replace(value),
        Change::PushLast => Edit::PushLast(value),
        Change::PushFirst => Edit::PushFirst(value),
        Change::Insert => Edit::Insert(value),
        Change::AddUnique => Edit::AddUnique(value),
        Change::Counter => Edit::Counter(subdoc::parse_delta(value)?),
        Change::SetBody | Change::DeleteDocument | Change::BodyFromXattr => return Err(Status::Internal),
    })
}
