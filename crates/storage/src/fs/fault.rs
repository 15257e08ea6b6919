//! A disk in memory that misbehaves on purpose, the same way for the same seed.
//!
//! Content and names are held twice: as a running process sees them, and as they would be found after a power
//! failure. `sync_data` and `sync_dir` carry the first over to the second; [`FaultFs::crash`] keeps of the rest
//! what the seed says: per page the new bytes, the old ones, or sectors of both, in any combination, and garbage where the file
//! has grown; of the names any of the changes. Handles from before a crash answer every call with an error.
//!
//! A sync that loses ([`FaultFs::lose_syncs`]) fails as Linux does: it takes the pages for clean, the cache goes on showing what
//! was written, until the page is evicted, and a later sync that succeeds passes over them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use super::{Fs, FsFile, LockGuard, Space};

const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// See the module. Clones share one disk.
#[derive(Clone)]
pub struct FaultFs(Arc<Mutex<Disk>>);

struct Disk {
    names: BTreeMap<PathBuf, Inode>,
    durable_names: BTreeMap<PathBuf, Inode>,
    /// Changes of names that no directory sync has covered.
    pending: Vec<NameChange>,
    inodes: Vec<Weak<Mutex<Content>>>,
    locks: BTreeMap<PathBuf, u64>,
    /// Handles of other epochs are from before a crash.
    epoch: u64,
    dead: bool,
    capacity: Option<u64>,
    changes_until_crash: Option<u64>,
    changes: u64,
    fail_sync: bool,
    lose_sync: bool,
    fail_write: bool,
    failing: BTreeMap<FsCall, i32>,
    random: u64,
}

/// A call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FsCall {
    /// [`Fs::create`].
    Create,
    /// [`Fs::open`].
    Open,
    /// [`Fs::remove`].
    Remove,
    /// [`Fs::rename`].
    Rename,
    /// [`Fs::sync_dir`].
    SyncDir,
    /// [`FsFile::allocate`].
    Allocate,
    /// [`FsFile::truncate`].
    Truncate,
    /// [`FsFile::sync_data`].
    SyncData,
}

type Inode = Arc<Mutex<Content>>;

#[derive(Default)]
struct Content {
    /// Open handles.
    handles: usize,
    bytes: Vec<u8>,
    durable_length: usize,
    /// Per page changed since the last sync: what is durable there.
    durable_pages: BTreeMap<usize, Vec<u8>>,
    /// Those of them that a failed sync has taken for clean.
    lost_pages: BTreeSet<usize>,
    /// Pages that cannot be read until they are written.
    bad_pages: BTreeSet<usize>,
}

enum NameChange {
    Set(PathBuf, Inode),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, Inode),
}

struct FaultFile {
    disk: Arc<Mutex<Disk>>,
    inode: Inode,
    epoch: u64,
}

impl FaultFile {
    fn new(disk: &Arc<Mutex<Disk>>, inode: Inode, epoch: u64) -> Self {
        inode.lock().handles += 1;
        Self { disk: disk.clone(), inode, epoch }
    }
}

impl Drop for FaultFile {
    fn drop(&mut self) {
        self.inode.lock().handles -= 1;
    }
}

struct FaultLock {
    disk: Arc<Mutex<Disk>>,
    path: PathBuf,
    epoch: u64,
}

impl LockGuard for FaultLock {}

impl Drop for FaultLock {
    fn drop(&mut self) {
        let mut disk = self.disk.lock();
        if disk.locks.get(&self.path) == Some(&self.epoch) {
            disk.locks.remove(&self.path);
        }
    }
}

