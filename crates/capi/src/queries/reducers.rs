//! Reductions by functions of users, in a few processes that queries share.
//!
//! A query has a process for one call only, and gives it back then. So no query keeps others from their calls for longer than a
//! function may take. A process that has seen the functions of many indexes is replaced.

use std::{
    collections::HashMap,
    process::Command,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use views::{
    design::Signature,
    index::{Definition, Functions},
    js::{Failure, FailureKind},
    worker::{Host, Job, Report, Settings},
};

/// Processes at the same time.
const PROCESSES_MAX: usize = 3;
/// Processes that are kept for the next query.
const IDLE_MAX: usize = 2;
/// Indexes whose functions a process has at most.
const KNOWN_MAX: usize = 16;
/// How long a call waits for a process.
const QUEUE: Duration = Duration::from_secs(30);
/// Between two looks at whether the node stops.
const LOOK: Duration = Duration::from_millis(50);

/// The processes.
pub(crate) struct Reducers {
    command: Arc<dyn Fn() -> Command + Send + Sync>,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Worker>,
    busy: usize,
    is_stopping: bool,
}

struct Worker {
    host: Host,
    known: HashMap<Signature, u32>,
}

impl Reducers {
    pub(crate) fn new(command: Arc<dyn Fn() -> Command + Send + Sync>) -> Arc<Self> {
        Arc::new(Self { command, state: Mutex::default(), freed: Condvar::new() })
    }

    /// What reduces for one query.
    pub(crate) fn of(self: &Arc<Self>, definition: Arc<Definition>) -> Reducer {
        Reducer { all: Arc::clone(self), definition }
    }

    /// Ends the processes. Calls under way fail.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopping = true;
        state.idle.clear();
        self.freed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process, best one that knows the functions.
    fn take(&self, signature: &Signature) -> Result<Worker, Failure> {
        let until = Instant::now() + QUEUE;
        let mut state = self.lock();
        loop {
            if state.is_stopping {
                return Err(ended("the node stops"));
            }
            if state.busy < PROCESSES_MAX {
                state.busy += 1;
                let known = state.idle.iter().position(|worker| worker.known.contains_key(signature));
                let idle = known.or_else(|| state.idle.len().checked_sub(1));
                let worker = idle.map(|at| state.idle.swap_remove(at));
                return Ok(worker.unwrap_or_else(|| self.start()));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::new(FailureKind::Timeout, "no process for reductions was free in time"));
            }
            state = self.freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn start(&self) -> Worker {
        let command = Arc::clone(&self.command);
        Worker { host: Host::new(Settings::default(), move || command()), known: HashMap::new() }
    }

    fn give_back(&self, worker: Option<Worker>) {
        let mut state = self.lock();
        state.busy -= 1;
        if let Some(worker) = worker
            && state.idle.len() < IDLE_MAX
            && !state.is_stopping
        {
            state.idle.push(worker);
        }
        self.freed.notify_one();
    }
}

fn ended(text: &str) -> Failure {
    Failure::new(FailureKind::Ended, text)
}

/// Reduces for one query.
pub(crate) struct Reducer {
    all: Arc<Reducers>,
    definition: Arc<Definition>,
}

impl Functions for Reducer {
    fn reduce(&mut self, function: usize, keys: Option<&[&str]>, values: &[&str]) -> Result<String, Failure> {
        let function = u16::try_from(function).map_err(|_| ended("no such reduction"))?;
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let worker = self.all.take(&self.definition.signature())?;
        let mut turn = Turn { all: &self.all, worker: Some(worker), is_sound: false };
        let reduced = turn.reduce(&self.definition, function, keys.map(owned), owned(values));
        // A function that failed says nothing against its process.
        let says_so = |failure: &Failure| matches!(failure.kind, FailureKind::Ended | FailureKind::NoProcess);
        turn.is_sound = !reduced.as_ref().err().is_some_and(says_so);
        reduced
    }
}

/// A call has a process; dropping it gives that back, or ends it.
struct Turn<'a> {
    all: &'a Reducers,
    worker: Option<Worker>,
    is_sound: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let worker = self.worker.take().filter(|worker| self.is_sound && worker.known.len() < KNOWN_MAX);
        self.all.give_back(worker);
    }
}

impl Turn<'_> {
    fn reduce(
        &mut self,
        definition: &Definition,
        function: u16,
        keys: Option<Vec<String>>,
        values: Vec<String>,
    ) -> Result<String, Failure> {
        let Some(worker) = &mut self.worker else { return Err(ended("no process")) };
        let next = worker.known.len() as u32;
        let context = *worker.known.entry(definition.signature()).or_insert_with(|| {
            worker.host.define(next, definition.sources().clone(), false);
            next
        });
        let asked = worker.host.submit(Job::Reduce { context, function, keys, values });
        loop {
            if self.all.lock().is_stopping {
                return Err(ended("the node stops"));
            }
            let told = worker.host.turn(LOOK).map_err(|error| ended(&error.to_string()))?;
            match told.into_iter().find(|(id, _)| *id == asked) {
                Some((_, Report::Reduced(reduced))) => return reduced,
                Some((_, Report::Failed(failure))) => return Err(failure),
                Some(_) => return Err(ended("another answer")),
                None if worker.host.is_idle() => return Err(ended("no answer")),
                None => {}
            }
        }
    }
}
