//! A plain memcached client of one node uses a bucket of which another node serves half.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, mpsc},
    time::Duration,
};

use base::{BucketUuid, NodeId, Status, VbId, bucket::DurabilityLevel};
use cluster::{Command, Metadata};
use engine::{BucketChange, Waiter};
use protocol::binary::{
    Decoded, Durability, Impersonate, Opcode, Request, RequestInfo, Response, decode_frame, write_response,
};

use super::{
    harness::{Client, Node, encode, options},
    made_up_peer::answer_each,
    sockets::eventually,
};
use crate::{
    ListenerKind, Workers,
    figures::phases::Phase,
    net::{node_tls::new_authority, peer::PeerAddress},
    state::{
        account::{NodeAccount, NodePool},
        asking::{Job, Lane, Peer},
        completion::Completion,
        errand::Errand,
        forwarder::Forwarder,
        mailbox::Wakes,
    },
};

pub(super) const BUCKET: &str = "cache";

/// Two nodes; the first serves the memcached port and half of the bucket, the second the other half.
struct Pair {
    first: Node,
    second: Node,
    address: SocketAddr,
    workers: [Workers; 2],
}

impl Pair {
    fn new() -> Self {
        Self::with(false)
    }

    fn with(tls: bool) -> Self {
        let (mut first, mut second) = (Node::new(), Node::new());
        for node in [&mut first, &mut second] {
            node.apply(&Command::SetSecret("between nodes".into()));
        }
        let kind = if tls { ListenerKind::KvTls } else { ListenerKind::Kv };
        let (serving, kv) = second.serve(kind, &second.tls_options());
        first.give_half_to(BUCKET, kv);
        if tls {
            let authority = new_authority().unwrap();
            first.encrypt(NodeId(0), &authority);
            second.encrypt(NodeId(1), &authority);
        }
        let (facing, address) = first.serve(ListenerKind::Memcached, &options());
        Self { first, second, address, workers: [facing, serving] }
    }

    fn stop(self) {
        self.workers.into_iter().for_each(|workers| workers.stop(Duration::from_secs(5)));
    }
}

/// Says something in the text protocol, and waits until so many bytes have come back.
fn say(socket: &mut TcpStream, words: &str, expected: &str) {
    socket.write_all(words.as_bytes()).unwrap();
    let mut answer = vec![0; expected.len()];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), expected, "{words}");
}

