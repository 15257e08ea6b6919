//! The indexes of a bucket on a node, kept by the very code that keeps them in a server. Its lanes have no threads here: they are
//! given their turns. Map functions are of shapes that need no process.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use base::{NodeId, Now, VbId};
use cluster::{BucketInfo, DesignDocuments, Metadata};
use engine::{Bucket, Waiter};
use fastrand::Rng;
use indexer::{
    Alarm, Alarms, Batches, Change, Indexer, Lane, Lanes, Pacing, Places, Setup,
    copies::{Became, Copies},
};
use parking_lot::Mutex;
use storage::FaultFs;
use views::{
    design::{DesignDocument, Signature},
    index::{Memory, Options},
    worker::Settings,
};

use crate::connection::INDEXES;

/// Where indexes are on their disk.
const DIR: &str = "/indexes";
/// What nobody tells of for so long is gone.
const STRAYS_KEPT: Duration = Duration::from_secs(4);

/// See the module.
#[derive(Default)]
pub(crate) struct Indexing {
    copies: Copies,
    /// The design documents by which it runs, or does not.
    followed: Option<Arc<DesignDocuments>>,
    /// The metadata that it follows, all of them.
    is_as: Option<Arc<Metadata>>,
    pub(crate) running: Option<Running>,
    /// Indexers that were begun.
    begun: u64,
    /// How often a copy that is indexed was said to have another history.
    pub(crate) set_back: u64,
}

/// An indexer.
pub(crate) struct Running {
    /// Another one of this bucket has another number.
    pub(crate) number: u64,
    pub(crate) indexer: Indexer,
    lanes: Lanes,
    bells: Bells,
    clock: Arc<Mutex<Now>>,
    disk: FaultFs,
}

/// What was woken, by alarm.
#[derive(Clone, Default)]
struct Bells(Arc<Mutex<BTreeMap<u64, BTreeSet<u64>>>>);

struct Bell {
    all: Bells,
    number: u64,
}

impl Alarms for Bells {
    fn alarm(&self) -> Box<dyn Alarm> {
        let mut bells = self.0.lock();
        let number = bells.len() as u64;
        bells.insert(number, BTreeSet::new());
        Box::new(Bell { all: self.clone(), number })
    }

    fn wake(&self, waiter: Waiter) {
        if let Some(tickets) = self.0.lock().get_mut(&waiter.connection) {
            tickets.insert(waiter.ticket);
        }
    }
}

impl Alarm for Bell {
    fn waiter(&self, ticket: u64) -> Waiter {
        Waiter { worker: INDEXES, connection: self.number, ticket }
    }

    fn wait(&self, _: Duration) -> BTreeSet<u64> {
        self.all.0.lock().get_mut(&self.number).map(std::mem::take).unwrap_or_default()
    }
}

impl Indexing {
    /// Something has become of a copy.
    pub(crate) fn hear(&mut self, vb: VbId, became: Became) {
        if let Some(told) = self.copies.hear(vb, became)
            && let Some(running) = &self.running
        {
            let is_indexed = |(of, change)| of == vb && change != Change::Gone;
            self.set_back += u64::from(told == Change::Reset && self.copies.all().any(is_indexed));
            running.indexer.hear(vb, told);
        }
    }

    /// The engine wakes a lane.
    pub(crate) fn wake(&self, waiter: Waiter) {
        if let Some(running) = &self.running {
            running.bells.wake(waiter);
        }
    }

    /// Whether it is what these metadata say.
    pub(crate) fn is_as(&self, metadata: &Arc<Metadata>) -> bool {
        self.is_as.as_ref().is_some_and(|known| Arc::ptr_eq(known, metadata))
    }

    /// It is from now on what the metadata say of its bucket.
    pub(crate) fn follow(
        &mut self,
        (metadata, info): (&Arc<Metadata>, &BucketInfo),
        me: NodeId,
        bucket: &Arc<Bucket>,
        disk: &FaultFs,
    ) {
        let is_whole = self.follow_bucket(info, me, bucket, disk);
        self.is_as = is_whole.then(|| Arc::clone(metadata));
    }

