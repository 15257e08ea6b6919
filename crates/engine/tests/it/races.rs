//! What was read from disk may be out of date when it arrives: each test lets something happen in the middle of a read.

use std::sync::Arc;

use crate::support::{Rig, options};
use base::{
    CollectionId, DocKey, HashedKey, Manifest, ManifestUid, Now, Status, VbId,
    bucket::{BucketKind, EvictionPolicy},
    hash::key_hash,
    manifest::Collection,
};
use settee_engine::{Bucket, BucketChange, BucketOptions, Budget, Delete, Refusal, Store, Waiter};

const KEY: &[u8] = b"\0key";
const WAITER: Waiter = Waiter { worker: 0, connection: 0, ticket: 0 };

/// One vBucket's worth of a bucket, usable from inside a read.
#[derive(Clone)]
struct Hand {
    bucket: Arc<Bucket>,
    now: Now,
    vb: VbId,
}

impl Hand {
    fn of(rig: &Rig) -> Self {
        Self { bucket: rig.bucket.clone(), now: rig.now(), vb: rig.key(KEY).0 }
    }

    fn shard(&self) -> usize {
        usize::from(self.vb.get()) % self.bucket.shards()
    }

    fn run<T>(
        &self,
        operation: impl Fn(&Bucket, VbId, HashedKey<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Status> {
        let key = HashedKey { key: DocKey::trusted(KEY), hash: key_hash(KEY) };
        loop {
            match operation(&self.bucket, self.vb, key) {
                Ok(done) => return Ok(done),
                Err(Refusal::Status(status)) => return Err(status),
                Err(Refusal::Fetch) => {
                    self.bucket.fetch(self.vb, key, WAITER).unwrap();
                    self.bucket.run_fetches(self.shard(), 8, self.now);
                }
            }
        }
    }

    fn set(&self, value: &[u8]) {
        self.run(|bucket, vb, key| bucket.store(vb, key, &Store::set(value), self.now)).unwrap();
    }

    fn get(&self) -> Result<Vec<u8>, Status> {
        self.run(|bucket, vb, key| bucket.get(vb, key, self.now, |view| view.value.to_vec()))
    }

    fn delete(&self) {
        self.run(|bucket, vb, key| bucket.delete(vb, key, &Delete::default(), self.now)).unwrap();
    }

    fn rev(&self) -> Result<u64, Status> {
        self.run(|bucket, vb, key| bucket.meta(vb, key, self.now)).map(|meta| meta.rev)
    }

    /// Everything of the shard to disk, whatever the time.
    fn flush(&self) {
        let later = Now { mono_millis: self.now.mono_millis + 1_000, ..self.now };
        while self.bucket.flush(self.shard(), later).unsynced {}
    }

    fn eject(&self) {
        let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
        self.bucket.reconfigure(quota(0));
        while self.bucket.page(self.now, Budget::default()).more {}
        self.bucket.reconfigure(quota(64 << 20));
    }
}

fn rig() -> Rig {
    Rig::new(options(BucketKind::Couchbase))
}

/// A bucket that has the document in memory and on disk.
fn synced(value: &[u8]) -> (Rig, Hand) {
    let rig = rig();
    let hand = Hand::of(&rig);
    hand.set(value);
    hand.flush();
    (rig, hand)
}

/// A bucket that has the document on disk only.
fn ejected(value: &[u8]) -> (Rig, Hand) {
    let (rig, hand) = synced(value);
    hand.eject();
    (rig, hand)
}

/// The next read on the hand's shard is followed by `interlude`.
fn during_next_read(rig: &Rig, interlude: impl FnOnce(Hand) + Send + 'static) {
    let hand = Hand::of(rig);
    rig.stores[hand.shard()].after_next_read(move || interlude(hand));
}

#[test]
fn a_value_that_was_replaced_meanwhile_is_not_installed() {
    let (rig, hand) = ejected(b"old");
    during_next_read(&rig, |hand| {
        hand.set(b"new");
        hand.flush();
        hand.eject();
    });
    assert_eq!(hand.get().unwrap(), b"new");
}

#[test]
fn a_value_of_an_older_version_is_not_installed_in_the_place_of_one_that_the_disk_has_lost() {
    let rig = rig();
    let hand = Hand::of(&rig);
    for value in [b"old", b"new"] {
        hand.set(value);
        hand.flush();
    }
    hand.eject();
    rig.stores[hand.shard()].lose_newest(hand.vb, KEY);
    assert_eq!(hand.get(), Err(Status::TemporaryFailure), "as long as the one that is wanted, and not it");
}

#[test]
fn a_value_that_moved_meanwhile_is_found_again() {
    let (rig, hand) = ejected(b"value");
    // The first read goes to a place that is gone by the time of the second.
    during_next_read(&rig, |hand| {
        hand.bucket.compact(hand.shard(), hand.now).unwrap();
    });
    assert_eq!(hand.get().unwrap(), b"value");
    hand.eject();
    assert_eq!(hand.get().unwrap(), b"value");
}

#[test]
fn a_document_deleted_meanwhile_does_not_come_back_with_its_value() {
    let (rig, hand) = ejected(b"old");
    during_next_read(&rig, |hand| {
        hand.delete();
        hand.flush();
    });
    assert_eq!(hand.get(), Err(Status::KeyNotFound));
}

#[test]
fn a_tombstone_replaced_meanwhile_is_not_remembered() {
    let rig = rig();
    let hand = Hand::of(&rig);
    hand.set(b"v");
    hand.delete();
    hand.flush();
    during_next_read(&rig, |hand| {
        hand.set(b"w");
        hand.delete();
        hand.flush();
    });
    assert_eq!(hand.rev(), Ok(4));
}

#[test]
fn absence_is_not_remembered_over_an_emptied_bucket_either() {
    let rig = rig();
    let hand = Hand::of(&rig);
    hand.set(b"v");
    hand.delete();
    hand.flush();
    during_next_read(&rig, |hand| hand.bucket.flush_all(hand.now).unwrap());
    assert_eq!(hand.rev(), Err(Status::KeyNotFound), "the tombstone belongs to the history before");
}

#[test]
fn warm_up_does_not_bring_back_what_is_deleted_while_it_reads() {
    let rig = synced(b"v").0.crash();
    // The scan has read the record, and hands it over only after its deletion is synced.
    during_next_read(&rig, |hand| {
        hand.delete();
        hand.flush();
    });
    rig.warm_up();
    assert_eq!(Hand::of(&rig).get(), Err(Status::KeyNotFound));
    assert_eq!(rig.bucket.stats().curr_items, 0);
}

#[test]
fn warm_up_does_not_undo_what_is_written_while_it_reads() {
    let rig = synced(b"old").0.crash();
    during_next_read(&rig, |hand| {
        hand.set(b"new");
        hand.flush();
        hand.eject();
    });
    rig.warm_up();
    assert_eq!(Hand::of(&rig).get().unwrap(), b"new");
}

#[test]
fn a_request_during_the_lookup_of_its_key_waits_for_that_one() {
    let rig = synced(b"old").0.crash();
    let second = Waiter { ticket: 1, ..WAITER };
    during_next_read(&rig, move |hand| {
        let key = HashedKey { key: DocKey::trusted(KEY), hash: key_hash(KEY) };
        assert_eq!(
            hand.bucket.store(hand.vb, key, &Store::set(b"new"), hand.now).unwrap_err(),
            Refusal::Fetch
        );
        hand.bucket.fetch(hand.vb, key, second).unwrap();
        assert_eq!(hand.bucket.run_fetches(hand.shard(), 8, hand.now), 0, "it is being read already");
    });
    let hand = Hand::of(&rig);
    assert_eq!(hand.get().unwrap(), b"old");
    assert_eq!(*rig.recorder.woken.lock(), [WAITER, second]);
    let fetched = rig.bucket.stats().ops.bg_fetched;
    hand.set(b"new");
    hand.flush();
    rig.warm_up();
    assert_eq!(hand.get().unwrap(), b"new");
    assert_eq!(rig.bucket.stats().ops.bg_fetched, fetched, "one read was enough for both");
}

#[test]
fn warm_up_does_not_count_what_is_emptied_while_it_reads() {
    let options = BucketOptions { eviction: EvictionPolicy::FullEviction, ..options(BucketKind::Couchbase) };
    let mut manifest = Manifest { uid: ManifestUid(1), next_id: 9, ..Manifest::default() };
    manifest.scopes[0].collections.push(Collection {
        id: CollectionId(8),
        name: "c".into(),
        max_ttl_secs: None,
    });
    let rig = Rig::with_manifest(options, Arc::new(manifest));
    let hand = Hand::of(&rig);
    hand.set(b"v");
    hand.flush();
    let rig = rig.crash();
    let hand = Hand::of(&rig);
    rig.bucket.reconfigure(BucketChange { quota_bytes: Some(0), ..BucketChange::default() });
    // All keys have been read when the first system event is looked up.
    let pause = || during_next_read(&rig, |hand| hand.bucket.flush_all(hand.now).unwrap());
    rig.bucket.warm_up_pausing(hand.shard(), hand.now, &pause).unwrap();
    let stats = rig.bucket.stats();
    assert_eq!((stats.curr_items, stats.evicted), (0, 0));
}
