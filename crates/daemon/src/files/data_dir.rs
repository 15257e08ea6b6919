//! The data directory: who may use it, and where things lie in it.
//!
//! ```text
//! DIR/lock              held for as long as the process runs
//! DIR/metadata/         the log of the cluster's metadata (`cluster::consensus`)
//! DIR/tls/              self-signed certificate and key, when none were given, and what an operator brought (`crate::setup::certificates`)
//! DIR/keys/UUID.key     what the node of that uuid proves with who it is (`dataplane::node_keys`)
//! DIR/inbox/            where an operator leaves certificates to be taken
//! DIR/audit.log         logins and administrative changes, one JSON object a line; older ones in audit-TIME.log
//! DIR/quickstart-password  the administrator's password that `settee quickstart` made
//! DIR/buckets/UUID/N/   segment log of shard N of a bucket (crate `storage`); UUID.new and UUID.gone: as it is made and removed
//! DIR/services/NAME/    what the service of that name keeps; of `views`: the indexes of bucket UUID in UUID/
//! DIR/objectives        what was counted for objectives of buckets (`crate::watching::objectives`)
//! DIR/collected/        archives of logs that an administrator has had the node make, three at most
//! DIR/history/UUID      the past of a bucket's statistics (`crate::past::history`)
//! DIR/shards/UUID       how many shards a bucket has (`crate::files::shards`)
//! ```
//!
//! All of it is for the user that runs the process and for nobody else: folders have mode 0700, files 0600. What an earlier
//! version left open to others is tightened when the directory is opened.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::{fd::AsRawFd, unix::fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

use base::BucketUuid;
use storage::create_dirs_synced;

use crate::files::shards::{GONE, STAGED, ShardFolders};

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another process holds the lock.
    #[error("{0} is in use by another settee process; stop it or choose another --data-dir")]
    InUse(PathBuf),
    /// There are buckets, and the file that says what they are is gone.
    #[error(
        "{0} holds buckets, but its metadata file is missing; bring the file back, or remove {0}/buckets if the \
         documents are not needed"
    )]
    NoMetadata(PathBuf),
    /// The directory cannot be created or locked.
    #[error("cannot use data directory {path}: {source}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// The file with what was counted for objectives of buckets.
pub(crate) const OBJECTIVES: &str = "objectives";
/// The folder of archives of logs that an administrator has had this node make.
pub(crate) const COLLECTED: &str = "collected";
/// The folder of the past of statistics.
pub(crate) const HISTORY: &str = "history";
/// Folders within one another that are tightened: more than there are, so that a link in a circle ends.
const FOLDERS_DEEP: usize = 8;

/// A locked data directory. The lock goes with the process, however it ends.
pub(crate) struct DataDir {
    root: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Creates the directory if missing and locks it. From here on the process makes every file and folder for its user alone.
    pub(crate) fn open(root: &Path) -> Result<Self, DataDirError> {
        let failed = |source| DataDirError::Io { path: root.to_path_buf(), source };
        // SAFETY: umask takes a number and cannot fail; no memory is involved.
        unsafe { libc::umask(0o077) };
        // What is synced in there later must not go with a folder that was not, however far up that is.
        for folder in ["buckets", "metadata", "tls", "keys", "inbox/CA", "shards", "services"] {
            create_dirs_synced(&root.join(folder)).map_err(failed)?;
        }
        // A start that was interrupted may have made some, and not synced them.
        File::open(root).and_then(|root| root.sync_all()).map_err(failed)?;
        // The folder around may be somebody else's and unreadable; then it was not us who made this one.
        if let Some(Ok(around)) = root.canonicalize().map_err(failed)?.parent().map(File::open) {
            around.sync_all().map_err(failed)?;
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root.join("lock"))
            .map_err(failed)?;
        // SAFETY: flock on a descriptor that `lock` keeps open; no memory is involved.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            let error = io::Error::last_os_error();
            return Err(match error.kind() {
                io::ErrorKind::WouldBlock => DataDirError::InUse(root.to_path_buf()),
                _ => failed(error),
            });
        }
        // The volume may belong to somebody else who lets this user in by its group: then it is for him to say who else may.
        if let Err(error) = tighten(root, FOLDERS_DEEP) {
            tracing::warn!(%error, folder = %root.display(), "others may be able to read the data directory");
        }
        Ok(Self { root: root.to_path_buf(), _lock: lock })
    }

    pub(crate) fn metadata(&self) -> PathBuf {
        self.root.join("metadata")
    }

    pub(crate) fn tls(&self) -> PathBuf {
        self.root.join("tls")
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.root.join("keys")
    }

    pub(crate) fn inbox(&self) -> PathBuf {
        self.root.join("inbox")
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.root.join("audit.log")
    }

    /// Folder of one bucket; a bucket created anew under the same name has another uuid and folder.
    pub(crate) fn bucket(&self, uuid: &BucketUuid) -> PathBuf {
        self.root.join("buckets").join(&uuid.0)
    }

    /// Folder of one service, which may be missing.
    pub(crate) fn service(&self, name: &str) -> PathBuf {
        self.root.join("services").join(name)
    }

    /// The file that says how many shards a bucket has.
    pub(crate) fn shards_record(&self, uuid: &BucketUuid) -> PathBuf {
        self.root.join("shards").join(&uuid.0)
    }

    /// Refuses a directory with buckets: without metadata each of them would be taken for a dropped one.
    pub(crate) fn require_no_buckets(&self) -> Result<(), DataDirError> {
        let failed = |source| DataDirError::Io { path: self.root.clone(), source };
        match fs::read_dir(self.root.join("buckets")).map_err(failed)?.next() {
            Some(_) => Err(DataDirError::NoMetadata(self.root.clone())),
            None => Ok(()),
        }
    }

    /// Removes records and folders of buckets that the metadata no longer knows. A crash leaves them in the middle of a drop, or of
    /// making a bucket. What this node cannot have named stays, such as a copy that an operator has put beside a bucket.
    ///
    /// # Errors
    /// The first one. What is left of other buckets is removed all the same.
    pub(crate) fn remove_unknown_buckets(&self, known: impl Fn(&str) -> bool) -> io::Result<()> {
        let is_dropped =
            |name: &OsStr| name.to_str().is_some_and(|name| is_of_a_bucket(name) && !known(name));
        // Order matters: a folder without a record is a bucket's of an older version, a record without a folder a bucket's that
        // has lost it.
        let mut outcome = Ok(());
        for entry in fs::read_dir(self.root.join("shards"))? {
            let entry = entry?;
            let name = entry.file_name();
            if is_dropped(&name) && name.as_encoded_bytes().ends_with(STAGED.as_bytes()) {
                outcome = outcome.and(fs::remove_file(entry.path()));
            } else if is_dropped(&name) {
                let folder = self.root.join("buckets").join(entry.file_name());
                outcome = outcome.and(ShardFolders { folder: &folder, record: &entry.path() }.remove());
            }
        }
        for entry in fs::read_dir(self.root.join("buckets"))? {
            let entry = entry?;
            // The record says that it is dropped as long as its folders are not removed.
            let is_left = self.root.join("shards").join(entry.file_name()).exists();
            if is_dropped(&entry.file_name()) && !is_left {
                tracing::info!(folder = %entry.path().display(), "removing what is left of a dropped bucket");
                outcome = outcome.and(fs::remove_dir_all(entry.path()));
            }
        }
        outcome
    }
}

