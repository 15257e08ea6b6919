//! Design documents of buckets: their texts, their revisions, and which ones were deleted.
//!
//! The texts are kept as they came. Whether they define views is judged before a change is proposed, so that every node applies the
//! change alike.
//!
//! Invariants:
//! - What a bucket has of them is within the limits below, and so is what all buckets have together.
//! - A revision's number grows with every change of that document, its deletion too, for as long as the deletion is remembered.
//! - A bucket's design documents go with the bucket. They stay when it is emptied.

use std::sync::Arc;

use base::bucket::BucketKind;
use serde::{Deserialize, Serialize};

use crate::metadata::{
    BucketInfo, ClusterError, Metadata,
    design_documents::{DesignDocuments, Revision, bytes},
};

/// Most design documents of a bucket.
pub const DOCUMENTS_MAX: usize = 256;
/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 1024;
/// Longest text, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// Most bytes of names and texts in a bucket.
pub const BUCKET_BYTES_MAX: usize = 1024 * 1024;
/// Most bytes of names and texts in all buckets: every snapshot of the metadata has them.
pub const CLUSTER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A change of a bucket's design documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesignDocumentChange {
    /// The bucket.
    pub bucket: String,
    /// Without `_design/`.
    pub name: String,
    /// What is kept from now on; absent: the design document is deleted.
    pub text: Option<String>,
    /// Drawn for this change.
    pub lot: u32,
    /// The revision that it was made from, where it may replace no other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Revision>,
}

impl BucketInfo {
    /// Whether a bucket may have views: as in Couchbase, one of the type `couchbase` with the backend `couchstore`.
    #[must_use]
    pub fn may_have_views(&self) -> bool {
        self.kind == BucketKind::Couchbase && self.storage_backend == "couchstore"
    }
}

pub(crate) fn change(state: &mut Metadata, change: &DesignDocumentChange) -> Result<(), ClusterError> {
    let DesignDocumentChange { bucket, name, text, lot, over } = change;
    let all: usize = state.buckets.values().map(|info| info.design_documents.bytes()).sum();
    let documents = documents_mut(state, bucket)?;
    if over.is_some() && *over != documents.get(name).map(|document| document.revision) {
        return refused("The design document was changed meanwhile.".into());
    }
    let Some(text) = text else {
        let deleted = documents.was_deleted(name);
        let found = documents.delete(name, *lot);
        return if found { Ok(()) } else { Err(ClusterError::DesignDocumentNotFound { deleted }) };
    };
    check(name, text.len())?;
    let before = documents.get(name).map_or(0, |document| bytes(name, &document.text));
    if before == 0 && documents.len() >= DOCUMENTS_MAX {
        return refused(format!("The bucket has {DOCUMENTS_MAX} design documents, and cannot have more."));
    }
    let larger = |sum: usize| sum.saturating_sub(before) + bytes(name, text);
    if larger(documents.bytes()) > BUCKET_BYTES_MAX {
        return refused(format!(
            "The bucket's design documents would be longer than {BUCKET_BYTES_MAX} bytes."
        ));
    }
    if larger(all) > CLUSTER_BYTES_MAX {
        return refused(format!(
            "The design documents of all buckets would be longer than {CLUSTER_BYTES_MAX} bytes."
        ));
    }
    documents.put(name, text, *lot);
    Ok(())
}

fn documents_mut<'a>(state: &'a mut Metadata, bucket: &str) -> Result<&'a mut DesignDocuments, ClusterError> {
    let info = state.buckets.get_mut(bucket).ok_or(ClusterError::BucketNotFound)?;
    if !info.may_have_views() {
        return Err(ClusterError::DesignDocumentRefused("The bucket cannot have views.".into()));
    }
    Ok(Arc::make_mut(&mut info.design_documents))
}

/// Whether a design document of that name and length can be kept where there is room.
///
/// # Errors
/// [`ClusterError::DesignDocumentRefused`] says why not.
pub fn check(name: &str, bytes: usize) -> Result<(), ClusterError> {
    if name.is_empty() {
        return refused("The name of a design document cannot be empty.".into());
    }
    if name.len() > NAME_BYTES_MAX {
        return refused(format!(
            "The name of a design document cannot be longer than {NAME_BYTES_MAX} bytes."
        ));
    }
    if bytes > DOCUMENT_BYTES_MAX {
        return refused(format!("A design document cannot be longer than {DOCUMENT_BYTES_MAX} bytes."));
    }
    Ok(())
}

fn refused(text: String) -> Result<(), ClusterError> {
    Err(ClusterError::DesignDocumentRefused(text))
}

#[cfg(test)]
mod tests;
