//! Readers of a view while the cluster is hurt: each answer at `stale=false` is held against what was acknowledged before it was asked
//! for. A row twice, a row missing, or a row of what is gone is a violation; an explicit error is not.
//!
//! One writer changes a few documents, durably. A write without an answer may happen at any later time, so its document is ambiguous
//! from then on, and another one takes its place.

use crate::TortureError;
use crate::cluster::LocalCluster;
use crate::target::Target;
use base::Status;
use base::bucket::DurabilityLevel;
use client::{Client, ClientError, Login, Rest, WriteOptions};
use protocol::binary::Opcode;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Documents that are changed.
const DOCUMENTS: usize = 150;
const READERS: u64 = 2;
/// Between two writes, and between two queries of a reader.
const WRITES: Duration = Duration::from_millis(20);
const QUERIES: Duration = Duration::from_millis(100);
/// After a write that was refused.
const REFUSED: Duration = Duration::from_millis(200);
/// A node that takes longer has not answered. It says so itself after less.
const PATIENCE: Duration = Duration::from_secs(50);
/// How long the design document may take at the start, and the last answer at the end.
const AT_REST: Duration = Duration::from_secs(60);
const PREFIX: &str = "viewed-";
const DESIGN: &str = r#"{"views":{"all":{"map":"function (doc, meta) { if (meta.id.indexOf('viewed-') == 0) emit(meta.id, doc.n) }","reduce":"_count"}}}"#;

/// What is known of a document. Its versions are the changes that were made to it, counted from one; version 0 is that it is not there.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Whether each version is a document, and no deletion.
    stores: Vec<bool>,
    /// The last version that was acknowledged.
    acknowledged: usize,
    /// A change of it may still happen.
    is_ambiguous: bool,
}

impl Known {
    fn is_stored(&self, version: usize) -> bool {
        version.checked_sub(1).and_then(|at| self.stores.get(at)).copied().unwrap_or_default()
    }

    /// The versions that an answer may show which was asked for when `before` was known, and came when this is.
    fn shown(&self, before: Option<&Known>) -> std::ops::RangeInclusive<usize> {
        let first = if self.is_ambiguous { 0 } else { before.map_or(0, |before| before.acknowledged) };
        first..=self.stores.len()
    }

    fn may_be_there(&self, before: Option<&Known>) -> bool {
        self.shown(before).any(|version| self.is_stored(version))
    }

    fn may_be_gone(&self, before: Option<&Known>) -> bool {
        self.shown(before).any(|version| !self.is_stored(version))
    }
}

/// All documents that were ever written, by their ids.
type Ledger = HashMap<String, Known>;

/// What is asked.
#[derive(Clone, Debug)]
enum Question {
    All,
    Count,
    /// The ids from this one to that one.
    Range(String, String),
}

impl Question {
    fn query(&self) -> String {
        match self {
            Question::All => "stale=false&reduce=false".to_owned(),
            Question::Count => "stale=false".to_owned(),
            Question::Range(from, to) => {
                format!("stale=false&reduce=false&startkey=%22{from}%22&endkey=%22{to}%22")
            }
        }
    }

    fn is_of(&self, id: &str) -> bool {
        match self {
            Question::All | Question::Count => true,
            Question::Range(from, to) => (from.as_str()..=to.as_str()).contains(&id),
        }
    }

