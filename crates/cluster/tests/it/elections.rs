//! Whom an election waits for, and what a report that comes late changes.

use std::collections::BTreeMap;

use base::{BucketUuid, NodeId, Seqno, VbId, VbRole, VbUuid};
use settee_cluster::{
    BucketParams, BucketReport, Command, FailOver, Metadata, NodeInfo, NodeReport, Orchestrator, Ports,
    Recovery, StartGracefulFailover, StartRebalance, VbChange, VbPhase, VbPlan, VbReport, VbStep,
    level::LEVEL,
};

const NODES: u16 = 3;
const BEGIN_MS: u64 = 1_000_000;

fn nodes(ids: &[u16]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

fn electing(among: &[u16], joint: &[u16]) -> VbPlan {
    VbPlan {
        phase: VbPhase::Electing { among: nodes(among) },
        joint: Some(nodes(joint)),
        ..VbPlan::settled(nodes(among), 5)
    }
}

struct Cluster {
    meta: Metadata,
    orchestrator: Orchestrator,
    now_ms: u64,
    copies: BTreeMap<u16, VbReport>,
    /// Nodes that report, and have not opened the bucket.
    opening: Vec<u16>,
}

/// A copy with everything up to a seqno.
fn whole(held: u64) -> VbReport {
    VbReport {
        vb: VbId(0),
        term: 5,
        role: VbRole::Replica,
        unconfirmed: false,
        vb_uuid: VbUuid(0),
        high_seqno: Seqno(held),
        held: Seqno(held),
        persisted: Seqno(0),
        synced: None,
        complete: true,
        may_lack: false,
        to_disk: false,
        following: false,
        indexing: false,
    }
}

impl Cluster {
    fn new(plan: VbPlan) -> Self {
        Self::of(NODES, plan)
    }

    fn of(count: u16, plan: VbPlan) -> Self {
        let mut meta = Metadata::new("c".repeat(32), 100_000);
        let mut apply = |command: &Command| meta = meta.apply(command).unwrap().0;
        for id in 0..count {
            let mut node = NodeInfo::first(id.to_string(), format!("10.0.0.{id}"), Ports::default());
            node.id = NodeId(id);
            node.ports.mgmt = 8091;
            apply(&if id == 0 { Command::SetNode(node) } else { Command::AddNode(node) });
        }
        let (id, keep) = ("r".to_owned(), (0..count).map(NodeId).collect());
        apply(&Command::StartRebalance(StartRebalance { id: id.clone(), keep, eject: vec![], now_ms: 0 }));
        apply(&Command::FinishRebalance { id, now_ms: 0 });
        let params = BucketParams { ram_quota_mb: Some(100), replicas: Some(2), ..BucketParams::default() };
        apply(&Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params });
        meta.buckets.get_mut("b").unwrap().vbs = vec![plan].into();
        let (copies, opening) = (BTreeMap::new(), Vec::new());
        Self { meta, orchestrator: Orchestrator::new(), now_ms: BEGIN_MS, copies, opening }
    }

    fn with(mut self, copies: &[(u16, VbReport)]) -> Self {
        self.copies.extend(copies.iter().copied());
        self
    }

    fn report(&self, node: u16) -> NodeReport {
        let bucket = BucketReport {
            uuid: BucketUuid("u".into()),
            ready: !self.opening.contains(&node),
            vbs: self.copies.get(&node).copied().into_iter().collect(),
            items: 0,
            bytes: 0,
            weights: Vec::new(),
            cut_off: BTreeMap::new(),
            pressure: Default::default(),
            latency: None,
        };
        NodeReport {
            boot: 1,
            started: 100,
            buckets: vec![bucket],
            ..NodeReport::bare(NodeId(node), node.to_string(), self.meta.version)
        }
    }

    fn look(&mut self) {
        self.now_ms += 250;
        for &node in self.copies.keys().chain(&self.opening) {
            self.orchestrator.report(&self.meta, self.report(node), self.now_ms);
        }
        for command in self.orchestrator.step(&self.meta, self.now_ms) {
            if matches!(command, Command::ChangeVbs(_)) {
                self.meta = self.meta.apply(&command).unwrap().0;
            }
        }
    }

    /// So much time goes by while those that have something to say report, and the leader decides.
    fn run(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        while self.now_ms < until {
            self.look();
        }
    }

    /// The copy that is elected within so long while those that have something to say report.
    fn elected_within(&mut self, ms: u64) -> Option<u16> {
        let until = self.now_ms + ms;
        while self.now_ms < until {
            self.look();
            if let Some(active) = self.plan().active() {
                return Some(active.get());
            }
        }
        None
    }

    fn plan(&self) -> &VbPlan {
        &self.meta.buckets["b"].vbs[0]
    }

    fn awaited(&self) -> Vec<u16> {
        self.orchestrator.awaited(&self.meta, self.now_ms).keys().map(|(_, node)| node.get()).collect()
    }
}

