//! Opening a store.
//!
//! 1. Lock the directory, read the manifest (a new store writes its first one before anything else).
//! 2. Segments that the manifest calls sealed are opened by header and trailer. Their data is read only if the manifest
//!    remembers damage, which may have healed.
//! 3. Segments from the manifest's synced position on are the log's tail: read in full, checked, cut at the last valid
//!    batch (`tail`).
//! 4. What is left of the tail is written again, sealed and synced, and a manifest that says so is written.
//! 5. Only then are files removed that no longer belong to the store. Those of which nothing can be read are renamed instead
//!    (`aside`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::{self};

use base::VbId;

use crate::{
    api::{Options, VbState},
    appender::Appender,
    aside,
    counters::Counters,
    durability::{MANIFEST, MANIFEST_COPY, MANIFEST_COPY_TEMPORARY, MANIFEST_TEMPORARY},
    error::{StoreError, io_error},
    format::{
        DATA_START, VBUCKETS, VERSION,
        header::{self, Header, HeaderError, Origin},
        manifest::{self, Manifest, ManifestError, SegmentEntry},
    },
    frames::Frames,
    fs::{Fs, FsFile, LockGuard, is_unreadable},
    index::Staged,
    key_index, notes,
    position::Position,
    segment::{Segment, parse_name},
    state::{Core, SegmentSet},
    tail::{self, Found, Tail},
    writer::Writer,
};

const LOCK: &str = "lock";

struct Opening<'a> {
    dir: &'a Path,
    fs: Arc<dyn Fs>,
    counters: Arc<Counters>,
    shard: u32,
}

