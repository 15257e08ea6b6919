//! A log and a snapshot as a node wrote them before there were levels, kept as a file. Every later version reads them, and comes to
//! the same metadata by them.

use std::fmt::Write as _;

use base::BucketUuid;

use super::*;
use crate::{
    changes::{
        bucket::BucketParams,
        command::{QuotaChange, UserChange},
        moves::{VbChange, VbStep},
        rebalancing::{FailOver, StartRebalance},
    },
    consensus::{Record, Stored},
    metadata::{UserDomain, topology::Recovery},
};

/// The file.
const LOG: &str = include_str!("../../../../tests/fixtures/log-of-level-0.json");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

fn stored() -> (Stored, Value) {
    let file: Value = serde_json::from_str(LOG).unwrap();
    let bytes = |value: &Value| unhex(value.as_str().unwrap());
    let record = |name: &str| Record::ALL.into_iter().find(|record| record.name() == name).unwrap();
    let records = file["records"].as_object().unwrap();
    let entries = file["entries"].as_object().unwrap();
    let stored = Stored {
        records: records.iter().map(|(name, value)| (record(name), bytes(value))).collect(),
        entries: entries.iter().map(|(index, value)| (index.parse().unwrap(), bytes(value))).collect(),
    };
    (stored, file["metadata"].clone())
}

fn node(id: u16) -> NodeInfo {
    let first = NodeInfo::first(format!("n{id}"), format!("10.0.0.{id}"), Ports::default());
    NodeInfo { id: NodeId(id), ..first }
}

fn bucket(name: &str, replicas: u8) -> Command {
    let params = BucketParams {
        ram_quota_mb: Some(100),
        replicas: Some(replicas),
        vbuckets: Some(16),
        ..BucketParams::default()
    };
    Command::CreateBucket { name: name.into(), uuid: BucketUuid(format!("{name}1")), params }
}

/// Of every kind of change that touches maps, and of some others.
fn commands() -> Vec<Command> {
    let user = UserChange {
        domain: UserDomain::External,
        name: "u".into(),
        uuid: "u1".into(),
        full_name: Some("U".into()),
        credentials: None,
        roles: None,
        groups: None,
        locked: None,
        now_ms: 1,
    };
    let group = |uuid: &str| Command::CreateServerGroup { uuid: uuid.into(), name: uuid.into() };
    let start = |id: &str, keep: &[u16], eject: &[u16]| {
        let ids = |ids: &[u16]| ids.iter().map(|id| NodeId(*id)).collect();
        Command::StartRebalance(StartRebalance {
            id: id.into(),
            keep: ids(keep),
            eject: ids(eject),
            now_ms: 2,
        })
    };
    let build = |vb| VbChange {
        bucket: BucketUuid("b1".into()),
        vb: base::VbId(vb),
        term: 1,
        step: VbStep::Build(vec![NodeId(1)]),
    };
    let settings = |timeout_secs| Command::SetAutoFailover {
        enabled: true,
        timeout_secs,
        max_count: 2,
        whole_groups: false,
    };
    let fail = FailOver { nodes: vec![NodeId(3)], allow_unsafe: true, auto: false };
    vec![
        Command::SetQuota(QuotaChange { data_mb: Some(1_000), ..QuotaChange::default() }),
        group("east"),
        bucket("b", 1),
        Command::CreateScope { bucket: "b".into(), scope: "s".into() },
        Command::PutUser(user),
        Command::AddNode(node(1)),
        Command::AddNode(node(2)),
        Command::AddNode(node(3)),
        Command::AssignServerGroups {
            assignments: vec![(NodeId(2), "east".into()), (NodeId(3), "east".into())],
        },
        settings(20),
        start("r1", &[0, 1, 2, 3], &[]),
        Command::ArmAutoFailover,
        Command::ChangeVbs(vec![build(0), build(1)]),
        settings(5),
        Command::FailOver(fail),
        bucket("c", 2),
        Command::StopRebalance { id: None, now_ms: 3 },
        Command::SetRecovery { node: NodeId(3), recovery: Some(Recovery::Delta) },
        start("r2", &[0, 1, 3], &[2]),
    ]
}

/// Some of it before the snapshot, the rest behind it.
fn history() -> Vec<Command> {
    let filler = |number: u64| Command::PutSetting { path: "p".into(), value: number.into() };
    let commands = commands();
    let (before, after) = commands.split_at(9);
    before.iter().cloned().chain((0..520).map(filler)).chain(after.iter().cloned()).collect()
}

#[test]
#[ignore = "writes the file anew"]
fn write_the_file() {
    let mut node = founded();
    for (number, command) in history().into_iter().enumerate() {
        node.propose_raw(&proposal(number as u64, &serde_json::to_value(&command).unwrap()));
        let outcome = node.group.outcome(ProposalId { origin: 1, number: number as u64 });
        assert!(matches!(outcome, Some(Ok(_))), "{command:?}: {outcome:?}");
    }
    let stored = node.log.load().unwrap();
    let records = stored.records.iter().map(|(record, bytes)| (record.name(), hex(bytes)));
    let entries = stored.entries.iter().map(|(index, bytes)| (index.to_string(), hex(bytes)));
    let file = serde_json::json!({
        "records": records.collect::<BTreeMap<_, _>>(),
        "entries": entries.collect::<BTreeMap<_, _>>(),
        "metadata": **node.group.metadata(),
    });
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/log-of-level-0.json");
    std::fs::write(path, serde_json::to_string_pretty(&file).unwrap() + "\n").unwrap();
}

#[test]
fn what_was_written_before_there_were_levels_is_read_and_means_the_same() {
    let (stored, expected) = stored();
    let applied = |stored: &Stored| {
        let mut log = MemoryLog::default();
        let records = stored.records.clone().into_iter().collect();
        let entries = stored.entries.clone().into_iter().collect();
        log.write(&[Batch { records, entries, ..Batch::default() }]).unwrap();
        Node::open(log)
    };
    let node = applied(&stored);
    assert_eq!(node.group.broken(), None);
    assert_eq!(serde_json::to_value(&**node.group.metadata()).unwrap(), expected);
    // Some of it is carried out again now, not read from the snapshot.
    let snapshot = codec::decode_snapshot(&stored.records[&Record::Snapshot]).unwrap();
    let before = read_state(&snapshot, LEVEL).unwrap();
    let left = node.group.metadata().version - before.metadata.version;
    assert!(left >= 8, "{left}");
    assert!(expected["buckets"]["b"]["target"].is_array(), "a placement is among it");
}
