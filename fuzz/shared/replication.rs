//! The target of the `replication` crate: whatever a producer sends, a replica is fed seqnos that rise without leaving their
//! snapshots.

#![allow(dead_code, reason = "every entry point compiles all targets and uses one")]

use std::cell::RefCell;
use std::collections::BTreeMap;

use base::{Now, Seqno, Status, VbId, VbUuid, limits};
use protocol::binary::{Decoded, decode_frame};
use replication::consumer::{
    Consumer, StreamWish, Taken,
    replica::{Replica, Start},
};
use settee_engine::{ReplicaItem, ReplicaKind, ReplicaMarker, Waiter};

/// Where a vBucket is, and in which snapshot.
#[derive(Clone, Copy, Default)]
struct Place {
    inflow: u32,
    last: u64,
    /// The announced snapshot: the seqno before its first, and its last.
    start: u64,
    end: u64,
}

#[derive(Default)]
struct Checker(RefCell<BTreeMap<VbId, Place>>);

impl Checker {
    fn at(&self, inflow: (VbId, u32), change: impl FnOnce(&mut Place)) {
        let mut places = self.0.borrow_mut();
        let place = places.get_mut(&inflow.0).expect("a stream that was begun");
        assert_eq!(place.inflow, inflow.1, "a stream that was given up");
        change(place);
    }
}

impl Replica for &Checker {
    type Inflow = (VbId, u32);

    fn begin(&self, vb: VbId, _: u64, _: Now) -> Result<Start<Self::Inflow>, Status> {
        let mut places = self.0.borrow_mut();
        let place = places.entry(vb).or_default();
        place.inflow += 1;
        if place.last == place.start || place.last == place.end {
            // It is between two: of one that was only announced there is nothing.
            (place.start, place.end) = (place.last, place.last);
        }
        let (start, snap_start, snap_end) = (Seqno(place.last), Seqno(place.start), Seqno(place.end));
        Ok(Start {
            inflow: (vb, place.inflow),
            vb_uuid: VbUuid(7),
            start,
            snap_start,
            snap_end,
            may_lack: false,
        })
    }

    fn accept_log(&self, inflow: Self::Inflow, log: &[(VbUuid, Seqno)], _: Now) -> Result<(), Status> {
        self.at(inflow, |_| assert!(!log.is_empty()));
        Ok(())
    }

    fn roll_back(&self, inflow: Self::Inflow, to: Seqno, _: Now) -> Result<(), Status> {
        self.at(inflow, |place| {
            assert!(to.get() < place.last);
            (place.last, place.start, place.end) = (to.get(), to.get(), to.get());
        });
        Ok(())
    }

    fn marker(&self, inflow: Self::Inflow, marker: &ReplicaMarker, _: Now) -> Result<(), Status> {
        self.at(inflow, |place| {
            // An empty one is for a node that has nothing.
            let is_news = marker.end.get() > place.last || (marker.end.get(), place.last) == (0, 0);
            assert!(marker.start.get() <= place.last && is_news);
            assert!(marker.end.get() >= place.end && marker.max_visible <= marker.end);
            (place.start, place.end) = (marker.start.get(), marker.end.get());
        });
        Ok(())
    }

    fn item(&self, inflow: Self::Inflow, item: &ReplicaItem<'_>, _: Waiter, _: Now) -> Result<(), Status> {
        self.at(inflow, |place| {
            assert!(item.seqno.get() > place.last && item.seqno.get() <= place.end);
            place.last = item.seqno.get();
        });
        assert!(item.key.encoded().len() <= limits::ENCODED_KEY_BYTES_MAX);
        assert!(item.kind == ReplicaKind::Advance || item.key.encoded().len() > 1);
        Ok(())
    }

    fn await_high_prepared(&self, inflow: Self::Inflow, above: Seqno, _: Waiter) -> Seqno {
        self.at(inflow, |_| ());
        above
    }
}

/// What a producer sends behind its answer to the handshake. Two streams are asked for: vBucket 0 with opaque 1, vBucket 1 with
/// opaque 2.
pub(super) fn consumer(sent: &[u8]) {
    let checker = Checker::default();
    let now = |millis| Now { wall_nanos: 0, mono_millis: millis };
    let waiter = Waiter { worker: 0, connection: 0, ticket: 0 };
    let mut consumer = Consumer::new(&checker, waiter, now(0), Default::default());
    let mut said = Vec::new();
    let wishes = [0, 1].map(|vb| StreamWish { vb: VbId(vb), term: 1 });
    consumer.want(&wishes, now(0), &mut said);
    let mut rest = sent;
    for millis in (0..).step_by(100) {
        // The time goes on, but something is heard of the producer.
        consumer.tend(now(millis), false, &mut said).expect("nothing but silence ends it here");
        let Decoded::Frame(frame) = decode_frame(rest) else { break };
        match consumer.receive(&frame, now(millis), &mut said) {
            Ok(taken) => assert_eq!(taken, Taken::Done),
            Err(_) => break,
        }
        rest = rest.get(frame.packet_len()..).unwrap_or_default();
    }
    let mut requests = said.as_slice();
    while let Decoded::Frame(frame) = decode_frame(requests) {
        requests = requests.get(frame.packet_len()..).unwrap_or_default();
    }
    assert!(requests.is_empty(), "it speaks in whole packets");
}
