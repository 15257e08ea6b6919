//! The file below the log, and what became of its calls.
//!
//! Invariants:
//! - The kernel forgets what it could not write once it has said so, and a second sync reports success. So nothing
//!   reaches a file any more after a failed sync, or after any failure but missing space.
//! - A file is replaced as a whole or not at all, and durably.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    ops::Bound,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use redb::{
    BackendError, StorageBackend,
    backends::{FileBackend, InMemoryBackend},
};

/// Where the file is. Tests put one there that fails.
pub(super) trait Medium: Send {
    /// What the file holds, if there is one.
    fn read(&self) -> io::Result<Option<Vec<u8>>>;

    /// Puts a new file with these contents in its place; durable when it returns.
    fn replace(&self, contents: &[u8]) -> io::Result<()>;

    /// Opens the file that is there.
    fn open(&self) -> io::Result<Box<dyn StorageBackend>>;
}

/// A file of the operating system.
pub(super) struct OnDisk(pub(super) PathBuf);

impl OnDisk {
    fn folder(&self) -> &Path {
        self.0.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

/// Verifiers of passwords are inside: nobody else reads it.
fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

impl Medium for OnDisk {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.0) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn replace(&self, contents: &[u8]) -> io::Result<()> {
        let beside = self.0.with_extension("new");
        let mut file = private().create(true).truncate(true).open(&beside)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&beside, &self.0)?;
        File::open(self.folder())?.sync_all()
    }

    fn open(&self) -> io::Result<Box<dyn StorageBackend>> {
        let file = private().open(&self.0)?;
        Ok(Box::new(FileBackend::new(file).map_err(io::Error::other)?))
    }
}

/// How the calls of one file have gone; later ones are worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// None has failed.
    Well,
    /// A write found no space. Everything before it is as it was.
    NoSpace,
    /// Nobody knows what is on the disk.
    Unproven,
}

impl Fate {
    /// After an error of a call that was no sync.
    pub(super) fn after(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::Unproven,
        }
    }
}

/// The worst that has happened to a file so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Worst(Arc<AtomicU8>);

impl Worst {
    fn note(&self, fate: Fate) {
        self.0.fetch_max(fate as u8, Ordering::AcqRel);
    }

    /// See the type.
    pub(super) fn fate(&self) -> Fate {
        match self.0.load(Ordering::Acquire) {
            0 => Fate::Well,
            1 => Fate::NoSpace,
            _ => Fate::Unproven,
        }
    }
}

/// Remembers the worst that has happened to a file, and lets nothing through after that.
pub(super) struct Watched {
    file: Box<dyn StorageBackend>,
    worst: Worst,
}

impl Watched {
    /// The file, and where its fate is noted.
    pub(super) fn new(file: Box<dyn StorageBackend>) -> (Self, Worst) {
        let worst = Worst::default();
        (Self { file, worst: worst.clone() }, worst)
    }

    fn note<T>(&self, done: io::Result<T>, fate: impl FnOnce(&io::Error) -> Fate) -> io::Result<T> {
        done.inspect_err(|error| self.worst.note(fate(error)))
    }

    fn check(&self) -> io::Result<()> {
        match self.worst.fate() {
            Fate::Well => Ok(()),
            Fate::NoSpace | Fate::Unproven => Err(io::Error::other("an earlier call of this file failed")),
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watched").field("worst", &self.worst).finish_non_exhaustive()
    }
}

type Lock<T> = Result<T, BackendError>;

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        self.note(self.file.len(), |_| Fate::Unproven)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.note(self.file.read(offset, out), |_| Fate::Unproven)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.note(self.file.set_len(len), Fate::after)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        self.note(self.file.sync_data(), |_| Fate::Unproven)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.note(self.file.write(offset, data), Fate::after)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<bool> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<bool> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<()> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<()> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<()> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<bool> {
        self.file.query_lock_range(start, end)
    }
}

/// A file in memory, whose contents can be had.
#[derive(Clone, Debug, Default)]
pub(super) struct Image(Arc<InMemoryBackend>);

impl Image {
    pub(super) fn contents(&self) -> io::Result<Vec<u8>> {
        let mut contents = vec![0; usize::try_from(self.0.len()?).map_err(io::Error::other)?];
        self.0.read(0, &mut contents)?;
        Ok(contents)
    }
}

impl StorageBackend for Image {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}
