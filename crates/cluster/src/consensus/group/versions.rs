//! Two versions of the state machine in one group. The older one stops before what it does not know, and a newer one goes on
//! from the same log.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::*;
use crate::{
    changes::Command,
    consensus::{Batch, LogStore as _, MemoryLog},
    metadata::{NodeInfo, Ports, level::LEVEL},
};

/// A group of one, on that log.
struct Node {
    log: MemoryLog,
    group: Consensus,
}

impl Node {
    fn open(mut log: MemoryLog) -> Self {
        let group = Consensus::open(&log.load().unwrap(), 1).unwrap();
        let mut node = Self { log, group };
        node.settle();
        node
    }

    fn settle(&mut self) {
        loop {
            let turn = self.group.turn();
            if turn.is_empty() {
                return;
            }
            self.log.write(&turn.batches).unwrap();
            self.group.written(turn.number);
        }
    }

    /// Proposes what a newer version would.
    fn propose_raw(&mut self, json: &Value) {
        let data = serde_json::to_vec(json).unwrap();
        self.group.raw.propose(Vec::new(), data).unwrap();
        self.settle();
    }
}

fn founded() -> Node {
    let member = Member {
        uuid: "n".into(),
        node: NodeId(0),
        cluster_uuid: "c".into(),
        epoch: Default::default(),
        secret: String::new(),
        peers: Vec::new(),
        authority: None,
    };
    let mut metadata = Metadata::new("c".into(), 256);
    metadata.nodes = vec![NodeInfo::first("n".into(), "h".into(), Ports::default())];
    metadata.next_node = 1;
    let mut log = MemoryLog::default();
    log.write(&[found(&member, &Arc::new(metadata)).unwrap()]).unwrap();
    Node::open(log)
}

fn proposal(number: u64, command: &Value) -> Value {
    serde_json::json!({ "id": { "origin": 1, "number": number }, "command": command })
}

#[test]
fn an_older_version_stops_before_what_it_does_not_know_and_says_what_to_do() {
    let unknown: BTreeMap<&str, Value> = BTreeMap::from([
        ("Levitate", serde_json::json!({ "Levitate": {} })),
        ("gently", serde_json::json!({ "StopRebalance": { "now_ms": 1, "gently": true } })),
    ]);
    for (name, command) in unknown {
        let mut node = founded();
        node.propose_raw(&proposal(1, &serde_json::json!({ "SetClusterName": "before" })));
        let before = Arc::clone(node.group.metadata());
        assert_eq!(before.cluster_name, "before");
        node.propose_raw(&proposal(2, &command));
        let broken = node.group.broken().unwrap().to_owned();
        assert!(broken.contains(name) && broken.contains("start this node with"), "{broken}");
        assert_eq!(**node.group.metadata(), *before, "nothing is half carried out");
        // The same binary stops at the same place; what comes after it is not reached.
        let node = Node::open(node.log);
        assert!(node.group.broken().is_some());
        assert_eq!(node.group.metadata().cluster_name, "before");
    }
}

/// Another node was added while the level was to rise: the change is refused, and says nothing that an older version does not know.
#[test]
fn an_older_version_goes_on_after_a_rise_of_the_level_that_is_refused() {
    let rise = |number, nodes: &[u16]| {
        let raise = serde_json::json!({ "RaiseLevel": { "level": LEVEL + 1, "nodes": nodes } });
        proposal(number, &raise)
    };
    let mut node = founded();
    node.propose_raw(&rise(1, &[]));
    assert_eq!(node.group.broken(), None);
    node.propose_raw(&proposal(2, &serde_json::json!({ "SetClusterName": "after" })));
    assert_eq!((&*node.group.metadata().cluster_name, node.group.metadata().level), ("after", LEVEL));
    node.propose_raw(&rise(3, &[0]));
    let broken = node.group.broken().unwrap();
    assert!(broken.contains("of level") && broken.contains("start this node with"), "{broken}");
    assert_eq!(node.group.metadata().level, LEVEL);
}

