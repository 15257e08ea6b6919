//! Durable writes as prepares. They are committed once they are synced, and aborted when their time is up. Also: what a
//! crash, a feed and a failing disk make of them.

use crate::support::{Rig, options};
use base::{
    Status,
    bucket::{BucketKind, DurabilityLevel},
};
use settee_engine::{
    Delete, Durable, Feed, FeedItem, FeedKind, FeedOptions, FeedStep, FlushFailure, Mutated, Store, Waiter,
};

const KEY: &[u8] = b"\0key";
const LEVEL: DurabilityLevel = DurabilityLevel::MajorityAndPersistActive;
const WAITER: Waiter = Waiter { worker: 1, connection: 2, ticket: 3 };

fn rig() -> Rig {
    Rig::new(options(BucketKind::Couchbase))
}

fn store(rig: &Rig, value: &[u8], durability: DurabilityLevel) -> Mutated {
    let request = Store { durability, ..Store::set(value) };
    rig.run(KEY, |bucket, vb, key| bucket.store(vb, key, &request, rig.now())).unwrap()
}

fn get(rig: &Rig) -> Result<Vec<u8>, Status> {
    rig.run(KEY, |bucket, vb, key| bucket.get(vb, key, rig.now(), |view| view.value.to_vec()))
}

fn info(rig: &Rig) -> settee_engine::VbInfo {
    rig.bucket.vb_state(rig.key(KEY).0).unwrap()
}

/// Syncs once, which commits, and does not write what that made.
fn sync_once(rig: &mut Rig) {
    rig.clock.0 += 1_000;
    let shard = usize::from(rig.key(KEY).0.get()) % rig.bucket.shards();
    assert!(rig.bucket.flush(shard, rig.now()).synced);
}

fn time_out(rig: &mut Rig) {
    rig.clock.advance_secs(31);
    rig.bucket.time_out_durable(rig.now());
}

#[test]
fn a_commit_has_the_next_seqno_and_the_prepares_cas() {
    let mut rig = rig();
    store(&rig, b"1", DurabilityLevel::None);
    let prepared = store(&rig, b"2", LEVEL);
    let before = info(&rig);
    assert_eq!((before.high_seqno, before.max_visible_seqno.next()), (prepared.seqno, prepared.seqno));
    assert_eq!(before.prepares, 1);
    sync_once(&mut rig);
    let committed = rig.completed(KEY, &prepared);
    assert_eq!((committed.seqno, committed.cas), (prepared.seqno.next(), prepared.cas));
    let after = info(&rig);
    assert_eq!((after.max_visible_seqno, after.persisted_seqno), (committed.seqno, prepared.seqno));
    assert_eq!((after.high_prepared_seqno, after.high_completed_seqno), (prepared.seqno, prepared.seqno));
    assert_eq!(get(&rig).unwrap(), b"2");
}

#[test]
fn what_is_synced_is_committed_after_a_crash_and_what_is_not_is_gone() {
    let mut rig = rig();
    store(&rig, b"1", DurabilityLevel::None);
    rig.flush();
    store(&rig, b"2", LEVEL);
    let mut rig = rig.crash();
    assert_eq!(get(&rig).unwrap(), b"1");
    let prepared = store(&rig, b"3", LEVEL);
    sync_once(&mut rig);
    rig.completed(KEY, &prepared);
    // Acknowledged; the commit is in memory only.
    let mut rig = rig.crash();
    assert_eq!(get(&rig).unwrap(), b"3", "before warm-up");
    assert_eq!(info(&rig).prepares, 0);
    rig.warm_up();
    assert_eq!(get(&rig).unwrap(), b"3");
    let request = Delete { durability: LEVEL, ..Delete::default() };
    rig.run(KEY, |bucket, vb, key| bucket.delete(vb, key, &request, rig.now())).unwrap();
    sync_once(&mut rig);
    for _ in 0..2 {
        rig = rig.crash();
        rig.warm_up();
        assert_eq!(get(&rig), Err(Status::KeyNotFound));
    }
    assert_eq!(rig.bucket.stats().curr_items, 0);
}

