//! A bucket over a disk with faults, an indexer over another one, and what an index of the bucket has to be.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use base::{Datatype, DocKey, HashedKey, NodeId, Seqno, VbId};
use engine::{Bucket, BucketOptions, Delete, FeedKind, FeedOptions, FeedStep, Store, Topology};
use fastrand::Rng;
use settee_indexer::{Alarm, Batches, Change, IndexStatus, Indexer, Pacing, Places, Setup, WaitError, Wants};
use storage::{FaultFs, Fs, Options as StoreOptions};
use views::{
    design::{DesignDocument, Signature},
    index::{Item, Memory, NoFunctions, Options, Snapshot, VbSet},
    js::Limits,
    query::Parameters,
    worker::Settings,
};

use crate::alarms::{Driver, Given, TestAlarms, now};

pub(crate) const VBUCKETS: u16 = 16;
/// Nothing here takes so long, however slow the machine is.
pub(crate) const LONG: Duration = Duration::from_secs(300);
pub(crate) const DIR: &str = "/indexes";

/// By the number of a document, which has one where it is JSON.
pub(crate) const NUMBERS: &str = r#"{"views":{"n":{"map":"function (doc, meta) { emit(doc.n, null); }"}}}"#;
/// The same, where no document needs a process: it is a function of a plain shape, and looks at none that is no object.
pub(crate) const PLAIN: &str =
    r#"{"views":{"n":{"map":"function (doc, meta) { if (meta.type == 'json') emit(doc.n, null); }"}}}"#;
/// Two rows for each JSON document, by a function that needs a process. The whole of some, with a reduction by a function.
pub(crate) const MANY: &str = r#"{"views":{
    "t":{"map":"function (doc, meta) { if (meta.type == 'json') { emit([doc.t, meta.id.slice(0)], doc.n); emit(doc.t, 1); } }","reduce":"_count"},
    "odd":{"map":"function (doc, meta) { if (doc.n % 2) emit(doc.n, doc); }","reduce":"function (keys, values, rereduce) { return rereduce ? sum(values) : values.length; }"}
}}"#;

/// Each JSON document as it is.
pub(crate) const WHOLE: &str =
    r#"{"views":{"whole":{"map":"function (doc, meta) { if (meta.type == 'json') emit(doc.n, doc); }"}}}"#;

/// A row: document, key, value.
pub(crate) type Row = (String, String, String);

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) disk: FaultFs,
    pub(crate) index_disk: FaultFs,
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) indexer: Option<Indexer>,
    pub(crate) documents: Vec<(String, DesignDocument)>,
    pub(crate) time: Duration,
    pub(crate) terms: u64,
    pub(crate) served: Vec<VbId>,
    pub(crate) pacing: Pacing,
    pub(crate) rows_bytes: usize,
    pub(crate) batch_documents: usize,
    pub(crate) places: Arc<Places>,
    pub(crate) gives_way: Arc<dyn Fn() -> bool + Send + Sync>,
    driver: Option<Driver>,
    alarms: Arc<TestAlarms>,
    begin: Instant,
}

/// What random tests go by at the moment.
static SEED: AtomicU64 = AtomicU64::new(1);

/// The seeds that the tests go through.
pub(crate) fn seeds() -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("INDEXING_SEED").unwrap_or(1);
    first..first + number("INDEXING_SEEDS").unwrap_or(1)
}

pub(crate) fn set_seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
}

pub(crate) fn seed() -> u64 {
    SEED.load(Ordering::Relaxed)
}

pub(crate) fn document(text: &str) -> DesignDocument {
    DesignDocument::parse_unchecked(text.as_bytes()).unwrap()
}

fn open_bucket(disk: &FaultFs, alarms: &Arc<TestAlarms>, begin: Instant) -> Arc<Bucket> {
    let options = StoreOptions {
        segment_bytes: 256 << 10,
        segment_bytes_min: 64 << 10,
        reserve_bytes: 1 << 20,
        ..StoreOptions::default()
    };
    let store = storage::open(Path::new("/shard"), Arc::new(disk.clone()), options).unwrap();
    let options = BucketOptions { vbuckets: VBUCKETS, ..BucketOptions::new("b", 64 << 20) };
    let bucket =
        Bucket::open(options, vec![Arc::new(store)], Arc::default(), alarms.clone(), now(begin)).unwrap();
    while bucket.warm_up(0, now(begin)).unwrap() {}
    bucket
}