#[test]
fn a_version_that_knows_more_goes_on_from_the_log_of_one_that_stopped() {
    let mut node = founded();
    node.propose_raw(&proposal(1, &serde_json::json!({ "Levitate": {} })));
    assert!(node.group.broken().is_some());
    // Stands for a newer binary: to it the entry is a command that it knows.
    let mut log = node.log;
    let mut stored = log.load().unwrap();
    let last = stored.entries.values_mut().last().unwrap();
    let mut entry = codec::decode_entry(last).unwrap();
    let id = ProposalId { origin: 1, number: 1 };
    let known = Proposal::new(id, Command::SetClusterName("after".into()));
    entry.data = serde_json::to_vec(&known).unwrap().into();
    let entries = vec![(entry.index, codec::encode_entry(&entry))];
    log.write(&[Batch { entries, ..Batch::default() }]).unwrap();
    let node = Node::open(log);
    assert_eq!(node.group.broken(), None);
    assert_eq!(node.group.metadata().cluster_name, "after");
}

/// A member of a group that was formed anew goes by what it knew until it hears more; that may be of a newer version.
#[test]
fn what_a_member_knew_before_its_group_was_formed_anew_is_of_a_level_that_it_understands() {
    let node = founded();
    let (member, known) = (node.group.member().clone(), node.group.metadata());
    let open = |known: &Value| {
        let mut first = node.group.rejoin(&member).unwrap();
        for (record, bytes) in &mut first.records {
            if *record == Record::Known {
                *bytes = serde_json::to_vec(known).unwrap();
            }
        }
        let mut log = MemoryLog::default();
        log.write(&[first]).unwrap();
        let opened = Consensus::open(&log.load().unwrap(), 1);
        opened.map(|group| group.metadata().level).map_err(|error| error.to_string())
    };
    let mut json = serde_json::to_value(&**known).unwrap();
    assert_eq!(open(&json), Ok(LEVEL));
    json["level"] = (LEVEL + 1).into();
    let refused = open(&json).unwrap_err();
    assert!(refused.contains("of level") && refused.contains("start this node with"), "{refused}");
    json["level"] = LEVEL.into();
    json["levitation"] = 7.into();
    let refused = open(&json).unwrap_err();
    assert!(refused.contains("levitation"), "{refused}");
}

/// Nodes that agree on much, on a slow disk: there is always something that the disk is at.
#[test]
fn a_log_is_cut_while_the_disk_is_never_done() {
    let mut node = founded();
    let mut writing = Turn::default();
    for number in 1..=2_000 {
        let rename = Command::SetClusterName(number.to_string());
        node.group.propose(&Proposal::new(ProposalId { origin: 1, number }, rename)).unwrap();
        let next = node.group.turn();
        node.log.write(&writing.batches).unwrap();
        node.group.written(writing.number);
        writing = next;
        let kept = node.group.raw.store().weight(node.group.applied()).0;
        assert!(kept <= 600, "{kept} entries are kept");
        // What is on the disk is a whole at any time.
        if number.is_multiple_of(97) {
            let name = Node::open(node.log.clone()).group.metadata().cluster_name.clone();
            assert!(name.parse::<u64>().is_ok_and(|name| name + 3 > number), "{name} of {number}");
        }
    }
    node.log.write(&writing.batches).unwrap();
    node.group.written(writing.number);
    node.settle();
    assert_eq!(Node::open(node.log).group.metadata().cluster_name, "2000");
}

/// A member that waits for a snapshot that it cannot read waits for ever, and only an operator can help.
#[test]
fn a_snapshot_of_a_newer_leader_is_told_of() {
    let member = Member { node: NodeId(1), ..founded().group.member().clone() };
    let mut log = MemoryLog::default();
    log.write(&[join(&member).unwrap()]).unwrap();
    let mut group = Consensus::open(&log.load().unwrap(), 1).unwrap();
    let said = |kind, data: &[u8]| {
        let mut message = Message { to: 2, from: 1, term: 2, ..Message::default() };
        message.set_msg_type(kind);
        let snapshot = message.mut_snapshot();
        snapshot.data = data.to_vec().into();
        (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (9, 2);
        snapshot.mut_metadata().mut_conf_state().voters = vec![1, 2];
        codec::encode_message(Default::default(), &message).unwrap()
    };
    let snapshot = said(MessageType::MsgSnapshot, b"{\"of\": \"a newer version\"}");
    let sender = Some(NodeId(0));
    assert!(
        matches!(group.step(sender, &snapshot), Err(StepError::Refused(_))),
        "nobody leads, by what it knows"
    );
    assert_eq!(group.step(sender, &said(MessageType::MsgHeartbeat, b"")), Ok(()));
    let Err(StepError::Newer(text)) = group.step(sender, &snapshot) else { panic!("it is told of") };
    assert!(text.contains("newer version"), "{text}");
    assert_eq!(group.broken(), None);
}

mod fixture;
