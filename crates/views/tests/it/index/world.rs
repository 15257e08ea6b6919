//! vBuckets with histories, nodes that index them on disks with faults, and what a query over them has to answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use base::{BucketUuid, Seqno, VbId, VbUuid};
use fastrand::Rng;
use settee_views::{
    design::DesignDocument,
    index::{
        Answer, Batch, Definition, DocumentRows, Functions, Group, Index, IndexError, Item, Memory, Merge,
        MergedRow, Options, Partial, Pull, Source, SourceError, Step, VbSet, ViewPlace,
        wire::{AnswerWriter, Expected, Question, Remote},
    },
    js::{self, Failure, FailureKind},
    query::{Parameters, Query},
    rows::{MapRow, Writer},
};
use storage::{FaultFs, Fs};

use crate::model::{self, Row};

pub(crate) const DIR: &str = "/index";
pub(crate) const DESIGN: &str = r#"{"views":{
    "count":{"map":"function(d){1}","reduce":"_count"},
    "sum":{"map":"function(d){1}","reduce":"_sum"},
    "stats":{"map":"function(d){1}","reduce":"_stats"},
    "function":{"map":"function(d){1}","reduce":"function(){}"},
    "other":{"map":"function(d){2}","reduce":"_count"}
}}"#;

/// A change of a document: its rows by each map function, or nothing where it is gone.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) docid: String,
    pub(crate) rows: Vec<Vec<js::Row>>,
}

/// A vBucket's history. Change number one has seqno one.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) log: Vec<Change>,
    pub(crate) branches: Vec<(VbUuid, Seqno)>,
}

impl History {
    pub(crate) fn new(uuid: u64) -> Self {
        Self { log: Vec::new(), branches: vec![(VbUuid(uuid), Seqno(0))] }
    }

    /// What happened behind a seqno did not.
    pub(crate) fn roll_back(&mut self, to: usize, uuid: u64) {
        self.log.truncate(to);
        self.branches.retain(|(_, start)| start.get() <= to as u64);
        self.branches.insert(0, (VbUuid(uuid), Seqno(to as u64)));
    }

    fn newest(&self, until: Seqno) -> BTreeMap<&String, &Vec<Vec<js::Row>>> {
        let changes = self.log.iter().take(usize::try_from(until.get()).unwrap());
        changes.map(|change| (&change.docid, &change.rows)).collect()
    }

    /// How many documents have rows after so many changes.
    fn documents(&self, until: Seqno) -> u64 {
        let newest = self.newest(until);
        newest.values().filter(|rows| rows.iter().any(|rows| !rows.is_empty())).count() as u64
    }

    /// The rows of a map function after so many changes.
    pub(crate) fn rows(&self, until: Seqno, map: usize) -> Vec<Row> {
        let mut all = Vec::new();
        for (docid, rows) in self.newest(until) {
            for (ordinal, row) in rows.get(map).into_iter().flatten().enumerate() {
                let (key, value) = (row.key.clone(), row.value.clone());
                all.push(Row { key, docid: docid.clone(), ordinal: ordinal as u16, value });
            }
        }
        all
    }

    /// The next changes behind a seqno.
    pub(crate) fn batch(&self, vb: VbId, from: Seqno, count: usize) -> Batch {
        let from = usize::try_from(from.get()).unwrap();
        let changes = self.log.iter().skip(from).take(count);
        let documents: Vec<_> = changes
            .map(|change| DocumentRows { docid: change.docid.clone(), rows: change.rows.clone() })
            .collect();
        let seqno = Seqno((from + documents.len()) as u64);
        Batch { vb, branch: self.branches[0].0, seqno, documents }
    }
}

/// A reduction that says how many rows there were and what their values come to, in whatever order they are given. Now and
/// then it fails, where it is told to.
#[derive(Debug, Default)]
pub(crate) struct Reducer {
    pub(crate) fails: bool,
    pub(crate) calls: usize,
}

fn number(text: &str) -> u64 {
    text.bytes().fold(7, |number, byte| number * 31 % 1_000_003 + u64::from(byte))
}