#[test]
fn a_copy_that_may_lack_something_is_no_answer() {
    let forgetful = VbReport { may_lack: true, ..whole(3) };
    let mut cluster = Cluster::new(electing(&[0, 1], &[0, 1])).with(&[(0, forgetful)]);
    assert_eq!(cluster.elected_within(60_000), None, "the other one may have more");
    assert_eq!(cluster.awaited(), [1], "and it is said who is waited for");
    cluster.copies.insert(1, whole(9));
    assert_eq!(cluster.elected_within(1_000), Some(1));
    assert!(cluster.awaited().is_empty());
    // It may have the most all the same; and where all have forgotten something there is nobody to wait for.
    for other in [whole(2), VbReport { may_lack: true, ..whole(2) }] {
        let mut cluster = Cluster::new(electing(&[0, 1], &[0, 1])).with(&[(0, forgetful), (1, other)]);
        assert_eq!(cluster.elected_within(1_000), Some(0));
    }
}

/// The active copy is failed over while its chain shrinks to it, so that the other one counts by the chain before only. Then the bucket is
/// emptied: what that one has is blank.
#[test]
fn a_flush_in_an_election_without_a_chain_gives_nothing_up() {
    let plan = VbPlan { joint: Some(nodes(&[0, 1])), ..VbPlan::settled(nodes(&[0]), 5) };
    let mut cluster = Cluster::new(plan);
    let flush = Command::FlushBucket { name: "b".into(), uuid: BucketUuid("u".into()) };
    cluster.apply(&[fail_over(0), flush]);
    assert_eq!(cluster.plan().chain, []);
    let blank = VbReport { term: cluster.plan().term, complete: false, ..whole(0) };
    let mut cluster = cluster.with(&[(1, blank)]);
    assert_eq!(cluster.elected_within(120_000), Some(1), "{:?}", cluster.plan());
}

#[test]
fn an_operator_can_go_on_without_nodes_that_are_waited_for() {
    let forgetful = VbReport { may_lack: true, ..whole(3) };
    let mut cluster = Cluster::new(electing(&[0, 1], &[0, 1])).with(&[(0, forgetful)]);
    assert_eq!(cluster.elected_within(60_000), None);
    cluster.apply(&[fail_over(1)]);
    cluster.copies.insert(0, VbReport { term: cluster.plan().term, ..forgetful });
    assert_eq!(cluster.elected_within(5_000), Some(0));
}

#[test]
fn a_former_active_is_waited_for_unless_it_is_failed_over() {
    let mut cluster = Cluster::new(electing(&[0, 1, 2], &[0, 1, 2])).with(&[(1, whole(5)), (2, whole(5))]);
    assert_eq!(cluster.elected_within(60_000), None);
    assert_eq!(cluster.awaited(), [0]);
}

#[test]
fn a_bucket_that_does_not_open_keeps_nobody_from_serving() {
    let mut cluster = Cluster::new(electing(&[0, 1, 2], &[0, 1, 2])).with(&[(0, whole(5)), (1, whole(4))]);
    cluster.opening = vec![2];
    assert_eq!(cluster.elected_within(5_000), None, "it is given some time");
    assert_eq!(cluster.elected_within(10_000), Some(0));
    // Not where it may be the only one that knows something.
    let forgetful = VbReport { may_lack: true, ..whole(5) };
    let mut cluster = Cluster::new(electing(&[0, 1, 2], &[0, 1, 2])).with(&[(0, forgetful), (1, whole(4))]);
    cluster.opening = vec![2];
    assert_eq!(cluster.elected_within(60_000), None);
}

/// The winner of an election counts alone until the others have caught up. When it fails as well, one of them has what
/// both have acknowledged since.
#[test]
fn a_second_failover_asks_everybody_that_may_know() {
    let elected = VbPlan { joint: Some(nodes(&[1])), ..VbPlan::settled(nodes(&[1, 0, 2]), 4) };
    let mut cluster = Cluster::new(elected);
    cluster.apply(&[fail_over(1)]);
    assert_eq!(cluster.plan().term, 5);
    cluster.copies.insert(0, whole(3));
    assert_eq!(cluster.elected_within(60_000), None, "the silent one may have more");
    assert_eq!(cluster.awaited(), [2]);
    cluster.copies.insert(2, whole(7));
    assert_eq!(cluster.elected_within(1_000), Some(2));
}

