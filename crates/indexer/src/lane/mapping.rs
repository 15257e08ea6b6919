//! One batch of a lane: from documents, by functions that run in another process, to changes of indexes.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
    time::{Duration, Instant},
};

use base::{Seqno, VbId};
use views::{
    canonical,
    index::{Charge, Functions, GivenRows, IndexError, JoinedRows, Reaches, RefusedValue},
    js::{EMITTED_BYTES_MAX, Failure, FailureKind, Mapped, ROWS_MAX, Row},
    native::Given,
    worker::{Host, Job, JobId, OwnedBody, OwnedDocument, Report, wire::FRAME_BYTES_MAX},
};

use super::{Member, streams::Part};
use crate::{
    course::{Position, newest},
    desk::Entry,
    documents::{BODY_BYTES_MAX, Content, Document, META_BYTES_MAX},
    shared::{Setup, Shared},
};

/// Documents and bytes that a process is sent at once.
const JOB_DOCUMENTS: usize = 1024;
const JOB_BYTES: usize = 4 << 20;
// Its last document may be as large as any. Each counts with more than what is around it in a frame.
const _: () = assert!(JOB_BYTES + META_BYTES_MAX + BODY_BYTES_MAX + (1 << 20) < FRAME_BYTES_MAX);
/// For so long a process is waited for before it is looked whether the node stops.
const PATIENCE: Duration = Duration::from_millis(50);
/// An index whose functions take so long over one batch without a process holds up the other indexes of its lane. A process maps the rest,
/// which has a clock for each document.
const PROGRAMS_MAX: Duration = Duration::from_secs(2);
/// Functions that asked for the whole of so many documents of a batch are given no parts any more, if these are most of them.
const ASKED_AGAIN_MIN: usize = 16;

/// What one index needs of a batch, and what became of that.
pub(super) struct Work<'p> {
    context: u32,
    /// How many map functions the index has.
    maps: usize,
    /// What a process is to be sent.
    unsent: VecDeque<Sent>,
    /// Of each part the documents that it has not, and where that leads to.
    steps: Vec<(usize, Position)>,
    /// The places of what a process maps.
    jobs: BTreeMap<JobId, Vec<usize>>,
    mapped: Vec<Option<Outcome>>,
    /// The rows of programs.
    joined: JoinedRows,
    /// What is mapped, and whether functions were given a part of it.
    sent: Vec<(&'p Document, bool)>,
    /// The rows in memory.
    bytes: usize,
    charge: Charge,
    /// A document ran out of time, or ended its process.
    held_up: bool,
    /// What was mapped without a process took long.
    is_slow: bool,
    /// Documents that functions were asked about once more, since they were given a part of these.
    asked_again: usize,
    /// The whole of it failed.
    failure: Option<Failure>,
}

/// What became of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// Its rows are joined there.
    Joined(Range<usize>),
    /// A process told this of it.
    Told(Mapped),
}

/// What an index was changed by.
#[derive(Default)]
pub(super) struct Applied {
    pub(super) documents: u64,
    /// vBuckets that were begun since the last change.
    pub(super) begun: u64,
    /// Up to where it has vBuckets as they were.
    pub(super) whole: BTreeMap<VbId, Seqno>,
    /// A document ran out of time, or ended its process, or the batch took long without one.
    pub(super) held_up: bool,
    /// Functions needed all of most documents that they were given a part of.
    pub(super) needs_whole: bool,
    /// What is to be told of documents, with the number of the map function.
    pub(super) mistakes: Vec<(usize, String, String)>,
    /// Rows that a reduction leaves out, with the number of the map function.
    pub(super) values: Vec<(usize, RefusedValue)>,
}

/// What a process is sent at once.
#[derive(Default)]
struct Sent {
    documents: Vec<OwnedDocument>,
    /// Of each document its place among what is mapped.
    places: Vec<usize>,
    bytes: usize,
}

/// The documents of a part that an index does not have.
fn fresh(part: &Part, seqno: Seqno) -> impl Iterator<Item = &Document> {
    part.documents.iter().filter(move |document| document.seqno > seqno)
}