fn client(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// A key of an odd vBucket, which the second node has.
fn far_key(node: &Node) -> String {
    let mut keys = (0..).map(|number| format!("far {number}").replace(' ', "-"));
    keys.find(|key| node.vbucket_of(BUCKET, key.as_bytes()).get() % 2 == 1).unwrap()
}

/// A key of an even vBucket, which the first node has.
pub(super) fn near_key(node: &Node) -> String {
    let mut keys = (0..).map(|number| format!("near{number}"));
    keys.find(|key| node.vbucket_of(BUCKET, key.as_bytes()).get().is_multiple_of(2)).unwrap()
}

#[test]
fn every_text_command_reaches_the_half_that_is_elsewhere() {
    let pair = Pair::new();
    let mut socket = client(pair.address);
    for number in 0..40 {
        let key = format!("key{number}");
        say(&mut socket, &format!("set {key} 7 0 5\r\nvalue\r\n"), "STORED\r\n");
        say(&mut socket, &format!("add {key} 0 0 1\r\nx\r\n"), "NOT_STORED\r\n");
        say(&mut socket, &format!("append {key} 0 0 2\r\n++\r\n"), "STORED\r\n");
        say(&mut socket, &format!("get {key}\r\n"), &format!("VALUE {key} 7 7\r\nvalue++\r\nEND\r\n"));
        say(&mut socket, &format!("touch {key} 1000\r\n"), "TOUCHED\r\n");
        say(&mut socket, &format!("gat 1000 {key}\r\n"), &format!("VALUE {key} 7 7\r\nvalue++\r\nEND\r\n"));
        say(&mut socket, &format!("cas {key} 0 0 1 1\r\nx\r\n"), "EXISTS\r\n");
        say(&mut socket, &format!("set n{number} 0 0 2\r\n41\r\n"), "STORED\r\n");
        say(&mut socket, &format!("incr n{number} 1\r\n"), "42\r\n");
        say(&mut socket, &format!("decr n{number} 2\r\n"), "40\r\n");
        say(&mut socket, &format!("incr absent{number} 2\r\n"), "NOT_FOUND\r\n");
        say(&mut socket, &format!("delete n{number}\r\n"), "DELETED\r\n");
        say(&mut socket, &format!("get n{number}\r\n"), "END\r\n");
    }
    let (all, values): (Vec<_>, Vec<_>) = (0..40)
        .map(|number| (format!("key{number}"), format!("VALUE key{number} 7 7\r\nvalue++\r\n")))
        .unzip();
    say(&mut socket, &format!("get {}\r\n", all.join(" ")), &format!("{}END\r\n", values.concat()));
    // What says nothing comes in its turn all the same.
    say(
        &mut socket,
        "set key1 0 0 1 noreply\r\na\r\nset key2 0 0 1 noreply\r\nb\r\nget key1 key2\r\n",
        "VALUE key1 0 1\r\na\r\nVALUE key2 0 1\r\nb\r\nEND\r\n",
    );
    let here = pair.first.stats(BUCKET).curr_items;
    let there = pair.second.stats(BUCKET).curr_items;
    assert_eq!(here + there, 40);
    assert!(here > 5 && there > 5, "{here} here, {there} there");
    pair.stop();
}

#[test]
fn the_half_that_is_elsewhere_is_reached_under_tls() {
    let pair = Pair::with(true);
    let mut socket = client(pair.address);
    let long = "v".repeat(100_000);
    for number in 0..20 {
        say(&mut socket, &format!("set key{number} 0 0 100000\r\n{long}\r\n"), "STORED\r\n");
        let found = format!("VALUE key{number} 0 100000\r\n{long}\r\nEND\r\n");
        say(&mut socket, &format!("get key{number}\r\n"), &found);
    }
    assert!(pair.second.stats(BUCKET).curr_items > 5);
    pair.stop();
}

#[test]
fn a_flush_is_the_matter_of_all_nodes() {
    let pair = Pair::new();
    let wakes = pair.workers[0].notifier();
    let (heard, hears) = mpsc::channel();
    pair.first.shared.flush_with(move |bucket, uuid, waiter| {
        heard.send((bucket, uuid)).unwrap();
        wakes.complete(waiter, Completion::Done(Ok(())));
    });
    let mut socket = client(pair.address);
    say(&mut socket, "flush_all\r\nget a\r\n", "OK\r\nEND\r\n");
    let uuid = pair.first.shared.snapshot().buckets[BUCKET].uuid.clone();
    assert_eq!(hears.recv().unwrap(), (BUCKET.to_owned(), uuid));
    let mut kv = pair.first.connect(ListenerKind::Kv);
    assert_eq!(kv.ask(&Request::new(Opcode::Flush)).status, Status::NotSupported);
    pair.stop();
}

#[test]
fn binary_requests_keep_their_order_and_their_silence() {
    let pair = Pair::new();
    let mut client = Client::connect(pair.address);
    let keys: Vec<String> = (0..60).map(|number| format!("key{number}")).collect();
    let mut bytes = Vec::new();
    for (key, opaque) in keys.iter().zip(0_u32..) {
        let set = Request {
            key: key.as_bytes(),
            value: key.as_bytes(),
            extras: &[0, 0, 0, 9, 0, 0, 0, 0],
            ..Request::new(Opcode::Setq)
        };
        bytes.extend(encode(&Request { opaque: opaque.into(), ..set }));
        let get = Request { key: key.as_bytes(), ..Request::new(Opcode::Getk) };
        bytes.extend(encode(&Request { opaque: (1000 + opaque).into(), ..get }));
        let absent = Request { key: b"never stored", ..Request::new(Opcode::Getq) };
        bytes.extend(encode(&absent));
        let again =
            Request { key: key.as_bytes(), value: b"x", extras: &[0; 8], ..Request::new(Opcode::Addq) };
        bytes.extend(encode(&Request { opaque: (2000 + opaque).into(), ..again }));
    }
    client.send(&bytes);
    for (key, opaque) in keys.iter().zip(0_u32..) {
        let read = client.receive();
        assert_eq!((read.opaque, read.status), (1000 + opaque, Status::Success));
        assert_eq!(
            (read.key, read.value, read.extras),
            (key.clone().into(), key.clone().into(), vec![0, 0, 0, 9])
        );
        let refused = client.receive();
        assert_eq!((refused.opaque, refused.status), (2000 + opaque, Status::KeyExists));
        assert_eq!(refused.opcode, Opcode::Addq.code());
    }
    pair.stop();
}

/// What a node says of its bucket of that uuid, as far as other nodes ask.
pub(super) fn config_of(bucket: &str) -> Vec<u8> {
    serde_json::json!({ "uuid": bucket }).to_string().into_bytes()
}

/// A node with that bucket that answers retrievals when it has been asked for so many, not before, and
/// the last one first.
fn patient_peer(expected: usize, bucket: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let config = config_of(bucket);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (socket, config) = (socket.unwrap(), config.clone());
            std::thread::spawn(move || answer_when_asked_for(expected, &config, socket));
        }
    });
    address
}

