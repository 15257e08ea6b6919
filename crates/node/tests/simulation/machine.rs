//! A node's machine: what is left of the node when its process ends, and its clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use base::{BucketUuid, NodeId, Now, VbId};
use cluster::consensus::{Batch, LogError, Member};
use fastrand::Rng;
use storage::{FaultFs, Fs as _};

use crate::{
    log_disk::{self, LogDisk},
    process::Process,
    setting::Setting,
    support::{Disk as _, FaultDisk, START_SECS},
};

/// A clock that is ahead or behind, and too fast or too slow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// What it showed when the world began.
    pub(crate) began: u64,
    /// Microseconds per second that it is too fast.
    pub(crate) drift: i64,
    /// Milliseconds that its idea of the date is ahead.
    pub(crate) ahead: i64,
    /// For how long the machine was suspended before the last time.
    slept: u64,
    /// When it is suspended, or was last, by the world's clock: from then until then.
    sleeps: (u64, u64),
}

impl Clock {
    pub(crate) fn new(began: u64, drift: i64, ahead: i64) -> Self {
        Self { began, drift, ahead, ..Self::default() }
    }

    /// The date, and the clock that stands still while the machine is suspended.
    pub(crate) fn now(self, at: u64) -> Now {
        let date = START_SECS as i64 * 1_000 + self.passed(at) as i64 + self.ahead;
        let awake = at - self.slept - (at.min(self.sleeps.1) - at.min(self.sleeps.0));
        Now { wall_nanos: date as u64 * 1_000_000, mono_millis: self.began + self.passed(awake) }
    }

    /// The clock that goes on while the machine is suspended: leases run by it.
    pub(crate) fn lease_millis(self, at: u64) -> u64 {
        self.began + self.passed(at)
    }

    /// The machine is suspended.
    pub(crate) fn suspend(&mut self, from: u64, until: u64) {
        self.slept += self.sleeps.1 - self.sleeps.0;
        self.sleeps = (from, until);
    }

    /// The machine is not suspended any more.
    pub(crate) fn wake(&mut self, at: u64) {
        self.sleeps.1 = self.sleeps.1.min(at.max(self.sleeps.0));
    }

    fn passed(self, millis: u64) -> u64 {
        (millis as i64 + millis as i64 * self.drift / 1_000_000) as u64
    }
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// As asked to: everything is written.
    Clean,
    /// Killed: what was written stays.
    Killed,
    /// The machine fails: what was not synced is lost, or not, or half of it.
    PowerLoss,
    /// The disks with the data have to be replaced. (The log of the metadata lies elsewhere.)
    DiskLost,
}

/// What lies on the disks.
pub(crate) struct Shelf {
    pub(crate) log: LogDisk,
    buckets: BTreeMap<BucketUuid, Vec<Arc<FaultDisk>>>,
    /// The indexes of buckets lie on disks of their own.
    indexes: BTreeMap<BucketUuid, FaultFs>,
    /// Nothing more fits. (The log of the metadata lies elsewhere.)
    pub(crate) is_full: bool,
    /// Syncs of the data fail, and what they did not write is taken for written.
    pub(crate) syncs_fail: bool,
    /// They did once: indexes may be damaged, and are built anew by those that find that.
    pub(crate) has_lost_syncs: bool,
    /// Bits of the data are not what was written.
    pub(crate) is_rotten: bool,
    /// They lack what was written since they were as they are: see [`Shelf::restore`].
    pub(crate) is_old: bool,
    /// Of a new bucket, at most.
    pub(crate) shards: usize,
    /// What a bucket may take of the machine's memory.
    pub(crate) quota_bytes: u64,
    /// Tombstones may go after so many seconds.
    pub(crate) purge_secs: u32,
    /// Somebody has a shard compacted, once in so many steps.
    pub(crate) compactions: u16,
    seed: u64,
}

/// All that lay on a machine's disks some time ago.
pub(crate) struct Image {
    log: log_disk::Image,
    buckets: BTreeMap<BucketUuid, Vec<FaultFs>>,
}

impl Shelf {
    /// `first` is what the log of the metadata begins with.
    pub(crate) fn new(first: Batch, shards: usize, setting: &Setting, seed: u64) -> Self {
        let Setting { quota_bytes, purge_secs, compactions, .. } = *setting;
        let (log, buckets, indexes) = (LogDisk::new(first), BTreeMap::new(), BTreeMap::new());
        let (is_full, syncs_fail, is_rotten, is_old) = (false, false, false, false);
        Self {
            log,
            buckets,
            indexes,
            is_full,
            syncs_fail,
            has_lost_syncs: false,
            is_rotten,
            is_old,
            shards,
            quota_bytes,
            purge_secs,
            compactions,
            seed,
        }
    }

