use std::{fs, path::Path};

use cluster::{Admin, BucketParams, Command, Initialize, NodeInfo, Ports, QuotaChange, auth::Credentials};

use super::*;
use crate::watching::rules;

const NODE: &str = "00000000000000000000000000000001";

fn after(metadata: &Metadata, command: &Command) -> Arc<Metadata> {
    Arc::new(metadata.apply(command).unwrap().0)
}

/// Of a node with one small bucket, `b`.
fn metadata_with_bucket(uuid: &BucketUuid) -> Arc<Metadata> {
    metadata_with_bucket_of(BucketKind::Couchbase, uuid)
}

fn metadata_with_bucket_of(kind: BucketKind, uuid: &BucketUuid) -> Arc<Metadata> {
    let admin = Admin { name: "Administrator".into(), credentials: Credentials::new("password", [0; 32]) };
    let init = Initialize { admin, cluster_name: None, quotas: QuotaChange::default() };
    let node = NodeInfo::first(NODE.into(), "127.0.0.1".into(), Ports::default());
    let params = BucketParams {
        kind: Some(kind),
        ram_quota_mb: Some(100),
        replicas: Some(0),
        vbuckets: Some(16),
        ..BucketParams::default()
    };
    let create = Command::CreateBucket { name: "b".into(), uuid: uuid.clone(), params };
    let mut metadata = Arc::new(Metadata::new("0123456789abcdef0123456789abcdef".into(), 4096));
    for command in [Command::Initialize(init), Command::SetNode(node), create] {
        metadata = after(&metadata, &command);
    }
    metadata
}

/// With the buckets of `metadata` open.
fn open_buckets(dir: &Path, metadata: &Arc<Metadata>) -> OpenBuckets {
    let buckets = unopened_buckets(dir, metadata);
    buckets.reconcile(metadata).unwrap();
    buckets
}

fn unopened_buckets(dir: &Path, metadata: &Arc<Metadata>) -> OpenBuckets {
    let unpublished = Snapshot::new(Arc::clone(metadata), HashMap::new(), None);
    OpenBuckets::new(
        (Arc::new(DataDir::open(dir).unwrap()), Disk::new(storage::DiskLimits::default())),
        Shared::new(unpublished, |_| {}).unwrap(),
        Wakes::default(),
        1,
        Arc::new(ThisNode::new(NODE.into(), base::NodeId(0))),
    )
}

/// Waits until the bucket that was dropped is gone.
fn wait_until_gone(buckets: &OpenBuckets) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(buckets.one_has_left());
    assert!(buckets.leaving.lock().is_empty());
}

/// Whether a bucket waits until its old files are gone.
fn is_leaving(buckets: &OpenBuckets, metadata: &Arc<Metadata>) -> bool {
    let unavailable = buckets.reconcile(metadata).unwrap_err();
    unavailable.reasons().all(|error| matches!(error, BucketError::Leaving { .. }))
}

#[test]
fn a_thread_that_attends_to_open_buckets_does_not_wait_for_one_that_is_being_opened_or_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let buckets = open_buckets(dir.path(), &metadata_with_bucket(&BucketUuid("open".into())));
    let changing = buckets.changing.lock();
    assert_eq!((buckets.metered_buckets().len(), buckets.list().len()), (1, 1));
    drop(changing);
    buckets.close().unwrap();
}

#[test]
fn a_bucket_whose_files_are_gone_is_not_opened_as_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let uuid = BucketUuid("lost".into());
    let metadata = metadata_with_bucket(&uuid);
    open_buckets(dir.path(), &metadata).close().unwrap();
    let (folder, away) = (dir.path().join("buckets/lost/0"), dir.path().join("away"));
    fs::rename(&folder, &away).unwrap();
    let buckets = unopened_buckets(dir.path(), &metadata);
    let alerts = || rules::unopened(buckets.unopened(), "n").collect::<Vec<_>>();
    assert_eq!(alerts(), []);
    assert!(buckets.reconcile(&metadata).is_err());
    assert!(buckets.misses(&metadata), "it is tried again");
    let told = alerts();
    assert!(told.len() == 1 && told[0].about.name == "bucket_not_open" && told[0].subject == "b", "{told:?}");
    fs::rename(&away, &folder).unwrap();
    buckets.reconcile(&metadata).unwrap();
    assert!(!buckets.misses(&metadata) && alerts().is_empty());
    buckets.close().unwrap();
}

