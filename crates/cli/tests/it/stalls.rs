//! A stall of known size, and what an operator sees of it: in the histogram, the objective, its burn and the alert. Each is of the node that
//! stalls, and of no other one. A stall is a link that is slow, or a disk that is.
//!
//! Every writer times its own writes. An operation cannot take longer on the server than for its client, and no shorter than the
//! stall. So both bound the histogram from either side, however busy this machine is.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use base::{bucket::DurabilityLevel, hash::vbucket_of};
use client::{Client, KvConnection, Rest, WriteOptions};
use protocol::binary::Opcode;
use serde_json::Value;

use crate::{
    cluster::{Cluster, VBUCKETS, eventually},
    cut_off::{form, name},
    delays::within,
    login,
    node::{Node, PASSWORD, USERNAME},
    probe::{figure, metrics},
};

/// The node that stalls. The first one leads as a rule.
const STALLED: usize = 2;
/// A rule says nothing of fewer events.
pub(crate) const EVENTS: usize = 110;
const WRITERS: usize = 12;
/// What docs/operating says of how soon a stall is seen. The histogram shows it once an interval of five seconds is over, and an alert fires
/// a second after the objective has it.
const HISTOGRAM: Duration = Duration::from_secs(6);
const OBJECTIVE: Duration = Duration::from_secs(5);
const ALERT: Duration = Duration::from_secs(6);
/// Answers of other nodes are shared for so long. What REST tells of all nodes may be as old.
const SHARED: Duration = Duration::from_secs(1);

/// The nodes of the copies of every vBucket, the active one first. By the cluster's rule all copies behind one node are on the same.
fn chains(cluster: &Cluster) -> Vec<Vec<usize>> {
    let map = &cluster.rest().get_json("/pools/default/buckets/app").unwrap()["vBucketServerMap"];
    let node_of = |place: &Value| {
        let address = map["serverList"][place.as_u64()? as usize].as_str()?;
        cluster.nodes.iter().position(|node| address.ends_with(&format!(":{}", node.port("kv"))))
    };
    let chain_of =
        |row: &Value| -> Vec<usize> { row.as_array().unwrap().iter().filter_map(node_of).collect() };
    map["vBucketMap"].as_array().unwrap().iter().map(chain_of).collect()
}

/// Keys of documents that a node serves.
pub(crate) fn keys(cluster: &Cluster, prefix: &str, node: usize, count: usize) -> Vec<String> {
    let (chains, vbuckets) = (chains(cluster), VBUCKETS.parse().unwrap());
    let all = (0..100_000).map(|number| format!("{prefix}-{number}"));
    let is_there =
        |key: &String| chains[usize::from(vbucket_of(key.as_bytes(), vbuckets).get())].first() == Some(&node);
    let found: Vec<String> = all.filter(is_there).take(count).collect();
    assert_eq!(found.len(), count, "of node {node}: {chains:?}");
    found
}

/// Waits until every node serves its part of the bucket. A slow disk takes a while for that.
fn wait_open(cluster: &Cluster) {
    for node in &cluster.nodes {
        eventually("the bucket is open", || KvConnection::open(&node.kv(), &login("app")).ok());
    }
}

/// What is written, and when it is done.
pub(crate) struct Writes<'a> {
    pub(crate) opcode: Opcode,
    pub(crate) value: &'a [u8],
    pub(crate) durability: Option<DurabilityLevel>,
}

