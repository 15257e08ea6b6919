//! Whether what a design document defines are functions. Only the JavaScript engine can tell, and it sees what users write only in
//! a process that is confined.
//!
//! Rules: a check has a process of its own and a limited time. A user makes one change at a time, with its check, and the node checks
//! a few at a time. Others wait for their turn, a few of each user; more are refused. A check whose sender has left goes on to its
//! end and keeps its turn until then.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::body::Bytes;
use cluster::auth::Identity;
use service::Context;
use tokio::{
    sync::{Mutex as Queue, OwnedMutexGuard, Semaphore},
    task::spawn_blocking,
};
use views::{
    design::{Compiler, DesignDocument, Invalid},
    js::{FailureKind, Limits, Sources},
    refusal::Refusal,
    worker::{Host, Job, Report, Settings},
};

use crate::answer::failed;

/// Checks and trials at the same time.
const CHECKS_MAX: usize = 2;
/// Changes of a user that wait for their turn, each with its body.
const WAITING_MAX: usize = 8;
/// How long the functions of one design document may take.
const TIME: Duration = Duration::from_secs(30);
/// How long a process may take beyond that, to start on a busy machine for instance.
const GRACE: Duration = Duration::from_secs(10);
/// How long one of them may take.
const TIME_OF_ONE: Duration = Duration::from_secs(5);

/// A user's turn to make a change.
pub(crate) type Turn = Arc<OwnedMutexGuard<()>>;

/// Checks functions.
pub(crate) struct Functions {
    places: Arc<Semaphore>,
    /// Users with a check under way, or that had one.
    turns: Mutex<HashMap<Identity, Arc<Queue<()>>>>,
}

impl Functions {
    pub(crate) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(CHECKS_MAX)), turns: Mutex::default() }
    }

    /// Checks a design document with its functions, in that turn of its sender.
    ///
    /// # Errors
    /// It may not be stored, or that could not be found out.
    pub(crate) async fn check(&self, context: &Context, turn: &Turn, body: Bytes) -> Result<(), Refusal> {
        if DesignDocument::parse_unchecked(&body)?.views.is_empty() {
            return Ok(());
        }
        self.with_process(context, turn, TIME, move |elsewhere| elsewhere.parse(&body).map(drop)).await
    }

    /// Has a process of its own for something with functions of a user, in that turn of the user and within `time`.
    ///
    /// # Errors
    /// Those of `work`.
    pub(crate) async fn with_process<T: Send + 'static>(
        &self,
        context: &Context,
        turn: &Turn,
        time: Duration,
        work: impl FnOnce(&mut Elsewhere) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|error| failed(error.to_string()))?;
        let (host, turn) = (host(context), Arc::clone(turn));
        let working = spawn_blocking(move || {
            let _until_it_ends = (turn, place);
            work(&mut Elsewhere::new(host, time))
        });
        working.await.unwrap_or_else(|error| Err(failed(error.to_string())))
    }

    /// Waits until it is the user's turn to make a change.
    ///
    /// # Errors
    /// Too many changes of that user wait.
    pub(crate) async fn turn(&self, user: &Identity) -> Result<Turn, Refusal> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            let user = Identity::unproved(&user.name, user.domain);
            let turn = turns.entry(user).or_default();
            // One holds it, one is in the map.
            if Arc::strong_count(turn) > WAITING_MAX + 1 {
                let reason = "Too many changes of design documents by this user wait. Try again later.";
                return Err(Refusal { status: 503, error: "error", reason: reason.into() });
            }
            Arc::clone(turn)
        };
        Ok(Arc::new(turn.lock_owned().await))
    }
}

fn host(context: &Context) -> Host {
    let limits = Limits { time: TIME_OF_ONE, ..Limits::default() };
    let functions = Arc::clone(&context.functions);
    Host::new(Settings { limits, grace: GRACE, ..Settings::default() }, move || functions())
}

/// The JavaScript engine of another process.
pub(crate) struct Elsewhere {
    host: Host,
    until: Instant,
    /// Why a check found nothing out.
    stopped: Option<Refusal>,
}

impl Compiler for Elsewhere {
    fn check(&mut self, source: &str) -> Result<(), Invalid> {
        self.ask(source).unwrap_or_else(|refusal| {
            self.stopped = Some(refusal);
            Err(Invalid::NotAFunction)
        })
    }
}

impl Elsewhere {
    fn new(host: Host, time: Duration) -> Self {
        Self { host, until: Instant::now() + time, stopped: None }
    }

