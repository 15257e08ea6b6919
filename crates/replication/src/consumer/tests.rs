//! What a producer may say, and what becomes of it when it says something else.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::cell::{Cell, RefCell};

use base::{Cas, Datatype, VbUuid, bucket::DurabilityLevel};
use engine::{ReplicaItem, ReplicaMarker};
use protocol::binary::{
    Decoded, Header, Magic,
    dcp::{
        Document, MarkerFlags, MarkerVersion, PACKED, SnapshotMarker, StreamEndReason, StreamHead,
        StreamRequest,
    },
    decode_frame,
    extras::SeqnoExtras,
    observe::append_failover_log,
};

use super::{replica::Start, *};

const VB: VbId = VbId(3);
const OTHER: VbId = VbId(4);
const BRANCH: VbUuid = VbUuid(77);

/// Takes everything, unless told otherwise.
#[derive(Debug, Default)]
struct Taker {
    begun: Cell<u32>,
    start: Cell<u64>,
    /// Seqnos of what was brought.
    taken: RefCell<Vec<u64>>,
    /// The value of the last one.
    value: RefCell<(Vec<u8>, Datatype)>,
    refusal: Cell<Option<Status>>,
    /// There is no room for what comes by this inflow.
    full: Cell<Option<u32>>,
    prepared: Cell<u64>,
    waiting: Cell<Option<Waiter>>,
    may_lack: Cell<bool>,
    /// What markers said to be visible.
    visible: RefCell<Vec<u64>>,
}

impl Taker {
    fn answer(&self) -> Result<(), Status> {
        self.refusal.get().map_or(Ok(()), Err)
    }
}

impl Replica for &Taker {
    type Inflow = u32;

    fn begin(&self, _: VbId, term: u64, _: Now) -> Result<Start<u32>, Status> {
        if term == 0 {
            return Err(Status::NotMyVbucket);
        }
        self.begun.set(self.begun.get() + 1);
        let start = Seqno(self.start.get());
        Ok(Start {
            inflow: self.begun.get(),
            vb_uuid: BRANCH,
            start,
            snap_start: start,
            snap_end: start,
            may_lack: self.may_lack.get(),
        })
    }

    fn accept_log(&self, inflow: u32, _: &[(VbUuid, Seqno)], _: Now) -> Result<(), Status> {
        assert!(inflow <= self.begun.get());
        self.answer()
    }

    fn roll_back(&self, _: u32, to: Seqno, _: Now) -> Result<(), Status> {
        self.start.set(to.get());
        self.answer()
    }

    fn marker(&self, _: u32, marker: &ReplicaMarker, _: Now) -> Result<(), Status> {
        self.visible.borrow_mut().push(marker.max_visible.get());
        self.answer()
    }

    fn item(&self, inflow: u32, item: &ReplicaItem<'_>, _: Waiter, _: Now) -> Result<(), Status> {
        self.answer()?;
        if self.full.get() == Some(inflow) {
            return Err(Status::TemporaryFailure);
        }
        self.taken.borrow_mut().push(item.seqno.get());
        self.value.replace((item.value.to_vec(), item.datatype));
        Ok(())
    }

    fn await_high_prepared(&self, _: u32, above: Seqno, waiter: Waiter) -> Seqno {
        self.waiting.set((self.prepared.get() <= above.get()).then_some(waiter));
        Seqno(self.prepared.get())
    }
}

/// A consumer, and what it has said since last asked.
struct Talk<'a> {
    consumer: Consumer<&'a Taker>,
    said: Vec<u8>,
    millis: u64,
}

type Said = (Opcode, u16, u32, Vec<u8>);

impl<'a> Talk<'a> {
    /// A connection on which a stream is asked for.
    fn asked(taker: &'a Taker) -> Self {
        let waiter = Waiter { worker: 0, connection: 0, ticket: 0 };
        let consumer = Consumer::new(taker, waiter, at(0), Arc::default());
        let mut talk = Self { consumer, said: Vec::new(), millis: 0 };
        talk.want(&[(VB, 5)]);
        talk
    }

