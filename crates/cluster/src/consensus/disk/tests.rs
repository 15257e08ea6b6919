//! What is on the disk after writes, damage and failures.

mod faults;

use std::fs;

use super::*;

fn batch(entries: std::ops::Range<u64>) -> Batch {
    Batch {
        records: vec![(Record::HardState, vec![1, 2, 3])],
        entries: entries.map(|index| (index, vec![index as u8; 100])).collect(),
        ..Batch::default()
    }
}

#[test]
fn what_was_written_is_there_after_a_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.redb");
    let mut log = DiskLog::new(&path);
    assert!(log.load().unwrap().is_empty());
    let tail =
        Batch { drop_below: Some(3), drop_from: Some(8), entries: vec![(8, vec![9])], ..Batch::default() };
    let batches = [batch(1..10), tail];
    log.write(&batches).unwrap();
    let mut expected = Stored::default();
    batches.iter().for_each(|batch| expected.apply(batch));
    drop(log);
    let mut log = DiskLog::new(&path);
    assert_eq!(log.load().unwrap(), expected);
    assert_eq!(expected.entries.keys().copied().collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8]);
    log.write(&[Batch { clear: true, ..Batch::default() }]).unwrap();
    assert!(log.load().unwrap().is_empty());
    assert!(log.load().unwrap().entries.is_empty());
}

#[test]
fn a_damaged_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.redb");
    let mut log = DiskLog::new(&path);
    log.write(&[batch(1..200)]).unwrap();
    drop(log);
    let whole = fs::read(&path).unwrap();
    let mut refused = 0;
    for page in (0..whole.len() / 4096).step_by(3) {
        let mut damaged = whole.clone();
        damaged[page * 4096..][..64].iter_mut().for_each(|byte| *byte ^= 0x5a);
        fs::write(&path, &damaged).unwrap();
        match DiskLog::new(&path).load() {
            Ok(stored) => assert_eq!(stored.entries.len(), 199, "a page that holds nothing"),
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("log.redb"), "{error}");
            }
        }
    }
    assert!(refused > 0);
    fs::write(&path, b"{ \"format\": 2 }").unwrap();
    assert!(DiskLog::new(&path).load().is_err(), "another kind of file");
}
