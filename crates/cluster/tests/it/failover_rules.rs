//! When nodes are failed over without anybody asking, and when not: one rule each.

use base::{BucketUuid, NodeId, Seqno, VbId, VbRole, VbUuid};
use settee_cluster::{
    BucketParams, BucketReport, Command, FailOver, Membership, Metadata, NodeInfo, NodeReport, Orchestrator,
    Ports, Recovery, StartRebalance, VbPhase, VbPlan, VbReport,
};

const TIMEOUT_MS: u64 = 5_000;

/// A cluster that reports to a leader.
struct Cluster {
    meta: Metadata,
    orchestrator: Orchestrator,
    now_ms: u64,
    /// A copy that says that it is not whole.
    part: Option<(NodeId, VbId)>,
    /// An active copy that was opened after an unclean stop.
    crashed: Option<(NodeId, VbId)>,
    /// A copy that has lost everything, on a node that was started again and has not carried out its plan.
    lost: Option<(NodeId, VbId)>,
    /// Whether the copies that are left after a failover say that they have what the new active has.
    follow: bool,
    /// A node that reports, but has not carried out anything since that version of the metadata; whether it says that it stands still.
    stuck: Option<(u16, u64, bool)>,
    /// A node that was started again with its clock set back.
    set_back: Option<u16>,
}

impl Cluster {
    /// Nodes in the given server groups, a bucket with so many replicas, automatic failover on.
    fn new(groups: &[&str], replicas: u8) -> Self {
        let meta = Metadata::new("c".repeat(32), 100_000);
        let orchestrator = Orchestrator::new();
        let mut cluster = Self {
            meta,
            orchestrator,
            now_ms: 1_000_000,
            part: None,
            crashed: None,
            lost: None,
            follow: false,
            stuck: None,
            set_back: None,
        };
        for group in ["a", "b", "c"] {
            cluster.apply(&Command::CreateServerGroup { uuid: group.into(), name: group.into() });
        }
        for (id, group) in groups.iter().enumerate() {
            let ports = Ports { mgmt: 8091, kv: 11210, ..Ports::default() };
            let mut node = NodeInfo::first(format!("{id:032x}"), format!("10.0.0.{id}"), ports);
            (node.id, node.group) = (NodeId(id as u16), (*group).into());
            cluster.apply(&if id == 0 { Command::SetNode(node) } else { Command::AddNode(node) });
        }
        let keep = cluster.meta.nodes.iter().map(|node| node.id).collect();
        let id = "r".to_owned();
        cluster.apply(&Command::StartRebalance(StartRebalance {
            id: id.clone(),
            keep,
            eject: vec![],
            now_ms: 0,
        }));
        cluster.apply(&Command::FinishRebalance { id, now_ms: 0 });
        let params = BucketParams {
            ram_quota_mb: Some(100),
            replicas: Some(replicas),
            vbuckets: Some(64),
            ..BucketParams::default()
        };
        cluster.apply(&Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params });
        cluster.allow(1, false);
        cluster
    }

    fn apply(&mut self, command: &Command) {
        self.meta = self.meta.apply(command).unwrap_or_else(|error| panic!("{command:?}: {error}")).0;
    }

    fn allow(&mut self, max_count: u32, whole_groups: bool) {
        let timeout_secs = (TIMEOUT_MS / 1000) as u32;
        self.apply(&Command::SetAutoFailover { enabled: true, timeout_secs, max_count, whole_groups });
    }

    /// For so long these nodes report; what the leader wants is done. Nodes that were failed over by that.
    fn run(&mut self, ms: u64, reporting: &[u16]) -> Vec<u16> {
        let until = self.now_ms + ms;
        while self.now_ms < until {
            self.now_ms += 250;
            for &node in reporting {
                self.orchestrator.report(&self.meta, self.report(node), self.now_ms);
            }
            for command in self.orchestrator.step(&self.meta, self.now_ms) {
                self.apply(&command);
            }
        }
        let failed = self.meta.nodes.iter().filter(|node| node.membership == Membership::InactiveFailed);
        failed.map(|node| node.id.get()).collect()
    }

    fn is_electing(&self) -> bool {
        self.meta.buckets["b"].vbs.iter().any(|plan| matches!(plan.phase, VbPhase::Electing { .. }))
    }

    /// Whether nothing is left to be done for any copy.
    fn is_quiet(&self) -> bool {
        self.meta.buckets["b"].vbs.iter().all(|plan| plan.phase.is_settled() && plan.joint.is_none())
    }

    /// Why these nodes are not failed over automatically by any leader.
    fn refusal(&self, nodes: &[u16]) -> String {
        let nodes = nodes.iter().copied().map(NodeId).collect();
        let auto = Command::FailOver(FailOver { nodes, allow_unsafe: false, auto: true });
        self.meta.apply(&auto).unwrap_err().to_string()
    }

    fn report(&self, node: u16) -> NodeReport {
        // Whatever is elected anew, what follows a winner, and what is not whole.
        let plans = self.meta.buckets["b"].vbs.iter().enumerate().map(|(at, plan)| (VbId(at as u16), plan));
        let is_part = |vb| self.part == Some((NodeId(node), vb));
        let is_lost = |vb| self.lost == Some((NodeId(node), vb));
        let stands = |plan: &VbPlan| matches!(&plan.phase, VbPhase::Electing { among } if among.contains(&NodeId(node)));
        let is_unconfirmed = |vb, plan: &VbPlan| self.crashed == Some((NodeId(node), vb)) && !stands(plan);
        let place = |plan: &VbPlan| plan.chain.iter().position(|&other| other == NodeId(node));
        let follows = |plan: &VbPlan| self.follow && plan.phase.is_settled() && place(plan).is_some();
        let says = |(vb, plan): &(VbId, &VbPlan)| {
            is_part(*vb) || is_lost(*vb) || is_unconfirmed(*vb, plan) || stands(plan) || follows(plan)
        };
        let role = |vb, plan: &VbPlan| match (is_unconfirmed(vb, plan), follows(plan).then(|| place(plan))) {
            _ if is_lost(vb) => VbRole::Dead,
            (true, _) => VbRole::Dead,
            (false, Some(Some(0))) => VbRole::Active,
            (false, _) => VbRole::Replica,
        };
        let vbs = plans.filter(says).map(|(vb, plan)| VbReport {
            vb,
            term: if is_lost(vb) { 0 } else { plan.term },
            role: role(vb, plan),
            unconfirmed: is_unconfirmed(vb, plan),
            vb_uuid: VbUuid(0),
            high_seqno: Seqno(0),
            may_lack: is_lost(vb),
            to_disk: false,
            held: Seqno(0),
            persisted: Seqno(0),
            synced: None,
            complete: !is_part(vb),
            following: follows(plan),
            indexing: false,
        });
        let bucket = BucketReport {
            uuid: self.meta.buckets["b"].uuid.clone(),
            ready: true,
            vbs: vbs.collect(),
            items: 0,
            bytes: 0,
            weights: Vec::new(),
            cut_off: Default::default(),
            pressure: Default::default(),
            latency: None,
        };
        let stuck = self.stuck.filter(|(id, ..)| *id == node);
        let (boot, started) = if self.set_back == Some(node) { (2, 50) } else { (1, 100) };
        NodeReport {
            boot,
            started,
            stands_still: stuck.is_some_and(|(.., says_so)| says_so),
            buckets: vec![bucket],
            ..NodeReport::bare(
                NodeId(node),
                format!("{node:032x}"),
                stuck.map_or(self.meta.version, |(_, version, _)| version),
            )
        }
    }
}

