//! Metadata read, and documents written with metadata that another cluster gave them.

use base::{Cas, Datatype, Status, limits};
use cluster::auth::Privilege;
use engine::{Mutated, WithMeta};
use protocol::binary::{Opcode, extras::MetaExtras, with_meta};

use super::store::{Acknowledgement, acknowledge};
use crate::{
    call::{Call, Stop},
    value,
};

/// `GET_META`, of documents and tombstones.
pub(crate) fn get_meta(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    call.session.require(Privilege::MetaRead, call.request.key.key)?;
    let meta = bucket.engine.meta(call.request.vb, call.request.key, call.context.now)?;
    let version = call.request.frame.extras.first().copied().unwrap_or_default();
    let extras = MetaExtras {
        deleted: u32::from(meta.deleted),
        flags: meta.flags,
        expiry: meta.expiry,
        rev: meta.rev,
        datatype: meta.datatype.0,
    };
    let mut bytes = Vec::with_capacity(MetaExtras::BYTES);
    extras.append(version, &mut bytes);
    call.answer(meta.cas, Datatype::RAW, &bytes, &[], &[]);
    Ok(())
}

/// `SET_WITH_META`, `ADD_WITH_META`, `DEL_WITH_META` and their quiet forms.
pub(crate) fn with_meta(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    call.session.bucket()?;
    call.session.require(Privilege::MetaWrite, call.request.key.key)?;
    let frame = call.request.frame;
    let decoded = with_meta::WithMeta::decode(frame.extras, frame.value)?;
    let is_deletion = call.request.loud == Opcode::DelWithMeta;
    let mut scratch = std::mem::take(&mut call.context.scratch);
    scratch.clear();
    let result = apply_with_meta(call, &decoded, is_deletion, &mut scratch);
    call.context.keep_scratch(scratch);
    acknowledge(call, result?, Acknowledgement::Bare)
}

fn apply_with_meta(
    call: &Call<'_, '_>,
    decoded: &with_meta::WithMeta<'_>,
    is_deletion: bool,
    scratch: &mut Vec<u8>,
) -> Result<Mutated, Stop> {
    let frame = call.request.frame;
    let datatype = checked_datatype(decoded.value, frame.header.datatype, is_deletion, scratch)?;
    // Attributes have to be found without inflating what they belong to.
    let is_inflated = datatype.contains(Datatype::XATTR) && datatype.contains(Datatype::SNAPPY);
    let (value, datatype) = match is_inflated {
        true => (scratch.as_slice(), datatype.without(Datatype::SNAPPY)),
        false => (decoded.value, datatype),
    };
    let incoming = WithMeta {
        cas: Cas(decoded.meta.cas),
        rev: decoded.meta.rev,
        flags: decoded.meta.flags,
        expiry: decoded.meta.expiry,
        value,
        datatype,
        check_cas: frame.header.cas,
        add_only: call.request.loud == Opcode::AddWithMeta,
        force: decoded.options.force,
        skip_conflict_resolution: decoded.options.skip_conflict_resolution,
        accept_lww: decoded.options.accept_lww,
        regenerate_cas: decoded.options.regenerate_cas,
        is_expiration: decoded.options.is_expiration,
    };
    let (vb, key, now) = (call.request.vb, call.request.key, call.context.now);
    let engine = &call.session.bucket()?.engine;
    Ok(if is_deletion {
        engine.delete_with_meta(vb, key, &incoming, now)?
    } else {
        engine.set_with_meta(vb, key, &incoming, now)?
    })
}

/// The datatype to store: extended attributes as claimed, if they are well-formed, JSON as found.
fn checked_datatype(
    value: &[u8],
    claimed: Datatype,
    is_deletion: bool,
    scratch: &mut Vec<u8>,
) -> Result<Datatype, Stop> {
    let invalid = |words| Stop::Refused(Status::Invalid, words);
    let mut plain = value;
    if claimed.contains(Datatype::SNAPPY) {
        if !value::inflate(value, scratch) {
            return Err(invalid("The value is not a Snappy block, or inflates beyond the limit"));
        }
        plain = scratch;
    }
    if is_deletion && !plain.is_empty() && !claimed.contains(Datatype::XATTR) {
        return Err(invalid("A deleted document can have system attributes, but no body"));
    }
    let kept = Datatype(claimed.0 & (Datatype::SNAPPY.0 | Datatype::XATTR.0));
    if claimed.contains(Datatype::XATTR) {
        plain = value::body_behind_xattrs(plain)
            .ok_or(Stop::Refused(Status::XattrInvalid, "The extended attributes are malformed"))?;
    }
    if plain.len() > limits::VALUE_BYTES_MAX {
        return Err(Stop::Status(Status::TooBig));
    }
    Ok(kept.with(value::detect(plain)))
}
