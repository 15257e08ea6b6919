//! A server that stands still for a known time, by SIGSTOP. What an open loop must report follows from arithmetic. A
//! closed loop hides it.
//!
//! Bounds compare with the stall as it was measured, and are wide: nothing here depends on how fast the machine is.

use settee_load::keys::KeyForm;
use settee_load::values::{Dataset, ValueKind};
use settee_load::{Control, Driver, Interval, Op, Pace, Part, Phase, Protocol, Records, Stop, Tally, Target};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const RATE: f64 = 1000.0;
const RUN: Duration = Duration::from_secs(4);
const STALL: Duration = Duration::from_millis(1500);

/// A memcached as far as SET and GET of the text protocol go, in a process of its own that can be stopped.
const SERVER: &str = r#"
import socket, threading
def serve(connection):
    stream = connection.makefile("rwb", buffering=0)
    while line := stream.readline():
        if line.startswith(b"set "):
            stream.read(int(line.split()[4]) + 2)
            stream.write(b"STORED\r\n")
        else:
            stream.write(b"END\r\n")
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
"#;

struct Server {
    process: Child,
    address: String,
}

impl Server {
    /// `None` where there is no Python to write the server in.
    fn start() -> Option<Server> {
        let mut command = Command::new("python3");
        let mut process = command.args(["-c", SERVER]).stdout(Stdio::piped()).spawn().ok()?;
        let mut port = String::new();
        BufReader::new(process.stdout.take()?).read_line(&mut port).ok()?;
        Some(Server { process, address: format!("127.0.0.1:{}", port.trim()) })
    }

    fn signal(&self, signal: i32) {
        // SAFETY: takes numbers only; the process is our child and not yet waited for, so the id is its own.
        let sent = unsafe { libc::kill(self.process.id() as i32, signal) };
        assert_eq!(sent, 0);
    }

    /// Stands still for about as long; returns how long it really was.
    fn stall(&self) -> Duration {
        let begun = Instant::now();
        self.signal(libc::SIGSTOP);
        std::thread::sleep(STALL);
        self.signal(libc::SIGCONT);
        begun.elapsed()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(libc::SIGCONT);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs with one stall in the middle; returns what was measured and how long the stall was.
fn run(server: &Server, pace: Pace) -> (Tally, Duration) {
    let target =
        Target::discover(Protocol::Text, &server.address, client::Login::default()).expect("a target");
    let kind = ValueKind::Random("100".parse().expect("sizes"));
    let records: Arc<dyn Records> = Arc::new(Dataset::new("", KeyForm::Hex(16), kind));
    let mut driver = Driver::connect(Arc::new(target), records, 8, Part::WHOLE).expect("connections");
    let phase = Phase { pace, stop: Stop::Time(RUN), check_every: 0, ..Phase::of(Op::Set, 1000) };
    let mut tally = Tally::default();
    let stalled = std::thread::scope(|scope| {
        let stall = scope.spawn(|| {
            std::thread::sleep(RUN / 4);
            server.stall()
        });
        let mut sink = |interval: Interval| tally.merge(&interval.tally);
        driver.run(&phase, Instant::now(), &Control::new(RATE), &mut sink).expect("a run");
        stall.join().expect("the stall")
    });
    (tally, stalled)
}

#[test]
fn an_open_loop_shows_a_stall_and_a_closed_one_hides_it() {
    let Some(server) = Server::start() else {
        eprintln!("no python3: not run");
        return;
    };
    let (open, stalled) = run(&server, Pace::Even);
    let stall = stalled.as_secs_f64();
    // Everything that was due in the stall waited for its end. That is as many operations as the rate makes in that
    // time. The first waited the longest, the later ones evenly less. The reserve is for the machine around this
    // test.
    let due = RATE * stall;
    assert_eq!(
        open.ok() + open.unsent,
        (RATE * RUN.as_secs_f64()) as u64,
        "every due operation is accounted for"
    );
    assert_eq!(open.unsent, 0);
    let latencies = open.latencies(None);
    let histogram = latencies.get().expect("operations");
    let above = |seconds: f64| -> u64 {
        let longer =
            histogram.iter_recorded().filter(|value| value.value_iterated_to() as f64 > seconds * 1e9);
        longer.map(|value| value.count_at_value()).sum()
    };
    assert!(latencies.max_us() / 1e6 > 0.9 * stall, "the longest {} of {stall}", latencies.max_us());
    for share in [0.25, 0.5, 0.75] {
        let expected = due * (1.0 - share);
        let seen = above(stall * share) as f64;
        assert!(
            seen > 0.8 * expected,
            "{seen} of {expected} operations waited longer than {share} of the stall"
        );
    }
    // A percentile follows: of n operations, due * (1 - x) waited longer than x of the stall.
    let share = 0.5;
    let percent = 100.0 * (1.0 - due * (1.0 - share) / open.ok() as f64);
    let reported = latencies.percentile_us(percent) / 1e6;
    assert!(reported > 0.8 * share * stall, "p{percent:.1} is {reported} s of a stall of {stall} s");

    let (closed, stalled) = run(&server, Pace::Closed);
    let waited = closed.latencies(None);
    let long = waited.get().expect("operations").iter_recorded();
    let long = long.filter(|value| value.value_iterated_to() as f64 > 0.5 * stalled.as_secs_f64() * 1e9);
    let long: u64 = long.map(|value| value.count_at_value()).sum();
    assert!(long <= 8, "one operation per connection saw the stall, not {long}");
}
