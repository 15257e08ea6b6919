//! The active probe of nodes that are processes: what it finds of nodes that answer, stall and stop.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use client::Rest;
use protocol::binary::Opcode;
use serde_json::Value;

use crate::{
    cluster::{Cluster, eventually, eventually_or_say},
    delays::within,
    node::{Node, PASSWORD, USERNAME},
    stalls,
};

/// The timeout of an operation, as the probe counts it.
const TIMEOUT_US: u64 = 2_500_000;
/// Between two rounds of probes to a node, where a stall is looked for.
const PERIOD: Duration = Duration::from_secs(1);

fn set(rest: &Rest, form: &[(&str, &str)]) {
    rest.put("/settee/probe", form).unwrap();
}

/// What every node has found, once each of so many pairs of nodes is among it.
fn results(rest: &Rest) -> Vec<Value> {
    rest.get_json("/settee/probe").unwrap()["results"].as_array().unwrap().clone()
}

fn to<'a>(found: &'a [Value], node: &Node) -> impl Iterator<Item = &'a Value> {
    let name = node.rest();
    found.iter().filter(move |one| one["to"] == name.as_str())
}

/// A place to which alerts are posted. It takes each post at once: a node would post it again.
pub(crate) struct Inbox(Arc<Mutex<Vec<Value>>>);

impl Inbox {
    pub(crate) fn of(rest: &Rest) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let posted = Arc::<Mutex<Vec<Value>>>::default();
        let taking = Arc::clone(&posted);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let post = taken(stream);
                taking.lock().unwrap().push(post);
            }
        });
        rest.put("/settee/alerts/webhook", &[("url", &url)]).unwrap();
        Self(posted)
    }

    /// The nodes that have posted by now that this fires, once for each post.
    pub(crate) fn told(&self, name: &str, subject: &str) -> Vec<String> {
        self.posted("fired", name, subject)
    }

    /// The nodes that have posted this event by now, once for each post.
    pub(crate) fn posted(&self, event: &str, name: &str, subject: &str) -> Vec<String> {
        let is_it = |one: &&Value| one["name"] == name && one["subject"] == subject && one["event"] == event;
        let from = |one: &Value| one["node"].as_str().unwrap().to_owned();
        self.0.lock().unwrap().iter().filter(is_it).map(from).collect()
    }
}

/// What one post says.
fn taken(mut stream: TcpStream) -> Value {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut post = Vec::new();
    loop {
        let mut part = [0; 4_096];
        let length = stream.read(&mut part).unwrap();
        post.extend_from_slice(&part[..length]);
        let text = String::from_utf8_lossy(&post);
        let body = text.split_once("\r\n\r\n").map(|(_, body)| serde_json::from_str(body));
        if let Some(Ok(body)) = body {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
            return body;
        }
        assert!(length > 0, "{text}");
    }
}

/// The nodes that tell that a node does not answer probes.
fn seen_by(rest: &Rest, node: &Node) -> usize {
    let shown = rest.get_json("/settee/alerts").unwrap();
    let firing = shown["firing"].as_array().unwrap().iter();
    let mut it =
        firing.filter(|one| one["name"] == "probe_not_answered" && one["subject"] == node.rest().as_str());
    it.next().map_or(0, |one| one["seenBy"].as_array().unwrap().len())
}

fn stat(cluster: &Cluster, name: &str) -> String {
    let mut client = cluster.client();
    let connection = client.connection(base::VbId(0)).unwrap();
    let all = connection.stats("").unwrap();
    all.into_iter().find(|(known, _)| known == name).unwrap().1
}

/// What a node tells of itself to Prometheus.
pub(crate) fn metrics(node: &Node) -> String {
    let metrics = Rest::new(node.rest(), Some((USERNAME, PASSWORD))).get("/metrics").unwrap();
    String::from_utf8(metrics).unwrap()
}

/// What a node says in a line of `/metrics` that begins like this, and has these labels.
pub(crate) fn figure(metrics: &str, family: &str, labels: &[&str]) -> Option<f64> {
    let is_it = |line: &&str| line.starts_with(family) && labels.iter().all(|label| line.contains(label));
    metrics.lines().find(is_it)?.rsplit_once(' ')?.1.parse().ok()
}

/// Whether a node was answered by another one in its last round of probes.
fn sees_up(node: &Node, other: &Node) -> bool {
    let to = format!("to=\"{}\"", other.rest());
    figure(&metrics(node), "settee_probe_up{", &[&to]) == Some(1.0)
}

/// Gets of probes between these nodes that took longer than a second.
fn long_gets(nodes: &[Node]) -> u64 {
    let of_pair = |metrics: &str, to: &Node| {
        let (to, get) = (format!("to=\"{}\"", to.rest()), "operation=\"get\"");
        let all = figure(metrics, "settee_probe_seconds_count{", &[&to, get]).unwrap();
        let le = "le=\"1.048576\"";
        (all - figure(metrics, "settee_probe_seconds_bucket{", &[&to, get, le]).unwrap()) as u64
    };
    let of_node = |node: &Node| {
        let metrics = metrics(node);
        nodes.iter().map(|to| of_pair(&metrics, to)).sum::<u64>()
    };
    nodes.iter().map(of_node).sum()
}

