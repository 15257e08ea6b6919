//! A connection in memory between a producer and a consumer. Its bytes go in both directions, are delivered a few at a
//! time, and are lost when it is cut.

use std::sync::Arc;

use base::{NodeId, Now, Status, VbId};
use engine::{Bucket, Waiter};
use protocol::binary::{Decoded, decode_frame};
use settee_replication::consumer::{
    Consumer, StreamWish, Taken, append_opening, replica::Replica, stats::ConsumerStats,
};

use super::host::Host;

/// See the module header.
pub(crate) struct Link<R: Replica> {
    host: Host,
    pub(crate) consumer: Consumer<R>,
    /// On its way to the producer; to the consumer.
    upstream: Vec<u8>,
    downstream: Vec<u8>,
    /// Arrived, and not a whole packet yet.
    at_consumer: Vec<u8>,
}

impl<R: Replica> Link<R> {
    pub(crate) fn connect(
        bucket: &Arc<Bucket>,
        replica: R,
        (connection, stats): (u64, Arc<ConsumerStats>),
        now: Now,
    ) -> Self {
        let consumer = Consumer::new(replica, Waiter { worker: 1, connection, ticket: 0 }, now, stats);
        let mut upstream = Vec::new();
        let answers = append_opening(NodeId(1), NodeId(2), "b", "uuid", &mut upstream);
        let host = Host::new(Arc::clone(bucket), "uuid", Waiter { worker: 0, connection, ticket: 0 });
        let mut link = Self { host, consumer, upstream, downstream: Vec::new(), at_consumer: Vec::new() };
        link.carry_up(usize::MAX, now);
        // The handshake is not the consumer's.
        let mut rest = std::mem::take(&mut link.downstream);
        for _ in 0..answers {
            let Decoded::Frame(frame) = decode_frame(&rest) else { panic!("an answer is missing") };
            assert_eq!(frame.header.status(), Some(Status::Success), "{:?}", frame.header);
            rest = rest.split_off(frame.packet_len());
        }
        assert!(rest.is_empty());
        link
    }

    /// The engine of the producer has woken a stream.
    pub(crate) fn wake(&mut self, ticket: u64) {
        self.host.wake(ticket);
    }

    /// The producer says what it has, at most so many bytes.
    pub(crate) fn pump(&mut self, limit: usize, now: Now) {
        self.host.heard(now);
        assert!(self.host.pump(limit, now));
        self.downstream.append(&mut self.host.take_output());
    }

    /// The consumer does what is due.
    pub(crate) fn tend(&mut self, now: Now) {
        self.consumer.tend(now, false, &mut self.upstream).expect("a producer that speaks");
    }

    /// These vBuckets are to be followed.
    pub(crate) fn want(&mut self, wishes: &[StreamWish], now: Now) {
        self.consumer.want(wishes, now, &mut self.upstream);
    }

    /// So many bytes reach the producer.
    pub(crate) fn carry_up(&mut self, bytes: usize, now: Now) {
        let rest = self.upstream.split_off(bytes.min(self.upstream.len()));
        self.host.receive(&self.upstream, now);
        self.upstream = rest;
        self.downstream.append(&mut self.host.take_output());
    }

    /// So many bytes reach the consumer, which takes as many messages as it has room for.
    pub(crate) fn carry_down(&mut self, bytes: usize, now: Now) {
        let rest = self.downstream.split_off(bytes.min(self.downstream.len()));
        self.at_consumer.append(&mut self.downstream);
        self.downstream = rest;
        let arrived = std::mem::take(&mut self.at_consumer);
        let mut rest = arrived.as_slice();
        while let Decoded::Frame(frame) = decode_frame(rest) {
            let taken = self.consumer.receive(&frame, now, &mut self.upstream);
            if taken.expect("a producer that tells the truth") == Taken::NoRoom {
                break;
            }
            rest = rest.get(frame.packet_len()..).unwrap_or_default();
        }
        self.at_consumer = rest.to_vec();
    }

    /// Bytes on their way to the consumer.
    pub(crate) fn under_way(&self) -> usize {
        self.downstream.len()
    }

    pub(crate) fn follows(&self, vb: VbId) -> bool {
        self.consumer.following(vb).is_some()
    }
}
