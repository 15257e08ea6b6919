//! Whole loops over loopback, with requests as they arrive in reality: in pieces, and in heaps. They come from
//! clients that do not read, do not finish, or come in crowds.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use base::Status;
use cluster::Command;
use protocol::{
    binary::{Opcode, Request},
    sasl::plain::Plain,
};

use super::harness::{Client, Node, encode, options};
use crate::{AuditEvent, ListenerKind, WorkerOptions};

fn get(key: &[u8]) -> Request<'_> {
    Request { key, ..Request::new(Opcode::Get) }
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request { key, value, extras: &[0; 8], ..Request::new(Opcode::Set) }
}

/// Waits until something holds; time is a test's enemy, so it is generous.
pub(super) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_pipeline_is_answered_in_order_whatever_its_pieces() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut client = Client::connect(address);
    let mut bytes = Vec::new();
    for index in 0..2000_u32 {
        let key = format!("key {}", index % 50);
        let value = vec![b'v'; (index % 700) as usize];
        let request = if index % 3 == 0 { set(key.as_bytes(), &value) } else { get(key.as_bytes()) };
        bytes.extend(encode(&Request { opaque: index.into(), ..request }));
    }
    let mut sender = client.socket.try_clone().unwrap();
    let thread = std::thread::spawn(move || {
        let mut random = fastrand::Rng::with_seed(1);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at(random.usize(1..=rest.len().min(9000)));
            sender.write_all(piece).unwrap();
            rest = tail;
        }
    });
    for index in 0..2000 {
        assert_eq!(client.receive().opaque, index);
    }
    thread.join().unwrap();
    workers.stop(Duration::from_secs(1));
    assert!(client.is_closed());
}

#[test]
fn values_larger_than_every_buffer_go_both_ways() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut client = Client::connect(address);
    let mut random = fastrand::Rng::with_seed(2);
    for size in [15_000, 64 * 1024, 300_000, 5_000_000, 20 * 1024 * 1024] {
        let value: Vec<u8> = (0..size).map(|_| random.u8(..)).collect();
        assert_eq!(client.ask(&set(b"big", &value)).status, Status::Success, "{size}");
        assert!(client.ask(&get(b"big")).value == value, "{size}");
    }
    let oversized = vec![0; 20 * 1024 * 1024 + 1];
    assert_eq!(client.ask(&set(b"big", &oversized)).status, Status::TooBig);
    assert_eq!(client.ask(&get(b"big")).value.len(), 20 * 1024 * 1024);
    workers.stop(Duration::from_secs(1));
}

