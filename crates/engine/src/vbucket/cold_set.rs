//! The cold keys of a vBucket ([`crate::vbucket::cold_keys`]), and a second list of them while one is made anew
//! ([`crate::background::cold_trim`]).

use base::Seqno;

use crate::vbucket::cold_keys::ColdKeys;

/// Fewer than so many entries are not worth the work.
const SURPLUS_MIN: u64 = 256;

/// Nor is less than this share of all of them: one in so many.
const SURPLUS_SHARE: u64 = 4;

/// The cold keys of a vBucket; see [`crate::vbucket::cold_keys`].
#[derive(Debug)]
pub(crate) struct ColdSet {
    keys: ColdKeys,
    /// How many of them mean nothing any more, about.
    pub(crate) surplus: u64,
    pub(crate) anew: Option<Box<Anew>>,
    /// Before it, none is made anew (monotonic milliseconds).
    pub(crate) rests_until: u64,
}

/// A list in the making.
#[derive(Debug)]
pub(crate) struct Anew {
    pub(crate) keys: ColdKeys,
    /// What has a higher seqno left the table after this began.
    begun_at: Seqno,
    /// It is complete for keys with hashes up to this one.
    pub(crate) settled: Option<u64>,
    /// What was known to mean nothing when this began.
    surplus: u64,
}

impl Anew {
    fn takes_part(&self, hash: u64, seqno: Seqno) -> bool {
        seqno > self.begun_at || self.settled.is_some_and(|up_to| hash <= up_to)
    }
}

impl ColdSet {
    /// None, in one of so many vBuckets.
    pub(crate) fn new(vbuckets: u16) -> Self {
        Self { keys: ColdKeys::new(vbuckets), surplus: 0, anew: None, rests_until: 0 }
    }

    /// Memory that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.anew.as_ref().map_or(0, |anew| anew.keys.memory_bytes())
    }

    /// Whether no key can be among them.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.len() == 0
    }

    /// Whether a key may be among them; false is certain.
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.keys.may_contain(hash)
    }

    /// A key's version has left the table.
    pub(crate) fn insert(&mut self, hash: u64, seqno: Seqno) {
        self.keys.insert(hash);
        if let Some(anew) = self.anew.as_mut().filter(|anew| anew.takes_part(hash, seqno)) {
            anew.keys.insert(hash);
        }
    }

    /// The version of a key that had left the table is there again.
    pub(crate) fn remove(&mut self, hash: u64, seqno: Seqno) {
        self.keys.remove(hash);
        if let Some(anew) = self.anew.as_mut().filter(|anew| anew.takes_part(hash, seqno)) {
            anew.keys.remove(hash);
        }
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        (self.surplus, self.anew) = (0, None);
    }

    /// So many of them mean nothing any more.
    pub(crate) fn note_surplus(&mut self, count: u64) {
        self.surplus += count;
    }

    pub(crate) fn is_worth_making_anew(&self) -> bool {
        self.surplus >= SURPLUS_MIN.max(self.keys.len() / SURPLUS_SHARE)
    }

    pub(crate) fn begin_anew(&mut self, begun_at: Seqno) {
        let keys = self.keys.none_of_its_kind();
        self.anew = Some(Box::new(Anew { keys, begun_at, settled: None, surplus: self.surplus }));
    }

    /// The new list is complete.
    pub(crate) fn end_anew(&mut self) {
        if let Some(anew) = self.anew.take() {
            self.keys = anew.keys;
            self.surplus = self.surplus.saturating_sub(anew.surplus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_in_the_making_takes_part_in_what_it_knows() {
        let mut cold = ColdSet::new(1024);
        let hash = |number: u64| number << 40;
        (1..=10).for_each(|number| cold.insert(hash(number), Seqno(number)));
        cold.note_surplus(5);
        cold.begin_anew(Seqno(10));
        // Not settled: it is found by what the table has when it is.
        cold.remove(hash(7), Seqno(7));
        // Another key with one's short hash leaves with a later version, and comes back.
        cold.insert(hash(8), Seqno(11));
        cold.remove(hash(8), Seqno(11));
        cold.insert(hash(9), Seqno(12));
        if let Some(anew) = &mut cold.anew {
            [1, 2].into_iter().for_each(|number| anew.keys.insert(hash(number)));
            anew.settled = Some(hash(2));
        }
        cold.remove(hash(1), Seqno(1));
        cold.insert(hash(1), Seqno(1));
        cold.remove(hash(2), Seqno(2));
        if let Some(anew) = &mut cold.anew {
            [8, 9].into_iter().for_each(|number| anew.keys.insert(hash(number)));
        }
        cold.note_surplus(1);
        cold.end_anew();
        let left: Vec<u64> = (1..=10).filter(|&number| cold.may_contain(hash(number))).collect();
        assert_eq!((left, cold.keys.len(), cold.surplus), (vec![1, 8, 9], 4, 1));
    }
}
