//! Design documents of buckets: their texts, their revisions, and which ones were deleted.
//!
//! The texts are kept as they came. Whether they define views is judged before a change is proposed, so that every node applies the
//! change alike.
//!
//! Invariants:
//! - What a bucket has of them is within the limits below, and so is what all buckets have together.
//! - A revision's number grows with every change of that document, its deletion too, for as long as the deletion is remembered.
//! - A bucket's design documents go with the bucket. They stay when it is emptied.

use std::{collections::BTreeMap, fmt, sync::Arc};

use base::bucket::BucketKind;
use serde::{Deserialize, Serialize};

use crate::{BucketInfo, ClusterError, Metadata, shared};

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
/// Deletions that a bucket remembers.
const DELETED_MAX: usize = 64;

/// The design documents of a bucket, by names without `_design/`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesignDocuments {
    kept: BTreeMap<String, DesignDocument>,
    /// The one that was deleted last comes last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deleted: Vec<(String, Revision)>,
}

/// A design document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesignDocument {
    /// Which of its versions this is.
    pub revision: Revision,
    /// As it came.
    #[serde(with = "shared")]
    pub text: Arc<String>,
}

/// Names a version of a design document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// How often the document was changed.
    pub number: u64,
    /// Drawn by the node that proposed the change.
    pub lot: u32,
}

impl fmt::Display for Revision {
    /// As clients are shown it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{:08x}", self.number, self.lot)
    }
}

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
}

impl DesignDocuments {
    /// The one of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&DesignDocument> {
        self.kept.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &DesignDocument)> {
        self.kept.iter().map(|(name, document)| (name.as_str(), document))
    }

    /// Whether one of that name is known to have been deleted.
    #[must_use]
    pub fn was_deleted(&self, name: &str) -> bool {
        self.deleted.iter().any(|(gone, _)| gone == name)
    }

    /// Whether nothing is, or was, there.
    #[allow(clippy::ptr_arg, reason = "serde calls it with a reference to the field")]
    pub(crate) fn says_nothing(this: &Arc<Self>) -> bool {
        this.kept.is_empty() && this.deleted.is_empty()
    }

    fn bytes(&self) -> usize {
        self.kept.iter().map(|(name, document)| bytes(name, &document.text)).sum()
    }

    fn next_revision(&self, name: &str, lot: u32) -> Revision {
        let deleted = || self.deleted.iter().find(|(gone, _)| gone == name).map(|(_, revision)| revision);
        let before = self.get(name).map(|document| &document.revision).or_else(deleted);
        Revision { number: before.map_or(0, |revision| revision.number).saturating_add(1), lot }
    }

    fn put(&mut self, name: &str, text: &str, lot: u32) {
        let revision = self.next_revision(name, lot);
        self.deleted.retain(|(gone, _)| gone != name);
        self.kept.insert(name.to_owned(), DesignDocument { revision, text: Arc::new(text.to_owned()) });
    }

    /// Whether there was one to delete.
    fn delete(&mut self, name: &str, lot: u32) -> bool {
        let revision = self.next_revision(name, lot);
        if self.kept.remove(name).is_none() {
            return false;
        }
        self.deleted.push((name.to_owned(), revision));
        if self.deleted.len() > DELETED_MAX {
            self.deleted.remove(0);
        }
        true
    }
}

impl BucketInfo {
    /// Whether a bucket may have views: as in Couchbase, one of the type `couchbase` with the backend `couchstore`.
    #[must_use]
    pub fn may_have_views(&self) -> bool {
        self.kind == BucketKind::Couchbase && self.storage_backend == "couchstore"
    }
}

pub(crate) fn change(state: &mut Metadata, change: &DesignDocumentChange) -> Result<(), ClusterError> {
    let DesignDocumentChange { bucket, name, text, lot } = change;
    let all: usize = state.buckets.values().map(|info| info.design_documents.bytes()).sum();
    let documents = documents_mut(state, bucket)?;
    let Some(text) = text else {
        let deleted = documents.was_deleted(name);
        let found = documents.delete(name, *lot);
        return if found { Ok(()) } else { Err(ClusterError::DesignDocumentNotFound { deleted }) };
    };
    check(name, text.len())?;
    let before = documents.get(name).map_or(0, |document| bytes(name, &document.text));
    if before == 0 && documents.kept.len() >= DOCUMENTS_MAX {
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

/// What a design document counts against the limits.
fn bytes(name: &str, text: &str) -> usize {
    name.len() + text.len()
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
