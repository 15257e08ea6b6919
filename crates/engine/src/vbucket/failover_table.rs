//! The branches of a vBucket's history.
//!
//! A branch begins when the vBucket is created and whenever another node takes over. One also begins whenever mutations
//! that were handed out may have been lost (after an unclean stop). Clients hold (uuid, seqno) tokens; a token is still
//! good if its seqno lies before the point where a younger branch took over. An entry is synced before anything is
//! served under it.
//!
//! A uuid tells its branch's generation ([`VbUuid::generation`]): later than those of all branches that it descends from,
//! and no earlier than its term. So one of two copies of a vBucket may be on a branch of a later generation than the
//! other. Then it holds everything that was ever acknowledged, whatever the other one has more.

use base::{Seqno, VbUuid};

/// How many branches are remembered (kv_engine, `max_failover_entries`).
const ENTRIES_MAX: usize = 25;

/// Never empty; newest branch first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FailoverTable {
    entries: Vec<(VbUuid, Seqno)>,
}

impl FailoverTable {
    /// The history of a vBucket that begins now.
    #[must_use]
    pub fn new(uuid: VbUuid) -> Self {
        Self { entries: vec![(uuid, Seqno(0))] }
    }

    /// The history as it was recovered; `fallback` if nothing was.
    #[must_use]
    pub fn recovered(log: &[(VbUuid, Seqno)], fallback: VbUuid) -> Self {
        if log.is_empty() { Self::new(fallback) } else { Self { entries: log.to_vec() } }
    }

    /// The history that an active tells; none if that makes no sense.
    #[must_use]
    pub fn adopted(log: &[(VbUuid, Seqno)]) -> Option<Self> {
        let descends = log.is_sorted_by(|newer, older| newer.1 >= older.1);
        (!log.is_empty() && descends)
            .then(|| Self { entries: log.iter().take(ENTRIES_MAX).copied().collect() })
    }

    /// What began behind `seqno` did not happen here. The oldest branch stays in any case.
    pub fn cut(&mut self, seqno: Seqno) {
        let oldest = self.entries.last().copied();
        self.entries.retain(|&(_, start)| start <= seqno);
        if self.entries.is_empty() {
            self.entries.extend(oldest);
        }
    }

    /// The branch that mutations are on now.
    #[must_use]
    pub fn uuid(&self) -> VbUuid {
        self.entries.first().map_or(VbUuid(0), |entry| entry.0)
    }

    /// A new branch takes over behind `seqno`, decided in a term; `uuid` is of no generation yet.
    pub fn begin(&mut self, uuid: VbUuid, term: u64, seqno: Seqno) {
        let generation = term.max(self.uuid().generation() + 1);
        self.entries.retain(|&(_, start)| start <= seqno);
        self.entries.insert(0, (uuid.of_generation(generation), seqno));
        self.entries.truncate(ENTRIES_MAX);
    }

    /// An empty vBucket whose branch nobody has heard of becomes the active in a term. The branch stays, and is of the
    /// term's generation from its first mutation on. Otherwise it would tie with branches of terms before.
    pub fn begin_empty(&mut self, term: u64) {
        if let [only] = &mut self.entries[..] {
            only.0 = only.0.of_generation(term.max(only.0.generation()));
        }
    }

    /// The branch that a copy with everything up to a seqno is on. Where that is the very beginning of one, it has all that
    /// there was when the branch began.
    #[must_use]
    pub fn uuid_at(&self, seqno: Seqno) -> VbUuid {
        let entry = self.entries.iter().find(|entry| entry.1 <= seqno).or(self.entries.last());
        entry.map_or(VbUuid(0), |entry| entry.0)
    }

    /// All branches with the seqno each began at.
    #[must_use]
    pub fn log(&self) -> &[(VbUuid, Seqno)] {
        &self.entries
    }

