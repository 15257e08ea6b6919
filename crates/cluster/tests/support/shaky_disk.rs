//! A file below a log of the metadata, on a disk that fails, lies, rots and forgets. Unit tests of the log and the simulation of clusters share
//! it; each names the log's types where it includes this file.

#![allow(dead_code, reason = "nobody who includes it needs all of it")]

use std::{
    io,
    ops::Range,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};

use fastrand::Rng;

use super::{DiskLog, LogFile, Medium};

/// What of a file says which of its commits counts; the rest is pages.
const HEADER_BYTES: usize = 320;
const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// What goes wrong, once, at the call with that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No space is left; a sync fails for that reason as well.
    NoSpace,
    /// An I/O error. After a failed sync the kernel has forgotten what it could not write.
    Failure,
    /// A sync says yes and does nothing; any other call does what it should.
    Lie,
    /// The process is killed: nothing reaches the file from then on.
    Kill,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// The kernel's memory stays.
    Process,
    /// It is lost. Of what was not synced any part may have reached the disk, by that seed.
    Power(u64),
}

#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Length(length) => file.resize(*length, 0),
            Self::Write(at, bytes) => {
                file.resize(file.len().max(at + bytes.len()), 0);
                file[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// As processes see it.
    seen: Option<Vec<u8>>,
    /// As it is after a power failure.
    pub(crate) kept: Vec<u8>,
    named: bool,
    /// What the next sync has to write.
    unsynced: Vec<Change>,
    calls: u64,
    pub(crate) fault: Option<(u64, Fault)>,
    /// Every sync says yes and does nothing.
    pub(crate) lies: bool,
    pub(crate) has_struck: bool,
    killed: bool,
}

impl State {
    /// Counts a call; what goes wrong with it.
    fn call(&mut self) -> io::Result<Option<Fault>> {
        self.calls += 1;
        let due = self.fault.filter(|(at, _)| *at == self.calls).map(|(_, fault)| fault);
        self.has_struck |= due.is_some();
        self.killed |= due == Some(Fault::Kill);
        if self.killed { Err(io::Error::other("killed")) } else { Ok(due) }
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        match self.call()? {
            Some(Fault::NoSpace) => return Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Failure) => return Err(io::Error::other("failed")),
            _ => {}
        }
        change.apply(self.seen.get_or_insert_default());
        self.unsynced.push(change);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let fault = self.call()?;
        let changes = std::mem::take(&mut self.unsynced);
        match fault {
            Some(Fault::NoSpace) => return Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Failure) => return Err(io::Error::other("failed")),
            Some(Fault::Lie) => {}
            // A power failure forgets what is still to be written.
            _ if self.lies => self.unsynced = changes,
            _ => changes.iter().for_each(|change| change.apply(&mut self.kept)),
        }
        Ok(())
    }

    /// The process ends, or the machine.
    pub(crate) fn end(&mut self, end: End) {
        (self.killed, self.fault) = (false, None);
        if let End::Power(mut seed) = end {
            let mut coin = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                seed >> 63 == 1
            };
            for change in std::mem::take(&mut self.unsynced) {
                match change {
                    Change::Write(at, bytes) => {
                        let sectors = bytes.chunks(SECTOR).enumerate().filter(|_| coin());
                        let written =
                            sectors.map(|(n, sector)| Change::Write(at + n * SECTOR, sector.to_vec()));
                        written.for_each(|change| change.apply(&mut self.kept));
                    }
                    Change::Length(_) if coin() => change.apply(&mut self.kept),
                    Change::Length(_) => {}
                }
            }
            self.named |= coin();
            self.seen = self.named.then(|| self.kept.clone());
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

impl Disk {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The log on it, as a process opens it.
    pub(crate) fn log(&self) -> DiskLog {
        DiskLog::on(Path::new("log.redb"), Box::new(self.clone()))
    }
}

impl State {
    /// A disk that holds a file, all of it synced.
    pub(crate) fn holding(file: Vec<u8>) -> Self {
        Self { seen: Some(file.clone()), kept: file, named: true, ..Self::default() }
    }

    /// Something goes wrong at the so-manieth call from now on.
    pub(crate) fn fail_after(&mut self, calls: u64, fault: Fault) {
        self.fault = Some((self.calls + calls, fault));
    }

    /// Everything fails from now on, until the end.
    pub(crate) fn kill(&mut self) {
        self.killed = true;
    }

    /// Flips a bit of what lies on the disk, as processes see it too.
    pub(crate) fn flip(&mut self, at: usize, bit: u8) {
        for bytes in self.seen.iter_mut().chain([&mut self.kept]) {
            bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << (bit % 8));
        }
    }

    /// Where what is in use of the file can be damaged: somewhere in its header, or in a page that is not empty.
    fn place(&self, rng: &mut Rng) -> Option<Range<usize>> {
        let file = self.seen.as_deref().filter(|file| !file.is_empty())?;
        if rng.u8(0..4) == 0 {
            return Some(0..HEADER_BYTES.min(file.len()));
        }
        let is_used = |page: &usize| {
            file.chunks(PAGE).nth(*page).is_some_and(|page| page.iter().any(|byte| *byte != 0))
        };
        let used: Vec<usize> = (1..file.len() / PAGE).filter(is_used).collect();
        rng.choice(used).map(|page| page * PAGE..(page + 1) * PAGE)
    }

    /// Some bits of what is in use flip, or a piece of it becomes zeros or anything; whether there is a file.
    pub(crate) fn rot(&mut self, rng: &mut Rng) -> bool {
        let Some(range) = self.place(rng) else { return false };
        let way = rng.u8(0..4);
        if way < 2 {
            for _ in 0..rng.usize(1..=4) {
                self.flip(rng.usize(range.clone()), rng.u8(0..8));
            }
            return true;
        }
        let from = rng.usize(range.clone());
        let piece = from..(from + rng.usize(1..=SECTOR)).min(range.end);
        let garbage: Vec<u8> = piece.clone().map(|_| if way == 2 { 0 } else { rng.u8(..) }).collect();
        let change = Change::Write(from, garbage);
        self.seen.iter_mut().chain([&mut self.kept]).for_each(|bytes| change.apply(bytes));
        true
    }
}