impl<'p> Work<'p> {
    /// Maps documents of a batch for an index, as far as that takes no process. [`Work::send`] has the others mapped.
    ///
    /// With more than `bytes_max` of rows it leaves the rest: [`finish`] throws all of them away. It does so too when the node stops:
    /// nothing of it may be applied then.
    pub(super) fn begin(
        member: &Member,
        parts: &'p [Part],
        (setup, shared): (&Setup, &Shared),
        bytes_max: usize,
    ) -> Self {
        let began = shared.now();
        let mut work = Self {
            context: 0,
            maps: member.entry.definition.sources().maps.len(),
            unsent: VecDeque::new(),
            sent: Vec::new(),
            steps: Vec::new(),
            jobs: BTreeMap::new(),
            mapped: Vec::new(),
            joined: JoinedRows::default(),
            bytes: 0,
            charge: Charge::new(&setup.memory, 0),
            held_up: false,
            is_slow: false,
            asked_again: 0,
            failure: None,
        };
        let mut positions: BTreeMap<VbId, Position> = BTreeMap::new();
        for (number, part) in parts.iter().enumerate() {
            let before = positions.get(&part.vb).copied().unwrap_or_else(|| member.position(part.vb));
            if !member.wants_more(part.vb) {
                continue;
            }
            let Some(after) = before.after(part.reached) else { continue };
            work.steps.push((number, before));
            positions.insert(part.vb, after);
            for document in fresh(part, before.seqno) {
                if work.bytes > bytes_max || shared.is_stopping() {
                    break;
                }
                work.is_slow = work.is_slow || shared.now().saturating_sub(began) >= PROGRAMS_MAX;
                work.add(document, member);
            }
        }
        work.is_slow = work.is_slow || shared.now().saturating_sub(began) >= PROGRAMS_MAX;
        work.charge.set(work.bytes);
        work
    }

    /// Maps a document, or notes it for a process.
    fn add(&mut self, document: &'p Document, member: &Member) {
        let entry: &Entry = &member.entry;
        let is_body = matches!(document.content, Content::Body(_));
        let programs = member.programs.as_ref().filter(|_| is_body && !self.is_slow);
        if let Some(range) = programs.and_then(|programs| programs.join(document, &mut self.joined)) {
            self.bytes += range.len();
            self.mapped.push(Some(Outcome::Joined(range)));
            return self.sent.push((document, false));
        }
        let Some(one) = document.to_be_mapped(entry.maps_deleted, &member.need, member.sees_id_alone) else {
            return;
        };
        self.sent.push((document, matches!(one.body, OwnedBody::Part { .. })));
        let is_full = |batch: &Sent| batch.documents.len() >= JOB_DOCUMENTS || batch.bytes >= JOB_BYTES;
        if self.unsent.back().is_none_or(is_full) {
            self.unsent.push_back(Sent::default());
        }
        if let Some(batch) = self.unsent.back_mut() {
            batch.places.push(self.mapped.len());
            batch.bytes += document.bytes();
            batch.documents.push(one);
        }
        self.mapped.push(None);
    }