/// Whether a store has been created in `dir`: from then on it has a manifest, or the copy of one.
///
/// # Errors
/// When the directory cannot be read.
pub fn is_store(dir: &Path, fs: &dyn Fs) -> std::io::Result<bool> {
    match fs.list(dir) {
        Ok(names) => Ok(names.iter().any(|name| [MANIFEST, MANIFEST_COPY].contains(&name.as_str()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
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
        Some(manifest) => opening.recover(&names, manifest, options, lock),
        None if names.iter().any(|name| parse_name(name).is_some()) => {
            Err(opening.counters.corrupt(MANIFEST, 0, "segments without a manifest"))
        }
        None => {
            let writer = Writer::new(Position { segment: 1, offset: 0 }, 1, Vec::new());
            // 0 stands for the hash that anybody can compute.
            let seed = opening.fs.random().max(1);
            let place = (dir, opening.fs.clone(), options, seed);
            let core = Core::new(place, opening.counters, SegmentSet::new(), &BTreeMap::new(), writer, lock);
            core.write_manifest(&[])?;
            Ok(core)
        }
    }
}

impl Opening<'_> {
    /// The manifest or, if it is damaged, unreadable or gone, its copy: what that does not say the segments do.
    fn read_manifest(&self) -> Result<Option<Manifest>, StoreError> {
        match self.read_manifest_at(MANIFEST) {
            Ok(Some(manifest)) => Ok(Some(manifest)),
            // A version that is not known, or another shard, is no accident; nor is an error that is not about the disk's content.
            Err(cause) if !is_damage(&cause) => Err(cause),
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
        mut manifest: Manifest,
        options: Options,
        lock: Box<dyn LockGuard>,
    ) -> Result<Core, StoreError> {
        let noted = notes::add_to(&mut manifest, names);
        let manifest = &manifest;
        let (mut set, mut lost) = (SegmentSet::new(), Vec::new());
        for entry in manifest.segments.iter().filter(|entry| entry.sealed) {
            match self.open_sealed(entry, manifest.seed)? {
                Some(segment) => drop(set.insert(entry.id, segment)),
                None => lost.push(SegmentEntry { lost: true, ..*entry }),
            }
        }
        let present: Vec<u32> = names.iter().filter_map(|name| parse_name(name)).collect();
        let Candidates { files, headless } = self.open_tails(&present, manifest)?;
        for entry in manifest.segments.iter().filter(|entry| !entry.sealed) {
            let is_there = files.iter().any(|file| file.segment.id == entry.id);
            if entry.lost || entry.units > 0 && !is_there {
                let name = crate::segment::file_name(entry.id);
                let _ =
                    self.counters.corrupt(&name, 0, "segment is missing, or nothing in it can be checked");
                lost.push(SegmentEntry { lost: true, ..*entry });
            }
        }
        let tail = tail::recover(files, manifest, noted)?;
        for &id in &tail.missing {
            let name = crate::segment::file_name(id);
            let _ = self.counters.corrupt(&name, 0, "segment is missing: the log goes on behind it");
            lost.push(SegmentEntry { id, lost: true, ..SegmentEntry::default() });
        }
        let highest = present.iter().copied().max().unwrap_or(0).max(manifest.next_segment);
        let end = Position { segment: highest + 1, offset: 0 };
        let (states, incarnations) = states(manifest, &tail);
        for segment in &tail.segments {
            set.insert(segment.id, segment.clone());
        }
        for (id, units) in &tail.deaths {
            if let Some(segment) = set.get(id) {
                segment.count_dead(u64::from(*units));
            }
        }
        let writer = Writer::new(end, tail.next_batch, states);
        let place = (self.dir, self.fs.clone(), options, manifest.seed);
        let core = Core::new(place, self.counters.clone(), set, &incarnations, writer, lock);
        core.set_lost(lost);
        *core.notes.lock() = notes::among(names);
        self.settle(&core, &tail)?;
        key_index::recover(&core, names);
        self.tidy(&core, names, &headless);
        if !core.segments().is_empty() {
            // Somebody else may fill the disk before the first write. That it is full already only the first write says.
            if let Err(error) = core.set_aside() {
                tracing::warn!(%error, "space could not be set aside; the first write tries again");
            }
        }
        Ok(core)
    }

    /// Removes files that do not belong to the store any more, and renames those of which nobody knows.
    fn tidy(&self, core: &Core, names: &[String], headless: &[u32]) {
        let (set, lost) = (core.segments(), core.lost());
        for name in names {
            let is_temporary = [MANIFEST_TEMPORARY, MANIFEST_COPY_TEMPORARY].contains(&name.as_str());
            match parse_name(name) {
                Some(id) if set.contains_key(&id) || lost.iter().any(|entry| entry.id == id) => {}
                Some(id) if headless.contains(&id) => aside::put(core, name),
                None if !is_temporary => {}
                _ => core.remove_file(name),
            }
        }
        aside::bound(core);
    }

    /// Seals and syncs what is left of the tail and says so in a manifest. Data that a crash left in the page cache
    /// must not be served as durable before.
    fn settle(&self, core: &Core, tail: &Tail) -> Result<(), StoreError> {
        for segment in &tail.segments {
            let mut appender = Appender::reopen(segment.clone());
            match tail.proof.segment.cmp(&segment.id) {
                std::cmp::Ordering::Less => appender.write_again(0)?,
                std::cmp::Ordering::Equal => appender.write_again(tail.proof.offset)?,
                std::cmp::Ordering::Greater => {}
            }
            if segment.is_quarantined() {
                // Nothing of it is lost for good by being cut or written over: it may be readable another time.
                segment.set_sealed_in_memory();
            } else {
                match appender.seal(tail.next_batch) {
                    Ok(_) => {}
                    // No space for a footer: the index stays in memory, the next open reads the data again.
                    Err(StoreError::NoSpace) => {
                        appender.abandon()?;
                        segment.set_sealed_in_memory();
                    }
                    Err(cause) => return Err(cause),
                }
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

    /// Opens a segment whose data is final. `None`: it is missing, or nothing in it can be checked, which is noted.
    fn open_sealed(&self, entry: &SegmentEntry, seed: u64) -> Result<Option<Arc<Segment>>, StoreError> {
        let name = crate::segment::file_name(entry.id);
        let Some(file) = self.open_file(&name)? else {
            let _ = self.counters.corrupt(&name, 0, "segment is missing, or cannot be opened");
            return Ok(None);
        };
        let header = self.read_header(&*file, &name)?.filter(|header| header.segment == entry.id);
        let identity = header.map(|header| (header.origin, header.salt));
        if identity.is_none() {
            let _ = self.counters.corrupt(&name, 0, "header damaged");
        }
        let Some((origin, salt)) = identity.or(entry.identity) else { return Ok(None) };
        let segment = Segment::new(entry.id, origin, (salt, seed), file, self.counters.clone());
        segment.file_bytes.store(segment.length()?, Relaxed);
        // Without a footer by intention: what looks like one is older than the data.
        let trailer = if entry.without_footer { None } else { segment.read_trailer()? };
        match trailer.filter(|trailer| trailer.data_end == entry.data_end) {
            Some(trailer) => segment.set_sealed(trailer),
            None => segment.read_index(entry.data_end, entry.without_footer)?,
        }
        segment.set_units(entry.units, entry.live_units);
        if entry.damaged || entry.incomplete {
            remember(&segment, entry)?;
        }
        Ok(Some(Arc::new(segment)))
    }

    /// Opens the log's tail: appended segments that the manifest does not call sealed, from its synced position on.
    fn open_tails(&self, present: &[u32], manifest: &Manifest) -> Result<Candidates, StoreError> {
        let entry_of = |id: u32| manifest.segments.iter().find(|entry| entry.id == id);
        let is_final = |id: u32| entry_of(id).is_some_and(|entry| entry.sealed || entry.lost);
        let mut ids: Vec<u32> =
            present.iter().copied().filter(|&id| id >= manifest.synced.segment && !is_final(id)).collect();
        ids.sort_unstable();
        let mut candidates = Candidates::default();
        for id in ids {
            match self.open_tail(id, entry_of(id), manifest.seed)? {
                Opened::Tail(found) => candidates.files.push(found),
                Opened::Headless => candidates.headless.push(id),
                Opened::Other => {}
            }
        }
        Ok(candidates)
    }

    fn open_tail(&self, id: u32, entry: Option<&SegmentEntry>, seed: u64) -> Result<Opened, StoreError> {
        let name = crate::segment::file_name(id);
        let Some(file) = self.open_file(&name)? else { return Ok(Opened::Headless) };
        let header = self.read_header(&*file, &name)?.filter(|header| header.segment == id);
        // What was synced of it is worth more than its header: the manifest knows what is needed of that.
        let known = entry.filter(|entry| entry.units > 0).and_then(|entry| entry.identity);
        if header.is_none() && known.is_some() {
            let _ = self.counters.corrupt(&name, 0, "header damaged");
        }
        let header = header.or_else(|| {
            let (origin, salt) = known?;
            let (previous, synced) = (Position::default(), Position::default());
            Some(Header { shard: self.shard, segment: id, origin, salt, previous, synced, first_batch: 0 })
        });
        Ok(match header {
            Some(header) if header.origin == Origin::Appended => {
                let keys = (header.salt, seed);
                let segment = Segment::new(id, Origin::Appended, keys, file, self.counters.clone());
                Opened::Tail(Found { segment: Arc::new(segment), header, is_listed: entry.is_some() })
            }
            Some(_) => Opened::Other,
            None => Opened::Headless,
        })
    }

    /// `None`: it is not there, or the disk cannot read what is needed to open it.
    fn open_file(&self, name: &str) -> Result<Option<Box<dyn FsFile>>, StoreError> {
        match self.fs.open(&self.dir.join(name)).and_then(|file| file.length().map(|_| file)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound || is_unreadable(&error) => Ok(None),
            Err(source) => Err(io_error("open", name, source)),
        }
    }

    #[expect(clippy::indexing_slicing, reason = "a read gives no more bytes than its buffer has")]
    fn read_header(&self, file: &dyn FsFile, name: &str) -> Result<Option<Header>, StoreError> {
        let mut block = vec![0; DATA_START as usize];
        let count = match file.read_at(&mut block, 0) {
            Ok(count) => count,
            Err(error) if is_unreadable(&error) => return Ok(None),
            Err(source) => return Err(io_error("read", name, source)),
        };
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

/// The files that may be the log's tail.
#[derive(Default)]
struct Candidates {
    files: Vec<Found>,
    /// Nothing in them can be checked. A power failure leaves such, too, of segments that had just been begun.
    headless: Vec<u32>,
}

enum Opened {
    Tail(Found),
    Headless,
    /// An output of a compaction that was not finished.
    Other,
}

/// Whether an error says that what the disk holds is damaged.
fn is_damage(cause: &StoreError) -> bool {
    match cause {
        StoreError::Corrupt { offset, .. } => *offset == 0,
        StoreError::Io { source, .. } => is_unreadable(source),
        _ => false,
    }
}

/// Damage that was seen before is still there, unless all of the data proves the contrary.
fn remember(segment: &Segment, entry: &SegmentEntry) -> Result<(), StoreError> {
    if tail::is_intact(segment, entry.data_end)? {
        tracing::warn!(file = segment.name, "what could not be read of the segment can be read again");
        return Ok(());
    }
    if segment.has_footer() {
        // The data has not been read yet: says where the damage is. The index knows everything that lay here.
        let mut frames = Frames::new(segment, DATA_START, entry.data_end, true);
        segment.collect(&mut frames, &mut Staged::default(), &mut |_, _| {})?;
        segment.set_incomplete(false);
    }
    if !segment.is_quarantined() {
        let _ = segment.corrupt(DATA_START, "batches do not match their commit frames");
        segment.quarantine();
    }
    if entry.incomplete {
        segment.set_incomplete(true);
    }
    Ok(())
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
    for (&(vb, incarnation), salvaged) in &tail.salvaged {
        let is_current = *incarnations.entry(vb).or_insert(incarnation) == incarnation;
        if let Some(slot) = states.get_mut(usize::from(vb.get())).filter(|_| is_current) {
            salvaged.raise(slot.get_or_insert_default());
        }
    }
    (states, incarnations)
}
