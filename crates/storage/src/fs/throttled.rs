//! A file system that takes as long as its [`DiskBudget`] says. It is for tests of what happens on a slow disk, and
//! for the sake of other users of the same disk. Several may share a budget: each is a lane of its own there.
//!
//! Every read, write and sync, and every change of a name, is charged before it is carried out. Opening, listing and
//! asking for a length are free. What the other file system does with a request is its own affair.

use std::{io, path::Path, sync::Arc};

use super::{DiskBudget, DiskLane, Fs, FsFile, LockGuard, Space};

/// See the module.
#[derive(Clone)]
pub struct ThrottledFs {
    inner: Arc<dyn Fs>,
    lane: Arc<DiskLane>,
}

struct ThrottledFile {
    inner: Box<dyn FsFile>,
    lane: Arc<DiskLane>,
}

impl ThrottledFs {
    /// A file system within a budget, which others may share.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>, budget: Arc<DiskBudget>) -> Self {
        Self { inner, lane: Arc::new(DiskLane::new(budget)) }
    }

    fn file(&self, inner: Box<dyn FsFile>) -> Box<dyn FsFile> {
        Box::new(ThrottledFile { inner, lane: self.lane.clone() })
    }
}

impl Fs for ThrottledFs {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        self.lane.charge(0);
        self.inner.create(path).map(|file| self.file(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        self.inner.open(path).map(|file| self.file(file))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.lane.charge(0);
        self.inner.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.lane.charge(0);
        self.inner.remove_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.lane.charge(0);
        self.inner.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.lane.charge(0);
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockGuard>>> {
        self.inner.lock(path)
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        self.inner.space(dir)
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }
}

impl FsFile for ThrottledFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.lane.charge(bytes.len() as u64);
        self.inner.write_at(bytes, offset)
    }

    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.lane.charge(buffer.len() as u64);
        self.inner.read_some_at(buffer, offset)
    }

    /// Charged once, in however many pieces it comes.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.lane.charge(buffer.len() as u64);
        self.inner.read_at(buffer, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.lane.charge(0);
        self.inner.allocate(offset, length)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.lane.charge(0);
        self.inner.truncate(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.lane.charge(0);
        self.inner.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn will_read(&self, offset: u64, length: u64) {
        self.inner.will_read(offset, length);
    }
}
