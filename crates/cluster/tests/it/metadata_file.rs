//! The metadata file of earlier versions.

use std::fs;

use base::NodeId;
use settee_cluster::{Membership, MetadataFileError, VbPlan, read_metadata_file};

#[test]
fn damage_and_other_formats_are_named_and_never_taken_for_an_empty_node() {
    let dir = tempfile::tempdir().unwrap();
    assert!(read_metadata_file(dir.path()).unwrap().is_none());
    for (bytes, reason) in
        [(&b"{\"format\":3,\"metadata\":{}}"[..], "format 3"), (b"{}", "format"), (b"", "EOF")]
    {
        fs::write(dir.path().join("metadata.json"), bytes).unwrap();
        match read_metadata_file(dir.path()) {
            Err(MetadataFileError::Unreadable { reason: found, .. }) => {
                assert!(found.contains(reason), "{found}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_single_node_of_format_1_is_a_cluster_of_one() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("metadata.json"), include_bytes!("../fixtures/metadata-format-1.json"))
        .unwrap();
    let meta = read_metadata_file(dir.path()).unwrap().unwrap();
    let node = &meta.nodes[0];
    assert_eq!((node.id, node.membership), (NodeId(0), Membership::Active));
    assert_eq!(meta.server_group(&node.group).unwrap().name, "Group 1");
    assert_eq!(meta.next_node, 1);
    assert_eq!(*meta.buckets["b"].vbs, vec![VbPlan::settled(vec![NodeId(0)], 1); 16]);
    assert!(meta.buckets["cache"].vbs.is_empty());
}
