//! DCP connections in their workers. Mutations on other connections wake them. They are ended by namesakes, by lost
//! rights and by the bucket's end, and leave nothing behind. What streams say is tested in `replication`.

use std::{net::SocketAddr, sync::atomic::Ordering::Relaxed, time::Duration};

use base::{NodeId, Status, VbId, bucket::DurabilityLevel};
use cluster::{
    Command, UserDomain,
    auth::{LoginPort, NodeKey, SEED_BYTES},
};
use protocol::{
    binary::{
        Decoded, Opcode, Request,
        dcp::{DcpMessage, OpenFlags, StreamEndReason, StreamFlags, StreamRequest, request::OpenExtras},
        decode_frame,
    },
    hello::{Feature, FeatureSet},
    sasl,
};
use replication::LinkName;

use super::{
    harness::{Client, NODE, Node, Reply, Wire, encode, options},
    sockets::eventually,
    waiting::{durable_set, wire},
};
use crate::{ListenerKind, state::dcp_totals::Kind, statistics::dcp};

const VB: VbId = VbId(5);

fn logged_in(address: SocketAddr, user: &str, password: &str) -> Client {
    let mut client = Client::connect(address);
    let features: FeatureSet =
        [Feature::Collections, Feature::SelectBucket, Feature::Json, Feature::Xerror].into_iter().collect();
    let mut value = Vec::new();
    features.encode(&mut value);
    client.ask(&Request { key: b"t", value: &value, ..Request::new(Opcode::Hello) });
    let proof = [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat();
    let login = Request { key: b"PLAIN", value: &proof, ..Request::new(Opcode::SaslAuth) };
    assert_eq!(client.ask(&login).status, Status::Success);
    assert_eq!(
        client.ask(&Request { key: b"travel", ..Request::new(Opcode::SelectBucket) }).status,
        Status::Success
    );
    client
}

fn open(client: &mut Client, name: &str) -> Status {
    let extras = OpenExtras { seqno: 0, flags: OpenFlags::PRODUCER.0 }.encode();
    client.ask(&Request { key: name.as_bytes(), extras: &extras, ..Request::new(Opcode::DcpOpen) }).status
}

/// A stream that has nothing yet, and does not end.
fn endless(flags: StreamFlags) -> StreamRequest {
    StreamRequest {
        flags: flags.0,
        reserved: 0,
        start: 0.into(),
        end: u64::MAX.into(),
        vb_uuid: 0.into(),
        snap_start: 0.into(),
        snap_end: 0.into(),
    }
}

/// Streams the vBucket from now on; what was before would have to be read by a thread that these tests do not have.
fn stream(client: &mut Client, filter: &str) -> Reply {
    let noop = Request { key: b"enable_noop", value: b"true", ..Request::new(Opcode::DcpControl) };
    assert_eq!(client.ask(&noop).status, Status::Success);
    let extras = endless(StreamFlags::ACTIVE_ONLY.with(StreamFlags::FROM_LATEST)).encode();
    let request = Request {
        vbucket: VB,
        opaque: 77.into(),
        extras: &extras,
        value: filter.as_bytes(),
        ..Request::new(Opcode::DcpStreamReq)
    };
    client.ask(&request)
}

fn told<T>(client: &mut Client, read: impl FnOnce(DcpMessage<'_>) -> T) -> T {
    let packet = client.receive_packet();
    let Decoded::Frame(frame) = decode_frame(&packet) else { panic!("no frame") };
    let (head, message) = DcpMessage::decode(&frame).expect("a message of a producer");
    assert_eq!((head.vb, head.opaque), (VB, 77.into()));
    read(message)
}

#[test]
fn a_node_follows_for_itself_alone() {
    let mut node = Node::new();
    node.give_half_to("travel", "127.0.0.1:1".parse().unwrap());
    let key = NodeKey::from_seed(&[7; SEED_BYTES]).unwrap();
    node.apply(&Command::SetNodeKey { node: NodeId(1), key: key.public().into() });
    let metadata = &node.shared.snapshot().metadata;
    node.shared.node_tls.know(NodeId(0), metadata);
    let other = &metadata.nodes[1].uuid;
    for (to, status) in [(0, Status::Invalid), (1, Status::Success)] {
        let mut wire = node.connect(ListenerKind::Kv);
        let (key_name, value) = (sasl::NODE.as_bytes(), other.as_bytes());
        let begun = wire.ask(&Request { key: key_name, value, ..Request::new(Opcode::SaslAuth) });
        assert_eq!(begun.status, Status::AuthContinue);
        let proof = key.sign(LoginPort::Kv, other, NODE, &begun.value);
        let ended = wire.ask(&Request { key: key_name, value: &proof, ..Request::new(Opcode::SaslStep) });
        assert_eq!(ended.status, Status::Success);
        wire.ask(&Request { key: b"travel", ..Request::new(Opcode::SelectBucket) });
        let name = LinkName { from: NodeId(0), to: NodeId(to), bucket: "travel" }.to_string();
        let extras = OpenExtras { seqno: 0, flags: OpenFlags::PRODUCER.0 }.encode();
        let open = Request { key: name.as_bytes(), extras: &extras, ..Request::new(Opcode::DcpOpen) };
        assert_eq!(wire.ask(&open).status, status, "{name}");
    }
}

#[test]
fn a_mutation_reaches_a_waiting_stream() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut consumer = logged_in(address, "Administrator", "password");
    assert_eq!(open(&mut consumer, "connector"), Status::Success);
    assert_eq!(open(&mut consumer, "again"), Status::Invalid);
    let events = node.high_seqno("travel", VB);
    assert_eq!(stream(&mut consumer, r#"{"collections":["0"]}"#).status, Status::Success);
    let mut writer = logged_in(address, "Administrator", "password");
    for size in [3, 40_000] {
        let value = vec![b'7'; size];
        let set =
            Request { vbucket: VB, key: b"\0k", value: &value, extras: &[0; 8], ..Request::new(Opcode::Set) };
        assert_eq!(writer.ask(&set).status, Status::Success);
        told(&mut consumer, |message| assert!(matches!(message, DcpMessage::SnapshotMarker(_))));
        told(&mut consumer, |message| {
            let DcpMessage::Mutation { document, .. } = message else { panic!("{message:?}") };
            assert_eq!((document.key, document.value == value), (&b"\0k"[..], true));
            assert!(document.seqno > events);
        });
    }
    let select = Request { key: b"default", ..Request::new(Opcode::SelectBucket) };
    assert_eq!(consumer.ask(&select).status, Status::NotSupported);
    workers.stop(Duration::from_secs(1));
    assert!(consumer.is_closed());
}

#[test]
fn what_a_connection_has_sent_is_counted_beyond_its_end() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let totals = || {
        let snapshot = node.shared.snapshot();
        dcp::totals(&node.shared, &snapshot.buckets["travel"])
    };
    let mut writer = logged_in(address, "Administrator", "password");
    let mut former = totals();
    // The third takes the name of the second, which closes that one.
    let mut consumers: Vec<Client> = Vec::new();
    for name in ["connector", "fts:one", "fts:one"] {
        let mut consumer = logged_in(address, "Administrator", "password");
        assert_eq!(open(&mut consumer, name), Status::Success);
        assert_eq!(stream(&mut consumer, r#"{"collections":["0"]}"#).status, Status::Success);
        let set =
            Request { vbucket: VB, key: b"\0k", value: b"v", extras: &[0; 8], ..Request::new(Opcode::Set) };
        assert_eq!(writer.ask(&set).status, Status::Success);
        told(&mut consumer, |message| assert!(matches!(message, DcpMessage::SnapshotMarker(_))));
        told(&mut consumer, |message| assert!(matches!(message, DcpMessage::Mutation { .. })));
        let now = totals();
        assert!(now.all.items_sent > former.all.items_sent && now.all.bytes_sent > former.all.bytes_sent);
        former = now;
        consumers.push(consumer);
        if name == "connector" {
            consumers.clear();
        }
    }
    consumers.clear();
    eventually("the connections have ended", || totals().all.producers == 0);
    let after = totals();
    assert!(after.all.items_sent >= former.all.items_sent && after.all.bytes_sent >= former.all.bytes_sent);
    assert!(after.of(Kind::Search).items_sent >= 2 && after.all.items_remaining == 0);
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_durable_write_is_told_as_prepare_and_commit_to_a_consumer_that_asked_for_that() {
    let node = Node::with_disk();
    for asks in [true, false] {
        let mut consumer = wire(&node, &[Feature::Collections]);
        let extras = OpenExtras { seqno: 0, flags: OpenFlags::PRODUCER.0 }.encode();
        let mut requests =
            vec![Request { key: b"replica", extras: &extras, ..Request::new(Opcode::DcpOpen) }];
        let controls: &[&[u8]] =
            if asks { &[b"enable_noop", b"enable_sync_writes"] } else { &[b"enable_noop"] };
        let control = |key| Request { key, value: b"true", ..Request::new(Opcode::DcpControl) };
        requests.extend(controls.iter().copied().map(control));
        let extras = endless(StreamFlags::FROM_LATEST).encode();
        requests.push(Request { extras: &extras, ..Request::new(Opcode::DcpStreamReq) });
        for request in &requests {
            assert_eq!(consumer.ask(request).status, Status::Success);
        }
        let mut writer = wire(&node, &[Feature::AltRequest, Feature::SyncReplication]);
        assert!(writer.feed(&durable_set(1, None)).is_empty());
        let prepared = heard(&mut consumer, &node);
        node.flush();
        let told = [prepared, heard(&mut consumer, &node)].concat();
        let expected: &[&str] = if asks { &["prepare", "commit"] } else { &["mutation"] };
        assert_eq!(told, expected);
    }
}

/// On a node of many there are vBuckets that it does not serve, and others that have more in them.
#[test]
fn a_stream_that_has_told_everything_has_nothing_left_wherever_its_vbucket_is_in_the_list() {
    let node = Node::new();
    node.switch("travel", VbId(VB.get() - 1), false);
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut writer = logged_in(address, "Administrator", "password");
    for (vb, count) in [(VB, 3), (VbId(VB.get() + 1), 20)] {
        for _ in 0..count {
            let set = Request { vbucket: vb, key: b"\0k", extras: &[0; 8], ..Request::new(Opcode::Set) };
            assert_eq!(writer.ask(&set).status, Status::Success);
        }
    }
    let mut consumer = logged_in(address, "Administrator", "password");
    assert_eq!(open(&mut consumer, "connector"), Status::Success);
    assert_eq!(stream(&mut consumer, "").status, Status::Success);
    let mut left = |group: &str, name: &str| {
        writer.send(&encode(&Request { key: group.as_bytes(), ..Request::new(Opcode::Stat) }));
        let told = std::iter::from_fn(|| Some(writer.receive()).filter(|stat| !stat.key.is_empty()));
        told.filter(|stat| stat.key == name.as_bytes()).last().map(|stat| stat.text())
    };
    assert_eq!(left("dcp", "eq_dcpq:connector:stream_5_items_remaining").as_deref(), Some("0"));
    assert_eq!(left("dcpagg", ":total:items_remaining").as_deref(), Some("0"));
    workers.stop(Duration::from_secs(1));
}

/// What a stream says of documents.
fn heard(consumer: &mut Wire, node: &Node) -> Vec<&'static str> {
    consumer.deliver(node);
    let mut bytes = consumer.feed(b"");
    while let Some(more) = consumer.pump().filter(|more| !more.is_empty()) {
        bytes.extend(more);
    }
    let (mut rest, mut told) = (bytes.as_slice(), Vec::new());
    while let Decoded::Frame(frame) = decode_frame(rest) {
        told.extend(DcpMessage::decode(&frame).and_then(|(_, message)| match message {
            DcpMessage::Prepare { level: DurabilityLevel::PersistToMajority, .. } => Some("prepare"),
            DcpMessage::Commit { prepared, seqno, .. } if seqno > prepared => Some("commit"),
            DcpMessage::Mutation { .. } => Some("mutation"),
            _ => None,
        }));
        rest = &rest[frame.packet_len()..];
    }
    told
}

#[test]
fn a_namesake_takes_over_and_a_consumer_that_goes_leaves_nothing() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let uuid = node.bucket_uuid("travel");
    let mut first = logged_in(address, "Administrator", "password");
    assert_eq!(open(&mut first, "connector"), Status::Success);
    assert_eq!(stream(&mut first, "").status, Status::Success);
    let mut second = logged_in(address, "Administrator", "password");
    assert_eq!(open(&mut second, "connector"), Status::Success);
    assert!(first.is_closed());
    assert_eq!(stream(&mut second, "").status, Status::Success);
    assert_eq!(node.shared.dcp.of_bucket(&uuid).len(), 1);
    assert!(node.stats("travel").cursors >= 1);
    drop(second);
    eventually("nothing is left", || {
        node.shared.dcp.of_bucket(&uuid).is_empty() && node.stats("travel").cursors == 0
    });
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_namesake_takes_over_from_one_that_does_not_read() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut first = logged_in(address, "Administrator", "password");
    assert_eq!(open(&mut first, "connector"), Status::Success);
    assert_eq!(stream(&mut first, r#"{"collections":["0"]}"#).status, Status::Success);
    assert_eq!(node.stats("travel").cursors, 1);
    let mut writer = logged_in(address, "Administrator", "password");
    // More than sockets take that nobody reads.
    let value = vec![b'7'; 18 << 20];
    let set =
        Request { vbucket: VB, key: b"\0k", value: &value, extras: &[0; 8], ..Request::new(Opcode::Set) };
    assert_eq!(writer.ask(&set).status, Status::Success);
    let uuid = node.bucket_uuid("travel");
    eventually("it is on its way", || {
        let sent: u64 =
            node.shared.dcp.of_bucket(&uuid).iter().map(|stats| stats.items_sent.load(Relaxed)).sum();
        sent == 1
    });
    let mut second = logged_in(address, "Administrator", "password");
    assert_eq!(open(&mut second, "connector"), Status::Success);
    eventually("its streams are gone", || node.stats("travel").cursors == 0);
    workers.stop(Duration::from_secs(1));
}

#[test]
fn lost_rights_end_streams_and_a_dropped_bucket_ends_connections() {
    let mut node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    node.put_user("streamer", "pw", "data_dcp_reader[travel]");
    let mut consumer = logged_in(address, "streamer", "pw");
    assert_eq!(open(&mut consumer, "connector"), Status::Success);
    assert_eq!(stream(&mut consumer, r#"{"collections":["0"]}"#).status, Status::Success);
    // Some of the bucket is left, but not what is streamed.
    node.give_roles("streamer", "data_dcp_reader[travel:inventory:airline]");
    workers.notifier().config_changed();
    told(&mut consumer, |message| {
        assert_eq!(message, DcpMessage::StreamEnd(StreamEndReason::LostPrivileges));
    });
    assert_eq!(stream(&mut consumer, r#"{"collections":["0"]}"#).status, Status::UnknownCollection);
    assert_eq!(stream(&mut consumer, r#"{"uid":"0"}"#).status, Status::NoAccess);
    let mut other = logged_in(address, "Administrator", "password");
    assert_eq!(open(&mut other, "other"), Status::Success);
    let user = Command::DeleteUser { domain: UserDomain::Local, name: "streamer".into() };
    node.apply(&user);
    workers.notifier().config_changed();
    assert!(consumer.is_closed());
    node.apply(&Command::DeleteBucket { name: "travel".into() });
    workers.notifier().config_changed();
    assert!(other.is_closed());
    workers.stop(Duration::from_secs(1));
}

#[test]
fn nothing_but_open_is_for_ordinary_connections() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    let close = Request::new(Opcode::DcpCloseStream);
    assert_eq!(wire.ask(&close).status, Status::Invalid);
    wire.hello(&[Feature::UnorderedExecution]);
    assert_eq!(wire.ask(&close).status, Status::NotSupported);
}

/// Controls with values that some of them like.
const CONTROLS: [&[u8]; 12] = [
    b"connection_buffer_size",
    b"enable_noop",
    b"set_noop_interval",
    b"enable_stream_id",
    b"send_stream_end_on_client_close_stream",
    b"enable_expiry_opcode",
    b"enable_out_of_order_snapshots",
    b"max_marker_version",
    b"flatbuffers_system_events",
    b"force_value_compression",
    b"backfill_order",
    b"no_such_thing",
];
const VALUES: [&[u8]; 7] = [b"true", b"false", b"2.2", b"0", b"200", b"sequential", b"\xff"];
const FILTERS: [&[u8]; 9] = [
    b"",
    b"{}",
    br#"{"uid":"0"}"#,
    br#"{"collections":["0"]}"#,
    br#"{"collections":[]}"#,
    br#"{"collections":["77"]}"#,
    br#"{"scope":"0","sid":3}"#,
    br#"{"sid":1,"purge_seqno":"9"}"#,
    b"{\"sid\":",
];

/// Whole packets, and nothing that no producer says.
fn check(mut said: &[u8]) {
    while !said.is_empty() {
        let Decoded::Frame(frame) = decode_frame(said) else { panic!("no whole packet in {said:?}") };
        assert!(frame.header.magic.is_client_response() || DcpMessage::decode(&frame).is_some());
        said = &said[frame.packet_len()..];
    }
}

#[test]
fn made_up_requests_are_survived() {
    let node = Node::new();
    let mut streamed = 0;
    for seed in 0..60 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut wire = node.connect(ListenerKind::Kv);
        let mut writer = node.connect(ListenerKind::Kv);
        if random.bool() {
            wire.hello(&[Feature::Collections, Feature::Snappy, Feature::AltRequest]);
        }
        let flags = OpenFlags::PRODUCER.0 | *random.choice(&[0, 0x04, 0x08, 0x20, 0x40, 0x104]).unwrap();
        let open = OpenExtras { seqno: 0, flags }.encode();
        let open = Request { extras: &open, key: b"c", ..Request::new(Opcode::DcpOpen) };
        assert_eq!(wire.ask(&open).status, Status::Success);
        for _ in 0..400 {
            let vbucket = VbId(random.u16(0..3));
            let low = |random: &mut fastrand::Rng| *random.choice(&[0, 0, 0, 0, 1, 5]).unwrap();
            let high = |random: &mut fastrand::Rng| *random.choice(&[0, 9, u64::MAX]).unwrap();
            let extras = StreamRequest {
                flags: *random.choice(&[0, 0x02, 0x04, 0x10, 0x40, 0x80, 0x01, 0x1000]).unwrap(),
                reserved: 0,
                start: low(&mut random).into(),
                end: high(&mut random).into(),
                vb_uuid: low(&mut random).into(),
                snap_start: low(&mut random).into(),
                snap_end: high(&mut random).into(),
            }
            .encode();
            let mut request = match random.u8(0..8) {
                0 | 1 => Request {
                    key: random.choice(CONTROLS).unwrap(),
                    value: random.choice(VALUES).unwrap(),
                    ..Request::new(Opcode::DcpControl)
                },
                2..=4 => Request {
                    extras: &extras,
                    value: random.choice(FILTERS).unwrap(),
                    ..Request::new(Opcode::DcpStreamReq)
                },
                5 => Request::new(Opcode::DcpCloseStream),
                6 => Request { extras: &extras[..4], ..Request::new(Opcode::DcpBufferAcknowledgement) },
                _ => Request::new(Opcode::DcpGetFailoverLog),
            };
            request.vbucket = vbucket;
            request.info.stream_id = *random.choice(&[None, Some(1), Some(3)]).unwrap();
            check(&wire.feed(&encode(&request)));
            let set =
                Request { vbucket, key: b"k", value: b"{}", extras: &[0; 8], ..Request::new(Opcode::Set) };
            writer.ask(&set);
            node.backfill("default");
            wire.deliver(&node);
            match wire.pump() {
                Some(said) => {
                    check(&said);
                    streamed += said.len();
                }
                None => panic!("nobody was silent"),
            }
        }
    }
    assert!(streamed > 10_000, "{streamed}: hardly anything was granted");
}