#[test]
fn every_node_probes_every_node_apart_from_what_clients_do() {
    let cluster = Cluster::form(3);
    let rest = cluster.rest();
    let all_answer_gets = || {
        let found = results(&rest);
        let answers =
            |one: &Value| one["operations"]["get"]["answered"].as_u64() > Some(1) && one["up"] == true;
        (found.len() == 9 && found.iter().all(answers)).then_some(found)
    };
    let found = eventually("nine pairs answer gets that nobody has asked for", all_answer_gets);
    let are_gets = |one: &Value| one["operations"].as_object().unwrap().keys().eq(["get"]);
    assert!(found.iter().all(are_gets), "{found:?}");
    assert_eq!(stat(&cluster, "curr_items"), "0", "nothing is written unasked");
    set(&rest, &[("writes", "true"), ("periodSecs", "1")]);
    let all_answer = || {
        let found = results(&rest);
        let answers = |one: &Value| {
            ["get", "set", "durable"]
                .iter()
                .all(|name| one["operations"][*name]["answered"].as_u64() > Some(1))
                && one["up"] == true
        };
        (found.len() == 9 && found.iter().all(answers)).then_some(found)
    };
    let found = eventually("nine pairs answer three operations", all_answer);
    assert!(found.iter().all(|one| one["bucket"] == "app"), "{found:?}");
    for name in ["cmd_get", "cmd_set", "get_misses"] {
        assert_eq!(stat(&cluster, name), "0", "{name}: probes are not clients");
    }
    let metrics = String::from_utf8(rest.get("/metrics").unwrap()).unwrap();
    let up = format!("settee_probe_up{{bucket=\"app\",to=\"{}\"}} ", cluster.nodes[1].rest());
    assert!(metrics.lines().any(|line| line.starts_with(&up)), "{up}");
    assert!(metrics.contains("settee_probe_seconds_bucket{bucket=\"app\",to=\""));
    let published = String::from_utf8(rest.get("/settee/probe/metrics").unwrap()).unwrap();
    for family in [
        "couchbase_up{",
        "couchbase_latency{",
        "couchbase_operations{",
        "couchbase_membership{",
        "couchbase_stats{",
        "memcached_up{",
        "memcached_latency{",
        "memcached_stats{",
    ] {
        assert!(published.lines().any(|line| line.starts_with(family)), "{family}: {published}");
    }
    let instance = format!("instance=\"{}\"", cluster.nodes[0].rest());
    let size = figure(&published, "couchbase_stats{", &["bucket=\"app\"", &instance, "name=\"ep_max_size\""]);
    assert_eq!(size, figure(&published, "memcached_stats{", &["bucket=\"app\"", "name=\"ep_max_size\""]));
    assert!(size > Some(0.0), "{published}");
    assert_eq!(figure(&published, "couchbase_membership{", &["membership=\"active\""]), Some(3.0));
    // Its documents are those that it is documented to have, and they expire.
    let shown = rest.get_json("/pools/default/buckets/app/docs?limit=100").unwrap();
    let keys: Vec<&str> =
        shown["rows"].as_array().unwrap().iter().filter_map(|row| row["id"].as_str()).collect();
    assert_eq!(keys.len(), 9, "{keys:?}");
    assert!(keys.iter().all(|key| key.starts_with("_settee:probe:")), "{keys:?}");
    a_long_value_at_a_probes_key_is_an_answer(&cluster, keys[0]);
    set(&rest, &[("buckets", "none")]);
    eventually("nothing is probed", || results(&rest).is_empty().then_some(()));
}

/// Users can guess the keys of probes, and store what they like there.
fn a_long_value_at_a_probes_key_is_an_answer(cluster: &Cluster, key: &str) {
    let rest = cluster.rest();
    set(&rest, &[("writes", "false")]);
    let answered = |one: &Value, name: &str| one["operations"][name]["answered"].as_u64().unwrap_or_default();
    // The gets of every pair are well ahead of its sets: none of them writes any more.
    let only_gets = || {
        let found = results(&rest);
        let is_ahead = |one: &Value| answered(one, "get") > answered(one, "set") + 2;
        (found.len() == 9 && found.iter().all(is_ahead)).then_some(())
    };
    eventually("no probe writes", only_gets);
    cluster.client().set(key.as_bytes(), &vec![b'x'; 5 << 20]).unwrap();
    let pair = |one: &Value| format!("{} {}", one["from"], one["to"]);
    let before: BTreeMap<String, u64> =
        results(&rest).iter().map(|one| (pair(one), answered(one, "get"))).collect();
    let all_go_on = || {
        let found = results(&rest);
        let goes_on = |one: &Value| {
            // One round may have been under way.
            one["up"] == true && before.get(&pair(one)).is_some_and(|old| answered(one, "get") > old + 2)
        };
        (found.len() == 9 && found.iter().all(goes_on)).then_some(())
    };
    eventually("every get is answered", all_go_on);
}

