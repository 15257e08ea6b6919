//! Changes that come late: they are made of the bucket, the rebalance and the settings that were meant, or not at all.

use base::{BucketUuid, NodeId};
use settee_cluster::{
    AutoFailoverChange, BucketChange, BucketParams, ClusterError, Command, FailOver, Metadata, NodeInfo,
    Ports, Recovery, StartRebalance,
};

/// The level below which nobody says what is meant.
const SINCE: u32 = 15;

fn after(state: &Metadata, command: &Command) -> Metadata {
    state.apply(command).unwrap().0
}

fn of_nodes(count: u16) -> Metadata {
    let node = |id: u16| NodeInfo {
        id: NodeId(id),
        ..NodeInfo::first(format!("n{id}"), format!("h{id}"), Ports::default())
    };
    let state = after(&Metadata::new("c".into(), 1024), &Command::SetNode(node(0)));
    let state = (1..count).fold(state, |state, id| after(&state, &Command::AddNode(node(id))));
    rebalanced(&state, "first", &[])
}

fn start(state: &Metadata, id: &str, eject: &[u16]) -> Command {
    let eject: Vec<NodeId> = eject.iter().map(|id| NodeId(*id)).collect();
    let keep = state.nodes.iter().map(|node| node.id).filter(|id| !eject.contains(id)).collect();
    Command::StartRebalance(StartRebalance { id: id.into(), keep, eject, now_ms: 0 })
}

fn rebalanced(state: &Metadata, id: &str, eject: &[u16]) -> Metadata {
    let started = after(state, &start(state, id, eject));
    after(&started, &Command::FinishRebalance { id: id.into(), now_ms: 1 })
}

fn create(uuid: &str) -> Command {
    let params = BucketParams {
        ram_quota_mb: Some(100),
        replicas: Some(0),
        flush_enabled: Some(true),
        vbuckets: Some(16),
        ..BucketParams::default()
    };
    Command::CreateBucket { name: "b".into(), uuid: BucketUuid(uuid.into()), params }
}

fn quota(ram_quota_mb: u64) -> BucketChange {
    let params = BucketParams { ram_quota_mb: Some(ram_quota_mb), ..BucketParams::default() };
    BucketChange::Update(Box::new(params))
}

#[test]
fn a_late_change_of_a_bucket_leaves_the_next_one_of_that_name_alone() {
    let first = after(&of_nodes(1), &create("u1"));
    let meant = BucketUuid("u1".into());
    let flush = || BucketChange::Flush(BucketUuid("u3".into()));
    let late =
        [BucketChange::Delete, flush(), quota(200)].map(|change| first.change_of_bucket("b", &meant, change));
    let gone = after(&first, &late[0]);
    assert!(gone.buckets.is_empty());
    let second = after(&gone, &create("u2"));
    for late in &late {
        assert_eq!(second.apply(late).unwrap_err(), ClusterError::BucketNotFound, "{late:?}");
        assert_eq!(gone.apply(late).unwrap_err(), ClusterError::BucketNotFound, "{late:?}");
    }
    assert_eq!(after(&first, &late[2]).buckets["b"].ram_quota_mb, 200);
    let flushed = after(&first, &late[1]);
    assert_eq!(flushed.buckets["b"].uuid.0, "u3");
    assert!(flushed.rev > first.rev, "clients look where it is");
    assert_eq!(flushed.apply(&late[1]).unwrap_err(), ClusterError::BucketNotFound, "it was flushed already");
    // Flushing may have been forbidden since it was asked for.
    let forbid = BucketParams { flush_enabled: Some(false), ..BucketParams::default() };
    let kept = after(&first, &Command::UpdateBucket { name: "b".into(), params: forbid });
    assert!(kept.apply(&late[1]).unwrap_err().to_string().contains("Flush is disabled"));
}

