//! The ways a feed can go, one at a time. It goes out of the checkpoint, to disk and back; it is suspended, resumed inside
//! a snapshot, left alone by its consumer, thrown out.

use crate::support::{Rig, options};
use base::{
    DocKey, HashedKey, Now, Seqno, VbId,
    bucket::{BucketKind, DurabilityLevel},
};
use settee_engine::{
    BucketOptions, Delete, Feed, FeedBatch, FeedEnd, FeedKind, FeedOptions, FeedSnapshot, FeedStep, Pool,
    Store, Waiter, Work,
};

const VB: VbId = VbId(0);

fn rig(kind: BucketKind) -> Rig {
    with_cursor_bytes(kind, None)
}

fn with_cursor_bytes(kind: BucketKind, cursor_bytes_max: Option<u64>) -> Rig {
    Rig::new(BucketOptions { vbuckets: 1, shards: 1, cursor_bytes_max, ..options(kind) })
}

fn waiter(ticket: u64) -> Waiter {
    Waiter { worker: 3, connection: 3, ticket }
}

fn put(rig: &Rig, key: &str, value: &[u8]) -> Seqno {
    put_durably(rig, key, value, DurabilityLevel::None)
}

fn put_durably(rig: &Rig, key: &str, value: &[u8], durability: DurabilityLevel) -> Seqno {
    let (key, now) = (format!("\0{key}").into_bytes(), rig.now());
    let store = Store { durability, ..Store::set(value) };
    rig.run(&key, |bucket, vb, key| bucket.store(vb, key, &store, now)).unwrap().seqno
}

fn delete(rig: &Rig, key: &str) -> Seqno {
    let (key, now) = (format!("\0{key}").into_bytes(), rig.now());
    rig.run(&key, |bucket, vb, key| bucket.delete(vb, key, &Delete::default(), now)).unwrap().seqno
}

fn high(rig: &Rig) -> Seqno {
    rig.bucket.vb_history(VB).unwrap().high_seqno
}

fn open(rig: &Rig, ticket: u64, options: FeedOptions) -> Feed {
    rig.bucket.feed(VB, options, waiter(ticket)).unwrap()
}

fn from(seqno: Seqno) -> FeedOptions {
    FeedOptions { from: seqno, ..FeedOptions::default() }
}

fn batch(rig: &Rig, feed: &mut Feed, bytes_max: usize) -> Option<FeedBatch> {
    match feed.next(bytes_max, rig.now()).unwrap() {
        FeedStep::Batch(batch) => Some(batch),
        FeedStep::Wait => None,
    }
}

fn seqnos(batch: &FeedBatch) -> Vec<u64> {
    batch.items.iter().map(|item| item.seqno.get()).collect()
}

fn snapshot(batch: &FeedBatch) -> FeedSnapshot {
    batch.snapshot.unwrap()
}

fn is_woken(rig: &Rig, ticket: u64) -> bool {
    let mut woken = rig.recorder.woken.lock();
    let is_woken = woken.contains(&waiter(ticket));
    woken.clear();
    is_woken
}

fn run_backfills(rig: &Rig) {
    while rig.bucket.run_backfills(0, rig.now()).more {}
}

#[test]
fn a_feed_is_woken_once_for_what_it_has_not_seen() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let rig = rig(kind);
        let mut feed = open(&rig, 1, from(high(&rig)));
        put(&rig, "unseen", b"x");
        assert!(!is_woken(&rig, 1), "nobody asked yet: {kind:?}");
        // A memory-only bucket does not keep what came before the feed first asked.
        while batch(&rig, &mut feed, 1 << 20).is_some_and(|batch| !batch.ends_snapshot) {}
        run_backfills(&rig);
        while batch(&rig, &mut feed, 1 << 20).is_some() {}
        is_woken(&rig, 1);
        let first = put(&rig, "a", b"1");
        assert!(is_woken(&rig, 1));
        let second = put(&rig, "a", b"2");
        assert!(!is_woken(&rig, 1), "once");
        let got = batch(&rig, &mut feed, 1 << 20).unwrap();
        assert_eq!((seqnos(&got), snapshot(&got).end), (vec![second.get()], second));
        assert_eq!(snapshot(&got).start.next(), first);
        assert!(!snapshot(&got).from_disk && got.ends_snapshot);
        assert_eq!(&got.items[0].share()[..], b"2");
        assert!(batch(&rig, &mut feed, 1).is_none());
        let third = delete(&rig, "a");
        assert!(is_woken(&rig, 1));
        let got = batch(&rig, &mut feed, 1).unwrap();
        assert_eq!((got.items[0].kind, got.items[0].seqno), (FeedKind::Deletion, third));
    }
}