    /// What is wrong with a whole answer.
    fn judge(&self, answer: &Value, before: &Ledger, after: &Ledger) -> Result<(), String> {
        let rows = answer["rows"].as_array().ok_or("it has no rows")?;
        if let Question::Count = self {
            let told = rows.first().and_then(|row| row["value"].as_u64()).unwrap_or_default();
            let number = |counts: fn(&Known, Option<&Known>) -> bool| {
                after.iter().filter(|(id, known)| counts(known, before.get(*id))).count() as u64
            };
            let least = number(|known, before| !known.may_be_gone(before));
            let most = number(Known::may_be_there);
            let is_right = (least..=most).contains(&told);
            return is_right
                .then_some(())
                .ok_or(format!("the count is {told}, and not from {least} to {most}"));
        }
        let mut seen: HashMap<&str, u64> = HashMap::new();
        for row in rows {
            let (id, version) =
                (row["id"].as_str().unwrap_or_default(), row["value"].as_u64().unwrap_or_default());
            if seen.insert(id, version).is_some() {
                return Err(format!("{id} is there twice"));
            }
            let known =
                after.get(id).filter(|_| self.is_of(id)).ok_or(format!("{id} does not belong there"))?;
            let mut shown = known.shown(before.get(id));
            if !shown.any(|at| at as u64 == version && known.is_stored(at)) {
                return Err(format!(
                    "{id} is there in version {version}: {known:?}, before {:?}",
                    before.get(id)
                ));
            }
        }
        let missing = after.iter().find(|(id, known)| {
            self.is_of(id) && !seen.contains_key(id.as_str()) && !known.may_be_gone(before.get(*id))
        });
        missing.map_or(Ok(()), |(id, known)| {
            Err(format!("{id} is missing: {known:?}, before {:?}", before.get(id)))
        })
    }
}

/// What readers came to.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Answers that were whole, and right.
    pub(super) right: u64,
    /// Answers that were errors, or had some behind their rows.
    pub(super) refused: u64,
    /// What was wrong with others.
    pub(super) wrong: Vec<String>,
}

/// The writer and the readers at work.
pub(super) struct Views {
    ledger: Arc<Mutex<Ledger>>,
    over: Arc<AtomicBool>,
    writer: JoinHandle<()>,
    readers: Vec<JoinHandle<Seen>>,
    /// The ports of views of all nodes.
    nodes: Vec<Rest>,
    path: String,
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Views {
    /// Publishes the view, then starts.
    ///
    /// # Errors
    /// The design document is refused, or a thread cannot be started.
    pub(super) fn start(
        cluster: &LocalCluster,
        level: DurabilityLevel,
        seed: u64,
    ) -> Result<Self, TortureError> {
        let login = cluster.login();
        let nodes: Vec<Rest> = (0..cluster.len()).map(|node| cluster.views_of(node)).collect();
        let bucket = login.bucket.clone().unwrap_or_default();
        let design = format!("/{bucket}/_design/chaos");
        let stored = nodes.first().map(|node| node.ask_json("PUT", &design, Some(DESIGN))).transpose()?;
        if stored.as_ref().is_none_or(|answer| answer.code != 201) {
            return Err(TortureError::Node(format!("the design document is refused: {stored:?}")));
        }
        let (ledger, over) = (Arc::new(Mutex::new(Ledger::new())), Arc::new(AtomicBool::new(false)));
        let path = format!("{design}/_view/all");
        let seeds = (0..cluster.len()).map(|node| cluster.address(node)).collect();
        let writer = Writer {
            ledger: Arc::clone(&ledger),
            over: Arc::clone(&over),
            seeds,
            login,
            level,
            rng: fastrand::Rng::with_seed(seed),
        };
        let writer =
            std::thread::Builder::new().name("view writer".to_owned()).spawn(move || writer.work())?;
        let mut readers = Vec::new();
        for number in 0..READERS {
            let mut reader = Reader {
                ledger: Arc::clone(&ledger),
                nodes: nodes.iter().map(|node| node.within(PATIENCE)).collect(),
                path: path.clone(),
                rng: fastrand::Rng::with_seed(seed ^ (number + 1)),
                seen: Seen::default(),
            };
            let over = Arc::clone(&over);
            let thread = std::thread::Builder::new().name(format!("view reader {number}"));
            readers.push(thread.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    reader.ask();
                    std::thread::sleep(QUERIES);
                }
                reader.seen
            })?);
        }
        Ok(Self { ledger, over, writer, readers, nodes, path })
    }

    /// Ends them, and asks a cluster that is at rest once more. Nothing of that answer may be lacking.
    ///
    /// # Errors
    /// One of them panicked.
    pub(super) fn finish(self) -> Result<(Seen, Result<(), String>), TortureError> {
        self.over.store(true, Ordering::Relaxed);
        self.writer.join().map_err(|_| TortureError::Thread)?;
        let mut all = Seen::default();
        for reader in self.readers {
            let seen = reader.join().map_err(|_| TortureError::Thread)?;
            (all.right, all.refused) = (all.right + seen.right, all.refused + seen.refused);
            all.wrong.extend(seen.wrong);
        }
        let known = lock(&self.ledger).clone();
        let began = Instant::now();
        loop {
            // A node that is no member answers nothing. All others say the same.
            let answers = self.nodes.iter().filter_map(|node| whole(node, &self.path, &Question::All).ok());
            let judged = answers.map(|answer| Question::All.judge(&answer, &known, &known));
            match judged.reduce(Result::and) {
                Some(judged) => return Ok((all, judged)),
                None if began.elapsed() > AT_REST => return Ok((all, Err("no node answers".to_owned()))),
                None => std::thread::sleep(QUERIES),
            }
        }
    }
}