#[test]
fn a_report_that_was_overtaken_changes_nothing() {
    let cluster = Cluster::new(electing(&[0, 1], &[0, 1]));
    let mut orchestrator = Orchestrator::new();
    let mut take = |started, boot, number, now_ms| {
        let report = NodeReport { started, boot, number, data_used: number, ..cluster.report(0) };
        assert!(orchestrator.report(&cluster.meta, report, now_ms), "it is a member's all the same");
        let last = orchestrator.last_report(NodeId(0)).unwrap();
        (last.boot, last.number)
    };
    assert_eq!(take(100, 1, 7, 0), (1, 7));
    assert_eq!(take(100, 1, 6, 10), (1, 7), "it was sent before");
    assert_eq!(take(200, 2, 1, 20), (2, 1), "the node was started again");
    assert_eq!(take(100, 1, 8, 30), (2, 1), "of the life before");
    // Its clock was set back before it was started again.
    assert_eq!(take(50, 3, 1, 40), (2, 1));
    assert_eq!(take(50, 3, 2, 5_000), (3, 2));
}

#[test]
fn of_two_branches_the_later_one_has_what_was_acknowledged() {
    let later = VbReport { vb_uuid: VbUuid(1).of_generation(2), ..whole(4) };
    let copies = [(0, whole(9)), (1, later), (2, whole(9))];
    let elected = Cluster::new(electing(&[0, 1, 2], &[0, 1, 2])).with(&copies).elected_within(20_000);
    assert_eq!(elected, Some(1));
}

/// What only the first two had, the second in memory, is lost with them (`docs/promises.md`).
#[test]
fn of_three_copies_the_third_serves_once_one_is_failed_over_and_another_has_forgotten() {
    let elected = |copies: &[(u16, VbReport)]| {
        Cluster::new(electing(&[1, 2], &[0, 1, 2])).with(copies).elected_within(20_000)
    };
    let killed = |held| VbReport { may_lack: true, ..whole(held) };
    assert_eq!(elected(&[(2, whole(7))]), None, "it is waited for");
    assert_eq!(elected(&[(1, killed(5)), (2, whole(7))]), Some(2));
    assert_eq!(elected(&[(1, killed(9)), (2, whole(7))]), Some(1), "it had synced that");
}

impl Cluster {
    fn apply(&mut self, commands: &[Command]) {
        for command in commands {
            self.meta = self.meta.apply(command).unwrap_or_else(|error| panic!("{command:?}: {error}")).0;
        }
    }
}

fn fail_over(node: u16) -> Command {
    Command::FailOver(FailOver { nodes: nodes(&[node]), allow_unsafe: false, auto: false })
}

/// A rebalance of all begins.
fn start() -> Command {
    let keep = (0..NODES).map(NodeId).collect();
    Command::StartRebalance(StartRebalance { id: "r".into(), keep, eject: vec![], now_ms: 0 })
}

/// A rebalance begins to recover a node with what it holds.
fn recover(node: u16) -> [Command; 2] {
    [Command::SetRecovery { node: NodeId(node), recovery: Some(Recovery::Delta) }, start()]
}

/// Of a vBucket with copies on three nodes only that of the first is whole. It is failed over, and a rebalance begins to recover it.
fn recovering() -> Cluster {
    let alone = VbPlan { joint: Some(nodes(&[0])), ..VbPlan::settled(nodes(&[0, 2]), 4) };
    let part = VbReport { complete: false, ..whole(0) };
    let mut cluster = Cluster::new(alone).with(&[(0, whole(9)), (1, part), (2, part)]);
    cluster.apply(&[fail_over(0)]);
    cluster.apply(&recover(0));
    cluster
}

/// A node of which nothing is heard is waited for, and what it has is served once it is there.
fn waits_for(cluster: &mut Cluster, node: u16) {
    let copy = cluster.copies.remove(&node).unwrap();
    assert_eq!(cluster.elected_within(20_000), None, "{node} is waited for");
    cluster.copies.insert(node, copy);
    assert_eq!(cluster.elected_within(20_000), Some(node));
}

/// The recovered node is away, and its copy with it. `is_given_up`: the others have given the vBucket up meanwhile.
fn recovering_without_its_copy(is_given_up: bool) -> (Cluster, VbReport) {
    let mut cluster = recovering();
    let copy = cluster.copies.remove(&0).unwrap();
    if is_given_up {
        assert_eq!(cluster.elected_within(20_000), None);
        assert_eq!(cluster.plan().chain, []);
    }
    (cluster, copy)
}