impl FaultFs {
    /// An empty disk that behaves well until told otherwise.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending: Vec::new(),
            inodes: Vec::new(),
            locks: BTreeMap::new(),
            epoch: 0,
            dead: false,
            capacity: None,
            changes_until_crash: None,
            changes: 0,
            fail_sync: false,
            lose_sync: false,
            fail_write: false,
            failing: BTreeMap::new(),
            random: seed,
        })))
    }

    /// Power fails: what was not synced is lost or not, as the seed says. The disk is usable again afterwards.
    pub fn crash(&self) {
        let disk = &mut *self.0.lock();
        // In one of three cases they are lost out of order.
        let (is_prefix, kept) = (disk.below(3) > 0, disk.below(disk.pending.len() as u64 + 1) as usize);
        for (number, change) in std::mem::take(&mut disk.pending).into_iter().enumerate() {
            if if is_prefix { number < kept } else { disk.below(2) == 0 } {
                change.apply(&mut disk.durable_names);
            }
        }
        disk.names = disk.durable_names.clone();
        let inodes: Vec<Inode> = disk.names.values().cloned().collect();
        for inode in inodes {
            inode.lock().crash(&mut || disk.next());
        }
        disk.restart();
    }

    /// The process dies, the machine goes on: everything written stays, what comes after is a new process. Of pages that a failed
    /// sync has taken for clean some are evicted meanwhile.
    pub fn kill(&self) {
        let disk = &mut *self.0.lock();
        let inodes: Vec<Inode> = disk.names.values().cloned().collect();
        for inode in inodes {
            inode.lock().evict(&mut || disk.next());
        }
        disk.restart();
    }

    /// After that many more changes (writes, syncs, names) everything fails, the last change half done, until
    /// [`FaultFs::crash`] or [`FaultFs::kill`].
    pub fn die_after(&self, changes: u64) {
        self.0.lock().changes_until_crash = Some(changes);
    }

    /// Whether the point set by [`FaultFs::die_after`] has been reached.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.0.lock().dead
    }

    /// How many changes there have been.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.0.lock().changes
    }

    /// Limits the space for all files together.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().capacity = bytes;
    }

    /// Bytes of all files that have a name or are open.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.0.lock().used()
    }

    /// Every sync fails from now on, or no longer does.
    pub fn fail_syncs(&self, fail: bool) {
        self.0.lock().fail_sync = fail;
    }

    /// Every sync of a file fails from now on, and takes what it did not write for clean; or no longer does.
    pub fn lose_syncs(&self, lose: bool) {
        self.0.lock().lose_sync = lose;
    }

    /// Every such call fails from now on with that error of the operating system, or no longer does.
    pub fn fail_calls(&self, call: FsCall, errno: Option<i32>) {
        let failing = &mut self.0.lock().failing;
        match errno {
            Some(errno) => drop(failing.insert(call, errno)),
            None => drop(failing.remove(&call)),
        }
    }

    /// The page around a place of a file cannot be read any more, until it is written. Returns false when there is no such place.
    pub fn break_page(&self, path: &Path, offset: u64) -> bool {
        self.with_content(path, offset, |content, page| {
            content.bad_pages.insert(page);
        })
    }

    /// What could not be read of a file can be read again.
    pub fn heal(&self, path: &Path) {
        self.with_content(path, 0, |content, _| content.bad_pages.clear());
    }

    /// The page around a place of a file becomes zeros, on the disk and in the cache. Returns false when there is no such place.
    pub fn zero_page(&self, path: &Path, offset: u64) -> bool {
        self.with_content(path, offset, |content, page| {
            let end = ((page + 1) * PAGE).min(content.bytes.len());
            if let Some(bytes) = content.bytes.get_mut(page * PAGE..end) {
                bytes.fill(0);
            }
            if let Some(old) = content.durable_pages.get_mut(&page) {
                old.fill(0);
            }
        })
    }

    fn with_content(&self, path: &Path, offset: u64, change: impl FnOnce(&mut Content, usize)) -> bool {
        let disk = self.0.lock();
        let Some(inode) = disk.names.get(path) else { return false };
        let content = &mut *inode.lock();
        let is_there = (offset as usize) < content.bytes.len();
        if is_there {
            change(content, offset as usize / PAGE);
        }
        is_there
    }

    /// Every write fails from now on (not for want of space), or no longer does.
    pub fn fail_writes(&self, fail: bool) {
        self.0.lock().fail_write = fail;
    }

    /// Flips one bit of a file, on the disk and in the cache. Returns false when there is no such byte.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> bool {
        let disk = self.0.lock();
        let Some(inode) = disk.names.get(path) else { return false };
        let content = &mut *inode.lock();
        let offset = offset as usize;
        let Some(byte) = content.bytes.get_mut(offset) else { return false };
        *byte ^= 1 << (bit % 8);
        if let Some(old) = content.durable_pages.get_mut(&(offset / PAGE))
            && let Some(byte) = old.get_mut(offset % PAGE)
        {
            *byte ^= 1 << (bit % 8);
        }
        true
    }

    /// A file's bytes as a process sees them.
    #[must_use]
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        Some(self.0.lock().names.get(path)?.lock().bytes.clone())
    }
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<PathBuf, Inode>) {
        match self {
            Self::Set(path, inode) => drop(names.insert(path, inode)),
            Self::Remove(path) => drop(names.remove(&path)),
            Self::Rename(from, to, inode) => {
                names.remove(&from);
                names.insert(to, inode);
            }
        }
    }
}

