//! Whom a scenario presses: one node of our own, or a [`crate::cluster::LocalCluster`].
//!
//! [`LocalNode`] is a child process of the same binary on a loopback address, with everything it writes below one
//! directory. It dies with this value: a scenario that fails leaves nothing running.

use crate::TortureError;
use crate::process::{NodeProcess, Ports};
use client::{Login, Rest};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Name of the bucket that is pressed.
pub const BUCKET: &str = "wedge";
pub(crate) const USER: &str = "torturer";
pub(crate) const PASSWORD: &str = "iron maiden";

/// How far a target is on its way to the nodes that it shall have.
#[derive(Clone, Debug, PartialEq)]
pub enum Settling {
    /// It is there.
    Done,
    /// Data moves: so many percent.
    Moving(f64),
    /// It is not, and nothing moves: why.
    Still(String),
}

/// A cluster of one or more nodes that the scenario may kill.
pub trait Target: Send + Sync {
    /// `host:port` of a data port to learn the cluster map from.
    fn seed(&self) -> String;

    /// `host:port` of a node's data port.
    fn address(&self, node: usize) -> String;

    /// Credentials and bucket.
    fn login(&self) -> Login {
        Login {
            user: Some((USER.to_owned(), PASSWORD.to_owned())),
            bucket: Some(BUCKET.to_owned()),
            collections: false,
        }
    }

    /// The management interface.
    fn rest(&self) -> Rest;

    /// Process ids of the nodes that run on this machine, for their resident memory.
    fn pids(&self) -> Vec<u32>;

    /// Bytes per second that all disks together are held to; 0 for no limit.
    fn disk_bytes_per_sec(&self) -> u64;

    /// The node with the slowest disk, and bytes per second that this one is held to.
    fn slowest_disk(&self) -> (usize, u64) {
        (0, self.disk_bytes_per_sec())
    }

    /// kill -9 of a node.
    ///
    /// # Errors
    /// It cannot be killed.
    fn kill(&mut self, node: usize) -> Result<(), TortureError>;

    /// Starts a killed node; returns when it serves.
    ///
    /// # Errors
    /// It does not.
    fn restart(&mut self, node: usize) -> Result<(), TortureError>;

    /// Adds a node that was spared; [`Target::settling`] says when it has its share.
    ///
    /// # Errors
    /// There is none, or it is refused.
    fn add_node(&mut self) -> Result<(), TortureError> {
        Err(TortureError::Node("there is no node to be added".to_owned()))
    }

    /// How far the nodes are on their way to each having its share.
    fn settling(&self) -> Settling {
        Settling::Done
    }
}

/// What a node of our own is started with.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The `settee` binary.
    pub binary: PathBuf,
    /// A loopback address.
    pub listen: IpAddr,
    /// Quota of the bucket in MiB.
    pub quota_mb: u64,
    /// The disk is held to this; 0 for no limit.
    pub disk_bytes_per_sec: u64,
    /// And to so many operations; 0 for no limit.
    pub disk_iops: u64,
    /// `valueOnly` or `fullEviction`.
    pub eviction_policy: &'static str,
}

/// A node of our own.
pub struct LocalNode {
    options: NodeOptions,
    ports: Ports,
    process: NodeProcess,
}

impl LocalNode {
    /// Starts a node in an empty directory and creates the bucket.
    ///
    /// # Errors
    /// It does not start, or refuses the bucket.
    pub fn start(options: &NodeOptions, dir: &Path) -> Result<LocalNode, TortureError> {
        let process = NodeProcess::new(&options.binary, dir, flags(options))?;
        let process = process.with("SETTEE_INIT_PASSWORD", PASSWORD);
        let mut node = LocalNode { options: options.clone(), ports: Ports::default(), process };
        node.run()?;
        node.create_bucket()?;
        Ok(node)
    }

    fn run(&mut self) -> Result<(), TortureError> {
        // Clients come back to the ports they know.
        let (mgmt, kv) = (self.ports.mgmt.to_string(), self.ports.kv.to_string());
        self.ports = self.process.start(&["--port-mgmt".to_owned(), mgmt, "--port-kv".to_owned(), kv])?;
        Ok(())
    }

    fn create_bucket(&self) -> Result<(), TortureError> {
        let quota = self.options.quota_mb.to_string();
        let form = [
            ("name", BUCKET),
            ("ramQuotaMB", quota.as_str()),
            ("replicaNumber", "0"),
            ("evictionPolicy", self.options.eviction_policy),
            // A short run has a quota that Couchbase would not allow.
            ("allowSmallQuota", "1"),
        ];
        self.rest().post("/pools/default/buckets", &form)?;
        Ok(())
    }
}

fn flags(options: &NodeOptions) -> Vec<String> {
    let quota = options.quota_mb.max(256).to_string();
    let mut flags = vec!["--listen".to_owned(), options.listen.to_string(), "--init-username".to_owned()];
    flags.extend([USER.to_owned(), "--memory-quota-mb".to_owned(), quota]);
    for port in ["--port-mgmt-tls", "--port-kv-tls", "--port-capi", "--port-capi-tls", "--port-memcached"] {
        flags.extend([port.to_owned(), "0".to_owned()]);
    }
    flags.extend(disk_flags(options.disk_bytes_per_sec, options.disk_iops));
    flags
}

/// What holds a node's disk to a budget; 0 is no limit.
pub(crate) fn disk_flags(bytes_per_sec: u64, iops: u64) -> impl Iterator<Item = String> {
    let limits = [("--disk-bytes-per-sec", bytes_per_sec), ("--disk-iops", iops)];
    let limits = limits.into_iter().filter(|(_, limit)| *limit > 0);
    limits.flat_map(|(flag, limit)| [flag.to_owned(), limit.to_string()])
}

impl Target for LocalNode {
    fn seed(&self) -> String {
        self.address(0)
    }

    fn address(&self, _node: usize) -> String {
        format!("{}:{}", self.options.listen, self.ports.kv)
    }

    fn rest(&self) -> Rest {
        Rest::new(format!("{}:{}", self.options.listen, self.ports.mgmt), Some((USER, PASSWORD)))
    }

    fn pids(&self) -> Vec<u32> {
        self.process.pid().into_iter().collect()
    }

    fn disk_bytes_per_sec(&self) -> u64 {
        self.options.disk_bytes_per_sec
    }

    fn kill(&mut self, _node: usize) -> Result<(), TortureError> {
        self.process.kill()
    }

    fn restart(&mut self, _node: usize) -> Result<(), TortureError> {
        self.run()
    }
}