impl Writes<'_> {
    /// Writes these documents, several at once; how many microseconds each took, ascending.
    pub(crate) fn to(&self, cluster: &Cluster, keys: &[String]) -> Vec<u64> {
        let options = WriteOptions { durability: self.durability, ..WriteOptions::default() };
        let one = |client: &mut Client, key: &String| {
            let begun = Instant::now();
            let stored = client.store(self.opcode, key.as_bytes(), self.value, &options);
            stored.unwrap_or_else(|error| panic!("{key}: {error}"));
            begun.elapsed().as_micros() as u64
        };
        let mut took: Vec<u64> = thread::scope(|scope| {
            let writer = |part: usize| {
                scope.spawn(move || {
                    let mut client = cluster.client();
                    keys.iter()
                        .skip(part)
                        .step_by(WRITERS)
                        .map(|key| one(&mut client, key))
                        .collect::<Vec<_>>()
                })
            };
            let writers: Vec<_> = (0..WRITERS).map(writer).collect();
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        took.sort_unstable();
        took
    }
}

/// The steps of what the cluster's histogram has of an operation: one for each, ascending.
fn histogram(rest: &Rest, operation: &str) -> Vec<(u64, u64)> {
    let shown = rest.get_json(&format!("/settee/latency/app?operation={operation}")).unwrap();
    let intervals = shown["operations"][operation]["histograms"].as_array().cloned().unwrap_or_default();
    let steps = intervals.iter().flat_map(|steps| steps.as_array().unwrap());
    let of = |step: &Value| {
        let [from, to, count] = [0, 1, 2].map(|at| step[at].as_u64().unwrap());
        std::iter::repeat_n((from, to), count as usize)
    };
    let mut all: Vec<(u64, u64)> = steps.flat_map(of).collect();
    all.sort_unstable();
    all
}

/// The histogram has these writes in their size. So many of them are as long as the stall or longer.
fn histogram_shows(rest: &Rest, ended: Instant, took: &[u64], stalled: usize, stall_us: u64) {
    let steps = within(ended, HISTOGRAM + SHARED, || {
        let steps = histogram(rest, "set");
        if steps.len() == took.len() {
            Ok(steps)
        } else {
            Err(format!("{} of {} writes", steps.len(), took.len()))
        }
    });
    let middle = steps.len() - stalled / 2;
    println!("{stall_us} us: half of {stalled} within {:?}, {} us for clients", steps[middle], took[middle]);
    for (at, ((from, _), took)) in steps.iter().zip(took).enumerate() {
        assert!(
            from <= took,
            "write {at} took {from} us or more on the server, and {took} us for its client"
        );
    }
    let long = &steps[steps.len() - stalled..];
    assert!(long.iter().all(|(_, to)| *to > stall_us), "a stall of {stall_us} us is not in {long:?}");
    let others = steps.len() - stalled;
    let middle = steps[others / 2];
    assert!(middle.1 <= stall_us, "half of what does not stall takes {middle:?} us");
}

/// What a node tells of an objective in `/metrics`: the events that were not good, and all of them.
fn counted(node: &Node, objective: &str) -> Option<(usize, usize)> {
    let rest = Rest::new(node.rest(), Some((USERNAME, PASSWORD)));
    let metrics = String::from_utf8(rest.get("/metrics").unwrap()).unwrap();
    let of = |family: &str| {
        let is_it = |line: &&str| {
            line.starts_with(&format!("{family}{{")) && line.contains(&format!("objective=\"{objective}\""))
        };
        let value = metrics.lines().find(is_it)?.rsplit_once(' ')?.1;
        value.parse::<f64>().ok().map(|value| value as usize)
    };
    let (total, good) = (of("settee_slo_events_total")?, of("settee_slo_good_events_total")?);
    Some((total - good, total))
}

/// Sets an objective, and waits until these nodes count for it.
pub(crate) fn set_objective(cluster: &Cluster, nodes: &[Node], name: &str, operation: &str, latency_us: u64) {
    let latency = latency_us.to_string();
    let form = [("operation", operation), ("latencyUs", &*latency), ("targetPercent", "99")];
    cluster.rest().put(&format!("/settee/slo/app/{name}"), &form).unwrap();
    for node in nodes {
        eventually("the node counts for the objective", || counted(node, name));
    }
}

/// The nodes on which a budget of this objective burns fast.
fn burning(rest: &Rest, subject: &str) -> BTreeSet<String> {
    let told = rest.get_json("/settee/alerts").unwrap();
    let firing = told["firing"].as_array().unwrap().iter();
    let of_it = firing.filter(|one| one["name"] == "budget_burns_fast" && one["subject"] == subject);
    let nodes = of_it.flat_map(|one| one["seenBy"].as_array().unwrap());
    nodes.filter_map(|node| node.as_str().map(str::to_owned)).collect()
}

/// What stalls: so many writes on the node of that number and name, for as long as the objective's limit at the least.
struct Stalls<'a> {
    on: usize,
    node: &'a str,
    stalled: usize,
    limit_us: u64,
}

