//! The shard folders of a persistent bucket, and the record of how many there are.
//!
//! A bucket keeps its number of shards for its life, whatever the number of cores later: a vBucket's shard is its number modulo
//! that. With a folder too few, what is in the others would pass for the whole bucket. So the number is recorded apart from the
//! folders (`DIR/shards/UUID`). A bucket is opened with exactly the folders that the record wants, each with a store in it.
//!
//! Order matters. The record is written after every store has been created and synced: a record without its stores
//! means that somebody took them away. Folders without a record are those of a bucket that an older version made, or
//! whose creation a crash has cut short. They are adopted as they are. So a bucket that goes is recorded as dropped
//! before its folders are removed, and the record is removed last. What a failed removal or a crash leaves is removed
//! before the same bucket is opened again.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use storage::Fs;

use crate::files::renames::{ignore_missing, sync_parent};

/// Behind the name of a bucket's folder while its files are removed.
pub(crate) const GONE: &str = ".gone";
/// Behind the name of a bucket's folder or record while it is being made. A crash leaves it.
pub(crate) const STAGED: &str = ".new";
/// What the record of a bucket says that is going.
const DROPPED: &str = "dropped";

/// Why the folders of a bucket are not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShardsError {
    /// Some are not there, or others are.
    #[error(
        "the files in {folder} are not those of the whole bucket: {found}. To open it as it is would hide documents and lose \
         what is written meanwhile. Bring back what is missing; the node then opens the bucket by itself. If it is gone for good: \
         fail this node over first if other nodes have copies, then remove {folder} and {record}; the bucket begins empty here"
    )]
    Incomplete { folder: PathBuf, record: PathBuf, found: Box<Found> },
    /// The record is none.
    #[error(
        "{0} does not say how many shards the bucket has: bring the file back, or remove it if all folders of the bucket are there"
    )]
    Record(PathBuf),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What is wrong with the folders.
#[derive(Debug)]
pub(crate) struct Found {
    /// As recorded, or as the highest number says.
    wanted: usize,
    missing: Vec<usize>,
    emptied: Vec<usize>,
    surplus: Vec<usize>,
}

impl Found {
    fn is_whole(&self) -> bool {
        self.missing.is_empty() && self.emptied.is_empty() && self.surplus.is_empty()
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it has {} shards", self.wanted)?;
        let kinds = [
            (&self.missing, "has no folder"),
            (&self.emptied, "has a folder without its files"),
            (&self.surplus, "has a folder that should not be there"),
        ];
        for (shards, what) in kinds {
            for shard in shards {
                write!(f, ", shard {shard} {what}")?;
            }
        }
        Ok(())
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    /// How many there are.
    Shards(usize),
    /// The bucket is going.
    Dropped,
}

/// Where a bucket's shards are.
pub(crate) struct ShardFolders<'a> {
    /// Holds the folders 0, 1, ….
    pub(crate) folder: &'a Path,
    /// Says how many.
    pub(crate) record: &'a Path,
}

