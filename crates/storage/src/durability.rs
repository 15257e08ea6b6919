//! Group commit and the manifest: the two ways something becomes durable.
//!
//! Both run under the sync lock, in three steps:
//! 1. Under the writer's lock, note where the log ends and which segments have unsynced bytes. Commits go on from here.
//! 2. Sync those files, oldest first, then the directory if names are new.
//! 3. Only then say so: advance `synced`, replace the manifest.
//!
//! Manifests are replaced behind the sync lock, under the manifest lock, in the order of what they say. A failed sync
//! poisons the shard.

use std::sync::{Arc, atomic::Ordering};

use base::VbId;

use crate::{
    api::VbState,
    counters::count,
    error::{StoreError, io_error},
    format::{
        header::Origin,
        manifest::{self, Manifest, SegmentEntry},
    },
    fs::{FsFile, is_no_space},
    notes,
    position::Position,
    segment::Segment,
    state::Core,
    synced::High,
    writer::Writer,
};

/// The manifest's file name.
pub(crate) const MANIFEST: &str = "manifest";
/// Where the next one is written before it takes the name.
pub(crate) const MANIFEST_TEMPORARY: &str = "manifest.new";

/// A second one, for when the first is damaged; as of the last change that was not only an addition.
pub(crate) const MANIFEST_COPY: &str = "manifest.copy";
pub(crate) const MANIFEST_COPY_TEMPORARY: &str = "manifest.copy.new";

/// The log's end at one moment, and what must be synced for it to be durable.
pub(crate) struct Snapshot {
    pub(crate) end: Position,
    files: Vec<Arc<Segment>>,
    new_names: bool,
    highs: Vec<(VbId, High)>,
    manifest: Option<Manifest>,
    /// The manifest tells of damage that none told of before.
    tells_damage: bool,
}

