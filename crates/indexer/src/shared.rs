//! State that the lanes of a bucket share with one another, and with queries.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use base::{Now, Seqno, VbId, VbUuid};
use engine::{Bucket, Waiter};
use parking_lot::{Condvar, Mutex};
use storage::Fs;
use views::{
    design::Signature,
    index::{DiskBytes, Memory, Options, Snapshot, VbSet},
    worker::Settings,
};

use crate::{
    alarm::{Alarms, COMMAND},
    desk::{Desk, Lane, Wants},
    documents::Inflate,
    lane::Member,
    mistakes::Mistakes,
    pace::Pacing,
    places::Places,
};

/// How much a lane reads at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batches {
    /// About how many bytes a feed is asked for at once.
    pub feed_bytes: usize,
    /// With so many documents a batch is full.
    pub documents: usize,
    /// With so many bytes it is full as well.
    pub bytes: usize,
    /// With more bytes of rows in memory fewer documents are mapped at once.
    pub rows_bytes: usize,
}

impl Default for Batches {
    fn default() -> Self {
        Self { feed_bytes: 512 << 10, documents: 1024, bytes: 4 << 20, rows_bytes: 16 << 20 }
    }
}

/// What the indexes of a bucket need.
#[derive(Clone)]
pub struct Setup {
    /// The bucket.
    pub bucket: Arc<Bucket>,
    /// Where indexes are written.
    pub fs: Arc<dyn Fs>,
    /// The folder of this bucket's indexes, which has nothing else in it.
    pub dir: PathBuf,
    /// What they may hold in memory.
    pub memory: Arc<Memory>,
    /// How they lie on the disk.
    pub index: Options,
    /// With less than so many bytes free, nothing is indexed.
    pub room_min: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Whether clients of the bucket wait for longer than they shall. Indexes that are built give way to them then.
    pub gives_way: Arc<dyn Fn() -> bool + Send + Sync>,
    /// vBuckets of an index that nobody has told of are forgotten so long after others were told of: they left while the node was
    /// down.
    pub strays_kept: Duration,
    /// How much is read at a time.
    pub batches: Batches,
    /// When changes are seen and durable.
    pub pacing: Pacing,
    /// What map functions may take.
    pub worker: Settings,
    /// Starts a process that runs functions.
    pub command: Arc<dyn Fn() -> Command + Send + Sync>,
    /// What processes of all buckets have places in.
    pub places: Arc<Places>,
    /// How bodies are inflated.
    pub inflate: Inflate,
    /// Wakes lanes.
    pub alarms: Arc<dyn Alarms>,
    /// The clock that the bucket is driven with.
    pub clock: Arc<dyn Fn() -> Now + Send + Sync>,
}

pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    /// Something is seen that was not before, or will never be.
    pub(crate) shown: Condvar,
    pub(crate) stopping: AtomicBool,
    pub(crate) alarms: Arc<dyn Alarms>,
    time: Time,
}

/// Where lanes have the time from.
enum Time {
    /// It goes by since then.
    Since(Instant),
    /// Somebody says what it is: so many nanoseconds.
    Told(AtomicU64),
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) desk: Desk,
    pub(crate) outlets: BTreeMap<Signature, Outlet>,
    /// On their way from one lane to another.
    pub(crate) parked: BTreeMap<Signature, Member>,
    pub(crate) lanes: BTreeMap<Lane, Waiter>,
    pub(crate) next_ticket: u64,
    /// Lanes for which the disk has too little room.
    pub(crate) without_room: BTreeSet<Lane>,
}

/// What is seen of an index.
#[derive(Default)]
pub(crate) struct Outlet {
    pub(crate) snapshot: Option<Snapshot>,
    /// What the snapshot is of each vBucket exactly, or newer than.
    pub(crate) whole: BTreeMap<VbId, (VbUuid, Seqno)>,
    /// The vBuckets of which the snapshot has something whole.
    pub(crate) begun_whole: VbSet,
    /// Up to where it has each vBucket as that was, seen or not.
    pub(crate) applied: BTreeMap<VbId, Seqno>,
    /// What queries wait for.
    pub(crate) awaited: BTreeMap<u64, Wants>,
    pub(crate) mistakes: Mistakes,
    /// How often it was fed with a vBucket from its beginning that had something by then.
    pub(crate) begun: u64,
    pub(crate) disk: DiskBytes,
    /// How far the compaction is that runs: bytes that it has gone through, and all that it has to.
    pub(crate) compaction: Option<(u64, u64)>,
}

/// Whether an index that is so far has what is wanted.
pub(crate) fn covers(whole: &BTreeMap<VbId, (VbUuid, Seqno)>, wanted: &Wants) -> bool {
    wanted.iter().all(|(vb, (branch, seqno))| {
        whole.get(vb).is_some_and(|(known, reached)| known == branch && reached >= seqno)
    })
}

impl Shared {
    pub(crate) fn new(alarms: Arc<dyn Alarms>) -> Arc<Self> {
        Self::with(alarms, Time::Since(Instant::now()))
    }

    /// The time is what [`Shared::tell_time`] says.
    pub(crate) fn without_clock(alarms: Arc<dyn Alarms>) -> Arc<Self> {
        Self::with(alarms, Time::Told(AtomicU64::new(0)))
    }

    fn with(alarms: Arc<dyn Alarms>, time: Time) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            shown: Condvar::new(),
            stopping: AtomicBool::new(false),
            alarms,
            time,
        })
    }

    pub(crate) fn now(&self) -> Duration {
        match &self.time {
            Time::Since(begin) => begin.elapsed(),
            Time::Told(nanos) => Duration::from_nanos(nanos.load(SeqCst)),
        }
    }

    /// What the time is, for lanes without a clock. It never goes back.
    pub(crate) fn tell_time(&self, now: Duration) {
        if let Time::Told(nanos) = &self.time {
            nanos.fetch_max(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), SeqCst);
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Has lanes look at the desk.
    pub(crate) fn call(&self, lanes: &[Lane]) {
        let waiters: Vec<Waiter> = {
            let state = self.state.lock();
            lanes.iter().filter_map(|lane| state.lanes.get(lane).copied()).collect()
        };
        waiters.into_iter().for_each(|waiter| self.alarms.wake(Waiter { ticket: COMMAND, ..waiter }));
    }
}
