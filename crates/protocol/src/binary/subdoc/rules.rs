//! What may be combined with what.

use super::{
    BINARY_PREFIX, DocFlags, PATH_BYTES_MAX, PathFlags, SPECS_MAX, Spec, is_virtual_key, spec::Permits,
    xattr_key_len,
};
use crate::binary::Violation;
use base::{Cas, Status};
use base64::{Engine as _, engine::general_purpose::STANDARD};

pub(super) const BAD_EXTRAS: Violation = Violation::invalid("Request extras invalid");
pub(super) const CUT_OFF: Violation = Violation::invalid("A path or value is longer than the request");
pub(super) const NO_SUBDOC: Violation = refused(Status::SubdocInvalidCombo, "Not a sub-document operation");

const fn refused(status: Status, context: &'static str) -> Violation {
    Violation { status, context }
}

/// What the rules depend on beside the request's own bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) cas: Cas,
    pub(super) xattrs: bool,
}

impl Rules {
    pub(super) fn check_single(self, spec: &Spec<'_>, doc: DocFlags) -> Result<(), Violation> {
        let permits = spec.op.permits();
        check_value(&permits, spec)?;
        check_flags(&permits, spec, doc)?;
        if doc.has(DocFlags::CREATE_AS_DELETED) {
            if !doc.has(DocFlags::ADD) && !doc.has(DocFlags::CREATE) {
                return Err(Violation::invalid("To create as deleted requires to create or to add"));
            }
            if !spec.is_xattr() {
                return Err(Violation::invalid("A tombstone has no body"));
            }
        }
        self.check_creation(doc)?;
        self.check_xattr(&permits, spec)?;
        if spec.path.is_empty() && !permits.empty_path {
            return Err(Violation::invalid("Request must include path"));
        }
        Ok(())
    }

    pub(super) fn check_multi(self, mutates: bool, doc: DocFlags, list: &[u8]) -> Result<(), Violation> {
        self.check_creation(doc)?;
        if doc.has(DocFlags::REVIVE) {
            if !doc.has(DocFlags::ACCESS_DELETED) {
                return Err(Violation::invalid("To revive requires access to deleted documents"));
            }
            if doc.has(DocFlags::CREATE_AS_DELETED) {
                return Err(Violation::invalid("To revive contradicts to create as deleted"));
            }
        }
        let mut rest = list;
        let mut in_xattrs = true;
        let mut body_is_decided = false;
        let mut count = 0;
        while !rest.is_empty() && count < SPECS_MAX {
            if body_is_decided {
                return Err(refused(Status::SubdocInvalidCombo, "Nothing can follow a deletion"));
            }
            let spec = Spec::cut(mutates, &mut rest)?;
            self.check_listed(mutates, doc, &spec)?;
            let is_deletion = spec.op == super::SpecOp::DeleteDocument;
            if in_xattrs {
                in_xattrs = spec.is_xattr();
            } else if spec.is_xattr() {
                return Err(refused(Status::SubdocInvalidXattrOrder, ""));
            } else if is_deletion {
                return Err(refused(Status::SubdocInvalidCombo, "A deletion must be alone with the body"));
            }
            body_is_decided = is_deletion;
            count += 1;
        }
        match (count, rest) {
            (0, _) => Err(refused(Status::SubdocInvalidCombo, "Request must contain at least one path")),
            (_, []) => Ok(()),
            _ => Err(refused(Status::SubdocInvalidCombo, "Request must contain at most 16 paths")),
        }
    }

    fn check_listed(self, mutates: bool, doc: DocFlags, spec: &Spec<'_>) -> Result<(), Violation> {
        let permits = spec.op.permits();
        if permits.mutates != mutates {
            let words = "Lookups and mutations cannot be combined";
            return Err(refused(Status::SubdocInvalidCombo, words));
        }
        check_flags(&permits, spec, doc)?;
        check_path_len(spec.path.len())?;
        if permits.whole && !spec.path.is_empty() {
            return Err(Violation::invalid("The whole document has no path"));
        }
        self.check_xattr(&permits, spec)?;
        if !spec.is_xattr() && spec.path.is_empty() && !permits.empty_path {
            return Err(Violation::invalid("Request must include path"));
        }
        check_value(&permits, spec)
    }