    /// Whether a process is to map something.
    pub(super) fn needs_process(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Has a process map what is left; `context` is what the host knows the functions by.
    pub(super) fn send(&mut self, context: u32, host: &mut Host) {
        self.context = context;
        for Sent { documents, places, .. } in std::mem::take(&mut self.unsent) {
            self.jobs.insert(host.submit(Job::Map { context, documents }), places);
        }
    }

    /// Whether the rows are more than there is room for.
    pub(super) fn is_too_much(&self, bytes_max: usize) -> bool {
        self.bytes > bytes_max
    }

    /// Functions are asked again about a document of which they were given a part, and are given all of it.
    fn submit_whole(&mut self, at: usize, host: &mut Host) {
        let Some((document, is_part)) = self.sent.get_mut(at) else { return };
        *is_part = false;
        self.asked_again += 1;
        let (meta, body) = (document.meta().to_owned(), document.json().unwrap_or_default().to_owned());
        let documents = vec![OwnedDocument { meta, body: OwnedBody::Json(body) }];
        self.jobs.insert(host.submit(Job::Map { context: self.context, documents }), vec![at]);
    }

    /// Puts the document where functions emitted it that were given a part of it. Nothing where they have to be given the whole.
    fn completed(&self, at: usize, mut mapped: Mapped) -> Option<Mapped> {
        let Some((document, true)) = self.sent.get(at) else { return Some(mapped) };
        if mapped.rows.as_ref().is_err_and(|failure| failure.kind == FailureKind::Part) {
            return None;
        }
        let mut whole: Option<String> = None;
        // What a process says may be wrong: each empty value takes as much memory as the document.
        for view in mapped.rows.iter_mut().flat_map(|views| views.iter_mut().take(self.maps)) {
            let Ok(rows) = view else { continue };
            if rows.iter().any(|row| row.value.is_empty()) && whole.is_none() {
                whole = Some(document.json().and_then(canonical::stringified)?);
            }
            if let Err(failure) = complete(rows, whole.as_deref().unwrap_or_default()) {
                *view = Err(failure);
            }
        }
        Some(mapped)
    }

    /// Why nothing of it can be applied.
    pub(super) fn failure(&self) -> Option<String> {
        let is_lacking = self.mapped.iter().any(Option::is_none);
        let lacking = is_lacking.then(|| "a process did not tell of a document".to_owned());
        self.failure.as_ref().map(|failure| failure.text.clone()).or(lacking)
    }

    /// Takes what became of a job. Of rows that are more than `bytes_max` the rest is left: [`finish`] throws all of them away.
    fn take(&mut self, id: JobId, report: Report, host: &mut Host, bytes_max: usize) {
        let Some(places) = self.jobs.get(&id).cloned() else { return };
        match report {
            Report::Mapped { first, documents, .. } => {
                self.held_up |= documents.iter().any(has_held_up);
                for (at, one) in places.into_iter().skip(first).zip(documents) {
                    if self.bytes > bytes_max {
                        break;
                    }
                    let Some(one) = self.completed(at, one) else {
                        self.submit_whole(at, host);
                        continue;
                    };
                    self.bytes += bytes(&one);
                    if let Some(place) = self.mapped.get_mut(at) {
                        *place = Some(Outcome::Told(one));
                    }
                }
                self.charge.set(self.bytes);
            }
            Report::Failed(failure) => self.failure = Some(failure),
            Report::Reduced(_) | Report::Checked(_) => {}
        }
    }

    /// Changes the index.
    pub(super) fn apply(
        self,
        member: &mut Member,
        parts: &[Part],
        functions: &mut dyn Functions,
    ) -> Result<Applied, IndexError> {
        let (held_up, needs_whole) = (self.is_slow, self.needs_whole());
        let mut applied = Applied { held_up, needs_whole, ..Applied::default() };
        let mut mapped = self.mapped.into_iter();
        let maps = member.entry.definition.sources().maps.len();
        for (number, before) in self.steps {
            let Some(part) = parts.get(number) else { continue };
            for id in &part.unreadable {
                applied.tell_of_all(maps, id, "the id is no UTF-8");
            }
            let Some(after) = before.after(part.reached) else { continue };
            if part.forgets {
                member.index.reset(part.vb);
            }
            let (branch, maps_deleted) = (after.branch(&part.log), member.entry.maps_deleted);
            let documents = fresh(part, before.seqno).map(|document| {
                applied.documents += 1;
                let outcome = if document.is_mapped(maps_deleted) { mapped.next().flatten() } else { None };
                if let Content::Skipped(reason) = &document.content {
                    applied.tell_of_all(maps, &document.id, reason);
                }
                let rows = match outcome {
                    Some(Outcome::Joined(range)) => GivenRows::Joined(&self.joined, range),
                    Some(Outcome::Told(mapped)) => GivenRows::Texts(applied.rows(maps, &document.id, mapped)),
                    None => GivenRows::Texts(Vec::new()),
                };
                (document.id.as_str(), rows)
            });
            let reaches = Reaches { vb: part.vb, branch, seqno: after.seqno };
            let refused = member.index.apply_each(reaches, documents, functions)?;
            let rows = refused.rows.into_iter().map(|one| (one.map, one.docid, one.reason));
            applied.mistakes.extend(rows);
            for (map, values) in refused.values {
                applied.values.extend(values.into_iter().map(|value| (map, value)));
            }
            member.positions.insert(part.vb, (newest(&part.log), after));
            applied.whole.insert(part.vb, after.whole);
            member.touched.insert(part.vb);
            applied.begun += u64::from(member.begun.remove(&part.vb));
        }
        Ok(applied)
    }

    /// Whether functions were asked about most documents twice, since what they emit depends on all of a document.
    fn needs_whole(&self) -> bool {
        let served = self.sent.iter().filter(|(_, is_part)| *is_part).count();
        self.asked_again >= ASKED_AGAIN_MIN && self.asked_again > served
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

/// Puts the document where a function emitted it, unless its rows get larger than those of a document may be.
fn complete(rows: &mut [Row], whole: &str) -> Result<(), Failure> {
    let fails = |text: String| Err(Failure::new(FailureKind::Thrown, text));
    if rows.len() > ROWS_MAX {
        return fails(format!("too many keys emitted, maximum allowed is {ROWS_MAX}"));
    }
    let mut bytes = 0;
    for row in rows {
        let value = if row.value.is_empty() { whole } else { &row.value };
        bytes += row.key.len() + value.len();
        if bytes > EMITTED_BYTES_MAX {
            return fails(format!("too much data emitted: {bytes} bytes"));
        }
        if row.value.is_empty() {
            row.value = whole.to_owned();
        }
    }
    Ok(())
}

/// About how many bytes the rows of a document take.
fn bytes(mapped: &Mapped) -> usize {
    let views = mapped.rows.as_deref().unwrap_or_default();
    let rows = views.iter().filter_map(|rows| rows.as_ref().ok()).flatten();
    rows.map(|row| size_of::<Row>() + row.key.len() + row.value.len()).sum()
}

/// Whether a document ran out of time, or ended its process.
fn has_held_up(mapped: &Mapped) -> bool {
    match &mapped.rows {
        Ok(views) => views.iter().any(|rows| rows.as_ref().is_err_and(holds_up)),
        Err(failure) => holds_up(failure),
    }
}

/// What came of waiting for rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finished {
    /// All of them are here.
    All,
    /// They are more than memory has room for: fewer documents are to be mapped at once. What the host does is of no use.
    TooMuch,
    /// A document held others up: they go one by one, so that the index leaves the lane before the next one does.
    HeldUp,
    /// The node stops.
    Stops,
}

/// Waits until a host has mapped everything, for at most so many bytes of rows. Without such a bound, nothing keeps it from going on.
pub(super) fn finish(
    host: &mut Host,
    work: &mut Work<'_>,
    shared: &Shared,
    bytes_max: usize,
) -> std::io::Result<Finished> {
    while !host.is_idle() {
        if shared.is_stopping() {
            return Ok(Finished::Stops);
        }
        for (id, report) in host.turn(PATIENCE)? {
            work.take(id, report, host, bytes_max);
        }
        if work.is_too_much(bytes_max) {
            return Ok(Finished::TooMuch);
        }
        if work.held_up && bytes_max < usize::MAX && !host.is_idle() {
            return Ok(Finished::HeldUp);
        }
    }
    Ok(Finished::All)
}

/// Groups of parts, each of so many documents at most. The last of what was cut leads to where the whole did.
pub(super) fn groups(parts: Vec<Part>, most: usize) -> VecDeque<Vec<Part>> {
    let most = most.max(1);
    let (mut groups, mut group, mut count) = (VecDeque::new(), Vec::new(), 0);
    for mut part in parts {
        while count + part.documents.len() > most {
            if most > count {
                group.push(part.cut(most - count));
            }
            groups.push_back(std::mem::take(&mut group));
            count = 0;
        }
        count += part.documents.len();
        group.push(part);
    }
    if !group.is_empty() {
        groups.push_back(group);
    }
    groups
}

/// A reduction that takes so long is slow.
const SLOW: Duration = Duration::from_millis(250);
/// With so much time spent in slow reductions an index has had its turn.
const SLOW_MAX: Duration = Duration::from_secs(30);
/// With so much it has held up the other indexes of its lane.
const HELD_UP: Duration = Duration::from_secs(5);
/// With so much time spent in all reductions an index has had its turn as well, unless they are quick.
const ALL_MAX: Duration = Duration::from_secs(30);
/// Quick reductions take no longer than this on average: a large tree has many of them.
const QUICK: Duration = Duration::from_millis(10);

/// Which reductions are still asked for while an index is changed once. What is lacking then is made by queries.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// What slow reductions took.
    slow: Duration,
    /// What all reductions took, and how many there were.
    all: Duration,
    calls: u32,
    /// Functions that ran out of time or ended their process: each node of a tree would cost that again.
    given_up: BTreeSet<usize>,
}

impl Turn {
    /// Whether a function is asked once more.
    fn is_asked(&self, function: usize) -> bool {
        self.slow < SLOW_MAX && !self.is_sluggish() && !self.given_up.contains(&function)
    }

