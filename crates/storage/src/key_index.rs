//! One index over many sealed segments, for stores whose engine does not know every key.
//!
//! Each sealed segment can say by itself which of its records may be versions of a key. Without reading, that takes 1.5
//! bytes of memory per record, superseded records included. Among hundreds of segments some always answer "maybe" even
//! so. So the footers' entries, which are sorted already, are merged into one file of 4 KiB blocks. The number of the
//! segment stands beside each entry. A question reads one block; in memory there are four bytes per block. Only
//! segments that are younger than the file answer for themselves, until they have become a quarter of it.
//!
//! Everything in the file is derived, and a file that is damaged, missing or cannot be written is done without. It
//! names each segment that it covers by number, salt and data end; an entry of any other segment means nothing. A crash
//! may cut a segment that was sealed and not synced, and the segment keeps its number and salt. So only synced segments
//! are covered, and a segment whose data ends elsewhere than it did is not.

mod file;
mod merge;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::RwLock;

use crate::{
    compact::Effort,
    error::StoreError,
    segment::Segment,
    state::{Core, SegmentSet},
};

pub(crate) use file::{KeyIndex, LastBlock};

/// Look-ups after which a store is taken for one that will be asked more.
const LOOKUPS_MIN: u64 = 64;
/// The share of entries that may be outside the index: one in so many.
const UNCOVERED_SHARE: u64 = 4;

/// The index of a store, if there is one.
#[derive(Default)]
pub(crate) struct KeyIndexes {
    current: RwLock<Option<Arc<KeyIndex>>>,
    lookups: AtomicU64,
    /// The generation of the segments as of which none could be written.
    failed_at: AtomicU64,
    next: AtomicU64,
}

impl KeyIndexes {
    pub(crate) fn current(&self) -> Option<Arc<KeyIndex>> {
        self.current.read().clone()
    }

    /// Somebody looks a key up.
    pub(crate) fn count_lookup(&self) {
        self.lookups.fetch_add(1, Ordering::Relaxed);
    }

    /// The index cannot be read: segments answer for themselves until there is a new one.
    pub(crate) fn discard(&self, core: &Core, damaged: &Arc<KeyIndex>, cause: &StoreError) {
        tracing::warn!(file = damaged.name(), error = %cause, "key index given up; it will be made again");
        let is_current = {
            let mut current = self.current.write();
            current.take_if(|now| Arc::ptr_eq(now, damaged)).is_some()
        };
        if is_current {
            core.remove_file(damaged.name());
        }
    }

    /// Memory that indexes take: this one, and what segments that answer for themselves have loaded.
    pub(crate) fn memory_bytes(&self, set: &SegmentSet) -> u64 {
        let own = self.current.read().as_ref().map_or(0, |index| index.memory_bytes());
        own + set.values().map(|segment| segment.lookup_bytes()).sum::<u64>()
    }

    /// Bytes on disk.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.current.read().as_ref().map_or(0, |index| index.file_bytes())
    }
}

/// The segments that an index does not speak for, in order.
pub(crate) fn uncovered<'s, 'i>(
    set: &'s SegmentSet,
    index: Option<&'i KeyIndex>,
) -> impl Iterator<Item = &'s Arc<Segment>> + use<'s, 'i> {
    let mut covered = index.map_or(&[][..], KeyIndex::covered).iter().peekable();
    set.values().filter(move |segment| {
        while covered.next_if(|entry| entry.segment < segment.id).is_some() {}
        covered.peek().is_none_or(|entry| !entry.is(segment))
    })
}

/// Takes up the newest usable index among the files of a store that is being opened; the others are removed.
pub(crate) fn recover(core: &Core, names: &[String]) {
    let mut numbered: Vec<_> =
        names.iter().filter_map(|name| Some((file::parse_name(name)?, name))).collect();
    numbered.sort_unstable();
    for (number, name) in numbered.into_iter().rev() {
        core.keys.next.fetch_max(number + 1, Ordering::Relaxed);
        let opened = match core.keys.current() {
            None => KeyIndex::open(core.fs.as_ref(), &core.dir, core.options.shard, name),
            Some(_) => None,
        };
        match opened {
            Some(index) => *core.keys.current.write() = Some(Arc::new(index)),
            None => core.remove_file(name),
        }
    }
}

/// Makes a new index if one is due. Only for the compacting thread: segments must not go meanwhile.
pub(crate) fn maintain(core: &Core, effort: &mut Effort<'_>) {
    let generation = core.generation_of_segments().0;
    if core.keys.lookups.load(Ordering::Relaxed) < LOOKUPS_MIN
        || core.reserve.is_full()
        || core.keys.failed_at.load(Ordering::Relaxed) == generation
    {
        return;
    }
    let (set, index) = (core.segments(), core.keys.current());
    let young: Vec<u64> = uncovered(&set, index.as_deref())
        .filter(|segment| core.is_synced(segment))
        .filter_map(|segment| segment.footer_entries())
        .collect();
    let known = index.as_ref().map_or(0, |index| index.entries());
    if young.len() < core.options.index_segments_min || young.iter().sum::<u64>() * UNCOVERED_SHARE < known {
        return;
    }
    let name = file::name(core.keys.next.fetch_add(1, Ordering::Relaxed));
    match merge::merge(core, &set, index.as_deref(), &name, effort) {
        Ok(merged) => {
            for segment in set.values().filter(|segment| merged.covers(segment)) {
                segment.forget_lookup();
            }
            *core.keys.current.write() = Some(Arc::new(merged));
            if let Some(index) = index {
                core.remove_file(index.name());
            }
        }
        Err(StoreError::Stopped) => core.remove_file(&name),
        Err(cause) => {
            tracing::warn!(file = name, error = %cause, "no key index could be made; look-ups go on without");
            core.remove_file(&name);
            core.keys.failed_at.store(generation, Ordering::Relaxed);
            // It may as well be a segment's footer that is damaged.
            let is_of = |index: &Arc<KeyIndex>| matches!(&cause, StoreError::Corrupt { file, .. } if file == index.name());
            if let Some(index) = index.filter(is_of) {
                core.keys.discard(core, &index, &cause);
            }
        }
    }
}
