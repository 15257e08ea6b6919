//! What a node says that its memory is for, against what its process has grown by. In a process of its own, for nobody
//! else may allocate.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(target_os = "linux")]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use settee_daemon::{self as daemon, InitBucket, Node};

mod support;

/// Documents of a kilobyte, well within the bucket's quota.
const DOCUMENTS: usize = 150_000;
/// Together they hold less than a loop holds for slow clients.
const CLIENTS: u64 = 24;
/// So much of each request has come, and a last byte is missing. The spare room of a buffer counts as well, but the process has not
/// grown by it.
const UNFINISHED_BYTES: usize = 8 << 20;
/// Figures are at rest when so many looks, one after the other, find them moved by less than this. That takes longer than it
/// takes until the allocator is asked again.
const RESTLESS_BYTES: u64 = 1 << 18;
const LOOKS_AT_REST: u32 = 75;

fn start(data_dir: &std::path::Path) -> (Node, SocketAddr) {
    let bucket = InitBucket { name: "memory".into(), quota_mb: 400, legacy_access: true };
    let node = Node::start(support::options(data_dir, bucket)).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, node.ports().memcached));
    (node, address)
}

/// What the node says of its memory, by pool, but for what nobody has told, and what its process has.
struct Figures {
    pools: BTreeMap<String, u64>,
    resident: u64,
}

impl Figures {
    fn said(&self) -> u64 {
        self.pools.values().sum()
    }

    fn look(client: &mut BufReader<TcpStream>) -> Self {
        client.get_mut().write_all(b"stats memory\r\n").unwrap();
        let mut pools = BTreeMap::new();
        loop {
            let mut line = String::new();
            client.read_line(&mut line).unwrap();
            let line = line.trim_end();
            if line == "END" {
                break;
            }
            let Some(pool) = line.strip_prefix("STAT settee_node_mem_") else { continue };
            let (name, bytes) = pool.split_once(' ').unwrap();
            pools.insert(name.to_owned(), bytes.parse().unwrap());
        }
        pools.remove("other");
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let resident = statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096;
        Self { pools, resident }
    }

    /// Once nothing moves any more: what is on its way to the disk, or being read, is told before it is there, or after.
    fn at_rest(client: &mut BufReader<TcpStream>) -> Self {
        let deadline = Instant::now() + Duration::from_secs(120);
        let (mut last, mut same) = (Self::look(client), 0);
        while same < LOOKS_AT_REST {
            std::thread::sleep(Duration::from_millis(20));
            let next = Self::look(client);
            let moved = next.said().abs_diff(last.said()).max(next.resident.abs_diff(last.resident));
            same = if moved < RESTLESS_BYTES { same + 1 } else { 0 };
            last = next;
            assert!(Instant::now() < deadline, "it does not come to rest: {:?}", last.pools);
        }
        last
    }

    /// What the process has grown by since, against what it says of that.
    fn compare_with(&self, before: &Self, what: &str) {
        let grown = (self.resident - before.resident) as f64;
        let said = (self.said() - before.said()) as f64;
        println!("{what}: grown by {grown}, says {said}; {:?}, then {:?}", before.pools, self.pools);
        assert!((0.95..1.05).contains(&(grown / said)), "{what}: {grown} against {said}");
    }
}

#[test]
fn a_process_knows_what_it_has_grown_by_within_five_percent() {
    let dir = tempfile::tempdir().unwrap();
    let (node, address) = start(dir.path());
    let unfinished = vec![b'x'; UNFINISHED_BYTES];
    let mut asking = BufReader::new(TcpStream::connect(address).unwrap());
    let empty = Figures::at_rest(&mut asking);
    let value = "v".repeat(1_000);
    for number in 0..DOCUMENTS {
        let set = format!("set document{number} 0 0 {} noreply\r\n{value}\r\n", value.len());
        asking.get_mut().write_all(set.as_bytes()).unwrap();
    }
    let full = Figures::at_rest(&mut asking);
    full.compare_with(&empty, "documents");

    let deadline = Instant::now() + Duration::from_secs(60);
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(format!("set k{number} 0 0 {}\r\n", UNFINISHED_BYTES - 1).as_bytes()).unwrap();
        client.write_all(&unfinished).unwrap();
        clients.push(client);
        while Figures::look(&mut asking).pools["connections"] < (number + 1) * UNFINISHED_BYTES as u64 {
            assert!(Instant::now() < deadline, "{:?}", Figures::look(&mut asking).pools);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Figures::at_rest(&mut asking).compare_with(&full, "unfinished requests");
    drop(clients);
    node.stop().unwrap();
}
