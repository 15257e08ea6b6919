//! A consumer that keeps documents, resumes where it stopped, and goes back where it is told to. It checks every
//! message against the rules that hold for all streams.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{CollectionId, Datatype, Now, ScopeId, Seqno, VbId, VbUuid};
use engine::{Bucket, Waiter};
use protocol::binary::{
    Decoded,
    dcp::{DcpMessage, OpenFlags, StreamEndReason, StreamFilter, StreamFlags, StreamRequest, SystemEvent},
    decode_frame,
};
use settee_replication::producer::{Producer, Refused, StreamAsk, controls::Negotiated};

use super::{sink::Turn, world::Log};

pub(crate) type Documents = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a consumer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Knows of no collections.
    Legacy,
    Whole,
    /// One collection, in any order.
    Collection(u32),
    /// Everything, values left out.
    KeysOnly,
    /// The scope that all collections are in.
    DefaultScope,
    /// Everything, but for deletions before it has begun.
    WithoutOldDeletions,
}

/// One vBucket of a consumer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) documents: Documents,
    pub(crate) seqno: Seqno,
    pub(crate) uuid: VbUuid,
    pub(crate) snapshot: (Seqno, Seqno),
    keys: BTreeSet<Vec<u8>>,
    /// What it was at the beginning of an out-of-order snapshot.
    before_unordered: Option<Box<Part>>,
    /// What it was at ends of snapshots.
    saved: Vec<Part>,
    streaming: bool,
}

/// See the module header.
pub(crate) struct Consumer {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    flags: StreamFlags,
    pub(crate) parts: BTreeMap<VbId, Part>,
    producer: Option<Producer>,
    unacknowledged: u32,
    pub(crate) snapshots_checked: u64,
    pub(crate) rollbacks: u64,
    pub(crate) mid_snapshot_resumes: u64,
}

impl Consumer {
    pub(crate) fn new(id: u64, kind: Kind) -> Self {
        Self {
            id,
            kind,
            flags: StreamFlags::ACTIVE_ONLY,
            parts: BTreeMap::new(),
            producer: None,
            unacknowledged: 0,
            snapshots_checked: 0,
            rollbacks: 0,
            mid_snapshot_resumes: 0,
        }
    }

    /// One whose streams end by themselves.
    pub(crate) fn that_ends(id: u64, flag: StreamFlags) -> Self {
        Self { flags: StreamFlags::ACTIVE_ONLY.with(flag), ..Self::new(id, Kind::Whole) }
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.parts.values().any(|part| part.streaming)
    }

    pub(crate) fn disconnect(&mut self) {
        self.producer = None;
        for part in self.parts.values_mut() {
            part.streaming = false;
            part.keys.clear();
            if let Some(before) = part.before_unordered.take() {
                *part = *before;
            }
        }
    }

    pub(crate) fn connect(&mut self, bucket: &Arc<Bucket>, window: u32, now: Now) {
        self.disconnect();
        let mut flags = OpenFlags::PRODUCER;
        match self.kind {
            Kind::KeysOnly => flags = flags.with(OpenFlags::NO_VALUE),
            Kind::WithoutOldDeletions => flags = flags.with(OpenFlags::SKIP_DELETES_IN_BACKFILL),
            _ => {}
        }
        let negotiated =
            Negotiated { flags, collections: self.kind != Kind::Legacy, snappy: true, replica: None };
        let waiter = Waiter { worker: 0, connection: self.id, ticket: 0 };
        let mut producer = Producer::new("model", negotiated, Arc::clone(bucket), waiter, now);
        producer.control(b"enable_noop", b"true").unwrap();
        producer.control(b"connection_buffer_size", window.to_string().as_bytes()).unwrap();
        if let Kind::Collection(_) = self.kind {
            producer.control(b"enable_out_of_order_snapshots", b"true_with_seqno_advanced").unwrap();
        }
        self.producer = Some(producer);
        self.unacknowledged = 0;
        for vb in 0..bucket.vbuckets() {
            self.stream(VbId(vb), bucket);
        }
    }