    /// A connection with a stream, with opaque 1.
    fn open(taker: &'a Taker) -> Self {
        let mut talk = Self::asked(taker);
        assert_eq!(talk.said().len(), 1);
        talk.granted(1, &[(BRANCH, Seqno(0))]).unwrap();
        assert_eq!(talk.consumer.following(VB), Some(5));
        assert_eq!(talk.consumer.take_changed(), [VB]);
        talk
    }

    fn want(&mut self, wishes: &[(VbId, u64)]) {
        let wishes: Vec<_> = wishes.iter().map(|&(vb, term)| StreamWish { vb, term }).collect();
        self.consumer.want(&wishes, at(self.millis), &mut self.said);
        self.tend(0).unwrap();
    }

    fn tend(&mut self, millis: u64) -> Result<(), Broken> {
        self.millis += millis;
        self.consumer.tend(at(self.millis), true, &mut self.said)
    }

    fn receive(&mut self, packet: &[u8]) -> Result<Taken, Broken> {
        let Decoded::Frame(frame) = decode_frame(packet) else { panic!("no frame") };
        self.consumer.receive(&frame, at(self.millis), &mut self.said)
    }

    fn hear(&mut self, opaque: u32, message: &DcpMessage<'_>) -> Result<Taken, Broken> {
        self.hear_of(VB, opaque, message)
    }

    fn hear_of(&mut self, vb: VbId, opaque: u32, message: &DcpMessage<'_>) -> Result<Taken, Broken> {
        let mut packet = Vec::new();
        message.append(&StreamHead { vb, opaque: opaque.into(), stream_id: None }, &mut packet);
        self.receive(&packet)
    }

    fn answered(&mut self, opcode: Opcode, opaque: u32, status: u16, value: &[u8]) -> Result<Taken, Broken> {
        let header = Header {
            magic: Magic::ClientResponse,
            opcode: opcode.code(),
            framing_len: 0,
            extras_len: 0,
            key_len: 0,
            datatype: Datatype::RAW,
            vbucket_or_status: status,
            body_len: value.len() as u32,
            opaque: opaque.into(),
            cas: Cas::NONE,
        };
        self.receive(&[&header.encode()[..], value].concat())
    }

    fn granted(&mut self, opaque: u32, log: &[(VbUuid, Seqno)]) -> Result<Taken, Broken> {
        let mut value = Vec::new();
        append_failover_log(log, &mut value);
        self.answered(Opcode::DcpStreamReq, opaque, 0, &value)
    }

    /// Requests since last asked: opcode, vBucket, opaque, extras.
    fn said(&mut self) -> Vec<Said> {
        let said = std::mem::take(&mut self.said);
        let (mut rest, mut all) = (said.as_slice(), Vec::new());
        while let Decoded::Frame(frame) = decode_frame(rest) {
            let header = &frame.header;
            let opcode = Opcode::from_wire(header.opcode).unwrap();
            all.push((opcode, header.vbucket_or_status, header.opaque.into(), frame.extras.to_vec()));
            rest = &rest[frame.packet_len()..];
        }
        assert!(rest.is_empty());
        all
    }

    fn opcodes(&mut self) -> Vec<Opcode> {
        self.said().into_iter().map(|said| said.0).collect()
    }
}

fn at(millis: u64) -> Now {
    Now { wall_nanos: 0, mono_millis: millis }
}

fn marker(start: u64, end: u64) -> DcpMessage<'static> {
    let version = MarkerVersion::V2 { max_visible: Seqno(end), high_completed: Seqno(0) };
    let (start, end) = (Seqno(start), Seqno(end));
    DcpMessage::SnapshotMarker(SnapshotMarker { start, end, flags: MarkerFlags::MEMORY, version })
}

