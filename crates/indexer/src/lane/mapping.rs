//! One batch of a lane: from documents, by functions that run in another process, to changes of indexes.

use std::{collections::BTreeMap, time::Duration};

use base::{Seqno, VbId};
use views::{
    design::Signature,
    index::{Batch, DocumentRows, Functions, IndexError},
    js::{Failure, FailureKind, Mapped, Row},
    worker::{Host, Job, JobId, OwnedDocument, Report},
};

use super::{Member, streams::Part};
use crate::{course::Position, desk::Entry, documents::Content, shared::Shared};

/// Documents and bytes that a process is sent at once.
const JOB_DOCUMENTS: usize = 1024;
const JOB_BYTES: usize = 4 << 20;
/// For so long a process is waited for before it is looked whether the node stops.
const PATIENCE: Duration = Duration::from_millis(50);

/// What one index needs of a batch, and what became of that.
pub(super) struct Work {
    /// Of each part the documents that it has not, and where that leads to.
    steps: Vec<(usize, Position)>,
    jobs: BTreeMap<JobId, usize>,
    mapped: Vec<Option<Mapped>>,
    /// The whole of it failed.
    failure: Option<Failure>,
}

/// What an index was changed by.
#[derive(Default)]
pub(super) struct Applied {
    pub(super) documents: u64,
    /// A document ran out of time, or ended its process.
    pub(super) held_up: bool,
    /// What is to be told of documents, with the number of the map function.
    pub(super) mistakes: Vec<(usize, String, String)>,
}

/// The documents of a part that an index does not have.
fn fresh(part: &Part, seqno: Seqno) -> impl Iterator<Item = &crate::documents::Document> {
    part.documents.iter().filter(move |document| document.seqno > seqno)
}

impl Work {
    /// Has documents of a batch mapped for an index; `context` is what the host knows its functions by.
    pub(super) fn begin(member: &Member, context: u32, parts: &[Part], host: &mut Host) -> Self {
        let mut work = Self { steps: Vec::new(), jobs: BTreeMap::new(), mapped: Vec::new(), failure: None };
        let mut positions: BTreeMap<VbId, Position> = BTreeMap::new();
        let (mut documents, mut bytes) = (Vec::new(), 0);
        for (number, part) in parts.iter().enumerate() {
            let before = positions.get(&part.vb).copied().unwrap_or_else(|| member.position(part.vb));
            if !member.wants_more(part.vb) {
                continue;
            }
            let Some(after) = before.after(part.reached) else { continue };
            work.steps.push((number, before));
            positions.insert(part.vb, after);
            for document in fresh(part, before.seqno) {
                let entry: &Entry = &member.entry;
                let Some(one) = document.to_be_mapped(entry.maps_deleted, member.looks) else { continue };
                bytes += document.bytes();
                documents.push(one);
                if documents.len() >= JOB_DOCUMENTS || bytes >= JOB_BYTES {
                    work.submit(context, std::mem::take(&mut documents), host);
                    bytes = 0;
                }
            }
        }
        work.submit(context, documents, host);
        work
    }

    fn submit(&mut self, context: u32, documents: Vec<OwnedDocument>, host: &mut Host) {
        if documents.is_empty() {
            return;
        }
        let first = self.mapped.len();
        self.mapped.extend(std::iter::repeat_with(|| None).take(documents.len()));
        self.jobs.insert(host.submit(Job::Map { context, documents }), first);
    }

    /// Why nothing of it can be applied.
    pub(super) fn failure(&self) -> Option<String> {
        let is_lacking = self.mapped.iter().any(Option::is_none);
        let lacking = is_lacking.then(|| "a process did not tell of a document".to_owned());
        self.failure.as_ref().map(|failure| failure.text.clone()).or(lacking)
    }

    /// Takes what became of a job, if it is one of these.
    fn take(&mut self, id: JobId, report: Report) -> Option<Report> {
        let Some(begin) = self.jobs.get(&id).copied() else { return Some(report) };
        match report {
            Report::Mapped { first, documents, .. } => {
                for (place, one) in self.mapped.iter_mut().skip(begin + first).zip(documents) {
                    *place = Some(one);
                }
            }
            Report::Failed(failure) => self.failure = Some(failure),
            Report::Reduced(_) | Report::Checked(_) => {}
        }
        None
    }

