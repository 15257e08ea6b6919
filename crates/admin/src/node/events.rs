//! The log of cluster changes that `/logs` shows: what has happened since this node started. Each entry is made from two
//! states of the cluster. So it is the same for every user and on every node.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use base::NodeId;
use cluster::{Membership, Metadata, NodeInfo, Rebalance, RebalanceKind, RebalanceOutcome, RebalanceResult};

use super::cluster_status::{Awaited, ClusterStatus, CutOff, Notice};

/// Entries kept; the oldest go.
const ENTRIES_MAX: usize = 1000;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The part of ns_server that says such things, by which tools tell them apart.
    pub(crate) module: &'static str,
    pub(crate) severity: Severity,
    pub(crate) text: String,
    /// Unix milliseconds.
    pub(crate) at_ms: u64,
}

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Info,
    Warning,
    Critical,
}

impl Severity {
    /// As REST shows it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// What happened lately, and how often some of it since this node started.
#[derive(Default)]
pub(crate) struct Events {
    kept: Mutex<VecDeque<Event>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Events {
    /// Takes note of what lies between two states of what shall be.
    pub(crate) fn note(&self, before: &Metadata, after: &Metadata, now_ms: u64) {
        self.count(before, after);
        self.add(between(before, after), now_ms);
    }

    fn count(&self, before: &Metadata, after: &Metadata) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if before.cluster_uuid != after.cluster_uuid {
            counts.clear();
            return;
        }
        for name in counted(before, after) {
            *counts.entry(name).or_default() += 1;
        }
    }

    /// How often clusters' changes began and ended since this node started, under Couchbase's names. What never happened has no entry.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes note of what lies between two states of what is.
    pub(crate) fn note_status(
        &self,
        meta: &Metadata,
        before: &ClusterStatus,
        after: &ClusterStatus,
        now_ms: u64,
    ) {
        self.add(replication(meta, before, after), now_ms);
    }

    fn add(&self, changes: Vec<Change>, now_ms: u64) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for (module, severity, text) in changes {
            match severity {
                Severity::Info => tracing::info!(module, "{text}"),
                Severity::Warning | Severity::Critical => tracing::warn!(module, "{text}"),
            }
            if kept.len() == ENTRIES_MAX {
                kept.pop_front();
            }
            kept.push_back(Event { module, severity, text, at_ms: now_ms });
        }
    }

    /// All of it, the oldest first.
    pub(crate) fn all(&self) -> Vec<Event> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// What Couchbase's counters have one more of. A change of the map that has ended was begun, though no state in between was seen.
fn counted(before: &Metadata, after: &Metadata) -> Vec<&'static str> {
    let is_known = |id: &String| {
        let running = before.rebalance.as_ref().map(|then| &then.id);
        running == Some(id) || before.last_rebalance.as_ref().map(|then| &then.id) == Some(id)
    };
    let ended = after.last_rebalance.iter().filter(|last| before.last_rebalance.as_ref() != Some(last));
    let started_and_ended = ended.clone().filter(|last| !is_known(&last.id)).map(|last| last.kind);
    let started = after.rebalance.iter().filter(|now| !is_known(&now.id)).map(|now| now.kind);
    let mut names: Vec<&'static str> = started_and_ended
        .chain(started)
        .map(|kind| match kind {
            RebalanceKind::Rebalance => "rebalance_start",
            RebalanceKind::GracefulFailover => "graceful_failover_start",
        })
        .collect();
    // One command fails all of its nodes over, or none.
    let is_out = |node: &NodeInfo| node.membership == Membership::InactiveFailed;
    let was_in = |node: &NodeInfo| before.node(&node.uuid).is_some_and(|then| !is_out(then));
    if after.nodes.iter().any(|node| is_out(node) && was_in(node)) {
        names.extend(["failover", "failover_complete"]);
    }
    names.extend(ended.map(|last| match (last.kind, &last.result) {
        (RebalanceKind::Rebalance, RebalanceResult::Completed) => "rebalance_success",
        (RebalanceKind::Rebalance, RebalanceResult::Stopped) => "rebalance_stop",
        (RebalanceKind::Rebalance, RebalanceResult::Failed(_)) => "rebalance_fail",
        (RebalanceKind::GracefulFailover, RebalanceResult::Completed) => "graceful_failover_success",
        (RebalanceKind::GracefulFailover, RebalanceResult::Stopped) => "graceful_failover_stop",
        (RebalanceKind::GracefulFailover, RebalanceResult::Failed(_)) => "graceful_failover_fail",
    }));
    names
}

