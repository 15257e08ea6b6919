//! A node that is cut off from its cluster and still reached by clients, while settings of automatic failover change.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use base::{Status, VbId, bucket::DurabilityLevel};
use client::{Client, KvConnection, Rest};
use protocol::binary::{Opcode, Request};
use tempfile::TempDir;

use crate::{
    cluster::{Cluster, SOON, VBUCKETS, eventually},
    login,
    node::{Node, USERNAME},
    wires::{self, Wires},
};

/// The node that is cut off. The first one leads as a rule.
const CUT: usize = 2;
const KEYS: usize = 120;

/// Three nodes with a bucket `app` and one replica, with wires between them.
pub(crate) fn form() -> (Cluster, Wires) {
    let dirs: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let start = |(index, dir): (usize, &TempDir)| {
        let init: &[&str] = if index == 0 { &["--init-username", USERNAME] } else { &[] };
        Node::start(dir.path(), init)
    };
    let cluster = Cluster { nodes: dirs.iter().enumerate().map(start).collect(), dirs };
    let wires = Wires::lay(&cluster.nodes);
    let rest = cluster.rest();
    rest.post("/node/controller/rename", &[("hostname", &*wires::host(0))]).unwrap();
    let others = [1, 2].map(|index| name(&cluster, index));
    cluster.command(&["add", &others[0], &others[1], "--rebalance"]);
    let bucket = [("name", "app"), ("ramQuotaMB", "100"), ("replicaNumber", "1"), ("numVBuckets", VBUCKETS)];
    rest.post("/pools/default/buckets", &bucket).unwrap();
    (cluster, wires)
}

/// What the cluster calls a node.
pub(crate) fn name(cluster: &Cluster, node: usize) -> String {
    format!("{}:{}", wires::host(node), cluster.nodes[node].port("mgmt"))
}

/// What the node that is cut off has answered.
struct Answer {
    key: String,
    asked: Instant,
    /// What it read; none for a write that it acknowledged.
    read: Option<Vec<u8>>,
}

/// Reads and writes at the node that is cut off, until it is over. `serves` says whether the last round was answered at all.
fn probe(
    mut node: KvConnection,
    keys: &BTreeMap<String, VbId>,
    over: &AtomicBool,
    serves: &AtomicBool,
) -> Vec<Answer> {
    let mut answers = Vec::new();
    while !over.load(Ordering::SeqCst) {
        let before = answers.len();
        for (key, vb) in keys {
            let asked = Instant::now();
            let get = Request { key: key.as_bytes(), vbucket: *vb, ..Request::new(Opcode::Get) };
            let got = node.call(&get).unwrap();
            if got.status == Some(Status::Success) {
                answers.push(Answer { key: key.clone(), asked, read: Some(got.value) });
            }
            let asked = Instant::now();
            let set = Request { value: b"cut off", extras: &[0; 8], ..get };
            let stored = node.call(&Request { opcode: Opcode::Set, ..set }).unwrap();
            if stored.status == Some(Status::Success) {
                answers.push(Answer { key: key.clone(), asked, read: None });
            }
        }
        serves.store(answers.len() > before, Ordering::SeqCst);
    }
    answers
}

fn set(client: &mut Client, key: &str, value: &str, durability: Option<DurabilityLevel>) {
    let options = client::WriteOptions { durability, ..Default::default() };
    client.store(Opcode::Set, key.as_bytes(), value.as_bytes(), &options).unwrap();
}

