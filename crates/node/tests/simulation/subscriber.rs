//! A client that follows a bucket by DCP. It keeps what it is told, goes on from there after it was cut off, and goes back where a
//! node tells it to. It checks each message against the rules of streams, and at each end of a snapshot has it checked what it holds
//! ([`crate::invariants::feeds`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use base::{
    BucketUuid, Cas, CollectionId, DocKey, NodeId, Now, Seqno, Status, VbId, VbUuid, hash::disk_hash,
};
use engine::{Bucket, Waiter};
use fastrand::Rng;
use protocol::binary::{
    Decoded,
    dcp::{
        DcpMessage, Document, OpenFlags, SnapshotMarker, StreamFilter, StreamFlags, StreamRequest,
        SystemEvent,
    },
    decode_frame,
};
use replication::producer::{FailoverLog, Producer, Refused, StreamAsk, controls::Negotiated};

use crate::{
    connection::SUBSCRIBERS,
    invariants::feeds::{Feeds, Reader, Version},
    sink::Turn,
};

/// States at ends of snapshots that are kept, to go back to.
const SAVED_MAX: usize = 20;
/// Bytes that may be under way.
const WINDOWS: [u32; 3] = [500, 10_000, 1 << 20];
/// Bytes that are taken at once.
const LIMITS: [usize; 3] = [1, 2_000, 1 << 20];

/// A vBucket, as far as it was told.
#[derive(Clone, Debug, Default)]
struct Part {
    versions: BTreeMap<Vec<u8>, Version>,
    seqno: Seqno,
    uuid: VbUuid,
    snapshot: (Seqno, Seqno),
    log: FailoverLog,
    /// Keys of the snapshot.
    keys: BTreeSet<Vec<u8>>,
    saved: Vec<Saved>,
    /// The node that it is being told by.
    node: Option<NodeId>,
}

/// A state at the end of a snapshot.
#[derive(Clone, Debug)]
struct Saved {
    seqno: Seqno,
    uuid: VbUuid,
    log: FailoverLog,
    /// What keys had at each change since, up to the next such state.
    undo: Vec<(Vec<u8>, Option<Version>)>,
}

/// A connection to a node.
struct Line {
    number: u64,
    engine: Arc<Bucket>,
    producer: Producer,
    unacknowledged: u32,
}

/// What happened, in numbers.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) snapshots: u64,
    pub(crate) inside: u64,
    pub(crate) rollbacks: u64,
    pub(crate) purges: u64,
}

impl Told {
    pub(crate) fn add(&mut self, other: &Self) {
        self.snapshots += other.snapshots;
        self.inside += other.inside;
        self.rollbacks += other.rollbacks;
        self.purges += other.purges;
    }
}

/// See the module.
pub(crate) struct Subscriber {
    number: usize,
    pub(crate) bucket: BucketUuid,
    parts: BTreeMap<VbId, Part>,
    lines: BTreeMap<NodeId, Line>,
    lines_made: u64,
    /// It does nothing until then.
    pub(crate) rests_until: u64,
    pub(crate) told: Told,
}

impl fmt::Display for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subscriber {} of {:?}", self.number, self.bucket)
    }
}

impl Subscriber {
    pub(crate) fn new(number: usize, bucket: BucketUuid) -> Self {
        Self {
            number,
            bucket,
            parts: BTreeMap::new(),
            lines: BTreeMap::new(),
            lines_made: 0,
            rests_until: 0,
            told: Told::default(),
        }
    }

    /// Its connection to a node is gone.
    pub(crate) fn lose(&mut self, node: NodeId) {
        self.lines.remove(&node);
        self.parts.values_mut().for_each(|part| part.node = part.node.filter(|of| *of != node));
    }

    /// It leaves all nodes, and will go on from what it has.
    pub(crate) fn stop(&mut self, rests_until: u64) {
        self.lines.clear();
        self.parts.values_mut().for_each(|part| part.node = None);
        self.rests_until = rests_until;
    }

