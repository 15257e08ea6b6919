//! A cluster of our own: a child process per node, each with an address of its own, formed as an administrator would.
//!
//! More nodes may run than are members: the others are spares to be added. Where the machine allows it each node lives in
//! a network namespace, so that links can be cut; elsewhere on loopback addresses.

pub mod admin;
pub mod copies;
pub mod network;

use crate::TortureError;
use crate::process::NodeProcess;
use crate::target::{PASSWORD, Settling, Target, USER, disk_flags};
use admin::{Admin, State};
use base::Status;
use client::{KvConnection, Login, Rest};
use copies::Seqnos;
use network::Network;
use protocol::binary::extras::VbStateFilter;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a cluster may take to come to rest after whatever was done to it.
const REST: Duration = Duration::from_secs(240);
/// How long replicas may take to have what their actives have, once the cluster is at rest.
const FED: Duration = Duration::from_secs(60);
/// How long the cluster may say "not now" to an administrator. It may be electing a leader. It may not have heard yet of
/// a node that was just added. A node that has just left may still say farewell.
const NOT_NOW: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(200);
const MGMT: u16 = 8091;
const VIEWS: u16 = 8092;
const KV: u16 = 11210;

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The `settee` binary.
    pub binary: PathBuf,
    /// Members at the beginning.
    pub members: usize,
    /// Nodes that run and are no members yet.
    pub spares: usize,
    /// Name of the bucket.
    pub bucket: &'static str,
    /// Its replicas.
    pub replicas: u8,
    /// Its quota per node in MiB.
    pub quota_mb: u64,
    /// `valueOnly` or `fullEviction`.
    pub eviction_policy: &'static str,
    /// Each disk is held to this; 0 for no limit.
    pub disk_bytes_per_sec: u64,
    /// And to so many operations; 0 for no limit.
    pub disk_iops: u64,
    /// The last member's disk is held to this instead.
    pub slowest_disk: Option<u64>,
    /// Seconds without a sign of life until a node is failed over; without, nobody is.
    pub auto_failover: Option<u64>,
    /// Whether nodes speak TLS to one another.
    pub encrypted: bool,
    /// Whether to try for a network of its own.
    pub namespaces: bool,
}

/// The cluster.
pub struct LocalCluster {
    options: ClusterOptions,
    nodes: Vec<NodeProcess>,
    addresses: Vec<IpAddr>,
    /// Why there are no namespaces, if there are none.
    network: Result<Network, String>,
    /// Which nodes shall be members.
    members: Vec<usize>,
}

impl LocalCluster {
    /// Starts all nodes in empty directories below `dir`, forms the cluster and creates the bucket.
    ///
    /// # Errors
    /// A node does not start, or the cluster does not form.
    pub fn start(options: &ClusterOptions, dir: &Path) -> Result<LocalCluster, TortureError> {
        let count = options.members + options.spares;
        let network = if options.namespaces {
            Network::new(count).map_err(|error| error.to_string())
        } else {
            Err("not asked for".to_owned())
        };
        let addresses: Vec<IpAddr> = (0..count)
            .map(|node| network.as_ref().map_or_else(|_| loopback(node), |network| network.address(node)))
            .collect();
        let mut nodes = Vec::new();
        for (node, address) in addresses.iter().enumerate() {
            let flags = flags(options, *address, disk_of(options, node));
            let process = NodeProcess::new(&options.binary, &dir.join(format!("node-{node}")), flags)?;
            let namespace = network.as_ref().ok().map(|network| network.namespace(node));
            nodes.push(process.within(namespace));
        }
        let members = (0..options.members).collect();
        let mut cluster = LocalCluster { options: options.clone(), nodes, addresses, network, members };
        for node in &mut cluster.nodes {
            node.start(&[])?;
        }
        cluster.form()?;
        Ok(cluster)
    }

    fn form(&self) -> Result<(), TortureError> {
        let admin = self.admin();
        let first = self.rest_of(0);
        self.initialise(0)?;
        if self.options.encrypted {
            // An added node does as the others do.
            admin::encrypt(&first)?;
        }
        for node in 1..self.options.members {
            self.add(&admin, node)?;
        }
        self.await_rest()?;
        if let Some(seconds) = self.options.auto_failover {
            let seconds = seconds.to_string();
            let form = [("enabled", "true"), ("timeout", seconds.as_str()), ("maxCount", "10")];
            first.post("/settings/autoFailover", &form)?;
        }
        let (quota, replicas) = (self.options.quota_mb.to_string(), self.options.replicas.to_string());
        let form = [
            ("name", self.options.bucket),
            ("ramQuotaMB", quota.as_str()),
            ("replicaNumber", replicas.as_str()),
            ("evictionPolicy", self.options.eviction_policy),
            // A short run has a quota that Couchbase would not allow.
            ("allowSmallQuota", "1"),
        ];
        first.post("/pools/default/buckets", &form)?;
        self.await_rest()
    }

