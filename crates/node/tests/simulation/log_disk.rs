//! The log of a machine's metadata: what the product writes, on a disk that fails, lies, rots, and may come back as it was.
//!
//! Invariant: what a start reads is what was written, or that it is damaged. It is nothing older than what was confirmed, unless the
//! disk has lied about that or is an old image.

use cluster::consensus::{Batch, DiskLog, LogError, LogStore as _, Stored};
use fastrand::Rng;

use crate::shaky_disk::{Disk, End, Fault, State};

/// Calls of the disk of which one fails, at most: more than a write takes.
const CALLS_MAX: u64 = 12;

/// The log of some time ago.
#[derive(Clone)]
pub(crate) struct Image {
    disk: State,
    stored: Stored,
}

/// See the module.
pub(crate) struct LogDisk {
    disk: Disk,
    log: DiskLog,
    /// What is on the disk, whatever happens.
    safe: Stored,
    /// What was written since, and perhaps is not there; so many of the first ones were confirmed.
    unsafe_writes: Vec<Vec<Batch>>,
    confirmed: usize,
    /// Writes fail.
    pub(crate) fails: bool,
    /// A part of it is not what was written.
    pub(crate) is_rotten: bool,
    /// Syncs of it do nothing.
    pub(crate) lies: bool,
    /// It lacks what it has confirmed, and does not know.
    pub(crate) is_old: bool,
}

impl LogDisk {
    pub(crate) fn new(first: Batch) -> Self {
        let disk = Disk::default();
        let mut new = Self {
            log: disk.log(),
            disk,
            safe: Stored::default(),
            unsafe_writes: Vec::new(),
            confirmed: 0,
            fails: false,
            is_rotten: false,
            lies: false,
            is_old: false,
        };
        new.write(&[first], &mut Rng::with_seed(0)).expect("a new disk");
        new
    }

    /// What a process reads that starts.
    ///
    /// # Errors
    /// Where that is damaged.
    pub(crate) fn load(&mut self) -> Result<Stored, LogError> {
        let found = match self.log.load() {
            Ok(found) if found.is_empty() => Err(LogError::Unreadable("there is no log".into())),
            other => other,
        };
        let found = found.inspect_err(|error| {
            assert!(self.is_rotten || self.lies || self.is_old, "nothing has damaged the log: {error}");
        })?;
        let mut state = self.safe.clone();
        let mut place = (found == state).then_some(0);
        for (number, batches) in self.unsafe_writes.iter().enumerate() {
            batches.iter().for_each(|batch| state.apply(batch));
            place = if found == state { Some(number + 1) } else { place };
        }
        let place = place.expect("the log holds what was never written");
        assert!(place >= self.confirmed || self.lies, "the log lacks what it has confirmed");
        self.is_old |= place < self.confirmed;
        self.is_rotten = false;
        self.lies = self.disk.state().lies;
        // What a start has read it relies on.
        self.unsafe_writes.truncate(place);
        self.confirmed = place;
        if !self.lies {
            (self.safe, self.confirmed) = (found.clone(), 0);
            self.unsafe_writes.clear();
        }
        Ok(found)
    }

    /// Writes it, while something may go wrong. Of a write that fails nobody knows what is on the disk.
    ///
    /// # Errors
    /// Where the disk fails, or is damaged.
    pub(crate) fn write(&mut self, batches: &[Batch], rng: &mut Rng) -> Result<(), LogError> {
        if self.fails && self.disk.state().fault.is_none() {
            self.disk.state().fail_after(rng.u64(1..=CALLS_MAX), Fault::Failure);
        }
        let written = self.log.write(batches);
        assert!(
            written.is_ok() || self.fails || self.is_rotten,
            "nothing is wrong with the disk: {written:?}"
        );
        if written.is_ok() && !self.lies && self.unsafe_writes.is_empty() {
            batches.iter().for_each(|batch| self.safe.apply(batch));
            return Ok(());
        }
        self.unsafe_writes.push(batches.to_vec());
        if written.is_ok() {
            self.confirmed = self.unsafe_writes.len();
        }
        written
    }

    /// The process is killed while it writes these, of which nobody knows.
    pub(crate) fn write_and_die(&mut self, batches: &[Batch], rng: &mut Rng) {
        self.disk.state().fail_after(rng.u64(1..=CALLS_MAX), Fault::Kill);
        let _ = self.log.write(batches);
        self.unsafe_writes.push(batches.to_vec());
    }

    /// The process ends: as asked to, or killed, or with its machine.
    pub(crate) fn end(&mut self, is_clean: bool, is_power_lost: bool, rng: &mut Rng) {
        if !is_clean {
            self.disk.state().kill();
        }
        // What a log does that is closed reaches the disk, unless the process was killed.
        self.log = self.disk.log();
        let end = if is_power_lost { End::Power(rng.u64(..)) } else { End::Process };
        self.disk.state().end(end);
    }

    /// Its machine loses power, and what its syncs did not write. It does not lie any more.
    pub(crate) fn lose_power(&mut self, rng: &mut Rng) {
        self.disk.state().end(End::Power(rng.u64(..)));
        self.disk.state().lies = false;
    }

    /// Whether syncs of it do nothing.
    pub(crate) fn set_lies(&mut self, lies: bool) {
        self.lies = lies;
        self.disk.state().lies = lies;
    }

    /// A part of it is not what was written any more; whether there is one.
    pub(crate) fn rot(&mut self, rng: &mut Rng) -> bool {
        self.is_rotten |= self.disk.state().rot(rng);
        self.is_rotten
    }

    /// As it is now. The process has ended, and has closed it.
    pub(crate) fn image(&self) -> Image {
        assert!(self.unsafe_writes.is_empty(), "an image of a log of which everything is known");
        Image { disk: self.disk.state().clone(), stored: self.safe.clone() }
    }

    /// As it was then.
    pub(crate) fn restore(&mut self, image: Image) {
        self.is_old |= image.stored != self.safe || !self.unsafe_writes.is_empty();
        *self.disk.state() = image.disk;
        (self.safe, self.confirmed) = (image.stored, 0);
        self.unsafe_writes.clear();
    }
}
