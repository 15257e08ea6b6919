//! One measurement from connecting to reading back.

use super::live::Live;
use super::orders;
use super::outputs::Outputs;
use super::plan::Plan;
use super::stages::{Hands, Local, Stage};
use super::worker::Workers;
use super::{Args, Failure};
use crate::progress::Progress;
use load::conduct;
use load::doctor::{Agreement, Circumstances, Histograms, by_operation, by_phase, findings};
use load::report::Report;
use load::{Advance, Control, Part, Tally, Target, Usage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Statistics of the server whose growth is reported, where it has them.
const SYNCS: &str = "ep_flusher_syncs";
/// Groups of its statistics with histograms: of operations, and of what their time was spent on.
const GROUPS: [&str; 2] = ["timings", "phases"];

/// Runs what the flags say.
pub(super) fn measure(args: &Args) -> Result<Report, Failure> {
    let plan = Plan::new(&args.target, &args.records, &args.work, &args.pace, &args.profile)?;
    if let Some(profile) = plan.profile.as_ref().filter(|profile| !profile.ignored.is_empty()) {
        eprintln!("settee: properties without meaning here: {}", profile.ignored.join(", "));
    }
    Outputs::check(&args.answers)?;
    let (mut hands, target, _workers) = hands(args, &plan)?;
    let control = Arc::new(Control::new(plan.rate.unwrap_or(0.0)));
    let mut watch = Watch::new(args, &plan);
    if !plan.filling && args.pace.warmup > 0.0 {
        hands.run(Stage::WarmUp, &control, |interval| watch.see_warm_up(&interval))?;
    }
    let steady = args.pace.steps.is_none() && args.pace.ramp.is_none() && args.pace.search.is_none();
    let mut report = Report {
        title: title(),
        rate: plan.rate.filter(|_| steady && args.pace.control.is_none()),
        interval: plan.phase.interval.as_secs_f64(),
        ..Report::default()
    };
    let mut outputs = Outputs::begin(&args.answers, &plan)?;
    let before = Usage::of_all(&args.answers.server_pid);
    let (own, syncs_before) = (hands.cpu_seconds(), syncs(&target));
    let [timings, phases] = GROUPS.map(|group| histograms(&target, group));
    let mut conductor = args.pace.conductor(report.interval);
    let outcome = led(args, &control, || {
        hands.run(Stage::Measure, &control, |interval| {
            watch.see(&interval);
            report.add(&interval);
            outputs.see(&interval);
            if let Some(conductor) = &mut conductor {
                conductor.see(&interval, &control);
            }
        })
    });
    watch.end();
    outcome??;
    report.steps = conductor.map_or_else(Vec::new, |conductor| conductor.steps().to_vec());
    report.client_cpu = hands.cpu_seconds() - own;
    report.server = before.zip(Usage::of_all(&args.answers.server_pid));
    if args.answers.explain {
        let threads = args.pace.threads as usize * hands.processes();
        report.findings = findings(&report.tally, &circumstances(&plan, &report, threads));
        report.findings.extend(hands.told());
        let [timings_now, phases_now] = GROUPS.map(|group| histograms(&target, group));
        let (timings, phases) = (timings_now.since(&timings), phases_now.since(&phases));
        report.findings.extend(by_phase(&timings, &phases));
        report.findings.extend(by_operation(&timings));
        report.agreement = Agreement::of(&report.tally.split.server, &timings);
        report.findings.extend(report.agreement.map(|found| found.sentence()));
    }
    let grown = syncs_before.zip(syncs(&target)).map(|(before, after)| after - before);
    if let Some(syncs) = grown.filter(|syncs| *syncs > 0.0) {
        let writes = report.tally.ok_of(false) as f64;
        report.server_figures.push(("syncs".to_owned(), syncs));
        report.server_figures.push(("writes per sync".to_owned(), writes / syncs));
    }
    if args.answers.verify > 0 || args.answers.validate {
        let mut verified = Tally::default();
        hands.run(Stage::ReadBack, &Control::new(0.0), |interval| verified.merge(&interval.tally))?;
        report.verified = Some(verified);
    }
    outputs.finish(&report)?;
    Ok(report)
}

/// What the doctor wants to know besides the tally.
fn circumstances(plan: &Plan, report: &Report, threads: usize) -> Circumstances {
    Circumstances {
        connections: plan.connections,
        pipeline: plan.phase.pipeline,
        threads,
        client_cpu: report.client_cpu,
        server_cpu: report.server.map(|(before, after)| after.cpu_seconds - before.cpu_seconds),
        server_waited: report.server.map(|(before, after)| after.waited_seconds - before.waited_seconds),
    }
}

/// This process, or workers; and the target as this process sees it.
fn hands(args: &Args, plan: &Plan) -> Result<(Hands, Arc<Target>, Option<Workers>), Failure> {
    if args.pace.workers.is_empty() && args.pace.processes.is_none() {
        let local = Local::connect(args.clone(), plan, Part::WHOLE)?;
        let target = local.target.clone();
        return Ok((Hands::Own(Box::new(local)), target, None));
    }
    let target = Arc::new(plan.target.discover(false)?);
    let (fleet, workers) = Workers::muster(args)?;
    Ok((Hands::Workers(fleet), target, Some(workers)))
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

/// What the server says of itself in a group of statistics, if it is one that has it.
fn histograms(target: &Target, group: &str) -> Histograms {
    let mut all = Histograms::default();
    for node in 0..target.nodes() {
        let stats = target.open(node).ok().and_then(|mut connection| connection.stats(group).ok());
        all.add(&Histograms::read(&stats.unwrap_or_default()));
    }
    all
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

    /// Nothing of warming up is shown but what it waits for.
    fn see_warm_up(&self, interval: &load::Interval) {
        if let (Watch::Measuring(_), Some(reason)) = (self, interval.tally.main_reason()) {
            eprintln!("warming up, waiting: {reason}");
        }
    }

    fn see(&mut self, interval: &load::Interval) {
        match self {
            Watch::Filling(progress, done) => {
                *done += interval.tally.done();
                progress.set(Advance { done: *done, reason: interval.tally.main_reason() });
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