    /// The nodes that it is connected to.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.lines.keys().copied().collect()
    }

    /// Whether its connection to a node is one to these copies.
    pub(crate) fn is_connected(&self, node: NodeId, engine: &Arc<Bucket>) -> bool {
        self.lines.get(&node).is_some_and(|line| Arc::ptr_eq(&line.engine, engine))
    }

    /// The node that tells it of a vBucket.
    pub(crate) fn is_told(&self, vb: VbId) -> Option<NodeId> {
        self.parts.get(&vb).and_then(|part| part.node)
    }

    /// How far it is.
    pub(crate) fn seqno(&self, vb: VbId) -> Seqno {
        self.parts.get(&vb).map(|part| part.seqno).unwrap_or_default()
    }

    pub(crate) fn wake(&mut self, waiter: Waiter) {
        let lines = self.lines.values_mut().filter(|line| line.number == waiter.connection);
        lines.for_each(|line| line.producer.wake(waiter.ticket));
    }

    fn connect(&mut self, node: NodeId, engine: &Arc<Bucket>, rng: &mut Rng, now: Now) {
        self.lines_made += 1;
        let number = self.lines_made * 1_000 + self.number as u64;
        let flags =
            OpenFlags::PRODUCER.with(OpenFlags::INCLUDE_XATTRS).with(OpenFlags::INCLUDE_DELETED_USER_XATTRS);
        let negotiated = Negotiated { flags, collections: true, snappy: true, replica: None };
        let waiter = Waiter { worker: SUBSCRIBERS, connection: number, ticket: 0 };
        let mut producer = Producer::new("subscriber", negotiated, Arc::clone(engine), waiter, now);
        let window = rng.choice(WINDOWS).unwrap_or_default().to_string();
        producer.control(b"enable_noop", b"true").unwrap();
        producer.control(b"connection_buffer_size", window.as_bytes()).unwrap();
        let line = Line { number, engine: Arc::clone(engine), producer, unacknowledged: 0 };
        self.lines.insert(node, line);
    }

    /// Asks a node for a vBucket from where it stopped, going back as often as it is told to.
    pub(crate) fn follow(
        &mut self,
        (vb, node): (VbId, NodeId),
        engine: &Arc<Bucket>,
        rng: &mut Rng,
        now: Now,
    ) {
        if !self.is_connected(node, engine) {
            self.lose(node);
            self.connect(node, engine, rng, now);
        }
        let Some(line) = self.lines.get_mut(&node) else { return };
        let part = self.parts.entry(vb).or_default();
        loop {
            let request = part.request();
            let ask = StreamAsk::new(vb, u32::from(vb.get()).into(), &request, StreamFilter::default());
            let answer = line.producer.stream_request(ask, &|_| Ok(()));
            let purged = engine.vb_history(vb).map(|history| history.purge_seqno).unwrap_or_default();
            let has_missed = Seqno(0) < request.start && request.start < purged;
            match answer {
                Ok(log) => {
                    assert!(!has_missed, "{vb} is purged up to {purged}, and {request:?} is granted");
                    part.begin(log, node);
                    self.told.inside += u64::from(part.is_inside());
                    return;
                }
                Err(Refused::Rollback(to)) => {
                    assert!(to < part.seqno, "back to {to} from {}", part.seqno);
                    assert!(!has_missed || to == Seqno(0), "{vb}: {request:?} goes back to {to}");
                    self.told.rollbacks += 1;
                    self.told.purges += u64::from(has_missed);
                    part.go_back(to);
                }
                Err(Refused::Violation(refused)) => {
                    let is_elsewhere = refused.status == Status::NotMyVbucket;
                    assert!(is_elsewhere, "{request:?} of {vb}: {refused:?}");
                    return;
                }
            }
        }
    }

    /// Takes some of what a node has to tell. `counts`: keys that it has to hear of.
    pub(crate) fn take(
        &mut self,
        node: NodeId,
        feeds: &mut Feeds,
        counts: &dyn Fn(&[u8]) -> bool,
        rng: &mut Rng,
        now: Now,
    ) {
        let Some(line) = self.lines.get_mut(&node) else { return };
        line.producer.heard(now);
        let limit = rng.choice(LIMITS).unwrap_or_default();
        let mut bytes = Vec::new();
        let mut turn = Turn { bytes: &mut bytes, limit };
        assert!(line.producer.pump(&mut turn, now), "it was heard just now");
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let Decoded::Frame(frame) = decode_frame(rest) else { panic!("no whole message") };
            rest = &rest[frame.packet_len()..];
            let (head, message) = DcpMessage::decode(&frame).expect("a message of a producer");
            let Some(line) = self.lines.get_mut(&node) else { return };
            if message == DcpMessage::Noop {
                assert!(line.producer.noop_answered(head.opaque));
                continue;
            }
            line.unacknowledged += frame.packet_len() as u32;
            self.hear(head.vb, message, feeds, counts);
        }
        if let Some(line) = self.lines.get_mut(&node).filter(|_| rng.bool()) {
            line.producer.acknowledge(std::mem::take(&mut line.unacknowledged));
        }
    }

    fn hear(&mut self, vb: VbId, message: DcpMessage<'_>, feeds: &mut Feeds, counts: &dyn Fn(&[u8]) -> bool) {
        let place = (self.bucket.clone(), vb);
        let mut part = self.parts.remove(&vb).expect("a vBucket that was asked for");
        assert!(part.node.is_some(), "{self} hears {message:?} after the end of the stream");
        let is_end = matches!(message, DcpMessage::StreamEnd(_));
        if let Some((key, version)) = part.hear(message) {
            feeds.saw(&place, (&part.log, version.seqno), &key, version);
            part.put(key, version);
        }
        if !is_end && part.seqno == part.snapshot.1 {
            self.told.snapshots += 1;
            // Its node may have purged since anybody else has looked.
            let line = part.node.and_then(|node| self.lines.get(&node));
            if let Some(history) = line.and_then(|line| line.engine.vb_history(vb).ok()) {
                feeds.purged(&place, history.purge_seqno);
            }
            self.judge(&place, &part, feeds, counts);
            part.save();
        }
        self.parts.insert(vb, part);
    }

    fn judge(
        &self,
        place: &(BucketUuid, VbId),
        part: &Part,
        feeds: &mut Feeds,
        counts: &dyn Fn(&[u8]) -> bool,
    ) {
        let holds = |key: &[u8]| part.versions.get(key).map(|version| version.seqno);
        let reader = Reader { name: self, log: &part.log, at: part.seqno, holds: &holds, sees_living: false };
        feeds.check(place, &reader, counts);
    }

    /// Checks what it holds of a vBucket, where it is at the end of a snapshot.
    pub(crate) fn check(&self, vb: VbId, feeds: &mut Feeds, counts: &dyn Fn(&[u8]) -> bool) {
        let Some(part) = self.parts.get(&vb).filter(|part| part.seqno == part.snapshot.1) else { return };
        self.judge(&(self.bucket.clone(), vb), part, feeds, counts);
    }

    /// The keys of documents that it holds of a vBucket, and whether they expire.
    pub(crate) fn documents(&self, vb: VbId) -> BTreeMap<&[u8], bool> {
        let versions = self.parts.get(&vb).into_iter().flat_map(|part| &part.versions);
        let documents = versions.filter(|(_, version)| !version.deleted);
        documents.map(|(key, version)| (&key[..], version.expiry != 0)).collect()
    }
}

