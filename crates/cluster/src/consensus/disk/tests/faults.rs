//! A disk that fails at every call in turn: what was confirmed is there afterwards, and what is there stays.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use redb::StorageBackend;

use super::*;

/// What goes wrong, once, at the call with that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
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
enum End {
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

#[derive(Debug, Default)]
struct State {
    /// As processes see it.
    seen: Option<Vec<u8>>,
    /// As it is after a power failure.
    kept: Vec<u8>,
    named: bool,
    /// What the next sync has to write.
    unsynced: Vec<Change>,
    calls: u64,
    fault: Option<(u64, Fault)>,
    has_struck: bool,
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
            _ => changes.iter().for_each(|change| change.apply(&mut self.kept)),
        }
        Ok(())
    }

    fn end(&mut self, end: End) {
        self.killed = false;
        if let End::Power(mut seed) = end {
            let mut coin = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                seed >> 63 == 1
            };
            for change in std::mem::take(&mut self.unsynced) {
                match change {
                    Change::Write(at, bytes) => {
                        let sectors = bytes.chunks(512).enumerate().filter(|_| coin());
                        let written = sectors.map(|(n, sector)| Change::Write(at + n * 512, sector.to_vec()));
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
struct Disk(Arc<Mutex<State>>);

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn log(&self) -> DiskLog {
        DiskLog::on(Path::new("log.redb"), Box::new(self.clone()))
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
            _ => {}
        }
        state.seen = Some(contents.to_vec());
        state.kept = contents.to_vec();
        state.named = true;
        state.unsynced.clear();
        Ok(())
    }

    fn open(&self) -> io::Result<Box<dyn StorageBackend>> {
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

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().seen.as_ref().map_or(0, Vec::len) as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let seen = state.seen.as_deref().unwrap_or_default();
        let range = seen.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(range.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state().change(Change::Length(len as usize))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.state().sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state().change(Change::Write(offset as usize, data.to_vec()))
    }
}

/// The writes of every run: entries come, go at both ends, and a record changes.
fn writes() -> Vec<Batch> {
    let write = |at: u64| Batch {
        drop_below: at.checked_sub(3),
        drop_from: at.is_multiple_of(3).then_some(at + 1),
        records: vec![(Record::HardState, at.to_le_bytes().to_vec())],
        entries: (at..at + 3).map(|index| (index, vec![at as u8; 900])).collect(),
        ..Batch::default()
    };
    (1..7).map(write).collect()
}

/// What the log holds after none, one, two... of them.
fn states(writes: &[Batch]) -> Vec<Stored> {
    let mut stored = Stored::default();
    let after = writes.iter().map(|batch| {
        stored.apply(batch);
        stored.clone()
    });
    std::iter::once(Stored::default()).chain(after.collect::<Vec<_>>()).collect()
}

/// Writes until that is impossible: how many writes were confirmed, and whether one was not.
fn run(disk: &Disk, writes: &[Batch]) -> (usize, bool) {
    let mut log = disk.log();
    let mut confirmed = 0;
    // A fault may strike while the log is closed to be read.
    let is_halfway = |confirmed| confirmed == writes.len() / 2;
    for batch in writes {
        if is_halfway(confirmed) && log.load().is_err() {
            return (confirmed, false);
        }
        let mut outcome = log.write(std::slice::from_ref(batch));
        if matches!(outcome, Err(LogError::NoSpace { .. })) {
            outcome = log.write(std::slice::from_ref(batch));
        }
        if outcome.is_err() {
            assert!(log.write(std::slice::from_ref(batch)).is_err(), "nothing is written after a failure");
            return (confirmed, true);
        }
        confirmed += 1;
    }
    (confirmed, false)
}

/// Runs with a fault at every call there is, and looks at what is left, which `check` judges.
fn at_every_call(fault: Fault, check: impl Fn(&Disk, usize, bool, &str)) {
    let writes = writes();
    for end in [End::Process, End::Power(1), End::Power(2)] {
        for at in 1.. {
            let disk = Disk::default();
            disk.state().fault = Some((at, fault));
            let (confirmed, in_flight) = run(&disk, &writes);
            if !disk.state().has_struck {
                assert!(at > 20, "every write takes a few calls");
                break;
            }
            disk.state().end(end);
            check(&disk, confirmed, in_flight, &format!("{fault:?} at call {at}, then {end:?}"));
        }
    }
}

/// What was confirmed is there, at most what was under way beside it; it stays, and the log goes on from it.
fn nothing_is_lost(disk: &Disk, confirmed: usize, in_flight: bool, what: &str) {
    let states = states(&writes());
    let mut log = disk.log();
    let found = log.load().unwrap_or_else(|error| panic!("{what}: {error}"));
    let may_be = &states[confirmed..=confirmed + usize::from(in_flight)];
    assert!(may_be.contains(&found), "{what}: {confirmed} writes were confirmed");
    drop(log);
    disk.state().end(End::Power(7));
    let mut log = disk.log();
    assert_eq!(log.load().unwrap(), found, "{what}: what a start has read must not go again");
    let more = Batch { entries: vec![(100, vec![1])], ..Batch::default() };
    log.write(std::slice::from_ref(&more)).unwrap();
    let mut expected = found;
    expected.apply(&more);
    disk.state().end(End::Power(8));
    assert_eq!(disk.log().load().unwrap(), expected, "{what}: what is written after that stays as well");
}

#[test]
fn a_write_that_found_no_space_is_tried_again_and_loses_nothing() {
    at_every_call(Fault::NoSpace, nothing_is_lost);
}

#[test]
fn a_failed_write_or_sync_ends_the_writing_and_loses_nothing() {
    at_every_call(Fault::Failure, nothing_is_lost);
}

#[test]
fn a_killed_process_leaves_nothing_that_a_power_failure_could_take_back() {
    at_every_call(Fault::Kill, nothing_is_lost);
}

/// Which bits are flipped: one of each byte of the header, all of the byte that says how the file is to be read, and a few of each page.
fn places(file: &[u8]) -> Vec<(usize, u8)> {
    const HEADER: usize = 320;
    const FLAGS: usize = 9;
    // Also all of the lowest byte of both commits' numbers: with some of these bits the last one looks older than the one before.
    let whole = [FLAGS, 64 + 104, 192 + 104];
    let whole = whole.into_iter().flat_map(|at| (0..8).map(move |bit| (at, bit)));
    let in_header = (0..HEADER).map(|at| (at, at as u8 % 8)).chain(whole);
    let is_used =
        |page: &usize| file.chunks(4096).nth(*page).is_some_and(|page| page.iter().any(|byte| *byte != 0));
    let used = (1..file.len() / 4096).filter(is_used);
    let in_pages =
        used.flat_map(|page| (0..4096).step_by(797).map(move |at| (page * 4096 + at, at as u8 % 8)));
    in_header.chain(in_pages).collect()
}

#[test]
fn a_bit_that_flips_in_what_was_synced_is_noticed_or_changes_nothing() {
    let expected = states(&writes()).pop().unwrap();
    for is_closed in [true, false] {
        let disk = Disk::default();
        let mut log = disk.log();
        writes().iter().for_each(|batch| log.write(std::slice::from_ref(batch)).unwrap());
        let killed = disk.state().kept.clone();
        drop(log);
        let file = if is_closed { disk.state().kept.clone() } else { killed };
        let (mut noticed, places) = (0, places(&file));
        for &(at, bit) in &places {
            let mut flipped = file.clone();
            flipped[at] ^= 1 << bit;
            let (seen, kept) = (Some(flipped.clone()), flipped);
            let disk = Disk::default();
            *disk.state() = State { seen, kept, named: true, ..State::default() };
            match disk.log().load() {
                Ok(found) => assert!(found == expected, "bit {bit} of byte {at}, closed: {is_closed}"),
                Err(_) => noticed += 1,
            }
        }
        assert!(noticed > 80, "{noticed} of {}, closed: {is_closed}", places.len());
    }
}

#[test]
fn a_sync_that_lied_is_noticed_or_leaves_an_earlier_state() {
    let states = states(&writes());
    at_every_call(Fault::Lie, |disk, confirmed, _, what| {
        if let Ok(found) = disk.log().load() {
            assert!(states[..=confirmed].contains(&found), "{what}: neither damage nor an earlier state");
        }
    });
}