#[test]
fn a_batch_has_at_least_one_item_and_versions_that_are_not_superseded_within_it() {
    let rig = rig(BucketKind::Couchbase);
    let start = high(&rig);
    let mut feed = open(&rig, 1, from(start));
    assert!(batch(&rig, &mut feed, 1).is_none());
    let big = vec![b'x'; 10_000];
    let [a, b, c] = [put(&rig, "a", &big), put(&rig, "a", b"2"), put(&rig, "b", b"3")];
    let got = batch(&rig, &mut feed, 100).unwrap();
    assert_eq!((seqnos(&got), snapshot(&got).end), (vec![a.get()], a), "the newest by then");
    let got = batch(&rig, &mut feed, 10_000).unwrap();
    assert_eq!((seqnos(&got), snapshot(&got).end), (vec![b.get(), c.get()], c));
}

#[test]
fn a_durable_write_is_seen_once_it_is_committed() {
    let mut rig = rig(BucketKind::Couchbase);
    let mut feed = open(&rig, 1, from(high(&rig)));
    assert!(batch(&rig, &mut feed, 1 << 20).is_none());
    let before = put(&rig, "before", b"1");
    let prepared = put_durably(&rig, "pending", b"2", DurabilityLevel::PersistToMajority);
    let after = put(&rig, "after", b"3");
    let got = batch(&rig, &mut feed, 1 << 20).unwrap();
    assert_eq!((seqnos(&got), snapshot(&got).end), (vec![before.get(), after.get()], after));
    assert!(prepared > before && prepared < after);
    assert_eq!(rig.bucket.vb_history(VB).unwrap().max_visible, after);
    assert!(batch(&rig, &mut feed, 1 << 20).is_none());
    is_woken(&rig, 1);
    rig.flush();
    assert!(is_woken(&rig, 1));
    let got = batch(&rig, &mut feed, 1 << 20).unwrap();
    assert_eq!((seqnos(&got), got.items[0].kind), (vec![after.next().get()], FeedKind::Mutation));
    assert_eq!(got.items[0].value(), b"2");
}

#[test]
fn a_slow_cursor_goes_on_from_disk() {
    let mut rig = with_cursor_bytes(BucketKind::Couchbase, Some(1_000));
    let start = high(&rig);
    let mut feed = open(&rig, 1, from(start));
    assert!(batch(&rig, &mut feed, 1).is_none());
    for number in 0..50 {
        put(&rig, &format!("key{number}"), &[7; 100]);
    }
    assert_eq!(rig.bucket.drop_slow_cursors().items, 0, "the disk does not have it yet");
    is_woken(&rig, 1);
    rig.flush();
    assert!(rig.bucket.stats().cursor_bytes > 1_000);
    assert_eq!(rig.bucket.drop_slow_cursors().items, 1);
    let stats = rig.bucket.stats();
    assert_eq!((stats.cursor_bytes, stats.cursors_dropped, stats.cursors), (0, 1, 1));
    let unsynced = put(&rig, "unsynced", b"x");
    assert!(batch(&rig, &mut feed, 1 << 20).is_none());
    assert!(rig.recorder.work.lock().contains(&Work::Backfill(0)));
    run_backfills(&rig);
    assert!(is_woken(&rig, 1));
    let got = batch(&rig, &mut feed, 1 << 20).unwrap();
    assert!(snapshot(&got).from_disk && got.ends_snapshot);
    assert_eq!((snapshot(&got).start, got.items.len()), (start, 50));
    let got = batch(&rig, &mut feed, 1 << 20).unwrap();
    assert_eq!((seqnos(&got), snapshot(&got).from_disk), (vec![unsynced.get()], false));
}

