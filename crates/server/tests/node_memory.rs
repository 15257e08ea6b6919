//! What a node says that its memory is for, against what its process has grown by. In a process of its own, for nobody
//! else may allocate.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(target_os = "linux")]

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use settee_server::runtime::{DiskOptions, InitBucket, InitOptions, Node, PortOptions, ServeOptions};

/// Together they hold less than a loop holds for slow clients.
const CLIENTS: u64 = 24;
/// Of each request so much has come, and as much is to come.
const HALF_BYTES: usize = 8 << 20;

fn start(data_dir: &std::path::Path) -> (Node, SocketAddr) {
    let bucket = InitBucket { name: "memory".into(), quota_mb: 100, legacy_access: true };
    let node = Node::start(ServeOptions {
        data_dir: data_dir.to_owned(),
        listen: Ipv4Addr::LOCALHOST.into(),
        ports: PortOptions { mgmt: 0, mgmt_tls: 0, kv: 0, kv_tls: 0, capi: 0, memcached: Some(0) },
        ports_file: None,
        workers: 1,
        connections_max: 1_000,
        memory_quota_mb: 1024,
        disk: DiskOptions::default(),
        tls: None,
        init: Some(InitOptions {
            username: "Administrator".into(),
            password: "password".into(),
            cluster_name: String::new(),
            bucket: Some(bucket),
        }),
    })
    .unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, node.ports().memcached));
    (node, address)
}

/// A pool by its name, and all of them but what nobody has told.
fn said(client: &mut BufReader<TcpStream>, wanted: &str) -> (u64, u64) {
    client.get_mut().write_all(b"stats memory\r\n").unwrap();
    let (mut one, mut all) = (0, 0);
    loop {
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        let line = line.trim_end();
        if line == "END" {
            return (one, all);
        }
        let Some(pool) = line.strip_prefix("STAT settee_node_mem_") else { continue };
        let (name, bytes) = pool.split_once(' ').unwrap();
        let bytes: u64 = bytes.parse().unwrap();
        one += if name == wanted { bytes } else { 0 };
        all += if name == "other" { 0 } else { bytes };
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn half_read_requests_of_many_connections_are_what_the_process_has_grown_by() {
    let dir = tempfile::tempdir().unwrap();
    let (node, address) = start(dir.path());
    let half = vec![b'x'; HALF_BYTES];
    let mut asking = BufReader::new(TcpStream::connect(address).unwrap());
    let (_, said_before) = said(&mut asking, "connections");
    let before = resident_bytes();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(format!("set k{number} 0 0 {}\r\n", 2 * HALF_BYTES).as_bytes()).unwrap();
            client.write_all(&half).unwrap();
            client
        })
        .collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    while said(&mut asking, "connections").0 < CLIENTS * HALF_BYTES as u64 {
        assert!(Instant::now() < deadline, "{:?}", said(&mut asking, "connections"));
        std::thread::sleep(Duration::from_millis(5));
    }
    let grown = (resident_bytes() - before) as f64;
    let said = (said(&mut asking, "connections").1 - said_before) as f64;
    println!("grown by {grown}, says {said}");
    // The allocator keeps holes of buffers that have grown.
    assert!((0.95..1.15).contains(&(grown / said)), "{grown} against {said}");
    drop(clients);
    node.stop();
}