fn history(start: u64, end: u64) -> DcpMessage<'static> {
    let DcpMessage::SnapshotMarker(marker) = marker(start, end) else { panic!("a marker") };
    DcpMessage::SnapshotMarker(SnapshotMarker { flags: MarkerFlags::DISK, ..marker })
}

fn document(seqno: u64) -> Document<'static> {
    Document { key: b"\0k", value: b"{}", seqno: Seqno(seqno), cas: Cas(1), rev: 1, ..Document::default() }
}

fn mutation(seqno: u64) -> DcpMessage<'static> {
    DcpMessage::Mutation { document: document(seqno), flags: 0, expiry: 0 }
}

fn prepare(seqno: u64) -> DcpMessage<'static> {
    let level = DurabilityLevel::Majority;
    DcpMessage::Prepare { document: document(seqno), flags: 0, expiry: 0, deleted: false, level }
}

#[test]
fn a_stream_is_asked_for_from_where_the_replica_is_and_at_its_term() {
    let taker = Taker { start: Cell::new(40), ..Taker::default() };
    let mut talk = Talk::asked(&taker);
    let Decoded::Frame(frame) = decode_frame(&talk.said) else { panic!("nothing was asked for") };
    let request = StreamRequest::decode(frame.extras).unwrap();
    assert_eq!((request.start, request.vb_uuid, request.end), (Seqno(40), BRANCH, Seqno(u64::MAX)));
    assert_eq!(frame.value, br#"{"settee_term":"5"}"#);
    talk.said();
    // One that has nothing is on no branch; and nobody is asked twice.
    talk.tend(1).unwrap();
    talk.want(&[(VB, 5)]);
    assert!(talk.said().is_empty());
    let taker = Taker::default();
    let talk = Talk::asked(&taker);
    let Decoded::Frame(frame) = decode_frame(&talk.said) else { panic!("nothing was asked for") };
    assert_eq!(StreamRequest::decode(frame.extras).unwrap().vb_uuid, VbUuid(0));
}

#[test]
fn what_is_said_in_order_reaches_the_replica() {
    let taker = Taker::default();
    let mut talk = Talk::open(&taker);
    for message in [marker(0, 3), mutation(1), mutation(3), marker(4, 6), DcpMessage::SeqnoAdvanced(Seqno(6))]
    {
        assert_eq!(talk.hear(1, &message), Ok(Taken::Done), "{message:?}");
    }
    assert_eq!(*taker.taken.borrow(), [1, 3, 6]);
    assert_eq!((talk.consumer.last(VB), talk.opcodes()), (Some(Seqno(6)), vec![]));
}

#[test]
fn what_was_packed_for_the_way_is_what_it_was_stored_as() {
    let taker = Taker::default();
    let mut talk = Talk::open(&taker);
    let plain = vec![b'7'; 100_000];
    let block = snap::raw::Encoder::new().compress_vec(&plain).unwrap();
    let packed = |seqno, datatype: Datatype| Document {
        value: &block,
        datatype: datatype.with(PACKED),
        ..document(seqno)
    };
    talk.hear(1, &marker(0, 4)).unwrap();
    talk.hear(1, &DcpMessage::Mutation { document: packed(1, Datatype::JSON), flags: 0, expiry: 0 }).unwrap();
    assert_eq!(*taker.value.borrow(), (plain.clone(), Datatype::JSON));
    talk.hear(1, &mutation(2)).unwrap();
    assert_eq!(*taker.value.borrow(), (b"{}".to_vec(), Datatype::RAW));
    // Compressed by the client that wrote it, and not for the way.
    let document = Document { datatype: Datatype::SNAPPY, ..packed(3, Datatype::RAW) };
    talk.hear(1, &DcpMessage::Mutation { document, flags: 0, expiry: 0 }).unwrap();
    assert_eq!(*taker.value.borrow(), (block.clone(), Datatype::SNAPPY));
    let (document, level) = (packed(4, Datatype::RAW), DurabilityLevel::Majority);
    talk.hear(1, &DcpMessage::Prepare { document, flags: 0, expiry: 0, deleted: false, level }).unwrap();
    assert_eq!(*taker.value.borrow(), (plain, Datatype::RAW));
}

/// Each a lie by itself, behind a snapshot to 10 of which 5 is there.
fn lies() -> Vec<DcpMessage<'static>> {
    let of = |document| DcpMessage::Mutation { document, flags: 0, expiry: 0 };
    let long: &'static [u8] = &[b'k'; 252];
    let with = |version| {
        DcpMessage::SnapshotMarker(SnapshotMarker {
            start: Seqno(6),
            end: Seqno(12),
            flags: MarkerFlags::DISK,
            version,
        })
    };
    vec![
        mutation(5),
        mutation(4),
        mutation(0),
        mutation(11),
        mutation(u64::MAX),
        marker(0, 0),
        marker(6, 9),
        marker(7, 12),
        marker(6, 5),
        marker(1, 5),
        marker(u64::MAX, u64::MAX),
        with(MarkerVersion::V2 { max_visible: Seqno(13), high_completed: Seqno(0) }),
        with(MarkerVersion::V2 { max_visible: Seqno(12), high_completed: Seqno(13) }),
        DcpMessage::SnapshotMarker(SnapshotMarker {
            start: Seqno(6),
            end: Seqno(12),
            flags: MarkerFlags::DISK.with(MarkerFlags::HISTORY),
            version: MarkerVersion::V1,
        }),
        of(Document { key: b"", ..document(6) }),
        of(Document { key: b"\0", ..document(6) }),
        of(Document { key: b"\x02k", ..document(6) }),
        of(Document { key: b"\x80", ..document(6) }),
        of(Document { key: long, ..document(6) }),
        of(Document { datatype: Datatype(0x40), ..document(6) }),
        of(Document { datatype: PACKED, ..document(6) }),
        of(Document { value: b"", datatype: Datatype::SNAPPY, ..document(6) }),
        DcpMessage::Deletion { document: document(6), delete_time: None },
        DcpMessage::Commit { key: b"\0k", prepared: Seqno(6), seqno: Seqno(6) },
        DcpMessage::Commit { key: b"\0k", prepared: Seqno(0), seqno: Seqno(6) },
        DcpMessage::Abort { key: b"\0k", prepared: Seqno(7), seqno: Seqno(6) },
        DcpMessage::Abort { key: b"\x01_scope:\x08", prepared: Seqno(2), seqno: Seqno(6) },
        DcpMessage::Prepare {
            document: Document { key: b"\x01_scope:\x08", ..document(6) },
            flags: 0,
            expiry: 0,
            deleted: false,
            level: DurabilityLevel::Majority,
        },
        DcpMessage::SystemEvent { seqno: Seqno(6), event: 0, version: 0, key: b"x", value: &[0; 16] },
        DcpMessage::SeqnoAdvanced(Seqno(11)),
        DcpMessage::OsoBegin,
        DcpMessage::OsoEnd,
    ]
}

