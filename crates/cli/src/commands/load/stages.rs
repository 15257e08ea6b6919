//! The stages of a run (warming up, measuring, reading back), carried out by this process or by workers.

use super::super::Failure;
use super::Args;
use super::plan::Plan;
use load::doctor::{Activity, Surroundings, of_workers, surroundings, worth_knowing};
use load::fleet::{Fleet, Work};
use load::process::{own_cpu_seconds, own_interruptions};
use load::{Choice, Control, Crew, Interval, LoadError, Mix, Op, Pace, Part, Phase, Stop, Target};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Files beside the connections: standard streams, polls, `/proc`.
const FILES_RESERVED: u64 = 64;

/// Separates the sequences of warming up and reading back from the measured one.
const WARMUP_SEED: u64 = 0x3a3a;
const VERIFY_SEED: u64 = 0x5c5c;

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    WarmUp,
    Measure,
    ReadBack,
}

impl Stage {
    const ALL: [Stage; 3] = [Stage::WarmUp, Stage::Measure, Stage::ReadBack];

    const fn name(self) -> &'static str {
        match self {
            Stage::WarmUp => "warm up",
            Stage::Measure => "measure",
            Stage::ReadBack => "read back",
        }
    }

    /// What is done in it, if what is measured is `phase`.
    fn phase(self, args: &Args, phase: &Phase) -> Phase {
        match self {
            Stage::Measure => Phase { journal: args.answers.journal.clone(), ..phase.clone() },
            Stage::WarmUp => Phase {
                stop: Stop::Time(Duration::from_secs_f64(args.pace.warmup)),
                seed: phase.seed ^ WARMUP_SEED,
                ..phase.clone()
            },
            Stage::ReadBack => Phase {
                mix: Mix::only(Op::Get),
                choice: if phase.validate { Choice::Each } else { Choice::Uniform },
                pace: Pace::Closed,
                stop: if phase.validate { Stop::All } else { Stop::Ops(args.answers.verify) },
                check_every: phase.check_every.min(1),
                seed: phase.seed ^ VERIFY_SEED,
                ..phase.clone()
            },
        }
    }
}

/// Connections of this process, ready for every stage.
pub(super) struct Local {
    args: Args,
    phase: Phase,
    crew: Crew,
    pub(super) target: Arc<Target>,
    /// What was found about this process and its machine while it measured.
    told: Vec<String>,
}

impl Local {
    /// Connects for one part of a run; the connections and threads of the flags are the whole run's.
    pub(super) fn connect(args: Args, plan: &Plan, part: Part) -> Result<Local, Failure> {
        let mut phase =
            Phase { validate: args.answers.validate, stamped: args.answers.explain, ..plan.phase.clone() };
        if let Some(op) = phase.mix.ops().find(|op| phase.validate && !load::validate::judges(*op)) {
            return Err(Failure(format!("validation cannot judge {}", op.name())));
        }
        let (parts, index) = (part.of as usize, part.index as usize);
        let connections = plan.connections / parts + usize::from(index < plan.connections % parts);
        check_files(connections)?;
        let target = Arc::new(plan.target.discover(args.answers.trace || args.answers.explain)?);
        phase.ask(&target, &args.work.query).map_err(failed)?;
        // As many on every worker, or their parts would not fit together.
        let threads = (args.pace.threads as usize).min((plan.connections / parts).max(1));
        let crew = Crew::connect(&target, &plan.records, connections.max(1), threads, part);
        Ok(Local { args, phase, crew: crew.map_err(failed)?, target, told: Vec::new() })
    }
}

impl Work for Local {
    fn run(
        &mut self,
        stage: &str,
        start: Instant,
        control: &Control,
        sink: &mut dyn FnMut(Interval),
    ) -> Result<(), LoadError> {
        let stage = Stage::ALL.into_iter().find(|known| known.name() == stage);
        let stage = stage.ok_or_else(|| LoadError::Plan("no such stage".to_owned()))?;
        let explain = self.args.answers.explain && stage == Stage::Measure;
        let (activity, interruptions) = (Activity::now(), own_interruptions());
        self.crew.run_from(start, &stage.phase(&self.args, &self.phase), control, sink)?;
        if explain {
            self.told = surroundings(&Surroundings {
                seconds: start.elapsed().as_secs_f64(),
                interrupted: own_interruptions() - interruptions,
                sockets: self.crew.sockets(),
                seen: Activity::now().since(&activity),
            });
            self.told.extend(worth_knowing());
        }
        Ok(())
    }

    fn told(&self) -> Vec<String> {
        self.told.clone()
    }
}

/// What carries out the stages.
pub(super) enum Hands {
    Own(Box<Local>),
    Workers(Fleet),
}

/// Threads need this long to get ready for a common start.
const START: Duration = Duration::from_millis(5);

impl Hands {
    /// Runs a stage; `sink` hears its intervals.
    pub(super) fn run(
        &mut self,
        stage: Stage,
        control: &Control,
        mut sink: impl FnMut(Interval),
    ) -> Result<(), Failure> {
        let result = match self {
            Hands::Own(local) => local.run(stage.name(), Instant::now() + START, control, &mut sink),
            Hands::Workers(fleet) => fleet.run(stage.name(), control, sink),
        };
        result.map_err(failed)
    }

    /// How many processes there are.
    pub(super) fn processes(&self) -> usize {
        match self {
            Hands::Own(_) => 1,
            Hands::Workers(fleet) => fleet.size(),
        }
    }

    /// What those that drove the load found about themselves and their machines.
    pub(super) fn told(&self) -> Vec<String> {
        match self {
            Hands::Own(local) => local.told(),
            Hands::Workers(fleet) => of_workers(&fleet.told()),
        }
    }

    /// CPU seconds that driving the load has taken so far.
    pub(super) fn cpu_seconds(&self) -> f64 {
        match self {
            Hands::Own(_) => own_cpu_seconds(),
            Hands::Workers(fleet) => fleet.cpu_seconds(),
        }
    }
}

pub(super) fn failed(error: LoadError) -> Failure {
    Failure(error.to_string())
}

pub(super) fn check_files(connections: usize) -> Result<(), Failure> {
    let files = daemon::limits::raise_file_limit();
    if connections as u64 + FILES_RESERVED <= files {
        return Ok(());
    }
    Err(Failure(format!(
        "{connections} connections need more than the {files} open files of `ulimit -n`: raise it"
    )))
}
