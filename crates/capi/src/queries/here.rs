//! What this node has of an answer: the state of an index that a query may see, over vBuckets that the node serves.
//!
//! - The node answers for no vBucket that it does not serve. An old index would repeat rows of the node that serves it, or lack newer ones.
//! - At `stale=false` the node reads the newest seqnos while it serves the vBuckets. It answers once its index has come so far, if it
//!   serves them still, in the same terms.
//! - An answer holds nothing of its bucket: a client may read it at any later time, or never. Where the bucket is dropped meanwhile, its
//!   memory and its files go. The answer ends with an error then.
//! - At any other `stale` a query waits for a moment where the vBucket has just come or the index is new. An error behind the rows tells
//!   how many vBuckets are lacking after that.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use base::{Seqno, VbId, VbRole, VbUuid};
use indexer::{WaitError, Wants};
use views::{
    design::{Signature, is_development},
    index::{
        self, Definition, Functions, IndexError, Pull, Snapshot, Source, SourceError, VbSet, wire::Question,
    },
    query::{Query, Stale},
};

/// An index that is new, or has just got a vBucket, is waited for so long by queries that take it as it is.
const BUILDING: Duration = Duration::from_secs(10);
/// Between two looks at whether there is still reason to wait.
const LOOK: Duration = Duration::from_millis(100);
/// How an answer ends whose bucket has gone.
const GONE: &str = "the bucket was dropped or flushed before the answer had all rows";
/// What this node calls itself in answers.
pub(crate) const HERE: &str = "local";

/// What a node has of a bucket.
pub(crate) trait Holding: Send + Sync {
    /// Whether the node may serve what it is the active of.
    fn may_serve(&self) -> bool;
    /// Role and term of a copy.
    fn role_and_term(&self, vb: VbId) -> (VbRole, u64);
    /// The branch and the last seqno of a copy.
    fn newest(&self, vb: VbId) -> Option<(VbUuid, Seqno)>;
    /// Documents of the vBuckets that are served here.
    fn documents(&self) -> u64;
    /// See [`indexer::Indexer::look`].
    fn look(&self, signature: &Signature, vbs: &VbSet) -> Option<(Option<Snapshot>, VbSet)>;
    /// See [`indexer::Indexer::wait_for`].
    fn wait_for(&self, signature: &Signature, wanted: &Wants, until: Instant) -> Result<Snapshot, WaitError>;
    /// See [`indexer::Indexer::ask`].
    fn ask(&self, signature: &Signature, wanted: &Wants);
    /// Counts an answer.
    fn count_query(&self) {}
    /// See [`indexer::Indexer::report_damage`].
    fn report_damage(&self, signature: &Signature, opening: u64);
    /// What is there for as long as the bucket is.
    fn life(&self) -> Weak<dyn Send + Sync>;
}

/// Why a node does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another node does, or this one a moment later.
    Again(String),
    /// Asking once more is of no use.
    Failed(String),
}

/// What marks a refusal on its way to the asker after which it is worth to ask again.
const AGAIN: &str = "again: ";

impl Refused {
    /// As another node is told.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Again(why) => format!("{AGAIN}{why}"),
            Self::Failed(why) => why,
        }
    }

    /// As another node told it.
    pub(crate) fn of(text: String) -> Self {
        match text.strip_prefix(AGAIN) {
            Some(why) => Self::Again(why.to_owned()),
            None => Self::Failed(text),
        }
    }
}

/// The answer of this node.
pub(crate) struct Local {
    answer: Option<index::Answer>,
    /// Taken of the answer, and not given yet.
    first: Option<(usize, index::Item)>,
    /// What is told behind the rows.
    incomplete: Option<String>,
    definition: Option<Arc<Definition>>,
    home: Weak<dyn Holding>,
    /// See [`Holding::life`].
    life: Weak<dyn Send + Sync>,
    signature: Signature,
    /// See [`Snapshot::opening`].
    opening: Option<u64>,
}

impl Local {
    /// What the index is of, where there is one.
    pub(crate) fn definition(&self) -> Option<Arc<Definition>> {
        self.definition.clone()
    }

    /// Passes by rows; see [`index::Answer::skip`].
    pub(crate) fn skip(&mut self, rows: u64) -> u64 {
        self.answer.as_mut().map_or(rows, |answer| answer.skip(rows))
    }

