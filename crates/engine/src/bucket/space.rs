//! How near a bucket's files are to the space that they may take.
//!
//! Nothing on disk is overwritten in place, so a part of it is dead. It is compaction's task to keep the files below twice what is
//! alive, and some segments. The nearer they come to that, the more of the disk and of a processor compaction takes
//! ([`Bucket::space_ratio`]). Where that does not suffice, since more is overwritten than it reclaims beside those who write,
//! writers are paced ([`crate::pressure::pacing`]).
//!
//! Invariant: as long as compaction makes headway, a shard's files settle below [`Bucket::space_limit`], however much
//! is written and for how long. Only what its step in progress is about to give back may lie above (256 MiB at most).
//! Where compaction reclaims less than a sixteenth of what the disk takes, files may pass the limit. They may then come
//! as far beyond it as the limit is beyond where writers begin to be paced. Further they go when what was alive is
//! deleted. It is the same while the bucket is being loaded.

use storage::SpaceUse;

use crate::{bucket::Bucket, shard::Shard};

/// Stores with less than this are as compact as need be.
const TOLERATED: u64 = 16 << 20;
/// So many times as much dead data may lie beside what is alive, and some segments. Compaction can do nothing about two segments:
/// the one that is written to, and another that is not settled yet.
const DEAD_SHARE: u64 = 1;
const SEGMENTS: u64 = 2;
/// From there to where writers have what is reclaimed and no more it is this part of what is alive, and as many
/// segments again. The least is what a fast disk takes in some tenths of a second.
const WAY_SHARE: u64 = 4;
const WAY_MIN: u64 = 64 << 20;

/// Bytes at which writers begin to be paced, and how many more there are to where the limit is.
fn bounds(space: &SpaceUse) -> (u64, u64) {
    let segments = SEGMENTS * space.segment_bytes;
    let begin = space.live * (1 + DEAD_SHARE) + segments + TOLERATED;
    (begin, (space.live / WAY_SHARE).max(WAY_MIN) + segments)
}

/// Zero where writers begin to be paced, one at the limit.
fn pressure(space: &SpaceUse) -> f64 {
    let (begin, way) = bounds(space);
    (space.used as f64 - begin as f64) / way as f64
}

impl Bucket {
    /// What is on disk over what of it is alive, of a shard; 1 where nothing can be gained.
    #[must_use]
    pub fn space_ratio(&self, shard: usize) -> f64 {
        let store = self.shards.get(shard).and_then(|shard| shard.store.as_ref());
        let Some(stats) = store.map(|store| store.stats()) else { return 1.0 };
        // So little is not worth anybody's trouble.
        if stats.bytes_used < TOLERATED {
            1.0
        } else {
            stats.bytes_used as f64 / stats.bytes_live.max(1) as f64
        }
    }

    /// What a shard's files may take, as much as is alive now.
    #[must_use]
    pub fn space_limit(&self, shard: usize) -> u64 {
        let store = self.shards.get(shard).and_then(|shard| shard.store.as_ref());
        store.map_or(0, |store| {
            let (begin, way) = bounds(&store.space());
            begin + way
        })
    }

    /// The pressure of the shard that is worst off: zero where writers begin to be paced for the sake of space, one at the limit.
    /// With it the bytes that compaction has reclaimed, ever, of all shards.
    pub(crate) fn space(&self) -> (f64, u64) {
        let spaces = self.shards.iter().filter_map(Shard::space);
        spaces.fold((f64::NEG_INFINITY, 0), |(worst, reclaimed), space| {
            (worst.max(pressure(&space)), reclaimed + space.reclaimed)
        })
    }

    /// How much writers wait for space to be reclaimed. Zero while none does, however much could be reclaimed. One
    /// where writers are held back at the limit, or the disk itself is short of space.
    #[must_use]
    pub fn space_wanted(&self) -> f64 {
        if self.is_short_of_space() {
            1.0
        } else if self.are_writers_waiting() {
            self.space().0.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn up_to_twice_what_is_alive_and_some_segments_nobody_is_paced() {
        let at = |used, live, segment_bytes| pressure(&SpaceUse { used, live, segment_bytes, reclaimed: 0 });
        assert!(at(0, 0, 0) < 0.0);
        assert!(at(2_000 * MIB, 1_000 * MIB, 64 * MIB) < 0.0);
        assert!(at(2_144 * MIB, 1_000 * MIB, 64 * MIB).abs() < 1e-9);
        assert!((at(2_522 * MIB, 1_000 * MIB, 64 * MIB) - 1.0).abs() < 1e-9);
        // Of little that is alive there may be more.
        assert!(at(24 * MIB, 0, 4 * MIB).abs() < 1e-9 && at(60 * MIB, 0, 4 * MIB) < 0.6);
    }
}
