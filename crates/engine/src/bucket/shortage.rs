//! Why a bucket answers with temporary failures at present, in words for whoever's client gets them, and for the log.
//!
//! What lies deepest goes first: with a broken disk memory fills up as well, and it would be of no use to say that.

use base::{
    Now,
    bucket::{BucketKind, EvictionPolicy},
};

use crate::{
    api::pressure::{Pool, Pressure},
    bucket::Bucket,
};

/// A flush is made for a quarter of a second: a disk that has had one for so long stands still, or nearly.
const STILL_MILLIS: u64 = 5_000;
/// Where memory is short, a pool that holds more than this part of the quota beside the documents is to blame: they come and go.
const BLAMED_SHARE: u64 = 8;

const CLOSED: &str = "The bucket is being closed";
const BROKEN: &str =
    "A write to the disk has failed: nothing is accepted until the node is started again, see its log";
const LOW: &str =
    "The disk has less free space than must remain: only deletions are accepted until it has more";
const FULL: &str = "The disk is full: only deletions are accepted until it has space again";
const STILL: &str = "The disk has not finished a write for seconds, and as much waits for it as may";
const BEHIND: &str =
    "As much waits for the disk as may: it does not take what is written as fast as it comes";
const CEILING: &str =
    "The disk has not recorded in time how far CAS values may go: nothing is accepted until it has";
const PACED_BY_DISK: &str = "More is written than the disk takes";
const PACED_BY_SPACE: &str = "More is overwritten than compaction reclaims on disk";
const PACED_BY_FOLLOWERS: &str = "More is written than copies on other nodes take";
const PACED_BY_MEMORY: &str = "The bucket's memory fills faster than the disk takes what is written";

impl Bucket {
    /// What temporary failures are for at present, as far as that is the state of the bucket and not that of one document.
    #[must_use]
    pub fn shortage(&self, now: Now) -> Option<&'static str> {
        self.broken()
            .or_else(|| self.disk_shortage())
            .or_else(|| self.slowness(now))
            .or_else(|| self.is_above_ceiling(now).then_some(CEILING))
    }

    /// Why mutations that grow are refused when it is the disk that has no space for them.
    #[must_use]
    pub fn disk_shortage(&self) -> Option<&'static str> {
        if self.shards.iter().any(|shard| shard.gate.is_low()) {
            return Some(LOW);
        }
        self.is_short_of_space().then_some(FULL)
    }

    /// Whether the disk has had the same piece of work for seconds.
    pub(crate) fn does_disk_stand_still(&self, now: Now) -> bool {
        self.shards.iter().any(|shard| shard.gate.busy_for_millis(now) >= STILL_MILLIS)
    }

    fn broken(&self) -> Option<&'static str> {
        if self.is_closed() {
            return Some(CLOSED);
        }
        self.shards.iter().any(|shard| shard.gate.is_poisoned()).then_some(BROKEN)
    }

    fn slowness(&self, now: Now) -> Option<&'static str> {
        let (memory, dirty) = self.pressures();
        let by_disk = dirty > memory;
        // Where memory is short as well it is what refuses.
        let (own, space, followers) = (memory.max(dirty), self.space().0, self.followers_pressure());
        let by_others = own <= 0.0 && space.max(followers) > own;
        match self.pressure_step() {
            Pressure::Pacing | Pressure::Refusing if by_others && followers > space => {
                Some(PACED_BY_FOLLOWERS)
            }
            Pressure::Pacing | Pressure::Refusing if by_others => Some(PACED_BY_SPACE),
            Pressure::Pacing | Pressure::Refusing if by_disk && self.does_disk_stand_still(now) => {
                Some(STILL)
            }
            Pressure::Refusing if by_disk => Some(BEHIND),
            Pressure::Refusing => Some(self.memory_is_used_up()),
            Pressure::Pacing => Some(if by_disk { PACED_BY_DISK } else { PACED_BY_MEMORY }),
            Pressure::None | Pressure::Paging | Pressure::Cursors => None,
        }
    }

    /// Whether the clock has passed what the disk knows.
    fn is_above_ceiling(&self, now: Now) -> bool {
        let mut persistent = self.shards.iter().filter(|shard| shard.store.is_some());
        persistent.any(|shard| shard.gate.ceiling_on_disk().get() <= now.wall_nanos)
    }

    fn memory_is_used_up(&self) -> &'static str {
        let (pool, bytes) = self.largest_beside_documents();
        match pool {
            _ if bytes < self.settings.usable_bytes() / BLAMED_SHARE => self.documents_use_it_up(),
            Pool::Items | Pool::Metadata | Pool::Reserve => self.documents_use_it_up(),
            Pool::Checkpoints => "The bucket's memory quota is used up by queues of mutations",
            Pool::Replication => "The bucket's memory quota is used up by what streams have read from disk",
            Pool::Fetch => "The bucket's memory quota is used up by documents just read from disk",
            Pool::Write => "The bucket's memory quota is used up by what is being written to disk",
            Pool::ColdIndex => {
                "The bucket's memory quota is used up by what finds keys that are on disk only"
            }
            Pool::RangeScans => "The bucket's memory quota is used up by range scans",
            Pool::Connections => "The bucket's memory quota is used up by requests that wait",
        }
    }

    fn documents_use_it_up(&self) -> &'static str {
        match (self.options.kind, self.settings.eviction()) {
            (BucketKind::Couchbase, EvictionPolicy::FullEviction) => {
                "The bucket's memory quota is used up by documents that the disk, or a stream, has not taken yet"
            }
            (BucketKind::Couchbase, _) => {
                "The bucket's memory quota is used up by what has to stay in memory: keys and metadata of all documents, \
                 and whatever the disk, or a stream, has not taken yet"
            }
            (BucketKind::Ephemeral, EvictionPolicy::NoEviction) => {
                "The bucket's memory quota is used up, and its eviction policy lets nothing go"
            }
            (BucketKind::Ephemeral | BucketKind::Memcached, _) => {
                "The bucket's memory quota is used up, and not enough can be dropped at the moment"
            }
        }
    }
}