impl World {
    /// A bucket whose indexer knows these design documents.
    pub(crate) fn new(documents: &[(&str, &str)]) -> Self {
        let seed = seed();
        println!("  INDEXING_SEED={seed}");
        let (alarms, begin) = (Arc::<TestAlarms>::default(), Instant::now());
        let disk = FaultFs::new(seed);
        let bucket = open_bucket(&disk, &alarms, begin);
        let mut world = Self {
            rng: Rng::with_seed(seed),
            driver: Some(Driver::new(bucket.clone(), alarms.clone(), begin)),
            index_disk: FaultFs::new(seed + 1),
            disk,
            bucket,
            indexer: None,
            documents: Vec::new(),
            time: Duration::from_secs(20),
            terms: 0,
            served: (0..VBUCKETS).map(VbId).collect(),
            pacing: Pacing {
                show_after: Duration::from_millis(20),
                commit_after: Duration::from_millis(100),
                ..Pacing::default()
            },
            rows_bytes: Batches::default().rows_bytes,
            batch_documents: 32,
            places: Places::new(3),
            gives_way: Arc::new(|| false),
            alarms,
            begin,
        };
        world.define(documents);
        world
    }

    pub(crate) fn define(&mut self, documents: &[(&str, &str)]) {
        self.documents = documents.iter().map(|(name, text)| ((*name).to_owned(), document(text))).collect();
        if let Some(indexer) = &self.indexer {
            indexer.set_design_documents(&self.documents);
        }
    }

    /// Starts the indexer, which is told of nothing yet but the design documents.
    pub(crate) fn start_untold(&mut self) {
        let limits = Limits { time: self.time, ..Limits::default() };
        let begin = self.begin;
        let program = std::env::current_exe().unwrap();
        let indexer = Indexer::start(Setup {
            bucket: self.bucket.clone(),
            fs: Arc::new(self.index_disk.clone()),
            dir: PathBuf::from(DIR),
            memory: Memory::new(16 << 20),
            index: Options::default(),
            room_min: Arc::new(|| 0),
            gives_way: self.gives_way.clone(),
            strays_kept: LONG,
            // Small enough that snapshots from disk come in parts.
            batches: Batches {
                feed_bytes: 1 << 10,
                documents: self.batch_documents,
                rows_bytes: self.rows_bytes,
                ..Batches::default()
            },
            pacing: self.pacing,
            worker: Settings { limits, grace: LONG, ..Settings::default() },
            command: Arc::new(move || {
                let mut command = Command::new(&program);
                command.arg("worker");
                command
            }),
            places: self.places.clone(),
            inflate: |_, _| false,
            alarms: Arc::new(Given(self.alarms.clone())),
            clock: Arc::new(move || now(begin)),
        });
        let indexer = indexer.unwrap();
        indexer.set_design_documents(&self.documents);
        self.indexer = Some(indexer);
    }

    pub(crate) fn start(&mut self) {
        self.start_untold();
        for vb in &self.served {
            self.indexer().hear(*vb, Change::Served);
        }
    }

    pub(crate) fn indexer(&self) -> &Indexer {
        self.indexer.as_ref().unwrap()
    }

    /// The node's power is lost. Everything is started again.
    pub(crate) fn crash(&mut self) {
        self.index_disk.die_after(0);
        self.indexer = None;
        self.driver = None;
        let alarms = Arc::<TestAlarms>::default();
        let gone = std::mem::replace(&mut self.bucket, {
            // A bucket of no importance, since the store can be open once only.
            let disk = FaultFs::new(0);
            open_bucket(&disk, &alarms, self.begin)
        });
        drop(gone);
        self.disk.crash();
        self.index_disk.crash();
        self.reopen();
    }

    fn reopen(&mut self) {
        self.alarms = Arc::default();
        self.bucket = open_bucket(&self.disk, &self.alarms, self.begin);
        self.driver = Some(Driver::new(self.bucket.clone(), self.alarms.clone(), self.begin));
        self.start();
    }

    // ---- the bucket -----------------------------------------------------------------------------------------------

    /// Changes documents at random.
    pub(crate) fn change(&mut self, count: usize) {
        for _ in 0..count {
            let number = self.rng.u32(..300);
            let id = format!("d{number}");
            match self.rng.u8(..10) {
                0 | 1 => self.delete(&id),
                2 => self.store(&id, &[0xff, number as u8], Datatype::RAW),
                _ => {
                    let (n, t) = (self.rng.u32(..1000), self.rng.choice(["a", "b", "c"]).unwrap());
                    self.store(&id, format!("{{\"n\":{n},\"t\":\"{t}\"}}").as_bytes(), Datatype::JSON);
                }
            }
        }
    }

