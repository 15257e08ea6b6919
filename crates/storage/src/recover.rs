//! Opening a store.
//!
//! 1. Lock the directory, read the manifest (a new store writes its first one before anything else).
//! 2. Segments that the manifest calls sealed are opened by header and trailer; their data is not read.
//! 3. Segments from the manifest's synced position on are the log's tail: read in full, checked, cut at the last valid
//!    batch (`tail`).
//! 4. What is left of the tail is sealed and synced, a manifest that says so is written, and only then are files
//!    removed that no longer belong to the store.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::Ordering::{self, Relaxed},
    },
};

use base::VbId;

use crate::{
    api::VbState,
    appender::Appender,
    counters::Counters,
    durability::{MANIFEST, MANIFEST_COPY, MANIFEST_COPY_TEMPORARY, MANIFEST_TEMPORARY},
    error::StoreError,
    format::{
        DATA_START, VBUCKETS, VERSION,
        header::{self, Header, HeaderError, Origin},
        manifest::{self, Manifest, ManifestError, SegmentEntry},
    },
    fs::{Fs, FsFile, LockGuard},
    key_index,
    log::{Core, Options, SegmentSet, io_error},
    position::Position,
    segment::{Segment, parse_name},
    tail::{self, Tail},
    writer::Writer,
};

const LOCK: &str = "lock";

struct Opening<'a> {
    dir: &'a Path,
    fs: Arc<dyn Fs>,
    counters: Arc<Counters>,
    shard: u32,
}

/// Opens or creates a store; see the module.
pub(crate) fn open(dir: &Path, fs: Arc<dyn Fs>, options: Options) -> Result<Core, StoreError> {
    fs.create_dir_all(dir).map_err(|source| io_error("create", &dir.display().to_string(), source))?;
    let lock = fs.lock(&dir.join(LOCK)).map_err(|source| io_error("lock", LOCK, source))?;
    let lock = lock.ok_or_else(|| StoreError::Locked(dir.display().to_string()))?;
    let opening = Opening { dir, fs, counters: Arc::default(), shard: options.shard };
    let names =
        opening.fs.list(dir).map_err(|source| io_error("list", &dir.display().to_string(), source))?;
    match opening.read_manifest()? {
        Some(manifest) => opening.recover(&names, &manifest, options, lock),
        None if names.iter().any(|name| parse_name(name).is_some()) => {
            Err(opening.counters.corrupt(MANIFEST, 0, "segments without a manifest"))
        }
        None => {
            let writer = Writer::new(Position { segment: 1, offset: 0 }, 1, Vec::new());
            let place = (dir, opening.fs.clone(), options);
            let core = Core::new(place, opening.counters, SegmentSet::new(), &BTreeMap::new(), writer, lock);
            core.write_manifest(&[])?;
            Ok(core)
        }
    }
}

