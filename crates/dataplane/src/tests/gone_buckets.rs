//! Clients that do not read what they were answered of a bucket that is gone meanwhile. For as long as a connection holds a bucket, its
//! memory and its files stay.

use std::{
    io::Read,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use base::{BucketUuid, Status};
use cluster::Command;
use protocol::{
    binary::{Opcode, Request},
    sasl::plain::Plain,
};

use super::{
    harness::{Client, Node, encode, options},
    logins::log_in,
    sockets::eventually,
};
use crate::{ListenerKind, WorkerOptions};

/// More than the sockets' buffers take.
const LARGE: usize = 20 << 20;

fn get(key: &[u8]) -> Vec<u8> {
    encode(&Request { key, ..Request::new(Opcode::Get) })
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request { key, value, extras: &[0; 8], ..Request::new(Opcode::Set) }
}

/// Stores a large document and asks for it; once some of it has come, the rest is left where it is.
fn leave_an_answer(client: &mut Client) {
    assert_eq!(client.ask(&set(b"large", &vec![7; LARGE])).status, Status::Success);
    client.send(&get(b"large"));
    client.socket.read_exact(&mut [0; 24]).unwrap();
}

/// Has a client of that port leave an answer, and the bucket go then. `also` is what the client does with the rest.
fn goes(kind: ListenerKind, bucket: &str, prepare: impl Fn(&mut Client), mut also: impl FnMut(&mut Client)) {
    let mut node = Node::new();
    // A client that takes nothing may do so for longer than the test waits.
    let options = WorkerOptions {
        stall_timeout: Duration::from_secs(3600),
        gone_timeout: Duration::from_millis(200),
        ..options()
    };
    let (workers, address) = node.serve(kind, &options);
    let mut client = Client::connect(address);
    prepare(&mut client);
    leave_an_answer(&mut client);
    let engine = Arc::downgrade(&node.bucket(bucket));
    let command = match kind {
        ListenerKind::Memcached => {
            Command::FlushBucket { name: bucket.into(), uuid: BucketUuid("f".repeat(32)) }
        }
        _ => Command::DeleteBucket { name: bucket.into() },
    };
    node.apply(&command);
    workers.notifier().config_changed();
    eventually("nobody holds the bucket", || {
        also(&mut client);
        engine.strong_count() == 0
    });
    eventually("the connection is closed", || node.shared.totals.connections.load(Ordering::Relaxed) == 0);
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_client_that_does_not_read_lets_go_of_a_bucket_that_is_dropped() {
    goes(ListenerKind::Kv, "default", |_| {}, |_| {});
}

#[test]
fn a_client_that_does_not_read_lets_go_of_a_bucket_that_is_emptied() {
    goes(ListenerKind::Memcached, "cache", |_| {}, |_| {});
}

#[test]
fn a_client_that_reads_a_little_now_and_then_does_not_hold_it_for_longer() {
    let read_a_little = |client: &mut Client| {
        let _ = client.socket.read(&mut [0; 512]);
    };
    goes(ListenerKind::Memcached, "cache", |_| {}, read_a_little);
}

/// Such a connection may be silent for minutes as a rule.
#[test]
fn a_consumer_of_streams_that_does_not_read_lets_go_of_it_as_well() {
    let open = |client: &mut Client| {
        let message = Plain::encode("Administrator", b"password");
        let auth = Request { key: b"PLAIN", value: &message, ..Request::new(Opcode::SaslAuth) };
        let select = Request { key: b"travel", ..Request::new(Opcode::SelectBucket) };
        // A producer.
        let extras = &[0, 0, 0, 0, 0, 0, 0, 1];
        let open = Request { key: b"slow", extras, ..Request::new(Opcode::DcpOpen) };
        for request in [auth, select, open] {
            assert_eq!(client.ask(&request).status, Status::Success, "{request:?}");
        }
    };
    goes(ListenerKind::Kv, "travel", open, |_| {});
}

#[test]
fn a_client_whose_bucket_is_there_has_the_time_that_it_takes() {
    let mut node = Node::new();
    let options = WorkerOptions { gone_timeout: Duration::ZERO, ..options() };
    let (workers, address) = node.serve(ListenerKind::Memcached, &options);
    let mut client = Client::connect(address);
    leave_an_answer(&mut client);
    // Another one goes, and each loop looks again a second later at the most.
    node.apply(&Command::DeleteBucket { name: "secret".into() });
    workers.notifier().config_changed();
    let mut other = Client::connect(address);
    other.socket.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    assert!(!other.is_closed());
    let mut rest = vec![0; 4 + LARGE];
    client.socket.read_exact(&mut rest).unwrap();
    assert!(rest.ends_with(&[7; 16]));
    workers.stop(Duration::from_secs(1));
}

/// Which bucket an answer is from is known by the bucket that its connection is at.
#[test]
fn what_was_answered_of_a_bucket_is_copied_before_its_connection_goes_to_another() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    log_in(&mut wire, "Administrator", "password");
    let select = |name: &'static [u8]| encode(&Request { key: name, ..Request::new(Opcode::SelectBucket) });
    let value = vec![7; 20_000];
    wire.feed(&[select(b"travel"), encode(&set(b"k", &value))].concat());
    wire.feed(&get(b"k"));
    assert_eq!(wire.lent, value.len(), "by reference");
    let both = wire.feed(&[get(b"k"), select(b"secret")].concat());
    assert_eq!((wire.lent, both.len()), (0, 24 + 4 + value.len() + 24));
    let message = Plain::encode("Administrator", b"password");
    let auth = encode(&Request { key: b"PLAIN", value: &message, ..Request::new(Opcode::SaslAuth) });
    wire.feed(&select(b"travel"));
    wire.feed(&[get(b"k"), auth].concat());
    assert_eq!(wire.lent, 0);
}
