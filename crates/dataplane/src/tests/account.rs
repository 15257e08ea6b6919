//! What the node says of memory that belongs to no bucket.

use std::{
    io::{Read, Write},
    time::Duration,
};

use base::Status;
use protocol::binary::{Opcode, Request};

use super::{
    harness::{Client, Node, encode, options, replies},
    sockets::eventually,
    tls,
};
use crate::{ListenerKind, WorkerOptions, statistics::node_memory::node_memory};

const MIB: u64 = 1 << 20;

#[test]
fn half_read_requests_count_for_as_long_as_their_connections_last() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Memcached, &options());
    let half = vec![b'x'; 500_000];
    let clients: Vec<_> = (0..10)
        .map(|number| {
            let mut client = Client::connect(address);
            client.send(format!("set k{number} 0 0 1000000\r\n").as_bytes());
            client.send(&half);
            client
        })
        .collect();
    eventually("what has come is counted", || node_memory(&node.shared).connections >= 5_000_000);
    assert_eq!(node_memory(&node.shared).other, 0, "nobody has looked at the process");
    node.shared.account.look_at_process();
    let memory = node_memory(&node.shared);
    // The other tests of this process have their memory as well, so nothing is known of what is left over.
    assert!(memory.connections < 11_000_000 && memory.loops > 0 && memory.code > 0, "{memory:?}");
    drop(clients);
    eventually("it is gone", || node_memory(&node.shared).connections == 0);
    workers.stop(Duration::from_secs(1));
    assert_eq!(node_memory(&node.shared).loops, 0);
}

#[test]
fn answers_that_nobody_takes_count_under_tls_as_well() {
    let node = Node::new();
    let certificate = tls::certificate();
    let options =
        WorkerOptions { tls: Some(certificate.server_config(Default::default()).unwrap()), ..options() };
    let (workers, address) = node.serve(ListenerKind::KvTls, &options);
    let mut stream = tls::connect(address, &certificate);
    let value = vec![7; 20 << 20];
    let set = Request { key: b"k", value: &value, extras: &[0; 8], ..Request::new(Opcode::Set) };
    stream.write_all(&encode(&set)).unwrap();
    let mut stored = vec![0; 24];
    stream.read_exact(&mut stored).unwrap();
    assert_eq!(replies(&stored)[0].status, Status::Success);
    stream.write_all(&encode(&Request { key: b"k", ..Request::new(Opcode::Get) })).unwrap();
    // Some of it is in the sockets' buffers.
    eventually("the answer is counted", || node_memory(&node.shared).connections > 5 * MIB);
    let mut answer = vec![0; 24 + 4 + value.len()];
    stream.read_exact(&mut answer).unwrap();
    eventually("it was taken", || node_memory(&node.shared).connections < MIB);
    workers.stop(Duration::from_secs(1));
}
