//! What indexers are told, and which folders stay.

use std::path::Path;

use cluster::{BucketParams, Command, DesignDocumentChange, NodeInfo, Ports};
use storage::{FaultFs, Fs};

use super::*;

#[test]
fn the_memory_of_indexes_follows_that_of_documents_within_bounds() {
    let of = |mib| setup::memory_max(&Metadata::new("c".into(), mib)) >> 20;
    assert_eq!([of(0), of(256), of(1024), of(8192), of(u64::MAX)], [32, 32, 128, 1024, 1024]);
}

#[test]
fn folders_of_buckets_are_removed_and_nothing_else_is() {
    let disk = FaultFs::new(1);
    let place =
        service::Place { fs: Arc::new(disk.clone()), dir: "/indexes".into(), room_min: Arc::new(|| 0) };
    setup::remove_others(&place, &BTreeSet::new()).unwrap();
    let [kept, gone] = ["1", "2"].map(|digit| digit.repeat(32));
    for name in [&kept, &gone, "mine"] {
        let dir = place.dir.join(name).join("index");
        disk.create_dir_all(&dir).unwrap();
        disk.create(&dir.join("head-1")).unwrap();
    }
    setup::remove_others(&place, &[kept.clone()].into()).unwrap();
    let mut names = disk.list(Path::new("/indexes")).unwrap();
    names.sort();
    assert_eq!(names, [kept, "mine".to_owned()]);
}

#[test]
fn a_bucket_keeps_its_folder_for_as_long_as_a_design_document_defines_views() {
    let mut sweeper = Sweeper::default();
    let uuid = BucketUuid("b".into());
    let params = BucketParams { ram_quota_mb: Some(100), ..BucketParams::default() };
    let create = Command::CreateBucket { name: "app".into(), uuid: uuid.clone(), params };
    let mut meta = Metadata::new("c".repeat(32), 1024);
    let node = NodeInfo::first("n".into(), "n".into(), Ports::default());
    meta = meta.apply(&Command::SetNode(node)).unwrap().0.apply(&create).unwrap().0;
    let mut keeps = |meta: &Metadata| sweeper.with_views(meta).any(|kept| *kept == uuid);
    assert!(!keeps(&meta));
    for (name, text, expected) in [
        ("a", Some(r#"{"views":{"v":{"map":"x"}}}"#), true),
        ("b", Some(r#"{"options":{}}"#), true),
        ("a", None, false),
        ("b", Some(r#"{"views":{"v":{"map":"x"}}}"#), true),
        ("b", Some(r#"{"views":{}}"#), false),
        ("c", Some("it is of another version"), true),
        ("c", None, false),
    ] {
        let (bucket, text) = ("app".into(), text.map(str::to_owned));
        let change = DesignDocumentChange { bucket, name: name.into(), text, lot: 1, over: None };
        meta = meta.apply(&Command::ChangeDesignDocument(change)).unwrap().0;
        assert_eq!([keeps(&meta), keeps(&meta)], [expected; 2], "{name}");
    }
    meta.buckets.clear();
    assert!(!keeps(&meta));
}