    fn note(&mut self, function: usize, took: Duration, reduced: &Result<String, Failure>) {
        self.all += took;
        self.calls = self.calls.saturating_add(1);
        if took >= SLOW {
            self.slow += took;
        }
        if reduced.as_ref().is_err_and(holds_up) {
            self.given_up.insert(function);
        }
    }

    /// Whether reductions held up the other indexes of the lane.
    pub(super) fn has_held_up(&self) -> bool {
        self.slow >= HELD_UP || self.is_sluggish() || !self.given_up.is_empty()
    }

    /// Whether reductions took long together, though each of them ended soon.
    fn is_sluggish(&self) -> bool {
        self.all > ALL_MAX && self.all > QUICK.saturating_mul(self.calls)
    }
}

fn holds_up(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::Timeout | FailureKind::Ended)
}

/// Has reductions of an index run by a host, where nothing else runs meanwhile.
pub(super) struct Reducer<'a> {
    pub(super) host: &'a mut Host,
    pub(super) context: u32,
    pub(super) shared: &'a Shared,
    pub(super) turn: Turn,
}

impl Functions for Reducer<'_> {
    fn reduce(&mut self, function: usize, keys: Option<&[&str]>, values: &[&str]) -> Result<String, Failure> {
        if !self.turn.is_asked(function) {
            return Err(Failure::new(FailureKind::Timeout, "the reductions of this index take too long"));
        }
        let begin = Instant::now();
        let reduced = self.ask(function, keys, values);
        self.turn.note(function, begin.elapsed(), &reduced);
        reduced
    }
}