#[test]
fn a_lie_ends_its_stream_and_never_reaches_the_replica() {
    for lie in lies() {
        let taker = Taker::default();
        let mut talk = Talk::open(&taker);
        for message in [marker(1, 10), mutation(5)] {
            talk.hear(1, &message).unwrap();
        }
        assert_eq!(talk.hear(1, &lie), Ok(Taken::Done), "{lie:?}");
        assert_eq!(*taker.taken.borrow(), [5], "{lie:?}");
        assert_eq!(talk.opcodes(), [Opcode::DcpCloseStream], "{lie:?}");
        assert_eq!(talk.consumer.following(VB), None);
        assert_eq!(talk.consumer.stats.faults.load(Ordering::Relaxed), 1);
        // What still comes of it is of no interest, until its end is confirmed; then there is no such stream.
        assert_eq!(talk.hear(1, &mutation(6)), Ok(Taken::Done));
        assert_eq!(talk.answered(Opcode::DcpCloseStream, 1, 0, &[]), Ok(Taken::Done));
        assert!(matches!(talk.hear(1, &mutation(7)), Err(Broken::Stray { .. })));
        assert_eq!(*taker.taken.borrow(), [5]);
        // It is asked for again after a while.
        talk.tend(PAUSE_MILLIS_MIN - 1).unwrap();
        assert!(talk.said().is_empty());
        talk.tend(1).unwrap();
        assert_eq!(talk.opcodes(), [Opcode::DcpStreamReq]);
    }
}

