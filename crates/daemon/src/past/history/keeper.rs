//! Carries the past of statistics to the disk and back: `DIR/history/UUID`, one file of fixed size for each bucket ([`super::file`]).
//!
//! What is new goes there once a minute, in one batch, with the steps that are not over. So a process that is killed loses a minute at
//! most. A bucket's file is read once, when the bucket is first sampled. Nothing here holds up anything else: a disk that stands
//! still, is full or damaged costs the past its persistence, and nothing more.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::PathBuf,
};

use super::{History, file::HistoryFile};

/// More buckets have no file, until one that has is dropped.
const FILES_MAX: usize = 100;

/// The files of this node's buckets.
#[derive(Debug)]
pub(crate) struct Keeper {
    folder: PathBuf,
    files_max: usize,
    /// By uuid. None: the file cannot be had, which has been said.
    files: BTreeMap<String, Option<HistoryFile>>,
    /// Whether the last write failed, which has been said.
    fails: bool,
}

impl Keeper {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, files_max: FILES_MAX, files: BTreeMap::new(), fails: false }
    }

    /// A folder of so many files at most.
    #[cfg(test)]
    pub(crate) fn of_files(folder: PathBuf, files_max: usize) -> Self {
        Self { files_max, ..Self::new(folder) }
    }

    /// Reads what is new. Where it is time to write, writes as well, and removes the files of buckets that are not `known`.
    pub(crate) fn turn(
        &mut self,
        history: &History,
        is_due: bool,
        known: impl FnOnce() -> Option<BTreeSet<String>>,
    ) -> io::Result<()> {
        self.load(history);
        if !is_due {
            return Ok(());
        }
        self.write(history);
        // Order matters: asked before, it would not know a bucket that was made meanwhile and has a file by now.
        known().map_or(Ok(()), |known| self.remove_dropped(&known))
    }

    /// Reads the files of buckets that are new in this process, and of those that had no place before.
    pub(crate) fn load(&mut self, history: &History) {
        let open = history.open();
        self.files.retain(|uuid, _| open.contains(uuid));
        if self.files.len() < self.files_max {
            open.iter()
                .filter(|uuid| !self.files.contains_key(*uuid))
                .for_each(|uuid| history.read_again(uuid));
        }
        let mut unread = history.unread();
        // Those that have a file keep it: otherwise files that nothing is written to would be left.
        unread.sort_by_key(|fresh| !self.folder.join(&fresh.uuid).exists());
        for fresh in unread {
            let names: Vec<&str> =
                fresh.columns.iter().filter_map(|about| about.rest.first().copied()).collect();
            // Out of the map before it is opened anew: a bucket that was closed and opened comes again.
            let was_refused = matches!(self.files.remove(&fresh.uuid), Some(None));
            if self.files.len() >= self.files_max {
                continue;
            }
            let path = self.folder.join(&fresh.uuid);
            let opened = fs::create_dir_all(&self.folder).and_then(|()| HistoryFile::open(&path, &names));
            let file = path.display();
            let opened = match opened {
                Ok((opened, kept)) => {
                    if kept.is_lost {
                        tracing::warn!(%file, bucket = fresh.bucket, "the history of statistics is damaged: it begins anew");
                    } else if kept.damaged > 0 {
                        tracing::warn!(
                            %file, bucket = fresh.bucket, steps = kept.damaged,
                            "parts of the history of statistics are damaged: they are left out"
                        );
                    }
                    history.adopt(&fresh.bucket, &fresh.uuid, kept);
                    Some(opened)
                }
                Err(error) => {
                    if !was_refused {
                        tracing::warn!(%error, %file, bucket = fresh.bucket, "the history of statistics cannot be kept on disk");
                    }
                    None
                }
            };
            self.files.insert(fresh.uuid, opened);
        }
    }

    /// Writes what is new, and lets go of buckets that are closed.
    pub(crate) fn write(&mut self, history: &History) {
        let open = history.open();
        self.files.retain(|uuid, _| open.contains(uuid));
        let mut failed = None;
        for (uuid, file) in &self.files {
            let Some(file) = file else {
                history.read_again(uuid);
                continue;
            };
            let write = |(zoom, step)| file.write(zoom, &step);
            match history.unwritten(uuid).into_iter().try_for_each(write) {
                Ok(()) => history.written(uuid),
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed.as_ref().filter(|_| !self.fails) {
            let folder = self.folder.display();
            tracing::warn!(%error, %folder, "the history of statistics could not be written");
        }
        self.fails = failed.is_some();
    }

    /// Removes the files of buckets that were dropped. Nothing that fails keeps the other files.
    pub(crate) fn remove_dropped(&self, known: &BTreeSet<String>) -> io::Result<()> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut outcome = Ok(());
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let uuid = name.strip_suffix(".new").unwrap_or(name);
            if uuid.len() == 32
                && uuid.bytes().all(|digit| digit.is_ascii_hexdigit())
                && !known.contains(uuid)
            {
                outcome = outcome.and(fs::remove_file(entry.path()));
            }
        }
        outcome
    }
}
