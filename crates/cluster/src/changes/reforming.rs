//! What becomes of the metadata when the group that agrees on them is formed anew by its survivors.
//!
//! The lost majority may have gone on for a while after the survivors last heard of it, and may come back with what it
//! did. So every number that only grows makes a leap that the lost majority cannot have made in that time. Everything
//! that a node of the old group says, under any term, is older than everything that the new group says. A node that the
//! old group has added since has a number that the new group gives to nobody.

use std::sync::Arc;

use base::{ManifestUid, NodeId};

use crate::metadata::Metadata;

/// How far versions leap: more steps than a cluster takes in its life.
const VERSIONS: u64 = 1 << 32;
/// How far the terms of vBuckets leap: more moves of one vBucket than there are between two looks of an administrator.
/// Branches of histories are ordered by terms and have but 18 bits for that.
pub const TERMS_LEAP: u64 = 1 << 10;
/// How far the numbers of nodes leap: more than are added between two looks. There are but 16 bits for them.
const NUMBERS: u16 = 1 << 8;

/// How far the versions of manifests leap, and the numbers of scopes and collections: more than are made between two looks.
const COLLECTIONS: u32 = 1 << 12;
/// A group is formed anew so often at most without a member that has heard of any of these lives.
const LIVES_MAX: u64 = 64;

impl Metadata {
    /// The same in a group that was formed anew, so many lives later than these metadata are: each has leapt as far.
    pub(crate) fn reformed(&self, lives: u64) -> Self {
        let mut next = self.clone();
        for _ in 0..lives.clamp(1, LIVES_MAX) {
            next.leap();
        }
        // Nobody has said yet that it knows.
        next.disarm();
        next
    }

    fn leap(&mut self) {
        self.version += VERSIONS;
        // A version of the lost nodes that is later than a failover does not say that they knew of it.
        let excluded = self.nodes.iter_mut().filter_map(|node| node.excluded.as_mut());
        let departed = self.departed.iter_mut().map(|gone| &mut gone.excluded);
        excluded.chain(departed).for_each(|excluded| excluded.version = self.version);
        // Clients take a configuration of a later epoch, whatever its revision.
        self.rev_epoch += 1;
        for bucket in self.buckets.values_mut() {
            for plan in Arc::make_mut(&mut bucket.vbs) {
                plan.term += TERMS_LEAP;
            }
            // Lost nodes may have given the next numbers to other collections, and have documents of those. A node that
            // has seen a later manifest than the one in force ignores that.
            let manifest = &mut bucket.manifest;
            manifest.uid = ManifestUid(manifest.uid.get() + u64::from(COLLECTIONS));
            manifest.next_id = manifest.next_id.saturating_add(COLLECTIONS);
        }
        let numbers = NUMBERS.min((u16::MAX - self.next_node) / 2);
        self.numbers_left_out.push(self.next_node..self.next_node + numbers);
        self.next_node += numbers;
    }

    /// Whether a node of that number was one of the cluster's and is one no more. Numbers are never given again, so that
    /// holds however old these metadata are.
    #[must_use]
    pub fn has_removed(&self, node: NodeId) -> bool {
        node.get() < self.next_node && self.node_by_id(node).is_none() && !self.knows_nothing_of(node)
    }

    /// Whether a node has a number that lost nodes may have given to it, and nobody else.
    #[must_use]
    pub fn knows_nothing_of(&self, node: NodeId) -> bool {
        self.numbers_left_out.iter().any(|numbers| numbers.contains(&node.get()))
    }
}

#[cfg(test)]
mod tests {
    use base::BucketUuid;

    use super::*;
    use crate::{
        changes::{Command, bucket::BucketParams, rebalancing::FailOver},
        metadata::{NodeInfo, Ports, topology::Membership},
    };

