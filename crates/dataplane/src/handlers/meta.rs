//! Metadata read, and documents written with metadata that another cluster gave them.

use base::{Cas, Datatype, Status, bucket::CompressionMode, limits};
use cluster::auth::Privilege;
use engine::{Bucket, Mutated, WithMeta, subdoc::xattr::Blob};
use protocol::binary::{Opcode, extras::MetaExtras, with_meta};

use super::store::acknowledge;
use crate::request::{
    call::Call,
    stage::{Acknowledgement, Stop},
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
    let engine = &call.session.bucket()?.engine;
    let (value, datatype) =
        checked_value(engine, decoded.value, frame.header.datatype, is_deletion, scratch)?;
    let incoming = WithMeta {
        cas: Cas(decoded.meta.cas),
        rev: decoded.meta.rev,
        flags: decoded.meta.flags,
        expiry: decoded.meta.expiry,
        value,
        datatype,
        check_cas: frame.header.cas,
        add_only: call.request.loud == Opcode::AddWithMeta,
        skip_conflict_resolution: decoded.options.skip_conflict_resolution,
        accept_lww: decoded.options.accept_lww,
        regenerate_cas: decoded.options.regenerate_cas,
        is_expiration: decoded.options.is_expiration,
    };
    let (vb, key, now) = (call.request.vb, call.request.key, call.context.now);
    Ok(if is_deletion {
        engine.delete_with_meta(vb, key, &incoming, now)?
    } else {
        engine.set_with_meta(vb, key, &incoming, now)?
    })
}

/// What to store, and what it is: attributes as claimed if they are well-formed, JSON as found. Values stay compressed
/// unless the bucket keeps none, but for attributes, which have to be found without inflating what they belong to. Of what
/// comes with a deletion only attributes are kept.
fn checked_value<'a>(
    engine: &Bucket,
    value: &'a [u8],
    claimed: Datatype,
    is_deletion: bool,
    scratch: &'a mut Vec<u8>,
) -> Result<(&'a [u8], Datatype), Stop> {
    let is_compressed = claimed.contains(Datatype::SNAPPY) && !value.is_empty();
    let mut plain = value;
    if is_compressed {
        if !value::inflate(value, scratch) {
            let words = "The value is not a Snappy block, or inflates beyond the limit";
            return Err(Stop::Refused(Status::Invalid, words));
        }
        plain = scratch;
    }
    let (section, body) = split_checked(plain, claimed)?;
    if is_deletion {
        let datatype = if section.is_empty() { Datatype::RAW } else { Datatype::XATTR };
        return Ok((section, datatype));
    }
    let detected = value::detect(body);
    let keeps_compressed = is_compressed && engine.compression() != CompressionMode::Off;
    Ok(match (section.is_empty(), keeps_compressed) {
        (false, _) => (plain, detected.with(Datatype::XATTR)),
        (true, true) if body.len() == plain.len() => (value, detected.with(Datatype::SNAPPY)),
        (true, _) => (body, detected),
    })
}

/// Attributes and body, everything about their sizes being as it should. A section without attributes is none.
fn split_checked(plain: &[u8], claimed: Datatype) -> Result<(&[u8], &[u8]), Stop> {
    let (mut section, mut body, mut system): (&[u8], &[u8], usize) = (&[], plain, 0);
    if claimed.contains(Datatype::XATTR) && !plain.is_empty() {
        let (blob, behind) = Blob::split(plain)?;
        if !blob.is_valid() {
            return Err(Stop::Refused(Status::XattrInvalid, "The extended attributes are malformed"));
        }
        body = behind;
        if !blob.is_empty() {
            section = plain.strip_suffix(body).unwrap_or_default();
            system = blob.shares().0;
        }
    }
    if system > limits::XATTR_BYTES_MAX {
        return Err(Stop::Refused(Status::Invalid, "The system attributes exceed their limit"));
    }
    if section.len() + body.len() - system > limits::VALUE_BYTES_MAX {
        return Err(Stop::Status(Status::TooBig));
    }
    Ok((section, body))
}