/// The objective `durable` has what stalled on this node, its budget burns, and that node alone tells it.
fn objective_shows(cluster: &Cluster, stalls: &Stalls<'_>, ended: Instant, took: &[u64]) {
    let (rest, &Stalls { on, node, stalled, limit_us }) = (cluster.rest(), stalls);
    let slow_for_clients = took.iter().filter(|took| **took >= limit_us).count();
    let nodes = within(ended, OBJECTIVE, || {
        let nodes: Vec<_> = cluster.nodes.iter().filter_map(|node| counted(node, "durable")).collect();
        let total: usize = nodes.iter().map(|(_, total)| total).sum();
        if total == took.len() { Ok(nodes) } else { Err(format!("{nodes:?} of {} writes", took.len())) }
    });
    println!("(bad, all) {nodes:?}");
    let bad: usize = nodes.iter().map(|(bad, _)| bad).sum();
    assert!(nodes[on].0 >= stalled && bad <= slow_for_clients, "{nodes:?}, {slow_for_clients} for clients");
    let told = within(ended, OBJECTIVE + SHARED, || {
        let told = rest.get_json("/settee/slo/app/durable").unwrap();
        if told["rules"][0]["holds"] == true { Ok(told) } else { Err(told.to_string()) }
    });
    assert_eq!(told["state"], "exhausted", "{told}");
    let expected = bad as f64 / took.len() as f64 / 0.01;
    let burn = told["burn"]["5m"].as_f64().unwrap();
    assert!((burn - expected).abs() < 0.01, "the budget burns {burn} times too fast, not {expected}");
    let burns = within(ended, ALERT + SHARED, || {
        let burns = burning(&rest, "app/durable");
        if burns.is_empty() { Err("no node tells that the budget burns".into()) } else { Ok(burns) }
    });
    assert_eq!(burns, BTreeSet::from([node.to_owned()]), "{told}");
}

/// What a probe has found of one node from another, in microseconds: the median of the last minute and the newest.
struct Probed {
    is_slow: bool,
    median: u64,
    last: u64,
}

/// What probes have found of every pair of nodes, once all of them have tried. A pair is slow where one of both is the stalled one.
fn probed(cluster: &Cluster) -> Option<Vec<Probed>> {
    let told = cluster.rest().get_json("/settee/probe").unwrap();
    let stalled = name(cluster, STALLED);
    let of = |one: &Value| {
        let get = &one["operations"]["get"];
        let is_slow = (one["from"] == stalled.as_str()) != (one["to"] == stalled.as_str());
        Some(Probed { is_slow, median: get["p50Us"].as_u64()?, last: get["lastUs"].as_u64()? })
    };
    let pairs: Vec<Probed> = told["results"].as_array()?.iter().filter_map(of).collect();
    (pairs.len() == cluster.nodes.len().pow(2)).then_some(pairs)
}

/// How many gets of probes took this long or longer, by the histograms of all nodes. `le` is a bound that the histogram has.
fn slow_probes(cluster: &Cluster, le: &str) -> usize {
    slow_probes_by_pair(cluster, le).values().sum()
}