#[test]
fn the_files_of_a_bucket_that_could_not_be_opened_go_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let uuid = BucketUuid("b0".repeat(16));
    let metadata = metadata_with_bucket(&uuid);
    open_buckets(dir.path(), &metadata).close().unwrap();
    let folder = dir.path().join("buckets").join(&uuid.0);
    fs::rename(folder.join("0"), folder.join("1")).unwrap();
    let buckets = unopened_buckets(dir.path(), &metadata);
    assert!(buckets.reconcile(&metadata).is_err() && folder.exists());
    buckets.reconcile(&after(&metadata, &Command::DeleteBucket { name: "b".into() })).unwrap();
    wait_until_gone(&buckets);
    assert!(!folder.exists() && !buckets.data_dir.shards_record(&uuid).exists());
}

#[test]
fn a_bucket_that_cannot_be_opened_keeps_no_other_one_from_being_opened_or_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| {
        let params = BucketParams {
            ram_quota_mb: Some(100),
            replicas: Some(0),
            vbuckets: Some(16),
            ..BucketParams::default()
        };
        Command::CreateBucket { name: name.into(), uuid: BucketUuid(name.into()), params }
    };
    let metadata = after(&metadata_with_bucket(&BucketUuid("b".into())), &of("c"));
    fs::create_dir_all(dir.path().join("buckets")).unwrap();
    fs::write(dir.path().join("buckets/b"), "no folder").unwrap();
    let buckets = unopened_buckets(dir.path(), &metadata);
    let unavailable = buckets.reconcile(&metadata).unwrap_err();
    assert_eq!(unavailable.reasons().count(), 1, "{unavailable}");
    assert!(buckets.engine("c").is_some());
    let unopened = buckets.unopened();
    assert!(unopened.iter().all(|(name, why)| name == "b" && why.contains("bucket b")), "{unopened:?}");
    assert_eq!(unopened.len(), 1);
    let next = after(&metadata, &of("d"));
    let unavailable = buckets.reconcile(&next).unwrap_err();
    assert!(unavailable.fails(&metadata, &next).is_none(), "the new bucket is served: {unavailable}");
    assert!(buckets.engine("d").is_some());
    buckets.reconcile(&after(&next, &Command::DeleteBucket { name: "c".into() })).unwrap_err();
    assert!(buckets.engine("c").is_none());
    buckets.close().unwrap();
}

/// Somebody else may still have it, and its name may be another bucket's by now. Many times, for it is a matter of
/// microseconds.
#[test]
fn a_bucket_that_is_published_no_longer_takes_no_mutation() {
    let dir = tempfile::tempdir().unwrap();
    let first = metadata_with_bucket_of(BucketKind::Ephemeral, &BucketUuid("0".into()));
    let buckets = open_buckets(dir.path(), &first);
    for round in 1..2000 {
        let old = buckets.shared.snapshot().buckets["b"].clone();
        let flush = Command::FlushBucket { name: "b".into(), uuid: BucketUuid(round.to_string()) };
        let flushed = after(&first, &flush);
        let (shared, open) = (Arc::clone(&buckets.shared), &buckets);
        let accepted = std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                while shared.snapshot().buckets.get("b").is_none_or(|new| new.uuid == old.uuid) {
                    std::hint::spin_loop();
                }
                let key = base::HashedKey::new(base::DocKey::trusted(b"\0key"));
                old.engine.store(base::VbId(0), key, &engine::Store::set(b"v"), shared.now()).is_ok()
            });
            open.reconcile(&flushed).unwrap();
            writer.join().unwrap()
        });
        assert!(!accepted, "round {round}: an old bucket has accepted what nobody will find");
    }
    buckets.close().unwrap();
}

#[test]
fn buckets_that_a_node_has_closed_stay_so() {
    let dir = tempfile::tempdir().unwrap();
    let metadata = metadata_with_bucket(&BucketUuid("c1".repeat(16)));
    let buckets = open_buckets(dir.path(), &metadata);
    buckets.close().unwrap();
    buckets.reconcile(&metadata).unwrap();
    assert!(buckets.engine("b").is_none(), "nobody would close it");
}