    /// Says whether that was possible.
    fn follow_bucket(&mut self, info: &BucketInfo, me: NodeId, bucket: &Arc<Bucket>, disk: &FaultFs) -> bool {
        for (vb, change) in self.copies.index_followers(info.indexed_followers(me).collect()) {
            if let Some(running) = &self.running {
                running.indexer.hear(vb, change);
            }
        }
        let documents = &info.design_documents;
        if self.followed.as_ref() == Some(documents) {
            return true;
        }
        let defined: Vec<(String, DesignDocument)> = documents
            .iter()
            .map(|(name, document)| (name.to_owned(), design_of(&document.text).document.clone()))
            .collect();
        if defined.is_empty() {
            self.end(true);
        } else if let Some(running) = &self.running {
            running.indexer.set_design_documents(&defined);
        } else {
            // A disk may be full.
            let Some(running) = Running::begin(self.begun, bucket, disk) else { return false };
            self.begun += 1;
            running.indexer.set_design_documents(&defined);
            self.copies.all().for_each(|(vb, change)| running.indexer.hear(vb, change));
            self.running = Some(running);
        }
        self.followed = Some(Arc::clone(documents));
        true
    }

    /// Copies that are indexed while they follow another node's.
    pub(crate) fn followers(&self) -> impl Iterator<Item = VbId> {
        self.copies.followers().iter().copied()
    }

    /// Lanes do what is due.
    pub(crate) fn run(&mut self, rng: &mut Rng, now: Now) {
        let Some(running) = &mut self.running else { return };
        *running.clock.lock() = now;
        for lane in Lane::ALL {
            if rng.u8(0..3) > 0 {
                running.lanes.turn(lane, Duration::from_millis(now.mono_millis));
            }
        }
    }

    /// It ends: as asked to, or with its process.
    pub(crate) fn end(&mut self, is_clean: bool) {
        let Some(running) = self.running.take() else { return };
        if is_clean {
            running.lanes.end();
        } else {
            running.disk.die_after(0);
        }
    }
}

impl Running {
    fn begin(number: u64, bucket: &Arc<Bucket>, disk: &FaultFs) -> Option<Self> {
        let (bells, clock) = (Bells::default(), Arc::<Mutex<Now>>::default());
        let shown = Arc::clone(&clock);
        let setup = Setup {
            bucket: Arc::clone(bucket),
            fs: Arc::new(disk.clone()),
            dir: DIR.into(),
            memory: Memory::new(16 << 20),
            // Small enough that there are some of everything.
            index: Options { node_bytes: 400, segment_bytes: 8 << 10 },
            batches: Batches { feed_bytes: 300, documents: 8, ..Batches::default() },
            room_min: Arc::new(|| 0),
            gives_way: Arc::new(|| false),
            strays_kept: STRAYS_KEPT,
            pacing: Pacing {
                show_after: Duration::from_millis(100),
                commit_after: Duration::from_millis(400),
                commit_held: Duration::from_millis(100),
                ..Pacing::default()
            },
            worker: Settings::default(),
            command: Arc::new(|| panic!("no function needs a process")),
            places: Places::new(1),
            inflate: |_, _| false,
            alarms: Arc::new(bells.clone()),
            clock: Arc::new(move || *shown.lock()),
        };
        let (indexer, lanes) = Indexer::start_in_turns(setup).ok()?;
        Some(Self { number, indexer, lanes, bells, clock, disk: disk.clone() })
    }
}

/// A design document, and the index that it has.
pub(crate) struct Design {
    pub(crate) document: DesignDocument,
    pub(crate) signature: Signature,
}

thread_local! {
    static DESIGNS: RefCell<BTreeMap<String, Rc<Design>>> = RefCell::default();
}

/// A design document of the metadata. Each text is parsed once, since queries need it at every step.
pub(crate) fn design_of(text: &str) -> Rc<Design> {
    DESIGNS.with_borrow_mut(|known| {
        if let Some(design) = known.get(text) {
            return Rc::clone(design);
        }
        let document = DesignDocument::parse_unchecked(text.as_bytes()).expect("it was written here");
        let design = Rc::new(Design { signature: document.signature(), document });
        known.insert(text.to_owned(), Rc::clone(&design));
        design
    })
}
