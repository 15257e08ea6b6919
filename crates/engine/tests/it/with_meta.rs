//! Documents written with metadata from another cluster: which version wins, and what of it is kept.

use crate::support::{Rig, options};
use base::{
    Cas, Datatype, Status,
    bucket::{BucketKind, ConflictResolution},
};
use settee_engine::{
    BucketOptions, DocMeta, FeedKind, FeedOptions, FeedStep, Mutated, Store, Waiter, WithMeta,
    subdoc::xattr::{Blob, Builder},
};

const KEY: &[u8] = b"\0key";

fn rig() -> Rig {
    Rig::new(options(BucketKind::Couchbase))
}

fn lww() -> Rig {
    Rig::new(BucketOptions { conflict: ConflictResolution::Lww, ..options(BucketKind::Couchbase) })
}

fn set(rig: &Rig, incoming: WithMeta<'_>) -> Result<Mutated, Status> {
    rig.run(KEY, |bucket, vb, key| bucket.set_with_meta(vb, key, &incoming, rig.now()))
}

fn delete(rig: &Rig, incoming: WithMeta<'_>) -> Result<Mutated, Status> {
    rig.run(KEY, |bucket, vb, key| bucket.delete_with_meta(vb, key, &incoming, rig.now()))
}

fn store(rig: &Rig, store: Store<'_>) -> Result<Mutated, Status> {
    rig.run(KEY, |bucket, vb, key| bucket.store(vb, key, &store, rig.now()))
}

fn meta(rig: &Rig) -> Result<DocMeta, Status> {
    rig.run(KEY, |bucket, vb, key| bucket.meta(vb, key, rig.now()))
}

fn lock(rig: &Rig) -> Cas {
    rig.run(KEY, |bucket, vb, key| bucket.lock(vb, key, 10, rig.now(), |view| view.cas)).unwrap()
}

/// A CAS so many seconds from now.
fn cas(rig: &Rig, secs: i64) -> Cas {
    Cas(rig.now().wall_nanos.wrapping_add_signed(secs * 1_000_000_000))
}

fn attributes(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = Builder::default();
    for (key, value) in pairs {
        builder.set(key.as_bytes(), value.as_bytes());
    }
    builder.finish()
}

/// What the newest record of the key holds, on disk or in memory.
fn newest_value(rig: &mut Rig) -> Vec<u8> {
    rig.flush();
    let (vb, _) = rig.key(KEY);
    rig.on_disk(vb).into_iter().rfind(|(_, key, _)| key == KEY).unwrap().2
}

#[test]
fn revisions_decide_where_they_do() {
    let rig = rig();
    let [old, new] = [cas(&rig, -10), cas(&rig, 0)];
    set(&rig, WithMeta::new(old, 5, b"1")).unwrap();
    assert_eq!(set(&rig, WithMeta::new(new, 4, b"2")), Err(Status::KeyExists));
    assert_eq!(set(&rig, WithMeta::new(old, 5, b"2")), Err(Status::KeyExists), "the local one stays");
    set(&rig, WithMeta::new(new, 5, b"2")).unwrap();
    set(&rig, WithMeta { expiry: rig.now().unix_secs() + 9, ..WithMeta::new(new, 5, b"3") }).unwrap();
    set(&rig, WithMeta::new(old, 6, b"4")).unwrap();
    let kept = meta(&rig).unwrap();
    assert_eq!((kept.cas, kept.rev, kept.expiry), (old, 6, 0));
    assert_eq!(delete(&rig, WithMeta::new(old, 6, b"")), Err(Status::KeyExists));
    delete(&rig, WithMeta::new(old, 7, b"")).unwrap();
    assert_eq!(set(&rig, WithMeta::new(new, 6, b"5")), Err(Status::KeyExists), "the tombstone counts");
    assert!(meta(&rig).unwrap().deleted);
}

#[test]
fn the_last_write_wins_where_it_does() {
    let rig = lww();
    let [old, new] = [cas(&rig, -10), cas(&rig, 0)];
    let by_time = |cas, rev| WithMeta { accept_lww: true, ..WithMeta::new(cas, rev, b"v") };
    set(&rig, by_time(old, 9)).unwrap();
    set(&rig, by_time(new, 1)).unwrap();
    assert_eq!(set(&rig, by_time(old, 99)), Err(Status::KeyExists));
    set(&rig, by_time(new, 2)).unwrap();
    assert_eq!(delete(&rig, WithMeta { value: b"", ..by_time(old, 99) }), Err(Status::KeyExists));
    assert_eq!(meta(&rig).unwrap().rev, 2);
}

