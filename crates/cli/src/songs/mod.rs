//! The song data set: a native, deterministic generator with the statistics of the Last.fm / Million Song
//! data set, whose files cannot be redistributed.
//!
//! Document `i` is a pure function of `(seed, i)`, so any reader can make it again. That is how a load is verified byte
//! for byte. It is also how the exact number of "electronic" documents of any `(seed, count)` is known without looking
//! at the database. The model reproduces these published totals in expectation: tracks with a tag, tracks with a
//! similar track, and unique tags. It also reproduces the (track, tag) and (track, similar) pairs, and the counts of
//! the ten most frequent tags. The output of a seed never changes between releases: a test holds its hash.
//!
//! Each part of a document draws from a stream of its own (`rng`), so "is it electronic" costs a few draws
//! and not a document. Only `network` knows that there are servers.

mod document;
mod network;
mod rng;
mod tags;
#[cfg(test)]
mod tests;
pub(crate) mod view;
mod words;

pub(crate) use network::{Effort, LoadSummary, load, verify};
use tags::TagModel;

/// Records in the published data set, and the universe that similar tracks are drawn from.
pub(crate) const FULL_SET: u64 = 943_347;
/// Track ids carry 28 bits of the record number, so this many stay unique.
pub(crate) const COUNT_MAX: u64 = 1 << 28;
/// Bytes of every track id, which is the document's key.
pub(crate) const KEY_BYTES: usize = 18;

/// The generator of one seed. Cheap to share between threads, ~6 MiB of tables.
pub(crate) struct Songs {
    seed: u64,
    tags: TagModel,
    /// The artists' and titles' words in lower case, as tags are written.
    words_lower: Vec<String>,
}

impl Songs {
    /// Builds the tables (~50 ms).
    pub(crate) fn new(seed: u64) -> Songs {
        let words_lower = words::WORDS.iter().map(|word| word.to_lowercase()).collect();
        Songs { seed, tags: TagModel::published(), words_lower }
    }

    /// The key of document `i`.
    pub(crate) fn key(&self, i: u64) -> [u8; KEY_BYTES] {
        document::track_id(self.seed, i)
    }

    /// Appends document `i` to `out`: one line of JSON without the line's end.
    pub(crate) fn document(&self, i: u64, out: &mut Vec<u8>) {
        document::render(self, i, out);
    }

    /// Whether document `i` carries the tag "electronic", which the published benchmark's view selects.
    pub(crate) fn is_electronic(&self, i: u64) -> bool {
        self.tags.head(self.seed, i).has(tags::ELECTRONIC)
    }

    /// The exact number of "electronic" documents among the first `count`.
    pub(crate) fn count_electronic(&self, count: u64) -> u64 {
        (0..count).filter(|&i| self.is_electronic(i)).count() as u64
    }
}