#[test]
fn what_belongs_to_no_stream_ends_the_connection() {
    let taker = Taker::default();
    let talk = || Talk::open(&taker);
    assert!(matches!(talk().hear(2, &mutation(1)), Err(Broken::Stray { .. })));
    assert!(matches!(talk().granted(1, &[(BRANCH, Seqno(0))]), Err(Broken::Stray { .. })), "granted twice");
    assert!(matches!(talk().granted(9, &[(BRANCH, Seqno(0))]), Err(Broken::Stray { .. })));
    assert!(matches!(talk().answered(Opcode::DcpCloseStream, 1, 0, &[]), Err(Broken::Stray { .. })));
    assert!(matches!(
        talk().answered(Opcode::DcpBufferAcknowledgement, 0, 4, &[]),
        Err(Broken::Refused { .. })
    ));
    let mut other_vb = Vec::new();
    mutation(1).append(&StreamHead { vb: VbId(4), opaque: 1.into(), stream_id: None }, &mut other_vb);
    assert!(matches!(talk().receive(&other_vb), Err(Broken::Stray { .. })));
    let mut unknown = other_vb.clone();
    unknown[1] = 0xee;
    assert_eq!(talk().receive(&unknown), Err(Broken::Unreadable { opcode: 0xee }));
    let mut from_server = other_vb;
    from_server[0] = Magic::ServerRequest as u8;
    assert!(matches!(talk().receive(&from_server), Err(Broken::Unreadable { .. })));
    assert!(taker.taken.borrow().is_empty());
}

#[test]
fn histories_that_cannot_be_are_not_accepted() {
    let too_long = vec![(BRANCH, Seqno(0)); 1_001];
    let rising = [(BRANCH, Seqno(1)), (VbUuid(8), Seqno(2))];
    let other = [(VbUuid(8), Seqno(0))];
    for log in [&[][..], &rising, &other, &too_long] {
        let taker = Taker { start: Cell::new(40), ..Taker::default() };
        let mut talk = Talk::asked(&taker);
        talk.said();
        talk.granted(1, log).unwrap();
        assert_eq!((talk.consumer.following(VB), talk.opcodes()), (None, vec![Opcode::DcpCloseStream]));
    }
    let taker = Taker::default();
    let mut talk = Talk::asked(&taker);
    talk.said();
    talk.answered(Opcode::DcpStreamReq, 1, 0, &[1; 15]).unwrap();
    assert_eq!((talk.consumer.following(VB), talk.opcodes()), (None, vec![Opcode::DcpCloseStream]));
}

#[test]
fn a_replica_goes_back_where_it_is_told_to_but_never_forward() {
    let rollback = Status::Rollback.code();
    let taker = Taker { start: Cell::new(40), ..Taker::default() };
    let mut talk = Talk::asked(&taker);
    talk.said();
    talk.answered(Opcode::DcpStreamReq, 1, rollback, &30_u64.to_be_bytes()).unwrap();
    talk.tend(0).unwrap();
    let Decoded::Frame(frame) = decode_frame(&talk.said) else { panic!("not asked again") };
    assert_eq!(StreamRequest::decode(frame.extras).unwrap().start, Seqno(30));
    talk.said();
    for (opaque, to) in [(2_u32, &30_u64.to_be_bytes()[..]), (3, &31_u64.to_be_bytes()), (4, b"1234567")] {
        talk.answered(Opcode::DcpStreamReq, opaque, rollback, to).unwrap();
        assert_eq!(taker.start.get(), 30);
        talk.tend(10_000 - 1).unwrap();
        assert_eq!(talk.opcodes(), [Opcode::DcpStreamReq]);
    }
}