impl Opening<'_> {
    /// The manifest or, if it is damaged or gone, its copy: what that does not say the segments do.
    fn read_manifest(&self) -> Result<Option<Manifest>, StoreError> {
        match self.read_manifest_at(MANIFEST) {
            Ok(Some(manifest)) => Ok(Some(manifest)),
            // A version that is not known, or another shard, is no accident.
            Err(cause) if !matches!(cause, StoreError::Corrupt { offset: 0, .. }) => Err(cause),
            damaged_or_gone => match self.read_manifest_at(MANIFEST_COPY) {
                Ok(Some(copy)) => {
                    tracing::error!(dir = %self.dir.display(), "the manifest is damaged or gone: its copy is used");
                    Ok(Some(copy))
                }
                _ => damaged_or_gone,
            },
        }
    }

    fn read_manifest_at(&self, name: &str) -> Result<Option<Manifest>, StoreError> {
        let file = match self.fs.open(&self.dir.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io_error("open", name, source)),
        };
        let read = |file: &dyn FsFile| {
            let mut bytes = vec![0; file.length()? as usize];
            let count = file.read_at(&mut bytes, 0)?;
            bytes.truncate(count);
            Ok(bytes)
        };
        let bytes = read(&*file).map_err(|source| io_error("read", name, source))?;
        match manifest::decode(&bytes) {
            Ok(manifest) if manifest.shard == self.shard => Ok(Some(manifest)),
            Ok(_) => Err(self.counters.corrupt(name, 12, "belongs to another shard")),
            Err(ManifestError::Damaged) => Err(self.counters.corrupt(name, 0, "manifest damaged")),
            Err(ManifestError::Version(found)) => {
                Err(StoreError::Version { file: name.to_owned(), found, known: VERSION })
            }
        }
    }

    fn recover(
        &self,
        names: &[String],
        manifest: &Manifest,
        options: Options,
        lock: Box<dyn LockGuard>,
    ) -> Result<Core, StoreError> {
        let (mut set, mut missing) = (SegmentSet::new(), false);
        for entry in manifest.segments.iter().filter(|entry| entry.sealed) {
            match self.open_sealed(entry)? {
                Some(segment) => drop(set.insert(entry.id, segment)),
                None => missing = true,
            }
        }
        let sealed = |id: &u32| manifest.segments.iter().any(|entry| entry.sealed && entry.id == *id);
        let present: Vec<u32> = names.iter().filter_map(|name| parse_name(name)).collect();
        let mut candidates: Vec<u32> =
            present.iter().copied().filter(|id| *id >= manifest.synced.segment && !sealed(id)).collect();
        candidates.sort_unstable();
        let mut files = Vec::new();
        for id in candidates {
            files.extend(self.open_tail(id)?);
        }
        missing |= manifest
            .segments
            .iter()
            .any(|entry| !entry.sealed && entry.units > 0 && !files.iter().any(|file| file.0.id == entry.id));
        let tail = tail::recover(files, manifest)?;
        let highest = present.iter().copied().max().unwrap_or(0).max(manifest.next_segment);
        let end = Position { segment: highest + 1, offset: 0 };
        let (states, incarnations) = states(manifest, &tail);
        for segment in &tail.segments {
            set.insert(segment.id, segment.clone());
        }
        for (id, units) in &tail.deaths {
            if let Some(segment) = set.get(id) {
                segment.bury(u64::from(*units));
            }
        }
        let writer = Writer::new(end, tail.next_batch, states);
        let place = (self.dir, self.fs.clone(), options);
        let core = Core::new(place, self.counters.clone(), set, &incarnations, writer, lock);
        core.incomplete.store(missing, Ordering::Relaxed);
        self.settle(&core, &tail)?;
        key_index::recover(&core, names);
        let set = core.segments();
        for name in names {
            let listed = parse_name(name).is_none_or(|id| set.contains_key(&id));
            if !listed || [MANIFEST_TEMPORARY, MANIFEST_COPY_TEMPORARY].contains(&name.as_str()) {
                core.remove_file(name);
            }
        }
        if !set.is_empty() {
            // Somebody else may fill the disk before the first write. That it is full already only the first write says.
            core.set_aside();
        }
        Ok(core)
    }

    /// Seals and syncs what is left of the tail and says so in a manifest. Data that a crash left in the page cache
    /// must not be served as durable before.
    fn settle(&self, core: &Core, tail: &Tail) -> Result<(), StoreError> {
        for segment in &tail.segments {
            let mut appender = Appender::reopen(segment.clone());
            match appender.seal(tail.next_batch) {
                Ok(_) => {}
                // No space for a footer: the index stays in memory, the next open reads the data again.
                Err(StoreError::NoSpace) => {
                    appender.abandon()?;
                    segment.set_sealed_in_memory();
                }
                Err(cause) => return Err(cause),
            }
            core.writer.lock().unsynced.push(segment.clone());
        }
        core.sync_dir()?;
        match core.write_manifest(&[]) {
            // The old manifest leads the next open to the same result, as long as nothing is appended.
            Err(StoreError::NoSpace) => {
                core.unsettled.store(true, Ordering::Relaxed);
                // The copy may be older, and list files that are going to be removed.
                core.remove_if_there(MANIFEST_COPY);
                Ok(())
            }
            result => result,
        }
    }

    /// Opens a segment whose data is final. `None`: it is missing, which is noted.
    fn open_sealed(&self, entry: &SegmentEntry) -> Result<Option<Arc<Segment>>, StoreError> {
        let name = crate::segment::file_name(entry.id);
        let Some(file) = self.open_file(&name)? else {
            let _ = self.counters.corrupt(&name, 0, "segment is missing");
            return Ok(None);
        };
        let (origin, salt) = match self.read_header(&*file, &name)? {
            Some(header) if header.segment == entry.id => (header.origin, header.salt),
            _ => {
                let _ =
                    self.counters.corrupt(&name, 0, "header damaged: nothing in the segment can be checked");
                return Ok(None);
            }
        };
        let segment = Segment::new(entry.id, origin, salt, file, self.counters.clone());
        segment.file_bytes.store(segment.length()?, Relaxed);
        match segment.read_trailer()?.filter(|trailer| trailer.data_end == entry.data_end) {
            Some(trailer) => segment.set_sealed(trailer),
            None => segment.read_index(entry.data_end, entry.without_footer)?,
        }
        segment.set_units(entry.units, entry.live_units);
        Ok(Some(Arc::new(segment)))
    }

    /// Opens a segment of the tail. `None`: it never became one (its header is not intact), or it is an output of a
    /// compaction that was not finished.
    fn open_tail(&self, id: u32) -> Result<Option<(Arc<Segment>, Header)>, StoreError> {
        let name = crate::segment::file_name(id);
        let Some(file) = self.open_file(&name)? else { return Ok(None) };
        let header = self.read_header(&*file, &name)?;
        let header = header.filter(|header| header.segment == id && header.origin == Origin::Appended);
        Ok(header.map(|header| {
            let segment = Segment::new(id, Origin::Appended, header.salt, file, self.counters.clone());
            (Arc::new(segment), header)
        }))
    }

    fn open_file(&self, name: &str) -> Result<Option<Box<dyn FsFile>>, StoreError> {
        match self.fs.open(&self.dir.join(name)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(io_error("open", name, source)),
        }
    }

    fn read_header(&self, file: &dyn FsFile, name: &str) -> Result<Option<Header>, StoreError> {
        let mut block = vec![0; DATA_START as usize];
        let count = file.read_at(&mut block, 0).map_err(|source| io_error("read", name, source))?;
        match header::decode(&block[..count]) {
            Ok(header) if header.shard != self.shard => {
                Err(self.counters.corrupt(name, 12, "belongs to another shard"))
            }
            Ok(header) => Ok(Some(header)),
            Err(HeaderError::Damaged) => Ok(None),
            Err(HeaderError::Version(found)) => {
                Err(StoreError::Version { file: name.to_owned(), found, known: VERSION })
            }
        }
    }
}

/// The vBuckets' states: the manifest's, overtaken by the tail's.
fn states(manifest: &Manifest, tail: &Tail) -> (Vec<Option<VbState>>, BTreeMap<VbId, u32>) {
    let mut incarnations = BTreeMap::new();
    let mut states: Vec<Option<VbState>> = vec![None; VBUCKETS];
    for entry in &manifest.vbs {
        incarnations.insert(entry.vb, entry.incarnation);
        if let Some(slot) = states.get_mut(usize::from(entry.vb.get())) {
            *slot = Some(entry.state.clone());
        }
    }
    for part in &tail.parts {
        let known = incarnations.entry(part.vb).or_insert(part.incarnation);
        let Some(slot) = states.get_mut(usize::from(part.vb.get())) else { continue };
        if part.incarnation < *known {
            continue;
        }
        let purged = slot.as_ref().filter(|_| part.incarnation == *known).map(|state| state.purge_seqno);
        *known = part.incarnation;
        let mut state = part.state.clone();
        state.purge_seqno = state.purge_seqno.max(purged.unwrap_or_default());
        *slot = Some(state);
    }
    (states, incarnations)
}
