//! The operating system's files: preallocation, `fdatasync`, directory syncs, advisory locks.

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions, TryLockError},
    hash::{BuildHasher, RandomState},
    io,
    mem::MaybeUninit,
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::Path,
};

use super::{Fs, FsFile, LockGuard, Space};

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

struct RealFile(File);

struct RealLock(#[expect(dead_code, reason = "closing the file releases the lock")] File);

impl LockGuard for RealLock {}

impl Fs for RealFs {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        create_dirs_synced(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            // A name that is not UTF-8 is not one of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Box::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        Ok(Box::new(RealFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        match fs::remove_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockGuard>>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(RealLock(file)))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        let path = CString::new(dir.as_os_str().as_bytes())?;
        let mut found = MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the path ends with a zero byte and the buffer is as large as the call expects; both outlive it.
        if unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has succeeded, so it has filled the buffer.
        let found = unsafe { found.assume_init() };
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        // What only the superuser may use is not ours.
        Ok(Space { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }

    fn random(&self) -> u64 {
        // The standard library seeds every `RandomState` from the operating system's entropy.
        RandomState::new().hash_one(0u8)
    }
}

impl FsFile for RealFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let (start, span) = (offset as libc::off_t, length as libc::off_t);
        loop {
            // SAFETY: plain system call on a descriptor that `self` keeps open; no memory is passed.
            if unsafe { libc::fallocate(self.0.as_raw_fd(), 0, start, span) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // Not every file system can: writes then find out about full disks themselves.
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => return Ok(()),
                Some(libc::EINTR) => {}
                _ => return Err(error),
            }
        }
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn will_read(&self, offset: u64, length: u64) {
        let (start, span) = (offset as libc::off_t, length as libc::off_t);
        // SAFETY: plain system call on a descriptor that `self` keeps open; no memory is passed. It is only a
        // hint, so its result does not matter.
        unsafe { libc::posix_fadvise(self.0.as_raw_fd(), start, span, libc::POSIX_FADV_WILLNEED) };
    }
}

/// Makes a directory and its parents; existing ones are fine. The name of each that was made is durable in the end.
///
/// # Errors
/// The operating system's.
pub fn create_dirs_synced(dir: &Path) -> io::Result<()> {
    create_dirs(dir, &mut |parent| File::open(parent)?.sync_all())
}

/// As [`create_dirs_synced`]; `sync` is asked to make durable what a directory lists.
fn create_dirs(dir: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let missing: Vec<&Path> =
        dir.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.is_dir()).collect();
    for path in missing.iter().rev() {
        match fs::create_dir(path) {
            Ok(()) => {}
            // Somebody else has just made it, and may not have synced it yet.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            Err(error) => return Err(error),
        }
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync(parent)?,
            // A relative path of one part.
            _ => sync(Path::new("."))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_that_is_made_is_synced_in_its_parent() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let mut synced = Vec::new();
        let mut make = |dir: &Path| {
            create_dirs(dir, &mut |parent| {
                synced.push(parent.to_owned());
                File::open(parent)?.sync_all()
            })
            .unwrap();
            std::mem::take(&mut synced)
        };
        assert_eq!(make(&at("a/b/c")), [at(""), at("a"), at("a/b")]);
        assert!(at("a/b/c").is_dir());
        assert_eq!(make(&at("a/b/d")), [at("a/b")]);
        assert!(make(&at("a/b/d")).is_empty());
        fs::write(at("file"), "x").unwrap();
        assert!(create_dirs_synced(&at("file/sub")).is_err());
    }
}