#[test]
fn a_message_without_room_is_taken_later_and_counted_once() {
    let taker = Taker::default();
    let mut talk = Talk::open(&taker);
    talk.hear(1, &marker(1, 9)).unwrap();
    let bytes = talk.consumer.stats.bytes.load(Ordering::Relaxed);
    for status in [Status::TemporaryFailure, Status::NoMemory] {
        taker.refusal.set(Some(status));
        assert_eq!(talk.hear(1, &mutation(2)), Ok(Taken::NoRoom));
    }
    assert_eq!(talk.consumer.stats.bytes.load(Ordering::Relaxed), bytes);
    // For so long nothing is read, and it is not the producer that is silent.
    let patience = talk.consumer.due_at() - talk.millis;
    talk.millis += 100 * patience;
    talk.consumer.tend(at(talk.millis), false, &mut talk.said).unwrap();
    assert_eq!(talk.consumer.due_at() - talk.millis, patience);
    talk.tend(1).unwrap();
    taker.refusal.set(None);
    assert_eq!(talk.hear(1, &mutation(2)), Ok(Taken::Done));
    taker.refusal.set(Some(Status::NotMyVbucket));
    assert_eq!(talk.hear(1, &mutation(3)), Ok(Taken::Done));
    assert_eq!((talk.opcodes(), taker.taken.borrow().clone()), (vec![Opcode::DcpCloseStream], vec![2]));
}

#[test]
fn an_empty_snapshot_is_for_who_has_nothing() {
    let taker = Taker::default();
    let mut talk = Talk::open(&taker);
    for message in [marker(0, 0), marker(0, 3), mutation(3)] {
        assert_eq!(talk.hear(1, &message), Ok(Taken::Done));
    }
    assert_eq!((talk.consumer.following(VB), talk.opcodes()), (Some(5), vec![]));
    talk.hear(1, &marker(0, 0)).unwrap();
    assert_eq!((talk.consumer.following(VB), talk.opcodes()), (None, vec![Opcode::DcpCloseStream]));
}

#[test]
fn a_damaged_copy_is_begun_anew_and_nobody_is_blamed() {
    let taker = Taker::default();
    let mut talk = Talk::open(&taker);
    talk.hear(1, &marker(0, 3)).unwrap();
    taker.refusal.set(Some(Status::Invalid));
    assert_eq!(talk.hear(1, &mutation(1)), Ok(Taken::Done));
    taker.refusal.set(None);
    assert_eq!((talk.consumer.following(VB), talk.opcodes()), (None, vec![Opcode::DcpCloseStream]));
    let stats = &talk.consumer.stats;
    assert_eq!((stats.rollbacks.load(Ordering::Relaxed), stats.faults.load(Ordering::Relaxed)), (1, 0));
    talk.tend(PAUSE_MILLIS_MIN).unwrap();
    assert_eq!(talk.opcodes(), [Opcode::DcpStreamReq]);
}

#[test]
fn durable_writes_are_acknowledged_as_they_become_durable() {
    let taker = Taker { start: Cell::new(7), prepared: Cell::new(7), ..Taker::default() };
    let mut talk = Talk::asked(&taker);
    talk.said();
    talk.granted(1, &[(BRANCH, Seqno(0))]).unwrap();
    let said = |seqno: u64| {
        (Opcode::DcpSeqnoAcknowledged, VB.get(), 1, SeqnoExtras { seqno: Seqno(seqno) }.encode().to_vec())
    };
    // What is there already may be news to this active, and so is what becomes durable without another message.
    assert_eq!(talk.said(), [said(7)]);
    assert!(taker.waiting.get().is_some());
    talk.hear(1, &marker(8, 9)).unwrap();
    talk.hear(1, &prepare(8)).unwrap();
    assert!(talk.said().is_empty(), "inside the snapshot");
    taker.prepared.set(8);
    talk.hear(1, &DcpMessage::SeqnoAdvanced(Seqno(9))).unwrap();
    assert_eq!(talk.said(), [said(8)]);
    // One that has to be synced: the replica wakes us.
    talk.hear(1, &marker(10, 10)).unwrap();
    talk.hear(1, &prepare(10)).unwrap();
    assert!(talk.said().is_empty());
    let waiter = taker.waiting.get().expect("somebody waits");
    taker.prepared.set(10);
    talk.consumer.wake(waiter.ticket);
    talk.tend(0).unwrap();
    talk.tend(0).unwrap();
    assert_eq!(talk.said(), [said(10)]);
}