    /// Takes the first item. Where that fails, the client can still be told so by the status.
    pub(crate) fn begin(&mut self, functions: &mut dyn Functions) -> Result<(), String> {
        match self.answer.as_mut().map_or(Ok(None), |answer| answer.next(functions)) {
            Ok(first) => {
                self.first = first;
                Ok(())
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// The next item.
    pub(crate) fn next(
        &mut self,
        functions: &mut dyn Functions,
    ) -> Result<Option<(usize, index::Item)>, String> {
        if self.life.strong_count() == 0 {
            // Rows of a bucket that is gone are of no use, and its index is to go as well.
            (self.answer, self.first, self.incomplete) = (None, None, None);
            return Err(GONE.to_owned());
        }
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let next = self.answer.as_mut().map_or(Ok(None), |answer| answer.next(functions));
        match next {
            Ok(Some(item)) => Ok(Some(item)),
            Ok(None) => self.incomplete.take().map_or(Ok(None), Err),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// What is lacking, which is told behind the rows.
    pub(crate) fn incomplete(&self) -> Option<&str> {
        self.incomplete.as_deref()
    }

    /// See [`index::Answer::total_rows`].
    pub(crate) fn rows(&self) -> u64 {
        self.answer.as_ref().map_or(0, index::Answer::total_rows)
    }

    fn failed(&self, error: &IndexError) -> String {
        if error.needs_rebuild()
            && let Some((home, opening)) = self.home.upgrade().zip(self.opening)
        {
            home.report_damage(&self.signature, opening);
        }
        error.to_string()
    }
}

impl Source for Local {
    fn pull(&mut self, functions: &mut dyn Functions) -> Result<Pull, SourceError> {
        match self.next(functions) {
            Ok(Some((range, item))) => Ok(Pull::Item(range, item)),
            Ok(None) => Ok(Pull::End),
            Err(reason) => Err(SourceError::new(HERE, reason)),
        }
    }

    fn total_rows(&mut self) -> Result<Option<u64>, SourceError> {
        Ok(Some(self.rows()))
    }

    fn lacks(&mut self) -> Option<SourceError> {
        self.incomplete.take().map(|reason| SourceError::new(HERE, reason))
    }
}

/// Answers a question from what this node has. Blocks until then, until `until`, or until `is_wanted` says no.
pub(crate) fn begin(
    home: &Arc<dyn Holding>,
    question: &Question,
    until: Instant,
    is_wanted: &dyn Fn() -> bool,
) -> Result<Local, Refused> {
    let asked = Asked { home: &**home, question, until, is_wanted };
    let (snapshot, lacks) = match question.query.stale {
        Stale::False => (Some(asked.newest()?), VbSet::default()),
        Stale::Ok | Stale::UpdateAfter => asked.present()?,
    };
    let definition = snapshot.as_ref().map(|snapshot| Arc::clone(snapshot.definition()));
    let opening = snapshot.as_ref().map(Snapshot::opening);
    let answer = snapshot.map(|snapshot| query(home, question, &snapshot)).transpose()?;
    let incomplete = (!lacks.is_empty()).then(|| {
        let number = lacks.iter().count();
        format!(
            "The index is still being built: {number} of its vBuckets have not been read to their end yet."
        )
    });
    home.count_query();
    let (life, home) = (home.life(), Arc::downgrade(home));
    Ok(Local {
        answer,
        first: None,
        incomplete,
        definition,
        home,
        life,
        signature: question.signature,
        opening,
    })
}

fn query(
    home: &Arc<dyn Holding>,
    question: &Question,
    snapshot: &Snapshot,
) -> Result<index::Answer, Refused> {
    let place = snapshot.definition().view(&question.view);
    let place = place.ok_or_else(|| Refused::Failed(IndexError::NoSuchView.to_string()))?;
    let query: &Query = &question.query;
    snapshot.query(place, query, &question.vbs).map_err(|error| {
        if error.needs_rebuild() {
            home.report_damage(&question.signature, snapshot.opening());
        }
        Refused::Failed(error.to_string())
    })
}

/// A question that is being answered.
struct Asked<'a> {
    home: &'a dyn Holding,
    question: &'a Question,
    until: Instant,
    is_wanted: &'a dyn Fn() -> bool,
}

impl Asked<'_> {
    /// An index that has everything that was acknowledged before now.
    fn newest(&self) -> Result<Snapshot, Refused> {
        let begin = self.terms(false)?;
        let wanted = self.wanted(&self.question.vbs)?;
        // What was read belongs to copies that were served meanwhile.
        self.check(&begin)?;
        let snapshot = loop {
            match self.step(&wanted, self.until)? {
                Waited::Done(snapshot) => break snapshot,
                Waited::Late(why) => return Err(Refused::Failed(why)),
                Waited::Unknown => return Err(self.unknown()),
                Waited::NotYet => self.check(&begin)?,
            }
        };
        self.check(&begin)?;
        let has_all =
            self.question.vbs.iter().all(|vb| snapshot.state(vb).is_some() || is_empty(&wanted, vb));
        if has_all { Ok(snapshot) } else { Err(Refused::Again("the index has just lost a vBucket".into())) }
    }

    /// An index as it is, with the vBuckets that it lacks.
    fn present(&self) -> Result<(Option<Snapshot>, VbSet), Refused> {
        let begin = self.terms(true)?;
        if is_development(&self.question.design) && self.question.query.stale == Stale::UpdateAfter {
            self.home.ask(&self.question.signature, &self.wanted(&self.question.vbs)?);
        }
        let until = self.until.min(Instant::now() + BUILDING);
        loop {
            // A vBucket that was empty may have got its first document meanwhile.
            let (seen, lacks) = self.look()?;
            self.check(&begin)?;
            if lacks.is_empty() || Instant::now() >= until {
                return Ok((seen, lacks));
            }
            match self.step(&self.wanted(&lacks)?, until)? {
                Waited::Unknown => return Err(self.unknown()),
                Waited::Done(_) | Waited::Late(_) | Waited::NotYet => {}
            }
        }
    }

    /// The index, and which of the vBuckets it lacks. One without documents needs nothing of it.
    fn look(&self) -> Result<(Option<Snapshot>, VbSet), Refused> {
        let seen = self.home.look(&self.question.signature, &self.question.vbs);
        let (snapshot, mut lacks) = seen.ok_or_else(|| self.unknown())?;
        for vb in lacks.iter().collect::<Vec<_>>() {
            if self.home.newest(vb).is_some_and(|(_, seqno)| seqno == Seqno(0)) {
                lacks.remove(vb);
            }
        }
        Ok((snapshot, lacks))
    }

    fn step(&self, wanted: &Wants, until: Instant) -> Result<Waited, Refused> {
        if !(self.is_wanted)() {
            return Err(Refused::Failed("nobody waits for the answer any more".to_owned()));
        }
        let soon = (Instant::now() + LOOK).min(until);
        match self.home.wait_for(&self.question.signature, wanted, soon) {
            Ok(snapshot) => Ok(Waited::Done(snapshot)),
            Err(WaitError::Unknown) => Ok(Waited::Unknown),
            Err(error @ WaitError::Stopped) => Err(Refused::Again(error.to_string())),
            Err(error @ WaitError::Late(_)) if soon >= until => Ok(Waited::Late(error.to_string())),
            Err(WaitError::Late(_)) => Ok(Waited::NotYet),
        }
    }

    fn wanted(&self, vbs: &VbSet) -> Result<Wants, Refused> {
        vbs.iter().map(|vb| Ok((vb, self.home.newest(vb).ok_or_else(|| elsewhere(vb))?))).collect()
    }

    /// The terms in which this node serves the vBuckets. One that is handed over still has all that anybody was told of, until the next
    /// node serves it.
    fn terms(&self, or_sealed: bool) -> Result<Terms, Refused> {
        if !or_sealed && !self.home.may_serve() {
            return Err(Refused::Again("this node has not heard from its cluster for too long".to_owned()));
        }
        let term = |vb| match self.home.role_and_term(vb) {
            (VbRole::Active, term) => Ok((vb, term)),
            (VbRole::Sealed, term) if or_sealed => Ok((vb, term)),
            _ => Err(elsewhere(vb)),
        };
        let terms: Result<Vec<_>, _> = self.question.vbs.iter().map(term).collect();
        Ok(Terms { terms: terms?, or_sealed })
    }

    /// Whether the vBuckets are served still, as they were.
    fn check(&self, before: &Terms) -> Result<(), Refused> {
        let now = self.terms(before.or_sealed)?;
        let changed = before.terms.iter().zip(&now.terms).find(|(before, now)| before != now);
        changed.map_or(Ok(()), |((vb, _), _)| Err(elsewhere(*vb)))
    }

    fn unknown(&self) -> Refused {
        Refused::Again("this node does not know the design document yet".to_owned())
    }
}

/// The terms of copies, in the order of vBuckets.
struct Terms {
    terms: Vec<(VbId, u64)>,
    or_sealed: bool,
}

enum Waited {
    Done(Snapshot),
    Late(String),
    Unknown,
    NotYet,
}

fn is_empty(wanted: &Wants, vb: VbId) -> bool {
    wanted.get(&vb).is_some_and(|(_, seqno)| *seqno == Seqno(0))
}

fn elsewhere(vb: VbId) -> Refused {
    Refused::Again(format!("vBucket {} is not served here", vb.get()))
}

#[cfg(test)]
mod tests;
