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

/// Processes that run map functions at the same time, for each processor and at least. Those beyond the least map no more together than
/// what documents of the node may take.
const PROCESSES_OF_PROCESSOR: usize = 2;
const PROCESSES_MIN: usize = 4;
const PROCESSES_MAX: usize = 32;
/// What such a process may map at most (`ADDRESS_SPACE` of the command that runs functions).
const PROCESS_MIB: u64 = 1024;

/// After a start copies are served within seconds, but for those that an election has to find first.
const STRAYS_KEPT: Duration = Duration::from_mins(10);

/// Bytes that the indexes of all buckets may hold in memory, beside the quotas of buckets.
pub(super) fn memory_max(metadata: &Metadata) -> usize {
    let mib = (metadata.quotas.data_mb / MEMORY_PART).clamp(MEMORY_MIB_MIN, MEMORY_MIB_MAX);
    usize::try_from(mib << 20).unwrap_or(usize::MAX)
}

/// How many processes of all buckets run map functions at the same time.
pub(super) fn processes_max(metadata: &Metadata) -> usize {
    processes_of(std::thread::available_parallelism().map_or(1, usize::from), metadata.quotas.data_mb)
}

fn processes_of(processors: usize, quota_mib: u64) -> usize {
    let by_memory = usize::try_from(quota_mib / PROCESS_MIB).unwrap_or(usize::MAX);
    let by_processors = processors.saturating_mul(PROCESSES_OF_PROCESSOR);
    by_processors.min(by_memory).clamp(PROCESSES_MIN, PROCESSES_MAX)
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
        gives_way: {
            let (missed, uuid) = (Arc::clone(&context.missed), uuid.clone());
            Arc::new(move || missed.is_missed(&uuid))
        },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_functions_map_no_more_than_documents_may_take() {
        let cases = [
            (1, 100, 4),
            (16, 100, 4),
            (16, 8 << 10, 8),
            (2, 64 << 10, 4),
            (16, 64 << 10, 32),
            (64, u64::MAX, 32),
        ];
        for (processors, quota_mib, most) in cases {
            assert_eq!(processes_of(processors, quota_mib), most, "{processors} processors, {quota_mib} MiB");
        }
    }
}