#[test]
fn what_waits_for_feeds_is_counted() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let mut rig = rig(kind);
        let start = high(&rig);
        let (mut first, mut second) = (open(&rig, 1, from(start)), open(&rig, 2, from(start)));
        assert!(batch(&rig, &mut first, 1).is_none() && batch(&rig, &mut second, 1).is_none());
        let removed = rig.bucket.stats().checkpoint_items_removed;
        for number in 0..10 {
            put(&rig, &format!("key{number}"), &[1; 60]);
        }
        if kind == BucketKind::Couchbase {
            assert_eq!(rig.bucket.stats().cursor_bytes, 0, "the disk needs it");
            rig.flush();
        }
        let all = rig.bucket.stats().kv_bytes;
        let each = all / 10;
        let held = |rig: &Rig| (rig.bucket.stats().cursor_bytes, rig.bucket.stats().checkpoint_items_removed);
        assert_eq!(held(&rig), (all, removed));
        assert!(rig.bucket.stats().checkpoint_memory >= all);
        assert_eq!(batch(&rig, &mut first, each as usize * 4).unwrap().items.len(), 4);
        assert_eq!(held(&rig), (all, removed), "the other one is still there");
        assert_eq!(batch(&rig, &mut second, each as usize * 3).unwrap().items.len(), 3);
        assert_eq!(held(&rig), (all - 3 * each, removed + 3));
        // One that begins in the middle counts from there, about.
        let mut third = open(&rig, 3, from(Seqno(start.get() + 6)));
        assert_eq!(batch(&rig, &mut third, each as usize).unwrap().items.len(), 1);
        drop((first, second));
        let (bytes, gone) = held(&rig);
        assert!(bytes.abs_diff(3 * each) <= each && gone == removed + 7, "{bytes} of {all}");
        assert_eq!(batch(&rig, &mut third, 1 << 20).unwrap().items.len(), 3);
        assert_eq!(held(&rig), (0, removed + 10));
    }
}

/// What a consumer resumes in the middle of is not called complete before it reaches where that was to end.
#[test]
fn a_snapshot_is_resumed_through_its_end() {
    let mut rig = rig(BucketKind::Couchbase);
    let start = high(&rig);
    // Keeps everything in the checkpoint.
    let mut keeper = open(&rig, 1, from(start));
    assert!(batch(&rig, &mut keeper, 1).is_none());
    let many: Vec<Seqno> = (0..600).map(|number| put(&rig, &format!("key{number}"), &[1; 50])).collect();
    let options = FeedOptions { from: many[0], through: many[500], ..FeedOptions::default() };
    let mut feed = open(&rig, 2, options.clone());
    // As much at a time as is asked for.
    let got = batch(&rig, &mut feed, 1000).unwrap();
    let end = snapshot(&got).end;
    assert!(end >= many[500] && !got.ends_snapshot && !snapshot(&got).from_disk);
    let mut told = vec![got];
    while told.last().is_some_and(|got| !got.ends_snapshot) {
        told.push(batch(&rig, &mut feed, 1000).unwrap());
    }
    assert!(told[1..].iter().all(|got| got.snapshot.is_none()), "it is announced once");
    assert!(told.iter().all(|got| (1..10).contains(&got.items.len())), "of keys and values of 60 bytes");
    let seqnos: Vec<u64> = told.iter().flat_map(|got| &got.items).map(|item| item.seqno.get()).collect();
    assert_eq!(seqnos, (many[0].get() + 1..=end.get()).collect::<Vec<_>>());
    // The same from disk: not before the disk has it.
    drop((keeper, feed));
    rig.flush();
    let late = put(&rig, "late", b"x");
    let mut feed = open(&rig, 3, FeedOptions { through: late, ..options });
    assert!(batch(&rig, &mut feed, 1).is_none());
    run_backfills(&rig);
    assert!(batch(&rig, &mut feed, 1).is_none());
    is_woken(&rig, 3);
    rig.flush();
    assert!(is_woken(&rig, 3));
    assert!(batch(&rig, &mut feed, 1).is_none());
    run_backfills(&rig);
    let got = batch(&rig, &mut feed, 1).unwrap();
    assert!(snapshot(&got).from_disk && snapshot(&got).end == late);
    assert!(rig.bucket.feed(VB, FeedOptions { through: late.next(), ..from(late) }, waiter(4)).is_err());
}

