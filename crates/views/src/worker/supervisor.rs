//! Decides what a worker is asked, and what becomes of what it was asked when it hangs or ends.
//!
//! A worker has one request at a time. Documents go to it in batches. When it ends within a batch, the documents that
//! it had told of are done. The others go to the next process one by one, until it is found which document ends a
//! process: that one is reported, and skipped. A process that says nothing for as long as one document may take, and a
//! little longer, is ended.
//!
//! Time comes from outside, and so does what a process says: what is said out of turn ends it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::wire::{FRAME_BYTES_MAX, Frames, Reply, Request};
use crate::{
    design::Invalid,
    js::{Body, Document, Failure, FailureKind, Limits, Mapped, Sources},
};

/// The number of a job.
pub type JobId = u64;

/// How workers are kept.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What functions may take.
    pub limits: Limits,
    /// How much longer than its functions a process may say nothing.
    pub grace: Duration,
    /// So many processes that end without having answered anything are too many.
    pub starts_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { limits: Limits::default(), grace: Duration::from_secs(2), starts_max: 5 }
    }
}

/// A document that waits for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedDocument {
    /// The text of `meta`.
    pub meta: String,
    /// The body.
    pub body: OwnedBody,
}

/// Its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedBody {
    /// Not looked at.
    Unused,
    /// JSON.
    Json(String),
    /// Something else.
    Binary(Vec<u8>),
    /// The members of an object that functions look at.
    Part {
        /// The text of an object with these members.
        text: String,
        /// How long the whole text is.
        whole_bytes: u32,
    },
}

/// A frame has no more than so many bytes beside its documents.
const HEAD_BYTES: usize = 64;

impl OwnedDocument {
    /// About how many bytes it takes in a frame.
    fn bytes(&self) -> usize {
        let body = match &self.body {
            OwnedBody::Unused => 0,
            OwnedBody::Json(text) | OwnedBody::Part { text, .. } => text.len(),
            OwnedBody::Binary(bytes) => bytes.len(),
        };
        self.meta.len() + body + 16
    }

    fn borrowed(&self) -> Document<'_> {
        let body = match &self.body {
            OwnedBody::Unused => Body::Unused,
            OwnedBody::Json(text) => Body::Json(text),
            OwnedBody::Binary(bytes) => Body::Binary(bytes),
            OwnedBody::Part { text, whole_bytes } => Body::Part { text, whole_bytes: *whole_bytes },
        };
        Document { meta: &self.meta, body }
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// To map documents.
    Map {
        /// The functions.
        context: u32,
        /// The documents.
        documents: Vec<OwnedDocument>,
    },
    /// To reduce.
    Reduce {
        /// The functions.
        context: u32,
        /// Which of the reductions.
        function: u16,
        /// The keys, when rows are reduced.
        keys: Option<Vec<String>>,
        /// The values.
        values: Vec<String>,
    },
    /// To check a function.
    Check {
        /// The source.
        source: String,
    },
}

impl Job {
    fn context(&self) -> Option<u32> {
        match self {
            Self::Map { context, .. } | Self::Reduce { context, .. } => Some(*context),
            Self::Check { .. } => None,
        }
    }
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Documents were mapped; more of them may follow.
    Mapped {
        /// The place of the first of these in the job.
        first: usize,
        /// What became of them.
        documents: Vec<Mapped>,
        /// These were the last.
        last: bool,
    },
    /// Values were reduced.
    Reduced(Result<String, Failure>),
    /// A function was checked.
    Checked(Result<(), Invalid>),
    /// The job could not be done: its functions do not compile, or no process stays alive.
    Failed(Failure),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A process is to be started.
    Start,
    /// It is to be sent these bytes.
    Send(Vec<u8>),
    /// It is to be ended.
    Kill,
    /// A job got further.
    Tell(JobId, Report),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No process.
    Down,
    /// A process that has not said that it runs.
    Starting,
    /// A process without a request.
    Idle,
    /// A process that loads functions.
    Loading(u32),
    /// A process with the running job.
    Busy,
    /// A process that was ended and may still say something.
    Ending,
}

struct Running {
    id: JobId,
    job: Job,
    /// How many documents are done, and how many the process has now.
    done: usize,
    sent: usize,
    /// How many the request has that these belong to.
    batch: usize,
    /// Documents go one by one.
    careful: bool,
    /// How many processes ended with this job, other than within a batch.
    deaths: u32,
}

/// Keeps one worker.
pub struct Supervisor {
    settings: Settings,
    contexts: BTreeMap<u32, (Sources, bool)>,
    loaded: BTreeSet<u32>,
    /// Functions that the process still has and nobody needs.
    dropped: BTreeSet<u32>,
    queue: VecDeque<(JobId, Job)>,
    running: Option<Running>,
    state: State,
    deadline: Option<Duration>,
    frames: Frames,
    starts: u32,
    next_id: JobId,
    actions: Vec<Action>,
}