impl ShardFolders<'_> {
    /// How many shards the bucket has; those of a new one, of which there are to be `of_new`, are created.
    ///
    /// # Errors
    /// When the folders are not those that are recorded, and when files cannot be read or written.
    pub(crate) fn settle(&self, files: &dyn Fs, of_new: usize) -> Result<usize, ShardsError> {
        let recorded = match self.recorded()? {
            Some(Recorded::Dropped) => {
                self.remove()?;
                None
            }
            Some(Recorded::Shards(shards)) => Some(shards),
            None => None,
        };
        let present = numbered(self.folder)?;
        if recorded.is_none() && present.is_empty() {
            create_shards(self.folder, of_new)?;
            return Ok(of_new);
        }
        let shards = recorded.unwrap_or_else(|| present.iter().max().map_or(0, |last| last + 1));
        let (mut missing, mut emptied) = (Vec::new(), Vec::new());
        for shard in 0..shards {
            if !present.contains(&shard) {
                missing.push(shard);
            } else if recorded.is_some() && !storage::is_store(&self.of(shard), files)? {
                emptied.push(shard);
            }
        }
        let surplus = present.into_iter().filter(|&shard| shard >= shards).collect();
        let found = Box::new(Found { wanted: shards, missing, emptied, surplus });
        if found.is_whole() {
            return Ok(shards);
        }
        let (folder, record) = (self.folder.to_owned(), self.record.to_owned());
        Err(ShardsError::Incomplete { folder, record, found })
    }

    /// The folder of one shard.
    pub(crate) fn of(&self, shard: usize) -> PathBuf {
        self.folder.join(shard.to_string())
    }

    /// All stores are there, synced: from now on they must be.
    pub(crate) fn record(&self, shards: usize) -> Result<(), ShardsError> {
        if self.recorded()? == Some(Recorded::Shards(shards)) {
            return Ok(());
        }
        Ok(self.write_record(&shards.to_string())?)
    }

    fn write_record(&self, says: &str) -> io::Result<()> {
        let staged = beside(self.record, STAGED);
        let mut file = File::create(&staged)?;
        writeln!(file, "{says}")?;
        file.sync_all()?;
        fs::rename(&staged, self.record)?;
        sync_parent(self.record)
    }

    /// The bucket goes: removes its folders, and then its record.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let is_there = self.folder.try_exists()? || self.record.try_exists()?;
        if is_there && let Err(error) = self.write_record(DROPPED) {
            // A full disk has no room for the mark, and wants the room that the folders take.
            tracing::debug!(%error, folder = %self.folder.display(), "a bucket goes without a mark");
            forget(self.record)?;
        }
        remove_files(self.folder)?;
        forget(self.record)
    }

    fn recorded(&self) -> Result<Option<Recorded>, ShardsError> {
        match fs::read_to_string(self.record) {
            Ok(text) if text.trim_end() == DROPPED => Ok(Some(Recorded::Dropped)),
            Ok(text) => match text.trim_end().parse() {
                Ok(shards) if shards > 0 => Ok(Some(Recorded::Shards(shards))),
                _ => Err(ShardsError::Record(self.record.to_owned())),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(ShardsError::Record(self.record.to_owned()))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Removes all files of a bucket. After a crash either all or none of those are left that it would be opened with: their folder
/// is renamed first, for good.
fn remove_files(folder: &Path) -> io::Result<()> {
    let aside = beside(folder, GONE);
    // What a crash has left there would be in the way.
    ignore_missing(fs::remove_dir_all(&aside))?;
    match fs::rename(folder, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        outcome => outcome?,
    }
    sync_parent(folder)?;
    ignore_missing(fs::remove_dir_all(&aside))
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn forget(record: &Path) -> io::Result<()> {
    match fs::remove_file(record) {
        Ok(()) => sync_parent(record),
        missing => ignore_missing(missing),
    }
}

/// The numbers that folders in there are named by.
fn numbered(folder: &Path) -> io::Result<Vec<usize>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<usize>().ok()));
    }
    Ok(numbers)
}