type Change = (&'static str, Severity, String);

/// What happened between two states, in the order in which it makes sense.
fn between(before: &Metadata, after: &Metadata) -> Vec<Change> {
    let mut changes = Vec::new();
    if before.cluster_uuid != after.cluster_uuid {
        // Another cluster: what it did before is not news.
        let name = &after.cluster_name;
        return vec![("ns_cluster", Severity::Info, format!("This node is part of cluster \"{name}\" now."))];
    }
    let came = after.nodes.iter().filter(|node| before.node(&node.uuid).is_none());
    changes.extend(came.map(|node| info("ns_cluster", format!("Node {} was added.", address(node)))));
    changes.extend(memberships(before, after));
    changes.extend(rebalances(before, after));
    let gone = before.nodes.iter().filter(|node| after.node(&node.uuid).is_none());
    changes.extend(gone.map(|node| info("ns_cluster", format!("Node {} left the cluster.", address(node)))));
    changes.extend(buckets(before, after));
    changes
}

fn info(module: &'static str, text: String) -> Change {
    (module, Severity::Info, text)
}

fn address(node: &NodeInfo) -> String {
    format!("{}:{}", node.host, node.ports.mgmt)
}

/// Which replicas are fed no longer, and which are again.
fn replication(meta: &Metadata, before: &ClusterStatus, after: &ClusterStatus) -> Vec<Change> {
    let is_in = |status: &ClusterStatus, cut: &CutOff| {
        status.cut_off.iter().any(|one| (&one.bucket, one.from, one.to) == (&cut.bucket, cut.from, cut.to))
    };
    let begun = after.cut_off.iter().filter(|cut| !is_in(before, cut));
    let begun = begun.map(|cut| ("ns_replication", Severity::Warning, outage(meta, cut)));
    let over = before.cut_off.iter().filter(|cut| !is_in(after, cut)).map(|cut| {
        let (from, to) = (name(meta, cut.from), name(meta, cut.to));
        let how = how_it_is_over(meta, after, cut);
        info("ns_replication", format!("Replication of bucket \"{}\" from {from} to {to} {how}.", cut.bucket))
    });
    begun.chain(over).chain(elections(meta, before, after)).chain(divergence(meta, before, after)).collect()
}

/// What has become of replicas that were not fed, and of which nothing is told any more.
fn how_it_is_over(meta: &Metadata, now: &ClusterStatus, cut: &CutOff) -> String {
    let lost = [cut.from, cut.to].into_iter().find_map(|id| match meta.node_by_id(id) {
        None => Some(format!("has ended: {} has left the cluster", name(meta, id))),
        Some(node) if node.is_failed_over() => Some(format!("has ended: {} was failed over", address(node))),
        Some(node) if now.silent.contains(&id) => {
            Some(format!("waits for {}, which is not heard of", address(node)))
        }
        Some(_) => None,
    });
    lost.unwrap_or_else(|| "goes on".to_owned())
}

/// Which elections wait for nodes, and which wait no longer.
fn elections(meta: &Metadata, before: &ClusterStatus, after: &ClusterStatus) -> Vec<Change> {
    let is_in = |status: &ClusterStatus, wait: &Awaited| {
        let what = |wait: &Awaited| (wait.node, wait.may_serve);
        status.awaited.iter().any(|one| one.bucket == wait.bucket && what(one) == what(wait))
    };
    let begun = after.awaited.iter().filter(|wait| !is_in(before, wait));
    let begun = begun.map(|wait| ("ns_orchestrator", Severity::Warning, waiting(meta, wait)));
    let over = before.awaited.iter().filter(|wait| !is_in(after, wait)).map(|wait| {
        let text =
            format!("Nothing in bucket \"{}\" waits for {} any more.", wait.bucket, name(meta, wait.node));
        info("ns_orchestrator", text)
    });
    begun.chain(over).collect()
}

/// Nodes of which it was found that their metadata differ.
fn divergence(meta: &Metadata, before: &ClusterStatus, after: &ClusterStatus) -> Vec<Change> {
    let known = differing(meta, before);
    let new = differing(meta, after).into_iter().filter(|text| !known.contains(text));
    new.map(|text| ("ns_config", Severity::Critical, text)).collect()
}

/// What an administrator must do about nodes whose metadata differ though they have agreed on the same.
#[must_use]
pub fn differing(meta: &Metadata, status: &ClusterStatus) -> Vec<String> {
    let one = |(node, index): (&NodeId, &u64)| {
        let node = name(meta, *node);
        format!(
            "The metadata of node {node} differ from those of most nodes since change {index}. It serves nothing and takes part in \
             nothing. Fail it over, remove it and add it again, and see that all nodes run the same version."
        )
    };
    let mut texts: Vec<String> = status.diverged.iter().map(one).collect();
    if let Some(index) = status.undecided.values().min() {
        let nodes: Vec<String> = status.undecided.keys().map(|node| name(meta, *node)).collect();
        texts.push(format!(
            "The metadata of nodes {} differ since change {index}, and no majority agrees. The cluster goes on and removes nothing. See \
             that all nodes run the same version, decide which of them are right, and remove the others and add them again.",
            nodes.join(", ")
        ));
    }
    texts
}

/// What an administrator must know of replicas that are not fed: one sentence for each pair of nodes and bucket. Also
/// of vBuckets that nobody serves because the cluster waits for a node.
pub(crate) fn outages(meta: &Metadata, status: &ClusterStatus) -> Vec<Notice> {
    let waits = status.awaited.iter().map(|wait| Notice::new(&wait.bucket, waiting(meta, wait)));
    let outages = status.cut_off.iter().map(|cut| Notice::new(&cut.bucket, outage(meta, cut)));
    let differing = differing(meta, status).into_iter().map(|text| Notice::new("", text));
    outages.chain(waits).chain(differing).collect()
}

fn waiting(meta: &Metadata, wait: &Awaited) -> String {
    let node = name(meta, wait.node);
    if wait.may_serve {
        return format!(
            "Nobody takes over {} vBuckets of bucket \"{}\" before {node} is known to serve nothing: it was failed over, and has not \
             said that it has stopped. Stop or restart {node} if it hangs.",
            wait.vbs, wait.bucket
        );
    }
    format!(
        "Nobody serves {} vBuckets of bucket \"{}\" before {node} is back: it may be the only one that knows their last \
         writes. Failing {node} over ends this, and gives up what only {node} has.",
        wait.vbs, wait.bucket
    )
}

fn outage(meta: &Metadata, cut: &CutOff) -> String {
    let (from, to) = (name(meta, cut.from), name(meta, cut.to));
    format!(
        "Replication of bucket \"{}\" from {from} to {to} is interrupted: {} replicas are not kept up to date.",
        cut.bucket, cut.copies
    )
}

fn name(meta: &Metadata, node: NodeId) -> String {
    meta.node_by_id(node).map_or_else(|| format!("node {node}"), address)
}

fn memberships(before: &Metadata, after: &Metadata) -> Vec<Change> {
    let pairs = after.nodes.iter().filter_map(|node| Some((before.node(&node.uuid)?, node)));
    let changed = pairs.filter(|(then, now)| then.membership != now.membership);
    let by_itself = after.auto_failover.count > before.auto_failover.count;
    changed
        .map(|(_, node)| match node.membership {
            Membership::Active => {
                info("ns_cluster", format!("Node {} holds data from now on.", address(node)))
            }
            Membership::InactiveAdded => {
                info("ns_cluster", format!("Node {} comes back with the next rebalance.", address(node)))
            }
            Membership::InactiveFailed if by_itself => {
                let text = format!("Node {} was automatically failed over.", address(node));
                ("auto_failover", Severity::Critical, text)
            }
            Membership::InactiveFailed => {
                ("failover", Severity::Warning, format!("Node {} was failed over.", address(node)))
            }
        })
        .collect()
}

fn rebalances(before: &Metadata, after: &Metadata) -> Vec<Change> {
    let ended = after.last_rebalance.iter().filter(|last| before.last_rebalance.as_ref() != Some(last));
    let started =
        after.rebalance.iter().filter(|now| before.rebalance.as_ref().map(|then| &then.id) != Some(&now.id));
    ended.map(rebalance_ended).chain(started.map(|now| rebalance_started(after, now))).collect()
}

fn what(kind: RebalanceKind) -> &'static str {
    match kind {
        RebalanceKind::Rebalance => "Rebalance",
        RebalanceKind::GracefulFailover => "Graceful failover",
    }
}