/// More documents than one turn sends by reference, in one answer of each kind that has many.
#[test]
fn a_hundred_large_values_come_in_one_answer() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Memcached, &options());
    let mut client = Client::connect(address);
    let value = vec![b'v'; 40_000];
    let keys: Vec<String> = (0..100).map(|n| format!("key{n}")).collect();
    for key in &keys {
        assert_eq!(client.ask(&set(key.as_bytes(), &value)).status, Status::Success);
    }
    client.send(&keys.iter().flat_map(|key| encode(&get(key.as_bytes()))).collect::<Vec<u8>>());
    keys.iter().for_each(|_| assert_eq!(client.receive().value.len(), value.len()));
    let mut text = TcpStream::connect(address).unwrap();
    text.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    text.write_all(format!("get {}\r\n", keys.join(" ")).as_bytes()).unwrap();
    let heads: usize = keys.iter().map(|key| format!("VALUE {key} 0 40000\r\n\r\n").len()).sum();
    let mut answer = vec![0; heads + keys.len() * value.len() + b"END\r\n".len()];
    text.read_exact(&mut answer).unwrap();
    assert!(answer.ends_with(b"\r\nEND\r\n"));
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_frame_beyond_the_limit_ends_its_connection_and_no_other() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut other = Client::connect(address);
    let mut client = Client::connect(address);
    let mut header = encode(&Request::new(Opcode::Set));
    header[8..12].copy_from_slice(&(30 * 1024 * 1024 + 1_u32).to_be_bytes());
    client.send(&header);
    assert!(client.is_closed());
    let mut garbage = Client::connect(address);
    garbage.send(b"GET / HTTP/1.1\r\n\r\n");
    assert!(garbage.is_closed());
    assert_eq!(other.ask(&get(b"k")).status, Status::KeyNotFound);
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_client_that_does_not_read_is_bounded_and_closed_in_the_end() {
    let node = Node::new();
    let options = WorkerOptions { stall_timeout: Duration::from_millis(300), ..options() };
    let (workers, address) = node.serve(ListenerKind::Kv, &options);
    let mut other = Client::connect(address);
    let value = vec![b'v'; 1_000_000];
    assert_eq!(other.ask(&set(b"k", &value)).status, Status::Success);
    let slow = TcpStream::connect(address).unwrap();
    slow.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let request = encode(&get(b"k"));
    // Far more than every buffer on the way: the server stops reading, so sending fails sooner or later.
    let many: Vec<u8> = request.iter().copied().cycle().take(request.len() * 500_000).collect();
    let sent = (&slow).write_all(&many);
    assert!(sent.is_err(), "the server kept reading");
    for _ in 0..100 {
        assert_eq!(other.ask(&get(b"k")).value.len(), value.len(), "others are served meanwhile");
    }
    eventually("the slow client is closed", || {
        node.shared.totals.connections.load(std::sync::atomic::Ordering::Relaxed) == 1
    });
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_slow_reader_gets_everything_in_the_end() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut client = Client::connect(address);
    let small = vec![b's'; 3000];
    let large: Vec<u8> = (0..200_000_u32).map(|index| (index % 253) as u8).collect();
    client.ask(&set(b"small", &small));
    client.ask(&set(b"large", &large));
    let mut bytes = Vec::new();
    for index in 0..400_u32 {
        let key: &[u8] = if index % 2 == 0 { b"small" } else { b"large" };
        bytes.extend(encode(&Request { opaque: index.into(), ..get(key) }));
    }
    client.send(&bytes);
    std::thread::sleep(Duration::from_millis(200));
    for index in 0..400 {
        let reply = client.receive();
        assert_eq!(reply.opaque, index);
        assert!(reply.value == if index % 2 == 0 { &small[..] } else { &large[..] });
    }
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_client_that_stopped_sending_still_gets_its_answers() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut client = Client::connect(address);
    let many: Vec<u8> =
        (0..1000_u32).flat_map(|opaque| encode(&Request { opaque: opaque.into(), ..get(b"k") })).collect();
    client.send(&many);
    client.socket.shutdown(Shutdown::Write).unwrap();
    for index in 0..1000 {
        assert_eq!(client.receive().opaque, index);
    }
    assert!(client.is_closed());
    // Half a request, and gone.
    let mut half = Client::connect(address);
    half.send(&encode(&get(b"k"))[..10]);
    half.socket.shutdown(Shutdown::Write).unwrap();
    assert!(half.is_closed());
    eventually("both are forgotten", || {
        node.shared.totals.connections.load(std::sync::atomic::Ordering::Relaxed) == 0
    });
    workers.stop(Duration::from_secs(1));
}

fn login(message: &[u8]) -> Vec<u8> {
    encode(&Request { key: b"PLAIN", value: message, ..Request::new(Opcode::SaslAuth) })
}

fn log_in(client: &mut Client) -> Status {
    client.send(&login(&Plain::encode("Administrator", b"password")));
    client.receive().status
}

/// A client that has logged in before the server has closed it.
fn early_user(address: SocketAddr) -> Client {
    loop {
        let mut client = Client::connect(address);
        client.send(&login(&Plain::encode("Administrator", b"password")));
        if client.answers() && client.receive().status == Status::Success {
            return client;
        }
    }
}