    /// Asks for a stream, going back as often as it is told to.
    fn stream(&mut self, vb: VbId, bucket: &Arc<Bucket>) {
        let Some(producer) = &mut self.producer else { return };
        let part = self.parts.entry(vb).or_default();
        let filter = match self.kind {
            Kind::Collection(id) if bucket.manifest().collection(CollectionId(id)).is_some() => {
                StreamFilter { collections: Some([CollectionId(id)].into()), ..StreamFilter::default() }
            }
            // It is gone, and so is what there was to stream.
            Kind::Collection(_) => return,
            Kind::DefaultScope => StreamFilter { scope: Some(ScopeId::DEFAULT), ..StreamFilter::default() },
            _ => StreamFilter::default(),
        };
        for _ in 0..20 {
            if part.seqno < part.snapshot.0 {
                // It has nothing of the snapshot that was announced: that is being at the end of the one before.
                part.snapshot = (part.seqno, part.seqno);
            }
            if part.seqno > part.snapshot.0 && part.seqno < part.snapshot.1 {
                self.mid_snapshot_resumes += 1;
            }
            let request = StreamRequest {
                flags: self.flags.0,
                reserved: 0,
                start: part.seqno,
                end: Seqno(u64::MAX),
                vb_uuid: part.uuid,
                snap_start: part.snapshot.0,
                snap_end: part.snapshot.1,
            };
            let opaque = u32::from(vb.get()).into();
            let ask = StreamAsk::new(vb, opaque, &request, filter.clone());
            match producer.stream_request(ask, &|_| Ok(())) {
                Ok(log) => {
                    part.uuid = log[0].0;
                    part.streaming = true;
                    return;
                }
                Err(Refused::Rollback(to)) => {
                    assert!(to < part.seqno, "back to {to} from {}", part.seqno);
                    self.rollbacks += 1;
                    part.go_back(to);
                }
                Err(Refused::Violation(violation)) => panic!("{violation:?}"),
            }
        }
        panic!("rollbacks without end");
    }

    pub(crate) fn wake(&mut self, ticket: u64) {
        if let Some(producer) = &mut self.producer {
            producer.wake(ticket);
        }
    }