fn rebalance_started(meta: &Metadata, rebalance: &Rebalance) -> Change {
    let names = |ids: &[base::NodeId]| {
        let nodes = ids.iter().filter_map(|&id| meta.node_by_id(id)).map(address);
        nodes.collect::<Vec<_>>().join(", ")
    };
    let (keep, eject) = (names(&rebalance.keep), names(&rebalance.eject));
    let text = format!("{} started: nodes [{keep}] stay, [{eject}] go.", what(rebalance.kind));
    info("ns_orchestrator", text)
}

fn rebalance_ended(last: &RebalanceOutcome) -> Change {
    let seconds = last.ended_ms.saturating_sub(last.started_ms) / 1000;
    let kind = what(last.kind);
    match &last.result {
        RebalanceResult::Completed => info("ns_orchestrator", format!("{kind} completed in {seconds} s.")),
        RebalanceResult::Stopped => {
            ("ns_orchestrator", Severity::Warning, format!("{kind} was stopped after {seconds} s."))
        }
        RebalanceResult::Failed(reason) => {
            ("ns_orchestrator", Severity::Critical, format!("{kind} failed after {seconds} s: {reason}"))
        }
    }
}

/// A flush gives the bucket another uuid: it is no longer what it was, but it was not deleted.
fn buckets(before: &Metadata, after: &Metadata) -> Vec<Change> {
    let is_in = |state: &Metadata, uuid: &base::BucketUuid| state.bucket_by_uuid(uuid).is_some();
    let new = after.buckets.iter().filter(|(_, bucket)| !is_in(before, &bucket.uuid));
    let new = new.map(|(name, _)| match before.buckets.contains_key(name) {
        true => format!("Bucket \"{name}\" was emptied: it was flushed, or deleted and made anew."),
        false => format!("Bucket \"{name}\" was created."),
    });
    let gone = before.buckets.keys().filter(|name| !after.buckets.contains_key(*name));
    let gone = gone.map(|name| format!("Bucket \"{name}\" was deleted."));
    new.chain(gone).map(|text| info("menelaus_web_buckets", text)).collect()
}

