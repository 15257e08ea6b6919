//! Whom a scenario presses: one node of our own today; a list of nodes is another implementation of the same trait.
//!
//! [`LocalNode`] is a child process of the same binary on a loopback address, with everything it writes below one
//! directory. It dies with this value: a scenario that fails leaves nothing running.

use crate::TortureError;
use client::{Login, Rest};
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Name of the bucket that is pressed.
pub const BUCKET: &str = "wedge";
const USER: &str = "torturer";
const PASSWORD: &str = "iron maiden";
/// How long a node may take to serve; it waits for no warm-up.
const START: Duration = Duration::from_secs(120);

/// A cluster of one or more nodes that the scenario may kill.
pub trait Target: Send + Sync {
    /// `host:port` of a data port to learn the cluster map from.
    fn seed(&self) -> String;

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

#[derive(Clone, Copy, Default)]
struct Ports {
    mgmt: u16,
    kv: u16,
}

/// A node of our own.
pub struct LocalNode {
    options: NodeOptions,
    dir: PathBuf,
    ports: Ports,
    process: Option<Child>,
}

impl LocalNode {
    /// Starts a node in an empty directory and creates the bucket.
    ///
    /// # Errors
    /// It does not start, or refuses the bucket.
    pub fn start(options: &NodeOptions, dir: &Path) -> Result<LocalNode, TortureError> {
        fs::create_dir_all(dir)?;
        let mut node = LocalNode {
            options: options.clone(),
            dir: dir.to_owned(),
            ports: Ports::default(),
            process: None,
        };
        node.run()?;
        node.create_bucket()?;
        Ok(node)
    }

    /// Where the node's log goes.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("node.log")
    }

    fn run(&mut self) -> Result<(), TortureError> {
        let ports_file = self.dir.join("ports.json");
        let _ = fs::remove_file(&ports_file);
        let options = &self.options;
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = Command::new(&options.binary);
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(self.dir.join("data"))
            .arg("--ports-file")
            .arg(&ports_file);
        command.args(["--listen", &options.listen.to_string(), "--init-username", USER]);
        command.args(["--memory-quota-mb", &options.quota_mb.max(256).to_string()]);
        // Clients come back to the ports they know.
        command.args(["--port-mgmt", &self.ports.mgmt.to_string(), "--port-kv", &self.ports.kv.to_string()]);
        for port in ["--port-mgmt-tls", "--port-kv-tls", "--port-capi", "--port-memcached"] {
            command.args([port, "0"]);
        }
        if options.disk_bytes_per_sec > 0 {
            command.args(["--disk-bytes-per-sec", &options.disk_bytes_per_sec.to_string()]);
        }
        if options.disk_iops > 0 {
            command.args(["--disk-iops", &options.disk_iops.to_string()]);
        }
        command.env("SETTEE_INIT_PASSWORD", PASSWORD);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        die_with_parent(&mut command);
        self.process = Some(command.spawn()?);
        self.ports = self.wait_for_ports(&ports_file)?;
        Ok(())
    }

    fn wait_for_ports(&mut self, file: &Path) -> Result<Ports, TortureError> {
        let failed = |what: &str, log: &Path| {
            TortureError::Node(format!("the node {what}; its log is {}", log.display()))
        };
        let log = self.log();
        let began = Instant::now();
        while began.elapsed() < START {
            if let Ok(text) = fs::read(file) {
                let ports: serde_json::Value =
                    serde_json::from_slice(&text).map_err(|_| failed("reported no ports", &log))?;
                let port = |name: &str| ports[name].as_u64().and_then(|port| u16::try_from(port).ok());
                let ports = port("mgmt").zip(port("kv")).map(|(mgmt, kv)| Ports { mgmt, kv });
                return ports.ok_or_else(|| failed("reported no ports", &log));
            }
            let ended = match &mut self.process {
                Some(process) => process.try_wait()?,
                None => None,
            };
            if let Some(status) = ended {
                return Err(failed(&format!("ended at once ({status})"), &log));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(failed("did not start", &log))
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

    fn end(&mut self) -> Result<(), TortureError> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }
}

impl Target for LocalNode {
    fn seed(&self) -> String {
        format!("{}:{}", self.options.listen, self.ports.kv)
    }

    fn rest(&self) -> Rest {
        Rest::new(format!("{}:{}", self.options.listen, self.ports.mgmt), Some((USER, PASSWORD)))
    }

    fn pids(&self) -> Vec<u32> {
        self.process.iter().map(Child::id).collect()
    }

    fn disk_bytes_per_sec(&self) -> u64 {
        self.options.disk_bytes_per_sec
    }

    fn kill(&mut self, _node: usize) -> Result<(), TortureError> {
        self.end()
    }

    fn restart(&mut self, _node: usize) -> Result<(), TortureError> {
        self.run()
    }
}

/// Whatever ends this process, kill -9 included, is to end the child as well.
fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let ask = move || {
        // SAFETY: two plain system calls, which may be made between fork and exec.
        let (asked, is_orphan) = unsafe {
            let asked = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            (asked, u32::try_from(libc::getppid()) != Ok(parent))
        };
        // Should the parent have ended before the child asked, nobody would tell it.
        if asked == 0 && !is_orphan { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    // SAFETY: the closure neither allocates nor takes a lock.
    unsafe { command.pre_exec(ask) };
}

impl Drop for LocalNode {
    fn drop(&mut self) {
        // Nobody is left to tell.
        let _ = self.end();
    }
}