#[test]
fn an_aborted_write_is_never_seen() {
    for synced in [false, true] {
        let mut rig = rig();
        store(&rig, b"1", DurabilityLevel::None);
        rig.flush();
        let prepared = store(&rig, b"2", LEVEL);
        assert_eq!(rig.complete(KEY, &prepared, WAITER), Ok(Durable::Parked));
        time_out(&mut rig);
        assert!(rig.recorder.woken.lock().contains(&WAITER));
        assert_eq!(rig.complete(KEY, &prepared, WAITER), Err(Status::SyncWriteAmbiguous));
        assert_eq!(info(&rig).high_completed_seqno, prepared.seqno);
        store(&rig, b"3", DurabilityLevel::None);
        if synced {
            rig.flush();
        }
        assert_eq!(get(&rig).unwrap(), b"3");
        let rig = rig.crash();
        rig.warm_up();
        assert_eq!(get(&rig).unwrap(), if synced { b"3" } else { b"1" });
    }
}

#[test]
fn a_deadline_is_kept_whether_anybody_waits_or_not() {
    let mut rig = rig();
    let prepared = store(&rig, b"1", LEVEL);
    let ((vb, key), now) = (rig.key(KEY), rig.now());
    let asked = rig.bucket.complete_durable(vb, key, &prepared, WAITER, now.mono_millis + 2_000, now);
    assert_eq!(asked, Ok(Durable::Parked));
    rig.clock.advance_secs(1);
    rig.bucket.time_out_durable(rig.now());
    assert_eq!(info(&rig).prepares, 1);
    rig.clock.advance_secs(1);
    rig.bucket.time_out_durable(rig.now());
    assert_eq!((info(&rig).prepares, get(&rig)), (0, Err(Status::KeyNotFound)));
    // A caller that asks in time decides itself.
    let prepared = store(&rig, b"2", LEVEL);
    let now = rig.now();
    let asked = rig.bucket.complete_durable(vb, key, &prepared, WAITER, now.mono_millis, now);
    assert_eq!(asked, Err(Status::SyncWriteAmbiguous));
    rig.flush();
    assert_eq!(get(&rig), Err(Status::KeyNotFound));
}

#[test]
fn nothing_waits_for_a_disk_that_has_failed() {
    let mut rig = rig();
    store(&rig, b"1", DurabilityLevel::None);
    rig.flush();
    let prepared = store(&rig, b"2", LEVEL);
    assert_eq!(rig.complete(KEY, &prepared, WAITER), Ok(Durable::Parked));
    let shard = usize::from(rig.key(KEY).0.get()) % rig.bucket.shards();
    rig.stores[shard].fail_sync();
    rig.clock.0 += 1_000;
    assert_eq!(rig.bucket.flush(shard, rig.now()).failed, Some(FlushFailure::Poisoned));
    assert_eq!(rig.complete(KEY, &prepared, WAITER), Err(Status::SyncWriteAmbiguous));
    assert_eq!((info(&rig).prepares, get(&rig).unwrap()), (0, b"1".to_vec()));
}

#[test]
fn a_write_in_progress_keeps_others_out_also_where_the_disk_cannot_be_read() {
    let mut rig = rig();
    store(&rig, b"1", DurabilityLevel::None);
    rig.flush();
    let mut rig = rig.crash();
    rig.stores.iter().for_each(|store| store.set_unreadable(true));
    // What was there is lost, and gives way.
    let prepared = store(&rig, b"2", LEVEL);
    for durability in [DurabilityLevel::None, LEVEL] {
        let request = Store { durability, ..Store::set(b"3") };
        let other = rig.run(KEY, |bucket, vb, key| bucket.store(vb, key, &request, rig.now()));
        assert_eq!(other, Err(Status::SyncWriteInProgress));
    }
    rig.stores.iter().for_each(|store| store.set_unreadable(false));
    sync_once(&mut rig);
    rig.completed(KEY, &prepared);
    assert_eq!(get(&rig).unwrap(), b"2");
}