/// When it is failed over for the second time it is in no chain any more, and has the only whole copy all the same.
#[test]
fn what_a_node_held_is_remembered_when_it_is_failed_over_again_while_it_is_recovered() {
    for is_given_up in [true, false] {
        let (mut cluster, copy) = recovering_without_its_copy(is_given_up);
        cluster.apply(&[fail_over(0), Command::StopRebalance { id: None, now_ms: 0 }]);
        cluster.apply(&recover(0));
        cluster.copies.insert(0, copy);
        let term = cluster.plan().term;
        cluster.copies.values_mut().for_each(|copy| copy.term = term);
        waits_for(&mut cluster, 0);
    }
}

/// Somebody stops the rebalance before the node is there.
#[test]
fn what_a_recovered_node_holds_of_a_vbucket_that_is_given_up_outlives_a_rebalance_that_is_stopped() {
    for is_given_up in [true, false] {
        let (mut cluster, copy) = recovering_without_its_copy(is_given_up);
        cluster.apply(&[Command::StopRebalance { id: None, now_ms: 0 }]);
        assert_eq!(cluster.elected_within(20_000), None);
        assert_eq!(cluster.plan().chain, []);
        // There is room for one copy, and the others have fewer.
        let bucket = cluster.meta.buckets.get_mut("b").unwrap();
        bucket.replicas = 0;
        cluster.apply(&[start()]);
        assert_eq!(cluster.meta.buckets["b"].target.as_deref(), Some(&vec![nodes(&[0])]));
        cluster.copies.insert(0, copy);
        waits_for(&mut cluster, 0);
        // Later in the same rebalance the copy may go elsewhere, and this node then drops its own.
        assert!(cluster.meta.buckets["b"].former.is_empty(), "it is decided who serves it");
    }
}

/// What a node has that is recovered from nothing is not asked for.
#[test]
fn a_node_that_is_recovered_from_nothing_holds_nothing() {
    let mut cluster = recovering();
    cluster.apply(&[
        Command::StopRebalance { id: None, now_ms: 0 },
        fail_over(0),
        Command::SetRecovery { node: NodeId(0), recovery: Some(Recovery::Full) },
        start(),
        Command::StopRebalance { id: None, now_ms: 0 },
    ]);
    assert!(cluster.meta.buckets["b"].former.is_empty());
}

/// In an election, say: the copy of the chain before counts as well.
#[test]
fn a_node_that_counts_only_by_the_chain_before_held_the_vbucket() {
    let joint = VbPlan { joint: Some(nodes(&[0, 1])), ..VbPlan::settled(nodes(&[0, 2]), 4) };
    let mut cluster = Cluster::new(joint);
    cluster.apply(&[fail_over(1)]);
    assert_eq!(cluster.meta.buckets["b"].former[&NodeId(1)], [0]);
}

#[test]
fn a_copy_that_is_being_built_is_none_to_fail_over_to() {
    let building = VbPlan { building: nodes(&[1]), ..VbPlan::settled(nodes(&[0]), 4) };
    let cluster = Cluster::new(building);
    let refusal = cluster.meta.apply(&fail_over(0)).unwrap_err().to_string();
    assert!(refusal.contains("there is no other copy"), "{refusal}");
    let allowed = FailOver { nodes: nodes(&[0]), allow_unsafe: true, auto: false };
    assert!(cluster.meta.apply(&Command::FailOver(allowed)).is_ok());
    // While the chain changes the one before is a copy.
    let joint = VbPlan { joint: Some(nodes(&[0, 1])), ..VbPlan::settled(nodes(&[0]), 4) };
    assert!(Cluster::new(joint).meta.apply(&fail_over(0)).is_ok());
}

#[test]
fn a_node_that_is_recovered_serves_what_it_has_of_a_vbucket_that_is_given_up_meanwhile() {
    let mut cluster = recovering();
    assert_eq!(cluster.elected_within(20_000), Some(0));
    assert_eq!(cluster.plan().term, 7, "it was given up in between");
}

/// Placement prefers nodes that have a chain's places already, so it may leave out the one that comes back.
#[test]
fn so_does_one_for_which_the_rebalance_had_no_place_there() {
    let mut cluster = recovering();
    cluster.meta.buckets.get_mut("b").unwrap().target = Some(vec![nodes(&[1, 2])].into());
    assert_eq!(cluster.elected_within(20_000), Some(0));
}