#[test]
fn a_node_is_failed_over_once_it_has_been_silent_for_the_timeout() {
    let mut cluster = Cluster::new(&["a", "a", "a"], 1);
    assert!(cluster.run(10_000, &[0, 1, 2]).is_empty());
    assert!(cluster.meta.auto_failover.armed);
    assert!(cluster.run(TIMEOUT_MS - 500, &[0, 1]).is_empty());
    assert_eq!(cluster.run(1_000, &[0, 1]), [2]);
    assert_eq!(cluster.meta.auto_failover.count, 1);
}

#[test]
fn nobody_is_failed_over_who_may_not_know_of_leases() {
    let mut cluster = Cluster::new(&["a", "a", "a"], 1);
    assert!(cluster.run(60_000, &[0, 1]).is_empty());
    assert!(!cluster.meta.auto_failover.armed);
}

#[test]
fn a_new_leader_counts_silence_from_its_own_beginning() {
    let mut cluster = Cluster::new(&["a", "a", "a"], 1);
    cluster.run(1_000, &[0, 1, 2]);
    cluster.orchestrator = Orchestrator::new();
    assert!(cluster.run(TIMEOUT_MS, &[0, 1]).is_empty());
    assert_eq!(cluster.run(TIMEOUT_MS, &[0, 1]), [2]);
}

