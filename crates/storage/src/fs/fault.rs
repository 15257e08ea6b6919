//! A disk in memory that misbehaves on purpose, the same way for the same seed.
//!
//! Content and names are held twice: as a running process sees them, and as they would be found after a power
//! failure. `sync_data` and `sync_dir` carry the first over to the second; [`FaultFs::crash`] keeps of the rest
//! what the seed says: per page the new bytes, the old ones, or sectors of both, in any combination; of the names
//! a prefix of the changes. Handles from before a crash answer every call with an error.

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
    fail_write: bool,
    random: u64,
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
}

enum NameChange {
    Set(PathBuf, Inode),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
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
            fail_write: false,
            random: seed,
        })))
    }

    /// Power fails: what was not synced is lost or not, as the seed says. The disk is usable again afterwards.
    pub fn crash(&self) {
        let disk = &mut *self.0.lock();
        let kept = disk.below(disk.pending.len() as u64 + 1) as usize;
        for change in disk.pending.drain(..).take(kept) {
            change.apply(&mut disk.durable_names);
        }
        disk.names = disk.durable_names.clone();
        let inodes: Vec<Inode> = disk.names.values().cloned().collect();
        for inode in inodes {
            inode.lock().crash(&mut || disk.next());
        }
        disk.restart();
    }

    /// The process dies, the machine goes on: everything written stays, what comes after is a new process.
    pub fn kill(&self) {
        self.0.lock().restart();
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
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(&from) {
                    names.insert(to, inode);
                }
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
        (self.fail_sync, self.fail_write) = (false, false);
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

    fn crash(&mut self, random: &mut dyn FnMut() -> u64) {
        let length = if random() & 1 == 0 { self.durable_length } else { self.bytes.len() };
        let longest = self.bytes.len().max(self.durable_length);
        self.bytes.resize(longest, 0);
        for (page, old) in std::mem::take(&mut self.durable_pages) {
            let fate = random() % 4;
            let sectors = random();
            for sector in 0..PAGE / SECTOR {
                let keeps_new = fate == 0 || fate == 1 && sectors >> sector & 1 == 0;
                if keeps_new {
                    continue;
                }
                for at in sector * SECTOR..(sector + 1) * SECTOR {
                    if let Some(byte) = self.bytes.get_mut(page * PAGE + at) {
                        *byte = old.get(at).copied().unwrap_or(0);
                    }
                }
            }
        }
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
        let inode = disk.names.get(path).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(FaultFile::new(&self.0, inode, disk.epoch)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let disk = &mut *self.0.lock();
        if !disk.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.rename_like(NameChange::Remove(path.to_owned()), |names| drop(names.remove(path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let disk = &mut *self.0.lock();
        let inode = disk.names.get(from).cloned().ok_or(io::ErrorKind::NotFound)?;
        disk.rename_like(NameChange::Rename(from.to_owned(), to.to_owned()), |names| {
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
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let disk = &mut *self.disk.lock();
        let dies = disk.change(self.epoch)?;
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
        content.durable_pages.clear();
        content.durable_length = content.bytes.len();
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.disk.lock().alive(self.epoch)?;
        Ok(self.inode.lock().bytes.len() as u64)
    }

    fn will_read(&self, _offset: u64, _length: u64) {}
}