#[test]
fn a_crowd_without_logins_leaves_places_for_others_and_room_is_made_by_leaving() {
    let node = Node::new();
    let options = WorkerOptions { workers: 2, connections_max: 40, ..options() };
    let (workers, address) = node.serve(ListenerKind::Kv, &options);
    let greet =
        |client: &mut Client| assert_eq!(client.ask(&Request::new(Opcode::Noop)).status, Status::Success);
    let mut inside = Vec::new();
    for _ in 0..30 {
        let mut client = Client::connect(address);
        greet(&mut client);
        inside.push(client);
    }
    // Three quarters of the places are all that people without a login have: one has to go, as a rule the last.
    let mut one_more = Client::connect(address);
    greet(&mut one_more);
    let open = || node.shared.totals.connections.load(std::sync::atomic::Ordering::Relaxed);
    eventually("one of them is closed", || open() == 30);
    let mut administrator = Client::connect(address);
    assert_eq!(log_in(&mut administrator), Status::Success);
    inside.truncate(20);
    eventually("there is room", || {
        let mut client = Client::connect(address);
        greet(&mut client);
        client.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        !client.is_closed()
    });
    workers.stop(Duration::from_secs(1));
}

#[test]
fn silent_connections_never_keep_a_login_out() {
    let node = Node::new();
    let options = WorkerOptions { workers: 2, connections_max: 40, ..options() };
    let (workers, address) = node.serve(ListenerKind::Kv, &options);
    let mut member = Client::connect(address);
    assert_eq!(log_in(&mut member), Status::Success);
    let mut silent: Vec<Client> = (0..300).map(|_| Client::connect(address)).collect();
    let open = || node.shared.totals.connections.load(std::sync::atomic::Ordering::Relaxed);
    for client in &silent {
        client.socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    }
    // The login waits for the crowd. While the loops are behind with closing connections, the acceptor closes a newcomer at once.
    eventually("an address has a quarter of the places for strangers", || {
        silent.iter_mut().map(|client| usize::from(client.is_closed())).sum::<usize>() >= 290
            && open() <= 1 + 10
    });
    let mut late = Client::connect(address);
    assert_eq!(log_in(&mut late), Status::Success);
    assert_eq!(member.ask(&Request::new(Opcode::Noop)).status, Status::Success);
    eventually("an address has a quarter of the places for strangers", || open() <= 2 + 10);
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_login_that_does_not_come_is_not_waited_for() {
    let mut node = Node::new();
    node.apply(&Command::DeleteBucket { name: "default".into() });
    // A client on a busy machine logs in, or says something, within that time.
    let options = WorkerOptions { login_timeout: Duration::from_secs(1), ..options() };
    let (workers, address) = node.serve(ListenerKind::Kv, &options);
    let mut user = Client::connect(address);
    assert_eq!(log_in(&mut user), Status::Success);
    let mut talker = Client::connect(address);
    assert_eq!(talker.ask(&Request::new(Opcode::Noop)).status, Status::Success);
    assert!(Client::connect(address).is_closed());
    assert!(talker.is_closed(), "what needs no login gives no place for good");
    assert_eq!(user.ask(&Request::new(Opcode::Noop)).status, Status::Success);
    workers.stop(Duration::from_secs(1));
}

/// A loop reads several connections before it executes the first of them. What one of them sent is executed for none of the others, also
/// where one that was to be read is closed meanwhile.
#[test]
fn connections_that_are_closed_mix_up_nobody() {
    let mut node = Node::new();
    node.apply(&Command::DeleteBucket { name: "default".into() });
    let login_timeout = Duration::from_millis(50);
    let (workers, address) = node.serve(ListenerKind::Kv, &WorkerOptions { login_timeout, ..options() });
    let until = Instant::now() + Duration::from_secs(2);
    let noop = |opaque: u32| encode(&Request { opaque: opaque.into(), ..Request::new(Opcode::Noop) });
    let strangers: Vec<_> = (0..6)
        .map(|_| {
            std::thread::spawn(move || {
                while Instant::now() < until {
                    let mut stranger = TcpStream::connect(address).unwrap();
                    let mut answer = [0; 24];
                    while stranger.write_all(&noop(1)).and_then(|()| stranger.read_exact(&mut answer)).is_ok()
                    {
                    }
                }
            })
        })
        .collect();
    let mut clients = [(); 3].map(|()| early_user(address));
    let mut opaque = 1;
    while Instant::now() < until {
        for client in &mut clients {
            opaque += 1;
            client.send(&noop(opaque));
        }
        for (at, client) in (opaque - 2..).zip(&mut clients) {
            assert_eq!(client.receive().opaque, at, "what somebody else asked was answered");
        }
    }
    strangers.into_iter().for_each(|stranger| stranger.join().unwrap());
    workers.stop(Duration::from_secs(1));
}

#[test]
fn connections_come_and_go_by_the_thousand() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &WorkerOptions { workers: 2, ..options() });
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..300 {
                    let mut client = Client::connect(address);
                    assert_eq!(client.ask(&Request::new(Opcode::Noop)).status, Status::Success);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let totals = &node.shared.totals;
    assert_eq!(totals.connections_total.load(std::sync::atomic::Ordering::Relaxed), 1200);
    eventually("all are forgotten", || totals.connections.load(std::sync::atomic::Ordering::Relaxed) == 0);
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_plain_password_is_checked_elsewhere_while_what_follows_waits() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    for round in 0..2 {
        let mut client = Client::connect(address);
        let message = Plain::encode("Administrator", b"password");
        let auth =
            Request { key: b"PLAIN", value: &message, opaque: 1.into(), ..Request::new(Opcode::SaslAuth) };
        let select = Request { key: b"travel", opaque: 2.into(), ..Request::new(Opcode::SelectBucket) };
        client.send(&[encode(&auth), encode(&select), encode(&set(b"k", b"v"))].concat());
        for opaque in [1, 2, 0] {
            let reply = client.receive();
            assert_eq!((reply.status, reply.opaque), (Status::Success, opaque), "round {round}");
        }
    }
    let mut client = Client::connect(address);
    for (user, password) in [("Administrator", "wrong"), ("nobody", "password"), ("", "")] {
        let message = Plain::encode(user, password.as_bytes());
        let auth = Request { key: b"PLAIN", value: &message, ..Request::new(Opcode::SaslAuth) };
        assert_eq!(client.ask(&auth).status, Status::AuthError);
    }
    let failed = |event: &&AuditEvent| matches!(event, AuditEvent::LoginFailed(_));
    assert_eq!(node.audit.lock().unwrap().iter().filter(failed).count(), 3);
    workers.stop(Duration::from_secs(1));
}

