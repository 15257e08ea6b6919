//! What a node does about the metadata that it knows, in this order. It asks for a lease where one is needed. It brings
//! its copies to where they shall be. It gives up the lease where none is needed any more. It reports how it stands.
//!
//! Invariants:
//! - Before anything is done about metadata, the node serves by a lease where they ask for one. It stops doing so only after everything
//!   was done that they ask for.
//! - A lease that was granted in an earlier life of the group counts for nothing in a later one. Nor does what was done in that life.
//! - A node that has not caught up with what was agreed on does nothing. By its old knowledge it could serve, or drop,
//!   what belongs to another node. One that finds that out while it runs serves nothing from then on, whether or not it needs leases.

use std::mem;

use base::Now;
use cluster::{Lease, Metadata, NodeReport};

use crate::{Agent, Buckets, Step};

/// Between two looks while copies are on their way somewhere: each of their steps waits for a report.
const BUSY_MILLIS: u64 = 20;
/// Between two looks while nothing is.
const IDLE_MILLIS: u64 = 100;

/// This start of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Differs from every other start of the node.
    pub boot: u64,
    /// When the process was started, Unix nanoseconds.
    pub at: u64,
}

/// See the module. One per start of a node.
#[derive(Debug, Default)]
pub struct Reconciler {
    start: Start,
    /// The identity by which this node is in its cluster, and the agent that acts for it.
    uuid: String,
    agent: Agent,
    has_looked: bool,
    /// Which life of its group this node acts in ([`crate::Applied::life`]).
    life: u64,
}

impl Reconciler {
    /// The reconciler of that start.
    #[must_use]
    pub fn new(start: Start) -> Self {
        Self { start, ..Self::default() }
    }

    /// Does some of what `metadata` asks for of the node of that identity, once it has `caught_up` with what was agreed on. They are of
    /// that `life` ([`crate::Applied::life`]), or of one before it. `lease_now` is by the clock of leases.
    pub fn look(
        &mut self,
        (uuid, life, caught_up): (&str, u64, bool),
        metadata: &Metadata,
        (lease, lease_now): (&Lease, u64),
        buckets: &impl Buckets,
        now: Now,
    ) -> Step {
        let before = mem::replace(&mut self.life, life);
        if self.has_looked && before != life {
            lease.begin_again(lease_now);
            self.agent.begin_again();
        }
        if !caught_up {
            if self.has_looked {
                // It may have been let serve by what it knew until now.
                lease.revoke();
            }
            return Step::default();
        }
        let is_another = self.uuid != uuid;
        if is_another {
            // A node that joins a cluster, or leaves it, is another one from then on.
            uuid.clone_into(&mut self.uuid);
            self.agent = Agent::new(self.uuid.clone());
        }
        let is_first = !mem::replace(&mut self.has_looked, true);
        lease.follow(metadata, is_first, lease_now);
        let mut step = self.agent.step(metadata, buckets, now);
        lease.end_need(metadata, self.agent.applied());
        step.wishes_changed |= is_another;
        step
    }

    /// What has been done, and what is wished for.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// How long to wait before the next look where nothing happens; `None` where there was more to do.
    #[must_use]
    pub fn pause_millis(&self, step: Step) -> Option<u64> {
        let pause = if self.agent.is_busy() { BUSY_MILLIS } else { IDLE_MILLIS };
        (!step.more).then_some(pause)
    }

