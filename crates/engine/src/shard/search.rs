//! When a shard looks through all of its vBuckets for work that is seldom there.
//!
//! Such a look takes the lock of each vBucket. The backfill thread comes by after every piece that it reads, hundreds of times a second
//! while an index is built. A tenth of a second is nothing to the work that is looked for.

use base::Now;

/// Between two looks that find nothing.
const REST_MILLIS: u64 = 100;

#[derive(Default)]
pub(crate) struct Search {
    /// Before it, nothing is looked for (monotonic milliseconds).
    rests_until: u64,
}

impl Search {
    /// What `look` finds; none at once where the last look found nothing and is not long ago.
    pub(crate) fn run<T>(&mut self, now: Now, look: impl FnOnce() -> Option<T>) -> Option<T> {
        if now.mono_millis < self.rests_until {
            return None;
        }
        let found = look();
        if found.is_none() {
            self.rests_until = now.mono_millis + REST_MILLIS;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mono_millis: u64) -> Now {
        Now { mono_millis, ..Now::default() }
    }

    #[test]
    fn a_search_rests_only_after_it_has_found_nothing() {
        let mut search = Search::default();
        assert_eq!(search.run(at(1_000), || Some(1)), Some(1));
        assert_eq!(search.run(at(1_000), || Some(2)), Some(2));
        assert_eq!(search.run(at(1_000), || None::<u8>), None);
        assert_eq!(search.run(at(1_000 + REST_MILLIS - 1), || Some(3)), None);
        assert_eq!(search.run(at(1_000 + REST_MILLIS), || Some(4)), Some(4));
    }
}