impl Functions for Reducer {
    fn reduce(&mut self, function: usize, keys: Option<&[&str]>, values: &[&str]) -> Result<String, Failure> {
        assert_eq!(function, 0);
        self.calls += 1;
        if self.fails && self.calls.is_multiple_of(3) {
            return Err(Failure::new(FailureKind::Thrown, "not now"));
        }
        let (mut rows, mut sum) = (0, 0);
        match keys {
            Some(keys) => {
                assert_eq!(keys.len(), values.len());
                rows = values.len() as u64;
                sum = values.iter().map(|value| number(value)).sum();
            }
            None => {
                for value in values {
                    let (count, part) = value[1..value.len() - 1].split_once(',').unwrap();
                    rows += count.parse::<u64>().unwrap();
                    sum += part.parse::<u64>().unwrap();
                }
            }
        }
        Ok(format!("[{rows},{sum}]"))
    }
}

pub(crate) fn reduced(view: &str, values: &[String]) -> Option<String> {
    use settee_views::reduce::Native;
    match view {
        "sum" => model::reduced(Native::Sum, values),
        "stats" => model::reduced(Native::Stats, values),
        "function" => {
            Some(format!("[{},{}]", values.len(), values.iter().map(|text| number(text)).sum::<u64>()))
        }
        _ => model::reduced(Native::Count, values),
    }
}

pub(crate) fn definition() -> Arc<Definition> {
    Arc::new(Definition::of(&DesignDocument::parse_unchecked(DESIGN.as_bytes()).unwrap()))
}

/// A node: its disk, its index, and the vBuckets that it has.
pub(crate) struct Node {
    pub(crate) fs: FaultFs,
    pub(crate) memory: Arc<Memory>,
    pub(crate) options: Options,
    pub(crate) vbs: BTreeSet<VbId>,
    pub(crate) index: Index,
}

impl Node {
    pub(crate) fn new(seed: u64, limit: usize, options: Options) -> Self {
        let (fs, memory) = (FaultFs::new(seed), Memory::new(limit));
        let index = open(&fs, &memory, options).expect("a disk without faults");
        Self { fs, memory, options, vbs: BTreeSet::new(), index }
    }

    pub(crate) fn reopen(&mut self) -> Result<(), IndexError> {
        self.index = open(&self.fs, &self.memory, self.options)?;
        Ok(())
    }
}

pub(crate) fn open(fs: &FaultFs, memory: &Arc<Memory>, options: Options) -> Result<Index, IndexError> {
    let fs: Arc<dyn Fs> = Arc::new(fs.clone());
    Index::open(fs, Path::new(DIR), definition(), memory, options)
}

/// What nodes answer together, over those of these vBuckets that they have, or what was wrong.
pub(crate) fn answer(nodes: &[Node], active: &VbSet, view: &str, text: &str) -> Result<String, String> {
    let mut query = Parameters::parse(text, None)
        .and_then(|parameters| parameters.query(true))
        .map_err(|refusal| format!("refused: {}", refusal.reason))?;
    let place = definition().view(view).unwrap();
    let (mut sources, mut total_rows) = (Vec::new(), 0);
    for (at, node) in nodes.iter().enumerate() {
        let snapshot = node.index.snapshot();
        let here: VbSet = node.vbs.iter().copied().filter(|vb| active.contains(*vb)).collect();
        total_rows += snapshot.total_rows(place.map, &here);
        let mut answer = snapshot.query(place, &query, &here).map_err(|error| error.to_string())?;
        if nodes.len() == 1 {
            query.skip = answer.skip(query.skip);
        }
        // Every other node is asked over the wire.
        let source = if at % 2 == 0 {
            Asked::Here(Box::new(answer))
        } else {
            Asked::There(Box::new(sent(answer, &query, place, here)))
        };
        sources.push((format!("node {at}"), source));
    }
    let mut merge = Merge::new(&query, sources);
    let mut out = Vec::new();
    let total = query.grouping.is_none().then_some(total_rows);
    let mut writer = Writer::begin(total, None, &mut out);
    let mut functions = Reducer::default();
    assert_eq!(merge.total_rows(), Some(total_rows));
    loop {
        match merge.step(&mut functions) {
            Step::Row(MergedRow::Row(row, _)) => {
                assert!(active.contains(row.vb));
                let (key, value) = (row.key.as_bytes(), row.value.as_bytes());
                writer.map_row(&MapRow { docid: &row.docid, key, value, origin: None }, &mut out);
            }
            Step::Row(MergedRow::Group { key, value }) => {
                writer.reduced_row(key.as_bytes(), value.as_bytes(), &mut out);
            }
            Step::Passed => {}
            Step::Waiting => panic!("everything has come"),
            Step::End => break,
        }
    }
    if let Some(error) = merge.errors().first() {
        return Err(format!("{}: {}", error.from, error.reason));
    }
    writer.end(&[], &mut out);
    Ok(String::from_utf8(out).unwrap())
}

