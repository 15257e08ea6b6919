//! The metadata file over restarts, crashes and damage.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;

use settee_cluster::{Metadata, MetadataStore, StoreError};

#[test]
fn what_was_saved_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made").join("here");
    let (store, none) = MetadataStore::open(&path).unwrap();
    assert_eq!(none, None);
    let mut meta = Metadata::new("c".repeat(32), 500);
    for version in 1..=3 {
        meta.version = version;
        store.save(&meta).unwrap();
        assert_eq!(MetadataStore::open(&path).unwrap().1.as_ref(), Some(&meta));
    }
}

#[test]
fn a_save_cut_short_leaves_the_state_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = MetadataStore::open(dir.path()).unwrap();
    let meta = Metadata::new("c".repeat(32), 500);
    store.save(&meta).unwrap();
    fs::write(dir.path().join("metadata.json.new"), b"{\"format\":1,\"meta").unwrap();
    let (store, read) = MetadataStore::open(dir.path()).unwrap();
    assert_eq!(read, Some(meta.clone()));
    store.save(&meta).unwrap();
}

#[test]
fn damage_and_other_formats_are_named_and_never_taken_for_an_empty_node() {
    let dir = tempfile::tempdir().unwrap();
    for (bytes, reason) in
        [(&b"{\"format\":2,\"metadata\":{}}"[..], "format 2"), (b"{}", "format"), (b"", "EOF")]
    {
        fs::write(dir.path().join("metadata.json"), bytes).unwrap();
        match MetadataStore::open(dir.path()) {
            Err(StoreError::Unreadable { reason: found, .. }) => assert!(found.contains(reason), "{found}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn others_cannot_read_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = MetadataStore::open(dir.path()).unwrap();
    store.save(&Metadata::new("c".repeat(32), 500)).unwrap();
    let mode = fs::metadata(dir.path().join("metadata.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
}