impl Part {
    fn request(&mut self) -> StreamRequest {
        if self.seqno < self.snapshot.0 {
            // It has nothing of the snapshot that was announced: that is being at the end of the one before.
            self.snapshot = (self.seqno, self.seqno);
        }
        StreamRequest {
            flags: StreamFlags::ACTIVE_ONLY.0,
            reserved: 0,
            start: self.seqno,
            end: Seqno(u64::MAX),
            vb_uuid: self.uuid,
            snap_start: self.snapshot.0,
            snap_end: self.snapshot.1,
        }
    }

    fn is_inside(&self) -> bool {
        self.snapshot.0 < self.seqno && self.seqno < self.snapshot.1
    }

    fn begin(&mut self, log: FailoverLog, node: NodeId) {
        self.uuid = log[0].0;
        (self.log, self.node) = (log, Some(node));
        self.keys.clear();
    }

    /// Takes a message; the version that it tells, if it tells one.
    fn hear(&mut self, message: DcpMessage<'_>) -> Option<(Vec<u8>, Version)> {
        match message {
            DcpMessage::SnapshotMarker(marker) => self.announce(&marker),
            DcpMessage::Mutation { document, flags, expiry } => {
                return Some(self.version(&document, (false, flags, expiry)));
            }
            DcpMessage::Deletion { document, .. } | DcpMessage::Expiration { document, .. } => {
                return Some(self.version(&document, (true, 0, 0)));
            }
            DcpMessage::SystemEvent { seqno, event, version, key, value } => {
                self.advance(seqno);
                let event = SystemEvent::decode(event, version, key, value);
                if let Some(SystemEvent::CollectionEnd { collection, .. }) = event {
                    self.drop_collection(collection);
                }
            }
            DcpMessage::SeqnoAdvanced(seqno) => self.advance(seqno),
            DcpMessage::StreamEnd(_) => self.node = None,
            other => panic!("{other:?} is told to nobody who did not ask for it"),
        }
        None
    }