    /// Takes what has come, at most about `limit` bytes; false when there was nothing.
    pub(crate) fn take(&mut self, limit: usize, bucket: &Arc<Bucket>, log: &Log, now: Now) -> bool {
        let Some(producer) = &mut self.producer else { return false };
        // Alive, as far as anybody can tell.
        producer.heard(now);
        let mut bytes = Vec::new();
        assert!(producer.pump(&mut Turn { bytes: &mut bytes, limit }, now));
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let Decoded::Frame(frame) = decode_frame(rest) else { panic!("no whole message") };
            let (head, message) = DcpMessage::decode(&frame).expect("a message of a producer");
            let length = frame.packet_len();
            if message == DcpMessage::Noop {
                assert!(self.producer.as_mut().unwrap().noop_answered(head.opaque));
            } else {
                self.unacknowledged += length as u32;
                self.hear(head.vb, message, bucket, log);
            }
            rest = &rest[length..];
        }
        !bytes.is_empty()
    }

    pub(crate) fn acknowledge(&mut self) {
        if let Some(producer) = &mut self.producer {
            producer.acknowledge(std::mem::take(&mut self.unacknowledged));
        }
    }

    fn hear(&mut self, vb: VbId, message: DcpMessage<'_>, bucket: &Arc<Bucket>, log: &Log) {
        let kind = self.kind;
        let part = self.parts.get_mut(&vb).unwrap();
        assert!(part.streaming, "{message:?} after the end");
        match message {
            DcpMessage::SnapshotMarker(marker) => {
                assert!(
                    marker.start <= marker.end && marker.end >= part.seqno,
                    "{marker:?} at {}",
                    part.seqno
                );
                // What lies between two snapshots is none of this consumer's: of nobody's who is not told of prepares are
                // the seqnos of those.
                let leaves_gap = log.has_between(vb, part.seqno, marker.start);
                assert!(!leaves_gap || matches!(kind, Kind::Legacy | Kind::Collection(_)), "{marker:?}");
                part.snapshot = (marker.start, marker.end);
                part.keys.clear();
            }
            DcpMessage::Mutation { document, .. } => {
                let key = in_collection(kind, document.key);
                part.advance(document.seqno, Some(&key));
                let value = if kind == Kind::KeysOnly {
                    assert_eq!((document.value, document.datatype), (&b""[..], Datatype::RAW));
                    Vec::new()
                } else {
                    document.value.to_vec()
                };
                part.documents.insert(key, value);
            }
            DcpMessage::Deletion { document, delete_time: None } => {
                let key = in_collection(kind, document.key);
                part.advance(document.seqno, Some(&key));
                part.documents.remove(&key);
            }
            DcpMessage::SystemEvent { seqno, event, version, key, value } => {
                assert_ne!(kind, Kind::Legacy);
                part.advance(seqno, None);
                if let Some(SystemEvent::CollectionEnd { collection, .. }) =
                    SystemEvent::decode(event, version, key, value)
                {
                    part.documents.retain(|key, _| u32::from(key[0]) != collection.get());
                }
            }
            DcpMessage::SeqnoAdvanced(seqno) => {
                assert_ne!(kind, Kind::Legacy);
                part.advance(seqno, None);
            }
            DcpMessage::OsoBegin => {
                part.keys.clear();
                part.before_unordered = Some(Box::new(part.clone()));
            }
            DcpMessage::OsoEnd => {
                part.before_unordered = None;
                part.snapshot = (part.seqno, part.seqno);
            }
            DcpMessage::StreamEnd(reason) => {
                part.streaming = false;
                part.keys.clear();
                if let Some(before) = part.before_unordered.take() {
                    *part = *before;
                }
                match reason {
                    StreamEndReason::TooSlow => self.stream(vb, bucket),
                    StreamEndReason::Ok => {
                        assert_ne!(self.flags, StreamFlags::ACTIVE_ONLY);
                        assert!(part.seqno == part.snapshot.1, "ended inside {:?}", part.snapshot);
                    }
                    StreamEndReason::FilterEmpty => assert!(matches!(kind, Kind::Collection(_))),
                    other => panic!("{other:?}"),
                }
                return;
            }
            other => panic!("{other:?}"),
        }
        if part.before_unordered.is_none() && part.seqno == part.snapshot.1 {
            log.check(vb, kind, part);
            part.save();
            self.snapshots_checked += 1;
        }
    }
}

impl Part {
    fn advance(&mut self, seqno: Seqno, key: Option<&[u8]>) {
        if let Some(key) = key {
            assert!(self.keys.insert(key.to_vec()), "{key:?} twice in {:?}", self.snapshot);
        }
        if self.before_unordered.is_some() {
            self.seqno = self.seqno.max(seqno);
            return;
        }
        assert!(seqno > self.seqno, "{seqno} after {}", self.seqno);
        assert!(seqno <= self.snapshot.1 && seqno >= self.snapshot.0, "{seqno} outside {:?}", self.snapshot);
        self.seqno = seqno;
    }

    /// Remembers this state, to go back to.
    fn save(&mut self) {
        let state = Part { saved: Vec::new(), keys: BTreeSet::new(), ..self.clone() };
        self.saved.push(state);
        if self.saved.len() > 30 {
            self.saved.remove(0);
        }
    }

    /// To the newest remembered state that is not after `to`; to nothing if there is none.
    fn go_back(&mut self, to: Seqno) {
        self.saved.retain(|state| state.seqno <= to);
        let saved = std::mem::take(&mut self.saved);
        *self = saved.last().cloned().unwrap_or_default();
        self.saved = saved;
        self.streaming = false;
        self.snapshot = (self.seqno, self.seqno);
    }
}

fn in_collection(kind: Kind, key: &[u8]) -> Vec<u8> {
    if kind == Kind::Legacy { [b"\0", key].concat() } else { key.to_vec() }
}
