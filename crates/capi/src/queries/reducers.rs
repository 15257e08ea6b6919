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

use crate::wanted::HasLeft;

/// Processes at the same time.
const PROCESSES_MAX: usize = 3;
/// Processes that are kept for the next query.
const IDLE_MAX: usize = 2;
/// Indexes whose functions a process has at most.
const KNOWN_MAX: usize = 16;
/// How long a call waits for a process.
const QUEUE: Duration = Duration::from_secs(30);
/// Between two looks at whether the node stops, or nobody waits for the answer any longer.
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

    /// What reduces for one query, until its asker has left.
    pub(crate) fn of(self: &Arc<Self>, definition: Arc<Definition>, has_left: HasLeft) -> Reducer {
        Reducer { all: Arc::clone(self), definition, has_left }
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
    fn take(&self, signature: &Signature, has_left: &HasLeft) -> Result<Worker, Failure> {
        let until = Instant::now() + QUEUE;
        let mut state = self.lock();
        loop {
            if state.is_stopping {
                return Err(ended("the node stops"));
            }
            if has_left.get() {
                return Err(ended("nobody waits for the answer"));
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
            state = self.freed.wait_timeout(state, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
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
    has_left: HasLeft,
}

impl Functions for Reducer {
    fn reduce(&mut self, function: usize, keys: Option<&[&str]>, values: &[&str]) -> Result<String, Failure> {
        let function = u16::try_from(function).map_err(|_| ended("no such reduction"))?;
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let worker = self.all.take(&self.definition.signature(), &self.has_left)?;
        let was_used = !worker.known.is_empty();
        let mut turn = Turn { all: &self.all, worker: Some(worker), is_sound: false };
        let ask =
            |turn: &mut Turn<'_>| turn.reduce(&self.definition, function, keys.map(owned), owned(values));
        let mut reduced = ask(&mut turn);
        let is_short = |failure: &Failure| failure.kind == FailureKind::Memory;
        if was_used && reduced.as_ref().is_err_and(is_short) {
            // What the process was asked before may have taken the memory.
            turn.worker = Some(self.all.start());
            reduced = ask(&mut turn);
        }
        // Another failure of a function says nothing against its process.
        let says_so = |failure: &Failure| {
            matches!(failure.kind, FailureKind::Ended | FailureKind::NoProcess | FailureKind::Memory)
        };
        turn.is_sound = !reduced.as_ref().is_err_and(says_so);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use views::worker::wire::{Reply, Request};

    use super::{
        super::fixture::{definition, length, says},
        *,
    };
    use crate::wanted::Wanted;

    /// A process that answers one reduction after the other so.
    fn process(answers: &[Result<&str, FailureKind>]) -> Command {
        let (context, sources) = (0, definition().sources().clone());
        let load =
            length(&Request::Load { context, limits: Settings::default().limits, analysed: false, sources });
        let ask = length(&Request::Reduce { id: 1, context, function: 0, keys: None, values: vec!["1"] });
        let mut script = says(0, &Reply::Ready) + &says(load, &Reply::Loaded { context, result: Ok(()) });
        for (id, answer) in (1..).zip(answers) {
            let result = answer.map(str::to_owned).map_err(|kind| Failure::new(kind, "failed"));
            script += &says(ask, &Reply::Reduced { id, result });
        }
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script + "cat >/dev/null");
        command
    }

    #[test]
    fn a_function_is_not_called_for_an_answer_that_nobody_waits_for() {
        let started = Arc::new(AtomicUsize::new(0));
        let starts = Arc::clone(&started);
        let all = Reducers::new(Arc::new(move || {
            starts.fetch_add(1, SeqCst);
            process(&[Ok("1")])
        }));
        let told = |has_left: HasLeft| {
            let reduced = all.of(definition(), has_left).reduce(0, None, &["1"]);
            reduced.map_err(|failure| failure.kind)
        };
        let wanted = Wanted::default();
        let (waiting, later) = (wanted.has_left(), wanted.has_left());
        // One that waits for a process stops waiting.
        all.lock().busy = PROCESSES_MAX;
        let waited = std::thread::scope(|scope| {
            let (begin, told) = (Instant::now(), &told);
            let waits = scope.spawn(move || told(waiting));
            std::thread::park_timeout(Duration::from_millis(100));
            assert!(!waits.is_finished());
            drop(wanted);
            assert_eq!(waits.join().unwrap(), Err(FailureKind::Ended));
            begin.elapsed()
        });
        assert!(waited < QUEUE, "{waited:?}");
        all.lock().busy = 0;
        assert_eq!((told(later), started.load(SeqCst)), (Err(FailureKind::Ended), 0));
        assert_eq!((told(HasLeft::default()), started.load(SeqCst)), (Ok("1".to_owned()), 1));
    }

    #[test]
    fn a_process_that_is_short_of_memory_is_replaced_and_a_fresh_one_is_asked() {
        use FailureKind::{Memory, Thrown};
        let started = Arc::new(AtomicUsize::new(0));
        let starts = Arc::clone(&started);
        let all = Reducers::new(Arc::new(move || match starts.fetch_add(1, SeqCst) {
            0 => process(&[Ok("1"), Err(Thrown), Err(Memory)]),
            1 => process(&[Ok("2"), Err(Memory)]),
            2 => process(&[Err(Memory), Ok("nobody asks it again")]),
            _ => process(&[Ok("3")]),
        }));
        let mut reducer = all.of(definition(), HasLeft::default());
        let mut told = || {
            let reduced = reducer.reduce(0, None, &["1"]);
            (reduced.map_err(|failure| failure.kind), started.load(SeqCst))
        };
        assert_eq!(told(), (Ok("1".to_owned()), 1));
        assert_eq!(told(), (Err(Thrown), 1));
        assert_eq!(told(), (Ok("2".to_owned()), 2), "the fresh one has the memory");
        assert_eq!(told(), (Err(Memory), 3), "the function itself takes too much");
        assert_eq!(told(), (Ok("3".to_owned()), 4));
    }
}