/// A node that joins may still report as what it was in a cluster of its own: number 0, for instance.
#[test]
fn a_stranger_that_reports_under_a_members_number_has_nobody_failed_over() {
    let mut cluster = Cluster::new(&["a", "a", "a"], 1);
    // The leader has led for longer than anybody may be silent.
    cluster.run(TIMEOUT_MS * 3, &[0, 1, 2]);
    let stranger = NodeReport { uuid: "before".into(), ..cluster.report(0) };
    assert!(!cluster.orchestrator.report(&cluster.meta, stranger, cluster.now_ms));
    assert_eq!(cluster.orchestrator.step(&cluster.meta, cluster.now_ms), []);
    assert!(cluster.run(TIMEOUT_MS, &[0, 1, 2]).is_empty());
}

/// So many nodes that after each loss enough whole copies and a majority are left for the next one: the count alone says no.
#[test]
fn it_happens_as_often_as_it_may_and_again_after_a_reset() {
    for max_count in [1, 2] {
        let mut cluster = Cluster::new(&["a"; 7], 3);
        cluster.allow(max_count, false);
        cluster.follow = true;
        let mut left: Vec<u16> = (0..7).collect();
        cluster.run(1_000, &left);
        let mut failed = Vec::new();
        for _ in 0..max_count {
            failed.insert(0, left.pop().unwrap());
            assert_eq!(cluster.run(10_000, &left), failed, "at most {max_count}");
            assert!(cluster.is_quiet(), "the new active has the copies that count");
        }
        let next = left.pop().unwrap();
        assert_eq!(cluster.run(60_000, &left), failed, "at most {max_count}");
        assert_eq!(cluster.refusal(&[next]), "Automatic failover has happened as often as it may.");

        cluster.apply(&Command::ResetAutoFailover);
        failed.insert(0, next);
        assert_eq!(cluster.run(1_000, &left), failed, "at most {max_count}, and nobody has looked since");
        assert_eq!(cluster.meta.auto_failover.count, 1);
    }
}

#[test]
fn nodes_that_are_lost_at_once_are_failed_over_together_if_they_are_not_too_many() {
    let mut cluster = Cluster::new(&["a"; 7], 3);
    cluster.run(1_000, &[0, 1, 2, 3, 4, 5, 6]);
    assert!(cluster.run(60_000, &[0, 1, 2, 3, 4]).is_empty(), "two are more than one");
    assert_eq!(cluster.refusal(&[5, 6]), "Automatic failover has happened as often as it may.");
    cluster.allow(2, false);
    assert_eq!(cluster.run(1_000, &[0, 1, 2, 3, 4]), [5, 6]);
    assert_eq!(cluster.meta.auto_failover.count, 2);
}

/// One of three copies is lost while the other two, after a failover, have not been seen to have the same.
#[test]
fn a_node_is_waited_for_while_the_other_copies_have_not_been_compared() {
    let mut cluster = Cluster::new(&["a", "a", "a", "a", "a"], 2);
    cluster.allow(2, false);
    cluster.run(1_000, &[0, 1, 2, 3, 4]);
    assert_eq!(cluster.run(10_000, &[0, 1, 2, 3]), [4]);
    assert_eq!(cluster.run(30_000, &[0, 1, 2]), [4]);
    assert_eq!(cluster.refusal(&[3]), "Not enough copies of bucket \"b\" would be left.");
}

#[test]
fn a_minority_fails_nobody_over() {
    let mut cluster = Cluster::new(&["a", "a", "a", "a"], 3);
    cluster.allow(3, false);
    cluster.run(1_000, &[0, 1, 2, 3]);
    assert!(cluster.run(60_000, &[0, 1]).is_empty(), "half is no majority");
}

#[test]
fn of_two_nodes_none_is_failed_over() {
    let mut cluster = Cluster::new(&["a", "a"], 1);
    cluster.run(1_000, &[0, 1]);
    assert_eq!(cluster.meta.lease_ms(), None);
    assert!(cluster.run(60_000, &[0]).is_empty());
}

#[test]
fn a_node_with_the_only_copy_is_waited_for() {
    let mut cluster = Cluster::new(&["a", "a", "a"], 0);
    cluster.run(1_000, &[0, 1, 2]);
    assert!(cluster.run(60_000, &[0, 1]).is_empty());
    let auto = FailOver { nodes: vec![NodeId(2)], allow_unsafe: false, auto: true };
    assert!(cluster.meta.apply(&Command::FailOver(auto)).is_err(), "the command is refused as well");
}

/// Until a rebalance they are there, and a majority of them has what was acknowledged.
#[test]
fn copies_beyond_those_that_are_asked_for_count() {
    let mut cluster = Cluster::new(&["a", "a", "a"], 1);
    let params = BucketParams { replicas: Some(0), ..BucketParams::default() };
    cluster.apply(&Command::UpdateBucket { name: "b".into(), params });
    cluster.run(1_000, &[0, 1, 2]);
    assert_eq!(cluster.run(10_000, &[0, 1]), [2]);
}

