//! What an indexer is told of the copies of its bucket: which of them are indexed is a matter of the metadata, too.

use std::collections::{BTreeMap, BTreeSet};

use base::VbId;

use crate::desk::Change;

/// What has become of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// It serves clients.
    Active,
    /// It takes nothing more, for another node takes over.
    Sealed,
    /// It follows another node's copy.
    Replica,
    /// Its history is another one than before, or ends earlier.
    Reset,
    /// It is no copy any more.
    Gone,
}

/// What was heard of the copies of a bucket, and which of those that follow another node's are indexed.
#[derive(Debug, Default)]
pub struct Copies {
    heard: BTreeMap<VbId, Heard>,
    followers: BTreeSet<VbId>,
}

/// What a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Heard {
    #[default]
    Gone,
    Follows,
    Serves,
}

impl Copies {
    /// What an indexer is to be told of what has become of a copy, if anything.
    pub fn hear(&mut self, vb: VbId, became: Became) -> Option<Change> {
        let before = self.heard.get(&vb).copied().unwrap_or_default();
        let heard = match became {
            Became::Active => Heard::Serves,
            // Its feed goes on to the end.
            Became::Sealed if before == Heard::Serves => return None,
            Became::Sealed => Heard::Serves,
            Became::Reset => return Some(Change::Reset),
            Became::Replica => Heard::Follows,
            Became::Gone => Heard::Gone,
        };
        self.heard.insert(vb, heard);
        let told = self.told(vb, heard);
        // It follows in another term: its feed goes on.
        let says_nothing = told == Change::Following && before == heard;
        (!says_nothing).then_some(told)
    }

    fn told(&self, vb: VbId, heard: Heard) -> Change {
        match heard {
            Heard::Serves => Change::Served,
            Heard::Follows if self.followers.contains(&vb) => Change::Following,
            Heard::Follows | Heard::Gone => Change::Gone,
        }
    }

    /// These copies are indexed while they follow another node's. What an indexer is to be told of that.
    pub fn index_followers(&mut self, followers: BTreeSet<VbId>) -> Vec<(VbId, Change)> {
        let before = std::mem::replace(&mut self.followers, followers);
        let changed = before.symmetric_difference(&self.followers);
        let heard = changed.filter_map(|vb| Some((*vb, *self.heard.get(vb)?)));
        heard
            .filter(|(_, heard)| *heard == Heard::Follows)
            .map(|(vb, heard)| (vb, self.told(vb, heard)))
            .collect()
    }

    /// The copies that are indexed while they follow another node's.
    #[must_use]
    pub fn followers(&self) -> &BTreeSet<VbId> {
        &self.followers
    }

    /// What an indexer is to be told that has heard of nothing.
    pub fn all(&self) -> impl Iterator<Item = (VbId, Change)> {
        self.heard.iter().map(|(vb, heard)| (*vb, self.told(*vb, *heard)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VB: VbId = VbId(3);

    #[test]
    fn an_indexer_is_told_of_copies_that_have_feeds() {
        use Became::{Active, Gone, Replica, Reset, Sealed};
        let mut copies = Copies::default();
        let told: Vec<_> = [Replica, Active, Sealed, Reset, Active, Gone, Sealed]
            .map(|change| copies.hear(VB, change))
            .into();
        let served = Some(Change::Served);
        let gone = Some(Change::Gone);
        assert_eq!(told, [gone, served, None, Some(Change::Reset), served, gone, served]);
        assert_eq!(copies.all().collect::<Vec<_>>(), [(VB, Change::Served)]);
        copies.hear(VB, Replica);
        assert_eq!(
            copies.all().collect::<Vec<_>>(),
            [(VB, Change::Gone)],
            "one that starts later is told so"
        );
    }

    #[test]
    fn an_indexer_is_told_of_copies_that_are_to_take_over() {
        use Became::{Active, Gone, Replica};
        let (mut copies, other) = (Copies::default(), VbId(5));
        assert_eq!(copies.index_followers([VB].into()), [], "nothing was heard of it");
        assert_eq!(
            [VB, other].map(|vb| copies.hear(vb, Replica)),
            [Change::Following, Change::Gone].map(Some)
        );
        assert_eq!(copies.hear(VB, Replica), None, "in another term");
        assert_eq!(copies.all().collect::<Vec<_>>(), [(VB, Change::Following), (other, Change::Gone)]);
        let changed = copies.index_followers([other].into());
        assert_eq!(changed, [(VB, Change::Gone), (other, Change::Following)]);
        assert_eq!(copies.hear(other, Active), Some(Change::Served));
        assert_eq!(copies.index_followers([VB].into()), [(VB, Change::Following)], "the other one serves");
        assert_eq!(copies.hear(VB, Gone), Some(Change::Gone));
        assert_eq!(copies.index_followers(BTreeSet::new()), []);
    }
}
