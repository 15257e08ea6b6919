//! What indexers are given, and the folders that they have: `UUID/SIGNATURE/` in the folder of the service.

use std::{collections::BTreeSet, io, sync::Arc, time::Duration};

use base::BucketUuid;
use cluster::Metadata;
use engine::{Bucket, Waiter};
use indexer::{Alarm, Alarms, Batches, Pacing, Places, Setup};
use service::{Context, Place};
use views::{
    index::{Memory, Options, remove},
    worker::Settings,
};

/// The indexes of a node may hold this part of what its documents may, within bounds.
const MEMORY_PART: u64 = 8;
const MEMORY_MIB_MIN: u64 = 32;
const MEMORY_MIB_MAX: u64 = 1024;

/// Processes that run map functions at the same time, for each processor and at least.
const PROCESSES_OF_PROCESSOR: usize = 2;
const PROCESSES_MIN: usize = 4;
const PROCESSES_MAX: usize = 32;

/// After a start copies are served within seconds, but for those that an election has to find first.
const STRAYS_KEPT: Duration = Duration::from_mins(10);

/// Bytes that the indexes of all buckets may hold in memory, beside the quotas of buckets.
pub(super) fn memory_max(metadata: &Metadata) -> usize {
    let mib = (metadata.quotas.data_mb / MEMORY_PART).clamp(MEMORY_MIB_MIN, MEMORY_MIB_MAX);
    usize::try_from(mib << 20).unwrap_or(usize::MAX)
}

/// The places that processes of all buckets share.
pub(super) fn places() -> Arc<Places> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Places::new(processors.saturating_mul(PROCESSES_OF_PROCESSOR).clamp(PROCESSES_MIN, PROCESSES_MAX))
}

/// What the indexer of a bucket is given.
pub(super) fn setup(
    context: &Context,
    (memory, places): (&Arc<Memory>, &Arc<Places>),
    uuid: &BucketUuid,
    bucket: &Arc<Bucket>,
) -> Setup {
    Setup {
        bucket: Arc::clone(bucket),
        fs: Arc::clone(&context.place.fs),
        dir: context.place.dir.join(&uuid.0),
        memory: Arc::clone(memory),
        index: Options::default(),
        room_min: Arc::clone(&context.place.room_min),
        strays_kept: STRAYS_KEPT,
        batches: Batches::default(),
        pacing: Pacing::default(),
        worker: Settings::default(),
        command: Arc::clone(&context.functions),
        places: Arc::clone(places),
        inflate: context.inflate,
        alarms: Arc::new(OfNode(Arc::clone(&context.alarms))),
        clock: Arc::clone(&context.clock),
    }
}

/// Removes the folders of all buckets but these.
pub(super) fn remove_others(place: &Place, kept: &BTreeSet<String>) -> io::Result<()> {
    let fs = &*place.fs;
    let names = match fs.list(&place.dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for name in names.iter().filter(|name| is_uuid(name) && !kept.contains(*name)) {
        let dir = place.dir.join(name);
        for index in fs.list(&dir)? {
            remove(fs, &dir.join(&index))?;
            fs.remove_dir(&dir.join(&index))?;
        }
        fs.remove_dir(&dir)?;
        tracing::info!(bucket = name, "indexes of views were removed");
    }
    fs.sync_dir(&place.dir)
}

/// Whether a folder of this name is a bucket's. What an operator has put beside those stays.
fn is_uuid(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// The alarms of the node, as indexers know them.
struct OfNode(Arc<service::Alarms>);

struct OfThread(service::Alarm);

impl Alarms for OfNode {
    fn alarm(&self) -> Box<dyn Alarm> {
        Box::new(OfThread(self.0.alarm()))
    }

    fn wake(&self, waiter: Waiter) {
        self.0.wake(waiter);
    }
}

impl Alarm for OfThread {
    fn waiter(&self, ticket: u64) -> Waiter {
        self.0.waiter(ticket)
    }

    fn wait(&self, patience: Duration) -> BTreeSet<u64> {
        self.0.wait(patience)
    }
}