#[test]
fn a_node_is_waited_for_while_the_other_copy_is_a_part_only() {
    let mut cluster = Cluster::new(&["a", "a", "a"], 1);
    cluster.run(1_000, &[0, 1, 2]);
    let plans = &cluster.meta.buckets["b"].vbs;
    let vb = plans.iter().position(|plan| plan.chain == [NodeId(2), NodeId(0)]).unwrap();
    cluster.part = Some((NodeId(0), VbId(vb as u16)));
    assert!(cluster.run(60_000, &[0, 1]).is_empty());
    cluster.part = None;
    assert_eq!(cluster.run(1_000, &[0, 1]), [2]);
}

/// The node was away as well, and was started again with nothing left of the copy. It says so before it acts by the plan's term.
#[test]
fn a_node_is_waited_for_while_the_other_copy_has_lost_everything() {
    let mut cluster = Cluster::new(&["a", "a", "a"], 1);
    cluster.run(1_000, &[0, 1, 2]);
    let plans = cluster.meta.buckets["b"].vbs.clone();
    for place in [0, 1] {
        let vb = plans.iter().position(|plan| plan.chain[place] == NodeId(2)).unwrap();
        cluster.lost = Some((plans[vb].chain[1 - place], VbId(vb as u16)));
        assert!(cluster.run(60_000, &[0, 1]).is_empty(), "{:?}", plans[vb].chain);
    }
    cluster.lost = None;
    assert_eq!(cluster.run(1_000, &[0, 1]), [2]);
}

#[test]
fn failing_a_node_over_again_changes_nothing_where_it_may_be_unsafe() {
    let mut cluster = Cluster::new(&["a", "a"], 1);
    let lost =
        |allow_unsafe| Command::FailOver(FailOver { nodes: vec![NodeId(1)], allow_unsafe, auto: false });
    cluster.apply(&lost(true));
    let before = cluster.meta.clone();
    cluster.apply(&lost(true));
    assert_eq!((before.nodes, before.buckets), (cluster.meta.nodes.clone(), cluster.meta.buckets.clone()));
    assert!(cluster.meta.apply(&lost(false)).is_err());
}

#[test]
fn a_whole_server_group_is_failed_over_only_where_that_is_wanted() {
    let groups = ["a", "a", "b", "b", "c", "c"];
    for wanted in [false, true] {
        let mut cluster = Cluster::new(&groups, 1);
        cluster.allow(1, wanted);
        cluster.run(1_000, &[0, 1, 2, 3, 4, 5]);
        let failed = cluster.run(10_000, &[0, 1, 2, 3]);
        assert_eq!(failed, if wanted { vec![4, 5] } else { vec![] });
        // All of a group are one failover.
        assert_eq!(cluster.meta.auto_failover.count, u32::from(wanted));
    }
}

#[test]
fn a_server_group_whose_nodes_fall_silent_one_after_the_other_is_failed_over_as_one() {
    for (apart_ms, expected) in [(250, vec![2, 3]), (750, vec![2, 3]), (1_500, vec![2])] {
        let mut cluster = Cluster::new(&["a", "a", "b", "b", "c", "c"], 1);
        cluster.allow(1, true);
        cluster.run(1_000, &[0, 1, 2, 3, 4, 5]);
        cluster.run(apart_ms, &[0, 1, 3, 4, 5]);
        let failed = cluster.run(TIMEOUT_MS + 1_000, &[0, 1, 4, 5]);
        assert_eq!(failed, expected, "{apart_ms} ms after each other; the count is used up by the first");
    }
}

#[test]
fn a_node_that_reports_holds_up_nobodys_failover_however_short_the_timeout() {
    let mut cluster = Cluster::new(&["a"; 4], 1);
    cluster.apply(&Command::SetAutoFailover {
        enabled: true,
        timeout_secs: 1,
        max_count: 1,
        whole_groups: false,
    });
    cluster.run(1_000, &[0, 1, 2, 3]);
    assert_eq!(cluster.run(1_500, &[0, 1, 3]), [2]);
}

/// For a while nothing that it says counts: it may have been sent by an earlier life of the node. But the node is there.
#[test]
fn a_node_whose_clock_was_set_back_is_not_failed_over_while_it_reports() {
    let mut cluster = Cluster::new(&["a"; 4], 1);
    let (enabled, timeout_secs, max_count, whole_groups) = (true, 1, 1, false);
    cluster.apply(&Command::SetAutoFailover { enabled, timeout_secs, max_count, whole_groups });
    cluster.run(1_000, &[0, 1, 2, 3]);
    cluster.set_back = Some(2);
    assert!(cluster.run(10_000, &[0, 1, 2, 3]).is_empty());
    assert_eq!(cluster.run(1_500, &[0, 1, 3]), [2]);
}