fn answer_when_asked_for(expected: usize, config: &[u8], mut socket: TcpStream) {
    let (mut bytes, mut chunk, mut held_back) = (Vec::new(), [0; 4096], Vec::new());
    while let Ok(read @ 1..) = socket.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..read]);
        let (mut at, mut answers) = (0, Vec::new());
        while let Decoded::Frame(frame) = decode_frame(&bytes[at..]) {
            let is_get = [Opcode::Get, Opcode::Getk].map(Opcode::code).contains(&frame.header.opcode);
            let is_config = frame.header.opcode == Opcode::GetClusterConfig.code();
            let (list, extras, value): (_, &[u8], _) = match (is_get, is_config) {
                (true, _) => (&mut held_back, &[0; 4], frame.key),
                (false, true) => (&mut answers, &[], config),
                (false, false) => (&mut answers, &[], &[][..]),
            };
            let success = Response::new(Status::Success);
            let mut answer = Vec::new();
            write_response(&mut answer, &frame.header, false, &success, extras, &[], value);
            list.push(answer);
            at += frame.packet_len();
        }
        bytes.drain(..at);
        if held_back.len() >= expected {
            answers.extend(held_back.drain(..).rev());
        }
        socket.write_all(&answers.concat()).unwrap();
    }
}

#[test]
fn what_is_asked_for_together_costs_its_owner_one_round_trip() {
    const FAR: usize = 30;
    let mut node = Node::new();
    node.apply(&Command::SetSecret("between nodes".into()));
    let keys = (0..).map(|number| format!("key{number}"));
    let is_far = |key: &String| node.vbucket_of(BUCKET, key.as_bytes()).get() % 2 == 1;
    let mut left = FAR;
    // Those that are here, and are not there, stand in between.
    let keys: Vec<String> = keys
        .take_while(|key| {
            left -= usize::from(left > 0 && is_far(key));
            left > 0
        })
        .collect();
    let far: Vec<&String> = keys.iter().filter(|&key| is_far(key)).collect();
    let peer = patient_peer(far.len(), &node.bucket_uuid(BUCKET));
    node.give_half_to(BUCKET, peer);
    let (facing, address) = node.serve(ListenerKind::Memcached, &options());

    let found: String = far.iter().map(|key| format!("VALUE {key} 0 {}\r\n{key}\r\n", key.len())).collect();
    say(&mut client(address), &format!("get {}\r\n", keys.join(" ")), &format!("{found}END\r\n"));

    let mut binary = Client::connect(address);
    let getkq = |key: &String| encode(&Request { key: key.as_bytes(), ..Request::new(Opcode::Getkq) });
    let mut requests: Vec<Vec<u8>> = keys.iter().map(getkq).collect();
    requests.push(encode(&Request::new(Opcode::Noop)));
    binary.send(&requests.concat());
    for key in &far {
        let read = binary.receive();
        assert_eq!((read.opcode, read.status), (Opcode::Getkq.code(), Status::Success));
        assert_eq!((&read.key, &read.value), (&key.as_bytes().to_vec(), &key.as_bytes().to_vec()));
    }
    assert_eq!(binary.receive().opcode, Opcode::Noop.code());
    facing.stop(Duration::from_secs(5));
}