/// The same by the nodes that probe and that are probed, as each node tells it of itself.
fn slow_probes_by_pair(cluster: &Cluster, le: &str) -> BTreeMap<(String, String), usize> {
    let names: Vec<String> = (0..cluster.nodes.len()).map(|node| name(cluster, node)).collect();
    let pairs = names.iter().enumerate().flat_map(|(number, from)| {
        let metrics = metrics(&cluster.nodes[number]);
        let slow = |to: &String| {
            let labels = [format!("to=\"{to}\""), "operation=\"get\"".to_owned(), format!("le=\"{le}\"")];
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            let of = |family: &str, labels: &[&str]| figure(&metrics, family, labels).unwrap();
            let all = of("settee_probe_seconds_count{", &labels[..2]);
            (all - of("settee_probe_seconds_bucket{", &labels)) as usize
        };
        names.iter().map(|to| ((from.clone(), to.clone()), slow(to))).collect::<Vec<_>>()
    });
    pairs.collect()
}

/// Of the four pairs of nodes that the slow link joins, each has had a slow probe since.
fn slow_is_seen(
    cluster: &Cluster,
    le: &str,
    before: &BTreeMap<(String, String), usize>,
) -> Result<(), String> {
    let stalled = name(cluster, STALLED);
    let now = slow_probes_by_pair(cluster, le);
    let joined = now.iter().filter(|((from, to), _)| (*from == stalled) != (*to == stalled));
    let slow = joined.filter(|(pair, count)| before[*pair] < **count).count();
    if slow == 4 { Ok(()) } else { Err(format!("{slow} of 4 pairs are slow: {before:?} {now:?}")) }
}

/// Gets of probes that were not good for the objective.
fn bad_probes(rest: &Rest) -> usize {
    let told = rest.get_json("/settee/slo/app/gets").unwrap();
    let events = &told["seenFromOutside"]["probe"]["events"];
    (events["total"].as_u64().unwrap_or_default() - events["good"].as_u64().unwrap_or_default()) as usize
}

/// Writes one document on each of these nodes, which is not counted as the others are.
fn warm_up(cluster: &Cluster, nodes: &[usize], durability: Option<DurabilityLevel>) {
    wait_open(cluster);
    let warm: Vec<String> = nodes.iter().flat_map(|node| keys(cluster, "warm", *node, 1)).collect();
    Writes { opcode: Opcode::Add, value: b"warm", durability }.to(cluster, &warm);
}