/// A consumer that stops reading keeps nothing from being freed; it gets the rest when it is back.
#[test]
fn an_idle_consumer_loses_its_scan_and_takes_it_up_again() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let mut rig = rig(kind);
        put(&rig, "first", b"x");
        if kind == BucketKind::Couchbase {
            rig.flush();
        }
        // Somebody else keeps the checkpoint, so that memory would do for the rest.
        let mut keeper = open(&rig, 2, from(high(&rig)));
        assert!(batch(&rig, &mut keeper, 1).is_none());
        for number in 0..40 {
            put(&rig, &format!("key{number}"), &vec![1; 50_000]);
        }
        if kind == BucketKind::Couchbase {
            rig.flush();
        }
        let end = high(&rig);
        let mut feed = open(&rig, 1, FeedOptions::default());
        assert!(batch(&rig, &mut feed, 1).is_none());
        run_backfills(&rig);
        let got = batch(&rig, &mut feed, 1).unwrap();
        assert_eq!((snapshot(&got).start, snapshot(&got).end), (Seqno(0), end));
        let mut last = got.items[0].seqno;
        let held = rig.bucket.stats().backfill_bytes;
        assert!(held > 500_000 && held < 16 << 20, "read ahead, but not everything: {held}");
        put(&rig, "key39", b"newer");
        if kind == BucketKind::Couchbase {
            rig.flush();
        }
        rig.clock.0 += 61_000;
        run_backfills(&rig);
        let stats = rig.bucket.stats();
        assert_eq!(stats.backfill_bytes, 0, "{kind:?}");
        assert!(stats.stores.iter().all(|store| store.bytes_pinned == 0));
        // Back again.
        let (mut items, mut snapshots) = (0, Vec::new());
        loop {
            match batch(&rig, &mut feed, 1) {
                Some(got) => {
                    snapshots.extend(got.snapshot);
                    for item in &got.items {
                        assert!(item.seqno > last);
                        last = item.seqno;
                        items += 1;
                    }
                    if got.ends_snapshot {
                        break;
                    }
                }
                None => run_backfills(&rig),
            }
        }
        assert_eq!(snapshots.len(), 1);
        assert!(snapshots[0].end >= end && !snapshots[0].from_disk, "{snapshots:?}");
        assert!(items >= 37);
    }
}

/// On a disk that is short of space nobody keeps any of it who does not read.
#[test]
fn an_idle_consumer_makes_way_for_what_is_to_be_freed() {
    let mut rig = rig(BucketKind::Couchbase);
    for number in 0..40 {
        put(&rig, &format!("key{number}"), &vec![1; 50_000]);
    }
    rig.flush();
    let mut feed = open(&rig, 1, FeedOptions::default());
    assert!(batch(&rig, &mut feed, 1).is_none());
    run_backfills(&rig);
    let mut items = batch(&rig, &mut feed, 1).unwrap().items.len();
    rig.clock.0 += 3_000;
    run_backfills(&rig);
    assert!(rig.bucket.stats().backfill_bytes > 0, "there is no hurry");
    rig.bucket.set_disk_low(true);
    run_backfills(&rig);
    assert_eq!(rig.bucket.stats().backfill_bytes, 0);
    for _ in 0..1_000 {
        match batch(&rig, &mut feed, 1 << 20) {
            Some(got) => items += got.items.len(),
            None => run_backfills(&rig),
        }
    }
    assert_eq!(items, 40, "it gets the rest when it is back");
}