    fn announce(&mut self, marker: &SnapshotMarker) {
        let (start, end) = (marker.start, marker.end);
        assert!(start <= end && end >= self.seqno, "{marker:?} at {}", self.seqno);
        self.snapshot = (start, end);
        self.keys.clear();
    }

    fn version(
        &mut self,
        document: &Document<'_>,
        (deleted, flags, expiry): (bool, u32, u32),
    ) -> (Vec<u8>, Version) {
        let key = document.key.to_vec();
        assert!(self.keys.insert(key.clone()), "{key:?} twice in {:?}", self.snapshot);
        self.advance(document.seqno);
        let hash = disk_hash(document.value, document.datatype.0.into());
        let (seqno, cas, rev) = (document.seqno, document.cas, document.rev);
        assert_ne!(cas, Cas::LOCKED);
        (key, Version { seqno, deleted, cas, rev, flags, expiry, hash: Some(hash) })
    }

    fn advance(&mut self, seqno: Seqno) {
        assert!(seqno > self.seqno, "{seqno} after {}", self.seqno);
        let (start, end) = self.snapshot;
        assert!(start <= seqno && seqno <= end, "{seqno} outside {:?}", self.snapshot);
        self.seqno = seqno;
    }

    /// A key has another version.
    fn put(&mut self, key: Vec<u8>, version: Version) {
        let before = self.versions.insert(key.clone(), version);
        if let Some(saved) = self.saved.last_mut() {
            saved.undo.push((key, before));
        }
    }

    fn drop_collection(&mut self, collection: CollectionId) {
        let is_its = |key: &Vec<u8>, _: &mut Version| DocKey::trusted(key).collection() == collection;
        let gone = self.versions.extract_if(.., is_its).map(|(key, version)| (key, Some(version)));
        match self.saved.last_mut() {
            Some(saved) => saved.undo.extend(gone),
            None => gone.for_each(drop),
        }
    }

    /// Remembers this state, to go back to.
    fn save(&mut self) {
        if self.saved.len() == SAVED_MAX {
            self.saved.remove(0);
        }
        let (seqno, uuid, log) = (self.seqno, self.uuid, self.log.clone());
        self.saved.push(Saved { seqno, uuid, log, undo: Vec::new() });
    }

    /// To the newest remembered state that is not after `to`; to nothing if there is none.
    fn go_back(&mut self, to: Seqno) {
        let (mut versions, mut saved) = (std::mem::take(&mut self.versions), std::mem::take(&mut self.saved));
        while let Some(mut state) = saved.pop() {
            for (key, before) in state.undo.drain(..).rev() {
                match before {
                    Some(version) => drop(versions.insert(key, version)),
                    None => drop(versions.remove(&key)),
                }
            }
            if state.seqno <= to {
                let (seqno, uuid, log) = (state.seqno, state.uuid, state.log.clone());
                saved.push(state);
                *self =
                    Self { versions, seqno, uuid, snapshot: (seqno, seqno), log, saved, ..Self::default() };
                return;
            }
        }
        *self = Self::default();
    }
}