#[test]
fn nothing_is_read_before_a_change_that_stands_in_front_of_it() {
    let pair = Pair::new();
    let key = far_key(&pair.first);
    let get = Request { key: key.as_bytes(), ..Request::new(Opcode::Getq) };
    let set = Request { key: key.as_bytes(), value: b"x", extras: &[0; 8], ..Request::new(Opcode::Setq) };
    let mut client = Client::connect(pair.address);
    client.send(&[encode(&get), encode(&set), encode(&get), encode(&get)].concat());
    for _ in 0..2 {
        let read = client.receive();
        assert_eq!((read.status, read.text().as_str()), (Status::Success, "x"));
    }
    pair.stop();
}

/// A write that was to be durable would be acknowledged where it is not: its owner does not hear of them.
#[test]
fn framing_extras_are_refused_wherever_the_document_is() {
    let pair = Pair::new();
    let mut client = Client::connect(pair.address);
    let durability = Some(Durability { level: DurabilityLevel::Majority, timeout_ms: None });
    let writes = [
        RequestInfo { durability, ..RequestInfo::default() },
        RequestInfo { preserve_ttl: true, ..RequestInfo::default() },
    ];
    let impersonate = Some(Impersonate { name: b"reader", external: false });
    let of_another = RequestInfo { impersonate, ..RequestInfo::default() };
    for key in [far_key(&pair.first), near_key(&pair.first)] {
        let key = key.as_bytes();
        for info in writes {
            let set = Request { key, value: b"x", extras: &[0; 8], info, ..Request::new(Opcode::Set) };
            assert_eq!(client.ask(&set).status, Status::NotSupported, "{info:?}");
        }
        let get = Request { key, info: of_another, ..Request::new(Opcode::Get) };
        assert_eq!(client.ask(&get).status, Status::NotSupported);
    }
    assert_eq!([&pair.first, &pair.second].map(|node| node.stats(BUCKET).curr_items), [0, 0]);
    pair.stop();
}

#[test]
fn a_request_that_is_refused_leaves_no_answer_for_a_later_one() {
    let pair = Pair::new();
    let far = |key: &String| pair.first.vbucket_of(BUCKET, key.as_bytes()).get() % 2 == 1;
    let keys: Vec<String> = (0..).map(|number| format!("key{number}")).filter(far).take(2).collect();
    let mut writer = client(pair.address);
    say(&mut writer, &format!("set {} 0 0 3\r\nold\r\n", keys[1]), "STORED\r\n");
    let get = |key: &'static str| Request { key: key.as_bytes(), ..Request::new(Opcode::Get) };
    let [first, second] = [0, 1].map(|index: usize| get(String::leak(keys[index].clone())));
    // No read can be durable.
    let durability = Some(Durability { level: DurabilityLevel::Majority, timeout_ms: None });
    let refused = Request { info: RequestInfo { durability, ..RequestInfo::default() }, ..second };
    let mut reader = Client::connect(pair.address);
    reader.send(&[encode(&first), encode(&refused)].concat());
    let answers = [(); 2].map(|()| reader.receive().status);
    say(&mut writer, &format!("set {} 0 0 3\r\nnew\r\n", keys[1]), "STORED\r\n");
    assert_eq!(reader.ask(&second).text(), "new");
    assert_eq!(answers, [Status::KeyNotFound, Status::NotSupported]);
    pair.stop();
}

