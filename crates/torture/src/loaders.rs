//! The loaders: clients that write in a tight loop, whatever the node says.
//!
//! Each owns every n-th document. A refusal is sent again at once, without a pause: that is what the clients of the
//! report did, and what a node must stand. A broken connection is made again, and what was under way on it is written
//! again as it was.

use crate::TortureError;
use crate::documents::Documents;
use crate::ledger::{Known, Ledger};
use crate::pipeline::{Answer, Pipeline};
use crate::target::Target;
use base::{Status, VbId};
use client::ClientError;
use load::Latencies;
use protocol::binary::extras::StoreExtras;
use protocol::binary::{Opcode, Request};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What SDKs wait for an operation by default; a later answer is one too many.
pub const SDK_TIMEOUT: Duration = Duration::from_millis(2_500);
/// How long a client without a task or a node sleeps.
const NAP: Duration = Duration::from_millis(20);
/// One document in so many is the probe's: nobody else writes or deletes it after it was inserted.
const PROBES_SHARE: u64 = 64;
/// Documents that are drawn before a loader gives up to find one that it may overwrite.
const DRAWS_MAX: usize = 16;
/// Different texts of refusals that are kept.
const REASONS_MAX: usize = 16;

/// Whether a document is the probe's.
#[must_use]
pub const fn is_probes(index: u64) -> bool {
    index % PROBES_SHARE == PROBES_SHARE - 1
}

/// What the loaders do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Task {
    /// Nothing; what is under way is waited for.
    Pause,
    /// Insert new documents up to the number asked for.
    Fill,
    /// Insert new documents and overwrite old ones by turns, without end.
    GoOn,
    /// Overwrite old documents, without end.
    Update,
    /// End.
    Quit,
}

/// What came of requests.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Answers by status.
    pub codes: BTreeMap<u16, u64>,
    /// Of successes.
    pub latencies: Latencies,
    /// The longest of any answer.
    pub slowest: Duration,
    /// Answers of any status after more than [`SDK_TIMEOUT`].
    pub late: u64,
    /// Connections that broke.
    pub breaks: u64,
    /// What the node said about refusals.
    pub reasons: BTreeMap<String, u64>,
}

impl Tally {
    pub(crate) fn note<T>(&mut self, answer: &Answer<T>) {
        *self.codes.entry(answer.code).or_default() += 1;
        self.slowest = self.slowest.max(answer.took);
        self.late += u64::from(answer.took > SDK_TIMEOUT);
        if answer.is(Status::Success) {
            self.latencies.record(u64::try_from(answer.took.as_nanos()).unwrap_or(u64::MAX));
        } else {
            let reason = String::from_utf8_lossy(&answer.value).into_owned();
            if self.reasons.len() < REASONS_MAX || self.reasons.contains_key(&reason) {
                *self.reasons.entry(reason).or_default() += 1;
            }
        }
    }

    /// All of `other` as well.
    pub fn merge(&mut self, other: &Tally) {
        for (&code, count) in &other.codes {
            *self.codes.entry(code).or_default() += count;
        }
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
        self.latencies.merge(&other.latencies);
        self.slowest = self.slowest.max(other.slowest);
        self.late += other.late;
        self.breaks += other.breaks;
    }

    /// Answers of this status.
    #[must_use]
    pub fn count(&self, status: Status) -> u64 {
        self.codes.get(&status.code()).copied().unwrap_or(0)
    }

    /// Errors as a client counts them: answers of other statuses than these, late ones, and connections that broke.
    #[must_use]
    pub fn errors(&self, expected: &[Status]) -> u64 {
        let expected: u64 = expected.iter().map(|status| self.count(*status)).sum();
        self.codes.values().sum::<u64>() - expected + self.late + self.breaks
    }

    /// Answers that were neither of these statuses, named.
    #[must_use]
    pub fn others(&self, expected: &[Status]) -> Vec<String> {
        let known = |code: u16| expected.iter().any(|status| status.code() == code);
        let name = |code: u16| Status::from_wire(code).map_or("unknown status", Status::text);
        let others = self.codes.iter().filter(|&(&code, _)| !known(code));
        others.map(|(&code, count)| format!("{count} x {} (0x{code:02x})", name(code))).collect()
    }
}

/// A tally that a client adds to while the scenario looks.
pub(crate) type SharedTally = Mutex<Tally>;