    /// The disks of a bucket, which are new if it is.
    pub(crate) fn disks(&mut self, bucket: &BucketUuid, shards: usize) -> &[Arc<FaultDisk>] {
        self.buckets.entry(bucket.clone()).or_insert_with(|| {
            let salt: u64 = bucket.0.bytes().map(u64::from).sum();
            let new = |shard: usize| FaultDisk::new(self.seed ^ (salt << 8) ^ shard as u64, shard as u32);
            let disks: Vec<_> = (0..shards).map(|shard| Arc::new(new(shard))).collect();
            for disk in &disks {
                disk.set_full(self.is_full);
                disk.fs.lose_syncs(self.syncs_fail);
            }
            disks
        })
    }

    /// The disk with a bucket's indexes, which is new if these are.
    pub(crate) fn index_disk(&mut self, bucket: &BucketUuid) -> FaultFs {
        let (seed, is_full, syncs_fail) = (self.seed, self.is_full, self.syncs_fail);
        let disk = self.indexes.entry(bucket.clone()).or_insert_with(|| {
            let salt: u64 = bucket.0.bytes().map(u64::from).sum();
            let disk = FaultFs::new(seed.rotate_left(16) ^ salt);
            disk.set_capacity(is_full.then(|| disk.used_bytes()));
            disk.lose_syncs(syncs_fail);
            disk
        });
        disk.clone()
    }

    /// Whether syncs of the data, and of indexes, fail.
    pub(crate) fn set_syncs_fail(&mut self, fail: bool) {
        self.syncs_fail = fail;
        self.has_lost_syncs |= fail;
        self.buckets.values().flatten().for_each(|disk| disk.fs.lose_syncs(fail));
        self.indexes.values().for_each(|disk| disk.lose_syncs(fail));
    }

    /// Whether what is done with the data may fail, or find something else than was written.
    pub(crate) fn is_bad(&self) -> bool {
        self.syncs_fail || self.is_rotten
    }

    /// Another disk is in the place of that with the data.
    pub(crate) fn lose_data(&mut self) {
        self.buckets.clear();
        self.indexes.clear();
        (self.is_rotten, self.is_old) = (false, false);
        // Nothing is left that an earlier sync did not write. One that fails now fails of the other disk, too.
        self.has_lost_syncs = self.syncs_fail;
        self.seed = self.seed.wrapping_add(1);
    }

    /// Flips so many bits of files with data, wherever; whether there were any.
    pub(crate) fn rot(&mut self, bits: usize, rng: &mut Rng) -> bool {
        let disks: Vec<_> = self.buckets.values().flatten().collect();
        let Some(disk) = rng.choice(disks) else { return false };
        let dir = Path::new(DIR);
        let names = disk.fs.list(dir).unwrap_or_default();
        for _ in 0..bits {
            let Some(path) = rng.choice(&names).map(|name| dir.join(name)) else { return false };
            let bytes = disk.fs.contents(&path).map_or(0, |bytes| bytes.len() as u64);
            if bytes > 0 {
                self.is_rotten |= disk.fs.flip_bit(&path, rng.u64(0..bytes), rng.u8(..));
            }
        }
        self.is_rotten
    }

    /// As everything is now. The process has ended as asked to.
    pub(crate) fn image(&self) -> Image {
        let copies =
            |disks: &Vec<Arc<FaultDisk>>| disks.iter().map(|disk| disk.fs.image(self.seed)).collect();
        let buckets = self.buckets.iter().map(|(uuid, disks)| (uuid.clone(), copies(disks))).collect();
        Image { log: self.log.image(), buckets }
    }

    /// Everything is as it was then, or only the log of the metadata, or only the data.
    pub(crate) fn restore(&mut self, image: Image, log: bool, data: bool) {
        if log {
            self.log.restore(image.log);
        }
        if data {
            let disk = |(shard, fs)| Arc::new(FaultDisk::over(fs, shard as u32));
            let disks = |disks: Vec<FaultFs>| disks.into_iter().enumerate().map(disk).collect();
            self.buckets = image.buckets.into_iter().map(|(uuid, list)| (uuid, disks(list))).collect();
            self.is_old = true;
        }
    }

