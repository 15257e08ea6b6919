//! The reader: holds every document that a run ever wrote against what was promised about it.

use crate::TortureError;
use crate::documents::Documents;
use crate::ledger::{Known, Ledger};
use crate::loaders::{SDK_TIMEOUT, Tally};
use crate::pipeline::{Answer, Pipeline};
use crate::target::Target;
use base::Status;
use client::ClientError;
use protocol::binary::{Opcode, Request};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Reads under way.
const WINDOW: usize = 128;
/// Contradictions that are told one by one.
const WRONG_MAX: usize = 10;
/// A document is read so often before its refusal counts as its answer.
const ATTEMPTS: u32 = 1_000;

/// What was found.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Documents that were read.
    pub read: u64,
    /// Documents that were there.
    pub present: u64,
    /// Documents that had to be there and were not.
    pub lost: u64,
    /// Documents with other content than promised, or that should not be there.
    pub wrong: u64,
    /// The first of both.
    pub examples: Vec<String>,
    /// Statuses and latencies.
    pub tally: Tally,
    /// How long it took.
    pub took: Duration,
}

impl Verdict {
    /// Whether nothing contradicts the ledger.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.lost == 0 && self.wrong == 0
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdict { read, present, lost, wrong, .. } = self;
        let (seconds, late) = (self.took.as_secs_f64(), self.tally.late);
        write!(
            f,
            "{read} read in {seconds:.1} s, {present} present, {lost} lost, {wrong} wrong, {late} answered "
        )?;
        write!(f, "after more than {:.1} s", SDK_TIMEOUT.as_secs_f64())?;
        self.examples.iter().try_for_each(|example| write!(f, "\n           {example}"))
    }
}

/// Reads all documents that were ever written; nobody may write meanwhile.
///
/// # Errors
/// The target cannot be reached, or the connection breaks.
pub fn verify(target: &dyn Target, documents: &Documents, ledger: &Ledger) -> Result<Verdict, TortureError> {
    let mut reading =
        Reading { pipeline: Pipeline::open(target)?, documents, ledger, verdict: Verdict::default() };
    let began = Instant::now();
    reading.run()?;
    reading.verdict.took = began.elapsed();
    Ok(reading.verdict)
}

struct Reading<'a> {
    pipeline: Pipeline<(u64, u32)>,
    documents: &'a Documents,
    ledger: &'a Ledger,
    verdict: Verdict,
}

impl Reading<'_> {
    fn run(&mut self) -> Result<(), ClientError> {
        let mut key = String::new();
        let mut again: VecDeque<(u64, u32)> = VecDeque::new();
        let ledger = self.ledger;
        let mut next = (0..ledger.capacity()).filter(|&index| ledger.known(index) != Known::default());
        loop {
            while self.pipeline.under_way() < WINDOW {
                let Some(tag) = again.pop_front().or_else(|| next.next().map(|index| (index, 1))) else {
                    break;
                };
                self.documents.key(tag.0, &mut key);
                self.pipeline.push(&Request { key: key.as_bytes(), ..Request::new(Opcode::Get) }, tag)?;
            }
            self.pipeline.send()?;
            let Some(answer) = self.pipeline.pull()? else { return Ok(()) };
            again.extend(self.take(&answer));
            while self.pipeline.is_ready() {
                let Some(answer) = self.pipeline.pull()? else { return Ok(()) };
                again.extend(self.take(&answer));
            }
        }
    }

    /// Judges an answer; returns what must be read again.
    fn take(&mut self, answer: &Answer<(u64, u32)>) -> Option<(u64, u32)> {
        self.verdict.tally.note(answer);
        let (index, attempt) = answer.tag;
        let found = if answer.is(Status::Success) {
            match self.documents.version_of(index, &answer.value) {
                Some(version) => Some(version),
                None => {
                    self.verdict.read += 1;
                    self.verdict.wrong += 1;
                    self.tell(format!("document {index}: {} bytes that nobody wrote", answer.value.len()));
                    return None;
                }
            }
        } else if answer.is(Status::KeyNotFound) || attempt >= ATTEMPTS {
            None
        } else {
            return Some((index, attempt + 1));
        };
        self.judge(index, found);
        None
    }

    fn judge(&mut self, index: u64, found: Option<u32>) {
        let known = self.ledger.known(index);
        self.verdict.read += 1;
        self.verdict.present += u64::from(found.is_some());
        if known.allows(found) {
            return;
        }
        match found {
            None => self.verdict.lost += 1,
            Some(_) => self.verdict.wrong += 1,
        }
        self.tell(format!("document {index}: found {found:?}, known {known:?}"));
    }

    fn tell(&mut self, what: String) {
        if self.verdict.examples.len() < WRONG_MAX {
            self.verdict.examples.push(what);
        }
    }
}
