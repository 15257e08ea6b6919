//! A node's machine: what is left of the node when its process ends, and its clock.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use base::{BucketUuid, NodeId, Now};
use cluster::consensus::{Batch, LogError, LogStore as _, Member, MemoryLog};
use fastrand::Rng;
use storage::Fs as _;

use crate::{
    process::Process,
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
    pub(crate) log: MemoryLog,
    buckets: BTreeMap<BucketUuid, Vec<Arc<FaultDisk>>>,
    /// Nothing more fits. (The log of the metadata lies elsewhere.)
    pub(crate) is_full: bool,
    /// Syncs of the data fail, and what they did not write is taken for written.
    pub(crate) syncs_fail: bool,
    /// Bits of the data are not what was written.
    pub(crate) is_rotten: bool,
    /// Writes of the metadata fail.
    pub(crate) log_fails: bool,
    /// Of a new bucket, at most.
    pub(crate) shards: usize,
    /// What a bucket may take of the machine's memory.
    pub(crate) quota_bytes: u64,
    /// Tombstones may go after so many seconds.
    pub(crate) purge_secs: u32,
    seed: u64,
}

impl Shelf {
    pub(crate) fn new(shards: usize, (quota_bytes, purge_secs): (u64, u32), seed: u64) -> Self {
        let (log, buckets) = (MemoryLog::default(), BTreeMap::new());
        let (is_full, syncs_fail, is_rotten, log_fails) = (false, false, false, false);
        Self {
            log,
            buckets,
            is_full,
            syncs_fail,
            is_rotten,
            log_fails,
            shards,
            quota_bytes,
            purge_secs,
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

    /// Whether syncs of the data fail.
    pub(crate) fn set_syncs_fail(&mut self, fail: bool) {
        self.syncs_fail = fail;
        self.buckets.values().flatten().for_each(|disk| disk.fs.lose_syncs(fail));
    }

    /// Whether what is done with the data may fail, or find something else than was written.
    pub(crate) fn is_bad(&self) -> bool {
        self.syncs_fail || self.is_rotten
    }

    /// Another disk is in the place of that with the data.
    pub(crate) fn lose_data(&mut self) {
        self.buckets.clear();
        self.is_rotten = false;
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

    /// Writes metadata. Of a write that fails nobody knows whether it is on the disk: it is if `reaches`.
    pub(crate) fn write_log(&mut self, batches: &[Batch], reaches: bool) -> Result<(), LogError> {
        if !self.log_fails || reaches {
            self.log.write(batches)?;
        }
        if self.log_fails {
            return Err(LogError::Store { path: "log".into(), reason: "the disk fails".into() });
        }
        Ok(())
    }

    /// Whether anything more fits.
    pub(crate) fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
        self.buckets.values().flatten().for_each(|disk| disk.set_full(is_full));
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
}

impl Machine {
    /// A machine that has never run; `first` is what its log begins with.
    pub(crate) fn new(member: Member, first: Batch, clock: Clock, mut shelf: Shelf) -> Self {
        shelf.log.write(&[first]).unwrap();
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
    pub(crate) fn start(&mut self, boot: u64, level: u32, at: u64) {
        let process = Process::start(&self.member, level, &mut self.shelf, boot, self.clock.now(at));
        self.process = Some(process);
        self.paused_until = self.sleeps_until;
    }

    /// Ends the process. Nobody else may hold on to its buckets any more. `written`: how many of the writes that the log
    /// of the metadata waits for are made all the same.
    pub(crate) fn stop(&mut self, end: End, written: usize, at: u64) {
        let Some(process) = self.process.take() else { return };
        let now = self.clock.now(at);
        let unwritten = process.end(end == End::Clean, self.shelf.is_full || self.shelf.is_bad(), now);
        let written = if end == End::Clean && !self.shelf.log_fails {
            unwritten.len()
        } else {
            written.min(unwritten.len())
        };
        for batches in unwritten.into_iter().take(written) {
            self.shelf.log.write(&batches).unwrap();
        }
        for disk in self.shelf.buckets.values().flatten() {
            match end {
                End::Clean => {}
                End::Killed => disk.fs.kill(),
                End::PowerLoss | End::DiskLost => disk.crash(),
            }
        }
        if end == End::DiskLost {
            self.shelf.lose_data();
        }
    }
}