/// Ends the prober, whatever becomes of the test.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A node is cut off under leases, the settings of automatic failover change, and an operator fails it over at once. It may
/// serve until its lease has run out, and nobody else serves before that.
fn is_failed_over_by_hand_after(change: &[(&str, &str)]) {
    let (cluster, wires) = form();
    let rest = cluster.rest();
    rest.post("/settings/autoFailover", &[("enabled", "true"), ("timeout", "30")]).unwrap();
    let mut client = cluster.client();
    let all: Vec<String> = (0..KEYS).map(|number| format!("key-{number}")).collect();
    all.iter().for_each(|key| set(&mut client, key, "before", Some(DurabilityLevel::Majority)));
    let its = format!("{}:{}", wires::host(CUT), cluster.nodes[CUT].port("kv"));
    let place = client.map().nodes.iter().position(|node| *node == its).unwrap();
    let vb_of = |key: &String| (key.clone(), client.map().vbucket_of(key.as_bytes()));
    let keys: BTreeMap<_, _> =
        all.iter().map(vb_of).filter(|(_, vb)| client.map().active_node(*vb) == Some(place)).collect();
    assert!(!keys.is_empty());

    let (over, serves) = (AtomicBool::new(false), AtomicBool::new(true));
    let direct = KvConnection::open(&cluster.nodes[CUT].kv(), &login("app")).unwrap();
    wires.cut(CUT);
    let (written, answers) = thread::scope(|scope| {
        let prober = scope.spawn(|| probe(direct, &keys, &over, &serves));
        let ends = Over(&over);
        rest.post("/settings/autoFailover", change).unwrap();
        cluster.command(&["failover", "--hard", &name(&cluster, CUT)]);
        let mut client = cluster.client();
        client.patience = SOON;
        let write = |key: &String| {
            // One copy is left, which is no majority.
            set(&mut client, key, "after", None);
            (key.clone(), Instant::now())
        };
        let written: BTreeMap<String, Instant> = keys.keys().map(write).collect();
        eventually("the node that is cut off stops to serve", || {
            (!serves.load(Ordering::SeqCst)).then_some(())
        });
        drop(ends);
        (written, prober.join().unwrap())
    });
    println!("{} answers of the node that was cut off, {} keys", answers.len(), keys.len());
    let late: Vec<_> = answers.iter().filter(|answer| answer.asked > written[&answer.key]).collect();
    let stale = late.iter().filter(|answer| answer.read.is_some()).count();
    assert!(late.is_empty(), "{stale} stale reads, {} writes acknowledged by both", late.len() - stale);
    let mut client = cluster.client();
    for key in keys.keys() {
        assert_eq!(client.get(key.as_bytes()).unwrap().unwrap().value, b"after", "{key}");
    }
}

#[test]
fn a_node_cut_off_under_a_longer_lease_than_that_of_now_is_succeeded_when_that_is_over() {
    is_failed_over_by_hand_after(&[("enabled", "true"), ("timeout", "1")]);
}

#[test]
fn so_is_one_where_automatic_failover_was_switched_off_meanwhile() {
    is_failed_over_by_hand_after(&[("enabled", "false")]);
}

/// The node that is down never says that it knows of the new settings.
#[test]
fn a_shorter_timeout_that_is_set_while_a_node_is_down_holds_for_that_node() {
    let mut cluster = Cluster::form(3);
    let rest = cluster.rest();
    let set = |timeout| rest.post("/settings/autoFailover", &[("enabled", "true"), ("timeout", timeout)]);
    set("600").unwrap();
    cluster.nodes[1].kill();
    let member = |of: &str| {
        let pool = rest.get_json("/pools/default").ok()?;
        let lost = cluster.nodes[1].rest();
        pool["nodes"].as_array()?.iter().find(|node| node["hostname"] == lost.as_str())?[of]
            .as_str()
            .map(str::to_owned)
    };
    eventually("the node is missed", || (member("status")? == "unhealthy").then_some(()));
    set("2").unwrap();
    eventually("it is failed over", || (member("clusterMembership")? == "inactiveFailed").then_some(()));
}

/// A load balancer takes such a node out of its list, and puts it back in without anybody's help.
#[test]
fn a_node_that_is_cut_off_says_that_it_is_not_ready_until_it_is_heard_again() {
    let (cluster, wires) = form();
    // Far longer than its lease: it is not failed over meanwhile.
    cluster.rest().post("/settings/autoFailover", &[("enabled", "true"), ("timeout", "600")]).unwrap();
    let probe = |of: &str| {
        Rest::new(cluster.nodes[CUT].rest(), None).request("GET", &format!("/health/{of}"), &[]).unwrap()
    };
    let is_ready = || (probe("ready").code == 200).then_some(());
    eventually("all nodes are ready", is_ready);
    wires.cut(CUT);
    let unready = eventually("its lease ends", || Some(probe("ready")).filter(|answer| answer.code == 503));
    let said = String::from_utf8(unready.body).unwrap();
    assert!(said.contains("lost touch with its cluster"), "{said}");
    assert_eq!(probe("live").code, 200, "nothing would be better after a restart");
    wires.mend();
    eventually("it is heard again", is_ready);
}
