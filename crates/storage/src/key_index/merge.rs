//! Making a key index: the index before it and the footers of the segments that it did not cover, merged in order.
//!
//! Memory: one block per source, the fences of all, and one write's worth of output.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use super::file::{BLOCK, BLOCK_ENTRIES, Covered, KeyIndex, Located, encode_block, encode_end, seed_of};
use crate::{
    compact::Effort,
    error::{StoreError, io_error},
    format::footer::Fences,
    fs::FsFile,
    segment::Segment,
    state::{Core, SegmentSet},
};

/// What an entry is counted as when effort is: read, compared and written.
const ENTRY_BYTES: u64 = 128;
/// Blocks written at once.
const WRITE_BLOCKS: usize = 16;
/// Written between two syncs: one sync of all of it would keep everybody else's waiting.
const SYNC_BYTES: u64 = 4 << 20;

/// Where entries come from, sorted.
enum Source<'a> {
    Index { index: &'a KeyIndex, next_block: usize },
    Footer { segment: &'a Arc<Segment>, fences: Fences, next_block: usize },
}

impl Source<'_> {
    /// The next entries; none at the end.
    fn next(&mut self) -> Result<Vec<Located>, StoreError> {
        match self {
            Self::Index { index, next_block } => {
                if *next_block >= index.blocks() {
                    return Ok(Vec::new());
                }
                *next_block += 1;
                index.block(*next_block - 1)
            }
            Self::Footer { segment, fences, next_block } => {
                let Some(fence) = fences.get(*next_block) else { return Ok(Vec::new()) };
                *next_block += 1;
                let entries = segment.footer_block(*next_block - 1, fence.1)?;
                Ok(entries.into_iter().map(|entry| (entry, segment.id)).collect())
            }
        }
    }
}

/// Writes an index over all sealed and synced segments of the set to a file of that name, synced.
pub(super) fn merge(
    core: &Core,
    set: &SegmentSet,
    before: Option<&KeyIndex>,
    name: &str,
    effort: &mut Effort<'_>,
) -> Result<KeyIndex, StoreError> {
    let mut sources = Vec::new();
    // Of which segments the index before still tells, ascending.
    let mut kept = Vec::new();
    let mut covered = Vec::new();
    for segment in set.values() {
        if before.is_some_and(|index| index.covers(segment)) {
            covered.push(Covered::of(segment));
            kept.push(segment.id);
        } else if core.is_synced(segment)
            && let Some(fences) = segment.footer_fences()?
        {
            covered.push(Covered::of(segment));
            sources.push(Source::Footer { segment, fences, next_block: 0 });
        }
    }
    let footers = sources.len();
    if let Some(index) = before {
        sources.push(Source::Index { index, next_block: 0 });
    }
    let file = core.fs.create(&core.dir.join(name)).map_err(|source| io_error("create", name, source))?;
    let mut output = Output {
        name,
        file,
        seed: seed_of(&covered),
        at: 0,
        synced: 0,
        bytes: Vec::new(),
        block: Vec::new(),
        fences: Vec::new(),
        entries: 0,
    };
    let mut heads = Heads::new(sources)?;
    while let Some((entry, source)) = heads.next()? {
        effort.spend(ENTRY_BYTES, || output.memory_bytes())?;
        // Of a segment that is gone nothing is left to find, and another one may have got its number.
        if source < footers || kept.binary_search(&entry.1).is_ok() {
            output.push(entry)?;
        }
    }
    output.finish(core, covered)
}

/// The sources' next entries, smallest first.
struct Heads<'a> {
    sources: Vec<(Source<'a>, std::vec::IntoIter<Located>)>,
    heap: BinaryHeap<Reverse<(Located, usize)>>,
}

impl<'a> Heads<'a> {
    fn new(sources: Vec<Source<'a>>) -> Result<Self, StoreError> {
        let sources = sources.into_iter().map(|source| (source, Vec::new().into_iter())).collect();
        let mut heads = Self { sources, heap: BinaryHeap::new() };
        for number in 0..heads.sources.len() {
            heads.advance(number)?;
        }
        Ok(heads)
    }

    /// The next entry, with the number of its source.
    fn next(&mut self) -> Result<Option<(Located, usize)>, StoreError> {
        let Some(Reverse((entry, number))) = self.heap.pop() else { return Ok(None) };
        self.advance(number)?;
        Ok(Some((entry, number)))
    }

    fn advance(&mut self, number: usize) -> Result<(), StoreError> {
        let Some((source, block)) = self.sources.get_mut(number) else { return Ok(()) };
        if block.len() == 0 {
            *block = source.next()?.into_iter();
        }
        self.heap.extend(block.next().map(|entry| Reverse((entry, number))));
        Ok(())
    }
}

struct Output<'a> {
    name: &'a str,
    file: Box<dyn FsFile>,
    /// Of the blocks' checksums.
    seed: u32,
    at: u64,
    synced: u64,
    bytes: Vec<u8>,
    block: Vec<Located>,
    fences: Vec<u32>,
    entries: u64,
}

impl Output<'_> {
    fn memory_bytes(&self) -> u64 {
        (self.bytes.capacity() + self.fences.capacity() * size_of::<u32>()) as u64
    }

    fn push(&mut self, entry: Located) -> Result<(), StoreError> {
        self.block.push(entry);
        self.entries += 1;
        if self.block.len() == BLOCK_ENTRIES { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> Result<(), StoreError> {
        let Some(first) = self.block.first() else { return Ok(()) };
        self.fences.push(first.0.fingerprint());
        encode_block(&mut self.bytes, self.seed, &self.block);
        self.block.clear();
        if self.bytes.len() >= WRITE_BLOCKS * BLOCK { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        self.file.write_at(&self.bytes, self.at).map_err(|source| io_error("write", self.name, source))?;
        self.at += self.bytes.len() as u64;
        self.bytes.clear();
        if self.at - self.synced >= SYNC_BYTES { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.synced = self.at;
        self.file.sync_data().map_err(|source| io_error("sync", self.name, source))
    }

    fn finish(mut self, core: &Core, mut covered: Vec<Covered>) -> Result<KeyIndex, StoreError> {
        self.end_block()?;
        self.fences.shrink_to_fit();
        covered.shrink_to_fit();
        self.bytes.extend_from_slice(&encode_end(core.options.shard, &covered, &self.fences, self.entries));
        self.write()?;
        // A file that is found after a crash is whole, or its checksums say so.
        self.sync()?;
        Ok(KeyIndex::new(self.name, self.file, covered, self.fences, self.entries))
    }
}
