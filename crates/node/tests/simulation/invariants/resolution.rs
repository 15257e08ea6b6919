//! Conflict resolution by revision. It is about keys that only get versions of another cluster, whose numbers are their revisions.
//! Of such a key the highest version that was accepted stays. What comes later and is lower loses, and what loses has met a higher
//! one.

use std::collections::BTreeMap;

use base::BucketUuid;

use super::histories::Moment;

type Place = (BucketUuid, Vec<u8>);

/// What a key has been given.
#[derive(Default)]
struct Key {
    /// Each version that became the highest acknowledged one, and when that was known.
    highest: Vec<(Moment, u64)>,
    /// The highest that anybody has tried.
    tried: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Resolution {
    keys: BTreeMap<Place, Key>,
    /// Nothing that was acknowledged is ever lost.
    pub(crate) is_promised: bool,
    refused: u64,
}

impl Resolution {
    /// A version is being sent.
    pub(crate) fn tries(&mut self, place: &Place, version: u64) {
        let key = self.keys.entry(place.clone()).or_default();
        key.tried = key.tried.max(version);
    }

    /// A version was accepted that was sent at one moment and acknowledged at the other.
    pub(crate) fn wrote(&mut self, place: &Place, version: u64, (called, returned): (Moment, Moment)) {
        self.check(place, Some(version), called);
        let key = self.keys.entry(place.clone()).or_default();
        if key.highest.last().is_none_or(|(_, highest)| *highest < version) {
            key.highest.push((returned, version));
        }
    }

    /// A version was refused.
    pub(crate) fn lost(&mut self, place: &Place, version: u64) {
        self.refused += 1;
        let tried = self.keys.get(place).map_or(0, |key| key.tried);
        assert!(tried > version, "{version} of {place:?} lost against nothing, {tried} at most");
    }

    /// Somebody who asked at that moment was told that this is there. A deletion does not tell its version.
    pub(crate) fn read(&mut self, place: &Place, version: Option<u64>, called: Moment) {
        if version.is_some() {
            self.check(place, version, called);
        }
    }

    fn check(&self, place: &Place, version: Option<u64>, called: Moment) {
        let Some(key) = self.keys.get(place).filter(|_| self.is_promised) else { return };
        let before = key.highest.iter().rev().find(|(known, _)| *known < called);
        let least = before.map(|(_, version)| *version);
        assert!(version >= least, "{version:?} of {place:?} came after {least:?}");
    }

    /// Somebody has taken a risk: what was acknowledged may be gone.
    pub(crate) fn forget(&mut self) {
        self.keys.values_mut().for_each(|key| key.highest.clear());
    }

    pub(crate) fn summary(&self) -> String {
        format!("lost conflicts {}", self.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        (BucketUuid("b".into()), b"k".to_vec())
    }

    fn resolution() -> Resolution {
        let mut resolution = Resolution { is_promised: true, ..Resolution::default() };
        [3, 5].into_iter().for_each(|version| resolution.tries(&place(), version));
        resolution
    }

    #[test]
    fn the_highest_stays_and_what_is_sent_at_the_same_time_may_come_first() {
        let mut resolution = resolution();
        resolution.wrote(&place(), 5, (1, 4));
        resolution.wrote(&place(), 3, (2, 3));
        resolution.read(&place(), Some(5), 5);
        resolution.lost(&place(), 3);
    }

    #[test]
    #[should_panic(expected = "came after")]
    fn a_lower_one_that_is_accepted_later_is_noticed() {
        let mut resolution = resolution();
        resolution.wrote(&place(), 5, (1, 2));
        resolution.wrote(&place(), 3, (3, 4));
    }

    #[test]
    #[should_panic(expected = "came after")]
    fn a_lower_one_that_is_read_later_is_noticed() {
        let mut resolution = resolution();
        resolution.wrote(&place(), 5, (1, 2));
        resolution.read(&place(), Some(3), 3);
    }

    #[test]
    #[should_panic(expected = "lost against nothing")]
    fn the_highest_does_not_lose() {
        resolution().lost(&place(), 5);
    }
}
