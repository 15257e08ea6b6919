//! The driver against a server of the test's own: a thread per connection, a map, and answers on demand.

use super::*;
use crate::keys::KeyForm;
use crate::values::{Dataset, ValueKind};
use crate::wire::Protocol;
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why the test's server refuses, where it does.
const REFUSAL: &str = "the disk is full";

/// What the test's server does beyond storing.
#[derive(Default)]
struct Mischief {
    /// Every so many writes are refused as temporary.
    refuse_every: u64,
    /// Every so many reads return a damaged value.
    damage_every: u64,
    /// Every so many reads are refused as another node's.
    disown_every: u64,
    /// The connection is closed with every so many writes, before their reply.
    close_every: u64,
    /// What came with those is carried out after the next write of its key.
    is_late: bool,
}

struct Server {
    store: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    late: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    writes: AtomicU64,
    reads: AtomicU64,
    disowned: AtomicU64,
    mischief: Mischief,
}

/// A binary memcached for the keys' and values' sake: enough for GET, SET, ADD, REPLACE, DELETE.
fn serve(mischief: Mischief) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let [writes, reads, disowned] = [const { AtomicU64::new(0) }; 3];
    let (store, late) = (Mutex::default(), Mutex::default());
    let server = Server { store, late, writes, reads, disowned, mischief };
    let server = Arc::new(server);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = server.clone();
            std::thread::spawn(move || server.talk(stream));
        }
    });
    address
}