impl Supervisor {
    /// No process, and nothing to do.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            contexts: BTreeMap::new(),
            loaded: BTreeSet::new(),
            dropped: BTreeSet::new(),
            queue: VecDeque::new(),
            running: None,
            state: State::Down,
            deadline: None,
            frames: Frames::up_to(FRAME_BYTES_MAX),
            starts: 0,
            next_id: 0,
            actions: Vec::new(),
        }
    }

    /// Names functions, for jobs that come later.
    pub fn define(&mut self, context: u32, sources: Sources, analysed: bool) {
        self.loaded.remove(&context);
        self.contexts.insert(context, (sources, analysed));
    }

    /// Forgets functions. The process lets go of them when it is asked for something else.
    pub fn forget(&mut self, context: u32) {
        self.contexts.remove(&context);
        if self.loaded.remove(&context) {
            self.dropped.insert(context);
        }
    }

    /// Takes a job.
    pub fn submit(&mut self, job: Job) -> JobId {
        self.next_id += 1;
        self.queue.push_back((self.next_id, job));
        self.next_id
    }

    /// Whether nothing waits, runs, or is still to be told.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_none() && self.queue.is_empty() && self.actions.is_empty()
    }

    /// Until when nothing has to be done, unless the process says something.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// What is to be done now.
    pub fn turn(&mut self, now: Duration) -> Vec<Action> {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.kill();
        }
        self.proceed(now);
        std::mem::take(&mut self.actions)
    }

    /// Takes what the process said.
    pub fn received(&mut self, bytes: &[u8], now: Duration) {
        if matches!(self.state, State::Down | State::Ending) {
            return;
        }
        self.frames.push(bytes);
        loop {
            let reply = match self.frames.next_frame() {
                Ok(None) => return,
                Ok(Some(frame)) => Reply::decode(frame),
                Err(length) => Err(length.into()),
            };
            let fits = reply.is_ok_and(|reply| self.reply(reply, now).is_some());
            if !fits {
                self.kill();
                return;
            }
        }
    }

    /// Hears that the process ended.
    pub fn ended(&mut self) {
        let before = std::mem::replace(&mut self.state, State::Down);
        self.deadline = None;
        self.frames = Frames::up_to(FRAME_BYTES_MAX);
        self.loaded.clear();
        self.dropped.clear();
        self.starts += 1;
        let Some(running) = &mut self.running else { return };
        if running.sent == 1 && running.careful {
            // One document was with the process, and the one before had ended too: it was this one.
            running.done += 1;
            running.sent = 0;
            self.starts = 0;
            let rows = Err(Failure::new(FailureKind::Ended, "the process that ran the function ended"));
            self.tell_mapped(vec![Mapped { rows, logs: Vec::new() }]);
        } else if running.sent > 0 {
            // It may have been a document, or the process had ended before it was given any.
            running.sent = 0;
            running.careful = true;
            self.starts = 0;
        } else if before != State::Starting {
            running.deaths += 1;
            if running.deaths > 1 {
                self.fail(Failure::new(FailureKind::Ended, "the process that ran the function ended"));
            }
        }
    }

    fn kill(&mut self) {
        if !matches!(self.state, State::Down | State::Ending) {
            self.state = State::Ending;
            self.actions.push(Action::Kill);
        }
        self.deadline = None;
    }

    fn wait(&mut self, now: Duration) {
        self.deadline = Some(now + self.settings.limits.time + self.settings.grace);
    }

    /// Ends the running job without a result.
    fn fail(&mut self, failure: Failure) {
        if let Some(running) = self.running.take() {
            self.actions.push(Action::Tell(running.id, Report::Failed(failure)));
        }
    }

    /// Tells of the documents before `done`, the last of which these are.
    fn tell_mapped(&mut self, documents: Vec<Mapped>) {
        let Some(running) = &self.running else { return };
        let Job::Map { documents: all, .. } = &running.job else { return };
        let last = running.done >= all.len();
        let first = running.done.saturating_sub(documents.len());
        self.actions.push(Action::Tell(running.id, Report::Mapped { first, documents, last }));
        if last {
            self.running = None;
        }
    }

    fn proceed(&mut self, now: Duration) {
        loop {
            if self.running.is_none() {
                let Some((id, job)) = self.queue.pop_front() else { return };
                self.running =
                    Some(Running { id, job, done: 0, sent: 0, batch: 0, careful: false, deaths: 0 });
            }
            match self.state {
                State::Down if self.starts >= self.settings.starts_max => {
                    self.fail(Failure::new(
                        FailureKind::NoProcess,
                        "no process that runs functions stays alive",
                    ));
                    if self.queue.is_empty() {
                        self.starts = 0;
                        return;
                    }
                }
                State::Down => {
                    self.state = State::Starting;
                    self.wait(now);
                    self.actions.push(Action::Start);
                    return;
                }
                State::Idle => {
                    if self.ask(now).is_some() {
                        return;
                    }
                }
                _ => return,
            }
        }
    }

    /// Sends what the running job needs next. `None` where that ended the job.
    fn ask(&mut self, now: Duration) -> Option<()> {
        let running = self.running.as_mut()?;
        let mut frame = Vec::new();
        let context = running.job.context().filter(|context| !self.loaded.contains(context));
        let (state, encoded) = if let Some(context) = context {
            let Some((sources, analysed)) = self.contexts.get(&context) else {
                self.fail(Failure::new(FailureKind::NotAFunction, "no such functions"));
                return None;
            };
            let (sources, limits) = (sources.clone(), self.settings.limits);
            let load = Request::Load { context, limits, analysed: *analysed, sources };
            (State::Loading(context), load.encode(&mut frame))
        } else {
            (State::Busy, running.encode(&mut frame))
        };
        if encoded.is_err() {
            self.fail(Failure::new(FailureKind::Document, "too large for a process that runs functions"));
            return None;
        }
        if matches!(&running.job, Job::Map { documents, .. } if documents.is_empty()) {
            self.tell_mapped(Vec::new());
            return None;
        }
        self.state = state;
        self.wait(now);
        for context in std::mem::take(&mut self.dropped) {
            let mut frame = Vec::new();
            // A frame of nothing but a number is not too large.
            let _ = Request::Drop { context }.encode(&mut frame);
            self.actions.push(Action::Send(frame));
        }
        self.actions.push(Action::Send(frame));
        Some(())
    }

    /// Takes a reply, or says `None` where it is out of turn.
    fn reply(&mut self, reply: Reply, now: Duration) -> Option<()> {
        if !matches!(reply, Reply::Ready) {
            self.starts = 0;
        }
        match (reply, self.state) {
            (Reply::Ready, State::Starting) => self.rest(),
            (Reply::Loaded { context, result }, State::Loading(asked)) if context == asked => {
                self.rest();
                match result {
                    Ok(()) => drop(self.loaded.insert(context)),
                    Err(failure) => self.fail(failure),
                }
            }
            (Reply::Mapped { id, first, documents }, State::Busy) => {
                let running = self.running.as_mut().filter(|running| running.id == id)?;
                let count = documents.len();
                let in_turn =
                    usize::try_from(first).ok()? == running.told() && count > 0 && count <= running.sent;
                in_turn.then_some(())?;
                running.done += count;
                running.sent -= count;
                if running.sent == 0 {
                    self.rest()
                } else {
                    self.wait(now)
                }
                self.tell_mapped(documents);
            }
            (Reply::Reduced { id, result }, State::Busy) => self.finish(id, Report::Reduced(result))?,
            (Reply::Checked { id, result }, State::Busy) => self.finish(id, Report::Checked(result))?,
            _ => return None,
        }
        Some(())
    }

    fn rest(&mut self) {
        self.state = State::Idle;
        self.deadline = None;
    }

    fn finish(&mut self, id: JobId, report: Report) -> Option<()> {
        let running = self.running.take_if(|running| running.id == id)?;
        let fits = matches!(
            (&running.job, &report),
            (Job::Reduce { .. }, Report::Reduced(_)) | (Job::Check { .. }, Report::Checked(_))
        );
        if !fits {
            self.running = Some(running);
            return None;
        }
        self.actions.push(Action::Tell(id, report));
        self.rest();
        Some(())
    }
}

impl Running {
    /// How many documents of the request that the process has now it has told of.
    fn told(&self) -> usize {
        self.batch - self.sent
    }

    fn encode(&mut self, frame: &mut Vec<u8>) -> Result<(), super::wire::Damaged> {
        match &self.job {
            Job::Map { context, documents } => {
                let rest = documents.get(self.done..).unwrap_or_default();
                let batch = if self.careful { rest.get(..1).unwrap_or_default() } else { rest };
                self.sent = batch.len();
                self.batch = batch.len();
                frame.reserve(batch.iter().map(OwnedDocument::bytes).sum::<usize>() + HEAD_BYTES);
                let documents = batch.iter().map(OwnedDocument::borrowed).collect();
                Request::Map { id: self.id, context: *context, documents }.encode(frame)
            }
            Job::Reduce { context, function, keys, values } => {
                let keys = keys.as_ref().map(|keys| keys.iter().map(String::as_str).collect());
                let values = values.iter().map(String::as_str).collect();
                Request::Reduce { id: self.id, context: *context, function: *function, keys, values }
                    .encode(frame)
            }
            Job::Check { source } => Request::Check { id: self.id, source }.encode(frame),
        }
    }
}

#[cfg(test)]
mod tests;
