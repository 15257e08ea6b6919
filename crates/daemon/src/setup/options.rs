//! What a node is started with, after flags, environment and configuration file have been merged by the caller.

use std::{net::IpAddr, path::PathBuf, process::Command, str::FromStr};

use cluster::{BucketParams, LegacyParams};
use serde::{Deserialize, Serialize};
use storage::DiskLimits;

/// Ports of a node; 0 asks the operating system for a free one, `None` switches the listener off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOptions {
    /// REST, plain.
    pub mgmt: u16,
    /// REST over TLS.
    pub mgmt_tls: u16,
    /// Documents (memcached binary protocol), plain.
    pub kv: u16,
    /// Documents over TLS.
    pub kv_tls: u16,
    /// Views.
    pub capi: u16,
    /// Views over TLS.
    pub capi_tls: u16,
    /// Plain memcached text and binary protocol.
    pub memcached: Option<u16>,
}

impl Default for PortOptions {
    /// Couchbase's standard ports.
    fn default() -> Self {
        Self {
            mgmt: 8091,
            mgmt_tls: 18091,
            kv: 11210,
            kv_tls: 11207,
            capi: 8092,
            capi_tls: 18092,
            memcached: Some(11211),
        }
    }
}

/// The ports in use, as reported in the ports file and on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortsInUse {
    /// REST, plain.
    pub mgmt: u16,
    /// REST over TLS.
    pub mgmt_tls: u16,
    /// Documents, plain.
    pub kv: u16,
    /// Documents over TLS.
    pub kv_tls: u16,
    /// Views.
    pub capi: u16,
    /// Views over TLS.
    pub capi_tls: u16,
    /// Plain memcached protocol; 0 when switched off.
    pub memcached: u16,
}

/// Unattended initialisation: what `POST /clusterInit` would do on a node that is new, and a first bucket on one that
/// has none.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// Administrator's name.
    pub username: String,
    /// Administrator's password.
    pub password: String,
    /// Name shown for the cluster.
    pub cluster_name: String,
    /// A first bucket, created when the node has none.
    pub bucket: Option<InitBucket>,
}

/// The first bucket of an unattended start.
#[derive(Clone, Debug)]
pub struct InitBucket {
    /// Its name.
    pub name: String,
    /// Its memory quota in MiB.
    pub quota_mb: u64,
    /// Opens the bucket to clients that cannot authenticate: passwordless attachment and port 11211.
    pub legacy_access: bool,
}

impl InitBucket {
    /// The bucket as it is created. Nobody can empty it by one request until an administrator allows that.
    pub(crate) fn params(&self) -> BucketParams {
        let legacy = LegacyParams {
            passwordless: Some(self.legacy_access),
            memcached_port: Some(self.legacy_access),
            ..LegacyParams::default()
        };
        BucketParams {
            ram_quota_mb: Some(self.quota_mb),
            replicas: Some(0),
            legacy,
            ..BucketParams::default()
        }
    }
}

/// What buckets leave of the disk to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskOptions {
    /// Reads and writes per second.
    pub limits: DiskLimits,
    /// Space that stays free: below, mutations that grow are refused.
    pub free_min: DiskFreeMin,
}

/// Space that must stay free on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskFreeMin {
    /// A gigabyte, or four percent of a smaller disk.
    #[default]
    Standard,
    /// So many bytes; 0: none.
    Bytes(u64),
    /// A share of the disk.
    Percent(u8),
}

/// A number of bytes, or a percentage.
impl FromStr for DiskFreeMin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().filter(|&percent| percent < 100).map(Self::Percent),
            None => text.parse().ok().map(Self::Bytes),
        };
        parsed.ok_or_else(|| "neither bytes nor a percentage below 100, as in 10%".into())
    }
}

/// Everything `serve` needs to know.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where all state lives; created if missing.
    pub data_dir: PathBuf,
    /// The address every listener binds to and the node is known by.
    pub listen: IpAddr,
    /// Listener ports.
    pub ports: PortOptions,
    /// Where to write the ports in use (JSON) once the node is ready.
    pub ports_file: Option<PathBuf>,
    /// Data workers; one epoll loop each.
    pub workers: usize,
    /// Client connections accepted at most; reduced to what the file limit allows.
    pub connections_max: usize,
    /// Memory for all buckets together, in MiB.
    pub memory_quota_mb: u64,
    /// How much of the disk all buckets together may use, and how fast.
    pub disk: DiskOptions,
    /// PEM certificate chain and key for the TLS ports; a self-signed pair is made when absent.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Unattended initialisation.
    pub init: Option<InitOptions>,
    /// Runs functions of views.
    pub functions: Program,
}

/// A program that the node starts.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Program {
    /// What starts it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_bucket_is_emptied_by_nobody_until_somebody_allows_that() {
        let bucket = InitBucket { name: "b".into(), quota_mb: 100, legacy_access: true };
        assert_ne!(bucket.params().flush_enabled, Some(true));
    }
}