    /// Gives a node a login, as its own machine alone may. One that has it already is left as it is.
    fn initialise(&self, node: usize) -> Result<(), TortureError> {
        let hostname = self.hostname(node);
        let words = ["init", "--host", &hostname, "--username", USER];
        self.nodes[node].run_beside(&words, ("SETTEE_PASSWORD", PASSWORD))
    }

    /// A node that was just started says of its buckets that they are not there, until it knows what the cluster has agreed on.
    fn await_bucket(&self, node: usize) -> Result<(), TortureError> {
        let (address, login, began) = (self.address(node), self.login(), Instant::now());
        loop {
            match KvConnection::open(&address, &login) {
                Err(error) if error.status() == Some(Status::KeyNotFound) && began.elapsed() < NOT_NOW => {
                    std::thread::sleep(LOOK);
                }
                opened => return Ok(opened.map(drop)?),
            }
        }
    }

    /// How many nodes run, members or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Replicas of the bucket.
    #[must_use]
    pub fn replicas(&self) -> u8 {
        self.options.replicas
    }

    /// Which nodes shall be members.
    #[must_use]
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// Which nodes are none.
    #[must_use]
    pub fn spares(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| !self.members.contains(node)).collect()
    }

    /// The network, or why there is none.
    ///
    /// # Errors
    /// The reason.
    pub fn network(&self) -> Result<&Network, &str> {
        self.network.as_ref().map_err(String::as_str)
    }

    /// `host:port` of a node's management, as the cluster names it.
    #[must_use]
    pub fn hostname(&self, node: usize) -> String {
        format!("{}:{MGMT}", self.addresses[node])
    }

    /// Those of all members.
    fn hostnames(&self) -> Vec<String> {
        self.members.iter().map(|&node| self.hostname(node)).collect()
    }

    /// A node's management interface.
    #[must_use]
    pub fn rest_of(&self, node: usize) -> Rest {
        Rest::new(self.hostname(node), Some((USER, PASSWORD)))
    }

    /// A node's port of views.
    #[must_use]
    pub fn views_of(&self, node: usize) -> Rest {
        Rest::new(format!("{}:{VIEWS}", self.addresses[node]), Some((USER, PASSWORD)))
    }

    /// A client of any node that answers.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin::new((0..self.nodes.len()).map(|node| self.rest_of(node)).collect())
    }

    /// The member that leads: who agrees with the others on the metadata, and sees to rebalances.
    ///
    /// # Errors
    /// Nobody does for half a minute, or nobody says.
    pub fn leader(&self) -> Result<usize, TortureError> {
        insist(|| {
            let (state, rest) = self.admin().state(&self.spares())?;
            let name = admin::orchestrator(&rest)?;
            let is_named = |node: &usize| {
                state.at(&self.hostname(*node)).is_some_and(|member| Some(&member.otp) == name.as_ref())
            };
            let leader = (0..self.len()).find(is_named);
            let leader = leader.ok_or_else(|| TortureError::Node("nobody is said to lead".to_owned()))?;
            // A node that is behind may name a former one.
            if admin::orchestrator(&self.rest_of(leader))? == name {
                return Ok(leader);
            }
            Err(TortureError::Node(format!("node {leader} is said to lead, and does not")))
        })
    }

    /// The process of a node.
    pub fn process(&mut self, node: usize) -> &mut NodeProcess {
        &mut self.nodes[node]
    }

    /// Asks for these nodes as members: adds those that are none, and starts a rebalance without those that shall go.
    ///
    /// # Errors
    /// The cluster refuses.
    pub fn change(&mut self, members: Vec<usize>) -> Result<(), TortureError> {
        let admin = self.admin();
        for &node in members.iter().filter(|node| !self.members.contains(node)) {
            self.add(&admin, node)?;
        }
        let leaving: Vec<_> = self.members.iter().filter(|node| !members.contains(node)).copied().collect();
        let eject: Vec<String> = leaving.iter().map(|&node| self.hostname(node)).collect();
        self.members = members;
        let except = [self.spares(), leaving].concat();
        insist(|| {
            let (state, rest) = admin.state(&except)?;
            // An answer may have been lost.
            if state.rebalancing.is_some() {
                return Ok(());
            }
            admin::rebalance(&rest, &state, &eject)
        })
    }

    /// Adds a node to those of the cluster; a rebalance gives it data.
    fn add(&self, admin: &Admin, node: usize) -> Result<(), TortureError> {
        insist(|| {
            let (state, rest) = admin.state(&self.spares())?;
            if state.at(&self.hostname(node)).is_some() {
                return Ok(());
            }
            self.initialise(node)?;
            admin.add(&rest, node, self.options.encrypted)
        })
    }

    /// Fails a member over, with its help or without.
    ///
    /// # Errors
    /// The cluster refuses.
    pub fn fail_over(&self, node: usize, graceful: bool) -> Result<(), TortureError> {
        let (admin, hostname) = (self.admin(), self.hostname(node));
        let except = [if graceful { Vec::new() } else { vec![node] }, self.spares()].concat();
        insist(|| {
            let (state, rest) = admin.state(&except)?;
            let member = state.at(&hostname);
            let member = member.ok_or_else(|| TortureError::Node(format!("{hostname} is no member")))?;
            // An answer may have been lost.
            if (graceful && state.rebalancing.is_some()) || member.membership == "inactiveFailed" {
                return Ok(());
            }
            admin::fail_over(&rest, member, graceful)
        })
    }

    /// Waits until every replica has what its active has now.
    ///
    /// # Errors
    /// They do not within a minute.
    pub fn await_copies(&self) -> Result<(), TortureError> {
        let addresses: Vec<String> = self.members.iter().map(|&node| self.address(node)).collect();
        let seqnos = |role| Seqnos::of(&addresses, &self.login(), role);
        let wanted = insist(|| seqnos(VbStateFilter::Active))?;
        // A small cluster has not as many as were asked for.
        let replicas = usize::from(self.options.replicas).min(self.members.len().saturating_sub(1));
        let began = Instant::now();
        let mut reason = String::new();
        while began.elapsed() < FED {
            match seqnos(VbStateFilter::Replica).map(|held| wanted.behind(&held, replicas)) {
                Ok(0) => return Ok(()),
                Ok(behind) => reason = format!("{behind} vBuckets' replicas are behind"),
                Err(error) => reason = error.to_string(),
            }
            std::thread::sleep(LOOK / 4);
        }
        Err(TortureError::Node(format!("replicas do not catch up in a cluster at rest: {reason}")))
    }

    /// Lets nodes that were failed over come back, and waits until the cluster is at rest with its members. Returns who had been
    /// failed over.
    ///
    /// # Errors
    /// It is not within four minutes; the text says why not.
    pub fn mend(&self, delta: bool) -> Result<BTreeSet<usize>, TortureError> {
        let began = Instant::now();
        let wanted = self.hostnames();
        let (mut failed_over, mut reason) = (BTreeSet::new(), String::new());
        while began.elapsed() < REST {
            match self.look(&wanted, delta, &mut failed_over) {
                Ok(None) => return Ok(failed_over),
                Ok(Some(unrest)) => reason = unrest,
                Err(error) => reason = error.to_string(),
            }
            std::thread::sleep(LOOK);
        }
        Err(TortureError::Node(format!("the cluster does not come to rest: {reason}")))
    }

    fn await_rest(&self) -> Result<(), TortureError> {
        self.mend(true).map(|_| ())
    }

    /// One look at the cluster, and a hand where one is needed. Why it is not at rest, if it is not.
    fn look(
        &self,
        wanted: &[String],
        delta: bool,
        failed_over: &mut BTreeSet<usize>,
    ) -> Result<Option<String>, TortureError> {
        let admin = self.admin();
        let (state, rest) = admin.state(&self.spares())?;
        let is_failed = |member: &&admin::Member| member.membership == "inactiveFailed";
        let was = |node: &usize| state.at(&self.hostname(*node)).as_ref().is_some_and(is_failed);
        failed_over.extend((0..self.len()).filter(was));
        let unrest = state.unrest(wanted);
        // A node that is no member any more is not brought back: nobody should have sent it away.
        let is_whole = wanted.iter().all(|hostname| state.at(hostname).is_some());
        if state.rebalancing.is_none() && unrest.is_some() && is_whole && all_healthy(&state) {
            for member in state.members.iter().filter(is_failed) {
                admin::recover(&rest, member, delta)?;
            }
            let known = |member: &&admin::Member| !wanted.contains(&member.hostname);
            let eject: Vec<String> =
                state.members.iter().filter(known).map(|member| member.hostname.clone()).collect();
            admin::rebalance(&rest, &state, &eject)?;
        }
        if unrest.is_some() {
            return Ok(unrest);
        }
        // A former leader may be believed for a moment, and what it said too: only what is agreed on tells.
        admin::forget_failovers(&rest)?;
        // A node that has just started may know no better than before.
        for &node in &self.members {
            if let Some(unrest) = admin.state_of(node)?.unrest(wanted) {
                return Ok(Some(format!("node {node} says that {unrest}")));
            }
        }
        Ok(None)
    }
}