#[test]
fn leases_end_before_anybody_is_failed_over() {
    let cluster = Cluster::new(&["a", "a", "a"], 1);
    assert!(cluster.meta.lease_ms().is_some_and(|lease_ms| lease_ms < TIMEOUT_MS));
}

#[test]
fn a_node_that_was_failed_over_gets_no_lease_before_it_knows() {
    let mut cluster = Cluster::new(&["a", "a", "a", "a"], 1);
    cluster.run(1_000, &[0, 1, 2, 3]);
    let late = cluster.report(3);
    assert!(cluster.meta.lease_for(&late).is_some());
    cluster.apply(&Command::FailOver(FailOver { nodes: vec![NodeId(3)], allow_unsafe: false, auto: false }));
    assert_eq!(cluster.meta.lease_for(&late), None);
    assert_eq!(cluster.meta.lease_for(&cluster.report(3)), None, "it serves nothing, whatever it knows");
    // It counts again, and what it was told last is from before.
    cluster.run(10_000, &[0, 1, 2]);
    cluster.apply(&Command::SetRecovery { node: NodeId(3), recovery: Some(Recovery::Delta) });
    let keep = cluster.meta.nodes.iter().map(|node| node.id).collect();
    let start = StartRebalance { id: "again".into(), keep, eject: vec![], now_ms: 0 };
    cluster.apply(&Command::StartRebalance(start));
    assert_eq!(cluster.meta.lease_for(&late), None);
    assert!(cluster.meta.lease_for(&cluster.report(3)).is_some());
    assert!(cluster.meta.lease_for(&NodeReport { uuid: "another".into(), ..cluster.report(3) }).is_none());
}

/// Two nodes are left, which need no leases; the one that was failed over may still have one, also when it has left.
#[test]
fn a_node_failed_over_by_hand_is_waited_for_as_long_as_it_may_serve() {
    for leaves in [false, true] {
        let mut cluster = Cluster::new(&["a", "a", "a"], 1);
        cluster.run(1_000, &[0, 1, 2]);
        let lease_ms = cluster.meta.lease_ms().unwrap();
        let nodes = vec![NodeId(2)];
        cluster.apply(&Command::FailOver(FailOver { nodes, allow_unsafe: false, auto: false }));
        assert_eq!(cluster.meta.lease_ms(), None);
        if leaves {
            cluster.apply(&Command::RemoveNode { node: NodeId(2) });
        }
        cluster.run(lease_ms - 250, &[0, 1]);
        assert!(cluster.is_electing());
        cluster.run(500, &[0, 1]);
        assert!(!cluster.is_electing());
        assert_eq!(cluster.meta.departed, [], "nobody needs to be remembered any more");
    }
}

#[test]
fn a_new_leader_waits_for_nodes_that_have_left_as_well() {
    let mut cluster = Cluster::new(&["a", "a", "a"], 1);
    cluster.run(1_000, &[0, 1, 2]);
    let lease_ms = cluster.meta.lease_ms().unwrap();
    let nodes = vec![NodeId(2)];
    cluster.apply(&Command::FailOver(FailOver { nodes, allow_unsafe: false, auto: false }));
    cluster.apply(&Command::RemoveNode { node: NodeId(2) });
    cluster.orchestrator = Orchestrator::new();
    cluster.run(lease_ms, &[0, 1]);
    assert!(cluster.is_electing(), "the leader before may have let it serve until a moment ago");
    cluster.run(lease_ms, &[0, 1]);
    assert!(!cluster.is_electing());
}

/// A node that was failed over serves by its lease what was in the bucket before.
#[test]
fn a_flush_ends_no_election_before_the_failed_node_has_stopped() {
    let mut cluster = Cluster::new(&["a", "a", "a"], 1);
    cluster.run(1_000, &[0, 1, 2]);
    let lease_ms = cluster.meta.lease_ms().unwrap();
    cluster.fail_over(2);
    assert!(cluster.is_electing());
    cluster.apply(&Command::FlushBucket { name: "b".into(), uuid: BucketUuid("another".into()) });
    cluster.run(lease_ms - 500, &[0, 1]);
    assert!(cluster.is_electing());
    cluster.run(1_000, &[0, 1]);
    assert!(
        !cluster.is_electing() && cluster.meta.buckets["b"].vbs.iter().all(|plan| plan.active().is_some())
    );
}