#[test]
fn a_request_finds_its_vbucket_when_the_map_settles() {
    let pair = Pair::new();
    let key = far_key(&pair.first);
    let vb: VbId = pair.first.vbucket_of(BUCKET, key.as_bytes());
    pair.second.switch(BUCKET, vb, false);
    let (address, words) = (pair.address, format!("set {key} 0 0 1\r\nx\r\n"));
    let (done, answered) = mpsc::channel();
    let asking = std::thread::spawn(move || {
        say(&mut client(address), &words, "STORED\r\n");
        done.send(()).unwrap();
    });
    assert!(answered.recv_timeout(Duration::from_millis(300)).is_err(), "nobody serves it yet");
    pair.second.switch(BUCKET, vb, true);
    asking.join().unwrap();
    assert_eq!(pair.second.stats(BUCKET).curr_items, 1);
    pair.stop();
}

/// Objectives go by the phase. The level is the bucket's, which one copy reaches at once.
#[test]
fn a_text_write_that_is_durable_at_once_counts_on_the_node_that_makes_it() {
    let pair = Pair::new();
    let level = BucketChange { durability_min: Some(DurabilityLevel::Majority), ..BucketChange::default() };
    for node in [&pair.first, &pair.second] {
        node.bucket(BUCKET).reconfigure(level.clone());
    }
    let counted = || [&pair.first, &pair.second].map(|node| node.in_phase(BUCKET, Phase::Durability));
    let (far, near) = (far_key(&pair.first), near_key(&pair.first));
    let mut socket = client(pair.address);
    say(&mut socket, &format!("set {near} 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(counted(), [1, 0]);
    say(&mut socket, &format!("set {far} 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(counted(), [1, 1]);
    say(
        &mut socket,
        &format!("get {near} {far}\r\n"),
        &format!("VALUE {near} 0 1\r\nx\r\nVALUE {far} 0 1\r\nx\r\nEND\r\n"),
    );
    // A write that looks for its owner, until this node is the one.
    let vb = pair.first.vbucket_of(BUCKET, far.as_bytes());
    pair.second.switch(BUCKET, vb, false);
    let (address, words) = (pair.address, format!("set {far} 0 0 1\r\ny\r\n"));
    let forwarded = pair.second.in_phase(BUCKET, Phase::Execute);
    let asking = std::thread::spawn(move || say(&mut client(address), &words, "STORED\r\n"));
    eventually("the write was forwarded", || pair.second.in_phase(BUCKET, Phase::Execute) > forwarded);
    pair.first.switch(BUCKET, vb, true);
    asking.join().unwrap();
    assert_eq!(counted(), [2, 1]);
    pair.stop();
}

#[test]
fn what_nobody_serves_is_refused_in_the_end_and_the_rest_goes_on() {
    let pair = Pair::new();
    let key = far_key(&pair.first);
    let Pair { first, workers: [facing, serving], address, .. } = pair;
    serving.stop(Duration::from_secs(5));
    let mut socket = client(address);
    say(&mut socket, &format!("get {key}\r\n"), "SERVER_ERROR");
    let mut other = client(address);
    let near = near_key(&first);
    say(&mut other, &format!("set {near} 0 0 1\r\nx\r\n"), "STORED\r\n");
    facing.stop(Duration::from_secs(5));
}

/// A node with that bucket that holds back each SET, as one that is paced does, and answers anything else at once. It tells of each
/// SET.
fn holding_peer(bucket: &str) -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (held, hears) = mpsc::channel();
    let config = config_of(bucket);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (socket, held, config) = (socket.unwrap(), held.clone(), config.clone());
            std::thread::spawn(move || {
                answer_each(socket, |frame| match Opcode::from_wire(frame.header.opcode).unwrap() {
                    Opcode::Set => {
                        held.send(()).unwrap();
                        None
                    }
                    Opcode::Get => Some((vec![0; 4], Vec::new())),
                    Opcode::GetClusterConfig => Some((Vec::new(), config.clone())),
                    _ => Some(<_>::default()),
                });
            });
        }
    });
    (address, hears)
}