#[cfg(test)]
mod tests {
    use cluster::{BucketParams, Command, FailOver, Ports, StartRebalance};

    use super::*;

    fn added(meta: &Metadata, number: u16) -> Metadata {
        let ports = Ports { mgmt: 8091, ..Ports::default() };
        let id = base::NodeId(number);
        let host = format!("127.0.0.{}", number + 1);
        let node = NodeInfo { id, ..NodeInfo::first(number.to_string(), host, ports) };
        let command = if number == 0 { Command::SetNode(node) } else { Command::AddNode(node) };
        meta.apply(&command).unwrap().0
    }

    #[test]
    fn replicas_that_are_not_fed_are_told_of_once_and_when_it_is_over() {
        let meta = added(&added(&Metadata::new("c".into(), 1024), 0), 1);
        let cut = |copies| CutOff { bucket: "b".into(), from: NodeId(0), to: NodeId(1), copies };
        let status = |cut_off| ClusterStatus { cut_off, ..ClusterStatus::default() };
        let states = [vec![], vec![cut(9)], vec![cut(4)], vec![]].map(status);
        let events = Events::default();
        for pair in states.windows(2) {
            events.note_status(&meta, &pair[0], &pair[1], 7);
        }
        let told: Vec<String> = events.all().into_iter().map(|event| event.text).collect();
        let between = "Replication of bucket \"b\" from 127.0.0.1:8091 to 127.0.0.2:8091";
        let begun = format!("{between} is interrupted: 9 replicas are not kept up to date.");
        assert_eq!(told, [begun, format!("{between} goes on.")]);
        assert_eq!(
            outages(&meta, &states[2])[0].text,
            format!("{between} is interrupted: 4 replicas are not kept up to date.")
        );
    }