#[test]
fn a_vbucket_that_nobody_has_is_made_of_the_copy_with_the_most() {
    let made = |copies: &[(u16, VbReport)]| {
        let mut cluster = Cluster::new(VbPlan::settled(vec![], 5)).with(copies);
        let bucket = cluster.meta.buckets.get_mut("b").unwrap();
        bucket.target = Some(vec![nodes(&[0, 1, 2])].into());
        bucket.former = [(NodeId(1), vec![0]), (NodeId(2), vec![0])].into();
        cluster.elected_within(20_000)
    };
    let later = VbReport { vb_uuid: VbUuid(1).of_generation(2), ..whole(4) };
    let blank = VbReport { complete: false, ..whole(0) };
    assert_eq!(made(&[(0, blank), (1, whole(9)), (2, later)]), Some(2));
    assert_eq!(made(&[(0, blank), (1, whole(9)), (2, whole(4))]), Some(1));
    assert_eq!(made(&[(0, whole(20)), (1, blank), (2, whole(4))]), Some(2), "the other one held it long ago");
    assert_eq!(made(&[(0, blank), (1, whole(9))]), None, "the other one had it as well");
}

/// What an earlier life of the node has left may look like more.
#[test]
fn a_copy_that_is_being_built_is_a_last_resort() {
    let plan = VbPlan { chain: nodes(&[1]), building: nodes(&[2]), ..electing(&[1, 2], &[0, 1]) };
    let later = VbReport { vb_uuid: VbUuid(1).of_generation(2), ..whole(9) };
    let elected =
        |copy: VbReport| Cluster::new(plan.clone()).with(&[(1, copy), (2, later)]).elected_within(20_000);
    assert_eq!(elected(whole(3)), Some(1));
    assert_eq!(elected(VbReport { complete: false, ..whole(3) }), Some(2), "nobody else has a whole one");
}

/// Whether the first of the copies hands over to the second, before it is given up.
fn hands_over(chain: &[u16], after: &[u16], copies: &[(u16, VbReport)]) -> bool {
    let phase = VbPhase::Handover { to: NodeId(1), after: nodes(after) };
    let building = nodes(after).into_iter().filter(|node| !nodes(chain).contains(node)).collect();
    let plan = VbPlan { phase, building, ..VbPlan::settled(nodes(chain), 5) };
    let mut cluster = Cluster::new(plan).with(copies);
    for _ in 0..3 {
        cluster.elected_within(250);
    }
    cluster.plan().active() == Some(NodeId(1))
}

#[test]
fn a_handover_ends_once_the_next_active_and_a_majority_have_what_the_sealed_copy_has() {
    let sealed = VbReport { role: VbRole::Sealed, ..whole(9) };
    let follows = |high| VbReport { following: true, ..whole(high) };
    let all = [0, 1, 2];
    let with = |first, second, third| hands_over(&all, &[1, 2, 0], &[(0, first), (1, second), (2, third)]);
    assert!(with(sealed, follows(9), follows(9)));
    assert!(with(sealed, follows(9), follows(8)), "two of three have it");
    assert!(!with(sealed, follows(8), follows(9)), "the next one has not");
    let serving = VbReport { role: VbRole::Active, ..sealed };
    assert!(!with(serving, follows(9), follows(9)), "more may come");
    assert!(!with(VbReport { term: 4, ..sealed }, follows(9), follows(9)), "it is not sealed for this");
    for second in [
        VbReport { following: false, ..follows(9) },
        VbReport { complete: false, ..follows(9) },
        VbReport { term: 4, ..follows(9) },
    ] {
        assert!(!with(sealed, second, follows(9)), "{second:?}");
    }
    // One that leaves is no member of the chain to be.
    let leaves = |third| hands_over(&[0, 2], &[1, 2], &[(0, sealed), (1, follows(9)), (2, third)]);
    assert!(leaves(follows(9)) && !leaves(follows(8)));
}

/// The first three nodes are about to be replaced by the first and the last two when one fails.
fn changing(failed: u16) -> Cluster {
    let plan = VbPlan { joint: Some(nodes(&[0, 1, 2])), ..VbPlan::settled(nodes(&[0, 3, 4]), 4) };
    let mut cluster = Cluster::of(5, plan);
    cluster.apply(&[fail_over(failed)]);
    cluster
}

/// The active copy comes back after a crash without what it had in memory, and one of the new ones is there.
fn crashed(mut cluster: Cluster) -> Cluster {
    let (bucket, vb, term) = (BucketUuid("u".into()), VbId(0), cluster.plan().term);
    cluster.apply(&[Command::ChangeVbs(vec![VbChange { bucket, vb, term, step: VbStep::StartElection }])]);
    let term = cluster.plan().term;
    let forgetful = VbReport { may_lack: true, term, ..whole(3) };
    cluster.with(&[(0, forgetful), (4, VbReport { term, ..whole(5) })])
}

