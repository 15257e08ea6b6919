//! A node that is made up: its copies, and an index of them in memory.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::PipeWriter,
    path::Path,
    process::Command,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::{Duration, Instant},
};

use base::{BucketUuid, Seqno, VbId, VbRole, VbUuid};
use indexer::{WaitError, Wants};
use storage::FaultFs;
use views::{
    design::{DesignDocument, Signature},
    index::{
        Batch, Definition, DocumentRows, Index, Memory, NoFunctions, Options, Snapshot, VbSet, wire::Question,
    },
    js::Row,
    query::Parameters,
    worker::{
        Settings,
        wire::{Reply, Request},
    },
};

use super::{answers::Homes, here::Holding};

/// The design document of all of these tests.
pub(crate) const DESIGN: &str = r#"{"views":{"v":{"map":"x","reduce":"_count"}}}"#;
pub(crate) const BUCKET: &str = "b";

pub(crate) fn definition() -> Arc<Definition> {
    Arc::new(Definition::of(&DesignDocument::parse_unchecked(DESIGN.as_bytes()).unwrap()))
}

/// The only view has a function that reduces.
pub(crate) fn reduced_by_a_function() -> Arc<Definition> {
    let text = r#"{"views":{"v":{"map":"x","reduce":"y"}}}"#;
    Arc::new(Definition::of(&DesignDocument::parse_unchecked(text.as_bytes()).unwrap()))
}

/// A question to a node about these vBuckets.
pub(crate) fn question(query: &str, vbs: &[u16]) -> Question {
    Question {
        bucket: BucketUuid(BUCKET.into()),
        design: "d".into(),
        signature: definition().signature(),
        view: "v".into(),
        vbs: vbs.iter().map(|vb| VbId(*vb)).collect(),
        query: Arc::new(Parameters::parse(query, None).unwrap().query(true).unwrap()),
    }
}

/// A node.
pub(crate) struct Home(pub(crate) Mutex<State>);

pub(crate) struct State {
    index: Index,
    /// Role, term, and last seqno of each copy.
    pub(crate) copies: BTreeMap<VbId, (VbRole, u64, Seqno)>,
    /// What is done the next time that the index is waited for.
    pub(crate) meanwhile: Option<Meanwhile>,
    pub(crate) may_serve: bool,
    pub(crate) documents: u64,
    /// Nothing once the bucket is gone.
    pub(crate) life: Option<Arc<()>>,
}

type Meanwhile = Box<dyn FnOnce(&mut State) + Send>;

/// The branch of all copies.
const BRANCH: VbUuid = VbUuid(1);

impl Home {
    /// A node that serves these vBuckets, which are empty.
    pub(crate) fn serving(vbs: &[u16]) -> Arc<Self> {
        Self::with_index(definition(), vbs)
    }

    /// The same with an index of another design document.
    pub(crate) fn with_index(definition: Arc<Definition>, vbs: &[u16]) -> Arc<Self> {
        let (fs, memory) = (Arc::new(FaultFs::new(1)), Memory::new(1 << 20));
        let index = Index::open(fs, Path::new("/i"), definition, &memory, Options::default()).unwrap();
        let copies = vbs.iter().map(|vb| (VbId(*vb), (VbRole::Active, 1, Seqno(0)))).collect();
        let state = State {
            index,
            copies,
            meanwhile: None,
            may_serve: true,
            documents: 0,
            life: Some(Arc::default()),
        };
        Arc::new(Self(Mutex::new(state)))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    /// A document is stored, and not indexed.
    pub(crate) fn store(&mut self, vb: u16) {
        self.copies.get_mut(&VbId(vb)).unwrap().2.0 += 1;
    }

    /// A vBucket is indexed up to its end, with this document and the keys of its rows.
    pub(crate) fn index(&mut self, vb: u16, docid: &str, keys: &[&str]) {
        let seqno = self.copies[&VbId(vb)].2;
        let row = |key: &&str| Row { key: (*key).to_owned(), value: "7".to_owned() };
        let rows = vec![keys.iter().map(row).collect()];
        let documents = vec![DocumentRows { docid: docid.to_owned(), rows }];
        let batch = Batch { vb: VbId(vb), branch: BRANCH, seqno, documents };
        self.index.apply(batch, &mut NoFunctions).unwrap();
        self.index.publish(&mut NoFunctions).unwrap();
    }

    /// Both.
    pub(crate) fn add(&mut self, vb: u16, docid: &str, keys: &[&str]) {
        self.store(vb);
        self.index(vb, docid, keys);
    }

    fn has(&self, wanted: &Wants) -> bool {
        let snapshot = self.index.snapshot();
        wanted.iter().all(|(vb, (_, seqno))| {
            *seqno == Seqno(0) || snapshot.state(*vb).is_some_and(|state| state.seqno >= *seqno)
        })
    }
}

impl Holding for Home {
    fn may_serve(&self) -> bool {
        self.state().may_serve
    }