/// Tries until it is done, or has been refused for too long.
fn insist<T>(mut tried: impl FnMut() -> Result<T, TortureError>) -> Result<T, TortureError> {
    let began = Instant::now();
    loop {
        match tried() {
            Err(_) if began.elapsed() < NOT_NOW => std::thread::sleep(LOOK),
            other => return other,
        }
    }
}

fn all_healthy(state: &State) -> bool {
    state.members.iter().all(|member| member.status == "healthy")
}

/// Loopback addresses that other clusters on this machine do not use at the same time.
fn loopback(node: usize) -> IpAddr {
    let [high, low] = ((std::process::id() % 16_384) as u16).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, 64 + high, low, node as u8 + 1))
}

/// Bytes per second that a node's disk is held to.
fn disk_of(options: &ClusterOptions, node: usize) -> u64 {
    let slowest = options.slowest_disk.filter(|_| node + 1 == options.members);
    slowest.unwrap_or(options.disk_bytes_per_sec)
}

fn flags(options: &ClusterOptions, address: IpAddr, disk_bytes_per_sec: u64) -> Vec<String> {
    let quota = options.quota_mb.max(256).to_string();
    let mut flags = vec!["--listen".to_owned(), address.to_string(), "--memory-quota-mb".to_owned(), quota];
    flags.extend(disk_flags(disk_bytes_per_sec, options.disk_iops));
    flags
}