/// A thread of the bucket is at a disk that hangs.
#[test]
fn carrying_out_metadata_does_not_wait_for_the_disk_of_a_dropped_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let uuid = BucketUuid("hanging".into());
    let metadata = metadata_with_bucket(&uuid);
    let buckets = open_buckets(dir.path(), &metadata);
    let (let_go, waits) = std::sync::mpsc::channel::<()>();
    let hanging = std::thread::spawn(move || {
        // Not for ever, so that a failure is one.
        let _ = waits.recv_timeout(Duration::from_secs(20));
    });
    buckets.open.lock().get_mut("b").unwrap().threads.add(hanging);
    buckets.reconcile(&after(&metadata, &Command::DeleteBucket { name: "b".into() })).unwrap();
    assert!(let_go.send(()).is_ok(), "it has not waited until that thread gave up");
    wait_until_gone(&buckets);
    assert!(!buckets.data_dir.bucket(&uuid).exists());
}

#[test]
fn files_of_a_dropped_bucket_stay_until_nobody_can_write_them() {
    let dir = tempfile::tempdir().unwrap();
    let uuid = BucketUuid("d0".repeat(16));
    let metadata = metadata_with_bucket(&uuid);
    let buckets = open_buckets(dir.path(), &metadata);
    let used = buckets.engine("b").unwrap();
    let folder = buckets.data_dir.bucket(&uuid);
    let without = after(&metadata, &Command::DeleteBucket { name: "b".into() });
    buckets.reconcile(&without).unwrap();
    buckets.remove_unknown(&without).unwrap();
    assert!(folder.join("0").exists(), "its holder may still write there");
    drop(used);
    wait_until_gone(&buckets);
    assert!(!folder.exists());
    // What nobody has is what a crash has left.
    fs::create_dir_all(&folder).unwrap();
    buckets.remove_unknown(&without).unwrap();
    assert!(!folder.exists());
}

#[test]
fn a_dropped_bucket_that_no_thread_could_be_had_for_is_removed_at_the_next_try() {
    let dir = tempfile::tempdir().unwrap();
    let uuid = BucketUuid("5d".repeat(16));
    let metadata = metadata_with_bucket(&uuid);
    let buckets = open_buckets(dir.path(), &metadata);
    let without = after(&metadata, &Command::DeleteBucket { name: "b".into() });
    let OpenBucket { engine, threads, .. } = buckets.open.lock().remove("b").unwrap();
    buckets.leaving.lock().insert(uuid.clone());
    let open = Some((engine, threads));
    buckets.removal_backlog.lock().push(DroppedBucket { name: "b".into(), uuid: uuid.clone(), open });
    assert!(buckets.misses(&without), "it is tried again, whatever changes");
    assert!(is_leaving(&buckets, &metadata));
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(buckets.one_has_left());
    assert!(!buckets.misses(&without) && !buckets.data_dir.bucket(&uuid).exists());
}

#[test]
fn a_bucket_that_comes_back_waits_until_its_old_files_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let uuid = BucketUuid("returning".into());
    let metadata = metadata_with_bucket(&uuid);
    let buckets = open_buckets(dir.path(), &metadata);
    let used = buckets.engine("b").unwrap();
    let old = buckets.data_dir.bucket(&uuid).join("old");
    fs::write(&old, b"").unwrap();
    let without = after(&metadata, &Command::DeleteBucket { name: "b".into() });
    buckets.reconcile(&without).unwrap();
    assert!(is_leaving(&buckets, &metadata));
    assert!(buckets.misses(&metadata) && old.exists(), "its holder may still write there");
    drop(used);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(buckets.one_has_left());
    buckets.reconcile(&metadata).unwrap();
    assert!(!buckets.misses(&metadata) && !old.exists());
    buckets.close().unwrap();
}

/// A node leaves its cluster and joins it again, and the files of the bucket could not be removed in between.
#[test]
fn files_that_could_not_be_removed_are_not_the_bucket_that_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let uuid = BucketUuid("returning".into());
    let metadata = metadata_with_bucket(&uuid);
    let buckets = open_buckets(dir.path(), &metadata);
    let folder = buckets.data_dir.bucket(&uuid);
    let (old, in_the_way) = (folder.join("0/old"), dir.path().join("buckets/returning.gone"));
    fs::write(&old, b"").unwrap();
    fs::write(&in_the_way, b"").unwrap();
    buckets.reconcile(&after(&metadata, &Command::DeleteBucket { name: "b".into() })).unwrap();
    wait_until_gone(&buckets);
    assert!(old.exists(), "the removal has failed");
    assert!(buckets.reconcile(&metadata).is_err(), "it still does");
    fs::remove_file(&in_the_way).unwrap();
    buckets.reconcile(&metadata).unwrap();
    assert!(!old.exists(), "the bucket begins anew");
    buckets.close().unwrap();
}