    /// What the leader is to know, without figures; `None` where this node is none of the cluster's.
    #[must_use]
    pub fn report(
        &self,
        metadata: &Metadata,
        buckets: &impl Buckets,
        stands_still: bool,
    ) -> Option<NodeReport> {
        let this = metadata.node(&self.uuid)?;
        Some(NodeReport {
            node: this.id,
            uuid: self.uuid.clone(),
            boot: self.start.boot,
            started: self.start.at,
            number: 0,
            applied: self.agent.applied(),
            level: cluster::level::LEVEL,
            stands_still,
            diverged: None,
            state: None,
            data_quota: metadata.quotas.data_mb << 20,
            data_used: 0,
            disk_total: 0,
            disk_free: 0,
            buckets: self.agent.report(buckets),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{BucketUuid, NodeId, VbId};
    use cluster::{NodeInfo, Ports};
    use engine::Bucket;

    use super::*;

    /// A node without buckets.
    struct Nothing;

    impl Buckets for Nothing {
        type Bucket = Arc<Bucket>;

        fn copies(&self, _: &BucketUuid) -> Option<Arc<Bucket>> {
            None
        }

        fn following(&self, _: &BucketUuid, _: VbId) -> Option<u64> {
            None
        }
    }

    const NOW: Now = Now { wall_nanos: 0, mono_millis: 0 };

    fn metadata(leases: bool) -> Metadata {
        let mut metadata = Metadata::new("c".into(), 256);
        let node = |id: u16| {
            let node = NodeInfo::first(format!("n{id}"), "h".into(), Ports::default());
            NodeInfo { id: NodeId(id), ..node }
        };
        metadata.nodes = (0..3).map(node).collect();
        (metadata.auto_failover.enabled, metadata.version) = (leases, 7);
        metadata
    }

    /// Whether there are other wishes than before.
    fn look(
        reconciler: &mut Reconciler,
        uuid: &str,
        metadata: &Metadata,
        lease: &Lease,
        lease_now: u64,
    ) -> bool {
        reconciler.look((uuid, 0, true), metadata, (lease, lease_now), &Nothing, NOW).wishes_changed
    }

    #[test]
    fn a_node_that_has_not_caught_up_does_nothing() {
        let (mut reconciler, lease) = (Reconciler::default(), Lease::default());
        let step = reconciler.look(("n1", 0, false), &metadata(true), (&lease, 10), &Nothing, NOW);
        assert_eq!((step, lease.left_millis(10), reconciler.agent().applied()), (Step::default(), None, 0));
        // This look is the first one still: it may serve nothing.
        look(&mut reconciler, "n1", &metadata(true), &lease, 10);
        assert_eq!((lease.left_millis(10), reconciler.agent().applied()), (Some(0), 7));
    }

    /// It is found out while the node runs: its metadata differ, or others say that it is none of theirs. Where no lease is needed nothing
    /// else would stop it.
    #[test]
    fn a_node_that_has_not_caught_up_any_more_serves_nothing() {
        let (mut reconciler, lease) = (Reconciler::default(), Lease::default());
        look(&mut reconciler, "n1", &metadata(false), &lease, 10);
        lease.revoke();
        // This look is by what was known before.
        look(&mut reconciler, "n1", &metadata(false), &lease, 20);
        let step = reconciler.look(("n1", 0, false), &metadata(false), (&lease, 30), &Nothing, NOW);
        assert_eq!(step, Step::default());
        assert!(lease.has_run_out(|| 30));
    }

    /// The thread that reports hears it, while this one acts by what it has read before, or another thread opens a bucket.
    #[test]
    fn a_node_that_the_leader_lets_serve_nothing_is_let_serve_by_nothing_that_it_knew_before() {
        let (mut reconciler, lease) = (Reconciler::default(), Lease::default());
        look(&mut reconciler, "n1", &metadata(false), &lease, 10);
        lease.fence(15);
        look(&mut reconciler, "n1", &metadata(false), &lease, 20);
        assert!(lease.has_run_out(|| 20));
        look(&mut reconciler, "n1", &metadata(true), &lease, 30);
        lease.answered(30, Some(5_000));
        assert!(lease.has_run_out(|| 30));
        // Removed and added again it is a member like any other.
        let _ = reconciler.look(("n1", 1, true), &metadata(false), (&lease, 40), &Nothing, NOW);
        assert_eq!(lease.left_millis(40), None);
    }

    /// Two groups that were formed anew of the same one have metadata of the same versions, and of other contents.
    #[test]
    fn what_a_node_has_done_in_an_earlier_life_of_the_group_is_not_done_in_a_later_one() {
        let (mut reconciler, lease) = (Reconciler::default(), Lease::default());
        look(&mut reconciler, "n1", &metadata(false), &lease, 10);
        assert_eq!(reconciler.agent().applied(), 7);
        let _ = reconciler.look(("n1", 1, false), &metadata(false), (&lease, 20), &Nothing, NOW);
        assert_eq!(reconciler.agent().applied(), 0);
        assert!(lease.has_run_out(|| 20));
        let _ = reconciler.look(("n1", 1, true), &metadata(false), (&lease, 30), &Nothing, NOW);
        assert_eq!((reconciler.agent().applied(), lease.left_millis(30)), (7, None));
    }

    #[test]
    fn a_lease_is_asked_for_before_anything_is_done_and_given_up_once_all_was_done() {
        let (mut reconciler, lease) = (Reconciler::default(), Lease::default());
        look(&mut reconciler, "n1", &metadata(true), &lease, 10);
        lease.extend(20);
        assert!(!lease.has_run_out(|| 19) && lease.has_run_out(|| 20));
        look(&mut reconciler, "n1", &metadata(false), &lease, 30);
        assert_eq!(lease.left_millis(30), None, "all was done that these ask for");
        lease.require(0);
        // A node that is none of the cluster's has done nothing of what is asked for.
        look(&mut reconciler, "stranger", &metadata(false), &lease, 30);
        assert!(lease.has_run_out(|| 30));
    }

    /// The members of the new group do not know until when this node may serve by what the old one has said.
    #[test]
    fn a_lease_ends_with_the_life_of_the_group_that_granted_it() {
        let (mut reconciler, lease) = (Reconciler::default(), Lease::default());
        look(&mut reconciler, "n1", &metadata(true), &lease, 10);
        lease.answered(10, Some(5_000));
        look(&mut reconciler, "n1", &metadata(true), &lease, 20);
        assert!(!lease.has_run_out(|| 20));
        let mut look = |life, caught_up, metadata: &Metadata, now| {
            let _ = reconciler.look(("n1", life, caught_up), metadata, (&lease, now), &Nothing, NOW);
        };
        // Two groups that were formed anew of the same one have metadata that tell the same life.
        let anew = metadata(true);
        look(1, false, &anew, 30);
        assert!(lease.has_run_out(|| 30), "before it knows what the new group has agreed on");
        look(1, true, &anew, 40);
        assert!(lease.has_run_out(|| 40));
        lease.answered(40, Some(5_000));
        look(1, true, &anew, 50);
        assert!(!lease.has_run_out(|| 50));
        // Where the new group needs none, the node serves once it acts by what was agreed on.
        look(2, true, &metadata(false), 60);
        assert_eq!(lease.left_millis(60), None);
    }

    #[test]
    fn a_node_that_joins_is_another_one_from_then_on() {
        let (mut reconciler, lease) = (Reconciler::new(Start { boot: 5, at: 6 }), Lease::default());
        assert!(look(&mut reconciler, "n1", &metadata(false), &lease, 10));
        assert!(!look(&mut reconciler, "n1", &metadata(false), &lease, 11));
        let report = reconciler.report(&metadata(false), &Nothing, true).unwrap();
        assert_eq!((report.node, report.boot, report.started, report.applied), (NodeId(1), 5, 6, 7));
        assert!(report.stands_still);
        assert!(look(&mut reconciler, "n2", &metadata(false), &lease, 12));
        assert_eq!(
            reconciler.report(&metadata(false), &Nothing, false).map(|report| report.node),
            Some(NodeId(2))
        );
        look(&mut reconciler, "stranger", &metadata(false), &lease, 13);
        assert_eq!(reconciler.report(&metadata(false), &Nothing, false), None);
    }
}
