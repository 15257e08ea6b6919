//! A connection in memory between a producer and a consumer: bytes in both directions, delivered a few at a time, and lost
//! when it is cut. The producer's side answers as the server does.

use std::sync::Arc;

use base::{NodeId, Now, Status, VbId};
use engine::{Bucket, SharedValue, Waiter};
use protocol::binary::{
    Decoded, Frame, Header, Magic, Opcode,
    dcp::{StreamFilter, StreamRequest},
    decode_frame,
    extras::{NumberExtras, SeqnoExtras},
    observe::append_failover_log,
};
use settee_replication::{
    LinkName,
    consumer::{Consumer, StreamWish, Taken, append_opening, replica::Replica, stats::ConsumerStats},
    producer::{Producer, Refused, Sink, StreamAsk, controls::Negotiated},
};

struct Pipe<'a> {
    bytes: &'a mut Vec<u8>,
    limit: usize,
}

impl Sink for Pipe<'_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.bytes
    }

    fn attach(&mut self, value: SharedValue) {
        self.bytes.extend_from_slice(&value);
    }

    fn prefers_reference(&self, bytes: usize) -> bool {
        bytes > 1_000
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= self.limit
    }
}

/// See the module header.
pub(crate) struct Link<R: Replica> {
    producer: Option<Producer>,
    pub(crate) consumer: Consumer<R>,
    bucket: Arc<Bucket>,
    connection: u64,
    /// On its way to the producer; to the consumer.
    upstream: Vec<u8>,
    downstream: Vec<u8>,
    /// Arrived, and not a whole packet yet.
    at_producer: Vec<u8>,
    at_consumer: Vec<u8>,
}

impl<R: Replica> Link<R> {
    pub(crate) fn connect(
        bucket: &Arc<Bucket>,
        replica: R,
        (connection, stats): (u64, Arc<ConsumerStats>),
        now: Now,
    ) -> Self {
        let waiter = Waiter { worker: 1, connection, ticket: 0 };
        let consumer = Consumer::new(replica, waiter, now, stats);
        let mut upstream = Vec::new();
        let answers = append_opening(NodeId(1), NodeId(2), "b", "uuid", &mut upstream);
        let mut link = Self {
            producer: None,
            consumer,
            bucket: Arc::clone(bucket),
            connection,
            upstream,
            downstream: Vec::new(),
            at_producer: Vec::new(),
            at_consumer: Vec::new(),
        };
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
        if let Some(producer) = &mut self.producer {
            producer.wake(ticket);
        }
    }

    /// The producer says what it has, at most so many bytes.
    pub(crate) fn pump(&mut self, limit: usize, now: Now) {
        let Some(producer) = &mut self.producer else { return };
        producer.heard(now);
        let limit = self.downstream.len() + limit;
        assert!(producer.pump(&mut Pipe { bytes: &mut self.downstream, limit }, now));
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
        self.at_producer.append(&mut self.upstream);
        self.upstream = rest;
        let arrived = std::mem::take(&mut self.at_producer);
        let mut rest = arrived.as_slice();
        while let Decoded::Frame(frame) = decode_frame(rest) {
            self.serve(&frame, now);
            rest = rest.get(frame.packet_len()..).unwrap_or_default();
        }
        self.at_producer = rest.to_vec();
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

    /// What the server does with a packet.
    fn serve(&mut self, frame: &Frame<'_>, now: Now) {
        if frame.header.magic.is_client_response() {
            return;
        }
        let opcode = Opcode::from_wire(frame.header.opcode).expect("a request");
        if opcode == Opcode::DcpOpen {
            let name = std::str::from_utf8(frame.key).unwrap();
            let follower = LinkName::parse(name).expect("a link's name").to;
            let flags = protocol::binary::dcp::request::OpenExtras::decode(frame.extras).unwrap().flags;
            let flags = protocol::binary::dcp::OpenFlags(flags);
            assert!(flags.check().is_ok());
            let negotiated = Negotiated { flags, collections: true, snappy: true, replica: Some(follower) };
            let waiter = Waiter { worker: 0, connection: self.connection, ticket: 0 };
            self.producer = Some(Producer::new(name, negotiated, Arc::clone(&self.bucket), waiter, now));
            return self.answer(frame, Status::Success, &[]);
        }
        let vb = frame.header.vbucket();
        let producer = self.producer.as_mut().expect("an open connection");
        match opcode {
            Opcode::DcpControl if frame.key == settee_replication::consumer::BUCKET_CONTROL => {
                self.answer(frame, Status::Success, &[]);
            }
            Opcode::DcpControl => {
                producer.control(frame.key, frame.value).unwrap();
                self.answer(frame, Status::Success, &[]);
            }
            Opcode::DcpStreamReq => {
                let request = StreamRequest::decode(frame.extras).unwrap();
                let filter = StreamFilter::decode(frame.value).unwrap();
                let ask = StreamAsk::new(vb, frame.header.opaque, &request, filter);
                match producer.stream_request(ask, &|_| Ok(())) {
                    Ok(log) => {
                        let mut value = Vec::new();
                        append_failover_log(&log, &mut value);
                        self.answer(frame, Status::Success, &value);
                    }
                    Err(Refused::Rollback(to)) => {
                        self.answer(frame, Status::Rollback, &to.get().to_be_bytes());
                    }
                    Err(Refused::Violation(violation)) => self.answer(frame, violation.status, &[]),
                }
            }
            Opcode::DcpCloseStream => {
                let closed = producer.close_stream(vb, None);
                self.answer(
                    frame,
                    closed.map_or_else(|violation| violation.status, |()| Status::Success),
                    &[],
                );
            }
            Opcode::DcpBufferAcknowledgement => {
                producer.acknowledge(NumberExtras::decode(frame.extras).unwrap().number);
            }
            Opcode::DcpSeqnoAcknowledged => {
                let seqno = SeqnoExtras::decode(frame.extras).unwrap().seqno;
                if let Err(refused) = producer.acknowledge_durable(vb, seqno, now) {
                    assert_eq!(refused.status, Status::KeyNotFound, "{}", refused.context);
                    self.answer(frame, refused.status, &[]);
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, frame: &Frame<'_>, status: Status, value: &[u8]) {
        let header = Header {
            magic: Magic::ClientResponse,
            framing_len: 0,
            extras_len: 0,
            key_len: 0,
            datatype: base::Datatype::RAW,
            vbucket_or_status: status.code(),
            body_len: value.len() as u32,
            cas: base::Cas::NONE,
            ..frame.header
        };
        self.downstream.extend_from_slice(&header.encode());
        self.downstream.extend_from_slice(value);
    }

    pub(crate) fn follows(&self, vb: VbId) -> bool {
        self.consumer.following(vb).is_some()
    }
}
