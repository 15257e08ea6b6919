//! What indexers are told, and which folders stay.

use std::path::Path;

use storage::{FaultFs, Fs};

use super::*;

const VB: VbId = VbId(3);

#[test]
fn an_indexer_is_told_of_copies_that_have_feeds() {
    use service::Change::{Active, Gone, Replica, Reset, Sealed};
    let mut copies = Copies::default();
    let told: Vec<_> =
        [Replica, Active, Sealed, Reset, Active, Gone, Sealed].map(|change| copies.hear(VB, change)).into();
    let served = Some(Change::Served);
    let gone = Some(Change::Gone);
    assert_eq!(told, [gone, served, None, Some(Change::Reset), served, gone, served]);
    assert_eq!(copies.all().collect::<Vec<_>>(), [(VB, Change::Served)]);
    copies.hear(VB, Replica);
    assert_eq!(copies.all().collect::<Vec<_>>(), [(VB, Change::Gone)], "one that starts later is told so");
}

#[test]
fn an_indexer_is_told_of_copies_that_are_to_take_over() {
    use service::Change::{Active, Gone, Replica};
    let (mut copies, other) = (Copies::default(), VbId(5));
    assert_eq!(copies.index_followers([VB].into()), [], "nothing was heard of it");
    assert_eq!([VB, other].map(|vb| copies.hear(vb, Replica)), [Change::Following, Change::Gone].map(Some));
    assert_eq!(copies.hear(VB, Replica), None, "in another term");
    assert_eq!(copies.all().collect::<Vec<_>>(), [(VB, Change::Following), (other, Change::Gone)]);
    let changed = copies.index_followers([other].into());
    assert_eq!(changed, [(VB, Change::Gone), (other, Change::Following)]);
    assert_eq!(copies.hear(other, Active), Some(Change::Served));
    assert_eq!(copies.index_followers([VB].into()), [(VB, Change::Following)], "the other one serves");
    assert_eq!(copies.hear(VB, Gone), Some(Change::Gone));
    assert_eq!(copies.index_followers(BTreeSet::new()), []);
}

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
