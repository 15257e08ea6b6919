//! What loads a node, as readers are told: connections over sockets, and hot keys of both protocols.

use std::{sync::mpsc, time::Duration};

use base::Status;
use protocol::{
    binary::{Opcode, Request},
    hello::Feature,
    sasl::plain::Plain,
};
use stats::ConnectionsReport;

use super::{
    harness::{Client, Node, encode, options, replies},
    logins::log_in,
    sockets::eventually,
};
use crate::{ListenerKind, Workers, figures::hot};

fn get(key: &[u8]) -> Request<'_> {
    Request { key, ..Request::new(Opcode::Get) }
}

fn look(workers: &Workers) -> ConnectionsReport {
    let (told, heard) = mpsc::channel();
    workers.notifier().look_at_connections(move |report| _ = told.send(report));
    heard.recv_timeout(Duration::from_secs(20)).expect("the loop answers")
}

#[test]
fn the_busiest_connection_comes_first_with_its_user_bucket_and_name() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut idle = Client::connect(address);
    assert_eq!(idle.ask(&get(b"k")).status, Status::KeyNotFound);
    let mut busy = Client::connect(address);
    let password = Plain::encode("Administrator", b"password");
    for request in [
        Request { key: b"loader/1.0", ..Request::new(Opcode::Hello) },
        Request { key: b"PLAIN", value: &password, ..Request::new(Opcode::SaslAuth) },
        Request { key: b"travel", ..Request::new(Opcode::SelectBucket) },
    ] {
        assert_eq!(busy.ask(&request).status, Status::Success, "{request:?}");
    }
    assert_eq!(look(&workers).open, 2);
    let batch: Vec<u8> = (0..200).flat_map(|_| encode(&get(b"k"))).collect();
    busy.send(&batch);
    (0..200).for_each(|_| assert_eq!(busy.receive().status, Status::KeyNotFound));
    let report = look(&workers);
    let told: Vec<_> = report.busiest.iter().map(|one| (&*one.user, &*one.bucket, &*one.agent)).collect();
    assert_eq!(told[0], ("Administrator", "travel", "loader/1.0"), "{report:?}");
    let (first, second) = (&report.busiest[0], &report.busiest[1]);
    assert!(first.per_second > 0.0 && first.read_per_second > 0.0 && first.written_per_second > 0.0);
    assert_eq!((second.per_second, second.read_per_second, second.written_per_second), (0.0, 0.0, 0.0));
    assert_eq!(first.client, busy.socket.local_addr().unwrap().to_string());
    assert_eq!(look(&workers).busiest[0].per_second, 0.0, "each look is compared with the one before");
    drop(busy);
    eventually("a closed connection is told no more", || look(&workers).open == 1);
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_key_is_hot_in_both_protocols_and_requests_without_one_are_not_counted() {
    let node = Node::new();
    let sent = hot::EVERY as usize * 100;
    let mut wire = node.connect(ListenerKind::Kv);
    let batch: Vec<u8> = (0..sent).flat_map(|_| encode(&get(b"hot"))).collect();
    assert_eq!(replies(&wire.feed(&batch)).len(), sent);
    // Nothing with a document: nothing to be counted.
    let others: Vec<u8> = (0..sent).flat_map(|_| encode(&Request::new(Opcode::Noop))).collect();
    wire.feed(&others);
    let now = node.shared.now().mono_millis;
    let report = node.shared.snapshot().buckets["default"].meter.hot("default", now);
    assert_eq!(report.keys.len(), 1, "{report:?}");
    assert_eq!(
        (&*report.keys[0].key, report.keys[0].collection, report.keys[0].share),
        (&b"hot"[..], 0, 1.0)
    );

    let mut text = node.connect(ListenerKind::Memcached);
    for _ in 0..sent / 100 {
        text.feed("get warm\r\n".repeat(100).as_bytes());
    }
    let buckets = &node.shared.snapshot().buckets;
    let warm = buckets.values().any(|bucket| {
        let keys = bucket.meter.hot(&bucket.name, now).keys;
        keys.iter().any(|key| key.key == b"warm")
    });
    assert!(warm);
}

/// Keys are content, and administrators read the list: it is not for users without rights to write in.
#[test]
fn keys_of_refused_requests_are_no_hot_keys() {
    let mut node = Node::new();
    node.put_user("looker", "secret", "data_reader[default]");
    node.put_user("clerk", "secret", "data_writer[default]");
    let sent = hot::EVERY as usize * 100;
    let told = |user: &str, request: &Request<'_>, status: Status| -> Vec<Vec<u8>> {
        let mut wire = node.connect(ListenerKind::Kv);
        wire.hello(&[Feature::Xerror]);
        log_in(&mut wire, user, "secret");
        let select = Request { key: b"default", ..Request::new(Opcode::SelectBucket) };
        assert_eq!(wire.ask(&select).status, Status::Success);
        let batch: Vec<u8> = (0..sent).flat_map(|_| encode(request)).collect();
        let answers = replies(&wire.feed(&batch));
        assert!(answers.len() == sent && answers.iter().all(|answer| answer.status == status), "{user}");
        let now = node.shared.now().mono_millis;
        let report = node.shared.snapshot().buckets["default"].meter.hot("default", now);
        report.keys.into_iter().map(|key| key.key).collect()
    };
    let set = Request { key: b"graffiti", extras: &[0; 8], ..Request::new(Opcode::Set) };
    assert_eq!(told("looker", &set, Status::NoAccess), [b""; 0]);
    assert_eq!(told("clerk", &get(b"graffiti"), Status::NoAccess), [b""; 0]);
    assert_eq!(told("clerk", &Request { extras: &[0; 3], ..set }, Status::Invalid), [b""; 0]);
    // What is not found was looked for.
    assert_eq!(told("looker", &get(b"absent"), Status::KeyNotFound), [b"absent"]);
}