#[test]
fn that_nothing_follows_makes_nothing_visible() {
    let taker = Taker { start: Cell::new(7), may_lack: Cell::new(true), ..Taker::default() };
    let mut talk = Talk::open(&taker);
    let nothing_behind = SnapshotMarker {
        start: Seqno(7),
        end: Seqno(7),
        flags: MarkerFlags::MEMORY,
        version: MarkerVersion::V1,
    };
    assert_eq!(talk.hear(1, &DcpMessage::SnapshotMarker(nothing_behind)), Ok(Taken::Done));
    assert_eq!(*taker.visible.borrow(), [0]);
}

#[test]
fn another_term_is_another_stream() {
    let taker = Taker::default();
    let mut talk = Talk::open(&taker);
    talk.want(&[(VB, 6)]);
    assert_eq!(talk.opcodes(), [Opcode::DcpCloseStream, Opcode::DcpStreamReq]);
    assert_eq!(talk.consumer.following(VB), None);
    // Asked for and not granted yet: as good as open to the producer.
    talk.want(&[(VB, 7)]);
    assert_eq!(talk.opcodes(), [Opcode::DcpCloseStream, Opcode::DcpStreamReq]);
    talk.answered(Opcode::DcpCloseStream, 1, 0, &[]).unwrap();
    talk.granted(2, &[(BRANCH, Seqno(0))]).unwrap();
    assert_eq!(talk.hear(2, &marker(0, 3)), Ok(Taken::Done), "of the stream of term 6");
    talk.answered(Opcode::DcpCloseStream, 2, 0, &[]).unwrap();
    talk.granted(3, &[(BRANCH, Seqno(0))]).unwrap();
    assert_eq!(talk.consumer.following(VB), Some(7));
    talk.want(&[]);
    assert_eq!((talk.opcodes(), talk.consumer.following(VB)), (vec![Opcode::DcpCloseStream], None));
}

#[test]
fn streams_are_asked_for_a_few_at_a_time_and_again_for_as_long_as_they_are_wanted() {
    let taker = Taker::default();
    let mut talk = Talk::asked(&taker);
    talk.said();
    let wishes: Vec<_> = (0..200).map(|vb| (VbId(vb), 5)).collect();
    talk.want(&wishes);
    let asked = talk.said();
    assert_eq!(asked.len(), ASKED_MAX - 1);
    for (_, _, opaque, _) in &asked {
        talk.answered(Opcode::DcpStreamReq, *opaque, Status::NotMyVbucket.code(), &[]).unwrap();
    }
    talk.tend(0).unwrap();
    assert_eq!(talk.said().len(), ASKED_MAX - 1, "others have their turn");
    // Granted, and ended: it is asked for again.
    talk.granted(1, &[(BRANCH, Seqno(0))]).unwrap();
    talk.hear(1, &DcpMessage::StreamEnd(StreamEndReason::StateChanged)).unwrap();
    assert_eq!(talk.consumer.following(VB), None);
    assert!(talk.consumer.due_at() <= talk.millis + PAUSE_MILLIS_MIN);
    // Not taken here: nothing is asked of the producer.
    let mut talk = Talk::asked(&taker);
    talk.said();
    talk.want(&[(VbId(9), 0)]);
    assert_eq!(talk.opcodes(), [Opcode::DcpCloseStream]);
}