    /// Blocks until all functions of a design document are checked, or the time is over.
    pub(crate) fn parse(&mut self, body: &[u8]) -> Result<DesignDocument, Refusal> {
        let checked = DesignDocument::parse(body, self);
        match self.stopped.take() {
            Some(refusal) => Err(refusal),
            None => checked,
        }
    }

    /// Gives functions a number for jobs that come later.
    pub(crate) fn define(&mut self, context: u32, sources: Sources) {
        self.host.define(context, sources, true);
    }

    /// Blocks until a job is done; `None` where the time is over before.
    pub(crate) fn do_job(&mut self, job: Job) -> Result<Option<Report>, Refusal> {
        self.host.submit(job);
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let told = self.host.turn(left).map_err(|error| no_process(&error.to_string()))?;
            match told.into_iter().next() {
                Some((_, Report::Failed(failure))) if failure.kind == FailureKind::NoProcess => {
                    return Err(no_process(&failure.text));
                }
                Some((_, report)) => return Ok(Some(report)),
                None => {}
            }
        }
    }

    fn ask(&mut self, source: &str) -> Result<Result<(), Invalid>, Refusal> {
        match self.do_job(Job::Check { source: source.to_owned() })? {
            None => Err(unchecked("they take too long")),
            Some(Report::Checked(checked)) => Ok(checked),
            Some(Report::Failed(failure)) => Err(unchecked(&failure.text)),
            Some(Report::Mapped { .. } | Report::Reduced(_)) => {
                Err(unchecked("the process answered another question"))
            }
        }
    }
}

/// The node is at fault, and not the design document.
fn no_process(why: &str) -> Refusal {
    tracing::error!(error = why, "no process can be had that checks functions of views");
    failed(format!("The functions could not be checked: {why}"))
}

fn unchecked(why: &str) -> Refusal {
    Refusal::design(format!("The functions could not be checked: {why}"))
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    use cluster::auth::Domain;

    use super::*;

    fn user(name: &str) -> Identity {
        Identity::unproved(name, Domain::Local)
    }

    fn is_ready<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_user_makes_one_change_at_a_time_and_a_few_wait() {
        let functions = Functions::new();
        let [a, b, c] = ["a", "b", "c"].map(user);
        let mut first = pin!(functions.turn(&a));
        let held = is_ready(first.as_mut()).expect("it is the user's turn").ok();
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| Box::pin(functions.turn(&a))).collect();
        for turn in &mut waiting {
            assert!(is_ready(turn.as_mut()).is_none(), "the same user waits");
        }
        let mut refused = pin!(functions.turn(&a));
        let refused = is_ready(refused.as_mut()).expect("no answer has to be waited for").err();
        assert_eq!(refused.map(|refused| refused.status), Some(503));
        let mut other = pin!(functions.turn(&b));
        assert!(is_ready(other.as_mut()).is_some_and(|turn| turn.is_ok()), "another user does not wait");
        drop(held);
        let next = is_ready(waiting[0].as_mut()).expect("it is the user's turn");
        drop((next, waiting));
        let mut last = pin!(functions.turn(&c));
        assert!(is_ready(last.as_mut()).is_some_and(|turn| turn.is_ok()));
        assert_eq!(functions.turns.lock().map(|turns| turns.len()).ok(), Some(1), "the others are forgotten");
    }

    #[test]
    fn a_node_that_cannot_run_functions_does_not_blame_the_design_document() {
        for program in ["/nonexistent", "/bin/false"] {
            let host = Host::new(Settings::default(), move || std::process::Command::new(program));
            let refused = Elsewhere::new(host, TIME).parse(br#"{"views":{"v":{"map":"function(doc){}"}}}"#);
            let refused = refused.expect_err("nothing was found out");
            assert_eq!((refused.status, refused.error), (500, "error"), "{program}: {}", refused.reason);
        }
    }

    #[test]
    fn a_check_ends_with_its_time() {
        let host = Host::new(Settings::default(), || unreachable!("no time is left for a process"));
        let refused =
            Elsewhere::new(host, Duration::ZERO).parse(br#"{"views":{"v":{"map":"function(doc){}"}}}"#);
        let refused = refused.expect_err("nothing was found out");
        assert_eq!((refused.status, refused.error), (400, "invalid_design_document"));
        assert!(refused.reason.ends_with("they take too long"), "{}", refused.reason);
    }
}
