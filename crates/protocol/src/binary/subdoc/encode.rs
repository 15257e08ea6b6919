//! Extras and values of requests, for clients and tests.

use super::{DocFlags, Spec};
use crate::binary::request::TooLong;

fn append_options(doc: DocFlags, expiry: Option<u32>, extras: &mut Vec<u8>) {
    if let Some(expiry) = expiry {
        extras.extend_from_slice(&expiry.to_be_bytes());
    }
    if doc != DocFlags::NONE {
        extras.push(doc.0);
    }
}

/// Extras and value of a single-path request.
///
/// # Errors
/// [`TooLong`] when the path is longer than can be said.
pub fn encode_single(
    spec: &Spec<'_>,
    doc: DocFlags,
    expiry: Option<u32>,
) -> Result<(Vec<u8>, Vec<u8>), TooLong> {
    let path_len = u16::try_from(spec.path.len()).map_err(|_| TooLong)?;
    let mut extras = path_len.to_be_bytes().to_vec();
    extras.push(spec.flags.0);
    append_options(doc, expiry, &mut extras);
    Ok((extras, [spec.path, spec.value].concat()))
}

/// Extras and value of a multi-path request. The first spec tells whether it looks up or mutates.
///
/// # Errors
/// [`TooLong`] when a path or value is longer than can be said.
pub fn encode_multi(
    specs: &[Spec<'_>],
    doc: DocFlags,
    expiry: Option<u32>,
) -> Result<(Vec<u8>, Vec<u8>), TooLong> {
    let mutates = specs.first().is_some_and(|spec| spec.op.mutates());
    let mut extras = Vec::new();
    append_options(doc, expiry, &mut extras);
    let mut value = Vec::new();
    for spec in specs {
        value.extend_from_slice(&[spec.op.code(), spec.flags.0]);
        value.extend_from_slice(&u16::try_from(spec.path.len()).map_err(|_| TooLong)?.to_be_bytes());
        if mutates {
            value.extend_from_slice(&u32::try_from(spec.value.len()).map_err(|_| TooLong)?.to_be_bytes());
        }
        value.extend_from_slice(spec.path);
        value.extend_from_slice(spec.value);
    }
    Ok((extras, value))
}
