//! Answers of another node that come late, that nobody waits for, or that wait themselves.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, mpsc},
    time::Duration,
};

use base::{DocKey, HashedKey, VbId};
use cluster::Command;
use engine::Store;
use protocol::binary::Opcode;

use super::{
    forward::{BUCKET, config_of},
    harness::{Node, Wire},
    made_up_peer::answer_each,
    sockets::eventually,
};
use crate::{
    ListenerKind, Wakes,
    loops::worker::Worker,
    state::mailbox::{Mail, Mailbox},
    statistics::node_memory::node_memory,
};

/// A test that waits for longer has failed.
const HANGS: Duration = Duration::from_secs(20);

/// A node with that bucket that tells of each request for a document, and answers it when it may.
struct ObedientPeer {
    address: SocketAddr,
    asked: mpsc::Receiver<String>,
    may: mpsc::Sender<()>,
}

impl ObedientPeer {
    fn new(bucket: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ((tells, asked), (may, allowed)) = (mpsc::channel(), mpsc::channel());
        let config = config_of(bucket);
        std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            answer_each(socket, |frame| {
                let key = String::from_utf8_lossy(frame.key).into_owned();
                let opcode = Opcode::from_wire(frame.header.opcode).unwrap();
                let answer = match opcode {
                    Opcode::GetClusterConfig => (Vec::new(), config.clone()),
                    Opcode::Get => (vec![0; 4], format!("of {key}").into_bytes()),
                    Opcode::Increment => (Vec::new(), 7_u64.to_be_bytes().to_vec()),
                    _ => <_>::default(),
                };
                if opcode.has_document_key() {
                    // The test may be over.
                    tells.send(key).ok()?;
                    allowed.recv().ok()?;
                }
                Some(answer)
            });
        });
        Self { address, asked, may }
    }

    /// Waits for the next request; its key.
    fn next(&self) -> String {
        self.asked.recv_timeout(HANGS).unwrap()
    }

    fn let_answer(&self) {
        self.may.send(()).unwrap();
    }
}

/// A node whose connections have no loop, and a peer with half of the bucket.
struct World {
    node: Node,
    peer: ObedientPeer,
    mailbox: Arc<Mailbox>,
}

impl World {
    fn new() -> Self {
        let mut node = Node::new();
        node.apply(&Command::SetSecret("between nodes".into()));
        let peer = ObedientPeer::new(&node.bucket_uuid(BUCKET));
        node.give_half_to(BUCKET, peer.address);
        let (_, mailbox) = Worker::make_poll().unwrap();
        let wakes = Wakes::new(Arc::new([Arc::clone(&mailbox)]));
        node.shared.forward.reach(wakes, Arc::clone(&node.shared.node_tls));
        Self { node, peer, mailbox }
    }

    fn connect(&self) -> Wire {
        self.node.connect(ListenerKind::Memcached)
    }

    fn vb(&self, key: &str) -> VbId {
        self.node.vbucket_of(BUCKET, key.as_bytes())
    }

    /// So many keys that the peer has, each of another vBucket.
    fn far_keys(&self, count: usize) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        for key in (0..).map(|number| format!("far{number}")) {
            if keys.len() == count {
                break;
            }
            let vb = self.vb(&key);
            if vb.get() % 2 == 1 && keys.iter().all(|other| self.vb(other) != vb) {
                keys.push(key);
            }
        }
        keys
    }

    /// Waits for an answer, and delivers it.
    fn deliver(&self, wire: &mut Wire) {
        let mut mail = Mail::default();
        eventually("an answer comes", || {
            self.mailbox.collect(&mut mail);
            !mail.completions.is_empty()
        });
        assert_eq!(mail.completions.len(), 1);
        for (waiter, completion) in mail.completions {
            wire.connection.complete(waiter.ticket, completion);
        }
    }
}

/// Serves a vBucket here, with that document.
fn serve_here(world: &World, key: &str, value: &str) {
    world.node.switch(BUCKET, world.vb(key), true);
    let encoded = [b"\0", key.as_bytes()].concat();
    let hashed = HashedKey::new(DocKey::trusted(&encoded));
    let store = Store::set(value.as_bytes());
    world.node.bucket(BUCKET).store(world.vb(key), hashed, &store, world.node.shared.now()).unwrap();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_late_answer_is_not_taken_for_that_of_the_key_behind_it() {
    let world = World::new();
    let [first, second] = world.far_keys(2).try_into().unwrap();
    let mut wire = world.connect();
    assert_eq!(text(&wire.feed(format!("get {first} {second}\r\n").as_bytes())), "");
    assert_eq!(world.peer.next(), first);
    // It takes too long, and the vBucket has come here meanwhile.
    wire.time_out_all();
    serve_here(&world, &first, "here");
    assert_eq!(text(&wire.feed(b"")), format!("VALUE {first} 0 4\r\nhere\r\n"));
    // Now the answers come to what was asked for before.
    world.peer.let_answer();
    assert_eq!(world.peer.next(), second);
    world.peer.let_answer();
    world.deliver(&mut wire);
    assert_eq!(text(&wire.feed(b"")), "", "nobody waits for that answer any more");
    // And the answer to what is asked for now.
    assert_eq!(world.peer.next(), second);
    world.peer.let_answer();
    world.deliver(&mut wire);
    let length = format!("of {second}").len();
    assert_eq!(text(&wire.feed(b"")), format!("VALUE {second} 0 {length}\r\nof {second}\r\nEND\r\n"));
}

/// Its client may have written something else since.
#[test]
fn a_change_whose_client_was_told_that_it_failed_is_not_made_afterwards() {
    let world = World::new();
    let keys = world.far_keys(4);
    let [mut busy, mut late, mut gone, mut patient] = [(); 4].map(|()| world.connect());
    let count = |wire: &mut Wire, key: &str| text(&wire.feed(format!("incr {key} 1\r\n").as_bytes()));
    assert_eq!(count(&mut busy, &keys[0]), "");
    assert_eq!(world.peer.next(), keys[0]);
    // These wait for the link.
    assert_eq!(count(&mut late, &keys[1]), "");
    assert_eq!(count(&mut gone, &keys[2]), "");
    assert_eq!(count(&mut patient, &keys[3]), "");
    late.time_out_all();
    assert_eq!(text(&late.feed(b"")), "SERVER_ERROR Temporary failure\r\n");
    drop(gone);
    world.peer.let_answer();
    assert_eq!(world.peer.next(), keys[3], "nothing else is asked for before");
    // That is with the peer, so that nobody knows.
    patient.time_out_all();
    assert_ne!(text(&patient.feed(b"")), "SERVER_ERROR Temporary failure\r\n");
    world.peer.let_answer();
}

/// A client that takes nothing keeps them from their turn.
#[test]
fn answers_count_while_they_wait_for_their_turn() {
    let world = World::new();
    let [first, second] = world.far_keys(2).try_into().unwrap();
    let mut wire = world.connect();
    let command = format!("get {first} {second}\r\n");
    assert_eq!(text(&wire.feed(command.as_bytes())), "");
    let forwarding = || node_memory(&world.node.shared).forwarding;
    for key in [&first, &second] {
        assert_eq!(world.peer.next(), *key);
        world.peer.let_answer();
    }
    world.deliver(&mut wire);
    // Header, flags and value.
    let answer = 24 + 4 + format!("of {first}").len();
    assert_eq!(wire.connection.parked_bytes(), command.len() + answer);
    eventually("the requests are not on their way any more", || {
        forwarding() == (second.len() + answer) as u64
    });
    wire.feed(b"");
    assert_eq!((wire.connection.parked_bytes(), forwarding()), (0, 0));
}
