//! Several nodes as one cluster: replication, the loss of a node, its return, and rebalancing, through the commands that
//! people use.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use base::{Status, bucket::DurabilityLevel};
use client::{Client, Login, Rest};
use protocol::binary::Opcode;
use tempfile::TempDir;

use crate::node::{Node, PASSWORD, USERNAME, settee};

/// Whatever a cluster does by itself it has done by then, on a busy machine too.
pub(crate) const SOON: Duration = Duration::from_secs(60);
pub(crate) const VBUCKETS: &str = "64";

/// Nodes with their folders. The first one is initialised; it is the one that is asked.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) dirs: Vec<TempDir>,
}

impl Cluster {
    /// So many nodes as one cluster with a bucket `app`, of which there is one replica.
    pub(crate) fn form(count: usize) -> Self {
        Self::form_with(count, "1", |_| &[])
    }

    /// The same with another count of replicas, and flags that each node has by its number.
    pub(crate) fn form_with(
        count: usize,
        replicas: &str,
        flags: impl Fn(usize) -> &'static [&'static str],
    ) -> Self {
        let dirs: Vec<TempDir> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let start = |(index, dir): (usize, &TempDir)| {
            let init: &[&str] = if index == 0 { &["--init-username", USERNAME] } else { &[] };
            Node::start(dir.path(), &[init, flags(index)].concat())
        };
        let cluster = Self { nodes: dirs.iter().enumerate().map(start).collect(), dirs };
        let others: Vec<String> = cluster.nodes[1..].iter().map(Node::rest).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        cluster.command(&[&["add"], &others[..], &["--rebalance"]].concat());
        let bucket =
            [("name", "app"), ("ramQuotaMB", "100"), ("replicaNumber", replicas), ("numVBuckets", VBUCKETS)];
        cluster.rest().post("/pools/default/buckets", &bucket).unwrap();
        cluster
    }

    pub(crate) fn rest(&self) -> Rest {
        Rest::new(self.nodes[0].rest(), Some((USERNAME, PASSWORD)))
    }

    pub(crate) fn client(&self) -> Client {
        self.try_client().unwrap()
    }

    pub(crate) fn try_client(&self) -> client::Result<Client> {
        let user = Some((USERNAME.into(), PASSWORD.into()));
        let login = Login { user, bucket: Some("app".into()), collections: false };
        Client::connect(&self.nodes[0].kv(), &login)
    }

    /// `settee cluster …`, which has to succeed; what it says.
    pub(crate) fn command(&self, args: &[&str]) -> String {
        let (succeeded, said) = self.try_command(args);
        assert!(succeeded, "{args:?}: {said}");
        said
    }

    /// The same, which has to be refused.
    pub(crate) fn refusal(&self, args: &[&str]) -> String {
        let (succeeded, said) = self.try_command(args);
        assert!(!succeeded, "{args:?}: {said}");
        said
    }

    fn try_command(&self, args: &[&str]) -> (bool, String) {
        let host = self.nodes[0].rest();
        let output = settee()
            .arg("cluster")
            .args(args)
            .args(["--host", &host, "--username", USERNAME])
            .env("SETTEE_PASSWORD", PASSWORD)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }
}

/// Writes documents that have to be on a majority of copies when that is said; what they are.
pub(crate) fn write_durably(client: &mut Client, prefix: &str, count: usize) -> BTreeMap<String, String> {
    let write = |index| {
        let (key, value) = (format!("{prefix}-{index}"), format!("value of {prefix}-{index}"));
        let written = store(client, &key, &value, Some(DurabilityLevel::Majority));
        written.unwrap_or_else(|error| panic!("{key}: {error}"));
        (key, value)
    };
    (0..count).map(write).collect()
}

fn store(
    client: &mut Client,
    key: &str,
    value: &str,
    durability: Option<DurabilityLevel>,
) -> client::Result<client::Mutation> {
    let options = client::WriteOptions { durability, ..Default::default() };
    client.store(Opcode::Set, key.as_bytes(), value.as_bytes(), &options)
}

/// Every document is there. One whose commit the node that was lost had not passed on is neither shown nor denied until
/// enough copies have it again.
pub(crate) fn assert_has(client: &mut Client, documents: &BTreeMap<String, String>) {
    for (key, value) in documents {
        let found = eventually(key, || settled(client, key));
        assert_is(found, key, value);
    }
}

/// No document is lost, while too few copies are left to settle the prepares that an election has to decide.
fn assert_none_is_lost(client: &mut Client, documents: &BTreeMap<String, String>) {
    for (key, value) in documents {
        if let Some(found) = settled(client, key) {
            assert_is(found, key, value);
        }
    }
}

