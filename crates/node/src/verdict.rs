//! What a node says to one that is none of its cluster's, and what becomes of a node that hears it.
//!
//! Invariants:
//! - Only what was decided counts. A node that was removed is told so once the group has let it go, and its number is nobody else's.
//! - A node of a group that was formed anew later is judged by that group only.
//! - Data that nobody has decided about stay: a node that nobody has heard of leaves by itself only while it holds nothing.

use base::NodeId;
use cluster::{Membership, Metadata, consensus::Epoch};

/// What is answered to messages of a node that is none of the cluster's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was one and was removed.
    Removed,
    /// Nobody has heard of it: nodes that were lost, when the group was formed anew, have added it.
    Unknown,
}

/// What a node does that hears a verdict on itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sentence {
    /// It leaves its cluster, and begins anew.
    Leave,
    /// It stays as it is until somebody decides: nobody else may have what it holds.
    Keep,
}

impl Verdict {
    const ALL: [Self; 2] = [Self::Removed, Self::Unknown];

    /// As one node writes it to another.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Unknown => "unknown",
        }
    }

    /// Reads what [`Verdict::text`] wrote.
    #[must_use]
    pub fn of(answer: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.text().as_bytes() == answer)
    }

    /// What is to be said to a node that goes by a group in `its` life. `metadata` are those that this node has carried out. `ours` is
    /// the life of its group, and `is_member` says whether that node still belongs to it.
    #[must_use]
    pub fn on(
        node: NodeId,
        its: Option<Epoch>,
        metadata: &Metadata,
        (ours, is_member): (Epoch, bool),
    ) -> Option<Self> {
        // Where the group was formed anew without this node, it is not for this node to say who belongs to it.
        if its > Some(ours) {
            return None;
        }
        if metadata.has_removed(node) && !is_member {
            return Some(Self::Removed);
        }
        metadata.knows_nothing_of(node).then_some(Self::Unknown)
    }

    /// What a node of that uuid does that hears it, by the metadata that it has.
    pub(crate) fn sentence(self, metadata: &Metadata, uuid: &str) -> Sentence {
        let holds_nothing = metadata.node(uuid).is_some_and(|me| me.membership == Membership::InactiveAdded);
        if self == Self::Removed || holds_nothing { Sentence::Leave } else { Sentence::Keep }
    }
}

#[cfg(test)]
mod tests {
    use cluster::{Command, NodeInfo, Ports};

    use super::*;

    #[test]
    fn a_node_is_judged_by_a_group_that_is_no_older_than_its_own() {
        let first = Command::SetNode(NodeInfo::first("a".into(), "h".into(), Ports::default()));
        let mut metadata = Metadata::new("c".into(), 16).apply(&first).unwrap().0;
        metadata.next_node = 5;
        metadata.numbers_left_out.push(3..5);
        let ours = Epoch { number: 1, lot: 7 };
        let judge = |node, its, is_member| Verdict::on(NodeId(node), its, &metadata, (ours, is_member));
        assert_eq!(judge(0, Some(ours), true), None);
        assert_eq!(judge(1, Some(ours), false), Some(Verdict::Removed));
        assert_eq!(judge(1, Some(ours), true), None, "its consent may still be needed");
        assert_eq!(judge(1, Some(Epoch::default()), false), Some(Verdict::Removed));
        assert_eq!(judge(1, Some(ours.next(0)), false), None);
        assert_eq!(judge(3, Some(Epoch::default()), false), Some(Verdict::Unknown));
    }

    #[test]
    fn what_holds_data_goes_only_when_somebody_has_decided_that() {
        let mut metadata = Metadata::new("c".into(), 16);
        metadata.nodes.push(NodeInfo::first("a".into(), "h".into(), Ports::default()));
        let sentence = |metadata: &Metadata, verdict: Verdict| verdict.sentence(metadata, "a");
        assert_eq!(sentence(&metadata, Verdict::Removed), Sentence::Leave);
        assert_eq!(sentence(&metadata, Verdict::Unknown), Sentence::Keep);
        metadata.nodes[0].membership = Membership::InactiveAdded;
        assert_eq!(sentence(&metadata, Verdict::Unknown), Sentence::Leave);
        assert_eq!(Verdict::of(b"unknown"), Some(Verdict::Unknown));
        assert_eq!(Verdict::of(b""), None);
    }
}