/// What is synced, and leaves the checkpoint, while the disk is being read behind it.
#[test]
fn nothing_is_lost_between_disk_and_checkpoint() {
    let mut rig = rig(BucketKind::Couchbase);
    let first = put(&rig, "a", b"1");
    rig.flush();
    let mut feed = open(&rig, 1, FeedOptions::default());
    assert!(batch(&rig, &mut feed, 1).is_none());
    let (bucket, now) = (rig.bucket.clone(), rig.now());
    rig.stores[0].after_next_read(move || {
        let key = HashedKey::new(DocKey::trusted(b"\0b"));
        bucket.store(VB, key, &Store::set(b"2"), now).unwrap();
        let later = Now { mono_millis: now.mono_millis + 1_000, ..now };
        while bucket.flush(0, later).unsynced {}
    });
    run_backfills(&rig);
    let got = batch(&rig, &mut feed, 1 << 20).unwrap();
    assert_eq!((snapshot(&got).end, snapshot(&got).from_disk), (first, true));
    assert_eq!(rig.bucket.vb_history(VB).unwrap().persisted, first.next());
    let got = batch(&rig, &mut feed, 1 << 20).unwrap();
    assert_eq!((seqnos(&got), snapshot(&got).from_disk), (vec![first.get() + 1], false));
}

/// What it has to go through will never be on disk.
#[test]
fn a_disk_that_takes_nothing_more_ends_who_waits_for_it() {
    let mut rig = rig(BucketKind::Couchbase);
    let first = put(&rig, "a", b"1");
    put(&rig, "b", b"2");
    rig.flush();
    let last = put(&rig, "c", b"3");
    let mut feed = open(&rig, 1, FeedOptions { through: last, ..from(first) });
    assert!(batch(&rig, &mut feed, 1).is_none());
    rig.stores[0].fail_sync();
    rig.clock.0 += 1_000;
    assert!(rig.bucket.flush(0, rig.now()).failed.is_some());
    assert!(rig.recorder.woken.lock().contains(&waiter(1)));
    assert_eq!(feed.next(1, rig.now()).unwrap_err(), FeedEnd::BackfillFailed);
}

#[test]
fn an_unordered_scan_cannot_be_taken_up_again() {
    let mut rig = rig(BucketKind::Couchbase);
    for number in 0..40 {
        put(&rig, &format!("key{number}"), &vec![1; 50_000]);
    }
    rig.flush();
    let mut feed = open(&rig, 1, FeedOptions { unordered: true, ..FeedOptions::default() });
    assert!(batch(&rig, &mut feed, 1).is_none());
    run_backfills(&rig);
    assert!(snapshot(&batch(&rig, &mut feed, 1).unwrap()).unordered);
    rig.clock.0 += 61_000;
    run_backfills(&rig);
    assert_eq!(feed.next(1, rig.now()).unwrap_err(), FeedEnd::TooSlow);
    assert_eq!(rig.bucket.stats().backfill_bytes, 0);
}

/// Many consumers that do not read do not keep one that does from its turn.
#[test]
fn idle_consumers_make_way_for_others() {
    let mut rig = rig(BucketKind::Couchbase);
    for number in 0..40 {
        put(&rig, &format!("key{number}"), &vec![1; 50_000]);
    }
    rig.flush();
    let mut idle: Vec<Feed> = (0..30).map(|ticket| open(&rig, ticket, FeedOptions::default())).collect();
    for feed in &mut idle {
        assert!(batch(&rig, feed, 1).is_none());
    }
    let other = Waiter { connection: 4, ..waiter(99) };
    let mut busy = rig.bucket.feed(VB, FeedOptions::default(), other).unwrap();
    let mut items = 0;
    for _ in 0..200 {
        run_backfills(&rig);
        assert!(rig.bucket.stats().backfill_bytes < 32 << 20);
        rig.clock.0 += 500;
        while let Some(got) = batch(&rig, &mut busy, 1 << 20) {
            items += got.items.len();
        }
    }
    assert!(items >= 40);
    assert!(is_woken(&rig, 0), "they could have read");
    for feed in &mut idle {
        for _ in 0..1_000 {
            match batch(&rig, feed, 1 << 20) {
                Some(got) if got.ends_snapshot => break,
                Some(_) => {}
                None => {
                    rig.clock.0 += 500;
                    run_backfills(&rig);
                }
            }
        }
    }
}