/// A paced node holds back what grows memory, and nothing else waits behind that.
#[test]
fn what_its_owner_holds_back_holds_up_no_request_of_another_kind() {
    let mut node = Node::new();
    node.apply(&Command::SetSecret("between nodes".into()));
    let key = far_key(&node);
    let (peer, held) = holding_peer(&node.bucket_uuid(BUCKET));
    node.give_half_to(BUCKET, peer);
    let (facing, address) = node.serve(ListenerKind::Memcached, &options());
    // One on each link of a lane.
    let mut writers = [client(address), client(address)];
    for writer in &mut writers {
        writer.write_all(format!("set {key} 0 0 1\r\nx\r\n").as_bytes()).unwrap();
        held.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    for _ in 0..2 {
        let mut other = client(address);
        say(&mut other, &format!("get {key}\r\n"), &format!("VALUE {key} 0 0\r\n\r\nEND\r\n"));
        say(&mut other, &format!("delete {key}\r\n"), "DELETED\r\n");
    }
    for writer in &mut writers {
        writer.set_nonblocking(true).unwrap();
        assert!(writer.read(&mut [0]).is_err(), "it has been held back all the while");
    }
    facing.stop(Duration::ZERO);
}

#[test]
fn a_node_that_has_another_bucket_of_that_name_is_asked_nothing() {
    let mut pair = Pair::new();
    let key = far_key(&pair.first);
    // It has heard that the bucket was made anew, and the node that clients ask has not.
    pair.second.apply(&Command::FlushBucket { name: BUCKET.into(), uuid: BucketUuid("f".repeat(32)) });
    let mut socket = client(pair.address);
    // As many bytes as "STORED" has.
    say(&mut socket, &format!("set {key} 0 0 1\r\nx\r\n"), "SERVER_E");
    assert_eq!(pair.second.stats(BUCKET).curr_items, 0);
    pair.stop();
}

/// A node with that bucket that counts, and answers each count when it may. It tells of each.
fn counting_peer(bucket: &str) -> (SocketAddr, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, hears) = mpsc::channel();
    let (may, allowed) = mpsc::channel();
    let config = config_of(bucket);
    std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let mut counted = 0_u64;
        answer_each(socket, |frame| match Opcode::from_wire(frame.header.opcode).unwrap() {
            Opcode::GetClusterConfig => Some((Vec::new(), config.clone())),
            Opcode::Increment => {
                asked.send(()).unwrap();
                allowed.recv().unwrap();
                counted += 1;
                Some((Vec::new(), counted.to_be_bytes().to_vec()))
            }
            _ => Some(<_>::default()),
        });
    });
    (address, hears, may)
}

#[test]
fn a_request_that_is_woken_for_nothing_while_its_owner_works_is_not_carried_out_twice() {
    let mut node = Node::new();
    node.apply(&Command::SetSecret("between nodes".into()));
    let key = far_key(&node);
    let (peer, asked, may) = counting_peer(&node.bucket_uuid(BUCKET));
    node.give_half_to(BUCKET, peer);
    let (facing, address) = node.serve(ListenerKind::Memcached, &options());
    let mut socket = client(address);
    socket.write_all(format!("incr {key} 1\r\n").as_bytes()).unwrap();
    asked.recv_timeout(Duration::from_secs(20)).unwrap();
    // Ids of connections begin anew with the generation of their slot.
    for (generation, slot) in (0..4_u64).flat_map(|generation| (0..8).map(move |slot| (generation, slot))) {
        let connection = generation << 32 | slot;
        facing.notifier().wake(Waiter { worker: 0, connection, ticket: 0 });
    }
    // So long a request rests before it is tried again, many times over.
    assert!(asked.recv_timeout(Duration::from_millis(300)).is_err());
    (0..3).for_each(|_| may.send(()).unwrap());
    say(&mut socket, "", "1\r\n");
    say(&mut socket, &format!("incr {key} 1\r\n"), "2\r\n");
    facing.stop(Duration::from_secs(5));
}