/// A node's answer.
enum Asked {
    Here(Box<Answer>),
    There(Box<Remote>),
}

impl Source for Asked {
    fn pull(&mut self, functions: &mut dyn Functions) -> Result<Pull, SourceError> {
        match self {
            Self::Here(answer) => answer.pull(functions),
            Self::There(remote) => remote.pull(functions),
        }
    }

    fn total_rows(&mut self) -> Result<Option<u64>, SourceError> {
        match self {
            Self::Here(answer) => Source::total_rows(&mut **answer),
            Self::There(remote) => remote.total_rows(),
        }
    }
}

/// The answer as it comes from another node.
fn sent(mut answer: Answer, query: &Query, place: ViewPlace, vbs: VbSet) -> Remote {
    let asked = Question {
        bucket: BucketUuid("b".into()),
        design: "d".into(),
        signature: definition().signature(),
        view: "v".into(),
        vbs,
        query: Arc::new(query.clone()),
    };
    let asked = Question::decode(&asked.encode()).unwrap();
    let mut remote = Remote::new("there", Expected::of(&asked, definition().reducing(place)));
    let mut out = Vec::new();
    let mut writer = AnswerWriter::begin(answer.total_rows(), None, &mut out);
    let mut functions = Reducer::default();
    loop {
        match answer.next(&mut functions) {
            Ok(Some((range, item))) => writer.item(range, &item, &mut out).unwrap(),
            Ok(None) => break writer.end(&mut out),
            Err(error) => break writer.failed(&error.to_string(), &mut out),
        }
    }
    out.chunks(100).for_each(|part| remote.push(part));
    remote.close(Ok(()));
    remote
}

/// The rows that a query has to be answered from.
pub(crate) fn expected(nodes: &[Node], histories: &[History], active: &VbSet, map: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for node in nodes {
        let snapshot = node.index.snapshot();
        for vb in node.vbs.iter().filter(|vb| active.contains(**vb)) {
            let Some(state) = snapshot.state(*vb) else { continue };
            let of_vb = histories[usize::from(vb.get())].rows(state.seqno, map);
            assert_eq!(state.rows[map], of_vb.len() as u64, "vBucket {vb} at {}", state.seqno);
            let documents = histories[usize::from(vb.get())].documents(state.seqno);
            assert_eq!(state.documents, documents, "vBucket {vb} at {}", state.seqno);
            rows.extend(of_vb);
        }
    }
    rows
}

/// How many rows nodes reduce and leave out of a reduction of everything, over those of these vBuckets that they have.
pub(crate) fn reduced_and_left_out(nodes: &[Node], active: &VbSet, view: &str) -> (u64, u64) {
    let query = Parameters::parse("", None).and_then(|parameters| parameters.query(true)).ok().unwrap();
    let place = definition().view(view).unwrap();
    let (mut reduced, mut left_out) = (0, 0);
    for node in nodes {
        let here: VbSet = node.vbs.iter().copied().filter(|vb| active.contains(*vb)).collect();
        let mut answer = node.index.snapshot().query(place, &query, &here).unwrap();
        while let Some((_, item)) = answer.next(&mut Reducer::default()).unwrap() {
            let Item::Group(Group { partial: Partial::Native(state), .. }) = item else { panic!("{item:?}") };
            reduced += state.count();
            left_out += state.left_out();
        }
    }
    (reduced, left_out)
}

pub(crate) fn random_change(random: &mut Rng, pool: &[String], docid: String) -> Change {
    let mut rows = Vec::new();
    if random.u8(..6) > 0 {
        for most in [7, 3] {
            let row = |random: &mut Rng| js::Row {
                key: model::random_key(random, pool),
                value: if random.u8(..9) == 0 { "null".to_owned() } else { random.i32(-9..9).to_string() },
            };
            rows.push((0..random.usize(..most)).map(|_| row(random)).collect());
        }
    }
    Change { docid, rows }
}