impl Target for LocalCluster {
    fn seed(&self) -> String {
        self.address(self.members.first().copied().unwrap_or(0))
    }

    fn address(&self, node: usize) -> String {
        format!("{}:{KV}", self.addresses[node])
    }

    fn login(&self) -> Login {
        Login {
            user: Some((USER.to_owned(), PASSWORD.to_owned())),
            bucket: Some(self.options.bucket.to_owned()),
            collections: false,
        }
    }

    fn rest(&self) -> Rest {
        self.rest_of(self.members.first().copied().unwrap_or(0))
    }

    fn pids(&self) -> Vec<u32> {
        self.members.iter().filter_map(|&node| self.nodes[node].pid()).collect()
    }

    fn disk_bytes_per_sec(&self) -> u64 {
        self.members.iter().map(|&node| disk_of(&self.options, node)).sum()
    }

    fn slowest_disk(&self) -> (usize, u64) {
        let disks = self.members.iter().map(|&node| (node, disk_of(&self.options, node)));
        disks.min_by_key(|(_, bytes)| *bytes).unwrap_or_default()
    }

    fn kill(&mut self, node: usize) -> Result<(), TortureError> {
        self.nodes[node].kill()
    }

    fn restart(&mut self, node: usize) -> Result<(), TortureError> {
        self.nodes[node].start(&[])?;
        self.await_bucket(node)
    }

    fn add_node(&mut self) -> Result<(), TortureError> {
        let spare = self.spares().first().copied();
        let spare = spare.ok_or_else(|| TortureError::Node("there is no node to be added".to_owned()))?;
        self.change([self.members(), &[spare]].concat())
    }

    fn settling(&self) -> Settling {
        let wanted = self.hostnames();
        match self.admin().state(&self.spares()) {
            Err(error) => Settling::Still(error.to_string()),
            Ok((State { rebalancing: Some(percent), .. }, _)) => Settling::Moving(percent),
            Ok((state, _)) => state.unrest(&wanted).map_or(Settling::Done, Settling::Still),
        }
    }
}
