//! The design documents of a bucket: their texts, their revisions, and which ones were deleted.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::shared;

/// Deletions that a bucket remembers.
pub(crate) const DELETED_MAX: usize = 64;

/// The design documents of a bucket, by names without `_design/`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesignDocuments {
    kept: BTreeMap<String, DesignDocument>,
    /// The one that was deleted last comes last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) deleted: Vec<(String, Revision)>,
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

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether nothing is, or was, there.
    #[allow(clippy::ptr_arg, reason = "serde calls it with a reference to the field")]
    pub(crate) fn says_nothing(this: &Arc<Self>) -> bool {
        this.kept.is_empty() && this.deleted.is_empty()
    }

    /// What all of them count against the limits.
    pub(crate) fn bytes(&self) -> usize {
        self.kept.iter().map(|(name, document)| bytes(name, &document.text)).sum()
    }

    fn next_revision(&self, name: &str, lot: u32) -> Revision {
        let deleted = || self.deleted.iter().find(|(gone, _)| gone == name).map(|(_, revision)| revision);
        let before = self.get(name).map(|document| &document.revision).or_else(deleted);
        Revision { number: before.map_or(0, |revision| revision.number).saturating_add(1), lot }
    }

    pub(crate) fn put(&mut self, name: &str, text: &str, lot: u32) {
        let revision = self.next_revision(name, lot);
        self.deleted.retain(|(gone, _)| gone != name);
        self.kept.insert(name.to_owned(), DesignDocument { revision, text: Arc::new(text.to_owned()) });
    }

    /// Whether there was one to delete.
    pub(crate) fn delete(&mut self, name: &str, lot: u32) -> bool {
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

/// What a design document counts against the limits.
pub(crate) fn bytes(name: &str, text: &str) -> usize {
    name.len() + text.len()
}
