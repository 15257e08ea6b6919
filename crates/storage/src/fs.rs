//! The file system seam: the few calls the segment log makes, so that a test can own them.
//!
//! [`RealFs`] is the operating system, [`FaultFs`] an in-memory disk that loses, tears and refuses things on
//! purpose, [`ThrottledFs`] slows either down. All keep the contract below; one conformance suite runs against each.
//! Nothing else in this crate touches files.

mod budget;
mod fault;
mod real;
mod standing_back;
mod throttled;

use std::{io, path::Path};

pub use budget::{DiskBudget, DiskClock, DiskLane, DiskLimits, DiskUse};
pub use fault::{FaultCounts, FaultFs, FsCall};
pub use real::{RealFs, create_dirs_synced};
pub(crate) use standing_back::in_line;
pub use standing_back::{stand_back, stand_in_line};
pub use throttled::ThrottledFs;

/// Room on the disk of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes the disk holds.
    pub total: u64,
    /// Bytes that may still be written.
    pub free: u64,
}

/// A file system.
pub trait Fs: Send + Sync {
    /// Makes a directory and its parents; existing ones are fine.
    ///
    /// # Errors
    /// The operating system's.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Names of the files and directories in a directory, in no particular order.
    ///
    /// # Errors
    /// The operating system's.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes an empty file, replacing one of that name. The name is durable after `sync_dir`.
    ///
    /// # Errors
    /// The operating system's.
    fn create(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// The operating system's; `NotFound` when there is none.
    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;

    /// Removes a name. A thread that has the file open keeps using it.
    ///
    /// # Errors
    /// The operating system's.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory; none is fine.
    ///
    /// # Errors
    /// The operating system's.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Gives a file another name, atomically replacing what had it.
    ///
    /// # Errors
    /// The operating system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes names created, removed and renamed in `dir` durable.
    ///
    /// # Errors
    /// The operating system's.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes an exclusive lock on a file that is created if need be, held until the guard is dropped. `None`:
    /// somebody else has it.
    ///
    /// # Errors
    /// The operating system's.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockGuard>>>;

    /// Room on the disk that holds `dir`, which exists.
    ///
    /// # Errors
    /// The operating system's.
    fn space(&self, dir: &Path) -> io::Result<Space>;

    /// A number nobody can guess, for checksum seeds.
    fn random(&self) -> u64;
}

/// An open file. Positions are explicit: any number of threads may read while one writes.
pub trait FsFile: Send + Sync {
    /// Writes everything at `offset`, or fails having written any part.
    ///
    /// # Errors
    /// The operating system's.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Reads from `offset` on as the operating system does: perhaps less than was asked for, and a signal may interrupt it. 0: the
    /// file ends there.
    ///
    /// # Errors
    /// The operating system's.
    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads until `buffer` is full or the file ends; returns how much.
    ///
    /// # Errors
    /// The operating system's.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        read_fully(buffer, |rest, done| self.read_some_at(rest, offset + done))
    }

    /// Reserves space for a range, growing the file with zeros. File systems that cannot may do nothing.
    ///
    /// # Errors
    /// The operating system's; `StorageFull` when there is no space.
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Cuts or grows the file.
    ///
    /// # Errors
    /// The operating system's.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Makes content and length durable.
    ///
    /// # Errors
    /// The operating system's. After a failure nothing is known about what was written since the last success.
    fn sync_data(&self) -> io::Result<()>;

    /// The file's length.
    ///
    /// # Errors
    /// The operating system's.
    fn length(&self) -> io::Result<u64>;

    /// Says that a range will be read soon.
    fn will_read(&self, offset: u64, length: u64);
}

/// Fills a buffer from a call that may be interrupted, or give less than it was asked for.
fn read_fully(
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match read(rest, done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Keeps a lock until dropped.
pub trait LockGuard: Send + Sync {}

/// Whether an error means that no space (or no quota) is left.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether an error means that the disk could not give back what it holds there: damage like any other, found by the disk itself.
/// (Other errors say something about this process or the file system as a whole.)
#[must_use]
pub fn is_unreadable(error: &io::Error) -> bool {
    // What Linux file systems answer for a bad sector (EIO, ENODATA) and for a checksum of theirs that fails (EBADMSG, EUCLEAN,
    // EILSEQ).
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::ENODATA | libc::EBADMSG | libc::EUCLEAN | libc::EILSEQ)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_interrupted_reads_are_continued_and_the_end_of_a_file_ends_them() {
        let content: Vec<u8> = (0..100).collect();
        for length in [100, 130] {
            let (mut buffer, mut calls) = (vec![0; length], 0);
            let read = read_fully(&mut buffer, |rest, done| {
                calls += 1;
                if calls % 3 == 1 {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                let left = &content[done as usize..];
                let count = rest.len().min(left.len()).min(7);
                rest[..count].copy_from_slice(&left[..count]);
                Ok(count)
            });
            assert_eq!(read.unwrap(), 100);
            assert_eq!(buffer[..100], content);
        }
        let failed =
            read_fully(&mut [0; 8], |_, done| if done < 4 { Ok(4) } else { Err(io::Error::other("x")) });
        assert!(failed.is_err(), "half of it is not all there is");
    }
}
