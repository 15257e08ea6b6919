//! Every operation against the memcached and the Redis that Debian has, where they are installed.

use settee_load::keys::KeyForm;
use settee_load::values::{Dataset, ValueKind};
use settee_load::{Control, Crew, Mix, Op, Part, Phase, Protocol, Records, Stop, Target};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Server {
    process: Child,
    address: String,
}

impl Server {
    /// Starts a program on a free port; `None` where it is not installed.
    fn start(program: &str, arguments: impl Fn(&str) -> Vec<String>) -> Option<Server> {
        // The port is free again when this returns; that somebody else takes it at once is unlikely.
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let mut command = Command::new(program);
        let quiet = command.args(arguments(&port.to_string())).stdout(Stdio::null()).stderr(Stdio::null());
        let process = quiet.spawn().ok()?;
        let server = Server { process, address: format!("127.0.0.1:{port}") };
        let begun = Instant::now();
        while TcpStream::connect(&server.address).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{program} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Fills, reads everything back, then runs every operation that the protocol has.
fn exercise(address: &str, protocol: Protocol) {
    // Of each protocol's own, or the second one would find what the first one inserted.
    let prefix = format!("{protocol:?}-");
    const RECORDS: u64 = 2_000;
    let target = Target::discover(protocol, address, client::Login::default()).expect("a target");
    let kind = ValueKind::Random("20-2000".parse().expect("sizes"));
    let records: Arc<dyn Records> = Arc::new(Dataset::new(&prefix, KeyForm::Hex(24), kind));
    let mut crew = Crew::connect(&Arc::new(target), &records, 6, 2, Part::WHOLE).expect("connections");
    let control = Control::new(0.0);
    let filled = crew.total(&Phase::each(Op::Set, RECORDS, 8), &control).expect("filled");
    assert_eq!((filled.ok(), filled.failed()), (RECORDS, 0), "{protocol:?}");
    let read = crew.total(&Phase::each(Op::Get, RECORDS, 8), &control).expect("read");
    assert_eq!((read.ok(), read.corrupt, read.bytes), (RECORDS, 0, filled.bytes), "{protocol:?}");
    let parts: Vec<_> = Op::ALL.iter().filter(|op| protocol.can(**op)).map(|op| (*op, 1.0)).collect();
    let all = Phase {
        mix: Mix::new(&parts).expect("a mix"),
        multi: 7,
        pipeline: 4,
        stop: Stop::Ops(6_000),
        check_every: 0,
        ..Phase::of(Op::Get, RECORDS)
    };
    let mixed = crew.total(&all, &control).expect("mixed");
    assert_eq!((mixed.done(), mixed.failed()), (6_000, 0), "{protocol:?}: {:?}", mixed.failures);
    assert_eq!(mixed.ops().count(), parts.len(), "every operation had its turn");
    for (op, one) in mixed.ops() {
        assert!(one.ok.count() > 0, "{protocol:?}: no {} succeeded", op.name());
    }
    assert!(mixed.keys_found > 0);
}

#[test]
fn memcached_understands_everything() {
    let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let memcached = Server::start("memcached", |port| {
        text(&["-l", "127.0.0.1", "-p", port, "-U", "0", "-t", "1", "-u", "nobody"])
    });
    let Some(server) = memcached else {
        eprintln!("no memcached: not run");
        return;
    };
    exercise(&server.address, Protocol::Binary);
    exercise(&server.address, Protocol::Text);
}

#[test]
fn redis_understands_everything() {
    let redis = Server::start("redis-server", |port| {
        ["--bind", "127.0.0.1", "--save", "", "--port", port].iter().map(|word| (*word).to_owned()).collect()
    });
    let Some(server) = redis else {
        eprintln!("no redis-server: not run");
        return;
    };
    exercise(&server.address, Protocol::Resp);
}
