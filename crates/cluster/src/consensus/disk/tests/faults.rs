//! A disk that fails at every call in turn: what was confirmed is there afterwards, and what is there stays.

#[path = "../../../../tests/support/shaky_disk.rs"]
mod shaky_disk;

use shaky_disk::{Disk, End, Fault, State};

use super::*;

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

/// Which bits are flipped: one of each byte of the header, and a few of each page. Of the byte that says how to read the file, all are.
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
            let disk = Disk::default();
            *disk.state() = State::holding(flipped);
            match disk.log().load() {
                Ok(found) => assert!(found == expected, "bit {bit} of byte {at}, closed: {is_closed}"),
                Err(_) => noticed += 1,
            }
        }
        assert!(noticed > 80, "{noticed} of {}, closed: {is_closed}", places.len());
    }
}

/// Flips a bit in every byte of a small file, of a closed log and of one whose process was killed. `bit_of` says which bit of a
/// byte flips, if any.
fn flip_bytes(bit_of: impl Fn(usize) -> Option<u8>) {
    let expected = states(&writes()).pop().unwrap();
    let disk = Disk::default();
    let mut log = disk.log();
    writes().iter().for_each(|batch| log.write(std::slice::from_ref(batch)).unwrap());
    let killed = disk.state().kept.clone();
    drop(log);
    let closed = disk.state().kept.clone();
    for (what, file) in [("killed", killed), ("closed", closed)] {
        let (mut noticed, mut flipped) = (0, 0);
        for at in 0..file.len() {
            let Some(bit) = bit_of(at) else { continue };
            let disk = Disk::default();
            *disk.state() = State::holding(file.clone());
            disk.state().flip(at, bit);
            flipped += 1;
            match disk.log().load() {
                Ok(found) => assert!(found == expected, "bit {bit} of byte {at}, {what}"),
                Err(_) => noticed += 1,
            }
        }
        assert!(noticed * 100 > flipped, "{noticed} of {flipped}, {what}");
        println!("{what}: {noticed} of {flipped} were noticed, the others are nowhere in use");
    }
}

#[test]
fn some_bytes_of_a_small_file_are_noticed_or_change_nothing() {
    flip_bytes(|at| at.is_multiple_of(211).then_some((at % 8) as u8));
}

#[test]
#[ignore = "takes minutes"]
fn each_byte_of_a_small_file_is_noticed_or_changes_nothing() {
    flip_bytes(|at| Some((at % 8) as u8));
}

#[test]
fn pieces_that_are_zeros_or_anything_are_noticed_or_change_nothing() {
    let expected = states(&writes()).pop().unwrap();
    let whole = Disk::default();
    let mut log = whole.log();
    writes().iter().for_each(|batch| log.write(std::slice::from_ref(batch)).unwrap());
    let killed = whole.state().clone();
    drop(log);
    let closed = whole.state().clone();
    let mut noticed = 0;
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = Disk::default();
        *disk.state() = if rng.bool() { killed.clone() } else { closed.clone() };
        for _ in 0..rng.u8(1..4) {
            assert!(disk.state().rot(&mut rng));
        }
        match disk.log().load() {
            Ok(found) => assert!(found == expected, "seed {seed}"),
            Err(_) => noticed += 1,
        }
    }
    assert!(noticed > 30, "{noticed} of 100");
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

/// A log that has read itself, goes on after a bit has flipped, and is read again.
fn goes_on_after_a_flip(
    writes: &[Batch],
    read_again: bool,
    (at, bit): (usize, u8),
) -> Result<Stored, LogError> {
    let disk = Disk::default();
    let mut log = disk.log();
    let (before, after) = writes.split_at(writes.len() / 2);
    before.iter().for_each(|batch| log.write(std::slice::from_ref(batch)).unwrap());
    if read_again {
        // Closed: the next write opens it anew.
        log.load().unwrap();
    }
    disk.state().flip(at, bit);
    for batch in after {
        // What is refused ends the writing.
        if log.write(std::slice::from_ref(batch)).is_err() {
            break;
        }
    }
    drop(log);
    disk.log().load()
}

#[test]
fn what_rots_beneath_an_open_log_is_never_written_again_as_if_it_were_whole() {
    // More than what is kept in memory of pages; few of the entries change later.
    let many = Batch {
        records: vec![(Record::Member, vec![7; 300])],
        entries: (100..160).map(|index| (index, vec![index as u8; 30_000])).collect(),
        ..Batch::default()
    };
    let few = |at: u64| Batch {
        records: vec![(Record::HardState, at.to_le_bytes().to_vec())],
        entries: (at..at + 3).map(|index| (index, vec![at as u8; 900])).collect(),
        ..Batch::default()
    };
    let small: Vec<Batch> = (1..7).map(few).collect();
    let large: Vec<Batch> = std::iter::once(many).chain(small.clone()).collect();
    for (writes, read_again) in [(&small, true), (&large, true), (&large, false)] {
        let may_be = states(writes);
        let disk = Disk::default();
        let mut log = disk.log();
        writes[..writes.len() / 2].iter().for_each(|batch| log.write(std::slice::from_ref(batch)).unwrap());
        if read_again {
            log.load().unwrap();
        }
        let file = disk.state().kept.clone();
        let step = places(&file).len() / if file.len() < 2 << 20 { 60 } else { 12 } + 1;
        let (mut went_on, mut refused) = (0, 0);
        for place in places(&file).into_iter().step_by(step) {
            if let Ok(found) = goes_on_after_a_flip(writes, read_again, place) {
                let is_one_of_them = may_be[writes.len() / 2..].contains(&found);
                assert!(is_one_of_them, "{place:?} of {}, read again: {read_again}", file.len());
                went_on += usize::from(Some(&found) == may_be.last());
            } else {
                refused += 1;
            }
        }
        // It neither refuses everything nor notices nothing.
        assert!(went_on > 0 && refused > 0, "{went_on} went on to the end, {refused} were refused");
    }
}
