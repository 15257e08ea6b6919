//! Stores written by released formats: this and every later version must open them.
//!
//! The newest of `tests/fixtures` was written by this test with `SETTEE_WRITE_FIXTURE=1`. A format change gets a folder
//! of its own and never a rewrite of an old one.

use std::{fs, path::Path};

use base::{Seqno, VbId, bucket::DurabilityLevel};
use settee_storage::{BackfillOptions, KvStore, Marks, Options, RealFs, RecordKind, VbBatch, VbState, open};

use crate::{
    prepares::commit_marked,
    support::{Version, commit, document, drain, lookup, prepared, same, state, tombstone},
};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");

fn options() -> Options {
    Options {
        shard: 3,
        segment_bytes: 16 << 10,
        segment_bytes_min: 16 << 10,
        reserve_bytes: 0,
        ..Options::default()
    }
}

fn contents() -> Vec<Version> {
    let documents = (1..=60u64).map(|n| document((n % 4) as u16, &format!("k{n}"), n, vec![n as u8; 300]));
    let tombstones = (1..=5u64).map(|n| tombstone(9, &format!("gone{n}"), n, 1_700_000_000));
    documents.chain(tombstones).collect()
}

/// Of format 3: a vBucket that is being copied, in the middle of its second snapshot; and one of which the first is not whole.
fn copies() -> [(VbId, VbState); 2] {
    let open = VbState { snapshot: Some((Seqno(4), Seqno(9))), ..state(6) };
    let partial = VbState { snapshot: Some((Seqno(0), Seqno(5))), is_partial: true, ..state(2) };
    [(VbId(12), open), (VbId(13), partial)]
}

const MARKS: Marks = Marks { prepared: Seqno(3), completed: Seqno(0), visible: Seqno(1) };

/// Of format 2: a vBucket with prepares.
fn prepares() -> Vec<Version> {
    let of = |kind, key, seqno| prepared(11, kind, key, seqno, "value");
    vec![
        document(11, "k", 1, "v"),
        of(RecordKind::Prepare(DurabilityLevel::MajorityAndPersistActive), "k", 2),
        of(RecordKind::PreparedDeletion(DurabilityLevel::PersistToMajority), "l", 3),
        of(RecordKind::Abort, "l", 4),
    ]
}

fn write(dir: &Path) {
    let store = open(dir, std::sync::Arc::new(RealFs), options()).unwrap();
    for batch in contents().chunks(13) {
        commit(&store, batch).unwrap();
        store.sync().unwrap();
    }
    store.reset_vbs(&[(VbId(2), state(0))]).unwrap();
    commit(&store, &[document(2, "anew", 1, "after the reset")]).unwrap();
    store.sync().unwrap();
    commit_marked(&store, &prepares(), MARKS);
    let batches = copies();
    let batches: Vec<_> =
        batches.iter().map(|(vb, state)| VbBatch { vb: *vb, state, records: &[] }).collect();
    store.commit(&batches, &mut Vec::new()).unwrap();
    store.sync().unwrap();
    // The newest segment stays without a footer, as after a crash.
    store.abandon();
}

#[test]
fn this_version_writes_what_the_fixture_holds() {
    let temporary = tempfile::tempdir().unwrap();
    write(temporary.path());
    assert_contents(temporary.path(), 5);
    if std::env::var_os("SETTEE_WRITE_FIXTURE").is_some() {
        write(&Path::new(FIXTURES).join("v5"));
    }
}

#[test]
fn stores_of_every_format_open_with_everything_in_them() {
    for version in 1..=5 {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(Path::new(FIXTURES).join(format!("v{version}"))).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        assert_contents(copy.path(), version);
    }
}

fn assert_contents(dir: &Path, version: u32) {
    for _ in 0..2 {
        let store = open(dir, std::sync::Arc::new(RealFs), options()).unwrap();
        assert_eq!(store.stats().corrupt, []);
        for version in contents() {
            let key = str::from_utf8(&version.key[1..]).unwrap();
            let found = lookup(&store, version.vb.get(), key).unwrap();
            if version.vb == VbId(2) {
                assert!(found.is_none());
            } else {
                assert!(same(&found.unwrap(), &version));
            }
        }
        assert_eq!(lookup(&store, 2, "anew").unwrap().unwrap().value, b"after the reset");
        let states = store.vb_states();
        assert!(states.contains(&(VbId(9), state(5))) && states.contains(&(VbId(2), state(1))), "{states:?}");
        for vb in [0, 1, 2, 3, 9] {
            let mut expected = contents();
            if vb == 2 {
                expected = vec![document(2, "anew", 1, "after the reset")];
            }
            expected.retain(|version| version.vb == VbId(vb));
            let opened = store.backfill(VbId(vb), Seqno(0), BackfillOptions::default()).unwrap();
            assert_eq!(drain(opened, vb, 1000).unwrap(), expected);
        }
        let copies = if version >= 3 { Vec::from(copies()) } else { Vec::new() };
        assert!(copies.iter().all(|copy| states.contains(copy)), "{states:?}");
        let is_whole =
            |(vb, state): &(VbId, VbState)| *vb > VbId(11) || !state.is_partial && state.snapshot.is_none();
        assert!(states.iter().all(is_whole), "older formats know no copies in the making");
        let prepared = if version >= 2 { prepares() } else { Vec::new() };
        if version >= 2 {
            let options = BackfillOptions { prepares: true, ..BackfillOptions::default() };
            let opened = store.backfill(VbId(11), Seqno(0), options).unwrap();
            assert_eq!(opened.marks(), MARKS);
            let shown = [prepared[0].clone(), prepared[1].clone(), prepared[3].clone()];
            assert_eq!(drain(opened, 11, 1000).unwrap(), shown);
        }
        let mut records = 0;
        store
            .scan(None, Seqno(0), true, &mut |_, _, _| {
                records += 1;
                true
            })
            .unwrap();
        assert_eq!(records, 45 + 5 + 1 + prepared.len());
    }
}