    /// Changes the index.
    pub(super) fn apply(
        self,
        member: &mut Member,
        parts: &[Part],
        functions: &mut dyn Functions,
    ) -> Result<Applied, IndexError> {
        let mut applied = Applied::default();
        let mut mapped = self.mapped.into_iter();
        let maps = member.entry.definition.sources().maps.len();
        for (number, before) in self.steps {
            let Some(part) = parts.get(number) else { continue };
            let mut documents = Vec::new();
            for document in fresh(part, before.seqno) {
                let asked = document.is_mapped(member.entry.maps_deleted);
                let outcome = if asked { mapped.next().flatten() } else { None };
                if let Content::Skipped(reason) = &document.content {
                    applied.tell_of_all(maps, &document.id, reason);
                }
                let rows = outcome.map(|mapped| applied.rows(maps, &document.id, mapped));
                documents.push(DocumentRows { docid: document.id.clone(), rows: rows.unwrap_or_default() });
            }
            for id in &part.unreadable {
                applied.tell_of_all(maps, id, "the id is no UTF-8");
            }
            let Some(after) = before.after(part.reached) else { continue };
            if part.forgets {
                member.index.reset(part.vb);
            }
            applied.documents += documents.len() as u64;
            let branch = after.branch(part.branch);
            let batch = Batch { vb: part.vb, branch, seqno: after.seqno, documents };
            for refused in member.index.apply(batch, functions)? {
                applied.mistakes.push((refused.map, refused.docid, refused.reason));
            }
            member.positions.insert(part.vb, (part.branch, after));
            member.touched.insert(part.vb);
        }
        Ok(applied)
    }

    /// Whether there is nothing to apply.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl Applied {
    fn tell_of_all(&mut self, maps: usize, id: &str, text: &str) {
        self.mistakes.extend((0..maps).map(|map| (map, id.to_owned(), text.to_owned())));
    }

    /// The rows of a document; those of functions that failed are none.
    fn rows(&mut self, maps: usize, id: &str, mapped: Mapped) -> Vec<Vec<Row>> {
        let holds_up = |failure: &Failure| matches!(failure.kind, FailureKind::Timeout | FailureKind::Ended);
        let all = match mapped.rows {
            Ok(all) => all,
            Err(failure) => {
                self.held_up |= holds_up(&failure);
                self.tell_of_all(maps, id, &failure.text);
                return Vec::new();
            }
        };
        let mut rows = Vec::with_capacity(all.len());
        for (map, of_map) in all.into_iter().enumerate() {
            rows.push(of_map.unwrap_or_else(|failure| {
                self.held_up |= holds_up(&failure);
                self.mistakes.push((map, id.to_owned(), failure.text));
                Vec::new()
            }));
        }
        rows
    }
}

/// Waits until a host has done everything. Says no where the node stops meanwhile.
pub(super) fn finish(
    host: &mut Host,
    works: &mut BTreeMap<Signature, Work>,
    shared: &Shared,
) -> std::io::Result<bool> {
    while !host.is_idle() {
        if shared.is_stopping() {
            return Ok(false);
        }
        for (id, report) in host.turn(PATIENCE)? {
            let mut report = Some(report);
            for work in works.values_mut() {
                report = report.and_then(|report| work.take(id, report));
            }
        }
    }
    Ok(true)
}

/// Has reductions of an index run by a host, where nothing else runs meanwhile.
pub(super) struct Reducer<'a> {
    pub(super) host: &'a mut Host,
    pub(super) context: u32,
    pub(super) shared: &'a Shared,
}

impl Functions for Reducer<'_> {
    fn reduce(&mut self, function: usize, keys: Option<&[&str]>, values: &[&str]) -> Result<String, Failure> {
        let ended = |text: &str| Failure::new(FailureKind::Ended, text);
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let function = u16::try_from(function).map_err(|_| ended("no such reduction"))?;
        let job =
            Job::Reduce { context: self.context, function, keys: keys.map(owned), values: owned(values) };
        let asked = self.host.submit(job);
        loop {
            if self.shared.is_stopping() {
                return Err(ended("the node stops"));
            }
            let told = self.host.turn(PATIENCE).map_err(|error| ended(&error.to_string()))?;
            let mine = told.into_iter().find(|(id, _)| *id == asked);
            match mine {
                Some((_, Report::Reduced(reduced))) => return reduced,
                Some((_, Report::Failed(failure))) => return Err(failure),
                Some(_) => return Err(ended("another answer")),
                None if self.host.is_idle() => return Err(ended("no answer")),
                None => {}
            }
        }
    }
}
