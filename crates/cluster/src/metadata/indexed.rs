//! Which copies of vBuckets indexes of views are kept of, beside those that a node serves.
//!
//! - A copy that is to take over is indexed while it is fed. Once it serves, its index lacks what came last and nothing else.
//! - Where a bucket has `replicaIndex`, all copies that count are. After a failover nothing is built then.

use base::{NodeId, VbId};

use crate::metadata::{
    BucketInfo,
    topology::{VbPhase, VbPlan},
};

impl BucketInfo {
    /// The vBuckets whose copies on a node are indexed there while they follow another node's.
    pub fn indexed_followers(&self, node: NodeId) -> impl Iterator<Item = VbId> {
        let targets = self.target.as_deref();
        self.vbs.iter().enumerate().filter_map(move |(at, plan)| {
            let target = targets.and_then(|targets| targets.get(at)).map(Vec::as_slice);
            let is_indexed =
                leads_soon(plan, target, node) || self.replica_index && plan.chain.contains(&node);
            is_indexed.then_some(VbId(at as u16))
        })
    }
}

/// Whether a node serves a vBucket by its plan, or is to: it may not have come to that yet.
fn leads_soon(plan: &VbPlan, target: Option<&[NodeId]>, node: NodeId) -> bool {
    let takes_over = matches!(&plan.phase, VbPhase::Handover { to, .. } if *to == node);
    let is_aimed_at = target.and_then(<[NodeId]>::first) == Some(&node);
    takes_over || is_aimed_at || plan.active() == Some(node)
}

#[cfg(test)]
mod tests {
    use base::BucketUuid;

    use super::*;
    use crate::{
        changes::{Command, bucket::BucketParams},
        metadata::{Metadata, NodeInfo, Ports},
    };

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);
    const C: NodeId = NodeId(2);

    /// A bucket with one vBucket.
    fn bucket(plan: VbPlan, target: Option<&[NodeId]>, replica_index: bool) -> BucketInfo {
        let first = NodeInfo::first("0".into(), "127.0.0.1".into(), Ports::default());
        let params = BucketParams { ram_quota_mb: Some(100), replicas: Some(1), ..BucketParams::default() };
        let create = Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params };
        let meta = Metadata::new("c".into(), 1024).apply(&Command::SetNode(first)).unwrap().0;
        let mut bucket = meta.apply(&create).unwrap().0.buckets.remove("b").unwrap();
        (bucket.vbs, bucket.replica_index) = (vec![plan].into(), replica_index);
        bucket.target = target.map(|target| vec![target.to_vec()].into());
        bucket
    }

    /// Of the three nodes those that index their copy whatever it is.
    fn indexed(bucket: &BucketInfo) -> Vec<NodeId> {
        [A, B, C].into_iter().filter(|node| bucket.indexed_followers(*node).next().is_some()).collect()
    }

    #[test]
    fn a_copy_that_is_to_take_over_is_indexed_until_it_serves() {
        let settled = |chain: &[NodeId]| VbPlan::settled(chain.to_vec(), 1);
        let none: Option<&[NodeId]> = None;
        assert_eq!(indexed(&bucket(settled(&[A, B]), none, false)), [A]);
        let building = VbPlan { building: vec![C], ..settled(&[A, B]) };
        assert_eq!(indexed(&bucket(building, Some(&[C, B]), false)), [A, C]);
        let phase = VbPhase::Handover { to: B, after: vec![B, A] };
        let on_its_way = VbPlan { phase, ..settled(&[A, B]) };
        assert_eq!(indexed(&bucket(on_its_way, none, false)), [A, B], "the rebalance may be over");
        assert_eq!(indexed(&bucket(settled(&[C, B]), none, false)), [C], "it need not serve yet");
        let phase = VbPhase::Electing { among: vec![B, C] };
        assert!(indexed(&bucket(VbPlan { phase, ..settled(&[A, B, C]) }, none, false)).is_empty());
    }

    #[test]
    fn all_copies_that_count_are_where_a_bucket_says_so() {
        let plan = VbPlan { building: vec![C], ..VbPlan::settled(vec![A, B], 1) };
        assert_eq!(indexed(&bucket(plan, None, true)), [A, B]);
    }
}