#[test]
fn a_deletion_of_revision_zero_is_remembered() {
    let mut rig = lww();
    let [old, new] = [cas(&rig, -10), cas(&rig, 0)];
    let by_time = |cas, rev, value| WithMeta { accept_lww: true, ..WithMeta::new(cas, rev, value) };
    delete(&rig, by_time(new, 0, b"")).unwrap();
    for _ in 0..2 {
        assert_eq!(set(&rig, by_time(old, 9, b"v")), Err(Status::KeyExists));
        assert!(meta(&rig).unwrap().deleted);
        rig.flush();
    }
}

#[test]
fn options_have_to_fit_the_bucket_and_each_other() {
    let (rig, lww) = (rig(), lww());
    let now = cas(&rig, 0);
    let plain = WithMeta::new(now, 1, b"v");
    let accepting = WithMeta { accept_lww: true, ..plain };
    let skipping = WithMeta { skip_conflict_resolution: true, ..plain };
    let regenerating = WithMeta { regenerate_cas: true, ..skipping };
    assert_eq!(set(&rig, accepting), Err(Status::Invalid));
    assert_eq!(set(&lww, plain), Err(Status::Invalid));
    assert_eq!(set(&lww, skipping), Err(Status::Invalid), "skipping the comparison is not knowing the rule");
    set(&lww, accepting).unwrap();
    for rig in [&rig, &lww] {
        assert_eq!(set(rig, WithMeta { regenerate_cas: true, ..plain }), Err(Status::Invalid));
        let made = set(rig, WithMeta { cas: Cas(0), rev: 3, ..regenerating }).unwrap();
        assert!(made.cas >= now, "a CAS of this node's own");
        assert_eq!(meta(rig).unwrap().rev, 3);
    }
    set(&rig, WithMeta { rev: 1, ..skipping }).unwrap();
    assert_eq!(meta(&rig).unwrap().rev, 1, "the older one, as was asked");
}

#[test]
fn impossible_cas_values_are_refused() {
    let rig = rig();
    for bad in [Cas(0), Cas(u64::MAX), cas(&rig, 2 * 3600)] {
        assert_eq!(set(&rig, WithMeta::new(bad, 1, b"v")), Err(Status::CasValueInvalid), "{bad}");
        assert_eq!(delete(&rig, WithMeta::new(bad, 1, b"")), Err(Status::CasValueInvalid), "{bad}");
    }
    // Ahead of the clock by no more than clocks may differ: the ceiling has to rise first.
    let ahead = cas(&rig, 1800);
    assert_eq!(set(&rig, WithMeta::new(ahead, 1, b"v")), Err(Status::TemporaryFailure));
    rig.bucket.flush(0, rig.now());
    rig.bucket.flush(1, rig.now());
    set(&rig, WithMeta::new(ahead, 1, b"v")).unwrap();
    let after = store(&rig, Store::set(b"w")).unwrap();
    assert!(after.cas > ahead, "what is written later has a higher CAS");
}

#[test]
fn adding_needs_absence_but_not_of_a_tombstone() {
    let rig = rig();
    let add = |cas, rev| WithMeta { add_only: true, ..WithMeta::new(cas, rev, b"v") };
    let now = cas(&rig, 0);
    set(&rig, add(now, 1)).unwrap();
    assert_eq!(set(&rig, add(now, 9)), Err(Status::KeyExists));
    assert_eq!(set(&rig, WithMeta { skip_conflict_resolution: true, ..add(now, 9) }), Err(Status::KeyExists));
    delete(&rig, WithMeta::new(now, 10, b"")).unwrap();
    assert_eq!(set(&rig, add(now, 9)), Err(Status::KeyExists), "the tombstone is newer");
    set(&rig, add(now, 11)).unwrap();
}

