//! The metadata file over restarts, crashes and damage.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;

use base::NodeId;
use settee_cluster::{Membership, Metadata, MetadataStore, StoreError, VbPlan};

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
        [(&b"{\"format\":3,\"metadata\":{}}"[..], "format 3"), (b"{}", "format"), (b"", "EOF")]
    {
        fs::write(dir.path().join("metadata.json"), bytes).unwrap();
        match MetadataStore::open(dir.path()) {
            Err(StoreError::Unreadable { reason: found, .. }) => assert!(found.contains(reason), "{found}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_single_node_of_format_1_is_a_cluster_of_one() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("metadata.json"), include_bytes!("fixtures/metadata-format-1.json")).unwrap();
    let (store, read) = MetadataStore::open(dir.path()).unwrap();
    let meta = read.unwrap();
    let node = &meta.nodes[0];
    assert_eq!((node.id, node.membership), (NodeId(0), Membership::Active));
    assert_eq!(meta.server_group(&node.group).unwrap().name, "Group 1");
    assert_eq!(meta.next_node, 1);
    assert_eq!(*meta.buckets["b"].vbs, vec![VbPlan::settled(vec![NodeId(0)], 1); 16]);
    assert!(meta.buckets["cache"].vbs.is_empty());
    store.save(&meta).unwrap();
    assert_eq!(MetadataStore::open(dir.path()).unwrap().1, Some(meta));
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
