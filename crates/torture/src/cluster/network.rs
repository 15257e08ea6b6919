//! A network of the cluster's own, where the machine allows it. Each node has a namespace. They are joined by a bridge
//! that this process is on as well. Links between two nodes can be cut in either direction while clients still reach both.
//!
//! A cut is a false entry in the sender's neighbour table: what it sends goes to nobody, silently, as on a broken
//! network. (A blackhole route would tell the sender at once.) Whether links really carry, and are really cut, is tried before
//! anything relies on it: a firewall of the host may have a say.

use crate::TortureError;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Link-layer address that nobody has.
const NOBODY: &str = "02:00:00:00:00:fe";
const LINK: &str = "eth0";
/// In front of the process id in all names.
const PREFIX: &str = "st";
/// Where `ip` keeps namespaces.
const NAMESPACES: &str = "/var/run/netns";
/// How long a datagram may take; and how often one is sent before a link counts as one that carries nothing.
const FLIGHT: Duration = Duration::from_millis(100);
const TRIES: u8 = 20;
/// So many are sent to see that nothing arrives.
const TRIES_IN_VAIN: u8 = 3;

/// The namespaces of one cluster. They are gone when this is dropped.
pub struct Network {
    /// Distinguishes it from others on this machine.
    name: String,
    subnet: u8,
    nodes: usize,
}

impl Network {
    /// For so many nodes.
    ///
    /// # Errors
    /// This machine or this user may not; what was made until then is removed.
    pub fn new(nodes: usize) -> Result<Network, TortureError> {
        sweep();
        let pid = std::process::id();
        let network = Network { name: format!("{PREFIX}{pid}"), subnet: (pid % 250) as u8, nodes };
        let bridge = network.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["addr", "add", &format!("10.213.{}.254/24", network.subnet), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for node in 0..nodes {
            let (namespace, outer) = (network.namespace(node), network.outer(node));
            ip(&["netns", "add", &namespace])?;
            ip(&["link", "add", &outer, "type", "veth", "peer", "name", LINK, "netns", &namespace])?;
            ip(&["link", "set", &outer, "master", &bridge, "up"])?;
            let address = format!("{}/24", network.address(node));
            ip(&["-n", &namespace, "addr", "add", &address, "dev", LINK])?;
            ip(&["-n", &namespace, "link", "set", LINK, "up"])?;
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        }
        network.try_links()?;
        Ok(network)
    }

    /// Whether a link carries, can be cut, and heals; and whether programs can be run where it ends.
    fn try_links(&self) -> Result<(), TortureError> {
        ip(&["netns", "exec", &self.namespace(0), "ip", "link"])?;
        if self.nodes < 2 {
            return Ok(());
        }
        let (to, from) = (self.socket(0)?, self.socket(1)?);
        let wrong = |what: &str| Err(TortureError::Node(format!("links between network namespaces {what}")));
        if !carries(&from, &to, TRIES)? {
            return wrong("carry nothing (a firewall?)");
        }
        self.cut(1, 0)?;
        if carries(&from, &to, TRIES_IN_VAIN)? {
            return wrong("cannot be cut");
        }
        self.heal()?;
        if !carries(&from, &to, TRIES)? {
            return wrong("do not heal");
        }
        Ok(())
    }

    /// A socket for datagrams in a node's namespace.
    fn socket(&self, node: usize) -> Result<UdpSocket, TortureError> {
        let namespace = File::open(Path::new(NAMESPACES).join(self.namespace(node)))?;
        let address = self.address(node);
        // A thread that enters a namespace stays in it, so it is one that ends here.
        let made = std::thread::spawn(move || {
            // SAFETY: takes numbers only, and the descriptor is open; nothing but the calling thread changes its namespace.
            if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            UdpSocket::bind((address, 0))
        });
        Ok(made.join().map_err(|_| TortureError::Thread)??)
    }

    fn bridge(&self) -> String {
        format!("{}b", self.name)
    }

    fn outer(&self, node: usize) -> String {
        format!("{}v{node}", self.name)
    }

    /// The namespace of a node.
    #[must_use]
    pub fn namespace(&self, node: usize) -> String {
        format!("{}n{node}", self.name)
    }

    /// The address of a node.
    #[must_use]
    pub fn address(&self, node: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 213, self.subnet, node as u8 + 1))
    }

    /// From now on nothing that `from` sends reaches `to`.
    ///
    /// # Errors
    /// The system refuses.
    pub fn cut(&self, from: usize, to: usize) -> Result<(), TortureError> {
        let (namespace, to) = (self.namespace(from), self.address(to).to_string());
        ip(&["-n", &namespace, "neigh", "replace", &to, "lladdr", NOBODY, "dev", LINK, "nud", "permanent"])
    }

    /// Heals everything.
    ///
    /// # Errors
    /// The system refuses.
    pub fn heal(&self) -> Result<(), TortureError> {
        for from in 0..self.nodes {
            ip(&["-n", &self.namespace(from), "neigh", "flush", "dev", LINK, "nud", "permanent"])?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // What was never made cannot be removed, and nobody is left to tell.
        for node in 0..self.nodes {
            let _ = ip(&["netns", "del", &self.namespace(node)]);
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

/// Removes what runs have left behind that were killed.
fn sweep() {
    let list = |words: &[&str]| ask(words).unwrap_or_default();
    let is_left = |name: &str, end: char| {
        let pid = name.strip_prefix(PREFIX)?.split_once(end)?.0;
        let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && !Path::new("/proc").join(pid).exists()).then(|| name.to_owned())
    };
    let (namespaces, bridges) = (list(&["netns", "list"]), list(&["-o", "link", "show", "type", "bridge"]));
    for name in namespaces.lines().filter_map(|line| is_left(line.split_whitespace().next()?, 'n')) {
        let _ = ip(&["netns", "del", &name]);
    }
    for name in bridges.lines().filter_map(|line| is_left(line.split(": ").nth(1)?, 'b')) {
        let _ = ip(&["link", "del", &name]);
    }
}

fn ip(words: &[&str]) -> Result<(), TortureError> {
    ask(words).map(|_| ())
}

/// Whether a datagram arrives when so many are sent.
fn carries(from: &UdpSocket, to: &UdpSocket, tries: u8) -> Result<bool, TortureError> {
    to.set_read_timeout(Some(FLIGHT))?;
    let address = to.local_addr()?;
    // Later ones of an earlier try must not be taken for one of this.
    let mark = fastrand::u64(..).to_le_bytes();
    let mut told = [0; size_of::<u64>()];
    for _ in 0..tries {
        // What cannot even be sent does not arrive.
        let _ = from.send_to(&mark, address);
        while to.recv(&mut told).is_ok() {
            if told == mark {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// What the program says.
fn ask(words: &[&str]) -> Result<String, TortureError> {
    let done = Command::new("ip").args(words).stdin(Stdio::null()).output();
    let done = done.map_err(|error| TortureError::Node(format!("ip (Debian: iproute2): {error}")))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(TortureError::Node(format!("ip {}: {said}", words.join(" "))))
}
