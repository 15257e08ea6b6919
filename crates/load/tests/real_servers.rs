//! Every operation against the memcached and the Redis that Debian has, where they are installed.

use settee_load::keys::KeyForm;
use settee_load::values::{Dataset, ValueKind};
use settee_load::{Control, Crew, Mix, Op, Part, Phase, Protocol, Records, Stop, Target};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

struct Server {
    process: Child,
    address: String,
}

impl Server {
    /// Starts a program on a free port; `None` where it is not installed.
    fn start(program: &str, arguments: impl Fn(&str) -> Vec<String>) -> Option<Server> {
        // One after the other: a port is free from here until its program listens. Two tests that looked for one at the same
        // time were given the same, or took the other's look for their own program.
        static STARTING: Mutex<()> = Mutex::new(());
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let mut command = Command::new(program);
        let quiet = command.args(arguments(&port.to_string())).stdout(Stdio::null()).stderr(Stdio::null());
        let process = quiet.spawn().ok()?;
        let mut server = Server { process, address: format!("127.0.0.1:{port}") };
        let begun = Instant::now();
        while TcpStream::connect(&server.address).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{program} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(server.process.try_wait().ok()?.is_none(), "{program} has ended, somebody else has its port");
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

/// What a Redis says that it carries out, command by command and in order: (connection, command, key).
fn monitor(address: &str) -> impl Iterator<Item = (String, String, String)> + use<> {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(b"MONITOR\r\n").expect("sent");
    let mut lines = BufReader::new(stream).split(b'\n');
    assert_eq!(lines.next().expect("an answer").expect("a line"), b"+OK\r");
    lines.map_while(Result::ok).filter_map(|line| {
        let line = String::from_utf8_lossy(&line).into_owned();
        let connection = line.split(['[', ']']).nth(1)?.to_owned();
        let mut words = line.split('"');
        let command = words.nth(1)?.to_uppercase();
        Some((connection, command, words.nth(1).unwrap_or_default().to_owned()))
    })
}

/// By Redis' own account: whatever a CAS wrote, nobody had written between its read and its write.
#[test]
fn redis_cas_is_exact() {
    let redis = Server::start("redis-server", |port| {
        ["--bind", "127.0.0.1", "--save", "", "--port", port].iter().map(|word| (*word).to_owned()).collect()
    });
    let Some(server) = redis else {
        eprintln!("no redis-server: not run");
        return;
    };
    let events = monitor(&server.address);
    let judge = std::thread::spawn(move || {
        let (mut watching, mut written) = (HashMap::new(), 0u64);
        for (connection, command, key) in events {
            match command.as_str() {
                "FLUSHALL" => break,
                "WATCH" => drop(watching.insert(connection, (key, false))),
                "UNWATCH" => drop(watching.remove(&connection)),
                // In front of the command that it carries out; a transaction that is not carried out has none.
                "MULTI" => {
                    if let Some((_, in_transaction)) = watching.get_mut(&connection) {
                        *in_transaction = true;
                    }
                }
                "SET" | "DEL" => {
                    if let Some((watched, true)) = watching.get(&connection) {
                        assert_eq!(*watched, key, "it writes what it has read");
                        written += 1;
                    }
                    // Another client that watches this key must not write it any more.
                    watching.retain(|_, (watched, _)| *watched != key);
                }
                "EXEC" => drop(watching.remove(&connection)),
                _ => {}
            }
        }
        written
    });
    let target =
        Target::discover(Protocol::Resp, &server.address, client::Login::default()).expect("a target");
    let kind = ValueKind::Random("64".parse().expect("sizes"));
    let records: Arc<dyn Records> = Arc::new(Dataset::new("cas-", KeyForm::Hex(24), kind));
    let mut crew = Crew::connect(&Arc::new(target), &records, 8, 2, Part::WHOLE).expect("connections");
    // Few records and many writers, so that most attempts meet another one.
    let phase = Phase {
        mix: "cas=4,set=1,get=1,delete=1".parse().expect("a mix"),
        pipeline: 4,
        stop: Stop::Ops(20_000),
        ..Phase::of(Op::Cas, 3)
    };
    let tally = crew.total(&phase, &Control::new(0.0)).expect("a phase");
    assert_eq!((tally.done(), tally.failed(), tally.corrupt), (20_000, 0, 0), "{:?}", tally.failures);
    let cas = tally.ops().find(|(op, _)| *op == Op::Cas).expect("cas").1;
    assert!(cas.ok.count() > 100 && cas.miss.count() > 100, "{} {}", cas.ok.count(), cas.miss.count());
    let mut last = TcpStream::connect(&server.address).expect("a connection");
    last.write_all(b"FLUSHALL\r\n").expect("sent");
    assert_eq!(judge.join().expect("a judge without objections"), cas.ok.count());
}