    /// The last seqno that is valid on an older branch.
    #[must_use]
    pub fn end_of(&self, uuid: VbUuid) -> Option<Seqno> {
        self.entries
            .iter()
            .zip(self.entries.iter().skip(1))
            .find(|(_, older)| older.0 == uuid)
            .map(|(newer, _)| newer.1)
    }
}

/// A uuid for a branch that descends from none, from the bucket's seed and whatever makes it different from others.
pub(crate) fn branch_uuid(seed: u64, vb: u16, salt: u64) -> VbUuid {
    let mixed = mix(seed ^ mix(u64::from(vb) + 1) ^ mix(salt).rotate_left(17));
    VbUuid(mixed.max(1)).of_generation(0)
}

/// The finaliser of SplitMix64: spreads whatever differs over all bits.
pub(crate) const fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_branch_ends_where_the_next_one_began() {
        let mut table = FailoverTable::new(VbUuid(1));
        table.begin(VbUuid(2), 0, Seqno(10));
        table.begin(VbUuid(3), 0, Seqno(15));
        let [third, second, first] = [0, 1, 2].map(|index: usize| table.log()[index].0);
        assert_eq!((table.uuid(), first), (third, VbUuid(1)));
        assert_eq!(table.end_of(first), Some(Seqno(10)));
        assert_eq!(table.end_of(second), Some(Seqno(15)));
        assert_eq!(table.end_of(third), None);
        assert_eq!(table.end_of(VbUuid(9)), None);
        let at = [0, 9, 10, 14, 15, 99].map(|seqno| table.uuid_at(Seqno(seqno)));
        assert_eq!(at, [first, first, second, second, third, third]);
    }

    #[test]
    fn generations_rise_with_terms_and_with_each_branch() {
        let mut table = FailoverTable::new(branch_uuid(1, 2, 3));
        let mut generations = vec![table.uuid().generation()];
        for term in [7, 7, 3, 20] {
            table.begin(branch_uuid(1, 2, term), term, Seqno(5));
            generations.push(table.uuid().generation());
        }
        assert_eq!(generations, [0, 7, 8, 9, 20]);
        // What began elsewhere in a later term comes before what began here, and is not outdone by a failed attempt.
        let mut elsewhere = FailoverTable::new(branch_uuid(1, 2, 3));
        elsewhere.begin(branch_uuid(4, 2, 21), 21, Seqno(0));
        assert!(elsewhere.uuid().generation() > table.uuid().generation());
    }

    #[test]
    fn an_empty_active_is_on_a_branch_of_its_terms_generation() {
        let mut table = FailoverTable::new(branch_uuid(1, 2, 3));
        table.begin_empty(7);
        assert_eq!((table.uuid().generation(), table.log().len()), (7, 1));
        table.begin_empty(2);
        assert_eq!(table.uuid().generation(), 7, "it never sinks");
    }

    #[test]
    fn what_an_active_tells_is_adopted_if_it_makes_sense() {
        assert_eq!(FailoverTable::adopted(&[]), None);
        assert_eq!(FailoverTable::adopted(&[(VbUuid(2), Seqno(3)), (VbUuid(1), Seqno(4))]), None);
        let log = [(VbUuid(3), Seqno(9)), (VbUuid(2), Seqno(4)), (VbUuid(1), Seqno(0))];
        let mut table = FailoverTable::adopted(&log).unwrap();
        assert_eq!(table.log(), log);
        table.cut(Seqno(5));
        assert_eq!(table.log(), &log[1..]);
    }

    #[test]
    fn branches_beyond_the_point_of_return_are_forgotten_and_the_log_is_bounded() {
        let mut table = FailoverTable::new(VbUuid(1));
        table.begin(VbUuid(2), 0, Seqno(10));
        table.begin(VbUuid(3), 0, Seqno(5));
        let third = table.uuid();
        assert_eq!(table.log(), [(third, Seqno(5)), (VbUuid(1), Seqno(0))]);
        for index in 0..100 {
            table.begin(VbUuid(100 + index), 0, Seqno(5));
        }
        assert_eq!(table.log().len(), ENTRIES_MAX);
    }
}
