//! A worker that hangs, ends and lies, and the supervisor that lives with it.

use super::*;

const DOCUMENT: fn(&str) -> OwnedDocument =
    |meta| OwnedDocument { meta: meta.to_owned(), body: OwnedBody::Unused };

/// A worker that ends or hangs at documents of these names, and otherwise logs the names.
struct Fake {
    frames: Frames,
    alive: bool,
    starts: u32,
    loaded: bool,
    /// How many documents it tells of at a time.
    step: usize,
}

/// Drives a supervisor until it has nothing to do; tells per document what became of it.
fn drive(supervisor: &mut Supervisor, fake: &mut Fake) -> Vec<(JobId, Report)> {
    let mut told = Vec::new();
    let mut now = Duration::ZERO;
    for _ in 0..100_000 {
        for action in supervisor.turn(now) {
            match action {
                Action::Tell(id, report) => told.push((id, report)),
                Action::Start => {
                    (fake.alive, fake.loaded, fake.frames) = (true, false, Frames::up_to(FRAME_BYTES_MAX));
                    fake.starts += 1;
                    say(supervisor, &Reply::Ready, now);
                }
                Action::Kill => {
                    fake.alive = false;
                    supervisor.ended();
                }
                Action::Send(bytes) => {
                    assert!(fake.alive, "nothing is sent to a process that ended");
                    fake.frames.push(&bytes);
                    fake.work(supervisor, now);
                }
            }
        }
        if supervisor.is_idle() {
            return told;
        }
        now = supervisor.deadline().unwrap_or(now);
    }
    panic!("the supervisor never gets done");
}

fn say(supervisor: &mut Supervisor, reply: &Reply, now: Duration) {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes).unwrap();
    for byte in bytes {
        supervisor.received(&[byte], now);
    }
}

impl Fake {
    fn new(step: usize) -> Self {
        Self { frames: Frames::up_to(FRAME_BYTES_MAX), alive: false, starts: 0, loaded: false, step }
    }

    fn work(&mut self, supervisor: &mut Supervisor, now: Duration) {
        let frame = self.frames.next_frame().unwrap().expect("a whole frame").to_vec();
        match Request::decode(&frame).unwrap() {
            Request::Load { context, .. } => {
                self.loaded = true;
                say(supervisor, &Reply::Loaded { context, result: Ok(()) }, now);
            }
            Request::Map { id, documents, .. } => {
                assert!(self.loaded, "functions are loaded before they are asked");
                self.map(id, &documents, supervisor, now);
            }
            Request::Check { id, source: "die" } => {
                let _ = id;
                self.alive = false;
                supervisor.ended();
            }
            Request::Check { id, .. } => say(supervisor, &Reply::Checked { id, result: Ok(()) }, now),
            _ => {}
        }
    }

