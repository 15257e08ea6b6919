//! A copy in the making that comes faster than its disk writes, on a node and over a link that have others to serve.

use std::sync::Arc;

use base::{NodeId, Seqno, VbId, VbRole, bucket::BucketKind};
use engine::{BucketOptions, Store, Topology};
use settee_replication::consumer::{StreamWish, WINDOW_BYTES};

use super::{
    copies::{Copies, Node, contents_of},
    link::Link,
    support::Rig,
};

const VB: VbId = VbId(0);
const QUOTA: u64 = 64 << 20;
const DOCUMENTS: u32 = 200;

fn options() -> BucketOptions {
    BucketOptions {
        vbuckets: 1,
        shards: 1,
        role: VbRole::Dead,
        kind: BucketKind::Couchbase,
        ..BucketOptions::new("b", QUOTA)
    }
}

#[test]
fn a_copy_in_the_making_waits_for_its_disk_and_loses_nothing() {
    let mut active = Rig::new(options());
    let topology = Topology { chains: vec![vec![NodeId(1)]], copies: 2, to_disk: false };
    active.bucket.activate(VB, 1, topology, active.now()).unwrap();
    for number in 0..DOCUMENTS {
        let key = [&[0][..], &number.to_be_bytes()].concat();
        let value = vec![number as u8; 128 << 10];
        let store = Store::set(&value);
        active.run(&key, |bucket, vb, key| bucket.store(vb, key, &store, active.now())).unwrap();
        if number % 16 == 0 {
            active.flush();
        }
    }
    active.flush();
    let mut node = Node::new(&options());
    node.follow(1);
    let (bucket, stats) = (node.replica(), Arc::default());
    let mut link = Link::connect(&active.bucket, node.replica(), (1, Arc::clone(&stats)), active.now());
    link.want(&[StreamWish { vb: VB, term: 1 }], active.now());
    let mut writes = 0;
    while bucket.vb_status(VB).unwrap().history.high_seqno < Seqno(u64::from(DOCUMENTS)) {
        // The network and the other node's disk are fast; this one's writes when nothing more is taken.
        let before = bucket.vb_status(VB).unwrap().history.high_seqno;
        for _ in 0..20 {
            link.tend(active.now());
            link.carry_up(usize::MAX, active.now());
            active.bucket.run_backfills(0, active.now());
            active.recorder.woken.lock().drain(..).for_each(|waiter| link.wake(waiter.ticket));
            link.pump(1 << 20, active.now());
            link.carry_down(usize::MAX, active.now());
        }
        assert!(bucket.stats().diskqueue_bytes <= QUOTA / 8, "and takes no more than its share");
        assert_eq!(bucket.pressure_percent(), 0);
        if bucket.vb_status(VB).unwrap().history.high_seqno == before {
            writes += 1;
            assert!(writes < 100, "nothing comes any more");
            node.tend(0);
            // What found no room is brought again after a while.
            active.clock.advance_secs(1);
        }
    }
    assert!(writes >= 2 && stats.pauses.load(std::sync::atomic::Ordering::Relaxed) > 0);
    assert_eq!(node.contents(VB).versions, contents_of(&active, VB).versions);
}

/// Writes a document to a vBucket, of which it is the `number`th; with so many bytes.
fn write(rig: &Rig, vb: VbId, number: u32, bytes: usize) {
    let mut keys = (0..).map(|n: u32| [&[0][..], &number.to_be_bytes(), &n.to_be_bytes()].concat());
    let key = keys.find(|key| rig.key(key).0 == vb).unwrap();
    let value = vec![number as u8; bytes];
    rig.run(&key, |bucket, vb, key| bucket.store(vb, key, &Store::set(&value), rig.now())).unwrap();
}

#[test]
fn what_is_new_does_not_wait_behind_all_of_a_copy_in_the_making() {
    let both = BucketOptions { vbuckets: 16, ..options() };
    let (made, live) = (VbId(0), VbId(1));
    let mut active = Rig::new(both.clone());
    for vb in [made, live] {
        let topology = Topology { chains: vec![vec![NodeId(1)]], copies: 2, to_disk: false };
        active.bucket.activate(vb, 1, topology, active.now()).unwrap();
    }
    for number in 0..DOCUMENTS {
        write(&active, made, number, 64 << 10);
    }
    active.flush();
    let mut node = Node::new(&both);
    node.follow(1);
    let mut link = Link::connect(&active.bucket, node.replica(), (1, Arc::default()), active.now());
    let wish = |vb| StreamWish { vb, term: 1 };
    let tell = |link: &mut Link<_>| {
        link.tend(active.now());
        link.carry_up(usize::MAX, active.now());
        active.bucket.run_backfills(0, active.now());
        active.recorder.woken.lock().drain(..).for_each(|waiter| link.wake(waiter.ticket));
        link.pump(usize::MAX, active.now());
    };
    link.want(&[wish(live)], active.now());
    while !link.follows(live) {
        tell(&mut link);
        link.carry_down(usize::MAX, active.now());
    }
    // The follower reads nothing.
    link.want(&[wish(made), wish(live)], active.now());
    (0..100).for_each(|_| tell(&mut link));
    let history = link.under_way();
    assert!(history > 1 << 20 && history < WINDOW_BYTES as usize / 4, "{history}");
    write(&active, live, 0, 1_000);
    tell(&mut link);
    let news = link.under_way() - history;
    assert!((1_000..2_000).contains(&news), "{news}");
    // And all of it comes, once it does.
    let bucket = node.replica();
    let seqno = |vb| bucket.vb_status(vb).unwrap().history.high_seqno;
    for _ in 0..1_000 {
        tell(&mut link);
        link.carry_down(usize::MAX, active.now());
        node.tend(0);
    }
    assert_eq!((seqno(made), seqno(live)), (Seqno(u64::from(DOCUMENTS)), Seqno(1)));
}