/// An answer without errors, or what it is instead.
fn whole(node: &Rest, path: &str, question: &Question) -> Result<Value, String> {
    let answer = node.ask_json("GET", &format!("{path}?{}", question.query()), None);
    let answer = answer.map_err(|error| error.to_string())?;
    let body: Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
    if answer.code == 200 && body["errors"].is_null() {
        Ok(body)
    } else {
        Err(format!("{} {body}", answer.code))
    }
}

struct Reader {
    ledger: Arc<Mutex<Ledger>>,
    nodes: Vec<Rest>,
    path: String,
    rng: fastrand::Rng,
    seen: Seen,
}

impl Reader {
    fn ask(&mut self) {
        let question = match self.rng.u8(..3) {
            0 => Question::All,
            1 => Question::Count,
            _ => {
                let mut ends = [0, 0].map(|_: usize| id(self.rng.usize(..DOCUMENTS * 2)));
                ends.sort();
                let [from, to] = ends;
                Question::Range(from, to)
            }
        };
        let Some(node) = self.nodes.get(self.rng.usize(..self.nodes.len().max(1))) else { return };
        let before = lock(&self.ledger).clone();
        let told = whole(node, &self.path, &question);
        let after = lock(&self.ledger).clone();
        match told.map(|answer| question.judge(&answer, &before, &after)) {
            Ok(Ok(())) => self.seen.right += 1,
            Ok(Err(wrong)) => self.seen.wrong.push(format!("{question:?} of {}: {wrong}", node.address)),
            Err(_) => self.seen.refused += 1,
        }
    }
}

/// Whether a write was refused for good: it has no effect, now or later.
fn is_refused(error: &ClientError) -> bool {
    matches!(error.status(), Some(Status::DurabilityImpossible | Status::TemporaryFailure))
}

fn id(number: usize) -> String {
    format!("{PREFIX}{number:06}")
}

struct Writer {
    ledger: Arc<Mutex<Ledger>>,
    over: Arc<AtomicBool>,
    seeds: Vec<String>,
    login: Login,
    level: DurabilityLevel,
    rng: fastrand::Rng,
}