    fn vb(id: &str) -> VbId {
        let sum: u32 = id.bytes().map(u32::from).sum();
        VbId((sum % u32::from(VBUCKETS)) as u16)
    }

    pub(crate) fn store(&self, id: &str, value: &[u8], datatype: Datatype) {
        let key = [&[0], id.as_bytes()].concat();
        let key = HashedKey::new(DocKey::trusted(&key));
        let store = Store { datatype, ..Store::set(value) };
        let vb = Self::vb(id);
        if self.served.contains(&vb) {
            self.bucket.store(vb, key, &store, now(self.begin)).unwrap();
        }
    }

    fn delete(&self, id: &str) {
        let key = [&[0], id.as_bytes()].concat();
        let key = HashedKey::new(DocKey::trusted(&key));
        let delete = Delete { cas: base::Cas::NONE, durability: base::bucket::DurabilityLevel::None };
        // It need not be there.
        let _ = self.bucket.delete(Self::vb(id), key, &delete, now(self.begin));
    }

    /// Flips a bit of a value on the disk of the bucket. Says in how many files it was.
    pub(crate) fn damage(&self, value: &[u8]) -> usize {
        let dir = Path::new("/shard");
        let names = self.disk.list(dir).unwrap().into_iter().filter(|name| name.ends_with(".seg"));
        let hits = names.map(|name| dir.join(name)).filter(|path| {
            let content = self.disk.contents(path).unwrap_or_default();
            let at = content.windows(value.len()).position(|window| window == value);
            at.is_some_and(|at| self.disk.flip_bit(path, at as u64, 3))
        });
        hits.count()
    }

    /// Everything is on the disk of the bucket.
    pub(crate) fn persist(&self) {
        let is_persisted = |vb: &VbId| {
            let history = self.bucket.vb_history(*vb).unwrap();
            history.persisted >= history.high_seqno
        };
        self.poll("the disk", || self.served.iter().all(is_persisted).then_some(()));
    }

    /// Has the bucket's disk take nothing from now on, or take what waits.
    pub(crate) fn hold_disk(&self, holds: bool) {
        self.driver.as_ref().unwrap().hold(holds);
    }

    pub(crate) fn leave(&mut self, vb: VbId) {
        self.terms += 1;
        self.bucket.make_dead(vb, self.terms).unwrap();
        self.served.retain(|served| *served != vb);
        self.indexer().hear(vb, Change::Gone);
    }

    /// A copy is none for a moment, and nobody tells the indexer.
    pub(crate) fn take_turns(&mut self, vb: VbId) {
        self.terms += 2;
        self.bucket.make_dead(vb, self.terms - 1).unwrap();
        let topology = Topology { chains: vec![vec![NodeId(0)]], copies: 1, to_disk: false };
        self.bucket.activate(vb, self.terms, topology, now(self.begin)).unwrap();
    }

    pub(crate) fn come(&mut self, vb: VbId) {
        self.terms += 1;
        let topology = Topology { chains: vec![vec![NodeId(0)]], copies: 1, to_disk: false };
        self.bucket.activate(vb, self.terms, topology, now(self.begin)).unwrap();
        self.served.push(vb);
        self.indexer().hear(vb, Change::Served);
    }

    /// A vBucket loses everything, and is served again.
    pub(crate) fn empty(&mut self, vb: VbId) {
        self.leave(vb);
        self.bucket.drop_vb(vb, now(self.begin)).unwrap();
        self.poll("an empty vBucket", || {
            (self.bucket.vb_history(vb).unwrap().high_seqno == Seqno(0)).then_some(())
        });
        self.come(vb);
    }

    /// Each document with its value, as a feed tells them.
    pub(crate) fn truth(&self) -> BTreeMap<String, (Vec<u8>, Datatype)> {
        let mut documents = BTreeMap::new();
        let alarm = self.alarms.own();
        for vb in &self.served {
            let high = self.bucket.vb_history(*vb).unwrap().high_seqno;
            let mut feed = self.bucket.feed(*vb, FeedOptions::default(), alarm.waiter(1)).unwrap();
            let (mut reached, mut end) = (Seqno(0), Seqno(0));
            while reached < high {
                match feed.next(1 << 20, now(self.begin)).unwrap() {
                    FeedStep::Wait => drop(alarm.wait(Duration::from_millis(100))),
                    FeedStep::Batch(batch) => {
                        end = batch.snapshot.map_or(end, |snapshot| snapshot.end);
                        for item in &batch.items {
                            let id = String::from_utf8(item.key().logical().to_vec()).unwrap();
                            if item.kind == FeedKind::Mutation {
                                documents.insert(id, (item.value().to_vec(), item.datatype));
                            } else {
                                documents.remove(&id);
                            }
                        }
                        if batch.ends_snapshot {
                            reached = end;
                        }
                    }
                }
            }
        }
        documents
    }