/// A consumer that was passed over is served again when it is back, whatever it finds.
#[test]
fn a_consumer_that_is_back_has_all_its_feeds_served() {
    for in_memory in [false, true] {
        let mut rig = rig(BucketKind::Couchbase);
        put(&rig, "first", b"x");
        rig.flush();
        let mut keeper = open(&rig, 100, from(high(&rig)));
        if in_memory {
            assert!(batch(&rig, &mut keeper, 1).is_none());
        }
        for number in 0..40 {
            put(&rig, &format!("key{number}"), &vec![1; 50_000]);
        }
        rig.flush();
        let mut feeds: Vec<Feed> = (0..20).map(|ticket| open(&rig, ticket, FeedOptions::default())).collect();
        for feed in &mut feeds {
            assert!(batch(&rig, feed, 1).is_none());
        }
        run_backfills(&rig);
        // It takes a little of each that has something, and stops.
        for feed in &mut feeds {
            batch(&rig, feed, 1);
        }
        for _ in 0..5 {
            rig.clock.0 += 61_000;
            run_backfills(&rig);
        }
        let mut unfinished: Vec<&mut Feed> = feeds.iter_mut().collect();
        for _ in 0..1_000 {
            unfinished.retain_mut(|feed| batch(&rig, feed, 1 << 20).is_none_or(|got| !got.ends_snapshot));
            rig.bucket.run_backfills(0, rig.now());
        }
        assert!(unfinished.is_empty(), "{} hang", unfinished.len());
    }
}

#[test]
fn a_feed_that_is_dropped_leaves_nothing() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let mut rig = rig(kind);
        for number in 0..40 {
            put(&rig, &format!("key{number}"), &vec![1; 50_000]);
        }
        if kind == BucketKind::Couchbase {
            rig.flush();
        }
        let before = rig.bucket.stats().pools.of(Pool::Items);
        // Never read, queued, being read, read in part; and one on the checkpoint.
        let mut feeds: Vec<Feed> = (0..12).map(|ticket| open(&rig, ticket, FeedOptions::default())).collect();
        for feed in feeds.iter_mut().skip(1) {
            assert!(batch(&rig, feed, 1).is_none());
        }
        let mut follower = open(&rig, 99, from(high(&rig)));
        assert!(batch(&rig, &mut follower, 1).is_none());
        run_backfills(&rig);
        for feed in feeds.iter_mut().skip(3) {
            batch(&rig, feed, 1);
        }
        put(&rig, "key0", &vec![2; 50_000]);
        if kind == BucketKind::Couchbase {
            rig.flush();
        }
        assert!(rig.bucket.stats().cursor_bytes > 50_000 && rig.bucket.stats().backfill_bytes > 0);
        drop((feeds, follower));
        run_backfills(&rig);
        let stats = rig.bucket.stats();
        assert_eq!((stats.cursors, stats.cursor_bytes, stats.backfill_bytes), (0, 0, 0));
        assert_eq!(stats.pools.of(Pool::Items), before, "{kind:?}");
        assert!(stats.stores.iter().all(|store| store.bytes_pinned == 0));
    }
}

/// An item has room for 127 references; a later one gets a copy.
#[test]
fn hundreds_of_feeds_may_hold_one_document() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let rig = rig(kind);
        let start = high(&rig);
        let mut feeds: Vec<Feed> = (0..300).map(|ticket| open(&rig, ticket, from(start))).collect();
        for feed in &mut feeds {
            assert!(batch(&rig, feed, 1).is_none());
        }
        let seqno = put(&rig, "popular", b"value");
        let held: Vec<FeedBatch> = feeds.iter_mut().map(|feed| batch(&rig, feed, 1 << 20).unwrap()).collect();
        for got in &held {
            assert_eq!((seqnos(got), got.items[0].value()), (vec![seqno.get()], &b"value"[..]));
            assert_eq!(got.items[0].key().encoded(), b"\0popular");
            assert_eq!(&got.items[0].share()[..], b"value");
        }
    }
}