fn told(rig: &Rig, feed: &mut Feed) -> Vec<Vec<(FeedKind, u64, u64, bool)>> {
    let of = |item: &FeedItem| (item.kind, item.seqno.get(), item.prepared.get(), item.deleted);
    let mut batches = Vec::new();
    for _ in 0..20 {
        match feed.next(1 << 20, rig.now()).unwrap() {
            FeedStep::Batch(batch) => batches.push(batch.items.iter().map(of).collect()),
            FeedStep::Wait => {
                for shard in 0..rig.bucket.shards() {
                    rig.bucket.run_backfills(shard, rig.now());
                }
            }
        }
    }
    batches
}

/// What is told to be visible is: not a prepare, where a snapshot begins right behind one.
#[test]
fn a_snapshot_names_the_last_visible_mutation() {
    let mut rig = rig();
    rig.flush();
    let vb = rig.key(KEY).0;
    let open = |rig: &Rig, from| {
        rig.bucket.feed(vb, FeedOptions { from, prepares: true, ..FeedOptions::default() }, WAITER).unwrap()
    };
    let mut keeper = open(&rig, info(&rig).high_seqno);
    assert!(matches!(keeper.next(1, rig.now()), Ok(FeedStep::Wait)));
    let visible = store(&rig, b"1", DurabilityLevel::None).seqno;
    let prepare = store(&rig, b"2", LEVEL).seqno;
    time_out(&mut rig);
    let mut feeds = [keeper, open(&rig, visible), open(&rig, prepare)];
    for feed in &mut feeds {
        let mut last = None;
        while let Ok(FeedStep::Batch(batch)) = feed.next(1 << 20, rig.now()) {
            let snapshot = batch.snapshot.unwrap();
            assert_eq!(snapshot.max_visible, visible, "{snapshot:?}");
            last = Some(snapshot.end);
        }
        assert_eq!(last, Some(prepare.next()));
    }
}

#[test]
fn a_feed_tells_prepares_and_what_became_of_them_to_a_reader_that_asks() {
    use FeedKind::{Abort, Mutation, Prepare};
    let mut rig = rig();
    rig.flush();
    let from = info(&rig).high_seqno;
    let vb = rig.key(KEY).0;
    let open = |rig: &Rig, prepares| {
        rig.bucket.feed(vb, FeedOptions { from, prepares, ..FeedOptions::default() }, WAITER).unwrap()
    };
    let (mut all, mut visible) = (open(&rig, true), open(&rig, false));
    let n = |offset: u64| from.get() + offset;
    store(&rig, b"1", LEVEL);
    assert_eq!(told(&rig, &mut all), [vec![(Prepare, n(1), 0, false)]]);
    rig.flush();
    store(&rig, b"2", DurabilityLevel::None);
    // The key has a commit in its snapshot and nothing else.
    let commit = vec![(Mutation, n(2), n(1), false)];
    assert_eq!(told(&rig, &mut all), [commit, vec![(Mutation, n(3), 0, false)]]);
    store(&rig, b"3", LEVEL);
    time_out(&mut rig);
    let abort = [vec![(Prepare, n(4), 0, false)], vec![(Abort, n(5), n(4), false)]];
    assert_eq!(told(&rig, &mut all), abort);
    let seen: Vec<_> = told(&rig, &mut visible).concat();
    assert_eq!(seen.last(), Some(&(Mutation, n(3), 0, false)));
    assert!(seen.iter().all(|told| told.0 == Mutation && told.2 == 0), "{seen:?}");

    // From disk: versions, and of a key the prepare or abort behind its version.
    rig.flush();
    let rig = rig.restart();
    rig.warm_up();
    let from_disk = told(&rig, &mut open(&rig, true)).concat();
    assert_eq!(from_disk, [(Mutation, n(3), 0, false), (Abort, n(5), n(4), false)]);
    assert_eq!(told(&rig, &mut open(&rig, false)).concat(), [(Mutation, n(3), 0, false)]);
}