/// What two nodes of the chain before have acknowledged may have come to none of the new ones.
#[test]
fn a_failover_while_a_chain_changes_has_those_asked_that_are_left_of_the_chain_before() {
    for (failed, left) in [(3, &[2, 1][..]), (1, &[2])] {
        let mut cluster = crashed(changing(failed));
        let term = cluster.plan().term;
        for (at, &node) in left.iter().enumerate() {
            assert_eq!(cluster.elected_within(20_000), None, "{node} may know more, {failed} has failed");
            assert!(cluster.awaited().contains(&node));
            cluster.copies.insert(node, VbReport { term, ..whole(9 - at as u64) });
        }
        assert_eq!(cluster.elected_within(20_000), Some(2));
    }
}

/// Durable writes, too, need a majority of those that are left of the chain before.
#[test]
fn those_that_are_left_of_the_chain_before_count_until_the_new_ones_have_caught_up() {
    let cluster = changing(1);
    assert_eq!(cluster.plan().joint, Some(nodes(&[0, 2])));
    assert!(
        cluster.meta.unsafe_without(&nodes(&[0])).is_some(),
        "only it and the failed one may have something"
    );
    let cluster = changing(3);
    assert_eq!(cluster.plan().joint, Some(nodes(&[0, 1, 2])));
    assert_eq!(cluster.meta.unsafe_without(&nodes(&[0])), None, "the two others have it");
    // Where all others of the chain before have failed, the active one counts alone, as ever.
    let mut cluster = changing(1);
    cluster.apply(&[fail_over(2)]);
    let plan = cluster.plan();
    assert_eq!((&plan.joint, &plan.gone), (&Some(nodes(&[0])), &nodes(&[1, 2])));
}

#[test]
fn a_node_that_is_failed_over_twice_is_named_once() {
    let mut cluster = Cluster::new(VbPlan { gone: nodes(&[0]), ..electing(&[1], &[0, 1]) });
    cluster.apply(&[fail_over(0)]);
    assert_eq!(cluster.plan().gone, nodes(&[0]));
}

/// There is room for two copies, and three nodes held one at one time or another.
#[test]
fn of_more_nodes_that_held_a_vbucket_than_there_are_to_be_copies_all_are_asked() {
    let mut cluster = Cluster::new(VbPlan::settled(vec![], 5)).with(&[(0, whole(3)), (1, whole(4))]);
    let bucket = cluster.meta.buckets.get_mut("b").unwrap();
    bucket.replicas = 1;
    bucket.former = [0, 1, 2].map(|id| (NodeId(id), vec![0])).into();
    cluster.apply(&[start()]);
    assert_eq!(cluster.elected_within(20_000), None);
    cluster.copies.insert(2, whole(9));
    assert_eq!(cluster.elected_within(20_000), Some(2));
    let target = &cluster.meta.buckets["b"].target.as_deref().unwrap()[0];
    assert!(target.len() == 2 && target.contains(&NodeId(2)), "{target:?}");
}

/// Whether the leader proposes within so long that what is under way ends.
fn ends_within(cluster: &mut Cluster, ms: u64) -> bool {
    let until = cluster.now_ms + ms;
    while cluster.now_ms < until {
        cluster.now_ms += 250;
        for &node in cluster.copies.keys() {
            cluster.orchestrator.report(&cluster.meta, cluster.report(node), cluster.now_ms);
        }
        let commands = cluster.orchestrator.step(&cluster.meta, cluster.now_ms);
        if commands.iter().any(|command| matches!(command, Command::FinishRebalance { .. })) {
            return true;
        }
    }
    false
}

/// A copy that is left may be killed at that moment, and its disk is what is left of it then.
#[test]
fn a_node_leaves_once_the_disks_that_are_left_have_what_was_acknowledged_in_memory() {
    let leaving = |level: u32| {
        let mut cluster = Cluster::new(VbPlan::settled(nodes(&[1, 2, 0]), 5));
        cluster.meta.level = level;
        let start = StartGracefulFailover { id: "g".into(), nodes: nodes(&[0]), now_ms: 0 };
        cluster.apply(&[Command::StartGracefulFailover(start)]);
        let follows = VbReport { following: true, ..whole(9) };
        cluster.with(&[(0, follows), (1, VbReport { role: VbRole::Active, ..whole(9) }), (2, follows)])
    };
    assert!(ends_within(&mut leaving(11), 10_000), "as the level before has it");
    let mut cluster = leaving(LEVEL);
    let mut say = |is_to_disk: bool, high: u64, persisted: [u64; 2]| {
        for (node, persisted) in [1, 2].into_iter().zip(persisted) {
            let copy = cluster.copies.get_mut(&node).unwrap();
            copy.to_disk = is_to_disk && node == 1;
            (copy.high_seqno, copy.persisted) = (Seqno(high), Seqno(persisted));
        }
        ends_within(&mut cluster, 10_000)
    };
    assert!(!say(false, 9, [9, 9]), "the active one acknowledges in memory");
    assert!(!say(true, 9, [0, 0]));
    assert!(!say(true, 12, [9, 8]));
    assert!(!say(true, 12, [8, 12]));
    assert!(say(true, 15, [9, 9]), "what came later is on disk when it is acknowledged");
}