#[test]
fn a_disk_only_feed_tells_one_snapshot() {
    let mut rig = rig(BucketKind::Couchbase);
    let synced = put(&rig, "a", b"1");
    rig.flush();
    put(&rig, "b", b"2");
    let options = FeedOptions { disk_only: true, keys_only: true, ..FeedOptions::default() };
    let mut feed = open(&rig, 1, options.clone());
    assert!(batch(&rig, &mut feed, 1 << 20).is_none());
    run_backfills(&rig);
    let got = batch(&rig, &mut feed, 1 << 20).unwrap();
    assert!(got.ends_snapshot && snapshot(&got).end == synced);
    let of_documents = got.items.iter().filter(|item| item.kind != FeedKind::System);
    assert!(of_documents.clone().count() == 1 && of_documents.clone().all(|item| item.value().is_empty()));
    let mut events = got.items.iter().filter(|item| item.kind == FeedKind::System);
    assert!(events.all(|item| !item.value().is_empty()), "everything about an event is in its value");
    rig.flush();
    assert!(batch(&rig, &mut feed, 1 << 20).is_none());
    assert!(!rig.bucket.run_backfills(0, rig.now()).more);
    assert_eq!(rig.bucket.stats().cursor_bytes, 0);
    // Nothing on disk that the consumer does not have.
    let mut feed = open(&rig, 2, FeedOptions { from: high(&rig), ..options });
    assert!(batch(&rig, &mut feed, 1 << 20).is_none());
    run_backfills(&rig);
    assert!(batch(&rig, &mut feed, 1 << 20).is_none());
}

#[test]
fn closing_and_emptying_ends_feeds_wherever_they_are() {
    for closes in [false, true] {
        let mut rig = rig(BucketKind::Couchbase);
        for number in 0..40 {
            put(&rig, &format!("key{number}"), &vec![1; 50_000]);
        }
        rig.flush();
        let mut follower = open(&rig, 1, from(high(&rig)));
        let mut queued = open(&rig, 2, FeedOptions::default());
        let mut reading = open(&rig, 3, FeedOptions::default());
        let mut fresh = open(&rig, 4, FeedOptions::default());
        assert!(batch(&rig, &mut follower, 1).is_none());
        assert!(batch(&rig, &mut reading, 1).is_none());
        run_backfills(&rig);
        assert!(batch(&rig, &mut reading, 1).is_some());
        assert!(batch(&rig, &mut queued, 1).is_none());
        rig.recorder.woken.lock().clear();
        if closes {
            rig.bucket.begin_close();
        } else {
            rig.bucket.flush_all(rig.now()).unwrap();
        }
        for ticket in [1, 2] {
            assert!(rig.recorder.woken.lock().contains(&waiter(ticket)), "{ticket} waited");
        }
        for feed in [&mut follower, &mut queued, &mut reading, &mut fresh] {
            assert_eq!(feed.next(1, rig.now()).unwrap_err(), FeedEnd::Reset);
        }
        run_backfills(&rig);
        assert_eq!(rig.bucket.stats().backfill_bytes, 0);
        assert_eq!(rig.bucket.feed(VB, FeedOptions::default(), waiter(5)).is_err(), closes);
    }
}

#[test]
fn an_unreadable_disk_ends_the_feed() {
    let mut rig = rig(BucketKind::Couchbase);
    put(&rig, "a", b"1");
    rig.flush();
    let mut feed = open(&rig, 1, FeedOptions::default());
    assert!(batch(&rig, &mut feed, 1).is_none());
    rig.stores[0].set_unreadable(true);
    assert_eq!(rig.bucket.run_backfills(0, rig.now()).failures, 1);
    assert!(is_woken(&rig, 1));
    assert_eq!(feed.next(1, rig.now()).unwrap_err(), FeedEnd::BackfillFailed);
    assert_eq!(rig.bucket.stats().backfill_errors, 1);
}

#[test]
fn caches_have_no_feeds() {
    let rig = rig(BucketKind::Memcached);
    assert!(rig.bucket.feed(VB, FeedOptions::default(), waiter(1)).is_err());
}