impl Disk {
    /// `SplitMix64`: small, seeded, good enough to choose faults.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn restart(&mut self) {
        self.epoch += 1;
        self.dead = false;
        self.changes_until_crash = None;
        (self.fail_sync, self.lose_sync, self.fail_write) = (false, false, false);
        self.failing.clear();
        self.locks.clear();
    }

    fn used(&mut self) -> u64 {
        self.inodes.retain(|inode| inode.strong_count() > 0);
        let named: BTreeSet<_> = self.names.values().map(Arc::as_ptr).collect();
        let bytes = |inode: Inode| {
            let content = inode.lock();
            let takes_space = content.handles > 0 || named.contains(&Arc::as_ptr(&inode));
            if takes_space { content.bytes.len() as u64 } else { 0 }
        };
        // What only a crash would bring back takes no space.
        self.inodes.iter().filter_map(Weak::upgrade).map(bytes).sum()
    }

    fn alive(&self, epoch: u64) -> io::Result<()> {
        if self.dead || epoch != self.epoch { Err(io::Error::other("the machine is down")) } else { Ok(()) }
    }

    fn fails(&self, call: FsCall) -> io::Result<()> {
        self.failing.get(&call).map_or(Ok(()), |&errno| Err(io::Error::from_raw_os_error(errno)))
    }

    /// Counts a change. Returns whether the machine dies in the middle of it.
    fn change(&mut self, epoch: u64) -> io::Result<bool> {
        self.alive(epoch)?;
        self.changes += 1;
        if let Some(left) = &mut self.changes_until_crash {
            if *left == 0 {
                self.dead = true;
                return Ok(true);
            }
            *left -= 1;
        }
        Ok(false)
    }

    fn rename_like(
        &mut self,
        change: NameChange,
        view: impl FnOnce(&mut BTreeMap<PathBuf, Inode>),
    ) -> io::Result<()> {
        let dies = self.change(self.epoch)?;
        if dies {
            return Err(io::Error::other("the machine is down"));
        }
        view(&mut self.names);
        self.pending.push(change);
        Ok(())
    }

    /// How many of `more` additional bytes fit.
    fn room(&mut self, more: u64) -> u64 {
        match self.capacity {
            Some(capacity) => capacity.saturating_sub(self.used()).min(more),
            None => more,
        }
    }
}

impl Content {
    /// Remembers what is durable in a range that is about to change.
    fn touch(&mut self, from: usize, to: usize) {
        for page in from / PAGE..to.div_ceil(PAGE) {
            let start = (page * PAGE).min(self.bytes.len());
            let end = ((page + 1) * PAGE).min(self.bytes.len());
            let bytes = &self.bytes[start..end];
            self.durable_pages.entry(page).or_insert_with(|| bytes.to_vec());
            self.lost_pages.remove(&page);
            self.bad_pages.remove(&page);
        }
    }

    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        self.touch(offset, end);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    fn set_length(&mut self, length: usize) {
        let (short, long) = (length.min(self.bytes.len()), length.max(self.bytes.len()));
        self.touch(short, long);
        self.bytes.resize(length, 0);
    }

    /// A sync succeeds: it writes what is dirty.
    fn sync(&mut self) {
        let lost = &self.lost_pages;
        self.durable_pages.retain(|page, _| lost.contains(page));
        self.durable_length = self.bytes.len();
    }

    /// Some pages that only the cache has leave it.
    fn evict(&mut self, random: &mut dyn FnMut() -> u64) {
        for page in std::mem::take(&mut self.lost_pages) {
            if random() & 1 == 0 {
                self.lost_pages.insert(page);
                continue;
            }
            let old = self.durable_pages.remove(&page).unwrap_or_default();
            let end = ((page + 1) * PAGE).min(self.bytes.len());
            if let Some(bytes) = self.bytes.get_mut(page * PAGE..end) {
                for (at, byte) in bytes.iter_mut().enumerate() {
                    *byte = old.get(at).copied().unwrap_or(0);
                }
            }
        }
    }

    fn crash(&mut self, random: &mut dyn FnMut() -> u64) {
        let length = if random() & 1 == 0 { self.durable_length } else { self.bytes.len() };
        let longest = self.bytes.len().max(self.durable_length);
        self.bytes.resize(longest, 0);
        for (page, old) in std::mem::take(&mut self.durable_pages) {
            let fate = if self.lost_pages.contains(&page) { 2 } else { random() % 4 };
            let sectors = random();
            // The file has grown, and what lies there is what lay there before.
            let garbage = if random() & 3 == 0 { sectors as u8 } else { 0 };
            for sector in 0..PAGE / SECTOR {
                let keeps_new = fate == 0 || fate == 1 && sectors >> sector & 1 == 0;
                if keeps_new {
                    continue;
                }
                for at in sector * SECTOR..(sector + 1) * SECTOR {
                    if let Some(byte) = self.bytes.get_mut(page * PAGE + at) {
                        *byte = old.get(at).copied().unwrap_or(garbage);
                    }
                }
            }
        }
        self.lost_pages.clear();
        self.bytes.resize(length, 0);
        self.durable_length = length;
    }
}

