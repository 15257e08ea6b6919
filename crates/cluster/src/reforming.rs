//! What becomes of the metadata when the group that agrees on them is formed anew by its survivors.
//!
//! The lost majority may have gone on for a while after the survivors last heard of it, and may come back with what it did.
//! So everything that only ever grows makes a leap that it cannot have made in that time: whatever a node of the old group
//! says, under whatever term, is older than everything that the new one says.

use std::sync::Arc;

use crate::Metadata;

/// How far versions leap: more steps than a cluster takes in its life.
const VERSIONS: u64 = 1 << 32;
/// How far the terms of vBuckets leap: more moves of one vBucket than there are between two looks of an administrator.
/// Branches of histories are ordered by terms and have but 18 bits for that.
const TERMS: u64 = 1 << 10;

impl Metadata {
    /// The same in a group that was formed anew.
    pub(crate) fn reformed(&self) -> Self {
        let mut next = self.clone();
        next.version += VERSIONS;
        // Clients take a configuration of a later epoch, whatever its revision.
        next.rev_epoch += 1;
        for bucket in next.buckets.values_mut() {
            for plan in Arc::make_mut(&mut bucket.vbs) {
                plan.term += TERMS;
            }
        }
        // Nobody has said yet that it knows.
        next.disarm();
        next
    }
}

#[cfg(test)]
mod tests {
    use base::BucketUuid;

    use super::*;
    use crate::{BucketParams, Command, NodeInfo, Ports};

    #[test]
    fn nothing_that_the_old_group_says_outranks_the_new_one() {
        let node = NodeInfo::first("n".into(), "h".into(), Ports::default());
        let params = BucketParams { ram_quota_mb: Some(100), ..BucketParams::default() };
        let bucket = Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params };
        let before = [Command::SetNode(node), bucket]
            .iter()
            .fold(Metadata::new("c".into(), 1_000), |metadata, command| metadata.apply(command).unwrap().0);
        let after = before.reformed();
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
    }
}
