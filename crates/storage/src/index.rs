//! What a segment knows about its records without reading them. The index of the segment being written lives in memory.
//! The index of a sealed segment lies behind its data.
//!
//! Both answer the same question: which records in here may be versions of this key? The answer names places;
//! the caller verifies them against the records themselves, since only a 32-bit fingerprint of the key is kept.

pub(crate) mod entry;
pub(crate) mod filter;
pub(crate) mod memory;
pub(crate) mod sealed;

pub(crate) use entry::{Entry, Span, Staged, Tombstones, class_units, fingerprint, length_class};
pub(crate) use memory::MemoryIndex;
pub(crate) use sealed::SealedIndex;