impl Writer {
    fn work(mut self) {
        let mut places: Vec<usize> = (0..DOCUMENTS).collect();
        let (mut next, mut client) = (DOCUMENTS, None);
        while !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(WRITES);
            let Some(connected) = client.as_mut() else {
                client = self.connect();
                continue;
            };
            let place = self.rng.usize(..places.len());
            let Some(number) = places.get_mut(place) else { continue };
            match self.change(connected, &id(*number)) {
                Ok(()) => {}
                Err(error) if is_refused(&error) => std::thread::sleep(REFUSED),
                Err(_) => {
                    (*number, next) = (next, next + 1);
                    client = None;
                }
            }
        }
    }

    fn connect(&mut self) -> Option<Client> {
        let seed = self.seeds.get(self.rng.usize(..self.seeds.len().max(1)))?;
        Client::connect(seed, &self.login).ok()
    }

    /// Changes a document. Where that fails, and was not refused, it is ambiguous.
    fn change(&mut self, client: &mut Client, id: &str) -> Result<(), ClientError> {
        let (stores, version) = {
            let mut ledger = lock(&self.ledger);
            let known = ledger.entry(id.to_owned()).or_default();
            let stores = !known.is_stored(known.acknowledged) || self.rng.u8(..5) > 0;
            known.stores.push(stores);
            (stores, known.stores.len())
        };
        let options = WriteOptions { durability: Some(self.level), ..WriteOptions::default() };
        let done = if stores {
            client.store(Opcode::Set, id.as_bytes(), format!("{{\"n\":{version}}}").as_bytes(), &options)
        } else {
            client.delete(id.as_bytes(), &options)
        };
        let mut ledger = lock(&self.ledger);
        let known = ledger.entry(id.to_owned()).or_default();
        match &done {
            Ok(_) => known.acknowledged = version,
            Err(error) if is_refused(error) => known.stores.truncate(version - 1),
            Err(_) => known.is_ambiguous = true,
        }
        done.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ledger(documents: &[(&str, &[bool], usize, bool)]) -> Ledger {
        let of = |(id, stores, acknowledged, is_ambiguous): &(&str, &[bool], usize, bool)| {
            let known =
                Known { stores: stores.to_vec(), acknowledged: *acknowledged, is_ambiguous: *is_ambiguous };
            ((*id).to_owned(), known)
        };
        documents.iter().map(of).collect()
    }

    fn answer(rows: &[(&str, u64)]) -> Value {
        let rows: Vec<Value> =
            rows.iter().map(|(id, n)| json!({ "id": id, "key": id, "value": n })).collect();
        json!({ "rows": rows })
    }

    #[test]
    fn an_answer_has_what_was_acknowledged_before_it_and_each_row_once() {
        let before =
            ledger(&[("a", &[true], 1, false), ("b", &[true, false], 2, false), ("d", &[true], 0, true)]);
        let after = ledger(&[
            ("a", &[true, true], 1, false),
            ("b", &[true, false], 2, false),
            ("c", &[true], 1, false),
            ("d", &[true], 0, true),
        ]);
        let judge = |rows: &[(&str, u64)]| Question::All.judge(&answer(rows), &before, &after);
        assert_eq!(judge(&[("a", 1)]), Ok(()));
        assert_eq!(
            judge(&[("a", 2), ("c", 1), ("d", 1)]),
            Ok(()),
            "later changes may be there, and ambiguous ones"
        );
        for wrong in [
            &[("c", 1)][..],
            &[("a", 1), ("a", 2)],
            &[("a", 3)],
            &[("a", 1), ("b", 1)],
            &[("a", 1), ("x", 1)],
        ] {
            assert!(judge(wrong).is_err(), "{wrong:?}");
        }
        let range = Question::Range("a".to_owned(), "b".to_owned());
        assert!(
            range.judge(&answer(&[("a", 1), ("c", 1)]), &before, &after).is_err(),
            "outside of the range"
        );
        assert_eq!(
            Question::Range("b".to_owned(), "z".to_owned()).judge(&answer(&[]), &before, &after),
            Ok(())
        );
        for (count, is_right) in [(0, false), (1, true), (3, true), (4, false)] {
            let told = json!({ "rows": [{ "key": null, "value": count }] });
            assert_eq!(Question::Count.judge(&told, &before, &after).is_ok(), is_right, "{count}");
        }
        assert!(Question::Count.judge(&answer(&[]), &before, &after).is_err());
    }
}