/// What a read finds; `None` while the node does not say.
fn settled(client: &mut Client, key: &str) -> Option<Option<client::Document>> {
    match client.get(key.as_bytes()) {
        Err(error) if error.status() == Some(Status::SyncWriteReCommitInProgress) => None,
        found => Some(found.unwrap_or_else(|error| panic!("{key}: {error}"))),
    }
}

fn assert_is(found: Option<client::Document>, key: &str, value: &str) {
    let found = found.unwrap_or_else(|| panic!("{key} is lost"));
    assert_eq!(String::from_utf8_lossy(&found.value), value);
}

fn assert_lacks(client: &mut Client, documents: &BTreeMap<String, String>) {
    for key in documents.keys() {
        let found = client.get(key.as_bytes()).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert!(found.is_none(), "{key} is back");
    }
}

/// Repeats something until it answers.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    eventually_or_say(|| look().ok_or_else(|| what.to_owned()))
}

/// The same; what the last look has found wrong is said when the patience ends.
pub(crate) fn eventually_or_say<T>(mut look: impl FnMut() -> Result<T, String>) -> T {
    let started = Instant::now();
    loop {
        let wrong = match look() {
            Ok(found) => return found,
            Err(wrong) => wrong,
        };
        assert!(started.elapsed() < SOON, "{wrong}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn durable_writes_survive_the_loss_of_a_node_and_all_that_follows() {
    let mut cluster = Cluster::form(3);
    let mut client = cluster.client();
    let mut written = write_durably(&mut client, "before", 300);

    cluster.nodes[1].kill();
    let lost = cluster.nodes[1].rest();
    cluster.command(&["failover", "--hard", &lost]);
    let mut client = cluster.client();
    assert_none_is_lost(&mut client, &written);
    assert!(!client.map().nodes.contains(&cluster.nodes[1].kv()));

    // It comes back with what it had.
    let dir = cluster.dirs[1].path().to_owned();
    cluster.nodes[1].restart(&dir);
    cluster.command(&["recover", "--delta", &lost, "--rebalance"]);
    let mut client = cluster.client();
    assert!(client.map().nodes.contains(&cluster.nodes[1].kv()));
    assert_has(&mut client, &written);
    written.append(&mut write_durably(&mut client, "after", 300));

    // Another one leaves in peace.
    let leaving = cluster.nodes[2].rest();
    cluster.command(&["remove", &leaving]);
    let mut client = cluster.client();
    assert_eq!(client.map().nodes.len(), 2);
    assert_has(&mut client, &written);
    write_durably(&mut client, "last", 100);
}

#[test]
fn a_node_that_restarts_uncleanly_serves_what_its_replicas_have() {
    let mut cluster = Cluster::form(3);
    let mut client = cluster.client();
    let written = write_durably(&mut client, "key", 300);
    let dir = cluster.dirs[2].path().to_owned();
    cluster.nodes[2].kill();
    cluster.nodes[2].restart(&dir);
    eventually("every document is served again", || {
        let mut client = cluster.client();
        client.patience = Duration::from_secs(2);
        written.keys().all(|key| client.get(key.as_bytes()).is_ok_and(|found| found.is_some())).then_some(())
    });
    assert_has(&mut cluster.client(), &written);
}

#[test]
fn a_flush_empties_every_copy_for_good() {
    let mut cluster = Cluster::form(3);
    let rest = cluster.rest();
    rest.post("/pools/default/buckets/app", &[("flushEnabled", "1")]).unwrap();
    let gone = write_durably(&mut cluster.client(), "before", 300);
    rest.post("/pools/default/buckets/app/controller/doFlush", &[]).unwrap();
    let mut client = cluster.client();
    assert_lacks(&mut client, &gone);
    let kept = write_durably(&mut client, "after", 200);

    // Replicas take the place of one node's copies, and what that node has on disk comes back with it. A prepare that is open when
    // a node is lost is another matter: here every copy is to be whole.
    eventually("every replica is whole", || {
        let pool = rest.get_json("/pools/default").ok()?;
        let on = |node: &serde_json::Value| node["interestingStats"]["vb_replica_curr_items"].as_u64();
        let replicas: u64 = pool["nodes"].as_array()?.iter().filter_map(on).sum();
        (replicas == kept.len() as u64).then_some(())
    });
    cluster.nodes[1].kill();
    let lost = cluster.nodes[1].rest();
    cluster.command(&["failover", "--hard", &lost]);
    let mut client = cluster.client();
    assert_lacks(&mut client, &gone);
    assert_none_is_lost(&mut client, &kept);
    let dir = cluster.dirs[1].path().to_owned();
    cluster.nodes[1].restart(&dir);
    cluster.command(&["recover", "--delta", &lost, "--rebalance"]);
    let mut client = cluster.client();
    assert_lacks(&mut client, &gone);
    assert_has(&mut client, &kept);

    // Documents are counted once, on whichever node they are.
    eventually("every document is counted", || {
        let bucket = rest.get_json("/pools/default/buckets/app").ok()?;
        (bucket["basicStats"]["itemCount"] == kept.len()).then_some(())
    });

    // While a node is away it cannot say that it is empty.
    cluster.nodes[2].kill();
    eventually("the node is missed", || {
        let pool = rest.get_json("/pools/default").ok()?;
        pool["nodes"].as_array()?.iter().any(|node| node["status"] == "unhealthy").then_some(())
    });
    let refused = rest.post("/pools/default/buckets/app/controller/doFlush", &[]).unwrap_err();
    assert!(refused.to_string().contains("not heard of"), "{refused}");
}

#[test]
fn a_bucket_is_dropped_once_no_node_serves_it() {
    let cluster = Cluster::form(3);
    let rests = [0, 1].map(|node| Rest::new(cluster.nodes[node].rest(), Some((USERNAME, PASSWORD))));
    let connects = |node: usize| {
        let user = Some((USERNAME.into(), PASSWORD.into()));
        Client::connect(
            &cluster.nodes[node].kv(),
            &Login { user, bucket: Some("app".into()), collections: false },
        )
    };
    eventually("the bucket is served", || connects(2).ok());
    // It lags. Should it wake after the answer, it would serve the bucket until it hears of its end.
    cluster.nodes[2].pause();
    let [asked, _] = rests.clone();
    let dropping = thread::spawn(move || (asked.delete("/pools/default/buckets/app"), Instant::now()));
    for rest in &rests {
        let is_gone =
            || (rest.request("GET", "/pools/default/buckets/app", &[]).unwrap().code == 404).then_some(());
        eventually("the others have heard of it", is_gone);
    }
    (0..20).for_each(|_| drop(rests[0].get_json("/pools").unwrap()));
    let resumed = Instant::now();
    cluster.nodes[2].resume();
    let (dropped, answered) = dropping.join().unwrap();
    assert!(answered > resumed, "one of its nodes had not heard of it: {dropped:?}");
    if dropped.is_ok() {
        assert!(connects(2).is_err(), "it is served no more");
    }
}

#[test]
fn the_cluster_goes_on_without_the_node_that_led_it() {
    let mut cluster = Cluster::form(3);
    let rest = |node: &Node| Rest::new(node.rest(), Some((USERNAME, PASSWORD)));
    let change = |node: &Node, quota_mb: &str| {
        rest(node).post("/pools/default/buckets/app", &[("ramQuotaMB", quota_mb)]).unwrap();
    };
    let has = |node: &Node, quota_mb: u64| {
        eventually("the change arrives", || {
            let bucket = rest(node).get_json("/pools/default/buckets/app").ok()?;
            (bucket["quota"]["rawRAM"] == quota_mb * 1024 * 1024).then_some(())
        });
    };
    // The others joined it, so it leads.
    cluster.nodes[0].kill();
    change(&cluster.nodes[1], "101");
    has(&cluster.nodes[2], 101);
    let dir = cluster.dirs[0].path().to_owned();
    cluster.nodes[0].restart(&dir);
    has(&cluster.nodes[0], 101);
    // Any node takes a change, whichever leads now, and after every one of them has been away.
    for index in 1..3 {
        assert!(cluster.nodes[index].terminate().success());
        change(&cluster.nodes[0], if index == 1 { "102" } else { "103" });
        let dir = cluster.dirs[index].path().to_owned();
        cluster.nodes[index].restart(&dir);
    }
    cluster.nodes.iter().for_each(|node| has(node, 103));
}

#[test]
fn one_of_two_nodes_goes_on_where_that_is_allowed_and_the_lost_one_joins_it() {
    let mut cluster = Cluster::form(2);
    let mut client = cluster.client();
    let mut written = write_durably(&mut client, "before", 200);

    cluster.nodes[1].kill();
    let lost = cluster.nodes[1].rest();
    cluster.command(&["failover", "--hard", "--unsafe", &lost]);
    let mut client = cluster.client();
    client.patience = SOON;
    assert_has(&mut client, &written);
    for index in 0..50 {
        let (key, value) = (format!("alone-{index}"), format!("value of alone-{index}"));
        store(&mut client, &key, &value, None).unwrap_or_else(|error| panic!("{key}: {error}"));
        written.insert(key, value);
    }

    // It comes back with a log in which it is one of two, and knows better soon.
    let dir = cluster.dirs[1].path().to_owned();
    cluster.nodes[1].restart(&dir);
    let its_own_view = Rest::new(cluster.nodes[1].rest(), Some((USERNAME, PASSWORD)));
    eventually("the lost node hears that it was failed over", || {
        let pool = its_own_view.get_json("/pools/default").ok()?;
        let nodes = pool["nodes"].as_array()?;
        let failed = nodes.iter().filter(|node| node["clusterMembership"] == "inactiveFailed");
        (nodes.len() == 2 && failed.count() == 1).then_some(())
    });
    let mut client = cluster.client();
    assert!(!client.map().nodes.contains(&cluster.nodes[1].kv()));
    assert_has(&mut client, &written);

    // And it takes part again once somebody lets it.
    cluster.command(&["recover", "--delta", &lost, "--rebalance"]);
    let mut client = cluster.client();
    assert!(client.map().nodes.contains(&cluster.nodes[1].kv()));
    assert_has(&mut client, &written);
    write_durably(&mut client, "after", 100);
}

#[test]
fn a_node_that_starts_without_the_others_serves_nothing_until_somebody_decides() {
    let mut cluster = Cluster::form(2);
    let written = write_durably(&mut cluster.client(), "key", 100);
    let dir = cluster.dirs[0].path().to_owned();
    cluster.nodes[1].kill();
    assert!(cluster.nodes[0].terminate().success());
    cluster.nodes[0].restart(&dir);
    // The other one may have been told to go on without it. What the last changes were, the bucket perhaps, it need not know.
    if let Ok(mut client) = cluster.try_client() {
        client.patience = Duration::from_secs(1);
        assert!(written.keys().take(3).all(|key| client.get(key.as_bytes()).is_err()));
    }

    let lost = cluster.nodes[1].rest();
    cluster.command(&["failover", "--hard", "--unsafe", &lost]);
    let mut client = cluster.client();
    client.patience = SOON;
    assert_has(&mut client, &written);
}

#[test]
fn a_node_that_is_removed_while_it_is_away_begins_anew_once_it_hears_of_it() {
    let mut cluster = Cluster::form(3);
    let written = write_durably(&mut cluster.client(), "key", 200);
    let removed = cluster.nodes[1].rest();
    cluster.nodes[1].kill();
    cluster.command(&["failover", "--hard", &removed]);
    cluster.command(&["remove", &removed]);

    // Nobody is there who could tell it.
    let dirs: Vec<_> = cluster.dirs.iter().map(|dir| dir.path().to_owned()).collect();
    for index in [0, 2] {
        assert!(cluster.nodes[index].terminate().success());
    }
    cluster.nodes[1].restart(&dirs[1]);
    let pool = Rest::new(removed.clone(), Some((USERNAME, PASSWORD))).get_json("/pools/default").unwrap();
    assert_eq!(pool["nodes"].as_array().unwrap().len(), 3);

    for index in [0, 2] {
        cluster.nodes[index].restart(&dirs[index]);
    }
    eventually("the node belongs to nobody", || is_new(&cluster.nodes[1]).then_some(()));
    cluster.command(&["add", &removed, "--rebalance"]);
    let mut client = cluster.client();
    assert!(client.map().nodes.contains(&cluster.nodes[1].kv()));
    assert_has(&mut client, &written);
}

#[test]
fn a_node_that_reaches_nobody_is_made_new_by_hand() {
    let mut cluster = Cluster::form(2);
    write_durably(&mut cluster.client(), "key", 100);
    cluster.nodes[0].kill();
    let rest = Rest::new(cluster.nodes[1].rest(), Some((USERNAME, PASSWORD)));
    rest.post("/controller/hardResetNode", &[]).unwrap();
    assert!(is_new(&cluster.nodes[1]));
    let dir = cluster.dirs[1].path().to_owned();
    eventually("the files are gone", || {
        std::fs::read_dir(dir.join("data/buckets")).unwrap().next().is_none().then_some(())
    });
    cluster.nodes[1].kill();
    cluster.nodes[1].restart(&dir);
    assert!(is_new(&cluster.nodes[1]));
}

/// Whether a node waits to be set up, or added to a cluster.
fn is_new(node: &Node) -> bool {
    let pools = Rest::new(node.rest(), None).get_json("/pools");
    pools.is_ok_and(|pools| pools["pools"].as_array().is_some_and(Vec::is_empty))
}
