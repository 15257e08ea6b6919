//! A disk in memory that misbehaves on purpose, the same way for the same seed.
//!
//! Content and names are held twice: as a running process sees them, and as they would be found after a power failure.
//! `sync_data` and `sync_dir` carry the first over to the second. [`FaultFs::crash`] keeps of the rest what the seed
//! says. A page gets the new bytes, the old ones, or sectors of both. Where the file has grown it gets garbage, or what
//! a removed file had. What was written and changed again before a sync may be what is left, since a system writes what is dirty when
//! it likes. Of the changes of names any may be kept. Handles from before a crash answer every call with an
//! error. Reads are short or interrupted now and then, as the operating system's are.
//!
//! A sync that loses ([`FaultFs::lose_syncs`]) fails as Linux does. It takes the pages for clean, and the cache goes on showing
//! what was written until the page is evicted. A later sync that succeeds passes over them.
//!
//! Faults that came later draw from a stream of their own: histories of older seeds go on as they did.

#![expect(
    clippy::indexing_slicing,
    reason = "a file system of tests: a position outside of a file is a mistake in it, and has to end the test"
)]

mod content;
mod counts;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use self::content::Content;
pub use self::counts::FaultCounts;
use super::{Fs, FsFile, LockGuard, Space};

const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// So many pages of removed files may turn up in files that grow.
const STALE_PAGES: usize = 256;
/// So many pages of each.
const STALE_PAGES_OF_FILE: usize = 16;
/// One read in so many is interrupted.
const INTERRUPTED_READS: u64 = 16;
/// One in so many is short.
const SHORT_READS: u64 = 16;
/// Before one change of a file in so many the system writes what is dirty of it.
const WRITE_BACKS: u64 = 8;

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
    failing: BTreeMap<FsCall, Failing>,
    random: u64,
    /// Random as well, for what came later.
    late: u64,
    /// Random as well, for what came last.
    latest: u64,
    /// Pages of removed files, with their places.
    stale: VecDeque<(usize, Vec<u8>)>,
    counts: FaultCounts,
}

/// How calls of a kind fail.
struct Failing {
    errno: i32,
    /// So many succeed before.
    after: u64,
    /// And then one fails.
    once: bool,
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
    /// [`Fs::list`].
    List,
    /// [`FsFile::read_at`].
    Read,
    /// [`FsFile::write_at`], half-way.
    Write,
    /// [`FsFile::length`].
    Length,
}

type Inode = Arc<Mutex<Content>>;

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
            late: seed ^ 0x1a7e_5eed,
            latest: seed ^ 0x1a57_5eed,
            stale: VecDeque::new(),
            counts: FaultCounts::default(),
        })))
    }

    /// Another disk, which holds what a process sees of this one, all of it synced.
    #[must_use]
    pub fn image(&self, seed: u64) -> Self {
        let image = Self::new(seed);
        let names = self.0.lock().names.clone();
        for (path, inode) in names {
            let bytes = inode.lock().bytes.clone();
            let content = Content { durable_length: bytes.len(), bytes, ..Content::default() };
            let inode = Arc::new(Mutex::new(content));
            let disk = &mut *image.0.lock();
            disk.names.insert(path.clone(), Arc::clone(&inode));
            disk.durable_names.insert(path, Arc::clone(&inode));
            disk.inodes.push(Arc::downgrade(&inode));
        }
        image
    }

    /// Power fails: what was not synced is lost or not, as the seed says. The disk is usable again afterwards.
    pub fn crash(&self) {
        let disk = &mut *self.0.lock();
        // In one of three cases they are lost out of order.
        let (is_prefix, kept) = (disk.below(3) > 0, disk.below(disk.pending.len() as u64 + 1) as usize);
        let mut lost = 0;
        for (number, change) in std::mem::take(&mut disk.pending).into_iter().enumerate() {
            if if is_prefix { number < kept } else { disk.below(2) == 0 } {
                disk.counts.names_lost_out_of_order += std::mem::take(&mut lost);
                change.apply(&mut disk.durable_names);
            } else {
                lost += 1;
            }
        }
        disk.names = disk.durable_names.clone();
        let inodes: Vec<Inode> = disk.names.values().cloned().collect();
        let Disk { random, late, stale, counts, .. } = disk;
        for inode in inodes {
            inode.lock().crash(&mut || next(random), &mut |page| lay_there(stale, late, page), counts);
        }
        disk.restart();
    }

    /// The process dies, the machine goes on: everything written stays, what comes after is a new process. Of pages that a failed
    /// sync has taken for clean some are evicted meanwhile.
    pub fn kill(&self) {
        let disk = &mut *self.0.lock();
        let inodes: Vec<Inode> = disk.names.values().cloned().collect();
        let Disk { random, counts, .. } = disk;
        for inode in inodes {
            inode.lock().evict(&mut || next(random), counts);
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
            Some(errno) => drop(failing.insert(call, Failing { errno, after: 0, once: false })),
            None => drop(failing.remove(&call)),
        }
    }

    /// After so many such calls one fails with that error of the operating system.
    pub fn fail_one_call(&self, call: FsCall, after: u64, errno: i32) {
        self.0.lock().failing.insert(call, Failing { errno, after, once: true });
    }

    /// What the disk has done to its users so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.0.lock().counts.clone()
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