impl Reducer<'_> {
    fn ask(&mut self, function: usize, keys: Option<&[&str]>, values: &[&str]) -> Result<String, Failure> {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::VbUuid;
    use views::index::Memory;

    use super::*;
    use crate::{
        course::Reached,
        documents::{Content, Document},
    };

    fn part(vb: u16, seqnos: std::ops::Range<u64>) -> Part {
        let reached = Reached { seqno: Seqno(seqnos.end + 5), whole: true };
        let document = |seqno| {
            Document::of_content(format!("d{seqno}"), Seqno(seqno), Content::Gone { attributes: false })
        };
        let (documents, unreadable) = (seqnos.map(document).collect(), vec!["x".to_owned()]);
        Part {
            vb: VbId(vb),
            log: [(VbUuid(1), Seqno(0))].into(),
            reached,
            forgets: true,
            documents,
            unreadable,
        }
    }

    #[test]
    fn parts_are_cut_into_groups_that_lead_to_the_same() {
        let told = |group: &Vec<Part>| -> Vec<(u16, usize, u64, bool, bool, usize)> {
            let of = |part: &Part| {
                let Reached { seqno, whole } = part.reached;
                let documents = part.documents.len();
                (part.vb.get(), documents, seqno.get(), whole, part.forgets, part.unreadable.len())
            };
            group.iter().map(of).collect()
        };
        let parts = vec![part(1, 10..13), part(2, 0..0), part(3, 20..25)];
        let cut: Vec<_> = groups(parts, 4).iter().map(told).collect();
        assert_eq!(
            cut,
            [
                vec![(1, 3, 18, true, true, 1), (2, 0, 5, true, true, 1), (3, 1, 20, false, true, 1)],
                vec![(3, 4, 30, true, false, 0)]
            ]
        );
        let all: Vec<usize> = groups(vec![part(1, 10..13)], 0).iter().map(|group| told(group)[0].1).collect();
        assert_eq!(all, [1, 1, 1], "one document is mapped at least");
    }

    #[test]
    fn a_reduction_that_loops_is_asked_for_once_in_a_turn() {
        let (fast, good) = (Duration::from_millis(1), Ok("1".to_owned()));
        let failed = |kind| Err(Failure::new(kind, "failed"));
        let mut turn = Turn::default();
        for _ in 0..100_000 {
            turn.note(0, fast, &good);
            turn.note(1, fast, &failed(FailureKind::Thrown));
        }
        assert!(turn.is_asked(0) && turn.is_asked(1) && !turn.has_held_up(), "large trees have many nodes");
        turn.note(2, Duration::from_secs(10), &failed(FailureKind::Timeout));
        assert!(turn.is_asked(0) && !turn.is_asked(2) && turn.has_held_up());
        turn.note(0, SLOW_MAX - Duration::from_secs(1), &good);
        assert!(!turn.is_asked(1), "those that end in time are slow all the same");
    }

    #[test]
    fn reductions_that_end_just_in_time_hold_a_lane_up_together() {
        let good = Ok("1".to_owned());
        let mut turn = Turn::default();
        let took = SLOW - Duration::from_millis(1);
        let calls = (ALL_MAX.as_millis() / took.as_millis()) as u32;
        for _ in 0..calls {
            turn.note(0, took, &good);
            assert!(turn.is_asked(0) && !turn.has_held_up());
        }
        turn.note(0, took, &good);
        assert!(!turn.is_asked(0) && turn.has_held_up());
        let mut turn = Turn::default();
        for _ in 0..100_000 {
            turn.note(0, QUICK, &good);
        }
        assert!(turn.is_asked(0) && !turn.has_held_up(), "a large tree has many nodes");
    }

    /// Documents that were sent, each as a job of its own, of none of which a process has told.
    fn work<'p>(memory: &Arc<Memory>, sent: Vec<(&'p Document, bool)>) -> Work<'p> {
        let jobs = (0..sent.len()).map(|at| (at as JobId + 1, vec![at])).collect();
        Work {
            context: 0,
            maps: 2,
            unsent: VecDeque::new(),
            steps: Vec::new(),
            jobs,
            mapped: vec![None; sent.len()],
            joined: JoinedRows::default(),
            sent,
            bytes: 0,
            charge: Charge::new(memory, 0),
            held_up: false,
            is_slow: false,
            asked_again: 0,
            failure: None,
        }
    }

    /// Nothing starts its process.
    fn idle_host() -> Host {
        Host::new(views::worker::Settings::default(), || std::process::Command::new("/bin/false"))
    }

    #[test]
    fn documents_of_which_functions_saw_a_part_are_completed_or_mapped_again() {
        let (memory, mut host) = (Memory::new(1 << 20), idle_host());
        let document = |text: &str| {
            Document::of_content("d".to_owned(), Seqno(1), Content::Body(OwnedBody::Json(text.to_owned())))
        };
        let documents = ["{ \"a\": 1.0 }", "{\"a\":\"\\ud800\"}", "{}", "{}"].map(document);
        let sent = documents.iter().zip([true, true, true, false]).collect();
        let mut work = work(&memory, sent);
        let rows = |values: &[&str]| {
            let row = |value: &&str| Row { key: "1".to_owned(), value: (*value).to_owned() };
            Ok(vec![Ok(values.iter().map(row).collect())])
        };
        let again = Err(Failure::new(FailureKind::Part, "again"));
        let told = [rows(&["", "2", ""]), rows(&[""]), again.clone(), again.clone()];
        for (at, rows) in told.into_iter().enumerate() {
            let documents = vec![Mapped { rows, logs: Vec::new() }];
            work.take(
                at as JobId + 1,
                Report::Mapped { first: 0, documents, last: true },
                &mut host,
                usize::MAX,
            );
        }
        let found = |work: &Work<'_>, at: usize| match work.mapped[at].clone() {
            Some(Outcome::Told(mapped)) => Some(mapped.rows),
            other => other.map(|_| panic!("no process told of it")),
        };
        assert_eq!(found(&work, 0), Some(rows(&["{\"a\":1}", "2", "{\"a\":1}"])));
        assert_eq!(found(&work, 1), None, "what JSON.stringify makes of it is asked of the engine");
        assert_eq!(found(&work, 2), None);
        assert_eq!(found(&work, 3), Some(again.clone()), "it was given all of that one");
        assert!(!host.is_idle() && work.failure().is_some());
        let of_these = |(_, places): &(JobId, Vec<usize>)| *places == [1] || *places == [2];
        for (id, places) in work.jobs.clone().into_iter().filter(of_these) {
            let documents = vec![Mapped { rows: again.clone(), logs: Vec::new() }];
            work.take(id, Report::Mapped { first: 0, documents, last: true }, &mut host, usize::MAX);
            assert_eq!(found(&work, places[0]), Some(again.clone()), "nothing is asked a third time");
        }
        assert_eq!(work.failure(), None);
    }

    #[test]
    fn functions_that_need_all_of_most_documents_are_given_no_parts_any_more() {
        let (memory, mut host) = (Memory::new(1 << 20), idle_host());
        let text = "{}".to_owned();
        let document = Document::of_content("d".to_owned(), Seqno(1), Content::Body(OwnedBody::Json(text)));
        for (again, asked, expected) in [(30, 40, true), (20, 40, false), (15, 15, false), (0, 40, false)] {
            let mut work = work(&memory, vec![(&document, true); asked]);
            for at in 0..again {
                let rows = Err(Failure::new(FailureKind::Part, "again"));
                let documents = vec![Mapped { rows, logs: Vec::new() }];
                let report = Report::Mapped { first: 0, documents, last: true };
                work.take(at + 1, report, &mut host, usize::MAX);
            }
            assert_eq!(work.needs_whole(), expected, "{again} of {asked}");
        }
    }

    #[test]
    fn rows_on_their_way_are_in_the_account() {
        let (memory, mut host) = (Memory::new(1 << 20), idle_host());
        let gone = part(1, 0..2);
        let mut work = work(&memory, gone.documents.iter().map(|document| (document, false)).collect());
        let row = Row { key: "1".repeat(1000), value: "2".repeat(1000) };
        let mapped = Mapped { rows: Ok(vec![Ok(vec![row.clone(), row])]), logs: Vec::new() };
        let told = |mapped: Mapped| Report::Mapped { first: 0, documents: vec![mapped], last: true };
        work.take(1, told(mapped.clone()), &mut host, usize::MAX);
        assert!(memory.used() >= 4000 && work.failure().is_some());
        work.take(2, told(mapped), &mut host, usize::MAX);
        assert!(memory.used() >= 8000 && work.failure().is_none());
        drop(work);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn documents_are_put_into_no_more_rows_than_there_is_room_for() {
        let (memory, mut host) = (Memory::new(1 << 20), idle_host());
        let text = format!("\"{}\"", "x".repeat(1000));
        let document = Document::of_content("d".to_owned(), Seqno(1), Content::Body(OwnedBody::Json(text)));
        let mut work = work(&memory, vec![(&document, true); 100]);
        work.jobs = [(1, (0..100).collect())].into();
        let row = Row { key: "1".to_owned(), value: String::new() };
        let mapped = Mapped { rows: Ok(vec![Ok(vec![row])]), logs: Vec::new() };
        let report = Report::Mapped { first: 0, documents: vec![mapped; 100], last: true };
        work.take(1, report, &mut host, 5000);
        assert!(work.bytes > 5000 && work.bytes < 7000, "{} bytes", work.bytes);
        assert!(work.failure().is_some());
    }

    #[test]
    fn a_process_that_says_too_often_that_a_document_was_emitted_fails_that_document_for_that_view() {
        let (memory, mut host) = (Memory::new(1 << 20), idle_host());
        let text = format!("\"{}\"", "x".repeat(100_000));
        let document = Document::of_content("d".to_owned(), Seqno(1), Content::Body(OwnedBody::Json(text)));
        let row = |value: &str| Row { key: "1".to_owned(), value: value.to_owned() };
        let all_but_two = vec![Ok(vec![row("")]); 500];
        let told = [
            (vec![Ok(vec![row(""); 500]), Ok(vec![row("")])], "too much data emitted"),
            (vec![Ok(vec![row("2"); ROWS_MAX + 1]), Ok(vec![row("")])], "too many keys emitted"),
            ([vec![Ok(vec![row(""); 11])], all_but_two].concat(), "too much data emitted"),
        ];
        for (views, reason) in told {
            let mut work = work(&memory, vec![(&document, true)]);
            let documents = vec![Mapped { rows: Ok(views), logs: Vec::new() }];
            work.take(1, Report::Mapped { first: 0, documents, last: true }, &mut host, usize::MAX);
            assert!(work.bytes < 500_000 && work.failure().is_none(), "{} bytes", work.bytes);
            let Some(Some(Outcome::Told(mapped))) = work.mapped.first() else { panic!("it was told of") };
            let views = mapped.rows.as_ref().unwrap();
            assert!(views[0].as_ref().is_err_and(|failure| failure.text.starts_with(reason)), "{reason}");
            assert_eq!(views[1].as_ref().unwrap()[0].value.len(), 100_002, "the other view has it");
        }
    }
}