#[test]
fn a_stall_is_seen_in_its_size_and_a_stopped_node_is_down_with_the_timeout() {
    let cluster = Cluster::form(3);
    let rest = cluster.rest();
    let objective = [("operation", "get"), ("latencyUs", "500000"), ("targetPercent", "99")];
    rest.put("/settee/slo/app/gets", &objective).unwrap();
    // The objective alone has the bucket probed.
    set(&rest, &[("buckets", "objectives"), ("periodSecs", "1")]);
    let last = &cluster.nodes[2];
    let inbox = Inbox::of(&rest);
    let outside =
        || rest.get_json("/settee/slo/app/gets").unwrap()["seenFromOutside"]["probe"]["events"].clone();
    eventually("probes count for the objective", || (outside()["total"].as_u64() > Some(20)).then_some(()));
    let slow = || {
        let found = results(&rest);
        let p99 = to(&found, last).filter_map(|one| one["operations"]["get"]["p99Us"].as_u64());
        p99.max().unwrap_or_default()
    };

    // A stall of two seconds meets a round in its first second, by the period.
    let stall = Duration::from_secs(2);
    last.pause();
    let begun = Instant::now();
    while begun.elapsed() < stall {
        thread::park_timeout(stall - begun.elapsed());
    }
    last.resume();
    // A busy machine adds to it; it takes nothing away.
    eventually("the stall is seen", || (slow() >= 900_000).then_some(()));
    eventually("the objective has it", || {
        let events = outside();
        (events["total"].as_u64()? > events["good"].as_u64()?).then_some(())
    });

    let unanswered = |one: &Value| one["operations"]["get"]["unanswered"].as_u64().unwrap();
    let long_before = long_gets(&cluster.nodes[..2]);
    last.pause();
    // Each of the others tells for itself: what asks the stopped node as well takes long.
    within(Instant::now(), PERIOD + Duration::from_micros(TIMEOUT_US), || {
        let up = cluster.nodes[..2].iter().filter(|node| sees_up(node, last)).count();
        if up == 0 { Ok(()) } else { Err(format!("{up} nodes see it up")) }
    });
    let found = results(&rest);
    // The node itself tells nothing now.
    assert_eq!(to(&found, last).filter(|one| one["up"] == false).count(), 2, "{found:?}");
    for one in to(&found, last) {
        assert_eq!(one["operations"]["get"]["lastUs"], TIMEOUT_US, "{one}");
        assert!(unanswered(one) >= 1);
    }
    // The others are answered on, while the stopped node is not.
    let others = |found: &[Value]| -> Vec<Value> {
        cluster.nodes[..2].iter().flat_map(|other| to(found, other).cloned().collect::<Vec<_>>()).collect()
    };
    let answered = |one: &Value| one["operations"]["get"]["answered"].as_u64().unwrap();
    let pair = |one: &Value| format!("{} {}", one["from"], one["to"]);
    let before: BTreeMap<String, u64> = others(&found).iter().map(|one| (pair(one), answered(one))).collect();
    assert_eq!(before.len(), 4, "{found:?}");
    let go_on = || {
        let now = results(&rest);
        let goes_on =
            |one: &Value| one["up"] == true && before.get(&pair(one)).is_some_and(|old| answered(one) > *old);
        let is_down = to(&now, last).all(|one| one["up"] == false);
        (is_down && others(&now).iter().filter(|one| goes_on(one)).count() == 4).then_some(())
    };
    eventually("the others are answered", go_on);
    assert_eq!(long_gets(&cluster.nodes[..2]), long_before, "those between the others are as fast as ever");
    eventually("both others tell it", || (seen_by(&rest, last) == 2).then_some(()));
    one_of_both_posts_it(&cluster, &inbox, last);
    last.resume();
    eventually("it is up again", || results(&rest).iter().all(|one| one["up"] == true).then_some(()));
}

/// Two nodes tell that another one does not answer probes. What each of them posts of its own afterwards comes behind that.
fn one_of_both_posts_it(cluster: &Cluster, inbox: &Inbox, silent: &Node) {
    let posts = || inbox.told("probe_not_answered", &silent.rest());
    eventually("a node posts it", || (!posts().is_empty()).then_some(()));
    // No value of 64 KiB is taken in as fast as that.
    stalls::set_objective(cluster, &cluster.nodes[..2], "large", "set", 8);
    let large = stalls::Writes { opcode: Opcode::Set, value: &vec![b'x'; 64 << 10], durability: None };
    for node in [0, 1] {
        let key = stalls::keys(cluster, "large", node, 1).remove(0);
        large.to(cluster, &vec![key; stalls::EVENTS]);
    }
    let both: BTreeSet<String> = cluster.nodes[..2].iter().map(Node::rest).collect();
    eventually_or_say(|| {
        let told: BTreeSet<String> = inbox.told("budget_burns_fast", "app/large").into_iter().collect();
        if told == both { Ok(()) } else { Err(format!("of their own budgets post {told:?}, not {both:?}")) }
    });
    assert_eq!(posts().len(), 1, "what both tell is posted by {:?}", posts());
}