/// What the node that was failed over and the third one had acknowledged, the active one may never have had on disk.
#[test]
fn a_copy_that_counted_alone_and_crashed_is_not_elected_before_others_are_asked() {
    let mut cluster = Cluster::new(&["a", "a", "a", "a"], 2);
    cluster.run(1_000, &[0, 1, 2, 3]);
    let nodes = vec![NodeId(3)];
    cluster.apply(&Command::FailOver(FailOver { nodes, allow_unsafe: false, auto: false }));
    let plan = |cluster: &Cluster, vb: usize| cluster.meta.buckets["b"].vbs[vb].clone();
    let vb =
        (0..64).find(|vb| plan(&cluster, *vb).gone == [NodeId(3)] && plan(&cluster, *vb).phase.is_settled());
    let vb = vb.unwrap();
    let [active, third] = plan(&cluster, vb).chain[..] else { panic!("{:?}", plan(&cluster, vb)) };
    cluster.crashed = Some((active, VbId(vb as u16)));
    let others: Vec<u16> = (0..3).filter(|node| *node != third.get()).collect();
    assert_eq!(cluster.run(60_000, &others), [3], "nor is the third one failed over by itself");
    assert!(matches!(plan(&cluster, vb).phase, VbPhase::Electing { .. }));
    cluster.run(1_000, &[0, 1, 2]);
    assert!(plan(&cluster, vb).phase.is_settled());
}

impl Cluster {
    fn fail_over(&mut self, node: u16) {
        let nodes = vec![NodeId(node)];
        self.apply(&Command::FailOver(FailOver { nodes, allow_unsafe: false, auto: false }));
    }

    fn set_timeout(&mut self, enabled: bool, timeout_secs: u32) {
        let (max_count, whole_groups) = (1, false);
        self.apply(&Command::SetAutoFailover { enabled, timeout_secs, max_count, whole_groups });
    }
}

/// It goes on to report, so its silence says nothing, and it has no lease that could run out.
#[test]
fn it_is_said_which_node_holds_up_elections_because_it_may_serve_yet() {
    let mut cluster = Cluster::new(&["a"; 4], 1);
    cluster.run(1_000, &[0, 1, 2, 3]);
    cluster.set_timeout(false, 5);
    cluster.run(20_000, &[0, 1, 2, 3]);
    cluster.stuck = Some((3, cluster.meta.version, false));
    cluster.fail_over(3);
    let unyielded = |cluster: &Cluster| -> Vec<u16> {
        let nodes = cluster.orchestrator.unyielded(&cluster.meta, cluster.now_ms);
        nodes.keys().map(|(_, node)| node.get()).collect()
    };
    cluster.run(5_000, &[0, 1, 2, 3]);
    assert!(cluster.is_electing() && unyielded(&cluster).is_empty(), "it may be about to say that it knows");
    cluster.run(10_000, &[0, 1, 2, 3]);
    assert!(cluster.is_electing());
    assert_eq!(unyielded(&cluster), [3]);
    cluster.run(2_000, &[0, 1, 2]);
    assert!(!cluster.is_electing() && unyielded(&cluster).is_empty());
}

/// A node that is cut off has not heard that leases are shorter, or that there are none any more.
#[test]
fn a_lease_of_earlier_settings_is_waited_for() {
    for (enabled, timeout_secs) in [(false, 5), (true, 1)] {
        let mut cluster = Cluster::new(&["a"; 4], 1);
        cluster.run(1_000, &[0, 1, 2, 3]);
        let lease_ms = cluster.meta.lease_ms().unwrap();
        cluster.set_timeout(enabled, timeout_secs);
        // Said twice, it is still not known to the node that is cut off.
        cluster.set_timeout(enabled, timeout_secs);
        cluster.fail_over(3);
        cluster.run(lease_ms - 500, &[0, 1, 2]);
        assert!(cluster.is_electing(), "{enabled}: it may be serving still");
        cluster.run(1_000, &[0, 1, 2]);
        assert!(!cluster.is_electing(), "{enabled}");
    }
}

/// A node is cut off, and failed over twice. In between automatic failover is switched off, which all others know.
#[test]
fn a_lease_from_before_an_earlier_failover_is_waited_for() {
    let mut cluster = Cluster::new(&["a"; 4], 1);
    cluster.run(1_000, &[0, 1, 2, 3]);
    let lease_ms = cluster.meta.lease_ms().unwrap();
    cluster.fail_over(3);
    cluster.set_timeout(false, 5);
    cluster.run(1_000, &[0, 1, 2]);
    assert_eq!(cluster.meta.auto_failover.earlier_lease_ms, None);
    cluster.apply(&Command::SetRecovery { node: NodeId(3), recovery: Some(Recovery::Delta) });
    let keep = cluster.meta.nodes.iter().map(|node| node.id).collect();
    let start = StartRebalance { id: "again".into(), keep, eject: vec![], now_ms: 0 };
    cluster.apply(&Command::StartRebalance(start));
    cluster.fail_over(3);
    cluster.run(lease_ms - 1_500, &[0, 1, 2]);
    assert!(cluster.is_electing(), "it may be serving still");
    cluster.run(1_000, &[0, 1, 2]);
    assert!(!cluster.is_electing());
}