pub(crate) fn locked(tally: &SharedTally) -> MutexGuard<'_, Tally> {
    // A client that panicked has made its numbers no worse.
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Shared {
    documents: Arc<Documents>,
    ledger: Arc<Ledger>,
    task: AtomicU8,
    /// Documents that [`Task::Fill`] inserts.
    fill: u64,
    /// Below this, nothing is overwritten.
    keep_from: AtomicU64,
    /// Documents that were inserted.
    inserted: AtomicU64,
    under_way: AtomicUsize,
    /// Writes that may still begin while there is a pace.
    allowed: AtomicU64,
    is_paced: AtomicBool,
    /// See [`Crew::spare`].
    spared: Mutex<Arc<BTreeSet<VbId>>>,
    tally: SharedTally,
}

/// All loaders of a run.
pub struct Crew {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// How many loaders there are, and how hard they press.
#[derive(Clone, Copy, Debug)]
pub struct Pressure {
    /// Clients, with one connection to each node.
    pub loaders: usize,
    /// Requests that each keeps under way.
    pub window: usize,
    /// Documents that [`Task::Fill`] inserts.
    pub fill: u64,
}

impl Crew {
    /// Starts them, paused.
    ///
    /// # Errors
    /// The target cannot be reached.
    pub fn start(
        target: &dyn Target,
        documents: &Arc<Documents>,
        ledger: &Arc<Ledger>,
        pressure: Pressure,
    ) -> Result<Crew, TortureError> {
        let shared = Arc::new(Shared {
            documents: Arc::clone(documents),
            ledger: Arc::clone(ledger),
            task: AtomicU8::new(Task::Pause as u8),
            fill: pressure.fill,
            keep_from: AtomicU64::new(0),
            inserted: AtomicU64::new(0),
            under_way: AtomicUsize::new(0),
            allowed: AtomicU64::new(0),
            is_paced: AtomicBool::new(false),
            spared: Mutex::default(),
            tally: Mutex::default(),
        });
        let mut threads = Vec::new();
        for number in 0..pressure.loaders {
            let loader = Loader {
                pipeline: Pipeline::open(target)?,
                shared: Arc::clone(&shared),
                window: pressure.window,
                step: pressure.loaders as u64,
                next: number as u64,
                again: VecDeque::new(),
                later: VecDeque::new(),
                rng: fastrand::Rng::with_seed(number as u64),
                key: String::new(),
                value: Vec::new(),
            };
            threads
                .push(std::thread::Builder::new().name(format!("loader {number}")).spawn(|| loader.run())?);
        }
        Ok(Crew { shared, threads })
    }

    /// Gives all of them a task.
    pub fn set(&self, task: Task) {
        self.shared.task.store(task as u8, Ordering::Release);
    }

    /// From now on as many writes begin as [`Crew::allow`] says, or as can.
    pub fn pace(&self, is_paced: bool) {
        self.allow(0);
        self.shared.is_paced.store(is_paced, Ordering::Release);
    }

    /// So many more writes may begin. What was allowed before and has not begun is too late.
    pub fn allow(&self, writes: u64) {
        self.shared.allowed.store(writes, Ordering::Release);
    }

    /// No new documents of these vBuckets are inserted until others are named.
    pub fn spare(&self, vbuckets: BTreeSet<VbId>) {
        *self.shared.spared.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(vbuckets);
    }

    /// From now on documents below this number are somebody else's.
    pub fn keep_from(&self, index: u64) {
        self.shared.keep_from.store(index, Ordering::Release);
    }

    /// Documents that were inserted.
    #[must_use]
    pub fn inserted(&self) -> u64 {
        self.shared.inserted.load(Ordering::Acquire)
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.shared.under_way.load(Ordering::Acquire) == 0
    }

    /// Everything since the start.
    #[must_use]
    pub fn tally(&self) -> Tally {
        locked(&self.shared.tally).clone()
    }

    /// Ends them.
    ///
    /// # Errors
    /// One of them had panicked.
    pub fn finish(self) -> Result<(), TortureError> {
        self.set(Task::Quit);
        self.threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| TortureError::Thread))
    }
}

/// A write that is under way.
struct Write {
    index: u64,
    version: u32,
    /// What was known before.
    was: Known,
}

struct Loader {
    pipeline: Pipeline<Write>,
    shared: Arc<Shared>,
    window: usize,
    step: u64,
    /// Next document to insert.
    next: u64,
    /// Documents whose write was refused or went unanswered.
    again: VecDeque<u64>,
    /// Documents of spared vBuckets.
    later: VecDeque<u64>,
    rng: fastrand::Rng,
    key: String,
    value: Vec<u8>,
}

