//! The index of a design document on a node: the rows of its map functions, in order, with what they come to.
//!
//! Each map function has a tree of its rows whose inner nodes know rows, vBuckets and reductions of what is below them.
//! One more tree knows the keys of each document's rows, so that they go when the document changes. Trees are changed
//! by copying what a change touches ([`tree`]). A [`Snapshot`] is a number of roots, which a query reads while the
//! index goes on.
//!
//! How a service uses it:
//!
//! 1. [`Index::open`], once the directory's name was chosen by [`Definition::signature`]. Where the error says
//!    [`IndexError::needs_rebuild`], [`remove`] it and open it again: it begins empty.
//! 2. [`Index::resume`] for each vBucket, with its failover log, says from which seqno on to feed it.
//! 3. [`Index::apply`] takes what map functions made of the documents, in the order of seqnos. [`Index::publish`] lets
//!    queries see it. [`Index::commit`] makes it durable, and cleans up; [`Index::needs_commit`] says when it is due at the latest.
//! 4. [`Index::reset`] forgets a vBucket, when it leaves the node or a rollback of it goes behind what was indexed.
//! 5. [`Index::snapshot`] gives what queries are answered from: [`Snapshot::query`].
//!
//! Nothing here starts threads or reads clocks. An index is used by one thread; snapshots are used by any.

mod answer;
mod bytes;
mod compaction;
mod counts;
mod definition;
mod documents;
mod error;
mod functions;
mod head;
mod leaf;
mod memory;
mod merge;
mod node;
mod packed;
mod runs;
mod store;
mod tree;
mod update;
mod vbs;
mod walk;
pub mod wire;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use base::{Seqno, VbId, VbUuid, limits::VBUCKETS_MAX};
use storage::Fs;

pub use answer::{Answer, Group, Item, Partial, Row};
pub use compaction::Compaction;
pub use definition::{Definition, Reducing, ViewPlace};
pub use documents::JoinedRows;
pub use error::IndexError;
pub use functions::{Functions, NoFunctions};
pub use head::VbState;
pub use memory::{Charge, Memory};
pub use merge::{Merge, MergedRow, Pull, Source, SourceError, Step};
pub use update::{Batch, DocumentRows, GivenRows, Reaches, Refused, RefusedRows, RefusedValue};
pub use vbs::VbSet;

use self::{
    head::{Head, shapes},
    node::{Reduced, Shape},
    runs::Scratch,
    store::{Reader, Store},
    tree::Editor,
    update::{LEAVING_AT_COMMIT, Waiting},
};

/// An index writes nodes from memory when they take this part of the account.
const DIRTY_PART: usize = 4;
/// Changes in sorted files are made in the trees once they exceed both the size of the index and this part of the account.
const SPILLED_PART: u64 = 2;
/// So many bytes may be written without a commit.
const UNCOMMITTED_BYTES: u64 = 128 << 20;
/// So many bytes are moved by a commit in any case where that makes room.
const MOVED_BYTES: u64 = 16 << 20;

/// How an index lies on the disk. An index may be opened with other ones than it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// About how many bytes a node has.
    pub node_bytes: usize,
    /// A segment's file gets no more nodes when it has so many bytes.
    pub segment_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { node_bytes: 8 << 10, segment_bytes: 32 << 20 }
    }
}

/// See the module.
pub struct Index {
    options: Options,
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    definition: Arc<Definition>,
    shapes: Arc<Vec<Shape>>,
    store: Store,
    head: Head,
    waiting: Waiting,
    dirty: usize,
    written_at_commit: u64,
    published: Arc<Published>,
    changed: bool,
    usable: bool,
}

/// An index as it was at a moment.
#[derive(Clone)]
pub struct Snapshot(Arc<Published>);

struct Published {
    reader: Reader,
    definition: Arc<Definition>,
    shapes: Arc<Vec<Shape>>,
    states: BTreeMap<VbId, VbState>,
    /// The vBuckets of the states, and how many rows each map function has in all of them: each query asks for both.
    vbuckets: VbSet,
    rows: Vec<u64>,
    roots: Vec<Option<node::Child>>,
}

impl Published {
    fn of(reader: &Reader, definition: &Arc<Definition>, shapes: &Arc<Vec<Shape>>, head: &Head) -> Arc<Self> {
        let of_map = |map| head.states.values().filter_map(|state| state.rows.get(map)).sum();
        Arc::new(Self {
            reader: reader.clone(),
            definition: definition.clone(),
            shapes: shapes.clone(),
            states: head.states.clone(),
            vbuckets: head.states.keys().copied().collect(),
            rows: (0..definition.maps.len()).map(of_map).collect(),
            roots: head.maps.clone(),
        })
    }
}

/// What an index takes on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskBytes {
    /// Bytes of all files.
    pub all: u64,
    /// Bytes of what is not superseded.
    pub live: u64,
}