    fn role_and_term(&self, vb: VbId) -> (VbRole, u64) {
        self.state().copies.get(&vb).map(|(role, term, _)| (*role, *term)).unwrap_or_default()
    }

    fn newest(&self, vb: VbId) -> Option<(VbUuid, Seqno)> {
        self.state().copies.get(&vb).map(|(_, _, seqno)| (BRANCH, *seqno))
    }

    fn documents(&self) -> u64 {
        self.state().documents
    }

    fn look(&self, signature: &Signature, vbs: &VbSet) -> Option<(Option<Snapshot>, VbSet)> {
        let snapshot = self.state().index.snapshot();
        let lacks = vbs.iter().filter(|vb| snapshot.state(*vb).is_none()).collect();
        (*signature == snapshot.definition().signature()).then_some((Some(snapshot), lacks))
    }

    fn wait_for(&self, signature: &Signature, wanted: &Wants, until: Instant) -> Result<Snapshot, WaitError> {
        if *signature != self.state().index.snapshot().definition().signature() {
            return Err(WaitError::Unknown);
        }
        loop {
            let mut state = self.state();
            if let Some(meanwhile) = state.meanwhile.take() {
                meanwhile(&mut state);
            }
            if state.has(wanted) {
                return Ok(state.index.snapshot());
            }
            drop(state);
            if Instant::now() >= until {
                return Err(WaitError::Late("changes are still being indexed".into()));
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn ask(&self, _: &Signature, _: &Wants) {}

    fn report_damage(&self, _: &Signature, _: u64) {}

    fn life(&self) -> Weak<dyn Send + Sync> {
        let life: Weak<()> = self.state().life.as_ref().map(Arc::downgrade).unwrap_or_default();
        life
    }
}

/// A node's only bucket.
pub(crate) struct OneBucket(pub(crate) Arc<Home>);

impl Homes for OneBucket {
    fn of(&self, bucket: &BucketUuid) -> Option<Arc<dyn Holding>> {
        let home = Arc::clone(&self.0) as Arc<dyn Holding>;
        (bucket.0 == BUCKET).then_some(home)
    }
}

/// What has a shell read a request of this length, and say this.
pub(crate) fn says(read: usize, reply: &Reply) -> String {
    let mut frame = Vec::new();
    reply.encode(&mut frame).unwrap();
    let mut script = format!("head -c {read} >/dev/null; printf '");
    frame.iter().for_each(|byte| write!(script, "\\{byte:03o}").unwrap());
    script + "'; "
}

/// How long it is on its way to a process.
pub(crate) fn length(request: &Request<'_>) -> usize {
    let mut frame = Vec::new();
    request.encode(&mut frame).unwrap();
    frame.len()
}

/// A process that reduces a row after the other, of keys and values as long as these. A call takes so long, and writes a byte to
/// `calls`.
pub(crate) fn slow(row: (&str, &str), takes: Duration, calls: PipeWriter) -> Command {
    let (context, sources) = (0, reduced_by_a_function().sources().clone());
    let load =
        length(&Request::Load { context, limits: Settings::default().limits, analysed: false, sources });
    let mut script = says(0, &Reply::Ready) + &says(load, &Reply::Loaded { context, result: Ok(()) });
    for id in 1..=100 {
        let (keys, values) = (Some(vec![row.0]), vec![row.1]);
        let ask = length(&Request::Reduce { id, context, function: 0, keys, values });
        let secs = takes.as_secs_f64();
        script += &format!("head -c {ask} >/dev/null; printf . >&2; sleep {secs}; ");
        script += &says(0, &Reply::Reduced { id, result: Ok("1".to_owned()) });
    }
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script + "cat >/dev/null").stderr(calls);
    command
}