impl Server {
    fn talk(&self, mut stream: std::net::TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        loop {
            let mut header = [0; 24];
            stream.read_exact(&mut header).ok()?;
            let mut body = vec![0; u32::from_be_bytes(header[8..12].try_into().ok()?) as usize];
            stream.read_exact(&mut body).ok()?;
            let extras = usize::from(header[4]);
            let key_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let (key, value) = body[extras..].split_at(key_len);
            let (status, extras, value) = self.answer(header[1], key, value)?;
            let mut reply = vec![0x81, header[1], 0, 0, extras, 0, 0, status];
            reply.extend_from_slice(&(value.len() as u32).to_be_bytes());
            reply.extend_from_slice(&header[12..16]);
            reply.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 77]);
            reply.extend_from_slice(&value);
            // In two pieces, so that replies arrive cut.
            let (first, second) = reply.split_at(reply.len() / 2);
            stream.write_all(first).ok()?;
            stream.write_all(second).ok()?;
        }
    }

    /// Status, bytes of extras, body; `None` closes.
    fn answer(&self, opcode: u8, key: &[u8], value: &[u8]) -> Option<(u8, u8, Vec<u8>)> {
        let due = |counter: &AtomicU64, every: u64| {
            every > 0 && (counter.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every)
        };
        let mut store = self.store.lock().expect("the map");
        let mut late = self.late.lock().expect("what is late");
        let answer = match opcode {
            0 if due(&self.disowned, self.mischief.disown_every) => (7, 0, b"Not my vBucket".to_vec()),
            0 => match store.get(key) {
                None => (1, 0, b"Not found".to_vec()),
                Some(value) => {
                    let mut value = value.clone();
                    if due(&self.reads, self.mischief.damage_every) {
                        *value.last_mut()? ^= 1;
                    }
                    (0, 4, [&[0; 4], &value[..]].concat())
                }
            },
            1 if due(&self.writes, self.mischief.refuse_every.max(self.mischief.close_every)) => {
                if self.mischief.close_every > 0 {
                    if self.mischief.is_late {
                        late.insert(key.to_vec(), value.to_vec());
                    }
                    return None;
                }
                (0x86, 0, format!(r#"{{"error":{{"context":"{REFUSAL}"}}}}"#).into_bytes())
            }
            2 if store.contains_key(key) => (2, 0, Vec::new()),
            3 if !store.contains_key(key) => (1, 0, Vec::new()),
            1..=3 => {
                store.insert(key.to_vec(), value.to_vec());
                (0, 0, Vec::new())
            }
            4 => (u8::from(store.remove(key).is_none()), 0, Vec::new()),
            _ => (0x81, 0, Vec::new()),
        };
        if matches!((opcode, answer.0), (1..=4, 0))
            && let Some(value) = late.remove(key)
        {
            store.insert(key.to_vec(), value);
        }
        Some(answer)
    }
}

fn driver(address: &str, connections: usize) -> Driver {
    let target = Target::discover(Protocol::Binary, address, client::Login::default()).expect("a target");
    let kind = ValueKind::Random("50-400".parse().expect("sizes"));
    let records = Arc::new(Dataset::new("", KeyForm::Hex(20), kind));
    Driver::connect(Arc::new(target), records, connections, Part::WHOLE).expect("connections")
}

fn fill(records: u64) -> Phase {
    Phase::each(Op::Set, records, 4)
}

fn read(records: u64) -> Phase {
    Phase::each(Op::Get, records, 4)
}

#[test]
fn every_record_is_stored_once_and_read_back() {
    let mut driver = driver(&serve(Mischief::default()), 3);
    let stored = driver.run_all(&fill(1_000), |_| ()).expect("a phase");
    assert_eq!((stored.ok(), stored.done(), stored.failed()), (1_000, 1_000, 0));
    let each = driver.run_all(&read(1_100), |_| ()).expect("a phase");
    assert_eq!(each.bytes, stored.bytes, "what went in comes out");
    assert!((1_000 * 50..1_000 * 400).contains(&stored.bytes), "{}", stored.bytes);
    assert_eq!((each.ok(), each.misses(), each.corrupt), (1_000, 100, 0));
    let mix = "get=1,set=1".parse().expect("a mix");
    let mixed = Phase { mix, stop: Stop::Ops(2_000), ..Phase::of(Op::Get, 1_000) };
    let mixed = driver.run_all(&mixed, |_| ()).expect("a phase");
    assert_eq!((mixed.done(), mixed.misses(), mixed.corrupt), (2_000, 0, 0));
    assert!((800..1_200).contains(&mixed.ok_of(true)), "{}", mixed.ok_of(true));
}

#[test]
fn endings_are_counted_apart() {
    let mut driver = driver(&serve(Mischief::default()), 2);
    driver.run_all(&fill(100), |_| ()).expect("a phase");
    let added = driver.run_all(&Phase::each(Op::Add, 150, 4), |_| ()).expect("a phase");
    assert_eq!((added.ok(), added.misses(), added.failed()), (50, 100, 0));
    let refused = driver.run_all(&Phase::each(Op::Touch, 10, 4), |_| ()).expect("a phase");
    assert_eq!((refused.ok(), refused.misses(), refused.failed()), (0, 0, 10));
    assert_eq!(refused.main_failure(), Some("UnknownCommand (0x81)"));
    let compared = driver.run_all(&Phase::each(Op::Rmw, 200, 4), |_| ()).expect("a phase");
    assert_eq!((compared.ok(), compared.misses()), (150, 50), "two requests count once");
    let deleted = driver.run_all(&Phase::each(Op::Delete, 200, 4), |_| ()).expect("a phase");
    assert_eq!((deleted.ok(), deleted.misses()), (150, 50));
}

#[test]
fn temporary_failures_are_retried_until_stored() {
    let mut driver = driver(&serve(Mischief { refuse_every: 50, ..Mischief::default() }), 2);
    let stored = driver.run_all(&fill(500), |_| ()).expect("a phase");
    assert_eq!((stored.ok(), stored.failed()), (500, 0));
    assert_eq!(stored.temporary, 10, "one in fifty attempts");
    assert_eq!(stored.reasons, BTreeMap::from([(REFUSAL.to_owned(), 10)]));
    let each = driver.run_all(&read(500), |_| ()).expect("a phase");
    assert_eq!((each.ok(), each.corrupt), (500, 0));
}

#[test]
fn a_server_without_room_is_quoted() {
    let mut driver = driver(&serve(Mischief { refuse_every: 1, ..Mischief::default() }), 2);
    let phase = Phase { hope: Duration::from_millis(300), ..fill(100) };
    let mut heard = Vec::new();
    let hopeless = driver.run_all(&phase, |advance| {
        assert_eq!(advance.done, 0);
        heard.extend(advance.reason.map(str::to_owned));
    });
    let said = hopeless.expect_err("nothing was stored").to_string();
    assert!(said.contains("temporary failure") && said.ends_with(REFUSAL), "{said}");
    assert!(!heard.is_empty() && heard.iter().all(|reason| reason == REFUSAL), "{heard:?}");
}

#[test]
fn the_journal_has_a_row_per_operation() {
    let directory = std::env::temp_dir().join(format!("settee-journal-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join("rows.csv");
    let mut driver = driver(&serve(Mischief::default()), 2);
    driver.run_all(&fill(100), |_| ()).expect("a phase");
    let phase = Phase { journal: Some(path.clone()), ..read(150) };
    let tally = driver.run_all(&phase, |_| ()).expect("a phase");
    let text = std::fs::read_to_string(journal::part_of(&path, 0)).expect("rows");
    std::fs::remove_dir_all(&directory).expect("a directory");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == journal::COLUMNS.split(',').count() && row[2] == "get"));
    let of = |code: &str| rows.iter().filter(|row| row[3] == code).count() as u64;
    assert_eq!((of("200"), of("404"), rows.len()), (100, 50, 150));
    let records: std::collections::BTreeSet<u64> =
        rows.iter().map(|row| row[5].parse().expect("a number")).collect();
    assert_eq!(records.len(), 150, "each record has its row");
    let longest = rows.iter().filter(|row| row[3] == "200").map(|row| row[4].parse().expect("a number"));
    let histogram = tally.latencies(None);
    let equal = histogram
        .get()
        .expect("latencies")
        .equivalent(longest.max().unwrap_or(0), histogram.percentile(100.0));
    assert!(equal, "rows and histogram are of the same samples");
}

#[test]
fn what_another_node_serves_by_now_is_no_error() {
    let mut driver = driver(&serve(Mischief { disown_every: 50, ..Mischief::default() }), 2);
    driver.run_all(&fill(300), |_| ()).expect("a phase");
    let each = driver.run_all(&read(300), |_| ()).expect("a phase");
    assert_eq!((each.ok(), each.failed(), each.corrupt), (300, 0, 0));
    assert_eq!(each.moved, 6, "one in fifty attempts");
    let phase = Phase { validate: true, stop: Stop::Ops(500), pipeline: 4, ..Phase::of(Op::Rmw, 50) };
    let tally = driver.run_all(&phase, |_| ()).expect("a phase");
    assert_eq!((tally.done(), tally.failed(), tally.violations.len()), (500, 0, 0), "{:?}", tally.histories);
}

#[test]
fn a_vbucket_that_is_nowhere_is_given_up() {
    let mut driver = driver(&serve(Mischief { disown_every: 1, ..Mischief::default() }), 1);
    let phase = Phase { stop: Stop::Ops(2), ..Phase::of(Op::Get, 10) };
    let tally = driver.run_all(&phase, |_| ()).expect("a phase");
    assert_eq!((tally.failed(), tally.moved), (2, 2 * 101));
}

#[test]
fn damage_is_seen() {
    let mut driver = driver(&serve(Mischief { damage_every: 100, ..Mischief::default() }), 2);
    driver.run_all(&fill(400), |_| ()).expect("a phase");
    let each = driver.run_all(&read(400), |_| ()).expect("a phase");
    assert_eq!((each.ok(), each.corrupt), (400, 4));
}

#[test]
fn a_closed_connection_ends_the_phase_or_is_made_again() {
    let address = serve(Mischief { close_every: 100, ..Mischief::default() });
    let broken = driver(&address, 1).run_all(&fill(1_000), |_| ());
    assert!(matches!(broken, Err(LoadError::Broken { answered: 99, .. })));
    let phase = Phase { on_break: OnBreak::Reconnect, pipeline: 1, ..fill(1_000) };
    let tally = driver(&address, 2).run_all(&phase, |_| ()).expect("a phase");
    assert_eq!(tally.ok() + tally.failed(), 1_000, "every operation has ended");
    assert_eq!(tally.failures.get("connection lost"), Some(&tally.failed()));
    assert_eq!(tally.reconnects, tally.failed(), "one request was under way each time");
    assert!(tally.reconnects >= 9, "{}", tally.reconnects);
}

#[test]
fn an_open_loop_does_what_is_due_and_nothing_else() {
    let mut driver = driver(&serve(Mischief::default()), 4);
    let ticks = [Duration::ZERO, Duration::from_micros(200), Duration::from_millis(5)];
    for (pace, tick) in ticks.into_iter().flat_map(|tick| [(Pace::Even, tick), (Pace::Poisson, tick)]) {
        let phase =
            Phase { pace, tick, stop: Stop::Time(Duration::from_millis(500)), ..Phase::of(Op::Set, 100) };
        let (mut tally, mut intervals) = (Tally::default(), 0);
        let phase = Phase { interval: Duration::from_millis(100), ..phase };
        let mut sink = |interval: Interval| {
            assert_eq!(interval.index, intervals);
            intervals += 1;
            tally.merge(&interval.tally);
        };
        driver.run(&phase, Instant::now(), &Control::new(2_000.0), &mut sink).expect("a phase");
        let done = tally.ok() + tally.unsent;
        let expected = if pace == Pace::Even { 1_000..=1_000 } else { 800..=1_200 };
        assert!(expected.contains(&done), "{pace:?}: {done}");
        assert_eq!(tally.split.queue.count(), tally.ok());
        assert!(intervals >= 5, "{intervals}");
    }
}

#[test]
fn validation_passes_an_honest_server_and_sees_a_damaged_value() {
    let mix = "get=5,set=3,delete=1,add=1,replace=1,rmw=1";
    let phase = |records| Phase {
        mix: mix.parse().expect("a mix"),
        validate: true,
        pipeline: 4,
        stop: Stop::Ops(5_000),
        ..Phase::of(Op::Get, records)
    };
    let mut honest = driver(&serve(Mischief::default()), 3);
    let tally = honest.run_all(&phase(50), |_| ()).expect("a phase");
    assert_eq!(
        (tally.ok() + tally.misses(), &tally.violations),
        (5_000, &Default::default()),
        "{:?}",
        tally.histories
    );
    let sweep = Phase { validate: true, ..Phase::each(Op::Get, 50, 4) };
    let swept = honest.run_all(&sweep, |_| ()).expect("a phase");
    assert!(swept.violations.is_empty() && swept.done() == 50);
    let mut damaging = driver(&serve(Mischief { damage_every: 100, ..Mischief::default() }), 3);
    let tally = damaging.run_all(&phase(50), |_| ()).expect("a phase");
    let torn = tally.violations.get("torn").copied().unwrap_or(0);
    assert!(torn >= 10 && tally.violations.len() == 1, "{:?}", tally.violations);
    assert!(tally.histories[0].contains("acknowledged"), "{:?}", tally.histories);
    let mut breaking = driver(&serve(Mischief { close_every: 97, ..Mischief::default() }), 3);
    let broken = Phase { on_break: OnBreak::Reconnect, ..phase(50) };
    let tally = breaking.run_all(&broken, |_| ()).expect("a phase");
    assert!(tally.reconnects > 0 && tally.violations.is_empty(), "{:?}", tally.histories);
    let late = Mischief { close_every: 13, is_late: true, ..Mischief::default() };
    let tally = driver(&serve(late), 3).run_all(&broken, |_| ()).expect("a phase");
    assert!(tally.reconnects > 0 && tally.violations.is_empty(), "{:?}", tally.histories);
}