/// Each link is a thread and a connection.
#[test]
fn links_for_buckets_and_nodes_that_are_gone_end_with_the_next_that_is_made() {
    let node = Node::new();
    let all = Arc::clone(&node.shared.snapshot().metadata);
    let forwarder = Forwarder::default();
    forwarder.reach(Wakes::default(), Arc::default());
    let ask = |bucket: &str, metadata: &Metadata| {
        for connection in 0..4 {
            let info = &all.nodes[0];
            let address = PeerAddress { node: info.id, host: "127.0.0.1".into(), kv_port: 1, tls: false };
            let waiter = Waiter { worker: 0, connection, ticket: 0 };
            let asked = Errand::new().asked_by(waiter);
            let job = Job::one(asked, Lane::Other, Vec::new(), &node.shared.account);
            let peer = Peer {
                address,
                bucket: bucket.to_owned(),
                bucket_uuid: all.buckets[bucket].uuid.clone(),
                uuid: info.uuid.clone(),
                secret: String::new(),
            };
            forwarder.submit(peer, connection, job, metadata).unwrap();
        }
        forwarder.links()
    };
    let of = |names: &[&str]| {
        let mut metadata = Metadata::clone(&all);
        metadata.buckets.retain(|name, _| names.contains(&&**name));
        metadata
    };
    assert_eq!(ask("cache", &of(&["cache"])), 2);
    assert_eq!(ask("travel", &of(&["cache", "travel"])), 4, "both are there");
    assert_eq!(ask("secret", &of(&["secret"])), 2, "the others were dropped");
    let mut anew = of(&["secret", "cache"]);
    anew.buckets.get_mut("secret").unwrap().uuid = BucketUuid("anew".into());
    assert_eq!(ask("cache", &anew), 2, "the other one is not that bucket any more");
}

/// A client can leave large requests behind for a peer that takes its time, and go.
#[test]
fn what_waits_for_peers_is_bounded() {
    const REQUEST_BYTES: usize = 16 << 20;
    let (node, account) = (Node::new(), Arc::<NodeAccount>::default());
    let metadata = Arc::clone(&node.shared.snapshot().metadata);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let kv_port = silent.local_addr().unwrap().port();
    let forwarder = Forwarder::default();
    forwarder.reach(Wakes::default(), Arc::default());
    let is_taken = |_: &i32| {
        let info = &metadata.nodes[0];
        let address = PeerAddress { node: info.id, host: "127.0.0.1".into(), kv_port, tls: false };
        let waiter = Waiter { worker: 0, connection: 1, ticket: 0 };
        let asked = Errand::new().asked_by(waiter);
        let job = Job::one(asked, Lane::Waiting, vec![0; REQUEST_BYTES], &account);
        let peer = Peer {
            address,
            bucket: BUCKET.to_owned(),
            bucket_uuid: metadata.buckets[BUCKET].uuid.clone(),
            uuid: info.uuid.clone(),
            secret: String::new(),
        };
        forwarder.submit(peer, 1, job, &metadata).is_ok()
    };
    assert_eq!((0..20).filter(is_taken).count(), 8, "128 MiB");
    let held = account.of(NodePool::Forwarding);
    assert_eq!(held, 8 * REQUEST_BYTES as u64, "what is refused is given back");
}