#[test]
fn guessing_passwords_gets_slow_and_ends_connections() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let guess = |client: &mut Client, user: &str, password: &str| {
        let message = Plain::encode(user, password.as_bytes());
        client.ask(&Request { key: b"PLAIN", value: &message, ..Request::new(Opcode::SaslAuth) }).status
    };
    let mut client = Client::connect(address);
    let answers: Vec<Status> = (0..5).map(|_| guess(&mut client, "Administrator", "wrong")).collect();
    assert_eq!(answers, [Status::AuthError; 5]);
    assert!(client.is_closed(), "five are enough for one connection");
    let mut client = Client::connect(address);
    let answers: Vec<Status> = (0..4).map(|_| guess(&mut client, "Administrator", "wrong")).collect();
    assert!(answers.contains(&Status::TemporaryFailure), "{answers:?}");
    assert_eq!(guess(&mut client, "Administrator", "password"), Status::TemporaryFailure, "no oracle");
    assert_eq!(guess(&mut client, "somebody", "wrong"), Status::AuthError, "another user's is checked");
    eventually("the time of refusals is over", || {
        guess(&mut Client::connect(address), "Administrator", "password") == Status::Success
    });
    workers.stop(Duration::from_secs(1));
}

#[test]
fn wrong_secrets_of_nodes_count_for_their_address_and_the_right_one_always_passes() {
    let mut node = Node::new();
    node.apply(&Command::SetSecret("between nodes".into()));
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let log_in = |client: &mut Client, user: &str, password: &str| {
        let message = Plain::encode(user, password.as_bytes());
        client.ask(&Request { key: b"PLAIN", value: &message, ..Request::new(Opcode::SaslAuth) }).status
    };
    for _ in 0..12 {
        let mut client = Client::connect(address);
        let answers: Vec<Status> = (0..5).map(|_| log_in(&mut client, "@settee", "wrong")).collect();
        assert_eq!(answers, [Status::AuthError; 5]);
        assert!(client.is_closed());
    }
    let mut client = Client::connect(address);
    assert_eq!(log_in(&mut client, "stranger", "wrong"), Status::TemporaryFailure, "the address guesses");
    assert_eq!(log_in(&mut client, "@settee", "between nodes"), Status::Success);
    workers.stop(Duration::from_secs(1));
}