#[test]
fn a_slow_link_is_seen_in_its_size_and_by_the_nodes_that_it_joins() {
    /// A request and its answer take twice of that over the slow link.
    const TRAVEL: Duration = Duration::from_millis(150);
    /// The probe's histogram has this bound in seconds, and the server's has it as well.
    const LIMIT: (u64, &str) = (262_144, "0.262144");
    let (cluster, wires) = form();
    let (rest, stall_us) = (cluster.rest(), 2 * TRAVEL.as_micros() as u64);
    wait_open(&cluster);
    // The node whose copies are behind the link, and the one whose copies are not.
    let with_chain = |is_it: fn(&[usize]) -> bool| {
        chains(&cluster).iter().find(|chain| is_it(chain)).map(|chain| chain[0]).unwrap()
    };
    let behind = with_chain(|chain| chain[1] == STALLED);
    let other = with_chain(|chain| !chain.contains(&STALLED));
    let durability = Some(DurabilityLevel::Majority);
    warm_up(&cluster, &[behind, other], durability);
    set_objective(&cluster, &cluster.nodes, "durable", "durable", LIMIT.0 - 1);
    set_objective(&cluster, &cluster.nodes, "gets", "get", LIMIT.0 - 1);
    rest.put("/settee/probe", &[("periodSecs", "1")]).unwrap();
    eventually("every node probes every node", || probed(&cluster));
    let before = (bad_probes(&rest), slow_probes(&cluster, LIMIT.1));
    let pairs_before = slow_probes_by_pair(&cluster, LIMIT.1);

    wires.slow(STALLED, TRAVEL);
    // A round of probes begins each second.
    within(Instant::now(), Duration::from_secs(1) + 2 * TRAVEL, || {
        slow_is_seen(&cluster, LIMIT.1, &pairs_before)
    });
    let written = [behind, other].map(|node| keys(&cluster, "key", node, EVENTS)).concat();
    let writes = Writes { opcode: Opcode::Set, value: b"a value", durability };
    let (took, ended) = (writes.to(&cluster, &written), Instant::now());
    let node = name(&cluster, behind);
    let stalls = Stalls { on: behind, node: &node, stalled: EVENTS, limit_us: LIMIT.0 };
    objective_shows(&cluster, &stalls, ended, &took);
    histogram_shows(&rest, ended, &took, EVENTS, stall_us);

    // Probes find the same, of the pairs of nodes that the link joins. Half of their gets were asked after it has become slow.
    let pairs = eventually("half of the probes over the link are slow", || {
        let pairs = probed(&cluster)?;
        pairs.iter().all(|pair| !pair.is_slow || pair.median >= stall_us).then_some(pairs)
    });
    for pair in &pairs {
        // The step of its histogram that has the stall ends at twice of the limit.
        let is_it = if pair.is_slow { pair.median < 2 * LIMIT.0 } else { pair.median < stall_us };
        assert!(is_it, "a median of {} us, slow link: {}", pair.median, pair.is_slow);
    }
    assert_eq!(pairs.iter().filter(|pair| pair.is_slow).count(), 4);
    // Both count the same probes, some of which may have come between these questions.
    let least = slow_probes(&cluster, LIMIT.1);
    let bad = bad_probes(&rest);
    let most = slow_probes(&cluster, LIMIT.1);
    assert!(least >= 8, "{least} slow probes by the histogram");
    let of_objective = bad - before.0;
    assert!(
        (least - before.1..=most).contains(&of_objective),
        "{of_objective} of {least} to {most}, before {before:?}"
    );

    wires.mend();
    eventually("the link is as it was", || {
        probed(&cluster)?.iter().all(|pair| pair.last < stall_us).then_some(())
    });
}

#[test]
fn a_slow_disk_is_seen_in_its_size_and_of_its_node_alone() {
    /// Ten reads, writes and syncs a second. What has not been used for 20 ms is lost.
    const SLOW_DISK: &[&str] = &["--disk-iops", "10"];
    /// A durable write that reaches the disk takes a write and a sync, at the least.
    const STALL_US: u64 = 180_000;
    const LIMIT_US: u64 = 131_072;
    let cluster = Cluster::form_with(3, "0", |node| if node == STALLED { SLOW_DISK } else { &[] });
    let rest = cluster.rest();
    let (nodes, durability) = ([0, 1, STALLED], Some(DurabilityLevel::PersistToMajority));
    warm_up(&cluster, &nodes, durability);
    set_objective(&cluster, &cluster.nodes, "durable", "durable", LIMIT_US - 1);
    set_objective(&cluster, &cluster.nodes, "reads", "get", LIMIT_US - 1);

    let written = nodes.map(|node| keys(&cluster, "key", node, EVENTS)).concat();
    let took = Writes { opcode: Opcode::Set, value: b"a value", durability }.to(&cluster, &written);
    let ended = Instant::now();
    let node = cluster.nodes[STALLED].rest();
    let stalls = Stalls { on: STALLED, node: &node, stalled: EVENTS, limit_us: LIMIT_US };
    objective_shows(&cluster, &stalls, ended, &took);
    histogram_shows(&rest, ended, &took, EVENTS, STALL_US);
    // What is in memory is read as fast as ever.
    let mut client = cluster.client();
    for key in &written {
        assert!(client.get(key.as_bytes()).unwrap().is_some(), "{key}");
    }
    let reads = within(Instant::now(), OBJECTIVE + SHARED, || {
        let told = rest.get_json("/settee/slo/app/reads").unwrap();
        if told["events"]["total"] == written.len() { Ok(told) } else { Err(told.to_string()) }
    });
    assert!(burning(&rest, "app/reads").is_empty(), "{reads}");
}