impl Fs for FaultFs {
    fn create_dir_all(&self, _dir: &Path) -> io::Result<()> {
        let disk = self.0.lock();
        disk.alive(disk.epoch)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let disk = self.0.lock();
        disk.alive(disk.epoch)?;
        let inside = disk.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        let disk = &mut *self.0.lock();
        disk.fails(FsCall::Create)?;
        let inode = Inode::default();
        disk.inodes.push(Arc::downgrade(&inode));
        disk.rename_like(NameChange::Set(path.to_owned(), inode.clone()), |names| {
            names.insert(path.to_owned(), inode.clone());
        })?;
        Ok(Box::new(FaultFile::new(&self.0, inode, disk.epoch)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>> {
        let disk = self.0.lock();
        disk.alive(disk.epoch)?;
        disk.fails(FsCall::Open)?;
        let inode = disk.names.get(path).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(FaultFile::new(&self.0, inode, disk.epoch)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let disk = &mut *self.0.lock();
        disk.fails(FsCall::Remove)?;
        if !disk.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.rename_like(NameChange::Remove(path.to_owned()), |names| drop(names.remove(path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let disk = &mut *self.0.lock();
        disk.fails(FsCall::Rename)?;
        let inode = disk.names.get(from).cloned().ok_or(io::ErrorKind::NotFound)?;
        disk.rename_like(NameChange::Rename(from.to_owned(), to.to_owned(), inode.clone()), |names| {
            names.remove(from);
            names.insert(to.to_owned(), inode);
        })
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        let disk = &mut *self.0.lock();
        let dies = disk.change(disk.epoch)?;
        if dies || disk.fail_sync {
            return Err(io::Error::other("directory sync failed"));
        }
        disk.fails(FsCall::SyncDir)?;
        for change in disk.pending.drain(..) {
            change.apply(&mut disk.durable_names);
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockGuard>>> {
        let disk = &mut *self.0.lock();
        disk.alive(disk.epoch)?;
        if disk.locks.contains_key(path) {
            return Ok(None);
        }
        disk.locks.insert(path.to_owned(), disk.epoch);
        Ok(Some(Box::new(FaultLock { disk: self.0.clone(), path: path.to_owned(), epoch: disk.epoch })))
    }

    fn space(&self, _dir: &Path) -> io::Result<Space> {
        let disk = &mut *self.0.lock();
        disk.alive(disk.epoch)?;
        let total = disk.capacity.unwrap_or(u64::MAX);
        Ok(Space { total, free: total.saturating_sub(disk.used()) })
    }

    fn random(&self) -> u64 {
        self.0.lock().next()
    }
}

impl FsFile for FaultFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let disk = &mut *self.disk.lock();
        let dies = disk.change(self.epoch)?;
        if dies || disk.fail_write {
            let part = disk.below(bytes.len() as u64 + 1) as usize;
            self.inode.lock().write(&bytes[..part], offset as usize);
            return Err(io::Error::other("write failed half-way"));
        }
        let length = self.inode.lock().bytes.len() as u64;
        let grows = (offset + bytes.len() as u64).saturating_sub(length);
        let fits = bytes.len() as u64 - (grows - disk.room(grows));
        self.inode.lock().write(&bytes[..fits as usize], offset as usize);
        if fits < bytes.len() as u64 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.lock().alive(self.epoch)?;
        let content = self.inode.lock();
        let Some(bytes) = content.bytes.get(offset as usize..) else { return Ok(0) };
        let count = bytes.len().min(buffer.len());
        let (from, to) = (offset as usize, offset as usize + count);
        if content.bad_pages.range(from / PAGE..to.div_ceil(PAGE)).next().is_some() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let disk = &mut *self.disk.lock();
        let dies = disk.change(self.epoch)?;
        disk.fails(FsCall::Allocate)?;
        let have = self.inode.lock().bytes.len() as u64;
        let grows = (offset + length).saturating_sub(have);
        if dies {
            return Err(io::Error::other("the machine is down"));
        }
        if disk.room(grows) < grows {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if grows > 0 {
            self.inode.lock().set_length((offset + length) as usize);
        }
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let disk = &mut *self.disk.lock();
        if disk.change(self.epoch)? {
            return Err(io::Error::other("the machine is down"));
        }
        disk.fails(FsCall::Truncate)?;
        self.inode.lock().set_length(length as usize);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let disk = &mut *self.disk.lock();
        let dies = disk.change(self.epoch)?;
        if dies || disk.fail_sync {
            return Err(io::Error::other("sync failed"));
        }
        let content = &mut *self.inode.lock();
        if disk.lose_sync {
            content.lost_pages = content.durable_pages.keys().copied().collect();
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        disk.fails(FsCall::SyncData)?;
        content.sync();
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.disk.lock().alive(self.epoch)?;
        Ok(self.inode.lock().bytes.len() as u64)
    }

    fn will_read(&self, _offset: u64, _length: u64) {}
}
