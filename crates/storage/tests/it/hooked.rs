//! A disk that calls the test before it does what it was asked for: so a test stands at any moment of an operation.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use settee_storage::{Fs, FsFile, LockGuard, Space};

/// What the disk was asked for, and of which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Create,
    /// So many bytes from an offset on.
    Read(u64, usize),
}

type Hook = dyn Fn(Asked, &str) -> io::Result<()> + Send + Sync;

/// Calls the hook, then the disk behind it. The hook is not called while it runs, nor when there is none.
#[derive(Clone)]
pub(crate) struct HookedFs {
    inner: Arc<dyn Fs>,
    hook: Arc<Mutex<Option<Box<Hook>>>>,
}

impl HookedFs {
    pub(crate) fn new(inner: Arc<dyn Fs>) -> Self {
        Self { inner, hook: Arc::default() }
    }

    /// From now on.
    pub(crate) fn set(&self, hook: impl Fn(Asked, &str) -> io::Result<()> + Send + Sync + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    fn call(&self, asked: Asked, name: &str) -> io::Result<()> {
        let Some(hook) = self.hook.lock().unwrap().take() else { return Ok(()) };
        let result = hook(asked, name);
        self.hook.lock().unwrap().get_or_insert(hook);
        result
    }

    fn file(&self, path: &Path, inner: Box<dyn FsFile>) -> Box<dyn FsFile> {
        Box::new(HookedFile { fs: self.clone(), name: name_of(path), inner })
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Fs for HookedFs {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        self.call(Asked::Create, &name_of(path))?;
        self.inner.create(path).map(|file| self.file(path, file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        self.inner.open(path).map(|file| self.file(path, file))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.remove_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
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

struct HookedFile {
    fs: HookedFs,
    name: String,
    inner: Box<dyn FsFile>,
}

impl FsFile for HookedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)
    }

    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_some_at(buffer, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.fs.call(Asked::Read(offset, buffer.len()), &self.name)?;
        self.inner.read_at(buffer, offset)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.allocate(offset, length)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.inner.truncate(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn will_read(&self, offset: u64, length: u64) {
        self.inner.will_read(offset, length);
    }
}