/// Removes the files of an index that is not open.
///
/// # Errors
/// The file system's.
pub fn remove(fs: &dyn Fs, dir: &Path) -> io::Result<()> {
    let names = match fs.list(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // Without its head an index is empty, whatever else of it is left.
    let (heads, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name.starts_with("head"));
    for name in heads {
        fs.remove(&dir.join(name))?;
    }
    fs.sync_dir(dir)?;
    for name in others {
        fs.remove(&dir.join(name))?;
    }
    fs.sync_dir(dir)
}

impl Index {
    /// Opens the index in a directory, or begins one.
    ///
    /// # Errors
    /// The file system's; or the index is damaged or of another kind, and has to be removed.
    pub fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        definition: Arc<Definition>,
        memory: &Arc<Memory>,
        options: Options,
    ) -> Result<Self, IndexError> {
        fs.create_dir_all(dir)?;
        let head = Head::read(&*fs, dir, &definition)?;
        let store = Store::open(
            fs.clone(),
            dir,
            memory.clone(),
            (head.segments.clone(), head.next_segment),
            options.segment_bytes,
        )?;
        let scratch = Scratch::new(fs.clone(), dir.to_owned(), memory.clone());
        let shapes = Arc::new(shapes(&definition));
        let published = Published::of(&store.reader, &definition, &shapes, &head);
        Ok(Self {
            options,
            fs,
            dir: dir.to_owned(),
            definition,
            shapes,
            store,
            head,
            waiting: Waiting::new(scratch),
            dirty: 0,
            written_at_commit: 0,
            published,
            changed: false,
            usable: true,
        })
    }

    /// What the index is of.
    #[must_use]
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// How far a vBucket is indexed, changes included that no query sees yet.
    #[must_use]
    pub fn seqno(&self, vb: VbId) -> Option<(VbUuid, Seqno)> {
        let waiting = self.waiting.states.get(&vb).copied();
        waiting.or_else(|| self.head.states.get(&vb).map(|state| (state.branch, state.seqno)))
    }

    /// From which seqno on a vBucket is to be fed, whose failover log this is, newest branch first. Where what was indexed
    /// did not happen on these branches the vBucket is forgotten, and fed from the beginning.
    pub fn resume(&mut self, vb: VbId, log: &[(VbUuid, Seqno)]) -> Seqno {
        let Some((branch, seqno)) = self.seqno(vb) else { return Seqno(0) };
        let known = log.iter().position(|(uuid, _)| *uuid == branch);
        // A branch is good up to where the next one took over.
        let good = known.map(|at| at.checked_sub(1).and_then(|next| log.get(next)).map(|(_, start)| *start));
        match good {
            Some(end) if end.is_none_or(|end| seqno <= end) => seqno,
            _ => {
                self.reset(vb);
                Seqno(0)
            }
        }
    }

    /// A vBucket was rolled back to a seqno. An index keeps the newest version of each document only, so where it went on
    /// behind that seqno it forgets the vBucket. Says from which seqno on to feed it.
    pub fn rollback(&mut self, vb: VbId, to: Seqno) -> Seqno {
        match self.seqno(vb) {
            Some((_, seqno)) if seqno <= to => seqno,
            _ => {
                self.reset(vb);
                Seqno(0)
            }
        }
    }

    /// Forgets a vBucket: no snapshot that is taken from now on has it. Its rows are removed bit by bit, by later calls.
    pub fn reset(&mut self, vb: VbId) {
        self.waiting.forget(vb);
        if self.head.states.remove(&vb).is_some() {
            self.head.leaving.insert(vb);
            self.changed = true;
            if self.usable {
                self.show();
            }
        }
    }

    /// The vBuckets that are indexed, as far as they are.
    #[must_use]
    pub fn states(&self) -> &BTreeMap<VbId, VbState> {
        &self.head.states
    }

    /// What queries are answered from: the index at the last [`Index::publish`] or [`Index::commit`].
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.published.clone())
    }

    /// What the index takes on the disk.
    #[must_use]
    pub fn disk_bytes(&self) -> DiskBytes {
        let (all, live) = self.store.bytes();
        DiskBytes { all: all + self.waiting.spilled(), live }
    }

    /// How many bytes the next publication may write at most, beside what is in memory. It may write all of the index anew where
    /// changes wait in sorted files. The same holds where a vBucket comes back of which not everything is removed. The former nodes
    /// stay until a commit.
    #[must_use]
    pub fn room_wanted(&self) -> u64 {
        let spilled = self.waiting.spilled();
        let comes_back = || self.waiting.states.keys().any(|vb| self.head.leaving.contains(vb));
        // Rows are sorted into files as the documents are.
        if spilled > 0 || comes_back() { self.store.bytes().1 + 2 * spilled } else { 0 }
    }

    /// Whether so much was written since the last commit that one is due.
    #[must_use]
    pub fn needs_commit(&self) -> bool {
        self.store.written - self.written_at_commit > UNCOMMITTED_BYTES
    }

    /// Whether there is something that a commit would make durable.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.changed || !self.waiting.is_empty() || !self.head.leaving.is_empty()
    }

    /// Makes durable what was applied, and writes anew what keeps too much of the disk from being used.
    ///
    /// # Errors
    /// The disk's, after which the index has to be opened again; it is then as it was at the commit before.
    pub fn commit(&mut self, functions: &mut dyn Functions) -> Result<(), IndexError> {
        self.check_usable()?;
        let done = self.try_commit(&BTreeSet::new(), functions);
        self.usable &= done.is_ok();
        done
    }

    /// Commits, and gives up these segments beside what a commit gives up of its own accord.
    fn try_commit(&mut self, asked: &BTreeSet<u32>, functions: &mut dyn Functions) -> Result<(), IndexError> {
        self.update(LEAVING_AT_COMMIT, functions)?;
        let mut given_up: BTreeSet<u32> = self.store.victims(self.moved_max())?.into_iter().collect();
        given_up.extend(asked);
        let mut editor = Editor {
            dirty_max: self.store.reader.memory.share(DIRTY_PART),
            node_bytes: self.options.node_bytes,
            store: &mut self.store,
            dirty: &mut self.dirty,
            functions,
        };
        let roots = std::iter::once((&mut self.head.documents, &Shape::Documents))
            .chain(self.head.maps.iter_mut().zip(self.shapes.iter()));
        for (root, shape) in roots {
            if let Some(child) = root {
                *root = Some(editor.written(child, shape, &given_up)?);
            }
        }
        self.store.sync()?;
        let dead = self.store.dead();
        self.head.segments = self.store.segments.clone();
        self.head.segments.retain(|id, _| !dead.contains(id));
        self.head.next_segment = self.store.next_segment;
        self.head.write(&*self.fs, &self.dir, &self.definition)?;
        self.store.remove(&dead);
        self.written_at_commit = self.store.written;
        self.changed = false;
        self.show();
        Ok(())
    }

    /// So many bytes are moved by a commit where that makes room. What it writes of its own counts too: that supersedes as much.
    fn moved_max(&self) -> u64 {
        let since = self.store.written - self.written_at_commit + self.dirty as u64;
        MOVED_BYTES.max(since * 4)
    }

    fn check_usable(&self) -> Result<(), IndexError> {
        if self.usable { Ok(()) } else { Err(IndexError::Unusable) }
    }

    /// From now on snapshots are of this.
    fn show(&mut self) {
        self.published = Published::of(&self.store.reader, &self.definition, &self.shapes, &self.head);
    }

    /// A vBucket that a bucket can have, and a seqno that follows the one that is indexed.
    fn check_order(&self, vb: VbId, seqno: Seqno) -> Result<(), IndexError> {
        let follows = self.seqno(vb).is_none_or(|(_, known)| known <= seqno);
        if vb.get() < VBUCKETS_MAX && follows {
            return Ok(());
        }
        Err(IndexError::OutOfOrder { vb: vb.get(), seqno: seqno.get() })
    }
}

