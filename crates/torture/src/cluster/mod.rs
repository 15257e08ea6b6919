//! A cluster of our own: a child process per node, each with an address of its own, formed as an administrator would.
//!
//! More nodes may run than are members: the others are spares to be added. Where the machine allows it each node lives in
//! a network namespace, so that links can be cut; elsewhere on loopback addresses.

pub mod admin;
pub mod network;

use crate::TortureError;
use crate::process::NodeProcess;
use crate::target::{PASSWORD, Settling, Target, USER, disk_flags};
use admin::{Admin, State};
use client::{Login, Rest};
use network::Network;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a cluster may take to come to rest after whatever was done to it.
const REST: Duration = Duration::from_secs(240);
/// How long a node that was just added may take to be known as healthy.
const HEARD: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(200);
const MGMT: u16 = 8091;
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
    /// Seconds without a sign of life until a node is failed over; without, nobody is.
    pub auto_failover: Option<u64>,
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
            let flags = flags(options, *address);
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

    fn form(&mut self) -> Result<(), TortureError> {
        let admin = self.admin();
        let first = self.rest_of(0);
        self.initialise(0)?;
        for node in 1..self.options.members {
            self.initialise(node)?;
            admin.add(&first, node)?;
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

    /// Who speaks to whichever node answers.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin::new((0..self.nodes.len()).map(|node| self.rest_of(node)).collect())
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
        let (_, rest) = admin.state(&self.spares())?;
        for &node in members.iter().filter(|node| !self.members.contains(node)) {
            self.initialise(node)?;
            admin.add(&rest, node)?;
        }
        let leaving: Vec<_> = self.members.iter().filter(|node| !members.contains(node)).copied().collect();
        let eject: Vec<String> = leaving.iter().map(|&node| self.hostname(node)).collect();
        self.members = members;
        let began = Instant::now();
        loop {
            let (state, _) = admin.state(&[self.spares(), leaving.clone()].concat())?;
            match admin::rebalance(&rest, &state, &eject) {
                // A node that was just added has not been heard of yet.
                Err(_) if began.elapsed() < HEARD => std::thread::sleep(LOOK),
                other => return other,
            }
        }
    }

    /// Lets whoever was failed over come back, and waits until the cluster is at rest with its members.
    ///
    /// # Errors
    /// It is not within four minutes; the text says why not.
    pub fn mend(&mut self, delta: bool) -> Result<Duration, TortureError> {
        let began = Instant::now();
        let wanted = self.hostnames();
        let mut reason = String::new();
        while began.elapsed() < REST {
            match self.look(&wanted, delta) {
                Ok(None) => return Ok(began.elapsed()),
                Ok(Some(unrest)) => reason = unrest,
                Err(error) => reason = error.to_string(),
            }
            std::thread::sleep(LOOK);
        }
        Err(TortureError::Node(format!("the cluster does not come to rest: {reason}")))
    }

    fn await_rest(&mut self) -> Result<(), TortureError> {
        self.mend(true).map(|_| ())
    }

    /// One look at the cluster, and a hand where one is needed.
    fn look(&self, wanted: &[String], delta: bool) -> Result<Option<String>, TortureError> {
        let (state, rest) = self.admin().state(&self.spares())?;
        let unrest = state.unrest(wanted);
        if state.rebalancing.is_none() && unrest.is_some() && all_healthy(&state) {
            for member in state.members.iter().filter(|member| member.membership == "inactiveFailed") {
                admin::recover(&rest, member, delta)?;
            }
            let known = |member: &&admin::Member| !wanted.contains(&member.hostname);
            let eject: Vec<String> =
                state.members.iter().filter(known).map(|member| member.hostname.clone()).collect();
            admin::rebalance(&rest, &state, &eject)?;
        }
        Ok(unrest)
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

fn flags(options: &ClusterOptions, address: IpAddr) -> Vec<String> {
    let quota = options.quota_mb.max(256).to_string();
    let mut flags = vec!["--listen".to_owned(), address.to_string(), "--memory-quota-mb".to_owned(), quota];
    flags.extend(disk_flags(options.disk_bytes_per_sec, options.disk_iops));
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
        self.options.disk_bytes_per_sec * self.members.len() as u64
    }

    fn kill(&mut self, node: usize) -> Result<(), TortureError> {
        self.nodes[node].kill()
    }

    fn restart(&mut self, node: usize) -> Result<(), TortureError> {
        self.nodes[node].start(&[]).map(|_| ())
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