    /// Whether anything more fits.
    pub(crate) fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
        self.buckets.values().flatten().for_each(|disk| disk.set_full(is_full));
        self.indexes.values().for_each(|disk| disk.set_capacity(is_full.then(|| disk.used_bytes())));
    }
}

/// Where a shard's files are on its disk.
const DIR: &str = "/shard";

/// See the module.
pub(crate) struct Machine {
    pub(crate) member: Member,
    pub(crate) clock: Clock,
    pub(crate) shelf: Shelf,
    pub(crate) process: Option<Process>,
    /// Its process does nothing until then.
    pub(crate) paused_until: u64,
    /// The machine is suspended until then.
    pub(crate) sleeps_until: u64,
    /// Its disks do something now and then only, until then.
    pub(crate) slow_until: u64,
    /// The disk with the metadata does nothing until then.
    pub(crate) log_hangs_until: u64,
    /// When somebody starts the process.
    pub(crate) starts_at: u64,
    /// Its disks are gone, all of them: it will never be that node again.
    pub(crate) is_wiped: bool,
    /// Somebody has copied its disks.
    pub(crate) image: Option<Image>,
    /// What it has served since its data became old.
    pub(crate) served_by_old_data: BTreeSet<(BucketUuid, VbId)>,
}

impl Machine {
    /// A machine that has never run.
    pub(crate) fn new(member: Member, clock: Clock, shelf: Shelf) -> Self {
        Self {
            member,
            clock,
            shelf,
            process: None,
            paused_until: 0,
            sleeps_until: 0,
            slow_until: 0,
            log_hangs_until: 0,
            starts_at: 0,
            is_wiped: false,
            image: None,
            served_by_old_data: BTreeSet::new(),
        }
    }

    pub(crate) fn id(&self) -> NodeId {
        self.member.node
    }

    /// The process, if it does anything at the moment.
    pub(crate) fn running(&mut self, at: u64) -> Option<&mut Process> {
        self.process.as_mut().filter(|_| self.paused_until <= at)
    }

    /// Starts the process, of a version that understands metadata up to `level`; `boot` is its randomness.
    ///
    /// # Errors
    /// Where the log of the metadata is damaged.
    pub(crate) fn start(&mut self, boot: u64, level: u32, at: u64) -> Result<(), LogError> {
        let process = Process::start(&self.member, level, &mut self.shelf, boot, self.clock.now(at))?;
        self.process = Some(process);
        self.paused_until = self.sleeps_until;
        Ok(())
    }

    /// Ends the process. Nobody else may hold on to its buckets any more. `written` is how many of the writes that the
    /// log of the metadata waits for are made all the same. The one after them is half done.
    pub(crate) fn stop(&mut self, end: End, written: usize, at: u64, rng: &mut Rng) {
        let Some(process) = self.process.take() else { return };
        let now = self.clock.now(at);
        let unwritten = process.end(end == End::Clean, self.shelf.is_full || self.shelf.is_bad(), now);
        let log = &mut self.shelf.log;
        let is_clean = end == End::Clean && !log.fails;
        let written = if is_clean { unwritten.len() } else { written.min(unwritten.len()) };
        let mut unwritten = unwritten.into_iter();
        let works = unwritten.by_ref().take(written).all(|batches| log.write(&batches, rng).is_ok());
        if let Some(batches) = unwritten.next().filter(|_| works && !is_clean) {
            log.write_and_die(&batches, rng);
        }
        // A disk that lies loses nothing before somebody means it to.
        log.end(is_clean, matches!(end, End::PowerLoss | End::DiskLost) && !log.lies, rng);
        for disk in self.shelf.buckets.values().flatten() {
            match end {
                End::Clean => {}
                End::Killed => disk.fs.kill(),
                End::PowerLoss | End::DiskLost => disk.crash(),
            }
        }
        for disk in self.shelf.indexes.values() {
            match end {
                End::Clean => {}
                End::Killed => disk.kill(),
                End::PowerLoss | End::DiskLost => disk.crash(),
            }
        }
        if end == End::DiskLost {
            self.shelf.lose_data();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_disk_is_a_good_one_unless_its_syncs_fail_as_well() {
        let mut shelf = Shelf::new(Batch::default(), 1, &Setting::VIEWS, 1);
        shelf.set_syncs_fail(true);
        shelf.lose_data();
        assert!(shelf.has_lost_syncs, "the other disk loses syncs from the beginning");
        shelf.set_syncs_fail(false);
        assert!(shelf.has_lost_syncs, "the disk still lacks what was not written");
        shelf.lose_data();
        assert!(!shelf.has_lost_syncs);
    }
}