impl Snapshot {
    /// How far a vBucket is indexed in what queries see, or `None` where it is not.
    #[must_use]
    pub fn state(&self, vb: VbId) -> Option<&VbState> {
        self.0.states.get(&vb)
    }

    /// What the index is of.
    #[must_use]
    pub fn definition(&self) -> &Arc<Definition> {
        &self.0.definition
    }

    /// Which opening of an index this is of. No two openings of indexes with the same account have the same number.
    #[must_use]
    pub fn opening(&self) -> u64 {
        self.0.reader.index()
    }

    /// The vBuckets that are indexed, as far as they are.
    #[must_use]
    pub fn vbuckets(&self) -> VbSet {
        self.0.vbuckets
    }

    /// How many rows a map function has in these vBuckets.
    #[must_use]
    pub fn total_rows(&self, map: usize, active: &VbSet) -> u64 {
        if self.0.vbuckets.is_subset(active) {
            return self.0.rows.get(map).copied().unwrap_or_default();
        }
        let states = self.0.states.iter().filter(|(vb, _)| active.contains(**vb));
        states.filter_map(|(_, state)| state.rows.get(map)).sum()
    }

    /// How many rows the reduction of a view leaves out, since their values are no numbers. Rows of all vBuckets count that the index
    /// has, served or not.
    #[must_use]
    pub fn left_out(&self, view: ViewPlace) -> u64 {
        let root = self.0.roots.get(view.map).and_then(Option::as_ref);
        match root.zip(view.reduction).and_then(|(root, at)| root.summary.reduced.get(at)) {
            Some(Reduced::Native(state)) => state.left_out(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests;