/// Durable writes that are in progress would be handed to it, and could end only on that disk.
#[test]
fn no_active_role_goes_to_a_copy_whose_disk_takes_nothing() {
    for (persisted, moves) in [(0, false), (9, true)] {
        let mut cluster = Cluster::new(VbPlan::settled(nodes(&[0, 1]), 5));
        cluster.meta.level = LEVEL;
        let start = StartGracefulFailover { id: "g".into(), nodes: nodes(&[0]), now_ms: 0 };
        cluster.apply(&[Command::StartGracefulFailover(start)]);
        let active = VbReport { role: VbRole::Active, to_disk: true, ..whole(9) };
        let follows = VbReport { following: true, persisted: Seqno(persisted), ..whole(9) };
        cluster.copies.extend([(0, active), (1, follows)]);
        cluster.run(60_000);
        // No copy here is ever sealed, so a handover that began is given up again, with another term.
        let has_begun = cluster.plan().term > 5 || matches!(cluster.plan().phase, VbPhase::Handover { .. });
        assert_eq!(has_begun, moves, "{persisted}: {:?}", cluster.plan());
    }
}

/// One of two copies has left in good order, and nothing is heard of the other one yet. The metadata are at that level.
fn left_gracefully(level: u32) -> Cluster {
    let mut cluster = Cluster::new(VbPlan::settled(nodes(&[1, 0]), 4));
    cluster.meta.level = level;
    let id = "g".to_owned();
    let start = StartGracefulFailover { id: id.clone(), nodes: nodes(&[0]), now_ms: 0 };
    cluster.apply(&[Command::StartGracefulFailover(start), Command::FinishRebalance { id, now_ms: 0 }]);
    cluster
}

/// The copy that is left was opened after that disturbance; `now`: what it says of itself once it stands for election.
fn is_left_with(now: VbReport) -> Cluster {
    let mut cluster = left_gracefully(LEVEL);
    let unconfirmed = VbReport { role: VbRole::Dead, term: 0, unconfirmed: true, ..now };
    cluster.copies.insert(1, unconfirmed);
    cluster.run(10_000);
    assert!(
        matches!(cluster.plan().phase, VbPhase::Electing { .. }),
        "others may have more: {:?}",
        cluster.plan()
    );
    let term = cluster.plan().term;
    cluster.with(&[(1, VbReport { term, ..now })])
}

#[test]
fn what_a_node_holds_that_has_just_left_is_not_replaced_by_nothing() {
    let mut cluster = is_left_with(VbReport { may_lack: true, ..whole(0) });
    assert_eq!(cluster.elected_within(20_000), None);
    assert_eq!(cluster.plan().chain, [], "nobody has it");
    cluster.copies.clear();
    cluster.apply(&recover(0));
    cluster.copies.extend([(0, whole(9)), (1, VbReport { may_lack: true, ..whole(0) })]);
    assert_eq!(cluster.elected_within(20_000), Some(0));
}

/// A copy that was never written looks after a crash like one that has lost everything. The node that has left tells which it is.
#[test]
fn of_a_vbucket_that_was_never_written_nothing_is_given_up() {
    for (held, elected) in [(0, Some(1)), (9, None)] {
        let mut cluster = is_left_with(VbReport { may_lack: true, ..whole(0) });
        let term = cluster.plan().term;
        cluster.copies.insert(0, VbReport { term, ..whole(held) });
        assert_eq!(cluster.elected_within(20_000), elected, "the node that has left holds {held}");
    }
}

/// Nor is it waited for where the copy that is left has something: that may be more by then.
#[test]
fn a_copy_that_has_something_takes_the_place_of_one_that_has_just_left() {
    let killed = VbReport { may_lack: true, ..whole(3) };
    let empty_on_disk = VbReport { vb_uuid: VbUuid(0).of_generation(4), ..whole(0) };
    for left in [whole(0), whole(3), killed, VbReport { may_lack: true, ..empty_on_disk }] {
        assert_eq!(is_left_with(left).elected_within(20_000), Some(1), "{left:?}");
    }
}