#[test]
fn a_lock_and_a_cas_are_respected_by_what_would_win() {
    let rig = rig();
    store(&rig, Store::set(b"local")).unwrap();
    let locked = lock(&rig);
    let winner = WithMeta::new(cas(&rig, 0), 9, b"v");
    assert_eq!(set(&rig, winner), Err(Status::Locked));
    assert_eq!(delete(&rig, WithMeta { value: b"", ..winner }), Err(Status::Locked));
    let loser = WithMeta { cas: cas(&rig, -100), rev: 1, ..winner };
    assert_eq!(set(&rig, loser), Err(Status::KeyExists), "it has lost whatever the lock");
    set(&rig, WithMeta { check_cas: locked, ..winner }).unwrap();
    let next = WithMeta { rev: 10, ..winner };
    assert_eq!(set(&rig, WithMeta { check_cas: Cas(77), ..next }), Err(Status::KeyExists));
    set(&rig, WithMeta { check_cas: winner.cas, ..next }).unwrap();
    let gone = WithMeta { rev: 11, value: b"", ..winner };
    delete(&rig, gone).unwrap();
    let on_nothing = WithMeta { rev: 12, check_cas: winner.cas, ..winner };
    assert_eq!(set(&rig, on_nothing), Err(Status::KeyNotFound));
}

#[test]
fn why_a_document_went_is_told_to_those_who_follow() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        for is_expiration in [false, true] {
            let rig = Rig::new(options(kind));
            let (vb, _) = rig.key(KEY);
            let waiter = Waiter { worker: 0, connection: 0, ticket: 0 };
            let mut feed = rig.bucket.feed(vb, FeedOptions::default(), waiter).unwrap();
            let at = rig.now().unix_secs() - 50;
            delete(&rig, WithMeta { is_expiration, expiry: at, ..WithMeta::new(cas(&rig, 0), 3, b"") })
                .unwrap();
            let batch = (0..10).find_map(|_| {
                for shard in 0..rig.bucket.shards() {
                    while rig.bucket.run_backfills(shard, rig.now()).more {}
                }
                match feed.next(1 << 20, rig.now()).unwrap() {
                    FeedStep::Batch(batch) if !batch.items.is_empty() => Some(batch),
                    _ => None,
                }
            });
            let batch = batch.expect("it is there");
            let [item] = &batch.items[..] else { panic!("{:?}", batch.items) };
            let kind = if is_expiration { FeedKind::Expiration } else { FeedKind::Deletion };
            assert_eq!((item.kind, item.expiry, item.rev), (kind, at, 3));
        }
    }
}

#[test]
fn attributes_win_over_none_all_else_being_equal() {
    let mut rig = rig();
    let value = [attributes(&[("_sync", "1")]), b"body".to_vec()].concat();
    let bare = WithMeta::new(cas(&rig, 0), 5, b"body");
    let attributed = WithMeta { value: &value, datatype: Datatype::XATTR, ..bare };
    set(&rig, bare).unwrap();
    set(&rig, attributed).unwrap();
    assert_eq!(meta(&rig).unwrap().datatype, Datatype::XATTR);
    assert_eq!(set(&rig, attributed), Err(Status::KeyExists));
    assert_eq!(set(&rig, bare), Err(Status::KeyExists));
    assert_eq!(newest_value(&mut rig), value);
}

#[test]
fn a_deletion_keeps_the_systems_attributes_or_brings_its_own() {
    for warm in [true, false] {
        let mut rig = rig();
        let now = cas(&rig, 0);
        let value = [attributes(&[("user", "1"), ("_sync", "{\"rev\":2}")]), b"body".to_vec()].concat();
        set(&rig, WithMeta { datatype: Datatype::XATTR, ..WithMeta::new(now, 1, &value) }).unwrap();
        delete(&rig, WithMeta::new(now, 2, b"")).unwrap();
        assert_eq!(meta(&rig).unwrap().datatype, Datatype::XATTR);
        let kept = newest_value(&mut rig);
        let (blob, body) = Blob::split(&kept).unwrap();
        assert_eq!(
            (blob.get(b"user"), blob.get(b"_sync"), body),
            (None, Some(&b"{\"rev\":2}"[..]), &b""[..])
        );

        // From the tombstone, which only the disk has.
        let rig = if warm { rig } else { rig.crash() };
        if !warm {
            rig.warm_up();
        }
        let mut rig = rig;
        delete(&rig, WithMeta::new(now, 3, b"")).unwrap();
        assert_eq!(newest_value(&mut rig), kept);

        let own = attributes(&[("user", "3"), ("_sync", "{}")]);
        let bringing = WithMeta { datatype: Datatype::XATTR, ..WithMeta::new(now, 4, &own) };
        delete(&rig, bringing).unwrap();
        assert_eq!(newest_value(&mut rig), own, "what another cluster keeps is kept");
    }
}