impl Core {
    /// Makes everything committed before the call durable.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.counters.check()?;
        self.publish();
        let wanted = self.end.load();
        self.sync_up_to(wanted)?;
        self.acknowledged.advance(wanted);
        Ok(())
    }

    fn sync_up_to(&self, wanted: Position) -> Result<(), StoreError> {
        if self.is_durable(wanted) {
            return Ok(());
        }
        // A segment is listed before its first sync is told of: whatever becomes of its header, it is known to be missed. Who
        // replaces the manifest is waited for only then; otherwise it is due again at the next sync.
        let mut turn = (!self.is_listed(wanted)).then(|| self.manifest_lock.lock());
        let guard = self.sync_lock.lock();
        // The former holder of the locks may have synced ours too.
        if self.is_durable(wanted) {
            return Ok(());
        }
        self.counters.check()?;
        if turn.is_none() && (self.manifest_due.load(Ordering::Relaxed) || self.counters.is_damage_due()) {
            turn = self.manifest_lock.try_lock();
        }
        let due = turn.is_some();
        if due {
            // Before it is written: what is sealed meanwhile is due again.
            self.manifest_due.store(false, Ordering::Relaxed);
        }
        let snapshot = self.snapshot(&mut self.writer.lock(), due, &[]);
        let sealed_some = snapshot.files.iter().any(|segment| segment.is_sealed());
        self.sync_files(&snapshot)?;
        self.writer.lock().mark_synced(self, snapshot.end);
        if sealed_some && !due {
            // Written with the next sync: then a recovery need not read the sealed segment's data.
            self.manifest_due.store(true, Ordering::Relaxed);
        }
        drop(guard);
        let Some(manifest) = &snapshot.manifest else { return Ok(()) };
        let staged = self.stage(MANIFEST_TEMPORARY, &manifest::encode(manifest));
        match staged.and_then(|()| self.name_manifest(manifest)) {
            // A full disk is no reason to fail, as long as the loss of what was synced would be noticed.
            Err(StoreError::NoSpace) => {
                self.manifest_due.store(true, Ordering::Relaxed);
                self.take_back(&snapshot);
                notes::put(self, &snapshot)?;
                self.listed.fetch_max(snapshot.end.segment, Ordering::Relaxed);
                Ok(())
            }
            result => result,
        }
    }

    /// Whether everything up to there is synced, and nothing of what belongs to that is left to be done.
    fn is_durable(&self, wanted: Position) -> bool {
        self.synced.load() >= wanted && self.is_listed(wanted) && !self.counters.is_damage_due()
    }

    /// Whether a manifest lists the segment of that position.
    pub(crate) fn is_listed(&self, wanted: Position) -> bool {
        wanted.offset == 0 || self.listed.load(Ordering::Relaxed) >= wanted.segment
    }

    /// Syncs everything, then replaces the manifest by one that lacks the segments in `without`, which leave the set. A
    /// full disk is met with the reserve.
    pub(crate) fn write_manifest(&self, without: &[u32]) -> Result<(), StoreError> {
        self.replace_manifest(without, &[])
    }

    /// As [`Core::write_manifest`]; in the manifest a new incarnation of the vBuckets in `resets` begins, with those states.
    /// Nobody learns of it before the manifest is written. When that fails for want of space nothing has changed.
    pub(crate) fn replace_manifest(
        &self,
        without: &[u32],
        resets: &[(VbId, VbState)],
    ) -> Result<(), StoreError> {
        let _turn = self.manifest_lock.lock();
        let guard = self.sync_lock.lock();
        self.counters.check()?;
        let mut snapshot = self.snapshot(&mut self.writer.lock(), true, without);
        self.sync_files(&snapshot)?;
        // Nobody's commit waits for a manifest.
        drop(guard);
        let Some(mut manifest) = snapshot.manifest.take() else { return Ok(()) };
        manifest.reset(resets);
        let drops_all = !resets.is_empty()
            && manifest.vbs.iter().all(|entry| resets.iter().any(|reset| reset.0 == entry.vb));
        let mut given_up = Vec::new();
        if drops_all {
            // Nothing that was lost can be missed any more.
            let gone = manifest.segments.extract_if(.., |entry| entry.lost || entry.incomplete);
            given_up.extend(gone.map(|entry| entry.id));
        }
        let bytes = manifest::encode(&manifest);
        // Order matters: once the manifest has its name nothing may fail for want of space. The copy may say less than the
        // manifest, but nothing that is no longer so. It is brought up to date before files go that it lists.
        let stage = |temporary| match self.stage(temporary, &bytes) {
            Err(StoreError::NoSpace) if self.reserve.release() => self.stage(temporary, &bytes),
            result => result,
        };
        let named = stage(MANIFEST_COPY_TEMPORARY)
            .and_then(|()| stage(MANIFEST_TEMPORARY))
            .and_then(|()| self.name_manifest(&manifest));
        named.inspect_err(|_| self.take_back(&snapshot))?;
        self.name(MANIFEST_COPY_TEMPORARY, MANIFEST_COPY).inspect_err(|cause| {
            // The manifest itself is replaced: this is no failure after which nothing has changed.
            self.counters.poison(cause);
        })?;
        // Both before another manifest can say otherwise.
        if !without.is_empty() {
            self.remove_segments(without);
        }
        if !resets.is_empty() {
            self.begin_incarnations(resets);
            if !given_up.is_empty() {
                self.give_up(&given_up);
            }
        }
        Ok(())
    }

    fn snapshot(&self, writer: &mut Writer, with_manifest: bool, without: &[u32]) -> Snapshot {
        // Before it is written: what is seen meanwhile is due again.
        let tells_damage = with_manifest && self.counters.take_damage();
        let manifest = with_manifest.then(|| Manifest {
            shard: self.options.shard,
            next_segment: writer.next_segment,
            synced: writer.end,
            next_batch: writer.next_batch,
            seed: self.seed,
            segments: self.segment_entries(writer, without),
            vbs: writer.state_entries(self),
        });
        let active = writer.active_id();
        let files = writer.unsynced.clone();
        // The active segment comes back with its next batch.
        writer.unsynced.retain(|segment| Some(segment.id) == active);
        Snapshot {
            end: writer.end,
            files,
            new_names: std::mem::take(&mut writer.new_names),
            highs: writer.take_changed(self),
            manifest,
            tells_damage,
        }
    }

    /// Its manifest was not written: the damage is still to be told of.
    fn take_back(&self, snapshot: &Snapshot) {
        if snapshot.tells_damage {
            self.counters.note_damage();
        }
    }

    fn segment_entries(&self, writer: &Writer, without: &[u32]) -> Vec<SegmentEntry> {
        let set = self.segments();
        let kept = set.values().filter(|segment| !without.contains(&segment.id));
        let entries = kept.map(|segment| SegmentEntry {
            id: segment.id,
            sealed: Some(segment.id) != writer.active_id(),
            without_footer: !segment.has_footer(),
            data_end: segment.data_end(),
            units: segment.units(),
            live_units: segment.live_units(),
            damaged: segment.is_quarantined(),
            incomplete: segment.is_incomplete(),
            lost: false,
            identity: Some((segment.origin, segment.salt)),
        });
        entries.chain(self.lost()).collect()
    }

    fn sync_files(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        for segment in &snapshot.files {
            segment.file.sync_data().map_err(|source| self.failed_sync(&segment.name, source))?;
        }
        if snapshot.new_names {
            self.sync_dir()?;
        }
        count(&self.counters.syncs, u64::from(!snapshot.files.is_empty()));
        // Order matters: a reader that learns that it is synced finds it in a backfill.
        self.synced_highs.advance(&snapshot.highs);
        self.synced.advance(snapshot.end);
        Ok(())
    }

    /// Makes names durable.
    pub(crate) fn sync_dir(&self) -> Result<(), StoreError> {
        self.fs.sync_dir(&self.dir).map_err(|source| self.failed_sync("directory", source))
    }

    /// After a failed sync nobody knows what the disk holds: the store is poisoned, whatever the reason was.
    pub(crate) fn failed_sync(&self, file: &str, source: std::io::Error) -> StoreError {
        let cause = StoreError::Io { action: "sync", file: file.to_owned(), source };
        self.counters.poison(&cause);
        cause
    }

    /// The manifest that was staged is the manifest.
    fn name_manifest(&self, manifest: &Manifest) -> Result<(), StoreError> {
        self.name(MANIFEST_TEMPORARY, MANIFEST)?;
        let of_log = |entry: &&SegmentEntry| !matches!(entry.identity, Some((Origin::Compacted, _)));
        let with_records = manifest.segments.iter().filter(|entry| entry.units > 0).filter(of_log);
        let newest = with_records.map(|entry| entry.id).max().unwrap_or(0);
        self.listed.fetch_max(newest, Ordering::Relaxed);
        self.unsettled.store(false, Ordering::Relaxed);
        notes::clear(self);
        count(&self.counters.manifest_writes, 1);
        Ok(())
    }

    /// Writes a small file, synced.
    fn stage(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let write = |file: Box<dyn FsFile>| {
            file.write_at(bytes, 0)?;
            Ok(file)
        };
        let file = self.fs.create(&self.dir.join(name)).and_then(write).map_err(|source| {
            let cause = io_error("write", name, source);
            if !matches!(cause, StoreError::NoSpace) {
                self.counters.poison(&cause);
            }
            cause
        })?;
        match file.sync_data() {
            // Nothing refers to it yet: the next attempt begins anew.
            Err(source) if is_no_space(&source) => Err(StoreError::NoSpace),
            synced => synced.map_err(|source| self.failed_sync(name, source)),
        }
    }

    /// Gives what was staged its name, after its content is durable; then the directory. A crash in between leaves the
    /// old or the new one.
    fn name(&self, temporary: &str, name: &str) -> Result<(), StoreError> {
        let (from, to) = (self.dir.join(temporary), self.dir.join(name));
        match self.fs.rename(&from, &to) {
            // The old one still has the name.
            Err(source) if is_no_space(&source) => return Err(StoreError::NoSpace),
            renamed => renamed.map_err(|source| self.failed_sync(name, source))?,
        }
        // From here on nobody knows which of the two a crash would leave: every failure poisons.
        self.sync_dir()
    }
}
