//! A real process that runs functions, confined and supervised. The process is this program again.

use std::{
    io,
    path::Path,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use settee_views::{
    js::{FailureKind, Limits, Sources},
    worker::{Host, Job, JobId, OwnedBody, OwnedDocument, Report, Settings, confine, serve},
};

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("worker") => worker(false),
        Some("confined") => worker(true),
        Some("--list") => ExitCode::SUCCESS,
        _ => {
            documents_are_mapped_in_another_process();
            a_process_that_is_killed_is_replaced();
            a_loop_costs_its_document();
            what_was_said_in_time_counts_however_late_it_is_read();
            a_process_outlives_the_thread_that_started_it();
            a_confined_process_opens_nothing();
            println!("6 tests of workers passed");
            ExitCode::SUCCESS
        }
    }
}

fn worker(tells: bool) -> ExitCode {
    let confinement = confine(4 << 30).expect("the limits of a worker");
    if tells {
        // What a worker must not be able to do; the exit code says what it could.
        let opened = std::fs::read("/proc/self/status").is_ok();
        let connected = std::net::TcpListener::bind("127.0.0.1:0").is_ok();
        let started = Command::new("/bin/true").status().is_ok();
        let code = [opened, connected, started, !confinement.system_calls];
        return ExitCode::from(code.iter().fold(0, |code, bad| code << 1 | u8::from(*bad)));
    }
    match serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn this_program(argument: &'static str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.arg(argument);
    command
}

fn host(time: Duration, maps: &[&str]) -> Host {
    let limits = Limits { time, ..Limits::default() };
    let mut host = Host::new(Settings { limits, ..Settings::default() }, || this_program("worker"));
    let maps = maps.iter().map(|map| (*map).to_owned()).collect();
    host.define(1, Sources { maps, reduces: vec!["function(k, v) { return sum(v) }".to_owned()] }, true);
    host
}

fn documents(count: usize) -> Vec<OwnedDocument> {
    let document = |at| OwnedDocument {
        meta: format!("{{\"id\":\"d{at}\"}}"),
        body: OwnedBody::Json(format!("{{\"n\":{at},\"pad\":\"{}\"}}", "x".repeat(500))),
    };
    (0..count).map(document).collect()
}

fn finish(host: &mut Host) -> Vec<(JobId, Report)> {
    let mut told = Vec::new();
    while !host.is_idle() {
        told.extend(host.turn(Duration::from_secs(60)).expect("a worker"));
    }
    told
}

/// The keys that were emitted, in order; a document without rows is `-`.
fn keys(told: &[(JobId, Report)]) -> Vec<String> {
    let mut keys = Vec::new();
    for (_, report) in told {
        let Report::Mapped { documents, .. } = report else { panic!("{report:?}") };
        for mapped in documents {
            match &mapped.rows {
                Ok(views) => keys.extend(views.iter().flatten().flatten().map(|row| row.key.clone())),
                Err(failure) => keys.push(format!("{:?}", failure.kind)),
            }
        }
    }
    keys
}

fn documents_are_mapped_in_another_process() {
    let mut host = host(Duration::from_secs(60), &["function(d, m) { emit([m.id, d.n], null) }"]);
    host.submit(Job::Map { context: 1, documents: documents(3000) });
    let told = finish(&mut host);
    let expected: Vec<String> = (0..3000).map(|at| format!("[\"d{at}\",{at}]")).collect();
    assert_eq!(keys(&told), expected);
    host.submit(Job::Reduce {
        context: 1,
        function: 0,
        keys: None,
        values: vec!["1".to_owned(), "2".to_owned()],
    });
    host.submit(Job::Check { source: "function(".to_owned() });
    let told = finish(&mut host);
    assert_eq!(told[0].1, Report::Reduced(Ok("3".to_owned())));
    assert!(matches!(told[1].1, Report::Checked(Err(_))), "{told:?}");
}

fn a_process_that_is_killed_is_replaced() {
    let mut host = host(Duration::from_secs(60), &["function(d) { emit(d.n) }"]);
    host.submit(Job::Map { context: 1, documents: documents(1) });
    assert_eq!(keys(&finish(&mut host)), ["0"]);
    let first = host.process_id().expect("a process");
    let killed = Command::new("kill").args(["-9", &first.to_string()]).status().expect("kill");
    assert!(killed.success());
    // Not even a document that is alone pays for that.
    host.submit(Job::Map { context: 1, documents: documents(1) });
    assert_eq!(keys(&finish(&mut host)), ["0"]);
    host.submit(Job::Map { context: 1, documents: documents(500) });
    let expected: Vec<String> = (0..500).map(|at| at.to_string()).collect();
    assert_eq!(keys(&finish(&mut host)), expected);
    assert_ne!(host.process_id(), Some(first));
}

fn a_loop_costs_its_document() {
    let hostile =
        "function(d) { if (d.n == 1) for (;;) {} if (d.n == 3) { var s = 'x'; for (;;) s += s; } emit(d.n) }";
    let mut host = host(Duration::from_secs(3), &[hostile]);
    host.submit(Job::Map { context: 1, documents: documents(5) });
    let told = finish(&mut host);
    let keys = keys(&told);
    assert_eq!(keys[..2], ["0".to_owned(), format!("{:?}", FailureKind::Timeout)]);
    assert_eq!((keys[2].as_str(), keys.last().map(String::as_str)), ("2", Some("4")), "{keys:?}");
}

fn what_was_said_in_time_counts_however_late_it_is_read() {
    let limits = Limits { time: Duration::from_millis(500), ..Limits::default() };
    let settings = Settings { limits, grace: Duration::from_millis(500), ..Settings::default() };
    let mut host = Host::new(settings, || this_program("worker"));
    host.define(1, Sources { maps: vec!["function(d) { emit(d.n) }".to_owned()], reduces: Vec::new() }, true);
    host.submit(Job::Map { context: 1, documents: documents(1) });
    assert_eq!(keys(&finish(&mut host)), ["0"]);
    let first = host.process_id();
    // On a busy machine a worker may answer within the turn that asks it.
    let is_unread = (0..100).any(|_| {
        host.submit(Job::Map { context: 1, documents: documents(1) });
        host.turn(Duration::ZERO).expect("a worker").is_empty()
    });
    assert!(is_unread, "each answer came at once");
    // The answer lies in the pipe for longer than a function may take.
    let begin = Instant::now();
    while begin.elapsed() < 2 * (limits.time + settings.grace) {
        std::thread::yield_now();
    }
    assert_eq!(keys(&finish(&mut host)), ["0"]);
    assert_eq!(host.process_id(), first, "the process was not ended for the delay of its reader");
}

fn a_process_outlives_the_thread_that_started_it() {
    let mut host = host(Duration::from_secs(60), &["function(d) { emit(d.n) }"]);
    let started = std::thread::spawn(move || {
        host.submit(Job::Map { context: 1, documents: documents(1) });
        assert_eq!(keys(&finish(&mut host)), ["0"]);
        host
    });
    let mut host = started.join().expect("a host");
    let first = host.process_id().expect("a process");
    host.submit(Job::Map { context: 1, documents: documents(1) });
    assert_eq!(keys(&finish(&mut host)), ["0"]);
    assert_eq!(host.process_id(), Some(first));
}

fn a_confined_process_opens_nothing() {
    assert!(Path::new("/proc/self/status").exists(), "what the process tries is there");
    let status = this_program("confined").status().expect("this program");
    assert_eq!(status.code(), Some(0), "bits: reads files, listens, starts programs, has all system calls");
}