/// `SplitMix64`: small, seeded, good enough to choose faults.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A page of a removed file, at the same place in it if possible, for this page of a file that has grown. `None` if
/// the page holds nothing old.
fn lay_there(stale: &VecDeque<(usize, Vec<u8>)>, late: &mut u64, page: usize) -> Option<Vec<u8>> {
    let chance = next(late);
    if stale.is_empty() || !chance.is_multiple_of(3) {
        return None;
    }
    let start = (chance >> 32) as usize % stale.len();
    let in_turn = || (start..stale.len()).chain(0..start).filter_map(|number| stale.get(number));
    let same_place = in_turn().find(|(place, _)| *place == page);
    same_place.or_else(|| in_turn().next()).map(|(_, bytes)| bytes.clone())
}

impl Disk {
    fn next(&mut self) -> u64 {
        next(&mut self.random)
    }

    /// A file loses its last name: some of what it had stays where it lies.
    fn leave_behind(&mut self, inode: &Inode) {
        let content = inode.lock();
        let pages = content.bytes.len().div_ceil(PAGE);
        // The first ones in any case: other files begin there as well.
        let chosen = (0..pages.min(STALE_PAGES_OF_FILE / 2)).collect::<Vec<_>>();
        let others =
            (pages > chosen.len()).then(|| (0..STALE_PAGES_OF_FILE / 2).map(|_| next(&mut self.late)));
        let others = others.into_iter().flatten().map(|number| number as usize % pages).collect::<Vec<_>>();
        for page in chosen.into_iter().chain(others) {
            let end = ((page + 1) * PAGE).min(content.bytes.len());
            self.stale.push_back((page, content.bytes[page * PAGE..end].to_vec()));
        }
        while self.stale.len() > STALE_PAGES {
            self.stale.pop_front();
        }
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

    fn fails(&mut self, call: FsCall) -> io::Result<()> {
        let Some(failing) = self.failing.get_mut(&call) else { return Ok(()) };
        if failing.after > 0 {
            failing.after -= 1;
            return Ok(());
        }
        let (errno, once) = (failing.errno, failing.once);
        if once {
            self.failing.remove(&call);
        }
        *self.counts.failed_calls.entry(call).or_default() += 1;
        Err(io::Error::from_raw_os_error(errno))
    }

    /// Now and then some of what a file has is on the disk before it changes.
    fn write_back(&mut self, inode: &Inode) {
        if next(&mut self.latest).is_multiple_of(WRITE_BACKS) {
            let Self { latest, counts, .. } = self;
            inode.lock().write_back(&mut || next(latest), counts);
        }
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

impl Fs for FaultFs {
    fn create_dir_all(&self, _dir: &Path) -> io::Result<()> {
        let disk = self.0.lock();
        disk.alive(disk.epoch)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let disk = &mut *self.0.lock();
        disk.alive(disk.epoch)?;
        disk.fails(FsCall::List)?;
        // Directories are there as far as they have files.
        let first = |path: &PathBuf| {
            let name = path.strip_prefix(dir).ok()?.components().next()?;
            name.as_os_str().to_str().map(str::to_owned)
        };
        let names: BTreeSet<String> = disk.names.keys().filter_map(first).collect();
        Ok(names.into_iter().collect())
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
        let disk = &mut *self.0.lock();
        disk.alive(disk.epoch)?;
        disk.fails(FsCall::Open)?;
        let inode = disk.names.get(path).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(FaultFile::new(&self.0, inode, disk.epoch)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let disk = &mut *self.0.lock();
        disk.fails(FsCall::Remove)?;
        let inode = disk.names.get(path).cloned().ok_or(io::ErrorKind::NotFound)?;
        disk.rename_like(NameChange::Remove(path.to_owned()), |names| drop(names.remove(path)))?;
        disk.leave_behind(&inode);
        Ok(())
    }

    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        let disk = self.0.lock();
        disk.alive(disk.epoch)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let disk = &mut *self.0.lock();
        disk.fails(FsCall::Rename)?;
        let inode = disk.names.get(from).cloned().ok_or(io::ErrorKind::NotFound)?;
        let replaced = disk.names.get(to).cloned();
        disk.rename_like(NameChange::Rename(from.to_owned(), to.to_owned(), inode.clone()), |names| {
            names.remove(from);
            names.insert(to.to_owned(), inode);
        })?;
        if let Some(replaced) = replaced {
            disk.leave_behind(&replaced);
        }
        Ok(())
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
        disk.write_back(&self.inode);
        let failed = if dies || disk.fail_write { Ok(()) } else { disk.fails(FsCall::Write) };
        if dies || disk.fail_write || failed.is_err() {
            let part = disk.below(bytes.len() as u64 + 1) as usize;
            self.inode.lock().write(&bytes[..part], offset as usize);
            return failed.and(Err(io::Error::other("write failed half-way")));
        }
        let length = self.inode.lock().bytes.len() as u64;
        let grows = (offset + bytes.len() as u64).saturating_sub(length);
        let fits = bytes.len() as u64 - (grows - disk.room(grows));
        self.inode.lock().write(&bytes[..fits as usize], offset as usize);
        if fits < bytes.len() as u64 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn read_some_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let disk = &mut *self.disk.lock();
        disk.alive(self.epoch)?;
        disk.fails(FsCall::Read)?;
        let chance = next(&mut disk.late);
        if chance.is_multiple_of(INTERRUPTED_READS) {
            disk.counts.interrupted_reads += 1;
            return Err(io::ErrorKind::Interrupted.into());
        }
        let content = self.inode.lock();
        let Some(mut bytes) = content.readable(offset as usize, buffer.len()) else {
            disk.counts.bad_reads += 1;
            return Err(io::Error::from_raw_os_error(libc::EIO));
        };
        if bytes.len() > 1 && (chance >> 32).is_multiple_of(SHORT_READS) {
            disk.counts.short_reads += 1;
            bytes = &bytes[..1 + (chance >> 40) as usize % (bytes.len() - 1)];
        }
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
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
        disk.write_back(&self.inode);
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
            disk.counts.lossy_syncs += 1;
            content.lost_pages = content.durable_pages.keys().copied().collect();
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        disk.fails(FsCall::SyncData)?;
        content.sync();
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        let disk = &mut *self.disk.lock();
        disk.alive(self.epoch)?;
        disk.fails(FsCall::Length)?;
        Ok(self.inode.lock().bytes.len() as u64)
    }

    fn will_read(&self, _offset: u64, _length: u64) {}
}