    #[test]
    fn nothing_that_the_old_group_says_outranks_the_new_one() {
        let node = NodeInfo::first("n".into(), "h".into(), Ports::default());
        let params = BucketParams { ram_quota_mb: Some(100), ..BucketParams::default() };
        let bucket = Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params };
        let before = [Command::SetNode(node), bucket]
            .iter()
            .fold(Metadata::new("c".into(), 1_000), |metadata, command| metadata.apply(command).unwrap().0);
        let after = before.reformed(1);
        assert!(after.version > before.version + 1_000_000);
        assert!(after.rev_epoch > before.rev_epoch);
        let terms =
            |metadata: &Metadata| metadata.buckets["b"].vbs.iter().map(|plan| plan.term).collect::<Vec<_>>();
        assert!(terms(&before).iter().zip(terms(&after)).all(|(before, after)| after > before + 1_000));
        let chains = |metadata: &Metadata| {
            metadata.buckets["b"].vbs.iter().map(|plan| plan.chain.clone()).collect::<Vec<_>>()
        };
        assert_eq!(chains(&before), chains(&after));
        assert!(!after.auto_failover.armed);
        let manifest = |metadata: &Metadata| {
            let manifest = &metadata.buckets["b"].manifest;
            (manifest.uid.get(), manifest.next_id)
        };
        let (uid, id) = manifest(&before);
        assert!(
            manifest(&after) > (uid + 1_000, id + 1_000),
            "as well as collections that lost nodes have made"
        );
        // A group that was formed before by others, and of which these metadata know nothing.
        let by_others = &before.reformed(1);
        let again = before.reformed(2);
        assert!(again.version > by_others.version + 1_000_000 && again.rev_epoch > by_others.rev_epoch);
        assert!(terms(by_others).iter().zip(terms(&again)).all(|(others, again)| again > others + 1_000));
        assert!(again.next_node > by_others.next_node);
    }

    #[test]
    fn what_lost_nodes_know_does_not_say_that_they_know_of_a_failover() {
        let first = Command::SetNode(NodeInfo::first("n".into(), "h".into(), Ports::default()));
        let before = Metadata::new("c".into(), 1_000).apply(&first).unwrap().0;
        let (node, mut before) = add(&before);
        before.node_by_id_mut(node).unwrap().membership = Membership::Active;
        let fail_over = FailOver { nodes: vec![node], allow_unsafe: true, auto: false };
        let failed = before.apply(&Command::FailOver(fail_over)).unwrap().0;
        let version = |metadata: &Metadata| metadata.node_by_id(node).unwrap().excluded.unwrap().version;
        assert_eq!(version(&failed), failed.version);
        let after = failed.reformed(1);
        assert_eq!(version(&after), after.version, "the others may have made any number of changes since");
    }

    #[test]
    fn a_node_that_was_only_added_is_named_as_lost_and_stays_what_it_is() {
        let first = Command::SetNode(NodeInfo::first("n".into(), "h".into(), Ports::default()));
        let before = Metadata::new("c".into(), 1_000).apply(&first).unwrap().0;
        let (active, mut before) = add(&before);
        before.node_by_id_mut(active).unwrap().membership = Membership::Active;
        let (added, mut before) = add(&before);
        let fail_over = |nodes: &[NodeId], allow_unsafe| {
            Command::FailOver(FailOver { nodes: nodes.to_vec(), allow_unsafe, auto: false })
        };
        let both = fail_over(&[active, added], true);
        let after = before.apply(&both).unwrap().0;
        let membership = |node| after.node_by_id(node).unwrap().membership;
        assert_eq!(membership(active), Membership::InactiveFailed);
        assert_eq!(membership(added), Membership::InactiveAdded, "an administrator can remove it now");
        assert!(after.apply(&both).is_ok(), "asked for again");
        for refused in [fail_over(&[added], true), fail_over(&[active, added], false)] {
            assert!(before.apply(&refused).is_err(), "{refused:?}");
        }
        before.level = crate::metadata::level::ADDED_ARE_NAMED - 1;
        assert!(before.apply(&both).is_err(), "older versions refuse it");
    }

    fn add(metadata: &Metadata) -> (NodeId, Metadata) {
        let id = NodeId(metadata.next_node);
        let node = NodeInfo { id, ..NodeInfo::first(format!("n{id}"), format!("h{id}"), Ports::default()) };
        (id, metadata.apply(&Command::AddNode(node)).unwrap().0)
    }

    #[test]
    fn whom_lost_nodes_have_added_is_told_from_who_was_removed() {
        let first = Command::SetNode(NodeInfo::first("n".into(), "h".into(), Ports::default()));
        let before = Metadata::new("c".into(), 1_000).apply(&first).unwrap().0;
        let (second, before) = add(&before);
        let (third, by_lost_ones) = add(&before);
        let (after, again) = (before.reformed(1), by_lost_ones.reformed(1));
        assert!(after.knows_nothing_of(third) && !after.has_removed(third));
        assert!(!after.knows_nothing_of(second) && !again.knows_nothing_of(third));
        let removed = after.apply(&Command::RemoveNode { node: second }).unwrap().0;
        assert!(removed.has_removed(second) && !removed.knows_nothing_of(second));
        // Nor is that number given to anybody else.
        let (fourth, last) = add(&removed);
        assert!(fourth > third && !last.knows_nothing_of(fourth) && !last.has_removed(fourth));
    }

    #[test]
    fn where_few_numbers_are_left_fewer_are_left_out() {
        let mut metadata = Metadata::new("c".into(), 1_000);
        metadata.next_node = u16::MAX - 100;
        assert_eq!(metadata.reformed(1).next_node, u16::MAX - 50);
        metadata.next_node = u16::MAX;
        assert_eq!(metadata.reformed(1).next_node, u16::MAX);
    }
}
