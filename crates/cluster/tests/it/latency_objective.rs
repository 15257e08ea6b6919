//! Copies travel one at a time where a bucket's operations miss its objective.

use base::{BucketUuid, NodeId};
use settee_cluster::{
    BucketParams, BucketReport, Command, LatencyReport, Metadata, NodeInfo, NodeReport, Orchestrator, Ports,
    StartRebalance,
};

fn node(id: u16) -> NodeInfo {
    let ports = Ports { mgmt: 8091, kv: 11210, ..Ports::default() };
    let mut node = NodeInfo::first(format!("{id:032x}"), format!("10.0.0.{id}"), ports);
    node.id = NodeId(id);
    node
}

/// Two nodes, of which the second is new to a bucket of 64 vBuckets and to be rebalanced in.
fn growing(form: &[(&str, &str)]) -> Metadata {
    let form: Vec<_> = form.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let params = BucketParams {
        ram_quota_mb: Some(100),
        vbuckets: Some(64),
        ..BucketParams::from_form(&form).unwrap()
    };
    let commands = [
        Command::SetNode(node(0)),
        Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params },
        Command::AddNode(node(1)),
        Command::StartRebalance(StartRebalance {
            id: "r".into(),
            keep: vec![NodeId(0), NodeId(1)],
            eject: vec![],
            now_ms: 0,
        }),
    ];
    let begin = Metadata::new("c".repeat(32), 100_000);
    commands.iter().fold(begin, |meta, command| meta.apply(command).unwrap().0)
}

fn report(meta: &Metadata, id: u16, latency: Option<LatencyReport>) -> NodeReport {
    let bucket = BucketReport {
        uuid: BucketUuid("u".into()),
        ready: true,
        vbs: Vec::new(),
        items: 0,
        bytes: 0,
        weights: Vec::new(),
        cut_off: Default::default(),
        pressure: Default::default(),
        latency,
    };
    NodeReport { buckets: vec![bucket], ..NodeReport::bare(NodeId(id), format!("{id:032x}"), meta.version) }
}

/// How many copies are on their way after a while in which none arrives, and what the rebalance says that it waits for.
fn on_their_way(latency: Option<LatencyReport>) -> (usize, Option<String>) {
    let (mut meta, mut orchestrator, mut now_ms) = (growing(&[]), Orchestrator::new(), 1_000_000);
    for _ in 0..40 {
        now_ms += 250;
        orchestrator.report(&meta, report(&meta, 0, latency), now_ms);
        orchestrator.report(&meta, report(&meta, 1, None), now_ms);
        for command in orchestrator.step(&meta, now_ms) {
            meta = meta.apply(&command).unwrap().0;
        }
    }
    let building = meta.buckets["b"].vbs.iter().filter(|plan| !plan.building.is_empty()).count();
    (building, orchestrator.progress(&meta, now_ms).unwrap().waits_for)
}

#[test]
fn copies_travel_one_at_a_time_where_operations_miss_their_objective() {
    let taking = |p99_us| Some(LatencyReport { objective_us: 2_000, p99_us });
    assert_eq!(on_their_way(None), (4, None));
    assert_eq!(on_their_way(taking(2_000)), (4, None));
    let (building, waits_for) = on_their_way(taking(2_100));
    assert_eq!(building, 1);
    let expected = "one copy at a time: on node 10.0.0.0:8091 operations on bucket \"b\" take 2100 us (p99), its objective is 2000";
    assert_eq!(waits_for.as_deref(), Some(expected));
}

#[test]
fn an_objective_is_what_was_asked_for() {
    let objective = |value| growing(&[("latencyObjectiveUs", value)]).buckets["b"].latency_objective_us();
    assert_eq!((objective("2500"), objective("0")), (Some(2_500), None));
    assert_eq!(growing(&[]).buckets["b"].latency_objective_us(), None);
    for wrong in ["-1", "2.5", "much", "60000001"] {
        let form = [("latencyObjectiveUs".to_owned(), wrong.to_owned())];
        assert!(BucketParams::from_form(&form).unwrap_err().contains_key("latencyObjectiveUs"), "{wrong}");
    }
}
