//! One measurement from connecting to reading back.

use super::live::Live;
use super::orders;
use super::outputs::Outputs;
use super::plan::Plan;
use super::{Args, FILES_RESERVED, Failure};
use crate::progress::Progress;
use load::conduct;
use load::process::own_cpu_seconds;
use load::report::Report;
use load::{Choice, Control, Crew, Mix, Op, Pace, Part, Phase, Stop, Target, Usage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Separates the sequences of warming up and reading back from the measured one.
const WARMUP_SEED: u64 = 0x3a3a;
const VERIFY_SEED: u64 = 0x5c5c;
/// Statistics of the server whose growth is reported, where it has them.
const SYNCS: &str = "ep_flusher_syncs";

/// Runs what the flags say.
pub(super) fn measure(args: &Args) -> Result<Report, Failure> {
    let plan = Plan::new(&args.target, &args.records, &args.work, &args.pace, &args.profile)?;
    if let Some(profile) = plan.profile.as_ref().filter(|profile| !profile.ignored.is_empty()) {
        eprintln!("settee: properties without meaning here: {}", profile.ignored.join(", "));
    }
    check_files(plan.connections)?;
    let target = Arc::new(plan.target.discover(args.answers.trace)?);
    let (phase, rate) = (Phase { validate: args.answers.validate, ..plan.phase.clone() }, plan.rate);
    if let Some(op) = phase.mix.ops().find(|op| phase.validate && !load::validate::judges(*op)) {
        return Err(Failure(format!("validation cannot judge {}", op.name())));
    }
    let threads = args.pace.threads as usize;
    let mut crew =
        Crew::connect(&target, &plan.records, plan.connections, threads, Part::WHOLE).map_err(failed)?;
    let control = Arc::new(Control::new(rate.unwrap_or(0.0)));
    if !plan.filling && args.pace.warmup > 0.0 {
        let stop = Stop::Time(Duration::from_secs_f64(args.pace.warmup));
        let warmup = Phase { stop, seed: phase.seed ^ WARMUP_SEED, ..phase.clone() };
        crew.total(&warmup, &control).map_err(failed)?;
    }
    let steady = args.pace.steps.is_none() && args.pace.ramp.is_none() && args.pace.search.is_none();
    let rate = rate.filter(|_| steady && args.pace.control.is_none());
    let mut report = Report { rate, interval: phase.interval.as_secs_f64(), ..Report::default() };
    report.title = title();
    let mut outputs = Outputs::begin(&args.answers, &plan)?;
    let mut watch = Watch::new(args, &plan);
    let before = args.answers.server_pid.and_then(Usage::of);
    let (own, syncs) = (own_cpu_seconds(), syncs(&target));
    let mut conductor = args.pace.conductor();
    let outcome = led(args, &control, || {
        crew.run(&phase, &control, |interval| {
            watch.see(&interval);
            report.add(&interval);
            outputs.see(&interval);
            if let Some(conductor) = &mut conductor {
                conductor.see(&interval, &control);
            }
        })
    });
    watch.end();
    outcome?.map_err(failed)?;
    report.steps = conductor.map_or_else(Vec::new, |conductor| conductor.steps().to_vec());
    report.client_cpu = own_cpu_seconds() - own;
    report.server = before.zip(args.answers.server_pid.and_then(Usage::of));
    if let (Some(before), Some(after)) = (syncs, self::syncs(&target)) {
        let (syncs, writes) = (after - before, report.tally.ok_of(false) as f64);
        if syncs > 0.0 {
            report.server_figures.push(("syncs".to_owned(), syncs));
            report.server_figures.push(("writes per sync".to_owned(), writes / syncs));
        }
    }
    if args.answers.verify > 0 || phase.validate {
        report.verified = Some(read_back(args, &phase, &mut crew)?);
    }
    outputs.finish(&report)?;
    Ok(report)
}

/// The command as it was given, without the password.
fn title() -> String {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    for place in 0..words.len() {
        if matches!(words[place].as_str(), "-p" | "--password") && place + 1 < words.len() {
            words[place + 1] = "***".to_owned();
        } else if words[place].starts_with("--password=") {
            words[place] = "--password=***".to_owned();
        }
    }
    format!("settee {}", words.join(" "))
}

/// Does the work while ramps and live orders change the rate beside it.
fn led<T>(args: &Args, control: &Arc<Control>, work: impl FnOnce() -> T) -> Result<T, Failure> {
    if let Some(path) = &args.pace.control {
        orders::follow(path, control)?;
    }
    let done = AtomicBool::new(false);
    let from = control.rate();
    Ok(std::thread::scope(|scope| {
        if let Some((to, seconds)) = args.pace.ramp {
            let done = &done;
            scope.spawn(move || conduct::ramp(control, from, to, Duration::from_secs_f64(seconds), done));
        }
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    }))
}

fn failed(error: load::LoadError) -> Failure {
    Failure(error.to_string())
}

fn read_back(args: &Args, phase: &Phase, crew: &mut Crew) -> Result<load::Tally, Failure> {
    let check = Phase {
        mix: Mix::only(Op::Get),
        choice: if phase.validate { Choice::Each } else { Choice::Uniform },
        pace: Pace::Closed,
        stop: if phase.validate { Stop::All } else { Stop::Ops(args.answers.verify) },
        check_every: phase.check_every.min(1),
        seed: phase.seed ^ VERIFY_SEED,
        ..phase.clone()
    };
    crew.total(&check, &Control::new(0.0)).map_err(failed)
}

fn check_files(connections: usize) -> Result<(), Failure> {
    let files = server::limits::raise_file_limit();
    if connections as u64 + FILES_RESERVED <= files {
        return Ok(());
    }
    Err(Failure(format!(
        "{connections} connections need more than the {files} open files of `ulimit -n`: raise it"
    )))
}

/// How often the server has synced, if it is one that says so.
fn syncs(target: &Target) -> Option<f64> {
    let stats = target.open(0).ok()?.stats("").ok()?;
    stats.iter().find(|(name, _)| name == SYNCS)?.1.parse().ok()
}

/// What is shown while the run goes on.
enum Watch {
    Filling(Progress, u64),
    Measuring(Live),
    Quiet,
}

impl Watch {
    fn new(args: &Args, plan: &Plan) -> Watch {
        if args.answers.quiet || args.answers.json || args.answers.historic {
            Watch::Quiet
        } else if plan.filling {
            Watch::Filling(Progress::start("filling", plan.phase.records), 0)
        } else {
            Watch::Measuring(Live::start(&plan.phase))
        }
    }

    fn see(&mut self, interval: &load::Interval) {
        match self {
            Watch::Filling(progress, done) => {
                *done += interval.tally.done();
                progress.set(*done);
            }
            Watch::Measuring(live) => live.show(interval),
            Watch::Quiet => {}
        }
    }

    fn end(self) {
        match self {
            Watch::Filling(progress, _) => progress.finish(),
            Watch::Measuring(live) => live.end(),
            Watch::Quiet => {}
        }
    }
}