/// Creates all shard folders or, after a crash, none: they are made aside, synced and renamed into place together.
fn create_shards(folder: &Path, shards: usize) -> io::Result<()> {
    let aside = beside(folder, STAGED);
    if aside.try_exists()? {
        fs::remove_dir_all(&aside)?;
    }
    for shard in 0..shards {
        fs::create_dir_all(aside.join(shard.to_string()))?;
    }
    File::open(&aside)?.sync_all()?;
    if folder.try_exists()? {
        fs::remove_dir(folder)?;
    }
    fs::rename(&aside, folder)?;
    sync_parent(folder)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use storage::{KvStore, RealFs};
    use tempfile::TempDir;

    use super::*;

    struct Place {
        dir: TempDir,
        folder: PathBuf,
        record: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let (folder, record) = (dir.path().join("uuid"), dir.path().join("uuid.shards"));
            Self { dir, folder, record }
        }

        fn folders(&self) -> ShardFolders<'_> {
            ShardFolders { folder: &self.folder, record: &self.record }
        }

        /// What a node does at a start.
        fn open(&self, of_new: usize) -> Result<usize, ShardsError> {
            let shards = self.folders().settle(&RealFs, of_new)?;
            for shard in 0..shards {
                let options = storage::Options { shard: shard as u32, ..storage::Options::default() };
                storage::open(&self.folders().of(shard), Arc::new(RealFs), options).unwrap().close().unwrap();
            }
            self.folders().record(shards)?;
            Ok(shards)
        }

        fn refusal(&self) -> String {
            let refused = self.open(4).unwrap_err();
            assert!(matches!(refused, ShardsError::Incomplete { .. }), "{refused}");
            let said = refused.to_string();
            assert!(said.contains("Bring back") && said.contains("uuid.shards"), "{said}");
            said
        }
    }

    #[test]
    fn shard_folders_come_all_at_once_and_their_number_stays() {
        let place = Place::new();
        fs::create_dir_all(place.dir.path().join("uuid.new").join("0")).unwrap();
        assert_eq!(place.open(3).unwrap(), 3);
        assert_eq!(place.open(2).unwrap(), 3, "whatever the number of cores is by now");
    }

    #[test]
    fn a_lost_folder_does_not_pass_for_a_smaller_bucket() {
        for lost in 0..3 {
            let place = Place::new();
            place.open(3).unwrap();
            let (from, to) = (place.folders().of(lost), place.dir.path().join("away"));
            fs::rename(&from, &to).unwrap();
            assert!(place.refusal().contains(&format!("shard {lost} has no folder")));
            assert!(!from.exists(), "nothing was made in its place");
            fs::rename(&to, &from).unwrap();
            assert_eq!(place.open(4).unwrap(), 3);
        }
    }

    #[test]
    fn an_emptied_folder_does_not_pass_for_an_empty_shard() {
        let place = Place::new();
        place.open(2).unwrap();
        fs::remove_dir_all(place.folders().of(1)).unwrap();
        fs::create_dir(place.folders().of(1)).unwrap();
        assert!(place.refusal().contains("shard 1 has a folder without its files"));
    }

    #[test]
    fn a_lost_or_emptied_bucket_folder_does_not_pass_for_a_new_bucket() {
        let place = Place::new();
        place.open(2).unwrap();
        fs::remove_dir_all(&place.folder).unwrap();
        assert!(place.refusal().contains("shard 0 has no folder, shard 1 has no folder"));
        fs::create_dir(&place.folder).unwrap();
        place.refusal();
        // What the message says.
        fs::remove_dir(&place.folder).unwrap();
        forget(&place.record).unwrap();
        assert_eq!(place.open(4).unwrap(), 4);
    }

    #[test]
    fn a_folder_too_many_is_no_shard() {
        let place = Place::new();
        place.open(2).unwrap();
        fs::create_dir(place.folders().of(2)).unwrap();
        assert!(place.refusal().contains("shard 2 has a folder that should not be there"));
    }

    #[test]
    fn folders_of_an_older_version_are_adopted_unless_one_between_is_missing() {
        let place = Place::new();
        place.open(3).unwrap();
        fs::remove_file(&place.record).unwrap();
        assert_eq!(place.open(4).unwrap(), 3);
        assert_eq!(fs::read_to_string(&place.record).unwrap(), "3\n");
        fs::remove_file(&place.record).unwrap();
        fs::remove_dir_all(place.folders().of(1)).unwrap();
        assert!(place.refusal().contains("shard 1 has no folder"));
    }

    #[test]
    fn a_creation_that_a_crash_has_cut_short_is_gone_on_with() {
        let place = Place::new();
        assert_eq!(place.folders().settle(&RealFs, 3).unwrap(), 3);
        // No store and no record yet.
        assert_eq!(place.open(4).unwrap(), 3);
    }

    #[test]
    fn a_damaged_record_is_not_guessed() {
        let place = Place::new();
        place.open(2).unwrap();
        for damage in [&b""[..], b"0\n", b"two\n", b"\xff\xfe"] {
            fs::write(&place.record, damage).unwrap();
            assert!(matches!(place.open(2), Err(ShardsError::Record(_))), "{damage:?}");
        }
    }

    #[test]
    fn what_a_removal_that_was_cut_short_has_left_is_not_adopted() {
        let place = Place::new();
        place.open(3).unwrap();
        place.folders().write_record(DROPPED).unwrap();
        assert_eq!(place.open(2).unwrap(), 2, "a new bucket");
        // Taken aside, and not removed.
        let aside = place.folder.with_added_extension("gone");
        fs::rename(&place.folder, &aside).unwrap();
        place.folders().write_record(DROPPED).unwrap();
        assert_eq!(place.open(1).unwrap(), 1);
        place.folders().remove().unwrap();
        assert!(!place.folder.exists() && !place.record.exists() && !aside.exists());
        place.folders().remove().unwrap();
    }

    #[test]
    fn files_are_removed_whatever_a_crash_has_left_of_an_earlier_try() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("uuid");
        for left in ["uuid.gone/1", "uuid/0"] {
            fs::create_dir_all(dir.path().join(left)).unwrap();
        }
        remove_files(&folder).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        remove_files(&folder).unwrap();
    }
}