#[test]
fn an_earlier_lease_is_forgotten_once_everybody_knows_better() {
    for (enabled, timeout_secs) in [(false, 5), (true, 1)] {
        let mut cluster = Cluster::new(&["a"; 4], 1);
        cluster.run(1_000, &[0, 1, 2, 3]);
        cluster.set_timeout(enabled, timeout_secs);
        assert_eq!(cluster.meta.auto_failover.earlier_lease_ms, Some(3_500));
        cluster.run(1_000, &[0, 1, 2, 3]);
        assert_eq!(cluster.meta.auto_failover.earlier_lease_ms, None);
        assert_eq!(cluster.meta.auto_failover.armed, enabled);
        cluster.fail_over(3);
        cluster.run(1_500, &[0, 1, 2]);
        assert!(!cluster.is_electing());
    }
}

#[test]
fn a_timeout_that_is_shortened_while_a_node_is_down_counts_for_it_as_well() {
    let mut cluster = Cluster::new(&["a"; 4], 1);
    cluster.set_timeout(true, 60);
    cluster.run(1_000, &[0, 1, 2, 3]);
    assert!(cluster.run(10_000, &[0, 1, 2]).is_empty());
    cluster.set_timeout(true, 5);
    assert_eq!(cluster.run(2_000, &[0, 1, 2]), [3]);
}

#[test]
fn a_node_that_hangs_when_a_rebalance_is_started_is_failed_over_all_the_same() {
    let mut cluster = Cluster::new(&["a"; 4], 1);
    cluster.run(1_000, &[0, 1, 2, 3]);
    let keep = cluster.meta.nodes.iter().map(|node| node.id).collect();
    let start = StartRebalance { id: "again".into(), keep, eject: vec![], now_ms: 0 };
    cluster.apply(&Command::StartRebalance(start));
    assert_eq!(cluster.run(TIMEOUT_MS + 500, &[0, 1, 2]), [3]);
}

/// The others have been heard of for long, and automatic failover goes on during the rebalance that takes the new node in.
#[test]
fn a_node_that_has_just_joined_has_the_whole_timeout_to_report() {
    let mut cluster = Cluster::new(&["a"; 4], 1);
    cluster.run(10 * TIMEOUT_MS, &[0, 1, 2, 3]);
    let ports = Ports { mgmt: 8091, kv: 11210, ..Ports::default() };
    let mut node = NodeInfo::first(format!("{:032x}", 4), "10.0.0.4".into(), ports);
    (node.id, node.group, node.membership) = (NodeId(4), "a".into(), Membership::InactiveAdded);
    cluster.apply(&Command::AddNode(node));
    let keep = cluster.meta.nodes.iter().map(|node| node.id).collect();
    let start = StartRebalance { id: "in".into(), keep, eject: vec![], now_ms: 0 };
    cluster.apply(&Command::StartRebalance(start));
    assert!(cluster.run(TIMEOUT_MS - 500, &[0, 1, 2, 3]).is_empty(), "it has not had the time to report");
    assert_eq!(cluster.run(2_000, &[0, 1, 2, 3]), [4], "by then it should have");
}

/// It goes on to report, and acts by nothing new: its last lease is what it can serve by.
#[test]
fn a_node_that_cannot_act_by_its_failover_is_waited_for_as_long_as_its_lease_lasts() {
    let mut cluster = Cluster::new(&["a"; 4], 1);
    cluster.run(1_000, &[0, 1, 2, 3]);
    let lease_ms = cluster.meta.lease_ms().unwrap();
    cluster.stuck = Some((3, cluster.meta.version, false));
    cluster.fail_over(3);
    cluster.run(lease_ms - 500, &[0, 1, 2, 3]);
    assert!(cluster.is_electing());
    cluster.run(1_000, &[0, 1, 2, 3]);
    assert!(!cluster.is_electing());
}