    fn check_creation(self, doc: DocFlags) -> Result<(), Violation> {
        if doc.has(DocFlags::ADD) && self.cas != Cas::NONE {
            return Err(Violation::invalid("To add a document requires CAS 0"));
        }
        if doc.has(DocFlags::ADD) && doc.has(DocFlags::CREATE) {
            return Err(Violation::invalid("To add contradicts to create"));
        }
        Ok(())
    }

    fn check_xattr(self, permits: &Permits, spec: &Spec<'_>) -> Result<(), Violation> {
        let (expands, is_binary) =
            (spec.flags.has(PathFlags::EXPAND_MACROS), spec.flags.has(PathFlags::BINARY));
        let bad_flags = |words| Err(refused(Status::SubdocXattrInvalidFlagCombo, words));
        if !spec.is_xattr() {
            return match (expands, is_binary) {
                (true, _) => bad_flags("Macros require an extended attribute"),
                (_, true) => bad_flags("Binary values require an extended attribute"),
                _ => Ok(()),
            };
        }
        if expands && is_binary {
            return bad_flags("A binary value is no macro");
        }
        if !self.xattrs {
            let words = "Extended attributes were not negotiated";
            return Err(refused(Status::NotSupported, words));
        }
        if xattr_key_len(spec.path).is_none() {
            return Err(refused(Status::XattrInvalid, "The key of an extended attribute is invalid"));
        }
        if permits.mutates && is_virtual_key(spec.path) {
            return Err(refused(Status::SubdocXattrCannotModifyVattr, ""));
        }
        check_encoded(spec.value)?;
        if expands { check_macro(spec.value) } else { Ok(()) }
    }
}

pub(super) fn check_path_len(length: usize) -> Result<(), Violation> {
    if length > PATH_BYTES_MAX { Err(Violation::invalid("Request path is too long")) } else { Ok(()) }
}

fn check_value(permits: &Permits, spec: &Spec<'_>) -> Result<(), Violation> {
    match (permits.value, spec.value.is_empty()) {
        (true, true) => Err(Violation::invalid("Request must include value")),
        (false, false) => Err(Violation::invalid("Request must not include value")),
        _ => Ok(()),
    }
}

fn check_flags(permits: &Permits, spec: &Spec<'_>, doc: DocFlags) -> Result<(), Violation> {
    if !spec.flags.is_within(permits.path_flags) {
        return Err(Violation::invalid("Request flags invalid"));
    }
    if !spec.flags.has(permits.mandatory) {
        return Err(Violation::invalid("Request lacks a mandatory flag"));
    }
    if !doc.is_within(permits.doc_flags) {
        return Err(Violation::invalid("Request document flags invalid"));
    }
    Ok(())
}

/// Only whether it may be one: which members `$document` has is found out when it is expanded.
fn check_macro(value: &[u8]) -> Result<(), Violation> {
    const MUTATION: [&[u8]; 3] =
        [b"\"${Mutation.CAS}\"", b"\"${Mutation.seqno}\"", b"\"${Mutation.value_crc32c}\""];
    let is_virtual = value.starts_with(b"\"${$document") && value.ends_with(b"}\"");
    if is_virtual || MUTATION.contains(&value) {
        return Ok(());
    }
    Err(refused(Status::SubdocXattrUnknownMacro, ""))
}

/// A value that looks like the stored form of a binary one has to be one.
fn check_encoded(value: &[u8]) -> Result<(), Violation> {
    let Some(start) = memchr::memmem::find(value, BINARY_PREFIX) else { return Ok(()) };
    let rest = value.get(start + BINARY_PREFIX.len()..).unwrap_or_default();
    let is_whole = start == 0 || (start == 1 && value.first() == Some(&b'"'));
    let end = memchr::memchr(b'"', rest);
    let encoded = match end {
        Some(end) => rest.get(..end),
        None if is_whole => Some(rest),
        None => None,
    };
    if encoded.is_some_and(|encoded| STANDARD.decode(encoded).is_ok()) {
        return Ok(());
    }
    Err(refused(Status::XattrInvalid, "A binary value is not encoded as it should be"))
}
