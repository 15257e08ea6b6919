//! Seeds that have found something: every run of the tests goes through them.
//!
//! What becomes of a seed's world changes with whatever runs in it, so none of them has to come across what it found again. A
//! seed that fails comes here, with what it was, once that is repaired.

use crate::kinds::{self, Kind};

pub(crate) struct Found {
    pub(crate) kind: &'static Kind,
    pub(crate) seed: u64,
    pub(crate) what: &'static str,
}

pub(crate) const FOUND: &[Found] = &[
    Found {
        kind: &kinds::BESIDE,
        seed: 6,
        what: "a copy that had forgotten what a majority had acknowledged counted in an election (the rule had been taken out for that)",
    },
    Found { kind: &kinds::BESIDE, seed: 22, what: "as 6" },
    Found { kind: &kinds::BESIDE, seed: 34, what: "as 6" },
    Found {
        kind: &kinds::ALL,
        seed: 102,
        what: "every node that reported was granted a lease: a node that had been failed over served beside its successor",
    },
    Found {
        kind: &kinds::FAILOVERS,
        seed: 117,
        what: "right after an election a key was read without the durable write that had been taken over",
    },
    Found {
        kind: &kinds::ALL,
        seed: 163,
        what: "a lease that was granted under a long timeout outlived the change to a short one",
    },
    Found {
        kind: &kinds::DELAYS,
        seed: 169,
        what: "copies were compared while links were still being broken (a fault of the simulation)",
    },
    Found {
        kind: &kinds::FAILOVERS,
        seed: 180,
        what: "a rebalance overtook the recovery it was to bring, and too few nodes were left (of the simulation)",
    },
    Found { kind: &kinds::DELAYS, seed: 190, what: "as 169, of another copy" },
    Found {
        kind: &kinds::NARROW,
        seed: 2101,
        what: "a durable write that was superseded out of sight was told its client as what had superseded it",
    },
    Found { kind: &kinds::WIDE, seed: 2137, what: "as 2101 of the other kind" },
    Found {
        kind: &kinds::WIDE,
        seed: 2090,
        what: "what was in progress in a dropped collection was aborted by nobody after a handover",
    },
    Found { kind: &kinds::WIDE, seed: 2150, what: "as 2090" },
    Found { kind: &kinds::WIDE, seed: 2226, what: "as 2090" },
    Found {
        kind: &kinds::REBALANCES,
        seed: 2029,
        what: "the last two buckets were deleted, and there was none to write to (of the simulation)",
    },
    Found {
        kind: &kinds::NARROW,
        seed: 7157,
        what: "a flush was refused though there was room again: what compaction had given up only it took back",
    },
    Found {
        kind: &kinds::NARROW,
        seed: 430_051,
        what: "a feed of a copy that had become active ended a snapshot inside of one that the copy was told from disk: its reader kept a \
               document that was deleted by then",
    },
    Found {
        kind: &kinds::PAUSES,
        seed: 3,
        what: "a leader that was replaced while it was paused granted itself a lease when it woke: a reader saw an old value",
    },
    Found {
        kind: &kinds::PAUSES,
        seed: 1,
        what: "a node that stood still was granted a lease, automatic failover was switched off, and its silence alone was waited for",
    },
    Found {
        kind: &kinds::PAUSES,
        seed: 1024,
        what: "a machine slept through the change to leases and its own failover, and served for a while when it heard of leases",
    },
    Found { kind: &kinds::PAUSES, seed: 24, what: "as 3: two nodes served a vBucket under leases" },
    Found {
        kind: &kinds::PAUSES,
        seed: 80_008,
        what: "a request that a paused node read late had a document locked while copies were compared (of the simulation)",
    },
    Found {
        kind: &kinds::WIDE,
        seed: 70_000_012,
        what: "a copy that was opened by another manifest recorded no end of a collection once it was active",
    },
    Found {
        kind: &kinds::WIDE,
        seed: 213,
        what: "a collection was dropped while its active copy was down, and the next one never told that it had ended",
    },
    Found {
        kind: &kinds::WIDE,
        seed: 206,
        what: "a clock was set back, and a document that had expired under a durable write was back (of the simulation)",
    },
    Found {
        kind: &kinds::VERSIONS,
        seed: 5_000_008,
        what: "a node of an older version was added while the level was to rise, and stopped at that change, which was refused",
    },
    Found {
        kind: &kinds::VERSIONS,
        seed: 5_000_009,
        what: "a node of an older version that was being removed called its metadata those of a newer version",
    },
    Found {
        kind: &kinds::DISKS,
        seed: 13,
        what: "a scan that came across damage said so, which was taken for a fault (of the simulation)",
    },
    Found {
        kind: &kinds::DISKS,
        seed: 209,
        what: "a node was gone for good before the others were voters (of the simulation)",
    },
    Found {
        kind: &kinds::DISKS,
        seed: 111,
        what: "a node was gone for good while another was being failed over, and its vote was needed (of the simulation)",
    },
    Found {
        kind: &kinds::DISKS,
        seed: 243,
        what: "a document that was damaged was replaced without the attribute that nobody could read (of the simulation)",
    },
    Found {
        kind: &kinds::DISKS,
        seed: 20_261_218,
        what: "the disk of one of two copies was gone just before it was agreed on that the other one had left: nobody asked that one",
    },
    Found {
        kind: &kinds::NARROW,
        seed: 9_000_005,
        what: "an attribute in a tombstone was gone, and back on a copy that had not purged it (of the simulation)",
    },
    Found {
        kind: &kinds::WIDE,
        seed: 5_000_038,
        what: "a pager came across what had expired while copies were compared (of the simulation)",
    },
    Found {
        kind: &kinds::CRASHES,
        seed: 1008,
        what: "a copy that ended with an abort was told that nothing follows, and took the abort for visible: subscribers waited for it",
    },
    Found {
        kind: &kinds::PAUSES,
        seed: 20_261_169,
        what: "two nodes were failed over by hand at a risk, without leases, and acknowledged writes until they heard (of the simulation)",
    },
    Found {
        kind: &kinds::ROTTEN_LOGS,
        seed: 69,
        what: "a disk that had lied was taken for a good one before its node had started again (of the simulation)",
    },
    Found {
        kind: &kinds::LOST_MAJORITIES,
        seed: 50_000_149,
        what: "the old majority came back while the founder was lost, and failed it over: no operator ended one of the two groups (of the simulation)",
    },
    Found {
        kind: &kinds::LOST_MAJORITIES,
        seed: 50_000_233,
        what: "two groups were formed anew, each of which had failed the other over: as 50000149",
    },
    Found {
        kind: &kinds::LOST_MAJORITIES,
        seed: 50_000_084,
        what: "as 50000149, and what is left to tell subscribers was asked of a vBucket without a copy (of the simulation)",
    },
    Found { kind: &kinds::LOST_MAJORITIES, seed: 50_000_159, what: "as 50000084" },
    Found {
        kind: &kinds::DISKS,
        seed: 50_000_175,
        what: "a document that was damaged was absent to a request that needs one while a durable write was about to replace it",
    },
    Found {
        kind: &kinds::DISKS,
        seed: 50_000_240,
        what: "a node was gone for good when it was about to be the second voter (of the simulation)",
    },
    Found {
        kind: &kinds::ROTTEN_LOGS,
        seed: 50_000_033,
        what: "a node was failed over for the time it had been away after everybody had been brought in (of the simulation)",
    },
];
