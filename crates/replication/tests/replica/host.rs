//! The producing end of a link: packets in, answers and messages out, as the server has it.

use std::sync::Arc;

use base::{Cas, Datatype, Now, Status};
use engine::{Bucket, Waiter};
use protocol::binary::{
    Decoded, Frame, Header, Magic, Opcode,
    dcp::{OpenFlags, StreamFilter, StreamFlags, StreamRequest, request::OpenExtras},
    decode_frame,
    extras::{NumberExtras, SeqnoExtras},
    observe::append_failover_log,
};
use settee_replication::{
    LinkName,
    consumer::BUCKET_CONTROL,
    producer::{Producer, Refused, StreamAsk, controls::Negotiated},
};

use super::sink::Turn;

/// See the module header.
pub(crate) struct Host {
    bucket: Arc<Bucket>,
    uuid: String,
    /// Names the connection to the engine.
    waiter: Waiter,
    producer: Option<Producer>,
    /// Arrived, and not a whole packet yet.
    arrived: Vec<u8>,
    /// To be sent.
    out: Vec<u8>,
}

impl Host {
    /// A connection that somebody has opened to follow `bucket`.
    pub(crate) fn new(bucket: Arc<Bucket>, uuid: &str, waiter: Waiter) -> Self {
        Self { bucket, uuid: uuid.to_owned(), waiter, producer: None, arrived: Vec::new(), out: Vec::new() }
    }

    /// Some bytes have arrived.
    pub(crate) fn receive(&mut self, bytes: &[u8], now: Now) {
        self.arrived.extend_from_slice(bytes);
        let arrived = std::mem::take(&mut self.arrived);
        let mut rest = arrived.as_slice();
        while let Decoded::Frame(frame) = decode_frame(rest) {
            self.heard(now);
            self.serve(&frame, now);
            rest = rest.get(frame.packet_len()..).unwrap_or_default();
        }
        self.arrived = rest.to_vec();
    }

    /// A sign of life.
    pub(crate) fn heard(&mut self, now: Now) {
        self.producer.iter_mut().for_each(|producer| producer.heard(now));
    }

    /// The engine has woken a stream.
    pub(crate) fn wake(&mut self, ticket: u64) {
        self.producer.iter_mut().for_each(|producer| producer.wake(ticket));
    }

    /// Says what it has to, at most so many bytes; false when the follower is dead.
    #[must_use]
    pub(crate) fn pump(&mut self, limit: usize, now: Now) -> bool {
        let Some(producer) = &mut self.producer else { return true };
        let limit = self.out.len().saturating_add(limit);
        producer.pump(&mut Turn { bytes: &mut self.out, limit }, now)
    }

    /// What is to be sent.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    fn serve(&mut self, frame: &Frame<'_>, now: Now) {
        let opcode = Opcode::from_wire(frame.header.opcode).expect("a known opcode");
        if frame.header.magic.is_client_response() {
            let is_ours = |producer: &mut Producer| producer.noop_answered(frame.header.opaque);
            assert!(opcode == Opcode::DcpNoop && self.producer.as_mut().is_some_and(is_ours));
            return;
        }
        if opcode == Opcode::DcpOpen {
            return self.open(frame, now);
        }
        let vb = frame.header.vbucket();
        let producer = self.producer.as_mut().expect("an open connection");
        match opcode {
            Opcode::DcpControl if frame.key == BUCKET_CONTROL => {
                let is_this_one = frame.value == self.uuid.as_bytes();
                self.answer(frame, if is_this_one { Status::Success } else { Status::KeyNotFound }, &[]);
            }
            Opcode::DcpControl => {
                producer.control(frame.key, frame.value).unwrap();
                self.answer(frame, Status::Success, &[]);
            }
            Opcode::DcpStreamReq => {
                let request = StreamRequest::decode(frame.extras).unwrap();
                assert!(StreamFlags(request.flags).check().is_ok());
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
                let status = closed.map_or_else(|violation| violation.status, |()| Status::Success);
                self.answer(frame, status, &[]);
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

    fn open(&mut self, frame: &Frame<'_>, now: Now) {
        let name = std::str::from_utf8(frame.key).unwrap();
        let follower = LinkName::parse(name).expect("a link's name").to;
        let flags = OpenFlags(OpenExtras::decode(frame.extras).unwrap().flags);
        assert!(flags.check().is_ok());
        let negotiated = Negotiated { flags, collections: true, snappy: true, replica: Some(follower) };
        let producer = Producer::new(name, negotiated, Arc::clone(&self.bucket), self.waiter, now);
        self.producer = Some(producer);
        self.answer(frame, Status::Success, &[]);
    }

    fn answer(&mut self, frame: &Frame<'_>, status: Status, value: &[u8]) {
        let header = Header {
            magic: Magic::ClientResponse,
            framing_len: 0,
            extras_len: 0,
            key_len: 0,
            datatype: Datatype::RAW,
            vbucket_or_status: status.code(),
            body_len: value.len() as u32,
            cas: Cas::NONE,
            ..frame.header
        };
        self.out.extend_from_slice(&header.encode());
        self.out.extend_from_slice(value);
    }
}