    // ---- the indexes ----------------------------------------------------------------------------------------------

    /// What the bucket has now.
    pub(crate) fn wants(&self) -> Wants {
        let history = |vb: &VbId| {
            let history = self.bucket.vb_history(*vb).unwrap();
            (*vb, (history.uuid, history.high_seqno))
        };
        self.served.iter().map(history).collect()
    }

    pub(crate) fn wait_for(&self, text: &str) -> Result<Snapshot, WaitError> {
        self.indexer().wait_for(&document(text).signature(), &self.wants(), Instant::now() + LONG)
    }

    /// Whether the index of a design document is what a map over the bucket is.
    pub(crate) fn check(&self, text: &str) {
        let snapshot = match self.wait_for(text) {
            Ok(snapshot) => snapshot,
            Err(error) => panic!("{error}: {:?}", self.indexer().status()),
        };
        let truth = self.truth();
        for view in ["n", "t", "odd"] {
            let Some(place) = snapshot.definition().view(view) else { continue };
            let expected = expected(view, &truth);
            let rows = self.rows(&snapshot, view);
            let wrong = rows.iter().find(|row| !expected.contains(row));
            let lacking = expected.iter().find(|row| !rows.contains(row));
            assert_eq!((wrong, lacking, rows.len()), (None, None, expected.len()), "{view}");
            let served: VbSet = self.served.iter().copied().collect();
            assert_eq!(snapshot.total_rows(place.map, &served), expected.len() as u64, "{view}");
        }
    }

    pub(crate) fn rows(&self, snapshot: &Snapshot, view: &str) -> Vec<Row> {
        let place = snapshot.definition().view(view).unwrap();
        let query = Parameters::parse("reduce=false", None).unwrap().query(false).unwrap();
        let served: VbSet = self.served.iter().copied().collect();
        let mut answer = snapshot.query(place, &query, &served).unwrap();
        let mut rows = Vec::new();
        while let Some((_, item)) = answer.next(&mut NoFunctions).unwrap() {
            let Item::Row(row) = item else { panic!("a group") };
            rows.push((row.docid, row.key, row.value));
        }
        rows.sort();
        rows
    }

    pub(crate) fn status_of(&self, text: &str) -> Option<IndexStatus> {
        let signature: Signature = document(text).signature();
        self.indexer().status().indexes.into_iter().find(|status| status.signature == signature)
    }

    /// The folders of indexes.
    pub(crate) fn folders(&self) -> Vec<String> {
        self.index_disk.list(Path::new(DIR)).unwrap_or_default()
    }

    /// An alarm that nothing wakes.
    pub(crate) fn alarm(&self) -> Box<dyn Alarm> {
        self.alarms.own()
    }

    /// Waits for something.
    pub(crate) fn poll<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let begin = Instant::now();
        let alarm = self.alarms.own();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(begin.elapsed() < LONG, "{what}: {:?}", self.indexer.as_ref().map(Indexer::status));
            alarm.wait(Duration::from_millis(5));
        }
    }
}

/// The rows of a view, made by what its functions say, without them.
fn expected(view: &str, truth: &BTreeMap<String, (Vec<u8>, Datatype)>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (id, (value, datatype)) in truth {
        let text = String::from_utf8_lossy(value).into_owned();
        let member = |name: &str| {
            let members = views::json::members(&text)?;
            members.into_iter().find(|(member, _)| member == name).map(|(_, value)| value.to_owned())
        };
        let is_json = datatype.contains(Datatype::JSON);
        let (n, t) = (member("n"), member("t"));
        let row = |key: String, value: String| (id.clone(), key, value);
        match (view, n, t) {
            ("n", n, _) => rows.push(row(n.unwrap_or_else(|| "null".to_owned()), "null".to_owned())),
            ("t", Some(n), Some(t)) if is_json => {
                rows.push(row(format!("[{t},\"{id}\"]"), n));
                rows.push(row(t, "1".to_owned()));
            }
            ("odd", Some(n), _) if n.parse::<u32>().is_ok_and(|n| n % 2 == 1) => {
                rows.push(row(n, text.clone()))
            }
            _ => {}
        }
    }
    rows.sort();
    rows
}