#[test]
fn a_node_that_was_recovered_from_nothing_holds_nothing_that_is_kept() {
    let mut cluster = is_left_with(VbReport { may_lack: true, ..whole(0) });
    cluster.apply(&[Command::SetRecovery { node: NodeId(0), recovery: Some(Recovery::Full) }]);
    assert_eq!(cluster.elected_within(20_000), Some(1));
}

#[test]
fn a_node_that_has_left_is_kept_in_mind_until_the_others_are_known_to_hold_what_it_holds() {
    let mut cluster = left_gracefully(LEVEL);
    assert!(!cluster.plan().is_alone());
    let term = cluster.plan().term;
    let active = VbReport { role: VbRole::Active, term, ..whole(9) };
    cluster.copies.insert(1, active);
    cluster.run(5_000);
    assert_eq!(cluster.plan().kept, nodes(&[0]), "it is not on disk");
    cluster.copies.insert(1, VbReport { persisted: Seqno(9), ..active });
    cluster.run(1_000);
    assert!(cluster.plan().is_alone() && cluster.plan().is_quiet(), "{:?}", cluster.plan());
    assert_eq!(left_gracefully(9).plan(), &VbPlan::settled(nodes(&[1]), term), "as the level before has it");
}

/// A node has left gracefully, and the copy that is left cannot write to its disk. It goes on to serve, and the plan does not move.
fn is_left_with_a_bad_disk() -> Cluster {
    let mut cluster = left_gracefully(LEVEL);
    let term = cluster.plan().term;
    cluster.copies.insert(1, VbReport { role: VbRole::Active, term, ..whole(9) });
    cluster.run(5_000);
    cluster.apply(&recover(0));
    cluster.copies.insert(0, VbReport { term, role: VbRole::Dead, ..whole(7) });
    cluster.run(60_000);
    assert_eq!((&cluster.plan().chain, &cluster.plan().kept), (&nodes(&[1]), &nodes(&[0])));
    assert!(cluster.meta.rebalance.is_some(), "it waits");
    cluster
}

#[test]
fn a_rebalance_waits_for_the_disk_of_a_copy_that_is_left_and_goes_on_with_it() {
    let mut cluster = is_left_with_a_bad_disk();
    cluster.copies.insert(2, VbReport { role: VbRole::Dead, ..whole(0) });
    cluster.copies.get_mut(&1).unwrap().persisted = Seqno(9);
    cluster.run(1_000);
    assert_eq!(cluster.plan().kept, []);
    assert!(cluster.plan().building.contains(&NodeId(0)), "{:?}", cluster.plan());
}

/// What the copy that is left has acknowledged since is given up with it, so that has to be asked for.
#[test]
fn an_operator_can_go_on_with_a_node_that_has_left_where_the_disk_of_the_other_one_fails() {
    let mut cluster = is_left_with_a_bad_disk();
    assert!(cluster.meta.apply(&fail_over(1)).is_err(), "it has the only copy that counts");
    let nodes = nodes(&[1]);
    cluster.apply(&[Command::FailOver(FailOver { nodes, allow_unsafe: true, auto: false })]);
    assert_eq!(cluster.plan().chain, []);
    cluster.copies.remove(&1);
    if cluster.meta.rebalance.is_none() {
        cluster.apply(&[start()]);
    }
    assert_eq!(cluster.elected_within(20_000), Some(0));
}

/// Somebody stops the rebalance that waits for the disk, and that copy is lost afterwards.
#[test]
fn what_a_node_holds_that_has_left_outlives_a_rebalance_that_is_stopped() {
    let mut cluster = is_left_with_a_bad_disk();
    cluster.apply(&[Command::StopRebalance { id: None, now_ms: 0 }]);
    let nodes = nodes(&[1]);
    cluster.apply(&[Command::FailOver(FailOver { nodes, allow_unsafe: true, auto: false })]);
    cluster.copies.remove(&1);
    cluster.copies.insert(2, whole(0));
    cluster.apply(&[start()]);
    assert_eq!(cluster.elected_within(20_000), Some(0));
}

/// Once the disk of the other copy has it all, nobody asks for it any more.
#[test]
fn what_a_node_holds_that_has_left_is_forgotten_once_others_hold_it() {
    let mut cluster = is_left_with_a_bad_disk();
    cluster.apply(&[Command::StopRebalance { id: None, now_ms: 0 }]);
    assert!(cluster.meta.buckets["b"].former.contains_key(&NodeId(0)));
    cluster.copies.get_mut(&1).unwrap().persisted = Seqno(9);
    cluster.run(1_000);
    assert_eq!(cluster.plan().kept, []);
    assert!(!cluster.meta.buckets["b"].former.contains_key(&NodeId(0)));
}