impl Loader {
    fn run(mut self) {
        loop {
            let task = self.shared.task.load(Ordering::Acquire);
            if task == Task::Quit as u8 {
                return;
            }
            if self.turn(task).is_err() {
                let lost = self.pipeline.abandon();
                self.shared.under_way.fetch_sub(lost.len(), Ordering::AcqRel);
                locked(&self.shared.tally).breaks += u64::from(!lost.is_empty());
                self.again.extend(lost.iter().map(|write| write.index));
                std::thread::sleep(NAP);
            }
        }
    }

    /// Fills the window, sends, and takes the answers that are there.
    fn turn(&mut self, task: u8) -> Result<(), ClientError> {
        while self.pipeline.under_way() < self.window && self.may_begin() {
            let Some(index) = self.choose(task) else { break };
            self.push(index)?;
        }
        if self.pipeline.under_way() == 0 {
            std::thread::sleep(NAP);
            return Ok(());
        }
        self.pipeline.send()?;
        loop {
            let Some(answer) = self.pipeline.pull()? else { return Ok(()) };
            self.shared.under_way.fetch_sub(1, Ordering::AcqRel);
            self.take(answer);
            if !self.pipeline.is_ready() {
                return Ok(());
            }
        }
    }

    fn choose(&mut self, task: u8) -> Option<u64> {
        let updates = task == Task::Update as u8;
        let goes_on = updates || task == Task::GoOn as u8;
        if !goes_on && task != Task::Fill as u8 {
            return None;
        }
        let spared = Arc::clone(&self.shared.spared.lock().unwrap_or_else(PoisonError::into_inner));
        if spared.is_empty() {
            self.again.append(&mut self.later);
        }
        if let Some(index) = self.again.pop_front() {
            return Some(index);
        }
        let limit = if goes_on { self.shared.ledger.capacity() } else { self.shared.fill };
        let is_full = updates || self.next >= limit;
        if goes_on && (is_full || self.rng.bool()) {
            for _ in 0..DRAWS_MAX {
                let drawn = self.draw();
                if self.may_overwrite(drawn) {
                    return Some(drawn);
                }
            }
        }
        while !is_full && self.next < limit {
            let index = self.next;
            self.next += self.step;
            if spared.is_empty() || !self.is_in(index, &spared) {
                return Some(index);
            }
            self.later.push_back(index);
        }
        None
    }

    fn is_in(&mut self, index: u64, vbuckets: &BTreeSet<VbId>) -> bool {
        self.shared.documents.key(index, &mut self.key);
        vbuckets.contains(&self.pipeline.vbucket_of(&self.key))
    }

    /// Whether a write may begin now, which is counted.
    fn may_begin(&self) -> bool {
        let one_less = |left: u64| left.checked_sub(1);
        !self.shared.is_paced.load(Ordering::Acquire)
            || self.shared.allowed.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok()
    }

    /// A document that this loader has inserted, or the next one.
    fn draw(&mut self) -> u64 {
        self.rng.u64(0..self.next / self.step + 1) * self.step + self.next % self.step
    }

    fn may_overwrite(&self, index: u64) -> bool {
        let known = self.shared.ledger.known(index);
        let is_mine = index >= self.shared.keep_from.load(Ordering::Acquire) && !is_probes(index);
        is_mine && known.is_written() && !known.is_ambiguous()
    }

    fn push(&mut self, index: u64) -> Result<(), ClientError> {
        let ledger = &self.shared.ledger;
        let was = ledger.known(index);
        let version = ledger.begin_write(index);
        self.shared.documents.key(index, &mut self.key);
        self.shared.documents.value(index, version, &mut self.value);
        let extras = StoreExtras { flags: 0, expiry: 0 }.encode();
        let request = Request {
            key: self.key.as_bytes(),
            value: &self.value,
            extras: &extras,
            ..Request::new(Opcode::Set)
        };
        if let Err(error) = self.pipeline.push(&request, Write { index, version, was }) {
            // Nothing was sent.
            ledger.refused(index, was);
            self.again.push_back(index);
            return Err(error);
        }
        self.shared.under_way.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn take(&mut self, answer: Answer<Write>) {
        locked(&self.shared.tally).note(&answer);
        let Write { index, version, was } = answer.tag;
        if answer.code == Status::Success.code() {
            self.shared.ledger.written(index, version, answer.seqno.unwrap_or(0));
            self.shared.inserted.fetch_add(u64::from(version == 1), Ordering::AcqRel);
        } else {
            self.shared.ledger.refused(index, was);
            self.again.push_back(index);
        }
    }
}
