//! What indexers are told, and which folders stay.

use std::path::Path;

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