/// Whether an entry of this name is a bucket's, or one on its way in or out. Such a name is a uuid, 32 digits of base 16.
fn is_of_a_bucket(name: &str) -> bool {
    let uuid = [GONE, STAGED].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    uuid.len() == 32 && uuid.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Takes a folder and all that is in it away from everybody but its owner. The folder itself is last: where it is for its owner
/// alone, so is what is in it.
fn tighten(folder: &Path, deep: usize) -> io::Result<()> {
    if deep == 0 || fs::metadata(folder)?.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // A link may lead nowhere.
        let Ok(found) = fs::metadata(&path) else { continue };
        if found.is_dir() {
            tighten(&path, deep - 1)?;
        } else if found.is_file() && found.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        }
    }
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_use_is_refused_and_free_again_after_release() {
        let dir = tempfile::tempdir().unwrap();
        let held = DataDir::open(dir.path()).unwrap();
        assert!(matches!(DataDir::open(dir.path()), Err(DataDirError::InUse(_))));
        drop(held);
        DataDir::open(dir.path()).unwrap();
    }

    #[test]
    fn nobody_else_reads_what_is_there_or_comes_later() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("data");
        let old = root.join("buckets/uuid/0");
        fs::create_dir_all(&old).unwrap();
        fs::write(old.join("segment"), "document").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for path in [&root, &root.join("buckets"), &root.join("buckets/uuid"), &old] {
            set(path, 0o755);
        }
        set(&old.join("segment"), 0o644);
        let data = DataDir::open(&root).unwrap();
        fs::create_dir(data.bucket(&BucketUuid("new".into()))).unwrap();
        fs::write(data.audit_log(), "line").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for folder in [root.clone(), old.clone(), data.tls(), data.bucket(&BucketUuid("new".into()))] {
            assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        }
        for file in [old.join("segment"), root.join("lock"), data.audit_log()] {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    }

    #[test]
    fn buckets_without_metadata_are_not_taken_for_dropped_ones() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        data.require_no_buckets().unwrap();
        fs::create_dir_all(data.bucket(&BucketUuid("orphan".into()))).unwrap();
        assert!(matches!(data.require_no_buckets(), Err(DataDirError::NoMetadata(_))));
    }

    #[test]
    fn a_dropped_bucket_that_cannot_be_removed_keeps_no_other_one() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let dropped = ["1", "2", "3"].map(|digit| BucketUuid(digit.repeat(32)));
        for uuid in &dropped {
            fs::create_dir_all(data.bucket(uuid).join("0")).unwrap();
            fs::write(data.shards_record(uuid), "1\n").unwrap();
        }
        // Where its folder is to be taken aside, a file is in the way.
        let aside = dir.path().join("buckets").join(format!("{}{GONE}", dropped[1].0));
        fs::write(&aside, b"").unwrap();
        assert!(data.remove_unknown_buckets(|_| false).is_err());
        assert_eq!(dropped.map(|uuid| data.bucket(&uuid).exists()), [false, true, false]);
    }

    #[test]
    fn only_folders_of_unknown_buckets_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let [kept, dropped] = ["1", "2"].map(|digit| digit.repeat(32));
        let copy = format!("{dropped}.bak");
        // A crash in the middle of making a bucket.
        let half_made = format!("{dropped}.new");
        for uuid in [&kept, &dropped, &copy, &half_made] {
            fs::create_dir_all(data.bucket(&BucketUuid(uuid.clone())).join("0")).unwrap();
            fs::write(data.shards_record(&BucketUuid(uuid.clone())), "1\n").unwrap();
        }
        data.remove_unknown_buckets(|uuid| uuid == kept).unwrap();
        for (uuid, is_kept) in [(kept, true), (dropped, false), (copy, true), (half_made, false)] {
            let uuid = BucketUuid(uuid);
            assert_eq!(data.bucket(&uuid).exists(), is_kept);
            assert_eq!(data.shards_record(&uuid).exists(), is_kept);
        }
    }
}
