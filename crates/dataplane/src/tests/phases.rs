//! Where the server says the time went, asked over a socket: the waits last at least as long as the test lets them.

use std::time::{Duration, Instant};

use base::{Status, bucket::DurabilityLevel};
use protocol::{
    binary::{Durability, Opcode, Request, RequestInfo},
    hello::{Feature, FeatureSet},
    sasl::plain::Plain,
};

use super::{
    harness::{Client, Node, encode, options},
    sockets::eventually,
    waiting::wire,
};
use crate::{ListenerKind, figures::slow::SLOW};

const WAIT: Duration = Duration::from_millis(20);

fn set() -> Request<'static> {
    Request { key: b"k", value: b"cold", extras: &[0; 8], ..Request::new(Opcode::Set) }
}

fn client(address: std::net::SocketAddr) -> Client {
    let mut client = Client::connect(address);
    let mut features = Vec::new();
    let wanted: FeatureSet = [Feature::AltRequest, Feature::SyncReplication].into_iter().collect();
    wanted.encode(&mut features);
    let password = Plain::encode("Administrator", b"password");
    for request in [
        Request { key: b"test", value: &features, ..Request::new(Opcode::Hello) },
        Request { key: b"PLAIN", value: &password, ..Request::new(Opcode::SaslAuth) },
        Request { key: b"disk", ..Request::new(Opcode::SelectBucket) },
    ] {
        assert_eq!(client.ask(&request).status, Status::Success, "{request:?}");
    }
    client
}

/// How many requests spent time in a phase, and how long all together.
fn phase(client: &mut Client, name: &str) -> (u64, Duration) {
    client.send(&encode(&Request { key: b"phases", ..Request::new(Opcode::Stat) }));
    let (mut count, mut micros) = (0, None);
    loop {
        let reply = client.receive();
        assert_eq!(reply.status, Status::Success);
        if reply.key.is_empty() {
            return (count, Duration::from_micros(micros.unwrap()));
        }
        let key = String::from_utf8(reply.key.clone()).unwrap();
        match key.rsplit_once('_').unwrap() {
            (phase, "micros") if phase == name => micros = Some(reply.text().parse().unwrap()),
            (phase, _) if phase == name => count += reply.text().parse::<u64>().unwrap(),
            _ => {}
        }
    }
}

#[test]
fn a_durable_write_waits_for_its_sync() {
    let node = Node::with_disk();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut client = client(address);
    let (executed, _) = phase(&mut client, "execute");
    let (replied, _) = phase(&mut client, "reply");
    let durability = Durability { level: DurabilityLevel::PersistToMajority, timeout_ms: None };
    let info = RequestInfo { durability: Some(durability), ..RequestInfo::default() };
    client.send(&encode(&Request { info, ..set() }));
    eventually("the write waits", || node.stats("disk").diskqueue_items > 0);
    std::thread::sleep(WAIT);
    node.flush();
    assert_eq!(client.receive().status, Status::Success);
    let (count, waited) = phase(&mut client, "durability");
    assert!(count == 1 && waited >= WAIT, "{count} {waited:?}");
    assert_eq!(phase(&mut client, "fetch"), (0, Duration::ZERO));
    // Four times the statistics, and the write when it began and when it went on.
    assert_eq!(phase(&mut client, "execute").0 - executed, 6);
    // Three times the statistics since, the write, and the statistics before this.
    assert_eq!(phase(&mut client, "reply").0 - replied, 5);
    workers.stop(Duration::from_secs(1));
}

/// Objectives go by this phase: a write that need not wait is one of the good ones.
#[test]
fn a_durable_write_that_need_not_wait_is_counted_and_a_plain_one_is_not() {
    let node = Node::with_disk();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut client = client(address);
    assert_eq!(client.ask(&set()).status, Status::Success);
    assert_eq!(phase(&mut client, "durability"), (0, Duration::ZERO));
    // There is one copy, which is a majority.
    let durability = Durability { level: DurabilityLevel::Majority, timeout_ms: None };
    let info = RequestInfo { durability: Some(durability), ..RequestInfo::default() };
    assert_eq!(client.ask(&Request { info, ..set() }).status, Status::Success);
    assert_eq!(phase(&mut client, "durability"), (1, Duration::ZERO));
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_write_that_waits_long_is_noted_with_what_it_waited_for() {
    let node = Node::with_disk();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut client = client(address);
    assert_eq!(client.ask(&set()).status, Status::Success);
    let durability = Durability { level: DurabilityLevel::PersistToMajority, timeout_ms: None };
    let info = RequestInfo { durability: Some(durability), ..RequestInfo::default() };
    let begun = Instant::now();
    client.send(&encode(&Request { info, ..set() }));
    eventually("the write waits", || node.stats("disk").diskqueue_items > 0);
    eventually("it has waited for long", || begun.elapsed() > SLOW);
    node.flush();
    assert_eq!(client.receive().status, Status::Success);
    let noted = node.shared.slow.all();
    let told: Vec<_> =
        noted.iter().map(|one| (one.operation.as_str(), one.bucket.as_str(), one.user.as_str())).collect();
    assert_eq!(told, [("set", "disk", "Administrator")], "{noted:?}");
    let (phase, micros) = &noted[0].phases[0];
    assert!(phase == "durability" && *micros >= 400_000 && noted[0].took_us >= 500_000, "{noted:?}");
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_read_waits_for_its_value_to_come_from_disk() {
    let mut node = Node::with_disk();
    assert_eq!(wire(&node, &[]).ask(&set()).status, Status::Success);
    node.flush();
    node.reopen_disk();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut client = client(address);
    client.send(&encode(&Request { key: b"k", ..Request::new(Opcode::Get) }));
    eventually("the read waits", || node.stats("disk").bg_queue > 0);
    std::thread::sleep(WAIT);
    node.fetch();
    assert_eq!(client.receive().text(), "cold");
    let (count, waited) = phase(&mut client, "fetch");
    assert!(count == 1 && waited >= WAIT, "{count} {waited:?}");
    assert_eq!(phase(&mut client, "durability"), (0, Duration::ZERO));
    workers.stop(Duration::from_secs(1));
}
