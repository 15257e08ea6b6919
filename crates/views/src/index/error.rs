//! What goes wrong with an index.

use std::io;

use crate::js::Failure;

/// Why an index did not do something.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The disk refused a call. An index that could not be written is used no more; opened again it is as it was last
    /// committed.
    #[error("the disk refused: {0}")]
    Disk(#[from] io::Error),
    /// Something that was written is not what is read. The index has to be built anew.
    #[error("the index is damaged: {0}")]
    Damaged(&'static str),
    /// The index is of another version, or of other functions. It has to be built anew.
    #[error("the index is of another kind: {0}")]
    Outdated(String),
    /// An earlier write failed; the index has to be opened again.
    #[error("the index has to be opened again after a failure")]
    Unusable,
    /// Changes came out of order, or for a vBucket that no bucket has.
    #[error("changes of vBucket {vb} up to {seqno} do not follow those that are indexed")]
    OutOfOrder {
        /// The vBucket.
        vb: u16,
        /// What the changes lead to.
        seqno: u64,
    },
    /// The query names a view, or a reduction, that the index does not have.
    #[error("the index has no such view")]
    NoSuchView,
    /// A reduction failed.
    #[error("{}", .0.text)]
    Reduction(Failure),
}

impl IndexError {
    /// What a read that failed means. A place that the disk cannot give back stays unreadable, so it is damage like any other.
    pub(super) fn of_read(error: io::Error) -> Self {
        if storage::is_unreadable(&error) {
            Self::Damaged("the disk cannot read it")
        } else {
            Self::Disk(error)
        }
    }

    /// Whether the index has to be removed and built anew.
    #[must_use]
    pub fn needs_rebuild(&self) -> bool {
        matches!(self, Self::Damaged(_) | Self::Outdated(_))
    }
}
