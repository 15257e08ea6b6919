//! The file below the log, and what became of its calls.
//!
//! Invariants:
//! - The kernel forgets what it could not write once it has said so, and a second sync reports success. So nothing
//!   reaches a file any more after a failed sync, or after any failure but missing space.
//! - A file is replaced as a whole or not at all, and durably.
//! - An open file is only written. What is read of it comes from memory, where it was verified. So a bit that flips on the disk is
//!   never copied to where a new checksum covers it.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use redb::{StorageBackend, backends::InMemoryBackend};

/// Where a log's file is. Simulations and tests put one there that fails.
pub trait Medium: Send {
    /// What the file holds, if there is one.
    ///
    /// # Errors
    /// Where it cannot be read.
    fn read(&self) -> io::Result<Option<Vec<u8>>>;

    /// Puts a new file with these contents in its place; durable when it returns.
    ///
    /// # Errors
    /// Where that fails.
    fn replace(&self, contents: &[u8]) -> io::Result<()>;

    /// Opens the file that is there.
    ///
    /// # Errors
    /// Where that fails.
    fn open(&self) -> io::Result<Box<dyn LogFile>>;
}

/// An open file of a [`Medium`].
pub trait LogFile: Send + Sync {
    /// Makes it as long as that, with zeros where it grows.
    ///
    /// # Errors
    /// Where that fails.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Writes these bytes at that place.
    ///
    /// # Errors
    /// Where that fails.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// All that was written is durable when it returns.
    ///
    /// # Errors
    /// Where that fails.
    fn sync(&self) -> io::Result<()>;
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

    fn open(&self) -> io::Result<Box<dyn LogFile>> {
        Ok(Box::new(private().open(&self.0)?))
    }
}

impl LogFile for File {
    fn set_len(&self, len: u64) -> io::Result<()> {
        Self::set_len(self, len)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
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

/// A file as `redb` sees it: it remembers the worst that has happened to it, and lets nothing through after that. What is read is what
/// was in it when it was opened, and what was written since.
pub(super) struct Watched {
    file: Box<dyn LogFile>,
    seen: InMemoryBackend,
    worst: Worst,
}

impl Watched {
    /// The file, which holds these bytes, and where its fate is noted.
    pub(super) fn new(file: Box<dyn LogFile>, contents: &[u8]) -> io::Result<(Self, Worst)> {
        let (seen, worst) = (InMemoryBackend::new(), Worst::default());
        seen.set_len(contents.len() as u64)?;
        StorageBackend::write(&seen, 0, contents)?;
        Ok((Self { file, seen, worst: worst.clone() }, worst))
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

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        self.seen.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.seen.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.note(self.file.set_len(len), Fate::after)?;
        self.seen.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        self.note(self.file.sync(), |_| Fate::Unproven)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.note(self.file.write(offset, data), Fate::after)?;
        self.seen.write(offset, data)
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