impl Medium for Disk {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.state().seen.clone())
    }

    fn replace(&self, contents: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        match state.call()? {
            Some(Fault::NoSpace) => return Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Failure) => return Err(io::Error::other("failed")),
            // As long as it is not lost the file is there, whatever was told of it.
            Some(Fault::Lie) => {
                let length = contents.len();
                state.seen = Some(contents.to_vec());
                state.unsynced =
                    vec![Change::Length(0), Change::Length(length), Change::Write(0, contents.to_vec())];
                return Ok(());
            }
            _ if state.lies => {
                let all = Change::Write(0, contents.to_vec());
                state.seen = Some(contents.to_vec());
                state.unsynced.extend([Change::Length(contents.len()), all]);
                return Ok(());
            }
            _ => {}
        }
        state.seen = Some(contents.to_vec());
        state.kept = contents.to_vec();
        state.named = true;
        state.unsynced.clear();
        Ok(())
    }

    fn open(&self) -> io::Result<Box<dyn LogFile>> {
        let mut state = self.state();
        match state.call()? {
            Some(Fault::NoSpace) => return Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Failure) => return Err(io::Error::other("failed")),
            _ => {}
        }
        state.seen.get_or_insert_default();
        Ok(Box::new(self.clone()))
    }
}

impl LogFile for Disk {
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state().change(Change::Length(len as usize))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state().change(Change::Write(offset as usize, data.to_vec()))
    }

    fn sync(&self) -> io::Result<()> {
        self.state().sync()
    }
}
