//! The version that an operation on a document's parts sees. It is a document's or, where that is wanted, a
//! tombstone's, which may be on disk only.

use std::ops::Deref;
use std::sync::Arc;

use base::{Cas, Datatype, HashedKey, Seqno, Status, VbUuid};

use super::super::meta::tombstone_on_disk;
use crate::{
    api::{
        doc::{DocMeta, DocView, SharedValue},
        notify::Refusal,
        options::ValueCodec,
    },
    client::ops::xattr_bytes,
    memory::{arena::Arena, item::ItemRef},
    shard::Env,
    vbucket::{VBucket, version::Found},
};

/// What is known of a version beside its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) cas: Cas,
    pub(super) seqno: Seqno,
    pub(super) rev: u64,
    pub(super) flags: u32,
    pub(super) expiry: u32,
    /// Of the stored value.
    pub(super) datatype: Datatype,
    pub(super) deleted: bool,
    pub(super) vb_uuid: VbUuid,
    /// The vBucket's clock.
    pub(super) last_cas: Cas,
}

impl Facts {
    pub(super) fn of_item(v: &VBucket, item: ItemRef<'_>, cas: Cas) -> Self {
        Self {
            cas,
            seqno: item.seqno(),
            rev: item.rev(),
            flags: item.flags(),
            expiry: item.expiry(),
            datatype: item.datatype(),
            deleted: item.is_deleted(),
            vb_uuid: v.failover.uuid(),
            last_cas: v.hlc.last(),
        }
    }

    fn of_tombstone(v: &VBucket, meta: &DocMeta) -> Self {
        Self {
            cas: meta.cas,
            seqno: meta.seqno,
            rev: meta.rev,
            flags: meta.flags,
            expiry: meta.expiry,
            datatype: meta.datatype,
            deleted: true,
            vb_uuid: v.failover.uuid(),
            last_cas: v.hlc.last(),
        }
    }
}

/// A version's value, held outside the lock.
#[derive(Debug)]
pub(super) enum VersionValue {
    InMemory(SharedValue),
    OnDisk(Arc<[u8]>),
}

impl Deref for VersionValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::InMemory(value) => value,
            Self::OnDisk(value) => value,
        }
    }
}

/// Where the newest tombstone of a key is.
pub(super) enum Tombstone {
    /// In the table.
    InMemory,
    OnDisk(Facts, Arc<[u8]>),
}

/// A key's tombstone, [`VBucket::settle`] having found this.
///
/// # Errors
/// [`Refusal::Fetch`] when the disk has to be asked.
pub(super) fn tombstone(
    v: &mut VBucket,
    env: &Env<'_>,
    key: HashedKey<'_>,
    found: &Found,
) -> Result<Option<Tombstone>, Refusal> {
    match found {
        Found::Gone(current) if current.meta.deleted => Ok(Some(Tombstone::InMemory)),
        // Past its expiry, and no tombstone yet because what it is to keep is not in memory.
        Found::Gone(current) if !current.resident && current.meta.datatype.contains(Datatype::XATTR) => {
            Err(v.missing(key))
        }
        Found::Gone(_) | Found::Live(_) => Ok(None),
        Found::Nothing => {
            let known = tombstone_on_disk(v, env, key)?;
            Ok(known.map(|(meta, value)| Tombstone::OnDisk(Facts::of_tombstone(v, &meta), value)))
        }
    }
}

/// An item's value, to be read without the lock.
pub(super) fn hold(item: ItemRef<'_>, cas: Cas, arena: &Arc<Arena>) -> VersionValue {
    VersionValue::InMemory(DocView::of(item, cas, arena).share())
}

/// An uncompressed value, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    /// The section of extended attributes, its length included; empty when there is none.
    pub(super) xattrs: &'a [u8],
    pub(super) body: &'a [u8],
    pub(super) is_json: bool,
}

impl<'a> Parts<'a> {
    pub(super) fn of(value: &'a [u8], datatype: Datatype) -> Self {
        let bytes = if datatype.contains(Datatype::XATTR) { xattr_bytes(value) } else { 0 };
        let (xattrs, body) = value.split_at(bytes);
        Self { xattrs, body, is_json: datatype.contains(Datatype::JSON) }
    }
}

/// How long the value is without compression.
pub(super) fn inflated_len(value: &[u8], datatype: Datatype, codec: &ValueCodec) -> usize {
    if datatype.contains(Datatype::SNAPPY) { (codec.inflated_len)(value) } else { value.len() }
}

/// The value without compression.
///
/// # Errors
/// `Internal` when it cannot be inflated.
pub(super) fn inflated<'a>(
    value: &'a [u8],
    datatype: Datatype,
    codec: &ValueCodec,
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], Status> {
    if !datatype.contains(Datatype::SNAPPY) {
        return Ok(value);
    }
    if (codec.inflate)(value, scratch) { Ok(scratch) } else { Err(Status::Internal) }
}