#[test]
fn a_node_that_says_that_it_stands_still_counts_as_down() {
    let mut cluster = Cluster::new(&["a"; 4], 1);
    cluster.run(1_000, &[0, 1, 2, 3]);
    let lease_ms = cluster.meta.lease_ms().unwrap();
    cluster.stuck = Some((3, cluster.meta.version, true));
    assert!(cluster.run(TIMEOUT_MS - 500, &[0, 1, 2, 3]).is_empty());
    assert_eq!(cluster.run(1_000, &[0, 1, 2, 3]), [3]);
    cluster.run(lease_ms, &[0, 1, 2, 3]);
    assert!(!cluster.is_electing());
}

/// It is granted leases by the new settings, though it has not carried them out.
#[test]
fn a_node_that_hangs_when_the_timeout_is_shortened_switches_nothing_off() {
    let mut cluster = Cluster::new(&["a"; 4], 1);
    cluster.run(3_000, &[0, 1, 2, 3]);
    cluster.stuck = Some((3, cluster.meta.version, false));
    cluster.set_timeout(true, 1);
    assert!(cluster.run(3_000, &[0, 1, 2, 3]).is_empty());
    assert!(!cluster.meta.auto_failover.armed, "it may hold a lease of before");
    assert!(cluster.run(3_000, &[0, 1, 2, 3]).is_empty());
    assert!(cluster.meta.auto_failover.armed);
    assert_eq!(cluster.run(2_000, &[0, 1, 3]), [2]);
}

/// A report that comes late says nothing new, and is granted a lease all the same.
#[test]
fn a_lease_that_follows_from_a_late_report_is_waited_for() {
    let mut cluster = Cluster::new(&["a"; 4], 1);
    cluster.run(1_000, &[0, 1, 2, 3]);
    let lease_ms = cluster.meta.lease_ms().unwrap();
    let last = NodeReport { number: 9, ..cluster.report(3) };
    cluster.orchestrator.report(&cluster.meta, last, cluster.now_ms);
    cluster.run(2_500, &[0, 1, 2]);
    let late = NodeReport { number: 8, ..cluster.report(3) };
    assert!(cluster.meta.lease_for(&late).is_some());
    cluster.stuck = Some((3, cluster.meta.version, false));
    cluster.orchestrator.report(&cluster.meta, late, cluster.now_ms);
    cluster.fail_over(3);
    cluster.run(lease_ms - 500, &[0, 1, 2]);
    assert!(cluster.is_electing());
    cluster.run(1_000, &[0, 1, 2]);
    assert!(!cluster.is_electing());
}

/// A node that stands still counts as silent, and is granted leases until somebody decides about it.
#[test]
fn a_node_that_stands_still_is_waited_for_though_automatic_failover_was_switched_off() {
    let mut cluster = Cluster::new(&["a"; 4], 1);
    cluster.run(1_000, &[0, 1, 2, 3]);
    let lease_ms = cluster.meta.lease_ms().unwrap();
    cluster.stuck = Some((3, cluster.meta.version, true));
    assert!(cluster.run(TIMEOUT_MS - 500, &[0, 1, 2, 3]).is_empty());
    assert!(cluster.meta.lease_for(&cluster.report(3)).is_some());
    cluster.set_timeout(false, 5);
    cluster.fail_over(3);
    cluster.run(lease_ms - 500, &[0, 1, 2, 3]);
    assert!(cluster.is_electing(), "it serves by its last lease");
    cluster.run(1_000, &[0, 1, 2, 3]);
    assert!(!cluster.is_electing());
}

#[test]
fn what_arms_automatic_failover_by_earlier_settings_comes_too_late() {
    let node = |id: u16| {
        let first = NodeInfo::first(format!("n{id}"), format!("10.0.0.{id}"), Ports::default());
        NodeInfo { id: NodeId(id), ..first }
    };
    let mut meta = Metadata::new("c".into(), 1024);
    meta.nodes = (0..3).map(node).collect();
    meta.next_node = 3;
    let settings = |timeout_secs| Command::SetAutoFailover {
        enabled: true,
        timeout_secs,
        max_count: 1,
        whole_groups: false,
    };
    let apply = |meta: &Metadata, command: &Command| meta.apply(command).map(|(next, _)| next);
    let meta = apply(&meta, &settings(20)).unwrap();
    let early = Command::ArmAutoFailoverSince { since: meta.auto_failover.since };
    let armed = apply(&meta, &early).unwrap();
    assert!(armed.auto_failover.armed);
    // Nobody has said yet that it knows the shorter timeout; the proposal is made again, and comes late.
    let stricter = apply(&armed, &settings(5)).unwrap();
    assert!(apply(&stricter, &early).is_err());
    let now = Command::ArmAutoFailoverSince { since: stricter.auto_failover.since };
    assert!(apply(&stricter, &now).unwrap().auto_failover.armed);
}