#[test]
fn logins_before_a_node_has_users_are_not_held_against_its_clients() {
    let mut node = Node::new();
    node.forget_its_cluster();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    for _ in 0..20 {
        let message = Plain::encode("newcomer", b"password");
        let auth = Request { key: b"PLAIN", value: &message, ..Request::new(Opcode::SaslAuth) };
        assert_eq!(Client::connect(address).ask(&auth).status, Status::AuthError);
    }
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_flush_empties_the_bucket_and_answers_when_it_is_done() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut client = Client::connect(address);
    client.ask(&set(b"k", b"v"));
    client.send(
        &[encode(&Request::new(Opcode::Flush)), encode(&Request { opaque: 5.into(), ..get(b"k") })].concat(),
    );
    assert_eq!(client.receive().status, Status::Success);
    let read = client.receive();
    assert_eq!((read.opaque, read.status), (5, Status::KeyNotFound));
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_dropped_bucket_closes_its_connections_and_a_stop_closes_all() {
    let mut node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut client = Client::connect(address);
    assert_eq!(client.ask(&get(b"k")).status, Status::KeyNotFound);
    node.apply(&Command::DeleteBucket { name: "default".into() });
    workers.notifier().config_changed();
    assert!(client.is_closed());
    let mut client = Client::connect(address);
    assert_eq!(client.ask(&Request::new(Opcode::Noop)).status, Status::Success);
    workers.stop(Duration::from_secs(5));
    assert!(client.is_closed());
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[test]
fn the_text_port_serves_a_pipeline() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Memcached, &options());
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut words = String::new();
    let mut expected = String::new();
    for index in 0..3000 {
        words += &format!("set k{index} 0 0 5\r\n{index:05}\r\nget k{index}\r\n");
        expected += &format!("STORED\r\nVALUE k{index} 0 5\r\n{index:05}\r\nEND\r\n");
    }
    let mut sender = socket.try_clone().unwrap();
    let thread = std::thread::spawn(move || sender.write_all(words.as_bytes()).unwrap());
    let mut answer = vec![0; expected.len()];
    socket.read_exact(&mut answer).unwrap();
    thread.join().unwrap();
    assert!(answer == expected.as_bytes());
    workers.stop(Duration::from_secs(1));
}

/// The answer to a flush relies on it: a loop in the middle of a turn still writes to the former bucket.
#[test]
fn nothing_reaches_a_replaced_bucket_once_all_loops_follow() {
    let mut node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Memcached, &options());
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let stop = std::sync::Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                let many: Vec<u8> =
                    (0..200).flat_map(|n| encode(&set(format!("k{n}").as_bytes(), b"v"))).collect();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    client.send(&many);
                    (0..200).for_each(|_| drop(client.receive()));
                }
            })
        })
        .collect();
    let wakes = workers.notifier();
    let changes = |bucket: &engine::Bucket| {
        let high = |vb| bucket.vb_state(base::VbId(vb)).unwrap().high_seqno.0;
        (0..bucket.vbuckets()).map(high).sum::<u64>()
    };
    let mut written = 0;
    for round in 0..100 {
        let old = node.bucket("cache");
        let uuid = base::BucketUuid(format!("{:032x}", 1000 + round));
        node.apply(&Command::FlushBucket { name: "cache".into(), uuid });
        let generation = node.shared.generation();
        wakes.config_changed();
        eventually("the loops follow", || wakes.all_follow(generation));
        let then = changes(&old);
        eventually("clients go on", || changes(&node.bucket("cache")) > 0);
        assert_eq!(changes(&old), then, "round {round}: something was written that nobody will find");
        written += then;
    }
    assert!(written > 0);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    workers.stop(Duration::from_secs(1));
}