    #[test]
    fn replication_from_a_node_that_is_lost_does_not_go_on() {
        let meta = added(&added(&Metadata::new("c".into(), 1024), 0), 1);
        let cut = CutOff { bucket: "b".into(), from: NodeId(0), to: NodeId(1), copies: 9 };
        let begun = ClusterStatus { cut_off: vec![cut], ..ClusterStatus::default() };
        let last = |meta: &Metadata, after: &ClusterStatus| {
            let events = Events::default();
            events.note_status(meta, &begun, after, 7);
            events.all().remove(0).text
        };
        let silent = ClusterStatus { silent: [NodeId(0)].into(), ..ClusterStatus::default() };
        let between = "Replication of bucket \"b\" from 127.0.0.1:8091 to 127.0.0.2:8091";
        let waits = format!("{between} waits for 127.0.0.1:8091, which is not heard of.");
        assert_eq!(last(&meta, &silent), waits);
        let mut out = meta.clone();
        out.nodes[0].membership = Membership::InactiveFailed;
        assert_eq!(last(&out, &silent), format!("{between} has ended: 127.0.0.1:8091 was failed over."));
        assert_eq!(last(&meta, &ClusterStatus::default()), format!("{between} goes on."));
    }

    #[test]
    fn nodes_whose_metadata_differ_are_named_with_what_to_do() {
        let meta = added(&added(&Metadata::new("c".into(), 1024), 0), 1);
        let one = ClusterStatus { diverged: [(NodeId(1), 64)].into(), ..ClusterStatus::default() };
        let both = [(NodeId(0), 64), (NodeId(1), 64)].into();
        let undecided = ClusterStatus { undecided: both, ..ClusterStatus::default() };
        let events = Events::default();
        for status in [&one, &undecided] {
            events.note_status(&meta, &ClusterStatus::default(), status, 7);
            events.note_status(&meta, status, status, 8);
        }
        let told: Vec<Event> = events.all();
        assert_eq!(told.len(), 2, "each once");
        assert!(told.iter().all(|event| event.severity == Severity::Critical));
        assert!(told[0].text.starts_with("The metadata of node 127.0.0.2:8091 differ"));
        assert!(told[0].text.contains("remove it and add it again"));
        assert!(told[1].text.starts_with("The metadata of nodes 127.0.0.1:8091, 127.0.0.2:8091 differ"));
        assert_eq!(outages(&meta, &one), [Notice::new("", &told[0].text)], "as an alert too");
    }

    #[test]
    fn an_election_that_waits_says_for_whom_and_what_failing_it_over_costs() {
        let meta = added(&added(&Metadata::new("c".into(), 1024), 0), 1);
        let wait = Awaited { bucket: "b".into(), node: NodeId(1), vbs: 512, may_serve: false };
        let hangs = ClusterStatus {
            awaited: vec![Awaited { may_serve: true, ..wait.clone() }],
            ..ClusterStatus::default()
        };
        assert!(outages(&meta, &hangs)[0].text.contains("before 127.0.0.2:8091 is known to serve nothing"));
        let waits = ClusterStatus { awaited: vec![wait], ..ClusterStatus::default() };
        let events = Events::default();
        events.note_status(&meta, &ClusterStatus::default(), &waits, 7);
        events.note_status(&meta, &waits, &ClusterStatus::default(), 8);
        let told: Vec<String> = events.all().into_iter().map(|event| event.text).collect();
        assert_eq!(told[0], outages(&meta, &waits)[0].text);
        assert!(
            told[0].starts_with("Nobody serves 512 vBuckets of bucket \"b\" before 127.0.0.2:8091 is back")
        );
        assert!(told[0].contains("gives up what only 127.0.0.2:8091 has"));
        assert_eq!(told[1], "Nothing in bucket \"b\" waits for 127.0.0.2:8091 any more.");
    }