    fn map(&mut self, id: u64, documents: &[Document<'_>], supervisor: &mut Supervisor, now: Duration) {
        let (mut first, mut mapped) = (0, Vec::new());
        for document in documents {
            match document.meta {
                "hang" => return,
                "die" => {
                    self.alive = false;
                    supervisor.ended();
                    return;
                }
                name => mapped.push(Mapped { rows: Ok(Vec::new()), logs: vec![name.to_owned()] }),
            }
            if mapped.len() >= self.step {
                let count = u32::try_from(mapped.len()).unwrap();
                say(supervisor, &Reply::Mapped { id, first, documents: std::mem::take(&mut mapped) }, now);
                first += count;
            }
        }
        if !mapped.is_empty() {
            say(supervisor, &Reply::Mapped { id, first, documents: mapped }, now);
        }
    }
}

fn supervisor() -> Supervisor {
    let mut supervisor = Supervisor::new(Settings::default());
    supervisor.define(7, Sources::default(), true);
    supervisor
}

#[test]
fn the_document_that_ends_a_process_is_skipped_and_no_other() {
    let mut random = fastrand::Rng::with_seed(8);
    for round in 0..400 {
        let names: Vec<String> = (0..random.usize(..40))
            .map(|at| match random.u8(..12) {
                0 => "hang".to_owned(),
                1 => "die".to_owned(),
                _ => format!("d{at}"),
            })
            .collect();
        let mut supervisor = supervisor();
        let jobs: Vec<(JobId, &[String])> = names
            .chunks(random.usize(1..20))
            .map(|names| {
                let documents = names.iter().map(|name| DOCUMENT(name)).collect();
                (supervisor.submit(Job::Map { context: 7, documents }), names)
            })
            .collect();
        let told = drive(&mut supervisor, &mut Fake::new(random.usize(1..9)));
        let mut seen: BTreeMap<JobId, Vec<Mapped>> = BTreeMap::new();
        for (id, report) in told {
            let Report::Mapped { first, documents, last } = report else {
                panic!("round {round}: {report:?}")
            };
            let before = seen.entry(id).or_default();
            assert_eq!(before.len(), first, "round {round}: documents come in their order");
            before.extend(documents);
            let (_, names) = jobs.iter().find(|(job, _)| *job == id).unwrap();
            assert_eq!(last, before.len() == names.len());
        }
        for (id, names) in jobs {
            for (name, mapped) in names.iter().zip(&seen[&id]) {
                let skipped = mapped.rows.as_ref().is_err_and(|failure| failure.kind == FailureKind::Ended);
                assert_eq!(skipped, name == "hang" || name == "die", "round {round}: {name}");
                assert!(skipped || mapped.logs == [name.clone()]);
            }
        }
    }
}

#[test]
fn jobs_that_end_processes_fail_and_others_go_on() {
    let mut supervisor = supervisor();
    let bad = supervisor.submit(Job::Check { source: "die".to_owned() });
    let unknown = supervisor.submit(Job::Map { context: 9, documents: vec![DOCUMENT("a")] });
    let empty = supervisor.submit(Job::Map { context: 7, documents: Vec::new() });
    let good = supervisor.submit(Job::Check { source: "x".to_owned() });
    let mut fake = Fake::new(1);
    let told = drive(&mut supervisor, &mut fake);
    let of =
        |id| told.iter().filter(|(of, _)| *of == id).map(|(_, report)| report.clone()).collect::<Vec<_>>();
    assert!(
        matches!(of(bad).as_slice(), [Report::Failed(Failure { kind: FailureKind::Ended, .. })]),
        "{told:?}"
    );
    assert!(matches!(of(unknown).as_slice(), [Report::Failed(_)]), "{told:?}");
    assert_eq!(of(empty), [Report::Mapped { first: 0, documents: Vec::new(), last: true }]);
    assert_eq!(of(good), [Report::Checked(Ok(()))]);
    assert_eq!(fake.starts, 3);
}

#[test]
fn a_document_that_meets_a_process_that_has_ended_keeps_its_rows() {
    let mut supervisor = supervisor();
    let mut fake = Fake::new(1);
    let job = |name| Job::Map { context: 7, documents: vec![DOCUMENT(name)] };
    supervisor.submit(job("a"));
    drive(&mut supervisor, &mut fake);
    // It is killed while it has nothing to do, which is noticed when the next document was sent.
    let last = supervisor.submit(job("b"));
    assert!(matches!(supervisor.turn(Duration::ZERO).as_slice(), [Action::Send(_)]));
    supervisor.ended();
    let told = drive(&mut supervisor, &mut fake);
    let [(id, Report::Mapped { documents, last: true, .. })] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((*id, documents[0].logs.as_slice(), fake.starts), (last, &["b".to_owned()][..], 2));
    supervisor.submit(job("die"));
    let told = drive(&mut supervisor, &mut fake);
    assert!(
        matches!(told.as_slice(), [(_, Report::Mapped { documents, .. })] if documents[0].rows.is_err()),
        "one that ends each process is skipped: {told:?}"
    );
}

#[test]
fn a_process_is_told_of_functions_that_nobody_needs() {
    let mut supervisor = supervisor();
    supervisor.define(8, Sources::default(), true);
    let mut fake = Fake::new(1);
    supervisor.submit(Job::Map { context: 7, documents: vec![DOCUMENT("a")] });
    drive(&mut supervisor, &mut fake);
    // The process never had these.
    supervisor.forget(8);
    supervisor.forget(7);
    supervisor.submit(Job::Check { source: "x".to_owned() });
    let actions = supervisor.turn(Duration::ZERO);
    let [Action::Send(dropped), Action::Send(_)] = actions.as_slice() else { panic!("{actions:?}") };
    let frame = dropped.get(4..).unwrap();
    assert_eq!(Request::decode(frame).unwrap(), Request::Drop { context: 7 });
    let mut gone = self::supervisor();
    gone.forget(7);
    let job = gone.submit(Job::Map { context: 7, documents: vec![DOCUMENT("a")] });
    let told = drive(&mut gone, &mut fake);
    assert!(matches!(told.as_slice(), [(id, Report::Failed(_))] if *id == job), "{told:?}");
}

#[test]
fn a_process_that_never_runs_is_given_up() {
    let mut supervisor = supervisor();
    let job = supervisor.submit(Job::Check { source: "x".to_owned() });
    let (mut starts, mut told) = (0, Vec::new());
    for _ in 0..100 {
        for action in supervisor.turn(Duration::ZERO) {
            match action {
                Action::Start => {
                    starts += 1;
                    supervisor.ended();
                }
                Action::Tell(id, report) => told.push((id, report)),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(starts, Settings::default().starts_max);
    assert!(matches!(told.as_slice(), [(id, Report::Failed(_))] if *id == job), "{told:?}");
}

#[test]
fn a_process_that_lies_is_ended() {
    let lies: [&[u8]; 4] = [&[0, 0, 0, 0], &[0xff; 5], &[0, 0, 0, 1, 128], &[0, 0, 0, 1, 77]];
    for lie in lies {
        let mut supervisor = supervisor();
        supervisor.submit(Job::Check { source: "x".to_owned() });
        assert_eq!(supervisor.turn(Duration::ZERO), [Action::Start]);
        say(&mut supervisor, &Reply::Ready, Duration::ZERO);
        assert!(matches!(supervisor.turn(Duration::ZERO).as_slice(), [Action::Send(_)]));
        supervisor.received(lie, Duration::ZERO);
        assert_eq!(supervisor.turn(Duration::ZERO), [Action::Kill], "{lie:?}");
    }
}