#[test]
fn a_late_stop_leaves_the_next_rebalance_alone() {
    let state = of_nodes(2);
    let moving = after(&state, &start(&state, "second", &[]));
    let stop = moving.stop_of_rebalance("second", 2);
    let stopped = after(&moving, &stop);
    assert!(stopped.rebalance.is_none());
    let again = after(&stopped, &start(&stopped, "third", &[]));
    assert!(again.apply(&stop).unwrap_err().to_string().contains("not running"));
    assert!(after(&again, &Command::StopRebalance { id: None, now_ms: 3 }).rebalance.is_none());
}

#[test]
fn two_changes_of_automatic_failover_by_one_state_are_both_kept() {
    let state = of_nodes(1);
    let change =
        AutoFailoverChange { enabled: true, timeout_secs: None, max_count: None, whole_groups: None };
    let one = state.change_of_auto_failover(AutoFailoverChange { timeout_secs: Some(30), ..change });
    let other = state.change_of_auto_failover(AutoFailoverChange { max_count: Some(7), ..change });
    let both = after(&after(&state, &one), &other).auto_failover;
    assert_eq!((both.enabled, both.timeout_secs, both.max_count), (true, 30, 7));
    assert_eq!(both.whole_groups, state.auto_failover.whole_groups);
    let nonsense = AutoFailoverChange { max_count: Some(0), ..change };
    assert!(state.apply(&state.change_of_auto_failover(nonsense)).is_err());
}

#[test]
fn members_of_an_earlier_version_are_given_nothing_that_they_do_not_understand() {
    let known = after(&of_nodes(1), &create("u1"));
    let older = Metadata { level: SINCE - 1, ..known.clone() };
    let uuid = BucketUuid("u1".into());
    let enabled =
        AutoFailoverChange { enabled: true, timeout_secs: None, max_count: Some(3), whole_groups: None };
    let commands = |state: &Metadata| {
        [
            state.change_of_bucket("b", &uuid, BucketChange::Delete),
            state.change_of_bucket("b", &uuid, quota(200)),
            state.change_of_bucket("b", &uuid, BucketChange::Flush(BucketUuid("u3".into()))),
            state.change_of_auto_failover(enabled),
            state.stop_of_rebalance("r", 0),
        ]
    };
    assert!(commands(&older).iter().all(|command| command.level() == 0));
    assert!(commands(&known).iter().all(|command| command.level() == SINCE));
    let [delete, _, _, automatic, _] = commands(&older);
    assert!(after(&older, &delete).buckets.is_empty());
    assert_eq!(after(&older, &automatic).auto_failover.max_count, 3);
}

#[test]
fn no_rebalance_removes_a_node_that_is_to_be_recovered() {
    let fail_over = FailOver { nodes: vec![NodeId(2)], allow_unsafe: true, auto: false };
    let failed = after(&of_nodes(3), &Command::FailOver(fail_over));
    let recover = |recovery| Command::SetRecovery { node: NodeId(2), recovery };
    let delta = recover(Some(Recovery::Delta));
    // The rebalance came first.
    let going = after(&failed, &start(&failed, "r", &[]));
    let refused = going.apply(&delta).unwrap_err().to_string();
    assert!(going.is_ejected(NodeId(2)) && refused.contains("Stop the rebalance"), "{refused}");
    assert!(going.apply(&Command::ReAddNode { node: NodeId(2) }).is_err());
    assert!(going.apply(&recover(None)).is_ok());
    let stopped = after(&going, &Command::StopRebalance { id: None, now_ms: 0 });
    // The recovery came first, and the rebalance was judged before it.
    let recovered = after(&stopped, &delta);
    let refused = recovered.apply(&start(&failed, "r", &[2])).unwrap_err().to_string();
    assert!(refused.contains("is to be recovered"), "{refused}");
    let back = rebalanced(&recovered, "r", &[]);
    assert_eq!(back.active_nodes().count(), 3);
    let given_up = after(&recovered, &recover(None));
    assert_eq!(rebalanced(&given_up, "r", &[2]).nodes.len(), 2);
    // As earlier versions carry it out.
    let older = Metadata { level: SINCE - 1, ..going };
    assert!(older.apply(&delta).is_ok());
}