#[test]
fn a_silent_producer_is_left_and_one_that_asks_is_answered() {
    let taker = Taker::default();
    let mut talk = Talk::open(&taker);
    let until_due = |talk: &Talk<'_>| talk.consumer.due_at() - talk.millis;
    let patience = until_due(&talk);
    talk.tend(patience).unwrap();
    assert!(until_due(&talk) < patience, "it is looked for again soon");
    assert_eq!(talk.hear(99, &DcpMessage::Noop), Ok(Taken::Done));
    let Decoded::Frame(frame) = decode_frame(&talk.said) else { panic!("no answer") };
    assert!(frame.header.magic.is_client_response() && frame.header.status() == Some(Status::Success));
    assert_eq!(u32::from(frame.header.opaque), 99);
    assert_eq!(until_due(&talk), patience);
    talk.tend(patience - 1).unwrap();
    // A part of a packet is no silence.
    talk.consumer.hear_part(at(talk.millis));
    assert_eq!(until_due(&talk), patience);
    talk.tend(patience).unwrap();
    assert_eq!(talk.tend(until_due(&talk)), Err(Broken::Silent));
}

/// A connection with two streams, with opaques 1 and 2, of which the first has no room for the history that it is told.
fn with_held(taker: &Taker) -> Talk<'_> {
    let mut talk = Talk::open(taker);
    talk.want(&[(VB, 5), (OTHER, 5)]);
    talk.granted(2, &[(BRANCH, Seqno(0))]).unwrap();
    talk.said();
    taker.full.set(Some(1));
    talk.hear(1, &history(0, 900_000)).unwrap();
    assert_eq!(talk.hear(1, &mutation(2)), Ok(Taken::Done), "the connection goes on");
    talk
}

#[test]
fn history_without_room_holds_its_own_stream_and_no_other() {
    let taker = Taker::default();
    let mut talk = with_held(&taker);
    talk.hear(1, &mutation(4)).unwrap();
    for message in [marker(0, 3), mutation(1), mutation(3)] {
        assert_eq!(talk.hear_of(OTHER, 2, &message), Ok(Taken::Done));
    }
    assert_eq!(*taker.taken.borrow(), [1, 3], "the other one's");
    talk.tend(50).unwrap();
    taker.full.set(None);
    talk.hear(1, &mutation(5)).unwrap();
    assert_eq!(*taker.taken.borrow(), [1, 3], "behind what is held");
    assert!(talk.consumer.has_more(at(talk.millis + 50)));
    talk.tend(50).unwrap();
    assert_eq!(*taker.taken.borrow(), [1, 3, 2, 4, 5], "in order");
    assert_eq!(talk.consumer.last(VB), Some(Seqno(5)));
    assert!(talk.said().is_empty());
}

#[test]
fn history_that_finds_no_room_for_long_is_asked_for_again() {
    let taker = Taker::default();
    let mut talk = with_held(&taker);
    let bytes = talk.consumer.stats.bytes.load(Ordering::Relaxed);
    let mut seqno = 2;
    while talk.consumer.following(VB).is_some() {
        seqno += 1;
        assert!(seqno < 100_000, "what is held is bounded");
        talk.hear(1, &mutation(seqno)).unwrap();
    }
    assert!(talk.opcodes().contains(&Opcode::DcpCloseStream));
    assert!(talk.consumer.stats.bytes.load(Ordering::Relaxed) > bytes, "all of it is dealt with");
    taker.full.set(None);
    talk.tend(0).unwrap();
    assert!(taker.taken.borrow().is_empty(), "nothing of it is left");
    talk.tend(PAUSE_MILLIS_MIN).unwrap();
    assert!(talk.opcodes().contains(&Opcode::DcpStreamReq));
    assert_eq!(talk.consumer.following(OTHER), Some(5));
}