    #[test]
    fn a_bucket_that_is_flushed_is_not_told_of_as_deleted() {
        let empty = added(&Metadata::new("c".into(), 1024), 0);
        let params =
            BucketParams { ram_quota_mb: Some(100), flush_enabled: Some(true), ..BucketParams::default() };
        let uuid = |text: &str| base::BucketUuid(text.into());
        let made = Command::CreateBucket { name: "b".into(), uuid: uuid("1"), params };
        let made = empty.apply(&made).unwrap().0;
        let flushed = made.apply(&Command::FlushBucket { name: "b".into(), uuid: uuid("2") }).unwrap().0;
        let events = Events::default();
        for (before, after) in [(&empty, &made), (&made, &flushed), (&flushed, &empty)] {
            events.note(before, after, 7);
        }
        let told: Vec<String> = events.all().into_iter().map(|event| event.text).collect();
        let expected = [
            "Bucket \"b\" was created.",
            "Bucket \"b\" was emptied: it was flushed, or deleted and made anew.",
            "Bucket \"b\" was deleted.",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn the_life_of_a_node_is_told_in_order() {
        let events = Events::default();
        let one = added(&Metadata::new("c".into(), 1024), 0);
        let two = added(&one, 1);
        let keep = vec![base::NodeId(0), base::NodeId(1)];
        let start = StartRebalance { id: "r".into(), keep, eject: Vec::new(), now_ms: 1000 };
        let balanced = two.apply(&Command::StartRebalance(start)).unwrap().0;
        let balanced = balanced.apply(&Command::FinishRebalance { id: "r".into(), now_ms: 4000 }).unwrap().0;
        let fail = FailOver { nodes: vec![base::NodeId(1)], allow_unsafe: true, auto: false };
        let failed = balanced.apply(&Command::FailOver(fail)).unwrap().0;
        let removed = failed.apply(&Command::RemoveNode { node: base::NodeId(1) }).unwrap().0;
        let states = [one, two, balanced, failed, removed];
        for pair in states.windows(2) {
            events.note(&pair[0], &pair[1], 7);
        }
        let told: Vec<String> = events.all().into_iter().map(|event| event.text).collect();
        assert_eq!(
            told,
            [
                "Node 127.0.0.2:8091 was added.",
                "Node 127.0.0.2:8091 holds data from now on.",
                "Rebalance completed in 3 s.",
                "Node 127.0.0.2:8091 was failed over.",
                "Node 127.0.0.2:8091 left the cluster.",
            ]
        );
    }

    #[test]
    fn what_the_cluster_did_is_counted_under_couchbases_names() {
        let two = added(&added(&Metadata::new("c".into(), 1024), 0), 1);
        let (node, id) = (NodeId(1), |text: &str| text.to_owned());
        let keep = vec![NodeId(0), node];
        let start = |name: &str| {
            let keep = keep.clone();
            Command::StartRebalance(StartRebalance { id: id(name), keep, eject: Vec::new(), now_ms: 1000 })
        };
        let end = |name: &str| Command::FinishRebalance { id: id(name), now_ms: 4000 };
        let events = Events::default();
        assert!(events.counts().is_empty(), "what never happened has no entry");
        let mut state = two;
        let mut then = |commands: &[Command]| {
            let before = state.clone();
            for command in commands {
                state = state.apply(command).unwrap().0;
            }
            events.note(&before, &state, 7);
            events.counts().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(then(&[start("a")]), [("rebalance_start", 1)]);
        assert_eq!(then(&[end("a")]), [("rebalance_start", 1), ("rebalance_success", 1)]);
        let counts = then(&[start("b"), Command::StopRebalance { id: None, now_ms: 5000 }]);
        assert_eq!(counts, [("rebalance_start", 2), ("rebalance_stop", 1), ("rebalance_success", 1)]);
        // The next one begins in the state in which the last one is seen to have ended.
        let _ = then(&[start("c")]);
        let counts = then(&[end("c"), start("d")]);
        assert_eq!(counts, [("rebalance_start", 4), ("rebalance_stop", 1), ("rebalance_success", 2)]);
        let _ = then(&[end("d")]);
        let fail = FailOver { nodes: vec![node], allow_unsafe: true, auto: false };
        let counts = then(&[Command::FailOver(fail)]);
        assert_eq!(counts[..2], [("failover", 1), ("failover_complete", 1)]);
        assert_eq!(counts.len(), 5, "{counts:?}");
        assert_eq!(then(&[]), counts);
        events.note(&state, &Metadata::new("another".into(), 1024), 8);
        assert!(events.counts().is_empty(), "what another cluster did is not counted");
    }

    #[test]
    fn a_graceful_failover_is_counted_apart_from_rebalances() {
        let before = added(&added(&Metadata::new("c".into(), 1024), 0), 1);
        let kind = RebalanceKind::GracefulFailover;
        let of = |result| {
            let mut after = before.clone();
            let (id, started_ms, ended_ms) = ("g".to_owned(), 1, 2);
            after.last_rebalance = Some(RebalanceOutcome { id, kind, started_ms, ended_ms, result });
            counted(&before, &after)
        };
        assert_eq!(of(RebalanceResult::Completed), ["graceful_failover_start", "graceful_failover_success"]);
        assert_eq!(of(RebalanceResult::Stopped)[1], "graceful_failover_stop");
        assert_eq!(of(RebalanceResult::Failed("why".into()))[1], "graceful_failover_fail");
    }
}
